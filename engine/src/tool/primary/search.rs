//! The query form of `rye_fetch`: scores every item of a type by the fields in which the words occur ([`Query`]). There
//! is no index, because a project has only hundreds of items and an index would have to be kept up to date.

use rye_compiler::primary::ItemType;
use rye_compiler::world::Space;
use rye_grammar::ItemId;
use serde_json::{Value, json};

use super::fetch::FetchSources;
use super::item_text::{ItemText, item_text};
use super::query::{Query, SearchableTexts};
use crate::tool::{ToolOutcome, pattern_matches};

/// Default number of hits; `MAX_HITS` is the maximum.
const DEFAULT_HITS: u64 = 10;
const MAX_HITS: u64 = 50;
/// Maximum characters of a hit's description.
const MAX_DESCRIPTION_CHARS: usize = 200;

struct SearchHit {
    points: u32,
    id: ItemId,
    space: &'static str,
    description: String,
}

/// Finds items and sorts them by score, then by id. An item with more of the words ranks above an item that repeats one
/// word.
pub fn search(
    library: &FetchSources<'_>,
    item_type: ItemType,
    query: &str,
    scope: Option<&str>,
    limit: Option<u64>,
) -> Result<ToolOutcome, String> {
    let query = Query::parse(query)?;
    let (world, mut user_space) = (library.world, None);
    let scope = scope.map(scope_pattern);
    let mut hits = Vec::new();
    let mut unreadable = 0_u64;
    let mut last: Option<ItemId> = None;
    for entry in world.list(item_type.kind()).map_err(|e| e.to_string())? {
        // The item is shadowed: a higher space has an item with this id.
        if last.as_ref() == Some(&entry.id) {
            continue;
        }
        last = Some(entry.id.clone());
        if entry.space == Space::User && !*user_space.get_or_insert_with(|| (library.user_space)().is_ok()) {
            continue;
        }
        if scope.as_deref().is_some_and(|s| !in_scope(s, item_type, &entry.id)) {
            continue;
        }
        let found = world.candidates(item_type.kind(), &entry.id).map_err(|e| e.to_string());
        let Some(text) = found.ok().and_then(|f| f.into_iter().next()).and_then(|l| item_text(&l).ok()) else {
            unreadable += 1;
            continue;
        };
        if let Some(points) = query.score(&texts(&entry.id, &text)) {
            let description = if text.description.is_empty() { text.title } else { text.description };
            hits.push(SearchHit {
                points,
                id: entry.id,
                space: entry.space.as_str(),
                description: one_line(&description),
            });
        }
    }
    hits.sort_by(|a, b| b.points.cmp(&a.points).then_with(|| a.id.cmp(&b.id)));
    let total = hits.len();
    let most = usize::try_from(limit.unwrap_or(DEFAULT_HITS).min(MAX_HITS)).unwrap_or(usize::MAX);
    let shown: Vec<Value> = hits
        .into_iter()
        .take(most)
        .map(|h| json!({"item_id": h.id.as_str(), "space": h.space, "description": h.description}))
        .collect();
    let mut answer = json!({"item_type": item_type.as_str(), "hits": shown, "total": total});
    if unreadable > 0
        && let Some(map) = answer.as_object_mut()
    {
        map.insert("unreadable".into(), json!(unreadable));
    }
    Ok(ToolOutcome::ok(answer))
}

/// Returns true if a scope contains an item. A scope is a pattern for the dotted id of the item, or for the capability
/// to fetch the item.
fn in_scope(scope: &str, item_type: ItemType, id: &ItemId) -> bool {
    let dotted = id.dotted();
    pattern_matches(scope, &dotted)
        || scope.starts_with("rye.fetch.")
            && pattern_matches(scope, &format!("rye.fetch.{}.{dotted}", item_type.as_str()))
}

/// Normalizes a scope to capability syntax: `/` becomes `.`; `search` and `load` become `fetch`.
fn scope_pattern(written: &str) -> String {
    let dotted = written.replace('/', ".");
    let alias = ["rye.search.", "rye.load."].into_iter().find_map(|old| dotted.strip_prefix(old));
    alias.map_or_else(|| dotted.clone(), |rest| format!("rye.fetch.{rest}"))
}

fn texts(id: &ItemId, text: &ItemText) -> SearchableTexts {
    SearchableTexts {
        name: id.name().to_lowercase(),
        category: id.category().to_lowercase(),
        title: text.title.to_lowercase(),
        description: text.description.to_lowercase(),
        tags: text.tags.join(" ").to_lowercase(),
        body: text.body.to_lowercase(),
    }
}

fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= MAX_DESCRIPTION_CHARS {
        return line;
    }
    line.chars().take(MAX_DESCRIPTION_CHARS).chain(['…']).collect()
}
