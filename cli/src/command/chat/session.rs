//! The prompts, commands and interruptions of a session.

use std::sync::Arc;

use rye_engine::BoxFuture;
use rye_engine::control::ControlSender;
use rye_engine::event::{ControlMessage, Delivery, Event, EventBody, PromptStatus};
use serde_json::Value;

use super::json::{ChatRequest, ChatResponse};
use super::lines::{Line, LineFault, MAX_LINE_BYTES, PromptLines};
use super::requests::RequestHandler;
use crate::exit::Exit;

/// The built-in commands, each with its summary.
pub const COMMANDS: [(&str, &str); 3] = [
    ("help", "list the commands"),
    ("exit", "close the session; `rye chat -c` opens it again"),
    ("quit", "close the session, like /exit"),
];

/// The source of the input of a session.
pub enum ChatInput {
    Lines(SessionInput),
    /// The terminal sends its own messages.
    Terminal {
        control: ControlSender,
        stops: u32,
    },
}

impl ChatInput {
    /// Takes the next line of the input, if lines are the input. Returns a note for the user.
    pub async fn next(&mut self) -> Option<String> {
        match self {
            Self::Lines(input) => input.next().await,
            Self::Terminal { .. } => std::future::pending().await,
        }
    }

    /// Interrupts the current prompt. Returns false if the process should end without waiting.
    pub fn interrupt(&mut self) -> bool {
        match self {
            Self::Lines(input) => input.interrupt(),
            // The terminal sends keys, so this is a signal of another process.
            Self::Terminal { .. } => self.leave(),
        }
    }

    /// Interrupts the current prompt and closes the session. Returns false if the process should end without waiting.
    pub fn leave(&mut self) -> bool {
        match self {
            Self::Lines(input) => input.leave(),
            Self::Terminal { control, stops } => {
                *stops += 1;
                control.send(ControlMessage::Interrupt);
                control.send(ControlMessage::Close);
                *stops <= 1
            }
        }
    }
}

/// The meaning of a typed line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineAction {
    Help,
    Leave,
    /// A prompt, or the call of a skill, a template or a hook's command.
    Send,
}

/// Returns the meaning of a typed line.
pub fn line_action(text: &str) -> LineAction {
    match command_name(text) {
        Some("exit" | "quit") => LineAction::Leave,
        Some("help") => LineAction::Help,
        Some(_) | None => LineAction::Send,
    }
}

/// The input of a session.
pub struct SessionInput {
    lines: Arc<PromptLines>,
    control: ControlSender,
    /// The input has ended, or the user has left.
    is_closed: bool,
    /// The handler of the lines, if they are JSON requests.
    requests: Option<Arc<RequestHandler>>,
    /// The request that is being answered.
    answering: Option<BoxFuture<'static, ChatResponse>>,
    /// Interruptions since the last line.
    interruptions: u32,
}

impl SessionInput {
    pub fn new(lines: Arc<PromptLines>, control: ControlSender, requests: Option<RequestHandler>) -> Self {
        let requests = requests.map(Arc::new);
        Self { lines, control, is_closed: false, requests, answering: None, interruptions: 0 }
    }

    /// Takes the next line; does not return once the session is closing. Returns a note for the user.
    pub async fn next(&mut self) -> Option<String> {
        if let Some(answering) = &mut self.answering {
            answering.await.print();
            self.answering = None;
        }
        if self.is_closed {
            return std::future::pending().await;
        }
        let line = self.lines.next().await;
        self.interruptions = 0;
        let Some(line) = line else {
            self.close();
            return None;
        };
        let Some(handler) = &self.requests else { return self.take_line(&line) };
        self.answering = answer_line(&line, Arc::clone(handler));
        None
    }

    fn take_line(&mut self, line: &Line) -> Option<String> {
        let note = match line.fault {
            Some(LineFault::TooLong) => return Some(format!("{}: not sent", too_long())),
            Some(LineFault::Repaired) => Some("the line has characters that are not text: replaced".to_owned()),
            None => None,
        };
        if line.text.trim().is_empty() {
            return note;
        }
        match line_action(&line.text) {
            LineAction::Leave => {
                self.close();
                return note;
            }
            LineAction::Help => return Some(help()),
            LineAction::Send => {}
        }
        let text = line.text.clone();
        // A line that a user types during a prompt steers the prompt; the lines of a file are prompts of their own.
        let delivery = if self.lines.is_terminal() { Delivery::Steer } else { Delivery::Prompt };
        self.control.send(ControlMessage::Submit { input: text.into(), delivery });
        note
    }

    /// Interrupts the current prompt; a second interruption in a row also closes the session. Returns false if the
    /// process should end without waiting.
    pub fn interrupt(&mut self) -> bool {
        self.interruptions += 1;
        self.control.send(ControlMessage::Interrupt);
        if self.interruptions > 1 {
            self.close();
        }
        self.interruptions <= 2
    }

    /// Interrupts the current prompt and closes the session. Returns false if the process should end without waiting.
    pub fn leave(&mut self) -> bool {
        self.interruptions += 1;
        self.control.send(ControlMessage::Interrupt);
        self.close();
        self.interruptions <= 2
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.control.send(ControlMessage::Close);
    }
}

/// Returns the response to a line of JSON; `None` for an empty line.
fn answer_line(line: &Line, handler: Arc<RequestHandler>) -> Option<BoxFuture<'static, ChatResponse>> {
    let refused = match line.fault {
        Some(LineFault::TooLong) => Some(too_long()),
        Some(LineFault::Repaired) => Some("the line has invalid UTF-8 or control characters".to_owned()),
        None => None,
    };
    if let Some(reason) = refused {
        return Some(Box::pin(async { ChatResponse::refused(Value::Null, None, reason) }));
    }
    if line.text.trim().is_empty() {
        return None;
    }
    let request = ChatRequest::parse(&line.text);
    Some(Box::pin(async move {
        match request {
            Ok(request) => handler.answer(request).await,
            Err(response) => *response,
        }
    }))
}

fn too_long() -> String {
    format!("the line has more than {} MiB", MAX_LINE_BYTES >> 20)
}

/// Returns the name of a command: the first word is `/name` without a further slash.
fn command_name(text: &str) -> Option<&str> {
    let name = text.strip_prefix('/')?.split_whitespace().next()?;
    let is_name = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b':' | b'_' | b'-'));
    (is_name && !text.starts_with("/ ")).then_some(name)
}

/// Returns the list of commands.
pub fn help() -> String {
    let list: Vec<String> = COMMANDS.iter().map(|(name, about)| format!("/{name}  {about}")).collect();
    let calls = "/NAME ARGS  send the prompt template `.ai/prompts/NAME.md`\n/skill:NAME ARGS  send a skill";
    format!("{}\n{calls}\na line that starts with `//` is sent with one `/`", list.join("\n"))
}

/// Returns the exit code of a session: that of its last prompt.
pub fn exit_of_session(events: &[Event]) -> Exit {
    let status = events
        .iter()
        .rev()
        .find_map(|event| if let EventBody::PromptEnded(ended) = &event.body { Some(ended.status) } else { None });
    match status {
        None | Some(PromptStatus::Done) => Exit::Fine,
        Some(PromptStatus::Interrupted) => Exit::Cancelled,
        Some(PromptStatus::Limit) => Exit::Limit,
        Some(PromptStatus::Error) => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_first_word_after_one_slash() {
        assert_eq!(command_name("/help me"), Some("help"));
        assert_eq!(command_name("/etc/passwd"), None);
        assert_eq!(command_name("//help"), None);
        assert_eq!(command_name(" /help"), None);
        assert_eq!(command_name("/ help"), None);
    }
}
