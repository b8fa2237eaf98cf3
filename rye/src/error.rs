//! Errors of library calls.

use std::path::PathBuf;

use rye_engine::engine::EngineError;
use rye_grammar::item_id::InvalidId;

/// An error of a library call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder does not exist, or contains no `.ai/`.
    #[error("`{}` is not a project: it contains no `.ai/`", path.display())]
    NotAProject {
        /// Path of the folder, as the caller passed it.
        path: PathBuf,
    },
    /// The files of a space cannot be read.
    #[error("{0}")]
    World(String),
    /// The directive has errors, so that there is no plan. Each entry is a diagnostic:
    /// `.ai/directives/a.md:3:5: error[code]: message`.
    #[error("`{directive}` has no plan: {}", diagnostics.join("; "))]
    NoPlan {
        /// The id of the directive.
        directive: String,
        /// The errors, in source order.
        diagnostics: Vec<String>,
    },
    /// The script of a simulated model cannot be read.
    #[error("the script `{}`: {reason}", path.display())]
    Script {
        /// The path of the script, as the caller passed it.
        path: PathBuf,
        /// The reason, with the line of the script.
        reason: String,
    },
    /// The id of an item is not valid.
    #[error(transparent)]
    ItemId(#[from] InvalidId),
    /// The engine cannot start, recover or read a thread.
    #[error(transparent)]
    Engine(#[from] EngineError),
}
