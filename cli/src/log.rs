//! Logs of the engine and the compiler: structured lines on stderr, requested with `-vv` or `RYE_LOG`.

use std::io::IsTerminal;

use rye_compiler::diagnostics::closest;
use tracing_subscriber::EnvFilter;

use crate::CommandError;
use crate::options::Global;

/// Environment variable with the filter of the log: a level, or targets with levels (`rye_engine=debug`).
const LOG_VARIABLE: &str = "RYE_LOG";

/// Starts the log and returns true if a log is requested. `RYE_LOG` overrides the level of `-vv`.
///
/// # Errors
/// The filter is invalid.
pub fn start_log(global: &Global) -> Result<bool, CommandError> {
    let Some(directives) = log_filter(std::env::var(LOG_VARIABLE).ok(), global.verbose) else { return Ok(false) };
    if let Some((word, level)) = misspelled_level(&directives) {
        return Err(CommandError::usage(format!("`{LOG_VARIABLE}` names the unknown level `{word}`"))
            .with_help(format!("did you mean `{level}`?")));
    }
    let filter = EnvFilter::try_new(&directives).map_err(|error| {
        CommandError::usage(format!("`{LOG_VARIABLE}` is not a valid filter: {error}"))
            .with_help("use a level such as `debug`, or targets such as `rye_engine=trace`")
    })?;
    let colored =
        std::io::stderr().is_terminal() && anstream::stderr().current_choice() != anstream::ColorChoice::Never;
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colored).with_writer(std::io::stderr).init();
    Ok(true)
}

/// Returns the first misspelled level in a filter (such as `debgu`), and the level that was probably meant. `None` if
/// no level is misspelled. Without this check, the log library would use the misspelled level as the name of a target,
/// and the filter would select nothing.
fn misspelled_level(filter: &str) -> Option<(&str, String)> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let words = filter.split(',').map(|part| part.rsplit('=').next().unwrap_or(part).trim());
    let unknown = words.filter(|word| !LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word)));
    unknown.into_iter().find_map(|word| {
        let is_warning = word.eq_ignore_ascii_case("warning");
        let level = if is_warning { Some("warn".to_owned()) } else { closest(word, LEVELS) };
        level.map(|level| (word, level))
    })
}

/// Returns the filter of the log: the value of the environment variable, else the filter for the number of `-v` flags.
/// `None` if neither the variable nor the flags request a log.
fn log_filter(variable: Option<String>, verbose: u8) -> Option<String> {
    let level = match verbose {
        0 | 1 => None,
        2 => Some("debug"),
        _ => Some("trace"),
    };
    let all = level.map(|level| format!("rye={level},rye_engine={level},rye_compiler={level},rye_grammar={level}"));
    variable.filter(|filter| !filter.trim().is_empty()).or(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_level_is_found() {
        for (filter, word) in [("debugg", "debugg"), ("rye_engine=debgu,hyper=info", "debgu"), ("warning", "warning")] {
            assert_eq!(misspelled_level(filter).map(|(word, _)| word), Some(word), "{filter}");
        }
        for filter in ["debug", "DEBUG", "rye_engine=trace,hyper=info", "rye_engine", "hyper", "[span{field=1}]=warn"] {
            assert_eq!(misspelled_level(filter), None, "{filter}");
        }
    }

    #[test]
    fn variable_overrides_the_flag() {
        assert_eq!(log_filter(None, 1), None);
        assert_eq!(log_filter(Some(" ".into()), 0), None);
        assert!(log_filter(None, 2).is_some_and(|filter| filter.contains("rye_engine=debug")));
        assert!(log_filter(None, 5).is_some_and(|filter| filter.contains("rye_engine=trace")));
        assert_eq!(log_filter(Some("warn".into()), 2).as_deref(), Some("warn"));
    }
}
