//! Whole values as templates: every string in a list or a mapping is a template, keys are not (`language.md` 6).

use rye_grammar::data::{Kind, Node};
use rye_grammar::template::{InputPlaceholder, Placeholder, Template, TemplatePart, parse};
use rye_grammar::{Parsed, SourceId, Span, SyntaxError};
use serde_json::{Map, Value};

use super::{HookText, MissingInput, Rendered, filled_size, placeholders, render};
use crate::semantics::facts::Facts;
use crate::semantics::value::inline_text;

/// A value (list, mapping or scalar) in which every string is a template.
#[derive(Debug, Clone, PartialEq)]
pub enum TemplateTree<T = Template> {
    Value(Value),
    Text(T),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

/// A template tree of a hook. Its strings may hold `{input:…}` in addition to `${…}`.
pub type HookTemplateTree = TemplateTree<HookText>;

/// A text with placeholders.
pub trait TemplateText: Sized {
    /// Parses a text; `base` is the byte offset of `text` in its source.
    ///
    /// # Errors
    /// Returns the first malformed placeholder.
    fn parse(source: SourceId, text: &str, base: usize) -> Result<Self, SyntaxError>;

    /// Sets the span of every placeholder.
    fn set_span(&mut self, to: Span);

    /// Returns every `${…}` placeholder, in order.
    fn placeholders(&self) -> impl Iterator<Item = &Placeholder>;
}

impl TemplateText for Template {
    fn parse(source: SourceId, text: &str, base: usize) -> Result<Self, SyntaxError> {
        parse(source, text, base)
    }

    fn set_span(&mut self, to: Span) {
        for part in &mut self.parts {
            if let TemplatePart::Placeholder(placeholder) = part {
                placeholder.span = to;
            }
        }
    }

    fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        placeholders(self)
    }
}

impl<T: TemplateText> TemplateTree<T> {
    /// Parses every string of a value. A malformed string stays a plain value, and its error is returned.
    pub fn read(node: &Node) -> Parsed<Self> {
        let mut errors = Vec::new();
        let tree = Self::read_node(node, &mut errors);
        Parsed { tree, errors }
    }

    fn read_node(node: &Node, errors: &mut Vec<SyntaxError>) -> Self {
        match &node.kind {
            Kind::Null | Kind::Bool(_) | Kind::Number(_) => Self::Value(node.to_value()),
            Kind::String(text) => match T::parse(node.span.source, text, node.content_start()) {
                Ok(mut text) => {
                    // Offsets in an escaped string are not offsets in the source, so placeholders get the string's
                    // span.
                    if !node.is_verbatim() {
                        text.set_span(node.span);
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

    fn texts(&self) -> Vec<&T> {
        match self {
            Self::Value(_) => Vec::new(),
            Self::Text(text) => vec![text],
            Self::List(items) => items.iter().flat_map(Self::texts).collect(),
            Self::Map(entries) => entries.iter().flat_map(|(_, tree)| tree.texts()).collect(),
        }
    }

    /// Returns every `${…}` placeholder, in order.
    pub fn placeholders(&self) -> Vec<&Placeholder> {
        self.texts().into_iter().flat_map(TemplateText::placeholders).collect()
    }
}

impl TemplateTree {
    /// Fills the placeholders with the facts. If the values of some paths are unknown, returns these paths instead.
    pub fn render(&self, facts: &Facts) -> Rendered {
        let mut pending = Vec::new();
        let value = self.fill(facts, &mut pending);
        if pending.is_empty() { Rendered::Value(value) } else { Rendered::Pending(pending) }
    }

    /// Returns true if the rendered texts and values would have more than `most` bytes together. Renders nothing.
    pub fn exceeds(&self, facts: &Facts, most: usize) -> bool {
        self.subtract_size(facts, most).is_none()
    }

    /// Returns the number of bytes that remain of `left` after this value is rendered; `None` if the rendered value is
    /// larger than `left`.
    fn subtract_size(&self, facts: &Facts, left: usize) -> Option<usize> {
        match self {
            Self::Value(value) => left.checked_sub(inline_text(value).len()),
            Self::Text(template) => template.parts.iter().try_fold(left, |left, part| match part {
                TemplatePart::Text(literal) => left.checked_sub(literal.len()),
                TemplatePart::Placeholder(placeholder) => left.checked_sub(filled_size(placeholder, facts)),
            }),
            Self::List(items) => items.iter().try_fold(left, |left, item| item.subtract_size(facts, left)),
            Self::Map(entries) => entries.iter().try_fold(left, |left, (_, tree)| tree.subtract_size(facts, left)),
        }
    }

    fn fill(&self, facts: &Facts, pending: &mut Vec<String>) -> Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::Text(template) => match render(template, facts) {
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
}

impl HookTemplateTree {
    /// Fills the `{input:…}` placeholders.
    ///
    /// # Errors
    /// Returns the first required input without a value.
    pub fn bind(&self, inputs: &Map<String, Value>) -> Result<TemplateTree, MissingInput> {
        Ok(match self {
            Self::Value(value) => TemplateTree::Value(value.clone()),
            Self::Text(text) => TemplateTree::Text(text.bind_inputs(inputs)?),
            Self::List(items) => {
                TemplateTree::List(items.iter().map(|item| item.bind(inputs)).collect::<Result<_, _>>()?)
            }
            Self::Map(entries) => {
                let bound = entries.iter().map(|(key, tree)| Ok((key.clone(), tree.bind(inputs)?)));
                TemplateTree::Map(bound.collect::<Result<_, MissingInput>>()?)
            }
        })
    }

    /// Returns every `{input:…}` placeholder, in order.
    pub fn inputs(&self) -> Vec<&InputPlaceholder> {
        self.texts().into_iter().flat_map(HookText::inputs).collect()
    }
}
