//! Display of a transcript event: a summary line, and the full text of the event.

use crate::present::step::format_delay;
use rye_engine::event::{
    Approval, ApprovalGiven, ChatMode, ChildEnded, CognitionOut, ControlMessage, Ended, Event, EventBody,
    HookEvaluation, HookOutcome, HookPointRun, HookVerdict, Opened, PromptEnded, PromptStarted, PromptStatus, Reserved,
    ResultKind, Settled, ToolCallResult,
};
use rye_engine::machine::prompt_bounds::DENIED_IN_PROMPT;
use rye_engine::message::{ContentBlock, Message, SharedText, ToolCall};
use rye_engine::thread::Cost;
use serde::Serialize;
use serde_json::Value;

use super::{format_count, format_money, format_spend, truncate_line};

/// Maximum characters of a value within a line.
const MAX_INLINE_CHARS: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventView {
    pub line: String,
    /// The full text of the event, verbatim; `None` for an event without a text.
    pub text: Option<String>,
    /// True if the event reports a failure.
    pub bad: bool,
}

pub fn event_view(event: &Event) -> EventView {
    let line = |line: String| EventView { line, text: None, bad: false };
    let with = |line: String, text: &str| EventView { line, text: Some(text.to_owned()), bad: false };
    match &event.body {
        EventBody::Opened(opened) => line(opened_view(opened)),
        EventBody::PlanBound(bound) => line(format!("plan {}", bound.plan_id)),
        EventBody::Continues(from) => {
            let line = format!("continues the thread {} after event {}", from.thread, from.at_seq);
            EventView { line, text: from.message.clone(), bad: false }
        }
        EventBody::SystemPrompt(prompt) => with(format_layers(&prompt.layers), &prompt.text),
        EventBody::ContextInjected(context) => {
            let (before, after) = (context.before.join(", "), context.after.join(", "));
            line(format!("before: {}; after: {}", or_placeholder(&before), or_placeholder(&after)))
        }
        EventBody::CognitionIn(message) => with(serialized_name(&message.source), &message_text(&message.message)),
        EventBody::AttemptIntended(attempt) => line(format!(
            "turn {}, attempt {} to {}: at most {} in, {} out, {}",
            attempt.turn,
            attempt.attempt + 1,
            attempt.model,
            format_count(attempt.input_bound, "token"),
            format_count(attempt.max_output, "token"),
            format_money(attempt.worst_case)
        )),
        EventBody::Reserved(reserved) => line(reserved_view(reserved)),
        EventBody::CognitionOut(reply) => reply_view(reply),
        EventBody::AttemptFailed(failed) => {
            let next = match failed.retry_delay_ms {
                Some(delay) => format!("retrying in {}", format_delay(delay)),
                None => "no further attempt".to_owned(),
            };
            let what =
                format!("turn {}, attempt {}: {}; {next}", failed.turn, failed.attempt + 1, failed.classification.name);
            EventView { line: what, text: Some(failed.error.message.clone()), bad: true }
        }
        EventBody::Settled(settled) => {
            EventView { line: settlement_view(settled), text: None, bad: settled.overspent > 0 }
        }
        EventBody::HookPoint(run) => hooks(run),
        EventBody::ToolStarted(started) => line(format!("{} as {}", started.name, started.capability)),
        EventBody::ToolCallResult(result) => tool_result(result),
        EventBody::ChildIntended(child) => {
            let what = if child.tool { "the tool " } else { "" };
            line(format!("{what}{} with {}", child.directive, format_value(&Value::Object(child.inputs.clone()))))
        }
        EventBody::ChildSpawned(child) => line(format!("{} with {}", child.thread_id, format_money(child.spend))),
        EventBody::ChildEnded(child) => line(child_ended(child)),
        EventBody::Mail(mail) => control_message_view(&mail.message),
        EventBody::Limit(hit) => EventView { line: hit.describe(), text: None, bad: true },
        EventBody::ApprovalAsked(question) => line(question.what.clone()),
        EventBody::ApprovalGiven(ApprovalGiven { cannot_run: Some(reason), .. }) => {
            line(format!("no approval requested: the call cannot run: {reason}"))
        }
        EventBody::ApprovalGiven(given) => line(match given.answer {
            Approval::Approved => "approved by you".to_owned(),
            Approval::Preapproved => "approved without a request: covered by trust or an earlier approval".to_owned(),
            Approval::Refused => "denied by you".to_owned(),
            Approval::PolicyRefused => "denied by the policy for runs without a terminal".to_owned(),
            Approval::Suspended => "not answered: the thread is suspended until `rye threads approve`".to_owned(),
        }),
        EventBody::StateSet(set) => line(format!("{} = {}", set.key, format_value(&set.value))),
        EventBody::Compacted(compacted) => {
            with(format!("a summary replaces the conversation up to event {}", compacted.through), &compacted.summary)
        }
        EventBody::Recovered(recovered) => line(match recovered.cut_bytes {
            0 => "a new process continues the thread".to_owned(),
            cut => {
                format!(
                    "a new process continues the thread, without {} of an incomplete write",
                    format_count(cut, "byte")
                )
            }
        }),
        EventBody::UserInput(input) => {
            let handled = if input.handled { ", not sent" } else { "" };
            let typed = if input.raw == input.text { String::new() } else { format!("typed: {}\n", input.raw) };
            let reply = input.reply.as_ref().map(|reply| format!("\nreply: {reply}")).unwrap_or_default();
            with(format!("{} {}{handled}", input.id, input.delivery.as_str()), &format!("{typed}{}{reply}", input.text))
        }
        EventBody::Retracted(retracted) => line(retracted.input.clone()),
        EventBody::FileChanged(change) => line(format!("{} was written by {}", change.path, change.call_id)),
        EventBody::CommandRan(ran) => EventView {
            line: format!("/{} {}", ran.name, ran.args).trim_end().to_owned(),
            text: Some(ran.answer.clone()).filter(|text| !text.is_empty()),
            bad: ran.is_error,
        },
        EventBody::ShellRan(ran) => EventView {
            line: format!("{}: exit code {}, {} ms", truncate_line(&ran.command, 400), ran.exit_code, ran.duration_ms),
            text: Some(ran.output.clone()).filter(|text| !text.is_empty()),
            bad: ran.exit_code != 0,
        },
        EventBody::Named(named) => line(named.name.clone()),
        EventBody::PromptStarted(started) => line(format_prompt_start(started)),
        EventBody::PromptEnded(ended) => prompt_ended(ended),
        EventBody::Checkpoint(checkpoint) => line(format!("turn {}, signed by {}", checkpoint.turn, checkpoint.key_id)),
        EventBody::Ended(ended) => end_view(ended),
    }
}

fn format_prompt_start(started: &PromptStarted) -> String {
    let mode = if started.mode == ChatMode::Ask { String::new() } else { format!(", {}", started.mode.as_str()) };
    let granted = started.grants.as_ref().map(|grants| {
        let patterns: Vec<&str> = grants.iter().map(|grant| grant.pattern.as_str()).collect();
        format!(", only {}", if patterns.is_empty() { "text".to_owned() } else { patterns.join(" ") })
    });
    let capped =
        if started.capped { format!(", at most {}", format_money(started.limits.spend)) } else { String::new() };
    format!("prompt {}{mode}{}{capped}", started.prompt, granted.unwrap_or_default())
}

/// Formats a call with its arguments on one line of at most `limit` characters:
/// `rye_file_system_read {"path":"guest.txt"}`.
pub fn format_call(call: &ToolCall, limit: usize) -> String {
    let input = call.malformed().map_or_else(|| call.input.to_string(), str::to_owned);
    truncate_line(&format!("{} {input}", call.name), limit)
}

/// Formats a cost: `3 turns, 1200 tokens in, 90 out, $0.0123`.
pub fn format_cost(cost: &Cost) -> String {
    let tokens = format_count(cost.input_tokens, "token");
    format!(
        "{}, {tokens} in, {} out, {}",
        format_count(cost.turns, "turn"),
        cost.output_tokens,
        format_spend(cost.spend, cost.unpriced)
    )
}

/// Returns the messages that the hooks of a hook point add to a chat and show to the user.
pub fn shown_messages(run: &HookPointRun) -> impl Iterator<Item = &str> {
    let messages = if let HookOutcome::Prepared { messages, .. } = &run.answer { messages.as_slice() } else { &[] };
    messages.iter().filter_map(|message| {
        if let Message::Custom { content, display: true, .. } = message { Some(content.as_str()) } else { None }
    })
}

/// Returns the reason why a call failed or did not run. `None` if the call succeeded, or if the result itself contains
/// the reason.
pub fn result_reason(result: &ToolCallResult) -> Option<String> {
    match &result.why {
        // A refusal contains its own reason.
        ResultKind::Ran | ResultKind::Refused | ResultKind::Returned { error: None, .. } => None,
        ResultKind::Denied { capability } if result.content.ends_with(DENIED_IN_PROMPT) => {
            Some(format!("denied: this prompt runs without {capability}"))
        }
        ResultKind::Denied { capability } => Some(format!("denied: no grant for {capability}")),
        ResultKind::Unapproved { answer, .. } => {
            let who = if *answer == Approval::Refused { "you" } else { "the policy for runs without a terminal" };
            Some(format!("denied by {who}"))
        }
        ResultKind::Blocked => Some("blocked by a hook".to_owned()),
        ResultKind::Skipped => Some("skipped".to_owned()),
        ResultKind::Interrupted => Some("interrupted: outcome unknown".to_owned()),
        ResultKind::Returned { error: Some(error), .. } => Some(format!("returned an error: {error}")),
        ResultKind::Incomplete { missing, invalid, .. } => {
            // The text of the result lists each problem with the path of its value.
            let problems = result.content.strip_prefix("not returned: ").and_then(|text| text.rsplit_once("; call "));
            if let Some((problems, _)) = problems {
                return Some(format!("incomplete: {problems}"));
            }
            let named = |names: &[String], what: &str| format!("{} {what}", names.join(", "));
            let parts = [(missing, "missing"), (invalid, "invalid")].into_iter().filter(|(names, _)| !names.is_empty());
            let parts: Vec<String> = parts.map(|(names, what)| named(names, what)).collect();
            Some(format!("incomplete: {}", parts.join("; ")))
        }
    }
}

/// Returns the explanations of the accesses that the sandbox refused. Each explanation names the grant that would allow
/// the access. Only the last three lines of a program's output are searched. The first line of a failed call is
/// skipped, because it is printed anyway.
pub fn sandbox_refusals(result: &ToolCallResult) -> impl Iterator<Item = &str> {
    let lines = result.content.trim_end().lines().skip(usize::from(result.is_error));
    let lines: Vec<&str> = lines.collect();
    let last = lines.into_iter().rev().take(3).filter_map(|line| line.strip_prefix('[')?.strip_suffix(']'));
    last.filter(|text| text.starts_with("blocked by the sandbox: "))
}

fn reserved_view(reserved: &Reserved) -> String {
    format!("turn {}, attempt {}: {}", reserved.turn, reserved.attempt + 1, format_money(reserved.amount))
}

fn opened_view(opened: &Opened) -> String {
    let mut parts = vec![format!("{} ({})", opened.directive, serialized_name(&opened.origin))];
    if let Some(parent) = &opened.parent {
        parts.push(format!(", child {} of {}", parent.spawn, parent.thread_id));
    }
    if let Some(tool) = opened.tool() {
        parts.push(format!(", a run of the tool {tool}"));
    } else if !opened.inputs.is_empty() {
        parts.push(format!(" with {}", format_value(&Value::Object(opened.inputs.clone()))));
    }
    parts.concat()
}

fn format_layers(ids: &[String]) -> String {
    if ids.is_empty() { "no layers".to_owned() } else { ids.join(", ") }
}

fn reply_view(reply: &CognitionOut) -> EventView {
    let (usage, stop) = (reply.usage, serialized_name(&reply.stop));
    let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
    let unread = if reply.unread.is_empty() { String::new() } else { format!(", unread: {}", reply.unread.join(", ")) };
    let line =
        format!("turn {}: {} in, {} out, {stop}{unread}", reply.turn, format_count(input, "token"), usage.output);
    EventView { line, text: Some(format_blocks(&reply.content)).filter(|text| !text.is_empty()), bad: false }
}

fn format_blocks(content: &[ContentBlock]) -> String {
    let parts: Vec<String> = content
        .iter()
        .map(|block| match block {
            ContentBlock::Text { text } => text.to_string(),
            ContentBlock::Thinking { text, .. } => format!("(thinks) {text}"),
            ContentBlock::ToolCall(called) => format!("→ {}", format_call(called, 2_000)),
            ContentBlock::Image(image) => format!("({})", image.describe()),
            ContentBlock::Other { wire, value } => {
                format!("(unknown {wire} content block) {}", truncate_line(&value.to_string(), MAX_INLINE_CHARS))
            }
        })
        .filter(|text| !text.trim().is_empty())
        .collect();
    parts.join("\n")
}

fn message_text(message: &Message) -> String {
    match message {
        Message::User { content } | Message::Assistant { content } => format_blocks(content),
        Message::ToolResult { content, .. } | Message::Custom { content, .. } => content.clone(),
        Message::Bash { command, output, exit_code, .. } => format!("$ {command}\n{output}\nexit code {exit_code}"),
        Message::CompactionSummary { text } | Message::BranchSummary { text } => text.clone(),
    }
}

/// Returns a note if the outcome of a settled call is unknown, or if the call cost more than its reservation; empty
/// otherwise.
pub fn settlement_note(settled: &Settled) -> String {
    let unknown =
        if settled.unknown_outcome { " (outcome unknown: the provider reported no usable final usage)" } else { "" };
    if settled.overspent == 0 {
        return unknown.to_owned();
    }
    let more = format_money(settled.overspent);
    format!("{unknown} (overspent: the provider counts {more} more than was reserved)")
}

fn settlement_view(settled: &Settled) -> String {
    let note = settlement_note(settled);
    format!("turn {}, attempt {}: {}{note}", settled.turn, settled.attempt + 1, format_money(settled.amount))
}

fn hooks(run: &HookPointRun) -> EventView {
    let subject = run.subject.as_ref().map(|subject| format!(" of {subject}")).unwrap_or_default();
    let considered: Vec<String> = run.considered.iter().map(format_hook).collect();
    let bad = run.considered.iter().any(|hook| hook.verdict == HookVerdict::Failed);
    let line = format!("{}{subject}: {}", serialized_name(&run.point), or_placeholder(&considered.join(", ")));
    EventView { line, text: None, bad }
}

fn format_hook(considered: &HookEvaluation) -> String {
    let because = considered.because.as_ref().map(|because| format!(" ({because})")).unwrap_or_default();
    format!("{} {}{because}", considered.hook, serialized_name(&considered.verdict))
}

fn tool_result(result: &ToolCallResult) -> EventView {
    let outcome = result_reason(result).unwrap_or_else(|| if result.is_error { "error".into() } else { "ok".into() });
    let bytes = format_count(result.bytes, "byte");
    let line = format!("{}: {outcome}, {bytes}, {} ms", result.name, result.duration_ms);
    EventView { line, text: Some(result.content.clone()).filter(|text| !text.is_empty()), bad: result.is_error }
}

fn prompt_ended(ended: &PromptEnded) -> EventView {
    let line = format!("prompt {} {}: {}", ended.prompt, serialized_name(&ended.status), format_cost(&ended.cost));
    let text = ended.code.as_ref().map(|code| {
        let message = ended.message.as_deref().unwrap_or_default();
        if message.starts_with(code.as_str()) { message.to_owned() } else { format!("{code}: {message}") }
    });
    EventView { line, bad: text.is_some(), text }
}

fn child_ended(child: &ChildEnded) -> String {
    format!("{} {}: {}", child.thread_id, child.status.as_str(), format_cost(&child.cost))
}

fn control_message_view(message: &ControlMessage) -> EventView {
    let (line, text) = match message {
        ControlMessage::Cancel => ("cancel".to_owned(), None),
        ControlMessage::Kill => ("kill".to_owned(), None),
        ControlMessage::Handoff => ("hand over".to_owned(), None),
        ControlMessage::Steer { text } => ("steer".to_owned(), Some(text.clone())),
        ControlMessage::FollowUp { text } => ("follow-up".to_owned(), Some(text.clone())),
        ControlMessage::Submit { input, delivery } => {
            (format!("message of the user ({})", delivery.as_str()), Some(input.text.clone()))
        }
        ControlMessage::Retract { input } => {
            (input.as_ref().map_or_else(|| "withdraw all".to_owned(), |id| format!("withdraw {id}")), None)
        }
        ControlMessage::Compact { focus } => ("compact".to_owned(), focus.clone()),
        ControlMessage::Replan { plan } => (format!("continue with the plan {plan}"), None),
        ControlMessage::Fork { prompt, thread: None } => (format!("continue from before prompt {prompt}"), None),
        ControlMessage::Fork { prompt, thread: Some(thread) } => {
            (format!("continue from before prompt {prompt} of {thread}"), None)
        }
        ControlMessage::Shell { command, .. } => ("run a command".to_owned(), Some(command.clone())),
        ControlMessage::Name { name } => (format!("name {name}"), None),
        ControlMessage::Mode { mode } => (format!("mode {}", mode.as_str()), None),
        ControlMessage::Interrupt => ("interrupt".to_owned(), None),
        ControlMessage::Close => ("close".to_owned(), None),
        ControlMessage::Approve { yes: true, .. } => ("approve".to_owned(), None),
        ControlMessage::Approve { yes: false, .. } => ("refuse".to_owned(), None),
        ControlMessage::Raise { limit, value } if limit == "spend" => {
            (format!("raise {limit} to {}", format_money(*value)), None)
        }
        ControlMessage::Raise { limit, value } => (format!("raise {limit} to {value}"), None),
        ControlMessage::Unreadable { reason } => (format!("unreadable control message: {reason}"), None),
    };
    EventView { line, text, bad: matches!(message, ControlMessage::Unreadable { .. }) }
}

/// Returns the next step for the user after a prompt of a chat that ended at a limit or in an error; `None` for any
/// other prompt. `is_capped` is true if the user typed the `spend` limit of the prompt before its text (`$0.20 TEXT`).
pub fn prompt_end_help(ended: &PromptEnded, is_capped: bool) -> Option<String> {
    let limit = ended.code.as_deref().and_then(|code| code.strip_suffix("_exceeded")).unwrap_or("NAME");
    let is_of_session = ended.message.as_deref().is_some_and(|message| message.contains(" of the session"));
    let help = match ended.status {
        PromptStatus::Limit if is_of_session => {
            // A fork and a resumed session keep the used amounts.
            return Some(format!(
                "this session accepts no more prompts: start a new session; `--session-limit {limit}=N` sets its limit"
            ));
        }
        PromptStatus::Limit if limit != "spend" => {
            "send `continue`, or another text: each prompt starts with its whole limits"
        }
        PromptStatus::Limit if is_capped => {
            "type a higher amount before the text; `/preview TEXT` shows the highest price of a request"
        }
        PromptStatus::Limit => "`/budget DOLLARS confirm` sets a higher limit for the next prompts",
        PromptStatus::Error => "`/retry` sends the prompt again",
        PromptStatus::Done | PromptStatus::Interrupted => return None,
    };
    Some(help.to_owned())
}

fn end_view(ended: &Ended) -> EventView {
    let mut parts = vec![format!("{}: {}", ended.status.as_str(), format_cost(&ended.cost))];
    if let Some(error) = &ended.error {
        parts.push(format!("; {}: {}", error.code, truncate_line(&error.message, 400)));
    }
    if !ended.missing.is_empty() {
        parts.push(format!("; missing outputs: {}", ended.missing.join(", ")));
    }
    let outputs = ended.outputs.as_ref().map(|outputs| Value::Object(outputs.clone()).to_string());
    EventView {
        line: parts.concat(),
        text: outputs.or_else(|| ended.result.clone().map(SharedText::into_string)),
        bad: ended.error.is_some(),
    }
}

fn or_placeholder(text: &str) -> &str {
    if text.is_empty() { "nothing" } else { text }
}

fn format_value(value: &Value) -> String {
    truncate_line(&value.to_string(), MAX_INLINE_CHARS)
}

/// Returns the serialized name of an enum value.
pub fn serialized_name(of: &impl Serialize) -> String {
    match serde_json::to_value(of) {
        Ok(Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}
