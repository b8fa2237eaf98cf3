//! The walk along the plan's edges: from the last recorded position, through every step whose outcome the state
//! determines, to the first step that needs an effect or a write. The graph alone determines the successors.

use std::sync::Arc;

use rye_compiler::plan::{Node, Outcome, Plan};

use super::effect::{ContinuationRow, Effect};
use super::facts;
use super::screen;
use super::state::{RunPosition, ThreadState};
use super::step;
use crate::event::{Ended, EventBody};
use crate::thread::{RunError, Status};

/// The result of evaluating one step of the plan's graph.
#[derive(Debug)]
pub(super) enum StepResult {
    /// The driver has to perform an effect.
    Do(Effect),
    /// Events have to be written, and no effect is needed.
    Write(Vec<EventBody>),
    /// The step needs neither an effect nor an event. The state determines the outcome, which selects the next step.
    Finished(Outcome),
}

/// The result of a walk through the plan's graph, which is the result of the last step of the walk.
#[derive(Debug)]
pub(super) struct WalkResult {
    pub decision: StepResult,
}

/// The input of a step's evaluation.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalkContext<'a> {
    pub plan: &'a Plan,
    pub state: &'a ThreadState,
    pub now: i64,
    /// The last edge that the walk took: the node where the edge starts, and the outcome that selected the edge.
    pub from: (Node, Outcome),
    /// Index of the first call of the current or next group (calls that run together) in the list of calls.
    pub group_start: usize,
}

/// Maximum number of steps of a walk without an effect or a write. No valid plan reaches this maximum.
const MAX_IDLE_STEPS: usize = 256;

pub(super) fn next(plan: &Plan, state: &ThreadState) -> Effect {
    match advance(plan, state, state.clock.now).decision {
        StepResult::Do(effect) => effect,
        StepResult::Write(_) | StepResult::Finished(_) => Effect::Record,
    }
}

/// Walks to the first step that needs an effect or a write. `now` may be later than the time of the last event. The
/// walk compares `now` with the end of a wait, because the end of a wait is not recorded as an event.
pub(super) fn advance(plan: &Plan, state: &ThreadState, now: i64) -> WalkResult {
    if let Some(ended) = &state.ended {
        let (settle, cancel) = (state.unsettled.clone(), step::children_to_cancel(plan, state, ended.status));
        let plan_id = state.chat.as_ref().and_then(|chat| chat.successor.as_ref()?.plan.clone());
        let leaves = (ended.status == Status::Continued).then(|| {
            Box::new(ContinuationRow { limits: state.remaining_limits(), plan_id, withheld: state.held_by_continued() })
        });
        let done = Effect::Done { settle, ended: ended.clone(), cancel, leaves };
        return WalkResult { decision: StepResult::Do(done) };
    }
    if let Some(pending) = &state.pending_settlement {
        return WalkResult { decision: StepResult::Write(vec![step::settlement(plan, pending)]) };
    }
    let (from, start) = match state.position {
        RunPosition::At(node) => ((node, Outcome::Ready), Some(node)),
        RunPosition::After(node, outcome) => {
            let outcome = step::current_outcome(state, node, outcome);
            ((node, outcome), plan.graph.next(node, outcome))
        }
    };
    let mut walk = WalkContext { plan, state, now, from, group_start: state.calls.start };
    if let Some(written) = step::closing_events(state) {
        return WalkResult { decision: StepResult::Write(written) };
    }
    if let Some(written) = step::stop_prompt(plan, &walk) {
        return WalkResult { decision: StepResult::Write(written) };
    }
    if step::is_ending(state) {
        return exit_early(walk);
    }
    if let Some(seen) = state.observations.front() {
        let facts = facts::observed_facts(plan, state, seen);
        let decision = StepResult::Do(step::hook_run(plan, state, seen.point, Some(seen.seq.to_string()), facts));
        return WalkResult { decision };
    }
    if let Some(effect) = screen::screen_queued(plan, state) {
        return WalkResult { decision: StepResult::Do(effect) };
    }
    if let Some(accepted) = screen::accept_unchanged(plan, state) {
        return WalkResult { decision: StepResult::Write(vec![accepted]) };
    }
    let Some(mut node) = start else { return end_without_edge(walk) };
    for _ in 0..MAX_IDLE_STEPS {
        match step::evaluate_step(&walk, node) {
            StepResult::Finished(outcome) => {
                if (node, outcome) == (Node::Guard, Outcome::More) {
                    walk.group_start = state.calls.end;
                }
                walk.from = (node, outcome);
                let Some(following) = plan.graph.next(node, outcome) else { return end_without_edge(walk) };
                node = following;
            }
            StepResult::Do(effect) => return WalkResult { decision: within_deadline(&walk, effect) },
            StepResult::Write(events) => {
                let is_late = events.iter().any(starts_work) && remaining_ms(&walk) == Some(0);
                let events = if is_late { step::overdue_events(state, now, 0) } else { events };
                return WalkResult { decision: StepResult::Write(events) };
            }
        }
    }
    end_without_edge(walk)
}

/// Returns true if the event announces an attempt, a call or a child. Such work must not start after the deadline.
fn starts_work(event: &EventBody) -> bool {
    matches!(event, EventBody::AttemptIntended(_) | EventBody::ToolStarted(_) | EventBody::ChildIntended(_))
}

/// Returns the remaining duration of the thread, in milliseconds. `None` while the clock is paused. Also `None` for a
/// run of a single tool call, which has no duration limit, because the timeout of the tool bounds the run.
fn remaining_ms(walk: &WalkContext<'_>) -> Option<u64> {
    walk.state.remaining_ms_at(walk.now).filter(|_| walk.plan.graph.has(Node::Limits))
}

/// Returns the effect if it may start before the deadline of the thread. Otherwise returns the events that record the
/// reached duration limit. A sleep that would end after the deadline does not start either. Effects that only record,
/// run hooks or wait for the user start even after the deadline.
fn within_deadline(walk: &WalkContext<'_>, effect: Effect) -> StepResult {
    let (state, now) = (walk.state, walk.now);
    let Some(left) = remaining_ms(walk) else { return StepResult::Do(effect) };
    let delay = match &effect {
        Effect::Sleep { until } => u64::try_from(until.saturating_sub(now)).unwrap_or(0),
        Effect::Reserve(_) | Effect::CallModel { .. } | Effect::RunTools(_) | Effect::Spawn(_) | Effect::Await(_) => 0,
        // These effects run even after the deadline: hooks may still answer, and a user may raise the limit.
        Effect::Record
        | Effect::RunHooks(_)
        | Effect::RunCommand { .. }
        | Effect::Ask { .. }
        | Effect::Wait
        | Effect::Done { .. } => {
            return StepResult::Do(effect);
        }
    };
    if delay < left {
        return StepResult::Do(effect);
    }
    StepResult::Write(step::overdue_events(state, now, delay))
}

/// Ends a thread that was cancelled or killed, or that has another recorded reason to end. Walks the graph from the
/// outcome `Cancelled` of the node `Inbox` to the node `Finish`, whatever the position of the thread is.
fn exit_early(mut walk: WalkContext<'_>) -> WalkResult {
    walk.from = (Node::Inbox, Outcome::Cancelled);
    let Some(mut node) = walk.plan.graph.next(Node::Inbox, Outcome::Cancelled) else { return end_without_edge(walk) };
    // The graph may have steps between the cancellation and the finish.
    for _ in 0..MAX_IDLE_STEPS {
        if node == Node::Finish {
            return WalkResult { decision: step::finish(&walk) };
        }
        match step::evaluate_step(&walk, node) {
            StepResult::Finished(outcome) => match walk.plan.graph.next(node, outcome) {
                Some(following) => {
                    walk.from = (node, outcome);
                    node = following;
                }
                None => return end_without_edge(walk),
            },
            decision @ (StepResult::Do(_) | StepResult::Write(_)) => return WalkResult { decision },
        }
    }
    end_without_edge(walk)
}

/// Ends the thread with an error that names the missing edge. A valid graph has an edge for every outcome.
fn end_without_edge(walk: WalkContext<'_>) -> WalkResult {
    let (node, outcome) = walk.from;
    let ended = Ended {
        status: Status::Error,
        result: walk.state.last_text(),
        outputs: None,
        missing: Vec::new(),
        stop_reason: walk.state.stop_reason.clone(),
        unread: walk.state.conversation.unread.names(),
        error: Some(RunError {
            code: "plan_unsound".into(),
            message: format!("the plan's graph has no edge from `{node}` for outcome `{outcome}`"),
        }),
        cost: walk.state.final_cost(),
    };
    WalkResult { decision: StepResult::Write(vec![EventBody::Ended(Arc::new(ended))]) }
}
