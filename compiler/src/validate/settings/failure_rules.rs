//! Rules of the error classification that never match: an earlier rule has the same condition, or no failure meets the
//! rule's condition.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rye_grammar::condition::{self, Expr, ExprKind};
use rye_grammar::data::Node;
use rye_grammar::{ItemId, Span};
use serde_json::Value;

use crate::diagnostics::{ConfigError, Diagnostics, ItemError};
use crate::item::Items;
use crate::semantics::classify::{FAILED_STAGES, fact_type};
use crate::semantics::condition::{Condition, Domain, Fuel, PatternBudget, Verdict};
use crate::semantics::facts::Facts;
use crate::validate::impossible_comparison::impossible_part_of_failure;
use crate::world::Space;

/// The lowest and the highest status code that HTTP allows.
const STATUS_CODES: (i32, f64) = (100, 599.0);

/// Reports the classification rules of the project and the user that never match. `node` is the file
/// `error_classification.yaml`, merged over all spaces.
pub fn check(items: &Items<'_>, node: &Node, found: &mut Diagnostics) {
    check_unique_ids(items, found);
    let mut earlier: Vec<(String, Value)> = Vec::new();
    let mut broader: Vec<(String, Expr)> = Vec::new();
    let mut patterns = PatternBudget::default();
    for rule in node.get("patterns").map(Node::items).unwrap_or_default() {
        let (Some(id), Some(written)) = (rule.get("id").and_then(Node::as_str), rule.get("match")) else { continue };
        let value = written.to_value();
        let is_library = items.sources().get(written.span.source).is_none_or(|s| s.path.starts_with("system:"));
        if !is_library {
            let same = earlier.iter().find(|(_, known)| *known == value);
            let why = match same {
                Some((by, _)) => Some(format!("the earlier rule `{by}` has the same condition")),
                None => impossible_reason(written, &mut patterns).or_else(|| {
                    covering_rule(written, &broader, &mut patterns)
                        .map(|by| format!("the earlier rule `{by}` matches every failure that this rule matches"))
                }),
            };
            if let Some(why) = why {
                found.push(ConfigError::NeverMatches { id: id.to_owned(), why, span: written.span });
            }
        }
        earlier.push((id.to_owned(), value));
        broader.extend(parsed_condition(written).map(|condition| (id.to_owned(), condition)));
    }
}

/// Reports each id that occurs twice among the rules of one file. The rules of several spaces may have equal ids: the
/// rule of the highest space applies.
fn check_unique_ids(items: &Items<'_>, found: &mut Diagnostics) {
    let Ok(file) = ItemId::parse("agent/error_classification") else { return };
    let layers = items.config_layers(&file);
    for (_, layer) in layers.iter().filter(|(space, _)| *space != Space::System) {
        let mut firsts: BTreeMap<&str, Span> = BTreeMap::new();
        for id in layer.get("patterns").map(Node::items).unwrap_or_default().iter().filter_map(|rule| rule.get("id")) {
            let Some(name) = id.as_str() else { continue };
            match firsts.get(name) {
                Some(first) => {
                    let what = format!("the rule `{name}`");
                    found.push(ItemError::Repeated { what, first: *first, second: id.span });
                }
                None => {
                    firsts.insert(name, id.span);
                }
            }
        }
    }
}

fn parsed_condition(written: &Node) -> Option<Expr> {
    let parsed = condition::from_data(written);
    parsed.tree.filter(|_| parsed.errors.is_empty())
}

/// Returns the reason why a condition is false for every failure; `None` if it can be true.
fn impossible_reason(written: &Node, patterns: &mut PatternBudget) -> Option<String> {
    let expr = parsed_condition(written)?;
    if let Some(part) = impossible_part_of_failure(&expr) {
        return Some(part.reason);
    }
    let compiled = Condition::compile_within(&expr, &fact_type, patterns).ok()?;
    if !is_never_true(&compiled) {
        return None;
    }
    let reads = |fact: &str| compiled.paths().iter().any(|path| path.to_string() == fact);
    let (least, most) = STATUS_CODES;
    let mut reason = "no failure meets its condition".to_owned();
    if reads("status") {
        let _ = write!(reason, "; `status` is an integer from {least} to {most}");
    }
    if reads("stage") {
        let _ = write!(reason, "; `stage` is one of `{}`", FAILED_STAGES.join("`, `"));
    }
    Some(reason)
}

/// Returns the id of the first of the `earlier` rules whose condition is true whenever `written` is true; `None` if no
/// such rule is found.
fn covering_rule<'e>(written: &Node, earlier: &'e [(String, Expr)], patterns: &mut PatternBudget) -> Option<&'e str> {
    let own = parsed_condition(written)?;
    let covers = |(_, other): &&(String, Expr)| {
        let span = own.span;
        let without = Expr { kind: ExprKind::Not(Box::new((*other).clone())), span };
        let only_own = Expr { kind: ExprKind::All(vec![own.clone(), without]), span };
        Condition::compile_within(&only_own, &fact_type, patterns).is_ok_and(|compiled| is_never_true(&compiled))
    };
    earlier.iter().find(covers).map(|(id, _)| id.as_str())
}

/// Returns true if a condition is proven to be false for every failure.
fn is_never_true(compiled: &Condition) -> bool {
    let mut facts = Facts::new();
    for root in compiled.roots() {
        facts.declare_unknown(root);
    }
    let domain = |path: &condition::Path| {
        let (least, most) = match path.to_string().as_str() {
            "status" => (STATUS_CODES.0, Some(STATUS_CODES.1)),
            "attempt" => (1, None),
            // The stage of a failure can be unknown, which is null.
            "stage" => {
                let stages = FAILED_STAGES.iter().map(|stage| Some(Value::from(*stage)));
                return Some(Domain::Values(stages.chain([Some(Value::Null)]).collect()));
            }
            _ => return None,
        };
        // A failure without a response has no status.
        Some(Domain::Number { whole: true, least: Some(least), most, optional: true })
    };
    compiled.evaluate_over(&facts, &domain, &mut Fuel::share(1)) == Verdict::False
}
