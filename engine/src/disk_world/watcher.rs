//! File change notifications from the kernel (inotify) for the spaces. Not every file system sends them, so callers
//! also scan periodically.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use rye_compiler::world::{ItemKind, Space};

const MAX_WATCHED_FOLDERS: usize = 20_000;
/// The top-level folders of a space that contain the folders of items.
const TOP_FOLDERS: [&str; 3] = [".ai", ".agents", ".claude"];
/// Maximum depth of a watched folder below the folder at which watching starts. A deeper folder is an error.
const MAX_WATCH_DEPTH: usize = 40;

/// A reported change of files. Paths are relative to the space's root, with forward slashes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileChange {
    /// A file whose content may have changed. `listed` is true if the file was created or removed.
    File { space: Space, path: String, listed: bool },
    /// A folder in which every file may have changed.
    Folder { space: Space, path: String },
    /// Any file may have changed: the event queue overflowed, or a file system was unmounted.
    Everything,
}

/// The system's file watches on the folders of the spaces.
pub struct Watcher {
    inotify: OwnedFd,
    roots: Vec<(Space, PathBuf)>,
    folders: HashMap<i32, (Space, String)>,
}

impl Watcher {
    /// Watches the folders of items in these roots.
    ///
    /// # Errors
    /// The system does not support watches, or the folders need more watches than the system allows.
    pub fn new(roots: Vec<(Space, PathBuf)>) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let mut watcher = Self { inotify, roots, folders: HashMap::new() };
        for (space, root) in watcher.roots.clone() {
            for top in TOP_FOLDERS {
                watcher.watch_folder(space, &root, top)?;
            }
        }
        Ok(watcher)
    }

    /// Returns the changes since the last call, without blocking.
    ///
    /// # Errors
    /// The system cannot report changes any more.
    pub fn take_changes(&mut self) -> io::Result<Vec<FileChange>> {
        let mut changed = BTreeSet::new();
        let (mut new, mut moved) = (Vec::new(), Vec::new());
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::WOULDBLOCK) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let what = event.events();
            if what.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT) {
                changed.insert(FileChange::Everything);
                continue;
            }
            let Some((space, folder)) = self.folders.get(&event.wd()).cloned() else { continue };
            if what.contains(ReadFlags::IGNORED) {
                self.folders.remove(&event.wd());
                continue;
            }
            let Some(name) = event.file_name() else {
                // An event without a name concerns the folder itself. If the folder was removed, the watch of its
                // parent reports the removal.
                changed.insert(FileChange::Folder { space, path: folder });
                continue;
            };
            // A name that is not Unicode is not the name of an item.
            let Ok(name) = name.to_str() else { continue };
            let path = format!("{folder}/{name}");
            // The folders of other clients (`.claude`, `.agents`) contain state beside the items. Changes of state are
            // ignored.
            if !folder.starts_with(".ai") && !ItemKind::ALL.iter().any(|kind| kind.covers_path(&path)) {
                continue;
            }
            let listed = ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
            if what.contains(ReadFlags::ISDIR) {
                if what.contains(ReadFlags::MOVED_FROM) {
                    moved.push((space, path.clone()));
                }
                new.push((space, path.clone()));
                changed.insert(FileChange::Folder { space, path });
            } else {
                changed.insert(FileChange::File { space, path, listed: what.intersects(listed) });
            }
        }
        // Stop watching folders that were moved away.
        for (space, path) in moved {
            let inside = format!("{path}/");
            let is_gone =
                |(of, folder): &(Space, String)| *of == space && (*folder == path || folder.starts_with(&inside));
            for number in self.folders.extract_if(|_, folder| is_gone(folder)).map(|(number, _)| number) {
                // The kernel may have removed the watch already.
                let _ = inotify::remove_watch(&self.inotify, number);
            }
        }
        for (space, path) in new {
            let root = self.roots.iter().find(|(of, _)| *of == space).map(|(_, root)| root.clone());
            // `watch_folder` skips a folder that no longer exists. `changed` already contains the change of that
            // folder.
            if let Some(root) = root {
                self.watch_folder(space, &root, &path)?;
            }
        }
        Ok(changed.into_iter().collect())
    }

    /// Watches a folder and its subfolders. Folders without items (state of runs, git) are skipped.
    fn watch_folder(&mut self, space: Space, root: &Path, folder: &str) -> io::Result<()> {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        let mut folders = vec![(folder.to_owned(), 0_usize)];
        while let Some((folder, depth)) = folders.pop() {
            if !ItemKind::ALL.iter().any(|kind| kind.covers_path(&folder)) {
                continue;
            }
            match inotify::add_watch(&self.inotify, root.join(&folder), flags) {
                Ok(number) => self.folders.insert(number, (space, folder.clone())),
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                Err(error) => return Err(error.into()),
            };
            if self.folders.len() > MAX_WATCHED_FOLDERS {
                return Err(io::Error::other(format!("there are more than {MAX_WATCHED_FOLDERS} folders to watch")));
            }
            if depth > MAX_WATCH_DEPTH {
                let reason = format!("`{folder}` is nested more than {MAX_WATCH_DEPTH} folders deep");
                return Err(io::Error::other(reason));
            }
            for entry in root.join(&folder).read_dir()?.flatten() {
                let Ok(name) = entry.file_name().into_string() else { continue };
                // A link to a folder is watched too: both `is_dir` and the watch follow links.
                if entry.path().is_dir() {
                    folders.push((format!("{folder}/{name}"), depth + 1));
                }
            }
        }
        Ok(())
    }
}
