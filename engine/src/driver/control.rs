//! Letters to a running thread, from this process or, through the inbox on disk, from others.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use crate::event::Letter;

/// A letter on its way to the thread.
#[derive(Debug, Clone, PartialEq)]
pub struct Post {
    /// Taken once by this id, however often it is delivered.
    pub id: String,
    pub letter: Letter,
    /// It lies in the inbox until it is recorded.
    pub on_disk: bool,
}

/// The thread's end.
#[derive(Debug)]
pub struct Control {
    receiver: mpsc::UnboundedReceiver<Post>,
}

/// The other end; any number of them.
#[derive(Debug, Clone)]
pub struct Sender {
    sender: mpsc::UnboundedSender<Post>,
    /// Makes ids of this process unlike those of others.
    owner: String,
}

static SENT: AtomicU64 = AtomicU64::new(0);

/// Both ends; `owner` names this process.
pub fn channel(owner: impl Into<String>) -> (Sender, Control) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Sender { sender, owner: owner.into() }, Control { receiver })
}

impl Sender {
    /// Sends a letter from within this process; false if the thread is over.
    pub fn send(&self, letter: Letter) -> bool {
        let id = format!("{}.{}", self.owner, SENT.fetch_add(1, Ordering::Relaxed));
        self.sender.send(Post { id, letter, on_disk: false }).is_ok()
    }

    /// Delivers a letter found in the inbox.
    pub fn deliver(&self, id: String, letter: Letter) -> bool {
        self.sender.send(Post { id, letter, on_disk: true }).is_ok()
    }
}

impl Control {
    /// The next letter; `None` when nobody can write any more.
    pub async fn next(&mut self) -> Option<Post> {
        self.receiver.recv().await
    }

    /// A letter that is there already.
    pub fn try_next(&mut self) -> Option<Post> {
        self.receiver.try_recv().ok()
    }
}
