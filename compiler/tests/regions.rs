//! Law of `rye plan ID --all`: for random projects, the regions are disjoint and complete, and the plan of a call has the
//! parts of the region that contains the call. The expected parts come from an enumerator of this file, which knows the
//! hooks of a project as data and evaluates their conditions itself.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use rye_compiler::compile::{CompileRequest, compile};
use rye_compiler::plan::Plan;
use rye_compiler::report::matrix::{Matrix, build_matrix};
use rye_compiler::semantics::condition::{Condition, Verdict};
use rye_compiler::semantics::facts::Facts;
use rye_compiler::world::{MapWorld, Space};
use rye_grammar::condition::parse_inline;
use rye_grammar::{ItemId, SourceId};
use serde_json::{Map, Value, json};

const PROJECTS: u64 = 24;
const CALLS: usize = 40;
const ITEMS: usize = 4;

/// A seeded pseudo-random generator (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        for (left, shift) in [(true, 13), (false, 7), (true, 17)] {
            self.0 ^= if left { self.0 << shift } else { self.0 >> shift };
        }
        usize::try_from((self.0 >> 11) % n as u64).unwrap()
    }

    fn one_of<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

/// A condition of the enumerator.
#[derive(Debug, Clone)]
enum Test {
    Exists(&'static str),
    Equals(&'static str, Value),
    Below(&'static str, Value),
    AtLeast(&'static str, Value),
    Contains(&'static str, &'static str),
    Not(Box<Test>),
    Both(Box<Test>, Box<Test>),
    Either(Box<Test>, Box<Test>),
}

impl Test {
    fn text(&self) -> String {
        match self {
            Self::Exists(name) => format!("exists(inputs.{name})"),
            Self::Equals(name, value) => format!("inputs.{name} == {value}"),
            Self::Below(name, value) => format!("inputs.{name} < {value}"),
            Self::AtLeast(name, value) => format!("inputs.{name} >= {value}"),
            Self::Contains(name, part) => format!("inputs.{name} contains \"{part}\""),
            Self::Not(inner) => format!("!({})", inner.text()),
            Self::Both(a, b) => format!("({}) && ({})", a.text(), b.text()),
            Self::Either(a, b) => format!("({}) || ({})", a.text(), b.text()),
        }
    }

    fn holds(&self, call: &Map<String, Value>) -> bool {
        let ordered = |name: &str, value: &Value| match (call.get(name), value) {
            (Some(Value::Number(a)), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
            (Some(Value::String(a)), Value::String(b)) => Some(a.cmp(b)),
            _ => None,
        };
        match self {
            Self::Exists(name) => call.contains_key(*name),
            Self::Equals(name, value) if value.is_number() => ordered(name, value).is_some_and(Ordering::is_eq),
            Self::Equals(name, value) => call.get(*name) == Some(value),
            Self::Below(name, value) => ordered(name, value).is_some_and(Ordering::is_lt),
            Self::AtLeast(name, value) => ordered(name, value).is_some_and(Ordering::is_ge),
            Self::Contains(name, part) => {
                call.get(*name).and_then(Value::as_str).is_some_and(|text| text.contains(part))
            }
            Self::Not(inner) => !inner.holds(call),
            Self::Both(a, b) => a.holds(call) && b.holds(call),
            Self::Either(a, b) => a.holds(call) || b.holds(call),
        }
    }
}

/// The inputs: name, declaration, values of calls (null for none).
fn inputs() -> Vec<(&'static str, &'static str, Vec<Value>)> {
    vec![
        ("a", "type=\"integer\" required=\"true\"", [-1, 0, 2, 3, 4, 8, 9, 10].map(Value::from).to_vec()),
        ("b", "required=\"true\"", ["", "p", "q", "r", "rs", "x rs x", "s r", "other"].map(Value::from).to_vec()),
        ("c", "", vec![Value::Null, json!(""), json!("a"), json!("m"), json!("m\0"), json!("p"), json!("z")]),
        ("d", "type=\"number\"", vec![Value::Null, json!(-2), json!(1), json!(1.5), json!(2.5), json!(7)]),
        ("e", "required=\"true\" enum=\"x,y,z\"", ["x", "y", "z"].map(Value::from).to_vec()),
        ("f", "type=\"boolean\"", vec![Value::Null, json!(true), json!(false)]),
        ("g", "type=\"integer\" default=\"5\"", vec![Value::Null, json!(4), json!(5), json!(6)]),
    ]
}

fn test(dice: &mut Dice, of: &[&'static str], depth: usize) -> Test {
    if depth > 0 && dice.below(2) == 0 {
        let (a, b) = (Box::new(test(dice, of, depth - 1)), Box::new(test(dice, of, depth - 1)));
        return match dice.below(3) {
            0 => Test::Not(a),
            1 => Test::Both(a, b),
            _ => Test::Either(a, b),
        };
    }
    match dice.one_of(of) {
        "a" => match dice.below(3) {
            0 => Test::Equals("a", json!(dice.one_of(&[2, 9]))),
            1 => Test::Below("a", json!(dice.one_of(&[3.0, 2.5]))),
            _ => Test::AtLeast("a", json!(dice.one_of(&[3, 9]))),
        },
        "b" => match dice.below(2) {
            0 => Test::Equals("b", json!(dice.one_of(&["p", "rs"]))),
            _ => Test::Contains("b", dice.one_of(&["r", "rs", "s"])),
        },
        "c" => match dice.below(3) {
            0 => Test::Exists("c"),
            1 => Test::Equals("c", json!("p")),
            _ => Test::Below("c", json!(dice.one_of(&["m", ""]))),
        },
        "d" => match dice.below(3) {
            0 => Test::Exists("d"),
            1 => Test::AtLeast("d", json!(1)),
            _ => Test::Below("d", json!(2.5)),
        },
        "e" => Test::Equals("e", json!(dice.one_of(&["x", "y"]))),
        "f" => match dice.below(2) {
            0 => Test::Exists("f"),
            _ => Test::Equals("f", json!(true)),
        },
        _ => Test::AtLeast("g", json!(5)),
    }
}

/// A generated project as data.
#[derive(Debug)]
struct Project {
    /// Condition, fetched item, position.
    hooks: Vec<(Option<Test>, usize, &'static str)>,
    route: Option<Test>,
    /// Items of the directive's own chain, and of the base that the hook selects.
    own: BTreeSet<usize>,
    base: BTreeSet<usize>,
    suppressed: Option<usize>,
}

fn project(dice: &mut Dice) -> Project {
    let mut names: Vec<&'static str> = inputs().iter().map(|(name, ..)| *name).collect();
    while names.len() > 3 {
        names.remove(dice.below(names.len()));
    }
    let hooks = (0..=dice.below(4))
        .map(|_| {
            let condition = (dice.below(5) > 0).then(|| test(dice, &names, 2));
            (condition, dice.below(ITEMS), dice.one_of(&["before", "after"]))
        })
        .collect();
    let some = |dice: &mut Dice| (0..ITEMS).filter(|_| dice.below(3) == 0).collect::<BTreeSet<_>>();
    Project {
        hooks,
        route: (dice.below(3) == 0).then(|| test(dice, &names, 1)),
        own: some(dice),
        base: some(dice),
        suppressed: (dice.below(4) == 0).then(|| dice.below(ITEMS)),
    }
}

impl Project {
    fn world(&self) -> MapWorld<'static> {
        let provider = "wire: anthropic\nbase_url: https://main.test\ntiers: { general: large }\nmodels:\n - { id: large, context_window: 100000, max_output: 500, prices: { input: 2, output: 10 } }\n";
        let mut world = MapWorld::new()
            .with(Space::System, ".ai/config/agent/models.yaml", "{ default_provider: main, default_tier: general }")
            .with(Space::System, ".ai/config/agent/providers/main.yaml", provider);
        for n in 0..ITEMS {
            world = world.project(&format!(".ai/knowledge/k{n}.md"), format!("Item {n}.\n"));
        }
        let mut hooks = String::from("hooks:\n");
        for (n, (condition, item, position)) in self.hooks.iter().enumerate() {
            let condition = condition.as_ref().map(|test| format!("condition: '{}', ", test.text()));
            let _ = writeln!(
                hooks,
                "  - {{ id: h{n}, event: thread_started, position: {position}, {}action: {{ primary: fetch, item_type: knowledge, item_id: k{item} }} }}",
                condition.unwrap_or_default()
            );
        }
        if let Some(route) = &self.route {
            let _ = writeln!(
                hooks,
                "  - {{ id: route, event: resolve_extends, condition: '{}', action: {{ set_extends: base }} }}",
                route.text()
            );
        }
        let context = |items: &BTreeSet<usize>| {
            items.iter().fold(String::new(), |all, item| all + &format!("<before>k{item}</before>"))
        };
        let suppress = self.suppressed.map(|item| format!("<suppress>k{item}</suppress>")).unwrap_or_default();
        let declared = inputs()
            .iter()
            .fold(String::new(), |all, (name, attributes, _)| all + &format!("<input name=\"{name}\" {attributes}/>"));
        let file = |name: &str, context: String, inputs: &str| {
            format!(
                "```xml\n<directive name=\"{name}\"><metadata><permissions/><context>{context}</context></metadata>{inputs}</directive>\n```\n\nBody.\n"
            )
        };
        let inputs = format!("<inputs>{declared}</inputs>");
        world
            .project(".ai/config/agent/hooks.yaml", hooks)
            .project(".ai/directives/leaf.md", file("leaf", context(&self.own) + &suppress, &inputs))
            .project(".ai/directives/base.md", file("base", context(&self.base), ""))
    }

    /// Returns the knowledge that a call gets.
    fn knowledge(&self, call: &Map<String, Value>) -> BTreeSet<String> {
        let mut facts = call.clone();
        facts.entry("g").or_insert(json!(5));
        let mut items = self.own.clone();
        if self.route.as_ref().is_some_and(|test| test.holds(&facts)) {
            items.extend(&self.base);
        }
        let fires = |test: &Option<Test>| test.as_ref().is_none_or(|test| test.holds(&facts));
        items.extend(self.hooks.iter().filter(|(test, ..)| fires(test)).map(|(_, item, _)| *item));
        items.iter().filter(|item| self.suppressed != Some(**item)).map(|item| format!("k{item}")).collect()
    }
}

fn sent_parts(plan: &Plan) -> Vec<String> {
    plan.prompt.system.iter().chain(&plan.prompt.first_message).map(|layer| layer.id.clone()).collect()
}

/// Returns the regions whose condition holds for a call, as indices of contexts; a context with two true conditions
/// counts twice.
fn regions_of(matrix: &Matrix, compiled: &BTreeMap<&str, Condition>, call: &Map<String, Value>) -> Vec<usize> {
    let mut facts = Facts::new();
    for (name, value) in call {
        facts.set(name, value.clone());
    }
    facts.set("g", call.get("g").cloned().unwrap_or(json!(5)));
    let holds = |when: &&String| compiled[when.as_str()].evaluate(&facts) == Verdict::True;
    let contexts = matrix.contexts.iter().enumerate();
    contexts.flat_map(|(n, context)| context.when.iter().filter(holds).map(move |_| n)).collect()
}

#[test]
fn regions_are_disjoint_complete_and_right() {
    let mut several = 0;
    for seed in 1..=PROJECTS {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let project = project(&mut dice);
        let world = project.world();
        let request = CompileRequest::new(ItemId::parse("leaf").unwrap());
        let matrix = build_matrix(&world, &request).unwrap();
        assert!(matrix.refused.is_empty() && matrix.open.is_empty(), "{seed}: {:?}", matrix.refused);
        several += usize::from(matrix.contexts.len() > 2);
        let texts = matrix.contexts.iter().flat_map(|context| &context.when).map(String::as_str);
        let compiled: BTreeMap<&str, Condition> = texts
            .map(|text| {
                let parsed = parse_inline(SourceId(0), text, 0).unwrap_or_else(|e| panic!("{seed}: {text}: {e:?}"));
                (text, Condition::compile(&parsed).unwrap())
            })
            .collect();
        for _ in 0..CALLS {
            let mut call = Map::new();
            for (name, _, values) in inputs() {
                let value = dice.one_of(&values);
                if !value.is_null() {
                    call.insert(name.to_owned(), value);
                }
            }
            let regions = regions_of(&matrix, &compiled, &call);
            let [region] = regions.as_slice() else {
                panic!("{seed}: {call:?} is in {} regions: {:#?}\n{project:#?}", regions.len(), matrix.contexts)
            };
            let context = &matrix.contexts[*region];
            let plan = compile(&world, &request.clone().with_inputs(call.clone())).value.unwrap().plan;
            assert_eq!(context.parts, sent_parts(&plan), "{seed}: {call:?}\n{:?}\n{project:#?}", context.when);
            let knowledge: BTreeSet<String> = context.parts.iter().filter(|id| id.starts_with('k')).cloned().collect();
            assert_eq!(knowledge, project.knowledge(&call), "{seed}: {call:?}\n{project:#?}");
        }
    }
    assert!(several > 8, "only {several} projects have more than two contexts");
}
