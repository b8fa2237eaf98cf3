//! `rye check [PATH…]`: reports all diagnostics of the project, or of some of its files.

mod fingerprints;
mod fix;
mod scripts;
mod watch;

use std::path::PathBuf;

use clap::Args;
use rye_compiler::diagnostics::{ConfigError, Diagnostic, Severity};
#[cfg(feature = "mcp")]
use rye_compiler::item::Items;
#[cfg(feature = "mcp")]
use rye_compiler::mcp_servers::{FaultyServerValue, ServerValueFault, ServersErrorPlace, find_faulty_values};
use rye_compiler::severity_overrides::SeverityOverrides;
use rye_compiler::validate::{CheckReport, Selection, check};
use rye_compiler::world::World;
#[cfg(feature = "mcp")]
use rye_grammar::{Source, Span};
use schemars::JsonSchema;
use serde::Serialize;

use crate::CommandError;
use crate::exit::Exit;
use crate::lockfile;
use crate::node_version::problem_of_tools;
use crate::options::{Global, OutputFormat, format_option};
use crate::path_filter::{PathFilter, resolve_path_filter};
use crate::report::bounded::{self, BoundedDiagnostics, OmittedDiagnostics};
use crate::report::diagnostic::DiagnosticOutput;
use crate::report::{Printer, github, sarif};
use crate::workspace::Spaces;

#[derive(Debug, Args)]
#[command(arg = format_option(&[OutputFormat::Sarif, OutputFormat::Github]))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct CheckArgs {
    /// Files, folders or item ids to check; default: the whole project
    #[arg(value_name = "PATH|ID")]
    paths: Vec<PathBuf>,
    /// Report every warning as an error
    #[arg(long)]
    deny_warnings: bool,
    /// Do not show warnings and advice of this code, such as `hook::always` (repeatable); errors cannot be hidden
    #[arg(long, value_name = "CODE")]
    allow: Vec<String>,
    /// Apply safe fixes; the change is shown first
    #[arg(long)]
    fix: bool,
    /// Do not ask before applying fixes
    #[arg(long, requires = "fix")]
    yes: bool,
    /// Check again whenever a file changes, until interrupted
    #[arg(long, conflicts_with = "fix")]
    watch: bool,
}

/// Output of `rye check --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CheckOutput {
    /// The diagnostics, sorted by file, then by position; at most 100 per file and code.
    pub diagnostics: Vec<DiagnosticOutput>,
    /// Number of omitted diagnostics (all after the first 100) for each file and code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub omitted: Vec<OmittedDiagnostics>,
    pub summary: CheckSummary,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct CheckSummary {
    pub errors: usize,
    pub warnings: usize,
    /// Number of files of the project that hold an item. The knowledge that finished threads export is not counted.
    pub files: usize,
    pub directives: usize,
}

pub fn run(args: &CheckArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    let spaces = Spaces::find_and_print(global.project.as_deref(), report)?;
    report.detail(&spaces.to_string());
    // Report an unknown code before reading anything.
    severity_overrides(args, SeverityOverrides::default())?;
    if args.fix {
        fix::run(args, &spaces, report)?;
    }
    if args.watch {
        return watch::run(args, &spaces, global.format, report);
    }
    let world = spaces.open()?;
    let found = run_check(args, &spaces, &world, check)?;
    let exit = print_result(&found, global.format, report);
    if global.format == OutputFormat::Human
        && let Some(problem) = problem_of_tools(&world, &spaces.project)
    {
        report.note(&problem);
    }
    // The process ends next, so leave the memory to the system.
    std::mem::forget(found);
    exit
}

/// The result of one check, with the severity overrides that apply to its diagnostics.
struct CheckResult {
    report: CheckReport,
    levels: SeverityOverrides,
}

impl CheckResult {
    /// Returns the diagnostics to show, with their effective severity.
    fn effective_diagnostics(&self) -> impl Iterator<Item = (&Diagnostic, Severity)> {
        self.report.diagnostics.iter().filter_map(|one| Some((one, self.levels.severity(one)?)))
    }

    fn summary(&self) -> CheckSummary {
        let count = |wanted: Severity| self.effective_diagnostics().filter(|(_, severity)| *severity == wanted).count();
        CheckSummary {
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            files: self.report.files,
            directives: self.report.directives,
        }
    }
}

fn run_check(
    args: &CheckArgs,
    spaces: &Spaces,
    world: &dyn World,
    check: impl FnOnce(&dyn World, &Selection) -> CheckReport,
) -> Result<CheckResult, CommandError> {
    let selection = selection_of(args, spaces, world)?;
    let mut report = check(world, &selection);
    #[cfg(feature = "mcp")]
    if selection == Selection::All {
        check_server_settings(world, &mut report);
    }
    if selection == Selection::All
        && let Err(failure) = lockfile::read(&spaces.project)
    {
        report.diagnostics.push(ConfigError::LockFile { path: lockfile::PATH.to_owned(), why: failure.message });
    }
    if selection == Selection::All {
        scripts::check_scripts(world, &spaces.project, &mut report);
    }
    let levels = severity_overrides(args, report.levels.clone())?;
    Ok(CheckResult { report, levels })
}

/// Reports errors and literal secrets in the files that configure MCP servers.
#[cfg(feature = "mcp")]
fn check_server_settings(world: &dyn World, report: &mut CheckReport) {
    let items = Items::new(world);
    if let Err(error) = rye_engine::tool::mcp::config::read_servers(&items) {
        let span = error.place.map(|place| add_place(place, report));
        report.diagnostics.push(ConfigError::Servers { why: error.message, span });
    }
    for FaultyServerValue { fault, key, name, place } in find_faulty_values(&items) {
        let (file, span) = (place.path.clone(), add_place(place, report));
        let (why, help) = match fault {
            ServerValueFault::Literal => {
                let variable: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
                let variable = variable.to_ascii_uppercase();
                (
                    "a secret in a file of the project is shared with everybody who gets the project".to_owned(),
                    format!("write `${{{variable}}}`, and set the variable in the environment"),
                )
            }
            ServerValueFault::PlainVariable(name) => {
                (format!("no shell reads the value: `${name}` is sent as text"), format!("write `${{{name}}}`"))
            }
            ServerValueFault::Launcher(program) => (
                format!("`{program}` writes below your home folder, which the sandbox does not allow"),
                "write `sandbox: none` (`\"sandbox\": \"none\"` in `.mcp.json`), or install the server".to_owned(),
            ),
            ServerValueFault::UnreadKey => unread_key_texts(&name),
            ServerValueFault::Unencrypted => {
                ("the server gets the value without encryption".to_owned(), "write `https://` in the `url`".to_owned())
            }
        };
        report.diagnostics.push(ConfigError::Implausible { file, key, why, help, span });
    }
}

/// Returns the reason and the help for a key that `rye` does not read in the settings of an MCP server.
#[cfg(feature = "mcp")]
fn unread_key_texts(name: &str) -> (String, String) {
    match name {
        "cwd" => (
            "every server runs in the folder of the project".to_owned(),
            "remove `cwd`, and write paths from the folder of the project into `command` and `args`".to_owned(),
        ),
        "timeout" => (
            "this key is not read, because its unit differs between programs".to_owned(),
            "write `timeout_seconds`".to_owned(),
        ),
        _ => ("this key is not read".to_owned(), "remove the key, or keep it for the programs that read it".to_owned()),
    }
}

/// Adds the file of `place` to the sources of a report. `place` is the position of an error or a secret in this file.
/// Returns the span of this position.
#[cfg(feature = "mcp")]
fn add_place(place: ServersErrorPlace, report: &mut CheckReport) -> Span {
    let source = report.sources.add(Source::new(place.path, place.text));
    Span::new(source, place.range.start, place.range.end)
}

fn selection_of(args: &CheckArgs, spaces: &Spaces, world: &dyn World) -> Result<Selection, CommandError> {
    Ok(match resolve_path_filter(&args.paths, &spaces.project, world)? {
        PathFilter::All => Selection::All,
        PathFilter::To(paths) => Selection::Paths(paths),
    })
}

/// Returns the severity overrides of the project (`levels`), extended by the overrides of the command line.
fn severity_overrides(args: &CheckArgs, mut levels: SeverityOverrides) -> Result<SeverityOverrides, CommandError> {
    for code in &args.allow {
        levels.allow(code).map_err(|unknown| {
            let failure = CommandError::usage(unknown.to_string());
            match unknown.suggestion {
                Some(near) => failure.with_help(format!("did you mean `{near}`?")),
                None => failure.with_help("`rye explain` lists all codes"),
            }
        })?;
    }
    if args.deny_warnings {
        levels.deny_warnings();
    }
    Ok(levels)
}

fn print_result(found: &CheckResult, requested: OutputFormat, report: &Printer) -> Result<Exit, CommandError> {
    let summary = found.summary();
    let exit = if summary.errors > 0 { Exit::Failed } else { Exit::Success };
    let sources = &found.report.sources;
    let outputs = || -> (Vec<DiagnosticOutput>, Vec<OmittedDiagnostics>) {
        let BoundedDiagnostics { printed, omitted } = bounded::bound(found.effective_diagnostics(), sources);
        let output = |(one, severity)| DiagnosticOutput::new(one, sources).with_severity(severity);
        (printed.into_iter().map(output).collect(), omitted)
    };
    match requested {
        OutputFormat::Json => {
            let (diagnostics, omitted) = outputs();
            report.json(&CheckOutput { diagnostics, omitted, summary })?;
        }
        OutputFormat::Sarif => report.json(&sarif::build_log(&outputs().0))?,
        OutputFormat::Github => {
            let (diagnostics, omitted) = outputs();
            for one in diagnostics {
                report.line(&github::format_annotation(&one))?;
            }
            for rest in omitted {
                report.note(&rest.to_string());
            }
            report.note(&summary.to_string());
        }
        OutputFormat::Human | OutputFormat::Plain | OutputFormat::Markdown | OutputFormat::Html => {
            report.checked_diagnostics(found.effective_diagnostics(), sources)?;
            report.note(&summary.to_string());
        }
    }
    let mut in_vain: Vec<&str> = found
        .report
        .diagnostics
        .iter()
        .filter(|d| found.levels.is_error_despite_override(d))
        .map(Diagnostic::code)
        .collect();
    in_vain.dedup();
    for code in in_vain {
        report.note(&format!("`{code}` is an error: its severity cannot be lowered"));
    }
    Ok(exit)
}

impl std::fmt::Display for CheckSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = |n: usize, one: &str| if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") };
        let checked = format!("{} in {}", count(self.directives, "directive"), count(self.files, "file"));
        match (self.errors, self.warnings) {
            (0, 0) => write!(f, "checked {checked}: no problems found"),
            (errors, warnings) => {
                write!(f, "checked {checked}: {}, {}", count(errors, "error"), count(warnings, "warning"))
            }
        }
    }
}
