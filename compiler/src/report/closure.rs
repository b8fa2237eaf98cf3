//! The directives that a plan can start, directly or through other directives: by its grants, its hooks and its
//! continuation. The result is an upper bound: a listed directive may still be refused at run time.

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

/// The compiled plans of one directive, or the reason why the directive has none.
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

/// The directives of a project, and the directives that each of them can start. Each directive is compiled at most
/// once. `reduce` turns the plans of a directive into the value that is stored.
pub struct StartGraph<'w, T> {
    world: &'w dyn World,
    listed: BTreeSet<ItemId>,
    reduce: fn(Plans) -> T,
    compiled: BTreeMap<ItemId, CompiledStarts<T>>,
}

struct CompiledStarts<T> {
    value: T,
    starts: Starts,
}

/// The directives that the threads of some plans may start.
#[derive(Debug, Clone, Default)]
struct Starts {
    /// The grant patterns of the plans and of their live hooks.
    patterns: BTreeSet<String>,
    /// Directives that hooks and the continuation start without a grant.
    fixed: BTreeSet<ItemId>,
}

impl<'w, T> StartGraph<'w, T> {
    /// Creates a graph without compiled directives.
    ///
    /// # Errors
    /// The list of directives cannot be read.
    pub fn new(world: &'w dyn World, reduce: fn(Plans) -> T) -> Result<Self, WorldError> {
        Ok(Self { world, listed: listed_directives(world)?, reduce, compiled: BTreeMap::new() })
    }

    /// Compiles the directives `ids` and every directive that their threads can start, directly or through other
    /// directives.
    pub fn compile_closures(&mut self, ids: &[ItemId]) {
        // The grants of a root bound the starts of all descendants, so roots with equal grants are examined together.
        let mut roots: BTreeMap<BTreeSet<String>, BTreeSet<ItemId>> = BTreeMap::new();
        for id in ids {
            let Starts { patterns, fixed } = self.starts_of(id).clone();
            roots.entry(patterns).or_default().extend(fixed);
        }
        for (patterns, fixed) in roots {
            self.compile_startable(Starts { patterns, fixed });
        }
    }

    /// Compiles every directive that a thread can start, directly or through other directives. `root` lists the
    /// directives that the plans of the thread itself allow it to start.
    fn compile_startable(&mut self, root: Starts) {
        // Every thread of a spawn chain must allow a start, so a grant can start only directives that the root grants
        // too.
        let mut allowed: Vec<ItemId> = granted_directives(&root.patterns, self.listed.iter());
        let mut expanded: BTreeSet<BTreeSet<String>> = BTreeSet::new();
        let mut visited = BTreeSet::new();
        let mut waiting = vec![root];
        while let Some(Starts { patterns, fixed }) = waiting.pop() {
            let mut next: BTreeSet<ItemId> = fixed;
            if !patterns.is_empty() && !expanded.contains(&patterns) {
                let granted: BTreeSet<ItemId> = granted_directives(&patterns, allowed.iter()).into_iter().collect();
                allowed.retain(|id| !granted.contains(id));
                next.extend(granted);
                expanded.insert(patterns);
            }
            for id in next {
                if visited.insert(id.clone()) {
                    waiting.push(self.starts_of(&id).clone());
                }
            }
        }
    }

    fn starts_of(&mut self, id: &ItemId) -> &Starts {
        let (world, listed, reduce) = (self.world, &self.listed, self.reduce);
        let compiled = self.compiled.entry(id.clone()).or_insert_with(|| {
            let plans = compile_reachable(world, id);
            let starts = find_starts(plans.iter().flatten().map(|compilation| &compilation.plan), listed);
            CompiledStarts { value: reduce(plans), starts }
        });
        &compiled.starts
    }

    /// Returns the value of each compiled directive, by the id of the directive.
    pub fn into_values(self) -> BTreeMap<ItemId, T> {
        self.compiled.into_iter().map(|(id, compiled)| (id, compiled.value)).collect()
    }
}

/// Compiles every directive that a thread of the plans `roots` can start, directly or through other directives. All
/// plans in `roots` belong to one directive. The result does not contain this directive.
///
/// # Errors
/// The list of directives cannot be read.
pub(crate) fn collect_closure(world: &dyn World, roots: &[&Plan]) -> Result<BTreeMap<ItemId, Plans>, WorldError> {
    let mut graph = StartGraph::new(world, |plans| plans)?;
    let starts = find_starts(roots.iter().copied(), &graph.listed);
    graph.compile_startable(starts);
    let mut found = graph.into_values();
    found.retain(|id, _| roots.iter().all(|plan| plan.directive != *id));
    Ok(found)
}

/// Returns the ids of the directives that a thread of this plan can start directly.
///
/// # Errors
/// The list of directives cannot be read.
pub(crate) fn collect_starts(world: &dyn World, plan: &Plan) -> Result<BTreeSet<ItemId>, WorldError> {
    if !granted_patterns(plan).any(|pattern| may_spawn(&pattern)) {
        // No grant allows a start, so the list of all directives, which is slow to read in a large project, is not
        // needed.
        let items = Items::new(world);
        let started = hook_starts(plan).chain(plan.continuation_directive.clone());
        return Ok(started.filter(|id| items.exists(ItemKind::Directive, id)).collect());
    }
    let listed = listed_directives(world)?;
    let Starts { patterns, fixed } = find_starts([plan], &listed);
    Ok(granted_directives(&patterns, listed.iter()).into_iter().chain(fixed).collect())
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

fn listed_directives(world: &dyn World) -> Result<BTreeSet<ItemId>, WorldError> {
    Ok(world.list(ItemKind::Directive)?.into_iter().map(|entry| entry.id).collect())
}

/// Returns the directives in `of` that a thread with the grants `patterns` may start.
fn granted_directives<'i>(patterns: &BTreeSet<String>, of: impl Iterator<Item = &'i ItemId>) -> Vec<ItemId> {
    if !patterns.iter().any(|pattern| may_spawn(pattern)) {
        return Vec::new();
    }
    let own = CapabilitySet::new(patterns.iter().cloned());
    let is_granted =
        |id: &&ItemId| own.first_match(&format_capability(Primary::Execute, ItemType::Directive, Some(id))).is_some();
    of.filter(is_granted).cloned().collect()
}

/// Returns the directives that threads of the plans may start: the grant patterns of the plans, and the directives in
/// `listed` that a hook or a continuation starts without a grant.
fn find_starts<'p>(plans: impl IntoIterator<Item = &'p Plan>, listed: &BTreeSet<ItemId>) -> Starts {
    let mut starts = Starts::default();
    for plan in plans {
        starts.patterns.extend(granted_patterns(plan));
        let fixed = hook_starts(plan).chain(plan.continuation_directive.clone());
        starts.fixed.extend(fixed.filter(|id| listed.contains(id)));
    }
    starts
}
