//! The remaining limits of a thread, and the money that its living children hold.

use rye_compiler::plan::PlanLimits;

use super::{Attempt, ChildState, ThreadState};
use crate::event::ChildSpawned;
use crate::thread::Cost;

impl ThreadState {
    /// Returns the nano-dollars that the run, or the current prompt of a chat, may still spend: the smaller of the rest
    /// of its own limit and the rest of the limit of the thread.
    pub fn available_spend(&self) -> u64 {
        self.prompt_headroom().min(self.session_headroom())
    }

    /// Returns the nano-dollars of the `spend` limit that are neither spent nor reserved for a living child. In a chat,
    /// only the children of the current prompt count. The money that is still reserved for descendants of ended
    /// children (`Cost::outstanding`) of the prompt is then subtracted too, because the thread does not see the end of
    /// these descendants.
    pub fn prompt_headroom(&self) -> u64 {
        self.headroom(self.limits.spend, self.held_by_prompt())
    }

    /// Returns the nano-dollars of the thread's limit that are neither spent nor reserved for a living child of any
    /// prompt.
    fn session_headroom(&self) -> u64 {
        self.headroom(self.thread_limits.spend, self.held_by_children())
    }

    fn headroom(&self, limit: u64, held: u64) -> u64 {
        let current = self.chat.as_ref().and_then(|chat| chat.current);
        let outstanding = current.map_or(0, |current| self.cost.since(&current.cost_before).outstanding);
        limit.saturating_sub(self.cost.spend).saturating_sub(held).saturating_sub(outstanding)
    }

    /// Returns the nano-dollars that are reserved for living children.
    fn held_by_children(&self) -> u64 {
        self.living_children().map(|(_, child)| child.spend).sum()
    }

    /// Returns the nano-dollars that are reserved for living children of the run or of the current prompt.
    fn held_by_prompt(&self) -> u64 {
        self.living_children().filter(|(_, child)| self.is_of_prompt(child)).map(|(_, child)| child.spend).sum()
    }

    /// Returns true if the run or the current prompt has started the child. False for a child of an earlier prompt,
    /// whose reservation and cost count towards that prompt.
    pub fn is_of_prompt(&self, child: &ChildState) -> bool {
        child.prompt == self.prompt_number()
    }

    /// Returns the number of the current prompt; `None` in a run and in an idle chat.
    pub fn prompt_number(&self) -> Option<u64> {
        self.chat.as_ref().and_then(|chat| chat.current).map(|current| current.number)
    }

    /// Returns the cost of the current prompt. Money that is reserved for its living children is added to
    /// `outstanding`.
    pub fn prompt_cost(&self) -> Cost {
        let cost = self.cost.since(&self.before_prompt().0);
        Cost { outstanding: cost.outstanding.saturating_add(self.held_by_prompt()), ..cost }
    }

    /// Returns the cost of the thread if it ends now. Money reserved for living children is added to `outstanding`.
    pub fn final_cost(&self) -> Cost {
        Cost {
            outstanding: self.cost.outstanding.saturating_add(self.held_by_children()),
            approval_wait_ms: u64::try_from(self.clock.approval_wait_ms).unwrap_or(0),
            ..self.cost
        }
    }

    /// Returns the cost of the thread if it ends now and another thread continues it. The money that is reserved for
    /// the children that the continuation takes over is a cost of the continuation.
    pub fn cost_before_continuation(&self) -> Cost {
        let cost = self.final_cost();
        Cost { outstanding: cost.outstanding.saturating_sub(self.held_by_continued()), ..cost }
    }

    /// Returns the nano-dollars that are reserved for the children that a continuation takes over.
    pub fn held_by_continued(&self) -> u64 {
        self.children_to_continue().iter().map(|child| child.spend).sum()
    }

    /// Returns the current limits of the thread, with the amount that the account of the thread then contains as
    /// `spend`. `None` if no limit was raised, and no end of a child of an earlier thread had returned money when the
    /// attempt was intended.
    pub fn raised_limits(&self, attempt: &Attempt) -> Option<PlanLimits> {
        let limits = self.thread_limits;
        let is_raised = self.launch.as_ref().is_none_or(|launch| launch.limits != limits);
        let continued = self.children.values().filter(|child| child.is_continued());
        let has_returned = attempt.withheld < continued.map(|child| child.spend).sum();
        let spend = limits.spend.saturating_sub(attempt.withheld);
        (is_raised || has_returned).then_some(PlanLimits { spend, ..limits })
    }

    /// Returns the rest of the reservation of an ended child that an earlier thread started: to the account of this
    /// thread or, if it has a parent, to the parent. The spend limit of this thread then decreases, because the parent
    /// may already have spent the amount.
    pub(in crate::machine) fn return_reservation(&mut self, rest: u64) {
        self.withheld = self.withheld.saturating_sub(rest);
        if self.launch.as_ref().is_some_and(|launch| launch.parent.is_some()) {
            for limits in [&mut self.thread_limits, &mut self.limits] {
                limits.spend = limits.spend.saturating_sub(rest);
            }
        }
    }

    /// Returns the living children that the continuation of this thread takes over: the asynchronous ones. Their
    /// reservations become part of the spend limit of the continuation.
    pub fn children_to_continue(&self) -> Vec<ChildSpawned> {
        let detached = self.living_children().filter(|(_, child)| child.detached);
        let continued = detached.filter_map(|(spawn, child)| {
            Some(ChildSpawned { spawn, thread_id: child.thread_id.clone()?, spend: child.spend })
        });
        continued.collect()
    }

    /// Returns the limits of a continuation: the rest of this thread's limits, without money held for living children.
    pub fn remaining_limits(&self) -> PlanLimits {
        self.remaining_of(&self.thread_limits, self.session_headroom())
    }

    /// Returns the rest of the limits of the run or of the current prompt.
    pub fn remaining_prompt_limits(&self) -> PlanLimits {
        self.remaining_of(&self.limits, self.available_spend())
    }

    /// Returns the remaining part of these limits, which are totals since the start of the thread. `spend` is the
    /// remaining part of the spend limit.
    fn remaining_of(&self, limits: &PlanLimits, spend: u64) -> PlanLimits {
        let cost = &self.cost;
        PlanLimits {
            turns: limits.turns.saturating_sub(cost.turns),
            tokens: limits.tokens.saturating_sub(cost.input_tokens + cost.output_tokens),
            spend,
            spawns: limits.spawns.saturating_sub(self.spawned()),
            duration_seconds: limits.duration_seconds.saturating_sub(self.clock.elapsed_ms() / 1000),
            ..*limits
        }
    }

    /// Excludes the cost of a child of an earlier prompt from the current prompt: the cost before the prompt and the
    /// limit of the prompt rise by the same amount. The limit never exceeds the limit of the thread.
    pub(in crate::machine) fn charge_earlier_prompt(&mut self, cost: &Cost) {
        if let Some(current) = self.chat.as_mut().and_then(|chat| chat.current.as_mut()) {
            let before = &mut current.cost_before;
            before.spend = before.spend.saturating_add(cost.spend);
            before.outstanding = before.outstanding.saturating_add(cost.outstanding);
            self.limits.spend = self.limits.spend.saturating_add(cost.spend).min(self.thread_limits.spend);
        }
    }
}
