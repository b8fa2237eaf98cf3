//! `plan::*`: graphs that violate one of the four invariants of plans. No source text can cause these errors; they
//! indicate a bug of the compiler, or a plan that another version stored or that was edited by hand.

use thiserror::Error;

use super::{Label, Problem};

/// A violation of one of the four invariants of a plan's graph. Nodes and outcomes have the names that `rye plan`
/// prints.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// A node with wrong edges for an outcome. `problem` states the fault, such as "has no edge for the outcome".
    #[error("the node `{node}` {problem} `{outcome}`")]
    NotTotal { node: String, problem: &'static str, outcome: String },
    /// A node without a connection that it must have. `lost` names the connection as a phrase that follows "cannot",
    /// such as "be reached from the start" or "reach the finish".
    #[error("the node `{node}` cannot {lost}")]
    Unreachable { node: String, lost: &'static str },
    /// A cycle that may never end. `why` is the reason: the cycle "passes no limit" or "consumes nothing" (decision
    /// 0002).
    #[error("a cycle {why}: {}", circle.join(" → "))]
    Unbounded { circle: Vec<String>, why: &'static str },
    #[error("tools can be reached without passing the gate: {}", path.join(" → "))]
    Ungated { path: Vec<String> },
}

impl Problem for PlanError {
    fn code(&self) -> &'static str {
        match self {
            Self::NotTotal { .. } => "plan::not-total",
            Self::Unreachable { .. } => "plan::unreachable",
            Self::Unbounded { .. } => "plan::unbounded",
            Self::Ungated { .. } => "plan::ungated",
        }
    }

    fn help(&self) -> Option<String> {
        Some("no project file can cause this: report it as a bug of rye, together with the directive".into())
    }

    fn labels(&self) -> Vec<Label> {
        Vec::new()
    }
}
