//! Fixes of slips: in valid projects, one word of a closed vocabulary gets a typo. The repair restores the text or
//! changes nothing, adds no diagnostic, and finds nothing more to do in its own result.

#![allow(clippy::disallowed_methods, reason = "the environment selects the number of slips, nothing else")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "diff_directions/projects.rs"]
mod projects;
#[path = "differential/rng.rs"]
mod rng;

use std::collections::{BTreeMap, BTreeSet};

use projects::EditedProject;
use rng::Rng;
use rye_compiler::edit::repair;
use rye_compiler::validate::{CheckReport, Selection, check};

/// Maximum number of slips that the test tries.
const SLIPS: usize = 200;
/// Number of slips that a fix has to repair. The test stops when it reaches this number.
const MIN_REPAIRED: usize = 60;
/// Divisor of `MIN_REPAIRED` in a plain test run. With `RYE_DIFFERENTIAL`, the whole number applies
/// (`just differential`).
const SAMPLE: usize = 4;

/// Words of the closed vocabularies: elements, attributes, keys, events, actions, facts and limits.
const WORDS: &[&str] = &[
    "metadata",
    "description",
    "limits",
    "context",
    "system",
    "before",
    "after",
    "permissions",
    "execute",
    "fetch",
    "knowledge",
    "acknowledge",
    "hooks",
    "hook",
    "when",
    "block",
    "inputs",
    "input",
    "outputs",
    "output",
    "model",
    "tier",
    "fallback",
    "provider",
    "turns",
    "tokens",
    "spend",
    "spawns",
    "depth",
    "duration_seconds",
    "write",
    "type",
    "enum",
    "default",
    "required",
    "event",
    "reason",
    "version",
    "extends",
    "condition",
    "action",
    "enabled",
    "raise",
    "value",
    "retry",
    "delay_ms",
    "item_type",
    "item_id",
    "modify",
    "content",
    "follow_up",
    "kind",
    "command",
    "timeout_seconds",
    "environment",
    "needs",
    "parameters",
    "max_retries",
    "concurrency",
    "max_concurrent_children",
    "tool_result",
    "max_bytes",
    "approvals",
    "headless",
    "signing",
    "require",
    "tool_call",
    "after_step",
    "limit",
    "error",
    "after_complete",
    "agent_end",
    "limit_code",
    "attempt",
    "cost",
    "escalate",
    "terminate",
];

/// Returns the byte ranges of the vocabulary's words in a text.
fn words(text: &str) -> Vec<(usize, usize)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match (start, is_part(c)) {
            (None, true) => start = Some(at),
            (Some(from), false) => {
                if WORDS.contains(&&text[from..at]) {
                    found.push((from, at));
                }
                start = None;
            }
            _ => {}
        }
    }
    found
}

/// Drops, doubles, swaps or replaces a letter after the first letter.
fn typo(word: &str, rng: &mut Rng) -> String {
    let mut letters: Vec<char> = word.chars().collect();
    let at = 1 + rng.below(letters.len() - 1);
    match rng.below(4) {
        0 => drop(letters.remove(at)),
        1 => letters.insert(at, letters[at]),
        2 => letters.swap(at - 1, at),
        _ => letters[at] = 'x',
    }
    letters.into_iter().collect()
}

/// Returns the text with a typo in a word. If the word is the name of an element, its end tag gets the same typo.
fn with_slip(text: &str, (from, to): (usize, usize), rng: &mut Rng) -> Option<String> {
    let word = &text[from..to];
    let wrong = typo(word, rng);
    if wrong == word {
        return None;
    }
    let mut slipped = text.to_owned();
    if text[..from].ends_with("</") {
        return None;
    }
    let close = format!("</{word}>");
    if text[..from].ends_with('<')
        && let Some(at) = text[to..].find(&close)
        && !text[to..].split('>').next().unwrap().ends_with('/')
    {
        slipped.replace_range(to + at + 2..to + at + 2 + word.len(), &wrong);
    }
    slipped.replace_range(from..to, &wrong);
    Some(slipped)
}

fn diagnostics(report: &CheckReport) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for one in report.diagnostics.iter() {
        *found.entry(format!("{}: {}", one.code(), one.message())).or_default() += 1;
    }
    found
}

#[test]
fn repairs_restore_the_text_or_change_nothing() {
    let (library, rng) = (projects::small_library(), &mut Rng::new(60));
    let project: EditedProject = projects::guarded();
    let files: Vec<(&String, &String)> = project.files.iter().collect();
    let (mut slips, mut repaired, mut wrong, mut roles) = (0, 0, Vec::new(), BTreeSet::new());
    let clean = diagnostics(&check(&project.world(&library, &[]), &Selection::All));
    assert!(!clean.keys().any(|one| one.contains("unknown")), "{clean:?}");
    let sample = if std::env::var("RYE_DIFFERENTIAL").is_ok() { 1 } else { SAMPLE };
    while slips < SLIPS && repaired < MIN_REPAIRED / sample {
        let (path, text) = files[rng.below(files.len())];
        let all = words(text);
        if all.is_empty() {
            continue;
        }
        let at = all[rng.below(all.len())];
        let Some(slipped) = with_slip(text, at, rng) else { continue };
        slips += 1;
        let line = text[..at.0].matches('\n').count() + 1;
        let name = format!("{path}:{line} `{}`", &text[at.0..at.1]);
        let world = project.world(&library, &[(path.clone(), slipped.clone())]);
        let found = check(&world, &Selection::All);
        let repairs = repair(&world, &Selection::All, &found);
        if repairs.files.is_empty() {
            continue;
        }
        repaired += 1;
        roles.insert(text[at.0..at.1].to_owned());
        for file in &repairs.files {
            if file.path != *path || file.before != slipped || file.after != *text {
                wrong.push(format!("{name}: the repair is not the original text of {}\n{}", file.path, file.after));
            }
        }
        let changes: Vec<_> = repairs.files.iter().map(|file| (file.path.clone(), file.after.clone())).collect();
        let world = project.world(&library, &changes);
        let after = check(&world, &Selection::All);
        let had = diagnostics(&found);
        let new: Vec<_> =
            diagnostics(&after).into_iter().filter(|(one, n)| had.get(one).is_none_or(|m| m < n)).collect();
        if !new.is_empty() {
            wrong.push(format!("{name}: new diagnostics: {new:?}"));
        }
        if diagnostics(&after) != clean {
            wrong.push(format!("{name}: the project is not as before: {:?}", diagnostics(&after)));
        }
        let again = repair(&world, &Selection::All, &after);
        if !again.files.is_empty() {
            wrong.push(format!("{name}: a second repair changes {:?}", again.files));
        }
    }
    println!("{repaired} of {slips} repaired, {} words; {clean:?}", roles.len());
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
    assert!(repaired >= MIN_REPAIRED / sample, "{repaired} of {slips} repaired");
}

/// A fix that reveals another diagnostic is left out, and the other fixes stay.
#[test]
fn fix_that_adds_a_diagnostic_is_left_out() {
    let library = projects::small_library();
    let text = "# One\n\n```xml\n<directive name=\"two\" version=\"1.0.0\">\n<metadata>\n<description>d</description>\n\
        <limits turns=\"3\" trns=\"4\"/>\n</metadata>\n</directive>\n```\n\nDo it.\n";
    let mut project = projects::guarded();
    project.files.insert(".ai/directives/one.md".into(), text.into());
    let world = project.world(&library, &[]);
    let repairs = repair(&world, &Selection::All, &check(&world, &Selection::All));
    let [file] = repairs.files.as_slice() else { panic!("{repairs:?}") };
    assert_eq!(file.after, text.replace("name=\"two\"", "name=\"one\""));
    assert_eq!(repairs.unsafe_fixes.len(), 1, "{repairs:?}");
    assert!(repairs.unsafe_fixes[0].contains("trns"), "{repairs:?}");
}
