//! Content-addressed objects below `.ai/state/objects`, named by their SHA-256 (`engine.md` 4): plans, large results,
//! images, and contents of files that tools changed.
//!
//! An object is written as `.<hash>.….tmp`, synced, and renamed to `<hash>.new`. After this name is synced, the object
//! is renamed to `<hash>`. A visible `<hash>` therefore proves that the contents and one of the two names are durable,
//! so that no process needs a sync to store the same contents again. The second rename need not be durable, because
//! readers also accept `<hash>.new`.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::disk::Disk;
use super::file_writer::FileWriter;
use super::layout::OBJECTS;
use super::{StoreError, transcript};

/// SHA-256 of an object's contents as 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectId(Arc<str>);

impl ObjectId {
    /// Computes the id of these contents.
    pub fn of(contents: &[u8]) -> Self {
        Self::from_digest(Sha256::new_with_prefix(contents))
    }

    fn from_digest(hash: Sha256) -> Self {
        let digest: [u8; 32] = hash.finalize().into();
        Self(transcript::ChainHash::from(digest).to_string().into())
    }

    /// Parses an id. Rejects any other text, because ids become paths.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        if text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Ok(Self(text.into()));
        }
        Err(StoreError::InvalidId { reason: format!("`{}` is not an object id (64 hex digits)", text.escape_debug()) })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ObjectId {
    type Error = StoreError;
    fn try_from(value: String) -> Result<Self, Self::Error> {
        Self::parse(&value)
    }
}

impl From<ObjectId> for String {
    fn from(value: ObjectId) -> Self {
        value.0.to_string()
    }
}

/// Maximum bytes of an object that are read at once to compute its hash.
const READ_BYTES: usize = 1024 * 1024;

/// The object store of a project.
#[derive(Debug, Clone)]
pub struct Objects {
    disk: Arc<dyn Disk>,
}

impl Objects {
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk }
    }

    /// Stores contents durably. An event may refer to the object once this function has returned.
    pub fn put(&self, contents: &[u8]) -> Result<ObjectId, StoreError> {
        let mut ids = self.put_all(&[contents])?;
        ids.pop().map_or_else(|| Ok(ObjectId::of(contents)), Ok)
    }

    /// Stores a value as JSON text. The result is the same as if [`Self::put`] stored the text, but the text is never
    /// in memory as a whole.
    pub(crate) fn put_json<T: Serialize + ?Sized>(&self, value: &T) -> Result<ObjectId, StoreError> {
        let unserializable = |error: serde_json::Error| StoreError::io("write", Path::new(OBJECTS))(error.into());
        let mut hash = HashWriter(Sha256::new());
        serde_json::to_writer(&mut hash, value).map_err(unserializable)?;
        let id = ObjectId::from_digest(hash.0);
        if self.is_intact(&id)? {
            return Ok(id);
        }
        self.write(&id, |file| Ok(serde_json::to_writer(file, value)?))?;
        let folder = Path::new(OBJECTS);
        self.disk.sync_dir(folder).map_err(StoreError::io("sync", folder))?;
        self.rename_to_final(&id)?;
        Ok(id)
    }

    /// Stores the contents that `make` returns, unless an object with this id is stored durably and unaltered. In that
    /// case, `make` is not called.
    pub(crate) fn put_unless_stored(
        &self,
        id: &ObjectId,
        make: impl FnOnce() -> Result<Vec<u8>, StoreError>,
    ) -> Result<(), StoreError> {
        if !self.is_intact(id)? {
            self.put(&make()?)?;
        }
        Ok(())
    }

    /// Returns true if the object is stored durably and its contents match its id.
    fn is_intact(&self, id: &ObjectId) -> Result<bool, StoreError> {
        Ok(self.has(id)? && self.hash_stored(id).is_ok_and(|stored| stored == *id))
    }

    /// Returns the hash of the contents that are stored under `id`. The hash differs from `id` if the contents were
    /// altered. Reads the contents in parts.
    fn hash_stored(&self, id: &ObjectId) -> io::Result<ObjectId> {
        let (path, mut hash, mut at) = (final_path(id), Sha256::new(), 0);
        loop {
            let part = self.disk.read_range(&path, at, READ_BYTES)?;
            if part.is_empty() {
                return Ok(ObjectId::from_digest(hash));
            }
            at += part.len() as u64;
            hash.update(&part);
        }
    }

    /// Stores several contents with one sync of the folder; returns the ids in the order of the contents.
    pub(crate) fn put_all(&self, contents: &[&[u8]]) -> Result<Vec<ObjectId>, StoreError> {
        let mut ids = Vec::with_capacity(contents.len());
        let mut fresh = Vec::new();
        for contents in contents {
            let id = ObjectId::of(contents);
            if !fresh.contains(&id) && !self.holds(&id, contents)? {
                self.write(&id, |file| file.write_all(contents))?;
                fresh.push(id.clone());
            }
            ids.push(id);
        }
        if !fresh.is_empty() {
            let folder = Path::new(OBJECTS);
            self.disk.sync_dir(folder).map_err(StoreError::io("sync", folder))?;
        }
        for id in &fresh {
            self.rename_to_final(id)?;
        }
        Ok(ids)
    }

    /// Returns an object's contents after checking them against its id.
    pub fn get(&self, id: &ObjectId) -> Result<Vec<u8>, StoreError> {
        let path = final_path(id);
        let is_missing = |read: &io::Result<Vec<u8>>| read.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
        let mut contents = self.disk.read(&path);
        // A concurrent writer may rename the `.new` file to its final name between two reads, so the final name is read
        // again.
        for again in [new_path(id), path.clone()] {
            if is_missing(&contents) {
                contents = self.disk.read(&again);
            }
        }
        let contents = contents.map_err(StoreError::io("read", &path))?;
        if ObjectId::of(&contents) != *id {
            return Err(StoreError::Altered { path, reason: "the contents do not match the hash".to_string() });
        }
        Ok(contents)
    }

    /// Returns true if the object is stored durably with these contents. A repository can ship another file under the
    /// name of an object. Such a file counts as missing, and is replaced.
    fn holds(&self, id: &ObjectId, contents: &[u8]) -> Result<bool, StoreError> {
        Ok(self.has(id)? && self.disk.read(&final_path(id)).is_ok_and(|stored| stored == contents))
    }

    /// Returns true if the object is stored durably.
    pub fn has(&self, id: &ObjectId) -> Result<bool, StoreError> {
        let path = final_path(id);
        self.disk.exists(&path).map_err(StoreError::io("access", &path))
    }

    /// Writes an object under its `.new` name. `fill` writes the contents.
    fn write(&self, id: &ObjectId, fill: impl FnOnce(&mut FileWriter<'_>) -> io::Result<()>) -> Result<(), StoreError> {
        let path = new_path(id);
        let temporary = super::disk::temporary_beside(&path);
        let mut writer = FileWriter::new(&*self.disk, &temporary);
        let written = fill(&mut writer)
            .and_then(|()| writer.finish())
            .and_then(|()| self.disk.sync(&temporary))
            .and_then(|()| self.disk.rename(&temporary, &path));
        written.map_err(|error| {
            // The first error is reported; readers ignore the leftover's name.
            let _ = self.disk.remove(&temporary);
            StoreError::io("write", &path)(error)
        })
    }

    fn rename_to_final(&self, id: &ObjectId) -> Result<(), StoreError> {
        let path = final_path(id);
        match self.disk.rename(&new_path(id), &path) {
            // Another process stored the same contents first.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.has(id)? => Ok(()),
            renamed => renamed.map_err(StoreError::io("write", &path)),
        }
    }
}

/// A writer that only computes the hash of what is written.
struct HashWriter(Sha256);

impl Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn final_path(id: &ObjectId) -> PathBuf {
    Path::new(OBJECTS).join(id.as_str())
}

fn new_path(id: &ObjectId) -> PathBuf {
    Path::new(OBJECTS).join(format!("{id}.new"))
}

#[cfg(test)]
mod tests;
