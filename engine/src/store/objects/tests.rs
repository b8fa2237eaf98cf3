//! Objects: stored once, durable on return, verified against their hash.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::store::disk::{DiskFault, SimulatedDisk, Survival};
use crate::store::layout;

fn objects() -> (Arc<SimulatedDisk>, Objects) {
    let disk = Arc::new(SimulatedDisk::new());
    layout::create_folders(&*disk).unwrap();
    (Arc::clone(&disk), Objects::new(disk))
}

#[test]
fn ids_are_the_hash() {
    let (disk, objects) = objects();
    let id = objects.put(b"abc").unwrap();
    assert_eq!(id.as_str(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(objects.get(&id).unwrap(), b"abc");
    let names: Vec<String> = disk.list(Path::new(OBJECTS)).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, [id.to_string()]);
}

#[test]
fn json_in_parts_is_the_object_of_its_whole_text() {
    let (disk, objects) = objects();
    let value = serde_json::json!(["a line\n".repeat(400_000), 1]);
    let text = serde_json::to_vec(&value).unwrap();
    let id = objects.put_json(&value).unwrap();
    assert_eq!((&id, objects.get(&id).unwrap() == text), (&ObjectId::of(&text), true));
    let before = disk.counters();
    assert_eq!((objects.put(&text).unwrap(), objects.put_json(&value).unwrap()), (id.clone(), id.clone()));
    assert_eq!(disk.counters().since(&before).all_syncs(), 0);
    // A repository can ship another file under the name of the object.
    disk.write_atomic(&final_path(&id), b"other").unwrap();
    assert_eq!(objects.put_json(&value).unwrap(), id);
    assert!(objects.get(&id).unwrap() == text);
}

#[test]
fn contents_of_a_stored_object_are_not_made_again() {
    let (disk, objects) = objects();
    let id = objects.put(b"abc").unwrap();
    let before = disk.counters();
    objects.put_unless_stored(&id, || panic!("the object is stored")).unwrap();
    assert_eq!(disk.counters().since(&before).all_syncs(), 0);
    // A repository can ship another file under the name of the object.
    disk.write_atomic(&final_path(&id), b"other").unwrap();
    objects.put_unless_stored(&id, || Ok(b"abc".to_vec())).unwrap();
    assert_eq!(objects.get(&id).unwrap(), b"abc");
}

#[test]
fn json_in_parts_survives_a_power_failure() {
    let (disk, objects) = objects();
    let value = serde_json::json!("a line\n".repeat(400_000));
    let id = objects.put_json(&value).unwrap();
    disk.restart(Survival::Nothing);
    assert!(objects.get(&id).unwrap() == serde_json::to_vec(&value).unwrap());
}

#[test]
fn full_disk_leaves_no_part_of_an_object() {
    let (disk, objects) = objects();
    let value = serde_json::json!("x".repeat(3 * 1024 * 1024));
    disk.fail_at(disk.operations() + 1, DiskFault::Full);
    assert!(objects.put_json(&value).is_err());
    assert_eq!(disk.list(Path::new(OBJECTS)).unwrap(), []);
}

#[test]
fn the_same_contents_are_synced_once() {
    let (disk, objects) = objects();
    let before = disk.counters();
    let ids = objects.put_all(&[b"one", b"two", b"one"]).unwrap();
    assert_eq!(ids[0], ids[2]);
    let counters = disk.counters().since(&before);
    assert_eq!((counters.syncs, counters.dir_syncs), (2, 1));
    objects.put_all(&[b"two", b"one"]).unwrap();
    objects.put(b"one").unwrap();
    assert_eq!(disk.counters().since(&before).all_syncs(), 3);
    assert_eq!(objects.put_all(&[]).unwrap(), []);
    assert_eq!(objects.get(&objects.put(b"").unwrap()).unwrap(), b"");
}

#[test]
fn object_survives_loss_of_its_final_rename() {
    let (disk, objects) = objects();
    let id = objects.put(b"abc").unwrap();
    disk.restart(Survival::Nothing);
    assert!(!objects.has(&id).unwrap());
    assert_eq!(objects.get(&id).unwrap(), b"abc");
    assert_eq!(objects.put(b"abc").unwrap(), id);
    assert!(objects.has(&id).unwrap());
}

#[test]
fn object_renamed_during_a_read_is_found() {
    let (disk, objects) = objects();
    let id = objects.put(b"abc").unwrap();
    // The power failed before the second rename was durable.
    disk.restart(Survival::Nothing);
    let (other, of) = (Arc::downgrade(&disk), id.clone());
    disk.before_reads(move |path| {
        // Simulates a process that stores the same contents between the two lookups.
        let disk = other.upgrade().unwrap();
        if path == new_path(&of) && disk.exists(path).unwrap() {
            Objects::new(disk).put(b"abc").unwrap();
        }
    });
    assert_eq!(objects.get(&id).unwrap(), b"abc");
    assert!(objects.has(&id).unwrap());
}

#[test]
fn file_with_the_name_of_a_new_object_is_replaced() {
    let (disk, objects) = objects();
    let id = ObjectId::of(b"abc");
    for name in [final_path(&id), new_path(&id)] {
        disk.create(&name, b"forged").unwrap();
    }
    assert!(objects.get(&id).is_err());
    assert_eq!(objects.put(b"abc").unwrap(), id);
    assert_eq!(objects.get(&id).unwrap(), b"abc");
    disk.restart(Survival::Nothing);
    assert_eq!(objects.put(b"abc").unwrap(), id);
    assert_eq!(objects.get(&id).unwrap(), b"abc");
}

#[test]
fn altered_contents_are_refused() {
    let (disk, objects) = objects();
    let id = objects.put(b"abc").unwrap();
    disk.write_at(&final_path(&id), 1, b"x").unwrap();
    assert!(matches!(objects.get(&id), Err(StoreError::Altered { .. })));
    let missing = ObjectId::of(b"never stored");
    assert!(matches!(objects.get(&missing), Err(StoreError::Io { .. })));
}

#[test]
fn object_id_rejects_everything_but_a_hash() {
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(ObjectId::parse(hash).unwrap(), ObjectId::of(b"abc"));
    let upper = hash.to_uppercase();
    let path = format!("../{}", &hash[3..]);
    for text in ["", "..", &hash[1..], &upper, &path, &format!("{hash}0"), "\u{1b}[2J"] {
        let error = ObjectId::parse(text).unwrap_err().to_string();
        assert!(!error.contains('\u{1b}'), "{error:?}");
        assert!(serde_json::from_value::<ObjectId>(text.into()).is_err());
    }
}

#[test]
fn concurrent_puts_of_equal_contents_succeed() {
    let folder = tempfile::TempDir::new().unwrap();
    let disk = Arc::new(crate::store::RealDisk::open(folder.path()).unwrap());
    layout::create_folders(&*disk).unwrap();
    let objects = Objects::new(disk);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..10 {
                    let contents = format!("contents {n}");
                    let id = objects.put(contents.as_bytes()).unwrap();
                    assert_eq!(objects.get(&id).unwrap(), contents.as_bytes());
                }
            });
        }
    });
    let left = std::fs::read_dir(folder.path().join(OBJECTS)).unwrap().count();
    assert!((10..=20).contains(&left), "{left} files");
    for entry in std::fs::read_dir(folder.path().join(OBJECTS)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(ObjectId::parse(name.trim_end_matches(".new")).is_ok(), "{name}");
    }
}
