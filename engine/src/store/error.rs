//! Errors of the store. Each message names the file and, where possible, the remedy.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

/// A store operation that failed. Paths are relative to the project's root.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {doing} `{}`: {source}{}", path.display(), remedy(source))]
    Io { doing: &'static str, path: PathBuf, source: io::Error },

    /// A synced line can no longer be read, so no later line is trusted.
    #[error("`{}` is damaged at line {line}: {reason}", path.display())]
    Damaged { path: PathBuf, line: u64, reason: String },

    /// An object, snapshot or message whose contents do not match its name or signature.
    #[error("`{}` was altered: {reason}", path.display())]
    Altered { path: PathBuf, reason: String },

    #[error("`{}` has format version {found}, but this `rye` reads up to {supported}; install a newer `rye`", path.display())]
    Newer { path: PathBuf, found: u64, supported: u64 },

    /// An event that does not fit into a line. The caller must store it as an object instead.
    #[error("an event of {bytes} bytes does not fit into a line of {limit} bytes")]
    LineTooLong { bytes: usize, limit: usize },

    #[error("an event must be an object with a `type`")]
    NoEvent,

    /// A sync failed. The state on disk is unknown, so this process no longer writes to the file.
    #[error("`{}` accepts no more events: {reason}", path.display())]
    Poisoned { path: PathBuf, reason: String },

    #[error("thread `{thread}` is owned by a running process (pid {pid})")]
    Owned { thread: String, pid: u32 },

    #[error("no such thread: `{thread}`")]
    UnknownThread { thread: String },

    #[error("{reason}")]
    InvalidId { reason: String },

    #[error("the thread registry is busy: another process has been writing for {seconds} seconds")]
    Busy { seconds: u64 },

    #[error("the thread registry cannot be used ({doing}: {source}); run `rye threads repair` to rebuild it")]
    Registry { doing: &'static str, source: Box<dyn Error + Send + Sync> },

    /// The registry is missing or empty although threads exist, so their rows and accounts are lost.
    #[error(
        "the thread registry is missing, but {threads} thread(s) have transcripts; run `rye threads repair` to rebuild it"
    )]
    RegistryLost { threads: usize },

    /// Power failed while a process wrote to the registry, and a transcript that the rebuild needs cannot be read.
    #[error(
        "the thread registry must be rebuilt after a power failure, but {source}; run `rye threads repair` to rebuild the registry without that thread"
    )]
    RebuildFailed { source: Box<Self> },

    /// The registry cannot be rebuilt now, because `count` processes use it.
    #[error("the thread registry cannot be rebuilt while processes use it (running: {count}); end them first")]
    InUse { count: usize },
}

impl StoreError {
    /// Returns true if the disk or a quota is full.
    pub fn is_full_disk(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }

    /// Returns the message without the suggested remedy.
    pub fn without_remedy(&self) -> String {
        let Self::Io { doing, path, source } = self else { return self.to_string() };
        format!("cannot {doing} `{}`: {source}", path.display())
    }

    /// Returns a function that converts an I/O error for `map_err`. The message names the attempted action (`doing`)
    /// and the path.
    pub fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_path_buf(), source }
    }
}

/// Returns the remedy for an I/O error, to be appended to the message; empty if no remedy is known.
fn remedy(error: &io::Error) -> &'static str {
    if is_full(error) {
        "; free some space, then repeat the command; `rye threads resume` continues an interrupted thread"
    } else {
        ""
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
