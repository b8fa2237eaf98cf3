//! Reports suppressions that remove nothing in any directive of the project.

use std::collections::BTreeMap;

use rye_grammar::Span;

use crate::compose::Composed;
use crate::diagnostics::{ContextError, Diagnostics, closest};
use crate::item::Items;
use crate::semantics::hook_point::{self, Mode};
use crate::world::{ItemKind, Space};

use super::incremental::Merge;

/// For each `<suppress>` of the project, by its span: the id in the `<suppress>`, and true if the `<suppress>` removed
/// an item or a hook in any directive.
#[derive(Default)]
pub struct SuppressionUses {
    uses: BTreeMap<Span, (String, bool)>,
}

impl SuppressionUses {
    pub fn add(&mut self, composed: &Composed) {
        let of_project: Vec<Span> = composed
            .chain
            .iter()
            .filter(|d| d.file.space == Space::Project)
            .flat_map(|d| d.context.suppress.iter().map(|s| s.span))
            .collect();
        for suppression in &composed.suppressions {
            let Some(span) = suppression.origin.span.filter(|s| of_project.contains(s)) else { continue };
            let (_, removes) = self.uses.entry(span).or_insert_with(|| (suppression.id.clone(), false));
            *removes |= !suppression.removed.is_empty() || is_session_layer(&suppression.id);
        }
    }

    pub fn report_unused(self, items: &Items<'_>, found: &mut Diagnostics) {
        for (span, (id, removes)) in self.uses {
            if removes {
                continue;
            }
            if let Some(name) = id.strip_prefix("skill/") {
                found.extend(misspelled_skill(items, name, span));
                continue;
            }
            let files = items.hook_files();
            let hooks = || [&files.user, &files.builtin, &files.project, &files.infra].into_iter().flatten();
            let guards =
                hooks().filter(|hook| hook.id.node == id).map(|hook| (hook.id.span, hook_point::row_of(hook.event)));
            let guard =
                { guards }.find(|(_, point)| point.mode != Mode::Collect).map(|(span, point)| (span, point.name));
            let hook_ids = hooks().map(|h| h.id.node.as_str());
            let suggestion = closest(&id, hook_ids).or_else(|| items.nearest(ItemKind::Knowledge, &id));
            found.push(ContextError::SuppressesNothing { id, span, suggestion, guard });
        }
    }
}

impl Merge for SuppressionUses {
    fn merge(&mut self, other: &Self) {
        for (span, (id, removes)) in &other.uses {
            self.uses.entry(*span).or_insert_with(|| (id.clone(), false)).1 |= removes;
        }
    }
}

/// Returns the error for the suppression of a skill that does not exist. `None` if no skill has a similar name: the
/// skill may then exist for another user.
fn misspelled_skill(items: &Items<'_>, name: &str, span: Span) -> Option<ContextError> {
    let skills = items.list(ItemKind::Skill);
    let names = || skills.iter().map(|entry| entry.id.as_str());
    let near = closest(name, names()).filter(|_| names().all(|known| known != name))?;
    let (id, suggestion) = (format!("skill/{name}"), Some(format!("skill/{near}")));
    Some(ContextError::SuppressesNothing { id, span, suggestion, guard: None })
}

/// Returns true for the id of a layer that is not an item: the guidance for tools, a context file, or the list of
/// skills. A suppression of such a layer is never reported as useless.
fn is_session_layer(id: &str) -> bool {
    matches!(id, "tools" | "skills") || id.starts_with("context/")
}
