//! A world that counts the reads of items.

use std::cell::Cell;
use std::sync::Arc;

use rye_compiler::world::{ContextFile, Entry, ItemKind, LocatedFile, MapWorld, UnrecognizedFile, World, WorldError};
use rye_grammar::ItemId;
use rye_grammar::tool_header::ScriptReader;

/// A world that counts the reads of items.
pub struct CountingWorld<'w> {
    pub world: MapWorld<'w>,
    pub reads: Cell<usize>,
}

impl World for CountingWorld<'_> {
    fn candidates(&self, kind: ItemKind, id: &ItemId) -> Result<Vec<LocatedFile>, WorldError> {
        self.reads.set(self.reads.get() + 1);
        self.world.candidates(kind, id)
    }

    fn list(&self, kind: ItemKind) -> Result<Vec<Entry>, WorldError> {
        self.world.list(kind)
    }

    fn unrecognized_files(&self) -> Result<Vec<UnrecognizedFile>, WorldError> {
        self.world.unrecognized_files()
    }

    fn misplaced_settings(&self) -> Result<Vec<UnrecognizedFile>, WorldError> {
        self.world.misplaced_settings()
    }

    fn context_files(&self) -> Result<Vec<ContextFile>, WorldError> {
        self.world.context_files()
    }

    fn mcp_json(&self) -> Result<Option<Arc<[u8]>>, WorldError> {
        self.world.mcp_json()
    }

    fn scripts(&self) -> &dyn ScriptReader {
        self.world.scripts()
    }

    fn project_is_user_space(&self) -> bool {
        self.world.project_is_user_space()
    }
}
