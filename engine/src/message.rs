//! Messages of a conversation, as the transcript stores them and as a provider receives them (`engine.md` 3).

mod shared;
mod shared_text;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::image::ImageRef;
use crate::json_faults::find_fault;
use crate::surrogates::parse_lenient;
pub use shared::{SharedMessage, WireEncoding};
pub use shared_text::SharedText;

/// A message as the thread stores it. Providers receive only the result of
/// [`SharedMessage::for_provider`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Message {
    User {
        content: Vec<ContentBlock>,
    },
    Assistant {
        content: Vec<ContentBlock>,
    },
    ToolResult {
        call_id: String,
        name: String,
        content: String,
        is_error: bool,
    },
    /// A message added by a hook. The model sees it as user text, regardless of `display`.
    Custom {
        custom_type: String,
        content: String,
        display: bool,
    },
    /// A command that the user ran. `excluded` is true if the user typed `!!` before the command. The command and its
    /// output are then not sent to the model.
    Bash {
        command: String,
        output: String,
        exit_code: i32,
        excluded: bool,
    },
    CompactionSummary {
        text: String,
    },
    BranchSummary {
        text: String,
    },
}

/// A content block of a message, in a form common to all providers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    Text {
        text: SharedText,
    },
    /// A reference to an image. The bytes of the image are in the object store, and are read when a request is sent.
    Image(ImageRef),
    /// Model reasoning, which requests send back unchanged. `signature` comes from the provider.
    Thinking {
        text: SharedText,
        signature: Option<String>,
    },
    ToolCall(ToolCall),
    /// A block of an unknown kind, as the provider sent it.
    Other {
        wire: String,
        value: Value,
    },
}

/// Returns the tool calls among the blocks, in order.
pub fn calls_in(content: &[ContentBlock]) -> impl Iterator<Item = &ToolCall> {
    content.iter().filter_map(|block| match block {
        ContentBlock::ToolCall(call) => Some(call),
        ContentBlock::Text { .. }
        | ContentBlock::Image { .. }
        | ContentBlock::Thinking { .. }
        | ContentBlock::Other { .. } => None,
    })
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    /// The palette name as the model wrote it.
    pub name: String,
    pub input: Value,
}

/// Input key that holds the malformed arguments of a tool call: `{"__malformed": <original text>}`. Arguments are
/// malformed if they are not a JSON object, or if they have a fault that a parser would hide (such as a repeated key).
/// A call with malformed arguments never runs. Its result is an error that quotes the model's text.
pub(crate) const MALFORMED_KEY: &str = "__malformed";

impl ToolCall {
    /// Returns the `item_id` in the arguments of a primary, as the model wrote it; `None` if the arguments contain no
    /// text under this key.
    pub fn item_id(&self) -> Option<&str> {
        self.input.get("item_id").and_then(Value::as_str)
    }

    /// Builds a call from the arguments as a provider sends them. Empty text and `null` mean `{}`. Text that is not a
    /// JSON object, or that contains an integer beyond 64 bits or a repeated key, is stored under `MALFORMED_KEY`.
    pub fn parse(id: impl Into<String>, name: impl Into<String>, arguments: &str) -> Self {
        let input = if arguments.trim().is_empty() {
            Value::Object(Map::new())
        } else {
            match parse_lenient(arguments) {
                Ok(Value::Object(map)) if find_fault(arguments).is_none() => Value::Object(map),
                Ok(Value::Null) => Value::Object(Map::new()),
                Ok(_) | Err(_) => Value::Object(Map::from_iter([(MALFORMED_KEY.to_owned(), arguments.into())])),
            }
        };
        Self { id: id.into(), name: name.into(), input }
    }

    /// Returns the original text of malformed arguments (see `MALFORMED_KEY`); `None` if the arguments are valid.
    pub fn malformed(&self) -> Option<&str> {
        self.input.get(MALFORMED_KEY).and_then(Value::as_str)
    }
}

/// A message in one of the three roles that providers accept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum ProviderMessage<'m> {
    User { content: &'m [ContentBlock] },
    Assistant { content: &'m [ContentBlock] },
    ToolResult { call_id: &'m str, name: &'m str, content: &'m str, is_error: bool },
}

impl Message {
    pub fn user(text: impl Into<SharedText>) -> Self {
        Self::User { content: vec![ContentBlock::Text { text: text.into() }] }
    }

    /// Creates a user message with images before its text, because models interpret an image better if the question
    /// follows it.
    pub(crate) fn user_with_images(images: &[ImageRef], text: impl Into<SharedText>) -> Self {
        let shown = images.iter().cloned().map(ContentBlock::Image);
        Self::User { content: shown.chain([ContentBlock::Text { text: text.into() }]).collect() }
    }

    /// Returns the name of the message's kind in JSON, such as `tool_result`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::User { .. } => "user",
            Self::Assistant { .. } => "assistant",
            Self::ToolResult { .. } => "tool_result",
            Self::Custom { .. } => "custom",
            Self::Bash { .. } => "bash",
            Self::CompactionSummary { .. } => "compaction_summary",
            Self::BranchSummary { .. } => "branch_summary",
        }
    }

    /// Returns the text of a message whose kind providers do not accept. Requests send this text as a user message.
    /// `None` for the kinds that providers accept, and for a command with `excluded`, which is not sent.
    fn user_text(&self) -> Option<String> {
        match self {
            Self::Custom { content, .. } => Some(content.clone()),
            Self::Bash { command, output, exit_code, excluded: false } => {
                let fence = fence_for(output);
                Some(format!("Ran `{command}`\n{fence}\n{output}\n{fence}\nexit code {exit_code}"))
            }
            Self::CompactionSummary { text } | Self::BranchSummary { text } => {
                Some(format!("<summary>\n{text}\n</summary>"))
            }
            Self::User { .. }
            | Self::Assistant { .. }
            | Self::ToolResult { .. }
            | Self::Bash { excluded: true, .. } => None,
        }
    }
}

/// Joins the texts of these blocks with newlines. A single text is shared, not copied.
pub fn text_of(content: &[ContentBlock]) -> SharedText {
    let texts: Vec<&SharedText> = texts_in(content).collect();
    if let [text] = texts.as_slice() {
        return (*text).clone();
    }
    texts.iter().map(|text| text.as_str()).collect::<Vec<_>>().join("\n").into()
}

fn texts_in(content: &[ContentBlock]) -> impl Iterator<Item = &SharedText> {
    content.iter().filter_map(|block| match block {
        ContentBlock::Text { text } => Some(text),
        ContentBlock::Image { .. }
        | ContentBlock::Thinking { .. }
        | ContentBlock::ToolCall(_)
        | ContentBlock::Other { .. } => None,
    })
}

/// Returns the text of a reply. Adjacent text blocks are joined without a separator, because providers split a sentence
/// where a citation ends. Texts with another block between them are joined with a newline. A single text is shared, not
/// copied.
pub fn reply_text(content: &[ContentBlock]) -> SharedText {
    let mut texts = texts_in(content);
    if let (Some(text), None) = (texts.next(), texts.next()) {
        return text.clone();
    }
    let mut text = String::new();
    let mut separated = false;
    for block in content {
        match block {
            ContentBlock::Text { text: more } => {
                if separated && !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(more);
                separated = false;
            }
            ContentBlock::Image(_)
            | ContentBlock::Thinking { .. }
            | ContentBlock::ToolCall(_)
            | ContentBlock::Other { .. } => separated = true,
        }
    }
    text.into()
}

/// Returns a Markdown code fence that is longer than every run of backticks in `text`.
pub(crate) fn fence_for(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.saturating_add(1).max(3))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    fn seen(message: &Message) -> Option<String> {
        match SharedMessage::from(message.clone()).for_provider()? {
            ProviderMessage::User { content } => match content {
                [ContentBlock::Text { text }] => Some(text.to_string()),
                other => panic!("one text, not {other:?}"),
            },
            other @ (ProviderMessage::Assistant { .. } | ProviderMessage::ToolResult { .. }) => {
                panic!("user text, not {other:?}")
            }
        }
    }

    fn bash(output: &str, excluded: bool) -> Message {
        Message::Bash { command: "ls".to_owned(), output: output.to_owned(), exit_code: 2, excluded }
    }

    #[test]
    fn message_kinds_match_the_kinds_of_hooks() {
        let text = String::from("x");
        let all = [
            Message::user("x"),
            Message::Assistant { content: Vec::new() },
            Message::ToolResult { call_id: text.clone(), name: text.clone(), content: text.clone(), is_error: false },
            Message::Custom { custom_type: text.clone(), content: text.clone(), display: true },
            bash("x", false),
            Message::CompactionSummary { text: text.clone() },
            Message::BranchSummary { text },
        ];
        assert_eq!(all.each_ref().map(Message::kind), rye_compiler::hook::MESSAGE_KINDS);
    }

    #[test]
    fn convert_shows_each_kind_to_the_model() {
        assert_eq!(seen(&Message::user("Hi")).unwrap(), "Hi");
        assert_eq!(seen(&bash("a", false)).unwrap(), "Ran `ls`\n```\na\n```\nexit code 2");
        assert_eq!(seen(&bash("a", true)), None);
        let summary = Message::CompactionSummary { text: "so far".to_owned() };
        assert_eq!(seen(&summary).unwrap(), "<summary>\nso far\n</summary>");
        for display in [true, false] {
            let custom = Message::Custom { custom_type: "note".to_owned(), content: "mind".to_owned(), display };
            assert_eq!(seen(&custom).unwrap(), "mind");
        }
    }

    #[test]
    fn output_cannot_close_its_own_fence() {
        let text = seen(&bash("```\nexit code 0\n````", false)).unwrap();
        assert!(text.contains("\n`````\n```\nexit code 0\n````\n`````\nexit code 2"), "{text}");
    }

    #[test]
    fn messages_survive_their_json() {
        let messages = vec![
            Message::user("a"),
            Message::Assistant {
                content: vec![
                    ContentBlock::Thinking { text: SharedText::default(), signature: Some("s".to_owned()) },
                    ContentBlock::ToolCall(ToolCall::parse("i", "n", "{\"a\":1}")),
                    ContentBlock::Other { wire: "anthropic".to_owned(), value: json!({"type": "new", "x": [1]}) },
                ],
            },
            Message::ToolResult {
                call_id: "i".to_owned(),
                name: "n".to_owned(),
                content: "c".to_owned(),
                is_error: true,
            },
            bash("b", false),
        ];
        let text = serde_json::to_string(&messages).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Message>>(&text).unwrap(), messages);
    }

    #[test]
    fn adjacent_text_blocks_of_a_reply_are_one_text() {
        let text = |text: &str| ContentBlock::Text { text: text.into() };
        let searched = ContentBlock::Other { wire: "anthropic".to_owned(), value: json!({"type": "server_tool_use"}) };
        let content = [text("Rye is "), text("a grain"), text("."), searched, text("Done.")];
        assert_eq!(reply_text(&content), "Rye is a grain.\nDone.");
    }

    #[test]
    fn arguments_with_a_hidden_fault_are_kept_as_text() {
        for text in [r#"{"n": 18446744073709551616}"#, r#"{"path": "a", "content": "x", "path": "b"}"#] {
            assert_eq!(ToolCall::parse("c", "t", text).malformed(), Some(text));
        }
        let whole = ToolCall::parse("c", "t", r#"{"n": 18446744073709551615}"#);
        assert_eq!(whole.input, serde_json::json!({"n": u64::MAX}));
    }

    #[test]
    fn arguments_that_are_no_object_are_kept_as_text() {
        let call = |arguments: &str| ToolCall::parse("i", "n", arguments);
        assert_eq!(call(" \n").input, json!({}));
        assert_eq!(call(" null").input, json!({}));
        assert_eq!(call("{\"a\": 1}").malformed(), None);
        for text in ["{", "[1]", "3", "{} {}", "\"a\""] {
            assert_eq!(call(text).malformed(), Some(text));
        }
    }
}
