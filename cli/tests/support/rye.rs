//! Runs the `rye` binary in a temporary project, for the tests of commands.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

/// A temporary folder with `project/` and an empty user space.
pub struct TestProject {
    folder: tempfile::TempDir,
    is_own: bool,
    /// True if files were written since the last `rye trust`.
    is_changed: AtomicBool,
}

/// The result of a process.
pub struct ProcessResult {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Returns the text of the directive `talk`, with a limit of `turns` turns and a grant of one tool.
pub fn talk_directive(turns: u32, tool: &str) -> String {
    format!(
        "# Talk\n\n```xml\n<directive name=\"talk\" version=\"1.0.0\">\n  <metadata>\n    \
         <description>Talk.</description>\n    <model provider=\"scripted\" tier=\"fast\"/>\n    \
         <limits turns=\"{turns}\" spend=\"0.50\"/>\n    <permissions><execute>{tool}</execute></permissions>\n  \
         </metadata>\n</directive>\n```\n\nAnswer briefly.\n"
    )
}

impl TestProject {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("user/.ai")).unwrap();
        std::fs::create_dir(folder.path().join("project")).unwrap();
        Self { folder, is_own: false, is_changed: AtomicBool::new(true) }
    }

    /// Creates a project like [`Self::new`] that the user wrote: the project is trusted before each command that starts
    /// a thread.
    pub fn own() -> Self {
        Self { is_own: true, ..Self::new() }
    }

    /// Returns the project as if it were cloned from elsewhere: the test has to trust it explicitly.
    pub fn cloned(self) -> Self {
        Self { is_own: false, ..self }
    }

    /// Creates a project from an example.
    pub fn example(name: &str) -> Self {
        let place = Self::new();
        place.run_ok(&["init", "--example", name]);
        place
    }

    pub fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    /// Returns the user space: the folder that contains its `.ai/`.
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

    /// Returns a `rye` command in the project, isolated from the machine's user space.
    pub fn command(&self, args: &[&str]) -> Command {
        let starts = matches!(args, ["run" | "chat", ..] | ["threads", "approve", ..] | ["mcp", "serve", ..]);
        if self.is_own && starts && self.is_changed.swap(false, Ordering::SeqCst) {
            let trusted = ProcessResult::from(self.bare(&["trust"]).output().unwrap());
            assert_eq!(trusted.code, Some(0), "{}", trusted.stderr);
        }
        // A signature changes a file, and the keys decide which files compile, so trust may be needed again.
        if matches!(args, ["sign" | "keys", ..]) {
            self.is_changed.store(true, Ordering::SeqCst);
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
            "RYE_PROJECT",
            "RYE_FORMAT",
            "RYE_COLOR",
            "RYE_MODEL",
            "RYE_UNATTENDED",
            "RYE_LOG",
        ] {
            command.env_remove(name);
        }
        command
    }

    pub fn rye(&self, args: &[&str]) -> ProcessResult {
        ProcessResult::from(self.command(args).output().unwrap())
    }

    /// Runs a command that must succeed, and returns its stdout.
    pub fn run_ok(&self, args: &[&str]) -> String {
        let done = self.rye(args);
        assert_eq!(done.code, Some(0), "{args:?}\n{}\n{}", done.stdout, done.stderr);
        done.stdout
    }

    /// Runs a command and returns its exit code and the JSON of its last stdout line.
    pub fn json(&self, args: &[&str]) -> (Option<i32>, Value) {
        let done = self.rye(&[args, &["--format", "json"]].concat());
        let last = done.stdout.lines().last().unwrap_or_default();
        let value = serde_json::from_str(last);
        (done.code, value.unwrap_or_else(|_| panic!("{args:?}\n{}\n{}", done.stdout, done.stderr)))
    }

    /// Returns the lines of a thread's transcript; fails if their numbers have a gap or a duplicate.
    pub fn transcript(&self, thread: &str) -> Vec<Value> {
        let text = self.run_ok(&["threads", "transcript", thread, "--json"]);
        let record: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for (n, line) in record.iter().enumerate() {
            assert_eq!(line["seq"], n, "{thread}");
        }
        record
    }
}

impl From<Output> for ProcessResult {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// Returns the paths of all files below a folder.
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
