//! A world for repeated checks: caches every result until the files behind the result may have changed. Reports of
//! changes come from [`super::Watcher`], or from an editor that has the files open.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use rye_compiler::world::{
    ChangedAnswers, ContextFile, Entry, ItemKind, LocatedFile, SkillPath, UnrecognizedFile, World, WorldError,
    WorldState, same_candidates,
};
use rye_grammar::ItemId;
use rye_grammar::tool_header::ScriptReader;

use super::{DiskWorld, FileChange};

/// A [`DiskWorld`] with a cache of the files and listings that were read. A change on disk removes the cached entry.
pub struct CachedWorld {
    disk: DiskWorld,
    files: RefCell<HashMap<ItemKind, HashMap<ItemId, CachedResult<LocatedFile>>>>,
    lists: RefCell<HashMap<ItemKind, CachedResult<Entry>>>,
    state: WorldState,
    nothing: ChangedAnswers,
    /// The state at the previous check, and the items that changed since; `None` if anything may have changed.
    before: Option<(WorldState, ChangedAnswers)>,
}

type CachedResult<T> = Result<Vec<T>, WorldError>;

impl CachedWorld {
    pub fn new(disk: DiskWorld) -> Self {
        let (files, lists) = (RefCell::default(), RefCell::default());
        Self { disk, files, lists, state: WorldState::default(), nothing: ChangedAnswers::default(), before: None }
    }

    /// Returns true if a listed item is a symbolic link. The content of such an item can change without a change of the
    /// link.
    pub fn has_links(&self) -> bool {
        self.disk.listings.borrow().values().any(|listing| listing.has_links)
    }

    /// Drops cached entries that may have changed. Returns false if the caller needs a new world, because a setting may
    /// have changed that determines which files are read.
    #[must_use]
    pub fn invalidate(&mut self, changed: &[FileChange]) -> bool {
        let before = std::mem::take(&mut self.state);
        let mut touched = Some(ChangedAnswers::default());
        for change in changed {
            let (space, path, kinds) = match change {
                FileChange::Everything => return false,
                FileChange::File { space, path, listed } => {
                    let item = ItemKind::of_path(path);
                    if item.as_ref().is_some_and(|(kind, id)| *kind == ItemKind::Config && id.as_str() == "agent/agent")
                    {
                        return false;
                    }
                    if let Some((kind, id)) = item {
                        if let Some(of_kind) = self.files.get_mut().get_mut(&kind) {
                            of_kind.remove(&id);
                        }
                        if let Some(touched) = &mut touched {
                            touched.items.insert((kind, id));
                        }
                    }
                    (*space, path, *listed)
                }
                FileChange::Folder { space, path } => {
                    if ItemKind::Config.covers_path(path) {
                        return false;
                    }
                    self.files.get_mut().retain(|kind, _| !kind.covers_path(path));
                    touched = None;
                    (*space, path, true)
                }
            };
            if kinds {
                for kind in ItemKind::ALL {
                    if kind.covers_path(path) {
                        self.lists.get_mut().remove(&kind);
                        self.disk.forget_listing(space, kind);
                        if let Some(touched) = &mut touched {
                            touched.lists.insert(kind);
                        }
                    }
                }
            }
        }
        self.before = touched.map(|touched| (before, touched));
        true
    }
}

impl World for CachedWorld {
    fn candidates(&self, kind: ItemKind, id: &ItemId) -> Result<Vec<LocatedFile>, WorldError> {
        if let Some(kept) = self.files.borrow().get(&kind).and_then(|of_kind| of_kind.get(id)) {
            return kept.clone();
        }
        let found = self.disk.candidates(kind, id);
        self.files.borrow_mut().entry(kind).or_default().insert(id.clone(), found.clone());
        found
    }

    fn list(&self, kind: ItemKind) -> Result<Vec<Entry>, WorldError> {
        if let Some(kept) = self.lists.borrow().get(&kind) {
            return kept.clone();
        }
        let list = self.disk.list(kind);
        self.lists.borrow_mut().insert(kind, list.clone());
        list
    }

    fn candidates_unchanged(&self, kind: ItemKind, id: &ItemId, given: &CachedResult<LocatedFile>) -> bool {
        if let Some(kept) = self.files.borrow().get(&kind).and_then(|of_kind| of_kind.get(id)) {
            return same_candidates(kept, given);
        }
        same_candidates(&self.candidates(kind, id), given)
    }

    fn list_unchanged(&self, kind: ItemKind, given: &[Entry]) -> bool {
        if let Some(kept) = self.lists.borrow().get(&kind) {
            return kept.as_ref().is_ok_and(|list| list == given);
        }
        self.list(kind).is_ok_and(|list| list == given)
    }

    fn state(&self) -> Option<WorldState> {
        Some(self.state.clone())
    }

    fn changed_since(&self, before: &WorldState) -> Option<&ChangedAnswers> {
        if *before == self.state {
            return Some(&self.nothing);
        }
        self.before.as_ref().filter(|(state, _)| state == before).map(|(_, touched)| touched)
    }

    fn context_files(&self) -> Result<Vec<ContextFile>, WorldError> {
        self.disk.context_files()
    }

    fn unrecognized_files(&self) -> Result<Vec<UnrecognizedFile>, WorldError> {
        self.disk.unrecognized_files()
    }

    fn misplaced_settings(&self) -> Result<Vec<UnrecognizedFile>, WorldError> {
        self.disk.misplaced_settings()
    }

    fn mcp_json(&self) -> Result<Option<Arc<[u8]>>, WorldError> {
        self.disk.mcp_json()
    }

    fn read_skill_file(&self, skill: &LocatedFile, path: &SkillPath) -> Result<Option<Vec<u8>>, WorldError> {
        self.disk.read_skill_file(skill, path)
    }

    fn scripts(&self) -> &dyn ScriptReader {
        self.disk.scripts()
    }

    fn project_is_user_space(&self) -> bool {
        self.disk.project_is_user_space()
    }
}
