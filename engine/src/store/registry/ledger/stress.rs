//! Stress tests: random operations on random trees, a million on the pure ledger and ten thousand on the store by
//! several threads with two registries at once. No account exceeds its reservation, and every nano-dollar is accounted
//! for.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rye_compiler::semantics::ledger::AccountStatus;

use super::super::{Change, ChangeResult, Registry};
use super::*;
use crate::store::disk::{RealDisk, SplitMix};

fn amount(rng: &mut SplitMix, most: u64) -> Nanos {
    Nanos::from_u64(rng.next(most))
}

/// The expected state of all trees, computed from the answers so far.
#[derive(Default)]
struct KnownForest {
    threads: Vec<String>,
    /// Attempts whose settlement is neither accepted nor pending: the thread, the attempt and its worst case.
    open_attempts: Vec<(String, String, u64)>,
    /// The thread and the worst case of each attempt without an accepted settlement, by attempt.
    open: BTreeMap<String, (String, u64)>,
    /// Nano-dollars of accepted settlements.
    settled: u64,
    next: u64,
}

impl KnownForest {
    fn name(&mut self) -> String {
        self.next += 1;
        format!("t-{}", self.next)
    }

    /// Returns a random operation, mostly a valid one. A settlement is at most the reservation.
    fn operation(&mut self, rng: &mut SplitMix) -> Operation {
        if self.threads.is_empty() || rng.next(60) == 0 {
            return Operation::Register { thread: self.name(), spend: amount(rng, 2_000_000) };
        }
        let any =
            |rng: &mut SplitMix| self.threads[usize::try_from(rng.next(self.threads.len() as u64)).unwrap()].clone();
        let thread = any(rng);
        match rng.next(100) {
            0..20 => {
                let (parent, named) = (thread, (rng.next(2) == 0).then(|| amount(rng, 300_000)));
                Operation::Reserve { thread: self.name(), parent, amount: named, default: amount(rng, 300_000) }
            }
            20..50 => {
                self.next += 1;
                Operation::Issue { thread, attempt: format!("{}.0", self.next), worst_case: amount(rng, 20_000) }
            }
            50..80 if !self.open_attempts.is_empty() => {
                let which = usize::try_from(rng.next(self.open_attempts.len() as u64)).unwrap();
                let (thread, attempt, worst) = self.open_attempts.swap_remove(which);
                Operation::Settle { thread, attempt: Some(attempt), spent: amount(rng, worst + 1) }
            }
            80..84 => Operation::Raise { thread, spend: amount(rng, 2_000_000) },
            84..87 => Operation::SetParentReserve { thread, amount: amount(rng, 50_000) },
            87..91 => Operation::Drain { thread },
            91..95 => Operation::HandOff { thread, next: self.name(), most: amount(rng, 300_000) },
            95..97 => Operation::Release { thread },
            97 => Operation::Suspend { thread },
            98 => Operation::Reopen { thread },
            _ => Operation::Remaining { thread },
        }
    }

    /// Records the answer. If a settlement was refused, its attempt is open again.
    fn record_answer(&mut self, operation: &Operation, answer: &LedgerReply) {
        if matches!(answer, LedgerReply::Refused { .. } | LedgerReply::Remaining { .. }) {
            if let Operation::Settle { thread, attempt: Some(attempt), .. } = operation {
                let worst = self.open.get(attempt).map_or(0, |(_, worst)| *worst);
                self.open_attempts.push((thread.clone(), attempt.clone(), worst));
            }
            return;
        }
        match operation {
            Operation::Register { thread, .. } | Operation::Reserve { thread, .. } => {
                self.threads.push(thread.clone());
            }
            Operation::HandOff { next, .. } => self.threads.push(next.clone()),
            Operation::Issue { thread, attempt, worst_case } => {
                self.open_attempts.push((thread.clone(), attempt.clone(), worst_case.to_u64()));
                self.open.insert(attempt.clone(), (thread.clone(), worst_case.to_u64()));
            }
            Operation::Settle { attempt, spent, .. } => {
                self.settled += spent.to_u64();
                self.open.remove(attempt.as_deref().unwrap_or_default());
            }
            Operation::SetParentReserve { .. }
            | Operation::Raise { .. }
            | Operation::Suspend { .. }
            | Operation::Reopen { .. }
            | Operation::Drain { .. }
            | Operation::Release { .. }
            | Operation::Remaining { .. } => {}
        }
    }
}

/// Checks the invariants of an account.
fn check(account: &Account) {
    assert!(account.remaining() >= Nanos::ZERO, "{account:?}");
    assert_eq!(account.overspend(), Nanos::ZERO);
    assert!(account.children_hold() <= account.reserved(), "{account:?}");
}

/// Checks all accounts: each counts its live children and the sum of the amounts that they hold.
fn check_all(ledger: &Ledger) {
    let mut held: BTreeMap<&str, (u64, Nanos)> = BTreeMap::new();
    for (_, account) in ledger.accounts().filter(|(_, account)| account.status() != AccountStatus::Released) {
        if let Some(parent) = account.parent() {
            let (children, sum) = held.entry(parent).or_default();
            *children += 1;
            *sum = sum.saturating_add(account.occupied());
        }
    }
    for (thread, account) in ledger.accounts() {
        check(account);
        let held = held.get(thread).copied().unwrap_or_default();
        assert_eq!((account.children(), account.children_hold()), held, "{thread}: {account:?}");
    }
}

/// Returns the accounts that an operation can have changed.
fn touched<'l>(ledger: &'l Ledger, operation: &Operation) -> Vec<&'l Account> {
    let mut touched = Vec::new();
    for thread in named_threads(operation) {
        let mut next = ledger.account(thread);
        while let Some(account) = next {
            touched.push(account);
            next = account.parent().and_then(|parent| ledger.account(parent));
        }
    }
    touched
}

#[test]
fn a_million_operations_conserve_spend() {
    for seed in 0..500 {
        let (mut ledger, mut known, mut rng) = (Ledger::new(), KnownForest::default(), SplitMix::new(seed));
        for _ in 0..2_000 {
            let operation = known.operation(&mut rng);
            let before: Vec<Account> = touched(&ledger, &operation).into_iter().cloned().collect();
            let answer = ledger.apply(&operation);
            known.record_answer(&operation, &answer);
            let after = touched(&ledger, &operation);
            if matches!(answer, LedgerReply::Refused { .. } | LedgerReply::Remaining { .. }) {
                assert!(before.iter().eq(after.iter().copied()), "{operation:?} was refused and changed something");
                continue;
            }
            after.into_iter().for_each(check);
        }
        check_all(&ledger);
        ended(&known, &mut ledger);
    }
}

/// Ends every thread and checks that the spend equals the settlements plus the worst cases of open attempts.
fn ended(known: &KnownForest, ledger: &mut Ledger) {
    let released = |thread: &str| ledger.account(thread).is_some_and(|a| a.status() == AccountStatus::Released);
    let (mut booked, mut unsettled) = (0, 0);
    for (thread, worst) in known.open.values() {
        *(if released(thread) { &mut booked } else { &mut unsettled }) += worst;
    }
    assert_eq!(spent_in_all(ledger), known.settled + booked);
    for thread in &known.threads {
        ledger.apply(&Operation::Drain { thread: thread.clone() });
    }
    assert!(ledger.accounts().all(|(_, account)| account.status() == AccountStatus::Released));
    assert_eq!(spent_in_all(ledger), known.settled + booked + unsettled);
    for (_, account) in ledger.accounts() {
        assert_eq!(account.used(), account.spent());
        assert!(account.spent() <= account.reserved());
    }
}

/// Returns the spend of all trees, without counting released children twice.
fn spent_in_all(ledger: &Ledger) -> u64 {
    let live = ledger.accounts().filter(|(_, account)| account.status() != AccountStatus::Released);
    let roots = ledger
        .accounts()
        .filter(|(_, account)| account.status() == AccountStatus::Released && account.parent().is_none());
    live.chain(roots).map(|(_, account)| account.spent().to_u64()).sum()
}

#[test]
fn concurrent_operations_get_one_answer_each() {
    let folder = tempfile::TempDir::new().unwrap();
    let disk = Arc::new(RealDisk::open(folder.path()).unwrap());
    // Two registries simulate two processes, which share only the file's locks.
    let registries: Vec<Registry> = (0..2).map(|_| Registry::open(Arc::clone(&disk) as _).unwrap()).collect();
    let known = Mutex::new(KnownForest::default());
    let recorded = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for worker in 0..4_u64 {
            let (registries, known, recorded) = (&registries, &known, &recorded);
            scope.spawn(move || work(worker, registries, known, recorded));
        }
    });
    let known = known.into_inner().unwrap();
    let accounts = known.threads.iter().map(|thread| {
        let id = ThreadId::parse(thread).unwrap();
        (thread.clone(), registries[0].account(&id).unwrap().unwrap())
    });
    let mut ledger: Ledger = accounts.collect();
    check_all(&ledger);
    // Retries are idempotent.
    for (step, answer) in recorded.into_inner().unwrap().into_values().take(500) {
        let again = registries[1].commit(&[Change::Ledger(step)]).unwrap();
        assert_eq!(again, [ChangeResult::Ledger(answer)]);
    }
    for (thread, account) in ledger.accounts() {
        assert_eq!(registries[1].account(&ThreadId::parse(thread).unwrap()).unwrap().as_ref(), Some(account));
    }
    ended(&known, &mut ledger);
}

type TakenSteps = Mutex<BTreeMap<String, (LedgerStep, LedgerReply)>>;

/// Runs one of several concurrent workers. Each commit contains a group of new operations and some repeated operations.
fn work(worker: u64, registries: &[Registry], known: &Mutex<KnownForest>, recorded: &TakenSteps) {
    let registry = &registries[usize::from(worker % 2 == 1)];
    let mut rng = SplitMix::new(worker + 1_000);
    // This thread never ends, because the end of a thread removes its answers.
    let steps = ThreadId::parse(&format!("steps-{worker}")).unwrap();
    for group in 0..50 {
        let mut steps_to_apply = Vec::new();
        for n in 0..45 {
            let operation = known.lock().unwrap().operation(&mut rng);
            let step = LedgerStepKey::Other(format!("{group}.{n}"));
            steps_to_apply.push(LedgerStep { thread: steps.clone(), step, operation });
        }
        let fresh = steps_to_apply.len();
        let old: Vec<(LedgerStep, LedgerReply)> = recorded.lock().unwrap().values().rev().take(5).cloned().collect();
        steps_to_apply.extend(old.iter().map(|(step, _)| step.clone()));
        let lists: Vec<[Change; 1]> = steps_to_apply.iter().map(|step| [Change::Ledger(step.clone())]).collect();
        let lists: Vec<&[Change]> = lists.iter().map(<[Change; 1]>::as_slice).collect();
        let answers = registry.commit_all(&lists).unwrap();
        for (index, (step, answer)) in steps_to_apply.into_iter().zip(answers).enumerate() {
            let [ChangeResult::Ledger(answer)] = answer.as_slice() else { panic!("{answer:?}") };
            if let Some((_, first)) = index.checked_sub(fresh).and_then(|old_one| old.get(old_one)) {
                assert_eq!(answer, first, "{step:?} was applied again");
                continue;
            }
            known.lock().unwrap().record_answer(&step.operation, answer);
            if !matches!(answer, LedgerReply::Refused { .. } | LedgerReply::Remaining { .. }) {
                recorded.lock().unwrap().insert(format!("{worker}.{}", step.step), (step, answer.clone()));
            }
        }
    }
}
