//! `rye assert [ID…]`: checks the assertions of `.ai/config/agent/assertions.yaml` for every thread that the directives
//! can start.

use std::fmt::Write as _;

use clap::Args;
use rye_compiler::assertion::{
    AssertReport, CycleStart, Spawn, StartCycle, TraceStep, Violation, WithoutWitness, assert,
};
use rye_compiler::diagnostics::Severity;
use rye_compiler::plan::source::SourceReport;
use schemars::JsonSchema;
use serde::Serialize;

use crate::CommandError;
use crate::exit::Exit;
use crate::options::{Format, Global};
use crate::present::format_count;
use crate::report::bounded::{self, OmittedDiagnostics};
use crate::report::diagnostic::DiagnosticOutput;
use crate::report::{Printer, printable};
use crate::run_request::existing_directives;
use crate::workspace::Spaces;

#[derive(Debug, Args)]
pub struct AssertArgs {
    /// Directives to check (default: all directives of the project and the user space)
    #[arg(value_name = "ID")]
    directives: Vec<String>,
}

/// Output of `rye assert --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AssertOutput {
    #[serde(flatten)]
    pub report: AssertReport,
    /// Errors in the checked files; at most 100 per file and code.
    pub diagnostics: Vec<DiagnosticOutput>,
    /// Number of omitted diagnostics (all after the first 100) for each file and code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub omitted: Vec<OmittedDiagnostics>,
}

pub fn run(args: &AssertArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    let world = Spaces::find_and_print(global.project.as_deref(), report)?.open()?;
    let only = existing_directives(&args.directives, &world)?;
    let mut found = assert(&world, &only);
    // Warnings and advice are left to `rye check`.
    found.diagnostics.retain(|diagnostic| diagnostic.severity() == Severity::Error);
    let broken = found.report.violations.iter().any(|violation| violation.severity == "error");
    let failed = broken || !found.diagnostics.is_empty();
    match report.format() {
        Format::Json => {
            let (diagnostics, omitted) = bounded::diagnostic_outputs(&found.diagnostics, &found.sources);
            report.json(&AssertOutput { report: found.report, diagnostics, omitted })?;
        }
        Format::Human | Format::Plain => {
            report.diagnostics(&found.diagnostics, &found.sources);
            for violation in &found.report.violations {
                report.line(printable(&format_violation(violation)).trim_end())?;
            }
            for spawn in found.report.spawns.iter().filter(|spawn| spawn.exceeds.is_some()) {
                report.line(&printable(&format_excess(spawn)))?;
            }
            for circle in &found.report.cycles {
                report.line(printable(&format_cycle(circle)).trim_end())?;
            }
            for WithoutWitness { assertion, why } in &found.report.without_witness {
                report.line(&printable(&format!("warning: `{assertion}` has no effect: {why}")))?;
            }
            report.note(&format_summary(&found.report, found.diagnostics.count(Severity::Error)));
        }
    }
    Ok(if failed { Exit::Failed } else { Exit::Success })
}

fn format_violation(violation: &Violation) -> String {
    let about = if violation.description.is_empty() { String::new() } else { format!(": {}", violation.description) };
    let mut out = format!("{}: `{}` does not hold{about}\n", violation.severity, violation.assertion);
    for (i, TraceStep { directive, by, source }) in violation.trace.iter().enumerate() {
        let arrow = match by.as_str() {
            _ if i > 0 => "→",
            "chat" => "chat",
            _ => "run",
        };
        let by = if i == 0 { String::new() } else { format!(", started by {by}") };
        writeln!(out, "  {arrow} {directive}{by}{}", format_source(source.as_ref())).ok();
    }
    for because in &violation.because {
        writeln!(out, "    {because}").ok();
    }
    out
}

fn format_excess(spawn: &Spawn) -> String {
    let Spawn { from, to, by, source, exceeds, parent_grants, child_grants } = spawn;
    let example = exceeds.as_deref().unwrap_or_default();
    format!(
        "note: `{to}`, started by `{from}` ({by}){}, will be denied `{example}`\n  granted by the child{}\n  \
         not granted by the parent{}",
        format_source(source.as_ref()),
        format_source(child_grants.as_ref()),
        format_source(parent_grants.as_ref())
    )
}

/// Formats a cycle of directives, and the source line of each spawn in the cycle.
fn format_cycle(circle: &StartCycle) -> String {
    let StartCycle { directives, starts } = circle;
    let mut out = format!("note: only the limit `depth` ends this cycle of starts: {}\n", directives.join(" → "));
    for ((from, to), CycleStart { by, source }) in directives.iter().zip(directives.iter().cycle().skip(1)).zip(starts)
    {
        writeln!(out, "  {from} starts {to} ({by}){}", format_source(source.as_ref())).ok();
    }
    out
}

fn format_source(source: Option<&SourceReport>) -> String {
    source.map(|s| format!("  {}:{}:{}", s.file, s.line, s.column)).unwrap_or_default()
}

fn format_summary(report: &AssertReport, errors: usize) -> String {
    let counted = |n: usize, one: &str| format_count(n as u64, one);
    let held = match report.violations.len() {
        // Files with errors were not checked.
        0 if errors > 0 => format!("{} in the files, so not everything was checked", counted(errors, "error")),
        0 => "no violations".to_owned(),
        n => counted(n, "violation"),
    };
    let plans = |mode: &str| report.plans.iter().filter(|one| one.mode == mode).map(|one| one.plans).sum::<usize>();
    let more = if report.incomplete { "; only a part of the threads was checked" } else { "" };
    format!(
        "checked {} and the built-in assertions for {} of {} ({} of runs, {} of chats): {held}{more}",
        counted(report.assertions, "assertion"),
        counted(report.threads, "thread"),
        counted(report.directives, "directive"),
        counted(plans("run"), "plan"),
        counted(plans("chat"), "plan"),
    )
}
