//! Properties of the small languages over generated inputs.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::format_push_string, reason = "tests")]

use std::sync::LazyLock;

use proptest::prelude::*;
use rye_compiler::semantics::condition::{Condition, Verdict};
use rye_compiler::semantics::eval::answer;
use rye_compiler::semantics::facts::Facts;
use rye_compiler::semantics::glob::{self, Coverage, Glob, covers};
use rye_compiler::semantics::ledger::{Account, AccountStatus, Ledger, LedgerReply, Operation, Refusal};
use rye_compiler::semantics::money::Nanos;
use rye_grammar::condition::{ArithmeticOp, CompareOp, Expr, ExprKind, Path, Segment};
use rye_grammar::{SourceId, Span};
use serde_json::{Value, json};

/// Returns a configuration without a file of failures: a failing input is written into a test by hand.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

// ---- patterns ----

/// Returns a regular expression with the meaning that Python gives to a pattern. The engine of regular expressions
/// shares no code with `glob`.
fn as_regex(pattern: &str) -> regex::Regex {
    let mut out = String::from(r"(?s)\A");
    let chars: Vec<char> = pattern.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        at += 1;
        match c {
            '*' => out.push_str(".*"),
            '?' => out.push('.'),
            '[' => {
                let mut close = at;
                if chars.get(close) == Some(&'!') {
                    close += 1;
                }
                if chars.get(close) == Some(&']') {
                    close += 1;
                }
                while close < chars.len() && chars[close] != ']' {
                    close += 1;
                }
                if close == chars.len() {
                    out.push_str(r"\[");
                    continue;
                }
                let negated = chars[at] == '!';
                let members: Vec<char> = chars[at + usize::from(negated)..close].to_vec();
                let (mut i, mut class) = (0, String::new());
                while i < members.len() {
                    let range = i + 2 < members.len() && members[i + 1] == '-';
                    let (low, high) = (members[i], if range { members[i + 2] } else { members[i] });
                    if low <= high {
                        class.push_str(&format!(r"\x{{{:x}}}-\x{{{:x}}}", low as u32, high as u32));
                    }
                    i += if range { 3 } else { 1 };
                }
                out.push_str(&match (class.is_empty(), negated) {
                    (true, true) => ".".to_owned(),
                    (true, false) => r"[^\s\S]".to_owned(),
                    (false, _) => format!("[{}{class}]", if negated { "^" } else { "" }),
                });
                at = close + 1;
            }
            literal => out.push_str(&regex::escape(&literal.to_string())),
        }
    }
    regex::Regex::new(&(out + r"\z")).unwrap()
}

/// Generates patterns from pieces. No piece is a class with a `!` after an empty range, because Python drops the range
/// and then reads the `!` as a negation.
fn pattern_text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a", "b", "ab", ".", "-", "*", "**", "?", "[ab]", "[!a]", "[a-c]", "[!a-c]", "[c-a]", "[!c-a]", "[]a]",
        "[!]a]", "[-a]", "[a-]", "[^a]", "[", "]", "!", "é", "[à-ü]", "\\", "[\\]", "[a-cx-z]", "\n",
    ]);
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(config(256))]
    #[test]
    fn matching_agrees_with_a_regex(pattern in pattern_text(), text in r"[abc.\-\[\]!^é\\xyz\n]{0,8}") {
        prop_assert_eq!(glob::matches(&pattern, &text), as_regex(&pattern).is_match(&text), "{} {}", pattern, text);
    }

    #[test]
    fn a_text_without_wildcards_matches_itself(text in "[^*?\\[]{0,30}", other in "[a-c]{0,3}") {
        prop_assert!(glob::matches(&text, &text));
        prop_assert_eq!(glob::matches(&text, &other), text == other);
        prop_assert!(Glob::new(&text).is_literal());
    }

    #[test]
    fn any_pattern_meets_any_text(pattern in ".{0,60}", text in ".{0,60}") {
        glob::matches(&pattern, &text);
    }
}

/// Returns every well-formed capability of two heads. A tail has at most `longest` characters of a small alphabet. A
/// query needs no id, so `rye.fetch.tool` is a capability by itself.
fn small_world(longest: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut last = all.clone();
    for _ in 0..longest {
        last = last.iter().flat_map(|tail| ["a", "b", "c", "."].map(|c| format!("{tail}{c}"))).collect();
        all.extend(last.iter().cloned());
    }
    let well_formed = |tail: &&String| tail.starts_with('.') && !tail.ends_with('.') && !tail.contains("..");
    let mut world = vec!["rye.fetch.tool".to_owned()];
    for head in ["rye.execute.tool", "rye.fetch.tool"] {
        world.extend(all.iter().filter(well_formed).map(|tail| format!("{head}{tail}")));
    }
    world.sort_by_key(String::len);
    world
}

fn tail_pattern() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec!["a", "b", ".", "*", "?", "[ab]", "[!a]", "a*", ".*", "*b"]);
    let head = prop::sample::select(vec!["rye.execute.tool", "rye.fetch.tool", "rye.*.tool"]);
    (head, prop::collection::vec(piece, 0..5)).prop_map(|(head, pieces)| format!("{head}{}", pieces.concat()))
}

proptest! {
    #![proptest_config(config(200))]
    #[test]
    fn inclusion_agrees_with_brute_force(
        parents in prop::collection::vec(tail_pattern(), 0..4),
        child in tail_pattern(),
    ) {
        static WORLD: LazyLock<Vec<String>> = LazyLock::new(|| small_world(6));
        let globs: Vec<Glob> = parents.iter().map(|p| Glob::new(p)).collect();
        let wanted = Glob::new(&child);
        let found = WORLD.iter().find(|c| wanted.matches(c) && !globs.iter().any(|g| g.matches(c)));
        let parents: Vec<&str> = parents.iter().map(String::as_str).collect();
        match covers(&parents, &child) {
            Coverage::Covered => prop_assert_eq!(found, None),
            Coverage::Counterexample(example) => {
                prop_assert!(wanted.matches(&example), "{}", example);
                prop_assert!(!globs.iter().any(|g| g.matches(&example)), "{}", example);
                // `small_world` lists the shortest capabilities first.
                prop_assert!(found.is_none_or(|shortest| shortest.len() >= example.len()), "{} {:?}", example, found);
            }
            Coverage::TooComplex => prop_assert!(false, "too complex"),
        }
    }
}

#[test]
fn what_is_too_complex_is_not_covered() {
    let hostile = format!("rye.execute.tool.*a{}", "?".repeat(40));
    assert_eq!(covers(&[&hostile], "rye.execute.tool.*b*"), Coverage::Counterexample("rye.execute.tool.b".into()));
    let other = format!("rye.execute.tool.*b{}", "?".repeat(40));
    let third = format!("rye.execute.tool.*{}", "?".repeat(41));
    assert_eq!(covers(&[&hostile, &other], &third), Coverage::TooComplex);
}

#[test]
fn hostile_patterns_end() {
    let text = "a".repeat(20_000);
    assert!(!glob::matches(&"a*".repeat(200).replace("aa", "a*a"), &text.replace('a', "b")));
    assert!(!glob::matches(&("*a".repeat(100) + "b"), &text));
}

// ---- conditions ----

fn path(name: &str) -> Path {
    Path { segments: name.split('.').map(|s| Segment::Name(s.into())).collect() }
}

fn value() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(1.0),
        json!(-2.5),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1e308),
        json!(""),
        json!("a"),
        json!("ab"),
        json!([]),
        json!([1, "a", null]),
        json!({"k": 1}),
        json!({}),
    ])
}

const PATHS: [&str; 4] = ["w", "x", "y.z", "v"];

fn expr() -> impl Strategy<Value = Expr> {
    fn at(kind: ExprKind) -> Expr {
        Expr { kind, span: Span::new(SourceId(0), 0, 0) }
    }
    let leaf = prop_oneof![
        value().prop_map(|v| at(ExprKind::Literal(v))),
        prop::sample::select(PATHS.to_vec()).prop_map(|p| at(ExprKind::Path(path(p)))),
        prop::sample::select(PATHS.to_vec()).prop_map(|p| at(ExprKind::Exists(path(p)))),
    ];
    leaf.prop_recursive(5, 40, 3, |inner| {
        let boxed = || inner.clone().prop_map(Box::new);
        let op = prop::sample::select(vec![
            CompareOp::Eq,
            CompareOp::Ne,
            CompareOp::Lt,
            CompareOp::Lte,
            CompareOp::Gt,
            CompareOp::Gte,
            CompareOp::In,
            CompareOp::Contains,
        ]);
        let arithmetic = prop::sample::select(vec![
            ArithmeticOp::Add,
            ArithmeticOp::Subtract,
            ArithmeticOp::Multiply,
            ArithmeticOp::Divide,
            ArithmeticOp::Remainder,
        ]);
        let pattern = || Box::new(at(ExprKind::Literal(json!("^a"))));
        prop_oneof![
            (op, boxed(), boxed()).prop_map(|(op, left, right)| at(ExprKind::Compare { op, left, right })),
            (arithmetic, boxed(), boxed()).prop_map(|(op, left, right)| at(ExprKind::Arithmetic { op, left, right })),
            boxed().prop_map(move |left| at(ExprKind::Compare { op: CompareOp::Matches, left, right: pattern() })),
            boxed().prop_map(|e| at(ExprKind::Not(e))),
            boxed().prop_map(|e| at(ExprKind::Negate(e))),
            boxed().prop_map(|e| at(ExprKind::Length(e))),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|e| at(ExprKind::All(e))),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|e| at(ExprKind::Any(e))),
            prop::collection::vec(inner, 0..3).prop_map(|e| at(ExprKind::List(e))),
        ]
    })
}

proptest! {
    #![proptest_config(config(1500))]
    #[test]
    fn a_verdict_holds_under_every_completion(
        expr in expr(),
        known in prop::collection::vec(prop::option::of(value()), 2),
        completions in prop::collection::vec(prop::collection::vec(prop::option::of(value()), 2), 6),
    ) {
        // Skip conditions with static errors.
        let Ok(condition) = Condition::compile(&expr) else { return Ok(()) };
        let mut facts = Facts::new();
        for (name, value) in PATHS.iter().zip(&known) {
            if let Some(value) = value {
                facts.set(name, value.clone());
            }
        }
        let mut half = facts.clone();
        half.declare_unknown(PATHS[2]);
        half.declare_unknown(PATHS[3]);
        let verdict = condition.evaluate(&half);
        prop_assert_eq!(&condition.evaluate_traced(&half).0, &verdict);
        if let Verdict::Unknown(paths) = &verdict {
            prop_assert!(!paths.is_empty());
            prop_assert!(paths.iter().all(|p| p == PATHS[2] || p == PATHS[3]));
        }
        for completion in completions {
            let mut full = facts.clone();
            for (name, value) in PATHS[2..].iter().zip(completion) {
                if let Some(value) = value {
                    full.set(name, value);
                }
            }
            let complete = condition.evaluate(&full);
            prop_assert!(!matches!(complete, Verdict::Unknown(_)));
            if !matches!(verdict, Verdict::Unknown(_)) {
                prop_assert_eq!(&complete, &verdict);
            }
        }
    }
}

// ---- requests ----

proptest! {
    #![proptest_config(config(256))]
    #[test]
    fn every_line_has_an_answer(line in ".{0,200}") {
        check_answer(&answer(&line));
    }

    #[test]
    fn every_request_has_an_answer(
        kind in prop::sample::select(vec![
            "condition", "template", "inputs_text", "capability", "covers", "risk", "limits", "check_limits", "ledger",
            "classify", "glob",
        ]),
        body in prop_oneof![value(), ".{0,40}".prop_map(Value::from), any::<i64>().prop_map(Value::from)],
        key in prop::sample::select(vec!["facts", "unknown", "inputs", "table", "id", "other"]),
        beside in value(),
    ) {
        let mut request = json!({ "id": 1, kind: body });
        request[key] = beside;
        check_answer(&answer(&request.to_string()));
    }
}

fn check_answer(line: &str) {
    let answer: Value = serde_json::from_str(line).unwrap();
    assert!(!line.contains('\n'));
    assert!(answer.get("ok").is_some() != answer.get("error").is_some(), "{line}");
}

// ---- the ledger ----

#[derive(Debug, Clone)]
enum Step {
    Reserve(usize, Option<i64>),
    SetParentReserve(usize, i64),
    Attempt(usize, i64, i64),
    HandOff(usize, i64),
    Suspend(usize),
    Reopen(usize),
    Drain(usize),
    Release(usize),
    Raise(usize, i64),
}

fn step() -> impl Strategy<Value = Step> {
    let (thread, amount) = (0..12usize, 0..60i64);
    prop_oneof![
        (thread.clone(), prop::option::of(amount.clone())).prop_map(|(t, a)| Step::Reserve(t, a)),
        (thread.clone(), 0..10i64).prop_map(|(t, a)| Step::SetParentReserve(t, a)),
        (thread.clone(), amount.clone(), 0..100i64).prop_map(|(t, a, part)| Step::Attempt(t, a, part)),
        (thread.clone(), amount.clone()).prop_map(|(t, a)| Step::HandOff(t, a)),
        thread.clone().prop_map(Step::Suspend),
        thread.clone().prop_map(Step::Reopen),
        thread.clone().prop_map(Step::Drain),
        thread.clone().prop_map(Step::Release),
        (thread, amount).prop_map(|(t, a)| Step::Raise(t, a)),
    ]
}

proptest! {
    #![proptest_config(config(600))]
    #[test]
    fn descendants_spend_at_most_the_amount_of_the_root(steps in prop::collection::vec(step(), 1..60)) {
        let name = |n: usize| format!("t{n}");
        let mut ledger = Ledger::new();
        ledger.apply(&Operation::Register { thread: name(0), spend: Nanos(100) });
        let (mut threads, mut settled) = (1, 0);
        for (n, step) in steps.into_iter().enumerate() {
            let before = ledger.clone();
            let operation = match step {
                Step::Reserve(parent, amount) => Operation::Reserve {
                    thread: name(threads),
                    parent: name(parent),
                    amount: amount.map(Nanos),
                    default: Nanos(20),
                },
                Step::SetParentReserve(t, a) => Operation::SetParentReserve { thread: name(t), amount: Nanos(a) },
                Step::Attempt(t, worst, part) => {
                    let attempt = format!("a{n}");
                    let issue =
                        Operation::Issue { thread: name(t), attempt: attempt.clone(), worst_case: Nanos(worst) };
                    if ledger.apply(&issue) != LedgerReply::Done {
                        prop_assert_eq!(&ledger, &before);
                        continue;
                    }
                    let spent = worst * part / 100;
                    settled += spent;
                    Operation::Settle { thread: name(t), attempt: Some(attempt), spent: Nanos(spent) }
                }
                Step::HandOff(t, a) => Operation::HandOff { thread: name(t), next: name(threads), most: Nanos(a) },
                Step::Suspend(t) => Operation::Suspend { thread: name(t) },
                Step::Reopen(t) => Operation::Reopen { thread: name(t) },
                Step::Drain(t) => Operation::Drain { thread: name(t) },
                Step::Release(t) => Operation::Release { thread: name(t) },
                // Never raise the root: `check_books` compares the total with the root's first limit.
                Step::Raise(t, a) => Operation::Raise { thread: name(t.max(1)), spend: Nanos(a) },
            };
            match ledger.apply(&operation) {
                LedgerReply::Refused { .. } => prop_assert_eq!(&ledger, &before, "{:?} changed something", operation),
                LedgerReply::Reserved { .. } => threads += 1,
                LedgerReply::Done | LedgerReply::Remaining { .. } => {}
            }
            check_books(&ledger, settled)?;
        }
        // Serialization and parsing yield an equal ledger.
        let text = serde_json::to_string(&ledger).unwrap();
        prop_assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), ledger);
    }
}

#[test]
fn account_below_an_overspent_ancestor_starts_no_attempt() {
    let mut ledger = Ledger::new();
    let name = |text: &str| text.to_owned();
    let reserve = |thread: &str, parent: &str, amount| Operation::Reserve {
        thread: name(thread),
        parent: name(parent),
        amount: Some(Nanos(amount)),
        default: Nanos::ZERO,
    };
    let issue = |thread: &str, attempt: &str, worst| Operation::Issue {
        thread: name(thread),
        attempt: name(attempt),
        worst_case: Nanos(worst),
    };
    let settle = |thread: &str, attempt: &str, spent| Operation::Settle {
        thread: name(thread),
        attempt: Some(name(attempt)),
        spent: Nanos(spent),
    };
    ledger.apply(&Operation::Register { thread: name("root"), spend: Nanos(100) });
    for (thread, parent, amount) in [("a", "root", 40), ("b", "root", 50), ("c", "b", 20)] {
        assert_eq!(ledger.apply(&reserve(thread, parent, amount)), LedgerReply::Reserved { amount: Nanos(amount) });
    }
    ledger.apply(&issue("a", "1", 40));
    ledger.apply(&settle("a", "1", 50));
    assert_eq!(ledger.apply(&issue("b", "1", 1)), LedgerReply::Done, "the root covers what `a` overspent");
    ledger.apply(&settle("b", "1", 1));
    ledger.apply(&settle("a", "1", 1));
    for thread in ["b", "c"] {
        let refused = LedgerReply::Refused { refusal: Refusal::Overspent { thread: name("root") } };
        assert_eq!(ledger.apply(&issue(thread, "2", 1)), refused, "{thread}");
    }
    ledger.apply(&Operation::Raise { thread: name("root"), spend: Nanos(101) });
    assert_eq!(ledger.apply(&issue("c", "2", 1)), LedgerReply::Done, "a raise covers it again");
}

/// Checks that every account is consistent, and that the whole tree has spent exactly the settled amount, within the
/// root's amount.
fn check_books(ledger: &Ledger, settled: i64) -> Result<(), TestCaseError> {
    let mut spent_by_open = 0;
    for (thread, account) in ledger.accounts() {
        let live = |child: &&Account| child.parent() == Some(thread) && child.status() != AccountStatus::Released;
        let children: Vec<&Account> = ledger.accounts().map(|(_, account)| account).filter(live).collect();
        prop_assert_eq!(u64::try_from(children.len()).unwrap(), account.children(), "{}", thread);
        let children: i64 = children.iter().map(|child| child.occupied().0).sum();
        prop_assert_eq!(account.used().0, account.spent().0 + children, "{}", thread);
        prop_assert!(account.used() <= account.reserved(), "{} is overspent: {:?}", thread, account);
        if account.status() != AccountStatus::Released || account.parent().is_none() {
            spent_by_open += account.spent().0;
        }
    }
    prop_assert_eq!(spent_by_open, settled);
    prop_assert!(settled <= 100);
    Ok(())
}
