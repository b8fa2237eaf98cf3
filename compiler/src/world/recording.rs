//! A world that records each file that is read, with the hash of its content, and each file that is looked up but
//! missing: the manifest of a plan (`engine.md` 2). Files that were never looked up are not in the manifest.

use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use rye_grammar::ItemId;
use rye_grammar::tool_header::ScriptReader;
use sha2::{Digest, Sha256};

use super::hex;
use super::{ContextFile, Entry, ItemKind, LocatedFile, SkillPath, Space, UnrecognizedFile, World, WorldError};

/// A read during a compilation: a file with its hash, or a look-up that found no file (`sha256: None`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ManifestEntry {
    pub kind: ItemKind,
    pub id: String,
    pub space: Option<Space>,
    pub sha256: Option<String>,
    /// The path of the file in its space. `None` for a kind with a single folder, because the id determines the path.
    /// Skills have several folders, and the text that is sent for a skill contains this path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// A context file that the compilation read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContextFileRead {
    pub space: Space,
    /// Path of the file, relative to the space's root.
    pub path: String,
    pub sha256: String,
}

impl ContextFileRead {
    pub fn of(file: &ContextFile) -> Self {
        Self { space: file.space, path: file.path.to_string(), sha256: hex(&Sha256::digest(&file.bytes)) }
    }
}

/// A file that was read. `path` is recorded only if the kind of the item has several folders; otherwise the kind and
/// the id determine the folder.
#[derive(Debug, Clone)]
struct FileRead {
    sha256: String,
    path: Option<String>,
}

/// A world that records its reads; [`RecordingWorld::manifest`] returns them.
pub struct RecordingWorld<W> {
    world: W,
    reads: RefCell<BTreeMap<(ItemKind, ItemId), BTreeMap<Space, FileRead>>>,
    context: RefCell<Vec<ContextFileRead>>,
}

impl<W: World> RecordingWorld<W> {
    pub fn new(world: W) -> Self {
        Self { world, reads: RefCell::default(), context: RefCell::default() }
    }

    /// Returns everything read so far, sorted: an entry for each file, and an entry without hash for each id that was
    /// looked up and that no space has.
    pub fn manifest(&self) -> Vec<ManifestEntry> {
        let mut manifest = Vec::new();
        for ((kind, id), spaces) in self.reads.borrow().iter() {
            if spaces.is_empty() {
                manifest.push(ManifestEntry { kind: *kind, id: id.to_string(), space: None, sha256: None, path: None });
            }
            manifest.extend(spaces.iter().map(|(space, read)| ManifestEntry {
                kind: *kind,
                id: id.to_string(),
                space: Some(*space),
                sha256: Some(read.sha256.clone()),
                path: read.path.clone(),
            }));
        }
        manifest
    }

    /// Returns the hash of a file, in lowercase hex; `None` if the file was not read.
    pub fn sha256(&self, kind: ItemKind, id: &ItemId, space: Space) -> Option<String> {
        Some(self.reads.borrow().get(&(kind, id.clone()))?.get(&space)?.sha256.clone())
    }

    /// Returns the context files that were read, the file of the outermost folder first.
    pub fn context_file_reads(&self) -> Vec<ContextFileRead> {
        self.context.borrow().clone()
    }
}

impl<W: World> World for RecordingWorld<W> {
    fn candidates(&self, kind: ItemKind, id: &ItemId) -> Result<Vec<LocatedFile>, WorldError> {
        let found = self.world.candidates(kind, id)?;
        let mut reads = self.reads.borrow_mut();
        let spaces = reads.entry((kind, id.clone())).or_default();
        for located in &found {
            spaces.entry(located.space).or_insert_with(|| FileRead {
                sha256: hex(&Sha256::digest(&located.bytes)),
                path: kind.has_precedence().then(|| located.path.to_string()),
            });
        }
        Ok(found)
    }

    fn list(&self, kind: ItemKind) -> Result<Vec<Entry>, WorldError> {
        self.world.list(kind)
    }

    fn unrecognized_files(&self) -> Result<Vec<UnrecognizedFile>, WorldError> {
        self.world.unrecognized_files()
    }

    fn misplaced_settings(&self) -> Result<Vec<UnrecognizedFile>, WorldError> {
        self.world.misplaced_settings()
    }

    fn context_files(&self) -> Result<Vec<ContextFile>, WorldError> {
        let found = self.world.context_files()?;
        *self.context.borrow_mut() = found.iter().map(ContextFileRead::of).collect();
        Ok(found)
    }

    fn mcp_json(&self) -> Result<Option<Arc<[u8]>>, WorldError> {
        self.world.mcp_json()
    }

    fn read_skill_file(&self, skill: &LocatedFile, path: &SkillPath) -> Result<Option<Vec<u8>>, WorldError> {
        self.world.read_skill_file(skill, path)
    }

    fn scripts(&self) -> &dyn ScriptReader {
        self.world.scripts()
    }

    fn project_is_user_space(&self) -> bool {
        self.world.project_is_user_space()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::world::MapWorld;

    #[test]
    fn reads_and_misses_are_recorded_once() {
        let map = MapWorld::new().project(".ai/directives/a.md", "x").with(Space::System, ".ai/directives/a.md", "y");
        let world = RecordingWorld::new(&map);
        let id = |t: &str| ItemId::parse(t).unwrap();
        world.candidates(ItemKind::Directive, &id("b")).unwrap();
        world.candidates(ItemKind::Directive, &id("a")).unwrap();
        world.candidates(ItemKind::Directive, &id("a")).unwrap();
        let manifest = world.manifest();
        let short: Vec<_> = manifest.iter().map(|r| (r.id.as_str(), r.space, r.sha256.is_some())).collect();
        assert_eq!(short, [("a", Some(Space::Project), true), ("a", Some(Space::System), true), ("b", None, false)]);
        assert_ne!(
            world.sha256(ItemKind::Directive, &id("a"), Space::Project),
            world.sha256(ItemKind::Directive, &id("a"), Space::System)
        );
    }
}
