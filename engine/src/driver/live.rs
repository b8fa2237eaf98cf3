//! What watchers see while a thread runs: recorded events, all of them, and deltas, as many as they can follow. Watching
//! never holds a thread up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::mpsc;

use crate::event::Event;
use crate::provider::Delta;
use crate::thread_id::ThreadId;

/// Something a watcher may want to show.
#[derive(Debug, Clone, PartialEq)]
pub enum Live {
    /// An event that is in the transcript.
    Event { thread: ThreadId, event: Arc<Event> },
    /// A piece of a reply that is streaming in; not recorded, and dropped when the watcher is slow.
    Delta { thread: ThreadId, delta: Delta },
}

/// Where a thread and its children put what happens.
#[derive(Debug)]
pub struct Outlet {
    sender: mpsc::UnboundedSender<Live>,
    waiting: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
}

/// The watcher's end. Dropping it is fine.
#[derive(Debug)]
pub struct LiveEvents {
    receiver: mpsc::UnboundedReceiver<Live>,
    waiting: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
}

/// Deltas are dropped while more than this waits.
const BACKLOG: usize = 1024;

/// Both ends.
pub fn channel() -> (Outlet, LiveEvents) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (waiting, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let outlet = Outlet { sender, waiting: Arc::clone(&waiting), dropped: Arc::clone(&dropped) };
    (outlet, LiveEvents { receiver, waiting, dropped })
}

impl Outlet {
    pub fn emit(&self, live: Live) {
        if matches!(live, Live::Delta { .. }) && self.waiting.load(Ordering::Relaxed) > BACKLOG {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if self.sender.send(live).is_ok() {
            self.waiting.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether nobody watches any more.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl LiveEvents {
    /// Hands the watching over to somebody else; here nothing is seen any more.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, channel().1)
    }

    /// What happens next; `None` once the thread and everything it started are over.
    pub async fn next(&mut self) -> Option<Live> {
        let live = self.receiver.recv().await?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(live)
    }

    /// Whether nothing waits to be taken, and something may still come.
    pub fn is_idle(&self) -> bool {
        self.receiver.is_empty() && !self.receiver.is_closed()
    }

    /// Deltas that were dropped because nobody took them in time.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
