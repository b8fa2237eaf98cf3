//! The names of the files in folders of a space, read once, so that no missing file is looked up on the disk.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::rc::Rc;

use cap_std::fs::Dir;
use rustix::fs::FileType;
use rye_compiler::world::Space;

use super::links::is_linked;
use super::listing::folder_entries;

/// Maximum number of names that are cached for a folder. In a larger folder, each file is looked up on the disk.
const MAX_FOLDER_NAMES: usize = 512;

/// A map from a folder (its space and path) to a value.
type ByFolder<T> = BTreeMap<(Space, Box<str>), T>;

/// A cache of the file names in folders.
#[derive(Default)]
pub(super) struct FolderCache {
    folders: RefCell<ByFolder<Rc<FolderNames>>>,
    /// The folders of the second level, such as `.ai/knowledge`. The value is true if the folder exists.
    roots: RefCell<ByFolder<bool>>,
}

enum FolderNames {
    Missing,
    /// The names in the folder. The value of a name is true if the entry may be a link, or if the path of the folder
    /// contains a link.
    Listed(BTreeMap<Box<str>, bool>),
    /// The names are not known: the folder is too large, or its names cannot be read.
    Unknown,
}

/// The result of looking up a file in the list of names of its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FolderEntry {
    Missing,
    /// The file exists, and its path contains no link.
    Direct,
    /// The file may be missing, or may be reached through a link.
    Unknown,
}

impl FolderCache {
    /// Looks up a file in the names of its folder.
    pub(super) fn entry(&self, space: Space, dir: &Dir, path: &str) -> FolderEntry {
        let Some((folder, name)) = path.rsplit_once('/') else { return FolderEntry::Unknown };
        match &*self.names(space, dir, folder) {
            FolderNames::Missing => FolderEntry::Missing,
            FolderNames::Listed(names) => match names.get(name) {
                None => FolderEntry::Missing,
                Some(false) => FolderEntry::Direct,
                Some(true) => FolderEntry::Unknown,
            },
            FolderNames::Unknown => FolderEntry::Unknown,
        }
    }

    /// Returns true if the names in a folder were read.
    #[cfg(test)]
    pub(super) fn has_read(&self, folder: &str) -> bool {
        self.folders.borrow().keys().any(|(_, read)| &**read == folder)
    }

    pub(super) fn clear(&mut self) {
        self.folders.get_mut().clear();
        self.roots.get_mut().clear();
    }

    fn names(&self, space: Space, dir: &Dir, folder: &str) -> Rc<FolderNames> {
        let key = (space, Box::from(folder));
        if let Some(known) = self.folders.borrow().get(&key) {
            return Rc::clone(known);
        }
        let names =
            if self.has_top_level_folder(space, dir, folder) { read_names(dir, folder) } else { FolderNames::Missing };
        let names = Rc::new(names);
        self.folders.borrow_mut().insert(key, Rc::clone(&names));
        names
    }

    /// Returns true if the folder of the second level that contains `folder` exists (`.ai/knowledge` for
    /// `.ai/knowledge/a/b`). Otherwise, `folder` does not exist either.
    fn has_top_level_folder(&self, space: Space, dir: &Dir, folder: &str) -> bool {
        let root = folder.match_indices('/').nth(1).and_then(|(end, _)| folder.get(..end)).unwrap_or(folder);
        let is_there = || dir.symlink_metadata(root).map_or_else(|error| !is_missing(&error), |_| true);
        *self.roots.borrow_mut().entry((space, Box::from(root))).or_insert_with(is_there)
    }
}

fn read_names(dir: &Dir, folder: &str) -> FolderNames {
    let entries = match folder_entries(dir, folder) {
        Ok(entries) => entries,
        Err(error) if is_missing(&error) => return FolderNames::Missing,
        // The caller then opens the file itself, and that call reports the reason.
        Err(_) => return FolderNames::Unknown,
    };
    let is_linked_folder = is_linked(dir, folder).unwrap_or(true);
    let mut names = BTreeMap::new();
    for entry in entries {
        let Ok(entry) = entry else { return FolderNames::Unknown };
        // A name that is not Unicode is not the name of an item.
        if let Ok(name) = entry.file_name().to_str() {
            let is_direct = matches!(entry.file_type(), FileType::RegularFile | FileType::Directory);
            names.insert(Box::from(name), is_linked_folder || !is_direct);
        }
        if names.len() > MAX_FOLDER_NAMES {
            return FolderNames::Unknown;
        }
    }
    FolderNames::Listed(names)
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
