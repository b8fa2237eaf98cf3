//! Thread ids: unique, even under concurrent allocation.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;

use tempfile::TempDir;

use super::*;
use crate::store::disk::{RealDisk, SimulatedDisk};

const NOW: i64 = 1_739_820_456_789;

fn simulated() -> (Arc<SimulatedDisk>, ThreadIds) {
    let disk = Arc::new(SimulatedDisk::new());
    layout::create_folders(&*disk).unwrap();
    (Arc::clone(&disk), ThreadIds::new(disk))
}

#[test]
fn ids_count_up_within_a_second() {
    let (disk, ids) = simulated();
    let nested = ItemId::parse("agency-kiwi/discover_leads").unwrap();
    let plain = ItemId::parse("hello").unwrap();
    let next = |directive, now| ids.allocate(directive, now).unwrap().to_string();
    assert_eq!(next(&nested, NOW), "agency-kiwi/discover_leads-1739820456");
    assert_eq!(next(&nested, NOW + 200), "agency-kiwi/discover_leads-1739820456-2");
    assert_eq!(next(&plain, NOW), "hello-1739820456");
    assert_eq!(next(&nested, NOW + 210), "agency-kiwi/discover_leads-1739820456-3");
    assert_eq!(next(&nested, NOW + 211), "agency-kiwi/discover_leads-1739820457");
    // After the clock has jumped back, the allocator finds the folders of earlier ids.
    assert_eq!(next(&nested, NOW), "agency-kiwi/discover_leads-1739820456-4");
    assert!(disk.exists(Path::new(".ai/state/threads/agency-kiwi/discover_leads-1739820456")).unwrap());
}

#[test]
fn a_new_thread_costs_one_sync() {
    let (disk, ids) = simulated();
    let directive = ItemId::parse("a/b/c").unwrap();
    ids.allocate(&directive, NOW).unwrap();
    let before = disk.counters();
    ids.allocate(&directive, NOW).unwrap();
    ids.allocate(&ItemId::parse("a/b/d").unwrap(), NOW).unwrap();
    assert_eq!(disk.counters().since(&before).all_syncs(), 2);
}

#[test]
fn released_id_loses_its_folder_unless_used() {
    let (disk, ids) = simulated();
    let id = ids.allocate(&ItemId::parse("hello").unwrap(), NOW).unwrap();
    ids.release(&id).unwrap();
    assert!(!disk.exists(&layout::thread_folder(&id)).unwrap());
    // A folder that holds a transcript is not removed.
    let id = ids.allocate(&ItemId::parse("hello").unwrap(), NOW).unwrap();
    disk.append(&layout::transcript(&id), 0, b"x").unwrap();
    assert!(ids.release(&id).is_err());
}

#[test]
fn a_name_too_long_for_a_folder_is_refused() {
    let (_disk, ids) = simulated();
    let directive = ItemId::parse(&"x".repeat(240)).unwrap();
    assert!(matches!(ids.allocate(&directive, NOW), Err(StoreError::InvalidId { .. })));
}

#[test]
fn concurrent_allocators_never_share_an_id() {
    let folder = TempDir::new().unwrap();
    // Each allocator has its own disk handle and memory, as separate processes do.
    let allocators: Vec<ThreadIds> = (0..4)
        .map(|_| {
            let disk = Arc::new(RealDisk::open(folder.path()).unwrap());
            layout::create_folders(&*disk).unwrap();
            ThreadIds::new(disk)
        })
        .collect();
    let directive = ItemId::parse("agency-kiwi/discover_leads").unwrap();
    let mut taken: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = allocators
            .iter()
            .map(|ids| {
                let directive = &directive;
                scope.spawn(move || -> Vec<String> {
                    (0..15).map(|_| ids.allocate(directive, NOW).unwrap().to_string()).collect()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len(), 60);
    let disk = RealDisk::open(folder.path()).unwrap();
    assert_eq!(layout::find_threads(&disk).unwrap(), [], "a folder without a transcript is no thread");
}

#[test]
fn threads_are_found_in_nested_folders() {
    let (disk, ids) = simulated();
    let mut expected = Vec::new();
    for directive in ["hello", "a/b/c", "a/b", "hello-1739820456/inbox"] {
        let id = ids.allocate(&ItemId::parse(directive).unwrap(), NOW).unwrap();
        disk.append(&layout::transcript(&id), 0, b"").unwrap();
        expected.push(id);
    }
    disk.create(Path::new(".ai/state/threads/registry.redb"), b"").unwrap();
    disk.create_dir_all(Path::new(".ai/state/threads/not.ours/transcript.jsonl")).unwrap();
    expected.sort();
    assert_eq!(layout::find_threads(&*disk).unwrap(), expected);
    let (known, other) = expected.split_first().unwrap();
    assert_eq!(layout::find_threads_outside(&*disk, &BTreeSet::from([known.as_str()])).unwrap(), other);
}

#[test]
fn allocation_skips_the_ids_that_are_taken_elsewhere() {
    let ((_, one), (_, other)) = (simulated(), simulated());
    let directive = ItemId::parse("a/chat").unwrap();
    let first = one.allocate(&directive, NOW).unwrap();
    assert_eq!(other.allocate(&directive, NOW).unwrap(), first);
    let (_, other) = simulated();
    let second = other.allocate_except(&directive, NOW, &[first.clone()].into()).unwrap();
    assert_ne!(second, first);
}
