//! An account of the ledger: its arithmetic, without the rules about permitted operations.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::AccountHistory;
use crate::semantics::money::Nanos;

/// The money of one thread. Each child has an account of its own, so that an account stays small. INVARIANT: `children`
/// is the number of live children, and `children_hold` the sum of the amounts that they hold now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    parent: Option<String>,
    /// The total that the thread and its descendants may spend.
    reserved: Nanos,
    /// The amount that the thread itself and the children with a released account have spent.
    spent: Nanos,
    /// The worst cases that are reserved for the attempts in progress, by attempt.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    issued: BTreeMap<String, Nanos>,
    /// The amount that descendants cannot reserve, because the thread needs it for its own last turn.
    #[serde(rename = "kept_back", default, skip_serializing_if = "is_zero")]
    parent_reserve: Nanos,
    /// Number of live children.
    #[serde(default, deserialize_with = "read_children", skip_serializing_if = "is_none")]
    children: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    children_hold: Nanos,
    #[serde(alias = "standing")]
    status: AccountStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountStatus {
    Open,
    /// The thread waits for an approval and has a parent. Until the thread continues, the parent can use the unspent
    /// part of the reservation of the thread.
    Suspended,
    /// The thread has ended, but has live children.
    Draining,
    Released,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_zero(amount: &Nanos) -> bool {
    *amount == Nanos::ZERO
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

/// Reads the number of live children. Earlier versions stored a map of the children.
fn read_children<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Children {
        Number(u64),
        Map(BTreeMap<String, Nanos>),
    }
    Ok(match Children::deserialize(deserializer)? {
        Children::Number(number) => number,
        Children::Map(children) => u64::try_from(children.len()).unwrap_or(u64::MAX),
    })
}

impl Account {
    pub(super) fn new(parent: Option<String>, reserved: Nanos) -> Self {
        Self {
            parent,
            reserved,
            spent: Nanos::ZERO,
            issued: BTreeMap::new(),
            parent_reserve: Nanos::ZERO,
            children: 0,
            children_hold: Nanos::ZERO,
            status: AccountStatus::Open,
        }
    }

    /// Creates an account from its history. The account is open or suspended, and has no children.
    pub(super) fn from_history(history: AccountHistory) -> Self {
        let AccountHistory { thread: _, parent, reserved, spent, issued, has_ended: _, is_suspended } = history;
        let status = if is_suspended { AccountStatus::Suspended } else { AccountStatus::Open };
        Self { spent, issued, status, ..Self::new(parent, reserved) }
    }

    pub fn parent(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    pub fn reserved(&self) -> Nanos {
        self.reserved
    }

    pub fn spent(&self) -> Nanos {
        self.spent
    }

    pub fn status(&self) -> AccountStatus {
        self.status
    }

    /// Returns the number of live children.
    pub fn children(&self) -> u64 {
        self.children
    }

    /// Returns the sum of the amounts that the live children hold.
    pub fn children_hold(&self) -> Nanos {
        self.children_hold
    }

    /// Returns the worst case that is reserved for an attempt in progress; zero if the account has no such attempt.
    pub fn issued(&self, attempt: &str) -> Nanos {
        self.issued.get(attempt).copied().unwrap_or_default()
    }

    /// Returns the sum of the worst cases that are reserved for attempts in progress.
    pub fn attempts_hold(&self) -> Nanos {
        self.issued.values().fold(Nanos::ZERO, |sum, worst| sum.saturating_add(*worst))
    }

    /// Returns the sum of the amount that is spent, the worst cases of the attempts in progress, and the amounts that
    /// live children hold.
    pub fn used(&self) -> Nanos {
        self.spent.saturating_add(self.children_hold).saturating_add(self.attempts_hold())
    }

    /// Returns the amount that the account takes from its parent. For an open account, this is the larger of the
    /// reservation and the used amount. For any other account, only the used amount counts.
    pub fn occupied(&self) -> Nanos {
        match self.status {
            AccountStatus::Open => self.reserved.max(self.used()),
            AccountStatus::Suspended | AccountStatus::Draining | AccountStatus::Released => self.used(),
        }
    }

    /// Returns the amount that the thread could still spend or reserve for children; negative if overspent.
    pub fn remaining(&self) -> Nanos {
        self.reserved.saturating_sub(self.used())
    }

    /// Returns the amount by which the account exceeds its reservation; zero if it does not exceed the reservation.
    pub fn overspend(&self) -> Nanos {
        self.used().saturating_sub(self.reserved).max(Nanos::ZERO)
    }

    pub fn available_to_children(&self) -> Nanos {
        self.remaining().saturating_sub(self.parent_reserve)
    }

    pub(super) fn set_parent_reserve(&mut self, amount: Nanos) {
        self.parent_reserve = amount;
    }

    pub(super) fn issue(&mut self, attempt: &str, worst_case: Nanos) {
        self.issued.insert(attempt.to_owned(), worst_case);
    }

    pub(super) fn settle(&mut self, attempt: Option<&str>, spent: Nanos) {
        if let Some(attempt) = attempt {
            self.issued.remove(attempt);
        }
        self.spent = self.spent.saturating_add(spent);
    }

    pub(super) fn set_status(&mut self, status: AccountStatus) {
        self.status = status;
    }

    pub(super) fn set_reserved(&mut self, reserved: Nanos) {
        self.reserved = reserved.max(Nanos::ZERO);
    }

    /// Closes the account to new attempts and children. Also frees the reserve for a last turn, because an ended thread
    /// has no further turn.
    pub(super) fn drain(&mut self) {
        self.parent_reserve = Nanos::ZERO;
        self.status = AccountStatus::Draining;
    }

    /// Closes the account; attempts without a result are booked at their worst case.
    pub(super) fn release(&mut self) {
        for (_, worst_case) in std::mem::take(&mut self.issued) {
            self.spent = self.spent.saturating_add(worst_case);
        }
        self.parent_reserve = Nanos::ZERO;
        self.status = AccountStatus::Released;
    }

    /// Adds a live child that holds the amount `held`.
    pub(super) fn add_child(&mut self, held: Nanos) {
        self.children = self.children.saturating_add(1);
        self.children_hold = self.children_hold.saturating_add(held);
    }

    /// Removes a live child that holds the amount `held`.
    pub(super) fn remove_child(&mut self, held: Nanos) {
        self.children = self.children.saturating_sub(1);
        self.children_hold = self.children_hold.saturating_sub(held);
    }

    /// Removes a released child that held `held`, and books the `spent` of the child on this account; the rest of
    /// `held` is free again.
    pub(super) fn settle_child(&mut self, held: Nanos, spent: Nanos) {
        self.remove_child(held);
        self.spent = self.spent.saturating_add(spent);
    }

    /// Replaces the amount `before`, which a live child has reserved, by `now`.
    pub(super) fn update_child(&mut self, before: Nanos, now: Nanos) {
        self.children_hold = self.children_hold.saturating_sub(before).saturating_add(now);
    }
}
