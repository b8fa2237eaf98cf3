//! `snippet` and `guidelines`: the lines that a tool adds to the system prompt.

use rye_grammar::Span;
use rye_grammar::data::Node;

use super::read::ToolSpecReader;
use super::{MAX_GUIDELINE_CHARS, MAX_GUIDELINES, MAX_SNIPPET_CHARS};

impl ToolSpecReader {
    /// Reads the key `snippet`, the line that describes the tool in the system prompt; `None` if it is missing or
    /// invalid.
    pub(super) fn snippet(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node, "snippet")?;
        let span = node.get("snippet").map_or(node.span, |value| value.span);
        self.check_prompt_line("snippet", &text, MAX_SNIPPET_CHARS, span)
    }

    pub(super) fn guidelines(&mut self, node: &Node) -> Vec<String> {
        let lines = self.strings(node, "guidelines");
        if let Some((_, span)) = lines.get(MAX_GUIDELINES) {
            let message = format!("a tool can have at most {MAX_GUIDELINES} guidelines, not {}", lines.len());
            self.report_bad_value(*span, message, "one too many", None);
        }
        let lines = lines.into_iter().take(MAX_GUIDELINES);
        lines
            .filter_map(|(text, span)| self.check_prompt_line("guidelines", &text, MAX_GUIDELINE_CHARS, span))
            .collect()
    }

    /// Returns the trimmed text of `key` if the text can be a line of the system prompt. If the text is empty, contains
    /// a control character such as a line break, or has more than `most` characters, reports this and returns `None`.
    fn check_prompt_line(&mut self, key: &str, text: &str, most: usize, span: Span) -> Option<String> {
        let text = text.trim();
        let reason = if text.is_empty() {
            "is empty".to_owned()
        } else if text.chars().any(char::is_control) {
            "must be one line".to_owned()
        } else if text.chars().count() > most {
            format!("has {} characters, but at most {most} are allowed", text.chars().count())
        } else {
            return Some(text.to_owned());
        };
        self.report_bad_value(
            span,
            format!("a text of `{key}` {reason}"),
            "this text becomes one line of the system prompt",
            None,
        );
        None
    }
}
