//! The disk of the machine, through one directory handle: a name that leads out of the root, by `..` or by a
//! symbolic link, is refused by the operating system.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::TryLockError;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;

use super::{Access, Counters, Disk, DiskCounters, Entry, Held};

/// Files kept open at most: thousands of threads live in one process of 1,024 descriptors.
const OPEN_FILES: usize = 256;

/// Files below one folder of the real disk.
#[derive(Debug)]
pub struct RealDisk {
    root: Dir,
    counters: DiskCounters,
    written: Mutex<Written>,
}

/// Files written to stay open, at least until they are synced: the kernel reports a failed write-back to the descriptors
/// that were open when it happened, and to nobody who opens the file later. After that, because more is often to come.
#[derive(Debug, Default)]
struct Written {
    files: BTreeMap<PathBuf, Open>,
    /// Grows with each file kept, so that the smallest is the oldest.
    next: u64,
    /// Files that could not be synced when their descriptor was needed: their next sync fails.
    failed: BTreeSet<PathBuf>,
}

#[derive(Debug)]
struct Open {
    file: Arc<File>,
    age: u64,
    is_synced: bool,
}

impl RealDisk {
    /// The disk below `root`, an existing folder.
    pub fn open(root: &Path) -> io::Result<Self> {
        let root = Dir::open_ambient_dir(root, ambient_authority())?;
        Ok(Self { root, counters: DiskCounters::default(), written: Mutex::default() })
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        // The maps are whole between any two statements that can panic.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writable(&self, path: &Path, create: bool) -> io::Result<Arc<File>> {
        if let Some(open) = self.written().files.get(path) {
            return Ok(Arc::clone(&open.file));
        }
        self.regular(path, OpenOptions::new().read(true).write(true).create(create)).map(Arc::new)
    }

    /// Opens a file, and nothing else: whoever opens a pipe waits for its other end, and a device has none.
    fn regular(&self, path: &Path, options: &mut OpenOptions) -> io::Result<File> {
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let file = self.root.open_with(path, options.custom_flags(nonblocking))?;
        if file.metadata()?.is_file() {
            return Ok(file);
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }

    /// Remembers a file that is written to.
    fn keep(&self, path: &Path, file: Arc<File>) {
        let mut written = self.written();
        if let Some(open) = written.files.get_mut(path) {
            open.is_synced = false;
            return;
        }
        if written.files.len() >= OPEN_FILES {
            // One that owes nothing goes first.
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
        written.files.insert(path.to_path_buf(), Open { file, age, is_synced: false });
    }

    fn forget(&self, path: &Path) {
        self.written().files.remove(path);
    }
}

impl Disk for RealDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // Who reads the whole of it looks at what has this name now; so does whoever writes to it after that.
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

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in self.root.read_dir(path)? {
            let entry = entry?;
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = entry.file_name().into_string() {
                entries.push(Entry { name, is_dir: entry.file_type()?.is_dir() });
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn create(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        self.counters.create();
        let mut file = self.root.open_with(path, OpenOptions::new().write(true).create_new(true))?;
        file.write_all(contents)?;
        self.keep(path, Arc::new(file));
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
        self.keep(path, Arc::clone(&file));
        write_from(&file, at, bytes)
    }

    fn write_at(&self, path: &Path, at: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.writable(path, false)?;
        self.keep(path, Arc::clone(&file));
        write_from(&file, at, bytes)
    }

    fn append_volatile(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.regular(path, OpenOptions::new().append(true).create(true))?.write_all(bytes)
    }

    fn truncate(&self, path: &Path, length: u64) -> io::Result<()> {
        let file = self.writable(path, false)?;
        self.keep(path, Arc::clone(&file));
        file.set_len(length)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.counters.sync();
        let mut written = self.written();
        if written.failed.contains(path) {
            return Err(io::Error::other("an earlier write did not reach the device"));
        }
        let file = written.files.get_mut(path).map(|open| {
            // Whoever writes meanwhile takes this back.
            open.is_synced = true;
            Arc::clone(&open.file)
        });
        drop(written);
        let file = file.map_or_else(|| self.regular(path, OpenOptions::new().read(true)).map(Arc::new), Ok)?;
        file.sync_data().inspect_err(|_| self.forget(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.counters.sync_dir();
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        self.root.open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.counters.rename();
        self.root.rename(from, &self.root, to)?;
        // A file that nobody synced under its first name is written to no more: what it owes is the reader's concern.
        self.forget(from);
        self.forget(to);
        Ok(())
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.counters.rename();
        match self.root.hard_link(from, &self.root, to) {
            Ok(()) => self.remove(from),
            // A file system without links: the claim is then only as good as the moment between these two.
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
        self.forget(path);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.root.remove_dir(path)
    }

    fn lock(&self, path: &Path, contents: &[u8]) -> io::Result<Box<dyn Held>> {
        let file = self.root.open_with(path, OpenOptions::new().write(true).create_new(true))?.into_std();
        // Waits for a prober, whose shared lock lasts for the time of one system call.
        file.lock()?;
        (&file).write_all(contents)?;
        Ok(Box::new(HeldFile { _file: file }))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        let file = match self.regular(path, OpenOptions::new().read(true)) {
            Ok(file) => file.into_std(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn shared_file(&self, path: &Path, access: Access) -> io::Result<Option<std::fs::File>> {
        let mut options = OpenOptions::new();
        match access {
            Access::Read => options.read(true),
            Access::ReadWrite => options.read(true).write(true).create(true),
        };
        self.regular(path, &mut options).map(|file| Some(file.into_std()))
    }

    fn counters(&self) -> Counters {
        self.counters.read()
    }
}

fn write_from(mut file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)
}

#[derive(Debug)]
struct HeldFile {
    _file: std::fs::File,
}

impl Held for HeldFile {}

#[cfg(test)]
mod tests;
