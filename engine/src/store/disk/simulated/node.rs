//! Files and folders of the simulated disk, each with its durable state, its visible state, and the pending changes
//! between the two.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Unit that a device overwrites atomically, in bytes.
const SECTOR_BYTES: u64 = 512;
/// Unit in which a file grows, in bytes. The unit is small, so that a power failure also tears the short lines of
/// tests.
const GROWTH_BYTES: u64 = 32;

/// A file or folder. Clones share file contents until one of them changes.
#[derive(Debug, Clone)]
pub enum DiskNode {
    File(FileNode),
    Folder(FolderNode),
}

#[derive(Debug, Default, Clone)]
pub struct FileNode {
    durable: Arc<Vec<u8>>,
    pub current: Arc<Vec<u8>>,
    pending: Vec<FileWrite>,
}

#[derive(Debug, Default, Clone)]
pub struct FolderNode {
    durable: BTreeMap<String, usize>,
    pub current: BTreeMap<String, usize>,
    pending: Vec<NameChange>,
}

#[derive(Debug, Clone)]
pub enum FileWrite {
    At { offset: u64, bytes: Vec<u8> },
    Length(u64),
}

#[derive(Debug, Clone)]
pub enum NameChange {
    Link { name: String, node: usize },
    Unlink { name: String },
    Rename { from: String, to: String, node: usize },
}

impl DiskNode {
    pub fn lose_unsynced(&mut self) {
        match self {
            Self::File(file) => {
                file.pending.clear();
                file.current.clone_from(&file.durable);
            }
            Self::Folder(folder) => {
                folder.pending.clear();
                folder.current.clone_from(&folder.durable);
            }
        }
    }

    pub fn lose_some_unsynced(&mut self, rng: &mut SplitMix) {
        match self {
            Self::File(file) => file.lose_some_unsynced(rng),
            Self::Folder(folder) => {
                for change in std::mem::take(&mut folder.pending) {
                    if rng.next(2) == 0 {
                        change.apply(&mut folder.durable);
                    }
                }
                folder.current.clone_from(&folder.durable);
            }
        }
    }
}

impl FileNode {
    pub fn write(&mut self, write: FileWrite) {
        write.apply(Arc::make_mut(&mut self.current));
        self.pending.push(write);
    }

    pub fn sync(&mut self) {
        // The visible state is the durable state plus every pending change.
        self.pending.clear();
        self.durable.clone_from(&self.current);
    }

    /// Chooses at random the state of a file after a power failure. Each atomic unit gets one of the states that it has
    /// had since the last sync. The choice is made once for all units of a write, or for each unit separately. A unit
    /// after the end of the synced contents may also become zeros.
    fn lose_some_unsynced(&mut self, rng: &mut SplitMix) {
        let end = self.durable.len() as u64;
        let mut settled = BTreeSet::new();
        for write in std::mem::take(&mut self.pending) {
            let FileWrite::At { offset, bytes } = write else {
                if rng.next(2) == 0 {
                    write.apply(Arc::make_mut(&mut self.durable));
                }
                continue;
            };
            // The random number decides for the whole write whether it survives (0 or 1), or for each unit separately
            // (2).
            let whole = rng.next(3);
            for (offset, bytes) in parts(offset, &bytes, end) {
                let part = part_of(offset, end);
                if settled.contains(&part) {
                    continue;
                }
                let fate = if whole == 2 { rng.next(3) } else { whole };
                let kept = match fate {
                    0 => bytes.to_vec(),
                    2 if offset >= end => vec![0; bytes.len()],
                    _ => {
                        settled.insert(part);
                        continue;
                    }
                };
                FileWrite::At { offset, bytes: kept }.apply(Arc::make_mut(&mut self.durable));
            }
        }
        self.current.clone_from(&self.durable);
    }
}

/// Returns the start of the atomic unit that contains the byte at `offset`. An atomic unit survives a power failure
/// either as a whole or not at all. `end` is the length of the file before the write. Beyond `end`, the units are
/// smaller.
fn part_of(offset: u64, end: u64) -> u64 {
    let size = if offset < end { SECTOR_BYTES } else { GROWTH_BYTES };
    offset - offset % size
}

/// Splits the bytes of a write into the atomic units that the write touches, each with its offset. `offset` is the
/// start of the write, and `end` the length of the file before the write (see `part_of`).
fn parts(offset: u64, bytes: &[u8], end: u64) -> Vec<(u64, &[u8])> {
    let mut parts = Vec::new();
    let (mut at, mut rest) = (offset, bytes);
    while !rest.is_empty() {
        let size = if at < end { SECTOR_BYTES } else { GROWTH_BYTES };
        let remaining = usize::try_from(size - at % size).unwrap_or(usize::MAX);
        let (part, behind) = rest.split_at(remaining.min(rest.len()));
        parts.push((at, part));
        at += part.len() as u64;
        rest = behind;
    }
    parts
}

impl FolderNode {
    pub fn change(&mut self, change: NameChange) {
        change.clone().apply(&mut self.current);
        self.pending.push(change);
    }

    pub fn sync(&mut self) {
        self.pending.clear();
        self.durable.clone_from(&self.current);
    }
}

impl FileWrite {
    fn apply(&self, contents: &mut Vec<u8>) {
        match self {
            Self::Length(length) => contents.resize(usize::try_from(*length).unwrap_or(usize::MAX), 0),
            Self::At { offset, bytes } => {
                let start = usize::try_from(*offset).unwrap_or(usize::MAX);
                let end = start.saturating_add(bytes.len());
                if contents.len() < end {
                    contents.resize(end, 0);
                }
                if let Some(place) = contents.get_mut(start..end) {
                    place.copy_from_slice(bytes);
                }
            }
        }
    }
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Link { name, node } => {
                names.insert(name, node);
            }
            Self::Unlink { name } => {
                names.remove(&name);
            }
            Self::Rename { from, to, node } => {
                names.remove(&from);
                names.insert(to, node);
            }
        }
    }
}

/// A seeded pseudo-random generator: equal seeds produce equal numbers.
#[derive(Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next pseudo-random number, in `0..sides`.
    pub fn next(&mut self, sides: u64) -> u64 {
        // These are the constants of the splitmix64 generator.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}
