//! The grammar: parses text to trees. This crate checks the syntax only; the compiler checks the meaning.
//!
//! Parsing never fails and never panics: for invalid input, the result has a smaller tree and more errors ([`Parsed`]).

pub mod capability;
pub mod condition;
pub mod data;
pub mod directive;
pub mod error;
pub mod hooks;
pub mod item_id;
pub mod knowledge;
mod markdown;
pub mod signature;
pub mod source;
pub mod span;
pub mod template;
mod text;
pub mod tool_header;
pub mod xml;
pub mod yaml;

pub use error::{SyntaxError, SyntaxKind};
pub use item_id::ItemId;
pub use source::{InvalidUtf8, Source, Sources};
pub use span::{SourceId, Span, Spanned};

/// A tree with all errors found while parsing it.
#[derive(Debug, Clone)]
pub struct Parsed<T> {
    pub tree: T,
    pub errors: Vec<SyntaxError>,
}

impl<T> Parsed<T> {
    pub fn ok(tree: T) -> Self {
        Self { tree, errors: Vec::new() }
    }

    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Parsed<U> {
        Parsed { tree: f(self.tree), errors: self.errors }
    }
}
