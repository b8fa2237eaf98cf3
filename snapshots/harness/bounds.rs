//! The bounds that a plan states, compared with the threads of its run.

use std::collections::BTreeSet;

use rye_compiler::plan::Plan;
use rye_compiler::report::run_bounds::WorstCase;
use rye_compiler::semantics::limits::LimitName;
use rye_engine::event::{EventBody, ThreadHead};
use rye_engine::threads::Threads;

/// Totals of a run: the root with its continuations, and the tree below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunTotals {
    /// Number of replies that the root and its continuations got.
    pub turns: u64,
    /// Number of turns of the root and its continuations that made a call, including turns without a reply.
    pub started_turns: u64,
    /// Number of threads of the tree; a thread counts once with its continuations.
    pub threads: u64,
    /// Number of continuations of all threads of the tree.
    pub continuations: u64,
    /// The amount that all threads of the tree spent, in nano-dollars.
    pub spent: u64,
    /// The limit that stopped the root or the last of its continuations; `None` if no limit stopped it.
    pub stopped_by: Option<LimitName>,
    /// Part of `spent` above the reservations, because the script reported more usage than the requests allow.
    pub overspent: u64,
}

/// Sums the usage of all threads of a project in which one run was made, and compares the totals with the bounds of the
/// run's plan.
///
/// # Errors
/// The run exceeds a bound, or a transcript cannot be read.
pub fn check_run_bounds(plan: &Plan, threads: &Threads) -> Result<RunTotals, String> {
    let mut totals = RunTotals::default();
    for listed in threads.list().map_err(|error| error.to_string())? {
        let events = threads.transcript(&listed.row.id).map_err(|error| error.to_string())?;
        let ThreadHead { opened, continues, .. } = ThreadHead::of(&events);
        totals.threads += u64::from(continues.is_none());
        totals.continuations += u64::from(continues.is_some());
        let is_root = opened.is_some_and(|opened| opened.parent.is_none());
        let mut started = BTreeSet::new();
        for event in &events {
            if let EventBody::AttemptIntended(intended) = &event.body
                && is_root
                && !intended.compacts
            {
                started.insert(intended.turn);
            }
            if let EventBody::Settled(settled) = &event.body {
                totals.spent = totals.spent.saturating_add(settled.amount);
                totals.overspent = totals.overspent.saturating_add(settled.overspent);
            }
            totals.turns += u64::from(is_root && matches!(event.body, EventBody::CognitionOut(_)));
            if let EventBody::Ended(ended) = &event.body {
                let code = ended.error.as_ref().map(|error| error.code.as_str());
                let limit = code.and_then(|code| code.strip_suffix("_exceeded")).and_then(LimitName::parse);
                totals.stopped_by = limit.filter(|_| is_root).or(totals.stopped_by);
            }
        }
        totals.started_turns += started.len() as u64;
    }
    let WorstCase { cost, .. } = plan.bound_cost();
    let most = cost.map(|cost| cost.to_u64().saturating_add(totals.overspent));
    if most.is_some_and(|most| totals.spent > most) {
        return Err(format!("{}: {totals:?} exceeds the worst case {cost:?}", plan.directive));
    }
    let most = plan.bound_turns().at_most;
    if most.is_some_and(|most| totals.turns > most.turns) {
        return Err(format!("{}: {totals:?} exceeds {most:?}", plan.directive));
    }
    let least = plan.bound_turns().at_least;
    let is_counted = |limit| matches!(limit, LimitName::Turns | LimitName::Tokens | LimitName::Spend);
    if totals.stopped_by.is_some_and(is_counted) && totals.started_turns < least.turns {
        return Err(format!("{}: {totals:?} has less than {least:?}", plan.directive));
    }
    let most = plan.bound_threads().threads;
    if most.is_some_and(|most| totals.threads > most) {
        return Err(format!("{}: {totals:?} exceeds {most:?} threads", plan.directive));
    }
    Ok(totals)
}
