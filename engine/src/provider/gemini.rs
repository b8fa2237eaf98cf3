//! The `gemini` wire: Google's `generateContent`, streamed. This file builds the requests, and `decoder.rs` parses the
//! streams.

mod decoder;

use rye_compiler::wire_tool::{WireTool, convert_tool};
use serde_json::{Map, Value, json};

pub use decoder::GeminiDecoder;

use super::http::Endpoint;
use super::settings::ProviderSettings;
use super::wire::{
    EncodedGroup, EncodedItems, NO_OUTPUT, TOOLS_FIELD, encode_body, encode_items, encode_tools, is_blank,
    normalize_turns, plain_name, run, sampling,
};
use super::{CallProgress, Provider};
use crate::BoxFuture;
use crate::exchange::{CallError, Delta, FailedStage, Reply, Request, ToolDefinition};
use crate::image::ImageRef;
use crate::message::{ContentBlock, ProviderMessage, SharedMessage, ToolCall, WireEncoding};

/// The name of this wire format, which marks parts that only this wire format understands.
pub(crate) const WIRE: &str = "gemini";

/// Prefix of the ids that this module generates for calls without an id. These ids are never sent to the server.
const GENERATED_ID_PREFIX: &str = "rye_";
/// Name of the field that holds a part's encrypted thought signature.
const SIGNATURE_FIELD: &str = "thoughtSignature";
/// The documented signature for calls that another model made. Models from Gemini 3 refuse a call without a signature.
const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

/// A connection to a server that speaks the wire format `gemini`.
#[derive(Debug)]
pub struct Gemini {
    endpoint: Endpoint,
}

impl Gemini {
    /// Creates a connection.
    ///
    /// # Errors
    /// The errors of [`Endpoint::new`].
    pub fn connect(settings: &ProviderSettings) -> Result<Self, CallError> {
        Ok(Self { endpoint: Endpoint::new(settings, "", &[])? })
    }
}

impl Provider for Gemini {
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
        Box::pin(async move {
            let endpoint =
                model_path(&request.model).and_then(|path| self.endpoint.with_path(&path, &[("alt", "sse")]));
            let Some(endpoint) = endpoint else {
                let message = format!("`{}` is not a valid model id: it cannot be part of a URL", request.model);
                return Err(CallError::new(FailedStage::Setup, message));
            };
            run(&endpoint, body, GeminiDecoder::default(), live, progress).await
        })
    }
}

/// Returns the URL path for a model; `None` for an id that would change the rest of the path.
fn model_path(model: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let sound = |segment: &str| !segment.is_empty() && segment.chars().any(|c| c != '.');
    let fine = model.chars().all(plain) && model.split('/').all(sound);
    // `models/…` and `tunedModels/…` are full names already.
    let name = if model.contains('/') { model.to_owned() } else { format!("models/{model}") };
    fine.then(|| format!("/v1beta/{name}:streamGenerateContent"))
}

/// Returns the body of a request, which depends on `request` alone. The body does not name the model, because the URL
/// does.
pub fn encode(request: &Request) -> Vec<u8> {
    let mut body = Map::new();
    if !is_blank(&request.system) {
        body.insert("systemInstruction".to_owned(), json!({"parts": [{"text": request.system}]}));
    }
    body.insert(TURNS_FIELD.to_owned(), Value::Null);
    let tools = encode_tools(
        WIRE,
        &request.tools,
        |tools| json!([{"functionDeclarations": tools.iter().map(declaration).collect::<Vec<_>>()}]),
    );
    if tools.is_some() {
        body.insert(TOOLS_FIELD.to_owned(), Value::Null);
    }
    let mut generation = Map::new();
    generation.insert("maxOutputTokens".to_owned(), request.max_output.into());
    generation.extend(sampling(&request.sampling, "topP"));
    body.insert("generationConfig".to_owned(), Value::Object(generation));
    let contents = contents(&normalize_turns(&request.turns), requires_signatures(&request.model));
    encode_body(&body, tools.as_ref(), TURNS_FIELD, &contents)
}

/// The field of the body that contains the conversation.
const TURNS_FIELD: &str = "contents";

fn declaration(tool: &ToolDefinition) -> Value {
    let WireTool { description, parameters } = convert_tool(WIRE, &tool.description, &tool.schema);
    let mut declaration = Map::new();
    declaration.insert("name".to_owned(), (*tool.name).into());
    declaration.insert("description".to_owned(), description.into());
    if let Some(parameters) = parameters {
        declaration.insert("parametersJsonSchema".to_owned(), parameters.into_owned());
    }
    Value::Object(declaration)
}

/// The kind of a `content` in a request. The API requires the results of calls to be in a separate `content`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContentKind {
    User,
    Model,
    Results,
}

impl ContentKind {
    /// Returns the JSON of the `content` up to the start of its list of parts.
    fn front(self) -> &'static str {
        match self {
            Self::User | Self::Results => r#"{"role":"user","parts":["#,
            Self::Model => r#"{"role":"model","parts":["#,
        }
    }
}

/// Returns true if the model requires thought signatures, as models from Gemini 3 do.
fn requires_signatures(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    !["gemini-1", "gemini-2", "gemma"].iter().any(|older| name.starts_with(older))
}

fn contents(turns: &[SharedMessage], signed: bool) -> Vec<EncodedGroup> {
    let encoding = if signed { WireEncoding::GeminiSigned } else { WireEncoding::Gemini };
    let mut drafts: Vec<(ContentKind, Vec<EncodedItems>)> = Vec::new();
    for turn in turns {
        let kind = match turn.for_provider() {
            Some(ProviderMessage::User { .. }) | None => ContentKind::User,
            Some(ProviderMessage::Assistant { .. }) => ContentKind::Model,
            Some(ProviderMessage::ToolResult { .. }) => ContentKind::Results,
        };
        let items = turn.encoded(encoding, |turn| encode_items(&parts(turn, signed)));
        match drafts.last_mut() {
            _ if items.is_empty() => {}
            Some((last, before)) if *last == kind => before.push(items),
            Some(_) | None => drafts.push((kind, vec![items])),
        }
    }
    drafts.into_iter().map(|(kind, items)| EncodedGroup { front: kind.front(), items, back: "]}" }).collect()
}

fn parts(turn: ProviderMessage<'_>, signed: bool) -> Vec<Value> {
    match turn {
        ProviderMessage::User { content } => content.iter().filter_map(user_part).collect(),
        ProviderMessage::Assistant { content } => {
            let mut parts = model_parts(content);
            if signed {
                sign_foreign_call(&mut parts);
            }
            parts
        }
        ProviderMessage::ToolResult { call_id, name, content, is_error } => {
            vec![response(call_id, name, content, is_error)]
        }
    }
}

fn user_part(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Text { text } => (!is_blank(text)).then(|| json!({"text": text})),
        ContentBlock::Image(ImageRef { media_type, data, .. }) => {
            Some(json!({"inlineData": {"mimeType": media_type, "data": data}}))
        }
        ContentBlock::Thinking { .. } | ContentBlock::ToolCall(_) | ContentBlock::Other { .. } => None,
    }
}

/// Maps a reply to parts. The signature of a block that contains only a signature is added to the part of the preceding
/// block. If that block has no part, the signature becomes an empty text part.
fn model_parts(content: &[ContentBlock]) -> Vec<Value> {
    let mut parts: Vec<Value> = Vec::new();
    let mut last_was_sent = false;
    for block in content {
        match block {
            ContentBlock::Text { text } => {
                last_was_sent = !text.is_empty();
                if last_was_sent {
                    parts.push(json!({"text": text}));
                }
            }
            ContentBlock::ToolCall(call) => {
                parts.push(call_part(call));
                last_was_sent = true;
            }
            // The displayed text of a thought is not sent back.
            ContentBlock::Thinking { .. } | ContentBlock::Image { .. } => last_was_sent = false,
            ContentBlock::Other { wire, value } if wire == WIRE => {
                match (lone_signature(value), parts.last_mut().and_then(Value::as_object_mut)) {
                    (Some(seal), Some(part)) if last_was_sent => {
                        part.insert(SIGNATURE_FIELD.to_owned(), seal.clone());
                    }
                    (Some(seal), _) => parts.push(json!({"text": "", SIGNATURE_FIELD: seal})),
                    (None, _) => parts.push(value.clone()),
                }
                last_was_sent = true;
            }
            ContentBlock::Other { .. } => {}
        }
    }
    // Blank text is only sent if it has a signature.
    parts.retain(|part| {
        let blank = part.get("text").and_then(Value::as_str).is_some_and(is_blank);
        !blank || part.get(SIGNATURE_FIELD).is_some()
    });
    parts
}

/// Adds [`FOREIGN_SIGNATURE`] to the first call of a reply in which no call has a signature, because another model
/// wrote the reply.
fn sign_foreign_call(parts: &mut [Value]) {
    if parts.iter().any(|part| part.get(SIGNATURE_FIELD).is_some()) {
        return;
    }
    let call = parts.iter_mut().find(|part| part.get("functionCall").is_some());
    if let Some(part) = call.and_then(Value::as_object_mut) {
        part.insert(SIGNATURE_FIELD.to_owned(), FOREIGN_SIGNATURE.into());
    }
}

/// Returns the signature of a block that contains only a signature; `None` for any other block.
fn lone_signature(value: &Value) -> Option<&Value> {
    let map = value.as_object().filter(|map| map.len() == 1)?;
    map.get(SIGNATURE_FIELD)
}

fn call_part(call: &ToolCall) -> Value {
    let mut function = Map::new();
    if !call.id.starts_with(GENERATED_ID_PREFIX) {
        function.insert("id".to_owned(), plain_name(&call.id).into());
    }
    function.insert("name".to_owned(), plain_name(&call.name).into());
    function.insert("args".to_owned(), call.input.clone());
    json!({"functionCall": function})
}

fn response(call_id: &str, name: &str, content: &str, is_error: bool) -> Value {
    let text = if is_blank(content) { NO_OUTPUT } else { content };
    let key = if is_error { "error" } else { "output" };
    let mut response = Map::new();
    if !call_id.starts_with(GENERATED_ID_PREFIX) {
        response.insert("id".to_owned(), plain_name(call_id).into());
    }
    response.insert("name".to_owned(), plain_name(name).into());
    response.insert("response".to_owned(), json!({key: text}));
    json!({"functionResponse": response})
}

#[cfg(test)]
mod tests;
