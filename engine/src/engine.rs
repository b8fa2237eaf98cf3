//! The engine as a library: opens a project, starts plans, recovers interrupted threads and reads stored ones. The
//! command line and the tests use only this API.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rye_compiler::compile::{Compilation, CompileRequest, compile};
use rye_compiler::diagnostics::Checked;
use rye_compiler::hook::PlannedHook;
use rye_compiler::plan::{Grant, Plan, PlannedModel};
use rye_compiler::semantics::ledger::Account;
use rye_compiler::trust::{TrustRequirement, TrustRequirementKind, requirements_of_granted_plan, user_space_of};
use rye_compiler::world::World;
use rye_grammar::ItemId;
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};

use crate::clock::{Clock, SystemClock};
use crate::disk_world::DiskWorld;
use crate::driver::control::ControlSender;
use crate::driver::{DriveError, EventStream};
use crate::event::{ControlMessage, RunSettings};
use crate::image::{ImageNotAccepted, ValidatedImage};
use crate::keys::{KeyError, KeyFolder};
use crate::provider::environment::ProviderEnvironment;
use crate::provider::{CallError, Provider};
use crate::session::ResumePoint;
use crate::session::artifacts::CapabilitiesCache;
use crate::session::plans::SharedPlans;
use crate::session::spawn_external::ParentThread;
use crate::signer::Signer;
use crate::store::{
    Disk, GroupCommit, Objects, OwnerLock, RealDisk, Registry, RegistryWriter, StoreError, ThreadIds, layout,
};
use crate::thread::{RunResult, Status};
use crate::thread_count::ThreadCount;
use crate::thread_id::ThreadId;
use crate::thread_tools::ThreadsTool;
use crate::threads::Threads;
use crate::tool::registry::ToolRegistry as Tools;
use crate::trust::Trust;

mod approvals;
mod live_threads;
mod providers;

pub use approvals::{ApprovalHandler, ApprovalPolicy, ApprovalRequest};
use live_threads::RunningThreads;
pub(crate) use live_threads::TaskEnd;
use providers::PlanProviders;

/// Opens the current state of all spaces. Later compilations and fetches see later versions of the files.
pub type OpenWorld = Arc<dyn Fn() -> Result<Box<dyn World>, String> + Send + Sync>;

/// Compiles the plan of a child. Pure: the same world and request give the same plan.
pub type Compile = Arc<dyn Fn(&dyn World, &CompileRequest) -> Checked<Compilation> + Send + Sync>;

/// Checks a plan before a thread of it starts or is recovered. Returns the reason for a refusal. Blocks.
pub type PlanCheck = Arc<dyn Fn(&Plan) -> Result<(), String> + Send + Sync>;

/// A source of connections to models.
pub trait Providers: Send + Sync {
    /// Returns a connection for a plan's model.
    ///
    /// # Errors
    /// The error of a call that failed before a request was sent.
    fn connect(&self, model: &PlannedModel) -> Result<Arc<dyn Provider>, CallError>;

    /// Returns true if the replies of threads of a directive come from the simulation script that a provider file names.
    /// Only then the script needs trust.
    fn reads_scripts(&self, _directive: &ItemId) -> bool {
        false
    }
}

/// The dependencies and settings of an engine.
pub struct EngineOptions {
    pub world: OpenWorld,
    /// The compiler; tests substitute a caching one.
    pub compile: Compile,
    pub providers: Arc<dyn Providers>,
    pub clock: Arc<dyn Clock>,
    pub approvals: ApprovalPolicy,
    /// The user's keys, for `rye_sign` and for the signatures of threads. Without keys, threads are signed with a
    /// temporary key that ends with the process.
    pub keys: Option<KeyFolder>,
    /// The disk; `None` = the real disk below the project.
    pub disk: Option<Arc<dyn Disk>>,
    pub tools: Tools,
    /// The user's trust in what the project executes.
    pub trust: Trust,
    /// The time for which commits wait for each other, to form a group.
    pub gathering: GroupCommit,
    /// An additional check; `None` = every trusted plan may start.
    pub plan_check: Option<PlanCheck>,
    /// The settings of the command, for the threads that it starts.
    pub settings: RunSettings,
}

/// An error of an engine operation.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Drive(#[from] DriveError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("{0}")]
    World(String),
    /// The disk was full before the first line of the transcript.
    #[error("the thread was not started: {reason}; free some space, then start it again")]
    NotStarted { reason: String },
    #[error("the thread `{thread}` never started: it has no transcript")]
    NeverBegan { thread: String },
    #[error("the thread `{thread}` has ended; resume it with a message")]
    Over { thread: String },
    #[error("the thread `{thread}` has not ended and keeps its model")]
    KeepsModel { thread: String },
    #[error("`{thread}` is a run of the tool `{tool}` and takes no messages")]
    OfTool { thread: String, tool: String },
    #[error("the thread `{thread}` has only {turns} turns")]
    NoSuchTurn { thread: String, turns: u64 },
    #[error("depth_exceeded: `{parent}` may not start child threads")]
    TooDeep { parent: String },
    #[error("no money can be reserved for a child of `{parent}`: {refusal}")]
    NothingSetAside { parent: String, refusal: String },
    /// The thread had to end, but could not be recovered. It was finalized instead.
    #[error("the thread `{thread}` was finalized without being recovered: {why}")]
    Closed { thread: String, why: String },
    #[error("the thread `{thread}` cannot be resumed: `{ancestor}` above it was {}", status.as_str())]
    AncestorStopped { thread: ThreadId, ancestor: ThreadId, status: Status },
    #[error(transparent)]
    Images(#[from] ImageNotAccepted),
}

/// The parameters of a thread's start.
#[derive(Debug, Clone, Default)]
pub struct StartOptions {
    /// The validated inputs. If empty, the inputs of the plan with their defaults.
    pub inputs: Map<String, Value>,
    /// The parent. The plan was compiled with the parent's bounds ([`ParentThread::bounds`]).
    pub parent: Option<ParentThread>,
    /// The images of the first message.
    pub images: Vec<ValidatedImage>,
    /// The thread completes although required outputs are missing.
    pub allow_missing_outputs: bool,
}

/// A user message for a thread that has ended.
#[derive(Debug, Clone, Default)]
pub struct UserMessage {
    pub text: String,
    /// The images of the message.
    pub images: Vec<ValidatedImage>,
    /// The model of the new thread and its continuations; `None` = that of the old thread.
    pub model: Option<PlannedModel>,
}

impl<T: Into<String>> From<T> for UserMessage {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// An engine for one project. Cloning is cheap. Dropping the last clone releases the lock of the process.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<EngineContext>,
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
    pub papers: CapabilitiesCache,
    pub sealer: Arc<Signer>,
    pub trust: Trust,
    pub crew: ThreadCount,
    /// True if the user accepts transcripts that no key of theirs signed.
    accepts_records: AtomicBool,
    pub plan_check: Option<PlanCheck>,
    pub settings: RunSettings,
    live: Mutex<RunningThreads>,
    /// Notified when a thread of this process ends.
    gone: Notify,
}

/// A thread of this process.
#[derive(Debug, Clone)]
pub(crate) struct RunningThread {
    pub control: ControlSender,
    pub done: watch::Receiver<Option<TaskEnd>>,
}

/// A started thread.
#[derive(Debug)]
pub struct ThreadHandle {
    pub thread_id: ThreadId,
    /// The live events of this thread and of its descendants.
    pub live: EventStream,
    running: RunningThread,
}

impl EngineOptions {
    /// Returns the usual options: the project's and the user's files over the embedded system space, providers from the
    /// plan, and API keys from the environment and the user's `.env`. `user` is the root of the user space, also if it is
    /// the project. `trust` decides what the project may execute.
    ///
    /// # Errors
    /// The user's `.env` cannot be read.
    pub fn with_trust(
        project: &Path,
        user: Option<&Path>,
        system: Vec<(String, &'static [u8])>,
        trust: Trust,
        approvals: ApprovalPolicy,
    ) -> Result<Self, EngineError> {
        let environment = ProviderEnvironment::read(user).map_err(|error| EngineError::World(error.to_string()))?;
        crate::tool::secrets::add_secrets(environment.file_variables());
        let keys = user.map(KeyFolder::of_user_space);
        // A project that is also the user space counts as one space, not two.
        let layer = user.filter(|user| *user != project).map(Path::to_path_buf);
        let (root, home, trusted) = (project.to_path_buf(), layer, keys.clone());
        let world: OpenWorld = Arc::new(move || {
            let trust = trusted.as_ref().map(KeyFolder::trust_store).transpose().map_err(|error| error.to_string())?;
            let world = DiskWorld::open(Some(&root), home.as_deref(), system.clone(), trust.unwrap_or_default());
            let world = world.map_err(|error| error.to_string())?;
            world.signature_policy().map_err(|error| error.to_string())?;
            Ok(Box::new(world) as Box<dyn World>)
        });
        let providers = Arc::new(PlanProviders {
            environment,
            project: project.to_path_buf(),
            trust: trust.clone(),
            world: Arc::clone(&world),
            present: Mutex::default(),
        });
        let (disk, plan_check, settings) = (None, None, RunSettings::default());
        let (clock, tools) = (Arc::new(SystemClock), Tools::standard().with_user_space(user));
        let (gathering, compile): (GroupCommit, Compile) = (GroupCommit::default(), Arc::new(compile));
        Ok(Self {
            world,
            compile,
            providers,
            clock,
            approvals,
            keys,
            disk,
            tools,
            trust,
            gathering,
            plan_check,
            settings,
        })
    }
}

impl Engine {
    /// Opens the store of a project and locks it for this process. Starting threads needs a Tokio runtime.
    pub fn open(project: &Path, options: EngineOptions) -> Result<Self, EngineError> {
        let EngineOptions {
            world,
            compile,
            providers,
            clock,
            approvals,
            keys,
            disk,
            mut tools,
            trust,
            gathering,
            plan_check,
            settings,
        } = options;
        let disk: Arc<dyn Disk> = match disk {
            Some(disk) => disk,
            None => Arc::new(RealDisk::open(project).map_err(StoreError::io("open", project))?),
        };
        layout::create_folders(&*disk)?;
        let owner = OwnerLock::acquire(Arc::clone(&disk), clock.now())?;
        let registry = Arc::new(Registry::open(Arc::clone(&disk))?);
        let writer = RegistryWriter::new(registry, gathering);
        let sealer = Arc::new(Signer::load(keys.as_ref())?);
        let inner = Arc::new_cyclic(|engine: &Weak<EngineContext>| {
            let engine = Weak::clone(engine);
            tools.add("orchestrator", move |_| Arc::new(ThreadsTool { engine: Weak::clone(&engine) }));
            EngineContext {
                project: project.to_path_buf(),
                objects: Arc::new(Objects::new(Arc::clone(&disk))),
                ids: ThreadIds::new(Arc::clone(&disk)),
                writer,
                disk,
                owner,
                world,
                compile,
                providers,
                clock,
                approvals,
                keys,
                tools,
                plans: SharedPlans::default(),
                papers: CapabilitiesCache::default(),
                sealer,
                trust,
                crew: ThreadCount::default(),
                accepts_records: AtomicBool::new(false),
                plan_check,
                settings,
                live: Mutex::default(),
                gone: Notify::new(),
            }
        });
        Ok(Self { inner })
    }

    /// Starts a plan as a root thread, a task of this process.
    pub async fn start(&self, compilation: &Compilation, launch: StartOptions) -> Result<ThreadHandle, EngineError> {
        Box::pin(self.inner.start_root(compilation, launch)).await
    }

    /// Recovers an interrupted thread from its transcript. Fails if another live process owns the thread.
    pub async fn recover(&self, thread: &ThreadId) -> Result<ThreadHandle, EngineError> {
        self.inner.recover_root(thread, Vec::new()).await
    }

    /// Recovers a thread and delivers control messages before it continues: the answer that a suspended thread waits
    /// for, or `cancel` or `kill`.
    pub async fn recover_with(
        &self,
        thread: &ThreadId,
        letters: Vec<ControlMessage>,
    ) -> Result<ThreadHandle, EngineError> {
        self.inner.recover_root(thread, letters).await
    }

    /// Resumes an ended thread: starts a new thread with its conversation and one more message. A thread that has not
    /// ended is recovered instead, and the message steers it.
    pub async fn resume(&self, thread: &ThreadId, said: impl Into<UserMessage>) -> Result<ThreadHandle, EngineError> {
        Box::pin(self.inner.resume_root(thread, said.into())).await
    }

    /// Starts a new thread that continues another one from the end of an earlier turn, with a message.
    pub async fn fork(
        &self,
        thread: &ThreadId,
        turn: u64,
        said: impl Into<UserMessage>,
    ) -> Result<ThreadHandle, EngineError> {
        Box::pin(self.inner.continue_from(thread, ResumePoint::Turn(turn), said.into(), None)).await
    }

    /// Starts a new thread that continues an ended one as if its context had been full.
    pub async fn hand_over(&self, thread: &ThreadId) -> Result<ThreadHandle, EngineError> {
        Box::pin(self.inner.continue_from(thread, ResumePoint::Handoff, UserMessage::default(), None)).await
    }

    /// Accepts transcripts that no key of this user signed, from now on. Damaged transcripts, and those that claim more
    /// than their plan gives, are still refused.
    pub fn accept_unverified(&self) {
        self.inner.accepts_records.store(true, Ordering::Relaxed);
    }

    /// Reads and verifies a thread with the launch that the gate will use; `None` if nothing was recorded. Changes
    /// nothing.
    ///
    /// # Errors
    /// The transcript is damaged or cannot be verified.
    pub async fn inspect(&self, thread: &ThreadId) -> Result<Option<ParentThread>, EngineError> {
        let (engine, id) = (Arc::clone(&self.inner), thread.clone());
        Ok(crate::session::blocking(move || engine.read_parent(&id)).await?)
    }

    /// Returns the signer of this process's threads.
    pub fn signer(&self) -> &Signer {
        &self.inner.sealer
    }

    /// Returns read access to the threads on disk.
    pub fn threads(&self) -> Threads {
        self.inner.threads()
    }

    /// Returns the disk, for its counters.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.inner.disk
    }

    /// Waits until no thread of this process runs, including children that outlived their parents.
    pub async fn wait_idle(&self) {
        loop {
            let gone = self.inner.gone.notified();
            if self.inner.is_idle() {
                return;
            }
            gone.await;
        }
    }

    /// Sends a control message to every thread of this process.
    pub fn broadcast(&self, letter: &ControlMessage) {
        let controls: Vec<ControlSender> =
            self.inner.live().threads.values().map(|running| running.control.clone()).collect();
        for control in controls {
            control.send(letter.clone());
        }
    }

    /// Sends a control message to one thread of this process. Returns false if it does not run here.
    pub fn send_to(&self, thread: &ThreadId, letter: &ControlMessage) -> bool {
        self.inner.send_message(thread, letter.clone())
    }

    /// Returns a thread's account in the ledger; `None` if it has none.
    pub fn account(&self, thread: &ThreadId) -> Result<Option<Account>, StoreError> {
        self.inner.writer.registry().account(thread)
    }

    /// Returns the number of registry commits so far.
    pub fn commits(&self) -> u64 {
        self.inner.writer.registry().commits()
    }
}

impl ThreadHandle {
    pub(crate) fn new(thread_id: ThreadId, live: EventStream, running: RunningThread) -> Self {
        Self { thread_id, live, running }
    }

    /// Cancels the thread: it finishes the current step, then stops.
    pub fn cancel(&self) {
        self.running.control.send(ControlMessage::Cancel);
    }

    /// Kills the thread: a call in flight is cut and counts at its worst case.
    pub fn kill(&self) {
        self.running.control.send(ControlMessage::Kill);
    }

    /// Sends any other control message: steering, a follow-up, a raised limit.
    pub fn send(&self, letter: ControlMessage) {
        self.running.control.send(letter);
    }

    /// Returns a sender that works while the handle is borrowed.
    pub fn control(&self) -> ControlSender {
        self.running.control.clone()
    }

    /// Waits for the end of the thread and of its continuations.
    pub async fn join(&self) -> RunResult {
        self.running.result().await
    }
}

impl EngineContext {
    /// Returns true if the user accepts transcripts that no key of theirs signed.
    pub fn accepts_unverified(&self) -> bool {
        self.accepts_records.load(Ordering::Relaxed)
    }

    pub fn threads(&self) -> Threads {
        Threads::new(Arc::clone(&self.disk), Some(Arc::clone(self.writer.registry())))
    }

    /// Checks that a thread of this plan may start with these grants: everything it requires of the project is trusted,
    /// and the plan check accepts the plan. Tools are checked when they are called. Blocks.
    pub fn check_admission(&self, plan: &Plan, grants: &[Grant]) -> Result<(), DriveError> {
        self.check_requirements(&plan.directive, requirements_of_granted_plan(plan, grants, &[]))?;
        self.check_plan(plan)
    }

    /// Runs the plan check of the options. Blocks.
    pub fn check_plan(&self, plan: &Plan) -> Result<(), DriveError> {
        self.plan_check.as_ref().map_or(Ok(()), |check| check(plan).map_err(|reason| DriveError::Refused { reason }))
    }

    /// Checks that the given requirements are trusted, except for tools and MCP servers, which are checked when they
    /// are called, and scripts that no provider reads.
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
        let list = missing.iter().map(|one| format!("{} `{}` {}", one.kind.word(), one.name, one.what)).collect();
        Err(DriveError::Untrusted { directive: directive.to_string(), list })
    }

    /// Checks whether a thread of this plan, or a hook of it, may be given an item of the user space.
    ///
    /// # Errors
    /// A sentence for the model.
    pub fn admit_user_space(&self, plan: &Plan, hook: Option<&PlannedHook>) -> Result<(), String> {
        let Some(required) = user_space_of(plan, hook) else { return Ok(()) };
        let now = self.trust.snapshot().map_err(|error| error.to_string())?;
        let missing = now.missing(std::slice::from_ref(&required)).map_err(|error| error.to_string())?;
        if missing.is_empty() {
            return Ok(());
        }
        Err("permission denied: it is in the user's own space, and the user does not trust this project yet; see `rye trust --list`"
            .to_owned())
    }

    /// Runs `work` with the current world on the blocking pool.
    pub async fn with_world<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn World) -> Result<T, String> + Send + 'static,
    ) -> Result<Result<T, String>, DriveError> {
        let open = Arc::clone(&self.world);
        let done = tokio::task::spawn_blocking(move || open().and_then(|world| work(&*world)));
        Ok(done.await?)
    }
}
