//! Limits that can never be reached, because another limit or the model always applies first (`language.md` 11).

use crate::compose::Composed;
use crate::diagnostics::{CapabilityError, Diagnostics, LimitError};
use crate::hook::{HookAction, HookPoint};
use crate::lower::{LowerSummary, MIN_OUTPUT_TOKENS};
use crate::plan::Prices;
use crate::semantics::money::Nanos;
use crate::world::ItemKind;

/// Upper bound on billed attempts per turn; more than any retry setting allows.
const MAX_BILLED_ATTEMPTS: u64 = 16;

/// Minimum output tokens of a reply that has a successor: it calls a tool by name, with an id and arguments.
const MIN_CALL_TOKENS: u64 = 20;

/// Reports grants of directives that a limit of 0 makes useless. A body that names a child is reported by the spawn
/// checks.
pub fn check_child_grants(composed: &Composed, audit: &LowerSummary, starts: bool, found: &mut Diagnostics) {
    let limit = match (audit.limits.depth, audit.limits.spawns) {
        (0, _) => "depth",
        (_, 0) => "spawns",
        _ => return,
    };
    let Some(permissions) = composed.leaf().and_then(|leaf| leaf.permissions.as_ref()).filter(|_| !starts) else {
        return;
    };
    for grant in &permissions.grants {
        let Some(id) = grant.pattern.0.strip_prefix("rye.execute.directive.") else { continue };
        found.push(CapabilityError::DeadGrant {
            pattern: grant.pattern.0.clone(),
            item: id.replace('.', "/"),
            why: format!("the limit `{limit}` is 0"),
            add: None,
            tokens: 0,
            span: grant.span,
        });
    }
}

/// Reports unreachable limits that the leaf itself declares. `may_start` is set if the directive may spawn others.
pub fn check(composed: &Composed, audit: &LowerSummary, may_start: bool, found: &mut Diagnostics) {
    let Some(leaf) = composed.leaf().filter(|leaf| !leaf.limits.is_empty()) else { return };
    // A hook may lift a limit or ignore it; hooks of the infrastructure layer never do.
    let steered = composed.hooks.iter().any(|hook| {
        hook.is_live()
            && hook.layer < 4.0
            && may_lift_limits(hook.decl.event, hook.decl.action.as_ref().map(|a| &a.node))
    });
    if steered {
        return;
    }
    for limit in &leaf.limits {
        // Without `<permissions>`, every call of a root is denied anyway.
        let is_granted = composed.permissions.as_ref().is_some_and(|permissions| !permissions.value.grants.is_empty());
        if limit.name.node == "turns" && audit.limits.turns == 1 && audit.offers_tools && is_granted {
            let span = limit.name.span.join(limit.value.span);
            found.push(LimitError::OneTurn { has_outputs: !composed.outputs.is_empty(), span });
        }
        let Some(because) = unreachable_because(&limit.name.node, audit, may_start) else { continue };
        found.push(LimitError::NeverBinds {
            name: limit.name.node.clone(),
            because,
            span: limit.name.span.join(limit.value.span),
        });
    }
}

/// Returns true if the action of a hook may let a thread run beyond its limits.
pub fn may_lift_limits(event: HookPoint, action: Option<&HookAction>) -> bool {
    match action {
        Some(HookAction::Raise { .. } | HookAction::Retry { .. } | HookAction::Continue) => true,
        Some(HookAction::Execute { item_type, .. }) => {
            *item_type == ItemKind::Directive
                || matches!(event, HookPoint::Limit | HookPoint::Error | HookPoint::AfterStep)
        }
        Some(_) | None => false,
    }
}

/// Returns the reason why a limit is never reached.
fn unreachable_because(name: &str, audit: &LowerSummary, may_start: bool) -> Option<String> {
    let (limits, model) = (&audit.limits, &audit.model);
    let alone = "no grant allows it to spawn another directive".to_owned();
    let turn = model.context_window.saturating_add(model.requested_output(limits.output));
    match name {
        "spawns" if limits.spawns > 0 && !may_start => Some(alone),
        "depth" if limits.depth > 0 && !may_start => Some(alone),
        "spawns" if limits.spawns > 0 && limits.depth == 0 => Some("`depth` 0 lets it have no children".to_owned()),
        "depth" if limits.depth > 0 && limits.spawns == 0 => Some("`spawns` 0 lets it have no children".to_owned()),
        "turns" => {
            // A fallback may cost less.
            let prices = model.prices.filter(|p| *p != Prices::NONE && model.fallback.is_none())?;
            // A turn starts only if the remaining spend covers its worst case; here that case without its prompt.
            let last = prices.worst_case(0, model.requested_output(limits.output).min(MIN_OUTPUT_TOKENS));
            let left = Nanos(limits.spend.0.saturating_sub(last.0).max(0));
            let most = prices.max_turns_within(left, audit.opening, audit.opening, MIN_CALL_TOKENS)?;
            // Token counts are estimates; a text can have half as many more characters per token.
            (most.saturating_add(most / 2) < limits.turns).then(|| {
                let what = format!("of {} turns at most {most} are affordable", limits.turns);
                format!("{what} with a `spend` of {} and `{}`", limits.spend, model.id)
            })
        }
        "output" if limits.output > model.max_output => {
            Some(format!("`{}` answers with at most {} tokens", model.id, model.max_output))
        }
        "tokens" => {
            let most = limits.turns.saturating_mul(turn).saturating_mul(MAX_BILLED_ATTEMPTS);
            (!may_start && limits.tokens > most)
                .then(|| format!("{} turns of `{}` take at most {most}", limits.turns, model.id))
        }
        "spend" => {
            // With `prices: none` a spend limit is known to bound nothing.
            let one = model
                .prices
                .filter(|p| *p != Prices::NONE)?
                .worst_case(model.context_window, model.requested_output(limits.output));
            let times = limits.turns.saturating_mul(MAX_BILLED_ATTEMPTS);
            let most = Nanos::from_u64(one.to_u64().checked_mul(times)?);
            (!may_start && limits.spend > most)
                .then(|| format!("{} turns of `{}` cost at most {most}", limits.turns, model.id))
        }
        _ => None,
    }
}
