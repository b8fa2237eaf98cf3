//! HTTP dates in their three formats, as milliseconds since 1970. Pure: the current time is not used.

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Parses a date in one of the three formats: `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT` or `Sun
/// Nov 6 08:49:37 1994`. Returns milliseconds since 1970; `None` for any other text.
pub(super) fn parse(text: &str) -> Option<i64> {
    let words: Vec<&str> = text.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    match words.as_slice() {
        [_, day, month, year, time, "GMT" | "UTC"] | [_, month, day, time, year] => {
            timestamp_ms(year, month, day, time)
        }
        [_, date, time, "GMT" | "UTC"] => {
            let mut parts = date.splitn(3, '-');
            let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
            timestamp_ms(year, month, day, time)
        }
        _ => None,
    }
}

fn timestamp_ms(year: &str, month: &str, day: &str, time: &str) -> Option<i64> {
    let year = match (year.len(), number(year)?) {
        (4, year) => year,
        // Two-digit years are those from 1970 to 2069.
        (2, year) if year < 70 => 2000 + year,
        (2, year) => 1900 + year,
        _ => return None,
    };
    let month = i64::try_from(MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))?).ok()? + 1;
    let day = number(day)?;
    let mut clock = time.split(':').map(number);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let fits = (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61 && clock.next().is_none();
    let days = days_since_1970(year, month, day);
    fits.then_some(((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000)
}

fn number(text: &str) -> Option<i64> {
    let plain = !text.is_empty() && text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar. The years of the computation begin in March,
/// so that the leap day comes last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let since_march = (month + 9) % 12;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (since_march * 306 + 5) / 10 + day - 1 - 719_468
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
        assert_eq!(parse("Thu, 29 Feb 2024 23:59:60 GMT"), Some(1_709_251_200_000));
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
