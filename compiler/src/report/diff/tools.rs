//! Changes of the tools that the grants or hooks of a plan reach: of what a call starts, and of the tool's other
//! declarations. If the program, request or script that a call starts changed, the direction of the change is unknown.
//! Parameter schemas are compared keyword by keyword.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rye_grammar::ItemId;
use serde_json::{Map, Value};

use super::change::{ChangeArea, DiffSides, Direction, PlanChange};
use crate::compile::Compilation;
use crate::hook::HookCall;
use crate::item::{Items, Tool};
use crate::mcp_servers::{ConfiguredServers, ServerDrift};
use crate::primary::{ItemType, Primary, format_capability};
use crate::semantics::capability::CapabilitySet;
use crate::semantics::value::Type;
use crate::tool_spec::{Idempotence, ToolKind, ToolSpec};
use crate::world::{ItemKind, World};

pub fn compare_tools(trees: &DiffSides<'_>) -> Vec<PlanChange> {
    let old = reachable_tools(trees.before.compilation, &trees.old);
    let new = reachable_tools(trees.after.compilation, &trees.new);
    let mut changes = Vec::new();
    for id in old.union(&new) {
        let mut add = |direction, what: String| {
            let source = trees.file(ItemKind::Tool, id);
            changes.push(PlanChange { area: ChangeArea::Tool, what: format!("{id}: {what}"), direction, source });
        };
        let (was, is) = (trees.old.tool(id), trees.new.tool(id));
        let (Some(was), Some(is)) = (&was, &is) else {
            match (was.is_some(), is.is_some()) {
                // Additional grants are reported with the capabilities.
                (false, true) if is_new_file(trees, id) => {
                    add(Direction::Unknown, "a new tool that the grants allow".into());
                }
                (true, false) => add(Direction::Narrowed, "the tool was removed".into()),
                _ => {}
            }
            continue;
        };
        if !(old.contains(id) && new.contains(id)) {
            continue;
        }
        let before = changes_of(was, is);
        let bytes = (unsigned_text(trees.before.world, id), unsigned_text(trees.after.world, id));
        let is_script = matches!(is.spec.kind, ToolKind::Script { .. });
        if is_script && bytes.0 != bytes.1 {
            add(Direction::Unknown, "its code changed".into());
        } else if before.is_empty() && bytes.0 != bytes.1 {
            add(Direction::Neutral, "its file changed, but not the tool".into());
        }
        for (direction, what) in before {
            add(direction, what);
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

/// Returns the contents of a tool's file without the signature line; `None` if the file cannot be read.
fn unsigned_text(world: &dyn World, id: &ItemId) -> Option<Arc<[u8]>> {
    let found = world.candidates(ItemKind::Tool, id).ok()?.into_iter().next()?;
    let end = found.bytes.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let first = found.bytes.get(..end).unwrap_or_default();
    let is_signed = first.windows(11).any(|part| part == b"rye:signed:");
    Some(if is_signed { found.bytes.get(end..).unwrap_or_default().into() } else { Arc::clone(&found.bytes) })
}

fn changes_of(was: &Tool, is: &Tool) -> Vec<(Direction, String)> {
    let mut found = Vec::new();
    let (before, after): (&ToolSpec, &ToolSpec) = (&was.spec, &is.spec);
    if was.file.space != is.file.space {
        let spaces = format!(
            "now from the {} space, previously from the {} space",
            is.file.space.as_str(),
            was.file.space.as_str()
        );
        found.push((Direction::Unknown, spaces));
    }
    if before.kind != after.kind {
        found.push((Direction::Unknown, format!("{} → {}", format_kind(&before.kind), format_kind(&after.kind))));
    }
    if before.description != after.description {
        found.push((Direction::Neutral, "its description changed".into()));
    }
    if let Some(direction) = compare_schemas(&before.parameters, &after.parameters) {
        found.push((direction, "its parameters changed".into()));
    }
    if before.timeout_seconds != after.timeout_seconds {
        let (old, new) = (before.timeout_seconds, after.timeout_seconds);
        found.push((Direction::of_bound(&old, &new), format!("timeout_seconds {old} → {new}")));
    }
    if before.parallel != after.parallel {
        let direction = if after.parallel { Direction::Unknown } else { Direction::Narrowed };
        found.push((direction, format!("parallel {} → {}", before.parallel, after.parallel)));
    }
    if before.idempotent != after.idempotent {
        let direction =
            if after.idempotent == Idempotence::All(false) { Direction::Narrowed } else { Direction::Unknown };
        found.push((direction, "`idempotent` changed: a different set of calls may run again after a crash".into()));
    }
    for (name, old, new) in [
        ("needs.net", &before.needs.net, &after.needs.net),
        ("needs.write", &before.needs.write, &after.needs.write),
        ("environment", &before.environment, &after.environment),
    ] {
        let added: Vec<&str> = new.iter().filter(|one| !old.contains(one)).map(String::as_str).collect();
        let removed: Vec<&str> = old.iter().filter(|one| !new.contains(one)).map(String::as_str).collect();
        if !added.is_empty() {
            found.push((Direction::Widened, format!("{name} gets {}", added.join(", "))));
        }
        if !removed.is_empty() {
            found.push((Direction::Narrowed, format!("{name} loses {}", removed.join(", "))));
        }
    }
    if before.persistent != after.persistent {
        found.push((Direction::Unknown, format!("persistent {} → {}", before.persistent, after.persistent)));
    }
    if before.pushes != after.pushes {
        let direction = if after.pushes { Direction::Widened } else { Direction::Narrowed };
        found.push((direction, format!("pushes {} → {}", before.pushes, after.pushes)));
    }
    if before.snippet != after.snippet || before.guidelines != after.guidelines {
        found.push((Direction::Neutral, "its snippet or guidelines changed".into()));
    }
    if before.config != after.config {
        found.push((Direction::Unknown, "its settings have another source".into()));
    }
    if before.version != after.version || before.category != after.category {
        found.push((Direction::Neutral, "its version or category changed".into()));
    }
    found
}

/// Describes what a call starts, for humans.
fn format_kind(kind: &ToolKind) -> String {
    match kind {
        ToolKind::Builtin { name } => format!("the built-in `{name}`"),
        ToolKind::Command { argv } => format!("the command {}", serde_json::to_string(argv).unwrap_or_default()),
        ToolKind::Script { .. } => "a script".to_owned(),
        ToolKind::Http(http) => format!("requests to {}", http.url),
        ToolKind::Mcp { server, tool, .. } => format!("`{tool}` of the MCP server `{server}`"),
    }
}

/// Returns the direction of the change from the schema `before` to the schema `after`; `None` if the schemas are equal.
fn compare_schemas(before: &Value, after: &Value) -> Option<Direction> {
    if before == after {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else { return Some(Direction::Unknown) };
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let directions = keys.into_iter().filter_map(|key| compare_keyword(key, old.get(key), new.get(key)));
    directions.max()
}

/// Returns the direction in which the change of one keyword changes a schema; `None` if the keyword did not change.
fn compare_keyword(key: &str, before: Option<&Value>, after: Option<&Value>) -> Option<Direction> {
    if before == after {
        return None;
    }
    let number = |value: Option<&Value>| value.and_then(Value::as_f64);
    Some(match key {
        "title" | "description" | "examples" | "default" | "$comment" => Direction::Neutral,
        "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => {
            Direction::of_bound(&number(before).unwrap_or(f64::INFINITY), &number(after).unwrap_or(f64::INFINITY))
        }
        "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => {
            let least = f64::NEG_INFINITY;
            Direction::of_bound(&number(after).unwrap_or(least), &number(before).unwrap_or(least))
        }
        // A schema is narrower if it allows fewer values or requires more keys.
        "enum" => match (list(before), list(after)) {
            (Some(was), Some(is)) => compare_lists(is, was),
            (None, Some(_)) => Direction::Narrowed,
            (_, None) => Direction::Widened,
        },
        "required" => {
            let none = Vec::new();
            compare_lists(list(before).unwrap_or(&none), list(after).unwrap_or(&none))
        }
        "additionalProperties" => match after {
            Some(Value::Bool(false)) => Direction::Narrowed,
            Some(_) | None => Direction::Widened,
        },
        "properties" | "$defs" => {
            let none = Map::new();
            let map = |value: Option<&Value>| value.and_then(Value::as_object).unwrap_or(&none).clone();
            let (old, new) = (map(before), map(after));
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            let each = names.into_iter().filter_map(|name| match (old.get(name), new.get(name)) {
                (Some(was), Some(is)) => compare_schemas(was, is),
                _ => Some(Direction::Unknown),
            });
            return each.max();
        }
        "items" => match (before, after) {
            (Some(was), Some(is)) => return compare_schemas(was, is),
            _ => Direction::Unknown,
        },
        _ if before.is_none() && matches!(key, "pattern" | "const" | "type" | "uniqueItems") => Direction::Narrowed,
        _ => Direction::Unknown,
    })
}

/// Returns the elements of a keyword's value; `None` if the value is missing or not a list.
fn list(value: Option<&Value>) -> Option<&Vec<Value>> {
    value.and_then(Value::as_array)
}

/// Returns the direction of a change from `outer` to `inner`, two lists of allowed values: narrowed if `outer` contains
/// every value of `inner`, else widened.
fn compare_lists(inner: &[Value], outer: &[Value]) -> Direction {
    if inner.iter().all(|value| outer.contains(value)) { Direction::Narrowed } else { Direction::Widened }
}
