//! Steps for the tool calls of a reply: hooks, gate, tools, guard, structured return. Calls run in the order of the
//! reply. Adjacent calls that may run in parallel form a group.

use std::ops::Range;

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::{Node, Outcome};
use serde_json::Value;

use super::super::effect::{AwaitedChild, CallToApprove, Effect, SpawnChild};
use super::super::gate::{self, GateDecision};
use super::super::outputs;
use super::super::state::{CallPhase, CallState, RunPosition, ThreadState};
use super::super::state_store::{self, StateOp};
use super::super::walk::{StepResult, WalkContext};
use super::{has_hooks, model, run_hooks};
use crate::event::{Approval, ChildIntended, EventBody, ResultKind, ToolCallResult, ToolStarted};

/// Returns the group of calls that runs now, as a range of indexes into the calls of the reply. If no group runs,
/// returns the next group.
fn group(walk: &WalkContext<'_>) -> Range<usize> {
    if walk.state.position == RunPosition::At(Node::Tools) {
        return walk.state.calls.start..walk.state.calls.end;
    }
    gate::next_call_group(walk.plan, walk.state, walk.group_start)
}

fn waiting<'a>(state: &'a ThreadState, group: &Range<usize>) -> impl Iterator<Item = (usize, &'a CallState)> + use<'a> {
    in_group(state, group).filter(|(_, call)| call.phase == CallPhase::Waiting)
}

fn in_group<'a>(
    state: &'a ThreadState,
    group: &Range<usize>,
) -> impl Iterator<Item = (usize, &'a CallState)> + use<'a> {
    let group = group.clone();
    state.calls.list.iter().enumerate().filter(move |(index, _)| group.contains(index))
}

/// Runs the `tool_call` hooks of the next call of the current group whose hooks have not run. Returns the outcome
/// `Pass` if there is no such call, or if a steering message waits.
pub(super) fn before_gate(walk: &WalkContext<'_>) -> StepResult {
    if !walk.state.mailbox.steering.is_empty() {
        return StepResult::Finished(Outcome::Pass);
    }
    let group = group(walk);
    match waiting(walk.state, &group).find(|(_, call)| !call.has_run_hooks) {
        Some((index, _)) => run_hooks(walk, HookPoint::ToolCall, Some(index.to_string())),
        None => StepResult::Finished(Outcome::Pass),
    }
}

pub(super) fn gate(walk: &WalkContext<'_>) -> StepResult {
    let state = walk.state;
    let group = group(walk);
    if waiting(state, &group).next().is_none() {
        return StepResult::Finished(Outcome::Denied);
    }
    if !state.mailbox.steering.is_empty() {
        let rest = group.start..state.calls.list.len();
        let skip = |(index, call): (usize, &CallState)| {
            let text = "Skipped due to queued user message".to_owned();
            answer_event(state, index, rest.end, call, ResultKind::Skipped, text)
        };
        return StepResult::Write(waiting(state, &rest).map(skip).collect());
    }
    let mut answers = Vec::new();
    for (index, call) in waiting(state, &group) {
        match gate::authorize(walk.plan, state, index) {
            GateDecision::Run(_) | GateDecision::Spawn(_) => return StepResult::Finished(Outcome::Allowed),
            GateDecision::Keep(keep) => {
                answers.extend(state_op_events(state, index, group.end, call, keep.into_inner()));
            }
            GateDecision::Return => return StepResult::Finished(Outcome::Returns),
            GateDecision::NeedsApproval { .. } => return StepResult::Finished(Outcome::Asks),
            GateDecision::Answer { why, text } => answers.push(answer_event(state, index, group.end, call, why, text)),
        }
    }
    StepResult::Write(answers)
}

/// Returns the approval request for the first waiting call of the current group that needs an approval; `None` if no
/// call needs an approval.
pub(super) fn call_to_approve(walk: &WalkContext<'_>) -> Option<CallToApprove> {
    let state = walk.state;
    let request = |index| match gate::authorize(walk.plan, state, index) {
        GateDecision::NeedsApproval { capability, tool, parameters } => Some((capability, tool, parameters)),
        GateDecision::Run(_)
        | GateDecision::Spawn(_)
        | GateDecision::Keep(_)
        | GateDecision::Return
        | GateDecision::Answer { .. } => None,
    };
    let group = group(walk);
    let (call, (capability, tool, parameters)) =
        waiting(state, &group).find_map(|(index, call)| Some((call, request(index)?)))?;
    let earlier = state.calls.list.iter().filter(|call| call.answer.is_some()).count();
    let all = 0..state.calls.list.len();
    let open = waiting(state, &all).filter(|(index, call)| call.answer.is_none() && request(*index).is_some()).count();
    let input = call.call.input.clone();
    Some(CallToApprove { capability, tool, parameters, input, number: earlier + 1, count: earlier + open })
}

pub(super) fn tools(walk: &WalkContext<'_>) -> StepResult {
    let state = walk.state;
    let group = group(walk);
    let start_events = begin(walk, &group);
    if !start_events.is_empty() {
        return StepResult::Write(start_events);
    }
    // A detached child may exist although its call has no result, after a crash for example. Repeating the spawn then
    // returns the result.
    let unmade = |call: &CallState| match call.phase {
        CallPhase::Spawning(spawn) => state.children.get(&spawn).is_some_and(|c| c.thread_id.is_none() || c.detached),
        CallPhase::Waiting | CallPhase::Started | CallPhase::Answered => false,
    };
    // A tool call needs no reservation.
    let is_tool = |call: &CallState| match call.phase {
        CallPhase::Spawning(spawn) => state.children.get(&spawn).is_some_and(|child| child.tool),
        CallPhase::Waiting | CallPhase::Started | CallPhase::Answered => false,
    };
    let siblings = in_group(state, &group).filter(|(_, call)| unmade(call) && !is_tool(call)).count() as u64;
    let turn_reserve = if siblings > 0 { model::turn_worst_case(walk.plan, state) } else { 0 };
    let prompt_spend = state.prompt_spend();
    let (mut run, mut made, mut awaited) = (Vec::new(), Vec::new(), Vec::new());
    for (index, call) in in_group(state, &group) {
        match (call.phase, gate::authorize(walk.plan, state, index)) {
            (CallPhase::Started, GateDecision::Run(allowed)) => run.push(allowed),
            (CallPhase::Spawning(spawn), GateDecision::Spawn(allowed)) => {
                if unmade(call) {
                    let wanted = |start| {
                        let child = intended(state, spawn, index, group.end, call, start);
                        Box::new(SpawnChild { child, siblings, turn_reserve, prompt_spend })
                    };
                    made.push(allowed.map(wanted));
                } else if let Some(thread_id) = state.children.get(&spawn).and_then(|c| c.thread_id.clone()) {
                    awaited.push(AwaitedChild { spawn, thread_id });
                }
            }
            _ => {}
        }
    }
    if !made.is_empty() {
        return StepResult::Do(Effect::Spawn(made));
    }
    if !run.is_empty() {
        return StepResult::Do(Effect::RunTools(run));
    }
    if !awaited.is_empty() {
        return StepResult::Do(Effect::Await(awaited));
    }
    StepResult::Finished(Outcome::Finished)
}

/// Returns the events that precede the run of a group of calls: the starts of calls, the records of children to create,
/// and the answers to calls that do not run.
fn begin(walk: &WalkContext<'_>, group: &Range<usize>) -> Vec<EventBody> {
    let state = walk.state;
    let mut events = Vec::new();
    let mut spawns = 0;
    for (index, call) in waiting(state, group) {
        let refused = |why, text| answer_event(state, index, group.end, call, why, text);
        match gate::authorize(walk.plan, state, index) {
            GateDecision::Run(allowed) => events.push(EventBody::ToolStarted(ToolStarted {
                turn: state.cost.turns,
                index,
                group_end: group.end,
                call_id: call.call.id.clone(),
                name: call.call.name.clone(),
                capability: allowed.capability().to_owned(),
                idempotent: allowed.idempotent,
            })),
            GateDecision::Spawn(allowed) => {
                if let Some((limit, text)) = model::spawn_refusal(state, spawns, allowed.tool) {
                    events.extend([limit, refused(ResultKind::Refused, text)]);
                    continue;
                }
                let spawn = state.next_spawn() + spawns;
                spawns += 1;
                let child = intended(state, spawn, index, group.end, call, allowed.into_inner());
                events.push(EventBody::ChildIntended(child));
            }
            GateDecision::Keep(keep) => {
                events.extend(state_op_events(state, index, group.end, call, keep.into_inner()));
            }
            GateDecision::Answer { why, text } => events.push(refused(why, text)),
            GateDecision::NeedsApproval { capability, .. } => {
                let text = format!("permission denied: {capability} needs an approval");
                events.push(refused(ResultKind::Denied { capability }, text));
            }
            GateDecision::Return => {
                events.push(refused(ResultKind::Refused, "this directive declares no outputs to return".into()));
            }
        }
    }
    events
}

fn intended(
    state: &ThreadState,
    spawn: u64,
    index: usize,
    group_end: usize,
    call: &CallState,
    start: gate::ChildStart,
) -> ChildIntended {
    ChildIntended {
        spawn,
        turn: state.cost.turns,
        index,
        group_end,
        call_id: call.call.id.clone(),
        directive: start.directive.to_string(),
        inputs: start.inputs,
        model: start.model,
        limit_overrides: start.limit_overrides,
        detached: start.detached,
        tool: start.tool,
    }
}

/// Returns the events of an operation on the thread's store of values: the result of the call, preceded by the write if
/// there is one.
fn state_op_events(
    state: &ThreadState,
    index: usize,
    group_end: usize,
    call: &CallState,
    requested: StateOp,
) -> Vec<EventBody> {
    match state_store::apply_state_op(&state.store, requested) {
        Ok((result, set)) => {
            let text = rye_compiler::semantics::value::inline_text(&result).into_owned();
            let answer = answer_event(state, index, group_end, call, ResultKind::Ran, text);
            set.map(EventBody::StateSet).into_iter().chain([answer]).collect()
        }
        Err(text) => vec![answer_event(state, index, group_end, call, ResultKind::Refused, text)],
    }
}

/// Runs the `tool_result` and `error` hooks on the results of the current group of calls. After these hooks, continues
/// with the next group, or ends the calls of the reply. If the graph leads here before the calls of the group have run,
/// refuses these calls.
pub(super) fn guard(walk: &WalkContext<'_>) -> StepResult {
    let (plan, state) = (walk.plan, walk.state);
    let fresh = group(walk);
    let unrun = match walk.from {
        (Node::Gate, Outcome::Allowed | Outcome::Asks | Outcome::Returns) => true,
        (Node::Ask(_), outcome) => outcome == Outcome::Refused,
        _ => false,
    };
    if unrun && waiting(state, &fresh).next().is_some() {
        // The calls cannot run: their approval was refused, or the plan has no step that runs them or requests their
        // approval.
        return StepResult::Write(refuse_all(walk, &fresh));
    }
    let done = state.calls.start..state.calls.end;
    for (index, call) in in_group(state, &done) {
        let Some(result) = &call.result else { continue };
        // A call that was blocked, denied or skipped has no tool result that hooks could process.
        if !result.ran {
            continue;
        }
        let mut points = vec![HookPoint::ToolResult];
        if result.is_error {
            points.push(HookPoint::Error);
        }
        if let Some(point) = points.into_iter().find(|p| has_hooks(plan, *p) && !result.seen.contains(p)) {
            return run_hooks(walk, point, Some(index.to_string()));
        }
    }
    StepResult::Finished(if done.end < state.calls.list.len() { Outcome::More } else { Outcome::Done })
}

fn refuse_all(walk: &WalkContext<'_>, group: &Range<usize>) -> Vec<EventBody> {
    let refuse = |(index, call): (usize, &CallState)| {
        let (why, text) = match gate::authorize(walk.plan, walk.state, index) {
            GateDecision::Answer { why, text } => (why, text),
            GateDecision::NeedsApproval { capability, .. } => {
                if let Some(answer) = call.answer {
                    let who = if answer == Approval::Refused { "the user" } else { "the headless policy" };
                    let text = format!("permission denied: {capability} was not approved: {who} denied the call");
                    (ResultKind::Unapproved { capability, answer }, text)
                } else {
                    let text = format!("permission denied: {capability} needs an approval");
                    (ResultKind::Denied { capability }, text)
                }
            }
            GateDecision::Run(_) | GateDecision::Spawn(_) | GateDecision::Keep(_) | GateDecision::Return => {
                (ResultKind::Refused, "this plan cannot run any call".to_owned())
            }
        };
        answer_event(walk.state, index, group.end, call, why, text)
    };
    waiting(walk.state, group).map(refuse).collect()
}

/// Validates a `rye_directive_return` call against the declared outputs, and returns the event with the result of the
/// call.
pub(super) fn returned(walk: &WalkContext<'_>) -> StepResult {
    let state = walk.state;
    let group = group(walk);
    let Some((index, call)) = waiting(state, &group).next() else { return StepResult::Finished(Outcome::Incomplete) };
    let (why, text) = outputs::check_return(&walk.plan.interface.outputs, &call.call.input);
    StepResult::Write(vec![answer_event(state, index, group.end, call, why, text)])
}

/// Builds the result event of a call that no tool answered.
pub(in crate::machine) fn answer_event(
    state: &ThreadState,
    index: usize,
    group_end: usize,
    call: &CallState,
    why: ResultKind,
    text: String,
) -> EventBody {
    let is_error = match why {
        ResultKind::Ran | ResultKind::Returned { .. } => false,
        ResultKind::Denied { .. }
        | ResultKind::Unapproved { .. }
        | ResultKind::Blocked
        | ResultKind::Refused
        | ResultKind::Skipped
        | ResultKind::Interrupted
        | ResultKind::Incomplete { .. } => true,
    };
    EventBody::ToolCallResult(Box::new(ToolCallResult {
        turn: state.cost.turns,
        index,
        group_end,
        call_id: call.call.id.clone(),
        name: call.call.name.clone(),
        why,
        bytes: text.len() as u64,
        content: text,
        is_error,
        details: Value::Null,
        object: None,
        duration_ms: 0,
    }))
}
