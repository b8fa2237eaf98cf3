//! The exact tokenizers, if compiled in. A vocabulary is loaded on its first use, which takes a few hundred
//! milliseconds. Commands that do not count with a vocabulary do not load it.

use super::Tokenizer;

/// Maximum number of white-space characters passed to the library in one piece. The library fails on a run of a few
/// hundred thousand white-space characters, because its pattern looks ahead through the whole run.
#[cfg(feature = "tokenizers")]
const MAX_WHITESPACE_RUN: usize = 4096;

#[cfg(feature = "tokenizers")]
pub fn count(tokenizer: Tokenizer, text: &str) -> u64 {
    let vocabulary = match tokenizer {
        Tokenizer::Characters => return tokenizer.count(text),
        Tokenizer::Cl100k => tiktoken_rs::cl100k_base_singleton(),
        Tokenizer::O200k => tiktoken_rs::o200k_base_singleton(),
    };
    split_long_runs(text).fold(0, |sum: u64, piece| {
        sum.saturating_add(u64::try_from(vocabulary.encode_ordinary(piece).len()).unwrap_or(u64::MAX))
    })
}

/// Splits the text inside every run of white space that is too long. A text without such a run stays whole.
#[cfg(feature = "tokenizers")]
fn split_long_runs(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let mut run = 0;
        for (at, character) in text.char_indices() {
            run = if character.is_whitespace() { run + 1 } else { 0 };
            if run > MAX_WHITESPACE_RUN
                && let Some((piece, behind)) = text.split_at_checked(at)
            {
                rest = Some(behind);
                return Some(piece);
            }
        }
        Some(text)
    })
}

/// Counts one token for four characters. This function takes the place of the exact tokenizers in builds without the
/// feature `tokenizers`. The plans of such a build name no exact tokenizer.
#[cfg(not(feature = "tokenizers"))]
pub fn count(_: Tokenizer, text: &str) -> u64 {
    Tokenizer::Characters.count(text)
}
