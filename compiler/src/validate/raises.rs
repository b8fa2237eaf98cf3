//! Reports hooks that raise a limit to a value that is not above the current value of the limit, or whose limit is at
//! the maximum of the project. The thread stops at the limit as if there were no hook (`language.md` 7).

use std::collections::BTreeMap;
use std::sync::Arc;

use rye_grammar::Span;
use serde_json::Value;

use super::incremental::Merge;
use super::unreachable_limits::{format_limit, project_ceiling};
use crate::compose::Composed;
use crate::diagnostics::{Diagnostics, HookError};
use crate::hook::HookAction;
use crate::item::{HookDecl, Items};
use crate::semantics::limits::{LimitName, LimitValue, Limits, parse_limit_value};
use crate::world::Space;

/// The project's hooks that raise a limit to a literal value, by their span.
#[derive(Default)]
pub struct RaiseUses {
    uses: BTreeMap<Span, RaiseUse>,
}

#[derive(Clone)]
struct RaiseUse {
    hook: Arc<HookDecl>,
    limit: LimitName,
    /// True if the hook has an effect for at least one directive, because the value is above the directive's limit.
    raises: bool,
    /// The smallest value that the limit has in any directive of the project, as a number and in printed form.
    least: (f64, String),
    /// The project's maximum in `limits.max`, as text and with its place, if only this maximum prevents the raise for a
    /// directive.
    ceiling: Option<(String, Span)>,
}

impl RaiseUses {
    pub fn add(&mut self, items: &Items<'_>, composed: &Composed, limits: &Limits) {
        let own = |hook: &&crate::compose::ComposedHook| hook.is_live() && hook.decl.space == Space::Project;
        for hook in composed.hooks.iter().filter(own).map(|hook| &hook.decl) {
            let Some(HookAction::Raise { limit, value }) = hook.action.as_ref().map(|action| &action.node) else {
                continue;
            };
            // An invalid value has its own diagnostic.
            let parse = |name, value: &Value| parse_limit_value(name, &LimitValue::Json(value.clone())).ok();
            let Some(limit) = LimitName::parse(limit).filter(|name| parse(*name, value).is_some()) else { continue };
            let current = limits.get(limit);
            // A limit that is at its maximum cannot be raised.
            let ceiling = project_ceiling(items, &composed.limits.ceilings, limit);
            let ceiling = ceiling.filter(|(most, _)| parse(limit, &current).is_some_and(|current| *most <= current));
            let Some(value) = number(value) else { continue };
            let Some(number) = number(&current) else { continue };
            let one = RaiseUse {
                hook: hook.clone(),
                limit,
                raises: value > number && ceiling.is_none(),
                least: (number, current.to_string()),
                ceiling: ceiling.filter(|_| value > number).map(|(most, span)| (format_limit(limit, most), span)),
            };
            self.add_use(hook.span, &one);
        }
    }

    fn add_use(&mut self, span: Span, one: &RaiseUse) {
        match self.uses.get_mut(&span) {
            Some(known) => {
                known.raises |= one.raises;
                known.ceiling = known.ceiling.take().or_else(|| one.ceiling.clone());
                if one.least.0 < known.least.0 {
                    known.least = one.least.clone();
                }
            }
            None => {
                self.uses.insert(span, one.clone());
            }
        }
    }

    pub fn report(&self, found: &mut Diagnostics) {
        for one in self.uses.values().filter(|one| !one.raises) {
            found.push(HookError::RaisesNothing {
                id: one.hook.id.node.clone(),
                limit: one.limit.as_str(),
                current: one.least.1.clone(),
                ceiling: one.ceiling.clone(),
                span: one.hook.item_span(),
            });
        }
    }
}

impl Merge for RaiseUses {
    fn merge(&mut self, other: &Self) {
        for (span, one) in &other.uses {
            self.add_use(*span, one);
        }
    }
}

/// Returns the value as a number if it is a number or a text that contains only a number; `None` for any other value,
/// such as a template.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
