//! Patterns of `matches` in a wrong form: patterns in the notation of another language, texts with wildcards, patterns
//! with an escape that became another character, and patterns that match every text.

use regex::Regex;
use rye_grammar::Span;
use rye_grammar::condition::{Expr, ExprKind};
use serde_json::Value;

use crate::diagnostics::HookError;

/// Characters that have a meaning after a backslash in a regular expression, and that seldom follow a backslash in the
/// texts of a run.
const ESCAPED: [char; 8] = ['.', 'b', 'd', 's', 'w', 'B', 'D', 'W'];

/// Returns the error for a literal pattern that is between delimiters (`/…/i`), that is written with wildcards (`d*`),
/// with an escape that became another character, or that matches every text. `None` for any other expression.
pub fn check(pattern: &Expr) -> Option<HookError> {
    let ExprKind::Literal(Value::String(text)) = &pattern.kind else { return None };
    let span = pattern.span;
    if let Some(plain) = without_delimiters(text) {
        return Some(HookError::DelimitedPattern { pattern: text.clone(), plain, span });
    }
    if let Some(meant) = pattern_of_wildcards(text) {
        return Some(HookError::WildcardPattern { pattern: text.clone(), meant, span });
    }
    with_lost_escape(text, span).or_else(|| matching_everything(text, span))
}

/// Returns the error for a pattern with an escape that the quotes around it changed: in double quotes, `\b` is a
/// backspace, and in single quotes, the pattern `\\.` requires a backslash.
fn with_lost_escape(text: &str, span: Span) -> Option<HookError> {
    let controls = [('\u{8}', 'b', "a backspace (U+0008)"), ('\u{c}', 'f', "a form feed (U+000C)")];
    if let Some((control, letter, required)) = controls.into_iter().find(|(control, ..)| text.contains(*control)) {
        let pattern = text.replace(control, &format!("\\u{:04x}", u32::from(control)));
        let meant = text.replace(control, &format!("\\{letter}"));
        return Some(HookError::EscapedPattern { pattern, required, meant, span });
    }
    let doubled = ESCAPED.map(|escaped| format!("\\\\{escaped}"));
    let is_even = |at: usize| !text.get(..at).unwrap_or_default().ends_with('\\');
    let (at, _) = doubled.iter().filter_map(|part| text.match_indices(part).find(|(at, _)| is_even(*at))).min()?;
    let mut meant = text.to_owned();
    meant.remove(at);
    Some(HookError::EscapedPattern { pattern: text.to_owned(), required: "a backslash", meant, span })
}

/// Returns the error for a pattern that matches every text: without anchors and boundaries, a pattern that matches the
/// empty text matches at the start of any text.
fn matching_everything(text: &str, span: Span) -> Option<HookError> {
    let is_anchored = text.contains(['^', '$', '\\']) || text.contains("(?");
    let has_empty_branch = text.starts_with('|') || (text.ends_with('|') && !text.ends_with("\\|"));
    let matches_empty = || Regex::new(text).is_ok_and(|regex| regex.is_match(""));
    if has_empty_branch || (!is_anchored && text != ".*" && matches_empty()) {
        let why = "is a pattern that every text matches".to_owned();
        let help = "correct the pattern: an empty alternative, and repetitions of zero times, match everywhere";
        return Some(HookError::OddText {
            text: if text.is_empty() { "\"\"".to_owned() } else { text.to_owned() },
            why,
            label: "matches everywhere",
            help,
            span,
        });
    }
    None
}

/// Returns the regular expression that an author probably meant by a pattern with wildcards: `^d.*$` for `d*`.
///
/// Returns `None` if the pattern is not clearly a pattern with wildcards:
/// - The pattern contains no `*`, contains `.*`, or contains special characters that are not wildcards.
/// - The pattern makes sense as a regular expression: no `*` follows `/` or another `*`, and the regular expression
///   does not match every text.
fn pattern_of_wildcards(pattern: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '.' | '*' | '?');
    if !pattern.contains('*') || pattern.contains(".*") || !pattern.chars().all(is_plain) {
        return None;
    }
    let matches_all = |text: &str| Regex::new(pattern).is_ok_and(|regex| regex.is_match(text));
    let repeats_slash = pattern.contains("/*") || pattern.contains("**");
    if !(repeats_slash || (matches_all("") && matches_all("\u{1}"))) {
        return None;
    }
    let mut meant = String::from("^");
    for c in pattern.replace("**", "*").chars() {
        match c {
            '*' => meant.push_str(".*"),
            '?' => meant.push('.'),
            '.' => meant.push_str("[.]"),
            other => meant.push(other),
        }
    }
    Some(format!("{meant}$"))
}

/// Converts a pattern in the notation `/pattern/flags` of other languages to the pattern of a condition: `/rm -rf/i`
/// becomes `(?i)rm -rf`. `None` if the text does not have this notation, for example if it has no flags.
fn without_delimiters(pattern: &str) -> Option<String> {
    let (inside, flags) = pattern.strip_prefix('/')?.rsplit_once('/')?;
    let is_flags = (1..=3).contains(&flags.len()) && flags.bytes().all(|b| b"gimsu".contains(&b));
    if !is_flags || inside.is_empty() || inside.contains('/') {
        return None;
    }
    let kept: String = flags.chars().filter(|flag| matches!(flag, 'i' | 'm' | 's')).collect();
    Some(if kept.is_empty() { inside.to_owned() } else { format!("(?{kept}){inside}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_escapes_get_the_pattern_that_was_meant() {
        let meant = |text: &str| match with_lost_escape(text, Span::new(rye_grammar::SourceId(0), 0, 0)) {
            Some(HookError::EscapedPattern { meant, .. }) => Some(meant),
            Some(_) | None => None,
        };
        for (text, expected) in [
            ("\u{8}env", r"\benv"),
            ("\u{8}env\u{8}", r"\benv\b"),
            ("a\u{c}", r"a\f"),
            (r"\\.env$", r"\.env$"),
            (r"^a\\d+", r"^a\d+"),
        ] {
            assert_eq!(meant(text).as_deref(), Some(expected), "{text:?}");
        }
        // No escape is lost: an intact escape, an escaped backslash before another escape or before a character that is
        // not in `ESCAPED`, and no backslash at all.
        for text in [r"\benv", r"\.env", r"\\\.", r"\\n", r"\\$", "a\tb", "env"] {
            assert_eq!(meant(text), None, "{text:?}");
        }
    }
}
