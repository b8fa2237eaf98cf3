//! What items of a kind a space holds, without reading them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use cap_std::fs::Dir;
use rye_compiler::world::{ItemKind, Space, Stray, WorldError};
use rye_grammar::ItemId;

/// Folders below a kind's own: deeper ones are an error, so that a tree of links or a mistake ends somewhere.
const MAX_DEPTH: usize = 32;

pub(super) struct Listing {
    items: BTreeMap<ItemId, Vec<Arc<str>>>,
    /// Files that are no items.
    others: Vec<Arc<str>>,
    /// Some file or folder is a link, so that one file can be changed by way of another.
    pub(super) has_links: bool,
}

/// What lies directly in `.ai/`, hidden files aside.
pub(super) fn top(space: Space, dir: &Dir) -> Result<Vec<Stray>, WorldError> {
    let mut found = Vec::new();
    let entries = match dir.read_dir(".ai") {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(super::refusal(space, ".ai", &error)),
    };
    for entry in entries {
        let entry = entry.map_err(|e| super::refusal(space, ".ai", &e))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.starts_with('.') {
            continue;
        }
        // A link that leads nowhere, or out, is not followed for this.
        let is_folder = dir.metadata(format!(".ai/{name}")).is_ok_and(|m| m.is_dir());
        found.push(Stray { path: format!(".ai/{name}").into(), is_folder });
    }
    Ok(found)
}

impl Listing {
    pub(super) fn read(space: Space, dir: &Dir, kind: ItemKind) -> Result<Self, WorldError> {
        let mut items: BTreeMap<ItemId, Vec<Arc<str>>> = BTreeMap::new();
        let mut others = Vec::new();
        let mut has_links = false;
        let root = kind.folder().trim_end_matches('/').to_owned();
        let mut folders = vec![(root, 0_usize)];
        while let Some((folder, depth)) = folders.pop() {
            let entries = match dir.read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound && depth == 0 => continue,
                Err(error) => return Err(super::refusal(space, &folder, &error)),
            };
            for entry in entries {
                let entry = entry.map_err(|e| super::refusal(space, &folder, &e))?;
                // A name that is not Unicode is no id.
                let Ok(name) = entry.file_name().into_string() else { continue };
                let path = format!("{folder}/{name}");
                let file_type = entry.file_type().map_err(|e| super::refusal(space, &path, &e))?;
                // What a link leads to counts, and a link that leaves is refused here.
                let is_folder = if file_type.is_symlink() {
                    has_links = true;
                    dir.metadata(&path).map_err(|e| super::refusal(space, &path, &e))?.is_dir()
                } else {
                    file_type.is_dir()
                };
                if is_folder {
                    if depth == MAX_DEPTH {
                        let reason = format!("it lies more than {MAX_DEPTH} folders deep");
                        return Err(WorldError::Unreadable { path: space.display(&path), reason });
                    }
                    folders.push((path, depth + 1));
                } else if let Some((_, id)) = ItemKind::of_path(&path) {
                    items.entry(id).or_default().push(path.into());
                } else {
                    others.push(path.into());
                }
            }
        }
        for paths in items.values_mut() {
            paths.sort();
        }
        Ok(Self { items, others, has_links })
    }

    pub(super) fn paths(&self, id: &ItemId) -> &[Arc<str>] {
        self.items.get(id).map_or(&[], Vec::as_slice)
    }

    pub(super) fn strays(&self) -> impl Iterator<Item = Stray> {
        self.others.iter().map(|path| Stray { path: path.clone(), is_folder: false })
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&ItemId, &Arc<str>)> {
        self.items.iter().flat_map(|(id, paths)| paths.iter().map(move |p| (id, p)))
    }
}
