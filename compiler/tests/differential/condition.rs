//! Conditions of the differential tests: a tree, its two spellings, an evaluator and a reader of the one-line form.
//! Nothing here comes from the compiler, so that an error of one side shows as a difference.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// A condition.
#[derive(Debug, Clone, PartialEq)]
pub enum OracleCondition {
    All(Vec<OracleCondition>),
    Any(Vec<OracleCondition>),
    Not(Box<OracleCondition>),
    /// A path in a boolean position.
    Is(String),
    Exists(String),
    Compare(&'static str, OracleTerm, OracleTerm),
    /// A pattern that is a plain text, with an optional anchor.
    Matches(String, OraclePattern),
}

/// A term of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum OracleTerm {
    Literal(Value),
    Path(String),
    Length(String),
    /// A path plus a number.
    Sum(String, i64),
}

/// A text with anchors.
#[derive(Debug, Clone, PartialEq)]
pub struct OraclePattern {
    pub from_start: bool,
    pub text: String,
    pub to_end: bool,
}

/// The value of a fact.
#[derive(Debug, Clone, PartialEq)]
pub enum Reading {
    Value(Value),
    Absent,
    Unknown,
}

/// A result of three-valued logic; `None` is unknown.
pub type Truth = Option<bool>;

/// Facts by path, for lookups of a name or of `root.name`.
pub trait OracleFacts {
    fn read(&self, path: &str) -> Reading;
}

impl OracleCondition {
    pub fn evaluate(&self, facts: &dyn OracleFacts) -> Truth {
        match self {
            Self::All(all) => fold(all.iter().map(|one| one.evaluate(facts)), false),
            Self::Any(any) => fold(any.iter().map(|one| one.evaluate(facts)), true),
            Self::Not(one) => one.evaluate(facts).map(|truth| !truth),
            Self::Is(path) => match facts.read(path) {
                Reading::Unknown => None,
                Reading::Value(value) => Some(value == Value::Bool(true)),
                Reading::Absent => Some(false),
            },
            Self::Exists(path) => match facts.read(path) {
                Reading::Unknown => None,
                Reading::Value(_) => Some(true),
                Reading::Absent => Some(false),
            },
            Self::Compare(op, left, right) => {
                let (left, right) = (left.read(facts), right.read(facts));
                if left == Reading::Unknown || right == Reading::Unknown {
                    return None;
                }
                Some(compare(op, &left, &right))
            }
            Self::Matches(path, pattern) => match facts.read(path) {
                Reading::Unknown => None,
                Reading::Value(Value::String(text)) => Some(pattern.is_in(&text)),
                Reading::Value(_) | Reading::Absent => Some(false),
            },
        }
    }

    /// Calls `visit` with the path of every comparison and pattern, and a value of the path at which the result can
    /// change.
    pub fn visit_literals(&self, visit: &mut dyn FnMut(&str, &Value)) {
        match self {
            Self::All(all) | Self::Any(all) => all.iter().for_each(|one| one.visit_literals(visit)),
            Self::Not(one) => one.visit_literals(visit),
            Self::Is(path) => visit(path, &Value::Bool(true)),
            Self::Exists(_) => {}
            Self::Compare(_, left, right) => {
                for (one, other) in [(left, right), (right, left)] {
                    match (one, other) {
                        (OracleTerm::Path(path), OracleTerm::Literal(value)) => visit(path, value),
                        (OracleTerm::Sum(path, more), OracleTerm::Literal(value)) => {
                            if let Some(value) = value.as_i64() {
                                visit(path, &json!(value - more));
                            }
                        }
                        (OracleTerm::Length(path), OracleTerm::Literal(value)) => {
                            let count = usize::try_from(value.as_i64().unwrap_or(0)).unwrap_or(0);
                            visit(path, &Value::String("n".repeat(count)));
                            visit(path, &Value::Array(vec![json!("n"); count]));
                        }
                        _ => {}
                    }
                }
            }
            Self::Matches(path, pattern) => {
                for text in [&pattern.text, &format!("{}+", pattern.text), &format!("+{}", pattern.text)] {
                    visit(path, &json!(text));
                }
            }
        }
    }

    /// Returns the one-line form.
    pub fn inline(&self) -> String {
        let joined = |all: &[Self], by: &str| {
            let parts: Vec<String> = all.iter().map(|one| format!("({})", one.inline())).collect();
            parts.join(by)
        };
        match self {
            Self::All(all) => joined(all, " && "),
            Self::Any(any) => joined(any, " || "),
            Self::Not(one) => format!("!({})", one.inline()),
            Self::Is(path) => path.clone(),
            Self::Exists(path) => format!("exists({path})"),
            Self::Compare(op, left, right) => format!("{} {op} {}", left.inline(), right.inline()),
            Self::Matches(path, pattern) => format!("{path} matches {}", json!(pattern.source())),
        }
    }

    /// Returns the mapping form, if the condition has one.
    pub fn mapping(&self) -> Option<Value> {
        Some(match self {
            Self::All(all) => json!({ "all": all.iter().map(Self::mapping).collect::<Option<Vec<_>>>()? }),
            Self::Any(any) => json!({ "any": any.iter().map(Self::mapping).collect::<Option<Vec<_>>>()? }),
            Self::Not(one) => json!({ "not": one.mapping()? }),
            Self::Is(path) => json!({ "path": path, "value": true }),
            Self::Exists(path) => json!({ "path": path, "op": "exists" }),
            Self::Compare(op, OracleTerm::Path(path), OracleTerm::Literal(value)) => {
                let name = match *op {
                    "==" => "eq",
                    "!=" => "ne",
                    "<" => "lt",
                    "<=" => "lte",
                    ">" => "gt",
                    ">=" => "gte",
                    other => other,
                };
                json!({ "path": path, "op": name, "value": value })
            }
            Self::Compare(..) => return None,
            Self::Matches(path, pattern) => json!({ "path": path, "op": "regex", "value": pattern.source() }),
        })
    }
}

/// Returns `decisive` if any result equals it, else unknown if any result is unknown, else the opposite of `decisive`.
fn fold(all: impl Iterator<Item = Truth>, decisive: bool) -> Truth {
    let mut result = Some(!decisive);
    for one in all {
        match one {
            Some(truth) if truth == decisive => return Some(decisive),
            Some(_) => {}
            None => result = None,
        }
    }
    result
}

impl OracleTerm {
    fn read(&self, facts: &dyn OracleFacts) -> Reading {
        match self {
            Self::Literal(value) => Reading::Value(value.clone()),
            Self::Path(path) => facts.read(path),
            Self::Length(path) => match facts.read(path) {
                Reading::Value(Value::String(text)) => Reading::Value(json!(text.chars().count())),
                Reading::Value(Value::Array(items)) => Reading::Value(json!(items.len())),
                Reading::Value(Value::Object(keys)) => Reading::Value(json!(keys.len())),
                Reading::Value(_) | Reading::Absent => Reading::Absent,
                Reading::Unknown => Reading::Unknown,
            },
            Self::Sum(path, more) => match facts.read(path) {
                Reading::Value(Value::Number(number)) => match number.as_i64() {
                    Some(whole) => Reading::Value(json!(whole + more)),
                    None => Reading::Value(json!(number.as_f64().unwrap() + f64::from(i32::try_from(*more).unwrap()))),
                },
                Reading::Value(_) | Reading::Absent => Reading::Absent,
                Reading::Unknown => Reading::Unknown,
            },
        }
    }

    fn inline(&self) -> String {
        match self {
            Self::Literal(value) => value.to_string(),
            Self::Path(path) => path.clone(),
            Self::Length(path) => format!("length({path})"),
            Self::Sum(path, more) => format!("{path} + {more}"),
        }
    }
}

impl OraclePattern {
    fn source(&self) -> String {
        let mut text = String::new();
        let _ = write!(
            text,
            "{}{}{}",
            if self.from_start { "^" } else { "" },
            self.text,
            if self.to_end { "$" } else { "" }
        );
        text
    }

    fn is_in(&self, text: &str) -> bool {
        match (self.from_start, self.to_end) {
            (true, true) => text == self.text,
            (true, false) => text.starts_with(&self.text),
            (false, true) => text.ends_with(&self.text),
            (false, false) => text.contains(&self.text),
        }
    }

    fn parse(source: &str) -> Self {
        let (from_start, rest) = source.strip_prefix('^').map_or((false, source), |rest| (true, rest));
        let (to_end, text) = rest.strip_suffix('$').map_or((false, rest), |text| (true, text));
        Self { from_start, text: text.to_owned(), to_end }
    }
}

fn compare(op: &str, left: &Reading, right: &Reading) -> bool {
    let value = |one: &Reading| match one {
        Reading::Value(value) => Some(value.clone()),
        Reading::Absent | Reading::Unknown => None,
    };
    let (left, right) = (value(left), value(right));
    let same = |a: &Option<Value>, b: &Option<Value>| {
        are_equal(a.as_ref().unwrap_or(&Value::Null), b.as_ref().unwrap_or(&Value::Null))
    };
    match op {
        "==" => same(&left, &right),
        "!=" => !same(&left, &right),
        "in" => contains(right.as_ref(), left.as_ref()) && !matches!(right, Some(Value::Object(_))),
        "contains" => contains(left.as_ref(), right.as_ref()),
        order => {
            let ordering = match (&left, &right) {
                (Some(Value::Number(a)), Some(Value::Number(b))) => a.as_f64().partial_cmp(&b.as_f64()),
                (Some(Value::String(a)), Some(Value::String(b))) => Some(a.cmp(b)),
                _ => None,
            };
            ordering.is_some_and(|ordering| match order {
                "<" => ordering.is_lt(),
                "<=" => ordering.is_le(),
                ">" => ordering.is_gt(),
                ">=" => ordering.is_ge(),
                other => panic!("unknown operator {other}"),
            })
        }
    }
}

/// Compares two values; numbers by value.
fn are_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| are_equal(a, b)),
        (a, b) => a == b,
    }
}

fn contains(whole: Option<&Value>, part: Option<&Value>) -> bool {
    match (whole, part) {
        (Some(Value::String(text)), Some(Value::String(part))) => text.contains(part.as_str()),
        (Some(Value::Array(items)), part) => items.iter().any(|item| are_equal(item, part.unwrap_or(&Value::Null))),
        (Some(Value::Object(keys)), Some(Value::String(key))) => keys.contains_key(key),
        _ => false,
    }
}

/// Reads a condition in the one-line form, as far as regions use it.
pub fn read(text: &str) -> OracleCondition {
    let mut reader = Reader { rest: text };
    let condition = reader.any();
    assert!(reader.rest.trim().is_empty(), "`{}` is left of `{text}`", reader.rest);
    condition
}

struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    fn eat(&mut self, word: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn any(&mut self) -> OracleCondition {
        let mut all = vec![self.all()];
        while self.eat("||") {
            all.push(self.all());
        }
        if all.len() == 1 { all.remove(0) } else { OracleCondition::Any(all) }
    }

    fn all(&mut self) -> OracleCondition {
        let mut all = vec![self.not()];
        while self.eat("&&") {
            all.push(self.not());
        }
        if all.len() == 1 { all.remove(0) } else { OracleCondition::All(all) }
    }

    fn not(&mut self) -> OracleCondition {
        self.rest = self.rest.trim_start();
        if !self.rest.starts_with("!=") && self.eat("!") {
            return OracleCondition::Not(Box::new(self.not()));
        }
        if self.eat("(") {
            let inside = self.any();
            assert!(self.eat(")"), "no `)` before `{}`", self.rest);
            return inside;
        }
        if self.eat("exists(") {
            let path = self.path();
            assert!(self.eat(")"));
            return OracleCondition::Exists(path);
        }
        let left = self.term();
        for op in ["==", "!=", "<=", ">=", "<", ">", "in ", "contains ", "matches "] {
            if self.eat(op) {
                let right = self.term();
                return match (op.trim(), left, right) {
                    ("matches", OracleTerm::Path(path), OracleTerm::Literal(Value::String(text))) => {
                        OracleCondition::Matches(path, OraclePattern::parse(&text))
                    }
                    (op, left, right) => OracleCondition::Compare(op, left, right),
                };
            }
        }
        match left {
            OracleTerm::Path(path) => OracleCondition::Is(path),
            OracleTerm::Literal(Value::Bool(true)) => OracleCondition::All(Vec::new()),
            OracleTerm::Literal(Value::Bool(false)) => OracleCondition::Any(Vec::new()),
            other => panic!("{other:?} is no condition, before `{}`", self.rest),
        }
    }

    fn term(&mut self) -> OracleTerm {
        if self.eat("length(") {
            let path = self.path();
            assert!(self.eat(")"));
            return OracleTerm::Length(path);
        }
        self.rest = self.rest.trim_start();
        let first = self.rest.chars().next().unwrap();
        let is_word = ["true", "false", "null"].iter().any(|word| self.rest.starts_with(word));
        if !is_word && (first.is_ascii_alphabetic() || first == '_') {
            let path = self.path();
            if self.eat("+") {
                let OracleTerm::Literal(value) = self.term() else { panic!("no number before `{}`", self.rest) };
                return OracleTerm::Sum(path, value.as_i64().unwrap());
            }
            return OracleTerm::Path(path);
        }
        if first == '-' || first.is_ascii_digit() {
            let is_part = |c: char| c == '-' || c == '.' || c == 'e' || c.is_ascii_digit();
            let (number, rest) = self.rest.split_at(self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len()));
            self.rest = rest;
            return OracleTerm::Literal(serde_json::from_str(number).unwrap());
        }
        let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<Value>();
        let value = values.next().unwrap().unwrap_or_else(|error| panic!("`{}`: {error}", self.rest));
        self.rest = &self.rest[values.byte_offset()..];
        OracleTerm::Literal(value)
    }

    fn path(&mut self) -> String {
        self.rest = self.rest.trim_start();
        let end =
            self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')).unwrap_or(self.rest.len());
        let (path, rest) = self.rest.split_at(end);
        self.rest = rest;
        path.to_owned()
    }
}

/// Values by name; all names are known.
impl OracleFacts for Map<String, Value> {
    fn read(&self, path: &str) -> Reading {
        let mut parts = path.split('.');
        let mut value = parts.next().and_then(|name| self.get(name));
        for part in parts {
            value = value.and_then(|value| match value {
                Value::Object(keys) => keys.get(part),
                Value::Array(items) => part.parse::<usize>().ok().and_then(|at| items.get(at)),
                _ => None,
            });
        }
        value.map_or(Reading::Absent, |value| Reading::Value(value.clone()))
    }
}
