//! A small plan and a simulated thread with listed answers: tests run the machine without an async runtime.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::similar_names,
    clippy::wildcard_enum_match_arm,
    reason = "tests"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use indexmap::IndexMap;
use rye_compiler::hook::{HookAction, HookPoint, HookSource, OnFailure, PlanVerdict, PlannedHook, Position};
use rye_compiler::plan::graph::{GraphNeeds, GraphPart, build_graph};
use rye_compiler::plan::{
    Capabilities, FieldType, Grant, Interface, InterfaceField, Layer, LayerKind, Node, NudgePolicy, Outcome,
    PLAN_FORMAT, PalettePrimary, PaletteTool, Plan, PlanLimits, PlanMode, PlanSettings, PlannedModel, Prices, Prompt,
    RuntimePlaceholder, Sampling, Segment, ToolUse, ValueParts,
};
use rye_compiler::tool_spec::Idempotence;
use rye_compiler::world::Space;
use rye_grammar::ItemId;
use serde_json::{Map, Value, json};

use super::signal::CallAnswer;
use super::{Effect, Fact, Signal, SpawnResult, ThreadState, absorb, apply, build_request, next};
use crate::event::{
    Approval, CommandSettings, ControlMessage, Delivery, Event, EventBody, HookOutcome, Opened, ResultKind,
    ThreadOrigin,
};
use crate::exchange::{CallError, FailedStage, Reply, Request, RequestTurns, StopReason, Usage};
use crate::message::{ContentBlock, ToolCall};
use crate::thread::{Cost, Status};

pub(crate) fn id(text: &str) -> ItemId {
    ItemId::parse(text).unwrap()
}

pub(crate) fn tool(item: &str, parallel: bool, idempotent: bool) -> PaletteTool {
    palette(&item.replace(['/', '-'], "_"), PalettePrimary::Execute, Some(id(item)), parallel, idempotent)
}

fn palette(
    name: &str,
    primary: PalettePrimary,
    item_id: Option<ItemId>,
    parallel: bool,
    idempotent: bool,
) -> PaletteTool {
    PaletteTool {
        name: name.into(),
        primary,
        item_id,
        description: "".into(),
        schema: json!({"type": "object"}).into(),
        parallel,
        idempotent: Idempotence::All(idempotent),
        tokens: 10,
        bytes: 40,
    }
}

/// Returns a plan. One dollar is 1,000,000,000 nano-dollars; a token costs 1,000 nano-dollars in and 2,000 out.
pub(crate) fn plan() -> Plan {
    let text = |text: &str| vec![Segment::Text { text: text.into() }];
    let layer = |id: &str, kind, position, segments| Layer { position, ..Layer::new(id, kind, segments) };
    let mut plan = Plan {
        format: PLAN_FORMAT,
        mode: PlanMode::Run,
        session_limits: None,
        limit_ceilings: BTreeMap::new(),
        directive: id("test/hello"),
        category: "test".into(),
        description: "says hello".into(),
        chain: Vec::new(),
        route: None,
        graph: build_graph(&GraphNeeds::default()),
        prompt: Prompt {
            system: vec![layer("core/identity", LayerKind::Knowledge, None, text("You are you."))],
            first_message: vec![
                layer("core/env", LayerKind::Knowledge, Some(Position::Before), text("Here.")),
                layer("test/hello", LayerKind::Body, None, text("Say hello.")),
            ],
            continued: Vec::new(),
            body: text("Say hello."),
        },
        palette: vec![
            palette("rye_execute", PalettePrimary::Execute, None, false, false),
            palette("rye_fetch", PalettePrimary::Fetch, None, true, true),
            tool("a/read", true, true),
            tool("a/look", true, true),
            tool("a/write", false, false),
        ],
        dropped_tools: Vec::new(),
        capabilities: Capabilities {
            declared: true,
            from: None,
            grants: vec![grant("rye.execute.tool.a.*"), grant("rye.execute.directive.*")],
            acknowledged: BTreeMap::new(),
        },
        limits: PlanLimits {
            turns: 10,
            tokens: 100_000,
            spend: 1_000_000_000,
            spawns: 2,
            depth: 2,
            duration_seconds: 600,
            output: 2000,
        },
        hooks: Vec::new(),
        interface: Interface { inputs: IndexMap::new(), outputs: IndexMap::new(), values: Map::new() },
        model: PlannedModel {
            provider: "scripted".into(),
            wire: "scripted".into(),
            id: "m".into(),
            requested: "general".into(),
            fallback: None,
            context_window: 100_000,
            max_output: 8000,
            prices: Some(Prices {
                input: 1_000_000_000,
                output: 2_000_000_000,
                cache_read: 100_000_000,
                cache_write: 1_250_000_000,
                long_prompt: None,
            }),
            counted_by: rye_compiler::plan::Tokenizer::Characters,
            tokenizer: None,
            tool_use: ToolUse::Native,
            images: true,
            sampling: Sampling::default(),
            connection: Value::Null,
            from_project: Vec::new(),
        },
        nudge: NudgePolicy::Never,
        continuation_directive: None,
        settings: PlanSettings::default(),
        manifest: Vec::new(),
        context_files: Vec::new(),
        omitted: Vec::new(),
        appended: None,
    };
    rebuild(&mut plan);
    plan
}

/// Adds a settings file to a plan.
pub fn set_setting(plan: &mut Plan, file: &str, value: Value) {
    let mut files = (*plan.settings).clone();
    files.insert(file.to_owned(), value);
    plan.settings = PlanSettings::new(files);
}

/// Rebuilds the graph from the plan's parts.
pub(crate) fn rebuild(plan: &mut Plan) {
    let points: BTreeSet<HookPoint> = plan.hooks.iter().filter(|h| h.is_live()).map(|h| h.event).collect();
    let mut parts = BTreeSet::from([GraphPart::Tools]);
    if !plan.interface.outputs.is_empty() {
        parts.insert(GraphPart::Return);
    }
    if plan.nudge != NudgePolicy::Never {
        parts.insert(GraphPart::Nudge);
    }
    if plan.mode == PlanMode::Chat {
        parts.insert(GraphPart::Chat);
    }
    plan.graph = build_graph(&GraphNeeds { points, parts });
}

/// Turns the plan into a chat with these limits of the session.
pub(crate) fn into_chat(plan: &mut Plan, session: PlanLimits) {
    plan.mode = PlanMode::Chat;
    plan.session_limits = Some(session);
    let pending = RuntimePlaceholder::Fact { path: "prompt".into(), fallback: None };
    let segments = vec![Segment::Pending { pending, why: "the first prompt".into() }];
    let prompt = Layer { segments, kind: LayerKind::Prompt, position: None, ..plan.prompt.first_message[0].clone() };
    plan.prompt.first_message.push(Layer { tag: None, id: "prompt".into(), ..prompt });
    rebuild(plan);
}

pub(crate) fn grant(pattern: &str) -> Grant {
    Grant { pattern: pattern.into(), net: Vec::new(), write: Vec::new() }
}

pub(crate) fn with_outputs(plan: &mut Plan, outputs: &[(&str, FieldType, bool)]) {
    for (name, kind, required) in outputs {
        let field = InterfaceField {
            kind: *kind,
            required: *required,
            default: None,
            choices: Vec::new(),
            description: String::new(),
            parts: ValueParts::default(),
        };
        plan.interface.outputs.insert((*name).to_owned(), field);
    }
    plan.palette.push(palette("rye_directive_return", PalettePrimary::Return, None, false, false));
    rebuild(plan);
}

pub(crate) fn with_hook(plan: &mut Plan, point: HookPoint, action: HookAction) {
    plan.hooks.push(PlannedHook {
        id: format!("hook_{}", plan.hooks.len()),
        event: point,
        layer: 1.0,
        source: HookSource::Project,
        space: Space::Project,
        position: Position::Before,
        wrap: true,
        condition: None,
        action,
        grants: Vec::new(),
        on_failure: OnFailure::Warn,
        verdict: PlanVerdict::Fires,
    });
    rebuild(plan);
}

pub(crate) fn rewire(plan: &mut Plan, node: Node, outcome: Outcome, to: Node) {
    plan.graph.0.get_mut(&node).unwrap().insert(outcome, to);
}

pub(crate) fn text(text: &str) -> Result<Reply, CallError> {
    reply(vec![ContentBlock::Text { text: text.into() }])
}

pub(crate) fn call(name: &str, input: Value) -> (String, Value) {
    (name.to_owned(), input)
}

pub(crate) fn calls(list: &[(String, Value)]) -> Result<Reply, CallError> {
    let call = |(n, (name, input)): (usize, &(String, Value))| {
        ContentBlock::ToolCall(ToolCall { id: format!("c{n}"), name: name.clone(), input: input.clone() })
    };
    reply(list.iter().enumerate().map(call).collect())
}

/// Returns a reply that uses 100 tokens in and 10 out: 120,000 nano-dollars.
#[expect(clippy::unnecessary_wraps, reason = "call sites list it together with failures")]
pub(crate) fn reply(content: Vec<ContentBlock>) -> Result<Reply, CallError> {
    let usage = Usage { input: 100, output: 10, cache_read: 0, cache_write: 0 };
    Ok(Reply {
        content,
        usage,
        stop: StopReason::EndTurn,
        model: Some("m".into()),
        uncounted: None,
        unread: Vec::new(),
    })
}

pub(crate) fn status(code: u16, headers: &[(&str, &str)]) -> Result<Reply, CallError> {
    Err(CallError {
        stage: FailedStage::Status,
        status: Some(code),
        headers: headers.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        error_type: None,
        code: None,
        message: format!("status {code}"),
        usage: None,
        cut: None,
    })
}

/// A simulated thread: effects are answered from lists.
pub(crate) struct SimulatedThread {
    pub plan: Plan,
    pub state: ThreadState,
    pub events: Vec<Event>,
    pub now: i64,
    pub replies: VecDeque<Result<Reply, CallError>>,
    /// The cost that every awaited child reports at its end.
    pub child_cost: Cost,
    /// Nano-dollars that are reserved for each child.
    pub child_spend: u64,
    /// Answers of hooks by point, in order; `None` once the list is empty.
    pub hooks: BTreeMap<HookPoint, VecDeque<HookOutcome>>,
    pub requests: Vec<Request>,
    pub dispatched: Vec<Vec<String>>,
    pub sleeps: Vec<i64>,
    pub reservations: Vec<(u64, usize)>,
    /// Control messages to deliver before the n-th effect.
    pub messages: Vec<(usize, ControlMessage)>,
    /// Prompts of a chat, one for each wait. When the list is empty, the session closes.
    pub prompts: VecDeque<String>,
    pub steps: usize,
    pub asked: Vec<String>,
    /// The answer to every approval request.
    pub says: Approval,
}

impl SimulatedThread {
    pub fn new(plan: Plan, replies: Vec<Result<Reply, CallError>>) -> Self {
        Self {
            plan,
            state: ThreadState::new(),
            events: Vec::new(),
            now: 1_000_000,
            replies: replies.into(),
            child_cost: Cost { spend: 500, ..Cost::default() },
            child_spend: 1000,
            hooks: BTreeMap::new(),
            requests: Vec::new(),
            dispatched: Vec::new(),
            sleeps: Vec::new(),
            reservations: Vec::new(),
            messages: Vec::new(),
            prompts: VecDeque::new(),
            steps: 0,
            asked: Vec::new(),
            says: Approval::Refused,
        }
    }

    pub fn opened(&self) -> Opened {
        Opened {
            thread_id: "test/hello-1".into(),
            directive: self.plan.directive.to_string(),
            origin: if self.plan.mode == PlanMode::Chat { ThreadOrigin::Chat } else { ThreadOrigin::Run },
            parent: None,
            root: "test/hello-1".into(),
            inputs: Map::new(),
            limits: self.plan.thread_limits(),
            ceiling: None,
            grants: vec![self.plan.capabilities.grants.clone()],
            seed: 7,
            project_path: "p".into(),
            attended: true,
            images: Vec::new(),
            call: None,
            carried_ms: 0,
            allow_missing_outputs: false,
            settings: CommandSettings::default(),
            serves_client: false,
        }
    }

    pub fn start(&mut self) {
        let launch = Box::new(self.opened());
        self.signal(Fact::Opened { launch, plan_id: "plan".into(), continues: None });
    }

    /// Records a signal and folds its events; returns the number of events.
    pub fn signal(&mut self, fact: Fact) -> usize {
        let bodies = absorb(&self.plan, &self.state, Signal { at: self.now, fact });
        let count = bodies.len();
        for body in bodies {
            // The event passes through JSON, as in a transcript.
            let line = serde_json::to_string(&body).unwrap();
            let body: EventBody = serde_json::from_str(&line).unwrap();
            let event = Event { seq: self.events.len() as u64, ts: self.now, body };
            apply(&mut self.state, &event);
            self.events.push(event);
        }
        count
    }

    /// Performs one effect; returns false once the thread has ended.
    pub fn step(&mut self) -> bool {
        let step = self.steps;
        self.steps += 1;
        assert!(step < 1000, "the machine does not come to an end: {:?}", self.state.position);
        let due: Vec<ControlMessage> =
            self.messages.iter().filter(|(n, _)| *n == step).map(|(_, l)| l.clone()).collect();
        for (n, message) in due.into_iter().enumerate() {
            self.signal(Fact::Mail { id: format!("mail-{step}-{n}"), message });
        }
        self.now += 10;
        let effect = next(&self.plan, &self.state);
        assert_eq!(effect, next(&self.plan, &self.state), "the same state gives the same effect");
        let written = match effect {
            Effect::Done { .. } => return false,
            Effect::Record => self.signal(Fact::Tick),
            Effect::Sleep { until } => {
                self.sleeps.push(until - self.now);
                self.now = until;
                let written = self.signal(Fact::Tick);
                assert!(written > 0, "the end of a sleep writes no event: {:?}", self.state.position);
                written
            }
            Effect::Reserve(reservation) => {
                self.reservations.push((reservation.amount, reservation.settle.len()));
                self.signal(Fact::Reserved)
            }
            Effect::CallModel { call, .. } => {
                self.requests.push(build_request(&self.plan, &self.state, call, RequestTurns::All));
                match self.replies.pop_front().unwrap_or_else(|| text("nothing more")) {
                    Ok(reply) => self.signal(Fact::ModelReplied(Box::new(reply))),
                    Err(error) => self.signal(Fact::ModelFailed(Box::new(error))),
                }
            }
            Effect::RunTools(group) => {
                self.dispatched.push(group.iter().map(|c| c.capability().to_owned()).collect());
                // Results arrive in reverse order, but must be recorded in source order.
                let mut written = 0;
                for call in group.iter().rev() {
                    let answer = CallAnswer::text(format!("ran {}", call.name), false);
                    let finished = super::signal::ToolFinished { index: call.index, answer, duration_ms: 1 };
                    written += self.signal(Fact::ToolFinished(Box::new(finished)));
                }
                written
            }
            Effect::RunHooks(run) => {
                let answer = self.hooks.get_mut(&run.point).and_then(VecDeque::pop_front).unwrap_or_default();
                let (point, subject) = (run.point, run.subject);
                let (considered, children, kept, expansions) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
                let answer = Box::new(answer);
                self.signal(Fact::HooksRan {
                    point,
                    subject,
                    considered,
                    children,
                    answer,
                    objects: Vec::new(),
                    kept,
                    expansions,
                })
            }
            Effect::Spawn(children) => {
                let spend = self.child_spend;
                let made = |spawn| SpawnResult::Made { spawn, thread_id: format!("child-{spawn}"), spend, pid: 1 };
                self.signal(Fact::Spawned(children.iter().map(|child| made(child.child.spawn)).collect()))
            }
            Effect::Await(children) => {
                let mut written = 0;
                for child in children {
                    written += self.signal(Fact::ChildEnded {
                        spawn: child.spawn,
                        thread_id: child.thread_id,
                        status: Status::Completed,
                        cost: self.child_cost,
                        answer: Some(Box::new(CallAnswer::text("child done", false))),
                    });
                }
                written
            }
            Effect::Wait => {
                let prompt = self.prompts.pop_front();
                let message = prompt.map_or(ControlMessage::Close, |text| ControlMessage::Submit {
                    input: text.into(),
                    delivery: Delivery::Prompt,
                });
                self.signal(Fact::Mail { id: format!("wait-{step}"), message })
            }
            Effect::RunCommand { id, call } => {
                self.dispatched.push(vec![call.name.clone()]);
                let answer = Box::new(CallAnswer::text("output", false));
                self.signal(Fact::ShellRan { id, answer, exit_code: 0, duration_ms: 1 })
            }
            Effect::Ask { what, .. } => {
                self.asked.push(what);
                self.signal(Fact::Answered(self.says))
            }
        };
        assert!(written > 0, "an effect was worth no event at {:?}", self.state.position);
        true
    }

    pub fn run(&mut self) -> &mut Self {
        self.start();
        while self.step() {}
        self
    }

    pub fn ended(&self) -> &crate::event::Ended {
        self.state.ended.as_deref().unwrap()
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.events.iter().map(|e| crate::event::event_row(e.body.kind()).name).collect()
    }

    pub fn results(&self) -> Vec<(ResultKind, String)> {
        let result = |e: &Event| match &e.body {
            EventBody::ToolCallResult(r) => Some((r.why.clone(), r.content.clone())),
            _ => None,
        };
        self.events.iter().filter_map(result).collect()
    }
}
