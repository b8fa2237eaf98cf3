//! The characters that XML 1.0 allows, and the characters that its references represent.

/// Returns true if a character is allowed in a document.
pub(super) fn is_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}

pub(super) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

pub(super) fn is_name_start(c: char) -> bool {
    matches!(c, 'A'..='Z' | 'a'..='z' | '_' | ':'
        | '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{2FF}' | '\u{370}'..='\u{37D}'
        | '\u{37F}'..='\u{1FFF}' | '\u{200C}' | '\u{200D}' | '\u{2070}'..='\u{218F}' | '\u{2C00}'..='\u{2FEF}'
        | '\u{3001}'..='\u{D7FF}' | '\u{F900}'..='\u{FDCF}' | '\u{FDF0}'..='\u{FFFD}' | '\u{10000}'..='\u{EFFFF}')
}

pub(super) fn is_name_char(c: char) -> bool {
    is_name_start(c) || matches!(c, '0'..='9' | '-' | '.' | '\u{B7}' | '\u{300}'..='\u{36F}' | '\u{203F}' | '\u{2040}')
}

/// Returns the length, in bytes, of the name at the start of `text`; 0 if there is none.
pub(super) fn name_len(text: &str) -> usize {
    let name_byte = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':' | b'-' | b'.');
    // Names are nearly always ASCII, so bytes are enough.
    let ascii = text.bytes().position(|b| !name_byte(&b)).unwrap_or(text.len());
    if text.as_bytes().get(ascii).is_none_or(u8::is_ascii) {
        let starts = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | b':'));
        return if starts { ascii } else { 0 };
    }
    if !text.starts_with(is_name_start) {
        return 0;
    }
    text.find(|c| !is_name_char(c)).unwrap_or(text.len())
}

/// Returns the character that a reference stands for, given the text between `&` and `;`; `None` for an unknown entity
/// or an invalid code.
pub(super) fn resolve_reference(reference: &str) -> Option<char> {
    match reference {
        "lt" => return Some('<'),
        "gt" => return Some('>'),
        "amp" => return Some('&'),
        "apos" => return Some('\''),
        "quot" => return Some('"'),
        _ => {}
    }
    let number = reference.strip_prefix('#')?;
    let code = match number.strip_prefix('x') {
        Some(hex) if !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit()) => u32::from_str_radix(hex, 16),
        None if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => number.parse(),
        Some(_) | None => return None,
    };
    code.ok().and_then(char::from_u32).filter(|c| is_char(*c))
}

/// Appends text with normalized line ends: `\r\n` and a lone `\r` become `\n`.
pub(super) fn push_normalized_text(into: &mut String, raw: &str) {
    if !raw.as_bytes().contains(&b'\r') {
        into.push_str(raw);
        return;
    }
    let mut rest = raw;
    while let Some(at) = rest.find('\r') {
        into.push_str(rest.get(..at).unwrap_or_default());
        into.push('\n');
        let after = rest.get(at + 1..).unwrap_or_default();
        rest = after.strip_prefix('\n').unwrap_or(after);
    }
    into.push_str(rest);
}
