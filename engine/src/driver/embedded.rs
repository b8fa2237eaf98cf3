//! The in-process driver: performs effects with the engine's store, providers and tools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::{ApprovalOrigin, Grant, Plan, PlanMode};
use rye_grammar::ItemId;
use tokio::sync::{Semaphore, watch};

use super::stream::AttemptStream;
use super::{Artifact, Deadline, DrivenThread, Driver, EffectStep};
use crate::BoxFuture;
use crate::context::{ApprovalRequest, EngineContext};
use crate::error::DriveError;
use crate::event::{Approval, ControlMessage, Ended, HookOutcome, ImpliedRaise, InputSource, Opened, UserInput};
use crate::exchange::{CallError, Delta, FailedStage, Request, RequestTurns};
use crate::hooks::{HookPointResult, HookTable};
use crate::image_objects;
use crate::live::{EventSink, StreamEvent};
use crate::machine::effect::CallToApprove;
use crate::machine::{Effect, Fact, ModelCall, Signal};
use crate::provider::{Provider, text_tools};
use crate::store::mailbox;
use crate::thread::Status;
use crate::thread_id::ThreadId;
use crate::tool::cancellation::{CancellationSource, CancellationToken};
use crate::tool::persistent::{PersistentProcesses, PushHandler, PushedMessage};
use crate::tool::registry::PreparedTool;
use cut_work::CutWork;
use hook_runner::EmbeddedHookRunner;

mod cut_work;
mod expand;
mod hook_answer;
mod hook_runner;
mod ledger;
mod tools;

/// Extra time, in milliseconds, in which awaited children can end after the deadline.
const CHILD_END_GRACE_MS: u64 = 5_000;
type ProviderConnection = Result<Arc<dyn Provider>, CallError>;

/// The in-process driver of one thread.
pub struct EmbeddedDriver {
    pub(crate) engine: Arc<EngineContext>,
    pub(crate) id: ThreadId,
    pub(crate) plan: Arc<Plan>,
    pub(crate) launch: Arc<Opened>,
    pub(crate) sink: Arc<EventSink>,
    /// Permits for concurrent children. A child without a permit waits.
    pub(crate) running: Arc<Semaphore>,
    hooks: Arc<HookTable>,
    provider: OnceLock<ProviderConnection>,
    fallback: OnceLock<ProviderConnection>,
    /// Prepared tools by id, as they were at the first call by this thread.
    tools: Mutex<BTreeMap<ItemId, Arc<PreparedTool>>>,
    persistent: Arc<PersistentProcesses>,
    /// Cancels the calls in progress.
    call_cancellation: CancellationSource,
    /// Ids of calls that are stopped while the thread continues.
    stopped_calls: watch::Sender<BTreeSet<String>>,
    /// The running children that hooks of this thread have started.
    hook_children: Mutex<BTreeSet<ThreadId>>,
    /// The data of the event `opened`, with the grants of the current prompt in place of the grants of the thread.
    /// `None` if the prompt does not narrow the grants.
    narrowed: Mutex<Option<Arc<Opened>>>,
    cut_work: CutWork,
    /// The last update of the registry row of a session that serves an MCP client: its time in milliseconds since 1970,
    /// and true if the client has made a call since then.
    row_update: Mutex<(i64, bool)>,
}

/// A guard. Until the guard is dropped, control messages for the children of the thread are also sent to `child`, which
/// a hook has started.
pub(crate) struct HookChildGuard<'e> {
    embedded: &'e EmbeddedDriver,
    child: ThreadId,
}

impl Drop for HookChildGuard<'_> {
    fn drop(&mut self) {
        self.embedded.hook_children.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.child);
    }
}

impl EmbeddedDriver {
    /// Creates the driver of a thread that starts or resumes.
    pub(crate) fn new(
        engine: Arc<EngineContext>,
        id: ThreadId,
        (plan_id, plan): (&str, Arc<Plan>),
        launch: Arc<Opened>,
        sink: Arc<EventSink>,
    ) -> Result<Self, DriveError> {
        let hooks = engine.plans.hooks(plan_id, &plan, &launch.inputs)?;
        let (provider, fallback, tools) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        let (call_cancellation, hook_children) = (CancellationSource::new(), Mutex::default());
        let most = plan.settings.values().max_concurrent_children;
        let running = Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)));
        let stopped_calls = watch::Sender::default();
        let persistent = Arc::new(match plan.mode {
            PlanMode::Chat => PersistentProcesses::with_pushes(accept_pushes(&engine, &id)),
            PlanMode::Run => PersistentProcesses::default(),
        });
        Ok(Self {
            engine,
            id,
            plan,
            launch,
            sink,
            running,
            hooks,
            provider,
            fallback,
            tools,
            persistent,
            call_cancellation,
            stopped_calls,
            hook_children,
            narrowed: Mutex::default(),
            cut_work: CutWork::default(),
            row_update: Mutex::default(),
        })
    }

    /// Returns the data of the event `opened` with the grant sets that apply to the current prompt.
    pub(crate) fn narrowed_launch(&self) -> Arc<Opened> {
        let narrowed = self.narrowed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        narrowed.unwrap_or_else(|| Arc::clone(&self.launch))
    }

    fn narrow(&self, grants: Option<&[Vec<Grant>]>) {
        let mut narrowed = self.narrowed.lock().unwrap_or_else(PoisonError::into_inner);
        if narrowed.as_ref().map(|launch| &*launch.grants) != grants {
            *narrowed = grants.map(|grants| Arc::new(Opened { grants: grants.to_vec(), ..(*self.launch).clone() }));
        }
    }

    /// Registers a child that a hook started. Dropping the returned guard ends the registration.
    pub(crate) fn register_hook_child(&self, child: &ThreadId) -> HookChildGuard<'_> {
        self.hook_children.lock().unwrap_or_else(PoisonError::into_inner).insert(child.clone());
        HookChildGuard { embedded: self, child: child.clone() }
    }

    fn at(&self, fact: Fact) -> Signal {
        Signal { at: self.engine.clock.now(), fact }
    }

    /// Completes once this call is stopped.
    async fn call_stopped(&self, call_id: &str) {
        // The wait cannot fail: the sender lives as long as this driver.
        self.stopped_calls.subscribe().wait_for(|stopped| stopped.contains(call_id)).await.ok();
    }

    /// Waits until the deadline. Never completes if there is no deadline.
    async fn wait_for_deadline(&self, deadline: Option<Deadline>) {
        match deadline {
            Some(deadline) => self.engine.clock.elapse(deadline.remaining_ms).await,
            None => std::future::pending().await,
        }
    }

    /// Returns the connection to the plan's model or, if `fallback` is true, to its fallback model. Connects at the
    /// first call.
    fn connection(&self, fallback: bool) -> &ProviderConnection {
        let (connected, model) = match self.plan.model.fallback.as_deref().filter(|_| fallback) {
            Some(model) => (&self.fallback, model),
            None => (&self.provider, &self.plan.model),
        };
        connected.get_or_init(|| self.engine.providers.connect(model))
    }

    /// Calls the model. Sets `is_cut` if the call was stopped at the deadline.
    async fn call_model(
        &self,
        (turn, attempt): (u64, u32),
        request: &Request,
        fallback: bool,
        deadline: Option<Deadline>,
        is_cut: &AtomicBool,
    ) -> Fact {
        let provider = match self.connection(fallback) {
            Ok(provider) => Arc::clone(provider),
            Err(error) => return Fact::ModelFailed(Box::new(error.clone())),
        };
        let filled;
        let request = if image_objects::has_unfilled_images(request) {
            filled = match self.filled(request.clone()).await {
                Ok(request) => request,
                Err(error) => return Fact::ModelFailed(Box::new(error)),
            };
            &filled
        } else {
            request
        };
        let (sink, thread) = (Arc::clone(&self.sink), self.id.clone());
        let stream = AttemptStream::new(Arc::clone(&self.engine.disk), self.id.clone(), turn, attempt);
        let received = AtomicU64::new(0);
        self.cut_work.clear_text();
        let progress = self.cut_work.begin_model_call();
        let live = |delta: Delta| {
            received.fetch_add(delta.bytes(), Ordering::Relaxed);
            stream.push(&delta);
            if let Delta::Text(text) = &delta {
                self.cut_work.add_text(text);
            }
            sink.emit(StreamEvent::Delta { thread: thread.clone(), delta });
        };
        let called = tokio::select! {
            biased;
            called = text_tools::call(&*provider, request, &live, &progress) => called,
            () = self.wait_for_deadline(deadline) => {
                is_cut.store(true, Ordering::Relaxed);
                Err(match progress.take_refusal() {
                    Some(refusal) => refusal,
                    None => CallError::cut_at_deadline(received.load(Ordering::Relaxed), progress.take_final_usage()),
                })
            }
        };
        match &called {
            Ok(reply) => progress.set_final_usage(Some(reply.usage).filter(|_| reply.uncounted.is_none())),
            Err(error) => {
                self.cut_work.clear_text();
                progress.set_error(error);
            }
        }
        // `end` removes the file `live.jsonl`. If the thread is killed or interrupted during this removal, the recorded
        // facts of the call determine its cost.
        stream.end().await;
        self.cut_work.clear_text();
        self.cut_work.begin_model_call();
        match called {
            Ok(reply) => Fact::ModelReplied(Box::new(reply)),
            Err(error) => Fact::ModelFailed(Box::new(error)),
        }
    }

    /// Waits until the deadline, and then for the time that a child needs to end, because a child has the same deadline
    /// as its parent. Waits longer while a thread of the tree waits for an approval, because this wait does not count
    /// against the deadlines. Never returns if there is no deadline.
    async fn give_up_waiting(&self, deadline: Option<Deadline>) {
        self.wait_for_deadline(deadline).await;
        loop {
            self.engine.clock.elapse(CHILD_END_GRACE_MS).await;
            if !self.engine.is_approval_pending(&self.launch.root) {
                return;
            }
        }
    }

    /// Requests an approval. Without an answer in time, the thread is suspended and the request stays open.
    async fn ask(
        &self,
        origin: ApprovalOrigin,
        what: &str,
        call: Option<&CallToApprove>,
        raise: Option<&ImpliedRaise>,
    ) -> Result<Fact, DriveError> {
        // A call that cannot run needs no approval.
        if let Some((call, tool)) = call.and_then(|call| Some((call, call.tool.as_ref()?)))
            && let Err(reason) = self.check_ready(tool, &call.parameters, &call.capability).await?
        {
            return Ok(Fact::CannotRun(reason));
        }
        let launch = self.narrowed_launch();
        let request =
            ApprovalRequest { thread: &self.id, origin, what, call, raise, plan: &self.plan, grants: &launch.grants };
        let _asking = self.engine.mark_asking(&self.launch.root);
        Ok(Fact::Answered(tokio::select! {
            biased;
            answer = self.engine.approvals.answer(request) => answer,
            () = self.engine.approval_timeout() => Approval::Suspended,
        }))
    }

    /// Returns the signal with this fact. The time of the signal is the current time or the time of `deadline`, the
    /// later of the two. Work that was cut at the deadline must not end before the deadline.
    fn not_before(&self, deadline: Option<Deadline>, fact: Fact) -> Signal {
        let signal = self.at(fact);
        Signal { at: deadline.map_or(signal.at, |deadline| signal.at.max(deadline.at)), ..signal }
    }

    /// Returns the request with the bytes of its images.
    async fn filled(&self, mut request: Request) -> Result<Request, CallError> {
        let objects = Arc::clone(&self.engine.objects);
        let filled =
            tokio::task::spawn_blocking(move || image_objects::fill_images(&mut request, &objects).map(|()| request))
                .await;
        filled.map_err(|lost| CallError::new(FailedStage::Setup, lost.to_string()))?
    }

    fn known_tool(&self, id: &ItemId) -> Option<Arc<PreparedTool>> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    fn keep_tool(&self, id: &ItemId, tool: &Arc<PreparedTool>) {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), Arc::clone(tool));
    }
}

/// Returns the handler of messages that persistent processes submit. These messages pass the intake like messages of
/// the user.
fn accept_pushes(engine: &Arc<EngineContext>, id: &ThreadId) -> PushHandler {
    let (engine, id) = (Arc::downgrade(engine), id.clone());
    Arc::new(move |message: PushedMessage| {
        let input = UserInput { text: message.text, source: InputSource::Extension, ..UserInput::default() };
        let message = ControlMessage::Submit { input, delivery: message.delivery };
        engine.upgrade().is_some_and(|engine| engine.send_message(&id, message))
    })
}

impl Driver for EmbeddedDriver {
    fn request_turns(&self, fallback: bool, call: ModelCall) -> RequestTurns {
        match self.connection(fallback) {
            Ok(provider) if !call.compacts && provider.serves_client(self.plan.directive.as_str()) => {
                RequestTurns::SinceReply
            }
            Ok(_) | Err(_) => RequestTurns::All,
        }
    }

    fn serves_client(&self) -> bool {
        // The first request connects the provider. Without a connection, no client has made a call yet.
        let provider = self.provider.get().and_then(|provider| provider.as_ref().ok());
        provider.is_some_and(|provider| provider.serves_client(self.plan.directive.as_str()))
    }

    fn perform(&self, step: EffectStep) -> BoxFuture<'_, Result<Signal, DriveError>> {
        Box::pin(async move {
            let EffectStep { key: _, effect, request, cost, prompt, synced, unsettled, halt, deadline, narrowed } =
                step;
            self.persistent.set_prompt(prompt);
            self.narrow(narrowed.as_deref());
            let fact = match effect {
                Effect::Record => Fact::Tick,
                // The machine requests no sleep beyond the deadline.
                Effect::Sleep { until } => {
                    self.engine.clock.sleep_until(until).await;
                    Fact::Tick
                }
                Effect::Reserve(reservation) => Box::pin(self.reserve(&reservation, cost, synced)).await?,
                Effect::CallModel { turn, attempt, fallback, call: _ } => {
                    let request = request.ok_or_else(|| DriveError::Lost("a model call has no request".to_owned()))?;
                    let is_cut = AtomicBool::new(false);
                    let called = Box::pin(self.call_model((turn, attempt), &request, fallback, deadline, &is_cut));
                    let fact = self.update_row_meanwhile(called, cost, synced).await?;
                    if is_cut.load(Ordering::Relaxed) {
                        return Ok(self.not_before(deadline, fact));
                    }
                    fact
                }
                Effect::RunTools(calls) => match calls.into_iter().next() {
                    Some(call) => Box::pin(self.run_tool(call, &unsettled, &halt, deadline)).await?,
                    None => Fact::Tick,
                },
                Effect::RunCommand { id, call } => Box::pin(self.run_command(id, *call, &halt)).await?,
                Effect::RunHooks(run) => {
                    let acts = EmbeddedHookRunner::new(self, &run, halt);
                    let HookPointResult { mut considered, children, mut answer } =
                        Box::pin(self.hooks.run(&run, &acts)).await;
                    let objects = self.bound_answer(run.point, &mut answer).await?;
                    let mut expansions = Vec::new();
                    if run.point == HookPoint::Input && self.plan.mode == PlanMode::Chat {
                        (answer, expansions) =
                            expand::expand_message(&self.engine, &run, answer, &mut considered).await?;
                    }
                    if matches!(answer, HookOutcome::Failed { .. }) && acts.is_overdue() {
                        // The duration limit interrupted the hook. The limit ends the thread, so the failure of the
                        // hook does not count.
                        answer = HookOutcome::None;
                    }
                    let (kept, point, subject) = (acts.take_writes(), run.point, run.subject);
                    let answer = Box::new(answer);
                    Fact::HooksRan { point, subject, considered, children, answer, objects, kept, expansions }
                }
                Effect::Spawn(children) => {
                    let remaining_ms = deadline.map(|deadline| deadline.remaining_ms);
                    Box::pin(self.engine.spawn(self, &children, &unsettled, remaining_ms)).await?
                }
                Effect::Await(children) => match children.into_iter().next() {
                    Some(child) => {
                        let awaited = tokio::select! {
                            biased;
                            ended = Box::pin(self.engine.await_child(self, child)) => Some(ended?),
                            () = self.give_up_waiting(deadline) => None,
                        };
                        match awaited {
                            Some(ended) => ended,
                            None => return Ok(self.not_before(deadline, Fact::Tick)),
                        }
                    }
                    None => Fact::Tick,
                },
                Effect::Ask { origin, what, call, raise } => {
                    self.ask(origin, &what, call.as_deref(), raise.as_ref()).await?
                }
                Effect::Wait => {
                    self.commit_settlements(&unsettled).await?;
                    std::future::pending().await
                }
                Effect::Done { settle, ended, cancel, leaves } => {
                    let ends_children = cancel.is_some();
                    if ends_children {
                        Box::pin(self.engine.end_descendants(&self.id, ended.status, &self.sink)).await?;
                    }
                    let message =
                        if ended.status == Status::Killed { ControlMessage::Kill } else { ControlMessage::Cancel };
                    let done = Box::pin(self.finish(&settle, &ended, synced, leaves)).await?;
                    self.forward(&cancel.unwrap_or_default(), &message);
                    if ends_children {
                        // A child may have reserved money before `finish` closed the account. The closed account
                        // refuses all later children.
                        Box::pin(self.engine.end_descendants(&self.id, ended.status, &self.sink)).await?;
                    }
                    done
                }
            };
            Ok(self.at(fact))
        })
    }

    fn now(&self) -> i64 {
        self.engine.clock.now()
    }

    fn halt(&self) -> CancellationToken {
        self.call_cancellation.token()
    }

    fn forward(&self, children: &[String], message: &ControlMessage) {
        let of_hooks = self.hook_children.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let children = children.iter().filter_map(|child| ThreadId::parse(child).ok());
        for child in children.chain(of_hooks) {
            self.engine.send_message(&child, message.clone());
        }
        self.call_cancellation.cancel();
    }

    fn cut_work(&self) -> BoxFuture<'_, Result<Vec<Signal>, DriveError>> {
        Box::pin(self.take_cut_work())
    }

    fn stop_call(&self, call_id: &str) {
        self.stopped_calls.send_modify(|stopped| {
            stopped.insert(call_id.to_owned());
        });
    }

    fn write_final<'a>(&'a self, thread: &'a DrivenThread, ended: &'a Ended, artifact: Artifact) -> BoxFuture<'a, ()> {
        Box::pin(self.engine.write_final(thread, ended, artifact))
    }

    fn remove_message<'a>(&'a self, mail: &'a str) -> BoxFuture<'a, ()> {
        let (disk, thread, mail) = (Arc::clone(&self.engine.disk), self.id.clone(), mail.to_owned());
        Box::pin(async move {
            let outcome = tokio::task::spawn_blocking(move || mailbox::consume(&*disk, &thread, &mail)).await;
            // A file that stays in the mailbox has no effect: the recorded event shows that its message was already
            // received.
            if let Ok(Err(error)) = outcome {
                tracing::warn!(%error, "a recorded control message stays in the mailbox");
            }
        })
    }
}
