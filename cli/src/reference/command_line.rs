//! The generated parts of `docs/reference/cli.md`: commands from clap, exit codes, environment variables.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, Command, CommandFactory};

use super::{check_page, escape_cell, root};
use crate::args::Args;
use crate::exit::Exit;
use crate::help_examples::with_examples;

/// Environment variables that the source code of `rye` names, each with its meaning.
const OWN_VARIABLES: [(&str, &str); 19] = [
    ("RYE_USER_SPACE", "the folder that holds the user's `.ai/`"),
    ("USER_SPACE", "the folder that holds the user's `.ai/`, if `RYE_USER_SPACE` is not set"),
    (
        "HOME",
        "the folder that holds the user's `.ai/`, if neither variable above is set; also the home folder of programs",
    ),
    ("PATH", "the search path of programs: tools, MCP servers, `bwrap`"),
    ("LANG", "the locale of programs"),
    ("COLUMNS", "the width of human output"),
    ("TERM", "`dumb`: progress is not repainted"),
    ("ACCESSIBLE", "a value other than `0`: progress is a line every 30 seconds, not a repainted line"),
    ("VISUAL", "the program that Ctrl+G opens in a chat, with arguments"),
    ("EDITOR", "the program that Ctrl+G opens in a chat, if `VISUAL` is not set"),
    ("RYE_PROJECT", "the default of `--project`"),
    ("RYE_FORMAT", "the default of `--format`"),
    ("RYE_COLOR", "the default of `--color`"),
    ("RYE_MODEL", "the default of `--model` of commands that compile a directive; a resumed thread keeps its model"),
    ("RYE_UNATTENDED", "the default of `--unattended`"),
    ("RYE_LOG", "the filter of the log on stderr: a level such as `debug`, or targets such as `rye_engine=trace`"),
    (
        "RYE_PARENT_THREAD_ID",
        "set for the programs of a thread: `rye run` in a program starts a child of the thread, as with `--parent`",
    ),
    ("RYE_MCP_TOKEN", "the bearer token of `rye mcp serve --http`; if it is not set, each start prints a new one"),
    ("RYE_COMPLETE", "set by the scripts of `rye completions`"),
];

/// Environment variables that libraries read.
const LIBRARY_VARIABLES: [(&str, &str); 5] = [
    ("NO_COLOR", "any value that is not empty: no colors, unless `--color` or `RYE_COLOR` is `always`"),
    ("CLICOLOR", "`0`: no colors"),
    ("CLICOLOR_FORCE", "any value that is not empty, also `0`: colors in pipes and files too"),
    (
        "HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY",
        "proxies for requests to providers, except towards loopback; requests of tools use no proxy",
    ),
    ("TMPDIR", "the folder for the temporary files of programs"),
];

fn format_commands() -> String {
    let mut command = with_examples(Args::command());
    command.build();
    let mut out = String::from("### Options of every command\n\n");
    out.push_str(&format_table(command.get_arguments()));
    for sub in command.get_subcommands() {
        describe(sub, "rye", 3, &mut out);
    }
    out
}

/// Describes a command and its subcommands.
fn describe(command: &Command, parent: &str, level: usize, out: &mut String) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    let name = format!("{parent} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    assert!(!about.is_empty(), "`{name}` has no help text");
    let _ = write!(out, "\n{} `{name}`\n\n{}.\n", "#".repeat(level), about.trim_end_matches('.'));
    let aliases: Vec<String> = command.get_visible_aliases().map(|alias| format!("`{parent} {alias}`")).collect();
    if !aliases.is_empty() {
        let _ = write!(out, "\nAlias: {}.\n", aliases.join(", "));
    }
    let usage = command.clone().render_usage().to_string();
    let usage: Vec<&str> = usage.trim_start_matches("Usage:").lines().map(str::trim).collect();
    let _ = write!(out, "\n```text\n{}\n```\n", usage.join("\n").trim());
    let table = format_table(command.get_arguments().filter(|arg| !arg.is_global_set()));
    if !table.is_empty() {
        let _ = write!(out, "\n{table}");
    }
    if let Some(examples) = command.get_after_help() {
        let examples = examples.to_string();
        let lines: Vec<&str> = examples.lines().skip(1).map(str::trim).collect();
        let _ = write!(out, "\n```console\n{}\n```\n", lines.join("\n"));
    }
    for sub in command.get_subcommands() {
        describe(sub, &name, (level + 1).min(4), out);
    }
}

/// Renders arguments as a table; the result is empty without visible arguments.
fn format_table<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    let shown = arguments.filter(|arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version"));
    let rows: String = shown.map(format_row).collect();
    if rows.is_empty() { rows } else { format!("| argument | default | meaning |\n|---|---|---|\n{rows}") }
}

fn format_row(arg: &Arg) -> String {
    let takes_value = arg.get_action().takes_values();
    let defaults = arg.get_default_values().iter().filter(|_| takes_value);
    let defaults: Vec<String> = defaults.map(|value| format!("`{}`", value.to_string_lossy())).collect();
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    assert!(!help.is_empty(), "`{}` has no help text", arg.get_id());
    let mut meaning = escape_cell(&help);
    let values = arg.get_possible_values().into_iter().filter(|value| takes_value && !value.is_hide_set());
    let values: Vec<String> = values
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({})", value.get_name(), escape_cell(&help.to_string())),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if !values.is_empty() {
        let _ = write!(meaning, ". Values: {}", values.join(", "));
    }
    format!("| {} | {} | {meaning} |\n", format_spelling(arg), defaults.join(", "))
}

/// Returns the spelling of an argument: `-q`, `--quiet`, `--limit <NAME=VALUE>`, `[PATH]`.
fn format_spelling(arg: &Arg) -> String {
    let names: Vec<String> = arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    let names = names.join(" ");
    let value = match (arg.get_action().takes_values(), arg.is_require_equals_set()) {
        (true, true) => format!("[=<{names}>]"),
        (true, false) => format!(" <{names}>"),
        (false, _) => String::new(),
    };
    let short = arg.get_short().map(|short| format!("`-{short}{value}`"));
    let long = arg.get_long().map(|long| format!("`--{long}{value}`"));
    let flags: Vec<String> = short.into_iter().chain(long).collect();
    let all = match (flags.is_empty(), arg.is_required_set()) {
        (false, _) => flags.join(", "),
        (true, true) => format!("`<{names}>`"),
        (true, false) => format!("`[{names}]`"),
    };
    all.replace('|', "\\|")
}

/// Returns every exit code with its variant of `Exit`, in ascending order.
fn exit_codes() -> Vec<(u8, Exit)> {
    let all = (0..=u8::MAX).map(|code| (code, Exit::from_code(code.into())));
    all.filter(|(code, exit)| ExitCode::from(*exit) == ExitCode::from(*code)).collect()
}

fn exit_meaning(exit: Exit) -> &'static str {
    match exit {
        Exit::Success => "success",
        Exit::Failed => "diagnostics with errors, a thread that failed, or another failure of a valid command",
        Exit::Usage => "an invalid command line, or no project",
        Exit::PermissionsWidened => {
            "`rye plan --diff`: wider permissions or spending, or a change whose direction is unknown"
        }
        Exit::Limit => "a limit or the budget stopped the thread",
        Exit::Refused => "refused by a permission, a signature, missing trust, a pending approval or the lock file",
        Exit::Cancelled => "cancelled or interrupted",
    }
}

fn exit_table() -> String {
    let rows = exit_codes().into_iter().map(|(code, exit)| format!("| {code} | {} |\n", exit_meaning(exit)));
    format!("| code | meaning |\n|--:|---|\n{}", rows.collect::<String>())
}

/// Returns the environment variables that the provider files of the standard library name, each with its meaning.
fn provider_variables() -> BTreeSet<(String, &'static str)> {
    let keys = [("key_env:", "the key of the provider"), ("base_url_env:", "the address of the provider")];
    let files = rye_stdlib::files();
    let mut found = BTreeSet::new();
    for (_, bytes) in files.iter().filter(|(path, _)| path.starts_with(".ai/config/agent/providers/")) {
        for line in String::from_utf8_lossy(bytes).lines() {
            for (key, meaning) in keys {
                found.extend(line.strip_prefix(key).map(|name| (name.trim().to_owned(), meaning)));
            }
        }
    }
    found
}

fn variable_table() -> String {
    let mut out = String::from("| variable | meaning |\n|---|---|\n");
    for (name, meaning) in OWN_VARIABLES.iter().chain(&LIBRARY_VARIABLES) {
        let _ = writeln!(out, "| `{name}` | {meaning} |");
    }
    for (name, meaning) in provider_variables() {
        let _ = writeln!(out, "| `{name}` | {meaning} |");
    }
    out
}

/// Reads the Rust sources below a folder, without tests.
fn read_sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("tests") || path.ends_with("cli/src/reference") {
            continue;
        }
        if path.is_dir() {
            read_sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push(text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned());
        }
    }
}

/// Returns the variable names in string literals: names with the prefix `RYE_`, and names on a line that reads an
/// environment variable.
fn variables_in(sources: &[String]) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for line in sources.iter().flat_map(|source| source.lines()) {
        let is_read = line.contains("env::var");
        for literal in line.split('"').skip(1).step_by(2) {
            let is_upper = literal.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
            let is_name = is_upper && literal.len() > 3 && !literal.ends_with('_');
            if is_name && (is_read || literal.starts_with("RYE_")) {
                found.insert(literal);
            }
        }
    }
    found
}

#[test]
fn cli_page_matches_the_program() {
    let parts =
        [("commands", format_commands()), ("exit-codes", exit_table()), ("environment-variables", variable_table())];
    check_page("cli.md", &parts);
}

#[test]
fn every_exit_code_is_documented() {
    let codes: Vec<u8> = exit_codes().iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [0, 1, 2, 3, 4, 5, 130]);
}

#[test]
fn every_environment_variable_is_documented() {
    let mut all = Vec::new();
    for folder in ["cli/src", "compiler/src", "engine/src"] {
        read_sources(&root().join(folder), &mut all);
    }
    let documented: BTreeSet<&str> = OWN_VARIABLES.iter().map(|(name, _)| *name).collect();
    let undocumented: Vec<&str> = variables_in(&all).difference(&documented).copied().collect();
    assert!(undocumented.is_empty(), "add to OWN_VARIABLES in cli/src/reference/command_line.rs: {undocumented:?}");
    let own: BTreeSet<&str> = documented.iter().copied().filter(|name| name.starts_with("RYE_")).collect();
    assert_eq!(own, BTreeSet::from(crate::environment::VARIABLES), "VARIABLES in cli/src/environment.rs");
    let is_named = |name: &str| all.iter().any(|source| source.contains(&format!("\"{name}\"")));
    let gone: Vec<&&str> = documented.iter().filter(|name| !is_named(name)).collect();
    assert!(gone.is_empty(), "remove from OWN_VARIABLES in cli/src/reference/command_line.rs: {gone:?}");
    let line = "let a = std::env::var(\"HOME\"); let b = \"RYE_X\"; let c = \"RYE_\";".to_owned();
    assert_eq!(variables_in(&[line]).into_iter().collect::<Vec<_>>(), ["HOME", "RYE_X"]);
}
