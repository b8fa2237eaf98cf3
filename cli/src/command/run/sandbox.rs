//! Setup of bubblewrap if the settings request it: finds the program in `PATH` before anything starts.

use std::path::PathBuf;

use rye_compiler::sandbox::requires_bubblewrap;
use rye_compiler::world::World;
use rye_engine::tool::process::use_bubblewrap;

use crate::CommandError;
use crate::workspace::Spaces;

/// Name of the bubblewrap program.
const PROGRAM: &str = "bwrap";

/// State of bubblewrap on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BubblewrapState {
    NotProbed,
    At(PathBuf),
    Missing,
}

pub fn bubblewrap_state(world: &dyn World, spaces: &Spaces) -> BubblewrapState {
    if !requires_bubblewrap(world) {
        return BubblewrapState::NotProbed;
    }
    find_program(spaces).map_or(BubblewrapState::Missing, BubblewrapState::At)
}

/// Enables bubblewrap for tool programs if the settings request it; fails if it is missing.
pub fn enable_bubblewrap(world: &dyn World, spaces: &Spaces) -> Result<(), CommandError> {
    match bubblewrap_state(world, spaces) {
        BubblewrapState::NotProbed => Ok(()),
        BubblewrapState::At(program) => {
            use_bubblewrap(&program);
            Ok(())
        }
        BubblewrapState::Missing => {
            let failure = CommandError::failed("`sandbox: bubblewrap` is set, but `bwrap` is not in `PATH`");
            Err(failure.with_help("install bubblewrap, or remove the setting from `agent/agent.yaml`"))
        }
    }
}

/// Returns the first program in `PATH` that is not part of the project.
fn find_program(spaces: &Spaces) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let programs = folders.filter_map(|folder| folder.join(PROGRAM).canonicalize().ok());
    programs.into_iter().find(|program| program.is_file() && !program.starts_with(&spaces.project))
}
