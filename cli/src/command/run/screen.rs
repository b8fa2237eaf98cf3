//! Where what happens is shown: a thread of its own that prints, so that a reader who is slow or gone holds nothing up.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use rye_engine::driver::Live;
use rye_engine::thread::RunResult;
use tokio::sync::oneshot;

use super::json::Json;
use super::people::People;
use crate::Failure;
use crate::args::Format;
use crate::report::Report;

/// Something that shows a run.
pub trait Show: Send {
    fn live(&mut self, live: &Live);
    /// Something about the run that is no event.
    fn note(&mut self, text: &str);
    /// Nothing happened for a moment.
    fn idle(&mut self) {}
    /// The end; answers why not everything could be shown, if so.
    fn end(&mut self, result: RunResult) -> Option<io::Error>;
}

enum Message {
    Live(Live),
    Note(String),
    End(Box<RunResult>),
}

pub struct Screen {
    sender: mpsc::Sender<Message>,
    done: oneshot::Receiver<Option<io::Error>>,
    /// What is not printed yet.
    waiting: Arc<AtomicUsize>,
    /// Pieces of replies that were not shown, because the reader is slow.
    dropped: AtomicU64,
}

const MOMENT: Duration = Duration::from_millis(500);
/// Pieces of a reply are left out while more than this waits to be printed.
const BACKLOG: usize = 1024;

impl Screen {
    pub fn start(report: &Report, events: bool) -> Result<Self, Failure> {
        Self::with(match report.format() {
            Format::Json => Box::new(Json::new(events)),
            Format::Human | Format::Plain => Box::new(People::new(report, events)),
        })
    }

    /// Shows nothing.
    pub fn dark() -> Result<Self, Failure> {
        Self::with(Box::new(Dark))
    }

    fn with(mut show: Box<dyn Show>) -> Result<Self, Failure> {
        let (sender, receiver) = mpsc::channel();
        let (tell, done) = oneshot::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        std::thread::Builder::new().name("screen".to_owned()).spawn(move || {
            let trouble = print(&receiver, &left, &mut *show);
            // Whoever waited may have given up.
            tell.send(trouble).ok();
        })?;
        Ok(Self { sender, done, waiting, dropped: AtomicU64::new(0) })
    }

    pub fn live(&self, live: Live) {
        if matches!(live, Live::Delta { .. }) && self.waiting.load(Ordering::Relaxed) > BACKLOG {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.send(Message::Live(live));
    }

    pub fn note(&self, text: &str) {
        self.send(Message::Note(text.to_owned()));
    }

    /// Says how much of what streamed in was not shown; `before` is what did not even come here.
    pub fn dropped(&self, before: u64) {
        let dropped = self.dropped.load(Ordering::Relaxed).saturating_add(before);
        if dropped > 0 {
            self.note(&format!("{dropped} pieces of replies were not shown as they came: the reader was too slow"));
        }
    }

    /// Shows the end, and waits until everything is shown; answers why something could not be.
    pub async fn end(self, result: RunResult) -> Option<io::Error> {
        self.send(Message::End(Box::new(result)));
        drop(self.sender);
        self.done.await.ok().flatten()
    }

    fn send(&self, message: Message) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.sender.send(message).ok();
    }
}

fn print(receiver: &mpsc::Receiver<Message>, waiting: &AtomicUsize, show: &mut dyn Show) -> Option<io::Error> {
    let mut trouble = None;
    loop {
        let message = match receiver.recv_timeout(MOMENT) {
            Ok(message) => message,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                show.idle();
                continue;
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return trouble,
        };
        waiting.fetch_sub(1, Ordering::Relaxed);
        match message {
            Message::Live(live) => show.live(&live),
            Message::Note(text) => show.note(&text),
            Message::End(result) => trouble = show.end(*result),
        }
    }
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
