//! `rye threads show THREAD`: shows status, limits, capabilities, cost and related threads of a thread.

use std::collections::BTreeSet;

use clap::Args;
use rye_compiler::plan::PlanLimits;
use rye_compiler::semantics::ledger::{Account, AccountStatus};
use rye_compiler::semantics::money::Nanos;
use rye_engine::event::{Ended, Event, EventBody, Opened, Settled};
use rye_engine::store::{layout, owner};
use rye_engine::thread::{PrintedCost, dollars};
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::{LoadedThread, limits_of_run};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::list::{CostOutput, ThreadOutput};
use crate::CommandError;
use crate::exit::Exit;
use crate::options::Format;
use crate::present::{DIM, event, format_count, format_date, format_money, format_signed_money, truncate_line};
use crate::report::{Printer, printable};
use crate::thread_reader::ThreadReader;
use crate::thread_reader::reference::ThreadArg;

#[derive(Debug, Args)]
pub struct ShowArgs {
    #[command(flatten)]
    thread: ThreadArg,
}

/// Output of `rye threads show THREAD --format json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ShowOutput {
    #[serde(flatten)]
    pub thread: ThreadOutput,
    pub inputs: Map<String, Value>,
    /// Limits by name; `spend` in dollars.
    pub limits: Map<String, Value>,
    /// Capability sets, which must all allow an action: first the set of the thread, then the sets of its ancestors in
    /// the spawn chain.
    pub capabilities: Vec<Vec<String>>,
    /// Use of the provider's prompt cache.
    pub cache: CacheOutput,
    pub outputs: Option<Map<String, Value>>,
    pub result: Option<String>,
    pub error: Option<ThreadErrorOutput>,
    /// All ledger accounts of the thread's tree, the root first, each before its children.
    pub ledger: Vec<AccountOutput>,
    /// The continuation chain of the thread, first thread first.
    pub chain: Vec<String>,
    /// Cost of the run: of the threads that continue each other by handoffs, and of all descendants of these threads.
    pub run_cost: CostOutput,
    /// Process that owns the thread, or owned it last.
    pub pid: Option<u32>,
    pub events: usize,
    /// Path of the transcript file, relative to the project.
    pub transcript: String,
}

/// Prompt tokens of all attempts, by use of the prompt cache.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
pub struct CacheOutput {
    /// Total number of prompt tokens.
    pub prompt_tokens: u64,
    /// Number of prompt tokens that were read from the cache.
    pub read_tokens: u64,
    /// Number of prompt tokens that were written to the cache.
    pub written_tokens: u64,
    /// Percentage of tokens read from the cache, rounded down.
    pub hit_percent: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ThreadErrorOutput {
    pub code: String,
    pub message: String,
}

/// A ledger account; amounts in dollars.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AccountOutput {
    pub thread_id: String,
    /// Depth of the thread in its tree; 0 for the root.
    pub level: usize,
    #[schemars(with = "f64")]
    pub reserved: Value,
    #[schemars(with = "f64")]
    pub spent: Value,
    /// Worst-case cost of the calls in progress.
    #[schemars(with = "f64")]
    pub held_for_calls: Value,
    /// Amount that running children hold: their reservations, or more if they spent more.
    #[schemars(with = "f64")]
    pub held_by_children: Value,
    /// `reserved` minus `spent`, `held_for_calls` and `held_by_children`; negative if more was spent than reserved.
    #[schemars(with = "f64")]
    pub remaining: Value,
    /// Status of the account: `open`, `suspended`, `draining` or `released`.
    #[serde(rename = "standing")]
    pub status: String,
}

/// An account of the ledger, with the depth of its thread below the root thread.
struct AccountInTree {
    thread: ThreadId,
    level: usize,
    account: Account,
}

pub fn run(args: &ShowArgs, reader: &ThreadReader, report: &Printer) -> Result<Exit, CommandError> {
    let record = reader.load(args.thread.select(reader)?.as_str())?;
    let ledger = tree_accounts(reader, &record.entry.row.root)?;
    let chain = continuation_chain(reader, &record)?;
    match report.format() {
        Format::Json => report.json(&thread_output(reader, &record, &ledger, &chain)?)?,
        Format::Plain => {
            for (key, values) in labeled_values(reader, &record, &ledger, &chain)? {
                for value in values {
                    report.line(&format!("{key}\t{}", truncate_line(&value, 10_000)))?;
                }
            }
        }
        Format::Human => {
            for (key, values) in labeled_values(reader, &record, &ledger, &chain)? {
                let mut label = key;
                for value in values {
                    report.line(&format!("{DIM}{label:<13}{DIM:#} {}", printable(&value)))?;
                    label = "";
                }
            }
        }
    }
    Ok(Exit::Success)
}

fn thread_output(
    reader: &ThreadReader,
    record: &LoadedThread,
    ledger: &[AccountInTree],
    chain: &[ThreadId],
) -> Result<ShowOutput, CommandError> {
    let (opened, ended) = (find_opened(&record.events), find_ended(&record.events));
    let grants = opened.map(|opened| &opened.grants).into_iter().flatten();
    Ok(ShowOutput {
        thread: ThreadOutput::new(&record.entry, reader.tree_cost(&record.entry.row)?),
        inputs: opened.map(|opened| opened.inputs.clone()).unwrap_or_default(),
        limits: opened.map(|opened| limits_output(&limits_now(opened, &record.events))).unwrap_or_default(),
        capabilities: grants.map(|set| set.iter().map(|grant| grant.pattern.clone()).collect()).collect(),
        cache: CacheOutput::of(&record.events),
        outputs: ended.and_then(|ended| ended.outputs.clone()),
        result: ended.and_then(|ended| ended.result.as_deref().map(str::to_owned)),
        error: thread_error(record),
        ledger: ledger.iter().map(AccountOutput::new).collect(),
        chain: chain.iter().map(ToString::to_string).collect(),
        run_cost: PrintedCost::from(reader.run_cost(&record.entry.row.id)?).into(),
        pid: owner_pid(reader, record)?,
        events: record.events.len(),
        transcript: layout::transcript(&record.entry.row.id).display().to_string(),
    })
}

/// Returns the error with which a thread ended, or an error which states that the thread never started. `None` if there
/// is no error.
fn thread_error(record: &LoadedThread) -> Option<ThreadErrorOutput> {
    if record.events.is_empty() && (record.entry.row.status.has_ended() || record.entry.is_orphaned()) {
        let message = "the thread never started: it has no transcript".to_owned();
        return Some(ThreadErrorOutput { code: "never_started".to_owned(), message });
    }
    let error = find_ended(&record.events)?.error.clone()?;
    Some(ThreadErrorOutput { code: error.code, message: error.message })
}

/// Formats an error as `CODE: MESSAGE`. The message of a reached limit starts with its code already.
fn error_line(error: &ThreadErrorOutput) -> String {
    let message = error.message.strip_prefix(&format!("{}: ", error.code)).unwrap_or(&error.message);
    format!("{}: {message}", error.code)
}

impl CacheOutput {
    fn of(events: &[Event]) -> Self {
        let mut sum = Self::default();
        for event in events {
            if let EventBody::Settled(Settled { usage, .. }) = &event.body {
                let prompt = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
                sum.prompt_tokens = sum.prompt_tokens.saturating_add(prompt);
                sum.read_tokens = sum.read_tokens.saturating_add(usage.cache_read);
                sum.written_tokens = sum.written_tokens.saturating_add(usage.cache_write);
            }
        }
        let percent = u128::from(sum.read_tokens) * 100 / u128::from(sum.prompt_tokens.max(1));
        Self { hit_percent: u64::try_from(percent).unwrap_or(100), ..sum }
    }

    /// Formats `62 % of 12340 prompt tokens read from the cache, 400 written to it`; `None` if no cache was used.
    fn format_line(&self) -> Option<String> {
        let Self { prompt_tokens, read_tokens, written_tokens, hit_percent } = self;
        (*read_tokens > 0 || *written_tokens > 0).then(|| {
            format!(
                "{hit_percent} % of {prompt_tokens} prompt tokens read from the cache, {written_tokens} written to it"
            )
        })
    }
}

impl AccountOutput {
    fn new(held: &AccountInTree) -> Self {
        let account = &held.account;
        Self {
            thread_id: held.thread.to_string(),
            level: held.level,
            reserved: account.reserved().to_json(),
            spent: account.spent().to_json(),
            held_for_calls: account.attempts_hold().to_json(),
            held_by_children: account.children_hold().to_json(),
            remaining: account.remaining().to_json(),
            status: account_status_name(account.status()).to_owned(),
        }
    }
}

fn account_status_name(status: AccountStatus) -> &'static str {
    match status {
        AccountStatus::Open => "open",
        AccountStatus::Suspended => "suspended",
        AccountStatus::Draining => "draining",
        AccountStatus::Released => "released",
    }
}

/// Returns the lines that the human and plain formats print, grouped under labels such as `status`.
fn labeled_values(
    reader: &ThreadReader,
    record: &LoadedThread,
    ledger: &[AccountInTree],
    chain: &[ThreadId],
) -> Result<Vec<(&'static str, Vec<String>)>, CommandError> {
    let (entry, row) = (&record.entry, &record.entry.row);
    let one = |text: String| vec![text];
    let json = |map: &Map<String, Value>| map.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    let mut facts = vec![("thread", one(row.id.to_string())), ("status", one(entry.status_name().to_owned()))];
    if let Some(pid) = owner_pid(reader, record)?.filter(|_| !row.status.has_ended()) {
        facts.push(("process", one(format!("{pid}{}", if entry.is_orphaned() { ", ended" } else { "" }))));
    }
    facts.push(("directive", one(row.directive.clone())));
    facts.extend(row.tool.clone().map(|tool| ("tool", one(tool))));
    facts.extend(row.plan_id.clone().map(|plan| ("plan", one(plan))));
    facts.push(("started", one(format_date(row.created_at))));
    facts.push(("last event", one(format_date(row.updated_at))));
    facts.push(("cost", one(event::format_cost(&reader.tree_cost(row)?))));
    let run = reader.threads_of_run(&row.id)?;
    if run.len() > 1 {
        let cost = event::format_cost(&reader.run_cost(&row.id)?);
        facts.push(("cost of run", one(format!("{cost} ({})", format_count(run.len() as u64, "thread")))));
    }
    facts.extend(CacheOutput::of(&record.events).format_line().map(|line| ("cache", one(line))));
    if let Some(opened) = find_opened(&record.events) {
        facts.push(("inputs", json(&opened.inputs)));
        facts.push(("limits", one(limit_line(&limits_now(opened, &record.events)))));
        for (n, set) in opened.grants.iter().enumerate() {
            let key = if n == 0 { "capabilities" } else { "bounded by" };
            let patterns: Vec<String> = set.iter().map(|grant| grant.pattern.clone()).collect();
            facts.push((key, if patterns.is_empty() { one("none".to_owned()) } else { patterns }));
        }
    }
    if let Some(ended) = find_ended(&record.events) {
        facts.push(("outputs", ended.outputs.as_ref().map(json).unwrap_or_default()));
        let result = ended.result.as_deref().filter(|_| ended.outputs.is_none());
        facts.extend(result.map(|result| ("result", one(result.to_owned()))));
    }
    facts.extend(thread_error(record).map(|e| ("error", one(error_line(&e)))));
    facts.push(("ledger", ledger_lines(ledger)));
    if chain.len() > 1 {
        facts.push(("chain", chain.iter().map(ToString::to_string).collect()));
    }
    let transcript = layout::transcript(&row.id);
    let events = format_count(record.events.len() as u64, "event");
    facts.push(("transcript", one(format!("{} ({events})", transcript.display()))));
    Ok(facts)
}

fn find_opened(events: &[Event]) -> Option<&Opened> {
    events.iter().find_map(|event| if let EventBody::Opened(opened) = &event.body { Some(&**opened) } else { None })
}

/// Returns the last end event; `None` if the thread has never ended. A thread that was suspended and then recovered has
/// several end events.
fn find_ended(events: &[Event]) -> Option<&Ended> {
    events.iter().rev().find_map(|event| if let EventBody::Ended(ended) = &event.body { Some(&**ended) } else { None })
}

/// Returns the current limits of a run, with all raises. For a chat, returns the limits of each prompt at the start of
/// the session.
fn limits_now(opened: &Opened, events: &[Event]) -> PlanLimits {
    limits_of_run(events).unwrap_or(opened.limits)
}

fn limits_output(limits: &PlanLimits) -> Map<String, Value> {
    let PlanLimits { turns, tokens, spend, spawns, depth, duration_seconds, output } = *limits;
    let named = [
        ("turns", turns.into()),
        ("tokens", tokens.into()),
        ("spend", dollars(spend)),
        ("spawns", spawns.into()),
        ("depth", depth.into()),
        ("duration_seconds", duration_seconds.into()),
        ("output", output.into()),
    ];
    named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn limit_line(limits: &PlanLimits) -> String {
    let PlanLimits { turns, tokens, spend, spawns, depth, duration_seconds, output } = *limits;
    let spawns = if spawns == PlanLimits::UNLIMITED { "unlimited".to_owned() } else { spawns.to_string() };
    format!(
        "turns {turns}, tokens {tokens}, spend {}, spawns {spawns}, depth {depth}, duration {duration_seconds}s, output {output}",
        format_money(spend)
    )
}

/// Formats each account as `hello-1739820456: $0.05 reserved, $0.0012 spent, $0.0088 held for a call, $0.04 remaining,
/// open`, indented by depth.
fn ledger_lines(ledger: &[AccountInTree]) -> Vec<String> {
    let line = |held: &AccountInTree| {
        let AccountInTree { thread, level, account } = held;
        let [reserved, spent, calls, children, remaining] = [
            account.reserved(),
            account.spent(),
            account.attempts_hold(),
            account.children_hold(),
            account.remaining(),
        ]
        .map(format_signed_money);
        let held = |amount: Nanos, text: String| if amount == Nanos::ZERO { String::new() } else { text };
        let calls = held(account.attempts_hold(), format!(", {calls} held for a call"));
        let children = held(account.children_hold(), format!(", {children} held by children"));
        let status = account_status_name(account.status());
        let indent = "  ".repeat(*level);
        format!(
            "{indent}{thread}: {reserved} reserved, {spent} spent{calls}{children}, {remaining} remaining, {status}"
        )
    };
    ledger.iter().map(line).collect()
}

/// Returns the accounts of a tree, each before its children. The continuation of a child follows the child at the same
/// level, because the same parent pays for both.
fn tree_accounts(reader: &ThreadReader, root: &ThreadId) -> Result<Vec<AccountInTree>, CommandError> {
    let Some(registry) = reader.registry() else { return Ok(Vec::new()) };
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut next = vec![(root.clone(), 0)];
    while let Some((thread, level)) = next.pop() {
        if !seen.insert(thread.clone()) {
            continue;
        }
        let continuation = registry.thread(&thread)?.and_then(|row| row.continued_by);
        if let Some(row) = continuation.map(|id| registry.thread(&id)).transpose()?.flatten()
            && row.parent.is_some()
            && row.root == *root
        {
            next.push((row.id, level));
        }
        next.extend(registry.children(&thread)?.into_iter().rev().map(|(_, child)| (child, level + 1)));
        if let Some(account) = registry.account(&thread)? {
            found.push(AccountInTree { thread, level, account });
        }
    }
    Ok(found)
}

/// Returns the continuation chain of the thread, including itself.
fn continuation_chain(reader: &ThreadReader, record: &LoadedThread) -> Result<Vec<ThreadId>, CommandError> {
    let this = &record.entry.row;
    let (mut chain, mut seen) = (vec![this.id.clone()], BTreeSet::from([this.id.clone()]));
    let Some(registry) = reader.registry() else { return Ok(chain) };
    let mut before = this.continues.clone();
    while let Some(thread) = before.take().filter(|thread| seen.insert(thread.clone())) {
        before = registry.thread(&thread)?.and_then(|row| row.continues);
        chain.insert(0, thread);
    }
    let mut after = this.continued_by.clone();
    while let Some(thread) = after.take().filter(|thread| seen.insert(thread.clone())) {
        after = registry.thread(&thread)?.and_then(|row| row.continued_by);
        chain.push(thread);
    }
    Ok(chain)
}

fn owner_pid(reader: &ThreadReader, record: &LoadedThread) -> Result<Option<u32>, CommandError> {
    let Some(id) = &record.entry.row.owner else { return Ok(None) };
    Ok(owner::read_owner_info(reader.disk(), id)?.map(|info| info.pid))
}
