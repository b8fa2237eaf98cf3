//! Tools: one path for every kind (gate → run → guard). This file has the shapes; kinds live in `tool/`.

pub mod builtin;
pub mod command;
pub mod confine;
pub mod environment;
pub mod guard;
pub mod http;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod primary;
pub mod process;
pub mod registry;
pub mod schema;
pub mod script;
pub mod secrets;
pub mod stop;
pub mod web;

use std::path::PathBuf;
use std::time::Duration;

use rye_grammar::ItemId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::crew::Crew;
use crate::provider::BoxFuture;
use stop::Halt;

/// A call the gate has let through: parameters are already valid against the tool's schema.
#[derive(Debug, Clone)]
pub struct Invocation {
    pub item_id: ItemId,
    pub parameters: Value,
    /// The root of the project, absolute: tools act inside it only.
    pub project_root: PathBuf,
    pub thread_id: String,
    /// The most this call may take, whatever it asks for; what the thread has left of its duration.
    pub timeout: Duration,
    /// Folders inside the project a process may write (`needs.write` as granted).
    pub write: Vec<String>,
    /// Hosts a process may reach (`needs.net` as granted).
    pub net: Vec<String>,
    /// The grants of every link of the spawn chain, as patterns; writing an item needs `rye.sign.<type>.<id>` from each
    /// link (`language.md` 9). Empty = no item may be written.
    pub may_write_item: Vec<Vec<String>>,
    /// Whether the thread was cancelled meanwhile.
    pub halt: Halt,
    /// Where a tool waits for the disk that needs a moment only.
    pub crew: Crew,
}

/// What a tool answered. `content` is JSON, or a string for plain text; never a debug print.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolOutcome {
    pub content: Value,
    pub is_error: bool,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
}

impl ToolOutcome {
    pub fn ok(content: impl Into<Value>) -> Self {
        Self { content: content.into(), is_error: false, details: Value::Null }
    }

    pub fn error(message: impl Into<String>) -> Self {
        Self { content: Value::String(message.into()), is_error: true, details: Value::Null }
    }
}

/// Something that can be run once the gate has allowed it.
pub trait Tool: Send + Sync {
    fn run(&self, invocation: Invocation) -> BoxFuture<'_, ToolOutcome>;
}

/// Whether a capability pattern covers a capability.
fn pattern_matches(pattern: &str, capability: &str) -> bool {
    rye_compiler::semantics::glob::matches(pattern, capability)
}
