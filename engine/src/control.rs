//! Input of a running thread: control messages from this process or from the mailbox on disk, stopped calls, and the
//! ends of children that no call waits for.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use rye_compiler::plan::Plan;
use tokio::sync::mpsc;

use crate::event::{ControlMessage, Delivery, UserInput};
use crate::live_state::{LiveState, StateCell};
use crate::machine::ThreadState;
use crate::thread::{Cost, Status};

/// An item for the thread: a control message, a stopped call or the end of a child.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    Message {
        /// The message takes effect once per id, even if it is delivered again.
        id: String,
        message: ControlMessage,
        /// The message's file stays in the mailbox until the message is recorded.
        on_disk: bool,
    },
    /// The caller has cancelled this call. The call's error is recorded, not the message.
    StopCall { call_id: String },
    /// A child ended.
    ChildEnded { spawn: u64, thread_id: String, status: Status, cost: Cost },
}

/// The receiving end of the channel, held by the thread.
#[derive(Debug)]
pub struct ControlReceiver {
    receiver: mpsc::UnboundedReceiver<Incoming>,
    /// Items that were received early and put back.
    again: VecDeque<Incoming>,
    state: StateCell,
}

/// The sending end of the channel. Clones send to the same thread.
#[derive(Debug, Clone)]
pub struct ControlSender {
    sender: Arc<RwLock<mpsc::UnboundedSender<Incoming>>>,
    /// The state of the thread that gets the messages.
    state: Arc<RwLock<StateCell>>,
    /// Distinguishes the message ids of this process from those of others.
    owner: String,
}

static SENT_COUNT: AtomicU64 = AtomicU64::new(0);

/// Creates a channel; `owner` names this process.
pub fn control_channel(owner: impl Into<String>) -> (ControlSender, ControlReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let sender = Arc::new(RwLock::new(sender));
    let cell = StateCell::default();
    let state = Arc::new(RwLock::new(cell.clone()));
    let receiver = ControlReceiver { receiver, again: VecDeque::new(), state: cell };
    (ControlSender { sender, state, owner: owner.into() }, receiver)
}

impl Incoming {
    /// Returns true if the item ends the thread.
    pub fn ends_thread(&self) -> bool {
        matches!(self, Self::Message { message, .. } if message.end_status().is_some())
    }
}

impl ControlSender {
    /// Sends everything to another thread from now on, for all clones.
    pub fn redirect(&self, to: &Self) {
        let target = to.sender().clone();
        *self.sender.write().unwrap_or_else(PoisonError::into_inner) = target;
        let cell = to.state.read().unwrap_or_else(PoisonError::into_inner).clone();
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = cell;
    }

    /// Passes an item on; returns false if the thread has ended.
    pub fn forward(&self, item: Incoming) -> bool {
        self.sender().send(item).is_ok()
    }

    fn sender(&self) -> RwLockReadGuard<'_, mpsc::UnboundedSender<Incoming>> {
        self.sender.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a control message from this process; returns false if the thread has ended.
    pub fn send(&self, message: ControlMessage) -> bool {
        let id = self.next_id();
        self.sender().send(Incoming::Message { id, message, on_disk: false }).is_ok()
    }

    /// Submits a message to a chat. Returns the id of the message, which its events have; `None` if the thread has
    /// ended.
    pub fn submit(&self, input: UserInput, delivery: Delivery) -> Option<String> {
        let id = self.next_id();
        let message = ControlMessage::Submit { input, delivery };
        self.sender().send(Incoming::Message { id: id.clone(), message, on_disk: false }).is_ok().then_some(id)
    }

    /// Returns the state of a chat at its last effect; `None` before the first one, and for runs.
    pub fn live_state(&self) -> Option<LiveState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).read()
    }

    fn next_id(&self) -> String {
        format!("{}.{}", self.owner, SENT_COUNT.fetch_add(1, Ordering::Relaxed))
    }

    /// Delivers a control message found in the mailbox; returns false if the thread has ended.
    pub fn deliver(&self, id: String, message: ControlMessage) -> bool {
        self.sender().send(Incoming::Message { id, message, on_disk: true }).is_ok()
    }

    /// Stops one call; returns false if the thread has ended.
    pub fn stop_call(&self, call_id: String) -> bool {
        self.sender().send(Incoming::StopCall { call_id }).is_ok()
    }

    /// Reports the end of a child; returns false if the thread itself has ended.
    pub fn child_ended(&self, spawn: u64, thread_id: String, status: Status, cost: Cost) -> bool {
        self.sender().send(Incoming::ChildEnded { spawn, thread_id, status, cost }).is_ok()
    }
}

impl ControlReceiver {
    /// Publishes the state of the thread for its senders.
    pub fn publish(&self, plan: &Arc<Plan>, state: &ThreadState) {
        self.state.publish(plan, state);
    }

    /// Waits for the next item; returns `None` once every sender is dropped.
    pub async fn next(&mut self) -> Option<Incoming> {
        match self.again.pop_front() {
            Some(post) => Some(post),
            None => self.receiver.recv().await,
        }
    }

    /// Returns the next item if one is available now.
    pub fn try_next(&mut self) -> Option<Incoming> {
        self.again.pop_front().or_else(|| self.receiver.try_recv().ok())
    }

    /// Waits for an item that ends the thread. Items received while waiting stay in the queue.
    pub async fn stopped(&mut self) {
        while let Some(post) = self.receiver.recv().await {
            let stops = post.ends_thread();
            self.again.push_back(post);
            if stops {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}
