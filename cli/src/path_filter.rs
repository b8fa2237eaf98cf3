//! Path filter of a command: files and folders of the project, or ids of its items.

use std::path::{Component, Path, PathBuf};

use rye_compiler::diagnostics::closest;
use rye_compiler::world::{ItemKind, Space, World};
use rye_grammar::ItemId;

use crate::CommandError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathFilter {
    All,
    /// Paths relative to the project's folder, with forward slashes. A folder stands for everything in it.
    To(Vec<String>),
}

/// Returns the filter for the requested paths. Each argument is an existing path, relative to the current folder or to
/// the project, else the id of an item of the project. No argument, or the folder of the project itself, selects
/// everything.
pub fn resolve_path_filter(
    requested: &[PathBuf],
    project: &Path,
    world: &dyn World,
) -> Result<PathFilter, CommandError> {
    if requested.is_empty() {
        return Ok(PathFilter::All);
    }
    let here = std::env::current_dir()?;
    let mut paths = Vec::new();
    for path in requested {
        let real = here.join(path).canonicalize().or_else(|_| project.join(path).canonicalize());
        match real {
            Ok(real) => paths.push(path_in_project(path, &real, project)?),
            Err(error) => paths.extend(files_of_id(path, &error, world)?),
        }
    }
    Ok(if paths.iter().any(String::is_empty) { PathFilter::All } else { PathFilter::To(paths) })
}

fn path_in_project(requested: &Path, real: &Path, project: &Path) -> Result<String, CommandError> {
    let inside = real.strip_prefix(project).map_err(|_| {
        CommandError::usage(format!("`{}` is not in the project `{}`", requested.display(), project.display()))
    })?;
    let segments = inside.components().filter_map(|c| if let Component::Normal(s) = c { s.to_str() } else { None });
    Ok(segments.collect::<Vec<_>>().join("/"))
}

/// Suggests an item of the project for a path that cannot be opened. Compares the ids of the project with the path,
/// without the folder of the kind and the extension. Returns the equal id if there is one, else the most similar id;
/// `None` if no id is similar.
fn nearest_item(path: &str, world: &dyn World) -> Option<String> {
    let inside = path.rsplit_once(".ai/").map_or(path, |(_, inside)| inside);
    let inside = ItemKind::ALL
        .into_iter()
        .find_map(|kind| inside.strip_prefix(kind.folder().trim_start_matches(".ai/")))
        .unwrap_or(inside)
        .trim_start_matches("./");
    let stem = inside.rsplit_once('.').map_or(inside, |(stem, _)| stem);
    let lists = ItemKind::ALL.into_iter().filter_map(|kind| world.list(kind).ok()).flatten();
    let ids: Vec<String> =
        lists.filter(|entry| entry.space == Space::Project).map(|entry| entry.id.to_string()).collect();
    ids.iter().find(|id| *id == stem).cloned().or_else(|| closest(stem, ids.iter().map(String::as_str)))
}

/// Returns the files of the project's items with the id `requested`, of every kind. `error` is the reason why
/// `requested` cannot be opened as a path.
///
/// # Errors
/// The text is not an id (the message contains `error`), or the project has no item with this id.
fn files_of_id(requested: &Path, error: &std::io::Error, world: &dyn World) -> Result<Vec<String>, CommandError> {
    let shown = requested.display().to_string();
    let unknown = || {
        let failure = CommandError::usage(format!("`{shown}` cannot be opened: {error}"));
        match nearest_item(&shown, world) {
            Some(near) => failure.with_help(format!("did you mean `{near}`?")),
            None => failure,
        }
    };
    let id = requested.to_str().and_then(|text| ItemId::parse(text).ok()).ok_or_else(unknown)?;
    let mut found = Vec::new();
    let mut near = Vec::new();
    for kind in ItemKind::ALL {
        let entries = world.list(kind)?;
        for entry in entries.into_iter().filter(|entry| entry.space == Space::Project) {
            if entry.id == id {
                found.push(entry.path.to_string());
            } else {
                near.push(entry.id.to_string());
            }
        }
    }
    if found.is_empty() {
        let failure = CommandError::usage(format!("`{shown}` is neither a path nor an id of this project"));
        return Err(match closest(&shown, near.iter().map(String::as_str)) {
            Some(near) => failure.with_help(format!("did you mean `{near}`?")),
            None => failure.with_help("name a file, a folder or an item id; no argument selects the whole project"),
        });
    }
    Ok(found)
}
