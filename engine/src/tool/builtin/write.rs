//! `rye/file-system/write`: writes a whole file atomically.

use serde::Deserialize;

use super::{ToolOutcome, ToolResult};
use crate::tool::confine::{ProjectFiles, WriteEffect};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteParameters {
    path: String,
    content: String,
}

pub fn run(project: &ProjectFiles, parameters: &WriteParameters) -> ToolResult {
    let place = project.locate(&parameters.path)?;
    let written = project.replace(&place, parameters.content.as_bytes(), None)?;
    let verb = match written {
        WriteEffect::Created => "created",
        WriteEffect::Replaced => "replaced",
    };
    Ok(ToolOutcome::ok(format!("{verb} `{}`, {} bytes", place.path, parameters.content.len())))
}
