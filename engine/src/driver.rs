//! The driver (`engine.md` 1): takes the next effect of the machine, writes the decision, performs the effect, and
//! returns its result as a signal. The driver itself decides nothing.

pub mod embedded;
mod stream;

use crate::control::{ControlReceiver, Incoming, RecordWaiter};
use crate::error::DriveError;
use crate::journal::Journal;
use std::collections::VecDeque;
use std::sync::Arc;

use rye_compiler::plan::{Grant, Plan};
use tokio::task::JoinSet;

use crate::BoxFuture;
use crate::event::{ControlMessage, Ended, Settled};
use crate::exchange::{Request, RequestTurns};
use crate::machine::state::CallPhase;
use crate::machine::{self, Effect, Fact, ModelCall, Signal, StepKey, ThreadState};
use crate::thread::Cost;
use crate::thread_id::ThreadId;
use crate::tool::cancellation::CancellationToken;
pub use stream::{LiveLine, LivePiece};

/// A performer of effects. The embedded driver performs effects in this process. The trait is object-safe, so that
/// another implementation can, for example, run effects as durable operations with the step keys as ids.
pub trait Driver: Send + Sync {
    /// Returns the part of the conversation that the request of a model call contains: all of it, or only the messages
    /// since the last reply. `fallback` is true if the fallback model is called.
    fn request_turns(&self, fallback: bool, call: ModelCall) -> RequestTurns;
    /// Returns true if the calls of the thread come from a client instead of a model. A reply then costs nothing, and
    /// the client gets the answer to a call only after the next barrier.
    fn serves_client(&self) -> bool;
    /// Performs an effect and returns its result.
    fn perform(&self, step: EffectStep) -> BoxFuture<'_, Result<Signal, DriveError>>;
    /// Returns the time in milliseconds since 1970.
    fn now(&self) -> i64;
    /// Returns a cancellation token. The token is cancelled as soon as a message arrives that cancels or kills the
    /// thread.
    fn halt(&self) -> CancellationToken;
    /// Forwards a cancellation or a kill to children and to calls under way.
    fn forward(&self, children: &[String], message: &ControlMessage);
    /// Returns the results of effects that were dropped before their end: the output of calls, and the text of a reply.
    fn cut_work(&self) -> BoxFuture<'_, Result<Vec<Signal>, DriveError>>;
    /// Stops one call of the reply, now or when it starts. The thread continues with the call's error.
    fn stop_call(&self, call_id: &str);
    /// Writes the artifacts of a thread that has ended. A failure to write them does not fail the thread.
    fn write_final<'a>(&'a self, thread: &'a DrivenThread, ended: &'a Ended, artifact: Artifact) -> BoxFuture<'a, ()>;
    /// Removes a control message from the mailbox on disk, after it was recorded durably.
    fn remove_message<'a>(&'a self, mail: &'a str) -> BoxFuture<'a, ()>;
}

/// The artifacts to write for a thread that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Artifact {
    /// The export of the thread: a knowledge item that `rye fetch` can read. If the thread has hooks that run at its
    /// end, the export is written before they run.
    Export,
    /// `thread.json` with the result, written after the last event.
    Snapshot,
    Both,
}

/// An effect with its [`StepKey`], and the data of the thread that the driver needs to perform the effect.
#[derive(Debug)]
pub struct EffectStep {
    pub key: StepKey,
    pub effect: Effect,
    /// The request, if the effect is a model call.
    pub request: Option<Box<Request>>,
    pub cost: Cost,
    /// The number of the current or last prompt; 0 before the first prompt of a chat, and in a run.
    pub prompt: u64,
    /// Number of events known to be on disk.
    pub synced: u64,
    /// Settlements that are not in the ledger yet. During a long effect, the driver books the settlements in the
    /// ledger.
    pub unsettled: Vec<Settled>,
    /// The token that stops this effect. The token is cancelled if the thread is cancelled after the machine has chosen
    /// the effect, even before the effect starts.
    pub halt: CancellationToken,
    /// The time at which the duration limit of the thread is reached; `None` while the thread waits for an approval.
    pub deadline: Option<Deadline>,
    /// The grants of the current prompt, then the grants of each thread of the spawn chain. A call needs a grant in
    /// each list. `None` if the prompt does not narrow the grants of the thread.
    pub narrowed: Option<Arc<[Vec<Grant>]>>,
}

/// The time at which the thread reaches its duration limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// Milliseconds from the start of the effect to the deadline.
    pub remaining_ms: u64,
    /// The deadline in milliseconds since 1970. A signal about work that was cut at the deadline has this time or a
    /// later one, even if the clock shows an earlier time.
    pub at: i64,
}

/// A thread together with the data that the driver needs to run it: plan, state and journal.
#[derive(Debug)]
pub struct DrivenThread {
    pub id: ThreadId,
    pub plan: Arc<Plan>,
    pub state: ThreadState,
    pub journal: Journal,
    /// Senders of recorded messages that wait until the records are on disk.
    pub unconfirmed: Vec<RecordWaiter>,
}

impl DrivenThread {
    /// Records a signal and folds its events. Returns the number of events.
    pub(crate) fn record_signal(&mut self, signal: Signal) -> usize {
        let at = signal.at;
        let bodies = machine::absorb(&self.plan, &self.state, signal);
        let count = bodies.len();
        for body in bodies {
            let event = self.journal.push(at, body);
            machine::apply(&mut self.state, &event);
        }
        count
    }

    fn step(&self, effect: Effect, halt: CancellationToken, driver: &dyn Driver) -> EffectStep {
        let now = self.state.clock.now;
        let remaining_ms = self
            .state
            .remaining_ms_at(now)
            .or_else(|| self.state.idle_compaction_ms(now, self.plan.limits.duration_seconds));
        let deadline = remaining_ms.map(|remaining_ms| Deadline {
            remaining_ms,
            at: now.saturating_add(i64::try_from(remaining_ms).unwrap_or(i64::MAX)),
        });
        let mut request = None;
        if let Effect::CallModel { fallback, call, .. } = effect {
            let turns = driver.request_turns(fallback, call);
            request = Some(Box::new(machine::build_request(&self.plan, &self.state, call, turns)));
        }
        EffectStep {
            key: effect.key(self.state.events),
            effect,
            request,
            cost: self.state.cost,
            prompt: self.state.chat.as_ref().map_or(0, |chat| chat.prompts),
            synced: self.journal.synced(),
            unsettled: self.state.unsettled.clone(),
            halt,
            deadline,
            narrowed: self.state.chat.as_ref().and_then(|chat| chat.narrowed.clone()),
        }
    }
}

/// Runs a thread until it ends: repeatedly performs the next effect and records its result. Returns the data of the
/// event `ended`.
pub(crate) async fn drive(
    thread: &mut DrivenThread,
    driver: &Arc<dyn Driver>,
    control: &mut ControlReceiver,
) -> Result<Arc<Ended>, DriveError> {
    let mut settled = Vec::new();
    let mut exported = false;
    loop {
        // An ended thread records nothing: its continuation receives the inputs that were not read.
        let recorded = thread.state.events;
        while thread.state.ended.is_none()
            && let Some(post) = control.try_next()
        {
            settled.extend(record_incoming(thread, driver, post)?);
        }
        if thread.state.events != recorded {
            publish_state(thread, control);
        }
        confirm_messages(thread).await?;
        match machine::next(&thread.plan, &thread.state) {
            Effect::Record => record_decision(thread, driver)?,
            Effect::Done { settle, ended, cancel, leaves } => {
                thread.journal.flush(true).await?;
                let end = Arc::clone(&ended);
                let both = !exported && !end.status.is_parked();
                let artifact = if both { Artifact::Both } else { Artifact::Snapshot };
                let step = thread.step(Effect::Done { settle, ended, cancel, leaves }, driver.halt(), &**driver);
                // The artifacts are written before the registry records the end. If the process dies in between,
                // recovery writes the artifacts again.
                driver.write_final(thread, &end, artifact).await;
                driver.perform(step).await?;
                discard_messages(driver, &mut settled).await;
                return Ok(end);
            }
            effect @ (Effect::Reserve(_)
            | Effect::CallModel { .. }
            | Effect::RunTools(_)
            | Effect::RunHooks(_)
            | Effect::RunCommand { .. }
            | Effect::Spawn(_)
            | Effect::Await(_)
            | Effect::Sleep { .. }
            | Effect::Ask { .. }
            | Effect::Wait) => {
                flush_before(thread, driver, &effect).await?;
                if thread.journal.is_durable() {
                    discard_messages(driver, &mut settled).await;
                }
                if let Effect::RunHooks(run) = &effect
                    && let Some(ended) = run.ended.as_deref().filter(|_| !exported)
                {
                    driver.write_final(thread, ended, Artifact::Export).await;
                    exported = true;
                }
                publish_state(thread, control);
                perform(thread, driver, control, effect, &mut settled).await?;
            }
        }
    }
}

/// Publishes the state of a chat. A sender of a message reads the state as soon as the record of the message is
/// confirmed, so the state is published before that.
fn publish_state(thread: &DrivenThread, control: &ControlReceiver) {
    if thread.state.chat.is_some() {
        control.publish(&thread.plan, &thread.state);
    }
}

/// Writes the buffered events before an effect, and syncs them if the effect acts outside the thread. In a thread that
/// serves an MCP client, an effect that only reads needs no sync, and events that can be derived again after a crash
/// are not written before a model call.
async fn flush_before(thread: &mut DrivenThread, driver: &Arc<dyn Driver>, effect: &Effect) -> Result<(), DriveError> {
    let mut barrier = effect.has_side_effects(&thread.plan);
    if driver.serves_client() {
        if matches!(effect, Effect::CallModel { .. }) && thread.journal.is_durable() {
            // The buffered events can be derived again after a crash, so they may wait for the next write.
            return Ok(());
        }
        barrier &= !effect.only_reads(&thread.plan);
    }
    thread.journal.flush(barrier).await
}

/// The policy of an effect: the control messages that may end the effect early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InterruptPolicy {
    /// The effect is a wait, which any control message ends.
    AnyMessage,
    /// The effect does work, such as a model call. Only a kill or an interruption ends the effect.
    Killed,
    /// No control message ends the effect. So either all children of a group are created, or none. After a kill, the
    /// children are still created, and then ended.
    Done,
}

/// Maximum number of calls of one group that run at the same time.
const MAX_PARALLEL_CALLS: usize = 64;

/// Performs an effect, and records the control messages that arrive before the effect has ended. If messages need an
/// intake, the intake runs concurrently with the effect.
async fn perform(
    thread: &mut DrivenThread,
    driver: &Arc<dyn Driver>,
    control: &mut ControlReceiver,
    effect: Effect,
    settled: &mut Vec<String>,
) -> Result<(), DriveError> {
    let until = match effect {
        Effect::Sleep { .. } | Effect::Ask { .. } | Effect::Wait => InterruptPolicy::AnyMessage,
        Effect::Spawn(_) => InterruptPolicy::Done,
        Effect::Record
        | Effect::Reserve(_)
        | Effect::CallModel { .. }
        | Effect::RunTools(_)
        | Effect::RunHooks(_)
        | Effect::RunCommand { .. }
        | Effect::Await(_)
        | Effect::Done { .. } => InterruptPolicy::Killed,
    };
    let runs_command = matches!(effect, Effect::RunCommand { .. });
    let takes_input = match effect {
        Effect::CallModel { .. }
        | Effect::RunTools(_)
        | Effect::Await(_)
        | Effect::Sleep { .. }
        | Effect::Ask { .. } => true,
        // No message passes its intake during these effects. `RunHooks`: the hooks of two points must not run at the
        // same time. The other effects are short, or end when the message arrives.
        Effect::RunHooks(_)
        | Effect::RunCommand { .. }
        | Effect::Record
        | Effect::Reserve(_)
        | Effect::Spawn(_)
        | Effect::Wait
        | Effect::Done { .. } => false,
    };
    let halt = driver.halt();
    let most = if matches!(effect, Effect::RunTools(_)) { MAX_PARALLEL_CALLS } else { usize::MAX };
    let mut parts: VecDeque<Effect> = split(effect).into();
    // A single effect needs no task of its own.
    let mut single = None;
    let mut running = JoinSet::new();
    if parts.len() == 1 {
        single = parts.pop_front().map(|part| driver.perform(thread.step(part, halt.clone(), &**driver)));
    }
    let start_parts = |thread: &DrivenThread, parts: &mut VecDeque<Effect>, running: &mut JoinSet<_>| {
        while running.len() < most
            && let Some(part) = parts.pop_front()
        {
            let (driver, step) = (Arc::clone(driver), thread.step(part, halt.clone(), &**driver));
            running.spawn(async move { driver.perform(step).await });
        }
    };
    start_parts(thread, &mut parts, &mut running);
    let mut intake = start_intake(thread, driver, takes_input).await?;
    while single.is_some() || !running.is_empty() || intake.is_some() {
        tokio::select! {
            // `biased` takes a finished result before an input, so that a later input cannot discard the result.
            biased;
            done = resolve(&mut single), if single.is_some() => {
                single = None;
                let done = done?;
                if matches!(done.fact, Fact::Answered(_) | Fact::CannotRun(_)) {
                    record_answer(thread, driver, control, done, settled)?;
                } else {
                    thread.record_signal(done);
                }
            }
            Some(done) = running.join_next() => {
                thread.record_signal(done??);
                // Results that are ready together share one write.
                while let Some(done) = running.try_join_next() {
                    thread.record_signal(done??);
                }
                start_parts(thread, &mut parts, &mut running);
                if !running.is_empty() {
                    thread.journal.flush(false).await?;
                }
            }
            done = resolve(&mut intake), if intake.is_some() => {
                thread.record_signal(done?);
                thread.journal.flush(true).await?;
                publish_state(thread, control);
                let continues = single.is_some() || !running.is_empty();
                intake = start_intake(thread, driver, continues).await?;
            }
            Some(post) = control.next() => {
                let stops_command = runs_command && is_interruption(&post);
                if record_and_check_interrupt(thread, driver, control, post, until, settled).await? || stops_command {
                    running.shutdown().await;
                    single = None;
                    // An intake that has started is finished, unless the thread or the prompt ends.
                    if intake.is_none() || until != InterruptPolicy::AnyMessage || ends_intake(&thread.state) {
                        drop(intake);
                        for signal in driver.cut_work().await? {
                            thread.record_signal(signal);
                        }
                        return Ok(());
                    }
                } else if intake.is_none() {
                    intake = start_intake(thread, driver, takes_input).await?;
                }
            }
        }
    }
    Ok(())
}

/// Starts the next command of the user or the intake of the next queued message. `None` if neither waits, or if
/// `takes_input` is false.
async fn start_intake<'d>(
    thread: &mut DrivenThread,
    driver: &'d Arc<dyn Driver>,
    takes_input: bool,
) -> Result<Option<BoxFuture<'d, Result<Signal, DriveError>>>, DriveError> {
    let effect = if takes_input { machine::next_intake(&thread.plan, &thread.state) } else { None };
    let Some(effect) = effect else { return Ok(None) };
    thread.journal.flush(effect.has_side_effects(&thread.plan)).await?;
    Ok(Some(driver.perform(thread.step(effect, driver.halt(), &**driver))))
}

/// Waits for a future if there is one. Otherwise never completes.
async fn resolve<T>(future: &mut Option<BoxFuture<'_, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Returns true for a message that interrupts a prompt or a command of the user.
fn is_interruption(post: &Incoming) -> bool {
    matches!(post, Incoming::Message { message: ControlMessage::Interrupt, .. })
}

fn ends_intake(state: &ThreadState) -> bool {
    state.mailbox.killed || state.mailbox.cancelled || state.is_interrupted()
}

/// Records an input that arrived during an effect. Returns true if the input ends the effect.
async fn record_and_check_interrupt(
    thread: &mut DrivenThread,
    driver: &Arc<dyn Driver>,
    control: &ControlReceiver,
    post: Incoming,
    until: InterruptPolicy,
    settled: &mut Vec<String>,
) -> Result<bool, DriveError> {
    let message = if let Incoming::Message { message, .. } = &post { Some(message.clone()) } else { None };
    if let Incoming::FileChanged { change, recorded } = post {
        // The tool of a stopped call does not write the file, so its change is not recorded.
        if recorded.is_waiting() {
            thread.record_signal(Signal { at: driver.now(), fact: Fact::FileChanged(change) });
            thread.journal.flush(true).await?;
            recorded.confirm();
        }
        return Ok(false);
    }
    settled.extend(record_incoming(thread, driver, post)?);
    thread.journal.flush(true).await?;
    publish_state(thread, control);
    confirm_messages(thread).await?;
    discard_messages(driver, settled).await;
    Ok(match until {
        InterruptPolicy::AnyMessage => message.is_some(),
        InterruptPolicy::Killed => message == Some(ControlMessage::Kill) || thread.state.is_interrupted(),
        InterruptPolicy::Done => false,
    })
}

/// Records the handler's answer to an approval request, and the inputs that have arrived meanwhile. Only the first
/// recorded answer takes effect. If the inputs contain answers of users, the inputs up to the last of these answers are
/// recorded before the handler's answer. The other inputs are recorded after it, because an interruption that is
/// recorded first would discard the handler's answer.
fn record_answer(
    thread: &mut DrivenThread,
    driver: &Arc<dyn Driver>,
    control: &mut ControlReceiver,
    answer: Signal,
    settled: &mut Vec<String>,
) -> Result<(), DriveError> {
    let mut waiting: Vec<Incoming> = std::iter::from_fn(|| control.try_next()).collect();
    let is_answer = |post: &Incoming| matches!(post, Incoming::Message { message: ControlMessage::Approve { .. }, .. });
    let behind = waiting.split_off(waiting.iter().rposition(is_answer).map_or(0, |last| last + 1));
    for post in waiting {
        settled.extend(record_incoming(thread, driver, post)?);
    }
    thread.record_signal(answer);
    record_refused_call(thread, driver)?;
    for post in behind {
        settled.extend(record_incoming(thread, driver, post)?);
    }
    Ok(())
}

/// Records the result of a call whose approval was refused, so that a later interruption does not record the call as
/// skipped.
fn record_refused_call(thread: &mut DrivenThread, driver: &Arc<dyn Driver>) -> Result<(), DriveError> {
    while has_refused_call(&thread.state) && machine::next(&thread.plan, &thread.state) == Effect::Record {
        record_decision(thread, driver)?;
    }
    Ok(())
}

/// Returns true if the approval of a call was refused and the call has no result yet.
fn has_refused_call(state: &ThreadState) -> bool {
    let mut waiting = state.calls.list.iter().filter(|call| call.phase == CallPhase::Waiting);
    waiting.any(|call| call.answer.is_some_and(|answer| !answer.is_approved()))
}

/// Records the events of the machine's next decision, for which the driver performs no effect.
///
/// # Errors
///
/// Fails if the decision has no events, because the thread would then never proceed.
fn record_decision(thread: &mut DrivenThread, driver: &Arc<dyn Driver>) -> Result<(), DriveError> {
    let at = thread.journal.pending_time().unwrap_or_else(|| driver.now());
    if thread.record_signal(Signal { at, fact: Fact::Tick }) == 0 {
        return Err(DriveError::Stalled { step: format!("{:?}", thread.state.position) });
    }
    Ok(())
}

/// Handles an input of the thread: records a control message or the end of a child. If a control message ends the
/// thread or interrupts its prompt, also ends the living children. Returns the id of a control message that has a file
/// in the mailbox; `None` for other inputs. The caller removes the file once the record is durable.
fn record_incoming(
    thread: &mut DrivenThread,
    driver: &Arc<dyn Driver>,
    post: Incoming,
) -> Result<Option<String>, DriveError> {
    let (id, message, on_disk) = match post {
        Incoming::Message { id, message, on_disk, recorded } => {
            thread.unconfirmed.extend(recorded);
            (id, message, on_disk)
        }
        Incoming::ChildEnded { spawn, thread_id, status, cost } => {
            let fact = Fact::ChildEnded { spawn, thread_id, status, cost, answer: None };
            thread.record_signal(Signal { at: driver.now(), fact });
            return Ok(None);
        }
        // The call that requested the record has ended.
        Incoming::FileChanged { .. } => return Ok(None),
        Incoming::StopCall { call_id } => {
            driver.stop_call(&call_id);
            return Ok(None);
        }
    };
    // These messages could name a plan with wider grants, or a mode without approval requests. They are refused if they
    // come from another process.
    let is_foreign_change = on_disk
        && matches!(
            message,
            ControlMessage::Replan { .. } | ControlMessage::Mode { .. } | ControlMessage::Fork { thread: Some(_), .. }
        );
    let message = if is_foreign_change {
        let reason = "only the process that runs the thread may change its plan, mode or branch".into();
        ControlMessage::Unreadable { reason }
    } else {
        message
    };
    // An interruption ends the children that the prompt waits for.
    let interrupts = message == ControlMessage::Interrupt && thread.state.chat.is_some() && !thread.state.is_idle();
    if message.end_status().is_some() || interrupts {
        let living = thread.state.living_children().filter(|(_, child)| !interrupts || !child.detached);
        let children: Vec<String> = living.filter_map(|(_, child)| child.thread_id.clone()).collect();
        driver.forward(&children, if interrupts { &ControlMessage::Cancel } else { &message });
    }
    let is_answer = matches!(message, ControlMessage::Approve { .. });
    thread.record_signal(Signal { at: driver.now(), fact: Fact::Mail { id: id.clone(), message } });
    if is_answer {
        record_refused_call(thread, driver)?;
    }
    Ok(on_disk.then_some(id))
}

/// Notifies the senders that wait for the records of their messages, once these records are on disk.
async fn confirm_messages(thread: &mut DrivenThread) -> Result<(), DriveError> {
    if thread.unconfirmed.is_empty() {
        return Ok(());
    }
    thread.journal.flush(true).await?;
    for waiter in thread.unconfirmed.drain(..) {
        waiter.confirm();
    }
    Ok(())
}

async fn discard_messages(driver: &Arc<dyn Driver>, mail: &mut Vec<String>) {
    for id in mail.drain(..) {
        driver.remove_message(&id).await;
    }
}

/// Splits an effect on several calls or several children into effects on one call or one child. These effects are
/// performed and recorded one by one. Every other effect stays whole.
fn split(effect: Effect) -> Vec<Effect> {
    match effect {
        Effect::RunTools(calls) => calls.into_iter().map(|call| Effect::RunTools(vec![call])).collect(),
        Effect::Await(children) => children.into_iter().map(|child| Effect::Await(vec![child])).collect(),
        single @ (Effect::Record
        | Effect::Reserve(_)
        | Effect::CallModel { .. }
        | Effect::RunHooks(_)
        | Effect::RunCommand { .. }
        | Effect::Spawn(_)
        | Effect::Sleep { .. }
        | Effect::Ask { .. }
        | Effect::Wait
        | Effect::Done { .. }) => vec![single],
    }
}
