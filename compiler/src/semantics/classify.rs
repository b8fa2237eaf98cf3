//! Classification of failures, and the delay before the next attempt (`engine.md` 3). The table is
//! `error_classification.yaml`; its conditions use the condition language. The engine adds jitter.

mod delay;
mod http_date;
mod table;

use rye_grammar::condition::{Path, Segment};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use delay::Backoff;
pub use table::{ClassifyTable, ClassifyTableError, built_in, read_backoff};

use super::facts::Facts;
use super::value::Type;

/// The categories of failures. By default, only `RateLimited` and `Transient` failures are retryable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    RateLimited,
    Transient,
    Permanent,
    Cancelled,
}

impl Category {
    pub const ALL: [Self; 4] = [Self::RateLimited, Self::Transient, Self::Permanent, Self::Cancelled];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.as_str() == text)
    }

    /// Returns true if failures of this category are tried again unless a rule declares the opposite.
    pub(crate) const fn is_retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::Transient)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A failed attempt of a model call: the data by which the failure is classified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failure {
    /// The stage of the exchange that failed, one of `FAILED_STAGES`; `None` if unknown.
    pub stage: Option<String>,
    pub status: Option<u16>,
    /// Response headers, names in any case.
    pub headers: Vec<(String, String)>,
    pub error_type: Option<String>,
    pub code: Option<String>,
    pub message: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

/// The classification of a failure by the table: its category, and whether and when the call is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classification {
    pub name: String,
    pub category: Category,
    pub retryable: bool,
    pub backoff: Backoff,
}

impl Failure {
    /// Returns the facts that the conditions of the classification table can read: `stage status headers
    /// error.{type,code,message} attempt`.
    pub(crate) fn to_facts(&self) -> Facts {
        let text = |value: &Option<String>| value.clone().map_or(Value::Null, Value::String);
        let mut headers = Map::new();
        for (name, value) in &self.headers {
            headers.insert(name.to_ascii_lowercase(), Value::String(value.clone()));
        }
        let mut error = Map::new();
        error.insert("type".into(), text(&self.error_type));
        error.insert("code".into(), text(&self.code));
        error.insert("message".into(), Value::String(self.message.clone()));
        let mut facts = Map::new();
        facts.insert("stage".into(), text(&self.stage));
        facts.insert("status".into(), self.status.map_or(Value::Null, Value::from));
        facts.insert("headers".into(), Value::Object(headers));
        facts.insert("error".into(), Value::Object(error));
        facts.insert("attempt".into(), Value::from(self.attempt));
        Facts::from_map(facts)
    }

    /// Returns the value of a response header; the case of `name` does not matter. `None` if the response has no such
    /// header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

impl Classification {
    /// Returns the delay before the next attempt in milliseconds, without jitter; `None` if the failure is not
    /// retryable. The header `retry-after-ms` sets the delay, else the header `retry-after`, else the backoff. The
    /// caller checks that the delay ends before the thread's deadline. `now_ms` is in milliseconds since 1970; without
    /// a current time, a date in `retry-after` is compared with the `date` header of the response.
    pub fn delay_ms(&self, failure: &Failure, now_ms: Option<i64>) -> Option<u64> {
        self.retryable.then(|| {
            delay::requested_delay_ms(failure, now_ms).unwrap_or_else(|| self.backoff.delay_ms(failure.attempt))
        })
    }
}

/// The values of the fact `stage`: the stages of an exchange that can fail.
pub(crate) const FAILED_STAGES: [&str; 7] =
    ["setup", "connect", "timeout", "status", "stream_error", "truncated", "protocol"];

/// Names of the facts that the condition of a classification rule can read. `headers` is an object: its keys are the
/// header names of the provider's response, in lower case.
pub(crate) const FAILURE_FACTS: [&str; 7] =
    ["stage", "status", "headers", "error.type", "error.code", "error.message", "attempt"];

/// Returns the declared type of a fact; `None` if the fact has no declared type. Loading a table uses the types to
/// report conditions that can never be true.
pub(crate) fn fact_type(path: &Path) -> Option<Type> {
    match path.segments.as_slice() {
        [Segment::Name(root)] if root == "attempt" => Some(Type::Integer),
        [Segment::Name(root)] if root == "headers" || root == "error" => Some(Type::Object),
        [Segment::Name(root), Segment::Name(leaf)] if root == "error" && leaf == "message" => Some(Type::String),
        _ => None,
    }
}
