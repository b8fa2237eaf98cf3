//! A project on disk: its spaces, trust, diagnostics and plans.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rye_compiler::compile::{Compilation, CompileRequest, compile_with_sources};
use rye_compiler::diagnostics::{Diagnostic, Severity};
use rye_compiler::report::render::text;
use rye_compiler::report::summary::PlanSummary;
use rye_compiler::trust::Subject;
use rye_compiler::validate::{CheckReport, Selection, check};
use rye_engine::disk_world::{DiskWorld, SystemFiles};
use rye_engine::engine::{ApprovalPolicy, EngineError, EngineOptions};
use rye_engine::keys::KeyFolder;
use rye_engine::trust::Trust;
use rye_engine::user_space;
use rye_grammar::source::Sources;

use crate::Error;

/// A project: a folder that contains `.ai/`. Its items shadow the items of the user space and of the standard library.
#[derive(Debug, Clone)]
pub struct Project {
    root: PathBuf,
    /// The root of the user space: the folder for the user's `.ai/`, which need not exist. `None` if the user space is
    /// ignored.
    user_root: Option<PathBuf>,
    trust: TrustSource,
    /// Returns the files that are compiled into the embedding program. A user who runs the program trusts these files.
    shipped: fn() -> BTreeSet<Subject>,
}

#[derive(Debug, Clone, Copy)]
enum TrustSource {
    /// The decisions that the user recorded with `rye trust`.
    Recorded,
    /// The user trusts everything, because the embedding program controls the project's files.
    Everything,
}

impl Project {
    /// Opens the project in a folder that contains `.ai/`. The environment selects the user space (the first variable
    /// that is set of `RYE_USER_SPACE`, `USER_SPACE` and `HOME`), and the project executes only what its user trusts.
    ///
    /// # Errors
    /// [`Error::NotAProject`] if the folder does not exist or does not contain `.ai/`. [`Error::World`] if
    /// `RYE_USER_SPACE` or `USER_SPACE` does not name a valid user space.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, Error> {
        let path = root.as_ref();
        let found = path.canonicalize().ok().filter(|root| root.join(".ai").is_dir());
        let root = found.ok_or_else(|| Error::NotAProject { path: path.to_path_buf() })?;
        user_space::check_root_variable().map_err(|error| Error::World(format!("{error}: {}", error.help())))?;
        Ok(Self::at(root, user_space::root()))
    }

    /// Returns the project with this root, without checking that the folders exist. `user_root` is the root of the user
    /// space: the folder for the user's `.ai/`, which need not exist. `None` ignores the user space.
    pub fn at(root: PathBuf, user_root: Option<PathBuf>) -> Self {
        Self { root, user_root, trust: TrustSource::Recorded, shipped: BTreeSet::new }
    }

    /// Ignores the user space: there are no user items and no keys. Nothing in the project is trusted, unless
    /// [`Project::trust_everything`] is also called.
    #[must_use]
    pub fn without_user_space(mut self) -> Self {
        self.user_root = None;
        self
    }

    /// Trusts everything in the project: its hooks, tools, scripts, servers and providers. Only for projects whose
    /// files the embedding program controls.
    #[must_use]
    pub fn trust_everything(mut self) -> Self {
        self.trust = TrustSource::Everything;
        self
    }

    /// Trusts files that are compiled into the embedding program. `shipped` returns these files, and is called only if
    /// the user has not recorded a decision that covers a trust requirement.
    #[must_use]
    pub fn with_shipped_files(mut self, shipped: fn() -> BTreeSet<Subject>) -> Self {
        self.shipped = shipped;
        self
    }

    /// Returns the folder that contains `.ai/`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns true if the project is the user space itself.
    pub fn is_user_space(&self) -> bool {
        self.user_root.as_ref() == Some(&self.root)
    }

    /// Returns the root of the user space, also if the project is the user space. `None` if there is no user space, or
    /// if its root contains no `.ai/`.
    fn user(&self) -> Option<&Path> {
        self.user_root.as_deref().filter(|root| root.join(".ai").is_dir())
    }

    /// Returns the trust that determines what the project may execute.
    pub fn trust(&self) -> Trust {
        match (&self.trust, &self.user_root) {
            (TrustSource::Everything, _) => Trust::Everything,
            (TrustSource::Recorded, _) if self.is_user_space() => Trust::Everything,
            (TrustSource::Recorded, Some(user)) => Trust::recorded(user, &self.root, self.shipped),
            (TrustSource::Recorded, None) => Trust::Nothing,
        }
    }

    /// Opens the current state of all spaces. The project's files shadow the user's files, which shadow the standard
    /// library.
    ///
    /// # Errors
    /// [`Error::World`]: a folder cannot be opened, or the user's keys cannot be read.
    pub fn world(&self) -> Result<DiskWorld, Error> {
        self.world_of(Some(&self.root))
    }

    /// Opens the user space and the standard library, without the files of the project.
    ///
    /// # Errors
    /// As [`Project::world`].
    pub fn world_without_project(&self) -> Result<DiskWorld, Error> {
        self.world_of(None)
    }

    fn world_of(&self, project: Option<&Path>) -> Result<DiskWorld, Error> {
        let trust = self.user().map(KeyFolder::of_user_space).map(|keys| keys.trust_store()).transpose();
        let trust = trust.map_err(|error| Error::World(error.to_string()))?.unwrap_or_default();
        let layer = self.user().filter(|user| *user != self.root);
        let world = DiskWorld::open(project, layer, standard_library(), trust);
        let world = world.map_err(|error| Error::World(error.to_string()))?;
        Ok(world.with_project_as_user_space(self.is_user_space()))
    }

    /// Checks all files of the project, as `rye check` does.
    ///
    /// # Errors
    /// [`Error::World`]. Errors in the files of the project are part of the report.
    pub fn check(&self) -> Result<CheckReport, Error> {
        Ok(check(&self.world()?, &Selection::All))
    }

    /// Compiles a directive to a plan, as `rye plan` and `rye run` do.
    ///
    /// # Errors
    /// [`Error::World`], and [`Error::NoPlan`] if the directive has errors.
    pub fn plan(&self, request: &CompileRequest) -> Result<Compilation, Error> {
        let world = self.world()?;
        let mut sources = Sources::default();
        let compiled = compile_with_sources(&world, request, &mut sources);
        let Some(compilation) = compiled.value else {
            let errors = compiled.diagnostics.iter().filter(|one| one.severity() == Severity::Error);
            return Err(Error::NoPlan {
                directive: request.directive.to_string(),
                diagnostics: errors.map(|one| describe(one, &sources)).collect(),
            });
        };
        Ok(compilation)
    }

    /// Renders a plan as text, as `rye plan` prints it without colors and without a comparison with the lock.
    ///
    /// # Errors
    /// [`Error::World`].
    pub fn render_plan(&self, compilation: &Compilation) -> Result<String, Error> {
        let summary = PlanSummary::new(&self.world()?, None, compilation);
        let summary = summary.map_err(|error| Error::World(error.to_string()))?;
        Ok(text::render(compilation, &summary))
    }

    /// Returns the options of an engine for this project, with the given handling of approvals.
    ///
    /// # Errors
    /// The user's `.env` cannot be read.
    pub fn engine_options(&self, approvals: ApprovalPolicy) -> Result<EngineOptions, EngineError> {
        EngineOptions::with_trust(&self.root, self.user(), standard_library(), self.trust(), approvals)
    }
}

/// Returns the files of the standard library, which all worlds of the process share.
fn standard_library() -> SystemFiles {
    static FILES: LazyLock<SystemFiles> = LazyLock::new(|| rye_stdlib::files().into());
    FILES.clone()
}

/// Formats a diagnostic in one line, with its source location.
fn describe(one: &Diagnostic, sources: &Sources) -> String {
    let place = one.labels().first().and_then(|label| {
        let source = sources.get(label.span.source)?;
        let position = source.position(label.span.start);
        Some(format!("{}:{}:{}: ", source.path, position.line, position.column))
    });
    format!("{}error[{}]: {}", place.unwrap_or_default(), one.code(), one.message())
}
