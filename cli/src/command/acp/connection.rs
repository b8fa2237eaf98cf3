//! The connection to the client. Each message is passed to the method of the agent that answers it. A long request runs
//! concurrently, so that the agent can handle a later notification while the request runs.

use std::future::Future;
use std::sync::{Arc, PoisonError};

use agent_client_protocol::v1::schema::{
    CancelNotification, CloseSessionRequest, CloseSessionResponse, DeleteSessionRequest, DeleteSessionResponse,
    InitializeRequest, ListSessionsRequest, LoadSessionRequest, LoadSessionResponse, NewSessionRequest,
    NewSessionResponse, PromptRequest, ResumeSessionRequest, ResumeSessionResponse, SessionId,
    SetSessionConfigOptionRequest, SetSessionConfigOptionResponse, SetSessionModeRequest, SetSessionModeResponse,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, Client, Error, JsonRpcResponse, on_receive_notification, on_receive_request};
use serde_json::{Value, json};

use super::agent::{RyeAgent, initialize, invalid};
use super::extension::ExtensionRequest;
use super::lines::standard_streams;
use super::session_task::SessionCommand;

/// Answers the messages of the client until the connection ends. Then interrupts the open prompts and responds to them.
pub async fn connect(agent: &Arc<RyeAgent>) -> Result<(), Error> {
    let [begin, new, load, resume, close, delete, mode, option, extension, prompt, cancel, end] =
        std::array::from_fn(|_| Arc::clone(agent));
    Agent
        .v1()
        .name("rye")
        .on_receive_request(
            async move |request: InitializeRequest, responder, _| {
                *begin.client.lock().unwrap_or_else(PoisonError::into_inner) = request.client_capabilities;
                responder.respond(initialize())
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: NewSessionRequest, responder, connection| {
                new.answer_new(request, responder, connection)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: LoadSessionRequest, responder, connection| {
                load.answer_load(request, responder, connection)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ResumeSessionRequest, responder, connection| {
                resume.answer_resume(request, responder, connection)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ListSessionsRequest, responder, _| {
                responder.respond_with_result(RyeAgent::list_sessions(&request))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: CloseSessionRequest, responder, connection| {
                close.answer_close(request, responder, &connection)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: DeleteSessionRequest, responder, connection| {
                delete.answer_delete(request, responder, &connection)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SetSessionModeRequest, responder, connection| {
                mode.answer_mode(request, responder, &connection)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SetSessionConfigOptionRequest, responder, connection| {
                option.answer_option(request, responder, &connection)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ExtensionRequest, responder, connection| {
                extension.answer_extension(&request, responder, &connection)
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, _| prompt.prompt(&request, responder),
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |request: CancelNotification, _| {
                if let Ok(session) = cancel.session(&request.session_id) {
                    session.send(SessionCommand::Cancel).ok();
                }
                Ok(())
            },
            on_receive_notification!(),
        )
        .on_close(async move |_| {
            end.answer_open_prompts().await;
            Ok(())
        })
        .connect_to(standard_streams(agent.disconnection.clone()))
        .await
}

/// Responds to a request once its result is available, without blocking the connection.
fn respond_later<T: JsonRpcResponse>(
    connection: &ConnectionTo<Client>,
    responder: Responder<T>,
    result: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<(), Error> {
    connection.spawn(async move { responder.respond_with_result(result.await) })
}

impl RyeAgent {
    fn answer_new(
        self: &Arc<Self>,
        request: NewSessionRequest,
        responder: Responder<NewSessionResponse>,
        connection: ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let agent = Arc::clone(self);
        connection.clone().spawn(async move {
            let opened = agent.new_session(request, responder.id().clone(), connection).await;
            let id = opened.as_ref().ok().map(|opened| opened.session_id.clone());
            responder.respond_with_result(opened)?;
            agent.announce_commands(id.as_ref());
            Ok(())
        })
    }

    fn answer_load(
        self: &Arc<Self>,
        request: LoadSessionRequest,
        responder: Responder<LoadSessionResponse>,
        connection: ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let agent = Arc::clone(self);
        connection.clone().spawn(async move {
            let id = request.session_id.clone();
            let opened = agent.reopen(request.session_id, request.cwd, connection, true).await;
            responder
                .respond_with_result(opened.map(|session| {
                    LoadSessionResponse::new().modes(session.modes()).config_options(session.options())
                }))?;
            agent.announce_commands(Some(&id));
            Ok(())
        })
    }

    fn answer_resume(
        self: &Arc<Self>,
        request: ResumeSessionRequest,
        responder: Responder<ResumeSessionResponse>,
        connection: ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let agent = Arc::clone(self);
        connection.clone().spawn(async move {
            let id = request.session_id.clone();
            let opened = agent.reopen(request.session_id, request.cwd, connection, false).await;
            responder.respond_with_result(opened.map(|session| {
                ResumeSessionResponse::new().modes(session.modes()).config_options(session.options())
            }))?;
            agent.announce_commands(Some(&id));
            Ok(())
        })
    }

    fn answer_close(
        self: &Arc<Self>,
        request: CloseSessionRequest,
        responder: Responder<CloseSessionResponse>,
        connection: &ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let agent = Arc::clone(self);
        respond_later(connection, responder, async move {
            agent.close_session(&request.session_id).await.map(|()| CloseSessionResponse::new())
        })
    }

    fn answer_delete(
        self: &Arc<Self>,
        request: DeleteSessionRequest,
        responder: Responder<DeleteSessionResponse>,
        connection: &ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let agent = Arc::clone(self);
        respond_later(connection, responder, async move {
            agent.delete_session(&request.session_id).await.map(|()| DeleteSessionResponse::new())
        })
    }

    fn answer_mode(
        &self,
        request: SetSessionModeRequest,
        responder: Responder<SetSessionModeResponse>,
        connection: &ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let session = self.session(&request.session_id);
        respond_later(connection, responder, async move {
            session?.set_mode(&request.mode_id.0).await.map(|()| SetSessionModeResponse::new())
        })
    }

    fn answer_option(
        &self,
        request: SetSessionConfigOptionRequest,
        responder: Responder<SetSessionConfigOptionResponse>,
        connection: &ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let session = self.session(&request.session_id);
        respond_later(connection, responder, async move {
            let options = session?.set_option(&request.config_id.0, &request.value).await;
            options.map(SetSessionConfigOptionResponse::new)
        })
    }

    fn answer_extension(
        &self,
        request: &ExtensionRequest,
        responder: Responder<Value>,
        connection: &ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let (session, verb) = (self.session(&SessionId::new(request.session_id())), request.chat_verb());
        respond_later(connection, responder, async move {
            let verb = verb.map_err(|reason| invalid(&reason))?;
            let answer = session?.answer(verb).await.map_err(|reason| invalid(&reason))?;
            Ok(answer.unwrap_or_else(|| json!({})))
        })
    }
}
