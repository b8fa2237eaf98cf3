//! A directive as its own file declares it (`language.md`, Directives). Aliases are replaced by the current names, and
//! unknown elements and attributes are reported.

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
use crate::plan::{FieldType, NudgePolicy, Sampling, TextSize, TextSizes, Tokenizer, ValueParts};
use crate::semantics::limits::LimitValue;

#[derive(Debug, Clone)]
pub struct Directive {
    pub file: FileRef,
    /// The span of the value of the `name` attribute, or of the element's name if the attribute is missing. Labels for
    /// the directive point at this span.
    pub span: Span,
    pub version: Option<Spanned<String>>,
    pub extends: Option<Spanned<ItemId>>,
    pub title: Option<Spanned<String>>,
    /// The text of `<description>`, else the prose before the fence, else the title.
    pub description: String,
    pub category: Option<Spanned<String>>,
    pub author: Option<Spanned<String>>,
    pub model: Option<ModelRequest>,
    /// The limits under normalized names (`max_turns` becomes `turns`), in file order. The limit table checks names and
    /// values later.
    pub limits: Vec<DeclaredLimit>,
    /// The limits of `<session>`, in file order: upper bounds on the limits of a whole chat.
    pub session_limits: Vec<DeclaredLimit>,
    pub context: ContextDecl,
    /// The grants of `<permissions>`; `None` if the element is missing. An empty element grants nothing.
    pub permissions: Option<Permissions>,
    pub hooks: Vec<Arc<HookDecl>>,
    pub continuation: Option<Spanned<ItemId>>,
    pub nudge: Option<Spanned<NudgePolicy>>,
    pub inputs: IndexMap<String, FieldDecl>,
    pub outputs: IndexMap<String, FieldDecl>,
    /// The body. If the metadata has a `<process>` element, the body starts with the text of this element.
    pub body: Spanned<String>,
    pub body_sizes: TextSizes,
    /// [`Directive::body`], split into text and `{input:…}` placeholders.
    pub body_template: InputsText,
    /// True if declarations may be missing because of syntax errors. A missing declaration is then not reported as a
    /// further error.
    pub is_incomplete: bool,
}

/// The model requested by `<model>`. The provider files resolve it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelRequest {
    pub tier: Option<Spanned<String>>,
    pub id: Option<Spanned<String>>,
    pub provider: Option<Spanned<String>>,
    pub fallback: Option<Spanned<String>>,
    pub sampling: Sampling,
}

impl ModelRequest {
    /// Returns true if both requests have equal values. Their spans may differ.
    pub(crate) fn names_same_model(&self, other: &Self) -> bool {
        fn words(request: &ModelRequest) -> [Option<&str>; 4] {
            let ModelRequest { tier, id, provider, fallback, sampling: _ } = request;
            [tier, id, provider, fallback].map(|word| word.as_ref().map(|word| word.node.as_str()))
        }
        words(self) == words(other) && self.sampling == other.sampling
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DeclaredLimit {
    pub name: Spanned<String>,
    pub value: Spanned<LimitValue>,
}

/// `<context>`: knowledge ids by position, and the suppressed knowledge ids and hook ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContextDecl {
    pub system: Vec<Spanned<ItemId>>,
    pub before: Vec<Spanned<ItemId>>,
    pub after: Vec<Spanned<ItemId>>,
    pub suppress: Vec<Spanned<String>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Permissions {
    /// The span of the `<permissions>` element.
    pub span: Span,
    /// True if `seal="true"` is set: directives that extend this directive must not grant more.
    pub sealed: bool,
    pub grants: Vec<GrantDecl>,
    pub acknowledged: Vec<Acknowledgment>,
    /// True if a part of the element could not be read, so that `grants` may lack grants that were meant.
    pub has_errors: bool,
}

/// A grant of `<permissions>`, as a full capability pattern: `rye.execute.tool.rye.file-system.*`.
#[derive(Debug, Clone, PartialEq)]
pub struct GrantDecl {
    pub pattern: Pattern,
    /// The span of the pattern as written.
    pub span: Span,
    /// Hosts of the `net` attribute.
    pub net: Vec<String>,
    /// Paths of the `write` attribute.
    pub write: Vec<String>,
}

/// An acknowledgement of a risk: `<acknowledge risk="…">why</acknowledge>`.
#[derive(Debug, Clone, PartialEq)]
pub struct Acknowledgment {
    pub risk: Spanned<String>,
    pub why: String,
}

/// An input or output of a directive.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldDecl {
    pub name: Spanned<String>,
    pub kind: FieldType,
    pub required: bool,
    /// True for `required="false"`, but not for a missing `required`.
    pub is_marked_optional: bool,
    /// The default, converted to the field's type; `None` if none is declared.
    pub default: Option<Value>,
    /// The values of `enum`, converted to the field's type. If the list is empty, any value is allowed.
    pub choices: Vec<Value>,
    pub description: String,
    /// The types of the values inside an array or an object, as declared by `<item>` and `<field>`.
    pub parts: ValueParts,
    /// The span of the element that declares the input or output.
    pub span: Span,
}

impl Directive {
    pub fn id(&self) -> &ItemId {
        &self.file.id
    }

    /// Returns the size of the body in tokens of the tokenizer `by`.
    pub(crate) fn body_size(&self, by: Tokenizer) -> TextSize {
        self.body_sizes.of(by, &self.body.node)
    }

    /// Returns the declared category. If none is declared, returns the folder of the id: `a/b` for `a/b/c`.
    pub fn category(&self) -> &str {
        self.category.as_ref().map_or(self.file.id.category(), |c| &c.node)
    }
}
