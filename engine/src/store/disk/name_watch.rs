//! Notifications of new names in folders, from the kernel (inotify).

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::NameWatch;
use crate::BoxFuture;

/// Magic numbers of file systems that other machines can change without a notification: NFS, SMB, CIFS, SMB 2, 9p,
/// FUSE, AFS, Ceph.
const SHARED_FILE_SYSTEMS: [u32; 8] =
    [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x6573_5546, 0x5346_414f, 0x00c3_6400];

/// A watch on folders below the root of a real disk.
#[derive(Debug)]
pub struct InotifyWatch {
    inotify: AsyncFd<OwnedFd>,
    root: Dir,
    folders: HashMap<i32, PathBuf>,
}

impl InotifyWatch {
    /// Creates a watch that watches no folder yet. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// The system does not support watches, or the user has too many.
    pub fn new(root: &Dir) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        #[expect(deprecated, reason = "an `OwnedFd` stays open and the same, as the unsafe successor requires")]
        let inotify = AsyncFd::new(inotify)?;
        Ok(Self { inotify, root: root.try_clone()?, folders: HashMap::new() })
    }

    fn add(&mut self, folder: &Path, flags: WatchFlags) -> io::Result<()> {
        let opened = self.root.open_dir(folder)?;
        if is_shared(rustix::fs::fstatfs(&opened)?.f_type) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "other machines can change this file system"));
        }
        // The name of the descriptor leads to the opened folder, even if a link replaces the folder meanwhile.
        let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
        let number = inotify::add_watch(self.inotify.get_ref(), path, flags | WatchFlags::ONLYDIR)?;
        self.folders.insert(number, folder.to_path_buf());
        Ok(())
    }

    /// Returns the folders with changes that the kernel has reported. Does not wait.
    fn take_changed(&mut self) -> io::Result<BTreeSet<PathBuf>> {
        let mut changed = BTreeSet::new();
        let mut buffer = [MaybeUninit::uninit(); 4 << 10];
        let mut reader = inotify::Reader::new(self.inotify.get_ref(), &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::WOULDBLOCK) => return Ok(changed),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let what = event.events();
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                changed.extend(self.folders.values().cloned());
            } else if what.contains(ReadFlags::IGNORED) {
                // The folder was removed.
                changed.extend(self.folders.remove(&event.wd()));
            } else if let Some(folder) = self.folders.get(&event.wd()) {
                // A new file is reported when it is complete, not when it is created. Names of temporary files start
                // with a dot.
                let is_complete = what.contains(ReadFlags::ISDIR) || !what.contains(ReadFlags::CREATE);
                if is_complete && event.file_name().is_none_or(|name| !name.to_bytes().starts_with(b".")) {
                    changed.insert(folder.clone());
                }
            }
        }
    }
}

impl NameWatch for InotifyWatch {
    fn add_files(&mut self, folder: &Path) -> io::Result<()> {
        self.add(folder, WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE)
    }

    fn add_folders(&mut self, folder: &Path) -> io::Result<()> {
        self.add(folder, WatchFlags::CREATE)
    }

    fn remove(&mut self, folder: &Path) {
        for (number, _) in self.folders.extract_if(|_, watched| watched == folder) {
            // Fails if the folder was removed, because the kernel then removes the watch itself.
            inotify::remove_watch(self.inotify.get_ref(), number).ok();
        }
    }

    fn changed(&mut self) -> BoxFuture<'_, io::Result<BTreeSet<PathBuf>>> {
        Box::pin(async move {
            loop {
                let mut ready = self.inotify.readable().await?;
                ready.clear_ready();
                drop(ready);
                let changed = self.take_changed()?;
                if !changed.is_empty() {
                    return Ok(changed);
                }
            }
        })
    }
}

/// Returns true if another machine can change a file system of this type.
fn is_shared(file_system: impl TryInto<i64>) -> bool {
    // The type of the number differs between platforms: signed or unsigned, with 32 or 64 bits.
    let number = file_system.try_into().ok().and_then(|number: i64| u32::try_from(number & 0xffff_ffff).ok());
    number.is_none_or(|number| SHARED_FILE_SYSTEMS.contains(&number))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use cap_std::ambient_authority;

    use super::*;

    #[tokio::test]
    async fn complete_files_and_new_folders_are_reported_and_temporary_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("thread/inbox")).unwrap();
        let root = Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
        let mut watch = InotifyWatch::new(&root).unwrap();
        watch.add_files(Path::new("thread/inbox")).unwrap();
        watch.add_folders(Path::new("thread")).unwrap();
        std::fs::write(path("thread/inbox/.temporary"), "").unwrap();
        std::fs::write(path("thread/file"), "").unwrap();
        assert!(watch.take_changed().unwrap().is_empty());
        std::fs::rename(path("thread/inbox/.temporary"), path("thread/inbox/message")).unwrap();
        assert_eq!(watch.changed().await.unwrap(), BTreeSet::from([PathBuf::from("thread/inbox")]));
        std::fs::create_dir(path("thread/other")).unwrap();
        assert_eq!(watch.changed().await.unwrap(), BTreeSet::from([PathBuf::from("thread")]));
        watch.remove(Path::new("thread"));
        std::fs::create_dir(path("thread/third")).unwrap();
        std::fs::remove_dir_all(path("thread/inbox")).unwrap();
        assert_eq!(watch.changed().await.unwrap(), BTreeSet::from([PathBuf::from("thread/inbox")]));
        assert!(watch.folders.is_empty());
    }

    #[test]
    fn file_systems_of_several_machines_are_shared() {
        assert!(is_shared(0x6969_i64));
        assert!(is_shared(0xff53_4d42_u32));
        assert!(is_shared(i64::from(0xff53_4d42_u32.cast_signed())));
        assert!(!is_shared(0xef53_i64));
    }
}
