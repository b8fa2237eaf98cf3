//! The engine as a library: opens a project, starts plans, recovers interrupted threads and reads stored threads. The
//! command line and the tests use only this API.

use crate::context::EngineContext;
use crate::context::PlanProviders;
use crate::context::SharedPlans;
use crate::context::capabilities::CapabilitiesCache;
use crate::live;
use crate::session::descendants::last_of_chain;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};

use rye_compiler::compile::{Compilation, compile};
use rye_compiler::expand::{Expansion, expand};
use rye_compiler::item::Items;
use rye_compiler::semantics::ledger::Account;
use rye_compiler::world::World;
use tokio::sync::Notify;

use crate::clock::{Clock, SystemClock};
use crate::disk_world::{DiskWorld, SystemFiles};
use crate::event::{CommandSettings, ControlMessage, Event};
use crate::image::{ImageRef, ValidatedImage};
use crate::image_objects;
use crate::keys::{KeyFolder, TrustedKeys};
use crate::provider::environment::ProviderEnvironment;
use crate::running_outputs::RunningOutputs;
use crate::session::ResumePoint;
use crate::signer::Signer;
use crate::store::{Disk, GroupCommit, Objects, OwnerLock, RealDisk, Registry, RegistryWriter, StoreError, ThreadIds};
use crate::thread::RunResult;
use crate::thread_count::ThreadCount;
use crate::thread_id::ThreadId;
use crate::thread_tools::ThreadsTool;
use crate::threads::Threads;
use crate::tool::registry::ToolRegistry as Tools;
use crate::trust::Trust;

pub use crate::context::{
    ApprovalHandler, ApprovalPolicy, ApprovalRequest, Compile, OpenWorld, PlanCheck, Providers, StartOptions,
    ThreadHandle, UserMessage,
};
pub use crate::error::EngineError;
pub use crate::parent_thread::ParentThread;

/// The dependencies and settings of an engine.
pub struct EngineOptions {
    pub world: OpenWorld,
    /// The compiler. Tests substitute a caching compiler.
    pub compile: Compile,
    pub providers: Arc<dyn Providers>,
    pub clock: Arc<dyn Clock>,
    pub approvals: ApprovalPolicy,
    /// The user's keys, for `rye_sign` and for the signatures of threads. Without keys, threads are signed with a
    /// temporary key that ends with the process.
    pub keys: Option<KeyFolder>,
    /// The disk of the store; `None` for the real disk, with the folder of the project as its root.
    pub disk: Option<Arc<dyn Disk>>,
    pub tools: Tools,
    /// The user's trust in the project's files.
    pub trust: Trust,
    /// The maximum durations for which a registry commit waits for other commits, to share a transaction with them.
    pub group_commit: GroupCommit,
    /// An additional check of plans; `None` if every trusted plan may start.
    pub plan_check: Option<PlanCheck>,
    /// The settings of the command that uses the engine. They apply to the threads that the engine starts.
    pub settings: CommandSettings,
}

/// An engine for one project. Cloning is cheap. Dropping the last clone releases the lock that marks this process as
/// the owner of its threads.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<EngineContext>,
}

impl EngineOptions {
    /// Returns the usual options. Items come from the files of the project and the user, which shadow the embedded
    /// system space. The endpoints of providers come from the provider files, and API keys from the environment and the
    /// user's `.env`. `user` is the root of the user space, even if that is the project. `trust` records the files that
    /// the user trusts.
    ///
    /// # Errors
    ///
    /// The user's `.env` cannot be read.
    pub fn with_trust(
        project: &Path,
        user: Option<&Path>,
        system: impl Into<SystemFiles>,
        trust: Trust,
        approvals: ApprovalPolicy,
    ) -> Result<Self, EngineError> {
        let environment = ProviderEnvironment::read(user).map_err(|error| EngineError::World(error.to_string()))?;
        crate::secrets::add_secrets(environment.file_variables());
        let keys = user.map(KeyFolder::of_user_space);
        // A project that is also the user space counts as one space, not two.
        let layer = user.filter(|user| *user != project).map(Path::to_path_buf);
        let is_user_space = user == Some(project);
        let trusted = keys.clone().map(TrustedKeys::new);
        let (root, home, system) = (project.to_path_buf(), layer, system.into());
        let world: OpenWorld = Arc::new(move || {
            let trust = trusted.as_ref().map(TrustedKeys::current).transpose().map_err(|error| error.to_string())?;
            let world = DiskWorld::open(Some(&root), home.as_deref(), system.clone(), trust.unwrap_or_default());
            let world = world.map_err(|error| error.to_string())?.with_project_as_user_space(is_user_space);
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
        let (disk, plan_check, settings) = (None, None, CommandSettings::default());
        let (clock, tools) = (Arc::new(SystemClock), Tools::standard().with_user_space(user));
        let (group_commit, compile): (GroupCommit, Compile) = (GroupCommit::default(), Arc::new(compile));
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
            group_commit,
            plan_check,
            settings,
        })
    }
}

impl Engine {
    /// Opens the store of a project, and creates the lock file with which this process owns threads. Starting threads
    /// needs a Tokio runtime.
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
            group_commit,
            plan_check,
            settings,
        } = options;
        let disk: Arc<dyn Disk> = match disk {
            Some(disk) => disk,
            None => Arc::new(RealDisk::open(project).map_err(StoreError::io("open", project))?),
        };
        // The registry is opened first: in a new project, it creates the folders of the store and syncs their names
        // once.
        let registry = Arc::new(Registry::open(Arc::clone(&disk))?);
        let owner = OwnerLock::acquire(Arc::clone(&disk), clock.now(), clock.offset())?;
        let writer = RegistryWriter::new(registry, group_commit);
        let signer = Arc::new(Signer::load(keys.as_ref())?);
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
                capabilities_cache: CapabilitiesCache::default(),
                signer,
                trust,
                thread_count: ThreadCount::default(),
                running_outputs: RunningOutputs::default(),
                accepts_records: AtomicBool::new(false),
                plan_check,
                settings,
                live: Mutex::default(),
                inspected: Mutex::default(),
                thread_ended: Notify::new(),
                running_changed: Arc::default(),
            }
        });
        Ok(Self { inner })
    }

    /// Starts a plan as a root thread. The thread runs as a task of this process.
    pub async fn start(&self, compilation: &Compilation, launch: StartOptions) -> Result<ThreadHandle, EngineError> {
        Box::pin(self.inner.start_root(compilation, launch)).await
    }

    /// Recovers an interrupted thread from its transcript. Fails if another live process owns the thread.
    pub async fn recover(&self, thread: &ThreadId) -> Result<ThreadHandle, EngineError> {
        self.inner.recover_root(thread, Vec::new()).await
    }

    /// Recovers a thread. Before the thread continues, delivers control messages to it: the answer that a suspended
    /// thread waits for, or `cancel` or `kill`.
    pub async fn recover_with(
        &self,
        thread: &ThreadId,
        messages: Vec<ControlMessage>,
    ) -> Result<ThreadHandle, EngineError> {
        self.inner.recover_root(thread, messages).await
    }

    /// Resumes an ended thread: starts a new thread with its conversation and one more message. A thread that has not
    /// ended is recovered instead, and the message steers it.
    pub async fn resume(
        &self,
        thread: &ThreadId,
        message: impl Into<UserMessage>,
    ) -> Result<ThreadHandle, EngineError> {
        Box::pin(self.inner.resume_root(thread, message.into())).await
    }

    /// Starts a new thread that continues another thread from the end of an earlier turn, with a new message.
    pub async fn fork(
        &self,
        thread: &ThreadId,
        turn: u64,
        message: impl Into<UserMessage>,
    ) -> Result<ThreadHandle, EngineError> {
        Box::pin(self.inner.continue_from(thread, ResumePoint::Turn(turn), message.into(), None)).await
    }

    /// Hands off an ended thread: starts a new thread that continues the ended thread, as if the context had been full.
    pub async fn hand_off(&self, thread: &ThreadId) -> Result<ThreadHandle, EngineError> {
        Box::pin(self.inner.continue_from(thread, ResumePoint::Handoff, UserMessage::default(), None)).await
    }

    /// Accepts transcripts that no key of this user signed, from now on. Damaged transcripts, and transcripts that
    /// claim more than their plan grants, are still refused.
    pub fn accept_unverified(&self) {
        self.inner.accept_unverified();
    }

    /// Reads and verifies a thread without changing it. Returns the plan and the grants with which the gate will check
    /// the calls of the thread; `None` if nothing was recorded.
    ///
    /// # Errors
    ///
    /// The transcript is damaged or cannot be verified.
    pub async fn inspect(&self, thread: &ThreadId) -> Result<Option<ParentThread>, EngineError> {
        let (engine, id) = (Arc::clone(&self.inner), thread.clone());
        Ok(crate::thread_count::blocking(move || engine.inspect(&id)).await?)
    }

    /// Calls `read` with the events that [`Self::inspect`] read of this thread, and returns the result. Returns `None`
    /// if the last inspection was of another thread, if there was none, or if the thread was recovered since.
    pub fn read_inspected<T>(&self, thread: &ThreadId, read: impl FnOnce(&[Event]) -> T) -> Option<T> {
        self.inner.read_inspected(thread, read)
    }

    /// Removes the owner file of this process, unless a thread is live. Called at the end of a command, because the
    /// process ends without dropping every value.
    pub fn remove_owner_file(&self) {
        if self.inner.is_idle() {
            self.inner.owner.remove_file();
        }
    }

    /// Returns the signer of this process's threads.
    pub fn signer(&self) -> &Signer {
        &self.inner.signer
    }

    /// Returns the outputs of the programs that tool calls of this process are running.
    pub fn running_outputs(&self) -> &RunningOutputs {
        &self.inner.running_outputs
    }

    /// Returns read access to the threads on disk.
    pub fn threads(&self) -> Threads {
        self.inner.threads()
    }

    /// Returns the disk of the store.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.inner.disk
    }

    /// Waits until no thread of this process runs, including children that outlived their parents.
    pub async fn wait_idle(&self) {
        self.inner.wait_idle().await;
    }

    /// Waits until the programs that calls started have ended, but only for a few seconds. Returns false if programs
    /// still run after that time. Call this when no thread runs any more, and before the runtime shuts down, because
    /// the runtime ends the programs of aborted tasks.
    pub async fn wait_programs_ended(&self) -> bool {
        crate::tool::process::wait_programs_ended().await
    }

    /// Sends a control message to every thread of this process.
    pub fn broadcast(&self, message: &ControlMessage) {
        self.inner.broadcast(message);
    }

    /// Sends a control message to one thread of this process. Returns false if the thread does not run in this process.
    pub fn send_to(&self, thread: &ThreadId, message: &ControlMessage) -> bool {
        self.inner.send_message(thread, message.clone())
    }

    /// Returns a thread's account in the ledger; `None` if the thread has no account.
    pub fn account(&self, thread: &ThreadId) -> Result<Option<Account>, StoreError> {
        self.inner.writer.registry().account(thread)
    }

    /// Returns the number of registry commits so far.
    pub fn commits(&self) -> u64 {
        self.inner.writer.registry().commits()
    }
}

impl Engine {
    /// Expands a call of a skill or a prompt template, as the intake of a chat does after its `input` hooks.
    ///
    /// # Errors
    /// The spaces cannot be read.
    pub async fn expand(&self, typed: &str) -> Result<Expansion, EngineError> {
        let typed = typed.to_owned();
        let expanded = self.inner.with_world(move |world| Ok(expand(&Items::new(world), &typed))).await?;
        expanded.map_err(EngineError::World)
    }

    /// Stores a plan with which a chat can continue ([`ControlMessage::Replan`]), after checking the plan's trust
    /// requirements. Returns the plan's id.
    ///
    /// # Errors
    /// The user does not trust a requirement of the plan, or the store cannot be written.
    pub async fn store_plan(&self, compilation: &Compilation) -> Result<String, EngineError> {
        self.inner.admit_compiled(compilation).await?;
        let (engine, plan_id) = (Arc::clone(&self.inner), compilation.plan_id.clone());
        let plan = self.inner.plans.get_or_insert(&plan_id, || compilation.plan.clone());
        let id = plan_id.clone();
        let store = move || {
            engine.check_admission(&plan, &plan.capabilities.grants)?;
            if engine.plans.store(&id, &plan, &engine.objects)? {
                engine.store_sources(&plan)?;
            }
            Ok(())
        };
        crate::thread_count::blocking(store).await?;
        Ok(plan_id)
    }

    /// Stores images, so that a message can refer to them.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn store_images(&self, images: Vec<ValidatedImage>) -> Result<Vec<ImageRef>, EngineError> {
        if images.is_empty() {
            return Ok(Vec::new());
        }
        let objects = Arc::clone(&self.inner.objects);
        Ok(crate::thread_count::blocking(move || Ok(image_objects::store_images(&images, &objects)?)).await?)
    }

    /// Sends a control message to a thread of this process, or to the thread that continues it. Returns false if no
    /// such thread runs in this process.
    ///
    /// # Errors
    /// The registry cannot be read.
    pub async fn send_to_chain(&self, thread: &ThreadId, message: ControlMessage) -> Result<bool, EngineError> {
        if self.send_to(thread, &message) {
            return Ok(true);
        }
        let first = thread.clone();
        let last = self.inner.read_registry(move |registry| last_of_chain(registry, first)).await?;
        Ok(last.is_some_and(|last| self.send_to(&last, &message)))
    }

    /// Stops one call of a thread, which continues with the call's error. Does nothing if this process does not run the
    /// thread.
    pub(crate) fn stop_call(&self, thread: &ThreadId, call_id: &str) {
        if let Some(running) = self.inner.running(thread) {
            running.control.stop_call(call_id.to_owned());
        }
    }

    /// Waits for the end of a thread and of its continuations, and returns the result.
    ///
    /// # Errors
    /// The transcript or the registry cannot be read.
    pub async fn wait(&self, thread: &ThreadId) -> Result<RunResult, EngineError> {
        let sink = Arc::new(live::event_channel().0);
        Ok(self.inner.result_of_child(thread, &sink).await?.0)
    }

    /// Lists the threads that run in this process.
    pub fn running_threads(&self) -> Vec<ThreadId> {
        self.inner.running_threads()
    }
}
