//! The walk along the plan's edges: from the last recorded position, through every step whose outcome the state
//! determines, to the first step that needs an effect or a write. Successors come from the graph alone.

use rye_compiler::plan::{Node, Outcome, Plan};

use super::effect::Effect;
use super::facts;
use super::state::{Position, State};
use super::step;
use crate::event::{Ended, EventBody};
use crate::thread::{RunError, Status};

/// The result of evaluating a step.
#[derive(Debug)]
pub(super) enum Decision {
    /// The driver has to perform an effect.
    Do(Effect),
    /// Events have to be written; no effect is needed.
    Write(Vec<EventBody>),
    /// The state determines the outcome.
    Gives(Outcome),
}

/// The decision at the step that the run has reached.
#[derive(Debug)]
pub(super) struct Standing {
    pub decision: Decision,
}

/// The input of a step's evaluation.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalkContext<'a> {
    pub plan: &'a Plan,
    pub state: &'a State,
    pub now: i64,
    /// The last edge that was taken.
    pub from: (Node, Outcome),
    /// Index of the first call of the current or next group.
    pub group_start: usize,
}

/// Maximum number of steps without an effect or a write. No valid plan reaches it.
const MAX_IDLE_STEPS: usize = 256;

pub(super) fn next(plan: &Plan, state: &State) -> Effect {
    match standing(plan, state, state.clock.now).decision {
        Decision::Do(effect) => effect,
        Decision::Write(_) | Decision::Gives(_) => Effect::Record,
    }
}

/// Walks to the first step that needs an effect or a write. `now` may be later than the last event, because a wait ends
/// by time alone.
pub(super) fn standing(plan: &Plan, state: &State, now: i64) -> Standing {
    if let Some(ended) = &state.ended {
        let (settle, cancel) = (state.unsettled.clone(), step::children_to_cancel(plan, state, ended.status));
        let leaves = (ended.status == Status::Continued).then(|| state.left());
        let done = Effect::Done { settle, ended: ended.clone(), cancel, leaves };
        return Standing { decision: Decision::Do(done) };
    }
    if let Some(owed) = &state.owed {
        return Standing { decision: Decision::Write(vec![step::settlement(plan, owed)]) };
    }
    let (from, start) = match state.position {
        Position::At(node) => ((node, Outcome::Ready), Some(node)),
        Position::After(node, outcome) => {
            let outcome = step::current_outcome(state, node, outcome);
            ((node, outcome), plan.graph.next(node, outcome))
        }
    };
    let mut walk = WalkContext { plan, state, now, from, group_start: state.calls.start };
    if let Some(written) = step::interrupted(state) {
        return Standing { decision: Decision::Write(written) };
    }
    if step::is_ending(state) {
        return exit_early(walk);
    }
    if let Some(seen) = state.observations.front() {
        let mut facts = facts::common(plan, state);
        facts.extend(seen.facts.clone());
        let decision = Decision::Do(step::hook_run(plan, state, seen.point, Some(seen.seq.to_string()), facts));
        return Standing { decision };
    }
    let Some(mut node) = start else { return end_without_edge(walk) };
    for _ in 0..MAX_IDLE_STEPS {
        match step::decide(&walk, node) {
            Decision::Gives(outcome) => {
                if (node, outcome) == (Node::Guard, Outcome::More) {
                    walk.group_start = state.calls.end;
                }
                walk.from = (node, outcome);
                let Some(following) = plan.graph.next(node, outcome) else { return end_without_edge(walk) };
                node = following;
            }
            decision @ (Decision::Do(_) | Decision::Write(_)) => return Standing { decision },
        }
    }
    end_without_edge(walk)
}

/// Follows the edge of a cancellation, from any position.
fn exit_early(mut walk: WalkContext<'_>) -> Standing {
    walk.from = (Node::Inbox, Outcome::Cancelled);
    let Some(mut node) = walk.plan.graph.next(Node::Inbox, Outcome::Cancelled) else { return end_without_edge(walk) };
    // The graph may have steps between the cancellation and the finish.
    for _ in 0..MAX_IDLE_STEPS {
        if node == Node::Finish {
            return Standing { decision: step::finish(&walk) };
        }
        match step::decide(&walk, node) {
            Decision::Gives(outcome) => match walk.plan.graph.next(node, outcome) {
                Some(following) => {
                    walk.from = (node, outcome);
                    node = following;
                }
                None => return end_without_edge(walk),
            },
            decision @ (Decision::Do(_) | Decision::Write(_)) => return Standing { decision },
        }
    }
    end_without_edge(walk)
}

/// Ends the thread with an error that names the missing edge. A valid graph has an edge for every outcome.
fn end_without_edge(walk: WalkContext<'_>) -> Standing {
    let (node, outcome) = walk.from;
    let ended = Ended {
        status: Status::Error,
        result: walk.state.last_text(),
        outputs: None,
        missing: Vec::new(),
        error: Some(RunError {
            code: "plan_unsound".into(),
            message: format!("the plan's graph does not lead on from `{node}` after `{outcome}`"),
        }),
        cost: walk.state.cost,
    };
    Standing { decision: Decision::Write(vec![EventBody::Ended(Box::new(ended))]) }
}
