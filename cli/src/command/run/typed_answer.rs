//! Typed answers to the questions of approval requests.

use rye_engine::event::Approval;

/// A typed answer to an approval question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypedAnswer {
    Once,
    Thread,
    Project,
    /// Allows, for the rest of the thread, every simple command that starts with the same words as the command of the
    /// call ([`CommandShape`](super::command_shape::CommandShape)).
    Shape,
    /// Allows the commands of [`TypedAnswer::Shape`] for the project.
    ProjectShape,
    No,
    /// No answer: the thread waits for an approval message.
    EndOfInput,
}

impl TypedAnswer {
    /// Parses an answer; an empty line means no. Returns `None` for a text that is no accepted answer. The answers for
    /// the whole thread and for the project are accepted only if `has_scopes` is true: for calls, but not for limits.
    /// The answers for similar commands are accepted only if `has_shape` is true: for calls of simple commands.
    pub fn parse(line: &str, (has_scopes, has_shape): (bool, bool)) -> Option<Self> {
        // An upper-case letter is a wider scope.
        if line.trim() == "C" {
            return Some(Self::ProjectShape).filter(|_| has_shape);
        }
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => Some(Self::Once),
            "t" | "thread" if has_scopes => Some(Self::Thread),
            "p" | "project" if has_scopes => Some(Self::Project),
            "c" | "command" if has_shape => Some(Self::Shape),
            "" | "n" | "no" => Some(Self::No),
            _ => None,
        }
    }

    /// Returns the approval that the answer gives.
    pub fn approval(self) -> Approval {
        match self {
            Self::Once | Self::Thread | Self::Project | Self::Shape | Self::ProjectShape => Approval::Approved,
            Self::No => Approval::Refused,
            Self::EndOfInput => Approval::Suspended,
        }
    }
}
