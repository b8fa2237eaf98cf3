//! Typed commands of the terminal, performed one after another outside of the editor's task, so that the editor never
//! waits.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::command::chat::json::{ChatRequest, ChatResponse, ChatVerb};
use crate::command::chat::requests::RequestHandler;

/// The queue of commands, and their responses.
pub(super) struct TypedCommands {
    verbs: UnboundedSender<ChatVerb>,
    responses: UnboundedReceiver<ChatResponse>,
}

impl TypedCommands {
    /// Starts the task that performs the commands. Needs a runtime.
    pub(super) fn start(handler: Arc<RequestHandler>) -> Self {
        let (verbs, mut requested) = unbounded_channel();
        let (answer, responses) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(verb) = requested.recv().await {
                let response = handler.answer(ChatRequest { id: Value::Null, verb }).await;
                if answer.send(response).is_err() {
                    return;
                }
            }
        });
        Self { verbs, responses }
    }

    /// Performs a command after the earlier ones.
    pub(super) fn perform(&self, verb: ChatVerb) {
        // The task lives as long as the terminal.
        self.verbs.send(verb).ok();
    }

    /// Returns the next response.
    pub(super) async fn next(&mut self) -> ChatResponse {
        match self.responses.recv().await {
            Some(response) => response,
            None => std::future::pending().await,
        }
    }
}
