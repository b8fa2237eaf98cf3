//! Random trees of threads, each on a disk in memory, and the kinds of events that they reach.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rye_compiler::compile::{Compilation, CompileRequest, compile};
use rye_compiler::diagnostics::Checked;
use rye_compiler::semantics::limits::LimitValue;
use rye_grammar::ItemId;
use tokio::runtime::Runtime;

use super::super::{Lab, reply_text};
use super::provider::{Call, CallLog, LIMITS, ModelBehavior, RandomProviders};
use super::repair::differences;
use crate::context::StartOptions;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::event::{ControlMessage, Event, EventBody, Opened, Settled, ThreadOrigin};
use crate::exchange::FailedStage;
use crate::store::disk::{DiskFault, SimulatedDisk, Survival};
use crate::store::registry::{GroupCommit, Liveness, repair};
use crate::store::{Disk, StoreError};
use crate::thread::FIRST_HOOK_SPAWN;
use crate::thread_id::ThreadId;

/// A thread of a played tree.
pub struct PlayedThread {
    pub id: ThreadId,
    pub opened: Opened,
    pub settled: Vec<Settled>,
    /// Nano-dollars that the account spent, descendants included. `overspend` is the amount that exceeded the
    /// reservations.
    pub spent: u64,
    pub overspend: u64,
    /// True if the transcript contains a call behind the settlement of an overspent one.
    pub calls_after_overspend: bool,
    /// The thread that this one continues after a handoff.
    pub continues: Option<ThreadId>,
}

/// The outcome of one random run.
pub struct Played {
    pub calls: Vec<Call>,
    pub threads: Vec<PlayedThread>,
    pub faults: Vec<String>,
    /// True if a kill interrupted the tree.
    pub is_recovered: bool,
    pub reached: BTreeMap<&'static str, u64>,
}

impl Played {
    /// Returns each root with the total spend of the root and its continuations, which share the limit of the root.
    pub fn roots(&self) -> impl Iterator<Item = (&PlayedThread, u64)> {
        let firsts = self.threads.iter().filter(|one| one.opened.parent.is_none() && one.continues.is_none());
        firsts.map(|first| (first, self.chain(first).map(|one| one.spent).sum()))
    }

    /// Returns a thread and the threads that continue it after handoffs.
    pub fn chain<'a>(&'a self, first: &'a PlayedThread) -> impl Iterator<Item = &'a PlayedThread> {
        let next = |one: &&'a PlayedThread| self.threads.iter().find(|next| next.continues.as_ref() == Some(&one.id));
        std::iter::successors(Some(first), next)
    }
}

const DIRECTIVES: &str = "<limits turns=\"4\" spawns=\"6\" depth=\"2\"/><permissions><execute>\
    <directive>test.*</directive><tool>rye.file-system.read</tool></execute></permissions>";

const HOOK: &str = "<hooks><hook id=\"note\" event=\"after_step\"><action primary=\"execute\" item_type=\"directive\" \
    item_id=\"test/note\"/></hook></hooks>";

/// The models of the project. The second one is the fallback and has other prices.
const MODELS: &str = "models:\n  - { id: scripted, context_window: 200000, max_output: 64000 }\n  \
    - { id: spare, context_window: 200000, max_output: 64000, \
    prices: { input: \"3\", output: \"7\", cache_read: \"0.2\", cache_write: \"4\" } }\n";

/// A project, and the plans compiled from its files so far. The files never change.
pub struct Project {
    lab: Lab,
    plans: Mutex<BTreeMap<String, Checked<Compilation>>>,
}

/// Maximum number of plans in memory; later requests compile again.
const MAX_PLANS: usize = 4_096;

impl Project {
    fn new(hooked: bool) -> Self {
        let lab = Lab::new(|_| Ok(reply_text("unused")));
        let hooks = if hooked { HOOK } else { "" };
        lab.write("a.txt", &"Zeile \"eins\" \\ お茶\n".repeat(40));
        lab.write(".ai/config/agent/resilience.yaml", "retry: { max_retries: 2 }\n");
        lab.write(".ai/config/agent/coordination.yaml", "continuation: { trigger_threshold: 0.02 }\n");
        lab.write(".ai/config/agent/providers/scripted.yaml", MODELS);
        lab.directive("root", &format!("{hooks}{DIRECTIVES}"), "");
        lab.directive("child", &format!("{hooks}{DIRECTIVES}"), "");
        lab.directive("note", "<limits turns=\"2\" output=\"64\"/>", "");
        let fallback = "<model provider=\"scripted\" tier=\"fast\" fallback=\"spare\"/>";
        for name in ["root", "child", "note"] {
            let path = format!(".ai/directives/test/{name}.md");
            let text = std::fs::read_to_string(lab.path().join(&path)).unwrap();
            lab.write(&path, &text.replace("<model provider=\"scripted\" tier=\"fast\"/>", fallback));
        }
        Self { lab, plans: Mutex::default() }
    }

    pub fn of(behavior: ModelBehavior) -> &'static Self {
        static PROJECTS: [OnceLock<Project>; 2] = [OnceLock::new(), OnceLock::new()];
        PROJECTS[usize::from(behavior.hooked)].get_or_init(|| Self::new(behavior.hooked))
    }

    pub fn world(&self) -> Box<dyn rye_compiler::world::World> {
        (self.lab.options().world)().unwrap()
    }

    fn compiled(&self, request: &CompileRequest, make: impl FnOnce() -> Checked<Compilation>) -> Checked<Compilation> {
        let key = format!("{request:?}");
        if let Some(known) = self.plans.lock().unwrap().get(&key) {
            return known.clone();
        }
        let made = make();
        let mut plans = self.plans.lock().unwrap();
        if plans.len() < MAX_PLANS {
            plans.insert(key, made.clone());
        }
        made
    }

    pub fn root(&self, behavior: ModelBehavior) -> Compilation {
        let mut request = CompileRequest::new(ItemId::parse("test/root").unwrap()).with_inputs(serde_json::Map::new());
        let spend = crate::thread::dollars(LIMITS[behavior.limit]).to_string();
        request.limits = vec![("spend".into(), LimitValue::Text(spend))];
        let world = self.lab.options().world;
        self.compiled(&request, || compile(&*world().unwrap(), &request)).value.unwrap()
    }

    /// Opens an engine on a disk in memory.
    pub fn open(
        &'static self,
        behavior: ModelBehavior,
        disk: &Arc<SimulatedDisk>,
        log: &Arc<CallLog>,
    ) -> Result<Engine, EngineError> {
        let mut options = self.lab.options();
        options.disk = Some(Arc::clone(disk) as Arc<dyn Disk>);
        options.group_commit = GroupCommit { next: Duration::ZERO, longest: Duration::ZERO };
        options.providers = Arc::new(RandomProviders(behavior, Arc::clone(log)));
        let compile = Arc::clone(&options.compile);
        options.compile = Arc::new(move |world, request| self.compiled(request, || compile(world, request)));
        let engine = Engine::open(&self.lab.path(), options)?;
        log.add_process(&engine.inner);
        Ok(engine)
    }
}

/// Plays a tree of threads, then resumes and forks its threads. A crash interrupts some trees, and another process
/// recovers them, some with a rebuilt registry. At the end, the registry is rebuilt and compared with the one before.
pub fn play(runtime: &Runtime, behavior: ModelBehavior) -> Played {
    let project = Project::of(behavior);
    let compiled = project.root(behavior);
    let log = Arc::<CallLog>::default();
    let disk = Arc::new(SimulatedDisk::new());
    let mut is_recovered = false;
    if let Some(at) = behavior.crash {
        disk.fail_at(at, DiskFault::PowerFailure);
        // The runtime of a process ends with the process.
        let process = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let played = process.block_on(async {
            let engine = project.open(behavior, &disk, &log)?;
            engine.start(&compiled, StartOptions::default()).await?.join().await;
            engine.wait_idle().await;
            Ok::<_, EngineError>(())
        });
        drop(process);
        is_recovered = disk.operations() > at;
        assert!(played.is_ok() || is_recovered, "{played:?}");
        // The process was killed. Losses of unsynced data are the subject of the crash tests.
        disk.restart(Survival::All);
        if behavior.is_repaired {
            let report = repair(&(Arc::clone(&disk) as Arc<dyn Disk>)).unwrap();
            assert!(report.unreadable.is_empty() && report.refused.is_empty(), "{report:?}");
        }
    }
    let mut played = runtime.block_on(async {
        let engine = project.open(behavior, &disk, &log).unwrap();
        if behavior.crash.is_some() {
            recover(&engine).await;
        }
        if engine.threads().list().unwrap().is_empty() {
            engine.start(&compiled, StartOptions::default()).await.unwrap().join().await;
            engine.wait_idle().await;
        }
        let of_children = resume_and_fork(&engine, behavior).await;
        let mut played = read(&engine, &log);
        played.reached.insert("resume or fork of a child", of_children);
        played
    });
    played.faults.extend(differences(disk.fork(), true).into_iter().map(|found| format!("rebuilt: {found}")));
    played.is_recovered = is_recovered;
    *played.reached.entry("recovery after a crash").or_default() += u64::from(is_recovered);
    *played.reached.entry("recovery with a rebuilt registry").or_default() +=
        u64::from(is_recovered && behavior.is_repaired);
    played
}

/// Recovers every thread that a crash interrupted: first roots and their continuations, then the remaining children.
async fn recover(engine: &Engine) {
    // Each pass ends a thread.
    for _ in 0..200 {
        let mut open: Vec<_> = engine.threads().list().unwrap();
        open.retain(|one| one.liveness == Liveness::Orphaned);
        open.sort_by_key(|one| (one.row.parent.is_some(), one.row.id.clone()));
        let Some(first) = open.into_iter().next() else { return };
        match engine.recover(&first.row.id).await {
            Ok(handle) => {
                handle.join().await;
                engine.wait_idle().await;
            }
            Err(EngineError::NeverStarted { .. }) => {}
            // The process died after the end of the ancestor and before the thread received its message.
            Err(EngineError::AncestorStopped { .. }) => {
                engine.recover_with(&first.row.id, vec![ControlMessage::Kill]).await.unwrap().join().await;
                engine.wait_idle().await;
            }
            Err(error) => panic!("{}: {error}", first.row.id),
        }
    }
    panic!("threads stay orphaned");
}

/// Resumes and forks threads of a tree that has ended: the first root, and threads that the seed selects. Returns the
/// number of children among them.
async fn resume_and_fork(engine: &Engine, behavior: ModelBehavior) -> u64 {
    let mut of_children = 0;
    for n in 0..behavior.resumes {
        let rows: Vec<_> = engine.threads().list().unwrap().into_iter().map(|listed| listed.row).collect();
        let root = rows.iter().position(|row| row.parent.is_none()).unwrap_or_default();
        let count = u64::try_from(rows.len()).unwrap();
        let chosen = if n < 2 { root } else { usize::try_from(behavior.pick(n) % count).unwrap() };
        let thread = &rows[chosen].id;
        let again = if n % 2 == 0 { engine.resume(thread, "more").await } else { engine.fork(thread, 1, "else").await };
        // A thread without a turn cannot be forked, and a thread with a continuation cannot be resumed.
        if let Ok(handle) = again {
            of_children += u64::from(rows[chosen].parent.is_some());
            handle.join().await;
            engine.wait_idle().await;
        }
    }
    of_children
}

fn read(engine: &Engine, log: &CallLog) -> Played {
    let store = engine.threads();
    let rows: Vec<_> = store.list().unwrap().into_iter().map(|listed| listed.row).collect();
    let mut reached = BTreeMap::new();
    let mut threads = Vec::new();
    for row in &rows {
        // A crash before the first event of a child of a hook leaves an ended row without a transcript.
        let events = match store.transcript(&row.id) {
            Err(StoreError::UnknownThread { .. }) => {
                let account = engine.account(&row.id).unwrap().unwrap();
                assert!(row.status.has_ended() && account.spent().to_u64() == 0, "{row:?}: {account:?}");
                continue;
            }
            events => events.unwrap(),
        };
        let Some(EventBody::Opened(opened)) = events.first().map(|event| &event.body) else { continue };
        count(&events, &mut reached);
        let settled = events
            .iter()
            .filter_map(|e| if let EventBody::Settled(settled) = &e.body { Some(settled.clone()) } else { None });
        let is_overspent = |event: &&Event| matches!(&event.body, EventBody::Settled(one) if one.overspent > 0);
        let later = events.iter().skip_while(|event| !is_overspent(event));
        let calls_after_overspend = later.into_iter().any(|event| matches!(event.body, EventBody::AttemptIntended(_)));
        let account = engine.account(&row.id).unwrap().unwrap();
        threads.push(PlayedThread {
            id: row.id.clone(),
            settled: settled.collect(),
            spent: account.spent().to_u64(),
            overspend: account.overspend().to_u64(),
            calls_after_overspend,
            continues: row.continues.clone().filter(|_| opened.origin == ThreadOrigin::Handoff),
            opened: (**opened).clone(),
        });
    }
    let ids: Vec<ThreadId> = rows.into_iter().map(|row| row.id).collect();
    let verified = store.verify_all(&ids, &crate::keys::TrustStore::default()).unwrap();
    let faults = verified.into_iter().flat_map(|one| one.faults).map(|fault| fault.reason).collect();
    let calls = log.calls.lock().unwrap().clone();
    reached.insert("threads", threads.len() as u64);
    reached.insert("calls", calls.len() as u64);
    Played { calls, threads, faults, is_recovered: false, reached }
}

/// The kinds of events that a full run must reach with any provider.
pub const KINDS: [&str; 21] = [
    "cut stream without usage",
    "cut stream with partial usage",
    "cut stream before its first byte",
    "reply without usage",
    "refused call",
    "retry",
    "fallback",
    "handoff of a root",
    "handoff of a child",
    "awaited child",
    "detached child",
    "child of a child",
    "child of a hook",
    "resume",
    "fork",
    "spend limit",
    "refused child",
    "connection lost before the headers",
    "resume or fork of a child",
    "recovery after a crash",
    "recovery with a rebuilt registry",
];

/// The kind of event that only a misreporting provider reaches.
pub const OVERSPENT: &str = "overspent call";

fn count(events: &[Event], reached: &mut BTreeMap<&'static str, u64>) {
    let mut add = |kind: &'static str, reached_now: bool| *reached.entry(kind).or_default() += u64::from(reached_now);
    for event in events {
        match &event.body {
            EventBody::Opened(opened) => {
                add("handoff of a root", opened.origin == ThreadOrigin::Handoff && opened.parent.is_none());
                add("handoff of a child", opened.origin == ThreadOrigin::Handoff && opened.parent.is_some());
                add("child of a child", opened.parent.is_some() && opened.limits.depth == 0);
                add("resume", opened.origin == ThreadOrigin::Resume);
                add("fork", opened.origin == ThreadOrigin::Fork);
            }
            EventBody::AttemptIntended(intended) => add("retry", intended.attempt > 0),
            EventBody::AttemptFailed(failed) => {
                let cut = failed.error.cut;
                add(
                    "cut stream without usage",
                    cut.is_some_and(|cut| cut.received > 0) && failed.error.usage.is_none(),
                );
                add("cut stream with partial usage", cut.is_some() && failed.error.usage.is_some());
                add("cut stream before its first byte", cut.is_some_and(|cut| cut.received == 0));
                add("connection lost before the headers", cut.is_some() && failed.error.stage == FailedStage::Connect);
                add("refused call", failed.error.status == Some(529));
                add("fallback", failed.fallback.is_some());
            }
            EventBody::CognitionOut(out) => add("reply without usage", out.uncounted.is_some()),
            EventBody::ChildIntended(child) => {
                add("awaited child", !child.detached);
                add("detached child", child.detached);
            }
            EventBody::ChildSpawned(child) => add("child of a hook", child.spawn >= FIRST_HOOK_SPAWN),
            EventBody::Limit(hit) => add("spend limit", hit.limit_code == "spend_exceeded"),
            EventBody::ToolCallResult(result) => {
                add("refused child", result.is_error && result.content.contains("spend_exceeded"));
            }
            EventBody::Settled(settled) => add(OVERSPENT, settled.overspent > 0),
            _ => {}
        }
    }
}
