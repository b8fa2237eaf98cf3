//! The engine: runs a compiled plan and records events. The `machine` decides (pure), the `driver` acts (async), the
//! `store` persists.

pub mod attest;
pub mod clock;
mod context;
pub mod control;
pub mod disk_world;
pub mod driver;
pub mod engine;
pub mod error;
pub mod event;
pub mod exchange;
pub mod hooks;
pub mod image;
mod image_objects;
mod journal;
pub mod json_faults;
pub mod keys;
mod landlock_version;
pub mod live;
pub mod live_state;
pub mod machine;
pub mod mcp_server;
pub mod message;
mod parent_thread;
pub(crate) mod path_policy;
pub mod preview;
pub mod process;
pub mod provider;
pub mod replay;
pub mod retry;
pub mod rooted_dir;
pub mod running_outputs;
pub mod scripts;
pub mod secrets;
pub mod session;
pub mod session_tree;
pub mod signer;
pub mod store;
mod surrogates;
pub mod thread;
pub mod thread_count;
pub mod thread_id;
mod thread_tools;
pub mod threads;
pub mod tool;
pub mod trust;
pub mod user_space;

use std::future::Future;
use std::pin::Pin;

/// A boxed future that can be sent between threads: the result of an asynchronous method of a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
