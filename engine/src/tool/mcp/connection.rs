//! A connection to an MCP server, based on the `rmcp` crate.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, ContentBlock, Implementation,
    PaginatedRequestParams, ProtocolVersion, ResourceContents,
};
use rmcp::service::{ClientInitializeError, NotificationContext, RunningService};
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError};
use rmcp::transport::{DynamicTransportError, StreamableHttpClientTransport};
use rmcp::{ClientHandler, RoleClient, ServiceError, ServiceExt};
use rye_compiler::diagnostics::breaks_line;
use rye_compiler::tool_spec::ServerSandbox;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::config::{McpTransport, SandboxOpenings};
use super::listing::McpToolDefinition;
use super::task_support::{DroppedMessage, TaskSupportReader, requires_task};
use super::task_support_http::TaskSupportClient;
use super::variables::expand_variables;
use super::{MCP_START_TIMEOUT, McpServer};
use crate::tool::process::{LongLivedProgram as Program, ProgramHandle, RunningProgram, Sandbox, start_long_lived};

/// Maximum number of tools of a server.
const MAX_TOOLS: usize = 2_000;
/// Maximum number of pages in the tool list of a server.
const MAX_PAGES: usize = 200;
/// Maximum total size, in bytes, of the tool definitions of a server. The transport alone permits 16 MiB in each line.
const MAX_DEFINITIONS_BYTES: usize = 32 << 20;
/// Maximum time to wait for the exit code of a program that closed the connection.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum characters of a server's message in an error.
const MAX_MESSAGE_CHARS: usize = 500;

/// The reason why a server could not be used, as a message for the model and the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpError {
    #[error("the server `{server}` cannot be reached: {reason}")]
    Unreachable { server: String, reason: String },
    #[error("the request to the server `{server}` failed: {reason}")]
    Refused { server: String, reason: String },
    #[error("the connection to the server `{server}` was lost; the outcome of the call is unknown")]
    Lost { server: String },
    #[error("the server `{server}` gave no usable answer: {reason}; the outcome of the call is unknown")]
    Unusable { server: String, reason: String },
    #[error("the server `{server}` no longer has a tool `{tool}`; run `rye mcp refresh {server}` to update the list")]
    Gone { server: String, tool: String },
    #[error(
        "the server `{server}` has changed `{tool}` since it was listed; `rye mcp refresh {server}` shows the difference"
    )]
    Drift { server: String, tool: String },
}

/// The result of a call of a server's tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct McpResult {
    pub structured: Option<Value>,
    pub text: String,
    pub is_error: bool,
    /// Descriptions of the parts of the result that are not text, such as images and audio.
    pub omitted: Vec<String>,
}

/// A connection to a running server, with the list of its tools.
pub struct McpConnection {
    name: String,
    service: RunningService<RoleClient, McpClient>,
    changed: Arc<AtomicBool>,
    definitions: Mutex<Vec<McpToolDefinition>>,
    /// True after a request whose answer was lost. The next call then opens a new connection.
    is_lost: AtomicBool,
    /// The last dropped message of the server's program.
    pub(super) dropped: DroppedMessage,
    /// The server's program, if it has one. Dropping the connection ends the program.
    _held: Option<ProgramHandle>,
}

/// The handler of messages from the server. The handler supports no sampling, roots or elicitation, and only records
/// that the list of tools has changed.
struct McpClient {
    changed: Arc<AtomicBool>,
}

impl ClientHandler for McpClient {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("rye", env!("CARGO_PKG_VERSION"));
        // Requests the newest protocol version that starts with the `initialize` handshake.
        ClientConfig::new(ClientCapabilities::default(), own)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::Relaxed);
    }
}

impl McpConnection {
    /// Starts the program of a server in `folder`, or connects to the server's URL, and reads the server's list of
    /// tools.
    ///
    /// # Errors
    /// [`McpError::Unreachable`] with the reason.
    pub async fn open(server: &McpServer, folder: &Path) -> Result<Self, McpError> {
        let unreachable =
            |reason: String| McpError::Unreachable { server: server.name.clone(), reason: truncate_message(&reason) };
        let changed = Arc::new(AtomicBool::new(false));
        let client = McpClient { changed: Arc::clone(&changed) };
        if let Some(key) = server.keys.first() {
            return Err(unreachable(format!(
                "it requests `{key}`, which holds a provider's key; provider keys are never passed to servers"
            )));
        }
        let (mut running, dropped, start) = (None, DroppedMessage::default(), Instant::now());
        let service = match &server.transport {
            McpTransport::Stdio { command, environment, sandbox } => {
                let program = server_program(command, environment, sandbox.as_ref(), folder).map_err(unreachable)?;
                let RunningProgram { output, input, log, held } = start_long_lived(&program)
                    .map_err(|e| unreachable(format!("`{}`: {e}", program.program.display())))?;
                running = Some((log, held));
                timeout(MCP_START_TIMEOUT, client.serve((TaskSupportReader::new(output, dropped.clone()), input))).await
            }
            McpTransport::Http { url, headers } => {
                let transport = http_transport(url, headers).map_err(unreachable)?;
                timeout(MCP_START_TIMEOUT, client.serve(transport)).await
            }
        };
        // A program that closed the connection has usually ended.
        let exit = match (&service, &mut running) {
            (Ok(Err(_)), Some((_, held))) => held.exit_code(EXIT_TIMEOUT).await,
            (Ok(_) | Err(_), _) => None,
        };
        let exit = exit.map(|code| format!("; it ended with exit code {code}")).unwrap_or_default();
        // The last output of the server's program explains a failure better than the error of the connection.
        let why = |reason: String| match running.as_ref().map(|(log, _)| log.text()).filter(|output| !output.is_empty())
        {
            Some(output) => {
                let hint = if names_an_access(&output) { sandbox_hint(server) } else { "" };
                unreachable(format!("{reason}{exit}; its last output: {}{hint}", last_line(&output)))
            }
            None => unreachable(format!("{reason}{exit}{}", sandbox_hint(server))),
        };
        let Ok(service) = service else {
            let cause = dropped.cause_since(start);
            return Err(why(format!("it did not respond within {} seconds{cause}", MCP_START_TIMEOUT.as_secs())));
        };
        let service = service.map_err(|error| why(describe_start_error(&error)))?;
        let held = running.map(|(_, held)| held);
        let (name, is_lost) = (server.name.clone(), AtomicBool::new(false));
        let definitions = Mutex::default();
        let connection = Self { name, service, changed, definitions, is_lost, dropped, _held: held };
        let listed = timeout(MCP_START_TIMEOUT, connection.list()).await;
        let listed = listed.map_err(|_| {
            let cause = connection.dropped.cause_since(start);
            unreachable(format!("it did not list its tools within {} seconds{cause}", MCP_START_TIMEOUT.as_secs()))
        })??;
        *connection.definitions.lock().await = listed;
        Ok(connection)
    }

    pub fn is_closed(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed) || self.service.is_closed() || self.service.is_transport_closed()
    }

    /// Returns the definitions in the last list that the server sent.
    pub async fn definitions(&self) -> Vec<McpToolDefinition> {
        self.definitions.lock().await.clone()
    }

    /// Returns the server's definition of a tool; `None` if the server has no such tool. Reads the list again if the
    /// server reported a change.
    pub(super) async fn definition(&self, tool: &str) -> Result<Option<McpToolDefinition>, McpError> {
        let mut known = self.definitions.lock().await;
        if self.changed.swap(false, Ordering::Relaxed) {
            *known = self.list().await?;
        }
        Ok(known.iter().find(|d| d.name == tool).cloned())
    }

    async fn list(&self) -> Result<Vec<McpToolDefinition>, McpError> {
        let mut all = Vec::new();
        let mut bytes = 0_usize;
        let mut request: Option<PaginatedRequestParams> = None;
        for _ in 0..MAX_PAGES {
            let page = self.service.list_tools(request).await.map_err(|e| self.error(&e))?;
            for tool in page.tools {
                let requires_task = requires_task(&tool);
                let description = tool.description.map(std::borrow::Cow::into_owned).unwrap_or_default();
                let definition = McpToolDefinition::new(
                    tool.name.into_owned(),
                    description,
                    (*tool.input_schema).clone(),
                    requires_task,
                );
                bytes = bytes.saturating_add(definition.size_bytes());
                all.push(definition);
            }
            if bytes > MAX_DEFINITIONS_BYTES {
                let reason = format!("its list of tools is larger than {} MiB", MAX_DEFINITIONS_BYTES >> 20);
                return Err(McpError::Unreachable { server: self.name.clone(), reason });
            }
            if all.len() > MAX_TOOLS {
                break;
            }
            let Some(cursor) = page.next_cursor else { return Ok(all) };
            request = Some(PaginatedRequestParams::default().with_cursor(Some(cursor)));
        }
        let reason = format!("it lists more than {MAX_TOOLS} tools, or too many pages of tools");
        Err(McpError::Unreachable { server: self.name.clone(), reason })
    }

    /// Calls a tool. Dropping the future cancels the request at the server.
    pub(super) async fn call(&self, tool: &str, parameters: Value) -> Result<McpResult, McpError> {
        let mut request = CallToolRequestParams::new(tool.to_owned());
        if let Value::Object(arguments) = parameters {
            request = request.with_arguments(arguments);
        }
        let refused = |reason: &str| McpError::Refused { server: self.name.clone(), reason: reason.to_owned() };
        let result = match self.service.call_tool_once(request).await.map_err(|e| self.error(&e))? {
            CallToolResponse::Complete(result) => result,
            CallToolResponse::InputRequired(_) => {
                return Err(refused("the tool requests input, which is not supported"));
            }
            CallToolResponse::Task(_) => return Err(refused("the tool returned a task, which is not supported")),
            _ => return Err(refused("the tool returned an unsupported kind of result")),
        };
        let mut answer = McpResult {
            structured: result.structured_content,
            text: String::new(),
            is_error: result.is_error == Some(true),
            omitted: Vec::new(),
        };
        for block in result.content {
            let part = match block {
                ContentBlock::Text(text) => Ok(text.text),
                ContentBlock::Resource(resource) => match resource.resource {
                    ResourceContents::TextResourceContents { text, .. } => Ok(text),
                    ResourceContents::BlobResourceContents { uri, blob, .. } => {
                        Err(format!("binary resource {uri}, {}", encoded_size(&blob)))
                    }
                    _ => Err("resource of an unknown kind".to_owned()),
                },
                ContentBlock::ResourceLink(link) => Ok(format!("[resource {}]", link.uri)),
                ContentBlock::Image(image) => Err(format!("image {}, {}", image.mime_type, encoded_size(&image.data))),
                ContentBlock::Audio(audio) => Err(format!("audio {}, {}", audio.mime_type, encoded_size(&audio.data))),
                _ => Err("part of an unknown kind".to_owned()),
            };
            match part {
                Ok(text) => {
                    if !answer.text.is_empty() {
                        answer.text.push('\n');
                    }
                    answer.text.push_str(&text);
                }
                Err(omitted) => answer.omitted.push(omitted),
            }
        }
        Ok(answer)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all other variants keep the message of the library")]
    fn error(&self, error: &ServiceError) -> McpError {
        let server = self.name.clone();
        match error {
            ServiceError::McpError(error) => McpError::Refused { server, reason: truncate_message(&error.message) },
            ServiceError::TransportSend(failed) if is_refused_by_transport(failed) => {
                McpError::Refused { server, reason: truncate_message(&describe_transport_error(failed)) }
            }
            ServiceError::TransportSend(failed) if is_answered(failed) => {
                self.is_lost.store(true, Ordering::Relaxed);
                McpError::Unusable { server, reason: truncate_message(&describe_transport_error(failed)) }
            }
            ServiceError::TransportClosed | ServiceError::TransportSend(_) => {
                self.is_lost.store(true, Ordering::Relaxed);
                McpError::Lost { server }
            }
            ServiceError::UnexpectedResponse => {
                let reason = "its answer is not a valid result; the tool may have run".to_owned();
                McpError::Refused { server, reason }
            }
            other => McpError::Refused { server, reason: truncate_message(&other.to_string()) },
        }
    }
}

/// Returns the server's program. Its environment consists of the variables that every tool's program gets, and of the
/// variables in the server's settings.
fn server_program(
    command: &[String],
    environment: &BTreeMap<String, String>,
    sandbox: Option<&SandboxOpenings>,
    folder: &Path,
) -> Result<Program, String> {
    let command: Vec<String> = command.iter().map(|c| expand_variables(c)).collect::<Result<_, _>>()?;
    let (name, arguments) = command.split_first().ok_or("no program is named")?;
    let mut variables: BTreeMap<OsString, OsString> = BTreeMap::new();
    for (name, value) in environment {
        variables.insert(name.into(), expand_variables(value)?.into());
    }
    for name in ["PATH", "HOME", "LANG"] {
        if let Some(value) = std::env::var_os(name) {
            variables.insert(name.into(), value);
        }
    }
    Ok(Program {
        // A path with a slash is relative to the project, a bare name is looked up in `PATH`.
        program: if name.contains('/') { folder.join(name).into_os_string() } else { name.into() },
        arguments: arguments.iter().map(OsString::from).collect(),
        folder: folder.to_owned(),
        sandbox: sandbox.map(|openings| Sandbox {
            read: openings.read.iter().filter_map(|path| resolve_home(path)).collect(),
            ..Sandbox::new(folder, openings.write.clone(), &openings.net)
        }),
        environment: variables.into_iter().collect(),
    })
}

/// Resolves `~/` in a path; `None` if `HOME` is not set.
fn resolve_home(path: &str) -> Option<PathBuf> {
    match path.strip_prefix("~/") {
        Some(below) => std::env::var_os("HOME").map(|home| PathBuf::from(home).join(below)),
        None => Some(path.into()),
    }
}

/// Returns a hint that the sandbox may be the cause of an error; empty for a server without a sandbox.
fn sandbox_hint(server: &McpServer) -> &'static str {
    match server.isolation() {
        ServerSandbox::Net | ServerSandbox::None => "",
        ServerSandbox::Process => {
            " (the server runs in a sandbox: open the sandbox with `needs: { net: [HOST], write: [FOLDER/], read: [/PATH] }` in the settings of the server, or disable the sandbox with `sandbox: none`)"
        }
    }
}

/// Returns true if an output names a refused access to a file or to the network, which a sandbox can cause.
fn names_an_access(output: &str) -> bool {
    const WORDS: [&str; 9] =
        ["permission", "not permitted", "read-only", "eacces", "erofs", "no such file", "network", "resol", "connect"];
    let output = output.to_lowercase();
    WORDS.iter().any(|word| output.contains(word))
}

/// Describes the error of a handshake with an MCP server, without names of Rust types.
#[expect(clippy::wildcard_enum_match_arm, reason = "all other variants keep the message of the library")]
fn describe_start_error(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => describe_transport_error(error),
        ClientInitializeError::ExpectedInitResponse(_) | ClientInitializeError::ExpectedInitResult(_) => {
            "its response to `initialize` is not a valid MCP response".to_owned()
        }
        ClientInitializeError::JsonRpcError(error) => format!("it refused `initialize`: {}", error.message),
        other => other.to_string(),
    }
}

/// The error of a server that requires a login.
const LOGIN_REQUIRED: &str = "it requires an authorization (401), and rye has no OAuth login; if the server accepts a token, set `headers: { Authorization: \"Bearer ${VARIABLE}\" }` in its settings";

/// Describes the error of a transport, with the fix if the server requires a login.
fn describe_transport_error(error: &DynamicTransportError) -> String {
    use StreamableHttpError as Http;
    match error.error.downcast_ref::<Http<reqwest::Error>>() {
        Some(Http::AuthRequired(_)) => LOGIN_REQUIRED.to_owned(),
        Some(Http::UnexpectedServerResponse(text)) if text.starts_with("HTTP 401") => LOGIN_REQUIRED.to_owned(),
        Some(Http::InsufficientScope(_)) => {
            "its authorization does not suffice (403); give the token of its `Authorization` header more scopes"
                .to_owned()
        }
        Some(Http::UnexpectedServerResponse(text)) if text.contains("ServerJsonRpcMessage") => {
            "its response is not an MCP message".to_owned()
        }
        Some(Http::UnexpectedContentType(Some(kind))) => {
            format!("the server answered with `{kind}`; expected JSON or an event stream")
        }
        Some(Http::UnexpectedContentType(None)) => "its response has no content type".to_owned(),
        Some(Http::HttpStatus(answer)) => format!("the server answered with the HTTP status {}", answer.status),
        Some(Http::Client(error)) => describe_chain(error),
        Some(other) => describe_chain(other),
        None => describe_chain(&*error.error),
    }
}

/// Returns true if the server rejected a request because an authorization is missing or insufficient. The call then has
/// no effect.
fn is_refused_by_transport(error: &DynamicTransportError) -> bool {
    let error = error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>();
    matches!(error, Some(StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_)))
}

/// Returns true if the server answered, but the answer cannot be used: because of its HTTP status, its type or its
/// text.
fn is_answered(error: &DynamicTransportError) -> bool {
    match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => error.is_decode() || error.is_status(),
        // A server that no longer knows the session has lost the connection.
        Some(StreamableHttpError::SessionExpired) | None => false,
        Some(_) => true,
    }
}

/// Joins the texts of an error and of its causes with colons, without repeats.
fn describe_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

/// Formats the number of bytes that base64 data decodes to, for messages.
fn encoded_size(data: &str) -> String {
    let bytes = data.trim_end_matches('=').len() * 3 / 4;
    format!("{bytes} {}", if bytes == 1 { "byte" } else { "bytes" })
}

/// Returns the last line of a log that is not blank; empty if every line is blank.
fn last_line(log: &str) -> &str {
    log.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
}

fn http_transport(
    url: &str,
    headers: &BTreeMap<String, String>,
) -> Result<StreamableHttpClientTransport<TaskSupportClient>, String> {
    // An error means that the process already has a provider, which is then used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .user_agent(concat!("rye/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(15))
        // A redirect could send a header to another host.
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|e| e.to_string())?;
    let mut custom = std::collections::HashMap::new();
    for (name, value) in headers {
        let bad = || format!("the header `{name}` has an invalid name or value");
        let value = HeaderValue::from_str(&expand_variables(value)?).map_err(|_| bad())?;
        custom.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?, value);
    }
    // The library would send a call again in a new session if the server answers that it does not know the session.
    let config = StreamableHttpClientTransportConfig::with_uri(expand_variables(url)?)
        .custom_headers(custom)
        .reinit_on_expired_session(false);
    Ok(StreamableHttpClientTransport::with_client(TaskSupportClient::new(client), config))
}

/// Truncates a server's message and puts it on one line.
fn truncate_message(text: &str) -> String {
    let line: String = text.chars().map(|c| if breaks_line(c) { ' ' } else { c }).take(MAX_MESSAGE_CHARS).collect();
    line.trim().to_owned()
}
