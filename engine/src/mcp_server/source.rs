//! The provider of threads that serve an MCP client. The replies of this provider are the calls of the client, not the
//! output of a model.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use rye_compiler::plan::{Plan, PlannedModel};
use rye_grammar::ItemId;
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::BoxFuture;
use crate::context::{EngineContext, Providers};
use crate::engine::Engine;
use crate::exchange::{CallError, Delta, FailedStage, Reply, Request, StopReason, Usage};
use crate::message::{ContentBlock, ProviderMessage, SharedMessage, ToolCall};
use crate::provider::Provider;
use crate::thread_id::ThreadId;

/// A call of the client, with the channel for its result.
pub(super) struct QueuedCall {
    pub name: String,
    pub input: Value,
    pub slot: Arc<CallSlot>,
    pub result: oneshot::Sender<ServedResult>,
}

/// The result of a client's call.
#[derive(Debug, Clone)]
pub(super) struct ServedResult {
    pub content: String,
    pub is_error: bool,
}

/// The state of a client's call: queued, cancelled or running. The client's connection and the thread share it.
#[derive(Default)]
pub(super) struct CallSlot(Mutex<SlotState>);

#[derive(Default)]
enum SlotState {
    #[default]
    Queued,
    Cancelled,
    Running {
        thread: ThreadId,
        call_id: String,
    },
}

impl CallSlot {
    /// Cancels the call. Returns true if the call is running: the call is stopped, and the client still gets a result.
    /// Returns false if the call has not started, so that it never runs.
    pub fn cancel(&self, engine: &Engine) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let SlotState::Running { thread, call_id } = &*state {
            engine.stop_call(thread, call_id);
            return true;
        }
        *state = SlotState::Cancelled;
        false
    }

    /// Marks the call as running. Returns false if the call was cancelled before it started.
    fn start(&self, thread: &ThreadId, call_id: &str) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, SlotState::Cancelled) {
            return false;
        }
        *state = SlotState::Running { thread: thread.clone(), call_id: call_id.to_owned() };
        true
    }
}

/// The calls of an MCP client in one session: the queued calls, and the call that the session's thread runs now.
pub(super) struct CallSource {
    state: tokio::sync::Mutex<SourceState>,
    /// The call that the thread runs now, or ran last; `None` before the first call.
    current: Mutex<Option<Arc<CallSlot>>>,
}

struct SourceState {
    calls: mpsc::Receiver<QueuedCall>,
    made: u64,
    /// The running call: its id in the thread, and the channel for its result. `None` if no call runs.
    waiting: Option<(String, oneshot::Sender<ServedResult>)>,
}

impl CallSource {
    pub fn new(calls: mpsc::Receiver<QueuedCall>) -> Self {
        let state = SourceState { calls, made: 0, waiting: None };
        Self { state: tokio::sync::Mutex::new(state), current: Mutex::default() }
    }

    /// Closes the queue of calls and drops the calls that have no result yet, so that their callers get a refusal.
    /// `last` holds the id and the result of the call that ended last. If this is the running call, its caller gets the
    /// result.
    pub async fn close(&self, last: Option<(String, ServedResult)>) {
        let mut state = self.state.lock().await;
        if let (Some((id, waiting)), Some((ended, result))) = (state.waiting.take(), last)
            && id == ended
        {
            drop(waiting.send(result));
        }
        state.calls.close();
        while state.calls.try_recv().is_ok() {}
    }

    /// Stops the call that the thread runs now.
    fn stop_current(&self, engine: &Engine) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(slot) = current {
            slot.cancel(engine);
        }
    }

    /// Returns the next call of the client, as the reply of a model. First sends the result of the last call to the
    /// client. If the client is gone, returns a final reply, which ends the thread.
    async fn next(&self, request: &Request, thread: &ThreadId, mut closing: watch::Receiver<bool>) -> Reply {
        let mut state = self.state.lock().await;
        if let Some((id, result)) = state.waiting.take() {
            let answer = find_result(request, &id).unwrap_or_else(|| ServedResult {
                content: "a hook or a compaction removed the result from the session's conversation".to_owned(),
                is_error: true,
            });
            // If the client no longer waits, the result is still in the transcript.
            drop(result.send(answer));
        }
        loop {
            let queued = tokio::select! {
                biased;
                _ = closing.wait_for(|closing| *closing) => None,
                queued = state.calls.recv() => queued,
            };
            let Some(QueuedCall { name, input, slot, result }) = queued else {
                let text = "The client has disconnected.".into();
                return make_reply(ContentBlock::Text { text }, StopReason::EndTurn);
            };
            state.made += 1;
            let id = format!("call_{}", state.made);
            if slot.start(thread, &id) {
                state.waiting = Some((id.clone(), result));
                *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(slot);
                return make_reply(ContentBlock::ToolCall(ToolCall { id, name, input }), StopReason::ToolUse);
            }
        }
    }
}

fn find_result(request: &Request, id: &str) -> Option<ServedResult> {
    request.turns.iter().rev().filter_map(SharedMessage::for_provider).find_map(|turn| match turn {
        ProviderMessage::ToolResult { call_id, content, is_error, .. } if call_id == id => {
            Some(ServedResult { content: content.to_owned(), is_error })
        }
        ProviderMessage::ToolResult { .. } | ProviderMessage::User { .. } | ProviderMessage::Assistant { .. } => None,
    })
}

fn make_reply(block: ContentBlock, stop: StopReason) -> Reply {
    // No model is called, so nothing is billed.
    Reply { content: vec![block], usage: Usage::default(), stop, model: None, uncounted: None, unread: Vec::new() }
}

/// The threads that serve MCP clients, each with the source of its client's calls.
#[derive(Default)]
pub(super) struct SessionTable {
    sources: Mutex<BTreeMap<ThreadId, Arc<CallSource>>>,
    changed: Notify,
    closing: watch::Sender<bool>,
    engine: OnceLock<Weak<EngineContext>>,
}

impl SessionTable {
    pub fn insert(&self, thread: ThreadId, source: &Arc<CallSource>) {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).insert(thread, Arc::clone(source));
        self.changed.notify_waiters();
    }

    /// Removes a source with all of its threads.
    pub fn remove(&self, source: &Arc<CallSource>) {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, known| !Arc::ptr_eq(known, source));
    }

    /// Returns true if an MCP client, not a model, makes the calls of the thread.
    pub fn contains(&self, thread: &ThreadId) -> bool {
        self.get(thread).is_some()
    }

    /// Ends all sessions. The threads of the sessions get no more calls, and running calls are stopped.
    pub fn close(&self, engine: &Engine) {
        self.closing.send_replace(true);
        for source in self.sources.lock().unwrap_or_else(PoisonError::into_inner).values() {
            source.stop_current(engine);
        }
    }

    /// Sets the engine that runs the threads.
    pub fn set_engine(&self, engine: &Engine) {
        // The engine may be set already: a second server of the same providers has the same engine.
        self.engine.set(Arc::downgrade(&engine.inner)).ok();
    }

    pub fn get(&self, thread: &ThreadId) -> Option<Arc<CallSource>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).get(thread).cloned()
    }

    /// Returns the source of a thread: the calls of the MCP client that the thread serves. Waits if the session of the
    /// thread is just starting. A continuation has the source of the thread that it continues.
    async fn source(&self, thread: &ThreadId) -> Result<Arc<CallSource>, CallError> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(source) = self.get(thread) {
                return Ok(source);
            }
            if let Some(source) = self.predecessor(thread).await?.and_then(|before| self.get(&before)) {
                self.insert(thread.clone(), &source);
                return Ok(source);
            }
            changed.await;
        }
    }

    async fn predecessor(&self, thread: &ThreadId) -> Result<Option<ThreadId>, CallError> {
        let Some(engine) = self.engine.get().and_then(Weak::upgrade) else { return Ok(None) };
        let id = thread.clone();
        let row = engine.read_registry(move |registry| registry.thread(&id)).await;
        let row = row.map_err(|error| CallError::new(FailedStage::Setup, error.to_string()))?;
        Ok(row.and_then(|row| row.continues))
    }
}

/// The providers of a server's engine. Threads of the served directive get their replies from clients. All other
/// threads get their replies from the providers in `fallback`.
pub struct ClientProviders {
    directive: String,
    pub(super) table: Arc<SessionTable>,
    fallback: Arc<dyn Providers>,
}

impl ClientProviders {
    pub fn new(plan: &Plan, fallback: Arc<dyn Providers>) -> Self {
        Self { directive: plan.directive.to_string(), table: Arc::default(), fallback }
    }
}

impl Providers for ClientProviders {
    fn reads_scripts(&self, directive: &ItemId) -> bool {
        directive.as_str() != self.directive && self.fallback.reads_scripts(directive)
    }

    fn serves_client(&self, directive: &ItemId) -> bool {
        directive.as_str() == self.directive
    }

    fn connect(&self, model: &PlannedModel) -> Result<Arc<dyn Provider>, CallError> {
        Ok(Arc::new(DirectiveProvider {
            directive: self.directive.clone(),
            table: Arc::clone(&self.table),
            model: model.clone(),
            fallback: Arc::clone(&self.fallback),
        }))
    }
}

/// The provider of a served directive. A request of a thread of the directive gets the next call of the client as its
/// reply. A request of any other directive goes to the fallback provider.
struct DirectiveProvider {
    directive: String,
    table: Arc<SessionTable>,
    model: PlannedModel,
    fallback: Arc<dyn Providers>,
}

impl Provider for DirectiveProvider {
    fn serves_client(&self, directive: &str) -> bool {
        directive == self.directive
    }

    fn call<'a>(
        &'a self,
        request: &'a Request,
        live: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move {
            if request.cue.directive != self.directive {
                return self.fallback.connect(&self.model)?.call(request, live).await;
            }
            let refuse = |reason: &str| CallError::new(FailedStage::Setup, reason);
            if request.cue.spawn.is_some() {
                return Err(refuse("this directive is being served and cannot be its own child"));
            }
            let thread = ThreadId::parse(&request.cue.thread).map_err(|error| refuse(&error.reason))?;
            let source = self.table.source(&thread).await?;
            Ok(source.next(request, &thread, self.table.closing.subscribe()).await)
        })
    }
}
