//! The requests of clients that have no response yet. A new request must not have the id of an open request, because
//! both requests would share one response.

use std::collections::BTreeSet;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::JsonRpcMessage;
use rmcp::service::TxJsonRpcMessage;
use serde_json::Value;
use tokio::sync::watch;

use super::message::MessageError;

/// The requests in progress: the session and the id of each request.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenRequests(Arc<watch::Sender<BTreeSet<(String, String)>>>);

/// A guard for the id of a request: the request counts as in progress until the guard is dropped.
pub(super) struct OpenRequest {
    requests: OpenRequests,
    session: String,
    message: Value,
}

impl OpenRequests {
    /// Updates the set of ids in progress for a message of a client. The id of a request is added. If the message is
    /// the notification that cancels a request, the id of that request is removed. Any other message changes nothing.
    ///
    /// # Errors
    /// A request with the same id is in progress.
    pub fn open(&self, session: &str, message: &Value) -> Result<(), MessageError> {
        let method = message.get("method").and_then(Value::as_str);
        match (method, message.get("id")) {
            (Some(_), Some(id)) => {
                let is_new = self.0.send_if_modified(|open| open.insert((session.to_owned(), id.to_string())));
                if is_new { Ok(()) } else { Err(MessageError::repeated(id.clone())) }
            }
            (Some("notifications/cancelled"), None) => {
                if let Some(id) = message.pointer("/params/requestId") {
                    self.remove(session, id);
                }
                Ok(())
            }
            (Some(_), None) | (None, _) => Ok(()),
        }
    }

    /// Marks the id of a request as in progress until the returned guard is dropped.
    ///
    /// # Errors
    /// A request with the same id is in progress.
    pub fn hold(&self, session: &str, message: Value) -> Result<OpenRequest, MessageError> {
        self.open(session, &message)?;
        Ok(OpenRequest { requests: self.clone(), session: session.to_owned(), message })
    }

    /// Frees the id of the request that this message answers. Does nothing for a message that is not a response.
    pub fn close(&self, session: &str, message: &TxJsonRpcMessage<RoleServer>) {
        let id = match message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        if let Some(id) = id.and_then(|id| serde_json::to_value(id).ok()) {
            self.remove(session, &id);
        }
    }

    /// Waits until a session has no request in progress.
    pub async fn wait_answered(&self, session: &str) {
        let mut changes = self.0.subscribe();
        // The wait can fail only if the sender is dropped, and `self` holds the sender.
        changes.wait_for(|open| !open.iter().any(|(of, _)| of == session)).await.ok();
    }

    fn remove(&self, session: &str, id: &Value) {
        self.0.send_if_modified(|open| open.remove(&(session.to_owned(), id.to_string())));
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if self.message.get("method").is_none() {
            return;
        }
        if let Some(id) = self.message.get("id") {
            self.requests.remove(&self.session, id);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use serde_json::json;

    fn call(id: &Value) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "method": "ping"})
    }

    #[test]
    fn id_is_refused_until_its_response_or_its_cancellation() {
        let requests = OpenRequests::default();
        requests.open("s", &call(&json!(1))).unwrap();
        let refused = requests.open("s", &call(&json!(1))).unwrap_err();
        assert_eq!((refused.code, &refused.id), (-32600, &json!(1)));
        // An id of another JSON type, an id of another session, and the id of a client's response do not conflict.
        requests.open("s", &call(&json!("1"))).unwrap();
        requests.open("t", &call(&json!(1))).unwrap();
        requests.open("s", &json!({"jsonrpc": "2.0", "id": 1, "result": {}})).unwrap();
        let response = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "m"}});
        requests.close("s", &serde_json::from_value(response).unwrap());
        requests.open("s", &call(&json!(1))).unwrap();
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        requests.open("s", &cancelled).unwrap();
        let held = requests.hold("s", call(&json!(1))).unwrap();
        assert!(requests.hold("s", call(&json!(1))).is_err());
        drop(held);
        requests.open("s", &call(&json!(1))).unwrap();
    }
}
