//! The real binary in a folder of its own: what every test of a command needs, and no test.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

/// A folder that is removed with this, holding `project/` and an empty user space.
pub struct Place {
    folder: tempfile::TempDir,
    is_own: bool,
    /// Files were written since `rye trust` was run.
    is_changed: AtomicBool,
}

/// A process that ended.
pub struct Done {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("user/.ai")).unwrap();
        std::fs::create_dir(folder.path().join("project")).unwrap();
        Self { folder, is_own: false, is_changed: AtomicBool::new(true) }
    }

    /// The same for a project that its user wrote: what starts a thread is preceded by `rye trust`.
    pub fn own() -> Self {
        Self { is_own: true, ..Self::new() }
    }

    /// The same project as a clone, which is trusted only where a test says so.
    pub fn cloned(self) -> Self {
        Self { is_own: false, ..self }
    }

    /// With what `rye init --example` writes.
    pub fn example(name: &str) -> Self {
        let place = Self::new();
        place.fine(&["init", "--example", name]);
        place
    }

    pub fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    /// The user's space, the folder that holds its `.ai/`.
    pub fn user(&self) -> PathBuf {
        self.folder.path().join("user")
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.project().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self.is_changed.store(true, Ordering::SeqCst);
    }

    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.project().join(path)).unwrap()
    }

    /// `rye` in the project, with nothing of this machine's user in it.
    pub fn command(&self, args: &[&str]) -> Command {
        let starts = matches!(args, ["run", ..] | ["threads", "approve", ..] | ["mcp", "serve", ..]);
        if self.is_own && starts && self.is_changed.swap(false, Ordering::SeqCst) {
            let trusted = Done::from(self.bare(&["trust"]).output().unwrap());
            assert_eq!(trusted.code, Some(0), "{}", trusted.stderr);
        }
        self.bare(args)
    }

    fn bare(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rye"));
        command.args(args).current_dir(self.project()).stdin(Stdio::null());
        command.env("RYE_USER_SPACE", self.folder.path().join("user"));
        for name in [
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_BASE_URL",
            "OPENAI_API_KEY",
            "OPENAI_BASE_URL",
            "GEMINI_API_KEY",
            "GEMINI_BASE_URL",
            "COLUMNS",
        ] {
            command.env_remove(name);
        }
        command
    }

    pub fn rye(&self, args: &[&str]) -> Done {
        Done::from(self.command(args).output().unwrap())
    }

    /// A call that must succeed; answers its stdout.
    pub fn fine(&self, args: &[&str]) -> String {
        let done = self.rye(args);
        assert_eq!(done.code, Some(0), "{args:?}\n{}\n{}", done.stdout, done.stderr);
        done.stdout
    }

    /// A call whose last line of stdout is JSON, with its exit code.
    pub fn json(&self, args: &[&str]) -> (Option<i32>, Value) {
        let done = self.rye(&[args, &["--format", "json"]].concat());
        let last = done.stdout.lines().last().unwrap_or_default();
        let value = serde_json::from_str(last);
        (done.code, value.unwrap_or_else(|_| panic!("{args:?}\n{}\n{}", done.stdout, done.stderr)))
    }

    /// The lines of a thread's transcript, which leave out no number and repeat none.
    pub fn record(&self, thread: &str) -> Vec<Value> {
        let text = self.fine(&["threads", "transcript", thread, "--json"]);
        let record: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for (n, line) in record.iter().enumerate() {
            assert_eq!(line["seq"], n, "{thread}");
        }
        record
    }
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// Every file below a folder, by path.
pub fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(folder).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}
