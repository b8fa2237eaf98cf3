//! Tests that the bounds of a plan are tight: scripted runs reach at least 90 % of the bounds on cost, turns and
//! threads. The runs are single threads, trees of children, hooks that spend, and chains of handoffs.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::sync::Arc;

use rye_compiler::compile::{Compilation, CompileRequest, compile};
use rye_compiler::diagnostics::Diagnostic;
use rye_compiler::semantics::limits::LimitName;
use rye_engine::clock::JumpingClock;
use rye_engine::engine::{ApprovalPolicy, Engine, EngineOptions, StartOptions};
use rye_engine::provider::scripted::{Script, Scripted};
use rye_engine::threads::Threads;
use rye_engine::trust::Trust;
use rye_grammar::ItemId;
use rye_snapshots::{RunTotals, check_run_bounds};

/// Start time of every run: 2026-01-01, in milliseconds since 1970.
const START_TIME_MS: i64 = 1_767_225_600_000;

/// Metadata of the directive `low`, which may start itself and has little money.
const LOW: &str =
    "<limits spawns=\"9\" spend=\"0.20\"/><permissions><execute><directive>low</directive></execute></permissions>";

/// Runs the directive `main` with this metadata and script; returns its plan and the totals of the run.
fn run(metadata: &str, script: &str) -> (Compilation, RunTotals) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().canonicalize().unwrap();
    fs::create_dir_all(place.join(".ai/directives")).unwrap();
    for (name, metadata) in [("main", metadata), ("low", LOW)] {
        let text = format!(
            "# D\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\">\n<metadata>{metadata}</metadata>\n</directive>\n```\n\nWork.\n"
        );
        fs::write(place.join(format!(".ai/directives/{name}.md")), text).unwrap();
    }
    fs::create_dir_all(place.join(".ai/config/agent/providers")).unwrap();
    let provider = "wire: openai-chat\nbase_url: http://127.0.0.1:1\nmodels:\n  - { id: free, context_window: 100000, max_output: 2000 }\n";
    fs::write(place.join(".ai/config/agent/providers/house.yaml"), provider).unwrap();
    fs::write(place.join("plain.txt"), "Some text.\n").unwrap();
    let script = Arc::new(Scripted::new(Script::parse(script).unwrap()));
    let mut options =
        EngineOptions::with_trust(&place, None, rye_stdlib::files(), Trust::Everything, ApprovalPolicy::Allow).unwrap();
    options.clock = Arc::new(JumpingClock::starting_at(START_TIME_MS));
    options.providers = Arc::new(script);
    let request = CompileRequest::new(ItemId::parse("main").unwrap()).with_inputs(serde_json::Map::new());
    let compiled = compile(&*(options.world)().unwrap(), &request);
    let why: Vec<String> = compiled.diagnostics.iter().map(Diagnostic::message).collect();
    let planned = compiled.value.unwrap_or_else(|| panic!("{why:?}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = Engine::open(&place, options).unwrap();
        engine.start(&planned, StartOptions::default()).await.unwrap().join().await;
    });
    let totals = check_run_bounds(&planned.plan, &Threads::open(&place).unwrap()).unwrap();
    (planned, totals)
}

/// Checks that a value is at least 90 % of its bound.
#[track_caller]
fn assert_reached(value: u64, bound: u64, totals: &RunTotals) {
    assert!(value.saturating_mul(10) >= bound.saturating_mul(9), "{value} of {bound}: {totals:?}");
}

/// A model without prices.
const FREE: &str = "<model id=\"free\" provider=\"house\"/>";

const READ: &str = "<permissions><execute><tool>rye.file-system.read</tool></execute></permissions>";

/// Returns a script of `count` replies, each of which reads a file and has `output` output tokens.
fn reads(count: usize, output: u64) -> String {
    let step = format!(
        "  - tool_calls:\n      - {{ name: rye_file_system_read, input: {{ path: plain.txt }} }}\n    usage: {{ input: 600, output: {output} }}\n"
    );
    format!("steps:\n{}", step.repeat(count))
}

#[test]
fn scripted_run_takes_all_turns() {
    let (planned, totals) = run(&format!("<limits turns=\"12\"/>{READ}"), &reads(40, 20));
    let most = planned.plan.bound_turns().at_most.unwrap();
    assert_eq!(most.set_by.as_str(), "turns");
    assert_reached(totals.turns, most.turns, &totals);
}

#[test]
fn scripted_run_spends_the_limit_of_the_tree() {
    let (planned, totals) =
        run(&format!("<limits turns=\"100\" spend=\"0.50\" tokens=\"2000000\"/>{READ}"), &reads(100, 2_000));
    let most = planned.plan.bound_cost().cost.unwrap().to_u64();
    assert_eq!((most, totals.overspent), (500_000_000, 0));
    assert_reached(totals.spent, most, &totals);
}

#[test]
fn scripted_tree_starts_all_threads() {
    let start = "        - { name: rye_execute, input: { item_type: directive, item_id: low } }\n".repeat(7);
    let script = format!(
        "threads:\n  main:\n    - tool_calls:\n{start}      usage: {{ input: 600, output: 20 }}\n    - Done.\nsteps:\n  - Done.\n"
    );
    let metadata = "<limits spawns=\"5\" depth=\"3\" spend=\"2.00\"/><permissions><execute><directive>low</directive></execute></permissions>";
    let (planned, totals) = run(metadata, &script);
    let most = planned.plan.bound_threads().threads.unwrap();
    assert_eq!(most, 6);
    assert_reached(totals.threads, most, &totals);
}

/// Returns a script for `main` and its children: `main` starts `children` children in its first turn, and every thread
/// then reads a file with 2,000 tokens of output a turn.
fn reads_of_tree(children: usize) -> String {
    let start = "        - { name: rye_execute, input: { item_type: directive, item_id: low } }\n".repeat(children);
    let read = "    - tool_calls:\n        - { name: rye_file_system_read, input: { path: plain.txt } }\n      usage: { input: 600, output: 2000 }\n".repeat(60);
    let first = format!("    - tool_calls:\n{start}      usage: {{ input: 600, output: 2000 }}\n");
    let first = if children == 0 { String::new() } else { first };
    format!("threads:\n  main:\n{first}{read}  low:\n{read}")
}

#[test]
fn scripted_tree_of_children_spends_the_limit_of_the_root() {
    let grants =
        "<permissions><execute><tool>rye.file-system.read</tool><directive>low</directive></execute></permissions>";
    let limits = "<limits turns=\"100\" spend=\"0.80\" tokens=\"2000000\" spawns=\"5\" depth=\"2\"/>";
    let (planned, totals) = run(&format!("{limits}{grants}"), &reads_of_tree(2));
    let most = planned.plan.bound_cost().cost.unwrap().to_u64();
    assert_eq!((most, totals.overspent, totals.threads), (800_000_000, 0, 3));
    assert_reached(totals.spent, most, &totals);
}

#[test]
fn scripted_run_with_a_hook_that_starts_a_child_spends_the_limit_of_the_tree() {
    let grants =
        "<permissions><execute><tool>rye.file-system.read</tool><directive>low</directive></execute></permissions>";
    let limits = "<limits turns=\"100\" spend=\"0.50\" tokens=\"2000000\" spawns=\"5\" depth=\"2\"/>";
    let hook = "<hooks><hook id=\"first\" event=\"thread_started\"><execute item_type=\"directive\" item_id=\"low\"/></hook></hooks>";
    let (planned, totals) = run(&format!("{limits}{grants}{hook}"), &reads_of_tree(0));
    let most = planned.plan.bound_cost().cost.unwrap().to_u64();
    assert_eq!((most, totals.overspent, totals.threads), (500_000_000, 0, 2));
    assert_reached(totals.spent, most, &totals);
}

#[test]
fn scripted_chain_of_handoffs_takes_all_turns() {
    // The third reply fills the context window of the model, so that every third turn hands off.
    let script = reads(2, 20)
        + &reads(1, 20).replace("steps:\n", "").replace("input: 600", "input: 950000")
        + &reads(40, 20).replace("steps:\n", "");
    let limits = "<limits turns=\"12\" spend=\"90\" tokens=\"90000000\"/>";
    let (planned, totals) = run(&format!("{limits}{READ}"), &script);
    let most = planned.plan.bound_turns().at_most.unwrap();
    assert_eq!((most.turns, most.set_by.as_str()), (12, "turns"));
    assert!(totals.continuations > 1, "{totals:?}");
    assert_reached(totals.turns, most.turns, &totals);
}

#[test]
fn scripted_run_with_raised_turns_takes_the_turns_before_a_handoff_and_more_after_it() {
    let raise = "<hooks><hook id=\"more\" event=\"limit\"><when>limit_code == \"turns_exceeded\"</when><raise limit=\"turns\" value=\"8\"/></hook></hooks>";
    let metadata = format!("<limits turns=\"5\" spend=\"90\" tokens=\"90000000\"/>{READ}{raise}");
    let (planned, totals) = run(&metadata, &reads(40, 20));
    let bounds = planned.plan.bound_turns();
    assert_eq!((bounds.before_handoff, totals.turns, totals.continuations), (Some(8), 8, 0));
    // The seventh reply fills the context window, and the hook of the continuation raises its limit again.
    let script = reads(6, 20)
        + &reads(1, 20).replace("steps:\n", "").replace("input: 600", "input: 950000")
        + &reads(40, 20).replace("steps:\n", "");
    let (planned, totals) = run(&metadata, &script);
    let most = planned.plan.bound_turns().at_most.unwrap();
    assert!(totals.continuations > 0 && totals.turns > 8 && totals.turns <= most.turns, "{totals:?}");
}

#[test]
fn scripted_run_with_cut_streams_spends_the_limit_of_the_tree() {
    // Each second attempt is cut after its first words and booked at its worst case.
    let cut = "  - fault: { cut: true }\n    after: Some words before the cut.\n";
    let step = format!("{cut}{}", reads(1, 2_000).replace("steps:\n", ""));
    let script = format!("steps:\n{}", step.repeat(60));
    let (planned, totals) = run(&format!("<limits turns=\"100\" spend=\"0.50\" tokens=\"2000000\"/>{READ}"), &script);
    let most = planned.plan.bound_cost().cost.unwrap().to_u64();
    assert_eq!((most, totals.overspent), (500_000_000, 0));
    assert_reached(totals.spent, most, &totals);
}

#[test]
fn scripted_run_that_compacts_takes_all_turns() {
    // The third reply fills the context window of the model; the text after it is the summary too.
    let script = reads(2, 20)
        + &reads(1, 20).replace("steps:\n", "").replace("input: 600", "input: 950000")
        + &reads(1, 20).replace("steps:\n  - tool_calls", "  - text: The file was read three times.\n    tool_calls")
        + &reads(40, 20).replace("steps:\n", "");
    let hook = "<hooks><hook id=\"summary\" event=\"context_limit_reached\"><compact/></hook></hooks>";
    let limits = "<limits turns=\"12\" spend=\"90\" tokens=\"90000000\"/>";
    let (planned, totals) = run(&format!("{limits}{READ}{hook}"), &script);
    let most = planned.plan.bound_turns().at_most.unwrap();
    assert_eq!((most.turns, most.set_by.as_str(), totals.continuations), (12, "turns", 0));
    assert_reached(totals.turns, most.turns, &totals);
}

#[test]
fn scripted_run_has_no_more_turns_than_are_certainly_paid() {
    let (planned, totals) = run(&format!("<limits turns=\"20\" spend=\"0.0925\"/>{READ}"), &reads(20, 8_192));
    let least = planned.plan.bound_turns().at_least;
    assert_eq!((least.turns, least.set_by.as_str()), (1, "spend"));
    assert_eq!((totals.turns, totals.stopped_by), (least.turns, Some(LimitName::Spend)), "{totals:?}");
}

#[test]
fn scripted_run_takes_all_turns_that_the_limit_of_tokens_allows() {
    // An empty reply takes one token, the least that a provider can count, and a hook asks for another one.
    let script = format!("steps:\n{}", "  - text: \"\"\n    usage: { input: 1, output: 0 }\n".repeat(60));
    let hook = "<hooks><hook id=\"on\" event=\"agent_end\"><follow_up content=\"Go on.\"/></hook></hooks>";
    let (planned, totals) = run(&format!("<limits turns=\"100\" tokens=\"40\"/>{READ}{hook}"), &script);
    let most = planned.plan.bound_turns().at_most.unwrap();
    assert_eq!((most.turns, most.set_by, totals.stopped_by), (40, LimitName::Tokens, Some(LimitName::Tokens)));
    assert_reached(totals.turns, most.turns, &totals);
}

#[test]
fn scripted_run_without_prices_starts_no_more_turns_than_the_tokens_certainly_allow() {
    let limits = "<limits turns=\"20\" tokens=\"500\"/>";
    let (planned, totals) = run(&format!("{FREE}{limits}{READ}"), &reads(20, 20));
    let least = planned.plan.bound_turns().at_least;
    assert_eq!((least.turns, least.set_by), (1, LimitName::Tokens));
    assert_eq!((totals.turns, totals.stopped_by), (least.turns, Some(LimitName::Tokens)), "{totals:?}");
}

#[test]
fn scripted_run_whose_first_call_is_cut_starts_the_turn_that_is_certainly_paid() {
    let script = "steps:\n  - fault: { cut: true }\n    after: Some words before the cut.\n".to_owned();
    let (planned, totals) = run(&format!("<limits turns=\"20\" spend=\"0.0925\"/>{READ}"), &script);
    let least = planned.plan.bound_turns().at_least;
    assert_eq!((least.turns, least.set_by), (1, LimitName::Spend));
    assert_eq!((totals.turns, totals.started_turns, totals.stopped_by), (0, 1, Some(LimitName::Spend)), "{totals:?}");
}
