//! Names for completion in a shell and in the editor of a chat: models and threads of a project. Unreadable items are
//! left out.

use std::collections::BTreeSet;

use rye_compiler::item::Items;
use rye_compiler::world::{ItemKind, World};
use rye_engine::thread::Status;
use rye_grammar::data::Node;

use crate::thread_reader::ThreadReader;
use crate::workspace::Spaces;

/// Id prefix of provider files.
pub const PROVIDER_PREFIX: &str = "agent/providers/";

/// Returns the names of the tiers and models of all providers: first the tiers and the model ids, then each model as
/// `provider/model`.
pub fn list_models(spaces: &Spaces) -> Vec<String> {
    let Ok(world) = spaces.open() else { return Vec::new() };
    let items = Items::new(&world);
    let providers = world.list(ItemKind::Config).unwrap_or_default();
    let providers: BTreeSet<String> = providers.into_iter().map(|entry| entry.id.to_string()).collect();
    let (mut bare, mut full) = (BTreeSet::new(), BTreeSet::new());
    for id in providers {
        let Some(provider) = id.strip_prefix(PROVIDER_PREFIX) else { continue };
        let Some(node) = items.config_by_name(&id) else { continue };
        let tiers = node.get("tiers").map(Node::entries).unwrap_or_default().iter().map(|tier| tier.key.node.clone());
        let models = node.get("models").map(Node::items).unwrap_or_default().iter();
        let models: Vec<String> = models.filter_map(|model| Some(model.get("id")?.as_str()?.to_owned())).collect();
        bare.extend(tiers);
        full.extend(models.iter().map(|model| format!("{provider}/{model}")));
        bare.extend(models);
    }
    bare.into_iter().chain(full).collect()
}

/// Returns the ids of closed sessions and of orphaned threads without a parent, newest first.
pub fn list_sessions(spaces: &Spaces) -> Vec<String> {
    list_threads(spaces, true)
}

/// Returns the ids of all threads, newest first; empty if the threads cannot be read. With `only_sessions`, returns
/// only the ids of closed sessions and of orphaned threads without a parent.
pub fn list_threads(spaces: &Spaces, only_sessions: bool) -> Vec<String> {
    let Ok(reader) = ThreadReader::open(&spaces.project) else { return Vec::new() };
    let Ok((mut entries, _)) = reader.list_readable() else { return Vec::new() };
    if only_sessions {
        entries.retain(|entry| entry.row.parent.is_none() && (entry.row.status == Status::Idle || entry.is_orphaned()));
    }
    entries.sort_by(|a, b| (b.row.created_at, &a.row.id).cmp(&(a.row.created_at, &b.row.id)));
    entries.into_iter().map(|entry| entry.row.id.to_string()).collect()
}
