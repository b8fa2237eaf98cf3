//! Random providers: replies, refusals, cut streams, and counts that are missing, exact or impossible.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use proptest::prelude::*;
use rye_compiler::plan::PlannedModel;
use rye_compiler::plan::bound::{
    MESSAGE_OVERHEAD_TOKENS, REQUEST_OVERHEAD_TOKENS, TOOL_OVERHEAD_TOKENS, TOOLS_OVERHEAD_TOKENS,
};
use rye_compiler::semantics::money::Nanos;
use serde_json::json;

use super::super::{calls, reply_text};
use crate::BoxFuture;
use crate::context::{EngineContext, Providers};
use crate::exchange::{CallError, CutStream, Delta, FailedStage, Reply, Request, StopReason, Usage, cost};
use crate::message::{ContentBlock, ProviderMessage, SharedMessage};
use crate::provider::settings::ProviderSettings;
use crate::provider::{Provider, Wire, encode};
use crate::retry::SeededJitter;
use crate::thread_id::ThreadId;

/// The behavior of a provider, and the shape of the tree that its replies build.
#[derive(Debug, Clone, Copy)]
pub struct ModelBehavior {
    seed: u64,
    /// Bytes of the request's body per token.
    bytes_per_token: u64,
    /// Percent of the replies without usable usage, of the calls whose stream is cut, and of the calls that are
    /// refused.
    silent: u64,
    cut: u64,
    refused: u64,
    /// Percent of the replies that report more than is possible.
    pub misreporting: u64,
    /// Percent of the replies that call a tool or start a child. `detaches` is true if children may be detached.
    busy: u64,
    detaches: bool,
    /// Percentage of the calls of the first model that fail because the model is unavailable, so that the fallback
    /// takes over.
    unavailable: u64,
    /// True if a hook runs a directive after each turn.
    pub hooked: bool,
    /// Number of resumes and forks after the end of the root; each has a limit of its own.
    pub resumes: u64,
    /// Index of each root's limit in [`LIMITS`].
    pub limit: usize,
    /// The operation of the disk at which the process is killed.
    pub crash: Option<u64>,
    /// True if the registry is rebuilt after the crash.
    pub is_repaired: bool,
}

impl ModelBehavior {
    /// A tree of seed 5001. The process is killed, the clock of the next process starts earlier, and the root hands over
    /// twice.
    pub const KILLED_CHAIN: Self = Self {
        seed: 2_312_612_921_490_495_097,
        bytes_per_token: 1,
        silent: 4,
        cut: 16,
        refused: 3,
        misreporting: 0,
        busy: 56,
        detaches: false,
        unavailable: 0,
        hooked: false,
        resumes: 0,
        limit: 9,
        crash: Some(290),
        is_repaired: false,
    };

    /// A tree of seed 8100. The process is killed after a detached child has ended.
    pub const KILLED_AFTER_A_CHILD: Self = Self {
        seed: 4_059_229_041_434_124_158,
        bytes_per_token: 2,
        silent: 5,
        cut: 18,
        refused: 12,
        misreporting: 0,
        busy: 53,
        detaches: true,
        unavailable: 18,
        hooked: false,
        resumes: 1,
        limit: 4,
        crash: Some(140),
        is_repaired: false,
    };

    /// Returns true if the provider counts the stated overhead: its bill reaches the last token of a reservation.
    pub fn counts_overhead(self) -> bool {
        self.bytes_per_token == 1 && self.seed.is_multiple_of(2)
    }

    /// Returns a number that depends on the seed and on `n`.
    pub fn pick(self, n: u64) -> u64 {
        SeededJitter::new(self.seed, n, 0).up_to(u64::MAX)
    }
}

/// The limits of the roots, in nano-dollars: from less than two calls to more than a whole tree needs.
pub const LIMITS: [u64; 16] = [
    60_000_001,
    75_000_003,
    90_000_007,
    110_000_009,
    130_000_021,
    160_000_033,
    190_000_039,
    220_000_041,
    260_000_051,
    310_000_057,
    370_000_061,
    440_000_063,
    530_000_069,
    630_000_077,
    750_000_081,
    899_999_999,
];

/// Returns a strategy of behaviors; `misreporting` is true for a provider that reports impossible counts.
pub fn behavior(misreporting: bool) -> impl Strategy<Value = ModelBehavior> {
    let kinds = (any::<u64>(), 1..=4u64, 0..=40u64, 0..=30u64, 0..=20u64, 20..=80u64);
    let tree = (any::<bool>(), any::<bool>(), 0..=30u64, 0..=4u64);
    let faults = (proptest::option::weighted(0.25, 20..=600u64), any::<bool>());
    (kinds, tree, faults, 0..LIMITS.len()).prop_map(move |(kinds, tree, (crash, is_repaired), limit)| {
        let (seed, bytes_per_token, silent, cut, refused, busy) = kinds;
        let (detaches, hooked, unavailable, resumes) = tree;
        let misreporting = if misreporting { 5 + seed % 30 } else { 0 };
        ModelBehavior {
            seed,
            bytes_per_token,
            silent,
            cut,
            refused,
            misreporting,
            busy,
            detaches,
            unavailable,
            hooked,
            resumes,
            limit,
            crash,
            is_repaired,
        }
    })
}

/// A call of the provider.
#[derive(Debug, Clone)]
pub struct Call {
    pub thread: String,
    /// Price of the call, in nano-dollars.
    pub billed: u64,
    /// True if the provider reported more than is possible.
    pub misreported: bool,
    /// True if the account of the thread, or of an ancestor, was overspent when the call started.
    pub below_overspent: bool,
    /// True if that account was overspent in the registry when the process started, before any recovery.
    pub below_recorded_overspend: bool,
    /// The number of the process that made the call, from 1.
    pub process: usize,
}

/// The calls of all models of one run, and the engine that makes them.
#[derive(Default)]
pub struct CallLog {
    pub calls: Mutex<Vec<Call>>,
    /// The number of processes that have opened the project.
    processes: AtomicUsize,
    /// The threads whose accounts were overspent when the last process started.
    overspent_at_start: Mutex<BTreeSet<String>>,
    engine: Mutex<Weak<EngineContext>>,
}

impl CallLog {
    /// Records a process that has opened the project.
    pub fn add_process(&self, engine: &Arc<EngineContext>) {
        self.processes.fetch_add(1, Ordering::Relaxed);
        let registry = engine.writer.registry();
        let threads = registry.threads().unwrap().into_iter().map(|row| row.id);
        let overspent =
            threads.filter(|id| registry.account(id).unwrap().is_some_and(|account| account.overspend() > Nanos::ZERO));
        *self.overspent_at_start.lock().unwrap() = overspent.map(|id| id.to_string()).collect();
        *self.engine.lock().unwrap() = Arc::downgrade(engine);
    }

    /// Returns two flags for the accounts of a thread and its ancestors: one is overspent now, and one was overspent when
    /// the process started.
    fn is_overspent(&self, thread: &str) -> (bool, bool) {
        let engine = self.engine.lock().unwrap().upgrade().unwrap();
        let at_start = self.overspent_at_start.lock().unwrap();
        let (mut now, mut before) = (false, false);
        let mut next = Some(thread.to_owned());
        while let Some(id) = next {
            let account = engine.writer.registry().account(&ThreadId::parse(&id).unwrap()).unwrap();
            now |= account.as_ref().is_some_and(|account| account.overspend() > Nanos::ZERO);
            before |= at_start.contains(&id);
            next = account.and_then(|account| account.parent().map(str::to_owned));
        }
        (now, before)
    }
}

struct RandomProvider {
    behavior: ModelBehavior,
    model: PlannedModel,
    log: Arc<CallLog>,
}

/// Random numbers of one call. They depend on the place of the call in the tree, not on the order of the calls.
struct Draws(SeededJitter, u32, u64);

impl Draws {
    fn of(behavior: ModelBehavior, request: &Request) -> Self {
        let cue = &request.cue;
        // Roots run one after the other, so their ids do not depend on the order of calls.
        let root = if cue.spawn.is_none() { cue.thread.as_str() } else { "" };
        let place = format!("{} {root} {:?}", cue.directive, cue.spawn);
        let place = place.bytes().fold(behavior.seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let turn = u64::from(cue.turn.unwrap());
        Self(SeededJitter::new(place, turn, cue.attempt), 0, place ^ turn)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.1 += 1;
        SeededJitter::new(self.0.up_to(u64::MAX), self.2, self.1).up_to(most)
    }

    fn percent(&mut self, share: u64) -> bool {
        self.below(99) < share
    }
}

/// Returns the size of the largest body that any wire makes of the request, in bytes.
fn body_bytes(request: &Request) -> u64 {
    let wires = [Wire::Anthropic, Wire::OpenaiChat, Wire::OpenaiResponses, Wire::Gemini];
    let of = |wire| encode(&ProviderSettings::with_defaults("test", wire), request).unwrap().len();
    wires.into_iter().map(of).max().unwrap() as u64
}

/// Returns the tokens of a request by the largest count that the engine assumes: a token for each byte of a text in a
/// JSON string, and the stated overhead of the request, its tools, messages and content blocks.
fn tokens_with_overhead(request: &Request) -> u64 {
    let bytes = |text: &str| serde_json::to_string(text).unwrap().len() as u64 - 2;
    let tools: u64 = request
        .tools
        .iter()
        .map(|tool| {
            let texts = [&*tool.name, &*tool.description, &tool.schema.to_string()].map(bytes);
            TOOL_OVERHEAD_TOKENS + texts.iter().sum::<u64>()
        })
        .sum();
    let block = |block: &ContentBlock| match block {
        ContentBlock::Text { text } => bytes(text),
        ContentBlock::ToolCall(call) => bytes(&call.id) + bytes(&call.name) + bytes(&call.input.to_string()),
        other => panic!("the provider makes no such content: {other:?}"),
    };
    let turn = |turn: ProviderMessage<'_>| match turn {
        ProviderMessage::User { content } | ProviderMessage::Assistant { content } => {
            MESSAGE_OVERHEAD_TOKENS * (1 + content.len() as u64) + content.iter().map(block).sum::<u64>()
        }
        ProviderMessage::ToolResult { call_id, name, content, .. } => {
            2 * MESSAGE_OVERHEAD_TOKENS + bytes(call_id) + bytes(name) + bytes(content)
        }
    };
    let turns: u64 = request.turns.iter().filter_map(SharedMessage::for_provider).map(turn).sum();
    let of_tools = if request.tools.is_empty() { 0 } else { TOOLS_OVERHEAD_TOKENS + tools };
    REQUEST_OVERHEAD_TOKENS + bytes(&request.system) + of_tools + turns
}

/// The price of a call, true if its report is impossible, and its outcome.
type Answer = (u64, bool, Result<Reply, CallError>);

impl RandomProvider {
    fn content(&self, draws: &mut Draws) -> Vec<ContentBlock> {
        if !draws.percent(self.behavior.busy) {
            return reply_text(&"お茶 \"und\"\n\t\\ tea ".repeat(usize::try_from(draws.below(12)).unwrap()));
        }
        let child =
            |apart: bool| ("rye_execute", json!({"item_type": "directive", "item_id": "test/child", "async": apart}));
        let list: Vec<_> = (0..=draws.below(2))
            .map(|_| match draws.below(2) {
                0 => ("rye_file_system_read", json!({"path": "a.txt"})),
                1 => child(false),
                _ => child(self.behavior.detaches),
            })
            .collect();
        calls(&list)
    }

    /// Returns a stream that breaks off anywhere: before its first byte, in the reply, or before its final usage.
    fn cut(draws: &mut Draws, input: u64, max_output: u64, price: &dyn Fn(&Usage) -> u64) -> Answer {
        // Hidden reasoning may have used the whole output.
        let usage = Usage { input, output: draws.below(max_output), ..Usage::default() };
        let stages = [FailedStage::Truncated, FailedStage::StreamError, FailedStage::Timeout, FailedStage::Protocol];
        let received = if draws.percent(20) { 0 } else { 1 + draws.below(4 * usage.output) };
        let stage = stages[usize::try_from(draws.below(3)).unwrap()];
        // A connection can also break before the headers of the answer.
        let stage = if received == 0 && draws.percent(50) { FailedStage::Connect } else { stage };
        // A stream that starts with its usage reports the input and the first token.
        let reported = (received > 0 && draws.percent(50)).then_some(Usage { output: 1, ..usage });
        let cut = Some(CutStream { sent: input, received });
        (price(&usage), false, Err(CallError { usage: reported, cut, ..CallError::new(stage, "cut") }))
    }

    fn answer(&self, request: &Request) -> Answer {
        let mut draws = Draws::of(self.behavior, request);
        let input = if self.behavior.counts_overhead() {
            tokens_with_overhead(request)
        } else {
            body_bytes(request).div_ceil(self.behavior.bytes_per_token)
        };
        let price = |usage: &Usage| cost(&self.model, usage).unwrap().to_u64();
        if draws.percent(self.behavior.refused) {
            let headers = vec![("retry-after-ms".to_owned(), "0".to_owned())];
            let status = Some(529);
            return (0, false, Err(CallError { status, headers, ..CallError::new(FailedStage::Status, "later") }));
        }
        if self.model.id == "scripted" && draws.percent(self.behavior.unavailable) {
            return (0, false, Err(CallError { status: Some(404), ..CallError::new(FailedStage::Status, "gone") }));
        }
        if draws.percent(self.behavior.cut) {
            return Self::cut(&mut draws, input, request.max_output, &price);
        }
        let content = self.content(&mut draws);
        let bytes = serde_json::to_string(&content).unwrap().len() as u64;
        let read = draws.below(input);
        let mut usage = Usage {
            input: input - read,
            output: bytes.div_ceil(self.behavior.bytes_per_token).clamp(1, request.max_output),
            cache_read: if draws.percent(50) { read } else { 0 },
            cache_write: 0,
        };
        usage.cache_write = input - usage.input - usage.cache_read;
        let misreported = draws.percent(self.behavior.misreporting);
        if misreported {
            usage = Usage { input: 900_000 + draws.below(900_000), ..usage };
        }
        let silent = !misreported && draws.percent(self.behavior.silent);
        let uncounted = silent.then_some(CutStream { sent: input, received: bytes });
        let reported = if uncounted.is_some() { Usage::default() } else { usage };
        let reply =
            Reply { content, usage: reported, stop: StopReason::EndTurn, model: None, uncounted, unread: Vec::new() };
        (price(&usage), misreported, Ok(reply))
    }
}

impl Provider for RandomProvider {
    fn call<'a>(
        &'a self,
        request: &'a Request,
        _: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move {
            let thread = request.cue.thread.clone();
            let (below_overspent, below_recorded_overspend) =
                if self.behavior.misreporting > 0 { self.log.is_overspent(&thread) } else { (false, false) };
            let (billed, misreported, answer) = self.answer(request);
            let process = self.log.processes.load(Ordering::Relaxed);
            let call = Call { thread, billed, misreported, below_overspent, below_recorded_overspend, process };
            self.log.calls.lock().unwrap().push(call);
            answer
        })
    }
}

/// Connects each model to a provider with this behavior and the model's own prices.
pub struct RandomProviders(pub ModelBehavior, pub Arc<CallLog>);

impl Providers for RandomProviders {
    fn connect(&self, model: &PlannedModel) -> Result<Arc<dyn Provider>, CallError> {
        Ok(Arc::new(RandomProvider { behavior: self.0, model: model.clone(), log: Arc::clone(&self.1) }))
    }
}
