//! Layout of a drawing. A depth-first walk in drawing order reverses each edge that closes a cycle. Every box gets a
//! layer below the layers of all its predecessors. An edge that spans several layers gets a bend point in each layer
//! between its ends. `rust-sugiyama` orders the boxes and points of each layer and assigns their positions within the
//! layer.

use std::collections::{BTreeMap, BTreeSet};

use rust_sugiyama::configure::{Config, RankingType};
use rust_sugiyama::from_vertices_and_edges;

use crate::drawing::{Drawing, DrawnEdge, DrawnNode, NodeShape, one_line};

/// Largest number of boxes, edges, or bend points of long edges in one drawing.
pub const MAX_ELEMENTS: usize = 3_000;
/// Height of a box in pixels.
pub const BOX_HEIGHT: f64 = 28.0;
/// Gap between two layers, in pixels.
const LAYER_GAP: f64 = 46.0;
/// Gap in pixels between two layers that are drawn side by side, with room for the edge labels.
const LEFT_TO_RIGHT_LAYER_GAP: f64 = 170.0;
/// Gap between two boxes of a layer, in pixels.
const BOX_GAP: f64 = 26.0;
const MARGIN: f64 = 24.0;
/// Width, in pixels, beyond which the next connected component starts a new row.
const MAX_ROW_WIDTH: f64 = 1_600.0;
/// Width of a character of the font, in pixels.
const CHARACTER_WIDTH: f64 = 7.3;
const MAX_LABEL_CHARS: usize = 44;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the graph is too large for SVG; use `--to dot` with Graphviz, or narrow it to one directive")]
pub struct DrawingTooLarge;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
}

/// The layout of a drawing: centers of boxes and points of edges, in the drawing's order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DrawingLayout {
    pub nodes: Vec<Point>,
    /// The points of each edge; empty for an edge whose ends do not exist.
    pub edges: Vec<Vec<Point>>,
    pub width: f64,
    pub height: f64,
}

/// Returns the text written into a box.
pub(crate) fn label_of(node: &DrawnNode) -> String {
    truncate_start(&one_line(&node.label), MAX_LABEL_CHARS)
}

pub fn truncate_start(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    // The end of an id is more specific than its start.
    let tail: String = text.chars().rev().take(most - 1).collect::<Vec<_>>().into_iter().rev().collect();
    format!("…{tail}")
}

/// Shortens an edge label to at most `most` characters. Keeps the start, which names the kind of the edge.
pub fn truncate_end(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    format!("{}…", text.chars().take(most.saturating_sub(1)).collect::<String>())
}

/// Returns the width of a text in pixels.
pub fn text_width(text: &str) -> f64 {
    f64::from(u32::try_from(text.chars().count()).unwrap_or(u32::MAX)) * CHARACTER_WIDTH
}

pub fn box_width(node: &DrawnNode) -> f64 {
    let padding = match node.shape {
        NodeShape::Box => 20.0,
        NodeShape::Oval | NodeShape::Component => 28.0,
        NodeShape::Diamond => 38.0,
    };
    text_width(&label_of(node)) + padding
}

/// Computes the positions of the boxes and edges of a drawing.
///
/// # Errors
/// Fails if the drawing is too large.
pub fn lay_out(drawing: &Drawing) -> Result<DrawingLayout, DrawingTooLarge> {
    let count = drawing.nodes.len();
    if count > MAX_ELEMENTS || drawing.edges.len() > MAX_ELEMENTS {
        return Err(DrawingTooLarge);
    }
    let forward = acyclic_edges(drawing);
    let layers = layers(count, &forward);
    let routes = routes(count, &forward, &layers)?;
    let mut widths: Vec<f64> = drawing.nodes.iter().map(box_width).collect();
    widths.resize(count + routes.points, 4.0);
    // Size of each box and bend point along its layer.
    let mut spans = widths.clone();
    if drawing.is_horizontal {
        spans.iter_mut().take(count).for_each(|span| *span = BOX_HEIGHT);
    }
    let layer_of =
        |vertex: usize| layers.get(vertex).or_else(|| routes.layers.get(vertex - count)).copied().unwrap_or(0);
    let starts = starts(drawing, &layers);
    let (across, parts) = columns(&spans, &routes.steps);
    let mut points = vec![Point::default(); widths.len()];
    // `beside` is the start of the next component in the current row, `below` the start of the row, `row_depth` the
    // depth of the row, and `reach` the end of the longest row.
    let (mut beside, mut below, mut row_depth, mut reach) = (MARGIN, MARGIN, 0.0f64, 0.0f64);
    for part in parts {
        let edge = |v: &usize, sign: f64| Some(across.get(v)? + sign * spans.get(*v)? / 2.0);
        let low = part.iter().filter_map(|v| edge(v, -1.0)).fold(f64::INFINITY, f64::min);
        let high = part.iter().filter_map(|v| edge(v, 1.0)).fold(f64::NEG_INFINITY, f64::max);
        let deepest = part.iter().map(|v| layer_of(*v)).max().unwrap_or(0);
        if beside > MARGIN && beside + high - low > MAX_ROW_WIDTH {
            (beside, below, row_depth) = (MARGIN, below + row_depth + LAYER_GAP, 0.0);
        }
        for vertex in &part {
            let Some(layer) = starts.get(layer_of(*vertex)) else { continue };
            if let (Some(point), Some(at)) = (points.get_mut(*vertex), across.get(vertex)) {
                let (along, deep) = (beside + at - low, below + layer.middle);
                *point = if drawing.is_horizontal { Point { x: deep, y: along } } else { Point { x: along, y: deep } };
            }
        }
        reach = reach.max(beside + high - low);
        beside += high - low + BOX_GAP;
        row_depth = row_depth.max(starts.get(deepest).map_or(0.0, |layer| layer.end));
    }
    let nodes: Vec<Point> = points.iter().take(count).copied().collect();
    let way = |i: usize| routes.ways.get(i).map_or(&[][..], Vec::as_slice);
    let route = |(i, edge): (usize, &DrawnEdge)| edge_points((edge.from, edge.to), way(i), &points, &widths, drawing);
    let mut edges: Vec<Vec<Point>> = drawing.edges.iter().enumerate().map(route).collect();
    spread_parallel_edges(drawing, &mut edges);
    let (width, height) = if drawing.is_horizontal { (below + row_depth, reach) } else { (reach, below + row_depth) };
    let loops = edges.iter().flatten().map(|p| p.x).fold(width, f64::max);
    Ok(DrawingLayout { nodes, edges, width: loops + MARGIN, height: height + MARGIN })
}

/// The middle and the end of a layer along the drawing's direction, in pixels from the start of the connected
/// component.
struct LayerPosition {
    middle: f64,
    end: f64,
}

/// Returns the position of each layer along the drawing's direction. A layer is as deep in this direction as its
/// deepest box.
fn starts(drawing: &Drawing, layers: &[usize]) -> Vec<LayerPosition> {
    let count = layers.iter().max().map_or(0, |deepest| deepest + 1);
    let mut depths = vec![BOX_HEIGHT; count];
    if drawing.is_horizontal {
        for (node, layer) in drawing.nodes.iter().zip(layers) {
            if let Some(depth) = depths.get_mut(*layer) {
                *depth = depth.max(box_width(node));
            }
        }
    }
    let gap = if drawing.is_horizontal { LEFT_TO_RIGHT_LAYER_GAP } else { LAYER_GAP };
    let mut at = 0.0;
    let mut starts = Vec::with_capacity(count);
    for depth in depths {
        starts.push(LayerPosition { middle: at + depth / 2.0, end: at + depth });
        at += depth + gap;
    }
    starts
}

/// Returns the two nodes of each edge, in the order of the layers. An edge that closes a cycle is reversed, so that no
/// cycle remains. `None` for an edge from a node to itself, and for an edge with an end that does not exist.
fn acyclic_edges(drawing: &Drawing) -> Vec<Option<(usize, usize)>> {
    let count = drawing.nodes.len();
    let mut out: Vec<Vec<(usize, usize)>> = vec![Vec::new(); count];
    for (i, edge) in drawing.edges.iter().enumerate() {
        if let Some(list) = out.get_mut(edge.from)
            && edge.to < count
            && edge.from != edge.to
        {
            list.push((edge.to, i));
        }
    }
    let mut forward = vec![None; drawing.edges.len()];
    // 0: not visited, 1: on the current path, 2: done.
    let mut state = vec![0u8; count];
    for root in 0..count {
        let mut stack = vec![(root, 0usize)];
        if state.get(root) != Some(&0) {
            continue;
        }
        set(&mut state, root, 1);
        while let Some((node, next)) = stack.pop() {
            let Some(&(to, edge)) = out.get(node).and_then(|list| list.get(next)) else {
                set(&mut state, node, 2);
                continue;
            };
            stack.push((node, next + 1));
            let closes = state.get(to) == Some(&1);
            if let Some(slot) = forward.get_mut(edge) {
                *slot = Some(if closes { (to, node) } else { (node, to) });
            }
            if state.get(to) == Some(&0) {
                set(&mut state, to, 1);
                stack.push((to, 0));
            }
        }
    }
    forward
}

fn set(state: &mut [u8], at: usize, value: u8) {
    if let Some(slot) = state.get_mut(at) {
        *slot = value;
    }
}

/// Returns the layer of each of the `count` boxes: the length of the longest path that leads to the box. `forward` is
/// the result of `acyclic_edges`.
fn layers(count: usize, forward: &[Option<(usize, usize)>]) -> Vec<usize> {
    let mut into = vec![0usize; count];
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (from, to) in forward.iter().flatten() {
        if let (Some(n), Some(list)) = (into.get_mut(*to), out.get_mut(*from)) {
            *n += 1;
            list.push(*to);
        }
    }
    let mut layers = vec![0usize; count];
    let mut free: Vec<usize> = (0..count).filter(|n| into.get(*n) == Some(&0)).collect();
    while let Some(node) = free.pop() {
        let below = layers.get(node).copied().unwrap_or(0) + 1;
        for to in out.get(node).into_iter().flatten() {
            if let (Some(layer), Some(n)) = (layers.get_mut(*to), into.get_mut(*to)) {
                *layer = (*layer).max(below);
                *n -= 1;
                if *n == 0 {
                    free.push(*to);
                }
            }
        }
    }
    layers
}

/// The routes of all edges through the layers of a drawing.
struct EdgeRoutes {
    /// For each edge, the vertex indexes of its bend points, from its upper end to its lower end.
    ways: Vec<Vec<usize>>,
    steps: Vec<(usize, usize)>,
    /// The layer of each bend point, in the order of the vertex indexes.
    layers: Vec<usize>,
    points: usize,
}

fn routes(count: usize, forward: &[Option<(usize, usize)>], layers: &[usize]) -> Result<EdgeRoutes, DrawingTooLarge> {
    let mut routes = EdgeRoutes { ways: Vec::new(), steps: Vec::new(), layers: Vec::new(), points: 0 };
    let mut known = BTreeSet::new();
    for edge in forward {
        let mut way = Vec::new();
        if let Some((from, to)) = edge {
            let (top, bottom) = (layers.get(*from).copied().unwrap_or(0), layers.get(*to).copied().unwrap_or(0));
            let mut last = *from;
            for layer in top + 1..bottom {
                let point = count + routes.points;
                routes.points += 1;
                if routes.points > MAX_ELEMENTS {
                    return Err(DrawingTooLarge);
                }
                routes.layers.push(layer);
                routes.steps.push((last, point));
                way.push(point);
                last = point;
            }
            // Parallel edges between two boxes count once for the layout.
            if known.insert((last, *to)) {
                routes.steps.push((last, *to));
            }
        }
        routes.ways.push(way);
    }
    Ok(routes)
}

/// Returns the position of each vertex within its layer, in pixels from the start of its connected component. Also
/// returns the components, each as a list of vertices, in the order of their first vertices. `steps` are pairs of
/// connected vertices, and `widths` are the widths of all vertices.
fn columns(widths: &[f64], steps: &[(usize, usize)]) -> (BTreeMap<usize, f64>, Vec<Vec<usize>>) {
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let linked: BTreeSet<usize> = steps.iter().flat_map(|(a, b)| [*a, *b]).collect();
    let vertices: Vec<(u32, (f64, f64))> =
        linked.iter().filter_map(|v| Some((small(*v), (*widths.get(*v)?, BOX_HEIGHT)))).collect();
    let edges: Vec<(u32, u32)> = steps.iter().map(|(a, b)| (small(*a), small(*b))).collect();
    let config = Config {
        vertex_spacing: BOX_GAP,
        ranking_type: RankingType::Up,
        transpose: linked.len() < 400,
        ..Config::default()
    };
    let mut across = BTreeMap::new();
    let mut parts: Vec<Vec<usize>> = Vec::new();
    if !edges.is_empty() {
        for (part, _, _) in from_vertices_and_edges(&vertices, &edges, &config) {
            let mut inside: Vec<usize> = part.iter().map(|(vertex, _)| *vertex).collect();
            across.extend(part.into_iter().map(|(vertex, (x, _))| (vertex, x)));
            inside.sort_unstable();
            parts.push(inside);
        }
    }
    for island in (0..widths.len()).filter(|v| !linked.contains(v)) {
        across.insert(island, 0.0);
        parts.push(vec![island]);
    }
    parts.sort_by_key(|part| part.first().copied());
    (across, parts)
}

/// Shifts the edges between the same two boxes, so that each edge has its own line. The shifts are small enough that
/// all lines still end at the smallest possible box.
fn spread_parallel_edges(drawing: &Drawing, edges: &mut [Vec<Point>]) {
    let mut parallel: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for (i, edge) in drawing.edges.iter().enumerate().filter(|(_, edge)| edge.from != edge.to) {
        parallel.entry((edge.from.min(edge.to), edge.from.max(edge.to))).or_default().push(i);
    }
    let (gap, most) = if drawing.is_horizontal { (6.0, 20.0) } else { (10.0, 24.0) };
    for list in parallel.into_values().filter(|list| list.len() > 1) {
        let gaps = f64::from(u32::try_from(list.len() - 1).unwrap_or(u32::MAX));
        let gap = (most / gaps).min(gap);
        let mut shift = -gap * gaps / 2.0;
        for edge in list {
            for point in edges.get_mut(edge).into_iter().flatten() {
                *(if drawing.is_horizontal { &mut point.y } else { &mut point.x }) += shift;
            }
            shift += gap;
        }
    }
}

/// Returns the points of one edge, from the border of its first box to the border of its second box; empty if a box
/// does not exist. `way` holds the indexes of the bend points in `points`.
fn edge_points(ends: (usize, usize), way: &[usize], points: &[Point], widths: &[f64], drawing: &Drawing) -> Vec<Point> {
    let (from, to) = ends;
    let count = drawing.nodes.len();
    if from >= count || to >= count {
        return Vec::new();
    }
    let (Some(a), Some(b)) = (points.get(from), points.get(to)) else { return Vec::new() };
    let half_width = |at: usize| widths.get(at).copied().unwrap_or(0.0) / 2.0;
    if from == to {
        let (right, out) = (a.x + half_width(from), a.x + half_width(from) + 18.0);
        return vec![
            Point { x: right, y: a.y - 6.0 },
            Point { x: out, y: a.y - 6.0 },
            Point { x: out, y: a.y + 6.0 },
            Point { x: out, y: a.y + 6.0 },
            Point { x: right, y: a.y + 6.0 },
        ];
    }
    let is_ahead = if drawing.is_horizontal { b.x >= a.x } else { b.y >= a.y };
    let sign = if is_ahead { 1.0 } else { -1.0 };
    let side = |at: usize, point: &Point, sign: f64| {
        if drawing.is_horizontal {
            Point { x: point.x + sign * half_width(at), y: point.y }
        } else {
            Point { x: point.x, y: point.y + sign * BOX_HEIGHT / 2.0 }
        }
    };
    let mut route = vec![side(from, a, sign)];
    let mut between: Vec<Point> = way.iter().filter_map(|v| points.get(*v).copied()).collect();
    if !is_ahead {
        between.reverse();
    }
    route.extend(between);
    route.push(side(to, b, -sign));
    route
}
