//! A canonical path in the project, printable for users and models.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use rye_compiler::diagnostics::breaks_line;

/// Path segments from the project root; empty for the root itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProjectPath(pub Vec<OsString>);

impl ProjectPath {
    #[must_use]
    pub fn join(&self, name: &OsStr) -> Self {
        let mut segments = self.0.clone();
        segments.push(name.to_owned());
        Self(segments)
    }

    /// Returns `root` joined with this path; `root` is the root of the project.
    pub fn below(&self, root: &Path) -> PathBuf {
        let mut path = root.to_owned();
        path.extend(&self.0);
        path
    }

    /// Returns true if the path is the folder or is below it. `folder` is relative to the project, without `..`.
    pub fn is_inside(&self, folder: &str) -> bool {
        let parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        parts.len() <= self.0.len() && parts.iter().zip(&self.0).all(|(part, segment)| segment == part)
    }
}

impl fmt::Display for ProjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(".");
        }
        for (index, segment) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("/")?;
            }
            f.write_str(&printable(segment))?;
        }
        Ok(())
    }
}

/// Renders a name on one line: escapes control characters, replaces bytes that are not UTF-8.
pub fn printable(name: &OsStr) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.to_string_lossy().chars() {
        if breaks_line(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}
