//! The real disk: rejected paths and file types, and eviction of handles without loss.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::super::SimulatedDisk;
use super::*;

fn disk() -> (TempDir, RealDisk) {
    let folder = TempDir::new().unwrap();
    let disk = RealDisk::open(folder.path()).unwrap();
    (folder, disk)
}

#[test]
fn nothing_outside_the_root_is_touched() {
    let outside = TempDir::new().unwrap();
    std::fs::write(outside.path().join("file"), "theirs").unwrap();
    let (folder, disk) = disk();
    symlink(outside.path(), folder.path().join("link")).unwrap();
    symlink(outside.path().join("file"), folder.path().join("file")).unwrap();
    let elsewhere = outside.path().join("file");
    for path in [Path::new("link/file"), Path::new("file"), Path::new("../file"), &elsewhere] {
        assert!(disk.read(path).is_err(), "{path:?}");
        assert!(disk.append(path, 6, b"ours").is_err(), "{path:?}");
        assert!(disk.append_volatile(path, b"ours").is_err(), "{path:?}");
        assert!(disk.truncate(path, 0).is_err(), "{path:?}");
        assert!(disk.create(path, b"ours").is_err(), "{path:?}");
        assert!(disk.sync(path).is_err(), "{path:?}");
        assert!(disk.lock(path, b"ours").is_err(), "{path:?}");
        assert!(disk.shared_file(path, FileAccess::ReadWrite).is_err(), "{path:?}");
    }
    for path in ["link/new", "../new"] {
        assert!(disk.create(Path::new(path), b"ours").is_err());
        assert!(disk.create_dir(Path::new(path)).is_err());
        assert!(disk.write_atomic(Path::new(path), b"ours").is_err());
    }
    assert!(disk.remove(Path::new("link/file")).is_err());
    assert!(disk.list(Path::new("link")).is_err());
    assert_eq!(std::fs::read(elsewhere).unwrap(), b"theirs");
    // Atomic replacement replaces a link itself, not its target.
    disk.write_atomic(Path::new("file"), b"ours").unwrap();
    assert_eq!(std::fs::read(outside.path().join("file")).unwrap(), b"theirs");
    assert_eq!(disk.read(Path::new("file")).unwrap(), b"ours");
}

#[test]
fn pipes_and_folders_are_rejected_without_blocking() {
    let (folder, disk) = disk();
    let made = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap();
    assert!(made.success());
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    for path in [Path::new("pipe"), Path::new("folder")] {
        assert!(disk.read(path).is_err(), "{path:?}");
        assert!(disk.read_range(path, 0, 1).is_err(), "{path:?}");
        assert!(disk.append(path, 0, b"x").is_err(), "{path:?}");
        assert!(disk.append_volatile(path, b"x").is_err(), "{path:?}");
        assert!(disk.write_at(path, 0, b"x").is_err(), "{path:?}");
        assert!(disk.truncate(path, 0).is_err(), "{path:?}");
        assert!(disk.sync(path).is_err(), "{path:?}");
        assert!(disk.is_locked(path).is_err(), "{path:?}");
        assert!(disk.shared_file(path, FileAccess::Read).is_err(), "{path:?}");
        assert!(disk.shared_file(path, FileAccess::ReadWrite).is_err(), "{path:?}");
    }
}

#[test]
fn append_at_a_wrong_offset_fails() {
    let (_folder, disk) = disk();
    let path = Path::new("log");
    assert_eq!(disk.append(path, 3, b"x").unwrap_err().kind(), io::ErrorKind::NotFound);
    disk.append(path, 0, b"abc").unwrap();
    for wrong in [0, 2, 4] {
        assert_eq!(disk.append(path, wrong, b"x").unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
    disk.append(path, 3, b"def").unwrap();
    disk.sync(path).unwrap();
    disk.truncate(path, 4).unwrap();
    disk.append(path, 4, b"!").unwrap();
    assert_eq!(disk.read(path).unwrap(), b"abcd!");
    assert_eq!(disk.read_range(path, 1, 2).unwrap(), b"bc");
    assert_eq!(disk.read_range(path, 4, 20).unwrap(), b"!");
    assert_eq!(disk.read_range(path, 40, 20).unwrap(), b"");
}

#[test]
fn more_unsynced_files_than_handles_lose_nothing() {
    let (_folder, disk) = disk();
    let count = MAX_OPEN_FILES + 40;
    let paths: Vec<PathBuf> = (0..count).map(|n| PathBuf::from(format!("log-{n}"))).collect();
    for round in 0..3 {
        for path in &paths {
            disk.append(path, round * 2, b"ab").unwrap();
        }
        assert_eq!(disk.written().files.len(), MAX_OPEN_FILES);
    }
    for path in &paths {
        disk.sync(path).unwrap();
        assert_eq!(disk.read(path).unwrap(), b"ababab");
    }
    assert!(disk.written().files.values().all(|open| open.is_synced));
}

#[test]
fn synced_handles_are_evicted_first() {
    let (_folder, disk) = disk();
    let (first, second) = (Path::new("first"), Path::new("second"));
    for path in [first, second] {
        disk.append(path, 0, b"ab").unwrap();
    }
    disk.sync(second).unwrap();
    for n in 2..=MAX_OPEN_FILES {
        disk.append(&PathBuf::from(format!("log-{n}")), 0, b"ab").unwrap();
    }
    let open = |path| disk.written().files.get(path).map(|open| open.is_synced);
    assert_eq!((open(first), open(second)), (Some(false), None));
}

#[test]
fn full_read_finds_a_replaced_file() {
    let (folder, disk) = disk();
    let path = Path::new("log");
    disk.append(path, 0, b"ab").unwrap();
    disk.sync(path).unwrap();
    std::fs::write(folder.path().join("other"), "abc").unwrap();
    std::fs::rename(folder.path().join("other"), folder.path().join("log")).unwrap();
    assert_eq!(disk.read(path).unwrap(), b"abc");
    disk.append(path, 3, b"d").unwrap();
    assert_eq!(std::fs::read(folder.path().join("log")).unwrap(), b"abcd");
}

#[test]
fn failed_eviction_sync_fails_the_next_sync() {
    let (_folder, disk) = disk();
    let path = Path::new("log");
    disk.append(path, 0, b"ab").unwrap();
    disk.written().failed.insert(path.to_path_buf());
    assert!(disk.sync(path).is_err());
    assert!(disk.sync(path).is_err());
}

#[test]
fn rename_new_has_one_winner() {
    let (folder, disk) = disk();
    let to = Path::new("name");
    let won: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let disk = &disk;
                scope.spawn(move || {
                    let from = PathBuf::from(format!("from-{worker}"));
                    disk.create(&from, worker.to_string().as_bytes()).unwrap();
                    match disk.rename_new(&from, to) {
                        Ok(()) => 1,
                        Err(error) => {
                            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
                            disk.remove(&from).unwrap();
                            0
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!(won, 1);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn names_are_removed_together_and_missing_ones_are_ignored() {
    let (_folder, real) = disk();
    for disk in [&real as &dyn Disk, &SimulatedDisk::new()] {
        let inner = Path::new("a/inner");
        for folder in ["a", "a/inner", "a/empty"] {
            disk.create_dir(Path::new(folder)).unwrap();
        }
        for file in ["a/one", "a/two", "a/inner/kept"] {
            disk.create(Path::new(file), b"text").unwrap();
        }
        disk.remove_files(Path::new("a"), &["one", "missing", "two"]).unwrap();
        disk.remove_files(Path::new("missing"), &["one"]).unwrap();
        disk.remove_dirs(Path::new("a"), &["inner", "missing", "empty"]).unwrap();
        disk.remove_dirs(Path::new("missing"), &["inner"]).unwrap();
        let left = vec![DirEntry { name: "inner".to_owned(), is_dir: true }];
        assert_eq!(disk.list(Path::new("a")).unwrap(), left, "a folder that is not empty stays");
        assert!(disk.remove_files(Path::new("a"), &["inner"]).is_err(), "a folder is no file");
        assert!(disk.exists(&inner.join("kept")).unwrap());
        // A file that is created again under a removed name is a new file.
        disk.append(Path::new("a/one"), 0, b"new").unwrap();
        assert_eq!(disk.read(Path::new("a/one")).unwrap(), b"new");
    }
}

#[test]
fn lock_is_visible_until_released() {
    let (_folder, disk) = disk();
    let path = Path::new("owner");
    assert!(!disk.is_locked(path).unwrap());
    let held = disk.lock(path, b"me").unwrap();
    assert!(disk.is_locked(path).unwrap());
    assert_eq!(disk.lock(path, b"you").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(disk.read(path).unwrap(), b"me");
    drop(held);
    assert!(!disk.is_locked(path).unwrap());
}

#[test]
fn write_atomic_never_shows_a_mixed_file() {
    let (folder, disk) = disk();
    let path = Path::new("thread.json");
    disk.write_atomic(path, &vec![b'a'; 50_000]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..50_u8 {
                disk.write_atomic(path, &vec![b'a' + round % 2; 50_000]).unwrap();
            }
        });
        for _ in 0..200 {
            let read = disk.read(path).unwrap();
            let first = read.first().copied().unwrap();
            assert!(read.len() == 50_000 && read.iter().all(|byte| *byte == first));
        }
    });
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary files stay");
    assert_eq!(disk.counters().syncs, 0);
}

#[test]
fn lock_ends_with_its_holder_although_a_starting_process_has_a_copy_of_the_handle() {
    let (_folder, disk) = disk();
    let path = Path::new("lock");
    drop(disk.lock(path, b"ours").unwrap());
    let held = HeldFile { file: disk.regular(path, OpenOptions::new().read(true)).unwrap().into_std() };
    held.file.lock().unwrap();
    // A process that another thread is starting holds such a copy of the handle, and the copy shares the lock.
    let _copy = held.file.try_clone().unwrap();
    assert!(disk.is_locked(path).unwrap() && disk.try_lock(path).unwrap().is_none());
    drop(held);
    assert!(!disk.is_locked(path).unwrap() && disk.try_lock(path).unwrap().is_some());
}
