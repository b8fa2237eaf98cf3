//! The handling of calls that need an approval: by a handler, or by a fixed answer.

use std::sync::Arc;

use rye_compiler::plan::ApprovalOrigin;

use crate::event::Approval;
use crate::provider::BoxFuture;
use crate::thread_id::ThreadId;

/// A handler of approval requests.
pub trait ApprovalHandler: Send + Sync {
    fn ask<'a>(&'a self, thread: &'a ThreadId, asked: ApprovalOrigin, what: &'a str) -> BoxFuture<'a, Approval>;
}

/// The handling of calls that need an approval, and of escalated limits. Each embedder chooses one.
#[derive(Clone)]
pub enum ApprovalPolicy {
    /// A handler decides.
    Ask(Arc<dyn ApprovalHandler>),
    /// A call runs without a question. A limit suspends the thread, because only a user can raise it.
    Allow,
    /// A call is refused. A limit suspends the thread.
    Deny,
    /// The thread is suspended before the call, or at the limit.
    Queue,
}

impl ApprovalPolicy {
    /// Returns true if calls that need an approval are not simply allowed.
    pub fn is_attended(&self) -> bool {
        match self {
            Self::Allow => false,
            Self::Ask(_) | Self::Deny | Self::Queue => true,
        }
    }

    /// Answers a request.
    pub async fn answer(&self, thread: &ThreadId, asked: ApprovalOrigin, what: &str) -> Approval {
        match (self, asked) {
            (Self::Ask(handler), _) => handler.ask(thread, asked, what).await,
            (Self::Allow, ApprovalOrigin::Call) => Approval::Approved,
            (Self::Deny, ApprovalOrigin::Call) => Approval::Refused,
            (Self::Allow | Self::Deny | Self::Queue, ApprovalOrigin::Limit) | (Self::Queue, ApprovalOrigin::Call) => {
                Approval::Suspended
            }
        }
    }
}
