//! Fingerprints of files, to detect changes without reading the files.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rye_compiler::world::{ItemKind, Space};
use rye_engine::disk_world::FileChange;

use crate::workspace::Spaces;

/// Maximum number of fingerprinted files.
const MAX_FILES: usize = 50_000;
/// Maximum depth of fingerprinted folders.
const MAX_DEPTH: usize = 40;

/// Fingerprints by path; `None` for a folder of which only the existence matters.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Fingerprints(BTreeMap<PathBuf, Option<Fingerprint>>);

/// Modification and status change times in seconds and nanoseconds, length in bytes, device and inode.
#[derive(Debug, PartialEq, Eq)]
struct Fingerprint {
    modified: (i64, i64),
    changed: (i64, i64),
    length: u64,
    file: (u64, u64),
}

impl From<&Metadata> for Fingerprint {
    fn from(of: &Metadata) -> Self {
        Self {
            modified: (of.mtime(), of.mtime_nsec()),
            changed: (of.ctime(), of.ctime_nsec()),
            length: of.len(),
            file: (of.dev(), of.ino()),
        }
    }
}

impl Fingerprints {
    /// Takes the fingerprints of all files that can hold items, and of every other file directly in `.ai`. Of other
    /// folders in `.ai`, only the paths are recorded.
    pub fn of_items(spaces: &Spaces) -> Self {
        let mut fingerprints = Self::default();
        for (_, root) in space_roots(spaces) {
            fingerprints.add_top_level(&root.join(".ai"));
            fingerprints.add_folders_of_other_clients(&root, "");
        }
        fingerprints
    }

    /// Takes the fingerprints of the other files that a check depends on, besides items and settings: `.mcp.json`,
    /// keys, the `.ai` folder itself, and `scripts`, the scripts of providers.
    pub fn of_other_files(spaces: &Spaces, scripts: &BTreeSet<PathBuf>) -> Self {
        let mut fingerprints = Self::default();
        for script in scripts {
            fingerprints.add_file(script.clone());
        }
        fingerprints.add_file(spaces.project.join(".mcp.json"));
        for (_, root) in space_roots(spaces) {
            fingerprints.add_folder(&root.join(".ai/keys"));
        }
        let user = spaces.user.clone().or_else(crate::workspace::user_root);
        for root in std::iter::once(spaces.project.clone()).chain(user) {
            let folder = root.join(".ai");
            // Only device and inode are compared, to detect that `.ai` was replaced. The contents of `.ai` have their
            // own fingerprints.
            if let Ok(metadata) = std::fs::metadata(&folder) {
                let file = (metadata.dev(), metadata.ino());
                fingerprints.0.insert(folder, Some(Fingerprint { modified: (0, 0), changed: (0, 0), length: 0, file }));
            }
        }
        fingerprints
    }

    /// Takes the fingerprints of the changed files and folders again.
    pub fn update(&mut self, spaces: &Spaces, changed: &[FileChange]) {
        for change in changed {
            match change {
                FileChange::Everything => *self = Self::of_items(spaces),
                FileChange::File { space, path, .. } => {
                    let Some((_, root)) = space_roots(spaces).find(|(of, _)| of == space) else { continue };
                    let path = root.join(path);
                    self.0.remove(&path);
                    self.add_file(path);
                }
                FileChange::Folder { space, path } => {
                    let Some((_, root)) = space_roots(spaces).find(|(of, _)| of == space) else { continue };
                    let folder = root.join(path);
                    self.0.retain(|known, _| !known.starts_with(&folder));
                    if path == ".ai" {
                        self.add_top_level(&folder);
                    } else if path.contains('/') {
                        self.add_folder(&folder);
                    } else {
                        self.add_folders_of_other_clients(&root, path);
                    }
                }
            }
        }
    }

    /// Adds the contents of `folder`, which is an `.ai` folder: the files directly in it and all files in its item
    /// folders. Of every other folder in it, only the path is added.
    fn add_top_level(&mut self, folder: &Path) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let is_ours = |kind: &ItemKind| Path::new(kind.folder()).file_name() == Some(&name);
            if !path.is_dir() {
                self.add_file(path);
            } else if ItemKind::ALL.iter().any(is_ours) {
                self.add_folder(&path);
            } else {
                self.0.insert(path, None);
            }
        }
    }

    /// Adds the item folders outside `.ai/`, such as `.claude/skills/`, if their path below `root` starts with `below`.
    fn add_folders_of_other_clients(&mut self, root: &Path, below: &str) {
        let folders = ItemKind::ALL.iter().flat_map(|kind| kind.folders());
        for folder in folders.filter(|folder| !folder.starts_with(".ai/") && folder.starts_with(below)) {
            self.add_folder(&root.join(folder.trim_end_matches('/')));
        }
    }

    fn add_folder(&mut self, root: &Path) {
        let mut folders = vec![(root.to_path_buf(), 0)];
        // Links are followed, and each folder is walked once, so that every walk ends.
        let mut walked: HashSet<(u64, u64)> = HashSet::new();
        while let Some((folder, depth)) = folders.pop() {
            // A missing or unreadable folder has no fingerprints, so its files count as changed; the check reports the
            // error.
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                let path = entry.path();
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                if !is_folder && !is_link {
                    self.add_file(path);
                    continue;
                }
                match std::fs::metadata(&path).ok().filter(Metadata::is_dir) {
                    Some(of) if depth < MAX_DEPTH && walked.insert((of.dev(), of.ino())) => {
                        folders.push((path, depth + 1));
                    }
                    Some(_) => {}
                    None => self.add_file(path),
                }
            }
        }
    }

    /// Adds the fingerprint of a file. The fingerprint of a link is that of its target; the fingerprint of a dangling
    /// link is that of the link itself.
    fn add_file(&mut self, path: PathBuf) {
        let metadata = std::fs::metadata(&path).or_else(|_| std::fs::symlink_metadata(&path));
        if let Ok(metadata) = metadata
            && self.0.len() < MAX_FILES
        {
            self.0.insert(path, Some(Fingerprint::from(&metadata)));
        }
    }
}

/// Returns the folders that contain `.ai/`, by space.
pub fn space_roots(spaces: &Spaces) -> impl Iterator<Item = (Space, PathBuf)> {
    let user = spaces.user.iter().map(|user| (Space::User, user.clone()));
    std::iter::once((Space::Project, spaces.project.clone())).chain(user)
}
