//! Display of a transcript event: a summary line, and the text that belongs to it.

use rye_compiler::semantics::limits::told;
use rye_engine::event::{
    Approval, ChildEnded, CognitionOut, ControlMessage, Ended, Event, EventBody, HookEvaluation, HookPointRun,
    HookVerdict, LimitHit, Opened, ResultKind, Settled, ToolCallResult,
};
use rye_engine::message::{ContentBlock, Message, ToolCall};
use rye_engine::thread::Cost;
use serde::Serialize;
use serde_json::Value;

use super::{count, money, short};

/// Maximum characters of a value within a line.
const MAX_INLINE_CHARS: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub line: String,
    /// The text of the event, verbatim.
    pub text: Option<String>,
    /// Set if the event reports a failure.
    pub bad: bool,
}

pub fn shown(event: &Event) -> Shown {
    let line = |line: String| Shown { line, text: None, bad: false };
    let with = |line: String, text: &str| Shown { line, text: Some(text.to_owned()), bad: false };
    match &event.body {
        EventBody::Opened(opened) => line(opened_view(opened)),
        EventBody::PlanBound(bound) => line(format!("plan {}", bound.plan_id)),
        EventBody::Continues(from) => {
            let line = format!("goes on from {} after event {}", from.thread, from.at_seq);
            Shown { line, text: from.message.clone(), bad: false }
        }
        EventBody::SystemPrompt(prompt) => with(layers(&prompt.layers), &prompt.text),
        EventBody::ContextInjected(context) => {
            let (before, after) = (context.before.join(", "), context.after.join(", "));
            line(format!("before: {}; after: {}", or_placeholder(&before), or_placeholder(&after)))
        }
        EventBody::CognitionIn(message) => with(word(&message.source), &message_text(&message.message)),
        EventBody::AttemptIntended(attempt) => line(format!(
            "turn {}, attempt {} to {}: about {} in, at most {} out, at most {}",
            attempt.turn,
            attempt.attempt + 1,
            attempt.model,
            count(attempt.input_estimate, "token"),
            count(attempt.max_output, "token"),
            money(attempt.worst_case)
        )),
        EventBody::Reserved(reserved) => {
            line(format!("turn {}, attempt {}: {}", reserved.turn, reserved.attempt + 1, money(reserved.amount)))
        }
        EventBody::CognitionOut(reply) => reply_view(reply),
        EventBody::AttemptFailed(failed) => {
            let next = match failed.retry_delay_ms {
                Some(delay) => format!("again in {delay} ms"),
                None => "no further attempt".to_owned(),
            };
            let what =
                format!("turn {}, attempt {}: {}; {next}", failed.turn, failed.attempt + 1, failed.classification.name);
            Shown { line: what, text: Some(failed.error.message.clone()), bad: true }
        }
        EventBody::Settled(settled) => line(settlement_view(settled)),
        EventBody::HookPoint(run) => hooks(run),
        EventBody::ToolStarted(started) => line(format!("{} as {}", started.name, started.capability)),
        EventBody::ToolCallResult(result) => tool_result(result),
        EventBody::ChildIntended(child) => {
            let what = if child.tool { "the tool " } else { "" };
            line(format!("{what}{} with {}", child.directive, value(&Value::Object(child.inputs.clone()))))
        }
        EventBody::ChildSpawned(child) => line(format!("{} with {}", child.thread_id, money(child.spend))),
        EventBody::ChildEnded(child) => line(child_ended(child)),
        EventBody::Mail(mail) => letter(&mail.letter),
        EventBody::Limit(hit) => Shown { line: limit(hit), text: None, bad: true },
        EventBody::ApprovalAsked(asked) => line(asked.what.clone()),
        EventBody::ApprovalGiven(given) => line(match given.answer {
            Approval::Approved => "approved".to_owned(),
            Approval::Refused => "refused".to_owned(),
            Approval::Suspended => "nobody to ask: waits for an answer by mail".to_owned(),
        }),
        EventBody::StateSet(set) => line(format!("{} = {}", set.key, value(&set.value))),
        EventBody::Compacted(compacted) => {
            with(format!("everything up to event {}", compacted.through), &compacted.summary)
        }
        EventBody::ArtifactStored(stored) => {
            line(format!("{} of call {}, {}", stored.sha256, stored.call_id, count(stored.bytes, "byte")))
        }
        EventBody::Recovered(recovered) => line(match recovered.cut_bytes {
            0 => "another process took over".to_owned(),
            cut => format!("another process took over and cut {} that nobody was promised", count(cut, "byte")),
        }),
        EventBody::Checkpoint(checkpoint) => line(format!("turn {}, signed by {}", checkpoint.turn, checkpoint.key_id)),
        EventBody::Ended(ended) => end_view(ended),
    }
}

/// Formats a call with its arguments on one line: `rye_file_system_read {"path":"guest.txt"}`.
pub fn call(call: &ToolCall, limit: usize) -> String {
    let input = call.malformed().map_or_else(|| call.input.to_string(), str::to_owned);
    short(&format!("{} {input}", call.name), limit)
}

/// Formats a cost: `3 turns, 1200 tokens in, 90 out, $0.0123`.
pub fn cost(cost: &Cost) -> String {
    let tokens = count(cost.input_tokens, "token");
    format!("{}, {tokens} in, {} out, {}", count(cost.turns, "turn"), cost.output_tokens, money(cost.spend))
}

/// Describes why a call has its result; `None` for an ordinary result.
pub fn why(kind: &ResultKind) -> Option<String> {
    match kind {
        // A refusal contains its own reason.
        ResultKind::Ran | ResultKind::Refused | ResultKind::Returned { error: None, .. } => None,
        ResultKind::Denied { capability } => Some(format!("denied: no grant for {capability}")),
        ResultKind::Blocked => Some("blocked by a hook".to_owned()),
        ResultKind::Skipped => Some("skipped".to_owned()),
        ResultKind::Interrupted => Some("interrupted: outcome unknown".to_owned()),
        ResultKind::Returned { error: Some(error), .. } => Some(format!("returned an error: {error}")),
        ResultKind::Incomplete { missing } => Some(format!("incomplete: {} missing", missing.join(", "))),
    }
}

fn opened_view(opened: &Opened) -> String {
    let mut parts = vec![format!("{} ({})", opened.directive, word(&opened.origin))];
    if let Some(parent) = &opened.parent {
        parts.push(format!(", child {} of {}", parent.spawn, parent.thread_id));
    }
    if let Some(tool) = opened.tool() {
        parts.push(format!(", a run of the tool {tool}"));
    } else if !opened.inputs.is_empty() {
        parts.push(format!(" with {}", value(&Value::Object(opened.inputs.clone()))));
    }
    parts.concat()
}

fn layers(ids: &[String]) -> String {
    if ids.is_empty() { "no layers".to_owned() } else { ids.join(", ") }
}

fn reply_view(reply: &CognitionOut) -> Shown {
    let (usage, stop) = (reply.usage, word(&reply.stop));
    let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
    let line = format!("turn {}: {} in, {} out, {stop}", reply.turn, count(input, "token"), usage.output);
    Shown { line, text: Some(blocks(&reply.content)).filter(|text| !text.is_empty()), bad: false }
}

fn blocks(content: &[ContentBlock]) -> String {
    let parts: Vec<String> = content
        .iter()
        .map(|block| match block {
            ContentBlock::Text { text } => text.clone(),
            ContentBlock::Thinking { text, .. } => format!("(thinks) {text}"),
            ContentBlock::ToolCall(called) => format!("→ {}", call(called, 2_000)),
            ContentBlock::Image(image) => format!("({})", image.told()),
            ContentBlock::Other { wire, value } => {
                format!("(a block of {wire}) {}", short(&value.to_string(), MAX_INLINE_CHARS))
            }
        })
        .filter(|text| !text.trim().is_empty())
        .collect();
    parts.join("\n")
}

fn message_text(message: &Message) -> String {
    match message {
        Message::User { content } | Message::Assistant { content } => blocks(content),
        Message::ToolResult { content, .. } | Message::Custom { content, .. } => content.clone(),
        Message::Bash { command, output, exit_code, .. } => format!("$ {command}\n{output}\nexit code {exit_code}"),
        Message::CompactionSummary { text } | Message::BranchSummary { text } => text.clone(),
    }
}

fn settlement_view(settled: &Settled) -> String {
    let unknown = if settled.unknown_outcome { " (outcome unknown: the call was cut off)" } else { "" };
    format!("turn {}, attempt {}: {}{unknown}", settled.turn, settled.attempt + 1, money(settled.amount))
}

fn hooks(run: &HookPointRun) -> Shown {
    let subject = run.subject.as_ref().map(|subject| format!(" of {subject}")).unwrap_or_default();
    let considered: Vec<String> = run.considered.iter().map(hook).collect();
    let bad = run.considered.iter().any(|hook| hook.verdict == HookVerdict::Failed);
    let line = format!("{}{subject}: {}", word(&run.point), or_placeholder(&considered.join(", ")));
    Shown { line, text: None, bad }
}

fn hook(considered: &HookEvaluation) -> String {
    let because = considered.because.as_ref().map(|because| format!(" ({because})")).unwrap_or_default();
    format!("{} {}{because}", considered.hook, word(&considered.verdict))
}

fn tool_result(result: &ToolCallResult) -> Shown {
    let outcome = why(&result.why).unwrap_or_else(|| if result.is_error { "error".into() } else { "ok".into() });
    let bytes = count(result.bytes, "byte");
    let line = format!("{}: {outcome}, {bytes}, {} ms", result.name, result.duration_ms);
    Shown { line, text: Some(result.content.clone()).filter(|text| !text.is_empty()), bad: result.is_error }
}

fn child_ended(child: &ChildEnded) -> String {
    format!("{} {}: {}", child.thread_id, child.status.word(), cost(&child.cost))
}

fn letter(letter: &ControlMessage) -> Shown {
    let (line, text) = match letter {
        ControlMessage::Cancel => ("cancel".to_owned(), None),
        ControlMessage::Kill => ("kill".to_owned(), None),
        ControlMessage::Handoff => ("hand over".to_owned(), None),
        ControlMessage::Steer { text } => ("steer".to_owned(), Some(text.clone())),
        ControlMessage::FollowUp { text } => ("follow-up".to_owned(), Some(text.clone())),
        ControlMessage::Approve { yes: true, .. } => ("approve".to_owned(), None),
        ControlMessage::Approve { yes: false, .. } => ("refuse".to_owned(), None),
        ControlMessage::Raise { limit, value } if limit == "spend" => {
            (format!("raise {limit} to {}", money(*value)), None)
        }
        ControlMessage::Raise { limit, value } => (format!("raise {limit} to {value}"), None),
    };
    Shown { line, text, bad: false }
}

/// Formats a limit hit: `turns_exceeded: 10 of 10`.
pub fn limit(hit: &LimitHit) -> String {
    told(&hit.limit_code, &hit.current_value, &hit.current_max)
}

fn end_view(ended: &Ended) -> Shown {
    let mut parts = vec![format!("{}: {}", ended.status.word(), cost(&ended.cost))];
    if let Some(error) = &ended.error {
        parts.push(format!("; {}: {}", error.code, short(&error.message, 400)));
    }
    if !ended.missing.is_empty() {
        parts.push(format!("; missing outputs: {}", ended.missing.join(", ")));
    }
    let outputs = ended.outputs.as_ref().map(|outputs| Value::Object(outputs.clone()).to_string());
    Shown { line: parts.concat(), text: outputs.or_else(|| ended.result.clone()), bad: ended.error.is_some() }
}

fn or_placeholder(text: &str) -> &str {
    if text.is_empty() { "nothing" } else { text }
}

fn value(value: &Value) -> String {
    short(&value.to_string(), MAX_INLINE_CHARS)
}

/// Returns the serialized name of an enum value.
fn word(of: &impl Serialize) -> String {
    match serde_json::to_value(of) {
        Ok(Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}
