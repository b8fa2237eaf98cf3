//! Converts the library's errors to syntax errors.

use serde_saphyr::Error;
use serde_saphyr::budget::BudgetBreach;

use super::node::SpanConverter;
use super::{MAX_ALIASES, MAX_DEPTH, MAX_NODES};
use crate::error::{SyntaxError, SyntaxKind};
use crate::span::Span;
use crate::text::shorten;

/// The message of the library error that reports nesting beyond the limit.
pub(super) const TOO_DEEP_MESSAGE: &str = "too deep";

pub(super) fn yaml_error(span: Span, message: String, label: &str, help: Option<&str>) -> SyntaxError {
    SyntaxKind::Yaml.error(span, message, label).with_help_if(help)
}

/// Returns the error for a duplicate key in a mapping.
pub(super) fn duplicate_key(span: Span, key: &str) -> SyntaxError {
    yaml_error(span, format!("`{}` is given twice", shorten(key)), "second time", Some("keep one of the two"))
}

pub(super) fn to_syntax_error(spans: &SpanConverter<'_>, error: &Error) -> SyntaxError {
    let error = error.without_snippet();
    let (start, end) = error.location().map_or((0, 0), |place| spans.byte_range(place));
    let (message, label, help) = error_text(error);
    let span = spans.span(start, end);
    let span = if span.is_empty() { span_at(spans, start) } else { span };
    yaml_error(span, message, label, help)
}

/// Returns the span of the character at an offset; the span of white space is empty. An offset in the white space at
/// the end of the text moves to the end of the last line with content.
fn span_at(spans: &SpanConverter<'_>, at: usize) -> Span {
    let at = if at >= spans.text.trim_end().len() { spans.text.trim_end().len() } else { at };
    match spans.text.get(at..).and_then(|rest| rest.chars().next()) {
        Some(c) if !c.is_whitespace() => spans.span(at, at + c.len_utf8()),
        Some(_) | None => spans.span(at, at),
    }
}

fn error_text(error: &Error) -> (String, &'static str, Option<&'static str>) {
    let plain = |text: &str, label, help| (text.to_owned(), label, help);
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the library's list is long, open and mostly about typed reading"
    )]
    match error {
        Error::DuplicateMappingKey { key, .. } => (
            key.as_ref()
                .map_or_else(|| "a key is given twice".to_owned(), |k| format!("`{}` is given twice", shorten(k))),
            "second time",
            Some("keep one of the two"),
        ),
        Error::MultipleDocuments { .. } => {
            plain("a file has one YAML document", "the second document starts here", Some("remove the `---` before it"))
        }
        Error::UnknownAnchor { .. } => {
            plain("this alias refers to an unknown anchor", "unknown anchor", Some("define it first, with `&name`"))
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            plain("this alias refers to its own parent", "endless", Some("write the value out"))
        }
        Error::Budget { breach, .. } => budget_error_text(breach),
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => (
            format!("aliases may expand to at most {MAX_NODES} values"),
            "too many from here",
            Some("write fewer aliases"),
        ),
        Error::NullIntoString { .. } => plain("a key cannot be null", "not a name", Some("put it in quotes")),
        Error::Unexpected { expected: "string scalar", .. } => {
            plain("a key is a name, not a list or a mapping", "not a name", Some("put a name before the `:`"))
        }
        Error::UnsupportedTag { tag, .. } => {
            (format!("unsupported tag `{}`", shorten(tag)), "unknown tag", Some("write the value without a tag"))
        }
        Error::NonFiniteFloat { value, .. } => {
            (format!("the number `{}` is not finite", shorten(value)), "not finite", Some("put it in quotes"))
        }
        Error::AliasError { error, .. } => error_text(error),
        other => {
            let message = clean_message(&other.to_string());
            if message.starts_with("values nest") {
                return (message, "one level too many", Some("flatten the value"));
            }
            if message.starts_with("tabs disallowed") {
                return (
                    "a tab cannot indent here".to_owned(),
                    "a tab",
                    Some("indent with spaces: YAML does not allow tabs"),
                );
            }
            let help =
                "check the brackets, quotes and indentation before this place; a text with `: ` or ` #` needs quotes";
            (message, "not understood here", Some(help))
        }
    }
}

fn budget_error_text(breach: &BudgetBreach) -> (String, &'static str, Option<&'static str>) {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the library sets the other budgets far above these limits")]
    match breach {
        BudgetBreach::Depth { .. } => {
            (format!("values nest at most {MAX_DEPTH} deep"), "one level too many", Some("flatten the value"))
        }
        BudgetBreach::Aliases { .. } => {
            (format!("a document uses at most {MAX_ALIASES} aliases"), "one too many", Some("write the values out"))
        }
        _ => (format!("a document has at most {MAX_NODES} values"), "too many from here", Some("split the file")),
    }
}

/// Returns the library's message without its position, and with backticks in place of the library's quotes.
fn clean_message(text: &str) -> String {
    let text = text.rsplit_once(" at line ").map_or(text, |(before, _)| before);
    let text = text.trim_end_matches('.');
    if matches!(text, TOO_DEEP_MESSAGE | "recursion limit exceeded") {
        return format!("values nest at most {MAX_DEPTH} deep");
    }
    let mut out = String::with_capacity(text.len());
    let mut open = false;
    for c in text.chars() {
        match c {
            '`' => {
                open = true;
                out.push('`');
            }
            '\'' => {
                open = !open;
                out.push('`');
            }
            c => out.push(c),
        }
    }
    let mut chars = out.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => "this is not valid YAML".to_owned(),
    }
}
