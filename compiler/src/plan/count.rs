//! How the tokens of a text are counted before a provider has counted them (`language.md` 11). Chosen once, when a plan's
//! model is resolved, and kept in the plan by name: what `plan` prints and what a run reserves by is one count.

mod bpe;

use std::fmt;

use serde::{Deserialize, Serialize};

/// A way to count tokens. Two builds that count differently make plans of different ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Tokenizer {
    /// Characters / 4, rounded up: an estimate, for any model.
    #[default]
    #[serde(rename = "characters / 4")]
    Characters,
    #[serde(rename = "cl100k_base")]
    Cl100k,
    #[serde(rename = "o200k_base")]
    O200k,
}

impl Tokenizer {
    /// Those that are a model's own, by the names that provider files use for them.
    pub const EXACT: [&str; 2] = [Self::Cl100k.word(), Self::O200k.word()];

    /// As plans, reports and provider files name it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Characters => "characters / 4",
            Self::Cl100k => "cl100k_base",
            Self::O200k => "o200k_base",
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Characters, Self::Cl100k, Self::O200k].into_iter().find(|tokenizer| tokenizer.word() == name)
    }

    /// What this build counts with where a model's own tokenizer is this one: the vocabularies of the exact ones are
    /// there with the feature `tokenizers` alone.
    #[must_use]
    pub const fn here(self) -> Self {
        if cfg!(feature = "tokenizers") { self } else { Self::Characters }
    }

    pub fn is_estimate(&self) -> bool {
        *self == Self::Characters
    }

    /// Tokens of a text, what would be a control token in it read as the text that it is. A plan of another build may
    /// name a tokenizer that this one lacks; it is then counted as [`Tokenizer::here`] says.
    pub fn count(self, text: &str) -> u64 {
        match self.here() {
            Self::Characters => u64::try_from(text.chars().count().div_ceil(4)).unwrap_or(u64::MAX),
            exact @ (Self::Cl100k | Self::O200k) => bpe::count(exact, text),
        }
    }
}

impl fmt::Display for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests;
