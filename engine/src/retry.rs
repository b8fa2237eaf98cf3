//! Handling of failed model calls: classification by the classification table, and the backoff before the next attempt
//! (`engine.md` 3). The functions are pure. The jitter derives from the thread's recorded seed, so a replay waits for
//! the same time.

use rye_compiler::plan::Plan;
use rye_compiler::semantics::classify::{Category, Failure};

use crate::event::FailureClassification;
use crate::exchange::SCRIPT_ERROR;
use crate::exchange::{CallError, FailedStage};

/// The name of the classification of a prompt that exceeds the context window or the size limit of the provider.
pub const PROMPT_TOO_LONG: &str = "prompt_too_long";

/// The classification of the errors of the `scripted` provider: the script is invalid, has no step left, or does not
/// expect the request.
const SCRIPT_MISMATCH: &str = "script_mismatch";

/// Number of failures in one turn after which retries are at least [`LATE_RETRY_DELAY_MS`] apart.
const EARLY_RETRIES: u32 = 10;
/// Minimum delay in milliseconds before a retry after [`EARLY_RETRIES`] failures. The settings of a project determine
/// the delays of retries: without this minimum, a project could repeat a request without a pause, and the provider
/// could lock the user's key.
const LATE_RETRY_DELAY_MS: u64 = 1_000;

/// Classifies a failure and returns the delay in milliseconds if another attempt may follow.
///
/// `failures` is the number of earlier failed attempts of this turn with the current model. The caller checks that the
/// delay ends before the thread's deadline.
pub(crate) fn classify_failure(
    plan: &Plan,
    error: &CallError,
    failures: u32,
    jitter: SeededJitter,
    now: i64,
) -> (FailureClassification, Option<u64>) {
    let failure = failure(error, failures.saturating_add(1));
    // If the table is invalid, no failed call is retried.
    let Ok(table) = plan.settings.classification() else { return (unclassified(error), None) };
    let class = table.classify(&failure);
    let named = FailureClassification {
        name: if is_script_error(error) { SCRIPT_MISMATCH.to_owned() } else { class.name.clone() },
        category: class.category.as_str().to_owned(),
        retryable: class.retryable,
    };
    if failures >= class.backoff.max_retries {
        return (named, None);
    }
    let asked_for = failure.header("retry-after-ms").is_some() || failure.header("retry-after").is_some();
    let delay = class.delay_ms(&failure, Some(now)).map(|delay| if asked_for { delay } else { jitter.up_to(delay) });
    (named, delay.map(|delay| at_least_late_delay(delay, failures)))
}

fn at_least_late_delay(delay: u64, failures: u32) -> u64 {
    if failures < EARLY_RETRIES { delay } else { delay.max(LATE_RETRY_DELAY_MS) }
}

fn is_script_error(error: &CallError) -> bool {
    error.code.as_deref() == Some(SCRIPT_ERROR)
}

/// Returns the number of retries that the classification table of the plan allows for this failure; 0 if the table is
/// invalid. `failures` is the number of failed attempts of this turn, which conditions of the table can read as
/// `attempt`.
pub fn max_retries(plan: &Plan, error: &CallError, failures: u32) -> u32 {
    let table = plan.settings.classification();
    table.map_or(0, |table| table.classify(&failure(error, failures)).backoff.max_retries)
}

/// Returns true if another model may succeed: the failure is retryable, the setup of the provider failed, the model
/// does not exist (404, 410), the key is refused, or the quota is exceeded. Returns false for other failures, such as
/// an invalid request.
pub(crate) fn is_unavailable(error: &CallError, class: &FailureClassification) -> bool {
    class.retryable
        || error.stage == FailedStage::Setup
        || matches!(error.status, Some(404 | 410))
        || matches!(class.name.as_str(), "authentication" | "quota_exceeded")
}

fn failure(error: &CallError, attempt: u32) -> Failure {
    Failure {
        stage: Some(stage_word(error.stage).to_owned()),
        status: error.status,
        headers: error.headers.clone(),
        error_type: error.error_type.clone(),
        code: error.code.clone(),
        message: error.message.clone(),
        attempt,
    }
}

/// Returns the classification that a failure gets if the classification table is invalid.
fn unclassified(error: &CallError) -> FailureClassification {
    let name = if is_script_error(error) { SCRIPT_MISMATCH } else { "unclassified" };
    FailureClassification { name: name.into(), category: Category::Permanent.as_str().into(), retryable: false }
}

fn stage_word(stage: FailedStage) -> &'static str {
    match stage {
        FailedStage::Setup => "setup",
        FailedStage::Connect => "connect",
        FailedStage::Timeout => "timeout",
        FailedStage::Status => "status",
        FailedStage::StreamError => "stream_error",
        FailedStage::Truncated => "truncated",
        FailedStage::Protocol => "protocol",
    }
}

/// A pseudo-random number that depends only on the thread's seed, the turn and the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeededJitter(u64);

impl SeededJitter {
    pub fn new(seed: u64, turn: u64, attempt: u32) -> Self {
        // SplitMix64 mixes the three numbers.
        let mut z =
            seed ^ turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(attempt).wrapping_mul(0xD1B5_4A32_D192_ED03);
        z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Self(z ^ (z >> 31))
    }

    /// Maps the pseudo-random number to a number from 0 to `most`, inclusive.
    pub(crate) fn up_to(self, most: u64) -> u64 {
        most.checked_add(1).map_or(self.0, |n| self.0 % n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_retries_have_a_pause() {
        assert_eq!(at_least_late_delay(0, EARLY_RETRIES - 1), 0);
        assert_eq!(at_least_late_delay(0, EARLY_RETRIES), LATE_RETRY_DELAY_MS);
        assert_eq!(at_least_late_delay(60_000, 4_000_000), 60_000);
    }

    #[test]
    fn jitter_repeats_per_attempt_and_differs_between_attempts() {
        let draws: Vec<u64> = (0..20).map(|n| SeededJitter::new(7, 1, n).up_to(1_000)).collect();
        let again: Vec<u64> = (0..20).map(|n| SeededJitter::new(7, 1, n).up_to(1_000)).collect();
        assert_eq!(draws, again);
        assert!(draws.iter().all(|d| *d <= 1_000));
        assert!(draws.iter().collect::<std::collections::BTreeSet<_>>().len() > 10);
        assert_eq!(SeededJitter::new(1, 1, 1).up_to(0), 0);
    }
}
