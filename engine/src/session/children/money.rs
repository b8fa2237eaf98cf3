//! The reservations and the registry rows of new children. One commit writes them for all children of a group of calls.

use std::sync::Arc;

use rye_compiler::semantics::ledger::{LedgerReply as LedgerAnswer, Operation, Refusal};
use rye_compiler::semantics::money::Nanos;

use super::start::SpawningThread;
use super::{ChildFunding, ChildRefusal, CreatedChild, IdentifiedChild};
use crate::context::EngineContext;
use crate::error::DriveError;
use crate::store::registry::LedgerStepKey;
use crate::store::{Change, ChangeResult, LedgerStep, ThreadRow};
use crate::thread::Status;
use crate::thread_id::ThreadId;

impl EngineContext {
    /// Commits the registry rows and the reservations of the children. Returns, in the order of the children, each
    /// created child or the reason of its refusal.
    pub(super) async fn reserve_for_children(
        self: &Arc<Self>,
        parent: &SpawningThread,
        children: &[IdentifiedChild],
        terms: &ChildFunding,
    ) -> Result<Vec<Result<CreatedChild, ChildRefusal>>, DriveError> {
        if children.is_empty() {
            return Ok(Vec::new());
        }
        let root = ThreadId::parse(&parent.launch.root).map_err(|e| DriveError::Plan(e.reason))?;
        let ids: Vec<ThreadId> = children.iter().map(|child| child.id.clone()).collect();
        let (left, held) = self.available_for_children(&parent.id, terms, ids).await?;
        let mut left_in_prompt = terms.prompt_spend.map(|_| left);
        let mut lists = vec![parent.settlements.clone()];
        let mut answers: Vec<Option<Result<CreatedChild, ChildRefusal>>> = Vec::with_capacity(children.len());
        for (child, held) in children.iter().zip(held) {
            let (plan, named) = (&child.planned.plan, child.planned.requested_spend);
            let share = plan.limits.spend.min(left / terms.siblings);
            // A reservation made before a crash is confirmed again, even if less money is left now.
            if !held && named.is_none() && share == 0 && plan.model.prices.is_some() {
                answers.push(Some(Err(ChildRefusal::from(
                    "spend_exceeded: no money is available for a child".to_owned(),
                ))));
                continue;
            }
            let share = left_in_prompt.map_or(share, |left| share.min(left));
            let wanted = named.unwrap_or(share);
            if let Some(left) = left_in_prompt.as_mut().filter(|_| !held) {
                let Some(rest) = left.checked_sub(wanted) else {
                    let (requested, left) = (Nanos::from_u64(wanted), Nanos::from_u64(*left));
                    let refusal = render_reservation_refusal(&Refusal::MoreThanIsLeft { requested, left });
                    answers.push(Some(Err(refusal.into())));
                    continue;
                };
                *left = rest;
            }
            answers.push(None);
            let mut row = ThreadRow::new(child.id.clone(), plan.directive.as_str(), self.clock.now());
            row.status = Status::Running;
            row.owner = Some(self.owner.id().clone());
            row.root = root.clone();
            row.plan_id = Some(child.planned.plan_id.clone());
            row.tool = child.planned.call.as_ref().and_then(|call| call.item_id()).map(str::to_owned);
            row.spawns = Some(plan.limits.spawns);
            let spawn = child.spawn;
            let mut list = Vec::new();
            if terms.turn_reserve > 0 {
                list.push(Change::Ledger(LedgerStep {
                    thread: parent.id.clone(),
                    step: LedgerStepKey::Other(format!("keep.{spawn}")),
                    operation: Operation::SetParentReserve {
                        thread: parent.id.to_string(),
                        amount: Nanos::from_u64(terms.turn_reserve),
                    },
                }));
            }
            list.push(Change::SpawnLimit { parent: parent.id.clone(), spawn });
            list.push(Change::Ledger(LedgerStep::child(&parent.id, spawn, &child.id, named, share)));
            list.push(Change::Spawn { parent: parent.id.clone(), spawn, child: Box::new(row) });
            if child.known {
                let (thread, owner) = (child.id.clone(), self.owner.id().clone());
                list.push(Change::Own { thread, owner, now: self.clock.now() });
            }
            lists.push(list);
        }
        let mut committed = self.writer.commit_lists(lists).await?.into_iter().skip(1);
        let decide = |(child, answer): (&IdentifiedChild, Option<Result<CreatedChild, ChildRefusal>>)| {
            answer.unwrap_or_else(|| to_created_child(child, committed.next().unwrap_or_default()))
        };
        Ok(children.iter().zip(answers).map(decide).collect())
    }

    /// Returns the nano-dollars that children can get once the pending settlements are booked. Also returns, for each
    /// child, true if the child already holds a reservation.
    async fn available_for_children(
        &self,
        parent: &ThreadId,
        terms: &ChildFunding,
        children: Vec<ThreadId>,
    ) -> Result<(u64, Vec<bool>), DriveError> {
        let id = parent.clone();
        let (account, held) = self
            .read_registry(move |registry| {
                let held: Result<Vec<bool>, _> =
                    children.iter().map(|child| Ok(registry.account(child)?.is_some())).collect();
                Ok((registry.account(&id)?, held?))
            })
            .await?;
        let Some(account) = account else { return Ok((0, held)) };
        let mut left = account.remaining().to_u64();
        for settled in &terms.unsettled {
            let issued = account.issued(&format!("{}.{}", settled.turn, settled.attempt)).to_u64();
            left = left.saturating_add(issued.saturating_sub(settled.amount));
        }
        let left = terms.prompt_spend.map_or(left, |of_prompt| left.min(of_prompt));
        Ok((left.saturating_sub(terms.turn_reserve), held))
    }
}

/// Builds the created child from the registry's answers. The error is the reason of a refusal: the money cannot be
/// reserved, or the limit `spawns` is reached.
fn to_created_child(child: &IdentifiedChild, answers: Vec<ChangeResult>) -> Result<CreatedChild, ChildRefusal> {
    let spend = child.planned.plan.limits.spend;
    let mut made = CreatedChild { thread: child.id.clone(), spend, started: false };
    for answer in answers {
        match answer {
            ChangeResult::Ledger(LedgerAnswer::Reserved { amount }) => made.spend = amount.to_u64(),
            ChangeResult::Ledger(LedgerAnswer::Refused { refusal }) => {
                return Err(render_reservation_refusal(&refusal).into());
            }
            ChangeResult::TooMany { limit, .. } => return Err(ChildRefusal::limit("spawns_exceeded", limit, limit)),
            ChangeResult::Child(thread) => made.thread = thread,
            // Another process acquired the child before its parent was recovered.
            ChangeResult::OwnedBy(_) | ChangeResult::HasEnded => made.started = true,
            ChangeResult::Done
            | ChangeResult::NoThread(_)
            | ChangeResult::Ledger(LedgerAnswer::Done | LedgerAnswer::Remaining { .. }) => {}
        }
    }
    Ok(made)
}

/// Renders a refused reservation, for the model.
fn render_reservation_refusal(refusal: &Refusal) -> String {
    if let Refusal::MoreThanIsLeft { requested, left } = refusal {
        // The amount is negative if the thread must keep more for its next turn than it has.
        let left = (*left).max(Nanos::ZERO);
        return format!(
            "spend_exceeded: the child requires ${requested}, but only ${left} of this thread's budget is left for children"
        );
    }
    format!("spend_exceeded: no money could be reserved for the child: {refusal}")
}
