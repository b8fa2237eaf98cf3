//! Keys of the terminal of a chat: the action that each key event triggers, and the list of the current key bindings.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rye_compiler::key_bindings::{BOUND_ACTIONS, KeyAction, KeyBindings, KeyName, KeyPress};

/// Keys of the editor that have no action in `agent/keys`, each with its effect.
pub const EDITOR_KEYS: [(&str, &str); 4] = [
    ("Ctrl+A, Ctrl+E", "go to the start, to the end of the line"),
    ("Ctrl+W", "delete a word"),
    ("Ctrl+K", "delete all text to the end of the line"),
    ("Ctrl+Y", "insert the deleted text"),
];

/// Returns the current key bindings, each with the description of its action.
pub fn key_help(bindings: &KeyBindings) -> Vec<(String, String)> {
    let row = |keys: String, about: &str| (keys, about.to_owned());
    let bound = BOUND_ACTIONS.iter().map(|one| row(bindings.keys_of(one.action), one.about));
    let bound = bound.map(|(keys, about)| (if keys.is_empty() { "no key".to_owned() } else { keys }, about));
    bound.chain(EDITOR_KEYS.iter().map(|(keys, about)| row((*keys).to_owned(), about))).collect()
}

/// Replaces the ids of actions in a hint, such as `{app.interrupt}`, with the first key of the action. Omits each
/// clause that contains an action without a key.
pub fn name_keys(hint: &str, bindings: &KeyBindings) -> String {
    let mut named = String::new();
    for clause in hint.split_inclusive([',', ';', '·']) {
        let mut clause = clause.to_owned();
        for one in &BOUND_ACTIONS {
            let id = format!("{{{}}}", one.id);
            if clause.contains(&id) {
                let keys = bindings.keys_of(one.action);
                let first = keys.split(", ").next().unwrap_or_default();
                clause = if first.is_empty() { String::new() } else { clause.replace(&id, first) };
            }
        }
        named.push_str(&clause);
    }
    named.trim_matches([',', ';', '·', ' ']).to_owned()
}

/// Returns the action that a key event triggers. A key without a binding that changes the text or moves the cursor has
/// the action `KeyAction::Edit`; any other key has `KeyAction::None`.
pub fn action_of(key: KeyEvent, bindings: &KeyBindings) -> KeyAction {
    if key.kind == KeyEventKind::Release {
        return KeyAction::None;
    }
    if let Some(action) = press_of(key).and_then(|press| bindings.action(press)) {
        return action;
    }
    let edits = [KeyCode::Backspace, KeyCode::Delete, KeyCode::Left, KeyCode::Right, KeyCode::Home, KeyCode::End];
    let is_edit = matches!(key.code, KeyCode::Char(_)) || edits.contains(&key.code);
    if is_edit { KeyAction::Edit } else { KeyAction::None }
}

/// Keys without a character that can have an action.
const KEY_CODES: [(KeyCode, KeyName); 13] = [
    (KeyCode::Enter, KeyName::Enter),
    (KeyCode::Esc, KeyName::Escape),
    (KeyCode::Tab, KeyName::Tab),
    (KeyCode::Backspace, KeyName::Backspace),
    (KeyCode::Delete, KeyName::Delete),
    (KeyCode::Up, KeyName::Up),
    (KeyCode::Down, KeyName::Down),
    (KeyCode::Left, KeyName::Left),
    (KeyCode::Right, KeyName::Right),
    (KeyCode::Home, KeyName::Home),
    (KeyCode::End, KeyName::End),
    (KeyCode::PageUp, KeyName::PageUp),
    (KeyCode::PageDown, KeyName::PageDown),
];

/// Converts a key event; `None` for a key that cannot have an action, such as a character that is typed.
fn press_of(key: KeyEvent) -> Option<KeyPress> {
    let has = |modifier| key.modifiers.contains(modifier);
    let (ctrl, alt, shift) = (has(KeyModifiers::CONTROL), has(KeyModifiers::ALT), has(KeyModifiers::SHIFT));
    if key.code == KeyCode::BackTab {
        return Some(KeyPress::new((false, false, true), KeyName::Tab));
    }
    let name = if let KeyCode::Char(c) = key.code {
        (ctrl || alt).then_some(KeyName::Char(c))
    } else if let KeyCode::F(number) = key.code {
        Some(KeyName::Function(number))
    } else {
        KEY_CODES.iter().find(|(code, _)| *code == key.code).map(|(_, name)| *name)
    };
    Some(KeyPress::new((ctrl, alt, shift), name?))
}

#[cfg(test)]
mod tests {
    use rye_compiler::world::{MapWorld, Space};

    use super::*;

    #[test]
    fn hint_names_the_keys_in_force_and_omits_clauses_without_a_key() {
        let hint = "{tui.input.submit} sends, {tui.input.tab} completes; {app.interrupt}: stop";
        assert_eq!(name_keys(hint, &KeyBindings::default()), "Enter sends, Tab completes; Esc: stop");
        let file = "app.interrupt: f4\ntui.input.tab: []\n";
        let world = MapWorld::new().with(Space::User, ".ai/config/agent/keys.yaml", file);
        let bindings = KeyBindings::read(&world);
        assert_eq!(name_keys(hint, &bindings), "Enter sends, F4: stop");
    }

    #[test]
    fn keys_have_their_actions() {
        let bindings = KeyBindings::default();
        let action = |code, modifiers| action_of(KeyEvent::new(code, modifiers), &bindings);
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
            (KeyCode::Esc, KeyModifiers::ALT, KeyAction::Interrupt),
            (KeyCode::BackTab, KeyModifiers::SHIFT, KeyAction::CompleteBack),
            (KeyCode::Tab, KeyModifiers::NONE, KeyAction::Complete),
            (KeyCode::Char('7'), KeyModifiers::CONTROL, KeyAction::Undo),
            (KeyCode::Char('_'), KeyModifiers::ALT, KeyAction::Redo),
            (KeyCode::Char('p'), KeyModifiers::CONTROL, KeyAction::Up),
            (KeyCode::Down, KeyModifiers::SHIFT, KeyAction::Down),
            (KeyCode::Char('a'), KeyModifiers::CONTROL, KeyAction::Edit),
            (KeyCode::Char('?'), KeyModifiers::SHIFT, KeyAction::Edit),
        ] {
            assert_eq!(action(code, modifiers), expected, "{code:?} {modifiers:?}");
        }
        let mut released = KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE);
        released.kind = KeyEventKind::Release;
        assert_eq!(action_of(released, &bindings), KeyAction::None);
    }
}
