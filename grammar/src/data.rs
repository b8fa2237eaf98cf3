//! Structured data with spans: what YAML files and XML hooks both become, so that each is read by one reader.

use serde_json::{Map, Number, Value};

use crate::span::{Span, Spanned};

/// A value and where it was written. The span of a quoted string is what stands between its quotes, unless escapes or
/// line breaks make that another text: then it covers the quotes too.
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
    /// Entries in file order, keys unique.
    Map(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub key: Spanned<String>,
    pub value: Node,
}

impl Node {
    pub fn new(kind: Kind, span: Span) -> Self {
        Self { kind, span }
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|e| e.key.node == key).map(|e| &e.value)
    }

    /// The entries of a map; empty for anything else.
    pub fn entries(&self) -> &[Entry] {
        if let Kind::Map(entries) = &self.kind { entries } else { &[] }
    }

    /// The items of a list; empty for anything else.
    pub fn items(&self) -> &[Node] {
        if let Kind::List(items) = &self.kind { items } else { &[] }
    }

    pub fn as_str(&self) -> Option<&str> {
        if let Kind::String(s) = &self.kind { Some(s) } else { None }
    }

    pub fn as_bool(&self) -> Option<bool> {
        if let Kind::Bool(b) = self.kind { Some(b) } else { None }
    }

    /// Where the text of a string begins in its source: the base to parse it at.
    pub fn content_start(&self) -> usize {
        self.span.range().start
    }

    /// Whether the bytes of a string stand in the source as they are, so that an offset into the string is an offset
    /// from the start of its span. Escapes, entities and folded lines break that.
    pub fn is_verbatim(&self) -> bool {
        self.as_str().is_some_and(|s| self.span.len() == s.len())
    }

    /// The same value without spans.
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

    /// A human word for the kind of value: "a list", "a string"…
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
