//! The on-disk store (`engine.md` 4). Transcripts are the source of truth. The registry is small, shared between
//! processes, and can be rebuilt from the transcripts. Everything else is output. All functions block, so async callers
//! use a blocking thread.

pub mod allocate;
pub mod disk;
mod error;
pub(crate) mod event_fields;
mod file_writer;
pub mod layout;
pub mod mailbox;
pub mod objects;
pub mod owner;
pub mod prune;
pub mod registry;
pub mod sources;
pub(crate) mod spilled;
pub(crate) mod thread_files;
pub mod transcript;
pub(crate) mod uuid;

#[cfg(test)]
mod crash_tests;

pub use allocate::ThreadIds;
pub use disk::{Disk, RealDisk};
pub use error::StoreError;
pub use objects::{ObjectId, Objects};
pub use owner::{OwnerId, OwnerLock};
pub use registry::{
    AbortHandler, Change, ChangeResult, GroupCommit, LedgerStep, Registry, RegistryWriter, RowUpdate, ThreadRow,
    set_abort_handler,
};
pub use transcript::{LiveWriter, Transcript, TranscriptContents, TranscriptRecord};
