//! Which directives start which (`language.md` 7, 9 and 11): concrete edges, only where a body or a hook names the child.
//! What grants would allow besides stays a pattern, for the palette, the graph and the assertions to read. What is asked of the
//! edges is in the files below; all of it is linear in the edges, and a proof is made once for a pair of sets.

mod budget;
mod circle;
mod graph;
mod outputs;
mod proof;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use rye_grammar::{ItemId, Span};

use crate::compose::{Composed, compose_all};
use crate::diagnostics::Diagnostics;
use crate::hook::{HookAction, HookSource, PlanVerdict};
use crate::item::{Directive, Items, Permissions};
use crate::lower::Audit;
use crate::resolve::{Inputs, Launch};
use crate::semantics::capability::could_start;
use crate::semantics::limits::{Limits, resolve};
use crate::semantics::money::Nanos;
use crate::world::ItemKind;

use super::memory::Merge;
use graph::Graph;

/// One start that a line names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    pub to: ItemId,
    pub span: Span,
    pub by: Starter,
}

/// What names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Starter {
    /// Patterns that the hook grants what it starts; whether it fires for certain, and whether the directive wrote it itself.
    Hook { id: String, grants: Vec<String>, certain: bool, own: bool },
    /// `free`: by the thread tool, whose call may set limits of its own.
    Body { free: bool },
}

/// The starts that a body names.
#[derive(Debug, Clone, Default)]
pub struct BodyStarts {
    pub named: Vec<Start>,
    /// It starts others as well, whose ids are not written there.
    pub open: bool,
}

/// A directive along one route, as far as starts are concerned.
struct Link {
    chain: Vec<Arc<Directive>>,
    /// `None` where they cannot be read, which is told elsewhere.
    limits: Option<Limits>,
    /// What stays with the thread for certain: the output of its own last turn.
    keep: Nanos,
    starts: Vec<Start>,
    /// The body names a directive that cannot be looked up.
    open: bool,
}

/// Directives with what each of them starts on each route. Most start nobody and are started by nobody: there is nothing to
/// prove of those.
#[derive(Default)]
pub struct Spawns {
    starting: Nodes,
    others: Nodes,
}

type Nodes = BTreeMap<ItemId, Vec<Rc<Link>>>;

impl Spawns {
    /// Notes what a directive starts on one route.
    pub fn add(&mut self, composed: &Composed, body: &BodyStarts, audit: Option<&Audit>) {
        let hooks = composed.hooks.iter().filter(|h| h.is_live() && h.decl.has_static_id()).filter_map(|hook| {
            let Some(HookAction::Execute { item_type: ItemKind::Directive, item_id, .. }) =
                hook.decl.action.as_ref().map(|a| &a.node)
            else {
                return None;
            };
            let grants = hook.decl.grants.iter().map(|g| g.node.0.clone()).collect();
            let certain = hook.verdict == PlanVerdict::Fires;
            let own = matches!(hook.decl.source, HookSource::Directive { .. });
            let by = Starter::Hook { id: hook.decl.id.node.clone(), grants, certain, own };
            Some(Start { to: ItemId::parse(item_id).ok()?, span: hook.decl.item_span(), by })
        });
        let starts: Vec<Start> = hooks.chain(body.named.iter().cloned()).collect();
        let keep = audit.filter(|a| a.model.fallback.is_none()).map_or(Nanos::ZERO, |audit| {
            let output = audit.model.output(audit.limits.output);
            audit.model.worst_case(0, output)
        });
        let link = Link {
            chain: composed.chain.clone(),
            limits: audit.map(|audit| audit.limits),
            keep,
            starts,
            open: body.open,
        };
        let id = &composed.id;
        if !link.starts.is_empty()
            && let Some(links) = self.others.remove(id)
        {
            self.starting.insert(id.clone(), links);
        }
        let starts = !link.starts.is_empty() || self.starting.contains_key(id);
        let nodes = if starts { &mut self.starting } else { &mut self.others };
        nodes.entry(id.clone()).or_default().push(Rc::new(link));
    }
}

impl Merge for Spawns {
    fn merge(&mut self, other: &Self) {
        let copy = |(id, links): (&ItemId, &Vec<Rc<Link>>)| (id.clone(), links.clone());
        self.starting.extend(other.starting.iter().map(copy));
        self.others.extend(other.others.iter().map(copy));
    }
}

/// What needs no other directive than those that are named. `several` have other directives each, in the order of their ids.
pub fn proofs(items: &Items<'_>, several: &[&Spawns], found: &mut Diagnostics) {
    let leaves = graph::leaves(several, |id| elsewhere(items, id));
    proof::check(&Graph::new(several, &leaves), found);
}

/// Everything, once every directive was added.
pub fn check(items: &Items<'_>, several: &[&Spawns], found: &mut Diagnostics) {
    let leaves = graph::leaves(several, |id| elsewhere(items, id));
    let graph = Graph::new(several, &leaves);
    proof::check(&graph, found);
    budget::check(&graph, found);
    circle::check(&graph, found);
    outputs::check(&graph, found);
}

/// A directive that was not added: one of another space.
fn elsewhere(items: &Items<'_>, id: &ItemId) -> Option<Vec<Rc<Link>>> {
    if !items.exists(ItemKind::Directive, id) {
        return None;
    }
    let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
    // What is wrong with it is told where it is checked.
    let (routes, _) = compose_all(items, id, &launch, &mut Diagnostics::new());
    let link = |composed: Composed| Link {
        limits: resolve(&composed.limits.defaults, &composed.limits.directive, &[], &[]).ok().map(|r| r.limits),
        chain: composed.chain,
        keep: Nanos::ZERO,
        starts: Vec::new(),
        open: true,
    };
    Some(routes.into_iter().map(link).map(Rc::new).collect())
}

impl Link {
    fn permissions(&self) -> Option<&Permissions> {
        self.chain.iter().rev().find_map(|link| link.permissions.as_ref())
    }

    /// Where the nearest link of the chain sets a limit.
    fn limit_span(&self, name: &str) -> Option<Span> {
        let limits = self.chain.iter().rev().flat_map(|link| &link.limits);
        limits.filter(|limit| limit.name.node == name).map(|limit| limit.name.span.join(limit.value.span)).next()
    }
}

/// Whether anything lets a thread of this directive start another one: a grant, or its parent's where it has none.
pub fn may_start(composed: &Composed) -> bool {
    let Some(permissions) = &composed.permissions else { return true };
    permissions.value.grants.iter().any(|grant| could_start(&grant.pattern.0))
}

#[cfg(test)]
mod tests;
