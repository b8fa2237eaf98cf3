//! Runs a command at a pseudo-terminal, which `script` provides.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::rye::TestProject;

const OUTPUT_TIMEOUT: Duration = Duration::from_mins(1);

/// A command at a terminal, with all of its output so far.
pub struct Terminal {
    process: Child,
    shown: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    /// Starts `rye` with these words at a terminal of this width.
    pub fn start(place: &TestProject, columns: usize, words: &str) -> Self {
        Self::start_line(place, &format!("stty cols {columns} rows 24; exec {} {words}", env!("CARGO_BIN_EXE_rye")))
    }

    /// Starts a line of a shell at a terminal.
    pub fn start_line(place: &TestProject, line: &str) -> Self {
        let mut command = Command::new("script");
        command.args(["-qefc", line, "/dev/null"]).current_dir(place.project());
        command.env("RYE_USER_SPACE", place.user()).env("TERM", "xterm").env_remove("COLUMNS").env_remove("ACCESSIBLE");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut out, sink) = (process.stdout.take().unwrap(), Arc::clone(&shown));
        let reader = std::thread::spawn(move || {
            let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
            while let Ok(n @ 1..) = out.read(&mut chunk) {
                bytes.extend_from_slice(chunk.get(..n).unwrap_or_default());
                *sink.lock().unwrap() = String::from_utf8_lossy(&bytes).into_owned();
            }
        });
        Self { process, shown, reader }
    }

    pub fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    /// Waits until the output contains a text `times` times.
    pub fn wait_for(&self, text: &str, times: usize) {
        let until = Instant::now() + OUTPUT_TIMEOUT;
        while self.shown().matches(text).count() < times {
            assert!(Instant::now() < until, "`{text}` was not shown {times} times:\n{}", self.shown());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn press(&mut self, text: &str) {
        self.process.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Waits for the end; returns the exit code and all output, with line breaks as `\n`.
    pub fn end(mut self) -> (Option<i32>, String) {
        let until = Instant::now() + OUTPUT_TIMEOUT;
        let code = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status.code();
            }
            assert!(Instant::now() < until, "the command does not end:\n{}", self.shown());
            std::thread::sleep(Duration::from_millis(10));
        };
        self.reader.join().unwrap();
        let shown = self.shown.lock().unwrap().replace("\r\n", "\n");
        (code, shown)
    }
}
