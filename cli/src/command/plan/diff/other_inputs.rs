//! `rye plan ID --diff REV` without inputs: compares the plans for inputs other than the default inputs. Some routes
//! and hooks apply only with other inputs.

use std::collections::BTreeMap;

use rye_compiler::compile::{Compilation, CompileRequest, compile_with_sources};
use rye_compiler::report::alternatives::{RoutedPlan, compile_routes};
use rye_compiler::report::diff::{
    ChangeArea, DiffSide, Direction, PlanChange, PlanDiff, RoutedSide, SideError, diff_routes, diff_trees,
    has_equal_items,
};
use rye_compiler::report::matrix::build_matrix;
use rye_compiler::world::{ItemKind, World};
use rye_grammar::{ItemId, Sources};
use serde_json::{Map, Value};

use crate::CommandError;
use crate::command::plan::PlanArgs;
use crate::present::format_count;
use crate::report::Printer;

/// The values of the inputs of a call.
type Inputs = Map<String, Value>;

/// The inputs for which only one side has a plan, grouped by the direction of the change and the error of the other
/// side.
type OneSidedInputs = BTreeMap<(Direction, SideError), Vec<Inputs>>;

/// Both sides of a comparison for inputs other than the default inputs.
pub struct OtherInputs<'a> {
    old: &'a dyn World,
    new: &'a dyn World,
    id: &'a ItemId,
    args: &'a PlanArgs,
}

enum OtherComparison {
    /// The comparison for the default inputs suffices, so no comparison for other inputs is shown.
    Same,
    /// With the inputs that `inputs` describes, the plans of both sides differ. If there are inputs with which the new
    /// plan is wider, `inputs` describes the first of these inputs.
    Changed { inputs: String, diff: Box<PlanDiff> },
    /// The plans could be compared only for the default inputs. Holds the reason.
    Unknown(String),
}

impl<'a> OtherInputs<'a> {
    pub fn new((old, new): (&'a dyn World, &'a dyn World), id: &'a ItemId, args: &'a PlanArgs) -> Self {
        Self { old, new, id, args }
    }

    /// Returns the comparison to print. This is `defaults`, the comparison for the default inputs, unless the
    /// comparison for other inputs shows more changes. Adds a change for inputs with which only one side has a plan,
    /// and for plans that could not be compared.
    pub fn extend(&self, defaults: PlanDiff, report: &Printer) -> Result<PlanDiff, CommandError> {
        let mut one_sided = BTreeMap::new();
        let compared = self.compare(&defaults, &mut one_sided)?;
        let mut found = defaults;
        match compared {
            OtherComparison::Same => {}
            OtherComparison::Changed { inputs, diff } => {
                report.note(&format!("compared with {inputs}, which show more changes than the default inputs"));
                found = *diff;
            }
            OtherComparison::Unknown(_) if has_equal_items(self.old, self.new)? => {}
            OtherComparison::Unknown(reason) => {
                found.add_uncompared(ChangeArea::Plan, format!("compared only with the default inputs: {reason}"));
            }
        }
        for ((direction, error), inputs) in one_sided {
            found.add(describe_one_sided(direction, error, &inputs));
        }
        Ok(found)
    }

    /// Compares the plans of both sides for further inputs: the example inputs of every context that the directive has
    /// on a side, and unknown inputs if a side has conditions for which no inputs were found. `defaults` is the result
    /// for the default inputs. Inputs with which only one side has a plan are added to `one_sided`.
    ///
    /// - `Changed` contains the first inputs with which the new plan is wider. If there are none, and the plans for the
    ///   default inputs are equal, `Changed` contains the first inputs with which the plans differ.
    /// - `Same`: there are no such inputs, the new plan is already wider for the default inputs, or the directive does
    ///   not exist on a side.
    /// - `Unknown`: the contexts of a side cannot be determined, or a side has no plan for unknown inputs.
    fn compare(&self, defaults: &PlanDiff, one_sided: &mut OneSidedInputs) -> Result<OtherComparison, CommandError> {
        if defaults.widened {
            return Ok(OtherComparison::Same);
        }
        let mut calls = Vec::new();
        let mut has_open_conditions = false;
        for world in [self.new, self.old] {
            if world.candidates(ItemKind::Directive, self.id)?.is_empty() {
                return Ok(OtherComparison::Same);
            }
            match build_matrix(world, &self.request(world)?) {
                Ok(matrix) => {
                    has_open_conditions |= !matrix.open.is_empty();
                    for context in matrix.contexts {
                        let inputs = context.call.inputs.unwrap_or_default();
                        if !calls.contains(&inputs) {
                            calls.push(inputs);
                        }
                    }
                }
                Err(error) => return Ok(OtherComparison::Unknown(error.to_string())),
            }
        }
        let is_same = defaults.before == defaults.after;
        let mut changed = None;
        let mut compared = Vec::new();
        for inputs in calls {
            let (before, after) = match (self.compile_call(self.old, &inputs)?, self.compile_call(self.new, &inputs)?) {
                (Ok(before), Ok(after)) => (before, after),
                (Ok(_), Err(error)) => {
                    one_sided.entry((Direction::Narrowed, error)).or_default().push(inputs);
                    continue;
                }
                (Err(error), Ok(_)) => {
                    one_sided.entry((Direction::Widened, error)).or_default().push(inputs);
                    continue;
                }
                // No call with these inputs runs on either side.
                (Err(_), Err(_)) => continue,
            };
            let before = DiffSide { world: self.old, compilation: &before };
            let diff = diff_trees(Some(before), Some(DiffSide { world: self.new, compilation: &after }))?;
            let is_wider = diff.widened;
            compared.push((format!("the inputs {}", serde_json::Value::Object(inputs)), diff));
            if is_wider {
                break;
            }
        }
        if has_open_conditions && !compared.iter().any(|(_, diff)| diff.widened) {
            let routes = self.compare_routes()?;
            if routes.is_empty() {
                return Ok(OtherComparison::Unknown("no inputs were found for some conditions".to_owned()));
            }
            compared.extend(routes.into_iter().map(|diff| ("unknown inputs".to_owned(), diff)));
        }
        for (inputs, diff) in compared {
            let (is_wider, is_changed) = (diff.widened, is_same && diff.before != diff.after);
            if is_wider || (is_changed && changed.is_none()) {
                changed = Some(OtherComparison::Changed { inputs, diff: Box::new(diff) });
            }
            if is_wider {
                break;
            }
        }
        Ok(changed.unwrap_or(OtherComparison::Same))
    }

    /// Compares the plans of both sides for unknown inputs, one for each route. Empty if a side has no such plan.
    fn compare_routes(&self) -> Result<Vec<PlanDiff>, CommandError> {
        let plans = |world: &dyn World| -> Result<Option<Vec<RoutedPlan>>, CommandError> {
            Ok(compile_routes(world, &self.request(world)?, &mut Sources::default()).value)
        };
        let (Some(before), Some(after)) = (plans(self.old)?, plans(self.new)?) else { return Ok(Vec::new()) };
        let old = RoutedSide { world: self.old, plans: &before };
        let routes = diff_routes(old, RoutedSide { world: self.new, plans: &after })?;
        Ok(routes.into_iter().map(|route| route.diff).collect())
    }

    /// Compiles the plan of a call with `inputs`. If the directive has errors, the inner error is the first error of
    /// the directive.
    fn compile_call(&self, world: &dyn World, inputs: &Inputs) -> Result<Result<Compilation, SideError>, CommandError> {
        let request = CompileRequest { inputs: Some(inputs.clone()), ..self.request(world)? };
        let mut sources = Sources::default();
        let compiled = compile_with_sources(world, &request, &mut sources);
        Ok(compiled.value.ok_or_else(|| SideError::find(&compiled.diagnostics, &sources)))
    }

    fn request(&self, world: &dyn World) -> Result<CompileRequest, CommandError> {
        let mut request = self.args.call.request(self.id.clone(), world)?;
        self.args.add_session(&mut request)?;
        Ok(request)
    }
}

/// Describes inputs for which only one side has a plan. If `direction` is `Widened`, the new side has the plan,
/// otherwise the old side. `error` is the error of the other side.
fn describe_one_sided(direction: Direction, error: SideError, inputs: &[Inputs]) -> PlanChange {
    let example = inputs.first().map(|inputs| Value::Object(inputs.clone()).to_string()).unwrap_or_default();
    let others = match inputs.len() {
        0 | 1 => String::new(),
        more => format!(" and {}", format_count(more as u64 - 1, "other combination")),
    };
    let SideError { text, source } = error;
    let what = if direction == Direction::Widened {
        format!("the inputs {example}{others} have a plan, which an error prevented before ({text})")
    } else {
        format!("the inputs {example}{others} have no plan any more, because of an error ({text})")
    };
    PlanChange { area: ChangeArea::Plan, what, direction, source }
}
