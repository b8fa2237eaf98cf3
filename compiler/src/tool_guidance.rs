//! The text that tools contribute to the system prompt: a snippet in the list of tools, and guidelines for their use.
//! Only tools of the palette contribute. The text grants nothing.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use rye_grammar::ItemId;

use crate::item::Items;
use crate::plan::{Layer, LayerKind, Origin, OriginCause, Origins, PaletteTool, Segment, SourcePlace, Tokenizer};

/// Id of the prompt layer with the texts of the tools. `<suppress>tools</suppress>` removes the layer.
pub(crate) const LAYER_ID: &str = "tools";

/// Prefix of the keys under which the contributions of tools are recorded in the origins of a plan.
pub(crate) const ORIGIN_PREFIX: &str = "guidance.";

/// Returns the layer `tools`: the snippets of the tools, one line each, then their guidelines without repeats, both in
/// palette order. `None` if no tool has a snippet or a guideline. Records in `origins` how many tokens each tool
/// contributes.
pub(crate) fn guidance_layer(
    items: &Items<'_>,
    palette: &[PaletteTool],
    tokenizer: Tokenizer,
    origins: &mut Origins,
) -> Option<Layer> {
    let (mut snippets, mut guidelines) = (String::new(), String::new());
    let mut listed: BTreeSet<String> = BTreeSet::new();
    for tool in palette {
        let Some((id, item)) = tool.item_id.as_ref().and_then(|id| Some((id, items.tool(id)?))) else { continue };
        let mut own = String::new();
        if let Some(snippet) = &item.spec.snippet {
            let line = format!("- {}: {snippet}\n", tool.name);
            snippets.push_str(&line);
            own.push_str(&line);
        }
        for guideline in &item.spec.guidelines {
            if listed.insert(guideline.clone()) {
                let start = guidelines.len();
                let _ = writeln!(guidelines, "- {guideline}");
                own.push_str(guidelines.get(start..).unwrap_or_default());
            }
        }
        if !own.is_empty() {
            let sources = items.sources();
            let file = sources.get(item.file.source).map(|source| source.path.to_string());
            let origin = origin(id, tokenizer.count(&own), file);
            origins.insert(format!("{ORIGIN_PREFIX}{}", tool.name), origin);
        }
    }
    let parts = [("Available tools:", snippets), ("Guidelines:", guidelines)];
    let parts = parts.into_iter().filter(|(_, lines)| !lines.is_empty());
    let text = parts.map(|(title, lines)| format!("{title}\n{}", lines.trim_end())).collect::<Vec<_>>().join("\n\n");
    (!text.is_empty()).then(|| Layer::new(LAYER_ID, LayerKind::ToolGuidance, vec![Segment::Text { text }]))
}

fn origin(id: &ItemId, tokens: u64, file: Option<String>) -> Origin {
    let place = file.map(|file| SourcePlace { file, line: 1, column: 1 });
    Origin { place, cause: OriginCause::ToolGuidance { tool: id.clone(), tokens } }
}

#[cfg(test)]
mod tests;
