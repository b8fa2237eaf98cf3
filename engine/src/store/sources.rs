//! Copies of the project and user files that plans were compiled from, by hash. With the copies, a plan can be compiled
//! again after its files changed. Copies are written once and never synced: attestations use them if they exist, the
//! verification of threads inspects them, and nothing else depends on them.

use std::io;
use std::path::{Path, PathBuf};

use rye_compiler::plan::{ContextFileRead, ManifestEntry, Plan, hex};
use rye_compiler::world::{ContextFile, ItemKind, LocatedFile, MapWorld, Space};
use rye_grammar::ItemId;
use sha2::{Digest, Sha256};

use super::layout::SOURCES;
use super::{Disk, StoreError};

/// The stored copies of the files of a plan. Copies that are missing or altered are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceCopies {
    pub files: Vec<SourceCopy>,
    /// The context files of the plan, outermost first.
    pub context: Vec<ContextFile>,
}

impl SourceCopies {
    /// Adds the copied files to a world, and replaces the context files of the world by the copied ones.
    pub fn insert_into(self, world: &mut MapWorld<'_>) {
        for file in self.files {
            world.insert(file.space, &file.path, file.bytes);
        }
        world.set_context_files(self.context);
    }
}

/// A stored copy of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceCopy {
    pub space: Space,
    /// Path relative to the space's root.
    pub path: String,
    pub bytes: Vec<u8>,
}

/// Lists the manifest entries of a plan whose files are copied, each with the hash of its file. Files of the system
/// space and lookups that found no file are left out.
fn stored_reads(plan: &Plan) -> impl Iterator<Item = (&ManifestEntry, &str)> {
    let is_written = |read: &&ManifestEntry| read.space.is_some_and(|space| space != Space::System);
    plan.manifest.iter().filter(is_written).filter_map(|read| Some((read, read.sha256.as_deref()?)))
}

/// A source that a thread names: the hash of the file, and the paths at which its copy can be stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NamedSource {
    /// Kind and id of an item, or the path of a context file.
    pub name: String,
    hash: String,
    paths: Vec<PathBuf>,
}

/// The state of the stored copy of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CopyState {
    Unaltered,
    /// The file at `path` cannot be read, or its contents do not have the hash in its name.
    Altered {
        path: PathBuf,
        reason: String,
    },
    Missing,
}

impl NamedSource {
    /// Lists the sources of a plan.
    pub(crate) fn list_of_plan(plan: &Plan) -> Vec<Self> {
        let items = stored_reads(plan).map(|(read, hash)| Self::of_item(read.kind, &read.id, hash));
        let context = plan.context_files.iter().map(|read| Self {
            name: format!("context file {}", read.path),
            hash: read.sha256.clone(),
            paths: vec![context_path(&read.sha256)],
        });
        items.chain(context).collect()
    }

    /// Returns the source of an item whose file has this hash.
    pub(crate) fn of_item(kind: ItemKind, id: &str, hash: &str) -> Self {
        let paths = kind.extensions().iter().map(|extension| path(kind, hash, extension)).collect();
        Self { name: format!("{} {id}", kind.as_str()), hash: hash.to_owned(), paths }
    }

    /// Compares the stored copy with the hash. An empty file counts as missing: copies are not synced, so a power
    /// failure can leave a copy empty.
    pub(crate) fn inspect_copy(&self, disk: &dyn Disk) -> CopyState {
        let mut state = CopyState::Missing;
        for path in &self.paths {
            match disk.read(path) {
                Ok(bytes) if hex(&Sha256::digest(&bytes)) == self.hash => state = CopyState::Unaltered,
                Ok(bytes) if bytes.is_empty() => {}
                Ok(_) => {
                    let reason = "the contents do not match the hash".to_owned();
                    return CopyState::Altered { path: path.clone(), reason };
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let reason = StoreError::io("read", path)(error).to_string();
                    return CopyState::Altered { path: path.clone(), reason };
                }
            }
        }
        state
    }
}

fn path(kind: ItemKind, hash: &str, extension: &str) -> PathBuf {
    // The kind is part of the name because it decides how a file is read, and files of two kinds may have equal bytes.
    Path::new(SOURCES).join(format!("{}-{hash}.{extension}", kind.as_str()))
}

fn context_path(hash: &str) -> PathBuf {
    Path::new(SOURCES).join(format!("context-{hash}.md"))
}

/// Lists the context files of a plan that have no stored copy.
pub(crate) fn missing_context_files<'p>(
    disk: &dyn Disk,
    plan: &'p Plan,
) -> Result<Vec<&'p ContextFileRead>, StoreError> {
    let mut missing = Vec::new();
    for read in &plan.context_files {
        let path = context_path(&read.sha256);
        if !disk.exists(&path).map_err(StoreError::io("access", &path))? {
            missing.push(read);
        }
    }
    Ok(missing)
}

/// Lists the manifest entries of a plan whose files should have a stored copy and have none. Context files are not in
/// the list.
pub fn missing<'p>(disk: &dyn Disk, plan: &'p Plan) -> Result<Vec<&'p ManifestEntry>, StoreError> {
    let mut missing = Vec::new();
    for (read, hash) in stored_reads(plan) {
        let mut found = false;
        for extension in read.kind.extensions() {
            let path = path(read.kind, hash, extension);
            found = found || disk.exists(&path).map_err(StoreError::io("access", &path))?;
        }
        if !found {
            missing.push(read);
        }
    }
    Ok(missing)
}

/// Stores a copy of an item's file.
pub(crate) fn store_copy(disk: &dyn Disk, located: &LocatedFile) -> Result<(), StoreError> {
    let Some((_, extension)) = located.path.rsplit_once('.') else { return Ok(()) };
    write_copy(disk, &path(located.kind, &hex(&Sha256::digest(&located.bytes)), extension), &located.bytes)
}

/// Stores a copy of a context file.
pub(crate) fn store_context_copy(disk: &dyn Disk, file: &ContextFile) -> Result<(), StoreError> {
    write_copy(disk, &context_path(&hex(&Sha256::digest(&file.bytes))), &file.bytes)
}

fn write_copy(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let folder = Path::new(SOURCES);
    match disk.create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(StoreError::io("create the folder", folder)(error));
        }
        Ok(()) | Err(_) => {}
    }
    disk.write_atomic(path, bytes).map_err(StoreError::io("write", path))
}

/// Returns the stored copies of a plan's files; omits copies that are missing or altered.
pub fn read_copies(disk: &dyn Disk, plan: &Plan) -> SourceCopies {
    let mut copies = SourceCopies::default();
    for (read, hash) in stored_reads(plan) {
        let (Some(space), Ok(id)) = (read.space, ItemId::parse(&read.id)) else { continue };
        let file = read.kind.extensions().iter().find_map(|extension| {
            let bytes = unaltered(disk, &path(read.kind, hash, extension), hash)?;
            let default = || format!("{}{id}.{extension}", read.kind.folder());
            Some(SourceCopy { space, path: read.path.clone().unwrap_or_else(default), bytes })
        });
        copies.files.extend(file);
    }
    copies.context.extend(plan.context_files.iter().filter_map(|read| {
        let bytes = unaltered(disk, &context_path(&read.sha256), &read.sha256)?;
        Some(ContextFile {
            space: read.space,
            path: read.path.as_str().into(),
            bytes: bytes.into(),
            ignored: Vec::new(),
        })
    }));
    copies
}

/// Returns the stored copy of an item's file; `None` if it is missing or altered.
pub fn read_copy(disk: &dyn Disk, kind: ItemKind, hash: &str) -> Option<Vec<u8>> {
    kind.extensions().iter().find_map(|extension| unaltered(disk, &path(kind, hash, extension), hash))
}

/// Reads a copy; `None` if the copy cannot be read, or if its bytes do not have this hash.
fn unaltered(disk: &dyn Disk, path: &Path, hash: &str) -> Option<Vec<u8>> {
    let bytes = disk.read(path).ok()?;
    (hex(&Sha256::digest(&bytes)) == hash).then_some(bytes)
}
