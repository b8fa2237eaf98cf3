//! `rye/knowledge/write`: writes a knowledge item of the project, with its metadata. Requires
//! `rye.sign.knowledge.<id>`, like every write of an item.

use rye_grammar::ItemId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{PreparedWrite, ToolFailure, ToolOutcome};
use crate::tool::confine::{ProjectFiles, ResolvedPath, WriteEffect};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnowledgeWriteParameters {
    item_id: String,
    body: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
}

pub(super) fn prepare(
    project: &ProjectFiles,
    parameters: &KnowledgeWriteParameters,
) -> Result<PreparedWrite, ToolFailure> {
    let id = ItemId::parse(&parameters.item_id).map_err(|e| ToolFailure(format!("`item_id`: {}", e.reason)))?;
    if parameters.body.trim().is_empty() {
        return Err(ToolFailure("`body` is empty".into()));
    }
    let mut text = String::from("---\n");
    // A JSON value is also valid YAML, and fits on one line.
    let mut field = |key: &str, value: Value| text.extend([key, ": ", &value.to_string(), "\n"]);
    field("name", json!(id.name()));
    for (key, value) in [("title", &parameters.title), ("description", &parameters.description)] {
        if let Some(value) = value {
            field(key, json!(value));
        }
    }
    if !parameters.tags.is_empty() {
        field("tags", json!(parameters.tags));
    }
    text.push_str("---\n\n");
    text.push_str(parameters.body.trim_end());
    text.push('\n');
    let place = project.locate(&format!(".ai/knowledge/{id}.md"))?;
    let length = text.len();
    let outcome = move |effect, _: &ResolvedPath| {
        let verb = match effect {
            WriteEffect::Created => "created",
            WriteEffect::Replaced => "replaced",
        };
        ToolOutcome::ok(format!("{verb} knowledge `{id}`, {length} bytes"))
    };
    Ok(PreparedWrite { place, bytes: text.into_bytes(), outcome: Box::new(outcome) })
}
