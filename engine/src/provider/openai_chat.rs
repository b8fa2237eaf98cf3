//! The wire format `openai-chat`: Chat Completions of OpenAI and compatible servers. This file builds the requests, and
//! `decoder.rs` parses the streams.

mod decoder;

use rye_compiler::wire_tool::{WireTool, convert_tool};
use serde_json::{Map, Value, json};

pub use decoder::ChatDecoder;

use super::http::Endpoint;
use super::settings::{MaxTokensField, ProviderSettings};
use super::wire::{
    EncodedGroup, NO_OUTPUT, TOOLS_FIELD, encode_body, encode_items, encode_tools, is_blank, normalize_turns,
    plain_name, run, sampling, shortened_name,
};
use super::{CallProgress, Provider};
use crate::BoxFuture;
use crate::exchange::{CallError, Delta, Reply, Request, ToolDefinition};
use crate::image::ImageRef;
use crate::message::{ContentBlock, ProviderMessage, ToolCall, WireEncoding, calls_in};

/// The name of this wire, which marks content blocks that only this wire understands.
pub(crate) const WIRE: &str = "openai-chat";

/// Maximum size of the id of a call, in bytes.
const MAX_CALL_ID_BYTES: usize = 40;

/// A connection to a server that speaks the `openai-chat` wire.
#[derive(Debug)]
pub struct OpenaiChat {
    endpoint: Endpoint,
    max_tokens_field: MaxTokensField,
}

impl OpenaiChat {
    /// Creates a connection.
    ///
    /// # Errors
    /// The errors of [`Endpoint::new`].
    pub fn connect(settings: &ProviderSettings) -> Result<Self, CallError> {
        let endpoint = Endpoint::new(settings, "/chat/completions", &[])?;
        Ok(Self { endpoint, max_tokens_field: settings.max_tokens_field })
    }
}

impl Provider for OpenaiChat {
    fn call<'a>(
        &'a self,
        request: &'a Request,
        live: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move { self.call_with_progress(request, live, &CallProgress::default()).await })
    }

    fn call_with_progress<'a>(
        &'a self,
        request: &'a Request,
        live: &'a (dyn Fn(Delta) + Send + Sync),
        progress: &'a CallProgress,
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        let body = encode(request, self.max_tokens_field);
        Box::pin(run(&self.endpoint, body, ChatDecoder::default(), live, progress))
    }
}

/// Returns the body of a request. Equal arguments give equal bytes.
pub fn encode(request: &Request, max_tokens_field: MaxTokensField) -> Vec<u8> {
    let mut body = Map::new();
    body.insert("model".to_owned(), request.model.as_str().into());
    body.insert(max_tokens_field.name().to_owned(), request.max_output.into());
    body.extend(sampling(&request.sampling, "top_p"));
    body.insert("stream".to_owned(), true.into());
    body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    body.insert(TURNS_FIELD.to_owned(), Value::Null);
    let tools = encode_tools(WIRE, &request.tools, |tools| tools.iter().map(tool).collect());
    if tools.is_some() {
        body.insert(TOOLS_FIELD.to_owned(), Value::Null);
    }
    let mut messages = Vec::with_capacity(request.turns.len() + 1);
    if !is_blank(&request.system) {
        messages.push(encode_items(&[json!({"role": "system", "content": request.system})]).into());
    }
    let encode = |turn: ProviderMessage<'_>| encode_items(&message(turn).into_iter().collect::<Vec<_>>());
    let turns = normalize_turns(&request.turns);
    messages.extend(turns.iter().map(|turn| turn.encoded(WireEncoding::OpenaiChat, encode)));
    encode_body(&body, tools.as_ref(), TURNS_FIELD, &[EncodedGroup::of_entries(messages)])
}

/// The field of the body that contains the conversation.
const TURNS_FIELD: &str = "messages";

fn tool(tool: &ToolDefinition) -> Value {
    let WireTool { description, parameters } = convert_tool(WIRE, &tool.description, &tool.schema);
    json!({
        "type": "function",
        "function": {"name": tool.name, "description": description, "parameters": parameters},
    })
}

fn message(turn: ProviderMessage<'_>) -> Option<Value> {
    match turn {
        ProviderMessage::User { content } => user(content),
        ProviderMessage::Assistant { content } => assistant(content),
        ProviderMessage::ToolResult { call_id, name: _, content, is_error } => {
            let text = if is_blank(content) { NO_OUTPUT } else { content };
            // The wire has no field for a failed call, so the text states the failure.
            let text = if is_error { format!("Error: {text}") } else { text.to_owned() };
            Some(json!({"role": "tool", "tool_call_id": call_id_of(call_id), "content": text}))
        }
    }
}

/// Converts user content to the form of the API. A single text becomes a string, which every server accepts. Any other
/// content becomes a list of parts. `None` if no part can be sent.
fn user(content: &[ContentBlock]) -> Option<Value> {
    let texts: Vec<&str> = content.iter().filter_map(text_of).collect();
    let images = content.iter().any(|block| matches!(block, ContentBlock::Image { .. }));
    if let ([text], false) = (texts.as_slice(), images) {
        return Some(json!({"role": "user", "content": text}));
    }
    let parts: Vec<Value> = content.iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| json!({"role": "user", "content": parts}))
}

fn part(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Text { .. } => text_of(block).map(|text| json!({"type": "text", "text": text})),
        ContentBlock::Image(ImageRef { media_type, data, .. }) => {
            Some(json!({"type": "image_url", "image_url": {"url": format!("data:{media_type};base64,{data}")}}))
        }
        ContentBlock::Thinking { .. } | ContentBlock::ToolCall(_) | ContentBlock::Other { .. } => None,
    }
}

/// Converts a reply to a message of the wire. The wire has no field for thinking and refuses unknown fields, so
/// thinking and the blocks of other wires are dropped. `None` if nothing remains.
fn assistant(content: &[ContentBlock]) -> Option<Value> {
    let text: String = content.iter().filter_map(text_of).collect();
    let calls: Vec<Value> = calls_in(content).map(call).collect();
    if calls.is_empty() {
        return (!text.is_empty()).then(|| json!({"role": "assistant", "content": text}));
    }
    let text = if text.is_empty() { Value::Null } else { Value::String(text) };
    Some(json!({"role": "assistant", "content": text, "tool_calls": calls}))
}

/// Returns the id of a call as the API accepts it: at most 40 bytes. Equal ids stay equal, so a call and its result
/// still have the same id.
fn call_id_of(id: &str) -> String {
    shortened_name(id, MAX_CALL_ID_BYTES)
}

fn call(call: &ToolCall) -> Value {
    json!({
        "id": call_id_of(&call.id),
        "type": "function",
        "function": {"name": plain_name(&call.name), "arguments": call.input.to_string()},
    })
}

fn text_of(block: &ContentBlock) -> Option<&str> {
    match block {
        ContentBlock::Text { text } => (!is_blank(text)).then_some(text),
        ContentBlock::Image { .. }
        | ContentBlock::Thinking { .. }
        | ContentBlock::ToolCall(_)
        | ContentBlock::Other { .. } => None,
    }
}

#[cfg(test)]
mod tests;
