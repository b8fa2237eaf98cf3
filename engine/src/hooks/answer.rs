//! Conversion of fired hooks into the answer of their hook point: actions are applied, and the results of execute hooks
//! are parsed as actions.

use rye_compiler::hook::{
    END_STATUSES, HookAction, HookPoint, MESSAGE_KINDS, Position, SESSION_SCOPE, TERMINATE_SCOPES,
};
use rye_compiler::semantics::hook_point::{self, ActionName};
use rye_compiler::semantics::limits::{LimitName, LimitValue, parse_limit_value};
use rye_compiler::semantics::value::inline_text;
use serde_json::Value;

use super::{FiredHook, PointEvaluation, ReadyHook};
use crate::event::{ContextOperation, HookOutcome};
use crate::image::ImageRef;
use crate::machine::HookRun;
use crate::message::Message;
use crate::thread::Status;
use crate::tool::guard::unwrap_envelope;

/// Action fields that must be text. A placeholder can fill a field with a value of another type (for example, a
/// number).
const TEXT_FIELDS: [&str; 10] =
    ["item_id", "text", "append", "reason", "error", "status", "custom_type", "limit", "reply", "scope"];

/// Converts the values of the [`TEXT_FIELDS`] of an action to strings, because a placeholder may have filled a field
/// with a value of another type.
pub(super) fn stringify_text_fields(action: &mut Value) {
    let Value::Object(map) = action else { return };
    let keeps_type = map.get("action").and_then(Value::as_str) == Some("modify");
    for (key, value) in map.iter_mut() {
        let is_text = TEXT_FIELDS.contains(&key.as_str()) || (key == "content" && !keeps_type);
        if is_text && !value.is_string() && !value.is_null() {
            *value = Value::String(inline_text(value).into_owned());
        }
    }
}

/// Returns the content of a result as text: a string as it is, any other value as JSON.
pub(super) fn result_text(content: &Value) -> String {
    inline_text(content).into_owned()
}

/// Returns true if a result is a `terminate` action, which ends the thread. `"status": "error"` in such a result is the
/// end status of the thread. It does not mean that the call failed.
pub(super) fn is_terminate(content: &Value) -> bool {
    let action = content.get("action").and_then(Value::as_str).and_then(ActionName::from_word);
    action == Some(ActionName::Terminate) && content.get("success") != Some(&Value::Bool(false))
}

/// Parses the result of an execute hook, after removing the envelope of the tool. JSON with an `action` is parsed as an
/// action, and any other result is text. At a hook point that collects texts, JSON with an action that the hook point
/// does not accept is text too.
///
/// # Errors
/// Returns the reason why the action of the result cannot run. The hook then counts as failed.
pub(super) fn parse_result(point: HookPoint, content: &Value) -> Result<FiredHook, String> {
    let content = unwrap_envelope(content);
    let answer = match content {
        Value::String(text) => {
            let value = serde_json::from_str(text.trim()).unwrap_or(Value::Null);
            unwrap_envelope(&value).clone()
        }
        Value::Object(_) => content.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => Value::Null,
    };
    let text = || Ok(FiredHook::Text(result_text(content)));
    let (Some(given), Value::Object(mut map)) =
        (answer.get("action").filter(|given| !given.is_null()).cloned(), answer)
    else {
        return text();
    };
    let event = hook_point::row_of(point);
    let allowed = event.actions.iter().filter(|name| is_answer(**name));
    let word = inline_text(&given);
    let Some(name) = allowed.clone().copied().find(|name| ActionName::from_word(&word) == Some(*name)) else {
        if collects_texts(point) {
            return text();
        }
        let allowed: Vec<String> = allowed.map(|name| format!("`{}`", name.as_str())).collect();
        let allowed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
        return Err(format!(
            "its answer has the action `{word}`, which the event `{}` does not accept as an answer; accepted: {allowed}",
            event.name
        ));
    };
    // `success` belongs to the envelope that some tools put around their answers. A `block` with a superfluous field
    // still blocks: a failed hook would let the call run.
    let is_known = |key: &&String| *key == "action" || *key == "success" || name.fields().contains(&key.as_str());
    if let Some(unknown) = map.keys().find(|key| name != ActionName::Block && !is_known(key)) {
        let fields = match name.fields() {
            [] => "none".to_owned(),
            fields => format!("`{}`", fields.join("`, `")),
        };
        return Err(format!("the action `{word}` of its answer has no field `{unknown}`; its fields: {fields}"));
    }
    map.insert("action".into(), name.as_str().into());
    let mut action = Value::Object(map);
    add_defaults(&mut action);
    stringify_text_fields(&mut action);
    let read = serde_json::from_value::<HookAction>(action);
    read.map(FiredHook::Action).map_err(|error| format!("the action `{word}` of its answer cannot be read: {error}"))
}

/// Returns true if the result of an execute hook can be this action. Actions that start an item, and `set_extends`, can
/// only be declared in a hook.
const fn is_answer(name: ActionName) -> bool {
    !matches!(name, ActionName::SetExtends | ActionName::Fetch | ActionName::Execute | ActionName::Sign)
}

/// Returns true if the texts of the hooks of this point are collected. At other points, a text that is not an action
/// changes nothing.
const fn collects_texts(point: HookPoint) -> bool {
    matches!(
        point,
        HookPoint::BuildSystemPrompt | HookPoint::ThreadStarted | HookPoint::ThreadContinued | HookPoint::Command
    )
}

/// Adds the default values of the fields that an action may omit.
fn add_defaults(action: &mut Value) {
    let Value::Object(map) = action else { return };
    let word = map.get("action").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut default = |key: &str, value: Value| {
        map.entry(key).or_insert(value);
    };
    match word.as_str() {
        "message" => {
            if let Some(kind) = map.shift_remove("type") {
                map.entry("custom_type").or_insert(kind);
            }
            map.entry("custom_type").or_insert_with(|| "hook".into());
            map.entry("display").or_insert(Value::Bool(true));
        }
        "inject" => default("position", "after".into()),
        "block" => default("reason", "blocked by a hook".into()),
        _ => {}
    }
}

/// Checks the parts of an action that the compiler cannot check: values that come from placeholders, and values in the
/// answer of a program.
///
/// # Errors
/// Returns the reason why the action cannot run. The hook then counts as failed.
pub(super) fn check_action(action: &HookAction) -> Result<(), String> {
    match action {
        HookAction::Replace { messages } => <Vec<Message> as serde::Deserialize>::deserialize(messages)
            .map(drop)
            .map_err(|error| format!("the messages of the action cannot be read: {error}")),
        HookAction::Terminate { status, scope, .. } => {
            check_word("status", status.as_deref(), &END_STATUSES)?;
            check_word("scope", scope.as_deref(), &TERMINATE_SCOPES)
        }
        HookAction::Raise { limit, value } => raised_limit_value(limit, value).map(drop),
        HookAction::Drop { kinds, n } => {
            if kinds.is_empty() || *n == Some(0) {
                return Err("the action `drop` drops nothing: `kinds` is empty, or `n` is 0".into());
            }
            kinds.iter().try_for_each(|kind| check_word("kind", Some(kind), &MESSAGE_KINDS))
        }
        HookAction::KeepLast { n: 0 } => Err("`n` of `keep_last` is 0; a model call needs at least one message".into()),
        HookAction::Modify { content: None, is_error: None, details: None } => {
            Err("the action `modify` names no part of the result to change".into())
        }
        HookAction::SystemPrompt { text: None, append: None } => {
            Err("the action `system_prompt` has neither `text` nor `append`".into())
        }
        HookAction::SetExtends { .. }
        | HookAction::Fetch { .. }
        | HookAction::Execute { .. }
        | HookAction::Sign { .. }
        | HookAction::Transform { .. }
        | HookAction::Handled { .. }
        | HookAction::Message { .. }
        | HookAction::SystemPrompt { .. }
        | HookAction::KeepLast { .. }
        | HookAction::Inject { .. }
        | HookAction::Block { .. }
        | HookAction::Modify { .. }
        | HookAction::Retry { .. }
        | HookAction::Continue
        | HookAction::Escalate
        | HookAction::Handoff
        | HookAction::Compact
        | HookAction::FollowUp { .. } => Ok(()),
    }
}

fn check_word(what: &str, word: Option<&str>, words: &[&str]) -> Result<(), String> {
    match word.filter(|word| !words.contains(word)) {
        None => Ok(()),
        Some(unknown) => Err(format!("unknown {what} `{unknown}`; accepted: `{}`", words.join("`, `"))),
    }
}

/// Returns the reason why an action has no effect at this run of a hook point; `None` if the action has an effect.
pub(super) fn no_effect_reason(run: &HookRun, action: &HookAction) -> Option<&'static str> {
    match (run.point, action) {
        (HookPoint::Limit, HookAction::Retry { .. }) => Some("a retry meets the same limit, which ends the thread"),
        (HookPoint::Limit, HookAction::Handoff)
            if run.facts.get("limit_code").and_then(Value::as_str) != Some("spend_exceeded") =>
        {
            Some("a continuation inherits the reached limit; a handoff can help only at the limit `spend`")
        }
        (HookPoint::Limit, HookAction::Handoff) if !run.can_hand_off && run.turn == 0 => {
            Some("no turn has run yet, so a handoff cannot shorten the prompt")
        }
        (HookPoint::Limit, HookAction::Handoff) if !run.can_hand_off => {
            Some("the money is used up, so a continuation cannot pay for a model call")
        }
        (HookPoint::Error, HookAction::Retry { .. }) if run.subject.is_some() => {
            Some("no call of a tool is repeated, because it may have had an effect; the model gets the error")
        }
        _ => None,
    }
}

/// Parses the new value of the limit with the name `limit`. `value` is a number, or a text that contains a number.
/// Returns the reason if the name or the value is invalid.
fn raised_limit_value(limit: &str, value: &Value) -> Result<u64, String> {
    let name = LimitName::parse(limit).ok_or_else(|| format!("unknown limit `{limit}`"))?;
    let text = value.as_str().map(|text| LimitValue::Text(text.to_owned()));
    parse_limit_value(name, &text.unwrap_or_else(|| LimitValue::Json(value.clone())))
}

/// Applies the result of a fired hook to the answer of the hook point.
pub(super) fn apply_fired(turn: &mut PointEvaluation, point: HookPoint, hook: &ReadyHook, fired: FiredHook) {
    match fired {
        FiredHook::Layer => collect(turn, &hook.hook.id, None),
        FiredHook::Text(text) => {
            if collects_texts(point) {
                collect(turn, &hook.hook.id, Some(text));
            }
        }
        FiredHook::Action(action) => apply_action(turn, action),
    }
}

fn collect(turn: &mut PointEvaluation, id: &str, text: Option<String>) {
    if !matches!(turn.answer, HookOutcome::Collected { .. }) {
        turn.answer = HookOutcome::Collected { fired: Vec::new(), texts: std::collections::BTreeMap::new() };
    }
    if let HookOutcome::Collected { fired, texts } = &mut turn.answer {
        fired.push(id.to_owned());
        if let Some(text) = text {
            texts.insert(id.to_owned(), text);
        }
    }
}

fn apply_action(turn: &mut PointEvaluation, action: HookAction) {
    turn.answer = match action {
        HookAction::SetExtends { .. }
        | HookAction::Fetch { .. }
        | HookAction::Execute { .. }
        | HookAction::Sign { .. } => return,
        HookAction::Transform { text, images } => {
            let images = images.and_then(|images| serde_json::from_value(images).ok());
            transform(turn, text, images)
        }
        HookAction::Handled { reply } => HookOutcome::Handled { reply },
        HookAction::Message { content, custom_type, display } => {
            prepare_turn(turn, Some(Message::Custom { custom_type, content, display }), None)
        }
        HookAction::SystemPrompt { text, append } => {
            let now = turn.facts.get("system_prompt").and_then(Value::as_str).unwrap_or_default();
            let mut system = text.unwrap_or_else(|| now.to_owned());
            if let Some(append) = append {
                if !system.is_empty() {
                    system.push_str("\n\n");
                }
                system.push_str(&append);
            }
            turn.facts.insert("system_prompt".into(), system.clone().into());
            prepare_turn(turn, None, Some(system))
        }
        HookAction::Drop { kinds, n } => change_context(turn, ContextOperation::Drop { kinds, n }),
        HookAction::KeepLast { n } => change_context(turn, ContextOperation::KeepLast { n }),
        HookAction::Inject { content, position } => change_context(
            turn,
            match position {
                Position::Before => ContextOperation::InjectBefore { content },
                Position::After => ContextOperation::InjectAfter { content },
            },
        ),
        HookAction::Replace { messages } => match serde_json::from_value(messages) {
            Ok(messages) => change_context(turn, ContextOperation::Replace { messages }),
            Err(_) => return,
        },
        HookAction::Block { reason } => HookOutcome::Block { reason },
        HookAction::Modify { content, is_error, details } => modify_subject(turn, content, is_error, details),
        HookAction::Retry { delay_ms } => HookOutcome::Retry { delay_ms: delay_ms.unwrap_or(0) },
        HookAction::Continue => HookOutcome::Continue,
        HookAction::Terminate { status, error, scope } => HookOutcome::Terminate {
            status: status.as_deref().map(end_status),
            error,
            ends_session: scope.as_deref() == Some(SESSION_SCOPE),
        },
        HookAction::Escalate => HookOutcome::Escalate,
        HookAction::Raise { limit, value } => match raised_limit_value(&limit, &value) {
            Ok(value) => HookOutcome::Raise { limit, value },
            Err(_) => return,
        },
        HookAction::Handoff => HookOutcome::Handoff,
        HookAction::Compact => HookOutcome::Compact,
        HookAction::FollowUp { content } => HookOutcome::FollowUp { content },
    };
}

fn end_status(word: &str) -> Status {
    match word {
        "completed" | "success" => Status::Completed,
        "cancelled" => Status::Cancelled,
        "suspended" => Status::Suspended,
        _ => Status::Error,
    }
}

/// Replaces the text of the message, and its images if `images` are given. Later hooks see the new text and images.
fn transform(turn: &mut PointEvaluation, text: String, images: Option<Vec<ImageRef>>) -> HookOutcome {
    turn.facts.insert("text".into(), text.clone().into());
    if let Some(images) = &images {
        turn.facts.insert("images".into(), serde_json::to_value(images).unwrap_or(Value::Null));
    }
    let earlier = if let HookOutcome::Transformed { images, .. } = &mut turn.answer { images.take() } else { None };
    HookOutcome::Transformed { text, images: images.or(earlier) }
}

fn prepare_turn(turn: &mut PointEvaluation, message: Option<Message>, with: Option<String>) -> HookOutcome {
    let earlier = std::mem::take(&mut turn.answer);
    let (mut messages, system) =
        if let HookOutcome::Prepared { messages, system } = earlier { (messages, system) } else { (Vec::new(), None) };
    messages.extend(message);
    HookOutcome::Prepared { messages, system: with.or(system) }
}

fn change_context(turn: &mut PointEvaluation, operation: ContextOperation) -> HookOutcome {
    let earlier = std::mem::take(&mut turn.answer);
    let mut operations = if let HookOutcome::Context { operations } = earlier { operations } else { Vec::new() };
    operations.push(operation);
    HookOutcome::Context { operations }
}

/// Merges changes of a tool result into the changes that earlier hooks of this point have made. A later change of a
/// field replaces the earlier change. The fact `result` changes too, so that later hooks see the new result.
fn modify_subject(
    turn: &mut PointEvaluation,
    content: Option<Value>,
    is_error: Option<bool>,
    details: Option<Value>,
) -> HookOutcome {
    let earlier = std::mem::take(&mut turn.answer);
    let (old_content, old_error, old_details) = if let HookOutcome::Modify { content, is_error, details } = earlier {
        (content, is_error, details)
    } else {
        (None, None, None)
    };
    let merged = (content.or(old_content), is_error.or(old_error), details.or(old_details));
    if let Some(Value::Object(result)) = turn.facts.get_mut("result") {
        let changes =
            [("content", merged.0.clone()), ("is_error", merged.1.map(Value::Bool)), ("details", merged.2.clone())];
        for (key, value) in changes {
            if let Some(value) = value {
                result.insert(key.into(), value);
            }
        }
    }
    HookOutcome::Modify { content: merged.0, is_error: merged.1, details: merged.2 }
}
