//! What reaches a running thread: letters from this process or, through the inbox on disk, from others, and the ends of
//! children that no call of it waits for.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use crate::event::Letter;
use crate::thread::{Cost, Status};

/// Something on its way to the thread.
#[derive(Debug, Clone, PartialEq)]
pub enum Post {
    Letter {
        /// Taken once by this id, however often it is delivered.
        id: String,
        letter: Letter,
        /// It lies in the inbox until it is recorded.
        on_disk: bool,
    },
    /// A child is over.
    ChildEnded { spawn: u64, thread_id: String, status: Status, cost: Cost },
}

/// The thread's end.
#[derive(Debug)]
pub struct Control {
    receiver: mpsc::UnboundedReceiver<Post>,
    /// Taken and put back.
    again: VecDeque<Post>,
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
    (Sender { sender, owner: owner.into() }, Control { receiver, again: VecDeque::new() })
}

impl Post {
    /// Whether it ends the thread.
    pub fn stops(&self) -> bool {
        matches!(self, Self::Letter { letter: Letter::Cancel | Letter::Kill, .. })
    }
}

impl Sender {
    /// Sends a letter from within this process; false if the thread is over.
    pub fn send(&self, letter: Letter) -> bool {
        let id = format!("{}.{}", self.owner, SENT.fetch_add(1, Ordering::Relaxed));
        self.sender.send(Post::Letter { id, letter, on_disk: false }).is_ok()
    }

    /// Delivers a letter found in the inbox.
    pub fn deliver(&self, id: String, letter: Letter) -> bool {
        self.sender.send(Post::Letter { id, letter, on_disk: true }).is_ok()
    }

    /// Tells the thread that a child is over; false if it is over itself.
    pub fn child_ended(&self, spawn: u64, thread_id: String, status: Status, cost: Cost) -> bool {
        self.sender.send(Post::ChildEnded { spawn, thread_id, status, cost }).is_ok()
    }
}

impl Control {
    /// What comes next; `None` when nobody can write any more.
    pub async fn next(&mut self) -> Option<Post> {
        match self.again.pop_front() {
            Some(post) => Some(post),
            None => self.receiver.recv().await,
        }
    }

    /// What is there already.
    pub fn try_next(&mut self) -> Option<Post> {
        self.again.pop_front().or_else(|| self.receiver.try_recv().ok())
    }

    /// Waits until something comes that ends the thread; all that came is there to be taken afterwards.
    pub async fn stopped(&mut self) {
        while let Some(post) = self.receiver.recv().await {
            let stops = post.stops();
            self.again.push_back(post);
            if stops {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}
