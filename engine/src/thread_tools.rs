//! The tool `rye/agent/threads/orchestrator`: reads, waits for, stops, resumes and hands off threads. The gate
//! authorizes the call. This module restricts the threads that the call can target: the caller may read any thread, but
//! stop or continue only its own descendants. A thread that continues a descendant is a descendant too.

use std::sync::{Arc, Weak};
use std::time::Duration;

use regex::Regex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::BoxFuture;
use crate::context::EngineContext;
use crate::event::ControlMessage;
use crate::session::ResumePoint;
use crate::store::mailbox;
use crate::store::registry::Liveness;
use crate::thread::PrintedCost;
use crate::thread_count::blocking;
use crate::thread_id::ThreadId;
use crate::threads::{ListedThread, Threads, WaitOutcome};
use crate::tool::{Invocation, Tool, ToolOutcome};

mod operation;

use operation::ThreadsToolRequest;

/// The tool `rye/agent/threads/orchestrator`, bound to one engine.
pub(crate) struct ThreadsTool {
    pub engine: Weak<EngineContext>,
}

/// The reason for a refusal, for the model.
type RefusalText = String;

/// Maximum number of matches of `search_transcript`.
const MAX_MATCHES: usize = 200;

impl Tool for ThreadsTool {
    fn run(&self, invocation: Invocation) -> BoxFuture<'_, ToolOutcome> {
        Box::pin(async move {
            let Some(engine) = self.engine.upgrade() else { return ToolOutcome::error("the engine is shutting down") };
            let mut halt = invocation.halt.clone();
            let answered = Box::pin(async {
                let requested = ThreadsToolRequest::parse(&invocation.parameters)?;
                let caller = ThreadId::parse(&invocation.thread_id).map_err(|invalid| invalid.reason)?;
                let threads = Arc::new(engine.threads());
                ThreadsToolCall { engine, threads, id: caller, most: invocation.timeout }.run_operation(requested).await
            });
            let answered = tokio::select! {
                answered = answered => answered,
                // A cancelled thread stops waiting at once.
                () = halt.cancelled() => Err("stopped: the thread was cancelled".to_owned()),
            };
            match answered {
                Ok(content) => ToolOutcome::ok(content),
                Err(refusal) => ToolOutcome::error(format!("orchestrator: {refusal}")),
            }
        })
    }
}

/// A call of [`ThreadsTool`], with the data that the call needs.
struct ThreadsToolCall {
    engine: Arc<EngineContext>,
    threads: Arc<Threads>,
    id: ThreadId,
    /// The maximum time that the call may wait for threads: the timeout of the call.
    most: Duration,
}

impl ThreadsToolCall {
    async fn run_operation(&self, requested: ThreadsToolRequest) -> Result<Value, RefusalText> {
        match requested {
            ThreadsToolRequest::Wait { threads, timeout } => self.wait(threads, timeout).await,
            ThreadsToolRequest::Cancel(thread) => self.stop(thread, ControlMessage::Cancel).await,
            ThreadsToolRequest::Kill(thread) => self.stop(thread, ControlMessage::Kill).await,
            ThreadsToolRequest::Status(thread) => self.read_store(move |threads| status(threads, &thread)).await,
            ThreadsToolRequest::Active => self.read_store(active).await,
            ThreadsToolRequest::Aggregate(list) => self.read_store(move |threads| aggregate(threads, &list)).await,
            ThreadsToolRequest::Chain(thread) => self.read_store(move |threads| chain(threads, &thread)).await,
            ThreadsToolRequest::Search { thread, pattern } => {
                self.read_store(move |threads| search(threads, &thread, &pattern)).await
            }
            ThreadsToolRequest::Read { thread, tail } => {
                self.read_store(move |threads| read_events(threads, &thread, tail)).await
            }
            ThreadsToolRequest::Resume { thread, message } => {
                Box::pin(self.continue_from(thread, ResumePoint::End, message)).await
            }
            ThreadsToolRequest::Handoff(thread) => Box::pin(self.hand_off(thread)).await,
        }
    }

    /// Runs `scan`, which reads the store, on the blocking pool.
    async fn read_store(
        &self,
        scan: impl FnOnce(&Threads) -> Result<Value, RefusalText> + Send + 'static,
    ) -> Result<Value, RefusalText> {
        let threads = Arc::clone(&self.threads);
        blocking(move || Ok(scan(&threads))).await.map_err(|error| error.to_string())?
    }

    async fn wait(&self, threads: Vec<ThreadId>, timeout: Option<Duration>) -> Result<Value, RefusalText> {
        let above = self.ancestors(&self.id).await?;
        if let Some(thread) = threads.iter().find(|thread| above.contains(thread)) {
            return Err(format!("a thread cannot wait for itself or for one of its ancestors (`{thread}`)"));
        }
        let timeout = match timeout {
            Some(timeout) => timeout,
            None => self.default_wait_timeout().await?,
        };
        let until = Instant::now() + timeout.min(self.most);
        let mut list = Vec::with_capacity(threads.len());
        let mut complete = true;
        for thread in threads {
            // The threads are awaited one after another, with one deadline for all of them.
            let waited = self.threads.wait(&thread, until).await.map_err(|error| error.to_string())?;
            complete &= matches!(waited, WaitOutcome::Over(_));
            list.push(render_outcome(&thread, waited, "timed_out"));
        }
        Ok(json!({"all_finished": complete, "threads": list}))
    }

    /// Reads `wait_threads.default_timeout` of `agent/coordination` from the caller's plan; 600 seconds if it is not
    /// set.
    async fn default_wait_timeout(&self) -> Result<Duration, RefusalText> {
        let (threads, id) = (Arc::clone(&self.threads), self.id.clone());
        let parent = blocking(move || threads.parent(&id)).await.map_err(to_refusal)?;
        let settings = parent.map(|parent| parent.plan.settings.clone()).unwrap_or_default();
        Ok(Duration::from_secs(settings.values().wait_threads_seconds))
    }

    async fn stop(&self, thread: ThreadId, message: ControlMessage) -> Result<Value, RefusalText> {
        self.require_descendant(&thread).await?;
        let last = self.last_in_chain(&thread).await?;
        let Some(listed) = self.listed(&last).await? else { return Err(unknown_thread(&thread)) };
        if listed.liveness != Liveness::Over {
            self.send_message(&last, message).await?;
        }
        self.read_store(move |threads| status(threads, &last)).await
    }

    async fn hand_off(&self, thread: ThreadId) -> Result<Value, RefusalText> {
        if thread != self.id {
            self.require_descendant(&thread).await?;
        }
        let last = self.last_in_chain(&thread).await?;
        let Some(listed) = self.listed(&last).await? else { return Err(unknown_thread(&thread)) };
        if listed.liveness == Liveness::Over {
            return self.continue_from(last, ResumePoint::Handoff, String::new()).await;
        }
        if let Some(tool) = &listed.row.tool {
            return Err(format!("`{last}` is a run of the tool `{tool}`, which cannot be continued"));
        }
        self.send_message(&last, ControlMessage::Handoff).await?;
        Ok(json!({"thread_id": last, "status": "running", "handoff": "after this turn"}))
    }

    /// Starts a new thread, as a child of the caller, that continues the last thread of the continuation chain of
    /// `thread`. Fails if `thread` is no descendant of the caller, or if the last thread has not ended.
    async fn continue_from(&self, thread: ThreadId, place: ResumePoint, message: String) -> Result<Value, RefusalText> {
        self.require_descendant(&thread).await?;
        let last = self.last_in_chain(&thread).await?;
        let listed = self.listed(&last).await?.ok_or_else(|| unknown_thread(&thread))?;
        if listed.liveness != Liveness::Over || listed.row.status.is_parked() {
            return Err(format!("`{last}` has not ended: {}", listed.row.status.as_str()));
        }
        let (threads, id) = (Arc::clone(&self.threads), self.id.clone());
        let parent = blocking(move || threads.parent(&id)).await.map_err(|error| error.to_string())?;
        let parent = parent.ok_or_else(|| "the caller has no transcript".to_owned())?;
        let started = self.engine.continue_from(&last, place, message.into(), Some(parent)).await;
        let handle = started.map_err(|error| error.to_string())?;
        Ok(json!({"thread_id": handle.thread_id, "continues": last, "status": "running", "pid": std::process::id()}))
    }

    /// Sends a control message: directly to a thread of this process, else through the mailbox.
    async fn send_message(&self, thread: &ThreadId, message: ControlMessage) -> Result<(), RefusalText> {
        if self.engine.send_message(thread, message.clone()) {
            return Ok(());
        }
        let (disk, thread, now) = (Arc::clone(&self.engine.disk), thread.clone(), self.engine.clock.now());
        let send = move || {
            let body = serde_json::to_value(&message).unwrap_or(Value::Null);
            Ok(mailbox::send(&*disk, &thread, &body, now).map(drop)?)
        };
        blocking(send).await.map_err(|error| error.to_string())
    }

    /// Checks that a thread is a descendant of the caller, or that it continues the caller or a descendant of the
    /// caller.
    async fn require_descendant(&self, thread: &ThreadId) -> Result<(), RefusalText> {
        let above = self.ancestors(thread).await?;
        if above.is_empty() {
            return Err(unknown_thread(thread));
        }
        if *thread != self.id && above.contains(&self.id) {
            return Ok(());
        }
        Err(format!("this thread may only read `{thread}`, which is not a descendant of this thread"))
    }

    /// Returns a thread with all its ancestors: the spawn parent of each collected thread, and the thread that each
    /// collected thread continues. Empty if the thread is unknown.
    async fn ancestors(&self, thread: &ThreadId) -> Result<Vec<ThreadId>, RefusalText> {
        let (engine, thread) = (Arc::clone(&self.engine), thread.clone());
        let climb = move || {
            let (mut seen, mut next) = (Vec::new(), vec![thread]);
            while let Some(id) = next.pop() {
                if seen.contains(&id) {
                    continue;
                }
                let Some(row) = engine.writer.registry().thread(&id)? else { continue };
                next.extend(row.parent.into_iter().chain(row.continues));
                seen.push(id);
            }
            Ok(seen)
        };
        blocking(climb).await.map_err(|error| error.to_string())
    }

    async fn last_in_chain(&self, thread: &ThreadId) -> Result<ThreadId, RefusalText> {
        let (threads, id) = (Arc::clone(&self.threads), thread.clone());
        blocking(move || Ok(threads.last_in_chain(&id)?)).await.map_err(|error| error.to_string())
    }

    async fn listed(&self, thread: &ThreadId) -> Result<Option<ListedThread>, RefusalText> {
        let (threads, id) = (Arc::clone(&self.threads), thread.clone());
        blocking(move || Ok(threads.show(&id)?)).await.map_err(|error| error.to_string())
    }
}

fn unknown_thread(thread: &ThreadId) -> RefusalText {
    format!("no such thread: `{thread}`")
}

#[expect(clippy::needless_pass_by_value, reason = "used in `map_err`")]
fn to_refusal(error: impl ToString) -> RefusalText {
    error.to_string()
}

/// Renders the outcome of a wait. `requested` is the thread id in the call. The outcome may belong to a continuation of
/// this thread. `not_over` is the value of the field `wait` if the thread still runs.
fn render_outcome(requested: &ThreadId, waited: WaitOutcome, not_over: &str) -> Value {
    let (mut answer, state) = match waited {
        WaitOutcome::Over(result) => (serde_json::to_value(&*result).unwrap_or(Value::Null), None),
        WaitOutcome::Orphaned(listed) => (render_row(&listed), Some("orphaned")),
        WaitOutcome::TimedOut(listed) => (render_row(&listed), Some(not_over)),
        WaitOutcome::Unknown => (json!({"thread_id": requested}), Some("unknown")),
    };
    if let Value::Object(map) = &mut answer {
        map.insert("requested".into(), requested.as_str().into());
        map.extend(state.map(|state| ("wait".to_owned(), state.into())));
    }
    answer
}

fn render_row(listed: &ListedThread) -> Value {
    let row = &listed.row;
    let mut answer = json!({
        "thread_id": row.id, "directive": row.directive, "status": row.status,
        "orphaned": listed.liveness == Liveness::Orphaned, "parent": row.parent, "root": row.root,
        "cost": PrintedCost::from(row.cost), "continues": row.continues, "continued_by": row.continued_by,
    });
    if let (Value::Object(map), Some(tool)) = (&mut answer, &row.tool) {
        map.insert("tool".into(), tool.as_str().into());
    }
    answer
}

fn status(threads: &Threads, thread: &ThreadId) -> Result<Value, RefusalText> {
    let last = threads.last_in_chain(thread).map_err(to_refusal)?;
    let listed = threads.show(&last).map_err(to_refusal)?.ok_or_else(|| unknown_thread(thread))?;
    Ok(render_row(&listed))
}

fn active(threads: &Threads) -> Result<Value, RefusalText> {
    let mut list = threads.list().map_err(to_refusal)?;
    list.retain(|listed| listed.liveness != Liveness::Over);
    Ok(json!({"threads": list.iter().map(render_row).collect::<Vec<_>>()}))
}

fn aggregate(threads: &Threads, list: &[ThreadId]) -> Result<Value, RefusalText> {
    let looks: Result<Vec<Value>, RefusalText> = list
        .iter()
        .map(|thread| Ok(render_outcome(thread, threads.poll(thread).map_err(to_refusal)?, "running")))
        .collect();
    Ok(json!({"threads": looks?}))
}

fn chain(threads: &Threads, thread: &ThreadId) -> Result<Value, RefusalText> {
    let chain = threads.chain(thread).map_err(to_refusal)?;
    let rows: Result<Vec<Option<ListedThread>>, RefusalText> =
        chain.iter().map(|id| threads.show(id).map_err(to_refusal)).collect();
    let rows: Vec<Value> = rows?.iter().flatten().map(render_row).collect();
    if rows.is_empty() { Err(unknown_thread(thread)) } else { Ok(json!({"chain": rows})) }
}

fn search(threads: &Threads, thread: &ThreadId, pattern: &Regex) -> Result<Value, RefusalText> {
    let found = threads.search(thread, pattern, MAX_MATCHES).map_err(to_refusal)?;
    Ok(json!({"matches": found, "more": found.len() >= MAX_MATCHES}))
}

fn read_events(threads: &Threads, thread: &ThreadId, tail: Option<usize>) -> Result<Value, RefusalText> {
    let events = threads.transcript(thread).map_err(to_refusal)?;
    let skip = tail.map_or(0, |tail| events.len().saturating_sub(tail));
    let line = |event: &crate::event::Event| json!({"seq": event.seq, "ts": event.ts, "event": event.body});
    Ok(json!({"thread_id": thread, "events": events.iter().skip(skip).map(line).collect::<Vec<_>>()}))
}
