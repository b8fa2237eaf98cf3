//! From spans to places: what lies beside the plan so that people can find the line.

use rye_grammar::{Sources, Span};

use crate::compose::{self, By};
use crate::plan::{Origin, Place};

/// Why something that the caller asked for is there.
pub const GIVEN: &str = "given with the call";

/// The place of a span; `None` for texts that are in no file.
pub fn place(sources: &Sources, span: Span) -> Option<Place> {
    let source = sources.get(span.source)?;
    let position = source.position(span.start);
    Some(Place { file: source.path.to_string(), line: position.line, column: position.column })
}

/// The origin of something composed.
pub fn of(sources: &Sources, origin: &compose::Origin) -> Origin {
    let because = match &origin.by {
        By::Directive(id) => format!("declared by `{id}`"),
        By::Hook(id) => format!("brought by the hook `{id}`"),
        By::Config(id) => format!("set in `{id}`"),
        By::BuiltIn => "built in".to_owned(),
    };
    Origin { place: origin.span.and_then(|span| place(sources, span)), because }
}

/// An origin that no file holds.
pub fn unwritten(because: &str) -> Origin {
    Origin { place: None, because: because.to_owned() }
}
