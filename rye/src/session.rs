//! A running thread: live events, questions and answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rye_compiler::compile::Compilation;
use rye_compiler::plan::ApprovalOrigin;
use rye_engine::BoxFuture;
use rye_engine::control::ControlSender;
use rye_engine::engine::{
    ApprovalHandler, ApprovalRequest, Engine, EngineError, StartOptions, ThreadHandle, UserMessage,
};
use rye_engine::event::{Approval, ControlMessage, Delivery, Event, ImpliedRaise, QueuedMessage, UserInput};
use rye_engine::exchange::Delta;
use rye_engine::live::{EventStream, StreamEvent};
use rye_engine::preview::{self, CompactionPreview, ContextPart, Preview, preview_compaction};
use rye_engine::thread::RunResult;
use rye_engine::thread_id::ThreadId;
use tokio::sync::{mpsc, oneshot};

use crate::Error;

/// A request to open a session, with a new thread or with an existing thread that is recovered, resumed or forked.
pub struct SessionRequest(Request);

enum Request {
    Start { compilation: Box<Compilation>, options: Box<StartOptions> },
    Recover { thread: ThreadId, messages: Vec<ControlMessage> },
    Resume { thread: ThreadId, message: UserMessage },
    Fork { thread: ThreadId, turn: u64, message: UserMessage },
}

impl SessionRequest {
    /// Creates a request that starts a plan as a root thread.
    pub fn start(compilation: Compilation) -> Self {
        Self(Request::Start { compilation: Box::new(compilation), options: Box::default() })
    }

    /// Creates a request that starts a plan with images, a parent or inputs.
    pub fn start_with(compilation: Compilation, options: StartOptions) -> Self {
        Self(Request::Start { compilation: Box::new(compilation), options: Box::new(options) })
    }

    /// Creates a request that recovers an interrupted thread from its transcript.
    pub fn recover(thread: ThreadId) -> Self {
        Self::recover_with(thread, Vec::new())
    }

    /// Creates a request that recovers a thread and first delivers control messages, such as the answer to the approval
    /// request of a suspended thread.
    pub fn recover_with(thread: ThreadId, messages: Vec<ControlMessage>) -> Self {
        Self(Request::Recover { thread, messages })
    }

    /// Creates a request that resumes an ended thread: it starts a linked thread with a message.
    pub fn resume(thread: ThreadId, message: impl Into<UserMessage>) -> Self {
        Self(Request::Resume { thread, message: message.into() })
    }

    /// Creates a request that starts a thread from the end of turn number `turn` (from 1) of `thread`. `message` is the
    /// first message of the new thread.
    pub fn fork(thread: ThreadId, turn: u64, message: impl Into<UserMessage>) -> Self {
        Self(Request::Fork { thread, turn, message: message.into() })
    }

    pub(crate) async fn start_on(self, engine: &Engine) -> Result<ThreadHandle, EngineError> {
        match self.0 {
            Request::Start { compilation, options } => engine.start(&compilation, *options).await,
            Request::Recover { thread, messages } => engine.recover_with(&thread, messages).await,
            Request::Resume { thread, message } => engine.resume(&thread, message).await,
            Request::Fork { thread, turn, message } => engine.fork(&thread, turn, message).await,
        }
    }
}

/// A running thread with its children, and the requests that wait for a user.
pub struct Session {
    handle: ThreadHandle,
    engine: Engine,
    /// The event stream of the engine; `None` after the first subscriber has taken it.
    stream: Option<EventStream>,
    hub: Arc<Hub>,
    questions: Arc<Questions>,
}

/// The receipt of a submitted message: its id, and the price of the next request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The id of the message in its events, for [`Session::retract`].
    pub input: String,
    /// The price of the next request at the time of the submission.
    pub preview: Preview,
}

/// The number of a question, unique in its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuestionId(u64);

/// A request for an approval that waits for the user's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The id of the question, for [`Session::answer`].
    pub id: QuestionId,
    /// The thread that waits: the session's thread or one of its descendants.
    pub thread: ThreadId,
    /// True if a limit was reached; false if a call needs an approval.
    pub is_limit: bool,
    /// The subject of the question, as recorded in the transcript: the capability and the call, or the limit.
    pub what: String,
    /// The raise that [`Answer::Approve`] implies; `None` if the question is about a call, or if the reached limit
    /// cannot be raised.
    pub raise: Option<ImpliedRaise>,
}

/// The answer to a [`Question`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Approves the request: the call runs, or the reached limit is raised and the thread continues.
    Approve,
    /// Refuses the request: the model reads that the user refused the call, or the thread ends at the reached limit.
    Refuse,
    /// The thread ends as suspended and can be recovered later.
    Suspend,
}

/// A live event of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum LiveEvent {
    /// An event of a transcript: of the session's thread or of a descendant.
    Event {
        /// The thread that recorded the event.
        thread: ThreadId,
        /// The event as written in the transcript.
        event: Arc<Event>,
    },
    /// A piece of a streaming reply; not recorded, and dropped if the subscriber is slow.
    Delta {
        /// The thread that receives the reply.
        thread: ThreadId,
        /// A piece of the reply.
        delta: Delta,
    },
    /// A request that waits for [`Session::answer`].
    Question(Question),
}

/// A subscription to the live events of a session.
#[derive(Debug)]
pub struct LiveEvents {
    receiver: mpsc::UnboundedReceiver<LiveEvent>,
    queued: Arc<AtomicUsize>,
}

/// Maximum number of queued live events of a subscriber. While more are queued, deltas are dropped.
const MAX_QUEUED_ITEMS: usize = 1024;

/// The distributor of live events to the subscribers of a session.
#[derive(Debug, Default)]
struct Hub {
    subscribers: Mutex<Vec<Subscriber>>,
}

#[derive(Debug)]
struct Subscriber {
    sender: mpsc::UnboundedSender<LiveEvent>,
    queued: Arc<AtomicUsize>,
}

impl Hub {
    fn send(&self, event: &LiveEvent) {
        lock(&self.subscribers).retain(|subscriber| {
            let is_full = subscriber.queued.load(Ordering::Relaxed) > MAX_QUEUED_ITEMS;
            if is_full && matches!(event, LiveEvent::Delta { .. }) {
                return true;
            }
            subscriber.queued.fetch_add(1, Ordering::Relaxed);
            subscriber.sender.send(event.clone()).is_ok()
        });
    }

    fn subscribe(&self, first: Vec<LiveEvent>) -> LiveEvents {
        let (sender, receiver) = mpsc::unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(first.len()));
        for event in first {
            // Sending cannot fail, because the receiver exists.
            let _ = sender.send(event);
        }
        lock(&self.subscribers).push(Subscriber { sender, queued: Arc::clone(&queued) });
        LiveEvents { receiver, queued }
    }

    /// Ends all subscriptions.
    fn close(&self) {
        lock(&self.subscribers).clear();
    }
}

impl LiveEvents {
    /// Waits for the next live event; returns `None` once the thread and all of its descendants have ended.
    pub async fn next(&mut self) -> Option<LiveEvent> {
        let event = self.receiver.recv().await?;
        self.queued.fetch_sub(1, Ordering::Relaxed);
        Some(event)
    }
}

impl Session {
    pub(crate) fn new(mut handle: ThreadHandle, engine: Engine, questions: Arc<Questions>) -> Self {
        let stream = Some(handle.live.take());
        let hub = Arc::new(Hub::default());
        questions.register(&hub);
        Self { handle, engine, stream, hub, questions }
    }

    /// Returns the id of the session's thread.
    pub fn thread_id(&self) -> &ThreadId {
        &self.handle.thread_id
    }

    /// Subscribes to the live events. The first subscription receives all events from the start of the thread. A later
    /// subscription receives the events that follow the call of `subscribe`. Every subscription also receives the
    /// questions that are open at this time. Must be called within a Tokio runtime.
    pub fn subscribe(&mut self) -> LiveEvents {
        let open = self.questions.open_questions().into_iter().map(LiveEvent::Question).collect();
        let events = self.hub.subscribe(open);
        if let Some(mut stream) = self.stream.take() {
            let hub = Arc::clone(&self.hub);
            tokio::spawn(async move {
                while let Some(item) = stream.next().await {
                    hub.send(&match item {
                        StreamEvent::Event { thread, event } => LiveEvent::Event { thread, event },
                        StreamEvent::Delta { thread, delta } => LiveEvent::Delta { thread, delta },
                    });
                }
                hub.close();
            });
        }
        events
    }

    /// Returns the sender of control messages to the session's thread, and to each thread that continues it.
    pub fn control(&self) -> ControlSender {
        self.handle.control()
    }

    /// Answers a question. Returns false if the question is no longer open.
    pub fn answer(&self, question: QuestionId, answer: Answer) -> bool {
        self.questions.answer(question, answer)
    }

    /// Submits a message to a chat ([`CompileRequest::chat`](crate::CompileRequest::chat)). The message passes the
    /// `input` hooks and the expansion of skills and prompt templates. The event `user_input` with the id of the
    /// receipt states the result. Returns `None` if the thread has ended.
    pub async fn submit(&self, input: impl Into<UserInput>, delivery: Delivery) -> Option<Receipt> {
        let input = input.into();
        let preview = self.preview(&input).await.unwrap_or_default();
        let id = self.handle.control().submit(input, delivery)?;
        Some(Receipt { input: id, preview })
    }

    /// Returns the estimated tokens and cost of the next request if it contains the message `input`. Sends nothing.
    /// `None` if the thread is not a chat, or if the chat has not started yet.
    pub async fn preview(&self, input: &UserInput) -> Option<Preview> {
        let expanded = self.engine.expand(&input.text).await.ok().and_then(|expansion| expansion.text);
        let input = UserInput { text: expanded.unwrap_or_else(|| input.text.clone()), ..input.clone() };
        Some(preview::preview(&self.handle.control().live_state()?, &input))
    }

    /// Returns the parts of the next request with their tokens; empty if the thread is not a chat.
    pub fn context(&self) -> Vec<ContextPart> {
        self.handle.control().live_state().as_ref().map(preview::context_parts).unwrap_or_default()
    }

    /// Returns the messages that wait for their delivery, in the order in which the model gets them.
    pub fn queue(&self) -> Vec<QueuedMessage> {
        let live = self.handle.control().live_state();
        live.iter().flat_map(|live| live.state.queued_messages()).cloned().collect()
    }

    /// Withdraws a message that waits for its delivery; `input` is the id of the message. The event `retracted`
    /// confirms the withdrawal.
    pub fn retract(&self, input: impl Into<String>) {
        self.handle.send(ControlMessage::Retract { input: Some(input.into()) });
    }

    /// Ends the current prompt of a chat: stops its tool calls and cuts its model call, which is settled at its worst
    /// case.
    pub fn interrupt(&self) {
        self.handle.send(ControlMessage::Interrupt);
    }

    /// Closes a chat once no prompt waits. [`Session::join`] then returns the status `idle`, and
    /// [`SessionRequest::recover`] opens the session again.
    pub fn close(&self) {
        self.handle.send(ControlMessage::Close);
    }

    /// Continues a chat with another plan, at the next idle step. The conversation and the remaining budget stay.
    ///
    /// # Errors
    ///
    /// [`Error::Engine`]: the user does not trust a trust requirement of the plan, or the store cannot be written.
    pub async fn replan(&self, compilation: &Compilation) -> Result<(), Error> {
        let plan = self.engine.store_plan(compilation).await?;
        self.handle.send(ControlMessage::Replan { plan });
        Ok(())
    }

    /// Forks a chat at the next idle step: the chat continues in a new thread, with the conversation before prompt
    /// number `prompt` (from 1). The earlier threads remain stored.
    pub fn fork(&self, prompt: u64) {
        self.handle.send(ControlMessage::Fork { prompt, thread: None });
    }

    /// Replaces the conversation of a chat with a summary, at the next idle step. `focus` is a subject that the summary
    /// covers in detail. Returns the effect and the expected price; `None` if there is nothing to compact, because the
    /// session has no messages yet.
    pub fn compact(&self, focus: Option<String>) -> Option<CompactionPreview> {
        let preview = preview_compaction(&self.handle.control().live_state()?, focus.clone())?;
        self.handle.send(ControlMessage::Compact { focus });
        Some(preview)
    }

    /// Runs a command of the user with the tool `rye/bash/bash`. The next prompt sends the output of the command to the
    /// model, unless `excluded` is true.
    pub fn run_command(&self, command: impl Into<String>, excluded: bool) {
        self.handle.send(ControlMessage::Shell { command: command.into(), excluded });
    }

    /// Sets the title of a chat.
    pub fn name(&self, name: impl Into<String>) {
        self.handle.send(ControlMessage::Name { name: name.into() });
    }

    /// Adds a message that the model reads before its next turn; calls that have not started are skipped.
    pub fn steer(&self, text: impl Into<String>) {
        self.handle.send(ControlMessage::Steer { text: text.into() });
    }

    /// Adds a message that the model reads when it would otherwise stop.
    pub fn follow_up(&self, text: impl Into<String>) {
        self.handle.send(ControlMessage::FollowUp { text: text.into() });
    }

    /// Sends a control message of any kind to the thread, such as a raised limit.
    pub fn send(&self, message: ControlMessage) {
        self.handle.send(message);
    }

    /// Cancels the thread: it finishes the current step, then stops.
    pub fn cancel(&self) {
        self.handle.cancel();
    }

    /// Kills the thread: a call in progress is cut and settled at its worst case.
    pub fn kill(&self) {
        self.handle.kill();
    }

    /// Waits for the end of the thread and of its continuations.
    pub async fn join(&self) -> RunResult {
        self.handle.join().await
    }
}

/// The questions of an engine that wait for an answer of the embedding program.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    state: Mutex<QuestionState>,
}

#[derive(Debug, Default)]
struct QuestionState {
    last: u64,
    open: BTreeMap<QuestionId, (Question, oneshot::Sender<Answer>)>,
    hubs: Vec<std::sync::Weak<Hub>>,
}

impl Questions {
    fn register(&self, hub: &Arc<Hub>) {
        let mut state = lock(&self.state);
        state.hubs.retain(|hub| hub.strong_count() > 0);
        state.hubs.push(Arc::downgrade(hub));
    }

    fn open_questions(&self) -> Vec<Question> {
        lock(&self.state).open.values().map(|(question, _)| question.clone()).collect()
    }

    fn answer(&self, id: QuestionId, answer: Answer) -> bool {
        let open = lock(&self.state).open.remove(&id);
        open.is_some_and(|(_, sender)| sender.send(answer).is_ok())
    }

    /// Opens a question and sends it to all subscribers. Returns the question's id, and a receiver that gets the
    /// answer.
    fn open(&self, request: ApprovalRequest<'_>) -> (QuestionId, oneshot::Receiver<Answer>) {
        let (sender, receiver) = oneshot::channel();
        let (question, hubs) = {
            let mut state = lock(&self.state);
            state.last += 1;
            let question = Question {
                id: QuestionId(state.last),
                thread: request.thread.clone(),
                is_limit: request.origin == ApprovalOrigin::Limit,
                what: request.what.to_owned(),
                raise: request.raise.cloned(),
            };
            state.open.insert(question.id, (question.clone(), sender));
            (question, state.hubs.clone())
        };
        for hub in hubs.iter().filter_map(std::sync::Weak::upgrade) {
            hub.send(&LiveEvent::Question(question.clone()));
        }
        (question.id, receiver)
    }
}

/// A guard that removes a question from the open questions as soon as the call that asked it no longer waits for an
/// answer.
struct OpenQuestion<'q> {
    questions: &'q Questions,
    id: QuestionId,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        lock(&self.questions.state).open.remove(&self.id);
    }
}

impl ApprovalHandler for Questions {
    fn ask<'a>(&'a self, request: ApprovalRequest<'a>) -> BoxFuture<'a, Approval> {
        Box::pin(async move {
            let (id, receiver) = self.open(request);
            let _open = OpenQuestion { questions: self, id };
            match receiver.await {
                Ok(Answer::Approve) => Approval::Approved,
                Ok(Answer::Refuse) => Approval::Refused,
                Ok(Answer::Suspend) | Err(_) => Approval::Suspended,
            }
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
