//! Environment variables that a tool file or a server's settings request by name. Names of provider keys are refused
//! before anything starts.

use std::collections::{BTreeMap, BTreeSet};

use rye_compiler::item::Items;
use rye_compiler::world::ItemKind;

/// Returns the requested variables that are set to valid Unicode.
pub fn declared_variables(names: &[String]) -> BTreeMap<String, String> {
    names.iter().filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))).collect()
}

/// Returns the variables that hold a provider's key. The provider files of all spaces are read, so that a project
/// cannot remove a variable by overriding a file of the standard library.
pub fn provider_keys(items: &Items<'_>) -> BTreeSet<String> {
    let list = items.list(ItemKind::Config);
    let files = list.iter().filter(|entry| entry.id.as_str().starts_with("agent/providers/"));
    let mut names = BTreeSet::new();
    for file in files {
        let layers = items.config_layers(&file.id);
        let variables = layers.iter().filter_map(|(_, node)| node.get("key_env")?.as_str());
        names.extend(variables.map(str::to_owned));
    }
    names
}
