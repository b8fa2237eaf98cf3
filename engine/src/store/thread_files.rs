//! Artifacts of a thread: `thread.json`, `capabilities.md` and the knowledge export (`engine.md` 4). Everything in them
//! derives from the transcript. They are outputs: no run reads them, and they are never synced.

use std::path::Path;

use rye_grammar::ItemId;
use serde_json::{Map, Value};

use super::disk::{Disk, is_temporary_of};
use super::file_writer::write_parts_atomic;
use super::{StoreError, layout};
use crate::thread_id::ThreadId;

/// The format version of `thread.json` that this build writes, and the newest that it reads.
pub(crate) const SNAPSHOT_VERSION: u64 = 1;

/// Name of the field of `thread.json` that holds the signature.
pub(crate) const SIGNATURE: &str = "_signature";

/// Largest integer that readers with floating-point numbers represent exactly.
const MAX_EXACT_INTEGER: u64 = (1 << 53) - 1;

/// A function that signs canonical bytes. Returns the signature as text, in the form in which a file contains it.
pub type SignFn<'a> = &'a dyn Fn(&[u8]) -> String;

/// Writes `thread.json` as canonical JSON. With a signer, `_signature` covers the canonical JSON of the other fields.
pub(crate) fn write_snapshot(
    disk: &dyn Disk,
    thread: &ThreadId,
    fields: &Map<String, Value>,
    signer: Option<SignFn<'_>>,
) -> Result<(), StoreError> {
    let path = layout::snapshot(thread);
    let mut fields = fields.clone();
    fields.shift_remove(SIGNATURE);
    let mut bytes = canonical_json(&path, &fields)?;
    if let Some(sign) = signer {
        let signature = Value::String(sign(&bytes));
        let first = fields.keys().all(|key| key.as_str() > SIGNATURE);
        // In canonical order, `_signature` precedes every lower-case name, so it can be inserted at the front.
        let rest = bytes.strip_prefix(b"{").filter(|_| first && !fields.is_empty());
        if let Some(rest) = rest {
            bytes = [format!("{{\"{SIGNATURE}\":{signature},").as_bytes(), rest].concat();
        } else {
            fields.insert(SIGNATURE.to_string(), signature);
            bytes = canonical_json(&path, &fields)?;
        }
    }
    bytes.push(b'\n');
    disk.write_atomic(&path, &bytes).map_err(StoreError::io("write", &path))
}

/// Writes `capabilities.md`; `text` includes the signature line.
pub fn write_capabilities(disk: &dyn Disk, thread: &ThreadId, text: &[u8]) -> Result<(), StoreError> {
    let path = layout::capabilities(thread);
    disk.write_atomic(&path, text).map_err(StoreError::io("write", &path))
}

/// Writes the knowledge export and returns its path. `parts` are the consecutive parts of the file, with the signature
/// line.
pub(crate) fn write_export(
    disk: &dyn Disk,
    directive: &ItemId,
    thread: &ThreadId,
    parts: &[&[u8]],
) -> Result<std::path::PathBuf, StoreError> {
    let path = layout::export(directive, thread);
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut made = std::path::PathBuf::new();
    for part in folder {
        made.push(part);
        match disk.create_dir(&made) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(StoreError::io("create the folder", &made)(error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    write_parts_atomic(disk, &path, parts).map_err(StoreError::io("write", &path))?;
    Ok(path)
}

/// Removes the unfinished copies of the artifacts that a killed process left beside them. The caller holds the lease of
/// the thread, so that no other process writes its artifacts.
pub(crate) fn remove_unfinished(disk: &dyn Disk, directive: &ItemId, thread: &ThreadId) -> Result<(), StoreError> {
    for path in [layout::snapshot(thread), layout::capabilities(thread), layout::export(directive, thread)] {
        let folder = path.parent().unwrap_or(Path::new(""));
        let entries = match disk.list(folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            listed => listed.map_err(StoreError::io("list", folder))?,
        };
        for entry in entries.iter().filter(|entry| !entry.is_dir && is_temporary_of(&entry.name, &path)) {
            let unfinished = folder.join(&entry.name);
            disk.remove(&unfinished).map_err(StoreError::io("remove", &unfinished))?;
        }
    }
    Ok(())
}

/// Converts a value for a snapshot: integers that canonical JSON would round become text.
pub(crate) fn with_exact_integers(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            find_inexact_integer(value).map_or_else(|| Value::Number(number.clone()), Value::String)
        }
        Value::Array(items) => Value::Array(items.iter().map(with_exact_integers).collect()),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, value)| (key.clone(), with_exact_integers(value))).collect())
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// Serializes an object as canonical JSON (RFC 8785); fails if an integer would be rounded.
pub(crate) fn canonical_json(path: &Path, fields: &Map<String, Value>) -> Result<Vec<u8>, StoreError> {
    let refused = |reason: String| StoreError::Altered { path: path.to_path_buf(), reason };
    if let Some(number) = fields.values().find_map(find_inexact_integer) {
        return Err(refused(format!("the integer {number} is beyond 2^53, which canonical JSON cannot hold")));
    }
    serde_json_canonicalizer::to_vec(fields).map_err(|error| refused(error.to_string()))
}

/// Returns the first integer in a value that canonical JSON would round; `None` if there is none.
fn find_inexact_integer(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => {
            let large = number.as_u64().map_or_else(|| number.as_i64().map(i64::unsigned_abs), Some);
            large.filter(|magnitude| *magnitude > MAX_EXACT_INTEGER).map(|_| number.to_string())
        }
        Value::Array(items) => items.iter().find_map(find_inexact_integer),
        Value::Object(fields) => fields.values().find_map(find_inexact_integer),
        Value::Null | Value::Bool(_) | Value::String(_) => None,
    }
}

#[cfg(test)]
mod tests;
