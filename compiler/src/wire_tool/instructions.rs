//! Tool-use instructions for models without native tool use (`tool_use: text_parsed`): a layer of the system prompt.

use std::fmt::Write as _;

use serde_json::json;

use crate::plan::prompt::{LAYER_SEPARATOR, Layer, LayerKind, Segment};
use crate::plan::{PaletteTool, Plan, PlannedModel, ToolUse};

/// The tags around a tool call in the text of a model.
pub const CALL_START: &str = "<tool_call>";
pub const CALL_END: &str = "</tool_call>";
/// Start of a tool result in a request. If a model itself writes this start, the text that follows is invented.
pub const RESULT_START: &str = "<tool_result";
/// Id of the layer with the tool-use instructions. No item has this id, because ids of items contain no spaces.
pub(crate) const LAYER_ID: &str = "tool instructions";

/// Returns the instructions as the last layer of the system prompt; `None` if the model has native tool use or is
/// offered no tool.
pub fn instructions_layer(model: &PlannedModel, palette: &[PaletteTool]) -> Option<Layer> {
    let text = instructions_text(model, palette)?;
    Some(Layer::new(LAYER_ID, LayerKind::Tools, vec![Segment::Text { text }]))
}

/// Returns the text of the layer with the instructions for tools; `None` if the model has native tool use or the
/// palette is empty.
pub(crate) fn instructions_text(model: &PlannedModel, palette: &[PaletteTool]) -> Option<String> {
    (model.tool_use == ToolUse::TextParsed && !palette.is_empty()).then(|| render(palette))
}

impl Plan {
    /// Adds the instructions for text tools to `system`, the system prompt of the thread, or removes them, as a request
    /// to `model` requires. Returns the changed prompt; `None` if `system` is sent unchanged. The instructions can be
    /// missing because a hook has replaced the system prompt.
    pub fn system_for(&self, model: &PlannedModel, system: &str) -> Option<String> {
        if self.palette.is_empty() || [&self.model, model].iter().all(|model| model.tool_use == ToolUse::Native) {
            return None;
        }
        let instructions = render(&self.palette);
        match (model.tool_use, system.contains(&instructions)) {
            (ToolUse::TextParsed, true) | (ToolUse::Native, false) => None,
            (ToolUse::TextParsed, false) if system.trim().is_empty() => Some(instructions),
            (ToolUse::TextParsed, false) => Some(format!("{system}{LAYER_SEPARATOR}{instructions}")),
            (ToolUse::Native, true) => {
                let joined = format!("{LAYER_SEPARATOR}{instructions}");
                Some(system.replacen(&joined, "", 1).replacen(&instructions, "", 1))
            }
        }
    }
}

/// Renders the instructions that tell a model without native tool calls how to call the tools.
fn render(palette: &[PaletteTool]) -> String {
    let mut text = format!(
        "# Tools\n\nYou can call the tools listed below. To call one, write this, starting on a new line:\n\n{CALL_START}\n{{\"name\": \"the tool's name\", \"arguments\": {{ … }}}}\n{CALL_END}\n\nThe arguments are a JSON object that fits the tool's schema. Several calls may follow one another; write nothing after the last one. The results come in the next message, each as `{RESULT_START} name=\"…\" id=\"…\">`. Never write a result yourself. Text without a call is your final answer.\n\n<tools>\n"
    );
    for tool in palette {
        let tool = json!({"name": tool.name, "description": tool.description, "parameters": tool.schema});
        let _ = writeln!(text, "{tool}");
    }
    text.push_str("</tools>");
    text
}
