//! The variables that a tool file or a server's settings ask for by name, from this process's environment. Names of
//! provider keys are refused before anything is started.

use std::collections::{BTreeMap, BTreeSet};

use rye_compiler::item::Items;
use rye_compiler::world::ItemKind;

/// Those of the names that are set to text.
pub fn declared(names: &[String]) -> BTreeMap<String, String> {
    names.iter().filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))).collect()
}

/// Variables that hold a provider's key, by the file of any space: one that a project lays over the standard library's
/// takes no name away.
pub fn provider_keys(items: &Items<'_>) -> BTreeSet<String> {
    let list = items.list(ItemKind::Config);
    let files = list.iter().filter(|entry| entry.id.as_str().starts_with("agent/providers/"));
    let mut names = BTreeSet::new();
    for file in files {
        let layers = items.config_of_each(&file.id);
        let variables = layers.iter().filter_map(|(_, node)| node.get("key_env")?.as_str());
        names.extend(variables.map(str::to_owned));
    }
    names
}
