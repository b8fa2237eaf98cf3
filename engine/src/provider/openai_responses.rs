//! The `openai-responses` wire: OpenAI's Responses API, used without server state (`store: false`). This file builds
//! the requests, and `decoder.rs` parses the streams.
//!
//! Reasoning arrives as encrypted items, which are stored unchanged and sent back at their place, so that the model can
//! continue its reasoning.

mod decoder;

use rye_compiler::wire_tool::{WireTool, convert_tool};
use serde_json::{Map, Value, json};

pub use decoder::ResponsesDecoder;

use super::http::Endpoint;
use super::settings::ProviderSettings;
use super::wire::{
    EncodedGroup, NO_OUTPUT, TOOLS_FIELD, encode_body, encode_items, encode_tools, is_blank, normalize_turns,
    plain_name, run, sampling,
};
use super::{CallProgress, Provider};
use crate::BoxFuture;
use crate::exchange::{CallError, Delta, Reply, Request, ToolDefinition};
use crate::image::ImageRef;
use crate::message::{ContentBlock, ProviderMessage, WireEncoding};

/// The name of this wire format, which marks items that only this wire format understands.
pub(crate) const WIRE: &str = "openai-responses";

/// A connection to a server that speaks the wire format `openai-responses`.
#[derive(Debug)]
pub struct OpenaiResponses {
    endpoint: Endpoint,
    encrypted_reasoning: bool,
}

impl OpenaiResponses {
    /// Creates a connection.
    ///
    /// # Errors
    /// The errors of [`Endpoint::new`].
    pub fn connect(settings: &ProviderSettings) -> Result<Self, CallError> {
        let endpoint = Endpoint::new(settings, "/responses", &[])?;
        Ok(Self { endpoint, encrypted_reasoning: settings.encrypted_reasoning })
    }
}

impl Provider for OpenaiResponses {
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
        let body = encode(request, self.encrypted_reasoning);
        Box::pin(run(&self.endpoint, body, ResponsesDecoder::default(), live, progress))
    }
}

/// Returns the body of a request. Equal arguments give equal bytes. `encrypted_reasoning` requests encrypted reasoning
/// items, which models without reasoning refuse.
pub fn encode(request: &Request, encrypted_reasoning: bool) -> Vec<u8> {
    let mut body = Map::new();
    body.insert("model".to_owned(), request.model.as_str().into());
    body.insert("max_output_tokens".to_owned(), request.max_output.into());
    body.extend(sampling(&request.sampling, "top_p"));
    body.insert("stream".to_owned(), true.into());
    body.insert("store".to_owned(), false.into());
    if encrypted_reasoning {
        body.insert("include".to_owned(), json!(["reasoning.encrypted_content"]));
    }
    if !is_blank(&request.system) {
        body.insert("instructions".to_owned(), (*request.system).into());
    }
    body.insert(TURNS_FIELD.to_owned(), Value::Null);
    let tools = encode_tools(WIRE, &request.tools, |tools| tools.iter().map(tool).collect());
    if tools.is_some() {
        body.insert(TOOLS_FIELD.to_owned(), Value::Null);
    }
    let encode = |turn: ProviderMessage<'_>| encode_items(&items(turn));
    let turns = normalize_turns(&request.turns);
    let items = turns.iter().map(|turn| turn.encoded(WireEncoding::OpenaiResponses, encode)).collect();
    encode_body(&body, tools.as_ref(), TURNS_FIELD, &[EncodedGroup::of_entries(items)])
}

/// The field of the body that contains the conversation.
const TURNS_FIELD: &str = "input";

fn tool(tool: &ToolDefinition) -> Value {
    let WireTool { description, parameters } = convert_tool(WIRE, &tool.description, &tool.schema);
    json!({
        "type": "function",
        "name": tool.name,
        "description": description,
        "parameters": parameters,
        // Strict mode would require every property, even if the author's schema declares it as optional.
        "strict": false,
    })
}

fn items(turn: ProviderMessage<'_>) -> Vec<Value> {
    match turn {
        ProviderMessage::User { content } => {
            let parts: Vec<Value> = content.iter().filter_map(part).collect();
            if parts.is_empty() { vec![] } else { vec![json!({"type": "message", "role": "user", "content": parts})] }
        }
        ProviderMessage::Assistant { content } => assistant(content),
        ProviderMessage::ToolResult { call_id, name: _, content, is_error } => {
            let text = if is_blank(content) { NO_OUTPUT } else { content };
            // The wire has no field for a failed call, so the text states the failure.
            let text = if is_error { format!("Error: {text}") } else { text.to_owned() };
            vec![json!({"type": "function_call_output", "call_id": plain_name(call_id), "output": text})]
        }
    }
}

fn part(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Text { text } => (!is_blank(text)).then(|| json!({"type": "input_text", "text": text})),
        ContentBlock::Image(ImageRef { media_type, data, .. }) => {
            let url = format!("data:{media_type};base64,{data}");
            Some(json!({"type": "input_image", "image_url": url, "detail": "auto"}))
        }
        ContentBlock::Thinking { .. } | ContentBlock::ToolCall(_) | ContentBlock::Other { .. } => None,
    }
}

/// Converts the blocks of a reply to items of the API. Drops reasoning items at the end of the reply, because the
/// server refuses a reasoning item that no other item follows.
fn assistant(content: &[ContentBlock]) -> Vec<Value> {
    let mut items: Vec<Value> = content.iter().filter_map(item).collect();
    while items.last().is_some_and(is_reasoning) {
        items.pop();
    }
    items
}

fn item(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Text { text } => {
            (!is_blank(text)).then(|| json!({"type": "message", "role": "assistant", "content": text}))
        }
        ContentBlock::ToolCall(call) => Some(json!({
            "type": "function_call",
            "call_id": plain_name(&call.id),
            "name": plain_name(&call.name),
            "arguments": call.input.to_string(),
        })),
        ContentBlock::Other { wire, value } => (wire == WIRE && can_return(value)).then(|| value.clone()),
        // A thinking block is the displayed summary of a reasoning item. It is not sent: the encrypted item is a
        // separate block.
        ContentBlock::Thinking { .. } | ContentBlock::Image { .. } => None,
    }
}

/// Returns true if an item of the API can be sent back. A reasoning item without encrypted content cannot be sent back,
/// because it only refers to data on the server, and `store: false` in the requests prevents the server from storing
/// data.
fn can_return(item: &Value) -> bool {
    !is_reasoning(item) || item.get("encrypted_content").is_some_and(Value::is_string)
}

fn is_reasoning(item: &Value) -> bool {
    item.get("type").and_then(Value::as_str) == Some(REASONING)
}

/// The value of `type` that marks a reasoning item of the API.
const REASONING: &str = "reasoning";

#[cfg(test)]
mod tests;
