//! Kills that arrive while a child starts: no child keeps a reservation without a task that ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rye_compiler::compile::{CompileRequest, SpawnParent, compile};
use rye_compiler::semantics::ledger::AccountStatus;
use rye_grammar::ItemId;

use super::{Lab, Status, reply_text};
use crate::context::StartOptions;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::event::ControlMessage;
use crate::store::Disk;
use crate::store::disk::{SimulatedDisk, Survival};
use crate::thread_id::ThreadId;

/// Maximum number of disk operations of a tree in these tests.
const MAX_OPERATIONS: u64 = 200;

/// A model call of this duration ends only by a kill.
const ENDLESS: Duration = Duration::from_hours(24);

const HOOK: &str = "<hooks><hook id=\"note\" event=\"after_step\"><action primary=\"execute\" item_type=\"directive\" \
    item_id=\"test/child\"/></hook></hooks><permissions><execute><directive>test.*</directive></execute></permissions>";

fn lab(pause: Duration) -> (Lab, Arc<SimulatedDisk>) {
    let mut lab = Lab::new(|_| Ok(reply_text("done")));
    Arc::get_mut(&mut lab.model).unwrap().pause = pause;
    let disk = Arc::new(SimulatedDisk::new());
    lab.disk = Some(Arc::clone(&disk) as Arc<dyn Disk>);
    lab.directive("root", HOOK, "");
    lab.directive("child", "", "");
    (lab, disk)
}

/// Kills a thread `after` disk operations from now. The returned flag is set by the kill.
fn kill_after(after: u64, disk: &SimulatedDisk, engine: &Engine, thread: &ThreadId) -> Arc<AtomicBool> {
    let (at, thread, engine) = (disk.operations() + after, thread.clone(), Arc::downgrade(&engine.inner));
    let was_sent = Arc::new(AtomicBool::new(false));
    let sent = Arc::clone(&was_sent);
    disk.before_operations(move |operation, _| {
        if operation == at
            && let Some(engine) = engine.upgrade()
        {
            sent.store(engine.send_message(&thread, ControlMessage::Kill), Ordering::SeqCst);
        }
    });
    was_sent
}

fn assert_all_closed(engine: &Engine, what: &str) {
    for listed in engine.threads().list().unwrap() {
        let account = engine.account(&listed.row.id).unwrap().unwrap();
        assert!(listed.row.status.has_ended(), "{what}: {:?}", listed.row);
        assert_eq!(account.status(), AccountStatus::Released, "{what}: {} {account:?}", listed.row.id);
    }
}

#[tokio::test]
async fn kill_during_the_start_of_a_child_of_a_hook_leaves_no_reservation() {
    let (mut with_child, mut without_child) = (0, 0);
    for after in 0..MAX_OPERATIONS {
        let (lab, disk) = lab(Duration::ZERO);
        let engine = lab.engine();
        let handle = lab.start(&engine, "root").await;
        let was_sent = kill_after(after, &disk, &engine, &handle.thread_id);
        let result = handle.join().await;
        engine.wait_idle().await;
        assert_all_closed(&engine, &format!("kill after {after} operations, {result:?}"));
        if !was_sent.load(Ordering::SeqCst) {
            break;
        }
        *(if engine.threads().list().unwrap().len() > 1 { &mut with_child } else { &mut without_child }) += 1;
    }
    assert!(with_child > 2 && without_child > 2, "{with_child} and {without_child} runs");
}

#[tokio::test]
async fn kill_of_a_parent_ends_a_child_that_a_command_starts_meanwhile() {
    let (mut refused, mut killed) = (0, 0);
    for after in 0..MAX_OPERATIONS {
        let (lab, disk) = lab(ENDLESS);
        let engine = lab.engine();
        let handle = lab.start(&engine, "root").await;
        let parent = engine.inspect(&handle.thread_id).await.unwrap().unwrap();
        let mut request = CompileRequest::new(ItemId::parse("test/child").unwrap()).with_inputs(serde_json::Map::new());
        let (limits, capabilities) = (parent.launch.limits, parent.plan.capabilities.clone());
        request.parent = Some(SpawnParent { limits, capabilities });
        let compiled = compile(&*(lab.options().world)().unwrap(), &request).value.unwrap();
        let was_sent = kill_after(after, &disk, &engine, &handle.thread_id);
        let options = StartOptions { parent: Some(parent), ..StartOptions::default() };
        let started = engine.start(&compiled, options).await;
        let was_sent = was_sent.load(Ordering::SeqCst);
        handle.kill();
        match started {
            Ok(child) => {
                assert_eq!(child.join().await.status, Status::Killed, "kill after {after} operations");
                killed += 1;
            }
            Err(EngineError::NotReserved { .. }) => refused += 1,
            Err(error) => panic!("kill after {after} operations: {error}"),
        }
        assert_eq!(handle.join().await.status, Status::Killed);
        engine.wait_idle().await;
        assert_all_closed(&engine, &format!("kill after {after} operations"));
        if !was_sent {
            break;
        }
    }
    assert!(refused > 0 && killed > 1, "{refused} refused, {killed} killed");
}

/// The caller of a start, such as a request that its client cancelled, is dropped after any number of polls.
#[tokio::test]
async fn root_whose_caller_is_dropped_during_the_start_runs_to_its_end_or_leaves_nothing() {
    let (mut ended, mut absent) = (0, 0);
    for polls in 0..MAX_OPERATIONS {
        let (lab, _disk) = lab(Duration::ZERO);
        let engine = lab.engine();
        let compiled = lab.compile("child");
        let is_dropped = {
            let mut start = std::pin::pin!(engine.start(&compiled, StartOptions::default()));
            let mut left = polls;
            let dropped = std::future::poll_fn(|context| {
                if left == 0 {
                    return std::task::Poll::Ready(true);
                }
                left -= 1;
                start.as_mut().poll(context).map(|started| {
                    started.unwrap();
                    false
                })
            });
            dropped.await
        };
        engine.wait_idle().await;
        assert_all_closed(&engine, &format!("dropped after {polls} polls"));
        *(if engine.threads().list().unwrap().is_empty() { &mut absent } else { &mut ended }) += 1;
        if !is_dropped {
            break;
        }
    }
    assert!(ended > 0 && absent > 0, "{ended} ended, {absent} absent");
}

/// The caller of a recovery, such as a request that its client cancelled, is dropped after any number of polls.
#[tokio::test]
async fn recovery_whose_caller_is_dropped_runs_the_thread_to_its_end() {
    for polls in 0..MAX_OPERATIONS {
        let (lab, disk) = lab(ENDLESS);
        let process = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (first, compiled) = (lab.engine(), lab.compile("child"));
        let started = std::thread::spawn(move || {
            let id = process.block_on(async {
                let handle = first.start(&compiled, StartOptions::default()).await.unwrap();
                while first.threads().transcript(&handle.thread_id).map_or(0, |events| events.len()) < 5 {
                    tokio::task::yield_now().await;
                }
                handle.thread_id.clone()
            });
            // The process is killed: nothing of it is dropped.
            process.shutdown_background();
            std::mem::forget(first);
            id
        });
        let thread = started.join().unwrap();
        disk.restart(Survival::All);
        let mut lab = lab;
        lab.model = Lab::new(|_| Ok(reply_text("done"))).model;
        let engine = lab.engine();
        let is_dropped = {
            let mut recovery = std::pin::pin!(engine.recover(&thread));
            let mut left = polls;
            let dropped = std::future::poll_fn(|context| {
                if left == 0 {
                    return std::task::Poll::Ready(true);
                }
                left -= 1;
                recovery.as_mut().poll(context).map(|recovered| {
                    recovered.unwrap();
                    false
                })
            });
            dropped.await
        };
        engine.wait_idle().await;
        if polls > 0 {
            assert_all_closed(&engine, &format!("dropped after {polls} polls"));
        }
        if !is_dropped {
            return;
        }
    }
    panic!("the recovery never ends");
}
