//! Templates of items. Each passes `rye check` unchanged.

use rye_grammar::ItemId;

use super::ToolLanguageArg;

pub fn directive_template(id: &ItemId) -> String {
    let name = id.name();
    format!(
        "# {title}\n\n```xml\n<directive name=\"{name}\" version=\"0.1.0\">\n  <metadata>\n    <description>Describe what this directive does.</description>\n    <model tier=\"general\"/>\n    <limits turns=\"10\" spend=\"0.20\"/>\n    <permissions>\n      <execute><tool>rye.file-system.read</tool></execute>\n    </permissions>\n  </metadata>\n  <inputs>\n    <input name=\"topic\" type=\"string\" required=\"true\">Subject of the summary</input>\n  </inputs>\n  <outputs>\n    <output name=\"summary\" type=\"string\" required=\"true\">The summary</output>\n  </outputs>\n</directive>\n```\n\nRead the files of the project about {{input:topic}}, and return a summary.\n",
        title = title_of_name(name)
    )
}

pub fn knowledge_template(id: &ItemId) -> String {
    let name = id.name();
    format!(
        "```yaml\nname: {name}\ntitle: {title}\ndescription: Describe the subject.\ntags: []\nversion: 0.1.0\n```\n\nThe knowledge of a thread.\n",
        title = title_of_name(name)
    )
}

/// Returns the extension and the text of a new tool file.
pub fn tool_template(id: &ItemId, language: ToolLanguageArg) -> (&'static str, String) {
    let category = id.category();
    match language {
        ToolLanguageArg::Command => ("yaml", yaml_tool(category, COMMAND_TEMPLATE)),
        ToolLanguageArg::Http => ("yaml", yaml_tool(category, HTTP_TEMPLATE)),
        ToolLanguageArg::Python => ("py", PYTHON_TEMPLATE.replace("{category}", category)),
        ToolLanguageArg::Javascript => ("mjs", javascript_tool(category, "params", "projectPath", "")),
        ToolLanguageArg::Typescript => {
            ("ts", javascript_tool(category, "params: { text: string }", "projectPath: string", ": { words: number }"))
        }
        ToolLanguageArg::Shell => ("sh", SHELL_TEMPLATE.to_owned()),
    }
}

fn yaml_tool(category: &str, rest: &str) -> String {
    let category = if category.is_empty() { String::new() } else { format!("category: {category}\n") };
    format!("version: 0.1.0\n{category}{rest}")
}

fn title_of_name(name: &str) -> String {
    let text = name.replace(['_', '-'], " ");
    let mut chars = text.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

const COMMAND_TEMPLATE: &str = r#"description: Count the lines of files.
kind: command
command: [wc, -l, --, "{files}"]
parameters:
  type: object
  additionalProperties: false
  required: [files]
  properties:
    files: { type: array, items: { type: string }, description: Paths inside the project }
timeout_seconds: 30
parallel: true
idempotent: true
"#;

const HTTP_TEMPLATE: &str = r"description: Look something up.
kind: http
method: GET
url: https://api.example.com/items/{id}
headers: { Accept: application/json }
parameters:
  type: object
  additionalProperties: false
  required: [id]
  properties:
    id: { type: string, description: The item's number }
timeout_seconds: 30
idempotent: true
";

const PYTHON_TEMPLATE: &str = r#"__tool_description__ = "Count the words of a text."
__version__ = "0.1.0"
__category__ = "{category}"
CONFIG_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text"],
    "properties": {"text": {"type": "string", "description": "The text"}},
}


def execute(params, project_path):
    return {"words": len(params["text"].split())}
"#;

const SHELL_TEMPLATE: &str = r#"#!/usr/bin/env bash
# rye: {description: Count the words of a text.,
#   parameters: {type: object, additionalProperties: false, required: [text],
#     properties: {text: {type: string, description: The text}}}}
set -euo pipefail
printf '%s' "$RYE_PARAM_text" | wc -w
"#;

fn javascript_tool(category: &str, params: &str, project: &str, answer: &str) -> String {
    format!(
        r#"export const __tool_description__ = "Count the words of a text.";
export const __version__ = "0.1.0";
export const __category__ = "{category}";
export const CONFIG_SCHEMA = {{
  type: "object",
  additionalProperties: false,
  required: ["text"],
  properties: {{ text: {{ type: "string", description: "The text" }} }},
}};

export async function execute({params}, {project}){answer_type} {{
  return {{ words: params.text.split(/\s+/).filter(Boolean).length }};
}}
"#,
        answer_type =
            if answer.is_empty() { String::new() } else { format!(": Promise<{}>", answer.trim_start_matches(": ")) }
    )
}
