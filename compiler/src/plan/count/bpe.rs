//! The exact tokenizers, where this build has them. A vocabulary is read when it first counts something, which takes some
//! hundred milliseconds; a command that counts nothing with it never does.

use super::Tokenizer;

/// A longer run of spaces is counted piece by piece: the library looks ahead in it step by step, and gives up on one of
/// some hundred thousand.
#[cfg(feature = "tokenizers")]
const LONGEST_RUN: usize = 4096;

#[cfg(feature = "tokenizers")]
pub fn count(tokenizer: Tokenizer, text: &str) -> u64 {
    let vocabulary = match tokenizer {
        Tokenizer::Characters => return tokenizer.count(text),
        Tokenizer::Cl100k => tiktoken_rs::cl100k_base_singleton(),
        Tokenizer::O200k => tiktoken_rs::o200k_base_singleton(),
    };
    pieces(text).fold(0, |sum: u64, piece| {
        sum.saturating_add(u64::try_from(vocabulary.encode_ordinary(piece).len()).unwrap_or(u64::MAX))
    })
}

/// The text whole, unless it has a run of spaces that is too long: then cut inside of it.
#[cfg(feature = "tokenizers")]
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let mut run = 0;
        for (at, character) in text.char_indices() {
            run = if character.is_whitespace() { run + 1 } else { 0 };
            if run > LONGEST_RUN
                && let Some((piece, behind)) = text.split_at_checked(at)
            {
                rest = Some(behind);
                return Some(piece);
            }
        }
        Some(text)
    })
}

/// [`Tokenizer::here`] names none of these in a build without them.
#[cfg(not(feature = "tokenizers"))]
pub fn count(_: Tokenizer, text: &str) -> u64 {
    Tokenizer::Characters.count(text)
}
