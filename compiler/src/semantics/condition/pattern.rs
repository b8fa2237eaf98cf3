//! The pattern of the operator `matches`. A pattern is parsed together with its condition, so that errors are reported
//! early. A small pattern is built (compiled to a `Regex`) only when a text is first matched, because a command parses
//! many conditions and evaluates few.

use std::sync::OnceLock;

use regex::{Error, Regex, RegexBuilder};
use regex_syntax::hir::{Class, Hir, HirKind};

/// Maximum size of a built pattern in bytes. The maximum bounds only memory: the time of a match is linear in the text
/// for every pattern.
const MAX_PATTERN_BYTES: usize = 1 << 20;
/// Size in bytes that a pattern takes from the [`PatternBudget`] if its estimated size exceeds [`MAX_PATTERN_BYTES`].
/// The estimate can be far too high, so the pattern is built at once to find its real size.
const BUILT_PATTERN_BYTES: usize = 16 << 20;
/// Maximum of the estimated sizes of all patterns of one file together, in bytes. An estimate is several times the real
/// size.
const MAX_PATTERNS_BYTES: usize = 256 << 20;
/// Upper bound on the bytes of one state of a built pattern.
const STATE_BYTES: usize = 64;
/// Upper bound on the bytes that one range of a character class (`a-z`) takes in a built pattern: a range becomes up to
/// seven sequences of up to four states.
const CLASS_RANGE_BYTES: usize = 256;

/// The budget for the patterns of one file: the estimated bytes that are left for further patterns. The budget bounds
/// the time to build the patterns.
#[derive(Debug, Clone)]
pub(crate) struct PatternBudget(usize);

impl Default for PatternBudget {
    fn default() -> Self {
        Self(MAX_PATTERNS_BYTES)
    }
}

/// The reason why a pattern was refused.
#[derive(Debug)]
pub(super) enum PatternError {
    Invalid(Error),
    /// The patterns of one file together exceed the `PatternBudget`.
    BudgetExceeded,
}

/// A valid regular expression of a condition.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    source: Box<str>,
    built: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// Parses the pattern. Also builds the pattern if the estimated size is above the maximum, because only building
    /// shows the actual size.
    ///
    /// # Errors
    /// The pattern is invalid or too large, or exceeds the budget of its file.
    pub(super) fn new(source: &str, budget: &mut PatternBudget) -> Result<Self, PatternError> {
        let built = OnceLock::new();
        let size = regex_syntax::parse(source).map_or(usize::MAX, |hir| estimate_bytes(&hir));
        let is_small = size <= MAX_PATTERN_BYTES;
        let counted = if is_small { size } else { BUILT_PATTERN_BYTES };
        budget.0 = budget.0.checked_sub(counted).ok_or(PatternError::BudgetExceeded)?;
        if !is_small {
            let regex = RegexBuilder::new(source).size_limit(MAX_PATTERN_BYTES).build();
            let regex = regex.map_err(PatternError::Invalid)?;
            built.get_or_init(|| Some(regex));
        }
        Ok(Self { source: source.into(), built })
    }

    /// Returns the pattern as it was written.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// Returns texts that the pattern probably matches: the shortest ones, a few for each alternative.
    pub(super) fn samples(&self) -> Vec<String> {
        regex_syntax::parse(&self.source).map(|hir| samples(&hir)).unwrap_or_default()
    }

    /// Returns true if some part of the text matches.
    pub(super) fn is_match(&self, text: &str) -> bool {
        // The pattern is small enough to be built: the default limit of the library is ten times our maximum.
        self.built.get_or_init(|| Regex::new(&self.source).ok()).as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

/// Maximum number of sample texts for one pattern.
const MAX_SAMPLES: usize = 8;
/// Maximum number of times that a sample repeats a part of the pattern, as for `a{5000}`.
const MAX_REPETITIONS: u32 = 1_000;

fn samples(hir: &Hir) -> Vec<String> {
    let mut texts = match hir.kind() {
        // A boundary (such as `^` or `\b`) matches an empty text.
        HirKind::Empty | HirKind::Look(_) => vec![String::new()],
        HirKind::Literal(literal) => vec![String::from_utf8_lossy(&literal.0).into_owned()],
        HirKind::Class(Class::Unicode(class)) => {
            class.ranges().iter().map(|range| range.start().to_string()).take(MAX_SAMPLES).collect()
        }
        HirKind::Class(Class::Bytes(class)) => {
            class.ranges().iter().map(|range| char::from(range.start()).to_string()).take(MAX_SAMPLES).collect()
        }
        HirKind::Capture(capture) => samples(&capture.sub),
        HirKind::Repetition(repetition) => {
            let count = repetition.min.min(MAX_REPETITIONS) as usize;
            samples(&repetition.sub).iter().map(|text| text.repeat(count)).collect()
        }
        HirKind::Concat(parts) => parts.iter().map(samples).fold(vec![String::new()], |texts, part| {
            let joined = texts.iter().flat_map(|text| part.iter().map(move |next| format!("{text}{next}")));
            joined.take(MAX_SAMPLES).collect()
        }),
        HirKind::Alternation(parts) => parts.iter().flat_map(|part| samples(part).into_iter().take(2)).collect(),
    };
    texts.truncate(MAX_SAMPLES);
    texts
}

/// Estimates the size of the compiled pattern in bytes. The estimate is an upper bound unless a character class of the
/// pattern is extraordinarily large.
fn estimate_bytes(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => STATE_BYTES,
        HirKind::Literal(literal) => literal.0.len().saturating_mul(STATE_BYTES),
        HirKind::Class(Class::Unicode(class)) => {
            class.ranges().len().saturating_mul(CLASS_RANGE_BYTES).saturating_add(STATE_BYTES)
        }
        HirKind::Class(Class::Bytes(class)) => {
            class.ranges().len().saturating_mul(STATE_BYTES).saturating_add(STATE_BYTES)
        }
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(repetition.min).saturating_add(1);
            let times = usize::try_from(times).unwrap_or(usize::MAX);
            estimate_bytes(&repetition.sub).saturating_add(STATE_BYTES).saturating_mul(times)
        }
        HirKind::Capture(capture) => estimate_bytes(&capture.sub).saturating_add(2 * STATE_BYTES),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().fold(STATE_BYTES, |sum, part| sum.saturating_add(estimate_bytes(part)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_is_built_on_first_match() {
        let pattern =
            Pattern::new("(?i)^rate_?limit|k{2,5}[a-z0-9]+$", &mut PatternBudget::default()).expect("a pattern");
        assert!(pattern.built.get().is_none());
        assert!(pattern.is_match("RATE_LIMIT"));
        assert!(!pattern.is_match("irate_limits"));
        assert!(pattern.built.get().is_some());
    }

    #[test]
    fn deferred_patterns_always_build() {
        let class = "[\u{1}-\u{10fffe}]".repeat(3);
        let many: String = (0..300).map(|n| char::from_u32(0x800 + n * 9).unwrap_or('x')).collect();
        for source in [
            r"\w{4}\d{3}\s*\p{Greek}+\b",
            r"(?i)\w\w\w\w\W",
            "(a|b|(c(d(e)?)*)+){1,300}",
            &class,
            &format!("[{many}]{{9}}"),
            r"(?s).{400}",
            r"[^\x00-\x7f]{20}",
            "",
        ] {
            let pattern = Pattern::new(source, &mut PatternBudget::default()).expect(source);
            if pattern.built.get().is_none() {
                assert!(RegexBuilder::new(source).size_limit(MAX_PATTERN_BYTES).build().is_ok(), "{source}");
            }
        }
    }

    #[test]
    fn invalid_and_oversized_patterns_fail_at_once() {
        for source in ["(", "a{2,1}", r"(?=a)", r"\p{Nothing}", r"(\w{100}){100}", "a{1000}{1000}{1000}"] {
            assert!(Pattern::new(source, &mut PatternBudget::default()).is_err(), "{source}");
        }
    }
}
