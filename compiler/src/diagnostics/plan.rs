//! `plan::*`: graphs that break one of the four laws. No source text can cause them; they guard the compiler itself.

use thiserror::Error;

use super::{Label, Problem};

/// Nodes and outcomes are named as the plan prints them.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    #[error("the node `{node}` has no edge for the outcome `{outcome}`")]
    NotTotal { node: String, outcome: String },
    /// `lost` says which way it is cut off: "from the start" or "from the end".
    #[error("the node `{node}` cannot be reached {lost}")]
    Unreachable { node: String, lost: &'static str },
    #[error("a circle passes no limit: {}", circle.join(" → "))]
    Unbounded { circle: Vec<String> },
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
        Some("no file causes this: please report it with the directive that did".into())
    }

    fn labels(&self) -> Vec<Label> {
        Vec::new()
    }
}
