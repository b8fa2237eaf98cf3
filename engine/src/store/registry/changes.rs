//! Writes to the registry. Each [`Change`] is a value, and one transaction applies several changes.

use std::collections::BTreeSet;

use redb::{ReadableTable, Table, WriteTransaction};
use rye_compiler::semantics::ledger::LedgerReply;
use serde::Serialize;

use super::read::{parse, parse_id};
use super::{LedgerStep, Registry, RowUpdate, ThreadRow, ledger, registry_error, tables};
use crate::store::StoreError;
use crate::store::owner::{self, OwnerId};
use crate::thread::Status;
use crate::thread_id::ThreadId;

const DOING: &str = "writing to it";

/// A change of the registry. Times are in milliseconds since 1970.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Inserts or replaces a thread's row.
    Put(Box<ThreadRow>),
    /// Updates some fields of a row.
    Update { thread: ThreadId, update: Box<RowUpdate>, now: i64 },
    /// Inserts the row of the child of `parent` that has the number `spawn`. If `parent` already has a child of this
    /// number, nothing changes and the result names the existing child.
    Spawn { parent: ThreadId, spawn: u64, child: Box<ThreadRow> },
    /// Inserts the row of a thread's continuation. The continuation may have as many descendants as the limit of the
    /// thread still allows.
    PutContinuation { thread: ThreadId, row: Box<ThreadRow> },
    /// Removes the link to a continuation that never started.
    Unlink { thread: ThreadId, next: ThreadId, now: i64 },
    /// Checks that no spawn limit of `parent` or of its ancestors forbids the child with the number `spawn`. Callers
    /// use this before they reserve money for the child. Changes nothing.
    SpawnLimit { parent: ThreadId, spawn: u64 },
    /// Makes a process the owner of a thread, unless another live process owns it or the thread has ended. A suspended
    /// thread and a closed session can be owned again.
    Own { thread: ThreadId, owner: OwnerId, now: i64 },
    /// Releases a thread that `owner` owns, unless the thread has ended. If `status` is set, the thread gets this
    /// status back, which it had before `owner` acquired it.
    Disown { thread: ThreadId, owner: OwnerId, status: Option<Status>, now: i64 },
    /// Applies a ledger operation as one step of a thread. A repeated step returns the first answer and changes
    /// nothing. A refusal changes nothing and is not stored.
    Ledger(LedgerStep),
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq)]
pub enum ChangeResult {
    Done,
    /// The child that has the spawn number: the existing child if an earlier spawn used the number, else the child that
    /// the change inserted.
    Child(ThreadId),
    /// Refused: this live owner holds the thread.
    OwnedBy(OwnerId),
    /// Refused: the thread has ended.
    HasEnded,
    /// Refused: this thread may have no more than `limit` descendants.
    TooMany {
        thread: ThreadId,
        limit: u64,
    },
    /// Refused: the registry has no such thread.
    NoThread(ThreadId),
    Ledger(LedgerReply),
}

impl ChangeResult {
    /// Returns true if the change was refused. The changes after it in the same list are then skipped.
    pub fn is_refused(&self) -> bool {
        match self {
            Self::Done | Self::Child(_) => false,
            Self::OwnedBy(_) | Self::HasEnded | Self::NoThread(_) | Self::TooMany { .. } => true,
            Self::Ledger(answer) => matches!(answer, LedgerReply::Refused { .. }),
        }
    }
}

impl Registry {
    /// Applies changes in one durable transaction, until one is refused. Returns an answer for each change up to the
    /// refused one. Earlier changes stay, and later changes are skipped.
    pub fn commit(&self, changes: &[Change]) -> Result<Vec<ChangeResult>, StoreError> {
        let mut answers = self.commit_all(&[changes])?;
        Ok(answers.pop().unwrap_or_default())
    }

    /// Applies several independent lists of changes in one transaction. If a change is refused, the rest of its list is
    /// skipped, and the other lists are still applied.
    pub fn commit_all(&self, lists: &[&[Change]]) -> Result<Vec<Vec<ChangeResult>>, StoreError> {
        self.write(|transaction| self.apply_lists(transaction, lists))
    }

    /// Variant of `commit_all` that never waits. Returns `None`, and changes nothing, if the write cannot start at
    /// once, for example because another writer is active.
    pub fn try_commit_all(&self, lists: &[&[Change]]) -> Option<Result<Vec<Vec<ChangeResult>>, StoreError>> {
        self.try_write(|transaction| self.apply_lists(transaction, lists))
    }

    fn apply_lists(
        &self,
        transaction: &WriteTransaction,
        lists: &[&[Change]],
    ) -> Result<Vec<Vec<ChangeResult>>, StoreError> {
        let mut answers = Vec::with_capacity(lists.len());
        for list in lists {
            let mut answered = Vec::with_capacity(list.len());
            for change in *list {
                let answer = self.change(transaction, change)?;
                let refused = answer.is_refused();
                answered.push(answer);
                if refused {
                    break;
                }
            }
            answers.push(answered);
        }
        Ok(answers)
    }

    /// Removes threads from the registry: their rows, the links to their children, their accounts, and the ledger's
    /// stored answers to their steps.
    pub fn remove(&self, threads: &[ThreadId]) -> Result<(), StoreError> {
        self.write(|transaction| {
            let mut rows = transaction.open_table(tables::THREADS).map_err(registry_error(DOING))?;
            let mut active = transaction.open_table(tables::ACTIVE).map_err(registry_error(DOING))?;
            let mut edges = transaction.open_table(tables::CHILDREN).map_err(registry_error(DOING))?;
            let mut accounts = transaction.open_table(tables::ACCOUNTS).map_err(registry_error(DOING))?;
            let mut answers = transaction.open_table(tables::ANSWERS).map_err(registry_error(DOING))?;
            for thread in threads {
                let id = thread.as_str();
                rows.remove(id).map_err(registry_error(DOING))?;
                active.remove(id).map_err(registry_error(DOING))?;
                accounts.remove(id).map_err(registry_error(DOING))?;
                edges.retain_in((id, 0)..=(id, u64::MAX), |_, _| false).map_err(registry_error(DOING))?;
                answers.retain_in((id, "")..(id, "\u{10ffff}"), |_, _| false).map_err(registry_error(DOING))?;
            }
            Ok(())
        })
    }

    fn change(&self, transaction: &WriteTransaction, change: &Change) -> Result<ChangeResult, StoreError> {
        match change {
            Change::Put(row) => put_row(transaction, row),
            Change::Update { thread, update, now } => edit(transaction, thread, |row| update.apply(row, *now)),
            Change::PutContinuation { thread, row } => put_continuation(transaction, thread, row),
            Change::Unlink { thread, next, now } => edit(transaction, thread, |row| {
                if row.continued_by.as_ref() == Some(next) {
                    row.continued_by = None;
                    row.updated_at = *now;
                }
            }),
            Change::Spawn { parent, spawn, child } => spawned(transaction, parent, *spawn, child),
            Change::SpawnLimit { parent, spawn } => check_spawn_limit(transaction, parent, *spawn),
            Change::Own { thread, owner, now } => self.acquire(transaction, thread, owner, *now),
            Change::Disown { thread, owner, status, now } => edit(transaction, thread, |row| {
                if row.owner.as_ref() == Some(owner) && !row.status.has_ended() {
                    row.owner = None;
                    row.status = status.unwrap_or(row.status);
                    row.updated_at = *now;
                }
            }),
            Change::Ledger(step) => ledger::apply_once(transaction, step).map(ChangeResult::Ledger),
        }
    }

    fn acquire(
        &self,
        transaction: &WriteTransaction,
        thread: &ThreadId,
        owner: &OwnerId,
        now: i64,
    ) -> Result<ChangeResult, StoreError> {
        let Some(row) = find(transaction, thread)? else { return Ok(ChangeResult::NoThread(thread.clone())) };
        if let Some(other) = row.owner.filter(|other| other != owner)
            && owner::is_alive(&*self.disk, &other)?
        {
            return Ok(ChangeResult::OwnedBy(other));
        }
        if row.status.has_ended() && !row.status.is_parked() {
            return Ok(ChangeResult::HasEnded);
        }
        edit(transaction, thread, |row| {
            row.owner = Some(owner.clone());
            row.updated_at = now;
        })
    }
}

fn spawned(
    transaction: &WriteTransaction,
    parent: &ThreadId,
    spawn: u64,
    child: &ThreadRow,
) -> Result<ChangeResult, StoreError> {
    let mut edges = transaction.open_table(tables::CHILDREN).map_err(registry_error(DOING))?;
    let known =
        edges.get((parent.as_str(), spawn)).map_err(registry_error(DOING))?.map(|known| parse_id(known.value()));
    if let Some(known) = known {
        return known.map(ChangeResult::Child);
    }
    for mut row in ancestors(transaction, parent)? {
        if let Some(refused) = spawn_refusal(&row) {
            return Ok(refused);
        }
        row.spawned += 1;
        put_row(transaction, &row)?;
    }
    edges.insert((parent.as_str(), spawn), child.id.as_str()).map_err(registry_error(DOING))?;
    drop(edges);
    let row = ThreadRow { parent: Some(parent.clone()), spawn: Some(spawn), ..child.clone() };
    put_row(transaction, &row)?;
    Ok(ChangeResult::Child(child.id.clone()))
}

fn put_continuation(
    transaction: &WriteTransaction,
    thread: &ThreadId,
    row: &ThreadRow,
) -> Result<ChangeResult, StoreError> {
    let Some(before) = find(transaction, thread)? else { return Ok(ChangeResult::NoThread(thread.clone())) };
    let spawns = before.spawns.map(|limit| limit.saturating_sub(before.spawned));
    put_row(transaction, &ThreadRow { spawns, spawned: 0, ..row.clone() })
}

fn check_spawn_limit(
    transaction: &WriteTransaction,
    parent: &ThreadId,
    spawn: u64,
) -> Result<ChangeResult, StoreError> {
    let edges = transaction.open_table(tables::CHILDREN).map_err(registry_error(DOING))?;
    if edges.get((parent.as_str(), spawn)).map_err(registry_error(DOING))?.is_some() {
        return Ok(ChangeResult::Done);
    }
    drop(edges);
    Ok(ancestors(transaction, parent)?.iter().find_map(spawn_refusal).unwrap_or(ChangeResult::Done))
}

/// Returns the refusal of a further descendant of this thread; `None` if the thread may have a further descendant.
fn spawn_refusal(row: &ThreadRow) -> Option<ChangeResult> {
    let limit = row.spawns.filter(|limit| row.spawned >= *limit)?;
    Some(ChangeResult::TooMany { thread: row.id.clone(), limit })
}

/// Returns the rows of a thread and its ancestors, nearest first. A continued thread is represented by its last
/// continuation, which takes over the unused spawns and the living children of the thread.
fn ancestors(transaction: &WriteTransaction, thread: &ThreadId) -> Result<Vec<ThreadRow>, StoreError> {
    let (mut rows, mut seen, mut next) = (Vec::new(), BTreeSet::new(), Some(thread.clone()));
    // A damaged registry may contain a cycle.
    while let Some(id) = next.take().filter(|id| seen.insert(id.clone())) {
        let Some(row) = find(transaction, &id)? else { break };
        let continued_by = row.continued_by.clone().filter(|_| row.status == Status::Continued);
        if let Some(id) = continued_by {
            next = Some(id);
        } else {
            next.clone_from(&row.parent);
            rows.push(row);
        }
    }
    Ok(rows)
}

fn find(transaction: &WriteTransaction, thread: &ThreadId) -> Result<Option<ThreadRow>, StoreError> {
    let table = transaction.open_table(tables::THREADS).map_err(registry_error(DOING))?;
    let row = table.get(thread.as_str()).map_err(registry_error(DOING))?;
    row.map(|bytes| parse(bytes.value())).transpose()
}

fn edit(
    transaction: &WriteTransaction,
    thread: &ThreadId,
    change: impl FnOnce(&mut ThreadRow),
) -> Result<ChangeResult, StoreError> {
    let Some(mut row) = find(transaction, thread)? else { return Ok(ChangeResult::NoThread(thread.clone())) };
    change(&mut row);
    put_row(transaction, &row)
}

pub fn put_row(transaction: &WriteTransaction, row: &ThreadRow) -> Result<ChangeResult, StoreError> {
    let mut threads = transaction.open_table(tables::THREADS).map_err(registry_error(DOING))?;
    insert_json(&mut threads, row.id.as_str(), row)?;
    let mut active = transaction.open_table(tables::ACTIVE).map_err(registry_error(DOING))?;
    let is_listed = active.get(row.id.as_str()).map_err(registry_error(DOING))?.is_some();
    // Rewriting an unchanged entry would dirty one more page to sync.
    if row.status.has_ended() && is_listed {
        active.remove(row.id.as_str()).map_err(registry_error(DOING))?;
    } else if !row.status.has_ended() && !is_listed {
        active.insert(row.id.as_str(), ()).map_err(registry_error(DOING))?;
    }
    Ok(ChangeResult::Done)
}

/// Writes a row to a table as JSON, in place of an older row with the same key.
pub fn insert_json<T: Serialize>(table: &mut Table<'_, &str, &[u8]>, key: &str, row: &T) -> Result<(), StoreError> {
    let bytes = serde_json::to_vec(row).map_err(registry_error("writing a row"))?;
    table.insert(key, bytes.as_slice()).map_err(registry_error(DOING))?;
    Ok(())
}
