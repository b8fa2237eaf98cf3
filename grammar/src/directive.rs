//! A directive file: the Markdown shell, the one XML fence, the body (`language.md` 2).

use crate::signature::SignatureLine;
use crate::span::{Span, Spanned};
use crate::xml::Element;

#[derive(Debug, Clone, PartialEq)]
pub struct DirectiveTree {
    pub signature: Option<Spanned<SignatureLine>>,
    /// The first `# heading` before the fence.
    pub title: Option<Spanned<String>>,
    /// The prose between the title and the fence, trimmed; the description where `<description>` is missing.
    pub prose: Option<Spanned<String>>,
    /// The root of the XML fence; `None` where there is none or it could not be read.
    pub root: Option<Element>,
    /// The bytes of the fence, from its opening backticks to the end of its closing line.
    pub fence: Option<Span>,
    /// What follows the fence, verbatim but for leading blank lines and trailing white space.
    pub body: Spanned<String>,
}
