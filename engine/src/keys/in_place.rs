//! Puts a signature line on a file where it lies: read once, written under another name, renamed over the old one.

use std::io::{self, Read, Write};
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use super::{Comment, Identity};

/// Bytes of an item that can be signed: more than any compiler reads.
const MAX_ITEM: u64 = 64 << 20;

/// Signs the file at a path relative to a space's root; an old signature line is taken off. Links that leave the space
/// are refused, and so is a link in the file's own place. `timestamp` is RFC 3339.
///
/// # Errors
/// The file cannot be read or written, is no item, or is too large to be one.
pub fn sign_in_place(root: &Path, path: &str, identity: &Identity, timestamp: &str) -> io::Result<()> {
    let dir = Dir::open_ambient_dir(root, ambient_authority())?;
    let metadata = dir.symlink_metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.len() > MAX_ITEM {
        return Err(io::Error::other("it is too large to be an item"));
    }
    let extension = path.rsplit_once('.').map_or("", |parts| parts.1);
    let comment = Comment::of_extension(extension).ok_or_else(|| io::Error::other("it has no comment syntax"))?;
    let mut bytes = Vec::new();
    dir.open(path)?.take(MAX_ITEM).read_to_end(&mut bytes)?;
    let signed = identity.sign_file(&bytes, comment, timestamp);
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let temporary = format!("{path}.{:016x}.tmp", u64::from_le_bytes(random));
    let mut file = dir.open_with(&temporary, OpenOptions::new().write(true).create_new(true))?;
    let written = file
        .write_all(&signed)
        .and_then(|()| file.set_permissions(metadata.permissions()))
        .and_then(|()| file.sync_all())
        .and_then(|()| dir.rename(&temporary, &dir, path));
    if written.is_err() {
        dir.remove_file(&temporary).ok();
    }
    written
}
