//! The context files of a chat (`AGENTS.md`, `CLAUDE.md`) and its appended system prompts: layers of the system prompt
//! that follow the layers of the chain.

use std::sync::Arc;

use rye_grammar::ItemId;

use crate::diagnostics::{ContextError, Diagnostics, TemplateError};
use crate::item::Items;
use crate::item::prompt_template::imported_paths;
use crate::plan::prompt::escape_closing_tags;
use crate::plan::{AppendedText, Layer, LayerKind, Segment, Tokenizer};
use crate::world::{ContextFile, ItemKind, Space};

/// Default of `context_files.max_tokens` in `agent/chat.yaml`.
const DEFAULT_MAX_TOKENS: u64 = 8000;

/// The tag that encloses a context file.
const TAG: &str = "project_instructions";

/// The start of the id of a context file's layer. The path of the file follows (`context/AGENTS.md`).
pub(crate) const CONTEXT_PREFIX: &str = "context/";

/// The start of the id of the layer that `--append-system` adds. The name of the file follows (`append/house.md`).
pub(crate) const APPENDED_PREFIX: &str = "append/";

/// The settings file of chats.
pub(crate) const SETTINGS: &str = "agent/chat";

/// Returns the layers of the context files in these spaces, outermost first. A file with more tokens than the budget
/// has left is reported and left out. The file is not cut, because a cut file could lack the rule that matters.
pub(crate) fn context_layers(
    items: &Items<'_>,
    spaces: &[Space],
    tokenizer: Tokenizer,
    found: &mut Diagnostics,
) -> Vec<Layer> {
    let budget = max_tokens(items);
    let (mut layers, mut used) = (Vec::new(), 0_u64);
    for file in items.context_files(found).into_iter().filter(|file| spaces.contains(&file.space)) {
        let path = file.space.display(&file.path);
        let is_empty = file.bytes.trim_ascii().is_empty();
        let ignored = file.ignored.iter().map(|other| file.space.display(other));
        found.extend(ignored.map(|other| ContextError::IgnoredFile { path: other, used: path.clone(), is_empty }));
        let text = String::from_utf8_lossy(&file.bytes);
        let imported = imported_paths(&text).into_iter().map(str::to_owned);
        found.extend(imported.map(|import| TemplateError::ImportOfContext { path: import, within: path.clone() }));
        let layer = layer(&path, &file);
        let tokens = layer.segments.iter().map(|segment| text_tokens(segment, tokenizer)).sum();
        if used.saturating_add(tokens) > budget {
            found.push(ContextError::FileTooLong { path, tokens, left: budget.saturating_sub(used), budget });
            continue;
        }
        used = used.saturating_add(tokens);
        layers.push(layer);
    }
    layers
}

/// Returns the layers of the knowledge that the setting `append_system` lists: first the list of the user, then the list
/// of the project.
pub(crate) fn appended_layers(items: &Items<'_>, found: &mut Diagnostics) -> Vec<Layer> {
    let Ok(settings) = ItemId::parse(SETTINGS) else { return Vec::new() };
    let files = items.config_layers(&settings);
    let named = files.iter().rev().filter_map(|(_, file)| file.get("append_system"));
    let mut layers = Vec::new();
    for node in named {
        // The check of the settings reports any other type.
        let Some(name) = node.as_str() else { continue };
        let id = ItemId::parse(name).ok();
        let Some(knowledge) = id.and_then(|id| items.knowledge(&id)) else {
            // An id has no extension, so the suggestion is the name without `.md` if this id exists.
            let stem = name.strip_suffix(".md").and_then(|stem| ItemId::parse(stem).ok());
            let stem = stem.filter(|stem| items.exists(ItemKind::Knowledge, stem));
            let suggestion = stem.map(|stem| stem.to_string()).or_else(|| items.nearest(ItemKind::Knowledge, name));
            let (id, span) = (name.to_owned(), node.span);
            found.push(ContextError::UnknownItem { id, span, suggestion, by_hook: None });
            continue;
        };
        let text = knowledge.body.node.trim().to_owned();
        layers.push(Layer::new(name, LayerKind::Appended, vec![Segment::Text { text }]));
    }
    layers
}

/// Returns the layer of the text that the user appends with `--append-system`.
pub(crate) fn given_layer(given: &AppendedText) -> Layer {
    let segments = vec![Segment::Text { text: given.text.trim().to_owned() }];
    Layer::new(format!("{APPENDED_PREFIX}{}", given.name), LayerKind::Given, segments)
}

fn layer(path: &str, file: &ContextFile) -> Layer {
    let text: Arc<str> = String::from_utf8_lossy(&file.bytes).into();
    let (text, escaped) = escape_closing_tags(TAG, text.trim());
    let attribute = path.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    let text = if text.is_empty() { String::new() } else { format!("<{TAG} path=\"{attribute}\">\n{text}\n</{TAG}>") };
    let layer = Layer::new(format!("{CONTEXT_PREFIX}{path}"), LayerKind::ContextFile, vec![Segment::Text { text }]);
    Layer { tag: Some(TAG.to_owned()), escaped, ..layer }
}

fn text_tokens(segment: &Segment, tokenizer: Tokenizer) -> u64 {
    match segment {
        Segment::Text { text } => tokenizer.count(text),
        Segment::Pending { .. } => 0,
    }
}

fn max_tokens(items: &Items<'_>) -> u64 {
    let settings = items.config_by_name(SETTINGS);
    let files = settings.as_ref().and_then(|file| file.get("context_files"));
    let tokens = files.and_then(|files| files.get("max_tokens"));
    tokens
        .and_then(|node| crate::item::data::read_count(&mut Diagnostics::new(), "max_tokens", node))
        .unwrap_or(DEFAULT_MAX_TOKENS)
}

#[cfg(test)]
mod tests;
