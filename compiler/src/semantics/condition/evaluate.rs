//! Evaluation of a compiled condition in Kleene's three-valued logic: true, false or unknown. The evaluation is total:
//! it has a result for any facts.

use std::cmp::Ordering;

use rye_grammar::condition::{ArithmeticOp, Path};
use serde_json::Value;

use super::{Comparison, CompiledNode, FactReading, ReadingResult, Verdict};
use crate::semantics::facts::{Facts, Lookup};
use crate::semantics::value::{self, Num};

pub(super) fn evaluate_root(root: &CompiledNode, facts: &Facts, readings: Option<&mut Vec<FactReading>>) -> Verdict {
    match (Evaluator { facts, readings }).evaluate_node(root) {
        Truth::True => Verdict::True,
        Truth::False => Verdict::False,
        Truth::Unknown(paths) => Verdict::Unknown(paths.into_iter().map(str::to_owned).collect()),
    }
}

struct Evaluator<'a, 't> {
    facts: &'a Facts,
    readings: Option<&'t mut Vec<FactReading>>,
}

/// The paths of unknown facts that make a result unknown, each once, in order of first reading. A path has the form in
/// which it was passed to [`Facts::declare_unknown`].
type Paths<'a> = Vec<&'a str>;

enum Truth<'a> {
    True,
    False,
    Unknown(Paths<'a>),
}

enum Operand<'a> {
    Value(&'a Value),
    List(Vec<Value>),
    Number(Num),
    Bool(bool),
    Absent,
    Unknown(Paths<'a>),
}

impl<'a> Evaluator<'a, '_> {
    fn evaluate_node(&mut self, node: &'a CompiledNode) -> Truth<'a> {
        match node {
            CompiledNode::All(nodes) => self.all(nodes),
            CompiledNode::Any(nodes) => self.any(nodes),
            CompiledNode::Not(inner) => match self.evaluate_node(inner) {
                Truth::True => Truth::False,
                Truth::False => Truth::True,
                Truth::Unknown(paths) => Truth::Unknown(paths),
            },
            CompiledNode::Compare { op, left: left_node, right: right_node } => {
                let (left, right) = (self.operand(left_node), self.operand(right_node));
                match both_known(left, right) {
                    Ok((left, right)) => truth(compare(*op, &left, &right)),
                    Err(_) if is_impossible_length(*op, left_node, right_node) => Truth::False,
                    Err(paths) => Truth::Unknown(paths),
                }
            }
            CompiledNode::Matches { left, pattern } => match self.operand(left) {
                Operand::Unknown(paths) => Truth::Unknown(paths),
                Operand::Value(Value::String(text)) => truth(pattern.is_match(text)),
                Operand::Value(_) | Operand::List(_) | Operand::Number(_) | Operand::Bool(_) | Operand::Absent => {
                    Truth::False
                }
            },
            CompiledNode::Exists(path) => match self.look_up(path) {
                Lookup::Known(_) => Truth::True,
                Lookup::Absent => Truth::False,
                Lookup::Unknown(paths) => Truth::Unknown(paths),
            },
            CompiledNode::Literal(_)
            | CompiledNode::List(_)
            | CompiledNode::Path(_)
            | CompiledNode::Length(_)
            | CompiledNode::Negate(_)
            | CompiledNode::Arithmetic { .. } => match self.operand(node) {
                Operand::Value(Value::Bool(true)) | Operand::Bool(true) => Truth::True,
                Operand::Unknown(paths) => Truth::Unknown(paths),
                Operand::Value(_) | Operand::List(_) | Operand::Number(_) | Operand::Bool(false) | Operand::Absent => {
                    Truth::False
                }
            },
        }
    }

    fn all(&mut self, nodes: &'a [CompiledNode]) -> Truth<'a> {
        let mut unknown = Vec::new();
        for node in nodes {
            match self.evaluate_node(node) {
                Truth::True => {}
                Truth::False => return Truth::False,
                Truth::Unknown(paths) => merge_paths(&mut unknown, paths),
            }
        }
        if unknown.is_empty() { Truth::True } else { Truth::Unknown(unknown) }
    }

    fn any(&mut self, nodes: &'a [CompiledNode]) -> Truth<'a> {
        let mut unknown = Vec::new();
        for node in nodes {
            match self.evaluate_node(node) {
                Truth::True => return Truth::True,
                Truth::False => {}
                Truth::Unknown(paths) => merge_paths(&mut unknown, paths),
            }
        }
        if unknown.is_empty() { Truth::False } else { Truth::Unknown(unknown) }
    }

    fn operand(&mut self, node: &'a CompiledNode) -> Operand<'a> {
        match node {
            CompiledNode::Literal(value) => Operand::Value(value),
            CompiledNode::Path(path) => match self.look_up(path) {
                Lookup::Known(value) => Operand::Value(value),
                Lookup::Absent => Operand::Absent,
                Lookup::Unknown(paths) => Operand::Unknown(paths),
            },
            CompiledNode::List(nodes) => self.list(nodes),
            CompiledNode::Length(inner) => match self.operand(inner) {
                Operand::Unknown(paths) => Operand::Unknown(paths),
                Operand::Value(Value::String(text)) => count(text.chars().count()),
                Operand::Value(Value::Array(items)) => count(items.len()),
                Operand::Value(Value::Object(map)) => count(map.len()),
                Operand::List(items) => count(items.len()),
                Operand::Value(Value::Null | Value::Bool(_) | Value::Number(_))
                | Operand::Number(_)
                | Operand::Bool(_)
                | Operand::Absent => Operand::Absent,
            },
            CompiledNode::Negate(inner) => {
                let inner = self.operand(inner);
                if let Operand::Unknown(paths) = inner {
                    return Operand::Unknown(paths);
                }
                as_number(&inner).and_then(Num::checked_negate).map_or(Operand::Absent, Operand::Number)
            }
            CompiledNode::Arithmetic { op, left, right } => {
                let (left, right) = (self.operand(left), self.operand(right));
                match both_known(left, right) {
                    Ok((left, right)) => calculate(*op, &left, &right).map_or(Operand::Absent, Operand::Number),
                    Err(paths) => Operand::Unknown(paths),
                }
            }
            CompiledNode::All(_)
            | CompiledNode::Any(_)
            | CompiledNode::Not(_)
            | CompiledNode::Exists(_)
            | CompiledNode::Compare { .. }
            | CompiledNode::Matches { .. } => match self.evaluate_node(node) {
                Truth::True => Operand::Bool(true),
                Truth::False => Operand::Bool(false),
                Truth::Unknown(paths) => Operand::Unknown(paths),
            },
        }
    }

    fn list(&mut self, nodes: &'a [CompiledNode]) -> Operand<'a> {
        let mut items = Vec::with_capacity(nodes.len());
        let mut unknown = Vec::new();
        for node in nodes {
            match self.operand(node) {
                Operand::Unknown(paths) => merge_paths(&mut unknown, paths),
                Operand::Value(value) => items.push(value.clone()),
                Operand::List(values) => items.push(Value::Array(values)),
                Operand::Number(number) => items.push(number.to_value()),
                Operand::Bool(truth) => items.push(Value::Bool(truth)),
                Operand::Absent => items.push(Value::Null),
            }
        }
        if unknown.is_empty() { Operand::List(items) } else { Operand::Unknown(unknown) }
    }

    fn look_up(&mut self, path: &Path) -> Lookup<'a> {
        let found = self.facts.lookup(path);
        if let Some(readings) = &mut self.readings {
            let found = match &found {
                Lookup::Known(value) => ReadingResult::Value((*value).clone()),
                Lookup::Absent => ReadingResult::Absent,
                Lookup::Unknown(_) => ReadingResult::Unknown,
            };
            readings.push(FactReading { path: path.to_string(), found });
        }
        found
    }
}

fn truth<'a>(holds: bool) -> Truth<'a> {
    if holds { Truth::True } else { Truth::False }
}

fn count<'a>(n: usize) -> Operand<'a> {
    i128::try_from(n).map_or(Operand::Absent, |n| Operand::Number(Num::Int(n)))
}

fn merge_paths<'a>(into: &mut Paths<'a>, paths: Paths<'a>) {
    for path in paths {
        if !into.contains(&path) {
            into.push(path);
        }
    }
}

/// Returns both operands if they are known, else the unknown paths of one or both.
fn both_known<'a>(left: Operand<'a>, right: Operand<'a>) -> Result<(Operand<'a>, Operand<'a>), Paths<'a>> {
    match (left, right) {
        (Operand::Unknown(mut left), Operand::Unknown(right)) => {
            merge_paths(&mut left, right);
            Err(left)
        }
        (Operand::Unknown(paths), _) | (_, Operand::Unknown(paths)) => Err(paths),
        known => Ok(known),
    }
}

fn as_number(operand: &Operand<'_>) -> Option<Num> {
    match operand {
        Operand::Number(n) => Some(*n),
        Operand::Value(value) => Num::of_value(value),
        Operand::List(_) | Operand::Bool(_) | Operand::Absent | Operand::Unknown(_) => None,
    }
}

fn as_text<'o>(operand: &'o Operand<'_>) -> Option<&'o str> {
    if let Operand::Value(Value::String(text)) = operand { Some(text) } else { None }
}

fn as_items<'o>(operand: &'o Operand<'_>) -> Option<&'o Vec<Value>> {
    match operand {
        Operand::Value(Value::Array(items)) | Operand::List(items) => Some(items),
        Operand::Value(_) | Operand::Number(_) | Operand::Bool(_) | Operand::Absent | Operand::Unknown(_) => None,
    }
}

/// Returns true if no length can satisfy a comparison, because lengths are whole numbers from 0 (such as `length(a) <
/// 0`).
fn is_impossible_length(op: Comparison, left: &CompiledNode, right: &CompiledNode) -> bool {
    let (op, literal) = match (left, right) {
        (CompiledNode::Length(_), CompiledNode::Literal(Value::Number(number))) => (op, number.as_f64()),
        (CompiledNode::Literal(Value::Number(number)), CompiledNode::Length(_)) => {
            let mirrored = match op {
                Comparison::Gt => Comparison::Lt,
                Comparison::Gte => Comparison::Lte,
                Comparison::Eq => Comparison::Eq,
                Comparison::Ne | Comparison::Lt | Comparison::Lte | Comparison::In | Comparison::Contains => {
                    return false;
                }
            };
            (mirrored, number.as_f64())
        }
        _ => return false,
    };
    literal.is_some_and(|literal| match op {
        Comparison::Lt => literal <= 0.0,
        Comparison::Lte => literal < 0.0,
        Comparison::Eq => literal < 0.0 || literal.fract().abs() > 0.0,
        Comparison::Ne | Comparison::Gt | Comparison::Gte | Comparison::In | Comparison::Contains => false,
    })
}

fn calculate(op: ArithmeticOp, left: &Operand<'_>, right: &Operand<'_>) -> Option<Num> {
    let (left, right) = (as_number(left)?, as_number(right)?);
    match op {
        ArithmeticOp::Add => left.checked_add(right),
        ArithmeticOp::Subtract => left.checked_subtract(right),
        ArithmeticOp::Multiply => left.checked_multiply(right),
        ArithmeticOp::Divide => left.checked_divide(right),
        ArithmeticOp::Remainder => left.checked_remainder(right),
    }
}

fn compare(op: Comparison, left: &Operand<'_>, right: &Operand<'_>) -> bool {
    match op {
        Comparison::Eq => are_equal(left, right),
        Comparison::Ne => !are_equal(left, right),
        Comparison::Lt => compare_operands(left, right).is_some_and(Ordering::is_lt),
        Comparison::Lte => compare_operands(left, right).is_some_and(Ordering::is_le),
        Comparison::Gt => compare_operands(left, right).is_some_and(Ordering::is_gt),
        Comparison::Gte => compare_operands(left, right).is_some_and(Ordering::is_ge),
        Comparison::In => contains(right, left),
        Comparison::Contains => {
            contains(left, right)
                || matches!((left, as_text(right)), (Operand::Value(Value::Object(map)), Some(key)) if map.contains_key(key))
        }
    }
}

/// Returns true if a list contains an element equal to `part`, or a string contains the string `part`.
fn contains(whole: &Operand<'_>, part: &Operand<'_>) -> bool {
    if let Some(items) = as_items(whole) {
        return items.iter().any(|item| are_equal(&Operand::Value(item), part));
    }
    matches!((as_text(whole), as_text(part)), (Some(whole), Some(part)) if whole.contains(part))
}

/// Compares deeply. An absent operand equals null and another absent operand, and nothing else.
fn are_equal(left: &Operand<'_>, right: &Operand<'_>) -> bool {
    match (left, right) {
        (Operand::Absent, other) | (other, Operand::Absent) => {
            matches!(other, Operand::Absent | Operand::Value(Value::Null))
        }
        (Operand::Value(a), Operand::Value(b)) => value::are_equal(a, b),
        (Operand::Bool(a), Operand::Bool(b)) => a == b,
        (Operand::Bool(a), Operand::Value(Value::Bool(b))) | (Operand::Value(Value::Bool(b)), Operand::Bool(a)) => {
            a == b
        }
        _ => match (as_number(left), as_number(right)) {
            (Some(a), Some(b)) => a.compare(b).is_eq(),
            _ => match (as_items(left), as_items(right)) {
                (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| value::are_equal(a, b)),
                _ => false,
            },
        },
    }
}

fn compare_operands(left: &Operand<'_>, right: &Operand<'_>) -> Option<Ordering> {
    match (as_number(left), as_number(right)) {
        (Some(a), Some(b)) => Some(a.compare(b)),
        _ => Some(as_text(left)?.cmp(as_text(right)?)),
    }
}
