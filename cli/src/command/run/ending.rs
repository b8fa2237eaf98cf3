//! Result of a run: exit code (`language.md` 14) and JSON output.

use rye_compiler::plan::ApprovalOrigin;
use rye_engine::machine::state::OpenApprovalRequest;
use rye_engine::message::SharedText;
use rye_engine::thread::{PrintedCost, RunResult, Status};
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::{Threads, pending_approval};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::command::threads::{CostOutput, ThreadErrorOutput};
use crate::exit::Exit;

/// Error codes of a thread that a limit stopped. The list does not contain `quota_exceeded`, which is an error of a
/// provider.
const LIMIT_CODES: [&str; 6] = [
    "turns_exceeded",
    "tokens_exceeded",
    "spend_exceeded",
    "duration_seconds_exceeded",
    "spawns_exceeded",
    "depth_exceeded",
];

/// Output of `rye run --format json`: the last line.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RunOutput {
    pub success: bool,
    pub thread_id: String,
    /// Status, as in `rye threads list`.
    pub status: String,
    pub directive: String,
    /// Tool executed by this thread (asynchronous tool calls only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Last text of the model, or the result of the tool.
    pub result: Option<String>,
    pub outputs: Option<Map<String, Value>>,
    /// Required outputs that the model did not return.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Stop reason of the last reply: `end_turn`, `tool_use`, `length`, `context_window`, `refusal`, or the provider's
    /// own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Parts of the replies that were not understood: kinds of events and content blocks, and fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    pub error: Option<ThreadErrorOutput>,
    /// Cost of the run: of the thread, of the earlier threads that a handoff continued in it, and of all descendants of
    /// these threads.
    pub cost: CostOutput,
    /// SHA-256 of the stored plan.
    pub plan_id: String,
}

/// The end of a run or of a session, for its renderer.
pub struct RunEnd {
    pub result: RunResult,
    /// The cost of all threads of a session; `None` for a run.
    pub session_cost: Option<PrintedCost>,
    /// The limit that a suspended thread has reached, such as `turns`; `None` if the thread does not wait at a limit.
    pub reached_limit: Option<String>,
    /// The descendants of a run that wait for an approval, each with the limit that it has reached.
    pub waiting: Vec<(ThreadId, Option<String>)>,
    /// True if children of a closed session continue in the background, so that more events follow.
    pub has_background: bool,
}

impl From<RunResult> for RunOutput {
    fn from(result: RunResult) -> Self {
        Self {
            success: result.success,
            thread_id: result.thread_id,
            status: result.status.as_str().to_owned(),
            directive: result.directive,
            tool: result.tool,
            result: result.result.map(SharedText::into_string),
            outputs: result.outputs,
            missing: result.missing,
            stop_reason: result.stop_reason,
            unread: result.unread,
            error: result.error.map(|e| ThreadErrorOutput { code: e.code, message: e.message }),
            cost: result.cost.into(),
            plan_id: result.plan_id,
        }
    }
}

/// Returns the limit that stopped a thread, such as `turns`; `None` if no limit stopped it.
pub fn stopping_limit(result: &RunResult) -> Option<&str> {
    let code = result.error.as_ref().map(|error| error.code.as_str())?;
    code.strip_suffix("_exceeded").filter(|_| LIMIT_CODES.contains(&code))
}

/// Returns the limit that an approval request names, such as `turns`; `None` for the request of a call.
pub fn requested_limit(request: &OpenApprovalRequest) -> Option<&str> {
    // The request at a limit reads `continue beyond turns_exceeded: 2 of 2`.
    let (before, _) = request.what.split_once("_exceeded").filter(|_| request.origin == ApprovalOrigin::Limit)?;
    before.rsplit(' ').next()
}

/// Returns the exit code of a run. `origin` is the origin of the open approval request if the thread is suspended.
pub fn exit_of_run(result: &RunResult, origin: Option<ApprovalOrigin>) -> Exit {
    match result.status {
        Status::Completed | Status::Continued | Status::Idle => Exit::Success,
        Status::Cancelled | Status::Killed => Exit::Cancelled,
        Status::Suspended => match origin {
            Some(ApprovalOrigin::Call) => Exit::Refused,
            Some(ApprovalOrigin::Limit) => Exit::Limit,
            None => Exit::Failed,
        },
        Status::Error | Status::Created | Status::Running => match &result.error {
            Some(_) if stopping_limit(result).is_some() => Exit::Limit,
            Some(_) | None => Exit::Failed,
        },
    }
}

/// Returns the exit code of a run that would end with `exit`. If a descendant is suspended, a successful run gets the
/// code of a reached limit or of a refused call instead, because the run is not complete. `waiting` has the suspended
/// descendants, each with the limit that it has reached.
pub fn exit_of_waiting(exit: Exit, waiting: &[(ThreadId, Option<String>)]) -> Exit {
    match waiting.first() {
        Some((_, Some(_))) if exit == Exit::Success => Exit::Limit,
        Some((_, None)) if exit == Exit::Success => Exit::Refused,
        Some(_) | None => exit,
    }
}

/// Returns the descendants of a run that wait for an approval, each with the limit that it has reached. Returns none if
/// they cannot be read.
pub fn suspended_descendants(threads: &Threads, result: &RunResult) -> Vec<(ThreadId, Option<String>)> {
    let Ok(thread) = ThreadId::parse(&result.thread_id) else { return Vec::new() };
    let waiting = threads.suspended_descendants(&thread).unwrap_or_default();
    let with_limit = |id: ThreadId| {
        let request = threads.transcript(&id).ok().and_then(|events| pending_approval(&events));
        let limit = request.as_ref().and_then(requested_limit).map(str::to_owned);
        (id, limit)
    };
    waiting.into_iter().map(with_limit).collect()
}

/// Returns the approval request that a suspended thread waits for; `None` if the thread is not suspended or has no open
/// request. The request may be older than this process.
pub fn open_request(threads: &Threads, result: &RunResult) -> Option<OpenApprovalRequest> {
    if result.status != Status::Suspended {
        return None;
    }
    let thread = ThreadId::parse(&result.thread_id).ok()?;
    let events = threads.transcript(&thread).ok()?;
    pending_approval(&events)
}
