//! Conversion of spans to file positions, for the origins that accompany a plan.

use rye_grammar::{Sources, Span};

use crate::compose::{self, By};
use crate::plan::{Origin, Place};

/// Reason text for values that the caller gave.
pub const GIVEN: &str = "given with the call";

/// Returns the place of a span; `None` for text that is in no file.
pub fn place(sources: &Sources, span: Span) -> Option<Place> {
    let source = sources.get(span.source)?;
    let position = source.position(span.start);
    Some(Place { file: source.path.to_string(), line: position.line, column: position.column })
}

/// Returns the plan origin of a composed value.
pub fn of(sources: &Sources, origin: &compose::Origin) -> Origin {
    let because = match &origin.by {
        By::Directive(id) => format!("declared by `{id}`"),
        By::Hook(id) => format!("brought by the hook `{id}`"),
        By::Config(id) => format!("set in `{id}`"),
        By::BuiltIn => "built in".to_owned(),
    };
    Origin { place: origin.span.and_then(|span| place(sources, span)), because }
}

/// Returns an origin without a place in a file.
pub fn unwritten(because: &str) -> Origin {
    Origin { place: None, because: because.to_owned() }
}
