//! The terminal of a chat. Converts keys to prompts, answers and interruptions. Converts events to finished lines and
//! to the viewport.

use std::collections::VecDeque;
use std::io::{self, Stdout};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anstream::ColorChoice;
use crossterm::event::Event as TerminalEvent;
use rye_engine::event::{ControlMessage, Delivery, Event, EventBody, MessageSource, PromptStatus};
use rye_engine::live::{EventStream, StreamEvent};
use rye_engine::preview::preview;
use rye_engine::thread_id::ThreadId;
use tokio::time::Instant;

use super::approvals::OpenRequest;
use super::clipboard_image::dropped_image;
use super::commands::TypedText;
use super::editor::Editor;
use super::history::{ChatFolder, Draft, PromptHistory};
use super::leaving::LeftChildren;
use super::markdown::MarkdownStream;
use super::overlay::{Completer, Overlay};
use super::raw_mode::{ContinueSignals, KeyReader, enter_raw_mode, restore_terminal, terminal_size};
use super::recap::Recap;
use super::requests::RequestHandler;
use super::screen::{Row, Screen, TerminalSize, Viewport};
use super::status::SessionStatus;
use crate::command::run::ending::RunEnd;
use crate::command::run::human::HumanRenderer;
use crate::command::run::progress::{Progress, REPAINT_INTERVAL};
use crate::command::run::renderer::{Render, RenderOutcome, RendererMessage, RendererMessages};
use crate::report::Printer;

mod compaction;
mod keyboard;
mod leaving;
mod open_text;
mod output;
mod questions;
mod refusal;
mod submission;
mod thoughts;
mod typed_commands;
mod user_commands;
mod viewport;

use compaction::RunningCompaction;
use questions::KeyQuestion;
use refusal::RefusalMessage;
use submission::{DelayedMessage, PendingMessage, is_slash_word};
use thoughts::Thoughts;
use typed_commands::{TypedCommands, TypedResult};
use user_commands::UserCommands;

/// Minimum time between two frames.
const FRAME_INTERVAL: Duration = Duration::from_millis(16);
/// Time until a changed draft is written.
const DRAFT_DELAY: Duration = Duration::from_secs(1);

/// The parts of a session that its terminal shows or uses.
pub struct TerminalSession {
    pub requests: Arc<RequestHandler>,
    pub thread: ThreadId,
    /// Channel for the user's answers to approval requests. Each answer is one line of text.
    pub answers: Sender<String>,
    pub status: SessionStatus,
    /// Messages that were not sent when the session was closed.
    pub unsent: Vec<String>,
    /// The end of the conversation of a session that was opened again, to be printed once; `None` for a new session.
    pub recap: Option<Recap>,
    /// True to print every event.
    pub events: bool,
    pub keys: Arc<KeyReader>,
}

/// A message that the model has not read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
struct QueuedMessage {
    /// The id of the control message that submitted the message.
    id: String,
    text: String,
    delivery: Delivery,
}

/// The user interface of a session in a terminal, with the state of the editor, of approval requests and of the output.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of the terminal, and they are independent")]
pub struct ChatTerminal {
    screen: Screen<Stdout>,
    session: TerminalSession,
    human: HumanRenderer,
    activity: Progress,
    markdown: MarkdownStream,
    editor: Editor,
    history: PromptHistory,
    draft: Draft,
    completer: Completer,
    overlay: Option<Overlay>,
    request: Option<OpenRequest>,
    /// True if the user interrupted the prompt while the approval request `request` was open.
    is_request_interrupted: bool,
    refusal: Option<RefusalMessage>,
    /// True while keys edit the text in the editor although an approval request is open, so that no key answers the
    /// request.
    is_text_open: bool,
    thoughts: Thoughts,
    commands: TypedCommands,
    user_commands: UserCommands,
    /// The requested compaction that has not ended; `None` if there is none.
    compaction: Option<RunningCompaction>,
    /// The thread for which the terminal has warned of a full context.
    warned_thread: Option<String>,
    /// Messages that wait until the commands before them have taken effect, oldest first.
    delayed: VecDeque<DelayedMessage>,
    queue: Vec<QueuedMessage>,
    /// Texts of withdrawn messages that the next frame returns to the editor, in the order of their delivery.
    returned: Vec<String>,
    /// Messages whose images are being stored, oldest first.
    pending: VecDeque<PendingMessage>,
    /// Lines for the scrollback that are not painted yet.
    finished: Vec<Row>,
    /// True if the last printed line is the blank line after a prompt.
    ends_with_blank: bool,
    is_running: bool,
    is_leaving: bool,
    leaving: leaving::LeavingKeys,
    /// An open question that a key answers.
    question: Option<KeyQuestion>,
    /// True if the last key requested a mode that allows more than the current one. The same key confirms the change.
    may_widen: bool,
    /// True if the last key was Esc in an empty editor while no prompt runs.
    may_rewind: bool,
    /// True if the list of prompts that was requested last is for a rewind.
    offers_rewinds: bool,
    /// The hint below the editor. Placeholders such as `{app.interrupt}` stand for keys.
    hint: Option<&'static str>,
    is_dirty: bool,
    draft_due: Option<Instant>,
    /// The time until which nothing is painted, set when the user suspends the process. `SIGCONT` ends this pause
    /// earlier. If the process was not stopped, no `SIGCONT` arrives, and the pause ends at this time.
    suspended_until: Option<Instant>,
    /// The text in the editor for which the last preview was computed.
    previewed: String,
}

/// Runs the terminal until the session has ended.
pub async fn run_terminal(
    session: TerminalSession,
    report: Printer,
    live: EventStream,
    messages: RendererMessages,
) -> RenderOutcome {
    let size = terminal_size().unwrap_or(TerminalSize { columns: 80, rows: 24 });
    if let Err(error) = enter_raw_mode() {
        session.requests.control.send(ControlMessage::Close);
        return RenderOutcome { write_error: Some(error) };
    }
    let mut terminal = ChatTerminal::new(session, &report, size);
    terminal.print_recap();
    let outcome = terminal.run(live, messages).await;
    restore_terminal();
    let write_error = match outcome {
        Ok(Some(end)) => terminal.human.end(*end),
        Ok(None) => None,
        Err(error) => {
            // The terminal was closed, so the user cannot answer. The session is closed and can be opened again.
            terminal.close(LeftChildren::Wait);
            Some(error)
        }
    };
    RenderOutcome { write_error }
}

impl ChatTerminal {
    fn new(session: TerminalSession, report: &Printer, size: TerminalSize) -> Self {
        let has_color = anstream::AutoStream::choice(&io::stdout()) != ColorChoice::Never;
        let spaces = &session.requests.spaces;
        let folder = ChatFolder::of_project(spaces.user_root().as_deref(), &spaces.project);
        let draft = Draft::of_session(folder.clone(), session.thread.as_str());
        let mut editor = Editor::new();
        let mut text = session.unsent.join("\n");
        if let Some(saved) = draft.read() {
            text = if text.is_empty() { saved } else { format!("{text}\n{saved}") };
        }
        if !text.is_empty() {
            editor.set_text(&text);
        }
        Self {
            screen: Screen::new(io::stdout(), size, has_color),
            human: HumanRenderer::captured(report, session.events).with_engine(&session.requests.engine),
            activity: Self::activity_of(&session),
            markdown: MarkdownStream::default(),
            editor,
            history: PromptHistory::read(folder),
            draft,
            completer: Completer::new(session.requests.spaces.clone()),
            overlay: None,
            request: None,
            is_request_interrupted: false,
            refusal: None,
            is_text_open: false,
            thoughts: Thoughts::default(),
            commands: TypedCommands::start(Arc::clone(&session.requests)),
            user_commands: UserCommands::default(),
            delayed: VecDeque::new(),
            queue: Vec::new(),
            returned: Vec::new(),
            pending: VecDeque::new(),
            finished: Vec::new(),
            ends_with_blank: false,
            is_running: false,
            is_leaving: false,
            leaving: leaving::LeavingKeys::default(),
            compaction: None,
            warned_thread: None,
            question: None,
            may_widen: false,
            may_rewind: false,
            offers_rewinds: false,
            hint: Some("{tui.input.submit} sends, /help lists commands and keys, {tui.input.tab} completes /… and @…"),
            is_dirty: true,
            draft_due: None,
            suspended_until: None,
            previewed: String::new(),
            session,
        }
    }

    async fn run(&mut self, mut live: EventStream, mut messages: RendererMessages) -> io::Result<Option<Box<RunEnd>>> {
        let reader = Arc::clone(&self.session.keys);
        let mut keys = reader.keys().await;
        let (mut end, mut is_open, mut has_keys) = (None, true, true);
        let mut frame_due = Instant::now();
        let mut repaint_due = Instant::now();
        let mut continued = ContinueSignals::install()?;
        let control = self.session.requests.control.clone();
        let mut states = control.state_changes();
        while is_open || end.is_none() {
            let now = Instant::now();
            if self.is_dirty && now >= frame_due {
                self.paint()?;
                (frame_due, repaint_due) = (now + FRAME_INTERVAL, now + REPAINT_INTERVAL);
            }
            let animated = self.is_animated().then_some(repaint_due);
            let repaint = animated.into_iter().chain(self.screen.unsettled_until()).min();
            let frame = self.is_dirty.then_some(frame_due);
            let deadline = match self.suspended_until {
                Some(until) => Some(until),
                None => [frame, repaint, self.draft_due].into_iter().flatten().min(),
            };
            tokio::select! {
                biased;
                key = keys.recv(), if has_keys => if let Some(key) = key {
                    self.terminal_event(key)?;
                    while let Ok(key) = keys.try_recv() {
                        self.terminal_event(key)?;
                    }
                    frame_due = Instant::now();
                } else {
                    has_keys = false;
                    self.close(LeftChildren::Wait);
                },
                message = messages.recv(), if end.is_none() => match message {
                    Some(RendererMessage::End(ended)) => {
                        is_open &= !ended.has_background;
                        end = Some(ended);
                    }
                    Some(RendererMessage::Question { text, shown }) => {
                        // First shows the events before the question, which are already in the stream.
                        while is_open && !live.is_idle() {
                            match live.next().await {
                                Some(next) => self.live(&next),
                                None => is_open = false,
                            }
                        }
                        // Keys typed before the question belong to the editor.
                        while let Ok(key) = keys.try_recv() {
                            self.terminal_event(key)?;
                        }
                        self.open_request(&text);
                        self.paint()?;
                        shown.send(()).ok();
                    }
                    Some(message) => self.message(message),
                    // The renderer handle was dropped.
                    None => {
                        self.screen.clear()?;
                        return Ok(None);
                    }
                },
                result = self.commands.next() => match result {
                    TypedResult::Response(response) => self.print_response(&response),
                    TypedResult::Released => self.submit_delayed(),
                },
                () = continued.next() => self.continued()?,
                Ok(()) = states.changed() => {
                    states = control.state_changes();
                    self.is_dirty = true;
                }
                next = live.next(), if is_open && !self.is_dirty => match next {
                    Some(first) => {
                        self.live(&first);
                        // Handles further events for at most one frame, so that many events delay neither a key nor the
                        // next frame.
                        let until = Instant::now() + FRAME_INTERVAL;
                        while !live.is_idle() && keys.is_empty() && Instant::now() < until {
                            let Some(next) = live.next().await else { break };
                            self.live(&next);
                        }
                    }
                    None => is_open = false,
                },
                () = sleep_until(deadline), if deadline.is_some() => {
                    let now = Instant::now();
                    if self.suspended_until.is_some_and(|until| until <= now) {
                        self.continued()?;
                    }
                    self.is_dirty |= repaint.is_some_and(|due| due <= now);
                    if self.draft_due.is_some_and(|due| due <= now) {
                        self.save_draft();
                    }
                }
            }
        }
        self.save_draft();
        self.finish_text();
        self.screen.paint(&std::mem::take(&mut self.finished), Viewport::default())?;
        self.screen.clear()?;
        Ok(end)
    }

    fn columns(&self) -> usize {
        usize::from(self.screen.size().columns)
    }

    /// Returns true if the viewport changes even without events.
    fn is_animated(&self) -> bool {
        self.is_running && !(self.request.is_some() && self.activity.is_waiting()) || self.is_busy_while_idle()
    }

    fn live(&mut self, live: &StreamEvent) {
        // The renderer sees each event first: it recognizes the thread that continues the session by the first event of
        // that thread.
        self.human.live(live);
        match live {
            StreamEvent::Event { thread, event } => self.event(thread, event),
            StreamEvent::Delta { thread, delta } => {
                if self.human.main_thread().is_none_or(|main| main == thread) {
                    self.thought(delta);
                }
                self.activity.delta(thread, delta);
            }
        }
        self.take_output();
        if matches!(live, StreamEvent::Event { event, .. } if matches!(event.body, EventBody::PromptEnded(_))) {
            self.finished.push(Row::default());
            self.ends_with_blank = true;
        }
        self.is_dirty = true;
    }

    fn event(&mut self, thread: &ThreadId, event: &Event) {
        let is_main = self.human.main_thread().is_none_or(|main| main == thread);
        self.session.status.follow((!is_main).then_some(thread.as_str()), &event.body);
        self.activity.event(thread, event);
        self.send_refusal_message(&event.body);
        if !is_main {
            return;
        }
        self.user_commands.follow(&event.body);
        self.follow_compaction(&event.body);
        self.show_foreign_message(&event.body);
        if let EventBody::PromptStarted(_) = &event.body {
            self.is_running = true;
        }
        if !self.draft.is_of(thread.as_str()) {
            self.draft_due.get_or_insert_with(Instant::now);
        }
        self.recorded_thoughts(&event.body);
        if let EventBody::CognitionIn(input) = &event.body {
            match input.source {
                MessageSource::Prompt | MessageSource::Continuation => self.delivered(Delivery::Prompt),
                MessageSource::Steer => self.delivered(Delivery::Steer),
                MessageSource::FollowUp => self.delivered(Delivery::FollowUp),
                MessageSource::NextTurn | MessageSource::Nudge | MessageSource::ContinueReply | MessageSource::Hook => {
                }
            }
        }
        if let EventBody::CommandRan(ran) = &event.body
            && ran.action.delivery().is_none()
            && let Some(message) = self.take_queued(&ran.id)
        {
            self.echo(&message.text);
        }
        if let EventBody::UserInput(input) = &event.body
            && input.handled
            && let Some(message) = self.take_queued(&input.id)
        {
            self.echo(&message.text);
        }
        if let EventBody::Retracted(retracted) = &event.body
            && let Some(message) = self.take_queued(&retracted.input)
        {
            self.returned.push(message.text);
        }
        if let EventBody::PromptEnded(ended) = &event.body {
            self.is_running = false;
            self.hint = None;
            self.leaving = leaving::LeavingKeys::default();
            if ended.status == PromptStatus::Done {
                // The messages that the prompt has not delivered are the next prompts.
                self.queue.iter_mut().for_each(|queued| queued.delivery = Delivery::Prompt);
            }
            self.queue.retain(|queued| queued.delivery == Delivery::Prompt);
            self.previewed.clear();
            if !ended.unsent.is_empty() {
                self.return_to_editor(&ended.unsent.join("\n"));
            }
        }
    }

    fn take_queued(&mut self, id: &str) -> Option<QueuedMessage> {
        let at = self.queue.iter().position(|queued| queued.id == id)?;
        Some(self.queue.remove(at))
    }

    /// Shows that the chat took a message: moves the oldest queued message with this delivery to the finished lines.
    fn delivered(&mut self, delivery: Delivery) {
        if let Some(at) = self.queue.iter().position(|queued| queued.delivery == delivery) {
            let message = self.queue.remove(at);
            self.echo(&message.text);
        }
    }

    fn message(&mut self, message: RendererMessage) {
        match message {
            RendererMessage::Note(text) | RendererMessage::Stop(text) => self.note(&text),
            RendererMessage::AwaitedNote { text, printed } => {
                self.note(&text);
                printed.send(()).ok();
            }
            RendererMessage::QuestionClosed(note) => {
                self.request = None;
                self.end_refusal();
                self.close_text();
                // After an interruption by the user, no note about the closed request is needed.
                let is_interrupted = std::mem::take(&mut self.is_request_interrupted);
                if let Some(note) = note.filter(|_| !is_interrupted) {
                    self.note(&note);
                }
            }
            RendererMessage::Question { .. } | RendererMessage::End(_) => {}
        }
        self.is_dirty = true;
    }

    fn terminal_event(&mut self, event: TerminalEvent) -> io::Result<()> {
        match event {
            TerminalEvent::Key(key) => self.key(key)?,
            TerminalEvent::Paste(text) => {
                self.overlay = None;
                self.editor.paste(&dropped_image(&text).unwrap_or(text));
                self.text_edited();
            }
            TerminalEvent::Resize(columns, rows) => self.screen.resize(TerminalSize { columns, rows }),
            TerminalEvent::FocusGained | TerminalEvent::FocusLost | TerminalEvent::Mouse(_) => {}
        }
        self.is_dirty = true;
        Ok(())
    }

    fn edited(&mut self) {
        self.hint = None;
        self.draft_due.get_or_insert_with(|| Instant::now() + DRAFT_DELAY);
    }

    fn save_draft(&mut self) {
        if self.draft_due.take().is_some() {
            if let Some(thread) = self.human.main_thread() {
                self.draft.assign_to(thread.as_str());
            }
            self.draft.write(&self.editor.text());
        }
    }

    /// Prints the help of a topic, or an overview if `topic` is `None`.
    fn help(&mut self, topic: Option<&str>) {
        let text = self.session.requests.help(topic);
        self.note(&text);
    }

    fn interrupt(&mut self) {
        self.session.requests.control.send(ControlMessage::Interrupt);
        if self.is_running {
            self.activity.stop();
        }
    }

    fn paint(&mut self) -> io::Result<()> {
        if self.suspended_until.is_some() {
            return Ok(());
        }
        self.is_dirty = false;
        self.restore_returned();
        if let Some(size) = terminal_size() {
            self.screen.resize(size);
        }
        if let Some(live) = self.session.requests.control.live_state().filter(|live| live.state.is_idle()) {
            self.session.status.read_idle_state(&live);
            self.warn_of_full_context(&live);
        }
        self.end_compaction();
        self.update_preview();
        self.render_text();
        let viewport = self.viewport();
        self.leaving_hint_painted();
        self.screen.paint(&std::mem::take(&mut self.finished), viewport)
    }

    /// Computes the price of the next request with the text in the editor.
    fn update_preview(&mut self) {
        let text = self.editor.text();
        if text == self.previewed {
            return;
        }
        let message = match TypedText::parse(&text) {
            // The text may still become the name of a command, which costs nothing.
            TypedText::Message(_) if is_slash_word(&text) => None,
            TypedText::Message(input) | TypedText::Delivered(input, _) => Some(input),
            TypedText::Help(_)
            | TypedText::Leave(_)
            | TypedText::Request(_)
            | TypedText::Inquiry(_)
            | TypedText::Switch(..)
            | TypedText::Invalid(_) => None,
        };
        let message =
            message.filter(|input| !text.trim().is_empty() && self.session.requests.check_input(input).is_ok());
        let live = self.session.requests.control.live_state();
        let next = live.zip(message).map(|(live, input)| preview(&live, &input));
        self.session.status.set_next(next.map(|next| (next.expected, next.worst_case)));
        self.previewed = text;
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
