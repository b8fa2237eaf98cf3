//! Snapshots: canonical and signed.

#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::store::disk::SimulatedDisk;

fn thread() -> ThreadId {
    ThreadId::parse("agency-kiwi/discover_leads-1739820456").unwrap()
}

fn disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    disk.create_dir_all(&layout::thread_folder(&thread())).unwrap();
    disk
}

fn fields() -> Map<String, Value> {
    let fields = json!({"thread_id": thread().as_str(), "status": "running", "limits": {"turns": 10, "spend": 0.1}});
    fields.as_object().unwrap().clone()
}

/// Fake signer: a checksum that detects changes.
fn sign(bytes: &[u8]) -> String {
    format!("signed:{}", crate::store::ObjectId::of(bytes))
}

/// Returns the fields of the thread's `thread.json`.
fn read_snapshot(disk: &dyn Disk) -> Map<String, Value> {
    serde_json::from_slice(&disk.read(&layout::snapshot(&thread())).unwrap()).unwrap()
}

#[test]
fn a_snapshot_is_canonical_and_signed() {
    let disk = disk();
    let before = disk.counters();
    write_snapshot(&disk, &thread(), &fields(), None).unwrap();
    let path = layout::snapshot(&thread());
    let text = String::from_utf8(disk.read(&path).unwrap()).unwrap();
    let unsigned =
        r#"{"limits":{"spend":0.1,"turns":10},"status":"running","thread_id":"agency-kiwi/discover_leads-1739820456"}"#;
    assert_eq!(text, format!("{unsigned}\n"));
    write_snapshot(&disk, &thread(), &fields(), Some(&sign)).unwrap();
    let read = read_snapshot(&disk);
    assert_eq!(read.get(SIGNATURE), Some(&json!(sign(unsigned.as_bytes()))));
    // A signed snapshot is signed again without its old signature.
    write_snapshot(&disk, &thread(), &read, Some(&sign)).unwrap();
    assert_eq!(read_snapshot(&disk), read);
    assert_eq!(disk.counters().since(&before).all_syncs(), 0, "outputs are never synced");
}

#[test]
fn an_integer_that_would_be_rounded_is_not_signed() {
    let disk = disk();
    for (value, fits) in [(json!(9_007_199_254_740_991_u64), true), (json!({"a": [1_u64 << 53]}), false)] {
        let mut fields = fields();
        fields.insert("cost".to_string(), value);
        assert_eq!(write_snapshot(&disk, &thread(), &fields, Some(&sign)).is_ok(), fits);
    }
}

#[test]
fn an_integer_that_would_be_rounded_can_be_written_as_text() {
    let most = json!({"a": [9_007_199_254_740_991_u64, 9_007_199_254_740_993_u64, 0.5], "b": true});
    assert_eq!(
        with_exact_integers(&most),
        json!({"a": [9_007_199_254_740_991_u64, "9007199254740993", 0.5], "b": true})
    );
}

#[test]
fn signed_snapshot_is_canonical_json() {
    let disk = disk();
    for first in ["A", "_", "a"] {
        let mut fields = fields();
        fields.insert(first.to_string(), json!(1));
        write_snapshot(&disk, &thread(), &fields, Some(&sign)).unwrap();
        let written = disk.read(&layout::snapshot(&thread())).unwrap();
        let read = read_snapshot(&disk);
        assert_eq!(written, [canonical_json(Path::new("x"), &read).unwrap(), b"\n".to_vec()].concat());
    }
}

#[test]
fn export_is_written_as_a_knowledge_item() {
    let disk = disk();
    let directive = ItemId::parse("agency-kiwi/discover_leads").unwrap();
    for text in ["first", "second"] {
        let path = write_export(&disk, &directive, &thread(), &[text.as_bytes()]).unwrap();
        let expected =
            ".ai/knowledge/agent/threads/agency-kiwi/discover_leads/agency-kiwi/discover_leads-1739820456.md";
        assert_eq!(path, Path::new(expected));
        assert_eq!(disk.read(&path).unwrap(), text.as_bytes());
    }
    write_capabilities(&disk, &thread(), b"tools").unwrap();
    assert_eq!(disk.read(&layout::capabilities(&thread())).unwrap(), b"tools");
}
