//! Keys of the terminal of a chat, and the action that each key triggers.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// An action that a key triggers in the terminal of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyAction {
    /// Sends the text: as the next prompt, or as a message that steers the running prompt.
    Send,
    /// Sends the text as a message that the model reads when it would otherwise end the prompt.
    FollowUp,
    NewLine,
    /// Moves the unsent messages back into the editor.
    Withdraw,
    Interrupt,
    /// Clears the editor. In an empty editor, interrupts the running prompt; pressed again, leaves the chat.
    Clear,
    /// Leaves the chat if the editor is empty, else deletes the next character.
    Leave,
    Suspend,
    Redraw,
    Complete,
    CompleteBack,
    SearchHistory,
    /// Moves up a line, or to the previous prompt of the history.
    Up,
    Down,
    Undo,
    Redo,
    ClearToLineStart,
    /// Shows pasted texts in full. If the typed text contains no pasted text, shows the whole output of the last call.
    ShowWhole,
    /// Shows or hides the thoughts of the model.
    Thoughts,
    /// Saves the image of the clipboard as a file, and inserts the name of the file.
    PasteImage,
    /// Edits the text with the program of `$VISUAL` or `$EDITOR`.
    ExternalEditor,
    Help,
    /// Edits the text in the editor with the pressed key.
    Edit,
    None,
}

/// The keys with their meaning, for `/help` and the guide.
pub const KEY_HELP: [(&str, &str); 21] = [
    ("Enter", "send the text; while the model works, as a steering message"),
    ("Alt+Enter", "send as a follow-up, delivered when the model would otherwise end the prompt"),
    ("Shift+Enter, Ctrl+J, \\ Enter", "new line"),
    ("Alt+Up", "take unsent messages back"),
    ("Esc", "interrupt the prompt; pressed twice while no prompt runs: list the prompts to rewind to"),
    ("Ctrl+C", "clear the text; if there is none, interrupt the prompt; pressed twice: leave"),
    ("Ctrl+D", "leave, if the editor is empty"),
    ("Ctrl+Z", "suspend rye; `fg` continues"),
    ("Tab", "complete a command, template, skill or @path"),
    ("Shift+Tab", "change between the modes ask and read-only"),
    ("Up, Down", "history of this project"),
    ("Ctrl+R", "search the history for the typed text"),
    ("Ctrl+_, Alt+_", "undo, redo"),
    ("Ctrl+A, Ctrl+E", "go to the start, to the end of the line"),
    ("Ctrl+W, Ctrl+U, Ctrl+K", "delete a word, all text to the start, all text to the end of the line"),
    ("Ctrl+Y", "insert the deleted text"),
    ("Ctrl+O", "show pasted text in full; without pasted text, show the output of the last call"),
    ("Ctrl+T", "show or hide the thoughts of the model"),
    ("Ctrl+G", "edit the text with $VISUAL or $EDITOR"),
    ("Ctrl+V", "send the image of the clipboard with the text"),
    ("Ctrl+L", "redraw the screen"),
];

/// Returns the action of a key.
pub fn action_of(key: KeyEvent) -> KeyAction {
    if key.kind == KeyEventKind::Release {
        return KeyAction::None;
    }
    let has = |modifier| key.modifiers.contains(modifier);
    let (ctrl, alt, shift) = (has(KeyModifiers::CONTROL), has(KeyModifiers::ALT), has(KeyModifiers::SHIFT));
    match (key.code, ctrl, alt) {
        (KeyCode::Enter, false, false) if shift => KeyAction::NewLine,
        (KeyCode::Enter, false, true) => KeyAction::FollowUp,
        (KeyCode::Enter, false, false) => KeyAction::Send,
        (KeyCode::Char('j'), true, false) => KeyAction::NewLine,
        (KeyCode::Up, false, true) => KeyAction::Withdraw,
        (KeyCode::Esc, _, _) => KeyAction::Interrupt,
        (KeyCode::Char('c'), true, false) => KeyAction::Clear,
        (KeyCode::Char('d'), true, false) => KeyAction::Leave,
        (KeyCode::Char('z'), true, false) => KeyAction::Suspend,
        (KeyCode::Char('l'), true, false) => KeyAction::Redraw,
        (KeyCode::Tab, false, false) => KeyAction::Complete,
        (KeyCode::BackTab, _, _) => KeyAction::CompleteBack,
        (KeyCode::Char('r'), true, false) => KeyAction::SearchHistory,
        (KeyCode::Up, false, false) | (KeyCode::Char('p'), true, false) => KeyAction::Up,
        (KeyCode::Down, false, false) | (KeyCode::Char('n'), true, false) => KeyAction::Down,
        // Terminals send the same byte for Ctrl+_, Ctrl+7 and Ctrl+/.
        (KeyCode::Char('_' | '7' | '/'), true, false) => KeyAction::Undo,
        (KeyCode::Char('_'), false, true) => KeyAction::Redo,
        (KeyCode::Char('u'), true, false) => KeyAction::ClearToLineStart,
        (KeyCode::Char('o'), true, false) => KeyAction::ShowWhole,
        (KeyCode::Char('t'), true, false) => KeyAction::Thoughts,
        (KeyCode::Char('g'), true, false) => KeyAction::ExternalEditor,
        (KeyCode::Char('v'), true, false) => KeyAction::PasteImage,
        (KeyCode::F(1), false, false) => KeyAction::Help,
        (
            KeyCode::Char(_)
            | KeyCode::Backspace
            | KeyCode::Delete
            | KeyCode::Left
            | KeyCode::Right
            | KeyCode::Home
            | KeyCode::End,
            _,
            _,
        ) => KeyAction::Edit,
        _ => KeyAction::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_actions() {
        let action = |code, modifiers| action_of(KeyEvent::new(code, modifiers));
        for (code, modifiers, expected) in [
            (KeyCode::Enter, KeyModifiers::NONE, KeyAction::Send),
            (KeyCode::Enter, KeyModifiers::ALT, KeyAction::FollowUp),
            (KeyCode::Enter, KeyModifiers::SHIFT, KeyAction::NewLine),
            (KeyCode::Char('j'), KeyModifiers::CONTROL, KeyAction::NewLine),
            (KeyCode::Char('c'), KeyModifiers::CONTROL, KeyAction::Clear),
            (KeyCode::Char('c'), KeyModifiers::NONE, KeyAction::Edit),
            (KeyCode::Char('g'), KeyModifiers::CONTROL, KeyAction::ExternalEditor),
            (KeyCode::Char('t'), KeyModifiers::CONTROL, KeyAction::Thoughts),
            (KeyCode::Char('v'), KeyModifiers::CONTROL, KeyAction::PasteImage),
            (KeyCode::Up, KeyModifiers::ALT, KeyAction::Withdraw),
            (KeyCode::F(5), KeyModifiers::NONE, KeyAction::None),
        ] {
            assert_eq!(action(code, modifiers), expected, "{code:?} {modifiers:?}");
        }
        let mut released = KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE);
        released.kind = KeyEventKind::Release;
        assert_eq!(action_of(released), KeyAction::None);
    }
}
