//! The engine: runs a compiled plan and records events. The `machine` decides (pure), the `driver` acts (async), the
//! `store` persists.

pub mod attest;
pub mod clock;
pub mod disk_world;
pub mod driver;
pub mod engine;
pub mod event;
pub mod hooks;
pub mod image;
pub mod keys;
pub mod machine;
pub mod message;
pub mod process;
pub mod provider;
pub mod replay;
pub mod retry;
pub mod rooted_dir;
pub mod scripts;
pub mod session;
pub mod signer;
pub mod store;
pub mod thread;
pub mod thread_count;
pub mod thread_id;
mod thread_tools;
pub mod threads;
pub mod tool;
pub mod trust;
pub mod user_space;
