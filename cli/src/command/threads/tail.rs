//! `rye threads tail [-f]`: prints the last events of a thread. With `-f`, follows new events and the pieces of a
//! streaming reply, in whatever process the thread runs, and then the threads that continue it.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

use clap::Args;
use rye_engine::driver::LiveLine;
use rye_engine::event::{Event, EventBody};
use rye_engine::store::registry::Liveness;
use rye_engine::thread_id::ThreadId;

use super::transcript::{format_human, format_plain};
use crate::CommandError;
use crate::command::run::{DeltaOutput, EventOutput};
use crate::exit::Exit;
use crate::options::Format;
use crate::report::{Printer, printable};
use crate::thread_reader::ThreadReader;
use crate::thread_reader::reference::ThreadArg;

#[derive(Debug, Args)]
pub struct TailArgs {
    #[command(flatten)]
    thread: ThreadArg,
    /// Follow new events until the thread ends
    #[arg(short, long)]
    follow: bool,
    /// Number of past events to print
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    lines: usize,
    /// Do not shorten long texts
    #[arg(long)]
    full: bool,
}

const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub fn run(args: &TailArgs, reader: &ThreadReader, report: &Printer) -> Result<Exit, CommandError> {
    let tail = Tail { follows: args.follow, last: args.lines, full: args.full };
    tail.print(args.thread.select(reader)?, reader, report, &mut |_| Ok(true))?;
    Ok(Exit::Success)
}

/// The options for printing the events of a thread and of the threads that continue it.
#[derive(Debug, Clone, Copy)]
pub struct Tail {
    /// True to print new events until the thread ends.
    pub follows: bool,
    /// Number of past events to print.
    pub last: usize,
    /// True to print long texts whole.
    pub full: bool,
}

/// A function that is called between two reads of a thread. If it returns false, no more events are printed.
pub type TailStep<'a> = dyn FnMut(&ThreadId) -> Result<bool, CommandError> + 'a;

impl Tail {
    /// Prints the events of a thread. With `follows`, also prints new events until the thread ends, and then the
    /// threads that continue it. Returns false if `step` has ended the output.
    pub fn print(
        self,
        mut thread: ThreadId,
        reader: &ThreadReader,
        report: &Printer,
        step: &mut TailStep<'_>,
    ) -> Result<bool, CommandError> {
        let mut skip = Some(self.last);
        let mut seen = BTreeSet::new();
        while seen.insert(thread.clone()) {
            if !self.print_thread(&thread, skip.take(), reader, report, step)? {
                return Ok(false);
            }
            match reader.find(thread.as_str())?.row.continued_by {
                Some(next) if self.follows => thread = next,
                Some(_) | None => break,
            }
        }
        Ok(true)
    }

    fn print_thread(
        self,
        thread: &ThreadId,
        last: Option<usize>,
        reader: &ThreadReader,
        report: &Printer,
        step: &mut TailStep<'_>,
    ) -> Result<bool, CommandError> {
        let mut tail = TailPrinter { thread, shown: 0, live: 0, open: false, full: self.full };
        let record = reader.load(thread.as_str())?;
        let skipped = last.map_or(0, |last| record.events.len().saturating_sub(last));
        tail.events(record.events.get(skipped..).unwrap_or_default(), report)?;
        tail.shown = record.events.len();
        let mut over = has_ended(&record.events);
        while self.follows && !over {
            tail.live(&reader.streamed(thread)?, report)?;
            if !step(thread)? {
                return Ok(false);
            }
            std::thread::sleep(POLL_INTERVAL);
            // Check liveness before reading, so that no event written in between is missed.
            let liveness = reader.liveness(&reader.find(thread.as_str())?.row)?;
            let record = reader.load(thread.as_str())?;
            tail.events(record.events.get(tail.shown..).unwrap_or_default(), report)?;
            tail.shown = record.events.len();
            over = has_ended(&record.events) || liveness != Liveness::Alive;
            if liveness == Liveness::Orphaned && !has_ended(&record.events) {
                report.note(&format!("`{thread}` is orphaned: continue it with `rye run --resume {thread}`"));
            }
        }
        Ok(true)
    }
}

fn has_ended(events: &[Event]) -> bool {
    events.last().is_some_and(|event| matches!(event.body, EventBody::Ended(_)))
}

struct TailPrinter<'t> {
    thread: &'t ThreadId,
    /// Number of events of the transcript that were printed or skipped.
    shown: usize,
    /// Number of printed pieces of the reply that the current attempt streams.
    live: usize,
    /// True if the last printed piece did not end its line.
    open: bool,
    full: bool,
}

impl TailPrinter<'_> {
    fn events(&mut self, events: &[Event], report: &Printer) -> Result<(), CommandError> {
        for event in events {
            self.end_line()?;
            match report.format() {
                Format::Json => report.json(&EventOutput::new(self.thread.as_str(), event))?,
                Format::Plain => report.line(&format_plain(event))?,
                Format::Human => report.line(&format_human(event, self.full))?,
            }
            self.live = 0;
        }
        Ok(())
    }

    /// Prints the new pieces of the current attempt.
    fn live(&mut self, pieces: &[LiveLine], report: &Printer) -> Result<(), CommandError> {
        if pieces.len() < self.live {
            self.live = 0;
        }
        for piece in pieces.iter().skip(self.live) {
            match (report.format(), piece.text()) {
                (Format::Json, _) => report.json(&DeltaOutput::new(self.thread.as_str(), piece.piece.clone()))?,
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

    fn end_line(&mut self) -> Result<(), CommandError> {
        if std::mem::take(&mut self.open) {
            writeln!(anstream::stdout().lock())?;
        }
        Ok(())
    }
}
