//! Bounds of facts that follow from a directive before a run: costs by its limits, calls by its grants, and the model by
//! the provider files, because `--model` replaces the directive's own.

use std::cell::OnceCell;

use rye_grammar::ItemId;
use rye_grammar::condition::Path;
use serde_json::Value;

use super::model::ModelIds;
use super::unreachable_limits::may_lift_limits;
use crate::compose::Composed;
use crate::item::{HookDecl, Items};
use crate::palette::tool_name;
use crate::primary::{DIRECTIVE_RETURN_TOOL, Primary};
use crate::semantics::capability::{self, CapabilityRequest, CapabilitySet, ItemType};
use crate::semantics::condition::Domain;
use crate::semantics::hook_table::INFRASTRUCTURE_LAYER;
use crate::semantics::limits::{Limits, resolve};
use crate::world::ItemKind;

/// The cause of a bound.
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

    /// Returns the values that a fact of a hook can have; `None` if nothing here bounds it. Bounds of the cause
    /// `without` do not apply.
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

    /// Returns the bound of a fact that a limit bounds. A hook that lifts limits removes it.
    fn cost(&self, fact: &str) -> Option<Domain> {
        let limits = || self.limits.get_or_init(|| declared_limits(self.composed)).as_ref();
        #[expect(clippy::cast_precision_loss, reason = "limits are far below 2^53")]
        let most = match fact {
            "cost.turns" | "turn" | "loop_count" => {
                Domain::Number { whole: true, least: Some(0), most: Some(limits()?.turns as f64), optional: false }
            }
            "cost.spend" => Domain::Number {
                whole: false,
                least: Some(0),
                most: limits()?.spend.to_string().parse().ok(),
                optional: false,
            },
            _ => return None,
        };
        Some(most)
    }

    /// Returns the compared texts that a call can have, and one text for all others; `None` if the condition uses the
    /// fact in other ways than comparing whole texts, or if the spawning thread's grants apply.
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

/// Returns the limits of a run of a directive; `None` if a hook may lift them, or if they are invalid.
fn declared_limits(composed: &Composed) -> Option<Limits> {
    let lifts = composed.hooks.iter().any(|hook| {
        // Hooks of the infrastructure layer never lift a limit.
        hook.is_live()
            && hook.layer < INFRASTRUCTURE_LAYER
            && may_lift_limits(hook.decl.event, hook.decl.action.as_ref().map(|action| &action.node))
    });
    let declared = &composed.limits;
    resolve(&declared.defaults, &declared.directive, &[], &[]).ok().map(|resolved| resolved.limits).filter(|_| !lifts)
}
