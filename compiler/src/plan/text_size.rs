//! The size of a text in tokens. The size is computed once, on first use, because many directives can have the text in
//! their prompts.

use std::sync::OnceLock;

use super::Tokenizer;

/// The size of a text in tokens, as a request contains the text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextSize {
    /// Number of tokens: counted if this build has the model's tokenizer, else estimated.
    pub tokens: u64,
    /// Upper bound on the number of tokens, also if `tokens` is only an estimate.
    pub bound: u64,
}

impl TextSize {
    pub fn new(by: Tokenizer, text: &str) -> Self {
        Self { tokens: by.count(text), bound: by.bound(text) }
    }

    /// Returns the sum of two sizes.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { tokens: self.tokens.saturating_add(other.tokens), bound: self.bound.saturating_add(other.bound) }
    }
}

/// A memo of the sizes of one text, by tokenizer.
#[derive(Debug, Clone, Default)]
pub struct TextSizes {
    characters: OnceLock<TextSize>,
    cl100k: OnceLock<TextSize>,
    o200k: OnceLock<TextSize>,
}

impl TextSizes {
    /// Returns the size of `text`, which is computed once for each tokenizer. Every call must pass the same text.
    pub fn of(&self, by: Tokenizer, text: &str) -> TextSize {
        let memo = match by {
            Tokenizer::Characters => &self.characters,
            Tokenizer::Cl100k => &self.cl100k,
            Tokenizer::O200k => &self.o200k,
        };
        *memo.get_or_init(|| TextSize::new(by, text))
    }
}
