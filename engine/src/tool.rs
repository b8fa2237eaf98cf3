//! Tools. Every call of a tool takes the same path, whatever the kind of the tool: the gate authorizes the call, the
//! tool runs, and the guard filters the result. This file defines the shared types. The kinds of tools are in `tool/`.

pub mod builtin;
pub mod cancellation;
pub mod command;
pub(crate) mod confine;
pub mod environment;
pub mod guard;
pub mod http;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod persistent;
pub mod primary;
pub mod process;
pub mod registry;
pub mod schema;
pub mod script;
pub mod web;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rye_grammar::ItemId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::BoxFuture;
use crate::thread_count::ThreadCount;
use builtin::ChangeRecorder;
use cancellation::CancellationToken;
use persistent::PersistentProcesses;
use process::SharedOutput;

/// The value of [`Invocation::event`] for a call that the model requests.
pub const CALL_EVENT: &str = "call";

/// A call that the gate has authorized. Its parameters are valid against the tool's schema.
#[derive(Clone)]
pub struct Invocation {
    pub item_id: ItemId,
    pub parameters: Value,
    /// The absolute root of the project. Tools act only inside it.
    pub project_root: PathBuf,
    pub thread_id: String,
    /// The event that caused the call: the hook point if a hook made the call, or `call` if the model made it.
    pub event: &'static str,
    /// Id of the call, which is recorded with each change of a file.
    pub call_id: String,
    /// Records the changes of files; `None` if there is no transcript.
    pub changes: Option<ChangeRecorder>,
    /// The persistent processes of the thread.
    pub persistent: Arc<PersistentProcesses>,
    /// Maximum time of the call: the time that the thread has left under its duration limit. The call itself may
    /// request a shorter time.
    pub timeout: Duration,
    /// Folders of the project that a process of the call may write: every thread of the spawn chain grants them.
    pub write: Vec<String>,
    /// Folders that bound the writes of file tools: a written path must lie in a folder of every list. Without lists,
    /// the whole project is writable.
    pub write_bounds: Vec<Vec<String>>,
    /// Hosts that a process of the call may reach: every thread of the spawn chain grants them.
    pub net: Vec<String>,
    /// The hosts of `net` that every thread of the spawn chain names without a wildcard. The engine's requests reach
    /// local addresses of these hosts only.
    pub local_hosts: Vec<String>,
    /// The grant patterns of every thread of the spawn chain. Writing an item needs `rye.sign.<type>.<id>` from each of
    /// these threads (`language.md` 9). If the list is empty, no item may be written.
    pub may_write_item: Vec<Vec<String>>,
    /// A token that is cancelled with the thread. The call must then stop.
    pub halt: CancellationToken,
    /// Receives the output of the program of the call while the program runs.
    pub written: SharedOutput,
    /// The counter of running threads. Short blocking I/O of a tool runs inline if no other thread is running.
    pub thread_count: ThreadCount,
}

#[cfg(test)]
impl Invocation {
    /// Creates a call for tests: without grants, with a time limit of 20 seconds.
    #[allow(clippy::unwrap_used, reason = "tests")]
    pub fn sample(item_id: &str, project_root: &std::path::Path, parameters: Value) -> Self {
        Self {
            item_id: ItemId::parse(item_id).unwrap(),
            parameters,
            project_root: project_root.to_owned(),
            thread_id: "t-1".into(),
            event: CALL_EVENT,
            call_id: "c-1".into(),
            changes: None,
            persistent: Arc::default(),
            timeout: Duration::from_secs(20),
            write: Vec::new(),
            write_bounds: Vec::new(),
            net: Vec::new(),
            local_hosts: Vec::new(),
            may_write_item: Vec::new(),
            halt: CancellationToken::never(),
            written: SharedOutput::default(),
            thread_count: ThreadCount::default(),
        }
    }
}

impl std::fmt::Debug for Invocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (item, call, thread) = (&self.item_id, &self.call_id, &self.thread_id);
        f.debug_struct("Invocation")
            .field("item", item)
            .field("call", call)
            .field("thread", thread)
            .finish_non_exhaustive()
    }
}

/// The result of a tool. `content` is JSON, or a string for plain text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolOutcome {
    pub content: Value,
    pub is_error: bool,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
    /// True if the call did not run, because its parameters are invalid or the tool may not be used.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_refused: bool,
}

impl ToolOutcome {
    pub fn ok(content: impl Into<Value>) -> Self {
        Self { content: content.into(), is_error: false, details: Value::Null, was_refused: false }
    }

    pub fn error(message: impl Into<String>) -> Self {
        Self { content: Value::String(message.into()), is_error: true, details: Value::Null, was_refused: false }
    }

    /// Creates the result of a call that did not run.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self { was_refused: true, ..Self::error(reason) }
    }
}

/// An implementation of a tool. The tool runs only after the gate has authorized the call.
pub trait Tool: Send + Sync {
    fn run(&self, invocation: Invocation) -> BoxFuture<'_, ToolOutcome>;

    /// Returns true if a cancelled call gets more time than the usual grace period, because it ends programs or
    /// finishes a write. A call that has not ended after its grace period is dropped.
    fn stops_itself(&self) -> bool {
        false
    }
}

/// Returns true if a capability pattern matches a capability.
fn pattern_matches(pattern: &str, capability: &str) -> bool {
    rye_compiler::semantics::glob::matches(pattern, capability)
}
