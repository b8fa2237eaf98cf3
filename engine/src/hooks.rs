//! Hooks at run time (`language.md` 7): conditions and templates compiled once when the plan is loaded, every hook of a
//! point considered in order, what they do carried out one after another. What an answer changes is the machine's.

use std::collections::{BTreeMap, BTreeSet};

use rye_compiler::hook::{Deed, HookAction, HookPoint, OnFailure, PlannedHook};
use rye_compiler::plan::{Pending, Plan, prompt};
use rye_compiler::semantics::condition::{Condition, Found, Verdict};
use rye_compiler::semantics::facts::Facts;
use rye_compiler::semantics::hook_point::{self, Mode};
use rye_compiler::semantics::template::{HookTree, Rendered, Tree};
use rye_compiler::semantics::value::to_node;
use rye_grammar::condition::from_data;
use rye_grammar::{SourceId, Span};
use serde_json::{Map, Value};

use crate::event::{Considered, HookAnswer, HookVerdict};
use crate::machine::{HookChild, HookRun};
use crate::provider::BoxFuture;
use crate::tool::ToolOutcome;

mod answer;

/// The live hooks of a plan, ready to be considered.
#[derive(Debug)]
pub struct HookTable {
    points: BTreeMap<HookPoint, Vec<ReadyHook>>,
    /// Hooks whose text a hole of the prompt waits for.
    awaited: BTreeSet<String>,
}

/// One hook with its condition and its templates.
#[derive(Debug)]
pub struct ReadyHook {
    pub hook: PlannedHook,
    /// Whether its item id was written without holes.
    pub id_is_static: bool,
    condition: Condition,
    action: Tree,
}

/// A plan whose hooks cannot be read; the compiler has accepted none such.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the hook `{hook}` of the plan cannot be read: {reason}")]
pub struct UnreadableHook {
    pub hook: String,
    pub reason: String,
}

/// Carries out what a hook fetches, executes or signs, through the gate.
pub trait Act: Send + Sync {
    /// The answer, or why there is none. `started`: directives that earlier hooks of this run have started.
    fn act<'a>(
        &'a self,
        hook: &'a ReadyHook,
        action: HookAction,
        run: &'a HookRun,
        started: u64,
    ) -> BoxFuture<'a, Result<Acted, String>>;
}

/// What came of an action.
#[derive(Debug, Clone, PartialEq)]
pub struct Acted {
    pub outcome: ToolOutcome,
    /// The thread that it was, where a directive was run.
    pub child: Option<HookChild>,
}

impl From<ToolOutcome> for Acted {
    fn from(outcome: ToolOutcome) -> Self {
        Self { outcome, child: None }
    }
}

/// What the hooks of a point came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Considering {
    pub considered: Vec<Considered>,
    /// Directives that were run.
    pub children: Vec<HookChild>,
    pub answer: HookAnswer,
}

impl HookTable {
    /// Compiles the live hooks of a plan. `inputs` fill `{input:…}`; what they put in is text.
    pub fn compile(plan: &Plan, inputs: &Map<String, Value>) -> Result<Self, UnreadableHook> {
        let mut points: BTreeMap<HookPoint, Vec<ReadyHook>> = BTreeMap::new();
        for hook in plan.hooks.iter().filter(|hook| hook.is_live()) {
            points.entry(hook.event).or_default().push(ready(hook, inputs)?);
        }
        let layers = [&plan.prompt.system, &plan.prompt.first_message, &plan.prompt.continued];
        let holes = layers.into_iter().flat_map(|layers| prompt::pending(layers));
        let awaited = holes
            .filter_map(|hole| match hole {
                Pending::Hook { id } => Some(id.clone()),
                Pending::Fact { .. } => None,
            })
            .collect();
        Ok(Self { points, awaited })
    }

    /// Considers every hook of the point and carries out those that fire.
    pub async fn run(&self, run: &HookRun, act: &dyn Act) -> Considering {
        let mode = hook_point::of(run.point).mode;
        let mut turn =
            Turn { facts: run.facts.clone(), answer: HookAnswer::None, considered: Vec::new(), children: Vec::new() };
        for hook in self.points.get(&run.point).into_iter().flatten() {
            let infrastructure = hook.hook.layer >= 4.0;
            let answered = turn.answer != HookAnswer::None;
            let closed = match mode {
                Mode::FirstMatch | Mode::FirstBlock => answered,
                Mode::Control => answered && !infrastructure,
                Mode::Collect | Mode::Chain | Mode::Observe => false,
            } || matches!(turn.answer, HookAnswer::Handled | HookAnswer::Failed { .. });
            if closed {
                turn.note(hook, HookVerdict::Passed, Map::new(), None);
                continue;
            }
            let facts = Facts::from_map(turn.facts.clone());
            let (verdict, readings) = hook.condition.evaluate_traced(&facts);
            let operands = readings
                .into_iter()
                .filter_map(|reading| match reading.found {
                    Found::Value(value) => Some((reading.path, shown(value))),
                    Found::Absent | Found::Unknown => None,
                })
                .collect();
            if verdict != Verdict::True {
                turn.note(hook, HookVerdict::False, operands, None);
                continue;
            }
            match self.fire(hook, run, &facts, act, &mut turn.children).await {
                Ok(fired) => {
                    turn.note(hook, HookVerdict::Fired, operands, None);
                    if !(mode == Mode::Control && (infrastructure || answered)) {
                        answer::take(&mut turn, run.point, hook, fired);
                    }
                }
                Err(error) => {
                    turn.note(hook, HookVerdict::Failed, operands, Some(error.clone()));
                    if hook.hook.on_failure == OnFailure::Fail {
                        turn.answer = HookAnswer::Failed { hook: hook.hook.id.clone(), error };
                    }
                }
            }
        }
        let Turn { considered, children, answer, .. } = turn;
        Considering { considered, children, answer }
    }

    /// Fills the templates of a hook and carries it out.
    async fn fire(
        &self,
        hook: &ReadyHook,
        run: &HookRun,
        facts: &Facts,
        act: &dyn Act,
        children: &mut Vec<HookChild>,
    ) -> Result<Fired, String> {
        let Rendered::Value(mut value) = hook.action.render(facts) else {
            return Err("a hole of its action is not known".into());
        };
        answer::texts(&mut value);
        let action: HookAction =
            serde_json::from_value(value).map_err(|e| format!("its action cannot be read: {e}"))?;
        match action.deed() {
            Some(Deed::Fetch { .. }) if !self.awaited.contains(&hook.hook.id) => Ok(Fired::Layer),
            Some(Deed::Fetch { .. } | Deed::Execute { .. } | Deed::Sign { .. }) => {
                let started = u64::try_from(children.len()).unwrap_or(u64::MAX);
                let Acted { outcome, child } = act.act(hook, action, run, started).await?;
                children.extend(child);
                if outcome.is_error {
                    return Err(answer::plain(&outcome.content));
                }
                let fired = answer::executed(run.point, &outcome.content);
                if let Fired::Action(action) = &fired {
                    answer::acceptable(action)?;
                }
                Ok(fired)
            }
            None => answer::acceptable(&action).map(|()| Fired::Action(action)),
        }
    }
}

/// An operand as it is recorded: a large one by its size alone.
fn shown(value: Value) -> Value {
    const MOST: usize = 1024;
    let size = match &value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(_) | Value::Object(_) => value.to_string().len(),
    };
    if size > MOST { Value::String(format!("({size} bytes)")) } else { value }
}

/// What a hook that fired came to.
#[derive(Debug)]
enum Fired {
    /// Its text stands in the plan already.
    Layer,
    /// Text for whoever collects it.
    Text(String),
    Action(HookAction),
}

/// One run of a point.
#[derive(Debug)]
struct Turn {
    /// What the next hook reads: in a chain, the answers so far are in it.
    facts: Map<String, Value>,
    answer: HookAnswer,
    considered: Vec<Considered>,
    children: Vec<HookChild>,
}

impl Turn {
    fn note(&mut self, hook: &ReadyHook, verdict: HookVerdict, operands: Map<String, Value>, because: Option<String>) {
        self.considered.push(Considered { hook: hook.hook.id.clone(), verdict, operands, because });
    }
}

fn ready(hook: &PlannedHook, inputs: &Map<String, Value>) -> Result<ReadyHook, UnreadableHook> {
    let unreadable = |reason: String| UnreadableHook { hook: hook.id.clone(), reason };
    let nowhere = Span::new(SourceId(0), 0, 0);
    let condition = match &hook.condition {
        None => Condition::always(),
        Some(written) => {
            let parsed = from_data(&to_node(written, nowhere));
            if let Some(error) = parsed.errors.first() {
                return Err(unreadable(error.to_string()));
            }
            let compiled = parsed.tree.map_or_else(|| Ok(Condition::always()), |expr| Condition::compile(&expr));
            compiled.map_err(|faults| {
                unreadable(faults.into_iter().next().map_or_else(|| "its condition".into(), |f| f.message))
            })?
        }
    };
    let action = serde_json::to_value(&hook.action).map_err(|e| unreadable(e.to_string()))?;
    let parsed = HookTree::read(&to_node(&action, nowhere));
    if let Some(error) = parsed.errors.first() {
        return Err(unreadable(error.to_string()));
    }
    let id_is_static = match &parsed.tree {
        HookTree::Map(entries) => {
            entries.iter().all(|(key, tree)| key != "item_id" || (tree.holes().is_empty() && tree.inputs().is_empty()))
        }
        HookTree::Value(_) | HookTree::Text(_) | HookTree::List(_) => true,
    };
    let action = parsed.tree.bind(inputs).map_err(|missing| unreadable(missing.to_string()))?;
    Ok(ReadyHook { hook: hook.clone(), id_is_static, condition, action })
}

#[cfg(test)]
mod tests;
