//! Where the run stands: from the last recorded position along the plan's edges, through every step whose outcome the
//! state already tells, to the first that needs something done or written. No successor is named here: the graph is asked.

use rye_compiler::plan::{Node, Outcome, Plan};

use super::effect::Effect;
use super::facts;
use super::state::{Position, State};
use super::step;
use crate::event::{Ended, EventBody};
use crate::thread::{RunError, Status};

/// What a step needs.
#[derive(Debug)]
pub(super) enum Decision {
    /// Something is to be done.
    Do(Effect),
    /// Something is to be written; nothing is to be done.
    Write(Vec<EventBody>),
    /// The state tells the outcome.
    Gives(Outcome),
}

/// What the step that the run stands at needs.
#[derive(Debug)]
pub(super) struct Standing {
    pub decision: Decision,
}

/// What the steps look at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk<'a> {
    pub plan: &'a Plan,
    pub state: &'a State,
    pub now: i64,
    /// The last edge that was taken.
    pub from: (Node, Outcome),
    /// The first call of the group that comes next or is under way.
    pub group_start: usize,
}

/// More steps than any sound plan takes without doing or writing something.
const MOST_STEPS: usize = 256;

pub(super) fn next(plan: &Plan, state: &State) -> Effect {
    match standing(plan, state, state.clock.now).decision {
        Decision::Do(effect) => effect,
        Decision::Write(_) | Decision::Gives(_) => Effect::Record,
    }
}

/// `now` may be later than the last event: a wait ends by the time alone.
pub(super) fn standing(plan: &Plan, state: &State, now: i64) -> Standing {
    if let Some(ended) = &state.ended {
        let (settle, cancel) = (state.unsettled.clone(), step::end_with_it(plan, state, ended.status));
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
            let outcome = step::outcome_now(state, node, outcome);
            ((node, outcome), plan.graph.next(node, outcome))
        }
    };
    let mut walk = Walk { plan, state, now, from, group_start: state.calls.start };
    if let Some(written) = step::interrupted(state) {
        return Standing { decision: Decision::Write(written) };
    }
    if step::must_leave(state) {
        return leave(walk);
    }
    if let Some(seen) = state.observations.front() {
        let mut facts = facts::common(plan, state);
        facts.extend(seen.facts.clone());
        let decision = Decision::Do(step::hook_run(plan, state, seen.point, Some(seen.seq.to_string()), facts));
        return Standing { decision };
    }
    let Some(mut node) = start else { return lost(walk) };
    for _ in 0..MOST_STEPS {
        match step::decide(&walk, node) {
            Decision::Gives(outcome) => {
                if (node, outcome) == (Node::Guard, Outcome::More) {
                    walk.group_start = state.calls.end;
                }
                walk.from = (node, outcome);
                let Some(following) = plan.graph.next(node, outcome) else { return lost(walk) };
                node = following;
            }
            decision @ (Decision::Do(_) | Decision::Write(_)) => return Standing { decision },
        }
    }
    lost(walk)
}

/// Along the edge of a cancellation, wherever the run stands.
fn leave(mut walk: Walk<'_>) -> Standing {
    walk.from = (Node::Inbox, Outcome::Cancelled);
    let Some(mut node) = walk.plan.graph.next(Node::Inbox, Outcome::Cancelled) else { return lost(walk) };
    // A plan may put steps between the cancellation and the finish; none of them may begin anything new.
    for _ in 0..MOST_STEPS {
        if node == Node::Finish {
            return Standing { decision: step::finish(&walk) };
        }
        match step::decide(&walk, node) {
            Decision::Gives(outcome) => match walk.plan.graph.next(node, outcome) {
                Some(following) => {
                    walk.from = (node, outcome);
                    node = following;
                }
                None => return lost(walk),
            },
            decision @ (Decision::Do(_) | Decision::Write(_)) => return Standing { decision },
        }
    }
    lost(walk)
}

/// A graph that breaks its laws: the thread ends and says where.
fn lost(walk: Walk<'_>) -> Standing {
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
