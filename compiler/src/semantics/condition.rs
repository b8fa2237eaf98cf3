//! Conditions, compiled once and then evaluated over facts (`language.md` 5). The grammar parses them.

mod atoms;
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
pub(crate) use compile::known_type;
pub use domain::{Domain, Fuel};
pub use implication::{Implication, PathValues};
use pattern::Pattern;
pub(crate) use pattern::PatternBudget;
pub use samples::ComparedLiterals;

/// A compiled condition: patterns checked, constants folded. Its evaluation cannot fail.
#[derive(Debug, Clone)]
pub struct Condition {
    root: CompiledNode,
    /// The first segment of each path that the condition may read, without repeats.
    roots: Box<[Box<str>]>,
    /// Texts that the fact `directive` must contain. If it lacks one of the texts, the condition is false.
    directive_parts: Box<[Box<str>]>,
}

/// The result of a condition over some facts (Kleene's three values).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    True,
    False,
    /// The result depends on these paths, which were declared as unknown: in order of first reading, each once.
    Unknown(Vec<String>),
}

/// An error in a condition that is found without evaluating the condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionError {
    pub span: Span,
    pub message: String,
    pub help: Option<String>,
}

/// A path that an evaluation read, with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct FactReading {
    pub path: String,
    pub found: ReadingResult,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ReadingResult {
    Value(Value),
    Absent,
    Unknown,
}

#[derive(Debug, Clone)]
enum CompiledNode {
    Literal(Value),
    List(Vec<CompiledNode>),
    Path(Path),
    Exists(Path),
    Length(Box<CompiledNode>),
    Not(Box<CompiledNode>),
    Negate(Box<CompiledNode>),
    All(Vec<CompiledNode>),
    Any(Vec<CompiledNode>),
    Compare { op: Comparison, left: Box<CompiledNode>, right: Box<CompiledNode> },
    Matches { left: Box<CompiledNode>, pattern: Pattern },
    Arithmetic { op: ArithmeticOp, left: Box<CompiledNode>, right: Box<CompiledNode> },
}

impl CompiledNode {
    /// Returns the value of a literal, or of a list that contains only literals; `None` for any other node.
    fn literal(&self) -> Option<Value> {
        match self {
            Self::Literal(value) => Some(value.clone()),
            Self::List(items) => items.iter().map(Self::literal).collect::<Option<Vec<_>>>().map(Value::Array),
            Self::Path(_)
            | Self::Exists(_)
            | Self::Length(_)
            | Self::Not(_)
            | Self::Negate(_)
            | Self::All(_)
            | Self::Any(_)
            | Self::Compare { .. }
            | Self::Matches { .. }
            | Self::Arithmetic { .. } => None,
        }
    }
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
        let root = CompiledNode::Literal(Value::Bool(true));
        Self { root, roots: Box::default(), directive_parts: Box::default() }
    }

    /// Compiles a condition without declared types of facts and inputs.
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
        Self::compile_within(expr, types, &mut PatternBudget::default())
    }

    /// Compiles a condition of a file. The patterns of all conditions in the file share one budget.
    ///
    /// # Errors
    /// As for [`Condition::compile_typed`]; also if the patterns exceed the budget.
    pub(crate) fn compile_within(
        expr: &Expr,
        types: &dyn Fn(&Path) -> Option<Type>,
        patterns: &mut PatternBudget,
    ) -> Result<Self, Vec<ConditionError>> {
        compile::compile(expr, types, patterns).map(Self::of)
    }

    fn of(root: CompiledNode) -> Self {
        let mut parts = Vec::new();
        collect_directive_parts(&root, &mut parts);
        Self { roots: roots(&root), directive_parts: parts.into(), root }
    }

    /// Returns true if the condition is false for this directive, whatever the other facts are. Returns false if only
    /// an evaluation can decide. The function is cheap, because a check calls it for every hook and every directive.
    pub(crate) fn is_false_for(&self, directive: &str) -> bool {
        self.directive_parts.iter().any(|part| !directive.contains(&**part))
    }

    /// Returns the longest text that the fact `directive` must contain for the condition to be true; `None` if the
    /// condition requires no text.
    pub(crate) fn directive_part(&self) -> Option<&str> {
        self.directive_parts.iter().map(AsRef::as_ref).max_by_key(|part: &&str| part.len())
    }

    /// Evaluates the condition over these facts.
    pub fn evaluate(&self, facts: &Facts) -> Verdict {
        evaluate::evaluate_root(&self.root, facts, None)
    }

    /// Evaluates like [`Condition::evaluate`]; also returns every path that was read, in order of reading.
    pub fn evaluate_traced(&self, facts: &Facts) -> (Verdict, Vec<FactReading>) {
        let mut readings = Vec::new();
        let verdict = evaluate::evaluate_root(&self.root, facts, Some(&mut readings));
        (verdict, readings)
    }

    /// Returns the first segment of each path that the condition may read, in order of first appearance, without
    /// repeats.
    pub fn roots(&self) -> impl Iterator<Item = &str> {
        self.roots.iter().map(AsRef::as_ref)
    }

    /// Returns every path that the condition may read, in order of first appearance, each once.
    pub fn paths(&self) -> Vec<&Path> {
        let mut paths = Vec::new();
        collect_paths(&self.root, &mut paths);
        paths
    }
}

/// Collects texts that the fact `directive` (the id of the directive) must contain for the node to be true.
fn collect_directive_parts(node: &CompiledNode, parts: &mut Vec<Box<str>>) {
    match node {
        CompiledNode::All(nodes) => nodes.iter().for_each(|node| collect_directive_parts(node, parts)),
        CompiledNode::Compare { op: Comparison::Contains | Comparison::Eq, left, right } => {
            if let (CompiledNode::Path(path), CompiledNode::Literal(Value::String(text))) = (&**left, &**right)
                && let [Segment::Name(name)] = &*path.segments
                && name == "directive"
            {
                parts.push(text.as_str().into());
            }
        }
        CompiledNode::Literal(_)
        | CompiledNode::List(_)
        | CompiledNode::Path(_)
        | CompiledNode::Exists(_)
        | CompiledNode::Length(_)
        | CompiledNode::Not(_)
        | CompiledNode::Negate(_)
        | CompiledNode::Any(_)
        | CompiledNode::Compare { .. }
        | CompiledNode::Matches { .. }
        | CompiledNode::Arithmetic { .. } => {}
    }
}

fn roots(root: &CompiledNode) -> Box<[Box<str>]> {
    let mut paths = Vec::new();
    collect_paths(root, &mut paths);
    let mut names: Vec<Box<str>> = Vec::new();
    for path in paths {
        let Some(Segment::Name(name)) = path.segments.first() else { continue };
        if !names.iter().any(|n| **n == **name) {
            names.push(name.as_str().into());
        }
    }
    names.into()
}

fn collect_paths<'a>(node: &'a CompiledNode, paths: &mut Vec<&'a Path>) {
    match node {
        CompiledNode::Literal(_) => {}
        CompiledNode::Path(path) | CompiledNode::Exists(path) => {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        CompiledNode::List(nodes) | CompiledNode::All(nodes) | CompiledNode::Any(nodes) => {
            for node in nodes {
                collect_paths(node, paths);
            }
        }
        CompiledNode::Length(node)
        | CompiledNode::Not(node)
        | CompiledNode::Negate(node)
        | CompiledNode::Matches { left: node, .. } => {
            collect_paths(node, paths);
        }
        CompiledNode::Compare { left, right, .. } | CompiledNode::Arithmetic { left, right, .. } => {
            collect_paths(left, paths);
            collect_paths(right, paths);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rye_grammar::SourceId;
    use rye_grammar::condition::parse_inline;

    use super::*;

    #[test]
    fn directive_is_ruled_out_only_if_its_condition_is_false() {
        let cases = [
            ("directive contains \"area1/\"", false),
            ("directive == \"area2/task\"", true),
            ("directive contains \"area2/\" and turn > 3", true),
            ("turn > 3 and directive contains \"area1/\"", false),
            ("directive contains \"area1/\" or turn > 3", true),
            ("not (directive contains \"area1/\")", true),
            ("directive != \"area1/\"", true),
            ("category contains \"area1\"", true),
        ];
        let mut facts = Facts::new();
        facts.set("directive", Value::String("area2/task".to_owned()));
        facts.declare_unknown("turn");
        for (text, may_hold) in cases {
            let condition = Condition::compile(&parse_inline(SourceId(0), text, 0).unwrap()).unwrap();
            assert_eq!(condition.is_false_for("area2/task"), !may_hold, "{text}");
            assert!(may_hold || condition.evaluate(&facts) == Verdict::False, "{text}");
        }
    }
}
