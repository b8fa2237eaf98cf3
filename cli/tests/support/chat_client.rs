//! A client of `rye chat --format json`. Each line in both directions is validated.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::chat_schema::ChatSchema;
use crate::rye::TestProject;

/// A session whose client reads and writes lines.
pub struct ChatClient {
    pub child: Child,
    pub stdin: ChildStdin,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    /// The lines read so far.
    pub seen: Vec<Value>,
}

impl ChatClient {
    /// Starts a session with these arguments and `script.yaml`.
    pub fn start(place: &TestProject, args: &[&str]) -> Self {
        let args = [&["chat", "--format", "json", "--script", "script.yaml"], args].concat();
        let mut child =
            place.command(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut client = Self { child, stdin, lines: BufReader::new(stdout).lines(), seen: Vec::new() };
        client.read_until(|line| line["event"]["type"] == "plan_bound");
        client
    }

    pub fn write(&mut self, request: &Value) {
        ChatSchema::get().check_request(request);
        writeln!(self.stdin, "{request}").unwrap();
    }

    /// Reads lines up to one that fits.
    pub fn read_until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line: Value = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
            ChatSchema::get().check_output(&line);
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
        self.read_until(|line| line["type"] == "response" && line["id"] == request["id"])
    }

    pub fn event(&mut self, name: &str) -> Value {
        self.read_until(|line| line["event"]["type"] == name)
    }

    pub fn end(mut self) -> Vec<Value> {
        drop(self.stdin);
        for line in self.lines {
            let line = serde_json::from_str(&line.unwrap()).unwrap();
            ChatSchema::get().check_output(&line);
            self.seen.push(line);
        }
        assert!(self.child.wait().unwrap().code().is_some());
        self.seen
    }
}
