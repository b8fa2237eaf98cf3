//! `rye threads cancel|kill|steer`: sends control messages to threads of any process. An orphaned thread is first
//! recovered, so that ending it settles its spend and completes its transcript.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use rye_engine::event::{ControlMessage, EventBody};
use rye_engine::process::{EndSignal, end_process};
use rye_engine::store::registry::Liveness;
use rye_engine::store::{ThreadRow, mailbox, owner};
use rye_engine::thread::Cost;
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::ListedThread;

use super::list::{ListOutput, ThreadOutput};
use crate::CommandError;
use crate::command::run::start::{RunOptions, ThreadStart, run_to_end};
use crate::exit::Exit;
use crate::options::Format;
use crate::present::now;
use crate::report::Printer;
use crate::thread_reader::ThreadReader;
use crate::thread_reader::reference::{ThreadArg, ThreadsArg};
use crate::workspace::Spaces;

#[derive(Debug, Args)]
pub struct StopArgs {
    #[command(flatten)]
    threads: ThreadsArg,
}

#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
pub struct SteerArgs {
    #[command(flatten)]
    thread: ThreadArg,
    /// Text of the message
    #[arg(value_name = "TEXT")]
    text: String,
    /// Deliver the message when the thread would otherwise finish, instead of immediately
    #[arg(long)]
    follow_up: bool,
    /// Hidden option that always causes an error, because a message to a running thread is text only
    #[arg(long, value_name = "FILE", hide = true)]
    image: Vec<PathBuf>,
}

/// Grace period for a thread to stop before its process is ended.
const KILL_GRACE: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum wait for a running thread to record a message.
const RECORD_TIMEOUT: Duration = Duration::from_secs(10);

pub fn cancel(args: &StopArgs, reader: &ThreadReader, spaces: &Spaces, report: &Printer) -> Result<Exit, CommandError> {
    let threads = args.threads.select(reader)?;
    for thread in &threads {
        let entry = reader.last_of_chain(thread.as_str())?;
        match reader.liveness(&entry.row)? {
            Liveness::Over if !entry.row.status.is_parked() => note_ended(thread, &entry.row, "cancel", report),
            Liveness::Alive => {
                reader.send(&entry.row.id, &ControlMessage::Cancel)?;
                report.note(&format!("`{}` will stop after the current step", entry.row.id));
            }
            Liveness::Over | Liveness::Orphaned => end_orphan(&entry, ControlMessage::Cancel, reader, spaces, report)?,
        }
    }
    print_status(&threads, reader, report)
}

pub fn kill(args: &StopArgs, reader: &ThreadReader, spaces: &Spaces, report: &Printer) -> Result<Exit, CommandError> {
    let mut exit = Exit::Success;
    let threads = args.threads.select(reader)?;
    for thread in &threads {
        let entry = reader.last_of_chain(thread.as_str())?;
        match reader.liveness(&entry.row)? {
            Liveness::Over if !entry.row.status.is_parked() => note_ended(thread, &entry.row, "kill", report),
            Liveness::Alive => {
                if !kill_running(&entry, reader, spaces, report)? {
                    exit = Exit::Failed;
                }
            }
            Liveness::Over | Liveness::Orphaned => end_orphan(&entry, ControlMessage::Kill, reader, spaces, report)?,
        }
    }
    let status_exit = print_status(&threads, reader, report)?;
    Ok(if exit == Exit::Success { status_exit } else { exit })
}

/// Reports that a thread has ended, so that the command `verb` changes nothing. `row` is the last continuation of
/// `thread`.
fn note_ended(thread: &ThreadId, row: &ThreadRow, verb: &str, report: &Printer) {
    let status = row.status.as_str();
    report.note(&if row.id == *thread {
        format!("`{thread}` has ended already: {status}; there is nothing to {verb}")
    } else {
        format!("`{thread}` was continued as `{}`, which has ended: {status}; there is nothing to {verb}", row.id)
    });
}

pub fn steer(args: &SteerArgs, reader: &ThreadReader, report: &Printer) -> Result<Exit, CommandError> {
    let entry = reader.last_of_chain(args.thread.select(reader)?.as_str())?;
    let id = &entry.row.id;
    let has_ended = |entry: &ListedThread| {
        let id = &entry.row.id;
        CommandError::usage(format!("the thread `{id}` has ended: {}", entry.row.status.as_str()))
            .with_help(format!("resume the thread with `rye threads resume {id} --message TEXT`"))
    };
    if !args.image.is_empty() {
        return Err(CommandError::usage("images cannot be sent to a running thread: messages are text only")
            .with_help(format!("after the thread ends, use `rye run --resume {id} --message TEXT --image FILE`")));
    }
    if reader.liveness(&entry.row)? == Liveness::Over {
        return Err(has_ended(&entry));
    }
    accepts_messages(&entry.row)?;
    let text = args.text.clone();
    let message = if args.follow_up { ControlMessage::FollowUp { text } } else { ControlMessage::Steer { text } };
    match reader.deliver(id, &message)? {
        MessageDelivery::Recorded => {}
        MessageDelivery::Refused(entry) => return Err(has_ended(&entry)),
        MessageDelivery::Waiting(entry) if entry.is_orphaned() => {
            let id = &entry.row.id;
            report.note(&format!(
                "`{id}` is orphaned: run `rye run --resume {id}` to continue it and deliver the message"
            ));
        }
        MessageDelivery::Waiting(entry) => {
            report.note(&format!(
                "`{}` has not received the message yet: the message waits in the mailbox",
                entry.row.id
            ));
        }
    }
    Ok(Exit::Success)
}

/// The state of a message that was sent to a thread of another process.
pub enum MessageDelivery {
    /// The transcript contains the message.
    Recorded,
    /// The message is in the mailbox of the thread, which is orphaned or does not read the mailbox at the moment.
    Waiting(ListedThread),
    /// The thread has ended before it recorded the message. The message is no longer in the mailbox.
    Refused(ListedThread),
}

/// Returns an error if the thread runs a single tool, which accepts no messages.
pub fn accepts_messages(row: &ThreadRow) -> Result<(), CommandError> {
    let Some(tool) = &row.tool else { return Ok(()) };
    let message = format!("`{}` runs the tool `{tool}`, which accepts no messages", row.id);
    Err(CommandError::usage(message).with_help(match &row.parent {
        Some(parent) => {
            format!("send the message to its caller `{parent}`; stop the tool with `rye threads cancel {}`", row.id)
        }
        None => format!("`rye threads cancel {}` stops it", row.id),
    }))
}

/// Kills a thread of a live process with a control message. If the thread does not end, ends the process, unless the
/// process also runs threads of other trees. Returns false if the thread still runs.
fn kill_running(
    entry: &ListedThread,
    reader: &ThreadReader,
    spaces: &Spaces,
    report: &Printer,
) -> Result<bool, CommandError> {
    let id = &entry.row.id;
    reader.send(id, &ControlMessage::Kill)?;
    if wait_for_end(id, reader)? {
        return Ok(true);
    }
    let Some(owner) = &entry.row.owner else { return Ok(false) };
    let Some(info) = owner::read_owner_info(reader.disk(), owner)? else { return Ok(false) };
    let others = reader.list_readable()?.0.into_iter().filter(|other| {
        other.row.owner.as_ref() == Some(owner) && !other.row.status.has_ended() && other.row.root != entry.row.root
    });
    let others: Vec<String> = others.map(|other| other.row.id.to_string()).collect();
    if !others.is_empty() {
        let others = others.join(", ");
        report.note(&format!(
            "`{id}` does not stop; its process {} was not ended, because the process also runs {others}",
            info.pid
        ));
        return Ok(false);
    }
    for how in [EndSignal::Ask, EndSignal::Force] {
        // Once the lock is released, the pid may belong to another process.
        if owner::is_alive(reader.disk(), owner)? {
            report.note(&format!("`{id}` does not stop: ending its process {}", info.pid));
            end_process(info.pid, how)?;
        }
        if wait_for_end(id, reader)? {
            return Ok(true);
        }
    }
    if reader.liveness(&reader.last_of_chain(id.as_str())?.row)? == Liveness::Orphaned {
        end_orphan(&reader.last_of_chain(id.as_str())?, ControlMessage::Kill, reader, spaces, report)?;
        return Ok(true);
    }
    Ok(false)
}

/// Waits up to [`KILL_GRACE`] for a thread to end. Returns false if it still runs or is orphaned.
fn wait_for_end(id: &ThreadId, reader: &ThreadReader) -> Result<bool, CommandError> {
    let until = Instant::now() + KILL_GRACE;
    loop {
        match reader.liveness(&reader.last_of_chain(id.as_str())?.row)? {
            Liveness::Over => return Ok(true),
            Liveness::Orphaned => return Ok(false),
            Liveness::Alive if Instant::now() >= until => return Ok(false),
            Liveness::Alive => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

/// Ends a thread that no process runs: an orphaned thread, a suspended thread or a closed session. Recovers the thread
/// with `message`, the control message that ends the thread.
fn end_orphan(
    entry: &ListedThread,
    message: ControlMessage,
    reader: &ThreadReader,
    spaces: &Spaces,
    report: &Printer,
) -> Result<(), CommandError> {
    let start = ThreadStart::Recover { thread: entry.row.id.clone(), messages: vec![message] };
    let Err(failure) = run_to_end(start, RunOptions { silent: true, ..RunOptions::default() }, spaces, report) else {
        return Ok(());
    };
    let row = reader.find(entry.row.id.as_str())?.row;
    if row.status.is_parked() || !row.status.has_ended() {
        return Err(failure);
    }
    // The thread has ended without recovery: its process died before the first event.
    report.note(&failure.message);
    Ok(())
}

/// Prints the current status of each thread. For a thread that was continued, prints the status of its last
/// continuation.
pub fn print_status(threads: &[ThreadId], reader: &ThreadReader, report: &Printer) -> Result<Exit, CommandError> {
    let entries: Result<Vec<ListedThread>, CommandError> =
        threads.iter().map(|thread| reader.last_of_chain(thread.as_str())).collect();
    print_entries(&entries?, reader, report)
}

/// Prints a line with the id and the status of each thread. In JSON format, prints a [`ListOutput`], as `rye threads
/// list` does.
pub fn print_entries(entries: &[ListedThread], reader: &ThreadReader, report: &Printer) -> Result<Exit, CommandError> {
    print_with_costs(entries, |entry| Ok(reader.tree_cost(&entry.row)?), report)
}

/// Variant of [`print_entries`] with a function that returns the cost of a thread with its descendants.
pub fn print_with_costs(
    entries: &[ListedThread],
    cost: impl Fn(&ListedThread) -> Result<Cost, CommandError>,
    report: &Printer,
) -> Result<Exit, CommandError> {
    if report.format() == Format::Json {
        let output = |entry| Ok(ThreadOutput::new(entry, cost(entry)?));
        let threads: Result<Vec<ThreadOutput>, CommandError> = entries.iter().map(output).collect();
        report.json(&ListOutput { threads: threads? })?;
        return Ok(Exit::Success);
    }
    report.lines(entries.iter().map(|entry| format!("{}\t{}", entry.row.id, entry.status_name())))?;
    Ok(Exit::Success)
}

impl ThreadReader {
    /// Sends a control message to a thread of any process. Returns the id of the message.
    pub fn send(&self, thread: &ThreadId, message: &ControlMessage) -> Result<String, CommandError> {
        let body = serde_json::to_value(message).map_err(std::io::Error::other)?;
        Ok(mailbox::send(self.disk(), thread, &body, now())?)
    }

    /// Sends a control message to a thread of any process, and waits up to [`RECORD_TIMEOUT`] until the thread has
    /// recorded the message. Removes the message if the thread ends without it.
    pub fn deliver(&self, thread: &ThreadId, message: &ControlMessage) -> Result<MessageDelivery, CommandError> {
        let id = self.send(thread, message)?;
        let until = Instant::now() + RECORD_TIMEOUT;
        loop {
            // The end of a thread is read before its mailbox: a thread records no message after its end.
            let last = self.last_of_chain(thread.as_str())?;
            let liveness = self.liveness(&last.row)?;
            if !mailbox::is_waiting(self.disk(), thread, &id)? {
                return Ok(MessageDelivery::Recorded);
            }
            match liveness {
                Liveness::Over => {
                    let is_recorded = self.has_recorded(thread, &id)?;
                    mailbox::consume(self.disk(), thread, &id)?;
                    return Ok(if is_recorded { MessageDelivery::Recorded } else { MessageDelivery::Refused(last) });
                }
                Liveness::Alive if Instant::now() < until => std::thread::sleep(POLL_INTERVAL),
                Liveness::Alive if self.has_recorded(thread, &id)? => return Ok(MessageDelivery::Recorded),
                Liveness::Alive | Liveness::Orphaned => return Ok(MessageDelivery::Waiting(last)),
            }
        }
    }

    /// Returns true if the transcript of the thread, or of a thread that continues it, contains the control message.
    fn has_recorded(&self, thread: &ThreadId, message: &str) -> Result<bool, CommandError> {
        let (mut next, mut seen) = (Some(thread.clone()), BTreeSet::new());
        while let Some(id) = next.filter(|id| seen.insert(id.clone())) {
            let events = self.transcript(&id)?;
            if events.iter().any(|event| matches!(&event.body, EventBody::Mail(mail) if mail.id == message)) {
                return Ok(true);
            }
            next = self.find(id.as_str())?.row.continued_by;
        }
        Ok(false)
    }
}
