//! The mapping form of conditions: `{path, op, value}`, `{any: […]}`, `{all: […]}` or `{not: …}`. Also accepts a string
//! that contains a condition on one line (`a == 1`).

use serde_json::Value;

use super::{CompareOp, Expr, ExprKind, MAX_DEPTH, error, parse_inline, parse_path};
use crate::Parsed;
use crate::data::{Entry, Kind, Node, separated_number};
use crate::error::SyntaxError;
use crate::span::Span;
use crate::text::{closest_word, shorten};

/// The values of `op` in the mapping form.
pub const OPERATORS: [&str; 11] =
    ["eq", "ne", "gt", "gte", "lt", "lte", "in", "contains", "regex", "matches", "exists"];

/// The keys of a condition in mapping form.
const KEYS: [&str; 6] = ["path", "op", "value", "any", "all", "not"];

/// Synonyms from other languages for some of the keys above. Each pair holds the synonyms, separated by spaces, and the
/// key to suggest.
const KEY_SYNONYMS: &[(&str, &str)] = &[
    ("and every && allof", "all"),
    ("or some || anyof", "any"),
    ("operator comparison", "op"),
    ("fact field key", "path"),
];

/// Synonyms from other languages for the operators. Each pair holds the synonyms, separated by spaces, and the operator
/// to suggest.
const OPERATOR_SYNONYMS: &[(&str, &str)] = &[
    ("= == === equal equals is", "eq"),
    ("!= !== <> neq not_eq not_equal not_equals", "ne"),
    ("> greater greater_than", "gt"),
    (">= => ge greater_or_equal", "gte"),
    ("< less less_than", "lt"),
    ("<= =< le less_or_equal", "lte"),
    ("one_of any_of", "in"),
    ("contain includes has", "contains"),
    ("regexp =~", "regex"),
    ("present defined", "exists"),
];

/// Returns the known word that the author of an unknown word probably meant; `None` if there is none. The unknown word
/// is a synonym of the known word, the known word in another case, or a misspelling of it. A short word never counts as
/// a misspelling: one typing error turns a short word into another short word (`neq` and `eq`), and a wrong suggestion
/// would make the condition true for the wrong calls.
fn meant_word<'w>(word: &str, words: &[&'w str], synonyms: &[(&str, &'w str)]) -> Option<&'w str> {
    const MIN_LENGTH: usize = 4;
    let lower = word.to_ascii_lowercase();
    let synonym = synonyms.iter().find(|(others, _)| others.split(' ').any(|other| other == lower));
    let same = || words.iter().copied().find(|known| *known == lower);
    let long: Vec<&str> = words.iter().copied().filter(|known| known.len() >= MIN_LENGTH).collect();
    synonym
        .map(|(_, meant)| *meant)
        .or_else(same)
        .or_else(|| closest_word(&lower, &long).filter(|_| lower.len() >= MIN_LENGTH))
}

/// Reads a condition from data: a mapping, or a string in the one-line form (`language.md`, Conditions). The tree is
/// `None` for `null`, `{}` (always true) and an invalid condition, which has errors.
pub fn from_data(node: &Node) -> Parsed<Option<Expr>> {
    let mut reader = ConditionReader { errors: Vec::new() };
    let tree = match &node.kind {
        Kind::Null => None,
        Kind::Map(entries) if entries.is_empty() => None,
        Kind::Bool(_) | Kind::Number(_) | Kind::String(_) | Kind::List(_) | Kind::Map(_) => reader.condition(node, 1),
    };
    let tree = if reader.errors.is_empty() { tree } else { None };
    Parsed { tree, errors: reader.errors }
}

struct ConditionReader {
    errors: Vec<SyntaxError>,
}

impl ConditionReader {
    fn syntax_error(&mut self, span: Span, message: impl Into<String>, label: &str, help: Option<&str>) {
        self.errors.push(error::condition_error(span, message.into(), label, help));
    }

    fn condition(&mut self, node: &Node, depth: usize) -> Option<Expr> {
        if depth > MAX_DEPTH {
            self.errors.push(error::too_deep(node.span));
            return None;
        }
        match &node.kind {
            Kind::String(text) => match parse_inline(node.span.source, text, node.content_start()) {
                Ok(mut expr) => {
                    if !node.is_verbatim() {
                        expr.set_span(node.span);
                    }
                    Some(expr)
                }
                Err(error) => {
                    self.errors.push(if node.is_verbatim() { error } else { error.within(node.span) });
                    None
                }
            },
            Kind::Bool(value) => Some(Expr { kind: ExprKind::Literal(Value::Bool(*value)), span: node.span }),
            Kind::Map(entries) => self.mapping(node, entries, depth),
            Kind::Null | Kind::Number(_) | Kind::List(_) => {
                self.syntax_error(
                    node.span,
                    format!("a condition must be a mapping or a string, not {}", node.describe()),
                    "not a condition",
                    Some("write `{path: …, op: …, value: …}` or one line such as `cost.turns >= 3`"),
                );
                None
            }
        }
    }

    fn mapping(&mut self, node: &Node, entries: &[Entry], depth: usize) -> Option<Expr> {
        let has = |key: &str| entries.iter().find(|e| e.key.node == key);
        let forms: Vec<&Entry> = ["any", "all", "not"].iter().filter_map(|key| has(key)).collect();
        match forms.as_slice() {
            [] if entries.is_empty() => Some(Expr { kind: ExprKind::All(Vec::new()), span: node.span }),
            [] => self.comparison(node, entries),
            [form] => {
                // A `path` in the same mapping as `any`, `all` or `not` starts a second condition. The keys `op` and
                // `value` belong to that condition, so only `path` is reported.
                let path = has("path").is_some();
                let belongs = |key: &str| path && matches!(key, "op" | "value");
                for extra in entries.iter().filter(|e| e.key.node != form.key.node && !belongs(&e.key.node)) {
                    self.syntax_error(
                        extra.key.span,
                        format!("`{}` and `{}` cannot be combined", shorten(&extra.key.node), form.key.node),
                        "this mapping already contains a condition",
                        Some("put both conditions into a list: `all: [ {…}, {…} ]`"),
                    );
                }
                self.combination(node, form, depth)
            }
            [first, second, ..] => {
                self.syntax_error(
                    second.key.span,
                    format!("`{}` and `{}` cannot be combined", second.key.node, first.key.node),
                    "unclear which key contains the other",
                    Some("nest one of the two keys inside the other: `all: [ {any: […]}, {not: …} ]`"),
                );
                None
            }
        }
    }

    fn combination(&mut self, node: &Node, form: &Entry, depth: usize) -> Option<Expr> {
        if form.key.node == "not" {
            let inner = self.condition(&form.value, depth + 1)?;
            return Some(Expr { kind: ExprKind::Not(Box::new(inner)), span: node.span });
        }
        let Kind::List(items) = &form.value.kind else {
            self.syntax_error(
                form.value.span,
                format!("`{}` takes a list of conditions, not {}", form.key.node, form.value.describe()),
                "expected a list",
                Some("write `[ {path: …}, {path: …} ]`"),
            );
            return None;
        };
        let before = self.errors.len();
        let read: Vec<Expr> = items.iter().filter_map(|item| self.condition(item, depth + 1)).collect();
        if self.errors.len() > before {
            return None;
        }
        let kind = if form.key.node == "all" { ExprKind::All(read) } else { ExprKind::Any(read) };
        Some(Expr { kind, span: node.span })
    }

    fn comparison(&mut self, node: &Node, entries: &[Entry]) -> Option<Expr> {
        let before = self.errors.len();
        for entry in entries.iter().filter(|e| !matches!(e.key.node.as_str(), "path" | "op" | "value")) {
            let help = meant_word(&entry.key.node, &KEYS, KEY_SYNONYMS).map_or_else(
                || {
                    separated_number(entries, entry).map_or_else(
                        || "the keys of a condition are `path`, `op`, `value`, or `any`, `all`, `not`".to_owned(),
                        |number| format!("a number has no separators: write `{number}`"),
                    )
                },
                |word| format!("did you mean `{word}`?"),
            );
            self.syntax_error(
                entry.key.span,
                format!("unknown key `{}` in a condition", shorten(&entry.key.node)),
                "unknown key",
                Some(&help),
            );
        }
        let path = match node.get("path") {
            None => {
                if self.errors.len() == before {
                    self.syntax_error(node.span, "a condition needs a `path`", "no fact to compare", None);
                }
                None
            }
            Some(path) => self.path(path),
        };
        let op = node.get("op").map_or(Some("eq"), |op| self.op(op));
        let value = node.get("value");
        let (Some((path, path_span)), Some(op)) = (path, op) else { return None };
        if op == "exists" {
            let exists = Expr { kind: ExprKind::Exists(path), span: node.span };
            return match value.map(|v| &v.kind) {
                None | Some(Kind::Bool(true)) => Some(exists),
                Some(Kind::Bool(false)) => Some(Expr { kind: ExprKind::Not(Box::new(exists)), span: node.span }),
                Some(Kind::Null | Kind::Number(_) | Kind::String(_) | Kind::List(_) | Kind::Map(_)) => {
                    let span = value.map_or(node.span, |v| v.span);
                    self.syntax_error(
                        span,
                        "the `value` of `exists` must be `true` or `false`",
                        "neither of the two",
                        None,
                    );
                    None
                }
            };
        }
        let Some(value) = value else {
            self.syntax_error(
                node.span,
                format!("`{op}` needs a `value`"),
                "no value to compare with",
                Some("add `value:`; to test for existence, use `op: exists`"),
            );
            return None;
        };
        let op = match op {
            "eq" => CompareOp::Eq,
            "ne" => CompareOp::Ne,
            "gt" => CompareOp::Gt,
            "gte" => CompareOp::Gte,
            "lt" => CompareOp::Lt,
            "lte" => CompareOp::Lte,
            "in" => CompareOp::In,
            "contains" => CompareOp::Contains,
            _ => CompareOp::Matches,
        };
        if op == CompareOp::Matches && value.as_str().is_none() {
            self.syntax_error(
                value.span,
                format!("a pattern must be a string, not {}", value.describe()),
                "not a string",
                Some("put the pattern in quotes"),
            );
            return None;
        }
        if self.errors.len() > before {
            return None;
        }
        let left = Box::new(Expr { kind: ExprKind::Path(path), span: path_span });
        let right = Box::new(Expr { kind: ExprKind::Literal(value.to_value()), span: value.span });
        Some(Expr { kind: ExprKind::Compare { op, left, right }, span: node.span })
    }

    fn path(&mut self, node: &Node) -> Option<(super::Path, Span)> {
        let Some(text) = node.as_str() else {
            self.syntax_error(
                node.span,
                format!("a path must be a string, not {}", node.describe()),
                "not a path",
                None,
            );
            return None;
        };
        match parse_path(node.span.source, text, node.content_start()) {
            Ok(path) => Some((path, node.span)),
            Err(error) => {
                self.errors.push(if node.is_verbatim() { error } else { error.within(node.span) });
                None
            }
        }
    }

    fn op<'n>(&mut self, node: &'n Node) -> Option<&'n str> {
        match node.as_str() {
            Some(op) if OPERATORS.contains(&op) => Some(op),
            Some(op) => {
                let help = meant_word(op, &OPERATORS, OPERATOR_SYNONYMS).map_or_else(
                    || format!("the operators are `{}`", OPERATORS.join("`, `")),
                    |o| format!("did you mean `{o}`?"),
                );
                self.syntax_error(
                    node.span,
                    format!("unknown operator `{}` in a condition", shorten(op)),
                    "unknown operator",
                    Some(&help),
                );
                None
            }
            None => {
                self.syntax_error(
                    node.span,
                    format!("an operator must be a word, not {}", node.describe()),
                    "not a word",
                    None,
                );
                None
            }
        }
    }
}
