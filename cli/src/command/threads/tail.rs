//! `rye threads tail [-f]`: what happens in a thread, as it happens, whichever process runs it: the transcript's events, and
//! between them the pieces of the reply under way. It goes on to the threads that continue it.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

use clap::Args;
use rye_engine::driver::Streamed;
use rye_engine::event::{Event, EventBody};
use rye_engine::store::registry::Liveness;
use rye_engine::thread_id::ThreadId;

use super::book::Book;
use super::transcript::{human, json, plain};
use crate::Failure;
use crate::args::Format;
use crate::exit::Exit;
use crate::report::{Report, printable};

#[derive(Debug, Args)]
pub struct TailArgs {
    /// The thread's id
    #[arg(value_name = "THREAD")]
    thread: String,
    /// Stay until the thread is over
    #[arg(short, long)]
    follow: bool,
    /// The last N events first
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    lines: usize,
    /// Long texts whole
    #[arg(long)]
    full: bool,
}

const LOOK: Duration = Duration::from_millis(100);

pub fn run(args: &TailArgs, book: &Book, report: &Report) -> Result<Exit, Failure> {
    let mut thread = book.find(&args.thread)?.row.id;
    let mut skip = Some(args.lines);
    let mut seen = BTreeSet::new();
    while seen.insert(thread.clone()) {
        one(&thread, skip.take(), args, book, report)?;
        match book.find(thread.as_str())?.row.continued_by {
            Some(next) if args.follow => thread = next,
            Some(_) | None => break,
        }
    }
    Ok(Exit::Fine)
}

/// One thread, to its end or, without `--follow`, to what there is now.
fn one(thread: &ThreadId, last: Option<usize>, args: &TailArgs, book: &Book, report: &Report) -> Result<(), Failure> {
    let mut tail = Tail { shown: 0, live: 0, open: false, full: args.full };
    let record = book.record(thread.as_str())?;
    let skipped = last.map_or(0, |last| record.events.len().saturating_sub(last));
    tail.events(record.events.get(skipped..).unwrap_or_default(), report)?;
    tail.shown = record.events.len();
    let mut over = ended(&record.events);
    while args.follow && !over {
        tail.live(&book.streamed(thread)?, report)?;
        std::thread::sleep(LOOK);
        // First whether it can still write, then what it wrote: so that nothing is missed.
        let liveness = book.liveness(&book.find(thread.as_str())?.row)?;
        let record = book.record(thread.as_str())?;
        tail.events(record.events.get(tail.shown..).unwrap_or_default(), report)?;
        tail.shown = record.events.len();
        over = ended(&record.events) || liveness != Liveness::Alive;
        if liveness == Liveness::Orphaned && !ended(&record.events) {
            report.note(&format!("nobody works on `{thread}` any more: `rye run --resume {thread}` goes on with it"));
        }
    }
    Ok(())
}

fn ended(events: &[Event]) -> bool {
    events.last().is_some_and(|event| matches!(event.body, EventBody::Ended(_)))
}

struct Tail {
    /// Events that were shown.
    shown: usize,
    /// Pieces of the attempt under way that were.
    live: usize,
    /// A piece stands on a line that is not ended.
    open: bool,
    full: bool,
}

impl Tail {
    fn events(&mut self, events: &[Event], report: &Report) -> Result<(), Failure> {
        for event in events {
            self.end_line()?;
            match report.format() {
                Format::Json => report.line(&json(event))?,
                Format::Plain => report.line(&plain(event))?,
                Format::Human => report.line(&human(event, self.full))?,
            }
            self.live = 0;
        }
        Ok(())
    }

    /// What came in since, of the attempt under way.
    fn live(&mut self, pieces: &[Streamed], report: &Report) -> Result<(), Failure> {
        if pieces.len() < self.live {
            self.live = 0;
        }
        for piece in pieces.iter().skip(self.live) {
            match (report.format(), piece.text()) {
                (Format::Json, _) => report.json(piece)?,
                (Format::Human, Some(text)) => {
                    write!(anstream::stdout().lock(), "{}", printable(text))?;
                    anstream::stdout().lock().flush()?;
                    self.open = !text.ends_with('\n');
                }
                (Format::Plain, Some(text)) => report.line(&format!("live\t{}", printable(text).replace('\n', " ")))?,
                (Format::Human | Format::Plain, None) => {}
            }
        }
        self.live = pieces.len();
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.open) {
            writeln!(anstream::stdout().lock())?;
        }
        Ok(())
    }
}
