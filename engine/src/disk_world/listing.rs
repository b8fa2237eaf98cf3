//! What items of a kind a space holds, without reading them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use cap_std::fs::Dir;
use rye_compiler::world::{ItemKind, Space, WorldError};
use rye_grammar::ItemId;

/// Folders below a kind's own: deeper ones are an error, so that a tree of links or a mistake ends somewhere.
const MAX_DEPTH: usize = 32;

pub(super) struct Listing(BTreeMap<ItemId, Vec<Arc<str>>>);

impl Listing {
    pub(super) fn read(space: Space, dir: &Dir, kind: ItemKind) -> Result<Self, WorldError> {
        let mut items: BTreeMap<ItemId, Vec<Arc<str>>> = BTreeMap::new();
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
                }
            }
        }
        for paths in items.values_mut() {
            paths.sort();
        }
        Ok(Self(items))
    }

    pub(super) fn paths(&self, id: &ItemId) -> &[Arc<str>] {
        self.0.get(id).map_or(&[], Vec::as_slice)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&ItemId, &Arc<str>)> {
        self.0.iter().flat_map(|(id, paths)| paths.iter().map(move |p| (id, p)))
    }
}
