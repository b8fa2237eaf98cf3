//! The list below the editor: completions of the word before the cursor, or prompts of the history.

use std::path::PathBuf;

use rye_compiler::semantics::limits::LimitName;

use super::commands::list_commands;
use super::screen::Row;
use crate::known_names::{list_models, list_sessions};
use crate::present::wrap::cut_to_width;
use crate::present::{BOLD, DIM, truncate_line};
use crate::report::printable;
use crate::workspace::Spaces;

/// Maximum number of visible entries.
const MAX_ROWS: usize = 6;
/// Maximum number of files that a completion considers.
const MAX_FILES: usize = 20_000;
/// Maximum number of entries in the list below the editor.
const MAX_ENTRIES: usize = 100;
/// Maximum length of an entry in the list, in characters.
const MAX_ENTRY_CHARS: usize = 200;

/// An entry of the list below the editor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The text that a chosen entry inserts in place of the word at the cursor or of the whole text ([`Replaced`]).
    pub text: String,
    /// A short explanation that is shown beside the text.
    pub note: String,
}

/// The part of the editor's text that a chosen entry replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    Word,
    Text,
}

/// The open list below the editor, with its selected entry.
#[derive(Debug)]
pub struct Overlay {
    entries: Vec<Entry>,
    selected: usize,
    pub replaced: Replaced,
}

impl Overlay {
    /// Opens a list with the first entry selected; `None` if there are no entries.
    pub fn open(entries: Vec<Entry>, replaced: Replaced) -> Option<Self> {
        (!entries.is_empty()).then_some(Self { entries, selected: 0, replaced })
    }

    /// Returns the selected entry; `None` only if the list is empty.
    pub fn selected(&self) -> Option<&Entry> {
        self.entries.get(self.selected)
    }

    pub fn select_last(&mut self) {
        self.selected = self.entries.len() - 1;
    }

    /// Returns true if there is only one entry, which is then the selection.
    pub fn is_single(&self) -> bool {
        self.entries.len() == 1
    }

    pub fn next(&mut self) {
        self.selected = (self.selected + 1) % self.entries.len();
    }

    pub fn previous(&mut self) {
        self.selected = self.selected.checked_sub(1).unwrap_or(self.entries.len() - 1);
    }

    /// Renders at most `max_rows` of the entries, including the selected entry. A row is at most `columns` wide.
    pub fn rows(&self, columns: usize, max_rows: usize) -> Vec<Row> {
        let count = MAX_ROWS.min(max_rows);
        let first = (self.selected + 1).saturating_sub(count);
        let shown = self.entries.iter().enumerate().skip(first).take(count);
        let rows = shown.map(|(n, entry)| {
            let (sign, style) = if n == self.selected { ("›", BOLD) } else { (" ", DIM) };
            let note = if entry.note.is_empty() { String::new() } else { format!("  {}", entry.note) };
            let text = truncate_line(&printable(&format!("{}{note}", entry.text)), MAX_ENTRY_CHARS);
            Row::new(format!("{style}{sign} {}{style:#}", cut_to_width(&text, columns.saturating_sub(3))))
        });
        rows.collect()
    }
}

/// A source of completions for the editor of a chat: commands and their arguments, prompt templates, skills and files.
#[derive(Debug)]
pub struct Completer {
    spaces: Spaces,
}

impl Completer {
    pub fn new(spaces: Spaces) -> Self {
        Self { spaces }
    }

    /// Returns the completions of a word: commands, prompt templates and skills for `/…` at the start of the text,
    /// files for `@…`.
    pub fn entries(&self, word: &str, is_first: bool) -> Vec<Entry> {
        if let Some(typed) = word.strip_prefix('@') {
            let files = self.files();
            return best_matches(files.into_iter().map(|path| (path, String::new())), typed, "@");
        }
        match word.strip_prefix('/') {
            Some(typed) if is_first => {
                let mut names = self.commands();
                // If a name begins with the typed characters, names that only contain the characters are left out.
                if names.iter().any(|(name, _)| name.starts_with(typed)) {
                    names.retain(|(name, _)| name.starts_with(typed));
                }
                best_matches(names, typed, "/")
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// Returns the completions of `word`, an argument of a command. `position` is the number of the argument, from 1.
    pub fn arguments(&self, command: &str, position: usize, word: &str) -> Vec<Entry> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let names = match (command, position) {
            ("help", 1) => {
                let topics = words(&["all", "keys"]);
                self.commands().into_iter().map(|(name, _)| name).chain(topics).collect()
            }
            ("model", 1) => list_models(&self.spaces),
            ("mode", 1) => words(&["read-only", "ask", "auto"]),
            ("export", 1) => words(&["md", "html", "jsonl", "script"]),
            ("exit", 1) => words(&["wait", "detach", "cancel"]),
            ("new", 1) | ("resume", 2) => words(&["wait", "cancel"]),
            ("rewind", 2) => words(&["conversation", "files", "both"]),
            ("resume", 1) => list_sessions(&self.spaces),
            ("why", 1) => {
                let limits = LimitName::ALL.into_iter().map(|name| format!("limit.{name}"));
                words(&["last", "model", "extends"]).into_iter().chain(limits).collect()
            }
            _ => Vec::new(),
        };
        // If a name begins with the typed characters, other names are left out.
        let has_prefix = names.iter().any(|name| name.starts_with(word));
        let names = names.into_iter().filter(|name| !has_prefix || name.starts_with(word));
        best_matches(names.map(|name| (name, String::new())), word, "")
    }

    fn commands(&self) -> Vec<(String, String)> {
        // If the project cannot be read, there are no completions.
        let Ok(world) = self.spaces.open() else { return Vec::new() };
        list_commands(&world).into_iter().map(|command| (command.name, command.description)).collect()
    }

    /// Returns files of the project, at most `MAX_FILES`, without hidden files and files that git ignores.
    fn files(&self) -> Vec<String> {
        let project = &self.spaces.project;
        let walk = ignore::WalkBuilder::new(project).hidden(true).require_git(false).build();
        let files = walk.flatten().filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
        let relative = |path: PathBuf| path.strip_prefix(project).ok()?.to_str().map(str::to_owned);
        files.take(MAX_FILES).filter_map(|entry| relative(entry.into_path())).collect()
    }
}

/// Returns entries for the names that contain the characters of `typed` in the same order, best match first. An entry's
/// text is `sign`, then the name.
fn best_matches(names: impl IntoIterator<Item = (String, String)>, typed: &str, sign: &str) -> Vec<Entry> {
    let scored = names.into_iter().filter_map(|(name, note)| Some((match_score(&name, typed)?, name, note)));
    let mut scored: Vec<_> = scored.collect();
    scored.sort();
    let entry = |(_, name, note)| Entry { text: format!("{sign}{name} "), note };
    scored.into_iter().take(MAX_ENTRIES).map(entry).collect()
}

/// Returns the distance between a name and the typed characters; `None` if the name does not contain them in the same
/// order. The distance grows with the length of the name and with each gap before a matching character, unless the
/// character starts a part of the name.
fn match_score(name: &str, typed: &str) -> Option<usize> {
    let lower = name.to_lowercase();
    let mut score = name.len();
    let mut rest = lower.as_str();
    let mut is_start = true;
    for wanted in typed.to_lowercase().chars() {
        let at = rest.find(wanted)?;
        let before = rest.get(..at)?;
        is_start = (is_start && at == 0) || before.ends_with(['/', '-', '_', '.', ':', ' ']);
        score += if at == 0 || is_start { 0 } else { 10 + at };
        rest = rest.get(at + wanted.len_utf8()..)?;
        is_start = false;
    }
    Some(score)
}

/// Returns the first clauses of a hint, as many as fit into `width` characters. Returns at least the first clause, even
/// if the clause is wider.
pub fn fit_hint(hint: &str, width: usize) -> &str {
    let mut shown = hint;
    while shown.chars().count() > width {
        let Some(end) = shown.rfind([',', ';']) else { break };
        shown = shown.get(..end).unwrap_or(shown);
    }
    shown
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn narrow_hint_ends_with_a_whole_clause() {
        let hint = "Enter sends, /help lists commands and keys, Tab completes";
        assert_eq!(fit_hint(hint, 80), hint);
        assert_eq!(fit_hint(hint, 45), "Enter sends, /help lists commands and keys");
        assert_eq!(fit_hint(hint, 39), "Enter sends");
        assert_eq!(fit_hint("closing the session", 5), "closing the session");
    }

    fn texts(entries: &[Entry]) -> Vec<&str> {
        entries.iter().map(|entry| entry.text.as_str()).collect()
    }

    #[test]
    fn best_match_is_first() {
        let names = ["src/main.rs", "src/lib/mod.rs", "docs/smart.md"].map(|name| (name.to_owned(), String::new()));
        assert_eq!(texts(&best_matches(names.clone(), "main", "@")), ["@src/main.rs "]);
        assert_eq!(texts(&best_matches(names, "sm", "@")).first(), Some(&"@src/main.rs "));
        assert_eq!(match_score("abc", "d"), None);
    }

    #[test]
    fn files_that_git_ignores_are_no_completions() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("src")).unwrap();
        for (path, text) in [(".gitignore", "*.log\n"), ("src/one.rs", ""), ("one.log", "")] {
            std::fs::write(place.path().join(path), text).unwrap();
        }
        let spaces = Spaces { project: place.path().into(), user: None, own: true };
        let completer = Completer::new(spaces);
        assert_eq!(texts(&completer.entries("@one", false)), ["@src/one.rs "]);
        assert_eq!(texts(&completer.entries("/hel", true)), ["/help "]);
        assert_eq!(texts(&completer.entries("/re", true)), ["/retry ", "/reload ", "/resume ", "/rewind "]);
        assert_eq!(texts(&completer.entries("/view", true)), ["/preview "]);
        assert!(completer.entries("/hel", false).is_empty());
        assert_eq!(texts(&completer.arguments("mode", 1, "re")), ["read-only "]);
        assert_eq!(texts(&completer.arguments("rewind", 2, "")).len(), 3);
        assert!(completer.arguments("mode", 2, "").is_empty());
    }

    #[test]
    fn list_shows_the_selection_and_wraps_around() {
        let entries = (0..9).map(|n| Entry { text: format!("e{n}"), note: String::new() }).collect();
        let mut list = Overlay::open(entries, Replaced::Word).unwrap();
        list.previous();
        assert_eq!(list.selected().unwrap().text, "e8");
        let rows = list.rows(40, 6);
        assert_eq!(rows.len(), 6);
        assert!(rows.last().unwrap().text().contains("› e8"));
        list.next();
        assert_eq!(list.selected().unwrap().text, "e0");
        assert!(Overlay::open(Vec::new(), Replaced::Word).is_none());
    }
}
