//! Values at which a condition can change its mind: what its paths are compared with, and the numbers beside them. For
//! whoever goes through the inputs of a directive; the condition itself is asked by the one evaluator.

use rye_grammar::condition::Path;
use serde_json::Value;

use super::{Comparison, Condition, Node};

/// A path that a condition reads and the values that stand beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    pub path: Path,
    pub values: Vec<Value>,
    /// A pattern, an expression or another path decides too: the values alone may not show everything.
    pub open: bool,
}

impl Condition {
    /// Every path the condition reads, with the literals it is compared with, in order of first appearance.
    pub fn samples(&self) -> Vec<Samples> {
        let mut all: Vec<Samples> = self
            .paths()
            .into_iter()
            .map(|path| Samples { path: path.clone(), values: Vec::new(), open: false })
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
            (Node::Path(path), other) | (other, Node::Path(path)) => compared(*op, path, other, all),
            (left, right) => {
                open(left, all);
                open(right, all);
            }
        },
    }
}

fn compared(op: Comparison, path: &Path, other: &Node, all: &mut Vec<Samples>) {
    let mut values = Vec::new();
    if !literals(other, &mut values) {
        open(other, all);
        if let Some(samples) = all.iter_mut().find(|s| s.path == *path) {
            samples.open = true;
        }
        return;
    }
    let mut beside = Vec::new();
    for value in values {
        match (op, &value) {
            (Comparison::In, Value::Array(items)) => beside.extend(items.iter().cloned()),
            // What contains an element is a list of it, what contains a text is that text.
            (Comparison::Contains, _) => beside.extend([Value::Array(vec![value.clone()]), value]),
            (_, Value::Number(number)) => {
                if let Some(whole) = number.as_i64() {
                    beside.extend(
                        [whole.checked_sub(1), Some(whole), whole.checked_add(1)]
                            .into_iter()
                            .flatten()
                            .map(Value::from),
                    );
                } else {
                    beside.push(value);
                }
            }
            (_, _) => beside.push(value),
        }
    }
    add(all, path, beside);
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
    let Some(samples) = all.iter_mut().find(|s| s.path == *path) else { return };
    for value in values {
        if !samples.values.contains(&value) {
            samples.values.push(value);
        }
    }
}
