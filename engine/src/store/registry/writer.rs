//! Group commit: one OS thread writes to the registry for a whole process. Async tasks send changes and await the
//! answers. Tasks that wait at the same time share a commit. The only running thread of a process commits inline,
//! unless another process is writing. The first commit that cannot run inline starts the writer thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{Change, ChangeResult, Registry};
use crate::store::StoreError;

/// Maximum number of lists of changes that one transaction commits. The maximum bounds the time for which the sender of
/// a list waits for its answer.
const MAX_BATCH: usize = 512;

/// The maximum durations for which a commit waits for other commits of its process, to share a transaction. A commit
/// waits only if at least `MIN_GROUP_THREADS` threads of the process are running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupCommit {
    /// Maximum time that a commit waits for one more commit to arrive.
    pub next: Duration,
    /// Maximum time that a commit waits in total, even if more commits keep arriving.
    pub longest: Duration,
}

impl Default for GroupCommit {
    fn default() -> Self {
        Self { next: Duration::from_millis(4), longest: Duration::from_millis(15) }
    }
}

/// Minimum number of running threads at which a commit waits for commits of other threads, to share a transaction.
const MIN_GROUP_THREADS: usize = 4;

/// A handle to the registry's writer, shared by any number of tasks.
#[derive(Debug)]
pub struct RegistryWriter {
    registry: Arc<Registry>,
    /// Number of running threads. A commit waits for others only if this number is at least `MIN_GROUP_THREADS`.
    active_threads: Arc<AtomicUsize>,
    group_commit: GroupCommit,
    /// Number of jobs that were sent to the writer thread and are not written yet.
    unwritten: Arc<AtomicUsize>,
    worker: Mutex<Option<WriterThread>>,
}

/// The writer thread and the channel to it.
#[derive(Debug)]
struct WriterThread {
    jobs: Sender<CommitJob>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
struct CommitJob {
    lists: Vec<Vec<Change>>,
    answer: oneshot::Sender<Result<Vec<Vec<ChangeResult>>, StoreError>>,
}

impl RegistryWriter {
    pub fn new(registry: Arc<Registry>, group_commit: GroupCommit) -> Self {
        let (active_threads, unwritten, worker) = Default::default();
        Self { registry, active_threads, group_commit, unwritten, worker }
    }

    /// Sets the number of threads of this process that may write. From `MIN_GROUP_THREADS` threads on, a commit waits
    /// for commits of other threads.
    pub fn set_running_threads(&self, threads: usize) {
        self.active_threads.store(threads, Ordering::Relaxed);
    }

    /// Applies changes in one transaction, possibly together with other tasks' changes: see [`Registry::commit`]. The
    /// changes are made even if the returned future is dropped after it was polled.
    pub async fn commit(&self, changes: Vec<Change>) -> Result<Vec<ChangeResult>, StoreError> {
        let mut answers = self.commit_lists(vec![changes]).await?;
        Ok(answers.pop().unwrap_or_default())
    }

    /// Applies several lists of changes in one transaction, one list after the other. A refused change ends only its
    /// own list. See [`Registry::commit_all`].
    pub async fn commit_lists(&self, lists: Vec<Vec<Change>>) -> Result<Vec<Vec<ChangeResult>>, StoreError> {
        // A job whose caller stopped waiting may still be unwritten. An inline commit would overtake it, and an older
        // state of a row would replace a newer one.
        if self.active_threads.load(Ordering::Relaxed) <= 1 && self.unwritten.load(Ordering::Acquire) == 0 {
            let slices: Vec<&[Change]> = lists.iter().map(Vec::as_slice).collect();
            if let Some(done) = self.registry.try_commit_all(&slices) {
                return done;
            }
        }
        let (answer, answered) = oneshot::channel();
        self.send_job(CommitJob { lists, answer })?;
        answered.await.unwrap_or_else(|dropped| Err(super::registry_error("writing to it")(dropped)))
    }

    fn send_job(&self, job: CommitJob) -> Result<(), StoreError> {
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = match &mut *worker {
            Some(worker) => worker,
            none @ None => none.insert(self.start_thread()?),
        };
        self.unwritten.fetch_add(1, Ordering::AcqRel);
        // If the writer thread has ended, the job and its answer channel are dropped, and the caller gets an error.
        let _ = worker.jobs.send(job);
        Ok(())
    }

    /// Starts the writer thread.
    fn start_thread(&self) -> Result<WriterThread, StoreError> {
        let (jobs, received) = channel();
        let (registry, active_threads, unwritten, group_commit) = (
            Arc::clone(&self.registry),
            Arc::clone(&self.active_threads),
            Arc::clone(&self.unwritten),
            self.group_commit,
        );
        let thread = std::thread::Builder::new()
            .name("registry".to_string())
            .spawn(move || run_writer(&registry, &received, (&active_threads, &unwritten), group_commit))
            .map_err(super::registry_error("starting its writer"))?;
        Ok(WriterThread { jobs, thread })
    }

    /// Returns the registry, for reading.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }
}

impl Drop for RegistryWriter {
    fn drop(&mut self) {
        if let Some(WriterThread { jobs, thread }) =
            self.worker.get_mut().unwrap_or_else(PoisonError::into_inner).take()
        {
            drop(jobs);
            // A writer that panicked has dropped the answer channels of its callers, so the callers already got errors.
            let _ = thread.join();
        }
    }
}

fn run_writer(
    registry: &Registry,
    jobs: &Receiver<CommitJob>,
    (active_threads, unwritten): (&AtomicUsize, &AtomicUsize),
    group_commit: GroupCommit,
) {
    while let Ok(first) = jobs.recv() {
        let mut batch = vec![first];
        let most = Some(active_threads.load(Ordering::Relaxed))
            .filter(|active_threads| *active_threads >= MIN_GROUP_THREADS)
            .map_or(1, |n| n.min(MAX_BATCH));
        let until = Instant::now() + group_commit.longest;
        batch.extend(jobs.try_iter().take(MAX_BATCH - 1));
        while batch.len() < most {
            let left = until.saturating_duration_since(Instant::now()).min(group_commit.next);
            let Ok(job) = jobs.recv_timeout(left) else { break };
            batch.push(job);
        }
        let lists: Vec<&[Change]> = batch.iter().flat_map(|job| job.lists.iter().map(Vec::as_slice)).collect();
        let jobs_written = batch.len();
        match registry.commit_all(&lists) {
            Ok(answers) => {
                unwritten.fetch_sub(jobs_written, Ordering::AcqRel);
                let mut answers = answers.into_iter();
                for job in batch {
                    let own = answers.by_ref().take(job.lists.len()).collect();
                    // The caller may have stopped waiting; the changes are made regardless.
                    let _ = job.answer.send(Ok(own));
                }
            }
            // The transaction was rolled back. Each job is retried alone, so that a failing job does not affect the
            // others.
            Err(_) => {
                for job in batch {
                    let lists: Vec<&[Change]> = job.lists.iter().map(Vec::as_slice).collect();
                    let answer = registry.commit_all(&lists);
                    unwritten.fetch_sub(1, Ordering::AcqRel);
                    // The caller may have stopped waiting; the changes are made or refused regardless.
                    let _ = job.answer.send(answer);
                }
            }
        }
    }
}
