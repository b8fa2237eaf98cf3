//! What a tool file declares (`language.md` 2), read from its metadata mapping into plain data. Nothing is run, no file
//! is opened: the same value serves the palette, the gate and the engine's registry.

mod argv;
mod http;
mod idempotence;
mod read;
mod schema;

use rye_grammar::Span;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use argv::{ArgvError, Given, Hole, RUNTIME, fill, fill_text, holes};
pub use http::{HttpBody, HttpSpec, Method};
pub use idempotence::Idempotence;

/// A tool as declared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSpec {
    pub description: String,
    /// JSON Schema of the parameters; always one of an object.
    pub parameters: Value,
    pub kind: ToolKind,
    /// How long a call may take unless it says less.
    pub timeout_seconds: u64,
    /// May run beside its neighbours in one turn.
    pub parallel: bool,
    /// Which calls may be run again after a crash that left their outcome unknown.
    pub idempotent: Idempotence,
    pub needs: Needs,
    /// Names of the variables of rye's own environment that it gets, beside those every program gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<String>,
    /// Settings it is handed as the parameter `resolved_config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigSource>,
    pub version: Option<String>,
    pub category: Option<String>,
}

/// The tools that the engine has, by the names that tool files use (`builtin: read`), sorted. A test of the engine holds its
/// own list to this one.
pub fn builtins() -> Vec<&'static str> {
    // The orchestrator is added by a running engine: it touches nothing of the machine, and needs no wall.
    let mut names: Vec<&str> = crate::wall::compiled_in().chain(["orchestrator"]).collect();
    names.sort_unstable();
    names
}

/// What a thread does itself for one item each, `rye/agent/threads/NAME`, and for no other.
pub const OF_THREADS: [&str; 2] = ["state", "thread_directive"];

/// How a tool is run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ToolKind {
    /// Compiled in; the name it has there.
    Builtin { name: String },
    /// A program and its arguments, never through a shell. See [`fill`] for the holes.
    Command { argv: Vec<String> },
    /// The file itself is the program.
    Script { language: ScriptLanguage, entry: ScriptEntry },
    /// One request.
    Http(HttpSpec),
    /// A tool of an MCP server, under the server's own name. `sha256` is of its definition when it was listed,
    /// `server_sha256` of what the settings said then of how the server is reached; `runs` says the same for people.
    Mcp { server: String, tool: String, sha256: String, server_sha256: String, runs: String, wall: ServerWall },
}

/// What stands between an MCP server and the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerWall {
    /// It is asked over the net: nothing is started here.
    Net,
    /// Its program runs behind the wall of every tool's program.
    Process,
    /// Its program may do whatever the user may: its settings say `wall: none`.
    None,
}

impl ServerWall {
    pub const ALL: [Self; 3] = [Self::Net, Self::Process, Self::None];

    pub fn word(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Process => "process",
            Self::None => "none",
        }
    }
}

/// What runs a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptLanguage {
    Python,
    JavaScript,
    TypeScript,
    Shell,
}

/// How a script is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptEntry {
    /// `execute(params, project_path)`, awaited where it is asynchronous; what it returns is the result.
    Execute,
    /// `main()`, with the parameters as JSON on its input; what it returns or prints is the result.
    Main,
    /// From its first line on, as shells do.
    Whole,
}

/// `CONFIG_RESOLVE`: a settings item and how the spaces' files become one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigSource {
    /// The item's id: `web/search` is `.ai/config/web/search.yaml`.
    pub id: rye_grammar::ItemId,
    pub mode: ConfigMode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigMode {
    /// All spaces, the higher laid on the lower.
    DeepMerge,
    /// The highest space that has it.
    FirstMatch,
}

/// The parameter in which a tool finds its settings.
pub const RESOLVED_CONFIG: &str = "resolved_config";

/// What a tool must be granted before it may run (`language.md` 9, Needs).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Needs {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub net: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
}

/// Seconds a tool may take when it names no time.
pub const DEFAULT_TIMEOUT_SECONDS: u64 = 120;
/// The longest time a tool file may name: one day.
pub const MAX_TIMEOUT_SECONDS: u64 = 86_400;

/// Something wrong in a tool file. `code` says which diagnostic it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFault {
    pub code: ToolFaultCode,
    pub message: String,
    pub span: Span,
    pub label: String,
    pub help: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolFaultCode {
    /// A key no tool has.
    UnknownKey,
    /// A key every tool of this kind must have.
    MissingKey,
    /// A value of the wrong type or outside its range.
    BadValue,
}
