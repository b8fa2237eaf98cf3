//! The layout of YAML files and of knowledge metadata: no trailing blanks, at most one empty line in a row, one newline
//! at the end, old names of primaries replaced. Comments, order, quotes, indentation and every text stay unchanged.

use std::ops::Range;

use rye_grammar::data::{Kind, Node};
use rye_grammar::knowledge::{self, KnowledgeFormat};
use rye_grammar::{SourceId, signature, yaml};

use super::{Edit, FormatRefusal, Formatted, apply};

/// The source id of a text that is parsed on its own.
const STANDALONE: SourceId = SourceId(0);

/// Formats a YAML file: settings, hooks or a tool.
///
/// # Errors
/// The file has syntax errors or is signed, or the new layout would change its meaning.
pub fn format_data(text: &str) -> Result<Formatted, FormatRefusal> {
    if signature::parse(STANDALONE, text).is_some() {
        return Err(FormatRefusal::Signed);
    }
    let before = parse_yaml(text)?;
    let laid_out = lay_out(text, &before);
    let words = primary_alias_edits(&laid_out, &parse_yaml(&laid_out)?);
    let now = apply(&laid_out, &words);
    let is_same = with_renamed_primaries(before.to_value()) == with_renamed_primaries(parse_yaml(&now)?.to_value());
    if is_same { Ok(Formatted { text: now }) } else { Err(FormatRefusal::Unsafe) }
}

/// Formats a knowledge file. Its body stays unchanged.
///
/// # Errors
/// The errors are those of [`format_data`].
pub fn format_knowledge(text: &str, format: KnowledgeFormat) -> Result<Formatted, FormatRefusal> {
    let parsed = knowledge::parse(STANDALONE, text, format);
    if parsed.tree.signature.is_some() {
        return Err(FormatRefusal::Signed);
    }
    if !parsed.errors.is_empty() {
        return Err(FormatRefusal::Broken);
    }
    // A YAML knowledge file is injected as a whole, so only its end is formatted.
    if format == KnowledgeFormat::Yaml {
        return Ok(Formatted { text: end_with_newline(text) });
    }
    let mut now = text.to_owned();
    if let Some(metadata) = &parsed.tree.metadata {
        let range = metadata.span.range();
        // Extend to whole lines: the last value ends before its trailing blanks.
        let start = text.get(..range.start).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
        let end = text.get(range.end..).and_then(|rest| rest.find('\n')).map_or(text.len(), |at| range.end + at + 1);
        let edits = blank_edits(text, start..end, metadata);
        now = apply(text, &edits);
    }
    let now = end_with_newline(&now);
    let again = knowledge::parse(STANDALONE, &now, format);
    let metadata = |node: &Option<Node>| node.as_ref().map(Node::to_value);
    let is_same = again.errors.is_empty()
        && metadata(&again.tree.metadata) == metadata(&parsed.tree.metadata)
        && again.tree.body.node == parsed.tree.body.node;
    if is_same { Ok(Formatted { text: now }) } else { Err(FormatRefusal::Unsafe) }
}

fn parse_yaml(text: &str) -> Result<Node, FormatRefusal> {
    let parsed = yaml::parse(STANDALONE, text);
    if parsed.errors.is_empty() { Ok(parsed.tree) } else { Err(FormatRefusal::Broken) }
}

fn lay_out(text: &str, node: &Node) -> String {
    let now = apply(text, &blank_edits(text, 0..text.len(), node));
    // The newlines at the end of a block text can be part of its value; then they stay.
    let ended = end_with_newline(&now);
    if yaml::parse(STANDALONE, &ended).tree.to_value() == node.to_value() { ended } else { now }
}

/// Makes a text end with exactly one newline. A blank text becomes empty.
fn end_with_newline(text: &str) -> String {
    let end = text.trim_end_matches(['\n', '\r', ' ', '\t']);
    if end.is_empty() { String::new() } else { format!("{end}\n") }
}

/// Returns edits that remove trailing blanks and repeated empty lines outside of multi-line strings.
fn blank_edits(text: &str, within: Range<usize>, node: &Node) -> Vec<Edit> {
    let mut texts = Vec::new();
    multiline_ranges(text, node, &mut texts);
    let mut edits = Vec::new();
    let (mut at, mut empty) = (0, 0);
    for line in text.split_inclusive('\n') {
        let (start, end) = (at, at + line.len());
        at = end;
        let is_inside = start >= within.start && end <= within.end;
        let touches = |of: &Range<usize>| of.start < end && start < of.end;
        if !is_inside || texts.iter().any(touches) {
            empty = 0;
            continue;
        }
        let content = line.trim_end_matches('\n');
        let kept = content.trim_end();
        empty = if kept.is_empty() { empty + 1 } else { 0 };
        if empty > 1 {
            edits.push(Edit::new(start..end, ""));
        } else if kept.len() < content.len() {
            edits.push(Edit::new(start + kept.len()..start + content.len(), ""));
        }
    }
    edits
}

/// Collects the ranges of multi-line strings, each up to the end of its last line.
fn multiline_ranges(text: &str, node: &Node, found: &mut Vec<Range<usize>>) {
    match &node.kind {
        Kind::Null | Kind::Bool(_) | Kind::Number(_) => {}
        Kind::String(_) => {
            let range = node.span.range();
            if text.get(range.clone()).is_some_and(|t| t.contains('\n')) {
                let end =
                    text.get(range.end..).and_then(|rest| rest.find('\n')).map_or(text.len(), |at| range.end + at);
                found.push(range.start..end);
            }
        }
        Kind::List(items) => items.iter().for_each(|item| multiline_ranges(text, item, found)),
        Kind::Map(entries) => entries.iter().for_each(|entry| multiline_ranges(text, &entry.value, found)),
    }
}

/// Returns the edits that replace `primary: load` and `primary: search` with `primary: fetch`.
fn primary_alias_edits(text: &str, node: &Node) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        open.extend(node.items());
        for entry in node.entries() {
            open.push(&entry.value);
            let is_old = entry.key.node == "primary" && matches!(entry.value.as_str(), Some("load" | "search"));
            // A quoted or anchored value is left unchanged.
            if is_old && text.get(entry.value.span.range()) == entry.value.as_str() {
                edits.push(Edit::new(entry.value.span.range(), "fetch"));
            }
        }
    }
    edits
}

fn with_renamed_primaries(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Array(items) => items.into_iter().map(with_renamed_primaries).collect(),
        Value::Object(entries) => {
            let entry = |(key, value): (String, Value)| {
                let is_old = key == "primary" && matches!(value.as_str(), Some("load" | "search"));
                (key, if is_old { Value::from("fetch") } else { with_renamed_primaries(value) })
            };
            entries.into_iter().map(entry).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn format_data_keeps_comments_order_and_texts() {
        let loose = "# one  \nhooks:   # two\n\n\n\n  - id: a  \n    action: { primary: load, item_id: 'x  ' }\n    text: |\n      kept  \n\n\n      kept too\n    b: \"two\n\n\n      lines\"  \n\n\n";
        let tight = "# one\nhooks:   # two\n\n  - id: a\n    action: { primary: fetch, item_id: 'x  ' }\n    text: |\n      kept  \n\n\n      kept too\n    b: \"two\n\n\n      lines\"\n";
        let once = format_data(loose).unwrap().text;
        // The closing line of a quoted text of several lines is part of the text.
        assert!(once == tight || once == tight.replace("lines\"\n", "lines\"  \n"), "{once:?}");
        assert_eq!(format_data(&once).unwrap().text, once);
        assert_eq!(format_data("a: [").err(), Some(FormatRefusal::Broken));
        let signed = format!("# rye:signed:2026-02-14T00:27:54Z:{}:x:0011223344556677\na: 1\n", "0".repeat(64));
        assert_eq!(format_data(&signed).err(), Some(FormatRefusal::Signed));
    }

    #[test]
    fn format_data_keeps_trailing_newlines_of_block_text() {
        for text in ["a: |+\n  b\n\n\n", "a: >+\n  b\n\n", "- |+\n  x\n\n\n- y\n"] {
            let now = format_data(text).unwrap().text;
            assert_eq!(parse_yaml(&now).unwrap().to_value(), parse_yaml(text).unwrap().to_value(), "{text:?}");
        }
    }

    #[test]
    fn format_knowledge_keeps_body() {
        let loose = "---\nname: Note   \n\n\n\ntags: [a]  \n---\n\nA line with a break  \nand more\n\n\n\nlast   \n\n";
        let tight = "---\nname: Note\n\ntags: [a]\n---\n\nA line with a break  \nand more\n\n\n\nlast\n";
        assert_eq!(format_knowledge(loose, KnowledgeFormat::Markdown).unwrap().text, tight);
        assert_eq!(format_knowledge(tight, KnowledgeFormat::Markdown).unwrap().text, tight);
        assert_eq!(format_knowledge("a: b", KnowledgeFormat::Yaml).unwrap().text, "a: b\n");
        assert_eq!(format_knowledge("", KnowledgeFormat::Markdown).unwrap().text, "");
    }
}
