//! Evaluation of the steps at the nodes of a plan's graph. The result of a step is an effect to perform, events to
//! write, or an outcome that selects the next node.

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::{ApprovalOrigin, Node, NudgePolicy, Outcome, PalettePrimary, Plan, PlanLimits};

use super::approval_raise::{ApprovalRaise, approval_raise};
use super::effect::{Effect, HookBounds, HookRun};
use super::facts;
use super::gate::remaining_ms;
use super::outputs;
use super::screen;
use super::state::{CallPhase, ThreadState, WaitingMessage};
use super::walk::{StepResult, WalkContext};
use crate::event::{
    ApprovalAsked, CognitionIn, EventBody, HookOutcome, LimitHit, MessageSource, ResultKind, Settled, ToolCallResult,
};
use crate::exchange::Usage;
use crate::message::Message;

mod calls;
mod chat;
mod end;
mod model;

pub(super) use calls::answer_event;
pub(crate) use chat::undelivered_prompt;
pub(super) use chat::{
    interrupted_continuation, interrupted_start, interruption_events, reported_settlement, stop_prompt,
};
pub(super) use end::{children_to_cancel, finish};
pub(super) use model::{settlement, turn_worst_case};

/// Evaluates the step at a node of the plan's graph.
pub(super) fn evaluate_step(walk: &WalkContext<'_>, node: Node) -> StepResult {
    match node {
        Node::Start => StepResult::Finished(Outcome::Ready),
        Node::Hooks(point) => hooks(walk, point),
        Node::Inbox => inbox(walk),
        Node::Idle => chat::idle(walk),
        Node::Limits => model::limits(walk),
        Node::Model => model::model(walk),
        Node::Nudge => nudge(walk),
        Node::Gate => calls::gate(walk),
        Node::Ask(origin) => request_approval(walk, origin),
        Node::Tools => calls::tools(walk),
        Node::Guard => calls::guard(walk),
        Node::Return => calls::returned(walk),
        Node::Context => model::context(walk),
        Node::Compact => model::compact(walk),
        Node::Handoff => StepResult::Finished(Outcome::Finished),
        Node::Finish => finish(walk),
    }
}

/// Returns the record of a compaction that the user interrupted before its model call. The record has the form of a
/// limit hit, with the code `interrupted`.
fn interrupted_compaction() -> LimitHit {
    LimitHit {
        at: Node::Compact,
        limit_code: "interrupted".into(),
        current_value: serde_json::Value::Null,
        current_max: serde_json::Value::Null,
        scope: None,
    }
}

/// Returns the outcome of a recorded step, given the messages that wait now. If a user message waits, the outcome of a
/// reply without calls becomes `Queued`, so that another turn follows.
pub(super) fn current_outcome(state: &ThreadState, node: Node, outcome: Outcome) -> Outcome {
    let text = matches!(node, Node::Model | Node::Hooks(HookPoint::AfterStep)) && outcome == Outcome::Text;
    if text && state.waiting_message().is_some() { Outcome::Queued } else { outcome }
}

/// Returns the events that close open attempts and calls, before a cancelled or killed thread can end. `None` if the
/// thread is neither cancelled nor killed, or if nothing is open.
pub(super) fn closing_events(state: &ThreadState) -> Option<Vec<EventBody>> {
    let killed = state.mailbox.killed;
    if !killed && !state.mailbox.cancelled {
        return None;
    }
    // A cancellation takes effect between two effects, so the model call was not made. A kill interrupts the model
    // call.
    let events = close_open_work(state, (killed, killed), "skipped: the thread was cancelled");
    (!events.is_empty()).then_some(events)
}

/// Returns the events that stop a thread at its duration limit: open attempts and calls are closed, and the limit is
/// recorded. The thread has reached the limit at `now`, or would reach it while the next step waits for `delay_ms`.
pub(super) fn overdue_events(state: &ThreadState, now: i64, delay_ms: u64) -> Vec<EventBody> {
    let mut events = close_open_work(state, (false, true), "skipped: the thread reached its duration limit");
    events.push(duration_limit(state, now, delay_ms));
    events
}

/// Returns the event that records that the thread reached its duration limit. The caller has found that the thread
/// reaches the limit at `now`, or would reach it during a wait of `delay_ms`. In the first case, the event states at
/// least the limit as the used time. In the second case, it states the time used so far, without the wait, because the
/// thread stops instead of waiting.
pub(super) fn duration_limit(state: &ThreadState, now: i64, delay_ms: u64) -> EventBody {
    let (_, before) = state.before_prompt();
    let most = state.limits.duration_seconds.saturating_sub(before);
    let used = state.clock.elapsed_at(now).div_ceil(1000).saturating_sub(before);
    let used = if delay_ms == 0 { used.max(most) } else { used };
    EventBody::Limit(LimitHit {
        at: Node::Limits,
        limit_code: "duration_seconds_exceeded".into(),
        current_value: used.into(),
        current_max: most.into(),
        scope: None,
    })
}

/// Returns the events that close the open attempt and the open calls. `made` states whether the attempt may have had a
/// cost, and `ran` whether the started calls may have had an effect. `skipped` is the result of the calls that did not
/// run.
fn close_open_work(state: &ThreadState, (made, ran): (bool, bool), skipped: &str) -> Vec<EventBody> {
    let mut events = Vec::new();
    if let Some(attempt) = &state.attempt {
        events.push(EventBody::Settled(Settled {
            turn: attempt.turn,
            attempt: attempt.number,
            amount: if made { attempt.worst_case } else { 0 },
            usage: Usage::default(),
            unknown_outcome: made,
            overspent: 0,
        }));
    }
    let end = state.calls.list.len();
    for (index, call) in state.calls.list.iter().enumerate() {
        let (why, text) = match call.phase {
            CallPhase::Answered => continue,
            CallPhase::Started | CallPhase::Spawning(_) if ran => (ResultKind::Interrupted, INTERRUPTED),
            CallPhase::Waiting | CallPhase::Started | CallPhase::Spawning(_) => (ResultKind::Skipped, skipped),
        };
        events.push(EventBody::ToolCallResult(Box::new(ToolCallResult {
            turn: state.cost.turns,
            index,
            group_end: end,
            call_id: call.call.id.clone(),
            name: call.call.name.clone(),
            why,
            content: text.into(),
            is_error: true,
            details: serde_json::Value::Null,
            bytes: text.len() as u64,
            object: None,
            duration_ms: 0,
        })));
    }
    events
}

/// The result of a call whose outcome is unknown, for the model.
pub(super) const INTERRUPTED: &str = "interrupted: outcome unknown";

/// Returns true if the thread was cancelled or killed, or has another recorded reason to end. Such a thread starts
/// nothing more.
pub(super) fn is_ending(state: &ThreadState) -> bool {
    state.mailbox.killed || state.mailbox.cancelled || state.stop.is_some()
}

/// Returns true if the plan has a hook at this hook point that a run has to evaluate.
pub(super) fn has_hooks(plan: &Plan, point: HookPoint) -> bool {
    plan.hooks.iter().any(|hook| hook.event == point && hook.is_live())
}

pub(super) fn run_hooks(walk: &WalkContext<'_>, point: HookPoint, subject: Option<String>) -> StepResult {
    let facts = facts::point_facts(walk.plan, walk.state, point, subject.as_deref());
    StepResult::Do(hook_run(walk.plan, walk.state, point, subject, facts))
}

/// Returns the effect that runs the hooks of a point.
pub(super) fn hook_run(
    plan: &Plan,
    state: &ThreadState,
    point: HookPoint,
    subject: Option<String>,
    facts: serde_json::Map<String, serde_json::Value>,
) -> Effect {
    let (turn, remaining_ms, nth) = (state.cost.turns, remaining_ms(state), state.hook_points);
    let over = matches!(
        point,
        HookPoint::AfterComplete | HookPoint::ThreadCompleted | HookPoint::ThreadError | HookPoint::ThreadCancelled
    );
    let spawned_before = state.used_before_prompt("spawns");
    let bounds = HookBounds {
        limits: PlanLimits { spawns: state.limits.spawns.saturating_sub(spawned_before), ..state.limits },
        spawned: state.spawned().saturating_sub(spawned_before),
        turn_reserve: if over { 0 } else { model::turn_worst_case(plan, state) },
        unsettled: state.unsettled.clone(),
        prompt_spend: state.prompt_spend(),
    };
    let store = std::sync::Arc::clone(&state.store);
    let can_hand_off = point != HookPoint::Limit || super::apply::can_hand_off_at_limit(state);
    let run = HookRun { point, subject, facts, turn, remaining_ms, store, nth, bounds, ended: None, can_hand_off };
    Effect::RunHooks(Box::new(run))
}

fn hooks(walk: &WalkContext<'_>, point: HookPoint) -> StepResult {
    let state = walk.state;
    match point {
        HookPoint::ThreadStarted if state.continued_prompts().is_some() => StepResult::Finished(Outcome::Pass),
        HookPoint::ThreadContinued if state.continued_prompts().is_none() => StepResult::Finished(Outcome::Pass),
        // The intake has run the hooks of these points before the message entered the conversation.
        HookPoint::Input | HookPoint::Command => StepResult::Finished(Outcome::Pass),
        HookPoint::ToolCall => calls::before_gate(walk),
        HookPoint::ResolveExtends
        | HookPoint::BuildSystemPrompt
        | HookPoint::ThreadStarted
        | HookPoint::ThreadContinued
        | HookPoint::BeforeAgentStart
        | HookPoint::Context
        | HookPoint::ToolExecutionStart
        | HookPoint::ToolExecutionEnd
        | HookPoint::ToolResult
        | HookPoint::AfterStep
        | HookPoint::Limit
        | HookPoint::Error
        | HookPoint::ContextLimitReached
        | HookPoint::DirectiveReturn
        | HookPoint::AgentEnd
        | HookPoint::AfterComplete
        | HookPoint::CognitionIn
        | HookPoint::CognitionOut
        | HookPoint::ToolCallResult
        | HookPoint::ThreadCompleted
        | HookPoint::ThreadError
        | HookPoint::ThreadCancelled
        | HookPoint::ThreadResumed => run_hooks(walk, point, None),
    }
}

fn inbox(walk: &WalkContext<'_>) -> StepResult {
    let state = walk.state;
    if state.mailbox.cancelled {
        return StepResult::Finished(Outcome::Cancelled);
    }
    if !state.conversation.prompted {
        if let Some(effect) = screen::screen_resume(walk.plan, state) {
            return StepResult::Do(effect);
        }
        let opening = super::prompt::opening_events(walk.plan, state);
        return StepResult::Write(opening.into_iter().chain(chat::next_turn_events(state)).collect());
    }
    if let Some(prompt) = chat::undelivered_prompt(state) {
        let message = Message::user_with_images(&prompt.images, prompt.text.clone());
        let prompt = EventBody::CognitionIn(CognitionIn { source: MessageSource::Prompt, message });
        return StepResult::Write([prompt].into_iter().chain(chat::next_turn_events(state)).collect());
    }
    match state.waiting_message() {
        None => StepResult::Finished(Outcome::Clear),
        Some(WaitingMessage { source, text, images }) => {
            let message = Message::user_with_images(images, text);
            StepResult::Write(vec![EventBody::CognitionIn(CognitionIn { source, message })])
        }
    }
}

fn user_event(source: MessageSource, text: &str) -> EventBody {
    EventBody::CognitionIn(CognitionIn { source, message: Message::user(text) })
}

fn nudge(walk: &WalkContext<'_>) -> StepResult {
    let (plan, state) = (walk.plan, walk.state);
    let missing = outputs::missing_names(&plan.interface.outputs, state.partial_outputs.as_ref());
    let is_first = state.cost.turns == 1;
    let wanted = match plan.nudge {
        NudgePolicy::Never => false,
        NudgePolicy::Always => true,
        NudgePolicy::Auto if is_first => state.nudges == 0,
        NudgePolicy::Auto => state.output_reminders == 0 && !missing.is_empty(),
    };
    let returns = !plan.interface.outputs.is_empty();
    if wanted && !is_first && !missing.is_empty() {
        return StepResult::Write(vec![user_event(MessageSource::Nudge, &outputs::reminder(&missing))]);
    }
    let tools = plan.palette.iter().any(|tool| tool.item_id.is_some());
    if !wanted || !(returns || tools) {
        return StepResult::Finished(Outcome::Skipped);
    }
    let mut text = String::from("You have answered without calling a tool.");
    if tools {
        text.push_str(" If the task is not done yet, use the tools you have been given.");
    }
    if returns && plan.palette.iter().any(|tool| tool.primary == PalettePrimary::Return) {
        text.push_str(" When it is done, call rye_directive_return with the declared outputs.");
    }
    StepResult::Write(vec![user_event(MessageSource::Nudge, &text)])
}

fn request_approval(walk: &WalkContext<'_>, origin: ApprovalOrigin) -> StepResult {
    let call = if origin == ApprovalOrigin::Call { calls::call_to_approve(walk) } else { None };
    let what = match origin {
        ApprovalOrigin::Limit => walk
            .state
            .limit
            .as_ref()
            .map_or_else(|| "continue beyond a limit".to_owned(), |hit| format!("continue beyond {}", hit.describe())),
        ApprovalOrigin::Call => {
            call.as_ref().map_or_else(String::new, |call| format!("{} with {}", call.capability, call.input))
        }
    };
    let raise = match approval_raise(walk.state) {
        ApprovalRaise::Needed(raise) if origin == ApprovalOrigin::Limit => Some(raise),
        ApprovalRaise::Needed(_) | ApprovalRaise::NotNeeded | ApprovalRaise::Impossible => None,
    };
    match &walk.state.question {
        Some(open) if open.origin == origin && open.what == what => {
            StepResult::Do(Effect::Ask { origin, what, call: call.map(Box::new), raise })
        }
        // The request is recorded before an approver sees it: other processes have to find it, and recovery repeats it.
        Some(_) | None => StepResult::Write(vec![EventBody::ApprovalAsked(ApprovalAsked { origin, what, raise })]),
    }
}

/// Returns the outcome of a step whose hooks gave this answer.
pub(super) fn outcome_of(answer: &HookOutcome) -> Outcome {
    match answer {
        HookOutcome::None
        | HookOutcome::Collected { .. }
        | HookOutcome::Transformed { .. }
        | HookOutcome::Prepared { .. }
        | HookOutcome::Context { .. }
        | HookOutcome::Modify { .. }
        | HookOutcome::Failed { .. } => Outcome::Pass,
        HookOutcome::Handled { .. } => Outcome::Handled,
        HookOutcome::Retry { .. } => Outcome::Retry,
        HookOutcome::Continue => Outcome::Continue,
        HookOutcome::Terminate { .. } => Outcome::Terminate,
        HookOutcome::Escalate => Outcome::Escalate,
        HookOutcome::Raise { .. } => Outcome::Raise,
        HookOutcome::Handoff => Outcome::Handoff,
        HookOutcome::Compact => Outcome::Compact,
        HookOutcome::FollowUp { .. } => Outcome::FollowUp,
        HookOutcome::Block { .. } => Outcome::Block,
    }
}
