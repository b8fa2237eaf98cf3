//! Approval requests and their answers in a transcript.

use rye_compiler::plan::ApprovalOrigin;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalAsked {
    #[serde(rename = "asked")]
    pub origin: ApprovalOrigin,
    pub what: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalGiven {
    #[serde(rename = "asked")]
    pub origin: ApprovalOrigin,
    pub answer: Approval,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    Approved,
    /// Refused by a user.
    Refused,
    /// Refused by the policy for runs without an approver.
    PolicyRefused,
    /// No approver is available. The thread ends as suspended and waits for an `approve` message.
    Suspended,
}
