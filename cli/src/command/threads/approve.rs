//! `rye threads approve`: the answer that a thread waits for. One that is suspended goes on here and now.

use clap::{Args, ValueEnum};
use rye_compiler::approvals::Unattended;
use rye_compiler::plan::Asked;
use rye_compiler::semantics::limits::{LimitName, Written, amount};
use rye_engine::event::Letter;
use rye_engine::store::registry::Liveness;
use rye_engine::thread::Status;

use super::act::speaks;
use super::approvals;
use super::book::Book;
use crate::Failure;
use crate::command::run::ask::Grant;
use crate::command::run::detach;
use crate::command::run::start::{How, Start, drive};
use crate::exit::Exit;
use crate::report::Report;
use crate::space::Spaces;

#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// The thread's id
    #[arg(value_name = "THREAD")]
    thread: String,
    /// A higher limit (repeatable): `turns`, `tokens`, `spend`, `spawns`, `duration_seconds`
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "deny")]
    raise: Vec<String>,
    /// Refuse what it asks for
    #[arg(long)]
    deny: bool,
    /// How far the word reaches: this call, the rest of this thread as far as this command runs it, or this project
    #[arg(long, value_enum, value_name = "SCOPE", default_value_t, conflicts_with = "deny")]
    scope: Scope,
    /// Let it go on without this terminal; prints its id as soon as it runs
    #[arg(long)]
    detach: bool,
    #[arg(long, hide = true)]
    detached: bool,
}

/// What an answer is remembered for; never "always".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Scope {
    /// This one call
    #[default]
    Once,
    /// Every call of the same capability by this thread
    Thread,
    /// Every call of the same capability by threads of this project; `rye trust --list` shows it
    Project,
}

pub fn run(args: &ApproveArgs, book: &Book, spaces: &Spaces, report: &Report) -> Result<Exit, Failure> {
    let raises: Result<Vec<Letter>, Failure> = args.raise.iter().map(|text| raise(text)).collect();
    let mut letters = raises?;
    letters.push(Letter::Approve { yes: !args.deny });
    let record = book.record(&args.thread)?;
    let row = &record.entry.row;
    let id = &row.id;
    speaks(row)?;
    let suspended = row.status == Status::Suspended;
    if row.status.is_over() && !suspended {
        return Err(Failure::usage(format!("the thread `{id}` is over: {}", row.status.word())));
    }
    let last = approvals::last_asked(&record.events);
    let asked = last.map(|last| last.asked);
    let grant = last.filter(|last| last.asked == Asked::Call).and_then(|last| Grant::asked(id, &last.what));
    if let (Scope::Project, Some(grant)) = (args.scope, &grant) {
        spaces.trust().remember(&grant.capability)?;
        report
            .note(&format!("threads of this project may use {}; `rye trust --revoke` takes it back", grant.capability));
    }
    if suspended && asked == Some(Asked::Limit) && args.raise.is_empty() && !args.deny {
        return Err(Failure::usage(format!("the thread `{id}` is at a limit, which approval alone does not move"))
            .help("say how far it may go with `--raise turns=20`, or `--deny`"));
    }
    if book.liveness(row)? == Liveness::Alive {
        for letter in &letters {
            book.send(id, letter)?;
        }
        report.note(&format!("`{id}` has the answer"));
        return Ok(Exit::Fine);
    }
    if args.detach {
        return detach::leave(false, report);
    }
    let given = grant.as_ref().filter(|_| args.scope == Scope::Thread);
    // What comes after the one call that was answered stands in the queue as this one did.
    let unattended = asked.filter(|asked| *asked == Asked::Call).map(|_| Unattended::Queue);
    let how = How { detached: args.detached, given, unattended, ..How::default() };
    drive(Start::TakeUp { thread: id.clone(), letters }, how, spaces, report)
}

fn raise(text: &str) -> Result<Letter, Failure> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| Failure::usage(format!("`--raise {text}` has no value: write `turns=20`")))?;
    let movable = ["turns", "tokens", "spend", "spawns", "duration_seconds"];
    let limit = LimitName::parse(name.trim()).filter(|_| movable.contains(&name.trim()));
    let limit =
        limit.ok_or_else(|| Failure::usage(format!("no limit `{name}` can be raised: {}", movable.join(", "))))?;
    let value = amount(limit, &Written::Text(value.to_owned()))
        .map_err(|wrong| Failure::usage(format!("`--raise {text}`: {wrong}")))?;
    Ok(Letter::Raise { limit: name.trim().to_owned(), value })
}
