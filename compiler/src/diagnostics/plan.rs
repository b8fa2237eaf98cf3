//! `plan::*`: graphs that break one of the four laws. No source text can cause them; they guard the compiler itself,
//! and plans that were stored by another version or edited by hand.

use thiserror::Error;

use super::{Label, Problem};

/// Nodes and outcomes are named as the plan prints them.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// `problem` says what is wrong with the outcome: "has no edge for the outcome".
    #[error("the node `{node}` {problem} `{outcome}`")]
    NotTotal { node: String, problem: &'static str, outcome: String },
    /// `lost` says which way it is cut off: "be reached from the start", "reach the finish".
    #[error("the node `{node}` cannot {lost}")]
    Unreachable { node: String, lost: &'static str },
    /// `why` says which half of the law is broken: "passes no limit" or "uses up nothing" (decision 0002).
    #[error("a circle {why}: {}", circle.join(" → "))]
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
        Some("no file causes this: please report it with the directive that did".into())
    }

    fn labels(&self) -> Vec<Label> {
        Vec::new()
    }
}
