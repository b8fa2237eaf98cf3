//! The prompts, commands and interruptions of a session.

use std::sync::Arc;

use rye_engine::BoxFuture;
use rye_engine::control::ControlSender;
use rye_engine::event::{ControlMessage, Delivery, Event, EventBody, PromptStatus, UserInput};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::cache_guard::CacheWarning;
use super::commands::{CHANGING_COMMANDS, TypedText, response_note};
use super::compaction::previewed_compaction;
use super::inquiry::Inquiry;
use super::json::{ChatRequest, ChatResponse, ChatVerb};
use super::leaving::{LeftChildren, children_question};
use super::lines::{Line, LineFault, MAX_LINE_BYTES, PromptLines};
use super::next_session::NextSession;
use super::requests::RequestHandler;
use super::unsent_lines::UnsentLines;
use crate::exit::Exit;
use crate::present::truncate_line;
use crate::report::printable;

/// The answers to the question after the preview of a compaction.
const COMPACT_ANSWERS: &str = "1: compact, 2: cancel; type the number";

/// Maximum characters of a line that a note about an unsent line prints.
const MAX_UNSENT_CHARS: usize = 200;

/// The input of a chat: lines of stdin, or the keys of a terminal.
pub enum ChatInput {
    Lines(Box<SessionInput>),
    /// The keys of a terminal. `ChatTerminal` handles the keys and sends the control messages; [`ChatInput::next`]
    /// handles no key.
    Terminal {
        control: ControlSender,
        stops: u32,
    },
}

impl ChatInput {
    /// Waits for the next line of stdin and handles the line. Returns a note for the user, if there is one. For
    /// [`ChatInput::Terminal`], this function never returns.
    pub async fn next(&mut self) -> Option<String> {
        match self {
            // A note can contain text of a file (such as the description of a skill), so control characters are
            // replaced.
            Self::Lines(input) => input.next().await.map(|note| printable(&note)),
            Self::Terminal { .. } => std::future::pending().await,
        }
    }

    /// Waits until the client has read the last response to a request.
    pub async fn wait_printed(&mut self) {
        if let Self::Lines(input) = self {
            input.wait_printed().await;
        }
    }

    /// Returns a note for each typed line that a session had not handled when it ended. The list is empty for
    /// [`ChatInput::Terminal`], because a terminal returns such texts to the editor.
    pub async fn unsent_notes(&self) -> Vec<String> {
        let Self::Lines(input) = self else { return Vec::new() };
        let note = |line: String| printable(&format!("not sent: {}", truncate_line(&line, MAX_UNSENT_CHARS)));
        input.unsent_lines().await.into_iter().map(note).collect()
    }

    /// Returns true if no prompt or command runs or waits.
    pub fn is_idle(&self) -> bool {
        let control = match self {
            Self::Lines(input) => &input.control,
            Self::Terminal { control, .. } => control,
        };
        control.live_state().is_some_and(|live| live.state.is_settled_chat())
    }

    /// Returns the note to print before [`Self::interrupt`] handles a SIGINT. The note states the effect of that call.
    pub fn interruption_note(&self) -> &'static str {
        match self {
            Self::Terminal { .. } => "interrupted: the session closes",
            Self::Lines(_) if self.is_idle() => "Ctrl+C again to leave",
            Self::Lines(_) => "interrupted; Ctrl+C again to leave",
        }
    }

    /// Interrupts the current prompt. For [`ChatInput::Terminal`], or at the second interruption in a row, also closes
    /// the session. Returns false after repeated interruptions: the process should then end without waiting for the end
    /// of the session.
    pub fn interrupt(&mut self) -> bool {
        match self {
            Self::Lines(input) => input.interrupt(),
            // In raw mode, Ctrl+C arrives as a key, so this interruption is a signal from another process.
            Self::Terminal { .. } => self.leave(),
        }
    }

    /// Interrupts the current prompt and closes the session. Returns false after repeated interruptions: the process
    /// should then end without waiting for the end of the session.
    pub fn leave(&mut self) -> bool {
        match self {
            Self::Lines(input) => input.leave(),
            Self::Terminal { control, stops } => {
                *stops += 1;
                control.send(ControlMessage::Retract { input: None });
                control.send(ControlMessage::Interrupt);
                control.send(ControlMessage::Close);
                *stops <= 1
            }
        }
    }
}

/// Prints a response on a separate OS thread, because printing blocks while the client does not read. The returned
/// receiver completes when the response is printed.
fn print_in_background(response: ChatResponse) -> oneshot::Receiver<()> {
    let (printed, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        response.print();
        printed.send(()).ok();
    });
    receiver
}

/// The input of a session: reads each line, and handles the line as a message or as a JSON request.
pub struct SessionInput {
    lines: Arc<PromptLines>,
    control: ControlSender,
    /// The line that was read and is handled next.
    read: Option<Line>,
    /// True if the input has ended or the user has left.
    is_closed: bool,
    requests: Arc<RequestHandler>,
    /// True if the lines are JSON requests.
    is_json: bool,
    /// The future that answers the current request; `None` if no request is being answered.
    answering: Option<BoxFuture<'static, ChatResponse>>,
    /// A receiver that completes when the last response is printed. The session handles signals during this time, even
    /// if the client does not read the response.
    printing: Option<oneshot::Receiver<()>>,
    /// The id of the last message that was sent.
    last_sent: Option<String>,
    /// Number of interruptions by the user since the last typed line.
    interruptions: u32,
    /// The question that the next line answers.
    question: Option<LineQuestion>,
    unsent: UnsentLines,
    /// A compaction whose preview is being printed. It is requested before the next line is read.
    announced: Option<ControlMessage>,
}

/// A question of a session whose lines a user types.
enum LineQuestion {
    /// The question whether to send a message although cached tokens are lost.
    Cache(UserInput, CacheWarning),
    /// The question whether to compact the conversation. Holds the topic that the summary covers in detail.
    Compact(Option<String>),
}

impl SessionInput {
    pub fn new(lines: Arc<PromptLines>, requests: RequestHandler, is_json: bool) -> Self {
        let (control, requests) = (requests.control.clone(), Arc::new(requests));
        Self {
            lines,
            control,
            read: None,
            is_closed: false,
            requests,
            is_json,
            answering: None,
            printing: None,
            last_sent: None,
            interruptions: 0,
            question: None,
            unsent: UnsentLines::default(),
            announced: None,
        }
    }

    /// Handles the next line, and returns a note for the user, if there is one. Does not return once the session is
    /// closing.
    pub async fn next(&mut self) -> Option<String> {
        if let Some(announced) = self.announced.take() {
            self.last_sent = self.control.send_with_id(announced);
        }
        self.wait_printed().await;
        if let Some(answering) = &mut self.answering {
            let response = answering.await;
            self.answering = None;
            let sent = response.data.as_ref().and_then(|data| data.get("input")?.as_str()).map(str::to_owned);
            self.unsent.finish(sent.clone(), &self.control);
            if response.command == Some("prompt") && !self.is_json {
                self.last_sent = sent;
            }
            // If a next session is chosen, the next session reads the remaining lines.
            self.is_closed |= self.requests.next.as_ref().is_some_and(NextSession::is_chosen);
            if self.is_json {
                self.printing = Some(print_in_background(response));
            } else if let Some((focus, text)) = response.data.as_ref().and_then(previewed_compaction) {
                if !self.lines.is_terminal() {
                    // The lines of a file answer no question.
                    self.announced = Some(ControlMessage::Compact { focus });
                    return Some(text);
                }
                self.question = Some(LineQuestion::Compact(focus));
                return Some(format!("{text}\n{COMPACT_ANSWERS}"));
            } else {
                return response_note(&response);
            }
        }
        if self.is_closed {
            self.lines.skip_to_end().await;
            return std::future::pending().await;
        }
        if self.read.is_none() {
            self.read = self.lines.next().await;
            self.interruptions = 0;
        }
        if self.read.is_some() && self.lines.is_terminal() && !self.is_json {
            // A message is checked against the plan of the thread in which the session continues, so this code waits
            // for the start of that thread. A signal can cancel the wait, so the line remains in `self.read`.
            self.control.successor_started().await;
        }
        let Some(line) = self.read.take() else {
            self.close();
            return None;
        };
        if !self.is_json {
            self.unsent.start(&line.text);
            let note = self.take_line(&line);
            if self.answering.is_none() {
                self.unsent.finish(None, &self.control);
            }
            return note;
        }
        self.answering = answer_line(&line, Arc::clone(&self.requests));
        None
    }

    /// Returns the typed lines that a session had not handled when it ended. The list is empty for JSON requests.
    async fn unsent_lines(&self) -> Vec<String> {
        if self.is_json {
            return Vec::new();
        }
        let rest = self.lines.take_rest().await;
        let lines = self.unsent.list(&self.control).into_iter().chain(rest);
        lines.filter(|line| !line.trim().is_empty()).collect()
    }

    /// Waits until the client has read the last response.
    async fn wait_printed(&mut self) {
        if let Some(printing) = &mut self.printing {
            // A printing thread that panics counts as finished.
            printing.await.ok();
            self.printing = None;
        }
    }

    fn take_line(&mut self, line: &Line) -> Option<String> {
        let note = match line.fault {
            Some(LineFault::TooLong) => return Some(format!("{}: not sent", too_long())),
            Some(LineFault::Repaired) => Some("replaced invalid characters in the line".to_owned()),
            None => None,
        };
        if line.text.trim().is_empty() {
            return note;
        }
        match self.question.take() {
            Some(LineQuestion::Cache(input, warning)) => {
                return self.answer_guard(line.text.trim(), input, warning);
            }
            Some(LineQuestion::Compact(focus)) => return self.answer_compact(line.text.trim(), focus),
            None => {}
        }
        match TypedText::parse(&line.text) {
            TypedText::Leave(children) => {
                let count = self.requests.running_children().len();
                if children.is_none() && count > 0 && self.lines.is_terminal() {
                    let answers = "Close the session with /exit wait, /exit detach (in the background) or /exit cancel";
                    return Some(children_question(count, answers));
                }
                self.is_closed = true;
                self.perform(ChatVerb::Close { children: children.unwrap_or_default() });
                note
            }
            TypedText::Help(topic) => Some(self.requests.help(topic.as_deref())),
            TypedText::Invalid(reason) => Some(reason),
            TypedText::Request(verb) => {
                self.perform(verb);
                note
            }
            TypedText::Inquiry(Inquiry::Copy(_)) => {
                Some("/copy works only in a terminal, without `--plain`; /export writes a file".to_owned())
            }
            TypedText::Inquiry(inquiry) => {
                self.inquire(inquiry);
                note
            }
            TypedText::Switch(verb, children) => {
                let count = self.requests.running_children().len();
                if children.is_none() && count > 0 && self.lines.is_terminal() {
                    let answers = "repeat the command with `wait` or `cancel` at the end";
                    return Some(children_question(count, answers));
                }
                self.switch(verb, children.unwrap_or_default());
                note
            }
            TypedText::Message(input) => self.submit(input).or(note),
            TypedText::Delivered(input, delivery) => {
                self.deliver(input, delivery);
                note
            }
        }
    }

    /// Submits a message. If a user types the lines and the message would lose cached tokens, does not submit the
    /// message, and returns a question for the user.
    fn submit(&mut self, input: UserInput) -> Option<String> {
        if !self.lines.is_terminal() {
            // The lines of a file are prompts of their own.
            let (handler, before) = (Arc::clone(&self.requests), self.last_sent.clone());
            self.answering =
                Some(Box::pin(async move { ChatResponse::of_prompt(handler.submit_line(input, before).await) }));
            return None;
        }
        if let Err(reason) = self.requests.check_input(&input) {
            return Some(reason);
        }
        if let Some(warning) = self.requests.cache_warning(&input) {
            return Some(self.ask_guard(input, warning));
        }
        self.send_typed(input);
        None
    }

    /// Sends a typed message. During a prompt, a message without bounds steers the prompt.
    fn send_typed(&mut self, input: UserInput) {
        let delivery = if input.bounds.is_empty() { Delivery::Steer } else { Delivery::Prompt };
        self.send(input, delivery);
    }

    /// Stores a message that would lose cached tokens, and returns the question whether to send the message. The next
    /// line of the user answers the question.
    fn ask_guard(&mut self, input: UserInput, warning: CacheWarning) -> String {
        let without = warning.name_without();
        let answers = if without.is_empty() {
            "1: send, 2: cancel".to_owned()
        } else {
            format!("1: send, 2: send once without {without}, 3: cancel")
        };
        let question = format!("{}\n{answers}; type the number", warning.text);
        self.question = Some(LineQuestion::Cache(input, warning));
        question
    }

    fn answer_guard(&mut self, answer: &str, input: UserInput, warning: CacheWarning) -> Option<String> {
        match (answer, warning.without.is_empty()) {
            ("1", _) => {
                self.send_typed(input);
                None
            }
            ("2", false) => {
                let handler = Arc::clone(&self.requests);
                self.answering = Some(Box::pin(async move {
                    let (input, notes) = match handler.attach_named_images(input).await {
                        Ok(attached) => attached,
                        Err(reason) => return ChatResponse::of_prompt(Err(reason)),
                    };
                    let sent = handler.submit_without(input, &warning.without).await;
                    ChatResponse::of_prompt(sent.map(|data| json!({"input": data.get("input"), "notes": notes})))
                }));
                None
            }
            ("2", true) | ("3", false) => Some(format!("not sent: {}", input.text)),
            _ => Some(self.ask_guard(input, warning)),
        }
    }

    fn answer_compact(&mut self, answer: &str, focus: Option<String>) -> Option<String> {
        match answer {
            "1" => {
                self.control.send(ControlMessage::Compact { focus });
                None
            }
            "2" => Some("not compacted".to_owned()),
            _ => {
                self.question = Some(LineQuestion::Compact(focus));
                Some(COMPACT_ANSWERS.to_owned())
            }
        }
    }

    /// Starts to send a message with the images that it names.
    fn send(&mut self, input: UserInput, delivery: Delivery) {
        let handler = Arc::clone(&self.requests);
        self.answering = Some(Box::pin(async move { handler.submit_typed(input, delivery).await }));
    }

    /// Sends a message with the delivery that its command names. If stdin is not a terminal, first waits until the
    /// earlier prompts have reached the model, because the message would otherwise become a prompt of its own.
    fn deliver(&mut self, input: UserInput, delivery: Delivery) {
        let Some(before) = self.last_sent.clone().filter(|_| !self.lines.is_terminal()) else {
            return self.send(input, delivery);
        };
        let handler = Arc::clone(&self.requests);
        self.answering = Some(Box::pin(async move {
            handler.control.prompts_delivered(&before).await;
            handler.submit_typed(input, delivery).await
        }));
    }

    /// Starts to answer a question about the session.
    fn inquire(&mut self, inquiry: Inquiry) {
        let handler = Arc::clone(&self.requests);
        self.start(async move { handler.answer_inquiry(inquiry).await });
    }

    /// Starts to open another session. `children` determines the treatment of children that still run in this session.
    fn switch(&mut self, verb: ChatVerb, children: LeftChildren) {
        let handler = Arc::clone(&self.requests);
        self.start(async move { handler.switch(verb, children).await });
    }

    /// Starts a typed command, and does not wait for its result.
    fn perform(&mut self, verb: ChatVerb) {
        let handler = Arc::clone(&self.requests);
        self.start(async move { handler.answer(ChatRequest { id: Value::Null, verb }).await });
    }

    /// Starts a typed command. If the lines come from a file, the command starts after the last message has taken
    /// effect, and the next line is read after the command has taken effect. At a terminal, the next line waits only
    /// for a command that changes an idle session.
    fn start(&mut self, command: impl Future<Output = ChatResponse> + Send + 'static) {
        let handler = Arc::clone(&self.requests);
        let before = self.last_sent.take();
        let is_terminal = self.lines.is_terminal();
        // While a prompt runs, a user who types can still steer it.
        let is_idle = self.control.live_state().is_none_or(|live| live.state.is_idle());
        self.answering = Some(Box::pin(async move {
            if let Some(before) = before.filter(|_| !is_terminal) {
                handler.control.settled(&before).await;
            }
            let response = command.await;
            let sent = response.data.as_ref();
            let sent = sent.and_then(|data| data.get("message").or_else(|| data.get("input"))?.as_str());
            let changes = response.command.is_some_and(|name| CHANGING_COMMANDS.contains(&name));
            if let Some(sent) = sent.filter(|_| !is_terminal || is_idle && changes) {
                handler.control.settled(sent).await;
            }
            response
        }));
    }

    /// Interrupts the current prompt and, unless the lines are JSON requests, withdraws the messages that wait for it. A
    /// second interruption in a row also closes the session. Returns false after
    /// further interruptions: the process should then end without waiting for the end of the session.
    pub fn interrupt(&mut self) -> bool {
        self.interruptions += 1;
        if !self.is_json {
            self.withdraw_queue();
        }
        self.control.send(ControlMessage::Interrupt);
        if self.interruptions > 1 {
            self.close();
        }
        self.interruptions <= 2
    }

    /// Interrupts the current prompt and closes the session. Returns false after repeated interruptions: the process
    /// should then end without waiting for the end of the session.
    pub fn leave(&mut self) -> bool {
        self.interruptions += 1;
        self.withdraw_queue();
        self.control.send(ControlMessage::Interrupt);
        self.close();
        self.interruptions <= 2
    }

    /// Withdraws the messages that wait for the current prompt, so that its interruption does not send them.
    fn withdraw_queue(&self) {
        self.control.send(ControlMessage::Retract { input: None });
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

/// Returns the exit code for the status of a session's last prompt.
pub fn exit_of_session(events: &[Event]) -> Exit {
    let status = events
        .iter()
        .rev()
        .find_map(|event| if let EventBody::PromptEnded(ended) = &event.body { Some(ended.status) } else { None });
    match status {
        None | Some(PromptStatus::Done) => Exit::Success,
        Some(PromptStatus::Interrupted) => Exit::Cancelled,
        Some(PromptStatus::Limit) => Exit::Limit,
        Some(PromptStatus::Error) => Exit::Failed,
    }
}
