//! Approvals by the program that writes the JSON requests of a session.

use std::sync::Arc;

use rye_engine::BoxFuture;
use rye_engine::engine::{ApprovalHandler, ApprovalPolicy, ApprovalRequest};
use rye_engine::event::Approval;
use tokio::sync::watch;

use super::lines::PromptLines;

/// An approver that waits for the `answer` request to each `approval_asked` event. If the input ends while a request is
/// open, the request is refused, because the client may have failed. After the end of the input, the policy for runs
/// without a terminal answers each new request.
pub struct ClientApprover {
    /// Becomes true when the input has ended and all of its lines are handled.
    ended: watch::Receiver<bool>,
    /// Becomes true when the input has been read to its end.
    read_to_end: watch::Receiver<bool>,
    otherwise: ApprovalPolicy,
}

impl ClientApprover {
    /// Returns the approval policy of a session whose client writes `lines` and answers approval requests. After the
    /// end of the lines, the policy `otherwise` answers.
    pub fn policy(lines: &PromptLines, otherwise: ApprovalPolicy) -> ApprovalPolicy {
        ApprovalPolicy::Ask(Arc::new(Self { ended: lines.ended(), read_to_end: lines.read_to_end(), otherwise }))
    }
}

impl ApprovalHandler for ClientApprover {
    fn ask<'a>(&'a self, request: ApprovalRequest<'a>) -> BoxFuture<'a, Approval> {
        Box::pin(async move {
            let was_read = *self.read_to_end.borrow();
            // Waits for the end of the input. The wait fails if the sender was dropped, which also means that the input
            // has ended. If the client answers, a control message delivers the answer, and this future is dropped.
            self.ended.clone().wait_for(|ended| *ended).await.ok();
            if was_read { self.otherwise.answer(request).await } else { Approval::PolicyRefused }
        })
    }
}
