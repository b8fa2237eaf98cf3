//! Copies of the project and user files that plans were compiled from, by hash. With the copies, a plan can be compiled
//! again after its files changed. Copies are written once and never synced: attestations use them if they exist, and
//! nothing else depends on them.

use std::io;
use std::path::{Path, PathBuf};

use rye_compiler::plan::{ManifestEntry, Plan, hex};
use rye_compiler::world::{ItemKind, LocatedFile, Space};
use rye_grammar::ItemId;
use sha2::{Digest, Sha256};

use super::layout::SOURCES;
use super::{Disk, StoreError};

/// A stored copy of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceCopy {
    pub space: Space,
    /// Relative to the space's root.
    pub path: String,
    pub bytes: Vec<u8>,
}

/// Lists the manifest entries of a plan whose files are copied: the entries outside the system space.
fn stored_reads(plan: &Plan) -> impl Iterator<Item = (&ManifestEntry, &str)> {
    let is_written = |read: &&ManifestEntry| read.space.is_some_and(|space| space != Space::System);
    plan.manifest.iter().filter(is_written).filter_map(|read| Some((read, read.sha256.as_deref()?)))
}

fn path(kind: ItemKind, hash: &str, extension: &str) -> PathBuf {
    // The kind is part of the name because it decides how a file is read, and files of two kinds may have equal bytes.
    Path::new(SOURCES).join(format!("{}-{hash}.{extension}", kind.as_str()))
}

/// Lists the manifest entries of a plan whose files have no stored copy.
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

/// Stores a copy of a file.
pub fn store_copy(disk: &dyn Disk, located: &LocatedFile) -> Result<(), StoreError> {
    let folder = Path::new(SOURCES);
    match disk.create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(StoreError::io("create the folder", folder)(error));
        }
        Ok(()) | Err(_) => {}
    }
    let Some((_, extension)) = located.path.rsplit_once('.') else { return Ok(()) };
    let path = path(located.kind, &hex(&Sha256::digest(&located.bytes)), extension);
    disk.write_atomic(&path, &located.bytes).map_err(StoreError::io("write", &path))
}

/// Returns the stored copies of a plan's files; omits copies that are missing or altered.
pub fn read_copies(disk: &dyn Disk, plan: &Plan) -> Vec<SourceCopy> {
    let mut kept = Vec::new();
    for (read, hash) in stored_reads(plan) {
        let (Some(space), Ok(id)) = (read.space, ItemId::parse(&read.id)) else { continue };
        let file = read.kind.extensions().iter().find_map(|extension| {
            let bytes = disk.read(&path(read.kind, hash, extension)).ok()?;
            let path = format!("{}{id}.{extension}", read.kind.folder());
            (hex(&Sha256::digest(&bytes)) == hash).then_some(SourceCopy { space, path, bytes })
        });
        kept.extend(file);
    }
    kept
}
