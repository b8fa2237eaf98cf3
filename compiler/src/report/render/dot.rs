//! Renders a drawing as Graphviz DOT.

use std::fmt::Write as _;

use crate::drawing::{Drawing, LineStyle, NodeShape, one_line};

/// Renders a drawing, one statement per line.
pub fn render(drawing: &Drawing) -> String {
    let name = &drawing.name;
    let direction = if drawing.is_horizontal { "LR" } else { "TB" };
    let mut out = format!("digraph {name} {{\n  rankdir={direction};\n  node [shape=box, fontname=\"sans-serif\"];\n");
    for node in &drawing.nodes {
        let shape = match node.shape {
            NodeShape::Box => "box",
            NodeShape::Oval => "oval",
            NodeShape::Diamond => "diamond",
            NodeShape::Component => "component",
        };
        let label = if node.label == node.id { String::new() } else { format!(", label=\"{}\"", quoted(&node.label)) };
        push_line(&mut out, &format!("  \"{}\" [shape={shape}{label}];", quoted(&node.id)));
    }
    for edge in &drawing.edges {
        let (Some(from), Some(to)) = (drawing.nodes.get(edge.from), drawing.nodes.get(edge.to)) else { continue };
        let style = match edge.line {
            LineStyle::Solid => "",
            LineStyle::Dashed => ", style=dashed",
        };
        let label = quoted(&edge.label);
        push_line(
            &mut out,
            &format!("  \"{}\" -> \"{}\" [label=\"{label}\"{style}];", quoted(&from.id), quoted(&to.id)),
        );
    }
    out.push_str("}\n");
    out
}

fn quoted(text: &str) -> String {
    one_line(text).replace('\\', "\\\\").replace('"', "\\\"")
}

pub(super) fn push_line(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    writeln!(out, "{text}").ok();
}
