//! `rye/file-system/write`: writes a whole file atomically.

use serde::Deserialize;

use super::{PreparedWrite, ToolFailure, ToolOutcome};
use crate::tool::confine::{ProjectFiles, ResolvedPath, WriteEffect};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteParameters {
    path: String,
    content: String,
}

pub(super) fn prepare(project: &ProjectFiles, parameters: WriteParameters) -> Result<PreparedWrite, ToolFailure> {
    let place = project.locate(&parameters.path)?;
    let bytes = parameters.content.into_bytes();
    let length = bytes.len();
    let outcome = move |effect, place: &ResolvedPath| {
        let verb = match effect {
            WriteEffect::Created => "created",
            WriteEffect::Replaced => "replaced",
        };
        ToolOutcome::ok(format!("{verb} `{}`, {length} bytes", place.path))
    };
    Ok(PreparedWrite { place, bytes, outcome: Box::new(outcome) })
}
