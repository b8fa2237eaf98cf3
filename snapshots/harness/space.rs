//! The standard library as a world in memory, for what needs no folder.

use rye_compiler::world::{MapWorld, Space};

/// A world that holds the standard library and nothing else.
pub fn standard_library() -> MapWorld<'static> {
    let mut world = MapWorld::new().reading(&rye_engine::scripts::Scripts);
    for (path, bytes) in rye_stdlib::files() {
        world.insert(Space::System, &path, bytes);
    }
    world
}
