//! The state of a chat.

use std::collections::VecDeque;

use super::ThreadState;
use crate::event::{Delivery, QueuedMessage, ShellRan};
use crate::thread::Cost;

/// The state of a chat.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatState {
    /// Prompts of the session so far.
    pub prompts: u64,
    /// The current prompt; `None` while the thread is idle.
    pub current: Option<CurrentPrompt>,
    /// Prompts that wait.
    pub queue: VecDeque<QueuedMessage>,
    /// Messages that follow the user message of the next prompt.
    pub next_turn: VecDeque<QueuedMessage>,
    /// Messages that waited when their process or their prompt ended. A chat sends them only if the user submits them
    /// again.
    pub held: Vec<QueuedMessage>,
    /// True if the user has interrupted the current prompt.
    pub is_interrupted: bool,
    /// True if the session closes at the next idle step.
    pub is_closing: bool,
    /// The summary of the conversation that the user requested.
    pub compaction: Option<CompactionRequest>,
    /// The thread in which the session continues at the next idle step.
    pub successor: Option<Successor>,
    /// Commands of the user that have not run.
    pub commands: VecDeque<UserCommand>,
    /// Commands that have ended. The next prompt sends their outputs to the model.
    pub outputs: Vec<ShellRan>,
    /// The title that the user gave the session.
    pub name: Option<String>,
}

/// A command of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserCommand {
    /// The id of its control message.
    pub id: String,
    pub command: String,
    pub excluded: bool,
}

/// A requested summary of the conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompactionRequest {
    /// The topic that the summary covers in detail.
    pub focus: Option<String>,
}

/// The thread in which a session continues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Successor {
    /// The id of its plan; `None` for the plan of this thread.
    pub plan: Option<String>,
    /// The prompt before which the conversation ends; `None` for the whole conversation.
    pub before_prompt: Option<u64>,
}

/// The current prompt of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurrentPrompt {
    pub number: u64,
    /// The cost of the thread when the prompt started.
    pub cost_before: Cost,
    /// Seconds that the thread had used when the prompt started.
    pub seconds_before: u64,
    /// True if the message is part of the conversation.
    pub is_delivered: bool,
}

impl ThreadState {
    /// Returns the messages that wait for their delivery, in the order in which the model gets them.
    pub fn queued_messages(&self) -> impl Iterator<Item = &QueuedMessage> {
        let of_chat = self.chat.iter().flat_map(|chat| chat.queue.iter().chain(&chat.next_turn));
        self.mail.steering.iter().chain(&self.mail.following).chain(of_chat)
    }

    /// Returns the delivery of a message that is submitted now.
    pub fn effective_delivery(&self, requested: Delivery) -> Delivery {
        match requested {
            Delivery::Steer | Delivery::FollowUp if self.is_idle() => Delivery::Prompt,
            Delivery::Prompt | Delivery::Steer | Delivery::FollowUp | Delivery::NextTurn => requested,
        }
    }

    /// Puts a message into its queue. A run has no prompts, so the message is dropped there.
    pub(in crate::machine) fn enqueue(&mut self, message: QueuedMessage) {
        match (message.delivery, &mut self.chat) {
            (Delivery::Steer, _) => self.mail.steering.push_back(message),
            (Delivery::FollowUp, _) => self.mail.following.push_back(message),
            (Delivery::Prompt, Some(chat)) => chat.queue.push_back(message),
            (Delivery::NextTurn, Some(chat)) => chat.next_turn.push_back(message),
            (Delivery::Prompt | Delivery::NextTurn, None) => {}
        }
    }

    /// Applies a change to the queued message with this id. Removes the message if the change returns false.
    pub(in crate::machine) fn edit_queued(&mut self, id: &str, mut keep: impl FnMut(&mut QueuedMessage) -> bool) {
        let mut edit = |queue: &mut VecDeque<QueuedMessage>| {
            queue.retain_mut(|message| message.id != id || keep(message));
        };
        edit(&mut self.mail.steering);
        edit(&mut self.mail.following);
        if let Some(chat) = &mut self.chat {
            edit(&mut chat.queue);
            edit(&mut chat.next_turn);
            chat.held.retain_mut(|message| message.id != id || keep(message));
        }
    }
}
