//! Writes of the file tools. Before a file is replaced, the transcript records the change, and the old and the new
//! contents are stored, so that a rewind can restore them. Contents above [`MAX_KEPT_BYTES`] are not stored.

use std::io::Read;

use sha2::{Digest, Sha256};

use super::{ToolFailure, ToolOutcome};
use crate::BoxFuture;
use crate::event::FileChanged;
use crate::store::ObjectId;
use crate::tool::confine::{FileAccessError, FileVersion, ProjectFiles, ResolvedKind, ResolvedPath, WriteEffect};

/// Maximum size of contents that are kept for a rewind, in bytes.
pub const MAX_KEPT_BYTES: u64 = 16 << 20;

/// A function that is called before a file is written. The function stores the contents before and after the change,
/// and records the change in the thread. An error is a message for the model.
pub type ChangeRecorder = std::sync::Arc<dyn Fn(PendingChange) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// A change of a file that is about to happen, in the form in which the thread records the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingChange {
    pub event: FileChanged,
    /// The contents before and after the change, which the recorder stores. Contents above `MAX_KEPT_BYTES` are
    /// omitted.
    pub contents: Vec<Vec<u8>>,
}

/// A function that creates the result of a write.
pub(super) type DescribeWrite = Box<dyn FnOnce(WriteEffect, &ResolvedPath) -> ToolOutcome + Send>;

/// A file write whose target and bytes are known.
pub(super) struct PreparedWrite {
    pub place: ResolvedPath,
    pub bytes: Vec<u8>,
    /// Creates the result of the call from the effect of the write.
    pub outcome: DescribeWrite,
}

/// A prepared write with the state of the file that it replaces.
pub(super) struct PendingWrite {
    project: ProjectFiles,
    write: PreparedWrite,
    expected: Option<FileVersion>,
    change: PendingChange,
}

impl PendingWrite {
    /// Prepares a write: reads the contents and the mode that the file has before the write, if the file exists. Fails
    /// if the file must not be replaced or cannot be read.
    pub fn new(project: ProjectFiles, write: PreparedWrite) -> Result<Self, ToolFailure> {
        project.check_replaceable(&write.place)?;
        let (mut before, mut mode, mut expected) = (None, None, None);
        let mut contents = Vec::new();
        if let ResolvedKind::File { stat, .. } = &write.place.found {
            let (id, bytes) = read_contents(&project, &write.place)?;
            before = Some(id);
            contents.extend(bytes);
            mode = Some(stat.st_mode & 0o777);
            expected = Some(FileVersion::of(stat));
        }
        let after = ObjectId::of(&write.bytes).to_string();
        if is_recordable(write.bytes.len()) {
            contents.push(write.bytes.clone());
        }
        let path = write.place.path.to_string();
        let event = FileChanged { call_id: String::new(), path, before, after: Some(after), mode };
        Ok(Self { project, write, expected, change: PendingChange { event, contents } })
    }

    /// Returns the change in the form in which the thread records it for the call `call_id`.
    pub fn change(&self, call_id: &str) -> PendingChange {
        let mut change = self.change.clone();
        call_id.clone_into(&mut change.event.call_id);
        change
    }

    /// Replaces the file. Fails if the file changed since it was read.
    pub fn commit(self) -> Result<ToolOutcome, ToolFailure> {
        let PreparedWrite { place, bytes, outcome } = self.write;
        let effect = self.project.replace(&place, &bytes, self.expected)?;
        Ok(outcome(effect, &place))
    }
}

/// Returns the object id of a file's contents, and the contents themselves. The contents are `None` if they are larger
/// than [`MAX_KEPT_BYTES`].
pub(crate) fn read_contents(
    project: &ProjectFiles,
    place: &ResolvedPath,
) -> Result<(String, Option<Vec<u8>>), FileAccessError> {
    let fail = |source| FileAccessError::Io { path: place.path.to_string(), source };
    let (mut file, metadata) = project.open_file(place)?;
    if metadata.len() <= MAX_KEPT_BYTES {
        let mut bytes = Vec::new();
        (&mut file).take(MAX_KEPT_BYTES + 1).read_to_end(&mut bytes).map_err(fail)?;
        if is_recordable(bytes.len()) {
            return Ok((ObjectId::of(&bytes).to_string(), Some(bytes)));
        }
        let (mut file, _) = project.open_file(place)?;
        return Ok((hash(&mut file).map_err(fail)?, None));
    }
    Ok((hash(&mut file).map_err(fail)?, None))
}

fn is_recordable(length: usize) -> bool {
    u64::try_from(length).is_ok_and(|length| length <= MAX_KEPT_BYTES)
}

fn hash(file: &mut impl Read) -> std::io::Result<String> {
    let mut hasher = Sha256::new();
    let mut chunk = vec![0_u8; 64 * 1024];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(rye_compiler::world::hex(&hasher.finalize())),
            Ok(read) => hasher.update(chunk.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
