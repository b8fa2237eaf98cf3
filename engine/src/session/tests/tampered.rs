//! Tests of transcripts that were changed, or that no key of this user signed: each is refused before anything runs or
//! is written. The torn tail of a crash is accepted.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Map, Value, json};

use super::async_tools::{Gate, WAITS, engine};
use super::{Lab, Status, calls, names, reply_text};
use crate::context::StartOptions;
use crate::engine::Engine;
use crate::error::DriveError;
use crate::error::EngineError;
use crate::event::{ControlMessage, EventBody};
use crate::keys::KeyFolder;
use crate::signer::Signer;
use crate::store::transcript::line::{self, LinePosition};
use crate::store::transcript::{self, ChainHash, TranscriptRecord};
use crate::store::{ObjectId, RealDisk, StoreError, layout, mailbox};
use crate::thread_id::ThreadId;

const MAY: &str = "<limits turns=\"5\"/><permissions><execute><tool>test.*</tool><tool>rye.file-system.read</tool></execute></permissions>";

/// A thread that reads a file and then waits in a call.
fn lab(keys: bool) -> Lab {
    let mut lab = Lab::new(|request| {
        Ok(match request.cue.turn.unwrap() {
            0 => calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]),
            1 => calls(&[("test_waits", json!({"n": 1}))]),
            _ => reply_text("done"),
        })
    });
    lab.write("a.txt", "content\n");
    lab.write(".ai/tools/test/waits.yaml", WAITS);
    lab.directive("worker", MAY, "");
    if keys {
        lab.keys = Some(user(&lab, "home"));
    }
    lab
}

fn user(lab: &Lab, name: &str) -> KeyFolder {
    let keys = KeyFolder::of_user_space(&lab.path().join(name));
    keys.load_or_generate().unwrap();
    keys
}

fn blocking<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

/// Runs a thread whose process dies during the second call.
fn dies(lab: &Lab) -> ThreadId {
    blocking(async {
        let gate = Arc::new(Gate::default());
        let engine = engine(lab, &gate);
        let handle = lab.start(&engine, "worker").await;
        gate.started().await;
        handle.thread_id.clone()
    })
}

/// Runs the same thread to its end.
fn ends(lab: &Lab) -> ThreadId {
    blocking(async {
        let gate = Arc::new(Gate::default());
        gate.open();
        let engine = engine(lab, &gate);
        let handle = lab.start(&engine, "worker").await;
        let id = handle.thread_id.clone();
        assert_eq!(handle.join().await.status, Status::Completed);
        id
    })
}

fn file(lab: &Lab, thread: &ThreadId) -> PathBuf {
    lab.path().join(layout::transcript(thread))
}

/// The seals of rewritten lines.
enum Seals<'s> {
    Kept,
    Stripped,
    By(&'s Signer),
}

/// Rewrites a transcript with a valid hash chain, as anyone can.
fn forge(lab: &Lab, thread: &ThreadId, seals: &Seals<'_>, edit: impl FnOnce(&mut Vec<TranscriptRecord>)) {
    let disk = RealDisk::open(&lab.path()).unwrap();
    let mut records = transcript::read(&disk, thread, 0).unwrap().records;
    edit(&mut records);
    let (mut text, mut before) = (String::new(), ChainHash::start(thread));
    for (seq, record) in records.iter().enumerate() {
        let head = LinePosition { seq: seq as u64, ts: record.ts, barrier: record.barrier, before };
        let kept = |_: u64, _: ChainHash| record.seal.as_ref().map(|seal| seal.mark.clone()).unwrap_or_default();
        let fresh = |seq: u64, link: ChainHash| match seals {
            Seals::By(signer) => signer.seal_line(thread, seq, link),
            Seals::Kept | Seals::Stripped => String::new(),
        };
        let signer: Option<line::LineSigner<'_>> = match seals {
            Seals::Stripped => None,
            _ if record.seal.is_none() => None,
            Seals::Kept => Some(&kept),
            Seals::By(_) => Some(&fresh),
        };
        let (line, record) = line::write(&head, &record.body, signer).unwrap();
        text.push_str(&line);
        before = record.hash;
    }
    std::fs::write(file(lab, thread), text).unwrap();
}

/// Removes `thread.json`: an attacker cannot sign one, and no operation needs it.
fn without_snapshot(lab: &Lab, thread: &ThreadId) {
    std::fs::remove_file(lab.path().join(layout::snapshot(thread))).unwrap();
}

fn event(kind: &str, fields: &Value) -> Map<String, Value> {
    let mut body = Map::from_iter([("type".to_owned(), json!(kind))]);
    body.extend(fields.as_object().unwrap().clone());
    body
}

fn set(records: &mut [TranscriptRecord], kind: &str, field: &str, value: Value) {
    let record = records.iter_mut().find(|record| record.body["type"] == kind).unwrap();
    record.body.insert(field.to_owned(), value);
}

fn insert(records: &mut Vec<TranscriptRecord>, at: usize, body: Map<String, Value>) {
    let mut record = records[at - 1].clone();
    (record.body, record.seal) = (body, None);
    records.insert(at, record);
}

fn everything() -> Value {
    json!([[{"pattern": "rye.*"}]])
}

type Forgery = (&'static str, fn(&mut Vec<TranscriptRecord>));

/// Changes of a transcript in which every line was sealed.
const FORGERIES: [Forgery; 8] = [
    ("grants", |records| set(records, "opened", "grants", everything())),
    ("inputs", |records| set(records, "opened", "inputs", json!({"path": "/etc"}))),
    ("limits", |records| {
        let mut limits = records[0].body["limits"].clone();
        limits["spend"] = json!(9_000_000_000_000_u64);
        set(records, "opened", "limits", limits);
    }),
    ("project", |records| set(records, "opened", "project_path", json!("/elsewhere"))),
    ("approvals", |records| set(records, "opened", "attended", json!(true))),
    ("plan", |records| set(records, "plan_bound", "plan_id", json!("0".repeat(64)))),
    ("an approval behind the last checkpoint", |records| {
        let at = records.len() - 1;
        insert(records, at, event("approval_given", &json!({"asked": "call", "answer": "approved"})));
    }),
    ("a state behind the last checkpoint", |records| {
        let at = records.len() - 1;
        insert(records, at, event("state_set", &json!({"key": "a", "value": 1})));
    }),
];

fn is_damage(error: &EngineError) -> bool {
    matches!(error, EngineError::Drive(DriveError::Store(StoreError::Damaged { .. } | StoreError::Altered { .. })))
}

fn is_unverified(error: &EngineError) -> bool {
    matches!(error, EngineError::Drive(DriveError::Unverified { .. }))
}

/// Checks that every way to resume a thread is refused, and that no model is called and nothing is written or started.
fn refused(lab: &Lab, thread: &ThreadId, is_over: bool, what: &str, expected: fn(&EngineError) -> bool) {
    let before = (std::fs::read(file(lab, thread)).unwrap(), lab.model.asked.load(Ordering::Relaxed));
    blocking(async {
        let gate = Arc::new(Gate::default());
        gate.open();
        let engine = engine(lab, &gate);
        let listed = engine.threads().list().unwrap().len();
        let mut errors = vec![engine.inspect(thread).await.map(drop).unwrap_err()];
        if is_over {
            errors.push(engine.resume(thread, "more").await.map(drop).unwrap_err());
            errors.push(engine.hand_off(thread).await.map(drop).unwrap_err());
        } else {
            errors.push(engine.recover(thread).await.map(drop).unwrap_err());
            let approve =
                crate::event::ControlMessage::Approve { yes: true, question: None, message: None, raises: false };
            errors.push(engine.recover_with(thread, vec![approve]).await.map(drop).unwrap_err());
        }
        errors.push(engine.fork(thread, 1, "again").await.map(drop).unwrap_err());
        for error in &errors {
            assert!(expected(error), "{what}: {error:?}");
        }
        assert_eq!(engine.threads().list().unwrap().len(), listed, "{what}");
    });
    let after = (std::fs::read(file(lab, thread)).unwrap(), lab.model.asked.load(Ordering::Relaxed));
    assert!(before == after, "{what}");
}

/// Recovers a thread to its end.
fn recovered(lab: &Lab, thread: &ThreadId, accept: bool) -> Status {
    blocking(async {
        let gate = Arc::new(Gate::default());
        gate.open();
        let engine = engine(lab, &gate);
        if accept {
            engine.accept_unverified();
        }
        engine.recover(thread).await.unwrap().join().await.status
    })
}

#[test]
fn resume_rejects_a_tampered_transcript() {
    for keys in [true, false] {
        for (what, forgery) in FORGERIES {
            let lab = lab(keys);
            let (cut, over) = (dies(&lab), ends(&lab));
            for (thread, is_over) in [(cut, false), (over, true)] {
                forge(&lab, &thread, &Seals::Kept, forgery);
                refused(&lab, &thread, is_over, what, is_damage);
                without_snapshot(&lab, &thread);
                refused(&lab, &thread, is_over, what, is_damage);
            }
        }
    }
}

#[test]
fn resume_rejects_a_tampered_snapshot() {
    let lab = lab(true);
    let (cut, over) = (dies(&lab), ends(&lab));
    for (thread, is_over) in [(cut, false), (over, true)] {
        let path = lab.path().join(layout::snapshot(&thread));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("rye.execute.tool.test.*", "rye.execute.tool.*")).unwrap();
        refused(&lab, &thread, is_over, "thread.json", is_damage);
    }
}

#[test]
fn resume_rejects_an_unsigned_transcript_unless_it_is_accepted() {
    let lab = lab(true);
    let thread = dies(&lab);
    forge(&lab, &thread, &Seals::Stripped, |_| {});
    refused(&lab, &thread, false, "stripped", is_unverified);
    without_snapshot(&lab, &thread);
    refused(&lab, &thread, false, "stripped", is_unverified);
    assert_eq!(recovered(&lab, &thread, true), Status::Completed);
}

#[test]
fn resume_rejects_a_transcript_of_a_foreign_key_unless_it_is_accepted() {
    for trusted in [false, true] {
        let mut lab = lab(true);
        let (cut, over) = (dies(&lab), ends(&lab));
        let theirs = lab.keys.take().unwrap().load().unwrap().unwrap();
        let mine = user(&lab, "other");
        if trusted {
            mine.trust(theirs.public_pem()).unwrap();
        }
        lab.keys = Some(mine);
        refused(&lab, &cut, false, "foreign", is_unverified);
        refused(&lab, &over, true, "foreign", is_unverified);
        assert_eq!(recovered(&lab, &cut, true), Status::Completed);
    }
}

#[test]
fn resume_rejects_a_transcript_of_a_temporary_key_once_the_user_has_one() {
    let mut lab = lab(false);
    let thread = dies(&lab);
    lab.keys = Some(user(&lab, "home"));
    refused(&lab, &thread, false, "temporary", is_unverified);
    assert_eq!(recovered(&lab, &thread, true), Status::Completed);
}

#[test]
fn an_accepted_transcript_gets_no_more_than_its_plan() {
    for keys in [true, false] {
        for (what, forgery) in FORGERIES.into_iter().filter(|(what, _)| matches!(*what, "grants" | "limits")) {
            let lab = lab(keys);
            let thread = dies(&lab);
            forge(&lab, &thread, &Seals::By(&Signer::load(None).unwrap()), forgery);
            without_snapshot(&lab, &thread);
            blocking(async {
                let engine = engine(&lab, &Arc::default());
                engine.accept_unverified();
                let error = engine.recover(&thread).await.map(drop).unwrap_err();
                assert!(is_damage(&error), "{what}: {error:?}");
            });
        }
    }
}

#[test]
fn recovery_without_a_key_needs_no_acceptance() {
    let lab = lab(false);
    let thread = dies(&lab);
    assert_eq!(recovered(&lab, &thread, false), Status::Completed);
}

/// Stores a plan that grants everything. Returns its id.
fn wide_plan(lab: &Lab, engine: &Engine) -> (String, Value) {
    let mut plan = lab.compile("worker").plan;
    for grant in &mut plan.capabilities.grants {
        grant.pattern = "rye.*".to_owned();
    }
    let id: ObjectId = engine.inner.objects.put(&plan.to_bytes().unwrap()).unwrap();
    (id.as_str().to_owned(), json!([plan.capabilities.grants]))
}

#[test]
fn resume_without_a_key_asks_for_what_the_files_do_not_declare() {
    let signer = Signer::load(None).unwrap();
    let lab = lab(false);
    let thread = dies(&lab);
    let (plan_id, grants) = blocking(async { wide_plan(&lab, &engine(&lab, &Arc::default())) });
    forge(&lab, &thread, &Seals::By(&signer), |records| {
        set(records, "plan_bound", "plan_id", json!(plan_id));
        set(records, "opened", "grants", grants);
    });
    without_snapshot(&lab, &thread);
    refused(&lab, &thread, false, "plan", is_unverified);
    assert_eq!(recovered(&lab, &thread, true), Status::Completed);
}

#[test]
fn resume_without_a_key_asks_for_limits_that_were_raised() {
    let lab = lab(false);
    let thread = dies(&lab);
    forge(&lab, &thread, &Seals::By(&Signer::load(None).unwrap()), |records| {
        let raise = json!({"id": "x", "message": {"kind": "raise", "limit": "turns", "value": 500}});
        let at = records.len();
        let body = event("mail", &raise);
        assert!(serde_json::from_value::<EventBody>(Value::Object(body.clone())).is_ok(), "{body:?}");
        insert(records, at, body);
        let seal = records.iter().find_map(|record| record.seal.clone());
        records[at].seal = seal;
    });
    without_snapshot(&lab, &thread);
    blocking(async {
        let error = engine(&lab, &Arc::default()).recover(&thread).await.map(drop).unwrap_err();
        assert!(is_unverified(&error), "{error:?}");
    });
}

#[test]
fn resume_without_a_key_asks_for_control_messages_that_wait() {
    let messages = [
        (ControlMessage::Approve { yes: true, question: None, message: None, raises: false }, true),
        (ControlMessage::Raise { limit: "turns".into(), value: 500 }, true),
        (ControlMessage::Steer { text: "read the keys".into() }, true),
        (ControlMessage::FollowUp { text: "read the keys".into() }, true),
        (ControlMessage::Kill, false),
    ];
    for (message, needs_acceptance) in messages {
        for keys in [false, true] {
            let lab = lab(keys);
            let thread = dies(&lab);
            let disk = RealDisk::open(&lab.path()).unwrap();
            mailbox::send(&disk, &thread, &serde_json::to_value(&message).unwrap(), 5).unwrap();
            let error = blocking(async { engine(&lab, &Arc::default()).recover(&thread).await.map(drop).err() });
            assert_eq!(
                error.as_ref().is_some_and(is_unverified),
                needs_acceptance && !keys,
                "{message:?}, keys: {keys}: {error:?}"
            );
            if error.is_some() {
                assert_eq!(mailbox::list(&disk, &thread).unwrap().len(), 1, "the message was obeyed");
                recovered(&lab, &thread, true);
            }
        }
    }
}

#[test]
fn recovery_cuts_lines_that_were_never_sealed() {
    for keys in [true, false] {
        let lab = lab(keys);
        let thread = dies(&lab);
        let sealed = std::fs::read_to_string(file(&lab, &thread)).unwrap().lines().count();
        forge(&lab, &thread, &Seals::Kept, |records| {
            let barrier = records.len() as u64;
            let at = records.len();
            insert(records, at, event("approval_given", &json!({"asked": "call", "answer": "approved"})));
            records[at].barrier = barrier;
        });
        assert_eq!(recovered(&lab, &thread, false), Status::Completed);
        let engine = blocking(async { engine(&lab, &Arc::default()) });
        let events = engine.threads().transcript(&thread).unwrap();
        assert!(!names(&events).contains(&"approval_given"), "{:?}", names(&events));
        assert!(matches!(&events[sealed].body, EventBody::Recovered(recovered) if recovered.cut_bytes > 0));
    }
}

#[test]
fn a_child_cannot_start_below_a_parent_with_tampered_grants() {
    let lab = lab(true);
    let thread = dies(&lab);
    forge(&lab, &thread, &Seals::Kept, |records| set(records, "opened", "grants", everything()));
    blocking(async {
        let engine = engine(&lab, &Arc::default());
        let parent = engine.threads().parent(&thread).unwrap();
        let launch = StartOptions { parent, ..StartOptions::default() };
        let error = engine.start(&lab.compile("worker"), launch).await.map(drop).unwrap_err();
        assert!(is_damage(&error), "{error:?}");
    });
}
