//! Folds one transcript into the registry's data about its thread. Pure.

use std::collections::BTreeMap;

use super::super::{LedgerStep, ThreadRow};
use crate::event::{ControlMessage, Event, EventBody, HookOutcome, ThreadOrigin};
use crate::exchange::Usage;
use crate::thread::{Cost, Status};
use crate::thread_id::ThreadId;

/// The registry's data about a thread, derived from its transcript.
#[derive(Debug)]
pub struct FoldedThread {
    pub row: ThreadRow,
    /// Children by spawn number.
    pub children: BTreeMap<u64, ThreadId>,
    /// Ledger steps of the thread, each with its time in milliseconds since 1970.
    pub steps: Vec<(i64, LedgerStep)>,
    /// The reservation of a thread that continues another one after a handoff, in nano-dollars; `None` for any other
    /// thread.
    pub handed_off: Option<u64>,
    /// Time of the first line, and spend limit in nano-dollars at that time.
    pub opened: (i64, u64),
}

struct RegistryFold {
    row: ThreadRow,
    children: BTreeMap<u64, ThreadId>,
    steps: Vec<(i64, LedgerStep)>,
    /// The current spend limit.
    spend: u64,
    /// The highest value to which the spend limit can be raised.
    ceiling: u64,
    /// Attempts that are only known to be intended: the model call may have been made. Each has the time of its intent,
    /// and its worst case in nano-dollars.
    intended: BTreeMap<(u64, u32), (i64, u64)>,
    ended_at: Option<i64>,
}

/// Folds the events of a thread; `None` if they do not start with `opened`.
pub fn fold(thread: &ThreadId, events: &[Event]) -> Option<FoldedThread> {
    let first = events.first()?;
    let EventBody::Opened(opened) = &first.body else { return None };
    let mut row = ThreadRow::new(thread.clone(), opened.directive.clone(), first.ts);
    row.root = ThreadId::parse(&opened.root).ok()?;
    row.spawns = Some(opened.limits.spawns);
    row.tool = opened.tool().map(str::to_owned);
    if let Some(link) = &opened.parent {
        row.parent = Some(ThreadId::parse(&link.thread_id).ok()?);
        row.spawn = Some(link.spawn);
    }
    let mut fold = RegistryFold {
        row,
        children: BTreeMap::new(),
        steps: Vec::new(),
        spend: opened.limits.spend,
        ceiling: opened.ceiling.map_or(u64::MAX, |ceiling| ceiling.spend),
        intended: BTreeMap::new(),
        ended_at: None,
    };
    let handed_off = (opened.origin == ThreadOrigin::Handoff).then_some(opened.limits.spend);
    if opened.parent.is_none() && handed_off.is_none() {
        fold.steps.push((first.ts, LedgerStep::register(thread, opened.limits.spend)));
    }
    for event in events {
        fold.event(event);
    }
    Some(FoldedThread { handed_off, opened: (first.ts, opened.limits.spend), ..fold.end() })
}

impl RegistryFold {
    fn event(&mut self, event: &Event) {
        let ts = event.ts;
        self.row.updated_at = ts;
        match &event.body {
            EventBody::PlanBound(bound) => self.row.plan_id = Some(bound.plan_id.clone()),
            EventBody::Continues(continues) => {
                let before = continues.after.as_ref().unwrap_or(&continues.thread);
                self.row.continues = ThreadId::parse(before).ok();
            }
            EventBody::AttemptIntended(attempt) => {
                self.mark_running();
                self.intended.insert((attempt.turn, attempt.attempt), (ts, attempt.worst_case));
            }
            EventBody::Reserved(reserved) => {
                self.intended.remove(&(reserved.turn, reserved.attempt));
                self.issue(ts, (reserved.turn, reserved.attempt), reserved.amount);
            }
            EventBody::Settled(settled) => {
                self.intended.remove(&(settled.turn, settled.attempt));
                self.row.cost.spend = self.row.cost.spend.saturating_add(settled.amount);
                self.add(settled.usage);
                let step = LedgerStep::settle(&self.row.id, settled.turn, settled.attempt, settled.amount);
                self.steps.push((ts, step));
            }
            EventBody::CognitionOut(_) => {
                self.mark_running();
                self.row.cost.turns += 1;
            }
            EventBody::ChildSpawned(child) => {
                let Ok(id) = ThreadId::parse(&child.thread_id) else { return };
                let step = LedgerStep::child(&self.row.id, child.spawn, &id, Some(child.spend), 0);
                self.steps.push((ts, step));
                self.children.insert(child.spawn, id);
            }
            EventBody::ChildEnded(child) => {
                let cost = &mut self.row.cost;
                cost.input_tokens = cost.input_tokens.saturating_add(child.cost.input_tokens);
                cost.output_tokens = cost.output_tokens.saturating_add(child.cost.output_tokens);
                cost.cached_tokens = cost.cached_tokens.saturating_add(child.cost.cached_tokens);
                cost.spend = cost.spend.saturating_add(child.cost.spend);
            }
            EventBody::Mail(mail) => {
                if let ControlMessage::Raise { limit, value } = &mail.message {
                    self.raise(ts, limit, *value);
                }
            }
            EventBody::HookPoint(run) => {
                if let HookOutcome::Raise { limit, value } = &run.answer {
                    self.raise(ts, limit, *value);
                }
            }
            // An intended attempt that a limit stopped was never made.
            EventBody::Limit(_) => self.intended.clear(),
            EventBody::Ended(ended) => {
                self.intended.clear();
                self.row.status = ended.status;
                self.row.cost = ended.cost;
                self.ended_at = Some(ts);
            }
            EventBody::Recovered(_)
            | EventBody::ApprovalGiven(_)
            | EventBody::CognitionIn(_)
            | EventBody::ToolStarted(_) => self.mark_running(),
            EventBody::Opened(_)
            | EventBody::SystemPrompt(_)
            | EventBody::ContextInjected(_)
            | EventBody::AttemptFailed(_)
            | EventBody::ToolCallResult(_)
            | EventBody::ChildIntended(_)
            | EventBody::ApprovalAsked(_)
            | EventBody::StateSet(_)
            | EventBody::Compacted(_)
            | EventBody::ArtifactStored(_)
            | EventBody::Checkpoint(_)
            | EventBody::UserInput(_)
            | EventBody::Retracted(_)
            | EventBody::Named(_)
            | EventBody::ShellRan(_)
            | EventBody::FileChanged(_)
            | EventBody::CommandRan(_)
            | EventBody::PromptStarted(_)
            | EventBody::PromptEnded(_) => {}
        }
    }

    /// Applies a raised limit: the ledger tracks spend, the row tracks spawns.
    fn raise(&mut self, ts: i64, limit: &str, value: u64) {
        if limit == "spawns" {
            self.row.spawns = self.row.spawns.max(Some(value));
        }
        let value = value.min(self.ceiling);
        if limit == "spend" && value > self.spend {
            self.spend = value;
            self.steps.push((ts, LedgerStep::raise(&self.row.id, value)));
        }
    }

    /// Marks the thread as running, possibly again after a suspension.
    fn mark_running(&mut self) {
        self.row.status = Status::Running;
        self.ended_at = None;
    }

    fn issue(&mut self, ts: i64, (turn, attempt): (u64, u32), amount: u64) {
        self.steps.push((ts, LedgerStep::issue(&self.row.id, turn, attempt, amount)));
    }

    fn add(&mut self, usage: Usage) {
        let cost: &mut Cost = &mut self.row.cost;
        let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        cost.input_tokens = cost.input_tokens.saturating_add(input);
        cost.output_tokens = cost.output_tokens.saturating_add(usage.output);
        cost.cached_tokens = cost.cached_tokens.saturating_add(usage.cache_read);
    }

    fn end(mut self) -> FoldedThread {
        for (attempt, (ts, worst_case)) in std::mem::take(&mut self.intended) {
            self.issue(ts, attempt, worst_case);
        }
        // A suspended thread and a closed session keep their accounts, because both can continue.
        if let Some(ts) = self.ended_at
            && !self.row.status.is_parked()
        {
            self.steps.push((ts, LedgerStep::end(&self.row.id)));
        }
        FoldedThread { row: self.row, children: self.children, steps: self.steps, handed_off: None, opened: (0, 0) }
    }
}
