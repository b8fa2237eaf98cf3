//! The readable text of an item: a directive's or knowledge's body, a tool's description and parameters, without
//! signature and metadata.

use rye_compiler::tool_spec::ToolSpec;
use rye_compiler::world::{ItemKind, LocatedFile};
use rye_grammar::knowledge::KnowledgeFormat;
use rye_grammar::tool_header::ToolLanguage;
use rye_grammar::xml::Element;
use rye_grammar::{SourceId, SyntaxError, directive, knowledge, tool_header};
use serde_json::json;

use crate::scripts::SyntaxTreeReader;

/// The texts of an item that a query of `rye_fetch` searches, without signature and metadata.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ItemText {
    pub title: String,
    pub description: String,
    pub tags: Vec<String>,
    /// The text that `rye_fetch` returns.
    pub body: String,
}

/// Reads the texts of an item: the texts that a search of `rye_fetch` compares with the query, and the text that
/// `rye_fetch` returns.
///
/// # Errors
/// Returns a message for the model if the item is invalid, or if items of its kind cannot be fetched.
pub fn item_text(item: &LocatedFile) -> Result<ItemText, String> {
    let text = std::str::from_utf8(&item.bytes).map_err(|_| format!("`{}` is not UTF-8", item.path))?;
    let extension = item.path.rsplit_once('.').map_or("", |p| p.1);
    match item.kind {
        ItemKind::Directive => directive_text(text).map_err(|e| syntax_message(item, &e)),
        ItemKind::Knowledge => knowledge_text(text, extension).map_err(|e| syntax_message(item, &e)),
        ItemKind::Tool => tool_text(text, extension).map_err(|e| format!("`{}`: {e}", item.path)),
        ItemKind::Config => Err("configuration cannot be fetched".into()),
        ItemKind::Prompt | ItemKind::Skill => Err(format!("a {} cannot be fetched", item.kind.as_str())),
    }
}

fn syntax_message(item: &LocatedFile, error: &SyntaxError) -> String {
    format!("`{}` cannot be read: {error}", item.path)
}

fn directive_text(text: &str) -> Result<ItemText, SyntaxError> {
    let parsed = directive::parse(SourceId(0), text);
    if let Some(error) = parsed.errors.into_iter().next() {
        return Err(error);
    }
    let tree = parsed.tree;
    let root = tree.root.as_ref();
    let declared = root.and_then(|r| find_element(r, "description")).map(|e| e.text().node);
    let description = declared.or_else(|| tree.prose.map(|p| p.node)).unwrap_or_default();
    let mut body = description.clone();
    for (group, one, heading) in [("inputs", "input", "Inputs"), ("outputs", "output", "Outputs")] {
        let fields: Vec<String> = root
            .and_then(|r| find_element(r, group))
            .map(|g| g.elements().filter(|e| e.name.node == one).map(field).collect())
            .unwrap_or_default();
        if !fields.is_empty() {
            body.push_str(&["\n\n", heading, ":\n", &fields.join("\n")].concat());
        }
    }
    if !tree.body.node.is_empty() {
        body.push_str("\n\n");
        body.push_str(&tree.body.node);
    }
    Ok(ItemText {
        title: tree.title.map(|t| t.node).unwrap_or_default(),
        description,
        tags: Vec::new(),
        body: body.trim().to_owned(),
    })
}

/// Returns the first element with this name directly below the root, else the first one directly below `<metadata>`;
/// `None` if there is no such element.
fn find_element<'e>(root: &'e Element, name: &str) -> Option<&'e Element> {
    let below = root.elements().find(|e| e.name.node == name);
    below.or_else(|| {
        root.elements().filter(|e| e.name.node == "metadata").flat_map(Element::elements).find(|e| e.name.node == name)
    })
}

fn field(element: &Element) -> String {
    let of = |key: &str| element.attribute(key).map_or("", |v| v.node.as_str());
    let required = if of("required") == "true" { ", required" } else { "" };
    let kind = if of("type").is_empty() { "string" } else { of("type") };
    format!("- {} ({kind}{required}): {}", of("name"), element.text().node)
}

fn knowledge_text(text: &str, extension: &str) -> Result<ItemText, SyntaxError> {
    let format = if extension == "md" { KnowledgeFormat::Markdown } else { KnowledgeFormat::Yaml };
    let parsed = knowledge::parse(SourceId(0), text, format);
    if let Some(error) = parsed.errors.into_iter().next() {
        return Err(error);
    }
    let metadata = parsed.tree.metadata;
    let of = |key: &str| {
        metadata.as_ref().and_then(|m| m.get(key)).and_then(|n| n.as_str()).map(str::to_owned).unwrap_or_default()
    };
    let tags = metadata
        .as_ref()
        .and_then(|m| m.get("tags"))
        .map(|t| t.items().iter().filter_map(|n| n.as_str().map(str::to_owned)).collect());
    Ok(ItemText {
        title: of("title"),
        description: of("description"),
        tags: tags.unwrap_or_default(),
        body: parsed.tree.body.node,
    })
}

fn tool_text(text: &str, extension: &str) -> Result<ItemText, String> {
    let language = ToolLanguage::of_path(&format!(".{extension}")).ok_or("no tool has this extension")?;
    let parsed = tool_header::parse(SourceId(0), text, language, &SyntaxTreeReader);
    if let Some(error) = parsed.errors.first() {
        return Err(error.to_string());
    }
    let spec = ToolSpec::read(&parsed.tree).map_err(|faults| {
        faults.into_iter().map(|f| f.message).next().unwrap_or_else(|| "it has no declaration".into())
    })?;
    let body = json!({"description": spec.description, "parameters": spec.parameters}).to_string();
    Ok(ItemText { title: String::new(), description: spec.description, tags: Vec::new(), body })
}
