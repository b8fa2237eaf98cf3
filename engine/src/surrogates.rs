//! Lone surrogate escapes in JSON texts (`"\ud83d"`), which JSON parsers refuse. Each half is represented by a
//! private-use character (its mark) until both halves of a character can be joined. A half without a partner becomes
//! U+FFFD.

use serde_json::Value;

/// Difference between the code of a surrogate (one half of a UTF-16 pair) and the code of its mark, the private-use
/// character of plane 16 that represents the half.
const MARK_OFFSET: u32 = 0x0010_0000;
pub(crate) const HIGH: std::ops::RangeInclusive<u32> = 0xD800..=0xDBFF;
const LOW: std::ops::RangeInclusive<u32> = 0xDC00..=0xDFFF;

/// Returns the mark of a surrogate `half`: the private-use character that represents the half. `None` if the mark is no
/// valid character.
pub(crate) fn to_mark(half: u32) -> Option<char> {
    char::from_u32(MARK_OFFSET + half)
}

/// Returns the surrogate half that a mark represents; `None` if the character is no mark.
pub(crate) fn from_mark(c: char) -> Option<u32> {
    u32::from(c).checked_sub(MARK_OFFSET).filter(|half| HIGH.contains(half) || LOW.contains(half))
}

/// Replaces each lone surrogate escape of a JSON text by its mark (see `to_mark`). Returns `None` if the text contains
/// no lone surrogate escape.
pub(crate) fn mark_lone_halves(json: &str) -> Option<String> {
    if !json.contains("\\ud") && !json.contains("\\uD") {
        return None;
    }
    let mut marked = String::with_capacity(json.len());
    let mut found = false;
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        marked.push_str(before);
        let length = match escaped_half(escape) {
            Some(high)
                if HIGH.contains(&high) && escape.get(6..).and_then(escaped_half).is_some_and(|h| LOW.contains(&h)) =>
            {
                marked.push_str(escape.get(..12).unwrap_or_default());
                12
            }
            Some(half) => {
                found = true;
                marked.extend(to_mark(half));
                6
            }
            // Any other escape consists of the backslash and the character behind it.
            None => {
                let length = 1 + escape.get(1..).and_then(|text| text.chars().next()).map_or(0, char::len_utf8);
                marked.push_str(escape.get(..length).unwrap_or_default());
                length
            }
        };
        rest = escape.get(length..).unwrap_or_default();
    }
    marked.push_str(rest);
    found.then_some(marked)
}

/// Returns the half of a surrogate pair that a text starts with, written as an escape such as `\ud83d`; `None` if the
/// text starts with anything else.
fn escaped_half(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let half = digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())??;
    (HIGH.contains(&half) || LOW.contains(&half)).then_some(half)
}

/// Replaces the marks of surrogate halves (see `to_mark`) in a text. The marks of two matching halves become the
/// character that the halves encode together. Any other mark becomes U+FFFD.
pub(crate) fn join_halves(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let Some(half) = from_mark(c) else {
            joined.push(c);
            continue;
        };
        let low = rest.peek().copied().and_then(from_mark).filter(|low| HIGH.contains(&half) && LOW.contains(low));
        let whole = low.and_then(|low| char::from_u32(0x1_0000 + ((half - 0xD800) << 10) + (low - 0xDC00)));
        if whole.is_some() {
            rest.next();
        }
        joined.push(whole.unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    joined
}

/// Replaces the marks of surrogate halves in all strings and keys of a value. The marks of two matching halves become
/// the character that the halves encode together. Any other mark becomes U+FFFD.
pub(crate) fn join_in_value(value: &mut Value) {
    match value {
        Value::String(text) => *text = join_halves(text),
        Value::Array(list) => list.iter_mut().for_each(join_in_value),
        Value::Object(map) => {
            *map = std::mem::take(map)
                .into_iter()
                .map(|(key, mut value)| {
                    join_in_value(&mut value);
                    (join_halves(&key), value)
                })
                .collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Parses JSON, and replaces lone surrogate escapes with U+FFFD.
///
/// # Errors
///
/// The text is not JSON, even with the lone surrogate escapes replaced.
pub(crate) fn parse_lenient(text: &str) -> Result<Value, serde_json::Error> {
    let Some(marked) = mark_lone_halves(text) else { return serde_json::from_str(text) };
    let mut value = serde_json::from_str(&marked)?;
    join_in_value(&mut value);
    Ok(value)
}
