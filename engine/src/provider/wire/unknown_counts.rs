//! Fields of usage reports that no decoder reads. A provider may bill the amounts in these fields, so the reply names
//! the fields.

use serde_json::Value;

use super::repeated_keys::{USAGE_KEYS, has_usage_report};
use super::{UnreadKinds, is_empty_value};

/// Known fields of usage reports. The reply lists every other field as unread. A known field is read by a decoder, is a
/// part or a sum of fields that a decoder reads, or holds no count.
const KNOWN_FIELDS: [&str; 39] = [
    // Anthropic
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "ephemeral_5m_input_tokens",
    "ephemeral_1h_input_tokens",
    "thinking_tokens",
    "service_tier",
    "inference_geo",
    // OpenAI and compatible servers
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "prompt_cache_hit_tokens",
    "prompt_cache_miss_tokens",
    "text_tokens",
    "audio_tokens",
    "image_tokens",
    "accepted_prediction_tokens",
    "rejected_prediction_tokens",
    "queue_time",
    "prompt_time",
    "completion_time",
    "total_time",
    // Gemini
    "promptTokenCount",
    "candidatesTokenCount",
    "totalTokenCount",
    "thoughtsTokenCount",
    "toolUsePromptTokenCount",
    "cachedContentTokenCount",
    "promptTokensDetails",
    "candidatesTokensDetails",
    "cacheTokensDetails",
    "toolUsePromptTokensDetails",
    "thoughtsTokensDetails",
    "trafficType",
    "serviceTier",
];

/// Adds the paths of unknown fields in the usage reports of an event to `unread`. Fields without a value or with 0 are
/// left out.
pub fn add_unknown_counts(data: &str, unread: &mut UnreadKinds) {
    if has_usage_report(data)
        && let Ok(event) = serde_json::from_str::<Value>(data)
    {
        find_reports(&event, unread);
    }
}

fn find_reports(value: &Value, unread: &mut UnreadKinds) {
    for (key, value) in value.as_object().into_iter().flatten() {
        if USAGE_KEYS.contains(&key.as_str()) {
            add_fields(key, value, unread);
        } else {
            find_reports(value, unread);
        }
    }
}

fn add_fields(path: &str, report: &Value, unread: &mut UnreadKinds) {
    for (key, value) in report.as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        match value {
            _ if KNOWN_FIELDS.contains(&key.as_str()) || is_empty_value(value) => {}
            Value::Object(_) => add_fields(&path, value, unread),
            Value::Number(count) if count.as_f64() == Some(0.0) => {}
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => unread.add(&path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_of_usage_reports_are_named_with_their_paths() {
        for (data, named) in [
            (
                r#"{"usage":{"input_tokens":5,"iterations":[{"n":1}],"speed":"fast"}}"#,
                vec!["usage.iterations", "usage.speed"],
            ),
            (
                r#"{"message":{"usage":{"server_tool_use":{"web_search_requests":5,"web_fetch_requests":0}}}}"#,
                vec!["usage.server_tool_use.web_search_requests"],
            ),
            (r#"{"usageMetadata":{"promptTokenCount":5,"searchCount":2}}"#, vec!["usageMetadata.searchCount"]),
            (r#"{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":5,"more":null},"x":[]}}"#, vec![]),
            (r#"{"usage":null,"more":{"x":5}}"#, vec![]),
        ] {
            let mut unread = UnreadKinds::default();
            add_unknown_counts(data, &mut unread);
            assert_eq!(unread.into_vec(), named, "{data}");
        }
    }
}
