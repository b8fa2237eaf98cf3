//! A bound on the diagnostics that a command prints, so that a hostile file cannot cause unlimited output.

use std::collections::BTreeMap;

use rye_compiler::diagnostics::{Diagnostic, Diagnostics, Severity};
use rye_grammar::{SourceId, Sources};
use schemars::JsonSchema;
use serde::Serialize;

use super::diagnostic::DiagnosticOutput;

/// Maximum number of printed diagnostics per file and code.
pub const MAX_PER_FILE_AND_CODE: usize = 100;

/// Diagnostics of one file and code that are not printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OmittedDiagnostics {
    /// The file that the first label of these diagnostics points to; empty if they have no label.
    pub file: String,
    pub code: String,
    /// Number of diagnostics beyond the first 100.
    pub count: usize,
}

/// The diagnostics to print, in their original order, and the counts of the omitted diagnostics.
pub struct BoundedDiagnostics<'d> {
    pub printed: Vec<(&'d Diagnostic, Severity)>,
    pub omitted: Vec<OmittedDiagnostics>,
}

/// Keeps the first [`MAX_PER_FILE_AND_CODE`] diagnostics of each file and code, and counts the others.
pub fn bound<'d>(
    diagnostics: impl Iterator<Item = (&'d Diagnostic, Severity)>,
    sources: &Sources,
) -> BoundedDiagnostics<'d> {
    let mut counts: BTreeMap<(Option<SourceId>, &'static str), (usize, String)> = BTreeMap::new();
    let mut printed = Vec::new();
    for (one, severity) in diagnostics {
        let source = one.labels().first().map(|label| label.span.source);
        let (count, code) = counts.entry((source, one.code())).or_default();
        *count += 1;
        if *count <= MAX_PER_FILE_AND_CODE {
            printed.push((one, severity));
        } else if code.is_empty() {
            *code = one.full_code();
        }
    }
    let file =
        |source: Option<SourceId>| source.and_then(|id| sources.get(id)).map_or("", |source| &source.path).to_owned();
    let beyond = counts.into_iter().filter(|(_, (count, _))| *count > MAX_PER_FILE_AND_CODE);
    let omitted = beyond.map(|((source, _), (count, code))| OmittedDiagnostics {
        file: file(source),
        code,
        count: count - MAX_PER_FILE_AND_CODE,
    });
    BoundedDiagnostics { printed, omitted: omitted.collect() }
}

/// Returns the diagnostics to print in JSON form, and the number of omitted diagnostics for each file and code.
pub fn diagnostic_outputs(
    diagnostics: &Diagnostics,
    sources: &Sources,
) -> (Vec<DiagnosticOutput>, Vec<OmittedDiagnostics>) {
    let BoundedDiagnostics { printed, omitted } = bound(diagnostics.iter().map(|one| (one, one.severity())), sources);
    (printed.into_iter().map(|(one, _)| DiagnosticOutput::new(one, sources)).collect(), omitted)
}

impl std::fmt::Display for OmittedDiagnostics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} more `{}`", self.count, self.code)?;
        if !self.file.is_empty() {
            write!(f, " in {}", self.file)?;
        }
        write!(f, " not printed")
    }
}
