//! The task of one session: passes prompts to its thread, and events and questions to the client.

use std::sync::Arc;

use agent_client_protocol::v1::schema::{
    AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, RequestPermissionOutcome, SessionUpdate,
    StopReason, UnstructuredCommandInput,
};
use rye::{Answer, LiveEvent, LiveEvents, Question, Session};
use rye_engine::event::{
    CommandAction, Delivery, EventBody, HookPointRun, HookVerdict, InputSource, PromptEnded, PromptStatus, UserInput,
};
use rye_engine::thread_id::ThreadId;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::agent::invalid;
use super::disconnection::{ANSWER_TIMEOUT, PromptResponder};
use super::map::{UpdateMapper, agent_text, stop_reason};
use super::open_session::OpenSession;
use super::pending::{PendingPrompts, PromptOutcome};
use super::permission::{SessionGrants, describe_sandbox, permission_request};
use super::prompt::PromptContent;
use crate::command::chat::commands::{TypedText, list_commands, response_note};
use crate::command::chat::inquiry::Inquiry;
use crate::command::chat::json::{ChatRequest, ChatResponse, ChatVerb};
use crate::present::event::prompt_end_help;

/// A message to the task of a session.
pub enum SessionCommand {
    Prompt {
        content: PromptContent,
        delivery: Delivery,
        responder: PromptResponder,
    },
    Cancel,
    /// Sends the list of commands to the client.
    ListCommands,
    /// Interrupts the prompt and closes the session.
    Close,
}

/// Approval questions, and the `approval_asked` events of the same requests. A question and its event arrive in any
/// order. The client gets the question after both have arrived.
#[derive(Default)]
struct WaitingQuestions {
    questions: Vec<Question>,
    /// Approval requests whose `approval_asked` event has arrived before their question: the thread and the text of
    /// each request.
    events: Vec<(ThreadId, String)>,
}

impl WaitingQuestions {
    /// Handles the question of an approval request. Returns the question if the `approval_asked` event of the same
    /// request has already arrived. Otherwise stores the question until the event arrives, and returns `None`.
    fn question(&mut self, question: Question) -> Option<Question> {
        let is_same = |(thread, what): &(ThreadId, String)| *thread == question.thread && *what == question.what;
        if let Some(at) = self.events.iter().position(is_same) {
            self.events.remove(at);
            return Some(question);
        }
        self.questions.push(question);
        None
    }

    /// Handles the event `approval_asked` of an approval request. If the question to the client has already arrived,
    /// removes the question and returns it. Otherwise stores the event until the question arrives, and returns `None`.
    fn event(&mut self, thread: &ThreadId, what: &str) -> Option<Question> {
        let is_same = |question: &Question| question.thread == *thread && question.what == what;
        if let Some(at) = self.questions.iter().position(is_same) {
            return Some(self.questions.remove(at));
        }
        self.events.push((thread.clone(), what.to_owned()));
        None
    }
}

/// Sends the client the list of the commands, prompt templates and skills that a prompt can call.
fn list_commands_of(open: &OpenSession) {
    let Ok(world) = open.requests.spaces.open() else { return };
    let mut listed = list_commands(&world);
    // Editors open and close sessions themselves, so the commands for this are omitted.
    listed.retain(|command| !["exit", "quit", "new", "resume"].contains(&command.name.as_str()));
    let commands = listed.into_iter().map(|command| {
        let hint = Some(command.arguments).filter(|hint| !hint.is_empty());
        let input = hint.map(|hint| AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(hint)));
        AvailableCommand::new(command.name, command.description).input(input)
    });
    open.update(SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(commands.collect())));
}

/// The task that runs one session: it performs the commands of the client and sends the client the updates of the
/// session.
pub struct SessionTask {
    pub open: OpenSession,
    pub session: Arc<Session>,
    pub events: LiveEvents,
    pub commands: UnboundedReceiver<SessionCommand>,
    pub mapper: UpdateMapper,
}

/// Returns the error for a prompt of a session that a hook or a limit has already ended.
fn session_ended() -> agent_client_protocol::Error {
    agent_client_protocol::Error::internal_error().data("the session has ended; start or load a session")
}

impl SessionTask {
    /// Serves the session until its last thread has ended.
    pub async fn run(mut self) {
        // The current thread of the session. Another thread can continue the session.
        let mut main = self.session.thread_id().clone();
        // The earlier threads of the session.
        let mut earlier: Vec<ThreadId> = Vec::new();
        let grants = Arc::new(SessionGrants::default());
        let mut pending: PendingPrompts<PromptResponder> = PendingPrompts::default();
        let mut waiting = WaitingQuestions::default();
        // The tasks that wait for the client's answers, one for each question.
        let mut open_questions = JoinSet::new();
        let mut is_open = true;
        let (mut is_prompt_running, mut is_capped) = (false, false);
        // The time at which prompts without a response count as cancelled; `None` while the client is connected.
        let mut answers_due: Option<Instant> = None;
        loop {
            tokio::select! {
                () = wait_until(answers_due), if !pending.is_empty() => {
                    for responder in pending.take_all() {
                        responder.respond(Ok(StopReason::Cancelled));
                    }
                }
                command = self.commands.recv(), if is_open => match command {
                    Some(SessionCommand::Prompt { content, delivery, responder }) => {
                        if let Some((input, responder)) = self.submit(content, delivery, responder).await {
                            pending.add(input, responder);
                        }
                    }
                    Some(SessionCommand::ListCommands) => list_commands_of(&self.open),
                    Some(SessionCommand::Cancel) => self.session.interrupt(),
                    Some(SessionCommand::Close) | None => {
                        is_open = false;
                        if self.open.disconnection.is_set() {
                            answers_due = Some(Instant::now() + ANSWER_TIMEOUT);
                            finish_answers(&mut open_questions).await;
                        }
                        if is_prompt_running || !pending.is_empty() {
                            self.session.interrupt();
                        }
                        self.session.close();
                    }
                },
                event = self.events.next() => match event {
                    Some(LiveEvent::Event { thread, event }) => {
                        if let EventBody::Opened(opened) = &event.body
                            && opened.parent.is_none()
                            && thread != main
                        {
                            earlier.push(std::mem::replace(&mut main, thread.clone()));
                            list_commands_of(&self.open);
                            // The new thread may have another plan.
                            let (open, earlier) = (self.open.clone(), earlier.clone());
                            tokio::spawn(async move { open.send_options_after(&earlier).await });
                        }
                        if let EventBody::CommandRan(ran) = &event.body
                            && ran.action == CommandAction::Show
                        {
                            self.open.update(agent_text(&ran.answer));
                        }
                        if let EventBody::ShellRan(ran) = &event.body {
                            self.open.update(agent_text(&ran.output));
                        }
                        if thread == main {
                            for update in self.mapper.event(&event.body, false) {
                                self.open.update(update);
                            }
                            if let EventBody::PromptStarted(started) = &event.body {
                                (is_prompt_running, is_capped) = (true, started.capped);
                            } else if let EventBody::PromptEnded(ended) = &event.body {
                                is_prompt_running = false;
                                grants.end_prompt();
                                self.report_limit(ended, is_capped);
                            }
                            self.answer_prompts(&event.body, &mut pending);
                        }
                        if let EventBody::ApprovalAsked(question) = &event.body
                            && let Some(question) = waiting.event(&thread, &question.what)
                        {
                            self.ask(question, (&grants, &main), &mut open_questions);
                        }
                    }
                    Some(LiveEvent::Delta { thread, delta }) if thread == main => {
                        if let Some(update) = self.mapper.delta(&delta) {
                            self.open.update(update);
                        }
                    }
                    Some(LiveEvent::Question(question)) => {
                        if let Some(question) = waiting.question(question) {
                            self.ask(question, (&grants, &main), &mut open_questions);
                        }
                    }
                    Some(LiveEvent::Delta { .. }) => {}
                    None => break,
                },
            }
        }
        self.answer_rest(pending, is_open);
    }

    /// Responds, after the end of the session, to the prompts without a response and to the prompts that are still in
    /// the queue of commands. If the client has closed the session (`is_open` is false), the response is the stop
    /// reason `cancelled`. Otherwise, the response is the error that the session has ended.
    fn answer_rest(mut self, mut pending: PendingPrompts<PromptResponder>, is_open: bool) {
        let answer = || if is_open { Err(session_ended()) } else { Ok(StopReason::Cancelled) };
        for responder in pending.take_all() {
            responder.respond(answer());
        }
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let SessionCommand::Prompt { responder, .. } = command {
                responder.respond(answer());
            }
        }
    }

    /// Submits a text from the client: a message or a typed command. For a message and for `/retry`, returns the id of
    /// the message and the responder. The caller responds at the end of the prompt. For any other command and for a
    /// refused text, sends the response itself and returns `None`.
    async fn submit(
        &self,
        content: PromptContent,
        delivery: Delivery,
        responder: PromptResponder,
    ) -> Option<(String, PromptResponder)> {
        let requests = &self.open.requests;
        let (mut typed, mut delivery) = (TypedText::parse(&content.text), delivery);
        if let TypedText::Delivered(input, named) = typed {
            (typed, delivery) = (TypedText::Message(input), named);
        }
        let typed = match (typed, content.images) {
            (TypedText::Message(input), images) => {
                let input = UserInput { source: InputSource::Rpc, ..input };
                match requests.with_images(input, images).await {
                    Ok(input) => TypedText::Message(input),
                    Err(reason) => {
                        responder.respond(Err(invalid(&reason)));
                        return None;
                    }
                }
            }
            (typed, images) if images.is_empty() => typed,
            _ => {
                responder.respond(Err(invalid("a command takes no images")));
                return None;
            }
        };
        let verb = match typed {
            TypedText::Message(input) | TypedText::Delivered(input, _) => match requests.check_message(&input) {
                Ok(()) => {
                    if let Some(warning) = requests.cache_warning_expanded(&input).await {
                        self.open.warn("the prompt loses cached tokens", Some(warning.text));
                    }
                    if let Some(receipt) = self.session.submit(input, delivery).await {
                        return Some((receipt.input, responder));
                    }
                    responder.respond(Err(session_ended()));
                    return None;
                }
                Err(reason) => Err(reason),
            },
            TypedText::Request(verb @ ChatVerb::Retry {}) => {
                // The caller responds to the client at the end of the prompt.
                let response = requests.answer(ChatRequest { id: Value::Null, verb }).await;
                let input = response.data.as_ref().and_then(|data| data.get("input")?.as_str());
                if let Some(input) = input.map(str::to_owned) {
                    return Some((input, responder));
                }
                Err(response.error.unwrap_or_default())
            }
            TypedText::Help(topic) => Err(requests.help(topic.as_deref())),
            TypedText::Invalid(reason) => Err(reason),
            TypedText::Leave(_) => {
                Err("`/exit` and `/quit` work only in `rye chat`; close the session in your client".to_owned())
            }
            TypedText::Inquiry(Inquiry::Copy(_)) => {
                Err("`/copy` works only in the terminal of `rye chat`; `/export` writes a file".to_owned())
            }
            TypedText::Inquiry(inquiry) => {
                let response = requests.answer_inquiry(inquiry).await;
                Err(response_note(&response).unwrap_or_default())
            }
            // The client has no question for a compaction, so the preview is shown and the compaction runs.
            TypedText::Request(ChatVerb::Compact { focus, .. }) => Ok(ChatVerb::Compact { focus, preview: false }),
            TypedText::Switch(verb, _) | TypedText::Request(verb) => Ok(verb),
        };
        let open = self.open.clone();
        tokio::spawn(async move {
            let is_reload = matches!(verb, Ok(ChatVerb::Reload { .. }));
            let answer = async {
                match verb {
                    Ok(verb) => describe_answer(&open.requests.answer(ChatRequest { id: Value::Null, verb }).await),
                    Err(note) => Some(note),
                }
            };
            let note = tokio::select! {
                note = answer => note,
                () = open.disconnection.clone().wait_answers_due() => return responder.respond(Ok(StopReason::Cancelled)),
            };
            if is_reload {
                // A reload can change templates and skills even if the plan stays the same.
                list_commands_of(&open);
            }
            if let Some(note) = note {
                open.update(agent_text(&note));
            }
            responder.respond(Ok(StopReason::EndTurn));
        });
        None
    }

    /// Responds to the prompts that an event ends. If the event is the result of a hook point, also sends the client
    /// the errors of the hooks and the expansions that failed.
    fn answer_prompts(&self, body: &EventBody, pending: &mut PendingPrompts<PromptResponder>) {
        if let EventBody::HookPoint(run) = body {
            for problem in failed_expansions(run) {
                self.open.update(agent_text(&problem));
            }
            for (hook, problem) in failed_hooks(run) {
                self.open.warn(&format!("the hook `{hook}` failed"), problem);
            }
        }
        for (responder, outcome) in pending.event(body) {
            let reason = match outcome {
                PromptOutcome::Handled => Ok(StopReason::EndTurn),
                PromptOutcome::Withdrawn => Ok(StopReason::Cancelled),
                PromptOutcome::Ended(ended) => stop_reason(&ended),
            };
            let failed = |message: String| agent_client_protocol::Error::internal_error().data(message);
            responder.respond(reason.map_err(failed));
        }
    }

    /// If a limit has ended a prompt, sends the client a text that states the limit and what the user can do. The stop
    /// reason does not identify the limit.
    fn report_limit(&self, ended: &PromptEnded, is_capped: bool) {
        if ended.status == PromptStatus::Limit {
            let reached = ended.message.as_deref().or(ended.code.as_deref()).unwrap_or_default();
            let help = prompt_end_help(ended, is_capped).map(|help| format!("; {help}")).unwrap_or_default();
            self.open.update(agent_text(&format!("the prompt ended at a limit: {reached}{help}")));
        }
    }

    /// Sends a question to the client and passes the answer to the session. If an earlier approval covers the question,
    /// approves the call without the client.
    fn ask(
        &self,
        question: Question,
        (grants, main): (&Arc<SessionGrants>, &ThreadId),
        open_questions: &mut JoinSet<()>,
    ) {
        if grants.allows(&question, &self.open.requests.spaces) {
            self.session.answer(question.id, Answer::Approve);
            return;
        }
        let call = self.mapper.call_of(&question.what).filter(|_| question.thread == *main);
        let live = self.open.requests.control.live_state().filter(|_| question.thread == *main);
        let sandbox = live.and_then(|live| describe_sandbox(&question, &live, &self.open.requests.spaces));
        let request = permission_request(&self.open.id, &question, call, sandbox.as_deref());
        let (session, grants, open) = (Arc::clone(&self.session), Arc::clone(grants), self.open.clone());
        // Removes the tasks whose questions are answered.
        while open_questions.try_join_next().is_some() {}
        open_questions.spawn(async move {
            let outcome = match open.connection.send_request(request).block_task().await {
                Ok(response) => response.outcome,
                // The client disconnected without an answer. The interruption of the prompt closes the question.
                Err(_) if open.disconnection.is_set() => return,
                // If the client fails to answer, the request counts as refused.
                Err(_) => RequestPermissionOutcome::Cancelled,
            };
            let (answer, problem) = grants.answer(&outcome, &question, &open.requests.spaces);
            if let Some(problem) = problem {
                open.update(agent_text(&problem));
            }
            session.answer(question.id, answer);
        });
    }
}

/// Waits until a time; forever if there is none.
async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Waits until the session has received the answers that the client sent before the end of the input. Otherwise, the
/// interruption of the prompt could discard such an answer. Questions without an answer end with the connection.
async fn finish_answers(open_questions: &mut JoinSet<()>) {
    let answered = async { while open_questions.join_next().await.is_some() {} };
    timeout(ANSWER_TIMEOUT, answered).await.ok();
}

/// Returns the text for the client that answers a command; `None` if there is nothing to show. After a fork, the text
/// contains the prompt before which the session continues, because the client's editor does not get this prompt.
fn describe_answer(response: &ChatResponse) -> Option<String> {
    let is_fork = matches!(response.command, Some("fork" | "rewind"));
    let prompt = response.data.as_ref().and_then(|data| data.get("text")?.as_str()).filter(|_| is_fork);
    let fork = prompt.map(|prompt| format!("the session continues from the state before the prompt:\n\n{prompt}"));
    let parts: Vec<String> = response_note(response).into_iter().chain(fork).collect();
    (!parts.is_empty()).then(|| parts.join("\n"))
}

/// Returns the reasons why skills or prompt templates in a message could not be expanded. A message with such a failure
/// is not sent.
fn failed_expansions(run: &HookPointRun) -> Vec<String> {
    let failed = run.considered.iter().filter(|hook| hook.verdict == HookVerdict::Failed && hook.hook == "expansion");
    failed.filter_map(|hook| hook.because.clone()).collect()
}

/// Returns the ids of the hooks that failed at a hook point, each with the reason if one is recorded.
fn failed_hooks(run: &HookPointRun) -> Vec<(String, Option<String>)> {
    let failed = run.considered.iter().filter(|hook| hook.verdict == HookVerdict::Failed && hook.hook != "expansion");
    failed.map(|hook| (hook.hook.clone(), hook.because.clone())).collect()
}
