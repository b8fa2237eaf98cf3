//! The world a compilation reads: items and configuration of three spaces, through one trait, with a recording
//! wrapper that makes the manifest. No I/O here; the engine has the disk, tests have a map.

use std::sync::Arc;

use rye_grammar::ItemId;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Space {
    Project,
    User,
    System,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    Directive,
    Knowledge,
    Tool,
    Config,
}

/// One file of one space, read whole.
#[derive(Debug, Clone)]
pub struct Located {
    pub space: Space,
    pub kind: ItemKind,
    pub id: ItemId,
    /// Relative to the space's root, with forward slashes: `.ai/directives/hello.md`.
    pub path: Arc<str>,
    pub bytes: Arc<[u8]>,
}

/// An item that exists, without its content.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub id: ItemId,
    pub space: Space,
    pub path: Arc<str>,
}

/// Why a look-up has no honest answer: never treated as "not there".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorldError {
    #[error("`{path}` cannot be read: {reason}")]
    Unreadable { path: String, reason: String },
    #[error("`{id}` stands in two files: `{first}` and `{second}`")]
    Ambiguous { id: String, first: String, second: String },
    #[error("`{path}` leaves its space")]
    Escapes { path: String },
}

/// What a compilation may read. Every method answers all spaces, highest precedence first.
pub trait World {
    /// Every space's file for this id.
    fn candidates(&self, kind: ItemKind, id: &ItemId) -> Result<Vec<Located>, WorldError>;
    /// Everything of a kind, sorted by id, then by space.
    fn list(&self, kind: ItemKind) -> Result<Vec<Entry>, WorldError>;
}
