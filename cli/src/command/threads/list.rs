//! `rye threads list`: lists the threads of a project.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use anstyle::{AnsiColor, Style};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rye_engine::event::{Approval, EventBody};
use rye_engine::store::ThreadRow;
use rye_engine::thread::{Cost, PrintedCost, Status};
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::ListedThread;
use schemars::JsonSchema;
use serde::Serialize;

use crate::CommandError;
use crate::exit::Exit;
use crate::options::Format;
use crate::present::step::Step;
use crate::present::table::{Cell, Table};
use crate::present::wrap::{OutputStream, fold_width};
use crate::present::{color_style, format_count, format_date, format_elapsed, format_money, now, status_style};
use crate::report::Printer;
use crate::thread_reader::ThreadReader;

#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only threads that have not ended
    #[arg(long)]
    active: bool,
    /// Only threads with this status (repeatable)
    #[arg(long, value_enum, value_name = "STATUS")]
    status: Vec<StatusFilter>,
    /// Only threads of this directive
    #[arg(long, value_name = "ID")]
    directive: Option<String>,
    /// Only threads that started at this time or later: an age (`30m`, `2h`, `7d`) or a date (`2026-02-14`)
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    since: Option<Since>,
    /// Maximum number of trees (a thread with all threads that it started and, in human output, all threads that
    /// continue it)
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Values of `--status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StatusFilter {
    Created,
    #[value(alias = "active")]
    Running,
    #[value(aliases = ["done", "finished", "complete", "success"])]
    Completed,
    #[value(aliases = ["failed", "failure"])]
    Error,
    #[value(alias = "canceled")]
    Cancelled,
    Killed,
    Continued,
    Suspended,
    /// A closed session of a chat, which can be reopened
    Idle,
    /// Not ended, and no live process runs it
    Orphaned,
}

impl StatusFilter {
    fn accepts(self, entry: &ListedThread) -> bool {
        let name = match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Killed => "killed",
            Self::Continued => "continued",
            Self::Suspended => "suspended",
            Self::Idle => "idle",
            Self::Orphaned => "orphaned",
        };
        entry.status_name() == name
    }
}

/// Start of the listed period, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Since(i64);

fn parse_since(text: &str) -> Result<Since, String> {
    let expected = "expected an age such as `30m`, `2h` or `7d`, or a date such as `2026-02-14`";
    let age = |seconds: i64, at: usize| {
        let count: i64 = text.get(..at)?.parse().ok()?;
        Some(now().saturating_sub(count.checked_mul(seconds)?.checked_mul(1000)?))
    };
    let found = match text.char_indices().last() {
        Some((at, 's')) => age(1, at),
        Some((at, 'm')) => age(60, at),
        Some((at, 'h')) => age(3_600, at),
        Some((at, 'd')) => age(86_400, at),
        Some((at, 'w')) => age(604_800, at),
        Some(_) | None => parse_date(text),
    };
    found.map(Since).ok_or_else(|| expected.to_owned())
}

/// Parses a date, or a date and time, in UTC unless it has an offset. Returns milliseconds since 1970; `None` for any
/// other text.
fn parse_date(text: &str) -> Option<i64> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(at.as_millisecond());
    }
    let local: DateTime = text.parse().ok()?;
    Some(local.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

/// Output of `rye threads list --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListOutput {
    /// Threads: the newest tree first, each thread before the threads that it started.
    pub threads: Vec<ThreadOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ThreadOutput {
    pub thread_id: String,
    pub directive: String,
    /// Tool executed by this thread (asynchronous tool calls only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Status of the thread: `created`, `running`, `completed`, `error`, `cancelled`, `killed`, `continued`,
    /// `suspended` or `idle` (a closed session).
    pub status: String,
    /// True if the thread has not ended and no live process owns it. `rye run --resume` recovers it.
    pub orphaned: bool,
    /// Current step of a thread that has not ended or is suspended: `turn N`, names of tools, `waiting for approval`,
    /// ….
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Turn of the newest model call of a thread that has not ended or is suspended; absent before its first call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
    /// Sequence number of the `approval_asked` event that waits for an answer. A thread requests one approval at a
    /// time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asks: Option<u64>,
    pub parent: Option<String>,
    /// Root thread of the tree; the thread itself if it has no parent.
    pub root: String,
    pub plan_id: Option<String>,
    /// Time of the thread's creation: date and time in UTC.
    pub created_at: String,
    pub updated_at: String,
    /// Cost of the thread and of all threads below it in its tree.
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
    /// Spend in dollars.
    #[schemars(with = "f64")]
    pub spend: serde_json::Value,
    /// True if models without a price were called, whose cost `spend` does not contain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unpriced: bool,
}

impl From<PrintedCost> for CostOutput {
    fn from(cost: PrintedCost) -> Self {
        let PrintedCost { turns, input_tokens, output_tokens, spend, unpriced } = cost;
        Self { turns, input_tokens, output_tokens, spend, unpriced }
    }
}

impl ThreadOutput {
    /// Creates the output for a thread. `cost` is the cost of the thread with its descendants.
    pub fn new(entry: &ListedThread, cost: Cost) -> Self {
        let row = &entry.row;
        Self {
            thread_id: row.id.to_string(),
            directive: row.directive.clone(),
            tool: row.tool.clone(),
            status: row.status.as_str().to_owned(),
            orphaned: entry.is_orphaned(),
            step: None,
            turn: None,
            asks: None,
            parent: row.parent.as_ref().map(ToString::to_string),
            root: row.root.to_string(),
            plan_id: row.plan_id.clone(),
            created_at: format_date(row.created_at),
            updated_at: format_date(row.updated_at),
            cost: PrintedCost::from(cost).into(),
            continues: row.continues.as_ref().map(ToString::to_string),
            continued_by: row.continued_by.as_ref().map(ToString::to_string),
        }
    }
}

pub fn run(args: &ListArgs, reader: &ThreadReader, report: &Printer) -> Result<Exit, CommandError> {
    let (mut entries, unreadable) = reader.list_readable()?;
    for error in &unreadable {
        report.note(&format!("skipped: {error}"));
    }
    match reader.count_unregistered(&entries)? {
        0 => {}
        n => report.note(&format!(
            "skipped: {} with a transcript but not in the registry; rebuild the registry with `rye threads repair`",
            format_count(n as u64, "thread")
        )),
    }
    let all: Vec<&ThreadRow> = entries.iter().map(|entry| &entry.row).collect();
    let costs = reader.tree_costs(&all)?;
    entries.retain(|entry| !args.active || !entry.row.status.has_ended());
    entries.retain(|entry| args.status.is_empty() || args.status.iter().any(|status| status.accepts(entry)));
    entries.retain(|entry| args.since.is_none_or(|since| entry.row.created_at >= since.0));
    entries.retain(|entry| args.directive.as_ref().is_none_or(|directive| entry.row.directive == *directive));
    let joins_chains = report.format() == Format::Human;
    let rows: Vec<ListRow> = arrange_trees(&entries, args.limit.unwrap_or(usize::MAX), joins_chains)
        .into_iter()
        .map(|(entry, branch)| {
            let cost = costs.get(&entry.row.id).copied().unwrap_or(entry.row.cost);
            ListRow { step: current_step(entry, reader), entry, branch, cost }
        })
        .collect();
    match report.format() {
        Format::Json => {
            let output = |row: &ListRow| {
                let of_row = ThreadOutput::new(row.entry, row.cost);
                let Some(current) = &row.step else { return of_row };
                ThreadOutput { step: Some(current.step.to_string()), turn: current.turn, asks: current.asks, ..of_row }
            };
            report.json(&ListOutput { threads: rows.iter().map(output).collect() })?;
        }
        Format::Human if rows.is_empty() => report.note("no threads"),
        format @ (Format::Human | Format::Plain) => {
            let mut table = build_table(&rows, format);
            // The id of a thread begins with its directive, so a narrow table can omit the column of the directive.
            let width = fold_width(OutputStream::Out).filter(|_| format == Format::Human);
            for column in OPTIONAL_COLUMNS {
                if width.is_some_and(|width| table.width() > width) {
                    table.remove_column(column);
                }
            }
            report.lines(table.lines(format))?;
        }
    }
    Ok(Exit::Success)
}

struct ListRow<'e> {
    entry: &'e ListedThread,
    /// Lines that connect the thread with its parent, for human output.
    branch: String,
    step: Option<CurrentStep>,
    /// The cost of the thread with its descendants.
    cost: Cost,
}

/// The current step of a thread, folded from its transcript.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct CurrentStep {
    step: Step,
    turn: Option<u64>,
    /// Sequence number of the `approval_asked` event of the open approval request.
    asks: Option<u64>,
}

/// Arranges threads as trees, and returns the `limit` newest trees, the newest first. Children follow their parent in
/// the order of their start. A thread whose parent is not in `entries` is the root of a tree. Each thread is returned
/// with the lines that connect it with its parent in human output. If `joins_chains` is true, a root that continues
/// another thread follows the first thread of its chain, with an arrow.
fn arrange_trees(entries: &[ListedThread], limit: usize, joins_chains: bool) -> Vec<(&ListedThread, String)> {
    let ids: HashSet<&ThreadId> = entries.iter().map(|entry| &entry.row.id).collect();
    let heads = if joins_chains { chain_heads(entries) } else { HashMap::new() };
    let parent = |entry: &ListedThread| {
        let parent = entry.row.parent.as_ref().and_then(|parent| ids.get(parent));
        parent.or_else(|| heads.get(&entry.row.id)).copied()
    };
    let newest = newest_of_chains(entries, &heads);
    // Sort newest first: children are popped from the end, so the oldest child is printed first.
    let mut sorted: Vec<&ListedThread> = entries.iter().collect();
    sorted.sort_by(|a, b| (Reverse(a.row.created_at), &b.row.id).cmp(&(Reverse(b.row.created_at), &a.row.id)));
    let mut children: HashMap<Option<&ThreadId>, Vec<&ListedThread>> = HashMap::new();
    for entry in sorted {
        children.entry(parent(entry)).or_default().push(entry);
    }
    let mut roots = children.remove(&None).unwrap_or_default();
    let began = |entry: &ListedThread| newest.get(&entry.row.id).copied().unwrap_or(entry.row.created_at);
    roots.sort_by(|a, b| (Reverse(began(a)), &a.row.id).cmp(&(Reverse(began(b)), &b.row.id)));
    roots.truncate(limit);
    let mut arranged = Vec::new();
    let mut open: Vec<(&ListedThread, String, String)> =
        roots.into_iter().rev().map(|root| (root, String::new(), String::new())).collect();
    while let Some((entry, branch, below)) = open.pop() {
        let own = children.remove(&Some(&entry.row.id)).unwrap_or_default();
        for (n, child) in own.into_iter().enumerate() {
            let (corner, line) = if n == 0 { ("└ ", "  ") } else { ("├ ", "│ ") };
            let arrow = if heads.contains_key(&child.row.id) { "→ " } else { "" };
            open.push((child, format!("{below}{corner}{arrow}"), format!("{below}{line}")));
        }
        arranged.push((entry, branch));
    }
    arranged
}

/// Returns the first listed thread of the chain of each root. The map contains only roots that continue another root,
/// by their ids.
fn chain_heads(entries: &[ListedThread]) -> HashMap<&ThreadId, &ThreadId> {
    let is_root = |entry: &&ListedThread| entry.row.parent.is_none();
    let roots: HashMap<&ThreadId, &ThreadRow> =
        entries.iter().filter(is_root).map(|entry| (&entry.row.id, &entry.row)).collect();
    let continued = |row: &ThreadRow| row.continues.as_ref().and_then(|id| roots.get(id)).copied();
    let head = |row: &ThreadRow| {
        let mut first = continued(row)?;
        // Each step goes to another thread of the chain, so there are at most as many steps as roots.
        for _ in 0..roots.len() {
            let Some(earlier) = continued(first) else { break };
            first = earlier;
        }
        Some(&first.id)
    };
    roots.iter().filter_map(|(id, row)| Some((*id, head(row)?))).collect()
}

/// Returns the creation time of the newest thread of each chain, by the id of the first thread of the chain. Times are
/// in milliseconds since 1970.
fn newest_of_chains<'e>(
    entries: &'e [ListedThread],
    heads: &HashMap<&'e ThreadId, &'e ThreadId>,
) -> HashMap<&'e ThreadId, i64> {
    let mut newest = HashMap::new();
    for entry in entries {
        if let Some(head) = heads.get(&entry.row.id) {
            let began = newest.entry(*head).or_insert(entry.row.created_at);
            *began = entry.row.created_at.max(*began);
        }
    }
    newest
}

/// Returns the current step of a thread that has not ended or is suspended. `None` for any other thread, and if the
/// transcript cannot be read.
fn current_step(entry: &ListedThread, reader: &ThreadReader) -> Option<CurrentStep> {
    let status = entry.row.status;
    if status.has_ended() && status != Status::Suspended {
        return None;
    }
    let events = reader.load(entry.row.id.as_str()).ok()?.events;
    let mut current = CurrentStep::default();
    for event in &events {
        current.step.follow(&event.body);
        if let EventBody::AttemptIntended(attempt) = &event.body {
            current.turn = Some(attempt.turn);
        } else if matches!(event.body, EventBody::ApprovalAsked(_)) {
            current.asks = Some(event.seq);
        } else if let EventBody::ApprovalGiven(given) = &event.body
            && given.answer != Approval::Suspended
        {
            current.asks = None;
        }
    }
    Some(current)
}

/// Indexes of the columns that a narrow table omits, in this order: the directive, the turns, the tokens. Each index
/// refers to the table without the columns that were omitted before.
const OPTIONAL_COLUMNS: [usize; 3] = [1, 2, 2];

fn build_table(rows: &[ListRow], format: Format) -> Table {
    let mut head = vec!["THREAD", "DIRECTIVE", "STATUS", "TURNS", "TOKENS", "COST", "STARTED"];
    let has_steps = format == Format::Plain || rows.iter().any(|row| row.step.is_some());
    head.extend(has_steps.then_some("STEP"));
    let mut table = Table::new(&head, &[3, 4, 5]);
    let now = now();
    for ListRow { entry, branch, step, cost } in rows {
        let row = &entry.row;
        let id = if format == Format::Human { format!("{branch}{}", row.id) } else { row.id.to_string() };
        let started =
            if format == Format::Human { format_elapsed(row.created_at, now) } else { format_date(row.created_at) };
        let tokens = cost.input_tokens.saturating_add(cost.output_tokens);
        let mut cells: Vec<Cell> = vec![
            id.into(),
            format_directive(&entry.row).into(),
            Cell::styled(entry.status_name(), standing_style(entry)),
            cost.turns.to_string().into(),
            tokens.to_string().into(),
            format_cost_cell(cost).into(),
            started.into(),
        ];
        if has_steps {
            cells.push(step.as_ref().map(|current| current.step.to_string()).unwrap_or_default().into());
        }
        table.row(cells);
    }
    table
}

/// Formats a cost for a narrow column. `unknown` stands for the cost of calls to models without a price.
fn format_cost_cell(cost: &Cost) -> String {
    match (cost.unpriced, cost.spend) {
        (false, _) => format_money(cost.spend),
        (true, 0) => "unknown".to_owned(),
        (true, _) => format!("{} + unknown", format_money(cost.spend)),
    }
}

/// Formats the directive of a thread. If the thread runs an asynchronous tool call, the name of the tool follows.
fn format_directive(row: &ThreadRow) -> String {
    row.tool.as_ref().map_or_else(|| row.directive.clone(), |tool| format!("{} › {tool}", row.directive))
}

fn standing_style(entry: &ListedThread) -> Style {
    if entry.is_orphaned() { color_style(AnsiColor::Yellow) } else { status_style(entry.row.status) }
}
