//! Trust requirements of directives (`language.md` 9): for grants that an untrusted project may not use, for items of
//! the user space that the project's files reach, and for scripts that simulate the model.

use std::path::{Component, Path};
use std::sync::LazyLock;

use rye_grammar::ItemId;
use sha2::{Digest, Sha256};

use super::{
    SCRIPTED, Subject, TrustRequirement, TrustRequirementKind, describe_steering, files_of_point, needs_trust,
    one_line, requirement_of_hook, subjects,
};
use crate::context_files::SETTINGS as CHAT_FILE;
use crate::extends::declared_chain;
use crate::hook::{HookAction, HookCall, HookSource, PlannedHook};
use crate::item::Items;
use crate::lower::HookTrace;
use crate::plan::{ChainLink, Grant, LayerKind, Plan, SourcePlace, hex};
use crate::semantics::capability::CapabilitySet;
use crate::semantics::risk::{Policy, RiskTable, Tier};
use crate::world::{ItemKind, Space, World};

/// The built-in risk table, used here because no file can loosen it.
static BUILT_IN: LazyLock<RiskTable> = LazyLock::new(RiskTable::default);
const SIGN: &str = "rye.sign.";
/// Prefixes of grants that need no trust requirement if the extends chain declares no permissions. A thread can then
/// only inherit such a grant from its spawn parent. A directive that the thread starts has trust requirements of its
/// own.
const REAUTHORIZED_PREFIXES: [&str; 2] = ["rye.execute.directive.", "rye.execute.knowledge."];
/// The kinds of items that a grant can name and that the user space can hold.
const ITEMS: [ItemKind; 3] = [ItemKind::Tool, ItemKind::Directive, ItemKind::Knowledge];

/// Returns the trust requirement for the grants of a thread of this plan; `None` if the plan's extends chain contains
/// no project file, or if an untrusted project may use all of the grants.
pub(crate) fn of_grants(plan: &Plan, grants: &[Grant]) -> Option<TrustRequirement> {
    let links = chain_subjects(plan);
    if links.is_empty() {
        return None;
    }
    let shown = wide_grants(plan, grants, true);
    (!shown.is_empty()).then(|| {
        requirement_of_plan(plan, TrustRequirementKind::Grants, &format!("is granted {}", shown.join(", ")), links)
    })
}

/// Describes the grants that an untrusted project may not use, each with the reasons. If `is_of_project` is true, a
/// grant that needs an acknowledgement is described even if the plan has one, because the project itself may have
/// declared it.
fn wide_grants(plan: &Plan, grants: &[Grant], is_of_project: bool) -> Vec<String> {
    let table = plan.settings.risk();
    // If the risk table cannot be read, every grant counts as unrestricted.
    let tier_of = |pattern: &str| match &table {
        Ok(None) => (BUILT_IN.classify_grant(pattern).tier, Policy::Allow),
        Ok(Some(table)) => {
            let risk = table.classify_grant(pattern);
            (risk.tier.max(BUILT_IN.classify_grant(pattern).tier), risk.policy)
        }
        Err(_) => (Tier::Unrestricted, Policy::Block),
    };
    let beyond = |grant: &Grant| {
        let pattern = grant.pattern.as_str();
        if !plan.capabilities.declared
            && grant.net.is_empty()
            && REAUTHORIZED_PREFIXES.iter().any(|on| pattern.starts_with(on))
        {
            return None;
        }
        let (tier, policy) = tier_of(pattern);
        let mut why = Vec::new();
        if tier > Tier::Write {
            why.push(tier.as_str().to_owned());
        } else if is_of_project && policy != Policy::Allow && plan.capabilities.acknowledged.contains_key(tier.as_str())
        {
            why.push(format!("{}, acknowledged by the project itself", tier.as_str()));
        }
        if overlaps(pattern, SIGN) {
            why.push("signs with your key".to_owned());
        }
        if !grant.net.is_empty() {
            why.push(format!("net {}", grant.net.join(", ")));
        }
        let outside: Vec<&str> = grant.write.iter().map(String::as_str).filter(|path| leaves_project(path)).collect();
        if !outside.is_empty() {
            why.push(format!("writes outside the project: {}", outside.join(", ")));
        }
        (!why.is_empty()).then(|| format!("`{pattern}` ({})", why.join("; ")))
    };
    grants.iter().filter_map(beyond).collect()
}

/// Lists trust requirements for the project files whose text the model of a thread reads. Without these requirements,
/// an untrusted project could steer how a directive of the user or of the standard library uses its grants. Empty if an
/// untrusted project may use all of the grants. The directives of the chain are covered by [`of_grants`]. These files
/// need trust:
///
/// - hook files,
/// - knowledge and tools that shadow an item of another space,
/// - tools in the palette of a directive of another space,
/// - knowledge that `append_system` names,
/// - the continuation directive.
pub(crate) fn of_steering(plan: &Plan, grants: &[Grant], traces: &[HookTrace]) -> Vec<TrustRequirement> {
    let wide = wide_grants(plan, grants, false);
    if wide.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (index, hook) in plan.hooks.iter().enumerate() {
        let is_steering = hook.space == Space::Project && hook.is_live() && !needs_trust(hook);
        // A hook of a directive needs no requirement of its own: trust in the extends chain covers the hook.
        let is_of_file = !matches!(hook.source, HookSource::Directive { .. });
        let Some(how) = describe_steering(&hook.action).filter(|_| is_steering && is_of_file) else { continue };
        let what = format!("{how} in a thread that is granted {}", wide.join(", "));
        found.push(requirement_of_hook(plan, (index, hook), &what, traces));
    }
    // The manifest lists all entries of an id together, so `chunk_by` finds the items that another space also has.
    let place = format!(" in a thread that is granted {}", wide.join(", "));
    for same in plan.manifest.chunk_by(|one, next| one.kind == next.kind && one.id == next.id) {
        let [first, rest @ ..] = same else { continue };
        if first.space != Some(Space::Project) {
            continue;
        }
        let of_file = || subjects(plan, first.kind, &[&first.id]);
        match first.kind {
            ItemKind::Knowledge if !rest.is_empty() => {
                found.push(shadowing(first.kind, &first.id, &place, of_file()));
            }
            ItemKind::Tool if is_in_palette(plan, &first.id) => {
                if !rest.is_empty() {
                    found.push(shadowing(first.kind, &first.id, &place, of_file()));
                } else if chain_subjects(plan).is_empty() {
                    found.push(described(&first.id, &place, of_file()));
                }
            }
            ItemKind::Knowledge
            | ItemKind::Tool
            | ItemKind::Directive
            | ItemKind::Config
            | ItemKind::Prompt
            | ItemKind::Skill => {}
        }
    }
    for layer in plan.prompt.system.iter().filter(|layer| layer.kind == LayerKind::Appended) {
        let of_knowledge = subjects(plan, ItemKind::Knowledge, &[layer.id.as_str()]);
        if !of_knowledge.is_empty() {
            let place = format!(" of a thread that is granted {}", wide.join(", "));
            found.push(appended(&layer.id, &place, of_knowledge));
        }
    }
    if let Some(id) = &plan.continuation_directive {
        let of_file = subjects(plan, ItemKind::Directive, &[id.as_str()]);
        found.extend(continuation(id, &wide, of_file).filter(|_| plan.chain.iter().all(|link| link.id != *id)));
    }
    found
}

/// Returns the trust requirement for a continuation directive, whose text the model reads after a handoff. `plan` and
/// `grants` belong to the thread; `text` is the plan of the continuation directive. `None` if no project file is in the
/// extends chain of the continuation directive, or if an untrusted project may use all of the grants.
pub fn of_continuation(plan: &Plan, grants: &[Grant], text: &Plan) -> Option<TrustRequirement> {
    let wide = wide_grants(plan, grants, false);
    continuation(&text.directive, &wide, chain_subjects(text)).filter(|_| !wide.is_empty())
}

fn continuation(id: &ItemId, wide: &[String], subjects: Vec<Subject>) -> Option<TrustRequirement> {
    (!subjects.is_empty()).then(|| TrustRequirement {
        kind: TrustRequirementKind::Grants,
        name: id.to_string(),
        what: one_line(&format!(
            "provides the last message that the model receives after a handoff, in a thread that is granted {}",
            wide.join(", ")
        )),
        subjects,
        programs: Vec::new(),
        place: Some(SourcePlace { file: format!("{}{id}.md", ItemKind::Directive.folder()), line: 1, column: 1 }),
    })
}

/// Returns the requirement of an item of the project that shadows an item of the user or of the standard library.
pub(crate) fn shadowing(kind: ItemKind, id: &str, place: &str, subjects: Vec<Subject>) -> TrustRequirement {
    TrustRequirement {
        kind: TrustRequirementKind::Grants,
        name: id.to_owned(),
        what: one_line(&format!("replaces the {} of another space{place}", kind.as_str())),
        subjects,
        programs: Vec::new(),
        place: Some(SourcePlace { file: format!("{}{id}.{}", kind.folder(), extension(kind)), line: 1, column: 1 }),
    }
}

/// Returns the usual extension of the files of a kind.
fn extension(kind: ItemKind) -> &'static str {
    if kind == ItemKind::Tool { "yaml" } else { "md" }
}

fn is_in_palette(plan: &Plan, tool: &str) -> bool {
    plan.palette.iter().any(|one| one.item_id.as_ref().is_some_and(|id| id.as_str() == tool))
}

/// Returns the trust requirement for the texts of a project's tool: the model reads the description and the guidelines
/// of the tool.
pub(crate) fn described(id: &str, place: &str, subjects: Vec<Subject>) -> TrustRequirement {
    TrustRequirement {
        what: one_line(&format!("sends its description to the model{place}")),
        ..shadowing(ItemKind::Tool, id, place, subjects)
    }
}

/// Lists the items of the project that shadow the item which a hook of the user executes or fetches. These items
/// require trust; otherwise a file of the project could replace the item and so disable a hook that guards the user's
/// threads.
pub fn of_replaced_hook_items(world: &dyn World, plan: &Plan) -> Vec<TrustRequirement> {
    let mut found: Vec<TrustRequirement> = Vec::new();
    for hook in plan.hooks.iter().filter(|hook| hook.space == Space::User && hook.is_live()) {
        let (kind, id) = match hook.action.call() {
            Some(HookCall::Execute { item_type, item_id, .. } | HookCall::Fetch { item_type, item_id }) => {
                (item_type, item_id)
            }
            Some(HookCall::Sign { .. }) | None => continue,
        };
        let Ok(item) = ItemId::parse(id) else { continue };
        let (file, sha256) = match world.candidates(kind, &item) {
            Ok(files) => match files.as_slice() {
                [first, _, ..] if first.space == Space::Project => {
                    (first.path.to_string(), hex(&Sha256::digest(&first.bytes)))
                }
                _ => continue,
            },
            // An unreadable file of the project still shadows the user's item. Its hash is empty, because there is no
            // content to trust.
            Err(_) => (format!("{}{item}.{}", kind.folder(), extension(kind)), String::new()),
        };
        let subjects = vec![Subject { kind, id: item.to_string(), sha256 }];
        let place = format!(" that your hook `{}` uses", hook.id);
        let requirement = TrustRequirement {
            place: Some(SourcePlace { file, line: 1, column: 1 }),
            ..shadowing(kind, item.as_str(), &place, subjects)
        };
        if found.iter().all(|known| known.subjects != requirement.subjects) {
            found.push(requirement);
        }
    }
    found
}

/// Returns the trust requirement of a knowledge file of the project that the setting `append_system` names. `place`
/// ends the description, which starts with "is appended to the system prompt".
pub(crate) fn appended(id: &str, place: &str, subjects: Vec<Subject>) -> TrustRequirement {
    TrustRequirement {
        kind: TrustRequirementKind::Grants,
        name: id.to_owned(),
        what: one_line(&format!("is appended to the system prompt{place}")),
        subjects,
        programs: Vec::new(),
        place: Some(SourcePlace { file: format!("{}{id}.md", ItemKind::Knowledge.folder()), line: 1, column: 1 }),
    }
}

/// Returns the requirement of a directive that declares no permissions: the directive needs trust because it gets the
/// permissions of any thread that starts it. `None` if the chain declares permissions or has no project file.
pub(crate) fn inherited_permissions(plan: &Plan) -> Option<TrustRequirement> {
    let links = chain_subjects(plan);
    let inherits = !plan.capabilities.declared && !links.is_empty();
    inherits.then(|| {
        requirement_of_plan(
            plan,
            TrustRequirementKind::Grants,
            "has the permissions of the thread that starts it",
            links,
        )
    })
}

/// Returns the trust requirements of the scripts that simulate the models of a plan.
pub(crate) fn of_scripts(plan: &Plan) -> Vec<TrustRequirement> {
    let models = std::iter::once(&plan.model).chain(plan.model.fallback.as_deref());
    let mut found: Vec<TrustRequirement> = Vec::new();
    for one in models.filter(|model| model.wire == SCRIPTED).filter_map(|model| script_of(&model.connection)) {
        if found.iter().all(|known| known.name != one.name) {
            found.push(one);
        }
    }
    found
}

/// Returns the trust requirement of the script that a provider file names; `None` if the file names no script.
pub fn script_of(connection: &serde_json::Value) -> Option<TrustRequirement> {
    connection.get("script").and_then(serde_json::Value::as_str).map(script_requirement)
}

/// Returns the requirement of a script, by its path relative to the project. The script is not an item. Its content is
/// hashed when trust is recorded, like the content of a program.
pub fn script_requirement(path: &str) -> TrustRequirement {
    TrustRequirement {
        kind: TrustRequirementKind::Script,
        name: path.to_owned(),
        what: "simulates the model: every tool call in the script is executed".to_owned(),
        subjects: vec![Subject {
            kind: ItemKind::Config,
            id: format!("script:{path}"),
            sha256: hex(&Sha256::digest(path.as_bytes())),
        }],
        programs: vec![path.to_owned()],
        place: Some(SourcePlace { file: path.to_owned(), line: 1, column: 1 }),
    }
}

/// Returns the trust requirements for items of the user space that the project's files in a plan reach: by the extends
/// chain (see `of_links`), by hooks, or by settings of chats.
pub fn of_user_space(items: &Items<'_>, plan: &Plan, traces: &[HookTrace]) -> Vec<TrustRequirement> {
    let mut found: Vec<TrustRequirement> = of_links(items, plan).into_iter().collect();
    for (index, hook) in plan.hooks.iter().enumerate() {
        let live = hook.space == Space::Project && hook.is_live();
        let Some(what) = live.then(|| fetches_of_user(items, &hook.action)).flatten() else { continue };
        found.push(TrustRequirement {
            kind: TrustRequirementKind::UserSpace,
            name: hook.id.clone(),
            what,
            subjects: of_hook(plan, hook),
            programs: Vec::new(),
            place: traces.get(index).and_then(|trace| trace.place.clone()),
        });
    }
    if plan.prompt.system.iter().any(|layer| layer.kind == LayerKind::Appended) {
        found.extend(appended_of_user(items, subjects(plan, ItemKind::Config, &[CHAT_FILE])));
    }
    found
}

/// Returns the trust requirement for items of the user space that the project's directives in the extends chain reach:
/// by a grant, by `<context>`, by `extends` or by `<continuation_directive>`, in their own files or inherited. `None`
/// if there are no such items. [`of_user_space`] adds the requirements for the items that hooks and settings reach.
pub(crate) fn of_links(items: &Items<'_>, plan: &Plan) -> Option<TrustRequirement> {
    let links = chain_subjects(plan);
    if links.is_empty() {
        return None;
    }
    let mut reached = granted_patterns(items, &plan.capabilities.grants);
    reached.extend(named_by_chain(items, plan));
    reached.sort();
    reached.dedup();
    let what = format!("reaches items of your user space: {}", reached.join(", "));
    (!reached.is_empty()).then(|| requirement_of_plan(plan, TrustRequirementKind::UserSpace, &what, links))
}

/// Lists the items of the user space that the extends chain of a plan names, up to and including its last directive of
/// the project: the directives themselves, the knowledge of their `<context>`, and the continuation directive with its
/// own chain. Each item is described by its kind and its id. The directives after the last one of the project are not
/// listed, because only the user's own files name their items.
fn named_by_chain(items: &Items<'_>, plan: &Plan) -> Vec<String> {
    let Some(last) = plan.chain.iter().rposition(|link| link.space == Space::Project) else { return Vec::new() };
    let reached_links = plan.chain.get(..=last).unwrap_or_default();
    let of_user = reached_links.iter().filter(|link| link.space == Space::User);
    let mut named: Vec<String> = of_user.map(|link| format!("directive `{}`", link.id)).collect();
    let is_reached = |link: &ItemId| reached_links.iter().any(|reached| reached.id == *link);
    let layers = plan.prompt.system.iter().chain(&plan.prompt.first_message).chain(&plan.prompt.continued);
    for layer in
        layers.filter(|layer| layer.kind == LayerKind::Knowledge && layer.link.as_ref().is_some_and(is_reached))
    {
        let Ok(id) = ItemId::parse(&layer.id) else { continue };
        if is_of_user(items, ItemKind::Knowledge, &id) {
            named.push(format!("knowledge `{id}`"));
        }
    }
    let declares = |link: &&ChainLink| items.directive(&link.id).is_some_and(|one| one.continuation.is_some());
    let declaring = plan.chain.iter().rev().find(declares);
    let next = plan.continuation_directive.iter().filter(|_| declaring.is_some_and(|link| is_reached(&link.id)));
    for directive in next.flat_map(|id| declared_chain(items, id)) {
        if directive.file.space == Space::User {
            named.push(format!("directive `{}`", directive.file.id));
        }
    }
    named
}

/// Returns the trust requirement of the project's settings of chats that append knowledge of the user space to the
/// system prompt; `None` if there are no such settings. `subjects` is the settings file of the project.
pub(crate) fn appended_of_user(items: &Items<'_>, subjects: Vec<Subject>) -> Option<TrustRequirement> {
    let file = ItemId::parse(CHAT_FILE).ok()?;
    let layers = items.config_layers(&file);
    let (_, settings) = layers.iter().find(|(space, _)| *space == Space::Project)?;
    let named = settings.get("append_system")?;
    let id = named.as_str().and_then(|name| ItemId::parse(name).ok())?;
    is_of_user(items, ItemKind::Knowledge, &id).then(|| TrustRequirement {
        kind: TrustRequirementKind::UserSpace,
        name: CHAT_FILE.to_owned(),
        what: one_line(&format!("appends knowledge `{id}` of your user space to the system prompt of chats")),
        subjects,
        programs: Vec::new(),
        place: Some(SourcePlace { file: format!(".ai/config/{CHAT_FILE}.yaml"), line: 1, column: 1 }),
    })
}

/// Returns the item of the user space that the action of a hook fetches or routes to, described for humans; `None` if
/// there is none.
pub(crate) fn fetches_of_user(items: &Items<'_>, action: &HookAction) -> Option<String> {
    if let Some(base) = action.parent().and_then(|id| ItemId::parse(id).ok()) {
        let routed = is_of_user(items, ItemKind::Directive, &base);
        return routed.then(|| one_line(&format!("routes to the directive `{base}` of your user space")));
    }
    let (kind, id) = match action.call()? {
        HookCall::Fetch { item_type, item_id } => (item_type, item_id),
        HookCall::Execute { item_type: ItemKind::Knowledge, item_id, .. } => (ItemKind::Knowledge, item_id),
        // A hook that executes or signs needs trust anyway, so no further requirement is returned.
        HookCall::Execute {
            item_type: ItemKind::Tool | ItemKind::Directive | ItemKind::Config | ItemKind::Prompt | ItemKind::Skill,
            ..
        }
        | HookCall::Sign { .. } => {
            return None;
        }
    };
    let id = ItemId::parse(id).ok()?;
    is_of_user(items, kind, &id).then(|| one_line(&format!("fetches {} `{id}` of your user space", kind.as_str())))
}

/// Returns the trust requirement for items of the user space that a model gets through `hook`, or through the plan if
/// `hook` is `None`. `None` if the cause is not in the project: the hook is from another space, or no directive of the
/// plan's chain is from the project.
pub fn user_space_of(plan: &Plan, hook: Option<&PlannedHook>) -> Option<TrustRequirement> {
    let what = "reaches items of your user space";
    let Some(hook) = hook else {
        let links = chain_subjects(plan);
        return (!links.is_empty()).then(|| requirement_of_plan(plan, TrustRequirementKind::UserSpace, what, links));
    };
    (hook.space == Space::Project).then(|| TrustRequirement {
        kind: TrustRequirementKind::UserSpace,
        name: hook.id.clone(),
        what: what.to_owned(),
        subjects: of_hook(plan, hook),
        programs: Vec::new(),
        place: None,
    })
}

/// Returns the project files that declare a hook.
pub(crate) fn of_hook(plan: &Plan, hook: &PlannedHook) -> Vec<Subject> {
    match &hook.source {
        HookSource::Directive { id } => subjects(plan, ItemKind::Directive, &[id]),
        HookSource::User | HookSource::Builtin | HookSource::Project | HookSource::Infrastructure => {
            subjects(plan, ItemKind::Config, files_of_point(hook.event))
        }
    }
}

fn requirement_of_plan(
    plan: &Plan,
    kind: TrustRequirementKind,
    what: &str,
    subjects: Vec<Subject>,
) -> TrustRequirement {
    let own = plan.chain.iter().rev().find(|link| link.space == Space::Project);
    let file = own.map(|link| format!("{}{}.md", ItemKind::Directive.folder(), link.id));
    TrustRequirement {
        kind,
        name: plan.directive.to_string(),
        what: one_line(what),
        subjects,
        programs: Vec::new(),
        place: file.map(|file| SourcePlace { file, line: 1, column: 1 }),
    }
}

/// Returns the project's directives in an extends chain.
fn chain_subjects(plan: &Plan) -> Vec<Subject> {
    let own = plan.chain.iter().filter(|link| link.space == Space::Project);
    let subject = |link: &crate::plan::ChainLink| Subject {
        kind: ItemKind::Directive,
        id: link.id.to_string(),
        sha256: link.sha256.clone(),
    };
    own.map(subject).collect()
}

/// Lists the items of the user space that the grants allow to execute or fetch, each described by its kind and its id.
fn granted_patterns(items: &Items<'_>, grants: &[Grant]) -> Vec<String> {
    let set = CapabilitySet::new(grants.iter().map(|grant| grant.pattern.clone()));
    let mut reached = Vec::new();
    for kind in ITEMS {
        let [execute, fetch] = ["execute", "fetch"].map(|primary| format!("rye.{primary}.{}", kind.as_str()));
        if !grants.iter().any(|grant| overlaps(&grant.pattern, &execute) || overlaps(&grant.pattern, &fetch)) {
            continue;
        }
        // A query (a fetch without an id) shows every item of its kind.
        let by_query = set.first_match(&fetch).is_some();
        let allows = |capability: String| set.first_match(&capability).is_some();
        for same in items.list(kind).chunk_by(|one, next| one.id == next.id) {
            let Some(first) = same.first().filter(|first| first.space == Space::User) else { continue };
            let id = first.id.dotted();
            if by_query || allows(format!("{execute}.{id}")) || allows(format!("{fetch}.{id}")) {
                reached.push(format!("{} `{}`", kind.as_str(), first.id));
            }
        }
    }
    reached
}

fn is_of_user(items: &Items<'_>, kind: ItemKind, id: &ItemId) -> bool {
    let space = match kind {
        ItemKind::Tool => items.tool(id).map(|tool| tool.file.space),
        ItemKind::Directive => items.directive(id).map(|directive| directive.file.space),
        ItemKind::Knowledge => items.knowledge(id).map(|knowledge| knowledge.file.space),
        ItemKind::Config | ItemKind::Prompt | ItemKind::Skill => None,
    };
    space == Some(Space::User)
}

/// Returns true if a pattern can match a capability that starts with `beginning`. May also return true for a pattern
/// that matches no such capability.
fn overlaps(pattern: &str, beginning: &str) -> bool {
    let literal = pattern.split(['*', '?', '[']).next().unwrap_or_default();
    beginning.starts_with(literal) || literal.starts_with(beginning)
}

/// Returns true if a path leads out of the project.
fn leaves_project(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    path.starts_with('~')
        || parts.any(|part| matches!(part, Component::ParentDir | Component::RootDir | Component::Prefix(_)))
}
