//! Model resolution: finds the model that `<model>`, `--model` or the defaults request in the provider files
//! (`language.md`, Directives). This module sends no request and reads no key.

mod read;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use indexmap::IndexMap;
use rye_grammar::{Span, Spanned};
use serde_json::Value;

use crate::diagnostics::{ModelError, closest};
use crate::item::ModelRequest;
use crate::plan::{PlannedModel, Prices, Sampling, Tokenizer, ToolUse};
pub(crate) use read::{PRICES, WIRE_FORMATS, read_settings};
pub use read::{SCRIPTED_WIRE, read_provider};

/// A provider, merged from the provider files with its id in all spaces.
#[derive(Debug, Clone, PartialEq)]
pub struct Provider {
    pub id: String,
    pub wire: String,
    pub default_tier: Option<String>,
    /// The tiers, each with its model id, in file order.
    pub tiers: IndexMap<String, String>,
    pub models: Vec<Model>,
    /// The keys of the provider file without the tiers and models (such as the address of the server), and the id of
    /// the provider.
    pub connection: Value,
    /// The keys of `connection` that a file of the project sets. Contains `prices` too if files of the project affect
    /// the model prices that a `spend` limit depends on.
    pub from_project: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub id: String,
    pub context_window: u64,
    pub max_output: u64,
    pub tool_use: ToolUse,
    /// True if the model accepts images in messages.
    pub images: bool,
    pub prices: Option<Prices>,
    /// The tokenizer with which the tokens of the model are counted exactly; `None` if the provider file names no
    /// tokenizer.
    pub tokenizer: Option<Tokenizer>,
}

/// The settings file `agent/models`: the default provider and tier for directives that name no model, and the aliases
/// of tiers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelSettings {
    pub default_provider: Option<Spanned<String>>,
    /// True if a file of the project or the user sets the default provider.
    pub is_provider_chosen: bool,
    pub default_tier: Option<String>,
    /// Other names under which tiers can be requested, each with its tier.
    pub aliases: IndexMap<String, String>,
}

/// A request of the command line or of a spawning call for a model. The requested model overrides the model of the
/// directive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelOverride {
    /// A tier or a model id, optionally with its provider: `provider/fast`.
    pub model: Option<String>,
    pub provider: Option<String>,
    pub unlisted: UnlistedModels,
}

/// The rule for a `provider/model` that the provider file does not list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnlistedModels {
    /// Refuses the model. This rule applies to models that a directive names, and to models that a model names in a
    /// call.
    #[default]
    Refuse,
    /// Accepts the model with an unknown price: the user may name any model of a provider.
    Accept,
}

impl ModelOverride {
    /// Creates the override for `model`, which the user names with `--model` or in a chat. If `model` is `None`, the
    /// directive's model remains.
    pub fn of_user(model: Option<String>) -> Self {
        Self { model, provider: None, unlisted: UnlistedModels::Accept }
    }
}

/// A function that takes the id of a provider and reads the provider file. Returns `None` if the file does not exist or
/// is unusable.
pub(crate) type ProviderLoader<'l> = Box<dyn Fn(&str) -> Option<Provider> + 'l>;

/// The providers of all spaces. A provider file is read once, when the provider is first needed.
pub struct ProviderCatalog<'l> {
    pub settings: ModelSettings,
    /// Every provider id, sorted.
    names: Vec<String>,
    read: RefCell<BTreeMap<String, Option<Rc<Provider>>>>,
    load: ProviderLoader<'l>,
}

/// A search in the provider files: the model or tier to find, and the only provider to search, if one is named.
#[derive(Debug, Clone)]
struct ModelQuery {
    name: Option<Spanned<String>>,
    provider: Option<String>,
    /// The span of the provider's name, if a file names it.
    provider_span: Option<Span>,
    span: Option<Span>,
    unlisted: UnlistedModels,
}

impl<'l> ProviderCatalog<'l> {
    pub fn new(settings: ModelSettings, mut names: Vec<String>, load: ProviderLoader<'l>) -> Self {
        names.sort();
        names.dedup();
        Self { settings, names, read: RefCell::default(), load }
    }

    /// Returns true if at least one provider file exists.
    pub(crate) fn has_any(&self) -> bool {
        !self.names.is_empty()
    }

    /// Resolves the model of a thread, and the fallback model if the directive names one. The model is the override,
    /// else the model id that the directive declares, else the tier that the directive declares, else the default in
    /// `agent/models`.
    ///
    /// # Errors
    ///
    /// No provider, model or tier has the requested name. The error lists the known names.
    pub fn resolve(
        &self,
        requested: Option<&ModelRequest>,
        instead: &ModelOverride,
    ) -> Result<PlannedModel, ModelError> {
        let wanted = self.query(requested, instead);
        let mut model = self.find(&wanted)?;
        if let Some(fallback) = requested.and_then(|a| a.fallback.as_ref()) {
            // Prefer a fallback of the model's provider, but accept a fallback of another provider.
            let near = ModelQuery {
                name: Some(fallback.clone()),
                provider: Some(model.provider.clone()),
                provider_span: None,
                span: Some(fallback.span),
                unlisted: UnlistedModels::Refuse,
            };
            let anywhere = ModelQuery { provider: None, ..near.clone() };
            let found = self.find(&near).or_else(|_| self.find(&anywhere))?;
            if (&found.provider, &found.id) != (&model.provider, &model.id) {
                model.fallback = Some(Box::new(found));
            }
        }
        if let Some(requested) = requested {
            model.sampling.clone_from(&requested.sampling);
            if let Some(fallback) = &mut model.fallback {
                fallback.sampling.clone_from(&requested.sampling);
            }
        }
        Ok(model)
    }

    fn query(&self, requested: Option<&ModelRequest>, instead: &ModelOverride) -> ModelQuery {
        if let Some(text) = &instead.model {
            let (provider, name) = match self.split_provider(text) {
                Some((provider, name)) => (Some(provider.to_owned()), name),
                None => (instead.provider.clone(), text.as_str()),
            };
            let name = Some(Spanned::new(name.to_owned(), detached_span()));
            return ModelQuery { name, provider, provider_span: None, span: None, unlisted: instead.unlisted };
        }
        let unlisted = UnlistedModels::Refuse;
        let tier = requested.and_then(|a| a.tier.clone());
        if let Some(provider) = &instead.provider {
            // The directive's model id is valid only at the directive's own provider, but its tier can exist at any
            // provider.
            return ModelQuery {
                name: tier,
                provider: Some(provider.clone()),
                provider_span: None,
                span: None,
                unlisted,
            };
        }
        let name = requested.and_then(|a| a.id.clone()).or(tier);
        let provider = requested.and_then(|a| a.provider.as_ref());
        let span = name.as_ref().map(|n| n.span).or(provider.map(|p| p.span));
        let provider_span = provider.map(|p| p.span);
        ModelQuery { name, provider: provider.map(|p| p.node.clone()), provider_span, span, unlisted }
    }

    /// Splits `provider/model` or `provider/tier` at the slash; `None` if the text has no slash, or if no provider has
    /// the name before the slash.
    fn split_provider<'t>(&self, text: &'t str) -> Option<(&'t str, &'t str)> {
        text.split_once('/').filter(|(provider, _)| self.names.iter().any(|name| name == provider))
    }

    fn find(&self, wanted: &ModelQuery) -> Result<PlannedModel, ModelError> {
        if let Some(provider) = &wanted.provider
            && !self.names.contains(provider)
        {
            let suggestion = closest(provider, self.names.iter().map(String::as_str));
            let (requested, known) = (provider.clone(), self.names.clone());
            return Err(ModelError::NoProvider { requested, span: wanted.provider_span, of: None, suggestion, known });
        }
        let order = self.provider_order(wanted.provider.as_deref());
        let Some(name) = &wanted.name else {
            return self.default_of(&order, wanted);
        };
        for id in &order {
            if let Some(found) = self.provider(id).and_then(|p| p.by_id(&name.node)) {
                return Ok(found);
            }
        }
        let tier = self.settings.aliases.get(&name.node).unwrap_or(&name.node).clone();
        for id in &order {
            if let Some(found) = self.provider(id).and_then(|p| p.by_tier(&tier, &name.node)) {
                return Ok(found);
            }
        }
        if let (UnlistedModels::Accept, Some(provider)) = (wanted.unlisted, &wanted.provider)
            && let Some(found) = self.provider(provider).and_then(|p| p.unlisted(&name.node))
        {
            return Ok(found);
        }
        // The id of a model may contain a slash, so the text before a slash is read as a provider only if no other
        // reading finds a model.
        if wanted.provider.is_none()
            && let Some((provider, rest)) = self.split_provider(&name.node)
        {
            let rest = Some(Spanned::new(rest.to_owned(), name.span));
            return self.find(&ModelQuery { name: rest, provider: Some(provider.to_owned()), ..wanted.clone() });
        }
        let known = self.known_names(&order);
        Err(self.unknown_provider(wanted, &name.node).unwrap_or_else(|| self.unknown_error(wanted, &name.node, known)))
    }

    /// Returns the error for an unknown provider in `name` (such as `anthropc/haiku`). `None` if `name` has no slash,
    /// or if `wanted` names the provider. The id of a model may contain a slash, so the caller uses this error only if
    /// no model or tier has the name.
    fn unknown_provider(&self, wanted: &ModelQuery, name: &str) -> Option<ModelError> {
        let (requested, rest) = name.split_once('/').filter(|_| wanted.provider.is_none())?;
        let near = closest(requested, self.names.iter().map(String::as_str));
        Some(ModelError::NoProvider {
            requested: requested.to_owned(),
            span: wanted.span,
            of: Some(name.to_owned()),
            suggestion: near.map(|near| format!("{near}/{rest}")),
            known: self.names.clone(),
        })
    }

    fn unknown_error(&self, wanted: &ModelQuery, requested: &str, known: Vec<String>) -> ModelError {
        let suggestion = closest(requested, known.iter().map(String::as_str));
        let (provider, span) = (wanted.provider.clone(), wanted.span);
        let is_scripted = provider.as_ref().and_then(|id| self.provider(id)).is_some_and(|p| p.wire == SCRIPTED_WIRE);
        ModelError::Unknown { requested: requested.to_owned(), provider, is_scripted, span, suggestion, known }
    }

    /// Returns a warning if the provider file of a model does not list the model. `None` if the file lists the model,
    /// or if the provider replays a script in place of a model.
    pub(crate) fn check_unlisted(&self, model: &PlannedModel) -> Option<ModelError> {
        let provider = self.provider(&model.provider)?;
        if provider.wire == SCRIPTED_WIRE || provider.models.iter().any(|listed| listed.id == model.id) {
            return None;
        }
        let (context_window, max_output) = (model.context_window, model.max_output);
        let names = provider.models.iter().map(|listed| &listed.id).chain(provider.tiers.keys());
        let suggestion = closest(&model.id, names.chain(self.settings.aliases.keys()).map(String::as_str));
        let (model, provider) = (model.id.clone(), model.provider.clone());
        Some(ModelError::Unlisted { model, provider, context_window, max_output, suggestion })
    }

    fn default_of(&self, order: &[String], wanted: &ModelQuery) -> Result<PlannedModel, ModelError> {
        let tier = self.settings.default_tier.clone();
        if wanted.provider.is_none()
            && let Some(default) = self.chosen_provider()
            && let Some(provider) = self.provider(&default.node)
        {
            // Do not try other providers: the prompts would go to a company that the user did not choose.
            let tier = provider.default_tier.clone().or(tier).unwrap_or_else(|| "general".to_owned());
            return provider.by_tier(&tier, &tier).ok_or_else(|| ModelError::NoDefault {
                provider: default.node.clone(),
                known: provider.tiers.keys().cloned().collect(),
                tier,
                span: default.span,
            });
        }
        for id in order {
            let found = self.provider(id).and_then(|p| {
                let tier = p.default_tier.clone().or(tier.clone())?;
                p.by_tier(&tier, &tier)
            });
            if let Some(found) = found {
                return Ok(found);
            }
        }
        let known = self.known_names(order);
        Err(self.unknown_error(wanted, tier.as_deref().unwrap_or("general"), known))
    }

    /// Returns the default provider that a file of the project or the user sets; `None` if no such file sets one, or if
    /// the provider does not exist.
    pub(crate) fn chosen_provider(&self) -> Option<&Spanned<String>> {
        let chosen = self.settings.default_provider.as_ref().filter(|_| self.settings.is_provider_chosen);
        chosen.filter(|provider| self.names.contains(&provider.node))
    }

    /// Returns the ids of the providers in which a name is searched, in order: only `provider` if it is set, else the
    /// default provider and then all other providers.
    fn provider_order(&self, provider: Option<&str>) -> Vec<String> {
        if let Some(provider) = provider {
            return vec![provider.to_owned()];
        }
        let first = self.settings.default_provider.as_ref().map(|p| &p.node).filter(|p| self.names.contains(p));
        let rest = self.names.iter().filter(|n| Some(*n) != first);
        first.into_iter().chain(rest).cloned().collect()
    }

    /// Reads a provider file even if no directive uses it, so that the loader reports its errors.
    pub fn load(&self, id: &str) {
        self.provider(id);
    }

    /// Returns the tiers of all providers, sorted.
    pub fn tiers(&self) -> Vec<String> {
        let providers = self.names.iter().filter_map(|id| self.provider(id));
        let all: BTreeSet<String> = providers.flat_map(|p| p.tiers.keys().cloned().collect::<Vec<_>>()).collect();
        all.into_iter().collect()
    }

    /// Returns the names of the providers whose files were read so far, sorted.
    pub fn loaded(&self) -> Vec<String> {
        self.read.borrow().keys().cloned().collect()
    }

    fn provider(&self, id: &str) -> Option<Rc<Provider>> {
        if let Some(known) = self.read.borrow().get(id) {
            return known.clone();
        }
        let provider = (self.load)(id).map(Rc::new);
        self.read.borrow_mut().insert(id.to_owned(), provider.clone());
        provider
    }

    /// Returns the tiers and model ids of the providers in `order`, and the aliases of the settings. Each name occurs
    /// once.
    fn known_names(&self, order: &[String]) -> Vec<String> {
        let mut known: Vec<String> = Vec::new();
        for id in order {
            if let Some(provider) = self.provider(id) {
                known.extend(provider.tiers.keys().cloned());
                known.extend(provider.models.iter().map(|m| m.id.clone()));
            }
        }
        // An alias of a tier counts only if one of these providers has the tier.
        let has_tier =
            |tier: &String| order.iter().filter_map(|id| self.provider(id)).any(|p| p.tiers.contains_key(tier));
        known.extend(self.settings.aliases.iter().filter(|(_, tier)| has_tier(tier)).map(|(alias, _)| alias.clone()));
        let mut seen = BTreeSet::new();
        known.retain(|k| seen.insert(k.clone()));
        known
    }
}

/// Returns an empty span that refers to no file, for names that do not come from a file.
fn detached_span() -> Span {
    Span::new(rye_grammar::SourceId(u32::MAX), 0, 0)
}

impl Provider {
    fn by_id(&self, id: &str) -> Option<PlannedModel> {
        self.models.iter().find(|m| m.id == id).map(|m| self.planned(m, id))
    }

    fn by_tier(&self, tier: &str, requested: &str) -> Option<PlannedModel> {
        let id = self.tiers.get(tier)?;
        if let Some(model) = self.models.iter().find(|m| m.id == *id) {
            return Some(self.planned(model, requested));
        }
        // The scripted provider can simulate a model of any id. For other wire formats, the tiers were checked when the
        // file was read.
        (self.wire == read::SCRIPTED_WIRE).then(|| self.planned(&read::scripted_model(id), requested))
    }

    /// Returns the plan of a model that the provider file does not list. The model gets the smallest context window and
    /// the smallest reply length of the listed models. `None` if the file lists no model, or if the provider replays a
    /// script.
    fn unlisted(&self, id: &str) -> Option<PlannedModel> {
        if self.wire == SCRIPTED_WIRE {
            return None;
        }
        let context_window = self.models.iter().map(|m| m.context_window).min()?;
        let max_output = self.models.iter().map(|m| m.max_output).min()?.min(context_window);
        let (id, tool_use, images) = (id.to_owned(), ToolUse::Native, true);
        let model = Model { id, context_window, max_output, tool_use, images, prices: None, tokenizer: None };
        Some(self.planned(&model, &model.id))
    }

    fn planned(&self, model: &Model, requested: &str) -> PlannedModel {
        PlannedModel {
            provider: self.id.clone(),
            wire: self.wire.clone(),
            id: model.id.clone(),
            requested: requested.to_owned(),
            fallback: None,
            context_window: model.context_window,
            max_output: model.max_output,
            prices: model.prices,
            counted_by: model.tokenizer.unwrap_or_default().available(),
            tokenizer: model.tokenizer,
            tool_use: model.tool_use,
            images: model.images,
            sampling: Sampling::default(),
            connection: self.connection.clone(),
            from_project: self.from_project.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
