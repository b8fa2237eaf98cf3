//! Renders an event for a snapshot, without values that differ between machines. Reservations, estimates, sizes and
//! times depend on the length of a folder's name and are omitted; the total cost is rendered at the end.

use rye_engine::event::{AttemptFailed, Ended, Event, EventBody, HookOutcome, HookPointRun, HookVerdict, ResultKind};
use rye_engine::message::{ContentBlock, Message};
use serde::Serialize;
use serde_json::Value;

/// Returns the lines that a snapshot shows for an event; none for events that only the ledger needs. If `whole` is
/// true, the texts that are sent are shown in full; otherwise only their layers or sources.
pub fn format_event(event: &Event, whole: bool) -> Vec<String> {
    let name = event.body.reader_name();
    let line = |text: String| vec![format!("{name}  {text}")];
    match &event.body {
        EventBody::Opened(opened) => {
            let sets: Vec<String> = opened.grants.iter().map(|set| patterns(set)).collect();
            let above = opened.parent.as_ref().map_or(String::new(), |p| format!(", below {}", p.thread_id));
            line(format!(
                "{} with {}{above}; may {}",
                opened.directive,
                Value::Object(opened.inputs.clone()),
                sets.join(" and ")
            ))
        }
        EventBody::SystemPrompt(prompt) if whole => texts(name, &prompt.text),
        EventBody::SystemPrompt(prompt) => line(prompt.layers.join(", ")),
        EventBody::ContextInjected(context) => {
            line(format!("{} | {}", context.before.join(", "), context.after.join(", ")))
        }
        EventBody::CognitionIn(input) if whole => texts(name, &content(&input.message)),
        EventBody::CognitionIn(input) => line(word(&input.source)),
        EventBody::CognitionOut(reply) => {
            reply.content.iter().filter_map(block).map(|text| format!("{name}  {text}")).collect()
        }
        EventBody::AttemptFailed(failed) => line(failure(failed)),
        EventBody::HookPoint(run) => hooks(run),
        EventBody::ToolStarted(started) => line(format!("{} as {}", started.name, started.capability)),
        EventBody::ToolCallResult(result) => {
            let kind = match &result.why {
                ResultKind::Ran if result.is_error => "error".to_owned(),
                ResultKind::Ran => "ok".to_owned(),
                ResultKind::Returned { outputs, .. } => format!("returned {}", Value::Object(outputs.clone())),
                other @ (ResultKind::Denied { .. }
                | ResultKind::Unapproved { .. }
                | ResultKind::Blocked
                | ResultKind::Refused
                | ResultKind::Skipped
                | ResultKind::Interrupted
                | ResultKind::Incomplete { .. }) => word(other),
            };
            let mut lines = vec![format!("{name}  {} {kind}", result.name)];
            lines.extend(result.content.lines().map(|line| format!("  | {line}").trim_end().to_owned()));
            lines
        }
        EventBody::ChildIntended(child) => {
            line(format!("{} with {}", child.directive, Value::Object(child.inputs.clone())))
        }
        EventBody::ChildSpawned(child) => line(child.thread_id.clone()),
        EventBody::ChildEnded(child) => line(format!("{} {}", child.thread_id, child.status.as_str())),
        EventBody::Mail(mail) => line(word(&mail.message)),
        EventBody::Limit(hit) => line(hit.describe()),
        EventBody::ApprovalAsked(question) => line(question.what.clone()),
        EventBody::ApprovalGiven(given) => line(word(&given.answer)),
        EventBody::StateSet(set) => line(format!("{} = {}", set.key, set.value)),
        EventBody::FileChanged(change) => line(change.path.clone()),
        EventBody::CommandRan(ran) => line(format!("/{} {}: {}", ran.name, ran.args, ran.answer)),
        EventBody::ShellRan(ran) => line(format!("{} {}", ran.command, ran.exit_code)),
        EventBody::UserInput(input) => {
            line(format!("{}{}", word(&input.delivery), if input.handled { ", handled" } else { "" }))
        }
        EventBody::PromptStarted(started) => line(started.prompt.to_string()),
        EventBody::PromptEnded(ended) => line(format!("{} {}", ended.prompt, word(&ended.status))),
        EventBody::Compacted(compacted) => line(compacted.summary.clone()),
        EventBody::Continues(continues) => line(continues.thread.clone()),
        EventBody::Ended(ended) => ending(name, ended),
        EventBody::PlanBound(_)
        | EventBody::AttemptIntended(_)
        | EventBody::Reserved(_)
        | EventBody::Settled(_)
        | EventBody::Recovered(_)
        | EventBody::Retracted(_)
        | EventBody::Named(_)
        | EventBody::Checkpoint(_) => Vec::new(),
    }
}

fn patterns(set: &[rye_compiler::plan::Grant]) -> String {
    let patterns: Vec<&str> = set.iter().map(|grant| grant.pattern.as_str()).collect();
    if patterns.is_empty() { "nothing".to_owned() } else { patterns.join(", ") }
}

fn texts(name: &str, text: &str) -> Vec<String> {
    let mut lines = vec![name.to_owned()];
    lines.extend(text.lines().map(|line| format!("  | {line}").trim_end().to_owned()));
    lines
}

fn content(message: &Message) -> String {
    match message {
        Message::User { content } | Message::Assistant { content } => {
            content.iter().filter_map(block).collect::<Vec<_>>().join("\n")
        }
        Message::ToolResult { content, .. } | Message::Custom { content, .. } => content.clone(),
        Message::Bash { command, output, .. } => format!("{command}\n{output}"),
        Message::CompactionSummary { text } | Message::BranchSummary { text } => text.clone(),
    }
}

fn block(block: &ContentBlock) -> Option<String> {
    match block {
        ContentBlock::Text { text } => Some(text.to_string()),
        ContentBlock::ToolCall(call) => Some(format!("calls {} {}", call.name, call.input)),
        ContentBlock::Thinking { .. } | ContentBlock::Image { .. } | ContentBlock::Other { .. } => None,
    }
}

fn failure(failed: &AttemptFailed) -> String {
    let then = if failed.retry_delay_ms.is_some() { "again" } else { "not again" };
    format!("{}: {}, {then}", failed.classification.name, failed.error.message)
}

/// Renders every evaluated hook and the result of the hook point.
fn hooks(run: &HookPointRun) -> Vec<String> {
    let mut lines: Vec<String> = run
        .considered
        .iter()
        .map(|hook| {
            let verdict = match hook.verdict {
                HookVerdict::Fired => "fired",
                HookVerdict::False => "false",
                HookVerdict::Passed => "passed over",
                HookVerdict::Failed => "failed",
            };
            let because = hook.because.as_ref().map_or(String::new(), |why| format!(": {why}"));
            format!("{}  {} {verdict}{because}", word(&run.point), hook.hook)
        })
        .collect();
    let collected = matches!(&run.answer, HookOutcome::Collected { texts, .. } if texts.is_empty());
    if run.answer != HookOutcome::None && !collected {
        lines.push(format!("{}  returned {}", word(&run.point), word(&run.answer)));
    }
    lines
}

fn ending(name: &str, ended: &Ended) -> Vec<String> {
    let cost = &ended.cost;
    let spend = rye_compiler::semantics::money::Nanos::from_u64(cost.spend);
    let mut lines = vec![format!(
        "{name}  {} turns, {} tokens in, {} out, ${spend}",
        cost.turns, cost.input_tokens, cost.output_tokens
    )];
    lines.extend(ended.outputs.iter().flatten().map(|(key, value)| format!("  {key} = {value}")));
    if ended.outputs.is_none() {
        lines.extend(ended.result.iter().map(|text| format!("  result: {text}")));
    }
    lines.extend(ended.error.iter().map(|error| format!("  error: {}: {}", error.code, error.message)));
    lines
}

/// Returns a value's serialized name.
fn word(of: &impl Serialize) -> String {
    match serde_json::to_value(of) {
        Ok(Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    }
}
