//! The shared state of an engine: the values that the driver and the sessions of one process use, and the threads of
//! this process.

use crate::parent_thread::ParentThread;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rye_compiler::compile::{Compilation, CompileRequest};
use rye_compiler::diagnostics::Checked;
use rye_compiler::hook::PlannedHook;
use rye_compiler::item::Items;
use rye_compiler::plan::{Grant, Plan, PlanLimits, PlannedModel};
use rye_compiler::trust::{
    TrustRequirement, TrustRequirementKind, of_replaced_hook_items, of_user_space, requirements_of_granted_plan,
    user_space_of,
};
use rye_compiler::world::{Space, World};
use rye_grammar::ItemId;
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};

use crate::clock::Clock;
use crate::control::ControlSender;
use crate::error::DriveError;
use crate::event::{CommandSettings, ControlMessage};
use crate::exchange::CallError;
use crate::image::ValidatedImage;
use crate::keys::KeyFolder;
use crate::live::EventStream;
use crate::provider::Provider;
use crate::running_outputs::RunningOutputs;
use crate::signer::Signer;
use crate::store::{Disk, Objects, OwnerLock, RegistryWriter, ThreadIds};
use crate::thread::RunResult;
use crate::thread_count::ThreadCount;
use crate::thread_id::ThreadId;
use crate::threads::Threads;
use crate::tool::registry::ToolRegistry as Tools;
use crate::trust::Trust;

mod approvals;
pub(crate) mod capabilities;
mod inbox_watcher;
mod live_threads;
mod plans;
mod providers;
pub(crate) mod verified_transcript;

pub use approvals::{ApprovalHandler, ApprovalPolicy, ApprovalRequest};
use capabilities::CapabilitiesCache;
use live_threads::RunningThreads;
pub(crate) use live_threads::{RecoveryGuard, TaskEnd};
pub(crate) use plans::SharedPlans;
pub(crate) use providers::PlanProviders;

/// Opens the current state of all spaces. Each call can see newer versions of the files.
pub type OpenWorld = Arc<dyn Fn() -> Result<Box<dyn World>, String> + Send + Sync>;

/// Compiles the plan of a child. Pure: the same world and request produce the same plan.
pub type Compile = Arc<dyn Fn(&dyn World, &CompileRequest) -> Checked<Compilation> + Send + Sync>;

/// Checks a plan before a thread of the plan starts or is recovered. Returns the reason for a refusal. Blocks.
pub type PlanCheck = Arc<dyn Fn(&Plan) -> Result<(), String> + Send + Sync>;

/// A source of connections to models.
pub trait Providers: Send + Sync {
    /// Returns a connection for a plan's model.
    ///
    /// # Errors
    /// The connection cannot be made, for example because the key is missing. The stage of the error is
    /// [`FailedStage::Setup`](crate::exchange::FailedStage::Setup).
    fn connect(&self, model: &PlannedModel) -> Result<Arc<dyn Provider>, CallError>;

    /// Returns true if threads of the directive use the provider files to call models. If false, the scripts that
    /// provider files name need no trust.
    fn reads_scripts(&self, _directive: &ItemId) -> bool {
        false
    }

    /// Returns true if an MCP client takes the place of the model in the threads of a directive. A reply of the client
    /// costs nothing.
    fn serves_client(&self, _directive: &ItemId) -> bool {
        false
    }
}

/// A provider that serves every model.
impl<P: Provider + 'static> Providers for Arc<P> {
    fn connect(&self, _: &PlannedModel) -> Result<Arc<dyn Provider>, CallError> {
        Ok(Arc::clone(self) as Arc<dyn Provider>)
    }

    fn serves_client(&self, directive: &ItemId) -> bool {
        (**self).serves_client(directive.as_str())
    }
}

/// The parameters of a thread's start.
#[derive(Debug, Clone, Default)]
pub struct StartOptions {
    /// The validated inputs. If empty, the thread uses the inputs of the plan with their defaults.
    pub inputs: Map<String, Value>,
    /// The parent thread; `None` for a root thread. The plan was compiled with the bounds of the parent
    /// ([`ParentThread::bounds`]).
    pub parent: Option<ParentThread>,
    /// The images of the first message.
    pub images: Vec<ValidatedImage>,
    /// True if the thread completes although required outputs are missing.
    pub allow_missing_outputs: bool,
    /// True to sync the start of the new thread, so that the thread survives a power failure.
    pub durable: bool,
    /// Ids that the new root thread must not get, because threads of other projects have them.
    pub taken: BTreeSet<ThreadId>,
}

/// A user message for a thread that has ended.
#[derive(Debug, Clone, Default)]
pub struct UserMessage {
    pub text: String,
    /// The images of the message.
    pub images: Vec<ValidatedImage>,
    /// The model of the new thread and its continuations; `None` for the model of the old thread.
    pub model: Option<PlannedModel>,
    /// The limits of the new thread and its continuations, or of each prompt of a chat; `None` for the limits of the
    /// old thread. A thread that starts as a child stays within the limits of its parent.
    pub limits: Option<PlanLimits>,
}

impl<T: Into<String>> From<T> for UserMessage {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

pub(crate) struct EngineContext {
    pub project: PathBuf,
    pub disk: Arc<dyn Disk>,
    pub objects: Arc<Objects>,
    pub ids: ThreadIds,
    pub writer: RegistryWriter,
    pub owner: OwnerLock,
    pub world: OpenWorld,
    pub compile: Compile,
    pub providers: Arc<dyn Providers>,
    pub clock: Arc<dyn Clock>,
    pub approvals: ApprovalPolicy,
    pub keys: Option<KeyFolder>,
    pub tools: Tools,
    pub plans: SharedPlans,
    pub capabilities_cache: CapabilitiesCache,
    pub signer: Arc<Signer>,
    pub trust: Trust,
    pub thread_count: ThreadCount,
    pub running_outputs: RunningOutputs,
    /// True if the user accepts transcripts that no key of the user signed.
    pub accepts_records: AtomicBool,
    pub plan_check: Option<PlanCheck>,
    pub settings: CommandSettings,
    pub live: Mutex<RunningThreads>,
    /// The transcript that was verified last, for the recovery of its thread; `None` if no recovery is pending.
    pub inspected: Mutex<Option<verified_transcript::InspectedTranscript>>,
    /// Notified when a thread of this process ends.
    pub thread_ended: Notify,
    /// Notifies the inbox watcher that a thread of this process started or ended.
    pub running_changed: Arc<Notify>,
}

/// A thread that a task of this process runs: its control channel, and a channel that receives the result of the task.
#[derive(Debug, Clone)]
pub(crate) struct RunningThread {
    pub control: ControlSender,
    pub done: watch::Receiver<Option<TaskEnd>>,
}

/// A handle of a started thread: its id, its live events and its control channel.
#[derive(Debug)]
pub struct ThreadHandle {
    pub thread_id: ThreadId,
    /// The live events of this thread and of its descendants.
    pub live: EventStream,
    running: RunningThread,
}

impl ThreadHandle {
    pub(crate) fn new(thread_id: ThreadId, live: EventStream, running: RunningThread) -> Self {
        Self { thread_id, live, running }
    }

    /// Cancels the thread. The thread finishes the current step and then stops.
    pub fn cancel(&self) {
        self.running.control.send(ControlMessage::Cancel);
    }

    /// Kills the thread. Calls in progress are stopped at once.
    pub fn kill(&self) {
        self.running.control.send(ControlMessage::Kill);
    }

    /// Sends a control message of any kind to the thread, such as steering, a follow-up or a raised limit.
    pub fn send(&self, message: ControlMessage) {
        self.running.control.send(message);
    }

    /// Returns a sender of control messages to the thread.
    pub fn control(&self) -> ControlSender {
        self.running.control.clone()
    }

    /// Waits for the end of the thread and of its continuations.
    pub async fn join(&self) -> RunResult {
        self.running.result().await
    }
}

impl EngineContext {
    /// Returns true if the user accepts transcripts that no key of the user signed.
    pub fn accepts_unverified(&self) -> bool {
        self.accepts_records.load(Ordering::Relaxed)
    }

    /// Accepts transcripts that no key of the user signed.
    pub fn accept_unverified(&self) {
        self.accepts_records.store(true, Ordering::Relaxed);
    }

    pub fn threads(&self) -> Threads {
        Threads::new(Arc::clone(&self.disk), Some(Arc::clone(self.writer.registry())))
    }

    /// Checks that a thread of this plan may start with these grants: everything that the plan requires of the project
    /// is trusted, and the plan check accepts the plan. Tools are checked when they are called. Blocks.
    pub fn check_admission(&self, plan: &Plan, grants: &[Grant]) -> Result<(), DriveError> {
        let mut requirements = requirements_of_granted_plan(plan, grants, &[]);
        if plan.hooks.iter().any(|hook| hook.space == Space::User && hook.action.call().is_some()) {
            let world = (self.world)().map_err(DriveError::Plan)?;
            requirements.extend(of_replaced_hook_items(&*world, plan));
        }
        self.check_requirements(&plan.directive, requirements)?;
        self.check_plan(plan)
    }

    /// Checks that a thread of this stored plan may be recovered or continued with these grants: everything that the
    /// plan requires is trusted now. Trust can have been revoked, and files can have changed, since the thread started.
    /// Blocks the calling thread.
    pub fn check_recovery(&self, plan: &Plan, grants: &[Grant]) -> Result<(), DriveError> {
        let world = (self.world)().map_err(DriveError::Plan)?;
        self.check_requirements(&plan.directive, of_user_space(&Items::new(&*world), plan, &[]))?;
        self.check_admission(plan, grants)
    }

    /// Runs the function in [`EngineOptions::plan_check`](crate::engine::EngineOptions::plan_check), if there is one.
    /// Blocks.
    pub fn check_plan(&self, plan: &Plan) -> Result<(), DriveError> {
        self.plan_check.as_ref().map_or(Ok(()), |check| check(plan).map_err(|reason| DriveError::Refused { reason }))
    }

    /// Checks that the user trusts the given requirements of `directive`. Skips tools and MCP servers, which are
    /// checked when they are called. Skips scripts that provider files name, unless threads of `directive` call models
    /// through the provider files.
    pub fn check_requirements(&self, directive: &ItemId, mut all: Vec<TrustRequirement>) -> Result<(), DriveError> {
        all.retain(|one| match one.kind {
            TrustRequirementKind::Tool | TrustRequirementKind::Server => false,
            TrustRequirementKind::Script => self.providers.reads_scripts(directive),
            TrustRequirementKind::Hook
            | TrustRequirementKind::Provider
            | TrustRequirementKind::Risk
            | TrustRequirementKind::Grants
            | TrustRequirementKind::UserSpace => true,
        });
        if all.is_empty() {
            return Ok(());
        }
        let trusted = self.trust.snapshot()?;
        let missing = trusted.missing(&all)?;
        if missing.is_empty() {
            return Ok(());
        }
        let list = missing.iter().map(|one| format!("{} `{}` {}", one.kind.as_str(), one.name, one.what)).collect();
        Err(DriveError::Untrusted { directive: directive.to_string(), list })
    }

    /// Checks that a model may get items of the user space. The model gets the items through a thread of `plan` or, if
    /// `hook` is given, through this hook. A plan or hook of the project needs the trust of the user.
    ///
    /// # Errors
    ///
    /// The user does not trust the project yet, or the trust cannot be read. The error is a sentence for the model.
    pub fn admit_user_space(&self, plan: &Plan, hook: Option<&PlannedHook>) -> Result<(), String> {
        let Some(required) = user_space_of(plan, hook) else { return Ok(()) };
        let now = self.trust.snapshot().map_err(|error| error.to_string())?;
        let missing = now.missing(std::slice::from_ref(&required)).map_err(|error| error.to_string())?;
        if missing.is_empty() {
            return Ok(());
        }
        Err("permission denied: the item is in the user space, and the user does not trust this project yet; see `rye trust --list`"
            .to_owned())
    }

    /// Runs `work` with the current world on the blocking pool. The inner result is an error if the world cannot be
    /// opened or if `work` fails. The outer result is an error if `work` panics.
    pub async fn with_world<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn World) -> Result<T, String> + Send + 'static,
    ) -> Result<Result<T, String>, DriveError> {
        let open = Arc::clone(&self.world);
        let done = tokio::task::spawn_blocking(move || open().and_then(|world| work(&*world)));
        Ok(done.await?)
    }
}
