//! Spaces for tests: folders of the disk and the standard library, as one world in memory.

use std::fs;
use std::io;
use std::path::Path;

use rye_compiler::world::{MapWorld, Space};

/// A world that holds the standard library and nothing else.
pub fn standard_library() -> MapWorld<'static> {
    let mut world = MapWorld::new();
    for (path, bytes) in rye_stdlib::files() {
        world.insert(Space::System, &path, bytes);
    }
    world
}

/// Adds every file under the `.ai` of a folder to a space. A folder without `.ai` adds nothing.
///
/// # Errors
/// A file that cannot be read.
pub fn load(world: &mut MapWorld<'_>, space: Space, root: &Path) -> io::Result<()> {
    let mut folders = vec![root.join(".ai")];
    while let Some(folder) = folders.pop() {
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(inside) = path.strip_prefix(root) {
                world.insert(space, &inside.to_string_lossy().replace('\\', "/"), fs::read(&path)?);
            }
        }
    }
    Ok(())
}
