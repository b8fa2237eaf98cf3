//! The task of one session: passes prompts to its thread, and events and questions to the client.

use std::collections::VecDeque;
use std::sync::Arc;

use agent_client_protocol::Client;
use agent_client_protocol::v1::schema::{
    PromptResponse, RequestPermissionOutcome, SessionId, SessionNotification, SessionUpdate, StopReason,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use rye::{Answer, LiveEvent, LiveEvents, Question, Session};
use rye_engine::event::{Delivery, EventBody, HookPointRun, HookVerdict, InputSource, UserInput};
use rye_engine::thread_id::ThreadId;
use tokio::sync::mpsc::UnboundedReceiver;

use super::map::{UpdateMapper, agent_text, stop_reason};
use super::permission::{SessionGrants, permission_request};
use crate::workspace::Spaces;

/// A message to the task of a session.
pub enum SessionCommand {
    Prompt {
        text: String,
        delivery: Delivery,
        responder: Box<Responder<PromptResponse>>,
    },
    Cancel,
    /// Interrupts the prompt and closes the session.
    Close,
}

/// A prompt of the client without a response yet.
struct PendingPrompt {
    input: Option<String>,
    responder: Box<Responder<PromptResponse>>,
}

/// Questions and the events of their requests, which arrive in any order. A client gets a question after its call.
#[derive(Default)]
struct WaitingQuestions {
    questions: Vec<Question>,
    /// Threads and texts of the requests without a question yet.
    events: Vec<(ThreadId, String)>,
}

impl WaitingQuestions {
    /// Notes a question; returns it if its event has arrived.
    fn question(&mut self, question: Question) -> Option<Question> {
        let is_same = |(thread, what): &(ThreadId, String)| *thread == question.thread && *what == question.what;
        if let Some(at) = self.events.iter().position(is_same) {
            self.events.remove(at);
            return Some(question);
        }
        self.questions.push(question);
        None
    }

    /// Notes the event of a request; returns its question if it has arrived.
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
    pub spaces: Spaces,
    pub mapper: UpdateMapper,
}

impl SessionTask {
    /// Runs until the thread has ended.
    pub async fn run(mut self) {
        let main = self.session.thread_id().clone();
        let grants = Arc::new(SessionGrants::default());
        let mut pending: VecDeque<PendingPrompt> = VecDeque::new();
        let mut waiting = WaitingQuestions::default();
        let mut is_open = true;
        loop {
            tokio::select! {
                command = self.commands.recv(), if is_open => match command {
                    Some(SessionCommand::Prompt { text, delivery, responder }) => {
                        let input = UserInput { source: InputSource::Rpc, ..UserInput::text(text) };
                        let receipt = self.session.submit(input, delivery).await;
                        pending.push_back(PendingPrompt { input: receipt.map(|receipt| receipt.input), responder });
                    }
                    Some(SessionCommand::Cancel) => self.session.interrupt(),
                    Some(SessionCommand::Close) | None => {
                        is_open = false;
                        self.session.interrupt();
                        self.session.close();
                    }
                },
                event = self.events.next() => match event {
                    Some(LiveEvent::Event { thread, event }) => {
                        if thread == main {
                            for update in self.mapper.event(&event.body, false) {
                                self.update(update);
                            }
                            self.answer_prompts(&event.body, &mut pending);
                        }
                        if let EventBody::ApprovalAsked(asked) = &event.body
                            && let Some(question) = waiting.event(&thread, &asked.what)
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

    /// Sends an update. A client that is gone gets none; the transcript has everything.
    fn update(&self, update: SessionUpdate) {
        self.connection.send_notification(SessionNotification::new(self.id.clone(), update)).ok();
    }

    /// Responds to the prompts that an event ends.
    fn answer_prompts(&self, body: &EventBody, pending: &mut VecDeque<PendingPrompt>) {
        if let EventBody::HookPoint(run) = body {
            for problem in failed_expansions(run) {
                self.update(agent_text(&problem));
            }
        }
        if let EventBody::UserInput(input) = body
            && input.handled
            && let Some(at) = pending.iter().position(|prompt| prompt.input.as_deref() == Some(&input.id))
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
        if grants.allows(&question, &self.spaces) {
            self.session.answer(question.id, Answer::Approve);
            return;
        }
        let call = self.mapper.call_of(&question.what).filter(|_| question.thread == *main);
        let request = permission_request(&self.id, &question, call);
        let (session, grants, spaces) = (Arc::clone(&self.session), Arc::clone(grants), self.spaces.clone());
        let (connection, id) = (self.connection.clone(), self.id.clone());
        tokio::spawn(async move {
            let answered = connection.send_request(request).block_task().await;
            // A client that cannot answer refuses.
            let outcome = answered.map_or(RequestPermissionOutcome::Cancelled, |response| response.outcome);
            let (answer, problem) = grants.answer(&outcome, &question, &spaces);
            if let Some(problem) = problem {
                connection.send_notification(SessionNotification::new(id, agent_text(&problem))).ok();
            }
            session.answer(question.id, answer);
        });
    }
}

/// Returns the reasons for which a message was not sent.
fn failed_expansions(run: &HookPointRun) -> Vec<String> {
    let failed = run.considered.iter().filter(|hook| hook.verdict == HookVerdict::Failed && hook.hook == "expansion");
    failed.filter_map(|hook| hook.because.clone()).collect()
}
