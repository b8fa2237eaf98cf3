//! The life of threads: start, spawn, recovery, continuation, result.

use crate::image_objects;
use std::collections::BTreeSet;
use std::sync::Arc;

use rye_compiler::compile::Compilation;
use rye_compiler::plan::{Grant, Plan, PlanLimits, PlanMode};
use rye_compiler::trust::requirements_of_plan;
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use self::continuation::PriorOwner;
use crate::context::{EngineContext, RunningThread, StartOptions, TaskEnd, ThreadHandle};
use crate::control::{ControlReceiver, ControlSender};
use crate::driver::embedded::EmbeddedDriver;
use crate::driver::{DrivenThread, Driver, drive};
use crate::error::DriveError;
use crate::error::EngineError;
use crate::event::{Continues, ControlMessage, Opened, ParentLink, ThreadOrigin};
use crate::image::{self, ImageRef, ValidatedImage};
use crate::journal::Journal;
use crate::live::EventSink;
use crate::machine::retained_messages::InheritedMessages;
use crate::machine::{Fact, Signal, ThreadState};
use crate::message::ToolCall;
use crate::store::{Change, LedgerStep, ObjectId, Registry, StoreError, ThreadRow, Transcript};
use crate::thread::{PrintedCost, RunResult, Status};
use crate::thread_id::ThreadId;
use crate::{control, live};

pub(crate) mod artifacts;
pub(crate) mod children;
mod continuation;
pub(crate) mod descendants;
mod lease;
pub mod rewind;
pub(crate) mod spawn_external;
mod watch_detached;
pub(crate) use continuation::ResumePoint;
mod recover;
mod succession;
pub(crate) mod verified;
mod verify_stored_plan;

/// Maximum number of threads in a continuation chain. A longer chain counts as a loop.
pub(crate) const MAX_CHAIN_THREADS: usize = 1_000;

/// The data with which a new thread is started.
pub(crate) struct ThreadInit {
    pub plan: Arc<Plan>,
    pub plan_id: String,
    pub inputs: Map<String, Value>,
    pub origin: ThreadOrigin,
    pub limits: PlanLimits,
    /// The capability sets that must all allow an action, the thread's own first.
    pub grants: Vec<Vec<Grant>>,
    pub parent: Option<ParentContext>,
    pub continues: Option<Continues>,
    pub history: InheritedMessages,
    /// The images of the first message, stored as objects when the thread starts.
    pub shown: Vec<ValidatedImage>,
    pub sink: Arc<EventSink>,
    /// A bound on the children of the same parent that run at the same time; `None` if there is no bound.
    pub queue: Option<Arc<Semaphore>>,
    /// The tool call that the thread runs instead of a directive; `None` for a thread with a conversation.
    pub call: Option<Box<ToolCall>>,
    /// For a continuation: the part of the continued thread's duration beyond whole seconds, in milliseconds. This part
    /// counts towards the duration of the new thread.
    pub carried_ms: u64,
    /// True if the thread completes although required outputs are missing.
    pub allow_missing_outputs: bool,
    /// True if the thread continues a chat, and the process that ran the chat died before it could start this thread.
    /// The new thread is then recorded as recovered, and waits for the user.
    pub is_recovery: bool,
}

impl ThreadInit {
    /// Returns references to the images of the first message.
    pub(crate) fn images(&self) -> Vec<ImageRef> {
        self.shown.iter().map(|picture| picture.image().clone()).collect()
    }
}

/// The registry rows to write before a new thread's first event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowsToWrite {
    /// The registry row and the account of a root thread are written. If `durable` is true, the first lines of the
    /// transcript are synced before the thread runs.
    Root { durable: bool },
    /// A registry row, an account, and the link from the thread that the new thread continues are written.
    Linked,
    /// No row is written: the registry row and the account of the thread exist already.
    Existing,
}

/// The parent of a new child: the child's link to the parent, the root of the tree, and the limits that bound the
/// child.
#[derive(Debug, Clone)]
pub(crate) struct ParentContext {
    pub link: ParentLink,
    pub root: ThreadId,
    pub limits: PlanLimits,
}

impl EngineContext {
    pub(crate) async fn start_root(
        self: &Arc<Self>,
        compilation: &Compilation,
        launch: StartOptions,
    ) -> Result<ThreadHandle, EngineError> {
        if let Some(parent) = launch.parent {
            return self.start_child_of(compilation, parent, launch.images, launch.allow_missing_outputs).await;
        }
        let plan = self.plans.get_or_insert(&compilation.plan_id, || compilation.plan.clone());
        let inputs = if launch.inputs.is_empty() { plan.interface.values.clone() } else { launch.inputs };
        let (sink, events) = live::event_channel();
        let init = ThreadInit {
            inputs,
            plan_id: compilation.plan_id.clone(),
            origin: if plan.mode == PlanMode::Chat { ThreadOrigin::Chat } else { ThreadOrigin::Run },
            limits: plan.thread_limits(),
            grants: vec![plan.capabilities.grants.clone()],
            parent: None,
            continues: None,
            history: InheritedMessages::default(),
            shown: launch.images,
            sink: Arc::new(sink),
            queue: None,
            call: None,
            carried_ms: 0,
            allow_missing_outputs: launch.allow_missing_outputs,
            is_recovery: false,
            plan,
        };
        image::check_accepted(&init.plan.model, &init.images())?;
        self.admit_compiled(compilation).await?;
        let id = self.allocate_except(&init.plan, launch.taken).await.map_err(start_failure)?;
        let rows = RowsToWrite::Root { durable: launch.durable };
        let running = self.start_root_thread(id.clone(), init, rows).await.map_err(start_failure)?;
        Ok(ThreadHandle::new(id, events, running))
    }

    /// Checks that the user trusts all trust requirements of a compiled plan.
    pub(crate) async fn admit_compiled(self: &Arc<Self>, compilation: &Compilation) -> Result<(), DriveError> {
        let (engine, directive) = (Arc::clone(self), compilation.plan.directive.clone());
        let executes = compilation.trust_requirements.clone();
        self.thread_count.run_blocking(move || engine.check_requirements(&directive, executes)).await?
    }

    /// Allocates an id for a new thread of this plan, after checking the trust requirements of the plan.
    pub(crate) async fn allocate(self: &Arc<Self>, plan: &Plan) -> Result<ThreadId, DriveError> {
        self.allocate_except(plan, BTreeSet::new()).await
    }

    /// Allocates an id as [`Self::allocate`] does, but none of the ids in `taken`.
    async fn allocate_except(self: &Arc<Self>, plan: &Plan, taken: BTreeSet<ThreadId>) -> Result<ThreadId, DriveError> {
        let (engine, directive, executes) = (Arc::clone(self), plan.directive.clone(), requirements_of_plan(plan, &[]));
        let name = move || {
            engine.check_requirements(&directive, executes)?;
            Ok(engine.ids.allocate_except(&directive, engine.clock.now(), &taken)?)
        };
        self.thread_count.run_blocking(name).await?
    }

    /// Reads the registry with `scan`. If several threads are running in this process, `scan` runs on the blocking
    /// pool.
    pub(crate) async fn read_registry<T: Send + 'static>(
        &self,
        scan: impl FnOnce(&Registry) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, DriveError> {
        let registry = Arc::clone(self.writer.registry());
        Ok(self.thread_count.run_blocking(move || scan(&registry)).await??)
    }

    /// Starts a root thread in a task of its own. The start completes even if the caller is dropped meanwhile.
    /// Otherwise the registry could keep the row of a thread that no task ends.
    pub(crate) async fn start_root_thread(
        self: &Arc<Self>,
        id: ThreadId,
        init: ThreadInit,
        rows: RowsToWrite,
    ) -> Result<RunningThread, DriveError> {
        let (engine, starting) = (Arc::clone(self), self.await_child_guard());
        let start = tokio::spawn(async move {
            let _starting = starting;
            engine.start_thread(id, init, rows).await
        });
        start.await?
    }

    /// Writes the registry rows and the first events of a thread, and starts the thread. If the start fails, a thread
    /// whose rows this function has written is finalized. If the rows existed before (`RowsToWrite::Existing`, as for a
    /// child), the lease on the thread is released, so that the thread can be recovered. A caller whose future may be
    /// dropped must call this function in a task of its own.
    pub(crate) async fn start_thread(
        self: &Arc<Self>,
        id: ThreadId,
        init: ThreadInit,
        rows: RowsToWrite,
    ) -> Result<RunningThread, DriveError> {
        let written = Box::pin(self.write_init(id.clone(), init, rows)).await;
        if let Err(error) = &written {
            match rows {
                RowsToWrite::Root { .. } | RowsToWrite::Linked => {
                    if let Err(second) = self.finalize_row(&id, Status::Error).await {
                        tracing::debug!(thread = %id, %error, %second, "its row stays");
                    }
                }
                RowsToWrite::Existing => self.release(&id, None).await,
            }
        }
        written
    }

    async fn write_init(
        self: &Arc<Self>,
        id: ThreadId,
        init: ThreadInit,
        rows: RowsToWrite,
    ) -> Result<RunningThread, DriveError> {
        let engine = Arc::clone(self);
        let (name, plan, plan_id) = (id.clone(), Arc::clone(&init.plan), init.plan_id.clone());
        let (images, shown) = (init.images(), init.shown);
        // The first set is the thread's own, including the grants of the hook that starts the thread.
        let granted = init.grants.first().cloned().unwrap_or_default();
        let is_stored = match init.origin {
            ThreadOrigin::Resume | ThreadOrigin::Handoff | ThreadOrigin::Fork => true,
            ThreadOrigin::Run | ThreadOrigin::Chat | ThreadOrigin::Child | ThreadOrigin::Replan => false,
        };
        let prepare = move || -> Result<Transcript, DriveError> {
            if is_stored || matches!(rows, RowsToWrite::Existing) {
                engine.check_recovery(&plan, &granted)?;
            } else {
                engine.check_admission(&plan, &granted)?;
            }
            image_objects::store_images(&shown, &engine.objects)?;
            if engine.plans.store(&plan_id, &plan, &engine.objects)? {
                engine.store_sources(&plan)?;
            }
            Ok(Transcript::create(Arc::clone(&engine.disk), &name)?)
        };
        let transcript = self.thread_count.run_blocking(prepare).await??;
        let state = ThreadState::inheriting(init.history);
        let (objects, signer) = (Arc::clone(&self.objects), Arc::clone(&self.signer));
        let journal =
            Journal::new(id.clone(), transcript, objects, signer, Arc::clone(&init.sink), self.thread_count.clone());
        let mut thread = DrivenThread { id: id.clone(), plan: init.plan, state, journal, unconfirmed: Vec::new() };

        let now = self.clock.now();
        let mut seed = [0_u8; 8];
        getrandom::fill(&mut seed)
            .map_err(|error| DriveError::Lost(format!("cannot get random bytes from the system ({error})")))?;
        let root = init.parent.as_ref().map_or_else(|| id.clone(), |above| above.root.clone());
        let launch = Opened {
            thread_id: id.to_string(),
            directive: thread.plan.directive.to_string(),
            origin: init.origin,
            parent: init.parent.as_ref().map(|above| above.link.clone()),
            root: root.to_string(),
            inputs: init.inputs,
            limits: init.limits,
            ceiling: init.parent.as_ref().map(|above| above.limits),
            grants: init.grants,
            // The seed has 53 bits, because JSON readers may not preserve more.
            seed: u64::from_le_bytes(seed) >> 11,
            project_path: self.project.display().to_string(),
            attended: self.approvals.has_approver(),
            images,
            call: init.call,
            carried_ms: init.carried_ms,
            allow_missing_outputs: init.allow_missing_outputs,
            settings: self.settings.clone(),
            serves_client: self.providers.serves_client(&thread.plan.directive),
        };
        let mut row = ThreadRow::new(id.clone(), &launch.directive, now);
        row.tool = launch.tool().map(str::to_owned);
        row.status = Status::Running;
        row.root = root;
        row.plan_id = Some(init.plan_id.clone());
        row.owner = Some(self.owner.id().clone());
        row.parent = init.parent.as_ref().and_then(|above| ThreadId::parse(&above.link.thread_id).ok());
        row.spawn = init.parent.as_ref().map(|above| above.link.spawn);
        row.spawns = Some(init.limits.spawns);
        row.continues = init.continues.as_ref().and_then(|c| ThreadId::parse(&c.thread).ok());
        let fact =
            Fact::Opened { launch: Box::new(launch), plan_id: init.plan_id, continues: init.continues.map(Box::new) };
        thread.record_signal(Signal { at: now, fact });
        if init.is_recovery {
            let fact = Fact::Recovered { owner: self.owner.id().to_string(), cut_bytes: 0 };
            thread.record_signal(Signal { at: now, fact });
        }
        // The row is written before the first event, so that every thread with an event is listed and can be recovered.
        let register = || Change::Ledger(LedgerStep::register(&id, init.limits.spend));
        let changes = match rows {
            RowsToWrite::Root { .. } => vec![Change::Put(Box::new(row)), register()],
            RowsToWrite::Linked => {
                let link = row.continues.clone().map(|before| self.link_continuation(&before, &id));
                [Change::Put(Box::new(row)), register()].into_iter().chain(link).collect()
            }
            RowsToWrite::Existing => Vec::new(),
        };
        if !changes.is_empty() {
            self.writer.commit(changes).await?;
        }
        // A power failure may lose the registry. The first lines of the transcript are synced, because the parent
        // records the child after this point, and because a resume has accepted the message of the user.
        let durable = match rows {
            RowsToWrite::Root { durable } => durable,
            RowsToWrite::Linked | RowsToWrite::Existing => true,
        };
        thread.journal.flush(durable).await?;
        self.spawn_task(thread, init.sink, init.queue)
    }

    /// Starts a task that runs a thread. `queue` bounds the number of siblings that run at the same time: if it is
    /// given, the task first waits for a permit. A cancellation or a kill of the thread ends this wait.
    pub(crate) fn spawn_task(
        self: &Arc<Self>,
        thread: DrivenThread,
        sink: Arc<EventSink>,
        queue: Option<Arc<Semaphore>>,
    ) -> Result<RunningThread, DriveError> {
        let Some(launch) = thread.state.launch.clone() else {
            return Err(DriveError::Plan(format!("`{}` was never opened", thread.id)));
        };
        let plan = (thread.state.plan_id.as_str(), Arc::clone(&thread.plan));
        let driver = EmbeddedDriver::new(Arc::clone(self), thread.id.clone(), plan, launch, Arc::clone(&sink))?;
        let driver: Arc<dyn Driver> = Arc::new(driver);
        let (sender, mut control) = control::control_channel(self.owner.id().as_str());
        let (tell, done) = watch::channel(None);
        let own = sender.clone();
        let running = RunningThread { control: sender, done };
        let id = thread.id.clone();
        self.register(&id, running.clone());
        let engine = Arc::clone(self);
        let lost = failure_result(&thread, &DriveError::Lost("the thread's own".into()));
        // The box keeps the futures small: each nested future has its own space for a value that is moved into it.
        let thread = Box::new(thread);
        let working = Arc::clone(self);
        let work = tokio::spawn(async move {
            let _turn = acquire_slot(queue, &mut control).await;
            working.run_to_end(thread, driver, (own, control), sink).await
        });
        tokio::spawn(async move {
            // A panic in one thread does not affect others.
            let result = if let Ok(result) = work.await {
                result
            } else {
                engine.release(&id, None).await;
                lost.into()
            };
            engine.unregister(&id);
            // There may be no receiver.
            let _ = tell.send(Some(result));
        });
        Ok(running)
    }

    /// Runs a thread and its continuations, and returns the result of the last of these threads.
    async fn run_to_end(
        self: &Arc<Self>,
        mut thread: Box<DrivenThread>,
        driver: Arc<dyn Driver>,
        (own, mut control): (ControlSender, ControlReceiver),
        sink: Arc<EventSink>,
    ) -> TaskEnd {
        let owner = if thread.state.ended.is_some() { PriorOwner::Unknown } else { PriorOwner::ThisProcess };
        self.write_initial(&thread).await;
        let ended = drive(&mut thread, &driver, &mut control).await;
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // The thread has not ended, and this process does not continue it.
                self.release(&thread.id, None).await;
                return task_failure(&thread, &error);
            }
        };
        if ended.status == Status::Continued {
            return match Box::pin(self.continue_after_handoff(&thread.id, owner, sink)).await {
                Ok(running) => {
                    redirect(&thread.state, &own, &mut control, &running.control);
                    Box::pin(async move { running.end().await }).await
                }
                Err(error) => task_failure(&thread, &error),
            };
        }
        let tool = thread.state.launch.as_ref().and_then(|launch| launch.tool());
        let result = RunResult::of(&thread.id, thread.plan.directive.as_str(), &thread.state.plan_id, &ended);
        RunResult { tool: tool.map(str::to_owned), ..result }.into()
    }
}

/// Forwards the messages that the thread has not handled to the continuation of the thread, and redirects all later
/// messages for the thread to the continuation.
fn redirect(state: &ThreadState, own: &ControlSender, unread: &mut ControlReceiver, next: &ControlSender) {
    // A `close` message arrives only once, so it is repeated for the continuation.
    if state.chat.as_ref().is_some_and(|chat| chat.is_closing) {
        next.send(ControlMessage::Close);
    }
    own.redirect(next, &state.mailbox.received);
    while let Some(item) = unread.try_next() {
        next.forward(item);
    }
}

/// Waits until fewer siblings run than the bound allows, and returns a permit to run. `None` if there is no bound, or
/// as soon as the thread is cancelled or killed.
async fn acquire_slot(queue: Option<Arc<Semaphore>>, control: &mut ControlReceiver) -> Option<OwnedSemaphorePermit> {
    let queue = queue?;
    tokio::select! {
        biased;
        turn = queue.acquire_owned() => turn.ok(),
        () = control.stopped() => None,
    }
}

/// Converts the error of starting a root thread. If the disk is full, returns [`EngineError::NotStarted`], whose reason
/// does not advise to resume the thread: no transcript exists, so nothing can be resumed.
fn start_failure(error: DriveError) -> EngineError {
    if let DriveError::Store(error) = &error
        && error.is_full_disk()
    {
        return EngineError::NotStarted { reason: error.without_remedy() };
    }
    error.into()
}

/// Returns the end of a task whose thread cannot proceed in this process.
fn task_failure(thread: &DrivenThread, error: &DriveError) -> TaskEnd {
    let of_store =
        matches!(error, DriveError::Store(_) | DriveError::ChildStopped { .. }) && !error.is_transcript_fault();
    TaskEnd { result: failure_result(thread, error), store_failure: of_store.then(|| error.to_string()) }
}

fn failure_result(thread: &DrivenThread, error: &DriveError) -> RunResult {
    RunResult {
        thread_id: thread.id.to_string(),
        directive: thread.plan.directive.to_string(),
        tool: thread.state.launch.as_ref().and_then(|launch| launch.tool()).map(str::to_owned),
        plan_id: thread.state.plan_id.clone(),
        cost: PrintedCost::from(thread.state.cost),
        ..RunResult::engine_failure(&error.to_string())
    }
}

/// Reads the plan with the id `plan_id` from the object store.
pub(crate) fn stored_plan(engine: &EngineContext, plan_id: &str) -> Result<Plan, DriveError> {
    let bytes = engine.objects.get(&ObjectId::parse(plan_id)?)?;
    serde_json::from_slice(&bytes).map_err(|error| DriveError::Plan(error.to_string()))
}

#[cfg(test)]
mod tests;
