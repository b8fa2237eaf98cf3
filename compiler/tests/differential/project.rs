//! Projects of the differential tests as data, their files, and their generator. A project has one directive `main`
//! that inputs can route to other parents, and hooks whose conditions read inputs and facts of a run.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::condition::{OracleCondition, OraclePattern, OracleTerm};
pub use super::rng::Rng;

pub const NOTE_COUNT: usize = 5;

/// Directives that a routing hook can select.
const ROUTES: [&str; 2] = ["parts/one", "parts/two"];

#[derive(Debug, Clone)]
pub struct RandomProject {
    /// The directive `main` first.
    pub directives: Vec<RandomDirective>,
    /// Hooks of the project's hook file.
    pub hooks: Vec<RandomHook>,
    pub assertions: Vec<RandomAssertion>,
}

/// An assertion about gates: `passes("hook0") || !passes("hook1")`.
#[derive(Debug, Clone)]
pub struct RandomAssertion {
    pub id: String,
    /// The directive that `for` selects.
    pub only: Option<&'static str>,
    pub never: bool,
    /// The gates of the disjunction, each with true if it is negated.
    pub gates: Vec<(String, bool)>,
}

#[derive(Debug, Clone)]
pub struct RandomDirective {
    pub id: String,
    pub extends: Option<String>,
    pub inputs: Vec<Input>,
    /// Notes by position: `system`, `before` and `after`.
    pub context: [Vec<usize>; 3],
    /// Ids of notes and hooks.
    pub suppress: Vec<String>,
    pub hooks: Vec<RandomHook>,
}

#[derive(Debug, Clone)]
pub struct Input {
    pub name: String,
    pub kind: &'static str,
    pub required: bool,
    pub default: Option<Value>,
    pub choices: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct RandomHook {
    pub id: String,
    pub event: &'static str,
    pub position: &'static str,
    pub condition: Option<OracleCondition>,
    pub mapping: bool,
    pub action: RandomAction,
}

#[derive(Debug, Clone)]
pub enum RandomAction {
    Fetch(usize),
    Route(&'static str),
}

/// The names and types of all inputs. Every directive declares some of them.
const INPUTS: [(&str, &str); 6] = [
    ("word", "string"),
    ("mode", "string"),
    ("count", "integer"),
    ("share", "number"),
    ("flag", "boolean"),
    ("tags", "array"),
];

const WORDS: [&str; 5] = ["tea", "te", "coffee", "a", ""];
const MODES: [&str; 4] = ["dev", "test", "prod", "de"];

/// Returns the note's id.
pub fn note(n: usize) -> String {
    format!("notes/n{n}")
}

impl RandomProject {
    /// Returns the project of a seed.
    pub fn generate(seed: u64) -> Self {
        let rng = &mut Rng::new(seed);
        // More inputs would have too many combinations.
        let mut used = INPUTS.to_vec();
        while used.len() > 3 {
            used.remove(rng.below(used.len()));
        }
        let used = used.as_slice();
        let base = rng.once_in(2).then(|| "parts/base".to_owned());
        let mut directives = vec![RandomDirective::generate(rng, used, "main", base.clone())];
        if base.is_some() {
            let above = rng.once_in(3).then(|| "parts/root".to_owned());
            directives.push(RandomDirective::generate(rng, used, "parts/base", above));
        }
        directives.push(RandomDirective::generate(rng, used, "parts/root", None));
        for id in ROUTES {
            let above = rng.once_in(3).then(|| "parts/root".to_owned());
            directives.push(RandomDirective::generate(rng, used, id, above));
        }
        let mut project = Self { directives, hooks: Vec::new(), assertions: Vec::new() };
        let declared = project.declared();
        let names: Vec<&Input> = declared.iter().collect();
        for n in 0..rng.below(3) {
            // Other directives keep their parents: a route to one of their own children would be a cycle.
            let is_main = OracleCondition::Compare(
                "==",
                OracleTerm::Path("directive".into()),
                OracleTerm::Literal(json!("main")),
            );
            let when = condition(rng, &names, 2, &["directive", "has_extends"]);
            let hook = RandomHook {
                id: format!("route{n}"),
                event: "resolve_extends",
                position: "before",
                condition: Some(OracleCondition::All(vec![is_main, when])),
                mapping: rng.once_in(2),
                action: RandomAction::Route(ROUTES[rng.below(ROUTES.len())]),
            };
            project.hooks.push(hook);
        }
        for n in 0..=rng.below(6) {
            project.hooks.push(RandomHook::generate(rng, &format!("hook{n}"), &names));
        }
        // The assertions use a random sequence of their own, so that the projects of a seed stay the same.
        let rng = &mut Rng::new(seed ^ 0x5eed);
        project.assertions = (0..=rng.below(2)).map(|n| RandomAssertion::generate(rng, n)).collect();
        project
    }

    /// Returns every input that a directive declares, one declaration for each name.
    pub fn declared(&self) -> Vec<Input> {
        let mut all: Vec<Input> = Vec::new();
        for input in self.directives.iter().flat_map(|directive| &directive.inputs) {
            if !all.iter().any(|known| known.name == input.name) {
                all.push(input.clone());
            }
        }
        all
    }

    pub fn directive(&self, id: &str) -> &RandomDirective {
        self.directives.iter().find(|directive| directive.id == id).unwrap()
    }

    /// Returns the texts of the project's files by path.
    pub fn files(&self) -> Vec<(String, String)> {
        let mut files: Vec<(String, String)> = (0..NOTE_COUNT)
            .map(|n| {
                (format!(".ai/knowledge/{}.md", note(n)), format!("---\ndescription: Note {n}.\n---\n\nNote {n}.\n"))
            })
            .collect();
        files.extend(self.directives.iter().map(|one| (format!(".ai/directives/{}.md", one.id), one.text())));
        let mut hooks = "hooks:\n".to_owned();
        for hook in &self.hooks {
            let _ = writeln!(hooks, "  - {}", hook.data());
        }
        if self.hooks.is_empty() {
            "hooks: []\n".clone_into(&mut hooks);
        }
        files.push((".ai/config/agent/hooks.yaml".to_owned(), hooks));
        let mut assertions = "lethal_trifecta: off\nassertions:\n".to_owned();
        for assertion in &self.assertions {
            let _ = writeln!(assertions, "  - {}", assertion.data());
        }
        files.push((".ai/config/agent/assertions.yaml".to_owned(), assertions));
        files
    }
}

impl RandomAssertion {
    fn generate(rng: &mut Rng, n: usize) -> Self {
        // Most projects have `hook0`, none has `hook9`.
        let gate = |rng: &mut Rng| (format!("hook{}", rng.one_of(&[0, 0, 1, 9])), rng.once_in(2));
        let gates = (0..=rng.below(2)).map(|_| gate(rng)).collect();
        let only = rng.one_of(&[None, None, Some("main"), Some("parts/root"), Some("parts/none")]);
        Self { id: format!("assertion{n}"), only, never: rng.once_in(2), gates }
    }

    fn data(&self) -> Value {
        let part = |(gate, negated): &(String, bool)| format!("{}passes(\"{gate}\")", if *negated { "!" } else { "" });
        let text = self.gates.iter().map(part).collect::<Vec<_>>().join(" || ");
        let mut data = Map::new();
        data.insert("id".into(), json!(self.id));
        data.insert(if self.never { "never" } else { "always" }.into(), json!(text));
        if let Some(only) = self.only {
            data.insert("for".into(), json!(format!("directive == \"{only}\"")));
        }
        Value::Object(data)
    }

    /// Returns true if the assertion holds for every combination of passed and missing gates.
    pub fn is_vacuous(&self) -> bool {
        let mut names: Vec<&String> = self.gates.iter().map(|(gate, _)| gate).collect();
        names.sort();
        names.dedup();
        (0..1_u32 << names.len()).all(|answers| {
            let passes = |gate: &String| answers >> names.iter().position(|name| *name == gate).unwrap() & 1 == 1;
            let holds = self.gates.iter().any(|(gate, negated)| passes(gate) != *negated);
            holds != self.never
        })
    }
}

impl RandomDirective {
    fn generate(rng: &mut Rng, used: &[(&str, &'static str)], id: &str, extends: Option<String>) -> Self {
        let mut inputs = Vec::new();
        for (name, kind) in used {
            // A call with an input that the chain of its route does not declare is refused, so `main` declares most
            // inputs itself.
            let is_declared = if id == "main" { !rng.once_in(6) } else { rng.once_in(4) };
            if is_declared {
                inputs.push(Input::generate(rng, name, kind));
            }
        }
        let mut context = [Vec::new(), Vec::new(), Vec::new()];
        let mut notes: Vec<usize> = (0..NOTE_COUNT).collect();
        for position in &mut context {
            if rng.once_in(3) {
                position.push(notes.remove(rng.below(notes.len())));
            }
        }
        let mut suppress = Vec::new();
        if rng.once_in(4) {
            suppress.push(if rng.once_in(2) { note(notes[0]) } else { format!("hook{}", rng.below(3)) });
        }
        let mut hooks = Vec::new();
        if rng.once_in(3) {
            let names: Vec<&Input> = inputs.iter().collect();
            hooks.push(RandomHook::generate(rng, &format!("own_{}", id.rsplit('/').next().unwrap()), &names));
        }
        Self { id: id.to_owned(), extends, inputs, context, suppress, hooks }
    }

    fn text(&self) -> String {
        let name = self.id.rsplit('/').next().unwrap();
        let extends = self.extends.iter().fold(String::new(), |_, id| format!(" extends=\"{id}\""));
        let mut inside = String::from("<context>");
        for (position, notes) in ["system", "before", "after"].iter().zip(&self.context) {
            for n in notes {
                let _ = write!(inside, "<{position}>{}</{position}>", note(*n));
            }
        }
        for id in &self.suppress {
            let _ = write!(inside, "<suppress>{id}</suppress>");
        }
        // The routes differ in their limits and grants, which `main` inherits.
        inside.push_str(match self.id.as_str() {
            "main" => "</context><hooks>",
            "parts/one" => {
                "</context><limits spend=\"0.40\"/><permissions><fetch><knowledge>*</knowledge></fetch></permissions><hooks>"
            }
            "parts/two" => "</context><limits spend=\"0.30\"/><permissions/><hooks>",
            _ => "</context><permissions/><hooks>",
        });
        for hook in &self.hooks {
            let RandomAction::Fetch(n) = hook.action else { panic!("a directive routes") };
            let when = hook.condition.as_ref().map_or("true".to_owned(), OracleCondition::inline);
            let when = when.replace('&', "&amp;").replace('<', "&lt;");
            let _ = write!(
                inside,
                "<hook id=\"{}\" event=\"{}\" position=\"{}\"><when>{when}</when><fetch item_type=\"knowledge\" item_id=\"{}\"/></hook>",
                hook.id,
                hook.event,
                hook.position,
                note(n)
            );
        }
        inside.push_str("</hooks>");
        let mut inputs = String::new();
        for input in &self.inputs {
            let _ = write!(inputs, "<input name=\"{}\" type=\"{}\"", input.name, input.kind);
            if input.required {
                inputs.push_str(" required=\"true\"");
            }
            if let Some(default) = &input.default {
                let text = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
                let _ = write!(inputs, " default=\"{}\"", text.replace('"', "&quot;"));
            }
            if !input.choices.is_empty() {
                let _ = write!(inputs, " enum=\"{}\"", input.choices.join(","));
            }
            inputs.push_str("/>");
        }
        format!(
            "# {name}\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\"{extends}>\n<metadata>{inside}</metadata>\n<inputs>{inputs}</inputs>\n</directive>\n```\n\nDo it.\n"
        )
    }
}

impl Input {
    fn generate(rng: &mut Rng, name: &str, kind: &'static str) -> Self {
        let required = rng.once_in(4);
        let choices: Vec<String> = if name == "mode" {
            let mut choices: Vec<String> = MODES.iter().map(|mode| (*mode).to_owned()).collect();
            choices.remove(rng.below(choices.len()));
            choices
        } else {
            Vec::new()
        };
        let default = (!required && rng.once_in(2)).then(|| match kind {
            "string" if name == "mode" => json!(choices[0]),
            "string" => json!("tea"),
            "integer" => json!(rng.below(5)),
            "number" => json!(0.5),
            "boolean" => json!(rng.once_in(2)),
            _ => json!(["a"]),
        });
        Self { name: name.to_owned(), kind, required, default, choices }
    }
}

impl RandomHook {
    fn generate(rng: &mut Rng, id: &str, inputs: &[&Input]) -> Self {
        Self {
            id: id.to_owned(),
            event: rng.one_of(&["build_system_prompt", "thread_started", "thread_started"]),
            position: rng.one_of(&["before", "after"]),
            condition: (!rng.once_in(6)).then(|| condition(rng, inputs, 2, &["directive", "depth"])),
            mapping: rng.once_in(2),
            action: RandomAction::Fetch(rng.below(NOTE_COUNT)),
        }
        .without_unknown_facts()
    }

    /// Replaces a fact that the event does not have.
    fn without_unknown_facts(mut self) -> Self {
        if self.event == "build_system_prompt" && self.condition.iter().any(|one| one.inline().contains("depth")) {
            self.event = "thread_started";
        }
        self
    }

    /// Returns the hook as data; JSON is YAML.
    fn data(&self) -> Value {
        let mut hook = Map::new();
        hook.insert("id".into(), json!(self.id));
        hook.insert("event".into(), json!(self.event));
        if let Some(condition) = &self.condition {
            let mapping = condition.mapping().filter(|_| self.mapping);
            hook.insert("condition".into(), mapping.unwrap_or_else(|| json!(condition.inline())));
        }
        let action = match self.action {
            RandomAction::Route(id) => json!({ "set_extends": id }),
            RandomAction::Fetch(n) => {
                hook.insert("position".into(), json!(self.position));
                json!({ "primary": "fetch", "item_type": "knowledge", "item_id": note(n) })
            }
        };
        hook.insert("action".into(), action);
        Value::Object(hook)
    }
}

/// Returns a condition over some of these inputs and facts.
fn condition(rng: &mut Rng, inputs: &[&Input], depth: usize, facts: &[&str]) -> OracleCondition {
    if depth > 0 && rng.once_in(2) {
        let mut part = || condition(rng, inputs, depth - 1, facts);
        let parts = vec![part(), part()];
        return match rng.below(5) {
            0 => OracleCondition::Not(Box::new(parts.into_iter().next().unwrap())),
            1 | 2 => OracleCondition::Any(parts),
            _ => OracleCondition::All(parts),
        };
    }
    if inputs.is_empty() || rng.once_in(3) {
        return match rng.one_of(facts) {
            "directive" => OracleCondition::Compare(
                rng.one_of(&["==", "!="]),
                OracleTerm::Path("directive".into()),
                OracleTerm::Literal(json!(rng.one_of(&["main", "parts/one"]))),
            ),
            "has_extends" => OracleCondition::Is("has_extends".into()),
            _ => OracleCondition::Compare(
                rng.one_of(&["==", ">"]),
                OracleTerm::Path("depth".into()),
                OracleTerm::Literal(json!(rng.below(2))),
            ),
        };
    }
    let input = inputs[rng.below(inputs.len())];
    let path = format!("inputs.{}", input.name);
    let compare = |op, path: String, value: Value| {
        OracleCondition::Compare(op, OracleTerm::Path(path), OracleTerm::Literal(value))
    };
    if rng.once_in(6) {
        return OracleCondition::Exists(path);
    }
    match (input.kind, rng.below(8)) {
        ("boolean", 0..4) => OracleCondition::Is(path),
        ("boolean", _) => compare(rng.one_of(&["==", "!="]), path, json!(rng.once_in(2))),
        ("integer", 0) => {
            let sum = OracleTerm::Sum(path, i64::try_from(1 + rng.below(3)).unwrap());
            OracleCondition::Compare(rng.one_of(&["==", ">"]), sum, OracleTerm::Literal(json!(rng.below(6))))
        }
        ("integer", 1) => compare("in", path, json!([rng.below(5), rng.below(9)])),
        ("integer", _) => compare(rng.one_of(&["==", "!=", "<", "<=", ">", ">="]), path, json!(rng.below(6))),
        ("number", _) => {
            let value = rng.one_of(&[0.0, 0.25, 0.5, 1.0, 2.5]);
            compare(rng.one_of(&["==", "!=", "<", "<=", ">", ">="]), path, json!(value))
        }
        ("array", 0) => {
            OracleCondition::Compare(">", OracleTerm::Length(path), OracleTerm::Literal(json!(rng.below(3))))
        }
        ("array", _) | (_, 2) => compare("contains", path, json!(rng.one_of(&WORDS))),
        (_, 0) if input.choices.is_empty() => OracleCondition::Compare(
            rng.one_of(&[">", "=="]),
            OracleTerm::Length(path),
            OracleTerm::Literal(json!(rng.below(5))),
        ),
        (_, 1) => {
            let (from_start, to_end) = (rng.once_in(2), rng.once_in(3));
            OracleCondition::Matches(
                path,
                OraclePattern { from_start, text: rng.one_of(&["te", "co", "d"]).to_owned(), to_end },
            )
        }
        (_, 3) if input.choices.is_empty() => compare(rng.one_of(&["<", ">="]), path, json!(rng.one_of(&["b", "tea"]))),
        (_, 4) => compare("in", path, json!([rng.one_of(&MODES), rng.one_of(&WORDS)])),
        _ => {
            let word = if input.choices.is_empty() { rng.one_of(&WORDS) } else { rng.one_of(&MODES) };
            compare(rng.one_of(&["==", "!="]), path, json!(word))
        }
    }
}
