//! bubblewrap, where the settings ask for it: found on the path before anything is started, or said to be missing.

use std::path::PathBuf;

use rye_compiler::wall::wants_bubblewrap;
use rye_compiler::world::World;
use rye_engine::tool::process::use_bubblewrap;

use crate::Failure;
use crate::space::Spaces;

/// Its program's name.
const PROGRAM: &str = "bwrap";

/// What the settings ask for, and what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bubblewrap {
    Unasked,
    At(PathBuf),
    Missing,
}

pub fn bubblewrap(world: &dyn World, spaces: &Spaces) -> Bubblewrap {
    if !wants_bubblewrap(world) {
        return Bubblewrap::Unasked;
    }
    found(spaces).map_or(Bubblewrap::Missing, Bubblewrap::At)
}

/// Has programs started through it where that is asked for.
pub fn prepare(world: &dyn World, spaces: &Spaces) -> Result<(), Failure> {
    match bubblewrap(world, spaces) {
        Bubblewrap::Unasked => Ok(()),
        Bubblewrap::At(program) => {
            use_bubblewrap(&program);
            Ok(())
        }
        Bubblewrap::Missing => {
            let failure = Failure::failed("`sandbox: bubblewrap` is set, and there is no `bwrap` on the path");
            Err(failure.help("install bubblewrap, or take the setting out of `agent/agent.yaml`"))
        }
    }
}

/// The first on the path, unless the project brought it along.
fn found(spaces: &Spaces) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    let programs = folders.filter_map(|folder| folder.join(PROGRAM).canonicalize().ok());
    programs.into_iter().find(|program| program.is_file() && !program.starts_with(&spaces.project))
}
