//! XML as a small tree with byte spans, read by quick-xml within limits (depth 64, attributes 64, no DTD).

use crate::span::{Span, Spanned};

#[derive(Debug, Clone, PartialEq)]
pub struct Element {
    pub name: Spanned<String>,
    pub attributes: Vec<Attribute>,
    pub children: Vec<Node>,
    /// From `<` of the start tag to `>` of the end tag.
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    pub name: Spanned<String>,
    /// Entities resolved; the span is the raw value between the quotes.
    pub value: Spanned<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    Element(Element),
    /// Text and CDATA, entities resolved.
    Text(Spanned<String>),
    Comment(Spanned<String>),
}

impl Element {
    pub fn attribute(&self, name: &str) -> Option<&Spanned<String>> {
        self.attributes.iter().find(|a| a.name.node == name).map(|a| &a.value)
    }

    pub fn elements(&self) -> impl Iterator<Item = &Element> {
        self.children.iter().filter_map(|n| if let Node::Element(e) = n { Some(e) } else { None })
    }

    /// All text directly inside, joined and trimmed; the span covers the trimmed text, or the whole element when empty.
    pub fn text(&self) -> Spanned<String> {
        let mut joined = String::new();
        let mut span: Option<Span> = None;
        for child in &self.children {
            if let Node::Text(t) = child {
                joined.push_str(&t.node);
                if !t.node.trim().is_empty() {
                    span = Some(span.map_or(t.span, |s| s.join(t.span)));
                }
            }
        }
        Spanned::new(joined.trim().to_owned(), span.unwrap_or(self.span))
    }
}
