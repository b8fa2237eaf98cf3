//! The possible values of hook facts, as far as they are known before a run: the names of a closed list, booleans,
//! counts, and the inputs and outputs that a directive declares (`language.md` 2 and 7).

use rye_grammar::condition::{Path, Segment};
use serde_json::Value;

use crate::compose::Composed;
use crate::hook::HookPoint;
use crate::item::{FieldDecl, HookDecl};
use crate::plan::FieldType;
use crate::semantics::classify::Category;
use crate::semantics::condition::Domain;
use crate::semantics::hook_point::{HookPointRow, PathMeaning, declared_output};
use crate::semantics::value::Type;

/// Facts that have only certain values. Each entry holds the hook point, the name of the fact, and its values.
const CLOSED_VOCABULARIES: [(&str, &str, &[&str]); 11] = [
    (
        "limit",
        "limit_code",
        &[
            "turns_exceeded",
            "tokens_exceeded",
            "spend_exceeded",
            "duration_seconds_exceeded",
            "spawns_exceeded",
            "depth_exceeded",
        ],
    ),
    ("input", "source", &["interactive", "rpc", "extension"]),
    ("input", "delivery", &["prompt", "steer", "follow_up", "next_turn"]),
    ("command", "delivery", &["prompt", "steer", "follow_up", "next_turn"]),
    // A thread that is killed, suspended or idle runs no hooks.
    ("after_complete", "status", &["completed", "error", "cancelled", "continued"]),
    ("thread_completed", "status", &["completed"]),
    ("thread_error", "status", &["error"]),
    ("thread_cancelled", "status", &["cancelled"]),
    (
        "cognition_in",
        "source",
        &["prompt", "continuation", "steer", "follow_up", "next_turn", "nudge", "continue_reply", "hook"],
    ),
    (
        "tool_call_result",
        "why.kind",
        &["ran", "denied", "unapproved", "blocked", "refused", "skipped", "interrupted", "returned", "incomplete"],
    ),
    (
        "error",
        "classification.category",
        &[
            Category::RateLimited.as_str(),
            Category::Transient.as_str(),
            Category::Permanent.as_str(),
            Category::Cancelled.as_str(),
        ],
    ),
];

/// Returns the possible values of a fact that can only be one of a fixed list of words at this hook point; `None` for
/// any other fact.
pub fn closed_vocabulary(point: &HookPointRow, path: &str) -> Option<&'static [&'static str]> {
    CLOSED_VOCABULARIES.iter().find(|(event, fact, _)| *event == point.name && *fact == path).map(|(.., words)| *words)
}

/// Returns the domain (the possible values) of a fact at a hook point; `None` if any value is possible. `directive` is
/// the directive being checked, whose declared inputs and outputs have domains; `None` if no single directive is being
/// checked.
pub fn fact_domain(point: &HookPointRow, path: &Path, directive: Option<&Composed>) -> Option<Domain> {
    match point.resolve_path(path) {
        PathMeaning::Input => match path.segments.as_slice() {
            [_, Segment::Name(name)] => {
                let field = &directive?.inputs.get(name)?.value;
                field_domain(field, !field.required && field.default.is_none())
            }
            _ => None,
        },
        PathMeaning::Open => {
            let output = || output_domain(directive?, declared_output(point.point, path)?);
            closed_domain(point, path).or_else(output)
        }
        PathMeaning::Fact(Some(Type::Boolean)) => Some(Domain::Values(vec![Some(true.into()), Some(false.into())])),
        PathMeaning::Fact(Some(Type::Integer)) => {
            // `turn` and `attempt` are counted from 1. At `agent_end`, `turn` can be 0, because a prompt can end before
            // its first model call.
            let is_counted_from_one = match path.to_string().as_str() {
                "turn" => point.point != HookPoint::AgentEnd,
                "attempt" => true,
                _ => false,
            };
            let least = i32::from(is_counted_from_one);
            Some(Domain::Number { whole: true, least: Some(least), most: None, optional: false })
        }
        PathMeaning::Fact(Some(Type::Number)) => {
            Some(Domain::Number { whole: false, least: Some(0), most: None, optional: false })
        }
        PathMeaning::Fact(Some(Type::String)) => closed_domain(point, path),
        PathMeaning::Fact(Some(Type::Array | Type::Object | Type::Null) | None) | PathMeaning::Nothing => None,
    }
}

fn closed_domain(point: &HookPointRow, path: &Path) -> Option<Domain> {
    let words = closed_vocabulary(point, &path.to_string())?;
    Some(Domain::Values(words.iter().map(|word| Some((*word).into())).collect()))
}

/// Returns true if a hook's condition reads an output that the directive does not declare, so that the output is always
/// absent.
pub fn reads_undeclared_output(composed: &Composed, hook: &HookDecl) -> bool {
    let is_undeclared = |name: &str| !composed.outputs.contains_key(name);
    let paths = hook.compiled.iter().flat_map(|condition| condition.paths());
    { paths }.any(|path| declared_output(hook.event, path).is_some_and(|(name, _)| is_undeclared(name)))
}

/// Returns the domain of an output, or of a value inside it. A return that states an error may omit a required output,
/// so each output can be absent. An output that the directive does not declare is always absent.
fn output_domain(composed: &Composed, (name, inside): (&str, &[Segment])) -> Option<Domain> {
    match composed.outputs.get(name) {
        Some(output) if inside.is_empty() => field_domain(&output.value, true),
        Some(_) => None,
        None if composed.chain.iter().any(|link| link.is_incomplete) => None,
        None => Some(Domain::Values(vec![None])),
    }
}

/// Returns the domain of a declared input or output; `optional` is true if the value can be absent.
fn field_domain(field: &FieldDecl, optional: bool) -> Option<Domain> {
    let with_absent = |values: Vec<Value>| {
        let values = values.into_iter().map(Some);
        Domain::Values(if optional { values.chain([None]).collect() } else { values.collect() })
    };
    if !field.choices.is_empty() {
        return Some(with_absent(field.choices.clone()));
    }
    match field.kind {
        FieldType::Boolean => Some(with_absent(vec![true.into(), false.into()])),
        FieldType::Integer => Some(Domain::Number { whole: true, least: None, most: None, optional }),
        FieldType::Number => Some(Domain::Number { whole: false, least: None, most: None, optional }),
        FieldType::String | FieldType::Array | FieldType::Object => None,
    }
}
