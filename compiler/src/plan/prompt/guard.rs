//! The protection of the element that encloses a layer: no text inside the element can end the element early.
//!
//! Two cases exist. If the *knowledge itself* contains the closing tag of its element, each of these tags is sent as
//! `&lt;/…`, and the plan reports their number. If a *placeholder value* completes a closing tag, alone or together
//! with the text around it, the value is escaped. The text around the value is not escaped, because the plan fixes that
//! text byte for byte. All other text is sent unchanged.

use std::fmt::Write as _;
use std::ops::Range;

/// A piece of a layer's text: `Text` was written by the author, `Value` was filled into a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LayerPiece {
    Text(String),
    Value(String),
}

/// Joins the pieces of a layer whose text is enclosed in an element `tag`. No placeholder value may end this element
/// early: in each closing tag of `tag` that contains bytes of a value, the first character from a value is escaped. A
/// layer without a tag (`None`) is not escaped.
pub(crate) fn guard_layer(tag: Option<&str>, pieces: &[LayerPiece]) -> String {
    let mut joined = String::new();
    let mut values: Vec<Range<usize>> = Vec::new();
    for piece in pieces {
        match piece {
            LayerPiece::Text(text) => joined.push_str(text),
            LayerPiece::Value(value) => {
                if !value.is_empty() {
                    values.push(joined.len()..joined.len() + value.len());
                }
                joined.push_str(value);
            }
        }
    }
    let Some(tag) = tag.filter(|_| !values.is_empty()) else { return joined };
    let edits: Vec<usize> =
        closing_tags(tag, &joined).filter_map(|closing| first_byte_from_value(&values, &closing)).collect();
    if edits.is_empty() { joined } else { escape_at(&joined, &edits) }
}

/// Escapes the closing tags of the element `tag` in a text of the author: the `<` of each tag becomes `&lt;`. Returns
/// the new text and the number of escaped tags.
pub(crate) fn escape_closing_tags(tag: &str, text: &str) -> (String, u64) {
    let edits: Vec<usize> = closing_tags(tag, text).map(|closing| closing.start).collect();
    let count = u64::try_from(edits.len()).unwrap_or(u64::MAX);
    (escape_at(text, &edits), count)
}

/// Finds closing tags as a lenient parser would: any case, white space around the slash.
fn closing_tags<'t>(tag: &'t str, text: &'t str) -> impl Iterator<Item = Range<usize>> + 't {
    text.match_indices('<').filter_map(move |(start, _)| {
        let rest = text.get(start + 1..)?;
        let name = rest.trim_start().strip_prefix('/')?.trim_start();
        let head = name.get(..tag.len())?;
        let after = name.get(tag.len()..)?;
        let longer_name = after.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
        let end = text.len() - after.len();
        (head.eq_ignore_ascii_case(tag) && !longer_name).then_some(start..end)
    })
}

/// Returns the position of the first byte in the closing tag `closing` that a placeholder value contributed; `None` if
/// the author wrote the whole tag. `values` holds the ranges of the values in the text.
fn first_byte_from_value(values: &[Range<usize>], closing: &Range<usize>) -> Option<usize> {
    let at = values.partition_point(|v| v.end <= closing.start);
    let value = values.get(at)?;
    (value.start < closing.end).then(|| value.start.max(closing.start))
}

/// Returns `text` with each character that starts at one of `places` replaced by its HTML entity. `places` are byte
/// offsets in ascending order.
fn escape_at(text: &str, places: &[usize]) -> String {
    let mut out = String::with_capacity(text.len() + places.len() * 4);
    let mut from = 0;
    for place in places {
        let (Some(kept), Some(character)) = (text.get(from..*place), text.get(*place..).and_then(|t| t.chars().next()))
        else {
            continue;
        };
        out.push_str(kept);
        if character == '<' {
            out.push_str("&lt;");
        } else {
            // Writing to a string cannot fail.
            write!(out, "&#{};", u32::from(character)).ok();
        }
        from = place + character.len_utf8();
    }
    out.push_str(text.get(from..).unwrap_or(""));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(t: &str) -> LayerPiece {
        LayerPiece::Text(t.into())
    }

    fn value(t: &str) -> LayerPiece {
        LayerPiece::Value(t.into())
    }

    #[test]
    fn a_value_cannot_close_the_element() {
        let layer =
            |v: &str| guard_layer(Some("directive"), &[text("<directive>\n"), value(v), text("\n</directive>")]);
        assert_eq!(layer("a </directive> b"), "<directive>\na &lt;/directive> b\n</directive>");
        assert_eq!(layer("< / DIRECTIVE >"), "<directive>\n&lt; / DIRECTIVE >\n</directive>");
        assert_eq!(layer("</directives> </div> a < b"), "<directive>\n</directives> </div> a < b\n</directive>");
    }

    #[test]
    fn values_cannot_complete_a_closing_tag_with_their_surroundings() {
        assert_eq!(guard_layer(Some("x"), &[text("<"), value("/x>")]), "<&#47;x>");
        assert_eq!(guard_layer(Some("x"), &[text("</"), value("x>")]), "</&#120;>");
        assert_eq!(guard_layer(Some("x"), &[value("<"), text("/x>")]), "&lt;/x>");
        assert_eq!(guard_layer(Some("x"), &[value("<"), value("/"), value("x>")]), "&lt;/x>");
        assert_eq!(guard_layer(Some("note"), &[text("</no"), value(""), value("te>")]), "</no&#116;e>");
    }

    #[test]
    fn author_text_is_sent_unchanged() {
        assert_eq!(guard_layer(Some("directive"), &[text("write </directive>"), value("é")]), "write </directive>é");
    }

    #[test]
    fn knowledge_that_closes_its_own_tag_is_escaped_and_counted() {
        let (text, count) = escape_closing_tags("Environment", "a</Environment><b></ environment>é");
        assert_eq!((text.as_str(), count), ("a&lt;/Environment><b>&lt;/ environment>é", 2));
        assert_eq!(escape_closing_tags("Environment", "</Environments> <"), ("</Environments> <".into(), 0));
    }
}
