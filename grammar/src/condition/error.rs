//! The messages and hints for syntax errors of conditions.

use std::ops::Range;

use super::MAX_DEPTH;
use super::inline::ConditionText;
use crate::error::{SyntaxError, SyntaxKind};
use crate::span::Span;
use crate::text::{brackets, describe_char, shorten};

pub(super) fn condition_error(span: Span, message: String, label: &str, help: Option<&str>) -> SyntaxError {
    SyntaxKind::Condition.error(span, message, label).with_help_if(help)
}

pub(super) fn empty_condition(place: ConditionText<'_>) -> SyntaxError {
    condition_error(
        place.span(0, place.text.len()),
        "a condition cannot be empty".into(),
        "empty condition",
        Some("leave the condition out if the hook always applies"),
    )
}

pub(super) fn too_long(place: ConditionText<'_>, limit: usize) -> SyntaxError {
    condition_error(
        place.span(limit, place.text.len()),
        format!("a condition has at most {limit} bytes, but this condition has {}", place.text.len()),
        "too long from here",
        Some("split the condition over several hooks, or let a tool decide"),
    )
}

pub(super) fn control_character_error(place: ConditionText<'_>, range: Range<usize>, c: char) -> SyntaxError {
    condition_error(
        place.span(range.start, range.end),
        format!("{} is not allowed in a condition", describe_char(c)),
        "remove it",
        Some(match c {
            '\u{8}' => {
                "in a double-quoted text of YAML, `\\b` is this character: for the boundary of a word, write `\\\\b`, or put the condition in single quotes"
            }
            _ => "inside a double-quoted string, write it as an escape such as `\\u0000`",
        }),
    )
}

pub(super) fn too_deep(span: Span) -> SyntaxError {
    condition_error(
        span,
        format!("a condition nests at most {MAX_DEPTH} levels"),
        "one level too many",
        Some("flatten the condition: `a && b && c` is one level, however long"),
    )
}

pub(super) fn bad_string(span: Span) -> SyntaxError {
    condition_error(
        span,
        "this is not a valid JSON string".into(),
        "JSON does not allow this escape or raw line break",
        Some(
            "the escapes are `\\\" \\\\ \\/ \\b \\f \\n \\r \\t` and `\\u` with four hex digits; `'…'` strings have no escapes",
        ),
    )
}

pub(super) fn number_out_of_range(span: Span, text: &str) -> SyntaxError {
    condition_error(
        span,
        format!("the number `{}` is out of range", shorten(text)),
        "out of range",
        Some("whole numbers go from -9223372036854775808 to 18446744073709551615"),
    )
}

pub(super) fn chained_comparison(span: Span, operator: &str) -> SyntaxError {
    condition_error(
        span,
        format!("comparisons do not chain: `{operator}` follows another comparison"),
        "second comparison",
        Some("join the comparisons: `1 < a && a < 3`"),
    )
}

pub(super) fn not_as_operand(span: Span) -> SyntaxError {
    condition_error(
        span,
        "`!` has a lower precedence than the operator before it".into(),
        "a negation is not allowed here",
        Some("use parentheses: `a == (!b)`"),
    )
}

pub(super) fn pattern_not_literal(span: Span) -> SyntaxError {
    condition_error(
        span,
        "the pattern of `matches` must be a literal string".into(),
        "not a string literal",
        Some("write the pattern in quotes: `model matches '^claude-'`"),
    )
}

/// Returns the error for the text at offset `at`, where the grammar accepts no further token.
pub(super) fn unexpected_token(place: ConditionText<'_>, at: usize) -> SyntaxError {
    let text = place.text;
    let before = text.get(..at).unwrap_or(text).trim_end();
    let rest = text.get(at..).unwrap_or_default();
    let skipped = rest.len() - rest.trim_start().len();
    let at = at + skipped;
    let rest = rest.trim_start();
    if before.ends_with('.') {
        return condition_error(
            place.span(before.len() - 1, before.len()),
            "a path has an empty segment".into(),
            "no segment follows this dot",
            Some(if rest.starts_with(|c: char| c.is_ascii_digit()) {
                "a number in a path has no leading zeros"
            } else {
                "a segment is a name or a number: `call.item_id`, `items.0`"
            }),
        );
    }
    let Some(c) = rest.chars().next() else { return unexpected_end(place, before) };

    if matches!(c, '"' | '\'') && operand_expected(before) {
        return condition_error(
            place.span(at, text.len()),
            "this string is never closed".into(),
            "opened here",
            Some(if c == '"' { "close it with `\"`" } else { "close it with `'`" }),
        );
    }
    let token = first_token(rest);
    let span = place.span(at, at + token.len());
    let is_exists_operand = before.strip_suffix('(').is_some_and(|b| b.trim_end().ends_with("exists"));
    let (message, label): (String, &str) = if is_exists_operand {
        ("`exists` needs a path".into(), "not a path")
    } else if operand_expected(before) && c.is_ascii_digit() {
        (format!("`{}` is not a number", shorten(token)), "a number has no leading zeros and no letters")
    } else if operand_expected(before) {
        (format!("a value is missing before `{}`", shorten(token)), "expected a value here")
    } else if matches!(c, ')' | ']') {
        (format!("unmatched `{c}`"), "no bracket is open here")
    } else if c.is_control() || !c.is_ascii() {
        (format!("{} is not allowed here", describe_char(c)), "expected an operator or the end of the condition")
    } else {
        (format!("`{}` is not expected here", shorten(token)), "expected an operator or the end of the condition")
    };
    condition_error(span, message, label, help_for_token(before, rest, token))
}

fn unexpected_end(place: ConditionText<'_>, before: &str) -> SyntaxError {
    let end = before.len();
    if let Some((at, open)) = last_open(before)
        && !operand_expected(before)
    {
        return condition_error(
            place.span(at, at + 1),
            format!("`{open}` is never closed"),
            "opened here",
            Some(if open == '(' { "add a `)`" } else { "add a `]`" }),
        );
    }
    condition_error(
        place.span(end.saturating_sub(1), end),
        "the condition ends where a value is expected".into(),
        "something must follow",
        before.ends_with('%').then_some(
            "write `0.8` or `80` for 80 %, depending on the fact that it is compared with; `%` is the remainder of a division",
        ),
    )
}

/// Returns true if a value must follow: after the start, an open bracket, a comma, or an operator.
fn operand_expected(before: &str) -> bool {
    let Some(last) = before.chars().next_back() else { return true };
    if matches!(last, '(' | '[' | ',' | '=' | '<' | '>' | '&' | '|' | '!' | '+' | '-' | '*' | '/' | '%') {
        return true;
    }
    let word_start = before.rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).map_or(0, |i| i + 1);
    let word = before.get(word_start..).unwrap_or_default();
    let after_dot = before.get(..word_start).is_some_and(|b| b.ends_with('.'));
    !after_dot && matches!(word, "and" | "or" | "not" | "in" | "contains" | "matches" | "exists" | "length")
}

/// Returns the last bracket that is never closed, with its offset; `None` if all are closed.
fn last_open(text: &str) -> Option<(usize, char)> {
    let mut open = Vec::new();
    for (at, bracket) in brackets(text) {
        if matches!(bracket, '(' | '[') {
            open.push((at, bracket));
        } else {
            open.pop();
        }
    }
    open.pop()
}

/// Returns the first token of `rest`: a word, a run of operator characters, or a single other character. Empty if
/// `rest` is empty.
fn first_token(rest: &str) -> &str {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let operator = |c: char| matches!(c, '=' | '<' | '>' | '&' | '|' | '!' | '~' | '?');
    let Some(first) = rest.chars().next() else { return rest };
    let same: &dyn Fn(char) -> bool = if word(first) {
        &word
    } else if operator(first) {
        &operator
    } else {
        return rest.get(..first.len_utf8()).unwrap_or(rest);
    };
    rest.find(|c| !same(c)).and_then(|end| rest.get(..end)).unwrap_or(rest)
}

fn help_for_token(before: &str, rest: &str, token: &str) -> Option<&'static str> {
    if rest.starts_with("${") {
        return Some("write the name of the fact without `${…}`");
    }
    if rest.starts_with('{') {
        return Some("write the name of the fact without braces: `inputs.name`");
    }
    let unit = token.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '_'));
    if unit.len() < token.len() && !unit.is_empty() && unit.chars().all(char::is_alphabetic) && operand_expected(before)
    {
        return Some("a number has no unit: write the digits alone, in the unit of the fact");
    }
    let follows_a_name = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    if token.starts_with('=') && before.ends_with('=') {
        return Some("equality is written `==`");
    }
    if before.trim_end().ends_with("matches") && token.starts_with('/') {
        return Some("a pattern is a string in quotes: `matches \"rm.*\"`");
    }
    if matches!(token, "not" | "NOT" | "Not" | "!in" | "!") {
        let after = rest.get(token.len()..).unwrap_or_default().trim_start();
        let is_test = ["in", "IN", "contains", "matches", "like"].iter().any(|word| after.starts_with(word));
        if is_test || token == "!in" {
            return Some("negate the whole test: `!(a in [b, c])`, `not (a contains b)`");
        }
    }
    match token {
        "=" | ":=" | "is" | "eq" => return Some("equality is written `==`"),
        "=<" | "≤" => return Some("write `<=`"),
        "=>" | "≥" => return Some("write `>=`"),
        "<>" | "ne" | "≠" => return Some("inequality is written `!=`"),
        "“" | "”" | "‘" | "’" | "„" | "«" | "»" => {
            return Some("put strings in straight quotes: `\"text\"` or `'text'`");
        }
        "&" | "AND" | "And" => return Some("write `&&` or `and`"),
        "|" | "OR" | "Or" => return Some("write `||` or `or`"),
        "NOT" | "Not" => return Some("write `!` or `not`"),
        "IN" | "In" => return Some("write `in`"),
        "(" if follows_a_name => return Some("the functions are `exists(path)` and `length(value)`"),
        "[" if follows_a_name => return Some("keys and numbers follow a dot: `inputs.name`, `items.0`"),
        "%" => return Some("write `0.8` or `80` for 80 %, depending on the fact that it is compared with"),
        "," => return Some("a list needs square brackets: `x in [1, 2]`"),
        "startswith" | "startsWith" | "starts_with" | "hasPrefix" | "beginsWith" => {
            return Some("write `matches` and a pattern for the start: `matches \"^text\"`");
        }
        "endswith" | "endsWith" | "ends_with" | "hasSuffix" => {
            return Some("write `matches` and a pattern for the end: `matches \"text$\"`");
        }
        "includes" | "include" | "contain" | "has" => return Some("write `contains`"),
        "like" | "LIKE" | "glob" => return Some("write `matches` and a regular expression in quotes"),
        "=~" | "~=" | "~" | "regex" | "match" => return Some("write `matches` and a pattern in quotes"),
        "gt" | "gte" | "lt" | "lte" => return Some("in a one-line condition, write `>`, `>=`, `<` or `<=`"),
        ">" if before.ends_with('<') => return Some("inequality is written `!=`"),
        "?" | "??" | "?:" => return Some("a condition can only be true or false, and cannot select one of two values"),
        _ => {}
    }
    if token.starts_with('"') || token.starts_with('\'') {
        return Some("an operator such as `==` or `contains` must separate two values");
    }
    None
}
