//! Folds one transcript into the registry's data about its thread. The functions are pure.

use std::collections::BTreeMap;

use rye_compiler::plan::PlanLimits;

use super::super::{LedgerStep, ThreadRow};
use crate::event::{ChildEnded, ControlMessage, Event, EventBody, HookOutcome, ThreadHead, ThreadOrigin};
use crate::exchange::Usage;
use crate::thread::{Cost, Status};
use crate::thread_id::ThreadId;

/// The registry's data about a thread, derived from its transcript.
#[derive(Debug)]
pub struct FoldedThread {
    pub row: ThreadRow,
    /// Children by spawn number.
    pub children: BTreeMap<u64, RecordedChild>,
    /// Ledger steps of the thread, without those that open and close its account.
    pub steps: Vec<LedgerStep>,
    /// Nano-dollars that are reserved for the thread, after all accepted raises.
    pub reserved: u64,
    /// Cost of all settled attempts of the thread, in nano-dollars.
    pub spent: u64,
    /// Worst-case cost of each attempt without a settlement, in nano-dollars, by turn and attempt.
    pub issued: BTreeMap<(u64, u32), u64>,
    /// True if the account of the thread was closed. False for a suspended thread and a closed session, which keep
    /// their accounts.
    pub has_ended: bool,
    pub origin: ThreadOrigin,
    /// True if the thread can have taken over the account of the thread that it continues. This applies to handoffs,
    /// and to forks and replans within a chat. A fork or replan that a command starts has an account of its own.
    pub can_take_over: bool,
    /// Time of the first line in milliseconds since 1970, and the nano-dollars that are reserved at that time.
    pub opened: (i64, u64),
    /// True if a raise of the thread's limits was requested.
    pub is_raised: bool,
    /// Spawn limit of the thread at the time of its first line.
    pub opened_spawns: u64,
}

/// A child as the transcript of its parent records it.
#[derive(Debug)]
pub struct RecordedChild {
    pub thread: ThreadId,
    /// Nano-dollars reserved for the child.
    pub spend: u64,
    pub has_ended: bool,
}

struct RegistryFold {
    row: ThreadRow,
    children: BTreeMap<u64, RecordedChild>,
    steps: Vec<LedgerStep>,
    /// The spend limit in nano-dollars and the spawn limit. Both limits include every requested raise, while the ledger
    /// applies a raise only when it reserves the next attempt.
    limits: (u64, u64),
    /// The highest values to which the spend limit (in nano-dollars) and the spawn limit can be raised.
    ceiling: (u64, u64),
    is_raised: bool,
    /// Reservations in nano-dollars of the children that the thread has taken over from an earlier thread, by spawn
    /// number. A child that has ended is removed.
    continued: BTreeMap<u64, u64>,
    /// Nano-dollars of the spend limit that the account does not contain: money that children taken over from an
    /// earlier thread have spent, or that is reserved for them.
    withheld: u64,
    /// True for a chat. In a chat, a raise applies only to the limits of a prompt.
    is_chat: bool,
    reserved: u64,
    /// Nano-dollars that are reserved when the thread starts.
    opened_reserved: u64,
    /// Nano-dollars that are reserved for the thread after the reservation of the last intended attempt. The end of a
    /// child does not change this amount if the end is recorded after the intent.
    intended_reservation: u64,
    /// The spend limit in nano-dollars, after the raises that the ledger has applied.
    spend_limit: u64,
    spent: u64,
    issued: BTreeMap<(u64, u32), u64>,
    /// Attempts, by turn and number, for which only the intent is recorded: the model call may have been made. The
    /// values are the worst-case costs in nano-dollars.
    intended: BTreeMap<(u64, u32), u64>,
    has_ended: bool,
}

/// Folds the events of a thread; `None` if the first event is not `opened`, or names an invalid id.
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
    let PlanLimits { spend, spawns, .. } = opened.limits;
    let mut fold = RegistryFold {
        row,
        children: BTreeMap::new(),
        steps: Vec::new(),
        limits: (spend, spawns),
        ceiling: opened.ceiling.map_or((u64::MAX, u64::MAX), |ceiling| (ceiling.spend, ceiling.spawns)),
        is_raised: false,
        continued: BTreeMap::new(),
        withheld: 0,
        is_chat: opened.origin == ThreadOrigin::Chat,
        reserved: spend,
        opened_reserved: spend,
        intended_reservation: spend,
        spend_limit: spend,
        spent: 0,
        issued: BTreeMap::new(),
        intended: BTreeMap::new(),
        has_ended: false,
    };
    for event in events {
        fold.event(event);
    }
    fold.issue_intended();
    let can_take_over = match opened.origin {
        ThreadOrigin::Handoff => true,
        // Only a fork or replan that a command starts has a message, which is its first prompt.
        ThreadOrigin::Fork | ThreadOrigin::Replan => {
            ThreadHead::of(events).continues.is_none_or(|continues| continues.message.is_none())
        }
        ThreadOrigin::Run | ThreadOrigin::Chat | ThreadOrigin::Child | ThreadOrigin::Resume => false,
    };
    let RegistryFold {
        row,
        children,
        steps,
        reserved,
        opened_reserved,
        is_raised,
        is_chat,
        spent,
        issued,
        has_ended,
        ..
    } = fold;
    let opened_at = (first.ts, opened_reserved);
    let (origin, has_ended) = (opened.origin, has_ended && !row.status.is_parked());
    Some(FoldedThread {
        row,
        children,
        steps,
        reserved,
        spent,
        issued,
        has_ended,
        origin,
        can_take_over,
        opened: opened_at,
        is_raised: is_raised && !is_chat,
        opened_spawns: spawns,
    })
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
                self.continued = continues.children.iter().map(|child| (child.spawn, child.spend)).collect();
                self.withheld = self.continued.values().fold(0, |sum, held| sum.saturating_add(*held));
                self.opened_reserved = self.opened_reserved.saturating_sub(self.withheld);
                (self.reserved, self.intended_reservation) = (self.opened_reserved, self.opened_reserved);
                self.is_chat |= continues.prompt.is_some();
            }
            EventBody::AttemptIntended(attempt) => {
                self.mark_running();
                self.intended.insert((attempt.turn, attempt.attempt), attempt.worst_case);
                self.intended_reservation = self.spend_limit.saturating_sub(self.withheld);
            }
            EventBody::Reserved(reserved) => {
                self.intended.remove(&(reserved.turn, reserved.attempt));
                self.issue((reserved.turn, reserved.attempt), reserved.amount);
            }
            EventBody::Settled(settled) => {
                let attempt = (settled.turn, settled.attempt);
                if let Some(worst_case) = self.intended.remove(&attempt) {
                    self.issue(attempt, worst_case);
                }
                self.issued.remove(&attempt);
                self.spent = self.spent.saturating_add(settled.amount);
                self.row.cost.spend = self.row.cost.spend.saturating_add(settled.amount);
                self.add(settled.usage);
                let step = LedgerStep::settle(&self.row.id, settled.turn, settled.attempt, settled.amount);
                self.steps.push(step);
            }
            EventBody::PromptStarted(_) => self.is_chat = true,
            EventBody::CognitionOut(_) => {
                self.mark_running();
                self.row.cost.turns += 1;
            }
            EventBody::ChildSpawned(child) => {
                let Ok(id) = ThreadId::parse(&child.thread_id) else { return };
                let step = LedgerStep::child(&self.row.id, child.spawn, &id, Some(child.spend), 0);
                self.steps.push(step);
                self.children.insert(child.spawn, RecordedChild { thread: id, spend: child.spend, has_ended: false });
            }
            EventBody::ChildEnded(child) => self.child_ended(child),
            EventBody::Mail(mail) => {
                if let ControlMessage::Raise { limit, value } = &mail.message {
                    self.raise(limit, *value);
                }
            }
            EventBody::HookPoint(run) => {
                if let HookOutcome::Raise { limit, value } = &run.answer {
                    self.raise(limit, *value);
                }
            }
            // An intended attempt that a limit stopped was never made.
            EventBody::Limit(_) => self.intended.clear(),
            EventBody::Ended(ended) => {
                self.intended.clear();
                self.row.status = ended.status;
                self.row.cost = ended.cost;
                self.has_ended = true;
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
            | EventBody::Checkpoint(_)
            | EventBody::UserInput(_)
            | EventBody::Retracted(_)
            | EventBody::Named(_)
            | EventBody::ShellRan(_)
            | EventBody::FileChanged(_)
            | EventBody::CommandRan(_)
            | EventBody::PromptEnded(_) => {}
        }
    }

    /// Records the end of a child. If the child was taken over from an earlier thread, returns the rest of its
    /// reservation.
    fn child_ended(&mut self, child: &ChildEnded) {
        if let Some(held) = self.continued.remove(&child.spawn) {
            let used = child.cost.spend.saturating_add(child.cost.outstanding);
            let rest = held.saturating_sub(used);
            self.withheld = self.withheld.saturating_sub(rest);
            // The parent of this thread gets the rest.
            if self.row.parent.is_some() {
                self.spend_limit = self.spend_limit.saturating_sub(rest);
                self.limits.0 = self.limits.0.saturating_sub(rest);
            }
        }
        if let Some(recorded) = self.children.get_mut(&child.spawn) {
            recorded.has_ended = !child.status.is_parked();
        }
        let cost = &mut self.row.cost;
        cost.input_tokens = cost.input_tokens.saturating_add(child.cost.input_tokens);
        cost.output_tokens = cost.output_tokens.saturating_add(child.cost.output_tokens);
        cost.cached_tokens = cost.cached_tokens.saturating_add(child.cost.cached_tokens);
        cost.spend = cost.spend.saturating_add(child.cost.spend);
    }

    /// Records that a limit was raised to `value`. A value above the ceiling counts as the ceiling.
    fn raise(&mut self, limit: &str, value: u64) {
        let (spend, spawns) = &mut self.limits;
        let (limit, most) = match limit {
            "spend" => (spend, self.ceiling.0),
            "spawns" => (spawns, self.ceiling.1),
            _ => {
                self.is_raised = true;
                return;
            }
        };
        if value.min(most) > *limit {
            *limit = value.min(most);
            self.is_raised = true;
        }
    }

    /// Marks the thread as running, possibly again after a suspension.
    fn mark_running(&mut self) {
        self.row.status = Status::Running;
        self.has_ended = false;
    }

    /// Adds the reservation of `amount`, the worst-case cost of an attempt, to the ledger steps of the thread. In a
    /// run, a raise of limits takes effect with the next reservation, so the raised limits are applied first. The same
    /// applies to money that the end of a child has returned.
    fn issue(&mut self, (turn, attempt): (u64, u32), amount: u64) {
        let is_raised = self.is_raised && !self.is_chat;
        if is_raised {
            (self.spend_limit, self.row.spawns) = (self.limits.0, Some(self.limits.1));
        }
        let reserved =
            if is_raised { self.spend_limit.saturating_sub(self.withheld) } else { self.intended_reservation };
        if is_raised || reserved != self.reserved {
            self.reserved = reserved;
            self.steps.push(LedgerStep::raise(&self.row.id, self.reserved));
        }
        self.issued.insert((turn, attempt), amount);
        self.steps.push(LedgerStep::issue(&self.row.id, turn, attempt, amount));
    }

    fn issue_intended(&mut self) {
        for (attempt, worst_case) in std::mem::take(&mut self.intended) {
            self.issue(attempt, worst_case);
        }
    }

    fn add(&mut self, usage: Usage) {
        let cost: &mut Cost = &mut self.row.cost;
        let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        cost.input_tokens = cost.input_tokens.saturating_add(input);
        cost.output_tokens = cost.output_tokens.saturating_add(usage.output);
        cost.cached_tokens = cost.cached_tokens.saturating_add(usage.cache_read);
    }
}
