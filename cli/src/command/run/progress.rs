//! Live progress of a run at a terminal: a line for the thread and one for each child, repainted below the output while
//! a call runs. A terminal that cannot repaint gets a line at longer intervals instead.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use rye_engine::event::{Event, EventBody, ThreadOrigin};
use rye_engine::exchange::Delta;
use rye_engine::message::{ToolCall, calls_in};
use rye_engine::running_outputs::RunningOutputs;
use rye_engine::thread_id::ThreadId;

use super::painted_lines::PaintedLines;
use crate::options::Format;
use crate::present::step::Step;
use crate::present::wrap::{self, OutputStream};
use crate::present::{format_count, truncate_line};
use crate::report::{Printer, printable};

/// Time between two repaints.
pub const REPAINT_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two lines on a terminal that cannot repaint.
const LINE_INTERVAL: Duration = Duration::from_secs(30);
/// Time that a step must take before the progress lines are shown, so that short steps do not flicker.
const SHOWN_AFTER: Duration = Duration::from_millis(300);
/// Time without a streamed piece after which a stream counts as stalled.
const STALLED_AFTER: Duration = Duration::from_secs(10);
/// Minimum width of a terminal on which lines are repainted, in columns.
const MIN_WIDTH_COLUMNS: usize = 20;
/// Width if the terminal does not report one, in columns.
const DEFAULT_WIDTH_COLUMNS: usize = 80;
/// Maximum number of children with a line of their own.
const MAX_CHILDREN: usize = 6;
/// Maximum number of lines of a running program's output.
const MAX_OUTPUT_ROWS: usize = 3;
/// The start of a line of a running program's output.
const OUTPUT_SIGN: &str = "  | ";
/// Maximum characters of the command of a running call.
const MAX_COMMAND_CHARS: usize = 40;
/// Estimated bytes of a streamed token.
const BYTES_PER_TOKEN: u64 = 4;
const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// The progress of a run: the steps of the running threads, and the lines that are painted for them.
pub struct Progress {
    threads: BTreeMap<ThreadId, Activity>,
    /// The parent of each child.
    parents: BTreeMap<ThreadId, ThreadId>,
    /// Threads of chats that wait for the next prompt.
    idle: BTreeSet<ThreadId>,
    started: Instant,
    /// Number of stop signals from the user.
    stops: u32,
    painted: PaintedLines,
    /// The hint that names the key that stops the run.
    stop_hint: String,
    /// The outputs of running programs.
    outputs: RunningOutputs,
    /// True in a chat with an editor, where the first stop signal already ends the prompt.
    is_chat: bool,
    /// True if the terminal can repaint lines.
    repaints: bool,
    last_line: Instant,
    last_delta: Instant,
}

/// The current step of a thread, and the time at which the step began.
struct Activity {
    step: Step,
    since: Instant,
    /// Bytes of the reply so far.
    bytes: u64,
    /// True if the thread runs a prompt of a chat.
    is_prompt: bool,
    /// The number of the first turn of the prompt, from which the turns of the prompt are counted.
    first_turn: Option<u64>,
    /// The commands that the calls of the last reply run, by the id of the call.
    commands: BTreeMap<String, String>,
}

impl Progress {
    /// Creates the progress display of a run; `None` if stderr is no terminal, the output is not for a person, or the
    /// user has requested a quiet output or a log. In a chat without an editor, the display is not repainted, because
    /// the user types in the same terminal.
    pub fn for_terminal(report: &Printer, is_chat: bool) -> Option<Self> {
        if report.format() != Format::Human || report.is_quiet() || report.has_log() || !stderr().is_terminal() {
            return None;
        }
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        let is_dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        let repaints = !is_chat && !is_dumb && !is_set("ACCESSIBLE") && terminal_width() >= MIN_WIDTH_COLUMNS;
        Some(Self::new(repaints))
    }

    /// Creates the progress display of a chat with an editor. The chat itself paints the rows of the display.
    /// `stop_hint` names the key that interrupts.
    pub fn in_viewport(stop_hint: String) -> Self {
        Self { stop_hint, is_chat: true, ..Self::new(true) }
    }

    fn new(repaints: bool) -> Self {
        let started = Instant::now();
        let (threads, idle) = (BTreeMap::new(), BTreeSet::new());
        Self {
            threads,
            parents: BTreeMap::new(),
            idle,
            started,
            stops: 0,
            painted: PaintedLines::default(),
            stop_hint: "Ctrl+C to cancel".to_owned(),
            outputs: RunningOutputs::default(),
            is_chat: false,
            repaints,
            last_line: started,
            last_delta: started,
        }
    }

    /// Sets the outputs of running programs, whose last lines are shown.
    pub fn show_outputs(&mut self, outputs: RunningOutputs) {
        self.outputs = outputs;
    }

    /// Returns the last lines of the running program that was started last, each at most `columns` wide.
    pub fn output_rows(&self, columns: usize) -> Vec<String> {
        let lines = self.outputs.last_lines(MAX_OUTPUT_ROWS);
        let width = columns.saturating_sub(OUTPUT_SIGN.len());
        let cut = |line: &String| wrap::cut_to_width(&printable(line).replace('\t', "    "), width);
        lines.iter().map(|line| format!("{OUTPUT_SIGN}{}", cut(line))).collect()
    }

    /// Returns true if running calls are shown by repainted lines.
    pub fn repaints(&self) -> bool {
        self.repaints
    }

    /// Updates the progress by an event of a thread.
    pub fn event(&mut self, thread: &ThreadId, event: &Event) {
        if matches!(event.body, EventBody::Ended(_)) {
            self.threads.remove(thread);
            return;
        }
        if let EventBody::ChildSpawned(spawned) = &event.body
            && let Ok(child) = ThreadId::parse(&spawned.thread_id)
        {
            self.parents.insert(child, thread.clone());
        }
        if let EventBody::Opened(opened) = &event.body
            && opened.origin == ThreadOrigin::Chat
        {
            self.idle.insert(thread.clone());
        }
        if matches!(event.body, EventBody::PromptEnded(_)) {
            self.idle.insert(thread.clone());
            self.threads.remove(thread);
        }
        if matches!(event.body, EventBody::PromptStarted(_)) {
            self.idle.remove(thread);
            // The counted stop signals ended the previous prompt.
            self.stops = 0;
        }
        if self.idle.contains(thread) {
            return;
        }
        let activity = self.threads.entry(thread.clone()).or_insert_with(Activity::new);
        activity.is_prompt |= matches!(event.body, EventBody::PromptStarted(_));
        if let EventBody::CognitionOut(reply) = &event.body {
            let command = |call: &ToolCall| Some((call.id.clone(), call.input.get("command")?.as_str()?.to_owned()));
            activity.commands = calls_in(&reply.content).filter_map(command).collect();
        }
        if activity.step.follow(&event.body) {
            (activity.since, activity.bytes) = (Instant::now(), 0);
            activity.count_turn_of_prompt();
        }
    }

    /// Adds the bytes of a streamed piece to the count of its thread.
    pub fn delta(&mut self, thread: &ThreadId, delta: &Delta) {
        self.last_delta = Instant::now();
        let Some(activity) = self.threads.get_mut(thread) else { return };
        let text = match delta {
            Delta::Text(text) | Delta::Thinking(text) => text,
            Delta::ToolCallInput { fragment, .. } => fragment,
            Delta::ToolCallStarted { name, .. } => name,
        };
        activity.bytes = activity.bytes.saturating_add(text.len() as u64);
    }

    /// Returns true if every thread waits for an answer of the user, so that the rows do not change.
    pub fn is_waiting(&self) -> bool {
        self.threads.values().all(Activity::waits_for_user)
    }

    /// Returns true if no piece of a reply has arrived for [`STALLED_AFTER`].
    pub fn is_stalled(&self) -> bool {
        self.last_delta.elapsed() >= STALLED_AFTER
    }

    /// Counts an interrupt of the user (Ctrl+C).
    pub fn stop(&mut self) {
        self.stops += 1;
    }

    /// Removes the painted lines before other output.
    pub fn hide(&mut self) {
        self.painted.clear();
    }

    /// Repaints the lines and returns `None`. On a terminal that cannot repaint, returns a line to print if one is due.
    pub fn tick(&mut self, main: Option<&ThreadId>) -> Option<String> {
        let is_long = |activity: &Activity| activity.since.elapsed() >= SHOWN_AFTER;
        if !self.threads.values().any(is_long) {
            return None;
        }
        if !self.repaints {
            if self.last_line.elapsed() < LINE_INTERVAL {
                return None;
            }
            self.last_line = Instant::now();
            return self.lines(main, usize::MAX).into_iter().next();
        }
        let width = terminal_width().saturating_sub(1);
        let mut rows = self.rows(main, width);
        rows.extend(self.output_rows(width));
        self.painted.paint(&rows);
        None
    }

    /// Returns the rows that show the state of each thread, each at most `columns` wide. The first row starts with a
    /// spinner, or with `?` while the thread `main` waits for the user.
    pub fn rows(&self, main: Option<&ThreadId>, columns: usize) -> Vec<String> {
        let mut lines = self.lines(main, columns.saturating_sub(2));
        let frame = spinner_frame(self.started);
        let waits = |thread| self.threads.get(thread).is_some_and(Activity::waits_for_user);
        // A spinner would suggest that something runs.
        let frame = if main.is_some_and(waits) { "?" } else { frame };
        for (n, line) in lines.iter_mut().enumerate() {
            *line = if n == 0 { format!("{frame} {line}") } else { format!("  {line}") };
        }
        lines
    }

    /// Returns the progress lines, each at most `columns` wide. The first line shows the thread `main`. Then at most
    /// `MAX_CHILDREN` other threads follow as a tree, each thread below its parent. If there are more threads, the last
    /// line states how many.
    fn lines(&self, main: Option<&ThreadId>, columns: usize) -> Vec<String> {
        let stop = match self.stops {
            0 => self.stop_hint.as_str(),
            _ if self.is_chat => "interrupting",
            1 => "waiting for the call to end; Ctrl+C again to stop now",
            _ => "stopping now",
        };
        let own = main.and_then(|main| self.threads.get(main));
        let mut fields = own.map_or_else(|| vec!["running".to_owned()], Activity::fields);
        fields.push(stop.to_owned());
        let mut lines = vec![fit_fields(&fields, columns)];
        let others = self.threads.iter().filter(|(thread, _)| Some(*thread) != main);
        let mut children: Vec<(Vec<&ThreadId>, &Activity)> =
            others.map(|(thread, activity)| (self.path(thread, main), activity)).collect();
        children.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (path, activity) in children.iter().take(MAX_CHILDREN) {
            let Some((thread, above)) = path.split_last() else { continue };
            let indent = "  ".repeat(above.iter().filter(|parent| self.threads.contains_key(**parent)).count());
            let mut fields = activity.fields();
            if let Some(first) = fields.first_mut() {
                *first = format!("{indent}{thread}: {first}");
            }
            lines.push(fit_fields(&fields, columns));
        }
        if let more @ 1.. = children.len().saturating_sub(MAX_CHILDREN) {
            lines.push(fit_fields(&[format!("and {} more", format_count(more as u64, "thread"))], columns));
        }
        lines
    }
}

impl Progress {
    /// Returns the threads from the child of `main` down to `thread`.
    fn path<'a>(&'a self, thread: &'a ThreadId, main: Option<&ThreadId>) -> Vec<&'a ThreadId> {
        let mut path = vec![thread];
        let mut next = self.parents.get(thread);
        // The length check ends the loop if damaged events form a circle of parents.
        while let Some(parent) = next.filter(|parent| Some(*parent) != main && path.len() <= self.parents.len()) {
            path.push(parent);
            next = self.parents.get(parent);
        }
        path.reverse();
        path
    }
}

/// Returns the current frame of a spinner that started at this time.
pub fn spinner_frame(started: Instant) -> &'static str {
    let frames = started.elapsed().as_millis() / REPAINT_INTERVAL.as_millis();
    FRAMES.get(usize::try_from(frames).unwrap_or(0) % FRAMES.len()).copied().unwrap_or_default()
}

impl Activity {
    fn new() -> Self {
        Self {
            step: Step::default(),
            since: Instant::now(),
            bytes: 0,
            is_prompt: false,
            first_turn: None,
            commands: BTreeMap::new(),
        }
    }

    /// If the thread runs a prompt of a chat, replaces the number of the turn with its number within the prompt.
    fn count_turn_of_prompt(&mut self) {
        if let (true, Step::Model { turn, .. }) = (self.is_prompt, &mut self.step) {
            let first = *self.first_turn.get_or_insert(*turn);
            *turn = turn.saturating_sub(first).saturating_add(1);
        }
    }

    fn waits_for_user(&self) -> bool {
        self.step == Step::Approval
    }

    /// Describes the step. For a call that runs a command, the description contains the command.
    fn describe_step(&self) -> String {
        let Step::Tools(running) = &self.step else { return self.step.to_string() };
        let describe = |(id, name): (&String, &String)| match self.commands.get(id) {
            Some(command) => format!("{name}: {}", truncate_line(command, MAX_COMMAND_CHARS)),
            None => name.clone(),
        };
        running.iter().map(describe).collect::<Vec<_>>().join(", ")
    }

    fn fields(&self) -> Vec<String> {
        let mut fields = vec![self.describe_step()];
        fields.extend((!self.waits_for_user()).then(|| format!("{} s", self.since.elapsed().as_secs())));
        if let Step::Model { model, .. } = &self.step {
            fields.push(model.clone());
            let tokens = self.bytes.div_ceil(BYTES_PER_TOKEN);
            fields.extend((tokens > 0).then(|| format!("~{}", format_count(tokens, "token"))));
        }
        fields
    }
}

/// Joins the fields that fit into a line. Drops fields from the right, and cuts the first field if necessary.
fn fit_fields(fields: &[String], columns: usize) -> String {
    let mut line = String::new();
    for field in fields {
        let field = printable(field);
        let next = if line.is_empty() { field } else { format!("{line} · {field}") };
        if next.chars().count() > columns {
            break;
        }
        line = next;
    }
    match fields.first().filter(|_| line.is_empty()) {
        Some(first) => truncate_line(&printable(first), columns.saturating_sub(1)),
        None => line,
    }
}

fn terminal_width() -> usize {
    wrap::terminal_columns(OutputStream::Error).unwrap_or(DEFAULT_WIDTH_COLUMNS)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rye_engine::event::{AttemptIntended, ChildEnded, ChildSpawned};
    use rye_engine::thread::{Cost, Status};
    use serde_json::json;

    use super::*;

    fn event(body: EventBody) -> Event {
        Event { seq: 0, ts: 0, body }
    }

    fn attempt(turn: u64) -> Event {
        event(EventBody::AttemptIntended(AttemptIntended {
            turn,
            attempt: 0,
            model: "sonnet".into(),
            input_bound: 0,
            max_output: 0,
            worst_case: 0,
            compacts: false,
            unpriced: false,
        }))
    }

    #[test]
    fn lines_show_the_call_and_each_child() {
        let (main, child) = (ThreadId::parse("a-1").unwrap(), ThreadId::parse("b-1").unwrap());
        let mut progress = Progress::new(true);
        progress.event(&main, &attempt(2));
        assert_eq!(progress.lines(Some(&main), 80), ["turn 2 · 0 s · sonnet · Ctrl+C to cancel"]);
        progress.delta(&main, &Delta::Text("12345".into()));
        assert_eq!(progress.lines(Some(&main), 80), ["turn 2 · 0 s · sonnet · ~2 tokens · Ctrl+C to cancel"]);
        let spawned = ChildSpawned { spawn: 0, thread_id: "b-1".into(), spend: 0 };
        progress.threads.get_mut(&main).unwrap().step = Step::Between;
        progress.event(&main, &event(EventBody::ChildSpawned(spawned)));
        progress.event(&child, &attempt(1));
        let shown = ["waiting for a child · 0 s · Ctrl+C to cancel", "b-1: turn 1 · 0 s · sonnet"];
        assert_eq!(progress.lines(Some(&main), 80), shown);
        let (status, cost) = (Status::Completed, Cost::default());
        let ended = ChildEnded { spawn: 0, thread_id: "b-1".into(), status, cost };
        progress.threads.remove(&child);
        progress.event(&main, &event(EventBody::ChildEnded(ended)));
        progress.stop();
        let stopping = "between calls · 0 s · waiting for the call to end; Ctrl+C again to stop now";
        assert_eq!(progress.lines(Some(&main), 80), [stopping]);
    }

    #[test]
    fn lines_show_children_below_their_parents() {
        let thread = |id: &str| ThreadId::parse(id).unwrap();
        let spawned =
            |id: &str| event(EventBody::ChildSpawned(ChildSpawned { spawn: 0, thread_id: id.into(), spend: 0 }));
        let mut progress = Progress::new(true);
        for (parent, child) in [("main-1", "b-2"), ("main-1", "c-1"), ("b-2", "a-9")] {
            progress.event(&thread(parent), &spawned(child));
        }
        progress.event(&thread("a-9"), &attempt(1));
        progress.event(&thread("c-1"), &attempt(3));
        let shown = [
            "waiting for 2 children · 0 s · Ctrl+C to cancel",
            "b-2: waiting for a child · 0 s",
            "  a-9: turn 1 · 0 s · sonnet",
            "c-1: turn 3 · 0 s · sonnet",
        ];
        assert_eq!(progress.lines(Some(&thread("main-1")), 80), shown);
        // A grandchild whose parent has ended is not indented below another thread.
        progress.threads.remove(&thread("b-2"));
        assert_eq!(progress.lines(Some(&thread("main-1")), 80)[1..], ["a-9: turn 1 · 0 s · sonnet", shown[3]]);
    }

    #[test]
    fn plain_terminal_gets_a_line_every_thirty_seconds() {
        let main = ThreadId::parse("a-1").unwrap();
        let mut progress = Progress::new(false);
        progress.event(&main, &attempt(2));
        let before = |seconds: u64| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        progress.threads.get_mut(&main).unwrap().since = before(40);
        progress.last_line = before(29);
        assert_eq!(progress.tick(Some(&main)), None);
        progress.last_line = before(30);
        let line = progress.tick(Some(&main)).unwrap();
        assert!(line.starts_with("turn 2 · 4") && line.ends_with(" s · sonnet · Ctrl+C to cancel"), "{line}");
        assert_eq!(progress.tick(Some(&main)), None);
    }

    #[test]
    fn stream_without_a_piece_for_ten_seconds_is_stalled() {
        let mut progress = Progress::new(true);
        progress.last_delta = Instant::now().checked_sub(Duration::from_secs(9)).unwrap();
        assert!(!progress.is_stalled());
        progress.last_delta = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        assert!(progress.is_stalled());
        progress.delta(&ThreadId::parse("a-1").unwrap(), &Delta::Text("more".into()));
        assert!(!progress.is_stalled());
    }

    #[test]
    fn line_of_a_call_that_runs_a_command_shows_the_command() {
        let main = ThreadId::parse("a-1").unwrap();
        let mut progress = Progress::new(true);
        let usage = json!({"input": 1, "output": 1, "cache_read": 0, "cache_write": 0});
        let call = json!({"type": "tool_call", "id": "c", "name": "rye_bash_bash", "input": {"command": "sleep 9"}});
        let events = [
            json!({"type": "cognition_out", "turn": 1, "attempt": 0, "content": [call], "usage": usage,
                   "stop": "end_turn", "model": null}),
            json!({"type": "tool_started", "turn": 1, "index": 0, "group_end": 1, "call_id": "c", "name": "rye_bash_bash",
                   "capability": "rye.execute.tool.rye.bash.bash", "idempotent": false}),
        ];
        for body in events {
            progress.event(&main, &event(serde_json::from_value(body).unwrap()));
        }
        assert_eq!(progress.lines(Some(&main), 80), ["rye_bash_bash: sleep 9 · 0 s · Ctrl+C to cancel"]);
    }

    #[test]
    fn narrow_line_drops_fields_from_the_right() {
        let fields = ["turn 1".to_owned(), "3 s".to_owned(), "a-long-model-name".to_owned()];
        assert_eq!(fit_fields(&fields, 80), "turn 1 · 3 s · a-long-model-name");
        assert_eq!(fit_fields(&fields, 20), "turn 1 · 3 s");
        assert_eq!(fit_fields(&fields, 5), "turn…");
        assert_eq!(fit_fields(&["\u{1b}[2J".to_owned()], 80), "\u{FFFD}[2J");
    }
}
