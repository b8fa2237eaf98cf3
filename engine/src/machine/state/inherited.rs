//! The state of a thread that continues another thread, and the check whether a continuation can be shorter.

use super::{Conversation, ThreadState};
use crate::event::ThreadOrigin;
use crate::machine::retained_messages::{InheritedMessages, first_unanswered};

impl ThreadState {
    /// Returns the state of a thread without events that starts with the messages of another thread.
    pub(crate) fn inheriting(inherited: InheritedMessages) -> Self {
        let InheritedMessages { messages, open_prompt } = inherited;
        Self { conversation: Conversation { messages, open_prompt, ..Conversation::default() }, ..Self::new() }
    }

    /// Returns true if a handoff cannot shorten the conversation. This is so before the first turn of a run, a child or
    /// a continuation, because the thread then has only the messages with which it started. It is also so if a handoff
    /// would retain every message.
    pub fn is_shortest(&self) -> bool {
        let is_unchanged = self.launch.as_ref().is_none_or(|launch| match launch.origin {
            ThreadOrigin::Run | ThreadOrigin::Child => true,
            ThreadOrigin::Handoff => self.is_work_continued(),
            ThreadOrigin::Chat | ThreadOrigin::Resume | ThreadOrigin::Fork | ThreadOrigin::Replan => false,
        });
        (is_unchanged && self.cost.turns == 0) || self.is_unanswered()
    }

    /// Returns true if a handoff can shorten a prompt that the provider refused as too long. False before the first
    /// turn of a thread that a handoff started, because its prompt is already as short as a handoff can make it. Also
    /// false if a handoff would retain every message.
    pub fn can_shorten_prompt(&self) -> bool {
        let handed_over = self.launch.as_ref().is_some_and(|launch| launch.origin == ThreadOrigin::Handoff);
        (self.cost.turns > 0 || !handed_over || !self.is_work_continued()) && !self.is_unanswered()
    }

    /// Returns true for a run, and for a chat whose current prompt started in the thread that this thread continues.
    /// False for a chat with a later prompt, because a handoff can leave out the messages of the earlier prompts.
    fn is_work_continued(&self) -> bool {
        self.chat.is_none() || self.is_prompt_continued()
    }

    /// Returns true if a handoff of this chat would retain every message, because all messages belong to the unfinished
    /// prompt or have no reply. False for a run, because a run is handed off once even if every message is retained.
    fn is_unanswered(&self) -> bool {
        let starts_first = self.conversation.open_prompt.as_ref().is_some_and(|prompt| prompt.start == 0);
        self.chat.is_some() && starts_first && first_unanswered(self) == 0
    }
}
