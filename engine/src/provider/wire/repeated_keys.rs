//! Merging of repeated keys in the JSON of usage reports. A JSON parser keeps the last value of a repeated key without
//! an error, but the provider may bill any of the values. This module therefore keeps the largest count and reports the
//! key.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::UnreadKinds;

/// Keys under which the wire formats report token counts.
pub(super) const USAGE_KEYS: [&str; 2] = ["usage", "usageMetadata"];

/// Merges the values of repeated keys in the data of an event that contains a usage report, and adds the paths of these
/// keys to `repeated`. In a usage report, the larger of two counts is kept. Elsewhere, the last value is kept. Two
/// objects are always merged, because each may hold a usage report. Returns `None` if the event contains no usage
/// report or repeats no key.
pub fn merge_repeated_keys(data: &str, repeated: &mut UnreadKinds) -> Option<String> {
    // This check is fast, and most events have no usage report.
    if !has_usage_report(data) {
        return None;
    }
    let (mut path, mut found) = (Vec::new(), Vec::new());
    let mut reader = serde_json::Deserializer::from_str(data);
    let merged = MergedValue { path: &mut path, found: &mut found }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    if found.is_empty() {
        return None;
    }
    for path in found {
        repeated.add(&format!("repeated key {path}"));
    }
    Some(merged.to_string())
}

/// Parses the data of an event, and adds the path of each repeated key to `repeated`. Two objects with a repeated key
/// are merged. In a usage report, the larger of two counts is kept. Elsewhere, the last value is kept.
pub fn parse_event(data: &str, repeated: &mut UnreadKinds) -> serde_json::Result<Value> {
    let (mut path, mut found) = (Vec::new(), Vec::new());
    let mut reader = serde_json::Deserializer::from_str(data);
    let value = MergedValue { path: &mut path, found: &mut found }.deserialize(&mut reader)?;
    reader.end()?;
    for path in found {
        repeated.add(&format!("repeated key {path}"));
    }
    Ok(value)
}

/// Returns true if the JSON text `data` contains one of the keys in `USAGE_KEYS` with an object as its value.
pub(super) fn has_usage_report(data: &str) -> bool {
    USAGE_KEYS.iter().any(|key| {
        memchr::memmem::find_iter(data.as_bytes(), key.as_bytes()).any(|at| {
            let rest = data.get(at + key.len()..).and_then(|rest| rest.strip_prefix('"'));
            let value = rest.and_then(|rest| rest.trim_start().strip_prefix(':'));
            value.is_some_and(|value| value.trim_start().starts_with('{'))
        })
    })
}

/// A deserializer of a JSON value that merges the values of repeated keys.
struct MergedValue<'a> {
    path: &'a mut Vec<String>,
    /// The paths of the repeated keys that were found so far.
    found: &'a mut Vec<String>,
}

impl MergedValue<'_> {
    fn is_usage(&self) -> bool {
        self.path.iter().any(|key| USAGE_KEYS.contains(&key.as_str()))
    }
}

impl<'de> DeserializeSeed<'de> for MergedValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MergedValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) =
            items.next_element_seed(MergedValue { path: &mut *self.path, found: &mut *self.found })?
        {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.path.push(key.clone());
            let value = entries.next_value_seed(MergedValue { path: &mut *self.path, found: &mut *self.found })?;
            let value = match map.remove(&key) {
                Some(before) => {
                    self.found.push(self.path.join("."));
                    merge(before, value, self.is_usage())
                }
                None => value,
            };
            map.insert(key, value);
            self.path.pop();
        }
        Ok(Value::Object(map))
    }
}

/// Combines the two values of a repeated key. Two objects are merged key by key. Outside of a usage report, the last
/// value is returned. In a usage report, null is ignored and the larger of two counts is returned. If one of the values
/// is neither null nor a count, this value is returned. The value makes the report unusable, so the call is settled at
/// its worst-case bound.
fn merge(before: Value, after: Value, is_usage: bool) -> Value {
    match (before, after) {
        (Value::Object(mut merged), Value::Object(after)) => {
            for (key, value) in after {
                let is_usage = is_usage || USAGE_KEYS.contains(&key.as_str());
                let value = match merged.remove(&key) {
                    Some(before) => merge(before, value, is_usage),
                    None => value,
                };
                merged.insert(key, value);
            }
            Value::Object(merged)
        }
        (before, Value::Null) if is_usage => before,
        (Value::Null, after) => after,
        (before, after) if is_usage => match (before.as_u64(), after.as_u64()) {
            (Some(first), Some(second)) => Value::from(first.max(second)),
            (None, _) => before,
            (Some(_), None) => after,
        },
        (_, after) => after,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(data: &str) -> Option<(Value, Vec<String>)> {
        let mut repeated = UnreadKinds::default();
        let text = merge_repeated_keys(data, &mut repeated)?;
        Some((serde_json::from_str(&text).unwrap(), repeated.into_vec()))
    }

    #[test]
    fn largest_count_of_a_repeated_key_remains_with_its_path() {
        for (data, value, path) in [
            (r#"{"usage":{"a":900,"a":1}}"#, json!({"usage": {"a": 900}}), "usage.a"),
            (r#"{"usage" : {"a":1,"a":900,"a":2}}"#, json!({"usage": {"a": 900}}), "usage.a"),
            (r#"{"usage":{"a":900},"usage":{"a":1,"b":2}}"#, json!({"usage": {"a": 900, "b": 2}}), "usage"),
            (r#"{"usage":{"a":900},"usage":null}"#, json!({"usage": {"a": 900}}), "usage"),
            (r#"{"r":{"usage":{"a":900}},"r":{"usage":{"a":1}}}"#, json!({"r": {"usage": {"a": 900}}}), "r"),
            (r#"{"usage":{"d":{"a":9},"d":{"a":1}}}"#, json!({"usage": {"d": {"a": 9}}}), "usage.d"),
            // A value that is no count is not replaced by a count.
            (r#"{"usage":{"a":"900","a":1}}"#, json!({"usage": {"a": "900"}}), "usage.a"),
            (r#"{"usage":{"a":1,"a":-1}}"#, json!({"usage": {"a": -1}}), "usage.a"),
            (r#"{"usageMetadata":{"a":[],"a":1}}"#, json!({"usageMetadata": {"a": []}}), "usageMetadata.a"),
            // Outside of a report, the last value remains.
            (r#"{"t":"x","usage":{"a":1},"t":"y"}"#, json!({"usage": {"a": 1}, "t": "y"}), "t"),
        ] {
            assert_eq!(merged(data), Some((value, vec![format!("repeated key {path}")])), "{data}");
        }
    }

    #[test]
    fn data_without_a_repeated_key_or_a_usage_report_is_unchanged() {
        for data in [
            r#"{"usage":{"a":1,"b":1}}"#,
            r#"{"usage":null,"usage":null}"#,
            r#"{"text":"usage","text":"usage"}"#,
            r#"{"text":"\"usage\":{"}"#,
            r#"{"usage":{"a":1"#,
            "",
        ] {
            assert_eq!(merged(data), None, "{data}");
        }
    }
}
