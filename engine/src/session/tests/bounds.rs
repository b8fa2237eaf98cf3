//! Property: random providers against random trees of threads never bill more than was booked, and never pass the limit.
//! The trees have children, detached children, children of hooks, handoffs, fallbacks, resumes and forks.
//! A provider that counts more than was possible is booked at its word, recorded, and not called again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rye_compiler::plan::PlannedModel;
use serde_json::json;

use super::{Lab, async_tools, calls, say, thread};
use crate::BoxFuture;
use crate::context::Providers;
use crate::engine::Engine;
use crate::event::{EventBody, Settled, ThreadOrigin};
use crate::exchange::cost;
use crate::exchange::{CallError, CutStream, Delta, FailedStage, Reply, Request, StopReason, Usage};
use crate::message::ContentBlock;
use crate::provider::settings::ProviderSettings;
use crate::provider::{Provider, Wire, encode};
use crate::retry::SeededJitter;
use crate::thread_id::ThreadId;

/// The habits of a provider: its counting and reporting.
#[derive(Debug, Clone, Copy)]
struct Habits {
    seed: u64,
    /// Bytes of the request's body per token.
    bytes_per_token: u64,
    /// Percent of the replies without usable usage, and of the calls whose stream is cut or refused.
    silent: u64,
    cut: u64,
    refused: u64,
    /// Percent of the replies that report more than is possible.
    lying: u64,
    /// Percent of the replies that call a tool or start a child, and whether children may be detached.
    busy: u64,
    detaches: bool,
    /// Percent of the calls of the first model that find it gone, so that its fallback takes over.
    gone: u64,
    /// Adds a hook that runs a directive after each turn.
    hooked: bool,
    /// Number of resumes and forks after the end of the root; each has a limit of its own.
    resumes: u64,
    /// Nano-dollars of each root.
    limit: u64,
}

/// A call of the provider, in the order of their starts.
#[derive(Debug, Clone, Copy)]
struct Call {
    /// Nano-dollars that had been billed when the call started.
    before: u64,
    billed: u64,
}

struct RandomProvider {
    habits: Habits,
    model: PlannedModel,
    calls: Arc<Mutex<Vec<Call>>>,
}

/// Random numbers of one call. They depend on its place in the tree, not on the order of the calls.
struct Draws(SeededJitter, u32, u64);

impl Draws {
    fn of(habits: Habits, request: &Request) -> Self {
        let place = format!("{} {:?}", request.cue.directive, request.cue.spawn);
        let place = place.bytes().fold(habits.seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let turn = u64::from(request.cue.turn.unwrap());
        Self(SeededJitter::new(place, turn, request.cue.attempt), 0, place ^ turn)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.1 += 1;
        SeededJitter::new(self.0.up_to(u64::MAX), self.2, self.1).up_to(most)
    }

    fn percent(&mut self, share: u64) -> bool {
        self.below(99) < share
    }
}

/// Returns the bytes of the largest body that a wire makes of the request.
fn body_bytes(request: &Request) -> u64 {
    let wires = [Wire::Anthropic, Wire::OpenaiChat, Wire::OpenaiResponses, Wire::Gemini];
    let of = |wire| encode(&ProviderSettings::with_defaults("test", wire), request).unwrap().len();
    wires.into_iter().map(of).max().unwrap() as u64
}

impl RandomProvider {
    fn content(&self, draws: &mut Draws) -> Vec<ContentBlock> {
        if !draws.percent(self.habits.busy) {
            return say(&"お茶 \"und\"\n\t\\ tea ".repeat(usize::try_from(draws.below(12)).unwrap()));
        }
        let child =
            |apart: bool| ("rye_execute", json!({"item_type": "directive", "item_id": "test/child", "async": apart}));
        // A lying provider answers one call at a time: two at once may both start before either has reported.
        let more = if self.habits.lying > 0 { 0 } else { draws.below(2) };
        let list: Vec<_> = (0..=more)
            .map(|_| match draws.below(2) {
                0 => ("rye_file_system_read", json!({"path": "a.txt"})),
                1 => child(false),
                _ => child(self.habits.detaches),
            })
            .collect();
        calls(&list)
    }

    fn answer(&self, request: &Request) -> (u64, Result<Reply, CallError>) {
        let mut draws = Draws::of(self.habits, request);
        let input = body_bytes(request).div_ceil(self.habits.bytes_per_token);
        let price = |usage: &Usage| cost(&self.model, usage).unwrap().to_u64();
        if draws.percent(self.habits.refused) {
            let headers = vec![("retry-after-ms".to_owned(), "0".to_owned())];
            let status = Some(529);
            return (0, Err(CallError { status, headers, ..CallError::new(FailedStage::Status, "later") }));
        }
        if self.model.id == "scripted" && draws.percent(self.habits.gone) {
            return (0, Err(CallError { status: Some(404), ..CallError::new(FailedStage::Status, "gone") }));
        }
        if draws.percent(self.habits.cut) {
            // Hidden reasoning may have used the whole output.
            let usage = Usage { input, output: draws.below(request.max_output), ..Usage::default() };
            let told = draws.percent(50).then_some(Usage { output: 1, ..usage });
            let cut = Some(CutStream { sent: input, received: 7 });
            let error = CallError { usage: told, cut, ..CallError::new(FailedStage::Truncated, "cut") };
            return (price(&usage), Err(error));
        }
        let content = self.content(&mut draws);
        let bytes = serde_json::to_string(&content).unwrap().len() as u64;
        let read = draws.below(input);
        let mut usage = Usage {
            input: input - read,
            output: bytes.div_ceil(self.habits.bytes_per_token).clamp(1, request.max_output),
            cache_read: if draws.percent(50) { read } else { 0 },
            cache_write: 0,
        };
        usage.cache_write = input - usage.input - usage.cache_read;
        let lies = draws.percent(self.habits.lying);
        if lies {
            usage = Usage { input: 900_000 + draws.below(900_000), ..usage };
        }
        let silent = !lies && draws.percent(self.habits.silent);
        let uncounted = silent.then_some(CutStream { sent: input, received: bytes });
        let reported = if uncounted.is_some() { Usage::default() } else { usage };
        let reply =
            Reply { content, usage: reported, stop: StopReason::EndTurn, model: None, uncounted, unread: Vec::new() };
        (price(&usage), Ok(reply))
    }
}

impl Provider for RandomProvider {
    fn call<'a>(
        &'a self,
        request: &'a Request,
        _: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move {
            let (billed, answer) = self.answer(request);
            let mut calls = self.calls.lock().unwrap();
            let before = calls.iter().map(|call| call.billed).sum();
            calls.push(Call { before, billed });
            answer
        })
    }
}

/// Connects each model to a provider with these habits and the model's own prices.
struct RandomProviders(Habits, Arc<Mutex<Vec<Call>>>);

impl Providers for RandomProviders {
    fn connect(&self, model: &PlannedModel) -> Result<Arc<dyn Provider>, CallError> {
        Ok(Arc::new(RandomProvider { habits: self.0, model: model.clone(), calls: Arc::clone(&self.1) }))
    }
}

/// The outcome of one random run.
struct Played {
    calls: Vec<Call>,
    settled: Vec<Settled>,
    booked: u64,
    /// The sum of the limits of all roots.
    limits: u64,
    faults: Vec<String>,
}

const DIRECTIVES: &str = "<limits turns=\"4\" spawns=\"6\" depth=\"2\"/><permissions><execute>\
    <directive>test.*</directive><tool>rye.file-system.read</tool></execute></permissions>";

const HOOK: &str = "<hooks><hook id=\"note\" event=\"after_step\"><action primary=\"execute\" item_type=\"directive\" \
    item_id=\"test/note\"/></hook></hooks>";

/// A fallback with other prices.
const MODELS: &str = "models:\n  - { id: scripted, context_window: 200000, max_output: 64000 }\n  \
    - { id: spare, context_window: 200000, max_output: 64000, \
    prices: { input: \"3\", output: \"7\", cache_read: \"0.2\", cache_write: \"4\" } }\n";

fn write_project(lab: &Lab, habits: Habits) {
    let dollars = crate::thread::dollars(habits.limit);
    let hooks = if habits.hooked { HOOK } else { "" };
    lab.write(".ai/config/agent/providers/scripted.yaml", MODELS);
    lab.directive(
        "root",
        &format!("{hooks}{}", DIRECTIVES.replace("turns", &format!("spend=\"{dollars}\" turns"))),
        "",
    );
    lab.directive("child", &format!("{hooks}{DIRECTIVES}"), "");
    lab.directive("note", "<limits turns=\"2\" output=\"64\"/>", "");
    let fallback = "<model provider=\"scripted\" tier=\"fast\" fallback=\"spare\"/>";
    for name in ["root", "child", "note"] {
        let path = format!(".ai/directives/test/{name}.md");
        let text = std::fs::read_to_string(lab.path().join(&path)).unwrap();
        lab.write(&path, &text.replace("<model provider=\"scripted\" tier=\"fast\"/>", fallback));
    }
}

async fn play(habits: Habits) -> Played {
    let lab = Lab::new(|_| Ok(say("unused")));
    lab.write("a.txt", &"Zeile \"eins\" \\ お茶\n".repeat(40));
    lab.write(".ai/config/agent/resilience.yaml", "retry: { max_retries: 2 }\n");
    lab.write(".ai/config/agent/coordination.yaml", "continuation: { trigger_threshold: 0.08 }\n");
    write_project(&lab, habits);
    let compiled = lab.compile("root");
    let calls = Arc::new(Mutex::default());
    let mut options = lab.options();
    options.providers = Arc::new(RandomProviders(habits, Arc::clone(&calls)));
    let engine = Engine::open(&lab.path(), options).unwrap();
    let handle = engine.start(&compiled, crate::engine::StartOptions::default()).await.unwrap();
    let root = thread(&handle.join().await);
    async_tools::quiet(&engine).await;
    for n in 0..habits.resumes {
        let again = if n % 2 == 0 { engine.resume(&root, "more").await } else { engine.fork(&root, 1, "else").await };
        // A root without a turn cannot be forked.
        if let Ok(handle) = again {
            handle.join().await;
            async_tools::quiet(&engine).await;
        }
    }
    let threads: Vec<ThreadId> = engine.threads().list().unwrap().into_iter().map(|listed| listed.row.id).collect();
    let mut settled = Vec::new();
    for id in &threads {
        let events = engine.threads().transcript(id).unwrap();
        settled
            .extend(events.into_iter().filter_map(|e| if let EventBody::Settled(s) = e.body { Some(s) } else { None }));
    }
    // A root that hands over continues with what it leaves, in an account of its own.
    let roots: BTreeSet<ThreadId> =
        engine.threads().list().unwrap().into_iter().map(|listed| listed.row.root).chain([root]).collect();
    let spent = |root: &ThreadId| engine.account(root).unwrap().unwrap().spent().to_u64();
    let events = threads.iter().flat_map(|id| engine.threads().transcript(id).unwrap());
    let opened =
        events.filter_map(|event| if let EventBody::Opened(opened) = event.body { Some(opened) } else { None });
    let given = opened.filter(|opened| opened.parent.is_none() && opened.origin != ThreadOrigin::Handoff);
    let limits = given.map(|opened| opened.limits.spend).sum();
    let booked = roots.iter().map(spent).sum();
    let verified = engine.threads().verify_all(&threads, &crate::keys::TrustStore::default()).unwrap();
    let faults = verified.into_iter().flat_map(|one| one.faults).map(|fault| fault.reason).collect();
    let calls = calls.lock().unwrap().clone();
    Played { calls, settled, booked, limits, faults }
}

fn habits(lying: bool) -> impl Strategy<Value = Habits> {
    let kinds = (any::<u64>(), 1..=4u64, 0..=40u64, 0..=30u64, 0..=20u64, 20..=80u64);
    let tree = (any::<bool>(), any::<bool>(), 0..=30u64, 0..=2u64);
    (kinds, tree, 60_000_000..900_000_000u64).prop_map(move |(kinds, tree, limit)| {
        let (seed, bytes_per_token, silent, cut, refused, busy) = kinds;
        let (detaches, hooked, gone, resumes) = tree;
        // A resume of a root that a lie has overspent has money of its own.
        let resumes = if lying { 0 } else { resumes };
        let lying = if lying { 30 } else { 0 };
        let detaches = detaches && lying == 0;
        Habits { seed, bytes_per_token, silent, cut, refused, lying, busy, detaches, gone, hooked, resumes, limit }
    })
}

fn check_cases(cases: u32, lying: bool, check: impl Fn(Habits, &Played) -> Result<u64, TestCaseError>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = proptest::test_runner::TestRng::deterministic_rng(config.rng_algorithm);
    let seen = std::cell::Cell::new(0);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&habits(lying), |habits| {
        let played = runtime.block_on(play(habits));
        seen.set(seen.get() + check(habits, &played)?);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(seen.get() > 0, "no case shows what is checked");
}

/// Returns the number of cases: the sample of a normal test run, or `RYE_MONEY_CASES`.
fn sample(cases: u32) -> u32 {
    std::env::var("RYE_MONEY_CASES").ok().map_or(cases, |text| text.parse().unwrap())
}

#[test]
fn no_honest_provider_bills_more_than_is_booked_or_the_limit() {
    check_cases(sample(24), false, |_, played| {
        let billed: u64 = played.calls.iter().map(|call| call.billed).sum();
        let own: u64 = played.settled.iter().map(|settled| settled.amount).sum();
        prop_assert_eq!(own, played.booked);
        prop_assert!(billed <= played.booked, "billed {} of {} booked", billed, played.booked);
        prop_assert!(played.booked <= played.limits, "booked {} of {}", played.booked, played.limits);
        prop_assert!(played.settled.iter().all(|settled| settled.overspent == 0));
        prop_assert_eq!(&played.faults, &Vec::<String>::new());
        Ok(played.calls.len() as u64)
    });
}

#[test]
fn provider_that_counts_the_impossible_is_booked_recorded_and_not_called_again() {
    check_cases(sample(24), true, |habits, played| {
        let billed: u64 = played.calls.iter().map(|call| call.billed).sum();
        prop_assert!(billed <= played.booked, "billed {} of {} booked", billed, played.booked);
        for call in &played.calls {
            prop_assert!(call.before < habits.limit, "a call after {} of {}", call.before, habits.limit);
        }
        let overspent = played.settled.iter().filter(|settled| settled.overspent > 0);
        let most = played.settled.iter().map(|settled| settled.overspent).sum::<u64>();
        prop_assert!(played.booked <= habits.limit.saturating_add(most));
        prop_assert!(played.booked <= habits.limit || most > 0);
        prop_assert_eq!(&played.faults, &Vec::<String>::new());
        Ok(overspent.count() as u64)
    });
}
