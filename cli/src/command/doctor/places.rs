//! Programs of tools and folders of grants that do not exist. `rye check` reads only items, so `rye doctor` reports
//! these findings, which depend on the machine (decision 0151).

use std::collections::BTreeSet;
use std::path::Path;

use rye_compiler::diagnostics::closest;
use rye_compiler::item::Items;
use rye_compiler::tool_spec::ToolKind;
use rye_compiler::world::{ItemKind, Space, World};
use rye_engine::process::search_path;

use super::item_ids;

/// A program or folder that an item names and that does not exist.
pub enum MissingPlace {
    /// A tool names its program by a path that does not exist. `nearest` is the path in the same folder with the most
    /// similar name; `None` if no name is similar.
    Program { tool: String, program: String, nearest: Option<String> },
    /// A tool names a program that no folder of `PATH` contains.
    Command { tool: String, program: String },
    /// A grant names a folder that does not exist. `nearest` is the path beside the missing folder whose name is most
    /// similar.
    Folder { directive: String, folder: String, nearest: String },
}

/// Finds the missing programs and folders of a project. A missing folder is reported only if a folder or file with a
/// similar name exists, because a run can create folders.
pub fn missing_places(world: &dyn World, project: &Path) -> Vec<MissingPlace> {
    let items = Items::new(world);
    let mut found = Vec::new();
    for tool in item_ids(world, ItemKind::Tool).iter().filter_map(|id| items.tool(id)) {
        let ToolKind::Command { argv } = &tool.spec.kind else { continue };
        let Some(program) = argv.first().filter(|_| tool.file.space == Space::Project) else { continue };
        let name = tool.file.id.to_string();
        if program.contains(['{', '$']) {
            // The program is known only when the tool runs.
        } else if program.contains('/') {
            if !project.join(program).exists() {
                let nearest = nearest_entry(project, program);
                found.push(MissingPlace::Program { tool: name, program: program.clone(), nearest });
            }
        } else if !search_path().any(|folder| folder.join(program).exists()) {
            found.push(MissingPlace::Command { tool: name, program: program.clone() });
        }
    }
    for directive in item_ids(world, ItemKind::Directive).iter().filter_map(|id| items.directive(id)) {
        let grants = directive.permissions.iter().flat_map(|permissions| &permissions.grants);
        let folders: BTreeSet<&String> = grants.flat_map(|grant| &grant.write).collect();
        for folder in folders.into_iter().filter(|_| directive.file.space == Space::Project) {
            let is_literal = !folder.starts_with('/') && !folder.contains(['{', '$', '*', '~']);
            if is_literal
                && !project.join(folder).exists()
                && let Some(nearest) = nearest_entry(project, folder)
            {
                let directive = directive.file.id.to_string();
                found.push(MissingPlace::Folder { directive, folder: folder.clone(), nearest });
            }
        }
    }
    found
}

/// Returns the path of the entry whose name is most similar to the last segment of `path`, among the entries of the
/// same folder; `None` if no name is similar.
fn nearest_entry(project: &Path, path: &str) -> Option<String> {
    let path = path.strip_prefix("./").unwrap_or(path).trim_end_matches('/');
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let entries = std::fs::read_dir(project.join(folder)).ok()?;
    let names: BTreeSet<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    let nearest = closest(name, names.iter().map(String::as_str))?;
    Some(if folder.is_empty() { nearest } else { format!("{folder}/{nearest}") })
}
