//! The last prompt of a session that is opened again, with its reply, so that the user sees where the conversation is.

use rye_engine::event::{Delivery, Event, EventBody};
use rye_engine::message::ContentBlock;

/// The last prompt of a thread and the text of its replies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recap {
    /// Number of the prompt in the session.
    pub number: u64,
    /// The text that the user typed.
    pub prompt: String,
    pub reply: String,
}

impl Recap {
    /// Returns the last prompt in the events of a thread; `None` if the thread has none.
    pub fn of_events(events: &[Event]) -> Option<Self> {
        let mut typed = String::new();
        let mut last: Option<Self> = None;
        for event in events {
            if let EventBody::UserInput(input) = &event.body
                && input.delivery == Delivery::Prompt
                && !input.handled
            {
                typed.clone_from(&input.raw);
            }
            if let EventBody::PromptStarted(started) = &event.body {
                last = Some(Self { number: started.prompt, prompt: std::mem::take(&mut typed), reply: String::new() });
            }
            if let (EventBody::CognitionOut(out), Some(last)) = (&event.body, &mut last) {
                for block in &out.content {
                    if let ContentBlock::Text { text } = block {
                        last.reply.push_str(if last.reply.is_empty() { "" } else { "\n\n" });
                        last.reply.push_str(text);
                    }
                }
            }
        }
        last.filter(|last| !last.prompt.is_empty())
    }
}
