//! `rye threads list`: lists the threads of a project.

use std::cmp::Reverse;

use anstyle::{AnsiColor, Style};
use clap::Args;
use rye_engine::store::ThreadRow;
use rye_engine::thread::PrintedCost;
use schemars::JsonSchema;
use serde::Serialize;

use super::thread_reader::{ThreadEntry, ThreadReader};
use crate::CommandError;
use crate::args::Format;
use crate::exit::Exit;
use crate::present::table::{Cell, Table};
use crate::present::{colored, format_count, format_date, format_elapsed, format_money, now, status_style};
use crate::report::Printer;

#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only threads that have not ended
    #[arg(long)]
    active: bool,
    /// Only threads of this directive
    #[arg(long, value_name = "ID")]
    directive: Option<String>,
    /// Maximum number of threads
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Output of `rye threads list --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListOutput {
    /// Threads, newest first.
    pub threads: Vec<ThreadOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ThreadOutput {
    pub thread_id: String,
    pub directive: String,
    /// Tool executed by this thread (asynchronous tool calls only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// `created`, `running`, `completed`, `error`, `cancelled`, `killed`, `continued` or `suspended`.
    pub status: String,
    /// True if the thread has not ended and no live process owns it; `rye run --resume` recovers it.
    pub orphaned: bool,
    pub parent: Option<String>,
    /// Root thread of the tree; the thread itself if it has no parent.
    pub root: String,
    pub plan_id: Option<String>,
    /// Date and time in UTC.
    pub created_at: String,
    pub updated_at: String,
    pub cost: CostOutput,
    /// The thread that this one continues.
    pub continues: Option<String>,
    /// The thread that continues this one.
    pub continued_by: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct CostOutput {
    pub turns: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Dollars.
    #[schemars(with = "f64")]
    pub spend: serde_json::Value,
}

impl From<PrintedCost> for CostOutput {
    fn from(cost: PrintedCost) -> Self {
        let PrintedCost { turns, input_tokens, output_tokens, spend } = cost;
        Self { turns, input_tokens, output_tokens, spend }
    }
}

impl ThreadOutput {
    pub fn new(entry: &ThreadEntry) -> Self {
        let row = &entry.row;
        Self {
            thread_id: row.id.to_string(),
            directive: row.directive.clone(),
            tool: row.tool.clone(),
            status: row.status.as_str().to_owned(),
            orphaned: entry.orphaned,
            parent: row.parent.as_ref().map(ToString::to_string),
            root: row.root.to_string(),
            plan_id: row.plan_id.clone(),
            created_at: format_date(row.created_at),
            updated_at: format_date(row.updated_at),
            cost: PrintedCost::from(row.cost).into(),
            continues: row.continues.as_ref().map(ToString::to_string),
            continued_by: row.continued_by.as_ref().map(ToString::to_string),
        }
    }
}

pub fn run(args: &ListArgs, book: &ThreadReader, report: &Printer) -> Result<Exit, CommandError> {
    let (mut entries, unreadable) = book.threads()?;
    for error in &unreadable {
        report.note(&format!("left out: {error}"));
    }
    match book.count_unregistered()? {
        0 => {}
        n => report.note(&format!(
            "left out: {} with a transcript but not in the registry; rebuild it with `rye threads repair`",
            format_count(n as u64, "thread")
        )),
    }
    entries.retain(|entry| !args.active || !entry.row.status.has_ended());
    entries.retain(|entry| args.directive.as_ref().is_none_or(|directive| entry.row.directive == *directive));
    entries.sort_by(|a, b| (Reverse(a.row.created_at), &a.row.id).cmp(&(Reverse(b.row.created_at), &b.row.id)));
    entries.truncate(args.limit.unwrap_or(usize::MAX));
    match report.format() {
        Format::Json => report.json(&ListOutput { threads: entries.iter().map(ThreadOutput::new).collect() })?,
        Format::Human if entries.is_empty() => report.note("no threads"),
        format @ (Format::Human | Format::Plain) => {
            table(&entries, format).lines(format).iter().try_for_each(|line| report.line(line))?;
        }
    }
    Ok(Exit::Fine)
}

fn table(entries: &[ThreadEntry], format: Format) -> Table {
    let mut table = Table::new(&["THREAD", "DIRECTIVE", "STATUS", "TURNS", "TOKENS", "COST", "STARTED"], &[3, 4, 5]);
    let now = now();
    for entry in entries {
        let row = &entry.row;
        let started =
            if format == Format::Human { format_elapsed(row.created_at, now) } else { format_date(row.created_at) };
        let tokens = row.cost.input_tokens.saturating_add(row.cost.output_tokens);
        table.row(vec![
            row.id.as_str().into(),
            runs(&entry.row).into(),
            Cell::styled(status_name(entry), standing_style(entry)),
            row.cost.turns.to_string().into(),
            tokens.to_string().into(),
            format_money(row.cost.spend).into(),
            started.into(),
        ]);
    }
    table
}

/// Formats the directive of a thread, with the tool for an asynchronous tool call.
fn runs(row: &ThreadRow) -> String {
    row.tool.as_ref().map_or_else(|| row.directive.clone(), |tool| format!("{} › {tool}", row.directive))
}

/// Returns the status, or `orphaned`.
pub fn status_name(entry: &ThreadEntry) -> &'static str {
    if entry.orphaned { "orphaned" } else { entry.row.status.as_str() }
}

fn standing_style(entry: &ThreadEntry) -> Style {
    if entry.orphaned { colored(AnsiColor::Yellow) } else { status_style(entry.row.status) }
}
