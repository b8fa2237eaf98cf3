//! Changes of the thread state by the prompts of a chat.

use rye_compiler::plan::{Node, Outcome};

use super::super::state::{
    ChildState, CompactionRequest, CurrentPrompt, PromptProgress, RunPosition, Successor, ThreadState, UserCommand,
};
use crate::event::{
    AcceptedInput, ChatMode, CommandRan, Continues, Delivery, INTERRUPTED_REPLY, PromptEnded, PromptStarted,
    PromptStatus, QueuedMessage, SessionNamed, ShellRan, UserInput,
};
use crate::message::{ContentBlock, Message, SharedMessage};
use crate::thread::Status;

/// Starts a prompt: applies the limits of the prompt and resets the counters and results of the previous prompt.
pub(super) fn on_prompt_started(state: &mut ThreadState, started: &PromptStarted) {
    let (cost_before, seconds_before) = (state.cost, state.clock.elapsed_ms().div_ceil(1000));
    let spawned_before = state.spawned();
    let of_thread = state.launch.as_ref().map_or(&[][..], |launch| &launch.grants);
    let narrowed = started.grants.as_ref().map(|own| std::iter::once(own).chain(of_thread).cloned().collect());
    let Some(chat) = &mut state.chat else { return };
    chat.narrowed = narrowed;
    chat.prompt_mode = started.mode;
    chat.prompts = started.prompt;
    // The user has seen the held messages before this prompt and could submit them again, so they are no longer held.
    chat.held.clear();
    let (number, is_capped) = (started.prompt, started.capped);
    chat.current = Some(CurrentPrompt {
        number,
        cost_before,
        seconds_before,
        spawned_before,
        progress: PromptProgress::Queued,
        is_capped,
    });
    state.limits = started.limits;
    state.position = RunPosition::After(Node::Idle, Outcome::Prompt);
    state.limit = None;
    state.failed = None;
    state.returned = None;
    state.partial_outputs = None;
    state.stop_reason = None;
    state.nudges = 0;
    state.output_reminders = 0;
    state.hook_retries = 0;
    state.continued_replies = 0;
    state.conversation.cut_text.clear();
    state.conversation.system_now = None;
}

/// Queues a submitted message. If the thread is idle, a steering or follow-up message becomes a prompt.
pub(super) fn queue_message(state: &mut ThreadState, id: &str, input: &UserInput, delivery: Delivery) {
    let delivery = state.effective_delivery(delivery, &input.bounds);
    state.enqueue(QueuedMessage::new(id, input, delivery));
}

/// Applies the result of a message's intake.
pub(super) fn on_user_input(state: &mut ThreadState, input: &AcceptedInput) {
    let mut moved = None;
    state.edit_queued(&input.id, |message| {
        message.accepted = true;
        message.text.clone_from(&input.text);
        message.images.clone_from(&input.images);
        if input.handled || message.delivery == input.delivery {
            return !input.handled;
        }
        // The answer of a command determines the delivery of its message.
        message.delivery = input.delivery;
        moved = Some(message.clone());
        false
    });
    if let Some(message) = moved {
        state.enqueue(message);
    }
}

/// Handles the end of a command. Removes the command's message from the queue, unless the answer of the command is sent
/// to the model.
pub(super) fn on_command_ran(state: &mut ThreadState, ran: &CommandRan) {
    state.hook_points += 1;
    if ran.action.delivery().is_none() {
        state.edit_queued(&ran.id, |_| false);
    }
}

/// Starts the state of a thread that continues another thread: copies the number of prompts, the mode, the queued
/// messages, the unfinished prompt and the living children of the other thread.
pub(super) fn on_continues(state: &mut ThreadState, continues: &Continues) {
    if let Some(chat) = &mut state.chat {
        chat.prompts = continues.prompt.map_or(continues.prompts, |prompt| prompt.number.saturating_sub(1));
        chat.mode = continues.mode;
    }
    state.continues = Some(continues.clone());
    for message in &continues.queue {
        state.enqueue(message.clone());
    }
    let is_chat = state.chat.is_some();
    for child in &continues.children {
        state.withheld = state.withheld.saturating_add(child.spend);
        state.children.insert(child.spawn, ChildState::continued(child, is_chat));
    }
}

/// Sets the title of a session.
pub(super) fn on_named(state: &mut ThreadState, named: &SessionNamed) {
    if let Some(chat) = &mut state.chat {
        chat.name = Some(named.name.clone());
    }
}

/// Removes the first message of the queue, which is the message of the current prompt, and marks the prompt as
/// delivered.
pub(super) fn on_prompt_delivered(state: &mut ThreadState) {
    let opens = !state.conversation.prompted;
    let Some(chat) = &mut state.chat else { return };
    chat.queue.pop_front();
    if let Some(current) = &mut chat.current {
        current.progress = PromptProgress::Delivered { opens };
    }
}

/// Marks the current prompt of a continuation as delivered, because the conversation already contains its message.
pub(super) fn on_prompt_continued(state: &mut ThreadState) {
    if let Some(current) = state.chat.as_mut().and_then(|chat| chat.current.as_mut()) {
        current.progress = PromptProgress::Called;
    }
}

/// Records that a model call of the current prompt starts.
pub(super) fn on_model_call(state: &mut ThreadState) {
    let current = state.chat.as_mut().and_then(|chat| chat.current.as_mut());
    if let Some(current) = current.filter(|current| current.progress != PromptProgress::Queued) {
        current.progress = PromptProgress::Called;
    }
}

/// Removes the messages of a prompt that ended before a model call, so that no later prompt sends them. The outputs of
/// commands before the prompt stay in the conversation. `opens` is true if the message of the prompt opened the
/// conversation: the next message then opens it.
fn withdraw_prompt(state: &mut ThreadState, opens: bool) {
    let conversation = &mut state.conversation;
    let Some(prompt) = conversation.open_prompt.take() else { return };
    let removed = conversation.messages.split_off(prompt.start.min(conversation.messages.len()));
    conversation.messages.extend(removed.into_iter().filter(|message| matches!(**message, Message::Bash { .. })));
    conversation.prompt_index = conversation.prompt_index.min(conversation.messages.len());
    conversation.prompted &= !opens;
}

/// Ends the current prompt and makes the thread idle.
pub(super) fn on_prompt_ended(state: &mut ThreadState, ended: &PromptEnded) {
    let is_queued = state.is_prompt_queued();
    if !ended.partial_reply.is_empty() {
        // Only the text is kept: a tool call without its end and thoughts without their signature cannot be sent.
        let text = format!("{}\n\n{INTERRUPTED_REPLY}", ended.partial_reply.trim_end());
        let content = vec![ContentBlock::Text { text: text.into() }];
        state.conversation.messages.push(Message::Assistant { content }.into());
    }
    let progress = state.chat.as_ref().and_then(|chat| chat.current).map(|current| current.progress);
    if let Some(PromptProgress::Delivered { opens }) = progress
        && ended.status != PromptStatus::Interrupted
    {
        withdraw_prompt(state, opens);
    }
    let Some(chat) = &mut state.chat else { return };
    chat.current = None;
    if is_queued {
        // The message of the prompt was not delivered, so it is held for the user.
        chat.held.extend(chat.queue.pop_front());
    }
    let unsent = state.mailbox.steering.drain(..).chain(state.mailbox.follow_ups.drain(..));
    match ended.status {
        // The `unsent` messages arrived after the last turn of the prompt. Each of these messages becomes a prompt.
        PromptStatus::Done => {
            let prompts = unsent.map(|message| QueuedMessage { delivery: Delivery::Prompt, ..message });
            chat.queue = prompts.chain(std::mem::take(&mut chat.queue)).collect();
        }
        PromptStatus::Interrupted | PromptStatus::Limit | PromptStatus::Error => chat.held.extend(unsent),
    }
    chat.is_interrupted = false;
    chat.narrowed = None;
    chat.prompt_mode = ChatMode::default();
    state.returned = None;
    // Between two prompts, the limits of the session apply (for example, to a summary).
    state.limits = state.thread_limits;
    state.stop = None;
    state.question = None;
    state.wait_until = None;
    state.failures_of_earlier_prompts = state.failures_of_earlier_prompts.saturating_add(state.failures);
    state.failures = 0;
    state.failures_before_fallback = 0;
    state.conversation.open_prompt = None;
    state.is_prompt_too_long = false;
    state.position = RunPosition::At(Node::Idle);
}

/// Queues a command of the user. `excluded` is true if the output of the command is not sent to the model.
pub(super) fn queue_command(state: &mut ThreadState, id: &str, command: &str, excluded: bool) {
    if let Some(chat) = &mut state.chat {
        chat.commands.push_back(UserCommand { id: id.to_owned(), command: command.to_owned(), excluded });
    }
}

/// Records the output of a shell command that the user ran. The next prompt adds the output to the conversation.
pub(super) fn on_shell_ran(state: &mut ThreadState, ran: &ShellRan) {
    if let Some(object) = &ran.object {
        state.objects.insert(object.clone());
    }
    if let Some(chat) = &mut state.chat {
        chat.commands.retain(|command| command.id != ran.id);
        chat.outputs.push(ran.clone());
    }
}

/// Adds the outputs of the commands since the last prompt to the conversation, before the prompt.
pub(super) fn show_outputs(state: &mut ThreadState) {
    let ran = state.chat.as_mut().map(|chat| std::mem::take(&mut chat.outputs)).unwrap_or_default();
    state.conversation.messages.extend(ran.iter().map(|ran| SharedMessage::from(ran.message())));
}

/// Requests a summary of the conversation at the next idle step. Does nothing in a session without messages.
pub(super) fn request_compaction(state: &mut ThreadState, focus: Option<&String>) {
    let has_messages = !state.conversation.messages.is_empty();
    if let Some(chat) = state.chat.as_mut().filter(|_| has_messages) {
        chat.compaction = Some(CompactionRequest { focus: focus.cloned() });
    }
}

/// Ends the compaction of a chat that is idle, and returns true. Changes nothing and returns false if a prompt or a run
/// is in progress, because the compaction is then a part of the prompt or the run.
pub(super) fn end_compaction(state: &mut ThreadState) -> bool {
    if !state.is_idle() {
        return false;
    }
    let Some(chat) = &mut state.chat else { return false };
    chat.compaction = None;
    chat.is_interrupted = false;
    state.failed = None;
    state.failures_of_earlier_prompts = state.failures_of_earlier_prompts.saturating_add(state.failures);
    state.failures = 0;
    state.failures_before_fallback = 0;
    // The attempt number is not reset: the ledger identifies an attempt by its turn and its number.
    state.wait_until = None;
    state.is_prompt_too_long = false;
    state.position = RunPosition::At(Node::Idle);
    true
}

/// Abandons the compaction that was running or requested when the process of the chat ended, because a recovery makes
/// no model call.
pub(super) fn abandon_compaction(state: &mut ThreadState) {
    if state.chat.as_ref().is_some_and(|chat| chat.compaction.is_some()) {
        end_compaction(state);
    }
    if let Some(chat) = &mut state.chat {
        chat.compaction = None;
    }
}

/// Requests that a session continues in a new thread, the successor, at the next idle step. `change` sets the plan of
/// the successor and the part of the conversation that the successor gets. If a successor is requested already,
/// `change` changes that request.
pub(super) fn set_successor(state: &mut ThreadState, change: impl FnOnce(&mut Successor)) {
    if let Some(chat) = &mut state.chat {
        change(chat.successor.get_or_insert_default());
    }
}

/// Requests a fork: a new thread with the conversation before the prompt number `prompt`. The prompt belongs to the
/// branch of `thread`, or to the current branch if `thread` is `None`. Ignores a prompt that the current branch does
/// not have. Prompts of other branches are not checked, because the state does not contain them.
pub(super) fn request_fork(state: &mut ThreadState, prompt: u64, thread: Option<&str>) {
    let exists = state.chat.as_ref().is_some_and(|chat| (1..=chat.prompts).contains(&prompt));
    if exists || thread.is_some() {
        set_successor(state, |next| {
            next.before_prompt = Some(prompt);
            next.branch = thread.map(str::to_owned);
        });
    }
}

/// Shortens the wait before the next attempt, after another process has taken over the thread at the time `now`. From
/// `now`, the wait lasts at most as long as it still had to last at `last_event`, the time of the last recorded event.
/// Without this bound, a process whose clock is behind would wait too long.
pub(super) fn bound_wait(state: &mut ThreadState, now: i64, last_event: i64) {
    let bound = |until: i64| until.min(now.saturating_add(until.saturating_sub(last_event).max(0)));
    state.wait_until = state.wait_until.map(bound);
}

/// Prepares a chat for its next process, after the earlier process has ended. Moves the waiting messages to `held`,
/// reopens a closed session, lowers the mode to at most `Ask`, and drops the pending commands and the pending change of
/// the session.
pub(super) fn hold_queues(state: &mut ThreadState) {
    if state.ended.as_ref().is_some_and(|ended| ended.status != Status::Idle) {
        return;
    }
    let current = usize::from(state.is_prompt_queued());
    let Some(chat) = &mut state.chat else { return };
    let waiting = chat.queue.split_off(current.min(chat.queue.len()));
    let queues = waiting.into_iter().chain(state.mailbox.steering.drain(..)).chain(state.mailbox.follow_ups.drain(..));
    chat.held.extend(queues.chain(chat.next_turn.drain(..)));
    chat.is_closing = false;
    chat.successor = None;
    // The mode `Auto` ends with the process: a reopened session requests approvals again.
    chat.mode = chat.mode.min(ChatMode::Ask);
    // A command runs again only if the user types it again.
    chat.commands.clear();
}
