//! The engine that runs the threads of a project, and the builder that holds the settings of the engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rye_compiler::compile::Compilation;
use rye_compiler::plan::PlannedModel;
use rye_engine::engine::{ApprovalHandler, ApprovalPolicy, EngineOptions, Providers};
use rye_engine::exchange::CallError;
use rye_engine::provider::Provider;
use rye_engine::provider::scripted::{Scripted, read_script};
use rye_engine::tool::Tool;

use crate::session::{Questions, Session, SessionRequest};
use crate::{Error, Project};

/// The handling of calls that need an approval, and of limits that were reached.
#[derive(Clone)]
pub enum Approvals {
    /// Each approval request is sent to the subscribers as a [`Question`](crate::Question), and waits for
    /// [`Session::answer`](crate::Session::answer).
    Ask,
    /// A handler of the embedding program answers each approval request.
    Handler(Arc<dyn ApprovalHandler>),
    /// Calls run without an approval. A limit suspends the thread.
    Allow,
    /// Calls that need an approval are refused. A limit suspends the thread.
    Deny,
    /// The thread is suspended before the call. `rye threads approve` or
    /// [`SessionRequest::recover_with`](crate::SessionRequest::recover_with) answers the request later.
    Queue,
}

/// The settings of an [`Engine`].
pub struct EngineBuilder {
    project: Project,
    approvals: Approvals,
    providers: Option<Arc<dyn Providers>>,
    /// Path of the script that replaces every model; `None` if there is none.
    script: Option<PathBuf>,
    tools: Vec<(String, Arc<dyn Tool>)>,
}

/// An engine for one project: starts, recovers and resumes threads. Cloning is cheap. Dropping the last clone releases
/// the lock that marks this process as the owner of its threads.
#[derive(Clone)]
pub struct Engine {
    inner: rye_engine::engine::Engine,
    questions: Arc<Questions>,
}

impl EngineBuilder {
    /// Creates the settings for a project. By default, calls that need an approval are refused, and the models of the
    /// plans are used.
    pub fn new(project: &Project) -> Self {
        let (project, approvals) = (project.clone(), Approvals::Deny);
        Self { project, approvals, providers: None, script: None, tools: Vec::new() }
    }

    /// Sets the handling of calls that need an approval. By default, such calls are refused.
    #[must_use]
    pub fn approvals(mut self, approvals: Approvals) -> Self {
        self.approvals = approvals;
        self
    }

    /// Replaces every model by a script (`docs/reference/scripted.md`). Each thread records the path of the script.
    ///
    /// # Errors
    /// [`Error::Script`] if the script cannot be read.
    pub fn script(mut self, path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        self.providers = Some(Arc::new(ScriptedProviders::read(path)?));
        let fault = |error: std::io::Error| Error::Script { path: path.to_owned(), reason: error.to_string() };
        self.script = Some(std::path::absolute(path).map_err(fault)?);
        Ok(self)
    }

    /// Sets the source of the connections to model providers, in place of the default one.
    #[must_use]
    pub fn providers(mut self, providers: Arc<dyn Providers>) -> Self {
        self.providers = Some(providers);
        self.script = None;
        self
    }

    /// Adds a tool that this program implements. A tool file with `kind: builtin` and `builtin: NAME` declares the
    /// tool's description, parameters and requirements (`needs`). The gate authorizes calls of the tool like calls of
    /// any other tool.
    #[must_use]
    pub fn tool(mut self, name: impl Into<String>, tool: Arc<dyn Tool>) -> Self {
        self.tools.push((name.into(), tool));
        self
    }

    /// Opens the store of the project, and acquires the lock that marks this process as the owner of its threads. Must
    /// be called within a Tokio runtime; blocks for a short time.
    ///
    /// # Errors
    ///
    /// [`Error::Engine`]: the store cannot be opened, or the user's keys or `.env` cannot be read.
    pub fn open(self) -> Result<Engine, Error> {
        let questions = Arc::new(Questions::default());
        let policy = match self.approvals {
            Approvals::Ask => ApprovalPolicy::Ask(Arc::clone(&questions) as Arc<dyn ApprovalHandler>),
            Approvals::Handler(handler) => ApprovalPolicy::Ask(handler),
            Approvals::Allow => ApprovalPolicy::Allow,
            Approvals::Deny => ApprovalPolicy::Deny,
            Approvals::Queue => ApprovalPolicy::Queue,
        };
        let mut options: EngineOptions = self.project.engine_options(policy)?;
        if let Some(providers) = self.providers {
            options.providers = providers;
        }
        options.settings.script = self.script.map(|path| path.display().to_string());
        for (name, tool) in self.tools {
            options.tools.add(&name, move |_| Arc::clone(&tool));
        }
        let inner = rye_engine::engine::Engine::open(self.project.root(), options)?;
        Ok(Engine { inner, questions })
    }
}

impl Engine {
    /// Starts, recovers, resumes or forks a thread, and returns its session.
    ///
    /// # Errors
    /// [`Error::Engine`]: the plan needs trust, the thread is unknown or owned by another process, or the store fails.
    pub async fn open(&self, request: SessionRequest) -> Result<Session, Error> {
        let handle = request.start_on(&self.inner).await?;
        Ok(Session::new(handle, self.inner.clone(), Arc::clone(&self.questions)))
    }

    /// Waits until no thread of this engine runs, including children that outlived their parents.
    pub async fn wait_idle(&self) {
        self.inner.wait_idle().await;
    }

    /// Returns the engine of the layer below (`rye_engine`).
    pub fn inner(&self) -> &rye_engine::engine::Engine {
        &self.inner
    }
}

/// A script that replaces every model.
pub struct ScriptedProviders(Arc<Scripted>);

impl ScriptedProviders {
    /// Reads a script file.
    ///
    /// # Errors
    /// [`Error::Script`] if the script cannot be read.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let fault = |reason: String| Error::Script { path: PathBuf::from(path), reason };
        let script = read_script(path).map_err(fault)?;
        Ok(Self(Arc::new(Scripted::new(script))))
    }
}

impl Providers for ScriptedProviders {
    fn connect(&self, model: &PlannedModel) -> Result<Arc<dyn Provider>, CallError> {
        self.0.connect(model)
    }
}

impl From<Compilation> for SessionRequest {
    fn from(compilation: Compilation) -> Self {
        Self::start(compilation)
    }
}
