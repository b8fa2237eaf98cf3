//! The delay before the next attempt: the delay that the response requests, else exponential backoff.

use serde::{Deserialize, Serialize};

use super::{Failure, http_date};
use crate::semantics::decimal::{ExtraDigits, parse_scaled};

/// Exponential backoff; the engine adds full jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    pub base_ms: u64,
    pub max_ms: u64,
    pub max_retries: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base_ms: 1_000, max_ms: 60_000, max_retries: 3 }
    }
}

impl Backoff {
    /// Returns the delay after the failed attempt with the number `attempt` (from 1), in milliseconds:
    /// `min(base × 2^attempt, max)`.
    pub fn delay_ms(&self, attempt: u32) -> u64 {
        let factor = 1u64.checked_shl(attempt).unwrap_or(u64::MAX);
        self.base_ms.saturating_mul(factor).min(self.max_ms)
    }
}

/// Returns the delay in milliseconds that the response requests in the header `retry-after-ms` or `retry-after`; `None`
/// if neither header has a valid value. A date in `retry-after` is compared with the current time `now_ms`, or with the
/// `date` header of the response if `now_ms` is `None`.
pub(super) fn requested_delay_ms(failure: &Failure, now_ms: Option<i64>) -> Option<u64> {
    if let Some(ms) = failure.header("retry-after-ms").and_then(|text| round_up(text, 0)) {
        return Some(ms);
    }
    let text = failure.header("retry-after")?.trim();
    if let Some(ms) = round_up(text, 3) {
        return Some(ms);
    }
    let now = now_ms.or_else(|| failure.header("date").and_then(http_date::parse))?;
    let until = http_date::parse(text)?;
    Some(u64::try_from(until.saturating_sub(now)).unwrap_or(0))
}

/// Parses a non-negative decimal number, and returns it times 10^`places`, rounded up; `None` for any other text. A
/// number too large for the result becomes the maximum.
fn round_up(text: &str, places: u8) -> Option<u64> {
    const EXTRA_PLACES: u8 = 6;
    let text = text.trim();
    let Ok(fine) = parse_scaled(text, places + EXTRA_PLACES, ExtraDigits::Round) else {
        let is_integer = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        return is_integer.then_some(u64::MAX);
    };
    let unit = 10i128.pow(u32::from(EXTRA_PLACES));
    let whole = fine.div_euclid(unit) + i128::from(fine.rem_euclid(unit) != 0);
    (fine >= 0).then(|| u64::try_from(whole).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(headers: &[(&str, &str)]) -> Failure {
        Failure {
            headers: headers.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..Failure::default()
        }
    }

    #[test]
    fn retry_headers_apply_in_order() {
        assert_eq!(requested_delay_ms(&with(&[("Retry-After", "4"), ("RETRY-AFTER-MS", "250")]), None), Some(250));
        assert_eq!(requested_delay_ms(&with(&[("retry-after", "1.5")]), None), Some(1500));
        assert_eq!(requested_delay_ms(&with(&[("retry-after", "0.0001")]), None), Some(1));
        assert_eq!(requested_delay_ms(&with(&[("retry-after", "0")]), None), Some(0));
        assert_eq!(requested_delay_ms(&with(&[("retry-after", "-3")]), None), None);
        assert_eq!(requested_delay_ms(&with(&[("retry-after", "soon")]), Some(0)), None);
        assert_eq!(requested_delay_ms(&with(&[("retry-after-ms", "x"), ("retry-after", "2")]), None), Some(2000));
        assert_eq!(requested_delay_ms(&with(&[("retry-after", "1e400")]), None), None);
        for digits in [20, 40, 400] {
            let text = "9".repeat(digits);
            assert_eq!(requested_delay_ms(&with(&[("retry-after", &text)]), None), Some(u64::MAX), "{digits} digits");
        }
    }

    #[test]
    fn retry_date_is_relative_to_now_or_date_header() {
        let until = "Sun, 06 Nov 1994 08:49:37 GMT";
        let now = 784_111_767_000;
        assert_eq!(requested_delay_ms(&with(&[("retry-after", until)]), Some(now)), Some(10_000));
        assert_eq!(requested_delay_ms(&with(&[("retry-after", until)]), Some(now + 60_000)), Some(0));
        let both = [("retry-after", until), ("date", "Sun, 06 Nov 1994 08:49:00 GMT")];
        assert_eq!(requested_delay_ms(&with(&both), None), Some(37_000));
        assert_eq!(requested_delay_ms(&with(&[("retry-after", until)]), None), None);
    }

    #[test]
    fn backoff_doubles_up_to_maximum() {
        let backoff = Backoff::default();
        assert_eq!(
            [0, 1, 2, 5, 6, 63, 64, u32::MAX].map(|n| backoff.delay_ms(n)),
            [1_000, 2_000, 4_000, 32_000, 60_000, 60_000, 60_000, 60_000]
        );
    }
}
