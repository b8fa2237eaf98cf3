//! The text of the editor while an approval request is open. A character that does not answer the request starts the
//! text. The following characters belong to the text too, even if they are keys that answer a request.

use crossterm::event::KeyEvent;
use rye_compiler::key_bindings::KeyAction;

use super::ChatTerminal;

const HINT: &str = "the question is still open: {tui.input.submit} or {app.interrupt} returns to it, and the text stays in \
                    the editor";

impl ChatTerminal {
    /// Updates the terminal after an edit. If an approval request is open, the editor takes the keys from now on,
    /// instead of the request.
    pub(super) fn text_edited(&mut self) {
        self.edited();
        let is_open = self.request.as_ref().is_some_and(|request| !request.is_answered());
        if is_open && self.refusal.is_none() {
            self.is_text_open = true;
            self.hint = Some(HINT);
        }
    }

    /// Lets keys answer the approval request again instead of editing the text. The text stays in the editor.
    pub(super) fn close_text(&mut self) {
        if std::mem::take(&mut self.is_text_open) {
            self.hint = None;
        }
    }

    /// Performs the action of a key while the user edits a text and an approval request is open. No key sends the text
    /// as a message, because a message would close the request without an answer.
    pub(super) fn text_key(&mut self, key: KeyEvent, action: KeyAction) {
        if matches!(action, KeyAction::Send | KeyAction::Interrupt) {
            return self.close_text();
        }
        if action == KeyAction::Clear {
            self.editor.take();
            self.edited();
            return self.close_text();
        }
        if action == KeyAction::NewLine {
            self.editor.insert_newline();
        } else if action == KeyAction::ClearToLineStart {
            self.editor.delete_to_line_start();
        } else if matches!(action, KeyAction::Edit | KeyAction::Leave) {
            self.editor.input(key);
        } else if action == KeyAction::Undo {
            self.editor.undo();
        } else if action == KeyAction::Redo {
            self.editor.redo();
        }
        self.text_edited();
    }
}
