//! The compiler's `World` over real folders: the project's, the user's and the embedded system space (`language.md` 1).
//! Files are opened through directory handles, so no symbolic link leads out of its space. A signed file that does not
//! verify is not parsed (`language.md` 3). A world is a snapshot: each listing is read once. To see later changes,
//! create a new world.

mod cached;
mod context_files;
mod folders;
mod links;
mod listing;
mod signing;
mod system_files;
mod watcher;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, Metadata, MetadataExt, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;
use rye_compiler::world::{
    ContextFile, Entry, ItemKind, LocatedFile, MCP_JSON, SkillPath, Space, UnrecognizedFile, World, WorldError,
};
use rye_grammar::ItemId;
use rye_grammar::tool_header::ScriptReader;

use crate::keys::{SignatureError, SignatureStatus, TrustStore};
use crate::scripts::SyntaxTreeReader;
use crate::user_space::{self, ProtectedFiles};
pub use cached::CachedWorld;
use folders::{FolderCache, FolderEntry};
use links::refuse_protected_target;
use listing::Listing;
pub use signing::{FileSignature, SignaturePolicy};
pub use system_files::SystemFiles;
pub use watcher::{FileChange, Watcher};

/// Maximum size of a file in bytes. Larger files are refused, so that a mistake or an attack cannot exhaust memory.
const MAX_FILE_BYTES: u64 = 64 << 20;

type FoundFile = (Arc<str>, Vec<u8>);

/// A [`World`] that reads the project and the user space from the disk. The files of the system space are embedded in
/// the program.
pub struct DiskWorld {
    /// Project and user space, if they exist.
    spaces: Vec<(Space, Dir)>,
    system: SystemFiles,
    trust: TrustStore,
    require: OnceCell<Result<SignaturePolicy, WorldError>>,
    listings: RefCell<BTreeMap<(Space, ItemKind), Rc<Listing>>>,
    /// Device and inode numbers of keys and trust records. An item with one of these numbers is refused, because it is
    /// a key or a trust record under another name (a hard link).
    protected: OnceCell<Arc<ProtectedFiles>>,
    /// The paths of the roots of `spaces`.
    roots: Vec<PathBuf>,
    folders: FolderCache,
    project_is_user_space: bool,
}

impl DiskWorld {
    /// Opens the roots, the folders that contain `.ai/`. A user space that does not exist counts as empty.
    ///
    /// `system` contains the files of the standard library by path. `trust` contains the keys whose signatures are
    /// accepted.
    ///
    /// # Errors
    /// [`WorldError::Unreadable`]: a root exists and cannot be opened.
    pub fn open(
        project: Option<&Path>,
        user: Option<&Path>,
        system: impl Into<SystemFiles>,
        trust: TrustStore,
    ) -> Result<Self, WorldError> {
        let (mut spaces, mut roots) = (Vec::new(), Vec::new());
        for (space, root) in [(Space::Project, project), (Space::User, user)] {
            let Some(root) = root else { continue };
            match Dir::open_ambient_dir(root, ambient_authority()) {
                Ok(dir) => {
                    spaces.push((space, dir));
                    roots.push(root.to_path_buf());
                }
                Err(error) if error.kind() == ErrorKind::NotFound && space == Space::User => {}
                Err(error) => {
                    return Err(WorldError::Unreadable { path: root.display().to_string(), reason: error.to_string() });
                }
            }
        }
        let (require, listings, folders) = (OnceCell::new(), RefCell::default(), FolderCache::default());
        Ok(Self {
            spaces,
            system: system.into(),
            trust,
            require,
            listings,
            protected: OnceCell::new(),
            roots,
            folders,
            project_is_user_space: false,
        })
    }

    /// Sets whether the project is also the user space.
    #[must_use]
    pub fn with_project_as_user_space(mut self, is_user_space: bool) -> Self {
        self.project_is_user_space = is_user_space;
        self
    }

    /// Refuses a file that is a key or a trust record under another name.
    fn refuse_secret(&self, space: Space, path: &str, metadata: &Metadata) -> Result<(), WorldError> {
        let protected = self.protected.get_or_init(|| user_space::protected_files(&self.roots));
        if protected.secrets.contains(&(metadata.dev(), metadata.ino())) {
            let reason = "the file links to `.ai/keys` or `.ai/trust`, where items are not allowed".to_owned();
            return Err(WorldError::Unreadable { path: space.display(path), reason });
        }
        Ok(())
    }

    /// Returns the files of an id in one space: from the listing if it was read, else by trying each extension. For a
    /// kind with several folders ([`ItemKind::has_precedence`]), returns only the file with the highest precedence.
    fn files_of_id(&self, space: Space, dir: &Dir, kind: ItemKind, id: &ItemId) -> Result<Vec<FoundFile>, WorldError> {
        let listed = self.listings.borrow().get(&(space, kind)).map(Rc::clone);
        let mut found = Vec::new();
        if kind.has_precedence() {
            let listing = self.listing(space, dir, kind)?;
            let highest = kind.highest(listing.paths(id).iter().cloned());
            if let Some(path) = highest
                && let Some(bytes) = self.read_listed_file(space, dir, &path, listing.is_linked(&path))?
            {
                found.push((path, bytes));
            }
            return Ok(found);
        }
        if let Some(listing) = listed {
            for path in listing.paths(id) {
                if let Some(bytes) = self.read_listed_file(space, dir, path, listing.is_linked(path))? {
                    found.push((path.clone(), bytes));
                }
            }
            return Ok(found);
        }
        for extension in kind.extensions() {
            let path = format!("{}{id}.{extension}", kind.folder());
            if let Some(bytes) = self.read_file(space, dir, &path)? {
                found.push((path.into(), bytes));
            }
        }
        Ok(found)
    }

    /// Returns the bytes of a file; `None` if there is none. Reads the names in a folder once, so that only files that
    /// exist are opened.
    fn read_file(&self, space: Space, dir: &Dir, path: &str) -> Result<Option<Vec<u8>>, WorldError> {
        match self.folders.entry(space, dir, path) {
            FolderEntry::Missing => Ok(None),
            FolderEntry::Direct => self.read_listed_file(space, dir, path, false),
            FolderEntry::Unknown => self.read_listed_file(space, dir, path, true),
        }
    }

    /// Returns the bytes of a file that a listing names; `None` if the file is gone. `may_be_linked` is true if the
    /// file may be reached through a link.
    fn read_listed_file(
        &self,
        space: Space,
        dir: &Dir,
        path: &str,
        may_be_linked: bool,
    ) -> Result<Option<Vec<u8>>, WorldError> {
        if may_be_linked && space == Space::Project {
            refuse_protected_target(dir, path, &space.display(path))?;
        }
        if let Some((bytes, metadata)) = read_file(space, dir, path)? {
            self.refuse_secret(space, path, &metadata)?;
            return Ok(Some(bytes));
        }
        report_dangling_link(space, dir, path)
    }

    fn listing(&self, space: Space, dir: &Dir, kind: ItemKind) -> Result<Rc<Listing>, WorldError> {
        let known = self.listings.borrow().get(&(space, kind)).map(Rc::clone);
        if let Some(listing) = known {
            return Ok(listing);
        }
        let listing = Rc::new(Listing::read(space, dir, kind)?);
        self.listings.borrow_mut().insert((space, kind), Rc::clone(&listing));
        Ok(listing)
    }

    /// Drops a listing, so that the next access reads it again.
    fn forget_listing(&mut self, space: Space, kind: ItemKind) {
        self.listings.get_mut().remove(&(space, kind));
        self.folders.clear();
    }

    fn verify_signature(&self, space: Space, path: &str, bytes: &[u8]) -> Result<(), WorldError> {
        let fault = |reason: String| WorldError::Signature { path: space.display(path), reason };
        match self.trust.verify_file(bytes) {
            // If the policy is invalid, unsigned files are not refused here: `rye check` reports the policy, and no run
            // starts.
            Ok(SignatureStatus::Unsigned) if self.signature_policy() == Ok(SignaturePolicy::All) => {
                Err(WorldError::Unsigned { path: space.display(path) })
            }
            Ok(SignatureStatus::Signed { .. } | SignatureStatus::Unsigned) => Ok(()),
            Err(SignatureError::UnknownKey { key_id }) => {
                Err(WorldError::UntrustedKey { path: space.display(path), key_id })
            }
            Err(error) => Err(fault(error.to_string())),
        }
    }
}

/// Returns the bytes and metadata of a file; `None` if the file does not exist or is a dangling link.
fn read_file(space: Space, dir: &Dir, path: &str) -> Result<Option<(Vec<u8>, Metadata)>, WorldError> {
    let unreadable = |reason: String| WorldError::Unreadable { path: space.display(path), reason };
    let mut options = OpenOptions::new();
    // The open is non-blocking, so that a named pipe in place of a file cannot block the compiler.
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let mut file = match dir.open_with(path, options.read(true).custom_flags(nonblocking)) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(open_error(space, path, &error)),
    };
    let metadata = file.metadata().map_err(|e| unreadable(e.to_string()))?;
    if !metadata.is_file() {
        return Err(unreadable("it is not a regular file".to_owned()));
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(unreadable(format!("the file is larger than {} MiB", MAX_FILE_BYTES >> 20)));
    }
    // The buffer is one byte longer than the file. If a read leaves the last byte unused, the whole file was read, and
    // no second read is needed.
    let expected_length = usize::try_from(metadata.len()).unwrap_or(0);
    let mut bytes = vec![0; expected_length + 1];
    let read = loop {
        match file.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            answer => break answer.map_err(|e| unreadable(e.to_string()))?,
        }
    };
    bytes.truncate(read);
    if read != expected_length {
        // The read was short, or the file grew meanwhile. Reads the rest. `take` bounds the memory if the file keeps
        // growing.
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|e| unreadable(e.to_string()))?;
    }
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(unreadable(format!("the file is larger than {} MiB", MAX_FILE_BYTES >> 20)));
    }
    Ok(Some((bytes, metadata)))
}

/// Returns the result of reading a file that is missing: an error if the path is a dangling link, else `None`.
fn report_dangling_link(space: Space, dir: &Dir, path: &str) -> Result<Option<Vec<u8>>, WorldError> {
    match dir.symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_symlink() => {
            Err(WorldError::Unreadable { path: space.display(path), reason: "it is a dangling link".to_owned() })
        }
        _ => Ok(None),
    }
}

/// Converts an error of opening a file. `cap_std` reports a path that leads out of `space` as a permission error
/// without an OS error number.
fn open_error(space: Space, path: &str, error: &std::io::Error) -> WorldError {
    let path = space.display(path);
    if error.kind() == ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
        return WorldError::Escapes { path };
    }
    WorldError::Unreadable { path, reason: error.to_string() }
}

impl World for DiskWorld {
    fn candidates(&self, kind: ItemKind, id: &ItemId) -> Result<Vec<LocatedFile>, WorldError> {
        let mut found = Vec::new();
        for (space, dir) in &self.spaces {
            let files = self.files_of_id(*space, dir, kind, id)?;
            if let [(first, _), (second, _), ..] = files.as_slice() {
                let (first, second) = (space.display(first), space.display(second));
                return Err(WorldError::Ambiguous { id: id.to_string(), first, second });
            }
            for (path, bytes) in files {
                self.verify_signature(*space, &path, &bytes)?;
                found.push(LocatedFile { space: *space, kind, id: id.clone(), path, bytes: bytes.into() });
            }
        }
        for (path, bytes) in self.system.0.get(&(kind, id.clone())).into_iter().flatten() {
            let (path, bytes) = (path.clone(), (*bytes).into());
            found.push(LocatedFile { space: Space::System, kind, id: id.clone(), path, bytes });
        }
        Ok(found)
    }

    fn list(&self, kind: ItemKind) -> Result<Vec<Entry>, WorldError> {
        let mut entries = Vec::new();
        for (space, dir) in &self.spaces {
            let listing = self.listing(*space, dir, kind)?;
            entries.extend(listing.entries().map(|(id, path)| Entry {
                id: id.clone(),
                space: *space,
                path: path.clone(),
            }));
        }
        for ((k, id), files) in &*self.system.0 {
            if *k == kind {
                entries.extend(files.iter().map(|(path, _)| Entry {
                    id: id.clone(),
                    space: Space::System,
                    path: path.clone(),
                }));
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn context_files(&self) -> Result<Vec<ContextFile>, WorldError> {
        self.read_context_files()
    }

    fn unrecognized_files(&self) -> Result<Vec<UnrecognizedFile>, WorldError> {
        let mut unrecognized = self.misplaced_settings()?;
        for (space, dir) in self.spaces.iter().filter(|(space, _)| *space == Space::Project) {
            for kind in ItemKind::ALL.into_iter().filter(|kind| *kind != ItemKind::Config) {
                unrecognized.extend(self.listing(*space, dir, kind)?.unrecognized(*space));
            }
            unrecognized.extend(listing::list_misnamed_root_files(dir)?);
            unrecognized.extend(listing::list_other_clients(dir));
        }
        unrecognized.sort();
        Ok(unrecognized)
    }

    fn misplaced_settings(&self) -> Result<Vec<UnrecognizedFile>, WorldError> {
        let mut found = Vec::new();
        for (space, dir) in &self.spaces {
            found.extend(listing::list_top_level(*space, dir)?);
            found.extend(self.listing(*space, dir, ItemKind::Config)?.unrecognized(*space));
        }
        found.sort();
        Ok(found)
    }

    fn mcp_json(&self) -> Result<Option<Arc<[u8]>>, WorldError> {
        let Some((_, dir)) = self.spaces.iter().find(|(space, _)| *space == Space::Project) else { return Ok(None) };
        let unreadable = |reason: &str| WorldError::Unreadable { path: MCP_JSON.to_owned(), reason: reason.to_owned() };
        match dir.symlink_metadata(MCP_JSON) {
            Ok(metadata) if !metadata.is_file() => return Err(unreadable("it is not a regular file")),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(open_error(Space::Project, MCP_JSON, &error)),
        }
        let Some((bytes, metadata)) = read_file(Space::Project, dir, MCP_JSON)? else { return Ok(None) };
        self.refuse_secret(Space::Project, MCP_JSON, &metadata)?;
        Ok(Some(bytes.into()))
    }

    fn read_skill_file(&self, skill: &LocatedFile, path: &SkillPath) -> Result<Option<Vec<u8>>, WorldError> {
        let Some((space, dir)) = self.spaces.iter().find(|(space, _)| *space == skill.space) else { return Ok(None) };
        let folder = skill.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let shown = format!("{folder}/{}", path.as_str());
        let fail = |error: std::io::Error| open_error(*space, &shown, &error);
        // The folder of a skill can be a link. The target must also be in a folder of skills.
        let real = dir.canonicalize(folder).map_err(fail)?;
        let is_skill = real.to_str().is_some_and(|real| {
            ItemKind::Skill
                .folders()
                .iter()
                .any(|folder| real.strip_prefix(folder).is_some_and(|name| !name.is_empty()))
        });
        if !is_skill {
            return Err(WorldError::Escapes { path: space.display(&shown) });
        }
        let opened = dir.open_dir(&real).map_err(fail)?;
        if *space == Space::Project {
            refuse_protected_target(&opened, path.as_str(), &shown)?;
        }
        let Some((bytes, metadata)) = read_file(*space, &opened, path.as_str())? else {
            return Ok(None);
        };
        self.refuse_secret(*space, &shown, &metadata)?;
        Ok(Some(bytes))
    }

    fn scripts(&self) -> &dyn ScriptReader {
        &SyntaxTreeReader
    }

    fn project_is_user_space(&self) -> bool {
        self.project_is_user_space
    }
}

#[cfg(test)]
#[path = "disk_world/tests.rs"]
mod tests;
