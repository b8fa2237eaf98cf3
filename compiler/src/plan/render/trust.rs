//! What of a plan has to be trusted, what hooks start, and the walls of its tools: for both faces of `rye plan`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::json::SourceReport;
use crate::hook::PlannedHook;
use crate::trust::{Executes, needs_trust};
use crate::wall::ToolWall;

/// One trust requirement of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExecutesReport {
    /// `hook`, `tool`, `provider`, `risk`, `grants`, `user_space` or `script`.
    pub kind: String,
    pub name: String,
    /// What would happen, or what becomes possible.
    pub what: String,
    pub source: Option<SourceReport>,
}

impl From<&Executes> for ExecutesReport {
    fn from(one: &Executes) -> Self {
        let source = one.place.as_ref().map(SourceReport::from);
        Self { kind: one.kind.word().to_owned(), name: one.name.clone(), what: one.what.clone(), source }
    }
}

/// What stands between a tool and the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WallReport {
    /// `engine`: nothing of the machine is touched; `files`: the project's, through handles; `process`: in a sandbox.
    pub kind: String,
    /// Folders of the project that its process may write.
    pub write: Vec<String>,
    /// Hosts that are granted; with any, the whole network is open.
    pub net: Vec<String>,
}

impl From<&ToolWall> for WallReport {
    fn from(wall: &ToolWall) -> Self {
        Self { kind: wall.kind.word().to_owned(), write: wall.write.clone(), net: wall.net.clone() }
    }
}

/// What a live hook may start by its own line and its grants, and whether only where the project is trusted.
pub fn starts(hook: &PlannedHook) -> Option<String> {
    if !hook.is_live() {
        return None;
    }
    let starts = crate::trust::starts(&hook.action, &hook.grants);
    let starts = starts.or_else(|| (!hook.grants.is_empty()).then(|| format!("grants {}", hook.grants.join(", "))))?;
    Some(if needs_trust(hook) { format!("{starts}, if trusted") } else { starts })
}
