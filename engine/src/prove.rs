//! Whether a thread began as its plan says: the record is folded up to where the conversation opens, the plan's own
//! functions render the opening again, and the two are held against each other byte for byte. Reads a record; changes
//! and starts nothing.

use rye_compiler::plan::Plan;

use crate::event::{Event, EventBody};
use crate::machine::{State, apply, opening};
use crate::message::{Block, Message, text_of};

/// What the record and the plan say of the first request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beginning {
    /// The same: so many bytes of system prompt and message.
    AsPlanned { bytes: usize },
    /// `what` is `system prompt`, `contributors` or `message`; `at` the first byte that differs.
    Differs { what: &'static str, at: usize },
    /// The thread has sent nothing yet.
    NotYet,
}

/// Compares the opening of a record with that of a plan.
pub fn beginning(plan: &Plan, events: &[Event]) -> Beginning {
    let mut state = State::new();
    let opens = |event: &Event| matches!(event.body, EventBody::SystemPrompt(_));
    let Some(at) = events.iter().position(opens) else { return Beginning::NotYet };
    for event in events.iter().take(at) {
        apply(&mut state, event);
    }
    let planned = opening(plan, &state);
    let recorded: Vec<&EventBody> = events.iter().skip(at).take(planned.len()).map(|event| &event.body).collect();
    if recorded.len() < planned.len() {
        return Beginning::NotYet;
    }
    let mut bytes = 0;
    for (planned, recorded) in planned.iter().zip(recorded) {
        let (what, a, b) = match (planned, recorded) {
            (EventBody::SystemPrompt(a), EventBody::SystemPrompt(b)) if a.layers == b.layers => {
                ("system prompt", a.text.to_string(), b.text.to_string())
            }
            (EventBody::CognitionIn(a), EventBody::CognitionIn(b)) if a.source == b.source => {
                ("message", said(&a.message), said(&b.message))
            }
            (a, b) if a == b => continue,
            _ => return Beginning::Differs { what: "contributors", at: 0 },
        };
        if a != b {
            let at = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
            return Beginning::Differs { what, at };
        }
        bytes += a.len();
    }
    Beginning::AsPlanned { bytes }
}

/// The text of a user's message, behind what names its images; of any other all of it, so that nothing is passed over.
fn said(message: &Message) -> String {
    if let Message::User { content } = message {
        let shown = content.iter().filter_map(|block| match block {
            Block::Image(image) => Some(format!("[{} {}]\n", image.media_type, image.sha256)),
            Block::Text { .. } | Block::Thinking { .. } | Block::ToolCall(_) | Block::Other { .. } => None,
        });
        return shown.chain([text_of(content)]).collect();
    }
    serde_json::to_string(message).unwrap_or_default()
}
