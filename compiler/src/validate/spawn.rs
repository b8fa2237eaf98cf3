//! Checks of the spawn graph of directives (`language.md` 7, 9 and 11). The graph has an edge for each child that a
//! body or a hook names, but none for a child that only a grant allows. The time of the checks in the submodules is
//! proportional to the number of edges, and each pair of permission sets is checked once.

mod budget;
mod cycle;
mod depth;
mod graph;
mod outputs;
mod proof;
mod together;

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use rye_grammar::capability::is_literal;
use rye_grammar::{ItemId, Span};

use crate::compose::{Composed, compose_all};
use crate::diagnostics::Diagnostics;
use crate::hook::{HookAction, HookSource, PlanVerdict};
use crate::item::{Directive, Items, Permissions};
use crate::lower::LowerSummary;
use crate::resolve::{Inputs, Launch};
use crate::semantics::capability::may_spawn;
use crate::semantics::limits::{Limits, resolve_declared};
use crate::semantics::money::Nanos;
use crate::world::ItemKind;

use super::incremental::Merge;
use graph::SpawnGraph;

/// A possible start of another directive: the directive `to`, and the hook, call or grant that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnEdge {
    pub to: ItemId,
    pub span: Span,
    pub by: SpawnSource,
}

/// The part of a directive that starts a child: a hook, a call in the body, or a grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpawnSource {
    /// A hook. `grants` are the patterns that the child gets from the hook. `certain` is true if the hook always fires,
    /// `own` if the directive itself declares the hook.
    Hook { id: String, grants: Vec<String>, certain: bool, own: bool },
    /// A call in the body. `free` is true for a call of `rye/agent/threads/thread_directive`, because the arguments of
    /// this tool may set the limits of the child.
    Body { free: bool },
    /// A grant that names the child by its full id, without a wildcard: it permits the spawn, but does not cause it.
    Grant,
}

impl SpawnEdge {
    /// Returns false if the child is started by a hook that does not fire in every thread; true for any other hook, a
    /// call in the body or a grant.
    fn is_certain(&self) -> bool {
        !matches!(self.by, SpawnSource::Hook { certain: false, .. })
    }
}

/// The directives that a body starts, as far as their ids are known.
#[derive(Debug, Clone, Default)]
pub struct BodySpawns {
    pub named: Vec<SpawnEdge>,
    /// True if the body also contains a call that starts an unknown directive: its id is a placeholder, or no directive
    /// has this id.
    pub open: bool,
}

/// A directive on one route, reduced to the data that the spawn checks need.
struct SpawnRoute {
    chain: Vec<Arc<Directive>>,
    /// The limits of the directive; `None` if they are invalid, which another check reports.
    limits: Option<Limits>,
    /// Spend that the thread always reserves for the output of its own last turn.
    keep: Nanos,
    starts: Vec<SpawnEdge>,
    /// Directives that a grant names and neither the body nor a hook starts.
    granted: Vec<SpawnEdge>,
    /// True if `starts` may be incomplete: the body names a directive that does not exist, or the body was not checked.
    open: bool,
}

/// All directives with their spawns on each route. `starting` holds the directives that spawn others. `others` holds
/// all other directives, which the checks need only if a directive of `starting` spawns them.
#[derive(Default)]
pub struct Spawns {
    starting: SpawnRoutes,
    others: SpawnRoutes,
}

type SpawnRoutes = BTreeMap<ItemId, Vec<Rc<SpawnRoute>>>;

impl Spawns {
    /// Records the threads that a directive can start if its extends chain is the chain of `composed`. `audit` holds
    /// the limits and the model for this chain; `None` if they are invalid.
    pub fn add(&mut self, composed: &Composed, body: &BodySpawns, audit: Option<&LowerSummary>) {
        let hooks = composed.hooks.iter().filter(|h| h.is_live() && h.decl.has_static_id()).filter_map(|hook| {
            let Some(HookAction::Execute { item_type: ItemKind::Directive, item_id, .. }) =
                hook.decl.action.as_ref().map(|a| &a.node)
            else {
                return None;
            };
            let grants = hook.decl.grants.iter().map(|g| g.node.0.clone()).collect();
            let certain = hook.verdict == PlanVerdict::Fires;
            let own = matches!(hook.decl.source, HookSource::Directive { .. });
            let by = SpawnSource::Hook { id: hook.decl.id.node.clone(), grants, certain, own };
            Some(SpawnEdge { to: ItemId::parse(item_id).ok()?, span: hook.decl.item_span(), by })
        });
        let starts: Vec<SpawnEdge> = hooks.chain(body.named.iter().cloned()).collect();
        let granted = granted_spawns(composed, &starts);
        let keep = audit.filter(|a| a.model.fallback.is_none()).map_or(Nanos::ZERO, |audit| {
            let output = audit.model.requested_output(audit.limits.output);
            audit.model.worst_case(0, output)
        });
        let link = SpawnRoute {
            chain: composed.chain.clone(),
            limits: audit.map(|audit| audit.limits),
            keep,
            starts,
            granted,
            open: body.open,
        };
        let id = &composed.id;
        let has_spawns = !link.starts.is_empty() || !link.granted.is_empty();
        if has_spawns && let Some(links) = self.others.remove(id) {
            self.starting.insert(id.clone(), links);
        }
        let starts = has_spawns || self.starting.contains_key(id);
        let nodes = if starts { &mut self.starting } else { &mut self.others };
        nodes.entry(id.clone()).or_default().push(Rc::new(link));
    }
}

impl Merge for Spawns {
    fn merge(&mut self, other: &Self) {
        let copy = |(id, links): (&ItemId, &Vec<Rc<SpawnRoute>>)| (id.clone(), links.clone());
        self.starting.extend(other.starting.iter().map(copy));
        self.others.extend(other.others.iter().map(copy));
    }
}

/// Checks only the permissions of the spawns in `several`. Each directive is in one element of `several` only, in the
/// order of the ids. Unlike for [`check`], not every directive of the project has to be present.
pub fn check_permissions(items: &Items<'_>, several: &[&Spawns], found: &mut Diagnostics) {
    let leaves = graph::leaf_routes(several, |id| routes_in_other_spaces(items, id));
    proof::check(&SpawnGraph::new(several, &leaves), found);
}

/// Runs all spawn checks. The elements of `several` together hold every directive of the project, each directive once,
/// in the order of the ids.
pub fn check(items: &Items<'_>, several: &[&Spawns], found: &mut Diagnostics) {
    let leaves = graph::leaf_routes(several, |id| routes_in_other_spaces(items, id));
    let graph = SpawnGraph::new(several, &leaves);
    proof::check(&graph, found);
    let budgets = budget::check(&graph, found);
    cycle::check(&graph, found);
    depth::check(&graph, found);
    together::check(&graph, &budgets, found);
    outputs::check(&graph, found);
}

/// Composes the routes of a directive of the user space or the standard library, because the [`Spawns`] of the project
/// contain only routes of the project's own directives. `None` if no space has the directive.
fn routes_in_other_spaces(items: &Items<'_>, id: &ItemId) -> Option<Vec<Rc<SpawnRoute>>> {
    if !items.exists(ItemKind::Directive, id) {
        return None;
    }
    let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
    // The check of the directive reports its errors.
    let (routes, _) = compose_all(items, id, &launch, &mut Diagnostics::new());
    let link = |composed: Composed| SpawnRoute {
        limits: resolve_declared(&composed.limits.defaults, &composed.limits.directive),
        chain: composed.chain,
        keep: Nanos::ZERO,
        starts: Vec::new(),
        granted: Vec::new(),
        open: true,
    };
    Some(routes.into_iter().map(link).map(Rc::new).collect())
}

impl SpawnRoute {
    fn permissions(&self) -> Option<&Permissions> {
        self.chain.iter().rev().find_map(|link| link.permissions.as_ref())
    }

    /// Returns the span of the limit `name` in the chain. If several directives of the chain set the limit, returns the
    /// span in the last of them, which is nearest to the directive itself. `None` if no directive of the chain sets the
    /// limit.
    fn limit_span(&self, name: &str) -> Option<Span> {
        let limits = self.chain.iter().rev().flat_map(|link| &link.limits);
        limits.filter(|limit| limit.name.node == name).map(|limit| limit.name.span.join(limit.value.span)).next()
    }
}

/// Returns a spawn for each directive that the grants of the leaf name by its full id. Directives that `starts` already
/// contains are left out.
fn granted_spawns(composed: &Composed, starts: &[SpawnEdge]) -> Vec<SpawnEdge> {
    let Some(permissions) = composed.leaf().and_then(|leaf| leaf.permissions.as_ref()) else { return Vec::new() };
    let named = permissions.grants.iter().filter_map(|grant| {
        let id = grant.pattern.0.strip_prefix("rye.execute.directive.").filter(|id| is_literal(id))?;
        Some(SpawnEdge { to: ItemId::from_dotted(id)?, span: grant.span, by: SpawnSource::Grant })
    });
    let started: HashSet<&ItemId> = starts.iter().map(|start| &start.to).collect();
    named.filter(|edge| !started.contains(&edge.to)).collect()
}

/// Returns true if a thread of this directive may spawn: a grant allows it, or the chain declares no permissions and
/// inherits those of the parent.
pub fn directive_may_spawn(composed: &Composed) -> bool {
    let Some(permissions) = &composed.permissions else { return true };
    permissions.value.grants.iter().any(|grant| may_spawn(&grant.pattern.0))
}

#[cfg(test)]
mod tests;
