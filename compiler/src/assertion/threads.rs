//! The threads that a directive can lead to: the thread of the directive itself, and threads of directives that its
//! body or a hook names, or that a grant allows it to start. A thread has several permission sets, and an action is
//! allowed only if every set allows the action (`language.md` 9).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use rye_grammar::{ItemId, Sources, Span};

use crate::compose::{Composed, ComposedHook, compose_all};
use crate::diagnostics::Diagnostics;
use crate::hook::{HookAction, HookPoint, PlanVerdict};
use crate::item::HookDecl;
use crate::item_graph::mentions;
use crate::lower::cache::LowerContext;
use crate::lower::{capabilities, origin};
use crate::plan::Origins;
use crate::resolve::{Inputs, Launch};
use crate::semantics::glob::Glob;
use crate::semantics::glob::inclusion::{Witness, witness};
use crate::semantics::limits::{LimitName, resolve};
use crate::semantics::money::Nanos;
use crate::validate::{may_apply, may_fire_in};
use crate::world::{ItemKind, Space};

/// Maximum number of threads examined per directive.
const MAX_THREADS: usize = 400;
/// Maximum number of threads waiting to be examined per directive.
const MAX_QUEUED_THREADS: usize = MAX_THREADS * 8;
/// Maximum number of spawned threads that one report examines, over all directives. The root thread of each directive
/// does not count, and is always examined.
const MAX_SPAWNED_THREADS: usize = 500_000;
/// Maximum number of spawns from the first thread down to a thread that is examined.
const MAX_SPAWN_DEPTH: usize = 5;
/// Maximum number of combinations that [`PossibleThread::find_reached`] tries; a combination has one grant of each
/// permission set.
const MAX_CHOICES: usize = 2_000;

pub struct ReachableThreads {
    pub threads: Vec<PossibleThread>,
    pub complete: bool,
}

/// A search for the threads of several directives. Each directive is composed once, and the directives that a set of
/// grants allows are looked up once.
pub struct ThreadSearch<'s, 'i, 'w> {
    shared: &'s LowerContext<'i, 'w>,
    /// The hooks that assertions name as gates.
    gates: BTreeSet<String>,
    /// The directives of the project and user spaces, each with its `execute` capability.
    directives: Vec<(ItemId, String)>,
    routes: BTreeMap<ItemId, Rc<[RouteSummary]>>,
    /// The directives that a thread may start, by the permission sets of the thread. Each directive is an index into
    /// `directives`, together with the grant of the thread's own set that allows the start.
    allowed: BTreeMap<PermissionSets, Rc<[(usize, String)]>>,
    /// Number of threads that the search may still spawn, initially [`MAX_SPAWNED_THREADS`].
    remaining: usize,
}

/// Sets of grants that must all allow an action, without repeated sets.
type PermissionSets = Vec<Rc<[String]>>;

/// A thread that could run.
#[derive(Debug, Clone)]
pub struct PossibleThread {
    pub directive: ItemId,
    pub trace: Vec<SpawnStep>,
    /// The thread's own permission set first, then those of its spawn parents. An action is allowed only if every set
    /// allows it.
    sets: PermissionSets,
    /// Hooks that can fire in the thread or in a spawn parent.
    hooks: BTreeSet<String>,
    needs_approval: bool,
    /// Maximum amount that the thread may spend. `None` if hooks may raise the limit of the thread and of each spawn
    /// parent.
    pub spend: Option<Nanos>,
    /// A hook of the thread or of a spawn parent that may raise the limit `spend`: its id, with file and line. `None`
    /// if there is no such hook.
    pub raised_by: Option<String>,
    /// The grants that name hosts (`net`).
    pub net: Rc<[NetGrant]>,
    /// The capabilities of the calls that the thread's own hooks make. The thread reads the results of these calls.
    hook_calls: Vec<String>,
    /// Knowledge that every continuation of the thread contains.
    pub survivors: Rc<BTreeSet<ItemId>>,
}

/// A grant with `net`: its pattern, and its hosts separated by commas.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetGrant {
    pub pattern: String,
    pub hosts: String,
}

#[derive(Debug, Clone)]
pub struct SpawnStep {
    pub directive: ItemId,
    pub by: String,
    pub span: Option<Span>,
    /// True if the body or a hook of the parent names the directive; false if only a grant allows its start.
    pub named: bool,
    /// True if the directive has `<permissions>` of its own.
    pub declares: bool,
    pub grants: Vec<String>,
    pub granted: Option<Span>,
    /// The grants of the hook that starts the directive. They count as grants of the parent.
    pub of_hook: Vec<String>,
}

/// The properties of a directive on one route, without those of its spawn parents.
struct RouteSummary {
    grants: Option<Vec<String>>,
    granted: Option<Span>,
    hooks: BTreeSet<String>,
    needs_approval: bool,
    /// The limit `spend`; `None` if the hook `raised_by` may raise it.
    spend: Option<Nanos>,
    raised_by: Option<String>,
    net: Rc<[NetGrant]>,
    hook_calls: Vec<String>,
    survivors: Rc<BTreeSet<ItemId>>,
    named: Vec<(ItemId, String, Span, Vec<String>)>,
}

impl<'s, 'i, 'w> ThreadSearch<'s, 'i, 'w> {
    /// Creates a search. `gates` contains the ids of the hooks that assertions name.
    pub fn new(shared: &'s LowerContext<'i, 'w>, gates: BTreeSet<String>) -> Self {
        let list = shared.items.list(ItemKind::Directive);
        let own = list.iter().filter(|e| e.space != Space::System);
        let directives = own.map(|e| (e.id.clone(), format!("rye.execute.directive.{}", e.id.dotted()))).collect();
        Self {
            shared,
            gates,
            directives,
            routes: BTreeMap::new(),
            allowed: BTreeMap::new(),
            remaining: MAX_SPAWNED_THREADS,
        }
    }

    /// Finds the threads that a directive can lead to, breadth first.
    pub fn find_threads(&mut self, root: &ItemId) -> ReachableThreads {
        let mut queue: VecDeque<PossibleThread> =
            self.routes_of(root).iter().map(|alone| root_thread(root, alone)).collect();
        let mut seen = BTreeSet::new();
        let mut threads = Vec::new();
        let mut complete = true;
        while let Some(thread) = queue.pop_front() {
            let (sets, hooks, survivors) = (thread.sets.clone(), thread.hooks.clone(), thread.survivors.clone());
            if !seen.insert((thread.directive.clone(), sets, hooks, thread.needs_approval, survivors)) {
                // Keep the repeated thread: its trace may close a cycle, which the report lists.
                if thread.trace.len() > 1 {
                    threads.push(thread);
                }
                continue;
            }
            if threads.len() >= MAX_THREADS {
                complete = false;
                break;
            }
            if thread.trace.len() <= MAX_SPAWN_DEPTH {
                complete &= self.spawn_children(&thread, &mut queue);
            }
            threads.push(thread);
        }
        ReachableThreads { threads, complete }
    }

    /// Queues the children that a thread can start: first the directives that the thread's directive names in its body,
    /// hooks and grants, then the other directives that the permission sets of the thread allow. Returns false if a
    /// bound left some children out.
    fn spawn_children(&mut self, thread: &PossibleThread, queue: &mut VecDeque<PossibleThread>) -> bool {
        let own = self.routes_of(&thread.directive);
        let mut named: BTreeMap<&ItemId, BTreeSet<&str>> = BTreeMap::new();
        for (id, by, span, extra) in own.iter().flat_map(|alone| &alone.named) {
            if named.entry(id).or_default().insert(by) && !self.spawn(thread, id, (by, Some(*span), extra, true), queue)
            {
                return false;
            }
        }
        let span = thread.trace.last().and_then(|step| step.granted);
        for (index, grant) in self.allowed_by(&thread.sets).iter() {
            let Some(id) = self.directives.get(*index).map(|(id, _)| id.clone()) else { continue };
            if !named.contains_key(&id) && !self.spawn(thread, &id, (&format!("`{grant}`"), span, &[], false), queue) {
                return false;
            }
        }
        true
    }

    /// Queues one possible thread for each route of the child `id`. Returns false, and queues no further thread, if the
    /// maximum number of queued threads or of all threads is reached.
    fn spawn(
        &mut self,
        parent: &PossibleThread,
        id: &ItemId,
        how: (&str, Option<Span>, &[String], bool),
        queue: &mut VecDeque<PossibleThread>,
    ) -> bool {
        for alone in self.routes_of(id).iter() {
            if queue.len() >= MAX_QUEUED_THREADS || self.remaining == 0 {
                return false;
            }
            self.remaining -= 1;
            queue.push_back(child_thread(parent, id, alone, how));
        }
        true
    }

    /// Returns the directives that a thread with these permission sets may start, because each of the sets allows the
    /// start. An entry holds the index of the directive, and the grant in the first set that matches the start.
    fn allowed_by(&mut self, sets: &PermissionSets) -> Rc<[(usize, String)]> {
        if let Some(known) = self.allowed.get(sets) {
            return known.clone();
        }
        let globs: Vec<Vec<Glob>> = sets.iter().map(|set| set.iter().map(|grant| Glob::new(grant)).collect()).collect();
        let grant_for = |capability: &str| {
            let first = globs.first()?.iter().position(|glob| glob.matches(capability))?;
            let rest = globs.iter().skip(1).all(|set| set.iter().any(|glob| glob.matches(capability)));
            sets.first().filter(|_| rest)?.get(first).cloned()
        };
        let all = self.directives.iter().enumerate();
        let found: Rc<[(usize, String)]> =
            all.filter_map(|(index, (_, capability))| Some((index, grant_for(capability)?))).collect();
        self.allowed.insert(sets.clone(), found.clone());
        found
    }

    fn routes_of(&mut self, id: &ItemId) -> Rc<[RouteSummary]> {
        let summarize = || route_summaries(self.shared, &self.gates, id).into();
        self.routes.entry(id.clone()).or_insert_with(summarize).clone()
    }
}

fn root_thread(id: &ItemId, alone: &RouteSummary) -> PossibleThread {
    let own = alone.grants.clone().unwrap_or_default();
    let step = SpawnStep {
        directive: id.clone(),
        by: "run".into(),
        span: None,
        named: true,
        declares: alone.grants.is_some(),
        grants: own.clone(),
        granted: alone.granted,
        of_hook: Vec::new(),
    };
    PossibleThread {
        directive: id.clone(),
        trace: vec![step],
        sets: vec![own.into()],
        hooks: alone.hooks.clone(),
        needs_approval: alone.needs_approval,
        spend: alone.spend,
        raised_by: alone.raised_by.clone(),
        net: alone.net.clone(),
        hook_calls: alone.hook_calls.clone(),
        survivors: alone.survivors.clone(),
    }
}

/// Returns the child thread of `parent` that runs the directive `id`. The child has the permission sets of the parent
/// and, if the directive has `<permissions>`, a set of its own. If a hook starts the child, the grants of the hook are
/// added to every set of the parent. `how` holds the values for the fields `by`, `span`, `of_hook` and `named` of
/// [`SpawnStep`].
fn child_thread(
    parent: &PossibleThread,
    id: &ItemId,
    alone: &RouteSummary,
    how: (&str, Option<Span>, &[String], bool),
) -> PossibleThread {
    let (by, span, extra, named) = how;
    let mut sets = parent.sets.clone();
    if !extra.is_empty() {
        for set in &mut sets {
            *set = set.iter().chain(extra).cloned().collect();
        }
    }
    if let Some(own) = &alone.grants {
        // A repeated set would restrict nothing further. Without repeats, a recursive directive has equal sets at every
        // depth, so that the search ends.
        sets.retain(|set| **set != **own);
        sets.insert(0, own.as_slice().into());
    }
    let mut trace = parent.trace.clone();
    trace.push(SpawnStep {
        directive: id.clone(),
        by: by.to_owned(),
        span,
        named,
        declares: alone.grants.is_some(),
        grants: sets.first().map(|set| set.to_vec()).unwrap_or_default(),
        granted: alone.granted,
        of_hook: extra.to_vec(),
    });
    PossibleThread {
        directive: id.clone(),
        trace,
        sets,
        hooks: parent.hooks.union(&alone.hooks).cloned().collect(),
        needs_approval: parent.needs_approval || alone.needs_approval,
        // A child spends money of its parent, so the bound of the parent holds even if a hook of the child raises the
        // limit.
        spend: parent.spend.into_iter().chain(alone.spend).min(),
        raised_by: alone.raised_by.clone().or_else(|| parent.raised_by.clone()),
        net: if alone.grants.is_none() { parent.net.clone() } else { alone.net.clone() },
        hook_calls: alone.hook_calls.clone(),
        survivors: alone.survivors.clone(),
    }
}

/// Returns a summary of a directive for every route; empty if the directive has errors, which `rye check` reports.
fn route_summaries(shared: &LowerContext<'_, '_>, gates: &BTreeSet<String>, id: &ItemId) -> Vec<RouteSummary> {
    let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
    let (all, _) = compose_all(shared.items, id, &launch, &mut Diagnostics::new());
    all.iter().map(|composed| summarize_route(shared, gates, composed)).collect()
}

fn summarize_route(shared: &LowerContext<'_, '_>, gates: &BTreeSet<String>, composed: &Composed) -> RouteSummary {
    let permissions = composed.permissions.as_ref();
    let grants = permissions.map(|p| p.value.grants.iter().map(|g| g.pattern.0.clone()).collect::<Vec<_>>());
    let with_hosts = permissions.iter().flat_map(|p| &p.value.grants).filter(|g| !g.net.is_empty());
    let net = with_hosts.map(|g| NetGrant { pattern: g.pattern.0.clone(), hosts: g.net.join(",") }).collect();
    let limits = resolve(&composed.limits.defaults, &composed.limits.directive, &[], &[]).map(|r| r.limits);
    let planned = capabilities::lower(composed, None, &shared.items.sources(), &mut Origins::default());
    let raising = composed.hooks.iter().find(|hook| raises_spend(hook));
    let raised_by = raising.map(|hook| describe_hook(&shared.items.sources(), hook));
    // Only the hooks that an assertion names need a proof that they can fire.
    let gates = composed
        .hooks
        .iter()
        .filter(|h| h.is_live() && (!gates.contains(&h.decl.id.node) || may_fire_in(shared.items, composed, h)));
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
        hooks: gates.map(|h| h.decl.id.node.clone()).collect(),
        needs_approval: !capabilities::unacknowledged_grants(&planned, shared).is_empty(),
        // `rye check` reports unreadable limits; here, a directive with unreadable limits counts as one that spends
        // nothing.
        spend: limits.map_or(Some(Nanos::ZERO), |limits| Some(limits.spend)).filter(|_| raised_by.is_none()),
        raised_by,
        net,
        hook_calls: composed.hooks.iter().filter(|h| h.is_live()).filter_map(|h| hook_call(&h.decl)).collect(),
        survivors: Rc::new(surviving_items(composed)),
        grants,
        named,
    }
}

/// Returns true if a live hook on the event `limit` may raise the limit `spend`. The action of the hook raises the
/// limit, or executes an item, which can return such an action.
fn raises_spend(hook: &ComposedHook) -> bool {
    let raises = match hook.decl.action.as_ref().map(|action| &action.node) {
        Some(HookAction::Raise { limit, .. }) => LimitName::parse(limit).is_none_or(|name| name == LimitName::Spend),
        Some(action) => matches!(action, HookAction::Execute { .. }),
        None => false,
    };
    raises && hook.is_live() && hook.decl.event == HookPoint::Limit && may_apply(&hook.decl, LimitName::Spend)
}

/// Returns the id of a hook with its file and line.
fn describe_hook(sources: &Sources, hook: &ComposedHook) -> String {
    let id = &hook.decl.id.node;
    match origin::plan_place(sources, hook.decl.span) {
        Some(place) => format!("`{id}` ({}:{})", place.file, place.line),
        None => format!("`{id}`"),
    }
}

/// Returns the capability for the item that a hook executes or fetches; `None` for other actions, and if the item's id
/// contains a placeholder.
fn hook_call(hook: &HookDecl) -> Option<String> {
    let action = &hook.action.as_ref()?.node;
    let (kind, id) = action.item().filter(|_| hook.has_static_id())?;
    let primary = if matches!(action, HookAction::Execute { .. }) {
        "execute"
    } else if matches!(action, HookAction::Fetch { .. }) {
        "fetch"
    } else {
        return None;
    };
    Some(format!("rye.{primary}.{}.{}", kind.as_str(), id.replace('/', ".")))
}

/// Returns the knowledge that every continuation of a thread contains: the knowledge of the system prompt, and of the
/// `thread_continued` hooks that always fire. Knowledge in the messages of the thread does not count, because a
/// continuation may drop these messages. If a hook may replace the system prompt, the knowledge of the system prompt
/// does not count.
fn surviving_items(composed: &Composed) -> BTreeSet<ItemId> {
    let again = |hook: &&ComposedHook| {
        let is_sent = matches!(hook.decl.event, HookPoint::BuildSystemPrompt | HookPoint::ThreadContinued);
        is_sent && hook.verdict == PlanVerdict::Fires
    };
    if composed.hooks.iter().any(may_replace_system_prompt) {
        let continued = |hook: &&ComposedHook| hook.decl.event == HookPoint::ThreadContinued;
        let hooks = composed.hooks.iter().filter(again).filter(continued);
        return hooks.filter_map(|hook| hook.decl.fetched.clone()).collect();
    }
    let hooks = composed.hooks.iter().filter(again).filter_map(|hook| hook.decl.fetched.clone());
    composed.system.iter().map(|item| item.id.clone()).chain(hooks).collect()
}

/// Returns true if a hook may replace the system prompt before the model is called: by its own text, or by the result of
/// an item that it executes.
fn may_replace_system_prompt(hook: &ComposedHook) -> bool {
    let replaces =
        |action: &HookAction| action.replaces_system_prompt() || matches!(action, HookAction::Execute { .. });
    let action = hook.decl.action.as_ref().map(|action| &action.node);
    hook.is_live() && hook.decl.event == HookPoint::BeforeAgentStart && action.is_some_and(replaces)
}

/// A memo of the results of [`PossibleThread::reaches`], by the permission sets of the thread and the pattern. Most
/// threads of a project have the same sets.
pub type ReachMemo = BTreeMap<(PermissionSets, String), Option<String>>;

impl PossibleThread {
    /// Returns the permission sets that must all allow an action.
    pub fn sets(&self) -> &[Rc<[String]>] {
        &self.sets
    }

    /// Returns a capability that matches the pattern and that every permission set of the thread allows; `None` if
    /// there is no such capability. `memo` stores the results for later calls.
    pub fn reaches(&self, pattern: &str, memo: &mut ReachMemo) -> Option<String> {
        let find = || self.find_reached(pattern);
        memo.entry((self.sets.clone(), pattern.to_owned())).or_insert_with(find).clone()
    }

    /// Returns a capability that matches the pattern and whose result the thread reads: a capability that the thread
    /// itself may use, else one that its own hooks use; `None` if there is none.
    pub fn reads_from(&self, pattern: &str, memo: &mut ReachMemo) -> Option<String> {
        let glob = Glob::new(pattern);
        let of_hook = || self.hook_calls.iter().find(|call| glob.matches(call)).cloned();
        self.reaches(pattern, memo).or_else(of_hook)
    }

    /// Returns a capability that matches the pattern and that every set allows; `None` if there is no such capability.
    /// If the search is too complex, returns the pattern itself: a capability that is not disproved counts as reached.
    fn find_reached(&self, pattern: &str) -> Option<String> {
        // Each choice is a list of patterns that must all match. A choice is dropped as soon as no capability can match
        // it.
        let mut choices: Vec<Vec<Glob>> = vec![vec![Glob::new(pattern)]];
        for set in &self.sets {
            let mut next = Vec::new();
            for choice in &choices {
                for grant in set.iter() {
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

    /// Returns true if this thread or a spawn parent has the gate. The gate `ask` is an approval that a grant requires,
    /// because its risk is not acknowledged. Any other gate is the id of a live hook.
    pub fn passes(&self, gate: &str) -> bool {
        if gate == "ask" { self.needs_approval } else { self.hooks.contains(gate) }
    }
}
