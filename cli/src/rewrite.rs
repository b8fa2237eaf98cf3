//! Safe rewriting of project files that may change concurrently: each file is replaced as a whole, and only if it still
//! holds what was read.

use std::io::Write;
use std::path::{Path, PathBuf};

use similar::TextDiff;

use crate::CommandError;

/// A file with its old and new contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRewrite {
    /// Path relative to the project, with forward slashes.
    pub path: String,
    pub before: String,
    pub after: String,
}

impl FileRewrite {
    /// Returns the change as a unified diff.
    pub fn diff(&self) -> String {
        let names = (format!("a/{}", self.path), format!("b/{}", self.path));
        let diff = TextDiff::from_lines(&self.before, &self.after);
        diff.unified_diff().context_radius(2).header(&names.0, &names.1).to_string()
    }

    /// Writes the new contents: to a temporary file with the same permissions, which is renamed over the original.
    pub fn write(&self, project: &Path) -> Result<(), CommandError> {
        let path = project.join(&self.path);
        let failed = |what: &str, error: &std::io::Error| {
            CommandError::failed(format!("`{}` cannot be {what}: {error}", self.path))
        };
        let metadata = std::fs::symlink_metadata(&path).map_err(|e| failed("read", &e))?;
        if !metadata.is_file() {
            return Err(CommandError::failed(format!("`{}` is not a regular file; left unchanged", self.path)));
        }
        let now = std::fs::read(&path).map_err(|e| failed("read", &e))?;
        let (mark, text) =
            now.strip_prefix(BYTE_ORDER_MARK).map_or((&[][..], &now[..]), |text| (BYTE_ORDER_MARK, text));
        if text != self.before.as_bytes() {
            return Err(CommandError::failed(format!("`{}` has changed in the meantime; left unchanged", self.path)));
        }
        let beside = temporary_path(&path);
        let written = (|| {
            let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&beside)?;
            file.write_all(mark)?;
            file.write_all(self.after.as_bytes())?;
            file.set_permissions(metadata.permissions())?;
            file.sync_all()?;
            std::fs::rename(&beside, &path)
        })();
        if written.is_err() {
            // Remove the incomplete file, if there is one.
            std::fs::remove_file(&beside).ok();
        }
        written.map_err(|e| failed("written", &e))
    }
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Returns a temporary name that no other process uses and no item has.
fn temporary_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.rye-{}", std::process::id()))
}
