//! Token counting before a provider has reported usage (`language.md`, Limits). The tokenizer is chosen once, when a
//! plan's model is resolved, and the plan stores it by name, so that `rye plan` and a run use the same counts.

mod bpe;

use std::fmt;

use serde::{Deserialize, Serialize};

/// A method of counting tokens. Builds that count differently produce plans with different ids.
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
    /// Tokenizers that are exact for some model, by the names that provider files use.
    pub(crate) const EXACT: [&str; 2] = [Self::Cl100k.as_str(), Self::O200k.as_str()];

    /// Returns the name of the tokenizer in plans, reports and provider files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Characters => "characters / 4",
            Self::Cl100k => "cl100k_base",
            Self::O200k => "o200k_base",
        }
    }

    /// Returns the tokenizer with this name; `None` for an unknown name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Characters, Self::Cl100k, Self::O200k].into_iter().find(|tokenizer| tokenizer.as_str() == name)
    }

    /// Returns the tokenizer that this build uses for `self`. A build with the feature `tokenizers` contains the
    /// vocabularies of the exact tokenizers and uses `self`. Any other build counts characters instead.
    #[must_use]
    pub const fn available(self) -> Self {
        if cfg!(feature = "tokenizers") { self } else { Self::Characters }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
    pub(crate) fn is_estimate(&self) -> bool {
        *self == Self::Characters
    }

    /// Counts the tokens of a text. Control tokens in the text are counted as plain text. A plan from another build may
    /// name a tokenizer that this build lacks. [`Tokenizer::available`] then chooses the substitute.
    pub fn count(self, text: &str) -> u64 {
        match self.available() {
            Self::Characters => u64::try_from(text.chars().count().div_ceil(4)).unwrap_or(u64::MAX),
            exact @ (Self::Cl100k | Self::O200k) => bpe::count(exact, text),
        }
    }
}

impl fmt::Display for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
