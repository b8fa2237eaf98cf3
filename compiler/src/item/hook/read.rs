//! Reads a [`HookDecl`] from data: one reader for hooks in YAML and hooks in XML (`language.md`, Hooks).

use std::sync::Arc;

use rye_grammar::data::{Entry, Kind, Node};
use rye_grammar::{ItemId, Spanned, SyntaxError, capability, condition};

use super::{HookDecl, HookPlaceholders, action};
use crate::diagnostics::{Diagnostics, HookError, ItemError, closest};
use crate::hook::{HookAction, HookPoint, HookSource, OnFailure, Position};
use crate::item::data;
use crate::semantics::condition::{Condition, PatternBudget};
use crate::semantics::hook_point::{self, HookPointRow, Mode, PathMeaning};
use crate::world::Space;

/// The keys that the declaration of a hook can have.
pub(crate) const KEYS: [&str; 11] = [
    "id",
    "event",
    "layer",
    "position",
    "wrap",
    "condition",
    "action",
    "description",
    "enabled",
    "grants",
    "on_failure",
];

/// Maximum number of hooks in one list of a file; further hooks are reported and not read.
const MAX_HOOKS: usize = 1_000;

/// Reads the hooks of one source. [`check_unique_ids`] reports duplicate ids.
pub(crate) fn read_hooks(
    node: &Node,
    source: &HookSource,
    space: Space,
    found: &mut Diagnostics,
) -> Vec<Arc<HookDecl>> {
    let items = match &node.kind {
        Kind::Null => return Vec::new(),
        Kind::List(items) => items,
        Kind::Bool(_) | Kind::Number(_) | Kind::String(_) | Kind::Map(_) => {
            data::report_invalid(
                found,
                "hooks",
                node,
                "a list of hooks, such as `- { id: …, event: tool_call, action: … }`",
            );
            return Vec::new();
        }
    };
    if items.len() > MAX_HOOKS {
        found.push(ItemError::InvalidValue {
            what: "`hooks`".into(),
            found: format!("{} hooks", items.len()),
            expected: format!("at most {MAX_HOOKS} in one list"),
            span: node.span,
        });
    }
    let mut patterns = PatternBudget::default();
    let hooks = items.iter().take(MAX_HOOKS).filter_map(|item| read_hook(item, (source, space), &mut patterns, found));
    hooks.map(Arc::new).collect()
}

/// Reports each id that occurs twice among the hooks of one directive or of one space.
/// `what` names the declarations in the report: hooks or commands.
pub(crate) fn check_unique_ids(what: &'static str, hooks: &[Arc<HookDecl>], found: &mut Diagnostics) {
    let mut seen: std::collections::BTreeMap<&str, rye_grammar::Span> = std::collections::BTreeMap::new();
    for hook in hooks {
        if let Some(first) = seen.insert(&hook.id.node, hook.id.span) {
            found.push(HookError::DuplicateId { what, id: hook.id.node.clone(), first, second: hook.id.span });
        }
    }
}

/// Reports unknown keys. If a hook has no key `event`, an unknown key whose value is the name of an event is reported
/// with the suggestion `event`.
fn check_keys(entries: &[Entry], found: &mut Diagnostics) {
    let (events, others): (Vec<Entry>, Vec<Entry>) = entries.iter().cloned().partition(|entry| {
        let is_event = entry.value.as_str().is_some_and(|value| hook_point::event_names().contains(&value));
        is_event && !KEYS.contains(&entry.key.node.as_str()) && !entries.iter().any(|other| other.key.node == "event")
    });
    for entry in events {
        found.push(ItemError::UnknownKey {
            what: "key",
            key: entry.key.node,
            of: "a hook".into(),
            span: entry.key.span,
            suggestion: Some("event".to_owned()),
            known: Vec::new(),
        });
    }
    data::check_keys(found, &others, &KEYS, "a hook");
}

/// Reads the condition of a hook. The second value of the result is true if the condition has a fault.
fn read_condition(hook: &Node, found: &mut Diagnostics) -> (Option<condition::Expr>, bool) {
    let Some(written) = hook.get("condition") else { return (None, false) };
    let parsed = condition::from_data(written);
    let is_empty = written.to_value().is_null();
    if is_empty {
        data::report_invalid(found, "condition", written, "a condition; leave out the key of a hook that always fires");
    }
    let is_broken = is_empty || !parsed.errors.is_empty();
    found.syntax(parsed.errors);
    (parsed.tree, is_broken)
}

fn read_hook(
    node: &Node,
    (source, space): (&HookSource, Space),
    patterns: &mut PatternBudget,
    found: &mut Diagnostics,
) -> Option<HookDecl> {
    let Kind::Map(entries) = &node.kind else {
        found.push(ItemError::InvalidValue {
            what: "a hook".into(),
            found: data::describe(node),
            expected: "a mapping with `id`, `event` and `action`".into(),
            span: node.span,
        });
        return None;
    };
    check_keys(entries, found);
    let enabled = node.get("enabled").and_then(|n| data::read_bool(found, "enabled", n)).unwrap_or(true);
    let id = read_id(node, found);
    // `{id: …, enabled: false}` is enough to disable a hook of another source.
    let event = match node.get("event") {
        None if !enabled => None,
        Some(list @ Node { kind: Kind::List(_), .. }) => {
            data::report_invalid(found, "event", list, "one event; a hook for each event has its own `id`");
            None
        }
        _ => read_required(node, "event", "a hook", found).and_then(|n| data::read_string(found, "event", n)),
    };
    let point = event.as_ref().and_then(|e| read_point(e, node.get("id").and_then(Node::as_str), found));
    let layer = node.get("layer").and_then(|n| data::read_number(found, "layer", n));
    let position = node.get("position").and_then(|n| read_position(n, found));
    let wrap = node.get("wrap").and_then(|n| data::read_bool(found, "wrap", n));
    let description = node.get("description").and_then(|n| data::read_string(found, "description", n)).map(|d| d.node);
    let on_failure = node.get("on_failure").and_then(|n| on_failure(n, found));
    let grants = node.get("grants").map(|n| read_grants(n, found)).unwrap_or_default();
    let (expr, mut broken) = read_condition(node, found);
    let mut placeholders = HookPlaceholders::default();
    let action_node = node.get("action");
    if action_node.is_none() && enabled && point.is_some() {
        read_required(node, "action", "a hook", found);
    }
    let action = match (action_node, point) {
        (Some(n), Some(point)) => {
            action::read(n, point, &mut placeholders, found).map(|action| Spanned::new(action, n.span))
        }
        (Some(_), None) | (None, _) => None,
    };
    let point = match point {
        Some(point) => point,
        None if event.is_none() && !enabled => hook_point::row_of(HookPoint::ResolveExtends),
        None => return None,
    };
    let compiled = match &expr {
        Some(expr) => match compile(expr, point, patterns) {
            Ok(condition) => Some(condition),
            Err(faults) => {
                found.syntax(faults);
                broken = true;
                None
            }
        },
        None => None,
    };
    let id = id?;
    // An unreadable hook is dropped, but a disabled hook needs only its id.
    if broken || (enabled && action.is_none()) {
        return None;
    }
    if let Some(action) = action.as_ref().filter(|_| enabled) {
        let cannot_fail = action.node.cannot_fail() && placeholders.facts.is_empty() && placeholders.inputs.is_empty();
        check_unused_keys(node, &id, (point, cannot_fail), found);
    }
    Some(HookDecl {
        span: id.span,
        id,
        event: point.point,
        layer,
        position: position.unwrap_or(Position::Before),
        wrap: wrap.unwrap_or(true),
        enabled,
        condition_source: node.get("condition").filter(|_| expr.is_some()).map(Node::to_value),
        condition: expr.zip(node.get("condition")).map(|(expr, n)| Spanned::new(expr, n.span)),
        compiled,
        fetched: action
            .as_ref()
            .filter(|_| placeholders.is_literal_field("item_id"))
            .and_then(|a| fetched_knowledge(&a.node)),
        action,
        placeholders,
        grants,
        on_failure: on_failure.unwrap_or(OnFailure::Warn),
        description,
        source: source.clone(),
        space,
    })
}

/// Reads the id of a hook; `None` if the id is missing, empty or not text.
fn read_id(node: &Node, found: &mut Diagnostics) -> Option<Spanned<String>> {
    let id = read_required(node, "id", "a hook", found).and_then(|n| data::read_string(found, "id", n))?;
    if id.node.trim().is_empty() {
        found.push(ItemError::InvalidValue {
            what: "the `id` of a hook".into(),
            found: "empty".into(),
            expected: "a name that is unique in its file".into(),
            span: id.span,
        });
        return None;
    }
    Some(id)
}

fn fetched_knowledge(action: &HookAction) -> Option<ItemId> {
    ItemId::parse(action.knowledge()?).ok()
}

fn read_required<'n>(node: &'n Node, key: &str, of: &str, found: &mut Diagnostics) -> Option<&'n Node> {
    let value = node.get(key);
    // The misspelt key `actions` is already reported, so do not report a missing `action` as well.
    let is_misspelt = key == "action" && node.get("actions").is_some();
    if value.is_none() && !is_misspelt {
        found.push(ItemError::Missing {
            what: format!("`{key}`"),
            of: of.to_owned(),
            span: node.get("id").map_or(node.span, |id| id.span),
            help: format!("add `{key}: …`"),
        });
    }
    value
}

fn read_point(event: &Spanned<String>, id: Option<&str>, found: &mut Diagnostics) -> Option<&'static HookPointRow> {
    let point = hook_point::by_name(&event.node);
    if point.is_none() {
        // The values of `event` and `id` may be exchanged.
        let exchanged = id.filter(|id| hook_point::by_name(id).is_some()).map(str::to_owned);
        found.push(HookError::UnknownEvent {
            event: event.node.clone(),
            span: event.span,
            suggestion: exchanged.or_else(|| closest(&event.node, hook_point::event_names())),
        });
    }
    point
}

/// Reads the position `before` or `after`. Reports any other value and returns `None`.
pub(crate) fn read_position(node: &Node, found: &mut Diagnostics) -> Option<Position> {
    match node.as_str() {
        Some("before") => Some(Position::Before),
        Some("after") => Some(Position::After),
        Some(_) | None => {
            data::report_invalid(found, "position", node, "`before` or `after`");
            None
        }
    }
}

/// Reports keys whose value has no effect: `position` and `wrap` of a hook whose text is not collected, and
/// `on_failure` of a hook that cannot fail. Values that are the default are not reported.
fn check_unused_keys(
    node: &Node,
    id: &Spanned<String>,
    (point, cannot_fail): (&HookPointRow, bool),
    found: &mut Diagnostics,
) {
    let mut report = |key: &'static str, why: &'static str, help: &'static str| {
        let span = node.get(key).map_or(id.span, |value| value.span);
        found.push(HookError::UnusedKey { id: id.node.clone(), key, why, help, span });
    };
    let written = |key: &str| node.get(key).and_then(Node::as_str);
    let is_collected = point.mode == Mode::Collect;
    let collected =
        "only the text of a hook at `build_system_prompt`, `thread_started` or `thread_continued` has a place";
    if !is_collected && written("position") == Some("after") {
        let is_context = point.point == HookPoint::Context;
        let help = if is_context { "write `position: after` into the action `inject`" } else { "remove the key" };
        report("position", collected, help);
    }
    if !is_collected && node.get("wrap").and_then(Node::as_bool) == Some(false) {
        report("wrap", "only collected text is wrapped", "remove the key");
    }
    if cannot_fail && written("on_failure") == Some("fail") {
        let help = "remove the key; to end the thread when the hook fires, use the action `terminate`";
        report("on_failure", "the action cannot fail", help);
    }
}

fn on_failure(node: &Node, found: &mut Diagnostics) -> Option<OnFailure> {
    match node.as_str() {
        Some("warn") => Some(OnFailure::Warn),
        Some("fail") => Some(OnFailure::Fail),
        Some(_) | None => {
            data::report_invalid(found, "on_failure", node, "`warn` or `fail`");
            None
        }
    }
}

fn read_grants(node: &Node, found: &mut Diagnostics) -> Vec<Spanned<capability::Pattern>> {
    let Kind::List(items) = &node.kind else {
        data::report_invalid(found, "grants", node, "a list of capability patterns");
        return Vec::new();
    };
    let mut grants = Vec::new();
    for item in items {
        let Some(text) = data::read_string(found, "grants", item) else { continue };
        match capability::parse(item.span.source, &text.node, item.content_start()) {
            Ok(pattern) => grants.push(Spanned::new(pattern, item.span)),
            Err(error) => found.push(if item.is_verbatim() { error } else { error.within(item.span) }),
        }
    }
    grants
}

/// Compiles a condition against the types of the facts of the hook point. Inputs are untyped here, because each
/// directive declares its own.
fn compile(
    expr: &condition::Expr,
    point: &HookPointRow,
    patterns: &mut PatternBudget,
) -> Result<Condition, Vec<SyntaxError>> {
    let types = |path: &condition::Path| match point.resolve_path(path) {
        PathMeaning::Fact(kind) => kind,
        PathMeaning::Input | PathMeaning::Open | PathMeaning::Nothing => None,
    };
    Condition::compile_within(expr, &types, patterns).map_err(super::condition_errors)
}
