//! MCP clients of `rye mcp serve`, on standard streams and over HTTP, and the project that the server serves.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::rye::TestProject;

/// Maximum time that a test waits for a message.
const MESSAGE_TIMEOUT: Duration = Duration::from_mins(1);
/// The time that a slow call takes if nothing ends it, far above the bounds of the tests.
pub const SLOW_CALL: Duration = Duration::from_mins(10);
/// Maximum size of a message, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// A project with the directive `slow`, whose model takes [`SLOW_CALL`], and the directive `face`, which offers bash.
pub fn place() -> TestProject {
    let place = TestProject::own();
    place.write(
        ".ai/directives/slow.md",
        "# Slow\n\n```xml\n<directive name=\"slow\" version=\"1.0.0\">\n<metadata>\n<description>Waits.</description>\
         <model provider=\"scripted\" tier=\"fast\"/><nudge>never</nudge></metadata>\n</directive>\n```\n\nWait.\n",
    );
    place.write(
        ".ai/directives/face.md",
        "# Face\n\n```xml\n<directive name=\"face\" version=\"1.0.0\">\n<metadata>\n<permissions><execute><tool>rye.bash.*</tool>\
         <tool>rye.file-system.read</tool></execute><acknowledge risk=\"unrestricted\">a test</acknowledge></permissions>\
         <nudge>never</nudge></metadata>\n</directive>\n```\n\nServe.\n",
    );
    place.write("script.yaml", &format!("steps:\n  - {{ delay_ms: {}, text: Done. }}\n", SLOW_CALL.as_millis()));
    place.write("note.txt", "the note\n");
    place
}

pub fn initialize_params(capabilities: &Value) -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}})
}

pub fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// A client on standard streams, with a server process of its own.
pub struct McpClient {
    pub child: Child,
    to: Option<ChildStdin>,
    from: mpsc::Receiver<Value>,
    last_id: u64,
    /// Messages that were not waited for, in the order of arrival.
    pub others: Vec<Value>,
}

impl McpClient {
    pub fn new(place: &TestProject, args: &[&str], capabilities: &Value) -> Self {
        let mut client = Self::spawn(place, args);
        client.shake_hands(capabilities);
        client
    }

    /// Sends these messages before the handshake.
    pub fn after(place: &TestProject, early: &[Value]) -> Self {
        let mut client = Self::spawn(place, &[]);
        for message in early {
            client.send(message);
        }
        client.shake_hands(&json!({}));
        client
    }

    fn shake_hands(&mut self, capabilities: &Value) {
        self.ask("initialize", &initialize_params(capabilities));
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    fn spawn(place: &TestProject, args: &[&str]) -> Self {
        let mut child = place
            .command(&[&["mcp", "serve"], args].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let to = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, from) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        Self { child, to, from, last_id: 0, others: Vec::new() }
    }

    pub fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string());
    }

    pub fn send_text(&mut self, line: &str) {
        self.to.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Sends a request without waiting for its response; returns its id.
    pub fn start(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        self.send(&request(self.last_id, method, params));
        self.last_id
    }

    /// Waits for the response with this id; stores other messages.
    pub fn response(&mut self, id: &Value) -> Value {
        if let Some(known) = self.others.iter().position(|message| message["id"] == *id && message["method"].is_null())
        {
            return self.others.remove(known);
        }
        loop {
            let message = self.from.recv_timeout(MESSAGE_TIMEOUT).unwrap();
            if message["id"] == *id && message["method"].is_null() {
                return message;
            }
            self.others.push(message);
        }
    }

    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.start(method, params);
        self.response(&json!(id))
    }

    /// Waits until a task is no longer working, and returns its state.
    pub fn settled(&mut self, task: &str) -> Value {
        for _ in 0..400 {
            let task = self.ask("tasks/get", &json!({"taskId": task}))["result"].clone();
            if task["status"] != "working" {
                return task;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the task never ends");
    }

    /// Closes the client's side; returns the exit status of the server and the time until the server ended.
    pub fn close(mut self) -> (ExitStatus, Duration) {
        self.to = None;
        let closed = Instant::now();
        (self.child.wait().unwrap(), closed.elapsed())
    }

    /// Sends a request and closes the client's side at once; returns the response.
    pub fn ask_and_close(mut self, method: &str, params: &Value) -> Value {
        let id = self.start(method, params);
        self.to = None;
        let response = self.response(&json!(id));
        assert!(self.child.wait().unwrap().success());
        response
    }

    /// Sends a request as the last line of the input, without a line break; returns its response.
    pub fn ask_with_last_line(mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let line = request(self.last_id, method, params).to_string();
        self.to.take().unwrap().write_all(line.as_bytes()).unwrap();
        let response = self.response(&json!(self.last_id));
        assert!(self.child.wait().unwrap().success());
        response
    }

    pub fn leave(self) {
        assert!(self.close().0.success());
    }
}

/// `rye mcp serve --http` on a free port.
pub struct HttpServer {
    pub child: Child,
    pub address: String,
    /// The header with the token, if the server printed one.
    pub authorization: Option<String>,
}

impl HttpServer {
    pub fn new(place: &TestProject, args: &[&str], token: Option<&str>) -> Self {
        let mut command = place.command(&[&["mcp", "serve", "--http", "127.0.0.1:0"], args].concat());
        if let Some(token) = token {
            command.env("RYE_MCP_TOKEN", token);
        }
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.find(|line| line.starts_with("http://")).unwrap();
        let authorization =
            token.is_none().then(|| lines.next().unwrap().strip_prefix("Authorization: ").unwrap().to_owned());
        std::thread::spawn(move || lines.for_each(drop));
        let address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        Self { child, address, authorization }
    }

    /// Sends a request with exactly these headers; returns status line, headers and body up to the first event with a
    /// response.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(MESSAGE_TIMEOUT)).unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        let usual = [
            ("host", self.address.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        for (name, value) in usual.iter().filter(|(usual, _)| headers.iter().all(|(name, _)| name != usual)) {
            head.extend([format!("{name}: {value}\r\n")]);
        }
        for (name, value) in headers {
            head.extend([format!("{name}: {value}\r\n")]);
        }
        head.extend([format!("content-length: {}\r\n\r\n", body.len())]);
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses the message may not read all of it.
        stream.write_all(body).ok();
        let mut answer = Vec::new();
        let mut chunk = [0_u8; 4096];
        while let Ok(n @ 1..) = stream.read(&mut chunk) {
            answer.extend_from_slice(&chunk[..n]);
            if event(&String::from_utf8_lossy(&answer)).is_some() {
                break;
            }
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Opens a session.
    pub fn session(&self) -> HttpSession<'_> {
        let hello = request(1, "initialize", &initialize_params(&json!({}))).to_string();
        let answer = self.authorized("POST", &[], hello.as_bytes());
        let id = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        let id = id.unwrap_or_else(|| panic!("{answer}")).trim().to_owned();
        let session = HttpSession { server: self, id };
        session.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        session
    }

    /// Sends a request with the printed token.
    pub fn authorized(&self, method: &str, headers: &[(&str, &str)], body: &[u8]) -> String {
        let token = self.authorization.as_deref().unwrap();
        self.send(method, "/mcp", &[&[("authorization", token)], headers].concat(), body)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A session over HTTP.
pub struct HttpSession<'s> {
    server: &'s HttpServer,
    pub id: String,
}

impl HttpSession<'_> {
    pub fn post(&self, message: &Value) -> String {
        self.server.authorized("POST", &[("mcp-session-id", &self.id)], message.to_string().as_bytes())
    }

    pub fn ask(&self, id: u64, method: &str, params: &Value) -> Value {
        let answer = self.post(&request(id, method, params));
        event(&answer).unwrap_or_else(|| panic!("{answer}"))
    }
}

/// Returns the first response in a body: an event with `result` or `error`.
fn event(answer: &str) -> Option<Value> {
    let events = answer.lines().filter_map(|line| line.strip_prefix("data: "));
    let mut messages = events.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    messages.find(|message| message.get("result").or_else(|| message.get("error")).is_some())
}
