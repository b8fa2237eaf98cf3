//! A world in memory: for tests, for the examples of explain pages, for editors with unsaved files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rye_grammar::ItemId;
use rye_grammar::tool_header::{NoScriptReader, ScriptReader};

use super::{CLAUDE_AGENTS, CLAUDE_SETTINGS, CONTEXT_FILE_NAMES, ContextFile, MCP_JSON, USER_CONTEXT_FILE};
use super::{Entry, ItemKind, LocatedFile, Space, UnrecognizedFile, World, WorldError};

type MapFile = (Arc<str>, Arc<[u8]>);

/// Files by space and path. A file that the map lacks is looked up in an optional fallback world.
#[derive(Default)]
pub struct MapWorld<'b> {
    /// The files by kind and id, then by space. Several files of one space are reported as [`WorldError::Ambiguous`],
    /// unless the kind has a precedence.
    files: BTreeMap<(ItemKind, ItemId), BTreeMap<Space, Vec<MapFile>>>,
    /// The project's files and folders that are not items.
    unrecognized: BTreeSet<UnrecognizedFile>,
    /// Context files by space and path.
    context: BTreeMap<(Space, Arc<str>), Arc<[u8]>>,
    /// If set, only these context files exist: the files in `context` and in the fallback world are ignored.
    all_context: Option<Vec<ContextFile>>,
    /// The content of the project's `.mcp.json`; `None` to use the file of the fallback world.
    mcp_json: Option<Arc<[u8]>>,
    fallback: Option<&'b dyn World>,
    scripts: Option<&'b dyn ScriptReader>,
    project_is_user_space: bool,
}

impl<'b> MapWorld<'b> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty map. A file that the map lacks in a space is looked up in the same space of `fallback`.
    pub fn with_fallback(fallback: &'b dyn World) -> Self {
        Self { fallback: Some(fallback), ..Self::default() }
    }

    /// Sets the reader of scripts. If neither this map nor its fallback world has a reader, every script is an error.
    #[must_use]
    pub fn with_scripts(mut self, scripts: &'b dyn ScriptReader) -> Self {
        self.scripts = Some(scripts);
        self
    }

    /// Makes the project count as the user space, so that the project's settings are the user's own.
    #[must_use]
    pub fn as_user_space(mut self) -> Self {
        self.project_is_user_space = true;
        self
    }

    /// Adds a file to a space. `path` is relative to the root of the space, such as `.ai/directives/hello.md`. A path
    /// that is not an item is listed as an unrecognized file, as on a disk.
    #[must_use]
    pub fn with(mut self, space: Space, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.insert(space, path, content);
        self
    }

    /// Sets all context files, outermost first. The context files of the fallback world and those added with
    /// [`MapWorld::with`] are then not read.
    pub fn set_context_files(&mut self, files: Vec<ContextFile>) {
        self.all_context = Some(files);
    }

    /// Adds a file to the project, like [`MapWorld::with`].
    #[must_use]
    pub fn project(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.with(Space::Project, path, content)
    }

    /// Adds a file like [`MapWorld::with`], in place; replaces the file of that path.
    pub fn insert(&mut self, space: Space, path: &str, content: impl AsRef<[u8]>) {
        if let Some((top, _)) = path.strip_prefix(".ai/").and_then(|p| p.split_once('/'))
            && space != Space::System
        {
            self.unrecognized.insert(UnrecognizedFile { space, path: format!(".ai/{top}").into(), is_folder: true });
        }
        let is_context = match space {
            Space::Project => CONTEXT_FILE_NAMES.contains(&path),
            Space::User => path == USER_CONTEXT_FILE,
            Space::System => false,
        };
        if is_context {
            self.context.insert((space, path.into()), content.as_ref().into());
            return;
        }
        if space == Space::Project && path == MCP_JSON {
            self.mcp_json = Some(content.as_ref().into());
            return;
        }
        let agents = path.strip_prefix(CLAUDE_AGENTS).is_some_and(|inside| inside.starts_with('/'));
        if space == Space::Project && (agents || path == CLAUDE_SETTINGS) {
            let path = if agents { CLAUDE_AGENTS } else { path };
            self.unrecognized.insert(UnrecognizedFile { space, path: path.into(), is_folder: agents });
            return;
        }
        let Some(key) = ItemKind::of_path(path) else {
            let of_kind = ItemKind::ALL.iter().flat_map(|kind| kind.folders()).any(|folder| path.starts_with(folder));
            let on_top = path.strip_prefix(".ai/").is_some_and(|p| !p.contains('/'));
            let is_setting = path.starts_with(ItemKind::Config.folder());
            if on_top && space != Space::System
                || of_kind && space == Space::Project
                || is_setting && space == Space::User
            {
                self.unrecognized.insert(UnrecognizedFile { space, path: path.into(), is_folder: false });
            }
            return;
        };
        let files = self.files.entry(key).or_default().entry(space).or_default();
        files.retain(|(p, _)| p.as_ref() != path);
        files.push((path.into(), content.as_ref().into()));
    }
}

impl World for MapWorld<'_> {
    fn candidates(&self, kind: ItemKind, id: &ItemId) -> Result<Vec<LocatedFile>, WorldError> {
        let mut found = match self.fallback {
            Some(world) => world.candidates(kind, id)?,
            None => Vec::new(),
        };
        for (space, files) in self.files.get(&(kind, id.clone())).into_iter().flatten() {
            found.retain(|l| l.space != *space);
            if let ([(first, _), (second, _), ..], false) = (files.as_slice(), kind.has_precedence()) {
                return Err(WorldError::Ambiguous {
                    id: id.to_string(),
                    first: space.display(first),
                    second: space.display(second),
                });
            }
            let highest = kind.highest(files.iter().map(|(path, _)| path.as_ref()));
            let read = files.iter().filter(|(path, _)| Some(path.as_ref()) == highest);
            found.extend(read.map(|(path, bytes)| LocatedFile {
                space: *space,
                kind,
                id: id.clone(),
                path: path.clone(),
                bytes: bytes.clone(),
            }));
        }
        found.sort_by_key(|l| l.space);
        Ok(found)
    }

    fn list(&self, kind: ItemKind) -> Result<Vec<Entry>, WorldError> {
        let mut entries = match self.fallback {
            Some(world) => world.list(kind)?,
            None => Vec::new(),
        };
        for ((k, id), spaces) in &self.files {
            if *k != kind {
                continue;
            }
            for (space, files) in spaces {
                if self.fallback.is_some() {
                    entries.retain(|e| !(e.id == *id && e.space == *space));
                }
                entries.extend(files.iter().map(|(path, _)| Entry {
                    id: id.clone(),
                    space: *space,
                    path: path.clone(),
                }));
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn context_files(&self) -> Result<Vec<ContextFile>, WorldError> {
        if let Some(all) = &self.all_context {
            return Ok(all.clone());
        }
        let behind = self.fallback.map_or_else(|| Ok(Vec::new()), World::context_files)?;
        let file = |space: Space, name: &str| {
            let bytes = self.context.get(&(space, Arc::from(name)))?.clone();
            Some(ContextFile { space, path: name.into(), bytes, ignored: Vec::new() })
        };
        let of_project = || {
            let mut files = CONTEXT_FILE_NAMES.iter().filter_map(|name| file(Space::Project, name));
            let mut used = files.next()?;
            used.ignored = files.filter(|other| other.bytes != used.bytes).map(|other| other.path).collect();
            Some(used)
        };
        let own = |space: Space| match space {
            Space::Project => of_project(),
            Space::User => file(space, USER_CONTEXT_FILE),
            Space::System => None,
        };
        let mut found = Vec::new();
        for space in [Space::User, Space::Project] {
            match own(space) {
                Some(own) => found.push(own),
                None => found.extend(behind.iter().filter(|file| file.space == space).cloned()),
            }
        }
        Ok(found)
    }

    fn unrecognized_files(&self) -> Result<Vec<UnrecognizedFile>, WorldError> {
        let mut unrecognized = self.unrecognized.clone();
        if let Some(world) = self.fallback {
            unrecognized.extend(world.unrecognized_files()?);
        }
        Ok(unrecognized.into_iter().collect())
    }

    fn misplaced_settings(&self) -> Result<Vec<UnrecognizedFile>, WorldError> {
        let mut found = self.unrecognized_files()?;
        let is_on_top = |path: &str| path.matches('/').count() == 1;
        found.retain(|file| is_on_top(&file.path) || file.path.starts_with(ItemKind::Config.folder()));
        Ok(found)
    }

    fn mcp_json(&self) -> Result<Option<Arc<[u8]>>, WorldError> {
        match (&self.mcp_json, self.fallback) {
            (Some(own), _) => Ok(Some(own.clone())),
            (None, Some(world)) => world.mcp_json(),
            (None, None) => Ok(None),
        }
    }

    fn scripts(&self) -> &dyn ScriptReader {
        match (self.scripts, self.fallback) {
            (Some(scripts), _) => scripts,
            (None, Some(world)) => world.scripts(),
            (None, None) => &NoScriptReader,
        }
    }

    fn project_is_user_space(&self) -> bool {
        self.project_is_user_space || self.fallback.is_some_and(World::project_is_user_space)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    fn id(text: &str) -> ItemId {
        ItemId::parse(text).unwrap()
    }

    #[test]
    fn candidates_cover_all_spaces_highest_first() {
        let world = MapWorld::new().with(Space::System, ".ai/knowledge/a/b.md", "system").with(
            Space::Project,
            ".ai/knowledge/a/b.yaml",
            "project",
        );
        let found = world.candidates(ItemKind::Knowledge, &id("a/b")).unwrap();
        assert_eq!(found.iter().map(|l| l.space).collect::<Vec<_>>(), [Space::Project, Space::System]);
        assert_eq!(world.list(ItemKind::Knowledge).unwrap().len(), 2);
        assert!(world.list(ItemKind::Tool).unwrap().is_empty());
    }

    #[test]
    fn two_extensions_of_one_id_are_ambiguous() {
        let world = MapWorld::new().project(".ai/knowledge/x.md", "").project(".ai/knowledge/x.yaml", "");
        assert!(matches!(world.candidates(ItemKind::Knowledge, &id("x")), Err(WorldError::Ambiguous { .. })));
    }

    #[test]
    fn files_that_are_no_items_are_left_out() {
        let world = MapWorld::new().project(".ai/knowledge/a.b.md", "").project("src/main.rs", "");
        assert!(world.list(ItemKind::Knowledge).unwrap().is_empty());
        let unrecognized = world.unrecognized_files().unwrap();
        let unrecognized: Vec<_> = unrecognized.iter().map(|s| (s.path.as_ref(), s.is_folder)).collect();
        assert_eq!(unrecognized, [(".ai/knowledge", true), (".ai/knowledge/a.b.md", false)]);
    }

    #[test]
    fn map_overrides_its_fallback_world() {
        let below = MapWorld::new().with(Space::System, ".ai/tools/t.yaml", "a").project(".ai/tools/u.yaml", "b");
        let world = MapWorld::with_fallback(&below).project(".ai/tools/u.yaml", "c");
        assert_eq!(world.candidates(ItemKind::Tool, &id("u")).unwrap()[0].bytes.as_ref(), b"c");
        assert_eq!(world.list(ItemKind::Tool).unwrap().len(), 2);
    }
}
