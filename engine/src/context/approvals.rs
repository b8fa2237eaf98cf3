//! Handles approval requests of threads: asks a handler, or gives a fixed answer.

use std::sync::Arc;

use rye_compiler::item::Items;
use rye_compiler::plan::{ApprovalOrigin, Grant, Plan};
use rye_compiler::sandbox::{ToolSandbox, tool_sandbox};
use rye_compiler::tool_spec::ToolKind;
use rye_grammar::ItemId;

use crate::BoxFuture;
use crate::event::{Approval, ImpliedRaise};
use crate::machine::effect::CallToApprove;
use crate::machine::gate::narrow_sandbox;
use crate::thread_id::ThreadId;

/// An approval request of a thread.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalRequest<'a> {
    pub thread: &'a ThreadId,
    pub origin: ApprovalOrigin,
    /// The recorded subject of the request: the capability and the call, or the limit.
    pub what: &'a str,
    /// The call to approve; `None` if the request is about a reached limit.
    pub call: Option<&'a CallToApprove>,
    /// The raise that an approval implies; `None` if the request is about a call, or if the reached limit is raised
    /// already or cannot be raised.
    pub raise: Option<&'a ImpliedRaise>,
    /// The plan of the thread.
    pub plan: &'a Plan,
    /// The capability sets of the spawn chain, the thread's own first.
    pub grants: &'a [Vec<Grant>],
}

impl ApprovalRequest<'_> {
    /// Returns the sandbox in which the call runs: the sandbox of the plan, narrowed by the grants of the spawn chain.
    /// The sandbox of an MCP tool is not narrowed. `None` if the request is about a limit.
    pub fn sandbox(&self, items: &Items<'_>) -> Option<ToolSandbox> {
        let call = self.call?;
        let name = call.tool.as_ref().map_or(call.capability.as_str(), ItemId::as_str);
        let mut sandbox = tool_sandbox(items, self.plan, name, call.tool.as_ref());
        let tool = call.tool.as_ref().and_then(|id| items.tool(id));
        // The settings of an MCP server declare the sandbox of its calls. A call is refused if the grants do not cover
        // that sandbox, so nothing is narrowed here.
        if !tool.is_some_and(|tool| matches!(tool.spec.kind, ToolKind::Mcp { .. })) {
            narrow_sandbox(&mut sandbox, self.grants, &call.capability);
        }
        Some(sandbox)
    }
}

/// A handler of approval requests.
pub trait ApprovalHandler: Send + Sync {
    fn ask<'a>(&'a self, request: ApprovalRequest<'a>) -> BoxFuture<'a, Approval>;
}

/// The policy for approval requests. A request is about a call, or about a reached limit that a hook escalates. Each
/// program that embeds the engine chooses a policy.
#[derive(Clone)]
pub enum ApprovalPolicy {
    /// A handler answers each approval request.
    Ask(Arc<dyn ApprovalHandler>),
    /// A call runs without an approval. A reached limit suspends the thread, because only a user can raise the limit.
    Allow,
    /// A call that needs an approval is refused. A reached limit suspends the thread, as for `Allow`.
    Deny,
    /// The thread is suspended before the call, or at the reached limit.
    Queue,
}

impl ApprovalPolicy {
    /// Returns true if the policy requests approvals or denies calls that need one. Returns false if it allows every
    /// call without an approval request.
    pub fn has_approver(&self) -> bool {
        match self {
            Self::Allow => false,
            Self::Ask(_) | Self::Deny | Self::Queue => true,
        }
    }

    /// Answers an approval request, as the policy determines.
    pub async fn answer(&self, request: ApprovalRequest<'_>) -> Approval {
        match (self, request.origin) {
            (Self::Ask(handler), _) => handler.ask(request).await,
            (Self::Allow, ApprovalOrigin::Call) => Approval::Preapproved,
            (Self::Deny, ApprovalOrigin::Call) => Approval::PolicyRefused,
            (Self::Allow | Self::Deny | Self::Queue, ApprovalOrigin::Limit) | (Self::Queue, ApprovalOrigin::Call) => {
                Approval::Suspended
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "tests")]
mod tests {
    use rye_compiler::sandbox::SandboxKind;

    use super::*;

    fn grant(pattern: &str, net: &[&str], write: &[&str]) -> Grant {
        let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect();
        Grant { pattern: pattern.into(), net: owned(net), write: owned(write) }
    }

    #[test]
    fn sandbox_of_a_request_is_narrowed_by_every_ancestor() {
        let capability = "rye.execute.tool.rye.bash.bash";
        let own = vec![grant("rye.execute.tool.rye.bash.bash", &["example.org", "example.com"], &["out/", "tmp/"])];
        let parent = vec![grant("rye.execute.*", &["example.org"], &["out/"])];
        let mut of_plan = ToolSandbox {
            name: "rye_bash_bash".into(),
            kind: SandboxKind::Process,
            write: own[0].write.clone(),
            net: own[0].net.clone(),
            persistent: false,
        };
        let root = std::slice::from_ref(&own);
        let mut alone = of_plan.clone();
        narrow_sandbox(&mut alone, root, capability);
        assert_eq!(alone, of_plan);
        narrow_sandbox(&mut of_plan, &[own, parent], capability);
        assert_eq!((of_plan.write, of_plan.net), (vec!["out/".to_owned()], vec!["example.org".to_owned()]));
    }
}
