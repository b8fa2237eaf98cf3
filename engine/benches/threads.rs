//! Many threads in one process: 20 detached children, 1,000 children of one root, 10,000 roots at once, and one thread
//! of 1,000 turns. `cargo bench -p rye-engine --bench threads -- [children|roots|turns]` prints the measurements;
//! `docs/explanation/performance.md` quotes them.

#![expect(clippy::print_stderr, clippy::print_stdout, reason = "a bench prints what it measured")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_compiler::compile::{Compilation, CompileRequest as Ask, compile};
use rye_engine::BoxFuture;
use rye_engine::engine::{ApprovalPolicy, Engine, EngineOptions, StartOptions};
use rye_engine::exchange::{CallError, Delta, Reply, Request, StopReason, Usage};
use rye_engine::message::{ContentBlock, ToolCall};
use rye_engine::provider::Provider;
use rye_engine::thread::Status;
use rye_engine::trust::Trust;
use rye_grammar::ItemId;
use serde_json::{Value, json};
use tokio::task::JoinSet;

fn fail(error: &dyn std::fmt::Display) -> ! {
    eprintln!("the bench cannot go on: {error}");
    std::process::exit(1)
}

fn need<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| fail(&error))
}

/// A provider whose reply depends only on the directive and the turn.
struct FixedModel {
    children: usize,
    turns: u32,
    pause: Duration,
}

impl Provider for FixedModel {
    fn call<'a>(
        &'a self,
        request: &'a Request,
        _: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move {
            tokio::time::sleep(self.pause).await;
            let turn = request.cue.turn.unwrap_or(0);
            let content = match (request.cue.directive.as_str(), turn) {
                ("lead", 0) => {
                    let start = json!({"item_type": "directive", "item_id": "talk", "async": true});
                    (0..self.children).map(|n| call(n, "rye_execute", &start)).collect()
                }
                ("long", turn) if turn + 1 < self.turns => {
                    vec![call(0, "rye_file_system_read", &json!({"path": "a.txt"}))]
                }
                _ => vec![ContentBlock::Text { text: "done".into() }],
            };
            let usage = Usage { input: 100, output: 10, cache_read: 0, cache_write: 0 };
            Ok(Reply { content, usage, stop: StopReason::EndTurn, model: None, uncounted: None, unread: Vec::new() })
        })
    }
}

fn call(n: usize, name: &str, input: &Value) -> ContentBlock {
    ContentBlock::ToolCall(ToolCall { id: format!("c{n}"), name: name.to_owned(), input: input.clone() })
}

/// A temporary project with three directives, and engines for it.
struct BenchProject {
    folder: tempfile::TempDir,
}

fn standard_library(folder: &Path, root: &Path, found: &mut Vec<(String, &'static [u8])>) {
    for entry in need(std::fs::read_dir(folder)) {
        let path = need(entry).path();
        if path.is_dir() {
            standard_library(&path, root, found);
        } else if let Ok(name) = path.strip_prefix(root) {
            found.push((name.display().to_string(), Vec::leak(need(std::fs::read(&path)))));
        }
    }
}

impl BenchProject {
    fn new() -> Self {
        let folder = need(tempfile::tempdir());
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            need(std::fs::create_dir_all(path.parent().unwrap_or(folder.path())));
            need(std::fs::write(path, text));
        };
        let directive = |name: &str, rest: &str| {
            let text = format!(
                "# {name}\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\">\n<metadata><description>d</description>\
                 <model provider=\"scripted\" tier=\"fast\"/><nudge>never</nudge>{rest}</metadata>\n</directive>\n```\n\nDo it.\n"
            );
            write(&format!(".ai/directives/{name}.md"), &text);
        };
        directive("talk", "<limits spend=\"0.02\"/>");
        directive(
            "lead",
            "<limits spend=\"90\" spawns=\"5000\"/><permissions><execute><directive>talk</directive></execute></permissions>",
        );
        directive(
            "long",
            "<limits spend=\"90\" turns=\"2000\" tokens=\"1000000000\" duration_seconds=\"100000\"/>\
             <permissions><execute><tool>rye.file-system.read</tool></execute></permissions>",
        );
        write("a.txt", "a\n");
        write(".ai/config/agent/resilience.yaml", "concurrency: { max_concurrent_children: 64 }\n");
        write(".ai/config/agent/coordination.yaml", "continuation: { trigger_threshold: 1 }\n");
        Self { folder }
    }

    fn options(&self) -> EngineOptions {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stdlib");
        let mut system = Vec::new();
        standard_library(&root.join(".ai"), &root, &mut system);
        need(EngineOptions::with_trust(
            &need(self.folder.path().canonicalize()),
            None,
            system,
            Trust::Nothing,
            ApprovalPolicy::Allow,
        ))
    }

    fn compile(&self, name: &str) -> Compilation {
        let world = need((self.options().world)());
        let ask = Ask::new(need(ItemId::parse(name).map_err(|invalid| invalid.reason)));
        let checked = compile(&*world, &ask.with_inputs(serde_json::Map::new()));
        checked.value.unwrap_or_else(|| fail(&"a directive does not compile"))
    }

    fn engine(&self, model: FixedModel) -> Engine {
        let mut options = self.options();
        options.providers = Arc::new(Arc::new(model));
        need(Engine::open(&need(self.folder.path().canonicalize()), options))
    }
}

/// Returns the peak resident memory of this process in MiB.
fn peak() -> f64 {
    let status = need(std::fs::read_to_string("/proc/self/status"));
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().unwrap_or(0.0);
    kib / 1024.0
}

fn main() {
    let asked = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let wanted = |name: &str| asked.as_deref().is_none_or(|asked| asked == name);
    let runtime = need(
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).max_blocking_threads(64).enable_all().build(),
    );
    runtime.block_on(async {
        if wanted("children") {
            children(20, Duration::from_millis(50)).await;
            children(1_000, Duration::ZERO).await;
        }
        if wanted("turns") {
            turns(1_000).await;
        }
        if wanted("roots") {
            roots(10_000).await;
        }
    });
}

async fn children(count: usize, pause: Duration) {
    let place = BenchProject::new();
    let engine = place.engine(FixedModel { children: count, turns: 0, pause });
    let compilation = place.compile("lead");
    let (commits, began) = (engine.commits(), Instant::now());
    let handle = need(engine.start(&compilation, StartOptions::default()).await);
    let result = handle.join().await;
    engine.wait_idle().await;
    let took = began.elapsed();
    let rows = need(engine.threads().list());
    let done = rows.iter().filter(|listed| listed.row.status == Status::Completed).count();
    // The shortest possible time is that of two model calls in sequence: the first call of the lead, then its second
    // call in parallel with the calls of the children.
    let beyond = took.saturating_sub(pause * 2);
    println!(
        "{count} children: {done} of {} threads completed ({}), {} commits, {} ms beyond the model's time, peak {:.0} MiB",
        rows.len(),
        result.status.as_str(),
        engine.commits() - commits,
        beyond.as_millis(),
        peak()
    );
}

async fn turns(count: u32) {
    let place = BenchProject::new();
    let engine = place.engine(FixedModel { children: 0, turns: count, pause: Duration::ZERO });
    let compilation = place.compile("long");
    let mut handle = need(engine.start(&compilation, StartOptions::default()).await);
    let mut marks = Vec::new();
    while let Some(live) = handle.live.next().await {
        if let rye_engine::live::StreamEvent::Event { event, .. } = live
            && matches!(event.body, rye_engine::event::EventBody::CognitionOut(_))
        {
            marks.push(cpu());
        }
    }
    let result = handle.join().await;
    // Averaged over 100 turns, because the system counts CPU time in hundredths of a second.
    let each = |from: usize| {
        let (first, last) = (marks.get(from).copied(), marks.get(from + 100).copied());
        last.unwrap_or_default().saturating_sub(first.unwrap_or_default()) * 10_000 / 100
    };
    println!(
        "{} turns ({}): {} us of CPU a turn from turn 10, {} us from turn {}",
        result.cost.turns,
        result.status.as_str(),
        each(10),
        each(marks.len().saturating_sub(110)),
        marks.len().saturating_sub(110)
    );
}

/// Returns the CPU time of this process in hundredths of a second.
fn cpu() -> u64 {
    let stat = need(std::fs::read_to_string("/proc/self/stat"));
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

async fn roots(count: usize) {
    let place = BenchProject::new();
    // The pause keeps all threads in their model call at the same time.
    let engine = place.engine(FixedModel { children: 0, turns: 0, pause: Duration::from_mins(1) });
    let compilation = Arc::new(place.compile("talk"));
    let (before, began) = (peak(), Instant::now());
    let (mut starting, mut handles) = (JoinSet::new(), Vec::with_capacity(count));
    for _ in 0..count {
        if starting.len() >= 256
            && let Some(started) = starting.join_next().await
        {
            handles.push(need(need(started)));
        }
        let (engine, compilation) = (engine.clone(), Arc::clone(&compilation));
        starting.spawn(async move { engine.start(&compilation, StartOptions::default()).await });
    }
    while let Some(started) = starting.join_next().await {
        handles.push(need(need(started)));
    }
    let started = began.elapsed();
    let mut done = 0;
    for handle in handles {
        done += usize::from(handle.join().await.status == Status::Completed);
    }
    println!(
        "{done} of {count} roots completed: started in {:.1} s, over after {:.1} s, peak {:.0} MiB ({before:.0} before)",
        started.as_secs_f64(),
        began.elapsed().as_secs_f64(),
        peak()
    );
}
