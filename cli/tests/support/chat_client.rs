//! A client of `rye chat --format json`. Each line in both directions is validated.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::chat_schema::ChatSchema;
use crate::rye::TestProject;

/// Maximum time between two lines that a test waits for.
const LINE_TIMEOUT: Duration = Duration::from_mins(2);

/// A session whose client reads and writes lines.
pub struct ChatClient {
    pub child: Child,
    pub stdin: ChildStdin,
    lines: Receiver<String>,
    /// The lines read so far.
    pub seen: Vec<Value>,
    /// Lines that came before the response to the last message. The next reads return them first: a message is recorded,
    /// and can start its prompt, before its response.
    early: VecDeque<Value>,
}

impl ChatClient {
    /// Starts a session with these arguments and `script.yaml`.
    pub fn start(place: &TestProject, args: &[&str]) -> Self {
        Self::start_with_model(place, &[&["--script", "script.yaml"], args].concat())
    }

    /// Starts a session with these arguments, and the model of its directive.
    pub fn start_with_model(place: &TestProject, args: &[&str]) -> Self {
        let mut client = Self::spawn(place, args);
        client.read_until(|line| line["event"]["type"] == "plan_bound");
        client
    }

    /// Opens a session again, with these arguments and `script.yaml`.
    pub fn reopen(place: &TestProject, args: &[&str]) -> Self {
        Self::spawn(place, &[&["--script", "script.yaml"], args].concat())
    }

    /// Opens a session again, with these arguments and the model of its directive.
    pub fn reopen_with_model(place: &TestProject, args: &[&str]) -> Self {
        Self::spawn(place, args)
    }

    fn spawn(place: &TestProject, args: &[&str]) -> Self {
        let args = [&["chat", "--format", "json"], args].concat();
        let mut child =
            place.command(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        // The thread ends with the output of the session.
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, stdin, lines, seen: Vec::new(), early: VecDeque::new() }
    }

    pub fn write(&mut self, request: &Value) {
        ChatSchema::get().check_request(request);
        writeln!(self.stdin, "{request}").unwrap();
    }

    /// Reads lines up to one that fits.
    pub fn read_until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        while let Some(line) = self.early.pop_front() {
            if fits(&line) {
                return line;
            }
        }
        loop {
            let Some(line) = next_line(&self.lines, &mut self.child) else {
                panic!("the session has ended: {:?}", self.seen.last())
            };
            self.seen.push(line.clone());
            if fits(&line) {
                return line;
            }
        }
    }

    /// Sends a request and returns its response.
    pub fn ask(&mut self, mut request: Value) -> Value {
        request["id"] = json!(self.seen.len());
        self.write(&request);
        self.early.clear();
        let first = self.seen.len();
        let response = self.read_until(|line| line["type"] == "response" && line["id"] == request["id"]);
        if matches!(request["type"].as_str(), Some("prompt" | "steer" | "follow_up" | "next_turn")) {
            self.early.extend(self.seen[first..self.seen.len() - 1].iter().cloned());
        }
        response
    }

    pub fn event(&mut self, name: &str) -> Value {
        self.read_until(|line| line["event"]["type"] == name)
    }

    pub fn end(self) -> Vec<Value> {
        let Self { mut child, stdin, lines, mut seen, .. } = self;
        drop(stdin);
        while let Some(line) = next_line(&lines, &mut child) {
            seen.push(line);
        }
        assert!(child.wait().unwrap().code().is_some());
        seen
    }
}

/// Returns the next line; `None` at the end of the output. Fails if no line arrives.
fn next_line(lines: &Receiver<String>, child: &mut Child) -> Option<Value> {
    let line = match lines.recv_timeout(LINE_TIMEOUT) {
        Ok(line) => serde_json::from_str::<Value>(&line).unwrap(),
        Err(RecvTimeoutError::Disconnected) => return None,
        Err(RecvTimeoutError::Timeout) => {
            child.kill().unwrap();
            panic!("the session wrote nothing for {LINE_TIMEOUT:?}");
        }
    };
    ChatSchema::get().check_output(&line);
    Some(line)
}
