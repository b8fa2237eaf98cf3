//! Items that a body names in a call: `item_id="…"`, `directive_name: "…"`. Only the text is matched; callers check
//! that the item exists and is permitted.

use std::sync::LazyLock;

use regex::Regex;
use rye_grammar::{ItemId, Span};

use crate::item::Directive;
use crate::world::ItemKind;

/// An item that a body names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mention {
    pub kind: ItemKind,
    pub id: ItemId,
    pub span: Span,
}

static CALL_PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?-u:\b)(item_id|directive_name|item_type)["'`]?\s*[=:]\s*["'`]([A-Za-z0-9_/-]+)["'`]"#).ok()
});

/// Maximum distance in bytes between an `item_type` and its `item_id`.
const MAX_TYPE_DISTANCE: usize = 160;

/// Returns every item that the body of a directive names, in the order of the text.
pub(crate) fn mentions(directive: &Directive) -> Vec<Mention> {
    let body = &directive.body;
    // If the body is joined with a `<process>`, its offsets do not match the offsets in the file.
    let exact = body.span.len() == body.node.len();
    // Most bodies name nothing, so the regular expression is rarely needed.
    if !["item_id", "directive_name"].iter().any(|key| body.node.contains(key)) {
        return Vec::new();
    }
    let Some(calls) = CALL_PATTERN.as_ref() else { return Vec::new() };
    let found: Vec<(usize, usize, &str, &str)> = calls
        .captures_iter(&body.node)
        .filter_map(|c| {
            let (key, value) = (c.get(1)?, c.get(2)?);
            Some((value.start(), value.end(), key.as_str(), value.as_str()))
        })
        .collect();
    let mut mentions = Vec::new();
    for (start, end, key, value) in &found {
        let kind = match *key {
            "item_type" => continue,
            "directive_name" => ItemKind::Directive,
            _ => {
                let types = found.iter().filter(|(_, _, key, _)| *key == "item_type");
                let nearest = types
                    .min_by_key(|(at, ..)| at.abs_diff(*start))
                    .filter(|(at, ..)| at.abs_diff(*start) < MAX_TYPE_DISTANCE);
                match nearest.and_then(|(_, _, _, word)| ItemKind::from_word(word)) {
                    Some(kind) => kind,
                    None => ItemKind::Directive,
                }
            }
        };
        let Ok(id) = ItemId::parse(value) else { continue };
        let span = if exact {
            let from = body.span.start as usize;
            Span::new(body.span.source, from + start, from + end)
        } else {
            body.span
        };
        mentions.push(Mention { kind, id, span });
    }
    mentions
}
