//! rye as an MCP server. A session is a thread like any other, with its plan, gate, limits and transcript; only its
//! calls come from the client instead of a model. It offers the plan's palette. Events of child threads are sent as
//! progress; a directive runs as a task if the client supports tasks.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock, CreateTaskResult,
    GetTaskParams, GetTaskResult, Implementation, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::task_manager::{TaskExit, TaskManager, TaskOptions};
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use rye_compiler::plan::{PalettePrimary, Plan, PlannedModel};
use rye_grammar::ItemId;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, broadcast, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::engine::Providers;
use crate::message::{ContentBlock as MessageBlock, ProviderMessage, ToolCall};
use crate::provider::{BoxFuture, CallError, Delta, FailedStage, Provider, Reply, Request, StopReason, Usage};

/// Maximum number of queued calls.
const MAX_QUEUED_CALLS: usize = 64;

/// Maximum number of progress lines that a client may lag behind.
const MAX_PROGRESS_LAG: usize = 64;
/// Retention of a task's result, in milliseconds: one day.
const TASK_TTL_MS: u64 = 24 * 3600 * 1000;

/// Maximum number of concurrent connections.
const MAX_CONNECTIONS: usize = 64;
/// Timeout for the head of a request.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(10);

/// The client's side of a session: the offered tools and the channels to the thread.
#[derive(Clone)]
pub struct ClientSide {
    tools: Arc<[Tool]>,
    calls: mpsc::Sender<QueuedCall>,
    tasks: TaskManager,
    news: broadcast::Sender<String>,
    cancels: mpsc::Sender<()>,
}

/// The observer's side of a session: sends progress lines to the client, and receives its cancellations.
pub struct SessionObserver {
    news: broadcast::Sender<String>,
    cancels: mpsc::Receiver<()>,
}

/// The thread's side of a session: takes the place of the model for the served directive; connects other directives to
/// `behind`.
pub struct ClientProviders {
    directive: String,
    caller: Arc<ClientCaller>,
    behind: Arc<dyn Providers>,
}

/// A call of the client, with the channel for its result.
struct QueuedCall {
    name: String,
    input: Value,
    answer: oneshot::Sender<ServedCallResult>,
}

struct ServedCallResult {
    content: String,
    is_error: bool,
}

struct ClientCaller {
    state: Mutex<CallerState>,
}

struct CallerState {
    calls: mpsc::Receiver<QueuedCall>,
    made: u64,
    /// The running call, by its id in the thread.
    waiting: Option<(String, oneshot::Sender<ServedCallResult>)>,
}

impl SessionObserver {
    /// Sends a progress line.
    pub fn send_progress(&self, line: String) {
        // An error means that there is no receiver, which is fine.
        self.news.send(line).ok();
    }

    /// Waits until the client cancels the running call; never returns once the client is gone.
    pub async fn cancelled(&mut self) {
        if self.cancels.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// Creates the sides of a session of this plan.
pub fn session_sides(plan: &Plan, behind: Arc<dyn Providers>) -> (ClientSide, ClientProviders, SessionObserver) {
    let (sender, calls) = mpsc::channel(MAX_QUEUED_CALLS);
    let (cancels, cancelled) = mpsc::channel(1);
    let news = broadcast::Sender::new(MAX_PROGRESS_LAG);
    let offered = plan.palette.iter().filter(|tool| tool.primary != PalettePrimary::Return);
    let tools = offered.map(|tool| {
        let schema = tool.schema.as_object().cloned().unwrap_or_default();
        Tool::new(tool.name.to_string(), tool.description.to_string(), Arc::new(schema))
    });
    let below = SessionObserver { news: news.clone(), cancels: cancelled };
    let face = ClientSide { tools: tools.collect(), calls: sender, tasks: TaskManager::new(), news, cancels };
    let caller = Arc::new(ClientCaller { state: Mutex::new(CallerState { calls, made: 0, waiting: None }) });
    (face, ClientProviders { directive: plan.directive.to_string(), caller, behind }, below)
}

impl ClientSide {
    /// Serves on this process's standard streams until the client disconnects.
    ///
    /// # Errors
    /// The client did not start with a valid handshake.
    pub async fn stdio(self) -> Result<(), String> {
        let service = self.serve(rmcp::transport::stdio()).await.map_err(|e| e.to_string())?;
        service.waiting().await.map(|_| ()).map_err(|e| e.to_string())
    }

    /// Serves streamable HTTP until the future is dropped. Refuses requests for another host than this machine, and
    /// requests from pages of another origin.
    ///
    /// # Errors
    /// The listener cannot accept more connections.
    pub async fn http(self, listener: TcpListener) -> Result<(), String> {
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        // Only its own origin is allowed; a request from any web page has another one.
        let own = ["127.0.0.1", "localhost", "[::1]"].map(|host| format!("http://{host}:{port}"));
        let config = StreamableHttpServerConfig::default().enforce_origin_validation().with_allowed_origins(own);
        // Sessions run in tasks of their own; they end with this future.
        let _ends = config.cancellation_token.clone().drop_guard();
        let sessions = Arc::new(LocalSessionManager::default());
        let service = TowerToHyperService::new(StreamableHttpService::new(move || Ok(self.clone()), sessions, config));
        let mut connections = JoinSet::new();
        loop {
            while connections.len() >= MAX_CONNECTIONS {
                connections.join_next().await;
            }
            let (stream, _) = listener.accept().await.map_err(|e| e.to_string())?;
            let service = service.clone();
            connections.spawn(async move {
                let mut server = hyper::server::conn::http1::Builder::new();
                server.timer(TokioTimer::new()).header_read_timeout(HEADERS_TIMEOUT);
                // A broken connection only affects its client.
                server.serve_connection(TokioIo::new(stream), service).await.ok();
            });
            while connections.try_join_next().is_some() {}
        }
    }
}

impl ServerHandler for ClientSide {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tasks().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("rye", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "Directives, knowledge and tools of a rye project. rye_fetch finds and reads items; rye_execute runs a \
                 directive as a thread of its own and answers its result.",
            )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !self.tools.iter().any(|tool| tool.name == request.name) {
            return Err(ErrorData::invalid_params(format!("unknown tool `{}`", request.name.escape_debug()), None));
        }
        let knows_tasks = context.client_capabilities().is_some_and(|client| client.supports_tasks());
        let name = request.name.into_owned();
        let input = Value::Object(request.arguments.unwrap_or_default());
        let call = self.call(name, input).await?;
        if call.starts_thread && knows_tasks {
            let options = TaskOptions::new().with_ttl_ms(TASK_TTL_MS);
            let cancels = self.cancels.clone();
            let task = self.tasks.spawn(options, |task| {
                Box::pin(async move {
                    let mut cancelled = false;
                    let mut call = call;
                    loop {
                        tokio::select! {
                            answered = &mut call.answered => {
                                let answered = answered.map_err(|_| TaskExit::Error(session_over_error()))?;
                                return if cancelled { Err(TaskExit::Cancelled) } else { Ok(result_of(answered)) };
                            }
                            Some(line) = next_progress(&mut call.news) => task.set_status_message(line),
                            () = task.cancelled(), if !cancelled => {
                                cancelled = true;
                                cancels.try_send(()).ok();
                            }
                        }
                    }
                })
            });
            return Ok(CallToolResponse::Task(CreateTaskResult::new(task)));
        }
        let mut call = call;
        let token = context.meta.get_progress_token();
        let mut told = 0.0;
        let mut cancelled = false;
        loop {
            tokio::select! {
                answered = &mut call.answered => return Ok(result_of(answered.map_err(|_| session_over_error())?).into()),
                Some(line) = next_progress(&mut call.news), if token.is_some() => {
                    let Some(token) = token.clone() else { continue };
                    told += 1.0;
                    let progress = ProgressNotificationParam::new(token, told).with_message(line);
                    // The transport notices a client that is gone.
                    context.peer.notify_progress(progress).await.ok();
                }
                () = context.ct.cancelled(), if !cancelled => {
                    cancelled = true;
                    self.cancels.try_send(()).ok();
                }
            }
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.tasks.get_task(&request.task_id).map(GetTaskResult::new)
    }

    async fn cancel_task(&self, request: CancelTaskParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }
}

/// A call on its way to the thread, with its progress.
struct PendingCall {
    answered: oneshot::Receiver<ServedCallResult>,
    news: broadcast::Receiver<String>,
    /// Set if the call runs a directive, which takes time.
    starts_thread: bool,
}

impl ClientSide {
    async fn call(&self, name: String, input: Value) -> Result<PendingCall, ErrorData> {
        let starts_thread = name == rye_compiler::primary::Primary::Execute.tool_name()
            && input.get("item_type").is_some_and(|t| t == "directive");
        let (answer, answered) = oneshot::channel();
        let news = self.news.subscribe();
        self.calls.send(QueuedCall { name, input, answer }).await.map_err(|_| session_over_error())?;
        Ok(PendingCall { answered, news, starts_thread })
    }
}

/// Returns the next progress line, skipping lines that a slow client missed; `None` if there are no more.
async fn next_progress(news: &mut broadcast::Receiver<String>) -> Option<String> {
    loop {
        match news.recv().await {
            Ok(line) => return Some(line),
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return None,
        }
    }
}

fn session_over_error() -> ErrorData {
    ErrorData::internal_error("the session's thread has ended; run `rye threads list` for the reason", None)
}

fn result_of(answered: ServedCallResult) -> CallToolResult {
    let content = vec![ContentBlock::text(answered.content)];
    if answered.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) }
}

impl Providers for ClientProviders {
    fn reads_scripts(&self, directive: &ItemId) -> bool {
        directive.as_str() != self.directive && self.behind.reads_scripts(directive)
    }

    fn connect(&self, model: &PlannedModel) -> Result<Arc<dyn Provider>, CallError> {
        Ok(Arc::new(DirectiveProvider {
            directive: self.directive.clone(),
            caller: Arc::clone(&self.caller),
            model: model.clone(),
            behind: Arc::clone(&self.behind),
        }))
    }
}

/// A provider that selects the source of the reply by the directive of the request.
struct DirectiveProvider {
    directive: String,
    caller: Arc<ClientCaller>,
    model: PlannedModel,
    behind: Arc<dyn Providers>,
}

impl Provider for DirectiveProvider {
    fn call<'a>(
        &'a self,
        request: &'a Request,
        live: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move {
            if request.cue.directive == self.directive {
                return self.caller.next(request).await;
            }
            self.behind.connect(&self.model)?.call(request, live).await
        })
    }
}

impl ClientCaller {
    /// Sends the last call's result to the client, and waits for the next call. Once the client is gone, the thread
    /// ends.
    async fn next(&self, request: &Request) -> Result<Reply, CallError> {
        let busy = || CallError::new(FailedStage::Setup, "this directive is being served and cannot be its own child");
        let Ok(mut state) = self.state.try_lock() else { return Err(busy()) };
        if let Some((id, answer)) = state.waiting.take() {
            let Some(answered) = result(request, &id) else {
                state.waiting = Some((id, answer));
                return Err(busy());
            };
            // If the client no longer waits, the result is still in the transcript.
            drop(answer.send(answered));
        }
        let Some(asked) = state.calls.recv().await else {
            return Ok(reply(MessageBlock::Text { text: "The client has disconnected.".into() }, StopReason::EndTurn));
        };
        state.made += 1;
        let id = format!("call_{}", state.made);
        state.waiting = Some((id.clone(), asked.answer));
        Ok(reply(MessageBlock::ToolCall(ToolCall { id, name: asked.name, input: asked.input }), StopReason::ToolUse))
    }
}

fn result(request: &Request, id: &str) -> Option<ServedCallResult> {
    request.turns.iter().rev().find_map(|turn| match turn {
        ProviderMessage::ToolResult { call_id, content, is_error, .. } if call_id == id => {
            Some(ServedCallResult { content: content.clone(), is_error: *is_error })
        }
        ProviderMessage::ToolResult { .. } | ProviderMessage::User { .. } | ProviderMessage::Assistant { .. } => None,
    })
}

fn reply(block: MessageBlock, stop: StopReason) -> Reply {
    // No model is called, so that nothing is billed.
    Reply { content: vec![block], usage: Usage::default(), stop, model: None, uncounted: None, unread: Vec::new() }
}

/// Maximum time for a session's thread to end after its client is gone.
pub const SESSION_END_TIMEOUT: Duration = Duration::from_secs(10);
