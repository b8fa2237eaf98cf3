//! Conversion of spans to file positions, for the origins that accompany a plan.

use rye_grammar::{Sources, Span};

use crate::item::DeclaredOrigin;
use crate::plan::{Origin, OriginCause, SourcePlace};

/// Returns the source location of a span; `None` for text that is in no file.
pub(crate) fn plan_place(sources: &Sources, span: Span) -> Option<SourcePlace> {
    let source = sources.get(span.source)?;
    let position = source.position(span.start);
    Some(SourcePlace { file: source.path.to_string(), line: position.line, column: position.column })
}

/// Converts the origin of a composed value to the form that a plan's origins have, with file and line.
pub(crate) fn plan_origin(sources: &Sources, origin: &DeclaredOrigin) -> Origin {
    let cause = OriginCause::Declared(origin.by.clone());
    Origin { place: origin.span.and_then(|span| plan_place(sources, span)), cause }
}

/// Returns an origin without a source location.
pub(crate) fn origin_without_place(cause: OriginCause) -> Origin {
    Origin { place: None, cause }
}
