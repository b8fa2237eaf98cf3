//! The trust record of one project, as a file. The file is read and replaced as a whole.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rye_compiler::trust::Subject;
use rye_compiler::world::ItemKind;
use serde::{Deserialize, Serialize};

use super::TrustError;

/// The format version that this build writes. Newer versions are refused.
const FORMAT: u32 = 1;
/// Maximum size of the file of a trust record, in bytes.
const MAX_RECORD: u64 = 16 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustRecord {
    pub format: u32,
    /// The root of the project, for readers of the file: the name of the file is only a hash.
    pub project: String,
    pub trusted: Vec<TrustEntry>,
    /// Capabilities that the user approved "in this project" when a thread requested them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// Commands that the user approved "in this project".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<ApprovedCommands>,
}

/// Simple commands of a tool that need no further approval.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovedCommands {
    pub capability: String,
    /// The words with which each approved command starts, in order.
    pub starts_with: Vec<String>,
}

/// A trusted file of a project, in the trust record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustEntry {
    pub kind: ItemKind,
    pub id: String,
    pub sha256: String,
    /// The project files that the item's command names, with their hashes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, String>,
}

impl TrustEntry {
    pub(super) fn new(subject: &Subject) -> Self {
        let Subject { kind, id, sha256 } = subject.clone();
        Self { kind, id, sha256, programs: BTreeMap::new() }
    }

    pub(super) fn is_for(&self, subject: &Subject) -> bool {
        self.kind == subject.kind && self.id == subject.id
    }
}

/// Reads the record at a path; returns an empty record if the file does not exist.
pub(super) fn read(path: &Path, project: &Path) -> Result<TrustRecord, TrustError> {
    let fail = |source| TrustError::Io { path: path.to_owned(), source };
    let empty = TrustRecord {
        format: FORMAT,
        project: project.display().to_string(),
        trusted: Vec::new(),
        ..TrustRecord::default()
    };
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(empty),
        Err(source) => return Err(fail(source)),
    };
    if file.metadata().map_err(fail)?.mode() & 0o022 != 0 {
        return Err(TrustError::Exposed { path: path.to_owned() });
    }
    let mut text = String::new();
    file.take(MAX_RECORD).read_to_string(&mut text).map_err(fail)?;
    let unreadable = |reason: String| TrustError::Unreadable { path: path.to_owned(), reason };
    let record: TrustRecord = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
    if record.format > FORMAT {
        return Err(unreadable(format!(
            "the file has format {}, but this `rye` reads formats up to {FORMAT}",
            record.format
        )));
    }
    Ok(record)
}

/// Locks the trust records of the user until the returned handle is dropped, so that no change of another process is
/// lost. Creates the folder of the records.
pub(super) fn lock(path: &Path) -> Result<fs::File, TrustError> {
    let fail = |source| TrustError::Io { path: path.to_owned(), source };
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(fail)?;
    let locked = fs::File::open(folder).map_err(fail)?;
    loop {
        match rustix::fs::flock(&locked, FlockOperation::LockExclusive) {
            Err(Errno::INTR) => {}
            // On a file system without locks, the record is still replaced as a whole.
            Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(locked),
            Err(error) => return Err(fail(error.into())),
        }
    }
}

/// Replaces the record at a path. The caller holds the [`lock`].
pub(super) fn write(path: &Path, record: &TrustRecord) -> Result<(), TrustError> {
    let fail = |source| TrustError::Io { path: path.to_owned(), source };
    let text = serde_json::to_vec_pretty(record).map_err(|error| fail(error.into()))?;
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|error| fail(io::Error::other(error.to_string())))?;
    let temporary = path.with_extension(format!("{:016x}.tmp", u64::from_le_bytes(random)));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        fs::remove_file(&temporary).ok();
    }
    written.map_err(fail)
}
