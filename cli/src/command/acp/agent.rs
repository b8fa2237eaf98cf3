//! The agent: answers the requests of the client, and owns the sessions that the client has opened.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, ClientCapabilities, Implementation, InitializeResponse, ListSessionsRequest,
    ListSessionsResponse, NewSessionRequest, NewSessionResponse, PromptCapabilities, PromptRequest, PromptResponse,
    RequestId, SessionCapabilities, SessionCloseCapabilities, SessionDeleteCapabilities, SessionId,
    SessionListCapabilities, SessionNotification, SessionResumeCapabilities,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Client, Error};
use rye::{Approvals, Engine, EngineBuilder, SessionRequest};
use rye_compiler::compile::Compilation;
use rye_engine::engine::StartOptions;
use rye_engine::event::{ControlMessage, Delivery};
use rye_engine::session_tree::session_rows;
use rye_engine::thread_id::ThreadId;
use serde_json::{Map, Value};
use tokio::sync::mpsc::unbounded_channel;

use super::AcpArgs;
use super::closing::{self, ClosingSessions};
use super::connection::connect;
use super::disconnection::{Disconnection, PromptCount, PromptResponder};
use super::inputs;
use super::map::UpdateMapper;
use super::open_session::OpenSession;
use super::prompt::prompt_content;
use super::session_task::{SessionCommand, SessionTask};
use super::stored::{conversation_events, delete_session, list_sessions};
use crate::CommandError;
use crate::command::chat::DEFAULT_DIRECTIVE;
use crate::command::chat::replan::{SentMode, SentPlan};
use crate::command::chat::requests::RequestHandler;
use crate::command::providers::usable::require_usable_model;
use crate::command::run::watch::{StopSignal, StopSignals};
use crate::command::run::{compile_chat, sandbox};
use crate::report::Printer;
use crate::report::printable;
use crate::workspace::Spaces;

/// The agent behind one connection to a client: its settings, and the sessions and projects that the client has opened.
pub struct RyeAgent {
    /// The arguments and the printer of the command. A compilation locks them, so only one compilation runs at a time.
    settings: Mutex<(AcpArgs, Printer)>,
    script: Option<PathBuf>,
    /// The capabilities that the client has announced.
    pub client: Mutex<ClientCapabilities>,
    sessions: Mutex<BTreeMap<String, OpenSession>>,
    engines: tokio::sync::Mutex<BTreeMap<PathBuf, Engine>>,
    /// Locked while a session opens, so that no two sessions get the same id.
    opening: tokio::sync::Mutex<()>,
    pub disconnection: Disconnection,
    open_prompts: PromptCount,
}

/// Serves the client on stdin and stdout until the end of the input or a stop signal, then closes the sessions. A
/// second signal kills the threads of the sessions.
pub async fn serve(args: AcpArgs, report: Printer) -> Result<(), CommandError> {
    let mut signals = StopSignals::install(&report);
    let script = args.script.clone();
    let agent = Arc::new(RyeAgent {
        settings: Mutex::new((args, report)),
        script,
        client: Mutex::default(),
        sessions: Mutex::default(),
        engines: tokio::sync::Mutex::default(),
        opening: tokio::sync::Mutex::default(),
        disconnection: Disconnection::default(),
        open_prompts: PromptCount::default(),
    });
    let (served, is_stopped) = {
        let mut connection = std::pin::pin!(connect(&agent));
        let ended = tokio::select! {
            served = &mut connection => Some(served),
            () = agent.disconnection.wait_drained() => Some(Ok(())),
            _ = next_signal(&mut signals) => None,
        };
        if let Some(served) = ended {
            (served, false)
        } else {
            agent.disconnection.set();
            tokio::select! {
                served = connection => (served, true),
                () = agent.disconnection.wait_drained() => (Ok(()), true),
            }
        }
    };
    agent.disconnection.set();
    if !agent.close_sessions(&mut signals, is_stopped).await {
        // The engines are not dropped, because dropping an engine waits for its threads.
        std::mem::forget(agent);
        return Err(CommandError::failed("threads of the sessions did not end within 10 s of a kill").with_help(
            "`rye threads list` shows them as orphaned; `rye threads kill THREAD` ends one, and `rye run --resume \
             THREAD` resumes it",
        ));
    }
    match served {
        Err(error) if is_closed_by_client(&error) => Ok(()),
        served => served.map_err(|error| CommandError::failed(format!("the connection failed: {error}"))),
    }
}

async fn next_signal(signals: &mut Option<StopSignals>) -> StopSignal {
    match signals {
        Some(signals) => signals.next().await,
        None => std::future::pending().await,
    }
}

/// The engines of the agent while it closes all of their sessions.
struct ClosingEngines {
    engines: Vec<Engine>,
    /// The sessions that `close_directly` has closed, so that a further call does not interrupt them again.
    closed: Mutex<BTreeSet<ThreadId>>,
}

impl ClosingSessions for ClosingEngines {
    async fn wait_closed(&self) {
        for engine in &self.engines {
            engine.wait_idle().await;
            engine.inner().wait_programs_ended().await;
            engine.inner().remove_owner_file();
        }
    }

    fn close_directly(&self) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        for engine in &self.engines {
            for thread in engine.inner().running_threads() {
                // Children are not closed here: a child ends with its parent, or at its own limits.
                let is_child = engine
                    .inner()
                    .threads()
                    .show(&thread)
                    .is_ok_and(|shown| shown.is_some_and(|shown| shown.row.parent.is_some()));
                if !is_child && closed.insert(thread.clone()) {
                    engine.inner().send_to(&thread, &ControlMessage::Interrupt);
                    engine.inner().send_to(&thread, &ControlMessage::Close);
                }
            }
        }
    }

    fn kill(&self) {
        for engine in &self.engines {
            engine.inner().broadcast(&ControlMessage::Kill);
        }
    }
}

/// Returns true if a message could not be written because the client has closed its end. The texts of the errors are
/// compared, because the protocol library provides only the text.
fn is_closed_by_client(error: &Error) -> bool {
    let closed = std::io::Error::from(rustix::io::Errno::PIPE).to_string();
    error.data.as_ref().is_some_and(|data| data.as_str() == Some(closed.as_str()))
}

/// Returns the response to the request `initialize`: the capabilities of this agent.
pub fn initialize() -> InitializeResponse {
    let sessions = SessionCapabilities::new()
        .list(SessionListCapabilities::new())
        .resume(SessionResumeCapabilities::new())
        .close(SessionCloseCapabilities::new())
        .delete(SessionDeleteCapabilities::new());
    let capabilities = AgentCapabilities::new()
        .load_session(true)
        // The agent announces images even if a session's model accepts none; a prompt with images then gets an error.
        .prompt_capabilities(PromptCapabilities::new().embedded_context(true).image(true))
        .session_capabilities(sessions);
    InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(capabilities)
        .agent_info(Implementation::new("rye", env!("CARGO_PKG_VERSION")))
}

fn unknown_session(id: &SessionId) -> Error {
    invalid(&format!("unknown session `{id}`"))
}

/// Returns the protocol error "invalid params" for a request that cannot be performed, with the reason.
pub fn invalid(reason: &str) -> Error {
    Error::invalid_params().data(reason.to_owned())
}

/// Adds the message and the help of a failed command to a protocol error.
fn with_help(error: Error, failure: &CommandError) -> Error {
    let help = failure.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
    error.data(format!("{}{help}", failure.message))
}

/// Returns the error for a folder that is missing or belongs to no project. Clients show the message, so for a folder
/// without a project, the message names the command that creates one.
fn no_project(folder: &Path, failure: &CommandError) -> Error {
    let mut error = Error::invalid_params();
    if !folder.is_dir() {
        return with_help(error, failure);
    }
    error.message = format!("no rye project: run `rye init` in {}", printable(&folder.display().to_string()));
    with_help(error, failure)
}

fn request_error(failure: &CommandError) -> Error {
    with_help(Error::internal_error(), failure)
}

/// Returns a message that lists the errors that prevent the directive `id` from starting a session. The message
/// contains at most five of `messages`, and the number of the others.
fn describe_errors(id: &str, messages: &[String]) -> String {
    const MOST: usize = 5;
    let shown: Vec<&str> = messages.iter().take(MOST).map(String::as_str).collect();
    let more = messages.len().saturating_sub(MOST);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("`{id}` cannot start: {}{more}", shown.join("; "))
}

fn engine_error(error: &impl ToString) -> Error {
    Error::internal_error().data(error.to_string())
}

impl RyeAgent {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, OpenSession>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the open session with this id; an error if there is none.
    pub fn session(&self, id: &SessionId) -> Result<OpenSession, Error> {
        self.lock().get(&*id.0).cloned().ok_or_else(|| unknown_session(id))
    }

    /// Sends `SessionCommand::Close` to all sessions, which interrupts their prompts. Then waits for a limited time
    /// until each prompt has its response.
    pub async fn answer_open_prompts(&self) {
        for session in self.lock().values() {
            session.send(SessionCommand::Close).ok();
        }
        self.open_prompts.wait_answered().await;
    }

    /// Closes all sessions and waits for their end. Returns false if threads do not end even after a kill.
    async fn close_sessions(&self, signals: &mut Option<StopSignals>, is_stopped: bool) -> bool {
        for session in std::mem::take(&mut *self.lock()).into_values() {
            session.send(SessionCommand::Close).ok();
        }
        let engines: Vec<Engine> = self.engines.lock().await.values().cloned().collect();
        let sessions = ClosingEngines { engines, closed: Mutex::default() };
        closing::close(&sessions, is_stopped, async || next_signal(signals).await, tokio::time::sleep).await
    }

    /// Sends the list of commands of an open session to the client. The caller first sends the response that names the
    /// session, because a client does not know the session before that response. Does nothing if `id` is `None` or
    /// names no open session.
    pub fn announce_commands(&self, id: Option<&SessionId>) {
        if let Some(Ok(session)) = id.map(|id| self.session(id)) {
            session.send(SessionCommand::ListCommands).ok();
        }
    }

    /// Returns the project that contains a folder, and its engine. Opens the engine if no earlier request has opened
    /// it.
    async fn engine(&self, folder: &Path) -> Result<(Spaces, Engine), Error> {
        let spaces = find_project_of(folder)?;
        let mut engines = self.engines.lock().await;
        if let Some(engine) = engines.get(&spaces.project) {
            return Ok((spaces, engine.clone()));
        }
        let world = spaces.open().map_err(|failure| request_error(&failure))?;
        sandbox::apply_run_settings(&world, &spaces).map_err(|failure| request_error(&failure))?;
        let mut builder = EngineBuilder::new(&spaces.library_project()).approvals(Approvals::Ask);
        if let Some(script) = &self.script {
            builder = builder.script(script).map_err(|error| engine_error(&error))?;
        }
        let engine = builder.open().map_err(|error| engine_error(&error))?;
        engines.insert(spaces.project.clone(), engine.clone());
        Ok((spaces, engine))
    }

    pub async fn new_session(
        self: &Arc<Self>,
        request: NewSessionRequest,
        id: RequestId,
        connection: ConnectionTo<Client>,
    ) -> Result<NewSessionResponse, Error> {
        let (spaces, engine) = self.engine(&request.cwd).await?;
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let directive = {
            let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
            (settings.0.directive.clone().unwrap_or_else(|| DEFAULT_DIRECTIVE.to_owned()), settings.0.call.clone())
        };
        let missing =
            inputs::missing(&directive.0, &directive.1, &spaces).map_err(|failure| request_error(&failure))?;
        let given = if missing.is_empty() {
            Map::new()
        } else {
            inputs::request(&directive.0, missing, id, &client, &connection).await?
        };
        let (agent, place) = (Arc::clone(self), spaces.clone());
        let compiled = tokio::task::spawn_blocking(move || agent.compile(&place, given)).await;
        let start = compiled.map_err(|error| engine_error(&error))??;
        let _opening = self.opening.lock().await;
        // A new session must not get the id of any open session of the connection, even of another project.
        let taken = self.lock().keys().filter_map(|id| ThreadId::parse(id).ok()).collect();
        let start = SessionRequest::start_with(start, StartOptions { taken, ..StartOptions::default() });
        let session = self.open(&engine, &spaces, start, None, connection).await?;
        session.report_unused_servers(&request.mcp_servers);
        let response = NewSessionResponse::new(session.id.clone());
        Ok(response.modes(session.modes()).config_options(session.options()))
    }

    /// Compiles the directive of new sessions. `given` holds inputs in addition to those of the command line.
    fn compile(&self, spaces: &Spaces, given: Map<String, Value>) -> Result<Compilation, Error> {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let (args, report) = &*settings;
        let id = args.directive.as_deref().unwrap_or(DEFAULT_DIRECTIVE);
        let is_scripted = self.script.is_some();
        let call = args.call.clone().with_inputs(given);
        let compiled = compile_chat(id, (&call, &args.session), is_scripted, spaces, report);
        match compiled.map_err(|failure| request_error(&failure))? {
            Ok(compilation) => {
                if !is_scripted {
                    let usable = require_usable_model(&compilation.plan.model, spaces);
                    usable.map_err(|failure| with_help(Error::auth_required(), &failure))?;
                }
                Ok(*compilation)
            }
            Err(errors) => Err(Error::internal_error().data(describe_errors(id, &errors.messages))),
        }
    }

    /// Opens a session and starts its task. `known` is the id under which the client reopens a session; `None` for a
    /// new session, which gets the id of its thread.
    async fn open(
        &self,
        engine: &Engine,
        spaces: &Spaces,
        request: SessionRequest,
        known: Option<SessionId>,
        connection: ConnectionTo<Client>,
    ) -> Result<OpenSession, Error> {
        let mut session = engine.open(request).await.map_err(|error| engine_error(&error))?;
        let id = known.unwrap_or_else(|| SessionId::new(session.thread_id().as_str()));
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).session.clone().unwrap_or_default();
        let events = session.subscribe();
        let plan = engine.inner().threads().parent(session.thread_id()).ok().flatten();
        let objects = engine.inner().threads().objects().clone();
        let mapper = UpdateMapper::new(plan.map_or(0, |parent| parent.plan().model.context_window))
            .with_files(spaces.project.clone(), objects)
            .for_client(&client);
        let (sender, commands) = unbounded_channel();
        let (control, engine, spaces) = (session.control(), engine.inner().clone(), spaces.clone());
        let requests = Arc::new(RequestHandler {
            control,
            engine,
            spaces,
            next: None,
            background: None,
            answered: Mutex::default(),
            sent_plan: SentPlan::default(),
            sent_mode: SentMode::default(),
        });
        let disconnection = self.disconnection.clone();
        let open = OpenSession::new(id, sender, requests, (connection, disconnection), &client);
        self.lock().insert(open.id.to_string(), open.clone());
        let task = SessionTask { open: open.clone(), session: Arc::new(session), events, commands, mapper };
        open.started(tokio::spawn(task.run()));
        open.wait_for_start().await;
        Ok(open)
    }

    /// Opens an earlier session again. If `is_replay` is true, first sends the conversation of the session to the
    /// client.
    pub async fn reopen(
        &self,
        id: SessionId,
        folder: PathBuf,
        connection: ConnectionTo<Client>,
        is_replay: bool,
    ) -> Result<OpenSession, Error> {
        let (spaces, engine) = self.engine(&folder).await?;
        let thread = ThreadId::parse(&id.0).map_err(|_| unknown_session(&id))?;
        let _opening = self.opening.lock().await;
        let open = self.lock().get(&*id.0).filter(|session| !session.is_closed()).cloned();
        if let Some(other) = open.as_ref().filter(|open| open.requests.spaces.project != spaces.project) {
            let folder = other.requests.spaces.project.display();
            return Err(invalid(&format!("a session `{id}` of the project `{folder}` is open: close it first")));
        }
        let threads = engine.inner().threads();
        // Since the client received `id`, another thread may have continued the session.
        let rows = session_rows(&threads, &thread).map_err(|_| unknown_session(&id))?;
        let thread = rows.last().map(|row| row.id.clone()).ok_or_else(|| unknown_session(&id))?;
        if is_replay {
            let events = conversation_events(&threads, &thread).map_err(|_| unknown_session(&id))?;
            let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).session.clone().unwrap_or_default();
            let mut mapper = UpdateMapper::default()
                .with_files(spaces.project.clone(), threads.objects().clone())
                .for_client(&client);
            for update in events.iter().flat_map(|event| mapper.event(&event.body, true)) {
                connection.send_notification(SessionNotification::new(id.clone(), update))?;
            }
        }
        if let Some(open) = open {
            return Ok(open);
        }
        self.open(&engine, &spaces, SessionRequest::recover(thread), Some(id), connection).await
    }

    pub fn list_sessions(request: &ListSessionsRequest) -> Result<ListSessionsResponse, Error> {
        let folder =
            request.cwd.clone().map_or_else(std::env::current_dir, Ok).map_err(|error| engine_error(&error))?;
        let spaces = find_project_of(&folder)?;
        list_sessions(&spaces, request.cursor.as_deref())
            .map_err(|failure| with_help(Error::invalid_params(), &failure))
    }

    /// Interrupts the prompt of a session, closes the session, and waits for its end.
    pub async fn close_session(&self, id: &SessionId) -> Result<(), Error> {
        let session = self.session(id)?;
        session.close().await;
        self.lock().remove(&*id.0);
        Ok(())
    }

    /// Deletes a closed session. Looks up the session in the project of the working folder and in the projects of the
    /// sessions that the client has opened.
    pub async fn delete_session(&self, id: &SessionId) -> Result<(), Error> {
        if self.session(id).is_ok_and(|session| !session.is_closed()) {
            return Err(invalid("the session is open: close it first"));
        }
        let mut projects: Vec<Spaces> = Vec::new();
        projects.extend(std::env::current_dir().ok().and_then(|folder| find_project(&folder).ok()));
        for project in self.engines.lock().await.keys() {
            projects.extend(Spaces::find(Some(project)).ok());
        }
        projects.sort_by(|one, other| one.project.cmp(&other.project));
        projects.dedup_by(|one, other| one.project == other.project);
        let id = id.to_string();
        let work = move || delete_session(&projects, &id);
        let deleted = tokio::task::spawn_blocking(work).await.map_err(|error| engine_error(&error))?;
        deleted.map_err(|failure| with_help(Error::invalid_params(), &failure))
    }

    pub fn prompt(&self, request: &PromptRequest, responder: Responder<PromptResponse>) -> Result<(), Error> {
        let content = match prompt_content(&request.prompt) {
            Ok(content) => content,
            Err(reason) => return responder.respond_with_error(invalid(&reason)),
        };
        let delivery = request.meta.as_ref().and_then(|meta| meta.get("rye")?.get("delivery")?.as_str());
        let delivery = if delivery == Some("steer") { Delivery::Steer } else { Delivery::Prompt };
        let session = match self.session(&request.session_id) {
            Ok(session) => session,
            Err(error) => return responder.respond_with_error(error),
        };
        let responder = PromptResponder::new(responder, &self.open_prompts);
        let unsent = session.send(SessionCommand::Prompt { content, delivery, responder });
        if let Err(SessionCommand::Prompt { responder, .. }) = unsent {
            responder.respond(Err(unknown_session(&request.session_id)));
        }
        Ok(())
    }
}

/// Finds the project of a folder that the client names.
fn find_project_of(folder: &Path) -> Result<Spaces, Error> {
    if !folder.is_absolute() {
        return Err(invalid(&format!(
            "`cwd` must be an absolute path: `{}`",
            printable(&folder.display().to_string())
        )));
    }
    find_project(folder).map_err(|failure| no_project(folder, &failure))
}

/// Finds the project of a folder: the nearest folder with `.ai/`, from `folder` upwards. If no such folder exists, the
/// project is `folder` itself.
fn find_project(folder: &Path) -> Result<Spaces, CommandError> {
    let project = folder.ancestors().find(|folder| folder.join(".ai").is_dir());
    Spaces::find(Some(project.unwrap_or(folder)))
}
