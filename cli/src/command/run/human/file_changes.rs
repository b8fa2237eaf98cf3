//! The changes that file tools made to files, printed below the results of their calls.

use std::collections::{BTreeMap, BTreeSet};

use rye_compiler::plan::ApprovalOrigin;
use rye_engine::event::{Approval, EventBody, FileChanged, ToolCallResult};
use rye_engine::store::{ObjectId, Objects};
use rye_engine::thread_id::ThreadId;

use crate::command::run::file_diff::{DiffLine, FileDiff};
use crate::present::DIM;

/// Maximum number of lines of a difference below a result.
const MAX_DIFF_ROWS: usize = 12;
/// Maximum bytes of a text that is compared.
const MAX_COMPARED_BYTES: usize = 256 * 1024;

/// The recorded changes of calls that have no result yet.
#[derive(Debug)]
pub(super) struct FileChanges {
    objects: Objects,
    changes: BTreeMap<(ThreadId, String), Vec<FileChanged>>,
    /// The threads whose last reply contains a call for which the user got an approval request. The request has shown
    /// the change of the file.
    asked: BTreeSet<ThreadId>,
}

impl FileChanges {
    /// Creates a record of changes whose texts `objects` stores.
    pub fn new(objects: Objects) -> Self {
        Self { objects, changes: BTreeMap::new(), asked: BTreeSet::new() }
    }

    pub fn follow(&mut self, thread: &ThreadId, body: &EventBody) {
        if let EventBody::FileChanged(change) = body {
            self.changes.entry((thread.clone(), change.call_id.clone())).or_default().push(change.clone());
        } else if matches!(body, EventBody::ApprovalAsked(asked) if asked.origin == ApprovalOrigin::Call) {
            self.asked.insert(thread.clone());
        } else if matches!(body, EventBody::ApprovalGiven(given) if given.answer == Approval::Preapproved) {
            // The request was answered without a question.
            self.asked.remove(thread);
        } else if matches!(body, EventBody::CognitionOut(_) | EventBody::Ended(_)) {
            self.asked.remove(thread);
            self.changes.retain(|(of, _), _| of != thread);
        }
    }

    /// Returns the lines below the result of a call: for each changed file, the number of changed lines, and the first
    /// lines of the difference unless a question has shown it. Empty for a call that failed or changed no text.
    pub fn take_lines(&mut self, thread: &ThreadId, result: &ToolCallResult) -> Vec<DiffLine> {
        let changes = self.changes.remove(&(thread.clone(), result.call_id.clone())).unwrap_or_default();
        let rows = if self.asked.contains(thread) { 0 } else { MAX_DIFF_ROWS };
        let mut lines = Vec::new();
        // The change is recorded before the write, so a failed call may not have written the file.
        for change in changes.iter().filter(|_| !result.is_error) {
            let Some(diff) = self.diff(change) else { continue };
            lines.push((DIM, format!("{}  {}", diff.counts(), change.path)));
            lines.extend(diff.lines(rows).into_iter().filter(|_| rows > 0));
        }
        lines
    }

    /// Returns the difference of a changed file; `None` for a new file, a removed file, and texts that are too long or
    /// not UTF-8.
    fn diff(&self, change: &FileChanged) -> Option<FileDiff> {
        let text = |id: &Option<String>| {
            let bytes = self.objects.get(&ObjectId::parse(id.as_deref()?).ok()?).ok()?;
            String::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_COMPARED_BYTES)
        };
        Some(FileDiff::new(&text(&change.before)?, &text(&change.after)?)).filter(|diff| !diff.fits(0))
    }
}
