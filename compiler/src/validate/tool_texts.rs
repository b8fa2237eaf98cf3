//! Reports tools of the project whose texts for the model name a tool that does not exist.

use rye_grammar::Span;

use crate::diagnostics::{Diagnostics, ItemError, closest};
use crate::item::{Items, Tool};
use crate::palette::tool_name;
use crate::primary::{DIRECTIVE_RETURN_TOOL, Primary};
use crate::tool_spec::ToolKind;
use crate::world::{ItemKind, Space};

/// Checks the descriptions, snippets and guidelines of the project's tools. The texts of MCP tools come from their
/// servers, so they are not checked.
pub fn check(items: &Items<'_>, found: &mut Diagnostics) {
    let tools = items.list(ItemKind::Tool);
    let of_project = tools.iter().filter(|entry| entry.space == Space::Project);
    let texts = of_project.filter_map(|entry| items.tool(&entry.id)).filter(|tool| named(tool).next().is_some());
    let texts: Vec<_> = texts.collect();
    if texts.is_empty() {
        return;
    }
    let own = Primary::ALL.map(Primary::tool_name).into_iter().chain([DIRECTIVE_RETURN_TOOL]).map(str::to_owned);
    let names: Vec<String> = own.chain(tools.iter().map(|entry| tool_name(&entry.id))).collect();
    let sources = items.sources();
    for tool in texts {
        let Some(name) = named(&tool).find(|name| !names.iter().any(|known| known == name)) else { continue };
        let source = tool.file.source;
        let Some(at) = sources.get(source).and_then(|file| file.text.find(name)) else { continue };
        let help = closest(name, names.iter().map(String::as_str));
        found.push(ItemError::OddText {
            code: "item::unknown-call",
            message: format!("a text of this tool names the tool `{name}`, which does not exist"),
            label: "no tool has this name",
            help: help.map_or_else(|| "correct the name".to_owned(), |near| format!("did you mean `{near}`?")),
            span: Span::new(source, at, at + name.len()),
        });
    }
}

/// Returns the names of tools with the prefix `rye_` in the texts of a tool.
fn named(tool: &Tool) -> impl Iterator<Item = &str> {
    let spec = &tool.spec;
    let is_own = !matches!(spec.kind, ToolKind::Mcp { .. });
    let texts = std::iter::once(&spec.description).chain(&spec.snippet).chain(&spec.guidelines);
    let words = texts.flat_map(|text| text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
    words.filter(move |word| is_own && word.starts_with("rye_") && word.len() > "rye_".len())
}
