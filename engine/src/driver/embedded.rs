//! The in-process driver: performs effects with the engine's store, providers and tools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rye_compiler::plan::{ApprovalOrigin, Plan};
use rye_grammar::ItemId;
use tokio::sync::Semaphore;

use super::stream::Stream;
use super::{Artifact, DriveError, Driver, EventSink, Live, Step, Thread};
use crate::engine::Inner;
use crate::event::{Approval, ControlMessage, Ended, Opened};
use crate::hooks::{Considering, HookTable};
use crate::image;
use crate::machine::{Effect, Fact, Signal};
use crate::provider::{BoxFuture, CallError, Delta, FailedStage, Provider, Request, text_tools};
use crate::store::mailbox;
use crate::thread::Status;
use crate::thread_id::ThreadId;
use crate::tool::registry::Prepared;
use crate::tool::stop::{CancellationSource, Halt};
use acts::EmbeddedHookRunner;

mod acts;
mod cascade;
mod ledger;
mod tools;

/// Default maximum of children that run at the same time.
const DEFAULT_MAX_CHILDREN: usize = 8;
/// A provider connection, or the error of connecting.
type ProviderConnection = Result<Arc<dyn Provider>, CallError>;

/// The in-process driver of one thread.
pub struct EmbeddedDriver {
    pub(crate) engine: Arc<Inner>,
    pub(crate) id: ThreadId,
    pub(crate) plan: Arc<Plan>,
    pub(crate) launch: Arc<Opened>,
    pub(crate) outlet: Arc<EventSink>,
    /// Permits for children that run at the same time; further children wait.
    pub(crate) running: Arc<Semaphore>,
    hooks: Arc<HookTable>,
    provider: OnceLock<ProviderConnection>,
    fallback: OnceLock<ProviderConnection>,
    /// Prepared tools by id, as they were at the first call by this thread.
    tools: Mutex<BTreeMap<ItemId, Arc<Prepared>>>,
    /// Cancels the calls under way.
    halting: CancellationSource,
    /// Running children of hooks.
    hook_children: Mutex<BTreeSet<ThreadId>>,
}

/// A guard: while it is alive, control messages for children are forwarded to this child of a hook.
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
        engine: Arc<Inner>,
        id: ThreadId,
        (plan_id, plan): (&str, Arc<Plan>),
        launch: Arc<Opened>,
        outlet: Arc<EventSink>,
    ) -> Result<Self, DriveError> {
        let hooks = engine.plans.hooks(plan_id, &plan, &launch.inputs)?;
        let (provider, fallback, tools) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        let (halting, hook_children) = (CancellationSource::new(), Mutex::default());
        let setting = plan.settings.get("resilience").and_then(|v| v.pointer("/concurrency/max_concurrent_children"));
        let most = setting.and_then(serde_json::Value::as_u64).and_then(|n| usize::try_from(n).ok());
        let running = Arc::new(Semaphore::new(most.unwrap_or(DEFAULT_MAX_CHILDREN).clamp(1, Semaphore::MAX_PERMITS)));
        Ok(Self { engine, id, plan, launch, outlet, running, hooks, provider, fallback, tools, halting, hook_children })
    }

    /// Registers a child of a hook until the guard is dropped.
    pub(crate) fn living(&self, child: &ThreadId) -> HookChildGuard<'_> {
        self.hook_children.lock().unwrap_or_else(PoisonError::into_inner).insert(child.clone());
        HookChildGuard { embedded: self, child: child.clone() }
    }

    fn at(&self, fact: Fact) -> Signal {
        Signal { at: self.engine.clock.now(), fact }
    }

    async fn call_model(&self, turn: u64, attempt: u32, request: &Request, fallback: bool) -> Fact {
        let (connected, model) = match self.plan.model.fallback.as_deref().filter(|_| fallback) {
            Some(model) => (&self.fallback, model),
            None => (&self.provider, &self.plan.model),
        };
        let provider = connected.get_or_init(|| self.engine.providers.connect(model));
        let provider = match provider {
            Ok(provider) => Arc::clone(provider),
            Err(error) => return Fact::ModelFailed(Box::new(error.clone())),
        };
        let filled;
        let request = if image::has_unfilled_images(request) {
            filled = match self.filled(request.clone()).await {
                Ok(request) => request,
                Err(error) => return Fact::ModelFailed(Box::new(error)),
            };
            &filled
        } else {
            request
        };
        let (outlet, thread) = (Arc::clone(&self.outlet), self.id.clone());
        let stream = Stream::new(Arc::clone(&self.engine.disk), self.id.clone(), turn, attempt);
        let live = |delta: Delta| {
            stream.push(&delta);
            outlet.emit(Live::Delta { thread: thread.clone(), delta });
        };
        let called = text_tools::call(&*provider, request, &live).await;
        stream.end().await;
        match called {
            Ok(reply) => Fact::ModelReplied(Box::new(reply)),
            Err(error) => Fact::ModelFailed(Box::new(error)),
        }
    }

    /// Returns the request with the bytes of its images.
    async fn filled(&self, mut request: Request) -> Result<Request, CallError> {
        let objects = Arc::clone(&self.engine.objects);
        let filled = tokio::task::spawn_blocking(move || image::fill(&mut request, &objects).map(|()| request)).await;
        filled.map_err(|lost| CallError::new(FailedStage::Setup, lost.to_string()))?
    }

    fn known_tool(&self, id: &ItemId) -> Option<Arc<Prepared>> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    fn keep_tool(&self, id: &ItemId, tool: &Arc<Prepared>) {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), Arc::clone(tool));
    }
}

impl Driver for EmbeddedDriver {
    fn perform(&self, step: Step) -> BoxFuture<'_, Result<Signal, DriveError>> {
        Box::pin(async move {
            let Step { key: _, effect, cost, synced, unsettled, halt } = step;
            let fact = match effect {
                Effect::Record => Fact::Tick,
                Effect::Sleep { until } => {
                    self.engine.clock.sleep_until(until).await;
                    Fact::Tick
                }
                Effect::Reserve(reservation) => Box::pin(self.reserve(&reservation, cost, synced)).await?,
                Effect::CallModel { turn, attempt, fallback, request } => {
                    Box::pin(self.call_model(turn, attempt, &request, fallback)).await
                }
                Effect::RunTools(calls) => match calls.into_iter().next() {
                    Some(call) => Box::pin(self.run_tool(call, &unsettled, &halt)).await?,
                    None => Fact::Tick,
                },
                Effect::RunHooks(run) => {
                    let acts = EmbeddedHookRunner::new(self, &run, halt);
                    let Considering { considered, children, answer } = Box::pin(self.hooks.run(&run, &acts)).await;
                    let (kept, point, subject) = (acts.kept(), run.point, run.subject);
                    Fact::HooksRan { point, subject, considered, children, answer: Box::new(answer), kept }
                }
                Effect::Spawn(children) => Box::pin(self.engine.spawn(self, &children, &unsettled)).await?,
                Effect::Await(children) => match children.into_iter().next() {
                    Some(child) => Box::pin(self.engine.await_child(self, child)).await?,
                    None => Fact::Tick,
                },
                Effect::Ask { asked, what } => Fact::Answered(match &self.engine.asker {
                    Some(asker) => asker.ask(&self.id, asked, &what).await,
                    None => match asked {
                        ApprovalOrigin::Call => Approval::Refused,
                        ApprovalOrigin::Limit => Approval::Suspended,
                    },
                }),
                Effect::Done { settle, ended, cancel, leaves } => {
                    if cancel.is_some() {
                        Box::pin(self.cascade(ended.status)).await?;
                    }
                    let letter =
                        if ended.status == Status::Killed { ControlMessage::Kill } else { ControlMessage::Cancel };
                    let done = Box::pin(self.finish(&settle, &ended, synced, leaves)).await?;
                    self.pass_on(&cancel.unwrap_or_default(), &letter);
                    done
                }
            };
            Ok(self.at(fact))
        })
    }

    fn now(&self) -> i64 {
        self.engine.clock.now()
    }

    fn halt(&self) -> Halt {
        self.halting.listen()
    }

    fn pass_on(&self, children: &[String], letter: &ControlMessage) {
        let of_hooks = self.hook_children.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let children = children.iter().filter_map(|child| ThreadId::parse(child).ok());
        for child in children.chain(of_hooks) {
            self.engine.post(&child, letter.clone());
        }
        self.halting.halt();
    }

    fn publish<'a>(&'a self, thread: &'a Thread, ended: &'a Ended, paper: Artifact) -> BoxFuture<'a, ()> {
        Box::pin(self.engine.publish(thread, ended, paper))
    }

    fn consumed<'a>(&'a self, mail: &'a str) -> BoxFuture<'a, ()> {
        let (disk, thread, mail) = (Arc::clone(&self.engine.disk), self.id.clone(), mail.to_owned());
        Box::pin(async move {
            let gone = tokio::task::spawn_blocking(move || mailbox::consume(&*disk, &thread, &mail)).await;
            // The event records the message, so a file that stays is recognized as taken.
            if let Ok(Err(error)) = gone {
                tracing::warn!(%error, "a letter that was taken stays in the inbox");
            }
        })
    }
}
