//! Renders a drawing as Mermaid, for Markdown pages.

use super::dot::push_line;
use crate::drawing::{Drawing, LineStyle, NodeShape, one_line};

pub fn render(drawing: &Drawing) -> String {
    let mut out = format!("flowchart {}\n", if drawing.is_horizontal { "LR" } else { "TD" });
    let names = drawing.identifiers();
    for (node, name) in drawing.nodes.iter().zip(&names) {
        let (open, close) = match node.shape {
            NodeShape::Oval => ("([", "])"),
            NodeShape::Component => ("[[", "]]"),
            NodeShape::Diamond => ("{", "}"),
            NodeShape::Box => ("[", "]"),
        };
        push_line(&mut out, &format!("  {name}{open}\"{}\"{close}", escape_mermaid(&node.label)));
    }
    for edge in &drawing.edges {
        let (Some(from), Some(to)) = (names.get(edge.from), names.get(edge.to)) else { continue };
        let arrow = match edge.line {
            LineStyle::Solid => "-->",
            LineStyle::Dashed => "-.->",
        };
        let label = escape_mermaid(&edge.label);
        if label.is_empty() {
            push_line(&mut out, &format!("  {from} {arrow} {to}"));
        } else {
            push_line(&mut out, &format!("  {from} {arrow}|{label}| {to}"));
        }
    }
    out
}

/// Escapes characters that have a meaning in Mermaid as `#code;`.
fn escape_mermaid(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || " ._-/:,*()·×→…".contains(c);
    one_line(text).chars().map(|c| if plain(c) { c.to_string() } else { format!("#{};", u32::from(c)) }).collect()
}
