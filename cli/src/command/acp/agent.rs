//! The agent: requests of the client, and the sessions that it has opened.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, CloseSessionRequest, CloseSessionResponse, Implementation,
    InitializeRequest, InitializeResponse, ListSessionsRequest, ListSessionsResponse, LoadSessionRequest,
    LoadSessionResponse, NewSessionRequest, NewSessionResponse, PromptCapabilities, PromptRequest, PromptResponse,
    ResumeSessionRequest, ResumeSessionResponse, SessionCapabilities, SessionCloseCapabilities, SessionId, SessionInfo,
    SessionListCapabilities, SessionNotification, SessionResumeCapabilities,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Error, on_receive_notification, on_receive_request};
use rye::{Approvals, Engine, EngineBuilder, SessionRequest};
use rye_compiler::plan::PlanMode;
use rye_engine::event::{ControlMessage, Delivery, Event, EventBody, ThreadHead};
use rye_engine::session_tree::session_rows;
use rye_engine::store::StoreError;
use rye_engine::thread::Status;
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::Threads;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::AcpArgs;
use super::lines::standard_streams;
use super::map::{UpdateMapper, prompt_text};
use super::session_task::{SessionCommand, SessionTask};
use crate::CommandError;
use crate::command::chat::DEFAULT_DIRECTIVE;
use crate::command::chat::requests::RequestHandler;
use crate::command::run::watch::StopSignals;
use crate::command::run::{compile_directive, sandbox};
use crate::present::format_date;
use crate::report::Printer;
use crate::thread_reader::ThreadReader;
use crate::workspace::Spaces;

/// Maximum number of sessions in a response.
const PAGE_SIZE: usize = 50;

/// The sessions and projects of a connection.
struct RyeAgent {
    /// The arguments and the output of the command, used by one compilation at a time.
    settings: Mutex<(AcpArgs, Printer)>,
    script: Option<PathBuf>,
    sessions: Mutex<BTreeMap<String, UnboundedSender<SessionCommand>>>,
    engines: tokio::sync::Mutex<BTreeMap<PathBuf, Engine>>,
}

/// Serves the client on stdin and stdout until the end of the input or a stop signal, then closes the sessions. A
/// second signal kills the threads of the sessions.
pub async fn serve(args: AcpArgs, report: Printer) -> Result<(), Error> {
    let mut signals = StopSignals::install(&report);
    let (sessions, engines) = (Mutex::default(), tokio::sync::Mutex::default());
    let script = args.script.clone();
    let agent = Arc::new(RyeAgent { settings: Mutex::new((args, report)), script, sessions, engines });
    let [new, load, resume, list, close, prompt, cancel] = std::array::from_fn(|_| Arc::clone(&agent));
    let connection = Agent
        .v1()
        .name("rye")
        .on_receive_request(
            async move |_: InitializeRequest, responder, _| responder.respond(initialize()),
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: NewSessionRequest, responder, connection: ConnectionTo<Client>| {
                let (agent, cx) = (Arc::clone(&new), connection.clone());
                connection.spawn(async move {
                    let opened = Arc::clone(&agent).new_session(request, cx).await;
                    let id = opened.as_ref().ok().map(|opened| opened.session_id.clone());
                    responder.respond_with_result(opened)?;
                    agent.announce_commands(id.as_ref());
                    Ok(())
                })
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: LoadSessionRequest, responder, connection: ConnectionTo<Client>| {
                let (agent, cx) = (Arc::clone(&load), connection.clone());
                connection.spawn(async move {
                    let id = request.session_id.clone();
                    let opened = Arc::clone(&agent).reopen(request.session_id, request.cwd, cx, true).await;
                    responder.respond_with_result(opened.map(|()| LoadSessionResponse::new()))?;
                    agent.announce_commands(Some(&id));
                    Ok(())
                })
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ResumeSessionRequest, responder, connection: ConnectionTo<Client>| {
                let (agent, cx) = (Arc::clone(&resume), connection.clone());
                connection.spawn(async move {
                    let id = request.session_id.clone();
                    let opened = Arc::clone(&agent).reopen(request.session_id, request.cwd, cx, false).await;
                    responder.respond_with_result(opened.map(|()| ResumeSessionResponse::new()))?;
                    agent.announce_commands(Some(&id));
                    Ok(())
                })
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ListSessionsRequest, responder, _| {
                responder.respond_with_result(list.list_sessions(&request))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: CloseSessionRequest, responder, _| {
                let known = close.lock().remove(&*request.session_id.0);
                let sent = known.is_some_and(|session| session.send(SessionCommand::Close).is_ok());
                let unknown = || unknown_session(&request.session_id);
                responder.respond_with_result(sent.then(CloseSessionResponse::new).ok_or_else(unknown))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, _| prompt.prompt(&request, responder),
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |request: CancelNotification, _| {
                if let Some(session) = cancel.lock().get(&*request.session_id.0) {
                    session.send(SessionCommand::Cancel).ok();
                }
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_to(standard_streams());
    let served = tokio::select! {
        served = connection => served,
        () = next_signal(&mut signals) => Ok(()),
    };
    agent.close_sessions(&mut signals).await;
    match served {
        Err(error) if is_closed_by_client(&error) => Ok(()),
        served => served,
    }
}

impl RyeAgent {
    /// Closes all sessions and waits for their end. A stop signal kills the threads of the sessions.
    async fn close_sessions(&self, signals: &mut Option<StopSignals>) {
        // This drops the senders of all session tasks. A task without a sender closes its session.
        self.lock().clear();
        let engines: Vec<Engine> = self.engines.lock().await.values().cloned().collect();
        let mut closed = std::pin::pin!(async {
            for engine in &engines {
                engine.wait_idle().await;
                engine.inner().wait_programs_ended().await;
                engine.inner().remove_owner_file();
            }
        });
        loop {
            tokio::select! {
                () = &mut closed => break,
                () = next_signal(signals) => {
                    for engine in &engines {
                        engine.inner().broadcast(&ControlMessage::Kill);
                    }
                }
            }
        }
    }
}

/// Waits for the next stop signal.
async fn next_signal(signals: &mut Option<StopSignals>) {
    match signals {
        Some(signals) => drop(signals.next().await),
        None => std::future::pending().await,
    }
}

/// Returns true if a message could not be written because the client has closed its end. The texts of the errors are
/// compared, because the protocol library provides only the text.
fn is_closed_by_client(error: &Error) -> bool {
    let closed = std::io::Error::from(rustix::io::Errno::PIPE).to_string();
    error.data.as_ref().is_some_and(|data| data.as_str() == Some(closed.as_str()))
}

fn initialize() -> InitializeResponse {
    let sessions = SessionCapabilities::new()
        .list(SessionListCapabilities::new())
        .resume(SessionResumeCapabilities::new())
        .close(SessionCloseCapabilities::new());
    let capabilities = AgentCapabilities::new()
        .load_session(true)
        .prompt_capabilities(PromptCapabilities::new().embedded_context(true))
        .session_capabilities(sessions);
    InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(capabilities)
        .agent_info(Implementation::new("rye", env!("CARGO_PKG_VERSION")))
}

fn unknown_session(id: &SessionId) -> Error {
    Error::invalid_params().data(format!("unknown session `{id}`"))
}

/// Converts a failure of a command to a protocol error whose message includes the help.
fn request_error(failure: &CommandError) -> Error {
    let help = failure.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
    Error::internal_error().data(format!("{}{help}", failure.message))
}

fn engine_error(error: &impl ToString) -> Error {
    Error::internal_error().data(error.to_string())
}

impl RyeAgent {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, UnboundedSender<SessionCommand>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the list of commands to the client. The caller has already sent the session id to the client.
    fn announce_commands(&self, id: Option<&SessionId>) {
        if let Some(session) = id.and_then(|id| self.lock().get(&*id.0).cloned()) {
            session.send(SessionCommand::ListCommands).ok();
        }
    }

    /// Returns the engine of the project of a folder.
    async fn engine(&self, folder: &Path) -> Result<(Spaces, Engine), Error> {
        let spaces = find_project(folder).map_err(|failure| request_error(&failure))?;
        let mut engines = self.engines.lock().await;
        if let Some(engine) = engines.get(&spaces.project) {
            return Ok((spaces, engine.clone()));
        }
        let world = spaces.open().map_err(|failure| request_error(&failure))?;
        sandbox::enable_bubblewrap(&world, &spaces).map_err(|failure| request_error(&failure))?;
        let mut builder = EngineBuilder::new(&spaces.library_project()).approvals(Approvals::Ask);
        if let Some(script) = &self.script {
            builder = builder.script(script).map_err(|error| engine_error(&error))?;
        }
        let engine = builder.open().map_err(|error| engine_error(&error))?;
        engines.insert(spaces.project.clone(), engine.clone());
        Ok((spaces, engine))
    }

    async fn new_session(
        self: Arc<Self>,
        request: NewSessionRequest,
        connection: ConnectionTo<Client>,
    ) -> Result<NewSessionResponse, Error> {
        let (spaces, engine) = self.engine(&request.cwd).await?;
        let (agent, place) = (Arc::clone(&self), spaces.clone());
        let compiled = tokio::task::spawn_blocking(move || agent.compile(&place)).await;
        let start = compiled.map_err(|error| engine_error(&error))??;
        let id = self.open(&engine, &spaces, start, None, connection).await?;
        Ok(NewSessionResponse::new(id))
    }

    fn compile(&self, spaces: &Spaces) -> Result<SessionRequest, Error> {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let (args, report) = &*settings;
        let id = args.directive.as_deref().unwrap_or(DEFAULT_DIRECTIVE);
        let is_scripted = self.script.is_some();
        let compiled = compile_directive(id, &args.call, None, PlanMode::Chat, is_scripted, spaces, report);
        match compiled.map_err(|failure| request_error(&failure))? {
            Ok(compilation) => Ok(SessionRequest::start(*compilation)),
            Err(_) => Err(Error::internal_error().data(format!("`{id}` has errors: run `rye check {id}`"))),
        }
    }

    /// Opens a session and starts its task. `known` is the id of a reopened session in the requests of the client.
    async fn open(
        &self,
        engine: &Engine,
        spaces: &Spaces,
        request: SessionRequest,
        known: Option<SessionId>,
        connection: ConnectionTo<Client>,
    ) -> Result<SessionId, Error> {
        let mut session = engine.open(request).await.map_err(|error| engine_error(&error))?;
        let id = known.unwrap_or_else(|| SessionId::new(session.thread_id().as_str()));
        let events = session.subscribe();
        let plan = engine.inner().threads().parent(session.thread_id()).ok().flatten();
        let objects = engine.inner().threads().objects().clone();
        let mapper = UpdateMapper::new(plan.map_or(0, |parent| parent.plan().model.context_window))
            .with_files(spaces.project.clone(), objects);
        let (sender, commands) = unbounded_channel();
        self.lock().insert(id.to_string(), sender);
        let (control, engine, spaces) = (session.control(), engine.inner().clone(), spaces.clone());
        let requests = Arc::new(RequestHandler { control, engine, spaces, next: None, background: None });
        let session = Arc::new(session);
        let task = SessionTask { id: id.clone(), session, events, commands, connection, requests, mapper };
        tokio::spawn(task.run());
        Ok(id)
    }

    /// Opens an earlier session again. With `is_replay`, sends its conversation first.
    async fn reopen(
        &self,
        id: SessionId,
        folder: PathBuf,
        connection: ConnectionTo<Client>,
        is_replay: bool,
    ) -> Result<(), Error> {
        let (spaces, engine) = self.engine(&folder).await?;
        let thread = ThreadId::parse(&id.0).map_err(|_| unknown_session(&id))?;
        let threads = engine.inner().threads();
        // Since the client received `id`, another thread may have continued the session.
        let rows = session_rows(&threads, &thread).map_err(|_| unknown_session(&id))?;
        let thread = rows.last().map(|row| row.id.clone()).ok_or_else(|| unknown_session(&id))?;
        if is_replay {
            let events = conversation_events(&threads, &thread).map_err(|_| unknown_session(&id))?;
            let mut mapper = UpdateMapper::default().with_files(spaces.project.clone(), threads.objects().clone());
            for update in events.iter().flat_map(|event| mapper.event(&event.body, true)) {
                connection.send_notification(SessionNotification::new(id.clone(), update))?;
            }
        }
        if self.lock().get(&*id.0).is_some_and(|session| !session.is_closed()) {
            return Ok(());
        }
        self.open(&engine, &spaces, SessionRequest::recover(thread), Some(id), connection).await?;
        Ok(())
    }

    fn list_sessions(&self, request: &ListSessionsRequest) -> Result<ListSessionsResponse, Error> {
        let folder =
            request.cwd.clone().map_or_else(std::env::current_dir, Ok).map_err(|error| engine_error(&error))?;
        let spaces = find_project(&folder).map_err(|failure| request_error(&failure))?;
        let reader = ThreadReader::open(&spaces.project).map_err(|failure| request_error(&failure))?;
        let mut rows = reader.list().map_err(|error| engine_error(&error))?;
        rows.retain(|entry| {
            let is_session = entry.row.status == Status::Idle || self.lock().contains_key(entry.row.id.as_str());
            entry.row.parent.is_none() && is_session
        });
        rows.sort_by(|a, b| (b.row.updated_at, &b.row.id).cmp(&(a.row.updated_at, &a.row.id)));
        let first = request.cursor.as_deref().and_then(|cursor| cursor.parse().ok()).unwrap_or(0_usize);
        let more = (rows.len() > first + PAGE_SIZE).then(|| (first + PAGE_SIZE).to_string());
        let info = |id: &ThreadId, updated: i64| {
            SessionInfo::new(SessionId::new(id.as_str()), spaces.project.clone())
                .title(title(&spaces, id))
                .updated_at(format_date(updated))
        };
        let page = rows.iter().skip(first).take(PAGE_SIZE);
        let sessions = page.map(|entry| info(&entry.row.id, entry.row.updated_at)).collect();
        Ok(ListSessionsResponse::new(sessions).next_cursor(more))
    }

    fn prompt(&self, request: &PromptRequest, responder: Responder<PromptResponse>) -> Result<(), Error> {
        let text = match prompt_text(&request.prompt) {
            Ok(text) => text,
            Err(reason) => return responder.respond_with_error(Error::invalid_params().data(reason)),
        };
        let delivery = request.meta.as_ref().and_then(|meta| meta.get("rye")?.get("delivery")?.as_str());
        let delivery = if delivery == Some("steer") { Delivery::Steer } else { Delivery::Prompt };
        let sender = self.lock().get(&*request.session_id.0).cloned();
        let Some(sender) = sender else { return responder.respond_with_error(unknown_session(&request.session_id)) };
        let sent = sender.send(SessionCommand::Prompt { text, delivery, responder: Box::new(responder) });
        match sent {
            Ok(()) => Ok(()),
            Err(unsent) => match unsent.0 {
                SessionCommand::Prompt { responder, .. } => {
                    responder.respond_with_error(unknown_session(&request.session_id))
                }
                SessionCommand::Cancel | SessionCommand::ListCommands | SessionCommand::Close => Ok(()),
            },
        }
    }
}

/// Returns the events of a session's conversation in order: of each thread that was continued, the events up to the
/// place where the next thread continues it, then all events of the last thread.
fn conversation_events(threads: &Threads, last: &ThreadId) -> Result<Vec<Event>, StoreError> {
    let mut found: Vec<Event> = Vec::new();
    let (mut next, mut seen) = (Some((last.clone(), u64::MAX)), BTreeSet::new());
    while let Some((thread, through)) = next.take() {
        if !seen.insert(thread.clone()) {
            break;
        }
        let events = threads.transcript(&thread)?;
        let continues = ThreadHead::of(&events).continues;
        // A message that waited when this thread was started was accepted in an earlier thread and is sent in this
        // thread.
        let mut waited = Vec::new();
        if let Some(link) = continues.filter(|link| !link.queue.is_empty()) {
            let before = ThreadId::parse(link.after.as_ref().unwrap_or(&link.thread));
            let accepted = before.map_or_else(|_| Ok(Vec::new()), |before| threads.transcript(&before))?;
            waited.extend(accepted.into_iter().filter(|event| {
                let EventBody::UserInput(input) = &event.body else { return false };
                link.queue.iter().any(|message| message.id == input.id)
            }));
        }
        next = continues.and_then(|link| Some((ThreadId::parse(&link.thread).ok()?, link.at_seq)));
        let own = events.into_iter().filter(|event| event.seq <= through);
        found.splice(..0, waited.into_iter().chain(own));
    }
    Ok(found)
}

/// Finds the project of a folder: the nearest folder with `.ai`, starting at the folder itself.
fn find_project(folder: &Path) -> Result<Spaces, CommandError> {
    let project = folder.ancestors().find(|folder| folder.join(".ai").is_dir());
    Spaces::find(Some(project.unwrap_or(folder)))
}

/// Returns the first message of the user in a session.
fn title(spaces: &Spaces, id: &ThreadId) -> Option<String> {
    let events = rye_engine::threads::Threads::open(&spaces.project).ok()?.transcript(id).ok()?;
    let message =
        |body: &EventBody| if let EventBody::UserInput(input) = body { Some(input.raw.clone()) } else { None };
    events.iter().find_map(|event| message(&event.body)).map(|text| crate::present::truncate_line(&text, 80))
}
