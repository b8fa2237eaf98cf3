//! `rye threads approvals`: lists the threads that wait for an approval, with their requests.

use clap::Args;
use rye_compiler::plan::ApprovalOrigin;
use rye_engine::store::ThreadRow;
use rye_engine::threads::pending_approval;
use schemars::JsonSchema;
use serde::Serialize;

use crate::CommandError;
use crate::command::run::ending::requested_limit;
use crate::exit::Exit;
use crate::options::Format;
use crate::present::table::Table;
use crate::present::{format_date, format_elapsed, now, truncate_line};
use crate::report::{Printer, printable};
use crate::thread_reader::ThreadReader;

/// Maximum length of a request on one line, in characters.
const MAX_REQUEST_CHARS: usize = 160;

#[derive(Debug, Args)]
pub struct ApprovalsArgs {}

/// Output of `rye threads approvals --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ApprovalsOutput {
    /// Approval requests, oldest first.
    pub approvals: Vec<ApprovalOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ApprovalOutput {
    pub thread_id: String,
    pub directive: String,
    pub parent: Option<String>,
    /// Kind of the request: `call` or `limit`.
    pub kind: &'static str,
    /// Subject of the request: the capability and the call for `call`, the limit for `limit`.
    pub what: String,
    /// Time of the request: date and time in UTC.
    pub since: String,
    /// True if the process of the thread also shows the request at its own terminal. The first answer is used.
    pub at_terminal: bool,
    /// Command that approves the request. At a limit, `N` stands for the new total of the limit.
    pub approve: String,
}

pub fn run(_: &ApprovalsArgs, reader: &ThreadReader, report: &Printer) -> Result<Exit, CommandError> {
    let (mut entries, unreadable) = reader.list_readable()?;
    for error in &unreadable {
        report.note(&format!("skipped: {error}"));
    }
    let may_ask = |row: &ThreadRow| !row.status.has_ended() || row.status.is_parked();
    entries.retain(|entry| may_ask(&entry.row) && entry.row.continued_by.is_none());
    let mut waiting = Vec::new();
    for entry in entries {
        let record = match reader.load(entry.row.id.as_str()) {
            // A thread that is just starting may not be readable yet, and has no request.
            Err(_) if !entry.row.status.is_parked() => continue,
            record => record?,
        };
        let Some(question) = pending_approval(&record.events) else { continue };
        let at = record.events.iter().find(|event| event.seq == question.seq).map_or(0, |event| event.ts);
        waiting.push((at, entry, question));
    }
    waiting.sort_by(|(a, one, _), (b, other, _)| (a, &one.row.id).cmp(&(b, &other.row.id)));
    let mut approvals = Vec::new();
    let mut since = Vec::new();
    for (at, entry, question) in waiting {
        let row = &entry.row;
        let (word, how) = match question.origin {
            ApprovalOrigin::Call => ("call", String::new()),
            ApprovalOrigin::Limit => ("limit", format!(" --raise {}=N", requested_limit(&question).unwrap_or("LIMIT"))),
        };
        since.push(at);
        approvals.push(ApprovalOutput {
            thread_id: row.id.to_string(),
            directive: row.directive.clone(),
            parent: row.parent.as_ref().map(ToString::to_string),
            kind: word,
            what: question.what,
            since: format_date(at),
            at_terminal: !row.status.has_ended() && !entry.is_orphaned(),
            approve: format!("rye threads approve {}{how}", row.id),
        });
    }
    match report.format() {
        Format::Json => report.json(&ApprovalsOutput { approvals })?,
        Format::Human if approvals.is_empty() => report.note("no approval requests"),
        format @ (Format::Human | Format::Plain) => {
            let mut table = Table::new(&["THREAD", "SINCE", "REQUEST"], &[]);
            let now = now();
            for (one, at) in approvals.iter().zip(since) {
                let since = if format == Format::Human { format_elapsed(at, now) } else { one.since.clone() };
                let what = if format == Format::Human {
                    truncate_line(&one.what, MAX_REQUEST_CHARS)
                } else {
                    one.what.clone()
                };
                table.row(vec![one.thread_id.as_str().into(), since.into(), printable(&what).into()]);
            }
            report.lines(table.lines(format))?;
            if format == Format::Human {
                let is_limit = |one: &ApprovalOutput| one.kind == "limit";
                let raise = if approvals.iter().any(is_limit) {
                    ", or with `--raise LIMIT=N` if a limit stopped the thread"
                } else {
                    ""
                };
                report.note(&format!("approve with `rye threads approve THREAD`{raise}; deny with `--deny`"));
            }
        }
    }
    Ok(Exit::Success)
}
