//! Checks of a directive's `<model>`, and the model ids that conditions can compare with.

use rye_grammar::data::Node;

use crate::compose::Composed;
use crate::diagnostics::{Diagnostics, ModelError, closest};
use crate::item::{Items, ModelRequest};
use crate::lower::cache::PROVIDER_PREFIX;
use crate::model::{ModelOverride, ProviderCatalog};
use crate::world::ItemKind;

/// Reports a declared fallback that is the model of the directive itself, and therefore useless.
pub fn check_fallback(catalog: &ProviderCatalog<'_>, composed: &Composed, found: &mut Diagnostics) {
    let Some(requested) = composed.leaf().and_then(|leaf| leaf.model.as_ref()) else { return };
    let Some(fallback) = &requested.fallback else { return };
    // Unknown models and fallbacks are reported when they are resolved.
    let Ok(model) = catalog.resolve(Some(requested), &ModelOverride::default()) else { return };
    if model.fallback.is_none() {
        let (fallback, span) = (fallback.node.clone(), fallback.span);
        found.push(ModelError::SameFallback { fallback, model: model.id, span });
    }
}

/// Reports a requested tier that the chosen default provider does not have. A model of another provider is then used.
pub fn check_provider(catalog: &ProviderCatalog<'_>, composed: &Composed, found: &mut Diagnostics) {
    let Some(requested) = composed.leaf().and_then(|leaf| leaf.model.as_ref()) else { return };
    check_two_models(catalog, requested, found);
    let Some(tier) = requested.tier.as_ref().filter(|_| requested.id.is_none() && requested.provider.is_none()) else {
        return;
    };
    let Some(default) = catalog.chosen_provider() else { return };
    let Ok(model) = catalog.resolve(Some(requested), &ModelOverride::default()) else { return };
    // A tier of the form `PROVIDER/TIER` names its provider.
    if model.provider != default.node && !tier.node.contains('/') {
        found.push(ModelError::OtherProvider {
            tier: tier.node.clone(),
            default: default.node.clone(),
            provider: model.provider,
            model: model.id,
            span: tier.span,
            default_span: default.span,
        });
    }
}

/// Reports a `<model>` whose tier and id stand for different models.
fn check_two_models(catalog: &ProviderCatalog<'_>, requested: &ModelRequest, found: &mut Diagnostics) {
    let (Some(id), Some(tier)) = (&requested.id, &requested.tier) else { return };
    let by_tier = ModelRequest { id: None, ..requested.clone() };
    let Ok(of_id) = catalog.resolve(Some(requested), &ModelOverride::default()) else { return };
    let Ok(of_tier) = catalog.resolve(Some(&by_tier), &ModelOverride::default()) else { return };
    if of_id.id != of_tier.id {
        found.push(ModelError::TwoModels {
            id: id.node.clone(),
            tier: tier.node.clone(),
            model: of_tier.id,
            span: tier.span,
            id_span: id.span,
        });
    }
}

/// The models of every provider file: the ids that the fact `model` can have, and the tiers and aliases that stand for
/// ids.
pub struct ModelIds {
    ids: Vec<String>,
    /// Tiers and aliases, each with a model id. If several providers declare the same name, the first entry with the
    /// name applies; the entries of the default provider come first.
    names: Vec<(String, String)>,
    largest_request: Option<u64>,
}

impl ModelIds {
    pub fn read(items: &Items<'_>) -> Self {
        let mut all = Self { ids: Vec::new(), names: Vec::new(), largest_request: None };
        let text = |node: &Node| node.as_str().map(str::to_owned);
        let settings = items.config_by_name("agent/models");
        let default = settings.as_ref().and_then(|node| text(node.get("default_provider")?));
        let default = default.map(|name| format!("{PROVIDER_PREFIX}{name}"));
        let list = items.list(ItemKind::Config);
        let mut files: Vec<_> =
            list.iter().filter(|e| e.id.as_str().starts_with(PROVIDER_PREFIX)).map(|e| &e.id).collect();
        files.dedup();
        files.sort_by_key(|id| default.as_deref() != Some(id.as_str()));
        for node in files.into_iter().filter_map(|id| items.config(id)) {
            for model in node.get("models").map(Node::items).unwrap_or_default() {
                all.ids.extend(model.get("id").and_then(text));
                let tokens = |key: &str| model.get(key).and_then(|node| node.to_value().as_u64()).unwrap_or(0);
                let request = tokens("context_window").saturating_add(tokens("max_output"));
                all.largest_request = all.largest_request.max(Some(request));
            }
            for tier in node.get("tiers").map(Node::entries).unwrap_or_default() {
                if let Some(id) = text(&tier.value) {
                    all.ids.push(id.clone());
                    all.names.push((tier.key.node.clone(), id));
                }
            }
        }
        for alias in settings.iter().filter_map(|node| node.get("aliases")).flat_map(Node::entries) {
            let meant = alias.value.as_str().and_then(|tier| all.resolve_tier(tier)).map(str::to_owned);
            all.names.extend(meant.map(|id| (alias.key.node.clone(), id)));
        }
        all
    }

    /// Returns the maximum tokens of one request to a listed model, including its reply; `None` if no model is listed.
    pub fn largest_request(&self) -> Option<u64> {
        self.largest_request
    }

    pub fn has(&self, text: &str) -> bool {
        self.ids.iter().any(|id| id == text)
    }

    /// Suggests a model id for a text that is no model id: the model of the tier or alias that the text names, else the
    /// id closest to the text. `None` if no id is close.
    pub fn suggestion(&self, text: &str) -> Option<String> {
        let of_tier = self.resolve_tier(text).map(str::to_owned);
        of_tier.or_else(|| closest(text, self.ids.iter().map(String::as_str)))
    }

    /// Returns true if a text names a tier or an alias.
    pub fn is_tier(&self, text: &str) -> bool {
        self.resolve_tier(text).is_some()
    }

    fn resolve_tier(&self, name: &str) -> Option<&str> {
        self.names.iter().find(|(known, _)| known == name).map(|(_, id)| id.as_str())
    }
}
