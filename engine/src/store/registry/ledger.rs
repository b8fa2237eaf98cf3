//! The ledger as rows: an operation reads the accounts it can touch, the pure ledger decides, what changed is written,
//! and the answer is kept beside it in the same transaction (`engine.md` 4, Money).

use std::collections::BTreeMap;
use std::fmt;

use redb::{ReadableTable, WriteTransaction};
use rye_compiler::semantics::ledger::{Account, Answer, Ledger, Operation};
use rye_compiler::semantics::money::Nanos;
use serde::{Deserialize, Serialize};

use super::changes::insert;
use super::read::parse;
use super::{failed, tables};
use crate::store::StoreError;
use crate::thread_id::ThreadId;

#[cfg(test)]
mod storm;
#[cfg(test)]
mod tests;

const DOING: &str = "writing the ledger";

/// Which operation of a thread this is, as the fold of its transcript knows it: with the thread's id the key under which
/// the answer is kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The thread's own account is opened.
    Register,
    /// The worst case of an attempt is set aside.
    Issue { turn: u64, attempt: u32 },
    /// An attempt is booked.
    Settle { turn: u64, attempt: u32 },
    /// Money is set aside for the n-th child.
    Child(u64),
    /// Anything else that happens once: `raise.2`, `move.hello-1739820456`.
    Other(String),
    /// The account is closed.
    End,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register => f.write_str("register"),
            // What one commit writes of attempts that follow one another lies on one page.
            Self::Issue { turn, attempt } => write!(f, "{turn:06}.{attempt:02}.issue"),
            Self::Settle { turn, attempt } => write!(f, "{turn:06}.{attempt:02}.settle"),
            Self::Child(spawn) => write!(f, "child.{spawn}"),
            Self::Other(name) => write!(f, "other.{name}"),
            Self::End => f.write_str("end"),
        }
    }
}

/// An operation on the ledger, with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerStep {
    /// The thread whose step this is.
    pub thread: ThreadId,
    pub step: Step,
    pub operation: Operation,
}

impl LedgerStep {
    /// Opens the account of a root thread. Amounts here and below are nano-dollars.
    pub fn register(thread: &ThreadId, spend: u64) -> Self {
        let operation = Operation::Register { thread: thread.to_string(), spend: Nanos::from_u64(spend) };
        Self { thread: thread.clone(), step: Step::Register, operation }
    }

    /// Sets the worst case of an attempt aside.
    pub fn issue(thread: &ThreadId, turn: u64, attempt: u32, worst_case: u64) -> Self {
        let operation = Operation::Issue {
            thread: thread.to_string(),
            attempt: format!("{turn}.{attempt}"),
            worst_case: Nanos::from_u64(worst_case),
        };
        Self { thread: thread.clone(), step: Step::Issue { turn, attempt }, operation }
    }

    /// Books what an attempt cost, in place of its worst case.
    pub fn settle(thread: &ThreadId, turn: u64, attempt: u32, spent: u64) -> Self {
        let operation = Operation::Settle {
            thread: thread.to_string(),
            attempt: Some(format!("{turn}.{attempt}")),
            spent: Nanos::from_u64(spent),
        };
        Self { thread: thread.clone(), step: Step::Settle { turn, attempt }, operation }
    }

    /// Sets money aside for a thread's n-th child: `amount`, or the smaller of `default` and what is left.
    pub fn child(parent: &ThreadId, spawn: u64, child: &ThreadId, amount: Option<u64>, default: u64) -> Self {
        let operation = Operation::Reserve {
            thread: child.to_string(),
            parent: parent.to_string(),
            amount: amount.map(Nanos::from_u64),
            default: Nanos::from_u64(default),
        };
        Self { thread: parent.clone(), step: Step::Child(spawn), operation }
    }

    /// Closes a child's account and opens that of its continuation with what is left, at most `most`.
    pub fn hand_over(thread: &ThreadId, next: &ThreadId, most: u64) -> Self {
        let operation =
            Operation::HandOver { thread: thread.to_string(), next: next.to_string(), most: Nanos::from_u64(most) };
        Self { thread: thread.clone(), step: Step::End, operation }
    }

    /// Lifts what a thread may spend in all; more is taken from its parent.
    pub fn raise(thread: &ThreadId, spend: u64) -> Self {
        let operation = Operation::Raise { thread: thread.to_string(), spend: Nanos::from_u64(spend) };
        Self { thread: thread.clone(), step: Step::Other(format!("raise.{spend}")), operation }
    }

    /// Moves a child that outlives its parent to an ancestor of it.
    pub fn moved(parent: &ThreadId, child: &ThreadId, to: &ThreadId) -> Self {
        let operation = Operation::Move { thread: child.to_string(), to: to.to_string() };
        Self { thread: parent.clone(), step: Step::Other(format!("move.{child}")), operation }
    }

    /// Closes a thread's account, or lets it wait for its last living child and close then.
    pub fn end(thread: &ThreadId) -> Self {
        let operation = Operation::Drain { thread: thread.to_string() };
        Self { thread: thread.clone(), step: Step::End, operation }
    }
}

/// What is kept of an operation.
#[derive(Serialize, Deserialize)]
pub struct Taken {
    pub operation: Operation,
    pub answer: Answer,
}

/// Takes a step of a thread, or answers what it was answered before.
pub fn take(transaction: &WriteTransaction, asked: &LedgerStep) -> Result<Answer, StoreError> {
    let LedgerStep { thread, step, operation } = asked;
    let name = step.to_string();
    let mut answers = transaction.open_table(tables::ANSWERS).map_err(failed(DOING))?;
    let key = (thread.as_str(), name.as_str());
    let taken = answers.get(key).map_err(failed(DOING))?.map(|bytes| parse::<Taken>(bytes.value()));
    if let Some(taken) = taken {
        return taken.map(|taken| taken.answer);
    }
    let answer = apply(transaction, operation)?;
    let lasting = match (&answer, operation) {
        (Answer::Refused { .. }, _) | (_, Operation::Remaining { .. }) => return Ok(answer),
        // An account that is closed has only its end to be asked for again.
        (
            _,
            Operation::Release { thread: ended }
            | Operation::Drain { thread: ended }
            | Operation::HandOver { thread: ended, .. },
        ) => ended != thread.as_str(),
        (
            _,
            Operation::Register { .. }
            | Operation::Reserve { .. }
            | Operation::KeepBack { .. }
            | Operation::Issue { .. }
            | Operation::Settle { .. }
            | Operation::Raise { .. }
            | Operation::Move { .. },
        ) => true,
    };
    if !lasting {
        answers
            .retain_in((thread.as_str(), "")..(thread.as_str(), "\u{10ffff}"), |_, _| false)
            .map_err(failed(DOING))?;
    }
    let taken = Taken { operation: operation.clone(), answer };
    let bytes = serde_json::to_vec(&taken).map_err(failed(DOING))?;
    answers.insert(key, bytes.as_slice()).map_err(failed(DOING))?;
    Ok(taken.answer)
}

/// Applies an operation to the rows.
fn apply(transaction: &WriteTransaction, operation: &Operation) -> Result<Answer, StoreError> {
    let mut table = transaction.open_table(tables::ACCOUNTS).map_err(failed(DOING))?;
    let mut before = BTreeMap::new();
    for thread in named(operation) {
        // Up to the root, whose account has no parent, or to what is read already.
        let mut next = Some(thread.to_string());
        while let Some(id) = next.take_if(|id| !before.contains_key(id)) {
            let Some(bytes) = table.get(id.as_str()).map_err(failed(DOING))? else { break };
            let account: Account = parse(bytes.value())?;
            next = account.parent().map(str::to_owned);
            before.insert(id, account);
        }
    }
    let mut ledger: Ledger = before.iter().map(|(id, account)| (id.clone(), account.clone())).collect();
    let answer = ledger.apply(operation);
    for (id, account) in ledger.accounts() {
        if before.get(id) != Some(account) {
            insert(&mut table, id, account)?;
        }
    }
    Ok(answer)
}

/// The threads that an operation names; with their ancestors they are all it can read or change.
fn named(operation: &Operation) -> Vec<&str> {
    match operation {
        Operation::Register { thread, .. }
        | Operation::KeepBack { thread, .. }
        | Operation::Issue { thread, .. }
        | Operation::Settle { thread, .. }
        | Operation::Raise { thread, .. }
        | Operation::Drain { thread }
        | Operation::Release { thread }
        | Operation::Remaining { thread } => vec![thread],
        Operation::Reserve { thread, parent: other, .. }
        | Operation::Move { thread, to: other }
        | Operation::HandOver { thread, next: other, .. } => {
            vec![thread, other]
        }
    }
}
