//! An open session, and the operations that the client requests: setting modes and options, chat requests, closing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ClientSessionCapabilities, ConfigOptionUpdate, Content, McpServer, Notice, NoticeSeverity, PermissionOption,
    PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest, SessionConfigOption,
    SessionConfigOptionValue, SessionId, SessionModeState, SessionNotification, SessionUpdate, ToolCallContent,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use agent_client_protocol::{Client, Error};
use rye_engine::event::ControlMessage;
use rye_engine::thread_id::ThreadId;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use super::agent::invalid;
use super::disconnection::Disconnection;
use super::map::text_block;
use super::options::{OptionValues, config_options, mode_of, mode_request, mode_state, option_request};
use super::session_task::SessionCommand;
use crate::command::chat::json::{ChatRequest, ChatVerb};
use crate::command::chat::leaving::{LeftChildren, children_question};
use crate::command::chat::replan::CONFIRM_HINT;
use crate::command::chat::requests::RequestHandler;

const ACCEPT: &str = "accept";
const DECLINE: &str = "decline";

/// A session that an ACP client has open. Clones refer to the same session.
#[derive(Clone)]
pub struct OpenSession {
    pub id: SessionId,
    commands: UnboundedSender<SessionCommand>,
    pub requests: Arc<RequestHandler>,
    pub connection: ConnectionTo<Client>,
    pub disconnection: Disconnection,
    /// True if the client has announced that it shows notices, such as warnings.
    has_notices: bool,
    task: Arc<Mutex<Option<JoinHandle<()>>>>,
    /// Number of questions that were sent to the client. The id of each question contains its number.
    asked: Arc<AtomicU64>,
}

impl OpenSession {
    pub fn new(
        id: SessionId,
        commands: UnboundedSender<SessionCommand>,
        requests: Arc<RequestHandler>,
        (connection, disconnection): (ConnectionTo<Client>, Disconnection),
        client: &ClientSessionCapabilities,
    ) -> Self {
        let has_notices = client.notices.is_some();
        let (task, asked) = (Arc::default(), Arc::default());
        Self { id, commands, requests, connection, disconnection, has_notices, task, asked }
    }

    /// Stores the handle of the task that runs the session.
    pub fn started(&self, task: JoinHandle<()>) {
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Waits until the thread of the session has started.
    pub async fn wait_for_start(&self) {
        self.requests.control.started_state().await;
    }

    /// Sends a command to the task of the session; returns the command if the task has ended.
    pub fn send(&self, command: SessionCommand) -> Result<(), SessionCommand> {
        self.commands.send(command).map_err(|unsent| unsent.0)
    }

    /// Returns true if the task of the session has ended.
    pub fn is_closed(&self) -> bool {
        self.commands.is_closed()
    }

    /// Returns the modes of the session; `None` if the thread of the session has not started yet.
    pub fn modes(&self) -> Option<SessionModeState> {
        self.requests.control.live_state().as_ref().map(mode_of).map(mode_state)
    }

    /// Returns the configuration options of the session; `None` if the thread of the session has not started yet.
    pub fn options(&self) -> Option<Vec<SessionConfigOption>> {
        let live = self.requests.control.live_state()?;
        Some(config_options(&OptionValues::of(&live), &live, &self.requests.spaces))
    }

    /// Sends an update. If the client has disconnected, the update is dropped, because the transcript has its content.
    pub fn update(&self, update: SessionUpdate) {
        self.connection.send_notification(SessionNotification::new(self.id.clone(), update)).ok();
    }

    /// Shows a warning to the user, if the client shows notices.
    pub fn warn(&self, title: &str, description: Option<String>) {
        if self.has_notices {
            self.update(SessionUpdate::Notice(Notice::new(NoticeSeverity::Warning, title).description(description)));
        }
    }

    /// Sends the configuration options to the client after another thread has continued the session. First waits until
    /// the live state belongs to a thread that is not in `earlier`, because the live state can belong to an earlier
    /// thread for a short time.
    pub async fn send_options_after(&self, earlier: &[ThreadId]) {
        let control = &self.requests.control;
        loop {
            let mut changes = control.state_changes();
            let live = control.live_state();
            if live.is_some_and(|live| {
                live.thread_id().is_some_and(|thread| earlier.iter().all(|before| thread != before.as_str()))
            }) {
                break;
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
        if let Some(options) = self.options() {
            self.update(SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(options)));
        }
    }

    /// Performs a request of the chat, and returns the data of its response; `None` if the response has no data.
    ///
    /// # Errors
    /// Returns the reason why the session refuses the request.
    pub async fn answer(&self, verb: ChatVerb) -> Result<Option<Value>, String> {
        let response = self.requests.answer(ChatRequest { id: Value::Null, verb }).await;
        response.error.map_or(Ok(response.data), Err)
    }

    /// Sets the mode of the session.
    ///
    /// # Errors
    /// There is no such mode. Or the mode allows more than the current mode, and the user declines the change.
    pub async fn set_mode(&self, mode: &str) -> Result<(), Error> {
        self.change(|confirm| mode_request(mode, confirm)).await
    }

    /// Sets a configuration option. Returns all options.
    ///
    /// # Errors
    /// There is no such option or value. Or the value allows more than the current value, and the user declines the
    /// change.
    pub async fn set_option(
        &self,
        id: &str,
        value: &SessionConfigOptionValue,
    ) -> Result<Vec<SessionConfigOption>, Error> {
        let request = |confirm| option_request(id, value, confirm);
        self.change(request).await?;
        let live = self.requests.control.started_state().await;
        let values = request(true).map(|verb| OptionValues::of(&live).after(&verb));
        Ok(config_options(&values.map_err(|reason| invalid(&reason))?, &live, &self.requests.spaces))
    }

    /// Performs the change that `request(false)` returns. If the session refuses the change because it allows more than
    /// before, asks the user. If the user accepts, performs `request(true)`, which confirms the change.
    async fn change(&self, request: impl Fn(bool) -> Result<ChatVerb, String>) -> Result<(), Error> {
        let verb = request(false).map_err(|reason| invalid(&reason))?;
        let Err(reason) = self.answer(verb).await else { return Ok(()) };
        let Some((what, changes)) = reason.split_once(CONFIRM_HINT) else { return Err(invalid(&reason)) };
        let what = what.trim_end_matches([';', ' ']);
        if !self.ask(what, changes.trim_start_matches([':', '\n'])).await {
            return Err(invalid(&format!("nothing was changed, because the user did not accept the change: {what}")));
        }
        let verb = request(true).map_err(|reason| invalid(&reason))?;
        self.answer(verb).await.map(drop).map_err(|reason| invalid(&reason))
    }

    /// Asks the user to accept a change, and returns true if the user accepts it.
    async fn ask(&self, what: &str, changes: &str) -> bool {
        let options = vec![
            PermissionOption::new(ACCEPT, "Accept", PermissionOptionKind::AllowOnce),
            PermissionOption::new(DECLINE, "Keep as it is", PermissionOptionKind::RejectOnce),
        ];
        self.choose("change", what, changes, ToolKind::SwitchMode, options).await.as_deref() == Some(ACCEPT)
    }

    /// Sends the client a permission request with these options, and returns the id of the option that the user
    /// chooses. `None` if the user cancels or the client does not answer.
    async fn choose(
        &self,
        subject: &str,
        title: &str,
        text: &str,
        kind: ToolKind,
        options: Vec<PermissionOption>,
    ) -> Option<String> {
        let call = format!("{subject}-{}", self.asked.fetch_add(1, Ordering::Relaxed) + 1);
        let content = (!text.is_empty()).then(|| vec![ToolCallContent::Content(Content::new(text_block(text)))]);
        let fields = ToolCallUpdateFields::new()
            .title(title.to_owned())
            .kind(kind)
            .status(ToolCallStatus::Pending)
            .content(content);
        let call = ToolCallUpdate::new(call, fields);
        let request = RequestPermissionRequest::new(self.id.clone(), call.clone(), options);
        let answered = self.connection.send_request(request).block_task().await.ok()?;
        let RequestPermissionOutcome::Selected(selected) = answered.outcome else { return None };
        Some(selected.option_id.to_string())
    }

    /// Closes the session: interrupts the prompt and waits until the task of the session has ended. If children still
    /// run, first asks the user to wait for the children or to stop them. Without an answer, the session waits for the
    /// children.
    pub async fn close(&self) {
        let children = self.requests.running_children().len();
        if children > 0 {
            let options = vec![
                PermissionOption::new(ACCEPT, "Wait for their end", PermissionOptionKind::AllowOnce),
                PermissionOption::new(DECLINE, "Stop them", PermissionOptionKind::RejectOnce),
            ];
            let question =
                children_question(children, "The session can wait until the children end, or stop the children");
            let chosen = self.choose("close", &question, "", ToolKind::Other, options).await;
            if chosen.as_deref() == Some(DECLINE) {
                self.requests.control.send(ControlMessage::Interrupt);
                self.answer(ChatVerb::Close { children: LeftChildren::Cancel }).await.ok();
            }
        }
        // The send fails if the task has already ended.
        self.send(SessionCommand::Close).ok();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.await.ok();
        }
    }

    /// Warns the user that the session does not use the MCP servers of the client.
    pub fn report_unused_servers(&self, servers: &[McpServer]) {
        let names: Vec<String> = servers.iter().filter_map(server_name).collect();
        if !names.is_empty() {
            let description =
                "configure them in `.mcp.json` with `rye mcp add`, and grant their tools in the directive";
            let title = format!("MCP servers of the editor are not used: {}", names.join(", "));
            self.warn(&title, Some(description.to_owned()));
        }
    }
}

fn server_name(server: &McpServer) -> Option<String> {
    if let McpServer::Stdio(server) = server {
        Some(server.name.clone())
    } else if let McpServer::Http(server) = server {
        Some(server.name.clone())
    } else if let McpServer::Sse(server) = server {
        Some(server.name.clone())
    } else {
        None
    }
}
