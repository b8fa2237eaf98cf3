//! The threads that this process runs or recovers, and the delivery of control messages to them.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use rye_compiler::approvals;

use super::inbox_watcher::watch_inboxes;
use super::{EngineContext, RunningThread};
use crate::control::ControlSender;
use crate::control::RecordWaiter;
use crate::error::DriveError;
use crate::event::ControlMessage;
use crate::event::FileChanged;
use crate::store::{StoreError, mailbox};
use crate::thread::RunResult;
use crate::thread_id::ThreadId;

/// The threads that this process runs or recovers.
#[derive(Debug, Default)]
pub(crate) struct RunningThreads {
    pub threads: BTreeMap<ThreadId, RunningThread>,
    /// Threads that this process is recovering, each with the control messages that arrived since the recovery began.
    taking: BTreeMap<ThreadId, Vec<ControlMessage>>,
    /// True while `watch_inboxes` runs.
    watched: bool,
    /// Number of tasks in which a parent waits for a child. Some of these tasks recover the child first.
    attended: usize,
    /// Number of open approval requests in each tree of threads. The key is the root thread of the tree.
    asking: BTreeMap<String, usize>,
}

/// A guard for a tree of threads. Until the guard is dropped, a thread of the tree counts as waiting for an approval.
pub(crate) struct AskingGuard<'e> {
    engine: &'e EngineContext,
    root: String,
}

impl Drop for AskingGuard<'_> {
    fn drop(&mut self) {
        let mut live = self.engine.live();
        if let Some(open) = live.asking.get_mut(&self.root) {
            *open -= 1;
            if *open == 0 {
                live.asking.remove(&self.root);
            }
        }
    }
}

/// The outcome of the task that runs a thread and its continuations.
#[derive(Debug, Clone)]
pub(crate) struct TaskEnd {
    pub result: RunResult,
    /// The reason of a store failure; `None` if the store worked. After a store failure, the thread has not ended and
    /// its cost is unknown. A thread that waits for this thread also stops, and both threads are recovered together.
    pub store_failure: Option<String>,
}

impl From<RunResult> for TaskEnd {
    fn from(result: RunResult) -> Self {
        Self { result, store_failure: None }
    }
}

impl TaskEnd {
    /// Returns the result of the ended thread, for a thread that waits for the result. Fails if the thread stopped
    /// because of an error of the store.
    pub fn into_result(self) -> Result<RunResult, DriveError> {
        match self.store_failure {
            Some(reason) => Err(DriveError::ChildStopped { child: self.result.thread_id, reason }),
            None => Ok(self.result),
        }
    }
}

impl RunningThread {
    /// Waits for the end of the task, and returns the result of the last thread that the task ran.
    pub async fn result(&self) -> RunResult {
        self.end().await.result
    }

    /// Waits for the end of the task that runs the thread. A task that ended without a result counts as an engine
    /// failure.
    pub async fn end(&self) -> TaskEnd {
        let mut done = self.done.clone();
        let waited = done.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        waited.unwrap_or_else(|| RunResult::engine_failure("the task of the thread ended without a result").into())
    }
}

/// A guard. Until the guard is dropped, the process counts as waiting for a child and is not idle.
pub(crate) struct AwaitedChildGuard(Arc<EngineContext>);

impl Drop for AwaitedChildGuard {
    fn drop(&mut self) {
        self.0.live().attended -= 1;
        self.0.thread_ended.notify_waiters();
    }
}

/// A guard. Until the guard is dropped, no other task of this process recovers the thread.
pub(crate) struct RecoveryGuard {
    engine: Arc<EngineContext>,
    thread: ThreadId,
}

impl Drop for RecoveryGuard {
    fn drop(&mut self) {
        let undelivered = self.engine.live().taking.remove(&self.thread).unwrap_or_default();
        self.engine.thread_ended.notify_waiters();
        // The recovery failed. The control messages return to the mailbox, where the next recovery finds them, perhaps
        // in another process.
        for message in undelivered {
            if let Err(error) = self.engine.write_message(&self.thread, &message) {
                tracing::warn!(thread = %self.thread, %error, "a control message is lost");
            }
        }
    }
}

impl EngineContext {
    /// Sends a control message to a thread that runs in this process or is being recovered. Returns false if the thread
    /// runs elsewhere or not at all.
    pub fn send_message(&self, thread: &ThreadId, message: ControlMessage) -> bool {
        let mut live = self.live();
        if let Some(running) = live.threads.get(thread) {
            return running.control.send(message);
        }
        live.taking.get_mut(thread).map(|messages| messages.push(message)).is_some()
    }

    /// Requests that a running thread records a file change. Returns false if the thread does not run in this process.
    pub fn record_change(&self, thread: &ThreadId, change: FileChanged, recorded: RecordWaiter) -> bool {
        self.live().threads.get(thread).is_some_and(|running| running.control.record_change(change, recorded))
    }

    /// Waits until no thread of this process runs, including children that outlived their parents.
    pub async fn wait_idle(&self) {
        loop {
            let thread_ended = self.thread_ended.notified();
            if self.is_idle() {
                return;
            }
            thread_ended.await;
        }
    }

    /// Sends a control message to every thread of this process.
    pub fn broadcast(&self, message: &ControlMessage) {
        let controls: Vec<ControlSender> =
            self.live().threads.values().map(|running| running.control.clone()).collect();
        for control in controls {
            control.send(message.clone());
        }
    }

    /// Lists the threads that run in this process.
    pub fn running_threads(&self) -> Vec<ThreadId> {
        self.live().threads.keys().cloned().collect()
    }

    /// Returns true if a task of this process runs or recovers the thread.
    pub fn runs_here(&self, thread: &ThreadId) -> bool {
        let live = self.live();
        live.threads.contains_key(thread) || live.taking.contains_key(thread)
    }

    /// Writes a control message into the mailbox of a thread. Does nothing if the thread has no files. Blocks.
    pub fn write_message(&self, thread: &ThreadId, message: &ControlMessage) -> Result<(), DriveError> {
        let body = serde_json::to_value(message).map_err(|error| DriveError::Lost(error.to_string()))?;
        match mailbox::send(&*self.disk, thread, &body, self.clock.now()) {
            Err(StoreError::UnknownThread { .. }) => Ok(()),
            sent => Ok(sent.map(drop)?),
        }
    }

    pub fn running(&self, thread: &ThreadId) -> Option<RunningThread> {
        self.live().threads.get(thread).cloned()
    }

    /// Reserves the recovery of a thread for the caller. Returns `None` if the thread runs in this process, or if
    /// another task recovers it already.
    pub fn reserve_recovery(self: &Arc<Self>, thread: &ThreadId) -> Option<RecoveryGuard> {
        let mut live = self.live();
        if live.threads.contains_key(thread) || live.taking.contains_key(thread) {
            return None;
        }
        live.taking.insert(thread.clone(), Vec::new());
        Some(RecoveryGuard { engine: Arc::clone(self), thread: thread.clone() })
    }

    /// Adds a thread to the list of running threads, and sends it the control messages that arrived during its
    /// recovery. Starts the watcher of the inboxes if the watcher does not run yet.
    pub fn register(self: &Arc<Self>, thread: &ThreadId, running: RunningThread) {
        let mut live = self.live();
        for message in live.taking.get_mut(thread).map(std::mem::take).unwrap_or_default() {
            running.control.send(message);
        }
        live.threads.insert(thread.clone(), running);
        self.publish_count(&live);
        if !std::mem::replace(&mut live.watched, true) {
            tokio::spawn(watch_inboxes(Arc::downgrade(self), Arc::clone(&self.running_changed)));
        }
        self.running_changed.notify_one();
    }

    /// Marks a task as waiting for a child until the returned guard is dropped. Meanwhile, the process does not count
    /// as idle.
    pub fn await_child_guard(self: &Arc<Self>) -> AwaitedChildGuard {
        self.live().attended += 1;
        AwaitedChildGuard(Arc::clone(self))
    }

    /// Counts an open approval request in the tree of `root` until the returned guard is dropped.
    pub fn mark_asking(&self, root: &str) -> AskingGuard<'_> {
        *self.live().asking.entry(root.to_owned()).or_default() += 1;
        AskingGuard { engine: self, root: root.to_owned() }
    }

    /// Returns true if a thread in the tree of `root` waits for an approval.
    pub fn is_approval_pending(&self, root: &str) -> bool {
        self.live().asking.contains_key(root)
    }

    /// Waits for `approvals.timeout_seconds`, the time after which a thread is suspended if its approval request has no
    /// answer.
    pub async fn approval_timeout(&self) {
        let read = self.with_world(|world| Ok(approvals::timeout_seconds(world)));
        let seconds = match read.await {
            Ok(Ok(seconds)) => seconds,
            // If the setting cannot be read now, the default applies.
            Ok(Err(_)) | Err(_) => approvals::DEFAULT_TIMEOUT_SECONDS,
        };
        self.clock.elapse(seconds.saturating_mul(1000)).await;
    }

    pub fn is_idle(&self) -> bool {
        let live = self.live();
        live.threads.is_empty() && live.attended == 0
    }

    pub fn unregister(&self, thread: &ThreadId) {
        let mut live = self.live();
        live.threads.remove(thread);
        self.publish_count(&live);
        drop(live);
        self.thread_ended.notify_waiters();
        self.running_changed.notify_one();
    }

    /// Sets the number of running threads in `thread_count` and in the writer of the registry. From this number,
    /// `thread_count` determines where blocking I/O runs, and the writer determines whether a commit waits for other
    /// commits.
    fn publish_count(&self, live: &RunningThreads) {
        self.thread_count.set(live.threads.len());
        self.writer.set_running_threads(live.threads.len());
    }

    /// Lists every running thread, so that its inbox can be watched. If no thread runs, marks the watcher as stopped.
    pub(super) fn list_running(&self) -> Vec<(ThreadId, ControlSender)> {
        let mut live = self.live();
        live.watched = !live.threads.is_empty();
        live.threads.iter().map(|(id, running)| (id.clone(), running.control.clone())).collect()
    }

    pub(super) fn live(&self) -> MutexGuard<'_, RunningThreads> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
