//! Whole values as templates: in a list or a mapping every string is one, keys are not (`language.md` 6).

use rye_grammar::data::{Kind, Node};
use rye_grammar::template::{Hole, InputHole, Template, TemplatePart, parse};
use rye_grammar::{Parsed, Span, SyntaxError};
use serde_json::{Map, Value};

use super::{HookText, MissingInput, Rendered, holes, render};
use crate::semantics::facts::Facts;

/// A value whose strings are templates.
#[derive(Debug, Clone, PartialEq)]
pub enum Tree {
    Value(Value),
    Template(Template),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

/// The same with strings that may hold `{input:…}` too.
#[derive(Debug, Clone, PartialEq)]
pub enum HookTree {
    Value(Value),
    Text(HookText),
    List(Vec<HookTree>),
    Map(Vec<(String, HookTree)>),
}

impl Tree {
    /// Reads every string of a value; one that cannot be read stays what it is, beside its error.
    pub fn read(node: &Node) -> Parsed<Self> {
        let mut errors = Vec::new();
        let tree = Self::read_node(node, &mut errors);
        Parsed { tree, errors }
    }

    fn read_node(node: &Node, errors: &mut Vec<SyntaxError>) -> Self {
        match &node.kind {
            Kind::Null | Kind::Bool(_) | Kind::Number(_) => Self::Value(node.to_value()),
            Kind::String(text) => match parse(node.span.source, text, node.content_start()) {
                Ok(mut template) => {
                    if !node.is_verbatim() {
                        move_holes(&mut template, node.span);
                    }
                    Self::Template(template)
                }
                Err(error) => {
                    errors.push(if node.is_verbatim() { error } else { error.within(node.span) });
                    Self::Value(node.to_value())
                }
            },
            Kind::List(items) => Self::List(items.iter().map(|item| Self::read_node(item, errors)).collect()),
            Kind::Map(entries) => {
                Self::Map(entries.iter().map(|e| (e.key.node.clone(), Self::read_node(&e.value, errors))).collect())
            }
        }
    }

    /// The value, or every path that is not known yet.
    pub fn render(&self, facts: &Facts) -> Rendered {
        let mut pending = Vec::new();
        let value = self.fill(facts, &mut pending);
        if pending.is_empty() { Rendered::Value(value) } else { Rendered::Pending(pending) }
    }

    fn fill(&self, facts: &Facts, pending: &mut Vec<String>) -> Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::Template(template) => match render(template, facts) {
                Rendered::Value(value) => value,
                Rendered::Pending(paths) => {
                    for path in paths {
                        if !pending.contains(&path) {
                            pending.push(path);
                        }
                    }
                    Value::Null
                }
            },
            Self::List(items) => Value::Array(items.iter().map(|item| item.fill(facts, pending)).collect()),
            Self::Map(entries) => Value::Object(
                entries.iter().map(|(key, tree)| (key.clone(), tree.fill(facts, pending))).collect::<Map<_, _>>(),
            ),
        }
    }

    /// Every hole, in order.
    pub fn holes(&self) -> Vec<&Hole> {
        match self {
            Self::Value(_) => Vec::new(),
            Self::Template(template) => holes(template).collect(),
            Self::List(items) => items.iter().flat_map(Self::holes).collect(),
            Self::Map(entries) => entries.iter().flat_map(|(_, tree)| tree.holes()).collect(),
        }
    }
}

/// Offsets into the string are no offsets into the source: every hole stands where the string does.
pub(super) fn move_holes(template: &mut Template, to: Span) {
    for part in &mut template.parts {
        if let TemplatePart::Hole(hole) = part {
            hole.span = to;
        }
    }
}

impl HookTree {
    /// As [`Tree::read`].
    pub fn read(node: &Node) -> Parsed<Self> {
        let mut errors = Vec::new();
        let tree = Self::read_node(node, &mut errors);
        Parsed { tree, errors }
    }

    fn read_node(node: &Node, errors: &mut Vec<SyntaxError>) -> Self {
        match &node.kind {
            Kind::Null | Kind::Bool(_) | Kind::Number(_) => Self::Value(node.to_value()),
            Kind::String(text) => match HookText::parse(node.span.source, text, node.content_start()) {
                Ok(mut text) => {
                    if !node.is_verbatim() {
                        text.move_to(node.span);
                    }
                    Self::Text(text)
                }
                Err(error) => {
                    errors.push(if node.is_verbatim() { error } else { error.within(node.span) });
                    Self::Value(node.to_value())
                }
            },
            Kind::List(items) => Self::List(items.iter().map(|item| Self::read_node(item, errors)).collect()),
            Kind::Map(entries) => {
                Self::Map(entries.iter().map(|e| (e.key.node.clone(), Self::read_node(&e.value, errors))).collect())
            }
        }
    }

    /// Fills the `{input:…}` holes.
    ///
    /// # Errors
    /// The first required input without a value.
    pub fn bind(&self, inputs: &Map<String, Value>) -> Result<Tree, MissingInput> {
        Ok(match self {
            Self::Value(value) => Tree::Value(value.clone()),
            Self::Text(text) => Tree::Template(text.bind(inputs)?),
            Self::List(items) => Tree::List(items.iter().map(|item| item.bind(inputs)).collect::<Result<_, _>>()?),
            Self::Map(entries) => {
                Tree::Map(entries.iter().map(|(key, tree)| Ok((key.clone(), tree.bind(inputs)?))).collect::<Result<
                    _,
                    MissingInput,
                >>(
                )?)
            }
        })
    }

    /// Every `${…}` hole, in order.
    pub fn holes(&self) -> Vec<&Hole> {
        match self {
            Self::Value(_) => Vec::new(),
            Self::Text(text) => text.holes().collect(),
            Self::List(items) => items.iter().flat_map(Self::holes).collect(),
            Self::Map(entries) => entries.iter().flat_map(|(_, tree)| tree.holes()).collect(),
        }
    }

    /// Every `{input:…}` hole, in order.
    pub fn inputs(&self) -> Vec<&InputHole> {
        match self {
            Self::Value(_) => Vec::new(),
            Self::Text(text) => text.inputs().iter().collect(),
            Self::List(items) => items.iter().flat_map(Self::inputs).collect(),
            Self::Map(entries) => entries.iter().flat_map(|(_, tree)| tree.inputs()).collect(),
        }
    }
}
