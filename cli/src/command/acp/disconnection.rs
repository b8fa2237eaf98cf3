//! The end of the connection to the client. After the end of the input, each open prompt still gets a response within a
//! short time.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::Error;
use agent_client_protocol::v1::Responder;
use agent_client_protocol::v1::schema::{PromptResponse, StopReason};
use tokio::sync::watch;
use tokio::time::timeout;

/// Maximum time from the end of the connection until each prompt has its response.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Time after the end of the connection in which the client can read the last lines.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// A flag that is set at the end of the input or at a stop signal. From then on, the client answers no more requests.
/// Clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Disconnection(Arc<watch::Sender<bool>>);

impl Disconnection {
    pub fn set(&self) {
        self.0.send_replace(true);
    }

    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the end of the input or a stop signal.
    pub fn wait(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut changes = self.0.subscribe();
        // The wait fails if every clone of the flag is dropped. The error is ignored.
        async move { drop(changes.wait_for(|is_set| *is_set).await) }
    }

    /// Waits for the end of the connection, and then for `ANSWER_TIMEOUT`.
    pub async fn wait_answers_due(self) {
        self.wait().await;
        tokio::time::sleep(ANSWER_TIMEOUT).await;
    }

    /// Waits for the end of the connection, and then for `DRAIN_TIMEOUT`, in which the client can read the last lines.
    pub async fn wait_drained(&self) {
        self.wait().await;
        tokio::time::sleep(DRAIN_TIMEOUT).await;
    }
}

/// The number of prompts without a response, in all sessions. Clones share the number.
#[derive(Debug, Clone, Default)]
pub struct PromptCount(Arc<watch::Sender<usize>>);

impl PromptCount {
    /// Waits until every prompt has its response, but at most for 1.25 times `ANSWER_TIMEOUT`.
    pub async fn wait_answered(&self) {
        let mut counts = self.0.subscribe();
        timeout(ANSWER_TIMEOUT + ANSWER_TIMEOUT / 4, counts.wait_for(|count| *count == 0)).await.ok();
    }
}

/// A prompt that has no response yet.
struct OpenPrompt(PromptCount);

impl Drop for OpenPrompt {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// The responder of a prompt. The prompt is open until the responder has responded or is dropped.
pub struct PromptResponder {
    responder: Box<Responder<PromptResponse>>,
    prompt: OpenPrompt,
}

impl PromptResponder {
    pub fn new(responder: Responder<PromptResponse>, count: &PromptCount) -> Self {
        count.0.send_modify(|count| *count += 1);
        Self { responder: Box::new(responder), prompt: OpenPrompt(count.clone()) }
    }

    /// Sends the response. If the connection has ended, the response is dropped.
    pub fn respond(self, result: Result<StopReason, Error>) {
        self.responder.respond_with_result(result.map(PromptResponse::new)).ok();
        drop(self.prompt);
    }
}
