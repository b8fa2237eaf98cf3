//! `rye check --fix`: applies safe fixes, after showing them as a diff.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use rye_compiler::diagnostics::Label;
use rye_compiler::edit::{Edit, apply, fix, old_word_edits};
use rye_compiler::validate::check;
use rye_grammar::signature;

use super::{CheckArgs, CheckResult, run_check};
use crate::CommandError;
use crate::options::Format;
use crate::report::{Printer, printable};
use crate::rewrite::FileRewrite;
use crate::workspace::Spaces;

/// Fixes the project's files; the check that follows reports the rest.
pub fn run(args: &CheckArgs, spaces: &Spaces, report: &Printer) -> Result<(), CommandError> {
    let before = run_check(args, spaces, &spaces.open()?, check)?;
    let rewrites = safe_fixes(&before, report);
    if rewrites.is_empty() {
        report.note("no safe fixes available");
        return Ok(());
    }
    for rewrite in &rewrites {
        let diff = printable(&rewrite.diff());
        // With JSON output, stdout holds only the JSON.
        match report.format() {
            Format::Json => report.note(diff.trim_end()),
            Format::Human | Format::Plain => report.line(diff.trim_end())?,
        }
    }
    if !args.yes && !confirm_fixes()? {
        report.note("nothing was changed");
        return Ok(());
    }
    for rewrite in &rewrites {
        rewrite.write(&spaces.project)?;
    }
    let after = run_check(args, spaces, &spaces.open()?, check)?;
    let mut repaired = rewrites.len();
    for rewrite in rewrites {
        let (had, has) = (count_in_file(&before, &rewrite.path), count_in_file(&after, &rewrite.path));
        // Renaming a deprecated word changes no diagnostic.
        if has < had || (had == 0 && has == 0) {
            continue;
        }
        rewrite.reverse().write(&spaces.project)?;
        repaired -= 1;
        report.note(&printable(&format!("undone: the fixes of {} leave {has} of {had} diagnostics", rewrite.path)));
    }
    report.note(&format!("repaired {}", crate::present::format_count(repaired as u64, "file")));
    Ok(())
}

/// Returns the number of diagnostics whose primary location is in a file.
fn count_in_file(found: &CheckResult, path: &str) -> usize {
    let sources = &found.report.sources;
    let is_there = |label: &Label| sources.get(label.span.source).is_some_and(|source| *source.path == *path);
    found.report.diagnostics.iter().filter(|one| one.labels().first().is_some_and(is_there)).count()
}

fn safe_fixes(found: &CheckResult, report: &Printer) -> Vec<FileRewrite> {
    let sources = &found.report.sources;
    let mut edits: BTreeMap<_, Vec<Edit>> = BTreeMap::new();
    for diagnostic in found.report.diagnostics.iter() {
        if let Some(fix) = fix(diagnostic, sources) {
            edits.entry(fix.source).or_default().extend(fix.edits);
        }
    }
    let mut rewrites = Vec::new();
    for (id, source) in sources.iter() {
        // Files of other spaces are not changed.
        if !source.path.starts_with(".ai/") {
            continue;
        }
        let mut edits = edits.remove(&id).unwrap_or_default();
        // A word in a file with other errors may mean something else than its preferred form.
        let is_clean = || count_in_file(found, &source.path) == 0;
        if edits.is_empty() && source.path.starts_with(".ai/directives/") && is_clean() {
            edits = old_word_edits(&source.text);
        }
        if edits.is_empty() {
            continue;
        }
        if signature::parse(id, &source.text).is_some() {
            report.note(&printable(&format!(
                "left unchanged: {} is signed: sign it again after changing it",
                source.path
            )));
            continue;
        }
        let after = apply(&source.text, &edits);
        rewrites.push(FileRewrite { path: source.path.to_string(), before: source.text.to_string(), after });
    }
    rewrites
}

/// Asks for confirmation; without a terminal, `--fix` itself is the confirmation.
fn confirm_fixes() -> Result<bool, CommandError> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(true);
    }
    let mut out = anstream::stderr().lock();
    write!(out, "write these changes? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
