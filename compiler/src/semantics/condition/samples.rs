//! The values at which a condition can change its result: the literals that its paths are compared with, and
//! neighboring numbers. Checks that enumerate the inputs of a directive use these values; the shared evaluator
//! evaluates the condition.

use rye_grammar::condition::{ArithmeticOp, Path};
use serde_json::Value;

use super::{Comparison, CompiledNode, Condition};

/// A path that a condition reads, and the literals that the path is compared with.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedLiterals {
    pub path: Path,
    /// Literals that the value of the path is compared with, alone or as members of a list (`in`).
    pub values: Vec<Value>,
    /// Literals that a comparison looks for inside the path's value: substrings, elements or keys.
    pub parts: Vec<Value>,
    /// True if the path is compared with a text by order (`<`, `>=`).
    pub ordered: bool,
    /// True if a pattern, an expression or another path also affects the result, so that the literals alone do not
    /// decide the result.
    pub open: bool,
    /// True if `crossings` does not contain every number at which the result can change, for example because a pattern
    /// reads the path.
    pub is_nonlinear: bool,
    /// Numbers at which comparisons of linear expressions of the path (`2 * n + 1 < 7`) change their result; `None` if
    /// there is no such comparison.
    pub crossings: Option<Vec<f64>>,
}

impl ComparedLiterals {
    /// Returns the numbers that the path is compared with, without other literals. `None` if a number is outside of the
    /// exactly representable range.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        let numbers = self.values.iter().filter_map(|value| if let Value::Number(n) = value { Some(n) } else { None });
        numbers.map(|n| n.as_f64().filter(|n| n.abs() < MAX_EXACT_FLOAT)).collect()
    }
}

/// The largest integer up to which floats are exact. Nothing is concluded from larger numbers.
const MAX_EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;

/// Returns the numbers of `against`, and numbers between, below and above them. If `whole` is true, returns only
/// integers.
pub(crate) fn boundary_values(against: &[f64], whole: bool) -> Vec<f64> {
    if whole {
        return against.iter().flat_map(|n| [n.floor() - 1.0, n.floor(), n.floor() + 1.0]).collect();
    }
    let mut sorted = against.to_vec();
    sorted.sort_by(f64::total_cmp);
    let between =
        sorted.windows(2).filter_map(|pair| if let [a, b] = pair { Some(f64::midpoint(*a, *b)) } else { None });
    let ends = sorted.first().map(|n| n - 1.0).into_iter().chain(sorted.last().map(|n| n + 1.0));
    // Half of the smallest number lies between 0, a frequent lower bound, and the smallest number.
    let low = sorted.first().map(|n| n / 2.0);
    between.chain(ends).chain(low).chain(sorted.iter().copied()).collect()
}

impl Condition {
    /// Returns every path that the condition reads, with the literals that the path is compared with, in order of first
    /// appearance.
    pub fn samples(&self) -> Vec<ComparedLiterals> {
        let mut all: Vec<ComparedLiterals> = self
            .paths()
            .into_iter()
            .map(|path| ComparedLiterals {
                path: path.clone(),
                values: Vec::new(),
                parts: Vec::new(),
                ordered: false,
                open: false,
                is_nonlinear: false,
                crossings: None,
            })
            .collect();
        walk(&self.root, &mut all);
        all
    }
}

fn walk(node: &CompiledNode, all: &mut Vec<ComparedLiterals>) {
    match node {
        CompiledNode::Literal(_) => {}
        // A path that is a condition by itself is true only if its value is `true`.
        CompiledNode::Path(path) => add_values(all, path, [Value::Bool(true), Value::Bool(false)]),
        CompiledNode::Exists(path) => add_values(all, path, []),
        CompiledNode::Length(inner) | CompiledNode::Negate(inner) => mark_incomplete(inner, all),
        CompiledNode::Not(inner) => walk(inner, all),
        CompiledNode::List(nodes) => nodes.iter().for_each(|n| mark_incomplete(n, all)),
        CompiledNode::All(nodes) | CompiledNode::Any(nodes) => nodes.iter().for_each(|n| walk(n, all)),
        CompiledNode::Matches { left, .. } => mark_incomplete(left, all),
        CompiledNode::Arithmetic { left, right, .. } => {
            mark_incomplete(left, all);
            mark_incomplete(right, all);
        }
        CompiledNode::Compare { left, right, .. } if record_linear(left, right, all) => {}
        CompiledNode::Compare { op, left, right } => match (left.as_ref(), right.as_ref()) {
            (CompiledNode::Path(path), other) => record_comparison(*op, path, true, other, all),
            (other, CompiledNode::Path(path)) => record_comparison(*op, path, false, other, all),
            (left, right) => {
                mark_incomplete(left, all);
                mark_incomplete(right, all);
            }
        },
    }
}

/// A linear expression of one path: `slope * path + offset`.
struct Linear<'n> {
    path: Option<&'n Path>,
    slope: f64,
    offset: f64,
}

impl<'n> Linear<'n> {
    /// Returns the linear expression of a node; `None` if the node is no sum, difference or product of numbers and one
    /// path.
    fn of(node: &'n CompiledNode) -> Option<Self> {
        match node {
            CompiledNode::Literal(Value::Number(number)) => {
                let offset = number.as_f64().filter(|number| number.abs() < MAX_EXACT_FLOAT)?;
                Some(Self { path: None, slope: 0.0, offset })
            }
            CompiledNode::Path(path) => Some(Self { path: Some(path), slope: 1.0, offset: 0.0 }),
            CompiledNode::Negate(inner) => Self::of(inner).map(|inner| inner.scale(-1.0)),
            CompiledNode::Arithmetic { op, left, right } => {
                let (left, right) = (Self::of(left)?, Self::of(right)?);
                match op {
                    ArithmeticOp::Add => left.plus(&right),
                    ArithmeticOp::Subtract => left.plus(&right.scale(-1.0)),
                    ArithmeticOp::Multiply if right.path.is_none() => Some(left.scale(right.offset)),
                    ArithmeticOp::Multiply if left.path.is_none() => Some(right.scale(left.offset)),
                    ArithmeticOp::Multiply | ArithmeticOp::Divide | ArithmeticOp::Remainder => None,
                }
            }
            CompiledNode::Literal(_)
            | CompiledNode::List(_)
            | CompiledNode::Exists(_)
            | CompiledNode::Length(_)
            | CompiledNode::Not(_)
            | CompiledNode::All(_)
            | CompiledNode::Any(_)
            | CompiledNode::Compare { .. }
            | CompiledNode::Matches { .. } => None,
        }
    }

    fn scale(self, by: f64) -> Self {
        Self { path: self.path, slope: self.slope * by, offset: self.offset * by }
    }

    fn plus(&self, other: &Self) -> Option<Self> {
        if self.path.is_some() && other.path.is_some() && self.path != other.path {
            return None;
        }
        let path = self.path.or(other.path);
        Some(Self { path, slope: self.slope + other.slope, offset: self.offset + other.offset })
    }
}

/// Records a comparison of two linear expressions of one path, such as `2 * n > 3` or `n < n + 1`. Returns false for
/// any other comparison, and for a comparison of the path itself with a literal.
fn record_linear(left: &CompiledNode, right: &CompiledNode, all: &mut [ComparedLiterals]) -> bool {
    let is_simple = |node: &CompiledNode| matches!(node, CompiledNode::Path(_) | CompiledNode::Literal(_));
    let has_literal = matches!(left, CompiledNode::Literal(_)) || matches!(right, CompiledNode::Literal(_));
    if is_simple(left) && is_simple(right) && has_literal {
        return false;
    }
    let (Some(left), Some(right)) = (Linear::of(left), Linear::of(right)) else { return false };
    let Some(Linear { path: Some(path), slope, offset }) = left.plus(&right.scale(-1.0)) else { return false };
    let Some(samples) = all.iter_mut().find(|samples| samples.path == *path) else { return false };
    samples.open = true;
    let crossing = (slope.abs() > 0.0).then(|| -offset / slope).filter(|number| number.abs() < MAX_EXACT_FLOAT);
    samples.crossings.get_or_insert_default().extend(crossing);
    // A crossing that is too large to be exact is missing in `crossings`.
    samples.is_nonlinear |= slope.abs() > 0.0 && crossing.is_none();
    true
}

/// Records a comparison; `first` is true if the path is the left operand.
fn record_comparison(op: Comparison, path: &Path, first: bool, other: &CompiledNode, all: &mut Vec<ComparedLiterals>) {
    let mut literals_of = Vec::new();
    let known = collect_literals(other, &mut literals_of);
    if !known {
        mark_incomplete(other, all);
    }
    let Some(samples) = all.iter_mut().find(|s| s.path == *path) else { return };
    if !known {
        samples.open = true;
        samples.is_nonlinear = true;
        return;
    }
    let whole = |values: Vec<Value>| match (other, values) {
        (CompiledNode::List(_), values) => vec![Value::Array(values)],
        (_, values) => values,
    };
    match op {
        Comparison::In if first && matches!(other, CompiledNode::List(_)) => {
            push_missing(&mut samples.values, literals_of);
        }
        Comparison::In if first => match literals_of.pop() {
            Some(Value::Array(items)) => push_missing(&mut samples.values, items),
            // `path in 'text'`: every substring of the text matches, so the literals alone do not decide the result.
            other => {
                push_missing(&mut samples.values, other);
                samples.open = true;
                samples.is_nonlinear = true;
            }
        },
        Comparison::Contains if !first => {
            push_missing(&mut samples.values, whole(literals_of));
            samples.open = true;
            samples.is_nonlinear = true;
        }
        Comparison::In | Comparison::Contains => push_missing(&mut samples.parts, whole(literals_of)),
        Comparison::Eq | Comparison::Ne => push_missing(&mut samples.values, whole(literals_of)),
        Comparison::Lt | Comparison::Lte | Comparison::Gt | Comparison::Gte => {
            samples.ordered |= literals_of.iter().any(Value::is_string);
            push_missing(&mut samples.values, whole(literals_of));
        }
    }
}

fn push_missing(known: &mut Vec<Value>, values: impl IntoIterator<Item = Value>) {
    for value in values {
        if !known.contains(&value) {
            known.push(value);
        }
    }
}

/// Adds the value of a literal, or the values of a list of literals, to `values`. Returns false if the node is or
/// contains anything but literals.
fn collect_literals(node: &CompiledNode, values: &mut Vec<Value>) -> bool {
    if let CompiledNode::List(nodes) = node {
        return nodes.iter().all(|n| collect_literals(n, values));
    }
    let value = node.literal();
    let is_literal = value.is_some();
    values.extend(value);
    is_literal
}

/// Marks the path of a node as open ([`ComparedLiterals::open`]), because the condition uses its value outside of
/// comparisons with literals (such as in arithmetic). If the node is not a path, walks the node instead.
fn mark_incomplete(node: &CompiledNode, all: &mut Vec<ComparedLiterals>) {
    if let CompiledNode::Path(path) = node {
        if let Some(samples) = all.iter_mut().find(|s| s.path == *path) {
            samples.open = true;
            samples.is_nonlinear = true;
        }
    } else {
        walk(node, all);
    }
}

fn add_values(all: &mut [ComparedLiterals], path: &Path, values: impl IntoIterator<Item = Value>) {
    if let Some(samples) = all.iter_mut().find(|s| s.path == *path) {
        push_missing(&mut samples.values, values);
    }
}
