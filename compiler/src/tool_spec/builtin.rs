//! The table of built-in tools.

use serde::Serialize;

/// Built-in tools: name, the item of the standard library, and the kind of sandbox.
pub(crate) const BUILT_IN_TOOLS: [(&str, &str, SandboxKind); 13] = [
    ("read", "rye/file-system/read", SandboxKind::Files),
    ("write", "rye/file-system/write", SandboxKind::Files),
    ("edit", "rye/file-system/edit", SandboxKind::Files),
    ("ls", "rye/file-system/ls", SandboxKind::Files),
    ("glob", "rye/file-system/glob", SandboxKind::Files),
    ("grep", "rye/file-system/grep", SandboxKind::Files),
    ("knowledge_write", "rye/knowledge/write", SandboxKind::Files),
    ("web_fetch", "rye/web/fetch", SandboxKind::Requests),
    ("bash", "rye/bash/bash", SandboxKind::Process),
    ("git_status", "rye/git/status", SandboxKind::Process),
    ("git_diff", "rye/git/diff", SandboxKind::Process),
    ("git_log", "rye/git/log", SandboxKind::Process),
    ("git_show", "rye/git/show", SandboxKind::Process),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxKind {
    /// The tool runs in the engine, and uses no files, hosts or processes.
    Engine,
    /// The engine accesses files of the project for the tool, relative to an open handle of the project folder.
    Files,
    /// The engine sends the requests of the tool, only to granted hosts.
    Requests,
    /// The tool is a process of its own, in a sandbox.
    Process,
    /// The tool is part of an MCP server with the setting `sandbox: none`: the program runs without a sandbox, with all
    /// rights of the user.
    None,
}

/// Returns the names of the built-in tools.
pub(crate) fn built_in_names() -> impl Iterator<Item = &'static str> {
    BUILT_IN_TOOLS.iter().map(|(name, ..)| *name)
}
