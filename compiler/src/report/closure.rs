//! The directives that a plan can start, directly or through others: by its grants, its hooks and its continuation. The
//! result is an upper bound: a listed directive may still be refused at run time.

use std::collections::{BTreeMap, BTreeSet};

use rye_grammar::ItemId;

use crate::compile::{Compilation, CompileRequest, compile};
use crate::diagnostics::Diagnostics;
use crate::hook::HookCall;
use crate::item::Items;
use crate::plan::Plan;
use crate::primary::{ItemType, Primary, format_capability};
use crate::report::alternatives::compile_unexamined_routes;
use crate::report::matrix::{MatrixError, build_matrix};
use crate::semantics::capability::{CapabilitySet, may_spawn};
use crate::world::{ItemKind, World, WorldError};

/// The reason why a directive has no plan of its own.
#[derive(Debug, Clone, PartialEq)]
pub enum NoPlan {
    /// The directive does not compile.
    Errors(Diagnostics),
    Matrix(MatrixError),
}

/// The compiled plans of one directive, or the reason why it has none.
pub type Plans = Result<Vec<Compilation>, NoPlan>;

/// Returns the plans that a directive can have. Usually, this is one plan, compiled with unknown inputs. If inputs
/// decide the route, the directive is compiled for each of its contexts, with the inputs of the context's example call.
/// A route that a call may take, but for which no call was found, is compiled with unknown inputs.
///
/// # Errors
/// The directive has errors, or too many contexts.
pub fn compile_reachable(world: &dyn World, id: &ItemId) -> Plans {
    let compiled = compile(world, &CompileRequest::new(id.clone()));
    if let Some(compilation) = compiled.value {
        return Ok(vec![compilation]);
    }
    let routed = compiled.diagnostics.iter().filter(|d| d.is_error()).all(|d| d.code() == "interface::missing-input");
    if !routed {
        return Err(NoPlan::Errors(compiled.diagnostics));
    }
    let found = build_matrix(world, &CompileRequest::new(id.clone())).map_err(NoPlan::Matrix)?;
    let of_context = |inputs| {
        let again = compile(world, &CompileRequest { inputs, ..CompileRequest::new(id.clone()) });
        again.value.ok_or(NoPlan::Errors(again.diagnostics))
    };
    let mut plans: Vec<Compilation> =
        found.contexts.iter().map(|context| of_context(context.call.inputs.clone())).collect::<Result<_, _>>()?;
    let unexamined = compile_unexamined_routes(world, &CompileRequest::new(id.clone()), &found);
    plans.extend(unexamined.into_iter().map(|routed| routed.compilation));
    Ok(plans)
}

/// Compiles every directive that a thread of the plans `roots` can start, directly or through other directives. `roots`
/// are the plans of one directive, which the result does not contain.
///
/// # Errors
/// The list of directives cannot be read.
pub fn collect_closure(world: &dyn World, roots: &[&Plan]) -> Result<BTreeMap<ItemId, Plans>, WorldError> {
    let listed = world.list(ItemKind::Directive)?;
    let all: BTreeSet<&ItemId> = listed.iter().map(|entry| &entry.id).collect();
    // Every link of a spawn chain must allow a start, so the grants of the roots bound the starts of all descendants.
    let bound = CapabilitySet::new(roots.iter().flat_map(|plan| granted_patterns(plan)));
    let mut found: BTreeMap<ItemId, Plans> = BTreeMap::new();
    let mut waiting: Vec<ItemId> = roots.iter().flat_map(|plan| startable_directives(plan, &all, &bound)).collect();
    while let Some(id) = waiting.pop() {
        if found.contains_key(&id) || roots.iter().any(|plan| plan.directive == id) {
            continue;
        }
        let plans = compile_reachable(world, &id);
        for compilation in plans.iter().flatten() {
            waiting.extend(startable_directives(&compilation.plan, &all, &bound));
        }
        found.insert(id, plans);
    }
    Ok(found)
}

/// Returns the ids of the directives that a thread of this plan can start directly.
///
/// # Errors
/// The list of directives cannot be read.
pub(crate) fn collect_starts(world: &dyn World, plan: &Plan) -> Result<BTreeSet<ItemId>, WorldError> {
    if !granted_patterns(plan).any(|pattern| may_spawn(&pattern)) {
        // No grant allows a start, so no list of all directives is needed; in a large project, reading it is slow.
        let items = Items::new(world);
        let started = hook_starts(plan).chain(plan.continuation_directive.clone());
        return Ok(started.filter(|id| items.exists(ItemKind::Directive, id)).collect());
    }
    let listed = world.list(ItemKind::Directive)?;
    let all: BTreeSet<&ItemId> = listed.iter().map(|entry| &entry.id).collect();
    let own = CapabilitySet::new(granted_patterns(plan));
    Ok(startable_directives(plan, &all, &own).into_iter().collect())
}

/// Returns the grant patterns of a plan and of its live hooks.
fn granted_patterns(plan: &Plan) -> impl Iterator<Item = String> {
    let own = plan.capabilities.grants.iter().map(|grant| grant.pattern.clone());
    let hooks = plan.hooks.iter().filter(|hook| hook.is_live()).flat_map(|hook| hook.grants.iter().cloned());
    own.chain(hooks)
}

/// Returns the ids of the directives that the live hooks of a plan start.
fn hook_starts(plan: &Plan) -> impl Iterator<Item = ItemId> {
    plan.hooks.iter().filter(|hook| hook.is_live()).filter_map(|hook| match hook.action.call() {
        Some(HookCall::Execute { item_type: ItemKind::Directive, item_id, .. }) => ItemId::parse(item_id).ok(),
        Some(HookCall::Execute { .. } | HookCall::Fetch { .. } | HookCall::Sign { .. }) | None => None,
    })
}

/// Returns the directives in `all` that a thread of this plan can start itself, by its grants, hooks or continuation. A
/// grant counts only for the directives that `bound` grants too.
fn startable_directives(plan: &Plan, all: &BTreeSet<&ItemId>, bound: &CapabilitySet) -> Vec<ItemId> {
    let own = CapabilitySet::new(granted_patterns(plan));
    let allowed = |id: &ItemId| {
        let wanted = format_capability(Primary::Execute, ItemType::Directive, Some(id));
        own.first_match(&wanted).is_some() && bound.first_match(&wanted).is_some()
    };
    let granted = all.iter().filter(|id| allowed(id)).map(|id| (*id).clone());
    granted.chain(hook_starts(plan)).chain(plan.continuation_directive.clone()).filter(|id| all.contains(id)).collect()
}
