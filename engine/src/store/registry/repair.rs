//! Implementation of `rye threads repair`: rebuilds the registry from the transcripts. A repair is refused while any
//! process works on a thread.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::WriteTransaction;
use rye_compiler::semantics::ledger::{AccountHistory, Ledger, LedgerReply, Operation, Refusal};
use rye_compiler::semantics::money::Nanos;

use super::changes::{insert_json, put_row};
use super::ledger::{LedgerStep, RecordedOperation};
use super::unsynced::{WritersExcluded, remove_stale_marks};
use super::{Registry, ThreadRow, registry_error, tables};
use crate::event::{Event, ThreadOrigin};
use crate::store::disk::{Disk, temporary_beside};
use crate::store::layout::{self, REGISTRY, THREADS};
use crate::store::spilled::restore_event;
use crate::store::{Objects, StoreError, owner, transcript};
use crate::thread::Status;
use crate::thread_id::ThreadId;

mod fold;
mod missing;

#[cfg(test)]
mod tests;

use fold::FoldedThread;
use missing::missing_files;

const DOING: &str = "rebuilding it";

/// The result of a repair.
#[derive(Debug, Default)]
pub struct RepairReport {
    /// Number of threads in the new registry.
    pub threads: usize,
    /// Threads whose transcripts cannot be read; the new registry omits them.
    pub unreadable: Vec<(ThreadId, StoreError)>,
    /// Threads whose parent has no account, because no transcript records the parent. Their spend is not part of the
    /// account of any ancestor.
    pub refused: Vec<(ThreadId, Refusal)>,
    /// Missing objects and artifacts of threads, which a repair cannot rebuild. Each path is relative to the project.
    pub missing: Vec<(ThreadId, PathBuf)>,
    /// Path of the file that holds the replaced registry, relative to the project; `None` if there was no registry.
    pub previous: Option<PathBuf>,
}

/// File name under which a repair keeps the registry that it replaces.
const PREVIOUS_REGISTRY: &str = "redb.before-repair";

/// Replaces the registry by one that is rebuilt from the transcripts, and keeps the previous file beside it. Writes
/// nothing to the previous file, because the database could abort the program when it writes to a damaged file.
pub fn repair(disk: &Arc<dyn Disk>) -> Result<RepairReport, StoreError> {
    layout::create_folders(&**disk)?;
    let living = owner::live_owners(&**disk)?;
    if !living.is_empty() {
        return Err(StoreError::InUse { count: living.len() });
    }
    match Registry::open_read_only(Arc::clone(disk)) {
        // The file is replaced, whatever its state.
        Ok(_)
        | Err(StoreError::Registry { .. } | StoreError::RegistryLost { .. } | StoreError::RebuildFailed { .. }) => {}
        Err(error) => return Err(error),
    }
    // A process that starts now waits until the new registry is in place, so that it does not write to the old
    // registry.
    let excluded = WritersExcluded::acquire(disk)?;
    let (contents, mut report) = RebuiltContents::read(disk)?;
    report.previous = contents.replace_registry(disk, Some(&Path::new(REGISTRY).with_extension(PREVIOUS_REGISTRY)))?;
    remove_stale_marks(&**disk)?;
    excluded.map(WritersExcluded::finish).transpose()?;
    Ok(report)
}

/// Rebuilds the registry from the transcripts, because a power failure may have damaged the registry. The caller
/// guarantees that no process uses the registry.
///
/// # Errors
///
/// A transcript cannot be read, so that its spend would be lost.
pub(super) fn rebuild(disk: &Arc<dyn Disk>) -> Result<(), StoreError> {
    let (contents, report) = RebuiltContents::read(disk)?;
    if let Some((_, error)) = report.unreadable.into_iter().next() {
        return Err(StoreError::RebuildFailed { source: Box::new(error) });
    }
    for (thread, refusal) in report.refused {
        tracing::warn!(%thread, ?refusal, "an operation of the rebuilt ledger was refused");
    }
    contents.replace_registry(disk, None).map(drop)
}

/// The contents of a registry, folded from the transcripts.
struct RebuiltContents {
    folds: BTreeMap<ThreadId, FoldedThread>,
    handoffs: Handoffs,
    ledger: Ledger,
    answers: LedgerAnswers,
}

impl RebuiltContents {
    fn read(disk: &Arc<dyn Disk>) -> Result<(Self, RepairReport), StoreError> {
        let mut report = RepairReport::default();
        let mut folds = BTreeMap::new();
        for thread in layout::find_threads(&**disk)? {
            match read(disk, &thread) {
                Ok(Some((folded, missing))) => {
                    report.missing.extend(missing.into_iter().map(|path| (thread.clone(), path)));
                    folds.insert(thread, folded);
                }
                // The thread never recorded a complete event, so nothing was acknowledged.
                Ok(None) => {}
                Err(error) => report.unreadable.push((thread, error)),
            }
        }
        set_continued_by(&mut folds);
        let handoffs = Handoffs::find(&folds);
        handoffs.reopen_lost(&mut folds);
        count_descendants(&mut folds, &handoffs);
        let unreadable = report.unreadable.iter().map(|(thread, _)| thread).collect();
        let ledger = rebuild_ledger(&folds, &handoffs, &unreadable);
        let has_lost_parent = |folded: &&FoldedThread| {
            folded.row.parent.as_ref().is_some_and(|parent| ledger.account(parent.as_str()).is_none())
        };
        report.refused = folds
            .values()
            .filter(has_lost_parent)
            .filter_map(|folded| {
                let thread = folded.row.parent.as_ref()?.to_string();
                Some((folded.row.id.clone(), Refusal::NoSuchThread { thread }))
            })
            .collect();
        report.threads = folds.len();
        let answers = ledger_answers(&folds, &handoffs);
        Ok((Self { folds, handoffs, ledger, answers }, report))
    }

    fn write(&self, registry: &Registry) -> Result<(), StoreError> {
        registry.write(|transaction| {
            clear_tables(transaction)?;
            for folded in self.folds.values() {
                put_row(transaction, &folded.row)?;
            }
            fill_edges(transaction, &self.folds, &self.handoffs)?;
            fill_ledger(transaction, &self.ledger, &self.answers)
        })
    }

    /// Writes the new registry under a temporary name, because a partly written registry would look like a registry
    /// without threads. Then puts the new registry in place of the old one. If `aside` is a path and there is an old
    /// registry, first moves the old registry to `aside`, and returns `aside`. Otherwise returns `None`.
    fn replace_registry(&self, disk: &Arc<dyn Disk>, aside: Option<&Path>) -> Result<Option<PathBuf>, StoreError> {
        let path = Path::new(REGISTRY);
        let anew = temporary_beside(path);
        let registry = Registry::open_at(Arc::clone(disk), &anew, None)?;
        registry.create_tables()?;
        self.write(&registry)?;
        drop(registry);
        let mut moved = None;
        if let Some(aside) = aside
            && disk.exists(path).map_err(StoreError::io("access", path))?
        {
            disk.rename(path, aside).map_err(StoreError::io("move aside", path))?;
            moved = Some(aside.to_path_buf());
        }
        disk.rename(&anew, path).map_err(StoreError::io("put in place", path))?;
        let folder = Path::new(THREADS);
        disk.sync_dir(folder).map_err(StoreError::io("sync", folder))?;
        Ok(moved)
    }
}

/// Folds a thread's events into its row, for readers without a registry; `None` if the events do not start with
/// `opened`.
pub(crate) fn fold_row(thread: &ThreadId, events: &[Event]) -> Option<ThreadRow> {
    fold::fold(thread, events).map(|folded| folded.row)
}

/// Returns the nano-dollars that a thread took over from the thread that it continues, computed from the events of the
/// thread. `None` if the thread has an account of its own, or if the events do not start with `opened`.
pub(crate) fn fold_handed_over(thread: &ThreadId, events: &[Event]) -> Option<u64> {
    fold::fold(thread, events).filter(|folded| folded.can_take_over).map(|folded| folded.opened.1)
}

/// Returns the reservation of a thread in nano-dollars, computed from the events of the thread. `None` if the events do
/// not start with `opened`. Also `None` if the ledger may have refused a raise of the reservation. The ledger never
/// refuses money that the end of a child returns, because only a thread without a parent gets such money.
pub(crate) fn fold_reservation(thread: &ThreadId, events: &[Event]) -> Option<u64> {
    let folded = fold::fold(thread, events)?;
    let raised = folded.steps.iter().any(|step| matches!(step.operation, Operation::Raise { .. }));
    (!raised || !folded.is_raised).then_some(folded.reserved)
}

/// Returns the folded thread, and the paths of its missing files.
fn read(disk: &Arc<dyn Disk>, thread: &ThreadId) -> Result<Option<(FoldedThread, Vec<PathBuf>)>, StoreError> {
    let mut reading = transcript::read(&**disk, thread, 0)?;
    // Recovery cuts the lines after the last seal. The ledger steps of these lines must not be answered before the
    // lines are recorded again.
    reading.cut_unsealed(0);
    let objects = Objects::new(Arc::clone(disk));
    let events: Result<Vec<_>, _> =
        reading.records.iter().map(|record| restore_event(record, thread, &objects)).collect();
    let events = events?;
    let Some(mut folded) = fold::fold(thread, &events) else { return Ok(None) };
    if let Some(last) = reading.records.last() {
        folded.row.synced = last.barrier;
    }
    Ok(Some((folded, missing_files(&**disk, thread, &events)?)))
}

/// Sets `continued_by` of each thread to the thread that continues it, according to the field `continues` of the other
/// threads. Ignores forks and replans that a command started. If several threads continue a thread, the latest resume
/// wins. Without a resume, the latest other thread wins. A resume is later than a handoff even if the recorded times
/// disagree, because only an ended thread is resumed.
fn set_continued_by(folds: &mut BTreeMap<ThreadId, FoldedThread>) {
    let is_linked = |folded: &&FoldedThread| folded.can_take_over || folded.origin == ThreadOrigin::Resume;
    let mut links: Vec<(bool, i64, ThreadId, ThreadId)> = folds
        .values()
        .filter(is_linked)
        .filter_map(|folded| {
            let is_resume = folded.origin == ThreadOrigin::Resume;
            Some((is_resume, folded.opened.0, folded.row.continues.clone()?, folded.row.id.clone()))
        })
        .collect();
    links.sort();
    for (.., earlier, later) in links {
        if let Some(folded) = folds.get_mut(&earlier) {
            folded.row.continued_by = Some(later);
        }
    }
}

/// Threads that ended with a handoff, each with the thread that continues it and took over its account.
struct Handoffs(BTreeMap<ThreadId, ThreadId>);

impl Handoffs {
    /// For each thread with the status `continued`, finds the first thread that continues it.
    fn find(folds: &BTreeMap<ThreadId, FoldedThread>) -> Self {
        let has_handed_over =
            |thread: &ThreadId| folds.get(thread).is_some_and(|folded| folded.row.status == Status::Continued);
        let mut later: Vec<(i64, &ThreadId, &ThreadId)> = folds
            .values()
            .filter(|folded| folded.can_take_over)
            .filter_map(|folded| Some((folded.opened.0, folded.row.continues.as_ref()?, &folded.row.id)))
            .filter(|(_, earlier, _)| has_handed_over(earlier))
            .collect();
        later.sort();
        let mut handoffs = BTreeMap::new();
        for (_, earlier, next) in later {
            handoffs.entry(earlier.clone()).or_insert_with(|| next.clone());
        }
        Self(handoffs)
    }

    /// Reopens threads that ended with a handoff but whose continuation has no transcript. The recovery of a reopened
    /// thread commits its end again, which creates the continuation and its account.
    fn reopen_lost(&self, folds: &mut BTreeMap<ThreadId, FoldedThread>) {
        let is_lost = |row: &ThreadRow| row.status == Status::Continued && !self.0.contains_key(&row.id);
        for folded in folds.values_mut().filter(|folded| is_lost(&folded.row)) {
            folded.row.status = Status::Running;
            folded.has_ended = false;
        }
    }

    /// Returns the continuation of a thread, and the amount in nano-dollars that the continuation took over. `None` if
    /// the thread was not handed off.
    fn of<'f>(
        &self,
        thread: &ThreadId,
        folds: &'f BTreeMap<ThreadId, FoldedThread>,
    ) -> Option<(&'f FoldedThread, u64)> {
        let next = folds.get(self.0.get(thread)?)?;
        Some((next, next.opened.1))
    }

    /// Returns true if the thread is the first of its chain of handoffs: it has taken over no account. A thread without
    /// a handoff is a chain of its own.
    fn is_first(&self, thread: &ThreadId, folds: &BTreeMap<ThreadId, FoldedThread>) -> bool {
        folds.get(thread).is_some_and(|folded| !self.has_taken_over(folded))
    }

    /// Returns true if the thread took over the account of the thread that it continues.
    fn has_taken_over(&self, folded: &FoldedThread) -> bool {
        folded.row.continues.as_ref().is_some_and(|earlier| self.0.get(earlier) == Some(&folded.row.id))
    }
}

/// Counts the descendants of each thread. A child and its continuations count as one descendant. A descendant counts
/// for every thread of its spawn chain. If a thread of the chain, other than the parent, was handed off before the
/// descendant started, the descendant counts for the continuation of that thread instead.
fn count_descendants(folds: &mut BTreeMap<ThreadId, FoldedThread>, handoffs: &Handoffs) {
    let mut counts: BTreeMap<ThreadId, u64> = BTreeMap::new();
    for folded in folds.values().filter(|folded| !handoffs.has_taken_over(folded)) {
        let opened = folded.opened.0;
        let (mut next, mut seen, mut is_parent) = (folded.row.parent.clone(), BTreeSet::new(), true);
        while let Some(thread) = next.take().filter(|thread| seen.insert(thread.clone())) {
            let Some(row) = folds.get(&thread).map(|folded| &folded.row) else { break };
            let later = handoffs.of(&thread, folds).filter(|(next, _)| !is_parent && next.opened.0 < opened);
            is_parent = false;
            if let Some((later, _)) = later {
                next = Some(later.row.id.clone());
                continue;
            }
            next.clone_from(&row.parent);
            *counts.entry(thread).or_default() += 1;
        }
    }
    let firsts: Vec<ThreadId> = handoffs.0.keys().filter(|thread| handoffs.is_first(thread, folds)).cloned().collect();
    for first in firsts {
        divide_among_chain(first, &mut counts, folds, handoffs);
    }
    for (thread, count) in counts {
        if let Some(folded) = folds.get_mut(&thread) {
            folded.row.spawned = count;
        }
    }
}

/// Divides the descendants of a chain of handoffs among the threads of the chain. `counts` contains a division by
/// recorded times, which can be wrong near a handoff or if the clock was set back. The spawn limits give the exact
/// numbers: after a handoff because of a full context, the new thread's limit is the rest of the old thread's limit.
/// The difference between the two limits is the number of descendants that the old thread had started. The last thread
/// of the chain gets the other descendants.
fn divide_among_chain(
    first: ThreadId,
    counts: &mut BTreeMap<ThreadId, u64>,
    folds: &BTreeMap<ThreadId, FoldedThread>,
    handoffs: &Handoffs,
) {
    let (mut thread, mut seen) = (first, BTreeSet::new());
    // `counted` sums the descendants by recorded times, for the current and the earlier threads of the chain. `divided`
    // sums the descendants by spawn limits, for the earlier threads only.
    let (mut counted, mut divided) = (0u64, 0u64);
    while seen.insert(thread.clone()) {
        let by_time = counts.get(&thread).copied().unwrap_or_default();
        counted = counted.saturating_add(by_time);
        let rest = counted.saturating_sub(divided);
        let Some((next, _)) = handoffs.of(&thread, folds) else {
            counts.insert(thread, rest);
            return;
        };
        let left = next.opened_spawns;
        let started =
            folds.get(&thread).and_then(|folded| folded.row.spawns).map_or(0, |most| most.saturating_sub(left));
        // Another plan can have reduced the limit of a thread that continues a chat.
        let started = if next.origin == ThreadOrigin::Handoff { started } else { by_time.min(started) };
        divided = divided.saturating_add(started);
        counts.insert(std::mem::replace(&mut thread, next.row.id.clone()), started);
    }
}

/// Rebuilds all accounts from the transcripts. The order of operations of different threads is not recorded and not
/// needed, because no amount depends on it.
fn rebuild_ledger(
    folds: &BTreeMap<ThreadId, FoldedThread>,
    handoffs: &Handoffs,
    unreadable: &BTreeSet<&ThreadId>,
) -> Ledger {
    let mut histories = Vec::with_capacity(folds.len());
    let reserved_by_parent: BTreeMap<&ThreadId, u64> =
        folds.values().flat_map(|folded| folded.children.values()).map(|child| (&child.thread, child.spend)).collect();
    for (thread, folded) in folds {
        // The parent's event about the child contains the amount that the ledger reserved at first.
        let first = reserved_by_parent.get(thread).copied().filter(|_| folded.reserved == folded.opened.1);
        let reserved = first.unwrap_or(folded.reserved);
        let handed_over = handoffs.of(thread, folds).map_or(0, |(_, amount)| amount);
        let issued = folded.issued.iter();
        histories.push(AccountHistory {
            thread: thread.to_string(),
            parent: folded.row.parent.as_ref().map(ToString::to_string),
            reserved: Nanos::from_u64(reserved.saturating_sub(handed_over)),
            spent: Nanos::from_u64(folded.spent),
            issued: issued
                .map(|((turn, attempt), worst)| (format!("{turn}.{attempt}"), Nanos::from_u64(*worst)))
                .collect(),
            has_ended: folded.has_ended,
            is_suspended: folded.row.status == Status::Suspended && folded.row.parent.is_some(),
        });
        // A child without a transcript never started. Its reservation stays while its parent can start it, or if its
        // transcript cannot be read, because its spend is then unknown.
        for child in folded.children.values().filter(|child| !folds.contains_key(&child.thread)) {
            let is_unreadable = unreadable.contains(&child.thread);
            histories.push(AccountHistory {
                thread: child.thread.to_string(),
                parent: Some(thread.to_string()),
                reserved: Nanos::from_u64(child.spend),
                spent: Nanos::ZERO,
                issued: BTreeMap::new(),
                has_ended: !is_unreadable && (child.has_ended || folded.has_ended),
                is_suspended: false,
            });
        }
    }
    Ledger::from_histories(histories)
}

/// The recorded ledger operations of each thread. Each pair holds the name of an operation, and the operation with its
/// answer.
type LedgerAnswers = BTreeMap<ThreadId, Vec<(String, RecordedOperation)>>;

/// Returns the ledger's answers to the operations that the recovery of a thread may repeat, because a repeated
/// operation must get the same answer. The recovery of an ended thread repeats only the end or the handoff of the
/// thread.
fn ledger_answers(folds: &BTreeMap<ThreadId, FoldedThread>, handoffs: &Handoffs) -> LedgerAnswers {
    let mut answers = LedgerAnswers::new();
    let mut record = |LedgerStep { thread, step, operation }: LedgerStep, answer: LedgerReply| {
        answers.entry(thread).or_default().push((step.to_string(), RecordedOperation { operation, answer }));
    };
    for (thread, folded) in folds {
        let is_open = |thread: &ThreadId| folds.get(thread).is_some_and(|folded| !folded.has_ended);
        let reserved = LedgerReply::Reserved { amount: Nanos::from_u64(folded.opened.1) };
        if !handoffs.has_taken_over(folded) {
            match (&folded.row.parent, folded.row.spawn) {
                (Some(parent), Some(spawn)) if is_open(parent) => {
                    record(LedgerStep::child(parent, spawn, thread, Some(folded.opened.1), 0), reserved);
                }
                (None, _) if is_open(thread) => {
                    record(LedgerStep::register(thread, folded.opened.1), LedgerReply::Done);
                }
                (Some(_) | None, _) => {}
            }
        }
        if !folded.has_ended {
            for step in &folded.steps {
                let answer = if let Operation::Reserve { amount: Some(amount), .. } = &step.operation {
                    LedgerReply::Reserved { amount: *amount }
                } else {
                    LedgerReply::Done
                };
                record(step.clone(), answer);
            }
            continue;
        }
        match handoffs.of(thread, folds) {
            Some((next, most)) => {
                let answer = LedgerReply::Reserved { amount: Nanos::from_u64(most) };
                record(LedgerStep::hand_off(thread, &next.row.id, most), answer);
            }
            None => record(LedgerStep::end(thread), LedgerReply::Done),
        }
    }
    answers
}

fn clear_tables(transaction: &WriteTransaction) -> Result<(), StoreError> {
    transaction.delete_table(tables::THREADS).map_err(registry_error(DOING))?;
    transaction.delete_table(tables::ACTIVE).map_err(registry_error(DOING))?;
    transaction.delete_table(tables::CHILDREN).map_err(registry_error(DOING))?;
    transaction.delete_table(tables::ACCOUNTS).map_err(registry_error(DOING))?;
    transaction.delete_table(tables::ANSWERS).map_err(registry_error(DOING))?;
    tables::create_all(transaction)
}

/// Writes the spawn edges as the parents recorded them, or as the children did if the line in the parent's transcript
/// was lost.
fn fill_edges(
    transaction: &WriteTransaction,
    folds: &BTreeMap<ThreadId, FoldedThread>,
    handoffs: &Handoffs,
) -> Result<(), StoreError> {
    let mut table = transaction.open_table(tables::CHILDREN).map_err(registry_error(DOING))?;
    // The continuation of a child has the parent and the spawn number of the child, so it is left out.
    let by_child = folds.values().filter(|folded| !handoffs.has_taken_over(folded)).filter_map(|folded| {
        let ThreadRow { id, parent, spawn, .. } = &folded.row;
        Some((parent.clone()?, (*spawn)?, id.clone()))
    });
    let by_parent = folds.iter().flat_map(|(parent, folded)| {
        folded.children.iter().map(|(spawn, child)| (parent.clone(), *spawn, child.thread.clone()))
    });
    for (parent, spawn, child) in by_child.chain(by_parent) {
        table.insert((parent.as_str(), spawn), child.as_str()).map_err(registry_error(DOING))?;
    }
    Ok(())
}

fn fill_ledger(transaction: &WriteTransaction, ledger: &Ledger, answers: &LedgerAnswers) -> Result<(), StoreError> {
    let mut accounts = transaction.open_table(tables::ACCOUNTS).map_err(registry_error(DOING))?;
    for (thread, account) in ledger.accounts() {
        insert_json(&mut accounts, thread, account)?;
    }
    let mut table = transaction.open_table(tables::ANSWERS).map_err(registry_error(DOING))?;
    for (thread, steps) in answers {
        for (step, recorded) in steps {
            let bytes = serde_json::to_vec(recorded).map_err(registry_error(DOING))?;
            table.insert((thread.as_str(), step.as_str()), bytes.as_slice()).map_err(registry_error(DOING))?;
        }
    }
    Ok(())
}
