//! Read access to the threads of a project for commands. Accepts references to threads (`reference.rs`) instead of ids,
//! and returns errors with a help line.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rye_compiler::diagnostics::closest;
use rye_engine::driver::LiveLine;
use rye_engine::store::ObjectId;
use rye_engine::store::transcript::live;
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::{ListedThread, LoadedThread, Threads};

use crate::CommandError;

pub mod reference;

/// Number of checks that must find the transcript of a thread without a registry row. Another process may be removing
/// the thread, and a removal starts with the row.
const REMOVAL_CHECKS: usize = 20;
/// Time between two checks of whether a transcript still exists.
const REMOVAL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

pub struct ThreadReader(Threads);

impl Deref for ThreadReader {
    type Target = Threads;

    fn deref(&self) -> &Threads {
        &self.0
    }
}

impl ThreadReader {
    pub fn open(project: &Path) -> Result<Self, CommandError> {
        Ok(Self(Threads::open_lenient(project)?))
    }

    /// Returns the last continuation of the thread that a reference names, or the thread itself if nothing continues
    /// it.
    pub fn last_of_chain(&self, reference: &str) -> Result<ListedThread, CommandError> {
        let mut entry = self.find(reference)?;
        let mut seen = BTreeSet::from([entry.row.id.clone()]);
        while let Some(next) = entry.row.continued_by.clone().filter(|next| seen.insert(next.clone())) {
            entry = self.find(next.as_str())?;
        }
        Ok(entry)
    }

    /// Returns the streamed pieces of the current attempt of a thread.
    pub fn streamed(&self, thread: &ThreadId) -> Result<Vec<LiveLine>, CommandError> {
        Ok(live::read(self.disk(), thread)?)
    }

    /// Returns the thread that a reference names ([`Self::resolve`]).
    pub fn find(&self, reference: &str) -> Result<ListedThread, CommandError> {
        let thread = self.resolve(reference)?;
        self.show(&thread)?.map_or_else(|| Err(self.unknown_thread(thread.as_str())?), Ok)
    }

    /// Returns the thread that a reference names, with its transcript ([`Threads::load`]).
    pub fn load(&self, reference: &str) -> Result<LoadedThread, CommandError> {
        let thread = self.resolve(reference)?;
        self.0.load(&thread)?.map_or_else(|| Err(self.unknown_thread(thread.as_str())?), Ok)
    }

    /// Returns the contents of an object. Fails if the contents do not match the id.
    pub fn object(&self, id: &str) -> Result<Vec<u8>, CommandError> {
        Ok(self.objects().get(&ObjectId::parse(id)?)?)
    }

    pub fn unknown_thread(&self, id: &str) -> Result<CommandError, CommandError> {
        let pause = || sleep(REMOVAL_CHECK_INTERVAL);
        if ThreadId::parse(id).is_ok_and(|thread| remains(|| self.has_transcript(&thread), pause)) {
            let failure =
                CommandError::failed(format!("the thread `{id}` has a transcript, but is not in the registry"));
            return Ok(failure.with_help("rebuild the registry with `rye threads repair`"));
        }
        let ids = self.ids()?;
        let failure = CommandError::usage(format!("no such thread: `{}`", id.escape_debug()));
        Ok(match closest(id, ids.iter().map(ThreadId::as_str)) {
            Some(meant) => failure.with_help(format!("did you mean `{meant}`?")),
            None if ids.is_empty() => failure.with_help("this project has no threads yet"),
            None => failure.with_help("list the threads with `rye threads list`"),
        })
    }
}

/// Returns true if a file exists at each of `REMOVAL_CHECKS` checks.
fn remains(exists: impl Fn() -> bool, pause: impl Fn()) -> bool {
    (0..REMOVAL_CHECKS).all(|check| {
        if check > 0 {
            pause();
        }
        exists()
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn transcript_that_disappears_between_two_checks_does_not_remain() {
        let checks = Cell::new(0);
        let exists_until = |last: usize| {
            checks.set(0);
            remains(|| checks.replace(checks.get() + 1) < last, || {})
        };
        assert!(exists_until(REMOVAL_CHECKS));
        assert!(!exists_until(REMOVAL_CHECKS - 1));
        assert!(!exists_until(0));
        assert_eq!(checks.get(), 1, "a missing file needs no further check");
    }
}
