//! The one-line form of conditions: pest finds the tokens, a Pratt parser builds the tree. This module checks only the
//! syntax; the compiler evaluates conditions.

use std::num::NonZeroUsize;
use std::sync::LazyLock;

use pest::Parser;
use pest::error::InputLocation;
use pest::iterators::{Pair, Pairs};
use pest::pratt_parser::{Assoc, Op, PrattParser};
use serde_json::Value;

use super::error;
use super::{ArithmeticOp, CompareOp, Expr, ExprKind, MAX_DEPTH, Path, Segment};
use crate::error::SyntaxError;
use crate::span::{SourceId, Span};
use crate::text::{brackets, control_character};

/// Maximum length of a condition in bytes.
const MAX_BYTES: usize = 64 * 1024;
/// Maximum number of parser calls per text. The longest condition needs far fewer.
const MAX_PARSER_CALLS: usize = 20_000_000;

#[derive(pest_derive::Parser)]
#[grammar = "../reference.pest"]
#[grammar = "../condition.pest"]
struct ConditionParser;

static PRATT_PARSER: LazyLock<PrattParser<Rule>> = LazyLock::new(|| {
    pest::set_call_limit(NonZeroUsize::new(MAX_PARSER_CALLS));
    let left = |rule| Op::infix(rule, Assoc::Left);
    let comparisons = [Rule::ne, Rule::lt, Rule::lte, Rule::gt, Rule::gte, Rule::within, Rule::contains, Rule::matches];
    PrattParser::new()
        .op(left(Rule::or))
        .op(left(Rule::and))
        .op(Op::prefix(Rule::not))
        .op(comparisons.into_iter().fold(left(Rule::eq), |ops, rule| ops | left(rule)))
        .op(left(Rule::add) | left(Rule::subtract))
        .op(left(Rule::multiply) | left(Rule::divide) | left(Rule::remainder))
        .op(Op::prefix(Rule::negate))
});

/// A text with its offset in the source.
#[derive(Clone, Copy)]
pub(super) struct ConditionText<'t> {
    pub source: SourceId,
    pub text: &'t str,
    pub base: usize,
}

impl ConditionText<'_> {
    pub(super) fn span(self, start: usize, end: usize) -> Span {
        Span::new(self.source, self.base + start, self.base + end)
    }

    fn of(self, pair: &Pair<'_, Rule>) -> Span {
        self.span(pair.as_span().start(), pair.as_span().end())
    }
}

/// Parses a one-line condition (`language.md`, Conditions). `base` is the byte offset of `text` in its source.
///
/// # Errors
/// Returns the first error, which has the kind [`crate::SyntaxKind::Condition`].
pub fn parse_inline(source: SourceId, text: &str, base: usize) -> Result<Expr, SyntaxError> {
    let place = ConditionText { source, text, base };
    if text.trim().is_empty() {
        return Err(error::empty_condition(place));
    }
    if text.len() > MAX_BYTES {
        return Err(error::too_long(place, MAX_BYTES));
    }
    if let Some((range, c)) = control_character(text) {
        return Err(error::control_character_error(place, range, c));
    }
    if let Some(at) = find_too_deep(text) {
        return Err(error::too_deep(place.span(at, at + 1)));
    }
    let table = &*PRATT_PARSER;
    let mut pairs = ConditionParser::parse(Rule::condition, text).map_err(|error| {
        let at = match error.location {
            InputLocation::Pos(at) | InputLocation::Span((at, _)) => at,
        };
        error::unexpected_token(place, at)
    })?;
    let Some(expression) = pairs.next() else { return Err(error::empty_condition(place)) };
    ExprBuilder { place, table }.expression(expression.into_inner()).map(|built| built.expr)
}

/// Returns the offset of the first bracket nested deeper than [`MAX_DEPTH`]; `None` if there is none.
fn find_too_deep(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, bracket) in brackets(text) {
        if matches!(bracket, '(' | '[' | '{') {
            depth += 1;
        } else {
            depth = depth.saturating_sub(1);
        }
        if depth > MAX_DEPTH {
            return Some(at);
        }
    }
    None
}

/// An expression under construction. The field `shape` is the role of the expression: some operators accept only
/// operands of certain roles.
struct BuiltExpr {
    expr: Expr,
    depth: usize,
    shape: ExprRole,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ExprRole {
    /// An expression that may be an operand: a literal, path, call, parenthesis or arithmetic expression.
    Value,
    Not,
    Comparison,
    And,
    Or,
}

struct ExprBuilder<'t> {
    place: ConditionText<'t>,
    table: &'t PrattParser<Rule>,
}

impl ExprBuilder<'_> {
    fn expression(&self, pairs: Pairs<'_, Rule>) -> Result<BuiltExpr, SyntaxError> {
        // The Pratt parser recurses once per prefix operator, so runs of prefix operators are limited before it starts.
        let mut run = 0;
        for pair in pairs.clone() {
            run = if matches!(pair.as_rule(), Rule::not | Rule::negate) { run + 1 } else { 0 };
            if run > MAX_DEPTH {
                return Err(error::too_deep(self.place.of(&pair)));
            }
        }
        self.table
            .map_primary(|pair| self.operand(pair))
            .map_prefix(|op, right| self.prefix(&op, right?))
            .map_infix(|left, op, right| self.infix(left?, &op, right?))
            .parse(pairs)
    }

    fn leaf(&self, pair: &Pair<'_, Rule>, kind: ExprKind) -> BuiltExpr {
        BuiltExpr { expr: Expr { kind, span: self.place.of(pair) }, depth: 1, shape: ExprRole::Value }
    }

    fn operand(&self, pair: Pair<'_, Rule>) -> Result<BuiltExpr, SyntaxError> {
        let text = pair.as_str();
        let span = self.place.of(&pair);
        #[expect(clippy::wildcard_enum_match_arm, reason = "the grammar allows no other rule as an operand")]
        match pair.as_rule() {
            Rule::string => match serde_json::from_str::<String>(text) {
                Ok(value) => Ok(self.leaf(&pair, ExprKind::Literal(Value::String(value)))),
                Err(_) => Err(error::bad_string(span)),
            },
            Rule::raw_string => {
                let inside = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
                Ok(self.leaf(&pair, ExprKind::Literal(Value::String(inside.to_owned()))))
            }
            Rule::number => parse_number(text)
                .map(|value| self.leaf(&pair, ExprKind::Literal(value)))
                .ok_or_else(|| error::number_out_of_range(span, text)),
            Rule::constant => {
                let value = match text {
                    "true" => Value::Bool(true),
                    "false" => Value::Bool(false),
                    _ => Value::Null,
                };
                Ok(self.leaf(&pair, ExprKind::Literal(value)))
            }
            Rule::path => Ok(self.leaf(&pair, ExprKind::Path(self.path(&pair)?))),
            Rule::exists => {
                let Some(path) = pair.clone().into_inner().next() else {
                    return Err(error::empty_condition(self.place));
                };
                Ok(self.leaf(&pair, ExprKind::Exists(self.path(&path)?)))
            }
            Rule::length => {
                let inner = self.inner(pair)?;
                check_depth(inner.depth + 1, ExprRole::Value, ExprKind::Length(Box::new(inner.expr)), span)
            }
            Rule::group => {
                let inner = self.inner(pair)?;
                Ok(BuiltExpr { shape: ExprRole::Value, ..inner })
            }
            Rule::list => {
                let mut items = Vec::new();
                let mut depth = 0;
                for item in pair.into_inner() {
                    let item = self.expression(item.into_inner())?;
                    depth = depth.max(item.depth);
                    items.push(item.expr);
                }
                check_depth(depth + 1, ExprRole::Value, ExprKind::List(items), span)
            }
            _ => Err(error::unexpected_token(self.place, pair.as_span().start())),
        }
    }

    /// Builds the expression inside of a group or a call.
    fn inner(&self, pair: Pair<'_, Rule>) -> Result<BuiltExpr, SyntaxError> {
        match pair.into_inner().next() {
            Some(expression) => self.expression(expression.into_inner()),
            None => Err(error::empty_condition(self.place)),
        }
    }

    fn path(&self, pair: &Pair<'_, Rule>) -> Result<Path, SyntaxError> {
        let mut segments = Vec::new();
        for part in pair.clone().into_inner() {
            let text = part.as_str();
            if part.as_rule() != Rule::path_index {
                segments.push(Segment::Name(text.to_owned()));
                continue;
            }
            match text.parse() {
                Ok(number) => segments.push(Segment::Number(number)),
                Err(_) => return Err(error::number_out_of_range(self.place.of(&part), text)),
            }
        }
        Ok(Path { segments })
    }

    fn prefix(&self, op: &Pair<'_, Rule>, right: BuiltExpr) -> Result<BuiltExpr, SyntaxError> {
        let span = self.place.of(op).join(right.expr.span);
        if op.as_rule() == Rule::not {
            return check_depth(right.depth + 1, ExprRole::Not, ExprKind::Not(Box::new(right.expr)), span);
        }
        reject_not_operand(&right)?;
        if let ExprKind::Literal(Value::Number(number)) = &right.expr.kind {
            return match negate_number(number) {
                Some(value) => Ok(BuiltExpr { expr: Expr { kind: ExprKind::Literal(value), span }, ..right }),
                None => Err(error::number_out_of_range(span, &format!("-{number}"))),
            };
        }
        check_depth(right.depth + 1, ExprRole::Value, ExprKind::Negate(Box::new(right.expr)), span)
    }

    fn infix(&self, left: BuiltExpr, op: &Pair<'_, Rule>, right: BuiltExpr) -> Result<BuiltExpr, SyntaxError> {
        let span = left.expr.span.join(right.expr.span);
        let depth = left.depth.max(right.depth) + 1;
        #[expect(clippy::wildcard_enum_match_arm, reason = "the grammar allows no other rule as an operator")]
        let compare = match op.as_rule() {
            Rule::or => return flatten_chain(left, right, ExprRole::Or, span),
            Rule::and => return flatten_chain(left, right, ExprRole::And, span),
            Rule::eq => CompareOp::Eq,
            Rule::ne => CompareOp::Ne,
            Rule::lt => CompareOp::Lt,
            Rule::lte => CompareOp::Lte,
            Rule::gt => CompareOp::Gt,
            Rule::gte => CompareOp::Gte,
            Rule::within => CompareOp::In,
            Rule::contains => CompareOp::Contains,
            Rule::matches => CompareOp::Matches,
            other => {
                reject_not_operand(&right)?;
                let op = match other {
                    Rule::add => ArithmeticOp::Add,
                    Rule::subtract => ArithmeticOp::Subtract,
                    Rule::multiply => ArithmeticOp::Multiply,
                    Rule::divide => ArithmeticOp::Divide,
                    _ => ArithmeticOp::Remainder,
                };
                let kind = ExprKind::Arithmetic { op, left: Box::new(left.expr), right: Box::new(right.expr) };
                return check_depth(depth, ExprRole::Value, kind, span);
            }
        };
        reject_not_operand(&right)?;
        if left.shape == ExprRole::Comparison || right.shape == ExprRole::Comparison {
            return Err(error::chained_comparison(self.place.of(op), op.as_str()));
        }
        if compare == CompareOp::Matches && !matches!(right.expr.kind, ExprKind::Literal(Value::String(_))) {
            return Err(error::pattern_not_literal(right.expr.span));
        }
        let kind = ExprKind::Compare { op: compare, left: Box::new(left.expr), right: Box::new(right.expr) };
        check_depth(depth, ExprRole::Comparison, kind, span)
    }
}

/// Joins two operands with `&&` (if `shape` is `And`) or `||` (if `shape` is `Or`). A chain becomes one list: `a || b
/// || c` is a list of three.
fn flatten_chain(left: BuiltExpr, right: BuiltExpr, shape: ExprRole, span: Span) -> Result<BuiltExpr, SyntaxError> {
    let joins = left.shape == shape;
    let depth = if joins { left.depth.max(right.depth + 1) } else { left.depth.max(right.depth) + 1 };
    let mut items = match left.expr {
        Expr { kind: ExprKind::All(items) | ExprKind::Any(items), .. } if joins => items,
        other => vec![other],
    };
    items.push(right.expr);
    let kind = if shape == ExprRole::And { ExprKind::All(items) } else { ExprKind::Any(items) };
    check_depth(depth, shape, kind, span)
}

/// Rejects `a == !b`: `!` binds looser than `==`, so a negation cannot be an operand of `==`.
fn reject_not_operand(right: &BuiltExpr) -> Result<(), SyntaxError> {
    if right.shape == ExprRole::Not { Err(error::not_as_operand(right.expr.span)) } else { Ok(()) }
}

fn check_depth(depth: usize, shape: ExprRole, kind: ExprKind, span: Span) -> Result<BuiltExpr, SyntaxError> {
    if depth > MAX_DEPTH {
        return Err(error::too_deep(span));
    }
    Ok(BuiltExpr { expr: Expr { kind, span }, depth, shape })
}

/// Parses a number literal; `None` for an integer above the maximum of `u64` and for a float that is not finite.
fn parse_number(text: &str) -> Option<Value> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse::<u64>().ok().map(Value::from);
    }
    text.parse::<f64>().ok().and_then(serde_json::Number::from_f64).map(Value::Number)
}

fn negate_number(number: &serde_json::Number) -> Option<Value> {
    if let Some(n) = number.as_u64() {
        return i64::try_from(-i128::from(n)).ok().map(Value::from);
    }
    if let Some(n) = number.as_i64() {
        return u64::try_from(-i128::from(n)).ok().map(Value::from);
    }
    number.as_f64().and_then(|f| serde_json::Number::from_f64(-f)).map(Value::Number)
}
