//! The HTTP client of MCP servers, which reads lists of tools itself: `rmcp` drops the field `execution.taskSupport`
//! when it parses a response, and refuses a list with a schema that is not an object.

use std::collections::HashMap;
use std::sync::Arc;

use futures::stream::BoxStream;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use serde_json::Value;
use sse_stream::Sse;

use super::task_support::{MAX_MESSAGE_BYTES, adapt_tool_list};
use crate::provider::sse::SseParser;

const SESSION_HEADER: &str = "mcp-session-id";
const EVENT_STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";

/// An HTTP client that copies the field `execution.taskSupport` of each listed tool to the metadata of the tool. Passes
/// on everything else unchanged.
#[derive(Debug, Clone)]
pub(super) struct TaskSupportClient(reqwest::Client);

/// The parts of a request that do not depend on its body.
struct RequestHead {
    uri: Arc<str>,
    session: Option<Arc<str>>,
    token: Option<String>,
    headers: HashMap<HeaderName, HeaderValue>,
}

type ClientError = StreamableHttpError<reqwest::Error>;
type EventStream = BoxStream<'static, Result<Sse, SseError>>;
type PostResult = Result<StreamableHttpPostResponse, ClientError>;

impl TaskSupportClient {
    pub fn new(client: reqwest::Client) -> Self {
        Self(client)
    }

    /// Requests a list of tools. `None` if the request fails or the response is not a list. The caller then lets `rmcp`
    /// repeat the request and report the error. The repetition is safe, because a list request changes nothing on the
    /// server.
    async fn list_tools(&self, head: &RequestHead, message: &Value) -> Option<StreamableHttpPostResponse> {
        let headers: HeaderMap = head.headers.clone().into_iter().collect();
        let accepted = [EVENT_STREAM, JSON].join(", ");
        let mut request = self.0.post(&*head.uri).header(ACCEPT, accepted).headers(headers).json(message);
        if let Some(token) = &head.token {
            request = request.bearer_auth(token);
        }
        if let Some(session) = &head.session {
            request = request.header(SESSION_HEADER, &**session);
        }
        let response = request.send().await.ok().filter(|response| response.status() == reqwest::StatusCode::OK)?;
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (kind, session) = (header(CONTENT_TYPE.as_str())?, header(SESSION_HEADER));
        let body = if kind.starts_with(EVENT_STREAM) {
            read_event(response, message.get("id")?).await?
        } else if kind.starts_with(JSON) {
            read_document(response).await?
        } else {
            return None;
        };
        let body = adapt_tool_list(&body).unwrap_or(body);
        let listed = serde_json::from_slice(&body).ok()?;
        Some(StreamableHttpPostResponse::Json(listed, session))
    }
}

/// Reads the body of a response; `None` if it cannot be read, or exceeds the maximum size of a message.
async fn read_document(mut response: reqwest::Response) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_MESSAGE_BYTES {
            return None;
        }
    }
    Some(body)
}

/// Reads events up to the response with this id, and returns the response as JSON. `None` if the stream ends or fails
/// before the response, or exceeds the maximum size of a message. Notifications before the response are skipped,
/// because they contain no part of the requested list of tools.
async fn read_event(mut response: reqwest::Response, id: &Value) -> Option<Vec<u8>> {
    let (mut parser, mut received) = (SseParser::default(), 0);
    while let Some(chunk) = response.chunk().await.ok()? {
        received += chunk.len();
        if received > MAX_MESSAGE_BYTES {
            return None;
        }
        for event in parser.push(&chunk).ok()? {
            let message: Option<Value> = serde_json::from_str(&event.data).ok();
            if message.is_some_and(|message| message.get("id") == Some(id) && message.get("method").is_none()) {
                return Some(event.data.into_bytes());
            }
        }
    }
    None
}

/// Returns the message as JSON if it requests a list of tools; `None` for any other message.
fn listing_request(message: &ClientJsonRpcMessage) -> Option<Value> {
    let value = serde_json::to_value(message).ok()?;
    value.get("method").is_some_and(|method| method == "tools/list").then_some(value)
}

impl StreamableHttpClient for TaskSupportClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> PostResult {
        let max = MAX_MESSAGE_BYTES;
        self.post_message_with_max_sse_event_size(uri, message, session_id, auth_header, custom_headers, max).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> PostResult {
        let head = RequestHead { uri, session: session_id, token: auth_header, headers: custom_headers };
        if let Some(listing) = listing_request(&message)
            && let Some(listed) = self.list_tools(&head, &listing).await
        {
            return Ok(listed);
        }
        let RequestHead { uri, session, token, headers } = head;
        self.0.post_message_with_max_sse_event_size(uri, message, session, token, headers, max_sse_event_size).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), ClientError> {
        self.0.delete_session(uri, session_id, auth_header, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<EventStream, ClientError> {
        let max = MAX_MESSAGE_BYTES;
        self.get_stream_with_max_sse_event_size(uri, session_id, last_event_id, auth_header, custom_headers, max).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<EventStream, ClientError> {
        let client = &self.0;
        client
            .get_stream_with_max_sse_event_size(
                uri,
                session_id,
                last_event_id,
                auth_header,
                custom_headers,
                max_sse_event_size,
            )
            .await
    }
}
