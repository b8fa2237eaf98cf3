//! The built-in tools. Each tool parses typed parameters, acts through `ProjectFiles` or [`process`], and returns text
//! for the model. The schemas of the tools are in their items of the standard library.
//!
//! [`process`]: super::process

mod bash;
mod edit;
mod file_write;
mod git;
mod glob;
mod grep;
mod knowledge;
mod ls;
mod read;
mod text;
mod web_fetch;
mod write;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::cancellation::StopCondition;
use super::confine::{FileAccessError, ProjectFiles};
use super::{Invocation, Tool, ToolOutcome};
use crate::BoxFuture;

pub use bash::BashTool;
pub(crate) use file_write::read_contents;
pub use file_write::{ChangeRecorder, PendingChange};
use file_write::{PendingWrite, PreparedWrite};
pub use git::GitTool;
pub use web_fetch::{WebFetchTool, html_to_text};

/// The file tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileTool {
    Read,
    Write,
    Edit,
    Ls,
    Glob,
    Grep,
    /// Writes a knowledge item of the project, with its metadata.
    Knowledge,
}

/// Maximum size of a result in bytes, apart from a short note at its end. The guard's maximum is higher, so that the
/// guard does not truncate the result.
const MAX_RESULT_BYTES: usize = 28 * 1024;

/// A failed call, with a message for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ToolFailure(String);

type ToolResult = Result<ToolOutcome, ToolFailure>;

impl FileTool {
    pub const ALL: [Self; 7] = [Self::Read, Self::Write, Self::Edit, Self::Ls, Self::Glob, Self::Grep, Self::Knowledge];

    /// Returns the name used in tool files: `builtin: read`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Edit => "edit",
            Self::Ls => "ls",
            Self::Glob => "glob",
            Self::Grep => "grep",
            Self::Knowledge => "knowledge_write",
        }
    }

    fn run_blocking(self, invocation: &Invocation, stop: &StopCondition) -> ToolResult {
        let project = ProjectFiles::open(&invocation.project_root, invocation.may_write_item.clone())?
            .with_write_bounds(invocation.write_bounds.clone());
        let given = &invocation.parameters;
        match self {
            Self::Read => read::run(&project, &parse_parameters(given)?, stop),
            Self::Write | Self::Edit | Self::Knowledge => {
                Err(ToolFailure("internal error: the write was not prepared".to_owned()))
            }
            Self::Ls => ls::run(&project, &parse_parameters(given)?, stop),
            Self::Glob => glob::run(&project, &parse_parameters(given)?, stop),
            Self::Grep => grep::run(&project, &parse_parameters(given)?, stop),
        }
    }

    /// Prepares the write of a tool; `None` for a tool that reads.
    fn prepare_write(self, invocation: &Invocation) -> Result<Option<PendingWrite>, ToolFailure> {
        let project = ProjectFiles::open(&invocation.project_root, invocation.may_write_item.clone())?
            .with_write_bounds(invocation.write_bounds.clone());
        let given = &invocation.parameters;
        let write: PreparedWrite = match self {
            Self::Write => write::prepare(&project, parse_parameters(given)?)?,
            Self::Edit => edit::prepare(&project, &parse_parameters(given)?)?,
            Self::Knowledge => knowledge::prepare(&project, &parse_parameters(given)?)?,
            Self::Read | Self::Ls | Self::Glob | Self::Grep => return Ok(None),
        };
        PendingWrite::new(project, write).map(Some)
    }

    /// Prepares a write, waits until the transcript has recorded the change, and then writes.
    async fn write(self, invocation: Invocation) -> Result<ToolOutcome, String> {
        let failed = |error: tokio::task::JoinError| format!("{} failed inside the engine: {error}", self.name());
        let (thread_count, changes) = (invocation.thread_count.clone(), invocation.changes.clone());
        let call_id = invocation.call_id.clone();
        let prepared = thread_count.run_blocking(move || self.prepare_write(&invocation)).await.map_err(failed)?;
        let Some(pending) = prepared.map_err(|failure| failure.0)? else {
            return Err("this tool only reads".to_owned());
        };
        if let Some(record) = changes {
            record(pending.change(&call_id)).await?;
        }
        let written = thread_count.run_blocking(move || pending.commit()).await.map_err(failed)?;
        written.map_err(|failure| failure.0)
    }
}

impl Tool for FileTool {
    fn run(&self, invocation: Invocation) -> BoxFuture<'_, ToolOutcome> {
        let tool = *self;
        if matches!(tool, Self::Write | Self::Edit | Self::Knowledge) {
            return Box::pin(async move { tool.write(invocation).await.unwrap_or_else(ToolOutcome::error) });
        }
        Box::pin(async move {
            let (stop, waiting) = StopCondition::after(invocation.timeout);
            let thread_count = invocation.thread_count.clone();
            let work = move || tool.run_blocking(&invocation, &stop);
            let answer = match tool {
                // Each of these tools works on one file, so they may run inline. The other tools read whole folders.
                Self::Read | Self::Write | Self::Edit | Self::Knowledge => thread_count.run_blocking(work).await,
                Self::Ls | Self::Glob | Self::Grep => tokio::task::spawn_blocking(work).await,
            };
            drop(waiting);
            match answer {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(failure)) => ToolOutcome::error(failure.0),
                Err(e) => ToolOutcome::error(format!("{} failed inside the engine: {e}", tool.name())),
            }
        })
    }

    fn stops_itself(&self) -> bool {
        true
    }
}

/// Parses the parameters, which were validated against the schema, into the tool's own type.
fn parse_parameters<T: DeserializeOwned>(value: &Value) -> Result<T, ToolFailure> {
    T::deserialize(value).map_err(|e| ToolFailure(format!("invalid parameters: {e}")))
}

impl From<FileAccessError> for ToolFailure {
    fn from(value: FileAccessError) -> Self {
        Self(value.to_string())
    }
}

impl From<String> for ToolFailure {
    fn from(value: String) -> Self {
        Self(value)
    }
}

#[cfg(test)]
mod tests;
