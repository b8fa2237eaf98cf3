//! The checks of a project that are not part of its plans: the settings of `assertions.yaml` and `check.yaml`. A change
//! of such a setting changes no plan. A comparison and the lock file list the change nevertheless, because a weaker
//! check can let a later change pass.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rye_grammar::data::Node;
use rye_grammar::{ItemId, Span};
use serde_json::{Map, Value};

use crate::assertion_file::ASSERTIONS_ID;
use crate::item::Items;
use crate::report::diff::Direction;
use crate::severity_overrides::{CHECK_CONFIG_ID, LEVEL_WORDS};
use crate::world::Space;

/// The checks of a project by name: `assertion ID`, `lethal_trifecta`, `declassifying ID`, `level CODE` and
/// `deny_warnings`. Each check has its value and its place.
pub(crate) type ProjectChecks = BTreeMap<String, (Value, Span)>;

/// A check that differs between two projects.
pub(crate) struct ChangedCheck {
    pub what: String,
    pub direction: Direction,
    pub name: String,
}

/// Reads the checks in the settings of the project. The settings of a user are left out, because they differ between
/// machines. An invalid value may be missing, because `rye check` reports it.
pub(crate) fn read_checks(items: &Items<'_>) -> ProjectChecks {
    let mut checks = ProjectChecks::new();
    let own = |id: &str| {
        let layers = items.config_layers(&ItemId::parse(id).ok()?);
        layers.iter().find(|(space, _)| *space == Space::Project).map(|(_, file)| Arc::clone(file))
    };
    if let Some(file) = own(ASSERTIONS_ID) {
        for assertion in file.get("assertions").map(Node::items).unwrap_or_default() {
            if let Some(id) = assertion.get("id").and_then(Node::as_str) {
                checks.insert(format!("assertion {id}"), (assertion_value(assertion), assertion.span));
            }
        }
        if let Some(level) = file.get("lethal_trifecta") {
            checks.insert("lethal_trifecta".to_owned(), (level.to_value(), level.span));
        }
        for id in file.get("declassifying").map(Node::items).unwrap_or_default() {
            if let Some(name) = id.as_str() {
                checks.insert(format!("declassifying {name}"), (Value::Bool(true), id.span));
            }
        }
    }
    if let Some(file) = own(CHECK_CONFIG_ID) {
        for level in file.get("levels").map(Node::entries).unwrap_or_default() {
            let code = level.key.node.trim().trim_start_matches("rye::").replace('/', "::");
            checks.insert(format!("level {code}"), (level.value.to_value(), level.value.span));
        }
        if let Some(deny) = file.get("deny_warnings") {
            checks.insert("deny_warnings".to_owned(), (deny.to_value(), deny.span));
        }
    }
    checks
}

/// Returns the parts of an assertion that decide its result, always with a severity: `error` if the assertion sets
/// none.
fn assertion_value(assertion: &Node) -> Value {
    let parts = ["always", "never", "for"].into_iter();
    let mut value: Map<String, Value> =
        parts.filter_map(|key| Some((key.to_owned(), assertion.get(key)?.to_value()))).collect();
    let severity = assertion.get("severity").map_or_else(|| Value::from("error"), Node::to_value);
    value.insert("severity".to_owned(), severity);
    Value::Object(value)
}

/// Compares the checks of two projects. The removal or weakening of a check counts as `Direction::Widened`, because the
/// check then refuses fewer changes. If an assertion has another condition, the direction is unknown.
pub(crate) fn compare_checks(before: &ProjectChecks, after: &ProjectChecks) -> Vec<ChangedCheck> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed = |name: &String| {
        let side = |checks: &ProjectChecks| checks.get(name).map(|(value, _)| value.clone());
        let (was, is) = (side(before), side(after));
        let (direction, how) = if was == is { None } else { compare_check(name, was.as_ref(), is.as_ref()) }?;
        Some(ChangedCheck { what: format!("{} {how}", quote_name(name)), direction, name: name.clone() })
    };
    names.into_iter().filter_map(changed).collect()
}

/// Formats the name of a check, with its id in backticks: ``assertion `a` ``.
fn quote_name(name: &str) -> String {
    match name.split_once(' ') {
        Some((kind, id)) => format!("{kind} `{id}`"),
        None => format!("`{name}`"),
    }
}

/// Returns the direction and the description of the change of a check; `None` if the check has the same effect.
fn compare_check(name: &str, was: Option<&Value>, is: Option<&Value>) -> Option<(Direction, String)> {
    let shown = |value: Option<&Value>, default: &str| {
        value
            .map_or_else(|| default.to_owned(), |value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    match name.split(' ').next().unwrap_or_default() {
        "assertion" => match (was, is) {
            (Some(was), Some(is)) => Some(compare_assertion(was, is)),
            (Some(_), None) => Some((Direction::Widened, "removed".to_owned())),
            (None, _) => Some((Direction::Narrowed, "added".to_owned())),
        },
        "declassifying" if is.is_some() => Some((Direction::Widened, "added".to_owned())),
        "declassifying" => Some((Direction::Narrowed, "removed".to_owned())),
        "lethal_trifecta" => {
            let (was, is) = (shown(was, "warning"), shown(is, "warning"));
            let rank = |word: &str| ["off", "warning", "error"].iter().position(|known| *known == word);
            change_of_rank(rank(&was), rank(&is)).map(|direction| (direction, format!("{was} → {is}")))
        }
        "deny_warnings" => {
            let (was, is) = (shown(was, "false"), shown(is, "false"));
            let rank = |word: &str| ["false", "true"].iter().position(|known| *known == word);
            change_of_rank(rank(&was), rank(&is)).map(|direction| (direction, format!("{was} → {is}")))
        }
        _ => {
            let rank = |value: Option<&Value>| {
                let word = value?.as_str()?;
                LEVEL_WORDS.iter().rev().position(|known| *known == word)
            };
            let most = LEVEL_WORDS.len() - 1;
            let direction = match (rank(was), rank(is)) {
                (Some(was), Some(is)) => change_of_rank(Some(was), Some(is))?,
                // Without a level, a diagnostic has its own severity, which is below or equal to `error`.
                (Some(was), None) if was == most => Direction::Widened,
                (None, Some(is)) if is == most => Direction::Narrowed,
                (Some(0), None) => Direction::Narrowed,
                (None, Some(0)) => Direction::Widened,
                (Some(_) | None, _) => Direction::Unknown,
            };
            Some((direction, format!("{} → {}", shown(was, "its own severity"), shown(is, "its own severity"))))
        }
    }
}

/// Returns the direction of a change from one strictness to another; `None` if both are equal. If `was` or `is` is
/// `None` (an unknown word), the direction is unknown.
fn change_of_rank(was: Option<usize>, is: Option<usize>) -> Option<Direction> {
    match (was, is) {
        (Some(was), Some(is)) if was == is => None,
        (Some(was), Some(is)) => Some(if is < was { Direction::Widened } else { Direction::Narrowed }),
        (Some(_) | None, _) => Some(Direction::Unknown),
    }
}

fn compare_assertion(was: &Value, is: &Value) -> (Direction, String) {
    let mut found: Vec<(Direction, String)> = Vec::new();
    if (was.get("always"), was.get("never")) != (is.get("always"), is.get("never")) {
        found.push((Direction::Unknown, "has another condition".to_owned()));
    }
    match (was.get("for"), is.get("for")) {
        (was, is) if was == is => {}
        (None, _) => found.push((Direction::Widened, "applies only where its `for` holds".to_owned())),
        (_, None) => found.push((Direction::Narrowed, "applies to all directives".to_owned())),
        (Some(_), Some(_)) => found.push((Direction::Unknown, "has another `for`".to_owned())),
    }
    let severity = |value: &Value| value.get("severity").and_then(Value::as_str).unwrap_or_default().to_owned();
    let (before, after) = (severity(was), severity(is));
    let rank = |word: &str| ["warning", "error"].iter().position(|known| *known == word);
    if let Some(direction) = change_of_rank(rank(&before), rank(&after)) {
        found.push((direction, format!("has the severity {before} → {after}")));
    }
    let direction = found.iter().map(|(direction, _)| *direction).max().unwrap_or(Direction::Neutral);
    (direction, found.into_iter().map(|(_, how)| how).collect::<Vec<_>>().join(", and "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::compile::tests::world::{minimal_world, with_directives};
    use crate::compile::{CompileRequest, compile};
    use crate::report::diff::{ChangeArea, DiffSide, diff_trees};

    const ASSERTIONS: &str = "assertions:\n  - { id: a, always: 'spends_at_most(\"1\")' }\n";

    /// Returns the changes of the checks between two projects that differ in their settings only.
    fn changes(before: [&str; 2], after: [&str; 2]) -> Vec<(Direction, String)> {
        let world = |[assertions, check]: [&str; 2]| {
            with_directives(minimal_world(), &[("leaf", "", "<metadata><permissions/></metadata>", "Do it.")])
                .project(".ai/config/agent/assertions.yaml", assertions)
                .project(".ai/config/check.yaml", check)
        };
        let (old, new) = (world(before), world(after));
        let request = CompileRequest::new(ItemId::parse("leaf").unwrap());
        let (was, is) = (compile(&old, &request).value.unwrap(), compile(&new, &request).value.unwrap());
        assert_eq!(was.plan_id, is.plan_id);
        let sides = [DiffSide { world: &old, compilation: &was }, DiffSide { world: &new, compilation: &is }];
        let found = diff_trees(Some(sides[0]), Some(sides[1])).unwrap();
        let checks: Vec<_> = found.changes.into_iter().filter(|change| change.area == ChangeArea::Check).collect();
        assert_eq!(found.widened, checks.iter().any(|change| change.direction.may_widen()));
        assert!(checks.iter().all(|change| change.source.is_some()), "{checks:?}");
        checks.into_iter().map(|change| (change.direction, change.what)).collect()
    }

    #[test]
    fn removed_or_weakened_check_widens_and_its_reverse_narrows() {
        let narrower = "assertions:\n  - { id: a, always: 'spends_at_most(\"1\")', for: 'directive == \"leaf\"' }\n";
        let softer = "assertions:\n  - { id: a, always: 'spends_at_most(\"1\")', severity: warning }\n";
        for (before, after, what) in [
            ([ASSERTIONS, ""], ["", ""], "assertion `a` removed"),
            ([ASSERTIONS, ""], [softer, ""], "assertion `a` has the severity error → warning"),
            ([ASSERTIONS, ""], [narrower, ""], "assertion `a` applies only where its `for` holds"),
            (["lethal_trifecta: error\n", ""], ["lethal_trifecta: off\n", ""], "`lethal_trifecta` error → off"),
            (["", ""], ["lethal_trifecta: off\n", ""], "`lethal_trifecta` warning → off"),
            (["", ""], ["declassifying: [leaf]\n", ""], "declassifying `leaf` added"),
            (["", "deny_warnings: true\n"], ["", ""], "`deny_warnings` true → false"),
            (
                ["", "levels: { hook::never: error }\n"],
                ["", "levels: { rye::hook/never: allow }\n"],
                "level `hook::never` error → allow",
            ),
            (["", "levels: { hook::never: error }\n"], ["", ""], "level `hook::never` error → its own severity"),
        ] {
            assert_eq!(changes(before, after), [(Direction::Widened, what.to_owned())], "{before:?} {after:?}");
            let back = changes(after, before);
            assert_eq!(back.len(), 1, "{back:?}");
            assert!(back.iter().all(|(direction, _)| *direction == Direction::Narrowed), "{back:?}");
        }
    }

    #[test]
    fn other_condition_has_an_unknown_direction_and_another_description_no_change() {
        let other = ASSERTIONS.replace("\"1\"", "\"2\"");
        let expected = (Direction::Unknown, "assertion `a` has another condition".to_owned());
        assert_eq!(changes([ASSERTIONS, ""], [&other, ""]), [expected]);
        let described = ASSERTIONS.replace("id: a", "id: a, description: Cheap.");
        assert_eq!(changes([ASSERTIONS, ""], [&described, ""]), []);
        assert_eq!(changes(["lethal_trifecta: warning\n", "deny_warnings: false\n"], ["", ""]), []);
    }
}
