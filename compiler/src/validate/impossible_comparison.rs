//! Comparisons in conditions that are false for every value of a fact or an input, because of its type: an integer that
//! is compared with a text, or the length of a number (`language.md` 7).

use indexmap::IndexMap;
use rye_grammar::Span;
use rye_grammar::condition::{CompareOp, Expr, ExprKind, Path, Segment};
use serde_json::Value;

use crate::compose::WithOrigin;
use crate::item::FieldDecl;
use crate::semantics::hook_point::{HookPointRow, PathMeaning};
use crate::semantics::value::Type;

/// Facts that hold an id or are absent: no text is empty.
const ID_FACTS: [&str; 4] = ["thread_id", "parent_thread_id", "previous_thread_id", "call.id"];

/// The types of the facts and inputs that a condition may read.
pub struct ValueTypes<'a> {
    pub point: &'a HookPointRow,
    /// The inputs of the directive; `None` if the condition is not checked for one directive.
    pub inputs: Option<&'a IndexMap<String, WithOrigin<FieldDecl>>>,
}

/// The part of a condition that makes it false, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImpossiblePart {
    pub reason: String,
    pub span: Span,
}

impl ValueTypes<'_> {
    /// Returns the part that makes a condition false for all values; `None` if the types of the values allow the
    /// condition to be true.
    pub fn impossible_part(&self, condition: &Expr) -> Option<ImpossiblePart> {
        match &condition.kind {
            ExprKind::All(parts) => parts.iter().find_map(|part| self.impossible_part(part)),
            ExprKind::Any(parts) => {
                let mut all = parts.iter().map(|part| self.impossible_part(part));
                let first = all.next()??;
                all.all(|part| part.is_some()).then_some(ImpossiblePart { span: condition.span, ..first })
            }
            ExprKind::Compare { op, left, right } => {
                let reason = self.impossible_reason(*op, left, right)?;
                Some(ImpossiblePart { reason, span: condition.span })
            }
            ExprKind::Literal(_)
            | ExprKind::Path(_)
            | ExprKind::List(_)
            | ExprKind::Exists(_)
            | ExprKind::Length(_)
            | ExprKind::Not(_)
            | ExprKind::Negate(_)
            | ExprKind::Arithmetic { .. } => None,
        }
    }

    fn impossible_reason(&self, op: CompareOp, left: &Expr, right: &Expr) -> Option<String> {
        match op {
            CompareOp::Eq => self.unequal(left, right).or_else(|| self.unequal(right, left)),
            CompareOp::Lt | CompareOp::Lte | CompareOp::Gt | CompareOp::Gte => {
                self.unordered(left, right).or_else(|| self.unordered(right, left))
            }
            CompareOp::In => {
                let ExprKind::List(items) = &right.kind else { return None };
                let mut all = items.iter().map(|item| self.unequal(left, item));
                let first = all.next()??;
                all.all(|reason| reason.is_some()).then_some(first)
            }
            CompareOp::Ne | CompareOp::Contains | CompareOp::Matches => None,
        }
    }

    /// Returns the reason why a value is never equal to a literal.
    fn unequal(&self, value: &Expr, literal: &Expr) -> Option<String> {
        let ExprKind::Literal(literal) = &literal.kind else { return None };
        let ExprKind::Path(path) = &value.kind else {
            return self.without_length(value).filter(|_| !literal.is_null());
        };
        let name = path.to_string();
        if let (true, Some(text)) = (self.is_id(path, &name), literal.as_str()) {
            if text.is_empty() {
                return Some(format!("`{name}` is an id or absent, and never empty: write `!exists({name})`"));
            }
            if text.contains('/') {
                return Some(format!("`{name}` is an id of a run, not the id of an item"));
            }
        }
        self.mismatch(path, literal).or_else(|| self.not_a_choice(path, literal))
    }

    /// Returns the reason why a value has no order relative to a literal.
    fn unordered(&self, value: &Expr, literal: &Expr) -> Option<String> {
        let ExprKind::Literal(literal) = &literal.kind else { return None };
        let ExprKind::Path(path) = &value.kind else { return self.without_length(value) };
        self.mismatch(path, literal)
    }

    /// Returns the reason why the `length` of a value does not exist.
    fn without_length(&self, value: &Expr) -> Option<String> {
        let ExprKind::Length(inner) = &value.kind else { return None };
        let ExprKind::Path(path) = &inner.kind else { return None };
        let kind = self.type_of(path)?;
        matches!(kind, Type::Integer | Type::Number | Type::Boolean)
            .then(|| format!("`{path}` is {}, which has no length", with_article(kind)))
    }

    fn mismatch(&self, path: &Path, literal: &Value) -> Option<String> {
        let (kind, other) = (self.type_of(path)?, Type::of(literal));
        let is_number = |kind: Type| matches!(kind, Type::Integer | Type::Number);
        if other == Type::Null || kind == other || (is_number(kind) && is_number(other)) {
            return None;
        }
        let meant = match (literal.as_str(), kind) {
            (Some(word @ ("true" | "false")), Type::Boolean) => format!(": write `{word}`"),
            (Some(text), Type::Integer | Type::Number) if text.parse::<f64>().is_ok() => format!(": write `{text}`"),
            (Some(text), Type::Array) => format!(": write `{path} contains \"{text}\"`"),
            (_, Type::Object) => format!(": compare a field of `{path}`"),
            _ => String::new(),
        };
        Some(format!("`{path}` is {}, but `{literal}` is {}{meant}", with_article(kind), with_article(other)))
    }

    fn not_a_choice(&self, path: &Path, literal: &Value) -> Option<String> {
        let choices = &self.input(path)?.choices;
        if choices.is_empty() || literal.is_null() || choices.contains(literal) {
            return None;
        }
        let is_number = choices.iter().all(Value::is_number);
        let known: Vec<String> =
            choices.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned)).collect();
        // Numbers compare by value: `2` is equal to `2.0`.
        (!is_number).then(|| format!("`{path}` is one of `{}`", known.join("`, `")))
    }

    fn is_id(&self, path: &Path, name: &str) -> bool {
        ID_FACTS.contains(&name) && matches!(self.point.resolve_path(path), PathMeaning::Fact(_))
    }

    /// Returns the type of a fact or an input; `None` if the value may have several types.
    fn type_of(&self, path: &Path) -> Option<Type> {
        match self.point.resolve_path(path) {
            PathMeaning::Input => Some(self.input(path)?.kind.value_type()),
            // The status of a failed request is a number, or absent.
            PathMeaning::Fact(None) | PathMeaning::Open if path.to_string() == "error.status" => Some(Type::Integer),
            PathMeaning::Fact(kind) => kind.filter(|kind| *kind != Type::Null),
            PathMeaning::Open | PathMeaning::Nothing => None,
        }
    }

    fn input(&self, path: &Path) -> Option<&FieldDecl> {
        match path.segments.as_slice() {
            [_, Segment::Name(name)] if self.point.resolve_path(path) == PathMeaning::Input => {
                Some(&self.inputs?.get(name)?.value)
            }
            _ => None,
        }
    }
}

fn with_article(kind: Type) -> String {
    let article = if matches!(kind, Type::Integer | Type::Array | Type::Object) { "an" } else { "a" };
    format!("{article} {kind}")
}
