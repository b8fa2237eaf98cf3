//! The first I/O error of the database's file. The database reports every later failure only as "a previous error".
//! Callers get the first error instead, because the first error shows the cause.

use std::error::Error;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use redb::{BackendError, CommitError, DatabaseError, StorageBackend, StorageError, TableError, TransactionError};

use crate::store::StoreError;

type LockBound = Bound<u64>;

/// The first I/O error of the registry's backend since the registry was opened; empty before the first error. Clones
/// share the error: the backend records it, and the registry reads it.
#[derive(Debug, Clone, Default)]
pub struct FirstError(Arc<Mutex<Option<RecordedError>>>);

#[derive(Debug)]
struct RecordedError {
    doing: &'static str,
    kind: io::ErrorKind,
    /// The OS error code, from which the system's message is created; `None` for an error without a code.
    number: Option<i32>,
    words: String,
}

impl FirstError {
    /// Wraps the backend of a database, so that the first error of the backend is recorded in `self`.
    pub fn watch<B: StorageBackend>(&self, backend: B, syncs: CommitSyncs) -> RecordingBackend<B> {
        RecordingBackend { backend, syncs, first: self.clone() }
    }

    /// Returns the recorded I/O error if access to the registry file caused the database error; returns any other error
    /// unchanged.
    pub fn explain(&self, error: StoreError, path: &Path) -> StoreError {
        let StoreError::Registry { source, .. } = &error else { return error };
        if !is_io_failure(&**source) {
            return error;
        }
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(met) => StoreError::io(met.doing, path)(met.to_io_error()),
            None => error,
        }
    }

    fn note(&self, doing: &'static str, error: &io::Error) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| RecordedError {
            doing,
            kind: error.kind(),
            number: error.raw_os_error(),
            words: error.to_string(),
        });
    }
}

impl RecordedError {
    fn to_io_error(&self) -> io::Error {
        self.number.map_or_else(|| io::Error::new(self.kind, self.words.clone()), io::Error::from_raw_os_error)
    }
}

/// Returns true if the database error comes from an I/O error of the file, in this operation or an earlier one.
fn is_io_failure(source: &(dyn Error + Send + Sync + 'static)) -> bool {
    let storage = if let Some(TransactionError::Storage(storage)) = source.downcast_ref() {
        Some(storage)
    } else if let Some(TableError::Storage(storage)) = source.downcast_ref() {
        Some(storage)
    } else if let Some(CommitError::Storage(storage)) = source.downcast_ref() {
        Some(storage)
    } else if let Some(DatabaseError::Storage(storage)) = source.downcast_ref() {
        Some(storage)
    } else {
        source.downcast_ref::<StorageError>()
    };
    matches!(storage, Some(StorageError::Io(_) | StorageError::PreviousIo))
}

/// The time at which a database syncs its commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitSyncs {
    /// Each commit is durable when it returns.
    Immediate,
    /// The file is synced when it is closed.
    Deferred,
}

/// A storage backend of the database that records its first error. With [`CommitSyncs::Deferred`], commits are not
/// synced.
#[derive(Debug)]
pub struct RecordingBackend<B> {
    backend: B,
    syncs: CommitSyncs,
    first: FirstError,
}

impl<B> RecordingBackend<B> {
    fn record_first<T>(&self, doing: &'static str, done: io::Result<T>) -> io::Result<T> {
        done.inspect_err(|error| self.first.note(doing, error))
    }
}

impl<B: StorageBackend> StorageBackend for RecordingBackend<B> {
    fn len(&self) -> io::Result<u64> {
        self.record_first("get the length of", self.backend.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.record_first("read", self.backend.read(offset, out))
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.record_first("write to", self.backend.set_len(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.syncs {
            CommitSyncs::Immediate => self.record_first("sync", self.backend.sync_data()),
            CommitSyncs::Deferred => Ok(()),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.record_first("write to", self.backend.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }

    fn try_lock_range(&self, start: LockBound, end: LockBound) -> Result<bool, BackendError> {
        self.backend.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: LockBound, end: LockBound) -> Result<bool, BackendError> {
        self.backend.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: LockBound, end: LockBound) -> Result<(), BackendError> {
        self.backend.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: LockBound, end: LockBound) -> Result<(), BackendError> {
        self.backend.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: LockBound, end: LockBound) -> Result<(), BackendError> {
        self.backend.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: LockBound, end: LockBound) -> Result<bool, BackendError> {
        self.backend.query_lock_range(start, end)
    }
}
