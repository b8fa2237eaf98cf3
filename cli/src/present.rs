//! Formatting shared by commands: tables, times, money, events. Prints nothing itself.

pub mod dollars;
pub mod event;
pub mod step;
pub mod table;
pub mod wrap;

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use rye_compiler::diagnostics::breaks_line;
use rye_compiler::semantics::money::Nanos;
use rye_engine::clock::{Clock as _, SystemClock};
use rye_engine::thread::Status;

pub const DIM: Style = Style::new().dimmed();
pub const BOLD: Style = Style::new().bold();

pub fn color_style(color: AnsiColor) -> Style {
    Style::new().fg_color(Some(color.into()))
}

pub fn status_style(status: Status) -> Style {
    match status {
        Status::Created | Status::Running => color_style(AnsiColor::Cyan),
        Status::Completed | Status::Continued => color_style(AnsiColor::Green),
        Status::Error => color_style(AnsiColor::Red),
        Status::Cancelled | Status::Killed | Status::Suspended | Status::Idle => color_style(AnsiColor::Yellow),
    }
}

/// Formats a spend. If `unpriced` is true, models without a price were called, whose cost is not in `nanos`.
pub fn format_spend(nanos: u64, unpriced: bool) -> String {
    match (unpriced, nanos) {
        (false, _) => format_money(nanos),
        (true, 0) => "cost unknown".to_owned(),
        (true, _) => format!("{} and unknown costs", format_money(nanos)),
    }
}

/// Formats nano-dollars as dollars: `$0.0123`.
pub fn format_money(nanos: u64) -> String {
    format!("${}", Nanos::from_u64(nanos))
}

/// Formats an amount as dollars: `$0.0123`, or `-$0.0123` if more was spent than was available.
pub fn format_signed_money(amount: Nanos) -> String {
    let text = amount.to_string();
    text.strip_prefix('-').map_or_else(|| format!("${text}"), |rest| format!("-${rest}"))
}

/// Formats a count: `1 turn`, `2 turns`.
pub fn format_count(n: u64, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}

/// Joins up to five names, and adds the number of the other names.
pub fn join_names(names: &[String]) -> String {
    const MOST: usize = 5;
    let shown = names.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Returns the current time, in milliseconds since 1970.
pub fn now() -> i64 {
    SystemClock.now()
}

/// Formats milliseconds since 1970 as date and time in UTC, to the second.
pub fn format_date(ms: i64) -> String {
    format_timestamp(ms, "%Y-%m-%dT%H:%M:%SZ")
}

/// Formats milliseconds since 1970 as a date in UTC, such as `2026-01-31`.
pub fn format_day(ms: i64) -> String {
    format_timestamp(ms, "%Y-%m-%d")
}

/// Formats the time of day in UTC, to the millisecond.
pub fn time_of_day(ms: i64) -> String {
    format_timestamp(ms, "%H:%M:%S%.3f")
}

fn format_timestamp(ms: i64, format: &str) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |at| at.strftime(format).to_string())
}

/// Formats the time from `ms` to `now` in the largest fitting unit: `5m ago`. `ms` and `now` are milliseconds since
/// 1970.
pub fn format_elapsed(ms: i64, now: i64) -> String {
    let seconds = now.saturating_sub(ms).max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds}s ago"),
        60..3_600 => format!("{}m ago", seconds / 60),
        3_600..86_400 => format!("{}h ago", seconds / 3_600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

/// Puts a text on one line. If the line is longer than `limit` characters, truncates it to `limit` characters and `…`.
pub fn truncate_line(text: &str, limit: usize) -> String {
    let mut line = String::new();
    for (n, c) in text.trim().chars().enumerate() {
        if n == limit {
            line.push('…');
            break;
        }
        line.push(if breaks_line(c) { ' ' } else { c });
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_amounts_are_formatted() {
        assert_eq!(format_date(1_771_027_200_000), "2026-02-14T00:00:00Z");
        assert_eq!(time_of_day(1_771_027_200_123), "00:00:00.123");
        assert_eq!(format_date(i64::MAX), i64::MAX.to_string());
        assert_eq!(
            (format_elapsed(0, 59_999), format_elapsed(5, 0), format_elapsed(0, 7_200_000)),
            ("59s ago".into(), "0s ago".into(), "2h ago".into())
        );
        assert_eq!(
            (format_money(12_300_000), format_signed_money(Nanos(-5))),
            ("$0.0123".into(), "-$0.000000005".into())
        );
        assert_eq!(truncate_line("a\nbcd", 3), "a b…");
    }
}
