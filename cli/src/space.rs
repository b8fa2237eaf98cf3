//! Where things are: the project's folder and the user's (`language.md` 1). What lies in them is the engine's world.

use std::fmt;
use std::path::{Path, PathBuf};

use rye_engine::disk_world::DiskWorld;
use rye_engine::keys::Keys;
use rye_engine::trust::Trust;

use crate::Failure;
use crate::command::init::shipped;

/// The folders of an invocation, each one that holds `.ai/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spaces {
    pub project: PathBuf,
    /// `None` where there is no user space, or where the project is the user space itself.
    pub user: Option<PathBuf>,
    /// The project is the user space itself.
    pub own: bool,
}

impl Spaces {
    /// The project that `--project` names, else the nearest folder upwards that holds `.ai/`.
    pub fn find(asked: Option<&Path>) -> Result<Self, Failure> {
        let project = match asked {
            Some(folder) => asked_project(folder)?,
            None => nearest_project()?,
        };
        let user = user_space();
        let own = user.as_ref() == Some(&project);
        Ok(Self { project, user: user.filter(|_| !own), own })
    }

    /// What of the project this user lets execute something.
    pub fn trust(&self) -> Trust {
        match user_root() {
            _ if self.own => Trust::Everything,
            Some(root) => Trust::of(&root, &self.project, shipped()),
            None => Trust::Nothing,
        }
    }

    /// The world these folders make with the standard library; signatures count when the user trusts their keys.
    pub fn open(&self) -> Result<DiskWorld, Failure> {
        self.look(Some(&self.project))
    }

    /// The same without the project's files: for who has them from elsewhere.
    pub fn open_others(&self) -> Result<DiskWorld, Failure> {
        self.look(None)
    }

    fn look(&self, project: Option<&Path>) -> Result<DiskWorld, Failure> {
        // Where the project is the user space itself, its keys are still the user's.
        let keys = self.user.clone().or_else(user_space).map(|user| Keys::of_user_space(&user));
        let trust = keys.map(|keys| keys.trust_store()).transpose().map_err(|e| Failure::failed(e.to_string()))?;
        let system = rye_stdlib::files();
        DiskWorld::open(project, self.user.as_deref(), system, trust.unwrap_or_default())
            .map_err(|error| Failure::failed(error.to_string()))
    }
}

impl fmt::Display for Spaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "project: {}", self.project.display())?;
        match &self.user {
            Some(user) => write!(f, "\nuser space: {}", user.display()),
            None => Ok(()),
        }
    }
}

fn asked_project(folder: &Path) -> Result<PathBuf, Failure> {
    let found = folder
        .canonicalize()
        .map_err(|error| Failure::usage(format!("`{}` cannot be opened: {error}", folder.display())))?;
    if found.join(".ai").is_dir() {
        return Ok(found);
    }
    Err(Failure::usage(format!("`{}` is no project: it holds no `.ai/`", folder.display())))
}

fn nearest_project() -> Result<PathBuf, Failure> {
    let here = std::env::current_dir()?.canonicalize()?;
    let found = here.ancestors().find(|folder| folder.join(".ai").is_dir()).map(Path::to_path_buf);
    found.ok_or_else(|| {
        Failure::usage("there is no project here: no folder from here upwards holds `.ai/`")
            .help("say which one with `--project DIR`")
    })
}

/// `$RYE_USER_SPACE`, else `$USER_SPACE`, else the home folder; only where it holds `.ai/`.
fn user_space() -> Option<PathBuf> {
    user_root().filter(|folder| folder.join(".ai").is_dir())
}

/// The folder that holds, or would hold, the user's `.ai/`.
pub fn user_root() -> Option<PathBuf> {
    let named = ["RYE_USER_SPACE", "USER_SPACE", "HOME"]
        .into_iter()
        .find_map(|name| std::env::var_os(name).filter(|value| !value.is_empty()))?;
    PathBuf::from(named).canonicalize().ok()
}
