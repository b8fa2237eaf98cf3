//! The refusal of a call with a message to the model, in the terminal of a chat.

use crossterm::event::KeyEvent;
use rye_compiler::key_bindings::KeyAction;
use rye_engine::event::{ControlMessage, Delivery, EventBody, UserInput};

use super::{ChatTerminal, QueuedMessage};
use crate::command::chat::approvals::OpenRequest;

const HINT: &str = "{tui.input.submit} refuses the call with this message, {app.interrupt} returns to the question";

/// The message with which the user refuses a call, while the approval request of the call is open.
#[derive(Debug)]
pub(super) struct RefusalMessage {
    /// The text that was in the editor before the user wrote the message.
    draft: String,
    /// The finished message, which is sent to the model as soon as the refusal is recorded. `None` while the user still
    /// writes the message.
    message: Option<String>,
}

impl ChatTerminal {
    /// Lets the user write the message of a refusal. The text that was in the editor is kept until `end_refusal`.
    pub(super) fn begin_refusal(&mut self) {
        self.refusal = Some(RefusalMessage { draft: self.editor.take(), message: None });
        self.hint = Some(HINT);
    }

    /// Discards the message of a refusal that the user still writes, and restores the text that was in the editor
    /// before. A finished message stays, because it is sent once the refusal is recorded.
    pub(super) fn end_refusal(&mut self) {
        if let Some(refusal) = self.refusal.take_if(|refusal| refusal.message.is_none()) {
            self.editor.set_text(&refusal.draft);
            self.hint = None;
        }
    }

    /// Sends the message with which the user refused a call, if `body` records the refusal. The message is not sent
    /// earlier, because it would close the approval request without an answer. If `body` ends the prompt instead,
    /// returns the message to the editor.
    pub(super) fn send_refusal_message(&mut self, body: &EventBody) {
        let is_recorded = matches!(body, EventBody::ApprovalGiven(_));
        if !is_recorded && !matches!(body, EventBody::PromptEnded(_)) {
            return;
        }
        let written = self.refusal.take_if(|refusal| refusal.message.is_some());
        let Some(RefusalMessage { draft, message: Some(text) }) = written else { return };
        self.editor.set_text(&draft);
        if is_recorded {
            self.submit(UserInput::text(text.clone()), text, Delivery::Steer);
        } else {
            // The prompt was interrupted before the answer.
            self.return_to_editor(&text);
        }
    }

    /// Refuses a call of the session's own thread with a message. One control message contains the refusal and the
    /// message, so that no model call can start between them. Returns false if the message is empty, or if a child
    /// waits for the approval.
    fn refuse_own_call(&mut self, text: &str) -> bool {
        let live = self.session.requests.control.live_state();
        let Some(question) = live.as_ref().and_then(|live| live.state.question.as_ref()) else { return false };
        let thread = live.as_ref().and_then(|live| live.thread_id()).unwrap_or_default();
        let is_own = self.request.as_ref().is_some_and(|request| request.is_of(thread));
        let Some(refusal) = self.refusal.take_if(|_| is_own && !text.trim().is_empty()) else { return false };
        let answer = ControlMessage::Approve {
            yes: false,
            question: Some(question.seq),
            message: Some(text.to_owned()),
            raises: false,
        };
        self.editor.set_text(&refusal.draft);
        // The note that the request was answered elsewhere is not needed.
        self.is_request_interrupted = true;
        if let Some(id) = self.session.requests.control.send_with_id(answer) {
            self.queue.push(QueuedMessage { id, text: text.to_owned(), delivery: Delivery::Steer });
        }
        true
    }

    /// Performs the action of a key while the user writes the message of a refusal.
    pub(super) fn refusal_key(&mut self, key: KeyEvent, action: KeyAction) {
        if self.refusal.as_ref().is_some_and(|refusal| refusal.message.is_some()) {
            // The refusal was sent and is not recorded yet: its message can no longer be edited.
            return;
        }
        if action == KeyAction::Send && !self.editor.break_at_backslash() {
            self.refuse();
        } else if action == KeyAction::NewLine {
            self.editor.insert_newline();
        } else if matches!(action, KeyAction::Edit | KeyAction::Leave) {
            self.editor.input(key);
        } else if action == KeyAction::ClearToLineStart {
            self.editor.delete_to_line_start();
        } else if matches!(action, KeyAction::Interrupt | KeyAction::Clear) {
            self.end_refusal();
        }
    }

    /// Refuses the call. If the user has written a message, the model reads it with the result of the call, before its
    /// next turn.
    fn refuse(&mut self) {
        if !self.request.as_mut().is_some_and(OpenRequest::refuse) {
            return;
        }
        let text = self.editor.take();
        self.hint = None;
        if self.refuse_own_call(&text) {
            return;
        }
        match &mut self.refusal {
            Some(refusal) if !text.trim().is_empty() => refusal.message = Some(text),
            Some(_) | None => self.end_refusal(),
        }
        self.session.answers.send("n".to_owned()).ok();
    }
}
