//! Structured data with spans: the common form of YAML files and XML hooks, so that one reader handles both.

use serde_json::{Map, Number, Value};

use crate::span::{Span, Spanned};

/// A value with its span. The span of a quoted string excludes the quotes if the text between them equals the value. If
/// escapes or line breaks make the text differ from the value, the span includes the quotes.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub kind: Kind,
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    List(Vec<Node>),
    /// The entries of a mapping in file order, with unique keys.
    Map(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub key: Spanned<String>,
    pub value: Node,
}

/// Returns the number that the author of a mapping probably wrote with commas. YAML reads `{ value: 1,000 }` as the two
/// entries `value: 1` and `000`; for the key `000`, the result is `1000`. `None` if `key` is not such a group of three
/// digits.
pub(crate) fn separated_number(entries: &[Entry], key: &Entry) -> Option<String> {
    let is_group = |entry: &Entry| {
        entry.key.node.len() == 3
            && entry.key.node.bytes().all(|byte| byte.is_ascii_digit())
            && matches!(entry.value.kind, Kind::Null)
    };
    let at = entries.iter().position(|entry| std::ptr::eq(entry, key)).filter(|_| is_group(key))?;
    let first = entries.get(..at)?.iter().rposition(|entry| !is_group(entry))?;
    let Kind::Number(start) = &entries.get(first)?.value.kind else { return None };
    let groups = entries.get(first + 1..)?.iter().take_while(|entry| is_group(entry));
    Some(groups.fold(start.to_string(), |number, group| number + &group.key.node))
}

impl Node {
    pub fn new(kind: Kind, span: Span) -> Self {
        Self { kind, span }
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|e| e.key.node == key).map(|e| &e.value)
    }

    /// Returns the entries of a map; empty for anything else.
    pub fn entries(&self) -> &[Entry] {
        if let Kind::Map(entries) = &self.kind { entries } else { &[] }
    }

    /// Returns the items of a list; empty for anything else.
    pub fn items(&self) -> &[Node] {
        if let Kind::List(items) = &self.kind { items } else { &[] }
    }

    pub fn as_str(&self) -> Option<&str> {
        if let Kind::String(s) = &self.kind { Some(s) } else { None }
    }

    pub fn as_bool(&self) -> Option<bool> {
        if let Kind::Bool(b) = self.kind { Some(b) } else { None }
    }

    /// Returns the source offset of a string's text. Parsers of the text accept this offset as `base`.
    pub fn content_start(&self) -> usize {
        self.span.range().start
    }

    /// Returns true if the source contains the string unchanged. The start of the span plus an offset in the string is
    /// then an offset in the source. The result is false if the source uses escapes, entities or folded lines.
    pub fn is_verbatim(&self) -> bool {
        self.as_str().is_some_and(|s| self.span.len() == s.len())
    }

    /// Converts the node to a JSON value, which has no spans.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(b) => Value::Bool(*b),
            Kind::Number(n) => Value::Number(n.clone()),
            Kind::String(s) => Value::String(s.clone()),
            Kind::List(items) => Value::Array(items.iter().map(Node::to_value).collect()),
            Kind::Map(entries) => {
                let mut map = Map::new();
                for e in entries {
                    map.insert(e.key.node.clone(), e.value.to_value());
                }
                Value::Object(map)
            }
        }
    }

    /// Describes the kind of value for a message: "a list", "a string".
    pub fn describe(&self) -> &'static str {
        match self.kind {
            Kind::Null => "null",
            Kind::Bool(_) => "a boolean",
            Kind::Number(_) => "a number",
            Kind::String(_) => "a string",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a mapping",
        }
    }
}
