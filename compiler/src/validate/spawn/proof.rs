//! Checks that the grants of a spawned directive are within the grants of its spawn parent (`language.md` 7 and 9).
//! Reports each grant that would be refused because the parent lacks it, and each host or folder of a grant to which
//! the parent has no access. Also reports spawns that a limit of 0 refuses.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;

use rye_grammar::{ItemId, Span};

use super::super::capability::is_trivially_covered;
use super::graph::SpawnGraph;
use super::{SpawnEdge, SpawnRoute, SpawnSource};
use crate::diagnostics::{Diagnostic, Diagnostics, HookError, SpawnError};
use crate::item::{GrantDecl, Permissions};
use crate::semantics::capability::{CapabilityRequest, CapabilitySet, ItemType, Primary};
use crate::semantics::glob::inclusion::{Witness, witness};
use crate::semantics::glob::{Coverage, Glob, covers};
use crate::semantics::needs::{allows_host, is_folder_inside, suggest_host, write_path_error};

/// Memo key: the spans of the permissions of child and parent, and the grants of the hook that starts the child.
type PermissionsKey<'n> = (Span, Span, &'n [String]);

/// Results of comparisons between permissions, and the forms of permissions that comparisons need. A directive can have
/// many spawns, so each result and each form is computed only once.
#[derive(Default)]
struct ProvedPermissions<'n> {
    excesses: BTreeMap<PermissionsKey<'n>, Excess>,
    /// The patterns of the grants, by the span of the permissions.
    patterns: BTreeMap<Span, HashSet<&'n str>>,
    sets: BTreeMap<Span, CapabilitySet>,
}

/// The first part of a child's grants that the grants of its parent do not allow; `None` if there is no such part.
type Excess = Option<ChildExcess>;

/// A part of a child's grants that the grants of its parent do not allow. `grant` is the span of the grant.
#[derive(Debug, Clone)]
enum ChildExcess {
    /// An example of a capability that the parent lacks.
    Capability { grant: Span, capability: String },
    /// An entry of `net` or `write`, formatted as an attribute, and the pattern of the grant.
    Opening { grant: Span, attribute: String, pattern: String },
}

/// Checks that the child of every edge can be spawned, and that the grants of the child lie within those of the parent.
/// Reports each spawn at most once, even if it is refused on several routes.
pub fn check(graph: &SpawnGraph<'_>, found: &mut Diagnostics) {
    let mut proved = ProvedPermissions::default();
    let mut reported: BTreeSet<Span> = BTreeSet::new();
    for node in &graph.nodes {
        for edge in node.edges.iter().chain(&node.granted) {
            let (link, start) = (edge.link, edge.start);
            let Some(children) = graph.child(edge).filter(|_| !reported.contains(&start.span)) else { continue };
            let refused = no_children_error(node.id, link, start);
            if refused.is_some() && start.by == SpawnSource::Grant {
                // `check_child_grants` reports a grant that a limit of 0 makes useless.
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
    proved: &mut ProvedPermissions<'n>,
) -> Option<Diagnostic> {
    // If the chain declares no permissions, the permissions of the spawn parent apply, so nothing is checked.
    let own = link.permissions()?;
    let extra: &[String] = match &start.by {
        SpawnSource::Hook { grants, .. } => grants,
        // The check of the body reports a call that is not granted.
        SpawnSource::Body { free } if !free && !proved.allows(own, &start.to) => return None,
        SpawnSource::Body { .. } | SpawnSource::Grant => &[],
    };
    // The child exceeds the parent's grants only if it does so on every route.
    let mut excess = None;
    for child in children {
        let sets = child.permissions()?;
        let key = (own.span, sets.span, extra);
        excess = excess.or(Some(proved.excess(key, own, sets)?));
    }
    let (span, granted) = (start.span, own.span);
    let verb = if start.by == SpawnSource::Grant { "may start" } else { "starts" };
    let (grant, capability) = match excess? {
        ChildExcess::Capability { grant, capability } => (grant, capability),
        ChildExcess::Opening { grant, attribute, pattern } => {
            let (parent, child) = (parent.to_string(), start.to.to_string());
            return Some(
                SpawnError::OpensMore { parent, child, verb, attribute, pattern, span, grant, granted }.into(),
            );
        }
    };
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
            SpawnError::ExceedsParent { parent, child, verb, capability, span, grant, granted }.into()
        }
    })
}

impl<'n> ProvedPermissions<'n> {
    /// Returns true if the grants `own` allow the start of the directive `child`.
    fn allows(&mut self, own: &'n Permissions, child: &ItemId) -> bool {
        let request = CapabilityRequest {
            primary: Primary::Execute,
            item_type: ItemType::Directive,
            item_id: Some(child),
            space: None,
        };
        let capability = request.capability();
        if self.patterns(own).contains(capability.as_str()) {
            return true;
        }
        let set = || CapabilitySet::new(own.grants.iter().map(|grant| grant.pattern.0.as_str()));
        self.sets.entry(own.span).or_insert_with(set).first_match(&capability).is_some()
    }

    fn excess(&mut self, key: PermissionsKey<'n>, own: &'n Permissions, child: &Permissions) -> Excess {
        if let Some(known) = self.excesses.get(&key) {
            return known.clone();
        }
        let (_, _, extra) = key;
        let found = first_excess(own, (extra, self.patterns(own)), child);
        self.excesses.insert(key, found.clone());
        found
    }

    fn patterns(&mut self, own: &'n Permissions) -> &HashSet<&'n str> {
        let patterns = || own.grants.iter().map(|grant| grant.pattern.0.as_str()).collect();
        self.patterns.entry(own.span).or_insert_with(patterns)
    }
}

/// Returns the first excess of `child` over the grants `own` and the grants `extra` of a hook. `patterns` are the
/// patterns of `own`.
fn first_excess(own: &Permissions, (extra, patterns): (&[String], &HashSet<&str>), child: &Permissions) -> Excess {
    let allowed: Vec<&str> =
        own.grants.iter().map(|g| g.pattern.0.as_str()).chain(extra.iter().map(String::as_str)).collect();
    let is_covered = |pattern: &str| patterns.contains(pattern) || is_trivially_covered(own, pattern);
    let mut exceeding = child.grants.iter().filter(|grant| !is_covered(&grant.pattern.0));
    let lacking = exceeding.find_map(|grant| {
        let capability = match covers(&allowed, &grant.pattern.0) {
            Coverage::Covered => return None,
            Coverage::Counterexample(capability) => capability,
            Coverage::TooComplex => grant.pattern.0.clone(),
        };
        Some(ChildExcess::Capability { grant: grant.span, capability })
    });
    lacking.or_else(|| child.grants.iter().find_map(|grant| find_unusable_opening(own, grant)))
}

/// Returns the first entry of `net` or `write` of a child's grant that has no effect in a child of this parent. `None`
/// if every entry has an effect.
///
/// A host has an effect if a grant of the parent for some of the same tools allows the host. A folder has an effect if
/// such a grant names no folder, or names a folder that contains the child's folder or lies inside of it.
fn find_unusable_opening(own: &Permissions, grant: &GrantDecl) -> Excess {
    if grant.net.is_empty() && grant.write.is_empty() {
        return None;
    }
    let wanted = Glob::new(&grant.pattern.0);
    let shares = |held: &&GrantDecl| witness(&[&wanted, &Glob::new(&held.pattern.0)], &[]) != Witness::None;
    let held: Vec<&GrantDecl> = own.grants.iter().filter(shares).collect();
    let has_host = |host: &str| held.iter().flat_map(|held| &held.net).any(|outer| allows_host(host, outer));
    let has_folder = |folder: &str| {
        let overlaps = |outer: &String| is_folder_inside(folder, outer) || is_folder_inside(outer, folder);
        held.iter().any(|held| held.write.is_empty() || held.write.iter().any(overlaps))
    };
    // An entry that is no host or folder is reported on its own.
    let host = grant.net.iter().find(|host| suggest_host(host).is_none() && !has_host(host));
    let folder = || grant.write.iter().find(|folder| write_path_error(folder).is_none() && !has_folder(folder));
    let attribute = host.map(|host| format!("net=\"{host}\"")).or_else(|| folder().map(|f| format!("write=\"{f}\"")));
    Some(ChildExcess::Opening { grant: grant.span, attribute: attribute?, pattern: grant.pattern.0.clone() })
}
