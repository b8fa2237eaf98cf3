//! Counters of expensive disk operations, for tests that assert a number of syncs.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of operations since the disk was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub appends: u64,
    /// Number of `sync` calls for files.
    pub syncs: u64,
    /// Number of `sync_dir` calls, which sync the names in a folder.
    pub dir_syncs: u64,
    pub renames: u64,
    pub creates: u64,
    /// Number of `list` calls, which list the names in a folder.
    pub lists: u64,
}

impl Counters {
    /// Returns the number of file and folder syncs.
    pub fn all_syncs(&self) -> u64 {
        self.syncs + self.dir_syncs
    }

    /// Returns the number of operations of each kind since an earlier reading of the counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            appends: self.appends - earlier.appends,
            syncs: self.syncs - earlier.syncs,
            dir_syncs: self.dir_syncs - earlier.dir_syncs,
            renames: self.renames - earlier.renames,
            creates: self.creates - earlier.creates,
            lists: self.lists - earlier.lists,
        }
    }
}

/// The atomic counters of one disk.
#[derive(Debug, Default)]
pub struct DiskCounters {
    appends: AtomicU64,
    syncs: AtomicU64,
    dir_syncs: AtomicU64,
    renames: AtomicU64,
    creates: AtomicU64,
    lists: AtomicU64,
}

impl DiskCounters {
    pub fn append(&self) {
        self.appends.fetch_add(1, Ordering::Relaxed);
    }

    pub fn sync(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }

    pub fn sync_dir(&self) {
        self.dir_syncs.fetch_add(1, Ordering::Relaxed);
    }

    pub fn rename(&self) {
        self.renames.fetch_add(1, Ordering::Relaxed);
    }

    pub fn create(&self) {
        self.creates.fetch_add(1, Ordering::Relaxed);
    }

    pub fn list(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the current counts.
    pub fn read(&self) -> Counters {
        Counters {
            appends: self.appends.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
            dir_syncs: self.dir_syncs.load(Ordering::Relaxed),
            renames: self.renames.load(Ordering::Relaxed),
            creates: self.creates.load(Ordering::Relaxed),
            lists: self.lists.load(Ordering::Relaxed),
        }
    }
}
