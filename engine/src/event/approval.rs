//! Approval requests and their answers in a transcript.

use rye_compiler::plan::ApprovalOrigin;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalAsked {
    #[serde(rename = "asked")]
    pub origin: ApprovalOrigin,
    pub what: String,
    /// The raise of the reached limit that an approval implies. Absent if the request is about a call, or if the limit
    /// cannot be raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raise: Option<ImpliedRaise>,
}

/// A higher value of a limit, in nano-dollars for `spend`. In a chat, the value bounds the current prompt alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImpliedRaise {
    pub limit: String,
    pub value: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalGiven {
    #[serde(rename = "asked")]
    pub origin: ApprovalOrigin,
    pub answer: Approval,
    /// The reason why the call cannot run even if it is approved, such as an unknown parameter. If set, no approver was
    /// asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_run: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// Approved by an approver.
    Approved,
    /// Approved without a request, because of an earlier approval, the trust in the tool, the kind of the call or the
    /// policy `allow`.
    Preapproved,
    /// Refused by a user.
    Refused,
    /// Refused by the policy for runs without an approver.
    PolicyRefused,
    /// No approver is available. The thread ends as suspended and waits for an `approve` message.
    Suspended,
}

impl Approval {
    /// Returns true if the call may run, or the thread may proceed beyond the reached limit.
    pub fn is_approved(self) -> bool {
        match self {
            Self::Approved | Self::Preapproved => true,
            Self::Refused | Self::PolicyRefused | Self::Suspended => false,
        }
    }
}
