//! A directive as its own file states it (`language.md` 2), aliases normalised, the vocabulary checked.

pub mod fields;
mod permissions;
mod read;

use std::sync::Arc;

use indexmap::IndexMap;
use rye_grammar::capability::Pattern;
use rye_grammar::template::InputsText;
use rye_grammar::{ItemId, Span, Spanned};
use serde_json::Value;

pub use read::read;

use super::{FileRef, HookDecl};
use crate::plan::{FieldType, NudgePolicy, Sampling};
use crate::semantics::limits::Written;

#[derive(Debug, Clone)]
pub struct Directive {
    pub file: FileRef,
    /// The `name` attribute, or the whole start tag where there is none: where "this directive" is shown.
    pub span: Span,
    pub version: Option<Spanned<String>>,
    pub extends: Option<Spanned<ItemId>>,
    pub title: Option<Spanned<String>>,
    /// `<description>`, else the prose before the fence, else the title.
    pub description: String,
    pub category: Option<Spanned<String>>,
    pub author: Option<Spanned<String>>,
    pub model: Option<ModelRequest>,
    /// By normalised name (`max_turns` is `turns`), in file order; names and values are checked by the limits.
    pub limits: Vec<DeclaredLimit>,
    pub context: Context,
    /// `None` where the element is missing; an empty element grants nothing.
    pub permissions: Option<Permissions>,
    pub hooks: Vec<Arc<HookDecl>>,
    pub continuation: Option<Spanned<ItemId>>,
    pub nudge: Option<Spanned<NudgePolicy>>,
    pub inputs: IndexMap<String, Field>,
    pub outputs: IndexMap<String, Field>,
    /// The body, with the text of a `<process>` before it.
    pub body: Spanned<String>,
    /// [`Directive::body`] taken apart.
    pub body_template: InputsText,
}

/// What `<model>` asks for; the provider files say what it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelRequest {
    pub tier: Option<Spanned<String>>,
    pub id: Option<Spanned<String>>,
    pub provider: Option<Spanned<String>>,
    pub fallback: Option<Spanned<String>>,
    pub sampling: Sampling,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DeclaredLimit {
    pub name: Spanned<String>,
    pub value: Spanned<Written>,
}

/// `<context>`: knowledge by position, and what is suppressed (a knowledge id or a hook id).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Context {
    pub system: Vec<Spanned<ItemId>>,
    pub before: Vec<Spanned<ItemId>>,
    pub after: Vec<Spanned<ItemId>>,
    pub suppress: Vec<Spanned<String>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Permissions {
    /// The element.
    pub span: Span,
    pub grants: Vec<GrantDecl>,
    pub acknowledged: Vec<Acknowledged>,
}

/// One pattern of `<permissions>`, whole: `rye.execute.tool.rye.file-system.*`.
#[derive(Debug, Clone, PartialEq)]
pub struct GrantDecl {
    pub pattern: Pattern,
    /// The text that was written.
    pub span: Span,
    /// Hosts of the `net` attribute.
    pub net: Vec<String>,
    /// Paths of the `write` attribute.
    pub write: Vec<String>,
}

/// `<acknowledge risk="…">why</acknowledge>`
#[derive(Debug, Clone, PartialEq)]
pub struct Acknowledged {
    pub risk: Spanned<String>,
    pub why: String,
}

/// An input or output.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    pub name: Spanned<String>,
    pub kind: FieldType,
    pub required: bool,
    /// Already of the field's type.
    pub default: Option<Value>,
    /// From `enum`; empty where anything goes. Already of the field's type.
    pub choices: Vec<Value>,
    pub description: String,
    /// The element.
    pub span: Span,
}

impl Directive {
    pub fn id(&self) -> &ItemId {
        &self.file.id
    }

    /// The declared category, else the folder of the id.
    pub fn category(&self) -> &str {
        self.category.as_ref().map_or(self.file.id.category(), |c| &c.node)
    }
}
