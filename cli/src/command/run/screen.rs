//! Where what happens is shown: a thread of its own that prints, so that a reader who is slow or gone holds nothing up.

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
    fn end(&mut self, result: RunResult);
}

enum Message {
    Live(Live),
    Note(String),
    End(Box<RunResult>),
}

pub struct Screen {
    sender: mpsc::Sender<Message>,
    done: oneshot::Receiver<()>,
}

const MOMENT: Duration = Duration::from_millis(500);

impl Screen {
    pub fn start(report: &Report, events: bool) -> Result<Self, Failure> {
        let mut show: Box<dyn Show> = match report.format() {
            Format::Json => Box::new(Json::new(events)),
            Format::Human | Format::Plain => Box::new(People::new(report, events)),
        };
        let (sender, receiver) = mpsc::channel();
        let (tell, done) = oneshot::channel();
        std::thread::Builder::new().name("screen".to_owned()).spawn(move || {
            print(&receiver, &mut *show);
            // Whoever waited may have given up.
            tell.send(()).ok();
        })?;
        Ok(Self { sender, done })
    }

    pub fn live(&self, live: Live) {
        self.sender.send(Message::Live(live)).ok();
    }

    pub fn note(&self, text: &str) {
        self.sender.send(Message::Note(text.to_owned())).ok();
    }

    /// Shows the end, and waits until everything is shown.
    pub async fn end(self, result: RunResult) {
        self.sender.send(Message::End(Box::new(result))).ok();
        drop(self.sender);
        self.done.await.ok();
    }
}

fn print(receiver: &mpsc::Receiver<Message>, show: &mut dyn Show) {
    loop {
        match receiver.recv_timeout(MOMENT) {
            Ok(Message::Live(live)) => show.live(&live),
            Ok(Message::Note(text)) => show.note(&text),
            Ok(Message::End(result)) => show.end(*result),
            Err(mpsc::RecvTimeoutError::Timeout) => show.idle(),
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}
