//! The event that ends a thread.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::exchange::StopReason;
use crate::message::SharedText;
use crate::thread::{Cost, RunError, Status};

/// The end of a thread: its status, result and cost. The last event of its transcript.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    pub status: Status,
    pub result: Option<SharedText>,
    pub outputs: Option<Map<String, Value>>,
    /// Required outputs that are missing because the thread ended without a return.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// The stop reason of the last reply; `None` if there is no reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Names of the parts of replies that the engine did not understand (such as `delta.role`). Each name occurs once.
    /// If names were left out, the last entry states this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    pub error: Option<RunError>,
    pub cost: Cost,
}

impl Ended {
    pub(super) fn reader_name(&self) -> &'static str {
        match self.status {
            Status::Completed => "thread_completed",
            Status::Cancelled | Status::Killed => "thread_cancelled",
            Status::Continued => "thread_continued",
            Status::Suspended => "thread_suspended",
            Status::Idle => "thread_idle",
            Status::Error | Status::Created | Status::Running => "thread_error",
        }
    }
}
