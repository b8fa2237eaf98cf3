//! The meaning of a project for one call: its route, chain, hooks and prompt layers, computed from the specification
//! without the compiler. `enumerate` lists calls at which a condition can change its result.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::condition::{OracleCondition, OracleFacts, Reading, Truth};
use super::project::{Input, RandomAction, RandomDirective, RandomHook, RandomProject, note};

/// The expected plan of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    /// Root first.
    pub chain: Vec<String>,
    /// Ids of the prompt layers, each with a flag: true if the run decides about the layer.
    pub layers: Vec<(String, bool)>,
    /// Verdicts of hooks that collect text, by id.
    pub verdicts: BTreeMap<String, OracleVerdict>,
    /// Hooks that fire at some depth of the thread.
    pub firing: BTreeSet<String>,
    /// The inputs with defaults.
    pub inputs: Map<String, Value>,
    /// The hook that sets the route.
    pub route: Option<String>,
    /// The suppressions that remove something: an item of the chain, or a hook that names the item or has the id.
    pub suppressed: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OracleVerdict {
    Fires,
    Depends,
    Never,
    /// Suppressed, or another part of the prompt certainly provides the item.
    Removed,
}

/// The reason why a call has no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// An input without a declaration.
    Undeclared,
    Missing,
    /// A value outside of the declared choices.
    Invalid,
}

/// Depths of threads that conditions are evaluated at. Generated conditions compare the depth with smaller numbers.
const DEPTHS: std::ops::RangeInclusive<u64> = 0..=16;

/// The facts before a run, or at the start of a thread of a known depth.
struct Before<'f> {
    inputs: &'f Map<String, Value>,
    has_extends: bool,
    depth: Option<u64>,
}

impl OracleFacts for Before<'_> {
    fn read(&self, path: &str) -> Reading {
        match path {
            "directive" => Reading::Value(json!("main")),
            "has_extends" => Reading::Value(json!(self.has_extends)),
            "depth" => self.depth.map_or(Reading::Unknown, |depth| Reading::Value(json!(depth))),
            other => self.inputs.read(other.strip_prefix("inputs.").unwrap()),
        }
    }
}

/// Unknown facts that record which paths are read.
#[derive(Default)]
struct RecordedPaths(RefCell<BTreeSet<String>>);

impl OracleFacts for RecordedPaths {
    fn read(&self, path: &str) -> Reading {
        self.0.borrow_mut().insert(path.to_owned());
        Reading::Unknown
    }
}

/// The facts of every call: the inputs are unknown.
struct AnyInputs {
    has_extends: bool,
}

impl OracleFacts for AnyInputs {
    fn read(&self, path: &str) -> Reading {
        match path {
            "directive" => Reading::Value(json!("main")),
            "has_extends" => Reading::Value(json!(self.has_extends)),
            _ => Reading::Unknown,
        }
    }
}

impl RandomProject {
    /// Returns the inputs by which the regions of a matrix are described. An input without a value has its default if
    /// `main` declares it, or if there is one chain only and no route depends on the input.
    pub fn region_inputs(&self, given: &Map<String, Value>, expected: &Expected) -> Map<String, Value> {
        let main = self.directive("main");
        let read = RecordedPaths::default();
        let unknown = AnyInputs { has_extends: main.extends.is_some() };
        let mut chains: BTreeSet<Option<&str>> = BTreeSet::new();
        let mut is_decided = false;
        for hook in &self.hooks {
            let RandomAction::Route(to) = hook.action else { continue };
            let truth = |facts: &dyn OracleFacts| hook.condition.as_ref().map_or(Some(true), |one| one.evaluate(facts));
            // Evaluate the condition to record the paths that it reads.
            truth(&read);
            let chosen = truth(&unknown);
            if chosen != Some(false) && !is_decided {
                chains.insert(Some(to));
                is_decided = chosen == Some(true);
            }
        }
        if !is_decided {
            chains.insert(main.extends.as_deref());
        }
        let read = read.0.into_inner();
        let mut inputs = expected.inputs.clone();
        inputs.retain(|name, _| {
            let is_own = main.inputs.iter().any(|input| input.name == *name && input.default.is_some());
            given.contains_key(name) || is_own || chains.len() == 1 && !read.contains(&format!("inputs.{name}"))
        });
        inputs
    }

    /// Returns the inputs that the choice of the route sees.
    pub fn routing_inputs(&self, given: &Map<String, Value>) -> Map<String, Value> {
        with_defaults(given, &self.directive("main").inputs)
    }

    /// Returns the expected plan of `main` with these inputs.
    pub fn expected(&self, given: &Map<String, Value>) -> Result<Expected, Refused> {
        let leaf = self.directive("main");
        let has_extends = leaf.extends.is_some();
        let routing = Before { inputs: &self.routing_inputs(given), has_extends, depth: None };
        let truth = |condition: &Option<OracleCondition>, facts: &dyn OracleFacts| -> Truth {
            condition.as_ref().map_or(Some(true), |condition| condition.evaluate(facts))
        };
        let routing_hook = self.hooks.iter().find_map(|hook| match hook.action {
            RandomAction::Route(to) => {
                (truth(&hook.condition, &routing) == Some(true)).then(|| (hook.id.clone(), to.to_owned()))
            }
            RandomAction::Fetch(_) => None,
        });
        let (route, parent) = routing_hook.unzip();
        let mut chain = vec![leaf];
        let mut next = parent.or_else(|| leaf.extends.clone());
        while let Some(id) = &next {
            let link = self.directive(id);
            chain.insert(0, link);
            next.clone_from(&link.extends);
        }
        let declared = merge_inputs(&chain);
        check(given, &declared)?;
        let inputs = with_defaults(given, &declared);
        let suppressed: Vec<&String> = chain.iter().flat_map(|link| &link.suppress).collect();
        let is_suppressed = |id: &str| suppressed.iter().any(|known| *known == id);
        let mut hooks: Vec<&RandomHook> = chain.iter().rev().flat_map(|link| &link.hooks).collect();
        hooks.extend(self.hooks.iter().filter(|hook| matches!(hook.action, RandomAction::Fetch(_))));
        let at_depth = |depth| Before { inputs: &inputs, has_extends, depth };
        let facts = at_depth(None);
        let mut verdicts: Vec<(&RandomHook, String, OracleVerdict)> = Vec::new();
        for hook in hooks {
            let RandomAction::Fetch(n) = hook.action else { continue };
            let verdict = match truth(&hook.condition, &facts) {
                _ if is_suppressed(&hook.id) || is_suppressed(&note(n)) => OracleVerdict::Removed,
                Some(true) => OracleVerdict::Fires,
                Some(false) => OracleVerdict::Never,
                None => OracleVerdict::Depends,
            };
            verdicts.push((hook, note(n), verdict));
        }
        let brought: BTreeSet<String> =
            verdicts.iter().flat_map(|(hook, item, _)| [hook.id.clone(), item.clone()]).collect();
        let declared: BTreeSet<String> =
            chain.iter().flat_map(|link| link.context.iter().flatten()).map(|n| note(*n)).collect();
        let removes = |id: &&String| brought.contains(*id) || declared.contains(*id);
        let suppressed = suppressed.iter().copied().filter(removes).cloned().collect();
        let layers = sections(&chain, &mut verdicts, &is_suppressed);
        let fires = |hook: &RandomHook| {
            DEPTHS.into_iter().any(|depth| truth(&hook.condition, &at_depth(Some(depth))) == Some(true))
        };
        let is_live = |verdict| matches!(verdict, OracleVerdict::Fires | OracleVerdict::Depends);
        let firing = verdicts.iter().filter(|(hook, _, verdict)| is_live(*verdict) && fires(hook));
        let firing = firing.map(|(hook, ..)| hook.id.clone()).collect();
        let chain = chain.iter().map(|link| link.id.clone()).collect();
        let verdicts = verdicts.into_iter().map(|(hook, _, verdict)| (hook.id.clone(), verdict)).collect();
        Ok(Expected { chain, layers, verdicts, firing, inputs, route, suppressed })
    }
}

/// Orders the layers, each item once: at its first certain place, else at each place where a hook may add it.
fn sections(
    chain: &[&RandomDirective],
    hooks: &mut [(&RandomHook, String, OracleVerdict)],
    is_suppressed: &dyn Fn(&str) -> bool,
) -> Vec<(String, bool)> {
    let mut of_chain: [Vec<String>; 3] = [Vec::new(), Vec::new(), Vec::new()];
    let mut seen: Vec<String> = Vec::new();
    for (position, items) in of_chain.iter_mut().enumerate() {
        for id in chain.iter().flat_map(|link| &link.context[position]).map(|n| note(*n)) {
            if !is_suppressed(&id) && !seen.contains(&id) {
                seen.push(id.clone());
                items.push(id);
            }
        }
    }
    // Steps: a hook section, a chain section, or the body.
    let steps: [OracleStep; 8] = [
        OracleStep::Hooks("build_system_prompt", "before"),
        OracleStep::Chain(0),
        OracleStep::Hooks("build_system_prompt", "after"),
        OracleStep::Hooks("thread_started", "before"),
        OracleStep::Chain(1),
        OracleStep::Body,
        OracleStep::Chain(2),
        OracleStep::Hooks("thread_started", "after"),
    ];
    let mut certain: Vec<String> = Vec::new();
    for step in &steps {
        match step {
            OracleStep::Body => {}
            OracleStep::Chain(position) => {
                of_chain[*position].retain(|id| !certain.contains(id));
                certain.extend(of_chain[*position].iter().cloned());
            }
            OracleStep::Hooks(event, position) => {
                for (hook, id, verdict) in hooks.iter_mut() {
                    if hook.event == *event && hook.position == *position && *verdict == OracleVerdict::Fires {
                        if certain.contains(id) {
                            *verdict = OracleVerdict::Removed;
                        } else {
                            certain.push(id.clone());
                        }
                    }
                }
            }
        }
    }
    for (_, id, verdict) in hooks.iter_mut().filter(|(_, _, verdict)| *verdict == OracleVerdict::Depends) {
        if certain.contains(id) {
            *verdict = OracleVerdict::Removed;
        }
    }
    let mut layers = Vec::new();
    for step in &steps {
        match step {
            OracleStep::Body => layers.push(("main".to_owned(), false)),
            OracleStep::Chain(position) => layers.extend(of_chain[*position].iter().map(|id| (id.clone(), false))),
            OracleStep::Hooks(event, position) => layers.extend(
                hooks
                    .iter()
                    .filter(|(hook, _, verdict)| {
                        let is_live = matches!(verdict, OracleVerdict::Fires | OracleVerdict::Depends);
                        is_live && hook.event == *event && hook.position == *position
                    })
                    .map(|(_, id, verdict)| (id.clone(), *verdict == OracleVerdict::Depends)),
            ),
        }
    }
    layers
}

enum OracleStep {
    Hooks(&'static str, &'static str),
    Chain(usize),
    Body,
}

/// Merges the inputs of a chain by name; the declaration nearest to the leaf wins.
fn merge_inputs(chain: &[&RandomDirective]) -> Vec<Input> {
    let mut all: Vec<Input> = Vec::new();
    for input in chain.iter().rev().flat_map(|link| &link.inputs) {
        if !all.iter().any(|known| known.name == input.name) {
            all.push(input.clone());
        }
    }
    all
}

fn with_defaults(given: &Map<String, Value>, declared: &[Input]) -> Map<String, Value> {
    let mut inputs = given.clone();
    for input in declared {
        if let (Some(default), false) = (&input.default, inputs.contains_key(&input.name)) {
            inputs.insert(input.name.clone(), default.clone());
        }
    }
    inputs
}

fn check(given: &Map<String, Value>, declared: &[Input]) -> Result<(), Refused> {
    for (name, value) in given {
        let Some(input) = declared.iter().find(|input| input.name == *name) else { return Err(Refused::Undeclared) };
        let is_choice = input.choices.iter().any(|choice| value == choice);
        if !input.choices.is_empty() && !is_choice {
            return Err(Refused::Invalid);
        }
    }
    let is_missing = |input: &Input| input.required && !given.contains_key(&input.name);
    if declared.iter().any(is_missing) { Err(Refused::Missing) } else { Ok(()) }
}

/// Returns at most `most` calls of `main`. The calls combine, for each input, the values at which the result of a
/// condition can change, and the input without a value.
pub fn enumerate(
    project: &RandomProject,
    most: usize,
    pick: &mut dyn FnMut(usize) -> usize,
) -> Vec<Map<String, Value>> {
    let declared = project.declared();
    let values: Vec<(String, Vec<Option<Value>>)> =
        declared.iter().map(|input| (input.name.clone(), values_of(project, input))).collect();
    let product = values.iter().fold(1_usize, |product, (_, values)| product.saturating_mul(values.len()));
    let call = |mut at: usize| -> Map<String, Value> {
        let mut given = Map::new();
        for (name, values) in &values {
            if let Some(value) = &values[at % values.len()] {
                given.insert(name.clone(), value.clone());
            }
            at /= values.len();
        }
        given
    };
    if product <= most { (0..product).map(call).collect() } else { (0..most).map(|_| call(pick(product))).collect() }
}

fn values_of(project: &RandomProject, input: &Input) -> Vec<Option<Value>> {
    let path = format!("inputs.{}", input.name);
    let mut values: Vec<Value> = Vec::new();
    let mut literals: Vec<Value> = Vec::new();
    let hooks = project.hooks.iter().chain(project.directives.iter().flat_map(|directive| &directive.hooks));
    for condition in hooks.filter_map(|hook| hook.condition.as_ref()) {
        condition.visit_literals(&mut |read, value| {
            if read == path {
                literals.push(value.clone());
            }
        });
    }
    let flat: Vec<Value> = literals
        .into_iter()
        .flat_map(|value| match value {
            Value::Array(items) if input.kind != "array" => items,
            other => vec![other],
        })
        .collect();
    match input.kind {
        "boolean" => values.extend([json!(true), json!(false)]),
        "integer" => {
            values.push(json!(-7));
            for n in flat.iter().filter_map(Value::as_i64) {
                values.extend([json!(n - 1), json!(n), json!(n + 1)]);
            }
        }
        "number" => {
            values.push(json!(-7.5));
            for n in flat.iter().filter_map(Value::as_f64) {
                values.extend([json!(n - 0.125), json!(n), json!(n + 0.125)]);
            }
        }
        "array" => {
            values.extend([json!([]), json!(["zz"])]);
            values.extend(flat.iter().map(|value| match value {
                Value::Array(items) => json!(items),
                one => json!([one]),
            }));
        }
        _ if !input.choices.is_empty() => {
            // Another directive may declare other choices.
            let all = project.directives.iter().flat_map(|directive| &directive.inputs);
            for choice in all.filter(|other| other.name == input.name).flat_map(|other| &other.choices) {
                values.push(json!(choice));
            }
        }
        _ => {
            values.push(json!("zz"));
            for text in flat.iter().filter_map(Value::as_str) {
                values.extend([json!(text), json!(format!("{text}z")), json!(format!("z{text}"))]);
            }
        }
    }
    let mut unique: Vec<Option<Value>> = vec![None];
    for value in values {
        if !unique.contains(&Some(value.clone())) {
            unique.push(Some(value));
        }
    }
    unique
}
