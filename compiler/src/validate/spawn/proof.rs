//! Checks that the grants of a spawned directive are within the grants of its spawn parent (`language.md` 7 and 9).
//! Reports each grant that would be refused because the parent lacks it. Also reports spawns that a limit of 0 refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use rye_grammar::{ItemId, Span};

use super::super::capability::is_trivially_covered;
use super::graph::SpawnGraph;
use super::{SpawnEdge, SpawnRoute, SpawnSource};
use crate::diagnostics::{Diagnostic, Diagnostics, HookError, SpawnError};
use crate::item::Permissions;
use crate::semantics::capability::{CapabilityRequest, CapabilitySet, ItemType, Primary};
use crate::semantics::glob::{Coverage, covers};

/// Memo key: the spans of the permissions of child and parent, and the grants of the hook that starts the child.
type PermissionsKey<'n> = (Span, Span, &'n [String]);
/// The first grant of a child that allows more than the grants of its parent: the span of the grant, and an example of
/// a capability that the parent lacks. `None` if there is no such grant.
type Excess = Option<(Span, String)>;

/// Checks that the child of every edge can be spawned, and that the grants of the child lie within those of the parent.
/// Reports each spawn at most once, even if it is refused on several routes.
pub fn check(graph: &SpawnGraph<'_>, found: &mut Diagnostics) {
    let mut proved: BTreeMap<PermissionsKey<'_>, Excess> = BTreeMap::new();
    let mut reported: BTreeSet<Span> = BTreeSet::new();
    for node in &graph.nodes {
        for edge in node.edges.iter().chain(&node.granted) {
            let (link, start) = (edge.link, edge.start);
            let Some(children) = graph.child(edge).filter(|_| !reported.contains(&start.span)) else { continue };
            let refused = no_children_error(node.id, link, start);
            if refused.is_some() && start.by == SpawnSource::Grant {
                // The limit of 0 itself is reported.
                continue;
            }
            let problem = refused.or_else(|| excess_error(node.id, link, start, children, &mut proved));
            if let Some(problem) = problem {
                reported.insert(start.span);
                found.push(problem);
            }
        }
    }
}

fn no_children_error(parent: &ItemId, link: &SpawnRoute, start: &SpawnEdge) -> Option<Diagnostic> {
    let limits = link.limits?;
    let limit = if limits.spawns == 0 {
        "spawns"
    } else if limits.depth == 0 {
        "depth"
    } else {
        return None;
    };
    let (parent, child) = (parent.to_string(), start.to.to_string());
    let limit_span = link.limit_span(limit);
    Some(SpawnError::NoChildren { parent, child, limit, span: start.span, limit_span }.into())
}

fn excess_error<'n>(
    parent: &ItemId,
    link: &'n SpawnRoute,
    start: &'n SpawnEdge,
    children: &'n [Rc<SpawnRoute>],
    proved: &mut BTreeMap<PermissionsKey<'n>, Excess>,
) -> Option<Diagnostic> {
    // If the chain declares no permissions, the spawner's set applies.
    let own = link.permissions()?;
    let extra: &[String] = match &start.by {
        SpawnSource::Hook { grants, .. } => grants,
        // The check of the body reports a call that is not granted.
        SpawnSource::Body { free } if !free && !is_allowed(own, &start.to) => return None,
        SpawnSource::Body { .. } | SpawnSource::Grant => &[],
    };
    // The child exceeds the parent's grants only if it does so on every route.
    let mut excess = None;
    for child in children {
        let sets = child.permissions()?;
        let key = (own.span, sets.span, extra);
        let one = proved.entry(key).or_insert_with(|| first_excess(own, extra, sets));
        excess = excess.or(Some(one.clone()?));
    }
    let (grant, capability) = excess?;
    let (span, granted) = (start.span, own.span);
    Some(match &start.by {
        SpawnSource::Hook { id, .. } => HookError::StartsMore {
            id: id.clone(),
            started: start.to.to_string(),
            thread: parent.to_string(),
            capability,
            span,
            grant,
            granted: Some(granted),
        }
        .into(),
        SpawnSource::Body { .. } | SpawnSource::Grant => {
            let (parent, child) = (parent.to_string(), start.to.to_string());
            let verb = if start.by == SpawnSource::Grant { "may start" } else { "starts" };
            SpawnError::ExceedsParent { parent, child, verb, capability, span, grant, granted }.into()
        }
    })
}

fn is_allowed(own: &Permissions, child: &ItemId) -> bool {
    let request = CapabilityRequest {
        primary: Primary::Execute,
        item_type: ItemType::Directive,
        item_id: Some(child),
        space: None,
    };
    let grants = CapabilitySet::new(own.grants.iter().map(|g| g.pattern.0.as_str()));
    grants.first_match(&request.capability()).is_some()
}

fn first_excess(own: &Permissions, extra: &[String], child: &Permissions) -> Excess {
    let allowed: Vec<&str> =
        own.grants.iter().map(|g| g.pattern.0.as_str()).chain(extra.iter().map(String::as_str)).collect();
    let mut exceeding = child.grants.iter().filter(|grant| !is_trivially_covered(own, &grant.pattern.0));
    exceeding.find_map(|grant| match covers(&allowed, &grant.pattern.0) {
        Coverage::Covered => None,
        Coverage::Counterexample(capability) => Some((grant.span, capability)),
        Coverage::TooComplex => Some((grant.span, grant.pattern.0.clone())),
    })
}
