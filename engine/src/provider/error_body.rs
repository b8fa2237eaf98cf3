//! Errors and billed parts in the document that a provider sends in place of a stream.

use serde_json::Value;

use crate::exchange::{CallError, FailedStage};

/// Top-level fields of a response document that contain a reply or its token counts.
const BILLED_FIELDS: [&str; 6] = ["usage", "usageMetadata", "choices", "candidates", "content", "output"];
/// Names of fields that contain a reply or its token counts, at any depth of a response document. An error document
/// with such a field may be billed.
const NESTED_BILLED_FIELDS: [&str; 4] = ["usage", "usageMetadata", "choices", "candidates"];

/// Returns true if a document contains a reply or its token counts, so that it may be billed.
pub(crate) fn is_billed(value: &Value) -> bool {
    let document = value.get(0).unwrap_or(value);
    let has = |key: &&str| document.get(*key).is_some_and(|value| !value.is_null());
    BILLED_FIELDS.iter().any(has) || has_billed_part(value)
}

/// Returns true if an object at any depth of a document has one of the `NESTED_BILLED_FIELDS`, which show that the
/// document contains a reply or its cost.
fn has_billed_part(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            NESTED_BILLED_FIELDS.contains(&key.as_str()) && !value.is_null() || has_billed_part(value)
        }),
        Value::Array(items) => items.iter().any(has_billed_part),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// An error that a provider reports in the body of a response. A field is `None` if the body does not contain it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderErrorBody {
    pub kind: Option<String>,
    pub code: Option<String>,
    pub message: Option<String>,
}

impl ProviderErrorBody {
    /// Reads the error in a JSON value that a provider sent, or in the first element of a list. Accepts
    /// `{"error": {type, code, message}}`, `{"error": {status, message}}`, `{"error": "text"}`, `{"message": "text"}`
    /// and similar forms.
    pub fn read(value: &Value) -> Self {
        let value = value.get(0).unwrap_or(value);
        let nested = value.get("error").filter(|error| !error.is_null());
        let error = nested.unwrap_or(value);
        let text = |key: &str| match error.get(key) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let message = text("message").or_else(|| error.as_str().map(str::to_owned));
        // In a bare error event (`{"type": "error", …}`), the type contains no information.
        let kind = text("type").filter(|kind| nested.is_some() || kind != "error");
        Self { kind: kind.or_else(|| text("status")), code: text("code"), message }
    }

    /// Returns the error of an attempt whose stream contained this error.
    pub(crate) fn into_stream_error(self) -> CallError {
        let kind = self.kind.or_else(|| self.code.clone());
        let message = match (&self.message, &kind) {
            (Some(message), _) => format!("the provider reported an error: {message}"),
            (None, Some(kind)) => format!("the provider reported an error: {kind}"),
            (None, None) => "the provider reported an unspecified error".to_owned(),
        };
        // Some gateways report the HTTP status of the provider as the code.
        let status = self.code.as_ref().and_then(|code| code.trim().parse::<u16>().ok());
        let status = status.filter(|status| (400..=599).contains(status));
        CallError { status, error_type: kind, code: self.code, ..CallError::new(FailedStage::StreamError, message) }
    }
}

/// Returns the `retryDelay` in the details of an error, in seconds without the unit: `7.5` for `{"error": {"details":
/// [{"retryDelay": "7.5s"}]}}`. `None` if there is no valid delay.
pub(crate) fn requested_delay(value: &Value) -> Option<String> {
    let details = value.get(0).unwrap_or(value).pointer("/error/details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str()?.strip_suffix('s'))?;
    delay.parse::<f64>().is_ok_and(|seconds| seconds.is_finite() && seconds >= 0.0).then(|| delay.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn error_bodies_are_read_in_every_form() {
        let read = |text: &str| ProviderErrorBody::read(&serde_json::from_str(text).unwrap());
        let reported = |kind: Option<&str>, code: Option<&str>, message: Option<&str>| ProviderErrorBody {
            kind: kind.map(str::to_owned),
            code: code.map(str::to_owned),
            message: message.map(str::to_owned),
        };
        assert_eq!(
            read(r#"{"error":{"type":"a","code":"b","message":"c"}}"#),
            reported(Some("a"), Some("b"), Some("c"))
        );
        assert_eq!(read(r#"{"error":{"code":429,"message":"c"}}"#), reported(None, Some("429"), Some("c")));
        assert_eq!(read(r#"{"error":"c"}"#), reported(None, None, Some("c")));
        assert_eq!(read(r#"{"message":"c"}"#), reported(None, None, Some("c")));
        assert_eq!(read("[1]"), reported(None, None, None));
        let google = r#"[{"error":{"code":429,"message":"c","status":"RESOURCE_EXHAUSTED"}}]"#;
        assert_eq!(read(google), reported(Some("RESOURCE_EXHAUSTED"), Some("429"), Some("c")));
        assert_eq!(read(r#"{"type":"error","code":"b","message":"c"}"#), reported(None, Some("b"), Some("c")));
    }

    #[test]
    fn retry_delay_in_the_body_is_used() {
        let reported = |delay: &str| {
            requested_delay(&serde_json::json!({"error": {"details": [{"reason": "x"}, {"retryDelay": delay}]}}))
        };
        assert_eq!(reported("7.5s").as_deref(), Some("7.5"));
        for nonsense in ["", "s", "-1s", "NaNs", "infs", "7"] {
            assert_eq!(reported(nonsense), None, "{nonsense}");
        }
    }
}
