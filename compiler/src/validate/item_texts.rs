//! Reports items of the project that name other items which do not exist: tools in the texts of tools, the settings of
//! a tool, and skills in prompt templates.

use rye_grammar::Span;

use crate::diagnostics::{Diagnostics, ItemError, closest};
use crate::item::{Items, Tool};
use crate::palette::tool_name;
use crate::primary::{DIRECTIVE_RETURN_TOOL, Primary};
use crate::tool_spec::ToolKind;
use crate::world::{ItemKind, Space};

pub fn check(items: &Items<'_>, found: &mut Diagnostics) {
    check_tool_names(items, found);
    check_tool_settings(items, found);
    check_skill_calls(items, found);
}

/// Checks the descriptions, snippets and guidelines of the project's tools. The texts of MCP tools come from their
/// servers, so they are not checked.
fn check_tool_names(items: &Items<'_>, found: &mut Diagnostics) {
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

/// Reports each tool of the project whose settings file does not exist, if a file with a similar name exists.
fn check_tool_settings(items: &Items<'_>, found: &mut Diagnostics) {
    let tools = items.list(ItemKind::Tool);
    for tool in tools.iter().filter(|e| e.space == Space::Project).filter_map(|entry| items.tool(&entry.id)) {
        let Some(id) = tool.spec.config.as_ref().map(|config| &config.id) else { continue };
        if items.exists(ItemKind::Config, id) {
            continue;
        }
        let Some(near) = items.nearest(ItemKind::Config, id.as_str()) else { continue };
        let source = tool.file.source;
        let sources = items.sources();
        let Some(at) = sources.get(source).and_then(|file| file.text.find(id.as_str())) else { continue };
        found.push(ItemError::OddText {
            code: "item::unknown",
            message: format!("the settings `{id}` of this tool do not exist"),
            label: "no settings file has this path",
            help: format!("did you mean `{near}`?"),
            span: Span::new(source, at, at + id.as_str().len()),
        });
    }
}

/// Reports each call of a skill in a prompt template of the project if no skill has the name, and the name resembles
/// that of a skill.
fn check_skill_calls(items: &Items<'_>, found: &mut Diagnostics) {
    const CALL: &str = "/skill:";
    let templates = items.list(ItemKind::Prompt);
    for template in templates.iter().filter(|e| e.space == Space::Project).filter_map(|e| items.prompt_template(&e.id))
    {
        let body = &template.body;
        let verbatim = body.span.len() == body.node.len();
        for (at, _) in body.node.match_indices(CALL) {
            let rest = body.node.get(at + CALL.len()..).unwrap_or_default();
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))).unwrap_or(rest.len());
            let name = rest.get(..end).unwrap_or_default();
            let skills = items.list(ItemKind::Skill);
            let is_known = skills.iter().any(|skill| skill.id.name() == name || skill.id.as_str() == name);
            let Some(near) = closest(name, skills.iter().map(|skill| skill.id.as_str())).filter(|_| !is_known) else {
                continue;
            };
            let start = body.span.range().start + at;
            let span = Span::new(body.span.source, start, start + CALL.len() + end);
            found.push(ItemError::OddText {
                code: "item::unknown-call",
                message: format!("the template calls the skill `{name}`, which does not exist"),
                label: "no skill has this name",
                help: format!("did you mean `/skill:{near}`?"),
                span: if verbatim { span } else { body.span },
            });
        }
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
