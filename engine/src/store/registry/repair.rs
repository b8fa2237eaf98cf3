//! Implementation of `rye threads repair`: rebuilds the registry from the transcripts. Refused while any process works
//! on a thread.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::WriteTransaction;
use rye_compiler::semantics::ledger::{Account, AccountStatus, Ledger, LedgerReply, Operation, Refusal};

use super::changes::{insert_json, put_row};
use super::ledger::{LedgerStep, LedgerStepKey, RecordedOperation};
use super::unsynced::{WritersExcluded, remove_stale_marks};
use super::{Registry, ThreadRow, registry_error, tables};
use crate::event::Event;
use crate::store::disk::{Disk, temporary_beside};
use crate::store::layout::{self, REGISTRY, THREADS};
use crate::store::spilled::restore_event;
use crate::store::{Objects, StoreError, owner, transcript};
use crate::thread::Status;
use crate::thread_id::ThreadId;

mod fold;

#[cfg(test)]
mod tests;

use fold::FoldedThread;

const DOING: &str = "rebuilding it";

/// The result of a repair.
#[derive(Debug, Default)]
pub struct RepairReport {
    /// Threads in the new registry.
    pub threads: usize,
    /// Threads whose transcripts cannot be read; the new registry omits them.
    pub unreadable: Vec<(ThreadId, StoreError)>,
    /// Operations of transcripts that the rebuilt ledger refused, with their threads. The accounts of these threads are
    /// therefore not exact.
    pub refused: Vec<(ThreadId, Refusal)>,
    /// The replaced registry, relative to the project; `None` if there was none.
    pub previous: Option<PathBuf>,
}

/// Name of the registry that the last repair replaced.
const PREVIOUS_REGISTRY: &str = "redb.before-repair";

/// Replaces the registry by one that is rebuilt from the transcripts, and keeps the previous file beside it. Writes
/// nothing to the previous file: its damage may show only during a write, which then ends the program.
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
    // A process that starts now waits until the new registry is in place. Otherwise it would write to the old one.
    let excluded = WritersExcluded::acquire(disk)?;
    let (contents, mut report) = RebuiltContents::read(disk)?;
    report.previous = contents.replace_registry(disk, Some(&Path::new(REGISTRY).with_extension(PREVIOUS_REGISTRY)))?;
    remove_stale_marks(&**disk)?;
    excluded.map(WritersExcluded::finish).transpose()?;
    Ok(report)
}

/// Replaces a registry that a power failure may have torn. The caller guarantees that no process uses it.
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
    ledger: Ledger,
    answers: LedgerAnswers,
}

impl RebuiltContents {
    fn read(disk: &Arc<dyn Disk>) -> Result<(Self, RepairReport), StoreError> {
        let mut report = RepairReport::default();
        let mut folds = BTreeMap::new();
        for thread in layout::find_threads(&**disk)? {
            match read(disk, &thread) {
                Ok(Some(folded)) => {
                    folds.insert(thread, folded);
                }
                // The thread never recorded a complete event, so nothing was acknowledged.
                Ok(None) => {}
                Err(error) => report.unreadable.push((thread, error)),
            }
        }
        set_continued_by(&mut folds);
        reopen_handoffs(&mut folds);
        hand_off(&mut folds);
        open_unrecorded(&mut folds);
        count_descendants(&mut folds);
        let (ledger, answers, refused) = replay_ledger(&folds);
        (report.threads, report.refused) = (folds.len(), refused);
        Ok((Self { folds, ledger, answers }, report))
    }

    fn write(&self, registry: &Registry) -> Result<(), StoreError> {
        registry.write(|transaction| {
            clear_tables(transaction)?;
            for folded in self.folds.values() {
                put_row(transaction, &folded.row)?;
            }
            fill_edges(transaction, &self.folds)?;
            fill_ledger(transaction, &self.ledger, &self.answers)
        })
    }

    /// Writes the whole new registry under a temporary name, because a partly written registry would look like a
    /// registry without threads. Then moves the old registry to `aside`, if both exist, and renames the new registry.
    /// Returns the new path of the old registry; `None` if no registry was moved.
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
pub fn fold_row(thread: &ThreadId, events: &[Event]) -> Option<ThreadRow> {
    fold::fold(thread, events).map(|folded| folded.row)
}

/// Folds a thread's events into its spend limit at the start, in nano-dollars. `None` if the events do not start with
/// `opened`, or if the limit was raised later: the ledger may have refused the raise.
pub(crate) fn fold_spend_limit(thread: &ThreadId, events: &[Event]) -> Option<u64> {
    let folded = fold::fold(thread, events)?;
    let raised = folded.steps.iter().any(|(_, step)| matches!(step.operation, Operation::Raise { .. }));
    (!raised).then_some(folded.opened.1)
}

fn read(disk: &Arc<dyn Disk>, thread: &ThreadId) -> Result<Option<FoldedThread>, StoreError> {
    let mut reading = transcript::read(&**disk, thread, 0)?;
    // Recovery cuts the lines after the last seal. The ledger steps of these lines must not be answered before the
    // lines are recorded again.
    reading.cut_unsealed(0);
    let objects = Objects::new(Arc::clone(disk));
    let events: Result<Vec<_>, _> =
        reading.records.iter().map(|record| restore_event(record, thread, &objects)).collect();
    let mut folded = fold::fold(thread, &events?);
    if let (Some(folded), Some(last)) = (&mut folded, reading.records.last()) {
        folded.row.synced = last.barrier;
    }
    Ok(folded)
}

/// Sets `continued_by` from the `continues` fields of other threads.
fn set_continued_by(folds: &mut BTreeMap<ThreadId, FoldedThread>) {
    let links: Vec<(ThreadId, ThreadId)> =
        folds.values().filter_map(|folded| Some((folded.row.continues.clone()?, folded.row.id.clone()))).collect();
    for (earlier, later) in links {
        if let Some(folded) = folds.get_mut(&earlier) {
            folded.row.continued_by = Some(later);
        }
    }
}

/// Reopens threads that handed off to a thread without a transcript. Their recovery commits the end again, which
/// creates the continuation and its account.
fn reopen_handoffs(folds: &mut BTreeMap<ThreadId, FoldedThread>) {
    let is_lost = |row: &ThreadRow| row.status == Status::Continued && row.continued_by.is_none();
    for folded in folds.values_mut().filter(|folded| is_lost(&folded.row)) {
        folded.row.status = Status::Running;
        folded.steps.retain(|(_, step)| step.step != LedgerStepKey::End);
    }
}

/// Closes the account of each thread that was handed off, and opens the account of the thread's continuation.
fn hand_off(folds: &mut BTreeMap<ThreadId, FoldedThread>) {
    let handed: Vec<(ThreadId, LedgerStep)> = folds
        .values()
        .filter_map(|next| {
            let earlier = next.row.continues.as_ref()?;
            Some((earlier.clone(), LedgerStep::hand_off(earlier, &next.row.id, next.handed_off?)))
        })
        .collect();
    for (earlier, step) in handed {
        let Some(folded) = folds.get_mut(&earlier).filter(|folded| folded.row.status == Status::Continued) else {
            continue;
        };
        if let Some((_, end)) = folded.steps.iter_mut().find(|(_, step)| step.step == LedgerStepKey::End) {
            *end = step;
        }
    }
}

/// Opens the accounts that no other thread records: of children started with `rye run --parent`, of children whose line
/// in the parent's transcript was lost, and of continuations whose first thread is missing. The first line of such a
/// thread names the parent and the amount.
fn open_unrecorded(folds: &mut BTreeMap<ThreadId, FoldedThread>) {
    let opened = |step: &LedgerStep| match &step.operation {
        Operation::Register { thread, .. }
        | Operation::Reserve { thread, .. }
        | Operation::HandOff { next: thread, .. } => Some(thread.clone()),
        Operation::SetParentReserve { .. }
        | Operation::Issue { .. }
        | Operation::Settle { .. }
        | Operation::Raise { .. }
        | Operation::Move { .. }
        | Operation::Drain { .. }
        | Operation::Release { .. }
        | Operation::Remaining { .. } => None,
    };
    let steps = folds.values().flat_map(|folded| &folded.steps);
    let known: BTreeSet<String> = steps.filter_map(|(_, step)| opened(step)).collect();
    for folded in folds.values_mut().filter(|folded| !known.contains(folded.row.id.as_str())) {
        let (ts, spend) = folded.opened;
        let step = match (&folded.row.parent, folded.row.spawn) {
            (Some(parent), Some(spawn)) => LedgerStep::child(parent, spawn, &folded.row.id, Some(spend), 0),
            _ => LedgerStep::register(&folded.row.id, spend),
        };
        folded.steps.insert(0, (ts, step));
    }
}

/// Counts the descendants of each thread. A child and its continuations count as one descendant. A descendant that
/// started after a handoff counts for the continuation, not for the thread before.
fn count_descendants(folds: &mut BTreeMap<ThreadId, FoldedThread>) {
    let spawned = folds.values().filter(|folded| folded.handed_off.is_none());
    let spawned: Vec<(ThreadId, i64)> =
        spawned.filter_map(|folded| Some((folded.row.parent.clone()?, folded.opened.0))).collect();
    for (parent, opened) in spawned {
        let (mut next, mut seen) = (Some(parent), BTreeSet::new());
        while let Some(thread) = next.take().filter(|thread| seen.insert(thread.clone())) {
            let Some(row) = folds.get(&thread).map(|folded| &folded.row) else { break };
            let continued_by = row.continued_by.as_ref().filter(|_| row.status == Status::Continued);
            let later = continued_by.filter(|by| folds.get(by).is_some_and(|next| next.opened.0 < opened)).cloned();
            if later.is_some() {
                next = later;
                continue;
            }
            next.clone_from(&row.parent);
            if let Some(folded) = folds.get_mut(&thread) {
                folded.row.spawned += 1;
            }
        }
    }
}

/// The stored answers of each thread, by step.
type LedgerAnswers = BTreeMap<ThreadId, Vec<(String, RecordedOperation)>>;

/// Replays all ledger steps: the steps of one thread in the order of its transcript, the steps of different threads by
/// time. Clocks differ, and a parent records a child after the child has started, so a refused step may depend on a
/// step of another thread. The thread of a refused step therefore waits until no other thread can proceed; only then is
/// the step refused for good. A handoff also waits while descendants of the thread still hold money that the
/// continuation received.
fn replay_ledger(folds: &BTreeMap<ThreadId, FoldedThread>) -> (Ledger, LedgerAnswers, Vec<(ThreadId, Refusal)>) {
    let mut ledger = Ledger::new();
    let (mut answers, mut refused) = (LedgerAnswers::new(), Vec::new());
    let mut waiting: Vec<&[(i64, LedgerStep)]> = folds.values().map(|folded| folded.steps.as_slice()).collect();
    let mut handoffs_wait = true;
    while !waiting.is_empty() {
        // `ready` holds the remaining steps of each thread, by the time of the first step.
        let mut ready = BTreeMap::new();
        for (index, steps) in waiting.drain(..).enumerate() {
            if let Some((ts, _)) = steps.first() {
                ready.insert((*ts, index), steps);
            }
        }
        let mut refusals = Vec::new();
        let (mut is_stuck, mut is_delayed) = (true, false);
        while let Some(((_, index), steps)) = ready.pop_first() {
            let Some(((_, step), rest)) = steps.split_first() else { continue };
            if handoffs_wait && is_early_handoff(&ledger, &step.operation) {
                waiting.push(steps);
                is_delayed = true;
                continue;
            }
            if step.step == LedgerStepKey::End {
                move_survivors(&mut ledger, step.thread.as_str());
            }
            match ledger.apply(&step.operation) {
                LedgerReply::Refused { refusal } => {
                    waiting.push(steps);
                    refusals.push((step.thread.clone(), refusal));
                }
                answer @ (LedgerReply::Done | LedgerReply::Reserved { .. } | LedgerReply::Remaining { .. }) => {
                    is_stuck = false;
                    let known = answers.entry(step.thread.clone()).or_default();
                    // The answers of a closed account are never requested again, except the answer for its end.
                    if step.step == LedgerStepKey::End {
                        known.clear();
                    }
                    let operation = step.operation.clone();
                    known.push((step.step.to_string(), RecordedOperation { operation, answer }));
                    if let Some((ts, _)) = rest.first() {
                        ready.insert((*ts, index), rest);
                    }
                }
            }
        }
        // If nothing else can proceed, the continuation gets what is left.
        handoffs_wait = !(is_stuck && is_delayed);
        if is_stuck && handoffs_wait {
            refused.append(&mut refusals);
            for steps in &mut waiting {
                *steps = steps.split_first().map_or(&[], |(_, rest)| rest);
            }
        }
    }
    (ledger, answers, refused)
}

/// Returns true for a handoff that must wait: the thread still has live children in `ledger`, because their ends are
/// not replayed yet, and its account has less money than the continuation had received.
fn is_early_handoff(ledger: &Ledger, operation: &Operation) -> bool {
    let Operation::HandOff { thread, most, .. } = operation else { return false };
    ledger.account(thread).is_some_and(|account| account.children() > 0 && account.remaining() < *most)
}

/// Moves the live children of a thread that ends to its nearest open ancestor, or to the root if no ancestor is open,
/// as the end of a thread does. Transcripts do not record these moves.
fn move_survivors(ledger: &mut Ledger, thread: &str) {
    if ledger.account(thread).is_none_or(|account| account.children() == 0) {
        return;
    }
    let parent_of = |ledger: &Ledger, id: &str| ledger.account(id).and_then(Account::parent).map(str::to_owned);
    let (mut to, mut next, mut seen) = (None, parent_of(ledger, thread), BTreeSet::new());
    while let Some(id) = next.take().filter(|id| seen.insert(id.clone())) {
        let is_open = ledger.account(&id).is_some_and(|account| account.status() == AccountStatus::Open);
        next = parent_of(ledger, &id).filter(|_| !is_open);
        to = Some(id);
    }
    let Some(to) = to else { return };
    let is_live = |account: &Account| account.parent() == Some(thread) && account.status() != AccountStatus::Released;
    let live: Vec<String> =
        ledger.accounts().filter(|(_, account)| is_live(account)).map(|(id, _)| id.to_owned()).collect();
    for child in live {
        // The child keeps its place below the ended thread if the move is refused; no money is lost.
        let moved = ledger.apply(&Operation::Move { thread: child.clone(), to: to.clone() });
        if let LedgerReply::Refused { refusal } = moved {
            tracing::debug!(child, ?refusal, "a child was not moved in the rebuilt ledger");
        }
    }
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
fn fill_edges(transaction: &WriteTransaction, folds: &BTreeMap<ThreadId, FoldedThread>) -> Result<(), StoreError> {
    let mut table = transaction.open_table(tables::CHILDREN).map_err(registry_error(DOING))?;
    // The continuation of a child has the same parent and number.
    let by_child = folds.values().filter(|folded| folded.handed_off.is_none()).filter_map(|folded| {
        let ThreadRow { id, parent, spawn, .. } = &folded.row;
        Some((parent.clone()?, (*spawn)?, id.clone()))
    });
    let by_parent = folds.iter().flat_map(|(parent, folded)| {
        folded.children.iter().map(|(spawn, child)| (parent.clone(), *spawn, child.clone()))
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
