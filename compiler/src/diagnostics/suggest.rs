//! Did-you-mean suggestions: the closest known name, if it is close enough.

/// Returns the candidate closest to `text`; `None` if no candidate is close. A candidate is close in each of these
/// cases:
///
/// - Its edit distance is at most a third of the length of `text` (at least 1, at most 6).
/// - It differs only in case.
/// - It is an id with the same last segment in another folder.
/// - `text` is its first word.
pub fn closest<'c>(text: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<String> {
    let limit = (text.chars().count() / 3).clamp(1, 6);
    let last = text.rsplit(['/', '.']).next().unwrap_or(text);
    let letters = LetterCounts::of(text);
    let mut best: Option<(usize, bool, &str)> = None;
    for candidate in candidates {
        if candidate == text {
            continue;
        }
        let (edits, guessed) = if candidate.eq_ignore_ascii_case(text) {
            (0, false)
        } else {
            // Most candidates are far away; comparing the letter counts is enough to exclude them.
            let far = letters.min_edits(&LetterCounts::of(candidate)) > limit;
            let edits = if far { usize::MAX } else { strsim::osa_distance(candidate, text) };
            // A right name in the wrong folder is as likely as a typo.
            let guessed = edits > limit && (has_last_segment(candidate, last) || is_longer_word(candidate, text));
            (if guessed { limit } else { edits }, guessed)
        };
        if edits <= limit && best.is_none_or(|other| (edits, guessed, candidate) < other) {
            best = Some((edits, guessed, candidate));
        }
    }
    best.map(|(_, _, c)| c.to_owned())
}

/// The number of bytes of each class in a text, for a fast lower bound on the edit distance of two texts
/// ([`LetterCounts::min_edits`]). The class of a byte is its low four bits, so there are 16 classes.
struct LetterCounts {
    counts: [u32; 16],
    is_ascii: bool,
}

impl LetterCounts {
    fn of(text: &str) -> Self {
        let mut counts = [0; 16];
        for byte in text.bytes() {
            if let Some(count) = counts.get_mut(usize::from(byte & 15)) {
                *count += 1;
            }
        }
        Self { counts, is_ascii: text.is_ascii() }
    }

    /// Returns a lower bound on the number of edits that turn one text into another text. An edit of an ASCII text
    /// removes at most one byte and adds at most one byte, so the bound is the number of bytes to remove or to add,
    /// whichever is larger. An edit of any other text can change a character of four bytes, so this number is divided
    /// by four.
    fn min_edits(&self, other: &Self) -> usize {
        let (mut more, mut less) = (0u32, 0u32);
        for (a, b) in self.counts.iter().zip(&other.counts) {
            more += a.saturating_sub(*b);
            less += b.saturating_sub(*a);
        }
        more.max(less) as usize / if self.is_ascii && other.is_ascii { 1 } else { 4 }
    }
}

fn has_last_segment(candidate: &str, last: &str) -> bool {
    last.len() > 2 && candidate.rsplit(['/', '.']).next() == Some(last)
}

/// Returns true if `text` is the first word of `candidate`, so that only the rest is missing, such as the unit:
/// `timeout` for `timeout_seconds`.
fn is_longer_word(candidate: &str, text: &str) -> bool {
    text.len() > 3 && candidate.strip_prefix(text).is_some_and(|rest| rest.starts_with(['_', '-', '.']))
}

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn closest_finds_typos_and_wrong_folders_only() {
        let words = ["turns", "tokens", "spend", "rye/agent/core/base", "rye/bash/bash"];
        let near = |t: &str| closest(t, words);
        assert_eq!(near("trns"), Some("turns".into()));
        assert_eq!(near("Spend"), Some("spend".into()));
        assert_eq!(near("rye/core/base"), Some("rye/agent/core/base".into()));
        assert_eq!(near("rye/bsh/bash"), Some("rye/bash/bash".into()));
        assert_eq!(near("elephant"), None);
        assert_eq!(near("turns"), None);
        assert_eq!(closest("duration", ["turns", "duration_seconds"]), Some("duration_seconds".into()));
        assert_eq!(closest("limit", ["limit.spend", "limit.turns"]), Some("limit.spend".into()));
        assert_eq!(closest("hook", ["hook_conditions", "hooks"]), Some("hooks".into()));
        assert_eq!(closest("dur", ["duration_seconds", "dur_a"]), None);
    }

    #[test]
    fn list_of_words_holds_no_more_than_it_shows() {
        let names: Vec<String> = (0..500).map(|n| format!("a{n}")).collect();
        let list = crate::diagnostics::WordList::new(names.iter());
        let text = list.quoted();
        assert!(text.starts_with("`a0`, `a1`") && text.ends_with("`a59` and 440 more"), "{text}");
        assert_eq!(list.words.len(), 60);
        assert_eq!(crate::diagnostics::WordList::new(names[..2].iter()).quoted(), "`a0`, `a1`");
    }
}
