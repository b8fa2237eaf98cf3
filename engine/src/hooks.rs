//! Hooks at run time (`language.md` 7). Conditions and templates are compiled when the plan is loaded. The hooks of a
//! point are evaluated in order, and their actions run one after another. The machine applies the combined answer.

use std::collections::{BTreeMap, BTreeSet};
use std::task::{Context, Poll, Waker};

use rye_compiler::hook::{HookAction, HookCall, HookPoint, OnFailure, PlannedHook};
use rye_compiler::plan::{Plan, RuntimePlaceholder, prompt};
use rye_compiler::semantics::condition::{Condition, ReadingResult, Verdict};
use rye_compiler::semantics::facts::Facts;
use rye_compiler::semantics::hook_point::{self, Mode};
use rye_compiler::semantics::limits::LimitName;
use rye_compiler::semantics::template::{HookTemplateTree, Rendered, TemplateTree};
use rye_compiler::semantics::value::to_node;
use rye_grammar::condition::from_data;
use rye_grammar::{SourceId, Span};
use serde_json::{Map, Value};

use crate::BoxFuture;
use crate::event::{HookEvaluation, HookOutcome, HookVerdict};
use crate::image::ImageRef;
use crate::machine::{HookChild, HookRun};
use crate::tool::ToolOutcome;

mod answer;
mod images;

pub use images::ImageSource;
pub(crate) use images::{load, read_call};

/// Maximum size in bytes of an action with filled placeholders. Without this limit, a chain of hooks that each double a
/// text would use all memory.
const MAX_ACTION_BYTES: usize = 16 << 20;

/// The compiled live hooks of a plan: the hooks that a run has to evaluate.
#[derive(Debug)]
pub struct HookTable {
    points: BTreeMap<HookPoint, Vec<ReadyHook>>,
    /// Ids of hooks whose text fills a placeholder of the prompt.
    awaited: BTreeSet<String>,
    /// The highest values to which hooks can raise the limits, from the settings.
    ceilings: BTreeMap<LimitName, u64>,
}

/// A hook with its compiled condition and templates.
#[derive(Debug)]
pub struct ReadyHook {
    pub hook: PlannedHook,
    /// True if the item id in the hook's action contains no placeholders.
    pub id_is_static: bool,
    condition: Condition,
    action: TemplateTree,
}

/// Error for a plan whose hooks cannot be read. The compiler never produces such a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the hook `{hook}` of the plan cannot be read: {reason}")]
pub struct UnreadableHook {
    pub hook: String,
    pub reason: String,
}

/// Executes the fetch, execute and sign actions of hooks, subject to the gate.
pub trait HookRunner: Send + Sync {
    /// Runs the action. Returns its result, or the reason of its failure. `started` counts the directives that earlier
    /// hooks of `run` have started.
    fn run_action<'a>(
        &'a self,
        hook: &'a ReadyHook,
        action: HookAction,
        run: &'a HookRun,
        started: u64,
    ) -> BoxFuture<'a, Result<HookCallResult, String>>;

    /// Reads and stores the images that a hook adds to a message. Returns references to the images, or the reason why
    /// an image is refused.
    fn read_images<'a>(
        &'a self,
        hook: &'a ReadyHook,
        images: Vec<ImageSource>,
        run: &'a HookRun,
    ) -> BoxFuture<'a, Result<Vec<ImageRef>, String>>;
}

/// The result of the action that a hook ran.
#[derive(Debug, Clone, PartialEq)]
pub struct HookCallResult {
    pub outcome: ToolOutcome,
    /// The child thread, if the action ran a directive.
    pub child: Option<HookChild>,
}

impl From<ToolOutcome> for HookCallResult {
    fn from(outcome: ToolOutcome) -> Self {
        Self { outcome, child: None }
    }
}

/// The result of evaluating the hooks of a point: each evaluation, and the combined answer.
#[derive(Debug, Clone, PartialEq)]
pub struct HookPointResult {
    pub considered: Vec<HookEvaluation>,
    /// The child threads in which the hooks ran directives.
    pub children: Vec<HookChild>,
    pub answer: HookOutcome,
}

impl HookTable {
    /// Compiles the live hooks of a plan: the hooks that a run has to evaluate. `inputs` are the values of the
    /// placeholders `{input:…}`, which are filled in as plain text.
    pub fn compile(plan: &Plan, inputs: &Map<String, Value>) -> Result<Self, UnreadableHook> {
        let mut points: BTreeMap<HookPoint, Vec<ReadyHook>> = BTreeMap::new();
        for hook in plan.hooks.iter().filter(|hook| hook.is_live()) {
            points.entry(hook.event).or_default().push(compile_hook(hook, inputs)?);
        }
        let layers = [&plan.prompt.system, &plan.prompt.first_message, &plan.prompt.continued];
        let placeholders = layers.into_iter().flat_map(|layers| prompt::placeholders(layers));
        let awaited = placeholders
            .filter_map(|placeholder| match placeholder {
                RuntimePlaceholder::Hook { id } => Some(id.clone()),
                RuntimePlaceholder::Fact { .. } => None,
            })
            .collect();
        Ok(Self { points, awaited, ceilings: plan.limit_ceilings.clone() })
    }

    /// Evaluates the hooks of a hook point that start no item, as [`Self::run`] does. Hooks that start an item count as
    /// absent.
    ///
    /// # Errors
    /// Returns the hook of the plan that cannot be read.
    pub fn simulate(
        plan: &Plan,
        inputs: &Map<String, Value>,
        run: &HookRun,
    ) -> Result<HookPointResult, UnreadableHook> {
        let declared = plan.hooks.iter().filter(|hook| hook.is_live() && hook.event == run.point);
        let declared = declared.filter(|hook| hook.action.item().is_none());
        let ready = declared.map(|hook| compile_hook(hook, inputs)).collect::<Result<Vec<_>, _>>()?;
        let points = BTreeMap::from([(run.point, ready)]);
        let table = Self { points, awaited: BTreeSet::new(), ceilings: plan.limit_ceilings.clone() };
        let evaluation = std::pin::pin!(table.run(run, &NoItems));
        match evaluation.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Ok(result),
            // An evaluation waits only for an item, and these hooks start none.
            Poll::Pending => {
                Ok(HookPointResult { considered: Vec::new(), children: Vec::new(), answer: HookOutcome::None })
            }
        }
    }

    /// Evaluates the hooks of the hook point in order, and runs the actions of the hooks that fire. If an earlier hook
    /// has already determined the answer, the next hooks are recorded as `Passed` and do not run.
    pub async fn run(&self, run: &HookRun, act: &dyn HookRunner) -> HookPointResult {
        let mode = hook_point::row_of(run.point).mode;
        let mut turn = PointEvaluation {
            facts: run.facts.clone(),
            answer: HookOutcome::None,
            considered: Vec::new(),
            children: Vec::new(),
        };
        for hook in self.points.get(&run.point).into_iter().flatten() {
            let infrastructure = hook.hook.layer >= 4.0;
            let answered = turn.answer != HookOutcome::None;
            let closed = match mode {
                Mode::FirstMatch | Mode::FirstBlock => answered,
                Mode::Control => answered && !infrastructure,
                Mode::Chain => matches!(turn.answer, HookOutcome::Terminate { .. }),
                Mode::Collect | Mode::Observe => false,
            } || matches!(turn.answer, HookOutcome::Handled { .. } | HookOutcome::Failed { .. });
            if closed {
                turn.record_evaluation(hook, HookVerdict::Passed, Map::new(), None);
                continue;
            }
            let facts = Facts::from_map(turn.facts.clone());
            let (verdict, readings) = hook.condition.evaluate_traced(&facts);
            let operands = readings
                .into_iter()
                .filter_map(|reading| match reading.found {
                    ReadingResult::Value(value) => Some((reading.path, recorded_operand(value))),
                    ReadingResult::Absent | ReadingResult::Unknown => None,
                })
                .collect();
            if verdict != Verdict::True {
                turn.record_evaluation(hook, HookVerdict::False, operands, None);
                continue;
            }
            match self.fire(hook, run, &facts, act, &mut turn.children).await {
                Ok(fired) => {
                    turn.record_evaluation(hook, HookVerdict::Fired, operands, None);
                    if !(mode == Mode::Control && (infrastructure || answered)) {
                        answer::apply_fired(&mut turn, run.point, hook, fired);
                    }
                }
                Err(error) => {
                    turn.record_evaluation(hook, HookVerdict::Failed, operands, Some(error.clone()));
                    if hook.hook.on_failure == OnFailure::Fail {
                        turn.answer = HookOutcome::Failed { hook: hook.hook.id.clone(), error };
                    }
                }
            }
        }
        let PointEvaluation { considered, children, mut answer, .. } = turn;
        if let HookOutcome::Raise { limit, value } = &mut answer
            && let Some(ceiling) = LimitName::parse(limit).and_then(|name| self.ceilings.get(&name))
        {
            *value = (*value).min(*ceiling);
        }
        HookPointResult { considered, children, answer }
    }

    /// Fills the templates of a hook and runs its action.
    async fn fire(
        &self,
        hook: &ReadyHook,
        run: &HookRun,
        facts: &Facts,
        act: &dyn HookRunner,
        children: &mut Vec<HookChild>,
    ) -> Result<FiredHook, String> {
        if hook.action.exceeds(facts, MAX_ACTION_BYTES) {
            return Err(format!("the action of the hook would have more than {} MiB", MAX_ACTION_BYTES >> 20));
        }
        let Rendered::Value(mut value) = hook.action.render(facts) else {
            return Err("a placeholder of the hook's action has no value".into());
        };
        answer::stringify_text_fields(&mut value);
        let action: HookAction =
            serde_json::from_value(value).map_err(|e| format!("the action of the hook cannot be read: {e}"))?;
        let mut fired = self.perform(hook, action, run, act, children).await?;
        if let FiredHook::Action(action) = &mut fired {
            answer::check_action(action)?;
            if let Some(reason) = answer::no_effect_reason(run, action) {
                return Err(reason.to_owned());
            }
            if let HookAction::Transform { images: Some(images), .. } = action {
                let sources = images::parse_sources(images, facts.known().get("images"))?;
                let read = act.read_images(hook, sources, run).await?;
                *images = serde_json::to_value(read).map_err(|error| error.to_string())?;
            }
        }
        Ok(fired)
    }

    /// Runs the action if it starts an item, and returns the result. A fetch does not run if its text is already a
    /// layer of the plan. Returns any other action unchanged.
    async fn perform(
        &self,
        hook: &ReadyHook,
        action: HookAction,
        run: &HookRun,
        act: &dyn HookRunner,
        children: &mut Vec<HookChild>,
    ) -> Result<FiredHook, String> {
        match action.call() {
            Some(HookCall::Fetch { .. }) if !self.awaited.contains(&hook.hook.id) => Ok(FiredHook::Layer),
            Some(HookCall::Fetch { .. } | HookCall::Execute { .. } | HookCall::Sign { .. }) => {
                let started = u64::try_from(children.len()).unwrap_or(u64::MAX);
                let HookCallResult { outcome, child } = act.run_action(hook, action, run, started).await?;
                children.extend(child);
                if outcome.is_error && !answer::is_terminate(&outcome.content) {
                    return Err(answer::result_text(&outcome.content));
                }
                answer::parse_result(run.point, &outcome.content)
            }
            None => Ok(FiredHook::Action(action)),
        }
    }
}

/// A runner that refuses to start items.
struct NoItems;

impl HookRunner for NoItems {
    fn run_action<'a>(
        &'a self,
        _hook: &'a ReadyHook,
        _action: HookAction,
        _run: &'a HookRun,
        _started: u64,
    ) -> BoxFuture<'a, Result<HookCallResult, String>> {
        Box::pin(std::future::ready(Err("a simulated hook starts no item".to_owned())))
    }

    fn read_images<'a>(
        &'a self,
        _hook: &'a ReadyHook,
        _images: Vec<ImageSource>,
        _run: &'a HookRun,
    ) -> BoxFuture<'a, Result<Vec<ImageRef>, String>> {
        Box::pin(std::future::ready(Err("hooks cannot read images here".to_owned())))
    }
}

/// Returns an operand as the transcript records it: a large value is replaced by its size.
fn recorded_operand(value: Value) -> Value {
    const MOST: usize = 1024;
    let size = match &value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(_) | Value::Object(_) => value.to_string().len(),
    };
    if size > MOST { Value::String(format!("({size} bytes)")) } else { value }
}

/// The contribution of a fired hook to the answer of its hook point.
#[derive(Debug)]
enum FiredHook {
    /// The hook adds nothing, because the plan already contains the text of the hook as a layer.
    Layer,
    /// The text of the hook, at a hook point that collects the texts of its hooks.
    Text(String),
    Action(HookAction),
}

/// The facts and the results so far, during the evaluation of the hooks of one hook point.
#[derive(Debug)]
struct PointEvaluation {
    /// Facts for the next hook. At a hook point where each hook changes the result of the hook before it (the mode
    /// `Chain`), the facts include the changes by the earlier hooks.
    facts: Map<String, Value>,
    answer: HookOutcome,
    considered: Vec<HookEvaluation>,
    children: Vec<HookChild>,
}

impl PointEvaluation {
    fn record_evaluation(
        &mut self,
        hook: &ReadyHook,
        verdict: HookVerdict,
        operands: Map<String, Value>,
        because: Option<String>,
    ) {
        self.considered.push(HookEvaluation { hook: hook.hook.id.clone(), verdict, operands, because });
    }
}

fn compile_hook(hook: &PlannedHook, inputs: &Map<String, Value>) -> Result<ReadyHook, UnreadableHook> {
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
    let parsed = HookTemplateTree::read(&to_node(&action, nowhere));
    if let Some(error) = parsed.errors.first() {
        return Err(unreadable(error.to_string()));
    }
    let id_is_static = match &parsed.tree {
        HookTemplateTree::Map(entries) => entries
            .iter()
            .all(|(key, tree)| key != "item_id" || (tree.placeholders().is_empty() && tree.inputs().is_empty())),
        HookTemplateTree::Value(_) | HookTemplateTree::Text(_) | HookTemplateTree::List(_) => true,
    };
    let action = parsed.tree.bind(inputs).map_err(|missing| unreadable(missing.to_string()))?;
    Ok(ReadyHook { hook: hook.clone(), id_is_static, condition, action })
}

#[cfg(test)]
mod tests;
