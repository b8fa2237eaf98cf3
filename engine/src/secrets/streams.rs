//! Normalized forms of a text, in which masking searches for encoded secrets: with escapes decoded, without white
//! space, or only the digits of a hex dump. Each byte of a form keeps its range in the original text.

use std::ops::Range;

/// Maximum number of decoding rounds: a value can be percent-encoded within JSON within JSON.
pub const MAX_ROUNDS: usize = 3;

/// The kinds of escapes that one decoding round replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EscapeKind {
    /// All kinds at once. Some texts are encoded several times, each time with another kind of escape.
    Any,
    /// Escapes that start with a backslash: `\u00e9`, `\x2f`, `\057`, `\"`, `\n`.
    Backslash,
    /// Percent encoding, as in URLs: `%2F`.
    Percent,
    /// HTML character references, such as `&amp;`.
    Entity,
}

impl EscapeKind {
    /// All kinds of escapes. A search decodes the text with each kind separately. A value that itself contains escapes
    /// of a kind is found only if that kind is not decoded.
    pub const ALL: [Self; 4] = [Self::Any, Self::Backslash, Self::Percent, Self::Entity];

    fn begins_with(self, byte: u8) -> bool {
        match self {
            Self::Any => true,
            Self::Backslash => byte == b'\\',
            Self::Percent => byte == b'%',
            Self::Entity => byte == b'&',
        }
    }
}

/// A form of a text in which escapes are decoded or separators removed, so that a search finds encoded secrets. Each
/// byte keeps its range in the original text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    pub bytes: Vec<u8>,
    /// For each byte in `bytes`, the start and the end of the range of the original text from which the byte was
    /// decoded.
    places: Vec<(usize, usize)>,
}

impl Stream {
    /// Creates the stream of the unchanged text.
    pub fn of(text: &str) -> Self {
        Self { bytes: text.as_bytes().to_vec(), places: (0..text.len()).map(|at| (at, at + 1)).collect() }
    }

    /// Returns the range of the original text that the bytes in the range `found` were decoded from. `None` if `found`
    /// is empty or ends after the last byte.
    pub fn range(&self, found: &Range<usize>) -> Option<Range<usize>> {
        let (start, _) = self.places.get(found.start)?;
        let (_, end) = self.places.get(found.end.checked_sub(1)?)?;
        Some(*start..*end)
    }

    /// Returns the bytes without white space, and with `+` and `/` in place of `-` and `_`: URL-safe base 64 becomes
    /// standard base 64.
    pub fn compact(&self) -> Self {
        let mut out = Self::default();
        for (byte, place) in self.bytes.iter().zip(&self.places) {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c => {}
                b'-' => out.push(b'+', *place),
                b'_' => out.push(b'/', *place),
                byte => out.push(*byte, *place),
            }
        }
        out
    }

    /// Decodes all escapes of this kind once. The result may contain escapes again.
    pub fn decoded(&self, kind: EscapeKind) -> Self {
        let mut out = Self::default();
        let mut at = 0;
        while let Some(rest) = self.bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let (bytes, length) = match rest {
                [first, ..] if !kind.begins_with(*first) => (vec![*first], 1),
                rest => decode_first(rest),
            };
            let start = self.places.get(at).map_or(0, |(start, _)| *start);
            let end = self.places.get(at + length - 1).map_or(start, |(_, end)| *end);
            for byte in bytes {
                out.push(byte, (start, end));
            }
            at += length;
        }
        out
    }

    /// Returns only the hex digits, in lower case. Leaves out separators, the prefixes `0x` and `\x`, and the offsets
    /// and text columns of hex dumps. Any other character becomes a `|`, so that digits before and after it are not
    /// joined.
    pub fn hex_digits(&self) -> Self {
        let mut out = Self::default();
        let mut from = 0;
        while from < self.bytes.len() {
            let line = self.bytes.get(from..).unwrap_or_default();
            let length = line.iter().position(|byte| *byte == b'\n').map_or(line.len(), |at| at + 1);
            let columns = dump_columns(line.get(..length).unwrap_or_default());
            self.push_digits(from + columns.start..from + columns.end, &mut out);
            from += length;
        }
        out
    }

    fn push_digits(&self, range: Range<usize>, out: &mut Self) {
        let mut at = range.start;
        while at < range.end {
            let Some((byte, place)) = self.bytes.get(at).zip(self.places.get(at)) else { return };
            let next = self.bytes.get(at + 1).copied().unwrap_or_default();
            match byte {
                b'0' | b'\\' if matches!(next, b'x' | b'X') => at += 1,
                byte if byte.is_ascii_hexdigit() => out.push(byte.to_ascii_lowercase(), *place),
                b' ' | b'\t' | b'\r' | b'\n' | b':' | b',' | b'-' | b'"' | b'\'' => {}
                _ => out.push(b'|', *place),
            }
            at += 1;
        }
    }

    fn push(&mut self, byte: u8, place: (usize, usize)) {
        self.bytes.push(byte);
        self.places.push(place);
    }
}

/// Decodes the first escape or character of `rest`. Returns the decoded bytes, and the number of bytes of `rest` that
/// they were decoded from, at least one.
fn decode_first(rest: &[u8]) -> (Vec<u8>, usize) {
    let same = |bytes: &[u8]| (bytes.to_vec(), 1);
    match rest {
        [b'%', high, low, ..] => hex_byte(*high, *low).map_or_else(|| same(b"%"), |byte| (vec![byte], 3)),
        [b'\\', b'u', ..] => unicode_escape(rest).unwrap_or_else(|| same(b"\\")),
        [b'\\', b'U', ..] => wide_escape(rest).unwrap_or_else(|| same(b"\\")),
        [b'\\', b'x', high, low, ..] => hex_byte(*high, *low).map_or_else(|| same(b"\\"), |byte| (vec![byte], 4)),
        [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
            (vec![((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0')], 4)
        }
        [b'\\', b'n' | b'r' | b't' | b'f' | b'b' | b'v', ..] => (vec![b' '], 2),
        [b'\\', escaped @ (b'"' | b'\'' | b'\\' | b'/' | b'`' | b'$' | b' '), ..] => (vec![*escaped], 2),
        [b'&', ..] => entity(rest).unwrap_or_else(|| same(b"&")),
        [first, ..] => same(&[*first]),
        [] => (Vec::new(), 1),
    }
}

fn hex_byte(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some((digit(high)? << 4) | digit(low)?)
}

fn hex_number(digits: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(digits).ok()?;
    let all = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    all.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

fn utf8(code: u32) -> Option<Vec<u8>> {
    char::from_u32(code).map(|c| c.to_string().into_bytes())
}

/// Decodes `\u00e9`, a pair of surrogates, or `\u{e9}` at the start of some bytes. Returns the decoded bytes and the
/// number of encoded bytes; `None` if the escape is invalid.
fn unicode_escape(rest: &[u8]) -> Option<(Vec<u8>, usize)> {
    if rest.get(2) == Some(&b'{') {
        let close = rest.iter().take(10).position(|byte| *byte == b'}')?;
        return Some((utf8(hex_number(rest.get(3..close)?)?)?, close + 1));
    }
    let first = hex_number(rest.get(2..6)?)?;
    if let 0xd800..0xdc00 = first {
        let low = rest.get(6..8).filter(|next| next == b"\\u").and_then(|_| hex_number(rest.get(8..12)?))?;
        let code = 0x1_0000 + ((first - 0xd800) << 10) + low.checked_sub(0xdc00)?;
        return Some((utf8(code)?, 12));
    }
    Some((utf8(first)?, 6))
}

/// Decodes `\U000000e9` at the start of some bytes. Returns the decoded bytes and the number of encoded bytes; `None`
/// if the escape is invalid.
fn wide_escape(rest: &[u8]) -> Option<(Vec<u8>, usize)> {
    Some((utf8(hex_number(rest.get(2..10)?)?)?, 10))
}

/// Decodes a character reference of HTML at the start of some bytes. Returns the decoded bytes and the number of
/// encoded bytes; `None` if the reference is invalid or unknown.
fn entity(rest: &[u8]) -> Option<(Vec<u8>, usize)> {
    let end = rest.iter().take(12).position(|byte| *byte == b';')?;
    let name = rest.get(1..end)?;
    let decoded = match name {
        b"amp" => b"&".to_vec(),
        b"lt" => b"<".to_vec(),
        b"gt" => b">".to_vec(),
        b"quot" => b"\"".to_vec(),
        b"apos" => b"'".to_vec(),
        [b'#', b'x' | b'X', digits @ ..] => utf8(hex_number(digits)?)?,
        [b'#', digits @ ..] => utf8(std::str::from_utf8(digits).ok()?.parse().ok()?)?,
        _ => return None,
    };
    Some((decoded, end + 1))
}

/// Returns the data columns of a line of `xxd` or `hexdump -C`; the whole line if it has another form.
fn dump_columns(line: &[u8]) -> Range<usize> {
    let offset = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let behind = line.get(offset..).unwrap_or_default();
    let start = match behind {
        [b':', b' ', ..] if offset >= 4 => offset + 1,
        [b' ', b' ', ..] if offset >= 7 => offset + 1,
        _ => return 0..line.len(),
    };
    let data = line.get(start..).unwrap_or_default();
    // The text column begins behind a bar (`hexdump -C`), or behind two spaces (`xxd`).
    let bar = data.iter().position(|byte| *byte == b'|');
    let gap = data.windows(2).enumerate().skip(2).find(|(_, two)| *two == b"  ").map(|(at, _)| at);
    let end = bar.or_else(|| gap.filter(|_| behind.first() == Some(&b':'))).unwrap_or(data.len());
    start..start + end
}
