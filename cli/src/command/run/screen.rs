//! Where what happens is shown: a thread of its own that prints, so that a reader who is slow or gone holds nothing up.

use std::io;
use std::thread::Thread;
use std::time::Duration;

use rye_compiler::plan::Asked;
use rye_engine::driver::{Live, LiveEvents};
use rye_engine::event::EventBody;
use rye_engine::thread::RunResult;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::json::Json;
use super::people::People;
use crate::args::Format;
use crate::report::Report;

/// Something that shows a run.
pub trait Show: Send {
    fn live(&mut self, live: &Live);
    /// Something about the run that is no event.
    fn note(&mut self, text: &str);
    /// What was shown so far has to be seen: nothing else waits to be shown with it.
    fn flush(&mut self) {}
    /// Nothing happened for a moment.
    fn idle(&mut self) {}
    /// The end; answers why not everything could be shown, if so.
    fn end(&mut self, result: RunResult) -> Option<io::Error>;
}

enum Message {
    Note(String),
    End(Box<RunResult>),
}

pub struct Screen {
    sender: mpsc::UnboundedSender<Message>,
    shown: oneshot::Receiver<Shown>,
    thread: Thread,
}

/// What is known once everything is shown.
#[derive(Debug, Default)]
pub struct Shown {
    /// Why not all of it could be.
    pub trouble: Option<io::Error>,
    /// What the thread asked last.
    pub asked: Option<Asked>,
}

const MOMENT: Duration = Duration::from_millis(500);
/// What comes within this time is shown together: waking a thread for each event costs more than showing it.
const TOGETHER: Duration = Duration::from_millis(16);

impl Screen {
    /// Starts to show what happens. `runtime` is where it happens.
    pub fn start(report: &Report, events: bool, live: LiveEvents, runtime: &Handle) -> io::Result<Self> {
        let show: Box<dyn Show> = match report.format() {
            Format::Json => Box::new(Json::new(events)),
            Format::Human | Format::Plain => Box::new(People::new(report, events)),
        };
        Self::with(show, live, runtime)
    }

    /// Shows nothing.
    pub fn dark(live: LiveEvents, runtime: &Handle) -> io::Result<Self> {
        Self::with(Box::new(Dark), live, runtime)
    }

    fn with(mut show: Box<dyn Show>, live: LiveEvents, runtime: &Handle) -> io::Result<Self> {
        let (sender, messages) = mpsc::unbounded_channel();
        let (tell, shown) = oneshot::channel();
        let runtime = runtime.clone();
        let screen = std::thread::Builder::new().name("screen".to_owned()).spawn(move || {
            // Printing may block: nothing else runs on this thread.
            let all = runtime.block_on(print(live, messages, &mut *show));
            // Whoever waited may have given up.
            tell.send(all).ok();
        })?;
        Ok(Self { sender, shown, thread: screen.thread().clone() })
    }

    pub fn note(&self, text: &str) {
        self.sender.send(Message::Note(text.to_owned())).ok();
        self.thread.unpark();
    }

    /// Shows the end, and waits until everything is shown.
    pub async fn end(self, result: RunResult) -> Shown {
        self.sender.send(Message::End(Box::new(result))).ok();
        drop(self.sender);
        self.thread.unpark();
        self.shown.await.unwrap_or_default()
    }
}

async fn print(mut live: LiveEvents, mut messages: mpsc::UnboundedReceiver<Message>, show: &mut dyn Show) -> Shown {
    let mut shown = Shown::default();
    let (mut end, mut is_open, mut is_quiet) = (None, true, true);
    let mut moments = tokio::time::interval(MOMENT);
    while is_open || end.is_none() {
        if is_open && live.is_idle() {
            show.flush();
            if !is_quiet {
                // This thread does nothing else. What is no event ends the wait.
                std::thread::park_timeout(TOGETHER);
            }
        }
        tokio::select! {
            biased;
            next = live.next(), if is_open => match next {
                Some(live) => {
                    is_quiet = false;
                    shown.asked = asked(&live).or(shown.asked);
                    show.live(&live);
                }
                None => is_open = false,
            },
            message = messages.recv(), if end.is_none() => match message {
                Some(Message::Note(text)) => show.note(&text),
                Some(Message::End(result)) => end = Some(result),
                // Nobody wants to see the end.
                None => return shown,
            },
            _ = moments.tick() => if std::mem::replace(&mut is_quiet, true) { show.idle() },
        }
    }
    let dropped = live.dropped();
    if dropped > 0 {
        show.note(&format!("{dropped} pieces of replies were not shown as they came: the reader was too slow"));
    }
    shown.trouble = end.and_then(|result| show.end(*result));
    shown
}

fn asked(live: &Live) -> Option<Asked> {
    let Live::Event { event, .. } = live else { return None };
    if let EventBody::ApprovalAsked(asked) = &event.body { Some(asked.asked) } else { None }
}

/// Nobody looks: the transcript has it all.
struct Dark;

impl Show for Dark {
    fn live(&mut self, _: &Live) {}
    fn note(&mut self, _: &str) {}
    fn end(&mut self, _: RunResult) -> Option<io::Error> {
        None
    }
}
