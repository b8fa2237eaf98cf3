//! The threads that run in this process, the threads that it is recovering, and the delivery of control messages to
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::{Inner, Running};
use crate::driver::control::Sender;
use crate::event::ControlMessage;
use crate::store::mailbox;
use crate::thread_id::ThreadId;

/// The threads that run in this process.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub threads: BTreeMap<ThreadId, Running>,
    /// Threads that this process is recovering, with the control messages that arrived meanwhile.
    taking: BTreeMap<ThreadId, Vec<ControlMessage>>,
    /// True while `watch_inboxes` runs.
    watched: bool,
    /// Number of children that a task waits for on behalf of a parent, perhaps after recovering them.
    attended: usize,
}

/// A guard: while it lives, the process counts as waiting for a child and is not idle.
pub(crate) struct AwaitedChildGuard(Arc<Inner>);

impl Drop for AwaitedChildGuard {
    fn drop(&mut self) {
        self.0.live().attended -= 1;
        self.0.gone.notify_waiters();
    }
}

/// A guard: while it lives, no other task of this process recovers the thread.
pub(crate) struct RecoveryGuard {
    engine: Arc<Inner>,
    thread: ThreadId,
}

impl Drop for RecoveryGuard {
    fn drop(&mut self) {
        self.engine.live().taking.remove(&self.thread);
        self.engine.gone.notify_waiters();
    }
}

impl Inner {
    /// Sends a control message to a thread that runs in this process or is being recovered. Returns false if the thread
    /// runs elsewhere or not at all.
    pub fn post(&self, thread: &ThreadId, letter: ControlMessage) -> bool {
        let mut live = self.live();
        if let Some(running) = live.threads.get(thread) {
            return running.control.send(letter);
        }
        live.taking.get_mut(thread).map(|letters| letters.push(letter)).is_some()
    }

    pub fn running(&self, thread: &ThreadId) -> Option<Running> {
        self.live().threads.get(thread).cloned()
    }

    /// Reserves the recovery of a thread for the caller. Returns `None` if the thread runs in this process, or if
    /// another task recovers it already.
    pub fn taking(self: &Arc<Self>, thread: &ThreadId) -> Option<RecoveryGuard> {
        let mut live = self.live();
        if live.threads.contains_key(thread) || live.taking.contains_key(thread) {
            return None;
        }
        live.taking.insert(thread.clone(), Vec::new());
        Some(RecoveryGuard { engine: Arc::clone(self), thread: thread.clone() })
    }

    /// Adds a thread to the list, with the control messages that arrived during its recovery. Starts the inbox watcher
    /// if it does not run.
    pub fn enlist(self: &Arc<Self>, thread: &ThreadId, running: Running) {
        let mut live = self.live();
        for letter in live.taking.get_mut(thread).map(std::mem::take).unwrap_or_default() {
            running.control.send(letter);
        }
        live.threads.insert(thread.clone(), running);
        self.counted(&live);
        if !std::mem::replace(&mut live.watched, true) {
            tokio::spawn(watch_inboxes(Arc::downgrade(self)));
        }
    }

    /// Keeps the process from being idle until the returned guard is dropped.
    pub fn attending(self: &Arc<Self>) -> AwaitedChildGuard {
        self.live().attended += 1;
        AwaitedChildGuard(Arc::clone(self))
    }

    pub(super) fn is_idle(&self) -> bool {
        let live = self.live();
        live.threads.is_empty() && live.attended == 0
    }

    pub fn dismiss(&self, thread: &ThreadId) {
        let mut live = self.live();
        live.threads.remove(thread);
        self.counted(&live);
        drop(live);
        self.gone.notify_waiters();
    }

    /// Publishes the number of running threads to the blocking pool and to the group commit.
    fn counted(&self, live: &Live) {
        self.crew.count(live.threads.len());
        self.writer.expect(live.threads.len());
    }

    /// Lists every running thread, whose inbox may hold messages. If there is none, marks the watcher as stopped.
    fn list_running(&self) -> Vec<(ThreadId, Sender)> {
        let mut live = self.live();
        live.watched = !live.threads.is_empty();
        live.threads.iter().map(|(id, running)| (id.clone(), running.control.clone())).collect()
    }

    pub(super) fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Interval between two polls of the inboxes of running threads.
const INBOX_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Polls the inboxes until no thread runs. If a message is delivered twice before its file is removed, the receiver
/// recognizes its id.
async fn watch_inboxes(engine: Weak<Inner>) {
    // Unreadable messages stay in the inbox; each is logged once.
    let mut told = BTreeSet::new();
    loop {
        tokio::time::sleep(INBOX_POLL_INTERVAL).await;
        let Some(engine) = engine.upgrade() else { return };
        let running = engine.list_running();
        if running.is_empty() {
            return;
        }
        let disk = Arc::clone(&engine.disk);
        let look = move || {
            let mut told = told;
            for (thread, control) in running {
                match mailbox::list(&*disk, &thread) {
                    Ok(mails) => {
                        for mail in mails {
                            match serde_json::from_value(mail.body) {
                                Ok(letter) => {
                                    control.deliver(mail.id, letter);
                                }
                                Err(error) => {
                                    if told.insert((thread.clone(), mail.id)) {
                                        tracing::warn!(%thread, %error, "a letter that cannot be read");
                                    }
                                }
                            }
                        }
                    }
                    Err(error) => tracing::warn!(%thread, %error, "an inbox that cannot be read"),
                }
            }
            told
        };
        told = tokio::task::spawn_blocking(look).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the inboxes could not be looked at");
            BTreeSet::new()
        });
    }
}
