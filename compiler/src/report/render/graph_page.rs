//! Renders an item graph as one HTML page. The page contains a drawing of the folders, and a list of every item with
//! its relations. A search field filters the list. The page loads no other file.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::svg::{self, escape_xml as escape};
use crate::item_graph::{DetailLevel, ItemEdge, ItemGraph, ItemNode};

/// Renders the HTML page of an item graph. `detail` is the level of detail of the drawing.
pub fn render(graph: &ItemGraph, detail: DetailLevel, title: &str) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-search'\">\n<title>{0} · graph</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header><h1>{0}</h1><p>{1} items, {2} relations</p></header>\n",
        escape(title),
        graph.nodes.len(),
        graph.edges.len()
    );
    match svg::render(&graph.draw(detail)) {
        Ok(drawn) => {
            writeln!(out, "<div class=\"graph\">{drawn}</div>").ok();
        }
        Err(error) => {
            writeln!(out, "<p>{}</p>", escape(&error.to_string())).ok();
        }
    }
    out.push_str("<p class=\"find\"><label>Search <input id=\"find\" type=\"search\" placeholder=\"part of an id, a kind or a relation\" autocomplete=\"off\"></label> <output id=\"found\"></output></p>\n");
    write_items(&mut out, graph);
    writeln!(out, "<script nonce=\"search\">{SCRIPT}</script>\n</body>\n</html>").ok();
    out
}

const STYLE: &str = ":root{--ink:#1d2230;--dim:#626b80;--paper:#fbfbfd;--card:#fff;--line:#dde1ea;--mark:#0b62c4}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ee;--dim:#98a1b5;--paper:#101318;--card:#171b22;--line:#2b313d;--mark:#7db4ff}}\
*{box-sizing:border-box}body{margin:0 auto;max-width:1280px;padding:24px;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}\
h1{margin:0;font-size:24px}header p{margin:4px 0;color:var(--dim)}.graph{overflow:auto;max-height:75vh;border:1px solid var(--line);border-radius:8px;background:var(--card)}\
.find{position:sticky;top:0;background:var(--paper);padding:8px 0;margin:16px 0 8px}.find input{font:inherit;width:min(420px,70vw);padding:4px 8px}.find output{color:var(--dim);margin-left:8px}\
details{border:1px solid var(--line);border-radius:8px;background:var(--card);margin:8px 0;padding:6px 12px}summary{cursor:pointer;font-weight:600}summary span{color:var(--dim);font-weight:400}\
article{border-top:1px solid var(--line);padding:6px 0;overflow-wrap:anywhere}article:target{outline:2px solid var(--mark);outline-offset:2px}\
h3{font:600 13.5px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;margin:0}h3 span{font-weight:400;color:var(--dim)}\
ul{margin:2px 0 0;padding:0 0 0 18px;font-size:13.5px}a{color:var(--mark)}.dim{color:var(--dim);font-size:12.5px}[hidden]{display:none}";

const SCRIPT: &str = "\
const find=document.getElementById('find'),found=document.getElementById('found');\
const items=[...document.querySelectorAll('article')].map(item=>[item,item.textContent.toLowerCase()]);\
const folders=[...document.querySelectorAll('details')];\
const openTarget=()=>{const item=document.getElementById(location.hash.slice(1));const folder=item&&item.closest('details');if(folder){folder.open=true;item.scrollIntoView()}};\
find.addEventListener('input',()=>{const words=find.value.toLowerCase().split(/\\s+/).filter(Boolean);let shown=0;\
for(const [item,text] of items){item.hidden=!words.every(word=>text.includes(word));if(!item.hidden)shown++}\
for(const folder of folders){folder.hidden=!folder.querySelector('article:not([hidden])');folder.open=words.length>0&&!folder.hidden}\
found.textContent=words.length?shown+' of '+items.length:''});\
window.addEventListener('hashchange',openTarget);openTarget();";

/// Writes the items, grouped by folder and kind.
fn write_items(out: &mut String, graph: &ItemGraph) {
    let place: BTreeMap<&str, usize> = graph.nodes.iter().enumerate().map(|(i, node)| (node.id.as_str(), i)).collect();
    let mut outgoing: BTreeMap<&str, Vec<&ItemEdge>> = BTreeMap::new();
    let mut incoming: BTreeMap<&str, Vec<&ItemEdge>> = BTreeMap::new();
    for edge in &graph.edges {
        outgoing.entry(&edge.from).or_default().push(edge);
        incoming.entry(&edge.to).or_default().push(edge);
    }
    let mut folders: BTreeMap<(bool, &str, &str), Vec<&ItemNode>> = BTreeMap::new();
    for node in &graph.nodes {
        let folder = node.name.rsplit_once('/').map_or("", |(folder, _)| folder);
        let is_library = node.space.as_deref() == Some("system");
        folders.entry((is_library, folder, node.kind.as_str())).or_default().push(node);
    }
    // If there are few items, all folders are open at first.
    let open = if graph.nodes.len() <= 60 { " open" } else { "" };
    for ((is_library, folder, kind), nodes) in folders {
        let (name, library) =
            (if folder.is_empty() { "(top)" } else { folder }, if is_library { ", standard library" } else { "" });
        writeln!(
            out,
            "<details{open}><summary>{} <span>{} · {}{library}</span></summary>",
            escape(name),
            escape(kind),
            nodes.len()
        )
        .ok();
        for node in nodes {
            let number = place.get(node.id.as_str()).copied().unwrap_or_default();
            let space = node.space.as_deref().map(|space| format!(" · {}", escape(space))).unwrap_or_default();
            write!(
                out,
                "<article id=\"n{number}\"><h3>{} <span>{}{space}</span></h3>",
                escape(&node.name),
                escape(&node.kind)
            )
            .ok();
            let to = outgoing.get(node.id.as_str()).map(Vec::as_slice).unwrap_or_default();
            let from = incoming.get(node.id.as_str()).map(Vec::as_slice).unwrap_or_default();
            if !to.is_empty() || !from.is_empty() {
                out.push_str("<ul>");
                for edge in to {
                    write_relation(out, "→", edge, &edge.to, &place);
                }
                for edge in from {
                    write_relation(out, "←", edge, &edge.from, &place);
                }
                out.push_str("</ul>");
            }
            out.push_str("</article>\n");
        }
        out.push_str("</details>\n");
    }
}

/// Writes one relation of an item, with a link to the item at the other end of `edge`. `arrow` points away from the
/// described item or to it. `place` maps the id of each item to its number on the page.
fn write_relation(out: &mut String, arrow: &str, edge: &ItemEdge, other: &str, place: &BTreeMap<&str, usize>) {
    let label = if edge.label.is_empty() { String::new() } else { format!(" ({})", escape(&edge.label)) };
    let source = edge.source.as_ref().map(|source| {
        format!(" <span class=\"dim\">{}:{}:{}</span>", escape(&source.file), source.line, source.column)
    });
    let number = place.get(other).copied().unwrap_or_default();
    write!(
        out,
        "<li>{} {arrow} <a href=\"#n{number}\">{}</a>{label}{}</li>",
        edge.relation.as_str(),
        escape(other),
        source.unwrap_or_default()
    )
    .ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item_graph::Relation;

    #[test]
    fn page_lists_every_item_and_escapes_names() {
        let node = |name: &str| ItemNode {
            id: format!("directive {name}"),
            kind: "directive".into(),
            name: name.into(),
            space: Some("project".into()),
        };
        let nodes: Vec<ItemNode> =
            (0..2_000).map(|i| node(&format!("f{}/d{i}", i % 40))).chain([node("<b>")]).collect();
        let edges = vec![ItemEdge {
            from: "directive f1/d1".into(),
            to: "directive <b>".into(),
            relation: Relation::Spawns,
            label: "body".into(),
            source: None,
        }];
        let graph = ItemGraph { nodes, edges };
        let page = render(&graph, graph.readable_detail(), "shop");
        assert_eq!(page.matches("<article ").count(), 2_001);
        assert!(page.contains("<li>spawns → <a href=\"#n2000\">directive &lt;b&gt;</a> (body)</li>"));
        assert!(!page.contains("<b>") && page.contains("<svg "));
    }
}
