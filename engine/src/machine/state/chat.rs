//! The state of a chat.

use std::collections::VecDeque;
use std::sync::Arc;

use rye_compiler::plan::Grant;

use super::{EarlyEnd, MeasuredTokens, ThreadState};
use crate::event::{ChatMode, ContinuedPrompt, Continues, Delivery, PromptBounds, QueuedMessage, ShellRan};
use crate::thread::Cost;

/// The state that only a chat has: its prompts, queued messages and requests of the user.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatState {
    /// Number of prompts of the session so far.
    pub prompts: u64,
    /// The current prompt; `None` while the thread is idle.
    pub current: Option<CurrentPrompt>,
    /// Messages that wait to become prompts. The message of the current prompt stays at the front until it is delivered
    /// to the model.
    pub queue: VecDeque<QueuedMessage>,
    /// Messages that follow the user message of the next prompt.
    pub next_turn: VecDeque<QueuedMessage>,
    /// Messages that were still queued when the process or the prompt ended. A chat sends these messages only if the
    /// user submits them again.
    pub held: Vec<QueuedMessage>,
    /// True if the user has interrupted the current prompt.
    pub is_interrupted: bool,
    /// True if the session closes at the next idle step.
    pub is_closing: bool,
    /// The end of the session that a hook with the scope `session` requested; `None` if no hook did. The session ends at
    /// the next idle step and cannot be reopened.
    pub session_end: Option<EarlyEnd>,
    /// The request of the user to replace the conversation with a summary; `None` if there is no such request.
    pub compaction: Option<CompactionRequest>,
    /// The thread in which the session continues at the next idle step; `None` if it stays in this thread.
    pub successor: Option<Successor>,
    /// Commands of the user that have not run.
    pub commands: VecDeque<UserCommand>,
    /// Commands that have ended. The next prompt sends their outputs to the model.
    pub outputs: Vec<ShellRan>,
    /// The title that the user gave the session; `None` if the user gave no title.
    pub name: Option<String>,
    /// The mode of the prompts after the current prompt.
    pub mode: ChatMode,
    /// The mode of the current prompt.
    pub prompt_mode: ChatMode,
    /// The grant sets of the current prompt: first the set of the prompt, then the sets of the thread. `None` if the
    /// prompt does not narrow the grants of the thread.
    pub narrowed: Option<Arc<[Vec<Grant>]>>,
}

/// A shell command that the user entered in a chat (the control message `Shell`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserCommand {
    /// The id of the control message that requested the command.
    pub id: String,
    pub command: String,
    pub excluded: bool,
}

/// A request to replace the conversation with a summary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompactionRequest {
    /// The topic that the summary covers in detail; `None` if the request names no topic.
    pub focus: Option<String>,
}

/// The thread in which a session continues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Successor {
    /// The id of the successor's plan; `None` if the successor has the plan of this thread.
    pub plan: Option<String>,
    /// The successor gets the conversation before the prompt with this number; `None` if the successor gets the whole
    /// conversation.
    pub before_prompt: Option<u64>,
    /// The thread whose prompts `before_prompt` counts; `None` for the current branch of the session.
    pub branch: Option<String>,
}

/// The progress of the user message of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PromptProgress {
    /// The message is not part of the conversation.
    Queued,
    /// The message is part of the conversation, and no model call has started since. `opens` is true if the message
    /// opened the conversation of the thread, together with the layers of the plan.
    Delivered { opens: bool },
    /// A model call has started since the delivery, or the prompt started in an earlier thread.
    Called,
}

/// The current prompt of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurrentPrompt {
    pub number: u64,
    /// The cost of the thread when the prompt started.
    pub cost_before: Cost,
    /// Seconds that the thread had used when the prompt started.
    pub seconds_before: u64,
    /// Number of children that the thread had started when the prompt started.
    pub spawned_before: u64,
    pub(crate) progress: PromptProgress,
    /// True if the prompt has a `spend` limit of its own, which no hook or message can raise.
    pub is_capped: bool,
}

impl ThreadState {
    /// Returns true if the thread is a chat without a current prompt.
    pub fn is_idle(&self) -> bool {
        self.chat.as_ref().is_some_and(|chat| chat.current.is_none())
    }

    /// Returns the maximum duration, in milliseconds, of a request for a summary in an idle chat: `prompt_seconds`, but
    /// at most the remaining duration of the session. `None` if the chat is not idle or requests no summary. No other
    /// deadline bounds the request, because the clock of the thread is paused between prompts.
    pub fn idle_compaction_ms(&self, now: i64, prompt_seconds: u64) -> Option<u64> {
        let compacts = self.attempt.as_ref().is_some_and(|attempt| attempt.compacts);
        let session = self.thread_limits.duration_seconds.saturating_mul(1000);
        let left = session.saturating_sub(self.clock.elapsed_at(now));
        (compacts && self.is_idle()).then(|| left.min(prompt_seconds.saturating_mul(1000)))
    }

    /// Returns true if the thread is a chat that waits for the user: no prompt, command or change of the session is
    /// pending.
    pub fn is_settled_chat(&self) -> bool {
        self.chat.as_ref().is_some_and(|chat| {
            let is_pending = chat.compaction.is_some() || chat.successor.is_some() || !chat.commands.is_empty();
            chat.current.is_none() && chat.queue.is_empty() && !is_pending
        })
    }

    /// Returns the provider's token count of the last request; `None` if there is no count, or if the next request
    /// offers other tools than the last.
    pub fn measured(&self) -> Option<&MeasuredTokens> {
        let narrowed = self.chat.as_ref().and_then(|chat| chat.narrowed.as_ref());
        self.conversation.measured.as_ref().filter(|measured| measured.narrowed.as_ref() == narrowed)
    }

    /// Returns the nano-dollars that the current prompt of a chat may still spend. A prompt needs a bound of its own,
    /// because the account of a chat holds the money of the whole session. `None` in a run.
    pub fn prompt_spend(&self) -> Option<u64> {
        self.chat.as_ref().map(|_| self.available_spend())
    }

    /// Returns the cost and the seconds that the thread had used before the current prompt of a chat; zero in a run.
    /// Reports about the limits of the prompt exclude these amounts.
    pub fn before_prompt(&self) -> (Cost, u64) {
        let current = self.chat.as_ref().and_then(|chat| chat.current);
        current.map_or_else(Default::default, |current| (current.cost_before, current.seconds_before))
    }

    /// Returns the amount of a limit that the thread had used before the current prompt of a chat (nano-dollars for
    /// `spend`); 0 in a run, and for the limits `depth` and `output`, which are not totals.
    pub(in crate::machine) fn used_before_prompt(&self, limit: &str) -> u64 {
        let (before, seconds) = self.before_prompt();
        match limit {
            "turns" => before.turns,
            "tokens" => before.input_tokens.saturating_add(before.output_tokens),
            "spend" => before.spend,
            "duration_seconds" => seconds,
            "spawns" => self.chat.as_ref().and_then(|chat| chat.current).map_or(0, |current| current.spawned_before),
            _ => 0,
        }
    }

    /// Returns true if the user has interrupted the current prompt of a chat.
    pub fn is_interrupted(&self) -> bool {
        self.chat.as_ref().is_some_and(|chat| chat.is_interrupted)
    }

    /// Returns the messages that wait for their delivery, in the order in which the model gets them.
    pub fn queued_messages(&self) -> impl Iterator<Item = &QueuedMessage> {
        let of_chat = self.chat.iter().flat_map(|chat| chat.queue.iter().chain(&chat.next_turn));
        self.mailbox.steering.iter().chain(&self.mailbox.follow_ups).chain(of_chat)
    }

    /// Returns the delivery of a message that is submitted now: `requested`, except that a steering or follow-up
    /// message becomes a prompt if the thread is idle or the message has bounds.
    pub fn effective_delivery(&self, requested: Delivery, bounds: &PromptBounds) -> Delivery {
        let is_prompt = self.is_idle() || (self.chat.is_some() && !bounds.is_empty());
        match requested {
            Delivery::Steer | Delivery::FollowUp if is_prompt => Delivery::Prompt,
            Delivery::Prompt | Delivery::Steer | Delivery::FollowUp | Delivery::NextTurn => requested,
        }
    }

    /// Appends a message to the queue of its delivery. Drops a message with the delivery `Prompt` or `NextTurn` if the
    /// thread is a run, because a run has no prompts.
    pub(in crate::machine) fn enqueue(&mut self, message: QueuedMessage) {
        match (message.delivery, &mut self.chat) {
            (Delivery::Steer, _) => self.mailbox.steering.push_back(message),
            (Delivery::FollowUp, _) => self.mailbox.follow_ups.push_back(message),
            (Delivery::Prompt, Some(chat)) => chat.queue.push_back(message),
            (Delivery::NextTurn, Some(chat)) => chat.next_turn.push_back(message),
            (Delivery::Prompt | Delivery::NextTurn, None) => {}
        }
    }

    /// Calls `keep` with the queued or held message that has this id. `keep` may change the message. If `keep` returns
    /// false, the message is removed.
    pub(in crate::machine) fn edit_queued(&mut self, id: &str, mut keep: impl FnMut(&mut QueuedMessage) -> bool) {
        let mut edit = |queue: &mut VecDeque<QueuedMessage>| {
            queue.retain_mut(|message| message.id != id || keep(message));
        };
        edit(&mut self.mailbox.steering);
        edit(&mut self.mailbox.follow_ups);
        if let Some(chat) = &mut self.chat {
            edit(&mut chat.queue);
            edit(&mut chat.next_turn);
            chat.held.retain_mut(|message| message.id != id || keep(message));
        }
    }
}

impl ThreadState {
    /// Returns the continuation of an earlier thread. `None` if the thread continues no thread, or if the continued
    /// conversation of a chat has no prompt: then this thread opens with the layers of the first message.
    pub fn continued_prompts(&self) -> Option<&Continues> {
        let continues = self.continues.as_ref()?;
        let has_no_prompt = continues.prompts == 0 && continues.prompt.is_none() && continues.message.is_none();
        (self.chat.is_none() || !has_no_prompt).then_some(continues)
    }

    /// Returns the unfinished prompt of the continued thread until the prompt has started in this thread; `None` after
    /// that, or if no prompt was unfinished.
    pub fn unstarted_continuation(&self) -> Option<ContinuedPrompt> {
        let prompt = self.continues.as_ref()?.prompt?;
        self.chat.as_ref().is_some_and(|chat| chat.prompts < prompt.number).then_some(prompt)
    }

    /// Returns true if the current prompt started in the thread that this thread continues.
    pub fn is_prompt_continued(&self) -> bool {
        let current = self.chat.as_ref().and_then(|chat| chat.current).map(|current| current.number);
        let continued = self.continues.as_ref().and_then(|continues| continues.prompt).map(|prompt| prompt.number);
        current.is_some() && current == continued
    }

    /// Returns true if the message of the current prompt is still in the queue, as its first message. False for a
    /// prompt that started in the thread that this thread continues, because the message of such a prompt is never in
    /// the queue of this thread.
    pub fn is_prompt_queued(&self) -> bool {
        let current = self.chat.as_ref().and_then(|chat| chat.current);
        current.is_some_and(|current| current.progress == PromptProgress::Queued) && !self.is_prompt_continued()
    }

    /// Returns the message with which this thread continues an earlier thread; `None` if it continues no thread. In a
    /// chat, also `None` after the continued prompt has ended.
    pub fn continuation_message(&self) -> Option<&str> {
        let message = self.continues.as_ref()?.message.as_deref()?;
        (self.chat.is_none() || self.unstarted_continuation().is_some() || self.is_prompt_continued())
            .then_some(message)
    }
}
