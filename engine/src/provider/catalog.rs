//! Provider files as data (see the providers reference), and the connection settings made from them.
//!
//! The compiler selects provider and model (`PlannedModel`). This module combines the model's `connection` (the merged
//! provider file) with the environment.

use std::path::Path;

use indexmap::IndexMap;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::environment::ProviderEnvironment;
use super::settings::{ApiKey, KeyHeader, MaxTokensField, ProviderSettings, Timeouts, Wire};
use crate::exchange::{CallError, FailedStage};

/// The content of a provider file, merged from all spaces that contain the file.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct ProviderDefinition {
    pub id: String,
    pub wire: Wire,
    #[serde(default)]
    pub base_url: String,
    /// The environment variable that overrides `base_url`, if the file names one.
    #[serde(default)]
    pub base_url_env: Option<String>,
    /// The environment variable that holds the key; `None` if no key is needed.
    #[serde(default)]
    pub key_env: Option<String>,
    /// `authorization` (as a bearer token, the default) or the name of a header that holds the key alone.
    #[serde(default = "default_key_header")]
    pub key_header: KeyHeader,
    #[serde(default)]
    pub max_tokens_field: MaxTokensField,
    /// For the wire format `openai-responses`: true if requests ask for encrypted reasoning. Models that do not reason
    /// refuse such a request.
    #[serde(default = "default_true")]
    pub encrypted_reasoning: bool,
    /// For the wire format `scripted`: the path of the script, relative to the project root.
    #[serde(default)]
    pub script: Option<String>,
    #[serde(default)]
    pub default_tier: Option<String>,
    #[serde(default)]
    pub tiers: IndexMap<String, String>,
    #[serde(default)]
    pub models: Vec<ModelDefinition>,
}

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct ModelDefinition {
    pub id: String,
    /// Size of the context window, in tokens.
    pub context_window: u64,
    /// Maximum output of a request, in tokens.
    pub max_output: u64,
    #[serde(default)]
    pub tool_use: ToolUse,
    /// True if a message may contain images.
    #[serde(default = "default_true")]
    pub images: bool,
    /// The prices of the model; `None` if they are unknown. A model that is declared to be free has
    /// [`PriceTable::none`].
    #[serde(default, deserialize_with = "priced")]
    pub prices: Option<PriceTable>,
    /// The date on which the prices were looked up, as `YYYY-MM-DD`; `None` if the provider file states no date.
    #[serde(default)]
    pub priced_at: Option<String>,
    #[serde(default)]
    pub source: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolUse {
    #[default]
    Native,
    /// The model has no native tools, so calls are parsed from its text.
    TextParsed,
}

/// Dollars per million tokens, as decimal text. Omitted prices default to `input`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct PriceTable {
    #[serde(deserialize_with = "decimal")]
    pub input: String,
    #[serde(deserialize_with = "decimal")]
    pub output: String,
    #[serde(default, deserialize_with = "optional_decimal")]
    pub cache_read: Option<String>,
    #[serde(default, deserialize_with = "optional_decimal")]
    pub cache_write: Option<String>,
    /// The prices of a request whose whole prompt has more than `above` tokens; `None` if the prices do not depend on
    /// the length of the prompt.
    #[serde(default, deserialize_with = "long_prompt")]
    pub long_prompt: Option<LongPromptPrices>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct LongPromptPrices {
    pub above: u64,
    #[serde(deserialize_with = "decimal")]
    pub input: String,
    #[serde(deserialize_with = "decimal")]
    pub output: String,
    #[serde(default, deserialize_with = "optional_decimal")]
    pub cache_read: Option<String>,
    #[serde(default, deserialize_with = "optional_decimal")]
    pub cache_write: Option<String>,
}

impl ProviderDefinition {
    /// Reads the definition of a provider from the content of its file.
    ///
    /// # Errors
    /// [`FailedStage::Setup`] if `value` is not a provider file. `rye check` reports the details.
    pub fn from_value(value: &Value) -> Result<Self, CallError> {
        let name = value.get("id").and_then(Value::as_str).unwrap_or("?");
        Self::deserialize(value).map_err(|error| {
            CallError::new(FailedStage::Setup, format!("the file of provider `{name}` cannot be used: {error}"))
        })
    }

    pub fn model(&self, id: &str) -> Option<&ModelDefinition> {
        self.models.iter().find(|model| model.id == id)
    }

    /// Returns the connection settings of this file, with the key and the base URL from the environment.
    pub fn settings(&self, environment: &ProviderEnvironment, project_root: &Path) -> ProviderSettings {
        let variable = |name: &Option<String>| name.as_deref().and_then(|name| environment.get(name));
        ProviderSettings {
            id: self.id.clone(),
            wire: self.wire,
            base_url: variable(&self.base_url_env).unwrap_or_else(|| self.base_url.clone()),
            key: variable(&self.key_env).map(ApiKey::new),
            key_env: self.key_env.clone(),
            key_header: self.key_header.clone(),
            max_tokens_field: self.max_tokens_field,
            encrypted_reasoning: self.encrypted_reasoning,
            script: self.script.as_ref().map(|path| project_root.join(path)),
            timeouts: Timeouts::default(),
        }
    }
}

/// Returns the settings of a plan's `connection`.
///
/// # Errors
/// The errors of [`ProviderDefinition::from_value`].
pub(crate) fn connection_settings(
    connection: &Value,
    environment: &ProviderEnvironment,
    project_root: &Path,
) -> Result<ProviderSettings, CallError> {
    Ok(ProviderDefinition::from_value(connection)?.settings(environment, project_root))
}

fn default_true() -> bool {
    true
}

fn default_key_header() -> KeyHeader {
    KeyHeader::Bearer
}

impl PriceTable {
    /// Returns the prices of a free model, which a file declares as `prices: none`.
    pub fn none() -> Self {
        let (input, output) = ("0".to_owned(), "0".to_owned());
        Self { input, output, cache_read: None, cache_write: None, long_prompt: None }
    }
}

fn priced<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PriceTable>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    if value.as_str() == Some("none") {
        return Ok(Some(PriceTable::none()));
    }
    Option::deserialize(value).map_err(serde::de::Error::custom)
}

/// Reads the prices of long prompts. `none` removes the prices of long prompts that a lower space's file declares.
fn long_prompt<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<LongPromptPrices>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    if value.as_str() == Some("none") { Ok(None) } else { Option::deserialize(value).map_err(serde::de::Error::custom) }
}

/// Reads a price as decimal text. A number becomes its shortest decimal text, so that prices are never calculated with
/// floating-point numbers.
fn decimal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            Err(serde::de::Error::custom("a price must be a decimal such as \"0.25\""))
        }
    }
}

fn optional_decimal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    decimal(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use rye_compiler::semantics::money::Nanos;
    use rye_grammar::{Source, Sources, yaml};

    use super::*;
    use crate::exchange::FailedStage;
    use crate::provider::connect_provider;

    fn read(path: &str) -> Value {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../stdlib/.ai/config/agent").join(path);
        let text = std::fs::read_to_string(path).unwrap();
        let mut sources = Sources::default();
        let source = sources.add(Source::new("test", text.clone()));
        let parsed = yaml::parse(source, &text);
        assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
        parsed.tree.to_value()
    }

    fn standard() -> Vec<ProviderDefinition> {
        ["anthropic", "openai", "scripted", "openai-responses", "gemini"]
            .map(|id| {
                let definition = ProviderDefinition::from_value(&read(&format!("providers/{id}.yaml"))).unwrap();
                assert_eq!(definition.id, id);
                definition
            })
            .to_vec()
    }

    #[test]
    fn standard_provider_files_are_complete() {
        let decimal = |text: &str| Nanos::parse(text).is_ok_and(|price| price > Nanos(0));
        for definition in standard() {
            let ids: BTreeSet<&str> = definition.models.iter().map(|model| model.id.as_str()).collect();
            assert_eq!(ids.len(), definition.models.len(), "{}", definition.id);
            for tier in ["fast", "general", "high", "max"] {
                assert!(definition.model(&definition.tiers[tier]).is_some(), "{tier} of {}", definition.id);
            }
            assert!(definition.tiers.contains_key(definition.default_tier.as_ref().unwrap()));
            for model in &definition.models {
                let prices = model.prices.as_ref().unwrap();
                assert!(model.max_output <= model.context_window && model.max_output > 0);
                assert!(model.source.is_some() && model.priced_at.as_ref().is_some_and(|day| day.len() == 10));
                for price in [Some(&prices.input), Some(&prices.output), prices.cache_read.as_ref()] {
                    assert!(decimal(price.unwrap()), "{} {price:?}", model.id);
                }
            }
        }
    }

    #[test]
    fn every_alias_is_a_tier_of_every_provider() {
        let models = read("models.yaml");
        for definition in standard() {
            for (alias, tier) in models["aliases"].as_object().unwrap() {
                assert!(definition.tiers.contains_key(tier.as_str().unwrap()), "{alias} in {}", definition.id);
            }
        }
    }

    #[test]
    fn the_environment_adds_key_and_base_url() {
        let definition = &standard()[0];
        let environment = ProviderEnvironment::fixed([
            ("ANTHROPIC_API_KEY".to_owned(), "k\n".to_owned()),
            ("ANTHROPIC_BASE_URL".to_owned(), "http://localhost:1".to_owned()),
        ]);
        let settings = definition.settings(&environment, Path::new("p"));
        assert_eq!(settings.key, Some(ApiKey::new("k")));
        assert_eq!(settings.base_url, "http://localhost:1");
        assert_eq!(settings.key_header, KeyHeader::Named("x-api-key".to_owned()));
        let bare = definition.settings(&ProviderEnvironment::fixed([]), Path::new("p"));
        assert_eq!(bare.base_url, "https://api.anthropic.com");
        let Err(error) = connect_provider(&bare) else { panic!("connected without a key") };
        assert_eq!(error.stage, FailedStage::Setup);
        assert!(error.message.contains("`ANTHROPIC_API_KEY`"));
    }

    #[test]
    fn other_standard_providers_load() {
        let all = standard();
        let settings = |n: usize| all[n].settings(&ProviderEnvironment::fixed([]), Path::new("p"));
        assert_eq!(settings(1).max_tokens_field, MaxTokensField::MaxCompletionTokens);
        assert_eq!(settings(1).key_header, KeyHeader::Bearer);
        assert_eq!(settings(2).script, Some(Path::new("p").join("script.yaml")));
        assert_eq!(settings(2).key_env, None);
        assert_eq!(settings(3).wire, Wire::OpenaiResponses);
        assert!(settings(3).encrypted_reasoning);
        assert_eq!(settings(4).key_header, KeyHeader::Named("x-goog-api-key".to_owned()));
    }

    /// Checks every provider file in the providers reference.
    #[test]
    fn documented_examples_are_valid_provider_files() {
        let page =
            std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/providers.md"))
                .unwrap();
        let mut ids = Vec::new();
        for block in page.split("```yaml\n").skip(1) {
            let text = block.split("```").next().unwrap().to_owned();
            let mut sources = Sources::default();
            let source = sources.add(Source::new("docs/reference/providers.md", text.clone()));
            let parsed = yaml::parse(source, &text);
            assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
            let definition = ProviderDefinition::from_value(&parsed.tree.to_value()).unwrap();
            let mut diagnostics = rye_compiler::diagnostics::Diagnostics::new();
            rye_compiler::model::read_provider(&definition.id, &parsed.tree, &sources, &mut diagnostics).unwrap();
            assert!(!diagnostics.has_errors(), "{text}");
            let environment = definition.key_env.clone().map(|name| (name, "k".to_owned()));
            assert!(
                connect_provider(&definition.settings(&ProviderEnvironment::fixed(environment), Path::new("p")))
                    .is_ok()
            );
            ids.push(definition.id);
        }
        for id in ["local", "ollama", "llama-cpp", "vllm", "openrouter", "groq", "words"] {
            assert!(ids.iter().any(|known| known == id), "{id} of {ids:?}");
        }
    }

    #[test]
    fn prices_accept_numbers_and_reject_invalid_text() {
        let model = |prices: Value| {
            serde_json::json!({
                "id": "x", "wire": "openai-chat",
                "models": [{"id": "m", "context_window": 1, "max_output": 1, "prices": prices}],
            })
        };
        let read = |prices| ProviderDefinition::from_value(&model(prices));
        let prices = read(serde_json::json!({"input": 0.1, "output": 2})).unwrap().models[0].prices.clone().unwrap();
        assert_eq!((prices.input.as_str(), prices.output.as_str()), ("0.1", "2"));
        let error = read(serde_json::json!({"input": [], "output": 2})).unwrap_err();
        assert!(error.message.starts_with("the file of provider `x` cannot be used: "), "{}", error.message);
        assert!(ProviderDefinition::from_value(&serde_json::json!({"id": "x", "wire": "morse"})).is_err());
        let free = ProviderDefinition::from_value(&model(serde_json::json!("none"))).unwrap();
        assert_eq!(free.models[0].prices, Some(PriceTable::none()));
        assert!(read(serde_json::json!("free")).is_err());
    }
}
