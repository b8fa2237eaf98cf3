//! Checks that each output that a body reads from its children exists: `result.outputs.url`, `${outputs.url}`,
//! `outputs["url"]`. The outputs are checked only if the body names every child, because an unnamed child could return
//! any output.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::LazyLock;

use regex::Regex;
use rye_grammar::{ItemId, Span};

use super::graph::SpawnGraph;
use super::{SpawnEdge, SpawnRoute, SpawnSource};
use crate::diagnostics::{Diagnostics, SpawnError, closest};

static OUTPUT_READ: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?:(?:\$\{|[A-Za-z0-9_\])]\.)outputs\.([A-Za-z_][A-Za-z0-9_]*))|outputs\[["']([A-Za-z_][A-Za-z0-9_]*)["']\]"#)
        .ok()
});

/// File extensions. A name with one of them, such as `outputs.json`, is the name of a file and not of an output.
const EXTENSIONS: [&str; 9] = ["csv", "html", "json", "log", "md", "toml", "txt", "yaml", "yml"];

pub fn check(graph: &SpawnGraph<'_>, found: &mut Diagnostics) {
    for node in &graph.nodes {
        for link in node.links.iter().filter(|link| !link.open) {
            // A hook file also applies to directives whose authors may not know the file. A route on which only such
            // hooks start children is therefore not checked.
            let is_theirs =
                |start: &SpawnEdge| matches!(start.by, SpawnSource::Body { .. } | SpawnSource::Hook { own: true, .. });
            if !link.starts.iter().any(is_theirs) {
                continue;
            }
            let read = read_outputs(link);
            if read.is_empty() {
                continue;
            }
            let edges = || node.edges.iter().filter(|edge| std::ptr::eq(edge.link, Rc::as_ptr(link)));
            let children: BTreeSet<&ItemId> = edges().map(|edge| &edge.start.to).collect();
            let known: Option<BTreeMap<usize, _>> = edges().map(|e| Some((e.child?, graph.child(e)?))).collect();
            let Some(known) = known else { continue };
            let of =
                |link: &Rc<SpawnRoute>| link.chain.iter().flat_map(|l| l.outputs.keys().cloned()).collect::<Vec<_>>();
            let declared: BTreeSet<String> = known.into_values().flatten().flat_map(of).collect();
            let own = of(link);
            for (name, span) in read {
                if declared.contains(&name) || own.contains(&name) {
                    continue;
                }
                found.push(SpawnError::UnknownOutput {
                    parent: node.id.to_string(),
                    suggestion: closest(&name, declared.iter().map(String::as_str)),
                    name,
                    children: children.iter().map(ToString::to_string).collect(),
                    span,
                    declared: declared.iter().cloned().collect(),
                });
            }
        }
    }
}

/// Returns the name and the span of every output of a child that the body of a directive reads. `link` is a route of
/// the directive. Returns nothing if the text of the body differs from the text in the file, because the spans in the
/// file are then unknown.
fn read_outputs(link: &SpawnRoute) -> Vec<(String, Span)> {
    let (Some(leaf), Some(read)) = (link.chain.last(), OUTPUT_READ.as_ref()) else { return Vec::new() };
    let body = &leaf.body;
    if body.span.len() != body.node.len() || !body.node.contains("outputs") {
        return Vec::new();
    }
    let names = read.captures_iter(&body.node).filter_map(|found| found.get(1).or_else(|| found.get(2)));
    names
        .filter(|name| !EXTENSIONS.contains(&name.as_str()))
        .map(|name| {
            let at = body.span.range().start;
            (name.as_str().to_owned(), Span::new(body.span.source, at + name.start(), at + name.end()))
        })
        .collect()
}
