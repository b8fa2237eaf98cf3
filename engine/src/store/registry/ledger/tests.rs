//! The stored ledger: each step is applied once, the accounts equal the accounts of the pure ledger, and concurrent
//! operations never exceed the limit.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;

use proptest::prelude::*;
use rye_compiler::semantics::ledger::{AccountStatus, Refusal};
use tempfile::TempDir;

use super::super::{Change, ChangeResult, Registry};
use super::*;
use crate::store::disk::{RealDisk, SimulatedDisk};

fn id(text: &str) -> ThreadId {
    ThreadId::parse(text).unwrap()
}

fn registry() -> Registry {
    Registry::open(Arc::new(SimulatedDisk::new())).unwrap()
}

fn ask(registry: &Registry, step: LedgerStep) -> LedgerReply {
    let answers = registry.commit(&[Change::Ledger(step)]).unwrap();
    let [ChangeResult::Ledger(answer)] = answers.as_slice() else { panic!("{answers:?}") };
    answer.clone()
}

fn spent(registry: &Registry, thread: &str) -> i64 {
    registry.account(&id(thread)).unwrap().unwrap().spent().0
}

#[test]
fn repeated_step_is_applied_once() {
    let registry = registry();
    let root = id("a-1");
    assert_eq!(ask(&registry, LedgerStep::register(&root, 1_000)), LedgerReply::Done);
    assert_eq!(ask(&registry, LedgerStep::register(&root, 9_000)), LedgerReply::Done);
    assert_eq!(registry.account(&root).unwrap().unwrap().reserved(), Nanos(1_000));
    ask(&registry, LedgerStep::issue(&root, 1, 0, 300));
    for _ in 0..3 {
        assert_eq!(ask(&registry, LedgerStep::settle(&root, 1, 0, 120)), LedgerReply::Done);
        assert_eq!(spent(&registry, "a-1"), 120);
    }
    // The first settlement counts: a later settlement at the worst case, by another process, changes nothing.
    assert_eq!(ask(&registry, LedgerStep::settle(&root, 1, 0, 300)), LedgerReply::Done);
    assert_eq!(spent(&registry, "a-1"), 120);
    let child = |child: &str| LedgerStep::child(&root, 1, &id(child), None, 500);
    assert_eq!(ask(&registry, child("b-1")), LedgerReply::Reserved { amount: Nanos(500) });
    assert_eq!(ask(&registry, child("b-2")), LedgerReply::Reserved { amount: Nanos(500) });
    assert_eq!(registry.account(&id("b-2")).unwrap(), None);
}

#[test]
fn settle_and_the_next_issue_share_a_commit() {
    let registry = registry();
    let root = id("a-1");
    let first =
        [Change::Ledger(LedgerStep::register(&root, 1_000)), Change::Ledger(LedgerStep::issue(&root, 1, 0, 800))];
    registry.commit(&first).unwrap();
    let before = registry.commits();
    let next =
        [Change::Ledger(LedgerStep::settle(&root, 1, 0, 250)), Change::Ledger(LedgerStep::issue(&root, 2, 0, 750))];
    let answers = registry.commit(&next).unwrap();
    assert_eq!(answers, [ChangeResult::Ledger(LedgerReply::Done), ChangeResult::Ledger(LedgerReply::Done)]);
    assert_eq!(registry.commits() - before, 1);
    assert_eq!(registry.account(&root).unwrap().unwrap().remaining(), Nanos(0));
}

#[test]
fn refused_step_can_be_retried() {
    let registry = registry();
    let root = id("a-1");
    ask(&registry, LedgerStep::register(&root, 100));
    let issue = LedgerStep::issue(&root, 1, 0, 101);
    let refused = LedgerReply::Refused { refusal: Refusal::MoreThanIsLeft { requested: Nanos(101), left: Nanos(100) } };
    assert_eq!(ask(&registry, issue.clone()), refused);
    let list = [Change::Ledger(issue.clone()), Change::Ledger(LedgerStep::settle(&root, 1, 0, 1))];
    assert_eq!(registry.commit(&list).unwrap(), [ChangeResult::Ledger(refused)], "what comes after it is not done");
    let operation = Operation::Raise { thread: root.to_string(), spend: Nanos(101) };
    ask(&registry, LedgerStep { thread: root.clone(), step: LedgerStepKey::Other("raise.1".to_string()), operation });
    assert_eq!(ask(&registry, issue), LedgerReply::Done);
}

#[test]
fn an_ended_thread_leaves_one_answer() {
    let registry = registry();
    let root = id("a-1");
    ask(&registry, LedgerStep::register(&root, 1_000));
    ask(&registry, LedgerStep::register(&id("a-10"), 1_000));
    for turn in 1..20 {
        ask(&registry, LedgerStep::issue(&root, turn, 0, 30));
        ask(&registry, LedgerStep::settle(&root, turn, 0, 20));
    }
    assert_eq!(ask(&registry, LedgerStep::end(&root)), LedgerReply::Done);
    assert_eq!(ask(&registry, LedgerStep::end(&root)), LedgerReply::Done);
    let keys = registry.read(|transaction| {
        let answers = transaction.open_table(tables::ANSWERS).unwrap();
        let keys = answers.iter().unwrap().map(|row| {
            let (key, _) = row.unwrap();
            let (thread, step) = key.value();
            (thread.to_string(), step.to_string())
        });
        Ok(keys.collect::<Vec<(String, String)>>())
    });
    let keys = keys.unwrap();
    assert_eq!(keys, [("a-1".into(), "end".into()), ("a-10".into(), "register".into())]);
    let account = registry.account(&root).unwrap().unwrap();
    assert_eq!((account.spent(), account.status()), (Nanos(380), AccountStatus::Released));
}

#[test]
fn three_level_tree_books_each_step_once() {
    let registry = registry();
    for round in 1..=2 {
        let [top, middle, low] = ["t", "m", "l"].map(|name| id(&format!("{name}-{round}")));
        ask(&registry, LedgerStep::register(&top, 1_000));
        ask(&registry, LedgerStep::child(&top, 1, &middle, Some(600), 0));
        ask(&registry, LedgerStep::child(&middle, 1, &low, Some(400), 0));
        ask(&registry, LedgerStep::issue(&low, 1, 0, 400));
        // A cost above the reservation is booked in full, and visible up to the root.
        ask(&registry, LedgerStep::settle(&low, 1, 0, 650));
        for thread in [&low, &middle] {
            assert_eq!(ask(&registry, LedgerStep::end(thread)), LedgerReply::Done);
        }
        let top = registry.account(&top).unwrap().unwrap();
        assert_eq!((top.spent(), top.remaining()), (Nanos(650), Nanos(350)));
    }
}

#[test]
fn continuation_of_a_child_takes_over_its_reservation_when_the_parent_is_over() {
    let registry = registry();
    let [root, child, next, last] = ["r-1", "c-1", "c-2", "c-3"].map(id);
    ask(&registry, LedgerStep::register(&root, 1_000));
    ask(&registry, LedgerStep::child(&root, 1, &child, Some(600), 0));
    ask(&registry, LedgerStep::issue(&child, 1, 0, 200));
    ask(&registry, LedgerStep::settle(&child, 1, 0, 150));
    ask(&registry, LedgerStep::end(&root));
    let status_of = |thread: &ThreadId| registry.account(thread).unwrap().unwrap().status();
    assert_eq!(status_of(&root), AccountStatus::Draining);
    // A step that is repeated after a crash returns the first answer.
    for most in [10_000, 1] {
        let answer = ask(&registry, LedgerStep::hand_off(&child, &next, most));
        assert_eq!(answer, LedgerReply::Reserved { amount: Nanos(450) });
    }
    assert_eq!((status_of(&root), status_of(&child)), (AccountStatus::Draining, AccountStatus::Released));
    ask(&registry, LedgerStep::settle(&next, 1, 0, 400));
    assert_eq!(
        ask(&registry, LedgerStep::hand_off(&next, &last, 20)),
        LedgerReply::Reserved { amount: Nanos(20) },
        "never more than the limit of the thread that continues"
    );
    ask(&registry, LedgerStep::end(&last));
    assert_eq!(
        (status_of(&root), registry.account(&root).unwrap().unwrap().spent()),
        (AccountStatus::Released, Nanos(550))
    );
}

#[test]
fn handed_over_money_is_not_held_twice_while_children_of_the_first_thread_live() {
    let registry = registry();
    let [root, child, low, next] = ["r-1", "c-1", "l-1", "c-2"].map(id);
    ask(&registry, LedgerStep::register(&root, 1_000));
    ask(&registry, LedgerStep::child(&root, 1, &child, Some(600), 0));
    ask(&registry, LedgerStep::child(&child, 1, &low, Some(250), 0));
    let answer = ask(&registry, LedgerStep::hand_off(&child, &next, 10_000));
    assert_eq!(answer, LedgerReply::Reserved { amount: Nanos(350) });
    assert_eq!(registry.account(&root).unwrap().unwrap().remaining(), Nanos(400));
    for thread in [&low, &next] {
        ask(&registry, LedgerStep::end(thread));
    }
    assert_eq!(registry.account(&root).unwrap().unwrap().remaining(), Nanos(1_000));
}

#[test]
fn continuation_of_a_root_gets_no_more_than_the_ledger_has_left() {
    let registry = registry();
    let [root, child, grandchild, next] = ["r-1", "c-1", "g-1", "r-2"].map(id);
    ask(&registry, LedgerStep::register(&root, 1_000));
    ask(&registry, LedgerStep::child(&root, 1, &child, Some(600), 0));
    ask(&registry, LedgerStep::child(&child, 1, &grandchild, Some(500), 0));
    // The child ends before the grandchild, and then holds only the reservation of the grandchild.
    ask(&registry, LedgerStep::end(&child));
    // The transcript of the root records neither the grandchild nor its reservation.
    let answer = ask(&registry, LedgerStep::hand_off(&root, &next, 1_000));
    assert_eq!(answer, LedgerReply::Reserved { amount: Nanos(500) });
    let account = |thread: &ThreadId| registry.account(thread).unwrap().unwrap();
    assert_eq!((account(&root).reserved(), account(&next).reserved()), (Nanos(500), Nanos(500)));
    assert_eq!((account(&root).status(), account(&next).parent()), (AccountStatus::Draining, None));
    ask(&registry, LedgerStep::settle(&grandchild, 1, 0, 500));
    ask(&registry, LedgerStep::end(&grandchild));
    assert_eq!((account(&root).status(), account(&root).spent()), (AccountStatus::Released, Nanos(500)));
}

#[test]
fn concurrent_reservations_never_exceed_the_limit() {
    let folder = TempDir::new().unwrap();
    let disk = Arc::new(RealDisk::open(folder.path()).unwrap());
    let registries: Vec<Registry> = (0..2).map(|_| Registry::open(Arc::clone(&disk) as _).unwrap()).collect();
    let root = id("a-1");
    ask(&registries[0], LedgerStep::register(&root, 1_000));
    let granted: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u64)
            .map(|worker| {
                let (registry, root) = (&registries[usize::from(worker % 2 == 1)], &root);
                scope.spawn(move || {
                    let mut granted = 0;
                    for n in 1..=10 {
                        let child = id(&format!("c-{worker}-{n}"));
                        let spawn = worker * 100 + n;
                        match ask(registry, LedgerStep::child(root, spawn, &child, Some(70), 0)) {
                            LedgerReply::Reserved { amount } => granted += amount.to_u64(),
                            LedgerReply::Refused { refusal: Refusal::MoreThanIsLeft { .. } } => {}
                            other @ (LedgerReply::Done
                            | LedgerReply::Remaining { .. }
                            | LedgerReply::Refused { .. }) => {
                                panic!("{other:?}")
                            }
                        }
                    }
                    granted
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!(granted, 980);
    assert_eq!(registries[1].account(&root).unwrap().unwrap().remaining(), Nanos(20));
}

/// Returns operations on a few threads, valid and invalid.
fn operation() -> impl Strategy<Value = Operation> {
    let thread = || prop::sample::select(vec!["a", "b", "c", "d", "e", "f"]).prop_map(|name| format!("{name}-1"));
    let amount = || (-5_i64..400).prop_map(Nanos);
    let attempt = || prop::sample::select(vec!["1.0", "1.1", "2.0"]).prop_map(str::to_owned);
    prop_oneof![
        (thread(), amount()).prop_map(|(thread, spend)| Operation::Register { thread, spend }),
        (thread(), thread(), prop::option::of(amount()), amount())
            .prop_map(|(thread, parent, amount, default)| Operation::Reserve { thread, parent, amount, default }),
        (thread(), amount()).prop_map(|(thread, amount)| Operation::SetParentReserve { thread, amount }),
        (thread(), attempt(), amount()).prop_map(|(thread, attempt, worst_case)| Operation::Issue {
            thread,
            attempt,
            worst_case
        }),
        (thread(), prop::option::of(attempt()), amount()).prop_map(|(thread, attempt, spent)| Operation::Settle {
            thread,
            attempt,
            spent
        }),
        (thread(), amount()).prop_map(|(thread, spend)| Operation::Raise { thread, spend }),
        (thread(), thread(), amount()).prop_map(|(thread, next, most)| Operation::HandOff { thread, next, most }),
        thread().prop_map(|thread| Operation::Suspend { thread }),
        thread().prop_map(|thread| Operation::Reopen { thread }),
        thread().prop_map(|thread| Operation::Drain { thread }),
        thread().prop_map(|thread| Operation::Release { thread }),
        thread().prop_map(|thread| Operation::Remaining { thread }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Property test: reading only the accounts that an operation can touch has the same result as reading all.
    #[test]
    fn rows_match_the_pure_ledger(operations in prop::collection::vec(operation(), 1..80)) {
        let registry = registry();
        let mut ledger = Ledger::new();
        let mut expected = Vec::new();
        let mut lists = Vec::new();
        for (index, operation) in operations.into_iter().enumerate() {
            expected.push(vec![ChangeResult::Ledger(ledger.apply(&operation))]);
            // The steps belong to a thread that never ends, because the end of a thread removes its answers.
            let step = LedgerStepKey::Other(index.to_string());
            lists.push([Change::Ledger(LedgerStep { thread: id("steps"), step, operation })]);
        }
        let lists: Vec<&[Change]> = lists.iter().map(<[Change; 1]>::as_slice).collect();
        prop_assert_eq!(registry.commit_all(&lists).unwrap(), expected);
        for name in ["a-1", "b-1", "c-1", "d-1", "e-1", "f-1"] {
            let row = registry.account(&id(name)).unwrap();
            prop_assert_eq!(row.as_ref(), ledger.account(name));
        }
    }
}

#[test]
fn account_does_not_grow_with_the_number_of_children() {
    let registry = registry();
    let root = id("a-1");
    ask(&registry, LedgerStep::register(&root, 10_000_000));
    let size = |registry: &Registry| {
        let account = registry.account(&root).unwrap().unwrap();
        serde_json::to_vec(&account).unwrap().len()
    };
    let mut sizes = Vec::new();
    for spawn in 1..=300 {
        let child = id(&format!("child-{}", 1_000 + spawn));
        ask(&registry, LedgerStep::child(&root, spawn, &child, Some(1_000), 0));
        ask(&registry, LedgerStep::issue(&child, 1, 0, 900));
        sizes.push(size(&registry));
    }
    assert!(sizes[299] <= sizes[0] + 8, "{} bytes with one child, {} with 300", sizes[0], sizes[299]);
    let account = registry.account(&root).unwrap().unwrap();
    assert_eq!((account.children(), account.used()), (300, Nanos(300_000)));
}

#[test]
fn account_with_a_map_of_its_children_is_read() {
    let stored = r#"{"parent":null,"reserved":1000,"spent":5,"children":{"b-1":300,"c-1":200},"children_hold":500,"standing":"open"}"#;
    let account: Account = serde_json::from_str(stored).unwrap();
    assert_eq!((account.children(), account.children_hold(), account.remaining()), (2, Nanos(500), Nanos(495)));
}

#[test]
fn operations_with_earlier_names_are_read() {
    let thread = || "a-1".to_owned();
    let amount = Nanos(5);
    let cases = [
        (r#"{"op":"keep_back","thread":"a-1","amount":5}"#, Operation::SetParentReserve { thread: thread(), amount }),
        (
            r#"{"op":"hand_over","thread":"a-1","next":"b-1","most":5}"#,
            Operation::HandOff { thread: thread(), next: "b-1".to_owned(), most: amount },
        ),
    ];
    for (stored, expected) in cases {
        let read: Operation = serde_json::from_str(stored).unwrap();
        assert_eq!(read, expected);
        let written = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<Operation>(&written).unwrap(), expected, "{written}");
    }
}
