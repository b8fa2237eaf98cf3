//! Money: whole nano-dollars, written as decimal dollars, never floats (`language.md` 11).

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::decimal::{self, DecimalError, ExtraDigits};

/// Decimal places of a dollar.
const PLACES: u8 = 9;

/// An amount in nano-dollars, negative only for an overspent account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub i64);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    #[error("`{0}` is not an amount of dollars")]
    NotAnAmount(String),
    #[error("`{0}` is finer than a nano-dollar")]
    TooFine(String),
    #[error("`{0}` dollars is too large an amount")]
    TooLarge(String),
}

impl Nanos {
    pub const ZERO: Self = Self(0);

    /// Parses decimal dollars as an author writes them: `0.10`. No unit, no thousands separators.
    ///
    /// # Errors
    /// The text is not a decimal number, is finer than a nano-dollar, or exceeds nine billion dollars.
    pub fn parse(text: &str) -> Result<Self, MoneyError> {
        Self::read(text.trim(), ExtraDigits::Refuse)
    }

    /// Reads a JSON number of dollars, rounded to nano-dollars.
    ///
    /// # Errors
    /// The value is not a number, or exceeds nine billion dollars.
    pub fn from_json(value: &Value) -> Result<Self, MoneyError> {
        let Value::Number(number) = value else {
            return Err(MoneyError::NotAnAmount(value.to_string().chars().take(40).collect()));
        };
        Self::read(&number.to_string(), ExtraDigits::Round)
    }

    fn read(text: &str, excess: ExtraDigits) -> Result<Self, MoneyError> {
        let nanos = decimal::parse_scaled(text, PLACES, excess).map_err(|e| match e {
            DecimalError::NotANumber(shown) => MoneyError::NotAnAmount(shown),
            DecimalError::TooFine(shown) => MoneyError::TooFine(shown),
            DecimalError::TooLarge(shown) => MoneyError::TooLarge(shown),
        })?;
        i64::try_from(nanos).map(Self).map_err(|_| MoneyError::TooLarge(text.chars().take(40).collect()))
    }

    /// Converts an unsigned count of nano-dollars, as plans and usage rows store it. A count above the maximum of an
    /// amount becomes this maximum.
    pub fn from_u64(nanos: u64) -> Self {
        Self(i64::try_from(nanos).unwrap_or(i64::MAX))
    }

    /// Returns the number of nano-dollars; 0 for a negative amount, such as that of an overspent account.
    pub fn to_u64(self) -> u64 {
        u64::try_from(self.0).unwrap_or(0)
    }

    /// Returns the amount in whole dollars, rounded up; 0 for a negative amount.
    pub(crate) fn whole_units_up(self) -> u64 {
        self.to_u64().div_ceil(1_000_000_000)
    }

    /// Returns dollars as a JSON number, for display and `rye eval`; never used in sums.
    pub fn to_json(self) -> Value {
        let text = self.to_string();
        if let Ok(whole) = text.parse::<i64>() {
            return Value::from(whole);
        }
        text.parse().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
    }

    pub(crate) fn is_negative(self) -> bool {
        self.0 < 0
    }

    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the cost of tokens at this price per million tokens, rounded up; `None` on overflow.
    pub(crate) fn per_million(self, tokens: u64) -> Option<Self> {
        call_cost(&[(self, tokens)])
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&decimal::format_scaled(i128::from(self.0), PLACES))
    }
}

/// Returns the cost of a call from pairs of (price per million tokens, tokens), rounded up once; `None` on overflow.
pub(crate) fn call_cost(parts: &[(Nanos, u64)]) -> Option<Nanos> {
    let mut millionths: i128 = 0;
    for (price, tokens) in parts {
        millionths = millionths.checked_add(i128::from(price.0).checked_mul(i128::from(*tokens))?)?;
    }
    let nanos = millionths.div_euclid(1_000_000) + i128::from(millionths.rem_euclid(1_000_000) != 0);
    i64::try_from(nanos).ok().map(Nanos)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn dollar_text_parses_exactly() {
        assert_eq!(Nanos::parse("0.10"), Ok(Nanos(100_000_000)));
        assert_eq!(Nanos::parse(" 3 "), Ok(Nanos(3_000_000_000)));
        assert!(matches!(Nanos::parse("0.0000000001"), Err(MoneyError::TooFine(_))));
        assert!(matches!(Nanos::parse("$3"), Err(MoneyError::NotAnAmount(_))));
        assert!(matches!(Nanos::parse("9300000000"), Err(MoneyError::TooLarge(_))));
        assert_eq!(Nanos(-5).to_string(), "-0.000000005");
    }

    #[test]
    fn json_dollars_round_to_nano_dollars() {
        assert_eq!(Nanos::from_json(&json!(0.1)), Ok(Nanos(100_000_000)));
        assert_eq!(Nanos::from_json(&json!(0.1 + 0.2)), Ok(Nanos(300_000_000)));
        assert_eq!(Nanos::from_json(&json!(1e-9)), Ok(Nanos(1)));
        assert!(Nanos::from_json(&json!("1")).is_err());
        assert!(Nanos::from_json(&json!(true)).is_err());
        assert_eq!(Nanos(1_333_332_853_333_334).to_json(), json!(1_333_332.853_333_334));
        assert_eq!(Nanos(4_000_000_000).to_json(), json!(4));
    }

    #[test]
    fn prices_round_up_once() {
        let (input, output) = (Nanos::parse("3").unwrap(), Nanos::parse("15").unwrap());
        assert_eq!(call_cost(&[(input, 1_000_000), (output, 1_000_000)]), Some(Nanos(18_000_000_000)));
        assert_eq!(Nanos(1).per_million(1), Some(Nanos(1)));
        assert_eq!(call_cost(&[(Nanos(1), 1), (Nanos(1), 1)]), Some(Nanos(1)));
        assert_eq!(Nanos(0).per_million(u64::MAX), Some(Nanos(0)));
        assert_eq!(Nanos(i64::MAX).per_million(u64::MAX), None);
    }
}
