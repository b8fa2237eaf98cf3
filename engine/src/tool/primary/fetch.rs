//! `rye_fetch`: fetches an item by id, items by query, or a page of a stored result.

use std::collections::BTreeSet;

use rye_compiler::item::Items;
use rye_compiler::primary::{FetchRequest, ItemType};
use rye_compiler::world::{ItemKind, SkillPath, Space, World};
use rye_grammar::ItemId;
use serde_json::json;

use super::item_text::item_text;
use super::search::search;
use crate::tool::ToolOutcome;
use crate::tool::guard::{ObjectStore, floor_char_boundary};

/// Default size of a page in bytes; `MAX_PAGE_BYTES` is the maximum. A page of either size fits into one result.
const DEFAULT_PAGE_BYTES: u64 = 16 * 1024;
const MAX_PAGE_BYTES: u64 = 28 * 1024;

/// The sources that a thread can fetch from.
pub struct FetchSources<'l> {
    pub world: &'l dyn World,
    pub objects: &'l dyn ObjectStore,
    /// Objects with results of this thread. The thread can fetch no other object.
    pub own_objects: &'l BTreeSet<String>,
    /// Checks that the caller may fetch items of the user space. The error is a sentence for the model.
    pub user_space: &'l dyn Fn() -> Result<(), String>,
}

/// Performs a fetch request. This function reads files, so call it where blocking is allowed.
pub fn fetch(library: &FetchSources<'_>, request: &FetchRequest) -> ToolOutcome {
    let answer = match request {
        FetchRequest::Item { item_type, item_id, offset, limit } => {
            fetch_item(library, *item_type, item_id).and_then(|text| match (offset, limit) {
                // Without `offset` and `limit`, the whole item is returned. The guard shortens an item that is too
                // large.
                (0, None) => Ok(ToolOutcome::ok(text)),
                _ => page_of_text(text.as_bytes(), *offset, *limit),
            })
        }
        FetchRequest::Skill { skill, path, offset, limit } => {
            fetch_skill(library, skill, path.as_deref()).and_then(|text| match (offset, limit) {
                (0, None) => Ok(ToolOutcome::ok(text)),
                _ => page_of_text(text.as_bytes(), *offset, *limit),
            })
        }
        FetchRequest::Query { item_type, query, scope, limit } => {
            search(library, *item_type, query, scope.as_deref(), *limit)
        }
        FetchRequest::Object { sha256, offset, limit } => fetch_object(library, sha256, *offset, *limit),
    };
    answer.unwrap_or_else(ToolOutcome::error)
}

fn fetch_item(library: &FetchSources<'_>, item_type: ItemType, id: &ItemId) -> Result<String, String> {
    let found = library.world.candidates(item_type.kind(), id).map_err(|e| e.to_string())?;
    let first = found
        .into_iter()
        .next()
        .ok_or_else(|| format!("unknown {} `{id}`; search for it with `query`", item_type.as_str()))?;
    if first.space == Space::User {
        (library.user_space)().map_err(|why| format!("{} `{id}`: {why}", item_type.as_str()))?;
    }
    item_text(&first).map(|t| t.body)
}

/// Returns the text of a skill, or of the file at `path` in the skill's folder. Fetching a skill gives the thread no
/// permissions.
fn fetch_skill(library: &FetchSources<'_>, id: &ItemId, path: Option<&str>) -> Result<String, String> {
    let found = library.world.candidates(ItemKind::Skill, id).map_err(|error| error.to_string())?;
    let file = found.into_iter().next().ok_or_else(|| format!("unknown skill `{id}`"))?;
    if file.space == Space::User {
        (library.user_space)().map_err(|why| format!("skill `{id}`: {why}"))?;
    }
    let items = Items::new(library.world);
    let skill = items.skill(id).ok_or_else(|| format!("the skill `{id}` cannot be loaded; `rye check` states why"))?;
    if skill.is_hidden {
        return Err(format!("the skill `{id}` is only for the user: it sets `disable-model-invocation`"));
    }
    let Some(path) = path else { return Ok(skill.element().0) };
    let wanted = SkillPath::parse(path).ok_or_else(|| {
        let shown: String = path.chars().take(80).collect();
        format!(
            "`{shown}` cannot be a file of the skill `{id}`: give a path inside of its folder, without `..` and hidden names"
        )
    })?;
    let bytes = library.world.read_skill_file(&file, &wanted).map_err(|error| error.to_string())?;
    let bytes = bytes.ok_or_else(|| format!("the skill `{id}` has no file `{}`", wanted.as_str()))?;
    String::from_utf8(bytes).map_err(|_| format!("`{}` of the skill `{id}` is not UTF-8", wanted.as_str()))
}

fn fetch_object(
    library: &FetchSources<'_>,
    sha256: &str,
    offset: u64,
    limit: Option<u64>,
) -> Result<ToolOutcome, String> {
    if !library.own_objects.contains(sha256) {
        return Err(format!("`{sha256}` is not a result of this thread"));
    }
    let bytes = library.objects.get(sha256).map_err(|e| e.to_string())?;
    page_of_text(&bytes, offset, limit)
}

/// Returns a page of the bytes as text: from `offset` on, of at most `limit` bytes, cut between characters. The last
/// line of the page states the offset of the next page, or that the page is the last one.
///
/// # Errors
///
/// The offset is beyond the end of the bytes.
fn page_of_text(bytes: &[u8], offset: u64, limit: Option<u64>) -> Result<ToolOutcome, String> {
    let total = bytes.len();
    let text = String::from_utf8_lossy(bytes);
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    if start >= text.len() {
        return Err(format!("offset {offset} is beyond the end: there are {total} bytes"));
    }
    let start = floor_char_boundary(&text, start);
    let size = usize::try_from(limit.unwrap_or(DEFAULT_PAGE_BYTES).min(MAX_PAGE_BYTES)).unwrap_or(usize::MAX);
    // A page contains at least one character, even if its size is smaller than the character, so that paging ends.
    let end = floor_char_boundary(&text, start.saturating_add(size))
        .max((start + 1..=text.len()).find(|i| text.is_char_boundary(*i)).unwrap_or(text.len()));
    let shown = text.get(start..end).unwrap_or_default();
    if end >= text.len() {
        return Ok(ToolOutcome::ok(format!("{shown}\n[bytes {start} to {end} of {total}; the end]")));
    }
    let mut outcome =
        ToolOutcome::ok(format!("{shown}\n[bytes {start} to {end} of {total}; continue with offset {end}]"));
    outcome.details = json!({"next_offset": end, "total_bytes": total});
    Ok(outcome)
}

#[cfg(test)]
mod tests;
