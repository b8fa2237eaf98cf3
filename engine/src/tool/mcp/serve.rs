//! rye as an MCP server. A session is a thread like any other, with its plan, its gate, its limits and its record; only
//! the calls come from the client where a model's would. The tools it offers are the plan's palette.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use rye_compiler::plan::{Plan, PlannedModel, Primary};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::engine::Providers;
use crate::message::{Block, ToolCall, Turn};
use crate::provider::{BoxFuture, CallError, Delta, FailedStage, Provider, Reply, Request, StopReason, Usage};

/// Calls that wait for the one before them.
const QUEUE: usize = 64;

/// Connections at a time.
const MAX_CONNECTIONS: usize = 64;
/// Until the head of a request is there.
const HEADERS: Duration = Duration::from_secs(10);

/// The client's side: what it may call, and the way there.
#[derive(Clone)]
pub struct Face {
    tools: Arc<[Tool]>,
    calls: mpsc::Sender<Asked>,
}

/// The thread's side: answers where a model would, for the directive that is served; asks `behind` for any other.
pub struct Callers {
    directive: String,
    caller: Arc<Caller>,
    behind: Arc<dyn Providers>,
}

/// A call of the client, and where its answer goes.
struct Asked {
    name: String,
    input: Value,
    answer: oneshot::Sender<Answered>,
}

struct Answered {
    content: String,
    is_error: bool,
}

struct Caller {
    state: Mutex<State>,
}

struct State {
    calls: mpsc::Receiver<Asked>,
    made: u64,
    /// The call under way, by the id it has in the thread.
    waiting: Option<(String, oneshot::Sender<Answered>)>,
}

/// The two sides of a session of this plan.
pub fn session(plan: &Plan, behind: Arc<dyn Providers>) -> (Face, Callers) {
    let (sender, calls) = mpsc::channel(QUEUE);
    let offered = plan.palette.iter().filter(|tool| tool.primary != Primary::Return);
    let tools = offered.map(|tool| {
        let schema = tool.schema.as_object().cloned().unwrap_or_default();
        Tool::new(tool.name.clone(), tool.description.clone(), Arc::new(schema))
    });
    let face = Face { tools: tools.collect(), calls: sender };
    let caller = Arc::new(Caller { state: Mutex::new(State { calls, made: 0, waiting: None }) });
    (face, Callers { directive: plan.directive.to_string(), caller, behind })
}

impl Face {
    /// Speaks on this process's input and output until the client goes.
    ///
    /// # Errors
    /// The client did not begin as the protocol wants it.
    pub async fn stdio(self) -> Result<(), String> {
        let service = self.serve(rmcp::transport::stdio()).await.map_err(|e| e.to_string())?;
        service.waiting().await.map(|_| ()).map_err(|e| e.to_string())
    }

    /// Speaks streamable HTTP with whoever connects, until it is dropped. Requests that name another host than this machine,
    /// or that a page of another origin sends, are refused.
    ///
    /// # Errors
    /// No more connections can be taken.
    pub async fn http(self, listener: TcpListener) -> Result<(), String> {
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        // Its own pages, of which there are none: whatever another page sends names another origin.
        let own = ["127.0.0.1", "localhost", "[::1]"].map(|host| format!("http://{host}:{port}"));
        let config = StreamableHttpServerConfig::default().enforce_origin_validation().with_allowed_origins(own);
        // Sessions live in tasks of their own; they end with this future.
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
                server.timer(TokioTimer::new()).header_read_timeout(HEADERS);
                // A client that breaks off is its own business.
                server.serve_connection(TokioIo::new(stream), service).await.ok();
            });
            while connections.try_join_next().is_some() {}
        }
    }
}

impl ServerHandler for Face {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
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
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !self.tools.iter().any(|tool| tool.name == request.name) {
            return Err(ErrorData::invalid_params(format!("there is no tool `{}`", request.name.escape_debug()), None));
        }
        let (answer, answered) = oneshot::channel();
        let input = Value::Object(request.arguments.unwrap_or_default());
        let asked = Asked { name: request.name.into_owned(), input, answer };
        let over = || ErrorData::internal_error("the session's thread is over; `rye threads list` says why", None);
        self.calls.send(asked).await.map_err(|_| over())?;
        let answered = answered.await.map_err(|_| over())?;
        let content = vec![ContentBlock::text(answered.content)];
        Ok(if answered.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) }.into())
    }
}

impl Providers for Callers {
    fn connect(&self, model: &PlannedModel) -> Result<Arc<dyn Provider>, CallError> {
        Ok(Arc::new(Either {
            directive: self.directive.clone(),
            caller: Arc::clone(&self.caller),
            model: model.clone(),
            behind: Arc::clone(&self.behind),
        }))
    }
}

/// Who answers is told by who asks.
struct Either {
    directive: String,
    caller: Arc<Caller>,
    model: PlannedModel,
    behind: Arc<dyn Providers>,
}

impl Provider for Either {
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

impl Caller {
    /// Hands the last call's result to whoever asked, and waits for the next call. When the client has gone, the thread
    /// comes to its end.
    async fn next(&self, request: &Request) -> Result<Reply, CallError> {
        let busy = || CallError::new(FailedStage::Setup, "this directive is being served and cannot be its own child");
        let Ok(mut state) = self.state.try_lock() else { return Err(busy()) };
        if let Some((id, answer)) = state.waiting.take() {
            let Some(answered) = result(request, &id) else {
                state.waiting = Some((id, answer));
                return Err(busy());
            };
            // A client that no longer waits has its answer in the transcript.
            drop(answer.send(answered));
        }
        let Some(asked) = state.calls.recv().await else {
            return Ok(reply(Block::Text { text: "The client has gone.".into() }, StopReason::EndTurn));
        };
        state.made += 1;
        let id = format!("call_{}", state.made);
        state.waiting = Some((id.clone(), asked.answer));
        Ok(reply(Block::ToolCall(ToolCall { id, name: asked.name, input: asked.input }), StopReason::ToolUse))
    }
}

fn result(request: &Request, id: &str) -> Option<Answered> {
    request.turns.iter().rev().find_map(|turn| match turn {
        Turn::ToolResult { call_id, content, is_error, .. } if call_id == id => {
            Some(Answered { content: content.clone(), is_error: *is_error })
        }
        Turn::ToolResult { .. } | Turn::User { .. } | Turn::Assistant { .. } => None,
    })
}

fn reply(block: Block, stop: StopReason) -> Reply {
    Reply { content: vec![block], usage: Usage::default(), stop, model: None }
}

/// How long a session's thread has to end once its client has gone.
pub const LAST_STEPS: Duration = Duration::from_secs(10);
