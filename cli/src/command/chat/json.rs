//! JSON Lines of a session: a request on each line of stdin, a response to each request on stdout, between the events.

use std::io::Write;

use rye_engine::event::{ControlMessage, Delivery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A line of stdin with `--format json`. The response has the same `id`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ChatRequest {
    /// The next prompt. While a prompt runs, the new one waits for its end.
    Prompt {
        #[serde(default)]
        id: Value,
        message: String,
    },
    /// A message that the model reads before its next turn; while the session is idle, the next prompt.
    Steer {
        #[serde(default)]
        id: Value,
        message: String,
    },
    /// A message that the model reads when it would otherwise end the prompt; while the session is idle, the next prompt.
    FollowUp {
        #[serde(default)]
        id: Value,
        message: String,
    },
    /// Ends the current prompt.
    Interrupt {
        #[serde(default)]
        id: Value,
    },
    /// Closes the session after the prompts that wait, like the end of the input.
    Close {
        #[serde(default)]
        id: Value,
    },
}

/// The response to a request: one line of stdout.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ChatResponse {
    /// Always `response`.
    pub r#type: &'static str,
    /// The id of the request; null if it has none or cannot be read.
    pub id: Value,
    /// The type of the request; null if it cannot be read.
    pub command: Option<&'static str>,
    pub success: bool,
    /// The reason if the request was not accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ChatRequest {
    /// Parses a line. A line that is no request gives the response to it.
    pub fn parse(line: &str) -> Result<Self, ChatResponse> {
        let refused = |id: Value, error: String| ChatResponse {
            r#type: "response",
            id,
            command: None,
            success: false,
            error: Some(error),
        };
        let value: Value =
            serde_json::from_str(line).map_err(|error| refused(Value::Null, format!("no JSON object: {error}")))?;
        let id = value.get("id").cloned().unwrap_or_default();
        serde_json::from_value(value).map_err(|error| refused(id, error.to_string()))
    }

    /// Returns the control message of the request, and the response.
    pub fn accept(self) -> (ControlMessage, ChatResponse) {
        let (command, id, message) = match self {
            Self::Prompt { id, message } => ("prompt", id, ControlMessage::Submit { input: message.into(), delivery: Delivery::Prompt }),
            Self::Steer { id, message } => ("steer", id, ControlMessage::Steer { text: message }),
            Self::FollowUp { id, message } => ("follow_up", id, ControlMessage::FollowUp { text: message }),
            Self::Interrupt { id } => ("interrupt", id, ControlMessage::Interrupt),
            Self::Close { id } => ("close", id, ControlMessage::Close),
        };
        let response = ChatResponse { r#type: "response", id, command: Some(command), success: true, error: None };
        (message, response)
    }
}

impl ChatResponse {
    /// Writes the response as a line of stdout. If the reader is gone, the session runs to its end.
    pub fn print(&self) {
        let mut out = std::io::stdout().lock();
        if let Ok(mut line) = serde_json::to_vec(self) {
            line.push(b'\n');
            out.write_all(&line).and_then(|()| out.flush()).ok();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_request_gets_a_response_with_its_id() {
        for (line, command) in [
            (r#"{"type":"prompt","id":7,"message":"hi"}"#, "prompt"),
            (r#"{"type":"steer","id":7,"message":"hi"}"#, "steer"),
            (r#"{"type":"follow_up","id":7,"message":"hi"}"#, "follow_up"),
            (r#"{"type":"interrupt","id":7}"#, "interrupt"),
            (r#"{"type":"close","id":7}"#, "close"),
        ] {
            let (_, response) = ChatRequest::parse(line).unwrap().accept();
            assert_eq!((response.id, response.command, response.success), (json!(7), Some(command), true));
        }
    }

    #[test]
    fn a_line_that_is_no_request_gets_an_error() {
        for line in ["", "hello", "[]", "{}", r#"{"type":"fly"}"#, r#"{"type":"prompt"}"#, r#"{"type":"close","x":1}"#]
        {
            let response = ChatRequest::parse(line).unwrap_err();
            assert!(!response.success && response.error.is_some(), "{line}");
        }
        assert_eq!(ChatRequest::parse(r#"{"type":"fly","id":"a"}"#).unwrap_err().id, json!("a"));
    }
}
