//! Continuations: a handoff when the context is full, a resume with a new message, a fork. The new thread keeps the
//! plan and the inputs, and starts with a reference to the position in the old one.

use std::sync::Arc;

use rye_compiler::compile::Request;
use rye_compiler::plan::{Plan, PlanLimits};

use super::{ParentContext, RowsToWrite, ThreadInit, blocking, stored_plan};
use crate::driver::{DriveError, EventSink, live};
use crate::engine::{EngineError, Handle, Inner, Running, UserMessage};
use crate::event::{Continues, ControlMessage, Event, EventBody, Head, Opened, Origin};
use crate::image::{self, ImageNotAccepted};
use crate::machine::State;
use crate::machine::trailing::{ceiling, trailing};
use crate::session::below::ParentThread;
use crate::session::verified::VerifiedTranscript;
use crate::store::{Change, RowUpdate, StoreError};
use crate::thread::Status;
use crate::thread_id::ThreadId;

/// The message of a continuation whose directive gives no text.
const DEFAULT_CONTINUATION: &str = "Go on from where you left off.";

/// The position at which one thread continues another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    End,
    /// After this many turns.
    Turn(u64),
    /// The end, with only the last messages and the text of the continuation directive.
    Handoff,
}

/// The state of a thread at such a position.
struct PriorThread {
    at: u64,
    hash: String,
    opened: Opened,
    plan_id: String,
    plan: Arc<Plan>,
    state: State,
}

impl Inner {
    /// Starts the continuation of a thread whose context was full. Its row and its account exist since that thread
    /// ended.
    pub(super) async fn continue_after_handoff(
        self: &Arc<Self>,
        thread: &ThreadId,
        outlet: Arc<EventSink>,
    ) -> Result<Running, DriveError> {
        let id = thread.clone();
        let row = self.read(move |registry| registry.thread(&id)).await?;
        let next = row.and_then(|row| row.continued_by);
        let next = next.ok_or_else(|| DriveError::Plan(format!("nothing goes on from `{thread}`")))?;
        let begun = self.hand_over(thread, &next, outlet).await;
        if begun.is_err() {
            self.give_up(&next, None).await;
        }
        begun
    }

    /// Starts the continuation of a thread from that thread's transcript.
    pub(super) async fn hand_over(
        self: &Arc<Self>,
        thread: &ThreadId,
        next: &ThreadId,
        outlet: Arc<EventSink>,
    ) -> Result<Running, DriveError> {
        let before = self.before(thread, Place::Handoff).await.map_err(|error| match error {
            EngineError::Drive(error) => error,
            other @ (EngineError::Store(_)
            | EngineError::Key(_)
            | EngineError::World(_)
            | EngineError::NeverBegan { .. }
            | EngineError::Over { .. }
            | EngineError::NoSuchTurn { .. }
            | EngineError::OfTool { .. }
            | EngineError::TooDeep { .. }
            | EngineError::NothingSetAside { .. }
            | EngineError::Closed { .. }
            | EngineError::Images(_)) => DriveError::Plan(other.to_string()),
        })?;
        let id = next.clone();
        let account = self.read(move |registry| registry.account(&id)).await?;
        let account = account.ok_or_else(|| DriveError::Plan(format!("`{next}` has no account in the ledger")))?;
        let PriorThread { at, hash, opened, plan_id, plan, state } = before;
        let message = self.continuation(&plan).await?;
        let spend = account.reserved().to_u64();
        let beginning = ThreadInit {
            plan_id,
            inputs: opened.inputs.clone(),
            origin: Origin::Handoff,
            limits: PlanLimits { spend, ..state.left() },
            grants: opened.grants.clone(),
            parent: above(&opened),
            continues: Some(Continues { thread: thread.to_string(), at_seq: at, at_h: hash, message: Some(message) }),
            history: trailing(&state.talk.messages, ceiling(&plan)),
            shown: Vec::new(),
            outlet,
            queue: None,
            call: None,
            plan,
        };
        self.begin(next.clone(), beginning, RowsToWrite::There).await
    }

    /// Resumes an ended thread with one more message. A thread that has not ended is recovered instead.
    pub(crate) async fn resume_root(
        self: &Arc<Self>,
        thread: &ThreadId,
        said: UserMessage,
    ) -> Result<Handle, EngineError> {
        let of = thread.clone();
        let row = self.read(move |registry| registry.thread(&of)).await?;
        let Some(row) = row else { return Err(StoreError::UnknownThread { thread: thread.to_string() }.into()) };
        if let Some(tool) = row.tool.filter(|_| !said.text.is_empty()) {
            return Err(EngineError::OfTool { thread: thread.to_string(), tool });
        }
        if !row.status.is_over() || row.status == Status::Suspended {
            if !said.images.is_empty() {
                return Err(ImageNotAccepted::Unfinished { thread: thread.to_string() }.into());
            }
            let steer = (!said.text.is_empty()).then_some(ControlMessage::Steer { text: said.text });
            return self.recover_root(thread, steer.into_iter().collect()).await;
        }
        self.continue_from(thread, Place::End, said, None).await
    }

    /// Starts a new thread that continues another one from a position: as a root, or as a child of `parent` and within
    /// its bounds.
    pub(crate) async fn continue_from(
        self: &Arc<Self>,
        thread: &ThreadId,
        place: Place,
        said: UserMessage,
        parent: Option<ParentThread>,
    ) -> Result<Handle, EngineError> {
        let before = self.before(thread, place).await?;
        let PriorThread { at, hash, opened, plan_id, plan, state } = before;
        let history = state.talk.messages;
        let (origin, message, history) = match place {
            Place::End => (Origin::Resume, said.text, history),
            Place::Turn(_) => (Origin::Fork, said.text, history),
            Place::Handoff => (Origin::Handoff, self.continuation(&plan).await?, trailing(&history, ceiling(&plan))),
        };
        let (outlet, live) = live::channel();
        let mut beginning = ThreadInit {
            limits: plan.limits,
            plan,
            plan_id,
            inputs: opened.inputs.clone(),
            origin,
            grants: opened.grants.clone(),
            // The new thread belongs to the caller of the resume; the old parent has already received its result.
            parent: None,
            continues: Some(Continues { thread: thread.to_string(), at_seq: at, at_h: hash, message: Some(message) }),
            history,
            shown: said.images,
            outlet: Arc::new(outlet),
            queue: None,
            call: None,
        };
        image::accept(&beginning.plan.model, &beginning.images())?;
        let linked = (!matches!(place, Place::Turn(_))).then_some(thread);
        if let Some(parent) = parent {
            self.check_parent(&parent).await?;
            beginning.grants.extend(parent.launch.grants.iter().cloned());
            beginning.limits = parent.bound(beginning.limits)?;
            let (id, running) = self.start_reserved_child(&parent, beginning, None, linked).await?;
            return Ok(Handle::new(id, live, running));
        }
        let id = self.allocate(&beginning.plan).await?;
        let rows = if linked.is_some() { RowsToWrite::Linked } else { RowsToWrite::Root };
        let running = self.begin(id.clone(), beginning, rows).await?;
        Ok(Handle::new(id, live, running))
    }

    /// Reads the state of a thread at a position.
    async fn before(self: &Arc<Self>, thread: &ThreadId, place: Place) -> Result<PriorThread, EngineError> {
        let (engine, id) = (Arc::clone(self), thread.clone());
        let read = move || -> Result<Result<PriorThread, EngineError>, DriveError> {
            let unknown = || StoreError::UnknownThread { thread: id.to_string() };
            engine.writer.registry().thread(&id)?.ok_or_else(unknown)?;
            let VerifiedTranscript { events, standing, .. } = engine.verified(&id)?.ok_or_else(unknown)?;
            let at = match place {
                Place::End | Place::Handoff => events.last().map_or(0, |event| event.seq),
                Place::Turn(turn) => match last_event_of_turn(&events, turn) {
                    Ok(at) => at,
                    Err(turns) => return Ok(Err(EngineError::NoSuchTurn { thread: id.to_string(), turns })),
                },
            };
            let head = Head::of(&events);
            let (Some(opened), Some(plan_id)) = (head.opened.cloned(), head.plan_id.map(str::to_owned)) else {
                return Ok(Err(EngineError::NeverBegan { thread: id.to_string() }));
            };
            if let Some(tool) = opened.tool() {
                return Ok(Err(EngineError::OfTool { thread: id.to_string(), tool: tool.to_owned() }));
            }
            let (state, hash) = engine.state_at(&id, at, 1_000)?;
            let plan = Arc::new(stored_plan(&engine, &plan_id)?);
            engine.check_launch(&id, &events, &plan, standing)?;
            engine.vouch(&plan)?;
            Ok(Ok(PriorThread { at, hash, opened, plan_id, plan, state }))
        };
        blocking(read).await?
    }

    /// Returns the row update that links a thread to its continuation.
    pub(super) fn link(&self, before: &ThreadId, after: &ThreadId) -> Change {
        let update = RowUpdate { continued_by: Some(after.clone()), ..RowUpdate::default() };
        Change::Update { thread: before.clone(), update: Box::new(update), now: self.clock.now() }
    }

    /// Returns the text of the continuation directive.
    async fn continuation(&self, plan: &Plan) -> Result<String, DriveError> {
        let Some(directive) = plan.continuation_directive.clone() else { return Ok(DEFAULT_CONTINUATION.into()) };
        let (inputs, compile) = (plan.interface.values.clone(), Arc::clone(&self.compile));
        let plan_check = self.plan_check.clone();
        let body = self.with_world(move |world| {
            let request = Request::new(directive).with_inputs(inputs);
            let Some(compilation) = compile(world, &request).value else { return Ok(Ok(None)) };
            let checked = plan_check.map_or(Ok(()), |check| check(&compilation.plan));
            Ok(checked.map(|()| Some(crate::machine::prompt::body(&compilation.plan))))
        });
        let body = body.await?.ok().transpose().map_err(|reason| DriveError::Refused { reason })?.flatten();
        Ok(body.filter(|body| !body.is_empty()).unwrap_or_else(|| DEFAULT_CONTINUATION.into()))
    }
}

fn above(launch: &Opened) -> Option<ParentContext> {
    let link = launch.parent.clone()?;
    let root = ThreadId::parse(&launch.root).ok()?;
    Some(ParentContext { link, root, limits: launch.ceiling.unwrap_or(launch.limits) })
}

/// Returns the sequence number of a turn's last event; the error is the number of turns.
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
