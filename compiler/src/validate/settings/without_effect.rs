//! Reports settings that are valid and change nothing: a provider key that its wire format does not read, a price for
//! prompts longer than the context window, the backoff of failures that are not retried, a pattern in a second risk
//! tier, and a `cache_guard` of the project above the amount that applies without it.

use std::collections::BTreeMap;

use rye_grammar::Span;
use rye_grammar::data::{Kind, Node};

use crate::cache_guard::ineffective_project_amount;
use crate::diagnostics::{ConfigError, Diagnostics};
use crate::item::Items;
use crate::model::SCRIPTED_WIRE;
use crate::semantics::classify::Category;

/// Provider keys that only one wire format reads, each with this format.
const KEYS_OF_A_WIRE: [(&str, &str); 3] =
    [("max_tokens_field", "openai-chat"), ("encrypted_reasoning", "openai-responses"), ("script", SCRIPTED_WIRE)];

/// Reports the keys without effect in a provider file. `node` is the file, merged over the spaces. `id` has the form
/// `agent/providers/NAME`.
pub fn check_provider(id: &str, node: &Node, found: &mut Diagnostics) {
    let wire = node.get("wire").and_then(Node::as_str).unwrap_or_default();
    for (key, reader) in KEYS_OF_A_WIRE.into_iter().filter(|(_, reader)| *reader != wire) {
        if let Some(entry) = node.entries().iter().find(|entry| entry.key.node == key) {
            let why = format!("only the wire format `{reader}` reads this key");
            let help = format!("remove the key, or set `wire: {reader}`");
            report(id, key.to_owned(), why, help, entry.key.span, found);
        }
    }
    for model in node.get("models").map(Node::items).unwrap_or_default() {
        let Some(name) = model.get("id").and_then(Node::as_str) else { continue };
        let tokens = |node: &Node| match &node.kind {
            Kind::Number(number) => number.as_u64().map(|tokens| (tokens, node.span)),
            Kind::Null | Kind::Bool(_) | Kind::String(_) | Kind::List(_) | Kind::Map(_) => None,
        };
        let above = model.get("prices").and_then(|prices| tokens(prices.get("long_prompt")?.get("above")?));
        if let Some(((window, _), (above, span))) = model.get("context_window").and_then(tokens).zip(above)
            && above >= window
        {
            let why = format!("no prompt is longer than the context window of {window} tokens");
            let help = "lower `above`, or remove `long_prompt`".to_owned();
            report(id, format!("models.{name}.prices.long_prompt.above"), why, help, span, found);
        }
    }
}

/// Reports the backoff of the project's and the user's rules for failures that are not retried. `is_own` returns true
/// for a value that the project or the user wrote.
pub fn check_backoff(id: &str, node: &Node, is_own: &dyn Fn(Span) -> bool, found: &mut Diagnostics) {
    for rule in node.get("patterns").map(Node::items).unwrap_or_default() {
        let (Some(name), Some(retry)) = (rule.get("id").and_then(Node::as_str), rule.get("retry")) else { continue };
        let category = rule.get("category").and_then(Node::as_str).and_then(Category::parse);
        let is_retried = match rule.get("retryable").and_then(Node::as_bool) {
            Some(declared) => declared,
            None => category.is_none_or(Category::is_retryable),
        };
        if !is_retried && is_own(retry.span) {
            let why = "failures of this category are not retried".to_owned();
            let help = "remove `retry`, or set `retryable: true`".to_owned();
            report(id, format!("patterns.{name}.retry"), why, help, retry.span, found);
        }
    }
}

/// Reports each pattern of the project or the user that is in two tiers of the risk table: only the first of the two
/// tiers applies.
pub fn check_tiers(id: &str, node: &Node, is_own: &dyn Fn(Span) -> bool, found: &mut Diagnostics) {
    let mut earlier: BTreeMap<&str, &str> = BTreeMap::new();
    for tier in node.get("classifications").map(Node::items).unwrap_or_default() {
        let risk = tier.get("risk").and_then(Node::as_str).unwrap_or_default();
        for pattern in tier.get("patterns").map(Node::items).unwrap_or_default() {
            let Some(text) = pattern.as_str() else { continue };
            let first = *earlier.entry(text).or_insert(risk);
            if first != risk && is_own(pattern.span) {
                let why = format!("the pattern `{text}` is in the tier `{first}` too");
                let help = "keep the pattern in one tier".to_owned();
                report(id, format!("classifications.{risk}"), why, help, pattern.span, found);
            }
        }
    }
}

/// Reports a `cache_guard` of the project that is above the amount that would apply without the project's setting. Such
/// a setting has no effect, because a project can only lower the amount.
pub fn check_cache_guard(items: &Items<'_>, id: &str, found: &mut Diagnostics) {
    if let Some((applied, span)) = ineffective_project_amount(items) {
        let why = format!("a project can only lower the amount, which is {applied}");
        let help = "write the amount into the settings of your user space, or remove the key".to_owned();
        report(id, "cache_guard".to_owned(), why, help, span, found);
    }
}

fn report(file: &str, key: String, why: String, help: String, span: Span, found: &mut Diagnostics) {
    found.push(ConfigError::Implausible { file: file.to_owned(), key, why, help, span });
}
