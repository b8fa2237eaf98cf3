//! Reports skills whose `allowed-tools` lists a tool that is granted neither by a directive of the project nor by the
//! standard directive of chats.

use std::sync::Arc;

use rye_grammar::ItemId;

use super::chat_hooks::CHAT_DIRECTIVE;
use crate::diagnostics::{Diagnostics, SkillError};
use crate::item::{Items, Skill};
use crate::semantics::capability::CapabilitySet;
use crate::skill_list::ungranted_tools;
use crate::world::{ItemKind, Space};

pub fn check(items: &Items<'_>, found: &mut Diagnostics) {
    let skills = items.list(ItemKind::Skill);
    let of_project = skills.iter().filter(|entry| entry.space == Space::Project);
    let skills = of_project.filter_map(|entry| items.skill(&entry.id));
    let wanting: Vec<Arc<Skill>> = skills.filter(|skill| skill.wanted_tools.is_some()).collect();
    if wanting.is_empty() {
        return;
    }
    let granted = granted_patterns(items);
    for skill in wanting {
        let tools = ungranted_tools(&skill, &granted);
        if let Some(wanted) = skill.wanted_tools.as_ref().filter(|_| !tools.is_empty()) {
            let misspelt = tools.iter().find_map(|tool| Some((tool.clone(), misspelt_id(items, tool)?)));
            found.push(SkillError::WantsMore { id: skill.file.id.to_string(), tools, misspelt, span: wanted.span });
        }
    }
}

/// Returns the id of the tool that an entry of `allowed-tools` probably means, if the entry has the form of an id and
/// names no tool.
fn misspelt_id(items: &Items<'_>, entry: &str) -> Option<String> {
    let name = entry.split_once('(').map_or(entry, |(name, _)| name);
    let id = ItemId::parse(name).ok().filter(|id| name.contains('/') && !items.exists(ItemKind::Tool, id))?;
    items.nearest(ItemKind::Tool, id.as_str())
}

/// Returns the grants of the directives of the project and of the standard directive of chats.
fn granted_patterns(items: &Items<'_>) -> CapabilitySet {
    let directives = items.list(ItemKind::Directive);
    let of_project = directives.iter().filter(|entry| entry.space == Space::Project).map(|entry| entry.id.clone());
    let all = of_project.chain(ItemId::parse(CHAT_DIRECTIVE).ok()).filter_map(|id| items.directive(&id));
    let patterns = all.flat_map(|directive| {
        let granted = directive.permissions.iter().flat_map(|permissions| &permissions.grants);
        granted.map(|grant| grant.pattern.0.clone()).collect::<Vec<_>>()
    });
    CapabilitySet::new(patterns)
}
