//! The facts that conditions and templates of a hook point can read before the run (directive, model, limits), and the
//! facts that stay unknown until the run (`language.md`, Hooks).

use rye_grammar::condition::{Path, Segment};
use serde_json::{Map, Value};

use crate::compose::Composed;
use crate::hook::HookPoint;
use crate::semantics::facts::Facts;
use crate::semantics::hook_point::{self, FactShape};
use crate::semantics::limits::{LimitName, Limits};

/// The values of a thread that are known when its plan is made.
pub struct PlanTimeFacts<'a> {
    pub composed: &'a Composed,
    /// The values of the inputs; `None` if no inputs were given: then each declared input is unknown.
    pub inputs: Option<&'a Map<String, Value>>,
    /// The resolved model's id.
    pub model: &'a str,
    pub limits: &'a Limits,
    pub capabilities: String,
    /// The body with its inputs filled in; `None` if an input is unknown.
    pub directive_body: Option<String>,
}

impl PlanTimeFacts<'_> {
    /// Returns the facts of a hook point that are known before the run. A fact that only the run can supply is marked
    /// as unknown. `reads` lists the paths that the hooks read. At the hook point of a transcript event, each field that
    /// a hook reads is marked as unknown, because the table of hook points does not list the fields of events.
    pub(crate) fn facts_at(&self, point: HookPoint, reads: &[&Path]) -> Facts {
        let mut facts = Facts::new();
        let leaf = self.composed.leaf();
        facts.set("directive", self.composed.id.as_str().into());
        facts.set("category", leaf.map_or(self.composed.id.category(), |l| l.category()).into());
        facts.set("model", self.model.into());
        let line = hook_point::row_of(point);
        for fact in hook_point::COMMON_FACTS.iter().chain(line.facts) {
            match (fact.shape, self.known(fact.name)) {
                (FactShape::Inputs, _) => self.inputs(&mut facts),
                (_, Some(value)) => facts.set(fact.name, value),
                (_, None) if facts.known().contains_key(fact.name) => {}
                (_, None) => facts.declare_unknown(fact.name),
            }
        }
        if line.is_transcript_event() {
            for root in reads.iter().filter_map(|path| first_segment(path)) {
                if !facts.known().contains_key(root) {
                    facts.declare_unknown(root);
                }
            }
        }
        facts
    }

    fn known(&self, name: &str) -> Option<Value> {
        match name {
            "has_extends" => self.composed.leaf().map(|l| l.extends.is_some().into()),
            "limits" => Some(Value::Object(limit_facts(self.limits))),
            "spend_limit" => Some(self.limits.spend.to_json()),
            "max_turns" => Some(self.limits.turns.into()),
            "capabilities_summary" => Some(self.capabilities.clone().into()),
            "directive_body" => self.directive_body.clone().map(Value::String),
            _ => None,
        }
    }

    fn inputs(&self, facts: &mut Facts) {
        if let Some(values) = self.inputs {
            facts.set("inputs", Value::Object(values.clone()));
            return;
        }
        facts.set("inputs", Value::Object(Map::new()));
        for name in self.composed.inputs.keys() {
            facts.declare_unknown(&format!("inputs.{name}"));
        }
    }
}

/// Returns the limits as facts. The fact `spend` is in dollars.
fn limit_facts(limits: &Limits) -> Map<String, Value> {
    LimitName::ALL.into_iter().map(|name| (name.to_string(), limits.get(name))).collect()
}

/// Returns the first segment of a path; `None` if the segment is a number.
pub(crate) fn first_segment(path: &Path) -> Option<&str> {
    match path.segments.first()? {
        Segment::Name(name) => Some(name),
        Segment::Number(_) => None,
    }
}
