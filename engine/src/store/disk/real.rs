//! The real disk, accessed through one directory handle. The operating system rejects paths that lead out of the root,
//! by `..` or by a symbolic link.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::TryLockError;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, MetadataExt as _, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;

use super::name_watch::InotifyWatch;
use super::{
    Counters, DirEntry, Disk, DiskCounters, FileAccess, HeldLock, NameWatch, ignore_missing, ignore_not_empty,
};

/// Maximum number of written files that stay open. There can be thousands of threads, but a process may often have only
/// 1,024 descriptors.
const MAX_OPEN_FILES: usize = 256;

/// The files below one folder of the real disk.
#[derive(Debug)]
pub struct RealDisk {
    root: Dir,
    counters: DiskCounters,
    written: Mutex<OpenFiles>,
}

/// Open handles of written files. A handle stays open until its file is synced, because the kernel reports a failed
/// write-back only to descriptors that were open at that time. A synced handle stays open for further writes until it
/// is evicted.
#[derive(Debug, Default)]
struct OpenFiles {
    files: BTreeMap<PathBuf, OpenFile>,
    /// The `age` of the next file to be opened. Every file gets a higher number than the files that were opened before.
    next: u64,
    /// Files whose sync failed when their handle was evicted. No caller has seen that error, so every later sync of
    /// such a file fails.
    failed: BTreeSet<PathBuf>,
}

#[derive(Debug)]
struct OpenFile {
    file: Arc<File>,
    age: u64,
    is_synced: bool,
}

impl RealDisk {
    /// Opens an existing folder, `root`, as the root of all paths of the disk.
    pub fn open(root: &Path) -> io::Result<Self> {
        let root = Dir::open_ambient_dir(root, ambient_authority())?;
        Ok(Self { root, counters: DiskCounters::default(), written: Mutex::default() })
    }

    fn written(&self) -> MutexGuard<'_, OpenFiles> {
        // No statement panics while the maps are inconsistent, so a poisoned lock is usable.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writable(&self, path: &Path, create: bool) -> io::Result<Arc<File>> {
        if let Some(open) = self.written().files.get(path) {
            return Ok(Arc::clone(&open.file));
        }
        self.regular(path, OpenOptions::new().read(true).write(true).create(create)).map(Arc::new)
    }

    /// Opens a regular file. Fails for a pipe, because a read could block. Fails for a device, because its contents may
    /// have no end.
    fn regular(&self, path: &Path, options: &mut OpenOptions) -> io::Result<File> {
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let file = self.root.open_with(path, options.custom_flags(nonblocking))?;
        if file.metadata()?.is_file() {
            return Ok(file);
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }

    /// Keeps the handle of a file that is about to be written. If [`MAX_OPEN_FILES`] handles are kept already, evicts
    /// one, and syncs the evicted file if it has unsynced writes.
    fn keep_open(&self, path: &Path, file: Arc<File>) {
        let mut written = self.written();
        if let Some(open) = written.files.get_mut(path) {
            open.is_synced = false;
            return;
        }
        if written.files.len() >= MAX_OPEN_FILES {
            // Synced handles are evicted first.
            let oldest = written.files.iter().min_by_key(|(_, open)| (!open.is_synced, open.age));
            if let Some(oldest) = oldest.map(|(path, _)| path.clone())
                && let Some(open) = written.files.remove(&oldest)
                && !open.is_synced
                && open.file.sync_data().is_err()
            {
                written.failed.insert(oldest);
            }
        }
        let age = written.next;
        written.next += 1;
        written.files.insert(path.to_path_buf(), OpenFile { file, age, is_synced: false });
    }

    /// Returns true if the name `path` still refers to the open file `file`.
    fn has_name(&self, path: &Path, file: &std::fs::File) -> io::Result<bool> {
        let named = match self.root.metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            named => named?,
        };
        let open = file.metadata()?;
        Ok((named.dev(), named.ino()) == (open.dev(), open.ino()))
    }

    /// Opens a folder once for several changes of its names. Does nothing if the folder is missing.
    fn in_folder(&self, folder: &Path, change: impl FnOnce(&Dir) -> io::Result<()>) -> io::Result<()> {
        match self.root.open_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            opened => change(&opened?),
        }
    }

    fn close_handle(&self, path: &Path) {
        self.written().files.remove(path);
    }
}

impl Disk for RealDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // A synced handle may belong to a replaced file. It is dropped, so that this read and later writes use the file
        // that has the name now.
        let mut written = self.written();
        if written.files.get(path).is_some_and(|open| open.is_synced) {
            written.files.remove(path);
        }
        drop(written);
        let mut bytes = Vec::new();
        self.regular(path, OpenOptions::new().read(true))?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn read_range(&self, path: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut file = self.regular(path, OpenOptions::new().read(true))?;
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.take(length as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn length(&self, path: &Path) -> io::Result<u64> {
        self.root.metadata(path).map(|metadata| metadata.len())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.root.try_exists(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.counters.list();
        let mut entries = Vec::new();
        for entry in self.root.read_dir(path)? {
            let entry = entry?;
            // The store creates UTF-8 names only.
            if let Ok(name) = entry.file_name().into_string() {
                entries.push(DirEntry { name, is_dir: entry.file_type()?.is_dir() });
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn create(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        self.counters.create();
        let mut file = self.root.open_with(path, OpenOptions::new().write(true).create_new(true))?;
        file.write_all(contents)?;
        self.keep_open(path, Arc::new(file));
        Ok(())
    }

    fn append(&self, path: &Path, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.counters.append();
        let file = self.writable(path, at == 0)?;
        let length = file.metadata()?.len();
        if length != at {
            let message = format!("the file is {length} bytes long instead of {at}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        self.keep_open(path, Arc::clone(&file));
        write_from(&file, at, bytes)
    }

    fn write_at(&self, path: &Path, at: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.writable(path, false)?;
        self.keep_open(path, Arc::clone(&file));
        write_from(&file, at, bytes)
    }

    fn append_volatile(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.regular(path, OpenOptions::new().append(true).create(true))?.write_all(bytes)
    }

    fn truncate(&self, path: &Path, length: u64) -> io::Result<()> {
        let file = self.writable(path, false)?;
        self.keep_open(path, Arc::clone(&file));
        file.set_len(length)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.counters.sync();
        let mut written = self.written();
        if written.failed.contains(path) {
            return Err(io::Error::other("an earlier write did not reach the device"));
        }
        let file = written.files.get_mut(path).map(|open| {
            // A concurrent write resets this flag.
            open.is_synced = true;
            Arc::clone(&open.file)
        });
        drop(written);
        let file = file.map_or_else(|| self.regular(path, OpenOptions::new().read(true)).map(Arc::new), Ok)?;
        file.sync_data().inspect_err(|_| self.close_handle(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.counters.sync_dir();
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        self.root.open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.counters.rename();
        self.root.rename(from, &self.root, to)?;
        // No later write uses the old names. A power failure can damage the contents of a file that was not synced
        // before its rename; readers must then detect the damage.
        self.close_handle(from);
        self.close_handle(to);
        Ok(())
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.counters.rename();
        match self.root.hard_link(from, &self.root, to) {
            Ok(()) => self.remove(from),
            // The file system has no hard links. Another process can then create the name between these two calls.
            Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => {
                if self.exists(to)? {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                self.root.rename(from, &self.root, to)
            }
            Err(error) => Err(error),
        }
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.root.create_dir(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.root.remove_file(path)?;
        self.close_handle(path);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.root.remove_dir(path)
    }

    fn remove_files(&self, folder: &Path, names: &[&str]) -> io::Result<()> {
        self.in_folder(folder, |opened| {
            names.iter().try_for_each(|name| {
                ignore_missing(opened.remove_file(name))?;
                self.close_handle(&folder.join(name));
                Ok(())
            })
        })
    }

    fn remove_dirs(&self, folder: &Path, names: &[&str]) -> io::Result<()> {
        self.in_folder(folder, |opened| names.iter().try_for_each(|name| ignore_not_empty(opened.remove_dir(name))))
    }

    fn lock(&self, path: &Path, contents: &[u8]) -> io::Result<Box<dyn HeldLock>> {
        let file = self.root.open_with(path, OpenOptions::new().write(true).create_new(true))?.into_std();
        // Waits while another process probes the lock: `is_locked` holds a shared lock for a moment.
        file.lock()?;
        let held = HeldFile { file };
        (&held.file).write_all(contents)?;
        Ok(Box::new(held))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        let file = match self.regular(path, OpenOptions::new().read(true)) {
            Ok(file) => file.into_std(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        match file.try_lock_shared() {
            Ok(()) => {
                drop(HeldFile { file });
                Ok(false)
            }
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn HeldLock>> {
        loop {
            let file = self.regular(path, OpenOptions::new().read(true).write(true).create(true))?.into_std();
            file.lock_shared()?;
            let held = HeldFile { file };
            // The holder of the exclusive lock may have removed the file in the meantime.
            if self.has_name(path, &held.file)? {
                return Ok(Box::new(held));
            }
        }
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn HeldLock>>> {
        let file = match self.regular(path, OpenOptions::new().read(true).write(true)) {
            Ok(file) => file.into_std(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match file.try_lock() {
            Ok(()) => {
                let held = HeldFile { file };
                let has_name = self.has_name(path, &held.file)?;
                Ok(has_name.then(|| Box::new(held) as Box<dyn HeldLock>))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn boot_id(&self) -> Option<String> {
        static BOOT: LazyLock<Option<String>> = LazyLock::new(|| {
            let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
            let id = text.trim();
            let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
            is_id.then(|| id.to_owned())
        });
        BOOT.clone()
    }

    fn shared_file(&self, path: &Path, access: FileAccess) -> io::Result<Option<std::fs::File>> {
        let mut options = OpenOptions::new();
        match access {
            FileAccess::Read => options.read(true),
            FileAccess::ReadWrite => options.read(true).write(true).create(true),
        };
        self.regular(path, &mut options).map(|file| Some(file.into_std()))
    }

    fn name_watch(&self) -> io::Result<Option<Box<dyn NameWatch>>> {
        Ok(Some(Box::new(InotifyWatch::new(&self.root)?)))
    }

    fn counters(&self) -> Counters {
        self.counters.read()
    }
}

fn write_from(mut file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)
}

/// A locked file, which is unlocked when the value is dropped. Closing the file is not enough to unlock it: a process
/// that another thread starts at this moment has a copy of the handle until the process executes its program.
#[derive(Debug)]
struct HeldFile {
    file: std::fs::File,
}

impl HeldLock for HeldFile {}

impl Drop for HeldFile {
    fn drop(&mut self) {
        // If unlocking fails, the lock ends when the last copy of the handle is closed.
        self.file.unlock().ok();
    }
}

#[cfg(test)]
mod tests;
