//! The check of a client's message before it is handled: JSON, JSON-RPC, the method and its parameters, with the error
//! codes of JSON-RPC.

use rmcp::model::{
    CallToolRequestParams, CancelTaskParams, GetTaskParams, InitializeRequestParams, PaginatedRequestParams,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::MAX_MESSAGE_BYTES;
use crate::json_faults::find_fault;

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const INVALID_PARAMS: i32 = -32602;
/// The code of a refused request, from the range that JSON-RPC reserves for servers.
const REFUSED: i32 = -32000;

/// A JSON-RPC error in response to a message.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MessageError {
    /// The id of the request; null if it is not known.
    pub id: Value,
    /// The text of the id, if `id` is a number. A parsed number can be rounded, and the client could not match a
    /// rounded id with its request.
    number: Option<String>,
    pub code: i32,
    pub message: String,
}

impl MessageError {
    fn new(id: Value, code: i32, message: impl Into<String>) -> Self {
        Self { id, number: None, code, message: message.into() }
    }

    /// Adds the text of the id that `text`, the received message, contains. Adds nothing if the id of the error is not
    /// a number.
    pub fn with_id_of(self, text: &[u8]) -> Self {
        let mut finder = IdFinder::default();
        finder.push(text);
        Self { number: finder.number().filter(|_| self.id.is_number()), ..self }
    }

    /// The error for a message that is larger than [`MAX_MESSAGE_BYTES`].
    pub fn oversized(id: Value) -> Self {
        Self::new(id, INVALID_REQUEST, format!("the message is larger than {} MiB", MAX_MESSAGE_BYTES >> 20))
    }

    /// The error for a valid JSON-RPC message that is not an MCP message.
    pub fn unreadable(id: Value) -> Self {
        Self::new(id, INVALID_REQUEST, "the message is JSON-RPC, but not an MCP message")
    }

    /// The error for a request whose id is the id of a request in progress.
    pub fn repeated(id: Value) -> Self {
        Self::new(id, INVALID_REQUEST, "a request with this id is in progress; its response follows")
    }

    /// The error for a request that the server refuses to handle.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(Value::Null, REFUSED, message)
    }

    /// Returns true if the faulty message is a valid JSON-RPC request except for its method or its parameters.
    pub fn is_request_error(&self) -> bool {
        matches!(self.code, METHOD_NOT_FOUND | INVALID_PARAMS)
    }

    /// Returns the JSON-RPC response that reports the error, as JSON text.
    pub fn response(&self) -> String {
        let id = self.number.clone().unwrap_or_else(|| self.id.to_string());
        let error = json!({"code": self.code, "message": self.message});
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
    }
}

/// Parses a message and checks it. Parameters of notifications are not checked, because a notification gets no
/// response.
pub(super) fn check_message(text: &[u8]) -> Result<Value, MessageError> {
    check_fields(text).map_err(|error| error.with_id_of(text))
}

fn check_fields(text: &[u8]) -> Result<Value, MessageError> {
    let message: Value = serde_json::from_slice(text).map_err(|error| {
        // The parser also refuses valid JSON that exceeds its limits (such as the nesting depth). The client then waits
        // for a response with the id of this message.
        let mut finder = IdFinder::default();
        finder.push(text);
        let id = if finder.is_closed() { finder.id() } else { Value::Null };
        MessageError::new(id, PARSE_ERROR, format!("the message cannot be read as JSON: {error}"))
    })?;
    let invalid = |id: &Value, reason: &str| Err(MessageError::new(id.clone(), INVALID_REQUEST, reason));
    let fields = match &message {
        Value::Object(fields) => fields,
        Value::Array(_) => return invalid(&Value::Null, "batches are not supported"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return invalid(&Value::Null, "the message is not an object");
        }
    };
    let id = match fields.get("id") {
        None => None,
        Some(id @ (Value::String(_) | Value::Number(_))) => Some(id),
        Some(_) => return invalid(&Value::Null, "`id` is neither a string nor a number"),
    };
    let shown = id.unwrap_or(&Value::Null);
    if fields.get("jsonrpc").is_none_or(|version| version != "2.0") {
        return invalid(shown, "`jsonrpc` is not \"2.0\"");
    }
    let method = match (fields.get("method"), id) {
        (Some(Value::String(method)), _) => method,
        (Some(_), _) => return invalid(shown, "`method` is not a string"),
        (None, Some(_)) if fields.contains_key("result") || fields.contains_key("error") => return Ok(message),
        (None, _) => return invalid(shown, "the message has no `method`"),
    };
    if let Some(fault) = std::str::from_utf8(text).ok().and_then(find_fault) {
        return invalid(shown, &format!("the message cannot be read without loss: {fault}"));
    }
    if let Some(id) = id {
        check_request(method, fields.get("params"))
            .map_err(|(code, reason)| MessageError::new(id.clone(), code, reason))?;
    }
    Ok(message)
}

/// Checks that the server offers the method of a request and that the parameters are valid. The error is a JSON-RPC
/// error code and its message.
fn check_request(method: &str, params: Option<&Value>) -> Result<(), (i32, String)> {
    match method {
        "ping" | "server/discover" => check_params::<Map<String, Value>>(method, params, true),
        "tools/list" => check_params::<PaginatedRequestParams>(method, params, true),
        "initialize" => check_params::<InitializeRequestParams>(method, params, false),
        "tools/call" => check_params::<CallToolRequestParams>(method, params, false),
        "tasks/get" => check_params::<GetTaskParams>(method, params, false),
        "tasks/cancel" => check_params::<CancelTaskParams>(method, params, false),
        _ => Err((METHOD_NOT_FOUND, format!("the server has no method `{}`", method.escape_debug()))),
    }
}

fn check_params<T: DeserializeOwned>(
    method: &str,
    params: Option<&Value>,
    are_optional: bool,
) -> Result<(), (i32, String)> {
    let invalid = |reason: &str| Err((INVALID_PARAMS, format!("invalid parameters of `{method}`: {reason}")));
    let Some(params) = params else {
        return if are_optional { Ok(()) } else { invalid("the parameters are missing") };
    };
    if !params.is_object() {
        return invalid("the parameters are not an object");
    }
    match T::deserialize(params) {
        Ok(_) => Ok(()),
        Err(error) => {
            let reason = error.to_string();
            // Clients do not know the names of types, so the reason omits these names.
            let reason = reason
                .split_once(", expected struct ")
                .map_or(reason.clone(), |(found, _)| format!("{found}, expected an object"));
            invalid(&reason)
        }
    }
}

/// A parser that finds the id of a message that is too large to buffer. The parser reads the bytes as they arrive.
#[derive(Debug, Default)]
pub(super) struct IdFinder {
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// The bytes of the last string (with its quotes), number or word at depth 1, that is, directly in the object of
    /// the message. At most [`MAX_ID_BYTES`] are kept.
    token: Vec<u8>,
    /// True if the next value belongs to the key `id`.
    after_id: bool,
    id: Option<Vec<u8>>,
}

/// Maximum size of an id, in bytes.
const MAX_ID_BYTES: usize = 256;

impl IdFinder {
    pub fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.push_byte(*byte);
        }
    }

    fn push_byte(&mut self, byte: u8) {
        let is_outer = self.depth == 1;
        if self.in_string {
            self.in_string = self.escaped || byte != b'"';
            self.escaped = !self.escaped && byte == b'\\';
            if is_outer {
                self.keep(byte);
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                if is_outer {
                    self.token.clear();
                    self.keep(byte);
                }
            }
            b':' if is_outer => {
                self.after_id = self.token == b"\"id\"";
                self.token.clear();
            }
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b',' | b'}' | b']' => {
                if is_outer && self.after_id {
                    self.id = Some(std::mem::take(&mut self.token));
                    self.after_id = false;
                }
                if byte != b',' {
                    self.depth = self.depth.saturating_sub(1);
                }
            }
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ if is_outer => self.keep(byte),
            _ => {}
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.token.len() < MAX_ID_BYTES {
            self.token.push(byte);
        }
    }

    /// Returns true if every object, list and string that has begun in the message so far has also ended.
    pub fn is_closed(&self) -> bool {
        self.depth == 0 && !self.in_string
    }

    /// Returns the text of the id; `None` if the id is not a number.
    pub fn number(&self) -> Option<String> {
        let text = std::str::from_utf8(self.id.as_deref()?).ok()?;
        serde_json::from_str::<serde_json::Number>(text).is_ok().then(|| text.to_owned())
    }

    /// Returns the id of the message; null if the message has none, or if its id is neither a string nor a number.
    pub fn id(&self) -> Value {
        let id = self.id.as_deref().and_then(|text| serde_json::from_slice(text).ok());
        id.filter(|id: &Value| id.is_string() || id.is_number()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{IdFinder, check_message};
    use serde_json::{Value, json};

    #[test]
    fn check_message_names_the_json_rpc_error_of_each_defect() {
        let cases = [
            ("{", -32700, json!(null)),
            ("[]", -32600, json!(null)),
            ("7", -32600, json!(null)),
            (r#"{"id": 1, "method": "ping"}"#, -32600, json!(1)),
            (r#"{"jsonrpc": "2.0", "id": null, "method": "ping"}"#, -32600, json!(null)),
            (r#"{"jsonrpc": "2.0", "id": 1}"#, -32600, json!(1)),
            (r#"{"jsonrpc": "2.0", "id": 1, "method": 7}"#, -32600, json!(1)),
            (r#"{"jsonrpc": "2.0", "id": "a", "method": "prompts/list"}"#, -32601, json!("a")),
            (r#"{"jsonrpc": "2.0", "id": "a", "method": "resources/list"}"#, -32601, json!("a")),
            (r#"{"jsonrpc": "2.0", "id": "a", "method": "completion/complete", "params": {}}"#, -32601, json!("a")),
            (r#"{"jsonrpc": "2.0", "id": 2, "method": "tools/call"}"#, -32602, json!(2)),
            (r#"{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": []}"#, -32602, json!(2)),
            (r#"{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": 7}}"#, -32602, json!(2)),
            (
                r#"{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "a", "arguments": 1}}"#,
                -32602,
                json!(2),
            ),
            (r#"{"jsonrpc": "2.0", "id": 2, "method": "ping", "params": 3}"#, -32602, json!(2)),
            (
                r#"{"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": "x"}}"#,
                -32602,
                json!(2),
            ),
        ];
        for (text, code, id) in cases {
            let error = check_message(text.as_bytes()).unwrap_err();
            assert_eq!((error.code, &error.id), (code, &id), "{text}: {error:?}");
            assert!(!error.message.contains("struct") && !error.message.contains("::"), "{error:?}");
        }
        for text in [
            r#"{"jsonrpc": "2.0", "id": 1, "method": "ping"}"#,
            r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {}}}"#,
            r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a"}}"#,
            r#"{"jsonrpc": "2.0", "method": "notifications/of-another-kind", "params": 7}"#,
            r#"{"jsonrpc": "2.0", "id": 1, "result": {}}"#,
        ] {
            assert!(check_message(text.as_bytes()).is_ok(), "{text}");
        }
    }

    #[test]
    fn message_beyond_a_limit_of_the_parser_gets_an_error_with_its_id() {
        let nested = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for value in [nested.as_str(), "1e999", r#""\ud800""#] {
            let text = format!(r#"{{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {{"a": {value}}}}}"#);
            let error = check_message(text.as_bytes()).unwrap_err();
            assert_eq!((error.code, &error.id), (-32700, &json!(7)), "{text}: {error:?}");
        }
        let cut = check_message(br#"{"jsonrpc": "2.0", "id": 7, "method": "pi"#).unwrap_err();
        assert_eq!((cut.code, &cut.id), (-32700, &Value::Null), "a part of a message has no id");
    }

    #[test]
    fn ids_that_are_numbers_are_answered_as_they_were_written() {
        for id in ["99999999999999999999999", "1.50", "1e2", "-0", "-99999999999999999999", "7"] {
            let text = format!(r#"{{"jsonrpc": "2.0", "method": "nothing", "id": {id}}}"#);
            let response = check_message(text.as_bytes()).unwrap_err().response();
            assert!(
                response.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32"#)),
                "{response}"
            );
        }
    }

    #[test]
    fn messages_that_a_parser_changes_are_invalid_requests() {
        for (message, reason) in [
            (r#"{"jsonrpc": "2.0", "id": 3, "method": "ping", "id": 3}"#, "the key `id` comes twice"),
            (
                r#"{"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "a", "arguments": {"b": 1, "b": 2}}}"#,
                "the key `b` comes twice",
            ),
            (
                r#"{"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "a", "arguments": {"b": 18446744073709551616}}}"#,
                "the integer 18446744073709551616 does not fit into 64 bits",
            ),
        ] {
            let error = check_message(message.as_bytes()).unwrap_err();
            assert_eq!((error.code, &error.id), (-32600, &json!(3)), "{error:?}");
            assert!(error.message.ends_with(reason), "{error:?}");
        }
    }

    #[test]
    fn id_finder_reads_the_outer_id_wherever_it_stands() {
        let id = |text: &str| {
            let mut finder = IdFinder::default();
            // The text is split between any two bytes.
            for byte in text.as_bytes() {
                finder.push(&[*byte]);
            }
            finder.id()
        };
        assert_eq!(id(r#"{"jsonrpc": "2.0", "id": 17, "params": {"id": 4}}"#), json!(17));
        assert_eq!(id(r#"{"params": {"id": 4, "a": ["\"id\": 3"]}, "method": "id", "id" : "a\"b" }"#), json!("a\"b"));
        assert_eq!(id(r#"{"method": "x", "note": "{\"id\": 5}", "params": {"id": 5}}"#), Value::Null);
        assert_eq!(id(r#"{"id": {"id": 5}}"#), Value::Null);
        assert_eq!(id(r#"[{"id": 5}]"#), Value::Null);
        assert_eq!(id(&format!(r#"{{"id": "{}"}}"#, "x".repeat(1000))), Value::Null);
    }
}
