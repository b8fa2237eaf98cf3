//! Shell completion: ids of the project for arguments that take an id. The shell runs this binary with
//! [`COMPLETE_VARIABLE`] set. Only the data for listing names is read; unreadable items are left out.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{Arg, Command, CommandFactory};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use rye_compiler::compile::declared_inputs;
use rye_compiler::diagnostics::CODES;
use rye_compiler::item::Items;
use rye_compiler::semantics::limits::LimitName;
use rye_compiler::world::{ItemKind, World};
use rye_grammar::ItemId;
use serde_json::Map;

use crate::args::Args;
use crate::command::completions::COMPLETE_VARIABLE;
use crate::known_names::{PROVIDER_PREFIX, list_models, list_threads};
use crate::workspace::Spaces;

/// Maximum number of candidates that are offered for one word of a command line.
const MAX_CANDIDATES: usize = 2000;
/// Id prefix of the knowledge that ended threads export.
const EXPORT_PREFIX: &str = "agent/threads/";

/// Answers a completion request. Returns false if this process was not started for a completion request.
///
/// # Errors
///
/// The shell is not supported.
pub fn answer_completion() -> Result<bool, clap::Error> {
    if std::env::var_os(COMPLETE_VARIABLE).is_none() {
        return Ok(false);
    }
    let here = std::env::current_dir().ok();
    CompleteEnv::with_factory(command).var(COMPLETE_VARIABLE).try_complete(std::env::args_os(), here.as_deref())
}

/// Returns the command line with completers for its arguments.
fn command() -> Command {
    with_ids(Args::command())
}

fn with_ids(command: Command) -> Command {
    let name = command.get_name().to_owned();
    command.mut_args(|arg| with_completer(&name, arg)).mut_subcommands(with_ids)
}

/// Adds a completer to an argument, selected by the command and by the value name of the argument (`ID`, `MODEL`).
fn with_completer(command: &str, arg: Arg) -> Arg {
    let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let what = match (command, value.as_deref().unwrap_or_default()) {
        (_, "NAME=VALUE") if arg.get_id() == "input" => CandidateKind::Inputs,
        (_, "NAME=VALUE") => CandidateKind::Limits,
        (_, "MODEL") => CandidateKind::Models,
        // A new item has no id yet.
        ("new", _) => return arg,
        ("fetch", "ID") => CandidateKind::OfType,
        (_, "ID") => CandidateKind::Directives,
        (_, "PATH|ID") => CandidateKind::DirectivesAndPaths,
        (_, "ITEM|GLOB") => CandidateKind::Items,
        ("chat", "THREAD") => CandidateKind::Sessions,
        (_, "THREAD") => CandidateKind::Threads,
        (_, "PROVIDER") => CandidateKind::Providers,
        (_, "CODE") => CandidateKind::Codes,
        ("why", "THING") => CandidateKind::Things,
        _ => return arg,
    };
    arg.add(ArgValueCompleter::new(what))
}

/// The kind of candidates that complete an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CandidateKind {
    Directives,
    DirectivesAndPaths,
    /// Items of the type that another argument names.
    OfType,
    Items,
    Threads,
    /// Sessions that a chat can open again.
    Sessions,
    Providers,
    Codes,
    Things,
    /// Tiers, and model ids with and without their provider.
    Models,
    /// Names of limits with an equals sign, such as `turns=`, as values of `--limit`, `--session-limit` and `--raise`.
    Limits,
    /// Names of inputs with an equals sign, such as `topic=`: the inputs of the directive that another argument names.
    Inputs,
}

impl ValueCompleter for CandidateKind {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let words: Vec<OsString> = std::env::args_os().collect();
        let mut found: Vec<CompletionCandidate> = match current.to_str() {
            Some(begun) => self
                .names(&words)
                .into_iter()
                .filter(|n| n.starts_with(begun))
                .take(MAX_CANDIDATES)
                .map(Into::into)
                .collect(),
            None => Vec::new(),
        };
        if *self == Self::DirectivesAndPaths {
            found.extend(PathCompleter::any().complete(current));
        }
        found
    }
}

impl CandidateKind {
    fn names(self, words: &[OsString]) -> Vec<String> {
        match self {
            Self::Directives | Self::DirectivesAndPaths => complete_ids(words, &[ItemKind::Directive]),
            Self::OfType => {
                match ItemKind::ALL.into_iter().find(|kind| words.iter().any(|word| *word == kind.as_str())) {
                    Some(kind) => complete_ids(words, &[kind]),
                    None => Vec::new(),
                }
            }
            Self::Items => complete_ids(words, &[ItemKind::Directive, ItemKind::Knowledge, ItemKind::Tool]),
            Self::Threads => complete_threads(words, false),
            Self::Sessions => complete_threads(words, true),
            Self::Providers => {
                let all = complete_ids(words, &[ItemKind::Config]);
                all.iter().filter_map(|id| id.strip_prefix(PROVIDER_PREFIX)).map(str::to_owned).collect()
            }
            Self::Codes => CODES.iter().map(|code| (*code).to_owned()).collect(),
            Self::Things => {
                let limits = LimitName::ALL.into_iter().map(|name| format!("limit.{name}"));
                let own = ["model", "extends"].map(str::to_owned);
                // Exports of threads are left out: no plan contains them.
                let items = Self::Items.names(words).into_iter().filter(|id| !id.starts_with(EXPORT_PREFIX));
                own.into_iter().chain(limits).chain(items).collect()
            }
            Self::Models => complete_models(words),
            Self::Limits => LimitName::ALL.into_iter().map(|name| format!("{name}=")).collect(),
            Self::Inputs => complete_inputs(words),
        }
    }
}

/// Returns the spaces of the project given by `--project`, or of the current folder; `None` if there is no project.
fn project_spaces(words: &[OsString]) -> Option<Spaces> {
    let named = words.iter().enumerate().find_map(|(i, word)| match word.to_str() {
        Some("--project") => words.get(i + 1).map(PathBuf::from),
        Some(word) => word.strip_prefix("--project=").map(PathBuf::from),
        None => None,
    });
    Spaces::find(named.as_deref()).ok()
}

/// Returns the ids of all items of the kinds `kinds`. The ids of the project and the user precede the many ids of the
/// standard library.
fn complete_ids(words: &[OsString], kinds: &[ItemKind]) -> Vec<String> {
    let Some(world) = project_spaces(words).and_then(|spaces| spaces.open().ok()) else { return Vec::new() };
    let mut entries: Vec<_> = kinds.iter().filter_map(|kind| world.list(*kind).ok()).flatten().collect();
    entries.sort_by(|a, b| (a.space, &a.id).cmp(&(b.space, &b.id)));
    // An id that several spaces have is listed once.
    let mut seen = BTreeSet::new();
    entries.into_iter().map(|entry| entry.id.to_string()).filter(|name| seen.insert(name.clone())).collect()
}

/// Returns the tiers and models of all providers of a project. The command line `words` determines the project.
fn complete_models(words: &[OsString]) -> Vec<String> {
    project_spaces(words).map(|spaces| list_models(&spaces)).unwrap_or_default()
}

/// Returns the names of a directive's inputs, each followed by `=`. The directive is the first word that is the id of a
/// directive. Empty if there is no such word.
fn complete_inputs(words: &[OsString]) -> Vec<String> {
    let Some(world) = project_spaces(words).and_then(|spaces| spaces.open().ok()) else { return Vec::new() };
    let items = Items::new(&world);
    let mut named = words.iter().skip(1).filter_map(|word| ItemId::parse(word.to_str()?).ok());
    let Some(directive) = named.find(|id| items.exists(ItemKind::Directive, id)) else { return Vec::new() };
    declared_inputs(&world, &directive, &Map::new()).into_keys().map(|name| format!("{name}=")).collect()
}

/// Returns the ids of all threads, newest first. If `only_sessions` is true, returns only the ids of closed sessions
/// and of orphaned threads without a parent.
fn complete_threads(words: &[OsString], only_sessions: bool) -> Vec<String> {
    project_spaces(words).map(|spaces| list_threads(&spaces, only_sessions)).unwrap_or_default()
}
