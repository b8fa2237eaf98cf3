//! `rye threads approvals`: the queue of threads that wait for somebody's word, and what each asks for.

use clap::Args;
use rye_compiler::plan::Asked;
use rye_engine::event::{ApprovalAsked, Event, EventBody};
use rye_engine::thread::Status;
use schemars::JsonSchema;
use serde::Serialize;

use super::book::Book;
use crate::Failure;
use crate::args::Format;
use crate::exit::Exit;
use crate::report::{Report, printable};
use crate::view::table::Table;
use crate::view::{ago, date, now, short};

/// Characters of a question on one line.
const SHORT: usize = 160;

#[derive(Debug, Args)]
pub struct ApprovalsArgs {}

/// `rye threads approvals --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ApprovalsOutput {
    /// The longest waiting first.
    pub approvals: Vec<ApprovalOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ApprovalOutput {
    pub thread_id: String,
    pub directive: String,
    pub parent: Option<String>,
    /// `call` or `limit`.
    pub asked: &'static str,
    /// The capability and the call, or the limit.
    pub what: String,
    /// Date and time in UTC.
    pub since: String,
    /// The command that says yes.
    pub approve: String,
}

/// What a thread asked for last.
pub fn last_asked(events: &[Event]) -> Option<&ApprovalAsked> {
    events
        .iter()
        .rev()
        .find_map(|event| if let EventBody::ApprovalAsked(asked) = &event.body { Some(asked) } else { None })
}

pub fn run(_: &ApprovalsArgs, book: &Book, report: &Report) -> Result<Exit, Failure> {
    let (mut entries, unreadable) = book.threads()?;
    for error in &unreadable {
        report.note(&format!("left out: {error}"));
    }
    entries.retain(|entry| entry.row.status == Status::Suspended && entry.row.continued_by.is_none());
    entries.sort_by(|a, b| (a.row.updated_at, &a.row.id).cmp(&(b.row.updated_at, &b.row.id)));
    let mut approvals = Vec::new();
    let mut since = Vec::new();
    for entry in &entries {
        let row = &entry.row;
        let record = book.record(row.id.as_str())?;
        let Some(asked) = last_asked(&record.events) else { continue };
        let (word, how) = match asked.asked {
            Asked::Call => ("call", ""),
            Asked::Limit => ("limit", " --raise NAME=VALUE"),
        };
        since.push(row.updated_at);
        approvals.push(ApprovalOutput {
            thread_id: row.id.to_string(),
            directive: row.directive.clone(),
            parent: row.parent.as_ref().map(ToString::to_string),
            asked: word,
            what: asked.what.clone(),
            since: date(row.updated_at),
            approve: format!("rye threads approve {}{how}", row.id),
        });
    }
    match report.format() {
        Format::Json => report.json(&ApprovalsOutput { approvals })?,
        Format::Human if approvals.is_empty() => report.note("no thread waits for anybody"),
        format @ (Format::Human | Format::Plain) => {
            let mut table = Table::new(&["THREAD", "SINCE", "ASKS FOR"], &[]);
            let now = now();
            for (one, at) in approvals.iter().zip(since) {
                let since = if format == Format::Human { ago(at, now) } else { one.since.clone() };
                let what = if format == Format::Human { short(&one.what, SHORT) } else { one.what.clone() };
                table.row(vec![one.thread_id.as_str().into(), since.into(), printable(&what).into()]);
            }
            table.lines(format).iter().try_for_each(|line| report.line(line))?;
            if format == Format::Human {
                report.note("`rye threads approve THREAD` lets one go on, with `--deny` without what it asks for");
            }
        }
    }
    Ok(Exit::Fine)
}
