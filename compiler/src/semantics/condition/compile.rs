//! Compiles a condition's syntax tree to a form whose evaluation cannot fail. Reports every error that does not depend
//! on the values of facts.

use rye_grammar::condition::{CompareOp, Expr, ExprKind, Path};
use serde_json::Value;

use super::pattern::{Pattern, PatternBudget, PatternError};
use super::{Comparison, CompiledNode, ConditionError};
use crate::semantics::value::Type;

pub(super) fn compile(
    expr: &Expr,
    types: &dyn Fn(&Path) -> Option<Type>,
    patterns: &mut PatternBudget,
) -> Result<CompiledNode, Vec<ConditionError>> {
    let mut compiler = Compiler { types, patterns, faults: Vec::new() };
    let root = compiler.boolean(expr);
    if compiler.faults.is_empty() { Ok(root) } else { Err(compiler.faults) }
}

/// Returns the type of an expression if it is known before the evaluation: for literals, lists, and paths for which
/// `types` returns a type. `None` for any other expression.
pub(crate) fn known_type(expr: &Expr, types: &dyn Fn(&Path) -> Option<Type>) -> Option<Type> {
    match &expr.kind {
        ExprKind::Literal(value) => Some(Type::of(value)),
        ExprKind::List(_) => Some(Type::Array),
        ExprKind::Path(path) => types(path),
        ExprKind::Exists(_)
        | ExprKind::Length(_)
        | ExprKind::Not(_)
        | ExprKind::Negate(_)
        | ExprKind::All(_)
        | ExprKind::Any(_)
        | ExprKind::Compare { .. }
        | ExprKind::Arithmetic { .. } => None,
    }
}

/// Returns a literal string that is probably meant as a number, and the number: `1_000` means 1000. YAML reads a number
/// with a leading zero, a separator or a currency sign as a string.
fn number_in_text(expr: &Expr) -> Option<(&str, String)> {
    let ExprKind::Literal(Value::String(text)) = &expr.kind else { return None };
    let digits: String = text.trim().trim_start_matches('$').chars().filter(|c| !matches!(c, '_' | ',')).collect();
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && digits.parse::<f64>().is_ok();
    let trimmed = digits.trim_start_matches('0');
    let number =
        if trimmed.is_empty() || trimmed.starts_with('.') { format!("0{trimmed}") } else { trimmed.to_owned() };
    is_number.then_some((text, number))
}

struct Compiler<'a> {
    types: &'a dyn Fn(&Path) -> Option<Type>,
    patterns: &'a mut PatternBudget,
    faults: Vec<ConditionError>,
}

impl Compiler<'_> {
    /// Compiles an expression whose value must be a boolean. Reports an expression that always has another type.
    fn boolean(&mut self, expr: &Expr) -> CompiledNode {
        if let Some(known) = known_type(expr, self.types)
            && known != Type::Boolean
        {
            let message = if let ExprKind::Path(path) = &expr.kind {
                format!("`{path}` is {} and can never be true", with_article(known))
            } else {
                format!("{} can never be true", with_article(known))
            };
            self.error(
                expr,
                message,
                Some("a condition must be true or false: compare this value with another value".into()),
            );
        }
        self.value(expr)
    }

    fn value(&mut self, expr: &Expr) -> CompiledNode {
        match &expr.kind {
            ExprKind::Literal(value) => CompiledNode::Literal(value.clone()),
            ExprKind::List(items) => fold_list(items.iter().map(|item| self.value(item)).collect()),
            ExprKind::Path(path) => CompiledNode::Path(path.clone()),
            ExprKind::Exists(path) => CompiledNode::Exists(path.clone()),
            ExprKind::Length(inner) => CompiledNode::Length(Box::new(self.value(inner))),
            ExprKind::Not(inner) => CompiledNode::Not(Box::new(self.boolean(inner))),
            ExprKind::Negate(inner) => CompiledNode::Negate(Box::new(self.value(inner))),
            ExprKind::All(items) => CompiledNode::All(items.iter().map(|item| self.boolean(item)).collect()),
            ExprKind::Any(items) => CompiledNode::Any(items.iter().map(|item| self.boolean(item)).collect()),
            ExprKind::Compare { op, left, right } => self.compare(expr, *op, left, right),
            ExprKind::Arithmetic { op, left, right } => CompiledNode::Arithmetic {
                op: *op,
                left: Box::new(self.value(left)),
                right: Box::new(self.value(right)),
            },
        }
    }

    fn compare(&mut self, whole: &Expr, op: CompareOp, left: &Expr, right: &Expr) -> CompiledNode {
        let op = match op {
            CompareOp::Eq => Comparison::Eq,
            CompareOp::Ne => Comparison::Ne,
            CompareOp::In => Comparison::In,
            CompareOp::Contains => {
                self.check_searchable(left, "contains nothing", "a string, a list or an object can contain a value");
                Comparison::Contains
            }
            CompareOp::Lt => self.check_order(whole, Comparison::Lt, left, right),
            CompareOp::Lte => self.check_order(whole, Comparison::Lte, left, right),
            CompareOp::Gt => self.check_order(whole, Comparison::Gt, left, right),
            CompareOp::Gte => self.check_order(whole, Comparison::Gte, left, right),
            CompareOp::Matches => return self.matches(left, right),
        };
        CompiledNode::Compare { op, left: Box::new(self.value(left)), right: Box::new(self.value(right)) }
    }

    /// Reports a comparison by order (`<`, `>=`) of two values whose types are known and have no order. Returns `op` in
    /// any case.
    fn check_order(&mut self, whole: &Expr, op: Comparison, left: &Expr, right: &Expr) -> Comparison {
        if let (Some(a), Some(b)) = (known_type(left, self.types), known_type(right, self.types)) {
            let comparable = (a.is_numeric() && b.is_numeric()) || (a == Type::String && b == Type::String);
            if !comparable {
                let number = [left, right].into_iter().find_map(number_in_text);
                let help = number.map_or_else(
                    || "compare two numbers, or two strings".to_owned(),
                    |(text, number)| format!("`{text}` is a string here: write the number as `{number}`"),
                );
                let message = format!("{} and {} cannot be compared by order", with_article(a), with_article(b));
                self.error(whole, message, Some(help));
            }
        }
        op
    }

    /// Reports a path whose declared type is a number or a boolean, because numbers and booleans contain no text or
    /// elements to search.
    fn check_searchable(&mut self, left: &Expr, fault: &str, help: &str) {
        if let ExprKind::Path(path) = &left.kind
            && let Some(known) = (self.types)(path)
            && (known.is_numeric() || known == Type::Boolean)
        {
            self.error(left, format!("`{path}` is {} and {fault}", with_article(known)), Some(help.into()));
        }
    }

    fn matches(&mut self, left: &Expr, right: &Expr) -> CompiledNode {
        self.check_searchable(left, "matches no pattern", "`matches` compares a pattern with a string");
        let left = Box::new(self.value(left));
        let ExprKind::Literal(Value::String(pattern)) = &right.kind else {
            self.error(
                right,
                "the pattern of `matches` has to be a literal string".into(),
                Some("write the pattern between quotes".into()),
            );
            return CompiledNode::Literal(Value::Bool(false));
        };
        match Pattern::new(pattern, self.patterns) {
            Ok(pattern) => CompiledNode::Matches { left, pattern },
            Err(PatternError::BudgetExceeded) => {
                self.error(
                    right,
                    "the patterns of this file are too large in total".into(),
                    Some("use fewer patterns, or shorter repetitions such as `{1,9}`".into()),
                );
                CompiledNode::Literal(Value::Bool(false))
            }
            Err(PatternError::Invalid(error)) => {
                self.error(right, bad_pattern(pattern, &error), Some(pattern_help(pattern)));
                CompiledNode::Literal(Value::Bool(false))
            }
        }
    }

    fn error(&mut self, at: &Expr, message: String, help: Option<String>) {
        self.faults.push(ConditionError { span: at.span, message, help });
    }
}

/// Folds a list to a literal if all elements of the list are literals; otherwise returns the list unchanged.
fn fold_list(items: Vec<CompiledNode>) -> CompiledNode {
    if items.iter().all(|item| matches!(item, CompiledNode::Literal(_))) {
        let values =
            items.into_iter().filter_map(|item| if let CompiledNode::Literal(v) = item { Some(v) } else { None });
        return CompiledNode::Literal(Value::Array(values.collect()));
    }
    CompiledNode::List(items)
}

fn with_article(known: Type) -> String {
    match known {
        Type::Null => "`null`".into(),
        Type::Integer => "an integer".into(),
        Type::Array => "a list".into(),
        Type::Object => "an object".into(),
        Type::String | Type::Number | Type::Boolean => format!("a {known}"),
    }
}

fn bad_pattern(pattern: &str, error: &regex::Error) -> String {
    let shown: String = pattern.chars().take(60).collect();
    let text = error.to_string();
    let why = if matches!(error, regex::Error::CompiledTooBig(_)) {
        "it is too large"
    } else {
        text.lines().last().map_or("it cannot be read", |line| line.trim_start_matches("error: "))
    };
    format!("`{shown}` is not a valid pattern: {why}")
}

fn pattern_help(pattern: &str) -> String {
    if ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|group| pattern.contains(group)) {
        return "look-around is not supported; combine `matches` conditions with `all` and `not`".into();
    }
    let back_reference = pattern.as_bytes().windows(2).any(|pair| matches!(pair, [b'\\', b'1'..=b'9']));
    if back_reference {
        return "remove the back-reference: it is not supported, because patterns match in linear time".into();
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '.');
    if let Some(end) = pattern.strip_prefix('*').filter(|end| !end.is_empty() && end.chars().all(is_plain)) {
        let meant = end.replace('.', "[.]");
        return format!("a pattern is a regular expression: for texts that end in `{end}`, write `\"{meant}$\"`");
    }
    "escape literal characters with a backslash".into()
}
