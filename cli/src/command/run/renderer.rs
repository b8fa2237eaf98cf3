//! Rendering of a run on a separate OS thread, so that a slow or closed output does not delay the run.

use std::io::{self, Write as _};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use rye_engine::engine::Engine;
use rye_engine::live::{EventStream, StreamEvent};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use super::ending::RunEnd;
use super::human::HumanRenderer;
use super::json::JsonRenderer;
use super::progress::REPAINT_INTERVAL;
use crate::options::Format;
use crate::report::{Printer, mask_controls};
use crate::resource_limits::no_thread;
use crate::workspace::Spaces;

/// A renderer of a run: prints events, pieces of replies, notes and questions.
pub trait Render: Send {
    fn live(&mut self, live: &StreamEvent);
    /// Renders a message that is not an event.
    fn note(&mut self, text: &str);
    /// Renders a question, after all output so far. No event is rendered until the question is closed.
    fn question(&mut self, text: &str) {
        write!(anstream::stderr().lock(), "{}", mask_controls(text)).ok();
    }
    /// Called when the user sends a stop signal (such as Ctrl+C).
    fn stop(&mut self) {}
    /// Returns true if the output is incomplete after streamed pieces were dropped, because the output was too slow. At
    /// the end of the run, a note then states the number of dropped pieces.
    fn needs_every_piece(&self) -> bool {
        false
    }
    /// Returns true if [`Self::tick`] repaints the terminal.
    fn is_animated(&self) -> bool {
        false
    }
    /// Repaints the terminal. Called every [`REPAINT_INTERVAL`] if the renderer is animated.
    fn tick(&mut self) {}
    /// Writes out all buffered output.
    fn flush(&mut self) {}
    /// Called if no event occurred for [`IDLE_INTERVAL`].
    fn idle(&mut self) {}
    /// Renders the result; returns the first write error, or `None` if everything was written.
    fn end(&mut self, end: RunEnd) -> Option<io::Error>;
}

pub enum RendererMessage {
    Note(String),
    /// A note. `printed` completes when the note is printed.
    AwaitedNote {
        text: String,
        printed: oneshot::Sender<()>,
    },
    Stop(String),
    /// A question. `shown` completes when the question is rendered.
    Question {
        text: String,
        shown: oneshot::Sender<()>,
    },
    /// The question is closed. The text is a note for the user if the question got no answer.
    QuestionClosed(Option<String>),
    End(Box<RunEnd>),
}

/// A sender of messages to the renderer. Messages can be sent before the renderer runs.
#[derive(Debug, Clone)]
pub struct RendererSender {
    messages: mpsc::UnboundedSender<RendererMessage>,
    /// The OS thread that renders; empty before the start of this thread.
    thread: Arc<OnceLock<Thread>>,
}

pub type RendererMessages = mpsc::UnboundedReceiver<RendererMessage>;

impl RendererSender {
    pub fn channel() -> (Self, RendererMessages) {
        let (sender, messages) = mpsc::unbounded_channel();
        (Self { messages: sender, thread: Arc::default() }, messages)
    }

    /// Sends a message, and wakes the rendering thread. A message after the end of the renderer is dropped.
    fn send(&self, message: RendererMessage) {
        self.messages.send(message).ok();
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Prints a message on a line of its own.
    pub fn note(&self, text: &str) {
        self.send(RendererMessage::Note(text.to_owned()));
    }

    /// Prints a question, and waits until it is printed.
    pub async fn ask(&self, text: String) {
        let (shown, is_shown) = oneshot::channel();
        self.send(RendererMessage::Question { text, shown });
        // If the renderer has ended, the question is not printed, and the caller waits only for the answer.
        is_shown.await.ok();
    }

    pub fn close_question(&self, note: Option<&str>) {
        self.send(RendererMessage::QuestionClosed(note.map(str::to_owned)));
    }
}

pub struct Renderer {
    sender: RendererSender,
    shown: oneshot::Receiver<RenderOutcome>,
}

/// The result of rendering a whole run.
#[derive(Debug, Default)]
pub struct RenderOutcome {
    /// The first error of a write to the output; `None` if everything was written.
    pub write_error: Option<io::Error>,
}

const IDLE_INTERVAL: Duration = Duration::from_millis(500);
/// Interval at which events are rendered together. Waking the rendering thread for each event would cost more than the
/// rendering.
const BATCH_INTERVAL: Duration = Duration::from_millis(16);

impl Renderer {
    /// Starts the rendering thread. `runtime` is the runtime that executes the run.
    pub fn start(
        report: &Printer,
        (events, is_chat): (bool, bool),
        (spaces, engine): (&Spaces, &Engine),
        live: EventStream,
        channel: (RendererSender, RendererMessages),
        runtime: &Handle,
    ) -> io::Result<Self> {
        let show: Box<dyn Render> = match report.format() {
            Format::Json => Box::new(JsonRenderer::new(events)),
            Format::Human | Format::Plain => {
                let show = HumanRenderer::new(report, events, is_chat);
                Box::new(show.with_spaces(spaces).with_engine(engine))
            }
        };
        Self::spawn(show, live, channel, runtime)
    }

    /// Starts a renderer without output.
    pub fn null(live: EventStream, channel: (RendererSender, RendererMessages), runtime: &Handle) -> io::Result<Self> {
        Self::spawn(Box::new(NullRenderer), live, channel, runtime)
    }

    fn spawn(
        mut show: Box<dyn Render>,
        live: EventStream,
        (sender, messages): (RendererSender, RendererMessages),
        runtime: &Handle,
    ) -> io::Result<Self> {
        Self::start_with(async move || print(live, messages, &mut *show).await, sender, runtime)
    }

    /// Starts the rendering thread, which runs the future that `render` returns.
    pub fn start_with<F: Future<Output = RenderOutcome>>(
        render: impl FnOnce() -> F + Send + 'static,
        sender: RendererSender,
        runtime: &Handle,
    ) -> io::Result<Self> {
        let (tell, shown) = oneshot::channel();
        let (runtime, thread) = (runtime.clone(), Arc::clone(&sender.thread));
        let started = std::thread::Builder::new().name("screen".to_owned()).spawn(move || {
            thread.set(std::thread::current()).ok();
            // Printing may block, so this thread runs nothing else.
            let all = runtime.block_on(render());
            // An error means that the `Renderer` was dropped. Then the outcome is not needed.
            tell.send(all).ok();
        });
        started.map_err(|error| no_thread(&error))?;
        Ok(Self { sender, shown })
    }

    /// Reports that the user has sent a stop signal, and prints `text`.
    pub fn stop(&self, text: &str) {
        self.sender.send(RendererMessage::Stop(text.to_owned()));
    }

    /// Prints a message on lines of its own, and waits until it is printed.
    pub async fn note_and_wait(&self, text: &str) {
        let (tell, printed) = oneshot::channel();
        self.sender.send(RendererMessage::AwaitedNote { text: text.to_owned(), printed: tell });
        // An error means that the rendering thread has ended. Then the message is not printed.
        printed.await.ok();
    }

    /// Renders the result and waits until all output is written.
    pub async fn end(self, end: RunEnd) -> RenderOutcome {
        self.sender.send(RendererMessage::End(Box::new(end)));
        drop(self.sender);
        self.shown.await.unwrap_or_default()
    }
}

async fn print(
    mut live: EventStream,
    mut messages: mpsc::UnboundedReceiver<RendererMessage>,
    show: &mut dyn Render,
) -> RenderOutcome {
    let mut shown = RenderOutcome::default();
    let (mut end, mut is_open, mut is_quiet) = (None, true, true);
    // Events that arrived while a question was open.
    let (mut held, mut is_asking) = (Vec::new(), false);
    let mut moments = tokio::time::interval(IDLE_INTERVAL);
    let mut repaints = tokio::time::interval(REPAINT_INTERVAL);
    repaints.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while is_open || end.is_none() {
        if is_open && live.is_idle() {
            show.flush();
            if !is_quiet {
                // This thread may block, because it only renders. The wait ends early if a message is sent.
                std::thread::park_timeout(BATCH_INTERVAL);
            }
        }
        tokio::select! {
            biased;
            next = live.next(), if is_open => match next {
                Some(live) => {
                    is_quiet = false;
                    if is_asking {
                        held.push(live);
                    } else {
                        show.live(&live);
                    }
                }
                None => is_open = false,
            },
            message = messages.recv(), if end.is_none() => match message {
                Some(RendererMessage::Note(text)) => show.note(&text),
                Some(RendererMessage::AwaitedNote { text, printed }) => {
                    show.note(&text);
                    printed.send(()).ok();
                }
                Some(RendererMessage::Stop(text)) => {
                    show.stop();
                    show.note(&if is_asking { format!("\n{text}") } else { text });
                }
                Some(RendererMessage::Question { text, shown }) => {
                    show.flush();
                    show.question(&text);
                    is_asking = true;
                    shown.send(()).ok();
                }
                Some(RendererMessage::QuestionClosed(note)) => {
                    is_asking = false;
                    if let Some(note) = note {
                        show.note(&format!("\n{note}"));
                    }
                    for live in held.drain(..) {
                        show.live(&live);
                    }
                }
                Some(RendererMessage::End(ended)) => {
                    is_open &= !ended.has_background;
                    end = Some(ended);
                }
                // The renderer handle was dropped: the result is not rendered.
                None => return shown,
            },
            _ = moments.tick() => if std::mem::replace(&mut is_quiet, true) && !is_asking { show.idle() },
            _ = repaints.tick(), if show.is_animated() && !is_asking => show.tick(),
        }
    }
    for live in &held {
        show.live(live);
    }
    let dropped = live.dropped();
    if dropped > 0 && show.needs_every_piece() {
        show.note(&format!("streamed pieces not printed, because the output was too slow: {dropped}"));
    }
    shown.write_error = end.and_then(|end| show.end(*end));
    shown
}

/// A renderer that prints nothing.
struct NullRenderer;

impl Render for NullRenderer {
    fn live(&mut self, _: &StreamEvent) {}
    fn note(&mut self, _: &str) {}
    fn end(&mut self, _: RunEnd) -> Option<io::Error> {
        None
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_message_wakes_the_rendering_thread() {
        let messages: [fn(&RendererSender); 3] = [
            |sender| sender.note("a note"),
            |sender| sender.close_question(None),
            |sender| {
                let sender = sender.clone();
                tokio::spawn(async move { sender.ask("a question".to_owned()).await });
            },
        ];
        for send in messages {
            let (sender, _messages) = RendererSender::channel();
            let (ready, is_ready) = oneshot::channel();
            let render = async move || {
                ready.send(()).ok();
                std::thread::park();
                RenderOutcome::default()
            };
            let renderer = Renderer::start_with(render, sender.clone(), &Handle::current()).unwrap();
            is_ready.await.unwrap();
            send(&sender);
            tokio::time::timeout(Duration::from_secs(30), renderer.shown).await.unwrap().unwrap();
        }
    }
}
