//! Worst-case bound of a request's input tokens (`engine.md`, Money is a bound). `rye plan` prints the bound, and the
//! machine reserves money according to it. For a text whose tokenizer is not built in, the bound is the length of the
//! text in bytes (as a JSON string), because no tokenizer yields more tokens than bytes.

use std::sync::{Arc, Mutex, PoisonError};

use super::{PaletteTool, PlannedModel, TextSize, Tokenizer, ToolUse};

/// Upper bound on the tokens that a request has in addition to its texts: the provider's own system text, and the
/// fields outside of the messages.
pub const REQUEST_OVERHEAD_TOKENS: u64 = 256;
/// Upper bound on the tokens that a provider adds to its own system text if a request offers tools.
pub const TOOLS_OVERHEAD_TOKENS: u64 = 768;
/// Upper bound on the tokens that a provider adds around one tool definition.
pub const TOOL_OVERHEAD_TOKENS: u64 = 128;
/// Upper bound on the tokens that a provider adds around one message, or around one content block of a message.
pub const MESSAGE_OVERHEAD_TOKENS: u64 = 128;

/// Maximum number of entries in `KNOWN_DEFINITIONS`. The sizes are stored because a plan and each of its model calls
/// need them, and because the conversion of a definition takes longer than the rest of a bound.
const MAX_KNOWN_DEFINITIONS: usize = 64;

/// The sizes of the definitions that were computed last, the most recent one at the end.
static KNOWN_DEFINITIONS: Mutex<Vec<KnownDefinition>> = Mutex::new(Vec::new());

/// The size of a tool definition. The size applies to each model with this wire format, tool use and tokenizer.
struct KnownDefinition {
    tool: PaletteTool,
    wire: String,
    form: (ToolUse, Tokenizer),
    size: TextSize,
}

impl KnownDefinition {
    /// Returns true if this is the size of `tool` in requests to `model`. The texts of the tools are compared by
    /// address. No other text can have these addresses, because `self.tool` holds references to its texts.
    fn is_of(&self, model: &PlannedModel, tool: &PaletteTool) -> bool {
        Arc::ptr_eq(&self.tool.schema, &tool.schema)
            && Arc::ptr_eq(&self.tool.description, &tool.description)
            && Arc::ptr_eq(&self.tool.name, &tool.name)
            && self.form == (model.tool_use, model.counted_by)
            && self.wire == model.wire
    }
}

impl Tokenizer {
    /// Returns an upper bound on the tokens of a text: the exact count if this build has the tokenizer, otherwise the
    /// bytes of the text in a JSON string.
    pub fn bound(self, text: &str) -> u64 {
        match self.available() {
            Self::Characters => json_string_bytes(text),
            exact @ (Self::Cl100k | Self::O200k) => exact.count(text),
        }
    }
}

/// Returns the length in bytes, escapes included, that a text has between the quotes of a JSON string.
fn json_string_bytes(text: &str) -> u64 {
    let escapes: usize = text
        .bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
            0..=0x1f => 5,
            _ => 0,
        })
        .sum();
    u64::try_from(text.len().saturating_add(escapes)).unwrap_or(u64::MAX)
}

impl PlannedModel {
    /// Returns an upper bound on the tokens of one message with `blocks` content blocks, whose texts have `text` tokens
    /// in total.
    pub fn bound_message(&self, text: u64, blocks: u64) -> u64 {
        MESSAGE_OVERHEAD_TOKENS.saturating_mul(blocks.saturating_add(1)).saturating_add(text)
    }

    /// Returns the smaller of `bound` and the tokens of the context window: a provider refuses a longer request, and
    /// bills no refused request. Without a known window, returns `bound`.
    pub fn bound_by_window(&self, bound: u64) -> u64 {
        if self.context_window == 0 { bound } else { bound.min(self.context_window) }
    }

    /// Returns an upper bound on the input tokens of a request's system prompt and tool definitions. For a model
    /// without native tool use, `system` must already contain the tool definitions.
    pub fn bound_head<'t>(&self, system: &str, tools: impl IntoIterator<Item = &'t PaletteTool>) -> u64 {
        match self.tool_use {
            ToolUse::Native => {
                self.bound_native_head(system, tools.into_iter().map(|tool| self.definition_size(tool).bound))
            }
            ToolUse::TextParsed => self.bound_native_head(system, []),
        }
    }

    /// Returns an upper bound on the input tokens of a system prompt and of the tool definitions outside of it.
    /// `definitions` contains an upper bound on the tokens of each definition.
    pub(crate) fn bound_native_head(&self, system: &str, definitions: impl IntoIterator<Item = u64>) -> u64 {
        let head = REQUEST_OVERHEAD_TOKENS.saturating_add(self.counted_by.bound(system));
        let mut sum = 0u64;
        for definition in definitions {
            let overhead = if sum == 0 { TOOLS_OVERHEAD_TOKENS } else { 0 };
            sum = sum.saturating_add(definition).saturating_add(overhead).saturating_add(TOOL_OVERHEAD_TOKENS);
        }
        head.saturating_add(sum)
    }

    /// Returns the size of the definition of a tool, as requests to this model contain it. The token count of the size
    /// leaves out the name of the tool; its upper bound includes the name.
    pub(crate) fn definition_size(&self, tool: &PaletteTool) -> TextSize {
        self.known_size(tool, || self.computed_size(tool))
    }

    /// Returns the stored size of a definition. If no size is stored, computes the size with `compute` and stores it.
    fn known_size(&self, tool: &PaletteTool, compute: impl FnOnce() -> TextSize) -> TextSize {
        let known = || KNOWN_DEFINITIONS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known().iter().rev().find(|known| known.is_of(self, tool)) {
            return known.size;
        }
        let size = compute();
        let (wire, form) = (self.wire.clone(), (self.tool_use, self.counted_by));
        let mut known = known();
        if known.len() == MAX_KNOWN_DEFINITIONS {
            known.remove(0);
        }
        known.push(KnownDefinition { tool: tool.clone(), wire, form, size });
        size
    }

    fn computed_size(&self, tool: &PaletteTool) -> TextSize {
        let sent = self.wire_tool(tool);
        let schema = sent.parameters.as_deref().map(ToString::to_string).unwrap_or_default();
        let bounds = [&*tool.name, &*sent.description, &schema].map(|text| self.counted_by.bound(text));
        let tokens = self.counted_by.count(&(schema + &sent.description));
        TextSize { tokens, bound: bounds.into_iter().fold(0, u64::saturating_add) }
    }
}

impl super::Plan {
    /// Returns an upper bound on the input tokens of a request to `model`, without the messages of the request.
    pub fn bound_head(&self, model: &PlannedModel, system: &str) -> u64 {
        model.bound_head(system, &self.palette)
    }

    /// Returns an upper bound on the input tokens of the first request, whose texts the caller has rendered.
    pub fn bound_first_request(&self, system: &str, first_message: &str) -> u64 {
        self.bound_request(&self.model, system, first_message)
    }

    /// Returns an upper bound on the input tokens of a request with one message to `model`.
    pub(crate) fn bound_request(&self, model: &PlannedModel, system: &str, message: &str) -> u64 {
        let message = model.bound_message(model.counted_by.bound(message), 1);
        model.bound_by_window(self.bound_head(model, system).saturating_add(message))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn model(wire: &str, tool_use: &str) -> PlannedModel {
        serde_json::from_value(json!({
            "provider": "p", "wire": wire, "id": "m", "requested": "m", "fallback": null, "context_window": 1000,
            "max_output": 100, "prices": null, "tool_use": tool_use, "connection": {},
        }))
        .unwrap()
    }

    #[test]
    fn definition_is_converted_once_for_each_wire_and_tool_use() {
        let tool: PaletteTool = serde_json::from_value(json!({
            "name": "t", "primary": "execute", "item_id": null, "description": "Does it.",
            "schema": {"type": "object", "properties": {"a": {"type": "string"}}},
            "parallel": false, "idempotent": false, "tokens": 0, "bytes": 0,
        }))
        .unwrap();
        let renamed = PaletteTool { name: "other".into(), ..tool.clone() };
        let copied = PaletteTool { schema: Arc::new((*tool.schema).clone()), ..tool.clone() };
        let counted = PaletteTool { tokens: 7, ..tool.clone() };
        let mut computed = Vec::new();
        for (number, (wire, tool_use, tool)) in [
            ("anthropic", "native", &tool),
            ("anthropic", "native", &tool),
            ("anthropic", "native", &counted),
            ("gemini", "native", &tool),
            ("anthropic", "text_parsed", &tool),
            ("anthropic", "native", &renamed),
            ("anthropic", "native", &copied),
            ("anthropic", "native", &tool),
        ]
        .into_iter()
        .enumerate()
        {
            let model = model(wire, tool_use);
            let size = model.known_size(tool, || {
                computed.push(number);
                model.computed_size(tool)
            });
            assert_eq!(size, model.computed_size(tool));
        }
        assert_eq!(computed, [0, 3, 4, 5, 6]);
    }

    proptest! {
        #[test]
        fn text_bound_is_its_bytes_in_json(text in any::<String>()) {
            let written = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(Tokenizer::Characters.bound(&text) + 2, written.len() as u64);
            prop_assert!(Tokenizer::Characters.bound(&text) >= text.len() as u64);
        }
    }

    #[test]
    fn exact_tokenizer_bounds_a_text_by_its_count_where_it_is_built_in() {
        let text = "A plain English sentence of several words.";
        for exact in [Tokenizer::Cl100k, Tokenizer::O200k] {
            let bound = exact.bound(text);
            let expected = if cfg!(feature = "tokenizers") { exact.count(text) } else { text.len() as u64 };
            assert_eq!(bound, expected);
        }
    }
}
