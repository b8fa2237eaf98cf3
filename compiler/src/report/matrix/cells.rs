//! Splits the values of an input into cells: a condition has the same result for all values of a cell. Each cell has an
//! example value. Each set of cells can be described by a condition.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value};

use super::placeholder_value;
use crate::plan::{FieldType, InterfaceField};
use crate::semantics::condition::ComparedLiterals;
use crate::semantics::value::are_equal;

/// Maximum number of parts (substrings, elements or keys) that split the values of one input into cells, because each
/// part can double the number of cells. A comparison with a further part becomes a predicate (`predicates.rs`).
const MAX_PARTS: usize = 6;
/// Separator of the substrings in an example value: a character that no condition compares with.
pub const SEPARATOR: &str = "\u{1}";

/// A set of combinations of input values. The first elements stand for the inputs: each element holds the indexes of
/// the cells that an input may have. The further elements stand for the predicates: each element holds the results that
/// a predicate may have (0 is false, 1 is true).
pub type CellBox = Vec<BTreeSet<usize>>;

/// The literals that the conditions of a directive compare an input with.
#[derive(Debug, Clone, Default)]
pub struct ReadLiterals {
    points: Vec<Value>,
    parts: Vec<Value>,
    is_ordered: bool,
}

/// The values of an input, split into cells: sets of values that no condition distinguishes. Each cell has a value that
/// represents it; null represents the cell of an absent value.
#[derive(Debug, Clone)]
pub struct Partition {
    name: String,
    parts: Vec<Value>,
    cells: Vec<(ValueSet, Value)>,
    /// True if the values of the input are not limited to a list: the input is no boolean and has no choices.
    is_infinite: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum ValueSet {
    Absent,
    Point(Value),
    /// The values between two neighboring values that conditions name; `None` means that the cell has no lower or no
    /// upper bound. Only numbers, and texts that a condition compares by order (`<`, `>=`), have these cells.
    Between(Option<Value>, Option<Value>),
    /// A group of values that no condition compares with by equality. Entry `i` is true if each value of the group
    /// contains `parts[i]`: a substring, an element or a key that a condition tests.
    Other(Vec<bool>),
}

impl ReadLiterals {
    /// Adds the literals that a condition compares an input with. Returns false and adds nothing if the result of the
    /// condition would still differ within a cell: for example, because a pattern also reads the input, or because
    /// there are too many parts.
    pub fn add(&mut self, literals: &ComparedLiterals, kind: FieldType) -> bool {
        let mut all = self.clone();
        all.is_ordered |= literals.ordered;
        // A whole number may be compared with a fraction.
        let fits = |value: &&Value| kind.fits(value) || (is_number(kind) && value.is_number());
        for value in literals.values.iter().filter(fits) {
            if !all.points.iter().any(|known| are_equal(known, value)) {
                all.points.push(value.clone());
            }
        }
        for part in &literals.parts {
            let can_contain = match kind {
                FieldType::String | FieldType::Object => part.is_string(),
                FieldType::Array => true,
                FieldType::Integer | FieldType::Number | FieldType::Boolean => false,
            };
            if can_contain && !all.parts.iter().any(|known| are_equal(known, part)) {
                all.parts.push(part.clone());
            }
        }
        let is_line = all.is_ordered && kind == FieldType::String;
        let is_exact = !is_number(kind) || (literals.numbers().is_some() && numbers(&all.points).is_some());
        let decides = !literals.open && is_exact && all.parts.len() <= MAX_PARTS && (!is_line || all.parts.is_empty());
        if decides {
            *self = all;
        }
        decides
    }

    /// Splits the values of an input into cells: sets of values that no condition distinguishes.
    pub fn partition(self, name: &str, field: &InterfaceField) -> Partition {
        let is_finite = field.kind == FieldType::Boolean || !field.choices.is_empty();
        let mut cells: Vec<(ValueSet, Value)> = Vec::new();
        if is_finite {
            let all = if field.choices.is_empty() { vec![true.into(), false.into()] } else { field.choices.clone() };
            cells.extend(all.into_iter().map(|value| (ValueSet::Point(value.clone()), value)));
        } else if is_number(field.kind) {
            cells = number_cells(numbers(&self.points).unwrap_or_default(), field.kind == FieldType::Integer);
        } else if self.is_ordered && field.kind == FieldType::String {
            cells = text_cells(&self.points, name);
        } else {
            cells.extend(self.points.iter().map(|point| (ValueSet::Point(point.clone()), point.clone())));
            cells.extend(other_cells(name, field, &self.points, &self.parts));
        }
        if !field.required && field.default.is_none() {
            cells.push((ValueSet::Absent, Value::Null));
        }
        Partition { name: name.to_owned(), parts: self.parts, cells, is_infinite: !is_finite }
    }
}

fn is_number(kind: FieldType) -> bool {
    matches!(kind, FieldType::Integer | FieldType::Number)
}

/// Returns the numbers in `points`, sorted and without repeats. `None` if a value is no number, or a number is too
/// large to be exact.
fn numbers(points: &[Value]) -> Option<Vec<f64>> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let exact = |value: &Value| value.as_f64().filter(|number| number.abs() < EXACT);
    let mut numbers = points.iter().map(exact).collect::<Option<Vec<f64>>>()?;
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    Some(numbers)
}

fn number_cells(points: Vec<f64>, whole: bool) -> Vec<(ValueSet, Value)> {
    let mut cells = Vec::new();
    let mut below: Option<f64> = None;
    for point in points.into_iter().map(Some).chain([None]) {
        let between = match (below, point, whole) {
            (None, None, _) => Some(0.0),
            (None, Some(high), true) => Some(high.ceil() - 1.0),
            (None, Some(high), false) => Some(high - 1.0),
            (Some(low), None, true) => Some(low.floor() + 1.0),
            (Some(low), None, false) => Some(low + 1.0),
            (Some(low), Some(high), true) => Some(low.floor() + 1.0).filter(|number| *number < high),
            (Some(low), Some(high), false) => Some(f64::midpoint(low, high)),
        };
        let value = |number: Option<f64>| number.and_then(to_json);
        if let Some(inside) = value(between) {
            cells.push((ValueSet::Between(value(below), value(point)), inside));
        }
        if let (Some(number), Some(json)) = (point, value(point))
            && (!whole || number.fract() == 0.0)
        {
            cells.push((ValueSet::Point(json.clone()), json));
        }
        below = point;
    }
    cells
}

/// Converts a number to its shortest JSON form: `3`, not `3.0`. `None` if JSON has no form for the number, as for
/// infinity.
pub fn to_json(number: f64) -> Option<Value> {
    let written = number.to_string();
    written.parse::<i64>().map(Value::from).ok().or_else(|| Number::from_f64(number).map(Value::Number))
}

/// Returns the cells of an input whose texts are compared by order: the texts in `points`, and the ranges between them.
fn text_cells(points: &[Value], name: &str) -> Vec<(ValueSet, Value)> {
    let mut points: Vec<&str> = points.iter().filter_map(Value::as_str).collect();
    points.sort_unstable();
    let mut cells = Vec::new();
    let mut below: Option<&str> = None;
    for point in points.into_iter().map(Some).chain([None]) {
        // The first text above `below` in the order is `below` with a null character appended.
        let first = below.map_or_else(String::new, |text| format!("{text}\0"));
        let is_inside = |text: &str| text >= first.as_str() && point.is_none_or(|point| text < point);
        let named = format!("<{name}>");
        let value = |text: Option<&str>| text.map(Value::from);
        if let Some(inside) = [named, first.clone()].into_iter().find(|text| is_inside(text)) {
            cells.push((ValueSet::Between(value(below), value(point)), inside.into()));
        }
        cells.extend(value(point).map(|value| (ValueSet::Point(value.clone()), value)));
        below = point;
    }
    cells
}

/// Returns the cells of the values that no condition names exactly, each with an example value. `points` are the values
/// that conditions name; `parts` are the substrings, elements or keys that conditions look for. All values that contain
/// the same parts share a cell.
fn other_cells(name: &str, field: &InterfaceField, points: &[Value], parts: &[Value]) -> Vec<(ValueSet, Value)> {
    let any = InterfaceField { default: None, required: true, ..field.clone() };
    let plain = placeholder_value(name, &any).unwrap_or(Value::Null);
    let mut cells: Vec<(ValueSet, Value)> = Vec::new();
    for chosen in 0..1_usize << parts.len() {
        let some = parts.iter().enumerate().filter(|(n, _)| chosen >> n & 1 == 1).map(|(_, part)| part);
        let own = Value::from(SEPARATOR);
        let texts = || some.clone().filter_map(Value::as_str);
        let mut candidates: Vec<Value> = if chosen == 0 { vec![plain.clone()] } else { Vec::new() };
        match field.kind {
            FieldType::String => {
                let joined = texts().collect::<Vec<_>>().join(SEPARATOR);
                candidates.extend([joined.clone(), format!("{SEPARATOR}{joined}{SEPARATOR}")].map(Value::from));
            }
            FieldType::Array => {
                let items: Vec<Value> = some.clone().cloned().collect();
                candidates.extend([items.clone(), items.into_iter().chain([own]).collect()].map(Value::Array));
            }
            FieldType::Object => {
                let keys: Map<String, Value> = texts().map(|key| (key.to_owned(), Value::Null)).collect();
                let more = keys.clone().into_iter().chain([(SEPARATOR.to_owned(), Value::Null)]).collect();
                candidates.extend([keys, more].map(Value::Object));
            }
            FieldType::Integer | FieldType::Number | FieldType::Boolean => {}
        }
        for value in candidates.into_iter().filter(|value| !points.iter().any(|point| are_equal(point, value))) {
            let set = ValueSet::Other(contained(parts, &value));
            if !cells.iter().any(|(known, _)| *known == set) {
                cells.push((set, value));
            }
        }
    }
    cells
}

/// Returns for each part (a substring, element or key) whether a value contains it.
fn contained(parts: &[Value], value: &Value) -> Vec<bool> {
    let contains = |part: &Value| match value {
        Value::String(text) => part.as_str().is_some_and(|part| text.contains(part)),
        Value::Array(items) => items.iter().any(|item| are_equal(item, part)),
        Value::Object(keys) => part.as_str().is_some_and(|part| keys.contains_key(part)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    };
    parts.iter().map(contains).collect()
}

impl Partition {
    /// Returns one value for each cell, in the order of the cells. The value represents all values of the cell.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.cells.iter().map(|(_, value)| value)
    }

    /// Returns the number of cells.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Returns true if the cell with this index contains at most one value of the input.
    pub fn is_single(&self, cell: usize) -> bool {
        matches!(self.cells.get(cell), Some((ValueSet::Point(_) | ValueSet::Absent, _)))
    }

    /// Returns the index of the cell that contains a value; `None` if the input cannot have the value.
    pub fn cell_of(&self, value: &Value) -> Option<usize> {
        let is_point = |set: &ValueSet| matches!(set, ValueSet::Point(point) if are_equal(point, value));
        if let Some(cell) = self.cells.iter().position(|(set, _)| is_point(set)) {
            return Some(cell);
        }
        let is_below = |one: &Value, other: &Value| match (one, other) {
            (Value::String(one), Value::String(other)) => one < other,
            (one, other) => one.as_f64().zip(other.as_f64()).is_some_and(|(one, other)| one < other),
        };
        self.cells.iter().position(|(set, _)| match set {
            ValueSet::Absent => value.is_null(),
            ValueSet::Point(_) => false,
            ValueSet::Between(low, high) => {
                !value.is_null()
                    && low.as_ref().is_none_or(|low| is_below(low, value))
                    && high.as_ref().is_none_or(|high| is_below(value, high))
            }
            ValueSet::Other(parts) => !value.is_null() && contained(&self.parts, value) == *parts,
        })
    }

    /// Returns a condition that holds for exactly the values in the chosen cells; `None` if all cells are chosen.
    /// `chosen` holds the indexes of the cells.
    pub fn describe(&self, chosen: &BTreeSet<usize>) -> Option<String> {
        if chosen.len() == self.cells.len() {
            return None;
        }
        let name = &self.name;
        let has_absent = self.cells.iter().any(|(set, _)| *set == ValueSet::Absent);
        let is_chosen = |(n, (set, _)): &(usize, &(ValueSet, Value))| chosen.contains(n) && *set != ValueSet::Absent;
        let present = self.cells.iter().enumerate().filter(is_chosen).count();
        let takes_absent = has_absent && present < chosen.len();
        if present == 0 {
            return Some(format!("!exists({name})"));
        }
        if present + usize::from(has_absent) == self.cells.len() {
            return Some(format!("exists({name})"));
        }
        let (text, holds_where_absent) = self.describe_present(chosen, takes_absent || !has_absent);
        Some(match (takes_absent, has_absent && holds_where_absent) {
            (true, false) => format!("({text} || !exists({name}))"),
            (false, true) => format!("exists({name}) && {text}"),
            (true, true) | (false, false) => text,
        })
    }

    /// Returns a condition that is true exactly for the chosen cells; the cell of an absent input is ignored. The
    /// second value is true if the condition is also true for an absent input. If `may_exclude` is true, the condition
    /// may exclude the values that are not chosen, in place of a longer list of the chosen values.
    fn describe_present(&self, chosen: &BTreeSet<usize>, may_exclude: bool) -> (String, bool) {
        let points = |is_in: bool| -> Vec<&Value> {
            let of = |(n, (set, _)): (usize, &'_ (ValueSet, Value))| match set {
                ValueSet::Point(_) if chosen.contains(&n) == is_in => self.cells.get(n),
                ValueSet::Point(_) | ValueSet::Absent | ValueSet::Between(..) | ValueSet::Other(_) => None,
            };
            self.cells.iter().enumerate().filter_map(of).map(|(_, value)| value).collect()
        };
        let (inside, outside) = (points(true), points(false));
        let is_rest = |set: &ValueSet| matches!(set, ValueSet::Between(..) | ValueSet::Other(_));
        let rest = |is_in: bool| {
            self.cells.iter().enumerate().any(|(n, (set, _))| is_rest(set) && chosen.contains(&n) == is_in)
        };
        let is_shorter = outside.len() < inside.len() && may_exclude;
        if !rest(false) && (self.is_infinite || is_shorter) {
            return (not_one_of(&self.name, &outside), true);
        }
        if !rest(true) {
            return (one_of(&self.name, &inside), false);
        }
        if self.cells.iter().any(|(set, _)| matches!(set, ValueSet::Between(..))) {
            return (self.describe_line(chosen), false);
        }
        self.describe_parts(chosen, &inside, &outside)
    }

    /// Describes the chosen cells of an input that is compared by order (`<`, `>=`), as intervals and single values.
    fn describe_line(&self, chosen: &BTreeSet<usize>) -> String {
        let name = &self.name;
        let mut terms = Vec::new();
        let mut single: Vec<&Value> = Vec::new();
        let mut n = 0;
        while n < self.cells.len() {
            let run = (n..self.cells.len()).take_while(|n| chosen.contains(n) && self.is_on_line(*n)).count();
            let cells = self.cells.get(n..n + run).unwrap_or_default();
            if let [(ValueSet::Point(point), _)] = cells {
                single.push(point);
            } else if let [(first, _), .., (last, _)] | [(first @ last, _)] = cells {
                let low = match first {
                    ValueSet::Point(point) => Some(format!("{name} >= {point}")),
                    ValueSet::Between(low, _) => low.as_ref().map(|low| format!("{name} > {low}")),
                    ValueSet::Absent | ValueSet::Other(_) => None,
                };
                let high = match last {
                    ValueSet::Point(point) => Some(format!("{name} <= {point}")),
                    ValueSet::Between(_, high) => high.as_ref().map(|high| format!("{name} < {high}")),
                    ValueSet::Absent | ValueSet::Other(_) => None,
                };
                terms.push(low.into_iter().chain(high).collect::<Vec<_>>().join(" && "));
            }
            n += run.max(1);
        }
        if !single.is_empty() {
            terms.push(one_of(name, &single));
        }
        any_of(&terms)
    }

    fn is_on_line(&self, n: usize) -> bool {
        matches!(self.cells.get(n), Some((ValueSet::Point(_) | ValueSet::Between(..), _)))
    }

    /// Returns a condition, as text, that is true exactly for the values in the chosen cells. The condition checks
    /// which parts (substrings, elements or keys) a value contains. Some cells hold exactly one value: `inside` lists
    /// these values of the chosen cells, and `outside` those of the other cells. Also returns true if the condition is
    /// true for an absent input.
    fn describe_parts(&self, chosen: &BTreeSet<usize>, inside: &[&Value], outside: &[&Value]) -> (String, bool) {
        let signatures = self.cells.iter().enumerate().filter(|(n, _)| chosen.contains(n));
        let mut terms: Vec<Vec<Option<bool>>> = signatures
            .filter_map(|(_, (set, _))| match set {
                ValueSet::Other(parts) => Some(parts.iter().copied().map(Some).collect()),
                ValueSet::Absent | ValueSet::Point(_) | ValueSet::Between(..) => None,
            })
            .collect();
        while let Some((a, b, merged)) = first_merge(&terms) {
            terms = terms.into_iter().enumerate().filter(|(n, _)| *n != a && *n != b).map(|(_, term)| term).collect();
            terms.push(merged);
        }
        let matches = |term: &Vec<Option<bool>>, value: &Value| {
            let parts = contained(&self.parts, value);
            term.iter().zip(parts).all(|(wanted, is)| wanted.is_none_or(|wanted| wanted == is))
        };
        let mut texts = Vec::new();
        let mut holds_where_absent = false;
        for term in &terms {
            let literal = |(part, wanted): (&Value, &Option<bool>)| {
                let text = format!("{} contains {part}", self.name);
                wanted.map(|wanted| if wanted { text } else { format!("!({text})") })
            };
            let mut all: Vec<String> = self.parts.iter().zip(term).filter_map(literal).collect();
            let excluded: Vec<&Value> = outside.iter().copied().filter(|value| matches(term, value)).collect();
            if !excluded.is_empty() {
                all.push(not_one_of(&self.name, &excluded));
            }
            holds_where_absent |= !term.contains(&Some(true));
            texts.push(all.join(" && "));
        }
        let own: Vec<&Value> =
            inside.iter().copied().filter(|value| !terms.iter().any(|term| matches(term, value))).collect();
        if !own.is_empty() {
            texts.push(one_of(&self.name, &own));
        }
        (any_of(&texts), holds_where_absent)
    }
}

/// Finds two terms that can be merged: they differ in a single part, which the first term requires and the second
/// excludes, or the reverse. Returns the indexes of both terms, and the merged term, which ignores this part. `None` if
/// no two terms can be merged.
fn first_merge(terms: &[Vec<Option<bool>>]) -> Option<(usize, usize, Vec<Option<bool>>)> {
    for (a, one) in terms.iter().enumerate() {
        for (b, other) in terms.iter().enumerate().skip(a + 1) {
            let differs: Vec<usize> = (0..one.len()).filter(|n| one.get(*n) != other.get(*n)).collect();
            let [at] = differs.as_slice() else { continue };
            if [one, other].iter().all(|term| matches!(term.get(*at), Some(Some(_)))) {
                let mut merged = one.clone();
                if let Some(slot) = merged.get_mut(*at) {
                    *slot = None;
                }
                return Some((a, b, merged));
            }
        }
    }
    None
}

fn any_of(terms: &[String]) -> String {
    match terms {
        [one] => one.clone(),
        _ => format!("({})", terms.join(" || ")),
    }
}

fn one_of(name: &str, values: &[&Value]) -> String {
    match values {
        [value] => format!("{name} == {value}"),
        _ => format!("{name} in {}", list(values)),
    }
}

fn not_one_of(name: &str, values: &[&Value]) -> String {
    match values {
        [value] => format!("{name} != {value}"),
        _ => format!("!({name} in {})", list(values)),
    }
}

fn list(values: &[&Value]) -> String {
    format!("[{}]", values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}
