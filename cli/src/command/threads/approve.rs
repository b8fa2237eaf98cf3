//! `rye threads approve`: answers an approval request of a thread. A suspended thread is resumed in this process.

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use rye_compiler::approvals::HeadlessPolicy;
use rye_compiler::plan::ApprovalOrigin;
use rye_compiler::semantics::limits::{LimitName, LimitValue, parse_limit_value};
use rye_compiler::semantics::money::Nanos;
use rye_engine::event::{Approval, ControlMessage, Event, EventBody};
use rye_engine::machine::state::OpenApprovalRequest;
use rye_engine::store::registry::Liveness;
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::{limit_headroom, pending_approval};

use super::control::accepts_messages;
use super::resume::ResumedRunArgs;
use crate::CommandError;
use crate::command::run::ask::ThreadGrant;
use crate::command::run::detach;
use crate::command::run::ending::requested_limit;
use crate::command::run::start::{RunOptions, ThreadStart, run_to_end};
use crate::exit::Exit;
use crate::report::Printer;
use crate::thread_reader::ThreadReader;
use crate::thread_reader::reference::ThreadArg;
use crate::workspace::Spaces;

#[derive(Debug, Args)]
pub struct ApproveArgs {
    #[command(flatten)]
    thread: ThreadArg,
    /// Raise a limit to this value (repeatable): `turns`, `tokens`, `spend`, `spawns`, `duration_seconds`
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "deny")]
    raise: Vec<String>,
    /// Deny the request
    #[arg(long)]
    deny: bool,
    /// Scope of the approval
    #[arg(long, value_enum, value_name = "SCOPE", default_value_t, conflicts_with = "deny")]
    scope: ApprovalScope,
    #[command(flatten)]
    pub run: ResumedRunArgs,
}

/// Timeout for the thread to read its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Scope of an approval, which never reaches beyond the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum ApprovalScope {
    /// Only this call
    #[default]
    Once,
    /// All calls of the same capability by this thread, while this command runs the thread
    Thread,
    /// All calls of the same capability by threads of this project, listed by `rye trust --list`
    Project,
}

pub fn run(args: &ApproveArgs, reader: &ThreadReader, spaces: &Spaces, report: &Printer) -> Result<Exit, CommandError> {
    let raises: Result<Vec<ControlMessage>, CommandError> = args.raise.iter().map(|text| parse_raise(text)).collect();
    let mut messages = raises?;
    let record = reader.load(args.thread.select(reader)?.as_str())?;
    let row = &record.entry.row;
    let id = &row.id;
    accepts_messages(row)?;
    let suspended = row.status.is_parked();
    if row.status.has_ended() && !suspended {
        return Err(CommandError::usage(format!("the thread `{id}` has ended: {}", row.status.as_str())));
    }
    let open = pending_approval(&record.events);
    let origin = open.as_ref().map(|open| open.origin);
    let grant = open
        .as_ref()
        .filter(|open| open.origin == ApprovalOrigin::Call)
        .and_then(|open| ThreadGrant::parse_request(id, &open.what));
    let alive = reader.liveness(row)? == Liveness::Alive;
    if open.is_none() && messages.is_empty() {
        return Err(CommandError::usage(format!("the thread `{id}` has no approval request"))
            .with_help("list approval requests with `rye threads approvals`"));
    }
    if origin == Some(ApprovalOrigin::Limit) && args.raise.is_empty() && !args.deny {
        return Err(CommandError::usage(format!(
            "the thread `{id}` reached a limit; approval alone does not raise the limit"
        ))
        .with_help(match open.as_ref().and_then(requested_limit) {
            Some(limit) => format!("raise the limit with `--raise {limit}=N`, or use `--deny`"),
            None => "raise the limit with `--raise turns=20`, or use `--deny`".to_owned(),
        }));
    }
    if !args.deny {
        check_raises(id, &messages, open.as_ref(), &record.events)?;
    }
    if !alive && !suspended && open.is_some() && is_chat(&record.events) {
        let reason = format!(
            "the process of the session `{id}` ended while the request was open: its prompt was interrupted, so no answer \
             has an effect and the call does not run"
        );
        return Err(CommandError::failed(reason)
            .with_help(format!("open the session with `rye chat --resume {id}` and send the prompt again")));
    }
    if let (ApprovalScope::Project, Some(grant)) = (args.scope, &grant) {
        spaces.trust().record_capability(&grant.capability)?;
        report.note(&format!(
            "allowed {} for all threads of this project; revoke with `rye trust --revoke APPROVAL`",
            grant.capability
        ));
    }
    let answer = open.as_ref().map(|open| ControlMessage::Approve {
        yes: !args.deny,
        question: Some(open.seq),
        message: None,
        raises: false,
    });
    if alive {
        if args.scope == ApprovalScope::Thread {
            report.note(&format!("another process runs `{id}`: the approval applies to this call only"));
        }
        for message in &messages {
            reader.send(id, message)?;
        }
        let Some((open, answer)) = open.as_ref().zip(answer) else {
            report.note(&format!("raised the limit of `{id}`; the thread has no open approval request"));
            return Ok(Exit::Success);
        };
        let message_id = reader.send(id, &answer)?;
        return wait_until_consumed(id, open, &message_id, reader, report);
    }
    messages.extend(answer);
    if args.run.detach {
        return detach::start_detached(false, report);
    }
    let given = grant.as_ref().filter(|_| args.scope == ApprovalScope::Thread);
    // If the thread has no recorded headless policy, its later calls wait for an approval too.
    let unattended_default = origin.filter(|origin| *origin == ApprovalOrigin::Call).map(|_| HeadlessPolicy::Queue);
    let how = RunOptions { unattended_default, given, ..args.run.options() };
    run_to_end(ThreadStart::Recover { thread: id.clone(), messages }, how, spaces, report)
}

fn is_chat(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(&event.body, EventBody::PlanBound(bound) if bound.chat))
}

/// Waits up to [`ANSWER_TIMEOUT`] until the thread has recorded the answer. After this time, returns without an error,
/// and the answer remains in the mailbox. Fails if another answer was recorded before, or if the thread has ended.
fn wait_until_consumed(
    id: &ThreadId,
    open: &OpenApprovalRequest,
    message_id: &str,
    reader: &ThreadReader,
    report: &Printer,
) -> Result<Exit, CommandError> {
    let until = Instant::now() + ANSWER_TIMEOUT;
    loop {
        let record = reader.load(id.as_str())?;
        let taken = |event: &Event| matches!(&event.body, EventBody::Mail(mail) if mail.id == message_id);
        // The thread records the message and its effect together, so the answer, if accepted, is the next event.
        if let Some(at) = record.events.iter().position(taken) {
            let next = record.events.get(at + 1).map(|event| &event.body);
            if matches!(next, Some(EventBody::ApprovalGiven(_))) {
                report.note(&format!("`{id}` received the answer"));
                return Ok(Exit::Success);
            }
            return Err(late_answer_failure(id, open, &record.events));
        }
        if record.entry.row.status.has_ended() {
            return Err(late_answer_failure(id, open, &record.events));
        }
        if Instant::now() >= until {
            report.note(&format!("`{id}` has not read the answer yet; the answer waits in the mailbox of the thread"));
            return Ok(Exit::Success);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the error for an answer to an approval request that is no longer open. The message names the earlier answer
/// if there was one.
fn late_answer_failure(id: &ThreadId, open: &OpenApprovalRequest, events: &[Event]) -> CommandError {
    let answer =
        |event: &Event| if let EventBody::ApprovalGiven(given) = &event.body { Some(given.answer) } else { None };
    let given = events.iter().filter(|event| event.seq > open.seq).find_map(answer);
    let how = match given {
        Some(Approval::Approved | Approval::Preapproved) => "the request was already approved",
        Some(Approval::Refused | Approval::PolicyRefused) => "the request was already denied",
        Some(Approval::Suspended) | None => "the request is no longer open",
    };
    CommandError::failed(format!("the answer to `{id}` came too late: {how}"))
}

/// Checks that each raised limit is above its current value and at most the parent's ceiling. If the thread waits at a
/// limit, also checks that this limit is raised.
fn check_raises(
    id: &ThreadId,
    messages: &[ControlMessage],
    open: Option<&OpenApprovalRequest>,
    events: &[Event],
) -> Result<(), CommandError> {
    let mut raised = Vec::new();
    for message in messages {
        let ControlMessage::Raise { limit, value } = message else { continue };
        raised.push(limit.as_str());
        let Some((now, above)) = limit_headroom(events, limit) else { continue };
        let words =
            |value: u64| if limit == "spend" { format!("${}", Nanos::from_u64(value)) } else { value.to_string() };
        if let Some(above) = above.filter(|above| value > above) {
            let most = format!(
                "the limit `{limit}` of the parent of `{id}` is {}, which is the maximum for its children",
                words(above)
            );
            return Err(CommandError::usage(most));
        }
        if *value <= now {
            return Err(CommandError::usage(format!("{limit} of `{id}` is already {}", words(now)))
                .with_help("give the new total, not the increase"));
        }
    }
    match open.and_then(requested_limit) {
        Some(limit) if !raised.contains(&limit) => Err(CommandError::usage(format!(
            "the thread `{id}` reached its limit of {limit}, which these options do not raise"
        ))
        .with_help(format!("raise the limit with `--raise {limit}=N`"))),
        Some(_) | None => Ok(()),
    }
}

fn parse_raise(text: &str) -> Result<ControlMessage, CommandError> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| CommandError::usage(format!("`--raise {text}` has no value: write `turns=20`")))?;
    let movable = ["turns", "tokens", "spend", "spawns", "duration_seconds"];
    let limit = LimitName::parse(name.trim()).filter(|_| movable.contains(&name.trim()));
    let limit = limit.ok_or_else(|| {
        CommandError::usage(format!(
            "the limit `{name}` cannot be raised; limits that can be raised: {}",
            movable.join(", ")
        ))
    })?;
    let value = parse_limit_value(limit, &LimitValue::Text(value.to_owned()))
        .map_err(|wrong| CommandError::usage(format!("`--raise {text}`: {wrong}")))?;
    Ok(ControlMessage::Raise { limit: name.trim().to_owned(), value })
}
