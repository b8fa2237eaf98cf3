//! The `rye` command-line program: parses the arguments, runs one command, prints its result and returns its exit code.
//! The language and the runtime are in `rye_compiler` and `rye_engine`.

mod args;
mod command;
mod complete;
mod environment;
mod examples;
mod exit;
mod file_set;
mod git;
mod help_examples;
mod input_schemas;
mod known_names;
mod lockfile;
mod log;
mod node_version;
mod options;
mod path_filter;
mod present;
#[cfg(test)]
mod reference;
mod report;
mod resource_limits;
mod rewrite;
mod run_request;
mod runtime;
mod thread_reader;
mod typed_input;
mod usage_tips;
mod workspace;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory as _, FromArgMatches as _};

use args::{Args, ignore_empty_variables};
use exit::Exit;
use report::Printer;
use rye_compiler::world::{ItemKind, Space, World as _, WorldError};
use usage_tips::{meant_command, slip_tip};

/// The allocator of the program: parsing and compiling allocate many small, short-lived values
/// (`docs/decisions/0005-allocator.md`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // This binary also runs as the supervisor process of tool programs.
    if let Some(code) = rye_engine::tool::process::supervise_if_requested() {
        return code;
    }
    match complete::answer_completion() {
        Ok(false) => {}
        Ok(true) => return Exit::Success.into(),
        Err(error) => return print_usage_error(&error),
    }
    let args = match parse_arguments() {
        Ok(args) => args,
        Err(error) => return print_usage_error(&error),
    };
    let mut report = Printer::new(&args.global);
    let for_registry = Mutex::new(report.clone());
    rye_engine::store::set_abort_handler(Box::new(move |error| {
        let report = for_registry.lock().unwrap_or_else(PoisonError::into_inner);
        let exit = report.failure(&CommandError::from(error));
        std::process::exit(exit.code().into());
    }));
    let for_panics = Mutex::new(report.clone());
    resource_limits::set_limit_handler(move |message| {
        let report = for_panics.lock().unwrap_or_else(PoisonError::into_inner);
        let exit = report.failure(&CommandError::failed(message));
        std::process::exit(exit.code().into());
    });
    let ran = resource_limits::check_threads().map_err(CommandError::from);
    let ran = ran.and_then(|()| log::start_log(&args.global)).and_then(|has_log| {
        report.set_log(has_log);
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for warning in environment::warn_of_misspelled(names) {
            report.note(&warning);
        }
        command::run(args, &report)
    });
    let exit = ran.unwrap_or_else(|failure| report.failure(&failure));
    report.explain_hint();
    exit.into()
}

/// Parses the command line. If the environment variable of an option is empty, the variable counts as unset.
fn parse_arguments() -> Result<Args, clap::Error> {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(version) = Args::version_answer(&words) {
        return Err(version);
    }
    if let Some(args) = Args::parse_frequent(&words) {
        return Ok(args);
    }
    let mut command = ignore_empty_variables(Args::command());
    let matches = match command.try_get_matches_from_mut(&words) {
        // Only a help text shows the examples of commands.
        Err(error) if is_help(error.kind()) => {
            let command = ignore_empty_variables(help_examples::with_examples(Args::command()));
            command.try_get_matches_from(words)?
        }
        matches => matches.map_err(|error| with_tip(error, &command))?,
    };
    Args::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

fn is_help(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand)
}

/// Adds a tip to the error about an unexpected word or option, or about a missing id of a directive.
fn with_tip(mut error: clap::Error, command: &Command) -> clap::Error {
    use clap::error::{ContextKind, ContextValue};
    let words: Vec<String> = std::env::args_os().skip(1).filter_map(|word| word.into_string().ok()).collect();
    let unexpected = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let Some(unexpected) = unexpected.into_iter().find_map(|kind| error.get(kind)).map(ToString::to_string) else {
        return error;
    };
    let tip = if error.kind() == ErrorKind::MissingRequiredArgument {
        tip_of_directives(&words)
    } else {
        let own = words.first().and_then(|word| command.find_subcommand(word));
        let options = own.into_iter().flat_map(Command::get_arguments).filter_map(Arg::get_long);
        let options: Vec<String> = options.map(str::to_owned).collect();
        slip_tip(error.kind(), &words, &unexpected, &options, &|path| std::path::Path::new(path).is_file())
    };
    // `clap` itself suggests only very similar commands.
    let has_suggestion = error.get(ContextKind::SuggestedSubcommand).is_some();
    let meant = || {
        let names = subcommands_before(command, &words, &unexpected);
        let meant = (error.kind() == ErrorKind::InvalidSubcommand && !has_suggestion)
            .then(|| meant_command(&unexpected, names))?;
        meant.map(|meant| format!("a similar subcommand exists: '{meant}'"))
    };
    let Some(tip) = tip.or_else(meant) else { return error };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::SuggestedSubcommand);
    error.with_cmd(command)
}

/// Returns the names of the subcommands that the command line accepts in place of the word `unexpected`.
fn subcommands_before<'c>(command: &'c Command, words: &[String], unexpected: &str) -> impl Iterator<Item = &'c str> {
    let mut last = command;
    for word in words.iter().take_while(|word| *word != unexpected) {
        last = last.find_subcommand(word).unwrap_or(last);
    }
    last.get_subcommands().map(Command::get_name)
}

/// Maximum number of directives that the error of a missing id lists.
const MAX_LISTED_DIRECTIVES: usize = 8;

/// Lists the project's directives for `rye run` or `rye plan` without an id; `None` for other commands, and if the
/// project has no directive.
fn tip_of_directives(words: &[String]) -> Option<String> {
    words.first().filter(|word| matches!(word.as_str(), "run" | "plan"))?;
    let world = workspace::Spaces::find(None).ok()?.open().ok()?;
    let listed = world.list(ItemKind::Directive).ok()?;
    let mut ids: Vec<String> =
        listed.into_iter().filter(|entry| entry.space == Space::Project).map(|entry| entry.id.to_string()).collect();
    ids.dedup();
    let rest = ids.len().saturating_sub(MAX_LISTED_DIRECTIVES);
    ids.truncate(MAX_LISTED_DIRECTIVES);
    let more = if rest == 0 { String::new() } else { format!(" and {rest} more") };
    (!ids.is_empty()).then(|| format!("directives of this project: {}{more}", ids.join(", ")))
}

/// Prints a usage error, or the help text if one was requested. With `--format json` an error is printed as JSON.
fn print_usage_error(error: &clap::Error) -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let mut json = false;
    while let Some(word) = words.next() {
        json = json || word == "--format=json" || (word == "--format" && words.next().is_some_and(|w| w == "json"));
    }
    if json && error.use_stderr() {
        let text = error.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        let (message, help) = text.split_once("\n\n").unwrap_or((text, ""));
        let help = Some(help.trim()).filter(|help| !help.is_empty());
        let failure = CommandError { help: help.map(str::to_owned), ..CommandError::usage(message.trim()) };
        return report::print_failure_json(&failure).into();
    }
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    let lost = printed.is_err_and(|error| error.kind() != std::io::ErrorKind::BrokenPipe);
    match error.exit_code() {
        // A help text that could not be written is a failure.
        0 if lost => Exit::Failed.into(),
        code => ExitCode::from(u8::try_from(code).unwrap_or(2)),
    }
}

/// The failure of a command: its message, its exit code and its help.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct CommandError {
    pub exit: Exit,
    /// The code of the error, such as `extends::cycle`; `None` if `rye explain` has no page about the error.
    pub code: Option<&'static str>,
    pub message: String,
    pub help: Option<String>,
}

impl CommandError {
    /// Creates a failure caused by an invalid command line.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, code: None, message: message.into(), help: None }
    }

    /// Creates the failure of a command whose arguments are valid. Its exit code is `Exit::Failed`.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, code: None, message: message.into(), help: None }
    }

    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl From<rye_engine::store::StoreError> for CommandError {
    fn from(error: rye_engine::store::StoreError) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<WorldError> for CommandError {
    /// Converts the error. An invalid signature results in [`Exit::Refused`], as during a run.
    fn from(error: WorldError) -> Self {
        let (exit, code) = match &error {
            WorldError::Unreadable { .. } => (Exit::Failed, "item::unreadable"),
            WorldError::Ambiguous { .. } => (Exit::Failed, "item::ambiguous"),
            WorldError::Escapes { .. } => (Exit::Failed, "item::escapes-space"),
            WorldError::Signature { .. } | WorldError::Unsigned { .. } | WorldError::UntrustedKey { .. } => {
                (Exit::Refused, "item::signature")
            }
        };
        Self { exit, code: Some(code), message: error.to_string(), help: None }
    }
}

impl From<std::io::Error> for CommandError {
    /// Converts an I/O error. If the reader of the output has closed the pipe, the command counts as successful.
    fn from(error: std::io::Error) -> Self {
        let exit = if error.kind() == std::io::ErrorKind::BrokenPipe { Exit::Success } else { Exit::Failed };
        Self { exit, code: None, message: error.to_string(), help: None }
    }
}
