//! The wire format `anthropic`: Anthropic's Messages API. This file builds the requests, and `decoder.rs` parses the
//! streams.

mod decoder;

use rye_compiler::wire_tool::{WireTool, convert_tool};
use serde_json::{Map, Value, json};

pub use decoder::AnthropicDecoder;

use super::http::Endpoint;
use super::settings::ProviderSettings;
use super::wire::{
    EncodedGroup, EncodedItems, NO_OUTPUT, TOOLS_FIELD, encode_body, encode_items, encode_tools, is_blank,
    normalize_turns, plain_name, run, sampling,
};
use super::{CallProgress, Provider};
use crate::BoxFuture;
use crate::exchange::{CallError, Delta, Reply, Request, ToolDefinition};
use crate::image::ImageRef;
use crate::message::{ContentBlock, ProviderMessage, WireEncoding};

/// The name of this wire format, which marks content blocks that only this wire format understands.
pub(crate) const WIRE: &str = "anthropic";

const VERSION: &str = "2023-06-01";

/// A connection to a server that speaks the `anthropic` wire.
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
        Box::pin(async move { self.call_with_progress(request, live, &CallProgress::default()).await })
    }

    fn call_with_progress<'a>(
        &'a self,
        request: &'a Request,
        live: &'a (dyn Fn(Delta) + Send + Sync),
        progress: &'a CallProgress,
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        let body = encode(request);
        Box::pin(run(&self.endpoint, body, AnthropicDecoder::default(), live, progress))
    }
}

/// Returns the body of a request. The result depends on `request` alone. Cache breakpoints follow the palette, the
/// system prompt, and the first message if it is constant (`engine.md` 6).
pub fn encode(request: &Request) -> Vec<u8> {
    let mut body = Map::new();
    body.insert("model".to_owned(), request.model.as_str().into());
    body.insert("max_tokens".to_owned(), request.max_output.into());
    body.insert("stream".to_owned(), true.into());
    body.extend(sampling(&request.sampling, "top_p"));
    if !is_blank(&request.system) {
        body.insert("system".to_owned(), json!([with_breakpoint(json!({"type": "text", "text": request.system}))]));
    }
    let tools = encode_tools(WIRE, &request.tools, convert_tools);
    if tools.is_some() {
        body.insert(TOOLS_FIELD.to_owned(), Value::Null);
    }
    body.insert(TURNS_FIELD.to_owned(), Value::Null);
    encode_body(&body, tools.as_ref(), TURNS_FIELD, &messages(request))
}

/// The field of the body that contains the conversation.
const TURNS_FIELD: &str = "messages";

fn convert_tools(definitions: &[ToolDefinition]) -> Value {
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

/// A message under construction. Adjacent messages of the same role are joined to one message, because the API requires
/// alternating roles.
struct MessageDraft {
    role: Role,
    /// Results of tools. The API requires these blocks before all other blocks of the message.
    results: Vec<EncodedItems>,
    content: Vec<EncodedItems>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    User,
    Assistant,
}

fn messages(request: &Request) -> Vec<EncodedGroup> {
    let mut drafts: Vec<MessageDraft> = Vec::new();
    for (index, turn) in normalize_turns(&request.turns).iter().enumerate() {
        let (role, is_result) = match turn.for_provider() {
            Some(ProviderMessage::User { .. }) | None => (Role::User, false),
            Some(ProviderMessage::Assistant { .. }) => (Role::Assistant, false),
            Some(ProviderMessage::ToolResult { .. }) => (Role::User, true),
        };
        let marked = index == 0 && request.first_turn_constant && role == Role::User && !is_result;
        let items = if marked {
            turn.encoded(WireEncoding::AnthropicWithBreakpoint, |turn| {
                let mut blocks = blocks(turn);
                if let Some(last) = blocks.pop() {
                    blocks.push(with_breakpoint(last));
                }
                encode_items(&blocks)
            })
        } else {
            turn.encoded(WireEncoding::Anthropic, |turn| encode_items(&blocks(turn)))
        };
        if items.is_empty() {
            continue;
        }
        let (results, content) = if is_result { (vec![items], Vec::new()) } else { (Vec::new(), vec![items]) };
        match drafts.last_mut() {
            Some(last) if last.role == role => {
                last.results.extend(results);
                last.content.extend(content);
            }
            Some(_) | None => drafts.push(MessageDraft { role, results, content }),
        }
    }
    let group = |draft: MessageDraft| {
        let front = match draft.role {
            Role::User => r#"{"role":"user","content":["#,
            Role::Assistant => r#"{"role":"assistant","content":["#,
        };
        let items = draft.results.into_iter().chain(draft.content).collect();
        EncodedGroup { front, items, back: "]}" }
    };
    drafts.into_iter().map(group).collect()
}

fn blocks(turn: ProviderMessage<'_>) -> Vec<Value> {
    match turn {
        ProviderMessage::User { content } => content.iter().filter_map(user_block).collect(),
        ProviderMessage::Assistant { content } => content.iter().filter_map(model_block).collect(),
        ProviderMessage::ToolResult { call_id, name: _, content, is_error } => {
            let text = if is_blank(content) { NO_OUTPUT } else { content };
            let mut result = json!({"type": "tool_result", "tool_use_id": plain_name(call_id), "content": text});
            if is_error && let Some(object) = result.as_object_mut() {
                object.insert("is_error".to_owned(), true.into());
            }
            vec![result]
        }
    }
}

/// Maps a content block of a user message to the wire format; `None` for a block that a user message cannot contain.
fn user_block(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Text { text } => text_block(text),
        ContentBlock::Image(ImageRef { media_type, data, .. }) => {
            Some(json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}))
        }
        ContentBlock::Thinking { .. } | ContentBlock::ToolCall(_) | ContentBlock::Other { .. } => None,
    }
}

/// Converts a block of a reply to the form of the API. `None` for blocks that the API refuses: blank text, thinking
/// without a signature, and blocks of another wire.
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
