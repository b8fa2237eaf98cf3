//! `rye run --plan FILE`: compiles the directive of a plan file again, with the inputs and overrides that the file
//! records. Runs the result only if it equals the plan in the file.

use rye_compiler::compile::{Compilation, compile_with_sources};
use rye_compiler::report::diff::diff;
use rye_compiler::report::render::diff::lines;
use rye_compiler::report::render::json::{PlanReport, ReadReport, render};
use rye_grammar::Sources;

use super::print_errors;
use crate::CommandError;
use crate::command::plan::file;
use crate::command::trust;
use crate::exit::Exit;
use crate::report::Printer;
use crate::run_request::parse_directive_id;
use crate::workspace::Spaces;

/// Compiles the request that a plan file contains. Fails if the result differs from the plan in the file. If the
/// directive has errors, prints them and returns the exit code as the inner error.
pub fn compile_pinned(
    path: &str,
    requested: Option<&str>,
    is_scripted: bool,
    spaces: &Spaces,
    report: &Printer,
) -> Result<Result<Box<Compilation>, Exit>, CommandError> {
    let planned = file::read_plan(path)?;
    if let Some(requested) = requested.filter(|requested| *requested != planned.directive) {
        return Err(CommandError::usage(format!(
            "`{path}` is a plan of `{}`, not of `{requested}`",
            planned.directive
        )));
    }
    let world = spaces.open()?;
    let mut request = planned.call.request(parse_directive_id(&planned.directive)?);
    // If the plan file has no inputs, compile with an empty set of inputs, as a run without inputs does. If the
    // directive declares no inputs, the plan stays the same.
    let known = request.inputs.is_some();
    request.inputs.get_or_insert_default();
    let mut sources = Sources::default();
    let checked = compile_with_sources(&world, &request, &mut sources);
    let Some(compilation) = checked.value else {
        return print_errors(checked.diagnostics, &sources, report).map(Err);
    };
    if compilation.plan_id != planned.plan_id && !known && !compilation.plan.interface.inputs.is_empty() {
        return Err(CommandError::usage(format!("`{path}` is a plan with unknown inputs, which cannot be run"))
            .with_help(format!(
                "write a plan with known inputs: `rye plan {} --inputs FILE --format json`",
                planned.directive
            )));
    }
    if compilation.plan_id != planned.plan_id {
        return Err(drift_error(path, &planned, &render(&compilation, Vec::new())));
    }
    let current = render(&compilation, Vec::new());
    if !diff(Some(&planned), Some(&current)).has_no_changes() {
        let failure = CommandError::failed(format!("`{path}` was edited: its content does not match its `plan_id`"));
        return Err(CommandError { exit: Exit::Refused, ..failure }.with_help(difference_lines(&planned, &current)));
    }
    report.brief_diagnostics(&checked.diagnostics, &compilation.sources);
    trust::require_trust(&compilation.trust_requirements, is_scripted, &world, spaces, report)?;
    Ok(Ok(Box::new(compilation)))
}

/// Creates the error for a plan that has changed since its file was written. The error lists the changed files and the
/// resulting changes of the plan.
fn drift_error(path: &str, planned: &PlanReport, now: &PlanReport) -> CommandError {
    let name = |read: &ReadReport| format!("{} {}", read.kind, read.id);
    let mut files: Vec<String> = Vec::new();
    for read in planned.manifest.iter().filter(|read| !now.manifest.contains(read)) {
        files.push(name(read));
    }
    for read in now.manifest.iter().filter(|read| !planned.manifest.contains(read)) {
        files.push(name(read));
    }
    files.sort();
    files.dedup();
    let files = if files.is_empty() { "none".to_owned() } else { files.join(", ") };
    let failure = CommandError::failed(format!("`{path}` differs from the current plan; changed files: {files}"));
    CommandError { exit: Exit::Refused, ..failure }.with_help(format!(
        "restore the files, or write the plan again with `rye plan`; differences:\n        {}",
        difference_lines(planned, now)
    ))
}

/// Returns the changes from one plan to another, each on a line of a help text; empty if there are none.
fn difference_lines(before: &PlanReport, after: &PlanReport) -> String {
    let lines = lines(&diff(Some(before), Some(after))).into_iter().map(|line| line.text);
    lines.collect::<Vec<_>>().join("\n        ")
}
