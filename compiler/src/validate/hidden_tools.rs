//! Reports calls in a body that name a tool as the palette does, although `tool_preload.enabled` is false. The palette
//! then has only the primaries, so the model knows no such tool.

use super::body_calls::{BodyCallChecker, body_span, is_granted};
use crate::compose::Composed;
use crate::diagnostics::{Diagnostics, PaletteError};
use crate::item::Items;

/// Checks the body of a composed directive, without the bodies of its ancestors. A call of a tool that is not granted
/// is reported elsewhere.
pub fn check(checker: &mut BodyCallChecker, items: &Items<'_>, composed: &Composed, found: &mut Diagnostics) {
    let Some(leaf) = composed.leaf() else { return };
    let settings = items.config_by_name("agent/resilience");
    let enabled = settings.as_ref().and_then(|node| node.get("tool_preload")?.get("enabled"));
    let Some(setting) = enabled.filter(|node| node.to_value() == false).map(|node| node.span) else { return };
    let body = leaf.body.node.as_str();
    for (at, _) in body.match_indices('(') {
        let before = body.get(..at).unwrap_or_default();
        let name = before.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap_or_default();
        if !name.contains('_') {
            continue;
        }
        let Some(id) = checker.tool_named(items, name).cloned().filter(|id| is_granted(composed, id)) else { continue };
        let span = body_span(leaf, at - name.len(), name.len());
        found.push(PaletteError::Hidden { name: name.to_owned(), item: id.to_string(), span, setting });
    }
}
