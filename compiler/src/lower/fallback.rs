//! Checks of a fallback model. By the estimate, the first request and its reply should fit into the context window of
//! the fallback. The `spend` limit should be enough for a turn of the fallback. If the model accepts images, the
//! fallback should accept images too.

use crate::compose::Composed;
use crate::diagnostics::{Diagnostics, ModelError};
use crate::plan::PlannedModel;
use crate::semantics::limits::Limits;

use super::{MIN_OUTPUT_TOKENS, OpeningSize, first_request_size};

/// Reports a fallback that may not be able to take over the first request. Three reasons are reported: the fallback
/// accepts no images although the model does, its context window is too small by the estimate, or the limit `spend`
/// does not pay for a turn. `opening_of` returns the size of the tools in a request to a model.
pub fn check(
    composed: &Composed,
    model: &PlannedModel,
    limits: &Limits,
    opening_of: &dyn Fn(&PlannedModel) -> OpeningSize,
    diagnostics: &mut Diagnostics,
) {
    let Some(fallback) = model.fallback.as_deref() else { return };
    let Some(written) = composed.model.as_ref().and_then(|requested| requested.value.fallback.as_ref()) else { return };
    if model.images && !fallback.images {
        diagnostics.push(ModelError::FallbackWithoutImages {
            fallback: written.node.clone(),
            model: fallback.id.clone(),
            span: written.span,
        });
    }
    // A model without native tool use gets the tools as text.
    let opening = opening_of(fallback);
    let output = fallback.requested_output(limits.output).min(MIN_OUTPUT_TOKENS);
    let texts = first_request_size(composed, fallback.counted_by);
    let prompt = opening.tokens.saturating_add(texts.tokens);
    let needed = fallback.worst_case(opening.bound.saturating_add(fallback.bound_message(texts.bound, 1)), output);
    let (written, span) = (written.node.clone(), written.span);
    if prompt.saturating_add(output) > fallback.context_window {
        diagnostics.push(ModelError::SmallFallback {
            fallback: written,
            model: fallback.id.clone(),
            prompt,
            reply: output,
            window: fallback.context_window,
            span,
        });
    } else if needed > limits.spend && model.worst_case(opening_of(model).bound, output) <= limits.spend {
        // If the limit does not pay for the model itself either, the limit is reported instead of the fallback.
        let why = format!("one turn of the fallback may cost ${needed}, but `spend` is ${}", limits.spend);
        diagnostics.push(ModelError::UnfitFallback { fallback: written, model: fallback.id.clone(), why, span });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rye_grammar::ItemId;

    use crate::compile::tests::world::{minimal_world, with_directives};
    use crate::compile::{CompileRequest, compile};
    use crate::diagnostics::Diagnostic;

    /// Decision 0024: the first request is made regardless of the estimate.
    #[test]
    fn small_window_of_a_fallback_is_reported_as_an_estimate() {
        let provider = "id: p\nwire: scripted\ndefault_tier: fast\ntiers: { fast: m, small: s }\nmodels:\n  \
            - { id: m, context_window: 60000, max_output: 1000, prices: { input: \"1\", output: \"5\" } }\n  \
            - { id: s, context_window: 1500, max_output: 500, prices: { input: \"1\", output: \"5\" } }\n";
        let metadata = "<metadata><model provider=\"p\" tier=\"fast\" fallback=\"small\"/><permissions/></metadata>";
        let world = with_directives(minimal_world(), &[("leaf", "", metadata, &"word ".repeat(2000))])
            .project(".ai/config/agent/providers/p.yaml", provider);
        let compiled = compile(&world, &CompileRequest::new(ItemId::parse("leaf").unwrap()));
        let found: Vec<String> = compiled.diagnostics.iter().map(Diagnostic::message).collect();
        assert!(compiled.value.is_some(), "{found:?}");
        let reported = found.iter().find(|text| text.contains("fallback")).unwrap();
        assert!(reported.contains("may be too small: by the estimate"), "{reported}");
    }
}
