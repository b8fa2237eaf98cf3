//! The threads that run in this process, those that it is just taking up, and those that are waited for; letters reach them here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::{Inner, Running};
use crate::driver::control::Sender;
use crate::event::Letter;
use crate::store::mailbox;
use crate::thread_id::ThreadId;

/// The threads that run in this process.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub threads: BTreeMap<ThreadId, Running>,
    /// Those that it is just taking up, with the letters that came meanwhile.
    taking: BTreeMap<ThreadId, Vec<Letter>>,
    /// Somebody looks at their inboxes.
    watched: bool,
    /// Children that somebody waits for on behalf of a parent, and may first have to take up.
    attended: usize,
}

/// While it is there, a child of this process is waited for.
pub(crate) struct Attending(Arc<Inner>);

impl Drop for Attending {
    fn drop(&mut self) {
        self.0.live().attended -= 1;
        self.0.gone.notify_waiters();
    }
}

/// While it is there, nobody else in this process takes the thread up.
pub(crate) struct Taking {
    engine: Arc<Inner>,
    thread: ThreadId,
}

impl Drop for Taking {
    fn drop(&mut self) {
        self.engine.live().taking.remove(&self.thread);
        self.engine.gone.notify_waiters();
    }
}

impl Inner {
    /// A letter to a thread of this process, also to one that it is just taking up; false if it runs elsewhere or not at all.
    pub fn post(&self, thread: &ThreadId, letter: Letter) -> bool {
        let mut live = self.live();
        if let Some(running) = live.threads.get(thread) {
            return running.control.send(letter);
        }
        live.taking.get_mut(thread).map(|letters| letters.push(letter)).is_some()
    }

    pub fn running(&self, thread: &ThreadId) -> Option<Running> {
        self.live().threads.get(thread).cloned()
    }

    /// Makes whoever asks the one in this process that takes a thread up; `None` if it runs here, or somebody does so already.
    pub fn taking(self: &Arc<Self>, thread: &ThreadId) -> Option<Taking> {
        let mut live = self.live();
        if live.threads.contains_key(thread) || live.taking.contains_key(thread) {
            return None;
        }
        live.taking.insert(thread.clone(), Vec::new());
        Some(Taking { engine: Arc::clone(self), thread: thread.clone() })
    }

    /// Takes a thread into the list, and watches the inboxes while the list is not empty.
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

    /// Keeps the process from being idle until a child is waited for no longer.
    pub fn attending(self: &Arc<Self>) -> Attending {
        self.live().attended += 1;
        Attending(Arc::clone(self))
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

    /// Tells those who wait for others how many there are.
    fn counted(&self, live: &Live) {
        self.crew.count(live.threads.len());
        self.writer.expect(live.threads.len());
    }

    /// Every thread that could have mail. Where there is none, the watcher is let go.
    fn all_running(&self) -> Vec<(ThreadId, Sender)> {
        let mut live = self.live();
        live.watched = !live.threads.is_empty();
        live.threads.iter().map(|(id, running)| (id.clone(), running.control.clone())).collect()
    }

    pub(super) fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often the inboxes of running threads are looked at.
const WATCH: Duration = Duration::from_millis(500);

/// One watcher for the process. A letter that is delivered again before its file is gone is known by its id.
async fn watch_inboxes(engine: Weak<Inner>) {
    // Letters that cannot be read stay where they are, and are told once.
    let mut told = BTreeSet::new();
    loop {
        tokio::time::sleep(WATCH).await;
        let Some(engine) = engine.upgrade() else { return };
        let running = engine.all_running();
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
