//! The task of one session: passes prompts to its thread, and events and questions to the client.

use std::collections::VecDeque;
use std::sync::Arc;

use agent_client_protocol::Client;
use agent_client_protocol::v1::schema::{
    AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, PromptResponse, RequestPermissionOutcome,
    SessionId, SessionNotification, SessionUpdate, StopReason, UnstructuredCommandInput,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use rye::{Answer, LiveEvent, LiveEvents, Question, Session};
use rye_engine::event::{CommandAction, Delivery, EventBody, HookPointRun, HookVerdict, InputSource, UserInput};
use rye_engine::thread_id::ThreadId;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use super::map::{UpdateMapper, agent_text, stop_reason};
use super::permission::{SessionGrants, permission_request};
use crate::command::chat::commands::{TypedText, list_commands, response_note};
use crate::command::chat::inquiry::Inquiry;
use crate::command::chat::json::{ChatRequest, ChatVerb};
use crate::command::chat::requests::RequestHandler;

/// A message to the task of a session.
pub enum SessionCommand {
    Prompt {
        text: String,
        delivery: Delivery,
        responder: Box<Responder<PromptResponse>>,
    },
    Cancel,
    /// Sends the list of commands to the client.
    ListCommands,
    /// Interrupts the prompt and closes the session.
    Close,
}

/// A prompt of the client without a response yet.
struct PendingPrompt {
    input: Option<String>,
    responder: Box<Responder<PromptResponse>>,
}

/// Approval questions, and the `approval_asked` events of the same requests. A question and its event arrive in any
/// order; the client gets the question after both have arrived.
#[derive(Default)]
struct WaitingQuestions {
    questions: Vec<Question>,
    /// Threads and texts of the requests whose question has not arrived.
    events: Vec<(ThreadId, String)>,
}

impl WaitingQuestions {
    /// Records a question. Returns the question if the event of the same request has already arrived.
    fn question(&mut self, question: Question) -> Option<Question> {
        let is_same = |(thread, what): &(ThreadId, String)| *thread == question.thread && *what == question.what;
        if let Some(at) = self.events.iter().position(is_same) {
            self.events.remove(at);
            return Some(question);
        }
        self.questions.push(question);
        None
    }

    /// Records the event of a request. Returns the question of the same request if the question has already arrived.
    fn event(&mut self, thread: &ThreadId, what: &str) -> Option<Question> {
        let is_same = |question: &Question| question.thread == *thread && question.what == what;
        if let Some(at) = self.questions.iter().position(is_same) {
            return Some(self.questions.remove(at));
        }
        self.events.push((thread.clone(), what.to_owned()));
        None
    }
}

/// The parts of a session's task.
pub struct SessionTask {
    pub id: SessionId,
    pub session: Arc<Session>,
    pub events: LiveEvents,
    pub commands: UnboundedReceiver<SessionCommand>,
    pub connection: ConnectionTo<Client>,
    pub requests: Arc<RequestHandler>,
    pub mapper: UpdateMapper,
}

impl SessionTask {
    /// Runs until the thread has ended.
    pub async fn run(mut self) {
        // The current thread of the session. Another thread can continue the session.
        let mut main = self.session.thread_id().clone();
        let grants = Arc::new(SessionGrants::default());
        let mut pending: VecDeque<PendingPrompt> = VecDeque::new();
        let mut waiting = WaitingQuestions::default();
        let mut is_open = true;
        loop {
            tokio::select! {
                command = self.commands.recv(), if is_open => match command {
                    Some(SessionCommand::Prompt { text, delivery, responder }) => {
                        pending.extend(self.submit(text, delivery, responder).await);
                    }
                    Some(SessionCommand::ListCommands) => self.list_commands(),
                    Some(SessionCommand::Cancel) => self.session.interrupt(),
                    Some(SessionCommand::Close) | None => {
                        is_open = false;
                        self.session.interrupt();
                        self.session.close();
                    }
                },
                event = self.events.next() => match event {
                    Some(LiveEvent::Event { thread, event }) => {
                        if let EventBody::Opened(opened) = &event.body
                            && opened.parent.is_none()
                            && thread != main
                        {
                            main = thread.clone();
                            self.list_commands();
                        }
                        if let EventBody::CommandRan(ran) = &event.body
                            && ran.action == CommandAction::Show
                        {
                            self.update(agent_text(&ran.answer));
                        }
                        if let EventBody::ShellRan(ran) = &event.body {
                            self.update(agent_text(&ran.output));
                        }
                        if thread == main {
                            for update in self.mapper.event(&event.body, false) {
                                self.update(update);
                            }
                            self.answer_prompts(&event.body, &mut pending);
                        }
                        if let EventBody::ApprovalAsked(question) = &event.body
                            && let Some(question) = waiting.event(&thread, &question.what)
                        {
                            self.ask(question, &grants, &main);
                        }
                    }
                    Some(LiveEvent::Delta { thread, delta }) if thread == main => {
                        if let Some(update) = self.mapper.delta(&delta) {
                            self.update(update);
                        }
                    }
                    Some(LiveEvent::Question(question)) => {
                        if let Some(question) = waiting.question(question) {
                            self.ask(question, &grants, &main);
                        }
                    }
                    Some(LiveEvent::Delta { .. }) => {}
                    None => break,
                },
            }
        }
        for prompt in pending {
            prompt.responder.respond(PromptResponse::new(StopReason::Cancelled)).ok();
        }
    }

    /// Sends an update. If the client has disconnected, the update is dropped, because the transcript has its content.
    fn update(&self, update: SessionUpdate) {
        self.connection.send_notification(SessionNotification::new(self.id.clone(), update)).ok();
    }

    /// Submits a text as a prompt. A typed command is performed at once and starts no prompt, except for a retry.
    async fn submit(
        &self,
        text: String,
        delivery: Delivery,
        responder: Box<Responder<PromptResponse>>,
    ) -> Option<PendingPrompt> {
        let verb = match TypedText::parse(&text) {
            TypedText::Message(input) => match self.requests.check_bounds(&input.bounds) {
                Ok(()) => {
                    let input = UserInput { source: InputSource::Rpc, ..input };
                    let receipt = self.session.submit(input, delivery).await;
                    return Some(PendingPrompt { input: receipt.map(|receipt| receipt.input), responder });
                }
                Err(reason) => Err(reason),
            },
            TypedText::Request(verb @ ChatVerb::Retry {}) => {
                // The client gets its response at the end of the repeated prompt.
                let response = self.requests.answer(ChatRequest { id: Value::Null, verb }).await;
                let input = response.data.as_ref().and_then(|data| data.get("input")?.as_str());
                if let Some(input) = input.map(str::to_owned) {
                    return Some(PendingPrompt { input: Some(input), responder });
                }
                Err(response.error.unwrap_or_default())
            }
            TypedText::Help(topic) => Err(self.requests.help(topic.as_deref())),
            TypedText::Invalid(reason) => Err(reason),
            TypedText::Leave(_) => Err("the client closes its sessions".to_owned()),
            TypedText::Inquiry(Inquiry::Copy(_)) => Err("only a terminal has a clipboard".to_owned()),
            TypedText::Inquiry(inquiry) => {
                let response = self.requests.answer_inquiry(inquiry).await;
                Err(response_note(&response).unwrap_or_default())
            }
            TypedText::Switch(verb, _) | TypedText::Request(verb) => Ok(verb),
        };
        let (requests, connection, id) = (Arc::clone(&self.requests), self.connection.clone(), self.id.clone());
        tokio::spawn(async move {
            let note = match verb {
                Ok(verb) => response_note(&requests.answer(ChatRequest { id: Value::Null, verb }).await),
                Err(note) => Some(note),
            };
            if let Some(note) = note {
                connection.send_notification(SessionNotification::new(id, agent_text(&note))).ok();
            }
            responder.respond(PromptResponse::new(StopReason::EndTurn)).ok();
        });
        None
    }

    /// Sends the commands, prompt templates and skills that a prompt can call.
    fn list_commands(&self) {
        let Ok(world) = self.requests.spaces.open() else { return };
        let mut listed = list_commands(&world);
        // Editors have their own ways to end a session.
        listed.retain(|command| !["exit", "quit"].contains(&command.name.as_str()));
        let commands = listed.into_iter().map(|command| {
            let hint = Some(command.arguments).filter(|hint| !hint.is_empty());
            let input = hint.map(|hint| AvailableCommandInput::Unstructured(UnstructuredCommandInput::new(hint)));
            AvailableCommand::new(command.name, command.description).input(input)
        });
        self.update(SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(commands.collect())));
    }

    /// Responds to the prompts that an event ends.
    fn answer_prompts(&self, body: &EventBody, pending: &mut VecDeque<PendingPrompt>) {
        if let EventBody::HookPoint(run) = body {
            for problem in failed_expansions(run) {
                self.update(agent_text(&problem));
            }
        }
        let handled = if let EventBody::UserInput(input) = body {
            input.handled.then_some(&input.id)
        } else if let EventBody::CommandRan(ran) = body {
            ran.action.delivery().is_none().then_some(&ran.id)
        } else {
            None
        };
        if let Some(id) = handled
            && let Some(at) = pending.iter().position(|prompt| prompt.input.as_ref() == Some(id))
            && let Some(prompt) = pending.remove(at)
        {
            prompt.responder.respond(PromptResponse::new(StopReason::EndTurn)).ok();
        }
        if let EventBody::PromptEnded(ended) = body
            && let Some(prompt) = pending.pop_front()
        {
            let response = stop_reason(ended).map(PromptResponse::new);
            let failed = |message: String| agent_client_protocol::Error::internal_error().data(message);
            prompt.responder.respond_with_result(response.map_err(failed)).ok();
        }
    }

    /// Asks the client, unless an earlier answer covers the question.
    fn ask(&self, question: Question, grants: &Arc<SessionGrants>, main: &ThreadId) {
        if grants.allows(&question, &self.requests.spaces) {
            self.session.answer(question.id, Answer::Approve);
            return;
        }
        let call = self.mapper.call_of(&question.what).filter(|_| question.thread == *main);
        let request = permission_request(&self.id, &question, call);
        let (session, grants, spaces) = (Arc::clone(&self.session), Arc::clone(grants), self.requests.spaces.clone());
        let (connection, id) = (self.connection.clone(), self.id.clone());
        tokio::spawn(async move {
            let answered = connection.send_request(request).block_task().await;
            // An error of the client counts as a refusal.
            let outcome = answered.map_or(RequestPermissionOutcome::Cancelled, |response| response.outcome);
            let (answer, problem) = grants.answer(&outcome, &question, &spaces);
            if let Some(problem) = problem {
                connection.send_notification(SessionNotification::new(id, agent_text(&problem))).ok();
            }
            session.answer(question.id, answer);
        });
    }
}

/// Returns the reasons why a message was not sent.
fn failed_expansions(run: &HookPointRun) -> Vec<String> {
    let failed = run.considered.iter().filter(|hook| hook.verdict == HookVerdict::Failed && hook.hook == "expansion");
    failed.filter_map(|hook| hook.because.clone()).collect()
}
