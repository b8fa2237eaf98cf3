//! Conversion of spans to file positions, for the origins that accompany a plan.

use rye_grammar::{Sources, Span};

use crate::compose::{self, OriginKind};
use crate::plan::{Origin, SourcePlace};

/// Reason text for values that the caller gave.
pub const GIVEN_WITH_CALL: &str = "given with the call";

/// Returns the source location of a span; `None` for text that is in no file.
pub fn plan_place(sources: &Sources, span: Span) -> Option<SourcePlace> {
    let source = sources.get(span.source)?;
    let position = source.position(span.start);
    Some(SourcePlace { file: source.path.to_string(), line: position.line, column: position.column })
}

/// Returns the plan origin of a composed value.
pub fn plan_origin(sources: &Sources, origin: &compose::DeclaredOrigin) -> Origin {
    let because = match &origin.by {
        OriginKind::Directive(id) => format!("declared by `{id}`"),
        OriginKind::Hook(id) => format!("brought by the hook `{id}`"),
        OriginKind::Config(id) => format!("set in `{id}`"),
        OriginKind::BuiltIn => "built in".to_owned(),
    };
    Origin { place: origin.span.and_then(|span| plan_place(sources, span)), because }
}

/// Returns an origin without a source location.
pub fn origin_without_place(because: &str) -> Origin {
    Origin { place: None, because: because.to_owned() }
}
