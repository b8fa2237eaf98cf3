//! Git repositories without a `.git` folder. A later git command in such a folder executes programs that the
//! repository's settings name, so file tools neither create such a repository nor write in one.

use std::path::PathBuf;

use rustix::fs::AtFlags;

use super::{ProjectFiles, ProjectPath};

impl ProjectFiles {
    /// Returns true if git recognizes a folder above `path` as a repository, or would do so after a file is created at
    /// `path`. Git recognizes a folder that contains `HEAD`, and either `commondir` or both `objects` and `refs`. The
    /// root of the project is not checked.
    pub(super) fn is_in_bare_repository(&self, path: &ProjectPath) -> bool {
        (1..path.0.len()).any(|depth| {
            let (folder, below) = path.0.split_at(depth);
            let folder: PathBuf = folder.iter().collect();
            let has = |name: &str| {
                below.first().is_some_and(|first| first.eq_ignore_ascii_case(name))
                    || rustix::fs::statat(&self.root, folder.join(name), AtFlags::SYMLINK_NOFOLLOW).is_ok()
            };
            has("HEAD") && ((has("objects") && has("refs")) || has("commondir"))
        })
    }
}
