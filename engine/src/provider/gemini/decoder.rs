//! Decoder of Gemini's stream of partial responses: a pure state machine.
//!
//! The stream is complete after a `finishReason`, or after a report that the prompt was blocked. Only the first
//! candidate is read. Parts of unknown kinds are stored whole. The names of unknown fields of a candidate are recorded
//! in the reply.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::{GENERATED_ID_PREFIX, SIGNATURE_FIELD, WIRE};
use crate::exchange::{CallError, Delta, FailedStage, Reply, StopReason, Usage};
use crate::message::{ContentBlock, ToolCall};
use crate::provider::error_body::ProviderErrorBody;
use crate::provider::sse::SseEvent;
use crate::provider::wire::{
    PromptCounts, ReplyDecoder, UnreadKinds, UsageReports, event_kind, is_keep_alive, parse_event,
};

/// The decoder of Gemini's stream: its state between two events.
#[derive(Debug, Default)]
pub struct GeminiDecoder {
    model: Option<String>,
    /// The server's id of the response, used in generated call ids.
    answer: String,
    usage: UsageReports,
    stop: Option<StopReason>,
    content: Vec<ContentBlock>,
    calls: usize,
    unread: UnreadKinds,
    failure: Option<CallError>,
}

impl ReplyDecoder for GeminiDecoder {
    fn push(&mut self, event: &SseEvent) -> Vec<Delta> {
        if self.is_done() {
            let late = serde_json::from_str::<Value>(&event.data).unwrap_or_default();
            if let Some(report) = late.get("usageMetadata").filter(|report| !report.is_null()) {
                self.usage.add(TokenCounts::deserialize(report).unwrap_or_default().usage(), true);
            }
            if self.failure.is_none() && !is_keep_alive(event) && !has_response_part(&late) {
                self.unread.add(event_kind(event, &late));
            }
            // Some servers send a `finishReason` with each event, or content after it.
            return if self.failure.is_none() { self.read_candidates(&late) } else { Vec::new() };
        }
        if is_keep_alive(event) {
            return Vec::new();
        }
        if let Some((head, text)) = TextEvent::read(&event.data) {
            self.read_head(head, false);
            let mut deltas = Vec::new();
            self.append_text(&text, &mut deltas);
            return deltas;
        }
        let Ok(value) = parse_event(&event.data, &mut self.unread) else {
            if !event.name.is_empty() && event.name != "error" && !event.data.trim_start().starts_with('{') {
                self.unread.add(&event.name);
                return Vec::new(); // not part of a reply
            }
            let message = "the stream contains an event that is not JSON";
            self.failure = Some(CallError::new(FailedStage::Protocol, message));
            return Vec::new();
        };
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let counts = value.get("usageMetadata").filter(|report| !report.is_null());
        let head = ResponseHead {
            model: text("modelVersion"),
            answer: text("responseId"),
            counts: counts.map(|report| TokenCounts::deserialize(report).unwrap_or_default()),
        };
        if event.name == "error" || value.get("error").is_some_and(|error| !error.is_null()) {
            // One event may contain both the usage and an error.
            self.read_head(head, true);
            self.failure = Some(ProviderErrorBody::read(&value).into_stream_error());
            return Vec::new();
        }
        if !has_response_part(&value) {
            self.unread.add(value.get("type").and_then(Value::as_str).unwrap_or(&event.name));
        }
        for key in value.as_object().into_iter().flat_map(Map::keys) {
            if !RESPONSE_FIELDS.contains(&key.as_str()) {
                self.unread.add(key);
            }
        }
        if let Some(feedback) = value.get("promptFeedback") {
            self.unread.add_fields("promptFeedback", feedback, &["blockReason", "blockReasonMessage", "safetyRatings"]);
        }
        let ends = value.pointer("/promptFeedback/blockReason").is_some_and(Value::is_string)
            || value.pointer("/candidates/0/finishReason").is_some_and(Value::is_string);
        self.read_head(head, ends);
        if let Some(reason) = value.pointer("/promptFeedback/blockReason").and_then(Value::as_str) {
            self.stop = Some(StopReason::Refusal);
            let text = format!("The prompt was blocked: {reason}");
            self.content.push(ContentBlock::Text { text: text.as_str().into() });
            return vec![Delta::Text(text)];
        }
        self.read_candidates(&value)
    }

    fn is_done(&self) -> bool {
        self.stop.is_some() || self.failure.is_some()
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
        let Some(stop) = self.stop else {
            let message = "the stream ended without a `finishReason`";
            return Err(CallError { usage: self.usage.usage, ..CallError::new(FailedStage::Truncated, message) });
        };
        let model = self.model.filter(|model| !model.is_empty());
        let stop = if stop == StopReason::EndTurn && self.calls > 0 { StopReason::ToolUse } else { stop };
        Ok(Reply {
            content: self.content,
            usage: self.usage.usage.unwrap_or_default(),
            stop,
            model,
            uncounted: None,
            unread: self.unread.into_vec(),
        })
    }
}

/// Returns true if an event contains a part of a response.
fn has_response_part(event: &Value) -> bool {
    ["candidates", "promptFeedback", "usageMetadata"].iter().any(|key| event.get(*key).is_some())
}

impl GeminiDecoder {
    /// Reads the fields of an event that describe the whole response: the model, the id of the answer and the token
    /// counts. `is_complete` is true if the event ends the reply.
    fn read_head(&mut self, head: ResponseHead<'_>, is_complete: bool) {
        let set = |field: &mut String, reported: Option<&str>| {
            if let Some(reported) = reported.filter(|reported| !reported.is_empty() && reported != field) {
                reported.clone_into(field);
            }
        };
        set(self.model.get_or_insert_default(), head.model);
        set(&mut self.answer, head.answer);
        if let Some(counts) = head.counts {
            self.usage.add(counts.usage(), is_complete);
        }
    }

    /// Reads the first of the alternative replies (`candidates`). The other candidates are ignored, but recorded among
    /// the unread parts of the reply.
    fn read_candidates(&mut self, value: &Value) -> Vec<Delta> {
        let candidates = value.get("candidates").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let first = |candidate: &&Value| candidate.get("index").and_then(Value::as_u64).unwrap_or(0) == 0;
        if candidates.iter().any(|candidate| !first(&candidate)) || candidates.len() > 1 {
            self.unread.add("candidates[1]");
        }
        candidates.iter().find(first).map(|candidate| self.read_candidate(candidate)).unwrap_or_default()
    }

    fn read_candidate(&mut self, candidate: &Value) -> Vec<Delta> {
        let parts = candidate.pointer("/content/parts").and_then(Value::as_array);
        let parts = parts.map(Vec::as_slice).unwrap_or_default();
        let mut deltas = Vec::new();
        for part in parts {
            self.read_part(part, &mut deltas);
        }
        if let Some(content) = candidate.get("content") {
            self.unread.add_fields("content", content, &["parts", "role"]);
        }
        for key in candidate.as_object().into_iter().flat_map(Map::keys) {
            if !CANDIDATE_FIELDS.contains(&key.as_str()) {
                self.unread.add(&format!("candidate.{key}"));
            }
        }
        let ratings = candidate.get("safetyRatings").and_then(Value::as_array);
        if ratings.into_iter().flatten().any(|rating| rating.get("blocked") == Some(&Value::Bool(true))) {
            self.unread.add("candidate.safetyRatings");
        }
        let message = candidate.get("finishMessage").and_then(Value::as_str).filter(|message| !message.is_empty());
        let Some(reason) = candidate.get("finishReason").and_then(Value::as_str) else { return deltas };
        let stop = stop_reason(reason);
        let is_malformed = stop.is_none();
        self.stop = stop.map(|stop| StopReason::later(self.stop.take(), stop));
        if is_malformed {
            let reported = message.unwrap_or("no details reported");
            let message = format!("the model made a call that cannot be read ({reason}): {reported}");
            let error_type = Some(reason.to_ascii_lowercase());
            self.failure = Some(CallError { error_type, ..CallError::new(FailedStage::StreamError, message) });
        } else if let Some(message) = message {
            self.unread.add(&format!("candidate.finishMessage {message}"));
        }
        deltas
    }

    fn read_part(&mut self, part: &Value, deltas: &mut Vec<Delta>) {
        let sealed = part.get(SIGNATURE_FIELD).filter(|seal| seal.as_str().is_some_and(|seal| !seal.is_empty()));
        if part.get("functionCall").is_some() || part.get("text").is_some() {
            self.unread.add_fields("part", part, &["text", "thought", SIGNATURE_FIELD, "functionCall"]);
        }
        if let Some(function) = part.get("functionCall") {
            self.append_text(part.get("text").and_then(Value::as_str).unwrap_or_default(), deltas);
            for key in function.as_object().into_iter().flat_map(Map::keys) {
                if !CALL_FIELDS.contains(&key.as_str()) {
                    self.unread.add(&format!("functionCall.{key}"));
                }
            }
            self.unread.add_unless_strings("functionCall", function, &["id", "name"]);
            let call = self.call(function);
            deltas.push(Delta::ToolCallStarted { id: call.id.clone(), name: call.name.clone() });
            deltas.push(Delta::ToolCallInput { id: call.id.clone(), fragment: call.input.to_string() });
            self.content.push(ContentBlock::ToolCall(call));
        } else if let Some(more) = part.get("text").and_then(Value::as_str) {
            if part.get("thought").and_then(Value::as_bool) == Some(true) {
                self.append_thinking(more, deltas);
                if sealed.is_some() {
                    // A thought with a signature is sent back unchanged, so the part is stored too.
                    self.content.push(ContentBlock::Other { wire: WIRE.to_owned(), value: part.clone() });
                }
                return;
            }
            self.append_text(more, deltas);
        } else if sealed.is_none_or(|_| part.as_object().is_some_and(|map| map.len() > 1)) {
            if part.as_object().is_some_and(|map| !map.is_empty()) {
                self.content.push(ContentBlock::Other { wire: WIRE.to_owned(), value: part.clone() });
            }
            return;
        }
        if let Some(seal) = sealed {
            self.content.push(ContentBlock::Other { wire: WIRE.to_owned(), value: json!({SIGNATURE_FIELD: seal}) });
        }
    }

    fn append_text(&mut self, more: &str, deltas: &mut Vec<Delta>) {
        if more.is_empty() {
            return;
        }
        match self.content.last_mut() {
            Some(ContentBlock::Text { text }) => text.make_mut().push_str(more),
            Some(
                ContentBlock::Thinking { .. }
                | ContentBlock::Image { .. }
                | ContentBlock::ToolCall(_)
                | ContentBlock::Other { .. },
            )
            | None => {
                self.content.push(ContentBlock::Text { text: more.into() });
            }
        }
        deltas.push(Delta::Text(more.to_owned()));
    }

    fn append_thinking(&mut self, more: &str, deltas: &mut Vec<Delta>) {
        if more.is_empty() {
            return;
        }
        match self.content.last_mut() {
            Some(ContentBlock::Thinking { text, .. }) => text.make_mut().push_str(more),
            Some(
                ContentBlock::Text { .. }
                | ContentBlock::Image { .. }
                | ContentBlock::ToolCall(_)
                | ContentBlock::Other { .. },
            )
            | None => {
                self.content.push(ContentBlock::Thinking { text: more.into(), signature: None });
            }
        }
        deltas.push(Delta::Thinking(more.to_owned()));
    }

    /// Reads a call, which always arrives complete. Older models send no id. This function then generates an id, so
    /// that the result of the call can refer to the call.
    fn call(&mut self, function: &Value) -> ToolCall {
        let text = |key: &str| function.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        self.calls += 1;
        let id = match text("id") {
            Some(id) => id.to_owned(),
            None => format!("{GENERATED_ID_PREFIX}{}_{}", self.answer, self.calls),
        };
        let arguments = match function.get("args") {
            None | Some(Value::Null) => String::new(),
            Some(args) => args.to_string(),
        };
        ToolCall::parse(id, text("name").unwrap_or_default(), &arguments)
    }
}

/// Known fields of a response: fields that the decoder reads, and fields that contribute nothing to the reply.
const RESPONSE_FIELDS: [&str; 6] =
    ["candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId", "createTime"];
/// Known fields of a candidate: fields that the decoder reads, and fields that contribute nothing to the reply. Every
/// other field of a candidate is recorded as unread.
const CANDIDATE_FIELDS: [&str; 7] =
    ["content", "finishReason", "finishMessage", "index", "safetyRatings", "tokenCount", "avgLogprobs"];

/// Fields of a call that the decoder reads. Every other field of a call is recorded as unread.
const CALL_FIELDS: [&str; 3] = ["id", "name", "args"];

/// The fields of an event that apply to the whole response.
struct ResponseHead<'e> {
    model: Option<&'e str>,
    answer: Option<&'e str>,
    counts: Option<TokenCounts>,
}

/// Token counts as this wire format reports them. Thoughts are counted separately from the answer.
#[derive(Default, Deserialize)]
struct TokenCounts {
    #[serde(rename = "promptTokenCount")]
    prompt: Option<u64>,
    #[serde(rename = "toolUsePromptTokenCount")]
    tool_prompt: Option<u64>,
    #[serde(rename = "cachedContentTokenCount")]
    cached: Option<u64>,
    #[serde(rename = "candidatesTokenCount")]
    answer: Option<u64>,
    #[serde(rename = "thoughtsTokenCount")]
    thoughts: Option<u64>,
    #[serde(rename = "totalTokenCount")]
    total: Option<u64>,
}

impl TokenCounts {
    /// Converts the token counts of a response to a usage; `None` if the counts are invalid.
    fn usage(self) -> Option<Usage> {
        let [tool_prompt, cache_read, answer, thoughts] =
            [self.tool_prompt, self.cached, self.answer, self.thoughts].map(Option::unwrap_or_default);
        let counts = PromptCounts {
            prompt: self.prompt?.saturating_add(tool_prompt),
            cache_read,
            cache_write: 0,
            output: answer.saturating_add(thoughts),
            reasoning: 0,
            total: self.total,
        };
        counts.usage()
    }
}

/// An event that contains only a piece of text. It is the most frequent event and has its own fast parser.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TextEvent<'e> {
    candidates: [TextCandidate; 1],
    usage_metadata: Option<TokenCounts>,
    #[serde(borrow)]
    model_version: Option<&'e str>,
    #[serde(borrow)]
    response_id: Option<&'e str>,
    prompt_feedback: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TextCandidate {
    content: TextContent,
    #[serde(default)]
    index: u64,
    finish_reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextContent {
    parts: [TextPart; 1],
    #[serde(rename = "role")]
    _role: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextPart {
    text: String,
}

impl<'e> TextEvent<'e> {
    fn read(data: &'e str) -> Option<(ResponseHead<'e>, String)> {
        let piece = serde_json::from_str::<Self>(data).ok()?;
        let Self {
            candidates: [candidate],
            usage_metadata,
            model_version,
            response_id,
            prompt_feedback: None,
            error: None,
        } = piece
        else {
            return None;
        };
        let TextCandidate { content: TextContent { parts: [part], .. }, index: 0, finish_reason: None } = candidate
        else {
            return None;
        };
        Some((ResponseHead { model: model_version, answer: response_id, counts: usage_metadata }, part.text))
    }
}

/// Converts a stop reason of the API. `None` for a malformed call, which is an error of the attempt.
fn stop_reason(reason: &str) -> Option<StopReason> {
    match reason {
        "STOP" | "FUNCTION_CALL" => Some(StopReason::EndTurn),
        "MAX_TOKENS" => Some(StopReason::Length),
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => Some(StopReason::Refusal),
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" => None,
        other => Some(StopReason::Other(other.to_ascii_lowercase())),
    }
}
