//! The engine: runs a compiled plan and records events. The `machine` decides (pure), the `driver` acts (async), the
//! `store` persists.

pub mod clock;
pub mod crew;
pub mod disk_world;
pub mod driver;
pub mod engine;
pub mod event;
pub mod hooks;
pub mod image;
pub mod keys;
pub mod machine;
pub mod message;
mod orchestrate;
pub mod process;
pub mod prove;
pub mod provider;
pub mod replay;
pub mod retry;
pub mod scripts;
pub mod seal;
pub mod session;
pub mod store;
pub mod thread;
pub mod thread_id;
pub mod threads;
pub mod tool;
pub mod trust;
pub mod user_space;
pub mod within;
