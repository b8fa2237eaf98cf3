//! The files of the system space, by item.

use std::collections::BTreeMap;
use std::sync::Arc;

use rye_compiler::world::ItemKind;
use rye_grammar::ItemId;

/// A file of the system space: its path and its contents, embedded in the program.
type EmbeddedFile = (Arc<str>, &'static [u8]);

/// The files of the system space, by item. A copy shares the files, so that a process that opens several worlds sorts
/// the files once.
#[derive(Debug, Clone)]
pub struct SystemFiles(pub(super) Arc<BTreeMap<(ItemKind, ItemId), Vec<EmbeddedFile>>>);

impl FromIterator<(String, &'static [u8])> for SystemFiles {
    /// Collects the files of items by path. Files that are not items are left out.
    fn from_iter<I: IntoIterator<Item = (String, &'static [u8])>>(files: I) -> Self {
        let mut items: BTreeMap<_, Vec<EmbeddedFile>> = BTreeMap::new();
        for (path, bytes) in files {
            if let Some(key) = ItemKind::of_path(&path) {
                items.entry(key).or_default().push((path.into(), bytes));
            }
        }
        Self(Arc::new(items))
    }
}

impl From<Vec<(String, &'static [u8])>> for SystemFiles {
    fn from(files: Vec<(String, &'static [u8])>) -> Self {
        files.into_iter().collect()
    }
}

impl<const N: usize> From<[(String, &'static [u8]); N]> for SystemFiles {
    fn from(files: [(String, &'static [u8]); N]) -> Self {
        files.into_iter().collect()
    }
}
