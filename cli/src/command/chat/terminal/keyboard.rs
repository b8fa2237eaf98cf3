//! The actions of keys in the terminal of a chat.

use std::io;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use rustix::process::{Signal, getpid, kill_process};
use rye_compiler::key_bindings::KeyAction;
use rye_engine::event::{ChatMode, ControlMessage};
use tokio::time::Instant;

use super::ChatTerminal;
use crate::command::chat::external_editor::edit_externally;
use crate::command::chat::inquiry::Inquiry;
use crate::command::chat::json::{ChatVerb, ModeArg};
use crate::command::chat::keys::action_of;
use crate::command::chat::overlay::{Entry, Overlay, Replaced};
use crate::command::chat::raw_mode::{enter_raw_mode, restore_terminal, terminal_size};

/// Maximum time to wait until SIGTSTP stops the process. Afterwards, the terminal is used again, because SIGTSTP does
/// not stop a process in an orphaned process group.
const SUSPEND_TIMEOUT: Duration = Duration::from_millis(500);

/// Returns true for a key that writes a character.
fn is_character(key: KeyEvent) -> bool {
    matches!(key.code, KeyCode::Char(_)) && (key.modifiers - KeyModifiers::SHIFT).is_empty()
}

impl ChatTerminal {
    /// Performs the action of a key. Fails if the terminal cannot be used, because it was closed.
    pub(super) fn key(&mut self, key: KeyEvent) -> io::Result<()> {
        let action = action_of(key, &self.session.keys.bindings);
        let performed = self.perform(key, action);
        if action == KeyAction::ExternalEditor {
            self.session.keys.resume();
        }
        performed
    }

    fn perform(&mut self, key: KeyEvent, action: KeyAction) -> io::Result<()> {
        if self.answer_open_request(key, action) {
            return Ok(());
        }
        if self.question.is_some() {
            self.answer_question(key, action);
            return Ok(());
        }
        if self.select_in_overlay(action) {
            return Ok(());
        }
        let leaving = std::mem::take(&mut self.leaving);
        let may_widen = std::mem::take(&mut self.may_widen);
        let may_rewind = std::mem::take(&mut self.may_rewind);
        self.hint = self.hint.filter(|_| action == KeyAction::None);
        match action {
            KeyAction::Send if self.editor.break_at_backslash() => self.edited(),
            KeyAction::Send | KeyAction::FollowUp if self.is_leaving => {
                self.hint = Some("the session closes: the text stays in the editor for `rye chat -c`");
            }
            KeyAction::Send => self.send(false),
            KeyAction::FollowUp => self.send(true),
            KeyAction::NewLine => {
                self.editor.insert_newline();
                self.edited();
            }
            KeyAction::Withdraw => {
                self.session.requests.control.send(ControlMessage::Retract { input: None });
            }
            KeyAction::Interrupt if self.is_running || self.is_busy_while_idle() => self.interrupt(),
            KeyAction::Interrupt if may_rewind && self.editor.is_empty() => self.list_rewinds(),
            KeyAction::Interrupt if self.editor.is_empty() => {
                self.may_rewind = true;
                self.hint = Some("{app.interrupt} again lists the prompts to rewind to");
            }
            KeyAction::Clear if !self.editor.is_empty() => {
                self.editor.take();
                self.edited();
            }
            KeyAction::Clear => self.interrupt_or_leave(leaving)?,
            KeyAction::Leave if self.editor.is_empty() => self.leave(),
            KeyAction::Leave | KeyAction::Edit => {
                self.editor.input(key);
                self.edited();
            }
            KeyAction::Suspend => self.suspend()?,
            KeyAction::Redraw => self.screen.clear_all()?,
            KeyAction::Complete => self.complete(),
            KeyAction::CompleteBack => self.toggle_mode(may_widen),
            KeyAction::SearchHistory if self.editor.is_empty() => {
                self.hint = Some(
                    "type a part of an earlier prompt, then {app.history.search}; {tui.editor.cursorUp} shows the prompts \
                     one by one",
                );
            }
            KeyAction::SearchHistory => {
                let found = self.history.search(&self.editor.text());
                let entries = found.into_iter().map(|text| Entry { text, note: String::new() }).collect();
                self.overlay = Overlay::open(entries, Replaced::Text);
                if self.overlay.is_none() {
                    self.hint = Some("no prompt of the history contains this text");
                }
            }
            KeyAction::Up => {
                if !self.editor.move_up()
                    && let Some(text) = self.history.previous(&self.editor.text())
                {
                    self.editor.set_text(&text);
                }
            }
            KeyAction::Down => {
                if !self.editor.move_down()
                    && let Some(text) = self.history.following()
                {
                    self.editor.set_text(&text);
                }
            }
            KeyAction::Undo => self.editor.undo(),
            KeyAction::Redo => self.editor.redo(),
            KeyAction::ClearToLineStart => {
                self.editor.delete_to_line_start();
                self.edited();
            }
            KeyAction::ShowWhole if self.editor.has_pastes() => self.editor.expand_pastes(),
            KeyAction::ShowWhole => self.commands.inquire(Inquiry::Output),
            KeyAction::Thoughts => self.toggle_thoughts(),
            KeyAction::PasteImage => self.paste_image(),
            KeyAction::ExternalEditor => self.open_external_editor()?,
            KeyAction::Help => self.help(Some("keys")),
            KeyAction::Interrupt | KeyAction::None => {}
        }
        Ok(())
    }

    /// Handles a key while an approval request is open: the key answers the request, interrupts the prompt, or edits
    /// the message with which the user refuses the call. Returns false if neither a request nor this message is open.
    fn answer_open_request(&mut self, key: KeyEvent, action: KeyAction) -> bool {
        if self.refusal.is_some() {
            self.refusal_key(key, action);
            return true;
        }
        if self.is_text_open {
            self.text_key(key, action);
            return true;
        }
        let Some(request) = &mut self.request else { return false };
        if request.is_refusal_with_message(key) {
            self.begin_refusal();
            return true;
        }
        match request.answer(key) {
            Some(answer) => {
                self.hint = None;
                self.session.answers.send(answer.to_owned()).ok();
            }
            None if action == KeyAction::Clear && !self.editor.is_empty() => {
                self.editor.take();
                self.edited();
            }
            None if matches!(action, KeyAction::Interrupt | KeyAction::Clear) => {
                self.is_request_interrupted = true;
                self.interrupt();
            }
            // The key is no answer, or the request is already answered: the character starts a text in the editor.
            None if action == KeyAction::Edit && is_character(key) => {
                self.editor.input(key);
                self.text_edited();
            }
            None => self.hint = Some(request.hint()),
        }
        true
    }

    /// Handles a key while a list is open: the key moves the selection, accepts the selected entry, or closes the list.
    /// Returns false if the caller must still perform the action of the key: no list was open, or a key other than
    /// `Interrupt` closed the list.
    fn select_in_overlay(&mut self, action: KeyAction) -> bool {
        let Some(overlay) = &mut self.overlay else { return false };
        if matches!(action, KeyAction::Complete | KeyAction::Down) {
            overlay.next();
        } else if matches!(action, KeyAction::CompleteBack | KeyAction::Up) {
            overlay.previous();
        } else if action == KeyAction::Send {
            self.accept_entry();
        } else {
            self.overlay = None;
            return action == KeyAction::Interrupt;
        }
        true
    }

    fn complete(&mut self) {
        let (word, is_first) = self.editor.word_before_cursor();
        let before = self.editor.words_before();
        let entries = match before.first().and_then(|first| first.strip_prefix('/')) {
            Some(command) if !word.starts_with('@') => self.completer.arguments(command, before.len(), &word),
            Some(_) | None => self.completer.entries(&word, is_first),
        };
        self.overlay = Overlay::open(entries, Replaced::Word);
        if self.overlay.as_ref().is_some_and(Overlay::is_single) {
            self.accept_entry();
        }
    }

    /// Switches between the modes `ask` and `read-only`. The mode `ask` allows more, so the user must press Shift+Tab
    /// twice to change from `read-only` to `ask`. `confirm` is true for the second press.
    fn toggle_mode(&mut self, confirm: bool) {
        let mode = match self.session.status.mode() {
            ChatMode::Ask | ChatMode::Auto => ModeArg::ReadOnly,
            ChatMode::ReadOnly if confirm => ModeArg::Ask,
            ChatMode::ReadOnly => {
                self.may_widen = true;
                self.hint = Some("{app.mode.cycle} again returns to the mode `ask`");
                return;
            }
        };
        self.commands.perform(ChatVerb::Mode { mode, confirm });
    }

    fn accept_entry(&mut self) {
        let Some(overlay) = self.overlay.take() else { return };
        let Some(entry) = overlay.selected() else { return };
        match overlay.replaced {
            Replaced::Word => self.editor.replace_word(&entry.text),
            Replaced::Text => self.editor.set_text(&entry.text),
        }
        self.edited();
    }

    /// Edits the text with the program of `$VISUAL` or `$EDITOR`, which uses the terminal meanwhile.
    fn open_external_editor(&mut self) -> io::Result<()> {
        self.screen.clear()?;
        restore_terminal();
        let edited = edit_externally(&self.editor.text());
        self.continued()?;
        match edited {
            Ok(text) => {
                self.editor.set_text(&text);
                self.edited();
            }
            Err(reason) => self.note(&reason),
        }
        Ok(())
    }

    /// Suspends the process with `SIGTSTP`. Another thread may receive the signal, so this thread may run for a moment
    /// longer. The terminal is used again only after `SIGCONT` or `SUSPEND_TIMEOUT`.
    fn suspend(&mut self) -> io::Result<()> {
        self.screen.clear()?;
        restore_terminal();
        self.suspended_until = Some(Instant::now() + SUSPEND_TIMEOUT);
        Ok(kill_process(getpid(), Signal::TSTP)?)
    }

    /// Prepares the terminal again after the process was stopped or an external editor has ended.
    pub(super) fn continued(&mut self) -> io::Result<()> {
        self.suspended_until = None;
        // The shell may have changed the modes of the terminal.
        restore_terminal();
        enter_raw_mode()?;
        if let Some(size) = terminal_size() {
            self.screen.resize(size);
        }
        self.screen.invalidate_frame();
        self.is_dirty = true;
        Ok(())
    }
}
