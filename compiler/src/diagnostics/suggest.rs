//! Did-you-mean: the closest known word, if one is close enough to be meant.

/// The candidate nearest to `text`, if it is near: a third of its length in edits at most, case ignored first, or the
/// same last segment of an id in another folder, or a name that goes on where `text` ends.
pub fn closest<'c>(text: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<String> {
    let limit = (text.chars().count() / 3).clamp(1, 6);
    let last = text.rsplit(['/', '.']).next().unwrap_or(text);
    let letters = Letters::of(text);
    let mut best: Option<(usize, bool, &str)> = None;
    for candidate in candidates {
        if candidate == text {
            continue;
        }
        let (edits, guessed) = if candidate.eq_ignore_ascii_case(text) {
            (0, false)
        } else {
            // Most candidates are nowhere near, and their letters alone tell.
            let far = letters.edits_at_least(&Letters::of(candidate)) > limit;
            let edits = if far { usize::MAX } else { strsim::osa_distance(candidate, text) };
            // The right name in the wrong folder is as likely as a slip of the finger.
            let guessed = edits > limit && (ends_in(candidate, last) || goes_on(candidate, text));
            (if guessed { limit } else { edits }, guessed)
        };
        if edits <= limit && best.is_none_or(|other| (edits, guessed, candidate) < other) {
            best = Some((edits, guessed, candidate));
        }
    }
    best.map(|(_, _, c)| c.to_owned())
}

/// How often each letter stands in a text, sixteen classes of bytes together.
struct Letters {
    counts: [u32; 16],
    is_ascii: bool,
}

impl Letters {
    fn of(text: &str) -> Self {
        let mut counts = [0; 16];
        for byte in text.bytes() {
            if let Some(count) = counts.get_mut(usize::from(byte & 15)) {
                *count += 1;
            }
        }
        Self { counts, is_ascii: text.is_ascii() }
    }

    /// A lower bound of the edits between two texts: one edit takes a byte out of a class, puts one into a class, or
    /// both. A character of up to four bytes does so as often.
    fn edits_at_least(&self, other: &Self) -> usize {
        let (mut more, mut less) = (0u32, 0u32);
        for (a, b) in self.counts.iter().zip(&other.counts) {
            more += a.saturating_sub(*b);
            less += b.saturating_sub(*a);
        }
        more.max(less) as usize / if self.is_ascii && other.is_ascii { 1 } else { 4 }
    }
}

fn ends_in(candidate: &str, last: &str) -> bool {
    last.len() > 2 && candidate.rsplit(['/', '.']).next() == Some(last)
}

/// The unit or the second word of a name is left out: `timeout` for `timeout_seconds`.
fn goes_on(candidate: &str, text: &str) -> bool {
    text.len() > 3 && candidate.strip_prefix(text).is_some_and(|rest| rest.starts_with(['_', '-', '.']))
}

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn finds_slips_and_wrong_folders_and_nothing_far() {
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
}
