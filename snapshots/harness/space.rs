//! The standard library as an in-memory world, for tests without a folder.

use rye_compiler::world::{MapWorld, Space};

/// Creates a world that contains only the standard library.
pub fn standard_library() -> MapWorld<'static> {
    let mut world = MapWorld::new().with_scripts(&rye_engine::scripts::SyntaxTreeReader);
    for (path, bytes) in rye_stdlib::files() {
        world.insert(Space::System, &path, bytes);
    }
    world
}
