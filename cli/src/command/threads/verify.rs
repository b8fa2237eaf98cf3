//! `rye threads verify [THREAD…]`: verifies that the stored files of threads are unchanged, and who signed them.

use std::collections::BTreeSet;

use clap::Args;
use rye_engine::keys::{KeyFolder, TrustStore};
use rye_engine::store::layout;
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::Threads;
use rye_engine::threads::verify::{ThreadVerdict, ThreadVerification, UNTRUSTED_KEY};
use schemars::JsonSchema;
use serde::Serialize;

use crate::CommandError;
use crate::exit::Exit;
use crate::options::Format;
use crate::present::format_count;
use crate::report::{Printer, printable};
use crate::thread_reader::ThreadReader;
use crate::thread_reader::reference::select_threads;
use crate::workspace::{Spaces, user_root};

#[derive(Debug, Args)]
pub struct VerifyThreadsArgs {
    /// Ids of the threads (default: all threads of the project)
    #[arg(value_name = "THREAD")]
    threads: Vec<String>,
    /// Verify the newest thread
    #[arg(long)]
    last: bool,
    /// Also fail if a thread is not completely signed with a trusted key
    #[arg(long)]
    strict: bool,
}

/// Output of `rye threads verify --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct VerifyOutput {
    pub threads: Vec<ThreadVerdictOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ThreadVerdictOutput {
    pub thread_id: String,
    /// The verdict: `sound`; `unproven` (unchanged, but not completely signed with a trusted key, or without a stored
    /// copy of a source); `damaged`.
    pub verdict: &'static str,
    /// Number of events in the transcript.
    pub events: u64,
    pub checkpoints: u64,
    /// Number of events, counted from the first, that valid signatures cover.
    #[serde(rename = "vouched")]
    pub signed_events: u64,
    /// Key ids of the valid signatures.
    pub signed_by: Vec<String>,
    pub faults: Vec<FaultOutput>,
    pub notes: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct FaultOutput {
    /// Path of the faulty file, relative to the project.
    pub file: String,
    /// Line number, from 1; null if the fault is not in a line.
    pub line: Option<u64>,
    pub reason: String,
}

pub fn run(
    args: &VerifyThreadsArgs,
    reader: &ThreadReader,
    spaces: &Spaces,
    report: &Printer,
) -> Result<Exit, CommandError> {
    let ids = selected_threads(args, reader)?;
    let trust = match user_root() {
        Some(user) => {
            KeyFolder::of_user_space(&user).trust_store().map_err(|error| CommandError::failed(error.to_string()))?
        }
        None => TrustStore::default(),
    };
    let threads = Threads::open_lenient(&spaces.project)?;
    let found = threads.verify_all(&ids, &trust)?;
    let bad = |one: &ThreadVerification| match one.verdict {
        ThreadVerdict::Sound => false,
        ThreadVerdict::Unproven => args.strict || !one.faults.is_empty(),
        ThreadVerdict::Damaged => true,
    };
    let failed = found.iter().any(bad);
    match report.format() {
        Format::Json => {
            report.json(&VerifyOutput { threads: found.into_iter().map(ThreadVerdictOutput::from).collect() })?;
        }
        Format::Human | Format::Plain => {
            found.iter().try_for_each(|one| show(one, report))?;
            let is_verified = |id: &&ThreadId| found.iter().any(|one| one.thread_id == id.as_str());
            for id in ids.iter().filter(|id| !is_verified(id)) {
                report.note(&format!("note: the thread `{id}` was removed meanwhile"));
            }
            if found.iter().flat_map(|one| &one.faults).any(|fault| fault.reason.ends_with(UNTRUSTED_KEY)) {
                report.note(
                    "help: if you trust the owner of the key, run `rye keys trust FILE` with the owner's public key",
                );
            }
        }
    }
    Ok(if failed { Exit::Failed } else { Exit::Success })
}

/// Returns the named threads. If no thread is named, returns all threads with a registry row or a transcript.
fn selected_threads(args: &VerifyThreadsArgs, reader: &ThreadReader) -> Result<Vec<ThreadId>, CommandError> {
    if args.last || !args.threads.is_empty() {
        return select_threads(&args.threads, args.last, reader);
    }
    let mut ids: BTreeSet<ThreadId> = layout::find_threads(reader.disk())?.into_iter().collect();
    if let Some(registry) = reader.registry() {
        ids.extend(registry.threads()?.into_iter().map(|row| row.id));
    }
    Ok(ids.into_iter().collect())
}

fn show(one: &ThreadVerification, report: &Printer) -> Result<(), CommandError> {
    let verdict = format_word(one.verdict);
    let (events, checkpoints) = (format_count(one.events, "event"), format_count(one.checkpoints, "checkpoint"));
    let by = if one.signed_by.is_empty() { "no key".to_owned() } else { one.signed_by.join(", ") };
    if report.format() == Format::Plain {
        report.line(&format!(
            "{}\t{verdict}\t{}\t{}\t{}",
            one.thread_id, one.events, one.checkpoints, one.signed_events
        ))?;
    } else {
        report.line(&format!("{}: {verdict} ({events}, {checkpoints}, signed by {by})", one.thread_id))?;
    }
    // A key that is not trusted causes the same fault in each line that it signed. Print such a fault once.
    let mut printed: BTreeSet<&str> = BTreeSet::new();
    for fault in one.faults.iter().filter(|fault| printed.insert(&fault.reason)) {
        let line = fault.line.map(|line| format!(":{line}")).unwrap_or_default();
        let more = one.faults.iter().filter(|other| other.reason == fault.reason).count() - 1;
        let more = if more == 0 { String::new() } else { format!(" ({})", format_count(more as u64, "more place")) };
        report.line(printable(&format!("  {}{line}: {}{more}", fault.file, fault.reason)).trim_end())?;
    }
    for note in &one.notes {
        report.note(printable(&format!("  note: {note}")).trim_end());
    }
    Ok(())
}

fn format_word(verdict: ThreadVerdict) -> &'static str {
    match verdict {
        ThreadVerdict::Sound => "sound",
        ThreadVerdict::Unproven => "unproven",
        ThreadVerdict::Damaged => "damaged",
    }
}

impl From<ThreadVerification> for ThreadVerdictOutput {
    fn from(found: ThreadVerification) -> Self {
        let ThreadVerification { thread_id, verdict, events, checkpoints, signed_events, signed_by, faults, notes } =
            found;
        let faults = faults
            .into_iter()
            .map(|fault| FaultOutput { file: fault.file, line: fault.line, reason: fault.reason })
            .collect();
        Self { thread_id, verdict: format_word(verdict), events, checkpoints, signed_events, signed_by, faults, notes }
    }
}
