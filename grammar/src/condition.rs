//! The condition language: one tree for the mapping form and the one-line form (`language.md`, Conditions). This module
//! checks only the syntax; the compiler evaluates conditions.

mod error;
mod inline;
mod path;
mod structured;

use serde_json::Value;

pub use inline::parse_inline;
pub use path::parse_path;
pub(crate) use path::parse_segments;
pub use structured::{OPERATORS, from_data};

use crate::span::Span;

/// Maximum depth of a tree. The bound keeps recursive traversals from overflowing the stack.
pub const MAX_DEPTH: usize = 64;

#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: Span,
}

impl Expr {
    /// Sets the span of every node of the tree to `to`. Callers use this if escapes make offsets in the condition's
    /// text differ from offsets in the source.
    fn set_span(&mut self, to: Span) {
        self.span = to;
        match &mut self.kind {
            ExprKind::Literal(_) | ExprKind::Path(_) | ExprKind::Exists(_) => {}
            ExprKind::Length(inner) | ExprKind::Not(inner) | ExprKind::Negate(inner) => inner.set_span(to),
            ExprKind::List(items) | ExprKind::All(items) | ExprKind::Any(items) => {
                for item in items {
                    item.set_span(to);
                }
            }
            ExprKind::Compare { left, right, .. } | ExprKind::Arithmetic { left, right, .. } => {
                left.set_span(to);
                right.set_span(to);
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    Literal(Value),
    /// A list in a one-line condition. Its items may be any expressions. In the mapping form, a list is a `Literal`.
    List(Vec<Expr>),
    Path(Path),
    Exists(Path),
    Length(Box<Expr>),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    All(Vec<Expr>),
    Any(Vec<Expr>),
    Compare {
        op: CompareOp,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Arithmetic {
        op: ArithmeticOp,
        left: Box<Expr>,
        right: Box<Expr>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompareOp {
    Eq,
    Ne,
    Lt,
    Lte,
    Gt,
    Gte,
    In,
    Contains,
    Matches,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArithmeticOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// A dotted path to a fact. INVARIANT: at least one segment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    pub segments: Vec<Segment>,
}

/// A segment of a dotted path: a name, or a number. The number is the index of a list item or the key of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    Name(String),
    Number(u64),
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, segment) in self.segments.iter().enumerate() {
            if i > 0 {
                f.write_str(".")?;
            }
            match segment {
                Segment::Name(n) => f.write_str(n)?,
                Segment::Number(n) => write!(f, "{n}")?,
            }
        }
        Ok(())
    }
}
