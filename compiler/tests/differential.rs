//! Claims of the compiler, compared with an independent evaluator and enumerator on generated projects: verdicts and
//! layers of plans, plans without inputs, the regions of `rye plan --all`, the warnings of `rye check`, its claims that
//! something has no effect, and the directions of `rye plan --diff`.
//!
//! `RYE_DIFFERENTIAL=1000` sets the number of projects (`just differential`), `RYE_DIFFERENTIAL_SEED=5000` the first seed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
#![allow(clippy::wildcard_enum_match_arm, reason = "other values and diagnostics are not compared")]
#![allow(
    clippy::disallowed_methods,
    reason = "the environment sets the number of projects and their seeds, nothing else"
)]

#[path = "differential/condition.rs"]
mod condition;
#[path = "differential/direction.rs"]
mod direction;
#[path = "differential/evaluate.rs"]
mod evaluate;
#[path = "differential/project.rs"]
mod project;
#[path = "differential/rng.rs"]
mod rng;

use std::collections::{BTreeMap, BTreeSet};

use condition::read;
use evaluate::{Expected, OracleVerdict, Refused, enumerate};
use project::{RandomProject, Rng};
use rye_compiler::compile::{Compilation, CompileRequest, compile, compile_with_default_inputs};
use rye_compiler::diagnostics::{Checked, ConfigError, ContextError, Diagnostic, HookError, InterfaceError};
use rye_compiler::hook::PlanVerdict;
use rye_compiler::plan::Plan;
use rye_compiler::report::alternatives::{RoutedPlan, compile_routes};
use rye_compiler::report::matrix::{Matrix, MatrixContext, build_matrix};
use rye_compiler::validate::{Selection, check};
use rye_compiler::world::{MapWorld, Space};
use rye_grammar::{ItemId, Sources};
use serde_json::{Map, Value};

/// Projects of a plain test run.
const PROJECTS: u64 = 30;
const CALLS: usize = 24;

const SETTINGS: [(&str, &str); 3] = [
    ("models.yaml", "{ default_provider: main, default_tier: general, aliases: {} }"),
    (
        "providers/main.yaml",
        "wire: anthropic\nbase_url: https://main.test\ntiers: { general: large }\nmodels:\n\
         - { id: large, context_window: 20000, max_output: 500, prices: { input: 2, output: 10 } }\n",
    ),
    (
        "resilience.yaml",
        "limits: { turns: 15, tokens: 200000, spend: 0.50, spawns: 10, depth: 5, duration_seconds: 600, output: 8192 }\n\
         tool_preload: { enabled: true, max_tokens: 100 }\n",
    ),
];

/// Counts over all projects, which prove that the generator covers each situation.
#[derive(Debug, Default)]
struct CheckedCounts {
    plans: usize,
    refused: usize,
    routed: usize,
    depends: usize,
    removed: usize,
    regions: usize,
    calls_in_regions: usize,
    open: usize,
    /// Calls for which only an open condition holds.
    calls_without_region: usize,
    never: usize,
    unknown_plans: usize,
    /// Plans with default inputs, or with unknown inputs if a required input has no default.
    default_plans: usize,
    /// Suppressions and routing hooks of which `check` says that they have no effect.
    without_effect: usize,
    /// Assertions of which `check` says that no thread can violate them.
    vacuous: usize,
    /// Plans that were compared with the plan with unknown inputs for their route, and the different spend limits and
    /// sizes of the palette among them.
    compared_routes: usize,
    compared_limits: BTreeSet<u64>,
    compared_palettes: BTreeSet<usize>,
    /// Wrong claims by kind: their number and the first one.
    wrong: BTreeMap<&'static str, (usize, String)>,
}

#[test]
fn claims_hold_for_generated_projects() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse::<u64>().unwrap());
    let (projects, first) = (number("RYE_DIFFERENTIAL", PROJECTS), number("RYE_DIFFERENTIAL_SEED", 0));
    let mut counts = CheckedCounts::default();
    for seed in first..first + projects {
        check_project(seed, &mut counts);
    }
    println!("{counts:?}");
    let shown: Vec<String> = counts.wrong.values().map(|(count, first)| format!("{count} ×\n{first}")).collect();
    let shown = shown.join("\n");
    assert!(counts.wrong.is_empty(), "{shown}");
    let CheckedCounts {
        plans,
        refused,
        routed,
        depends,
        removed,
        regions,
        calls_in_regions,
        open,
        calls_without_region,
        never,
        unknown_plans,
        default_plans,
        without_effect,
        vacuous,
        compared_routes,
        ref compared_limits,
        ref compared_palettes,
        wrong: _,
    } = counts;
    let least = usize::try_from(projects).unwrap();
    assert!(plans >= 10 * least && refused >= 3 * least && calls_in_regions >= 10 * least, "{counts:?}");
    assert!(routed >= 5 * least && depends >= least && removed >= 10 * least && regions >= 3 * least, "{counts:?}");
    assert!(calls_without_region * 50 <= calls_in_regions, "{counts:?}");
    assert!(compared_routes >= 5 * least, "{counts:?}");
    assert!(compared_limits.len() >= 3 && compared_palettes.len() >= 2, "{counts:?}");
    assert!(without_effect * 10 >= least && vacuous * 5 >= least, "{counts:?}");
    assert!(
        open * 20 >= least && never * 4 >= least && unknown_plans * 4 >= least && default_plans * 4 >= least,
        "{counts:?}"
    );
}

/// A generated project, its world and its calls.
struct CompiledProject {
    seed: u64,
    project: RandomProject,
    world: MapWorld<'static>,
    calls: Vec<(Map<String, Value>, Result<Expected, Refused>)>,
}

fn check_project(seed: u64, counts: &mut CheckedCounts) {
    let project = RandomProject::generate(seed);
    let mut world = MapWorld::new();
    for (path, text) in SETTINGS {
        world.insert(Space::System, &format!(".ai/config/agent/{path}"), text.as_bytes());
    }
    for (path, text) in project.files() {
        world.insert(Space::Project, &path, text.into_bytes());
    }
    let mut rng = Rng::new(seed ^ 0xabcd);
    let calls = enumerate(&project, CALLS, &mut |n| rng.below(n));
    let calls = calls.into_iter().map(|call| (call.clone(), project.expected(&call))).collect();
    let subject = CompiledProject { seed, project, world, calls };
    subject.check_plans(counts);
    subject.check_unknown_plan(counts);
    subject.check_shared_parses(counts);
    subject.check_regions(counts);
    subject.check_warnings(counts);
    subject.check_vacuity(counts);
}

fn main_id() -> ItemId {
    ItemId::parse("main").unwrap()
}

impl CompiledProject {
    fn compile(&self, inputs: Option<&Map<String, Value>>) -> Result<Compilation, String> {
        let request = CompileRequest { inputs: inputs.cloned(), ..CompileRequest::new(main_id()) };
        let compiled = compile(&self.world, &request);
        let why =
            compiled.diagnostics.iter().filter(|d| d.is_error()).map(|d| format!("{}: {}", d.code(), d.message()));
        compiled.value.ok_or_else(|| why.collect::<Vec<_>>().join("\n"))
    }

    /// Records a wrong claim, with its project.
    fn fail(&self, counts: &mut CheckedCounts, kind: &'static str, why: &str) {
        if let Some((count, _)) = counts.wrong.get_mut(kind) {
            *count += 1;
            return;
        }
        let files: Vec<String> = self
            .project
            .files()
            .into_iter()
            .filter(|(path, _)| !path.contains("knowledge"))
            .map(|(path, text)| format!("--- {path}\n{text}\n"))
            .collect();
        let files = files.concat();
        counts.wrong.insert(kind, (1, format!("{kind}, project {}: {why}\n{files}", self.seed)));
    }

    /// Returns true if two calls that differ only in this input send different layers.
    fn matters(&self, input: &str) -> bool {
        let without = |call: &Map<String, Value>| {
            let mut rest = call.clone();
            rest.remove(input);
            rest
        };
        self.answered().any(|(call, expected)| {
            let differs = |(other, found): (&Map<String, Value>, &Expected)| {
                without(other) == without(call) && found.layers != expected.layers
            };
            self.answered().any(differs)
        })
    }

    /// Compares the plan of every call.
    fn check_plans(&self, counts: &mut CheckedCounts) {
        let unknown = compile_routes(&self.world, &CompileRequest::new(main_id()), &mut Sources::default());
        let unknown = unknown.value.unwrap_or_default();
        for (call, expected) in &self.calls {
            let planned = self.compile(Some(call));
            let (planned, expected) = match (planned, expected) {
                (Ok(planned), Ok(expected)) => (planned, expected),
                (Err(_), Err(_)) => {
                    counts.refused += 1;
                    continue;
                }
                (Ok(_), Err(why)) => {
                    self.fail(counts, "plan of a refused call", &format!("{call:?} has a plan, expected {why:?}"));
                    continue;
                }
                (Err(why), Ok(_)) => {
                    self.fail(counts, "call without a plan", &format!("{call:?} has no plan: {why}"));
                    continue;
                }
            };
            counts.plans += 1;
            counts.routed += usize::from(planned.plan.route.is_some());
            let chain: Vec<String> = planned.plan.chain.iter().map(|link| link.id.to_string()).collect();
            if chain != expected.chain {
                self.fail(counts, "chain", &format!("{call:?}: chain {chain:?}, expected {:?}", expected.chain));
            }
            if layers(&planned) != expected.layers {
                let found = layers(&planned);
                self.fail(counts, "layers", &format!("{call:?}: layers {found:?}, expected {:?}", expected.layers));
            }
            let found = verdicts(&planned);
            if found != expected.verdicts {
                self.fail(
                    counts,
                    "verdicts",
                    &format!("{call:?}: verdicts {found:?}, expected {:?}", expected.verdicts),
                );
            }
            self.check_unknown_bounds(call, &planned, &unknown, counts);
            counts.depends += found.values().filter(|verdict| **verdict == OracleVerdict::Depends).count();
            counts.removed += found.values().filter(|verdict| **verdict == OracleVerdict::Removed).count();
        }
    }

    /// Compares the route, the palette, the limits and the bound on the cost of a plan with those of the plan with
    /// unknown inputs for the same route. Does nothing if there is no plan with unknown inputs.
    fn check_unknown_bounds(
        &self,
        call: &Map<String, Value>,
        planned: &Compilation,
        unknown: &[RoutedPlan],
        counts: &mut CheckedCounts,
    ) {
        let chain = |one: &Compilation| one.plan.chain.iter().map(|link| link.id.to_string()).collect::<Vec<_>>();
        let Some(route) = unknown.iter().find(|route| chain(&route.compilation) == chain(planned)) else {
            if !unknown.is_empty() {
                self.fail(counts, "route without inputs", &format!("{call:?}: no plan for {:?}", chain(planned)));
            }
            return;
        };
        counts.compared_routes += 1;
        counts.compared_limits.insert(planned.plan.limits.spend);
        counts.compared_palettes.insert(planned.plan.palette.len());
        let (open, own) = (&route.compilation.plan, &planned.plan);
        let names = |plan: &Plan| plan.palette.iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>();
        for (part, is_equal) in [
            ("palette without inputs", names(open) == names(own)),
            ("limits without inputs", open.limits == own.limits),
            ("cost without inputs", open.bound_cost() == own.bound_cost()),
        ] {
            if !is_equal {
                self.fail(counts, part, &format!("{call:?}: {:?} and {:?}", open.limits, own.limits));
            }
        }
    }

    fn answered(&self) -> impl Iterator<Item = (&Map<String, Value>, &Expected)> {
        self.calls.iter().filter_map(|(call, expected)| Some((call, expected.as_ref().ok()?)))
    }

    /// Compares the plan without inputs with the plans of all calls: each certain claim of the former must hold for
    /// every call.
    fn check_unknown_plan(&self, counts: &mut CheckedCounts) {
        let Ok(planned) = self.compile(None) else { return };
        counts.unknown_plans += 1;
        let claims = verdicts(&planned);
        let all = layers(&planned);
        for (call, expected) in self.answered() {
            for (id, claim) in &claims {
                let actual = expected.verdicts[id];
                let holds = match claim {
                    OracleVerdict::Fires => matches!(actual, OracleVerdict::Fires | OracleVerdict::Removed),
                    OracleVerdict::Never | OracleVerdict::Removed => {
                        !matches!(actual, OracleVerdict::Fires | OracleVerdict::Depends)
                    }
                    OracleVerdict::Depends => true,
                };
                if !holds {
                    let why = format!("without inputs `{id}` is {claim:?}, with {call:?} it is {actual:?}");
                    self.fail(counts, "verdict without inputs", &why);
                }
            }
            for (id, depends) in &all {
                if !depends && !expected.layers.iter().any(|(other, _)| other == id) {
                    let why = format!("without inputs the layer `{id}` is certain, with {call:?} it is absent");
                    self.fail(counts, "certain layer without inputs", &why);
                }
            }
            for (id, _) in &expected.layers {
                if !all.iter().any(|(other, _)| other == id) {
                    let why = format!("without inputs the layer `{id}` is absent, with {call:?} it is sent");
                    self.fail(counts, "absent layer without inputs", &why);
                }
            }
        }
    }

    /// Compares a plan with default inputs, whose two steps share their parsed files, with the plan of separate steps.
    fn check_shared_parses(&self, counts: &mut CheckedCounts) {
        let separate = CompileRequest::new(main_id()).with_default_inputs(&self.world);
        let expected = compile(&self.world, &separate);
        let (request, found) =
            compile_with_default_inputs(&self.world, CompileRequest::new(main_id()), &mut Sources::default());
        let text = |checked: &Checked<Compilation>| {
            let messages: Vec<String> = checked.diagnostics.iter().map(Diagnostic::message).collect();
            (checked.value.as_ref().map(|compilation| compilation.plan_id.clone()), messages)
        };
        counts.default_plans += usize::from(found.value.is_some());
        if request.inputs != separate.inputs || text(&found) != text(&expected) {
            let why = format!("{:?} instead of {:?}", text(&found), text(&expected));
            self.fail(counts, "plan with default inputs", &why);
        }
    }

    /// Checks that the regions of the matrix are disjoint and complete, and that their contexts are right.
    fn check_regions(&self, counts: &mut CheckedCounts) {
        let matrix = match build_matrix(&self.world, &CompileRequest::new(main_id())) {
            Ok(matrix) => matrix,
            Err(why) => return self.fail(counts, "no matrix", &why.to_string()),
        };
        counts.regions += matrix.contexts.len();
        counts.open += usize::from(!matrix.open.is_empty());
        if matrix.open.is_empty() != matrix.rest.is_empty() || matrix.rest.iter().any(|one| one.when != matrix.open) {
            self.fail(counts, "rest", &format!("the open conditions have no plan: {matrix:#?}"));
        }
        for (call, expected) in self.answered() {
            counts.calls_in_regions += 1;
            let inputs = self.project.region_inputs(call, expected);
            let found = regions_of(&matrix, &inputs);
            if found.is_empty() && matrix.open.iter().any(|one| read(one).evaluate(&inputs) == Some(true)) {
                counts.calls_without_region += 1;
                let sent = |context: &MatrixContext| {
                    context.chain == expected.chain && expected.layers.iter().all(|(id, _)| context.parts.contains(id))
                };
                if !matrix.rest.iter().any(sent) {
                    self.fail(counts, "rest", &format!("{call:?} sends more than the rest of {matrix:#?}"));
                }
                continue;
            }
            let [region] = found.as_slice() else {
                self.fail(counts, "partition", &format!("{call:?} is in {} regions of {matrix:#?}", found.len()));
                continue;
            };
            let Some(context) = region else {
                self.fail(counts, "refused region", &format!("{call:?} is in a refused region of {matrix:#?}"));
                continue;
            };
            let parts: Vec<String> = expected.layers.iter().map(|(id, _)| id.clone()).collect();
            let layers: Vec<String> = context.parts.iter().filter(|part| !part.starts_with("rye_")).cloned().collect();
            if context.chain != expected.chain || layers != parts {
                let why = format!("{call:?} sends {parts:?}, but its region is {context:#?} of {matrix:#?}");
                self.fail(counts, "region", &why);
            }
        }
    }

    /// Checks the result of `rye check` for the whole project.
    fn check_warnings(&self, counts: &mut CheckedCounts) {
        let report = check(&self.world, &Selection::All);
        let errors: Vec<String> = report.diagnostics.iter().filter(|d| d.is_error()).map(Diagnostic::message).collect();
        if !errors.is_empty() {
            self.fail(counts, "check", &format!("check reports {errors:?}"));
        }
        let sent: BTreeSet<&String> =
            self.answered().flat_map(|(_, expected)| &expected.layers).map(|(id, _)| id).collect();
        let fires = |id: &str| self.answered().any(|(_, expected)| expected.firing.contains(id));
        for found in report.diagnostics.iter() {
            match found {
                Diagnostic::Hook(HookError::Never { id, .. }) => {
                    counts.never += 1;
                    if fires(id) {
                        self.fail(counts, "never", &format!("check says that `{id}` never fires"));
                    }
                }
                Diagnostic::Hook(HookError::Always { id, .. }) => {
                    let is_never = |expected: &Expected| expected.verdicts.get(id) == Some(&OracleVerdict::Never);
                    if self.answered().any(|(_, expected)| is_never(expected)) {
                        self.fail(counts, "always", &format!("check says that `{id}` always fires"));
                    }
                }
                Diagnostic::Context(ContextError::Unreached { id, .. }) if sent.contains(id) => {
                    self.fail(counts, "unreached", &format!("check says that `{id}` is sent nowhere"));
                }
                Diagnostic::Interface(InterfaceError::UnusedInput { name, .. }) => {
                    let declarations = self.project.directives.iter().flat_map(|one| &one.inputs);
                    if declarations.filter(|input| input.name == *name).count() == 1 && self.matters(name) {
                        self.fail(counts, "unused", &format!("check says that the input `{name}` is unused"));
                    }
                }
                _ => {}
            }
        }
    }
}

impl CompiledProject {
    /// Compares the claims that a suppression, a routing hook or an assertion has no effect: each such claim is true, and
    /// for assertions none is missing.
    fn check_vacuity(&self, counts: &mut CheckedCounts) {
        let report = check(&self.world, &Selection::All);
        let claims: Vec<&Diagnostic> = report.diagnostics.iter().collect();
        for claim in &claims {
            match claim {
                Diagnostic::Context(ContextError::SuppressesNothing { id, .. }) => {
                    counts.without_effect += 1;
                    // A claim is about one file: of two files with the same suppression, the other one may have an effect.
                    let files = self.project.directives.iter().filter(|one| one.suppress.contains(id)).count();
                    if files == 1 && self.answered().any(|(_, expected)| expected.suppressed.contains(id)) {
                        self.fail(counts, "suppression", &format!("check says that nothing is suppressed by `{id}`"));
                    }
                }
                Diagnostic::Hook(HookError::Shadowed { id, .. }) => {
                    counts.without_effect += 1;
                    if self.answered().any(|(_, expected)| expected.route.as_ref() == Some(id)) {
                        self.fail(counts, "shadowed", &format!("check says that `{id}` is never reached"));
                    }
                }
                _ => {}
            }
        }
        let directives: BTreeSet<&str> = self.project.directives.iter().map(|one| one.id.as_str()).collect();
        let hooks = self.project.directives.iter().flat_map(|one| &one.hooks).chain(&self.project.hooks);
        let hooks: BTreeSet<&str> = hooks.map(|hook| hook.id.as_str()).collect();
        for assertion in &self.project.assertions {
            let is_selecting = assertion.only.is_none_or(|id| directives.contains(id));
            let is_claimed = claims.iter().any(|claim| {
                matches!(claim, Diagnostic::Config(ConfigError::AssertsNothing { id, .. }) if *id == assertion.id)
            });
            counts.vacuous += usize::from(is_claimed);
            if is_claimed != (!is_selecting || assertion.is_vacuous()) {
                self.fail(counts, "vacuous assertion", &format!("claimed {is_claimed}: {assertion:?}"));
            }
            let unknown: BTreeSet<&str> =
                assertion.gates.iter().map(|(gate, _)| gate.as_str()).filter(|gate| !hooks.contains(gate)).collect();
            let claimed: BTreeSet<&str> = claims
                .iter()
                .filter_map(|claim| match claim {
                    Diagnostic::Config(ConfigError::UnknownGate { id, hook, .. }) if *id == assertion.id => {
                        Some(hook.as_str())
                    }
                    _ => None,
                })
                .collect();
            if is_selecting && claimed != unknown {
                self.fail(counts, "unknown gate", &format!("claimed {claimed:?}, expected {unknown:?}"));
            }
        }
    }
}

/// Returns the regions that hold for these inputs; `None` for a refused one.
fn regions_of<'m>(matrix: &'m Matrix, inputs: &Map<String, Value>) -> Vec<Option<&'m MatrixContext>> {
    let holding = |conditions: &[String]| {
        conditions.iter().filter(|condition| read(condition).evaluate(inputs) == Some(true)).count()
    };
    let contexts = matrix.contexts.iter().flat_map(|one| std::iter::repeat_n(Some(one), holding(&one.when)));
    let refused = matrix.refused.iter().flat_map(|one| std::iter::repeat_n(None, holding(&one.when)));
    contexts.chain(refused).collect()
}

fn layers(planned: &Compilation) -> Vec<(String, bool)> {
    let prompt = &planned.plan.prompt;
    prompt.system.iter().chain(&prompt.first_message).map(|layer| (layer.id.clone(), layer.depends)).collect()
}

/// Returns the verdicts of the hooks that collect text.
fn verdicts(planned: &Compilation) -> BTreeMap<String, OracleVerdict> {
    let hooks = planned.plan.hooks.iter().filter(|hook| !hook.id.starts_with("route"));
    let verdict = |verdict: &PlanVerdict| match verdict {
        PlanVerdict::Fires => OracleVerdict::Fires,
        PlanVerdict::Depends { .. } => OracleVerdict::Depends,
        PlanVerdict::Never { .. } => OracleVerdict::Never,
        PlanVerdict::Removed { .. } => OracleVerdict::Removed,
    };
    hooks.map(|hook| (hook.id.clone(), verdict(&hook.verdict))).collect()
}
