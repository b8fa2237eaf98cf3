//! `rye assert`: checks, without a run, properties of the thread that runs a directive and of every possible descendant
//! of this thread. `assertion/threads.rs` finds the threads, and `assertion_file.rs` reads the assertions. Conditions
//! use the shared evaluator.

mod flow;
mod route_summary;
mod session;
mod threads;
mod trifecta;

use std::collections::{BTreeMap, BTreeSet};

use rye_grammar::{ItemId, Sources};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::assertion_file::{self, Assertion, AssertionFunction, Assertions, Trifecta};
use crate::diagnostics::{Diagnostics, Severity};
use crate::item::Items;
use crate::lower::cache::LowerContext;
use crate::lower::origin;
use crate::plan::source::SourceReport;
use crate::semantics::condition::{Condition, Verdict};
use crate::semantics::facts::Facts;
use crate::semantics::glob::{Coverage, covers};
use crate::world::{ItemKind, Space, World};
use flow::{FlowPath, TextFlow};
use route_summary::ApprovalNeed;
use session::{CheckedSessions, LISTED_IS_USABLE, check_sessions};
pub use threads::MAX_STARTS;
use threads::{PossibleThread, ReachMemo, ReachableThreads, ThreadSearch};
use trifecta::TrifectaTools;

/// The result of checking the assertions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AssertReport {
    pub assertions: usize,
    pub directives: usize,
    /// Number of possible threads on which the assertions were checked.
    pub threads: usize,
    /// The plans on which the assertions were checked: each directive as a run, and as a chat if its plan compiles.
    pub plans: Vec<CoveredPlans>,
    pub violations: Vec<Violation>,
    /// Assertions that may hold vacuously: in every thread, the result is the same even if a function of the condition
    /// (such as `reaches(…)`) returns the opposite. Empty if only some directives or threads were checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_witness: Vec<WithoutWitness>,
    /// Spawns that a source line declares. Each combination of `from`, `to` and `by` occurs once.
    pub spawns: Vec<Spawn>,
    /// Cycles of directives that can start each other without end. Only limits such as `depth` end such a cycle. Each
    /// cycle begins with its smallest id.
    pub cycles: Vec<StartCycle>,
    /// True if the search stopped at a bound. Threads that the search did not reach may violate assertions too.
    pub incomplete: bool,
}

/// The plans of a directive on which assertions were checked: one for each route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CoveredPlans {
    pub directive: String,
    /// The mode of the plans: `run` or `chat`.
    pub mode: String,
    /// Number of plans: one for each route.
    pub plans: usize,
}

/// A violation of an assertion by a thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Violation {
    pub assertion: String,
    /// The severity of the assertion: `error` or `warning`.
    pub severity: String,
    pub description: String,
    /// The spawn chain of the thread, beginning with the directive that is run.
    pub trace: Vec<TraceStep>,
    /// The reasons for the violation: the result of each function of the assertion for this thread, with an example if
    /// a capability is reached.
    pub because: Vec<String>,
}

/// An assertion that may hold vacuously: in every thread, the result of the assertion is the same even if one of its
/// functions returns the opposite. An assertion that applies to no directive also counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WithoutWitness {
    pub assertion: String,
    /// The reason why the assertion may hold vacuously, as a sentence.
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TraceStep {
    pub directive: String,
    /// The way in which the directive is started: `run` or `chat` for the first directive, `body`, `hook ID` or
    /// `command /NAME` if the body, a hook or a command names the directive, else the grant that allows the start.
    pub by: String,
    pub source: Option<SourceReport>,
}

/// A directive that another directive starts, and the first capability that the child declares and the parent lacks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spawn {
    pub from: String,
    pub to: String,
    pub by: String,
    pub source: Option<SourceReport>,
    /// A capability that the child declares and the parent does not have, so that a run refuses calls that need it;
    /// null if the parent has all capabilities of the child.
    pub exceeds: Option<String>,
    pub parent_grants: Option<SourceReport>,
    pub child_grants: Option<SourceReport>,
}

/// Directives that start each other in a circle. Only limits such as `depth` end the circle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StartCycle {
    /// The directives of the circle, beginning with the smallest id. The last directive starts the first directive.
    pub directives: Vec<String>,
    /// For each directive, the way in which the directive starts the next directive.
    pub starts: Vec<CycleStart>,
}

/// A start in a circle of directives: a directive starts the next directive of the circle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CycleStart {
    /// The cause of the start: `body`, `hook ID`, or a grant as a pattern.
    pub by: String,
    pub source: Option<SourceReport>,
}

/// The report, with the diagnostics of the settings file and of all items that the check read.
#[derive(Debug, Clone)]
pub struct AssertOutcome {
    pub report: AssertReport,
    pub diagnostics: Diagnostics,
    pub sources: Sources,
}

/// Checks the assertions for every directive of the project and user spaces; if `only` is not empty, only for the
/// directives in `only`.
pub fn assert(world: &dyn World, only: &[ItemId]) -> AssertOutcome {
    let items = Items::new(world);
    let mut diagnostics = Diagnostics::new();
    let report = {
        let shared = LowerContext::new(&items);
        let assertions = assertion_file::read(&items, &mut diagnostics);
        let mut report = AssertReport { assertions: assertions.list.len(), ..AssertReport::default() };
        let mut search = ThreadSearch::new(&shared, &assertions);
        let mut memo = ReachMemo::new();
        // Errors of tools are reported by `rye check`.
        let mut tools = TrifectaTools::read(&Items::new(world));
        let mut cycles: BTreeMap<Vec<String>, StartCycle> = BTreeMap::new();
        let mut recorded = BTreeSet::new();
        let mut witnessed = BTreeMap::new();
        let roots = root_directives(&items, only);
        let flow = text_flow(&mut search, &assertions, &mut memo, &roots);
        for id in roots {
            report.directives += 1;
            let ReachableThreads { threads, left_out, complete } = search.find_threads(&id, &flow);
            report.threads += threads.len() + left_out;
            report.incomplete |= !complete;
            check_assertions(&items, (&assertions, &flow), &threads, &mut memo, &mut tools, &mut report);
            check_plans(&shared, &id, search.route_count(&id), &mut report);
            record_witnesses((&assertions, &flow), &threads, &mut memo, &mut witnessed);
            record_spawns(&items, &threads, &mut recorded, &mut report.spawns);
            for cycle in threads.iter().filter_map(|thread| find_cycle(&items, thread)) {
                cycles.entry(cycle.directives.clone()).or_insert(cycle);
            }
        }
        report.spawns.sort_by(|a, b| (&a.from, &a.to, &a.by).cmp(&(&b.from, &b.to, &b.by)));
        report.cycles = cycles.into_values().collect();
        // If only some directives or threads are checked, the unchecked ones may include a witness.
        if only.is_empty() && !report.incomplete {
            report.without_witness = without_witness(&assertions, &witnessed);
        }
        report
    };
    diagnostics.append(items.diagnostics());
    let sources = items.into_sources();
    diagnostics.sort(&sources);
    AssertOutcome { report, diagnostics, sources }
}

/// Returns the flow of the texts that assertions track with `flows(from, to)`. Only assertions that apply to one of the
/// directives `roots` count.
fn text_flow(
    search: &mut ThreadSearch<'_, '_, '_>,
    assertions: &Assertions,
    memo: &mut ReachMemo,
    roots: &[ItemId],
) -> TextFlow {
    let applied = assertions.list.iter().filter(|assertion| roots.iter().any(|id| assertion.applies_to(id)));
    let sources = applied.flat_map(|assertion| &assertion.functions).filter_map(|function| match function {
        AssertionFunction::Flows(from, _) => Some(from.as_str()),
        AssertionFunction::Reaches(_)
        | AssertionFunction::Passes(_)
        | AssertionFunction::SpendsAtMost(_)
        | AssertionFunction::Survives(_) => None,
    });
    let sources: BTreeSet<&str> = sources.collect();
    if sources.is_empty() {
        return TextFlow::default();
    }
    let declassifying = assertions.declassifying.iter().map(|id| id.node.as_str()).collect();
    search.text_flow(roots, &sources, &declassifying, memo)
}

fn root_directives(items: &Items<'_>, only: &[ItemId]) -> Vec<ItemId> {
    if !only.is_empty() {
        return only.to_vec();
    }
    let list = items.list(ItemKind::Directive);
    let mut ids: Vec<ItemId> = list.iter().filter(|e| e.space != Space::System).map(|e| e.id.clone()).collect();
    ids.dedup();
    ids
}

/// Checks the assertions and the built-in assertion `lethal_trifecta` for `threads`: the thread of one directive and
/// all its possible descendants. Reports only the first thread that violates an assertion.
fn check_assertions(
    items: &Items<'_>,
    (assertions, flow): (&Assertions, &TextFlow),
    threads: &[PossibleThread],
    memo: &mut ReachMemo,
    tools: &mut TrifectaTools,
    report: &mut AssertReport,
) {
    let Some(root) = threads.first() else { return };
    for assertion in &assertions.list {
        if !assertion.applies_to(&root.directive) {
            continue;
        }
        let broken = threads
            .iter()
            .find_map(|thread| violation_reasons(assertion, thread, flow, memo).map(|because| (thread, because)));
        if let Some((thread, because)) = broken {
            report.violations.push(Violation {
                assertion: assertion.id.clone(),
                severity: if assertion.severity == Severity::Error { "error" } else { "warning" }.to_owned(),
                description: assertion.description.clone(),
                trace: trace_steps(items, thread),
                because,
            });
        }
    }
    let severity = match assertions.trifecta {
        Trifecta::Off => return,
        Trifecta::Warning => "warning",
        Trifecta::Error => "error",
    };
    if let Some((thread, because)) =
        threads.iter().find_map(|thread| tools.reasons(thread, memo).map(|because| (thread, because)))
    {
        report.violations.push(Violation {
            assertion: "lethal_trifecta".into(),
            severity: severity.into(),
            description: "no thread may read untrusted text and private data and also send data out".into(),
            trace: trace_steps(items, thread),
            because,
        });
    }
}

/// Records the plans of a directive as a run and as a chat, and checks the built-in assertion `listed_is_usable` on the
/// plans of the chat.
fn check_plans(shared: &LowerContext<'_, '_>, id: &ItemId, runs: usize, report: &mut AssertReport) {
    let CheckedSessions { plans, unusable, span } = check_sessions(shared, id);
    for (mode, plans) in [("run", runs), ("chat", plans)].into_iter().filter(|(_, plans)| *plans > 0) {
        report.plans.push(CoveredPlans { directive: id.to_string(), mode: mode.to_owned(), plans });
    }
    if !unusable.is_empty() {
        let place = span.and_then(|span| origin::plan_place(&shared.items.sources(), span));
        let source = place.map(|place| SourceReport::from(&place));
        report.violations.push(Violation {
            assertion: LISTED_IS_USABLE.to_owned(),
            severity: "error".to_owned(),
            description: "a session can use each skill, command and guideline of its plan".to_owned(),
            trace: vec![TraceStep { directive: id.to_string(), by: "chat".to_owned(), source }],
            because: unusable,
        });
    }
}

/// Returns the reasons why an assertion does not hold for a thread; `None` if it holds.
fn violation_reasons(
    assertion: &Assertion,
    thread: &PossibleThread,
    flow: &TextFlow,
    memo: &mut ReachMemo,
) -> Option<Vec<String>> {
    let mut facts = Facts::new();
    facts.set("directive", Value::from(thread.directive.as_str()));
    facts.set("category", Value::from(thread.directive.category()));
    let mut because = Vec::new();
    for (i, function) in assertion.functions.iter().enumerate() {
        let (answer, reason) = evaluate_function(function, thread, flow, memo);
        facts.set(&format!("assertion.c{i}"), Value::Bool(answer));
        because.push(reason);
    }
    let holds = assertion.condition.evaluate(&facts) == Verdict::True;
    (holds == assertion.never).then_some(because)
}

fn evaluate_function(
    function: &AssertionFunction,
    thread: &PossibleThread,
    flow: &TextFlow,
    memo: &mut ReachMemo,
) -> (bool, String) {
    match function {
        AssertionFunction::Reaches(pattern) => {
            let found = thread.reaches(pattern, memo);
            let reason = match &found {
                Some(example) => format!("the thread reaches `{pattern}`: `{example}`"),
                None => format!("the thread does not reach `{pattern}`"),
            };
            (found.is_some(), reason)
        }
        AssertionFunction::Passes(gate) => {
            let passes = thread.passes(gate);
            let verb = if passes { "passes" } else { "does not pass" };
            let runs_alone = gate == "ask" && thread.approval == ApprovalNeed::AtTerminal;
            let why = if runs_alone { ": without a terminal, its calls run without an approval" } else { "" };
            (passes, format!("the thread {verb} `{gate}`{why}"))
        }
        AssertionFunction::Flows(from, to) => match flow.find(thread, from, to, memo) {
            Some(FlowPath { from, through, to }) => {
                (true, format!("text of `{from}` reaches `{to}` through `{}`", through.join("` → `")))
            }
            None => (false, format!("no text of `{from}` reaches `{to}`")),
        },
        AssertionFunction::SpendsAtMost(most) => {
            let reason = match (thread.spend, &thread.raised_by) {
                (Some(spend), _) => format!("the thread may spend ${spend}"),
                (None, Some(hook)) => {
                    format!("the thread may spend any amount, because the hook {hook} raises the limit")
                }
                (None, None) => "the thread may spend any amount".to_owned(),
            };
            (thread.spend.is_some_and(|spend| spend <= *most), reason)
        }
        AssertionFunction::Survives(item) => {
            let survives = thread.survivors.contains(item);
            (survives, format!("a continuation {} `{item}`", if survives { "contains" } else { "may lack" }))
        }
    }
}

/// Records in `witnessed`, under the index of each assertion, if one of `threads` is a witness for the assertion
/// ([`is_witness`]). The first of `threads` runs a directive. The others are its possible descendants. Assertions that
/// do not apply to the directive are skipped.
fn record_witnesses(
    (assertions, flow): (&Assertions, &TextFlow),
    threads: &[PossibleThread],
    memo: &mut ReachMemo,
    witnessed: &mut BTreeMap<usize, bool>,
) {
    let Some(root) = threads.first() else { return };
    for (i, assertion) in assertions.list.iter().enumerate().filter(|(_, one)| one.applies_to(&root.directive)) {
        let found = witnessed.entry(i).or_default();
        *found = *found || threads.iter().any(|thread| is_witness(assertion, thread, flow, memo));
    }
}

/// Returns true if a thread is a witness for an assertion: for at least one of the assertion's functions, the opposite
/// result would change the result of the assertion for this thread.
fn is_witness(assertion: &Assertion, thread: &PossibleThread, flow: &TextFlow, memo: &mut ReachMemo) -> bool {
    let answers = assertion.functions.iter().map(|function| evaluate_function(function, thread, flow, memo).0);
    let answers: Vec<bool> = answers.collect();
    let holds = |answers: &[bool]| assertion.condition_holds(&thread.directive, answers);
    let result = holds(&answers);
    assertion.functions.iter().any(|flipped| {
        // Equal functions have equal results, so they are flipped together.
        let same = assertion.functions.iter().map(|function| function == flipped);
        let other: Vec<bool> = answers.iter().zip(same).map(|(answer, same)| answer ^ same).collect();
        holds(&other) != result
    })
}

/// Returns the assertions that may hold vacuously, each with the reason. Either `for` selects no directive, or no
/// thread is a witness for the assertion ([`is_witness`]).
fn without_witness(assertions: &Assertions, witnessed: &BTreeMap<usize, bool>) -> Vec<WithoutWitness> {
    let without = assertions.list.iter().enumerate().filter_map(|(i, one)| {
        let why = match witnessed.get(&i) {
            None => "`for` selects no directive",
            Some(false) => "the assertion has the same result in every thread, whatever its functions return",
            Some(true) => return None,
        };
        Some(WithoutWitness { assertion: one.id.clone(), why: why.to_owned() })
    });
    without.collect()
}

fn trace_steps(items: &Items<'_>, thread: &PossibleThread) -> Vec<TraceStep> {
    let sources = items.sources();
    let step = |step: &threads::SpawnStep| TraceStep {
        directive: step.directive.to_string(),
        by: step.by.clone(),
        source: step.span.and_then(|span| origin::plan_place(&sources, span)).map(|p| SourceReport::from(&p)),
    };
    thread.trace.iter().map(step).collect()
}

/// Returns the cycle of directives that the last start in the trace of a thread closes, beginning with the smallest id
/// of the cycle. `None` if the thread's directive occurs only once in the trace.
fn find_cycle(items: &Items<'_>, thread: &PossibleThread) -> Option<StartCycle> {
    let (own, above) = thread.trace.split_last()?;
    let from = above.iter().rposition(|step| step.directive == own.directive)?;
    let mut directives: Vec<String> = above.iter().skip(from).map(|step| step.directive.to_string()).collect();
    let sources = items.sources();
    let mut starts: Vec<CycleStart> = thread
        .trace
        .iter()
        .skip(from + 1)
        .map(|step| CycleStart {
            by: step.by.clone(),
            source: step.span.and_then(|span| origin::plan_place(&sources, span)).map(|p| SourceReport::from(&p)),
        })
        .collect();
    let smallest = directives.iter().enumerate().min_by(|a, b| a.1.cmp(b.1)).map_or(0, |(i, _)| i);
    directives.rotate_left(smallest);
    starts.rotate_left(smallest);
    Some(StartCycle { directives, starts })
}

/// Adds to `spawns` the spawn that created each of `threads`, if a source line declares this spawn. Each entry has the
/// first capability of the child that the parent lacks. Skips the spawns in `recorded`, and adds the new spawns to
/// `recorded` too.
fn record_spawns(
    items: &Items<'_>,
    threads: &[PossibleThread],
    recorded: &mut BTreeSet<(ItemId, ItemId, String)>,
    spawns: &mut Vec<Spawn>,
) {
    let place = |span: Option<rye_grammar::Span>| {
        span.and_then(|span| origin::plan_place(&items.sources(), span)).map(|p| SourceReport::from(&p))
    };
    for thread in threads {
        let [.., above, own] = thread.trace.as_slice() else { continue };
        if !own.named || !recorded.insert((above.directive.clone(), own.directive.clone(), own.by.clone())) {
            continue;
        }
        let held: Vec<&str> = above.grants.iter().chain(&own.of_hook).map(String::as_str).collect();
        let exceeds = own.declares.then(|| {
            own.grants.iter().find_map(|grant| match covers(&held, grant) {
                Coverage::Covered => None,
                Coverage::Counterexample(example) => Some(example),
                Coverage::TooComplex => Some(grant.clone()),
            })
        });
        spawns.push(Spawn {
            from: above.directive.to_string(),
            to: own.directive.to_string(),
            by: own.by.clone(),
            source: place(own.span),
            exceeds: exceeds.flatten(),
            parent_grants: place(above.granted),
            child_grants: place(own.granted),
        });
    }
}

impl Assertion {
    /// Returns true if the condition of the assertion is true for a directive. `answers` are the results of the
    /// functions in the condition, in order.
    pub(crate) fn condition_holds(&self, directive: &ItemId, answers: &[bool]) -> bool {
        let mut facts = Facts::new();
        facts.set("directive", Value::from(directive.as_str()));
        facts.set("category", Value::from(directive.category()));
        for (i, answer) in answers.iter().enumerate() {
            facts.set(&format!("assertion.c{i}"), Value::Bool(*answer));
        }
        self.condition.evaluate(&facts) == Verdict::True
    }

    /// Returns true if the assertion has to hold for the runs of this directive.
    pub(crate) fn applies_to(&self, directive: &ItemId) -> bool {
        let Some(condition) = &self.only else { return true };
        let mut facts = Facts::new();
        facts.set("directive", Value::from(directive.as_str()));
        facts.set("category", Value::from(directive.category()));
        Condition::evaluate(condition, &facts) == Verdict::True
    }
}

#[cfg(test)]
mod tests;
