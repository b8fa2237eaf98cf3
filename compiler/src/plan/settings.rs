//! The settings of a plan: the contents of the settings files that the plan stores, and the values in them, read once.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::semantics::classify::{Backoff, ClassifyTable, ClassifyTableError, built_in, read_backoff};
use crate::semantics::money::Nanos;
use crate::semantics::risk::{RiskTable, RiskTableError};

/// The fraction 1 in billionths, the unit in which the settings of a run store fractions.
pub const BILLIONTHS: u64 = 1_000_000_000;

/// The settings files that a plan contains, by file name. The content of each file is merged from all spaces. Clones
/// share the values.
#[derive(Debug, Clone, Default)]
pub struct PlanSettings(Arc<Frozen>);

#[derive(Debug, Default)]
struct Frozen {
    files: BTreeMap<String, Value>,
    values: OnceLock<RunSettings>,
    risk: OnceLock<Result<Option<RiskTable>, RiskTableError>>,
    classification: OnceLock<Result<ClassifyTable, ClassifyTableError>>,
}

/// The values of the settings files that a run uses.
#[derive(Debug, Clone, Copy)]
pub struct RunSettings {
    /// Maximum bytes of a tool result that enters the conversation untruncated: `tool_result.max_bytes`.
    pub max_result_bytes: usize,
    /// Maximum number of children of one thread that run at the same time: `concurrency.max_concurrent_children`.
    pub max_concurrent_children: usize,
    /// True if running children are cancelled when their parent completes: `child_policy.on_end: cancel`.
    pub cancels_children_on_completion: bool,
    /// True if a call with an unknown outcome is settled at an estimate: `budget.unknown_outcome: estimate`.
    pub estimates_unknown_outcome: bool,
    /// The share of the context window above which a thread continues in a new one, in billionths:
    /// `continuation.trigger_threshold`.
    pub continuation_threshold: u64,
    /// Maximum tokens of the recent messages that a continuation starts with: `continuation.resume_ceiling_tokens`.
    pub resume_ceiling_tokens: u64,
    /// The limits of a whole chat: `session_limits`.
    pub session_limits: SessionLimits,
    /// Seconds that `wait_threads` waits if its call sets no timeout: `wait_threads.default_timeout`.
    pub wait_threads_seconds: u64,
}

/// The limits of a whole chat, for all of its prompts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    pub turns: u64,
    pub tokens: u64,
    /// Maximum spend, in nano-dollars.
    pub spend: u64,
    pub duration_seconds: u64,
}

impl SessionLimits {
    const DEFAULT: Self = Self { turns: 500, tokens: 10_000_000, spend: 5 * BILLIONTHS, duration_seconds: 28_800 };
}

impl PlanSettings {
    pub fn new(files: BTreeMap<String, Value>) -> Self {
        Self(Arc::new(Frozen { files, ..Frozen::default() }))
    }

    /// Returns the values of the settings. The first call reads them from the files.
    pub fn values(&self) -> &RunSettings {
        self.0.values.get_or_init(|| RunSettings::read(&self.0.files))
    }

    /// Returns the risk table; `None` if the settings have no table. Without a table, no call needs approval.
    ///
    /// # Errors
    ///
    /// The table is invalid. The caller then treats every call as a risk.
    pub fn risk(&self) -> Result<Option<&RiskTable>, &RiskTableError> {
        let read = || self.0.files.get("capability_risk").map(RiskTable::from_value).transpose();
        self.0.risk.get_or_init(read).as_ref().map(Option::as_ref)
    }

    /// Returns the table that classifies errors: the table in the settings, else the built-in one. The setting `retry`
    /// supplies the backoff of either table.
    ///
    /// # Errors
    ///
    /// The table or `retry` is invalid. The caller then retries no call.
    pub fn classification(&self) -> Result<&ClassifyTable, &ClassifyTableError> {
        self.0.classification.get_or_init(|| read_classification(&self.0.files)).as_ref()
    }
}

/// Access to the settings files by their file name.
impl Deref for PlanSettings {
    type Target = BTreeMap<String, Value>;

    fn deref(&self) -> &Self::Target {
        &self.0.files
    }
}

impl PartialEq for PlanSettings {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.files == other.0.files
    }
}

impl Serialize for PlanSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.files.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PlanSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self::new)
    }
}

impl RunSettings {
    /// Reads the values. A missing value has its default. The check of the settings files reports wrong types.
    fn read(files: &BTreeMap<String, Value>) -> Self {
        let at = |file: &str, section: &str, key: &str| files.get(file)?.get(section)?.get(key);
        let number = |file, section, key| at(file, section, key).and_then(Value::as_u64);
        let count = |section, key| number("resilience", section, key).and_then(|n| usize::try_from(n).ok());
        let word = |section, key| at("resilience", section, key).and_then(Value::as_str);
        let threshold = at("coordination", "continuation", "trigger_threshold");
        let threshold = threshold.and_then(|value| Nanos::from_json(value).ok()).map(Nanos::to_u64);
        let wait = at("coordination", "wait_threads", "default_timeout");
        let wait = wait.and_then(|value| Nanos::from_json(value).ok());
        let session = |key| number("resilience", "session_limits", key);
        let spend = at("resilience", "session_limits", "spend").and_then(|value| Nanos::from_json(value).ok());
        let session_limits = SessionLimits {
            turns: session("turns").unwrap_or(SessionLimits::DEFAULT.turns),
            tokens: session("tokens").unwrap_or(SessionLimits::DEFAULT.tokens),
            spend: spend.map_or(SessionLimits::DEFAULT.spend, Nanos::to_u64),
            duration_seconds: session("duration_seconds").unwrap_or(SessionLimits::DEFAULT.duration_seconds),
        };
        Self {
            session_limits,
            max_result_bytes: count("tool_result", "max_bytes").unwrap_or(32 * 1024),
            max_concurrent_children: count("concurrency", "max_concurrent_children").unwrap_or(8),
            cancels_children_on_completion: word("child_policy", "on_end") == Some("cancel"),
            estimates_unknown_outcome: word("budget", "unknown_outcome") == Some("estimate"),
            continuation_threshold: threshold
                .filter(|part| (1..=BILLIONTHS).contains(part))
                .unwrap_or(BILLIONTHS / 10 * 9),
            resume_ceiling_tokens: number("coordination", "continuation", "resume_ceiling_tokens").unwrap_or(16_000),
            wait_threads_seconds: wait.map_or(600, Nanos::whole_units_up),
        }
    }
}

fn read_classification(files: &BTreeMap<String, Value>) -> Result<ClassifyTable, ClassifyTableError> {
    let retry = files.get("resilience").and_then(|settings| settings.get("retry"));
    let backoff = match retry {
        Some(value) => read_backoff(value, "retry", Backoff::default())?,
        None => Backoff::default(),
    };
    match files.get("error_classification") {
        Some(table) => ClassifyTable::from_value(table, backoff),
        None => ClassifyTable::from_value(&built_in(), backoff),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::semantics::classify::Failure;

    fn settings(files: &Value) -> PlanSettings {
        let files = files.as_object().unwrap().clone();
        PlanSettings::new(files.into_iter().collect())
    }

    #[test]
    fn retry_settings_apply_to_the_built_in_classification_table() {
        let given = settings(&json!({"resilience": {"retry": {"max_retries": 1, "base_seconds": 2}}}));
        let table = given.classification().unwrap();
        let backoff = table.classify(&Failure { status: Some(503), ..Failure::default() }).backoff;
        assert_eq!((backoff.max_retries, backoff.base_ms), (1, 2_000));
    }

    #[test]
    fn invalid_tables_are_errors() {
        assert!(settings(&json!({"capability_risk": {"risk_levels": {"unknown": {}}}})).risk().is_err());
        assert!(settings(&json!({"error_classification": {"patterns": "none"}})).classification().is_err());
        assert!(settings(&json!({"resilience": {"retry": {"max_retries": -1}}})).classification().is_err());
        let without_condition = json!({"patterns": [{"id": "any", "category": "transient", "match": null}]});
        assert!(settings(&json!({"error_classification": without_condition})).classification().is_err());
        assert!(settings(&json!({})).risk().unwrap().is_none());
    }

    #[test]
    fn stored_settings_keep_their_bytes() {
        let files = json!({"coordination": {"wait_threads": {"default_timeout": 7}}, "resilience": {}});
        let stored = serde_json::to_string(&settings(&files)).unwrap();
        assert_eq!(stored, files.to_string());
        let read: PlanSettings = serde_json::from_str(&stored).unwrap();
        assert_eq!(read.values().wait_threads_seconds, 7);
        assert_eq!(read.values().max_concurrent_children, 8);
    }
}
