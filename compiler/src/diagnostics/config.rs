//! `config::*`: settings with unusable values.

use rye_grammar::Span;
use thiserror::Error;

use super::{Label, Problem, Severity, did_you_mean, new_label, value_help};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A value that is missing, or has a wrong type or form. `key` is the dotted path of the value in the file, empty
    /// for the whole file. `file` is the id of the file, such as `agent/resilience`.
    #[error("{}`{file}` {}{found}", key_prefix(key), if found == "missing" { "is " } else { "cannot be " })]
    Invalid { file: String, key: String, found: String, expected: String, span: Option<Span> },
    /// A value that the file does not allow. `why` describes the allowed values, as a sentence.
    #[error("`{key}` in `{file}` cannot be used")]
    Refused { file: String, key: String, why: String, span: Option<Span> },
    /// A file of the project in the folder of settings files, with a name that no settings file has.
    #[error("unknown settings file `{path}`")]
    UnknownFile { path: String, suggestion: Option<String> },
    /// A settings file of the project that only the user space may have.
    #[error("`{path}` cannot be a file of a project")]
    OfProject { path: String, span: Span },
    /// An error in the files that configure MCP servers. `why` describes the error.
    #[error("the MCP servers cannot be read: {why}")]
    Servers { why: String, span: Option<Span> },
    /// The lock file cannot be read. `why` is the reason, as a clause with the name of the file.
    #[error("{why}")]
    LockFile { path: String, why: String },
    /// A script of model replies that the provider file `provider` names is not usable. `why` is the reason.
    #[error("the script `{path}` of the provider `{provider}` cannot be played: {why}")]
    Script { path: String, provider: String, why: String },
    /// The provider file `provider` names a script that does not exist.
    #[error("the script `{path}` of the provider `{provider}` cannot be played: the file does not exist")]
    MissingScript { path: String, provider: String, suggestion: Option<String>, span: Span },
    /// A branch of a script names a directive that no space has.
    #[error("the script `{path}` has a branch for `{directive}`, and no directive has this id")]
    ScriptBranch { path: String, directive: String, suggestion: Option<String> },
    /// Tool files that do not fit the settings of their MCP server. `why` is the difference, as a clause. `tools` is
    /// the number of tools, and `first` the id of one of them. Calls are refused if `is_refused` is true. Otherwise
    /// only the timeout is outdated.
    #[error("{}: {why}", refused_tools(*tools, first, *is_refused))]
    StaleServer { why: String, tools: usize, first: String, is_refused: bool, help: String, span: Span },
    /// An assertion that can never fail. `why` is the reason, as a clause.
    #[error("the assertion `{id}` can never fail: {why}")]
    AssertsNothing { id: String, why: String, span: Span },
    /// A value that is valid, but probably a mistake. `why` is the reason, as a clause.
    #[error("`{key}` in `{file}` is probably a mistake: {why}")]
    Implausible { file: String, key: String, why: String, help: String, span: Span },
    /// A rule of the error classification that never matches. `why` is the reason, as a clause.
    #[error("the rule `{id}` never matches: {why}")]
    NeverMatches { id: String, why: String, span: Span },
    #[error("the assertion `{id}` names an unknown hook `{hook}`")]
    UnknownGate { id: String, hook: String, suggestion: Option<String>, span: Span },
    /// A settings file that replaces a documentation file of the standard library. The replacement has no effect,
    /// because documentation files are never read. `about` describes the documentation file, as a clause.
    #[error("`{path}` has no effect")]
    ChangesNothing { path: String, about: &'static str, span: Span },
}

/// Returns the part of a message that precedes the file: the key and "in"; empty if the key is empty.
fn key_prefix(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!("`{key}` in ") }
}

/// Returns the start of the message about tool files that do not fit their MCP server, such as "every call of `a/b` is
/// refused". `tools` is the number of these files, and `first` names one of them. If `is_refused` is false, only the
/// timeouts in the files are outdated.
fn refused_tools(tools: usize, first: &str, is_refused: bool) -> String {
    let what = if is_refused { "every call" } else { "the timeout" };
    match tools {
        1 => format!("{what} of `{first}` is {}", if is_refused { "refused" } else { "outdated" }),
        _ => {
            format!("{what} of {tools} tools such as `{first}` is {}", if is_refused { "refused" } else { "outdated" })
        }
    }
}

impl Problem for ConfigError {
    fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. }
            | Self::Refused { .. }
            | Self::OfProject { .. }
            | Self::Servers { .. }
            | Self::Script { .. }
            | Self::MissingScript { .. }
            | Self::ScriptBranch { .. }
            | Self::LockFile { .. } => "config::invalid",
            Self::UnknownFile { .. } => "config::unknown-file",
            Self::ChangesNothing { .. } => "config::changes-nothing",
            Self::Implausible { .. } => "config::implausible",
            Self::NeverMatches { .. } => "config::never-matches",
            Self::StaleServer { .. } => "config::stale-server",
            Self::AssertsNothing { .. } | Self::UnknownGate { .. } => "config::asserts-nothing",
        }
    }

    fn severity(&self) -> Severity {
        match self {
            Self::Invalid { .. }
            | Self::Refused { .. }
            | Self::OfProject { .. }
            | Self::Servers { .. }
            | Self::LockFile { .. }
            | Self::Script { .. }
            | Self::MissingScript { .. }
            | Self::UnknownFile { suggestion: Some(_), .. } => Severity::Error,
            Self::UnknownFile { suggestion: None, .. }
            | Self::ChangesNothing { .. }
            | Self::ScriptBranch { .. }
            | Self::AssertsNothing { .. }
            | Self::StaleServer { .. }
            | Self::Implausible { .. }
            | Self::NeverMatches { .. }
            | Self::UnknownGate { .. } => Severity::Warning,
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::Invalid { found, .. } if found.starts_with("the text `\"") => {
                let value = found.trim_start_matches("the text `\"").trim_end_matches("\"`");
                Some(format!("remove the quotes: `{value}`"))
            }
            Self::Invalid { key, found, .. } if found == "missing" && key.ends_with(".execute") => Some(
                "add the tool or directive that the command runs: `execute: { item_type: tool, item_id: rye/bash/bash, params: { … } }`".into(),
            ),
            Self::Invalid { key, expected, found, .. } if found == "missing" => {
                let name = key.rsplit('.').next().unwrap_or(key);
                Some(format!("add `{name}`, {expected}"))
            }
            Self::Invalid { expected, found, .. } => value_help(found, expected),
            Self::UnknownFile { suggestion, .. } => did_you_mean(suggestion.as_ref(), || {
                Some("`rye explain config::unknown-file` lists the settings files; settings of a tool belong in a folder that the tool names in its `config`".into())
            }),
            Self::Refused { why, .. } => Some(why.clone()),
            Self::OfProject { .. } => {
                Some("move the file to your user space: a project does not choose the keys of your terminal".into())
            }
            Self::Implausible { help, .. } | Self::StaleServer { help, .. } => Some(help.clone()),
            Self::NeverMatches { .. } => Some("correct the condition, or remove the rule".to_owned()),
            Self::AssertsNothing { .. } => Some("correct the assertion, or remove it".to_owned()),
            Self::UnknownGate { suggestion, .. } => did_you_mean(suggestion.as_ref(), || {
                Some("write the id of a hook of a hook file or directive, or `ask` for an approval request".into())
            }),
            Self::Servers { .. } => {
                Some("correct this error: until then, no MCP server can be used; check with `rye mcp list`".into())
            }
            Self::MissingScript { suggestion: Some(near), .. } => Some(format!("did you mean `{near}`?")),
            Self::Script { .. } | Self::MissingScript { suggestion: None, .. } => {
                Some("correct the script, or the `script` of the provider file: until then, a run fails at its first model call".into())
            }
            Self::ScriptBranch { suggestion, .. } => did_you_mean(suggestion.as_ref(), || {
                Some("write the full id of a directive, or remove the branch".into())
            }),
            Self::LockFile { .. } => {
                Some("restore the file from version control, or delete it and run `rye lock`, which writes a new one".into())
            }
            Self::ChangesNothing { about, .. } => {
                Some(format!(
                    "remove this file: no settings are read from it; in the standard library, the file of this \
                     name is only documentation: {about}"
                ))
            }
        }
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::Invalid { span, expected, .. } => {
                span.iter().map(|s| new_label(*s, format!("expected {expected}"))).collect()
            }
            Self::UnknownFile { .. } | Self::LockFile { .. } | Self::Script { .. } | Self::ScriptBranch { .. } => {
                Vec::new()
            }
            Self::Servers { span, .. } => span.iter().map(|s| new_label(*s, "not a usable server")).collect(),
            Self::OfProject { span, .. } => vec![new_label(*span, "not read")],
            Self::MissingScript { span, .. } => vec![new_label(*span, "no such file")],
            Self::AssertsNothing { span, .. } => vec![new_label(*span, "never violated")],
            Self::StaleServer { span, .. } => vec![new_label(*span, "this file is written by `rye mcp refresh`")],
            Self::Implausible { span, why, .. } => vec![new_label(*span, why.clone())],
            Self::NeverMatches { span, .. } => {
                vec![new_label(*span, "no failure that reaches this rule meets its condition")]
            }
            Self::UnknownGate { hook, span, .. } => vec![new_label(*span, format!("no hook has the id `{hook}`"))],
            Self::ChangesNothing { span, .. } => vec![new_label(*span, "no settings are read from this file")],
            Self::Refused { span, .. } => span.iter().map(|s| new_label(*s, "not understood")).collect(),
        }
    }
}
