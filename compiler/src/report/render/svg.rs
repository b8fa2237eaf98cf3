//! Renders a drawing as SVG without external programs. Layers run from top to bottom, or from left to right if the
//! drawing is horizontal. Long edges are routed around the boxes between their ends. Connected components are placed
//! side by side.

mod labels;
mod layout;

use std::fmt::Write as _;

use crate::drawing::{Drawing, DrawnEdge, DrawnNode, LineStyle, NodeShape, one_line};
use labels::{LABEL_HEIGHT, PlacedLabel, place_labels};
pub use layout::DrawingTooLarge;
pub(crate) use layout::label_of;
use layout::{Point, lay_out};

/// Renders a whole `<svg>` document. Colors follow the reader's color scheme.
///
/// # Errors
/// Fails if the drawing has too many boxes or edges to be readable.
pub fn render(drawing: &Drawing) -> Result<String, DrawingTooLarge> {
    let placed = lay_out(drawing)?;
    let (width, height) = (placed.width.ceil(), placed.height.ceil());
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n<style>{STYLE}</style>\n{ARROW}\n",
        escape_xml(&drawing.name)
    );
    for (edge, path) in drawing.edges.iter().zip(&placed.edges) {
        write_arrow(&mut out, edge, path, drawing.is_horizontal);
    }
    for (node, at) in drawing.nodes.iter().zip(&placed.nodes) {
        write_shape(&mut out, node, *at);
    }
    // Labels are drawn last, so that no edge crosses them.
    for (edge, label) in drawing.edges.iter().zip(place_labels(drawing, &placed)) {
        if let Some(label) = label {
            write_edge_label(&mut out, edge, &label);
        }
    }
    out.push_str("</svg>\n");
    Ok(out)
}

const ARROW: &str = "<defs><marker id=\"rye-arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto-start-reverse\"><path d=\"M0 0L8 4L0 8z\" class=\"head\"/></marker></defs>";

/// The style sheet of a drawing. Colors have no CSS variables, because many programs that show SVG do not support them.
const STYLE: &str = "svg{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}\
.edge{fill:none;stroke:#8a92a6;stroke-width:1.3}.dashed{stroke-dasharray:5 4}.head{fill:#8a92a6}\
.node{stroke:#8a92a6;stroke-width:1}text{fill:#1f2430;text-anchor:middle;dominant-baseline:central}\
.word{font-size:10px}.back{fill:#ffffff;opacity:.85}\
.step{fill:#eef1f6}.decision{fill:#fdf1d8}.hook{fill:#e9e2fb}.directive{fill:#dcebfd}.knowledge{fill:#def3e4}.tool{fill:#fde4dc}.pattern{fill:#f6f6f6}.far{fill:#ececec}\
@media(prefers-color-scheme:dark){.edge,.node{stroke:#788199}.head{fill:#788199}text{fill:#e6e8ee}.back{fill:#15181f}\
.step{fill:#262b36}.decision{fill:#40361d}.hook{fill:#332a4d}.directive{fill:#1d3350}.knowledge{fill:#1d3a28}.tool{fill:#472a20}.pattern{fill:#22252c}.far{fill:#2c2c2c}}";

fn write_shape(out: &mut String, node: &DrawnNode, at: Point) {
    let (x, y) = (at.x, at.y);
    let (width, height) = (layout::box_width(node), layout::BOX_HEIGHT);
    let (left, top) = (x - width / 2.0, y - height / 2.0);
    let class = node.group.css_class();
    let full = escape_xml(&node.label);
    write!(out, "<g><title>{full}</title>").ok();
    match node.shape {
        NodeShape::Box | NodeShape::Component => {
            write!(out, "<rect class=\"node {class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"4\"/>").ok();
        }
        NodeShape::Oval => {
            let radius = height / 2.0;
            write!(out, "<rect class=\"node {class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{radius:.1}\"/>").ok();
        }
        NodeShape::Diamond => {
            let (right, bottom) = (left + width, top + height);
            let cut = height / 2.0;
            write!(out, "<path class=\"node {class}\" d=\"M{:.1} {top:.1}H{:.1}L{right:.1} {y:.1}L{:.1} {bottom:.1}H{:.1}L{left:.1} {y:.1}z\"/>", left + cut, right - cut, right - cut, left + cut).ok();
        }
    }
    if node.shape == NodeShape::Component {
        let bottom = top + height;
        write!(
            out,
            "<path class=\"edge\" d=\"M{:.1} {top:.1}V{bottom:.1}M{:.1} {top:.1}V{bottom:.1}\"/>",
            left + 6.0,
            left + width - 6.0
        )
        .ok();
    }
    writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text></g>", escape_xml(&label_of(node))).ok();
}

/// Draws an edge as a smooth line through its points. At its boxes, the line runs in the direction of the layers.
fn write_arrow(out: &mut String, edge: &DrawnEdge, path: &[Point], is_horizontal: bool) {
    let Some((first, rest)) = path.split_first() else { return };
    let mut d = format!("M{:.1} {:.1}", first.x, first.y);
    let mut last = *first;
    for point in rest {
        let (x, y) = (point.x, point.y);
        if edge.from == edge.to {
            write!(d, "L{x:.1} {y:.1}").ok();
        } else if is_horizontal {
            let bend = (x - last.x) / 2.0;
            write!(d, "C{:.1} {:.1} {:.1} {y:.1} {x:.1} {y:.1}", last.x + bend, last.y, x - bend).ok();
        } else {
            let bend = (y - last.y) / 2.0;
            write!(d, "C{:.1} {:.1} {x:.1} {:.1} {x:.1} {y:.1}", last.x, last.y + bend, y - bend).ok();
        }
        last = *point;
    }
    let dashed = match edge.line {
        LineStyle::Solid => "",
        LineStyle::Dashed => " dashed",
    };
    writeln!(out, "<path class=\"edge{dashed}\" d=\"{d}\" marker-end=\"url(#rye-arrow)\"/>").ok();
}

/// Writes the label of an edge at its place.
fn write_edge_label(out: &mut String, edge: &DrawnEdge, label: &PlacedLabel) {
    let (x, y, width) = (label.area.center.x, label.area.center.y, label.area.width);
    writeln!(
        out,
        "<g><title>{}</title><rect class=\"back\" x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{LABEL_HEIGHT}\" rx=\"2\"/><text class=\"word\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text></g>",
        escape_xml(&edge.label),
        x - width / 2.0,
        y - LABEL_HEIGHT / 2.0,
        escape_xml(&label.text)
    )
    .ok();
}

/// Escapes text for XML.
pub(super) fn escape_xml(text: &str) -> String {
    one_line(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::drawing::NodeGroup;

    fn drawing(count: usize, edges: &[(usize, usize)]) -> Drawing {
        let node = |i: usize| DrawnNode {
            id: format!("n{i}"),
            label: format!("node <{i}>"),
            shape: NodeShape::Box,
            group: NodeGroup::Step,
        };
        let edge = |&(from, to): &(usize, usize)| DrawnEdge { from, to, label: "x & y".into(), line: LineStyle::Solid };
        Drawing {
            name: "t".into(),
            is_horizontal: false,
            nodes: (0..count).map(node).collect(),
            edges: edges.iter().map(edge).collect(),
        }
    }

    /// Returns the pairs of boxes that overlap.
    fn overlapping(drawing: &Drawing) -> Vec<(usize, usize)> {
        let placed = lay_out(drawing).unwrap();
        let mut found = Vec::new();
        for (i, a) in placed.nodes.iter().enumerate() {
            for (j, b) in placed.nodes.iter().enumerate().skip(i + 1) {
                let wide = drawing.nodes.get(i).map_or(0.0, layout::box_width)
                    + drawing.nodes.get(j).map_or(0.0, layout::box_width);
                if (a.x - b.x).abs() < wide / 2.0 && (a.y - b.y).abs() < layout::BOX_HEIGHT {
                    found.push((i, j));
                }
            }
        }
        found
    }

    #[test]
    fn two_hundred_boxes_do_not_overlap() {
        let mut edges = Vec::new();
        let mut seed = 7usize;
        for i in 1..200 {
            seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            edges.push(((seed >> 16) % i, i));
            if i % 5 == 0 {
                edges.push((i, (seed >> 8) % i));
            }
        }
        for is_horizontal in [false, true] {
            two_hundred(&Drawing { is_horizontal, ..drawing(230, &edges) });
        }
    }

    fn two_hundred(drawing: &Drawing) {
        assert_eq!(overlapping(drawing), []);
        let placed = lay_out(drawing).unwrap();
        for (node, at) in drawing.nodes.iter().zip(&placed.nodes) {
            let half = layout::box_width(node) / 2.0;
            assert!(at.x >= half && at.x + half <= placed.width && at.y > 0.0 && at.y < placed.height, "{at:?}");
        }
        let labels: Vec<_> = place_labels(drawing, &placed).into_iter().flatten().collect();
        assert_eq!(labels.len(), drawing.edges.len());
        for (i, label) in labels.iter().enumerate() {
            let covering = |other: &&PlacedLabel| label.area.shared_with(&other.area) > 0.0;
            assert_eq!(labels.iter().skip(i + 1).find(covering), None, "{label:?}");
        }
        let svg = render(drawing).unwrap();
        assert_eq!(svg, render(drawing).unwrap(), "the same bytes each time");
        assert_eq!(svg.matches("marker-end").count(), drawing.edges.len());
        assert!(svg.contains("node &lt;7&gt;") && !svg.contains("node <"));
    }

    #[test]
    fn labels_of_edges_between_the_same_boxes_stand_apart() {
        let mut drawing = drawing(3, &[(0, 1), (0, 1), (0, 1), (1, 0), (0, 2), (1, 2)]);
        for is_horizontal in [false, true] {
            drawing.is_horizontal = is_horizontal;
            let placed = lay_out(&drawing).unwrap();
            let lines: std::collections::BTreeSet<String> =
                placed.edges.iter().map(|path| format!("{path:?}")).collect();
            assert_eq!(lines.len(), drawing.edges.len(), "each edge has its own line");
            let labels: Vec<_> = place_labels(&drawing, &placed).into_iter().flatten().collect();
            for (i, label) in labels.iter().enumerate() {
                let covering = |other: &&PlacedLabel| label.area.shared_with(&other.area) > 0.0;
                assert_eq!(labels.iter().skip(i + 1).find(covering), None, "{label:?}");
            }
        }
    }

    #[test]
    fn colors_need_no_css_variables_and_follow_the_color_scheme() {
        let svg = render(&drawing(2, &[(0, 1)])).unwrap();
        assert!(!svg.contains("var(") && svg.contains("@media(prefers-color-scheme:dark)"), "{svg}");
        assert!(svg.contains(".step{fill:#eef1f6}") && svg.contains(".step{fill:#262b36}"), "{svg}");
    }

    #[test]
    fn cycles_loops_and_isolated_nodes_are_drawn() {
        for (count, edges) in [
            (0, &[][..]),
            (1, &[]),
            (1, &[(0, 0)]),
            (3, &[(0, 1), (1, 2), (2, 0)]),
            (4, &[(0, 1), (2, 2), (1, 0), (0, 1)]),
            (3, &[(0, 7), (9, 1)]),
        ] {
            let drawing = drawing(count, edges);
            assert_eq!(overlapping(&drawing), []);
            assert!(render(&drawing).unwrap().ends_with("</svg>\n"), "{edges:?}");
        }
    }

    #[test]
    fn long_edge_labels_keep_their_beginning() {
        assert_eq!(layout::truncate_end("extends: hook route_deploy", 14), "extends: hook…");
        assert_eq!(layout::truncate_end("extends", 7), "extends");
    }

    #[test]
    fn too_large_drawings_are_rejected() {
        assert_eq!(render(&drawing(layout::MAX_ELEMENTS + 1, &[])), Err(DrawingTooLarge));
        let dense: Vec<(usize, usize)> = (0..100).flat_map(|i| (0..100).map(move |j| (i, j))).collect();
        assert_eq!(render(&drawing(100, &dense)), Err(DrawingTooLarge));
    }
}
