//! Places of edge labels: a label stands on its edge, or beside the edge if another label or a box is in the way.

use std::collections::BTreeMap;

use super::layout::{BOX_HEIGHT, DrawingLayout, Point, box_width, text_width, truncate_end};
use crate::drawing::{Drawing, DrawnEdge, one_line};

/// Height of a label in pixels.
pub const LABEL_HEIGHT: f64 = 13.0;
/// Positions of a label between two points of its edge, as fractions of the distance, the preferred one first.
const PARTS_OF_WAY: [f64; 5] = [0.5, 0.3, 0.7, 0.15, 0.85];
/// Distances of a label from its edge, as multiples of the label's width, or of twice its height if the drawing is
/// horizontal. The preferred distance is the first.
const WIDTHS_ASIDE: [f64; 5] = [0.0, 0.55, -0.55, 1.1, -1.1];

/// A shortened edge label and the rectangle that it fills.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedLabel {
    pub text: String,
    pub area: Area,
}

/// A rectangle with its center and its size, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Area {
    pub center: Point,
    pub width: f64,
    pub height: f64,
}

impl Area {
    /// Returns the area that two rectangles share, in square pixels.
    pub fn shared_with(&self, other: &Self) -> f64 {
        let wide = f64::midpoint(self.width, other.width) - (self.center.x - other.center.x).abs();
        let high = f64::midpoint(self.height, other.height) - (self.center.y - other.center.y).abs();
        wide.max(0.0) * high.max(0.0)
    }
}

/// Rectangles of a drawing, by the rows of pixels that they touch.
#[derive(Default)]
struct ObstacleGrid(BTreeMap<i64, Vec<Area>>);

impl ObstacleGrid {
    fn rows_of(area: &Area) -> std::ops::RangeInclusive<i64> {
        let row = |y: f64| {
            #[allow(clippy::cast_possible_truncation, reason = "a drawing has fewer rows than an i64 has values")]
            let row = (y / BOX_HEIGHT).floor() as i64;
            row
        };
        row(area.center.y - area.height / 2.0)..=row(area.center.y + area.height / 2.0)
    }

    fn insert(&mut self, area: Area) {
        for row in Self::rows_of(&area) {
            self.0.entry(row).or_default().push(area);
        }
    }

    /// Returns the area of `area` that the rectangles cover, in square pixels. An area that several rectangles cover
    /// counts several times.
    fn covered(&self, area: &Area) -> f64 {
        let rows = Self::rows_of(area).filter_map(|row| self.0.get(&row));
        rows.flatten().map(|other| area.shared_with(other)).sum()
    }
}

/// Places the labels of all edges; `None` for an edge without a label or without a line. Each label takes the first
/// position that no box and no earlier label covers. If there is no such position, the label takes the position with
/// the smallest covered area.
pub fn place_labels(drawing: &Drawing, placed: &DrawingLayout) -> Vec<Option<PlacedLabel>> {
    let mut obstacles = ObstacleGrid::default();
    for (node, at) in drawing.nodes.iter().zip(&placed.nodes) {
        obstacles.insert(Area { center: *at, width: box_width(node), height: BOX_HEIGHT });
    }
    let most = if drawing.is_horizontal { 24 } else { 34 };
    let label = |(edge, path): (&DrawnEdge, &Vec<Point>)| {
        if edge.label.is_empty() || path.len() < 2 {
            return None;
        }
        let text = truncate_end(&one_line(&edge.label), most);
        let width = text_width(&text) * 0.84 + 6.0;
        let area = |center| Area { center, width, height: LABEL_HEIGHT };
        let mut best: Option<(f64, Area)> = None;
        for center in positions(path, width, drawing.is_horizontal) {
            let low = width / 2.0;
            let x = center.x.clamp(low, (placed.width - low).max(low));
            let area = area(Point { x, ..center });
            let covered = obstacles.covered(&area);
            if best.is_none_or(|(least, _)| covered < least) {
                best = Some((covered, area));
            }
            if covered == 0.0 {
                break;
            }
        }
        let (_, area) = best?;
        obstacles.insert(area);
        Some(PlacedLabel { text, area })
    };
    drawing.edges.iter().zip(&placed.edges).map(label).collect()
}

/// Returns the candidate positions of a label, the best first. Positions on the edge precede positions beside the edge,
/// and the middle section of the edge precedes its other sections.
fn positions(path: &[Point], width: f64, is_horizontal: bool) -> Vec<Point> {
    let middle = path.len() / 2;
    let mut parts: Vec<(usize, (Point, Point))> =
        path.windows(2).enumerate().filter_map(|(i, ends)| Some((i + 1, (*ends.first()?, *ends.get(1)?)))).collect();
    parts.sort_by_key(|(end, _)| end.abs_diff(middle));
    let mut found = Vec::new();
    for aside in WIDTHS_ASIDE {
        for (_, (from, to)) in &parts {
            for part in PARTS_OF_WAY {
                let point = on_curve(*from, *to, part, is_horizontal);
                found.push(if is_horizontal {
                    Point { y: point.y + aside * 2.0 * LABEL_HEIGHT, ..point }
                } else {
                    Point { x: point.x + aside * width, ..point }
                });
            }
        }
    }
    found
}

/// Returns a point on the curve from `from` to `to`: the start for the parameter `part` = 0, the end for 1. At both
/// ends, the curve runs in the direction of the layers.
fn on_curve(from: Point, to: Point, part: f64, is_horizontal: bool) -> Point {
    // The curve is a cubic Bézier curve. In the direction of the layers, both control points lie halfway between the
    // ends. Across this direction, each control point lies at its end.
    let rest = 1.0 - part;
    let (start, inner, end) = (rest.powi(3), 3.0 * rest * part, part.powi(3));
    let along = |a: f64, b: f64| start * a + inner * f64::midpoint(a, b) + end * b;
    let across = |a: f64, b: f64| (start + inner * rest) * a + (inner * part + end) * b;
    if is_horizontal {
        Point { x: along(from.x, to.x), y: across(from.y, to.y) }
    } else {
        Point { x: across(from.x, to.x), y: along(from.y, to.y) }
    }
}
