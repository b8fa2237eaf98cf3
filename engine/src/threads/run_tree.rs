//! The threads of a run with all of their descendants, and their cost. The cost in the row of a thread counts the turns
//! and tokens of the thread alone. The cost includes the spend of a child only if the thread has recorded the end of
//! the child.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use rye_compiler::semantics::ledger::{Account, AccountStatus};

use super::Threads;
use crate::event::{ThreadHead, ThreadOrigin};
use crate::store::{Registry, StoreError, ThreadRow};
use crate::thread::{Cost, Status};
use crate::thread_id::ThreadId;

impl Threads {
    /// Returns the cost of the run that `thread` belongs to. A run is a chain of threads that continue each other by
    /// handoffs, with all descendants of these threads. If a user continues a thread, the new thread starts another
    /// run.
    pub fn run_cost(&self, thread: &ThreadId) -> Result<Cost, StoreError> {
        let mut rows = Vec::new();
        for id in self.threads_of_run(thread)? {
            let Some(mut entry) = self.show(&id)? else { continue };
            // The row of an ended thread has the whole cost, so its transcript, which can be large, is not read. If the
            // transcript of another thread cannot be read, the cost in the row is used.
            if !entry.row.status.has_ended()
                && let Ok(Some(loaded)) = self.load(&id)
            {
                entry = loaded.entry;
            }
            rows.push(entry.row);
        }
        self.chain_cost(&rows)
    }

    /// Returns the cost of a chain of threads that continue each other, with their descendants. The account of the
    /// thread that started a child contains the spend of the child. If a later thread of the chain recorded the end of
    /// the child, the row of that later thread contains the spend too. The costs of the single threads therefore cannot
    /// be added.
    pub fn chain_cost(&self, chain: &[ThreadRow]) -> Result<Cost, StoreError> {
        let recorded: Cost = chain.iter().map(|row| &row.cost).sum();
        let Some(registry) = self.registry() else { return Ok(recorded) };
        let account = |thread: &ThreadId| Ok(registry.account(thread)?.map(Cow::Owned));
        let mut sum = Cost::default();
        for row in chain {
            sum.add(&cost_in_ledger(row, descendants(registry, &row.id)?.iter(), account)?);
        }
        Ok(Cost { spend: sum.spend.max(recorded.spend), ..sum })
    }

    /// Returns the threads of the run that `thread` belongs to, from the first thread on.
    pub fn threads_of_run(&self, thread: &ThreadId) -> Result<Vec<ThreadId>, StoreError> {
        let mut run: Vec<ThreadId> = Vec::new();
        for id in self.chain(thread)? {
            if !run.is_empty() && !self.is_handed_over(&id) {
                if run.contains(thread) {
                    break;
                }
                run.clear();
            }
            run.push(id);
        }
        Ok(run)
    }

    /// Returns true if a thread continues another thread because of a handoff, not because of a user. Returns false if
    /// the start of the thread cannot be read.
    fn is_handed_over(&self, thread: &ThreadId) -> bool {
        let events = self.head(thread).unwrap_or_default();
        ThreadHead::of(&events).opened.is_some_and(|opened| opened.origin == ThreadOrigin::Handoff)
    }

    /// Returns the cost of a thread with its descendants. Continuations of a descendant are included. Continuations of
    /// the thread itself are not. Without a registry, returns the cost in the row.
    pub fn tree_cost(&self, row: &ThreadRow) -> Result<Cost, StoreError> {
        let Some(registry) = self.registry() else { return Ok(row.cost) };
        let account = |thread: &ThreadId| Ok(registry.account(thread)?.map(Cow::Owned));
        cost_with_descendants(row, descendants(registry, &row.id)?.iter(), account)
    }

    /// Returns the threads that wait for an approval among the descendants of the run that `thread` belongs to. Empty
    /// without a registry.
    pub fn suspended_descendants(&self, thread: &ThreadId) -> Result<Vec<ThreadId>, StoreError> {
        let Some(registry) = self.registry() else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for id in self.threads_of_run(thread)? {
            let rows = descendants(registry, &id)?.into_iter();
            found.extend(rows.filter(|row| row.status == Status::Suspended).map(|row| row.id));
        }
        Ok(found)
    }

    /// Returns the cost of each of these threads with its descendants, as [`Self::tree_cost`] does. `rows` are all
    /// threads of the project. All accounts of the ledger are read in one call, because each read of the registry takes
    /// locks.
    pub fn tree_costs(&self, rows: &[&ThreadRow]) -> Result<HashMap<ThreadId, Cost>, StoreError> {
        let mut children: HashMap<&ThreadId, Vec<&ThreadRow>> = HashMap::new();
        for row in rows {
            if let Some(parent) = &row.parent {
                children.entry(parent).or_default().push(row);
            }
        }
        let accounts = match self.registry() {
            Some(registry) if !children.is_empty() => Some(registry.accounts()?),
            Some(_) | None => None,
        };
        let mut costs = HashMap::with_capacity(rows.len());
        for row in rows {
            let (Some(accounts), Some(own)) = (&accounts, children.get(&row.id)) else {
                costs.insert(row.id.clone(), row.cost);
                continue;
            };
            let (mut below, mut seen) = (Vec::new(), HashSet::from([&row.id]));
            let mut next = own.clone();
            while let Some(descendant) = next.pop() {
                if seen.insert(&descendant.id) {
                    next.extend(children.get(&descendant.id).into_iter().flatten());
                    below.push(descendant);
                }
            }
            let account = |thread: &ThreadId| Ok(accounts.get(thread.as_str()).map(Cow::Borrowed));
            costs.insert(row.id.clone(), cost_with_descendants(row, below.into_iter(), account)?);
        }
        Ok(costs)
    }
}

/// Returns the descendants of a thread and their continuations.
fn descendants(registry: &Registry, thread: &ThreadId) -> Result<Vec<ThreadRow>, StoreError> {
    let mut found = Vec::new();
    let mut seen = HashSet::from([thread.clone()]);
    let mut next = children_of(registry, thread)?;
    while let Some(id) = next.pop() {
        let Some(descendant) = registry.thread(&id)?.filter(|_| seen.insert(id.clone())) else { continue };
        next.extend(children_of(registry, &id)?);
        next.extend(descendant.continued_by.clone());
        found.push(descendant);
    }
    Ok(found)
}

fn children_of(registry: &Registry, parent: &ThreadId) -> Result<Vec<ThreadId>, StoreError> {
    Ok(registry.children(parent)?.into_iter().map(|(_, child)| child).collect())
}

/// Returns the cost of a thread with these descendants. The spend is the higher one of the spend in the ledger and the
/// spend in the row of the thread, because the row can be newer than the account.
fn cost_with_descendants<'r, 'a>(
    row: &ThreadRow,
    descendants: impl Iterator<Item = &'r ThreadRow>,
    account: impl Fn(&ThreadId) -> Result<Option<Cow<'a, Account>>, StoreError>,
) -> Result<Cost, StoreError> {
    let cost = cost_in_ledger(row, descendants, account)?;
    Ok(Cost { spend: cost.spend.max(row.cost.spend), ..cost })
}

/// Returns the cost of a thread with these descendants. `account` returns the account of a thread. The spend comes from
/// the ledger. The spend of the parent's account already includes the released accounts of its children, so only the
/// other accounts are added.
fn cost_in_ledger<'r, 'a>(
    row: &ThreadRow,
    descendants: impl Iterator<Item = &'r ThreadRow>,
    account: impl Fn(&ThreadId) -> Result<Option<Cow<'a, Account>>, StoreError>,
) -> Result<Cost, StoreError> {
    let mut cost = row.cost;
    let mut spend = account(&row.id)?.map_or(row.cost.spend, |account| account.spent().to_u64());
    for descendant in descendants {
        cost.add(&descendant.cost);
        let account = account(&descendant.id)?;
        if let Some(account) = account.filter(|account| account.status() != AccountStatus::Released) {
            spend = spend.saturating_add(account.spent().to_u64());
        }
    }
    let Cost { outstanding, approval_wait_ms, .. } = row.cost;
    Ok(Cost { spend, outstanding, approval_wait_ms, ..cost })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::store::Disk;
    use crate::store::disk::SimulatedDisk;
    use crate::store::layout;
    use crate::store::registry::Change;
    use crate::store::transcript::Transcript;

    #[test]
    fn tree_costs_read_the_registry_as_often_for_many_children_as_for_few() {
        let reads = |children: u64| {
            let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
            let registry = Registry::open(Arc::clone(&disk)).unwrap();
            let root = ThreadRow::new(ThreadId::parse("lead-1").unwrap(), "lead", 0);
            let row = |n: u64| {
                let id = ThreadId::parse(&format!("talk-{n}")).unwrap();
                let cost = Cost { turns: 1, ..Cost::default() };
                ThreadRow { parent: Some(root.id.clone()), cost, ..ThreadRow::new(id, "talk", 0) }
            };
            let rows: Vec<ThreadRow> = std::iter::once(root.clone()).chain((0..children).map(row)).collect();
            registry.commit(&rows.iter().map(|row| Change::Put(Box::new(row.clone()))).collect::<Vec<_>>()).unwrap();
            let registry = Arc::new(registry);
            let threads = Threads::new(disk, Some(Arc::clone(&registry)));
            let before = registry.reads();
            let costs = threads.tree_costs(&rows.iter().collect::<Vec<_>>()).unwrap();
            assert_eq!(costs.get(&root.id).unwrap().turns, children);
            registry.reads() - before
        };
        assert_eq!((reads(3), reads(300)), (1, 1));
    }

    /// A transcript can be as large as the replies of its thread, and a run prints its cost at its end.
    #[test]
    fn cost_of_an_ended_run_reads_no_transcript() {
        let transcript_reads = |status: Status| {
            let simulated = Arc::new(SimulatedDisk::new());
            let disk: Arc<dyn Disk> = Arc::clone(&simulated) as Arc<dyn Disk>;
            layout::create_folders(&*disk).unwrap();
            let registry = Registry::open(Arc::clone(&disk)).unwrap();
            let id = ThreadId::parse("talk-1").unwrap();
            let cost = Cost { turns: 2, ..Cost::default() };
            let row = ThreadRow { status, cost, ..ThreadRow::new(id.clone(), "talk", 0) };
            registry.commit(&[Change::Put(Box::new(row))]).unwrap();
            disk.create_dir(&layout::thread_folder(&id)).unwrap();
            let body = [serde_json::json!({"type": "planned", "plan_id": "a".repeat(64)}).as_object().unwrap().clone()];
            Transcript::create(Arc::clone(&disk), &id).unwrap().append(&body, 0).unwrap();
            let reads = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&reads);
            simulated.before_reads(move |path| {
                counter.fetch_add(usize::from(path.ends_with("transcript.jsonl")), Ordering::Relaxed);
            });
            let threads = Threads::new(disk, Some(Arc::new(registry)));
            assert_eq!(threads.run_cost(&id).unwrap().turns, 2);
            reads.load(Ordering::Relaxed)
        };
        assert_eq!((transcript_reads(Status::Completed), transcript_reads(Status::Running)), (0, 1));
    }
}
