//! Five front ends of a session that perform the steps of a script: the terminal, lines, JSON requests, the Agent Client
//! Protocol, and the library.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use ::rye::{Approvals, CompileRequest, ControlMessage, Delivery, EngineBuilder, ItemId, Project, SessionRequest};
use ::rye::{InputSource, UserInput};
use rye_engine::event::{ChatMode, PromptBounds};
use serde_json::{Value, json};

use crate::acp::{self, AcpClient};
use crate::pty::PtyTerminal;
use crate::rye::TestProject;
use crate::transcripts::transcripts;

/// A step of the script.
#[derive(Clone, Copy)]
pub enum ChatStep {
    /// A prompt, or the call of a template, a skill or a command of the settings.
    Say(&'static str),
    /// A prompt with its highest cost in dollars.
    Bounded(&'static str, &'static str),
    /// A prompt with a capability pattern.
    With(&'static str, &'static str),
    Mode(ChatMode),
    /// A command of the user; true to keep its output from the model.
    Shell(&'static str, bool),
    /// Continues from the state before a prompt, and sends its text again.
    RewindAndSay(u64, &'static str),
    Name(&'static str),
    /// A prompt, and a steering message and a follow-up while its model call runs.
    Steer([&'static str; 3]),
    /// Replaces the conversation with a summary.
    Compact,
}

/// Holds the reply to the model call of [`ChatStep::Steer`].
pub struct ReplyGate {
    pub arrived: Receiver<()>,
    pub release: Sender<()>,
}

/// A front end with an open session.
pub trait FrontEnd {
    fn perform(&mut self, place: &TestProject, step: ChatStep);
    /// Sends a message without waiting for its effect.
    fn send(&mut self, text: &str, delivery: Delivery);
    /// Waits until the front end shows that its messages have been answered.
    fn settle(&mut self) {}
    /// Closes the session. Returns what the front end showed, if it shows text itself.
    fn close(self: Box<Self>) -> Option<String>;
}

/// Returns the text that a user types for a step.
fn typed(step: ChatStep) -> String {
    match step {
        ChatStep::Say(text) => text.to_owned(),
        ChatStep::Bounded(spend, text) => format!("${spend} {text}"),
        ChatStep::With(pattern, text) => format!("/with {pattern} {text}"),
        ChatStep::Mode(ChatMode::ReadOnly) => "/mode read-only".to_owned(),
        ChatStep::Mode(mode) => format!("/mode {} confirm", mode.as_str()),
        ChatStep::Shell(command, false) => format!("!{command}"),
        ChatStep::Shell(command, true) => format!("!!{command}"),
        ChatStep::RewindAndSay(prompt, _) => format!("/fork {prompt}"),
        ChatStep::Name(name) => format!("/name {name}"),
        ChatStep::Compact => "/compact confirm".to_owned(),
        ChatStep::Steer(_) => unreachable!("the messages are sent one by one"),
    }
}

/// Performs the step [`ChatStep::Steer`]: sends the steering message and the follow-up before the model replies.
pub fn steer(front_end: &mut dyn FrontEnd, place: &TestProject, texts: [&str; 3], gate: &ReplyGate) {
    let [prompt, steering, follow_up] = texts;
    front_end.send(prompt, Delivery::Prompt);
    gate.arrived.recv_timeout(Duration::from_mins(2)).unwrap();
    and_wait(place, "user_input", || front_end.send(steering, Delivery::Steer));
    and_wait(place, "user_input", || front_end.send(follow_up, Delivery::FollowUp));
    and_wait(place, "prompt_ended", || gate.release.send(()).unwrap());
    front_end.settle();
}

/// Returns the type of the event, or the hook point, that ends a step.
fn last_event(step: ChatStep) -> &'static str {
    match step {
        // A hook handles the message.
        ChatStep::Say("nothing") => "user_input",
        ChatStep::Say(text) if text.starts_with("/where") => "command_ran",
        // The text of the command is part of the next prompt.
        ChatStep::Say(text) if text.starts_with("/later") => "command_ran",
        ChatStep::Say(_) | ChatStep::Bounded(..) | ChatStep::With(..) | ChatStep::Steer(_) => "prompt_ended",
        ChatStep::Mode(_) => "mail",
        ChatStep::Shell(..) => "shell_ran",
        // A message that arrives earlier is recorded before the hooks.
        ChatStep::RewindAndSay(..) => "thread_continued",
        ChatStep::Name(_) => "named",
        ChatStep::Compact => "compacted",
    }
}

fn count(place: &TestProject, kind: &str) -> usize {
    let is_of_kind = |event: &&Value| event["type"] == kind || event["point"] == kind;
    transcripts(place).iter().flatten().filter(is_of_kind).count()
}

/// Performs an action and waits until its event is recorded.
fn and_wait(place: &TestProject, kind: &str, act: impl FnOnce()) {
    let before = count(place, kind);
    act();
    wait_beyond(place, kind, before, &String::new);
}

/// Waits until a project has more events of a kind than before. A failure prints what is shown.
fn wait_beyond(place: &TestProject, kind: &str, before: usize, shown: &dyn Fn() -> String) {
    let until = Instant::now() + Duration::from_mins(2);
    while count(place, kind) == before {
        assert!(Instant::now() < until, "no event `{kind}`\n{}", shown());
        std::thread::sleep(Duration::from_millis(20));
    }
}

const TALK: [&str; 2] = ["chat", "talk"];

struct TerminalFrontEnd(PtyTerminal);

impl FrontEnd for TerminalFrontEnd {
    fn perform(&mut self, place: &TestProject, step: ChatStep) {
        let (text, before) = (typed(step), count(place, last_event(step)));
        self.0.press(&format!("{text}\r"));
        wait_beyond(place, last_event(step), before, &|| self.0.rows().join("\n"));
        if let ChatStep::RewindAndSay(_, text) = step {
            // The text is back in the editor.
            self.0.wait_until(text, |rows| rows.iter().any(|row| row.starts_with("> ") && row.contains(text)));
            let before = count(place, "prompt_ended");
            self.0.press("\r");
            wait_beyond(place, "prompt_ended", before, &|| self.0.rows().join("\n"));
        }
        self.settle();
    }

    fn send(&mut self, text: &str, delivery: Delivery) {
        // Alt+Enter sends a follow-up.
        let key = if delivery == Delivery::FollowUp { "\x1b\r" } else { "\r" };
        self.0.press(&format!("{text}{key}"));
    }

    fn settle(&mut self) {
        // While a prompt runs, the row below the editor states how to interrupt the prompt.
        self.0.wait_until("the editor without a running prompt", |rows| {
            rows.iter().any(|row| row == ">") && !rows.iter().any(|row| row.contains("Esc to interrupt"))
        });
    }

    fn close(mut self: Box<Self>) -> Option<String> {
        self.0.press("\x04");
        let (code, rows, _) = self.0.end();
        assert_eq!(code, 0, "{}", rows.join("\n"));
        Some(rows.join("\n"))
    }
}

/// A session whose input consists of lines: typed texts or JSON requests.
struct LinesFrontEnd {
    child: std::process::Child,
    stdin: ChildStdin,
    errors: std::thread::JoinHandle<String>,
    is_json: bool,
}

impl LinesFrontEnd {
    fn start(place: &TestProject, is_json: bool) -> Self {
        let format = if is_json { "json" } else { "human" };
        let mut command = place.command(&[&TALK[..], &["--format", format]].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let (mut out, mut errors) = (BufReader::new(child.stdout.take().unwrap()), child.stderr.take().unwrap());
        std::thread::spawn(move || {
            let mut line = String::new();
            while out.read_line(&mut line).is_ok_and(|read| read > 0) {
                line.clear();
            }
        });
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            errors.read_to_string(&mut text).unwrap();
            text
        });
        Self { child, stdin, errors, is_json }
    }

    fn write(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }
}

/// Returns the JSON request of a step.
fn json_request(step: ChatStep) -> Value {
    match step {
        ChatStep::Say(message) => json!({"type": "prompt", "message": message}),
        ChatStep::Bounded(spend, message) => {
            json!({"type": "prompt", "message": message, "spend": spend.parse::<f64>().unwrap()})
        }
        ChatStep::With(pattern, message) => json!({"type": "prompt", "message": message, "with": [pattern]}),
        ChatStep::Mode(mode) => json!({"type": "mode", "mode": mode.as_str(), "confirm": true}),
        ChatStep::Shell(command, excluded) => json!({"type": "bash", "command": command, "excluded": excluded}),
        ChatStep::RewindAndSay(prompt, _) => json!({"type": "rewind", "prompt": prompt}),
        ChatStep::Name(name) => json!({"type": "name", "name": name}),
        ChatStep::Compact => json!({"type": "compact"}),
        ChatStep::Steer(_) => unreachable!("the messages are sent one by one"),
    }
}

impl FrontEnd for LinesFrontEnd {
    fn perform(&mut self, place: &TestProject, step: ChatStep) {
        let line = |step| if self.is_json { json_request(step).to_string() } else { typed(step) };
        let (first, then) = (line(step), if let ChatStep::RewindAndSay(_, text) = step { Some(text) } else { None });
        let then = then.map(|text| line(ChatStep::Say(text)));
        and_wait(place, last_event(step), || self.write(&first));
        if let Some(then) = then {
            and_wait(place, "prompt_ended", || self.write(&then));
        }
    }

    fn send(&mut self, text: &str, delivery: Delivery) {
        let (verb, command) = match delivery {
            Delivery::Steer => ("steer", "/steer "),
            Delivery::FollowUp => ("follow_up", "/follow-up "),
            Delivery::Prompt | Delivery::NextTurn => ("prompt", ""),
        };
        let line =
            if self.is_json { json!({"type": verb, "message": text}).to_string() } else { format!("{command}{text}") };
        self.write(&line);
    }

    fn close(mut self: Box<Self>) -> Option<String> {
        drop(self.stdin);
        assert!(self.child.wait().unwrap().success());
        let errors = self.errors.join().unwrap();
        (!self.is_json).then_some(errors)
    }
}

struct EditorFrontEnd {
    client: AcpClient,
    session: String,
    shown: String,
    /// Prompts that were sent and whose responses were not read.
    sent: Vec<u64>,
}

impl FrontEnd for EditorFrontEnd {
    fn perform(&mut self, place: &TestProject, step: ChatStep) {
        let (client, session, shown) = (&mut self.client, &self.session, &mut self.shown);
        and_wait(place, last_event(step), || {
            if let ChatStep::Mode(mode) = step {
                client.permission = Some("accept");
                client.ok("session/set_mode", json!({"sessionId": session, "modeId": mode.as_str()}));
            } else if let ChatStep::RewindAndSay(prompt, _) = step {
                client.ok("_rye/rewind", json!({"sessionId": session, "prompt": prompt}));
            } else {
                let done = client.prompt(session, &typed(step));
                assert_eq!(done.response["result"]["stopReason"], "end_turn", "{}", done.response);
                shown.extend(done.updates.iter().map(ToString::to_string));
            }
        });
        if let ChatStep::RewindAndSay(_, text) = step {
            and_wait(place, "prompt_ended", || drop(client.prompt(session, text)));
        }
    }

    fn send(&mut self, text: &str, delivery: Delivery) {
        let mut params = acp::prompt(&self.session, text);
        if delivery == Delivery::Steer {
            params["_meta"] = json!({"rye": {"delivery": "steer"}});
        } else if delivery == Delivery::FollowUp {
            params = acp::prompt(&self.session, &format!("/follow-up {text}"));
        }
        self.sent.push(self.client.send("session/prompt", params));
    }

    fn settle(&mut self) {
        for id in std::mem::take(&mut self.sent) {
            let done = self.client.wait(id);
            assert_eq!(done.response["result"]["stopReason"], "end_turn", "{}", done.response);
            self.shown.extend(done.updates.iter().map(ToString::to_string));
        }
    }

    fn close(self: Box<Self>) -> Option<String> {
        self.client.end();
        Some(self.shown)
    }
}

struct LibraryFrontEnd {
    runtime: tokio::runtime::Runtime,
    session: ::rye::Session,
    engine: ::rye::Engine,
}

impl LibraryFrontEnd {
    fn start(place: &TestProject) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let (session, engine) = runtime.block_on(async {
            let project = Project::at(place.project(), Some(place.user()));
            let request = CompileRequest::new(ItemId::parse("talk").unwrap()).with_inputs(serde_json::Map::new());
            let compilation = project.plan(&request.chat()).unwrap();
            let engine = EngineBuilder::new(&project).approvals(Approvals::Ask).open().unwrap();
            (engine.open(SessionRequest::start(compilation)).await.unwrap(), engine)
        });
        Self { runtime, session, engine }
    }

    fn submit(&self, text: &str, bounds: PromptBounds) {
        self.submit_as(text, bounds, Delivery::Prompt);
    }

    fn submit_as(&self, text: &str, bounds: PromptBounds, delivery: Delivery) {
        let input = UserInput { source: InputSource::Rpc, bounds, ..UserInput::text(text) };
        self.runtime.block_on(self.session.submit(input, delivery)).unwrap();
    }
}

impl FrontEnd for LibraryFrontEnd {
    fn perform(&mut self, place: &TestProject, step: ChatStep) {
        and_wait(place, last_event(step), || match step {
            ChatStep::Say(text) => self.submit(text, PromptBounds::default()),
            ChatStep::Bounded(_, text) => {
                self.submit(text, PromptBounds { spend: Some(100_000_000), ..PromptBounds::default() });
            }
            ChatStep::With(pattern, text) => {
                self.submit(text, PromptBounds { with: Some(vec![pattern.to_owned()]), ..PromptBounds::default() });
            }
            ChatStep::Mode(mode) => self.session.send(ControlMessage::Mode { mode }),
            ChatStep::Shell(command, excluded) => self.session.run_command(command, excluded),
            ChatStep::RewindAndSay(prompt, _) => self.session.fork(prompt),
            ChatStep::Name(name) => self.session.name(name),
            ChatStep::Compact => self.session.send(ControlMessage::Compact { focus: None }),
            ChatStep::Steer(_) => unreachable!("the messages are sent one by one"),
        });
        if let ChatStep::RewindAndSay(_, text) = step {
            and_wait(place, "prompt_ended", || self.submit(text, PromptBounds::default()));
        }
    }

    fn send(&mut self, text: &str, delivery: Delivery) {
        self.submit_as(text, PromptBounds::default(), delivery);
    }

    fn close(self: Box<Self>) -> Option<String> {
        self.session.close();
        self.runtime.block_on(self.session.join());
        self.runtime.block_on(self.engine.wait_idle());
        None
    }
}

pub const FRONT_ENDS: [&str; 5] = ["terminal", "lines", "json", "acp", "library"];

/// Starts a front end and waits until its session is ready for a prompt.
pub fn start(name: &str, place: &TestProject) -> Box<dyn FrontEnd> {
    let started = open(name, place);
    let is_ready = |event: &Value| event["type"] == "hook_point" && event["point"] == "thread_started";
    let until = Instant::now() + Duration::from_mins(2);
    while !transcripts(place).iter().flatten().any(is_ready) {
        assert!(Instant::now() < until, "{name} does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    started
}

fn open(name: &str, place: &TestProject) -> Box<dyn FrontEnd> {
    match name {
        "terminal" => {
            let terminal = PtyTerminal::start(place, (140, 40), &TALK, &[]);
            terminal.wait_for("Enter sends");
            Box::new(TerminalFrontEnd(terminal))
        }
        "lines" => Box::new(LinesFrontEnd::start(place, false)),
        "json" => Box::new(LinesFrontEnd::start(place, true)),
        "acp" => {
            let mut client = AcpClient::start_with(place, &["acp", "talk"], json!({}));
            let session = client.new_session();
            Box::new(EditorFrontEnd { client, session, shown: String::new(), sent: Vec::new() })
        }
        _ => Box::new(LibraryFrontEnd::start(place)),
    }
}
