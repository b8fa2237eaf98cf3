//! `rye threads wait|status|results`: prints the status and results of threads, whichever process runs them.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rye_engine::machine::state::OpenApprovalRequest;
use rye_engine::thread::{PrintedCost, RunResult, Status};
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::{Threads, WaitOutcome};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;

use super::control::print_status;
use crate::CommandError;
use crate::command::run::RunOutput;
use crate::command::run::ending::{exit_of_run, exit_of_waiting, open_request, requested_limit, suspended_descendants};
use crate::exit::Exit;
use crate::options::Format;
use crate::present::truncate_line;
use crate::report::Printer;
use crate::thread_reader::ThreadReader;
use crate::thread_reader::reference::ThreadsArg;
use crate::workspace::Spaces;

#[derive(Debug, Args)]
pub struct WaitArgs {
    #[command(flatten)]
    threads: ThreadsArg,
    /// Maximum time to wait for all threads together, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0)]
    timeout: f64,
}

/// Maximum timeout; a longer one could overflow when added to the current time.
const MAX_TIMEOUT: Duration = Duration::from_hours(24 * 365);

#[derive(Debug, Args)]
pub struct ThreadIdsArgs {
    #[command(flatten)]
    threads: ThreadsArg,
}

/// Output of `rye threads wait` and `rye threads results` with `--format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WaitOutput {
    /// True if no thread is running, orphaned or unknown. A suspended thread ends the wait, although an approval can
    /// continue the thread; the exit code is then that of the run.
    pub all_finished: bool,
    pub threads: Vec<WaitOutcomeOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct WaitOutcomeOutput {
    /// Id of the requested thread.
    pub requested: String,
    /// State of the thread: `over` (ended, suspended, or a closed session), `running`, `orphaned` or `unknown`.
    #[serde(rename = "standing")]
    pub status: String,
    /// Result of the last thread of the continuation chain, once it has ended.
    pub result: Option<RunOutput>,
}

pub fn wait(args: &WaitArgs, reader: &ThreadReader, spaces: &Spaces, report: &Printer) -> Result<Exit, CommandError> {
    let timeout = Duration::try_from_secs_f64(args.timeout)
        .map_err(|_| CommandError::usage(format!("`--timeout {}` is not a valid number of seconds", args.timeout)))?;
    wait_for(&args.threads.select(reader)?, timeout, spaces, report)
}

pub fn print_results(
    args: &ThreadIdsArgs,
    reader: &ThreadReader,
    spaces: &Spaces,
    report: &Printer,
) -> Result<Exit, CommandError> {
    wait_for(&args.threads.select(reader)?, Duration::ZERO, spaces, report).map(|_| Exit::Success)
}

pub fn status(args: &ThreadIdsArgs, reader: &ThreadReader, report: &Printer) -> Result<Exit, CommandError> {
    print_status(&args.threads.select(reader)?, reader, report)
}

fn wait_for(ids: &[ThreadId], timeout: Duration, spaces: &Spaces, report: &Printer) -> Result<Exit, CommandError> {
    let store = Arc::new(Threads::open(&spaces.project)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let waited: Result<Vec<WaitOutcome>, CommandError> = runtime.block_on(async {
        let until = Instant::now() + timeout.min(MAX_TIMEOUT);
        let mut waited = Vec::with_capacity(ids.len());
        for id in ids {
            waited.push(store.wait(id, until).await?);
        }
        Ok(waited)
    });
    let waited = waited?;
    let all_finished = waited.iter().all(|one| matches!(one, WaitOutcome::Over(_)));
    let worst = waited
        .iter()
        .map(|one| exit_of_outcome(&store, one))
        .max_by_key(|exit| exit_severity(*exit))
        .unwrap_or(Exit::Success);
    let list = ids.iter().map(ThreadId::as_str).zip(waited);
    match report.format() {
        Format::Json => {
            let threads = list.map(|(requested, one)| outcome_output(&store, requested, one)).collect();
            report.json(&WaitOutput { all_finished, threads })?;
        }
        Format::Human | Format::Plain => {
            for (requested, one) in list {
                let request = match &one {
                    WaitOutcome::Over(result) => open_request(&store, result),
                    WaitOutcome::Orphaned(_) | WaitOutcome::TimedOut(_) | WaitOutcome::Unknown => None,
                };
                report.line(&format_line(requested, &one, request.as_ref()))?;
                if let (WaitOutcome::Over(result), Some(request)) = (&one, &request) {
                    let raise = requested_limit(request).map(|limit| format!(" --raise {limit}=N")).unwrap_or_default();
                    report.note(&format!("approve with `rye threads approve {}{raise}`", result.thread_id));
                }
            }
        }
    }
    Ok(worst)
}

/// Returns the exit code for a thread after the wait: the exit code of its run if the thread has ended or is suspended,
/// else `Failed`.
fn exit_of_outcome(threads: &Threads, waited: &WaitOutcome) -> Exit {
    match waited {
        WaitOutcome::Over(result) => {
            let exit = exit_of_run(result, open_request(threads, result).map(|request| request.origin));
            // A closed session does not wait for its children.
            let is_session = result.status == Status::Idle;
            let waiting = if is_session { Vec::new() } else { suspended_descendants(threads, result) };
            exit_of_waiting(exit, &waiting)
        }
        WaitOutcome::Orphaned(_) | WaitOutcome::TimedOut(_) | WaitOutcome::Unknown => Exit::Failed,
    }
}

fn exit_severity(exit: Exit) -> u8 {
    match exit {
        Exit::Success => 0,
        Exit::Cancelled => 1,
        Exit::Limit => 2,
        Exit::Refused => 3,
        Exit::Failed => 4,
        Exit::Usage | Exit::PermissionsWidened => 5,
    }
}

fn state_name(waited: &WaitOutcome) -> &'static str {
    match waited {
        WaitOutcome::Over(_) => "over",
        WaitOutcome::TimedOut(_) => "running",
        WaitOutcome::Orphaned(_) => "orphaned",
        WaitOutcome::Unknown => "unknown",
    }
}

fn outcome_output(threads: &Threads, requested: &str, waited: WaitOutcome) -> WaitOutcomeOutput {
    let status = state_name(&waited).to_owned();
    let result = if let WaitOutcome::Over(result) = waited {
        let of_run = ThreadId::parse(&result.thread_id).ok().and_then(|id| threads.run_cost(&id).ok());
        let cost = of_run.map_or_else(|| result.cost.clone(), PrintedCost::from);
        Some(RunOutput::from(RunResult { cost, ..*result }))
    } else {
        None
    };
    WaitOutcomeOutput { requested: requested.to_owned(), status, result }
}

fn format_line(requested: &str, waited: &WaitOutcome, request: Option<&OpenApprovalRequest>) -> String {
    let WaitOutcome::Over(result) = waited else { return format!("{requested}\t{}", state_name(waited)) };
    let text = request.map_or_else(|| format_result(result), |request| truncate_line(&request.what, 2_000));
    format!("{}\t{}\t{text}", result.thread_id, result.status.as_str())
}

/// Formats the result of a thread on one line: the error, if there is one, else the outputs, else the text. Empty if
/// the result has none of them.
fn format_result(result: &RunResult) -> String {
    let text = match (&result.error, &result.outputs, &result.result) {
        (Some(error), _, _) => format!("{}: {}", error.code, error.message),
        (None, Some(outputs), _) => serde_json::to_string(outputs).unwrap_or_default(),
        (None, None, Some(text)) => text.to_string(),
        (None, None, None) => String::new(),
    };
    truncate_line(&text, 2_000)
}
