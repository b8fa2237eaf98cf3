//! `rye threads resume|handoff`: threads that go on from others.

use clap::Args;
use rye_engine::event::Letter;
use rye_engine::store::registry::Liveness;
use rye_engine::thread::Status;

use super::act::speaks;
use super::book::Book;
use crate::Failure;
use crate::command::run::start::{How, Start, drive};
use crate::command::run::{detach, resumed};
use crate::exit::Exit;
use crate::report::Report;
use crate::space::Spaces;

#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The thread's id
    #[arg(value_name = "THREAD")]
    thread: String,
    /// What to say to it; one that is over needs it
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
    /// Go on from the end of this turn; what came after it is left out
    #[arg(long, value_name = "TURN", requires = "message")]
    fork_at: Option<u64>,
    /// Accept the record of the thread even if no key of yours signed it; a damaged one is still refused
    #[arg(long)]
    trust_record: bool,
    /// Run on without this terminal
    #[arg(long)]
    detach: bool,
    #[arg(long, hide = true)]
    detached: bool,
}

#[derive(Debug, Args)]
pub struct HandoffArgs {
    /// The thread's id
    #[arg(value_name = "THREAD")]
    thread: String,
    /// Accept the record of the thread even if no key of yours signed it; a damaged one is still refused
    #[arg(long)]
    trust_record: bool,
    /// Run on without this terminal
    #[arg(long)]
    detach: bool,
    #[arg(long, hide = true)]
    detached: bool,
}

pub fn resume(args: &ResumeArgs, spaces: &Spaces, report: &Report) -> Result<Exit, Failure> {
    if !args.detached {
        spaces.announce(report);
    }
    if args.detach {
        return detach::leave(false, report);
    }
    let start = resumed(&args.thread, args.message.clone(), args.fork_at, spaces)?;
    let how = How { detached: args.detached, trust_record: args.trust_record, ..How::default() };
    drive(start, how, spaces, report)
}

pub fn handoff(args: &HandoffArgs, book: &Book, spaces: &Spaces, report: &Report) -> Result<Exit, Failure> {
    if !args.detached {
        spaces.announce(report);
    }
    if args.detach {
        return detach::leave(false, report);
    }
    let row = book.last(&args.thread)?.row;
    speaks(&row)?;
    let id = row.id.clone();
    let how = How { detached: args.detached, trust_record: args.trust_record, ..How::default() };
    match book.liveness(&row)? {
        Liveness::Alive => {
            book.send(&id, &Letter::Handoff)?;
            report.note(&format!("`{id}` goes on in another thread after the turn under way"));
            Ok(Exit::Fine)
        }
        Liveness::Over if row.status != Status::Suspended => drive(Start::HandOver { thread: id }, how, spaces, report),
        Liveness::Over | Liveness::Orphaned => {
            drive(Start::TakeUp { thread: id, letters: vec![Letter::Handoff] }, how, spaces, report)
        }
    }
}
