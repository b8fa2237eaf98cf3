//! Token counts with and without the vocabularies. The expected counts of the exact tokenizers are published by their
//! vendors.

use super::*;

#[test]
fn characters_are_counted_not_bytes_and_rounded_up() {
    let count = |text| Tokenizer::Characters.count(text);
    assert_eq!([count(""), count("abc"), count("abcd"), count("äöüß€")], [0, 1, 1, 2]);
}

#[test]
fn every_name_reads_back() {
    for tokenizer in [Tokenizer::Characters, Tokenizer::Cl100k, Tokenizer::O200k] {
        assert_eq!(Tokenizer::from_name(tokenizer.as_str()), Some(tokenizer));
        assert_eq!(serde_json::to_value(tokenizer).ok(), Some(tokenizer.as_str().into()));
    }
    assert_eq!(Tokenizer::from_name("o200k"), None);
}

#[test]
#[cfg(not(feature = "tokenizers"))]
fn builds_without_vocabularies_estimate_and_say_so() {
    for exact in [Tokenizer::Cl100k, Tokenizer::O200k] {
        assert_eq!(exact.available(), Tokenizer::Characters);
        assert_eq!(exact.count("abcdefgh"), 2);
    }
}

#[cfg(feature = "tokenizers")]
mod exact {
    use super::*;

    #[test]
    fn known_texts_have_their_known_counts() {
        assert_eq!(Tokenizer::Cl100k.count("tiktoken is great!"), 6);
        assert_eq!(Tokenizer::O200k.count("tiktoken is great!"), 6);
        assert_eq!(Tokenizer::Cl100k.count("antidisestablishmentarianism"), 6);
        assert_eq!(Tokenizer::O200k.count("お誕生日おめでとう"), 8);
        assert_eq!(Tokenizer::Cl100k.count("お誕生日おめでとう"), 9);
        assert_eq!([Tokenizer::O200k.count(""), Tokenizer::O200k.count("hello world")], [0, 2]);
    }

    #[test]
    fn a_control_token_in_a_text_is_text() {
        assert!(Tokenizer::O200k.count("<|endoftext|>") > 1);
    }

    /// A text must neither make the library's pattern panic nor take quadratic time.
    #[test]
    fn long_repetitive_texts_are_counted() {
        let run = |text: &str| text.repeat(300_000 / text.len());
        for text in
            [" ", "\n", "\t ", "a", "é", "\u{200b}", "漢", "1", "'", "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}"]
        {
            for tokenizer in [Tokenizer::Cl100k, Tokenizer::O200k] {
                let count = tokenizer.count(&run(text));
                assert!((1..=300_000).contains(&count), "{text:?}: {count}");
            }
        }
        assert!(Tokenizer::O200k.count(&format!("{}x", run(" "))) > 1);
    }
}
