//! Bounds of facts that follow from a directive before a run: costs by its limits, calls by its grants, and the model by
//! the provider files, because `--model` replaces the directive's own.

use std::cell::OnceCell;

use rye_grammar::ItemId;
use rye_grammar::condition::Path;
use serde_json::Value;

use super::model::ModelIds;
use crate::compose::{Composed, ComposedHook};
use crate::hook::{HookAction, HookPoint};
use crate::item::{HookDecl, Items};
use crate::palette::tool_name;
use crate::primary::{DIRECTIVE_RETURN_TOOL, Primary};
use crate::semantics::capability::{self, CapabilityRequest, CapabilitySet, ItemType};
use crate::semantics::condition::{Domain, Verdict};
use crate::semantics::facts::Facts;
use crate::semantics::hook_table::INFRASTRUCTURE_LAYER;
use crate::semantics::limits::{LimitName, Limits, resolve};
use crate::world::ItemKind;

/// The origin of a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundCause {
    Limits,
    Grants,
}

/// The bounds of one composed directive.
pub struct FactBounds<'c, 'w> {
    items: &'c Items<'w>,
    composed: &'c Composed,
    limits: OnceCell<Option<Limits>>,
    grants: OnceCell<Option<CapabilitySet>>,
    models: OnceCell<Vec<Option<Value>>>,
}

impl<'c, 'w> FactBounds<'c, 'w> {
    pub fn new(items: &'c Items<'w>, composed: &'c Composed) -> Self {
        Self { items, composed, limits: OnceCell::new(), grants: OnceCell::new(), models: OnceCell::new() }
    }

    /// Returns the values that a fact of a hook can have; `None` if no bound is known. Ignores bounds with the cause
    /// `without`.
    pub fn domain(&self, hook: &HookDecl, path: &Path, without: Option<BoundCause>) -> Option<Domain> {
        match path.to_string().as_str() {
            "model" => Some(Domain::Values(self.models().to_vec())),
            "call.item_id" if without != Some(BoundCause::Grants) => {
                self.compared_calls(hook, path, &|id| ItemId::parse(id).is_ok_and(|id| self.may_call(&id)))
            }
            "call.name" if without != Some(BoundCause::Grants) => {
                self.compared_calls(hook, path, &|name| self.may_call_by_name(name))
            }
            fact if without != Some(BoundCause::Limits) => self.cost(fact),
            _ => None,
        }
    }

    /// Returns the bound on a fact that a limit implies. A hook that raises the limit removes the bound.
    fn cost(&self, fact: &str) -> Option<Domain> {
        let limit = match fact {
            "cost.turns" | "turn" | "loop_count" => LimitName::Turns,
            "cost.spend" => LimitName::Spend,
            _ => return None,
        };
        let limits = self.limits.get_or_init(|| declared_limits(self.composed)).as_ref()?;
        #[expect(clippy::cast_precision_loss, reason = "limits are far below 2^53")]
        let declared =
            if limit == LimitName::Turns { limits.turns as f64 } else { limits.spend.to_string().parse().ok()? };
        let most = Some(highest_limit(self.composed, limit, declared)?);
        Some(Domain::Number { whole: limit == LimitName::Turns, least: Some(0), most, optional: false })
    }

    /// Returns the compared texts that a call can have, and one text that represents all others. `None` if the
    /// condition uses the fact in other ways than comparing whole texts, or if the grants of the spawn parent apply.
    fn compared_calls(&self, hook: &HookDecl, path: &Path, is_reachable: &dyn Fn(&str) -> bool) -> Option<Domain> {
        self.grants()?;
        let samples = hook.compiled.as_ref()?.samples().into_iter().find(|samples| samples.path == *path)?;
        if samples.open || samples.ordered || !samples.parts.is_empty() {
            return None;
        }
        let compared = samples.values.into_iter().filter(|value| value.as_str().is_none_or(is_reachable));
        Some(Domain::Values(compared.map(Some).chain([Some(Value::from("\u{1}")), None]).collect()))
    }

    fn grants(&self) -> Option<&CapabilitySet> {
        let read = || {
            let permissions = self.composed.permissions.as_ref()?;
            Some(CapabilitySet::new(permissions.value.grants.iter().map(|g| g.pattern.0.as_str())))
        };
        self.grants.get_or_init(read).as_ref()
    }

    /// Returns true if a grant allows some call of an item.
    fn may_call(&self, id: &ItemId) -> bool {
        let Some(grants) = self.grants() else { return true };
        // Tools of the engine that need no grant.
        if id.as_str().starts_with("rye/agent/threads/") {
            return true;
        }
        capability::Primary::ALL.into_iter().any(|primary| {
            ItemType::ALL.into_iter().any(|item_type| {
                let request = CapabilityRequest { primary, item_type, item_id: Some(id), space: None };
                grants.first_match(&request.capability()).is_some()
            })
        })
    }

    fn may_call_by_name(&self, name: &str) -> bool {
        if name == DIRECTIVE_RETURN_TOOL || Primary::ALL.into_iter().any(|primary| primary.tool_name() == name) {
            return true;
        }
        let tools = self.items.list(ItemKind::Tool);
        tools.iter().any(|entry| tool_name(&entry.id) == name && self.may_call(&entry.id))
    }

    fn models(&self) -> &[Option<Value>] {
        self.models.get_or_init(|| ModelIds::read(self.items).ids().iter().map(|id| Some(id.as_str().into())).collect())
    }
}

/// Returns the limits of a run of a directive; `None` if they are invalid.
fn declared_limits(composed: &Composed) -> Option<Limits> {
    let declared = &composed.limits;
    resolve(&declared.defaults, &declared.directive, &[], &[]).ok().map(|resolved| resolved.limits)
}

/// Returns the highest value of a limit in a run: the declared one, or the value to which a hook raises it. `None` if a
/// hook may let the thread continue beyond the limit. Only hooks of the event `limit` can do so, because the limits are
/// checked again after every other event. Hooks of the infrastructure layer cannot.
pub fn highest_limit(composed: &Composed, limit: LimitName, declared: f64) -> Option<f64> {
    let is_lifting = |hook: &&ComposedHook| {
        let is_at_limit = hook.is_live() && hook.layer < INFRASTRUCTURE_LAYER && hook.decl.event == HookPoint::Limit;
        is_at_limit && may_apply(hook, limit)
    };
    let mut most = declared;
    for hook in composed.hooks.iter().filter(is_lifting) {
        match hook.decl.action.as_ref().map(|action| &action.node) {
            Some(HookAction::Raise { limit: raised, value }) => match LimitName::parse(raised) {
                Some(raised) if raised == limit => most = most.max(value.as_f64()?),
                Some(_) => {}
                None => return None,
            },
            // The answer of an executed item may be any action of the event.
            Some(HookAction::Retry { .. } | HookAction::Continue | HookAction::Execute { .. }) => return None,
            Some(_) | None => {}
        }
    }
    Some(most)
}

/// Returns false if the condition of a `limit` hook is false whenever this limit is exceeded.
fn may_apply(hook: &ComposedHook, limit: LimitName) -> bool {
    let Some(condition) = &hook.decl.compiled else { return true };
    let mut facts = Facts::new();
    for root in condition.roots().filter(|root| *root != "limit_code") {
        facts.declare_unknown(root);
    }
    facts.set("limit_code", Value::from(format!("{limit}_exceeded")));
    condition.evaluate(&facts) != Verdict::False
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::compile::tests::world::{minimal_world, with_directives};
    use crate::validate::{Selection, check};

    /// Checks whether the hook `late` of a directive with 15 turns can never fire beside this hook.
    fn is_never(condition: &str, beside: &str) -> bool {
        let late = format!(
            "<hook id=\"late\" event=\"after_step\"><when>{condition}</when><terminate error=\"too long\"/></hook>"
        );
        let inside = format!("<metadata><permissions/><hooks>{late}{beside}</hooks></metadata>");
        let world = with_directives(minimal_world(), &[("leaf", "", &inside, "Look.")]);
        let report = check(&world, &Selection::All);
        let errors: Vec<String> = report
            .diagnostics
            .iter()
            .filter(|found| found.is_error())
            .map(crate::diagnostics::Diagnostic::message)
            .collect();
        assert!(errors.is_empty(), "{beside}: {errors:?}");
        report.diagnostics.iter().any(|found| found.code() == "hook::never" && found.message().contains("`late`"))
    }

    #[test]
    fn only_hooks_that_lift_a_limit_remove_its_bound() {
        let turns = "cost.turns &gt;= 50";
        for keeps in [
            "",
            "<hook id=\"h\" event=\"error\"><when>attempt &lt; 2</when><retry/></hook>",
            "<hook id=\"h\" event=\"error\"><continue/></hook>",
            "<hook id=\"h\" event=\"after_step\"><when>turn &lt; 2</when><continue/></hook>",
            "<hook id=\"h\" event=\"limit\"><raise limit=\"spend\" value=\"9\"/></hook>",
            "<hook id=\"h\" event=\"limit\"><raise limit=\"turns\" value=\"30\"/></hook>",
            "<hook id=\"h\" event=\"limit\"><when>limit_code == \"spend_exceeded\"</when><continue/></hook>",
            "<hook id=\"h\" event=\"limit\" layer=\"3\"><when>limit_code == \"tokens_exceeded\"</when><continue/></hook>",
        ] {
            assert!(is_never(turns, keeps), "{keeps}");
        }
        for lifts in [
            "<hook id=\"h\" event=\"limit\"><continue/></hook>",
            "<hook id=\"h\" event=\"limit\"><when>limit_code == \"turns_exceeded\"</when><continue/></hook>",
            "<hook id=\"h\" event=\"limit\"><when>limit_code != \"spend_exceeded\"</when><retry/></hook>",
            "<hook id=\"h\" event=\"limit\"><raise limit=\"turns\" value=\"60\"/></hook>",
            "<hook id=\"h\" event=\"limit\"><execute item_type=\"tool\" item_id=\"rye/look\"/></hook>",
        ] {
            assert!(!is_never(turns, lifts), "{lifts}");
        }
        assert!(is_never(
            "cost.spend &gt; 8",
            "<hook id=\"h\" event=\"limit\"><raise limit=\"spend\" value=\"7\"/></hook>"
        ));
        assert!(!is_never(
            "cost.spend &gt; 8",
            "<hook id=\"h\" event=\"limit\"><raise limit=\"spend\" value=\"9\"/></hook>"
        ));
    }
}
