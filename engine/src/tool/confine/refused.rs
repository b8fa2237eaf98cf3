//! Refusals of file tools, as sentences that the model can act on.

use std::io;

use super::Relative;

/// A refusal. The texts name only paths relative to the project.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("`{path}` is not inside the project; paths are relative to its root")]
    Outside { path: String },
    #[error("`{path}` leads out of the project through a link")]
    LeadsOut { path: String },
    #[error("`{path}` is no path: {reason}")]
    InvalidPath { path: String, reason: &'static str },
    #[error("`{path}` is hidden from tools; past results and threads are read with rye_fetch and the thread tools")]
    Hidden { path: String },
    #[error("`{path}` is read-only for tools")]
    ReadOnly { path: Relative },
    #[error("writing `{path}` needs the capability `{capability}`, which this thread does not have")]
    NeedsSign { path: Relative, capability: String },
    #[error("`{path}` does not exist")]
    NotFound { path: String },
    #[error("`{path}` is a folder")]
    IsFolder { path: Relative },
    #[error("`{path}` is no folder")]
    NotFolder { path: String },
    #[error("`{path}` is {what}, not a regular file")]
    Special { path: Relative, what: &'static str },
    #[error("`{path}` is write-protected by its own mode")]
    Protected { path: Relative },
    #[error("`{path}` was changed by somebody else in the meantime; read it again")]
    Changed { path: Relative },
    #[error("`{path}`: {source}")]
    Io { path: String, source: io::Error },
}

impl Refused {
    pub(super) fn io(path: &(impl ToString + ?Sized), source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_string(), source: source.into() }
    }
}
