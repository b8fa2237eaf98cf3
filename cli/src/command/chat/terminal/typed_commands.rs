//! Typed commands of the terminal, performed one after another outside of the editor's task, so that the editor never
//! waits.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rye_engine::event::{Delivery, UserInput};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::command::chat::commands::CHANGING_COMMANDS;
use crate::command::chat::inquiry::Inquiry;
use crate::command::chat::json::{ChatRequest, ChatResponse, ChatVerb};
use crate::command::chat::leaving::LeftChildren;
use crate::command::chat::requests::RequestHandler;

/// A typed command that is performed once all commands that were typed before it have been performed.
enum Job {
    Perform(ChatVerb),
    Inquire(Inquiry),
    Switch(ChatVerb, LeftChildren),
    Submit(UserInput, Vec<PathBuf>, Delivery),
    /// A prompt that is sent once without these parts of the context.
    SubmitWithout(UserInput, Vec<PathBuf>, Vec<String>),
    /// Reports that all commands before this one have taken effect.
    Release,
}

/// The result of a queued command.
pub(super) enum TypedResult {
    Response(Box<ChatResponse>),
    /// The commands that a message waited for have taken effect.
    Released,
}

impl Job {
    fn changes_session(&self) -> bool {
        if let Self::Perform(verb) = self { CHANGING_COMMANDS.contains(&verb.name()) } else { false }
    }
}

/// A queue of typed commands, which a task performs one after another, and the queue of their responses.
pub(super) struct TypedCommands {
    jobs: UnboundedSender<Job>,
    responses: UnboundedReceiver<TypedResult>,
    /// Number of commands that change the session and have not taken effect.
    changes: Arc<AtomicUsize>,
}

impl TypedCommands {
    /// Starts the task that performs the commands. Needs a runtime.
    pub(super) fn start(handler: Arc<RequestHandler>) -> Self {
        let (jobs, mut requested) = unbounded_channel::<Job>();
        let (answer, responses) = unbounded_channel();
        let changes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&changes);
        tokio::spawn(async move {
            while let Some(job) = requested.recv().await {
                // A session without a state is about to start and runs no prompt.
                let is_idle = handler.control.live_state().is_none_or(|live| live.state.is_idle());
                let changes_session = job.changes_session();
                let response = match job {
                    Job::Release => {
                        if answer.send(TypedResult::Released).is_err() {
                            return;
                        }
                        continue;
                    }
                    Job::Perform(verb) => handler.answer(ChatRequest { id: Value::Null, verb }).await,
                    Job::Inquire(inquiry) => handler.answer_inquiry(inquiry).await,
                    Job::Submit(input, images, delivery) => handler.submit_with_images(input, &images, delivery).await,
                    Job::SubmitWithout(input, images, parts) => {
                        let send = async {
                            let input = handler.read_images(input, &images).await?;
                            handler.submit_without(input, &parts).await
                        };
                        ChatResponse::of_prompt(send.await)
                    }
                    Job::Switch(verb, children) => handler.switch(verb, children).await,
                };
                let sent = response.data.as_ref().and_then(|data| data.get("message")?.as_str()).map(str::to_owned);
                if answer.send(TypedResult::Response(Box::new(response))).is_err() {
                    return;
                }
                // The next command must act on the changed session, so it waits for the change.
                if let Some(sent) = sent.filter(|_| changes_session && is_idle) {
                    handler.control.settled(&sent).await;
                }
                counted.fetch_sub(usize::from(changes_session), Ordering::AcqRel);
            }
        });
        Self { jobs, responses, changes }
    }

    /// Queues a command, which is performed after all commands that were typed before it.
    pub(super) fn perform(&self, verb: ChatVerb) {
        let job = Job::Perform(verb);
        self.changes.fetch_add(usize::from(job.changes_session()), Ordering::AcqRel);
        // The receiving task lives as long as the terminal, so the send succeeds.
        self.jobs.send(job).ok();
    }

    /// Returns true if a command that changes the session has not taken effect.
    pub(super) fn is_changing(&self) -> bool {
        self.changes.load(Ordering::Acquire) > 0
    }

    /// Queues a report. [`Self::next`] returns the report ([`TypedResult::Released`]) after the commands that were
    /// typed before it have taken effect.
    pub(super) fn report_release(&self) {
        self.jobs.send(Job::Release).ok();
    }

    /// Queues a message with images. After the commands before it, the task reads and stores the images, and submits
    /// the message.
    pub(super) fn submit(&self, input: UserInput, images: Vec<PathBuf>, delivery: Delivery) {
        self.jobs.send(Job::Submit(input, images, delivery)).ok();
    }

    /// Queues a message that is sent once without these parts of the context. After the commands before it, the task
    /// reads and stores the images, and submits the message.
    pub(super) fn submit_without(&self, input: UserInput, images: Vec<PathBuf>, parts: Vec<String>) {
        self.jobs.send(Job::SubmitWithout(input, images, parts)).ok();
    }

    /// Queues a question about the session, which is answered after all commands that were typed before it.
    pub(super) fn inquire(&self, inquiry: Inquiry) {
        self.jobs.send(Job::Inquire(inquiry)).ok();
    }

    /// Queues the change to another session. The change is performed after all commands that were typed before it.
    /// `children` determines the treatment of children that still run.
    pub(super) fn switch(&self, verb: ChatVerb, children: LeftChildren) {
        self.jobs.send(Job::Switch(verb, children)).ok();
    }

    /// Waits for the next response to a typed command. Never completes if no further response can come.
    pub(super) async fn next(&mut self) -> TypedResult {
        match self.responses.recv().await {
            Some(response) => response,
            None => std::future::pending().await,
        }
    }
}
