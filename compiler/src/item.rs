//! Items: the typed content of single files of a space, with source spans. The module `compose` combines several files.

mod cache;
mod config;
pub(crate) mod data;
pub mod directive;
mod front_matter;
pub mod hook;
mod id;
pub mod knowledge;
mod origin;
pub mod prompt_template;
pub mod skill;
pub mod tool;
mod xml;

use std::sync::Arc;

use rye_grammar::{ItemId, SourceId};

pub(crate) use cache::HOOK_LISTS;
pub use cache::{CacheSnapshot, DeferredDrop, Dependencies, Dependency, HookFiles, Invalidation, Items};
pub use directive::{
    Acknowledgment, ContextDecl, DeclaredLimit, Directive, FieldDecl, GrantDecl, ModelRequest, Permissions,
};
pub use hook::{HookDecl, HookFactPlaceholder, HookInputPlaceholder, HookPlaceholders, OrderedHooks};
pub use knowledge::Knowledge;
pub use origin::{DeclaredOrigin, SettingsLimits};
pub use prompt_template::{BUILT_IN_COMMANDS, PromptTemplate};
pub use skill::Skill;
pub use tool::Tool;
pub use xml::shorten;

use crate::world::{ItemKind, Space};

/// The identity of the file that an item was read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRef {
    pub kind: ItemKind,
    pub id: ItemId,
    pub space: Space,
    /// Path of the file, relative to the space's root: `.ai/directives/hello.md`.
    pub path: Arc<str>,
    pub source: SourceId,
}

#[cfg(test)]
mod tests;
