//! Checks of assertions that `rye check` can make without the list of possible threads. An assertion that can never
//! fail is reported: its `for` selects no directive, or its condition holds for all results of its functions. Names of
//! items and hooks that do not exist are reported too.

use std::collections::BTreeSet;

use rye_grammar::{ItemId, Span};

use super::user_written_ids;
use crate::assertion_file::{Assertion, AssertionFunction, Assertions};
use crate::diagnostics::{ConfigError, Diagnostics, ItemError, closest};
use crate::item::Items;
use crate::world::ItemKind;

/// Maximum number of different functions in an assertion that is checked for being always true. The check tries all
/// combinations of the results of these functions.
const MAX_FUNCTIONS: usize = 8;

pub fn check(items: &Items<'_>, assertions: &Assertions, found: &mut Diagnostics) {
    for named in &assertions.declassifying {
        if !ItemId::parse(&named.node).is_ok_and(|id| items.exists(ItemKind::Directive, &id)) {
            found.push(ItemError::Unknown {
                kind: ItemKind::Directive,
                id: named.node.clone(),
                span: Some(named.span),
                suggestion: items.nearest(ItemKind::Directive, &named.node),
            });
        }
    }
    if assertions.list.is_empty() {
        return;
    }
    let directives = user_written_ids(items, ItemKind::Directive);
    let mut hooks = None;
    for assertion in &assertions.list {
        let selected: Vec<&ItemId> = directives.iter().filter(|id| assertion.applies_to(id)).collect();
        let report = |why: String, span: Span, found: &mut Diagnostics| {
            found.push(ConfigError::AssertsNothing { id: assertion.id.clone(), why, span });
        };
        if selected.is_empty() && !directives.is_empty() {
            report("`for` selects no directive".into(), assertion.only_span, found);
            continue;
        }
        for function in &assertion.functions {
            if let AssertionFunction::Survives(item) = function
                && !items.exists(ItemKind::Knowledge, item)
            {
                found.push(ItemError::Unknown {
                    kind: ItemKind::Knowledge,
                    id: item.to_string(),
                    span: Some(assertion.span),
                    suggestion: items.nearest(ItemKind::Knowledge, item.as_str()),
                });
            }
            let AssertionFunction::Passes(gate) = function else { continue };
            let hooks = hooks.get_or_insert_with(|| hook_ids(items));
            if gate != "ask" && !hooks.contains(gate) {
                let near = closest(gate, hooks.iter().map(String::as_str).chain(["ask"]));
                found.push(ConfigError::UnknownGate {
                    id: assertion.id.clone(),
                    hook: gate.clone(),
                    suggestion: near,
                    span: assertion.span,
                });
            }
        }
        if !selected.is_empty() && selected.iter().all(|id| always_holds(assertion, id)) {
            report("the assertion holds for every result of its functions".into(), assertion.span, found);
        }
    }
}

fn always_holds(assertion: &Assertion, directive: &ItemId) -> bool {
    // Equal functions have equal results, so only distinct functions vary.
    let mut distinct: Vec<&AssertionFunction> = Vec::new();
    for function in &assertion.functions {
        if !distinct.contains(&function) {
            distinct.push(function);
        }
    }
    let count = distinct.len();
    let number = |function: &AssertionFunction| distinct.iter().position(|one| *one == function).unwrap_or_default();
    count <= MAX_FUNCTIONS
        && (0..1_usize << count).all(|n| {
            let answers: Vec<bool> = assertion.functions.iter().map(|one| n >> number(one) & 1 == 1).collect();
            assertion.condition_holds(directive, &answers) != assertion.never
        })
}

/// Returns the ids of all hooks: of the hook files, and of every directive.
fn hook_ids(items: &Items<'_>) -> BTreeSet<String> {
    let files = items.hook_files();
    let of_files = [&files.user, &files.builtin, &files.project, &files.infra].into_iter().flatten();
    let mut ids: BTreeSet<String> = of_files.map(|hook| hook.id.node.clone()).collect();
    for entry in items.list(ItemKind::Directive).iter() {
        let Some(directive) = items.directive(&entry.id) else { continue };
        ids.extend(directive.hooks.iter().map(|hook| hook.id.node.clone()));
    }
    ids
}
