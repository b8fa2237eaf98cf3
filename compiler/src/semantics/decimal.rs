//! Exact conversion of decimal text to scaled integers: money and delays never pass through floats.

/// The treatment of decimal digits beyond the places of the scaled integer, such as the third decimal of `0.125` with
/// two places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExtraDigits {
    /// Returns an error if an extra digit is not zero: for text that an author wrote.
    Refuse,
    /// Rounds to the nearest number, halves away from zero: for JSON numbers, which can have rounding errors of floats.
    Round,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecimalError {
    #[error("`{0}` is not a number")]
    NotANumber(String),
    #[error("`{0}` has too many decimal places")]
    TooFine(String),
    #[error("`{0}` is too large")]
    TooLarge(String),
}

/// Parses `[-+]digits[.digits][e[-+]digits]` and returns the number times 10^`places`.
///
/// # Errors
/// The text is not a decimal number, does not fit an `i128`, or is finer than `places` with [`ExtraDigits::Refuse`].
pub(crate) fn parse_scaled(text: &str, places: u8, excess: ExtraDigits) -> Result<i128, DecimalError> {
    let shown = || text.chars().take(40).collect::<String>();
    let not_a_number = || DecimalError::NotANumber(shown());
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, text.get(1..).unwrap_or_default()),
        Some(b'+') => (false, text.get(1..).unwrap_or_default()),
        _ => (false, text),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent_of(exponent).ok_or_else(not_a_number)?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return Err(not_a_number());
    }
    let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|b| b - b'0').collect();
    // The number is 0.digits × 10^point. Multiplied by 10^places, it has its first `keep` digits before the decimal
    // point.
    let point = i64::try_from(whole.len()).unwrap_or(i64::MAX).saturating_add(exponent);
    let keep = point.saturating_add(i64::from(places));
    let mut value: i128 = 0;
    let (kept, dropped) = digits.split_at(usize::try_from(keep).unwrap_or(0).min(digits.len()));
    for digit in kept {
        value = push_digit(value, *digit).ok_or_else(|| DecimalError::TooLarge(shown()))?;
    }
    let missing = keep.saturating_sub(i64::try_from(digits.len()).unwrap_or(i64::MAX)).max(0);
    if value != 0 {
        if missing > 40 {
            return Err(DecimalError::TooLarge(shown()));
        }
        for _ in 0..missing {
            value = push_digit(value, 0).ok_or_else(|| DecimalError::TooLarge(shown()))?;
        }
    }
    if dropped.iter().any(|digit| *digit != 0) {
        match excess {
            ExtraDigits::Refuse => return Err(DecimalError::TooFine(shown())),
            ExtraDigits::Round if keep >= 0 && dropped.first().is_some_and(|digit| *digit >= 5) => {
                value = value.checked_add(1).ok_or_else(|| DecimalError::TooLarge(shown()))?;
            }
            ExtraDigits::Round => {}
        }
    }
    Ok(if negative { -value } else { value })
}

fn push_digit(value: i128, digit: u8) -> Option<i128> {
    value.checked_mul(10)?.checked_add(i128::from(digit))
}

fn exponent_of(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let magnitude = digits.parse::<i64>().unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
    Some(if text.starts_with('-') { -magnitude } else { magnitude })
}

/// Formats a scaled integer as a plain decimal without trailing zeros: 500000000 with nine places is `0.5`.
pub(crate) fn format_scaled(value: i128, places: u8) -> String {
    let places = usize::from(places);
    let digits = format!("{:0width$}", value.unsigned_abs(), width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    let fraction = fraction.trim_end_matches('0');
    let sign = if value < 0 { "-" } else { "" };
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_scaled_is_exact() {
        for (text, want) in [
            ("0.1", 100_000_000),
            ("1e-09", 1),
            ("1E2", 100_000_000_000),
            ("-0.000000001", -1),
            (".5", 500_000_000),
            ("5.", 5_000_000_000),
            ("1333332.853333334", 1_333_332_853_333_334),
            ("0.10000000000000", 100_000_000),
            ("0e999999999999999999999", 0),
        ] {
            assert_eq!(parse_scaled(text, 9, ExtraDigits::Refuse), Ok(want), "{text}");
        }
    }

    #[test]
    fn parse_scaled_rejects_other_text() {
        for text in ["", "-", ".", "1.2.3", "1e", "0x10", "1_000", "nan", "inf", "--1", "1e-", " 1", "१"] {
            assert!(matches!(parse_scaled(text, 9, ExtraDigits::Round), Err(DecimalError::NotANumber(_))), "{text}");
        }
        assert!(matches!(parse_scaled("1e400", 9, ExtraDigits::Round), Err(DecimalError::TooLarge(_))));
        assert!(matches!(parse_scaled("0.0000000001", 9, ExtraDigits::Refuse), Err(DecimalError::TooFine(_))));
    }

    #[test]
    fn parse_scaled_rounds_float_noise() {
        assert_eq!(parse_scaled("0.30000000000000004", 9, ExtraDigits::Round), Ok(300_000_000));
        assert_eq!(parse_scaled("0.0000000005", 9, ExtraDigits::Round), Ok(1));
        assert_eq!(parse_scaled("0.00000000049", 9, ExtraDigits::Round), Ok(0));
        assert_eq!(parse_scaled("9e-11", 9, ExtraDigits::Round), Ok(0));
        assert_eq!(parse_scaled("1e-400", 9, ExtraDigits::Round), Ok(0));
    }

    #[test]
    fn format_scaled_omits_trailing_zeros() {
        assert_eq!(format_scaled(500_000_000, 9), "0.5");
        assert_eq!(format_scaled(-1, 9), "-0.000000001");
        assert_eq!(format_scaled(12_000_000_000, 9), "12");
        assert_eq!(format_scaled(0, 9), "0");
    }
}
