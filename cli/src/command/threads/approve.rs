//! `rye threads approve`: the answer that a thread waits for. One that is suspended goes on here and now.

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use rye_compiler::approvals::Unattended;
use rye_compiler::plan::Asked;
use rye_compiler::semantics::limits::{LimitName, Written, amount};
use rye_compiler::semantics::money::Nanos;
use rye_engine::event::{Approval, Event, EventBody, Letter};
use rye_engine::machine::state::Question;
use rye_engine::store::registry::Liveness;
use rye_engine::thread::Status;
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::{open_question, room_above};

use super::act::speaks;
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
    /// Accept the record of the thread even if no key of yours signed it; a damaged one is still refused
    #[arg(long)]
    trust_record: bool,
    /// Let it go on without this terminal; prints its id as soon as it runs
    #[arg(long)]
    detach: bool,
    #[arg(long, hide = true)]
    detached: bool,
}

/// How long a thread has to look at its answer.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);

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
    let record = book.record(&args.thread)?;
    let row = &record.entry.row;
    let id = &row.id;
    speaks(row)?;
    let suspended = row.status == Status::Suspended;
    if row.status.is_over() && !suspended {
        return Err(Failure::usage(format!("the thread `{id}` is over: {}", row.status.word())));
    }
    let open = open_question(&record.events);
    let asked = open.as_ref().map(|open| open.asked);
    let grant = open.as_ref().filter(|open| open.asked == Asked::Call).and_then(|open| Grant::asked(id, &open.what));
    let alive = book.liveness(row)? == Liveness::Alive;
    if open.is_none() && letters.is_empty() {
        return Err(Failure::usage(format!("the thread `{id}` asks nothing now"))
            .help("`rye threads approvals` lists those that do"));
    }
    if let (Scope::Project, Some(grant)) = (args.scope, &grant) {
        spaces.trust().remember(&grant.capability)?;
        report
            .note(&format!("threads of this project may use {}; `rye trust --revoke` takes it back", grant.capability));
    }
    if asked == Some(Asked::Limit) && args.raise.is_empty() && !args.deny {
        return Err(Failure::usage(format!("the thread `{id}` is at a limit, which approval alone does not move"))
            .help("say how far it may go with `--raise turns=20`, or `--deny`"));
    }
    if !args.deny {
        moves(id, &letters, open.as_ref(), &record.events)?;
    }
    let answer = open.as_ref().map(|open| Letter::Approve { yes: !args.deny, question: Some(open.seq) });
    if alive {
        if args.scope == Scope::Thread {
            report.note(&format!("another process runs `{id}`: the word counts for this call, not for the rest of it"));
        }
        for letter in &letters {
            book.send(id, letter)?;
        }
        let Some((open, answer)) = open.as_ref().zip(answer) else {
            report.note(&format!("`{id}` asks nothing now; it has the higher limit"));
            return Ok(Exit::Fine);
        };
        let letter = book.send(id, &answer)?;
        return told(id, open, &letter, book, report);
    }
    letters.extend(answer);
    if args.detach {
        return detach::leave(false, report);
    }
    let given = grant.as_ref().filter(|_| args.scope == Scope::Thread);
    // What comes after the one call that was answered stands in the queue as this one did.
    let unattended = asked.filter(|asked| *asked == Asked::Call).map(|_| Unattended::Queue);
    let how = How { detached: args.detached, trust_record: args.trust_record, given, unattended, ..How::default() };
    drive(Start::TakeUp { thread: id.clone(), letters }, how, spaces, report)
}

/// Waits until the thread has taken the answer, and says whether that was the first.
fn told(id: &ThreadId, open: &Question, letter: &str, book: &Book, report: &Report) -> Result<Exit, Failure> {
    let until = Instant::now() + PATIENCE;
    loop {
        let record = book.record(id.as_str())?;
        let taken = |event: &Event| matches!(&event.body, EventBody::Mail(mail) if mail.id == letter);
        // What a letter answers is written with it.
        if let Some(at) = record.events.iter().position(taken) {
            let next = record.events.get(at + 1).map(|event| &event.body);
            if matches!(next, Some(EventBody::ApprovalGiven(_))) {
                report.note(&format!("`{id}` has the answer"));
                return Ok(Exit::Fine);
            }
            return Err(late(id, open, &record.events));
        }
        if record.entry.row.status.is_over() {
            return Err(late(id, open, &record.events));
        }
        if Instant::now() >= until {
            report.note(&format!("`{id}` has not looked at the answer yet; it lies in its inbox"));
            return Ok(Exit::Fine);
        }
        std::thread::sleep(LOOK);
    }
}

/// Somebody else was first.
fn late(id: &ThreadId, open: &Question, events: &[Event]) -> Failure {
    let answer =
        |event: &Event| if let EventBody::ApprovalGiven(given) = &event.body { Some(given.answer) } else { None };
    let given = events.iter().filter(|event| event.seq > open.seq).find_map(answer);
    let how = match given {
        Some(Approval::Approved) => "it was approved already",
        Some(Approval::Refused) => "it was refused already",
        Some(Approval::Suspended) | None => "it is not asked any more",
    };
    Failure::failed(format!("the answer to `{id}` came too late: {how}"))
}

/// Whether what is raised goes up, stays within what the thread above has, and lets the thread pass where it stands.
fn moves(id: &ThreadId, letters: &[Letter], open: Option<&Question>, events: &[Event]) -> Result<(), Failure> {
    let mut raised = Vec::new();
    for letter in letters {
        let Letter::Raise { limit, value } = letter else { continue };
        raised.push(limit.as_str());
        let Some((now, above)) = room_above(events, limit) else { continue };
        let words =
            |value: u64| if limit == "spend" { format!("${}", Nanos::from_u64(value)) } else { value.to_string() };
        if let Some(above) = above.filter(|above| value > above) {
            let most =
                format!("the thread above `{id}` has {limit} {}, and no thread below it gets more", words(above));
            return Err(Failure::usage(most));
        }
        if *value <= now {
            return Err(Failure::usage(format!("{limit} of `{id}` is {} already", words(now)))
                .help("name what it may have in all, not how much more"));
        }
    }
    // What is asked at a limit names it: `go on beyond turns_exceeded: 2 of 2`.
    let stands = open.filter(|open| open.asked == Asked::Limit).and_then(|open| {
        let (before, _) = open.what.split_once("_exceeded")?;
        before.rsplit(' ').next()
    });
    match stands {
        Some(limit) if !raised.contains(&limit) => {
            Err(Failure::usage(format!("the thread `{id}` stands at its limit of {limit}, which this does not raise"))
                .help(format!("say how far it may go with `--raise {limit}=N`")))
        }
        Some(_) | None => Ok(()),
    }
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
