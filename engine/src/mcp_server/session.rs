//! A session of an MCP client: its thread, the calls sent to the thread, and their results.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, OnceLock};

use rmcp::ErrorData;
use rye_compiler::compile::Compilation;
use rye_compiler::primary::Primary;
use serde_json::{Map, Value};
use tokio::sync::{OnceCell, broadcast, mpsc, oneshot};

use super::CANCEL_GRACE;
use super::call_order::CallTicket;
use super::source::{CallSlot, CallSource, QueuedCall, ServedResult, SessionTable};
use crate::context::{StartOptions, ThreadHandle};
use crate::engine::Engine;
use crate::error::DriveError;
use crate::error::EngineError;
use crate::event::{ControlMessage, Event, EventBody};
use crate::live::StreamEvent;
use crate::secrets::mask_secrets;
use crate::thread::RunResult;
use crate::thread_id::ThreadId;

/// Maximum number of queued calls of a session.
const MAX_QUEUED_CALLS: usize = 64;
/// Maximum number of progress lines that wait for a slow client. Beyond this number, the oldest lines are dropped.
const MAX_PROGRESS_LAG: usize = 256;

/// A function that renders an event as a progress line.
pub type EventRenderer = Arc<dyn Fn(&ThreadId, &Event) -> String + Send + Sync>;

/// The data that all sessions of a server share.
pub(super) struct SessionContext {
    pub engine: Engine,
    pub compilation: Compilation,
    pub table: Arc<SessionTable>,
    pub render: EventRenderer,
}

/// A session of an MCP client. Its thread starts with the first call, and ends when the session is dropped.
pub(super) struct Session {
    context: Arc<SessionContext>,
    thread: OnceCell<SessionThread>,
    progress: broadcast::Sender<ProgressLine>,
}

struct SessionThread {
    calls: mpsc::Sender<QueuedCall>,
    /// The reason why the thread has ended. Not set while the thread runs.
    ended: Arc<OnceLock<String>>,
}

/// A line of text that reports the progress of a call to the client.
#[derive(Debug, Clone)]
struct ProgressLine {
    /// The thread that the call started.
    thread: ThreadId,
    line: String,
}

/// The connection between a call in progress and the client that made the call.
pub(super) trait CallObserver: Send + Sync {
    /// Completes once the client cancels the call.
    fn cancelled(&self) -> impl Future<Output = ()> + Send;
    /// Sends a progress line to the client.
    fn progress(&mut self, line: String) -> impl Future<Output = ()> + Send;
}

/// The result of a client's call, or its cancellation by the client.
pub(super) enum CallOutcome {
    Done(ServedResult),
    Cancelled,
}

impl Session {
    pub fn new(context: Arc<SessionContext>) -> Self {
        Self { context, thread: OnceCell::new(), progress: broadcast::Sender::new(MAX_PROGRESS_LAG) }
    }

    /// Performs a call of the client. A directive runs as a detached child, so that it delays no other call. A call
    /// with a ticket is queued after every call that arrived before it.
    pub async fn call(
        &self,
        name: String,
        mut input: Map<String, Value>,
        ticket: Option<CallTicket>,
        observer: &mut impl CallObserver,
    ) -> Result<CallOutcome, ErrorData> {
        let starts_directive = starts_directive(&name, &input);
        if starts_directive {
            input.insert("async".to_owned(), Value::Bool(true));
        }
        let mut lines = self.progress.subscribe();
        let thread = match self.thread().await {
            Ok(thread) => thread,
            Err(error) => {
                let content = format!("the session's thread cannot start: {}", describe_start_error(&error));
                return Ok(CallOutcome::Done(ServedResult { content, is_error: true }));
            }
        };
        let slot = Arc::new(CallSlot::default());
        let (result, mut answered) = oneshot::channel();
        let queued = QueuedCall { name, input: Value::Object(input), slot: Arc::clone(&slot), result };
        let enqueue = async {
            if let Some(ticket) = &ticket {
                ticket.turn().await;
            }
            thread.calls.send(queued).await.map_err(|_| thread.ended_error())
        };
        tokio::select! {
            sent = enqueue => sent?,
            () = observer.cancelled() => return Ok(CallOutcome::Cancelled),
        }
        if let Some(ticket) = ticket {
            ticket.release();
        }
        let mut cancelled = false;
        let answer = loop {
            tokio::select! {
                answer = &mut answered => break answer.map_err(|_| thread.ended_error())?,
                () = observer.cancelled(), if !cancelled => {
                    cancelled = true;
                    if !slot.cancel(&self.context.engine) {
                        return Ok(CallOutcome::Cancelled);
                    }
                }
            }
        };
        match started_thread(&answer).filter(|_| starts_directive) {
            Some(child) => self.follow_directive(child, &mut lines, observer, cancelled).await,
            None if cancelled => Ok(CallOutcome::Cancelled),
            None => Ok(CallOutcome::Done(answer)),
        }
    }

    /// Waits for the end of the child that a call started, and sends the child's progress lines to the client. If the
    /// client cancels the call, also ends the child.
    async fn follow_directive(
        &self,
        child: ThreadId,
        lines: &mut broadcast::Receiver<ProgressLine>,
        observer: &mut impl CallObserver,
        mut cancelled: bool,
    ) -> Result<CallOutcome, ErrorData> {
        let engine = &self.context.engine;
        if cancelled {
            tokio::spawn(end_thread(engine.clone(), child.clone()));
        }
        let mut ended = std::pin::pin!(engine.wait(&child));
        let result = loop {
            tokio::select! {
                biased;
                () = observer.cancelled(), if !cancelled => {
                    cancelled = true;
                    tokio::spawn(end_thread(engine.clone(), child.clone()));
                }
                line = next_line(lines, &child) => observer.progress(line).await,
                ended = &mut ended => break ended,
            }
        };
        if cancelled {
            return Ok(CallOutcome::Cancelled);
        }
        let result = result.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let is_error = !result.success;
        let text = serde_json::to_string(&result).map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
        Ok(CallOutcome::Done(ServedResult { content: mask_secrets(&text).into_owned(), is_error }))
    }

    /// Returns the session's thread. The first call starts the thread.
    async fn thread(&self) -> Result<&SessionThread, EngineError> {
        self.thread
            .get_or_try_init(|| async {
                let SessionContext { engine, compilation, table, render } = &*self.context;
                // The client gets the results of its calls; no model could return the outputs of the directive.
                let options = StartOptions { allow_missing_outputs: true, ..StartOptions::default() };
                let handle = engine.start(compilation, options).await?;
                let (calls, queue) = mpsc::channel(MAX_QUEUED_CALLS);
                let source = Arc::new(CallSource::new(queue));
                table.insert(handle.thread_id.clone(), &source);
                let ended = Arc::new(OnceLock::new());
                let watcher = SessionWatcher {
                    session: handle.thread_id.clone(),
                    source,
                    table: Arc::clone(table),
                    ended: Arc::clone(&ended),
                    progress: self.progress.clone(),
                    render: Arc::clone(render),
                    calls: BTreeMap::new(),
                    last_result: None,
                };
                tokio::spawn(watcher.watch(handle));
                Ok(SessionThread { calls, ended })
            })
            .await
    }
}

impl SessionThread {
    fn ended_error(&self) -> ErrorData {
        let reason = self.ended.get().map_or("the server is stopping", String::as_str);
        ErrorData::internal_error(format!("the session's thread has ended: {reason}"), None)
    }
}

fn describe_start_error(error: &EngineError) -> String {
    let is_untrusted = matches!(error, EngineError::Drive(DriveError::Untrusted { .. }));
    format!("{error}{}", if is_untrusted { "; the user can list them with `rye trust --list`" } else { "" })
}

/// Returns true if a call runs a directive and waits for it.
pub(super) fn starts_directive(name: &str, input: &Map<String, Value>) -> bool {
    name == Primary::Execute.tool_name()
        && input.get("item_type").is_some_and(|item_type| item_type == "directive")
        && input.get("async").is_none_or(|detached| *detached == Value::Bool(false))
}

/// Returns the thread that a detached call has started; `None` if the call failed.
fn started_thread(answer: &ServedResult) -> Option<ThreadId> {
    let value: Value = serde_json::from_str(&answer.content).ok().filter(|_| !answer.is_error)?;
    ThreadId::parse(value.get("thread_id")?.as_str()?).ok()
}

/// Cancels a thread, and kills it if it does not end within the grace period.
async fn end_thread(engine: Engine, thread: ThreadId) {
    for message in [ControlMessage::Cancel, ControlMessage::Kill] {
        if let Err(error) = engine.send_to_chain(&thread, message).await {
            tracing::warn!(%thread, %error, "the thread of a cancelled call cannot be ended");
        }
        if tokio::time::timeout(CANCEL_GRACE, engine.wait(&thread)).await.is_ok() {
            return;
        }
    }
}

/// Returns the next progress line of a thread, skipping lines that a slow client missed.
async fn next_line(lines: &mut broadcast::Receiver<ProgressLine>, thread: &ThreadId) -> String {
    loop {
        match lines.recv().await {
            Ok(progress) if progress.thread == *thread => return progress.line,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// A watcher of a session's thread and of its descendants.
struct SessionWatcher {
    session: ThreadId,
    source: Arc<CallSource>,
    table: Arc<SessionTable>,
    ended: Arc<OnceLock<String>>,
    progress: broadcast::Sender<ProgressLine>,
    render: EventRenderer,
    /// The living descendants of the session's thread, by id. The value is the id of the child of the session's thread
    /// that is the descendant itself or one of its ancestors. A call of the client started this child, and the progress
    /// of the descendant is reported for that call.
    calls: BTreeMap<String, ThreadId>,
    /// The client's call that ended last: its id and its result. `None` before the end of the first call.
    last_result: Option<(String, ServedResult)>,
}

impl SessionWatcher {
    /// Sends the progress of the session's calls to the client until the session's thread and all of its descendants
    /// have ended.
    async fn watch(mut self, mut handle: ThreadHandle) {
        let mut events = handle.live.take();
        let mut running = true;
        let mut ended = std::pin::pin!(handle.join());
        loop {
            tokio::select! {
                // The result of the last call precedes the end of the thread.
                biased;
                live = events.next() => match live {
                    Some(StreamEvent::Event { thread, event }) => {
                        self.record_result(&thread, &event);
                        self.send_progress(&thread, &event);
                    }
                    Some(StreamEvent::Delta { .. }) => {}
                    None => break,
                },
                result = &mut ended, if running => {
                    running = false;
                    self.end(&result).await;
                }
            }
        }
        if running {
            let result = ended.await;
            self.end(&result).await;
        }
    }

    /// Stores the result of a client's call until the thread ends. Normally, the thread delivers a result with its next
    /// request. A thread that reaches a limit makes no further request, so [`Self::end`] delivers the stored result.
    fn record_result(&mut self, thread: &ThreadId, event: &Event) {
        if let EventBody::ToolCallResult(ended) = &event.body
            && self.table.get(thread).is_some_and(|source| Arc::ptr_eq(&source, &self.source))
        {
            let result = ServedResult { content: ended.content.clone(), is_error: ended.is_error };
            self.last_result = Some((ended.call_id.clone(), result));
        }
    }

    fn send_progress(&mut self, thread: &ThreadId, event: &Event) {
        let mut call = self.calls.get(thread.as_str()).cloned();
        if let EventBody::ChildSpawned(child) = &event.body {
            if *thread == self.session {
                call = ThreadId::parse(&child.thread_id).ok();
            }
            if let Some(call) = &call {
                self.calls.insert(child.thread_id.clone(), call.clone());
            }
        } else if let EventBody::ChildEnded(child) = &event.body {
            call = self.calls.remove(&child.thread_id);
        }
        if let Some(call) = call {
            // Sending fails only if no call is under way.
            self.progress.send(ProgressLine { thread: call, line: (self.render)(thread, event) }).ok();
        }
    }

    /// Marks the session as ended, so that it refuses all later calls. If the last call has ended and its result was
    /// not delivered, delivers the result to the client. The refusals state the error of `result`, or the end status if
    /// there is no error.
    async fn end(&mut self, result: &RunResult) {
        let reason = result.error.as_ref().map_or_else(|| result.status.as_str().to_owned(), |e| e.message.clone());
        // The reason is set once, because the thread ends once.
        self.ended.set(reason).ok();
        self.table.remove(&self.source);
        self.source.close(self.last_result.take()).await;
    }
}
