//! Continuations: a handoff when the context is full, a resume with a new message, a fork. The new thread has the same
//! plan and inputs, and starts with a reference to a position in the old thread.

use std::sync::Arc;

use rye_compiler::compile::CompileRequest;
use rye_compiler::plan::{Grant, Plan, PlanLimits};
use rye_compiler::trust::{of_continuation, user_space_of};
use rye_compiler::world::Space;

use super::{ParentContext, RowsToWrite, ThreadInit, stored_plan};
use crate::context::{EngineContext, RunningThread, ThreadHandle, UserMessage};
use crate::error::DriveError;
use crate::error::EngineError;
use crate::event::{
    ChatMode, ChildSpawned, ContinuedPrompt, Continues, ControlMessage, Event, EventBody, Opened, QueuedMessage,
    ThreadHead, ThreadOrigin,
};
use crate::image::{self, ImageNotAccepted};
use crate::live;
use crate::live::EventSink;
use crate::machine::retained_messages::InheritedMessages;
use crate::machine::{ThreadState, undelivered_prompt};
use crate::parent_thread::ParentThread;
use crate::session::verified::VerifiedTranscript;
use crate::store::{Change, RowUpdate, StoreError};
use crate::thread::Status;
use crate::thread_count::blocking;
use crate::thread_id::ThreadId;

/// The message of a continuation whose directive has no text.
const DEFAULT_CONTINUATION: &str = "Continue where you left off.";

/// The position in a thread from which another thread continues it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResumePoint {
    End,
    /// The end of the turn with this number.
    Turn(u64),
    /// The end of a thread whose context is full. The new thread starts with only the recent messages and the text of
    /// the continuation directive.
    Handoff,
}

/// The process that ran a thread that is now continued. A thread of this process was checked when it started. It is not
/// checked again, because the check fails if the directive has changed since then. A thread of an unknown process is
/// checked before it is continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PriorOwner {
    ThisProcess,
    Unknown,
}

/// The state of a thread at the position from which another thread continues it.
pub(super) struct PriorThread {
    pub at: u64,
    pub hash: String,
    pub opened: Opened,
    pub plan_id: String,
    pub plan: Arc<Plan>,
    pub state: ThreadState,
}

impl EngineContext {
    /// Starts the continuation of a thread that ended because its context was full. The registry row and the account of
    /// the continuation exist: the end of the thread has created them.
    pub(super) async fn continue_after_handoff(
        self: &Arc<Self>,
        thread: &ThreadId,
        owner: PriorOwner,
        sink: Arc<EventSink>,
    ) -> Result<RunningThread, DriveError> {
        let id = thread.clone();
        let row = self.read_registry(move |registry| registry.thread(&id)).await?;
        let next = row.and_then(|row| row.continued_by);
        let next = next.ok_or_else(|| DriveError::Plan(format!("`{thread}` cannot be continued")))?;
        let started = self.start_handoff(thread, &next, owner, sink).await;
        if started.is_err() {
            self.release(&next, None).await;
        }
        started
    }

    /// Starts the continuation of a thread from that thread's transcript.
    pub(super) async fn start_handoff(
        self: &Arc<Self>,
        thread: &ThreadId,
        next: &ThreadId,
        owner: PriorOwner,
        sink: Arc<EventSink>,
    ) -> Result<RunningThread, DriveError> {
        let before = self.read_prior(thread, ResumePoint::Handoff, owner).await.map_err(|error| match error {
            EngineError::Drive(error) => error,
            other @ (EngineError::Store(_)
            | EngineError::Key(_)
            | EngineError::World(_)
            | EngineError::NotStarted { .. }
            | EngineError::NeverStarted { .. }
            | EngineError::Over { .. }
            | EngineError::Continued { .. }
            | EngineError::ModelIsFixed { .. }
            | EngineError::LimitsAreFixed { .. }
            | EngineError::NoSuchTurn { .. }
            | EngineError::RunsTool { .. }
            | EngineError::TooDeep { .. }
            | EngineError::NoTimeLeft { .. }
            | EngineError::NotReserved { .. }
            | EngineError::Closed { .. }
            | EngineError::AncestorStopped { .. }
            | EngineError::Images(_)) => DriveError::Plan(other.to_string()),
        })?;
        let id = next.clone();
        let (account, row) =
            self.read_registry(move |registry| Ok((registry.account(&id)?, registry.thread(&id)?))).await?;
        let account = account.ok_or_else(|| DriveError::Plan(format!("`{next}` has no account in the ledger")))?;
        // The ledger and the registry count descendants that the transcript of this thread does not record.
        let limits = before.state.remaining_limits();
        let spawns = row.and_then(|row| row.spawns).unwrap_or(limits.spawns);
        let children = before.state.children_to_continue();
        let spend = account.reserved().to_u64().saturating_add(before.state.held_by_continued());
        let limits = PlanLimits { spend, spawns, ..limits };
        let events = Arc::clone(&sink);
        let is_recovery = owner == PriorOwner::Unknown && before.state.chat.is_some();
        if let Some(successor) = before.state.chat.as_ref().and_then(|chat| chat.successor.clone()) {
            let init = Box::pin(self.successor_init((thread, next), before, successor, limits, sink)).await?;
            let init = ThreadInit { is_recovery, ..init };
            let started = self.start_thread(next.clone(), init, RowsToWrite::Existing).await?;
            self.watch_children(next, &children, &events);
            return Ok(started);
        }
        let PriorThread { at, hash, opened, plan_id, plan, state } = before;
        let message = self.continuation_text(&plan, opened.grants.first()).await?;
        let current = state.chat.as_ref().and_then(|chat| chat.current);
        let prompt = current.map(|current| ContinuedPrompt {
            number: current.number,
            limits: state.remaining_prompt_limits(),
            capped: current.is_capped,
        });
        let narrowed = state.chat.as_ref().and_then(|chat| chat.narrowed.as_ref()?.first().cloned());
        let history = InheritedMessages::after_handoff(&plan, &state);
        let init = ThreadInit {
            plan_id,
            inputs: opened.inputs.clone(),
            origin: ThreadOrigin::Handoff,
            limits,
            grants: opened.grants.clone(),
            parent: parent_context(&opened),
            continues: Some(Continues {
                thread: thread.to_string(),
                at_seq: at,
                at_h: hash,
                message: Some(message),
                prompt,
                after: None,
                prompts: 0,
                sent: Vec::new(),
                resent: Vec::new(),
                queue: waiting_messages(&state),
                mode: mode_of(&state),
                prompt_grants: narrowed,
                left_out: state.chat.as_ref().and_then(|_| history.left_out(&plan, &state)),
                children: children.clone(),
            }),
            history,
            shown: Vec::new(),
            sink,
            queue: None,
            call: None,
            carried_ms: state.clock.elapsed_ms() % 1000,
            allow_missing_outputs: opened.allow_missing_outputs,
            is_recovery,
            plan,
        };
        let started = self.start_thread(next.clone(), init, RowsToWrite::Existing).await?;
        self.watch_children(next, &children, &events);
        Ok(started)
    }

    /// Waits in the background for the children that a continuation has taken over, and reports their ends to the
    /// continuation.
    fn watch_children(self: &Arc<Self>, thread: &ThreadId, children: &[ChildSpawned], sink: &Arc<EventSink>) {
        for child in children {
            if let Ok(id) = ThreadId::parse(&child.thread_id) {
                self.watch_detached(thread, child.spawn, &id, sink);
            }
        }
    }

    /// Resumes an ended thread with one more message. A thread that has not ended is recovered instead.
    pub(crate) async fn resume_root(
        self: &Arc<Self>,
        thread: &ThreadId,
        message: UserMessage,
    ) -> Result<ThreadHandle, EngineError> {
        let of = thread.clone();
        let row = self.read_registry(move |registry| registry.thread(&of)).await?;
        let Some(row) = row else { return Err(StoreError::UnknownThread { thread: thread.to_string() }.into()) };
        if let Some(tool) = row.tool.filter(|_| !message.text.is_empty()) {
            return Err(EngineError::RunsTool { thread: thread.to_string(), tool });
        }
        if !row.status.has_ended() || row.status.is_parked() {
            if message.model.is_some() {
                return Err(EngineError::ModelIsFixed { thread: thread.to_string() });
            }
            if message.limits.is_some() {
                return Err(EngineError::LimitsAreFixed { thread: thread.to_string() });
            }
            if !message.images.is_empty() {
                return Err(ImageNotAccepted::Unfinished { thread: thread.to_string() }.into());
            }
            let steer = (!message.text.is_empty()).then_some(ControlMessage::Steer { text: message.text });
            return self.recover_root(thread, steer.into_iter().collect()).await;
        }
        self.continue_from(thread, ResumePoint::End, message, None).await
    }

    /// Starts a new thread that continues `thread` from the position `place`. The new thread is a root or, if `parent`
    /// is given, a child within the bounds of `parent`.
    pub(crate) async fn continue_from(
        self: &Arc<Self>,
        thread: &ThreadId,
        place: ResumePoint,
        message: UserMessage,
        parent: Option<ParentThread>,
    ) -> Result<ThreadHandle, EngineError> {
        if !matches!(place, ResumePoint::Turn(_)) {
            self.check_not_continued(thread).await?;
        }
        let before = self.read_prior(thread, place, PriorOwner::Unknown).await?;
        let PriorThread { at, hash, opened, plan_id, plan, state } = before;
        let (plan_id, plan) = match (message.model, message.limits) {
            (None, None) => (plan_id, plan),
            (model, limits) => {
                let mut plan = (*plan).clone();
                plan.model = model.unwrap_or(plan.model);
                plan.limits = limits.unwrap_or(plan.limits);
                let plan_id = plan.id().map_err(|error| DriveError::Plan(error.to_string()))?;
                (plan_id, Arc::new(plan))
            }
        };
        // The message of a resumed chat is its next prompt.
        let prompts = state.chat.as_ref().map(|chat| chat.prompts);
        let prompt = prompts.map(|prompts| ContinuedPrompt { number: prompts + 1, limits: plan.limits, capped: false });
        let mode = state.chat.as_ref().map(|chat| chat.mode.min(ChatMode::Ask)).unwrap_or_default();
        let (origin, text, history) = match place {
            ResumePoint::End => (ThreadOrigin::Resume, message.text, InheritedMessages::whole(&state)),
            ResumePoint::Turn(_) => (ThreadOrigin::Fork, message.text, InheritedMessages::whole(&state)),
            ResumePoint::Handoff => (
                ThreadOrigin::Handoff,
                self.continuation_text(&plan, opened.grants.first()).await?,
                InheritedMessages::after_handoff(&plan, &state),
            ),
        };
        let (sink, live) = live::event_channel();
        let mut init = ThreadInit {
            limits: plan.thread_limits(),
            plan,
            plan_id,
            inputs: opened.inputs.clone(),
            origin,
            grants: opened.grants.clone(),
            // The new thread belongs to the caller of the resume; the old parent has already received its result.
            parent: None,
            continues: Some(Continues {
                thread: thread.to_string(),
                at_seq: at,
                at_h: hash,
                message: Some(text),
                prompt,
                after: None,
                prompts: 0,
                sent: Vec::new(),
                resent: Vec::new(),
                queue: Vec::new(),
                mode,
                prompt_grants: None,
                left_out: None,
                children: Vec::new(),
            }),
            history,
            shown: message.images,
            sink: Arc::new(sink),
            queue: None,
            call: None,
            carried_ms: 0,
            allow_missing_outputs: opened.allow_missing_outputs,
            is_recovery: false,
        };
        image::check_accepted(&init.plan.model, &init.images())?;
        let linked = (!matches!(place, ResumePoint::Turn(_))).then_some(thread);
        if let Some(parent) = parent {
            self.check_parent(&parent).await?;
            init.grants.extend(parent.launch.grants.iter().cloned());
            init.limits = parent.bound(init.limits)?;
            let (id, running) = self.start_reserved_child(&parent, init, None, linked).await?;
            return Ok(ThreadHandle::new(id, live, running));
        }
        let id = self.allocate(&init.plan).await?;
        let rows = if linked.is_some() { RowsToWrite::Linked } else { RowsToWrite::Root { durable: true } };
        let running = self.start_root_thread(id.clone(), init, rows).await?;
        Ok(ThreadHandle::new(id, live, running))
    }

    /// Returns an error if the thread already has a continuation. A thread stores one link to a continuation: a second
    /// continuation would replace the link to the first one, which has taken over the money of the thread.
    async fn check_not_continued(&self, thread: &ThreadId) -> Result<(), EngineError> {
        let id = thread.clone();
        let row = self.read_registry(move |registry| registry.thread(&id)).await?;
        let next = row.filter(|row| row.status == Status::Continued).and_then(|row| row.continued_by);
        next.map_or(Ok(()), |next| Err(EngineError::Continued { thread: thread.clone(), next }))
    }

    /// Reads the thread to continue, and computes its state at the given point. Fails if the thread is unknown, never
    /// started, or must not be continued from this point.
    async fn read_prior(
        self: &Arc<Self>,
        thread: &ThreadId,
        place: ResumePoint,
        owner: PriorOwner,
    ) -> Result<PriorThread, EngineError> {
        let (engine, id) = (Arc::clone(self), thread.clone());
        let read = move || -> Result<Result<PriorThread, EngineError>, DriveError> {
            let unknown = || StoreError::UnknownThread { thread: id.to_string() };
            engine.writer.registry().thread(&id)?.ok_or_else(unknown)?;
            let Some(VerifiedTranscript { events, transcript_trust, .. }) = engine.take_verified(&id)? else {
                return Ok(Err(EngineError::NeverStarted { thread: id.to_string() }));
            };
            let at = match place {
                ResumePoint::End | ResumePoint::Handoff => events.last().map_or(0, |event| event.seq),
                ResumePoint::Turn(turn) => match last_event_of_turn(&events, turn) {
                    Ok(at) => at,
                    Err(turns) => return Ok(Err(EngineError::NoSuchTurn { thread: id.to_string(), turns })),
                },
            };
            let head = ThreadHead::of(&events);
            let (Some(opened), Some(plan_id)) = (head.opened.cloned(), head.plan_id.map(str::to_owned)) else {
                return Ok(Err(EngineError::NeverStarted { thread: id.to_string() }));
            };
            if let Some(tool) = opened.tool() {
                return Ok(Err(EngineError::RunsTool { thread: id.to_string(), tool: tool.to_owned() }));
            }
            let (state, hash) = engine.state_at(&id, at, 1_000)?;
            let plan = Arc::new(stored_plan(&engine, &plan_id)?);
            match owner {
                PriorOwner::ThisProcess => {}
                PriorOwner::Unknown => engine.check_launch(&id, &events, &plan, transcript_trust)?,
            }
            engine.verify_stored_plan(&plan)?;
            Ok(Ok(PriorThread { at, hash, opened, plan_id, plan, state }))
        };
        blocking(read).await?
    }

    /// Returns the row update that links a thread to its continuation.
    pub(super) fn link_continuation(&self, before: &ThreadId, after: &ThreadId) -> Change {
        let update = RowUpdate { continued_by: Some(after.clone()), ..RowUpdate::default() };
        Change::Update { thread: before.clone(), update: Box::new(update), now: self.clock.now() }
    }

    /// Returns the text of the continuation directive, after checking that the text is trusted for a thread with these
    /// grants.
    async fn continuation_text(
        self: &Arc<Self>,
        plan: &Plan,
        grants: Option<&Vec<Grant>>,
    ) -> Result<String, DriveError> {
        let Some(directive) = plan.continuation_directive.clone() else { return Ok(DEFAULT_CONTINUATION.into()) };
        let (inputs, compile) = (plan.interface.values.clone(), Arc::clone(&self.compile));
        let plan_check = self.plan_check.clone();
        let compiled = self.with_world(move |world| {
            let request = CompileRequest::new(directive);
            // The continuation directive receives only those inputs of the thread that it declares itself.
            let declared = compile(world, &request).value.map(|compilation| compilation.plan.interface.inputs);
            let is_declared = |name: &str| declared.as_ref().is_some_and(|inputs| inputs.contains_key(name));
            let given = inputs.into_iter().filter(|(name, _)| is_declared(name)).collect();
            let request = request.with_inputs(given);
            let Some(compilation) = compile(world, &request).value else { return Ok(Ok(None)) };
            let checked = plan_check.map_or(Ok(()), |check| check(&compilation.plan));
            Ok(checked.map(|()| Some(compilation.plan)))
        });
        let text = compiled.await?.ok().transpose().map_err(|reason| DriveError::Refused { reason })?.flatten();
        let Some(text) = text else { return Ok(DEFAULT_CONTINUATION.into()) };
        let mut required: Vec<_> =
            of_continuation(plan, grants.map_or(&[], Vec::as_slice), &text).into_iter().collect();
        // The trust of the project may have been revoked since the thread started.
        let is_of = |plan: &Plan, space: Space| plan.chain.last().is_some_and(|link| link.space == space);
        if is_of(plan, Space::Project) && is_of(&text, Space::User) {
            required.extend(user_space_of(plan, None));
        }
        let (engine, directive) = (Arc::clone(self), text.directive.clone());
        self.thread_count.run_blocking(move || engine.check_requirements(&directive, required)).await??;
        let body = crate::machine::prompt::body(&text);
        Ok(if body.is_empty() { DEFAULT_CONTINUATION.into() } else { body })
    }
}

/// Returns the mode in which a session continues.
pub(super) fn mode_of(state: &ThreadState) -> ChatMode {
    state.chat.as_ref().map(|chat| chat.mode).unwrap_or_default()
}

/// Returns the messages that wait in a thread and are delivered by the thread's continuation: all queued messages
/// except the message of the current prompt.
pub(super) fn waiting_messages(state: &ThreadState) -> Vec<QueuedMessage> {
    let due = undelivered_prompt(state).map(|message| message.id.as_str());
    state.queued_messages().filter(|message| Some(message.id.as_str()) != due).cloned().collect()
}

pub(super) fn parent_context(launch: &Opened) -> Option<ParentContext> {
    let link = launch.parent.clone()?;
    let root = ThreadId::parse(&launch.root).ok()?;
    Some(ParentContext { link, root, limits: launch.ceiling.unwrap_or(launch.limits) })
}

/// Returns the sequence number of a turn's last event.
///
/// # Errors
///
/// Returns the number of turns if the thread has no such turn.
fn last_event_of_turn(events: &[Event], turn: u64) -> Result<u64, u64> {
    let begins = |event: &&Event| {
        if let EventBody::AttemptIntended(attempt) = &event.body {
            return attempt.turn > turn;
        }
        matches!(event.body, EventBody::Ended(_))
    };
    let turns = events.iter().filter(|event| matches!(event.body, EventBody::CognitionOut(_))).count() as u64;
    let last = events.last().map_or(0, |event| event.seq);
    if turn > turns {
        return Err(turns);
    }
    Ok(events.iter().find(begins).map_or(last, |event| event.seq.saturating_sub(1)))
}
