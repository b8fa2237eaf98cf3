//! Transcripts on the simulated disk: torn, damaged, of another thread, full, and read while they grow.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;

use serde_json::{Value, json};

use super::super::disk::{DiskFault, SimulatedDisk, Survival};
use super::*;

fn thread() -> ThreadId {
    ThreadId::parse("hello-1739820456").unwrap()
}

fn disk() -> Arc<SimulatedDisk> {
    let disk = SimulatedDisk::new();
    disk.create_dir_all(&layout::thread_folder(&thread())).unwrap();
    Arc::new(disk)
}

fn event(n: u64) -> Value {
    json!({"type": "state_set", "n": n, "text": "grüße\n\"quoted\""})
}

/// Writes three events, a barrier, two more, a barrier, and one more.
fn written(disk: &Arc<SimulatedDisk>) -> Transcript {
    let mut transcript = Transcript::create(Arc::clone(disk) as Arc<dyn Disk>, &thread()).unwrap();
    transcript.append(&[event(1), event(2)], 10).unwrap();
    transcript.append(&[event(3)], 11).unwrap();
    transcript.sync().unwrap();
    transcript.append(&[event(4), event(5)], 12).unwrap();
    transcript.sync().unwrap();
    transcript.append(&[event(6)], 13).unwrap();
    transcript
}

fn open(disk: &Arc<SimulatedDisk>) -> Result<(Transcript, TranscriptContents), StoreError> {
    Transcript::open(Arc::clone(disk) as Arc<dyn Disk>, &thread(), 0)
}

/// Replaces the transcript's contents.
fn replace(disk: &SimulatedDisk, bytes: &[u8]) {
    let path = layout::transcript(&thread());
    disk.truncate(&path, 0).unwrap();
    disk.append(&path, 0, bytes).unwrap();
}

fn bytes(disk: &SimulatedDisk) -> Vec<u8> {
    disk.read(&layout::transcript(&thread())).unwrap()
}

#[test]
fn appended_events_are_read_back() {
    let disk = disk();
    let mut transcript = Transcript::create(Arc::clone(&disk) as Arc<dyn Disk>, &thread()).unwrap();
    let first = transcript.append(&[event(1), event(2)], -5).unwrap();
    transcript.sync().unwrap();
    let second = transcript.append(&[event(3)], 11).unwrap();
    assert_eq!((transcript.count(), transcript.barrier(), transcript.head()), (3, 2, second[0].hash));
    let (again, reading) = open(&disk).unwrap();
    assert_eq!(reading.records, [first, second].concat());
    assert_eq!(reading.torn, None);
    assert_eq!((again.count(), again.barrier(), again.head()), (3, 2, transcript.head()));
    assert_eq!(Value::Object(reading.records[2].body.clone()), event(3));
    let text = String::from_utf8(bytes(&disk)).unwrap();
    assert!(text.lines().nth(2).unwrap().starts_with(r#"{"v":1,"seq":2,"ts":11,"b":2,"h":""#), "{text}");
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}

#[test]
fn reopened_transcript_accepts_appends() {
    let disk = disk();
    written(&disk);
    let (mut transcript, _) = open(&disk).unwrap();
    transcript.append(&[event(7)], 14).unwrap();
    transcript.sync().unwrap();
    let reading = read(&*disk, &thread(), 7).unwrap();
    assert_eq!(reading.records.len(), 7);
    assert_eq!(reading.records[6].barrier, 5);
}

#[test]
fn a_torn_tail_is_cut_at_every_byte() {
    let disk = disk();
    written(&disk);
    let whole = bytes(&disk);
    let synced = read(&*disk, &thread(), 0).unwrap().ends[4];
    for length in usize::try_from(synced).unwrap()..whole.len() {
        replace(&disk, &whole[..length]);
        let (mut transcript, reading) = open(&disk).unwrap();
        assert_eq!(reading.records.len(), 5, "cut at byte {length}");
        assert_eq!(disk.length(&layout::transcript(&thread())).unwrap(), synced);
        transcript.append(&[event(60)], 14).unwrap();
        transcript.sync().unwrap();
        assert_eq!(read(&*disk, &thread(), 6).unwrap().records.len(), 6);
    }
}

#[test]
fn change_before_a_barrier_is_reported_as_damage() {
    let disk = disk();
    written(&disk);
    let whole = bytes(&disk);
    let reading = read(&*disk, &thread(), 0).unwrap();
    // Lines 4 and 5 claim that line 3 is durable, and line 6 claims that line 5 is durable. A change before the last of
    // these claims is detected and not repaired.
    let last_claim = usize::try_from(reading.ends[4]).unwrap();
    for position in 0..last_claim {
        let mut altered = whole.clone();
        altered[position] ^= 1;
        replace(&disk, &altered);
        let line = 1 + reading.ends.iter().filter(|end| **end <= position as u64).count() as u64;
        match open(&disk) {
            Err(StoreError::Damaged { line: reported, .. }) => assert_eq!(reported, line, "byte {position}"),
            other => panic!("byte {position}: {:?}", other.map(|(_, reading)| reading.torn)),
        }
        assert_eq!(bytes(&disk), altered, "damage is left as it is");
    }
}

#[test]
fn event_text_is_never_parsed_as_a_line() {
    let disk = disk();
    let mut transcript = written(&disk);
    let line = json!({"v": 1, "seq": 99, "ts": 1, "b": 99, "h": "00"});
    let text = line.to_string();
    transcript.append(&[json!({"type": "a", "line": line, "lines": [line, line], "text": text})], 14).unwrap();
    let whole = bytes(&disk);
    let ends = read(&*disk, &thread(), 0).unwrap().ends;
    for length in usize::try_from(ends[5]).unwrap()..whole.len() {
        replace(&disk, &whole[..length]);
        assert_eq!(open(&disk).unwrap().1.records.len(), 6, "cut at byte {length}");
    }
}

#[test]
fn lines_that_were_swapped_removed_or_repeated_are_damage() {
    let disk = disk();
    written(&disk);
    let whole = bytes(&disk);
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    for order in [&[0, 2, 1, 3, 4, 5][..], &[0, 1, 3, 4, 5], &[0, 0, 1, 2, 3, 4, 5], &[1, 2, 3, 4, 5], &[5]] {
        let mixed: Vec<u8> = order.iter().flat_map(|index| lines[*index].to_vec()).collect();
        replace(&disk, &mixed);
        assert!(matches!(open(&disk), Err(StoreError::Damaged { .. })), "{order:?}");
    }
}

#[test]
fn read_with_a_known_barrier_detects_a_lost_tail() {
    let disk = disk();
    written(&disk);
    let whole = bytes(&disk);
    let reading = read(&*disk, &thread(), 0).unwrap();
    replace(&disk, &whole[..usize::try_from(reading.ends[3]).unwrap()]);
    assert_eq!(read(&*disk, &thread(), 4).unwrap().records.len(), 4);
    assert!(matches!(read(&*disk, &thread(), 5), Err(StoreError::Damaged { line: 5, .. })));
    replace(&disk, b"");
    assert!(matches!(read(&*disk, &thread(), 1), Err(StoreError::Damaged { line: 1, .. })));
}

#[test]
fn a_transcript_of_another_thread_is_refused() {
    let disk = disk();
    written(&disk);
    let other = ThreadId::parse("hello-1739820457").unwrap();
    disk.create_dir_all(&layout::thread_folder(&other)).unwrap();
    disk.append(&layout::transcript(&other), 0, &bytes(&disk)).unwrap();
    assert!(matches!(read(&*disk, &other, 0), Err(StoreError::Damaged { line: 1, .. })));
    let none = ThreadId::parse("hello-1").unwrap();
    assert!(matches!(read(&*disk, &none, 0), Err(StoreError::UnknownThread { .. })));
}

#[test]
fn a_newer_format_is_refused_with_its_number() {
    let disk = disk();
    written(&disk);
    let text = String::from_utf8(bytes(&disk)).unwrap().replacen("{\"v\":1", "{\"v\":2", 1);
    replace(&disk, text.as_bytes());
    match open(&disk) {
        Err(error @ StoreError::Newer { found: 2, supported: 1, .. }) => {
            assert!(error.to_string().contains("install a newer `rye`"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_older_format_is_read() {
    use sha2::{Digest, Sha256};
    let disk = disk();
    written(&disk);
    let mut hash: [u8; 32] = Sha256::digest(format!("rye transcript\n{}", thread())).into();
    let mut older = Vec::new();
    for line in String::from_utf8(bytes(&disk)).unwrap().lines() {
        let line = line.replacen("{\"v\":1", "{\"v\":0", 1);
        let (front, rest) = line.split_at(line.find("\"h\":\"").unwrap() + 5);
        let back = &rest[64..];
        let chained = [hash.as_slice(), front.as_bytes(), back.as_bytes()].concat();
        hash = Sha256::digest(chained).into();
        older.push(format!("{front}{}{back}\n", ChainHash::from(hash)));
    }
    replace(&disk, older.concat().as_bytes());
    let (transcript, reading) = open(&disk).unwrap();
    assert_eq!((transcript.count(), reading.torn), (6, None));
}

#[test]
fn values_that_are_no_events_are_rejected() {
    let disk = disk();
    let mut transcript = written(&disk);
    let before = bytes(&disk);
    for value in [json!(1), json!([]), json!({}), json!({"type": 3})] {
        assert!(matches!(transcript.append(&[event(7), value], 1), Err(StoreError::NoEvent)));
    }
    let large = json!({"type": "a", "text": "x".repeat(MAX_LINE_BYTES)});
    assert!(matches!(transcript.append(&[large], 1), Err(StoreError::LineTooLong { .. })));
    assert_eq!(bytes(&disk), before);
    // The largest line that fits is read back.
    let text_bytes = MAX_LINE_BYTES - (json!({"type": "a", "text": ""}).to_string().len() + 200);
    transcript.append(&[json!({"type": "a", "text": "x".repeat(text_bytes)})], 1).unwrap();
    assert_eq!(read(&*disk, &thread(), 7).unwrap().records.len(), 7);
}

#[test]
fn an_event_may_have_fields_with_the_names_of_the_line() {
    let disk = disk();
    let mut transcript = written(&disk);
    let value =
        json!({"h": 1, "type": "continues", "seq": 2, "_seq": 3, "__seq": 4, "_type": 5, "b": {"b": 6}, "_": 7});
    let record = transcript.append(std::slice::from_ref(&value), 14).unwrap().remove(0);
    assert_eq!(record.seq, 6);
    assert_eq!(Value::Object(record.body.clone()), value);
    assert_eq!(read(&*disk, &thread(), 0).unwrap().records[6], record);
    let text = String::from_utf8(bytes(&disk)).unwrap();
    let fields = r#""_h":1,"type":"continues","_seq":2,"__seq":3,"___seq":4,"_type":5,"_b":{"b":6},"_":7}"#;
    assert!(text.trim_end().ends_with(fields), "{text}");
}

#[test]
fn short_write_is_truncated() {
    for short in [0, 1, 40, 100_000] {
        let disk = disk();
        let mut transcript = written(&disk);
        let before = bytes(&disk);
        disk.fail_at(disk.operations(), DiskFault::Short(short));
        let error = transcript.append(&[event(7), event(8)], 14).unwrap_err();
        assert!(matches!(&error, StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull));
        assert_eq!(bytes(&disk), before);
        transcript.append(&[event(7)], 15).unwrap();
        transcript.sync().unwrap();
        assert_eq!(read(&*disk, &thread(), 7).unwrap().records.len(), 7);
    }
}

#[test]
fn a_full_disk_leaves_the_transcript_readable() {
    let disk = disk();
    let mut transcript = written(&disk);
    disk.fail_at(disk.operations(), DiskFault::Full);
    for _ in 0..3 {
        assert!(matches!(transcript.append(&[event(7)], 14), Err(StoreError::Io { .. })));
    }
    transcript.sync().unwrap();
    assert_eq!(read(&*disk, &thread(), 6).unwrap().records.len(), 6);
    let (reopened, reading) = open(&disk).map_err(|error| error.to_string()).unwrap_or_else(|error| {
        panic!("recovery failed on a full disk: {error}");
    });
    assert_eq!((reopened.count(), reading.records.len()), (6, 6));
}

#[test]
fn a_failed_sync_is_final() {
    for of_folder in [false, true] {
        let disk = disk();
        let mut transcript = Transcript::create(Arc::clone(&disk) as Arc<dyn Disk>, &thread()).unwrap();
        transcript.append(&[event(1)], 1).unwrap();
        disk.fail_at(disk.operations() + u64::from(of_folder), DiskFault::Fails(std::io::ErrorKind::Other));
        assert!(matches!(transcript.sync(), Err(StoreError::Poisoned { .. })));
        assert!(matches!(transcript.sync(), Err(StoreError::Poisoned { .. })));
        assert!(matches!(transcript.append(&[event(2)], 2), Err(StoreError::Poisoned { .. })));
        assert_eq!(transcript.barrier(), 0);
        assert_eq!(read(&*disk, &thread(), 0).unwrap().records.len(), 1);
    }
}

#[test]
fn second_writer_poisons_the_first() {
    let disk = disk();
    let mut first = written(&disk);
    let (mut second, _) = open(&disk).unwrap();
    second.append(&[event(7)], 1).unwrap();
    assert!(matches!(first.append(&[event(70)], 1), Err(StoreError::Poisoned { .. })));
    assert_eq!(read(&*disk, &thread(), 0).unwrap().records.len(), 7);
}

#[test]
fn repeated_sync_without_changes_costs_nothing() {
    let disk = disk();
    let before = disk.counters();
    let mut transcript = written(&disk);
    transcript.sync().unwrap();
    transcript.sync().unwrap();
    let counters = disk.counters().since(&before);
    assert_eq!((counters.appends, counters.syncs, counters.dir_syncs), (4, 3, 1));
}

#[test]
fn live_file_is_removed_when_cleared() {
    let disk = disk();
    let path = layout::live(&thread());
    let before = disk.counters();
    let mut live = LiveWriter::new(Arc::clone(&disk) as Arc<dyn Disk>, &thread());
    live.append(&[json!({"text": "a"}), json!({"text": "b"})]).unwrap();
    live.append(&[json!({"text": "c"})]).unwrap();
    assert_eq!(disk.read(&path).unwrap(), b"{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":\"c\"}\n");
    live.clear().unwrap();
    live.clear().unwrap();
    assert!(!disk.exists(Path::new(&path)).unwrap());
    assert_eq!(disk.counters().since(&before).all_syncs(), 0);
    disk.restart(Survival::Nothing);
}
