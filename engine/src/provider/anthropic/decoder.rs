//! Decoder of Anthropic's stream events: a pure state machine.
//!
//! Blocks of unknown kinds are stored whole. The kinds of unknown events and deltas are recorded in the reply. If the
//! start of a block is missing, the decoder infers it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::WIRE;
use crate::exchange::{CallError, Delta, FailedStage, Reply, StopReason, Usage};
use crate::message::{ContentBlock, ToolCall};
use crate::provider::error_body::ProviderErrorBody;
use crate::provider::sse::SseEvent;
use crate::provider::wire::{
    ReplyDecoder, UnreadKinds, event_kind, is_empty_value, is_keep_alive, parse_event, read_count,
};
use crate::surrogates::parse_lenient;

/// Names of the events that the decoder reads. Data that is not JSON is an error in these events only. The empty name
/// is in the list, because some gateways drop the names of events.
const KNOWN_EVENTS: [&str; 7] =
    ["", "message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "error"];

/// The decoder of Anthropic's stream: its state between two events.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a stream")]
pub struct AnthropicDecoder {
    model: Option<String>,
    usage: Option<Usage>,
    /// True if the provider has reported the input tokens.
    input_is_counted: bool,
    /// True if a reported count is not a number of tokens.
    usage_is_unreadable: bool,
    usage_is_final: bool,
    stop: Option<StopReason>,
    /// Blocks, by the index that the provider sends and the number of earlier blocks with this index. The number is
    /// needed because some servers repeat an index.
    blocks: BTreeMap<(u64, usize), OpenBlock>,
    /// The key in `blocks` of the block that started or changed last; `None` before the first block.
    last: Option<(u64, usize)>,
    stopped: bool,
    unread: UnreadKinds,
    failure: Option<CallError>,
}

/// A content block whose end has not arrived yet.
#[derive(Debug)]
enum OpenBlock {
    Text(String),
    Thinking { text: String, signature: Option<String> },
    Call { id: String, name: String, input: Value, arguments: String },
    Other { value: Value, arguments: String },
}

impl ReplyDecoder for AnthropicDecoder {
    fn push(&mut self, event: &SseEvent) -> Vec<Delta> {
        if self.is_done() {
            let late = serde_json::from_str::<Value>(&event.data).unwrap_or_default();
            self.update_usage(late.get("usage"));
            self.update_usage(late.pointer("/message/usage"));
            // After the end of a reply, these events contain no more of the reply: they repeat the end or report the
            // usage.
            let is_end = |kind: &str| matches!(kind, "ping" | "message_start" | "message_delta" | "message_stop");
            let kind = event_kind(event, &late);
            if self.stopped && !is_keep_alive(event) && !is_end(kind) {
                self.unread.add(kind);
            }
            return Vec::new();
        }
        if let Some((index, kind, text)) = DeltaEvent::read(&event.data) {
            return self.apply_delta(Some(index), kind, text).into_iter().collect();
        }
        let Ok(value) = parse_event(&event.data, &mut self.unread) else {
            let known = KNOWN_EVENTS.contains(&event.name.as_str());
            if !known || event.data.trim() == "[DONE]" {
                if !known && event.name != "ping" {
                    self.unread.add(&event.name);
                }
                return Vec::new(); // not part of a message
            }
            let message = format!("the stream contains an event `{}` that is not JSON", name_of(event));
            self.failure = Some(CallError::new(FailedStage::Protocol, message));
            return Vec::new();
        };
        // The data contains the type. The event's name only repeats the type, and some gateways drop the name.
        let kind = value.get("type").and_then(Value::as_str).unwrap_or(&event.name);
        if event.name == "error" || value.get("error").is_some_and(|error| !error.is_null()) {
            self.failure = Some(ProviderErrorBody::read(&value).into_stream_error());
            return Vec::new();
        }
        self.name_unread_fields(kind, &value);
        match kind {
            "message_start" => self.start(value.get("message").unwrap_or(&Value::Null)),
            "content_block_start" => return self.open_block(&value).into_iter().collect(),
            "content_block_delta" => return self.apply_generic_delta(&value).into_iter().collect(),
            "message_delta" => self.message_delta(&value),
            "message_stop" => {
                self.update_usage(value.get("usage"));
                self.stopped = true;
            }
            "error" => {
                self.failure = Some(ProviderErrorBody::read(&value).into_stream_error());
            }
            "ping" | "content_block_stop" => {}
            other => self.unread.add(if other.is_empty() { "event without a type" } else { other }),
        }
        Vec::new()
    }

    fn is_done(&self) -> bool {
        self.stopped || self.failure.is_some()
    }

    fn usage(&self) -> Option<Usage> {
        self.usage
    }

    fn is_usage_final(&self) -> bool {
        self.usage_is_final && self.input_is_counted && !self.usage_is_unreadable
    }

    fn finish(self) -> Result<Reply, CallError> {
        if let Some(failure) = self.failure {
            return Err(CallError { usage: self.usage, ..failure });
        }
        if !self.stopped {
            let message = "the stream ended without `message_stop`";
            return Err(CallError { usage: self.usage, ..CallError::new(FailedStage::Truncated, message) });
        }
        let mut unread = self.unread;
        if self.blocks.values().any(OpenBlock::loses_input) {
            unread.add("tool_use.input");
        }
        let content: Vec<ContentBlock> = self.blocks.into_values().filter_map(OpenBlock::close).collect();
        let calls = content.iter().any(|block| matches!(block, ContentBlock::ToolCall(_)));
        let Some(stop) = self.stop else {
            let message = "the stream ended without a `stop_reason`";
            return Err(CallError { usage: self.usage, ..CallError::new(FailedStage::Truncated, message) });
        };
        let stop = if stop == StopReason::EndTurn && calls { StopReason::ToolUse } else { stop };
        Ok(Reply {
            content,
            usage: self.usage.unwrap_or_default(),
            stop,
            model: self.model,
            uncounted: None,
            unread: unread.into_vec(),
        })
    }
}

/// Known fields of the message in the event `message_start`: fields that the decoder reads, and fields that never hold
/// content of the reply. All other fields are reported as unknown.
const MESSAGE_FIELDS: [&str; 8] = ["id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"];

/// Fields of events, by the kind of the event. All other fields are reported as unknown.
const EVENT_FIELDS: [(&str, &[&str]); 6] = [
    ("message_start", &["type", "message"]),
    ("content_block_start", &["type", "index", "content_block"]),
    ("content_block_delta", &["type", "index", "delta"]),
    ("content_block_stop", &["type", "index"]),
    ("message_delta", &["type", "delta", "usage"]),
    ("message_stop", &["type", "usage"]),
];

impl AnthropicDecoder {
    /// Records the names of the fields of an event that the decoder does not read. Also records the field `index` if
    /// its value is not a number.
    fn name_unread_fields(&mut self, kind: &str, value: &Value) {
        let Some((kind, known)) = EVENT_FIELDS.iter().find(|(known, _)| *known == kind) else { return };
        self.unread.add_fields(kind, value, known);
        if value.get("index").is_some_and(|index| !index.is_u64() && !index.is_null()) {
            self.unread.add(&format!("{kind}.index"));
        }
    }

    fn start(&mut self, message: &Value) {
        // The content blocks arrive in later events; content in this event is not read.
        if message.get("content").is_some_and(|content| !is_empty_value(content)) {
            self.unread.add("message.content");
        }
        self.unread.add_unless_strings("message", message, &["model"]);
        if let Some(model) = message.get("model").and_then(Value::as_str) {
            self.model = Some(model.to_owned());
        }
        self.unread.add_fields("message", message, &MESSAGE_FIELDS);
        self.update_usage(message.get("usage"));
    }

    fn message_delta(&mut self, value: &Value) {
        if let Some(reason) = value.pointer("/delta/stop_reason").and_then(Value::as_str) {
            self.stop = Some(StopReason::later(self.stop.take(), stop_reason(reason)));
        }
        if let Some(delta) = value.get("delta") {
            self.unread.add_unless_strings("delta", delta, &["stop_reason"]);
            self.unread.add_fields("delta", delta, &["stop_reason", "stop_sequence"]);
        }
        self.update_usage(value.get("usage"));
        let output = value.pointer("/usage/output_tokens").and_then(Value::as_u64);
        // A count of 0 for a reply with content is not a valid count.
        let counted = output.is_some_and(|output| output > 0 || self.blocks.is_empty());
        self.usage_is_final |= counted && self.stop.is_some();
    }

    /// Updates the usage by a report of the stream. The counts of a report are cumulative: [`Usage::after`] combines
    /// them with the earlier counts.
    fn update_usage(&mut self, usage: Option<&Value>) {
        let Some(reported) = usage.filter(|usage| usage.is_object()) else { return };
        let mut usage = self.usage.unwrap_or_default();
        let mut set = |field: &mut u64, path: &str| {
            let Some(count) = read_count(reported, path) else {
                self.usage_is_unreadable = true;
                return false;
            };
            *field = count.unwrap_or(*field);
            count.is_some()
        };
        let input = set(&mut usage.input, "/input_tokens");
        set(&mut usage.output, "/output_tokens");
        let mut thinking = 0;
        set(&mut thinking, "/output_tokens_details/thinking_tokens");
        if thinking > usage.output && usage.output > 0 {
            // If the thinking tokens exceed the output tokens, the server did not count them as output tokens.
            usage.output = usage.output.saturating_add(thinking);
        }
        set(&mut usage.cache_read, "/cache_read_input_tokens");
        set(&mut usage.cache_write, "/cache_creation_input_tokens");
        // The sum of the parts in `cache_creation` is used if `cache_creation_input_tokens` is missing or smaller.
        let mut parts = 0_u64;
        for path in ["/cache_creation/ephemeral_5m_input_tokens", "/cache_creation/ephemeral_1h_input_tokens"] {
            let mut part = 0;
            set(&mut part, path);
            parts = parts.saturating_add(part);
        }
        usage.cache_write = usage.cache_write.max(parts);
        self.input_is_counted |= input;
        self.usage = Some(Usage::after(self.usage, usage));
    }

    fn open_block(&mut self, value: &Value) -> Option<Delta> {
        let block = value.get("content_block").cloned().unwrap_or(Value::Null);
        match block.get("type").and_then(Value::as_str) {
            Some("text") => self.unread.add_fields("text", &block, &["type", "text"]),
            Some("thinking") => self.unread.add_fields("thinking", &block, &["type", "thinking", "signature"]),
            Some("tool_use") => self.unread.add_fields("tool_use", &block, &["type", "id", "name", "input"]),
            // A block of another kind is stored whole, so none of its fields is unread.
            Some(_) | None => {}
        }
        if let Some(kind @ ("text" | "thinking" | "tool_use")) = block.get("type").and_then(Value::as_str) {
            self.unread.add_unless_strings(kind, &block, &["text", "thinking", "signature", "id", "name"]);
        }
        let open = OpenBlock::start(block);
        let index = value.get("index").and_then(Value::as_u64);
        // If the event has no index, the block is new and follows all other blocks.
        let index = index.unwrap_or_else(|| self.blocks.last_key_value().map_or(0, |((index, _), _)| index + 1));
        let key = match self.key_of(index) {
            // The start event is repeated, so the block keeps the content that has arrived.
            Some(key) if self.blocks.get(&key).is_some_and(|block| block.is_same_start(&open)) => return None,
            Some((index, number)) => (index, number + 1),
            None => (index, 0),
        };
        let delta = match &open {
            OpenBlock::Text(text) => (!text.is_empty()).then(|| Delta::Text(text.clone())),
            OpenBlock::Thinking { text, .. } => (!text.is_empty()).then(|| Delta::Thinking(text.clone())),
            OpenBlock::Call { id, name, .. } => Some(Delta::ToolCallStarted { id: id.clone(), name: name.clone() }),
            OpenBlock::Other { .. } => None,
        };
        self.blocks.insert(key, open);
        self.last = Some(key);
        delta
    }

    /// Returns the key in `blocks` of the newest block with this index; `None` if there is no block with this index. A
    /// server may use an index twice.
    fn key_of(&self, index: u64) -> Option<(u64, usize)> {
        self.blocks.range((index, 0)..=(index, usize::MAX)).next_back().map(|(key, _)| *key)
    }

    /// Handles a delta that does not have the form of [`DeltaEvent`]. Returns the piece to display; `None` if nothing
    /// is displayed.
    fn apply_generic_delta(&mut self, value: &Value) -> Option<Delta> {
        let index = value.get("index").and_then(Value::as_u64);
        let delta = value.get("delta")?;
        let Some(kind) = delta.get("type").and_then(Value::as_str) else {
            self.unread.add("delta");
            return None;
        };
        let text = |key: &'static str| Some((key, delta.get(key)?.as_str()?));
        let Some((key, text)) = DELTA_TEXTS.into_iter().find_map(text) else {
            self.unread.add(kind);
            return None;
        };
        self.unread.add_fields("delta", delta, &["type", key]);
        self.apply_delta(index, kind, text.to_owned())
    }

    /// Appends a piece to the block with this index, or to the last block if the event has no index. Returns the delta
    /// to display; `None` if nothing of the piece is displayed. A piece whose kind does not fit the block is ignored,
    /// and its kind is added to `unread`.
    fn apply_delta(&mut self, index: Option<u64>, kind: &str, more: String) -> Option<Delta> {
        let key = match index {
            Some(index) => self.key_of(index).unwrap_or((index, 0)),
            None => self.last.unwrap_or((0, 0)),
        };
        let fresh = match kind {
            "text_delta" => Some(OpenBlock::Text(String::new())),
            "thinking_delta" => Some(OpenBlock::Thinking { text: String::new(), signature: None }),
            _ => None,
        };
        if let Some(fresh) = fresh {
            self.blocks.entry(key).or_insert(fresh);
            self.last = Some(key);
        }
        match (kind, self.blocks.get_mut(&key)) {
            ("text_delta", Some(OpenBlock::Text(text))) => {
                text.push_str(&more);
                Some(Delta::Text(more))
            }
            ("text_delta", Some(OpenBlock::Other { value, .. })) => {
                append(value, "text", &more);
                Some(Delta::Text(more))
            }
            ("thinking_delta", Some(OpenBlock::Thinking { text, .. })) => {
                text.push_str(&more);
                Some(Delta::Thinking(more))
            }
            ("thinking_delta", Some(OpenBlock::Other { value, .. })) => {
                append(value, "thinking", &more);
                Some(Delta::Thinking(more))
            }
            ("signature_delta", Some(OpenBlock::Thinking { signature, .. })) => {
                signature.get_or_insert_default().push_str(&more);
                None
            }
            ("input_json_delta", Some(OpenBlock::Call { id, arguments, .. })) => {
                arguments.push_str(&more);
                (!more.is_empty()).then(|| Delta::ToolCallInput { id: id.clone(), fragment: more })
            }
            ("input_json_delta", Some(OpenBlock::Other { arguments, .. })) => {
                arguments.push_str(&more);
                None
            }
            (unfit, _) => {
                if !more.is_empty() {
                    self.unread.add(unfit);
                }
                None
            }
        }
    }
}

/// Fields that can hold the text of a delta. A delta has only one of these fields.
const DELTA_TEXTS: [&str; 4] = ["text", "thinking", "signature", "partial_json"];

/// The event `content_block_delta` in its usual form. It is the most frequent event and has a fast parser of its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeltaEvent<'e> {
    #[serde(rename = "type")]
    kind: &'e str,
    index: u64,
    #[serde(borrow)]
    delta: DeltaEventBody<'e>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeltaEventBody<'e> {
    #[serde(rename = "type")]
    kind: &'e str,
    text: Option<String>,
    thinking: Option<String>,
    partial_json: Option<String>,
}

impl<'e> DeltaEvent<'e> {
    /// Returns the index of the block, the kind of the delta and its text; `None` if the event contains anything else.
    fn read(data: &'e str) -> Option<(u64, &'e str, String)> {
        let Self { kind: "content_block_delta", index, delta } = serde_json::from_str::<Self>(data).ok()? else {
            return None;
        };
        let texts = (delta.text, delta.thinking, delta.partial_json);
        let ((Some(text), None, None) | (None, Some(text), None) | (None, None, Some(text))) = texts else {
            return None;
        };
        Some((index, delta.kind, text))
    }
}

impl OpenBlock {
    fn start(block: Value) -> Self {
        let text = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        match block.get("type").and_then(Value::as_str) {
            Some("text") => Self::Text(text("text")),
            Some("thinking") => {
                let signature = Some(text("signature")).filter(|signature| !signature.is_empty());
                Self::Thinking { text: text("thinking"), signature }
            }
            Some("tool_use") => Self::Call {
                id: text("id"),
                name: text("name"),
                input: block.get("input").cloned().unwrap_or(Value::Null),
                arguments: String::new(),
            },
            Some(_) | None => Self::Other { value: block, arguments: String::new() },
        }
    }

    /// Returns true if another start event describes the same block: the same kind, and the same id of a call.
    fn is_same_start(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(_), Self::Text(_)) | (Self::Thinking { .. }, Self::Thinking { .. }) => true,
            (Self::Call { id, .. }, Self::Call { id: other, .. }) => id == other,
            (Self::Other { value, .. }, Self::Other { value: other, .. }) => value.get("type") == other.get("type"),
            (Self::Text(_) | Self::Thinking { .. } | Self::Call { .. } | Self::Other { .. }, _) => false,
        }
    }

    /// Returns true if the input in the start event of a call is lost, because streamed arguments replace the input, or
    /// because the input is not an object.
    fn loses_input(&self) -> bool {
        let Self::Call { input, arguments, .. } = self else { return false };
        !is_empty_value(input) && (!arguments.is_empty() || !input.is_object())
    }

    /// Returns the finished block; `None` if it is empty.
    fn close(self) -> Option<ContentBlock> {
        match self {
            Self::Text(text) => (!text.is_empty()).then(|| ContentBlock::Text { text: text.into() }),
            Self::Thinking { text, signature } => (!text.is_empty() || signature.is_some())
                .then(|| ContentBlock::Thinking { text: text.into(), signature }),
            Self::Call { id, name, input, arguments } => {
                let whole = input.as_object().is_some_and(|map| !map.is_empty()) && arguments.is_empty();
                let call = if whole { ToolCall { id, name, input } } else { ToolCall::parse(id, name, &arguments) };
                Some(ContentBlock::ToolCall(call))
            }
            Self::Other { mut value, arguments } => {
                if !arguments.is_empty()
                    && let (Some(object), Ok(input)) = (value.as_object_mut(), parse_lenient(&arguments))
                {
                    object.insert("input".to_owned(), input);
                }
                (!value.is_null()).then(|| ContentBlock::Other { wire: WIRE.to_owned(), value })
            }
        }
    }
}

fn append(value: &mut Value, key: &str, more: &str) {
    let Some(object) = value.as_object_mut() else { return };
    match object.get_mut(key) {
        Some(Value::String(text)) => text.push_str(more),
        Some(_) | None => {
            object.insert(key.to_owned(), more.into());
        }
    }
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "end_turn" | "stop_sequence" => StopReason::EndTurn,
        "tool_use" => StopReason::ToolUse,
        // The next request continues a paused turn as it continues a cut reply.
        "max_tokens" | "pause_turn" => StopReason::Length,
        "model_context_window_exceeded" => StopReason::ContextWindow,
        "refusal" => StopReason::Refusal,
        other => StopReason::Other(other.to_owned()),
    }
}

fn name_of(event: &SseEvent) -> String {
    event.name.chars().filter(|c| !c.is_control()).take(60).collect()
}
