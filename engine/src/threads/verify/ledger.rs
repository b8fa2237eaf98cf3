//! Comparison of the registry with the transcripts: the cost in each row, and the account of each thread of a tree.

use crate::store::spilled::restore_event;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rye_compiler::semantics::ledger::{Account, AccountStatus};

use super::super::Threads;
use super::Verifier;
use crate::event::{Event, EventBody};
use crate::store::registry::{fold_handed_over, fold_reservation};
use crate::store::{Objects, StoreError, ThreadRow, layout, transcript};
use crate::thread::{Cost, Status};
use crate::thread_id::ThreadId;

/// The money of the threads of one tree. INVARIANT: no thread of the tree runs, so that the ledger contains everything
/// that the transcripts state.
pub(super) struct TreeMoney {
    threads: BTreeMap<ThreadId, ThreadMoney>,
}

struct ThreadMoney {
    row: ThreadRow,
    account: Option<Account>,
    /// Cost of the thread's own attempts, in nano-dollars.
    own: u64,
    /// Cost of the thread when it last ended; `None` if the transcript contains no end.
    ended: Option<Cost>,
    /// The reservation that the account should have, in nano-dollars: the spend limit of the thread at its start, minus
    /// the amount that its continuation took over. `None` if the limit was raised later: the ledger may have refused
    /// the raise, so the expected reservation is unknown.
    reserved: Option<u64>,
}

impl Threads {
    /// Reads the money of a tree of threads. `None` if there is no registry, or if a thread of the tree runs, was
    /// interrupted or cannot be read.
    pub(super) fn tree_money(&self, root: &ThreadId, rows: &[ThreadRow]) -> Result<Option<TreeMoney>, StoreError> {
        let Some(registry) = &self.registry else { return Ok(None) };
        let mut threads = BTreeMap::new();
        for row in rows.iter().filter(|row| row.root == *root) {
            let Some(events) = self.whole_transcript(row)?.filter(|_| row.status.has_ended()) else { return Ok(None) };
            let account = registry.account(&row.id)?;
            let mut money = ThreadMoney::new(row.clone(), account, &events);
            money.reserved = match self.handed_over(row, rows)? {
                Some(amount) => money.reserved.map(|limit| limit.saturating_sub(amount)),
                None => None,
            };
            threads.insert(row.id.clone(), money);
        }
        Ok(Some(TreeMoney { threads }))
    }

    /// Returns the nano-dollars that the continuation of a thread took over after a handoff; 0 if there is no such
    /// continuation, `None` if the amount is unknown.
    fn handed_over(&self, row: &ThreadRow, rows: &[ThreadRow]) -> Result<Option<u64>, StoreError> {
        if row.status != Status::Continued {
            return Ok(Some(0));
        }
        let next = rows.iter().find(|next| row.continued_by.as_ref() == Some(&next.id));
        let Some(events) = next.map(|next| self.whole_transcript(next)).transpose()?.flatten() else {
            return Ok(None);
        };
        Ok(next.and_then(|next| fold_handed_over(&next.id, &events)))
    }

    /// Returns the events of a thread: empty if the thread has no transcript, `None` if the transcript cannot be read.
    fn whole_transcript(&self, row: &ThreadRow) -> Result<Option<Vec<Event>>, StoreError> {
        let objects = Objects::new(Arc::clone(&self.disk));
        let reading = match transcript::read(&*self.disk, &row.id, 0) {
            Ok(reading) => reading,
            Err(StoreError::UnknownThread { .. }) => return Ok(Some(Vec::new())),
            Err(StoreError::Damaged { .. } | StoreError::Newer { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let events = reading.records.iter().map(|record| restore_event(record, &row.id, &objects));
        Ok(events.collect::<Result<Vec<Event>, _>>().ok())
    }
}

impl ThreadMoney {
    fn new(row: ThreadRow, account: Option<Account>, events: &[Event]) -> Self {
        let (mut own, mut ended) = (0u64, None);
        for event in events {
            if let EventBody::Settled(settled) = &event.body {
                own = own.saturating_add(settled.amount);
            } else if let EventBody::Ended(end) = &event.body {
                ended = Some(end.cost);
            }
        }
        let reserved = fold_reservation(&row.id, events);
        Self { row, account, own, ended, reserved }
    }
}

impl TreeMoney {
    /// Returns the spend, in nano-dollars, that the ledger should show for a thread: the cost of its own attempts and
    /// of its descendants.
    fn expected_spend(&self, thread: &ThreadMoney) -> u64 {
        let others: u64 = if thread.row.parent.is_none() {
            // No thread of the tree runs, so the account of the root contains the cost of all threads below the root.
            self.threads
                .values()
                .filter(|one| one.row.id != thread.row.id)
                .map(|one| one.own)
                .fold(0, u64::saturating_add)
        } else {
            let spent = |account: &Account| account.spent().to_u64();
            self.children(thread).map(|child| child.account.as_ref().map_or(0, spent)).fold(0, u64::saturating_add)
        };
        thread.own.saturating_add(others)
    }

    fn children(&self, thread: &ThreadMoney) -> impl Iterator<Item = &ThreadMoney> {
        let parent = Some(thread.row.id.clone());
        self.threads.values().filter(move |one| one.row.parent == parent)
    }

    /// Returns true if a thread of the tree is suspended or is a closed session. The account of such a thread is open.
    fn is_suspended(&self) -> bool {
        self.threads.values().any(|one| one.row.status.is_parked())
    }
}

impl Verifier<'_> {
    /// Compares the thread's registry row and account with the transcripts of the thread's tree.
    pub(super) fn check_ledger(&mut self, money: &TreeMoney) {
        let Some(thread) = money.threads.get(self.thread) else { return };
        let path = Path::new(layout::REGISTRY);
        if let Some(cost) = thread.ended.filter(|cost| *cost != thread.row.cost) {
            let (row, end) = (describe(thread.row.cost), describe(cost));
            let reason = format!("the registry row has the cost {row}, but the transcript ends with the cost {end}");
            self.fault(path, None, reason);
        }
        let Some(account) = thread.account.as_ref().filter(|_| !money.is_suspended()) else { return };
        let dollars = |nanos: u64| format!("${}", crate::thread::dollars(nanos));
        let (spent, reserved) = (account.spent().to_u64(), account.reserved().to_u64());
        let expected = money.expected_spend(thread);
        if spent != expected {
            let (spent, expected) = (dollars(spent), dollars(expected));
            let reason = format!("the account has spent {spent}, but the transcripts of its tree add up to {expected}");
            self.fault(path, None, reason);
        }
        if let Some(expected) = thread.reserved.filter(|expected| *expected != reserved) {
            let (reserved, expected) = (dollars(reserved), dollars(expected));
            let reason = format!("the account has reserved {reserved}, but the transcripts state {expected}");
            self.fault(path, None, reason);
        }
        if account.status() != AccountStatus::Released {
            self.fault(path, None, "the account is still open, although every thread of its tree has ended");
        }
    }
}

fn describe(cost: Cost) -> String {
    let Cost {
        turns,
        input_tokens,
        output_tokens,
        cached_tokens,
        spend,
        outstanding,
        approval_wait_ms: approval_ms,
        unpriced,
    } = cost;
    let spend = crate::thread::dollars(spend);
    let outstanding = match outstanding {
        0 => String::new(),
        held => format!(", ${} reserved by descendants that have not ended", crate::thread::dollars(held)),
    };
    let approvals = if approval_ms == 0 { String::new() } else { format!(", {approval_ms} ms of approvals") };
    let unknown = if unpriced { " and unknown costs" } else { "" };
    format!(
        "turns {turns}, tokens in {input_tokens} ({cached_tokens} cached), tokens out {output_tokens}, ${spend}{unknown}{outstanding}{approvals}"
    )
}
