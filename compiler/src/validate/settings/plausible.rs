//! Checks for values of provider files and of retries that are valid but probably a mistake:
//!
//! - prices in another unit,
//! - context windows in thousands of tokens,
//! - a base URL that already contains the path that the wire format appends,
//! - keys that would be sent without encryption,
//! - a first delay of retries above the longest delay,
//! - a bound on tool results in kilobytes.

use rye_grammar::Span;
use rye_grammar::data::{Kind, Node};

use crate::diagnostics::{ConfigError, Diagnostics};
use crate::semantics::money::Nanos;
use crate::semantics::needs::is_unencrypted;

/// The highest plausible price per million tokens, in dollars.
const MAX_PRICE: u64 = 1_000;
/// The lowest plausible price per million tokens, in nano-dollars: a tenth of a cent.
const MIN_PRICE_NANOS: u64 = 1_000_000;
/// The smallest plausible context window, in tokens.
const MIN_WINDOW: u64 = 1_000;
/// The smallest plausible length of a reply, in tokens.
const MIN_OUTPUT: u64 = 64;
/// The smallest plausible bound on tool results, in bytes.
const MIN_RESULT_BYTES: u64 = 256;
/// Paths that the wire formats append to the base URL themselves. A base URL must not end in one of these paths.
const WIRE_PATHS: [&str; 5] = ["/chat/completions", "/completions", "/messages", "/responses", ":generateContent"];

/// Reports values of a provider file that are valid but implausible, such as a context window of 128 tokens. `node` is
/// the file, merged over the spaces. `id` has the form `agent/providers/NAME`.
pub fn check(id: &str, node: &Node, found: &mut Diagnostics) {
    let mut report = |key: String, why: String, help: &'static str, span: Span| {
        found.push(ConfigError::Implausible { file: id.to_owned(), key, why, help: help.to_owned(), span });
    };
    if let Some((url, span)) = node.get("base_url").and_then(|value| Some((value.as_str()?, value.span))) {
        let address = url.trim_end_matches('/');
        if let Some(path) = WIRE_PATHS.into_iter().find(|path| address.ends_with(path)) {
            let why = format!("the wire format adds `{path}` to the address");
            report("base_url".into(), why, "remove this path from the end of the address", span);
        }
        if is_unencrypted(url) && node.get("key_env").is_some() {
            let why = "requests and the key are sent without encryption".to_owned();
            report("base_url".into(), why, "write `https://`", span);
        }
    }
    for model in node.get("models").map(Node::items).unwrap_or_default() {
        let Some(name) = model.get("id").and_then(Node::as_str) else { continue };
        if let Some(window) = model.get("context_window")
            && let Kind::Number(number) = &window.kind
            && number.as_u64().is_some_and(|tokens| tokens > 0 && tokens < MIN_WINDOW)
        {
            let why = format!("a prompt does not fit into {number} tokens");
            report(
                format!("models.{name}.context_window"),
                why,
                "write the number of tokens: 128000, not 128",
                window.span,
            );
        }
        if let Some(output) = model.get("max_output")
            && let Kind::Number(number) = &output.kind
            && number.as_u64().is_some_and(|tokens| tokens > 0 && tokens < MIN_OUTPUT)
        {
            let why = format!("each reply is cut after {number} tokens");
            report(format!("models.{name}.max_output"), why, "write the number of tokens: 4096, not 4", output.span);
        }
        let date = model.get("priced_at").and_then(|value| Some((value.as_str()?, value.span)));
        if let Some((text, span)) = date.filter(|(text, _)| !is_date(text)) {
            report(
                format!("models.{name}.priced_at"),
                format!("`{text}` is not a date"),
                "write the date as YYYY-MM-DD",
                span,
            );
        }
        let Some(prices) = model.get("prices") else { continue };
        let price = |key: &str| prices.get(key).and_then(|value| Some((read_price(value)?, value.span)));
        let per_million = "write the price in dollars per million tokens";
        let all = ["input", "output", "cache_read", "cache_write"].map(|key| (key, price(key)));
        let odd = all.into_iter().find_map(|(key, price)| {
            let (price, span) = price?;
            let is_odd = price > MAX_PRICE * 1_000_000_000 || (price > 0 && price < MIN_PRICE_NANOS);
            is_odd.then_some((key, price, span))
        });
        if let Some((key, price, span)) = odd {
            let why = format!("${} per million tokens", Nanos::from_u64(price));
            report(format!("models.{name}.prices.{key}"), why, per_million, span);
            continue;
        }
        let [(_, input), (_, output), (_, read), _] = all;
        if let (Some((input, _)), Some((output, span))) = (input, output)
            && output > 0
            && output < input
        {
            let why = "an output token costs less than an input token".to_owned();
            report(
                format!("models.{name}.prices.output"),
                why,
                "correct the prices: `input` and `output` may be swapped",
                span,
            );
        }
        if let (Some((input, _)), Some((read, span))) = (input, read)
            && read > input
        {
            let why = "a cached token costs more than a fresh one".to_owned();
            report(format!("models.{name}.prices.cache_read"), why, "correct the price of cached tokens", span);
        }
    }
}

/// Reports a delay of retries whose first value is already above the maximum, at any depth of a settings file: every
/// delay is then the maximum. `node` is the file, merged over the spaces; `is_own` returns true for a value that the
/// project or the user wrote.
pub fn check_delays(id: &str, node: &Node, is_own: &dyn Fn(Span) -> bool, found: &mut Diagnostics) {
    for inner in node.entries().iter().map(|entry| &entry.value).chain(node.items()) {
        check_delays(id, inner, is_own, found);
    }
    let retries = node.get("max_retries").filter(|retries| is_own(retries.span));
    if retries.is_some_and(|retries| retries.to_value() == 0)
        && let Some(unused) =
            ["base_seconds", "max_seconds"].into_iter().find(|key| node.get(key).is_some_and(|one| is_own(one.span)))
        && let Some(written) = node.get(unused)
    {
        found.push(ConfigError::Implausible {
            file: id.to_owned(),
            key: unused.to_owned(),
            why: "`max_retries` is 0, so no call is repeated".to_owned(),
            help: format!("raise `max_retries`, or remove `{unused}`"),
            span: written.span,
        });
        return;
    }
    let delay = |key: &str| node.get(key).and_then(|value| Some((value.to_value().as_f64()?, value.span)));
    let Some(((base, base_span), (most, most_span))) = delay("base_seconds").zip(delay("max_seconds")) else { return };
    if base > most && (is_own(base_span) || is_own(most_span)) {
        found.push(ConfigError::Implausible {
            file: id.to_owned(),
            key: "base_seconds".to_owned(),
            why: format!("the first delay of {base} seconds is above `max_seconds`, so each delay is {most} seconds"),
            help: "raise `max_seconds`, or lower `base_seconds`".to_owned(),
            span: if is_own(base_span) { base_span } else { most_span },
        });
    }
}

/// Reports a first delay of retries that is above the limit `duration_seconds`: the thread ends before a second
/// attempt. `node` is the file `agent/resilience`, merged over the spaces.
pub fn check_first_delay(id: &str, node: &Node, is_own: &dyn Fn(Span) -> bool, found: &mut Diagnostics) {
    let number = |section: &str, key: &str| {
        let value = node.get(section)?.get(key)?;
        Some((value.to_value().as_f64()?, value.span))
    };
    let (delay, limit) = (number("retry", "base_seconds"), number("limits", "duration_seconds"));
    let Some(((delay, delay_span), (limit, limit_span))) = delay.zip(limit) else { return };
    if delay > limit && (is_own(delay_span) || is_own(limit_span)) {
        found.push(ConfigError::Implausible {
            file: id.to_owned(),
            key: "retry.base_seconds".to_owned(),
            why: format!("a thread ends after {limit} seconds, before the first retry"),
            help: "lower `base_seconds`, or raise `limits.duration_seconds`".to_owned(),
            span: if is_own(delay_span) { delay_span } else { limit_span },
        });
    }
}

/// Reports a bound on tool results that is so small that nearly every result is cut, for example because its author
/// wrote kilobytes in place of bytes.
pub fn check_result_size(id: &str, node: &Node, found: &mut Diagnostics) {
    let size = node.get("tool_result").and_then(|settings| settings.get("max_bytes"));
    let Some((bytes, span)) = size.and_then(|value| Some((value.to_value().as_u64()?, value.span))) else { return };
    if bytes > 0 && bytes < MIN_RESULT_BYTES {
        found.push(ConfigError::Implausible {
            file: id.to_owned(),
            key: "tool_result.max_bytes".to_owned(),
            why: format!("each tool result is cut to {bytes} bytes"),
            help: "write the number of bytes: 32768, not 32".to_owned(),
            span,
        });
    }
}

/// Returns a price of a provider file in nano-dollars (per million tokens); `None` if the value is not a valid price.
fn read_price(node: &Node) -> Option<u64> {
    let price = match &node.kind {
        Kind::String(text) => Nanos::parse(text).ok(),
        Kind::Number(_) => Nanos::from_json(&node.to_value()).ok(),
        Kind::Null | Kind::Bool(_) | Kind::List(_) | Kind::Map(_) => None,
    };
    price.filter(|price| !price.is_negative()).map(Nanos::to_u64)
}

/// Returns the number of days of a month.
fn days_of(year: u32, month: u32) -> u32 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns true for a date of the form `2026-01-31` or a time that starts with such a date.
fn is_date(text: &str) -> bool {
    let mut parts = text.get(..10).unwrap_or(text).splitn(3, '-').map(|part| part.parse::<u32>().ok());
    let [Some(Some(year)), Some(Some(month)), Some(Some(day))] = [parts.next(), parts.next(), parts.next()] else {
        return false;
    };
    let rest = text.get(10..).unwrap_or_default();
    year >= 1_000
        && (1..=12).contains(&month)
        && (1..=days_of(year, month)).contains(&day)
        && (rest.is_empty() || rest.starts_with(['T', ' ']))
}
