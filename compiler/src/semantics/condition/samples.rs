//! Values at which a condition can change its mind: what its paths are compared with, and the numbers beside them. For
//! whoever goes through the inputs of a directive; the condition itself is asked by the one evaluator.

use rye_grammar::condition::Path;
use serde_json::Value;

use super::{Comparison, Condition, Node};

/// A path that a condition reads and what it is held against.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    pub path: Path,
    /// Literals that it is compared with, or has to be one of.
    pub values: Vec<Value>,
    /// Literals that are looked for in it.
    pub parts: Vec<Value>,
    /// A pattern, an expression or another path decides too: the literals alone may not show everything.
    pub open: bool,
}

impl Samples {
    /// The numbers it is compared with; anything else decides the same way for all of them. `None` beyond what every
    /// kind of number tells apart.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        let numbers = self.values.iter().filter_map(|value| if let Value::Number(n) = value { Some(n) } else { None });
        numbers.map(|n| n.as_f64().filter(|n| n.abs() < EXACT)).collect()
    }
}

/// Numbers beyond this are not told apart by every kind of number, so that nothing is concluded from them.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Each of these numbers, and one of every stretch between them.
pub fn around(against: &[f64], whole: bool) -> Vec<f64> {
    if whole {
        return against.iter().flat_map(|n| [n.floor() - 1.0, n.floor(), n.floor() + 1.0]).collect();
    }
    let mut sorted = against.to_vec();
    sorted.sort_by(f64::total_cmp);
    let between =
        sorted.windows(2).filter_map(|pair| if let [a, b] = pair { Some(f64::midpoint(*a, *b)) } else { None });
    let ends = sorted.first().map(|n| n - 1.0).into_iter().chain(sorted.last().map(|n| n + 1.0));
    // Half way from 0 stands for what lies between a lower bound and the first of them.
    let low = sorted.first().map(|n| n / 2.0);
    between.chain(ends).chain(low).chain(sorted.iter().copied()).collect()
}

impl Condition {
    /// Every path the condition reads, with the literals it is compared with, in order of first appearance.
    pub fn samples(&self) -> Vec<Samples> {
        let mut all: Vec<Samples> = self
            .paths()
            .into_iter()
            .map(|path| Samples { path: path.clone(), values: Vec::new(), parts: Vec::new(), open: false })
            .collect();
        walk(&self.root, &mut all);
        all
    }
}

fn walk(node: &Node, all: &mut Vec<Samples>) {
    match node {
        Node::Literal(_) => {}
        // Standing alone, a path is true only where it is `true`.
        Node::Path(path) => add(all, path, [Value::Bool(true), Value::Bool(false)]),
        Node::Exists(path) => add(all, path, []),
        Node::Length(inner) | Node::Negate(inner) => open(inner, all),
        Node::Not(inner) => walk(inner, all),
        Node::List(nodes) => nodes.iter().for_each(|n| open(n, all)),
        Node::All(nodes) | Node::Any(nodes) => nodes.iter().for_each(|n| walk(n, all)),
        Node::Matches { left, .. } => open(left, all),
        Node::Arithmetic { left, right, .. } => {
            open(left, all);
            open(right, all);
        }
        Node::Compare { op, left, right } => match (left.as_ref(), right.as_ref()) {
            (Node::Path(path), other) => compared(*op, path, true, other, all),
            (other, Node::Path(path)) => compared(*op, path, false, other, all),
            (left, right) => {
                open(left, all);
                open(right, all);
            }
        },
    }
}

/// `first`: the path stands before the operator.
fn compared(op: Comparison, path: &Path, first: bool, other: &Node, all: &mut Vec<Samples>) {
    let mut literals_of = Vec::new();
    let known = literals(other, &mut literals_of);
    if !known {
        open(other, all);
    }
    let Some(samples) = all.iter_mut().find(|s| s.path == *path) else { return };
    if !known {
        samples.open = true;
        return;
    }
    let whole = |values: Vec<Value>| match (other, values) {
        (Node::List(_), values) => vec![Value::Array(values)],
        (_, values) => values,
    };
    match op {
        Comparison::In if first && matches!(other, Node::List(_)) => extend(&mut samples.values, literals_of),
        Comparison::In if first => match literals_of.pop() {
            Some(Value::Array(items)) => extend(&mut samples.values, items),
            // A text in a text: any part of it.
            other => {
                extend(&mut samples.values, other);
                samples.open = true;
            }
        },
        Comparison::Contains if !first => {
            extend(&mut samples.values, whole(literals_of));
            samples.open = true;
        }
        Comparison::In | Comparison::Contains => extend(&mut samples.parts, whole(literals_of)),
        Comparison::Eq | Comparison::Ne | Comparison::Lt | Comparison::Lte | Comparison::Gt | Comparison::Gte => {
            extend(&mut samples.values, whole(literals_of));
        }
    }
}

fn extend(known: &mut Vec<Value>, values: impl IntoIterator<Item = Value>) {
    for value in values {
        if !known.contains(&value) {
            known.push(value);
        }
    }
}

/// The literals that a node is made of; false where it is more than that.
fn literals(node: &Node, values: &mut Vec<Value>) -> bool {
    match node {
        Node::Literal(value) => {
            values.push(value.clone());
            true
        }
        Node::List(nodes) => nodes.iter().all(|n| literals(n, values)),
        Node::Path(_)
        | Node::Exists(_)
        | Node::Length(_)
        | Node::Not(_)
        | Node::Negate(_)
        | Node::All(_)
        | Node::Any(_)
        | Node::Compare { .. }
        | Node::Matches { .. }
        | Node::Arithmetic { .. } => false,
    }
}

/// Paths that are read for something that no literal shows.
fn open(node: &Node, all: &mut Vec<Samples>) {
    if let Node::Path(path) = node {
        if let Some(samples) = all.iter_mut().find(|s| s.path == *path) {
            samples.open = true;
        }
    } else {
        walk(node, all);
    }
}

fn add(all: &mut [Samples], path: &Path, values: impl IntoIterator<Item = Value>) {
    if let Some(samples) = all.iter_mut().find(|s| s.path == *path) {
        extend(&mut samples.values, values);
    }
}
