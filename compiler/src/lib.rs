//! Trees to plans. Everything here is a pure function of a [`world::World`]: no files, no clock, no processes.

pub mod hook;
pub mod plan;
pub mod primary;
pub mod tool_spec;
pub mod world;
