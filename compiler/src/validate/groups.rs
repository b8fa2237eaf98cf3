//! Named groups of capability patterns (`agent/capabilities/…`). Diagnostics suggest the patterns of a group, and `rye
//! explain` prints the groups. A group grants nothing.

use rye_grammar::data::Node;

use crate::item::Items;
use crate::world::ItemKind;

/// A named group of capability patterns, merged from the files of all spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapabilityGroup {
    /// Name of the settings file and name of the group in the file, joined by a dot: `fs.read`.
    pub name: String,
    pub description: String,
    pub patterns: Vec<String>,
}

/// Prefix of the ids of the settings files that define capability groups.
pub(crate) const GROUP_PREFIX: &str = "agent/capabilities/";

/// Returns every capability group of every space, sorted by name. The check of the settings reports errors in the
/// files.
pub fn all_groups(items: &Items<'_>) -> Vec<CapabilityGroup> {
    let mut groups: Vec<CapabilityGroup> = Vec::new();
    let mut last = None;
    for entry in items.list(ItemKind::Config).iter().filter(|e| e.id.as_str().starts_with(GROUP_PREFIX)) {
        // An id occurs once for each space that has a file with this id.
        if last.replace(entry.id.clone()).as_ref() == Some(&entry.id) {
            continue;
        }
        let Some(node) = items.config(&entry.id) else { continue };
        let text = |node: &Node, key: &str| node.get(key).and_then(Node::as_str).unwrap_or_default().to_owned();
        for group in node.get("groups").map(Node::entries).unwrap_or_default() {
            let patterns = group.value.get("patterns").map(Node::items).unwrap_or_default();
            groups.push(CapabilityGroup {
                name: format!("{}.{}", entry.id.name(), group.key.node),
                description: text(&group.value, "description"),
                patterns: patterns.iter().filter_map(|p| p.as_str().map(str::to_owned)).collect(),
            });
        }
    }
    groups.sort_by(|a, b| a.name.cmp(&b.name));
    groups
}

/// Returns the group that a text names: `fs.read` or `fs/read`. The text `fs` alone names the group `fs.all` or
/// `fs.fs`. `None` if there is no such group.
pub fn find_group<'g>(groups: &'g [CapabilityGroup], text: &str) -> Option<&'g CapabilityGroup> {
    let text = text.replace('/', ".");
    let whole = [text.clone(), format!("{text}.all"), format!("{text}.{text}")];
    groups.iter().find(|group| whole.contains(&group.name))
}
