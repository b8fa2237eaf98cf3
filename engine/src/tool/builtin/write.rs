//! `rye/file-system/write`: writes a whole file atomically.

use serde::Deserialize;

use super::{Answer, ToolOutcome};
use crate::tool::confine::{Project, Written};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    path: String,
    content: String,
}

pub fn run(project: &Project, parameters: &Parameters) -> Answer {
    let place = project.locate(&parameters.path)?;
    let written = project.replace(&place, parameters.content.as_bytes(), None)?;
    let verb = match written {
        Written::Created => "created",
        Written::Replaced => "replaced",
    };
    Ok(ToolOutcome::ok(format!("{verb} `{}`, {} bytes", place.path, parameters.content.len())))
}
