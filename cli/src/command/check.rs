//! `rye check [PATH…]`: everything that is wrong in the project, or in some of its files.

use std::path::{Component, Path, PathBuf};

use clap::Args;
use rye_compiler::validate::{CheckReport, Selection, check};
use schemars::JsonSchema;
use serde::Serialize;

use crate::Failure;
use crate::args::{Format, Global};
use crate::exit::Exit;
use crate::report::Report;
use crate::report::diagnostic::DiagnosticOutput;
use crate::space::Spaces;

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Files or folders of the project; without one, all of it
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// `rye check --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CheckOutput {
    /// By file, then by place.
    pub diagnostics: Vec<DiagnosticOutput>,
    pub summary: CheckSummary,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct CheckSummary {
    pub errors: usize,
    pub warnings: usize,
    /// Files read, of all spaces.
    pub files: usize,
    pub directives: usize,
}

pub fn run(args: &CheckArgs, global: &Global, report: &Report) -> Result<Exit, Failure> {
    let spaces = Spaces::find(global.project.as_deref())?;
    let selection = selection(&args.paths, &spaces.project)?;
    report.detail(&spaces.to_string());
    let world = spaces.open()?;
    let found = check(&world, &selection);
    let summary = CheckSummary {
        errors: found.errors(),
        warnings: found.warnings(),
        files: found.files,
        directives: found.directives,
    };
    let exit = if summary.errors > 0 { Exit::Failed } else { Exit::Fine };
    if report.format() == Format::Json {
        let CheckReport { diagnostics, sources, .. } = &found;
        let diagnostics = diagnostics.iter().map(|one| DiagnosticOutput::new(one, sources)).collect();
        report.json(&CheckOutput { diagnostics, summary })?;
    } else {
        report.diagnostics(&found.diagnostics, &found.sources);
        report.note(&summary.to_string());
    }
    Ok(exit)
}

impl std::fmt::Display for CheckSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = |n: usize, one: &str| if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") };
        let checked = format!("{} in {}", count(self.directives, "directive"), count(self.files, "file"));
        match (self.errors, self.warnings) {
            (0, 0) => write!(f, "checked {checked}: nothing is wrong"),
            (errors, warnings) => {
                write!(f, "checked {checked}: {}, {}", count(errors, "error"), count(warnings, "warning"))
            }
        }
    }
}

/// Paths as diagnostics print them: from the project's folder on, with forward slashes.
fn selection(paths: &[PathBuf], project: &Path) -> Result<Selection, Failure> {
    if paths.is_empty() {
        return Ok(Selection::All);
    }
    let here = std::env::current_dir()?;
    let relative = paths.iter().map(|path| {
        let real = here.join(path).canonicalize().or_else(|_| project.join(path).canonicalize());
        let real = real.map_err(|error| Failure::usage(format!("`{}` cannot be opened: {error}", path.display())))?;
        let inside = real.strip_prefix(project).map_err(|_| {
            Failure::usage(format!("`{}` is not in the project `{}`", path.display(), project.display()))
        })?;
        let segments = inside.components().filter_map(|c| if let Component::Normal(s) = c { s.to_str() } else { None });
        Ok(segments.collect::<Vec<_>>().join("/"))
    });
    let relative = relative.collect::<Result<Vec<String>, Failure>>()?;
    // The project's own folder is all of it.
    if relative.iter().any(String::is_empty) {
        return Ok(Selection::All);
    }
    Ok(Selection::Paths(relative))
}
