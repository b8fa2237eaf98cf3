//! rye as an MCP server. A session is a thread like any other, with its plan, gate, limits and transcript, except that
//! its calls come from the client instead of a model. The server offers the plan's palette. Sessions are independent:
//! each has a thread of its own. A directive that a client calls runs concurrently with the session's other calls (as a
//! task if the client supports tasks). The client gets the events of the directive as progress.

mod call_order;
mod connections;
mod http;
mod message;
mod open_requests;
mod session;
mod source;
mod stdio;

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock, CreateTaskResult,
    GetTaskParams, GetTaskResult, Implementation, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ProgressToken, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::task_manager::{TaskContext, TaskExit, TaskManager, TaskOptions};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use rye_compiler::compile::Compilation;
use rye_compiler::plan::PalettePrimary;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::engine::Engine;
use crate::event::ControlMessage;
use call_order::CallTicket;
pub use http::{AccessToken, MCP_PATH};
use http::{SESSION_HEADER, SessionDeletion};
pub use session::EventRenderer;
use session::{CallObserver, CallOutcome, Session, SessionContext, starts_directive};
pub use source::ClientProviders;
use source::ServedResult;
use stdio::LineTransport;

/// Retention of a task's result, in milliseconds: one day.
const TASK_TTL_MS: u64 = 24 * 3600 * 1000;
/// Maximum size of a client's message, in bytes, on every transport.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Time for calls in progress to finish after the client closed its side.
const RESPONSE_DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// Time for a cancelled thread to end by itself, before it is killed.
const CANCEL_GRACE: Duration = Duration::from_millis(300);
// The periods leave half of a second for the end itself: the server exits in under a second.
const _: () = assert!(RESPONSE_DRAIN_TIMEOUT.as_millis() + CANCEL_GRACE.as_millis() <= 500);
/// Maximum time for all threads to end after the server has killed them.
const SERVER_END_TIMEOUT: Duration = Duration::from_secs(10);

/// A directive as an MCP server.
pub struct DirectiveServer {
    context: Arc<SessionContext>,
    tools: Arc<[Tool]>,
    tasks: TaskManager,
    /// The session that all clients without a session of their own share. In the newest version of the protocol over
    /// HTTP, clients have no sessions.
    common: Arc<Session>,
}

/// The client's side of a session: the offered tools, and the channel to the session's thread.
#[derive(Clone)]
struct ClientSide {
    context: Arc<SessionContext>,
    tools: Arc<[Tool]>,
    tasks: TaskManager,
    common: Arc<Session>,
    own: Arc<Session>,
}

impl DirectiveServer {
    /// Creates the server of a compiled directive. `engine` must have been opened with `providers`. `render` returns
    /// the progress line of an event.
    pub fn new(engine: &Engine, compilation: Compilation, providers: &ClientProviders, render: EventRenderer) -> Self {
        let offered = compilation.plan.palette.iter().filter(|tool| tool.primary != PalettePrimary::Return);
        let tools = offered.map(|tool| {
            let schema = tool.schema.as_object().cloned().unwrap_or_default();
            Tool::new(tool.name.to_string(), tool.description.to_string(), Arc::new(schema))
        });
        let (tools, table) = (tools.collect(), Arc::clone(&providers.table));
        table.set_engine(engine);
        let context = Arc::new(SessionContext { engine: engine.clone(), compilation, table, render });
        let common = Arc::new(Session::new(Arc::clone(&context)));
        Self { context, tools, tasks: TaskManager::new(), common }
    }

    /// Serves on this process's standard streams until the client closes its side.
    ///
    /// # Errors
    /// The client did not start with a valid handshake.
    pub async fn stdio(&self) -> Result<(), String> {
        let (input, output, _guard) = stdio::open_standard_streams();
        let (transport, mut ended) = LineTransport::open(input, output);
        let service = loop {
            match self.client_side().serve(transport.clone()).await {
                Ok(service) => break service,
                // A notification or a response before the handshake has no effect.
                Err(rmcp::service::ServerInitializeError::ExpectedInitializeRequest(_)) => {}
                // A client that closes the input before the handshake is not an error.
                Err(_) if *ended.borrow() => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        };
        let waited = service.waiting();
        tokio::pin!(waited);
        tokio::select! {
            left = &mut waited => return left.map(|_| ()).map_err(|e| e.to_string()),
            // The wait fails only if the sender is dropped, which happens at the end of the input.
            _ = ended.wait_for(|ended| *ended) => {}
        }
        if timeout(RESPONSE_DRAIN_TIMEOUT, &mut waited).await.is_err() {
            // Calls that need longer are cancelled. The connection stays open until they have their responses.
            self.end().await;
            timeout(RESPONSE_DRAIN_TIMEOUT, waited).await.ok();
        }
        Ok(())
    }

    /// Serves streamable HTTP until the future is dropped, to clients that send the token.
    ///
    /// # Errors
    /// The listener cannot accept more connections.
    pub async fn http(&self, listener: TcpListener, token: AccessToken) -> Result<(), String> {
        http::serve(self.client_side(), listener, token).await
    }

    /// Ends all sessions and everything that they started: first cancels, then kills.
    pub async fn end(&self) {
        let SessionContext { engine, table, .. } = &*self.context;
        table.close(engine);
        for thread in engine.running_threads() {
            if !table.contains(&thread) {
                engine.send_to(&thread, &ControlMessage::Cancel);
            }
        }
        if timeout(CANCEL_GRACE, engine.wait_idle()).await.is_err() {
            engine.broadcast(&ControlMessage::Kill);
            if timeout(SERVER_END_TIMEOUT, engine.wait_idle()).await.is_err() {
                tracing::warn!(
                    "threads did not end; `rye threads list` shows them as orphaned, and they can be resumed"
                );
            }
        }
        if !engine.wait_programs_ended().await {
            tracing::warn!("programs of tools did not end; they end with this process");
        }
    }

    fn client_side(&self) -> ClientSide {
        ClientSide {
            context: Arc::clone(&self.context),
            tools: Arc::clone(&self.tools),
            tasks: self.tasks.clone(),
            common: Arc::clone(&self.common),
            own: Arc::new(Session::new(Arc::clone(&self.context))),
        }
    }
}

impl ClientSide {
    /// Returns the client side for another session: only `own` is new, and all other fields are shared.
    fn for_session(&self) -> Self {
        Self { own: Arc::new(Session::new(Arc::clone(&self.context))), ..self.clone() }
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
        let input = request.arguments.unwrap_or_default();
        // On standard streams, a request has no HTTP head.
        let head = context.extensions.get::<hyper::http::request::Parts>();
        let has_session = head.is_none_or(|head| head.headers.contains_key(SESSION_HEADER));
        let session = Arc::clone(if has_session { &self.own } else { &self.common });
        let deletion = head.and_then(|head| head.extensions.get::<SessionDeletion>()).cloned();
        // Only the calls on standard streams have an order: each HTTP request arrives on its own.
        let ticket = context.extensions.get::<CallTicket>().cloned();
        if starts_directive(&name, &input) && knows_tasks {
            let options = TaskOptions::new().with_ttl_ms(TASK_TTL_MS);
            let task = self.tasks.spawn(options, |task| {
                Box::pin(async move {
                    match session.call(name, input, ticket, &mut TaskObserver { task, deletion }).await {
                        Ok(CallOutcome::Done(result)) => Ok(result_of(result)),
                        Ok(CallOutcome::Cancelled) => Err(TaskExit::Cancelled),
                        Err(error) => Err(TaskExit::Error(error)),
                    }
                })
            });
            return Ok(CallToolResponse::Task(CreateTaskResult::new(task)));
        }
        let token = context.meta.get_progress_token();
        let mut observer = RequestObserver { context, deletion, token, sent: 0.0 };
        match session.call(name, input, ticket, &mut observer).await? {
            CallOutcome::Done(result) => Ok(result_of(result).into()),
            // A client that has cancelled a call expects no response, so it ignores this error. A client that has
            // deleted the session expects a response to each open call.
            CallOutcome::Cancelled => Err(ErrorData::internal_error("the call was cancelled", None)),
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

/// The observer of a call that runs within a request. It sends the progress of the call as notifications, if the client
/// has provided a progress token.
struct RequestObserver {
    context: RequestContext<RoleServer>,
    deletion: Option<SessionDeletion>,
    token: Option<ProgressToken>,
    /// The progress value of the last notification.
    sent: f64,
}

impl CallObserver for RequestObserver {
    async fn cancelled(&self) {
        tokio::select! {
            () = self.context.ct.cancelled() => {}
            () = wait_deleted(self.deletion.as_ref()) => {}
        }
    }

    async fn progress(&mut self, line: String) {
        let Some(token) = self.token.clone() else { return };
        self.sent += 1.0;
        let progress = ProgressNotificationParam::new(token, self.sent).with_message(line);
        // A failure is ignored, because the transport itself detects that a client has disconnected.
        self.context.peer.notify_progress(progress).await.ok();
    }
}

/// The observer of a call that runs as an MCP task. It shows the progress of the call as the status of the task.
struct TaskObserver {
    task: TaskContext,
    deletion: Option<SessionDeletion>,
}

impl CallObserver for TaskObserver {
    async fn cancelled(&self) {
        tokio::select! {
            () = self.task.cancelled() => {}
            () = wait_deleted(self.deletion.as_ref()) => {}
        }
    }

    async fn progress(&mut self, line: String) {
        self.task.set_status_message(line);
    }
}

/// Completes once the client deletes the session of a call. Never completes for a call without an HTTP session.
async fn wait_deleted(deletion: Option<&SessionDeletion>) {
    match deletion {
        Some(deletion) => deletion.wait().await,
        None => std::future::pending().await,
    }
}

fn result_of(result: ServedResult) -> CallToolResult {
    let content = vec![ContentBlock::text(result.content)];
    if result.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) }
}
