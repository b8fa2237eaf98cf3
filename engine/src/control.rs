//! Inputs of a running thread: control messages from this process or from the mailbox on disk, stopped calls, file
//! changes to record, and the ends of children that no call waits for.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use rye_compiler::plan::Plan;
use tokio::sync::{mpsc, oneshot, watch};

use crate::event::{ControlMessage, Delivery, FileChanged, UserInput};
use crate::live_state::{LiveState, StateCell};
use crate::machine::ThreadState;
use crate::machine::state::ChatState;
use crate::thread::{Cost, Status};

/// An input of a running thread: a control message, the end of a call or a child, or a file change to record.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    Message {
        /// Id of the message. A message takes effect once, even if it is delivered twice.
        id: String,
        message: ControlMessage,
        /// True if the message has a file in the mailbox. The file stays in the mailbox until the message is recorded.
        on_disk: bool,
        /// Notifies the sender once the record of the message is on disk; `None` if the sender does not wait.
        recorded: Option<RecordWaiter>,
    },
    /// Stops a call that the calling MCP client has cancelled. The transcript records the error of the call, but not
    /// the stop.
    StopCall { call_id: String },
    /// A file tool is about to write a file. The tool waits until the change is recorded.
    FileChanged { change: FileChanged, recorded: RecordWaiter },
    /// A child ended.
    ChildEnded { spawn: u64, thread_id: String, status: Status, cost: Cost },
}

/// The sender of a notification that a record is on disk. A file tool writes the file only after the record of its
/// change is on disk. A client gets its response only after the record of its message is on disk.
#[derive(Debug, Clone)]
pub struct RecordWaiter(Arc<Mutex<Option<oneshot::Sender<()>>>>);

impl PartialEq for RecordWaiter {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl RecordWaiter {
    /// Creates a sender, and a receiver that waits until the record is on disk.
    pub fn new() -> (Self, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }

    /// Returns true while the file tool or the client at the receiver waits. Returns false after [`Self::confirm`], and
    /// if the receiver was dropped. The receiver is dropped if, for example, the call of the tool is stopped.
    pub fn is_waiting(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(|sender| !sender.is_closed())
    }

    /// Notifies the file tool or the client at the receiver that the record is on disk.
    pub fn confirm(&self) {
        if let Some(sender) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The receiver no longer exists if its call has ended.
            sender.send(()).ok();
        }
    }
}

/// The receiving end of a thread's channel for control messages, held by the thread.
#[derive(Debug)]
pub struct ControlReceiver {
    receiver: mpsc::UnboundedReceiver<Box<Incoming>>,
    /// Inputs that [`Self::stopped`] received while it waited for a stop. The next reads return these inputs first.
    again: VecDeque<Incoming>,
    state: StateCell,
}

/// The sending end of a thread's channel for control messages. Clones send to the same thread.
#[derive(Debug, Clone)]
pub struct ControlSender {
    /// The sender of the inputs. An input is boxed, because the channel of each thread allocates space for 32 inputs at
    /// once.
    sender: mpsc::UnboundedSender<Box<Incoming>>,
    state: StateCell,
    /// The sender of the thread that continues this thread. Once the field is set, every input is sent to the
    /// continuing thread.
    next: Arc<RwLock<Option<ControlSender>>>,
    /// Ids of the messages that earlier threads of the chain of continuations have received.
    received_before: Arc<RwLock<BTreeSet<String>>>,
    /// Name of this process. Message ids contain the name, so that the ids of two processes differ.
    owner: String,
}

static SENT_COUNT: AtomicU64 = AtomicU64::new(0);

/// Creates a channel for the control messages of a thread; `owner` names this process.
pub(crate) fn control_channel(owner: impl Into<String>) -> (ControlSender, ControlReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let state = StateCell::default();
    let receiver = ControlReceiver { receiver, again: VecDeque::new(), state: state.clone() };
    let owner = owner.into();
    (ControlSender { sender, state, next: Arc::default(), received_before: Arc::default(), owner }, receiver)
}

impl Incoming {
    /// Returns true for a control message that ends the thread: cancel or kill.
    fn ends_thread(&self) -> bool {
        matches!(self, Self::Message { message, .. } if message.end_status().is_some())
    }
}

impl ControlSender {
    /// Redirects this sender and its clones to `to`, the sender of the thread that continues this thread. From now on,
    /// every message goes to that thread. `received` contains the ids of the messages that this thread has received.
    /// The continuation does not receive them again.
    pub fn redirect(&self, to: &Self, received: &BTreeSet<String>) {
        to.state.continue_from(&self.state);
        // The lock delays the ids of an earlier thread until the continuation is known.
        let mut next = self.next.write().unwrap_or_else(PoisonError::into_inner);
        let before = self.received_before.read().unwrap_or_else(PoisonError::into_inner);
        to.add_received_before(before.union(received));
        drop(before);
        *next = Some(to.clone());
        drop(next);
        self.state.wake();
    }

    /// Adds the ids of messages that earlier threads have received to this sender and to the senders of all threads
    /// that continue the thread. Such threads can already exist, because a continuation can itself be continued before
    /// an earlier thread is redirected to it.
    fn add_received_before<'i>(&self, ids: impl Iterator<Item = &'i String>) {
        let ids: Vec<&String> = ids.collect();
        let mut thread = self.clone();
        loop {
            let next = thread.next().clone();
            thread.received_before.write().unwrap_or_else(PoisonError::into_inner).extend(ids.iter().copied().cloned());
            // A redirection between the two lines above has copied the ids of this sender before `ids` were added.
            match next.or_else(|| thread.next().clone()) {
                Some(following) => thread = following,
                None => return,
            }
        }
    }

    /// Passes an input on to the last thread of the chain of continuations. Returns false if that thread has ended.
    pub fn forward(&self, item: Incoming) -> bool {
        // The read lock delays a redirection until this input is sent. After a redirection, all unread inputs are moved
        // to the next thread, including this input.
        match &*self.next() {
            Some(next) => next.forward(item),
            None => self.sender.send(Box::new(item)).is_ok(),
        }
    }

    fn next(&self) -> RwLockReadGuard<'_, Option<Self>> {
        self.next.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver that wakes when the state of a chat changes, and when another thread continues the chat.
    /// After such a continuation, call this method again for a receiver of the new thread's state.
    pub fn state_changes(&self) -> watch::Receiver<Option<LiveState>> {
        self.state().subscribe()
    }

    fn state(&self) -> StateCell {
        self.last().state
    }

    /// Returns the sender of the last thread of the chain of continuations.
    fn last(&self) -> Self {
        self.next().as_ref().map_or_else(|| self.clone(), Self::last)
    }

    fn was_received_before(&self, id: &str) -> bool {
        self.received_before.read().unwrap_or_else(PoisonError::into_inner).contains(id)
    }

    /// Sends a control message from this process. Returns false if the thread has ended.
    pub fn send(&self, message: ControlMessage) -> bool {
        self.send_with_id(message).is_some()
    }

    /// Submits a message to a chat. Returns the id that the events of the message contain; `None` if the thread has
    /// ended.
    pub fn submit(&self, input: UserInput, delivery: Delivery) -> Option<String> {
        self.send_with_id(ControlMessage::Submit { input, delivery })
    }

    /// Submits a message to a chat, and waits until the record of the message is on disk. Returns the id of the message;
    /// `None` if the thread has ended, or cannot write the record.
    pub async fn submit_recorded(&self, input: UserInput, delivery: Delivery) -> Option<String> {
        self.send_recorded(ControlMessage::Submit { input, delivery }).await
    }

    /// Sends a control message, and waits until the record of the message is on disk. Returns the id of the message;
    /// `None` if the thread has ended, or cannot write the record.
    pub async fn send_recorded(&self, message: ControlMessage) -> Option<String> {
        let (id, (recorded, is_recorded)) = (self.next_id(), RecordWaiter::new());
        let post = Incoming::Message { id: id.clone(), message, on_disk: false, recorded: Some(recorded) };
        (self.forward(post) && is_recorded.await.is_ok()).then_some(id)
    }

    /// Sends a control message from this process. Returns its id; `None` if the thread has ended.
    pub fn send_with_id(&self, message: ControlMessage) -> Option<String> {
        let id = self.next_id();
        self.forward(Incoming::Message { id: id.clone(), message, on_disk: false, recorded: None }).then_some(id)
    }

    /// Returns the latest state of a chat that the driver has published. If there is no state yet, waits for the first
    /// one.
    pub async fn started_state(&self) -> LiveState {
        loop {
            let mut states = self.state().subscribe();
            let live = states.borrow_and_update().clone();
            if let Some(live) = live {
                return live;
            }
            // `changed` cannot fail: this sender keeps the channel open. A redirection also ends the wait.
            states.changed().await.ok();
        }
    }

    /// Waits until the session has handled a message and is idle again. The message may have been received by an earlier
    /// thread that the current one continues.
    pub async fn settled(&self, id: &str) {
        self.received_and(id, LiveState::is_settled).await;
    }

    /// Returns true if the session has received a message and waits for the user.
    pub fn has_settled(&self, id: &str) -> bool {
        let last = self.last();
        last.state.read().is_some_and(|live| last.has_received(&live, id) && live.is_settled())
    }

    fn has_received(&self, live: &LiveState, id: &str) -> bool {
        live.state.mailbox.received.contains(id) || self.was_received_before(id)
    }

    /// Returns true if the session has not received a message, or if the message is still queued.
    pub fn is_waiting(&self, id: &str) -> bool {
        let last = self.last();
        let Some(live) = last.state.read() else { return true };
        !last.has_received(&live, id) || live.state.queued_messages().any(|message| message.id == id)
    }

    /// Waits until the session has received a message and a prompt runs, or until the session has handled the message.
    pub async fn started(&self, id: &str) {
        self.received_and(id, |live| !live.state.is_idle() || live.is_settled()).await;
    }

    /// Waits until the session has received a message and every submitted prompt has reached the model or has ended.
    pub async fn prompts_delivered(&self, id: &str) {
        self.received_and(id, |live| live.state.chat.as_ref().is_none_or(|chat| chat.queue.is_empty())).await;
    }

    /// If an idle session continues in another thread, waits until the session has started there. Returns at once while
    /// a prompt, a command or a compaction runs, because the session continues only after its end.
    pub async fn successor_started(&self) {
        let is_busy =
            |chat: &ChatState| chat.current.is_some() || chat.compaction.is_some() || !chat.commands.is_empty();
        self.wait_for(|_, live| live.state.chat.as_ref().is_none_or(|chat| chat.successor.is_none() || is_busy(chat)))
            .await;
    }

    /// Waits until the session has received a message and its state fulfills a condition.
    async fn received_and(&self, id: &str, condition: fn(&LiveState) -> bool) {
        self.wait_for(|last, live| last.has_received(live, id) && condition(live)).await;
    }

    /// Waits until the published state of the last thread of the chain of continuations fulfills a condition.
    async fn wait_for(&self, condition: impl Fn(&Self, &LiveState) -> bool) {
        loop {
            let last = self.last();
            let mut states = last.state.subscribe();
            let is_fulfilled = states.borrow_and_update().as_ref().is_some_and(|live| condition(&last, live));
            if is_fulfilled || states.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns the plan and the state of a chat as they were when its latest effect started, or when its latest message
    /// was recorded or accepted. `None` before the first effect, and for a run, whose state is never published.
    pub fn live_state(&self) -> Option<LiveState> {
        self.state().read()
    }

    /// Returns true if this process has sent a message with this id.
    pub fn has_sent(&self, id: &str) -> bool {
        let number = id.strip_prefix(&self.owner).and_then(|rest| rest.strip_prefix('.')?.parse::<u64>().ok());
        number.is_some_and(|number| number < SENT_COUNT.load(Ordering::Relaxed))
    }

    fn next_id(&self) -> String {
        format!("{}.{}", self.owner, SENT_COUNT.fetch_add(1, Ordering::Relaxed))
    }

    /// Delivers a control message that was read from the mailbox. Returns false if the thread has ended.
    pub fn deliver(&self, id: String, message: ControlMessage) -> bool {
        self.forward(Incoming::Message { id, message, on_disk: true, recorded: None })
    }

    /// Stops the call with this id. Returns false if the thread has ended.
    pub(crate) fn stop_call(&self, call_id: String) -> bool {
        self.forward(Incoming::StopCall { call_id })
    }

    /// Requests that the thread records a file change. `recorded` notifies the file tool when the record is on disk.
    /// Returns false if the thread has ended.
    pub(crate) fn record_change(&self, change: FileChanged, recorded: RecordWaiter) -> bool {
        self.forward(Incoming::FileChanged { change, recorded })
    }

    /// Reports the end of a child to the thread. Returns false if the thread itself has ended.
    pub fn child_ended(&self, spawn: u64, thread_id: String, status: Status, cost: Cost) -> bool {
        self.forward(Incoming::ChildEnded { spawn, thread_id, status, cost })
    }
}

impl ControlReceiver {
    /// Publishes the state of the thread to the holders of a [`ControlSender`].
    pub(crate) fn publish(&self, plan: &Arc<Plan>, state: &ThreadState) {
        self.state.publish(plan, state);
    }

    /// Waits for the next input. Returns `None` once every sender is dropped.
    pub async fn next(&mut self) -> Option<Incoming> {
        match self.again.pop_front() {
            Some(post) => Some(post),
            None => self.receiver.recv().await.map(|item| *item),
        }
    }

    /// Returns the next input if one has arrived; `None` otherwise. Does not wait.
    pub(crate) fn try_next(&mut self) -> Option<Incoming> {
        self.again.pop_front().or_else(|| self.receiver.try_recv().ok().map(|item| *item))
    }

    /// Waits for an input that ends the thread. Inputs received while waiting stay in the queue. Without senders, this
    /// function waits forever.
    pub async fn stopped(&mut self) {
        while let Some(post) = self.receiver.recv().await {
            let stops = post.ends_thread();
            self.again.push_back(*post);
            if stops {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn message_of_the_first_thread_settles_after_two_handoffs_in_any_order() {
        for is_late in [false, true] {
            let [(first, _), (second, _), (third, receiver)] = [(); 3].map(|()| control_channel("test"));
            let ids = BTreeSet::from(["typed".to_owned()]);
            let none = BTreeSet::new();
            if is_late {
                second.redirect(&third, &none);
                first.redirect(&second, &ids);
            } else {
                first.redirect(&second, &ids);
                second.redirect(&third, &none);
            }
            let idle = ThreadState { chat: Some(ChatState::default()), ..ThreadState::new() };
            receiver.publish(&Arc::new(crate::machine::fixture::plan()), &idle);
            let settled = tokio::time::timeout(std::time::Duration::from_secs(10), first.settled("typed"));
            assert!(settled.await.is_ok(), "late: {is_late}");
        }
    }
}
