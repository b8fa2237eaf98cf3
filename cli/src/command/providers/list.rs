//! `rye providers list`: lists the providers with keys, models and prices.

use std::fmt::Write as _;

use indexmap::IndexMap;
use rye_compiler::diagnostics::Diagnostics;
use rye_compiler::item::Items;
use rye_compiler::model;
use rye_compiler::semantics::money::Nanos;
use rye_engine::provider::catalog::{ModelDefinition, ProviderDefinition, ToolUse};
use rye_engine::provider::environment::ProviderEnvironment;
use schemars::JsonSchema;
use serde::Serialize;

use super::{PROVIDER_FOLDER, default_provider, print_diagnostics, provider_ids};
use crate::CommandError;
use crate::exit::Exit;
use crate::options::Format;
use crate::present::{BOLD, DIM};
use crate::report::{Printer, printable};
use crate::workspace::Spaces;

/// Output of `rye providers list --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProvidersOutput {
    pub providers: Vec<ProviderOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ProviderOutput {
    pub id: String,
    /// True for the provider that is used if a directive names no provider.
    pub default: bool,
    pub wire: String,
    /// Base URL of the provider; empty for `scripted`.
    pub base_url: String,
    pub key_env: Option<String>,
    /// State of the key: `set`, `missing`, or `none` if the provider needs no key.
    pub key: String,
    /// Settings that a file of the project sets. If there are any, a key is sent to the provider only after
    /// `rye trust`.
    pub from_project: Vec<String>,
    pub default_tier: Option<String>,
    /// Id of the model of each tier.
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub tiers: IndexMap<String, String>,
    pub models: Vec<ModelOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ModelOutput {
    pub id: String,
    /// Size of the context window in tokens.
    pub context_window: u64,
    /// Maximum output tokens of a reply.
    pub max_output: u64,
    /// The form of the model's tool calls: `native` (tool calls of the API) or `text_parsed` (calls in the text of a
    /// reply).
    pub tool_use: String,
    /// Dollars per million tokens, as written: `input`, `output`, `cache_read`, `cache_write`. Null if the price is
    /// unknown, so that only tokens are counted.
    #[schemars(with = "Option<std::collections::BTreeMap<String, String>>")]
    pub prices: Option<IndexMap<String, String>>,
    pub priced_at: Option<String>,
    pub source: Option<String>,
}

pub fn run(spaces: &Spaces, report: &Printer) -> Result<Exit, CommandError> {
    print_providers(spaces, &|_, _| true, report)
}

/// Lists only the given models. Each entry of `models` is a provider and a model id.
pub fn print_models(spaces: &Spaces, models: &[(String, String)], report: &Printer) -> Result<Exit, CommandError> {
    print_providers(spaces, &|provider, id| models.iter().any(|(of, model)| of == provider && model == id), report)
}

/// Lists the providers, each with the models that `is_selected` accepts. `is_selected` gets the id of the provider and
/// the id of the model. A provider without an accepted model is listed only if `is_selected` accepts an empty model id.
fn print_providers(
    spaces: &Spaces,
    is_selected: &dyn Fn(&str, &str) -> bool,
    report: &Printer,
) -> Result<Exit, CommandError> {
    let world = spaces.open()?;
    let items = Items::new(&world);
    let environment = ProviderEnvironment::read(spaces.user.as_deref())?;
    let default = default_provider(&items);
    let mut diagnostics = Diagnostics::new();
    let mut providers = Vec::new();
    for id in provider_ids(&items) {
        let Some(node) = items.config_by_name(&format!("{PROVIDER_FOLDER}{id}")) else { continue };
        let Some(read) = model::read_provider(&id, &node, &items.sources(), &mut diagnostics) else { continue };
        let Ok(definition) = ProviderDefinition::from_value(&node.to_value()) else { continue };
        let settings = definition.settings(&environment, &spaces.project);
        let key = match (&definition.key_env, &settings.key) {
            (None, _) => "none",
            (Some(_), Some(_)) => "set",
            (Some(_), None) => "missing",
        };
        let models: Vec<ModelOutput> =
            definition.models.iter().filter(|model| is_selected(&id, &model.id)).map(ModelOutput::new).collect();
        if models.is_empty() && !is_selected(&id, "") {
            continue;
        }
        providers.push(ProviderOutput {
            default: default.as_ref() == Some(&id),
            id,
            wire: read.wire,
            base_url: settings.base_url,
            key_env: definition.key_env,
            key: key.to_owned(),
            from_project: read.from_project,
            default_tier: definition.default_tier,
            tiers: definition.tiers,
            models,
        });
    }
    diagnostics.append(items.diagnostics());
    let wrong = diagnostics.has_errors();
    print_diagnostics(&diagnostics, items, report);
    match report.format() {
        Format::Json => report.json(&ProvidersOutput { providers })?,
        Format::Plain => {
            for provider in &providers {
                for line in format_plain(provider) {
                    report.line(&printable(&line))?;
                }
            }
        }
        Format::Human => {
            for provider in &providers {
                report.line(&format_human(provider))?;
            }
        }
    }
    Ok(if wrong { Exit::Failed } else { Exit::Success })
}

impl ModelOutput {
    fn new(model: &ModelDefinition) -> Self {
        let prices = model.prices.as_ref().map(|prices| {
            let cache = |name: &str, price: &Option<String>| price.clone().map(|price| (name.to_owned(), price));
            let named = [("input", &prices.input), ("output", &prices.output)];
            let named = named.into_iter().map(|(name, price)| (name.to_owned(), price.clone()));
            let cached = [cache("cache_read", &prices.cache_read), cache("cache_write", &prices.cache_write)];
            named.chain(cached.into_iter().flatten()).collect()
        });
        let tool_use = match model.tool_use {
            ToolUse::Native => "native",
            ToolUse::TextParsed => "text_parsed",
        };
        Self {
            id: model.id.clone(),
            context_window: model.context_window,
            max_output: model.max_output,
            tool_use: tool_use.to_owned(),
            prices,
            priced_at: model.priced_at.clone(),
            source: model.source.clone(),
        }
    }

    /// Formats the prices, in dollars per million tokens, with their date: `$0.10 in, $0.50 out (2026-11-21)`. For a
    /// model without prices, returns a text that states this.
    fn price(&self) -> String {
        let Some(prices) = &self.prices else { return "no price: only tokens are counted".to_owned() };
        let shown = |name: &str| {
            let price = prices.get(name).map_or("?", String::as_str);
            // Prices that are not decimals are printed as written.
            Nanos::parse(price).map_or_else(|_| price.to_owned(), |price| format!("${price}"))
        };
        let day = self.priced_at.as_ref().map(|day| format!(" ({day})")).unwrap_or_default();
        format!("{} in, {} out{day}", shown("input"), shown("output"))
    }

    fn line(&self) -> String {
        let words = if self.tool_use == "native" { "" } else { ", text tools" };
        format!("{} context, {} output, {}{words}", self.context_window, self.max_output, self.price())
    }
}

fn format_key(provider: &ProviderOutput) -> String {
    match (&provider.key_env, provider.key.as_str()) {
        (Some(variable), "set") => format!("{variable} is set"),
        (Some(variable), _) => format!("{variable} is not set"),
        (None, _) => "no key needed".to_owned(),
    }
}

/// Returns the tiers that select this model.
fn format_tiers(provider: &ProviderOutput, model: &str) -> String {
    let tiers = provider.tiers.iter().filter(|(_, id)| *id == model).map(|(tier, _)| tier.as_str());
    tiers.collect::<Vec<_>>().join(" ")
}

fn format_plain(provider: &ProviderOutput) -> Vec<String> {
    let ProviderOutput { id, wire, base_url, .. } = provider;
    let mut lines = vec![format!("provider\t{id}\t{wire}\t{base_url}\t{}", format_key(provider))];
    let model = |m: &ModelOutput| format!("model\t{id}/{}\t{}\t{}", m.id, format_tiers(provider, &m.id), m.line());
    lines.extend(provider.models.iter().map(model));
    lines
}

fn format_human(provider: &ProviderOutput) -> String {
    let ProviderOutput { id, wire, base_url, .. } = provider;
    let default = if provider.default { " (default)" } else { "" };
    let address = if base_url.is_empty() { String::new() } else { format!("  {base_url}") };
    let mut out = format!(
        "{BOLD}{}{BOLD:#}{default}  {DIM}{wire}{}  {}{DIM:#}",
        printable(id),
        printable(&address),
        printable(&format_key(provider))
    );
    if !provider.from_project.is_empty() {
        let keys = provider.from_project.join("`, `");
        write!(out, "\n  set by the project: `{}`", printable(&keys)).ok();
    }
    let width = provider.models.iter().map(|model| model.id.chars().count()).max().unwrap_or(0);
    for model in &provider.models {
        let tiers = printable(&format_tiers(provider, &model.id));
        let (id, line) = (printable(&model.id), printable(&model.line()));
        write!(out, "\n  {id:<width$}  {DIM}{tiers:<12}{DIM:#} {line}").ok();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_output_replaces_control_characters_of_a_provider_file() {
        let text = |name: &str| format!("{name}\u{202e}");
        let price = IndexMap::from([("input".to_owned(), text("1")), ("output".to_owned(), text("2"))]);
        let model = ModelOutput {
            id: text("m"),
            context_window: 1,
            max_output: 1,
            tool_use: "native".to_owned(),
            prices: Some(price),
            priced_at: Some(text("day")),
            source: None,
        };
        let provider = ProviderOutput {
            default: false,
            id: text("p"),
            wire: "anthropic".to_owned(),
            base_url: text("http://a"),
            key_env: Some(text("KEY")),
            key: "set".to_owned(),
            from_project: vec![text("tiers")],
            default_tier: None,
            tiers: IndexMap::from([(text("general"), text("m"))]),
            models: vec![model],
        };
        let shown = format_human(&provider);
        assert!(shown.contains("general\u{fffd}") && shown.contains("KEY\u{fffd}"), "{shown}");
        assert!(!shown.contains('\u{202e}'), "{shown}");
    }
}
