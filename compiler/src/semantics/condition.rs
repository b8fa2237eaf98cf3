//! Conditions, compiled once and evaluated anywhere (`language.md` 5). Parsing them is the grammar's business.

mod compile;
mod domain;
mod evaluate;
mod pattern;
mod samples;

use rye_grammar::Span;
use rye_grammar::condition::{ArithmeticOp, Expr, Path, Segment};
use serde_json::Value;

use super::facts::Facts;
use super::value::Type;
pub use domain::{Domain, Effort};
use pattern::Pattern;
pub use samples::{Samples, around};

/// A condition ready to be evaluated: patterns read, constants folded. It cannot fail any more.
#[derive(Debug, Clone)]
pub struct Condition {
    root: Node,
    /// The first names of the paths it reads, each once.
    roots: Box<[Box<str>]>,
}

/// What a condition says over some facts (Kleene's three values).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    True,
    False,
    /// The unknown operands' declared paths, in order of first reading, each once.
    Unknown(Vec<String>),
}

/// A static error of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionFault {
    pub span: Span,
    pub message: String,
    pub help: Option<String>,
}

/// One path that an evaluation read, and what was there.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    pub path: String,
    pub found: Found,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    Value(Value),
    Absent,
    Unknown,
}

#[derive(Debug, Clone)]
enum Node {
    Literal(Value),
    List(Vec<Node>),
    Path(Path),
    Exists(Path),
    Length(Box<Node>),
    Not(Box<Node>),
    Negate(Box<Node>),
    All(Vec<Node>),
    Any(Vec<Node>),
    Compare { op: Comparison, left: Box<Node>, right: Box<Node> },
    Matches { left: Box<Node>, pattern: Pattern },
    Arithmetic { op: ArithmeticOp, left: Box<Node>, right: Box<Node> },
}

#[derive(Debug, Clone, Copy)]
enum Comparison {
    Eq,
    Ne,
    Lt,
    Lte,
    Gt,
    Gte,
    In,
    Contains,
}

impl Condition {
    /// The condition that holds everywhere: what no condition and `{}` mean.
    pub fn always() -> Self {
        Self { root: Node::Literal(Value::Bool(true)), roots: Box::default() }
    }

    /// Compiles with no more types known than those of the literals.
    ///
    /// # Errors
    /// Every static error, also those in branches that can never be reached.
    pub fn compile(expr: &Expr) -> Result<Self, Vec<ConditionFault>> {
        Self::compile_typed(expr, &|_| None)
    }

    /// Compiles against the declared types of facts and inputs.
    ///
    /// # Errors
    /// As [`Condition::compile`], and wherever a declared type makes a part of the condition false for ever.
    pub fn compile_typed(expr: &Expr, types: &dyn Fn(&Path) -> Option<Type>) -> Result<Self, Vec<ConditionFault>> {
        compile::compile(expr, types).map(|root| Self { roots: roots(&root), root })
    }

    /// Whether the condition holds over these facts.
    pub fn evaluate(&self, facts: &Facts) -> Verdict {
        evaluate::verdict(&self.root, facts, None)
    }

    /// As [`Condition::evaluate`], with every path that was read, in order of reading.
    pub fn evaluate_traced(&self, facts: &Facts) -> (Verdict, Vec<Reading>) {
        let mut readings = Vec::new();
        let verdict = evaluate::verdict(&self.root, facts, Some(&mut readings));
        (verdict, readings)
    }

    /// The facts the condition may read, by the first name of their paths, in order of first appearance, each once.
    pub fn roots(&self) -> impl Iterator<Item = &str> {
        self.roots.iter().map(AsRef::as_ref)
    }

    /// Every path the condition may read, in order of first appearance, each once.
    pub fn paths(&self) -> Vec<&Path> {
        let mut paths = Vec::new();
        collect(&self.root, &mut paths);
        paths
    }
}

fn roots(root: &Node) -> Box<[Box<str>]> {
    let mut paths = Vec::new();
    collect(root, &mut paths);
    let mut names: Vec<Box<str>> = Vec::new();
    for path in paths {
        let Some(Segment::Name(name)) = path.segments.first() else { continue };
        if !names.iter().any(|n| **n == **name) {
            names.push(name.as_str().into());
        }
    }
    names.into()
}

fn collect<'a>(node: &'a Node, paths: &mut Vec<&'a Path>) {
    match node {
        Node::Literal(_) => {}
        Node::Path(path) | Node::Exists(path) => {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        Node::List(nodes) | Node::All(nodes) | Node::Any(nodes) => {
            for node in nodes {
                collect(node, paths);
            }
        }
        Node::Length(node) | Node::Not(node) | Node::Negate(node) | Node::Matches { left: node, .. } => {
            collect(node, paths);
        }
        Node::Compare { left, right, .. } | Node::Arithmetic { left, right, .. } => {
            collect(left, paths);
            collect(right, paths);
        }
    }
}
