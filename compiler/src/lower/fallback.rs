//! Fitness of a fallback. The first request, with the tools in the fallback's form, has to fit the fallback's context
//! window, and the `spend` limit has to pay for it. A model that accepts images needs a fallback that accepts images.

use crate::compose::Composed;
use crate::diagnostics::{Diagnostics, ModelError};
use crate::plan::PlannedModel;
use crate::semantics::limits::Limits;

use super::{MIN_OUTPUT_TOKENS, OpeningSize, first_request_size};

/// Reports a fallback that cannot take over the first request: it accepts no images although the model does, its
/// context window is too small, or the limit `spend` does not pay for a turn. `opening_of` returns the size of the
/// tools in a request to a model.
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
    let why = if prompt.saturating_add(output) > fallback.context_window {
        let window = fallback.context_window;
        format!(
            "its context window of {window} tokens is too small for the first request of {prompt} tokens and a reply of {output}"
        )
    } else if needed > limits.spend && model.worst_case(opening_of(model).bound, output) <= limits.spend {
        // If the limit does not pay for the model itself either, the limit is reported instead of the fallback.
        format!("one of its turns may cost ${needed}, but `spend` is ${}", limits.spend)
    } else {
        return;
    };
    diagnostics.push(ModelError::UnfitFallback {
        fallback: written.node.clone(),
        model: fallback.id.clone(),
        why,
        span: written.span,
    });
}
