//! References to threads on the command line: an id, a unique prefix of an id, the id of a directive with a single
//! thread, or the newest thread without a parent.

use std::cmp::Reverse;

use clap::Args;
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::ListedThread;

use super::ThreadReader;
use crate::CommandError;
use crate::present::{format_count, format_elapsed, now};

/// Reference to the newest thread without a parent.
pub const LAST_THREAD: &str = "@last";
/// Maximum number of candidates that an error lists.
const MAX_CANDIDATES: usize = 8;

#[derive(Debug, Clone, Args)]
pub struct ThreadArg {
    /// The thread: its id, a unique prefix of its id, or the id of a directive with a single thread
    #[arg(value_name = "THREAD", required_unless_present = "last")]
    thread: Option<String>,
    /// Select the newest thread that no other thread started; with THREAD, the newest thread that it matches
    #[arg(long)]
    last: bool,
}

impl ThreadArg {
    pub fn select(&self, reader: &ThreadReader) -> Result<ThreadId, CommandError> {
        match (&self.thread, self.last) {
            (Some(reference), false) => reader.resolve(reference),
            (Some(reference), true) => reader.newest(reference),
            (None, _) => reader.resolve(LAST_THREAD),
        }
    }
}

#[derive(Debug, Clone, Args)]
pub struct ThreadsArg {
    /// The threads, each by its id, a unique prefix of its id, or the id of a directive with a single thread
    #[arg(value_name = "THREAD", required_unless_present = "last")]
    threads: Vec<String>,
    /// Also select the newest thread that no other thread started
    #[arg(long)]
    last: bool,
}

impl ThreadsArg {
    pub fn select(&self, reader: &ThreadReader) -> Result<Vec<ThreadId>, CommandError> {
        select_threads(&self.threads, self.last, reader)
    }
}

/// Returns the referenced threads, and the newest one if `last` is set.
pub fn select_threads(references: &[String], last: bool, reader: &ThreadReader) -> Result<Vec<ThreadId>, CommandError> {
    let newest = last.then_some(LAST_THREAD);
    references.iter().map(String::as_str).chain(newest).map(|reference| reader.resolve(reference)).collect()
}

impl ThreadReader {
    /// Returns the thread that a reference selects.
    ///
    /// # Errors
    /// The reference selects no thread, or several threads.
    pub fn resolve(&self, reference: &str) -> Result<ThreadId, CommandError> {
        if reference == LAST_THREAD {
            let newest = self.newest_first(|entry| entry.row.parent.is_none())?.into_iter().next();
            return newest
                .map(|entry| entry.row.id)
                .ok_or_else(|| CommandError::usage("this project has no threads yet"));
        }
        if let Ok(thread) = ThreadId::parse(reference)
            && self.is_stored(&thread)?
        {
            return Ok(thread);
        }
        match self.matching(reference)?.as_slice() {
            [] => Err(self.no_match(reference)?),
            [only] => Ok(only.row.id.clone()),
            several => Err(ambiguous_reference(reference, several)),
        }
    }

    /// Returns the newest thread that a reference matches.
    fn newest(&self, reference: &str) -> Result<ThreadId, CommandError> {
        match self.matching(reference)?.first() {
            Some(entry) => Ok(entry.row.id.clone()),
            None => Err(self.no_match(reference)?),
        }
    }

    /// Returns the threads that a reference matches, newest first. The id of a directive matches only the threads of
    /// that directive, even if it is a prefix of other thread ids.
    fn matching(&self, reference: &str) -> Result<Vec<ListedThread>, CommandError> {
        if reference.is_empty() {
            return Ok(Vec::new());
        }
        let own = self.newest_first(|entry| entry.row.directive == reference)?;
        if !own.is_empty() {
            return Ok(own);
        }
        self.newest_first(|entry| entry.row.id.as_str().starts_with(reference))
    }

    fn newest_first(&self, is_wanted: impl Fn(&ListedThread) -> bool) -> Result<Vec<ListedThread>, CommandError> {
        let (mut entries, _) = self.list_readable()?;
        entries.retain(is_wanted);
        entries.sort_by_cached_key(|entry| Reverse((entry.row.created_at, entry.row.id.clone())));
        Ok(entries)
    }

    fn no_match(&self, reference: &str) -> Result<CommandError, CommandError> {
        if let Err(invalid) = ThreadId::parse(reference) {
            let reason = format!("`{}` is not a valid thread id: {}", reference.escape_debug(), invalid.reason);
            return Ok(CommandError::usage(reason));
        }
        self.unknown_thread(reference)
    }
}

/// Returns the error for a reference to several threads. `several` is sorted, newest thread first.
fn ambiguous_reference(reference: &str, several: &[ListedThread]) -> CommandError {
    let now = now();
    let candidate = |entry: &ListedThread| {
        format!("    {}  {}, {}", entry.row.id, entry.status_name(), format_elapsed(entry.row.created_at, now))
    };
    let mut listed: Vec<String> = several.iter().take(MAX_CANDIDATES).map(candidate).collect();
    if let more @ 1.. = several.len().saturating_sub(MAX_CANDIDATES) {
        listed.push(format!("    and {more} more"));
    }
    let matched = format_count(several.len() as u64, "thread");
    CommandError::usage(format!("`{reference}` matches {matched}")).with_help(format!(
        "use one of these ids (commands for a single thread accept `--last` for the first one):\n{}",
        listed.join("\n")
    ))
}
