//! Trust requirements, hook actions and sandboxes in the reports of `rye plan`, as text and JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hook::PlannedHook;
use crate::plan::source::SourceReport;
use crate::sandbox::ToolSandbox;
use crate::trust::{TrustRequirement, needs_trust};

/// A trust requirement of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrustRequirementReport {
    /// The kind of the part that needs trust: `hook`, `tool`, `provider`, `risk`, `grants`, `user_space` or `script`.
    pub kind: String,
    pub name: String,
    /// A description of the action that needs trust, for humans.
    pub what: String,
    pub source: Option<SourceReport>,
}

impl From<&TrustRequirement> for TrustRequirementReport {
    fn from(one: &TrustRequirement) -> Self {
        let source = one.place.as_ref().map(SourceReport::from);
        Self { kind: one.kind.as_str().to_owned(), name: one.name.clone(), what: one.what.clone(), source }
    }
}

/// The sandbox of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxReport {
    /// The kind of sandbox. `engine`: no files, hosts or processes; `files`: project files only; `requests`: requests
    /// to granted hosts only; `process`: a sandboxed process; `none`: a program without a sandbox.
    pub kind: String,
    /// Folders of the project that the tool may write. For a tool that edits files without a process, an empty list
    /// means the whole project.
    pub write: Vec<String>,
    /// Granted hosts; for a process, one granted host allows the whole network.
    pub net: Vec<String>,
    /// True if one process answers all calls of a thread (`persistent`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub persistent: bool,
}

impl From<&ToolSandbox> for SandboxReport {
    fn from(sandbox: &ToolSandbox) -> Self {
        Self {
            kind: sandbox.kind.as_str().to_owned(),
            write: sandbox.write.clone(),
            net: sandbox.net.clone(),
            persistent: sandbox.persistent,
        }
    }
}

/// Describes what a hook may start, raise or grant; adds `if trusted` if the hook needs the user's trust. `None` if no
/// run evaluates the hook, or if the hook starts, raises and grants nothing.
pub(crate) fn describe_starts(hook: &PlannedHook) -> Option<String> {
    if !hook.is_live() {
        return None;
    }
    let starts = crate::trust::describe_effect(hook.event, &hook.action, &hook.grants);
    let starts = starts.or_else(|| (!hook.grants.is_empty()).then(|| format!("grants {}", hook.grants.join(", "))))?;
    Some(if needs_trust(hook) { format!("{starts}, if trusted") } else { starts })
}
