//! Limits that the command line sets for a resumed thread.

use rye_compiler::diagnostics::Diagnostic;
use rye_compiler::lower::limits::override_limits;
use rye_compiler::plan::PlanLimits;
use rye_engine::threads::Threads;

use super::PARENT_VARIABLE;
use super::start::ThreadStart;
use crate::CommandError;
use crate::run_request::parse_limits;
use crate::workspace::Spaces;

/// The limits of a resumed thread, some of which the command line sets.
#[derive(Debug, Clone)]
pub struct ResumedLimits {
    pub limits: PlanLimits,
    /// The names of the limits that the command line sets.
    pub given: Vec<String>,
}

impl ResumedLimits {
    /// Reads the limits of the thread that `start` resumes or forks, and replaces the limits that `texts`
    /// (`NAME=VALUE`) sets. Returns `None` if `texts` is empty.
    ///
    /// # Errors
    ///
    /// The thread has not ended, or a limit is invalid. A program that a thread runs always gets an error, because it
    /// must not change the limits of its thread.
    pub fn read(texts: &[String], start: &ThreadStart, spaces: &Spaces) -> Result<Option<Self>, CommandError> {
        if texts.is_empty() {
            return Ok(None);
        }
        if std::env::var_os(PARENT_VARIABLE).is_some_and(|id| !id.is_empty()) {
            let message = "`--limit` with a resumed thread is not allowed in a program that a thread runs";
            return Err(CommandError::usage(message));
        }
        let thread = match start {
            ThreadStart::Resume { thread, .. } | ThreadStart::Fork { thread, .. } => thread,
            ThreadStart::Recover { thread, .. } | ThreadStart::Handoff { thread } => {
                let message = format!("`--limit` applies only to a finished thread: `{thread}` has not ended");
                let help = format!(
                    "raise a limit of a suspended thread with `rye threads approve {thread} --raise NAME=VALUE`; or \
                     end the thread with `rye threads cancel {thread}`, then resume it with `--message` and `--limit`"
                );
                return Err(CommandError::usage(message).with_help(help));
            }
            ThreadStart::Fresh { .. } => return Err(CommandError::usage("the thread is new, not resumed")),
        };
        let overrides = parse_limits("limit", texts)?;
        let unknown = || CommandError::failed(format!("the thread `{thread}` never started: it has no transcript"));
        let recorded = Threads::open(&spaces.project)?.parent(thread)?.ok_or_else(unknown)?;
        let limits = override_limits(recorded.plan().limits.into(), &overrides).map_err(|error| {
            let invalid = Diagnostic::from(error);
            let failure = CommandError::usage(invalid.message());
            match invalid.help() {
                Some(help) => failure.with_help(help),
                None => failure,
            }
        })?;
        let given = overrides.into_iter().map(|(name, _)| name).collect();
        Ok(Some(Self { limits: limits.into(), given }))
    }
}
