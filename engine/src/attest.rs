//! Proof that the opening of a thread (system prompt and first message) is the opening that its plan states. The events
//! before the opening are folded, the plan's own functions render the opening again, and the two texts are compared
//! byte by byte. Writes nothing and starts nothing.

use rye_compiler::plan::Plan;

use crate::event::{Event, EventBody};
use crate::machine::{ThreadState, apply, opening_events};
use crate::message::{ContentBlock, Message, text_of};

/// The result of comparing a recorded opening with the opening of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpeningCheck {
    /// Equal; `bytes` is the total size of the system prompt and the first message.
    AsPlanned { bytes: usize },
    /// Different; `what` is `system prompt`, `contributors` or `message`, and `at` is the index of the first byte that
    /// differs.
    Differs { what: &'static str, at: usize },
    /// The transcript does not contain the whole opening yet.
    NotYet,
}

/// Compares the opening in a transcript with the opening of a plan.
pub fn check_opening(plan: &Plan, events: &[Event]) -> OpeningCheck {
    let mut state = ThreadState::new();
    let opens = |event: &Event| matches!(event.body, EventBody::SystemPrompt(_));
    let Some(at) = events.iter().position(opens) else { return OpeningCheck::NotYet };
    for event in events.iter().take(at) {
        apply(&mut state, event);
    }
    let planned = opening_events(plan, &state);
    let recorded: Vec<&EventBody> = events.iter().skip(at).take(planned.len()).map(|event| &event.body).collect();
    if recorded.len() < planned.len() {
        return OpeningCheck::NotYet;
    }
    let mut bytes = 0;
    for (planned, recorded) in planned.iter().zip(recorded) {
        let (what, a, b) = match (planned, recorded) {
            (EventBody::SystemPrompt(a), EventBody::SystemPrompt(b)) if a.layers == b.layers => {
                ("system prompt", a.text.to_string(), b.text.to_string())
            }
            (EventBody::CognitionIn(a), EventBody::CognitionIn(b)) if a.source == b.source => {
                ("message", comparable_text(&a.message), comparable_text(&b.message))
            }
            (a, b) if a == b => continue,
            _ => return OpeningCheck::Differs { what: "contributors", at: 0 },
        };
        if a != b {
            let at = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
            return OpeningCheck::Differs { what, at };
        }
        bytes += a.len();
    }
    OpeningCheck::AsPlanned { bytes }
}

/// Returns the text to compare: for a user message, the references to its images and then its text; for any other
/// message, its JSON.
fn comparable_text(message: &Message) -> String {
    if let Message::User { content } = message {
        let shown = content.iter().filter_map(|block| match block {
            ContentBlock::Image(image) => Some(format!("[{} {}]\n", image.media_type, image.sha256)),
            ContentBlock::Text { .. }
            | ContentBlock::Thinking { .. }
            | ContentBlock::ToolCall(_)
            | ContentBlock::Other { .. } => None,
        });
        return shown.chain([text_of(content)]).collect();
    }
    serde_json::to_string(message).unwrap_or_default()
}
