//! Converts the errors of the YAML library to syntax errors.

use serde_saphyr::Error;
use serde_saphyr::budget::BudgetBreach;

use super::node::SpanConverter;
use super::{MAX_ALIASES, MAX_DEPTH, MAX_NODES};
use crate::error::{SyntaxError, SyntaxKind};
use crate::span::Span;
use crate::text::shorten;

/// The message of the library error that reports nesting beyond the limit.
pub(super) const TOO_DEEP_MESSAGE: &str = "too deep";

/// The start of the first line of a merge conflict.
const CONFLICT_MARKER: &str = "<<<<<<< ";
const NOT_UNDERSTOOD: &str = "not understood here";
const TAB_MESSAGE: &str = "a tab cannot indent here";
const TAB_HELP: &str = "indent with spaces: YAML does not allow tabs";

pub(super) fn yaml_error(span: Span, message: String, label: &str, help: Option<&str>) -> SyntaxError {
    SyntaxKind::Yaml.error(span, message, label).with_help_if(help)
}

/// Returns the error for a duplicate key in a mapping.
pub(super) fn duplicate_key(span: Span, key: &str) -> SyntaxError {
    yaml_error(span, format!("`{}` is given twice", shorten(key)), "second time", Some(repeated_key_help(key)))
}

/// Returns the help for a repeated key. A key of three digits can be a part of a number: YAML reads `{ a: 1,000,000 }` as a
/// mapping with the key `000` twice.
fn repeated_key_help(key: &str) -> &'static str {
    let is_group = key.len() == 3 && key.bytes().all(|byte| byte.is_ascii_digit());
    if is_group { "a number has no separators: write `1000000`, not `1,000,000`" } else { "keep one of the two keys" }
}

pub(super) fn to_syntax_error(spans: &SpanConverter<'_>, error: &Error) -> SyntaxError {
    let error = error.without_snippet();
    let (start, end) = error.location().map_or((0, 0), |place| spans.byte_range(place));
    let (message, label, help) = error_text(error);
    if (message.ends_with("found a tab") || label == NOT_UNDERSTOOD)
        && let Some(at) = indenting_tab(spans.text, start)
    {
        return yaml_error(spans.span(at, at + 1), TAB_MESSAGE.to_owned(), "a tab", Some(TAB_HELP));
    }
    if let Some(at) = conflict_marker(spans.text) {
        let message = "this file has the marks of a merge conflict".to_owned();
        let help = "choose one of the two versions, and remove the lines `<<<<<<<`, `=======` and `>>>>>>>`";
        return yaml_error(spans.span(at, at + CONFLICT_MARKER.len()), message, "the conflict starts here", Some(help));
    }
    if label == NOT_UNDERSTOOD
        && let Some((at, c)) = indenting_blank(spans.text, start)
    {
        let message = format!("the character U+{:04X} cannot indent here", u32::from(c));
        let help = "indent with spaces: the character only looks like one";
        return yaml_error(spans.span(at, at + c.len_utf8()), message, "not a space", Some(help));
    }
    if (label == NOT_UNDERSTOOD || message.starts_with("mapping values are not allowed"))
        && let Some((at, c)) = separating_blank(spans.text, start)
    {
        let message = format!("the character U+{:04X} does not separate a value", u32::from(c));
        let help = "write a space: the character only looks like one";
        return yaml_error(spans.span(at, at + c.len_utf8()), message, "not a space", Some(help));
    }
    if message.ends_with("found unknown escape character")
        && let Some((at, escape)) = unknown_escape(spans.text, start)
        && !escape.contains(char::is_control)
    {
        let message = format!("`{escape}` is not an escape of a double-quoted text");
        let help = format!("write `\\{escape}`, or put the text in single quotes, in which a backslash is a backslash");
        return yaml_error(spans.span(at, at + escape.len()), message, "unknown escape", Some(&help));
    }
    if message.starts_with("illegal placement of")
        && let Some((at, bracket)) = unclosed_bracket(spans.text, start)
    {
        let message = format!("this `{bracket}` is never closed");
        let help = format!("add `{}`", if bracket == '[' { ']' } else { '}' });
        return yaml_error(spans.span(at, at + 1), message, "opened here", Some(&help));
    }
    let span = spans.span(start, end);
    let span = if span.is_empty() { span_at(spans, start) } else { span };
    yaml_error(span, message, label, help)
}

/// Returns the offset of the line that starts a merge conflict; `None` if no line does.
fn conflict_marker(text: &str) -> Option<usize> {
    if text.starts_with(CONFLICT_MARKER) {
        return Some(0);
    }
    text.find(&format!("\n{CONFLICT_MARKER}")).map(|at| at + 1)
}

/// Returns the offset and the character of the first blank that indents the line of `from` or the line before it and is
/// neither a space nor a tab, such as a no-break space. `None` if there is no such blank.
fn indenting_blank(text: &str, from: usize) -> Option<(usize, char)> {
    let line_start = |until: usize| text.get(..until).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    let mut at = line_start(line_start(from).saturating_sub(1));
    for line in text.get(at..)?.split_inclusive('\n').take(2) {
        let mut indentation = line.char_indices().take_while(|(_, c)| c.is_whitespace() && !matches!(c, '\n' | '\r'));
        if let Some((offset, c)) = indentation.find(|(_, c)| !matches!(c, ' ' | '\t')) {
            return Some((at + offset, c));
        }
        at += line.len();
    }
    None
}

/// Returns the offset and the character of the first blank that follows a `:`, `-` or `,` and is neither a space nor a
/// tab. Searches the line of `from`, the line before it and the line after it. `None` if there is no such blank.
fn separating_blank(text: &str, from: usize) -> Option<(usize, char)> {
    let line_start = |until: usize| text.get(..until).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    let start = line_start(line_start(from).saturating_sub(1));
    let lines = text.get(start..)?.split_inclusive('\n').take(3).map(str::len).sum::<usize>();
    let mut previous = ' ';
    for (offset, c) in text.get(start..start + lines)?.char_indices() {
        let is_blank = c.is_whitespace() && !matches!(c, ' ' | '\t' | '\n' | '\r');
        if is_blank && matches!(previous, ':' | '-' | ',') {
            return Some((start + offset, c));
        }
        previous = c;
    }
    None
}

/// Returns the offset and the text of the first escape after `from` that YAML does not have, such as `\.`. `None` if
/// there is none.
fn unknown_escape(text: &str, from: usize) -> Option<(usize, &str)> {
    const ESCAPES: &str = "0abtnvfre \"/\\N_LPxuU\n\r\t";
    let rest = text.get(from..)?;
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        if c != '\\' {
            continue;
        }
        let (end, escaped) = chars.next()?;
        if !ESCAPES.contains(escaped) {
            return Some((from + at, rest.get(at..end + escaped.len_utf8())?));
        }
    }
    None
}

/// Returns the offset of the first tab that indents the line of `from`, the line before it or the line after it; `None`
/// if there is no such tab.
fn indenting_tab(text: &str, from: usize) -> Option<usize> {
    let line_start = |until: usize| text.get(..until).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    let start = line_start(line_start(from).saturating_sub(1));
    let mut at = start;
    for line in text.get(start..)?.split_inclusive('\n').take(3) {
        let indentation = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(tab) = line.get(..indentation)?.find('\t') {
            return Some(at + tab);
        }
        at += line.len();
    }
    None
}

/// Returns the offset and the character of the innermost bracket that is still open at the offset `until`. `None` if no
/// bracket is open, or if the bracket is on the same line as `until`. A quote is recognized only at the start of a
/// value, because an apostrophe inside a text starts no quoted text.
fn unclosed_bracket(text: &str, until: usize) -> Option<(usize, char)> {
    let before = text.get(..until)?;
    let mut open: Vec<(usize, char)> = Vec::new();
    let mut at = 0;
    for line in before.split_inclusive('\n') {
        let (mut quote, mut previous) = (None, ' ');
        for (offset, c) in line.char_indices() {
            let starts_value = previous.is_whitespace() || matches!(previous, '[' | '{' | ',' | ':');
            let is_quoted = quote.is_some();
            if quote == Some(c) {
                quote = None;
            } else if !is_quoted {
                match c {
                    '"' | '\'' if starts_value => quote = Some(c),
                    '#' if previous.is_whitespace() => break,
                    '[' | '{' => open.push((at + offset, c)),
                    ']' | '}' => drop(open.pop()),
                    _ => {}
                }
            }
            previous = c;
        }
        at += line.len();
    }
    let line = before.rfind('\n').map_or(0, |at| at + 1);
    open.pop().filter(|(at, _)| *at < line)
}

/// Returns the span of the character at an offset; for white space, the span is empty. An offset in the white space at
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
            Some(repeated_key_help(key.as_deref().unwrap_or_default())),
        ),
        Error::MultipleDocuments { .. } => plain(
            "a file can have only one YAML document",
            "the second document starts here",
            Some("remove the `---` before the second document"),
        ),
        Error::UnknownAnchor { .. } => plain(
            "this alias refers to an unknown anchor",
            "unknown anchor",
            Some("define the anchor first, with `&name`"),
        ),
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
            plain("a key must be a name, not a list or a mapping", "not a name", Some("put a name before the `:`"))
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
                return (TAB_MESSAGE.to_owned(), "a tab", Some(TAB_HELP));
            }
            if message.starts_with("unexpected character: `\\u{0}`") {
                return ("a NUL character is not allowed".to_owned(), "not allowed", Some("remove the character"));
            }
            if message == "invalid indentation in multiline quoted scalar" {
                return (
                    "a quoted string continues on this line, which is indented less".to_owned(),
                    "this line is inside quotes that open on an earlier line",
                    Some("close the quote on the line where the string ends, or indent the lines that follow"),
                );
            }
            let help =
                "check the brackets, quotes and indentation before this place; a string with `: ` or ` #` needs quotes";
            (message, NOT_UNDERSTOOD, Some(help))
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

/// Returns the message of the YAML library without its position, and with backticks in place of its quotes.
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
