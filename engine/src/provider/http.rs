//! The HTTP client of providers: shared clients, bounded waits, bounded errors, no secrets in messages.
//!
//! The module does not depend on a wire format, except for the error body that most providers share.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url, redirect};
use rye_compiler::diagnostics::breaks_line;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::CallProgress;
use super::error_body::{ProviderErrorBody, is_billed, requested_delay};
use super::settings::{ApiKey, KeyHeader, ProviderSettings, Timeouts};
use super::wire::length;
use crate::exchange::{CallError, CutStream, FailedStage};
use crate::secrets::mask_secrets;

/// Maximum number of bytes that are read from the body of an error response.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
/// Maximum number of characters that are kept of the error message of a provider.
const MAX_MESSAGE_CHARS: usize = 2_000;
/// Maximum number of characters that are kept of a header value, an error type or an error code.
const MAX_NAME_CHARS: usize = 256;
/// Timeout for establishing a connection, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum time to read the body of an error.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time to read the end of a finished stream, so that its connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

#[cfg(test)]
tokio::task_local! {
    /// The signal that replaces the timer in a test: [`wait_at_most`] times out when the test notifies the signal.
    pub(crate) static TEST_TIMEOUT_SIGNAL: std::sync::Arc<tokio::sync::Notify>;
}

/// Waits for a future, at most for this duration; `None` if the future takes longer.
async fn wait_at_most<F: Future>(most: Duration, what: F) -> Option<F::Output> {
    #[cfg(test)]
    if let Ok(timeout_signal) = TEST_TIMEOUT_SIGNAL.try_with(std::sync::Arc::clone) {
        return tokio::select! {
            biased;
            done = what => Some(done),
            () = timeout_signal.notified() => None,
        };
    }
    timeout(most, what).await.ok()
}

/// A validated endpoint of a provider, ready to send requests.
#[derive(Debug, Clone)]
pub struct Endpoint {
    url: Url,
    headers: HeaderMap,
    key: Option<ApiKey>,
    /// The environment variable that holds the key; `None` if the provider needs no key.
    key_env: Option<String>,
    timeouts: Timeouts,
}

/// A successful response whose body is still being received.
#[derive(Debug)]
pub struct ResponseStream {
    response: Response,
    idle: Duration,
    /// The deadline for reading the rest of the stream, set when the reply is complete; `None` before that.
    drained: Option<Instant>,
}

impl Endpoint {
    /// Creates an endpoint. `path` is appended to the base URL. `extra` are the wire's own headers.
    ///
    /// # Errors
    /// [`FailedStage::Setup`] for an invalid base URL, header or key, and for a missing key.
    pub fn new(settings: &ProviderSettings, path: &str, extra: &[(&'static str, &str)]) -> Result<Self, CallError> {
        let id = &settings.id;
        let url = join_url(&settings.base_url, path)
            .ok_or_else(|| setup_error(format!("the base URL of provider `{id}` is not an http or https URL")))?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("accept", HeaderValue::from_static("text/event-stream"));
        for (name, value) in extra {
            let value =
                HeaderValue::from_str(value).map_err(|_| setup_error(format!("the header `{name}` cannot be sent")))?;
            headers.insert(*name, value);
        }
        let key = key_of(settings)?;
        if let Some(key) = &key {
            let (name, value) = key_header(&settings.key_header, key).ok_or_else(|| {
                let place = settings.key_env.as_deref().unwrap_or("the key");
                setup_error(format!("`{place}` or the header name of the key contains invalid characters"))
            })?;
            headers.insert(name, value);
        }
        Ok(Self { url, headers, key, key_env: settings.key_env.clone(), timeouts: settings.timeouts })
    }

    /// Returns the endpoint of another path on the same server, with this query; `None` if the URL is invalid.
    pub(crate) fn with_path(&self, path: &str, query: &[(&str, &str)]) -> Option<Self> {
        let mut url = join_url(self.url.as_str(), path)?;
        url.query_pairs_mut().extend_pairs(query);
        Some(Self { url, ..self.clone() })
    }

    /// Sends `body` and waits for the response headers. An error status is recorded in `progress` before the body is
    /// read, because the engine can stop the call while the body arrives.
    ///
    /// # Errors
    /// Connection failures, timeouts, and error statuses.
    pub async fn post(&self, body: Vec<u8>, progress: &CallProgress) -> Result<ResponseStream, CallError> {
        let sent = length(body.len());
        let host = self.host();
        tracing::debug!(%host, path = self.url.path(), bytes = sent, "request");
        let response = match wait_at_most(self.timeouts.answer, self.send(body)).await {
            None => {
                let seconds = self.timeouts.answer.as_secs_f64();
                return Err(CallError {
                    cut: Some(CutStream { sent, received: 0 }),
                    ..CallError::new(FailedStage::Timeout, format!("{host} did not answer within {seconds} seconds"))
                });
            }
            Some(Err(error)) => return Err(error),
            Some(Ok(response)) => response,
        };
        let mut stream = ResponseStream { response, idle: self.timeouts.idle, drained: None };
        let status = stream.response.status();
        tracing::debug!(%host, status = status.as_u16(), "response");
        if !status.is_success() {
            let refusal = self.status_error(status.as_u16(), stream.response.headers(), b"");
            progress.set_refusal(self.sanitize_error(refusal));
            let body = stream.read_bounded().await;
            return Err(self.status_error(status.as_u16(), stream.response.headers(), &body));
        }
        if stream.is_document() {
            let body = stream.read_bounded().await;
            return Err(self.document_error(sent, stream.response.headers(), &body));
        }
        Ok(stream)
    }

    /// Sends a request. If an established connection breaks, the cost of the request is unknown, because the server may
    /// have read the request. If the server has answered an earlier request of this process, the error permits an
    /// immediate retry, because the server may only have closed an idle connection.
    async fn send(&self, body: Vec<u8>) -> Result<Response, CallError> {
        let cut = CutStream { sent: length(body.len()), received: 0 };
        let client = client_for(&self.url)?;
        match client.post(self.url.clone()).headers(self.headers.clone()).body(body).send().await {
            Ok(response) => {
                add_known_origin(&self.url);
                Ok(response)
            }
            Err(error) if error.is_builder() || error.is_connect() => Err(self.send_error(&error)),
            Err(error) => {
                let at_once = !error.is_timeout() && is_known_origin(&self.url);
                let headers = at_once.then(|| ("retry-after-ms".to_owned(), "0".to_owned())).into_iter().collect();
                Err(CallError { headers, cut: Some(cut), ..self.send_error(&error) })
            }
        }
    }

    fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or("the server");
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Returns `error` in a form that can be displayed and stored. Masks the key, because the server may have quoted
    /// it. Then replaces control characters and truncates the texts. The key is masked first, because a truncated key
    /// would not be found, but a part of a key is a secret too.
    pub(crate) fn sanitize_error(&self, mut error: CallError) -> CallError {
        let clean = |text: &str, limit: usize| match &self.key {
            Some(key) => printable_excerpt(&key.mask(text), limit),
            None => printable_excerpt(&mask_secrets(text), limit),
        };
        error.message = clean(&error.message, MAX_MESSAGE_CHARS);
        if let (Some(401 | 403), Some(variable)) = (error.status, &self.key_env) {
            error.message.truncate(error.message.trim_end_matches(['.', ' ']).len());
            let _ = write!(error.message, "; check the key in `{variable}`");
        }
        error.error_type = error.error_type.map(|text| clean(&text, MAX_NAME_CHARS));
        error.code = error.code.map(|text| clean(&text, MAX_NAME_CHARS));
        error.headers.iter_mut().for_each(|(_, value)| *value = clean(value, MAX_NAME_CHARS));
        error
    }

    /// Returns the API key that the requests contain; `None` if they need no key. The caller masks the key in replies,
    /// because a provider may repeat it there.
    pub fn key(&self) -> Option<&ApiKey> {
        self.key.as_ref()
    }

    fn send_error(&self, error: &reqwest::Error) -> CallError {
        let host = self.host();
        let cause = innermost_cause(error);
        if error.is_builder() {
            CallError::new(FailedStage::Setup, format!("the request to {host} cannot be built: {cause}"))
        } else if error.is_connect() {
            CallError::new(FailedStage::Connect, format!("no connection to {host}: {cause}"))
        } else if error.is_timeout() {
            CallError::new(FailedStage::Timeout, format!("{host} did not answer in time: {cause}"))
        } else {
            CallError::new(FailedStage::Connect, format!("the connection to {host} broke before an answer: {cause}"))
        }
    }

    fn status_error(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> CallError {
        let text = String::from_utf8_lossy(body);
        let value = serde_json::from_str::<Value>(&text).unwrap_or(Value::Null);
        let reported = ProviderErrorBody::read(&value);
        let mut message = format!("{} answered {status}", self.host());
        let detail =
            reported.message.unwrap_or_else(|| if is_markup(&text) { String::new() } else { text.into_owned() });
        if !detail.trim().is_empty() {
            let _ = write!(message, ": {}", detail.trim());
        }
        let mut kept = retry_headers(headers);
        if kept.iter().all(|(name, _)| name != "retry-after" && name != "retry-after-ms") {
            kept.extend(requested_delay(&value).map(|seconds| ("retry-after".to_owned(), seconds)));
        }
        CallError {
            status: Some(status),
            headers: kept,
            error_type: reported.kind,
            code: reported.code,
            ..CallError::new(FailedStage::Status, message)
        }
    }

    /// Returns the error for a response with a success status whose body is a document instead of a stream. The call
    /// cost nothing if the document is an HTML page (of a proxy), or an error that shows neither a reply nor a cost.
    /// Any other document may be a whole reply or the start of a reply, so the cost of the call is unknown.
    fn document_error(&self, sent: u64, headers: &HeaderMap, body: &[u8]) -> CallError {
        let text = String::from_utf8_lossy(body);
        let cut = Some(CutStream { sent, received: length(body.len()) });
        let Ok(value) = serde_json::from_str::<Value>(&text) else {
            let cut = cut.filter(|_| !is_markup(&text));
            return CallError { cut, ..CallError::new(FailedStage::Protocol, self.document_message(headers)) };
        };
        let document = value.get(0).unwrap_or(&value);
        let has = |key: &str| document.get(key).is_some_and(|value| !value.is_null());
        if !has("error") {
            return CallError { cut, ..CallError::new(FailedStage::Protocol, self.document_message(headers)) };
        }
        let billed = is_billed(&value);
        let reported = ProviderErrorBody::read(&value).into_stream_error();
        CallError { headers: retry_headers(headers), cut: cut.filter(|_| billed), ..reported }
    }

    /// Returns the error for a body that is a JSON error document and contains no event, although the response headers
    /// announce an event stream. `None` for any other body.
    pub(crate) fn error_in_document(&self, sent: u64, stream: &ResponseStream, body: &[u8]) -> Option<CallError> {
        let value: Value = serde_json::from_slice(body).ok()?;
        let document = value.get(0).unwrap_or(&value);
        document.get("error").filter(|error| !error.is_null())?;
        Some(self.document_error(sent, stream.response.headers(), body))
    }

    fn document_message(&self, headers: &HeaderMap) -> String {
        let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("something");
        format!("{} answered with `{kind}`, not with a stream", self.host())
    }
}

impl ResponseStream {
    /// Returns the next chunk; `None` at the end. After the reply is complete (`is_complete`), the rest of the stream
    /// is read only so that the connection can be reused. All calls with `is_complete` together take at most 200 ms and
    /// then return `None`, because a server may keep the stream open. At the time `quiet_end`, the stream counts as
    /// ended.
    ///
    /// # Errors
    /// [`FailedStage::Timeout`] if no data arrived within the idle time, [`FailedStage::Truncated`] if the connection
    /// broke.
    pub async fn next(&mut self, is_complete: bool, quiet_end: Option<Instant>) -> Result<Option<Vec<u8>>, CallError> {
        if is_complete {
            let until = *self.drained.get_or_insert_with(|| Instant::now() + DRAIN_TIMEOUT);
            let chunk = timeout_at(until, self.response.chunk()).await;
            return Ok(chunk.ok().and_then(Result::ok).flatten().map(Vec::from));
        }
        let quiet = quiet_end.map(|end| end.saturating_duration_since(Instant::now())).filter(|most| *most < self.idle);
        match wait_at_most(quiet.unwrap_or(self.idle), self.response.chunk()).await {
            None if quiet.is_some() => Ok(None),
            None => {
                let seconds = self.idle.as_secs_f64();
                Err(CallError::new(FailedStage::Timeout, format!("the stream sent no data for {seconds} seconds")))
            }
            Some(Err(error)) => {
                Err(CallError::new(FailedStage::Truncated, format!("the stream broke: {}", innermost_cause(&error))))
            }
            Some(Ok(chunk)) => Ok(chunk.map(Vec::from)),
        }
    }

    /// Returns true if the content type is JSON or HTML, so that the response is not an event stream.
    fn is_document(&self) -> bool {
        let kind = self.response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json") || kind.eq_ignore_ascii_case("text/html")
    }

    /// Reads the start of the body for an error message, at most `MAX_ERROR_BODY_BYTES`. Stops after the idle timeout or
    /// after `ERROR_BODY_TIMEOUT`, whichever is shorter, even if data still arrives.
    async fn read_bounded(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        let until = Instant::now() + self.idle.min(ERROR_BODY_TIMEOUT);
        while let Ok(Ok(Some(chunk))) = timeout_at(until, self.response.chunk()).await {
            let remaining_bytes = MAX_ERROR_BODY_BYTES.saturating_sub(body.len());
            body.extend(chunk.iter().take(remaining_bytes));
            if body.len() >= MAX_ERROR_BODY_BYTES {
                break;
            }
        }
        body
    }
}

fn setup_error(message: String) -> CallError {
    CallError::new(FailedStage::Setup, message)
}

fn key_of(settings: &ProviderSettings) -> Result<Option<ApiKey>, CallError> {
    let key = settings.key.clone().filter(|key| !key.expose().is_empty());
    match (&key, &settings.key_env) {
        (None, Some(variable)) => {
            let id = &settings.id;
            let message = format!("no key for provider `{id}`: set the environment variable `{variable}`");
            Err(CallError { code: Some("missing_key".to_owned()), ..setup_error(message) })
        }
        (None | Some(_), _) => Ok(key),
    }
}

fn key_header(style: &KeyHeader, key: &ApiKey) -> Option<(HeaderName, HeaderValue)> {
    let (name, text) = match style {
        KeyHeader::Bearer => (HeaderName::from_static("authorization"), format!("Bearer {}", key.expose())),
        KeyHeader::Named(name) => (HeaderName::from_bytes(name.as_bytes()).ok()?, key.expose().to_owned()),
    };
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

/// Appends `path` to `base`. If `base` already ends in the first segment of `path`, the segment is not repeated, so
/// that a base URL is valid with and without its `/v1`. `None` if `base` is not an HTTP URL.
fn join_url(base: &str, path: &str) -> Option<Url> {
    let mut url = Url::parse(base.trim()).ok()?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return None;
    }
    let front = url.path().trim_end_matches('/').to_owned();
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    let path = match front.rsplit('/').next() {
        Some(last) if last == first => path.strip_prefix('/').and_then(|rest| rest.strip_prefix(first)).unwrap_or(path),
        Some(_) | None => path,
    };
    url.set_path(&format!("{front}{path}"));
    url.set_fragment(None);
    Some(url)
}

/// Returns the HTTP client for a URL. The process has three clients, each built on first use: for remote hosts, for
/// plain HTTP on loopback, and for HTTPS on loopback.
fn client_for(url: &Url) -> Result<&'static Client, CallError> {
    static WORLD: OnceLock<Result<Client, String>> = OnceLock::new();
    static LOOPBACK: OnceLock<Result<Client, String>> = OnceLock::new();
    static LOOPBACK_TLS: OnceLock<Result<Client, String>> = OnceLock::new();
    let client = if !is_loopback(url) {
        WORLD.get_or_init(|| build_client(|builder| builder))
    } else if url.scheme() == "http" {
        // Plain HTTP needs no system certificates; loading them is most of a client's cost.
        LOOPBACK.get_or_init(|| build_client(|builder| builder.no_proxy().tls_certs_only([])))
    } else {
        LOOPBACK_TLS.get_or_init(|| build_client(reqwest::ClientBuilder::no_proxy))
    };
    client.as_ref().map_err(|cause| setup_error(format!("no HTTP client: {cause}")))
}

/// Origins (scheme, host and port) that have answered a request of this process. A later request to such an origin
/// may use an idle connection.
static KNOWN_ORIGINS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn is_known_origin(url: &Url) -> bool {
    let origins = KNOWN_ORIGINS.lock().unwrap_or_else(PoisonError::into_inner);
    origins.contains(&url.origin().ascii_serialization())
}

fn add_known_origin(url: &Url) {
    let mut origins = KNOWN_ORIGINS.lock().unwrap_or_else(PoisonError::into_inner);
    origins.insert(url.origin().ascii_serialization());
}

fn build_client(way: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder) -> Result<Client, String> {
    // An error means that a crypto provider is installed already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .user_agent(concat!("rye/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        // A redirect could send the key to another host. The engine, not the client, makes and counts the retries.
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never());
    way(builder).build().map_err(|error| innermost_cause(&error))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Returns the text of the innermost cause of an error. The text never contains the URL, unlike the text of `error`
/// itself.
fn innermost_cause(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let text = innermost.to_string();
    // An error without a cause prints the URL, which may contain credentials.
    if std::error::Error::source(error).is_none() { "the request failed".to_owned() } else { text }
}

fn retry_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    const KEPT_HEADERS: [&str; 6] =
        ["retry-after", "retry-after-ms", "x-should-retry", "date", "request-id", "x-request-id"];
    const KEPT_HEADER_PREFIXES: [&str; 2] = ["anthropic-ratelimit-", "x-ratelimit-"];
    let mut kept: Vec<(String, String)> = headers
        .iter()
        .filter(|(name, _)| {
            KEPT_HEADERS.contains(&name.as_str())
                || KEPT_HEADER_PREFIXES.iter().any(|front| name.as_str().starts_with(front))
        })
        .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
        .collect();
    kept.sort();
    kept.dedup();
    kept
}

fn is_markup(text: &str) -> bool {
    text.trim_start().starts_with('<')
}

/// Truncates `text` to `limit` characters and replaces control characters by spaces.
fn printable_excerpt(text: &str, limit: usize) -> String {
    let clean = |c: char| if breaks_line(c) { ' ' } else { c };
    let mut shown: String = text.trim().chars().take(limit).map(clean).collect();
    if text.trim().chars().nth(limit).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn base_url_works_with_and_without_version() {
        let joined = |base, path| join_url(base, path).map(String::from);
        let table = [
            ("https://a.example", "/v1/messages", "https://a.example/v1/messages"),
            ("https://a.example/", "/v1/messages", "https://a.example/v1/messages"),
            ("https://a.example/v1", "/v1/messages", "https://a.example/v1/messages"),
            (" https://a.example/x/v1/\n", "/v1/messages", "https://a.example/x/v1/messages"),
            ("https://a.example/v1", "/chat/completions", "https://a.example/v1/chat/completions"),
            (
                "https://a.example/openai/v1?api=2#top",
                "/chat/completions",
                "https://a.example/openai/v1/chat/completions?api=2",
            ),
            ("http://[::1]:8080", "/v1/messages", "http://[::1]:8080/v1/messages"),
        ];
        for (base, path, expected) in table {
            assert_eq!(joined(base, path).as_deref(), Some(expected), "{base}");
        }
        for base in ["", "/v1", "mailto:a@b", "unix:/run/x"] {
            assert_eq!(joined(base, "/v1/messages"), None, "{base}");
        }
    }

    #[test]
    fn loopback_is_recognized_by_name_and_address() {
        let loopback = |url| is_loopback(&Url::parse(url).unwrap());
        for url in
            ["http://localhost:1", "http://LOCALHOST", "http://127.0.0.1", "http://127.9.9.9:80", "http://[::1]:1"]
        {
            assert!(loopback(url), "{url}");
        }
        for url in ["http://localhost.example.com", "http://10.0.0.1", "http://[::2]", "https://api.example.com"] {
            assert!(!loopback(url), "{url}");
        }
    }

    #[test]
    fn remote_client_is_built_or_fails_with_setup_error() {
        match client_for(&Url::parse("https://api.example.com").unwrap()) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.stage, FailedStage::Setup), // a machine without certificates
        }
    }

    #[test]
    fn displayed_text_is_printable_and_short() {
        assert_eq!(printable_excerpt(" a\u{1b}[31m\nb ", 20), "a [31m b");
        assert_eq!(printable_excerpt("abcdef", 3), "abc…");
    }
}
