//! Control messages: ordered, complete, consumed once.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use serde_json::json;

use super::*;
use crate::event::ControlMessage;
use crate::store::RealDisk;
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
fn foreign_files_are_ignored_and_invalid_json_is_returned_as_unreadable() {
    let disk = disk();
    let id = send(&disk, &thread(), &json!({"kind": "cancel"}), 1).unwrap();
    let inbox = layout::inbox(&thread());
    disk.create(&inbox.join(".half.json"), b"{").unwrap();
    disk.create(&inbox.join("note.txt"), b"hello").unwrap();
    disk.create_dir(&inbox.join("folder.json")).unwrap();
    disk.create(&inbox.join("zz.json"), b"{\"cut\": \xff").unwrap();
    let mail = list(&disk, &thread()).unwrap();
    assert_eq!(mail[0].id, id);
    assert_eq!((mail[1].id.as_str(), &mail[1].body["kind"]), ("zz", &json!("unreadable")));
    assert!(mail[1].body["reason"].as_str().unwrap().starts_with("the file is not JSON: "), "{:?}", mail[1]);
    assert_eq!(mail.len(), 2);
    for id in ["../thread", "a/b", "a\\b", "a\0"] {
        assert!(matches!(consume(&disk, &thread(), id), Err(StoreError::InvalidId { .. })));
    }
}

/// A folder on the real disk with the folder of the thread, which has an inbox.
fn real_disk() -> (tempfile::TempDir, RealDisk, std::path::PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(root.path()).unwrap();
    disk.create_dir_all(&layout::inbox(&thread())).unwrap();
    let inbox = root.path().join(layout::inbox(&thread()));
    (root, disk, inbox)
}

fn reason_of(mail: &MailboxMessage) -> String {
    let message = ControlMessage::from_file(mail.body.clone());
    let ControlMessage::Unreadable { reason } = message else { panic!("{message:?}") };
    reason
}

#[test]
fn links_pipes_and_large_files_become_unreadable_messages_that_can_be_consumed() {
    let (root, disk, inbox) = real_disk();
    std::os::unix::fs::symlink("/etc/passwd", inbox.join("1.json")).unwrap();
    std::os::unix::fs::symlink("2.json", inbox.join("2.json")).unwrap();
    std::os::unix::fs::symlink(".", inbox.join("3.json")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, inbox.join("4.json"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    std::fs::create_dir(inbox.join("5.json")).unwrap();
    let large = std::fs::File::create(inbox.join("6.json")).unwrap();
    large.set_len(1 << 30).unwrap();
    std::fs::write(inbox.join("7.json"), vec![0; 4 << 20]).unwrap();
    std::fs::write(inbox.join("8.json"), format!("\"{}\"", "x".repeat(4 << 20))).unwrap();
    let kill = send(&disk, &thread(), &json!({"kind": "kill"}), 1).unwrap();
    let mail = list(&disk, &thread()).unwrap();
    let ids: Vec<&str> = mail.iter().map(|mail| mail.id.as_str()).collect();
    // The id of the sent message is a UUID of the year 1970, which sorts first. The folder is no message.
    assert_eq!(ids, [kill.as_str(), "1", "2", "3", "4", "6", "7", "8"]);
    assert_eq!(mail[0].body, json!({"kind": "kill"}));
    for one in &mail[1..] {
        let reason = reason_of(one);
        assert!((1..400).contains(&reason.len()) && !reason.contains("root:"), "{}: {reason}", one.id);
        consume(&disk, &thread(), &one.id).unwrap();
    }
    assert_eq!(list(&disk, &thread()).unwrap().len(), 1);
    drop(root);
}

#[test]
fn inbox_that_is_a_link_holds_no_messages_and_is_replaced_by_the_next_message() {
    for target in ["/tmp", "../../../../own", "missing", "inbox"] {
        let (root, disk, inbox) = real_disk();
        std::fs::create_dir(root.path().join("own")).unwrap();
        std::fs::write(root.path().join("own/package.json"), "{}").unwrap();
        std::fs::remove_dir(&inbox).unwrap();
        std::os::unix::fs::symlink(target, &inbox).unwrap();
        assert!(list(&disk, &thread()).unwrap().is_empty(), "{target}");
        let id = send(&disk, &thread(), &json!({"kind": "kill"}), 1).unwrap();
        assert_eq!(list(&disk, &thread()).unwrap(), [MailboxMessage { id, body: json!({"kind": "kill"}) }], "{target}");
        assert!(root.path().join("own/package.json").exists(), "{target}");
    }
}
