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
    /// Allows the same commands as [`TypedAnswer::Shape`], but in all threads of the project.
    ProjectShape,
    No,
    /// The input has ended without an answer. The thread then waits for an approval message.
    EndOfInput,
}

impl TypedAnswer {
    /// Parses an answer; an empty line means no. Returns `None` for a text that is not an accepted answer. If
    /// `has_scopes` is true, an answer for the whole thread or project is accepted. `has_scopes` is false for questions
    /// about limits. If `has_shape` is true, an answer for similar commands is accepted. `has_shape` is true only for
    /// calls of simple commands.
    pub fn parse(line: &str, (has_scopes, has_shape): (bool, bool)) -> Option<Self> {
        // Upper case matters only here: `C` approves for the project, `c` for the thread.
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
