//! Runs match their plans, for two hundred generated projects: the first request, the tools and the recorded plan id of
//! each thread match its plan. A prompt without placeholders is sent byte for byte; otherwise the bytes around the
//! placeholders match. Children are checked too. No run exceeds the cost and the turns that its plan states. The case
//! folders check the contents of prompts.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "plan_is_run/generator.rs"]
mod generator;
#[path = "plan_is_run/shape.rs"]
mod shape;

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use generator::{GeneratedProject, project};
use rye_compiler::compile::{Compilation, CompileRequest, SpawnParent, compile};
use rye_compiler::diagnostics::Diagnostic;
use rye_compiler::plan::prompt::PromptFacts;
use rye_compiler::plan::{Plan, RuntimePlaceholder};
use rye_compiler::report::cache_map::NextRequest;
use rye_compiler::report::render::view::view_prompt;
use rye_engine::BoxFuture;
use rye_engine::clock::JumpingClock;
use rye_engine::engine::{ApprovalPolicy, Engine, EngineOptions, OpenWorld, StartOptions};
use rye_engine::event::{EventBody, ThreadHead};
use rye_engine::exchange::{self, CallError, Delta, Reply};
use rye_engine::message::{Message, text_of};
use rye_engine::provider::Provider;
use rye_engine::provider::scripted::{Script, Scripted};
use rye_engine::threads::Threads;
use rye_engine::trust::Trust;
use rye_grammar::ItemId;
use rye_snapshots::check_run_bounds;
use shape::check_prompt;

const PROJECTS: u64 = 200;
const WORKERS: usize = 4;
/// Start time of every run: 2026-01-01, in milliseconds since 1970.
const START_TIME_MS: i64 = 1_767_225_600_000;

/// Counts over all projects, which prove that the generator covers each situation.
#[derive(Default, Debug)]
struct RunCounts {
    threads: usize,
    children: usize,
    /// Number of threads whose first request has neither a placeholder nor a conditional layer.
    whole: usize,
    /// Number of threads whose first request has a placeholder or a conditional layer.
    open: usize,
    routed: usize,
    /// Number of runs that cost money.
    paid: usize,
    /// Number of pairs of turns of a thread that were compared with the cache map.
    turns: usize,
}

impl RunCounts {
    fn add(&mut self, other: &Self) {
        self.threads += other.threads;
        self.children += other.children;
        self.whole += other.whole;
        self.open += other.open;
        self.routed += other.routed;
        self.paid += other.paid;
        self.turns += other.turns;
    }
}

/// A scripted provider that records its requests.
struct RecordingProvider {
    script: Scripted,
    asked: Mutex<Vec<exchange::Request>>,
}

impl Provider for RecordingProvider {
    fn call<'a>(
        &'a self,
        request: &'a exchange::Request,
        live: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        self.asked.lock().unwrap().push(request.clone());
        self.script.call(request, live)
    }
}

#[test]
fn generated_projects_send_what_their_plans_show() {
    let mut counts = RunCounts::default();
    // Most of the time is spent waiting for the disk.
    std::thread::scope(|scope| {
        let part = |first: u64| {
            move || {
                let mut counts = RunCounts::default();
                for seed in (first..PROJECTS).step_by(WORKERS) {
                    run_project(seed, &project(seed), &mut counts);
                }
                counts
            }
        };
        let parts: Vec<_> = (0..WORKERS as u64).map(|first| scope.spawn(part(first))).collect();
        for part in parts {
            counts.add(&part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
    assert!(counts.threads >= 250 && counts.children >= 50, "{counts:?}");
    assert!(counts.whole >= 50 && counts.open >= 50 && counts.routed >= 10, "{counts:?}");
    assert!(counts.paid >= 50 && counts.turns >= 100, "{counts:?}");
}

fn run_project(seed: u64, made: &GeneratedProject, counts: &mut RunCounts) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().canonicalize().unwrap();
    for (path, text) in &made.files {
        let path = place.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let script = Scripted::new(Script::parse(&made.script).unwrap());
    let noting = Arc::new(RecordingProvider { script, asked: Mutex::default() });
    let mut options =
        EngineOptions::with_trust(&place, None, rye_stdlib::files(), Trust::Everything, ApprovalPolicy::Allow).unwrap();
    options.clock = Arc::new(JumpingClock::starting_at(START_TIME_MS));
    options.providers = Arc::new(Arc::clone(&noting));
    let world = Arc::clone(&options.world);
    let request = CompileRequest::new(ItemId::parse("main").unwrap()).with_inputs(made.inputs.clone());
    let planned = planned(seed, &world, &request);
    // Equal files compile to the same plan.
    if seed.is_multiple_of(8) {
        assert_eq!(planned.plan_id, self::planned(seed, &world, &request).plan_id, "{seed}");
    }
    run(&place, options, &planned);

    let threads = Threads::open(&place).unwrap();
    let totals = check_run_bounds(&planned.plan, &threads).unwrap_or_else(|why| panic!("{seed}: {why}"));
    counts.paid += usize::from(totals.spent > 0);
    let list = threads.list().unwrap();
    assert!(!list.is_empty(), "{seed}: nothing ran");
    for listed in &list {
        let events = threads.transcript(&listed.row.id).unwrap();
        let ThreadHead { opened: Some(opened), plan_id: Some(plan_id), .. } = ThreadHead::of(&events) else {
            panic!("{seed}: {} never began", listed.row.id)
        };
        let parent = opened.parent.as_ref().map(|link| bounds(&threads, &link.thread_id));
        let compilation = match parent {
            None => planned.clone(),
            Some(parent) => {
                counts.children += 1;
                let directive = ItemId::parse(&opened.directive).unwrap();
                let mut request = CompileRequest::new(directive).with_inputs(opened.inputs.clone());
                request.parent = Some(parent);
                self::planned(seed, &world, &request)
            }
        };
        assert_eq!(plan_id, compilation.plan_id, "{seed}: {} is bound to another plan", listed.row.id);
        let id = listed.row.id.to_string();
        let asked = noting.asked.lock().unwrap();
        let first = asked.iter().find(|request| request.cue.thread == id).unwrap_or_else(|| {
            let ended = events.iter().find(|e| matches!(e.body, EventBody::Ended(_)));
            panic!("{seed}: {id} asked nothing: {ended:?}")
        });
        check_request(seed, &compilation.plan, first, counts);
        let next = asked.iter().filter(|request| request.cue.thread == id).nth(1);
        if let Some(next) = next.filter(|next| next.turns.len() > first.turns.len()) {
            counts.turns += usize::from(check_cache_map(seed, &compilation, NextRequest::Turn, first, next));
        }
    }
}

/// Compares the prefix that two successive requests share with the step of the cache map for the later one. Returns
/// false if the map has no such step. A part that the map calls shared is equal in both requests; if no part ends the
/// prefix, the whole opening is.
fn check_cache_map(
    seed: u64,
    compilation: &Compilation,
    later: NextRequest,
    one: &exchange::Request,
    other: &exchange::Request,
) -> bool {
    let plan = &compilation.plan;
    let (system, message, _) = view_prompt(plan, &compilation.origins);
    let map = plan.cache_map(&compilation.origins, &system, &message);
    let Some(step) = map.into_iter().find(|step| step.request == later) else { return false };
    assert_eq!(one.tools, other.tools, "{seed}: {}", plan.directive);
    let opening = |request: &exchange::Request| {
        let Some(Message::User { content }) = request.turns.first().map(|turn| &**turn) else {
            panic!("{seed}: no user's turn comes first")
        };
        (request.system.to_string(), text_of(content))
    };
    let (one, other) = (opening(one), opening(other));
    let common = |one: &str, other: &str| one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let prefix = |one: &str, other: &str| one.chars().take(common(one, other)).collect::<String>();
    let by = plan.model.counted_by;
    let mut shared = plan.definition_tokens(&plan.model) + by.count(&prefix(&one.0, &other.0));
    if one.0 == other.0 {
        shared += by.count(&prefix(&one.1, &other.1));
    }
    match &step.ends_at {
        None => assert_eq!(one, other, "{seed}: {step:?}"),
        // The plan shows a placeholder that the requests fill with a value of at least the length of its marker.
        Some(_) => assert!(shared >= step.shared, "{seed}: {shared} shared: {step:?}"),
    }
    true
}

fn planned(seed: u64, world: &OpenWorld, request: &CompileRequest) -> Compilation {
    let world = (world)().unwrap();
    let compiled = compile(&*world, request);
    let why = || compiled.diagnostics.iter().map(Diagnostic::message).collect::<Vec<_>>().join("\n");
    compiled.value.clone().unwrap_or_else(|| panic!("{seed}: {} does not compile: {}", request.directive, why()))
}

fn bounds(threads: &Threads, parent: &str) -> SpawnParent {
    let id = rye_engine::thread_id::ThreadId::parse(parent).unwrap();
    threads.parent(&id).unwrap().unwrap().bounds()
}

fn run(place: &Path, options: EngineOptions, planned: &Compilation) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = Engine::open(place, options).unwrap();
        engine.start(planned, StartOptions::default()).await.unwrap().join().await;
    });
}

/// Compares a first request with the plan of its thread.
fn check_request(seed: u64, plan: &Plan, first: &exchange::Request, counts: &mut RunCounts) {
    counts.threads += 1;
    counts.routed += usize::from(plan.route.is_some());
    let names = |tools: &[exchange::ToolDefinition]| -> Vec<(String, String, String)> {
        tools.iter().map(|t| (t.name.to_string(), t.description.to_string(), t.schema.to_string())).collect()
    };
    let palette: Vec<(String, String, String)> =
        plan.palette.iter().map(|t| (t.name.to_string(), t.description.to_string(), t.schema.to_string())).collect();
    assert_eq!(names(&first.tools), palette, "{seed}: {} has other tools", plan.directive);
    let Some(Message::User { content }) = first.turns.first().map(|turn| &**turn) else {
        panic!("{seed}: no user's turn comes first")
    };
    let message = text_of(content);
    let layers = plan.prompt.system.iter().chain(&plan.prompt.first_message);
    if layers
        .clone()
        .any(|l| l.depends || rye_compiler::plan::prompt::placeholders(std::slice::from_ref(l)).next().is_some())
    {
        counts.open += 1;
    } else {
        counts.whole += 1;
        let opening = plan.prompt.render_opening(&mut NoFacts);
        assert_eq!(
            (&*first.system, message.as_str()),
            (&*opening.system, opening.message.as_str()),
            "{seed}: {}",
            plan.directive
        );
    }
    check_prompt(&plan.prompt, &first.system, &message).unwrap_or_else(|why| {
        panic!("{seed}: {}: {why}\nsystem: {}\nmessage: {message}", plan.directive, first.system)
    });
}

/// Facts for a plan without placeholders. Reading a fact panics, because such a plan needs none.
struct NoFacts;

impl PromptFacts for NoFacts {
    fn text(&mut self, placeholder: &RuntimePlaceholder) -> String {
        panic!("a placeholder is left: {}", placeholder.marker())
    }

    fn fires(&mut self, hook: &str) -> bool {
        panic!("`{hook}` depends")
    }
}

/// Runs a directive whose second turn fills the context window, and compares the first requests of the thread and of its
/// continuation. `hooks` are the hooks of the project.
fn check_continuation(hooks: &str, ends_at: &str) {
    let read = "  - tool_calls:\n      - { name: rye_file_system_read, input: { path: plain.txt } }\n    usage: { input: 600, output: 20 }\n";
    let full = read.replace("input: 600", "input: 950000");
    let directive = "# D\n\n```xml\n<directive name=\"main\" version=\"1.0.0\">\n<metadata><limits turns=\"6\" spend=\"90\" tokens=\"90000000\"/>\
        <permissions><execute><tool>rye.file-system.read</tool></execute></permissions></metadata>\n</directive>\n```\n\nWork.\n";
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().canonicalize().unwrap();
    for (path, text) in [
        (".ai/directives/main.md", directive),
        (".ai/knowledge/who.md", "You are ${thread_id}.\n"),
        (".ai/config/agent/hooks.yaml", hooks),
        ("plain.txt", "Some text.\n"),
    ] {
        fs::create_dir_all(place.join(path).parent().unwrap()).unwrap();
        fs::write(place.join(path), text).unwrap();
    }
    let script = Scripted::new(Script::parse(&format!("steps:\n{read}{full}{}", read.repeat(9))).unwrap());
    let noting = Arc::new(RecordingProvider { script, asked: Mutex::default() });
    let mut options =
        EngineOptions::with_trust(&place, None, rye_stdlib::files(), Trust::Everything, ApprovalPolicy::Allow).unwrap();
    options.clock = Arc::new(JumpingClock::starting_at(START_TIME_MS));
    options.providers = Arc::new(Arc::clone(&noting));
    let request = CompileRequest::new(ItemId::parse("main").unwrap()).with_inputs(serde_json::Map::new());
    let compilation = planned(0, &options.world, &request);
    run(&place, options, &compilation);
    let asked = noting.asked.lock().unwrap();
    let first = &asked[0];
    let continued = asked.iter().find(|request| request.cue.thread != first.cue.thread).unwrap();
    assert!(check_cache_map(0, &compilation, NextRequest::Continuation, first, continued));
    let (system, message, _) = view_prompt(&compilation.plan, &compilation.origins);
    let map = compilation.plan.cache_map(&compilation.origins, &system, &message);
    let step = map.into_iter().find(|step| step.request == NextRequest::Continuation).unwrap();
    assert_eq!(step.ends_at.unwrap().what, ends_at);
    assert_eq!(first.system == continued.system, ends_at == "its own messages");
}

#[test]
fn continuation_shares_tools_and_system_prompt_with_its_thread() {
    check_continuation("hooks: []\n", "its own messages");
}

#[test]
fn continuation_shares_the_system_prompt_up_to_the_id_of_the_thread() {
    let hooks = "hooks:\n  - { id: who, event: build_system_prompt, position: after, action: { primary: fetch, item_type: knowledge, item_id: who } }\n";
    check_continuation(hooks, "${thread_id} in who");
}
