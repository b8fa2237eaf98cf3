//! Renders the first request of a plan as a run sends it: the system prompt, the first message and the tool
//! definitions. A margin names the source line of each part. Without the margin, the text is exactly what is sent, with
//! markers in place of the values that only a run knows.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::table::group_thousands;
use super::view::{self, LayerView, MessageView};
use crate::compile::Compilation;
use crate::plan::source::SourceReport;
use crate::plan::{PaletteTool, SourcePlace};

/// Maximum width of the margin in characters. On a narrow terminal, the maximum is a third of the terminal's width.
const MAX_MARGIN_CHARS: usize = 36;
/// Smallest width of the text beside a margin, in characters.
const MIN_TEXT_CHARS: usize = 20;

/// The first request of a plan, as `rye plan --prompt` prints it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PromptOutput {
    pub directive: String,
    /// The system prompt, with a marker such as `${thread_id}` for every placeholder.
    pub system: String,
    /// The first message, with markers as in `system`.
    pub first_message: String,
    /// The tool definitions in the form of the model's wire; empty if the system prompt contains them.
    pub tools: Vec<SentTool>,
}

/// A tool definition in the form that a request contains.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SentTool {
    /// Name by which the model calls the tool.
    pub name: String,
    /// Description in the form that a request contains.
    pub description: String,
    /// JSON Schema of the parameters; null if the wire sends no schema for a tool without parameters.
    pub schema: Option<Value>,
    /// The line of the grant that offers the tool; null if no line grants it.
    pub source: Option<SourceReport>,
}

/// A part of the request: a heading, a text, and labels for the margin beside the text.
struct Part {
    title: String,
    text: String,
    labels: Vec<LineLabel>,
}

/// A label in the margin. The label applies to the text of its part from the byte offset `offset` on.
struct LineLabel {
    offset: usize,
    /// Lines of the label in the margin: `FILE:LINE` if the place is known, then the name of the part.
    lines: Vec<String>,
}

/// Collects the parts of the first request of a thread of this plan: system prompt, first message and tools.
pub fn collect(compilation: &Compilation) -> PromptOutput {
    let plan = &compilation.plan;
    let (system, first, _) = view::view_prompt(plan, &compilation.origins);
    let tools = sent_tools(compilation);
    PromptOutput {
        directive: plan.directive.to_string(),
        system: system.text,
        first_message: first.text,
        tools: tools.into_iter().map(|(tool, _)| tool).collect(),
    }
}

/// Renders the first request with labels in a margin. The text is folded to `width` columns; `None` means no folding.
pub fn render(compilation: &Compilation, width: Option<usize>) -> String {
    let parts = request_parts(compilation);
    let labels = parts.iter().flat_map(|part| &part.labels).flat_map(|label| &label.lines);
    let widest = labels.map(|line| line.chars().count()).max().unwrap_or(0);
    let margin = widest.min(width.map_or(MAX_MARGIN_CHARS, |width| MAX_MARGIN_CHARS.min(width / 3)));
    let max_chars = width.map(|width| width.saturating_sub(margin + 3).max(MIN_TEXT_CHARS));
    let mut out = String::new();
    for part in &parts {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&part.title);
        out.push('\n');
        push_part(&mut out, part, margin, max_chars);
    }
    out
}

/// Renders the first request without the margin of source lines: a heading line and the text of each part.
pub fn render_bare(compilation: &Compilation) -> String {
    let parts = request_parts(compilation);
    parts.iter().map(|part| format!("{}\n{}\n", part.title, part.text)).collect::<Vec<_>>().join("\n")
}

fn request_parts(compilation: &Compilation) -> Vec<Part> {
    let plan = &compilation.plan;
    let (system, first, _) = view::view_prompt(plan, &compilation.origins);
    let mut parts = Vec::new();
    for (title, message) in [("System prompt", &system), ("First message", &first)] {
        if !message.layers.is_empty() {
            let tokens = group_thousands(plan.model.counted_by.count(&message.text));
            parts.push(message_part(&format!("── {title}, {tokens} tokens"), message));
        }
    }
    for (tool, place) in sent_tools(compilation) {
        let schema = tool.schema.map(|schema| format!("\n{schema:#}")).unwrap_or_default();
        parts.push(Part {
            title: format!("── Tool {}", tool.name),
            text: format!("{}{schema}", tool.description),
            labels: vec![LineLabel { offset: 0, lines: format_label(place.as_ref(), &tool.name) }],
        });
    }
    parts
}

fn message_part(title: &str, message: &MessageView) -> Part {
    let label_of = |layer: &LayerView| LineLabel {
        offset: layer.offset,
        lines: format_label(layer.place.as_ref(), &format!("{} ({})", layer.layer.id, layer.via)),
    };
    let labels = message.layers.iter().map(label_of).collect();
    Part { title: title.to_owned(), text: message.text.clone(), labels }
}

/// Returns the lines of a label in the margin: `FILE:LINE` if the place is known, then the name.
fn format_label(place: Option<&SourcePlace>, name: &str) -> Vec<String> {
    let place = place.map(|place| format!("{}:{}", place.file, place.line));
    place.into_iter().chain([name.to_owned()]).collect()
}

/// Returns the tool definitions of the first request with the source of their grants; empty if the system prompt
/// contains them.
fn sent_tools(compilation: &Compilation) -> Vec<(SentTool, Option<SourcePlace>)> {
    let plan = &compilation.plan;
    let sent = |tool: &PaletteTool| {
        let wire = plan.model.wire_tool(tool);
        let origin = compilation.origins.get(&format!("tool.{}", tool.name));
        let place = origin.and_then(|origin| origin.place.clone());
        let sent = SentTool {
            name: tool.name.to_string(),
            description: wire.description.to_string(),
            schema: wire.parameters.map(std::borrow::Cow::into_owned),
            source: place.as_ref().map(SourceReport::from),
        };
        (sent, place)
    };
    match plan.model.tool_use {
        crate::plan::ToolUse::Native => plan.palette.iter().map(sent).collect(),
        crate::plan::ToolUse::TextParsed => Vec::new(),
    }
}

/// Appends a part. Each line of its text follows a margin. A line of more than `max_chars` characters continues in
/// further lines, which are marked with `┊`; if `max_chars` is `None`, every line stays whole.
fn push_part(out: &mut String, part: &Part, margin: usize, max_chars: Option<usize>) {
    let mut labels = part.labels.iter().peekable();
    let mut waiting: Vec<&str> = Vec::new();
    let mut offset = 0;
    for line in part.text.split('\n') {
        while let Some(label) = labels.next_if(|label| label.offset <= offset) {
            // If a layer has only one line, the second line of its label is printed beside the blank line after the
            // layer.
            waiting = label.lines.iter().map(String::as_str).collect();
        }
        for (i, piece) in fold(line, max_chars).into_iter().enumerate() {
            let named = if waiting.is_empty() { "" } else { waiting.remove(0) };
            let rule = if i == 0 { '│' } else { '┊' };
            let row = format!("{:margin$} {rule} {piece}", shorten_start(named, margin));
            out.push_str(row.trim_end());
            out.push('\n');
        }
        offset += line.len() + 1;
    }
}

/// Shortens a name at its start, where paths differ least.
fn shorten_start(name: &str, max_chars: usize) -> String {
    let length = name.chars().count();
    if length <= max_chars {
        return name.to_owned();
    }
    let rest: String = name.chars().skip(length + 1 - max_chars.max(1)).collect();
    format!("…{rest}")
}

/// Splits a line into pieces of at most `max_chars` characters, after words where possible. No character is lost.
/// Without `max_chars`, the line is the only piece.
fn fold(line: &str, max_chars: Option<usize>) -> Vec<&str> {
    let Some(max_chars) = max_chars else { return vec![line] };
    let mut pieces = Vec::new();
    let mut rest = line;
    while rest.chars().count() > max_chars {
        let end = rest.char_indices().nth(max_chars).map_or(rest.len(), |(at, _)| at);
        let head = rest.get(..end).unwrap_or(rest);
        let word = head.rfind(' ').map(|at| at + 1).filter(|at| *at > end / 2);
        let (piece, tail) = rest.split_at(word.unwrap_or(end));
        pieces.push(piece);
        rest = tail;
    }
    pieces.push(rest);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_pieces_join_to_the_line() {
        for line in [
            "",
            "short",
            "a line of several words that is too long",
            "ééééééééééééééééééééééé",
            "    indented text here",
        ] {
            for max_chars in [5, 10, 20] {
                let pieces = fold(line, Some(max_chars));
                assert_eq!(pieces.concat(), line);
                assert!(pieces.iter().all(|piece| piece.chars().count() <= max_chars), "{pieces:?}");
            }
        }
    }

    #[test]
    fn margin_names_each_layer_once_beside_its_first_lines() {
        let label = |offset, name: &str| LineLabel { offset, lines: vec![format!("{name}.md:1"), name.to_owned()] };
        let text = "one\n\ntwo\nlines\nhere".to_owned();
        let part = Part { title: String::new(), text, labels: vec![label(0, "a"), label(5, "b")] };
        let mut out = String::new();
        push_part(&mut out, &part, 6, None);
        assert_eq!(out, "a.md:1 │ one\na      │\nb.md:1 │ two\nb      │ lines\n       │ here\n");
        assert_eq!(shorten_start("system:.ai/x.md:12", 9), "…/x.md:12");
    }
}
