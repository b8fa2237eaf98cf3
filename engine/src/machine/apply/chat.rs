//! State changes by the prompts of a chat.

use rye_compiler::plan::{Node, Outcome};

use super::super::state::{CurrentPrompt, RunPosition, ThreadState};
use crate::event::{AcceptedInput, Delivery, PromptEnded, PromptStarted, PromptStatus, QueuedMessage, UserInput};
use crate::thread::Status;

/// Starts a prompt: its limits apply, and nothing of the prompt before it.
pub(super) fn on_prompt_started(state: &mut ThreadState, started: &PromptStarted) {
    let (cost_before, seconds_before) = (state.cost, state.clock.elapsed_ms().div_ceil(1000));
    let Some(chat) = &mut state.chat else { return };
    chat.prompts = started.prompt;
    // The user has seen them.
    chat.held.clear();
    chat.current = Some(CurrentPrompt { number: started.prompt, cost_before, seconds_before, is_delivered: false });
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
    state.talk.cut_text.clear();
    state.talk.system_now = None;
}

/// Queues a submitted message. If the thread is idle, steering and follow-ups are prompts.
pub(super) fn queue_message(state: &mut ThreadState, id: &str, input: &UserInput, delivery: Delivery) {
    let delivery = state.effective_delivery(delivery);
    state.enqueue(QueuedMessage::new(id, input, delivery));
}

/// Applies the result of a message's intake.
pub(super) fn on_user_input(state: &mut ThreadState, input: &AcceptedInput) {
    state.edit_queued(&input.id, |message| {
        message.accepted = true;
        message.text.clone_from(&input.text);
        message.images.clone_from(&input.images);
        !input.handled
    });
}

/// Queues the messages that waited in the continued thread.
pub(super) fn take_over_queue(state: &mut ThreadState, queue: &[QueuedMessage]) {
    for message in queue {
        state.enqueue(message.clone());
    }
}

/// Takes the delivered message from the queue.
pub(super) fn on_prompt_delivered(state: &mut ThreadState) {
    let Some(chat) = &mut state.chat else { return };
    chat.queue.pop_front();
    if let Some(current) = &mut chat.current {
        current.is_delivered = true;
    }
}

/// Marks the prompt that a continuation takes over: its message is part of the conversation.
pub(super) fn on_prompt_continued(state: &mut ThreadState) {
    if let Some(current) = state.chat.as_mut().and_then(|chat| chat.current.as_mut()) {
        current.is_delivered = true;
    }
}

/// Ends the current prompt: the thread is idle.
pub(super) fn on_prompt_ended(state: &mut ThreadState, ended: &PromptEnded) {
    let Some(chat) = &mut state.chat else { return };
    if chat.current.take().is_some_and(|current| !current.is_delivered) {
        // The message is not part of the conversation.
        chat.held.extend(chat.queue.pop_front());
    }
    let unsent = state.mail.steering.drain(..).chain(state.mail.following.drain(..));
    match ended.status {
        // The messages arrived after the last turn.
        PromptStatus::Done => {
            let prompts = unsent.map(|message| QueuedMessage { delivery: Delivery::Prompt, ..message });
            chat.queue = prompts.chain(std::mem::take(&mut chat.queue)).collect();
        }
        PromptStatus::Interrupted | PromptStatus::Limit | PromptStatus::Error => chat.held.extend(unsent),
    }
    chat.is_interrupted = false;
    state.stop = None;
    state.question = None;
    state.wait_until = None;
    state.failures = 0;
    state.is_prompt_too_long = false;
    state.position = RunPosition::At(Node::Idle);
}

/// Holds the messages that waited when the process ended, and opens a closed session.
pub(super) fn hold_queues(state: &mut ThreadState) {
    if state.ended.as_ref().is_some_and(|ended| ended.status != Status::Idle) {
        return;
    }
    let Some(chat) = &mut state.chat else { return };
    let delivered = usize::from(chat.current.is_some_and(|current| !current.is_delivered));
    let waiting = chat.queue.split_off(delivered.min(chat.queue.len()));
    let queues = waiting.into_iter().chain(state.mail.steering.drain(..)).chain(state.mail.following.drain(..));
    chat.held.extend(queues.chain(chat.next_turn.drain(..)));
    chat.is_closing = false;
}
