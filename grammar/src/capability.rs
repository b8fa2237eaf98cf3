//! Capability patterns: `rye.<primary>.<item_type>.<item_id with dots>` with `*`, `?`, `[seq]`.

use serde::{Deserialize, Serialize};

/// A capability pattern, normalised: `search` and `load` read as `fetch`, `/` as `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(pub String);
