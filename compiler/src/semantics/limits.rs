//! Limits (`language.md` 11): computes the limits of a thread from the layers that set them, and checks a cost against
//! the limits. Only the ledger reserves money.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::decimal::{self, ExtraDigits};
use super::money::Nanos;
use super::value::Num;

/// The name of a limit. Lists of limits have the order of the variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitName {
    Turns,
    Tokens,
    Spend,
    Spawns,
    Depth,
    DurationSeconds,
    /// Requested output tokens per request. A thread cannot exceed this limit, so the limit has no `_exceeded` code,
    /// and a parent does not bound it.
    Output,
}

impl LimitName {
    pub const ALL: [Self; 7] =
        [Self::Turns, Self::Tokens, Self::Spend, Self::Spawns, Self::Depth, Self::DurationSeconds, Self::Output];

    /// The limits that a whole chat has in addition to the limits of each of its prompts.
    pub(crate) const OF_SESSION: [Self; 4] = [Self::Turns, Self::Tokens, Self::Spend, Self::DurationSeconds];

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.as_str() == name)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::Tokens => "tokens",
            Self::Spend => "spend",
            Self::Spawns => "spawns",
            Self::Depth => "depth",
            Self::DurationSeconds => "duration_seconds",
            Self::Output => "output",
        }
    }

    /// Returns true if zero is valid: only for the limits on children, where zero means "no children".
    fn allows_zero(self) -> bool {
        matches!(self, Self::Depth | Self::Spawns)
    }
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The value of each limit, after all sources that set limits were combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub turns: u64,
    /// Maximum tokens, input and output together.
    pub tokens: u64,
    /// Maximum spend, in nano-dollars.
    pub spend: Nanos,
    pub spawns: u64,
    pub depth: u64,
    pub duration_seconds: u64,
    /// Maximum output tokens of one request.
    pub output: u64,
}

impl Default for Limits {
    /// Returns the limits that apply without settings.
    fn default() -> Self {
        Self {
            turns: 15,
            tokens: 200_000,
            spend: Nanos(500_000_000),
            spawns: 10,
            depth: 5,
            duration_seconds: 600,
            output: 8192,
        }
    }
}

impl Limits {
    /// Returns the value of one limit as JSON, in dollars for `spend`.
    pub fn get(&self, name: LimitName) -> Value {
        if name == LimitName::Spend { self.spend.to_json() } else { Value::from(self.number(name)) }
    }

    /// Returns all limits except `output`, by name, in the form that `rye eval` uses (`language.md` 13).
    /// `spend` is in dollars.
    pub fn to_json(&self) -> Map<String, Value> {
        LimitName::ALL
            .into_iter()
            .filter(|name| *name != LimitName::Output)
            .map(|name| (name.as_str().to_owned(), self.get(name)))
            .collect()
    }

    /// Returns the value of a limit as stored: nano-dollars for `spend`, seconds for `duration_seconds`, else a count.
    pub(crate) fn number(&self, name: LimitName) -> u64 {
        match name {
            LimitName::Turns => self.turns,
            LimitName::Tokens => self.tokens,
            LimitName::Spend => self.spend.to_u64(),
            LimitName::Spawns => self.spawns,
            LimitName::Depth => self.depth,
            LimitName::DurationSeconds => self.duration_seconds,
            LimitName::Output => self.output,
        }
    }

    /// Lowers a limit to a bound; returns true if the limit was above it.
    pub(crate) fn lower_to(&mut self, name: LimitName, bound: u64) -> bool {
        let is_above = bound < self.number(name);
        if is_above {
            self.set(name, bound);
        }
        is_above
    }

    /// Sets one limit; nano-dollars for `spend`.
    pub fn set(&mut self, name: LimitName, value: u64) {
        match name {
            LimitName::Turns => self.turns = value,
            LimitName::Tokens => self.tokens = value,
            LimitName::Spend => self.spend = Nanos::from_u64(value),
            LimitName::Spawns => self.spawns = value,
            LimitName::Depth => self.depth = value,
            LimitName::DurationSeconds => self.duration_seconds = value,
            LimitName::Output => self.output = value,
        }
    }

    /// Converts these limits of a parent thread to limit settings. Every setting has the source `source`. The limit
    /// `output` is left out, because it does not bound children.
    pub(crate) fn to_settings<S: Clone>(self, source: &S) -> Vec<LimitSetting<S>> {
        LimitName::ALL
            .into_iter()
            .filter(|name| *name != LimitName::Output)
            .map(|name| LimitSetting {
                name: name.as_str().to_owned(),
                written: LimitValue::Kept(self.number(name)),
                source: source.clone(),
            })
            .collect()
    }
}

/// A limit as written. `S` is the type of its source: a span, an origin or the name of a flag.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitSetting<S> {
    pub name: String,
    pub written: LimitValue,
    pub source: S,
}

#[derive(Debug, Clone, PartialEq)]
pub enum LimitValue {
    /// A value of JSON or YAML, as written in a file.
    Json(Value),
    /// Decimal text from an attribute or a flag, parsed exactly.
    Text(String),
    /// The value of the limit in the parent thread, which needs no parsing. The value of `spend` is in nano-dollars.
    Kept(u64),
}

impl<S> LimitSetting<S> {
    pub fn json(name: impl Into<String>, value: Value, source: S) -> Self {
        Self { name: name.into(), written: LimitValue::Json(value), source }
    }

    pub fn text(name: impl Into<String>, text: impl Into<String>, source: S) -> Self {
        Self { name: name.into(), written: LimitValue::Text(text.into()), source }
    }
}

/// The source of the value that a limit finally has.
#[derive(Debug, Clone, PartialEq)]
pub enum LimitSource<S> {
    /// The built-in default.
    BuiltIn,
    Written(S),
    /// The limit of the spawn parent, which is below the requested value. For `depth`, the bound is the parent's limit
    /// minus one.
    Parent(S),
}

#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedLimits<S> {
    pub limits: Limits,
    /// The source of each limit; contains every limit.
    pub sources: BTreeMap<LimitName, LimitSource<S>>,
}

/// The reason why limits do not resolve.
#[derive(Debug, Clone, PartialEq)]
pub enum LimitResolutionError<S> {
    Unknown {
        name: String,
        source: S,
    },
    Invalid {
        name: LimitName,
        why: String,
        source: S,
    },
    /// The parent's `depth` limit is 0, so the parent cannot have children.
    TooDeep {
        source: S,
    },
}

/// Resolves limits. A value in `overrides` takes precedence over a value in `directive`, which takes precedence over a
/// value in `defaults`. The limits of `parent` then bound the result; for `depth`, the bound is one less than the
/// parent's value.
///
/// # Errors
/// Returns every unknown name, every value that is negative, not a number, null, fractional, or zero where zero is
/// invalid, and a parent whose depth is 0.
pub fn resolve<S: Clone>(
    defaults: &[LimitSetting<S>],
    directive: &[LimitSetting<S>],
    overrides: &[LimitSetting<S>],
    parent: &[LimitSetting<S>],
) -> Result<ResolvedLimits<S>, Vec<LimitResolutionError<S>>> {
    let mut limits = Limits::default();
    let mut sources: BTreeMap<LimitName, LimitSource<S>> =
        LimitName::ALL.into_iter().map(|name| (name, LimitSource::BuiltIn)).collect();
    let mut faults = Vec::new();
    for setting in [defaults, directive, overrides].into_iter().flatten() {
        if let Some((name, value)) = read(setting, &mut faults) {
            limits.set(name, value);
            sources.insert(name, LimitSource::Written(setting.source.clone()));
        }
    }
    for setting in parent {
        let Some((name, value)) = read(setting, &mut faults) else { continue };
        let ceiling = match name {
            LimitName::Output => continue,
            LimitName::Depth => {
                let Some(left) = value.checked_sub(1) else {
                    faults.push(LimitResolutionError::TooDeep { source: setting.source.clone() });
                    continue;
                };
                left
            }
            LimitName::Turns
            | LimitName::Tokens
            | LimitName::Spend
            | LimitName::Spawns
            | LimitName::DurationSeconds => value,
        };
        if ceiling < limits.number(name) {
            limits.set(name, ceiling);
            sources.insert(name, LimitSource::Parent(setting.source.clone()));
        }
    }
    if faults.is_empty() { Ok(ResolvedLimits { limits, sources }) } else { Err(faults) }
}

/// Resolves limits as [`resolve`] does, but without overrides and without a parent. `None` if a setting is invalid.
pub(crate) fn resolve_declared<S: Clone>(
    defaults: &[LimitSetting<S>],
    directive: &[LimitSetting<S>],
) -> Option<Limits> {
    let (mut limits, mut faults) = (Limits::default(), Vec::new());
    for setting in defaults.iter().chain(directive) {
        if let Some((name, value)) = read(setting, &mut faults) {
            limits.set(name, value);
        }
    }
    faults.is_empty().then_some(limits)
}

fn read<S: Clone>(setting: &LimitSetting<S>, faults: &mut Vec<LimitResolutionError<S>>) -> Option<(LimitName, u64)> {
    let Some(name) = LimitName::parse(&setting.name) else {
        faults.push(LimitResolutionError::Unknown { name: setting.name.clone(), source: setting.source.clone() });
        return None;
    };
    match parse_limit_value(name, &setting.written) {
        Ok(value) => Some((name, value)),
        Err(why) => {
            faults.push(LimitResolutionError::Invalid { name, why, source: setting.source.clone() });
            None
        }
    }
}

/// Parses the value of one limit; also used for `raise` actions and flags.
///
/// # Errors
/// Describes the invalid value, as a phrase.
pub fn parse_limit_value(name: LimitName, written: &LimitValue) -> Result<u64, String> {
    let value = match written {
        LimitValue::Kept(value) => *value,
        LimitValue::Json(value) => {
            let Value::Number(number) = value else {
                return Err(format!("`{name}` has to be a number"));
            };
            if name == LimitName::Spend {
                non_negative(name, Nanos::from_json(value).map_err(|e| e.to_string())?)?
            } else {
                parse_whole(name, number, Num::of(number).to_u64())?
            }
        }
        LimitValue::Text(text) => {
            if name == LimitName::Spend {
                non_negative(name, Nanos::parse(text).map_err(|e| e.to_string())?)?
            } else {
                let value =
                    decimal::parse_scaled(text.trim(), 0, ExtraDigits::Refuse).ok().and_then(|n| u64::try_from(n).ok());
                parse_whole(name, &text.trim(), value)?
            }
        }
    };
    if value == 0 && !name.allows_zero() {
        return Err(format!("`{name}` cannot be zero"));
    }
    Ok(value)
}

/// Returns the error of [`parse_limit_value`] as a phrase about the limit: "has to be a number".
pub(crate) fn describe_value_error(name: LimitName, why: &str) -> String {
    if let Some(phrase) = why.strip_prefix(&format!("`{name}` ")) {
        return phrase.to_owned();
    }
    if why.contains("too large") {
        let most = if name == LimitName::Spend { Nanos(i64::MAX).to_string() } else { u64::MAX.to_string() };
        return format!("has to be at most {most}");
    }
    if why.contains("finer") {
        return "can have at most nine decimal places".to_owned();
    }
    let wanted = if name == LimitName::Spend { "an amount of dollars, such as `0.10`" } else { "a number" };
    format!("has to be {wanted}")
}

fn non_negative(name: LimitName, amount: Nanos) -> Result<u64, String> {
    u64::try_from(amount.0).map_err(|_| format!("`{name}` cannot be negative"))
}

fn parse_whole(name: LimitName, written: &dyn fmt::Display, value: Option<u64>) -> Result<u64, String> {
    value.ok_or_else(|| {
        let shown: String = written.to_string().chars().take(40).collect();
        match decimal::parse_scaled(&shown, 0, ExtraDigits::Round) {
            Ok(_) if shown.starts_with('-') => format!("`{name}` cannot be negative"),
            Ok(n) if u64::try_from(n).is_ok() => format!("`{name}` has to be a whole number, not `{shown}`"),
            Ok(_) | Err(decimal::DecimalError::TooLarge(_)) => format!("`{shown}` is too large for `{name}`"),
            Err(decimal::DecimalError::NotANumber(_) | decimal::DecimalError::TooFine(_)) => {
                format!("`{name}` has to be a number, not `{shown}`")
            }
        }
    })
}

/// The usage of a thread so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    pub turns: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cached_tokens: u64,
    /// The amount spent, in nano-dollars.
    pub spend: Nanos,
    pub elapsed_seconds: u64,
}

/// A limit that was reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exceeded {
    pub name: LimitName,
    /// The code, such as `turns_exceeded`.
    pub limit_code: String,
    /// The usage that reached the limit; in dollars for `spend`.
    pub current_value: Value,
    pub current_max: Value,
}

impl fmt::Display for Exceeded {
    /// Formats the code, the usage and the limit, without exponents: `spend_exceeded: $0.02 of $0.02`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&describe_exceeded(&self.limit_code, &self.current_value, &self.current_max, false))
    }
}

/// Describes a limit that was reached: `turns_exceeded: 2 of 2`. `is_of_session` is true for a limit of a whole chat.
pub fn describe_exceeded(limit_code: &str, current_value: &Value, current_max: &Value, is_of_session: bool) -> String {
    if let (Some(name @ ("spawns" | "depth")), Some(0)) = (limit_code.strip_suffix("_exceeded"), current_max.as_u64()) {
        return format!("{limit_code}: the limit `{name}` is 0, so this thread starts no child threads");
    }
    let shown = |value: &Value| match Nanos::from_json(value) {
        Ok(amount) if limit_code == "spend_exceeded" => format!("${amount}"),
        Ok(_) | Err(_) => value.to_string(),
    };
    let amounts = Nanos::from_json(current_value).ok().zip(Nanos::from_json(current_max).ok());
    let is_left = amounts.is_some_and(|(value, max)| value < max);
    let rest = match limit_code {
        // A thread can stop before its whole limit is spent. The remaining amount, which excludes the reservations of
        // children, then cannot pay for another call.
        "spend_exceeded" if is_left => ", and the remaining amount cannot pay for another call",
        "duration_seconds_exceeded" if is_left => ", and the next wait is longer than the remaining time",
        _ => "",
    };
    let scope = if is_of_session { " of the session" } else { "" };
    format!("{limit_code}: {} of {}{scope}{rest}", shown(current_value), shown(current_max))
}

impl Exceeded {
    fn new(name: LimitName, current_value: Value, current_max: Value) -> Self {
        Self { name, limit_code: format!("{name}_exceeded"), current_value, current_max }
    }
}

/// Returns the first limit that the cost has reached (`≥`), in the order turns, tokens, spend, duration; `None` if none
/// is reached.
pub fn first_exceeded(limits: &Limits, cost: &Cost) -> Option<Exceeded> {
    let tokens = cost.input_tokens.saturating_add(cost.output_tokens);
    let used = [
        (LimitName::Turns, cost.turns),
        (LimitName::Tokens, tokens),
        (LimitName::Spend, cost.spend.to_u64()),
        (LimitName::DurationSeconds, cost.elapsed_seconds),
    ];
    used.into_iter().find(|(name, used)| *used >= limits.number(*name)).map(|(name, used)| {
        let shown = if name == LimitName::Spend { cost.spend.to_json() } else { Value::from(used) };
        Exceeded::new(name, shown, limits.get(name))
    })
}

/// Returns the limit that forbids another child: `spawns` if the thread has `spawned` children already and the limit is
/// not higher, else `depth` if that limit is 0. `None` if another child is allowed.
pub fn spawn_limit_exceeded(limits: &Limits, spawned: u64) -> Option<Exceeded> {
    if spawned >= limits.spawns {
        return Some(Exceeded::new(LimitName::Spawns, Value::from(spawned), Value::from(limits.spawns)));
    }
    (limits.depth == 0).then(|| Exceeded::new(LimitName::Depth, Value::from(0), Value::from(0)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(name: &str, value: Value) -> Vec<LimitSetting<&'static str>> {
        vec![LimitSetting::json(name, value, "here")]
    }

    fn resolve_one(
        name: &str,
        value: Value,
    ) -> Result<ResolvedLimits<&'static str>, Vec<LimitResolutionError<&'static str>>> {
        resolve(&[], &one(name, value), &[], &[])
    }

    #[test]
    fn exceeded_spend_mentions_insufficient_rest() {
        let left = ", and the remaining amount cannot pay for another call";
        assert_eq!(describe_exceeded("turns_exceeded", &json!(2), &json!(2), false), "turns_exceeded: 2 of 2");
        assert_eq!(
            describe_exceeded("spend_exceeded", &json!(0.2), &json!(0.2), false),
            "spend_exceeded: $0.2 of $0.2"
        );
        assert_eq!(
            describe_exceeded("spend_exceeded", &json!(0.16), &json!(0.2), false),
            format!("spend_exceeded: $0.16 of $0.2{left}")
        );
        assert_eq!(describe_exceeded("turns_exceeded", &json!(1), &json!(2), false), "turns_exceeded: 1 of 2");
        assert_eq!(
            describe_exceeded("spend_exceeded", &json!(0.16), &json!(0.2), true),
            format!("spend_exceeded: $0.16 of $0.2 of the session{left}")
        );
    }

    #[test]
    fn exceeded_limit_of_zero_says_that_no_child_starts() {
        for name in ["depth", "spawns"] {
            let described = describe_exceeded(&format!("{name}_exceeded"), &json!(0), &json!(0), false);
            let reason = format!("the limit `{name}` is 0, so this thread starts no child threads");
            assert_eq!(described, format!("{name}_exceeded: {reason}"));
        }
    }

    #[test]
    fn invalid_limit_values_are_rejected() {
        for bad in [json!(-1), json!(0), json!(1.5), json!(null), json!("3"), json!(true), json!([]), json!(1e300)] {
            assert!(resolve_one("turns", bad.clone()).is_err(), "{bad}");
        }
        for bad in [json!(-0.1), json!(0), json!(1e-10), json!("1"), json!(null), json!(1e12)] {
            assert!(resolve_one("spend", bad.clone()).is_err(), "{bad}");
        }
        assert!(matches!(
            resolve_one("Turns", json!(1)).unwrap_err().as_slice(),
            [LimitResolutionError::Unknown { .. }]
        ));
        assert_eq!(resolve_one("turns", json!(7.0)).unwrap().limits.turns, 7);
        assert_eq!(resolve_one("spawns", json!(0)).unwrap().limits.spawns, 0);
    }

    #[test]
    fn limit_text_parses_exactly() {
        let text = |name, text: &str| parse_limit_value(name, &LimitValue::Text(text.into()));
        assert_eq!(text(LimitName::Spend, "0.10"), Ok(100_000_000));
        assert_eq!(text(LimitName::Turns, "1e2"), Ok(100));
        assert_eq!(text(LimitName::Turns, "2.5"), Err("`turns` has to be a whole number, not `2.5`".into()));
        assert_eq!(text(LimitName::Turns, "-2"), Err("`turns` cannot be negative".into()));
        assert_eq!(text(LimitName::Turns, "ten"), Err("`turns` has to be a number, not `ten`".into()));
        assert_eq!(text(LimitName::Turns, "1e30"), Err("`1e30` is too large for `turns`".into()));
    }

    #[test]
    fn parent_limits_cap_the_child_and_depth_decreases() {
        let parent = [LimitSetting::json("depth", json!(3), "p"), LimitSetting::json("turns", json!(4), "p")];
        let resolved = resolve(&[], &one("turns", json!(9)), &[], &parent).unwrap();
        assert_eq!((resolved.limits.turns, resolved.limits.depth), (4, 2));
        assert_eq!(resolved.sources.get(&LimitName::Turns), Some(&LimitSource::Parent("p")));
        assert_eq!(resolved.sources.get(&LimitName::Spend), Some(&LimitSource::BuiltIn));
        let refused = resolve(&[], &[], &[], &one("depth", json!(0))).unwrap_err();
        assert_eq!(refused, [LimitResolutionError::TooDeep { source: "here" }]);
    }

    #[test]
    fn ten_turns_are_allowed_by_a_limit_of_ten() {
        let limits = Limits { turns: 10, ..Limits::default() };
        let cost = |turns| Cost { turns, ..Cost::default() };
        assert_eq!(first_exceeded(&limits, &cost(9)), None);
        let hit = first_exceeded(&limits, &cost(10)).unwrap();
        assert_eq!(
            (hit.limit_code.as_str(), hit.current_value, hit.current_max),
            ("turns_exceeded", json!(10), json!(10))
        );
    }

    #[test]
    fn first_exceeded_limit_follows_order() {
        let limits = Limits::default();
        let cost = Cost { input_tokens: 150_000, output_tokens: 50_000, spend: Nanos(500_000_000), ..Cost::default() };
        assert_eq!(first_exceeded(&limits, &cost).unwrap().name, LimitName::Tokens);
        let cost = Cost { spend: Nanos(500_000_001), elapsed_seconds: 600, ..Cost::default() };
        let hit = first_exceeded(&limits, &cost).unwrap();
        assert_eq!((hit.name, hit.current_value), (LimitName::Spend, json!(0.500_000_001)));
        assert_eq!(spawn_limit_exceeded(&limits, 10).unwrap().limit_code, "spawns_exceeded");
        assert_eq!(spawn_limit_exceeded(&Limits { depth: 0, ..limits }, 0).unwrap().limit_code, "depth_exceeded");
        assert_eq!(spawn_limit_exceeded(&limits, 9), None);
    }
}
