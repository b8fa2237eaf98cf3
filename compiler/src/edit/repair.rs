//! Repairs of a project: applies the fixes of a check and checks the project again, so that no repair adds a
//! diagnostic.

use std::collections::BTreeMap;

use rye_grammar::{SourceId, signature};

use super::{Edit, apply, fix, old_word_edits};
use crate::diagnostics::Diagnostic;
use crate::validate::{CheckReport, Selection, check};
use crate::world::{MapWorld, Space, World};

/// Maximum number of fixes that are tried one by one. Fixes are tried one by one only if all fixes together add a
/// diagnostic or remove none. Each trial is a check of the project.
const MAX_TRIALS: usize = 100;

/// A file of the project and its repaired text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Path relative to the project.
    pub path: String,
    pub before: String,
    pub after: String,
}

/// The repaired files of a project, and the fixes that were not applied.
#[derive(Debug, Default)]
pub struct Repairs {
    pub files: Vec<Repair>,
    /// Messages of the diagnostics whose fix was not applied, because it would add another diagnostic or remove none.
    pub unsafe_fixes: Vec<String>,
    /// Number of fixes that were not tried, because the project has too many fixes.
    pub untried: usize,
    /// Signed files that have fixes. Signed files stay unchanged, because a change would invalidate the signature.
    pub signed: Vec<String>,
}

/// A fix of a diagnostic, or a replacement of outdated words, in one file.
#[derive(Clone)]
struct Candidate {
    source: SourceId,
    edits: Vec<Edit>,
    /// The message of the diagnostic; `None` for the replacement of an outdated word, which has no diagnostic.
    message: Option<String>,
}

/// Returns the repairs of a checked project. Fixes are used only if they remove at least one diagnostic and add none.
/// Replacements of outdated words are used if they add no diagnostic.
pub fn repair(world: &dyn World, selection: &Selection, found: &CheckReport) -> Repairs {
    repair_within(world, selection, found, MAX_TRIALS)
}

fn repair_within(world: &dyn World, selection: &Selection, found: &CheckReport, max_trials: usize) -> Repairs {
    let mut repairs = Repairs::default();
    let mut candidates = candidates(found);
    candidates.retain(|one| {
        let Some(source) = found.sources.get(one.source) else { return false };
        let is_signed = signature::parse(one.source, &source.text).is_some();
        if is_signed && !repairs.signed.iter().any(|path| **path == *source.path) {
            repairs.signed.push(source.path.to_string());
        }
        !is_signed
    });
    let trial = |used: &[Candidate]| {
        let mut repaired = MapWorld::with_fallback(world);
        for file in repaired_files(found, used) {
            repaired.insert(Space::Project, &file.path, file.after);
        }
        diagnostics_by_identity(&check(&repaired, selection))
    };
    let mut used: Vec<Candidate> = Vec::new();
    if !candidates.is_empty() {
        // The caller may have added diagnostics of its own, so the diagnostics before the repair are computed here.
        let mut current = trial(&[]);
        let all = trial(&candidates);
        if is_better(&current, &all, &candidates) {
            used = candidates;
        } else {
            repairs.untried = candidates.len().saturating_sub(max_trials);
            for one in candidates.into_iter().take(max_trials) {
                used.push(one);
                let after = trial(&used);
                if is_better(&current, &after, used.get(used.len() - 1..).unwrap_or_default()) {
                    current = after;
                } else {
                    repairs.unsafe_fixes.extend(used.pop().and_then(|one| one.message));
                }
            }
        }
    }
    repairs.files = repaired_files(found, &used);
    repairs
}

/// Lists the fixes of the project's own files. A file without diagnostics can still have edits that replace old words.
fn candidates(found: &CheckReport) -> Vec<Candidate> {
    let is_own = |source: SourceId| found.sources.get(source).is_some_and(|source| source.path.starts_with(".ai/"));
    let mut candidates: Vec<Candidate> = Vec::new();
    for diagnostic in found.diagnostics.iter() {
        let Some(fix) = fix(diagnostic, &found.sources).filter(|fix| is_own(fix.source)) else { continue };
        let is_known = candidates.iter().any(|one| one.source == fix.source && one.edits == fix.edits);
        if !is_known {
            candidates.push(Candidate { source: fix.source, edits: fix.edits, message: Some(diagnostic.message()) });
        }
    }
    // In a file with diagnostics, an outdated word may mean something other than its replacement, so these files keep
    // their outdated words.
    let reported: Vec<SourceId> =
        found.diagnostics.iter().filter_map(|one| Some(one.labels().first()?.span.source)).collect();
    for (source, file) in found.sources.iter() {
        if file.path.starts_with(".ai/directives/") && !reported.contains(&source) {
            let edits = old_word_edits(&file.text);
            if !edits.is_empty() {
                candidates.push(Candidate { source, edits, message: None });
            }
        }
    }
    candidates
}

fn repaired_files(found: &CheckReport, used: &[Candidate]) -> Vec<Repair> {
    let mut edits: BTreeMap<SourceId, Vec<Edit>> = BTreeMap::new();
    for one in used {
        edits.entry(one.source).or_default().extend(one.edits.iter().cloned());
    }
    let file = |(source, edits): (SourceId, Vec<Edit>)| {
        let source = found.sources.get(source)?;
        let after = apply(&source.text, &edits);
        Some(Repair { path: source.path.to_string(), before: source.text.to_string(), after })
    };
    edits.into_iter().filter_map(file).collect()
}

/// The number of diagnostics for each code, file and message. Positions are ignored, because fixes move lines.
type Identities = BTreeMap<(&'static str, String, String), usize>;

fn diagnostics_by_identity(report: &CheckReport) -> Identities {
    let mut found = Identities::new();
    for one in report.diagnostics.iter() {
        let file = |one: &Diagnostic| {
            let span = one.labels().first()?.span;
            Some(report.sources.get(span.source)?.path.to_string())
        };
        *found.entry((one.code(), file(one).unwrap_or_default(), one.message())).or_default() += 1;
    }
    found
}

/// Returns true if the fixes in `used` add no diagnostic and remove at least one. If `used` contains only replacements
/// of outdated words, no diagnostic needs to be removed.
fn is_better(before: &Identities, after: &Identities, used: &[Candidate]) -> bool {
    let has_new = after.iter().any(|(identity, count)| before.get(identity).is_none_or(|was| was < count));
    let total = |all: &Identities| all.values().sum::<usize>();
    let fixes = used.iter().filter(|one| one.message.is_some()).count();
    !has_new && (fixes == 0 || total(after) < total(before))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Returns a directive with this `<limits>` element.
    fn directive(name: &str, limits: &str) -> String {
        format!(
            "```xml\n<directive name=\"{name}\" version=\"1.0.0\"><metadata><description>d</description>\
             <model provider=\"scripted\" tier=\"fast\"/>{limits}</metadata></directive>\n```\n\nDo it.\n"
        )
    }

    #[test]
    fn fixes_beyond_the_maximum_number_of_trials_are_counted() {
        let mut world = crate::compile::tests::world::stdlib_world();
        // The fix of the last directive would repeat a limit, so that all fixes together cannot be applied.
        for (name, limits) in
            [("a", "<limits trns=\"4\"/>"), ("b", "<limits trns=\"4\"/>"), ("c", "<limits turns=\"5\" trns=\"4\"/>")]
        {
            world.insert(Space::Project, &format!(".ai/directives/{name}.md"), directive(name, limits));
        }
        let found = check(&world, &Selection::All);
        let all = repair_within(&world, &Selection::All, &found, 10);
        assert_eq!((all.files.len(), all.unsafe_fixes.len(), all.untried), (2, 1, 0), "{all:?}");
        let first = repair_within(&world, &Selection::All, &found, 1);
        assert_eq!((first.files.len(), first.unsafe_fixes.len(), first.untried), (1, 0, 2), "{first:?}");
        assert_eq!(first.files.first().unwrap().path, ".ai/directives/a.md");
    }
}
