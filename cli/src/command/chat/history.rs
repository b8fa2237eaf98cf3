//! The history of prompts of a project, and the draft of a session: small files below `.ai/state/chat`.

use std::path::{Path, PathBuf};

use rye_engine::rooted_dir::RootedDir;

/// Folder of the files, relative to the project.
const FOLDER: &str = ".ai/state/chat";
/// Maximum number of prompts in the history.
const MAX_PROMPTS: usize = 1000;
/// Maximum size of a file, in bytes. A longer history loses its oldest prompts.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The prompts of a project, oldest first. The file has a JSON string on each line.
#[derive(Debug, Default)]
pub struct PromptHistory {
    prompts: Vec<String>,
    project: PathBuf,
    /// The index of the prompt in the editor; the number of prompts if the editor shows the text being written.
    at: usize,
    /// The text being written, while the editor shows an earlier prompt.
    unsent: String,
}

impl PromptHistory {
    /// Reads the history of a project. An unreadable history counts as empty.
    pub fn read(project: &Path) -> Self {
        let text = read_file(project, "history.jsonl").unwrap_or_default();
        let prompts: Vec<String> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Self { at: prompts.len(), prompts, project: project.to_path_buf(), unsent: String::new() }
    }

    /// Adds a prompt, unless it repeats the last one, and writes the file.
    pub fn add(&mut self, prompt: &str) {
        if !prompt.trim().is_empty() && self.prompts.last().is_none_or(|last| last != prompt) {
            self.prompts.push(prompt.to_owned());
            let old = self.prompts.len().saturating_sub(MAX_PROMPTS);
            self.prompts.drain(..old);
            self.write();
        }
        self.at = self.prompts.len();
        self.unsent.clear();
    }

    fn write(&self) {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        for prompt in self.prompts.iter().rev() {
            let line = serde_json::Value::from(prompt.as_str()).to_string();
            bytes += line.len() as u64 + 1;
            if bytes > MAX_FILE_BYTES {
                break;
            }
            lines.push(line);
        }
        lines.reverse();
        write_file(&self.project, "history.jsonl", &format!("{}\n", lines.join("\n")));
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

    /// Returns the prompt after the shown one; after the last one, the text that was being written; `None` if the
    /// editor shows this text already.
    pub fn following(&mut self) -> Option<String> {
        if self.at >= self.prompts.len() {
            return None;
        }
        self.at += 1;
        Some(self.prompts.get(self.at).cloned().unwrap_or_else(|| std::mem::take(&mut self.unsent)))
    }

    /// Returns the prompts that contain a text, newest first, each once.
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
    project: PathBuf,
    name: String,
}

impl Draft {
    pub fn of_session(project: &Path, thread: &str) -> Self {
        Self { project: project.to_path_buf(), name: format!("{}.draft", thread.replace('/', "~")) }
    }

    pub fn read(&self) -> Option<String> {
        read_file(&self.project, &self.name).filter(|text| !text.is_empty())
    }

    /// Writes the draft; removes the file if there is no text.
    pub fn write(&self, text: &str) {
        if text.is_empty() {
            if let Ok(root) = RootedDir::open(&self.project) {
                // The error is ignored, because the file is missing if no draft was written.
                root.remove(&Path::new(FOLDER).join(&self.name)).ok();
            }
        } else {
            write_file(&self.project, &self.name, text);
        }
    }
}

fn read_file(project: &Path, name: &str) -> Option<String> {
    let root = RootedDir::open(project).ok()?;
    let bytes = root.read(&Path::new(FOLDER).join(name), MAX_FILE_BYTES).ok()??;
    String::from_utf8(bytes).ok()
}

/// Writes a file. If the disk is full, the history is lost and the session continues.
fn write_file(project: &Path, name: &str, text: &str) {
    let written =
        RootedDir::open(project).and_then(|root| root.replace(&Path::new(FOLDER).join(name), text.as_bytes()));
    written.ok();
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn history_survives_and_returns_to_the_unsent_text() {
        let place = tempfile::tempdir().unwrap();
        let mut history = PromptHistory::read(place.path());
        assert_eq!(history.previous("x"), None);
        history.add("one");
        history.add("two\nlines");
        history.add("two\nlines");
        let mut history = PromptHistory::read(place.path());
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
        let draft = Draft::of_session(place.path(), "rye/agent/chat-1");
        assert_eq!(draft.read(), None);
        draft.write("half a thought");
        assert_eq!(Draft::of_session(place.path(), "rye/agent/chat-1").read().as_deref(), Some("half a thought"));
        draft.write("");
        assert_eq!(draft.read(), None);
    }

    #[test]
    fn history_does_not_follow_a_link_out_of_the_project() {
        let (place, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(place.path().join(".ai")).unwrap();
        std::os::unix::fs::symlink(other.path(), place.path().join(".ai/state")).unwrap();
        PromptHistory::read(place.path()).add("secret");
        assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0);
    }
}
