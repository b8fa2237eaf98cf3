//! `limit::*`: limits that do not exist or cannot be enforced.

use rye_grammar::Span;
use thiserror::Error;

use super::faulty_value::separator_help;
use super::foreign_words::{self, WordPlace};
use super::{Label, Problem, Severity, did_you_mean, new_label, quote_list};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LimitError {
    #[error("unknown limit `{name}`")]
    Unknown { name: String, span: Option<Span>, suggestion: Option<String>, known: Vec<String> },
    #[error("a session has no limit `{name}`")]
    UnknownOfSession { name: String, span: Option<Span>, suggestion: Option<String>, known: Vec<String> },
    /// A value that the limit cannot have. `why` describes the allowed values: "has to be a whole number above 0".
    #[error("the limit `{name}` cannot be {found}")]
    Invalid { name: String, found: String, why: String, span: Option<Span> },
    /// A `spend` limit that does not pay for one turn. Amounts are decimal dollars. `price` is a price of the model that
    /// is probably a mistake, with its place.
    #[error("the spend limit of {limit} is below the worst-case cost of one turn, {needed}{}", match price {
        Some(_) => format!(": a price of `{model}` is probably a mistake"),
        None => String::new(),
    })]
    CannotAffordOneTurn {
        limit: String,
        needed: String,
        model: String,
        price: Option<Box<(String, Span)>>,
        span: Option<Span>,
    },
    /// A `tokens` limit below the size of the first request. `needed` is a lower bound on the tokens of this request.
    #[error("the token limit of {limit} is below the size of the first request, at least {needed} tokens")]
    PromptAboveTokens { limit: u64, needed: u64, span: Option<Span> },
    /// The values of a prompt's placeholders together exceed the maximum size, `mebibytes`.
    #[error("the prompt of `{directive}` has more than {mebibytes} MiB of values in its placeholders")]
    PromptTooLong { directive: String, mebibytes: usize, span: Option<Span> },
    /// A directive that has tools and only one turn: a second turn would be needed to read the tools' results.
    #[error("with one turn, the model never reads the result of a tool")]
    OneTurn { has_outputs: bool, span: Span },
    #[error("the limit `{name}` is never reached: {because}")]
    NeverBinds { name: String, because: String, span: Span },
    /// A limit above the maximum that the settings of the project set in `limits.max`.
    #[error("the limit `{name}` is {declared}, but the settings of the project allow at most {most}")]
    AboveCeiling { name: String, declared: String, most: String, span: Span, ceiling: Span },
    /// A limit of `<session>` above the limit that the settings set for every session. `ceiling` is the place of the
    /// limit in the settings; `None` for a built-in limit.
    #[error("the session limit `{name}` is {declared}, but the settings allow at most {most}")]
    AboveSessionLimit { name: String, declared: String, most: String, span: Span, ceiling: Option<Span> },
    /// A `spend` limit on a model whose price is not known. The limit is in decimal dollars.
    #[error("the spend limit of {limit} cannot be enforced: `{model}` has no price")]
    Unpriced { limit: String, model: String, provider: String, span: Option<Span> },
}

impl Problem for LimitError {
    fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } | Self::UnknownOfSession { .. } => "limit::unknown",
            Self::Invalid { .. } => "limit::invalid",
            Self::CannotAffordOneTurn { .. } | Self::PromptAboveTokens { .. } | Self::PromptTooLong { .. } => {
                "limit::cannot-afford-one-turn"
            }
            Self::NeverBinds { .. } | Self::AboveCeiling { .. } | Self::AboveSessionLimit { .. } => {
                "limit::never-binds"
            }
            Self::OneTurn { .. } => "limit::one-turn",
            Self::Unpriced { .. } => "limit::unpriced",
        }
    }

    fn severity(&self) -> Severity {
        match self {
            Self::NeverBinds { .. }
            | Self::AboveCeiling { .. }
            | Self::AboveSessionLimit { .. }
            | Self::OneTurn { .. }
            | Self::PromptAboveTokens { .. } => Severity::Warning,
            Self::Unknown { .. }
            | Self::UnknownOfSession { .. }
            | Self::Invalid { .. }
            | Self::CannotAffordOneTurn { .. }
            | Self::PromptTooLong { .. }
            | Self::Unpriced { .. } => Severity::Error,
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::Unknown { name, suggestion, known, .. } => {
                let translated = foreign_words::help_for(WordPlace::Limit, name).map(str::to_owned);
                let listed = || Some(format!("limits: {}", quote_list(known)));
                translated.or_else(|| separator_help(name)).or_else(|| did_you_mean(suggestion.as_ref(), listed))
            }
            Self::UnknownOfSession { name, suggestion, known, .. } => {
                let listed = || Some(format!("limits of a session: {}", quote_list(known)));
                separator_help(name).or_else(|| did_you_mean(suggestion.as_ref(), listed))
            }
            Self::Invalid { why, name, found, .. } => Some(match (name.as_str(), why.as_str()) {
                ("spend", "cannot be zero") => "write an amount of dollars above 0, such as `0.10`".to_owned(),
                (_, "cannot be zero") => "write a number above 0".to_owned(),
                ("spend", "cannot be negative") => "write an amount of dollars, such as `0.10`".to_owned(),
                (_, "cannot be negative") => "write a whole number, such as `10`".to_owned(),
                _ if found.contains("${") || found.contains("{input:") => {
                    "write a number or a single placeholder: a template inserts values and computes nothing".to_owned()
                }
                _ if why.starts_with("has to be a number") || why.starts_with("has to be an amount") => {
                    number_help(name, found).unwrap_or_else(|| help_from_phrase(name, why))
                }
                _ => help_from_phrase(name, why),
            }),
            Self::NeverBinds { .. } => Some("lower the limit, or leave it out".into()),
            Self::AboveCeiling { name, most, .. } => {
                Some(format!("lower the limit to {most}, or raise `limits.max.{name}` in `agent/agent`"))
            }
            Self::AboveSessionLimit { name, most, .. } => {
                Some(format!("lower the limit to {most}, or raise `session_limits.{name}` in `agent/resilience`"))
            }
            Self::OneTurn { has_outputs, .. } => Some(match has_outputs {
                true => {
                    "raise `turns`: a call takes one turn, and returning the outputs another; or grant no tools".into()
                }
                false => "raise `turns`: a call takes one turn, and the answer another; or grant no tools".into(),
            }),
            Self::PromptAboveTokens { .. } => Some("raise `tokens`, or shorten the prompt".to_owned()),
            Self::PromptTooLong { .. } => Some("shorten a value, or insert it in fewer places".to_owned()),
            Self::CannotAffordOneTurn { price: Some(_), .. } => {
                Some("write the price in dollars per million tokens; if the price is right, raise `spend`".to_owned())
            }
            Self::CannotAffordOneTurn { model, .. } => {
                Some(format!("raise `spend`, lower `output`, or select a cheaper model than `{model}`"))
            }
            Self::Unpriced { model, provider, .. } => Some(format!(
                "add its prices with `rye providers add {provider}/{model}`, or write `prices: none` into `agent/providers/{provider}` if the model is free"
            )),
        }
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::Unknown { span, .. } | Self::UnknownOfSession { span, .. } => {
                span.iter().map(|s| new_label(*s, "no such limit")).collect()
            }
            Self::Invalid { span, why, .. } => span.iter().map(|s| new_label(*s, why.clone())).collect(),
            Self::NeverBinds { span, .. } => vec![new_label(*span, "no effect")],
            Self::AboveCeiling { span, ceiling, .. } => {
                vec![new_label(*span, "above the maximum"), new_label(*ceiling, "set here")]
            }
            Self::AboveSessionLimit { span, ceiling, .. } => {
                let set = ceiling.map(|ceiling| new_label(ceiling, "set here"));
                std::iter::once(new_label(*span, "above the maximum")).chain(set).collect()
            }
            Self::OneTurn { span, .. } => vec![new_label(*span, "too few turns for a call and an answer")],
            Self::PromptTooLong { span, .. } => {
                span.iter().map(|s| new_label(*s, "the prompt is too long with its placeholders filled in")).collect()
            }
            Self::CannotAffordOneTurn { price: Some(price), span, .. } => {
                let (price, at) = price.as_ref();
                let limit = span.iter().map(|span| new_label(*span, "the limit is set here"));
                std::iter::once(new_label(*at, price.clone())).chain(limit).collect()
            }
            Self::CannotAffordOneTurn { span, .. }
            | Self::PromptAboveTokens { span, .. }
            | Self::Unpriced { span, .. } => span.iter().map(|s| new_label(*s, "set here")).collect(),
        }
    }
}

/// Returns the help for the phrase `why` about the limit `name`: "write a number" for "has to be a number".
fn help_from_phrase(name: &str, why: &str) -> String {
    let wanted = why.strip_prefix("has to be ").or_else(|| why.strip_prefix("can have "));
    match wanted.filter(|wanted| !wanted.starts_with("above")) {
        Some(wanted) => format!("write {wanted}"),
        None => format!("`{name}` {why}"),
    }
}

/// Returns the help for a value that is not a number but was probably meant as a number: a quoted number, an amount
/// with a currency sign or a comma, or a duration with a unit. `None` for other values.
fn number_help(name: &str, found: &str) -> Option<String> {
    let text = found.trim_matches(['`', '"']).trim();
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'.') && text.parse::<f64>().is_ok();
    if name == "spend" {
        let amount = text.trim_matches('$').replace(',', ".");
        return is_number(&amount).then(|| format!("write a number of dollars without quotes and signs: `{amount}`"));
    }
    let digits = text.replace('_', "");
    if is_number(&digits) {
        let whole = digits.trim_start_matches('0');
        let plain = if whole.is_empty() || whole.starts_with('.') { format!("0{whole}") } else { whole.to_owned() };
        let what = if plain == text { "the number without quotes" } else { "the number in digits" };
        return Some(format!("write {what}: `{plain}`"));
    }
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at_checked(digits)?;
    let seconds_of_unit = match unit.trim() {
        "s" | "sec" | "seconds" => 1,
        "m" | "min" | "minutes" => 60,
        "h" | "hours" => 3600,
        _ => return None,
    };
    let seconds = count.parse::<u64>().ok()?.checked_mul(seconds_of_unit)?;
    (name == "duration_seconds").then(|| format!("write a number of seconds: `{seconds}`"))
}
