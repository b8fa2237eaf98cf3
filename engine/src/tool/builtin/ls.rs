//! `rye/file-system/ls`: lists the entries of a folder, sorted by bytes.

use std::ffi::OsString;

use rustix::fs::{AtFlags, FileType};
use serde::Deserialize;

use super::{MAX_RESULT_BYTES, ToolFailure, ToolOutcome, ToolResult};
use crate::path_policy::{PathAccess, path_access};
use crate::tool::cancellation::StopCondition;
use crate::tool::confine::{ProjectFiles, printable};

/// Maximum number of entries that the result lists, if the call sets no `limit`.
const DEFAULT_MAX_ENTRIES: usize = 500;
/// Maximum number of entries read.
const MAX_ENTRIES: usize = 250_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LsParameters {
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
}

pub fn run(project: &ProjectFiles, parameters: &LsParameters, stop: &StopCondition) -> ToolResult {
    let place = project.locate(parameters.path.as_deref().unwrap_or("."))?;
    let dir = place.folder()?;
    let mut names: Vec<OsString> = Vec::new();
    let mut complete = true;
    for entry in dir.entries().map_err(|e| ToolFailure(format!("`{}`: {e}", place.path)))?.flatten() {
        if names.len() == MAX_ENTRIES || stop.is_due() {
            complete = false;
            break;
        }
        let name = entry.file_name();
        if path_access(&place.path.join(&name).0) != PathAccess::Hidden {
            names.push(name);
        }
    }
    names.sort_unstable();
    let limit = parameters.limit.unwrap_or(DEFAULT_MAX_ENTRIES).max(1);
    let mut text = String::new();
    let mut shown = 0;
    for name in names.iter().take(limit) {
        let line = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => format!("{}/\n", printable(name)),
                FileType::RegularFile => format!("{}  {}\n", printable(name), stat.st_size),
                FileType::Symlink => format!("{}  link{}\n", printable(name), link_target(dir, name)),
                FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => {
                    format!("{}  special\n", printable(name))
                }
            },
            // The entry was removed after the folder was listed.
            Err(_) => continue,
        };
        if text.len() + line.len() > MAX_RESULT_BYTES {
            break;
        }
        text.push_str(&line);
        shown += 1;
    }
    if names.is_empty() {
        text.push_str("[empty]\n");
    } else if !complete {
        text.push_str("[stopped before all entries were listed; name a smaller folder in `path`]\n");
    } else if shown < names.len() {
        text.extend([format!("[{shown} of {} entries]\n", names.len())]);
    }
    Ok(ToolOutcome::ok(text))
}

fn link_target(dir: &cap_std::fs::Dir, name: &OsString) -> String {
    use std::os::unix::ffi::OsStringExt;
    rustix::fs::readlinkat(dir, name, Vec::new())
        .map(|t| format!(" to {}", printable(&OsString::from_vec(t.into_bytes()))))
        .unwrap_or_default()
}
