//! The threads that a directive can lead to: the thread of the directive itself, and threads of directives that its
//! body or a hook names, or that a grant allows it to start. A thread has several permission sets, and an action is
//! allowed only if every set allows the action (`language.md`, Capabilities).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use rye_grammar::{ItemId, Span};

use super::flow::{FlowState, TextFlow};
use super::route_summary::{ApprovalNeed, NetGrant, RouteSummary, route_summaries};
use super::session::SessionCommands;
use crate::approvals::HeadlessPolicy;
use crate::assertion_file::Assertions;
use crate::lower::cache::LowerContext;
use crate::semantics::glob::Glob;
use crate::semantics::glob::inclusion::{Witness, witness};
use crate::semantics::money::Nanos;
use crate::world::{ItemKind, Space};

/// Maximum number of threads examined per directive.
const MAX_THREADS: usize = 400;
/// Maximum number of threads waiting to be examined per directive.
const MAX_QUEUED_THREADS: usize = MAX_THREADS * 8;
/// Maximum number of spawned threads that one report examines, over all directives. The root thread of each directive
/// does not count, and is always examined.
const MAX_SPAWNED_THREADS: usize = 500_000;
/// Maximum number of starts that one report considers, over all directives. A start that leads to a repeated thread
/// counts too.
pub const MAX_STARTS: usize = 2_000_000;
/// Maximum number of starts that one report lists, over the states of all threads. A start counts once, however many
/// threads have its state.
const MAX_LISTED_STARTS: usize = 100_000;
/// Maximum number of spawns from the first thread down to a thread that is examined.
const MAX_SPAWN_DEPTH: usize = 5;
/// Maximum number of combinations that [`PossibleThread::find_reached`] tries. A combination has one grant of each
/// permission set.
const MAX_CHOICES: usize = 2_000;

pub struct ReachableThreads {
    pub threads: Vec<PossibleThread>,
    /// Number of threads that the search leaves out because an earlier thread has equal properties.
    pub left_out: usize,
    pub complete: bool,
}

/// A search for the threads of several directives. Each directive is composed once, and the directives that a set of
/// grants allows are looked up once.
pub struct ThreadSearch<'s, 'i, 'w> {
    shared: &'s LowerContext<'i, 'w>,
    /// The hooks that assertions name as gates.
    gates: BTreeSet<String>,
    headless_policy: HeadlessPolicy,
    commands: SessionCommands,
    /// The directives of the project and user spaces, each with its `execute` capability.
    directives: Vec<(ItemId, String)>,
    routes: BTreeMap<ItemId, Rc<[RouteSummary]>>,
    /// The directives that a thread may start, by the permission sets of the thread. Each directive is an index into
    /// `directives`, together with the grant of the thread's own set that allows the start.
    allowed: BTreeMap<PermissionSets, Rc<[(usize, String)]>>,
    /// The states of all threads found so far, each with the number that identifies the state.
    states: BTreeMap<StateKey, usize>,
    /// The threads that a thread can start, by the number of its state.
    starts: BTreeMap<usize, Rc<[Start]>>,
    /// The declared starts of the examined threads: the parent, the child, and the cause.
    declared: BTreeSet<(ItemId, ItemId, String)>,
    /// Number of threads that the search may still spawn, initially [`MAX_SPAWNED_THREADS`].
    remaining: usize,
    /// Number of starts that the search may still consider, initially [`MAX_STARTS`].
    remaining_starts: usize,
    /// Total number of starts in all lists of `starts`.
    listed_starts: usize,
}

/// The parts of a thread that decide which threads it can start and which texts it reads. The fields are those of
/// [`PossibleThread`].
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct StateKey {
    directive: ItemId,
    sets: PermissionSets,
    hooks: BTreeSet<String>,
    approval: ApprovalNeed,
    hook_calls: Vec<String>,
    context: Rc<[String]>,
    survivors: Rc<BTreeSet<ItemId>>,
    is_session: bool,
}

/// A way in which a thread can start a child thread.
struct Start {
    directive: ItemId,
    /// Index of the child's route.
    route: usize,
    /// The number that identifies the child's state. Equal states have equal numbers.
    state: usize,
    by: String,
    /// The line that names the directive; `None` if only a grant allows its start.
    span: Option<Span>,
    /// The grants of the hook that starts the directive.
    of_hook: Vec<String>,
    named: bool,
}

/// The properties of a thread that its state does not include: its spending, its hosts, and its route.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SpendingOfThread {
    spend: Option<Nanos>,
    raised_by: Option<String>,
    net: Rc<[NetGrant]>,
    route: usize,
}

impl SpendingOfThread {
    fn new(thread: &PossibleThread, route: usize) -> Self {
        Self { spend: thread.spend, raised_by: thread.raised_by.clone(), net: thread.net.clone(), route }
    }

    /// Returns the properties of a child that `parent` starts. `route` is the index of the child's route, and `alone` is
    /// the summary of this route for a thread without a parent.
    fn of_child(parent: &PossibleThread, alone: &RouteSummary, route: usize) -> Self {
        Self {
            // A child spends money of its parent, so the bound of the parent holds even if a hook of the child raises
            // the limit.
            spend: parent.spend.into_iter().chain(alone.spend).min(),
            raised_by: alone.raised_by.clone().or_else(|| parent.raised_by.clone()),
            net: if alone.grants.is_none() { parent.net.clone() } else { alone.net.clone() },
            route,
        }
    }
}

/// The threads that a search has found. The key is the state of a thread, with the texts that reach the thread
/// ([`TextFlow::texts_at`]). The value holds the different properties ([`SpendingOfThread`]) of the threads with this
/// key.
#[derive(Default)]
struct SeenThreads(BTreeMap<(usize, Vec<bool>), BTreeSet<SpendingOfThread>>);

/// The parts of a thread in which it differs from every earlier thread.
struct Novelty {
    is_new_state: bool,
    is_new_spending: bool,
}

impl SeenThreads {
    fn add(&mut self, state: usize, texts: Vec<bool>, spending: SpendingOfThread) -> Novelty {
        let state = (state, texts);
        let is_new_state = !self.0.contains_key(&state);
        let is_new_spending = self.0.entry(state).or_default().insert(spending);
        Novelty { is_new_state, is_new_spending }
    }
}

/// Sets of grants, without repeated sets. An action is permitted only if each of the sets permits it.
type PermissionSets = Vec<Rc<[String]>>;

/// A thread that a run of a directive could start, with the properties that assertions check.
#[derive(Debug, Clone)]
pub struct PossibleThread {
    pub directive: ItemId,
    pub trace: Vec<SpawnStep>,
    /// For each thread in `trace`, the number that identifies its state.
    states: Vec<usize>,
    /// The thread's own permission set, then the sets of its spawn parents. An action is allowed only if every set
    /// allows the action.
    sets: PermissionSets,
    /// Hooks that can fire in the thread or in a spawn parent.
    hooks: BTreeSet<String>,
    pub(super) approval: ApprovalNeed,
    /// Maximum amount that the thread may spend. `None` if hooks may raise the limit of the thread and of each spawn
    /// parent.
    pub spend: Option<Nanos>,
    /// A hook of the thread or of a spawn parent that may raise the limit `spend`: its id, with file and line. `None`
    /// if there is no such hook.
    pub raised_by: Option<String>,
    /// The grants that name hosts (`net`).
    pub net: Rc<[NetGrant]>,
    /// The capabilities of the calls that the hooks of the thread make. In a session, also the capabilities of the
    /// calls that commands make. The thread reads the results of these calls.
    pub(super) hook_calls: Vec<String>,
    /// The capabilities for fetching the knowledge that `<context>` names. The prompt contains the text of this
    /// knowledge.
    context: Rc<[String]>,
    /// True for the first thread of a chat with commands.
    pub(super) is_session: bool,
    /// Knowledge that every continuation of the thread contains.
    pub survivors: Rc<BTreeSet<ItemId>>,
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

impl<'s, 'i, 'w> ThreadSearch<'s, 'i, 'w> {
    /// Creates a search of the threads on which these assertions are checked.
    pub fn new(shared: &'s LowerContext<'i, 'w>, assertions: &Assertions) -> Self {
        let list = shared.items.list(ItemKind::Directive);
        let own = list.iter().filter(|e| e.space != Space::System);
        let directives = own.map(|e| (e.id.clone(), format!("rye.execute.directive.{}", e.id.dotted()))).collect();
        Self {
            shared,
            gates: assertions.gates(),
            headless_policy: HeadlessPolicy::from_settings(shared.items.world()),
            commands: SessionCommands::read(shared.items),
            directives,
            routes: BTreeMap::new(),
            allowed: BTreeMap::new(),
            states: BTreeMap::new(),
            starts: BTreeMap::new(),
            declared: BTreeSet::new(),
            remaining: MAX_SPAWNED_THREADS,
            remaining_starts: MAX_STARTS,
            listed_starts: 0,
        }
    }

    /// Finds the threads that a directive can lead to, breadth first. A thread is repeated if an earlier thread has an
    /// equal state and receives the same texts of `flow`. The search does not examine a repeated thread further,
    /// because the thread starts the same threads as the earlier thread. A repeated thread is left out, unless its
    /// spending is new or the report needs the thread.
    pub fn find_threads(&mut self, root: &ItemId, flow: &TextFlow) -> ReachableThreads {
        let mut seen = SeenThreads::default();
        let mut queue: VecDeque<(PossibleThread, usize, bool)> = VecDeque::new();
        for (route, thread) in self.root_threads(root).into_iter().enumerate() {
            let Some(state) = thread.states.last().copied() else { continue };
            let texts = flow.texts_at(&[], state);
            if seen.add(state, texts, SpendingOfThread::new(&thread, route)).is_new_state {
                queue.push_back((thread, state, false));
            }
        }
        let mut threads = Vec::new();
        let (mut complete, mut left_out) = (true, 0);
        while let Some((thread, state, is_repeated)) = queue.pop_front() {
            if is_repeated {
                threads.push(thread);
                continue;
            }
            if threads.len() >= MAX_THREADS {
                complete = false;
                break;
            }
            if thread.trace.len() <= MAX_SPAWN_DEPTH {
                let starts = self.starts_of(&thread, state);
                let texts = thread.states.iter().fold(Vec::new(), |above, state| flow.texts_at(&above, *state));
                complete &= starts.is_some();
                for start in starts.iter().flat_map(|starts| starts.iter()) {
                    if self.remaining_starts == 0 {
                        complete = false;
                        break;
                    }
                    self.remaining_starts -= 1;
                    let routes = self.routes_of(&start.directive);
                    let Some(alone) = routes.get(start.route) else { continue };
                    let spending = SpendingOfThread::of_child(&thread, alone, start.route);
                    let found = seen.add(start.state, flow.texts_at(&texts, start.state), spending);
                    let is_new = found.is_new_state || found.is_new_spending;
                    if !is_new && !self.is_needed(&thread, start) {
                        left_out += 1;
                        continue;
                    }
                    if queue.len() >= MAX_QUEUED_THREADS || self.remaining == 0 {
                        complete = false;
                        break;
                    }
                    self.remaining -= 1;
                    queue.push_back((child_thread(&thread, alone, start), start.state, !found.is_new_state));
                }
            }
            threads.push(thread);
        }
        ReachableThreads { threads, left_out, complete }
    }

    /// Returns the flow of texts through the threads that the directives `roots` can lead to. `sources` are patterns of
    /// the capabilities that return the texts. `declassifying` are the directives whose outputs contain no untrusted
    /// text. Each state of the threads is examined once.
    pub fn text_flow(
        &mut self,
        roots: &[ItemId],
        sources: &BTreeSet<&str>,
        declassifying: &BTreeSet<&str>,
        memo: &mut ReachMemo,
    ) -> TextFlow {
        let mut queue: VecDeque<PossibleThread> = roots.iter().flat_map(|root| self.root_threads(root)).collect();
        let mut states: BTreeMap<usize, FlowState> = BTreeMap::new();
        let mut readers: Vec<(String, BTreeMap<usize, String>)> =
            sources.iter().map(|pattern| ((*pattern).to_owned(), BTreeMap::new())).collect();
        while let Some(thread) = queue.pop_front() {
            let Some(state) = thread.states.last().copied().filter(|state| !states.contains_key(state)) else {
                continue;
            };
            self.remaining = self.remaining.saturating_sub(1);
            for (pattern, capabilities) in &mut readers {
                capabilities.extend(thread.reads_from(pattern, memo).map(|capability| (state, capability)));
            }
            let is_deep = thread.trace.len() > MAX_SPAWN_DEPTH;
            let starts = if is_deep { None } else { self.starts_of(&thread, state) };
            let starts = starts.unwrap_or_default();
            let declassifies = declassifying.contains(thread.directive.as_str());
            let children: BTreeSet<usize> = starts.iter().map(|start| start.state).collect();
            states.insert(state, FlowState { directive: thread.directive.clone(), declassifies, children });
            let mut queued = BTreeSet::new();
            for start in starts.iter().filter(|start| !states.contains_key(&start.state)) {
                let routes = self.routes_of(&start.directive);
                if let Some(alone) = routes.get(start.route).filter(|_| queued.insert(start.state)) {
                    queue.push_back(child_thread(&thread, alone, start));
                }
            }
        }
        TextFlow::new(states, readers)
    }

    /// Returns true if the report needs a repeated thread: its trace closes a cycle, or a source line declares its start
    /// for the first time.
    fn is_needed(&mut self, parent: &PossibleThread, start: &Start) -> bool {
        let closes_cycle = parent.trace.iter().any(|step| step.directive == start.directive);
        let declares =
            start.named && self.declared.insert((parent.directive.clone(), start.directive.clone(), start.by.clone()));
        closes_cycle || declares
    }

    /// Returns the threads that a thread with this state can start: first the threads of the directives that its
    /// directive names in its body, hooks and grants, then the threads of the other directives that its permission sets
    /// allow. `None` if too many starts are listed already.
    fn starts_of(&mut self, thread: &PossibleThread, state: usize) -> Option<Rc<[Start]>> {
        if let Some(known) = self.starts.get(&state) {
            return Some(known.clone());
        }
        if self.listed_starts >= MAX_LISTED_STARTS {
            return None;
        }
        let own = self.routes_of(&thread.directive);
        let of_commands = if thread.is_session { self.commands.starts.clone() } else { Vec::new() };
        let mut named: BTreeMap<&ItemId, BTreeSet<&str>> = BTreeMap::new();
        let mut starts = Vec::new();
        for (id, by, span, extra) in own.iter().flat_map(|alone| &alone.named).chain(&of_commands) {
            if named.entry(id).or_default().insert(by) {
                self.add_starts(thread, id, (by, Some(*span), extra, true), &mut starts);
            }
        }
        for (index, grant) in self.allowed_by(&thread.sets).iter() {
            let Some(id) = self.directives.get(*index).map(|(id, _)| id.clone()) else { continue };
            if !named.contains_key(&id) {
                self.add_starts(thread, &id, (&format!("`{grant}`"), None, &[], false), &mut starts);
            }
        }
        let starts: Rc<[Start]> = starts.into();
        self.listed_starts += starts.len();
        self.starts.insert(state, starts.clone());
        Some(starts)
    }

    /// Adds a start for each route of the child `id`. `how` holds the values for the fields `by`, `span`, `of_hook` and
    /// `named` of [`Start`].
    fn add_starts(
        &mut self,
        parent: &PossibleThread,
        id: &ItemId,
        (by, span, extra, named): (&str, Option<Span>, &[String], bool),
        starts: &mut Vec<Start>,
    ) {
        for (route, alone) in self.routes_of(id).iter().enumerate() {
            let (directive, by, of_hook) = (id.clone(), by.to_owned(), extra.to_vec());
            let mut start = Start { directive, route, state: 0, by, span, of_hook, named };
            start.state = self.state_of(&child_thread(parent, alone, &start));
            starts.push(start);
        }
    }

    /// Returns the number of a thread's state. Threads with equal numbers start the same threads, and the functions of
    /// assertions have equal results for them, apart from `spends_at_most` and `flows`.
    fn state_of(&mut self, thread: &PossibleThread) -> usize {
        let state = StateKey {
            directive: thread.directive.clone(),
            sets: thread.sets.clone(),
            hooks: thread.hooks.clone(),
            approval: thread.approval,
            hook_calls: thread.hook_calls.clone(),
            context: thread.context.clone(),
            survivors: thread.survivors.clone(),
            is_session: thread.is_session,
        };
        let next = self.states.len();
        *self.states.entry(state).or_insert(next)
    }

    /// Returns the threads in which a directive runs without a spawn parent: one thread for each route of the
    /// directive. If the commands of sessions have an effect, also returns a session's thread for each route.
    fn root_threads(&mut self, id: &ItemId) -> Vec<PossibleThread> {
        let routes = self.routes_of(id);
        let mut threads: Vec<PossibleThread> = routes.iter().map(|alone| root_thread(id, alone)).collect();
        if !self.commands.is_empty() {
            let sessions = routes.iter().map(|alone| self.commands.to_session(root_thread(id, alone)));
            threads.extend(sessions);
        }
        for thread in &mut threads {
            thread.states.push(self.state_of(thread));
        }
        threads
    }

    /// Returns the number of routes of a directive without errors.
    pub fn route_count(&mut self, id: &ItemId) -> usize {
        self.routes_of(id).len()
    }

    /// Returns the number of spawned threads that the search has examined so far.
    #[cfg(test)]
    pub fn examined(&self) -> usize {
        MAX_SPAWNED_THREADS - self.remaining
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
        let summarize = || route_summaries(self.shared, (&self.gates, self.headless_policy), id).into();
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
        states: Vec::new(),
        sets: vec![own.into()],
        hooks: alone.hooks.clone(),
        approval: alone.approval,
        spend: alone.spend,
        raised_by: alone.raised_by.clone(),
        net: alone.net.clone(),
        hook_calls: alone.hook_calls.clone(),
        context: alone.context.clone(),
        is_session: false,
        survivors: alone.survivors.clone(),
    }
}

/// Returns the child thread of `parent` that a start creates. The child has the permission sets of the parent and, if
/// its directive has `<permissions>`, a set of its own. If a hook starts the child, the grants of the hook are added to
/// every set of the parent. `alone` is the summary of the child's route.
fn child_thread(parent: &PossibleThread, alone: &RouteSummary, start: &Start) -> PossibleThread {
    let mut sets = parent.sets.clone();
    if !start.of_hook.is_empty() {
        for set in &mut sets {
            *set = set.iter().chain(&start.of_hook).cloned().collect();
        }
    }
    if let Some(own) = &alone.grants {
        // A repeated set would restrict nothing further. Without repeats, a recursive directive has equal sets at every
        // depth, so that the search ends.
        sets.retain(|set| **set != **own);
        sets.insert(0, own.as_slice().into());
    }
    // If only a grant allows the start, its place is the `<permissions>` of the parent or, if the parent has none, of
    // the nearest ancestor that has some.
    let granted = || parent.trace.iter().rev().find_map(|step| step.granted);
    let mut trace = parent.trace.clone();
    trace.push(SpawnStep {
        directive: start.directive.clone(),
        by: start.by.clone(),
        span: start.span.or_else(granted),
        named: start.named,
        declares: alone.grants.is_some(),
        grants: sets.first().map(|set| set.to_vec()).unwrap_or_default(),
        granted: alone.granted,
        of_hook: start.of_hook.clone(),
    });
    let states = parent.states.iter().copied().chain([start.state]).collect();
    let SpendingOfThread { spend, raised_by, net, route: _ } = SpendingOfThread::of_child(parent, alone, start.route);
    PossibleThread {
        directive: start.directive.clone(),
        trace,
        states,
        sets,
        hooks: parent.hooks.union(&alone.hooks).cloned().collect(),
        approval: parent.approval.max(alone.approval),
        spend,
        raised_by,
        net,
        hook_calls: alone.hook_calls.clone(),
        context: alone.context.clone(),
        is_session: false,
        survivors: alone.survivors.clone(),
    }
}

/// A memo of the results of [`PossibleThread::reaches`], by the permission sets of the thread and the pattern. Most
/// threads of a project have the same sets.
pub type ReachMemo = BTreeMap<(PermissionSets, String), Option<String>>;

impl PossibleThread {
    /// Returns the permission sets that must all allow an action.
    pub fn sets(&self) -> &[Rc<[String]>] {
        &self.sets
    }

    /// Returns the numbers of the states of the spawn chain, from the first thread to this one.
    pub fn states(&self) -> &[usize] {
        &self.states
    }

    /// Returns a capability that matches the pattern and that every permission set of the thread allows; `None` if
    /// there is no such capability. `memo` stores the results for later calls.
    pub fn reaches(&self, pattern: &str, memo: &mut ReachMemo) -> Option<String> {
        let find = || self.find_reached(pattern);
        memo.entry((self.sets.clone(), pattern.to_owned())).or_insert_with(find).clone()
    }

    /// Returns a capability that matches the pattern and that the thread may use. If there is no such capability,
    /// returns a matching capability that the thread's own hooks use; `None` if there is none either.
    pub fn uses(&self, pattern: &str, memo: &mut ReachMemo) -> Option<String> {
        let glob = Glob::new(pattern);
        let of_hook = || self.hook_calls.iter().find(|call| glob.matches(call)).cloned();
        self.reaches(pattern, memo).or_else(of_hook)
    }

    /// Returns a capability that matches the pattern and whose result the thread reads. The result is a capability that
    /// the thread uses, or else a capability for knowledge that `<context>` names; `None` if there is neither.
    pub fn reads_from(&self, pattern: &str, memo: &mut ReachMemo) -> Option<String> {
        let glob = Glob::new(pattern);
        let of_context = || self.context.iter().find(|capability| glob.matches(capability)).cloned();
        self.uses(pattern, memo).or_else(of_context)
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
    /// with and without a terminal. Any other gate is the id of a live hook.
    pub fn passes(&self, gate: &str) -> bool {
        if gate == "ask" { self.approval == ApprovalNeed::Always } else { self.hooks.contains(gate) }
    }
}
