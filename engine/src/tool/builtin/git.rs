//! `rye/git/*`: read-only access to the repository. The repository is untrusted: programs in its configuration or
//! attributes never run, remotes are not contacted, and no path leads out of the project.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::{ToolFailure, ToolResult, parse_parameters};
use crate::BoxFuture;
use crate::tool::process::{self, Program, ProgramExit, ProgramResult, Sandbox, StderrMode};
use crate::tool::{Invocation, Tool, ToolOutcome};

/// Number of commits that a log shows if the call sets no maximum.
const DEFAULT_COMMITS: u32 = 20;
const MAX_COMMITS: u32 = 500;
/// Maximum number of git filters (`filter.NAME` in the configuration) that a call disables one by one. If the
/// repository configures more, the call fails.
const MAX_FILTERS: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitTool {
    Status,
    Diff,
    Log,
    Show,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GitParameters {
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    revision: Option<String>,
    #[serde(default)]
    staged: Option<bool>,
    #[serde(default)]
    stat: Option<bool>,
    #[serde(default)]
    limit: Option<u32>,
}

impl GitTool {
    pub const ALL: [Self; 4] = [Self::Status, Self::Diff, Self::Log, Self::Show];

    /// Returns the name used in tool files: `builtin: git_status`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Status => "git_status",
            Self::Diff => "git_diff",
            Self::Log => "git_log",
            Self::Show => "git_show",
        }
    }

    async fn act(self, invocation: Invocation) -> ToolResult {
        let given: GitParameters = parse_parameters(&invocation.parameters)?;
        let arguments = self.arguments(&given)?;
        let root = &invocation.project_root;
        match std::fs::symlink_metadata(root.join(".git")) {
            Ok(found) if found.is_dir() => {}
            // A `.git` file or link may point to a repository outside the project.
            Ok(_) => return Err(ToolFailure("the project's `.git` is not a folder: it points elsewhere".into())),
            Err(_) => return Err(ToolFailure("the project is not a git repository: it has no `.git`".into())),
        }
        let program = |arguments: Vec<OsString>| Program {
            program: "git".into(),
            arguments,
            folder: root.clone(),
            thread_id: invocation.thread_id.clone(),
            timeout: invocation.timeout.min(Duration::from_mins(1)),
            halt: invocation.halt.clone(),
            // The sandbox permits no writes and no network.
            sandbox: Some(Sandbox::new(root, Vec::new(), &[])),
            input: Vec::new(),
            environment: environment(root),
            streams: StderrMode::Apart,
            written: invocation.written.clone(),
        };
        // `git config --list` starts no program. The listed settings that could start a program are then overridden.
        let listed = run(&program(to_os_strings(&["config", "--list", "--name-only", "-z"]))).await?;
        let mut all = hardening_options(&listed.output.text)?;
        all.extend(arguments);
        let finished = run(&program(all)).await?;
        if finished.exit != ProgramExit::Code(0) {
            let stderr = finished.errors.text.trim();
            return Err(ToolFailure(if stderr.is_empty() {
                "git failed without a message".into()
            } else {
                stderr.to_owned()
            }));
        }
        let text = finished.output.text;
        Ok(ToolOutcome::ok(if text.is_empty() { self.empty_result_text().to_owned() } else { text }))
    }

    fn arguments(self, given: &GitParameters) -> Result<Vec<OsString>, ToolFailure> {
        let refuse = |name: &str, given: bool| {
            if given { Err(ToolFailure(format!("`{name}` does not apply to {}", self.name()))) } else { Ok(()) }
        };
        let mut arguments = match self {
            Self::Status => {
                refuse("revision", given.revision.is_some())?;
                to_os_strings(&["status", "--porcelain=v1", "--branch", "--ignore-submodules=all", "--no-renames"])
            }
            Self::Diff => to_os_strings(&["diff"]),
            Self::Log => {
                let limit = given.limit.unwrap_or(DEFAULT_COMMITS).clamp(1, MAX_COMMITS);
                let mut all =
                    to_os_strings(&["log", "--no-show-signature", "--no-color", "--date=iso-strict", "--no-decorate"]);
                all.push(format!("--max-count={limit}").into());
                all.push("--format=%h %ad %an: %s".into());
                all
            }
            Self::Show => to_os_strings(&["show", "--no-show-signature", "--date=iso-strict", "--no-decorate"]),
        };
        if self != Self::Diff {
            refuse("staged", given.staged.is_some())?;
        }
        if self != Self::Log {
            refuse("limit", given.limit.is_some())?;
        }
        if matches!(self, Self::Diff | Self::Show) {
            arguments.extend(to_os_strings(&[
                "--no-ext-diff",
                "--no-textconv",
                "--no-color",
                "--ignore-submodules=all",
            ]));
            if given.stat == Some(true) {
                arguments.push("--stat".into());
            }
        } else {
            refuse("stat", given.stat.is_some())?;
        }
        if given.staged == Some(true) {
            arguments.push("--cached".into());
        }
        arguments.push("--end-of-options".into());
        if let Some(revision) = &given.revision {
            arguments.push(parse_revision(revision)?.into());
        } else if self == Self::Show {
            arguments.push("HEAD".into());
        }
        arguments.push("--".into());
        if let Some(path) = &given.path {
            arguments.push(parse_path(path)?.into());
        }
        // `status` does not support `--end-of-options`, and takes no revision.
        if self == Self::Status {
            arguments.retain(|a| a != "--end-of-options");
        }
        Ok(arguments)
    }

    fn empty_result_text(self) -> &'static str {
        match self {
            Self::Status => "[nothing to report]",
            Self::Diff => "[no difference]",
            Self::Log => "[no commits]",
            Self::Show => "[nothing]",
        }
    }
}

fn to_os_strings(all: &[&str]) -> Vec<OsString> {
    all.iter().map(OsString::from).collect()
}

fn parse_revision(text: &str) -> Result<String, ToolFailure> {
    let odd = text.is_empty() || text.starts_with('-') || text.chars().any(char::is_control);
    if odd { Err(ToolFailure(format!("`{}` names no revision", text.escape_debug()))) } else { Ok(text.to_owned()) }
}

fn parse_path(text: &str) -> Result<String, ToolFailure> {
    let outside = text.starts_with('/') || text.split('/').any(|s| s == "..") || text.contains('\0') || text.is_empty();
    if outside {
        Err(ToolFailure(format!("`{}` is not a path inside the project", text.escape_debug())))
    } else {
        Ok(text.to_owned())
    }
}

/// Returns the options of git that override every setting with which the repository could start a program. `names`
/// holds the names of all settings of the repository, separated by NUL.
fn hardening_options(names: &str) -> Result<Vec<OsString>, ToolFailure> {
    let mut options =
        to_os_strings(&["--no-pager", "--no-optional-locks", "--no-replace-objects", "--literal-pathspecs"]);
    let fixed = [
        "core.fsmonitor=false",
        "core.hooksPath=/dev/null",
        "core.pager=cat",
        "core.untrackedCache=false",
        "core.attributesFile=/dev/null",
        "core.quotePath=true",
        "protocol.allow=never",
        "diff.external=",
        "log.showSignature=false",
        "submodule.recurse=false",
        "gc.auto=0",
    ];
    options.extend(fixed.iter().flat_map(|o| to_os_strings(&["-c", o])));
    let mut filters: Vec<&str> = Vec::new();
    for name in names.split('\0') {
        // A setting of a filter is named `filter.NAME.KEY`, with a case-insensitive `filter`.
        let Some(rest) = name.get(..7).filter(|s| s.eq_ignore_ascii_case("filter.")).and_then(|_| name.get(7..)) else {
            continue;
        };
        let Some((filter, _)) = rest.rsplit_once('.') else { continue };
        if !filters.contains(&filter) {
            filters.push(filter);
        }
    }
    if filters.len() > MAX_FILTERS || filters.iter().any(|f| f.contains('=')) {
        return Err(ToolFailure("the repository's configuration names filters that cannot be switched off".into()));
    }
    for filter in filters {
        for value in ["clean=", "smudge=", "process=", "required=false"] {
            options.push("-c".into());
            options.push(format!("filter.{filter}.{value}").into());
        }
    }
    Ok(options)
}

/// Returns the environment of git. In this environment, git ignores the configuration of the user and the system, and
/// uses the repository at `root`.
fn environment(root: &Path) -> Vec<(OsString, OsString)> {
    let fixed = [
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "safe.directory"),
        ("GIT_CONFIG_VALUE_0", "*"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_NO_LAZY_FETCH", "1"),
        ("GIT_ALLOW_PROTOCOL", "none"),
        ("GIT_ATTR_NOSYSTEM", "1"),
        ("GIT_PAGER", "cat"),
    ];
    let mut all: Vec<(OsString, OsString)> =
        fixed.iter().map(|(n, v)| (OsString::from(n), OsString::from(v))).collect();
    all.push(("GIT_DIR".into(), root.join(".git").into()));
    all.push(("GIT_WORK_TREE".into(), root.into()));
    all
}

async fn run(program: &Program) -> Result<ProgramResult, ToolFailure> {
    process::run(program).await.map_err(|e| ToolFailure(format!("git cannot be started: {e}")))
}

impl Tool for GitTool {
    fn run(&self, invocation: Invocation) -> BoxFuture<'_, ToolOutcome> {
        Box::pin(async move { self.act(invocation).await.unwrap_or_else(|f| ToolOutcome::error(f.0)) })
    }

    fn stops_itself(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
