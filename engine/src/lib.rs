//! Plans to events. The machine decides (pure), the driver acts (async), the store remembers.

pub mod message;
pub mod provider;
pub mod tool;
