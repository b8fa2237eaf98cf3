//! A client of `rye acp`. Each line in both directions is validated against the schema of the protocol, and the agent
//! may use only what the client has announced.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
#![allow(clippy::needless_pass_by_value, reason = "messages are written where they are passed")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::acp_schema::AcpSchema;
use crate::rye::{TestProject, talk_directive};

/// Creates a trusted project with the directive `talk`, which may use a tool, and a script with these steps.
pub fn acp_project(tool: &str, steps: &str) -> TestProject {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &talk_directive(4, tool));
    place.write("script.yaml", &format!("steps: [{steps}]"));
    place.write("out/log", "");
    place.run_ok(&["trust"]);
    place
}

/// Maximum time between two lines of the agent that a test waits for.
pub const LINE_TIMEOUT: Duration = Duration::from_mins(2);

/// A client with a connection to `rye acp`.
pub struct AcpClient {
    pub process: Child,
    pub input: Option<ChildStdin>,
    lines: Receiver<String>,
    pub line_timeout: Duration,
    last: u64,
    /// Methods of the requests without a response, by id.
    sent: BTreeMap<u64, String>,
    /// The option that answers each permission request; `None` leaves it open.
    pub permission: Option<&'static str>,
    /// The content that answers each form.
    pub form: Option<Value>,
    /// The capabilities that the client has announced.
    capabilities: Value,
    pub cwd: String,
}

/// A response, and the messages before it.
pub struct Answered {
    pub response: Value,
    pub updates: Vec<Value>,
}

impl AcpClient {
    /// Starts an agent with the directive `talk` and `script.yaml`.
    pub fn start(place: &TestProject) -> Self {
        Self::start_with(place, &["acp", "talk", "--script", "script.yaml"], json!({}))
    }

    /// Starts an agent for a client with these capabilities.
    pub fn start_with(place: &TestProject, args: &[&str], capabilities: Value) -> Self {
        let mut command = without_ignored_hangup(&place.command(args));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (input, output) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        let (sender, lines) = channel();
        // The thread ends with the output of the agent.
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut client = Self {
            process,
            input,
            lines,
            line_timeout: LINE_TIMEOUT,
            last: 0,
            sent: BTreeMap::new(),
            permission: Some("once"),
            form: None,
            capabilities: capabilities.clone(),
            cwd: place.project().display().to_string(),
        };
        let begun = client.call("initialize", json!({"protocolVersion": 1, "clientCapabilities": capabilities}));
        assert_eq!(begun.response["result"]["protocolVersion"], 1, "{}", begun.response);
        assert_eq!(begun.response["result"]["agentCapabilities"]["loadSession"], true);
        client
    }

    fn write(&mut self, message: &Value, method: Option<&str>) {
        // Requests that a test makes wrong on purpose are not part of the protocol.
        if message.get("method").is_none() || !message["method"].as_str().unwrap().ends_with("/fly") {
            AcpSchema::get().check(message, method);
        }
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{message}").unwrap();
        input.flush().unwrap();
    }

    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        self.sent.insert(self.last, method.to_owned());
        self.write(&json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}), None);
        self.last
    }

    pub fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}), None);
    }

    /// Returns the next message; fails if the agent has ended or writes nothing for too long.
    pub fn read(&mut self) -> Value {
        let line = match self.lines.recv_timeout(self.line_timeout) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => panic!("the agent has ended; open requests: {:?}", self.sent),
            Err(RecvTimeoutError::Timeout) => {
                self.process.kill().unwrap();
                panic!("the agent wrote nothing for {:?}; open requests: {:?}", self.line_timeout, self.sent);
            }
        };
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let answers = if message.get("method").is_none() { message["id"].as_u64() } else { None };
        let method = answers.and_then(|id| self.sent.remove(&id));
        AcpSchema::get().check(&message, method.as_deref());
        self.check_announced(&message);
        message
    }

    /// Fails if the agent uses something that the client has not announced.
    fn check_announced(&self, message: &Value) {
        let Some(method) = message["method"].as_str() else { return };
        let session = &self.capabilities["session"];
        let is_announced = match method {
            "session/request_permission" => true,
            "session/update" => match message["params"]["update"]["sessionUpdate"].as_str().unwrap() {
                "notice" => session["notices"].is_object(),
                "compaction_update" | "compaction_summary_chunk" => session["compaction"].is_object(),
                _ => true,
            },
            "elicitation/create" => self.capabilities["elicitation"]["form"].is_object(),
            _ => false,
        };
        assert!(is_announced, "the client has not announced this: {message}");
    }

    /// Reads until the response to a request, and answers requests of the agent.
    pub fn wait(&mut self, id: u64) -> Answered {
        let mut updates = Vec::new();
        loop {
            let message = self.read();
            if message["id"] == id && message.get("method").is_none() {
                return Answered { response: message, updates };
            }
            let method = message["method"].as_str().map(str::to_owned);
            let result = match method.as_deref() {
                Some("session/request_permission") => self.permission.map(|option| {
                    let offered = message["params"]["options"].as_array().unwrap();
                    let is_offered = offered.iter().any(|offer| offer["optionId"] == option);
                    assert!(is_offered, "`{option}` is not offered: {message}");
                    json!({"outcome": {"outcome": "selected", "optionId": option}})
                }),
                Some("elicitation/create") => {
                    self.form.clone().map(|content| json!({"action": "accept", "content": content}))
                }
                _ => None,
            };
            if let Some(result) = result {
                self.write(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}), method.as_deref());
            }
            updates.push(message);
        }
    }

    /// Answers a request of the agent.
    pub fn answer(&mut self, request: &Value, result: Value) {
        let response = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        self.write(&response, request["method"].as_str());
    }

    pub fn call(&mut self, method: &str, params: Value) -> Answered {
        let id = self.send(method, params);
        self.wait(id)
    }

    /// Makes a request that must fail, and returns the error.
    pub fn fail(&mut self, method: &str, params: Value) -> Value {
        let answered = self.call(method, params);
        let error = answered.response["error"].clone();
        assert!(error.is_object(), "{}", answered.response);
        error
    }

    /// Makes a request that must succeed, and returns the result.
    pub fn ok(&mut self, method: &str, params: Value) -> Value {
        let answered = self.call(method, params);
        assert!(answered.response.get("error").is_none(), "{method}: {}", answered.response);
        answered.response["result"].clone()
    }

    /// Opens a session and returns the result of the request.
    pub fn open_session(&mut self) -> Value {
        let params = json!({"cwd": self.cwd, "mcpServers": []});
        self.ok("session/new", params)
    }

    pub fn new_session(&mut self) -> String {
        self.open_session()["sessionId"].as_str().unwrap().to_owned()
    }

    pub fn prompt(&mut self, session: &str, text: &str) -> Answered {
        self.call("session/prompt", prompt(session, text))
    }

    /// Ends the input and waits for the end of the agent.
    pub fn end(mut self) {
        self.input = None;
        let status = wait_for_exit(&mut self.process, self.line_timeout);
        assert!(status.success(), "{status}");
    }
}

/// Returns the command with the default action of SIGHUP. If the tests run under `nohup`, the program would ignore the
/// signal.
fn without_ignored_hangup(ready: &Command) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(ready.get_program()).args(ready.get_args());
    if let Some(folder) = ready.get_current_dir() {
        command.current_dir(folder);
    }
    for (name, value) in ready.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Waits for the end of an agent; kills it and fails if it takes too long.
pub fn wait_for_exit(process: &mut Child, timeout: Duration) -> ExitStatus {
    let until = Instant::now() + timeout;
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > until {
            process.kill().unwrap();
            panic!("the agent does not end within {timeout:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn prompt(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

/// Returns the updates of a kind.
pub fn updates<'a>(answered: &'a Answered, kind: &str) -> Vec<&'a Value> {
    let all = answered.updates.iter().map(|message| &message["params"]["update"]);
    all.filter(|update| update["sessionUpdate"] == kind).collect()
}

/// Returns the text of the updates of a kind.
pub fn text(answered: &Answered, kind: &str) -> String {
    updates(answered, kind).iter().map(|update| update["content"]["text"].as_str().unwrap()).collect()
}

/// Returns the titles of the permission requests.
pub fn asked(answered: &Answered) -> Vec<&str> {
    let requests = answered.updates.iter().filter(|message| message["method"] == "session/request_permission");
    requests.map(|message| message["params"]["toolCall"]["title"].as_str().unwrap()).collect()
}
