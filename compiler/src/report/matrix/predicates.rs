//! Predicates: parts of conditions whose result does not follow from the cell (`cells.rs`) of a single input, such as
//! patterns, lengths, sums and comparisons of two inputs.
//!
//! A component is a set of inputs that predicates connect, directly or through further inputs. A state of a component
//! assigns a cell to each input and a result to each predicate. A state is known only if an example was found: values
//! of the inputs that lead to the state.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use rye_grammar::condition::{Path, Segment};
use serde_json::{Map, Value};

use super::cells::{CellBox, Partition, SEPARATOR};
use crate::plan::{FieldType, InterfaceField};
use crate::semantics::condition::{Condition, Verdict};
use crate::semantics::facts::Facts;

/// Maximum number of values that are tried for one input.
const MAX_CANDIDATES: usize = 120;
/// Maximum number of combinations of input values that are tried for one component. Two inputs that a predicate
/// compares with each other belong to the same component.
const MAX_TRIES: usize = 20_000;
/// Maximum number of predicates over the inputs of one component.
const MAX_PREDICATES: usize = 8;
/// Maximum length that is tried for a text (in characters) or a list (in elements). Greater numbers in an atom are not
/// tried as lengths.
const MAX_LENGTH: u64 = 2_000;

/// An atom of a condition (a part that `all`, `any` and `not` combine) that reads only inputs.
#[derive(Debug, Clone)]
pub struct Predicate {
    atom: Condition,
    /// The atom as one line of text, with inputs by name: `length(a) > 3`.
    pub text: String,
    pub inputs: BTreeSet<String>,
}

impl Predicate {
    /// Returns the predicate of an atom; `None` if the atom reads a fact that is no input, or reads nothing.
    pub fn new(atom: Condition) -> Option<Self> {
        let inputs: Option<BTreeSet<String>> = atom.paths().into_iter().map(input_name).collect();
        let text = atom.text(&path_text);
        Some(Self { text, inputs: inputs.filter(|inputs| !inputs.is_empty())?, atom })
    }

    fn holds(&self, inputs: &Map<String, Value>) -> bool {
        let facts = Facts::from_map(Map::from_iter([("inputs".to_owned(), Value::Object(inputs.clone()))]));
        self.atom.evaluate(&facts) == Verdict::True
    }
}

/// Returns the name of the input that a path reads: `a` for `inputs.a.b`; `None` for a path of another fact.
pub fn input_name(path: &Path) -> Option<String> {
    match path.segments.as_slice() {
        [Segment::Name(root), Segment::Name(name), ..] if root == "inputs" => Some(name.clone()),
        _ => None,
    }
}

/// Returns the text of a path without the prefix `inputs.`: `inputs.a.b` is `a.b`.
pub fn path_text(path: &Path) -> String {
    let text = path.to_string();
    text.strip_prefix("inputs.").map_or_else(|| text.clone(), str::to_owned)
}

/// A group of inputs, the predicates that read these inputs, and the known states of the group. All inputs that one
/// predicate reads belong to the same group.
#[derive(Debug, Clone)]
pub struct Component {
    /// The inputs of the component, as indexes into [`SplitInputs::names`].
    inputs: Vec<usize>,
    /// The predicates of the component, as indexes into the predicates of [`SplitInputs`].
    predicates: Vec<usize>,
    /// The known states of the component. The key is a state: the index of each input's cell, then the result of each
    /// predicate. The value is an example: values of the inputs that lead to the state.
    states: BTreeMap<Vec<usize>, Map<String, Value>>,
}

/// All inputs that conditions read. `names`, `fields` (the declarations) and `partitions` (the cells of each input)
/// have the same order.
pub struct SplitInputs<'f> {
    pub names: Vec<String>,
    pub fields: Vec<&'f InterfaceField>,
    pub partitions: Vec<Partition>,
    pub predicates: Vec<Predicate>,
    /// Values that the request gives for inputs. These inputs have no cells, because their values are known.
    pub given: Map<String, Value>,
}

impl SplitInputs<'_> {
    /// Finds the components, which are groups of inputs and of the predicates that read them, and the states of each
    /// component.
    ///
    /// # Errors
    /// A component has too many states. The error is the number of its states.
    pub fn components(&self) -> Result<Vec<Component>, usize> {
        let mut groups: Vec<BTreeSet<usize>> = (0..self.names.len()).map(|at| BTreeSet::from([at])).collect();
        for predicate in &self.predicates {
            let reads = |at: &usize| self.names.get(*at).is_some_and(|name| predicate.inputs.contains(name));
            let (joined, rest): (Vec<_>, Vec<_>) = groups.into_iter().partition(|group| group.iter().any(reads));
            groups = rest;
            groups.push(joined.into_iter().flatten().collect());
        }
        groups.sort();
        groups.into_iter().map(|group| self.component(group.into_iter().collect())).collect()
    }

    fn component(&self, inputs: Vec<usize>) -> Result<Component, usize> {
        let own = |predicate: &Predicate| {
            inputs.iter().filter_map(|at| self.names.get(*at)).any(|name| predicate.inputs.contains(name))
        };
        let predicates: Vec<usize> =
            self.predicates.iter().enumerate().filter(|(_, one)| own(one)).map(|(at, _)| at).collect();
        let cells = inputs.iter().filter_map(|at| self.partitions.get(*at));
        let cells = cells.fold(1_usize, |product, one| product.saturating_mul(one.len().max(1)));
        if predicates.len() > MAX_PREDICATES || cells > MAX_TRIES {
            return Err(cells.saturating_mul(1_usize << predicates.len().min(20)));
        }
        let mut component = Component { inputs, predicates, states: BTreeMap::new() };
        let values: Vec<Vec<Value>> = component.inputs.iter().map(|at| self.candidates(*at, &component)).collect();
        let all = values.iter().fold(1_usize, |product, values| product.saturating_mul(values.len()));
        for at in 0..all.min(MAX_TRIES) {
            let mut rest = at;
            let mut chosen = self.given.clone();
            let mut state = Vec::new();
            for (input, values) in component.inputs.iter().zip(&values) {
                let value = values.get(rest % values.len().max(1)).cloned().unwrap_or_default();
                rest /= values.len().max(1);
                let Some(cell) = self.partitions.get(*input).and_then(|one| one.cell_of(&value)) else { break };
                state.push(cell);
                if let Some(name) = self.names.get(*input).filter(|_| !value.is_null()) {
                    chosen.insert(name.clone(), value);
                }
            }
            if state.len() < component.inputs.len() {
                continue;
            }
            let results = component.predicates.iter().filter_map(|at| self.predicates.get(*at));
            state.extend(results.map(|predicate| usize::from(predicate.holds(&chosen))));
            component.states.entry(state).or_insert(chosen);
        }
        Ok(component)
    }

    /// Returns the values to try for an input: first one value for each cell of the input (`cells.rs`), then values at
    /// which a predicate of `component` can change its result.
    fn candidates(&self, input: usize, component: &Component) -> Vec<Value> {
        let (Some(partition), Some(field)) = (self.partitions.get(input), self.fields.get(input)) else {
            return Vec::new();
        };
        let cells: Vec<Value> = partition.values().cloned().collect();
        let mut more = Vec::new();
        let name = self.names.get(input);
        for predicate in component.predicates.iter().filter_map(|at| self.predicates.get(*at)) {
            if name.is_some_and(|name| predicate.inputs.contains(name)) {
                more.extend(predicate.candidates(name.map_or("", String::as_str), field.kind, &cells));
            }
        }
        // A predicate may compare two inputs, so the values of the other inputs are candidates too.
        for other in component.inputs.iter().filter(|other| **other != input) {
            more.extend(self.partitions.get(*other).into_iter().flat_map(Partition::values).cloned());
        }
        let is_valid = |value: &Value| {
            field.kind.fits(value)
                && (field.choices.is_empty() || field.choices.contains(value))
                && field.parts.find_fault(value).is_none()
        };
        let mut values = cells;
        for value in more.into_iter().filter(is_valid) {
            if values.len() < MAX_CANDIDATES && !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }

    /// Restricts `into` to `state`, one state of a component: a cell for each input, and a result for each predicate.
    /// If every cell of the state holds a single value, the values determine the results, so `into` is not restricted
    /// by the results.
    fn boxed(&self, component: &Component, state: &[usize], into: &mut CellBox) {
        let is_single = component
            .inputs
            .iter()
            .zip(state)
            .all(|(input, cell)| self.partitions.get(*input).is_some_and(|partition| partition.is_single(*cell)));
        let dimensions = component.inputs.iter().copied();
        let dimensions =
            dimensions.chain(component.predicates.iter().map(|at| self.partitions.len().saturating_add(*at)));
        for (n, (dimension, chosen)) in dimensions.zip(state).enumerate() {
            let is_predicate = n >= component.inputs.len();
            if let Some(slot) = into.get_mut(dimension) {
                *slot = if is_predicate && is_single { BTreeSet::from([0, 1]) } else { BTreeSet::from([*chosen]) };
            }
        }
    }

    fn all_cells(&self) -> CellBox {
        let cells = self.partitions.iter().map(|partition| (0..partition.len()).collect());
        cells.chain(self.predicates.iter().map(|_| BTreeSet::from([0, 1]))).collect()
    }

    /// Returns the combination with the index `at`. A combination selects one state of each component. The first value
    /// is the box of the selected states. The second value is an example: values of the inputs that lead to these
    /// states. If `at` increases by one, the state of the last component changes first.
    pub fn combination(&self, components: &[Component], mut at: usize) -> (CellBox, Map<String, Value>) {
        let mut combined = (self.all_cells(), Map::new());
        for component in components.iter().rev() {
            let count = component.states.len().max(1);
            if let Some((state, values)) = component.states.iter().nth(at % count) {
                self.boxed(component, state, &mut combined.0);
                combined.1.extend(values.clone());
            }
            at /= count;
        }
        combined
    }

    /// Returns boxes that contain the undecided states: no example was found for these states, but one may exist. A
    /// state whose cells all hold a single value is decided, because these values were tried.
    pub fn unexamined(&self, components: &[Component]) -> Vec<CellBox> {
        let mut boxes = Vec::new();
        for component in components.iter().filter(|component| !component.predicates.is_empty()) {
            let sizes: Vec<usize> =
                component.inputs.iter().map(|at| self.partitions.get(*at).map_or(1, Partition::len)).collect();
            let sizes: Vec<usize> = sizes.into_iter().chain(component.predicates.iter().map(|_| 2)).collect();
            let all = sizes.iter().fold(1_usize, |product, size| product.saturating_mul(*size));
            for mut at in 0..all {
                let mut state = Vec::with_capacity(sizes.len());
                for size in &sizes {
                    state.push(at % size);
                    at /= size;
                }
                let is_single = component.inputs.iter().zip(&state).all(|(input, cell)| {
                    self.partitions.get(*input).is_some_and(|partition| partition.is_single(*cell))
                });
                if !is_single && !component.states.contains_key(&state) {
                    let mut one = self.all_cells();
                    self.boxed(component, &state, &mut one);
                    boxes.push(one);
                }
            }
        }
        boxes
    }
}

impl Component {
    /// Returns the number of known states of the component: states for which an example of the inputs was found.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Adds to `into`, for each input, the different values that the examples in `states` give to it. Null stands for
    /// an absent input.
    pub fn list_values(&self, split: &SplitInputs<'_>, into: &mut BTreeMap<String, Vec<Value>>) {
        for input in &self.inputs {
            let Some(name) = split.names.get(*input) else { continue };
            let listed = into.entry(name.clone()).or_default();
            for values in self.states.values() {
                let value = values.get(name).cloned().unwrap_or_default();
                if !listed.contains(&value) {
                    listed.push(value);
                }
            }
        }
    }
}

impl Predicate {
    /// Returns values of the input at which the result of the predicate may change. The caller tries each value, so a
    /// value at which the result does not change is harmless. `cells` has one value of each cell of the input.
    fn candidates(&self, input: &str, kind: FieldType, cells: &[Value]) -> Vec<Value> {
        let literals: Vec<&Value> = self.atom.literals();
        let mut values: Vec<Value> = literals.iter().map(|value| (*value).clone()).collect();
        let whole: BTreeSet<u64> = literals
            .iter()
            .filter_map(|value| value.as_u64())
            .filter(|length| *length <= MAX_LENGTH)
            .flat_map(|length| [length.saturating_sub(1), length, length.saturating_add(1)])
            .collect();
        match kind {
            FieldType::String => {
                let own: Vec<&str> = cells.iter().filter_map(Value::as_str).collect();
                let parts = literals.iter().filter_map(|value| value.as_str().map(str::to_owned));
                for part in self.atom.pattern_samples().into_iter().chain(parts) {
                    values.extend(
                        [part.clone(), format!("{part}x"), format!("x{part}"), format!("x{part}x")].map(Value::from),
                    );
                    values.extend(
                        own.iter().flat_map(|text| [format!("{text}{part}"), format!("{part}{text}")]).map(Value::from),
                    );
                }
                for length in whole.iter().filter_map(|length| usize::try_from(*length).ok()) {
                    values.push(Value::from("x".repeat(length)));
                    let longer = own.iter().filter_map(|text| {
                        let more = length.checked_sub(text.chars().count())?;
                        Some(format!("{text}{}", "x".repeat(more)))
                    });
                    values.extend(longer.map(Value::from));
                }
            }
            FieldType::Integer | FieldType::Number => values.extend(numbers_near(&literals, cells)),
            FieldType::Array => {
                for length in whole.iter().filter_map(|length| usize::try_from(*length).ok()) {
                    for items in cells.iter().filter_map(Value::as_array).filter(|items| items.len() <= length) {
                        let more = std::iter::repeat_n(Value::from(SEPARATOR), length - items.len());
                        values.push(items.iter().cloned().chain(more).collect());
                    }
                }
                values.extend(literals.iter().map(|value| Value::Array(vec![(*value).clone()])));
            }
            FieldType::Object | FieldType::Boolean => {}
        }
        for path in self.atom.paths().into_iter().filter(|path| input_name(path).is_some_and(|name| name == input)) {
            let inside = path.segments.get(2..).unwrap_or_default();
            if inside.is_empty() {
                continue;
            }
            let leaves = [Value::Bool(true), Value::Bool(false), Value::from(0), Value::from("x")];
            let near = numbers_near(&literals, &[]);
            for leaf in literals.iter().map(|value| (*value).clone()).chain(near).chain(leaves) {
                values.push(inside.iter().rev().fold(leaf, |value, segment| match segment {
                    Segment::Name(name) => Value::Object(Map::from_iter([(name.clone(), value)])),
                    Segment::Number(at) => {
                        let before = usize::try_from(*at).unwrap_or(0).min(100);
                        std::iter::repeat_n(Value::Null, before).chain([value]).collect()
                    }
                }));
            }
        }
        values
    }
}

/// Returns numbers at which a condition with arithmetic over these literals may change its result. These are the
/// numbers in `cells`, and the sums, differences, products and quotients of two of the literals, 0 and 1. Each number
/// is returned with its neighbors: one less, one more, rounded down and rounded up.
fn numbers_near(literals: &[&Value], cells: &[Value]) -> Vec<Value> {
    let mut own: Vec<f64> = literals.iter().filter_map(|value| value.as_f64()).collect();
    own.extend([0.0, 1.0]);
    let mut found: Vec<f64> = cells.iter().filter_map(Value::as_f64).collect();
    for a in &own {
        for b in &own {
            found.extend([a + b, a - b, a * b, a / b]);
        }
    }
    let near = found.iter().flat_map(|number| [*number, number - 1.0, number + 1.0, number.floor(), number.ceil()]);
    let mut numbers: Vec<f64> = near.filter(|number| number.is_finite()).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    numbers.into_iter().filter_map(super::cells::to_json).collect()
}

/// Adds a predicate, unless a predicate with the same text is already present.
pub fn add_predicate(predicates: &mut IndexMap<String, Predicate>, predicate: Predicate) {
    predicates.entry(predicate.text.clone()).or_insert(predicate);
}
