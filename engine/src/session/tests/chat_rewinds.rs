//! Rewinds of files in a chat, after a crash at every operation: the files get their old contents back, whatever the
//! crash has left.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rye_compiler::compile::{Compilation, CompileRequest, compile};
use rye_grammar::ItemId;
use serde_json::json;

use super::{Lab, calls, reply_text};
use crate::context::StartOptions;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::event::{ControlMessage, Delivery};
use crate::session::rewind::{RewindState, plan_rewind, restore_files};
use crate::store::disk::{SimulatedDisk, Survival};
use crate::store::{Disk, Objects};
use crate::thread::Status;

/// The file that each prompt writes, and its contents before the first prompt.
const FILE: &str = "note.txt";
const BEFORE: &str = "a note";

/// Returns a project whose model writes the number of results so far into the file, once in each prompt.
fn lab(elsewhere: Option<PathBuf>) -> Lab {
    let mut lab = Lab::new(|request| {
        let results = request.turns.iter().filter(|turn| turn.kind() == "tool_result").count();
        let is_answered = request.turns.last().is_some_and(|turn| turn.kind() == "tool_result");
        let write = [("rye_file_system_write", json!({"path": FILE, "content": format!("text {results}")}))];
        Ok(if is_answered { reply_text("done") } else { calls(&write) })
    });
    lab.elsewhere = elsewhere;
    if lab.elsewhere.is_none() {
        lab.write(FILE, BEFORE);
        let grants = "<permissions><execute><tool>rye.file-system.write</tool></execute></permissions>";
        lab.directive("talk", &format!("<limits turns=\"4\" spend=\"1.00\"/>{grants}"), "");
    }
    lab
}

fn plan(lab: &Lab) -> Compilation {
    let world = (lab.options().world)().unwrap();
    let request = CompileRequest::new(ItemId::parse("test/talk").unwrap()).with_inputs(serde_json::Map::new());
    compile(&*world, &request.chat()).value.unwrap()
}

fn engine(lab: &Lab, disk: &Arc<dyn Disk>) -> Engine {
    let mut options = lab.options();
    options.disk = Some(Arc::clone(disk));
    Engine::open(&lab.path(), options).unwrap()
}

fn blocking<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn rewind_after_a_crash_at_any_operation_restores_the_file() {
    let first = lab(None);
    let left: Arc<Mutex<Vec<(u64, SimulatedDisk, String)>>> = Arc::default();
    let simulated = Arc::new(SimulatedDisk::new());
    let (states, file) = (Arc::clone(&left), first.path().join(FILE));
    simulated.before_operations(move |at, disk| {
        disk.restart(if at % 2 == 0 { Survival::All } else { Survival::Some(at) });
        states.lock().unwrap().push((at, disk, std::fs::read_to_string(&file).unwrap()));
    });
    let disk = Arc::clone(&simulated) as Arc<dyn Disk>;
    blocking(async {
        let engine = engine(&first, &disk);
        let handle = engine.start(&plan(&first), StartOptions::default()).await.unwrap();
        for text in ["one", "two"] {
            handle.send(ControlMessage::Submit { input: text.into(), delivery: Delivery::Prompt });
        }
        handle.send(ControlMessage::Close);
        assert_eq!(handle.join().await.status, Status::Idle);
    });
    let left = std::mem::take(&mut *left.lock().unwrap());
    let written = left.iter().filter(|(_, _, text)| text != BEFORE).count();
    assert!(left.len() > 100 && written > 20, "{} operations, {written} after the first write", left.len());
    let step = if std::env::var_os("RYE_EVERY_CRASH").is_some() { 1 } else { left.len().div_ceil(80) };
    let mut restored = 0;
    for (at, disk, text) in left.into_iter().step_by(step) {
        restored += usize::from(rewind(&lab(Some(first.path())), at, disk, &text));
    }
    assert!(restored > 10, "{restored} files were restored");
}

/// Recovers the session that a crash before operation `at` left with this text in the file, and rewinds the files of its
/// first prompt. Returns true if the file was restored.
fn rewind(lab: &Lab, at: u64, disk: SimulatedDisk, text: &str) -> bool {
    lab.write(FILE, text);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    blocking(async {
        let engine = engine(lab, &disk);
        let listed = engine.threads().list().unwrap();
        let Some(thread) = listed.into_iter().next().map(|thread| thread.row.id) else { return false };
        match engine.recover_with(&thread, vec![ControlMessage::Close]).await {
            Ok(handle) => assert_eq!(handle.join().await.status, Status::Idle, "at {at}"),
            Err(EngineError::NeverStarted { .. }) => return false,
            Err(error) => panic!("at {at}: {error}"),
        }
        assert_eq!(std::fs::read_to_string(lab.path().join(FILE)).unwrap(), text, "at {at}: the recovery wrote");
        let Some(found) = plan_rewind(&engine.threads(), &lab.path(), &thread, 1).unwrap() else {
            // Without a prompt, nothing was written.
            assert_eq!(text, BEFORE, "at {at}");
            return false;
        };
        let done = restore_files(&Objects::new(Arc::clone(&disk)), &lab.path(), found).unwrap();
        assert_eq!(std::fs::read_to_string(lab.path().join(FILE)).unwrap(), BEFORE, "at {at}: {:?}", done.files);
        done.files.iter().any(|file| file.state == RewindState::Restored)
    })
}
