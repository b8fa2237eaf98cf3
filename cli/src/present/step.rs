//! The current step of a thread, folded from its events.

use std::collections::BTreeMap;
use std::fmt;

use rye_engine::event::{Approval, EventBody};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Step {
    /// No call is running: the thread evaluates hooks or writes events.
    #[default]
    Between,
    Model {
        turn: u64,
        model: String,
    },
    /// Names of the running tools, by the id of the call.
    Tools(BTreeMap<String, String>),
    /// Number of children that the thread waits for.
    Children(usize),
    Approval,
    /// A wait before the next attempt of a model call, in milliseconds.
    Retry(u64),
}

impl Step {
    /// Applies an event. Returns true if a new step begins.
    pub fn follow(&mut self, event: &EventBody) -> bool {
        let next = match (event, &mut *self) {
            (EventBody::AttemptIntended(attempt), _) => {
                Self::Model { turn: attempt.turn, model: attempt.model.clone() }
            }
            (EventBody::AttemptFailed(failed), _) => failed.retry_delay_ms.map_or(Self::Between, Self::Retry),
            // A suspended thread still waits for the answer to its approval request.
            (EventBody::ApprovalGiven(given), _) if given.answer == Approval::Suspended => Self::Approval,
            (EventBody::CognitionOut(_) | EventBody::ApprovalGiven(_), _) => Self::Between,
            (EventBody::ApprovalAsked(_), _) => Self::Approval,
            (EventBody::ToolStarted(started), Self::Tools(running)) => {
                running.insert(started.call_id.clone(), started.name.clone());
                return false;
            }
            (EventBody::ToolStarted(started), _) => {
                Self::Tools([(started.call_id.clone(), started.name.clone())].into())
            }
            (EventBody::ToolCallResult(result), Self::Tools(running)) => {
                running.remove(&result.call_id);
                if !running.is_empty() {
                    return false;
                }
                Self::Between
            }
            (EventBody::ChildSpawned(_), Self::Children(count)) => {
                *count += 1;
                return false;
            }
            (EventBody::ChildSpawned(_), Self::Between) => Self::Children(1),
            (EventBody::ChildEnded(_), Self::Children(count)) => {
                *count = count.saturating_sub(1);
                if *count > 0 {
                    return false;
                }
                Self::Between
            }
            _ => return false,
        };
        *self = next;
        true
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Between => f.write_str("between calls"),
            Self::Model { turn, .. } => write!(f, "turn {turn}"),
            Self::Tools(running) => {
                let names: Vec<&str> = running.values().map(String::as_str).collect();
                f.write_str(&names.join(", "))
            }
            Self::Children(1) => f.write_str("waiting for a child"),
            Self::Children(count) => write!(f, "waiting for {count} children"),
            Self::Approval => f.write_str("waiting for your answer"),
            Self::Retry(delay) => write!(f, "retrying after {}", format_delay(*delay)),
        }
    }
}

/// Formats milliseconds: `5 ms`, `0.5 s`, `3 s`, `10 min`.
pub fn format_delay(milliseconds: u64) -> String {
    match milliseconds {
        120_000.. => format!("{} min", milliseconds.div_ceil(60_000)),
        0..100 => format!("{milliseconds} ms"),
        100..1000 => format!("0.{} s", milliseconds / 100),
        _ => format!("{} s", milliseconds.div_ceil(1000)),
    }
}
