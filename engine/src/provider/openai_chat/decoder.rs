//! Decoder of Chat Completions chunks: a pure state machine that tolerates the deviations of compatible servers.
//!
//! The stream is complete after a `finish_reason` and `[DONE]`, or after a `finish_reason` and the usage. Only the
//! first choice is read. The names of unknown fields of a delta are recorded in the reply.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::WIRE;
use crate::exchange::{CallError, Delta, FailedStage, Reply, StopReason, Usage};
use crate::message::{ContentBlock, ToolCall};
use crate::provider::error_body::ProviderErrorBody;
use crate::provider::sse::SseEvent;
use crate::provider::wire::{
    PromptCounts, ReplyDecoder, UnreadKinds, UsageReports, event_kind, is_empty_value, is_keep_alive, parse_event,
    read_count,
};

/// The decoder of a Chat Completions stream: its state between two chunks.
#[derive(Debug, Default)]
pub struct ChatDecoder {
    model: Option<String>,
    usage: UsageReports,
    stop: Option<StopReason>,
    thinking: String,
    text: String,
    refused: bool,
    calls: Vec<OpenCall>,
    done: bool,
    unread: UnreadKinds,
    failure: Option<CallError>,
}

/// An event that contains only a piece of text. It is the most frequent event and has its own fast parser.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatTextChunk<'e> {
    #[serde(borrow)]
    model: Option<&'e str>,
    choices: [ChatTextChoice; 1],
    usage: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
    #[serde(rename = "id")]
    _id: Option<IgnoredAny>,
    #[serde(rename = "object")]
    _object: Option<IgnoredAny>,
    #[serde(rename = "created")]
    _created: Option<IgnoredAny>,
    #[serde(rename = "provider")]
    _provider: Option<IgnoredAny>,
    #[serde(rename = "system_fingerprint")]
    _system_fingerprint: Option<IgnoredAny>,
    #[serde(rename = "service_tier")]
    _service_tier: Option<IgnoredAny>,
    #[serde(rename = "obfuscation")]
    _obfuscation: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatTextChoice {
    /// Null unless log probabilities were requested.
    logprobs: Option<IgnoredAny>,
    #[serde(default)]
    index: u64,
    delta: ChatTextDelta,
    finish_reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatTextDelta {
    content: Option<String>,
    role: Option<String>,
    refusal: Option<IgnoredAny>,
}

impl<'e> ChatTextChunk<'e> {
    /// Returns the model id and the text of an event; `None` if the event contains anything besides text. The id is
    /// empty if the event names no model.
    fn read(event: &'e SseEvent) -> Option<(&'e str, String)> {
        let piece = serde_json::from_str::<Self>(&event.data).ok().filter(|_| event.name.is_empty())?;
        let Self { model, choices: [choice], usage: None, error: None, .. } = piece else { return None };
        let ChatTextChoice { index: 0, delta, finish_reason: None, logprobs: None } = choice else { return None };
        let is_plain = delta.refusal.is_none() && delta.role.is_none_or(|role| role == "assistant");
        let text = delta.content.filter(|_| is_plain)?;
        Some((model.unwrap_or_default(), text))
    }
}

/// Fields of a chunk that the decoder reads, or that contain no part of the reply. Other fields are reported as unread.
const CHUNK_FIELDS: [&str; 11] = [
    "id",
    "object",
    "created",
    "model",
    "provider",
    "choices",
    "usage",
    "error",
    "system_fingerprint",
    "service_tier",
    "obfuscation",
];
/// Fields of a choice that are read, or that repeat fields that are read. A `text` that is not empty is nevertheless
/// reported as unread content.
const CHOICE_FIELDS: [&str; 6] = ["index", "delta", "message", "text", "finish_reason", "native_finish_reason"];
/// Fields of a delta that are read, or that repeat fields that are read.
const KNOWN_DELTA_FIELDS: [&str; 8] =
    ["role", "name", "content", "refusal", "reasoning", "reasoning_content", "tool_calls", "function_call"];

/// A tool call whose end has not arrived yet.
#[derive(Debug)]
struct OpenCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// The first chunk of the call, kept unchanged, if the call is not a function call; `None` for a function call.
    other: Option<Value>,
}

impl ReplyDecoder for ChatDecoder {
    fn push(&mut self, event: &SseEvent) -> Vec<Delta> {
        let data = event.data.trim();
        if self.is_done() {
            let late = serde_json::from_str::<Value>(data).unwrap_or_default();
            if let Some(report) = late.get("usage").filter(|report| !report.is_null()) {
                self.usage.add(usage(report), true);
            }
            let has_choices = late.get("choices").and_then(Value::as_array).is_some_and(|choices| !choices.is_empty());
            if has_choices && self.done {
                self.unread.add("choices");
            } else if self.done && late.get("usage").is_none() && late.get("choices").is_none() && !is_keep_alive(event)
            {
                self.unread.add(event_kind(event, &late));
            }
            return Vec::new();
        }
        if let Some((model, text)) = ChatTextChunk::read(event) {
            self.set_model(model);
            self.text.push_str(&text);
            return if text.is_empty() { Vec::new() } else { vec![Delta::Text(text)] };
        }
        if data == "[DONE]" {
            self.done = true;
            return Vec::new();
        }
        let value = match parse_event(data, &mut self.unread) {
            Ok(value) => value,
            Err(_) if data.is_empty() => return Vec::new(),
            Err(_) if !event.name.is_empty() && event.name != "error" && !data.starts_with('{') => {
                if event.name != "ping" {
                    self.unread.add(&event.name);
                }
                return Vec::new(); // not part of a reply
            }
            Err(_) => {
                self.failure =
                    Some(CallError::new(FailedStage::Protocol, "the stream contains an event that is not JSON"));
                return Vec::new();
            }
        };
        // One event may contain both the usage and an error.
        let report = value.get("usage").filter(|report| !report.is_null()).map(usage);
        if event.name == "error" || value.get("error").is_some_and(|error| !error.is_null()) {
            if let Some(report) = report {
                self.usage.add(report, true);
            }
            self.failure = Some(ProviderErrorBody::read(&value).into_stream_error());
            return Vec::new();
        }
        if value.get("choices").is_none() && value.get("usage").is_none() {
            let name = |key: &str| value.get(key).and_then(Value::as_str).filter(|name| !name.is_empty());
            let named = Some(event.name.as_str()).filter(|name| !name.is_empty());
            self.unread.add(name("type").or(named).or_else(|| name("object")).unwrap_or("data"));
        } else {
            self.unread.add_fields("chunk", &value, &CHUNK_FIELDS);
        }
        self.set_model(value.get("model").and_then(Value::as_str).unwrap_or_default());
        let choices = value.get("choices").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let first = |choice: &&Value| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0;
        if choices.len() > 1 || choices.iter().any(|choice| !first(&choice)) {
            self.unread.add("choices[1]");
        }
        let deltas = choices.iter().find(first).map(|choice| self.read_choice(choice)).unwrap_or_default();
        // Some servers report counts with every piece. Only a count with or after the `finish_reason` covers the whole
        // reply.
        if let Some(report) = report {
            self.usage.add(report, self.stop.is_some());
        }
        deltas
    }

    fn is_done(&self) -> bool {
        self.done || self.failure.is_some()
    }

    fn lacks_only_end_marker(&self) -> bool {
        !self.is_done() && self.stop.is_some() && self.usage.is_final
    }

    fn usage(&self) -> Option<Usage> {
        self.usage.usage
    }

    fn is_usage_final(&self) -> bool {
        self.usage.is_final
    }

    fn finish(self) -> Result<Reply, CallError> {
        if let Some(failure) = self.failure {
            return Err(CallError { usage: self.usage.usage, ..failure });
        }
        // Some servers omit `[DONE]`; after `finish_reason` and usage nothing is missing.
        let (Some(stop), true) = (self.stop, self.done || self.usage.is_final) else {
            let message = if self.done {
                "the stream ended without a `finish_reason`"
            } else {
                "the stream ended without `[DONE]`"
            };
            return Err(CallError { usage: self.usage.usage, ..CallError::new(FailedStage::Truncated, message) });
        };
        let mut content = Vec::new();
        if !self.thinking.is_empty() {
            content.push(ContentBlock::Thinking { text: self.thinking.into(), signature: None });
        }
        if !self.text.is_empty() {
            content.push(ContentBlock::Text { text: self.text.into() });
        }
        content.extend(self.calls.into_iter().map(OpenCall::close));
        let calls = content.iter().any(|block| matches!(block, ContentBlock::ToolCall(_)));
        let plain = stop == StopReason::EndTurn;
        let stop = match (plain, calls, self.refused) {
            (true, true, _) => StopReason::ToolUse,
            (true, false, true) => StopReason::Refusal,
            (_, _, _) => stop,
        };
        Ok(Reply {
            content,
            usage: self.usage.usage.unwrap_or_default(),
            stop,
            model: self.model,
            uncounted: None,
            unread: self.unread.into_vec(),
        })
    }
}

impl ChatDecoder {
    fn set_model(&mut self, model: &str) {
        if !model.is_empty() && self.model.as_deref() != Some(model) {
            self.model = Some(model.to_owned());
        }
    }

    fn read_choice(&mut self, choice: &Value) -> Vec<Delta> {
        let mut deltas = Vec::new();
        self.unread.add_fields("choice", choice, &CHOICE_FIELDS);
        if choice.get("text").and_then(Value::as_str).is_some_and(|text| !text.is_empty()) {
            self.unread.add("choice.text");
        }
        if let Some(delta) = choice.get("delta").or_else(|| choice.get("message")) {
            let text = |key: &str| delta.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
            if text("reasoning_content").zip(text("reasoning")).is_some_and(|(one, other)| one != other) {
                self.unread.add("delta.reasoning");
            }
            if let Some(more) = text("reasoning_content").or_else(|| text("reasoning")) {
                self.thinking.push_str(more);
                deltas.push(Delta::Thinking(more.to_owned()));
            }
            if let Some(more) = text("content") {
                self.text.push_str(more);
                deltas.push(Delta::Text(more.to_owned()));
            }
            for part in delta.get("content").and_then(Value::as_array).into_iter().flatten() {
                self.read_part(part, &mut deltas);
            }
            if let Some(more) = text("refusal") {
                self.refused = true;
                self.text.push_str(more);
                deltas.push(Delta::Text(more.to_owned()));
            }
            if text("role").is_some_and(|role| role != "assistant") {
                self.unread.add("delta.role");
            }
            let texts = ["role", "name", "refusal", "reasoning", "reasoning_content"];
            self.unread.add_unless_strings("delta", delta, &texts);
            if delta.get("function_call").is_some_and(|function| !function.is_object() && !is_empty_value(function)) {
                self.unread.add("delta.function_call");
            }
            let calls = delta.get("tool_calls").filter(|calls| !calls.is_null());
            if calls.is_some_and(|calls| !calls.is_array()) {
                self.unread.add("delta.tool_calls");
            }
            let calls = calls.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            for call in calls {
                self.read_tool_call(call, &mut deltas);
            }
            if let Some(function) = delta.get("function_call").filter(|function| function.is_object()) {
                // `function_call` is the older form of `tool_calls`: one call without an id.
                self.read_tool_call(&json!({"index": 0, "function": function}), &mut deltas);
            }
            if delta
                .get("content")
                .is_some_and(|content| !matches!(content, Value::Null | Value::String(_) | Value::Array(_)))
            {
                self.unread.add("delta.content");
            }
            for (key, value) in delta.as_object().into_iter().flatten() {
                let empty =
                    value.is_null() || value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty);
                if !empty && !KNOWN_DELTA_FIELDS.contains(&key.as_str()) {
                    self.unread.add(&format!("delta.{key}"));
                }
            }
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.stop = Some(StopReason::later(self.stop.take(), stop_reason(reason)));
        }
        deltas
    }

    /// Reads an entry of `content`, if `content` is a list: text, a refusal, or thinking.
    fn read_part(&mut self, part: &Value, deltas: &mut Vec<Delta>) {
        let kind = part.get("type").and_then(Value::as_str).unwrap_or("text");
        match kind {
            "text" | "output_text" | "refusal" => {
                let text =
                    part.as_str().or_else(|| part.get("text")?.as_str()).or_else(|| part.get("refusal")?.as_str());
                self.refused |= kind == "refusal";
                if text.is_none() && !is_empty_value(part) {
                    self.unread.add("delta.content");
                }
                if let Some(more) = text.filter(|text| !text.is_empty()) {
                    self.text.push_str(more);
                    deltas.push(Delta::Text(more.to_owned()));
                }
            }
            "thinking" | "reasoning" => {
                let inner = part.get("thinking").or_else(|| part.get("reasoning")).or_else(|| part.get("text"));
                let texts: Vec<&str> = match inner {
                    Some(Value::Array(parts)) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
                    Some(other) => other.as_str().into_iter().collect(),
                    None => Vec::new(),
                };
                for more in texts.into_iter().filter(|text| !text.is_empty()) {
                    self.thinking.push_str(more);
                    deltas.push(Delta::Thinking(more.to_owned()));
                }
            }
            other => self.unread.add(&format!("content.{other}")),
        }
    }

    fn read_tool_call(&mut self, piece: &Value, deltas: &mut Vec<Delta>) {
        if piece.get("type").and_then(Value::as_str).is_none_or(|kind| kind == "function" || kind.is_empty()) {
            self.unread.add_fields("tool_calls", piece, &["index", "id", "type", "function"]);
            self.unread.add_fields("function", piece.get("function").unwrap_or(&Value::Null), &["name", "arguments"]);
        }
        self.unread.add_unless_strings("tool_calls", piece, &["id", "type"]);
        self.unread.add_unless_strings("function", piece.get("function").unwrap_or(&Value::Null), &["name"]);
        let index = piece.get("index").and_then(Value::as_u64);
        let id = piece.get("id").and_then(Value::as_str).unwrap_or_default();
        let name = piece.pointer("/function/name").and_then(Value::as_str).unwrap_or_default();
        let arguments = match piece.pointer("/function/arguments") {
            Some(Value::String(text)) => text.clone(),
            Some(object @ Value::Object(_)) => object.to_string(),
            Some(_) | None => String::new(),
        };
        let position = self.call_position(index, id, name).unwrap_or_else(|| {
            // Some servers send no id, so an id is generated, to which the result can refer.
            let id = if id.is_empty() { format!("call_{}", self.calls.len()) } else { id.to_owned() };
            let kind = piece.get("type").and_then(Value::as_str).unwrap_or("function");
            let other = (kind != "function" && !kind.is_empty()).then(|| piece.clone());
            if other.is_none() {
                deltas.push(Delta::ToolCallStarted { id: id.clone(), name: name.to_owned() });
            }
            self.calls.push(OpenCall { index, id, name: String::new(), arguments: String::new(), other });
            self.calls.len() - 1
        });
        let Some(call) = self.calls.get_mut(position) else { return };
        // Of a call that is not a function call, only the first chunk is stored. A later chunk is reported as unread if
        // it differs from the first chunk.
        if call.other.as_ref().is_some_and(|first| first != piece) {
            self.unread.add("tool_calls");
        } else if call.other.is_none()
            && piece.get("type").and_then(Value::as_str).is_some_and(|kind| kind != "function" && !kind.is_empty())
        {
            self.unread.add("tool_calls.type");
        }
        if call.name.is_empty() {
            name.clone_into(&mut call.name);
        } else if !name.is_empty() && name != call.name {
            self.unread.add("function.name");
        }
        if !arguments.is_empty() {
            call.arguments.push_str(&arguments);
            deltas.push(Delta::ToolCallInput { id: call.id.clone(), fragment: arguments });
        }
    }

    /// Returns the index in `calls` of the call that a chunk belongs to; `None` if the chunk starts a call. Some
    /// servers number every call 0 and distinguish calls by id, so both are compared. A chunk with neither index nor id
    /// belongs to the last call, unless the chunk has a name.
    fn call_position(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        if index.is_none() && id.is_empty() {
            return self.calls.len().checked_sub(1).filter(|_| name.is_empty());
        }
        self.calls.iter().rposition(|call| {
            let same_index = index.is_none() || call.index == index;
            let same_id = id.is_empty() || call.id == id;
            same_index && same_id
        })
    }
}

impl OpenCall {
    fn close(self) -> ContentBlock {
        match self.other {
            Some(value) => ContentBlock::Other { wire: WIRE.to_owned(), value },
            None => ContentBlock::ToolCall(ToolCall::parse(self.id, self.name, &self.arguments)),
        }
    }
}

/// Converts the token counts of the wire to a usage; `None` if the counts are invalid.
fn usage(reported: &Value) -> Option<Usage> {
    let cached = [
        read_count(reported, "/prompt_tokens_details/cached_tokens")?,
        // Compatible servers use the following names.
        read_count(reported, "/prompt_cache_hit_tokens")?,
        read_count(reported, "/cached_tokens")?,
    ];
    let counts = PromptCounts {
        prompt: read_count(reported, "/prompt_tokens")??,
        cache_read: cached.into_iter().flatten().max().unwrap_or(0),
        cache_write: read_count(reported, "/prompt_tokens_details/cache_write_tokens")?.unwrap_or(0),
        output: read_count(reported, "/completion_tokens")??,
        reasoning: read_count(reported, "/completion_tokens_details/reasoning_tokens")?.unwrap_or(0),
        total: read_count(reported, "/total_tokens")?,
    };
    counts.usage()
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        // OpenAI sends `stop`; compatible servers send the other names.
        "stop" | "stop_sequence" | "eos" | "eos_token" | "end_turn" | "end" | "complete" | "completed" => {
            StopReason::EndTurn
        }
        "tool_calls" | "function_call" | "tool_use" => StopReason::ToolUse,
        "length" | "max_tokens" | "max_output_tokens" => StopReason::Length,
        "model_length" | "context_length_exceeded" | "model_context_window_exceeded" => StopReason::ContextWindow,
        "content_filter" | "safety" | "refusal" | "recitation" => StopReason::Refusal,
        other => StopReason::Other(other.to_owned()),
    }
}
