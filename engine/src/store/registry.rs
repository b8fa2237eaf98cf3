//! The registry: small rows that processes share (`engine.md` 4): threads, who spawned whom, who owns what, and the ledger
//! with its answers. Rebuildable from the transcripts, which are the truth. The only place that names the database.
//!
//! Everything here blocks and may wait for other processes: async callers go through [`RegistryWriter`] or a blocking
//! thread. A write transaction lives within one call of [`Registry::commit`], never over an await.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use redb::backends::FileBackend;
use redb::{Builder, ConcurrencyMode, Database, ReadOnlyDatabase, ReadTransaction, ReadableDatabase, WriteTransaction};

use super::disk::{Access, Disk, temporary_beside};
use super::layout::{self, REGISTRY, THREADS};
use super::{StoreError, owner};

mod backend;
mod caught;
mod changes;
mod first_error;
mod ledger;
mod read;
mod repair;
mod rows;
mod tables;
mod writer;

#[cfg(test)]
mod tests;

use caught::caught;
pub use changes::{Answered, Change};
use first_error::FirstError;
pub use ledger::{LedgerStep, Step};
pub use repair::{Repaired, repair, row_of};
pub use rows::{Liveness, RowUpdate, ThreadRow};
pub use writer::{Gathering, RegistryWriter};

/// The format this program writes, and the newest it reads.
pub const FORMAT: u64 = 1;

/// How long a writer waits for another process before it gives up.
const PATIENCE: Duration = Duration::from_secs(10);
const OPENING: &str = "opening it";
const WRITING: &str = "writing to it";
/// Who waits looks at least this often whether it is free.
const LOOK: Duration = Duration::from_millis(5);
/// How long a process may write without a break: one that goes on leaves it free for longer than a look takes, because the
/// lock goes to whoever comes first and those who wait would never be that.
const TURN: Duration = Duration::from_millis(250);

/// An open registry. One in a process is enough; its methods may be called from any thread.
pub struct Registry {
    disk: Arc<dyn Disk>,
    /// `None` only while this is dropped.
    database: Option<Opened>,
    /// Writers of one process queue here, so that only those of different processes poll for the database's lock.
    writing: Mutex<Streak>,
    commits: AtomicU64,
    first_error: FirstError,
}

/// When this process began to write without a break, and when it last did.
#[derive(Debug, Default)]
struct Streak {
    began: Option<Instant>,
    ended: Option<Instant>,
}

impl Streak {
    /// Before a transaction: lets others in when it is their turn.
    fn begin(&mut self) {
        if !self.goes_on() {
            std::thread::sleep(LOOK + LOOK / 2);
            self.began = Some(Instant::now());
        }
    }

    /// Whether it is not the others' turn.
    fn goes_on(&mut self) -> bool {
        let now = Instant::now();
        if self.ended.is_none_or(|ended| now.duration_since(ended) > LOOK) {
            self.began = Some(now);
        }
        self.began.is_some_and(|began| now.duration_since(began) <= TURN)
    }
}

enum Opened {
    Write(Database),
    Read(ReadOnlyDatabase),
}

impl Registry {
    /// Opens the registry to read and write, and makes it if there is none. One that is missing or empty where threads
    /// have records was lost: it is not begun anew, as their money would be forgotten.
    pub fn open(disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        layout::prepare(&*disk)?;
        let path = Path::new(REGISTRY);
        let is_there = || disk.exists(path).map_err(StoreError::io("look for", path));
        if !is_there()? {
            let records = layout::find_threads(&*disk)?.len();
            // Somebody else may have made it, and begun a thread, since it was looked for.
            if records > 0 && !is_there()? {
                return Err(StoreError::RegistryLost { threads: records });
            }
            if records == 0 {
                Self::make(&disk, path)?;
            }
        }
        let registry = Self::open_at(disk, path)?;
        match registry.format()? {
            Some(found) => supported(found)?,
            None => match layout::find_threads(&*registry.disk)?.len() {
                0 => registry.fill()?,
                threads => return Err(StoreError::RegistryLost { threads }),
            },
        }
        Ok(registry)
    }

    /// Makes the registry whole under a name that nobody reads, and then gives it its own: who is killed meanwhile leaves
    /// no half of one, and of two that make it one is first.
    fn make(disk: &Arc<dyn Disk>, path: &Path) -> Result<(), StoreError> {
        let temporary = temporary_beside(path);
        let memory = backend::Memory::default();
        let database = Builder::new().create_with_backend(memory.clone()).map_err(failed("making it"))?;
        Self::over(Arc::clone(disk), Opened::Write(database), FirstError::default()).fill()?;
        memory.store(&**disk, &temporary)?;
        match disk.rename_new(&temporary, path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                disk.remove(&temporary).map_err(StoreError::io("remove", &temporary))?;
            }
            Err(error) => return Err(StoreError::io("create", path)(error)),
        }
        // Whoever finds it here and starts a thread syncs this folder too, with the name of the thread.
        let folder = Path::new(THREADS);
        disk.sync_dir(folder).map_err(StoreError::io("sync", folder))
    }

    fn open_at(disk: Arc<dyn Disk>, path: &Path) -> Result<Self, StoreError> {
        let shared = disk.shared_file(path, Access::ReadWrite).map_err(StoreError::io("open", path))?;
        let first = FirstError::default();
        let database = caught(OPENING, || {
            let database = if let Some(file) = shared {
                FileBackend::new(file).and_then(|file| builder().create_with_backend(first.watch(file)))
            } else {
                let file = backend::DiskBackend::open(Arc::clone(&disk), path)?;
                Builder::new().create_with_backend(first.watch(file))
            };
            database.map_err(failed(OPENING))
        });
        let database = database.map_err(|error| first.explain(error, path))?;
        Ok(Self::over(disk, Opened::Write(database), first))
    }

    /// Opens the registry to read; `None` if there is none and no thread either. Where every process that wrote it has died, it must be
    /// recovered first, which takes an opening to write.
    pub fn open_read_only(disk: Arc<dyn Disk>) -> Result<Option<Self>, StoreError> {
        let path = Path::new(REGISTRY);
        let shared = match disk.shared_file(path, Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return nothing(&*disk),
            shared => shared.map_err(StoreError::io("open", path))?,
        };
        let Some(file) = shared else {
            let there = disk.exists(path).map_err(StoreError::io("look for", path))?;
            return if there { Self::open(disk).map(Some) } else { nothing(&*disk) };
        };
        let first = FirstError::default();
        let opened = caught(OPENING, || open_shared(file, &first).map_err(failed(OPENING)));
        let Ok(database) = opened else { return Self::open(disk).map(Some) };
        let registry = Self::over(disk, Opened::Read(database), first);
        match registry.format()? {
            None => nothing(&*registry.disk),
            Some(found) => supported(found).map(|()| Some(registry)),
        }
    }

    fn over(disk: Arc<dyn Disk>, database: Opened, first_error: FirstError) -> Self {
        Self { disk, database: Some(database), writing: Mutex::default(), commits: AtomicU64::new(0), first_error }
    }

    /// Transactions this process has committed.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Whether somebody works on the thread of this row.
    pub fn liveness(&self, row: &ThreadRow) -> Result<Liveness, StoreError> {
        if row.status.is_over() {
            return Ok(Liveness::Over);
        }
        match &row.owner {
            Some(owner) if owner::is_alive(&*self.disk, owner)? => Ok(Liveness::Alive),
            Some(_) | None => Ok(Liveness::Orphaned),
        }
    }

    /// Writes the format and makes the tables.
    fn fill(&self) -> Result<(), StoreError> {
        self.write(|transaction| {
            let mut meta = transaction.open_table(tables::META).map_err(failed("making its tables"))?;
            meta.insert(tables::FORMAT, FORMAT).map_err(failed("writing its format"))?;
            drop(meta);
            tables::create(transaction)
        })
    }

    fn format(&self) -> Result<Option<u64>, StoreError> {
        self.read(|transaction| {
            let meta = match transaction.open_table(tables::META) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
                meta => meta.map_err(failed("reading its format"))?,
            };
            let found = meta.get(tables::FORMAT).map_err(failed("reading its format"))?;
            Ok(found.map(|found| found.value()))
        })
    }

    /// Looks at one moment of it.
    fn read<T>(&self, look: impl FnOnce(&ReadTransaction) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let looked = caught("reading it", || {
            let transaction = match &self.database {
                Some(Opened::Write(database)) => database.begin_read(),
                Some(Opened::Read(database)) => database.begin_read(),
                None => return Err(closed("reading it")),
            };
            look(&transaction.map_err(failed("reading it"))?)
        });
        looked.map_err(|error| self.explained(error))
    }

    /// A file that failed once answers nothing more in this process, and everybody is told how it failed.
    fn explained(&self, error: StoreError) -> StoreError {
        self.first_error.explain(error, Path::new(REGISTRY))
    }

    /// One transaction, committed and durable when this returns. An error of `change` leaves nothing behind.
    fn write<T>(&self, change: impl FnOnce(&WriteTransaction) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let Some(Opened::Write(database)) = &self.database else {
            let source = io::Error::new(io::ErrorKind::PermissionDenied, "it was opened to read");
            return Err(failed("writing to it")(source));
        };
        // A panic while it was held has left no transaction behind: dropping one aborts it.
        let mut streak = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        streak.begin();
        let begun = caught(WRITING, || begin_write(database)).map_err(|error| self.explained(error))?;
        self.finish(&mut streak, begun, change)
    }

    /// The same, where nobody else has to be waited for; `None` where somebody writes or has to be let in, or where no
    /// transaction can be begun.
    fn write_now<T>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<T, StoreError>,
    ) -> Option<Result<T, StoreError>> {
        let Some(Opened::Write(database)) = &self.database else { return None };
        let mut streak = match self.writing.try_lock() {
            Ok(streak) => streak,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if !streak.goes_on() {
            return None;
        }
        let begun = caught(WRITING, || database.try_begin_write().map_err(failed(WRITING))).ok()?;
        Some(self.finish(&mut streak, begun, change))
    }

    fn finish<T>(
        &self,
        streak: &mut Streak,
        transaction: WriteTransaction,
        change: impl FnOnce(&WriteTransaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let written = caught(WRITING, move || {
            let answer = change(&transaction)?;
            transaction.commit().map_err(failed("committing to it"))?;
            Ok(answer)
        });
        let answer = written.map_err(|error| self.explained(error))?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        streak.ended = Some(Instant::now());
        Ok(answer)
    }
}

impl Drop for Registry {
    /// Closing looks at the bytes once more.
    fn drop(&mut self) {
        let database = self.database.take();
        // Nobody is left to be told; what it says of its bytes has been said to whoever asked.
        let _ = caught("closing it", move || {
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

/// No registry, which is well where no thread has a record either.
fn nothing(disk: &dyn Disk) -> Result<Option<Registry>, StoreError> {
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
    builder().open_read_only_with_backend(first.watch(FileBackend::new(file)?))
}

/// Begins a write transaction as soon as no other process has one, for at most [`PATIENCE`].
fn begin_write(database: &Database) -> Result<WriteTransaction, StoreError> {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_micros(200);
    loop {
        match database.try_begin_write() {
            Ok(transaction) => return Ok(transaction),
            Err(redb::TransactionError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(pause),
            Err(redb::TransactionError::WouldBlock) => return Err(StoreError::Busy { seconds: PATIENCE.as_secs() }),
            Err(error) => return Err(failed("writing to it")(error)),
        }
        pause = (pause * 2).min(LOOK);
    }
}

fn supported(found: u64) -> Result<(), StoreError> {
    if found > FORMAT {
        return Err(StoreError::Newer { path: REGISTRY.into(), found, supported: FORMAT });
    }
    Ok(())
}

/// The registry is being dropped, and somebody asks it.
fn closed(doing: &'static str) -> StoreError {
    failed(doing)(io::Error::from(io::ErrorKind::NotConnected))
}

/// For `map_err`: what was tried when the database failed.
fn failed<E: std::error::Error + Send + Sync + 'static>(doing: &'static str) -> impl FnOnce(E) -> StoreError {
    move |source| StoreError::Registry { doing, source: Box::new(source) }
}
