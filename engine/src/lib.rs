//! Plans to events. The machine decides (pure), the driver acts (async), the store remembers.

pub mod event;
pub mod message;
pub mod provider;
pub mod thread;
pub mod tool;
