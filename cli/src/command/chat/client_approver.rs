//! Approvals by the program that writes the JSON requests of a session.

use std::sync::Arc;

use rye_engine::BoxFuture;
use rye_engine::engine::{ApprovalHandler, ApprovalPolicy, ApprovalRequest};
use rye_engine::event::Approval;
use tokio::sync::watch;

/// An approver that waits for the `answer` request to each `approval_asked` event. After the end of the input, the
/// policy for runs without a terminal answers.
pub struct ClientApprover {
    ended: watch::Receiver<bool>,
    otherwise: ApprovalPolicy,
}

impl ClientApprover {
    /// Returns the approval policy of a session whose client answers approval requests. `ended` becomes true when the
    /// input of the client has ended; from then on, the policy `otherwise` answers.
    pub fn policy(ended: watch::Receiver<bool>, otherwise: ApprovalPolicy) -> ApprovalPolicy {
        ApprovalPolicy::Ask(Arc::new(Self { ended, otherwise }))
    }
}

impl ApprovalHandler for ClientApprover {
    fn ask<'a>(&'a self, request: ApprovalRequest<'a>) -> BoxFuture<'a, Approval> {
        Box::pin(async move {
            // Waits for the end of the input. The wait fails if the sender was dropped, which also means that the input
            // has ended. If the client answers, a control message delivers the answer, and this future is dropped.
            self.ended.clone().wait_for(|ended| *ended).await.ok();
            self.otherwise.answer(request).await
        })
    }
}
