//! The flow of text between threads. A thread reads the results of its calls and hooks, the message of its parent, and
//! the outputs of its children; any text that it reads can become part of any text that it writes.

use std::collections::BTreeSet;

use super::threads::{PossibleThread, ReachMemo};

/// A search for flows of text among `threads`: the thread of one directive and all descendants that the thread can
/// have. `declassifying` are the directives whose outputs contain no untrusted text.
pub struct TextFlow<'t> {
    threads: &'t [PossibleThread],
    declassifying: &'t BTreeSet<&'t str>,
}

/// A path that a text can take: the capability where the path starts, the directives that the path passes, and the
/// capability where the path ends.
pub struct FlowPath {
    pub from: String,
    pub through: Vec<String>,
    pub to: String,
}

impl<'t> TextFlow<'t> {
    pub fn new(threads: &'t [PossibleThread], declassifying: &'t BTreeSet<&'t str>) -> Self {
        Self { threads, declassifying }
    }

    /// Returns a path on which text can flow from a use of the capability `from` in any thread to a use of the
    /// capability `to` in `thread`; `None` if there is none.
    pub fn find(&self, thread: &PossibleThread, from: &str, to: &str, memo: &mut ReachMemo) -> Option<FlowPath> {
        let to = thread.reads_from(to, memo)?;
        // Breadth first, from the reader back to the sources of its text.
        let mut queue: Vec<(&PossibleThread, usize)> = vec![(thread, usize::MAX)];
        let mut seen: BTreeSet<Vec<&str>> = BTreeSet::from([path_of(thread)]);
        let mut at = 0;
        while let Some((reader, _)) = queue.get(at).copied() {
            if let Some(from) = reader.reads_from(from, memo) {
                let mut through = Vec::new();
                let mut next = at;
                while let Some((step, before)) = queue.get(next) {
                    through.push(step.directive.to_string());
                    next = *before;
                }
                return Some(FlowPath { from, through, to });
            }
            for source in self.threads.iter().filter(|other| self.sends_text_to(other, reader)) {
                if seen.insert(path_of(source)) {
                    queue.push((source, at));
                }
            }
            at += 1;
        }
        None
    }

    /// Returns true if text of `source` reaches `reader` directly. A parent sends a message to its child. A child
    /// returns its outputs to its parent; these do not count if the child's directive declassifies its outputs.
    fn sends_text_to(&self, source: &PossibleThread, reader: &PossibleThread) -> bool {
        is_parent(source, reader)
            || (is_parent(reader, source) && !self.declassifying.contains(source.directive.as_str()))
    }
}

/// Returns the ids of the directives of a thread's spawn chain, from the first thread to the thread itself.
fn path_of(thread: &PossibleThread) -> Vec<&str> {
    thread.trace.iter().map(|step| step.directive.as_str()).collect()
}

fn is_parent(parent: &PossibleThread, child: &PossibleThread) -> bool {
    let (above, below) = (path_of(parent), path_of(child));
    above.len() + 1 == below.len() && below.starts_with(&above)
}
