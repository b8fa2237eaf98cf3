//! Commands of a chat that report on the session without changing it, such as `/plan`, `/why`, `/hooks` and `/export`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use rye_compiler::hook::HookPoint;
use rye_compiler::item::Items;
use rye_compiler::plan::RuntimePlaceholder;
use rye_compiler::plan::prompt::render_layer;
use rye_compiler::report::intake::{IntakeEntry, collect_intake};
use rye_compiler::report::render;
use rye_compiler::report::summary::PlanSummary;
use rye_compiler::semantics::money::Nanos;
use rye_compiler::world::ItemKind;
use rye_engine::event::{AcceptedInput, Event, EventBody, HookPointRun, HookVerdict, ThreadHead};
use rye_engine::message::ContentBlock;
use rye_engine::secrets::mask_secrets;
use rye_engine::session_tree::session_rows;
use rye_engine::store::{ObjectId, StoreError};
use rye_engine::thread_id::ThreadId;
use serde_json::{Value, json};

use super::export::ExportTarget;
use super::json::ChatResponse;
use super::replan::{PlanRequest, compile_current, recompile, same_model};
use super::requests::RequestHandler;
use crate::command::trust::format_commands;
use crate::command::why;
use crate::present::event::{event_view, serialized_name};
use crate::present::table::two_columns;
use crate::present::{format_count, truncate_line};

/// Maximum characters of the text of one approval request in the list of approvals.
const MAX_TEXT_CHARS: usize = 200;
/// Maximum number of answered approval requests in the list of approvals, the newest ones.
const MAX_APPROVALS: usize = 20;

/// A typed command that requests information about a session, such as `/plan` or `/why`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inquiry {
    Plan,
    /// Explains the part of the plan with this name. Without a name, explains the last message.
    Why(Option<String>),
    Hooks,
    Skills,
    Approvals,
    /// Writes the conversation to a file.
    Export(ExportTarget),
    /// The whole output of the last call, or of the last command of the user.
    Output,
    /// The text of the `n`th reply from the end, for the clipboard.
    Copy(usize),
    /// The current value that a command can change: `/model` without an argument shows the model.
    Current(CurrentValue),
}

/// A value of a session that a command shows or changes (such as `/model`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CurrentValue {
    Model,
    Mode,
    Budget,
}

impl CurrentValue {
    /// Returns the value that the command `name` changes; `None` for any other command.
    pub fn of_command(name: &str) -> Option<Self> {
        match name {
            "model" => Some(Self::Model),
            "mode" => Some(Self::Mode),
            "budget" => Some(Self::Budget),
            _ => None,
        }
    }
}

impl Inquiry {
    /// Parses a command that asks about the session; `None` if `name` is not the name of such a command.
    ///
    /// # Errors
    /// Returns the reason why the arguments are invalid.
    pub fn parse(name: &str, rest: &str) -> Option<Result<Self, String>> {
        Some(Ok(match name {
            "plan" => Self::Plan,
            "why" => Self::Why(Some(rest).filter(|rest| !matches!(*rest, "" | "last")).map(str::to_owned)),
            "hooks" => Self::Hooks,
            "skills" => Self::Skills,
            "approvals" => Self::Approvals,
            "export" => match ExportTarget::parse(rest) {
                Ok(target) => Self::Export(target),
                Err(reason) => return Some(Err(reason)),
            },
            "copy" => match rest {
                "" => Self::Copy(1),
                number => match number.parse() {
                    Ok(number @ 1..) => Self::Copy(number),
                    Ok(0) | Err(_) => {
                        return Some(Err("/copy needs the number of a reply from the end: `/copy 2`".to_owned()));
                    }
                },
            },
            _ => return None,
        }))
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Why(_) => "why",
            Self::Hooks => "hooks",
            Self::Skills => "skills",
            Self::Approvals => "approvals",
            Self::Export(_) => "export",
            Self::Copy(_) => "copy",
            Self::Output => "output",
            Self::Current(_) => "current",
        }
    }
}

impl RequestHandler {
    /// Answers a question about the session, as the response to a typed command.
    pub async fn answer_inquiry(&self, inquiry: Inquiry) -> ChatResponse {
        let name = inquiry.name();
        match self.inquire(inquiry).await {
            Ok(text) => ChatResponse::accepted(Value::Null, name, Some(Value::String(text))),
            Err(reason) => ChatResponse::refused(Value::Null, Some(name), reason),
        }
    }

    async fn inquire(&self, inquiry: Inquiry) -> Result<String, String> {
        match inquiry {
            Inquiry::Plan => self.describe_plan().await,
            Inquiry::Why(None) => self.why_last().await,
            Inquiry::Why(Some(thing)) => self.why(&thing).await,
            Inquiry::Hooks => Ok(list_hooks(&self.session_events().await?)),
            Inquiry::Skills => self.list_skills().await,
            Inquiry::Approvals => self.list_approvals().await,
            Inquiry::Export(target) => self.export(&target).await,
            Inquiry::Output => self.last_output().await,
            Inquiry::Current(value) => Ok(self.describe_current(value).await),
            Inquiry::Copy(number) => {
                let events = self.session_events().await?;
                let replies: Vec<String> = events.iter().filter_map(|event| reply_text(&event.body)).collect();
                let at = replies.len().checked_sub(number);
                let reply = at.and_then(|at| replies.get(at)).cloned();
                let count = match replies.len() {
                    0 => "no reply".to_owned(),
                    1 => "1 reply".to_owned(),
                    count => format!("{count} replies"),
                };
                reply.ok_or_else(|| format!("the session has {count}"))
            }
        }
    }

    /// States the current value, and the command that changes it.
    async fn describe_current(&self, value: CurrentValue) -> String {
        let live = self.control.started_state().await;
        match value {
            CurrentValue::Model => {
                let model = live.state.model(&live.plan);
                format!("the next prompts use the model {} of {}; `/model NAME` changes it", model.id, model.provider)
            }
            CurrentValue::Mode => {
                let mode = live.state.chat.as_ref().map(|chat| chat.mode).unwrap_or_default();
                format!("the mode is `{}`; `/mode read-only`, `/mode ask` or `/mode auto` changes it", mode.as_str())
            }
            CurrentValue::Budget => {
                let spend = Nanos::from_u64(live.plan.limits.spend);
                format!("each prompt may cost at most ${spend}; `/budget 0.20` changes this")
            }
        }
    }

    async fn describe_plan(&self) -> Result<String, String> {
        let live = self.control.started_state().await;
        let (compilation, is_current) = compile_current(&self.spaces, &live)?;
        let world = self.spaces.open().map_err(|error| error.to_string())?;
        let summary = PlanSummary::new(&world, None, &compilation).map_err(|error| error.to_string())?;
        let mut text = render::text::render(&compilation, &summary).trim_end().to_owned();
        if !is_current {
            text.push_str(
                "\nthe files have changed, and the session still uses its previous plan: \
                 /reload switches to the plan above",
            );
        }
        Ok(text)
    }

    /// Returns the plan of the session, in the format of `rye plan --format json`.
    pub(super) async fn plan_report(&self) -> Result<Value, String> {
        let live = self.control.started_state().await;
        let (compilation, _) = compile_current(&self.spaces, &live)?;
        let world = self.spaces.open().map_err(|error| error.to_string())?;
        let summary = PlanSummary::new(&world, None, &compilation).map_err(|error| error.to_string())?;
        let report = render::json::render(&compilation, Vec::new()).with_summary(summary);
        serde_json::to_value(report).map_err(|error| error.to_string())
    }

    /// Explains a part of the plan. If `part` is `None` or `last`, explains the last message.
    pub(super) async fn explain(&self, part: Option<String>) -> Result<Value, String> {
        let part = part.filter(|part| part != "last");
        self.inquire(Inquiry::Why(part)).await.map(|text| json!({"text": text}))
    }

    /// Explains the last message, with the source lines of its hooks, skill and template. If changed files have changed
    /// the plan of the session, the source lines are omitted.
    async fn why_last(&self) -> Result<String, String> {
        let events = self.session_events().await?;
        let live = self.control.started_state().await;
        let intake = match compile_current(&self.spaces, &live) {
            Ok((compilation, true)) => {
                let world = self.spaces.open().map_err(|error| error.to_string())?;
                collect_intake(&world, &compilation)
            }
            Ok((_, false)) | Err(_) => Vec::new(),
        };
        Ok(explain_last_message(&events, &intake))
    }

    async fn why(&self, thing: &str) -> Result<String, String> {
        let live = self.control.started_state().await;
        let world = self.spaces.open().map_err(|error| error.to_string())?;
        if matches!(thing, "limit.spend" | "spend") {
            let declared = recompile(&self.spaces, &live.plan, &PlanRequest::Reload(same_model(&live.plan)))?;
            let budget = live.plan.limits.spend;
            if declared.plan.limits.spend != budget {
                let text = why::explain_in_plan(&world, &declared, thing)?;
                let budget = Nanos::from_u64(budget);
                return Ok(format!(
                    "limit.spend: ${budget}, set with `/budget` or `--limit` for this session\nwithout this setting: {text}"
                ));
            }
        }
        let (compilation, _) = compile_current(&self.spaces, &live)?;
        why::explain_in_plan(&world, &compilation, thing)
    }

    async fn list_skills(&self) -> Result<String, String> {
        let live = self.control.started_state().await;
        let world = self.spaces.open().map_err(|error| error.to_string())?;
        let items = Items::new(&world);
        let skills = items.list(ItemKind::Skill);
        let list = live.plan.prompt.system.iter().find(|layer| layer.id == "skills");
        let list = list.map(|layer| render_layer(layer, &mut RuntimePlaceholder::marker)).unwrap_or_default();
        let shown = skills.chunk_by(|one, other| one.id == other.id).filter_map(<[_]>::first);
        let rows: Vec<(String, String)> = shown
            .filter_map(|entry| items.skill(&entry.id))
            .map(|skill| {
                let tokens = live.plan.model.counted_by.count(&skill.element().0);
                let is_listed = list.contains(&skill.opening_tag());
                let hidden = if is_listed { "" } else { ", not listed for the model" };
                let about = format!("{} ({}{hidden})", skill.description, format_count(tokens, "token"));
                (format!("/skill:{}", skill.file.id), about)
            })
            .collect();
        let none = "no skills found: create one in `.ai/skills/NAME/SKILL.md`";
        Ok(if rows.is_empty() { none.to_owned() } else { two_columns(&rows) })
    }

    async fn list_approvals(&self) -> Result<String, String> {
        let trust = self.spaces.trust();
        let now = trust.snapshot().map_err(|error| error.to_string())?;
        let commands = now.commands().iter().map(format_commands);
        let approved: Vec<String> = now.capabilities().iter().cloned().chain(commands).collect();
        let mut text = String::new();
        for capability in &approved {
            writeln!(text, "in this project: {capability}").ok();
        }
        if !approved.is_empty() {
            text.push_str(
                "`rye trust --revoke APPROVAL` ends one of them, `rye trust --revoke` all trust in this project\n",
            );
        }
        let events = self.session_events().await?;
        let mut asked = None;
        let mut answers = Vec::new();
        for event in &events {
            if let EventBody::ApprovalAsked(question) = &event.body {
                asked = Some(truncate_line(&question.what, MAX_TEXT_CHARS));
            }
            if let EventBody::ApprovalGiven(_) = &event.body {
                let what = asked.take().unwrap_or_default();
                answers.push(format!("{}: {what}", event_view(event).line));
            }
        }
        let skipped = answers.len().saturating_sub(MAX_APPROVALS);
        text.push_str(&answers.split_off(skipped).join("\n"));
        let none = "no approval was given in this session or for this project";
        Ok(if text.is_empty() { none.to_owned() } else { text.trim_end().to_owned() })
    }

    /// Returns the whole output of the last tool call or user command (`!ls`), whichever is later, with its name. An
    /// error if there is no output yet.
    async fn last_output(&self) -> Result<String, String> {
        let events = self.session_events().await?;
        let found = events.iter().rev().find_map(|event| match_output(&event.body));
        let (name, shown, object) = found.ok_or("no call has an output yet")?;
        let whole = match object {
            None => shown.to_owned(),
            Some(object) => {
                let id = ObjectId::parse(object).map_err(|error| error.to_string())?;
                let bytes = self.engine.threads().objects().get(&id).map_err(|error| error.to_string())?;
                String::from_utf8_lossy(&bytes).into_owned()
            }
        };
        Ok(format!("output of {name}:\n{}", mask_secrets(&whole)))
    }

    /// Returns the events of the session's threads, oldest first.
    pub(super) async fn session_events(&self) -> Result<Vec<Event>, String> {
        let live = self.control.started_state().await;
        let thread = ThreadId::parse(live.thread_id().unwrap_or_default()).map_err(|invalid| invalid.reason)?;
        let threads = self.engine.threads();
        read_events(move || {
            let mut events = Vec::new();
            for row in session_rows(&threads, &thread)? {
                events.extend(threads.transcript(&row.id)?);
            }
            Ok(events)
        })
        .await
    }

    /// Returns the events of the current conversation, oldest first. These are the events of the current thread and of
    /// each thread that it continues. A continued thread contributes only the events before the continuation. Other
    /// branches of the session are left out.
    pub(super) async fn conversation_events(&self) -> Result<Vec<Event>, String> {
        let live = self.control.started_state().await;
        let thread = ThreadId::parse(live.thread_id().unwrap_or_default()).map_err(|invalid| invalid.reason)?;
        let threads = self.engine.threads();
        read_events(move || {
            let (mut events, mut read) = (Vec::new(), BTreeSet::new());
            let mut next = Some((thread, u64::MAX));
            while let Some((id, last)) = next.filter(|(id, _)| read.insert(id.clone())) {
                let mut own = threads.transcript(&id)?;
                own.retain(|event| event.seq <= last);
                let head = ThreadHead::of(&own);
                next = head.continues.and_then(|link| Some((ThreadId::parse(&link.thread).ok()?, link.at_seq)));
                events.splice(..0, own);
            }
            Ok(events)
        })
        .await
    }
}

async fn read_events(
    read: impl FnOnce() -> Result<Vec<Event>, StoreError> + Send + 'static,
) -> Result<Vec<Event>, String> {
    let read = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?;
    read.map_err(|error| error.to_string())
}

/// Returns the name, the output and the object of a tool call or of a user command; `None` for any other event. If the
/// output was shortened, the object holds the whole output.
fn match_output(body: &EventBody) -> Option<(&str, &str, Option<&str>)> {
    if let EventBody::ToolCallResult(result) = body {
        Some((&result.name, &result.content, result.object.as_deref()))
    } else if let EventBody::ShellRan(ran) = body {
        Some((&ran.command, &ran.output, ran.object.as_deref()))
    } else {
        None
    }
}

/// Returns the text of a reply, or the partial text of an interrupted reply; `None` for any other event, and for a
/// reply without text.
pub(super) fn reply_text(body: &EventBody) -> Option<String> {
    if let EventBody::PromptEnded(ended) = body {
        return Some(ended.partial_reply.clone()).filter(|text| !text.is_empty());
    }
    let EventBody::CognitionOut(reply) = body else { return None };
    let text =
        |block: &ContentBlock| if let ContentBlock::Text { text } = block { Some(text.to_string()) } else { None };
    let texts: Vec<String> = reply.content.iter().filter_map(text).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

/// Compares the last message as it was typed with the text that the model got, and lists the causes of a difference.
/// `intake` contains the source lines of the causes.
fn explain_last_message(events: &[Event], intake: &[IntakeEntry]) -> String {
    let found =
        events.iter().enumerate().rev().find_map(|(at, event)| {
            if let EventBody::UserInput(input) = &event.body { Some((at, input)) } else { None }
        });
    let Some((at, input)) = found else { return "the session has no message yet".to_owned() };
    let mut lines = vec![format!("typed: {}", input.raw)];
    let after = events.get(at..).unwrap_or_default();
    lines.push(match (input.handled || is_returned(after, input), input.raw == input.text) {
        (true, _) if input.handled => match &input.reply {
            Some(reply) => format!("sent: nothing\nreply of the hook: {reply}"),
            None => "sent: nothing".to_owned(),
        },
        (true, _) => "sent: nothing, because the text was withdrawn or returned to the editor".to_owned(),
        (false, true) => "sent: the same text".to_owned(),
        (false, false) => format!("sent: {}", input.text),
    });
    for part in &input.expansions {
        let short: String = part.sha256.chars().take(12).collect();
        let (start, end) = (part.start, part.end);
        let name = if part.kind == ItemKind::Skill.as_str() {
            format!("/skill:{}", part.item)
        } else {
            format!("/{}", part.item.replace('/', ":"))
        };
        let place = describe_place(intake, &name).map(|place| format!("{place}, ")).unwrap_or_default();
        lines.push(format!(
            "  bytes {start} to {end} come from the {} `{}` ({place}sha256 {short})",
            part.kind, part.item
        ));
    }
    // The hooks of a message run before the message is accepted, so their events precede `UserInput`.
    let before = events.get(..at).unwrap_or_default().iter().rev();
    let own = before.take_while(|event| !matches!(event.body, EventBody::UserInput(_) | EventBody::PromptEnded(_)));
    for event in own {
        if let EventBody::HookPoint(run) = &event.body
            && run.subject.as_deref() == Some(input.id.as_str())
        {
            lines.push(format!("  {}", format_verdicts(run)));
            lines.extend(explain_fired(run, input, intake));
        }
    }
    lines.join("\n")
}

/// Returns the source line of the hook, skill or template `name` (such as `hooks.yaml:3`); `None` if no line is known.
fn describe_place(intake: &[IntakeEntry], name: &str) -> Option<String> {
    let source = intake.iter().find(|entry| entry.name == name)?.source.as_ref()?;
    Some(format!("{}:{}", source.file, source.line))
}

/// Returns a line that names the `input` hooks that fired, with their source lines. If only these hooks changed the
/// message, the line also states which bytes of the sent text differ from the typed text. Returns `None` if no `input`
/// hook fired.
fn explain_fired(run: &HookPointRun, input: &AcceptedInput, intake: &[IntakeEntry]) -> Option<String> {
    let fired = run.considered.iter().filter(|one| one.verdict == HookVerdict::Fired && one.hook != "expansion");
    let named = fired.map(|one| {
        let place = describe_place(intake, &one.hook).map(|place| format!(" ({place})")).unwrap_or_default();
        format!("`{}`{place}", one.hook)
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() || run.point != HookPoint::Input {
        return None;
    }
    let hooks = format!("the {} {}", if named.len() == 1 { "hook" } else { "hooks" }, named.join(", "));
    Some(if input.handled {
        format!("  handled by {hooks}")
    } else if !input.expansions.is_empty() {
        format!("  before the expansion: {hooks}")
    } else if input.raw == input.text {
        format!("  unchanged by {hooks}")
    } else {
        let (start, end) = changed_bytes(&input.raw, &input.text);
        format!("  bytes {start} to {end} come from {hooks}")
    })
}

/// Returns the range of bytes in `sent` that differ from `typed`: `sent` without the start and the end that both texts
/// share.
fn changed_bytes(typed: &str, sent: &str) -> (usize, usize) {
    let same = |(one, other): &(char, char)| one == other;
    let start: usize = typed.chars().zip(sent.chars()).take_while(same).map(|(one, _)| one.len_utf8()).sum();
    let (typed, rest) = (typed.get(start..).unwrap_or_default(), sent.get(start..).unwrap_or_default());
    let back = typed.chars().rev().zip(rest.chars().rev()).take_while(same).map(|(one, _)| one.len_utf8());
    (start, sent.len() - back.sum::<usize>())
}

/// Returns true if a message was not sent, because the user withdrew it or its prompt ended before its delivery.
/// `after` contains the events since the message was accepted.
fn is_returned(after: &[Event], input: &AcceptedInput) -> bool {
    after.iter().any(|event| {
        if let EventBody::Retracted(retracted) = &event.body {
            retracted.input == input.id
        } else if let EventBody::PromptEnded(ended) = &event.body {
            ended.unsent.contains(&input.text) || ended.unsent.contains(&input.raw)
        } else {
            false
        }
    })
}

/// Formats the verdicts of the hooks of a hook point, grouped: `input: shout fired; soft, whisper: condition false`.
/// Failed hooks and expansions come last, each with its reason.
fn format_verdicts(run: &HookPointRun) -> String {
    let of = |verdict: HookVerdict| {
        let hooks = run.considered.iter().filter(move |one| one.hook != "expansion" && one.verdict == verdict);
        hooks.map(|one| one.hook.as_str()).collect::<Vec<_>>().join(", ")
    };
    let mut groups = Vec::new();
    for (verdict, text) in [
        (HookVerdict::Fired, " fired"),
        (HookVerdict::False, ": condition false"),
        (HookVerdict::Passed, ": not reached"),
    ] {
        let hooks = of(verdict);
        if !hooks.is_empty() {
            groups.push(format!("{hooks}{text}"));
        }
    }
    for failed in run.considered.iter().filter(|one| one.verdict == HookVerdict::Failed) {
        let because = failed.because.as_deref().unwrap_or("no reason is recorded");
        let name = if failed.hook == "expansion" { "expansion" } else { &*format!("{} failed", failed.hook) };
        groups.push(format!("{name}: {because}"));
    }
    format!("{}: {}", serialized_name(&run.point), groups.join("; "))
}

/// Lists the hook points of the last prompt, including its intake. Hook points without hooks are omitted.
fn list_hooks(events: &[Event]) -> String {
    let started = events.iter().rposition(|event| matches!(event.body, EventBody::PromptStarted(_))).unwrap_or(0);
    let before = events.get(..started).unwrap_or_default();
    let first = before.iter().rposition(|event| matches!(event.body, EventBody::PromptEnded(_))).map_or(0, |at| at + 1);
    let mut lines = Vec::new();
    for event in events.get(first..).unwrap_or_default() {
        if let EventBody::Opened(opened) = &event.body
            && event.seq == 0
            && first > 0
        {
            // The session has continued in a new thread since the last prompt.
            lines.push(format!("thread {}", opened.thread_id));
        }
        if let EventBody::HookPoint(run) = &event.body
            && !run.considered.is_empty()
        {
            lines.push(format_verdicts(run));
        }
    }
    if lines.is_empty() { "no hook was evaluated in the last prompt".to_owned() } else { lines.join("\n") }
}
