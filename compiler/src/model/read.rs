//! Reads provider files and `agent/models` from their merged data. Errors become `config::invalid`.

use indexmap::IndexMap;
use rye_grammar::data::{Kind, Node};
use rye_grammar::{Sources, Span, Spanned};
use serde_json::Value;

use super::{Model, ModelSettings, Provider};
use crate::diagnostics::{ConfigError, Diagnostics, closest};
use crate::plan::{LongPromptPrices, Prices, Tokenizer, ToolUse};
use crate::semantics::money::Nanos;

/// The wire format that replays a script.
pub const SCRIPTED_WIRE: &str = "scripted";
/// The supported wire formats of requests and streams.
pub(crate) const WIRE_FORMATS: [&str; 5] = ["anthropic", "openai-chat", "openai-responses", "gemini", SCRIPTED_WIRE];
/// The value of `prices` for a model whose cost counts as zero.
const NO_PRICE: &str = "none";
/// Keys of a provider file that describe its models and not the connection.
const CATALOG_KEYS: [&str; 3] = ["default_tier", "tiers", "models"];

/// The entry of [`Provider::from_project`] that states that the project sets prices.
pub(crate) const PRICES: &str = "prices";

/// Returns a model for a script of a simulated provider that describes no model: large limits, no prices.
pub fn scripted_model(id: &str) -> Model {
    let (context_window, max_output, tool_use) = (200_000, 32_000, ToolUse::Native);
    Model { id: id.to_owned(), context_window, max_output, tool_use, images: true, prices: None, tokenizer: None }
}

/// Reads `agent/models`. Adds no defaults for missing settings.
pub(crate) fn read_settings(node: &Node, diagnostics: &mut Diagnostics) -> ModelSettings {
    let mut reader = ProviderReader { file: "agent/models", diagnostics };
    let default_provider = reader.text(node, "default_provider");
    ModelSettings {
        default_provider: default_provider
            .zip(node.get("default_provider"))
            .map(|(name, n)| Spanned::new(name, n.span)),
        is_provider_chosen: false,
        default_tier: reader.text(node, "default_tier"),
        aliases: reader.texts(node, "aliases"),
    }
}

/// Reads the provider file `agent/providers/<id>`; `None` if it is unusable.
pub fn read_provider(id: &str, node: &Node, sources: &Sources, diagnostics: &mut Diagnostics) -> Option<Provider> {
    let file = format!("agent/providers/{id}");
    let mut reader = ProviderReader { file: &file, diagnostics };
    let Some(wire) = node.get("wire") else {
        reader.invalid("wire", "missing", &expected_wires(), Some(node.span));
        return None;
    };
    let Some(wire_name) = wire.as_str().filter(|w| WIRE_FORMATS.contains(w)) else {
        let found = wire.as_str().map_or_else(|| wire.describe().to_owned(), |w| format!("`{w}`"));
        reader.invalid("wire", &found, &expected_wires(), Some(wire.span));
        return None;
    };
    let models: Vec<Model> = match node.get("models") {
        Some(models) => models.items().iter().filter_map(|m| reader.model(m)).collect(),
        None => Vec::new(),
    };
    let tiers = reader.texts(node, "tiers");
    let is_scripted = wire_name == SCRIPTED_WIRE;
    for (tier, model) in &tiers {
        let span = node.get("tiers").and_then(|t| t.get(tier)).map(|n| n.span);
        // A script can stand for a model that no file describes, so a tier may name it. If the file of the tier lists
        // models, a tier with another model is an error.
        let listed = node.get("models").filter(|list| !list.items().is_empty()).map(|list| list.span.source);
        let may_be_unlisted = is_scripted && (listed.is_none() || listed != span.map(|span| span.source));
        if !may_be_unlisted && models.iter().all(|m| m.id != *model) {
            let near = closest(model, models.iter().map(|m| m.id.as_str()));
            let expected = near.map_or_else(
                || "the id of a model under `models`".to_owned(),
                |near| format!("the id of a model under `models`, such as `{near}`"),
            );
            reader.invalid(&format!("tiers.{tier}"), &format!("`{model}`"), &expected, span);
        }
    }
    let default_tier = reader.text(node, "default_tier");
    let may_be_absent = is_scripted && tiers.is_empty();
    if let Some(tier) = default_tier.as_ref().filter(|t| !may_be_absent && !tiers.contains_key(*t)) {
        let known: Vec<String> = tiers.keys().map(|t| format!("`{t}`")).collect();
        let span = node.get("default_tier").map(|n| n.span);
        let expected = match known.as_slice() {
            [] => format!("a tier of the provider: add `tiers: {{ {tier}: MODEL }}`"),
            known => format!("one of the provider's tiers: {}", known.join(", ")),
        };
        reader.invalid("default_tier", &format!("`{tier}`"), &expected, span);
    }
    let mut connection = serde_json::Map::new();
    let mut from_project = Vec::new();
    for entry in node.entries().iter().filter(|e| !CATALOG_KEYS.contains(&e.key.node.as_str())) {
        connection.insert(entry.key.node.clone(), entry.value.to_value());
        if is_in_project_file(sources, entry.value.span) {
            from_project.push(entry.key.node.clone());
        }
    }
    // Prices that a project sets, and models that it lists without a price, change the effect of a `spend` limit as
    // much as a change of the limit itself.
    let mut entries = node.get("models").map(Node::items).unwrap_or_default().iter();
    let sets_prices = entries.any(|model| match model.get(PRICES) {
        Some(prices) => is_partly_in_project(sources, prices),
        None => model.get("id").is_some_and(|id| is_in_project_file(sources, id.span)),
    });
    let of_project =
        |value: &Node| value.as_str().filter(|_| is_in_project_file(sources, value.span)).map(str::to_owned);
    let project_tiers = node.get("tiers").map(Node::entries).unwrap_or_default().iter();
    let chosen = project_tiers.filter_map(|tier| of_project(&tier.value));
    let chosen = chosen.chain(node.get("default_tier").and_then(of_project).and_then(|tier| tiers.get(&tier).cloned()));
    let is_priced = |id: &String| models.iter().any(|model| model.id == *id && model.prices.is_some());
    if sets_prices || chosen.into_iter().any(|id| !is_priced(&id)) {
        from_project.push(PRICES.to_owned());
    }
    connection.insert("id".into(), Value::String(id.to_owned()));
    Some(Provider {
        id: id.to_owned(),
        wire: wire_name.to_owned(),
        default_tier,
        tiers,
        models,
        connection: Value::Object(connection),
        from_project,
    })
}

fn expected_wires() -> String {
    format!("one of {}", WIRE_FORMATS.map(|w| format!("`{w}`")).join(", "))
}

/// Returns true if a value is written in a file of the project. The paths of files in other spaces begin with the
/// space's name.
fn is_in_project_file(sources: &Sources, span: Span) -> bool {
    sources.get(span.source).is_some_and(|s| !s.path.starts_with("user:") && !s.path.starts_with("system:"))
}

/// Returns true if any part of a value is written in a file of the project.
fn is_partly_in_project(sources: &Sources, node: &Node) -> bool {
    is_in_project_file(sources, node.span)
        || node.entries().iter().any(|entry| is_partly_in_project(sources, &entry.value))
}

struct ProviderReader<'d> {
    file: &'d str,
    diagnostics: &'d mut Diagnostics,
}

impl ProviderReader<'_> {
    fn invalid(&mut self, key: &str, found: &str, expected: &str, span: Option<Span>) {
        self.diagnostics.push(ConfigError::Invalid {
            file: self.file.to_owned(),
            key: key.to_owned(),
            found: found.to_owned(),
            expected: expected.to_owned(),
            span,
        });
    }

    fn wrong_type(&mut self, key: &str, node: &Node, expected: &str) {
        self.invalid(key, node.describe(), expected, Some(node.span));
    }

    fn text(&mut self, node: &Node, key: &str) -> Option<String> {
        let value = node.get(key)?;
        let text = value.as_str().map(str::to_owned);
        if text.is_none() {
            self.wrong_type(key, value, "a name");
        }
        text
    }

    fn texts(&mut self, node: &Node, key: &str) -> IndexMap<String, String> {
        let Some(map) = node.get(key) else { return IndexMap::new() };
        if !matches!(map.kind, Kind::Map(_)) {
            self.wrong_type(key, map, "a mapping of names to models or tiers");
        }
        let mut texts = IndexMap::new();
        for entry in map.entries() {
            match entry.value.as_str() {
                Some(text) => {
                    texts.insert(entry.key.node.clone(), text.to_owned());
                }
                None => self.wrong_type(&format!("{key}.{}", entry.key.node), &entry.value, "a name"),
            }
        }
        texts
    }

    fn model(&mut self, node: &Node) -> Option<Model> {
        let Some(id) = node.get("id").and_then(Node::as_str) else {
            self.invalid("models", "a model without `id`", "an `id` for each model", Some(node.span));
            return None;
        };
        let key = |field: &str| format!("models.{id}.{field}");
        let context_window = self.tokens(node, "context_window", &key("context_window"))?;
        let max_output = self.tokens(node, "max_output", &key("max_output"))?;
        let tool_use = match node.get("tool_use") {
            None => ToolUse::Native,
            Some(value) => match value.as_str() {
                Some("native") => ToolUse::Native,
                Some("text_parsed") => ToolUse::TextParsed,
                Some(_) | None => {
                    self.wrong_type(&key("tool_use"), value, "`native` or `text_parsed`");
                    return None;
                }
            },
        };
        let images = match node.get("images").map(|value| (value, value.as_bool())) {
            None => true,
            Some((_, Some(images))) => images,
            Some((value, None)) => {
                self.wrong_type(&key("images"), value, "`true` or `false`");
                return None;
            }
        };
        let prices = match node.get("prices") {
            None => None,
            Some(word) if word.as_str() == Some(NO_PRICE) => Some(Prices::NONE),
            Some(prices) => Some(self.prices(prices, &key("prices"))?),
        };
        let tokenizer = match node.get("tokenizer") {
            None => None,
            Some(value) => {
                let known = value.as_str().and_then(Tokenizer::from_name).filter(|tokenizer| !tokenizer.is_estimate());
                if known.is_none() {
                    let names = Tokenizer::EXACT.map(|name| format!("`{name}`")).join(" or ");
                    let found = value.as_str().map_or_else(|| value.describe().to_owned(), |name| format!("`{name}`"));
                    self.invalid(&key("tokenizer"), &found, &names, Some(value.span));
                    return None;
                }
                known
            }
        };
        Some(Model { id: id.to_owned(), context_window, max_output, tool_use, images, prices, tokenizer })
    }

    fn tokens(&mut self, node: &Node, field: &str, key: &str) -> Option<u64> {
        let value = node.get(field);
        if let Some(Node { kind: Kind::Number(number), .. }) = value
            && let Some(tokens) = number.as_u64().filter(|t| *t > 0)
        {
            return Some(tokens);
        }
        let found = value.map_or("missing", Node::describe);
        self.invalid(key, found, "a whole number of tokens above 0", Some(value.map_or(node.span, |v| v.span)));
        None
    }

    fn prices(&mut self, node: &Node, key: &str) -> Option<Prices> {
        let input = self.price(node, "input", key, None)?;
        let output = self.price(node, "output", key, None)?;
        let cache_read = self.price(node, "cache_read", key, Some(input))?;
        let cache_write = self.price(node, "cache_write", key, Some(input))?;
        let long_prompt = match node.get("long_prompt") {
            None => None,
            // `none` removes the prices of long prompts that a file of a lower space sets.
            Some(word) if word.as_str() == Some(NO_PRICE) => None,
            Some(long) => {
                let key = format!("{key}.long_prompt");
                let above = self.tokens(long, "above", &format!("{key}.above"))?;
                let input = self.price(long, "input", &key, None)?;
                let output = self.price(long, "output", &key, None)?;
                let cache_read = self.price(long, "cache_read", &key, Some(input))?;
                let cache_write = self.price(long, "cache_write", &key, Some(input))?;
                Some(LongPromptPrices { above, input, output, cache_read, cache_write })
            }
        };
        Some(Prices { input, output, cache_read, cache_write, long_prompt })
    }

    /// Reads a price in dollars per million tokens, written as text or number, and returns the price in nano-dollars.
    /// `None` for an invalid price, which is reported. If the field is missing, returns `otherwise`, and reports the
    /// field if `otherwise` is `None`.
    fn price(&mut self, node: &Node, field: &str, key: &str, otherwise: Option<u64>) -> Option<u64> {
        let Some(value) = node.get(field) else {
            if otherwise.is_none() {
                let expected = format!("a mapping with `{field}`, dollars per million tokens");
                self.invalid(key, &format!("without `{field}`"), &expected, Some(node.span));
            }
            return otherwise;
        };
        let price = match &value.kind {
            Kind::String(text) => Nanos::parse(text).ok(),
            Kind::Number(_) => Nanos::from_json(&value.to_value()).ok(),
            Kind::Null | Kind::Bool(_) | Kind::List(_) | Kind::Map(_) => None,
        };
        let price = price.filter(|p| !p.is_negative());
        if price.is_none() {
            self.wrong_type(&format!("{key}.{field}"), value, "dollars per million tokens, such as \"0.25\"");
        }
        price.map(Nanos::to_u64)
    }
}
