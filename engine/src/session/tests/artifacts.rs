//! Tests of a thread's artifacts, their signatures, and the detection of changes.

use std::fs;

use serde_json::{Value, json};

use super::{Lab, calls, reply_text, thread};
use crate::engine::Engine;
use crate::event::EventBody;
use crate::keys::{KeyFolder, SigningIdentity, TrustStore};
use crate::signer::TEMPORARY_KEY_PREFIX;
use crate::store::prune::prune;
use crate::store::thread_files::{SIGNATURE, canonical_json};
use crate::store::{ObjectId, layout};
use crate::thread::Status;
use crate::thread_id::ThreadId;
use crate::threads::verify::{ThreadVerdict, ThreadVerification};

/// Returns a project whose thread has two turns with tools, one of them with a result longer than a transcript line,
/// and a final reply.
fn lab(keys: bool) -> Lab {
    let mut lab = Lab::new(|request| {
        Ok(match request.cue.turn.unwrap() {
            0 => calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]),
            1 => calls(&[("rye_fetch", json!({"item_type": "knowledge", "item_id": "big"}))]),
            _ => reply_text("all read: ``` and <b>"),
        })
    });
    lab.write("a.txt", "content\n");
    lab.write(".ai/knowledge/big.md", &"a line of some length that repeats\n".repeat(3000));
    let grants = "<execute><tool>rye.file-system.read</tool></execute><fetch><knowledge>big</knowledge></fetch>";
    lab.directive("reader", &format!("<permissions>{grants}</permissions>"), "");
    if keys {
        let keys = KeyFolder::of_user_space(&lab.path().join("home"));
        keys.load_or_generate().unwrap();
        lab.keys = Some(keys);
    }
    lab
}

fn trust(lab: &Lab) -> TrustStore {
    lab.keys.as_ref().map(|keys| keys.trust_store().unwrap()).unwrap_or_default()
}

async fn ran(lab: &Lab) -> (Engine, ThreadId) {
    let engine = lab.engine();
    let result = lab.run(&engine, "reader").await;
    assert_eq!(result.status, Status::Completed, "{:?}", result.error);
    (engine, thread(&result))
}

fn verify_thread(lab: &Lab, engine: &Engine, id: &ThreadId) -> ThreadVerification {
    engine.threads().verify(id, &trust(lab)).unwrap()
}

#[tokio::test]
async fn thread_signs_its_transcript_and_artifacts() {
    let lab = lab(true);
    let (engine, id) = ran(&lab).await;
    let key = lab.keys.as_ref().unwrap().load().unwrap().unwrap();
    let read = |path: std::path::PathBuf| fs::read_to_string(lab.path().join(path)).unwrap();

    let events = engine.threads().transcript(&id).unwrap();
    let sealed: Vec<u64> = events
        .iter()
        .filter_map(|e| if let EventBody::Checkpoint(c) = &e.body { Some(c.turn) } else { None })
        .collect();
    assert_eq!(sealed, [1, 2, 3], "one a turn");
    assert!(matches!(events.last().unwrap().body, EventBody::Ended(_)));

    let snapshot: Value = serde_json::from_str(&read(layout::snapshot(&id))).unwrap();
    assert!(snapshot[SIGNATURE].as_str().unwrap().starts_with(key.key_id()));
    assert_eq!((&snapshot["status"], &snapshot["cost"]["turns"]), (&json!("completed"), &json!(3)));
    assert_eq!(snapshot["transcript"]["events"], json!(events.len()));
    let granted = ["rye.execute.tool.rye.file-system.read", "rye.fetch.knowledge.big"];
    assert_eq!(snapshot["capabilities"], json!(granted));

    let capabilities = read(layout::capabilities(&id));
    assert!(capabilities.starts_with("<!-- rye:signed:"), "{capabilities}");
    for part in ["- `execute`\n  - `tool`\n    - `rye.file-system.read`\n      - rye/file-system/read\n", "\"path\""] {
        assert!(capabilities.contains(part), "{part}\n{capabilities}");
    }

    let export = read(layout::export(&"test/reader".parse_id(), &id));
    let reference = format!("capabilities_ref: .ai/state/threads/{id}/capabilities.md\n");
    for part in
        ["<!-- rye:signed:", &reference, "Untrusted", "````\nall read: ``` and <b>\n````", "bytes more; the transcript"]
    {
        assert!(export.contains(part), "{part}\n{export}");
    }
    assert!(export.len() < 20_000, "{}", export.len());

    let found = verify_thread(&lab, &engine, &id);
    assert_eq!((found.verdict, found.checkpoints), (ThreadVerdict::Sound, 3), "{found:?}");
    assert_eq!((found.signed_events, found.signed_by), (found.events, vec![key.key_id().to_owned()]));
}

#[tokio::test]
async fn without_a_key_the_process_signs_with_one_of_its_own() {
    let lab = lab(false);
    let (engine, id) = ran(&lab).await;
    assert_eq!(engine.signer().fallback_reason(), Some("no signing key found"));
    let found = verify_thread(&lab, &engine, &id);
    assert_eq!((found.verdict, &found.faults), (ThreadVerdict::Unproven, &Vec::new()), "{found:?}");
    assert!(found.signed_by.iter().all(|name| name.starts_with(TEMPORARY_KEY_PREFIX)) && !found.signed_by.is_empty());
    // The export is not signed: a signature that cannot be verified would make the file unreadable.
    let export = fs::read_to_string(lab.path().join(layout::export(&"test/reader".parse_id(), &id))).unwrap();
    assert!(export.starts_with("---\ntitle: Thread test/reader-"), "{export}");
    let path = lab.path().join(layout::transcript(&id));
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"signature\":\"", "\"signature\":\"A", 1)).unwrap();
    assert_eq!(verify_thread(&lab, &engine, &id).verdict, ThreadVerdict::Damaged);
}

#[tokio::test]
async fn the_export_is_there_before_the_hooks_of_the_end() {
    let lab = lab(true);
    lab.write(
        ".ai/config/agent/hooks.yaml",
        "hooks:\n  - id: reads_it\n    event: after_complete\n    action: { primary: execute, item_type: knowledge, \
         item_id: \"agent/threads/${directive}/${thread_id}\" }\n    grants: [\"rye.execute.knowledge.agent.threads.*\"]\n    \
         on_failure: fail\n",
    );
    let (engine, id) = ran(&lab).await;
    let events = engine.threads().transcript(&id).unwrap();
    let hook = events.iter().find_map(|e| if let EventBody::HookPoint(run) = &e.body { Some(run) } else { None });
    let hook = serde_json::to_value(hook.unwrap()).unwrap();
    assert!(hook["considered"].to_string().contains("fired"), "{hook}");
    assert!(!hook.to_string().contains("unknown knowledge"), "{hook}");
}

#[tokio::test]
async fn export_has_the_whole_result_once_and_cuts_the_quote_of_a_long_reply() {
    let reply = "a line of a long reply\n".repeat(100_000);
    let answer = reply.clone();
    let lab = Lab::new(move |_| Ok(reply_text(&answer)));
    lab.directive("long", "", "");
    let engine = lab.engine();
    let result = lab.run(&engine, "long").await;
    assert_eq!(result.result.as_deref(), Some(reply.as_str()));
    let export = layout::export(&"test/long".parse_id(), &thread(&result));
    let text = fs::read_to_string(lab.path().join(export)).unwrap();
    assert!(text.contains(&format!("## Result\n\n```\n{reply}```\n")));
    let (_, quotes) = text.split_once("## Conversation\n").unwrap();
    assert!(quotes.contains("### User") && quotes.len() < 600 * 1024, "{}", quotes.len());
    assert!(quotes.contains(&format!("\n({} bytes more; the transcript has them)", reply.len() - 512 * 1024)));
}

#[tokio::test]
async fn verify_finds_every_changed_byte_of_a_transcript() {
    let lab = lab(true);
    let (engine, id) = ran(&lab).await;
    let path = lab.path().join(layout::transcript(&id));
    let sound = fs::read(&path).unwrap();
    let lines: Vec<&[u8]> = sound.split_inclusive(|byte| *byte == b'\n').collect();
    let mut at = 0;
    for (n, line) in lines.iter().enumerate() {
        // The test changes the start, the hash, the middle and the end of each line.
        for offset in [0, 60, line.len() / 2, line.len() - 2] {
            let mut changed = sound.clone();
            changed[at + offset] ^= 1;
            fs::write(&path, changed).unwrap();
            let found = verify_thread(&lab, &engine, &id);
            assert_eq!(found.verdict, ThreadVerdict::Damaged, "line {} byte {offset}", n + 1);
            let fault = &found.faults[0];
            assert_eq!(
                (fault.file.as_str(), fault.line),
                (layout::transcript(&id).to_str().unwrap(), Some(n as u64 + 1))
            );
        }
        let mut removed = sound.clone();
        removed.drain(at..at + line.len());
        fs::write(&path, removed).unwrap();
        let found = verify_thread(&lab, &engine, &id);
        assert_eq!(found.faults[0].line, Some(n as u64 + 1), "line {} removed: {found:?}", n + 1);
        at += line.len();
    }
}

/// Returns the replacement of an event, if any.
type EventReplacement<'a> = dyn Fn(&EventBody) -> Option<EventBody> + 'a;

#[tokio::test]
async fn verify_finds_rechained_changes_by_their_signatures() {
    let lab = lab(true);
    let (engine, id) = ran(&lab).await;
    let path = lab.path().join(layout::transcript(&id));
    let events = engine.threads().transcript(&id).unwrap();
    let sound = fs::read(&path).unwrap();
    let stranger = SigningIdentity::ephemeral().unwrap();
    let without = |body: &EventBody| matches!(body, EventBody::Checkpoint(_));
    let forged: [(&str, &EventReplacement<'_>); 3] = [
        ("the signature was not made with the key", &|body| Some(body.clone())),
        ("is not trusted", &|body| {
            let EventBody::Checkpoint(mut checkpoint) = body.clone() else { return Some(body.clone()) };
            checkpoint.key_id = stranger.key_id().to_owned();
            Some(EventBody::Checkpoint(checkpoint))
        }),
        ("refers to", &|body| (!without(body)).then(|| body.clone())),
    ];
    for (expected, change) in forged {
        fs::remove_file(&path).unwrap();
        let disk = std::sync::Arc::clone(engine.disk());
        let mut transcript = crate::store::Transcript::create(disk, &id).unwrap();
        for event in &events {
            let mut body = change(&event.body);
            if let Some(EventBody::ToolCallResult(result)) = &mut body {
                result.content.push_str(" and what never was");
            }
            if let Some(body) = body {
                transcript.append(&[body], event.ts).unwrap();
                transcript.sync().unwrap();
            }
        }
        // The verification runs without the registry, which would detect the shorter transcript by itself.
        let found = crate::threads::Threads::new(std::sync::Arc::clone(engine.disk()), None).verify(&id, &trust(&lab));
        let found = found.unwrap();
        assert!(found.faults.iter().any(|fault| fault.reason.contains(expected)), "{expected}: {found:?}");
    }
    fs::write(&path, sound).unwrap();
    assert_eq!(verify_thread(&lab, &engine, &id).verdict, ThreadVerdict::Sound);
}

#[tokio::test]
async fn verify_accepts_a_torn_tail_and_rejects_a_shortened_transcript() {
    let lab = lab(true);
    let (engine, id) = ran(&lab).await;
    let path = lab.path().join(layout::transcript(&id));
    let sound = fs::read(&path).unwrap();
    fs::write(&path, [sound.as_slice(), b"{\"v\":1,\"seq\":99,\"ts\""].concat()).unwrap();
    let found = verify_thread(&lab, &engine, &id);
    assert_eq!(found.verdict, ThreadVerdict::Sound, "{found:?}");
    assert!(found.notes.iter().any(|note| note.contains("torn tail")), "{found:?}");
    let shorter = sound.iter().rposition(|byte| *byte == b'{').unwrap();
    for cut in [shorter, sound.len() - 1, 0] {
        fs::write(&path, &sound[..cut]).unwrap();
        assert_eq!(verify_thread(&lab, &engine, &id).verdict, ThreadVerdict::Damaged, "{cut}");
    }
    fs::remove_file(&path).unwrap();
    assert!(verify_thread(&lab, &engine, &id).faults[0].reason.contains("missing"));
}

#[tokio::test]
async fn verify_finds_changed_swapped_and_foreign_artifacts() {
    let lab = lab(true);
    let (engine, id) = ran(&lab).await;
    let (_, other) = ran(&lab).await;
    let stranger = SigningIdentity::ephemeral().unwrap();
    let mine = lab.keys.as_ref().unwrap().load().unwrap().unwrap();
    let directive = "test/reader".parse_id();
    let resigned = |bytes: &[u8], by: &SigningIdentity, key: &str| {
        let mut fields: serde_json::Map<String, Value> = serde_json::from_slice(bytes).unwrap();
        fields.shift_remove(SIGNATURE);
        fields.insert("status".into(), "error".into());
        let canonical = canonical_json("x".as_ref(), &fields).unwrap();
        fields.insert(SIGNATURE.into(), format!("{key}:{}", by.sign(&canonical)).into());
        serde_json::to_vec(&fields).unwrap()
    };
    let changed = |bytes: &[u8]| [bytes, b" "].concat();
    let named = |path: std::path::PathBuf| lab.path().join(path);
    let snapshot = fs::read(named(layout::snapshot(&id))).unwrap();
    let replaced = String::from_utf8(snapshot.clone()).unwrap().replace("completed", "cancelled").into_bytes();
    let listed = fs::read(named(layout::capabilities(&id))).unwrap();
    let export = fs::read(named(layout::export(&directive, &id))).unwrap();
    let sign = |bytes: &[u8], by: &SigningIdentity| {
        by.sign_file(bytes, crate::keys::CommentSyntax::Markup, "2026-01-01T00:00:00Z")
    };
    let cases: Vec<(std::path::PathBuf, Vec<u8>, &str)> = vec![
        (layout::snapshot(&id), replaced, "was not made with the key"),
        (layout::snapshot(&id), resigned(&snapshot, &stranger, stranger.key_id()), "is not trusted"),
        (
            layout::snapshot(&id),
            resigned(&snapshot, &stranger, &format!("{TEMPORARY_KEY_PREFIX}{}", stranger.public_text())),
            "temporary key after a trusted key",
        ),
        (layout::snapshot(&id), resigned(&snapshot, &mine, mine.key_id()), "but `completed` in the transcript"),
        (layout::snapshot(&id), fs::read(named(layout::snapshot(&other))).unwrap(), "its `thread_id` is"),
        (layout::snapshot(&id), b"{}\n[".to_vec(), "not a JSON object"),
        (layout::snapshot(&id), b"{\"version\":2}".to_vec(), "install a newer `rye`"),
        (layout::snapshot(&id), b"{\"version\":1}".to_vec(), "its signature is missing"),
        (layout::capabilities(&id), changed(&listed), "the content does not match the signature"),
        (layout::capabilities(&id), sign(&listed, &stranger), "is not trusted"),
        (
            layout::capabilities(&id),
            fs::read(named(layout::capabilities(&other))).unwrap(),
            "belongs to another thread",
        ),
        (layout::capabilities(&id), b"everything\n".to_vec(), "its signature line is missing"),
        (layout::export(&directive, &id), changed(&export), "the content does not match the signature"),
        (layout::export(&directive, &id), sign(&export, &stranger), "is not trusted"),
        (layout::export(&directive, &id), b"nothing happened\n".to_vec(), "its signature line is missing"),
        (
            layout::export(&directive, &id),
            fs::read(named(layout::export(&directive, &other))).unwrap(),
            "belongs to another thread",
        ),
    ];
    for (path, bytes, expected) in cases {
        let before = fs::read(named(path.clone())).unwrap();
        fs::write(named(path.clone()), bytes).unwrap();
        let found = verify_thread(&lab, &engine, &id);
        assert_eq!(found.verdict, ThreadVerdict::Damaged, "{expected}");
        let fault = found.faults.iter().find(|fault| fault.file == path.to_str().unwrap());
        assert!(fault.is_some_and(|fault| fault.reason.contains(expected)), "{expected}: {found:?}");
        fs::write(named(path.clone()), before).unwrap();
        assert_eq!(verify_thread(&lab, &engine, &id).verdict, ThreadVerdict::Sound);
    }
}

#[tokio::test]
async fn an_object_that_was_swapped_or_removed_is_found_with_the_line_that_names_it() {
    let lab = lab(true);
    let (engine, id) = ran(&lab).await;
    let events = engine.threads().transcript(&id).unwrap();
    let of = |e: &crate::event::Event| -> Vec<(u64, ObjectId)> {
        e.body.objects().into_iter().map(|object| (e.seq + 1, ObjectId::parse(object).unwrap())).collect()
    };
    let named: Vec<(u64, ObjectId)> = events.iter().flat_map(of).collect();
    assert_eq!(named.len(), 2, "the plan and the large result");
    for (line, object) in named {
        let path = lab.path().join(layout::OBJECTS).join(object.as_str());
        let sound = fs::read(&path).unwrap();
        for change in [Some(b"something else".to_vec()), None] {
            match &change {
                Some(bytes) => fs::write(&path, bytes).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            let found = verify_thread(&lab, &engine, &id);
            let fault = &found.faults[0];
            assert!(fault.file.ends_with(object.as_str()), "{found:?}");
            assert!(fault.reason.contains(&format!("line {line} of the transcript names this file")), "{found:?}");
        }
        fs::write(&path, sound).unwrap();
    }
    assert_eq!(verify_thread(&lab, &engine, &id).verdict, ThreadVerdict::Sound);
}

#[tokio::test]
async fn thread_that_is_pruned_meanwhile_is_not_damaged() {
    let lab = lab(true);
    let (one, first) = ran(&lab).await;
    let (two, second) = ran(&lab).await;
    drop((one, two));
    let disk: std::sync::Arc<dyn crate::store::Disk> =
        std::sync::Arc::new(crate::store::RealDisk::open(&lab.path()).unwrap());
    let engine = lab.engine();
    let threads = engine.threads();
    let both = [first.clone(), second.clone()];
    assert!(both.iter().all(|thread| !threads.is_removed(thread, true).unwrap()));
    prune(&disk, std::slice::from_ref(&first)).unwrap();
    let found = threads.verify_all(&both, &TrustStore::default()).unwrap();
    assert_eq!(found.iter().map(|one| one.thread_id.as_str()).collect::<Vec<_>>(), [second.as_str()]);
    // A row that was read before the removal does not make the missing transcript a fault.
    assert!(threads.is_removed(&first, true).unwrap() && !threads.is_removed(&second, true).unwrap());
}

#[tokio::test]
async fn pruning_removes_the_objects_that_no_other_thread_names() {
    let lab = lab(true);
    let (one, first) = ran(&lab).await;
    let (two, second) = ran(&lab).await;
    let disk: std::sync::Arc<dyn crate::store::Disk> =
        std::sync::Arc::new(crate::store::RealDisk::open(&lab.path()).unwrap());
    let objects = || fs::read_dir(lab.path().join(layout::OBJECTS)).unwrap().count();
    let export = |id: &ThreadId| lab.path().join(layout::export(&"test/reader".parse_id(), id));
    drop((one, two));
    // The objects are the plan, its source files, and the large result.
    let all = objects();
    assert!(all >= 2);
    assert_eq!(
        (prune(&disk, std::slice::from_ref(&first)).unwrap(), objects()),
        (0, all),
        "the other thread names them"
    );
    assert!(!export(&first).exists() && export(&second).exists());
    let busy = lab.engine();
    assert_eq!(verify_thread(&lab, &busy, &second).verdict, ThreadVerdict::Sound);
    let (three, third) = ran(&lab).await;
    drop(three);
    assert_eq!((prune(&disk, &[second]).unwrap(), objects()), (0, all));
    assert_eq!(prune(&disk, &[third]).unwrap(), 0, "an active process may refer to the objects");
    drop(busy);
    let (four, fourth) = ran(&lab).await;
    drop(four);
    assert_eq!((prune(&disk, &[fourth]).unwrap(), objects()), (all, 0));
}

trait ParseId {
    fn parse_id(&self) -> rye_grammar::ItemId;
}

impl ParseId for str {
    fn parse_id(&self) -> rye_grammar::ItemId {
        rye_grammar::ItemId::parse(self).unwrap()
    }
}
