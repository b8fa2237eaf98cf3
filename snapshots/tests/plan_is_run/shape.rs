//! Matches sent texts against a plan's layers: every text segment in order, anything in place of placeholders, and
//! conditional layers present or absent. The code shares nothing with the functions that render a plan.

use std::collections::BTreeSet;

use rye_compiler::plan::prompt::{Layer, LayerKind, Prompt, Segment};

/// Checks the sent texts against a prompt; the error names the part that does not match.
pub fn check_prompt(prompt: &Prompt, system: &str, message: &str) -> Result<(), String> {
    let open: Vec<&Layer> = prompt.system.iter().chain(&prompt.first_message).filter(|l| is_optional(l)).collect();
    assert!(open.len() < 16, "too many to try");
    let mut why = String::new();
    for choice in 0..1_u32 << open.len() {
        let is_sent = |layer: &Layer| match open.iter().position(|l| std::ptr::eq(*l, layer)) {
            Some(at) => choice & (1 << at) != 0,
            None => true,
        };
        let mut seen = BTreeSet::new();
        let wanted = shape(&prompt.system, &is_sent, &mut seen);
        let first_message = shape(&prompt.first_message, &is_sent, &mut seen);
        match (matches(system, &wanted), matches(message, &first_message)) {
            (true, true) => return Ok(()),
            (false, _) => why = format!("the system prompt is not {wanted:?}"),
            (true, false) => why = format!("the message is not {first_message:?}"),
        }
    }
    Err(why)
}

/// Returns whether a layer may be missing: its hook may not fire, or its answer may be empty.
fn is_optional(layer: &Layer) -> bool {
    layer.depends || layer.kind == LayerKind::Answer
}

/// Returns the texts between placeholders. A knowledge item appears only at its first position, and a layer without
/// text does not appear.
fn shape<'l>(layers: &'l [Layer], is_sent: &dyn Fn(&Layer) -> bool, seen: &mut BTreeSet<&'l str>) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_first = true;
    for layer in layers.iter().filter(|l| is_sent(l)) {
        if layer.kind == LayerKind::Knowledge && !seen.insert(layer.id.as_str()) {
            continue;
        }
        let is_empty = layer.segments.iter().all(|s| matches!(s, Segment::Text { text } if text.is_empty()));
        if is_empty {
            continue;
        }
        if !is_first {
            parts.last_mut().unwrap().push_str("\n\n");
        }
        is_first = false;
        for segment in &layer.segments {
            match segment {
                Segment::Text { text } => parts.last_mut().unwrap().push_str(text),
                Segment::Pending { .. } => parts.push(String::new()),
            }
        }
    }
    parts
}

/// Returns whether a text consists of the parts in order, with anything between them.
fn matches(text: &str, parts: &[String]) -> bool {
    let [first, middle @ .., last] = parts else { return parts.first().is_some_and(|only| only == text) };
    let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
    for part in middle {
        let Some(at) = rest.find(part.as_str()) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last.as_str())
}

#[test]
fn matcher_rejects_changed_texts() {
    let parts = |of: &[&str]| of.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>();
    assert!(matches("abc", &parts(&["abc"])) && !matches("abcd", &parts(&["abc"])));
    assert!(matches("a1b2c", &parts(&["a", "b", "c"])) && matches("abc", &parts(&["a", "b", "c"])));
    assert!(!matches("a1c", &parts(&["a", "b", "c"])) && !matches("ab", &parts(&["ab", "b"])));
}
