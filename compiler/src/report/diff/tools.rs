//! Changes of the tools that the grants or hooks of a plan reach. A changed program, request or script of a tool is a
//! change with an unknown direction. Parameter schemas are compared by the values that they accept (`schemas`).

use std::collections::{BTreeMap, BTreeSet};

use rye_grammar::ItemId;
use rye_grammar::tool_header::{self, ToolLanguage};
use serde_json::Value;

use super::change::{ChangeArea, DiffSides, Direction, PlanChange};
use super::schemas::compare_schemas;
use crate::compile::Compilation;
use crate::hook::HookCall;
use crate::item::{Items, Tool};
use crate::lower::origin;
use crate::mcp_servers::{ConfiguredServers, ServerDrift};
use crate::plan::source::SourceReport;
use crate::primary::{ItemType, Primary, format_capability};
use crate::semantics::capability::CapabilitySet;
use crate::semantics::value::Type;
use crate::tool_spec::{Idempotence, ToolKind, ToolSpec};
use crate::world::ItemKind;

pub fn compare_tools(trees: &DiffSides<'_>) -> Vec<PlanChange> {
    let old = reachable_tools(trees.before.compilation, &trees.old);
    let new = reachable_tools(trees.after.compilation, &trees.new);
    let mut changes = Vec::new();
    for id in old.union(&new) {
        let mut add = |direction, what: String, source: Option<SourceReport>| {
            let source = source.or_else(|| trees.file(ItemKind::Tool, id));
            changes.push(PlanChange { area: ChangeArea::Tool, what: format!("{id}: {what}"), direction, source });
        };
        let (was, is) = (trees.old.tool(id), trees.new.tool(id));
        let (Some(was), Some(is)) = (&was, &is) else {
            match (was.is_some(), is.is_some()) {
                // If the tool file existed before, the change is only a wider grant, and it is reported with the
                // capabilities.
                (false, true) if is_new_file(trees, id) => {
                    add(Direction::Unknown, "a new tool that the grants allow".into(), None);
                }
                (true, false) => add(Direction::Narrowed, "the tool was removed".into(), None),
                _ => {}
            }
            continue;
        };
        if !(old.contains(id) && new.contains(id)) {
            continue;
        }
        let before = changes_of(&was.spec, &is.spec);
        let [old_text, new_text] = trees.unsigned_texts(ItemKind::Tool, id);
        let is_script = matches!(is.spec.kind, ToolKind::Script { .. });
        let line = || trees.first_changed_line(ItemKind::Tool, id);
        if was.file.space != is.file.space {
            let (new, old) = (is.file.space.as_str(), was.file.space.as_str());
            add(Direction::Unknown, format!("now from the {new} space, previously from the {old} space"), None);
        }
        if is_script && old_text != new_text {
            add(Direction::Unknown, "its code changed".into(), line());
        } else if before.is_empty() && was.file.space == is.file.space && old_text != new_text {
            add(Direction::Neutral, "its file changed, but its declaration did not".into(), line());
        }
        for change in before {
            let source = place_of(trees, (was, is), &change.path);
            add(change.direction, change.what, source);
        }
    }
    changes.extend(compare_servers(trees, old.intersection(&new)));
    changes
}

/// Reports the MCP servers whose tool calls a run refuses in only one of the two versions of the project, or for
/// different reasons. A run refuses the calls of a tool if the settings of its server do not match the tool file.
fn compare_servers<'t>(trees: &DiffSides<'_>, tools: impl Iterator<Item = &'t ItemId>) -> Vec<PlanChange> {
    let is_of_server = |items: &Items<'_>, id: &ItemId| {
        items.tool(id).is_some_and(|tool| matches!(tool.spec.kind, ToolKind::Mcp { .. }))
    };
    let tools: Vec<&ItemId> = tools.filter(|id| is_of_server(&trees.old, id) && is_of_server(&trees.new, id)).collect();
    if tools.is_empty() {
        return Vec::new();
    }
    let refusals = |items: &Items<'_>| {
        let servers = ConfiguredServers::read(items);
        let drift = |id: &&ItemId| servers.drift_of(&items.tool(id)?.spec).filter(ServerDrift::refuses_calls);
        tools.iter().map(drift).collect::<Vec<_>>()
    };
    let mut changes: Vec<PlanChange> = Vec::new();
    for (id, (was, is)) in tools.iter().zip(refusals(&trees.old).into_iter().zip(refusals(&trees.new))) {
        let Some(ToolKind::Mcp { server, .. }) = trees.new.tool(id).map(|tool| tool.spec.kind.clone()) else {
            continue;
        };
        let (direction, what) = match (was, is) {
            (None, Some(drift)) => (Direction::Narrowed, format!("every call of its tools is refused: {drift}")),
            (Some(_), None) => (Direction::Widened, "calls of its tools are accepted again".to_owned()),
            (Some(was), Some(is)) if was != is => {
                (Direction::Neutral, format!("every call of its tools is refused: {is}"))
            }
            (Some(_), Some(_)) | (None, None) => continue,
        };
        let source = ItemId::parse("mcp").ok().and_then(|mcp| trees.file(ItemKind::Config, &mcp));
        let what = format!("MCP server {server}: {what}");
        let change = PlanChange { area: ChangeArea::Tool, what, direction, source };
        if !changes.contains(&change) {
            changes.push(change);
        }
    }
    changes
}

fn is_new_file(trees: &DiffSides<'_>, id: &ItemId) -> bool {
    trees.before.world.candidates(ItemKind::Tool, id).is_ok_and(|found| found.is_empty())
}

/// Returns the tools that the grants or the hooks of a plan reach.
fn reachable_tools(compilation: &Compilation, items: &Items<'_>) -> BTreeSet<ItemId> {
    let plan = &compilation.plan;
    let live = || plan.hooks.iter().filter(|hook| hook.is_live());
    let patterns = plan.capabilities.grants.iter().map(|grant| grant.pattern.clone());
    let grants = CapabilitySet::new(patterns.chain(live().flat_map(|hook| hook.grants.iter().cloned())));
    let granted =
        |id: &&ItemId| grants.first_match(&format_capability(Primary::Execute, ItemType::Tool, Some(id))).is_some();
    let listed = items.list(ItemKind::Tool);
    let mut all: BTreeSet<ItemId> = listed.iter().map(|entry| &entry.id).filter(granted).cloned().collect();
    all.extend(live().filter_map(|hook| match hook.action.call() {
        Some(HookCall::Execute { item_type: ItemKind::Tool, item_id, .. }) => ItemId::parse(item_id).ok(),
        Some(HookCall::Execute { .. } | HookCall::Fetch { .. } | HookCall::Sign { .. }) | None => None,
    }));
    all
}

/// Returns the types that the reachable tools of either plan declare for each parameter, by the name of the parameter.
pub fn parameter_types(trees: &DiffSides<'_>) -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut found: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
    for (tree, items) in [(&trees.before, &trees.old), (&trees.after, &trees.new)] {
        let tools = reachable_tools(tree.compilation, items).into_iter().filter_map(|id| items.tool(&id));
        for tool in tools {
            let properties = tool.spec.parameters.get("properties").and_then(Value::as_object).cloned();
            for (name, schema) in properties.unwrap_or_default() {
                let declared = schema.get("type").and_then(Value::as_str).and_then(Type::parse);
                found.entry(name).or_default().insert(declared.map_or("any", Type::name));
            }
        }
    }
    found
}

/// A change of a tool after which a call may fail or have another result.
pub struct ChangedResult {
    pub what: String,
    /// True if the only possible effect of the change is that a call fails.
    pub only_fails: bool,
}

/// Returns the changes of the tool `id` after which a call with the same parameters may fail, or may have another
/// result. Changes that only widen a bound are left out.
pub fn changed_results(trees: &DiffSides<'_>, id: &ItemId) -> Vec<ChangedResult> {
    let (Some(was), is) = (trees.old.tool(id), trees.new.tool(id)) else { return Vec::new() };
    let Some(is) = is else {
        return vec![ChangedResult { what: "the tool was removed".to_owned(), only_fails: true }];
    };
    let mut found = Vec::new();
    let [old_text, new_text] = trees.unsigned_texts(ItemKind::Tool, id);
    let is_script = matches!(is.spec.kind, ToolKind::Script { .. });
    if was.file.space != is.file.space || (is_script && old_text != new_text) {
        found.push(ChangedResult { what: "its code changed".to_owned(), only_fails: false });
    }
    for change in changes_of(&was.spec, &is.spec) {
        let key = change.path.first().map_or("", String::as_str);
        // These keys affect other calls of the thread, not the result of a call.
        let is_of_thread = matches!(key, "parallel" | "idempotent" | "pushes");
        let may_lose = match change.direction {
            Direction::Narrowed | Direction::Unknown => true,
            Direction::Neutral | Direction::Widened => false,
        };
        if may_lose && !is_of_thread {
            let only_fails = change.direction == Direction::Narrowed && matches!(key, "parameters" | "timeout_seconds");
            found.push(ChangedResult { what: change.what, only_fails });
        }
    }
    let refused = compare_servers(trees, std::iter::once(id)).into_iter();
    let refused = refused.filter(|change| change.direction == Direction::Narrowed);
    found.extend(refused.map(|change| ChangedResult { what: change.what, only_fails: true }));
    found
}

/// A change of one declaration of a tool.
struct ToolChange {
    direction: Direction,
    what: String,
    /// The path of the changed key in the metadata of the tool.
    path: Vec<String>,
}

/// Returns the place of the key at `path` in the metadata of a tool: in the new file or, if the new file does not have
/// the key, in the old one. If neither file has the key, returns the place of the nearest key around it that a file
/// has; `None` if there is none.
fn place_of(trees: &DiffSides<'_>, (was, is): (&Tool, &Tool), path: &[String]) -> Option<SourceReport> {
    let sides = [(&trees.new, &trees.after, is), (&trees.old, &trees.before, was)];
    for depth in (1..=path.len()).rev() {
        for (items, side, tool) in sides {
            let sources = items.sources();
            let text = &sources.get(tool.file.source)?.text;
            let language = ToolLanguage::of_path(&tool.file.path)?;
            let parsed = tool_header::parse(tool.file.source, text, language, side.world.scripts());
            let mut node = Some(&parsed.tree.metadata);
            let mut span = None;
            for key in path.iter().take(depth) {
                let entry = node.and_then(|node| node.entries().iter().find(|entry| entry.key.node == *key));
                (node, span) = (entry.map(|entry| &entry.value), entry.map(|entry| entry.key.span));
            }
            if let Some(place) = span.and_then(|span| origin::plan_place(&sources, span)) {
                return Some(SourceReport::from(&place));
            }
        }
    }
    None
}

fn changes_of(before: &ToolSpec, after: &ToolSpec) -> Vec<ToolChange> {
    let mut found: Vec<ToolChange> = Vec::new();
    let mut add = |path: &[&str], direction: Direction, what: String| {
        found.push(ToolChange { direction, what, path: path.iter().map(|key| (*key).to_owned()).collect() });
    };
    if before.kind != after.kind {
        for (key, what) in compare_kinds(&before.kind, &after.kind) {
            add(&[key], Direction::Unknown, what);
        }
    }
    if before.description != after.description {
        add(&["description"], Direction::Neutral, "its description changed".into());
    }
    if let Some(direction) = compare_schemas(&before.parameters, &after.parameters) {
        let names = changed_parameters(&before.parameters, &after.parameters);
        let shown: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let what = match (direction, shown.is_empty()) {
            (Direction::Neutral, _) => "its parameters are declared differently, but accept the same values".to_owned(),
            (_, true) => "its parameters changed".to_owned(),
            (_, false) => format!("its parameters changed: {}", shown.join(", ")),
        };
        match names.first() {
            Some(name) => add(&["parameters", "properties", name], direction, what),
            None => add(&["parameters"], direction, what),
        }
    }
    if before.timeout_seconds != after.timeout_seconds {
        let (old, new) = (before.timeout_seconds, after.timeout_seconds);
        add(&["timeout_seconds"], Direction::of_bound(&old, &new), format!("timeout_seconds {old} → {new}"));
    }
    if before.parallel != after.parallel {
        let direction = if after.parallel { Direction::Unknown } else { Direction::Narrowed };
        add(&["parallel"], direction, format!("parallel {} → {}", before.parallel, after.parallel));
    }
    if before.idempotent != after.idempotent {
        let direction =
            if after.idempotent == Idempotence::All(false) { Direction::Narrowed } else { Direction::Unknown };
        add(&["idempotent"], direction, "`idempotent` changed: after a crash, other calls may be repeated".into());
    }
    for (path, old, new) in [
        (&["needs", "net"][..], &before.needs.net, &after.needs.net),
        (&["needs", "write"], &before.needs.write, &after.needs.write),
        (&["needs", "write_only"], &before.needs.write_only, &after.needs.write_only),
        (&["environment"], &before.environment, &after.environment),
    ] {
        let added: Vec<&str> = new.iter().filter(|one| !old.contains(one)).map(String::as_str).collect();
        let removed: Vec<&str> = old.iter().filter(|one| !new.contains(one)).map(String::as_str).collect();
        let name = path.join(".");
        if !added.is_empty() {
            add(path, Direction::Widened, format!("{name} gets {}", added.join(", ")));
        }
        if !removed.is_empty() {
            add(path, Direction::Narrowed, format!("{name} loses {}", removed.join(", ")));
        }
    }
    if before.persistent != after.persistent {
        add(&["persistent"], Direction::Unknown, format!("persistent {} → {}", before.persistent, after.persistent));
    }
    if before.pushes != after.pushes {
        let direction = if after.pushes { Direction::Widened } else { Direction::Narrowed };
        add(&["pushes"], direction, format!("pushes {} → {}", before.pushes, after.pushes));
    }
    if before.snippet != after.snippet {
        add(&["snippet"], Direction::Neutral, "its snippet changed".into());
    }
    if before.guidelines != after.guidelines {
        add(&["guidelines"], Direction::Neutral, "its guidelines changed".into());
    }
    if before.config != after.config {
        add(&["config"], Direction::Unknown, "its settings have another source".into());
    }
    if before.version != after.version {
        add(&["version"], Direction::Neutral, "its version changed".into());
    }
    if before.category != after.category {
        add(&["category"], Direction::Neutral, "its category changed".into());
    }
    found
}

/// Returns the names of the parameters whose schemas differ, or that are required on one side only.
fn changed_parameters(before: &Value, after: &Value) -> Vec<String> {
    let properties_of =
        |schema: &Value| schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let required = |schema: &Value, name: &str| {
        schema.get("required").and_then(Value::as_array).is_some_and(|names| names.iter().any(|one| one == name))
    };
    let (old, new) = (properties_of(before), properties_of(after));
    let mut names: Vec<String> =
        new.keys().chain(old.keys().filter(|name| !new.contains_key(*name))).cloned().collect();
    names.retain(|name| {
        let is_other = match (old.get(name), new.get(name)) {
            (Some(was), Some(is)) => compare_schemas(was, is).is_some_and(|direction| direction != Direction::Neutral),
            (was, is) => was != is,
        };
        is_other || required(before, name) != required(after, name)
    });
    names
}

/// Describes the differences between the programs or HTTP requests of two versions of a tool. Each difference comes
/// with the key of the tool file that declares the changed part.
fn compare_kinds(before: &ToolKind, after: &ToolKind) -> Vec<(&'static str, String)> {
    let (ToolKind::Http(old), ToolKind::Http(new)) = (before, after) else {
        let key = match after {
            ToolKind::Builtin { .. } => "builtin",
            ToolKind::Command { .. } => "command",
            ToolKind::Http(_) => "url",
            ToolKind::Script { .. } | ToolKind::Mcp { .. } => "kind",
        };
        return vec![(key, format!("{} → {}", format_kind(before), format_kind(after)))];
    };
    let mut found = Vec::new();
    if (old.method, &old.url) != (new.method, &new.url) {
        let key = if old.url == new.url { "method" } else { "url" };
        found.push((key, format!("{} → {}", format_kind(before), format_kind(after))));
    }
    if old.headers != new.headers {
        let names = old.headers.keys().chain(new.headers.keys().filter(|name| !old.headers.contains_key(*name)));
        let differs = |name: &&String| old.headers.get(*name) != new.headers.get(*name);
        let names: Vec<String> = names.filter(differs).map(|name| format!("`{name}`")).collect();
        found.push(("headers", format!("its headers changed: {}", names.join(", "))));
    }
    if old.body != new.body {
        found.push(("body", "the body of its requests changed".to_owned()));
    }
    found
}

/// Describes, for humans, the program or request that a call of the tool starts.
fn format_kind(kind: &ToolKind) -> String {
    match kind {
        ToolKind::Builtin { name } => format!("the built-in `{name}`"),
        ToolKind::Command { argv } => format!("the command {}", serde_json::to_string(argv).unwrap_or_default()),
        ToolKind::Script { .. } => "a script".to_owned(),
        ToolKind::Http(http) => format!("the request {} {}", http.method.as_str(), http.url),
        ToolKind::Mcp { server, tool, .. } => format!("`{tool}` of the MCP server `{server}`"),
    }
}
