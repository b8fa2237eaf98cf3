//! The ledger of a thread tree: the spend of each thread and its remaining amount (`language.md` 11). No I/O: a store
//! persists the ledger.

mod account;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use account::{Account, AccountStatus};

use super::money::Nanos;

/// The accounts of one or more root threads. Serializable; the same operations produce the same ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ledger {
    accounts: BTreeMap<String, Account>,
}

/// An operation on a ledger. Amounts are nano-dollars.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Operation {
    /// Opens the account of a root thread.
    Register { thread: String, spend: Nanos },
    /// Reserves money of the parent for a child, before the child starts. Without an amount, the child gets the smaller
    /// of `default` and the parent's remaining amount.
    Reserve { thread: String, parent: String, amount: Option<Nanos>, default: Nanos },
    /// Sets the amount of an account that descendants cannot reserve, so that the thread itself can pay for one last
    /// turn.
    #[serde(alias = "keep_back")]
    SetParentReserve { thread: String, amount: Nanos },
    /// Reserves the worst case of an attempt, before the attempt is made.
    Issue { thread: String, attempt: String, worst_case: Nanos },
    /// Books an amount that was spent. If `attempt` is set, the worst case that [`Operation::Issue`] reserved for this
    /// attempt is released.
    Settle { thread: String, attempt: Option<String>, spent: Nanos },
    /// Sets a new, higher total for an account. The increase is reserved from the parent. If the parent has ended or is
    /// suspended, the increase is reserved from every ancestor up to the nearest one that is open.
    Raise { thread: String, spend: Nanos },
    /// Ends a thread and opens the account of its continuation, under the same parent if the thread has a parent. The
    /// continuation gets the remaining amount of the thread, at most `most`; a suspended thread has no remaining
    /// amount. The parent may be draining, because no further amount is reserved from the parent.
    #[serde(alias = "hand_over")]
    HandOff { thread: String, next: String, most: Nanos },
    /// Suspends a thread. Until the thread continues, its account holds only the amount that is spent or reserved for
    /// children; the rest is available to the parent.
    Suspend { thread: String },
    /// Opens the account of a suspended thread before the thread continues, so that the account holds its whole amount
    /// again. An open account stays unchanged.
    Reopen { thread: String },
    /// Ends a thread that has live children. The thread can no longer spend or reserve. Its account is released after
    /// the release of its last child. Until then, the account holds only the amount that is spent or still reserved;
    /// the rest is available to the parent.
    Drain { thread: String },
    /// Closes an account: the parent books the account's spend, and the rest of the reservation is free again.
    Release { thread: String },
    /// Returns the amount that the thread could still spend or reserve for children; negative if overspent.
    Remaining { thread: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum LedgerReply {
    Done,
    /// The operation [`Operation::Reserve`] succeeded; `amount` is reserved for the child.
    Reserved {
        amount: Nanos,
    },
    Remaining {
        amount: Nanos,
    },
    Refused {
        refusal: Refusal,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Refusal {
    #[error("no such thread")]
    NoSuchThread { thread: String },
    #[error("the thread has an account already")]
    AlreadyRegistered { thread: String },
    #[error("the requested amount is more than the remaining amount")]
    MoreThanIsLeft {
        #[serde(rename = "asked")]
        requested: Nanos,
        left: Nanos,
    },
    #[error("the account of an ancestor is overspent")]
    Overspent { thread: String },
    #[error("an amount cannot be negative")]
    Negative,
    #[error("an amount of money is too large for an account")]
    TooLarge,
    #[error("the thread was released")]
    Released { thread: String },
    #[error("the thread is ending and accepts no new reservations")]
    Draining { thread: String },
    #[error("the new limit is below the current one")]
    NoRaise { thread: String },
    #[error("the thread is suspended, and its reservation has not been reopened")]
    Suspended { thread: String },
    #[error("children are still live")]
    LiveChildren { children: u64 },
}

impl Ledger {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn account(&self, thread: &str) -> Option<&Account> {
        self.accounts.get(thread)
    }

    pub fn accounts(&self) -> impl Iterator<Item = (&str, &Account)> {
        self.accounts.iter().map(|(thread, account)| (thread.as_str(), account))
    }

    /// Applies an operation and returns its result. A refused operation changes nothing.
    pub fn apply(&mut self, operation: &Operation) -> LedgerReply {
        let answer = match operation {
            Operation::Register { thread, spend } => self.register(thread, *spend),
            Operation::Reserve { thread, parent, amount, default } => self.reserve(thread, parent, *amount, *default),
            Operation::SetParentReserve { thread, amount } => self.set_parent_reserve(thread, *amount),
            Operation::Issue { thread, attempt, worst_case } => self.issue(thread, attempt, *worst_case),
            Operation::Settle { thread, attempt, spent } => self.settle(thread, attempt.as_deref(), *spent),
            Operation::Raise { thread, spend } => self.raise(thread, *spend),
            Operation::HandOff { thread, next, most } => self.hand_off(thread, next, *most),
            Operation::Suspend { thread } => self.suspend(thread),
            Operation::Reopen { thread } => self.reopen(thread),
            Operation::Drain { thread } => self.drain(thread),
            Operation::Release { thread } => self.release(thread),
            Operation::Remaining { thread } => {
                self.account_of(thread).map(|account| LedgerReply::Remaining { amount: account.remaining() })
            }
        };
        answer.unwrap_or_else(|refusal| LedgerReply::Refused { refusal })
    }

    fn register(&mut self, thread: &str, spend: Nanos) -> Result<LedgerReply, Refusal> {
        self.check_unregistered(thread)?;
        self.accounts.insert(thread.to_owned(), Account::new(None, non_negative(spend)?));
        Ok(LedgerReply::Done)
    }

    fn reserve(
        &mut self,
        thread: &str,
        parent: &str,
        amount: Option<Nanos>,
        default: Nanos,
    ) -> Result<LedgerReply, Refusal> {
        self.check_unregistered(thread)?;
        let left = self.open_account(parent)?.available_to_children();
        let amount = match amount {
            Some(amount) if non_negative(amount)? > left => {
                return Err(Refusal::MoreThanIsLeft { requested: amount, left });
            }
            Some(amount) => amount,
            None => non_negative(default)?.min(left),
        };
        if amount.is_negative() {
            return Err(Refusal::MoreThanIsLeft { requested: default, left });
        }
        self.accounts.insert(thread.to_owned(), Account::new(Some(parent.to_owned()), amount));
        self.update(parent, |account| account.add_child(amount))?;
        Ok(LedgerReply::Reserved { amount })
    }

    fn set_parent_reserve(&mut self, thread: &str, amount: Nanos) -> Result<LedgerReply, Refusal> {
        let amount = non_negative(amount)?;
        self.open_account(thread)?;
        self.update(thread, |account| account.set_parent_reserve(amount))?;
        Ok(LedgerReply::Done)
    }

    fn issue(&mut self, thread: &str, attempt: &str, worst_case: Nanos) -> Result<LedgerReply, Refusal> {
        let worst_case = non_negative(worst_case)?;
        let account = self.open_account(thread)?;
        // If the attempt was issued before, the new amount replaces its first amount.
        let left = account.remaining().saturating_add(account.issued(attempt));
        if worst_case > left {
            return Err(Refusal::MoreThanIsLeft { requested: worst_case, left });
        }
        self.check_no_overspent_ancestor(account)?;
        self.update(thread, |account| account.issue(attempt, worst_case))?;
        Ok(LedgerReply::Done)
    }

    /// Refuses a new attempt if an ancestor account is overspent, because the ancestor's reservation no longer covers
    /// the reservations of its descendants.
    fn check_no_overspent_ancestor(&self, account: &Account) -> Result<(), Refusal> {
        let mut next = account.parent();
        while let Some(thread) = next {
            let ancestor = self.account_of(thread)?;
            if ancestor.remaining().is_negative() {
                return Err(Refusal::Overspent { thread: thread.to_owned() });
            }
            next = ancestor.parent();
        }
        Ok(())
    }

    fn settle(&mut self, thread: &str, attempt: Option<&str>, spent: Nanos) -> Result<LedgerReply, Refusal> {
        let spent = non_negative(spent)?;
        let account = self.live_account(thread)?;
        if account.spent().checked_add(spent).is_none() {
            return Err(Refusal::TooLarge);
        }
        self.update(thread, |account| account.settle(attempt, spent))?;
        Ok(LedgerReply::Done)
    }

    fn raise(&mut self, thread: &str, spend: Nanos) -> Result<LedgerReply, Refusal> {
        let spend = non_negative(spend)?;
        let account = self.open_account(thread)?;
        let requested = spend.saturating_sub(account.reserved());
        if requested.is_negative() {
            return Err(Refusal::NoRaise { thread: thread.to_owned() });
        }
        self.check_ancestors_have(account, requested)?;
        self.update(thread, |account| account.set_reserved(spend))?;
        Ok(LedgerReply::Done)
    }

    /// Refuses an amount that the parent of the account cannot reserve. If the parent has ended or is suspended, the
    /// parent of this parent must have the amount too, and so on up to the first open account.
    fn check_ancestors_have(&self, account: &Account, requested: Nanos) -> Result<(), Refusal> {
        let mut next = account.parent();
        while let Some(parent) = next {
            let ancestor = self.account_of(parent)?;
            let left = ancestor.available_to_children();
            if requested > left {
                return Err(Refusal::MoreThanIsLeft { requested, left });
            }
            // An ended or suspended ancestor holds only its used amount. If this amount grows, the ancestor takes the
            // increase from its parent.
            next = ancestor.parent().filter(|_| ancestor.status() != AccountStatus::Open);
        }
        Ok(())
    }

    fn suspend(&mut self, thread: &str) -> Result<LedgerReply, Refusal> {
        if self.live_account(thread)?.status() == AccountStatus::Draining {
            return Err(Refusal::Draining { thread: thread.to_owned() });
        }
        self.update(thread, |account| account.set_status(AccountStatus::Suspended))?;
        Ok(LedgerReply::Done)
    }

    fn reopen(&mut self, thread: &str) -> Result<LedgerReply, Refusal> {
        let account = self.live_account(thread)?;
        match account.status() {
            AccountStatus::Open => return Ok(LedgerReply::Done),
            AccountStatus::Suspended => {}
            AccountStatus::Draining | AccountStatus::Released => {
                return Err(Refusal::Draining { thread: thread.to_owned() });
            }
        }
        self.check_ancestors_have(account, account.remaining().max(Nanos::ZERO))?;
        self.update(thread, |account| account.set_status(AccountStatus::Open))?;
        Ok(LedgerReply::Done)
    }

    fn hand_off(&mut self, thread: &str, next: &str, most: Nanos) -> Result<LedgerReply, Refusal> {
        self.check_unregistered(next)?;
        let account = self.live_account(thread)?;
        let parent = account.parent().map(str::to_owned);
        let amount = match account.status() {
            AccountStatus::Open => non_negative(most)?.min(account.remaining()).max(Nanos::ZERO),
            // The remaining amount of a suspended account is available to its parent, so the continuation gets nothing.
            AccountStatus::Suspended => Nanos::ZERO,
            AccountStatus::Draining | AccountStatus::Released => {
                return Err(Refusal::Draining { thread: thread.to_owned() });
            }
        };
        // The reservation decreases even if the account is released at once, so that the result does not depend on
        // whether children are still live.
        self.update(thread, |account| account.set_reserved(account.reserved().saturating_sub(amount)))?;
        self.accounts.insert(next.to_owned(), Account::new(parent.clone(), amount));
        // The continuation is added before the thread ends, because a draining parent without live children is
        // released.
        if let Some(parent) = parent {
            self.update(&parent, |account| account.add_child(amount))?;
        }
        self.drain(thread)?;
        Ok(LedgerReply::Reserved { amount })
    }

    fn drain(&mut self, thread: &str) -> Result<LedgerReply, Refusal> {
        if self.live_account(thread)?.children() == 0 {
            return self.release(thread);
        }
        self.update(thread, Account::drain)?;
        Ok(LedgerReply::Done)
    }

    fn release(&mut self, thread: &str) -> Result<LedgerReply, Refusal> {
        let account = self.account_of(thread)?;
        if account.status() == AccountStatus::Released {
            return Ok(LedgerReply::Done);
        }
        let children = account.children();
        if children > 0 {
            return Err(Refusal::LiveChildren { children });
        }
        let parent = account.parent().map(str::to_owned);
        self.update(thread, Account::release)?;
        let Some(parent) = parent else { return Ok(LedgerReply::Done) };
        let released = self.account_of(thread)?;
        let (held, spent) = (released.occupied(), released.spent());
        self.update(&parent, |account| account.settle_child(held, spent))?;
        self.release_if_drained(&parent)
    }

    /// Releases an account if it is draining and has no live children left.
    fn release_if_drained(&mut self, thread: &str) -> Result<LedgerReply, Refusal> {
        let account = self.account_of(thread)?;
        if account.status() == AccountStatus::Draining && account.children() == 0 {
            return self.release(thread);
        }
        Ok(LedgerReply::Done)
    }

    fn check_unregistered(&self, thread: &str) -> Result<(), Refusal> {
        if self.accounts.contains_key(thread) {
            return Err(Refusal::AlreadyRegistered { thread: thread.to_owned() });
        }
        Ok(())
    }

    fn account_of(&self, thread: &str) -> Result<&Account, Refusal> {
        self.accounts.get(thread).ok_or_else(|| Refusal::NoSuchThread { thread: thread.to_owned() })
    }

    /// Returns an account that can still book spend; refuses a released account.
    fn live_account(&self, thread: &str) -> Result<&Account, Refusal> {
        let account = self.account_of(thread)?;
        match account.status() {
            AccountStatus::Open | AccountStatus::Suspended | AccountStatus::Draining => Ok(account),
            AccountStatus::Released => Err(Refusal::Released { thread: thread.to_owned() }),
        }
    }

    /// Returns the account of a thread if the account can issue attempts and reserve money. Refuses a suspended,
    /// draining or released account.
    fn open_account(&self, thread: &str) -> Result<&Account, Refusal> {
        let account = self.live_account(thread)?;
        match account.status() {
            AccountStatus::Open => Ok(account),
            AccountStatus::Suspended => Err(Refusal::Suspended { thread: thread.to_owned() }),
            AccountStatus::Draining | AccountStatus::Released => Err(Refusal::Draining { thread: thread.to_owned() }),
        }
    }

    /// Changes one account. If the amount that the account occupies (see `Account::occupied`) changes, books the
    /// difference in the account of the parent, and so on up to the root.
    fn update(&mut self, thread: &str, change: impl FnOnce(&mut Account)) -> Result<(), Refusal> {
        let missing = || Refusal::NoSuchThread { thread: thread.to_owned() };
        let account = self.accounts.get_mut(thread).ok_or_else(missing)?;
        let (mut before, live) = (account.occupied(), account.status() != AccountStatus::Released);
        change(account);
        let (mut held, mut parent) = (account.occupied(), account.parent().filter(|_| live).map(str::to_owned));
        while let Some(account) = parent.take_if(|_| held != before).and_then(|id| self.accounts.get_mut(&id)) {
            let (child_before, child_now) = (before, held);
            before = account.occupied();
            account.update_child(child_before, child_now);
            held = account.occupied();
            parent = account.parent().map(str::to_owned);
        }
        Ok(())
    }
}

/// The history of one account, without the order of the operations: the order changes no amount of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountHistory {
    pub thread: String,
    pub parent: Option<String>,
    /// The total amount reserved for the thread: after all raises, and without the amount that a handoff moved to the
    /// next thread.
    pub reserved: Nanos,
    /// The amount that the thread itself has settled.
    pub spent: Nanos,
    /// Worst-case costs of the attempts without a settlement, by attempt.
    pub issued: BTreeMap<String, Nanos>,
    pub has_ended: bool,
    pub is_suspended: bool,
}

impl Ledger {
    /// Rebuilds the accounts from their histories. If the parent of an account has no history, the amounts of the
    /// account are added to no parent.
    pub fn from_histories(histories: Vec<AccountHistory>) -> Self {
        let mut children: BTreeMap<String, usize> = BTreeMap::new();
        for parent in histories.iter().filter_map(|history| history.parent.clone()) {
            *children.entry(parent).or_default() += 1;
        }
        let is_leaf = |history: &AccountHistory| !children.contains_key(&history.thread);
        let mut ready: Vec<String> =
            histories.iter().filter(|history| is_leaf(history)).map(|history| history.thread.clone()).collect();
        let mut ended: BTreeSet<String> = BTreeSet::new();
        let mut ledger = Self::new();
        for history in histories {
            if history.has_ended {
                ended.insert(history.thread.clone());
            }
            ledger.accounts.insert(history.thread.clone(), Account::from_history(history));
        }
        // Each account is closed after all of its children, so that their amounts are known. Accounts of a damaged
        // store that are their own ancestors stay open.
        while let Some(thread) = ready.pop() {
            let Some(account) = ledger.accounts.get_mut(&thread) else { continue };
            if ended.contains(&thread) {
                if account.children() == 0 { account.release() } else { account.drain() }
            }
            let is_released = account.status() == AccountStatus::Released;
            let (held, spent) = (account.occupied(), account.spent());
            let Some(parent) = account.parent().map(str::to_owned) else { continue };
            if let Some(account) = ledger.accounts.get_mut(&parent) {
                account.add_child(held);
                if is_released {
                    account.settle_child(held, spent);
                }
            }
            if let Some(open) = children.get_mut(&parent) {
                *open -= 1;
                if *open == 0 {
                    ready.push(parent);
                }
            }
        }
        ledger
    }
}

/// Creates a ledger that contains only the given accounts. An operation needs the accounts of its thread and of the
/// thread's ancestors.
impl FromIterator<(String, Account)> for Ledger {
    fn from_iter<I: IntoIterator<Item = (String, Account)>>(accounts: I) -> Self {
        Self { accounts: accounts.into_iter().collect() }
    }
}

fn non_negative(amount: Nanos) -> Result<Nanos, Refusal> {
    if amount.is_negative() { Err(Refusal::Negative) } else { Ok(amount) }
}
