//! The `anthropic` wire: Anthropic's Messages API. This file maps requests; `decoder.rs` reads the streams.

mod decoder;

use rye_compiler::wire_tool::{WireTool, convert_tool};
use serde_json::{Map, Value, json};

pub use decoder::AnthropicDecoder;

use super::Provider;
use super::http::Endpoint;
use super::settings::ProviderSettings;
use super::wire::{NO_OUTPUT, is_blank, normalize_turns, plain_name, run, sampling};
use crate::BoxFuture;
use crate::exchange::{CallError, Delta, Reply, Request, ToolDefinition};
use crate::image::ImageRef;
use crate::message::{ContentBlock, ProviderMessage};

/// Name of the wire on blocks that only this wire understands.
pub const WIRE: &str = "anthropic";

const VERSION: &str = "2023-06-01";

/// A connection to a server that speaks this wire.
#[derive(Debug)]
pub struct Anthropic {
    endpoint: Endpoint,
}

impl Anthropic {
    /// Creates a connection.
    ///
    /// # Errors
    /// The errors of [`Endpoint::new`].
    pub fn connect(settings: &ProviderSettings) -> Result<Self, CallError> {
        let endpoint = Endpoint::new(settings, "/v1/messages", &[("anthropic-version", VERSION)])?;
        Ok(Self { endpoint })
    }
}

impl Provider for Anthropic {
    fn call<'a>(
        &'a self,
        request: &'a Request,
        live: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        let body = body(request).to_string().into_bytes();
        Box::pin(run(&self.endpoint, body, AnthropicDecoder::default(), live))
    }
}

/// Returns the body of a request; depends on `request` alone. Cache breakpoints follow the palette, the system prompt,
/// and the first message if it is constant (`engine.md` 6).
pub fn body(request: &Request) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), request.model.as_str().into());
    body.insert("max_tokens".to_owned(), request.max_output.into());
    body.insert("stream".to_owned(), true.into());
    body.extend(sampling(&request.sampling, "top_p"));
    if !is_blank(&request.system) {
        body.insert("system".to_owned(), json!([with_breakpoint(json!({"type": "text", "text": request.system}))]));
    }
    if !request.tools.is_empty() {
        body.insert("tools".to_owned(), tools(&request.tools));
    }
    body.insert("messages".to_owned(), messages(request));
    Value::Object(body)
}

fn tools(definitions: &[ToolDefinition]) -> Value {
    let tool = |tool: &ToolDefinition| {
        let WireTool { description, parameters } = convert_tool(WIRE, &tool.description, &tool.schema);
        json!({"name": tool.name, "description": description, "input_schema": parameters})
    };
    let mut tools: Vec<Value> = definitions.iter().map(tool).collect();
    if let Some(last) = tools.pop() {
        tools.push(with_breakpoint(last));
    }
    Value::Array(tools)
}

/// A message under construction: turns of the same role are joined, because the API requires alternating roles.
struct MessageDraft {
    role: &'static str,
    /// Results of tools; the API requires them first.
    results: Vec<Value>,
    content: Vec<Value>,
}

fn messages(request: &Request) -> Value {
    let mut drafts: Vec<MessageDraft> = Vec::new();
    for (index, turn) in normalize_turns(&request.turns).iter().enumerate() {
        let mut draft = draft(turn);
        if index == 0
            && request.first_turn_constant
            && draft.role == "user"
            && let Some(last) = draft.content.pop()
        {
            draft.content.push(with_breakpoint(last));
        }
        if draft.results.is_empty() && draft.content.is_empty() {
            continue;
        }
        match drafts.last_mut() {
            Some(last) if last.role == draft.role => {
                last.results.append(&mut draft.results);
                last.content.append(&mut draft.content);
            }
            Some(_) | None => drafts.push(draft),
        }
    }
    let message = |draft: MessageDraft| {
        let content: Vec<Value> = draft.results.into_iter().chain(draft.content).collect();
        json!({"role": draft.role, "content": content})
    };
    drafts.into_iter().map(message).collect()
}

fn draft(turn: &ProviderMessage) -> MessageDraft {
    match turn {
        ProviderMessage::User { content } => {
            MessageDraft { role: "user", results: Vec::new(), content: content.iter().filter_map(user_block).collect() }
        }
        ProviderMessage::Assistant { content } => MessageDraft {
            role: "assistant",
            results: Vec::new(),
            content: content.iter().filter_map(model_block).collect(),
        },
        ProviderMessage::ToolResult { call_id, name: _, content, is_error } => {
            let text = if is_blank(content) { NO_OUTPUT } else { content };
            let mut result = json!({"type": "tool_result", "tool_use_id": plain_name(call_id), "content": text});
            if *is_error && let Some(object) = result.as_object_mut() {
                object.insert("is_error".to_owned(), true.into());
            }
            MessageDraft { role: "user", results: vec![result], content: Vec::new() }
        }
    }
}

/// Maps a user's block; `None` for blocks that a user message cannot contain.
fn user_block(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Text { text } => text_block(text),
        ContentBlock::Image(ImageRef { media_type, data, .. }) => {
            Some(json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}))
        }
        ContentBlock::Thinking { .. } | ContentBlock::ToolCall(_) | ContentBlock::Other { .. } => None,
    }
}

/// Maps the model's block; `None` for blocks that the API refuses: blank text, thinking without a signature, and blocks
/// of another wire.
fn model_block(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Text { text } => text_block(text),
        ContentBlock::Thinking { text, signature } => {
            let signature = signature.as_deref().filter(|signature| !signature.is_empty())?;
            Some(json!({"type": "thinking", "thinking": text, "signature": signature}))
        }
        ContentBlock::ToolCall(call) => {
            let (id, name) = (plain_name(&call.id), plain_name(&call.name));
            Some(json!({"type": "tool_use", "id": id, "name": name, "input": call.input}))
        }
        ContentBlock::Other { wire, value } => (wire == WIRE).then(|| value.clone()),
        ContentBlock::Image { .. } => None,
    }
}

fn text_block(text: &str) -> Option<Value> {
    (!is_blank(text)).then(|| json!({"type": "text", "text": text}))
}

fn with_breakpoint(mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.insert("cache_control".to_owned(), json!({"type": "ephemeral"}));
    }
    value
}

#[cfg(test)]
mod tests;
