//! Signing of a file in place: reads it once, writes a temporary file, and renames it over the original.

use std::io;
use std::path::Path;

use super::{CommentSyntax, SigningIdentity};
use crate::rooted_dir::RootedDir;

/// Maximum size in bytes of an item that can be signed. Equal to the maximum size of a file that the compiler reads.
const MAX_ITEM_BYTES: u64 = 64 << 20;

/// Signs the file at a path relative to a space's root, replacing an old signature line. Refuses links that leave the
/// space, and a link in place of the file. `timestamp` is in RFC 3339 format.
///
/// # Errors
/// The file cannot be read or written, is not an item, or is too large.
pub fn sign_in_place(root: &Path, path: &str, identity: &SigningIdentity, timestamp: &str) -> io::Result<()> {
    let within = RootedDir::open(root)?;
    let extension = path.rsplit_once('.').map_or("", |parts| parts.1);
    let comment = CommentSyntax::of_extension(extension)
        .ok_or_else(|| io::Error::other("a signature is a comment line, but the file's format has no comments"))?;
    let bytes = within.read(Path::new(path), MAX_ITEM_BYTES)?.ok_or(io::ErrorKind::NotFound)?;
    within.replace(Path::new(path), &identity.sign_file(&bytes, comment, timestamp))
}
