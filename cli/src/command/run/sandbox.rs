//! Settings that are applied before a run starts. Settings with errors are refused. If the settings request bubblewrap,
//! the program is looked up in `PATH`.

use std::path::PathBuf;

use rye_compiler::sandbox::requires_bubblewrap;
use rye_compiler::validate::settings::run_settings_errors;
use rye_compiler::world::World;
use rye_engine::process::find_program;
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
    find_program(PROGRAM, &spaces.project).map_or(BubblewrapState::Missing, BubblewrapState::At)
}

/// Applies the settings of a run. Fails if a settings file has an error, because a limit with an invalid value would
/// otherwise not apply. Enables bubblewrap for the programs of tools if the settings request bubblewrap, and fails if
/// bubblewrap is missing.
pub fn apply_run_settings(world: &dyn World, spaces: &Spaces) -> Result<(), CommandError> {
    require_valid_settings(world)?;
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

/// Fails with the first error in the settings files of the project and the user; `rye check` prints all errors. A
/// compilation reports these errors too, but a stored plan, a server or a session in an editor starts without a
/// compilation.
fn require_valid_settings(world: &dyn World) -> Result<(), CommandError> {
    let (errors, sources) = run_settings_errors(world);
    let Some(first) = errors.iter().next() else { return Ok(()) };
    let label = first.labels().into_iter().next();
    let place = label.and_then(|label| {
        let source = sources.get(label.span.source)?;
        let position = source.position(label.span.start);
        Some(format!("{}:{}:{}: ", source.path, position.line, position.column))
    });
    let message = format!("{}{} [{}]", place.unwrap_or_default(), first.message(), first.code());
    let help = "until the settings are correct, nothing runs; `rye check` lists every error";
    Err(CommandError::failed(message).with_help(help))
}
