//! Refusals of file tools, as sentences that the model can act on.

use std::io;

use super::ProjectPath;

/// The refusal of a file access. The texts name only paths relative to the project.
#[derive(Debug, thiserror::Error)]
pub enum FileAccessError {
    #[error("`{path}` is not inside the project; paths are relative to its root")]
    Outside { path: String },
    #[error("`{path}` leads out of the project through a link")]
    LeadsOut { path: String },
    #[error("`{path}` is not a valid path: {reason}")]
    InvalidPath { path: String, reason: &'static str },
    #[error("`{path}` is hidden from tools; past results and threads are read with rye_fetch and the thread tools")]
    Hidden { path: String },
    #[error("`{path}` is read-only for tools")]
    ReadOnly { path: ProjectPath },
    #[error(
        "`{path}` is read-only for tools: with `HEAD`, `objects` and `refs`, its folder is a git repository, whose \
         settings can start programs"
    )]
    BareRepository { path: ProjectPath },
    #[error("writing `{path}` needs the capability `{capability}`, which this thread does not have")]
    NeedsSign { path: ProjectPath, capability: String },
    #[error("permission denied: `{path}` is outside of write=\"{folders}\", the folders that the grants allow")]
    NotGranted { path: ProjectPath, folders: String },
    #[error("`{path}` does not exist")]
    NotFound { path: String },
    #[error("`{path}` is a folder")]
    IsFolder { path: ProjectPath },
    #[error("`{path}` is not a folder")]
    NotFolder { path: String },
    #[error("`{path}` is {what}, not a regular file")]
    Special { path: ProjectPath, what: &'static str },
    #[error("`{path}` is write-protected: its file mode forbids writing")]
    Protected { path: ProjectPath },
    #[error("`{path}` has changed since it was read; read it again")]
    Changed { path: ProjectPath },
    #[error("`{path}`: {source}")]
    Io { path: String, source: io::Error },
}

impl FileAccessError {
    pub(super) fn io(path: &(impl ToString + ?Sized), source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_string(), source: source.into() }
    }
}
