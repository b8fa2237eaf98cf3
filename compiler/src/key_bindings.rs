//! Key bindings of the terminal of a chat: the actions with their default keys, and the keys that the user gives them
//! in `agent/keys`.

use std::collections::BTreeMap;
use std::fmt;

use rye_grammar::ItemId;
use rye_grammar::data::{Entry, Kind, Node};

use crate::diagnostics::{ConfigError, Diagnostics, closest};
use crate::item::Items;
use crate::world::{Space, World};

/// The settings file of the key bindings.
pub(crate) const KEYS_FILE: &str = "agent/keys";

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
    /// Changes the mode; in a list, selects the previous entry.
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

/// An action with its id in `agent/keys`, its default keys and its meaning.
#[derive(Debug, Clone, Copy)]
pub struct BoundAction {
    pub action: KeyAction,
    pub id: &'static str,
    pub keys: &'static [&'static str],
    pub about: &'static str,
}

const fn bound(action: KeyAction, id: &'static str, keys: &'static [&'static str], about: &'static str) -> BoundAction {
    BoundAction { action, id, keys, about }
}

/// The actions that have keys, in the order in which the help lists them.
pub const BOUND_ACTIONS: [BoundAction; 22] = [
    bound(
        KeyAction::Send,
        "tui.input.submit",
        &["enter"],
        "send the text, as a steering message while the model works; after `\\`, start a new line",
    ),
    bound(
        KeyAction::FollowUp,
        "app.message.followUp",
        &["alt+enter"],
        "send as a follow-up, delivered when the model would otherwise end the prompt",
    ),
    bound(KeyAction::NewLine, "tui.input.newLine", &["shift+enter", "ctrl+j"], "start a new line"),
    bound(KeyAction::Withdraw, "app.message.dequeue", &["alt+up"], "take unsent messages back"),
    bound(
        KeyAction::Interrupt,
        "app.interrupt",
        &["escape"],
        "interrupt the prompt; pressed twice while no prompt runs: list the prompts to rewind to",
    ),
    bound(
        KeyAction::Clear,
        "app.clear",
        &["ctrl+c"],
        "clear the text; if there is none, interrupt the prompt; pressed twice: leave",
    ),
    bound(KeyAction::Leave, "app.exit", &["ctrl+d"], "leave, if the editor is empty"),
    bound(KeyAction::Suspend, "app.suspend", &["ctrl+z"], "suspend rye; `fg` continues"),
    bound(KeyAction::Complete, "tui.input.tab", &["tab"], "complete a command, template, skill or @path"),
    bound(
        KeyAction::CompleteBack,
        "app.mode.cycle",
        &["shift+tab"],
        "change between the modes ask and read-only; in a list, select the previous entry",
    ),
    bound(KeyAction::Up, "tui.editor.cursorUp", &["up", "ctrl+p"], "line above, or previous prompt of the history"),
    bound(KeyAction::Down, "tui.editor.cursorDown", &["down", "ctrl+n"], "line below, or next prompt of the history"),
    bound(KeyAction::SearchHistory, "app.history.search", &["ctrl+r"], "search the history for the typed text"),
    bound(KeyAction::Undo, "tui.editor.undo", &["ctrl+_"], "undo"),
    bound(KeyAction::Redo, "tui.editor.redo", &["alt+_"], "redo"),
    bound(
        KeyAction::ClearToLineStart,
        "tui.editor.deleteToLineStart",
        &["ctrl+u"],
        "delete all text to the start of the line",
    ),
    bound(
        KeyAction::ShowWhole,
        "app.tools.expand",
        &["ctrl+o"],
        "show pasted text in full; without pasted text, show the output of the last call",
    ),
    bound(KeyAction::Thoughts, "app.thinking.toggle", &["ctrl+t"], "show or hide the thoughts of the model"),
    bound(
        KeyAction::ExternalEditor,
        "app.editor.external",
        &["ctrl+g"],
        "edit the text with the program of `$VISUAL` or `$EDITOR`",
    ),
    bound(
        KeyAction::PasteImage,
        "app.clipboard.pasteImage",
        &["ctrl+v"],
        "send the image of the clipboard with the text",
    ),
    bound(KeyAction::Redraw, "app.screen.redraw", &["ctrl+l"], "redraw the screen"),
    bound(KeyAction::Help, "app.help", &["f1"], "list the keys"),
];

/// Actions that must have a key, because a user without a key for them could neither send a text nor stop a prompt.
const REQUIRED: [KeyAction; 3] = [KeyAction::Send, KeyAction::Interrupt, KeyAction::Clear];

/// A key that is pressed together with modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyPress {
    pub ctrl: bool,
    pub alt: bool,
    pub shift: bool,
    pub key: KeyName,
}

/// A key without its modifiers: a character, or a named key such as Enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyName {
    Char(char),
    Enter,
    Escape,
    Tab,
    Backspace,
    Delete,
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    PageUp,
    PageDown,
    Function(u8),
}

/// The keys without a character: the name in `agent/keys`, the key, and the name in the help.
const NAMED_KEYS: [(&str, KeyName, &str); 13] = [
    ("enter", KeyName::Enter, "Enter"),
    ("escape", KeyName::Escape, "Esc"),
    ("tab", KeyName::Tab, "Tab"),
    ("backspace", KeyName::Backspace, "Backspace"),
    ("delete", KeyName::Delete, "Delete"),
    ("up", KeyName::Up, "Up"),
    ("down", KeyName::Down, "Down"),
    ("left", KeyName::Left, "Left"),
    ("right", KeyName::Right, "Right"),
    ("home", KeyName::Home, "Home"),
    ("end", KeyName::End, "End"),
    ("pageup", KeyName::PageUp, "Page Up"),
    ("pagedown", KeyName::PageDown, "Page Down"),
];

const MODIFIERS: [&str; 3] = ["ctrl", "alt", "shift"];

/// Keys for which terminals send the same byte as for the character with Ctrl.
const SAME_BYTE: [(char, &str); 4] = [('i', "tab"), ('m', "enter"), ('[', "escape"), ('h', "backspace")];

impl KeyPress {
    /// Creates the press of a key. Terminals do not report Shift with a character, and send one byte for several
    /// characters with Ctrl (Ctrl+_, Ctrl+7 and Ctrl+/). Key presses that a terminal cannot distinguish become equal.
    pub fn new((ctrl, alt, shift): (bool, bool, bool), key: KeyName) -> Self {
        match key {
            KeyName::Char(c) if ctrl => {
                let c = match c.to_ascii_lowercase() {
                    '4' => '\\',
                    '5' => ']',
                    '6' => '^',
                    '7' | '/' | '-' => '_',
                    c => c,
                };
                Self { ctrl, alt, shift: false, key: KeyName::Char(c) }
            }
            KeyName::Char(_) => Self { ctrl, alt, shift: false, key },
            KeyName::Escape => Self { ctrl: false, alt: false, shift: false, key },
            KeyName::Enter
            | KeyName::Tab
            | KeyName::Backspace
            | KeyName::Delete
            | KeyName::Up
            | KeyName::Down
            | KeyName::Left
            | KeyName::Right
            | KeyName::Home
            | KeyName::End
            | KeyName::PageUp
            | KeyName::PageDown
            | KeyName::Function(_) => Self { ctrl, alt, shift, key },
        }
    }

    /// Parses a key of `agent/keys`: `ctrl+g`, `alt+enter`, `f1`.
    ///
    /// # Errors
    /// Returns the expected key, as a phrase.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lower = text.trim().to_ascii_lowercase();
        let (modifiers, name) =
            lower.rsplit_once('+').filter(|(_, name)| !name.is_empty()).unwrap_or(("", lower.as_str()));
        let mut held = [false; 3];
        for word in modifiers.split('+').filter(|word| !word.is_empty()) {
            let Some((_, is_held)) = MODIFIERS.iter().zip(&mut held).find(|(known, _)| **known == word) else {
                let near = closest(word, MODIFIERS);
                let near = near.map_or_else(|| "`ctrl`, `alt` or `shift`".to_owned(), |near| format!("`{near}`"));
                return Err(format!("{near} in place of `{word}`"));
            };
            *is_held = true;
        }
        let [ctrl, alt, shift] = held;
        let key = parse_name(name)?;
        if let KeyName::Char(c) = key {
            if !ctrl && !alt {
                return Err(format!("`ctrl` or `alt` before `{c}`, because the key alone types the character"));
            }
            if shift {
                return Err(format!("a key without `shift`, which terminals do not report with `{c}`"));
            }
            if let Some((_, same)) = SAME_BYTE.iter().find(|(same, _)| ctrl && *same == c) {
                return Err(format!("another key, because terminals send the same byte for `ctrl+{c}` and `{same}`"));
            }
        }
        Ok(Self::new((ctrl, alt, shift), key))
    }
}

fn parse_name(name: &str) -> Result<KeyName, String> {
    let mut chars = name.chars();
    if let (Some(only), None) = (chars.next(), chars.next()) {
        return Ok(KeyName::Char(only));
    }
    if let Some((_, key, _)) = NAMED_KEYS.iter().find(|(known, ..)| *known == name) {
        return Ok(*key);
    }
    let number = name.strip_prefix('f').and_then(|number| number.parse::<u8>().ok());
    if let Some(number) = number.filter(|number| (1..=12).contains(number)) {
        return Ok(KeyName::Function(number));
    }
    let same = match name {
        "esc" => Some("escape".to_owned()),
        "return" => Some("enter".to_owned()),
        "backtab" => Some("shift+tab".to_owned()),
        _ => closest(name, NAMED_KEYS.iter().map(|(known, ..)| *known)),
    };
    Err(match same {
        Some(near) => format!("`{near}` in place of `{name}`"),
        None => format!("a character, `f1` to `f12`, or the name of a key such as `enter` in place of `{name}`"),
    })
}

impl fmt::Display for KeyPress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (is_held, name) in [(self.ctrl, "Ctrl+"), (self.alt, "Alt+"), (self.shift, "Shift+")] {
            if is_held {
                f.write_str(name)?;
            }
        }
        if let KeyName::Char(c) = self.key {
            return write!(f, "{}", c.to_uppercase());
        }
        if let KeyName::Function(number) = self.key {
            return write!(f, "F{number}");
        }
        f.write_str(NAMED_KEYS.iter().find(|(_, key, _)| *key == self.key).map_or("", |(.., shown)| *shown))
    }
}

/// The keys that trigger actions, each with its action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyBindings(BTreeMap<KeyPress, KeyAction>);

impl Default for KeyBindings {
    fn default() -> Self {
        Self::of_file(None)
    }
}

impl KeyBindings {
    /// Reads the bindings: the user's `agent/keys`, and the default keys of each action that the file does not name. A
    /// key that the file gives to one action is no longer a default key of another. The file of a project is never read,
    /// unless the project is the user space itself.
    pub fn read(world: &dyn World) -> Self {
        let items = Items::new(world);
        let space = if world.project_is_user_space() { Space::Project } else { Space::User };
        let layers = ItemId::parse(KEYS_FILE).map(|id| items.config_layers(&id));
        let file = layers.iter().flat_map(|layers| layers.iter()).find(|(of, _)| *of == space);
        Self::of_file(file.map(|(_, node)| &**node))
    }

    fn of_file(file: Option<&Node>) -> Self {
        let mut keys = BTreeMap::new();
        let chosen = |one: &BoundAction| file.and_then(|file| file.get(one.id));
        for one in &BOUND_ACTIONS {
            // The check of the settings reports keys that cannot be read.
            let texts = chosen(one).into_iter().flat_map(written_keys).filter_map(|node| node.as_str());
            keys.extend(texts.filter_map(|text| Some((KeyPress::parse(text).ok()?, one.action))));
        }
        for one in BOUND_ACTIONS.iter().filter(|one| chosen(one).is_none()) {
            for key in one.keys.iter().filter_map(|key| KeyPress::parse(key).ok()) {
                keys.entry(key).or_insert(one.action);
            }
        }
        Self(keys)
    }

    /// Returns the action of a key; `None` for a key without an action. If a key with Shift has no action of its own,
    /// the action of the key without Shift applies. Tab is an exception.
    pub fn action(&self, press: KeyPress) -> Option<KeyAction> {
        let without = KeyPress { shift: press.key == KeyName::Tab && press.shift, ..press };
        self.0.get(&press).or_else(|| self.0.get(&without)).copied()
    }

    /// Returns the keys of an action, as the help shows them: `Shift+Enter, Ctrl+J`.
    pub fn keys_of(&self, action: KeyAction) -> String {
        let keys = self.0.iter().filter(|(_, of)| **of == action).map(|(key, _)| key.to_string());
        keys.collect::<Vec<_>>().join(", ")
    }
}

/// Returns the keys that a value lists: one text, or a list of texts.
fn written_keys(node: &Node) -> Vec<&Node> {
    if matches!(node.kind, Kind::List(_)) { node.items().iter().collect() } else { vec![node] }
}

/// Checks the key bindings of a settings file: each key must be one that a terminal reports, no key may have two
/// actions, and some actions must have a key.
pub(crate) fn check_bindings(file: &Node, found: &mut Diagnostics) {
    let mut seen: Vec<(KeyPress, &str)> = Vec::new();
    let mut has_errors = false;
    let mut invalid = |entry: &Entry, node: &Node, shown: &str, expected: String| {
        has_errors = true;
        found.push(ConfigError::Invalid {
            file: KEYS_FILE.to_owned(),
            key: entry.key.node.clone(),
            found: shown.to_owned(),
            expected,
            span: Some(node.span),
        });
    };
    for entry in file.entries() {
        let Some(action) = BOUND_ACTIONS.iter().find(|one| one.id == entry.key.node) else { continue };
        for node in written_keys(&entry.value) {
            let Some(text) = node.as_str() else {
                invalid(entry, node, node.describe(), "a key such as `ctrl+g`, or a list of keys".to_owned());
                continue;
            };
            let shown = format!("`{text}`");
            match KeyPress::parse(text) {
                Err(expected) => invalid(entry, node, &shown, expected),
                Ok(press) => match seen.iter().find(|(known, of)| *known == press && *of != action.id) {
                    Some((_, of)) => invalid(entry, node, &shown, format!("another key, because `{of}` uses this key")),
                    None => seen.push((press, action.id)),
                },
            }
        }
    }
    if has_errors {
        return;
    }
    let bindings = KeyBindings::of_file(Some(file));
    for one in BOUND_ACTIONS.iter().filter(|one| REQUIRED.contains(&one.action)) {
        if bindings.keys_of(one.action).is_empty() {
            found.push(ConfigError::Refused {
                key: one.id.to_owned(),
                file: KEYS_FILE.to_owned(),
                why: format!("`{}` needs a key, such as `{}`", one.id, one.keys.first().unwrap_or(&"")),
                span: Some(file.get(one.id).map_or(file.span, |node| node.span)),
            });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::diagnostics::Diagnostic;
    use crate::validate::{Selection, check};
    use crate::world::MapWorld;

    const KEYS: &str = ".ai/config/agent/keys.yaml";

    fn press(text: &str) -> KeyPress {
        KeyPress::parse(text).unwrap()
    }

    #[test]
    fn default_keys_can_be_written_and_belong_to_one_action_each() {
        let count = BOUND_ACTIONS.iter().map(|one| one.keys.len()).sum::<usize>();
        assert_eq!(KeyBindings::read(&MapWorld::new()).0.len(), count);
    }

    #[test]
    fn keys_of_the_user_replace_the_defaults_and_those_of_a_project_are_ignored() {
        let file = "app.editor.external: ctrl+x\napp.help: [f2, ctrl+g]\napp.suspend: []\n";
        let world = MapWorld::new().with(Space::User, KEYS, file).project(KEYS, "app.exit: ctrl+q\n");
        let bindings = KeyBindings::read(&world);
        for (key, action) in [
            ("ctrl+x", Some(KeyAction::ExternalEditor)),
            ("ctrl+g", Some(KeyAction::Help)),
            ("f1", None),
            ("ctrl+z", None),
            ("ctrl+d", Some(KeyAction::Leave)),
            ("ctrl+q", None),
            ("shift+up", Some(KeyAction::Up)),
            ("ctrl+/", Some(KeyAction::Undo)),
        ] {
            assert_eq!(bindings.action(press(key)), action, "{key}");
        }
        assert_eq!(bindings.keys_of(KeyAction::Help), "F2, Ctrl+G");
    }

    #[test]
    fn unusable_keys_are_reported_with_the_nearest_name() {
        for (file, expected) in [
            ("app.hlep: f2", "unknown key `app.hlep`"),
            ("app.help: ctrl+escap", "`app.help` in `agent/keys` cannot be `ctrl+escap`: `escape` in place of `escap`"),
            ("app.help: ctl+g", "`app.help` in `agent/keys` cannot be `ctl+g`: `ctrl` in place of `ctl`"),
            ("app.help: g", "cannot be `g`: `ctrl` or `alt` before `g`"),
            ("app.help: ctrl+i", "the same byte for `ctrl+i` and `tab`"),
            ("app.help: [ctrl+x, 1]", "cannot be a number"),
            ("app.help: ctrl+x\napp.exit: ctrl+x", "another key, because `app.help` uses this key"),
            ("app.interrupt: []", "`app.interrupt` in `agent/keys` cannot be used"),
            ("app.help: escape", "`app.interrupt` in `agent/keys` cannot be used"),
        ] {
            let world = MapWorld::new().with(Space::User, KEYS, file);
            let found = check(&world, &Selection::All).diagnostics;
            let of = |one: &Diagnostic| {
                let label = one.labels().into_iter().next().map(|label| label.text).unwrap_or_default();
                format!("{}: {}", one.message(), label.trim_start_matches("expected "))
            };
            let texts: Vec<String> = found.iter().map(of).collect();
            assert!(texts.iter().any(|text| text.contains(expected)), "{file}: {texts:?}");
        }
    }

    #[test]
    fn file_of_a_project_is_refused() {
        let world = MapWorld::new().project(KEYS, "app.help: f2\n");
        let found = check(&world, &Selection::All).diagnostics;
        let messages: Vec<String> = found.iter().map(Diagnostic::message).collect();
        assert_eq!(messages, ["`.ai/config/agent/keys.yaml` cannot be a file of a project"]);
    }
}
