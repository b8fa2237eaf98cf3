//! The threads that a directive can lead to: itself, those that its body or a hook names, and those that a grant allows
//! it to start. Each thread has the permission sets that must all allow an action (`language.md` 9).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rye_grammar::{ItemId, Span};

use crate::compose::{Composed, compose_all};
use crate::diagnostics::Diagnostics;
use crate::hook::HookAction;
use crate::item_graph::mentions;
use crate::lower::capabilities;
use crate::lower::shared::Shared;
use crate::plan::Origins;
use crate::resolve::{Inputs, Launch};
use crate::semantics::glob::Glob;
use crate::semantics::glob::inclusion::{Witness, witness};
use crate::semantics::limits::resolve;
use crate::semantics::money::Nanos;
use crate::world::{ItemKind, Space};

/// Maximum number of threads examined per directive.
const MAX_THREADS: usize = 400;
/// Maximum depth below the first thread.
const MAX_SPAWN_DEPTH: usize = 5;
/// Maximum number of combinations tried with one pattern of each set.
const MAX_CHOICES: usize = 2_000;

pub struct Reached {
    pub threads: Vec<Thread>,
    pub complete: bool,
}

/// A thread that could run.
#[derive(Debug, Clone)]
pub struct Thread {
    pub directive: ItemId,
    pub trace: Vec<Step>,
    /// The thread's own permission set first, then those of its spawn parents: all must allow.
    sets: Vec<Vec<String>>,
    /// Hooks that are live in the thread or in a spawn parent.
    hooks: BTreeSet<String>,
    asks: bool,
    pub spend: Nanos,
    /// A grant with the hosts that it opens.
    pub net: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Step {
    pub directive: ItemId,
    pub by: String,
    pub span: Option<Span>,
    /// True if a source line names the directive; false if only a grant allows it to start.
    pub named: bool,
    /// True if the directive has `<permissions>` of its own.
    pub declares: bool,
    pub grants: Vec<String>,
    pub granted: Option<Span>,
}

/// The properties of a directive itself, on one route.
struct RouteSummary {
    grants: Option<Vec<String>>,
    granted: Option<Span>,
    hooks: BTreeSet<String>,
    asks: bool,
    spend: Nanos,
    net: Option<String>,
    named: Vec<(ItemId, String, Span, Vec<String>)>,
}

/// Finds the threads, breadth first.
pub fn walk(shared: &Shared<'_, '_>, root: &ItemId) -> Reached {
    let mut known: BTreeMap<ItemId, Vec<RouteSummary>> = BTreeMap::new();
    let mut queue = VecDeque::new();
    let mut seen = BTreeSet::new();
    let mut threads = Vec::new();
    let mut complete = true;
    let list = shared.items.list(ItemKind::Directive);
    let ids: Vec<ItemId> = list.iter().filter(|e| e.space != Space::System).map(|e| e.id.clone()).collect();
    for alone in known.entry(root.clone()).or_insert_with(|| alone(shared, root)).iter() {
        queue.push_back(root_thread(root, alone));
    }
    while let Some(thread) = queue.pop_front() {
        if !seen.insert((thread.directive.clone(), thread.sets.clone(), thread.hooks.clone(), thread.asks)) {
            // Keep the repeated thread: `spawns` finds cycles by it.
            if thread.trace.len() > 1 {
                threads.push(thread);
            }
            continue;
        }
        if threads.len() >= MAX_THREADS || queue.len() > MAX_THREADS * 8 {
            complete = false;
            break;
        }
        if thread.trace.len() <= MAX_SPAWN_DEPTH {
            for (id, by, span, extra, named) in children(shared, &mut known, &thread, &ids) {
                for alone in known.entry(id.clone()).or_insert_with(|| alone(shared, &id)).iter() {
                    queue.push_back(child_thread(&thread, &id, alone, (&by, span, &extra, named)));
                }
            }
        }
        threads.push(thread);
    }
    Reached { threads, complete }
}

type Child = (ItemId, String, Option<Span>, Vec<String>, bool);

/// Returns the directives that a thread can start: those that a line names, then others that its sets allow.
fn children(
    shared: &Shared<'_, '_>,
    known: &mut BTreeMap<ItemId, Vec<RouteSummary>>,
    thread: &Thread,
    ids: &[ItemId],
) -> Vec<Child> {
    let mut found: Vec<Child> = Vec::new();
    let all = known.entry(thread.directive.clone()).or_insert_with(|| alone(shared, &thread.directive));
    for (id, by, span, extra) in all.iter().flat_map(|alone| &alone.named) {
        if !found.iter().any(|(known, by_known, ..)| known == id && by_known == by) {
            found.push((id.clone(), by.clone(), Some(*span), extra.clone(), true));
        }
    }
    for id in ids {
        let capability = format!("rye.execute.directive.{}", id.dotted());
        let allowed = thread.sets.iter().all(|set| set.iter().any(|grant| Glob::new(grant).matches(&capability)));
        let grant = thread.sets.first().and_then(|set| set.iter().find(|grant| Glob::new(grant).matches(&capability)));
        if let Some(grant) = grant.filter(|_| allowed && !found.iter().any(|(known, ..)| known == id)) {
            let span = thread.trace.last().and_then(|step| step.granted);
            found.push((id.clone(), format!("`{grant}`"), span, Vec::new(), false));
        }
    }
    found
}

fn root_thread(id: &ItemId, alone: &RouteSummary) -> Thread {
    let own = alone.grants.clone().unwrap_or_default();
    let step = Step {
        directive: id.clone(),
        by: "run".into(),
        span: None,
        named: true,
        declares: alone.grants.is_some(),
        grants: own.clone(),
        granted: alone.granted,
    };
    Thread {
        directive: id.clone(),
        trace: vec![step],
        sets: vec![own],
        hooks: alone.hooks.clone(),
        asks: alone.asks,
        spend: alone.spend,
        net: alone.net.clone(),
    }
}

/// Returns a child with its own set and its parent's; without `<permissions>`, only the parent's apply. The grants of
/// the hook that starts the child count as its parent's.
fn child_thread(
    parent: &Thread,
    id: &ItemId,
    alone: &RouteSummary,
    how: (&str, Option<Span>, &[String], bool),
) -> Thread {
    let (by, span, extra, named) = how;
    let mut sets = parent.sets.clone();
    if !extra.is_empty() {
        for set in &mut sets {
            set.extend(extra.iter().cloned());
        }
    }
    if let Some(own) = &alone.grants {
        sets.insert(0, own.clone());
    }
    let mut trace = parent.trace.clone();
    trace.push(Step {
        directive: id.clone(),
        by: by.to_owned(),
        span,
        named,
        declares: alone.grants.is_some(),
        grants: sets.first().cloned().unwrap_or_default(),
        granted: alone.granted,
    });
    Thread {
        directive: id.clone(),
        trace,
        sets,
        hooks: parent.hooks.union(&alone.hooks).cloned().collect(),
        asks: parent.asks || alone.asks,
        spend: parent.spend.min(alone.spend),
        net: alone.net.clone().or_else(|| parent.net.clone().filter(|_| alone.grants.is_none())),
    }
}

/// Returns a directive on every route it can take; empty if it is broken, which `rye check` reports.
fn alone(shared: &Shared<'_, '_>, id: &ItemId) -> Vec<RouteSummary> {
    let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
    let (all, _) = compose_all(shared.items, id, &launch, &mut Diagnostics::new());
    all.iter().map(|composed| summarize_route(shared, composed)).collect()
}

fn summarize_route(shared: &Shared<'_, '_>, composed: &Composed) -> RouteSummary {
    let permissions = composed.permissions.as_ref();
    let grants = permissions.map(|p| p.value.grants.iter().map(|g| g.pattern.0.clone()).collect::<Vec<_>>());
    let net = permissions.and_then(|p| p.value.grants.iter().find(|g| !g.net.is_empty()));
    let limits = resolve(&composed.limits.defaults, &composed.limits.directive, &[], &[]).map(|r| r.limits);
    let planned = capabilities::lower(composed, None, &shared.items.sources(), &mut Origins::default());
    let mut named = Vec::new();
    for hook in composed.hooks.iter().filter(|h| h.is_live() && h.decl.has_static_id()) {
        if let Some(HookAction::Execute { item_type: ItemKind::Directive, item_id, .. }) =
            hook.decl.action.as_ref().map(|a| &a.node)
            && let Ok(id) = ItemId::parse(item_id)
        {
            let extra = hook.decl.grants.iter().map(|g| g.node.0.clone()).collect();
            named.push((id, format!("hook {}", hook.decl.id.node), hook.decl.item_span(), extra));
        }
    }
    if let Some(leaf) = composed.leaf() {
        let mentioned = mentions(leaf).into_iter().filter(|m| m.kind == ItemKind::Directive);
        let there = mentioned.filter(|m| shared.items.exists(ItemKind::Directive, &m.id));
        named.extend(there.map(|m| (m.id, "body".to_owned(), m.span, Vec::new())));
    }
    RouteSummary {
        granted: permissions.and_then(|p| p.origin.span),
        hooks: composed.hooks.iter().filter(|h| h.is_live()).map(|h| h.decl.id.node.clone()).collect(),
        asks: !capabilities::unacknowledged(&planned, shared).is_empty(),
        // `rye check` reports unreadable limits; the directive may spend nothing.
        spend: limits.map_or(Nanos::ZERO, |limits| limits.spend),
        net: net.map(|g| format!("{} with net {}", g.pattern.0, g.net.join(", "))),
        grants,
        named,
    }
}

impl Thread {
    /// Returns a capability that matches the pattern and that every set allows. If the search is too complex, returns
    /// the pattern itself: a capability that is not disproved counts as reached.
    pub fn reaches(&self, pattern: &str) -> Option<String> {
        // Each choice is a conjunction of patterns, dropped as soon as nothing can match it.
        let mut choices: Vec<Vec<Glob>> = vec![vec![Glob::new(pattern)]];
        for set in &self.sets {
            let mut next = Vec::new();
            for choice in &choices {
                for grant in set {
                    let mut both = choice.clone();
                    both.push(Glob::new(grant));
                    match witness(&both.iter().collect::<Vec<_>>(), &[]) {
                        Witness::None => {}
                        Witness::Found(_) => next.push(both),
                        Witness::TooComplex => return Some(pattern.to_owned()),
                    }
                    if next.len() > MAX_CHOICES {
                        return Some(pattern.to_owned());
                    }
                }
            }
            choices = next;
        }
        choices.first().and_then(|choice| match witness(&choice.iter().collect::<Vec<_>>(), &[]) {
            Witness::Found(example) => Some(example),
            Witness::TooComplex => Some(pattern.to_owned()),
            Witness::None => None,
        })
    }

    /// Returns true if this thread or a spawn parent needs an approval (`ask`) or has a live hook of that id.
    pub fn passes(&self, gate: &str) -> bool {
        if gate == "ask" { self.asks } else { self.hooks.contains(gate) }
    }
}
