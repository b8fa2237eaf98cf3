//! The folders of an invocation: the project's and the user space's (`language.md` 1). The engine's world reads the
//! files in them.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rye::Project;
use rye_engine::disk_world::DiskWorld;
use rye_engine::engine::{ApprovalPolicy, EngineError, EngineOptions};
use rye_engine::trust::Trust;
use rye_engine::user_space::{candidate_roots, check_root_variable};

use crate::CommandError;
use crate::examples::example_subjects;
use crate::options::Format;
use crate::report::{Printer, printable};

/// Returns the root of the user space: the folder for the user's `.ai/`, which need not exist.
pub use rye_engine::user_space::root as user_root;

/// The folders that a command works with: the project and the user space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spaces {
    pub project: PathBuf,
    /// The user space; `None` if there is none, or if the project is the user space itself.
    pub user: Option<PathBuf>,
    /// True if the project is the user space itself.
    pub own: bool,
}

impl Spaces {
    /// Finds the project: the folder that `--project` names, else the nearest ancestor of the working directory that
    /// contains `.ai/`. The search ends at a folder that may contain the user space, and does not return that folder.
    pub fn find(requested: Option<&Path>) -> Result<Self, CommandError> {
        check_user_root()?;
        let project = match requested {
            Some(folder) => asked_project(folder)?,
            None => nearest_project()?,
        };
        let user = user_space();
        let own = user.as_ref() == Some(&project);
        Ok(Self { project, user: user.filter(|_| !own), own })
    }

    /// Finds the project as [`Self::find`] does, and prints its folder as [`Self::print_project`] does.
    pub fn find_and_print(requested: Option<&Path>, report: &Printer) -> Result<Self, CommandError> {
        let spaces = Self::find(requested)?;
        spaces.print_project(report);
        Ok(spaces)
    }

    /// Finds the project as [`Self::find`] does, and returns it with `true`. If no folder was requested and no project
    /// is found, returns the working directory as an empty project, with `false`. Used by commands that need only the
    /// user space and the standard library.
    pub fn find_or_here(requested: Option<&Path>) -> Result<(Self, bool), CommandError> {
        check_user_root()?;
        match Self::find(requested) {
            Ok(spaces) => Ok((spaces, true)),
            Err(failure) if requested.is_some() => Err(failure),
            Err(_) => {
                let project = working_folder()?;
                let user = user_space();
                let own = user.as_ref() == Some(&project);
                Ok((Self { project, user: user.filter(|_| !own), own }, false))
            }
        }
    }

    /// Prints the folder of the project to stderr in human output, unless that folder is the working directory.
    pub fn print_project(&self, report: &Printer) {
        let here = std::env::current_dir().and_then(|here| here.canonicalize());
        let elsewhere = here.map_or(true, |here| here != self.project);
        if elsewhere && report.format() == Format::Human {
            report.note(&printable(&format!("project: {}", self.project.display())));
        }
    }

    /// Returns the engine's options for these folders, with the user's trust in the project.
    pub fn engine_options(&self, approvals: ApprovalPolicy) -> Result<EngineOptions, EngineError> {
        self.library_project().engine_options(approvals)
    }

    /// Returns the user's trust in the project.
    pub fn trust(&self) -> Trust {
        self.library_project().trust()
    }

    /// Opens the world that consists of these folders and the standard library. A signature is valid only if the user
    /// trusts its key.
    pub fn open(&self) -> Result<DiskWorld, CommandError> {
        self.library_project().world().map_err(|error| CommandError::failed(error.to_string()))
    }

    /// Opens the world without the files of the project, for a caller that reads them from another source.
    pub fn open_without_project(&self) -> Result<DiskWorld, CommandError> {
        self.library_project().world_without_project().map_err(|error| CommandError::failed(error.to_string()))
    }

    /// Returns these folders as a [`Project`] of the library `rye`.
    pub fn library_project(&self) -> Project {
        Project::at(self.project.clone(), self.user_root()).with_shipped_files(example_subjects)
    }

    /// Returns the root of the user space: the folder for the user's `.ai/`, which need not exist. `None` if no
    /// environment variable names such a folder and no home folder exists.
    pub fn user_root(&self) -> Option<PathBuf> {
        if self.own { Some(self.project.clone()) } else { user_root() }
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

/// Fails if the environment variable that selects the user space names no folder, or names the `.ai` folder in place of
/// the folder around it. Succeeds if no such variable is set.
pub fn check_user_root() -> Result<(), CommandError> {
    check_root_variable().map_err(|error| {
        let help = error.help();
        CommandError::usage(error.to_string()).with_help(help)
    })
}

fn asked_project(folder: &Path) -> Result<PathBuf, CommandError> {
    let found = folder
        .canonicalize()
        .map_err(|error| CommandError::usage(format!("`{}` cannot be opened: {error}", folder.display())))?;
    if found.join(".ai").is_dir() {
        return Ok(found);
    }
    let failure = CommandError::usage(format!("`{}` is not a project: it contains no `.ai/`", folder.display()));
    Err(failure.with_help(format!("create a project with `rye init {}`", folder.display())))
}

fn working_folder() -> Result<PathBuf, CommandError> {
    std::env::current_dir().and_then(|here| here.canonicalize()).map_err(|error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            CommandError::usage("the working directory no longer exists")
                .with_help("change to an existing folder (`cd`), or select the project with `--project DIR`")
        } else {
            CommandError::usage(format!("the working directory cannot be opened: {error}"))
        }
    })
}

fn nearest_project() -> Result<PathBuf, CommandError> {
    let here = working_folder()?;
    let ends: Vec<Identity> = candidate_roots().iter().filter_map(|folder| folder_identity(folder)).collect();
    for folder in here.ancestors() {
        let is_user = folder_identity(folder).is_some_and(|folder| ends.contains(&folder));
        match (folder.join(".ai").is_dir(), is_user) {
            (true, false) => return Ok(folder.to_path_buf()),
            (true, true) => return Err(user_space_failure(folder)),
            (false, true) => break,
            (false, false) => {}
        }
    }
    let nothing = format!("no project found: neither `{}` nor a parent folder contains `.ai/`", here.display());
    Err(CommandError::usage(nothing)
        .with_help("create a project with `rye init`, or select a project with `--project DIR`"))
}

/// Returns the error of a search for a project that ends at the user space. The search never returns the user space;
/// only `--project` can select it as the project.
fn user_space_failure(folder: &Path) -> CommandError {
    let folder = folder.display();
    let reason = format!("no project found: the search ends at `{folder}`, whose `.ai/` is a user space");
    let help =
        format!("create a project with `rye init`, or select this folder as the project with `--project {folder}`");
    CommandError::usage(reason).with_help(help)
}

/// The device and inode number of a folder. They identify the folder independent of the path.
type Identity = (u64, u64);

fn folder_identity(folder: &Path) -> Option<Identity> {
    std::fs::metadata(folder).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Returns the root of the user space; `None` if there is no root, or if the root contains no `.ai/`.
fn user_space() -> Option<PathBuf> {
    user_root().filter(|folder| folder.join(".ai").is_dir())
}
