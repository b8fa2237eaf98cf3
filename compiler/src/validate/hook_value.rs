//! Checks of the values that hook conditions compare facts with (`language.md` 7): a condition that compares a fact
//! with an unknown item, tool, directive or model can never be true. Also reports `enabled: false` entries that match
//! no hook.

use std::collections::BTreeSet;

use regex::Regex;
use rye_grammar::condition::{CompareOp, Expr, ExprKind, Path, Segment};
use rye_grammar::{ItemId, Span};
use serde_json::Value;

use crate::commands::read_commands;
use crate::compose::Composed;
use crate::diagnostics::{Diagnostics, HookError, closest};
use crate::hook::{HookPoint, HookSource};
use crate::item::{HookDecl, HookFiles, Items};
use crate::palette::tool_name;
use crate::primary::{DIRECTIVE_RETURN_TOOL, Primary};
use crate::semantics::capability::ItemType;
use crate::semantics::classify::built_in;
use crate::semantics::hook_point::row_of;
use crate::world::{ItemKind, Space};

use super::model::ModelIds;
use super::pattern_form;

/// Reports texts in a hook's condition that the compared fact can never have, such as the name of an unknown tool that
/// is compared with `call.name`. Also reports patterns in a wrong form.
pub fn check(items: &Items<'_>, hook: &HookDecl, found: &mut Diagnostics) {
    let Some(condition) = hook.condition.as_ref().filter(|_| hook.enabled) else { return };
    let mut compared = Vec::new();
    collect_compared_texts(&condition.node, &mut compared);
    check_text_forms(&condition.node, found);
    // `check_text_forms` reports a text with a wildcard, so the text is not reported again as an unknown name.
    compared.retain(|(fact, text, _)| !fact.has_ids() || !text.contains('*'));
    compared.retain(|(fact, ..)| *fact != ComparedFact::Command || hook.event == HookPoint::Command);
    // The user's own hooks apply in every project, so they may name items that this project does not have.
    let everywhere = hook.source == HookSource::User;
    if !everywhere {
        check_parts(items, &condition.node, found);
    }
    let mut models = None;
    for (fact, text, span) in compared {
        let answer = match fact {
            ComparedFact::ItemId => look_up_item(items, text),
            ComparedFact::Name => look_up_tool_name(items, text),
            ComparedFact::Directive
            | ComparedFact::Model
            | ComparedFact::Failure
            | ComparedFact::Category
            | ComparedFact::Command
                if everywhere =>
            {
                NameLookup::Found
            }
            ComparedFact::Directive => look_up_directive(items, text),
            ComparedFact::Category => look_up_category(items, text),
            ComparedFact::Command => look_up_command(items, text),
            ComparedFact::Failure => look_up_failure(items, text),
            ComparedFact::Model => {
                let ids = models.get_or_insert_with(|| ModelIds::read(items));
                if ids.has(text) { NameLookup::Found } else { NameLookup::Nothing { suggestion: ids.suggestion(text) } }
            }
        };
        let NameLookup::Nothing { suggestion } = answer else { continue };
        let (id, value) = (hook.id.node.clone(), text.to_owned());
        found.push(match fact {
            ComparedFact::ItemId | ComparedFact::Name => {
                HookError::UnknownCall { id, fact: fact.as_str(), value, suggestion, span }
            }
            ComparedFact::Directive
            | ComparedFact::Model
            | ComparedFact::Failure
            | ComparedFact::Category
            | ComparedFact::Command => {
                let is_tier = models.as_ref().is_some_and(|ids: &ModelIds| ids.is_tier(text));
                HookError::UnknownValue { id, fact: fact.as_str(), value, is_tier, suggestion, span }
            }
        });
    }
}

/// Reports each text and pattern that a condition looks for in `call.item_id` or `call.name` and that occurs in the id
/// of no item, or in the name of no tool.
fn check_parts(items: &Items<'_>, expr: &Expr, found: &mut Diagnostics) {
    match &expr.kind {
        ExprKind::List(parts) | ExprKind::All(parts) | ExprKind::Any(parts) => {
            for part in parts {
                check_parts(items, part, found);
            }
        }
        ExprKind::Not(inner) => check_parts(items, inner, found),
        ExprKind::Compare { op, left, right } => found.extend(unknown_part(items, *op, left, right)),
        ExprKind::Literal(_)
        | ExprKind::Path(_)
        | ExprKind::Exists(_)
        | ExprKind::Length(_)
        | ExprKind::Negate(_)
        | ExprKind::Arithmetic { .. } => {}
    }
}

/// Returns the error for a comparison that looks for a text or a pattern that no id, or no name of a tool, contains.
fn unknown_part(items: &Items<'_>, op: CompareOp, left: &Expr, right: &Expr) -> Option<HookError> {
    let (path, part) = if op == CompareOp::In { (right, left) } else { (left, right) };
    let (ExprKind::Path(path), ExprKind::Literal(Value::String(text))) = (&path.kind, &part.kind) else { return None };
    let fact = ComparedFact::of(path).filter(|fact| matches!(fact, ComparedFact::ItemId | ComparedFact::Name))?;
    let names: Vec<String> = if fact == ComparedFact::ItemId {
        let lists = ItemType::ALL.into_iter().map(|kind| items.list(kind.kind()));
        lists.flat_map(|list| list.iter().map(|entry| entry.id.to_string()).collect::<Vec<_>>()).collect()
    } else {
        let own = Primary::ALL.map(Primary::tool_name).into_iter().chain([DIRECTIVE_RETURN_TOOL]);
        own.map(str::to_owned).chain(items.list(ItemKind::Tool).iter().map(|entry| tool_name(&entry.id))).collect()
    };
    let is_pattern = op == CompareOp::Matches;
    let is_reported = match op {
        CompareOp::Matches => pattern_form::check(part).is_some(),
        CompareOp::Contains | CompareOp::In => odd_part(part).is_some() || text.contains('*'),
        CompareOp::Eq | CompareOp::Ne | CompareOp::Lt | CompareOp::Lte | CompareOp::Gt | CompareOp::Gte => true,
    };
    // The parser of the condition reports an invalid pattern.
    let matches = |part: &str| Regex::new(part).map_or(true, |regex| names.iter().any(|name| regex.is_match(name)));
    let is_in = |part: &str| if is_pattern { matches(part) } else { names.iter().any(|name| name.contains(part)) };
    if is_reported || is_in(text) {
        return None;
    }
    let (meant, verb) = if is_pattern {
        (text.strip_prefix('^').map(|rest| format!("^rye/{rest}")), "matches")
    } else {
        let separator = if fact == ComparedFact::ItemId { "/" } else { "_" };
        (Some(text.trim().to_lowercase().replace(['.', '/', '_'], separator)), "contains")
    };
    let suggestion = meant.filter(|meant| is_in(meant));
    Some(HookError::UnknownPart { fact: fact.as_str(), verb, text: text.clone(), suggestion, span: part.span })
}

/// Reports these mistakes in a condition:
///
/// - a text that every text contains,
/// - a regular expression in a text that `contains` looks for,
/// - an invisible character in a text, or a control character in a path,
/// - a date with one digit in a comparison by order,
/// - a text with a wildcard that is compared with an id or a name (`call.item_id == "rye/*"`),
/// - a pattern of `matches` in a wrong form (see [`pattern_form`]).
fn check_text_forms(expr: &Expr, found: &mut Diagnostics) {
    match &expr.kind {
        ExprKind::Literal(_) | ExprKind::Path(_) | ExprKind::Exists(_) => {}
        ExprKind::List(items) | ExprKind::All(items) | ExprKind::Any(items) => {
            for item in items {
                check_text_forms(item, found);
            }
        }
        ExprKind::Length(inner) | ExprKind::Not(inner) | ExprKind::Negate(inner) => check_text_forms(inner, found),
        ExprKind::Compare { op: CompareOp::Matches, right, .. } => {
            found.extend(pattern_form::check(right).or_else(|| invisible_character(right)));
        }
        ExprKind::Compare {
            op: op @ (CompareOp::Eq | CompareOp::Ne | CompareOp::In | CompareOp::Contains),
            left,
            right,
        } => {
            found.extend([left, right].into_iter().filter_map(|side| invisible_character(side)));
            let part = match op {
                CompareOp::Contains => Some(right),
                CompareOp::In => Some(left),
                CompareOp::Eq
                | CompareOp::Ne
                | CompareOp::Lt
                | CompareOp::Lte
                | CompareOp::Gt
                | CompareOp::Gte
                | CompareOp::Matches => None,
            };
            found.extend(part.and_then(|part| odd_part(part)));
            found.extend(escaped_path(left, right).or_else(|| escaped_path(right, left)));
            for (path, value) in [(left, right), (right, left)] {
                let ExprKind::Path(path) = &path.kind else { continue };
                let is_of_ids = ComparedFact::of(path).is_some_and(ComparedFact::has_ids);
                let is_of_file = names_file(path) && path.to_string().starts_with("call.input.");
                if !is_of_ids && !is_of_file {
                    continue;
                }
                let mut texts = Vec::new();
                collect_texts(ComparedFact::ItemId, value, &mut texts);
                for (_, text, span) in texts.into_iter().filter(|(_, text, _)| text.contains('*')) {
                    found.push(HookError::Wildcard { fact: path.to_string(), value: text.to_owned(), span });
                }
            }
        }
        ExprKind::Compare { left, right, .. } => {
            found.extend([left, right].into_iter().find_map(|side| unpadded_date(side)));
            found.extend(fraction_of_tokens(left, right).or_else(|| fraction_of_tokens(right, left)));
            check_text_forms(left, found);
            check_text_forms(right, found);
        }
        ExprKind::Arithmetic { left, right, .. } => {
            check_text_forms(left, found);
            check_text_forms(right, found);
        }
    }
}

/// Facts that count whole tokens.
const TOKEN_COUNTS: [&str; 5] =
    ["tokens_used", "tokens_limit", "cost.input_tokens", "cost.output_tokens", "cost.cached_tokens"];

/// Returns the error for a number of tokens that is compared with a fraction, such as `tokens_used > 0.9`.
fn fraction_of_tokens(fact: &Expr, number: &Expr) -> Option<HookError> {
    let (ExprKind::Path(path), ExprKind::Literal(Value::Number(literal))) = (&fact.kind, &number.kind) else {
        return None;
    };
    let name = path.to_string();
    let is_fraction = literal.as_f64().is_some_and(|value| value > 0.0 && value < 1.0);
    (is_fraction && TOKEN_COUNTS.contains(&name.as_str())).then(|| HookError::TokenFraction {
        fact: name,
        fraction: literal.to_string(),
        span: number.span,
    })
}

/// Returns the error for a text that every text contains, or that is written as a regular expression. `part` is the
/// text that a comparison looks for inside a fact.
fn odd_part(part: &Expr) -> Option<HookError> {
    let ExprKind::Literal(Value::String(text)) = &part.kind else { return None };
    let span = part.span;
    if text.is_empty() {
        let (why, label) = ("is empty, and every text contains the empty text".to_owned(), "always true");
        let help = "write the text to look for, or remove the comparison";
        return Some(HookError::OddText { text: "\"\"".to_owned(), why, label, help, span });
    }
    let mut classes = text.match_indices('\\').filter_map(|(at, _)| text.get(at + 1..));
    let is_class = |rest: &str| {
        let mut chars = rest.chars();
        let is_letter = chars.next().is_some_and(|c| matches!(c, 's' | 'd' | 'w' | 'b'));
        is_letter && !chars.next().is_some_and(char::is_alphanumeric)
    };
    let is_word = |c: Option<char>| c.is_some_and(|c| !c.is_whitespace());
    let joins = |(at, _): (usize, &str)| {
        let (before, after) = (text.get(..at).unwrap_or_default(), text.get(at + 2..).unwrap_or_default());
        is_word(before.chars().next_back()) && is_word(after.chars().next())
    };
    if classes.any(is_class) || text.match_indices(".*").any(joins) {
        let why = "is a regular expression, but `contains` looks for the text as it is written".to_owned();
        let help = "write `matches` for a regular expression, or the literal text";
        return Some(HookError::OddText { text: text.clone(), why, label: "not a literal text", help, span });
    }
    None
}

/// Returns the error for a date with one-digit parts in a comparison by order, which compares texts character by
/// character.
fn unpadded_date(side: &Expr) -> Option<HookError> {
    let ExprKind::Literal(Value::String(text)) = &side.kind else { return None };
    let parts: Vec<&str> = text.split('-').collect();
    let is_number = |part: &&str, least: usize, most: usize| {
        (least..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let [year, month, day] = parts.as_slice() else { return None };
    let is_date = is_number(year, 4, 4) && is_number(month, 1, 2) && is_number(day, 1, 2);
    (is_date && (month.len() == 1 || day.len() == 1)).then(|| HookError::OddText {
        text: text.clone(),
        why: "is a date with a one-digit part, but texts are compared character by character".to_owned(),
        label: "orders wrongly",
        help: "write two digits for the month and the day: `2026-02-01`",
        span: side.span,
    })
}

/// Returns true for a path whose name is that of a file or a folder, such as `call.input.path`.
fn names_file(path: &Path) -> bool {
    let name = path.to_string().to_ascii_lowercase();
    ["path", "file", "folder", "directory"].iter().any(|end| name.ends_with(end))
}

/// Returns the error for a path in which an escape became a control character: in double quotes, `\n` is a line break.
/// `path` is the fact with which the text is compared.
fn escaped_path(path: &Expr, side: &Expr) -> Option<HookError> {
    let (ExprKind::Path(path), ExprKind::Literal(Value::String(text))) = (&path.kind, &side.kind) else { return None };
    let names_file = names_file(path) || path.to_string().to_ascii_lowercase().ends_with("item_id");
    let is_inside = !text.trim().contains(' ') && text.trim().len() == text.len();
    let found = text.chars().find(|c| matches!(c, '\n' | '\t' | '\r' | '\u{8}' | '\u{c}'));
    found.filter(|_| names_file && is_inside).map(|found| HookError::OddText {
        text: text.escape_default().to_string(),
        why: format!("contains the control character U+{:04X}: a backslash starts an escape", u32::from(found)),
        label: "an escape, not a separator",
        help: "write `/` between the parts of a path",
        span: side.span,
    })
}

/// Returns the error for a text with an invisible character beside visible ones. A text that contains only invisible
/// characters is accepted, because its purpose is probably to find such characters.
fn invisible_character(side: &Expr) -> Option<HookError> {
    let ExprKind::Literal(Value::String(text)) = &side.kind else { return None };
    let is_invisible = |c: char| {
        let is_format = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2064}');
        is_format || matches!(c, '\u{a0}' | '\u{ad}' | '\u{feff}')
    };
    let found = text.chars().find(|c| is_invisible(*c)).filter(|_| !text.chars().all(is_invisible))?;
    let shown: String =
        text.chars().flat_map(|c| if is_invisible(c) { c.escape_unicode().collect() } else { vec![c] }).collect();
    let why = format!("has the invisible character U+{:04X}", u32::from(found));
    let help = "type the text again: a copied text may have non-breaking spaces or zero-width characters";
    Some(HookError::OddText { text: shown, why, label: "an invisible character", help, span: side.span })
}

/// Reports hooks that disable nothing: they have `enabled: false` but no action, and no other hook has their id.
pub fn check_removals(files: &HookFiles, found: &mut Diagnostics) {
    let others = || files.builtin.iter().chain(&files.infra).chain(&files.user).chain(&files.project);
    for hook in files.user.iter().chain(&files.project).filter(|hook| !hook.enabled && hook.action.is_none()) {
        let known = || others().filter(|other| other.action.is_some()).map(|other| other.id.node.as_str());
        if !known().any(|id| id == hook.id.node) {
            let id = hook.id.node.clone();
            let suggestion = closest(&id, known());
            found.push(HookError::RemovesNothing { id, suggestion, span: hook.id.span });
        }
    }
}

/// Reports hooks of a directive that have `enabled: false` and the id of an inherited hook. Such a hook disables only
/// itself, not the inherited hook.
pub fn check_disabled(composed: &Composed, found: &mut Diagnostics) {
    let Some(leaf) = composed.leaf() else { return };
    for hook in leaf.hooks.iter().filter(|hook| !hook.enabled) {
        let inherited = composed.chain.iter().filter(|link| link.id() != leaf.id()).find_map(|link| {
            let same = link.hooks.iter().find(|other| other.enabled && other.id.node == hook.id.node)?;
            Some((link.id().to_string(), same.id.span))
        });
        if let Some((base, inherited)) = inherited {
            let (id, span) = (hook.id.node.clone(), hook.id.span);
            found.push(HookError::RemovesOnlyItself { id, base, span, inherited });
        }
    }
}

/// Reports hooks of the project that replace a built-in hook of another event. The author probably chose the id by
/// accident.
pub fn check_replacements(files: &HookFiles, found: &mut Diagnostics) {
    let own = files.project.iter().filter(|hook| hook.space == Space::Project && hook.enabled && hook.action.is_some());
    for hook in own {
        let Some(removed) = files.builtin.iter().find(|built_in| built_in.id.node == hook.id.node) else { continue };
        if removed.event != hook.event {
            found.push(HookError::RemovesOther {
                id: hook.id.node.clone(),
                event: row_of(hook.event).name,
                removed: row_of(removed.event).name,
                span: hook.id.span,
                removed_span: removed.id.span,
            });
        }
    }
}

/// The result of looking up a name that a condition compares with; `suggestion` is a similar existing name.
enum NameLookup {
    Found,
    Nothing { suggestion: Option<String> },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ComparedFact {
    ItemId,
    Name,
    Directive,
    Model,
    Failure,
    Category,
    Command,
}

impl ComparedFact {
    fn of(path: &Path) -> Option<Self> {
        match path.segments.as_slice() {
            [Segment::Name(call), Segment::Name(field)] if call == "call" => match field.as_str() {
                "item_id" => Some(Self::ItemId),
                "name" => Some(Self::Name),
                _ => None,
            },
            [Segment::Name(root), Segment::Name(field)] if root == "classification" && field == "name" => {
                Some(Self::Failure)
            }
            [Segment::Name(only)] => match only.as_str() {
                "directive" => Some(Self::Directive),
                "model" => Some(Self::Model),
                "category" => Some(Self::Category),
                // Only `command` has the fact `name`.
                "name" => Some(Self::Command),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns true if a condition compares the fact with whole ids or names, so that a wildcard in them is a mistake.
    const fn has_ids(self) -> bool {
        !matches!(self, Self::Failure | Self::Command | Self::Category)
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::ItemId => "call.item_id",
            Self::Name => "call.name",
            Self::Directive => "directive",
            Self::Model => "model",
            Self::Failure => "classification.name",
            Self::Category => "category",
            Self::Command => "name",
        }
    }
}

/// Collects every text that a condition compares with the whole value of a `ComparedFact`.
fn collect_compared_texts<'e>(expr: &'e Expr, all: &mut Vec<(ComparedFact, &'e str, Span)>) {
    match &expr.kind {
        ExprKind::Literal(_) | ExprKind::Path(_) | ExprKind::Exists(_) => {}
        ExprKind::List(items) | ExprKind::All(items) | ExprKind::Any(items) => {
            for item in items {
                collect_compared_texts(item, all);
            }
        }
        ExprKind::Length(inner) | ExprKind::Not(inner) | ExprKind::Negate(inner) => collect_compared_texts(inner, all),
        ExprKind::Compare { op: op @ (CompareOp::Eq | CompareOp::Ne | CompareOp::In), left, right } => {
            // `"text" in fact` looks for a part of the fact.
            let sides = [Some((left, right)), (*op != CompareOp::In).then_some((right, left))];
            for (path, value) in sides.into_iter().flatten() {
                if let ExprKind::Path(path) = &path.kind
                    && let Some(fact) = ComparedFact::of(path)
                {
                    collect_texts(fact, value, all);
                }
            }
        }
        ExprKind::Compare { left, right, .. } | ExprKind::Arithmetic { left, right, .. } => {
            collect_compared_texts(left, all);
            collect_compared_texts(right, all);
        }
    }
}

fn collect_texts<'e>(fact: ComparedFact, value: &'e Expr, all: &mut Vec<(ComparedFact, &'e str, Span)>) {
    match &value.kind {
        ExprKind::Literal(Value::String(text)) => all.push((fact, text, value.span)),
        ExprKind::Literal(Value::Array(items)) => {
            all.extend(items.iter().filter_map(Value::as_str).map(|text| (fact, text, value.span)));
        }
        ExprKind::List(items) => {
            for item in items {
                collect_texts(fact, item, all);
            }
        }
        ExprKind::Literal(_)
        | ExprKind::Path(_)
        | ExprKind::Exists(_)
        | ExprKind::All(_)
        | ExprKind::Any(_)
        | ExprKind::Length(_)
        | ExprKind::Not(_)
        | ExprKind::Negate(_)
        | ExprKind::Compare { .. }
        | ExprKind::Arithmetic { .. } => {}
    }
}

fn look_up_item(items: &Items<'_>, text: &str) -> NameLookup {
    let kinds = ItemType::ALL.map(ItemType::kind);
    if let Ok(id) = ItemId::parse(text)
        && kinds.into_iter().any(|kind| items.exists(kind, &id))
    {
        return NameLookup::Found;
    }
    // The text may be the flattened or dotted spelling of an existing id.
    let list = items.list(ItemKind::Tool);
    let spelled = list.iter().find(|entry| tool_name(&entry.id) == text || entry.id.dotted() == text);
    let suggestion = spelled.map(|entry| entry.id.to_string()).or_else(|| items.nearest(ItemKind::Tool, text));
    NameLookup::Nothing { suggestion }
}

fn look_up_directive(items: &Items<'_>, text: &str) -> NameLookup {
    if ItemId::parse(text).is_ok_and(|id| items.exists(ItemKind::Directive, &id)) {
        return NameLookup::Found;
    }
    NameLookup::Nothing { suggestion: items.nearest(ItemKind::Directive, text) }
}

/// Looks up a category: the part of a directive's id before its last segment.
fn look_up_category(items: &Items<'_>, text: &str) -> NameLookup {
    let list = items.list(ItemKind::Directive);
    let categories: BTreeSet<&str> = list.iter().map(|entry| entry.id.category()).collect();
    if categories.contains(text) {
        return NameLookup::Found;
    }
    let slashed = text.replace('.', "/");
    let known = || categories.iter().copied().filter(|category| !category.is_empty());
    let spelled = known().find(|category| *category == slashed).map(str::to_owned);
    NameLookup::Nothing { suggestion: spelled.or_else(|| closest(text, known())) }
}

/// Looks up a command of `agent/chat`. If there are no commands, accepts every name, because the hook then never fires.
fn look_up_command(items: &Items<'_>, text: &str) -> NameLookup {
    let commands = read_commands(items, &mut Diagnostics::new());
    let names: Vec<&str> = commands.iter().map(|command| command.hook.id.node.as_str()).collect();
    if names.is_empty() || names.contains(&text) {
        return NameLookup::Found;
    }
    NameLookup::Nothing { suggestion: closest(text.trim_start_matches('/'), names) }
}

/// Names of failures that the engine sets without the classification table.
const ENGINE_FAILURES: [&str; 2] = ["no_summary", "unclassified"];

/// Looks up the name of a failure in the classification table.
fn look_up_failure(items: &Items<'_>, text: &str) -> NameLookup {
    let table = items.config_by_name("agent/error_classification");
    let table = table.map_or_else(built_in, |node| node.to_value());
    let rules = table.get("patterns").and_then(Value::as_array).into_iter().flatten().chain(table.get("default"));
    let of_rules = rules.filter_map(|rule| rule.get("name").or_else(|| rule.get("id"))?.as_str().map(str::to_owned));
    let names: Vec<String> = of_rules.chain(ENGINE_FAILURES.map(str::to_owned)).collect();
    if names.iter().any(|name| name == text) {
        return NameLookup::Found;
    }
    NameLookup::Nothing { suggestion: closest(text, names.iter().map(String::as_str)) }
}

/// Looks up a tool by the name that the model calls.
fn look_up_tool_name(items: &Items<'_>, text: &str) -> NameLookup {
    let own = Primary::ALL.map(Primary::tool_name).into_iter().chain([DIRECTIVE_RETURN_TOOL]);
    let list = items.list(ItemKind::Tool);
    let tools: Vec<(&ItemId, String)> = list.iter().map(|entry| (&entry.id, tool_name(&entry.id))).collect();
    let mut all = own.chain(tools.iter().map(|(_, name)| name.as_str()));
    if all.clone().any(|name| name == text) {
        return NameLookup::Found;
    }
    // The text may be an id, or the last segment of an id, instead of the name that a model calls.
    let mut of_item =
        tools.iter().filter(|(id, _)| id.as_str() == text || id.as_str().rsplit('/').next() == Some(text));
    let of_item = of_item.next().map(|(_, name)| name.clone());
    NameLookup::Nothing { suggestion: of_item.or_else(|| closest(text, all.by_ref())) }
}
