//! Questions that the terminal of a chat asks and that the user answers with a single key: about children that still
//! run, a rewind, lost cached tokens, and a compaction.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use rye_compiler::key_bindings::KeyAction;
use rye_engine::event::{ControlMessage, Delivery, UserInput};
use serde_json::Value;

use super::ChatTerminal;
use crate::command::chat::cache_guard::CacheWarning;
use crate::command::chat::commands::format_rewind;
use crate::command::chat::json::ChatVerb;
use crate::command::chat::leaving::{LeftChildren, children_question};
use crate::command::chat::rewind::RewindFiles;
use crate::command::chat::screen::Row;
use crate::present::wrap::{cut_to_width, fold_for_columns};

/// A question that the user answers with one key.
#[derive(Debug)]
pub(super) enum KeyQuestion {
    /// Children still run, and the user leaves the chat or opens another session. `next` is the command that opens the
    /// other session; `None` if the user leaves.
    Children { text: String, next: Option<ChatVerb> },
    /// A rewind to the state before a prompt: the user chooses to restore the files, the conversation or both.
    Rewind { prompt: u64 },
    /// A prompt would send cached tokens again uncached: the user sends it, sends it once without a part, or cancels.
    Cache(Box<GuardedMessage>),
    /// A compaction of the conversation: the user confirms or cancels. `focus` is the topic of the summary.
    Compact { focus: Option<String> },
}

/// A message that waits for the answer to the question about lost cached tokens.
#[derive(Debug)]
pub(super) struct GuardedMessage {
    pub input: UserInput,
    /// The text as the user typed it.
    pub text: String,
    pub delivery: Delivery,
    pub warning: CacheWarning,
    keys: String,
}

impl KeyQuestion {
    /// Returns the row that lists the keys and the answers that they choose. Placeholders such as `{app.interrupt}`
    /// stand for keys.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Children { text, .. } => text,
            Self::Cache(guarded) => &guarded.keys,
            Self::Compact { .. } => "Compact? c: compact, {app.interrupt}: cancel ",
            Self::Rewind { .. } => {
                "Rewind? {tui.input.submit}: conversation, f: files, b: both, {app.interrupt}: nothing "
            }
        }
    }
}

impl ChatTerminal {
    /// Closes the session. If children still run, asks the user first: wait, leave them running, or cancel them.
    pub(super) fn leave(&mut self) {
        match self.session.requests.running_children().len() {
            0 => self.close(LeftChildren::Wait),
            children if !self.is_leaving => {
                let answers = "w: wait, d: continue in the background, c: cancel, {app.interrupt}: stay";
                self.question = Some(KeyQuestion::Children { text: children_question(children, answers), next: None });
                self.is_dirty = true;
            }
            _ => {}
        }
    }

    pub(super) fn close(&mut self, children: LeftChildren) {
        if !std::mem::replace(&mut self.is_leaving, true) {
            if self.is_running || self.user_commands.is_running() {
                self.session.requests.control.send(ControlMessage::Interrupt);
            }
            let waits = children == LeftChildren::Wait && !self.session.requests.running_children().is_empty();
            self.hint = Some(if waits {
                "waiting for the children; {app.clear} cancels them"
            } else {
                "closing the session; {app.clear} stops at once"
            });
            self.commands.perform(ChatVerb::Close { children });
        }
    }

    /// Answers the open question with a key. Esc and Ctrl+C close the question without an answer. A key that selects no
    /// answer has no effect.
    pub(super) fn answer_question(&mut self, key: KeyEvent, action: KeyAction) {
        let Some(question) = self.question.take() else { return };
        if matches!(action, KeyAction::Interrupt | KeyAction::Clear) {
            if let KeyQuestion::Cache(guarded) = question {
                self.return_to_editor(&guarded.text);
            }
            return;
        }
        let is_plain = (key.modifiers - KeyModifiers::SHIFT).is_empty();
        let pressed = if let KeyCode::Char(pressed) = key.code { Some(pressed.to_ascii_lowercase()) } else { None };
        let pressed = pressed.filter(|_| is_plain);
        match (question, pressed) {
            (KeyQuestion::Children { text, next }, pressed) => {
                let chosen = pressed.and_then(LeftChildren::of_key);
                match (chosen, next) {
                    (Some(children), None) => self.close(children),
                    // `Detach` is not possible here, because the next session needs the terminal.
                    (Some(children @ (LeftChildren::Wait | LeftChildren::Cancel)), Some(verb)) => {
                        self.switch(verb, Some(children));
                    }
                    (Some(LeftChildren::Detach) | None, next) => {
                        self.question = Some(KeyQuestion::Children { text, next });
                    }
                }
            }
            (KeyQuestion::Cache(guarded), Some('s')) => {
                let GuardedMessage { input, text, delivery, .. } = *guarded;
                self.submit_checked(input, text, delivery, Vec::new());
            }
            (KeyQuestion::Cache(guarded), Some('w')) if !guarded.warning.without.is_empty() => {
                let GuardedMessage { input, text, delivery, warning, .. } = *guarded;
                self.submit_checked(input, text, delivery, warning.without);
            }
            (KeyQuestion::Compact { focus }, Some('c')) => {
                self.compact(focus);
            }
            (question @ (KeyQuestion::Cache(_) | KeyQuestion::Compact { .. }), _) => self.question = Some(question),
            (KeyQuestion::Rewind { prompt }, pressed) => match (action, pressed) {
                (KeyAction::Send, _) | (_, Some('c')) => {
                    self.commands.perform(ChatVerb::Fork { prompt: Some(prompt), thread: None });
                }
                (_, Some('f')) => self.commands.perform(ChatVerb::Rewind { prompt, files: RewindFiles::Only }),
                (_, Some('b')) => self.commands.perform(ChatVerb::Rewind { prompt, files: RewindFiles::Restore }),
                _ => self.question = Some(KeyQuestion::Rewind { prompt }),
            },
        }
    }

    /// Lists the files of a rewind, and asks the user which parts to rewind.
    pub(super) fn ask_rewind(&mut self, data: &Value, prompt: u64) {
        let mut listed = data.clone();
        if let Value::Object(fields) = &mut listed {
            fields.remove("preview");
        }
        self.note(&format_rewind(&listed));
        self.question = Some(KeyQuestion::Rewind { prompt });
    }

    /// Asks the user whether to send a message that sends cached tokens again uncached.
    pub(super) fn ask_cache(&mut self, input: UserInput, text: String, delivery: Delivery, warning: CacheWarning) {
        self.note(&warning.text);
        let without = warning.name_without();
        let without = if without.is_empty() { without } else { format!("w: send once without {without}, ") };
        let keys = format!("Send? s: send, {without}{{app.interrupt}}: cancel ");
        self.question = Some(KeyQuestion::Cache(Box::new(GuardedMessage { input, text, delivery, warning, keys })));
    }

    /// Opens the session that `verb` requests. If children of the current session still run and `children` does not
    /// determine their treatment, asks the user about them first.
    pub(super) fn switch(&mut self, verb: ChatVerb, children: Option<LeftChildren>) {
        let running = self.session.requests.running_children().len();
        if children.is_none() && running > 0 {
            let text = children_question(running, "w: wait, c: cancel, {app.interrupt}: stay");
            self.question = Some(KeyQuestion::Children { text, next: Some(verb) });
            return;
        }
        if running > 0 && children == Some(LeftChildren::Wait) {
            self.hint = Some("waiting for the children; `rye threads list` shows them");
        }
        self.commands.switch(verb, children.unwrap_or_default());
    }

    /// Returns the rows of the open question, at most `max_rows`, and the row and column of the cursor; `None` if no
    /// question is open. A question that is wider than the terminal continues in the next row.
    pub(super) fn question_rows(&self, columns: usize, max_rows: usize) -> Option<(Vec<Row>, (usize, usize))> {
        let request = self.request.as_ref().filter(|_| self.refusal.is_none() && !self.is_text_open);
        let question = request.map(|request| request.keys.clone());
        let question = question.or_else(|| self.question.as_ref().map(|question| self.name_keys(question.text())))?;
        let folded = fold_for_columns(question.trim_end(), columns);
        let width = columns.saturating_sub(1);
        let rows: Vec<Row> =
            folded.lines().take(max_rows.max(1)).map(|line| Row::new(cut_to_width(line, width))).collect();
        let end = rows.last().map_or(0, Row::width);
        let last = rows.len().saturating_sub(1);
        Some((rows, (last, (end + 1).min(width))))
    }

    /// Copies a text to the clipboard of the terminal.
    pub(super) fn copy(&mut self, text: &str) {
        match self.screen.copy(text) {
            Ok(true) => self.note(&format!("characters sent to the terminal's clipboard: {}", text.chars().count())),
            Ok(false) => self.note("the reply is too long for a clipboard; /export writes a file"),
            Err(error) => self.note(&format!("not copied: {error}")),
        }
    }
}
