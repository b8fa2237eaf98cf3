//! Control messages: ordered, complete, consumed once.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use serde_json::json;

use super::*;
use crate::store::disk::{SimulatedDisk, Survival};

fn thread() -> ThreadId {
    ThreadId::parse("hello-1739820456").unwrap()
}

fn disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    disk.create_dir_all(&layout::thread_folder(&thread())).unwrap();
    disk
}

fn bodies(disk: &SimulatedDisk) -> Vec<Value> {
    list(disk, &thread()).unwrap().into_iter().map(|mail| mail.body).collect()
}

#[test]
fn messages_are_listed_in_order_and_removed_when_consumed() {
    let disk = disk();
    assert_eq!(bodies(&disk), Vec::<Value>::new());
    for now in [30, 10, 20] {
        send(&disk, &thread(), &json!({ "now": now }), now).unwrap();
    }
    disk.restart(Survival::Nothing);
    assert_eq!(bodies(&disk), [json!({"now": 10}), json!({"now": 20}), json!({"now": 30})]);
    let first = list(&disk, &thread()).unwrap()[0].id.clone();
    consume(&disk, &thread(), &first).unwrap();
    consume(&disk, &thread(), &first).unwrap();
    assert_eq!(bodies(&disk), [json!({"now": 20}), json!({"now": 30})]);
}

#[test]
fn message_to_an_unknown_thread_is_rejected() {
    let disk = SimulatedDisk::new();
    assert!(matches!(send(&disk, &thread(), &json!(1), 1), Err(StoreError::UnknownThread { .. })));
}

#[test]
fn foreign_files_are_ignored_and_invalid_json_is_returned_as_text() {
    let disk = disk();
    let id = send(&disk, &thread(), &json!({"kind": "cancel"}), 1).unwrap();
    let inbox = layout::inbox(&thread());
    disk.create(&inbox.join(".half.json"), b"{").unwrap();
    disk.create(&inbox.join("note.txt"), b"hello").unwrap();
    disk.create_dir(&inbox.join("folder.json")).unwrap();
    disk.create(&inbox.join("zz.json"), b"{\"cut\": \xff").unwrap();
    let mail = list(&disk, &thread()).unwrap();
    assert_eq!(mail[0].id, id);
    assert_eq!(mail[1], MailboxMessage { id: "zz".to_string(), body: json!("{\"cut\": \u{fffd}") });
    assert_eq!(mail.len(), 2);
    for id in ["../thread", "a/b", "a\\b", "a\0"] {
        assert!(matches!(consume(&disk, &thread(), id), Err(StoreError::InvalidId { .. })));
    }
}
