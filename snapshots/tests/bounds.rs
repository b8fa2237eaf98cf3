//! Witnesses of the bounds that a plan states: scripted runs that reach at least 90 % of the bound on the cost, the turns
//! and the threads, so that none of the bounds is loose.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::sync::Arc;

use rye_compiler::compile::{Compilation, CompileRequest, compile};
use rye_compiler::diagnostics::Diagnostic;
use rye_compiler::plan::PlannedModel;
use rye_engine::clock::JumpingClock;
use rye_engine::engine::{ApprovalPolicy, Engine, EngineOptions, Providers, StartOptions};
use rye_engine::exchange::CallError;
use rye_engine::provider::Provider;
use rye_engine::provider::scripted::{Script, Scripted};
use rye_engine::threads::Threads;
use rye_engine::trust::Trust;
use rye_grammar::ItemId;
use rye_snapshots::{RunTotals, check_run_bounds};

/// Start time of every run: 2026-01-01, in milliseconds since 1970.
const START_TIME_MS: i64 = 1_767_225_600_000;

/// Providers that play one script for every model.
struct ScriptedProviders(Arc<Scripted>);

impl Providers for ScriptedProviders {
    fn connect(&self, _: &PlannedModel) -> Result<Arc<dyn Provider>, CallError> {
        Ok(Arc::clone(&self.0) as Arc<dyn Provider>)
    }
}

/// Metadata of a directive that starts itself.
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
    fs::write(place.join("plain.txt"), "Some text.\n").unwrap();
    let script = Arc::new(Scripted::new(Script::parse(script).unwrap()));
    let mut options =
        EngineOptions::with_trust(&place, None, rye_stdlib::files(), Trust::Everything, ApprovalPolicy::Allow).unwrap();
    options.clock = Arc::new(JumpingClock::starting_at(START_TIME_MS));
    options.providers = Arc::new(ScriptedProviders(script));
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

const READ: &str = "<permissions><execute><tool>rye.file-system.read</tool></execute></permissions>";

/// Returns a script of replies that read a file, with these tokens of output each.
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
