//! The query form of `rye_fetch`: every item of a type, scored by where the words stand. No index: a project has
//! hundreds of items, and an index would be one more thing to keep true.

use rye_compiler::primary::ItemType;
use rye_compiler::world::World;
use rye_grammar::ItemId;
use serde_json::{Value, json};

use super::item_text::{ItemText, item_text};
use crate::tool::{ToolOutcome, pattern_matches};

/// Hits shown when nothing is said, and at most.
const DEFAULT_HITS: u64 = 10;
const MAX_HITS: u64 = 50;
/// Words of a query that count.
const MAX_WORDS: usize = 16;
/// Characters of a description in a hit.
const MAX_DESCRIPTION: usize = 200;

struct Hit {
    points: u32,
    id: ItemId,
    space: &'static str,
    description: String,
}

/// Finds items. More words found beats one word found often; equal scores go by id.
pub fn search(
    world: &dyn World,
    item_type: ItemType,
    query: &str,
    scope: Option<&str>,
    limit: Option<u64>,
) -> Result<ToolOutcome, String> {
    let words = words(query);
    if words.is_empty() {
        return Err("`query` holds no word to look for".into());
    }
    let scope = scope.map(|s| s.replace('/', "."));
    let mut hits = Vec::new();
    let mut unreadable = 0_u64;
    let mut last: Option<ItemId> = None;
    for entry in world.list(item_type.into()).map_err(|e| e.to_string())? {
        // An item of a lower space with the same id is shadowed.
        if last.as_ref() == Some(&entry.id) {
            continue;
        }
        last = Some(entry.id.clone());
        if scope.as_deref().is_some_and(|s| !in_scope(s, item_type, &entry.id)) {
            continue;
        }
        let found = world.candidates(item_type.into(), &entry.id).map_err(|e| e.to_string());
        let Some(text) = found.ok().and_then(|f| f.into_iter().next()).and_then(|l| item_text(&l).ok()) else {
            unreadable += 1;
            continue;
        };
        let points = points(&words, &entry.id, &text);
        if points > 0 {
            let description = if text.description.is_empty() { text.title } else { text.description };
            hits.push(Hit { points, id: entry.id, space: entry.space.word(), description: one_line(&description) });
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
    let mut answer = json!({"item_type": item_type.word(), "hits": shown, "total": total});
    if unreadable > 0
        && let Some(map) = answer.as_object_mut()
    {
        map.insert("unreadable".into(), json!(unreadable));
    }
    Ok(ToolOutcome::ok(answer))
}

/// A scope is a pattern over dotted ids, or over whole capabilities of the type.
fn in_scope(scope: &str, item_type: ItemType, id: &ItemId) -> bool {
    let dotted = id.dotted();
    pattern_matches(scope, &dotted)
        || scope.starts_with("rye.fetch.")
            && pattern_matches(scope, &format!("rye.fetch.{}.{dotted}", item_type.word()))
}

fn words(query: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in query.to_lowercase().split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()) {
        if words.len() < MAX_WORDS && !words.iter().any(|w| w == word) {
            words.push(word.to_owned());
        }
    }
    words
}

fn points(words: &[String], id: &ItemId, text: &ItemText) -> u32 {
    let name = id.name().to_lowercase();
    let folders = id.category().to_lowercase();
    let title = text.title.to_lowercase();
    let description = text.description.to_lowercase();
    let tags = text.tags.join(" ").to_lowercase();
    let body = text.body.to_lowercase();
    let mut sum = 0;
    let mut found = 0;
    for word in words {
        let mut points = 0;
        points += if name == *word {
            20
        } else if name.contains(word) {
            10
        } else {
            0
        };
        points += if folders.contains(word) { 4 } else { 0 };
        points += if title.contains(word) { 8 } else { 0 };
        points += if tags.contains(word) { 6 } else { 0 };
        points += if description.contains(word) { 5 } else { 0 };
        points += u32::try_from(body.matches(word.as_str()).take(4).count()).unwrap_or(0);
        if points > 0 {
            found += 1;
        }
        sum += points;
    }
    // Every further word of the query counts more than any number of repetitions.
    if found == 0 { 0 } else { sum + (found - 1) * 50 }
}

fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= MAX_DESCRIPTION {
        return line;
    }
    line.chars().take(MAX_DESCRIPTION).chain(['…']).collect()
}
