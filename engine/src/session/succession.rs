//! Succession in a chat: the session continues in a new thread, with another plan or from an earlier prompt. As in a
//! handoff, the new thread refers to the conversation of the old thread and gets the remaining budget of the session.

use std::sync::Arc;

use rye_compiler::plan::{Layer, LayerKind, Plan, PlanLimits};

use super::continuation::{PriorThread, mode_of, parent_context, waiting_messages};
use super::{MAX_CHAIN_THREADS, ThreadInit, stored_plan};
use crate::context::EngineContext;
use crate::error::DriveError;
use crate::event::{Continues, Event, EventBody, ThreadHead, ThreadOrigin};
use crate::live::EventSink;
use crate::machine::retained_messages::InheritedMessages;
use crate::machine::state::{Successor, ThreadState};
use crate::message::SharedMessage;
use crate::session_tree::session_rows;
use crate::store::{Change, RowUpdate};
use crate::thread_count::blocking;
use crate::thread_id::ThreadId;

/// A position in the threads of a session, with the conversation up to this position.
struct BranchPoint {
    thread: ThreadId,
    at: u64,
    hash: String,
    /// The id of the thread's plan.
    plan_id: String,
    messages: Vec<SharedMessage>,
    /// The continuation with which the thread begins, if the position is before the thread's first message.
    unopened: Option<Continues>,
}

impl EngineContext {
    /// Builds the start parameters of the thread in which a chat continues. The row and the account of the new thread
    /// exist already, because they are created when the continued thread ends.
    pub(super) async fn successor_init(
        self: &Arc<Self>,
        (thread, next): (&ThreadId, &ThreadId),
        before: PriorThread,
        successor: Successor,
        remaining: PlanLimits,
        sink: Arc<EventSink>,
    ) -> Result<ThreadInit, DriveError> {
        let PriorThread { at, hash, opened, plan_id: old_id, plan: old_plan, state } = before;
        let whole = || BranchPoint {
            thread: thread.clone(),
            at,
            hash,
            plan_id: old_id.clone(),
            messages: InheritedMessages::whole(&state).messages,
            unopened: unopened(&state),
        };
        let place = match successor.before_prompt {
            None => whole(),
            Some(prompt) => {
                let (engine, last) = (Arc::clone(self), thread.clone());
                let branch = successor.branch.clone();
                blocking(move || match branch {
                    None => engine.branch_point_before_prompt(last, prompt),
                    Some(branch) => engine.branch_point_in(&last, &branch, prompt),
                })
                .await?
            }
        };
        let plan_id = successor.plan.unwrap_or(old_id);
        let plan = if plan_id == state.plan_id { old_plan } else { Arc::new(stored_plan(self, &plan_id)?) };
        let is_same_plan = plan_id == place.plan_id;
        let earlier = if is_same_plan { Arc::clone(&plan) } else { Arc::new(stored_plan(self, &place.plan_id)?) };
        let mut sent = layers_with_sent_text(&plan.prompt.continued, &earlier);
        let mut resent = changed_layers(&plan, &earlier);
        if let Some(unopened) = &place.unopened {
            sent.retain(|id| unopened.sent.contains(id));
            let is_missing = |id: &&String| !resent.contains(id);
            resent.extend(unopened.resent.iter().filter(is_missing).cloned().collect::<Vec<_>>());
        }
        // The session keeps its budget: another plan can only narrow the remaining budget.
        let limits = within(&remaining, &plan.thread_limits());
        if limits.spawns < remaining.spawns {
            let update = RowUpdate { spawns: Some(limits.spawns), ..RowUpdate::default() };
            let update = Change::Update { thread: next.clone(), update: Box::new(update), now: self.clock.now() };
            self.writer.commit(vec![update]).await?;
        }
        let prompts =
            successor.before_prompt.map_or(state.chat.as_ref().map_or(0, |chat| chat.prompts), |prompt| prompt - 1);
        Ok(ThreadInit {
            inputs: if is_same_plan { opened.inputs.clone() } else { plan.interface.values.clone() },
            origin: if is_same_plan { ThreadOrigin::Fork } else { ThreadOrigin::Replan },
            limits,
            grants: if is_same_plan { opened.grants.clone() } else { vec![plan.capabilities.grants.clone()] },
            parent: parent_context(&opened),
            continues: Some(Continues {
                thread: place.thread.to_string(),
                at_seq: place.at,
                at_h: place.hash,
                message: None,
                prompt: None,
                after: (place.thread != *thread).then(|| thread.to_string()),
                prompts,
                sent,
                resent,
                queue: waiting_messages(&state),
                mode: mode_of(&state),
                prompt_grants: None,
                left_out: None,
                children: state.children_to_continue(),
            }),
            // The chat is idle, so no prompt is unfinished.
            history: InheritedMessages { messages: place.messages, open_prompt: None },
            shown: Vec::new(),
            sink,
            queue: None,
            call: None,
            carried_ms: state.clock.elapsed_ms() % 1000,
            allow_missing_outputs: opened.allow_missing_outputs,
            is_recovery: false,
            plan_id,
            plan,
        })
    }

    /// Finds the position before the prompt `prompt` of the thread `branch`, which belongs to the same session as the
    /// thread `last`. If `prompt` is one more than the number of the last prompt of `branch`, returns the end of
    /// `branch`. Fails if the session does not contain `branch`, or if `branch` does not contain the prompt. Blocks.
    fn branch_point_in(&self, last: &ThreadId, branch: &str, prompt: u64) -> Result<BranchPoint, DriveError> {
        let thread = ThreadId::parse(branch).map_err(|invalid| DriveError::Plan(invalid.reason))?;
        if !session_rows(&self.threads(), last)?.iter().any(|row| row.id == thread) {
            return Err(DriveError::Plan(format!("the session has no thread `{thread}`")));
        }
        let events = self.threads().transcript(&thread)?;
        if prompt != last_prompt(&events).saturating_add(1) {
            return self.branch_point_before_prompt(thread, prompt);
        }
        let plan_id = ThreadHead::of(&events).plan_id.unwrap_or_default().to_owned();
        let at = events.last().map_or(0, |event| event.seq);
        let (state, hash) = self.state_at(&thread, at, MAX_CHAIN_THREADS)?;
        let (messages, unopened) = (InheritedMessages::whole(&state).messages, unopened(&state));
        Ok(BranchPoint { thread, at, hash, plan_id, messages, unopened })
    }

    /// Finds the position before a prompt, in the thread `last` or in a thread that `last` continues. Fails if none of
    /// these threads has the prompt. Blocks.
    fn branch_point_before_prompt(&self, last: ThreadId, prompt: u64) -> Result<BranchPoint, DriveError> {
        let mut thread = last;
        for _ in 0..MAX_CHAIN_THREADS {
            let events = self.threads().transcript(&thread)?;
            let head = ThreadHead::of(&events);
            if let Some(at) = end_before(&events, prompt) {
                let plan_id = head.plan_id.unwrap_or_default().to_owned();
                let (state, hash) = self.state_at(&thread, at, MAX_CHAIN_THREADS)?;
                let (messages, unopened) = (InheritedMessages::whole(&state).messages, unopened(&state));
                return Ok(BranchPoint { thread, at, hash, plan_id, messages, unopened });
            }
            let Some(continues) = head.continues else { break };
            thread = ThreadId::parse(&continues.thread).map_err(|invalid| DriveError::Plan(invalid.reason))?;
        }
        Err(DriveError::Plan(format!("the session has no prompt {prompt}")))
    }
}

/// Returns the number of the last prompt of a conversation up to the end of a thread; 0 if there is none.
fn last_prompt(events: &[Event]) -> u64 {
    let started = events.iter().rev().find_map(|event| {
        if let EventBody::PromptStarted(started) = &event.body { Some(started.prompt) } else { None }
    });
    started.or_else(|| Some(ThreadHead::of(events).continues?.prompts)).unwrap_or(0)
}

/// Returns the number of the last event before a prompt: the end of the previous prompt or, for the first prompt, the
/// event before its submission. `None` if the thread has no such prompt, or if the prompt started in an earlier thread.
fn end_before(events: &[Event], prompt: u64) -> Option<u64> {
    let starts = |event: &&Event| matches!(&event.body, EventBody::PromptStarted(started) if started.prompt == prompt);
    let start = events.iter().find(starts)?;
    let is_taken_over = ThreadHead::of(events)
        .continues
        .and_then(|continues| continues.prompt.as_ref())
        .is_some_and(|continued| continued.number == prompt);
    if is_taken_over {
        return None;
    }
    let ended = |event: &&Event| event.seq < start.seq && matches!(event.body, EventBody::PromptEnded(_));
    let last_end = events.iter().rev().find(ended).map(|event| event.seq);
    last_end.or_else(|| start.seq.checked_sub(1))
}

/// Returns the continuation with which a thread begins, if the thread has no message of its own yet.
fn unopened(state: &ThreadState) -> Option<Continues> {
    state.continues.clone().filter(|_| !state.conversation.prompted)
}

/// Returns true if the first message or the continuation layers of `earlier` contain an equal layer.
fn has_equal_layer(earlier: &Plan, layer: &Layer) -> bool {
    let mut known = earlier.prompt.first_message.iter().chain(&earlier.prompt.continued);
    known.any(|one| one.id == layer.id && one.segments == layer.segments)
}

/// Returns the ids of those layers that need not be sent again, because a thread with the plan `earlier` has sent them.
fn layers_with_sent_text(layers: &[Layer], earlier: &Plan) -> Vec<String> {
    layers.iter().filter(|layer| has_equal_layer(earlier, layer)).map(|layer| layer.id.clone()).collect()
}

/// Returns the ids of the layers of the first message whose text differs from the text that a thread with the plan
/// `earlier` has sent. Leaves out the user's prompt, layers that a hook provides at the start of a thread, and layers
/// that every continuation sends.
fn changed_layers(plan: &Plan, earlier: &Plan) -> Vec<String> {
    let is_continued = |layer: &Layer| plan.prompt.continued.iter().any(|one| one.id == layer.id);
    let layers = plan.prompt.first_message.iter();
    let own = layers.filter(|layer| layer.kind != LayerKind::Prompt && layer.hook.is_none() && !is_continued(layer));
    own.filter(|layer| !has_equal_layer(earlier, layer)).map(|layer| layer.id.clone()).collect()
}

fn within(one: &PlanLimits, other: &PlanLimits) -> PlanLimits {
    PlanLimits {
        turns: one.turns.min(other.turns),
        tokens: one.tokens.min(other.tokens),
        spend: one.spend.min(other.spend),
        spawns: one.spawns.min(other.spawns),
        depth: one.depth.min(other.depth),
        duration_seconds: one.duration_seconds.min(other.duration_seconds),
        output: other.output,
    }
}
