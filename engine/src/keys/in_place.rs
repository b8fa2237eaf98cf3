//! Puts a signature line on a file where it lies: read once, written under another name, renamed over the old one.

use std::io;
use std::path::Path;

use super::{Comment, Identity};
use crate::within::Within;

/// Bytes of an item that can be signed: more than any compiler reads.
const MAX_ITEM: u64 = 64 << 20;

/// Signs the file at a path relative to a space's root; an old signature line is taken off. Links that leave the space
/// are refused, and so is a link in the file's own place. `timestamp` is RFC 3339.
///
/// # Errors
/// The file cannot be read or written, is no item, or is too large to be one.
pub fn sign_in_place(root: &Path, path: &str, identity: &Identity, timestamp: &str) -> io::Result<()> {
    let within = Within::open(root)?;
    let extension = path.rsplit_once('.').map_or("", |parts| parts.1);
    let comment = Comment::of_extension(extension).ok_or_else(|| io::Error::other("it has no comment syntax"))?;
    let bytes = within.read(Path::new(path), MAX_ITEM)?.ok_or(io::ErrorKind::NotFound)?;
    within.replace(Path::new(path), &identity.sign_file(&bytes, comment, timestamp))
}
