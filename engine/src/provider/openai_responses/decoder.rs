//! Decoder of Responses events: a pure state machine.
//!
//! An item of a reply arrives in deltas and then as a whole. A server may omit the deltas or the whole item. Items of
//! unknown kinds are stored whole. The kinds of unknown events are recorded in the reply.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{REASONING, WIRE};
use crate::exchange::{CallError, Delta, FailedStage, Reply, StopReason, Usage};
use crate::message::{ContentBlock, ToolCall};
use crate::provider::error_body::ProviderErrorBody;
use crate::provider::sse::SseEvent;
use crate::provider::wire::{
    PromptCounts, ReplyDecoder, UnreadKinds, UsageReports, event_kind, is_keep_alive, parse_event, read_count,
};

/// The decoder of a Responses stream: its state between two events.
#[derive(Debug, Default)]
pub struct ResponsesDecoder {
    model: Option<String>,
    usage: UsageReports,
    stop: Option<StopReason>,
    refused: bool,
    items: BTreeMap<u64, OpenItem>,
    unread: UnreadKinds,
    failure: Option<CallError>,
}

/// An event that contains only a piece of text. It is the most frequent event and has its own fast parser.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputTextDelta<'e> {
    #[serde(rename = "type")]
    kind: &'e str,
    output_index: u64,
    content_index: u64,
    delta: String,
    #[serde(rename = "item_id")]
    _item_id: Option<IgnoredAny>,
    #[serde(rename = "sequence_number")]
    _sequence_number: Option<IgnoredAny>,
    #[serde(rename = "obfuscation")]
    _obfuscation: Option<IgnoredAny>,
}

impl<'e> OutputTextDelta<'e> {
    fn read(data: &'e str) -> Option<Self> {
        serde_json::from_str::<Self>(data).ok().filter(|piece| piece.kind == "response.output_text.delta")
    }
}

/// The events that end a reply and contain the whole output.
const FINAL_EVENTS: [&str; 4] = ["response.completed", "response.incomplete", "response.failed", "response.done"];

/// Stream events that are ignored, because they only repeat the content of other events or report progress.
const KNOWN_EVENTS: [&str; 21] = [
    "response.queued",
    "response.content_part.added",
    "response.content_part.done",
    "response.output_text.done",
    "response.refusal.done",
    "response.reasoning_text.done",
    "response.reasoning_summary_text.done",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done",
    "response.web_search_call.in_progress",
    "response.web_search_call.searching",
    "response.web_search_call.completed",
    "response.file_search_call.in_progress",
    "response.file_search_call.searching",
    "response.file_search_call.completed",
    "response.code_interpreter_call.in_progress",
    "response.code_interpreter_call.interpreting",
    "response.code_interpreter_call.completed",
    "response.custom_tool_call_input.delta",
    "response.custom_tool_call_input.done",
    "keepalive",
];

/// Returns true if an event after the end of the reply may contain more of the reply.
fn is_unread_after_end(kind: &str) -> bool {
    let is_known = KNOWN_EVENTS.contains(&kind) || matches!(kind, "response.created" | "response.in_progress");
    kind.rsplit('.').next() == Some("delta") || !is_known
}

/// Fields of events that the decoder reads, or that repeat what other events contain. Other fields are reported as
/// unread.
const EVENT_FIELDS: [&str; 20] = [
    "type",
    "sequence_number",
    "event_id",
    "response_id",
    "item_id",
    "output_index",
    "content_index",
    "summary_index",
    "annotation_index",
    "obfuscation",
    "delta",
    "text",
    "refusal",
    "name",
    "arguments",
    "input",
    "item",
    "part",
    "response",
    "error",
];
/// Fields of a response that the decoder reads, or that describe the request. Other fields are reported as unread.
const RESPONSE_FIELDS: [&str; 38] = [
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "background",
    "billing",
    "conversation",
    "error",
    "frequency_penalty",
    "incomplete_details",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "moderation",
    "output",
    "output_text",
    "parallel_tool_calls",
    "presence_penalty",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "usage",
    "user",
];

/// An output item whose end has not arrived yet.
#[derive(Debug)]
enum OpenItem {
    /// The parts of a message by index. Each part is a text or a refusal.
    Message(BTreeMap<u64, String>),
    Call {
        id: String,
        name: String,
        arguments: String,
    },
    /// A reasoning item, or an item of an unknown kind. `thinking` holds the displayed parts of its text, by index.
    Other {
        value: Value,
        thinking: BTreeMap<u64, String>,
    },
}

impl ReplyDecoder for ResponsesDecoder {
    fn push(&mut self, event: &SseEvent) -> Vec<Delta> {
        if self.is_done() {
            let late = serde_json::from_str::<Value>(&event.data).unwrap_or_default();
            self.read_head(late.get("response"), true);
            let kind = event_kind(event, &late);
            if FINAL_EVENTS.contains(&kind) {
                self.report_late_output(&late);
            } else if self.failure.is_none() && !is_keep_alive(event) && is_unread_after_end(kind) {
                self.unread.add(kind);
            }
            return Vec::new();
        }
        if is_keep_alive(event) {
            return Vec::new();
        }
        if let Some(OutputTextDelta { output_index, content_index, delta, .. }) = OutputTextDelta::read(&event.data) {
            return self.append_text(output_index, content_index, delta).into_iter().collect();
        }
        let Ok(value) = parse_event(&event.data, &mut self.unread) else {
            if !event.name.is_empty() && !event.name.starts_with("response.") && event.name != "error" {
                self.unread.add(&event.name);
                return Vec::new(); // not part of a reply
            }
            let message = "the stream contains an event that is not JSON";
            self.failure = Some(CallError::new(FailedStage::Protocol, message));
            return Vec::new();
        };
        // The data contains the type. The event's name only repeats the type, and some gateways drop the name.
        let kind = value.get("type").and_then(Value::as_str).unwrap_or(&event.name);
        if event.name == "error" || value.get("error").is_some_and(|error| !error.is_null()) {
            self.failure = Some(ProviderErrorBody::read(&value).into_stream_error());
            return Vec::new();
        }
        if kind.starts_with("response.") {
            let place = kind.strip_prefix("response.").unwrap_or(kind);
            self.unread.add_fields(place, &value, &EVENT_FIELDS);
            if let Some(part) = value.get("part") {
                self.name_unread_part(part);
            }
            self.unread.add_unless_strings(place, &value, &["delta"]);
        }
        match kind {
            "response.output_text.delta" => return self.append_delta_text(&value, false).into_iter().collect(),
            "response.refusal.delta" => return self.append_delta_text(&value, true).into_iter().collect(),
            "response.function_call_arguments.delta" => return self.append_arguments(&value).into_iter().collect(),
            "response.function_call_arguments.done" => self.set_arguments(&value),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                return self.append_thinking(&value).into_iter().collect();
            }
            "response.output_item.added" => return self.open_item(&value),
            "response.output_item.done" => return self.close_item(&value),
            "response.created" | "response.in_progress" => self.read_head(value.get("response"), false),
            last if FINAL_EVENTS.contains(&last) => return self.read_final_event(last, &value),
            "error" => self.failure = Some(ProviderErrorBody::read(&value).into_stream_error()),
            known if KNOWN_EVENTS.contains(&known) => {}
            other => self.unread.add(if other.is_empty() { "event without a type" } else { other }),
        }
        Vec::new()
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
            let message = "the stream ended without `response.completed`";
            return Err(CallError { usage: self.usage.usage, ..CallError::new(FailedStage::Truncated, message) });
        };
        let content: Vec<ContentBlock> = self.items.into_values().flat_map(OpenItem::blocks).collect();
        let calls = content.iter().any(|block| matches!(block, ContentBlock::ToolCall(_)));
        let stop = match (stop, calls, self.refused) {
            (StopReason::EndTurn, true, _) => StopReason::ToolUse,
            (StopReason::EndTurn, false, true) => StopReason::Refusal,
            (stop, _, _) => stop,
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

impl ResponsesDecoder {
    /// Reads the fields that every response object has. `is_complete` is true if the reply has ended.
    fn read_head(&mut self, response: Option<&Value>, is_complete: bool) {
        let Some(response) = response else { return };
        self.unread.add_fields("response", response, &RESPONSE_FIELDS);
        if let Some(model) = response.get("model").and_then(Value::as_str) {
            self.model = Some(model.to_owned());
        }
        if let Some(report) = response.get("usage").filter(|report| !report.is_null()) {
            self.usage.add(usage(report), is_complete);
        }
    }

    /// Handles the final event, which repeats the whole output. Adds the items that were not streamed before, and
    /// returns the deltas of these items. The name and the status of the event determine whether the reply is complete,
    /// cut or failed.
    fn read_final_event(&mut self, kind: &str, value: &Value) -> Vec<Delta> {
        let response = value.get("response");
        self.read_head(response, true);
        let text = |path: &str| value.pointer(path).and_then(Value::as_str);
        let status = text("/response/status").unwrap_or_default();
        if kind == "response.failed" || status == "failed" {
            self.failure = Some(ProviderErrorBody::read(response.unwrap_or(value)).into_stream_error());
            return Vec::new();
        }
        let reason = text("/response/incomplete_details/reason").unwrap_or("max_output_tokens");
        let stop = match (kind == "response.incomplete" || status == "incomplete", reason) {
            (false, _) => StopReason::EndTurn,
            (true, "max_output_tokens") => StopReason::Length,
            (true, "content_filter") => StopReason::Refusal,
            (true, other) => StopReason::Other(other.to_owned()),
        };
        let output = response.and_then(|r| r.get("output")).and_then(Value::as_array);
        let output = output.map(Vec::as_slice).unwrap_or_default();
        let mut deltas = Vec::new();
        for (index, item) in (0..).zip(output) {
            self.name_unread_fields(item);
            if !self.items.contains_key(&index) {
                deltas.extend(self.add_whole_item(index, item));
            }
            self.report_difference(index, item);
        }
        if response.and_then(|response| response.get("error")).is_some_and(|error| !error.is_null()) {
            self.unread.add("response.error");
        }
        self.stop = Some(stop);
        deltas
    }

    /// Adds to `unread` the output items of a final event that arrives after the end of the reply, if they differ from
    /// the reply.
    fn report_late_output(&mut self, event: &Value) {
        let output = event.pointer("/response/output").and_then(Value::as_array);
        for (index, item) in (0..).zip(output.into_iter().flatten()) {
            if self.items.contains_key(&index) {
                self.report_difference(index, item);
            } else {
                self.unread.add(&format!("output[{index}]"));
            }
        }
    }

    /// Records the names of those fields and parts of a message or a call that the decoder does not read. Output items
    /// of other kinds are stored whole, so none of their fields is recorded.
    fn name_unread_fields(&mut self, item: &Value) {
        self.unread.add_unless_strings("item", item, &["type"]);
        match item.get("type").and_then(Value::as_str) {
            Some("message") => {
                self.unread.add_fields("message", item, &["type", "id", "role", "status", "content"]);
                for part in item.get("content").and_then(Value::as_array).into_iter().flatten() {
                    self.name_unread_part(part);
                }
            }
            Some("function_call") => {
                let known = ["type", "id", "call_id", "name", "arguments", "status"];
                self.unread.add_fields("function_call", item, &known);
                self.unread.add_unless_strings("function_call", item, &["id", "call_id", "name", "arguments"]);
            }
            Some(_) | None => {}
        }
    }

    /// Records the names of the fields of a content part that the decoder does not read. If the kind of the part is
    /// unknown, records the kind instead.
    fn name_unread_part(&mut self, part: &Value) {
        self.unread.add_unless_strings("content", part, &["type", "text", "refusal"]);
        match part.get("type").and_then(Value::as_str) {
            None | Some("output_text" | "text" | "refusal" | "summary_text" | "reasoning_text") => {
                self.unread.add_fields("content", part, &["type", "text", "refusal"]);
            }
            Some(kind) => self.unread.add(&format!("content.{kind}")),
        }
    }

    fn open_item(&mut self, value: &Value) -> Vec<Delta> {
        let (index, item) = (index(value), value.get("item").unwrap_or(&Value::Null));
        self.name_unread_fields(item);
        if self.items.contains_key(&index) {
            return Vec::new(); // a repeated start: keep the accumulated item
        }
        let open = OpenItem::start(item);
        let delta = match &open {
            OpenItem::Call { id, name, .. } => Some(Delta::ToolCallStarted { id: id.clone(), name: name.clone() }),
            OpenItem::Message(_) | OpenItem::Other { .. } => None,
        };
        self.items.insert(index, open);
        delta.into_iter().collect()
    }

    /// Handles a finished item. If nothing of the item was streamed before, returns the item's deltas.
    fn close_item(&mut self, value: &Value) -> Vec<Delta> {
        let (index, item) = (index(value), value.get("item").unwrap_or(&Value::Null));
        if !item.is_object() {
            return Vec::new();
        }
        self.name_unread_fields(item);
        if self.items.get(&index).is_none_or(OpenItem::is_only_started) {
            return self.add_whole_item(index, item);
        }
        self.refused |= is_refusal(item);
        self.report_difference(index, item);
        if let Some(OpenItem::Other { value, thinking }) = self.items.get_mut(&index) {
            *value = item.clone();
            let reported = displayed_reasoning(item);
            if !reported.is_empty() {
                *thinking = reported;
            }
        }
        Vec::new()
    }

    /// Adds an output item of the API to `unread` if the whole item differs from the pieces that were streamed before.
    /// The reply then consists of the pieces, because they have been displayed already.
    fn report_difference(&mut self, index: u64, item: &Value) {
        let streamed = self.items.get(&index);
        let differs = match (streamed, OpenItem::start(item)) {
            (Some(OpenItem::Message(streamed)), OpenItem::Message(whole)) => {
                !whole.is_empty()
                    && !streamed.values().flat_map(|s| s.chars()).eq(whole.values().flat_map(|s| s.chars()))
            }
            (
                Some(OpenItem::Call { id, name, arguments }),
                OpenItem::Call { id: whole_id, name: whole_name, arguments: whole },
            ) => *id != whole_id || *name != whole_name || (!whole.is_empty() && *arguments != whole),
            (Some(OpenItem::Message(_) | OpenItem::Call { .. }), _) => true,
            (Some(OpenItem::Other { .. }) | None, _) => false,
        };
        if differs {
            self.unread.add(&format!("output[{index}]"));
        }
    }

    /// Adds an item that arrived complete, and returns its content as deltas.
    fn add_whole_item(&mut self, index: u64, item: &Value) -> Vec<Delta> {
        self.refused |= is_refusal(item);
        let known = self.items.contains_key(&index);
        let open = OpenItem::start(item);
        let deltas = match &open {
            OpenItem::Message(parts) => parts.values().map(|text| Delta::Text(text.clone())).collect(),
            OpenItem::Call { id, name, arguments } => {
                let started = Delta::ToolCallStarted { id: id.clone(), name: name.clone() };
                let input = Delta::ToolCallInput { id: id.clone(), fragment: arguments.clone() };
                (!known).then_some(started).into_iter().chain((!arguments.is_empty()).then_some(input)).collect()
            }
            OpenItem::Other { thinking, .. } => thinking.values().map(|text| Delta::Thinking(text.clone())).collect(),
        };
        self.items.insert(index, open);
        deltas
    }

    fn append_delta_text(&mut self, value: &Value, refusal: bool) -> Option<Delta> {
        let more = value.get("delta").and_then(Value::as_str)?;
        self.refused |= refusal;
        let part = value.get("content_index").and_then(Value::as_u64).unwrap_or(0);
        self.append_text(index(value), part, more.to_owned())
    }

    fn append_text(&mut self, index: u64, part: u64, more: String) -> Option<Delta> {
        if more.is_empty() {
            return None;
        }
        match self.items.entry(index).or_insert_with(|| OpenItem::Message(BTreeMap::new())) {
            OpenItem::Message(parts) => parts.entry(part).or_default().push_str(&more),
            OpenItem::Call { .. } | OpenItem::Other { .. } => return None,
        }
        Some(Delta::Text(more))
    }

    fn append_thinking(&mut self, value: &Value) -> Option<Delta> {
        let more = value.get("delta").and_then(Value::as_str).filter(|text| !text.is_empty())?;
        let number = |key: &str| value.get(key).and_then(Value::as_u64);
        let part = number("summary_index").or_else(|| number("content_index")).unwrap_or(0);
        let fresh = || OpenItem::Other { value: Value::Null, thinking: BTreeMap::new() };
        match self.items.entry(index(value)).or_insert_with(fresh) {
            OpenItem::Other { thinking, .. } => thinking.entry(part).or_default().push_str(more),
            OpenItem::Message(_) | OpenItem::Call { .. } => return None,
        }
        Some(Delta::Thinking(more.to_owned()))
    }

    fn append_arguments(&mut self, value: &Value) -> Option<Delta> {
        let more = value.get("delta").and_then(Value::as_str).filter(|text| !text.is_empty())?;
        match self.items.get_mut(&index(value))? {
            OpenItem::Call { id, arguments, .. } => {
                arguments.push_str(more);
                Some(Delta::ToolCallInput { id: id.clone(), fragment: more.to_owned() })
            }
            OpenItem::Message(_) | OpenItem::Other { .. } => None,
        }
    }

    fn set_arguments(&mut self, value: &Value) {
        let whole = value.get("arguments").and_then(Value::as_str).unwrap_or_default();
        if let Some(OpenItem::Call { arguments, .. }) = self.items.get_mut(&index(value))
            && arguments.is_empty()
        {
            whole.clone_into(arguments);
        }
    }
}

impl OpenItem {
    fn start(item: &Value) -> Self {
        let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        match item.get("type").and_then(Value::as_str) {
            Some("message") => {
                let parts = item.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                let part_text = |part: &Value| {
                    let text = part.get("text").or_else(|| part.get("refusal")).and_then(Value::as_str)?;
                    (!text.is_empty()).then(|| text.to_owned())
                };
                Self::Message((0..).zip(parts).filter_map(|(n, part)| Some((n, part_text(part)?))).collect())
            }
            Some("function_call") => {
                let id = if text("call_id").is_empty() { text("id") } else { text("call_id") };
                Self::Call { id, name: text("name"), arguments: text("arguments") }
            }
            Some(_) | None => Self::Other { value: item.clone(), thinking: displayed_reasoning(item) },
        }
    }

    /// Returns true if no content of the item has arrived since its start.
    fn is_only_started(&self) -> bool {
        match self {
            Self::Message(parts) => parts.is_empty(),
            Self::Call { arguments, .. } => arguments.is_empty(),
            Self::Other { thinking, .. } => thinking.is_empty(),
        }
    }

    fn blocks(self) -> Vec<ContentBlock> {
        match self {
            Self::Message(parts) => parts.into_values().map(|text| ContentBlock::Text { text: text.into() }).collect(),
            Self::Call { id, name, arguments } => vec![ContentBlock::ToolCall(ToolCall::parse(id, name, &arguments))],
            Self::Other { value, thinking } => {
                let text = thinking.into_values().collect::<Vec<_>>().join("\n\n");
                let shown = (!text.is_empty()).then_some(ContentBlock::Thinking { text: text.into(), signature: None });
                let kept = value.is_object().then(|| ContentBlock::Other { wire: WIRE.to_owned(), value });
                shown.into_iter().chain(kept).collect()
            }
        }
    }
}

fn index(value: &Value) -> u64 {
    value.get("output_index").and_then(Value::as_u64).unwrap_or(0)
}

fn is_refusal(item: &Value) -> bool {
    let parts = item.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    parts.iter().any(|part| part.get("type").and_then(Value::as_str) == Some("refusal"))
}

/// Returns the displayed texts of a reasoning item by their index: its summary, or its text if there is no summary.
/// Empty for any other item.
fn displayed_reasoning(item: &Value) -> BTreeMap<u64, String> {
    if item.get("type").and_then(Value::as_str) != Some(REASONING) {
        return BTreeMap::new();
    }
    let texts = |key: &str| -> BTreeMap<u64, String> {
        let parts = item.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
        let texts = (0..).zip(parts).filter_map(|(n, part)| Some((n, text(part)?)));
        texts.filter(|(_, text)| !text.is_empty()).collect()
    };
    let summary = texts("summary");
    if summary.is_empty() { texts("content") } else { summary }
}

/// Converts the token counts of the wire to a usage; `None` if the counts are invalid.
fn usage(reported: &Value) -> Option<Usage> {
    let counts = PromptCounts {
        prompt: read_count(reported, "/input_tokens")??,
        cache_read: read_count(reported, "/input_tokens_details/cached_tokens")?.unwrap_or(0),
        cache_write: read_count(reported, "/input_tokens_details/cache_write_tokens")?.unwrap_or(0),
        output: read_count(reported, "/output_tokens")??,
        reasoning: read_count(reported, "/output_tokens_details/reasoning_tokens")?.unwrap_or(0),
        total: read_count(reported, "/total_tokens")?,
    };
    counts.usage()
}
