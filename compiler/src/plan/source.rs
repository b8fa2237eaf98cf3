//! The source location of a part of a plan, as JSON outputs print it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SourcePlace;

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct SourceReport {
    /// Path of the file: relative to the project, or with the prefix `user:` or `system:` for the other spaces.
    pub file: String,
    pub line: u32,
    pub column: u32,
}

impl From<&SourcePlace> for SourceReport {
    fn from(place: &SourcePlace) -> Self {
        Self { file: place.file.clone(), line: place.line, column: place.column }
    }
}
