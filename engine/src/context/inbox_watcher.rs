//! Delivery of the control messages that other processes write into the inboxes of this process's threads.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::EngineContext;
use crate::BoxFuture;
use crate::control::ControlSender;
use crate::event::ControlMessage;
use crate::store::disk::{Disk, NameWatch};
use crate::store::{layout, mailbox};
use crate::thread_id::ThreadId;

/// Delay between the start or end of a thread and the update of the watched folders. A thread that ends within this
/// delay is never watched.
const UPDATE_DELAY: Duration = Duration::from_millis(500);
/// Interval between two reads of the inboxes, if the disk cannot report changes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The watched inboxes of the running threads.
struct InboxWatcher {
    disk: Arc<dyn Disk>,
    /// The source of reported inbox changes. `None` if the disk cannot report changes. The inboxes are then polled.
    watch: Option<Box<dyn NameWatch>>,
    threads: BTreeMap<ThreadId, ControlSender>,
}

/// Delivers messages until no thread runs or the engine is dropped. `threads_changed` is
/// notified when a thread starts or ends.
pub(super) async fn watch_inboxes(engine: Weak<EngineContext>, threads_changed: Arc<Notify>) {
    let mut watcher: Option<InboxWatcher> = None;
    let mut update_at = Some(Instant::now() + UPDATE_DELAY);
    loop {
        let polled_at = Instant::now() + POLL_INTERVAL;
        let is_polled = watcher.as_ref().is_some_and(|watcher| watcher.watch.is_none());
        let deadline = update_at.into_iter().chain(is_polled.then_some(polled_at)).min();
        let reported = tokio::select! {
            folders = reported_folders(&mut watcher) => Some(folders),
            () = threads_changed.notified() => {
                update_at.get_or_insert_with(|| Instant::now() + UPDATE_DELAY);
                continue;
            }
            () = sleep_until(deadline) => None,
        };
        let Some(engine) = engine.upgrade() else { return };
        let mut current = watcher.take().unwrap_or_else(|| InboxWatcher::new(Arc::clone(&engine.disk)));
        let is_due = update_at.is_some_and(|due| due <= Instant::now());
        if is_due {
            update_at = None;
        }
        let running = is_due.then(|| engine.list_running());
        if running.as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        drop(engine);
        let work = move || {
            let mut threads = match reported {
                Some(folders) => current.changed_inboxes(folders),
                None => BTreeSet::new(),
            };
            if let Some(running) = running {
                current.update(running);
            }
            if is_due || current.watch.is_none() {
                threads.extend(current.threads.keys().cloned());
            }
            current.deliver(&threads);
            current
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(current) => watcher = Some(current),
            // If the pass panicked, the next pass starts with a new watcher.
            Err(error) => {
                tracing::warn!(%error, "the mailboxes could not be read");
                update_at = Some(Instant::now() + UPDATE_DELAY);
            }
        }
    }
}

/// Waits until the disk reports changes, and returns the changed folders. Never completes if the disk cannot report
/// changes.
fn reported_folders(watcher: &mut Option<InboxWatcher>) -> BoxFuture<'_, io::Result<BTreeSet<PathBuf>>> {
    match watcher.as_mut().and_then(|watcher| watcher.watch.as_mut()) {
        Some(watch) => watch.changed(),
        None => Box::pin(std::future::pending()),
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

impl InboxWatcher {
    /// Creates a watcher that watches no threads yet. Must be called inside a Tokio runtime.
    fn new(disk: Arc<dyn Disk>) -> Self {
        let watch = disk.name_watch().unwrap_or_else(|error| {
            tracing::info!(%error, "the disk does not report new messages: the mailboxes are polled");
            None
        });
        Self { disk, watch, threads: BTreeMap::new() }
    }

    /// Watches the inboxes of these threads and of no others.
    fn update(&mut self, running: Vec<(ThreadId, ControlSender)>) {
        let before = std::mem::replace(&mut self.threads, running.into_iter().collect());
        let ended: Vec<ThreadId> = before.keys().filter(|id| !self.threads.contains_key(*id)).cloned().collect();
        for thread in &ended {
            if let Some(watch) = &mut self.watch {
                watch.remove(&layout::inbox(thread));
                watch.remove(&layout::thread_folder(thread));
            }
        }
        let new: Vec<ThreadId> = self.threads.keys().filter(|id| !before.contains_key(*id)).cloned().collect();
        for thread in &new {
            self.watch_inbox(thread);
        }
    }

    /// Returns the threads whose inboxes may have new messages, because their folders changed. After a watch error,
    /// returns no thread and polls every inbox from now on.
    fn changed_inboxes(&mut self, changed: io::Result<BTreeSet<PathBuf>>) -> BTreeSet<ThreadId> {
        let folders = match changed {
            Ok(folders) => folders,
            Err(error) => {
                self.poll(&error);
                return BTreeSet::new();
            }
        };
        let is_changed = |thread: &&ThreadId| {
            folders.contains(&layout::inbox(thread)) || folders.contains(&layout::thread_folder(thread))
        };
        let threads: BTreeSet<ThreadId> = self.threads.keys().filter(is_changed).cloned().collect();
        // The inbox of a changed thread may be new (just created, or removed and created again), so it needs a watch.
        for thread in &threads {
            self.watch_inbox(thread);
        }
        threads
    }

    /// Watches the inbox of a thread. If the inbox does not exist yet, watches the folder of the thread instead,
    /// because the first message creates the inbox there.
    fn watch_inbox(&mut self, thread: &ThreadId) {
        let (inbox, folder) = (layout::inbox(thread), layout::thread_folder(thread));
        let Some(watch) = &mut self.watch else { return };
        let watched = match watch.add_files(&inbox) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match watch.add_folders(&folder) {
                // The inbox may have been created before `add_folders` took effect, so this tries again.
                Ok(()) => match watch.add_files(&inbox) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    added => added,
                },
                Err(error) => Err(error),
            },
            added => {
                watch.remove(&folder);
                added
            }
        };
        if let Err(error) = watched {
            self.poll(&error);
        }
    }

    /// Polls every inbox from now on, because the disk cannot report changes.
    fn poll(&mut self, error: &io::Error) {
        tracing::info!(%error, "the disk does not report new messages: the mailboxes are polled");
        self.watch = None;
    }

    /// Delivers the messages in the inboxes of these threads. A message whose file is not removed yet is delivered
    /// again. The receiver recognizes the id of such a message and ignores the message.
    fn deliver(&self, threads: &BTreeSet<ThreadId>) {
        for (thread, control) in threads.iter().filter_map(|thread| self.threads.get_key_value(thread)) {
            match mailbox::list(&*self.disk, thread) {
                Ok(mails) => {
                    for mail in mails {
                        control.deliver(mail.id, ControlMessage::from_file(mail.body));
                    }
                }
                Err(error) => tracing::warn!(%thread, %error, "unreadable inbox"),
            }
        }
    }
}
