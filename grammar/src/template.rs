//! The two template languages (`language.md`, Templates): `${path || "fallback"}` and `{input:name}`. This module only
//! parses templates; the compiler's module `semantics` fills the placeholders.

mod read;

use crate::condition::Path;
use crate::span::Span;

pub use read::{parse, parse_inputs, read, read_inputs, scan_knowledge};

/// A `${…}` template. A single placeholder without other text keeps its value's type.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    pub parts: Vec<TemplatePart>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum TemplatePart {
    Text(String),
    Placeholder(Placeholder),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Placeholder {
    pub path: Path,
    pub fallback: Option<String>,
    /// The placeholder as written. Some texts keep an unfilled placeholder in this form.
    pub raw: String,
    pub span: Span,
}

/// A text with `{input:…}` placeholders.
#[derive(Debug, Clone, PartialEq)]
pub struct InputsText {
    pub parts: Vec<InputsPart>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum InputsPart {
    Text(String),
    Input(InputPlaceholder),
}

#[derive(Debug, Clone, PartialEq)]
pub struct InputPlaceholder {
    pub name: String,
    pub when_missing: WhenMissing,
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhenMissing {
    Refuse,
    Empty,
    Default(String),
}
