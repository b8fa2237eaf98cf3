//! One thread that writes to the registry for a whole process: async tasks send changes and await the answers, and
//! those that wait at the same time share a commit. A task alone in its process needs no thread: it writes where it
//! stands, unless another process writes, and the thread begins with the first that does not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{Answered, Change, Registry};
use crate::store::StoreError;

/// Lists in one transaction at most, so that no answer waits for ever.
const BATCH: usize = 512;

/// Where several threads of the process run, others are likely to come in a moment: how long a commit waits for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gathering {
    /// For the next of them.
    pub next: Duration,
    /// In all.
    pub longest: Duration,
}

impl Default for Gathering {
    fn default() -> Self {
        Self { next: Duration::from_millis(4), longest: Duration::from_millis(15) }
    }
}

/// Fewer threads than this are no crowd: one of them would only wait.
const CROWD: usize = 4;

/// A handle that any number of tasks may use.
#[derive(Debug)]
pub struct RegistryWriter {
    registry: Arc<Registry>,
    /// How many may come with a job at the same time.
    crowd: Arc<AtomicUsize>,
    gathering: Gathering,
    desk: Mutex<Option<Desk>>,
}

/// The thread, and where jobs are left for it.
#[derive(Debug)]
struct Desk {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
struct Job {
    lists: Vec<Vec<Change>>,
    answer: oneshot::Sender<Result<Vec<Vec<Answered>>, StoreError>>,
}

impl RegistryWriter {
    pub fn new(registry: Arc<Registry>, gathering: Gathering) -> Self {
        Self { registry, crowd: Arc::default(), gathering, desk: Mutex::default() }
    }

    /// Says how many threads of this process may write: while there are several, their commits are gathered.
    pub fn expect(&self, threads: usize) {
        self.crowd.store(threads, Ordering::Relaxed);
    }

    /// Makes changes in one transaction, perhaps together with those of others: see [`Registry::commit`]. They are made
    /// whether or not the answer is awaited.
    pub async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Answered>, StoreError> {
        let mut answers = self.commit_lists(vec![changes]).await?;
        Ok(answers.pop().unwrap_or_default())
    }

    /// Several lists in one transaction, in this order: a refusal ends its own list only. See [`Registry::commit_all`].
    pub async fn commit_lists(&self, lists: Vec<Vec<Change>>) -> Result<Vec<Vec<Answered>>, StoreError> {
        if self.crowd.load(Ordering::Relaxed) <= 1 {
            let slices: Vec<&[Change]> = lists.iter().map(Vec::as_slice).collect();
            if let Some(done) = self.registry.commit_all_now(&slices) {
                return done;
            }
        }
        let (answer, answered) = oneshot::channel();
        self.leave(Job { lists, answer })?;
        answered.await.unwrap_or_else(|gone| Err(super::failed("writing to it")(gone)))
    }

    fn leave(&self, job: Job) -> Result<(), StoreError> {
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        let desk = match &mut *desk {
            Some(desk) => desk,
            none @ None => none.insert(self.open()?),
        };
        // A thread that is gone drops the job, and with it the sender of the answer.
        let _ = desk.jobs.send(job);
        Ok(())
    }

    /// Starts the thread.
    fn open(&self) -> Result<Desk, StoreError> {
        let (jobs, received) = channel();
        let (registry, crowd, gathering) = (Arc::clone(&self.registry), Arc::clone(&self.crowd), self.gathering);
        let thread = std::thread::Builder::new()
            .name("registry".to_string())
            .spawn(move || work(&registry, &received, &crowd, gathering))
            .map_err(super::failed("starting its writer"))?;
        Ok(Desk { jobs, thread })
    }

    /// The registry, to read.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }
}

impl Drop for RegistryWriter {
    fn drop(&mut self) {
        if let Some(Desk { jobs, thread }) = self.desk.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            drop(jobs);
            // A writer that panicked has told its callers, whose answers were dropped.
            let _ = thread.join();
        }
    }
}

fn work(registry: &Registry, jobs: &Receiver<Job>, crowd: &AtomicUsize, gathering: Gathering) {
    while let Ok(first) = jobs.recv() {
        let mut batch = vec![first];
        let most = Some(crowd.load(Ordering::Relaxed)).filter(|crowd| *crowd >= CROWD).map_or(1, |n| n.min(BATCH));
        let until = Instant::now() + gathering.longest;
        batch.extend(jobs.try_iter().take(BATCH - 1));
        while batch.len() < most {
            let left = until.saturating_duration_since(Instant::now()).min(gathering.next);
            let Ok(job) = jobs.recv_timeout(left) else { break };
            batch.push(job);
        }
        let lists: Vec<&[Change]> = batch.iter().flat_map(|job| job.lists.iter().map(Vec::as_slice)).collect();
        match registry.commit_all(&lists) {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for job in batch {
                    let own = answers.by_ref().take(job.lists.len()).collect();
                    // Nobody waits any more; the changes are made all the same.
                    let _ = job.answer.send(Ok(own));
                }
            }
            // Nothing was written. Each alone gets an error of its own, and one that was at fault spoils no other.
            Err(_) => {
                for job in batch {
                    let lists: Vec<&[Change]> = job.lists.iter().map(Vec::as_slice).collect();
                    // As above: nobody may wait for the answer any more, and what it says is done or refused all the same.
                    let _ = job.answer.send(registry.commit_all(&lists));
                }
            }
        }
    }
}
