//! The user of a scenario: inspects the state and takes the next action, in one process after another, until nothing is
//! left to do.

use std::sync::Arc;

use rye_compiler::compile::Compilation;

use super::super::Lab;
use super::external_world::{Outside, PLANS};
use super::scenarios::CrashScenario;
use crate::context::StartOptions;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::event::{ControlMessage, Event, EventBody, ThreadOrigin};
use crate::store::mailbox;
use crate::store::registry::Liveness;
use crate::thread::Status;
use crate::thread_id::ThreadId;

/// The next action of the user.
enum UserAction {
    Start,
    Recover(ThreadId, Vec<ControlMessage>),
    Resume(ThreadId, &'static str),
    Nothing,
}

/// Maximum number of actions, more than any scenario needs.
const MOST: usize = 24;

/// Runs one process until nothing is left to do or the process cannot continue. The process is the first one, or the
/// successor of a dead one.
pub async fn work(
    scenario: &'static CrashScenario,
    lab: &Lab,
    engine: &Engine,
    outside: &Outside,
) -> Result<(), String> {
    for _ in 0..MOST {
        let handle = match todo(scenario, engine, outside)? {
            UserAction::Start => engine.start(&plan(scenario, lab), StartOptions::default()).await,
            UserAction::Recover(thread, messages) => engine.recover_with(&thread, messages).await,
            UserAction::Resume(thread, message) => engine.resume(&thread, message).await,
            UserAction::Nothing => return Ok(()),
        };
        let handle = match handle {
            // The thread died before its first event, and has been finalized.
            Err(EngineError::NeverStarted { .. }) => continue,
            started => started.map_err(|error| error.to_string())?,
        };
        let result = handle.join().await;
        engine.wait_idle().await;
        if let Some(error) = result.error.filter(|error| error.code == "engine_failed") {
            return Err(error.message);
        }
    }
    Err("there is always something left to do".into())
}

fn plan(scenario: &'static CrashScenario, lab: &Lab) -> Arc<Compilation> {
    let mut plans = PLANS.lock().unwrap();
    Arc::clone(plans.entry(scenario.name).or_insert_with(|| Arc::new(lab.compile("root"))))
}

fn todo(scenario: &CrashScenario, engine: &Engine, outside: &Outside) -> Result<UserAction, String> {
    let threads = engine.threads();
    let listed = threads.list().map_err(|error| error.to_string())?;
    let record = |id: &ThreadId| threads.transcript(id).unwrap_or_default();
    let status = |id: &ThreadId| listed.iter().find(|listed| listed.row.id == *id).map(|listed| listed.row.status);
    // An ended thread without a transcript never started.
    let is_one = |id: &ThreadId| status(id).is_some_and(|status| !status.has_ended() || !record(id).is_empty());
    let roots = listed.iter().filter(|listed| listed.row.parent.is_none() && listed.row.continues.is_none());
    let Some(root) = roots.map(|listed| listed.row.id.clone()).find(is_one) else { return Ok(UserAction::Start) };
    let chain = threads.chain(&root).map_err(|error| error.to_string())?;
    let chain: Vec<ThreadId> = chain.into_iter().filter(is_one).collect();
    let last = chain.last().cloned().ok_or("an empty chain")?;
    let events = record(&last);
    if status(&last).is_some_and(|status| !status.has_ended() || status == Status::Continued) {
        return Ok(UserAction::Recover(last.clone(), messages(scenario, engine, outside, &last, &events)));
    }
    if status(&last) == Some(Status::Suspended) {
        return Ok(UserAction::Recover(last, (scenario.answers)()));
    }
    let went_on = chain.iter().filter(|id| {
        matches!(record(id).first().map(|event| &event.body), Some(EventBody::Opened(o)) if o.origin == ThreadOrigin::Resume)
    });
    if let Some(message) = scenario.resumes.get(went_on.count()) {
        return Ok(UserAction::Resume(last, message));
    }
    // The remaining orphans are children whose process died while it waited for their end.
    let orphan = listed.iter().find(|listed| listed.liveness == Liveness::Orphaned);
    Ok(orphan.map_or(UserAction::Nothing, |orphan| UserAction::Recover(orphan.row.id.clone(), Vec::new())))
}

/// Returns the control messages for a recovered thread: the messages of the user that the thread has not received.
fn messages(
    scenario: &CrashScenario,
    engine: &Engine,
    outside: &Outside,
    thread: &ThreadId,
    events: &[Event],
) -> Vec<ControlMessage> {
    let any = |test: &dyn Fn(&EventBody) -> bool| events.iter().any(|event| test(&event.body));
    let is_recorded =
        |wanted: &ControlMessage| any(&|body| matches!(body, EventBody::Mail(mail) if mail.message == *wanted));
    if any(&|body| matches!(body, EventBody::Ended(ended) if ended.status == Status::Suspended)) {
        return (scenario.answers)().into_iter().filter(|message| !is_recorded(message)).collect();
    }
    let started = any(&|body| matches!(body, EventBody::ToolStarted(started) if started.name == "test_cancel"));
    // A user who knows that the message was sent does not send it again.
    let sent = outside.lines().iter().any(|line| line == "message")
        || !mailbox::list(&**engine.disk(), thread).unwrap_or_default().is_empty();
    if started && !sent && !is_recorded(&ControlMessage::Cancel) { vec![ControlMessage::Cancel] } else { Vec::new() }
}
