//! The transport over streamable HTTP on a loopback port: a token for every request, bounded messages, a bounded number
//! of sessions.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue, ORIGIN, WWW_AUTHENTICATE,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::connections::{ConnectionUse, Connections};
use super::message::{MessageError, check_message};
use super::open_requests::OpenRequests;
use super::{ClientSide, MAX_MESSAGE_BYTES};

/// The path that clients connect to.
pub const MCP_PATH: &str = "/mcp";
/// The host names of this machine, in the form in which URLs contain them.
const OWN_HOSTS: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];
/// Maximum number of concurrent connections.
const MAX_CONNECTIONS: usize = 64;
/// Maximum number of concurrent sessions.
const MAX_SESSIONS: usize = 32;
/// Idle time of a session, without a request or an open response, after which a new session may replace it.
const SESSION_IDLE_TIME: Duration = Duration::from_mins(1);
/// Timeout for the head of a request, and for its body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time that the deletion of a session waits until the calls of the session are answered.
const DELETE_TIMEOUT: Duration = Duration::from_secs(1);
/// Minimum length of a token that the user chooses, in characters.
const MIN_TOKEN_CHARS: usize = 16;
/// Number of random bytes in a generated token.
const TOKEN_BYTES: usize = 32;

pub(super) const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");

type HttpBody = BoxBody<Bytes, Infallible>;

/// The bearer token that clients of the port must send.
#[derive(Clone)]
pub struct AccessToken(String);

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(…)")
    }
}

impl AccessToken {
    /// Generates a random token.
    ///
    /// # Errors
    /// Fails if the system returns no random bytes.
    pub fn generate() -> Result<Self, String> {
        let mut bytes = [0_u8; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| format!("cannot get random bytes from the system: {error}"))?;
        Ok(Self(rye_compiler::plan::hex(&bytes)))
    }

    /// Checks a token that the user chose.
    ///
    /// # Errors
    /// The token is too short, or a header cannot hold it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() < MIN_TOKEN_CHARS || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "a token must have at least {MIN_TOKEN_CHARS} printable ASCII characters and no spaces"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the header contains this token. Compares hashes of the tokens, so that a client cannot learn the
    /// token from the time that the comparison takes.
    fn allows(&self, header: Option<&HeaderValue>) -> bool {
        let Some((scheme, token)) = header.and_then(|value| value.to_str().ok()).and_then(|text| text.split_once(' '))
        else {
            return false;
        };
        let is_equal = Sha256::digest(token.trim().as_bytes()) == Sha256::digest(self.0.as_bytes());
        scheme.eq_ignore_ascii_case("bearer") && is_equal
    }
}

/// The MCP server on a loopback port.
struct HttpServer {
    token: AccessToken,
    /// The values of the header `Origin` that this server accepts: its own addresses.
    origins: [String; 3],
    service: StreamableHttpService<ClientSide, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    uses: Arc<Mutex<BTreeMap<String, SessionUse>>>,
    requests: OpenRequests,
    /// A lock held while a session starts, so that two sessions that start at the same time cannot exceed
    /// `MAX_SESSIONS`.
    starting: tokio::sync::Mutex<()>,
}

/// The activity of a session: the time of its last use, and the number of open responses.
struct SessionUse {
    last: Instant,
    open_responses: usize,
    /// True after the client has deleted the session.
    is_deleted: watch::Sender<bool>,
}

/// A signal that the client has deleted the session. The server adds the signal to each request of the session.
#[derive(Clone)]
pub(super) struct SessionDeletion(watch::Receiver<bool>);

impl SessionDeletion {
    /// Completes once the client deletes the session.
    pub async fn wait(&self) {
        let mut changes = self.0.clone();
        if changes.wait_for(|is_deleted| *is_deleted).await.is_err() {
            // The sender was dropped, but the client did not delete the session: a new session has replaced this unused
            // one.
            std::future::pending::<()>().await;
        }
    }
}

/// A guard. Until the guard is dropped, the session has an open response.
struct OpenResponse {
    uses: Arc<Mutex<BTreeMap<String, SessionUse>>>,
    session: String,
}

impl OpenResponse {
    fn new(uses: &Arc<Mutex<BTreeMap<String, SessionUse>>>, session: String) -> Self {
        let mut known = uses.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SessionUse { last: Instant::now(), open_responses: 0, is_deleted: watch::Sender::new(false) };
        known.entry(session.clone()).or_insert(now).open_responses += 1;
        Self { uses: Arc::clone(uses), session }
    }
}

impl Drop for OpenResponse {
    fn drop(&mut self) {
        let mut known = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = known.get_mut(&self.session) {
            session.last = Instant::now();
            session.open_responses -= 1;
        }
    }
}

/// Serves until the future is dropped. Refuses requests without the token, for any host other than this machine, and
/// from pages of another origin.
pub(super) async fn serve(client: ClientSide, listener: TcpListener, token: AccessToken) -> Result<(), String> {
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    // Only the origins of this server are allowed; a request from a web page has a different origin.
    let origins = OWN_HOSTS.map(|host| format!("http://{host}:{port}"));
    let mut config =
        StreamableHttpServerConfig::default().enforce_origin_validation().with_allowed_origins(origins.clone());
    config.max_request_body_bytes = MAX_MESSAGE_BYTES;
    // Each session runs in a task of its own. Dropping this guard, at the end of the future, ends these tasks.
    let _ends = config.cancellation_token.clone().drop_guard();
    let mut sessions = LocalSessionManager::default();
    // An idle timeout would end a session during a long call. `make_room` evicts unused sessions instead.
    sessions.session_config.keep_alive = None;
    let sessions = Arc::new(sessions);
    let service = StreamableHttpService::new(move || Ok(client.for_session()), Arc::clone(&sessions), config);
    let (uses, requests, starting) = (Arc::default(), OpenRequests::default(), tokio::sync::Mutex::default());
    let server = Arc::new(HttpServer { token, origins, service, sessions, uses, requests, starting });
    let mut connections = Connections::new(MAX_CONNECTIONS);
    loop {
        let (stream, _) = listener.accept().await.map_err(|e| e.to_string())?;
        let server = Arc::clone(&server);
        let serve = |state: Arc<ConnectionUse>| async move {
            let mut connection = hyper::server::conn::http1::Builder::new();
            connection.timer(TokioTimer::new()).header_read_timeout(REQUEST_TIMEOUT);
            let answer = service_fn(|request| async {
                Ok::<_, Infallible>(match server.receive(request).await {
                    Ok(received) => {
                        let answering = state.answer();
                        hold_until_sent(server.answer(received).await, answering)
                    }
                    Err(refused) => *refused,
                })
            });
            // A broken connection only affects its client.
            connection.serve_connection(TokioIo::new(stream), answer).await.ok();
        };
        connections.serve(serve).await;
    }
}

/// Attaches a guard to a response. The guard is dropped once the body of the response is sent or dropped.
fn hold_until_sent<G: Send + Sync + 'static>(response: Response<HttpBody>, guard: G) -> Response<HttpBody> {
    response.map(|body| {
        body.map_frame(move |frame| {
            let _guard = &guard;
            frame
        })
        .boxed()
    })
}

impl HttpServer {
    /// Checks the head of a request and reads its body. Until the body has arrived, the connection counts as waiting
    /// for a request, so a new connection may replace it.
    async fn receive(&self, request: Request<Incoming>) -> Result<Request<Bytes>, Box<Response<HttpBody>>> {
        if let Some(refused) = self.refuse_head(&request) {
            return Err(Box::new(refused));
        }
        let (head, body) = request.into_parts();
        let body = if head.method == Method::POST {
            read_body(body).await.map_err(|(status, error)| Box::new(error_response(status, &error)))?
        } else {
            Bytes::new()
        };
        Ok(Request::from_parts(head, body))
    }

    /// Returns the refusal of a request with a wrong path or host, from a page of a foreign origin, or without the
    /// token; `None` if the request is accepted.
    fn refuse_head(&self, request: &Request<Incoming>) -> Option<Response<HttpBody>> {
        if request.uri().path() != MCP_PATH {
            return Some(error_response(
                StatusCode::NOT_FOUND,
                &MessageError::refused(format!("unknown path: this server answers at `{MCP_PATH}`")),
            ));
        }
        for name in [HOST, ORIGIN, AUTHORIZATION] {
            if request.headers().get_all(&name).iter().count() > 1 {
                let error = MessageError::refused(format!("the request has more than one header `{name}`"));
                return Some(error_response(StatusCode::BAD_REQUEST, &error));
            }
        }
        // The host of an absolute target replaces the header `host` (RFC 9112, 3.2.2).
        let host = request.uri().host();
        if host.is_some_and(|host| !OWN_HOSTS.iter().any(|own| own.eq_ignore_ascii_case(host))) {
            let error = MessageError::refused(
                "the target of the request names another host; use `127.0.0.1`, `localhost` or `[::1]`",
            );
            return Some(error_response(StatusCode::FORBIDDEN, &error));
        }
        let origin = request.headers().get(ORIGIN).map(HeaderValue::as_bytes);
        if origin.is_some_and(|origin| !self.origins.iter().any(|own| own.as_bytes().eq_ignore_ascii_case(origin))) {
            let error = MessageError::refused("the header `origin` names another origin");
            return Some(error_response(StatusCode::FORBIDDEN, &error));
        }
        if !self.token.allows(request.headers().get(AUTHORIZATION)) {
            let error = MessageError::refused(
                "the bearer token is missing or wrong; `rye mcp serve` takes it from `RYE_MCP_TOKEN` or prints it",
            );
            let mut response = error_response(StatusCode::UNAUTHORIZED, &error);
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return Some(response);
        }
        None
    }

    async fn answer(&self, request: Request<Bytes>) -> Response<HttpBody> {
        let (head, body) = request.into_parts();
        let session = head.headers.get(&SESSION_HEADER).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let mut starts_session = false;
        let mut open_request = None;
        if head.method == Method::POST {
            let checked = check_message(&body).and_then(|message| {
                starts_session =
                    session.is_none() && message.get("method").is_some_and(|method| method == "initialize");
                // Requests without a session may have equal ids, because each request has a response of its own.
                session.as_ref().map(|session| self.requests.hold(session, message)).transpose()
            });
            match checked {
                Ok(guard) => open_request = guard,
                Err(error) => {
                    let status = if error.is_request_error() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
                    return error_response(status, &error);
                }
            }
        }
        if head.method == Method::DELETE
            && let Some(session) = &session
        {
            self.cancel_calls(session).await;
        }
        let request = Request::from_parts(head, Full::new(body));
        if !starts_session {
            return hold_until_sent(self.respond(request, session).await, open_request);
        }
        let _starting = self.starting.lock().await;
        if let Err(error) = self.make_room().await {
            return error_response(StatusCode::SERVICE_UNAVAILABLE, &error);
        }
        self.respond(request, None).await
    }

    /// Passes a request to the protocol library and returns the response. The session counts as active until the
    /// response ends.
    async fn respond(&self, mut request: Request<Full<Bytes>>, session: Option<String>) -> Response<HttpBody> {
        let deletion = session.as_ref().and_then(|id| Some(self.uses().get(id)?.is_deleted.subscribe()));
        let is_known = deletion.is_some();
        if let Some(deletion) = deletion {
            request.extensions_mut().insert(SessionDeletion(deletion));
        }
        let open = session.filter(|_| is_known).map(|id| OpenResponse::new(&self.uses, id));
        let ends_unknown = request.method() == Method::DELETE && open.is_none();
        let response = as_json_rpc(self.service.handle(request).await.map(BodyExt::boxed)).await;
        if ends_unknown && response.status().is_success() {
            return error_response(StatusCode::NOT_FOUND, &MessageError::refused("the session does not exist"));
        }
        let started = response.headers().get(&SESSION_HEADER).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let open = open.or_else(|| Some(OpenResponse::new(&self.uses, started?)));
        hold_until_sent(response, open)
    }

    /// Cancels the calls of a session that its client deletes, and waits until the responses of the calls are sent.
    async fn cancel_calls(&self, session: &str) {
        let is_known = self.uses().get(session).is_some_and(|session| !session.is_deleted.send_replace(true));
        if is_known {
            timeout(DELETE_TIMEOUT, self.requests.wait_answered(session)).await.ok();
        }
    }

    /// If there is no room for a new session, evicts the session that was idle the longest. Fails if no session was
    /// idle for [`SESSION_IDLE_TIME`].
    async fn make_room(&self) -> Result<(), MessageError> {
        let ids: Vec<_> = self.sessions.sessions.read().await.keys().cloned().collect();
        let oldest = {
            let mut uses = self.uses();
            uses.retain(|id, _| ids.iter().any(|known| **known == **id));
            if ids.len() < MAX_SESSIONS {
                return Ok(());
            }
            let idle = uses
                .iter()
                .filter(|(_, session)| session.open_responses == 0 && session.last.elapsed() >= SESSION_IDLE_TIME);
            idle.min_by_key(|(_, session)| session.last).map(|(id, _)| id.clone())
        };
        let oldest = oldest.and_then(|id| ids.into_iter().find(|known| **known == *id));
        let Some(oldest) = oldest else {
            return Err(MessageError::refused(format!(
                "the server has {MAX_SESSIONS} sessions, and none was idle for {} seconds; end one with DELETE",
                SESSION_IDLE_TIME.as_secs()
            )));
        };
        // Closing a session fails only if the session has already ended.
        self.sessions.close_session(&oldest).await.ok();
        Ok(())
    }

    fn uses(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, SessionUse>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Converts an error response of the protocol library to a JSON-RPC error with the status and the headers of the
/// response. The library writes some errors as plain text, which JSON-RPC clients cannot read. Returns any other
/// response unchanged.
async fn as_json_rpc(response: Response<HttpBody>) -> Response<HttpBody> {
    let is_json =
        response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if is_json || !(response.status().is_client_error() || response.status().is_server_error()) {
        return response;
    }
    let (head, body) = response.into_parts();
    let text = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let mut text = String::from_utf8_lossy(&text).into_owned();
    if text.is_empty() {
        text.push_str(head.status.canonical_reason().unwrap_or("the request is refused"));
    }
    let mut refusal = error_response(head.status, &MessageError::refused(text));
    for (name, value) in &head.headers {
        if *name != CONTENT_TYPE && *name != CONTENT_LENGTH {
            refusal.headers_mut().append(name, value.clone());
        }
    }
    refusal
}

async fn read_body(body: Incoming) -> Result<Bytes, (StatusCode, MessageError)> {
    match timeout(REQUEST_TIMEOUT, Limited::new(body, MAX_MESSAGE_BYTES).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, MessageError::oversized(Value::Null)))
        }
        Ok(Err(error)) => {
            Err((StatusCode::BAD_REQUEST, MessageError::refused(format!("the body cannot be read: {error}"))))
        }
        Err(_) => Err((
            StatusCode::REQUEST_TIMEOUT,
            MessageError::refused(format!("the body did not arrive within {} seconds", REQUEST_TIMEOUT.as_secs())),
        )),
    }
}

fn error_response(status: StatusCode, error: &MessageError) -> Response<HttpBody> {
    let mut response = Response::new(Full::new(Bytes::from(error.response())).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
