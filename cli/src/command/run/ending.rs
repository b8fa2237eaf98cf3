//! How a run ended, as an exit code (`language.md` 14) and as JSON.

use rye_compiler::plan::Asked;
use rye_engine::thread::{RunResult, Status};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::command::threads::{CostOutput, ErrorOutput};
use crate::exit::Exit;

/// The codes of a thread that a limit stopped. A provider's `quota_exceeded` is none of ours.
const LIMITS: [&str; 6] = [
    "turns_exceeded",
    "tokens_exceeded",
    "spend_exceeded",
    "duration_seconds_exceeded",
    "spawns_exceeded",
    "depth_exceeded",
];

/// The last line of `rye run --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RunOutput {
    pub success: bool,
    pub thread_id: String,
    /// As `rye threads list` names it.
    pub status: String,
    pub directive: String,
    /// The tool that it was a run of, which `directive` did not wait for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The last text of the model; of a tool what it answered.
    pub result: Option<String>,
    pub outputs: Option<Map<String, Value>>,
    pub error: Option<ErrorOutput>,
    pub cost: CostOutput,
    /// SHA-256 of the stored plan.
    pub plan_id: String,
}

impl From<RunResult> for RunOutput {
    fn from(result: RunResult) -> Self {
        let RunResult { success, thread_id, status, directive, tool, result, outputs, error, cost, plan_id } = result;
        let error = error.map(|e| ErrorOutput { code: e.code, message: e.message });
        let (status, cost) = (status.word().to_owned(), cost.into());
        Self { success, thread_id, status, directive, tool, result, outputs, error, cost, plan_id }
    }
}

/// The limit that stopped a thread: `turns`.
pub fn stopped_by(result: &RunResult) -> Option<&str> {
    let code = result.error.as_ref().map(|error| error.code.as_str())?;
    code.strip_suffix("_exceeded").filter(|_| LIMITS.contains(&code))
}

/// The exit code of a run; `asked` is what the thread asked for last, which a suspended one waits for.
pub fn exit(result: &RunResult, asked: Option<Asked>) -> Exit {
    match result.status {
        Status::Completed | Status::Continued => Exit::Fine,
        Status::Cancelled | Status::Killed => Exit::Cancelled,
        Status::Suspended => match asked {
            Some(Asked::Call) => Exit::Refused,
            Some(Asked::Limit) => Exit::Limit,
            None => Exit::Failed,
        },
        Status::Error | Status::Created | Status::Running => match &result.error {
            Some(_) if stopped_by(result).is_some() => Exit::Limit,
            Some(_) | None => Exit::Failed,
        },
    }
}
