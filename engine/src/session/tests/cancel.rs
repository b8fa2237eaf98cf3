//! Tests of cancellation during a tool call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::async_tools::WAITS;
use super::{Lab, Status, calls, reply_text, thread};
use crate::BoxFuture;
use crate::engine::Engine;
use crate::event::{ControlMessage, EventBody};
use crate::tool::cancellation::CANCEL_GRACE;
use crate::tool::process::TERMINATION_GRACE;
use crate::tool::{Invocation, Tool, ToolOutcome};

const BASH: &str = "<permissions><execute><tool>rye.bash.bash</tool></execute><acknowledge risk=\"elevated\">test</acknowledge></permissions>";

/// A wait after which a shell has certainly started.
const CANCEL_DELAY: Duration = Duration::from_millis(200);

fn lab(command: &'static str) -> Lab {
    let lab = Lab::new(move |request| {
        Ok(match request.cue.turn.unwrap() {
            0 => calls(&[("rye_bash_bash", json!({"command": command}))]),
            _ => reply_text("done"),
        })
    });
    lab.directive("wait", BASH, "");
    lab
}

/// Cancels a thread when its tool has run for `after`. Returns the time until the thread ended, and the result of the
/// call.
async fn cancelled(lab: &Lab, after: Duration) -> (Duration, String) {
    let engine = lab.engine();
    let mut handle = lab.start(&engine, "wait").await;
    while let Some(live) = handle.live.next().await {
        if let crate::live::StreamEvent::Event { event, .. } = &live
            && matches!(event.body, EventBody::ToolStarted(_))
        {
            break;
        }
    }
    tokio::time::sleep(after).await;
    let began = Instant::now();
    handle.send(ControlMessage::Cancel);
    let result = handle.join().await;
    assert_eq!(result.status, Status::Cancelled, "{result:?}");
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    let output = events.into_iter().find_map(|e| match e.body {
        EventBody::ToolCallResult(result) => Some(result.content),
        _ => None,
    });
    (began.elapsed(), output.unwrap())
}

#[tokio::test]
async fn cancel_sends_sigterm_to_a_long_tool() {
    let (took, output) =
        cancelled(&lab("trap 'echo bye; exit 0' TERM; echo begun; sleep 60 & wait"), CANCEL_DELAY).await;
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(output.contains("begun\nbye"), "{output}");
    assert!(output.contains("[stopped: the thread was cancelled]"), "{output}");
}

#[tokio::test]
async fn cancel_kills_a_tool_that_ignores_sigterm() {
    let (took, output) = cancelled(&lab("trap '' TERM; while true; do sleep 1; done"), CANCEL_DELAY).await;
    assert!((Duration::from_secs(5)..Duration::from_secs(12)).contains(&took), "{took:?}");
    assert!(output.contains("[stopped: the thread was cancelled]"), "{output}");
}

/// The transcript has `tool_started`, but the tool is still being prepared.
#[tokio::test]
async fn cancel_reaches_a_tool_that_is_still_starting() {
    for _ in 0..3 {
        let (took, output) = cancelled(&lab("sleep 60"), Duration::ZERO).await;
        assert!(took < Duration::from_secs(10), "{took:?}");
        assert!(output.contains("[stopped: the thread was cancelled]"), "{output}");
    }
}

#[tokio::test]
async fn cancel_lets_a_short_tool_finish() {
    let (took, output) = cancelled(&lab("sleep 1; echo whole"), CANCEL_DELAY).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(output, "whole\n[exit code 0]");
}

/// A call that ignores the cancellation, as the call of an MCP server does.
struct EndlessTool;

impl Tool for EndlessTool {
    fn run(&self, _: Invocation) -> BoxFuture<'_, ToolOutcome> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn cancelled_call_without_a_program_ends_after_its_grace_period() {
    let lab = Lab::new(|request| {
        Ok(match request.cue.turn.unwrap() {
            0 => calls(&[("test_endless", json!({}))]),
            _ => reply_text("done"),
        })
    });
    lab.write(".ai/tools/test/endless.yaml", &WAITS.replace("test_waits", "test_endless"));
    lab.directive("wait", "<permissions><execute><tool>test.*</tool></execute></permissions>", "");
    let mut options = lab.options();
    options.tools.add("test_endless", |_| Arc::new(EndlessTool));
    let engine = Engine::open(&lab.path(), options).unwrap();
    let mut handle = lab.start(&engine, "wait").await;
    while let Some(live) = handle.live.next().await {
        if let crate::live::StreamEvent::Event { event, .. } = &live
            && matches!(event.body, EventBody::ToolStarted(_))
        {
            break;
        }
    }
    let began = Instant::now();
    handle.send(ControlMessage::Cancel);
    let result = handle.join().await;
    assert_eq!(result.status, Status::Cancelled, "{result:?}");
    let took = began.elapsed();
    // A program would have the termination grace period twice.
    assert!((CANCEL_GRACE..CANCEL_GRACE + 2 * TERMINATION_GRACE).contains(&took), "{took:?}");
}
