//! Hard links to files under `.ai/state`. The path policy checks names, so a second name outside of the folder would
//! bypass it. Files are therefore compared by device and inode number.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, FileType, Stat};

use super::{ProjectFiles, open_folder_at};

/// The device and inode number of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Inode(u64, u64);

pub(super) type Inodes = BTreeSet<Inode>;

/// Maximum number of files and folders under `.ai/state` that the search for hard links inspects. If there are more,
/// every file that has several names counts as a file under `.ai/state`.
const MAX_FILES: usize = 200_000;

impl From<(u64, u64)> for Inode {
    fn from((device, number): (u64, u64)) -> Self {
        Self(device, number)
    }
}

impl Inode {
    /// Returns the device and inode number.
    pub(super) fn identity(self) -> (u64, u64) {
        (self.0, self.1)
    }

    pub(super) fn of(stat: &Stat) -> Self {
        Self(stat.st_dev, stat.st_ino)
    }

    pub(super) fn of_file(metadata: &Metadata) -> Self {
        Self(metadata.dev(), metadata.ino())
    }
}

impl ProjectFiles {
    /// Returns true if a file with several hard links has a name under `.ai/state`, or if the files under `.ai/state`
    /// cannot be listed.
    pub(super) fn is_state(&self, inode: Inode) -> bool {
        self.state_links.get_or_init(|| hard_linked_state(&self.root)).as_ref().is_none_or(|set| set.contains(&inode))
    }
}

/// Collects the files below `.ai/state` that have several hard links. `None` if a folder cannot be read, or if there
/// are more than [`MAX_FILES`] entries.
fn hard_linked_state(root: &Dir) -> Option<Inodes> {
    let mut set = Inodes::new();
    let Ok(state) = open_folder_at(root, ".ai".as_ref()).and_then(|ai| open_folder_at(&ai, "state".as_ref())) else {
        return Some(set);
    };
    let mut folders = vec![state];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in folder.entries().ok()?.flatten() {
            seen += 1;
            if seen > MAX_FILES {
                return None;
            }
            let name = entry.file_name();
            let Ok(stat) = rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                folders.extend(open_folder_at(&folder, &name).ok());
            } else if stat.st_nlink > 1 {
                set.insert(Inode::of(&stat));
            }
        }
    }
    Some(set)
}
