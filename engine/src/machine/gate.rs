//! The gate: the only place that creates an [`Allowed`] call. It checks exactly the item that is dispatched
//! (`language.md` 9). For a native tool, this is the item that the palette has under the called name. For a primary, it
//! is the item of the validated `item_type` and `item_id`. Other arguments do not affect the decision.

use std::ops::{Deref, Range};
use std::sync::LazyLock;

use rye_compiler::hook::PlannedHook;
use rye_compiler::plan::{ApprovalOrigin, Grant, Node, PalettePrimary as Action, Plan};
use rye_compiler::primary::{DIRECTIVE_RETURN_TOOL, ExecuteRequest, FetchRequest, ItemType, SignRequest};
use rye_compiler::sandbox::{SandboxKind, ToolSandbox};
use rye_compiler::semantics::capability::{self, CapabilityRequest, Primary};
use rye_compiler::semantics::risk::{Policy, RiskTableError};
use rye_compiler::world::{ItemKind, Space};
use rye_grammar::ItemId;
use serde_json::{Map, Value};

use super::prompt_bounds::{DENIED_IN_PROMPT, current_grants, is_narrowed};
use super::state::ThreadState;
use super::state_store::{STATE_TOOL, StateOp};
use crate::event::{Approval, ChatMode, Opened, ResultKind};
use crate::json_faults::find_fault;
use crate::surrogates::parse_lenient;

mod needs;
mod parse;
mod start;

pub(crate) use needs::is_folder_inside;
use parse::{describe_unknown_tool, parse_call};
pub(super) use start::THREAD_DIRECTIVE;

/// A value that the gate has authorized. Only the gate creates values of this type.
#[derive(Debug, Clone, PartialEq)]
pub struct Allowed<T> {
    inner: T,
    capability: String,
}

impl<T> Allowed<T> {
    /// Returns the capability that was checked, such as `rye.execute.tool.rye.bash.bash`.
    pub fn capability(&self) -> &str {
        &self.capability
    }

    pub fn into_inner(self) -> T {
        self.inner
    }

    /// Converts the value and keeps the authorization.
    pub(super) fn map<U>(self, make: impl FnOnce(T) -> U) -> Allowed<U> {
        Allowed { inner: make(self.inner), capability: self.capability }
    }
}

impl<T> Deref for Allowed<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

/// An authorized call: its position in the reply, and the folders and hosts that it may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Dispatch {
    pub turn: u64,
    pub index: usize,
    pub call_id: String,
    /// The name under which the palette lists the called tool.
    pub name: String,
    pub call: GatedCall,
    pub idempotent: bool,
    /// Folders that a process of this call may write. Every thread of the spawn chain grants these folders.
    pub write: Vec<String>,
    /// Hosts that a process of this call may reach. Every thread of the spawn chain grants these hosts.
    pub net: Vec<String>,
    /// Grant patterns of every thread of the spawn chain, the thread's own first. A write to an item is checked against
    /// these patterns.
    pub patterns: Vec<Vec<String>>,
    /// Remaining duration of the thread, in milliseconds.
    pub remaining_ms: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum GatedCall {
    Tool {
        item_id: ItemId,
        parameters: Value,
    },
    /// `rye_execute` on knowledge, which returns the body of the item.
    Knowledge {
        item_id: ItemId,
    },
    Fetch(FetchRequest),
    Sign(SignRequest),
    /// A directive that a hook starts. A start by the model is [`GateDecision::Spawn`] instead.
    Directive(ChildStart),
}

/// A request to start a child.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildStart {
    /// Id of the directive, or of the tool if `tool` is set.
    pub directive: ItemId,
    pub inputs: Map<String, Value>,
    pub model: Option<String>,
    pub limit_overrides: Map<String, Value>,
    /// True if the caller does not wait for the child.
    pub detached: bool,
    /// True if the child runs one call of a tool, with `inputs` as its parameters.
    pub tool: bool,
}

/// The gate's decision on one call.
#[derive(Debug, Clone, PartialEq)]
pub enum GateDecision {
    Run(Allowed<Dispatch>),
    Spawn(Allowed<ChildStart>),
    /// An operation on the thread's store, which the machine performs itself.
    Keep(Allowed<StateOp>),
    /// The call is `rye_directive_return`, which ends the thread with a result.
    Return,
    /// The call needs approval. `tool` is the tool that the call runs, and `parameters` are the parameters of the tool.
    /// If the call runs no tool, `tool` is `None` and `parameters` is null.
    NeedsApproval {
        capability: String,
        tool: Option<ItemId>,
        parameters: Value,
    },
    /// The call does not run. `text` is the reason, which is sent to the model.
    Answer {
        why: ResultKind,
        text: String,
    },
}

/// Returns the decision on a call of the last reply.
pub(super) fn authorize(plan: &Plan, state: &ThreadState, index: usize) -> GateDecision {
    let Some(call) = state.calls.list.get(index) else {
        return refused("no such call".into());
    };
    if let Some(reason) = &call.blocked {
        return GateDecision::Answer { why: ResultKind::Blocked, text: reason.clone() };
    }
    if let Some(reason) = &call.cannot_run {
        return refused(reason.clone());
    }
    if call.cut {
        let text =
            "the reply reached its output limit inside this call, so the call was not run: write shorter replies";
        return refused(text.into());
    }
    if let Some(text) = call.call.malformed() {
        let shown: String = text.chars().take(200).collect();
        // A text that is not an object has no keys that could repeat, but it can contain a large integer.
        let fault = find_fault(text).filter(|_| parse_lenient(text).is_ok_and(|value| value.is_object()));
        let fault = fault.map_or("are not a JSON object".to_owned(), |fault| format!("are refused, because {fault}"));
        return refused(format!("the arguments of {} {fault}: {shown}", call.call.name));
    }
    let Some(tool) = plan.palette.iter().find(|tool| *tool.name == call.call.name) else {
        return refused(describe_unknown_tool(plan, &call.call.name));
    };
    if tool.primary == Action::Return {
        if plan.graph.has(Node::Return) && *tool.name == *DIRECTIVE_RETURN_TOOL {
            return GateDecision::Return;
        }
        return refused("this directive declares no outputs to return".into());
    }
    let action = match parse_call(plan, tool, &call.call.input) {
        Ok(action) => action,
        Err(text) => return refused(text),
    };
    let checked = match &action {
        // Reading more of a stored result needs no grant, because the thread already has the first part of the result.
        ParsedCall::Fetch(FetchRequest::Object { sha256, .. }) if state.objects.contains(sha256) => {
            Ok(format!("object.{sha256}"))
        }
        ParsedCall::Fetch(FetchRequest::Object { .. }) => {
            return refused("rye_fetch: `object` names no stored result of this thread".into());
        }
        ParsedCall::Tool { .. }
        | ParsedCall::Keep(_)
        | ParsedCall::Knowledge { .. }
        | ParsedCall::Start { .. }
        | ParsedCall::Fetch(_)
        | ParsedCall::Sign(_) => {
            let grants = current_grants(state);
            // A tool that starts a directive needs a grant for the tool and a grant for the directive.
            let by_tool = action.tool().map(|tool| check(plan, grants, &tool_request(Some(tool))));
            by_tool.transpose().and_then(|_| check(plan, grants, &action.request()))
        }
    };
    let capability = match checked {
        Ok(capability) => capability,
        Err(Denial { capability, text }) => {
            let is_prompt = is_narrowed(state) && check(plan, launch_grants(state), &action.request()).is_ok();
            let text = if is_prompt { format!("{text}{DENIED_IN_PROMPT}") } else { text };
            return GateDecision::Answer { why: ResultKind::Denied { capability }, text };
        }
    };
    let attended = state.launch.as_ref().is_some_and(|launch| launch.attended);
    let is_automatic = state.chat.as_ref().is_some_and(|chat| chat.prompt_mode == ChatMode::Auto);
    match needs_approval(plan, &capability).map(|needs| needs && !is_automatic) {
        Ok(true) if !call.answer.is_some_and(Approval::is_approved) && attended => {
            let tool = action.runs().cloned();
            let parameters = action.parameters();
            return GateDecision::NeedsApproval { capability, tool, parameters };
        }
        Ok(_) => {}
        Err(error) => {
            return refused(format!("permission denied: the risk table of this thread cannot be read: {error}"));
        }
    }
    let flags = |id: &ItemId| plan.palette.iter().find(|tool| tool.item_id.as_ref() == Some(id));
    let (call_kind, idempotent) = match action {
        ParsedCall::Start { start, .. } => return GateDecision::Spawn(Allowed { inner: start, capability }),
        ParsedCall::Keep(keep) => return GateDecision::Keep(Allowed { inner: keep, capability }),
        ParsedCall::Tool { item_id, parameters } => {
            let idempotent = flags(&item_id).is_some_and(|tool| tool.idempotent.covers(&parameters));
            (GatedCall::Tool { item_id, parameters }, idempotent)
        }
        ParsedCall::Knowledge { item_id } => (GatedCall::Knowledge { item_id }, true),
        ParsedCall::Fetch(request) => (GatedCall::Fetch(request), true),
        ParsedCall::Sign(request) => (GatedCall::Sign(request), true),
    };
    let grants = current_grants(state);
    let (write, net) = granted_access(grants, &capability);
    let dispatch = Dispatch {
        turn: state.cost.turns,
        index,
        call_id: call.call.id.clone(),
        name: call.call.name.clone(),
        call: call_kind,
        idempotent,
        write,
        net,
        patterns: patterns(grants),
        remaining_ms: remaining_ms(state),
    };
    GateDecision::Run(Allowed { inner: dispatch, capability })
}

/// The tool that runs the commands of a user.
const USER_COMMAND_TOOL: &str = "rye/bash/bash";

/// Authorizes a command that the user typed. The command needs neither a grant nor an approval. The command may access
/// only the folders and hosts that the thread's grants of `USER_COMMAND_TOOL` name.
pub(super) fn authorize_user_command(state: &ThreadState, id: &str, command: &str) -> Allowed<Dispatch> {
    let grants = launch_grants(state);
    let item_id = ItemId::parse(USER_COMMAND_TOOL).ok();
    let request = tool_request(item_id.as_ref());
    let capability = request.capability();
    let (write, net) = granted_access(grants, &capability);
    let parameters = serde_json::json!({"command": command});
    let call = item_id.map_or_else(
        || GatedCall::Fetch(FetchRequest::Object { sha256: String::new(), offset: 0, limit: None }),
        |item_id| GatedCall::Tool { item_id, parameters },
    );
    let dispatch = Dispatch {
        turn: state.cost.turns,
        index: 0,
        call_id: id.to_owned(),
        name: USER_COMMAND_TOOL.to_owned(),
        call,
        idempotent: false,
        write,
        net,
        patterns: patterns(grants),
        remaining_ms: MAX_COMMAND_MS,
    };
    Allowed { inner: dispatch, capability }
}

/// Maximum duration of a shell command that the user runs in a chat, in milliseconds.
const MAX_COMMAND_MS: u64 = 600_000;

/// Authorizes the action of a hook. These actions need no grant of the thread:
///
/// - a fetch, if the id of the item is static,
/// - any action on an item with a static id, if no directive declares the hook,
/// - an action that the grants of the hook itself cover, if no directive declares the hook.
///
/// Any other action needs a grant of the thread and of each of its spawn ancestors. `id_is_static` is true if the id in
/// the plan has no placeholders.
///
/// # Errors
///
/// Returns the reason of a denial.
pub(crate) fn authorize_hook_call(
    plan: &Plan,
    launch: &Opened,
    hook: &PlannedHook,
    id_is_static: bool,
    hook_call: HookCall,
) -> Result<Allowed<Dispatch>, String> {
    let mut dispatch = Dispatch {
        turn: hook_call.turn,
        index: 0,
        call_id: format!("hook.{}", hook.id),
        name: hook.id.clone(),
        call: hook_call.call,
        idempotent: false,
        write: Vec::new(),
        net: Vec::new(),
        patterns: patterns(&launch.grants),
        remaining_ms: hook_call.remaining_ms,
    };
    let (primary, item_type, item_id) = match &dispatch.call {
        GatedCall::Tool { item_id, .. } => (Primary::Execute, ItemType::Tool, Some(item_id)),
        GatedCall::Knowledge { item_id } => (Primary::Execute, ItemType::Knowledge, Some(item_id)),
        GatedCall::Directive(start) => (Primary::Execute, ItemType::Directive, Some(&start.directive)),
        GatedCall::Sign(request) => (Primary::Sign, request.item_type, Some(&request.item_id)),
        GatedCall::Fetch(FetchRequest::Item { item_type, item_id, .. }) => (Primary::Fetch, *item_type, Some(item_id)),
        GatedCall::Fetch(FetchRequest::Skill { .. }) => return Err("a hook cannot fetch a skill".into()),
        GatedCall::Fetch(FetchRequest::Query { item_type, .. }) => (Primary::Fetch, *item_type, None),
        GatedCall::Fetch(FetchRequest::Object { .. }) => return Err("a hook cannot page results".into()),
    };
    let own = matches!(hook.source, rye_compiler::hook::HookSource::Directive { .. });
    let request = CapabilityRequest { primary, item_type, item_id, space: None };
    let capability = request.capability();
    let (write, net) = granted_access(&launch.grants, &capability);
    // An action on a static id (without placeholders) needs no grant of the thread if it is a fetch, or if no directive
    // declares the hook. An action that the hook's own grants cover needs none either, if no directive declares the
    // hook.
    let by_line = id_is_static && (!own || primary == Primary::Fetch);
    let by_grants = !own && hook.grants.iter().any(|pattern| capability::pattern_matches(pattern, &capability));
    let capability = if by_line || by_grants {
        capability
    } else {
        check(plan, &launch.grants, &request).map_err(|denied| denied.text)?
    };
    // The declaration of a hook grants the item only; the thread's grants determine the folders and hosts.
    (dispatch.write, dispatch.net) = (write, net);
    Ok(Allowed { inner: dispatch, capability })
}

/// Returns the folders and hosts that every thread of the spawn chain grants to a call with this capability.
pub(crate) fn granted_access(grants: &[Vec<Grant>], capability: &str) -> (Vec<String>, Vec<String>) {
    (
        needs::granted_items(grants, capability, |grant| &grant.write, needs::is_folder_inside),
        needs::granted_items(grants, capability, |grant| &grant.net, needs::is_host_inside),
    )
}

/// Returns the hosts that the matching grants of every thread of the spawn chain contain literally, for a call with
/// this capability. A wildcard does not match a host here. Only these hosts may have local addresses.
pub(crate) fn local_hosts(grants: &[Vec<Grant>], capability: &str) -> Vec<String> {
    needs::granted_items(grants, capability, |grant| &grant.net, needs::is_same_host)
}

/// Returns the bounds on the writes of a file tool with this capability, as lists of folders: a written path must lie
/// in a folder of every list. A thread of the spawn chain adds a list only if all of its matching grants name folders.
pub(crate) fn write_bounds(grants: &[Vec<Grant>], capability: &str) -> Vec<Vec<String>> {
    needs::write_bounds(grants, capability)
}

/// Narrows the planned sandbox of a call to the access that every thread of the spawn chain grants.
pub(crate) fn narrow_sandbox(sandbox: &mut ToolSandbox, grants: &[Vec<Grant>], capability: &str) {
    match sandbox.kind {
        SandboxKind::Process | SandboxKind::Requests => {
            (sandbox.write, sandbox.net) = granted_access(grants, capability);
        }
        SandboxKind::Files => sandbox.write = needs::common_folders(&write_bounds(grants, capability)),
        SandboxKind::Engine | SandboxKind::None => {}
    }
}

/// A call that a hook requests.
#[derive(Debug, Clone, PartialEq)]
pub struct HookCall {
    pub call: GatedCall,
    pub turn: u64,
    pub remaining_ms: u64,
}

/// Returns the calls that run together: the first waiting call at or after `from`, and the adjacent calls after it that
/// may run in parallel with it.
pub(super) fn next_call_group(plan: &Plan, state: &ThreadState, from: usize) -> Range<usize> {
    let list = &state.calls.list;
    let start = (from..list.len())
        .find(|i| list.get(*i).is_some_and(|c| c.phase == super::state::CallPhase::Waiting))
        .unwrap_or(list.len());
    // A call that needs approval is a group of its own.
    let waits = |index: usize| matches!(authorize(plan, state, index), GateDecision::NeedsApproval { .. });
    let kind = |index: usize| {
        let call = list.get(index).filter(|_| !waits(index))?;
        group_kind(plan, &call.call.name, &call.call.input)
    };
    let mut end = (start + 1).min(list.len());
    if let Some(first) = kind(start) {
        while end < list.len() && kind(end) == Some(first) {
            end += 1;
        }
    }
    start..end
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallGroupKind {
    Tools,
    Children,
}

/// Returns the kind of parallel group that a call may join; `None` if the call always runs alone. The kind only
/// determines which calls run at the same time. The gate authorizes each call separately.
fn group_kind(plan: &Plan, name: &str, input: &Value) -> Option<CallGroupKind> {
    let tool = plan.palette.iter().find(|tool| *tool.name == *name)?;
    let tools = |yes: bool| yes.then_some(CallGroupKind::Tools);
    if tool.item_id.as_ref().is_some_and(|id| is_system_tool(plan, id, THREAD_DIRECTIVE)) {
        return Some(CallGroupKind::Children);
    }
    match tool.primary {
        Action::Return | Action::Sign => None,
        Action::Fetch => Some(CallGroupKind::Tools),
        Action::Execute if tool.item_id.is_some() => tools(tool.parallel),
        Action::Execute => {
            let request = ExecuteRequest::read(input).ok()?;
            match request.item_type {
                ItemType::Directive => Some(CallGroupKind::Children),
                ItemType::Tool if request.is_async => Some(CallGroupKind::Children),
                ItemType::Knowledge => Some(CallGroupKind::Tools),
                ItemType::Skill => None,
                ItemType::Tool if is_system_tool(plan, &request.item_id, THREAD_DIRECTIVE) => {
                    Some(CallGroupKind::Children)
                }
                ItemType::Tool => {
                    let item = plan.palette.iter().find(|t| t.item_id.as_ref() == Some(&request.item_id));
                    tools(item.is_some_and(|t| t.parallel))
                }
            }
        }
    }
}

/// A parsed call, as the action that is dispatched if the gate authorizes the call.
enum ParsedCall {
    Tool {
        item_id: ItemId,
        parameters: Value,
    },
    Keep(StateOp),
    Knowledge {
        item_id: ItemId,
    },
    /// The start of a child, by `rye_execute` or by a tool (`by_tool`).
    Start {
        start: ChildStart,
        by_tool: bool,
    },
    Fetch(FetchRequest),
    Sign(SignRequest),
}

static STATE_ID: LazyLock<Option<ItemId>> = LazyLock::new(|| ItemId::parse(STATE_TOOL).ok());
static THREAD_DIRECTIVE_ID: LazyLock<Option<ItemId>> = LazyLock::new(|| ItemId::parse(THREAD_DIRECTIVE).ok());

fn tool_request(item_id: Option<&ItemId>) -> CapabilityRequest<'_> {
    CapabilityRequest { primary: Primary::Execute, item_type: ItemType::Tool, item_id, space: None }
}

impl ParsedCall {
    /// Returns the id of the tool [`THREAD_DIRECTIVE`] if the call starts a directive with this tool. The call then
    /// needs a grant for the tool in addition to the grant for the directive. `None` for any other call.
    fn tool(&self) -> Option<&'static ItemId> {
        THREAD_DIRECTIVE_ID.as_ref().filter(|_| matches!(self, Self::Start { by_tool: true, .. }))
    }

    /// Returns the tool that the call runs, in this thread or as a child; `None` if the call runs no tool.
    fn runs(&self) -> Option<&ItemId> {
        match self {
            Self::Tool { item_id, .. } => Some(item_id),
            Self::Start { start, .. } => Some(&start.directive).filter(|_| start.tool),
            Self::Keep(_) | Self::Knowledge { .. } | Self::Fetch(_) | Self::Sign(_) => None,
        }
    }

    /// Returns the parameters of the tool that the call runs; null if the call runs no tool.
    fn parameters(&self) -> Value {
        match self {
            Self::Tool { parameters, .. } => parameters.clone(),
            Self::Start { start, .. } if start.tool => Value::Object(start.inputs.clone()),
            Self::Start { .. } | Self::Keep(_) | Self::Knowledge { .. } | Self::Fetch(_) | Self::Sign(_) => Value::Null,
        }
    }

    fn request(&self) -> CapabilityRequest<'_> {
        let (primary, item_type, item_id) = match self {
            Self::Tool { item_id, .. } => (Primary::Execute, ItemType::Tool, Some(item_id)),
            Self::Knowledge { item_id } => (Primary::Execute, ItemType::Knowledge, Some(item_id)),
            Self::Keep(_) => return tool_request(STATE_ID.as_ref()),
            Self::Start { start, .. } => {
                let item_type = if start.tool { ItemType::Tool } else { ItemType::Directive };
                (Primary::Execute, item_type, Some(&start.directive))
            }
            Self::Fetch(FetchRequest::Item { item_type, item_id, .. }) => (Primary::Fetch, *item_type, Some(item_id)),
            Self::Fetch(FetchRequest::Skill { skill, .. }) => (Primary::Fetch, ItemType::Skill, Some(skill)),
            Self::Fetch(FetchRequest::Query { item_type, .. }) => (Primary::Fetch, *item_type, None),
            // Not reached: stored results are handled before any grant is checked.
            Self::Fetch(FetchRequest::Object { .. }) => (Primary::Fetch, ItemType::Knowledge, None),
            Self::Sign(request) => (Primary::Sign, request.item_type, Some(&request.item_id)),
        };
        CapabilityRequest { primary, item_type, item_id, space: None }
    }
}

/// Returns true if `id` is the tool `tool` of the standard library, and no file of the project or the user shadows this
/// tool.
pub(crate) fn is_system_tool(plan: &Plan, id: &ItemId, tool: &str) -> bool {
    id.as_str() == tool && resolved_space(plan, ItemKind::Tool, id).is_none_or(|space| space == Space::System)
}

/// The denial of a call: the denied capability, and the message for the model.
struct Denial {
    capability: String,
    text: String,
}

fn check(plan: &Plan, grants: &[Vec<Grant>], request: &CapabilityRequest<'_>) -> Result<String, Denial> {
    let space = request.item_id.and_then(|id| resolved_space(plan, request.item_type.kind(), id));
    let request = CapabilityRequest { space, ..*request };
    let decision = capability::authorize_links(grants, &request, |link: &Vec<Grant>, capability| {
        let mut patterns = link.iter().map(|grant| grant.pattern.as_str());
        patterns.find(|pattern| capability::pattern_matches(pattern, capability))
    });
    if decision.allow {
        return Ok(decision.capability);
    }
    let capability = decision.capability;
    let whose = match decision.denied_by {
        None | Some(0) => "",
        Some(_) => " (an ancestor thread does not grant it)",
    };
    let text = format!("permission denied: missing capability {capability}{whose}");
    Err(Denial { capability, text })
}

/// Returns the space that had the item when the plan was compiled; `None` if no space had the item.
fn resolved_space(plan: &Plan, kind: ItemKind, id: &ItemId) -> Option<Space> {
    let read = plan.manifest.iter().find(|r| r.kind == kind && r.id == id.as_str() && r.sha256.is_some())?;
    read.space
}

/// Returns true if the risk table requires approval for this capability, and the directive does not acknowledge the
/// risk. The caller considers the approval policy of the thread: if the policy requests no approvals, the call runs
/// (`language.md` 9).
///
/// # Errors
///
/// The table cannot be read, so the call must not run.
fn needs_approval<'p>(plan: &'p Plan, capability: &str) -> Result<bool, &'p RiskTableError> {
    let Some(table) = plan.settings.risk()? else {
        return Ok(false);
    };
    if !plan.graph.has(Node::Ask(ApprovalOrigin::Call)) {
        return Ok(false);
    }
    let risk = table.classify(capability);
    Ok(risk.policy == Policy::AcknowledgeRequired && !plan.capabilities.acknowledged.contains_key(risk.tier.as_str()))
}

fn refused(text: String) -> GateDecision {
    GateDecision::Answer { why: ResultKind::Refused, text }
}

fn launch_grants(state: &ThreadState) -> &[Vec<Grant>] {
    state.launch.as_ref().map_or(&[], |launch| &launch.grants)
}

fn patterns(grants: &[Vec<Grant>]) -> Vec<Vec<String>> {
    grants.iter().map(|set| set.iter().map(|grant| grant.pattern.clone()).collect()).collect()
}

pub(super) fn remaining_ms(state: &ThreadState) -> u64 {
    state.limits.duration_seconds.saturating_mul(1000).saturating_sub(state.clock.elapsed_ms())
}
