//! JSON values: their numbers, equality and order (`language.md` 4 and 5).

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use rye_grammar::data::{Entry, Kind, Node};
use rye_grammar::{Span, Spanned};

/// The types of values: those that a declaration may use, and null.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Type {
    String,
    Integer,
    Number,
    Boolean,
    Array,
    Object,
    Null,
}

impl Type {
    /// Returns the declared type with this name: `string`, `integer`, `number`, `boolean`, `array` or `object`; `None`
    /// for any other name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            "array" => Self::Array,
            "object" => Self::Object,
            _ => return None,
        })
    }

    /// The names that a declaration may use, in the order of the language reference.
    pub const NAMES: [&'static str; 6] = ["string", "integer", "number", "boolean", "array", "object"];

    /// Returns the narrowest type of a value: `2.0` is an integer, because numbers compare by value.
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Boolean,
            Value::Number(n) => {
                if Num::of(n).is_whole() {
                    Self::Integer
                } else {
                    Self::Number
                }
            }
            Value::String(_) => Self::String,
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        }
    }

    /// Returns true if a value of this type is valid where `declared` is required.
    pub fn fits(self, declared: Self) -> bool {
        self == declared || (self == Self::Integer && declared == Self::Number)
    }

    pub fn is_numeric(self) -> bool {
        matches!(self, Self::Integer | Self::Number)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array => "array",
            Self::Object => "object",
            Self::Null => "null",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A number of the language. INVARIANT: `Int` lies in −2⁶³ … 2⁶⁴−1, `Float` is finite.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Num {
    Int(i128),
    Float(f64),
}

const INT_MIN: i128 = i64::MIN as i128;
const INT_MAX: i128 = u64::MAX as i128;

impl Num {
    pub fn of(number: &Number) -> Self {
        if let Some(n) = number.as_u64() {
            Self::Int(i128::from(n))
        } else if let Some(n) = number.as_i64() {
            Self::Int(i128::from(n))
        } else {
            Self::Float(number.as_f64().unwrap_or(0.0))
        }
    }

    pub(crate) fn of_value(value: &Value) -> Option<Self> {
        if let Value::Number(n) = value { Some(Self::of(n)) } else { None }
    }

    pub fn is_whole(self) -> bool {
        match self {
            Self::Int(_) => true,
            Self::Float(f) => f.fract() == 0.0,
        }
    }

    /// Converts the number to JSON.
    pub fn to_value(self) -> Value {
        match self {
            Self::Int(n) => {
                u64::try_from(n).map(Value::from).or_else(|_| i64::try_from(n).map(Value::from)).unwrap_or(Value::Null)
            }
            Self::Float(f) => Number::from_f64(f).map_or(Value::Null, Value::Number),
        }
    }

    /// Returns the number as an unsigned integer; `None` if the number is negative, has a fraction or is too large.
    pub fn to_u64(self) -> Option<u64> {
        match self {
            Self::Int(n) => u64::try_from(n).ok(),
            Self::Float(f) if f.fract() == 0.0 => float_to_int(f).and_then(|n| u64::try_from(n).ok()),
            Self::Float(_) => None,
        }
    }

    /// Compares by exact value: integers are never rounded to floats.
    pub fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.cmp(&b),
            (Self::Float(a), Self::Float(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
            (Self::Int(a), Self::Float(b)) => compare_mixed(a, b),
            (Self::Float(a), Self::Int(b)) => compare_mixed(b, a).reverse(),
        }
    }

    pub(crate) fn checked_negate(self) -> Option<Self> {
        match self {
            Self::Int(n) => int(n.checked_neg()),
            Self::Float(f) => float(-f),
        }
    }

    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.apply(other, i128::checked_add, |a, b| a + b)
    }

    pub(crate) fn checked_subtract(self, other: Self) -> Option<Self> {
        self.apply(other, i128::checked_sub, |a, b| a - b)
    }

    pub(crate) fn checked_multiply(self, other: Self) -> Option<Self> {
        self.apply(other, i128::checked_mul, |a, b| a * b)
    }

    /// Divides. Two integers that divide evenly stay exact; otherwise the result is the float nearest to the quotient.
    /// `None` for a division by zero.
    pub(crate) fn checked_divide(self, other: Self) -> Option<Self> {
        if other.is_zero() {
            return None;
        }
        if let (Self::Int(a), Self::Int(b)) = (self, other) {
            return match a.checked_rem(b) {
                Some(0) => int(a.checked_div(b)),
                _ => float(nearest_quotient(a, b)),
            };
        }
        float(self.to_f64() / other.to_f64())
    }

    /// Returns the remainder of the division rounded toward zero, with the sign of the left operand. `None` for a
    /// division by zero.
    pub(crate) fn checked_remainder(self, other: Self) -> Option<Self> {
        if other.is_zero() {
            return None;
        }
        self.apply(other, i128::checked_rem, |a, b| a % b)
    }

    fn is_zero(self) -> bool {
        match self {
            Self::Int(n) => n == 0,
            Self::Float(f) => f == 0.0,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "arithmetic with a decimal is decimal arithmetic")]
    fn to_f64(self) -> f64 {
        match self {
            Self::Int(n) => n as f64,
            Self::Float(f) => f,
        }
    }

    fn apply(self, other: Self, whole: fn(i128, i128) -> Option<i128>, decimal: fn(f64, f64) -> f64) -> Option<Self> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => int(whole(a, b)),
            (Self::Int(_) | Self::Float(_), Self::Float(_)) | (Self::Float(_), Self::Int(_)) => {
                float(decimal(self.to_f64(), other.to_f64()))
            }
        }
    }
}

fn int(n: Option<i128>) -> Option<Num> {
    n.filter(|n| (INT_MIN..=INT_MAX).contains(n)).map(Num::Int)
}

fn float(f: f64) -> Option<Num> {
    f.is_finite().then_some(Num::Float(f))
}

/// Returns the float nearest to a quotient of integers that do not divide evenly. The operands are not converted to
/// floats first, because the conversion rounds integers above 2⁵³, and the quotient of rounded operands can differ from
/// the nearest float.
#[expect(clippy::cast_precision_loss, reason = "the quotient is rounded here, once")]
fn nearest_quotient(a: i128, b: i128) -> f64 {
    let (dividend, divisor) = (a.unsigned_abs(), b.unsigned_abs());
    // The dividend is scaled by as many bits as fit, so the quotient has more bits than a float holds. The remainder
    // only decides ties, so one bit is enough for it.
    let places = dividend.leading_zeros();
    let scaled = dividend << places;
    let quotient = scaled.checked_div(divisor).unwrap_or(0) | u128::from(scaled.checked_rem(divisor) != Some(0));
    let magnitude = quotient as f64 / 2f64.powi(i32::try_from(places).unwrap_or(0));
    if (a < 0) == (b < 0) { magnitude } else { -magnitude }
}

/// Truncates a float to an integer; `None` if its absolute value is 10³⁰ or more, which is far above every integer of
/// the language.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked first")]
fn float_to_int(f: f64) -> Option<i128> {
    (f.abs() < 1e30).then_some(f.trunc() as i128)
}

fn compare_mixed(whole: i128, decimal: f64) -> Ordering {
    match float_to_int(decimal) {
        None if decimal > 0.0 => Ordering::Less,
        None => Ordering::Greater,
        Some(truncated) => {
            whole.cmp(&truncated).then_with(|| 0.0f64.partial_cmp(&decimal.fract()).unwrap_or(Ordering::Equal))
        }
    }
}

/// Returns true if two values are equal, also inside lists and mappings. Numbers are compared by value (`1 == 1.0`),
/// `true` differs from `1`, and the order of keys does not matter.
pub fn are_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Number(a), Value::Number(b)) => Num::of(a).compare(Num::of(b)).is_eq(),
        (Value::String(a), Value::String(b)) => a == b,
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| are_equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| are_equal(a, b)))
        }
        _ => false,
    }
}

/// Formats a value for the inside of a longer text: a string unchanged, null as an empty text, any other value as
/// compact JSON.
pub fn inline_text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(s) => Cow::Borrowed(s),
        Value::Null => Cow::Borrowed(""),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Cow::Owned(value.to_string()),
    }
}

/// The reason why a JSON text is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    #[error("{0}")]
    Syntax(String),
    #[error("`{0}` is outside the range of exact integers, −2⁶³ to 2⁶⁴−1")]
    IntegerTooLarge(String),
}

/// Parses JSON, but rejects integers that would silently become floats (`language.md` 4). `-0` is the integer 0.
///
/// # Errors
/// The text is not JSON, nests deeper than 127 levels, or holds an integer outside −2⁶³ … 2⁶⁴−1.
pub fn parse_json(text: &str) -> Result<Value, JsonError> {
    let checked = check_integers(text)?;
    serde_json::from_str(&checked).map_err(|e| JsonError::Syntax(e.to_string()))
}

/// Prepares a JSON text for the parser: rejects integers out of range, and replaces `-0` by ` 0`, so that the parser
/// reads an integer. The contents of strings stay unchanged. A text that is not JSON is rejected later, by the parser.
fn check_integers(text: &str) -> Result<Cow<'_, str>, JsonError> {
    let bytes = text.as_bytes();
    let mut negative_zeros = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_string(bytes, at),
            b'-' | b'0'..=b'9' => {
                let rest = bytes.get(at..).unwrap_or_default();
                let len =
                    rest.iter().take_while(|b| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')).count();
                let token = text.get(at..at + len).unwrap_or_default();
                if token == "-0" {
                    negative_zeros.push(at);
                } else if token.len() > 18
                    && !token.contains(['.', 'e', 'E'])
                    && !token.parse::<i128>().is_ok_and(|n| (INT_MIN..=INT_MAX).contains(&n))
                {
                    let shown: String = token.chars().take(40).collect();
                    return Err(JsonError::IntegerTooLarge(shown));
                }
                at += len;
            }
            _ => at += 1,
        }
    }
    if negative_zeros.is_empty() {
        return Ok(Cow::Borrowed(text));
    }
    let mut owned = bytes.to_vec();
    for at in negative_zeros {
        if let Some(minus) = owned.get_mut(at) {
            *minus = b' ';
        }
    }
    Ok(String::from_utf8(owned).map_or(Cow::Borrowed(text), Cow::Owned))
}

fn end_of_string(bytes: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

/// Converts a value to data nodes that all have the span `at`. With this function, a reader of data nodes can read a
/// value that does not come from a source file.
pub fn to_node(value: &Value, at: Span) -> Node {
    let kind = match value {
        Value::Null => Kind::Null,
        Value::Bool(b) => Kind::Bool(*b),
        Value::Number(n) => Kind::Number(n.clone()),
        Value::String(s) => Kind::String(s.clone()),
        Value::Array(items) => Kind::List(items.iter().map(|item| to_node(item, at)).collect()),
        Value::Object(map) => Kind::Map(
            map.iter()
                .map(|(key, value)| Entry { key: Spanned::new(key.clone(), at), value: to_node(value, at) })
                .collect(),
        ),
    };
    Node::new(kind, at)
}
