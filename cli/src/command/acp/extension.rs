//! Requests beyond the protocol: `_rye/tree` and others, which correspond to requests of `rye chat --format json`.

use agent_client_protocol::{Error, JsonRpcMessage, JsonRpcRequest, UntypedMessage};
use serde_json::{Map, Value};

use crate::command::chat::json::{ChatRequest, ChatVerb};

const PREFIX: &str = "_rye/";
/// The names of the requests that the agent answers, without [`PREFIX`].
const NAMES: [&str; 8] = ["context", "preview", "why", "tree", "fork", "rewind", "steer", "follow_up"];

/// A request whose method starts with `_rye/`.
#[derive(Debug, Clone, PartialEq)]
pub struct ExtensionRequest {
    method: String,
    params: Map<String, Value>,
}

impl ExtensionRequest {
    /// Returns the id of the session that the request names.
    pub fn session_id(&self) -> &str {
        self.params.get("sessionId").and_then(Value::as_str).unwrap_or_default()
    }

    /// Converts the message to the request of `rye chat --format json` with the same name and parameters.
    ///
    /// # Errors
    /// Returns the reason if the parameters are not valid for this request.
    pub fn chat_verb(&self) -> Result<ChatVerb, String> {
        let mut fields = self.params.clone();
        for own in ["sessionId", "_meta", "id"] {
            fields.remove(own);
        }
        fields.insert("type".into(), self.method.trim_start_matches(PREFIX).into());
        let request = ChatRequest::parse(&Value::Object(fields).to_string());
        request.map(|request| request.verb).map_err(|refused| refused.error.unwrap_or_default())
    }
}

impl JsonRpcMessage for ExtensionRequest {
    fn matches_method(method: &str) -> bool {
        method.strip_prefix(PREFIX).is_some_and(|name| NAMES.contains(&name))
    }

    fn method(&self) -> &str {
        &self.method
    }

    fn to_untyped_message(&self) -> Result<UntypedMessage, Error> {
        UntypedMessage::new(&self.method, &self.params)
    }

    fn parse_message(method: &str, params: &Value) -> Result<Self, Error> {
        let params = params.as_object().cloned();
        let params = params.ok_or_else(|| Error::invalid_params().data("the parameters must be an object"))?;
        Ok(Self { method: method.to_owned(), params })
    }
}

impl JsonRpcRequest for ExtensionRequest {
    type Response = Value;
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_with_the_prefix_are_requests_of_a_chat() {
        for (name, fields) in [
            ("context", json!({})),
            ("preview", json!({"message": "hi"})),
            ("why", json!({"part": "limit.spend"})),
            ("tree", json!({})),
            ("fork", json!({"prompt": 2})),
            ("rewind", json!({"prompt": 2, "files": "preview"})),
            ("steer", json!({"message": "hi"})),
            ("follow_up", json!({"message": "hi"})),
        ] {
            let method = format!("_rye/{name}");
            assert!(ExtensionRequest::matches_method(&method));
            let mut params = fields;
            params["sessionId"] = json!("talk-1");
            let request = ExtensionRequest::parse_message(&method, &params).unwrap();
            assert_eq!((request.session_id(), request.chat_verb().unwrap().name()), ("talk-1", name));
        }
        for method in ["_rye/close", "_rye/", "_other/tree", "tree"] {
            assert!(!ExtensionRequest::matches_method(method), "{method}");
        }
        let request = ExtensionRequest::parse_message("_rye/fork", &json!({"sessionId": "talk-1"})).unwrap();
        assert!(request.chat_verb().unwrap_err().contains("prompt"));
        assert!(ExtensionRequest::parse_message("_rye/tree", &Value::Null).is_err());
    }
}
