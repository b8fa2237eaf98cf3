//! XML as a small tree with byte spans, read by quick-xml within limits (depth 64, 64 attributes, no DTD). Only
//! well-formedness is checked; the compiler checks elements and attributes.

mod chars;
mod end_tag;
mod read;
mod tag;

pub use read::{MAX_DEPTH, parse};

use crate::span::{Span, Spanned};

#[derive(Debug, Clone, PartialEq)]
pub struct Element {
    pub name: Spanned<String>,
    pub attributes: Vec<Attribute>,
    pub children: Vec<XmlNode>,
    /// The whole element: from the `<` of its start tag to the `>` of its end tag.
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    pub name: Spanned<String>,
    /// The value with its entities resolved. The span covers the raw value between the quotes.
    pub value: Spanned<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum XmlNode {
    Element(Element),
    /// Text and CDATA, with entities resolved.
    Text(Spanned<String>),
    Comment(Spanned<String>),
}

impl Element {
    pub fn attribute(&self, name: &str) -> Option<&Spanned<String>> {
        self.attributes.iter().find(|a| a.name.node == name).map(|a| &a.value)
    }

    pub fn elements(&self) -> impl Iterator<Item = &Element> {
        self.children.iter().filter_map(|n| if let XmlNode::Element(e) = n { Some(e) } else { None })
    }

    /// Returns all text directly inside the element, joined and trimmed. The span covers the text, or the whole element
    /// if the text is empty.
    pub fn text(&self) -> Spanned<String> {
        let mut texts = self.children.iter().filter_map(|n| match n {
            XmlNode::Text(t) if !t.node.trim().is_empty() => Some(t),
            XmlNode::Text(_) | XmlNode::Element(_) | XmlNode::Comment(_) => None,
        });
        let Some(first) = texts.next() else { return Spanned::new(String::new(), self.span) };
        let Some(second) = texts.next() else { return trimmed(first) };
        let mut span = first.span;
        let mut joined = first.node.clone();
        for text in std::iter::once(second).chain(texts) {
            span = span.join(text.span);
            joined.push_str(&text.node);
        }
        Spanned::new(joined.trim().to_owned(), span)
    }
}

/// Trims white space. If the source spells the text with entities, the span is unchanged, because offsets in the text
/// are not offsets in the source.
fn trimmed(text: &Spanned<String>) -> Spanned<String> {
    let inner = text.node.trim();
    if text.span.len() != text.node.len() {
        return Spanned::new(inner.to_owned(), text.span);
    }
    let start = text.span.start as usize + (text.node.len() - text.node.trim_start().len());
    Spanned::new(inner.to_owned(), Span::new(text.span.source, start, start + inner.len()))
}
