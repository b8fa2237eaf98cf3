//! The values at which a condition can change its result: the literals that its paths are compared with, and
//! neighboring numbers. Checks that enumerate the inputs of a directive use these values; the shared evaluator
//! evaluates the condition.

use rye_grammar::condition::Path;
use serde_json::Value;

use super::{Comparison, CompiledNode, Condition};

/// A path that a condition reads, and the literals that the path is compared with.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedLiterals {
    pub path: Path,
    /// Literals that the value of the path is compared with, alone or as members of a list (`in`).
    pub values: Vec<Value>,
    /// Literals that a comparison requires as a part of the path's value: substrings, elements or keys.
    pub parts: Vec<Value>,
    /// True if the path is compared with a text by order (`<`, `>=`).
    pub ordered: bool,
    /// True if a pattern, an expression or another path also affects the result, so that the literals alone do not
    /// decide the result.
    pub open: bool,
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
pub fn boundary_values(against: &[f64], whole: bool) -> Vec<f64> {
    if whole {
        return against.iter().flat_map(|n| [n.floor() - 1.0, n.floor(), n.floor() + 1.0]).collect();
    }
    let mut sorted = against.to_vec();
    sorted.sort_by(f64::total_cmp);
    let between =
        sorted.windows(2).filter_map(|pair| if let [a, b] = pair { Some(f64::midpoint(*a, *b)) } else { None });
    let ends = sorted.first().map(|n| n - 1.0).into_iter().chain(sorted.last().map(|n| n + 1.0));
    // Half of the smallest number represents the numbers between a lower bound and the smallest number.
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
            }
        },
        Comparison::Contains if !first => {
            push_missing(&mut samples.values, whole(literals_of));
            samples.open = true;
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

/// Marks a path as open ([`ComparedLiterals::open`]), because more than comparisons with literals depends on its value:
/// arithmetic or a pattern, for example. For a node that is not a path, walks the node instead.
fn mark_incomplete(node: &CompiledNode, all: &mut Vec<ComparedLiterals>) {
    if let CompiledNode::Path(path) = node {
        if let Some(samples) = all.iter_mut().find(|s| s.path == *path) {
            samples.open = true;
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
