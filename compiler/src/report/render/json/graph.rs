//! The execution graph in a plan report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compile::Compilation;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphReport {
    pub nodes: Vec<String>,
    pub edges: Vec<EdgeReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EdgeReport {
    pub from: String,
    pub outcome: String,
    pub to: String,
}

/// Builds the execution graph of a plan.
pub fn report_graph(compilation: &Compilation) -> GraphReport {
    let graph = &compilation.plan.graph.0;
    let edges = graph.iter().flat_map(|(from, out)| {
        out.iter().map(|(outcome, to)| EdgeReport {
            from: from.to_string(),
            outcome: outcome.to_string(),
            to: to.to_string(),
        })
    });
    GraphReport { nodes: graph.keys().map(ToString::to_string).collect(), edges: edges.collect() }
}
