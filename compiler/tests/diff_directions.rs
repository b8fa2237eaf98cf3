//! Directions of `rye plan --diff` for edits whose direction is known: a seeded list of narrowing and neutral edits of
//! several projects. None of them widens, at most five are unknown, and the reverse of a narrowing edit widens. A plain
//! test run compares every fourth edit; with `RYE_DIFFERENTIAL`, all of them (`just differential`).

#![allow(clippy::disallowed_methods, reason = "the environment selects the whole list, nothing else")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "diff_directions/edits.rs"]
mod edits;
#[path = "diff_directions/projects.rs"]
mod projects;
#[path = "differential/rng.rs"]
mod rng;

use edits::{ExpectedDirection, PlanEdit};
use projects::{EditedProject, library_of, small_library};
use rye_compiler::approvals::HeadlessPolicy;
use rye_compiler::compile::{Compilation, CompileRequest, compile};
use rye_compiler::report::diff::{DiffSide, PlanDiff, diff_trees};
use rye_compiler::report::render::diff::lines;
use rye_compiler::world::MapWorld;
use rye_grammar::ItemId;

/// A plain test run compares every n-th edit of the list, because each comparison compiles all plans that can be
/// started.
const SAMPLE: usize = 4;
/// Maximum number of harmless edits of the whole list whose direction may be unknown. A sample may have its share.
const MAX_UNKNOWN: usize = 5;
/// Minimum number of harmless edits in the list.
const MIN_EDITS: usize = 100;

fn compiled(world: &MapWorld<'_>, project: &EditedProject) -> Result<Compilation, Vec<String>> {
    let found = compile(world, &CompileRequest::new(ItemId::parse(project.directive).unwrap()));
    let errors: Vec<String> =
        found.diagnostics.iter().map(|one| format!("{}: {}", one.code(), one.message())).collect();
    let mut compilation = found.value.ok_or(errors)?;
    compilation.headless_policy = HeadlessPolicy::from_settings(world);
    Ok(compilation)
}

fn shown(found: &PlanDiff) -> String {
    lines(found).into_iter().map(|line| line.text).collect::<Vec<_>>().join("\n")
}

/// Returns the changes that have no source line, including the changes of directives that can be started.
fn unplaced(found: &PlanDiff) -> Vec<String> {
    let changes = found.changes.iter().map(|change| (change.what.clone(), &change.source));
    let hooks = found.hooks.iter().map(|hook| (hook.id.clone(), &hook.source));
    let limits = found.limits.iter().map(|limit| (limit.name.clone(), &limit.source));
    let capabilities = found.capabilities.iter().map(|one| (one.what.clone(), &one.source));
    let parts = found.parts.iter().map(|part| (part.id.clone(), &part.source));
    let all = changes.chain(hooks).chain(limits).chain(capabilities).chain(parts);
    let is_placed = |source: &Option<_>| {
        let source: &Option<rye_compiler::plan::source::SourceReport> = source;
        source.as_ref().is_some_and(|source| !source.file.is_empty() && source.line > 0)
    };
    let own = all.filter(|(_, source)| !is_placed(source)).map(|(what, _)| what);
    own.chain(found.starts.iter().flat_map(unplaced)).collect()
}

fn has_changes(found: &PlanDiff) -> bool {
    let own = [found.changes.len(), found.hooks.len(), found.limits.len(), found.capabilities.len(), found.parts.len()];
    own.iter().any(|count| *count > 0) || found.starts.iter().any(has_changes)
}

/// Returns true if a change, here or in a directive that can be started, is a widening and not only unknown.
fn is_widening(found: &PlanDiff) -> bool {
    use rye_compiler::report::diff::Direction::Widened;
    found.changes.iter().any(|one| one.direction == Widened)
        || found.hooks.iter().any(|one| one.direction == Widened)
        || found.capabilities.iter().any(|one| one.direction == Widened)
        || found.limits.iter().any(|one| one.raised)
        || found.starts.iter().any(is_widening)
}

#[test]
fn harmless_edits_do_not_widen_and_their_reverse_does() {
    let (small, whole) = (small_library(), library_of(|_| true));
    let sample = if std::env::var("RYE_DIFFERENTIAL").is_ok() { 1 } else { SAMPLE };
    let (mut listed, mut edited, mut unknown, mut wrong) = (0, 0, Vec::new(), Vec::new());
    for project in projects::all() {
        let library = if project.directive == "root" { &small } else { &whole };
        let old = project.world(library, &[]);
        let before = compiled(&old, &project).unwrap();
        for edit in edits::of_project(&project) {
            listed += 1;
            if listed % sample != 0 {
                continue;
            }
            let name = format!("{}: {}", project.name, edit.name());
            let (based, new) = (project.world(library, &edit.base), project.world(library, &edit.changes));
            let after = match compiled(&new, &project) {
                Ok(after) => after,
                Err(errors) => {
                    wrong.push(format!("{name}: no plan\n{}", errors.join("\n")));
                    continue;
                }
            };
            let other = (!edit.base.is_empty()).then(|| compiled(&based, &project).unwrap());
            let before = other.as_ref().unwrap_or(&before);
            let (was, is) =
                (DiffSide { world: &based, compilation: before }, DiffSide { world: &new, compilation: &after });
            let found = diff_trees(Some(was), Some(is)).unwrap();
            let undone = diff_trees(Some(is), Some(was)).unwrap();
            edited += 1;
            if is_widening(&found) {
                wrong.push(format!("{name}: widened\n{}", shown(&found)));
            } else if found.widened {
                unknown.push(format!("{name}\n{}", shown(&found)));
            }
            wrong.extend(claims(&name, &edit, &found, &undone));
        }
    }
    println!("{edited} edits, unknown:\n{}", unknown.join("\n"));
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
    assert!(listed >= MIN_EDITS && edited >= MIN_EDITS / sample, "{edited} of {listed} edits");
    let most = (MAX_UNKNOWN * edited).div_ceil(listed);
    assert!(unknown.len() <= most, "{} unknown of {edited}\n{}", unknown.len(), unknown.join("\n"));
}

/// Checks the comparison in both directions; returns the wrong claims.
fn claims(name: &str, edit: &PlanEdit, found: &PlanDiff, undone: &PlanDiff) -> Vec<String> {
    let mut wrong = Vec::new();
    match edit.truth {
        // The worst defect: a change that widens, reported as harmless.
        ExpectedDirection::Narrower if !undone.widened => {
            wrong.push(format!("{name}: the reverse edit widens, and is not reported\n{}", shown(undone)));
        }
        ExpectedDirection::Neutral if is_widening(undone) => {
            wrong.push(format!("{name}: the reverse edit is neutral\n{}", shown(undone)));
        }
        ExpectedDirection::Narrower | ExpectedDirection::Neutral => {}
    }
    for diff in [found, undone] {
        if diff.before != diff.after && !has_changes(diff) {
            wrong.push(format!("{name}: the ids differ, and nothing is named"));
        }
        let places = unplaced(diff);
        if !places.is_empty() {
            wrong.push(format!("{name}: without a place: {}\n{}", places.join(", "), shown(diff)));
        }
    }
    wrong
}
