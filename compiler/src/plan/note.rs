//! Notes about items that were omitted from a plan or changed during compilation.

use std::fmt;

use super::{Origin, OriginCause, OriginKind};
use crate::world::{ItemKind, Space};

/// An item that compilation omitted or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// Suppressed item; `removed` lists the origins that would have provided the item.
    Suppressed { id: String, by: Origin, removed: Vec<Origin> },
    /// An item that several spaces have; the item of the highest space is used.
    Shadowed { kind: ItemKind, id: String, used: Space, hidden: Vec<Space> },
    /// An item that was provided more than once. Only the first occurrence stays. `kept` is the origin of the first
    /// occurrence; `None` if a hook would have provided the dropped occurrence.
    Deduplicated { id: String, kept: Option<Origin>, dropped: Origin },
    /// Knowledge whose text contains its own closing tag. The tag is sent as `&lt;/…`; `count` is the number of these
    /// tags.
    Escaped { id: String, tag: String, count: u64 },
}

/// The reason why a plan does not contain an item, a hook or a further occurrence of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OmissionReason {
    Suppressed,
    Shadowed,
    Deduplicated,
    ConditionFalse,
    Removed,
    DroppedForSize,
    /// The item is a tool, and every call of it would be refused.
    Refused,
}

impl OmissionReason {
    /// Returns the reason why an item was omitted, as the note states it; `None` if the note is not about an omission.
    pub fn of(note: &Note) -> Option<Self> {
        match note {
            Note::Suppressed { .. } => Some(Self::Suppressed),
            Note::Shadowed { .. } => Some(Self::Shadowed),
            Note::Deduplicated { .. } => Some(Self::Deduplicated),
            Note::Escaped { .. } => None,
        }
    }

    /// Returns the reason as it is written in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Suppressed => "suppressed",
            Self::Shadowed => "shadowed",
            Self::Deduplicated => "deduplicated",
            Self::ConditionFalse => "condition_false",
            Self::Removed => "removed",
            Self::DroppedForSize => "dropped_for_size",
            Self::Refused => "refused",
        }
    }
}

impl Note {
    /// Returns the kind of the note as a lowercase word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Suppressed { .. } => "suppressed",
            Self::Shadowed { .. } => "shadowed",
            Self::Deduplicated { .. } => "deduplicated",
            Self::Escaped { .. } => "escaped",
        }
    }

    /// Returns the id of the item or hook that the note is about.
    pub fn id(&self) -> &str {
        match self {
            Self::Suppressed { id, .. }
            | Self::Shadowed { id, .. }
            | Self::Deduplicated { id, .. }
            | Self::Escaped { id, .. } => id,
        }
    }

    /// Returns the origin of the line that caused the note, if there is one.
    pub fn origin(&self) -> Option<&Origin> {
        match self {
            Self::Suppressed { by, .. } => Some(by),
            Self::Deduplicated { dropped, .. } => Some(dropped),
            Self::Shadowed { .. } | Self::Escaped { .. } => None,
        }
    }
}

/// Prints the reason, without the id.
impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suppressed { by, removed, .. } => {
                if let OriginCause::Declared(OriginKind::Directive(id)) = &by.cause {
                    write!(f, "suppressed by `{id}`")?;
                } else if let OriginCause::Ungranted { .. } = &by.cause {
                    write!(f, "left out: {}", by.cause)?;
                } else {
                    write!(f, "suppressed by {}", by.cause)?;
                }
                match removed.as_slice() {
                    [] => f.write_str("; nothing adds the item, so the suppression has no effect"),
                    [one] => write!(f, "; {}", one.cause),
                    [one, rest @ ..] => write!(f, "; {}, and {} more", one.cause, rest.len()),
                }
            }
            Self::Shadowed { kind, used, hidden, .. } => {
                let hidden: Vec<&str> = hidden.iter().map(|s| s.as_str()).collect();
                write!(
                    f,
                    "the {} of the {} space shadows the same id in {}",
                    kind.as_str(),
                    used.as_str(),
                    hidden.join(" and ")
                )
            }
            Self::Deduplicated { kept: Some(kept), dropped, .. } => {
                write!(f, "also {}; the occurrence {} is used", dropped.cause, kept.cause)
            }
            Self::Deduplicated { kept: None, dropped, .. } => {
                write!(f, "{}; the first occurrence is used", dropped.cause)
            }
            Self::Escaped { tag, count, .. } => {
                let times = if *count == 1 { "once".to_owned() } else { format!("{count} times") };
                write!(f, "its text contains the closing tag `</{tag}>` {times}, which is sent as `&lt;/{tag}>`")
            }
        }
    }
}
