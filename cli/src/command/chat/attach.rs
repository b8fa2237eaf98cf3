//! `rye chat --attach`: watches a session that another process runs, and sends it messages.

use std::sync::mpsc::{Receiver, TryRecvError, channel};

use rye_engine::event::{ControlMessage, Delivery};
use rye_engine::session_tree::stored_sessions;
use rye_engine::store::owner;
use rye_engine::store::registry::Liveness;
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::ListedThread;

use super::commands::TypedText;
use super::lines::{LineFault, read_line};
use crate::CommandError;
use crate::command::threads::control::MessageDelivery;
use crate::command::threads::tail::Tail;
use crate::exit::Exit;
use crate::report::Printer;
use crate::thread_reader::ThreadReader;

/// Number of past events that are printed first.
const PAST_EVENTS: usize = 20;

/// Prints the events of a running session until the session closes, and sends it the lines of stdin. Without `thread`,
/// the session is the newest one that a process runs.
pub fn attach(thread: Option<&str>, reader: &ThreadReader, report: &Printer) -> Result<Exit, CommandError> {
    let entry = running_session(thread, reader)?;
    let owner = owner_pid(&entry, reader)?;
    report.note(&format!(
        "watching `{}`, which is owned by a running process{owner}: each line is sent to that process, and /exit \
         leaves the process running",
        entry.row.id
    ));
    let lines = read_lines();
    let mut is_open = true;
    let mut step = |thread: &ThreadId| {
        while is_open {
            match lines.try_recv() {
                Ok(line) => {
                    if !send_line(&line, thread, reader, report)? {
                        return Ok(false);
                    }
                }
                Err(TryRecvError::Empty) => break,
                // Stdin has ended; the session is still shown.
                Err(TryRecvError::Disconnected) => is_open = false,
            }
        }
        Ok(true)
    };
    let tail = Tail { follows: true, last: PAST_EVENTS, full: false };
    if tail.print(entry.row.id, reader, report, &mut step)? {
        report.note("the session is closed");
    }
    Ok(Exit::Success)
}

/// Returns the process id of a thread's owner in parentheses; an empty text if the owner is not known.
pub fn owner_pid(entry: &ListedThread, reader: &ThreadReader) -> Result<String, CommandError> {
    let owner = match &entry.row.owner {
        Some(owner) => owner::read_owner_info(reader.disk(), owner)?,
        None => None,
    };
    Ok(owner.map_or_else(String::new, |info| format!(" (pid {})", info.pid)))
}

fn running_session(thread: Option<&str>, reader: &ThreadReader) -> Result<ListedThread, CommandError> {
    let help = "open a closed session: `rye chat --resume THREAD`";
    let Some(thread) = thread else {
        let running = stored_sessions(reader)?.into_iter().find(|session| session.last.liveness == Liveness::Alive);
        let none = || CommandError::usage("no session of this project is running").with_help(help);
        return Ok(running.ok_or_else(none)?.last);
    };
    let entry = reader.last_of_chain(thread)?;
    if reader.liveness(&entry.row)? != Liveness::Alive {
        return Err(CommandError::usage(format!("no process runs `{}`", entry.row.id)).with_help(help));
    }
    Ok(entry)
}

/// Reads the lines of stdin on a separate OS thread. Skips lines that are too long. The OS thread lives until the
/// process ends, because a read cannot be cancelled.
fn read_lines() -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        // A read error counts as the end of stdin.
        while let Ok(Some(line)) = read_line(&mut input) {
            if line.fault != Some(LineFault::TooLong) && sender.send(line.text).is_err() {
                return;
            }
        }
    });
    lines
}

/// Sends a line as a message to a session that another process runs. Commands are not sent, except for `/steer` and
/// `/follow-up`, because only the owner process performs commands. Returns false if the line is a command to leave the
/// session.
fn send_line(line: &str, thread: &ThreadId, reader: &ThreadReader, report: &Printer) -> Result<bool, CommandError> {
    if line.trim().is_empty() {
        return Ok(true);
    }
    let (input, delivery) = match TypedText::parse(line) {
        TypedText::Message(input) if input.bounds.is_empty() => (input, Delivery::Steer),
        TypedText::Message(input) => (input, Delivery::Prompt),
        TypedText::Delivered(input, delivery) => (input, delivery),
        TypedText::Leave(_) => return Ok(false),
        TypedText::Invalid(reason) => {
            report.note(&reason);
            return Ok(true);
        }
        TypedText::Help(_) | TypedText::Request(_) | TypedText::Inquiry(_) | TypedText::Switch(..) => {
            report.note("not sent: only the process that owns the session performs its commands");
            return Ok(true);
        }
    };
    let id = reader.last_of_chain(thread.as_str())?.row.id;
    match reader.deliver(&id, &ControlMessage::Submit { input, delivery })? {
        MessageDelivery::Recorded => {}
        MessageDelivery::Waiting(_) => report.note("the session has not received the message yet"),
        MessageDelivery::Refused(_) => report.note("not sent: the session has ended"),
    }
    Ok(true)
}
