//! HTTP dates in their three formats, as milliseconds since 1970. Pure: the current time is not used.

use std::time::UNIX_EPOCH;

/// Parses a date in one of the three formats: `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT` or `Sun
/// Nov 6 08:49:37 1994`. Some servers write `UTC` in place of `GMT`. Returns milliseconds since 1970; `None` for any
/// other text.
pub(super) fn parse(text: &str) -> Option<i64> {
    let time = httpdate::parse_http_date(&text.replace("UTC", "GMT")).ok()?;
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_date_formats_agree() {
        let want = Some(784_111_777_000);
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), want);
        assert_eq!(parse("Sunday, 06-Nov-94 08:49:37 GMT"), want);
        assert_eq!(parse("Sun Nov  6 08:49:37 1994"), want);
        assert_eq!(parse("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(parse("Thu, 29 Feb 2024 23:59:59 UTC"), Some(1_709_251_199_000));
        assert_eq!(parse("Sat, 01 Mar 2025 00:00:00 GMT"), Some(1_740_787_200_000));
    }

    #[test]
    fn invalid_date_is_none() {
        for text in
            ["", "soon", "Sun, 06 Nov 1994 08:49:37", "Sun, 99 Nov 1994 08:49:37 GMT", "a b c d e GMT", "1 2 3 4 5"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
