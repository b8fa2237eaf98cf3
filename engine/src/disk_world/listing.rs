//! A listing of the items of one kind in a space, made without reading the files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::sync::Arc;

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use rustix::fs::{FileType, OFlags};
use rye_compiler::world::{
    CLAUDE_AGENTS, CLAUDE_SETTINGS, CONTEXT_FILE_NAMES, ItemKind, MAX_SKILL_DEPTH, MCP_FILE, SKILL_FILE, Space,
    UnrecognizedFile, WorldError, meant_root_file,
};
use rye_grammar::ItemId;

use super::links::is_linked;

/// Maximum depth of folders below the folder of an item kind other than skills. A deeper folder is an error. The
/// maximum also ends a walk through a loop of symbolic links.
const MAX_FOLDER_DEPTH: usize = 32;
/// Maximum depth of the folders that are searched for a `SKILL.md`. A `SKILL.md` below `MAX_SKILL_DEPTH` is not a
/// skill, but it is reported.
const MAX_REPORTED_SKILL_DEPTH: usize = 8;
/// The file of the user's `.ai/` with variables for providers. No other space has such a file.
const VARIABLES_FILE: &str = ".env";

pub(super) struct Listing {
    items: BTreeMap<ItemId, Vec<Arc<str>>>,
    /// Paths of the files that are not items.
    others: Vec<Arc<str>>,
    /// True if a listed file or folder is a symbolic link. The content behind a link can change without an event for
    /// the link's path.
    pub(super) has_links: bool,
    /// Files that are reached through a link.
    linked: BTreeSet<Arc<str>>,
}

/// Lists the entries directly in `.ai/`. Skips hidden entries, except misplaced files: `.mcp.json` and, in the project,
/// `.env` (only the user space has an `.env` that is read).
pub(super) fn list_top_level(space: Space, dir: &Dir) -> Result<Vec<UnrecognizedFile>, WorldError> {
    let mut found = Vec::new();
    let entries = match folder_entries(dir, ".ai") {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(super::open_error(space, ".ai", &error)),
    };
    for entry in entries {
        let entry = entry.map_err(|e| super::open_error(space, ".ai", &e.into()))?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let is_misplaced = name == MCP_FILE || (name == VARIABLES_FILE && space == Space::Project);
        if name.starts_with('.') && !is_misplaced {
            continue;
        }
        let is_folder = match entry.file_type() {
            FileType::Directory => true,
            FileType::RegularFile => false,
            // A link that is dangling or leaves the space counts as a file.
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => dir.metadata(format!(".ai/{name}")).is_ok_and(|m| m.is_dir()),
        };
        found.push(UnrecognizedFile { space, path: format!(".ai/{name}").into(), is_folder });
    }
    Ok(found)
}

/// Lists files in the project's root whose name is probably misspelled, because it is similar to the name of a file
/// that rye reads there. A name that is similar to the name of a context file is listed only if the root has no context
/// file. A name that is similar to `.mcp.json` is listed only if the root has no `.mcp.json`.
pub(super) fn list_misnamed_root_files(dir: &Dir) -> Result<Vec<UnrecognizedFile>, WorldError> {
    let mut found = Vec::new();
    let (mut has_context, mut has_servers) = (false, false);
    for entry in folder_entries(dir, ".").map_err(|e| super::open_error(Space::Project, ".", &e))? {
        let entry = entry.map_err(|e| super::open_error(Space::Project, ".", &e.into()))?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        has_context |= CONTEXT_FILE_NAMES.contains(&name);
        has_servers |= name == MCP_FILE;
        if meant_root_file(name).is_some() {
            found.push(UnrecognizedFile { space: Space::Project, path: name.into(), is_folder: false });
        }
    }
    found.retain(|file| if meant_root_file(&file.path) == Some(MCP_FILE) { !has_servers } else { !has_context });
    Ok(found)
}

/// Lists the settings file and the agents folder of Claude Code, if they exist in the project.
pub(super) fn list_other_clients(dir: &Dir) -> Vec<UnrecognizedFile> {
    let exists = |path: &&str| dir.symlink_metadata(path).is_ok();
    let file =
        |path: &str| UnrecognizedFile { space: Space::Project, path: path.into(), is_folder: path == CLAUDE_AGENTS };
    [CLAUDE_AGENTS, CLAUDE_SETTINGS].iter().filter(|path| exists(path)).map(|path| file(path)).collect()
}

/// Returns the entries of a folder. The folder is opened once, and its entries are read from this handle, which takes
/// two system calls.
pub(super) fn folder_entries(dir: &Dir, folder: &str) -> io::Result<rustix::fs::Dir> {
    let mut options = OpenOptions::new();
    let directory = i32::try_from(OFlags::DIRECTORY.bits()).unwrap_or(0);
    let opened = dir.open_with(folder, options.read(true).custom_flags(directory))?;
    Ok(rustix::fs::Dir::new(opened)?)
}

fn is_link(dir: &Dir, path: &str) -> bool {
    dir.symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
}

impl Listing {
    pub(super) fn read(space: Space, dir: &Dir, kind: ItemKind) -> Result<Self, WorldError> {
        let mut items: BTreeMap<ItemId, Vec<Arc<str>>> = BTreeMap::new();
        let mut others = Vec::new();
        let mut has_links = false;
        let mut linked = BTreeSet::new();
        let roots = kind.folders().iter().map(|root| root.trim_end_matches('/').to_owned());
        // Each entry: true if the folder is reached through a link, the path of the folder, and the depth of the
        // folder. A missing folder counts as not linked; the loop skips it.
        let mut folders: Vec<_> = roots.map(|root| (is_linked(dir, &root).unwrap_or(false), root, 0_usize)).collect();
        while let Some((in_link, folder, depth)) = folders.pop() {
            let is_own = folder.starts_with(".ai/");
            let entries = match folder_entries(dir, &folder) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound && depth == 0 => continue,
                Err(error) => return Err(super::open_error(space, &folder, &error)),
            };
            for entry in entries {
                let entry = entry.map_err(|e| super::open_error(space, &folder, &e.into()))?;
                // A name that is not Unicode is not an item id.
                let Ok(name) = entry.file_name().to_str() else { continue };
                if matches!(name, "." | "..") {
                    continue;
                }
                let path = format!("{folder}/{name}");
                // A link has the type of its target. `Unknown` is handled like a link, because some file systems do not
                // report the type. A link that leaves the space is an error.
                let mut is_linked = in_link;
                let is_folder = match entry.file_type() {
                    FileType::Directory => true,
                    kind @ (FileType::Symlink | FileType::Unknown) => {
                        is_linked |= kind == FileType::Symlink || is_link(dir, &path);
                        has_links |= is_linked;
                        match dir.metadata(&path) {
                            Ok(metadata) => metadata.is_dir(),
                            Err(error) if is_own => return Err(super::open_error(space, &path, &error)),
                            // In a folder of another client (`.claude`, `.agents`), a link may lead out of the space.
                            // Such a link is listed as a file that is not an item.
                            Err(_) => {
                                others.push(path.into());
                                continue;
                            }
                        }
                    }
                    FileType::RegularFile
                    | FileType::Fifo
                    | FileType::Socket
                    | FileType::CharacterDevice
                    | FileType::BlockDevice => false,
                };
                if is_folder && kind == ItemKind::Skill {
                    // A hidden folder holds no skill. Folders below `MAX_SKILL_DEPTH` are searched only to report a
                    // misplaced `SKILL.md`. Links to such folders are not followed.
                    let max_depth = if is_linked { MAX_SKILL_DEPTH } else { MAX_REPORTED_SKILL_DEPTH };
                    if depth < max_depth && !name.starts_with('.') && name != "node_modules" {
                        folders.push((is_linked, path, depth + 1));
                    }
                } else if is_folder {
                    if depth == MAX_FOLDER_DEPTH {
                        let reason = format!("it is nested more than {MAX_FOLDER_DEPTH} folders deep");
                        return Err(WorldError::Unreadable { path: space.display(&path), reason });
                    }
                    folders.push((is_linked, path, depth + 1));
                } else if let Some((_, id)) = ItemKind::of_path(&path) {
                    let path: Arc<str> = path.into();
                    if is_linked {
                        linked.insert(path.clone());
                    }
                    items.entry(id).or_default().push(path);
                } else if depth <= MAX_SKILL_DEPTH || name == SKILL_FILE {
                    others.push(path.into());
                }
            }
        }
        for paths in items.values_mut() {
            paths.sort();
        }
        Ok(Self { items, others, has_links, linked })
    }

    /// Returns true if a listed file is reached through a link.
    pub(super) fn is_linked(&self, path: &str) -> bool {
        self.linked.contains(path)
    }

    pub(super) fn paths(&self, id: &ItemId) -> &[Arc<str>] {
        self.items.get(id).map_or(&[], Vec::as_slice)
    }

    /// Returns the listed files that are not items. `space` is the space of this listing.
    pub(super) fn unrecognized(&self, space: Space) -> impl Iterator<Item = UnrecognizedFile> {
        self.others.iter().map(move |path| UnrecognizedFile { space, path: path.clone(), is_folder: false })
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&ItemId, &Arc<str>)> {
        self.items.iter().flat_map(|(id, paths)| paths.iter().map(move |p| (id, p)))
    }
}
