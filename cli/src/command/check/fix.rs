//! `rye check --fix`: applies safe fixes, after showing them as a diff.

use std::io::IsTerminal;

use rye_compiler::edit::{Repairs, repair};
use rye_compiler::validate::check;

use super::{CheckArgs, run_check, selection_of};
use crate::CommandError;
use crate::options::Format;
use crate::report::{Printer, printable};
use crate::rewrite::FileRewrite;
use crate::typed_input::ask_yes_no;
use crate::workspace::Spaces;

/// Applies fixes to the project's files. The caller then checks the project again and reports the remaining
/// diagnostics.
pub fn run(args: &CheckArgs, spaces: &Spaces, report: &Printer) -> Result<(), CommandError> {
    let world = spaces.open()?;
    let found = run_check(args, spaces, &world, check)?;
    let Repairs { files, unsafe_fixes, untried, signed } =
        repair(&world, &selection_of(args, spaces, &world)?, &found.report);
    for path in signed {
        report.note(&printable(&format!(
            "{path} is signed and was left unchanged; apply the fix by hand, then run `rye sign`"
        )));
    }
    for message in unsafe_fixes {
        report
            .note(&printable(&format!("fix not applied, because it would add a diagnostic or remove none: {message}")));
    }
    if untried > 0 {
        report.note(&format!("fixes not tried: {untried}; run `rye check --fix` again"));
    }
    if files.is_empty() {
        report.note("no safe fixes available");
        return Ok(());
    }
    let rewrites: Vec<FileRewrite> =
        files.into_iter().map(|file| FileRewrite { path: file.path, before: file.before, after: file.after }).collect();
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
    report.note(&format!("repaired {}", crate::present::format_count(rewrites.len() as u64, "file")));
    // Some mistakes are found only after others are corrected.
    let world = spaces.open()?;
    let left = run_check(args, spaces, &world, check)?;
    if !repair(&world, &selection_of(args, spaces, &world)?, &left.report).files.is_empty() {
        report.note("more fixes are available now: run `rye check --fix` again");
    }
    Ok(())
}

/// Asks the user for confirmation, and returns true if the user confirms. Without a terminal, returns true: `--fix`
/// itself is the confirmation.
fn confirm_fixes() -> Result<bool, CommandError> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(true);
    }
    Ok(ask_yes_no("write these changes? [y/N] ")?)
}
