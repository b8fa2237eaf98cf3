//! Finds the `id` in a line that is invalid JSON or too large, so that clients can match the error to their request.
//! The parser reads the `id` of valid lines.

use serde::de::IgnoredAny;
use serde_json::Deserializer;

/// Returns the value of the outermost `id` of a line, as raw JSON. `None` if there is no such `id`, or if its value is
/// invalid or may be truncated.
pub(super) fn find_id(line: &str) -> Option<&str> {
    let bytes = line.as_bytes();
    let mut at = 0;
    let mut depth = 0usize;
    // True if the next string is a key of the outermost object.
    let mut key = false;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                key = depth == 1;
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => key = depth == 1,
            b'"' => {
                let end = end_of_string(bytes, at)?;
                if std::mem::take(&mut key) && line.get(at..end)? == "\"id\"" {
                    return leading_json_value(line.get(end..)?.trim_start().strip_prefix(':')?);
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the offset after the closing quote of a JSON string whose opening quote is at `open`; `None` if the string
/// is never closed.
fn end_of_string(bytes: &[u8], open: usize) -> Option<usize> {
    let mut at = open + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Returns the JSON value at the start of a text. `None` if the text does not start with a value. Also `None` if the
/// text ends directly after the value, because the value may then be truncated: `12` can be the start of `123`.
fn leading_json_value(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let mut values = Deserializer::from_str(text).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    let (value, rest) = text.split_at_checked(values.byte_offset())?;
    (!rest.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_of_invalid_line_is_found_anywhere() {
        for (line, id) in [
            (r#"{"id":3,"condition":"#, Some("3")),
            (r#"{"condition":[[[,"id":4}"#, None),
            (r#"{"condition":{"id":1},"id":"x","#, Some("\"x\"")),
            (r#" { "id" : {"a":[1]} , }"#, Some("{\"a\":[1]}")),
            (r#"{"a":"id","id":18446744073709551616}"#, Some("18446744073709551616")),
            (r#"{"a":"\ud800","id":5}"#, Some("5")),
            (r#"{"a":"\"id\":6","id":7}"#, Some("7")),
            (r#"{"id":"half"#, None),
            (r#"{"id":12"#, None),
            (r#"{"id":}"#, None),
            (r#"["id",1]"#, None),
            ("{'id':8}", None),
            ("", None),
        ] {
            assert_eq!(find_id(line), id, "{line}");
        }
    }
}
