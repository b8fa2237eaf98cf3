//! The final state of a scenario: transcripts, ledger, rows and effects, without the parts in which two equal runs may
//! differ. Comparing two final states decides a test.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::artifact_files::find_artifact_faults;
use super::external_world::{ONCE, Outside};
use super::scenarios::CrashScenario;
use crate::engine::Engine;
use crate::event::{Event, EventBody, ResultKind, ThreadOrigin};
use crate::store::ThreadRow;
use crate::store::registry::Liveness;
use crate::thread::Status;
use crate::thread_id::ThreadId;

/// A comparable final state. Threads are named by their place in the tree: `root`, `root.1` its first child, `root'`
/// its continuation.
#[derive(Debug, Clone)]
pub struct FinalState {
    threads: BTreeMap<String, ThreadOutcome>,
    effects: BTreeMap<String, usize>,
    /// Number of calls that were interrupted.
    interrupted: usize,
    /// Number of model calls that were cut.
    cut: usize,
    /// Missing, outdated and unfinished artifacts. A power failure can cause them, a kill cannot.
    artifact_faults: Vec<String>,
}

#[derive(Debug, Clone)]
struct ThreadOutcome {
    events: Vec<Value>,
    /// The registry row and the ledger account of the thread.
    books: Value,
}

/// The data of one thread, before it has a name.
struct FoundThread {
    row: ThreadRow,
    events: Vec<Event>,
}

/// Reads the current state; fails on a state that must never occur.
pub fn read_final_state(scenario: &CrashScenario, engine: &Engine, outside: &Outside) -> Result<FinalState, String> {
    let mut found = BTreeMap::new();
    for listed in engine.threads().list().map_err(|error| error.to_string())? {
        let row = listed.row;
        let account = engine.account(&row.id).map_err(|error| error.to_string())?;
        let open =
            account.as_ref().is_some_and(|a| a.status() != rye_compiler::semantics::ledger::AccountStatus::Released);
        if listed.liveness != Liveness::Over || open {
            return Err(format!("{} is {:?}, its account {account:?}", row.id, row.status));
        }
        let events = engine.threads().transcript(&row.id).unwrap_or_default();
        if !events.is_empty() {
            found.insert(row.id.to_string(), FoundThread { row, events });
        }
    }
    let names = names(&found)?;
    let mut unknown = BTreeMap::new();
    for (id, one) in &found {
        let cut = one.events.iter().filter_map(|event| match &event.body {
            EventBody::Settled(settled) if settled.unknown_outcome => Some(settled.amount),
            _ => None,
        });
        unknown.insert(names[id].clone(), cut.collect::<Vec<u64>>());
    }
    let mut words = names.clone();
    words.insert(engine.inner.project.display().to_string(), "the project".into());
    let mut threads = BTreeMap::new();
    let mut interrupted = 0;
    for (id, one) in &found {
        let name = &names[id];
        for (n, event) in one.events.iter().enumerate() {
            if event.seq != n as u64 {
                return Err(format!("event {n} of {name} says it is {}", event.seq));
            }
        }
        let tool = once(&one.events);
        let mut telling = EventNormalizer {
            name,
            unknown: &unknown,
            interrupted: 0,
            own: 0,
            waited: 0,
            handed: false,
            tool,
            bounds_tokens: scenario.cuts > 0,
        };
        let events = telling.events(&one.events)?;
        interrupted += telling.interrupted;
        let books = telling.books(scenario, engine, one, &names)?;
        threads.insert(name.clone(), ThreadOutcome { events: rename(events, &words), books });
    }
    let mut effects = BTreeMap::new();
    for line in outside.lines() {
        *effects.entry(line).or_insert(0) += 1;
    }
    let cut = unknown.values().map(Vec::len).sum();
    let mut artifact_faults = Vec::new();
    for one in found.values() {
        artifact_faults.extend(find_artifact_faults(&**engine.disk(), &one.row, &one.events));
    }
    Ok(FinalState { threads, effects, interrupted, cut, artifact_faults })
}

/// Names each thread by its place in the tree.
fn names(found: &BTreeMap<String, FoundThread>) -> Result<BTreeMap<String, String>, String> {
    fn name(id: &str, found: &BTreeMap<String, FoundThread>, depth: usize) -> Result<String, String> {
        let one = found.get(id).ok_or_else(|| format!("`{id}` has no record"))?;
        if depth > 9 {
            return Err(format!("`{id}` is above itself"));
        }
        let above = |id: &ThreadId| name(id.as_str(), found, depth + 1);
        match (&one.row.continues, &one.row.parent) {
            (Some(before), _) => Ok(format!("{}'", above(before)?)),
            (None, Some(parent)) => Ok(format!("{}.{}", above(parent)?, one.row.spawn.unwrap_or(0))),
            (None, None) => Ok("root".into()),
        }
    }
    let names: BTreeMap<String, String> =
        found.keys().map(|id| Ok((id.clone(), name(id, found, 0)?))).collect::<Result<_, String>>()?;
    let different: BTreeSet<&String> = names.values().collect();
    if different.len() != names.len() {
        return Err(format!("two threads stand in one place: {names:?}"));
    }
    Ok(names)
}

/// Returns the tool of a detached run, if it must not be run again.
fn once(events: &[Event]) -> Option<&'static str> {
    let Some(EventBody::Opened(opened)) = events.first().map(|event| &event.body) else { return None };
    let name = opened.tool()?.replace('/', "_");
    ONCE.into_iter().find(|once| *once == name)
}

/// Replaces ids by names in all events.
fn rename(events: Vec<Value>, names: &BTreeMap<String, String>) -> Vec<Value> {
    let mut longest: Vec<(&String, &String)> = names.iter().collect();
    longest.sort_by_key(|(id, _)| std::cmp::Reverse(id.len()));
    let change = |event: Value| {
        let text = longest.iter().fold(event.to_string(), |text, (id, name)| text.replace(*id, name));
        serde_json::from_str(&text).unwrap()
    };
    events.into_iter().map(change).collect()
}

/// Returns true if a thread is `to`, is a descendant of `to`, or, if `chain` is set, continues `to`.
fn belongs(name: &str, to: &str, chain: bool) -> bool {
    name.strip_prefix(to)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || (chain && rest.starts_with('\'')))
}

struct EventNormalizer<'a> {
    name: &'a str,
    /// Amounts booked for cut calls, by thread.
    unknown: &'a BTreeMap<String, Vec<u64>>,
    interrupted: usize,
    /// The amount booked so far for the thread's own cut calls; `waited` is the amount for the cut calls of awaited
    /// children.
    own: u64,
    waited: u64,
    /// True if the thread continues another thread with the remaining limits of that thread.
    handed: bool,
    /// The tool of this run, if it must not be run again.
    tool: Option<&'static str>,
    /// True if the tokens of cut calls count as their upper bound, which depends on the characters of ids.
    bounds_tokens: bool,
}

impl EventNormalizer<'_> {
    /// Adds up the amounts booked for cut calls of a thread and its descendants.
    fn booked(&self, name: &str, chain: bool) -> u64 {
        self.unknown.iter().filter(|(other, _)| belongs(other, name, chain)).flat_map(|(_, cut)| cut).sum()
    }

    /// Adds up the amounts booked for the threads before this one in its chain.
    fn booked_before(&self) -> u64 {
        if !self.handed {
            return 0;
        }
        let before = |other: &str| self.name.strip_prefix(other).is_some_and(|rest| rest.chars().all(|c| c == '\''));
        let chain = self.unknown.keys().filter(|other| *other != self.name && before(other));
        chain.map(|other| self.booked(other, false)).sum()
    }

    /// Normalizes the events: removes the events that a crash adds, and the values that differ between runs.
    fn events(&mut self, events: &[Event]) -> Result<Vec<Value>, String> {
        let mut cut = BTreeSet::new();
        let (mut detached, mut places) = (BTreeSet::new(), BTreeMap::new());
        for event in events {
            match &event.body {
                EventBody::Settled(settled) if settled.unknown_outcome => {
                    cut.insert((settled.turn, settled.attempt));
                }
                EventBody::ChildIntended(child) => {
                    places.insert(child.spawn, child.index);
                    if child.detached {
                        detached.insert(child.spawn);
                    }
                }
                _ => {}
            }
        }
        let mut apart = 0;
        let (mut entries, mut mail) = (Vec::new(), BTreeSet::new());
        let mut attempts: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for event in events {
            if let EventBody::Settled(settled) = &event.body
                && settled.unknown_outcome
            {
                self.own += settled.amount;
            }
            if let Some(attempt) = attempt(&event.body) {
                if cut.contains(&attempt) {
                    continue;
                }
                let seen = attempts.entry(attempt.0).or_default();
                if !seen.contains(&attempt.1) {
                    seen.push(attempt.1);
                }
            }
            match &event.body {
                EventBody::Recovered(_) | EventBody::Checkpoint(_) => continue,
                EventBody::Mail(mail_event) => {
                    mail.insert(serde_json::to_string(&mail_event.message).unwrap());
                    continue;
                }
                EventBody::ChildEnded(child) if detached.contains(&child.spawn) => {
                    apart += child.cost.spend;
                    continue;
                }
                EventBody::Settled(settled) if settled.amount == 0 && settled.usage.output > 0 => {
                    return Err(format!("{settled:?} costs nothing"));
                }
                _ => {}
            }
            let mut value = serde_json::to_value(&event.body).unwrap();
            if let Some((turn, number)) = attempt(&event.body) {
                value["attempt"] = attempts[&turn].iter().position(|seen| *seen == number).into();
            }
            self.plain(&event.body, &mut value, apart)?;
            entries.push(value);
        }
        // The order within a group is undefined, so it is normalized.
        let place = |value: &Value| match value["type"].as_str() {
            Some("tool_call_result") => value["index"].as_u64().map(|index| (index, 1)),
            Some("child_ended") => {
                let place = places.get(&value["spawn"].as_u64().unwrap_or(0)).copied().unwrap_or(usize::MAX);
                Some((place as u64, 0))
            }
            _ => None,
        };
        for group in entries.chunk_by_mut(|a, b| place(a).is_some() && place(b).is_some()) {
            group.sort_by_key(|value| place(value));
        }
        entries.push(json!({"mail": mail}));
        Ok(entries)
    }

    /// Removes the values of an event that differ between runs.
    fn plain(&mut self, body: &EventBody, value: &mut Value, apart: u64) -> Result<(), String> {
        match body {
            EventBody::Opened(opened) => {
                self.handed = opened.origin == ThreadOrigin::Handoff;
                value["seed"] = 0.into();
                value["project_path"] = "".into();
                // The limit is set to the value that it would have if no earlier call had been cut.
                value["limits"]["spend"] = (opened.limits.spend + self.booked_before()).into();
                if self.name.ends_with('\'') {
                    value["limits"]["duration_seconds"] = 0.into();
                    value["carried_ms"] = 0.into();
                }
            }
            EventBody::Continues(_) => {
                value["at_seq"] = 0.into();
                value["at_h"] = "".into();
            }
            // These estimates depend on the lengths of ids and costs, which differ between runs.
            EventBody::AttemptIntended(_) => {
                for estimate in ["input_bound", "worst_case", "max_output"] {
                    value[estimate] = 0.into();
                }
            }
            EventBody::Reserved(_) => value["amount"] = 0.into(),
            EventBody::AttemptFailed(failed) => value["retry_delay_ms"] = failed.retry_delay_ms.is_some().into(),
            EventBody::ChildEnded(child) => {
                let below = self.booked(&format!("{}.{}", self.name, child.spawn), true);
                self.waited += below;
                value["cost"]["spend"] = self.less(child.cost.spend, below)?.into();
                omit_waiting(value);
            }
            EventBody::Ended(ended) => {
                if self.tool.is_some() {
                    let lost = ended.error.as_ref().is_some_and(|error| error.code == "interrupted");
                    if lost != (ended.status == Status::Error) {
                        return Err(format!("{ended:?}"));
                    }
                    for field in ["status", "result", "error"] {
                        value[field] = Value::Null;
                    }
                }
                value["cost"]["spend"] = self.less(ended.cost.spend, apart + self.own + self.waited)?.into();
                omit_waiting(value);
                if self.bounds_tokens {
                    value["cost"]["input_tokens"] = 0.into();
                    value["cost"]["output_tokens"] = 0.into();
                }
            }
            EventBody::ToolCallResult(result) => {
                value["duration_ms"] = 0.into();
                let name = self.tool.unwrap_or(result.name.as_str());
                if ONCE.contains(&name) && !matches!(result.why, ResultKind::Skipped) {
                    let lost = result.why == ResultKind::Interrupted && result.is_error;
                    let sound = result.why == ResultKind::Ran && !result.is_error;
                    if !lost && !sound {
                        return Err(format!("{result:?}"));
                    }
                    self.interrupted += usize::from(lost);
                    for field in ["why", "content", "is_error", "bytes", "details", "object"] {
                        value[field] = Value::Null;
                    }
                } else if result.why == ResultKind::Interrupted {
                    return Err(format!("{result:?} may run again"));
                }
                if let Ok(Value::Object(mut fields)) = serde_json::from_str::<Value>(&result.content) {
                    fields.insert("cost".into(), Value::Null);
                    fields.insert("pid".into(), Value::Null);
                    value["content"] = Value::Object(fields);
                    value["bytes"] = 0.into();
                }
            }
            EventBody::Limit(_) => value["current_value"] = Value::Null,
            _ => {}
        }
        Ok(())
    }

    /// Normalizes the row and the account.
    fn books(
        &self,
        scenario: &CrashScenario,
        engine: &Engine,
        one: &FoundThread,
        names: &BTreeMap<String, String>,
    ) -> Result<Value, String> {
        let (row, id) = (&one.row, &one.row.id);
        let account = engine.account(id).map_err(|error| error.to_string())?;
        let account = account.ok_or_else(|| format!("{} has no account", self.name))?;
        let named = |id: Option<&str>| id.map(|id| names.get(id).cloned().unwrap_or_else(|| format!("unknown {id}")));
        let mut book = Map::new();
        let status = if self.tool.is_some() { "as the tool" } else { row.status.as_str() };
        book.insert("status".into(), status.into());
        book.insert("tool".into(), json!(row.tool));
        book.insert("turns".into(), row.cost.turns.into());
        if !self.bounds_tokens {
            book.insert("tokens".into(), json!([row.cost.input_tokens, row.cost.output_tokens]));
        }
        book.insert("spawned".into(), row.spawned.into());
        book.insert("parent".into(), json!(named(row.parent.as_ref().map(ThreadId::as_str))));
        book.insert("continues".into(), json!(named(row.continues.as_ref().map(ThreadId::as_str))));
        book.insert("continued_by".into(), json!(named(row.continued_by.as_ref().map(ThreadId::as_str))));
        book.insert("root".into(), json!(named(Some(row.root.as_str()))));
        if scenario.survivors {
            return Ok(Value::Object(book));
        }
        book.insert("of".into(), json!(named(account.parent())));
        book.insert("spent".into(), self.less(account.spent().to_u64(), self.booked(self.name, false))?.into());
        // After a handoff, a thread keeps only what it has used of its reservation, cut calls included.
        let reserved = match row.status {
            Status::Continued => self.less(account.reserved().to_u64(), self.booked(self.name, false))?,
            _ => account.reserved().to_u64() + self.booked_before(),
        };
        book.insert("reserved".into(), reserved.into());
        book.insert("children".into(), account.children().into());
        if account.spent() > account.reserved() {
            return Err(format!("{} spent {} of {}", self.name, account.spent(), account.reserved()));
        }
        let ended = one.events.iter().rev().find_map(|event| match &event.body {
            EventBody::Ended(ended) => Some(ended),
            _ => None,
        });
        let cost = ended.map(|ended| ended.cost);
        if cost != Some(row.cost) || ended.is_none_or(|ended| ended.status != row.status) {
            return Err(format!("the row of {} says {:?}, its record {cost:?}", self.name, row.cost));
        }
        Ok(Value::Object(book))
    }

    /// Subtracts the amount booked for cut calls.
    fn less(&self, amount: u64, by: u64) -> Result<u64, String> {
        amount.checked_sub(by).ok_or_else(|| format!("{}: {amount} is less than the cut calls' {by}", self.name))
    }
}

/// Removes from a cost the time spent waiting for an approval, and the money of descendants that still live. Both
/// values depend on the clock and the scheduler, and a crash changes them.
fn omit_waiting(event: &mut Value) {
    event["cost"]["asked_ms"] = Value::Null;
    event["cost"]["outstanding"] = Value::Null;
}

/// Returns the turn and the attempt of an event.
fn attempt(body: &EventBody) -> Option<(u64, u32)> {
    match body {
        EventBody::AttemptIntended(a) => Some((a.turn, a.attempt)),
        EventBody::Reserved(a) => Some((a.turn, a.attempt)),
        EventBody::CognitionOut(a) => Some((a.turn, a.attempt)),
        EventBody::AttemptFailed(a) => Some((a.turn, a.attempt)),
        EventBody::Settled(a) => Some((a.turn, a.attempt)),
        _ => None,
    }
}

impl FinalState {
    /// Checks that an undisturbed run ended as the scenario defines.
    pub fn is_whole(&self, scenario: &CrashScenario) -> Result<(), String> {
        let last =
            self.threads.keys().filter(|name| name.starts_with("root") && !name.contains('.')).max_by_key(|n| n.len());
        let status = last.and_then(|last| self.threads[last].books["status"].as_str());
        if (status, self.interrupted, self.cut) != (Some(scenario.ends.as_str()), 0, scenario.cuts) {
            return Err(format!("{self:#?}"));
        }
        self.check_artifacts()
    }

    /// Checks that each thread has its artifacts, in their last state.
    pub fn check_artifacts(&self) -> Result<(), String> {
        if self.artifact_faults.is_empty() { Ok(()) } else { Err(self.artifact_faults.join("; ")) }
    }

    /// Checks that a run with `kills` interruptions had the same result as this one.
    pub fn holds(&self, scenario: &CrashScenario, other: &Self, kills: usize) -> Result<(), String> {
        if scenario.spends_all && other.cut > self.cut {
            return self.holds_up_to_the_money(other);
        }
        let (mine, theirs) = (self.threads.keys(), other.threads.keys());
        if !mine.clone().eq(theirs.clone()) {
            return Err(format!("threads {:?} instead of {:?}", theirs.collect::<Vec<_>>(), mine.collect::<Vec<_>>()));
        }
        for ((name, mine), theirs) in self.threads.iter().zip(other.threads.values()) {
            same(name, &mine.events, &theirs.events)?;
            if mine.books != theirs.books {
                return Err(format!("{name}: books {} instead of {}", theirs.books, mine.books));
            }
        }
        self.same_effects(other, kills)
    }

    /// Compares runs in which a cut call used up the money: the events before the limit must be equal.
    fn holds_up_to_the_money(&self, other: &Self) -> Result<(), String> {
        let (mine, theirs) = (&self.threads["root"], &other.threads["root"]);
        let end = theirs.events.iter().position(|event| event["type"] == "limit").unwrap_or(theirs.events.len());
        same("root", &mine.events[..end.min(mine.events.len())], &theirs.events[..end])?;
        let rest: Vec<&str> = theirs.events[end..].iter().filter_map(|event| event["type"].as_str()).collect();
        if theirs.books["status"] != mine.books["status"] || rest != ["limit", "hook_point", "ended"] {
            return Err(format!("{rest:?} {}", theirs.books));
        }
        for (what, count) in &other.effects {
            if what.starts_with("mark") && *count > 1 {
                return Err(format!("{what} happened {count} times"));
            }
        }
        Ok(())
    }

    fn same_effects(&self, other: &Self, kills: usize) -> Result<(), String> {
        let (mut lost, mut more) = (0, 0);
        let names: BTreeSet<&String> = self.effects.keys().chain(other.effects.keys()).collect();
        for name in names {
            let count = |state: &Self| state.effects.get(name).copied().unwrap_or(0);
            let (mine, theirs) = (count(self), count(other));
            let wrong = || Err(format!("`{name}` happened {theirs} times instead of {mine}"));
            match name.split(' ').next() {
                // A call that must not run again may be missing, if it was reported as interrupted.
                Some("mark" | "cancel") if theirs > mine => return wrong(),
                Some("mark" | "cancel") => lost += mine - theirs,
                // A cut model call or approval request is repeated once.
                Some("ask") if theirs < mine => return wrong(),
                Some("ask") => more += theirs - mine,
                // A message that the user repeats does not count as a second one.
                Some("message") if theirs <= mine => {}
                Some(_) if theirs < mine || theirs > mine * (kills + 1) => return wrong(),
                Some(_) | None => {}
            }
        }
        let cut = other.cut.saturating_sub(self.cut);
        if lost > other.interrupted || more > cut {
            let interrupted = other.interrupted;
            return Err(format!(
                "{lost} effects are missing and {interrupted} calls were interrupted; {more} calls were made again and {cut} were cut by the crash"
            ));
        }
        Ok(())
    }
}

fn same(name: &str, mine: &[Value], theirs: &[Value]) -> Result<(), String> {
    if mine == theirs {
        return Ok(());
    }
    let at = mine.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    let show =
        |events: &[Value]| events.get(at).map_or_else(|| "nothing".to_owned(), |event| short(&event.to_string()));
    let rest: Vec<&str> = theirs.iter().filter_map(|event| event["type"].as_str()).collect();
    Err(format!("{name}, event {at}:\n  {}\ninstead of\n  {}\nof {rest:?}", show(theirs), show(mine)))
}

fn short(text: &str) -> String {
    text.chars().take(900).collect()
}
