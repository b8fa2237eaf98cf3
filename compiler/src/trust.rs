//! The trust requirements of a project (`language.md` 7 and 9, `engine.md` 6): hooks that execute or sign, tools that
//! start programs, providers whose connection the project changes, a risk table of the project, grants beyond `safe`
//! and `write`, items of the user space, scripts that simulate the model. This module lists them with their files; the
//! engine records which files the user trusts.

pub(crate) mod reach;

use std::sync::Arc;

use rye_grammar::{ItemId, Sources};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::command_files::{self, CallValues, LOADED_BY, UNREADABLE};
use crate::commands::COMMAND_FILE;
use crate::diagnostics::sanitize;
use crate::hook::{HookAction, HookCall, HookPoint, PlannedHook};
use crate::item::{Items, Tool};
use crate::lower::HookTrace;
use crate::mcp_servers::{ConfiguredServers, ServerDrift, escape_non_ascii};
use crate::model::PRICES;
use crate::plan::{Grant, Plan, PlannedModel, SourcePlace, hex};
use crate::sandbox::disguises_built_in;
use crate::semantics::hook_point;
use crate::tool_spec::{ServerSandbox, ToolKind};
use crate::world::{ItemKind, Space, World};

pub use reach::{of_continuation, of_replaced_hook_items, of_user_space, script_of, script_requirement, user_space_of};

/// The settings files with hooks. Directives declare hooks too.
pub(crate) const HOOK_FILES: [&str; 2] = ["agent/hook_conditions", "agent/hooks"];
/// The settings files that can declare a hook at the point `command`.
const COMMAND_HOOK_FILES: [&str; 3] = [COMMAND_FILE, HOOK_FILES[0], HOOK_FILES[1]];

/// Returns the settings files that can declare a hook at a point. A plan does not record which of these files declares
/// a hook, so trust in the hook requires trust in all of them.
pub(crate) fn files_of_point(point: HookPoint) -> &'static [&'static str] {
    if point == HookPoint::Command { &COMMAND_HOOK_FILES } else { &HOOK_FILES }
}
/// Id of the tool of the standard library that runs shell code.
const SHELL_TOOL: &str = "rye/bash/bash";
pub(crate) const RISK_FILE: &str = "agent/capability_risk";
pub(crate) const MODELS_FILE: &str = "agent/models";
pub(crate) const RESILIENCE_FILE: &str = "agent/resilience";
pub(crate) const PROVIDER_PREFIX: &str = "agent/providers/";
/// Maximum length of the description of a requirement, in characters.
const MAX_SHOWN_CHARS: usize = 4_000;
/// The wire format of the scripted provider, which sends no requests.
const SCRIPTED: &str = "scripted";

/// A project file and its content hash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subject {
    pub kind: ItemKind,
    pub id: String,
    /// SHA-256 of the content, in lowercase hex.
    pub sha256: String,
}

/// A trust requirement: something that the project executes or makes reachable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustRequirement {
    pub kind: TrustRequirementKind,
    /// The name of the part that needs trust: the id of the hook, tool or provider.
    pub name: String,
    /// A description for humans, on one line.
    pub what: String,
    /// The files that declare the requirement. All of them must be trusted.
    pub subjects: Vec<Subject>,
    /// Words of a command that may name project files or folders ([`command_files`]). A named file, and every file in a
    /// named folder, must be trusted like the tool's own file. `${NAME}` represents the words in the value of an
    /// environment variable.
    pub programs: Vec<String>,
    pub place: Option<SourcePlace>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrustRequirementKind {
    Hook,
    Tool,
    /// An MCP server. Only the CLI lists servers, because servers are not items.
    Server,
    Provider,
    Risk,
    /// Grants of a directive that an untrusted project may not use.
    Grants,
    /// Items of the user space that a file of the project reaches.
    UserSpace,
    /// A script that simulates the model.
    Script,
}

impl TrustRequirementKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hook => "hook",
            Self::Tool => "tool",
            Self::Server => "server",
            Self::Provider => "provider",
            Self::Risk => "risk",
            Self::Grants => "grants",
            Self::UserSpace => "user_space",
            Self::Script => "script",
        }
    }
}

/// Lists the trust requirements of a plan, except those of its tools. A plan does not record how its tools run, so
/// `requirements_of_tools` lists the requirements of the tools.
pub fn requirements_of_plan(plan: &Plan, traces: &[HookTrace]) -> Vec<TrustRequirement> {
    requirements_of_granted_plan(plan, &plan.capabilities.grants, traces)
}

/// Lists the requirements like [`requirements_of_plan`], for a thread with these grants. A child can get more grants
/// than its plan declares.
pub fn requirements_of_granted_plan(plan: &Plan, grants: &[Grant], traces: &[HookTrace]) -> Vec<TrustRequirement> {
    let mut found = Vec::new();
    for (index, hook) in plan.hooks.iter().enumerate().filter(|(_, hook)| needs_trust(hook)) {
        let what = describe_effect(hook.event, &hook.action, &hook.grants).unwrap_or_default();
        found.push(requirement_of_hook(plan, (index, hook), &what, traces));
    }
    let models = std::iter::once(&plan.model).chain(plan.model.fallback.as_deref());
    for model in models.filter(|model| is_redirected(&model.wire, &model.from_project)) {
        let file = format!("{PROVIDER_PREFIX}{}", model.provider);
        let of_file = subjects(plan, ItemKind::Config, &[&file]);
        if found.iter().all(|known| known.subjects != of_file) {
            found.push(redirected_provider(model, of_file));
        }
    }
    let of_models = subjects(plan, ItemKind::Config, &[MODELS_FILE]);
    if !of_models.is_empty() && plan.model.wire != SCRIPTED {
        found.push(model_choice(of_models));
    }
    let risk = subjects(plan, ItemKind::Config, &[RISK_FILE]);
    if !risk.is_empty() {
        found.push(risk_table_requirement(risk));
    }
    let resilience = subjects(plan, ItemKind::Config, &[RESILIENCE_FILE]);
    if plan.settings.values().estimates_unknown_outcome && !resilience.is_empty() {
        found.push(estimated_spend(resilience));
    }
    found.extend(reach::of_grants(plan, grants));
    found.extend(reach::of_steering(plan, grants, traces));
    found.extend(reach::of_scripts(plan));
    found
}

/// Returns the requirement of a hook of a plan. `index` is the position of the hook in `traces`, and `what` describes
/// the action that needs trust.
fn requirement_of_hook(
    plan: &Plan,
    (index, hook): (usize, &PlannedHook),
    what: &str,
    traces: &[HookTrace],
) -> TrustRequirement {
    TrustRequirement {
        kind: TrustRequirementKind::Hook,
        name: hook.id.clone(),
        what: one_line(&format!("at {}: {what}", hook_point::row_of(hook.event).name)),
        subjects: reach::of_hook(plan, hook),
        programs: files_of_hook(&hook.action),
        place: traces.get(index).and_then(|trace| trace.place.clone()),
    }
}

/// Returns the ids of the tools in the palette of a plan, and of the tools that the palette leaves out.
fn reached_tools(plan: &Plan) -> impl Iterator<Item = &ItemId> {
    let offered = plan.palette.iter().filter_map(|tool| tool.item_id.as_ref());
    offered.chain(plan.dropped_tools.iter().map(|tool| &tool.item_id))
}

/// Reads the settings files of the tools that a plan reaches. A file that is read becomes part of the plan's manifest.
/// A file that cannot be read is no error here: a later call of its tool fails.
pub(crate) fn read_tool_settings(items: &Items<'_>, world: &dyn World, plan: &Plan) {
    for tool in reached_tools(plan).filter_map(|id| items.tool(id)) {
        if let Some(source) = &tool.spec.config {
            world.candidates(ItemKind::Config, &source.id).ok();
        }
    }
}

/// Returns the trust requirements of the tools that a plan reaches: of each tool of the project that starts programs or
/// sends requests, and of the project's settings files that tools read.
pub(crate) fn requirements_of_tools(world: &dyn World, items: &Items<'_>, plan: &Plan) -> Vec<TrustRequirement> {
    let of_file = |tool: &Tool| {
        let subject = subjects(plan, ItemKind::Tool, &[tool.file.id.as_str()]).pop()?;
        let found = requirement_of_tool(tool, subject.sha256, &items.sources())?;
        Some(with_refused_server(items, tool, found))
    };
    let of_one = |tool: Arc<Tool>| of_file(&tool).into_iter().chain(requirement_of_settings(world, &tool));
    reached_tools(plan).filter_map(|id| items.tool(id)).flat_map(of_one).collect()
}

/// Returns the trust requirement `found` of a tool. If all calls of an MCP tool are refused, the description is
/// replaced by the reason: the server is not configured, or its settings differ from the settings in the tool file. The
/// tool file still needs trust, because its calls work again once the settings match.
pub(crate) fn with_refused_server(items: &Items<'_>, tool: &Tool, found: TrustRequirement) -> TrustRequirement {
    if !matches!(tool.spec.kind, ToolKind::Mcp { .. }) {
        return found;
    }
    let drift = ConfiguredServers::read(items).drift_of(&tool.spec).filter(ServerDrift::refuses_calls);
    match drift {
        Some(drift) => TrustRequirement { what: one_line(&format!("starts nothing now: {drift}")), ..found },
        None => found,
    }
}

/// Returns the trust requirement of a settings file of the project from which a tool gets its settings. The file needs
/// trust because it could send the tool's data and variables to another address. `None` if the tool reads no settings
/// file of the project, or is a tool of the project that itself needs no trust.
pub fn requirement_of_settings(world: &dyn World, tool: &Tool) -> Option<TrustRequirement> {
    let is_of_project = tool.file.space == Space::Project;
    if is_of_project && matches!(tool.spec.kind, ToolKind::Builtin { .. }) {
        return None;
    }
    let source = tool.spec.config.as_ref()?;
    // If the files cannot be listed, the call itself fails, because it reads the same files.
    let files = world.candidates(ItemKind::Config, &source.id).ok()?;
    let first = files.first().filter(|first| first.space == Space::Project)?;
    Some(TrustRequirement {
        kind: TrustRequirementKind::Tool,
        name: tool.file.id.to_string(),
        what: one_line(&if is_of_project {
            format!("gets its settings from `{}`", first.path)
        } else {
            format!("is a tool of another space that gets its settings from `{}`", first.path)
        }),
        subjects: vec![Subject {
            kind: ItemKind::Config,
            id: source.id.to_string(),
            sha256: hex(&Sha256::digest(&first.bytes)),
        }],
        programs: Vec::new(),
        place: Some(SourcePlace { file: first.path.to_string(), line: 1, column: 1 }),
    })
}

/// Returns the requirement of a project tool that starts a program or sends requests; `None` for any other tool.
pub(crate) fn requirement_of_tool(tool: &Tool, sha256: String, sources: &Sources) -> Option<TrustRequirement> {
    requirement_of_call(tool, sha256, sources, None)
}

/// Returns the trust requirement of a project tool for one call. The requirement covers only the files that the values
/// in `call` name; without `call`, it covers the files of every possible call. `None` if the tool needs no trust (see
/// `requirement_of_tool`).
pub fn requirement_of_call(
    tool: &Tool,
    sha256: String,
    sources: &Sources,
    call: Option<CallValues<'_>>,
) -> Option<TrustRequirement> {
    let Tool { file, spec } = tool;
    if file.space != Space::Project {
        return None;
    }
    let given = if spec.environment.is_empty() {
        String::new()
    } else {
        format!(", gets the environment variables {}", spec.environment.join(", "))
    };
    let (what, mut programs) = match &spec.kind {
        ToolKind::Builtin { name } if !disguises_built_in(&file.id, name) => return None,
        ToolKind::Builtin { name } => {
            (format!("is the engine's built-in tool `{name}` under another name"), Vec::new())
        }
        ToolKind::Command { argv } => {
            let mut words = command_files::files_of_tool(argv, &file.path, call);
            let folders = command_files::describe_folders(&words);
            let folders = folders.map(|folders| format!(", trusting {folders}")).unwrap_or_default();
            words.extend(spec.environment.iter().map(|name| format!("${{{name}}}")));
            (format!("starts {}{folders}", serde_json::to_string(argv).unwrap_or_default()), words)
        }
        // The program is the tool file itself, which the requirement already covers, so the words only name the loaded
        // files.
        ToolKind::Script { .. } => ("runs its own code".to_owned(), vec![format!("{LOADED_BY}{}", file.path)]),
        ToolKind::Http(http) => (format!("sends requests to {}", escape_non_ascii(&http.url)), Vec::new()),
        ToolKind::Mcp { server, runs, sandbox, .. } => (describe_server(server, runs, *sandbox), Vec::new()),
    };
    // Only the programs of these tools have a sandbox of their own.
    let starts = matches!(spec.kind, ToolKind::Command { .. } | ToolKind::Script { .. });
    let unreadable: Vec<&String> = spec.needs.write_only.iter().filter(|_| starts).collect();
    programs.extend(unreadable.iter().map(|folder| format!("{UNREADABLE}{folder}")));
    let unreadable = unreadable.iter().map(|folder| format!(", cannot read `{folder}`")).collect::<Vec<_>>().concat();
    let lives = match (spec.persistent, spec.pushes) {
        (false, _) => "",
        (true, false) => ", stays alive between calls",
        (true, true) => ", stays alive between calls, submits messages to the chat",
    };
    Some(TrustRequirement {
        kind: TrustRequirementKind::Tool,
        name: file.id.to_string(),
        what: one_line(&format!("{what}{given}{unreadable}{lives}")),
        subjects: vec![Subject { kind: ItemKind::Tool, id: file.id.to_string(), sha256 }],
        programs,
        place: sources.get(file.source).map(|source| SourcePlace { file: source.path.to_string(), line: 1, column: 1 }),
    })
}

/// Describes the start of an MCP server, for humans; `runs` is its command or its address.
pub fn describe_server(server: &str, runs: &str, sandbox: ServerSandbox) -> String {
    match sandbox {
        ServerSandbox::Net => format!("connects to the MCP server `{server}` at {runs}"),
        ServerSandbox::Process => format!("starts the MCP server `{server}`: {runs}"),
        ServerSandbox::None => format!("starts the MCP server `{server}` WITHOUT A SANDBOX: {runs}"),
    }
}

/// Returns true if a hook needs trust, whatever else its plan contains: the hook comes from a file of the project, and
/// executes a tool or a directive, signs an item, or can raise a limit.
pub fn needs_trust(hook: &PlannedHook) -> bool {
    hook.space == Space::Project && hook.is_live() && describe_effect(hook.event, &hook.action, &[]).is_some()
}

/// Describes, for humans, an effect of a hook that goes beyond a change of texts: the hook starts something, or can
/// raise a limit. `None` if the hook has no such effect.
pub fn describe_effect(event: HookPoint, action: &HookAction, grants: &[String]) -> Option<String> {
    let raises = match action {
        HookAction::Raise { limit, value } => Some(one_line(&format!("raises the limit `{limit}` to {value}"))),
        // A hook at the point `limit` takes its action from the text of the knowledge.
        HookAction::Execute { item_type: ItemKind::Knowledge, item_id, .. } if event == HookPoint::Limit => {
            Some(one_line(&format!("takes its action from the knowledge `{item_id}`, whose text can raise the limit")))
        }
        HookAction::Execute { .. }
        | HookAction::SetExtends { .. }
        | HookAction::Fetch { .. }
        | HookAction::Sign { .. }
        | HookAction::Transform { .. }
        | HookAction::Handled { .. }
        | HookAction::Message { .. }
        | HookAction::SystemPrompt { .. }
        | HookAction::Drop { .. }
        | HookAction::KeepLast { .. }
        | HookAction::Inject { .. }
        | HookAction::Replace { .. }
        | HookAction::Block { .. }
        | HookAction::Modify { .. }
        | HookAction::Retry { .. }
        | HookAction::Continue
        | HookAction::Terminate { .. }
        | HookAction::Escalate
        | HookAction::Handoff
        | HookAction::Compact
        | HookAction::FollowUp { .. } => None,
    };
    describe_start(action, grants).or(raises)
}

/// Describes how a hook changes the text that a model reads; `None` if the hook does not change the text.
pub(crate) fn describe_steering(action: &HookAction) -> Option<&'static str> {
    match action {
        HookAction::Fetch { .. } => Some("adds knowledge to the prompt"),
        HookAction::Execute { .. } => Some("executes an item and answers with its result"),
        HookAction::Transform { .. } => Some("replaces the user's message"),
        HookAction::Message { .. } | HookAction::Inject { .. } => Some("adds a message"),
        HookAction::SystemPrompt { .. } => Some("changes the system prompt"),
        HookAction::Drop { .. } | HookAction::KeepLast { .. } => Some("removes messages"),
        HookAction::Replace { .. } => Some("replaces the messages"),
        HookAction::Block { .. } => Some("refuses a call or an answer, with a reason that the model reads"),
        HookAction::Modify { .. } => Some("changes results of tools"),
        HookAction::FollowUp { .. } => Some("makes the model continue with a message"),
        HookAction::SetExtends { .. }
        | HookAction::Sign { .. }
        | HookAction::Handled { .. }
        | HookAction::Retry { .. }
        | HookAction::Continue
        | HookAction::Terminate { .. }
        | HookAction::Escalate
        | HookAction::Raise { .. }
        | HookAction::Handoff
        | HookAction::Compact => None,
    }
}

/// Describes for the user the call that a hook makes: the tool or directive that the hook executes, or the item that it
/// signs, with the `grants` of the hook. `None` for any other action, because it starts nothing.
pub(crate) fn describe_start(action: &HookAction, grants: &[String]) -> Option<String> {
    let beside = if grants.is_empty() { String::new() } else { format!(", granting {}", grants.join(", ")) };
    match action.call()? {
        HookCall::Execute { item_type: item_type @ (ItemKind::Tool | ItemKind::Directive), item_id, params } => {
            let bare = params.is_null() || params.as_object().is_some_and(serde_json::Map::is_empty);
            let params = if bare { String::new() } else { format!(" {params}") };
            Some(one_line(&format!("executes {} `{item_id}`{params}{beside}", item_type.as_str())))
        }
        HookCall::Sign { item_type, item_id } => {
            Some(one_line(&format!("signs {} `{item_id}` with your key{beside}", item_type.as_str())))
        }
        HookCall::Execute {
            item_type: ItemKind::Knowledge | ItemKind::Config | ItemKind::Prompt | ItemKind::Skill,
            ..
        }
        | HookCall::Fetch { .. } => None,
    }
}

/// Returns the words that may name project files in the shell command of a hook; empty if the hook runs no shell
/// command.
pub(crate) fn files_of_hook(action: &HookAction) -> Vec<String> {
    match action.call() {
        Some(HookCall::Execute { item_type: ItemKind::Tool, item_id, params }) if item_id == SHELL_TOOL => {
            let command = params.get("command").and_then(serde_json::Value::as_str);
            command.map(command_files::files_of_shell_text).unwrap_or_default()
        }
        Some(HookCall::Execute { .. } | HookCall::Fetch { .. } | HookCall::Sign { .. }) | None => Vec::new(),
    }
}

/// Returns true if a project file changes a provider's endpoint, key or prices. Always false for the scripted provider,
/// which sends no requests.
pub(crate) fn is_redirected(wire: &str, from_project: &[String]) -> bool {
    wire != SCRIPTED && !from_project.is_empty()
}

fn redirected_provider(model: &PlannedModel, subjects: Vec<Subject>) -> TrustRequirement {
    provider(&model.provider, &model.connection, &model.from_project, subjects)
}

pub(crate) fn provider(
    id: &str,
    connection: &serde_json::Value,
    from_project: &[String],
    subjects: Vec<Subject>,
) -> TrustRequirement {
    let (reach, costs): (Vec<&String>, Vec<&String>) = from_project.iter().partition(|key| *key != PRICES);
    let shown = |key: &&String| {
        let value = connection.get(key.as_str()).map(serde_json::Value::to_string).unwrap_or_default();
        let host =
            host_after_user_info(&value).map(|host| format!(" (host {})", escape_non_ascii(host))).unwrap_or_default();
        format!("{key}: {}{host}", escape_non_ascii(&value))
    };
    let set: Vec<String> = reach.iter().map(shown).collect();
    let by =
        (!set.is_empty()).then(|| format!("sends prompts and the key as these settings define: {}", set.join(", ")));
    let costs =
        (!costs.is_empty()).then(|| "sets the prices of its models, and so the effect of spend limits".to_owned());
    let place = SourcePlace { file: format!(".ai/config/{PROVIDER_PREFIX}{id}.yaml"), line: 1, column: 1 };
    TrustRequirement {
        kind: TrustRequirementKind::Provider,
        name: id.to_owned(),
        what: one_line(&[by, costs].into_iter().flatten().collect::<Vec<_>>().join("; ")),
        subjects,
        programs: Vec::new(),
        place: Some(place),
    }
}

pub(crate) fn risk_table_requirement(subjects: Vec<Subject>) -> TrustRequirement {
    settings_file(RISK_FILE, "sets the risk tiers of the project's capabilities", subjects)
}

/// Returns the trust requirement for project settings that charge an estimate, instead of the worst case, for a model
/// call without a reported usage.
pub(crate) fn estimated_spend(subjects: Vec<Subject>) -> TrustRequirement {
    let what =
        "charges model calls without a reported usage at an estimate, so that a run can cost more than its spend limit";
    settings_file(RESILIENCE_FILE, what, subjects)
}

/// Returns the trust requirement for project settings that select the provider and the model of threads. The provider
/// receives the prompts and the user's key, and its prices apply.
pub(crate) fn model_choice(subjects: Vec<Subject>) -> TrustRequirement {
    let what = "selects the provider and the model of directives that name no model, and so the recipient and the cost of prompts";
    TrustRequirement { kind: TrustRequirementKind::Provider, ..settings_file(MODELS_FILE, what, subjects) }
}

fn settings_file(file: &str, what: &str, subjects: Vec<Subject>) -> TrustRequirement {
    TrustRequirement {
        kind: TrustRequirementKind::Risk,
        name: file.to_owned(),
        what: what.to_owned(),
        subjects,
        programs: Vec::new(),
        place: Some(SourcePlace { file: format!(".ai/config/{file}.yaml"), line: 1, column: 1 }),
    }
}

/// Returns the project files of the items `ids`, with the hashes in the plan's manifest. Items of other spaces are left
/// out.
fn subjects(plan: &Plan, kind: ItemKind, ids: &[&str]) -> Vec<Subject> {
    let of_project = plan.manifest.iter().filter(|read| read.kind == kind && read.space == Some(Space::Project));
    let wanted = of_project.filter(|read| ids.contains(&read.id.as_str()));
    wanted.filter_map(|read| Some(Subject { kind, id: read.id.clone(), sha256: read.sha256.clone()? })).collect()
}

/// Returns the host of a URL with user information (`https://api.known.test@host/`). A description of the URL states
/// this host, because readers would mistake the user information for the host. `None` for a URL without user
/// information.
fn host_after_user_info(text: &str) -> Option<&str> {
    let (_, behind) = text.split_once("://")?;
    let authority = behind.split(['/', '?', '#', '\\', '"']).next()?;
    authority.rsplit_once('@').map(|(_, host)| host)
}

/// Formats a text on one line without control characters. If the text is too long, its middle is left out and never its
/// end, so that padding cannot hide the last command of a tool. The result states the number of omitted characters.
pub fn one_line(text: &str) -> String {
    let text = sanitize(text, "\u{fffd}").replace('\t', " ");
    let count = text.chars().count();
    if count <= MAX_SHOWN_CHARS {
        return text;
    }
    let half = MAX_SHOWN_CHARS / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(count - half).collect();
    format!("{head}… [{} characters not shown] …{tail}", count - 2 * half)
}

#[cfg(test)]
mod tests;
