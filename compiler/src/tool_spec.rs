//! The declaration of a tool (`language.md` 2), read from its metadata into plain data. Reading runs nothing and opens
//! no file. The palette, the gate and the engine share the result.

mod argv;
pub mod builtin;
mod guidance;
mod help;
mod http;
mod idempotence;
mod persistent;
mod read;
mod read_needs;
mod schema;

use rye_grammar::Span;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use argv::replace_placeholders;
pub use argv::{ArgvError, ArgvPlaceholder, FillValues, fill_argv, fill_text, placeholders};
pub use http::{HttpBody, HttpSpec, Method};
pub use idempotence::Idempotence;
pub(crate) use read::{KEYS as TOOL_KEYS, KIND_KEYS};
pub use schema::{resolve_pointer, upgrade_schema};

/// A tool as its file declares it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSpec {
    pub description: String,
    /// JSON Schema of the parameters; always the schema of an object.
    pub parameters: Value,
    pub kind: ToolKind,
    /// The timeout of a call in seconds; a call may set a shorter one.
    pub timeout_seconds: u64,
    /// True if a call may run in parallel with other calls of the same turn.
    pub parallel: bool,
    /// The calls that may be repeated if their outcome is unknown after a crash.
    pub idempotent: Idempotence,
    pub needs: ToolNeeds,
    /// Names of variables in the environment of `rye` that the tool gets, besides the variables that every program
    /// gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<String>,
    /// The settings that the tool gets as the parameter `resolved_config`; `None` if the tool declares no settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigSource>,
    /// True if one process answers all calls of a thread; each call is one line of the standard input of the process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub persistent: bool,
    /// True if the process of a persistent tool may submit messages to a chat.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pushes: bool,
    /// The line that describes the tool in the list of tools of the system prompt; `None` if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snippet: Option<String>,
    /// Guidelines for the use of the tool, which become lines of the system prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guidelines: Vec<String>,
    pub version: Option<String>,
    pub category: Option<String>,
}

/// Returns the names of the engine's built-in tools as tool files use them (`builtin: read`), sorted. A test of the
/// engine compares this list with the tools that the engine has.
pub fn builtins() -> Vec<&'static str> {
    // `built_in_names` does not list the orchestrator, because only a running engine adds this tool.
    let mut names: Vec<&str> = builtin::built_in_names().chain(["orchestrator"]).collect();
    names.sort_unstable();
    names
}

/// Built-in tools for the state and the children of a thread. Only the item `rye/agent/threads/NAME` may declare the
/// tool `NAME`.
pub(crate) const ENGINE_TOOLS: [&str; 2] = ["state", "thread_directive"];

/// The implementation of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ToolKind {
    /// A tool that is compiled into the engine under this name.
    Builtin { name: String },
    /// A program and its arguments, never run through a shell. See [`fill_argv`] for the placeholders.
    Command { argv: Vec<String> },
    /// The tool file itself is the program.
    Script { language: ScriptLanguage, entry: ScriptEntry },
    /// A single HTTP request.
    Http(HttpSpec),
    /// A tool of an MCP server. `tool` is the name of the tool in the server's list, and `sha256` the hash of the
    /// tool's definition when the tool was listed. `server_sha256` is the hash of the server's settings at that time,
    /// and `runs` describes these settings for humans.
    Mcp { server: String, tool: String, sha256: String, server_sha256: String, runs: String, sandbox: ServerSandbox },
}

/// The kind of sandbox in which an MCP server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerSandbox {
    /// The server runs on another machine: rye connects to it over the network and starts no program.
    Net,
    /// The server's program runs in a sandbox, like the program of a tool.
    Process,
    /// The program has all rights of the user, because its settings contain `sandbox: none`.
    None,
}

impl ServerSandbox {
    pub const ALL: [Self; 3] = [Self::Net, Self::Process, Self::None];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Process => "process",
            Self::None => "none",
        }
    }
}

/// The language of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptLanguage {
    Python,
    JavaScript,
    TypeScript,
    Shell,
}

/// The entry point of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptEntry {
    /// `execute(params, project_path)`, awaited if it is asynchronous; the return value is the result.
    Execute,
    /// `main()`, with the parameters as JSON on stdin; the returned or printed value is the result.
    Main,
    /// The whole file, which needs no entry function: a shell runs the file from its first line.
    Whole,
}

/// `CONFIG_RESOLVE`: a settings item and the rule that combines its files in the spaces.
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
    /// The merged files of all spaces. A value of a higher space takes precedence.
    DeepMerge,
    /// Only the file of the highest space that has the file; the files of lower spaces are ignored.
    FirstMatch,
}

/// The parameter that holds the settings of a tool.
pub const RESOLVED_CONFIG: &str = "resolved_config";

/// The grants that a tool needs before it may run (`language.md` 9, Needs).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolNeeds {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub net: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    /// The folders of `write` that the program of the tool cannot read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write_only: Vec<String>,
}

/// Timeout in seconds of a tool that declares none.
pub const DEFAULT_TIMEOUT_SECONDS: u64 = 120;
/// Timeout in seconds of a persistent tool that declares none.
pub(crate) const DEFAULT_LINE_TIMEOUT_SECONDS: u64 = 5;
/// Maximum length of a snippet, in characters.
pub(crate) const MAX_SNIPPET_CHARS: usize = 200;
/// Maximum number of guidelines of a tool.
pub(crate) const MAX_GUIDELINES: usize = 20;
/// Maximum length of a guideline, in characters.
pub(crate) const MAX_GUIDELINE_CHARS: usize = 500;
/// Longest timeout in seconds that a tool file may declare: one day.
pub(crate) const MAX_TIMEOUT_SECONDS: u64 = 86_400;

/// An error in a tool file; `code` selects its diagnostic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSpecError {
    pub code: ToolSpecErrorKind,
    pub message: String,
    pub span: Span,
    pub label: String,
    pub help: Option<String>,
    /// The unknown word, if the error is an unknown key or an unknown kind of tool.
    pub word: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolSpecErrorKind {
    /// A key that is not a key of any kind of tool.
    UnknownKey,
    /// A missing key. Every tool of the same kind must have this key.
    MissingKey,
    /// A value of the wrong type or outside its range.
    BadValue,
    /// An error in the schema of an MCP server's tool that makes the tool unusable.
    ServerSchema,
    /// A tool that its MCP server runs only as a task. The tool cannot be called, because rye does not support tasks.
    ServerTask,
}
