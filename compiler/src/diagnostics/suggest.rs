//! Did-you-mean: the closest known word, if one is close enough to be meant.

/// The candidate nearest to `text`, if it is near: a third of its length in edits at most, case ignored first, or the
/// same last segment of an id in another folder.
pub fn closest<'c>(text: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<String> {
    let limit = (text.chars().count() / 3).clamp(1, 6);
    let last = text.rsplit(['/', '.']).next().unwrap_or(text);
    let lower = text.to_lowercase();
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        if candidate == text {
            continue;
        }
        if candidate.len().abs_diff(text.len()) > limit.saturating_mul(4) && !ends_in(candidate, last) {
            continue;
        }
        let edits = if candidate.to_lowercase() == lower {
            0
        } else {
            let edits = strsim::osa_distance(candidate, text);
            // The right name in the wrong folder is as likely as a slip of the finger.
            if edits > limit && ends_in(candidate, last) { limit } else { edits }
        };
        if edits <= limit && best.is_none_or(|(e, c)| (edits, candidate) < (e, c)) {
            best = Some((edits, candidate));
        }
    }
    best.map(|(_, c)| c.to_owned())
}

fn ends_in(candidate: &str, last: &str) -> bool {
    last.len() > 2 && candidate.rsplit(['/', '.']).next() == Some(last)
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
    }
}
