//! Worst-case bound of a request's input tokens (`engine.md` 4, Money is a bound). `rye plan` prints the bound, and the
//! machine reserves money according to it. For a text whose tokenizer is not built in, the bound is the length of the
//! text in bytes (as a JSON string), because no tokenizer yields more tokens than bytes.

use super::{PaletteTool, PlannedModel, TextSize, Tokenizer, ToolUse};

/// Tokens that frame a request: the provider's own system text and the fields outside of the messages.
pub const REQUEST_OVERHEAD_TOKENS: u64 = 256;
/// Tokens that a provider adds to its system text once a request offers tools.
pub const TOOLS_OVERHEAD_TOKENS: u64 = 768;
/// Upper bound on the tokens that a provider adds around one tool definition.
pub const TOOL_OVERHEAD_TOKENS: u64 = 128;
/// Upper bound on the tokens that a provider adds around one message, or around one content block of a message.
pub const MESSAGE_OVERHEAD_TOKENS: u64 = 128;

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
    pub fn bound_native_head(&self, system: &str, definitions: impl IntoIterator<Item = u64>) -> u64 {
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
    pub fn definition_size(&self, tool: &PaletteTool) -> TextSize {
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
        let message = self.model.bound_message(self.model.counted_by.bound(first_message), 1);
        self.bound_head(&self.model, system).saturating_add(message)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
