//! Context files on the disk: the user's file, and one file in each folder from the root of the git repository to the
//! project.

use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, MetadataExt};
use rye_compiler::world::{CONTEXT_FILE_NAMES, ContextFile, Space, USER_CONTEXT_FILE, WorldError};

use super::links::refuse_protected_target;
use super::{DiskWorld, read_file};

/// Permission bits with which the group or others may write a file.
const WRITABLE_BY_OTHERS: u32 = 0o022;

impl DiskWorld {
    /// Returns the context files, outermost first.
    ///
    /// # Errors
    /// A file cannot be read, or a file above the project could have been written by another user.
    pub(super) fn read_context_files(&self) -> Result<Vec<ContextFile>, WorldError> {
        let mut found = Vec::new();
        for (space, dir) in &self.spaces {
            if *space == Space::User
                && let Some((bytes, _)) = read_file(*space, dir, USER_CONTEXT_FILE)?
            {
                found.push(context_file(*space, USER_CONTEXT_FILE.into(), bytes));
            }
        }
        let project = self.spaces.iter().zip(&self.roots).find(|((space, _), _)| *space == Space::Project);
        let Some(((_, dir), root)) = project else { return Ok(found) };
        found.extend(self.files_above(root)?);
        let read = |name: &str| {
            refuse_protected_target(dir, name, name)?;
            let Some((bytes, metadata)) = read_file(Space::Project, dir, name)? else { return Ok(None) };
            self.refuse_secret(Space::Project, name, &metadata)?;
            Ok(Some(context_file(Space::Project, name.into(), bytes)))
        };
        found.extend(first_of_folder(&read)?);
        Ok(found)
    }

    /// Returns the context files of the folders above a project, up to the root of its git repository. A file that
    /// links out of the repository, or to a key of the user, is an error, because the author of the repository may be
    /// unknown.
    fn files_above(&self, root: &Path) -> Result<Vec<ContextFile>, WorldError> {
        let Ok(root) = root.canonicalize() else { return Ok(Vec::new()) };
        let folders: Vec<&Path> = root.ancestors().collect();
        let top = folders.iter().position(|folder| folder.join(".git").exists());
        let Some((depth, top)) = top.and_then(|depth| Some((depth, *folders.get(depth)?))) else {
            return Ok(Vec::new());
        };
        if depth == 0 {
            return Ok(Vec::new());
        }
        let unreadable = |reason: String| WorldError::Unreadable { path: top.display().to_string(), reason };
        let repository =
            Dir::open_ambient_dir(top, ambient_authority()).map_err(|error| unreadable(error.to_string()))?;
        let mut found = Vec::new();
        for (up, folder) in folders.iter().enumerate().take(depth + 1).skip(1).rev() {
            let Some(path) = folder.strip_prefix(top).ok().and_then(|folder| folder.to_str().map(Path::new)) else {
                continue;
            };
            let read = |name: &str| {
                let shown = format!("{}{name}", "../".repeat(up));
                let bytes = self.read_above(&repository, &path.join(name), &shown)?;
                Ok(bytes.map(|bytes| context_file(Space::Project, shown, bytes)))
            };
            found.extend(first_of_folder(&read)?);
        }
        Ok(found)
    }

    /// Reads a file that lies above the project, in the git repository of the project; `None` if there is no such file.
    /// Fails unless the file belongs to this user or to root, and no other user may write it.
    fn read_above(&self, repository: &Dir, path: &Path, shown: &str) -> Result<Option<Vec<u8>>, WorldError> {
        let unreadable = |reason: &str| WorldError::Unreadable { path: shown.to_owned(), reason: reason.to_owned() };
        let Some(relative) = path.to_str() else { return Ok(None) };
        refuse_protected_target(repository, relative, shown)?;
        let read = read_file(Space::Project, repository, relative).map_err(|error| match error {
            WorldError::Unreadable { reason, .. } => unreadable(&reason),
            WorldError::Escapes { .. } => unreadable("the file is a link that leads out of the git repository"),
            other @ (WorldError::Signature { .. }
            | WorldError::Unsigned { .. }
            | WorldError::UntrustedKey { .. }
            | WorldError::Ambiguous { .. }) => other,
        })?;
        let Some((bytes, metadata)) = read else { return Ok(None) };
        self.refuse_secret(Space::Project, shown, &metadata)?;
        let own = rustix::process::geteuid().as_raw();
        if ![0, own].contains(&metadata.uid()) || metadata.mode() & WRITABLE_BY_OTHERS != 0 {
            let reason = "the file is above the project folder, and another user can change it; remove the file, or correct its owner and mode";
            return Err(unreadable(reason));
        }
        Ok(Some(bytes))
    }
}

fn context_file(space: Space, path: String, bytes: Vec<u8>) -> ContextFile {
    ContextFile { space, path: path.into(), bytes: bytes.into(), ignored: Vec::new() }
}

/// Returns the context file of the highest rank in a folder; `None` if the folder has no context file. `read` reads the
/// file with a given name. Files of a lower rank are only compared with the returned file, so an error in reading such
/// a file is ignored.
fn first_of_folder(
    read: &dyn Fn(&str) -> Result<Option<ContextFile>, WorldError>,
) -> Result<Option<ContextFile>, WorldError> {
    let mut names = CONTEXT_FILE_NAMES.into_iter();
    while let Some(name) = names.next() {
        let Some(mut used) = read(name)? else { continue };
        let others = names.filter_map(|name| read(name).ok().flatten());
        used.ignored = others.filter(|other| other.bytes != used.bytes).map(|other| other.path).collect();
        return Ok(Some(used));
    }
    Ok(None)
}
