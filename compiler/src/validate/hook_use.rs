//! Hooks over all directives: conditions that are true or false whatever happens, and hooks nothing ever reaches.

use std::collections::BTreeMap;
use std::sync::Arc;

use rye_grammar::Span;

use crate::compose::Composed;
use crate::diagnostics::{Diagnostics, HookError};
use crate::hook::{HookSource, PlanVerdict};
use crate::item::{HookDecl, HookFiles, Items};
use crate::resolve::Known;
use crate::semantics::condition::Verdict;
use crate::semantics::hook_point::{self, Mode};
use crate::semantics::hook_table;
use crate::world::{ItemKind, Space};

/// By the span of the hook: the hook, and whether any directive could see it fire.
#[derive(Default)]
pub struct HookUses {
    uses: BTreeMap<Span, (Arc<HookDecl>, bool)>,
    shadowed: Vec<Span>,
    /// Some directive could not be composed, so nobody knows what would fire for it.
    incomplete: bool,
}

impl HookUses {
    pub fn add(&mut self, composed: &Composed) {
        for hook in &composed.hooks {
            if hook.decl.space != Space::Project || !hook.decl.enabled || hook.decl.compiled.is_none() {
                continue;
            }
            let (_, fires) = self.uses.entry(hook.decl.span).or_insert_with(|| (hook.decl.clone(), false));
            *fires |= !matches!(hook.verdict, PlanVerdict::Never { .. });
        }
    }

    pub fn incomplete(&mut self) {
        self.incomplete = true;
    }

    /// Routing hooks of the project behind one that always answers.
    pub fn shadowed(&mut self, files: &HookFiles, found: &mut Diagnostics) {
        let all: Vec<&Arc<HookDecl>> =
            [&files.user, &files.builtin, &files.project, &files.infra].into_iter().flatten().collect();
        let candidates: Vec<_> = all.iter().map(|h| h.candidate()).collect();
        let mut answers: Option<&Arc<HookDecl>> = None;
        for place in hook_table::order(&candidates) {
            let Some(hook) = all.get(place.index).filter(|_| place.removed.is_none()) else { continue };
            if hook_point::of(hook.event).mode != Mode::FirstMatch {
                continue;
            }
            match answers {
                Some(by) if hook.space == Space::Project => {
                    self.shadowed.push(hook.span);
                    found.push(HookError::Shadowed {
                        id: hook.id.node.clone(),
                        by: by.id.node.clone(),
                        span: hook.span,
                        by_span: by.span,
                    });
                }
                None if Known::nothing().verdict(hook) == Verdict::True => answers = Some(hook),
                Some(_) | None => {}
            }
        }
    }

    pub fn finish(mut self, items: &Items<'_>, found: &mut Diagnostics) {
        let files = items.hook_files();
        for hook in files.project.iter().chain(&files.infra) {
            if hook.space == Space::Project && hook.enabled && hook.compiled.is_some() {
                self.uses.entry(hook.span).or_insert_with(|| (hook.clone(), false));
            }
        }
        for (hook, fires) in self.uses.into_values() {
            let span = hook.condition.as_ref().map_or(hook.span, |c| c.span);
            let id = hook.id.node.clone();
            if has_unknown_facts(&hook) || self.shadowed.contains(&hook.span) {
                continue;
            }
            match Known::nothing().verdict(&hook) {
                Verdict::True => found.push(HookError::Always { id, span }),
                Verdict::False => {
                    let because = "its condition is false whatever the facts are".into();
                    found.push(HookError::Never { id, because, span });
                }
                Verdict::Unknown(_) if !fires && !self.incomplete && !fires_elsewhere(items, &hook) => {
                    let because = "its condition is false for every directive there is".into();
                    found.push(HookError::Never { id, because, span });
                }
                Verdict::Unknown(_) => {}
            }
        }
    }
}

/// Facts that do not exist make a condition false too, and have been reported already.
fn has_unknown_facts(hook: &HookDecl) -> bool {
    let point = hook_point::of(hook.event);
    let Some(condition) = &hook.condition else { return false };
    super::hook::paths(&condition.node).into_iter().any(|(path, _)| point.find(path) == hook_point::Found::Nothing)
}

/// A hook of a file serves the directives of the other spaces too.
fn fires_elsewhere(items: &Items<'_>, hook: &HookDecl) -> bool {
    if matches!(hook.source, HookSource::Directive { .. }) {
        return false;
    }
    let directives = items.list(ItemKind::Directive);
    let mut others = directives.iter().filter(|e| e.space != Space::Project);
    others.any(|e| Known::of_id(&e.id).verdict(hook) != Verdict::False)
}
