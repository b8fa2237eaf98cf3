//! `rye threads verify [THREAD…]`: whether what lies on disk is what was written and signed.

use std::collections::BTreeSet;

use clap::Args;
use rye_engine::keys::{Keys, TrustStore};
use rye_engine::store::layout;
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::Threads;
use rye_engine::threads::verify::{Verdict, Verified};
use schemars::JsonSchema;
use serde::Serialize;

use super::book::Book;
use crate::Failure;
use crate::args::Format;
use crate::exit::Exit;
use crate::report::{Report, printable};
use crate::space::{Spaces, user_root};
use crate::view::count;

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The threads; all of the project if none is named
    #[arg(value_name = "THREAD")]
    threads: Vec<String>,
    /// Fail too where no trusted key vouches for all of a thread
    #[arg(long)]
    strict: bool,
}

/// `rye threads verify --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct VerifyOutput {
    pub threads: Vec<VerifiedOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct VerifiedOutput {
    pub thread_id: String,
    /// `sound`; `unproven`: nothing is wrong, and no trusted key vouches for all of it; `damaged`.
    pub verdict: &'static str,
    /// Events of the record.
    pub events: u64,
    pub checkpoints: u64,
    /// How many of the events, from the first, a good signature vouches for.
    pub vouched: u64,
    /// The keys of the good signatures.
    pub signed_by: Vec<String>,
    pub faults: Vec<FaultOutput>,
    pub notes: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct FaultOutput {
    /// Relative to the project.
    pub file: String,
    /// From 1; null where it is not about a line.
    pub line: Option<u64>,
    pub reason: String,
}

pub fn run(args: &VerifyArgs, book: &Book, spaces: &Spaces, report: &Report) -> Result<Exit, Failure> {
    let ids = asked(args, book)?;
    let trust = match user_root() {
        Some(user) => Keys::of_user_space(&user).trust_store().map_err(|error| Failure::failed(error.to_string()))?,
        None => TrustStore::default(),
    };
    let threads = Threads::reading(&spaces.project)?;
    let found: Vec<Verified> = ids.iter().map(|id| threads.verify(id, &trust)).collect::<Result<_, _>>()?;
    let bad = |one: &Verified| match one.verdict {
        Verdict::Sound => false,
        Verdict::Unproven => args.strict,
        Verdict::Damaged => true,
    };
    let failed = found.iter().any(bad);
    match report.format() {
        Format::Json => {
            report.json(&VerifyOutput { threads: found.into_iter().map(VerifiedOutput::from).collect() })?;
        }
        Format::Human | Format::Plain => found.iter().try_for_each(|one| show(one, report))?,
    }
    Ok(if failed { Exit::Failed } else { Exit::Fine })
}

/// The named ones; else every thread of which there is a row or a record.
fn asked(args: &VerifyArgs, book: &Book) -> Result<Vec<ThreadId>, Failure> {
    if !args.threads.is_empty() {
        return args.threads.iter().map(|id| book.known(id)).collect();
    }
    let mut ids: BTreeSet<ThreadId> = layout::find_threads(book.disk())?.into_iter().collect();
    if let Some(registry) = book.registry() {
        ids.extend(registry.threads()?.into_iter().map(|row| row.id));
    }
    Ok(ids.into_iter().collect())
}

fn show(one: &Verified, report: &Report) -> Result<(), Failure> {
    let verdict = word(one.verdict);
    let (events, checkpoints) = (count(one.events, "event"), count(one.checkpoints, "checkpoint"));
    let by = if one.signed_by.is_empty() { "nobody".to_owned() } else { one.signed_by.join(", ") };
    if report.format() == Format::Plain {
        report.line(&format!("{}\t{verdict}\t{}\t{}\t{}", one.thread_id, one.events, one.checkpoints, one.vouched))?;
    } else {
        report.line(&format!("{}: {verdict} ({events}, {checkpoints}, signed by {by})", one.thread_id))?;
    }
    for fault in &one.faults {
        let line = fault.line.map(|line| format!(":{line}")).unwrap_or_default();
        report.line(printable(&format!("  {}{line}: {}", fault.file, fault.reason)).trim_end())?;
    }
    for note in &one.notes {
        report.note(printable(&format!("  note: {note}")).trim_end());
    }
    Ok(())
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Sound => "sound",
        Verdict::Unproven => "unproven",
        Verdict::Damaged => "damaged",
    }
}

impl From<Verified> for VerifiedOutput {
    fn from(found: Verified) -> Self {
        let Verified { thread_id, verdict, events, checkpoints, vouched, signed_by, faults, notes } = found;
        let faults = faults
            .into_iter()
            .map(|fault| FaultOutput { file: fault.file, line: fault.line, reason: fault.reason })
            .collect();
        Self { thread_id, verdict: word(verdict), events, checkpoints, vouched, signed_by, faults, notes }
    }
}
