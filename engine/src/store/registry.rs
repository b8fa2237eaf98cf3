//! The registry: small rows shared between processes (`engine.md` 4): threads, parents, owners, and the ledger with the
//! answers to its operations. The registry can be rebuilt from the transcripts, which are the source of truth. Only
//! this module uses the database library.
//!
//! All functions block and may wait for other processes: async callers use [`RegistryWriter`] or a blocking thread. A
//! write transaction lives within one call of [`Registry::commit`], never across an await.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use redb::backends::FileBackend;
use redb::{Builder, ConcurrencyMode, Database, ReadOnlyDatabase, ReadTransaction, ReadableDatabase, WriteTransaction};

use super::disk::{Disk, FileAccess, temporary_beside};
use super::layout::{self, REGISTRY, THREADS};
use super::{StoreError, owner};

mod backend;
mod changes;
mod first_error;
mod ledger;
mod panic_guard;
mod read;
mod repair;
mod rows;
mod tables;
mod unsynced;
mod writer;

#[cfg(test)]
mod tests;

pub use changes::{Change, ChangeResult};
use first_error::{CommitSyncs, FirstError};
pub use ledger::{LedgerStep, LedgerStepKey};
use panic_guard::catch_panics;
pub use panic_guard::{AbortHandler, set_abort_handler};
pub(crate) use repair::fold_row;
pub use repair::{RepairReport, repair};
pub(crate) use repair::{fold_handed_over, fold_reservation};
pub use rows::{Liveness, RowUpdate, ThreadRow};
use unsynced::UnsyncedMark;
pub use writer::{GroupCommit, RegistryWriter};

/// Version of the registry's format that this program writes, and the newest version that it reads.
pub(crate) const REGISTRY_FORMAT: u64 = 1;

/// Maximum time that a writer waits for another process.
const WRITE_LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const OPENING: &str = "opening it";
const WRITING: &str = "writing to it";
/// Maximum interval at which a waiting writer polls the lock.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum time that a process writes without a break. After it, the process pauses for longer than one poll interval,
/// so that waiting processes can acquire the lock.
const MAX_HOLD: Duration = Duration::from_millis(250);

/// An open registry. A process needs only one registry, whose methods may be called from any thread.
pub struct Registry {
    disk: Arc<dyn Disk>,
    /// The open database; `None` only while the registry is being dropped.
    database: Option<OpenDatabase>,
    /// A lock that queues the writers of this process, so that only one of them at a time competes with other processes
    /// for the database's lock.
    writing: Mutex<WriteStreak>,
    commits: AtomicU64,
    reads: AtomicU64,
    first_error: FirstError,
    /// The mark of unsynced writes; `None` if every commit is synced. The order of the fields matters: the mark is
    /// dropped after the database, so that it exists as long as this process can have unsynced writes.
    _mark: Option<UnsyncedMark>,
}

/// Start and end of the current uninterrupted series of writes by this process.
#[derive(Debug, Default)]
struct WriteStreak {
    started_at: Option<Instant>,
    ended: Option<Instant>,
}

impl WriteStreak {
    /// Pauses before a transaction if this process has written for `MAX_HOLD` without a break, so that other processes
    /// can write.
    fn pause_if_due(&mut self) {
        if !self.may_continue() {
            std::thread::sleep(POLL_INTERVAL + POLL_INTERVAL / 2);
            self.started_at = Some(Instant::now());
        }
    }

    /// Returns true if this process may write without a pause: its current series of writes began at most `MAX_HOLD`
    /// ago. A break longer than `POLL_INTERVAL` starts a new series.
    fn may_continue(&mut self) -> bool {
        let now = Instant::now();
        if self.ended.is_none_or(|ended| now.duration_since(ended) > POLL_INTERVAL) {
            self.started_at = Some(now);
        }
        self.started_at.is_some_and(|started_at| now.duration_since(started_at) <= MAX_HOLD)
    }
}

enum OpenDatabase {
    Write(Database),
    Read(ReadOnlyDatabase),
}

impl Registry {
    /// Opens the registry for reading and writing; creates it if there is none.
    ///
    /// # Errors
    ///
    /// If the registry is missing or empty although threads exist, fails with `RegistryLost`, because creating a new
    /// registry would lose their spend.
    pub fn open(disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        let mark = UnsyncedMark::acquire(&disk)?;
        let path = Path::new(REGISTRY);
        let is_there = || disk.exists(path).map_err(StoreError::io("access", path));
        if !is_there()? {
            let records = layout::find_threads(&*disk)?.len();
            // Another process may have created the registry and a thread since the first check.
            if records > 0 && !is_there()? {
                return Err(StoreError::RegistryLost { threads: records });
            }
            if records == 0 {
                Self::create_atomically(&disk, path, mark.is_some())?;
            }
        }
        let registry = Self::open_at(disk, path, mark)?;
        match registry.format()? {
            Some(found) => check_format(found)?,
            None => match layout::find_threads(&*registry.disk)?.len() {
                0 => registry.create_tables()?,
                threads => return Err(StoreError::RegistryLost { threads }),
            },
        }
        Ok(registry)
    }

    /// Creates the complete registry under a temporary name and renames it, so that a crash leaves no partial registry.
    /// If another process has created the registry in the meantime, that registry stays. Syncs the registry unless a
    /// mark of unsynced writes exists (`is_marked`).
    fn create_atomically(disk: &Arc<dyn Disk>, path: &Path, is_marked: bool) -> Result<(), StoreError> {
        let temporary = temporary_beside(path);
        let memory = backend::MemoryBackend::default();
        let database = Builder::new().create_with_backend(memory.clone()).map_err(registry_error("making it"))?;
        Self::with_database(Arc::clone(disk), OpenDatabase::Write(database), FirstError::default(), None)
            .create_tables()?;
        memory.store(&**disk, &temporary)?;
        if !is_marked {
            disk.sync(&temporary).map_err(StoreError::io("sync", &temporary))?;
        }
        match disk.rename_new(&temporary, path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                disk.remove(&temporary).map_err(StoreError::io("remove", &temporary))?;
            }
            Err(error) => return Err(StoreError::io("create", path)(error)),
        }
        if is_marked {
            return Ok(());
        }
        // A process that finds the registry and starts a thread syncs this folder as well, together with the thread's
        // name.
        let folder = Path::new(THREADS);
        disk.sync_dir(folder).map_err(StoreError::io("sync", folder))
    }

    /// Opens a registry for reading and writing. Its commits are synced unless there is a mark of unsynced writes.
    fn open_at(disk: Arc<dyn Disk>, path: &Path, mark: Option<UnsyncedMark>) -> Result<Self, StoreError> {
        let syncs = if mark.is_some() { CommitSyncs::Deferred } else { CommitSyncs::Immediate };
        let shared = disk.shared_file(path, FileAccess::ReadWrite).map_err(StoreError::io("open", path))?;
        let first = FirstError::default();
        let database = catch_panics(OPENING, || {
            let database = if let Some(file) = shared {
                // A program without a handler cannot survive a panic during a write, so damage must be found when the
                // registry is opened.
                let mut builder = builder();
                builder.set_check_integrity_on_open(!panic_guard::has_abort_handler());
                FileBackend::new(file).and_then(|file| builder.create_with_backend(first.watch(file, syncs)))
            } else {
                let file = backend::DiskBackend::open(Arc::clone(&disk), path)?;
                Builder::new().create_with_backend(first.watch(file, syncs))
            };
            database.map_err(registry_error(OPENING))
        });
        let database = database.map_err(|error| first.explain(error, path))?;
        Ok(Self::with_database(disk, OpenDatabase::Write(database), first, mark))
    }

    /// Opens the registry for reading; `None` if there is neither a registry nor a thread. Opens the registry for
    /// writing if it needs recovery, because every process that wrote to the registry has died or because power failed.
    pub(crate) fn open_read_only(disk: Arc<dyn Disk>) -> Result<Option<Self>, StoreError> {
        let path = Path::new(REGISTRY);
        if unsynced::is_rebuild_due(&*disk)? {
            return Self::open(disk).map(Some);
        }
        let shared = match disk.shared_file(path, FileAccess::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return check_no_threads(&*disk),
            shared => shared.map_err(StoreError::io("open", path))?,
        };
        let Some(file) = shared else {
            let there = disk.exists(path).map_err(StoreError::io("access", path))?;
            return if there { Self::open(disk).map(Some) } else { check_no_threads(&*disk) };
        };
        let first = FirstError::default();
        let opened = catch_panics(OPENING, || open_shared(file, &first).map_err(registry_error(OPENING)));
        let Ok(database) = opened else { return Self::open(disk).map(Some) };
        let registry = Self::with_database(disk, OpenDatabase::Read(database), first, None);
        match registry.format()? {
            None => check_no_threads(&*registry.disk),
            Some(found) => check_format(found).map(|()| Some(registry)),
        }
    }

    fn with_database(
        disk: Arc<dyn Disk>,
        database: OpenDatabase,
        first_error: FirstError,
        mark: Option<UnsyncedMark>,
    ) -> Self {
        let (writing, commits, reads) = (Mutex::default(), AtomicU64::new(0), AtomicU64::new(0));
        Self { disk, database: Some(database), writing, commits, reads, first_error, _mark: mark }
    }

    /// Returns the number of transactions that were committed through this registry.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Returns the number of snapshots that were read through this registry. Each of them takes and releases locks of
    /// the file.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Returns the liveness of the thread in `row`: ended, owned by a living process, or orphaned.
    pub fn liveness(&self, row: &ThreadRow) -> Result<Liveness, StoreError> {
        if row.status.has_ended() {
            return Ok(Liveness::Over);
        }
        match &row.owner {
            Some(owner) if owner::is_alive(&*self.disk, owner)? => Ok(Liveness::Alive),
            Some(_) | None => Ok(Liveness::Orphaned),
        }
    }

    /// Writes the format version and creates the tables.
    fn create_tables(&self) -> Result<(), StoreError> {
        self.write(|transaction| {
            let mut meta = transaction.open_table(tables::META).map_err(registry_error("making its tables"))?;
            meta.insert(tables::FORMAT, REGISTRY_FORMAT).map_err(registry_error("writing its format"))?;
            drop(meta);
            tables::create_all(transaction)
        })
    }

    fn format(&self) -> Result<Option<u64>, StoreError> {
        self.read(|transaction| {
            let meta = match transaction.open_table(tables::META) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
                meta => meta.map_err(registry_error("reading its format"))?,
            };
            let found = meta.get(tables::FORMAT).map_err(registry_error("reading its format"))?;
            Ok(found.map(|found| found.value()))
        })
    }

    /// Runs `scan` on a consistent snapshot of the registry, and returns the result.
    fn read<T>(&self, scan: impl FnOnce(&ReadTransaction) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let checked = catch_panics("reading it", || {
            let transaction = match &self.database {
                Some(OpenDatabase::Write(database)) => database.begin_read(),
                Some(OpenDatabase::Read(database)) => database.begin_read(),
                None => return Err(closed_error("reading it")),
            };
            scan(&transaction.map_err(registry_error("reading it"))?)
        });
        checked.map_err(|error| self.explained(error))
    }

    /// Returns the first I/O error of the registry's file in place of an error that only follows from it: after one I/O
    /// error, the file stays unusable in this process. Returns any other error unchanged.
    fn explained(&self, error: StoreError) -> StoreError {
        self.first_error.explain(error, Path::new(REGISTRY))
    }

    /// Runs one transaction and commits it. The commit survives the death of this process. After a power failure, its
    /// changes are restored from the transcripts. If `change` fails, nothing is written.
    fn write<T>(&self, change: impl FnOnce(&WriteTransaction) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let Some(OpenDatabase::Write(database)) = &self.database else {
            let source = io::Error::new(io::ErrorKind::PermissionDenied, "this process opened the registry read-only");
            return Err(registry_error("writing to it")(source));
        };
        // A panic while the lock was held left no transaction behind: dropping a transaction aborts it.
        let mut streak = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        streak.pause_if_due();
        let begun = catch_panics(WRITING, || begin_write(database)).map_err(|error| self.explained(error))?;
        self.finish(&mut streak, begun, change)
    }

    /// Variant of `write` that never waits; `None` if another writer is active, if this process must first let other
    /// processes write, or if no transaction can start.
    fn try_write<T>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<T, StoreError>,
    ) -> Option<Result<T, StoreError>> {
        let Some(OpenDatabase::Write(database)) = &self.database else { return None };
        let mut streak = match self.writing.try_lock() {
            Ok(streak) => streak,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if !streak.may_continue() {
            return None;
        }
        let begun = catch_panics(WRITING, || database.try_begin_write().map_err(registry_error(WRITING))).ok()?;
        Some(self.finish(&mut streak, begun, change))
    }

    fn finish<T>(
        &self,
        streak: &mut WriteStreak,
        transaction: WriteTransaction,
        change: impl FnOnce(&WriteTransaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let written = catch_panics(WRITING, move || {
            let answer = change(&transaction)?;
            transaction.commit().map_err(registry_error("committing to it"))?;
            Ok(answer)
        });
        let answer = written.map_err(|error| self.explained(error))?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        streak.ended = Some(Instant::now());
        Ok(answer)
    }
}

impl Drop for Registry {
    /// Closes the database. To close, the database reads its file once more. An error of this read is ignored.
    fn drop(&mut self) {
        let database = self.database.take();
        // Drop cannot report errors; earlier calls have reported damaged bytes.
        let _ = catch_panics("closing it", move || {
            drop(database);
            Ok(())
        });
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("commits", &self.commits()).finish_non_exhaustive()
    }
}

/// Checks that no thread exists, because the registry is missing. Returns `None` in place of the registry, or fails
/// with `RegistryLost` if there are threads.
fn check_no_threads(disk: &dyn Disk) -> Result<Option<Registry>, StoreError> {
    match layout::find_threads(disk)?.len() {
        0 => Ok(None),
        threads => Err(StoreError::RegistryLost { threads }),
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_concurrency_mode(ConcurrencyMode::MultiWriter).set_cache_size(4 * 1024 * 1024);
    builder
}

fn open_shared(file: std::fs::File, first: &FirstError) -> Result<ReadOnlyDatabase, redb::DatabaseError> {
    builder().open_read_only_with_backend(first.watch(FileBackend::new(file)?, CommitSyncs::Immediate))
}

/// Begins a write transaction. If another process has a write transaction, waits at most [`WRITE_LOCK_TIMEOUT`] for its
/// end.
fn begin_write(database: &Database) -> Result<WriteTransaction, StoreError> {
    let deadline = Instant::now() + WRITE_LOCK_TIMEOUT;
    let mut pause = Duration::from_micros(200);
    loop {
        match database.try_begin_write() {
            Ok(transaction) => return Ok(transaction),
            Err(redb::TransactionError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(pause),
            Err(redb::TransactionError::WouldBlock) => {
                return Err(StoreError::Busy { seconds: WRITE_LOCK_TIMEOUT.as_secs() });
            }
            Err(error) => return Err(registry_error("writing to it")(error)),
        }
        pause = (pause * 2).min(POLL_INTERVAL);
    }
}

fn check_format(found: u64) -> Result<(), StoreError> {
    if found > REGISTRY_FORMAT {
        return Err(StoreError::Newer { path: REGISTRY.into(), found, supported: REGISTRY_FORMAT });
    }
    Ok(())
}

/// Returns the error of a call while the registry is being dropped.
fn closed_error(doing: &'static str) -> StoreError {
    registry_error(doing)(io::Error::from(io::ErrorKind::NotConnected))
}

/// Returns a function that converts a database error for `map_err`. `doing` is the attempted action, which the message
/// names.
fn registry_error<E: std::error::Error + Send + Sync + 'static>(doing: &'static str) -> impl FnOnce(E) -> StoreError {
    move |source| StoreError::Registry { doing, source: Box::new(source) }
}
