//! `rye threads chain|search`: lists the threads of a continuation chain, and searches their transcripts.

use std::num::NonZeroUsize;

use clap::Args;
use regex::Regex;
use rye_engine::threads::ListedThread;
use rye_engine::threads::Threads;
use schemars::JsonSchema;
use serde::Serialize;

use super::control::print_entries;
use crate::CommandError;
use crate::exit::Exit;
use crate::options::Format;
use crate::report::{Printer, printable};
use crate::thread_reader::ThreadReader;
use crate::thread_reader::reference::ThreadArg;
use crate::workspace::Spaces;

#[derive(Debug, Args)]
pub struct ChainArgs {
    #[command(flatten)]
    thread: ThreadArg,
}

#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
pub struct SearchArgs {
    #[command(flatten)]
    thread: ThreadArg,
    /// A regular expression
    #[arg(value_name = "PATTERN")]
    pattern: String,
    /// Maximum number of matches, at least 1
    #[arg(long, value_name = "N", default_value = "200")]
    limit: NonZeroUsize,
}

/// Output of `rye threads search --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SearchOutput {
    pub matches: Vec<MatchOutput>,
    /// True if there are more matches than the limit.
    pub more: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct MatchOutput {
    pub thread_id: String,
    /// Sequence number of the event.
    pub seq: u64,
    /// Time of the event, in milliseconds since 1970.
    pub ts: i64,
    /// Name of the event.
    pub event: String,
    /// The matching line, shortened.
    pub text: String,
}

pub fn chain(args: &ChainArgs, reader: &ThreadReader, spaces: &Spaces, report: &Printer) -> Result<Exit, CommandError> {
    let thread = args.thread.select(reader)?;
    let chain = Threads::open(&spaces.project)?.chain(&thread)?;
    let entries: Result<Vec<ListedThread>, CommandError> = chain.iter().map(|id| reader.find(id.as_str())).collect();
    print_entries(&entries?, reader, report)
}

pub fn search(
    args: &SearchArgs,
    reader: &ThreadReader,
    spaces: &Spaces,
    report: &Printer,
) -> Result<Exit, CommandError> {
    let pattern = Regex::new(&args.pattern)
        .map_err(|error| CommandError::usage(format!("the pattern is not a valid regular expression: {error}")))?;
    let thread = args.thread.select(reader)?;
    let limit = args.limit.get();
    // One more match than printed shows whether there are more.
    let mut found = Threads::open(&spaces.project)?.search(&thread, &pattern, limit.saturating_add(1))?;
    let more = found.len() > limit;
    found.truncate(limit);
    if report.format() == Format::Json {
        let matches = found
            .into_iter()
            .map(|one| MatchOutput {
                thread_id: one.thread_id,
                seq: one.seq,
                ts: one.ts,
                event: one.event.to_owned(),
                text: one.text,
            })
            .collect();
        report.json(&SearchOutput { matches, more })?;
        return Ok(Exit::Success);
    }
    let nothing = found.is_empty();
    for one in found {
        report.line(&format!("{}:{}\t{}\t{}", one.thread_id, one.seq, one.event, printable(&one.text)))?;
    }
    if more {
        report.note(&format!("only the first {limit} matches are printed; there are more"));
    }
    // No match is a failure, as in grep.
    Ok(if nothing { Exit::Failed } else { Exit::Success })
}
