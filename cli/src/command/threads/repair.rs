//! `rye threads repair`: rebuilds the registry from the transcripts.

use std::path::{Path, PathBuf};

use rye_engine::thread_id::ThreadId;
use rye_engine::threads::Threads;
use schemars::JsonSchema;
use serde::Serialize;

use crate::CommandError;
use crate::exit::Exit;
use crate::options::Format;
use crate::present::format_count;
use crate::report::Printer;

/// Output of `rye threads repair --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RepairOutput {
    /// Number of threads in the registry after the repair.
    pub threads: usize,
    /// Threads whose transcripts cannot be read; they are not in the registry.
    pub unreadable: Vec<ThreadProblemOutput>,
    /// Threads with ledger operations that the ledger rejected; their accounts are not exact.
    pub inexact: Vec<ThreadProblemOutput>,
    /// Missing files that the repair cannot write again: objects of results and plans, and artifacts of ended threads.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub missing: Vec<MissingFileOutput>,
    /// Path of the replaced registry, relative to the project; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ThreadProblemOutput {
    pub thread_id: String,
    pub reason: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct MissingFileOutput {
    pub thread_id: String,
    /// Path relative to the project.
    pub path: String,
}

pub fn run(project: &Path, report: &Printer) -> Result<Exit, CommandError> {
    let repaired = Threads::repair(project)?;
    let problem = |thread_id: String, reason: String| ThreadProblemOutput { thread_id, reason };
    let missing_file = |(thread, path): &(ThreadId, PathBuf)| MissingFileOutput {
        thread_id: thread.to_string(),
        path: path.display().to_string(),
    };
    let output = RepairOutput {
        threads: repaired.threads,
        unreadable: repaired.unreadable.iter().map(|(id, error)| problem(id.to_string(), error.to_string())).collect(),
        inexact: repaired.refused.iter().map(|(id, why)| problem(id.to_string(), why.to_string())).collect(),
        missing: repaired.missing.iter().map(missing_file).collect(),
        previous: repaired.previous.as_ref().map(|path| path.display().to_string()),
    };
    for ThreadProblemOutput { thread_id, reason } in &output.unreadable {
        report.note(&format!("skipped: `{thread_id}`: {reason}"));
    }
    for ThreadProblemOutput { thread_id, reason } in &output.inexact {
        report.note(&format!(
            "the rebuilt ledger account of `{thread_id}` may be wrong: an operation was refused: {reason}"
        ));
    }
    for MissingFileOutput { thread_id, path } in &output.missing {
        report.note(&format!("missing, and not written again: `{path}` of `{thread_id}`"));
    }
    if let Some(previous) = &output.previous {
        report.note(&format!("the previous registry is kept as `{previous}`"));
    }
    match report.format() {
        Format::Json => report.json(&output)?,
        Format::Plain => report.line(&format!("threads\t{}", output.threads))?,
        Format::Human => {
            let threads = format_count(output.threads as u64, "thread");
            report.line(&format!("the registry was rebuilt from the transcripts of {threads}"))?;
        }
    }
    Ok(if output.unreadable.is_empty() { Exit::Success } else { Exit::Failed })
}
