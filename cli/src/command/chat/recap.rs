//! The last prompt of a session that is opened again, with its reply, so that the user sees where the conversation is.

use rye_engine::event::{Delivery, Event, EventBody, PromptStatus, ThreadHead};
use rye_engine::message::ContentBlock;
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::Threads;

/// Maximum number of earlier threads that are searched for the last prompt.
const MAX_EARLIER_THREADS: usize = 100;

/// The last prompt of a thread and the text of its replies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recap {
    /// Number of the prompt in the session.
    pub number: u64,
    /// The text that the user typed.
    pub prompt: String,
    pub reply: String,
    /// True if the prompt ended before its answer was complete, because the user interrupted it or its process ended.
    pub is_interrupted: bool,
}

impl Recap {
    /// Returns the last prompt of the conversation that ends with these events of a thread; `None` if the conversation
    /// has no prompt. Searches the threads that the thread continues too.
    pub fn of_conversation(threads: &Threads, events: &[Event]) -> Option<Self> {
        let mut found = Self::of_events(events);
        let mut link = ThreadHead::of(events).continues.cloned();
        for _ in 0..MAX_EARLIER_THREADS {
            let Some(earlier) = link.take().filter(|_| found.is_none()) else { break };
            let thread = ThreadId::parse(&earlier.thread).ok()?;
            let mut events = threads.transcript(&thread).ok()?;
            events.retain(|event| event.seq <= earlier.at_seq);
            found = Self::of_events(&events);
            link = ThreadHead::of(&events).continues.cloned();
        }
        found
    }

    /// Returns the last prompt in the events of a thread; `None` if the thread has none.
    fn of_events(events: &[Event]) -> Option<Self> {
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
                let (number, prompt) = (started.prompt, std::mem::take(&mut typed));
                last = Some(Self { number, prompt, reply: String::new(), is_interrupted: true });
            }
            if let (EventBody::CognitionOut(out), Some(last)) = (&event.body, &mut last) {
                for block in &out.content {
                    if let ContentBlock::Text { text } = block {
                        last.add_reply(text);
                    }
                }
            }
            if let (EventBody::PromptEnded(ended), Some(last)) = (&event.body, &mut last) {
                last.add_reply(&ended.partial_reply);
                last.is_interrupted = ended.status == PromptStatus::Interrupted;
            }
        }
        last.filter(|last| !last.prompt.is_empty())
    }

    fn add_reply(&mut self, text: &str) {
        if !text.is_empty() {
            self.reply.push_str(if self.reply.is_empty() { "" } else { "\n\n" });
            self.reply.push_str(text);
        }
    }

    /// Returns a note if the answer to the prompt is not complete.
    pub fn note(&self) -> Option<String> {
        let text = format!("prompt {} was interrupted before its answer was complete", self.number);
        self.is_interrupted.then_some(text)
    }
}
