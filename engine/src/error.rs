//! Errors of threads and of engine operations.

use tokio::task::JoinError;

use crate::image::ImageNotAccepted;
use crate::keys::KeyError;
use crate::store::StoreError;
use crate::thread::Status;
use crate::thread_id::ThreadId;
use crate::trust::TrustError;

/// The reason why a thread cannot proceed in this process. The thread has not ended and can be recovered.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("internal error: the thread made no progress at `{step}`")]
    Stalled { step: String },
    #[error("a task of the thread ended without a result: {0}")]
    Lost(String),
    /// The store failed in a child that the thread waits for, so the thread stopped too. A recovery of the thread also
    /// recovers the child.
    #[error("the child `{child}` stopped: {reason}")]
    ChildStopped { child: String, reason: String },
    #[error("the thread or its plan cannot be used: {0}")]
    Plan(String),
    /// The user does not trust all requirements of the directive. `list` holds the untrusted requirements, one line
    /// each.
    #[error("`{directive}` has untrusted requirements: {}", list.join("; "))]
    Untrusted { directive: String, list: Vec<String> },
    /// The stored plan has hooks that the current files do not declare. `list` holds these hooks, each with its effect.
    #[error("the stored plan of `{directive}` has hooks that the current files do not declare: {}", list.join("; "))]
    Changed { directive: String, list: Vec<String> },
    /// The transcript cannot be verified, for example because no key of the user signed it, and the user did not accept
    /// the unverified transcript.
    #[error("the transcript of `{thread}` cannot be verified: {reason}")]
    Unverified { thread: String, reason: String },
    /// The function in [`EngineOptions::plan_check`](crate::engine::EngineOptions::plan_check) refused the plan.
    #[error("{reason}")]
    Refused { reason: String },
    #[error(transparent)]
    Trust(#[from] TrustError),
}

impl DriveError {
    /// Returns true if the cause is the transcript or one of its files. A retry then fails again until the cause is
    /// repaired, while other threads can proceed.
    pub(crate) fn is_transcript_fault(&self) -> bool {
        match self {
            Self::Store(error) => match error {
                StoreError::Damaged { .. }
                | StoreError::Altered { .. }
                | StoreError::Newer { .. }
                | StoreError::UnknownThread { .. }
                | StoreError::InvalidId { .. } => true,
                StoreError::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
                StoreError::LineTooLong { .. }
                | StoreError::NoEvent
                | StoreError::Poisoned { .. }
                | StoreError::Owned { .. }
                | StoreError::Busy { .. }
                | StoreError::Registry { .. }
                | StoreError::RegistryLost { .. }
                | StoreError::RebuildFailed { .. }
                | StoreError::InUse { .. } => false,
            },
            Self::Plan(_)
            | Self::Untrusted { .. }
            | Self::Changed { .. }
            | Self::Unverified { .. }
            | Self::Refused { .. } => true,
            Self::Stalled { .. } | Self::Lost(_) | Self::ChildStopped { .. } | Self::Trust(_) => false,
        }
    }
}

impl From<JoinError> for DriveError {
    fn from(lost: JoinError) -> Self {
        Self::Lost(lost.to_string())
    }
}

/// An error of an engine operation.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Drive(#[from] DriveError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("{0}")]
    World(String),
    /// The disk was full before the first line of the transcript was written.
    #[error("the thread was not started: {reason}; free some space, then start it again")]
    NotStarted { reason: String },
    #[error("the thread `{thread}` never started: it has no transcript")]
    NeverStarted { thread: String },
    #[error("the thread `{thread}` has ended; resume it with a message")]
    Over { thread: String },
    #[error("the thread `{thread}` was continued as `{next}`; resume `{next}`, or fork `{thread}` at a turn")]
    Continued { thread: ThreadId, next: ThreadId },
    #[error("the model of the thread `{thread}` cannot be changed: the thread has not ended")]
    ModelIsFixed { thread: String },
    #[error("the limits of the thread `{thread}` cannot be changed by a message: the thread has not ended")]
    LimitsAreFixed { thread: String },
    #[error("`{thread}` is a run of the tool `{tool}` and accepts no messages")]
    RunsTool { thread: String, tool: String },
    #[error("the thread `{thread}` has only {turns} turns")]
    NoSuchTurn { thread: String, turns: u64 },
    #[error("depth_exceeded: `{parent}` may not start child threads")]
    TooDeep { parent: String },
    #[error("duration_seconds_exceeded: `{parent}` has no time left for a child")]
    NoTimeLeft { parent: String },
    #[error("no money can be reserved for a child of `{parent}`: {refusal}")]
    NotReserved { parent: String, refusal: String },
    /// The thread was to be cancelled or killed, but could not be recovered. This process finalized the thread instead.
    #[error("the thread `{thread}` could not be recovered, and its end is recorded only in the thread registry: {why}")]
    Closed { thread: String, why: String },
    #[error("the thread `{thread}` cannot be resumed: its ancestor `{ancestor}` was {}", status.as_str())]
    AncestorStopped { thread: ThreadId, ancestor: ThreadId, status: Status },
    #[error(transparent)]
    Images(#[from] ImageNotAccepted),
}
