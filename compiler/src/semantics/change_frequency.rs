//! The frequency at which the facts of a run change. If the value of a fact changes, the cached prefix of a request
//! ends at the first text that contains the fact.

use rye_grammar::SourceId;
use rye_grammar::condition::{Path, Segment};
use rye_grammar::template;

/// The frequency at which a value or a text changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ChangeFrequency {
    /// The value is the same in all threads of a plan.
    Never,
    /// The value is the same during a thread, but can differ between threads.
    PerThread,
    /// The value can differ in each turn, or in each prompt of a chat.
    PerTurn,
}

const CONSTANT_FACTS: [&str; 5] = ["directive", "category", "model", "project_path", "limits"];
const THREAD_FACTS: [&str; 9] = [
    "thread_id",
    "inputs",
    "directive_body",
    "parent_thread_id",
    "previous_thread_id",
    "depth",
    "spend_limit",
    "max_turns",
    "capabilities_summary",
];
/// Facts of a thread that have the same values in its continuation. The limits are not among these facts, because a
/// continuation gets only the amounts that the continued thread did not use.
const INHERITED_FACTS: [&str; 9] = [
    "directive",
    "category",
    "model",
    "project_path",
    "inputs",
    "directive_body",
    "parent_thread_id",
    "depth",
    "capabilities_summary",
];

/// Returns true if a fact can have another value in a continuation. `root` is the first segment of the fact's path.
pub(crate) fn changes_in_continuation(root: &str) -> bool {
    !INHERITED_FACTS.contains(&root)
}

impl ChangeFrequency {
    /// Returns the change frequency of a fact whose path has `root` as its first segment.
    pub(crate) fn of_fact(root: &str) -> Self {
        if CONSTANT_FACTS.contains(&root) {
            Self::Never
        } else if THREAD_FACTS.contains(&root) {
            Self::PerThread
        } else {
            Self::PerTurn
        }
    }

    /// Returns the change frequency of the fact that the path of a placeholder or condition reads.
    pub fn of_path(path: &Path) -> Self {
        match path.segments.first() {
            Some(Segment::Name(root)) => Self::of_fact(root),
            Some(Segment::Number(_)) | None => Self::PerTurn,
        }
    }

    /// Returns the frequency at which a text with `${…}` placeholders changes: the highest frequency of its
    /// placeholders.
    pub(crate) fn of_template(text: &str) -> Self {
        let read = template::read(SourceId(0), text, 0).tree;
        let all = super::template::placeholders(&read).map(|placeholder| Self::of_path(&placeholder.path));
        all.max().unwrap_or(Self::Never)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continuation_has_the_inputs_and_other_limits() {
        assert!(!changes_in_continuation("inputs"));
        assert!(changes_in_continuation("limits") && changes_in_continuation("thread_id"));
    }

    #[test]
    fn texts_change_as_often_as_their_most_frequent_fact() {
        for (text, expected) in [
            ("Be brief.", ChangeFrequency::Never),
            ("In ${project_path}.", ChangeFrequency::Never),
            ("Thread ${thread_id} about ${inputs.topic}.", ChangeFrequency::PerThread),
            ("Turn ${turn} of ${thread_id}.", ChangeFrequency::PerTurn),
        ] {
            assert_eq!(ChangeFrequency::of_template(text), expected, "{text}");
        }
    }
}
