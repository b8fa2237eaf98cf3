//! Models without a known price. Their cost is not counted, so a `spend` limit has no effect (`language.md`, Limits).
//! The price is unknown if the provider file does not list the model, or lists it without `prices`. A model with
//! `prices: none` is not reported, because its cost is zero on purpose.

use crate::compose::Composed;
use crate::diagnostics::{Diagnostics, LimitError, ModelError};
use crate::model::{ProviderCatalog, SCRIPTED_WIRE};
use crate::plan::PlannedModel;
use crate::semantics::limits::{LimitValue, Limits};

/// Warns about each model without a price. Reports an error instead if the directive, its caller or `limits.max` sets
/// `spend` explicitly; a default limit does not count.
pub fn check(
    catalog: &ProviderCatalog<'_>,
    composed: &Composed,
    model: &PlannedModel,
    limits: &Limits,
    given: &[(String, LimitValue)],
    diagnostics: &mut Diagnostics,
) {
    let layers: [&[_]; 2] = [&composed.limits.directive, &composed.limits.ceilings];
    let declared = layers.into_iter().find_map(|layer| layer.iter().rfind(|setting| setting.name == "spend"));
    let wished = declared.is_some() || given.iter().any(|(name, _)| name == "spend");
    let models = [Some(model), model.fallback.as_deref()];
    for model in models.into_iter().flatten().filter(|m| m.prices.is_none() && m.wire != SCRIPTED_WIRE) {
        let unlisted = catalog.check_unlisted(model);
        let is_unlisted = unlisted.is_some();
        diagnostics.extend(unlisted);
        let (model, provider) = (model.id.clone(), model.provider.clone());
        if wished {
            let (limit, span) = (limits.spend.to_string(), declared.and_then(|d| d.source.span));
            diagnostics.push(LimitError::Unpriced { limit, model, provider, span });
        } else if !is_unlisted {
            let span = composed.model.as_ref().and_then(|m| m.origin.span);
            diagnostics.push(ModelError::Unpriced { model, provider, span });
        }
    }
}
