//! Human and plain output of a run: the model's text on stdout as it is streamed, progress on stderr, outputs at the
//! end. A text that was streamed is not printed again as the result.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use rye_engine::engine::Engine;
use rye_engine::event::{
    AttemptFailed, AttemptIntended, CognitionOut, ControlMessage, Event, EventBody, Opened, PromptEnded, ResultKind,
    Settled, ThreadOrigin, ToolCallResult,
};
use rye_engine::exchange::{Delta, Usage};
use rye_engine::live::StreamEvent;
use rye_engine::message::{ContentBlock, SharedText, calls_in};
use rye_engine::thread::RunError;
use rye_engine::thread_id::ThreadId;
use sha2::{Digest, Sha256};

use super::ask::has_terminal;
use super::ending::RunEnd;
use super::progress::Progress;
use super::renderer::Render;
pub use super::stdout::CapturedOutput;
use super::stdout::Stdout;
use crate::options::Format;
use crate::present::event::{
    EventView, event_view, format_call, prompt_end_help, result_reason, sandbox_refusals, settlement_note,
};
use crate::present::step::format_delay;
use crate::present::wrap::fold_for_stderr;
use crate::present::{BOLD, DIM, color_style, format_count, format_spend, truncate_line};
use crate::report::{Printer, mask_controls, printable};
use crate::workspace::Spaces;

mod commands;
mod compaction;
mod end;
mod file_changes;
mod limit;

use self::end::{EndedParents, child_failure, error_line};
use self::file_changes::FileChanges;

/// Maximum length of call arguments and error reasons, in characters.
const MAX_DETAIL_CHARS: usize = 100;
/// Maximum length of the error message of a call or a child, in characters.
const MAX_ERROR_CHARS: usize = 400;
/// Duration after which a running call is printed before it ends.
const SLOW_CALL: Duration = Duration::from_secs(2);

#[expect(clippy::struct_excessive_bools, reason = "three options of the output, and two facts of the run")]
pub struct HumanRenderer {
    format: Format,
    /// True to print only results and errors.
    quiet: bool,
    /// True to print every event.
    events: bool,
    /// Thread whose text is printed: the first thread, then its continuation; `None` until the first thread starts.
    main: Option<ThreadId>,
    /// The lowest attempt number in the current prompt, by thread. After a failed prompt, the attempt numbers continue
    /// in the next prompt.
    first_attempts: BTreeMap<ThreadId, u32>,
    /// The printed part of the reply that the current attempt streams.
    streamed: PrintedText,
    /// Text of the last reply, if the reply has been printed; otherwise `None`.
    printed_result: Option<SharedText>,
    out: Stdout,
    /// Buffered lines for stderr.
    lines: String,
    calls: BTreeMap<(ThreadId, usize), PendingCall>,
    missing: Vec<String>,
    /// A line about a limit that the main thread has reached. The line is printed unless the thread ends with the error
    /// of this limit.
    unprinted_limit: Option<String>,
    /// Threads whose last attempt failed because of a missing key.
    missing_key: BTreeSet<ThreadId>,
    /// Reservations of the current attempts, in nano-dollars.
    reserved: BTreeMap<ThreadId, u64>,
    /// Nano-dollars that were charged at the worst case, for calls whose usage the provider did not report.
    worst_case: u64,
    /// Assumed cost, in nano-dollars, of the calls of the current prompt whose final usage the provider did not report.
    unreported: u64,
    /// True while the main thread of a chat has a prompt.
    is_prompt_open: bool,
    /// True if the prompt has a `spend` limit of its own.
    is_capped: bool,
    /// True if the current prompt or run calls a model without a price.
    unpriced: bool,
    compactions: compaction::Compactions,
    /// Errors of ended threads, by id.
    errors: BTreeMap<String, RunError>,
    parents: EndedParents,
    progress: Option<Progress>,
    is_chat: bool,
    /// The folders of the run; `None` if the renderer looks up no providers.
    spaces: Option<Spaces>,
    /// The changes that file tools make; `None` if they are not shown.
    file_changes: Option<FileChanges>,
}

/// Returns true for a control message that the chat sends for its user.
fn is_own_input(message: &ControlMessage) -> bool {
    matches!(
        message,
        ControlMessage::Submit { .. }
            | ControlMessage::Retract { .. }
            | ControlMessage::Compact { .. }
            | ControlMessage::Replan { .. }
            | ControlMessage::Fork { .. }
            | ControlMessage::Name { .. }
            | ControlMessage::Mode { .. }
            | ControlMessage::Shell { .. }
            | ControlMessage::FollowUp { .. }
            | ControlMessage::Steer { .. }
            | ControlMessage::Interrupt
            | ControlMessage::Close
    )
}

/// A tool call without a result yet.
struct PendingCall {
    shown: String,
    started: Option<Instant>,
    named: bool,
}

impl HumanRenderer {
    /// Creates the renderer of a run or, if `is_chat` is true, of a chat. `events` is true to print every event.
    pub fn new(report: &Printer, events: bool, is_chat: bool) -> Self {
        Self {
            format: report.format(),
            quiet: report.is_quiet(),
            events,
            main: None,
            first_attempts: BTreeMap::new(),
            streamed: PrintedText::default(),
            printed_result: None,
            out: Stdout::default(),
            lines: String::new(),
            calls: BTreeMap::new(),
            missing: Vec::new(),
            unprinted_limit: None,
            missing_key: BTreeSet::new(),
            reserved: BTreeMap::new(),
            worst_case: 0,
            unreported: 0,
            is_prompt_open: false,
            is_capped: false,
            unpriced: false,
            compactions: compaction::Compactions::default(),
            errors: BTreeMap::new(),
            parents: EndedParents::default(),
            progress: Progress::for_terminal(report, is_chat),
            is_chat,
            spaces: None,
            file_changes: None,
        }
    }

    /// Creates the renderer of a chat in a terminal. The output is captured, so that the terminal of the chat can print
    /// it.
    pub fn captured(report: &Printer, events: bool) -> Self {
        Self { out: Stdout::captured(), progress: None, ..Self::new(report, events, true) }
    }

    /// Sets the engine. A terminal shows the outputs of its running programs, and the files that its tools change.
    #[must_use]
    pub fn with_engine(mut self, engine: &Engine) -> Self {
        if let Some(progress) = &mut self.progress {
            progress.show_outputs(engine.running_outputs().clone());
        }
        let is_shown = self.progress.is_some() || self.out.is_captured();
        self.file_changes = is_shown.then(|| FileChanges::new(engine.threads().objects().clone()));
        self
    }

    /// Sets the folders in which providers are looked up for the help about a missing key.
    #[must_use]
    pub fn with_spaces(self, spaces: &Spaces) -> Self {
        Self { spaces: Some(spaces.clone()), ..self }
    }

    /// Returns the captured output and clears it.
    pub fn take_output(&mut self) -> Vec<CapturedOutput> {
        self.flush();
        self.out.take_captured()
    }

    /// Returns the thread whose text is printed; `None` before the first event.
    pub fn main_thread(&self) -> Option<&ThreadId> {
        self.main.as_ref()
    }

    /// Adds a line about a thread to the stderr buffer.
    fn thread_line(&mut self, thread: &ThreadId, style: Style, text: &str) {
        if self.quiet {
            return;
        }
        self.hide_progress();
        self.out.end_line();
        let own = self.main.as_ref() == Some(thread);
        let whose = if own { String::new() } else { format!("{DIM}[{thread}]{DIM:#} ") };
        // Writing to a string cannot fail.
        let line = format!("{whose}{style}{}{style:#}", printable(text));
        writeln!(self.lines, "{}", fold_for_stderr(&line)).ok();
    }

    /// Prints text of the model. Buffered lines are printed first.
    fn text(&mut self, text: &str) {
        self.hide_progress();
        self.flush();
        self.out.text(text);
    }

    fn hide_progress(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress.hide();
        }
    }

    fn event(&mut self, thread: &ThreadId, event: &Event) {
        if let Some(progress) = &mut self.progress {
            progress.event(thread, event);
        }
        if let Some(changes) = &mut self.file_changes {
            changes.follow(thread, &event.body);
        }
        if let EventBody::Opened(opened) = &event.body {
            self.opened(thread, opened);
            self.parents.insert(thread, opened);
        }
        // If a thread is resumed, no event opens it, so the thread of the first event is the main thread.
        self.main.get_or_insert_with(|| thread.clone());
        self.follow_compaction(thread, &event.body);
        self.print_limit(thread, &event.body);
        if self.events {
            let what = event_view(event);
            self.thread_line(thread, DIM, &format!("{:>4} {}  {}", event.seq, event.body.reader_name(), what.line));
        }
        let red = color_style(AnsiColor::Red);
        match &event.body {
            EventBody::CognitionOut(reply) => {
                self.record_reply(thread, reply);
            }
            EventBody::AttemptFailed(failed) => self.failed(thread, failed),
            EventBody::AttemptIntended(attempt) => self.attempt_intended(thread, attempt),
            EventBody::PromptStarted(started) => {
                self.is_capped = started.capped;
                if !std::mem::replace(&mut self.is_prompt_open, true) {
                    self.print_unreported(thread);
                }
                self.first_attempts.remove(thread);
            }
            EventBody::UserInput(input) => self.user_input(thread, input),
            EventBody::Reserved(reserved) => {
                self.reserved.insert(thread.clone(), reserved.amount);
            }
            EventBody::Settled(settled) if self.is_chat && settled.overspent == 0 => self.settled(thread, settled),
            // Not printed: an attempt that failed without cost was already printed as a failure.
            EventBody::Settled(settled) if settled.amount == 0 && settled.usage == Usage::default() => {}
            EventBody::Settled(settled) => {
                let reserved = self.reserved.remove(thread);
                // `reserved` is `None` if the attempt started in an earlier process, before a recovery.
                if settled.unknown_outcome && reserved.is_none_or(|most| settled.amount >= most) {
                    self.worst_case = self.worst_case.saturating_add(settled.amount);
                }
                let style = if settled.overspent > 0 { red } else { DIM };
                self.thread_line(thread, style, &format_settling(settled, self.unpriced));
            }
            EventBody::ToolStarted(started) => {
                if let Some(call) = self.calls.get_mut(&(thread.clone(), started.index)) {
                    call.started = Some(Instant::now());
                }
            }
            EventBody::ToolCallResult(result) => self.tool(thread, result),
            EventBody::HookPoint(run) => self.hooks(thread, run),
            EventBody::ChildSpawned(child) => {
                self.thread_line(thread, Style::new(), &format!("child {}", child.thread_id));
            }
            EventBody::ChildEnded(child) => {
                self.child_ended(thread, child);
            }
            EventBody::Limit(hit) => self.limit_hit(thread, hit),
            EventBody::Ended(ended) => self.thread_ended(thread, ended),
            // Not printed: the last line of the run names the status.
            EventBody::Mail(mail)
                if self.main.as_ref() == Some(thread)
                    && matches!(mail.message, ControlMessage::Cancel | ControlMessage::Kill) => {}
            // Not printed: the user typed the message or left the chat.
            EventBody::Mail(mail) if self.is_chat && is_own_input(&mail.message) => {}
            // Not printed: recovery cut no bytes, and the user reopened the session.
            EventBody::Recovered(recovered) if self.is_chat && recovered.cut_bytes == 0 => {}
            EventBody::Continues(from) if self.is_chat => self.continues(thread, from),
            EventBody::Compacted(compacted) => self.compacted(thread, compacted),
            EventBody::Continues(_) | EventBody::Recovered(_) | EventBody::Mail(_) => {
                if !self.events {
                    self.thread_line(thread, DIM, &event_view(event).line);
                }
            }
            EventBody::PromptEnded(ended) => self.prompt_ended(thread, ended, &event_view(event)),
            EventBody::CommandRan(ran) => self.command(thread, ran),
            EventBody::ShellRan(ran) => self.shell(thread, ran, &event_view(event).line),
            // At a terminal, the question itself is printed.
            EventBody::ApprovalAsked(question) if !has_terminal(self.format) => {
                self.thread_line(thread, BOLD, &format!("requests approval: {}", question.what));
            }
            EventBody::ApprovalGiven(_) => self.thread_line(thread, DIM, &event_view(event).line),
            EventBody::ApprovalAsked(_)
            | EventBody::Opened(_)
            | EventBody::PlanBound(_)
            | EventBody::SystemPrompt(_)
            | EventBody::FileChanged(_)
            | EventBody::ContextInjected(_)
            | EventBody::CognitionIn(_)
            | EventBody::ChildIntended(_)
            | EventBody::StateSet(_)
            | EventBody::Retracted(_)
            | EventBody::Named(_)
            | EventBody::Checkpoint(_) => {}
        }
    }

    /// Prints the end of a prompt, and the messages of the user that were not sent during the prompt.
    fn prompt_ended(&mut self, thread: &ThreadId, ended: &PromptEnded, view: &EventView) {
        // The terminal of a chat returns the unsent messages to its editor.
        let unsent = if self.out.is_captured() { &[][..] } else { &ended.unsent };
        for text in unsent {
            let line = format!("not sent: {}", truncate_line(text, MAX_DETAIL_CHARS));
            self.thread_line(thread, color_style(AnsiColor::Yellow), &line);
        }
        self.thread_line(thread, DIM, &view.line);
        self.print_unreported(thread);
        self.is_prompt_open = false;
        if let Some(error) = &view.text {
            self.thread_line(thread, color_style(AnsiColor::Red), &format!("  {error}"));
            if let Some(help) = prompt_end_help(ended, self.is_capped) {
                self.thread_line(thread, Style::new(), &format!("  help: {help}"));
            }
        }
    }

    fn attempt_intended(&mut self, thread: &ThreadId, attempt: &AttemptIntended) {
        self.unpriced |= attempt.unpriced;
        let first = self.first_attempts.entry(thread.clone()).or_insert(attempt.attempt);
        *first = attempt.attempt.min(*first);
        if self.main.as_ref() == Some(thread) {
            // If the last attempt was interrupted, `streamed` still holds its text.
            self.streamed = PrintedText::default();
        }
    }

    fn opened(&mut self, thread: &ThreadId, opened: &Opened) {
        let continues_session = self.is_chat && matches!(opened.origin, ThreadOrigin::Fork | ThreadOrigin::Replan);
        let continues = opened.origin == ThreadOrigin::Handoff || continues_session;
        if self.main.is_none() || continues && opened.parent.is_none() {
            self.main = Some(thread.clone());
            self.thread_line(&thread.clone(), DIM, &format!("thread {thread}"));
        }
    }

    fn record_reply(&mut self, thread: &ThreadId, reply: &CognitionOut) {
        // A provider can give two calls the same id.
        for (index, called) in calls_in(&reply.content).enumerate() {
            let shown = format_call(called, MAX_DETAIL_CHARS);
            self.calls.insert((thread.clone(), index), PendingCall { shown, started: None, named: false });
        }
        if self.main.as_ref() != Some(thread) || !self.streams() {
            return;
        }
        let text = reply_text(&reply.content);
        if let Some(rest) = std::mem::take(&mut self.streamed).rest_of(&text) {
            self.text(rest);
        } else {
            // The printed pieces are not the start of the text, because some pieces were dropped. Print the whole text
            // on a new line.
            self.out.end_line();
            self.text(&text);
        }
        self.out.end_line();
        self.printed_result = Some(text);
    }

    fn failed(&mut self, thread: &ThreadId, failed: &AttemptFailed) {
        if failed.error.code.as_deref() == Some("missing_key") {
            self.missing_key.insert(thread.clone());
        } else {
            self.missing_key.remove(thread);
        }
        // Without a retry, the error of the attempt is the error of the thread, which is printed at the end.
        let then = match (&failed.fallback, failed.retry_delay_ms) {
            (Some(model), _) => format!("continuing with {model}"),
            (None, Some(delay)) => format!("retrying in {}", format_delay(delay)),
            (None, None) => return,
        };
        if self.main.as_ref() == Some(thread) {
            self.streamed = PrintedText::default();
        }
        let reason =
            format!("{}: {}", failed.classification.name, truncate_line(&failed.error.message, MAX_DETAIL_CHARS));
        let first = self.first_attempts.get(thread).copied().unwrap_or_default();
        let number = failed.attempt.saturating_sub(first).saturating_add(1);
        let again = format!("attempt {number} failed, {reason}; {then}");
        self.thread_line(thread, color_style(AnsiColor::Yellow), &again);
    }

    fn tool(&mut self, thread: &ThreadId, result: &ToolCallResult) {
        let call = self.calls.remove(&(thread.clone(), result.index));
        // The returned value is the result of the run, which is printed at the end.
        if matches!(result.why, ResultKind::Returned { .. }) {
            return;
        }
        let what = match call {
            Some(call) if !call.named => call.shown,
            Some(_) | None => result.name.clone(),
        };
        let time = if result.why == ResultKind::Ran { format!(" {} ms", result.duration_ms) } else { String::new() };
        let failure = || child_failure(&result.content).unwrap_or_else(|| error_line(&result.content).to_owned());
        let problem = result_reason(result).or_else(|| result.is_error.then(failure));
        let red = color_style(AnsiColor::Red);
        match problem {
            None => self.thread_line(thread, Style::new(), &format!("ok    {what}{time}")),
            Some(problem) if problem.chars().count() <= MAX_DETAIL_CHARS => {
                self.thread_line(thread, red, &format!("error {what}{time}: {problem}"));
            }
            Some(problem) => {
                self.thread_line(thread, red, &format!("error {what}{time}:"));
                self.thread_line(thread, red, &format!("  {}", truncate_line(&problem, MAX_ERROR_CHARS)));
            }
        }
        let changes = self.file_changes.as_mut().map(|changes| changes.take_lines(thread, result));
        for (style, line) in changes.into_iter().flatten() {
            self.thread_line(thread, style, &format!("    {line}"));
        }
        for refusal in sandbox_refusals(result) {
            self.thread_line(thread, red, &format!("  {}", truncate_line(refusal, MAX_ERROR_CHARS)));
        }
    }
}

impl Render for HumanRenderer {
    fn live(&mut self, live: &StreamEvent) {
        if let (Some(progress), StreamEvent::Delta { thread, delta }) = (&mut self.progress, live) {
            progress.delta(thread, delta);
        }
        match live {
            StreamEvent::Event { thread, event } => self.event(thread, event),
            StreamEvent::Delta { thread, delta: Delta::Text(text) } => {
                if self.streams() && self.main.as_ref() == Some(thread) && !self.compactions.is_running(thread) {
                    self.text(text);
                    self.streamed.add(text);
                }
            }
            StreamEvent::Delta {
                delta: Delta::Thinking(_) | Delta::ToolCallStarted { .. } | Delta::ToolCallInput { .. },
                ..
            } => {}
        }
    }

    fn note(&mut self, text: &str) {
        self.hide_progress();
        self.out.end_line();
        self.flush();
        writeln!(io_err(), "{}", fold_for_stderr(&mask_controls(text))).ok();
    }

    fn question(&mut self, text: &str) {
        self.hide_progress();
        self.out.end_line();
        write!(io_err(), "{}", mask_controls(text)).ok();
    }

    fn stop(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress.stop();
        }
    }

    fn is_animated(&self) -> bool {
        self.progress.is_some()
    }

    fn tick(&mut self) {
        // No progress line is needed while text is streamed, and a line below an incomplete line would break the text.
        if self.out.has_open_line() && io::stdout().is_terminal() {
            if !self.progress.as_ref().is_some_and(Progress::is_stalled) {
                return;
            }
            self.out.end_line();
        }
        self.flush();
        let main = self.main.clone();
        let line = self.progress.as_mut().and_then(|progress| progress.tick(main.as_ref()));
        if let Some(line) = line {
            writeln!(io_err(), "{line}").ok();
        }
    }

    fn flush(&mut self) {
        if !self.lines.is_empty() {
            self.hide_progress();
            let lines = std::mem::take(&mut self.lines);
            if let Some(CapturedOutput::Lines(lines)) = self.out.capture(CapturedOutput::Lines(lines)) {
                io_err().write_all(lines.as_bytes()).ok();
            }
        }
    }

    fn idle(&mut self) {
        if self.progress.as_ref().is_some_and(Progress::repaints) {
            return self.flush();
        }
        let late = |call: &&mut PendingCall| !call.named && call.started.is_some_and(|at| at.elapsed() > SLOW_CALL);
        let mut waiting = Vec::new();
        for ((thread, _), call) in &mut self.calls {
            if let Some(call) = Some(call).filter(late) {
                call.named = true;
                waiting.push((thread.clone(), format!("runs  {}", call.shown)));
            }
        }
        for (thread, line) in waiting {
            self.thread_line(&thread, DIM, &line);
        }
        self.flush();
    }

    fn end(&mut self, RunEnd { result, session_cost, reached_limit, waiting, .. }: RunEnd) -> Option<io::Error> {
        self.hide_progress();
        self.progress = None;
        self.out.end_line();
        self.flush();
        if self.is_chat {
            self.chat(&result, session_cost.as_ref(), reached_limit.as_deref());
        } else if self.format == Format::Plain {
            self.plain(&result);
        } else {
            self.human(&result, reached_limit.as_deref(), &waiting);
        }
        self.out.take_error()
    }
}

/// Returns the message of an error without the code of the error. The message of a reached limit starts with its code,
/// which is printed separately.
fn message_without_code(error: &RunError) -> &str {
    error.message.strip_prefix(&format!("{}: ", error.code)).unwrap_or(&error.message)
}

fn io_err() -> impl io::Write {
    anstream::stderr().lock()
}

/// Returns the text of a reply, without thinking and tool calls.
fn reply_text(content: &[ContentBlock]) -> SharedText {
    let text = |block: &ContentBlock| if let ContentBlock::Text { text } = block { Some(text.clone()) } else { None };
    let mut texts = content.iter().filter_map(text);
    // A single block, as most replies have, is not copied.
    let first = texts.next().unwrap_or_default();
    texts.fold(first, |mut all, text| {
        all.make_mut().push_str(&text);
        all
    })
}

/// The length and the hash of printed text. The text itself is not stored, because a reply can have many megabytes.
#[derive(Default)]
struct PrintedText {
    bytes: usize,
    hash: Sha256,
}

impl PrintedText {
    fn add(&mut self, text: &str) {
        self.bytes += text.len();
        self.hash.update(text);
    }

    /// Returns the part of `text` that follows the printed text; `None` if `text` does not start with the printed text.
    fn rest_of(self, text: &str) -> Option<&str> {
        let (start, rest) = text.split_at_checked(self.bytes)?;
        (Sha256::digest(start) == self.hash.finalize()).then_some(rest)
    }
}

fn format_settling(settled: &Settled, unpriced: bool) -> String {
    let usage = settled.usage;
    let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
    let note = settlement_note(settled);
    format!(
        "turn {}: {} in, {} out, {}{note}",
        settled.turn,
        format_count(input, "token"),
        usage.output,
        format_spend(settled.amount, unpriced)
    )
}
