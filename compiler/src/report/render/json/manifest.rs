//! The files that a compilation read, in the JSON of a plan.

use super::ReadReport;
use crate::plan::{ContextFileRead, ManifestEntry, Plan};

/// Returns the files that a plan read and the lookups that found nothing, then the plan's context files.
pub fn reads(plan: &Plan) -> Vec<ReadReport> {
    plan.manifest.iter().map(read).chain(plan.context_files.iter().map(context_read)).collect()
}

fn read(read: &ManifestEntry) -> ReadReport {
    ReadReport {
        kind: read.kind.as_str().to_owned(),
        id: read.id.clone(),
        space: read.space.map(|space| space.as_str().to_owned()),
        sha256: read.sha256.clone(),
    }
}

fn context_read(read: &ContextFileRead) -> ReadReport {
    ReadReport {
        kind: "context".to_owned(),
        id: read.path.clone(),
        space: Some(read.space.as_str().to_owned()),
        sha256: Some(read.sha256.clone()),
    }
}
