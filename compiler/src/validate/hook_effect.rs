//! Reports these mistakes in a hook:
//!
//! - an action that changes nothing,
//! - an answer in a layer whose answers never decide,
//! - an empty `reason` of the action `block`, or an empty `error` of the action `terminate`,
//! - a delay in milliseconds that was probably meant in seconds,
//! - an unconditional action that lets a thread continue each time the thread is about to end,
//! - a comparison with a text where the author probably meant a list.

use rye_grammar::Span;
use rye_grammar::condition::{CompareOp, Expr, ExprKind, Path};
use serde_json::Value;

use super::fact_bounds::{compared_texts, may_apply};
use crate::diagnostics::{Diagnostics, HookError};
use crate::hook::{HookAction, HookPoint, HookSource};
use crate::item::HookDecl;
use crate::semantics::condition::{Domain, Fuel, Verdict};
use crate::semantics::facts::Facts;
use crate::semantics::limits::LimitName;
use crate::semantics::{hook_point, hook_table};

pub fn check(hook: &HookDecl, found: &mut Diagnostics) {
    let id = || hook.id.node.clone();
    if let Some(condition) = &hook.condition {
        let mut texts = Vec::new();
        collect_joined_texts(&condition.node, &mut texts);
        found.extend(texts.into_iter().map(|(text, span)| HookError::TextList { id: id(), text, span }));
    }
    let Some(action) = &hook.action else { return };
    let layer = hook_table::layer_of(&hook.source, hook.layer);
    if action.node.only_answers() && hook_table::is_answer_ignored(hook.event, layer) {
        let event = hook_point::row_of(hook.event).name;
        let in_infra_hooks = hook.source == HookSource::Infrastructure;
        let layer = layer.to_string();
        found.push(HookError::IgnoredAnswer { id: id(), event, layer, in_infra_hooks, span: action.span });
        return;
    }
    if let Some((why, span)) = no_effect_reason(hook, &action.node) {
        found.push(HookError::NoEffect { id: id(), why, span: span.unwrap_or(action.span) });
    }
    found.extend(odd_field(hook.id.node.clone(), &action.node, action.span));
    let continues = matches!(action.node, HookAction::FollowUp { .. } | HookAction::Block { .. });
    if hook.event == HookPoint::AgentEnd && continues && hook.condition.is_none() {
        found.push(HookError::Endless { id: id(), span: hook.span });
    }
}

/// The shortest plausible delay of a retry. A smaller number is probably meant in seconds.
const MIN_DELAY_MS: u64 = 50;

/// Returns the error for an empty `reason`, an empty `error`, or a delay below `MIN_DELAY_MS`; `None` if the action has
/// no such field. `id` is the hook, and `span` its action.
fn odd_field(id: String, action: &HookAction, span: Span) -> Option<HookError> {
    match action {
        HookAction::Block { reason } if reason.trim().is_empty() => {
            Some(HookError::EmptyText { id, text: "reason", span })
        }
        HookAction::Terminate { error: Some(error), .. } if error.trim().is_empty() => {
            Some(HookError::EmptyText { id, text: "error", span })
        }
        HookAction::Retry { delay_ms: Some(delay_ms @ 1..MIN_DELAY_MS) } => {
            Some(HookError::ShortDelay { id, delay_ms: *delay_ms, span })
        }
        HookAction::Block { .. }
        | HookAction::Terminate { .. }
        | HookAction::Retry { .. }
        | HookAction::Inject { .. }
        | HookAction::Message { .. }
        | HookAction::FollowUp { .. }
        | HookAction::SystemPrompt { .. }
        | HookAction::Modify { .. }
        | HookAction::Fetch { .. }
        | HookAction::SetExtends { .. }
        | HookAction::Execute { .. }
        | HookAction::Sign { .. }
        | HookAction::Transform { .. }
        | HookAction::Handled { .. }
        | HookAction::Drop { .. }
        | HookAction::KeepLast { .. }
        | HookAction::Replace { .. }
        | HookAction::Continue
        | HookAction::Escalate
        | HookAction::Raise { .. }
        | HookAction::Handoff
        | HookAction::Compact => None,
    }
}

/// Returns the reason why an action, or a part of it, has no effect; `None` if the whole action has an effect. If only
/// a part has no effect, also returns the span of the part.
fn no_effect_reason(hook: &HookDecl, action: &HookAction) -> Option<(String, Option<Span>)> {
    let is_blank = |text: &str| text.trim().is_empty();
    let empty = |what: &str| Some((format!("{what} is empty"), None));
    match action {
        HookAction::Inject { content, .. } if is_blank(content) => empty("the injected text"),
        HookAction::Message { content, .. } if is_blank(content) => empty("its message"),
        HookAction::FollowUp { content } if is_blank(content) => empty("its follow-up"),
        HookAction::SystemPrompt { text: None, append: Some(text) } if is_blank(text) => empty("the appended text"),
        HookAction::Modify { content: None, is_error: None, details: None } => {
            Some(("the action names no part of the result to change".to_owned(), None))
        }
        HookAction::Modify { content: Some(Value::String(text)), is_error: None, details: None }
            if text.trim() == "${result.content}" =>
        {
            Some(("it replaces the result with the same text".to_owned(), None))
        }
        HookAction::Handled { reply: Some(reply) } if is_blank(reply) => empty("its reply"),
        HookAction::Transform { text, images: None } if text.trim() == "${text}" => {
            Some(("it replaces the message with the same text".to_owned(), None))
        }
        HookAction::Fetch { params, .. } if params.as_object().is_some_and(|params| !params.is_empty()) => {
            let span = hook.placeholders.params.first().map(|(name, _)| name.span);
            Some(("a fetch takes no parameters".to_owned(), span))
        }
        HookAction::Raise { limit, .. } => {
            let name = LimitName::parse(limit)?;
            let is_other = hook.event == HookPoint::Limit && !may_apply(hook, name);
            is_other.then(|| {
                (
                    format!("the hook raises `{limit}`, but fires only at another limit, which still ends the thread"),
                    None,
                )
            })
        }
        HookAction::Retry { .. } if hook.event == HookPoint::Limit => {
            Some(("a retry meets the same limit, which then ends the thread".to_owned(), None))
        }
        HookAction::Continue if hook.event == HookPoint::Limit && !is_record(hook) => {
            Some(("`continue` raises no limit, so the limit ends the thread".to_owned(), None))
        }
        HookAction::Handoff if hook.event == HookPoint::Limit => {
            let used_up = [LimitName::Turns, LimitName::Tokens, LimitName::DurationSeconds];
            let used_up = used_up.into_iter().find(|name| may_apply(hook, *name))?;
            let why = format!(
                "the limit `{used_up}` is used up in the continuation too; only the limit `spend` can leave money for a shorter prompt"
            );
            Some((why, None))
        }
        HookAction::Retry { .. } if hook.event == HookPoint::Error && fires_only_for_tools(hook) => Some((
            "no call of a tool is repeated, because it may have had an effect; the model gets the error".to_owned(),
            None,
        )),
        HookAction::Inject { .. }
        | HookAction::Message { .. }
        | HookAction::FollowUp { .. }
        | HookAction::SystemPrompt { .. }
        | HookAction::Modify { .. }
        | HookAction::Fetch { .. }
        | HookAction::SetExtends { .. }
        | HookAction::Execute { .. }
        | HookAction::Sign { .. }
        | HookAction::Transform { .. }
        | HookAction::Handled { .. }
        | HookAction::Drop { .. }
        | HookAction::KeepLast { .. }
        | HookAction::Replace { .. }
        | HookAction::Block { .. }
        | HookAction::Retry { .. }
        | HookAction::Continue
        | HookAction::Terminate { .. }
        | HookAction::Escalate
        | HookAction::Handoff
        | HookAction::Compact => None,
    }
}

/// Returns true if the answer of the hook is ignored because of its layer: the hook only leaves a record that it fired.
fn is_record(hook: &HookDecl) -> bool {
    hook_table::is_answer_ignored(hook.event, hook_table::layer_of(&hook.source, hook.layer))
}

/// Returns true if the condition of an `error` hook is false for every failed model call. Only the failure of a tool
/// has the type and the class `tool_error`, and the fact `error.tool`.
fn fires_only_for_tools(hook: &HookDecl) -> bool {
    let Some(condition) = &hook.compiled else { return false };
    let mut facts = Facts::new();
    condition.roots().for_each(|root| facts.declare_unknown(root));
    let of_models = |path: &Path| match path.to_string().as_str() {
        "error.tool" => Some(Domain::Values(vec![None])),
        "error.type" | "classification.name" => match compared_texts(hook, path)? {
            Domain::Values(mut texts) => {
                texts.retain(|text| text.as_ref() != Some(&Value::from("tool_error")));
                Some(Domain::Values(texts))
            }
            other @ Domain::Number { .. } => Some(other),
        },
        _ => None,
    };
    condition.evaluate_over(&facts, &of_models, &mut Fuel::default()) == Verdict::False
}

/// Collects each text on the right side of `in` that joins several words, such as `"read,write"`. The author means a
/// list, but `in` with a text is true for every substring of the text.
fn collect_joined_texts(expr: &Expr, all: &mut Vec<(String, Span)>) {
    match &expr.kind {
        ExprKind::Literal(_) | ExprKind::Path(_) | ExprKind::Exists(_) => {}
        ExprKind::List(items) | ExprKind::All(items) | ExprKind::Any(items) => {
            for item in items {
                collect_joined_texts(item, all);
            }
        }
        ExprKind::Length(inner) | ExprKind::Not(inner) | ExprKind::Negate(inner) => collect_joined_texts(inner, all),
        ExprKind::Compare { op: CompareOp::In, left, right } => {
            if let (ExprKind::Path(_), ExprKind::Literal(Value::String(text))) = (&left.kind, &right.kind)
                && is_joined(text)
            {
                all.push((text.clone(), right.span));
            }
        }
        ExprKind::Compare { left, right, .. } | ExprKind::Arithmetic { left, right, .. } => {
            collect_joined_texts(left, all);
            collect_joined_texts(right, all);
        }
    }
}

/// Returns true for a list of at least two words that are separated by commas. A word contains no spaces.
fn is_joined(text: &str) -> bool {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    parts.len() > 1 && parts.iter().all(|part| !part.is_empty() && !part.contains(char::is_whitespace))
}
