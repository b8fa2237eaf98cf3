//! `rye threads transcript THREAD`: prints the events of a thread, or the raw lines of its transcript.

use std::fmt::Write as _;
use std::io::Write as _;

use clap::Args;
use rye_engine::event::Event;

use schemars::JsonSchema;
use serde::Serialize;

use crate::CommandError;
use crate::command::run::EventOutput;
use crate::exit::Exit;
use crate::options::Format;
use crate::present::event::event_view;
use crate::present::{BOLD, DIM, color_style, time_of_day, truncate_line};
use crate::report::{Printer, printable};
use crate::thread_reader::ThreadReader;
use crate::thread_reader::reference::ThreadArg;

/// Maximum lines of an event's text without `--full`.
const MAX_TEXT_LINES: usize = 12;

#[derive(Debug, Args)]
pub struct TranscriptArgs {
    #[command(flatten)]
    thread: ThreadArg,
    /// Print the raw lines of the transcript file, a JSON object each
    #[arg(long)]
    json: bool,
    /// Only the last N events
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    /// Do not shorten long texts
    #[arg(long)]
    full: bool,
}

/// Output of `rye threads transcript --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TranscriptOutput<'e> {
    pub thread_id: String,
    /// Events, in the format of `rye run --events`.
    pub events: Vec<EventOutput<'e>>,
    /// Size in bytes of the torn tail after the last complete line: a line that is being written, or that a crash cut
    /// off.
    pub torn_bytes: Option<u64>,
}

pub fn run(args: &TranscriptArgs, reader: &ThreadReader, report: &Printer) -> Result<Exit, CommandError> {
    let record = reader.load(args.thread.select(reader)?.as_str())?;
    let skipped = args.tail.map_or(0, |tail| record.events.len().saturating_sub(tail));
    if report.format() == Format::Json && !args.json {
        let thread_id = record.entry.row.id.as_str();
        let output = |event| EventOutput::new(thread_id, event);
        let events = record.events.iter().skip(skipped).map(output).collect();
        let torn_bytes = record.reading.torn.as_ref().map(|torn| torn.bytes);
        report.json(&TranscriptOutput { thread_id: thread_id.to_owned(), events, torn_bytes })?;
        return Ok(Exit::Success);
    }
    if args.json {
        let bytes = reader.raw_transcript(&record.entry.row.id, record.reading.length)?;
        let from = skipped.checked_sub(1).and_then(|last| record.reading.ends.get(last)).copied().unwrap_or(0);
        let bytes = bytes.get(usize::try_from(from).unwrap_or(usize::MAX)..).unwrap_or_default();
        std::io::stdout().lock().write_all(bytes)?;
        return Ok(Exit::Success);
    }
    for event in record.events.iter().skip(skipped) {
        match report.format() {
            Format::Plain => report.line(&format_plain(event))?,
            Format::Human | Format::Json => report.line(&format_human(event, args.full))?,
        }
    }
    if let Some(torn) = &record.reading.torn {
        let bytes = torn.bytes;
        report.note(&format!(
            "line {} is incomplete ({bytes} bytes): it is being written, or was cut off by a crash",
            torn.line
        ));
    }
    Ok(Exit::Success)
}

/// Formats an event as a JSON line.
pub fn format_json_line(event: &Event) -> String {
    let mut line = serde_json::json!({"seq": event.seq, "ts": event.ts});
    if let (Some(line), Ok(serde_json::Value::Object(fields))) =
        (line.as_object_mut(), serde_json::to_value(&event.body))
    {
        line.extend(fields);
    }
    line.to_string()
}

/// Formats an event on one line: sequence number, time, name, summary and the start of its text.
pub fn format_plain(event: &Event) -> String {
    let what = event_view(event);
    let name = event.body.reader_name();
    let mut line = format!("{}\t{}\t{name}\t{}", event.seq, time_of_day(event.ts), truncate_line(&what.line, 2_000));
    if let Some(text) = &what.text {
        line.push('\t');
        line.push_str(&truncate_line(text, 200));
    }
    line
}

pub fn format_human(event: &Event, full: bool) -> String {
    let what = event_view(event);
    let style = if what.bad { color_style(anstyle::AnsiColor::Red) } else { BOLD };
    let (time, name) = (time_of_day(event.ts), event.body.reader_name());
    let line = truncate_line(&what.line, 2_000);
    let mut out = format!("{DIM}{:>4}  {time}{DIM:#}  {style}{name}{style:#}  {line}", event.seq);
    let text = what.text.as_deref().map(printable).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let visible = if full || lines.len() <= MAX_TEXT_LINES + 1 { lines.len() } else { MAX_TEXT_LINES };
    for line in lines.iter().take(visible) {
        write!(out, "\n      {line}").ok();
    }
    if visible < lines.len() {
        write!(out, "\n      {DIM}… {} more lines (--full){DIM:#}", lines.len() - visible).ok();
    }
    out
}
