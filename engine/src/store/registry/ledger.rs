//! The ledger in the registry: an operation reads the accounts it can touch, the pure ledger decides, and changed
//! accounts and the answer are written in one transaction (`engine.md` 4, Money).

use std::collections::BTreeMap;
use std::fmt;

use redb::{ReadableTable, WriteTransaction};
use rye_compiler::semantics::ledger::{Account, Ledger, LedgerReply, Operation};
use rye_compiler::semantics::money::Nanos;
use serde::{Deserialize, Serialize};

use super::changes::insert_json;
use super::read::parse;
use super::{registry_error, tables};
use crate::store::StoreError;
use crate::thread_id::ThreadId;

#[cfg(test)]
mod stress;
#[cfg(test)]
mod tests;

const DOING: &str = "writing the ledger";

/// The name of a ledger operation, unique in its thread. The thread computes the name from its transcript, so that a
/// repeated operation has the same name. The registry stores the answer to an operation by the thread's id and this
/// name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum LedgerStepKey {
    /// Opens the thread's own account.
    Register,
    /// Reserves the worst-case cost of an attempt.
    Issue { turn: u64, attempt: u32 },
    /// Settles an attempt.
    Settle { turn: u64, attempt: u32 },
    /// Reserves spend for the child with this spawn number.
    Child(u64),
    /// Any other operation, by its name and a number, such as `raise.2`.
    Other(String),
    /// Closes the account.
    End,
}

impl fmt::Display for LedgerStepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register => f.write_str("register"),
            // Keys of consecutive attempts are adjacent, so that one commit writes few pages.
            Self::Issue { turn, attempt } => write!(f, "{turn:06}.{attempt:02}.issue"),
            Self::Settle { turn, attempt } => write!(f, "{turn:06}.{attempt:02}.settle"),
            Self::Child(spawn) => write!(f, "child.{spawn}"),
            Self::Other(name) => write!(f, "other.{name}"),
            Self::End => f.write_str("end"),
        }
    }
}

/// An operation on the ledger, with the key under which its answer is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerStep {
    /// The thread that performs the operation. The id of the thread is a part of the key under which the answer is
    /// stored.
    pub thread: ThreadId,
    pub step: LedgerStepKey,
    pub operation: Operation,
}

impl LedgerStep {
    /// Creates the step that opens the account of a root thread. Amounts here and below are nano-dollars.
    pub fn register(thread: &ThreadId, spend: u64) -> Self {
        let operation = Operation::Register { thread: thread.to_string(), spend: Nanos::from_u64(spend) };
        Self { thread: thread.clone(), step: LedgerStepKey::Register, operation }
    }

    /// Creates the step that reserves the worst-case cost of an attempt. `worst_case` is in nano-dollars.
    pub fn issue(thread: &ThreadId, turn: u64, attempt: u32, worst_case: u64) -> Self {
        let operation = Operation::Issue {
            thread: thread.to_string(),
            attempt: format!("{turn}.{attempt}"),
            worst_case: Nanos::from_u64(worst_case),
        };
        Self { thread: thread.clone(), step: LedgerStepKey::Issue { turn, attempt }, operation }
    }

    /// Creates the step that replaces the reservation of an attempt by its cost `spent`, in nano-dollars.
    pub fn settle(thread: &ThreadId, turn: u64, attempt: u32, spent: u64) -> Self {
        let operation = Operation::Settle {
            thread: thread.to_string(),
            attempt: Some(format!("{turn}.{attempt}")),
            spent: Nanos::from_u64(spent),
        };
        Self { thread: thread.clone(), step: LedgerStepKey::Settle { turn, attempt }, operation }
    }

    /// Creates the step that reserves nano-dollars for the child with the number `spawn`. Without `amount`, the step
    /// reserves `default` or the remaining spend of the parent, whichever is smaller.
    pub fn child(parent: &ThreadId, spawn: u64, child: &ThreadId, amount: Option<u64>, default: u64) -> Self {
        let operation = Operation::Reserve {
            thread: child.to_string(),
            parent: parent.to_string(),
            amount: amount.map(Nanos::from_u64),
            default: Nanos::from_u64(default),
        };
        Self { thread: parent.clone(), step: LedgerStepKey::Child(spawn), operation }
    }

    /// Creates the step that closes a thread's account and opens the account of its continuation. The continuation gets
    /// the remaining amount, at most `most` nano-dollars.
    pub fn hand_off(thread: &ThreadId, next: &ThreadId, most: u64) -> Self {
        let operation =
            Operation::HandOff { thread: thread.to_string(), next: next.to_string(), most: Nanos::from_u64(most) };
        Self { thread: thread.clone(), step: LedgerStepKey::End, operation }
    }

    /// Creates the step that raises the spend limit of a thread to `spend` nano-dollars. The increase is reserved from
    /// the thread's parent.
    pub fn raise(thread: &ThreadId, spend: u64) -> Self {
        let operation = Operation::Raise { thread: thread.to_string(), spend: Nanos::from_u64(spend) };
        Self { thread: thread.clone(), step: LedgerStepKey::Other(format!("raise.{spend}")), operation }
    }

    /// Creates the step that frees the rest of the reservation of a suspended thread. `synced` is the number of durable
    /// events of the thread's transcript, and distinguishes this suspension from the thread's other suspensions.
    pub fn suspend(thread: &ThreadId, synced: u64) -> Self {
        let operation = Operation::Suspend { thread: thread.to_string() };
        Self { thread: thread.clone(), step: LedgerStepKey::Other(format!("suspend.{synced}")), operation }
    }

    /// Creates the step that opens the account of a suspended thread again before the thread continues. The step
    /// reserves the amount that the suspension freed, and is refused if an ancestor no longer has this amount. `synced`
    /// is the number of durable events of the thread's transcript. The number makes the key of this step different from
    /// the keys of later steps.
    pub fn reopen(thread: &ThreadId, synced: u64) -> Self {
        let operation = Operation::Reopen { thread: thread.to_string() };
        Self { thread: thread.clone(), step: LedgerStepKey::Other(format!("reopen.{synced}")), operation }
    }

    /// Creates the step that drains a thread's account: the account closes now or, if children are alive, after the
    /// last child has ended.
    pub fn end(thread: &ThreadId) -> Self {
        let operation = Operation::Drain { thread: thread.to_string() };
        Self { thread: thread.clone(), step: LedgerStepKey::End, operation }
    }
}

/// A ledger operation with its answer, as the registry stores them.
#[derive(Serialize, Deserialize)]
pub struct RecordedOperation {
    pub operation: Operation,
    pub answer: LedgerReply,
}

/// Applies a step of a thread to the ledger and stores the answer. A repeated step changes nothing and returns the
/// stored answer. No answer is stored for a refused step or a query, so that a repetition is evaluated with the current
/// amounts.
pub fn apply_once(transaction: &WriteTransaction, ledger_step: &LedgerStep) -> Result<LedgerReply, StoreError> {
    let LedgerStep { thread, step, operation } = ledger_step;
    let name = step.to_string();
    let mut answers = transaction.open_table(tables::ANSWERS).map_err(registry_error(DOING))?;
    let key = (thread.as_str(), name.as_str());
    let recorded =
        answers.get(key).map_err(registry_error(DOING))?.map(|bytes| parse::<RecordedOperation>(bytes.value()));
    if let Some(recorded) = recorded {
        return recorded.map(|recorded| recorded.answer);
    }
    let answer = apply(transaction, operation)?;
    let lasting = match (&answer, operation) {
        (LedgerReply::Refused { .. }, _) | (_, Operation::Remaining { .. }) => return Ok(answer),
        // After a thread has closed its account, only the closing step can be repeated, so the other answers are
        // removed.
        (
            _,
            Operation::Release { thread: ended }
            | Operation::Drain { thread: ended }
            | Operation::HandOff { thread: ended, .. },
        ) => ended != thread.as_str(),
        (
            _,
            Operation::Register { .. }
            | Operation::Reserve { .. }
            | Operation::SetParentReserve { .. }
            | Operation::Issue { .. }
            | Operation::Settle { .. }
            | Operation::Suspend { .. }
            | Operation::Reopen { .. }
            | Operation::Raise { .. },
        ) => true,
    };
    if !lasting {
        answers
            .retain_in((thread.as_str(), "")..(thread.as_str(), "\u{10ffff}"), |_, _| false)
            .map_err(registry_error(DOING))?;
    }
    let recorded = RecordedOperation { operation: operation.clone(), answer };
    let bytes = serde_json::to_vec(&recorded).map_err(registry_error(DOING))?;
    answers.insert(key, bytes.as_slice()).map_err(registry_error(DOING))?;
    Ok(recorded.answer)
}

/// Applies an operation to the stored accounts.
fn apply(transaction: &WriteTransaction, operation: &Operation) -> Result<LedgerReply, StoreError> {
    let mut table = transaction.open_table(tables::ACCOUNTS).map_err(registry_error(DOING))?;
    let mut before = BTreeMap::new();
    for thread in named_threads(operation) {
        // Reads the accounts up to the root, or up to an account that is already read.
        let mut next = Some(thread.to_string());
        while let Some(id) = next.take_if(|id| !before.contains_key(id)) {
            let Some(bytes) = table.get(id.as_str()).map_err(registry_error(DOING))? else { break };
            let account: Account = parse(bytes.value())?;
            next = account.parent().map(str::to_owned);
            before.insert(id, account);
        }
    }
    let mut ledger: Ledger = before.iter().map(|(id, account)| (id.clone(), account.clone())).collect();
    let answer = ledger.apply(operation);
    for (id, account) in ledger.accounts() {
        if before.get(id) != Some(account) {
            insert_json(&mut table, id, account)?;
        }
    }
    Ok(answer)
}

/// Returns the threads that an operation names. The operation reads and changes only the accounts of these threads and
/// of their ancestors.
fn named_threads(operation: &Operation) -> Vec<&str> {
    match operation {
        Operation::Register { thread, .. }
        | Operation::SetParentReserve { thread, .. }
        | Operation::Issue { thread, .. }
        | Operation::Settle { thread, .. }
        | Operation::Raise { thread, .. }
        | Operation::Suspend { thread }
        | Operation::Reopen { thread }
        | Operation::Drain { thread }
        | Operation::Release { thread }
        | Operation::Remaining { thread } => vec![thread],
        Operation::Reserve { thread, parent: other, .. } | Operation::HandOff { thread, next: other, .. } => {
            vec![thread, other]
        }
    }
}
