//! Splits the text after `/name` in a message of the user into the arguments of the call.

/// Splits the text after the first word of a call into arguments, by the quoting of a shell: single quotes keep
/// everything, double quotes keep white space, a backslash keeps the next character. A quote that is never closed is
/// text, so that prose may contain an apostrophe.
pub(crate) fn split_arguments(text: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = rest.get(c.len_utf8()..).unwrap_or_default();
        rest = after;
        match c {
            '\\' => {
                let next = after.chars().next();
                word.get_or_insert_default().push(next.unwrap_or('\\'));
                rest = after.get(next.map_or(0, char::len_utf8)..).unwrap_or_default();
            }
            '\'' | '"' => {
                let quoted = if c == '\'' { single_quoted(after) } else { double_quoted(after) };
                let word = word.get_or_insert_default();
                match quoted {
                    Some((inside, behind)) => {
                        word.push_str(&inside);
                        rest = behind;
                    }
                    None => word.push(c),
                }
            }
            c if c.is_whitespace() => arguments.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    arguments.extend(word);
    arguments
}

/// Returns the content up to the closing single quote, and the text after the quote; `None` if the quote is never
/// closed. `text` begins after the opening quote.
fn single_quoted(text: &str) -> Option<(String, &str)> {
    text.split_once('\'').map(|(inside, behind)| (inside.to_owned(), behind))
}

/// Reads the rest of a double-quoted text; `text` follows the opening quote. Returns the quoted text with its escapes
/// replaced, and the text after the closing quote. A backslash escapes `"`, `\`, `$` and a backtick. `None` if no quote
/// closes the text.
fn double_quoted(text: &str) -> Option<(String, &str)> {
    let mut inside = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((inside, text.get(at + 1..).unwrap_or_default())),
            '\\' => {
                let escaped = chars.next_if(|(_, next)| matches!(next, '"' | '\\' | '$' | '`'));
                inside.push(escaped.map_or('\\', |(_, next)| next));
            }
            c => inside.push(c),
        }
    }
    None
}
