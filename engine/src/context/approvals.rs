//! The handling of calls that need an approval: by a handler, or by a fixed answer.

use std::sync::Arc;

use rye_compiler::plan::{ApprovalOrigin, Plan};

use crate::BoxFuture;
use crate::event::Approval;
use crate::machine::effect::CallToApprove;
use crate::thread_id::ThreadId;

/// An approval request of a thread.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalRequest<'a> {
    pub thread: &'a ThreadId,
    pub asked: ApprovalOrigin,
    /// The capability and the call, or the limit, as recorded.
    pub what: &'a str,
    /// The call; `None` at a limit.
    pub call: Option<&'a CallToApprove>,
    /// The plan of the thread, whose grants determine the sandbox of the call.
    pub plan: &'a Plan,
}

/// A handler of approval requests.
pub trait ApprovalHandler: Send + Sync {
    fn ask<'a>(&'a self, request: ApprovalRequest<'a>) -> BoxFuture<'a, Approval>;
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
    pub async fn answer(&self, request: ApprovalRequest<'_>) -> Approval {
        match (self, request.asked) {
            (Self::Ask(handler), _) => handler.ask(request).await,
            (Self::Allow, ApprovalOrigin::Call) => Approval::Approved,
            (Self::Deny, ApprovalOrigin::Call) => Approval::PolicyRefused,
            (Self::Allow | Self::Deny | Self::Queue, ApprovalOrigin::Limit) | (Self::Queue, ApprovalOrigin::Call) => {
                Approval::Suspended
            }
        }
    }
}
