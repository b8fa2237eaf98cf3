//! Hooks whose tool never returns, at every hook point of a run: the duration limit of the thread bounds each of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use super::{Lab, calls, permit, reply_text, thread};
use crate::clock::SystemClock;
use crate::engine::Engine;
use crate::event::ControlMessage;
use crate::exchange::{CallError, FailedStage};
use crate::thread::Status;

/// The hook points of a run at which a hook can execute a tool.
const POINTS: [&str; 17] = [
    "before_agent_start",
    "context",
    "tool_call",
    "tool_execution_start",
    "tool_execution_end",
    "tool_result",
    "after_step",
    "limit",
    "error",
    "agent_end",
    "after_complete",
    "cognition_in",
    "cognition_out",
    "tool_call_result",
    "thread_completed",
    "thread_error",
    "thread_cancelled",
];
/// Maximum time of a run, far above its duration limit, and far below the time of a hook that nothing ends.
const MAX_RUN: Duration = Duration::from_mins(3);

/// Runs a thread for each hook point. Each thread has a hook that executes the shell command.
async fn run_with_hooks(command: &str) {
    let lab = Lab::new(|request| match (request.cue.directive.as_str(), request.cue.turn) {
        ("test/error" | "test/thread_error", _) => Err(CallError::new(FailedStage::Setup, "no model")),
        (_, Some(0)) => Ok(calls(&[("rye_file_system_read", json!({"path": "a.txt"}))])),
        _ => Ok(reply_text("done")),
    });
    lab.write("a.txt", "a\n");
    let argv = json!(["bash", "-c", command]);
    lab.write(
        ".ai/tools/test/hangs.yaml",
        &format!("description: Hangs.\nversion: 1.0.0\nkind: command\ncommand: {argv}\ntimeout_seconds: 600\n"),
    );
    let permitted = permit(&["rye.file-system.read", "test.hangs"]);
    for point in POINTS {
        let hook = format!(
            "<hooks><hook id=\"hang_at_{point}\" event=\"{point}\"><action primary=\"execute\" item_type=\"tool\" \
             item_id=\"test/hangs\"/></hook></hooks>"
        );
        let turns = if point == "limit" { 1 } else { 5 };
        let limits = format!("<limits turns=\"{turns}\" duration_seconds=\"3\"/>");
        lab.directive(point, &format!("{limits}{hook}{permitted}"), "");
    }
    let mut options = lab.options();
    options.clock = Arc::new(SystemClock);
    let engine = Engine::open(&lab.path(), options).unwrap();
    let began = Instant::now();
    let mut running = JoinSet::new();
    for point in POINTS {
        let handle = lab.start(&engine, point).await;
        if point == "thread_cancelled" {
            handle.send(ControlMessage::Cancel);
        }
        running.spawn(async move { (point, handle.join().await) });
    }
    while let Some(ended) = running.join_next().await {
        let (point, result) = ended.unwrap();
        assert!(began.elapsed() < MAX_RUN, "{point}: {:?}", began.elapsed());
        assert!(!matches!(result.status, Status::Created | Status::Running), "{point}: {result:?}");
        let events = engine.threads().transcript(&thread(&result)).unwrap();
        let id = format!("hang_at_{point}");
        let has_run = events.iter().any(|event| serde_json::to_string(&event.body).unwrap().contains(&id));
        // On a loaded machine, the duration can pass before the thread reaches the point.
        let is_over = result.error.as_ref().is_some_and(|error| error.code == "duration_seconds_exceeded");
        assert!(has_run || is_over, "{point}: {result:?}");
    }
    engine.wait_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hook_that_sleeps_ends_with_the_duration_of_its_thread() {
    run_with_hooks("sleep 600").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hook_whose_descendant_keeps_the_output_open_ends_with_its_program() {
    run_with_hooks("sleep 600 & exit 0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hook_that_floods_its_output_ends_with_the_duration_of_its_thread() {
    run_with_hooks("exec yes").await;
}
