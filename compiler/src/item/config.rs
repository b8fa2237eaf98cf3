//! Settings files merged over the spaces. Every value keeps the span where it was written (`language.md`, Spaces and
//! items).

use std::collections::HashMap;

use rye_grammar::data::{Entry, Kind, Node};

/// Merges `over` into `under`: mappings are merged recursively, lists whose entries all have an `id` are merged by that
/// id, and any other value of `under` is replaced. Each value keeps the span in its own file.
pub fn merge(over: Node, under: Node) -> Node {
    match (over.kind, under.kind) {
        (Kind::Map(over_entries), Kind::Map(under_entries)) => {
            Node::new(Kind::Map(merge_maps(over_entries, under_entries)), over.span)
        }
        (Kind::List(over_items), Kind::List(under_items))
            if have_ids(&over_items) && have_ids(&under_items) && !over_items.is_empty() =>
        {
            Node::new(Kind::List(merge_lists(over_items, under_items)), over.span)
        }
        (kind, _) => Node::new(kind, over.span),
    }
}

/// Merges two mappings: `over` of the higher space into `merged` of the lower space. The keys of `merged` keep their
/// order. The keys that only `over` has follow. For a key of both, the two values are merged.
fn merge_maps(over: Vec<Entry>, mut merged: Vec<Entry>) -> Vec<Entry> {
    let places: HashMap<String, usize> = merged.iter().enumerate().map(|(i, e)| (e.key.node.clone(), i)).collect();
    for entry in over {
        match places.get(&entry.key.node).and_then(|i| merged.get_mut(*i)) {
            Some(slot) => {
                let under = std::mem::replace(&mut slot.value, Node::new(Kind::Null, entry.value.span));
                slot.value = merge(entry.value, under);
                slot.key = entry.key;
            }
            None => merged.push(entry),
        }
    }
    merged
}

/// Merges two lists of entries with ids. An entry of `over` with a new id follows the entries of `merged`. Only a rule
/// (an entry with `match`) comes before them: the first rule that matches applies, and a rule of a project must not
/// follow a general rule of the standard library.
fn merge_lists(over: Vec<Node>, mut merged: Vec<Node>) -> Vec<Node> {
    let places: HashMap<String, usize> =
        merged.iter().enumerate().filter_map(|(i, m)| Some((id(m)?.to_owned(), i))).collect();
    let mut rules = Vec::new();
    for item in over {
        match id(&item).and_then(|id| places.get(id)).and_then(|i| merged.get_mut(*i)) {
            Some(slot) => {
                let under = std::mem::replace(slot, Node::new(Kind::Null, item.span));
                *slot = merge(item, under);
            }
            None if item.get("match").is_some() => rules.push(item),
            None => merged.push(item),
        }
    }
    rules.extend(merged);
    rules
}

fn have_ids(items: &[Node]) -> bool {
    items.iter().all(|item| id(item).is_some())
}

fn id(node: &Node) -> Option<&str> {
    node.get("id").and_then(Node::as_str)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rye_grammar::{SourceId, yaml};
    use serde_json::json;

    use super::*;

    fn node(source: u32, text: &str) -> Node {
        yaml::parse(SourceId(source), text).tree
    }

    #[test]
    fn merge_is_deep_and_keeps_spans() {
        let merged =
            merge(node(1, "limits: {turns: 30}\nx: [1]"), node(0, "limits: {turns: 15, spend: 0.5}\nx: [2, 3]"));
        assert_eq!(merged.to_value(), json!({"limits": {"turns": 30, "spend": 0.5}, "x": [1]}));
        let limits = merged.get("limits").unwrap();
        assert_eq!(limits.get("turns").unwrap().span.source, SourceId(1));
        assert_eq!(limits.get("spend").unwrap().span.source, SourceId(0));
    }

    #[test]
    fn lists_with_ids_merge_by_id() {
        let merged = merge(node(1, "[{id: b, x: 9}, {id: c}]"), node(0, "[{id: a}, {id: b, x: 1, y: 2}]"));
        assert_eq!(merged.to_value(), json!([{"id": "a"}, {"id": "b", "x": 9, "y": 2}, {"id": "c"}]));
        let rules =
            merge(node(1, "[{id: c, match: x}, {id: a, match: y}]"), node(0, "[{id: a, match: z}, {id: b, match: z}]"));
        let ids: Vec<_> = rules.items().iter().filter_map(id).collect();
        assert_eq!(ids, ["c", "a", "b"]);
        assert_eq!(merge(node(1, "[]"), node(0, "[{id: a}]")).to_value(), json!([]));
        assert_eq!(merge(node(1, "~"), node(0, "{a: 1}")).to_value(), json!(null));
    }
}
