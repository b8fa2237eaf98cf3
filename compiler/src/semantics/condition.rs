//! Conditions, compiled once and then evaluated over facts (`language.md` 5). The grammar parses them.

mod compile;
mod domain;
mod evaluate;
mod implication;
mod pattern;
mod samples;

use rye_grammar::Span;
use rye_grammar::condition::{ArithmeticOp, Expr, Path, Segment};
use serde_json::Value;

use super::facts::Facts;
use super::value::Type;
pub use domain::{Domain, Fuel};
pub use implication::{Implication, PathValues};
use pattern::Pattern;
pub use samples::{ComparedLiterals, around};

/// A compiled condition: patterns checked, constants folded. Its evaluation cannot fail.
#[derive(Debug, Clone)]
pub struct Condition {
    root: Node,
    /// The first names of the paths that it reads, each once.
    roots: Box<[Box<str>]>,
}

/// The result of a condition over some facts (Kleene's three values).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    True,
    False,
    /// The declared unknown paths, in order of first reading, each once.
    Unknown(Vec<String>),
}

/// A static error of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionError {
    pub span: Span,
    pub message: String,
    pub help: Option<String>,
}

/// A path that an evaluation read, with its value.
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
    /// Returns the condition that always holds: the meaning of `{}` and of a missing condition.
    pub fn always() -> Self {
        Self { root: Node::Literal(Value::Bool(true)), roots: Box::default() }
    }

    /// Compiles a condition with no known types besides those of literals.
    ///
    /// # Errors
    /// Returns every static error, including those in unreachable branches.
    pub fn compile(expr: &Expr) -> Result<Self, Vec<ConditionError>> {
        Self::compile_typed(expr, &|_| None)
    }

    /// Compiles a condition against the declared types of facts and inputs.
    ///
    /// # Errors
    /// As for [`Condition::compile`]; also if a declared type makes a part of the condition always false.
    pub fn compile_typed(expr: &Expr, types: &dyn Fn(&Path) -> Option<Type>) -> Result<Self, Vec<ConditionError>> {
        compile::compile(expr, types).map(|root| Self { roots: roots(&root), root })
    }

    /// Evaluates the condition over these facts.
    pub fn evaluate(&self, facts: &Facts) -> Verdict {
        evaluate::verdict(&self.root, facts, None)
    }

    /// Evaluates like [`Condition::evaluate`]; also returns every path that was read, in order of reading.
    pub fn evaluate_traced(&self, facts: &Facts) -> (Verdict, Vec<Reading>) {
        let mut readings = Vec::new();
        let verdict = evaluate::verdict(&self.root, facts, Some(&mut readings));
        (verdict, readings)
    }

    /// Returns the first names of the paths that the condition may read, in order of first appearance, each once.
    pub fn roots(&self) -> impl Iterator<Item = &str> {
        self.roots.iter().map(AsRef::as_ref)
    }

    /// Returns every path that the condition may read, in order of first appearance, each once.
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
