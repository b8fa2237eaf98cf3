//! The session that follows the current one in the same process.

use std::sync::{Arc, Mutex, PoisonError};

use rye_compiler::compile::Compilation;
use rye_engine::event::ChatMode;
use rye_engine::thread_id::ThreadId;

/// The session that follows the current one.
#[derive(Debug)]
pub enum NextStart {
    /// A new session with the same directive, in this mode.
    New(Box<Compilation>, ChatMode),
    /// A closed session, identified by the session's last thread.
    Resume(ThreadId),
}

/// The session that the user has chosen to start after the current one, if any. Clones share the choice.
#[derive(Debug, Clone, Default)]
pub struct NextSession(Arc<Mutex<Option<NextStart>>>);

impl NextSession {
    pub fn choose(&self, next: NextStart) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
    }

    /// Returns the session that follows and clears the choice; `None` if no session follows.
    pub fn take(&self) -> Option<NextStart> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns true if another session follows the current one.
    pub fn is_chosen(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}
