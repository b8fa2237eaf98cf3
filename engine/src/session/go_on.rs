//! Threads that go on from another: a handoff when the context is full, a resume with a new message. The new thread keeps
//! the plan and the inputs, and begins with a reference to where the old one stopped.

use std::sync::Arc;

use rye_compiler::compile::{Request, compile};
use rye_compiler::plan::{Plan, PlanLimits};
use rye_compiler::semantics::ledger::Operation;
use rye_compiler::semantics::money::Nanos;
use serde_json::Value;

use super::{Above, Beginning, blocking, stored_plan};
use crate::driver::{DriveError, Outlet, Thread, live};
use crate::engine::{EngineError, Handle, Inner, Running};
use crate::event::{Continues, Event, Head, Letter, Opened, Origin};
use crate::message::{Block, Message};
use crate::store::registry::Step;
use crate::store::{Change, LedgerStep, RowUpdate, StoreError, transcript};
use crate::thread::Cost;
use crate::thread_id::ThreadId;

/// Said where no continuation directive says anything.
const GO_ON: &str = "Go on from where you left off.";

impl Inner {
    /// The continuation of a thread whose context is full.
    pub(super) async fn hand_over(
        self: &Arc<Self>,
        thread: &Thread,
        outlet: Arc<Outlet>,
    ) -> Result<Running, DriveError> {
        let Some(launch) = thread.state.launch.as_deref() else {
            return Err(DriveError::Plan(format!("`{}` was never opened", thread.id)));
        };
        let message = self.continuation(&thread.plan).await?;
        // Its own record, which this process has just written.
        let last = self.last_event(&thread.id, 0).await?;
        let beginning = Beginning {
            plan: Arc::clone(&thread.plan),
            plan_id: thread.state.plan_id.clone(),
            inputs: launch.inputs.clone(),
            origin: Origin::Handoff,
            limits: left_of(&thread.state.limits, &thread.state.cost, thread.state.clock.elapsed_ms()),
            grants: launch.grants.clone(),
            parent: above(launch),
            continues: Some(Continues {
                thread: thread.id.to_string(),
                at_seq: last.0,
                at_h: last.1,
                message: Some(message),
            }),
            history: trailing(&thread.state.talk.messages, ceiling(&thread.plan)),
            outlet,
        };
        self.follow(&thread.id, beginning, launch).await.map(|(_, running)| running)
    }

    /// A new thread that goes on from one that is over, with one more message.
    pub(crate) async fn resume_root(self: &Arc<Self>, thread: &ThreadId, message: &str) -> Result<Handle, EngineError> {
        let of = thread.clone();
        let row = self.read(move |registry| registry.thread(&of)).await?;
        let Some(row) = row else { return Err(StoreError::UnknownThread { thread: thread.to_string() }.into()) };
        if !row.status.is_over() {
            let handle = self.recover_root(thread).await?;
            if !message.is_empty() {
                handle.send(Letter::Steer { text: message.to_owned() });
            }
            return Ok(handle);
        }
        let (last, hash) = self.last_event(thread, row.synced).await?;
        let (engine, id) = (Arc::clone(self), thread.clone());
        let read = move || -> Result<_, DriveError> {
            let (talk, _) = engine.talk_of(&id, last, 1_000)?;
            let reading = transcript::read(&*engine.disk, &id, 0)?;
            let whole = |record| crate::driver::journal::whole(record, &id, &engine.objects);
            let events: Vec<Event> = reading.records.iter().take(3).map(whole).collect::<Result<_, _>>()?;
            Ok((talk, events))
        };
        let (history, events) = blocking(read).await?;
        let head = Head::of(&events);
        let (Some(opened), Some(plan_id)) = (head.opened.cloned(), head.plan_id.map(str::to_owned)) else {
            return Err(EngineError::NeverBegan { thread: thread.to_string() });
        };
        let (engine, wanted) = (Arc::clone(self), plan_id.clone());
        let plan = Arc::new(blocking(move || stored_plan(&engine, &wanted)).await?);
        let (outlet, live) = live::channel();
        let beginning = Beginning {
            limits: plan.limits,
            plan,
            plan_id,
            inputs: opened.inputs.clone(),
            origin: Origin::Resume,
            grants: opened.grants.clone(),
            // Whoever resumes it is its caller; the parent has long had its answer.
            parent: None,
            continues: Some(Continues {
                thread: thread.to_string(),
                at_seq: last,
                at_h: hash,
                message: Some(message.to_owned()),
            }),
            history,
            outlet: Arc::new(outlet),
        };
        let rootless = Opened { parent: None, ..opened };
        let (id, running) = self.follow(thread, beginning, &rootless).await?;
        Ok(Handle::new(id, live, running))
    }

    /// Begins a thread that goes on from another, and links the two.
    async fn follow(
        self: &Arc<Self>,
        before: &ThreadId,
        beginning: Beginning,
        launch: &Opened,
    ) -> Result<(ThreadId, Running), DriveError> {
        let id = self.allocate(&beginning.plan).await?;
        let update = RowUpdate { continued_by: Some(id.clone()), ..RowUpdate::default() };
        let mut changes =
            vec![Change::Update { thread: before.clone(), update: Box::new(update), now: self.clock.now() }];
        let mut account = true;
        if let Some(parent) = launch.parent.as_ref().and_then(|link| ThreadId::parse(&link.thread_id).ok()) {
            // What the old thread did not need has gone back to the parent, and is set aside again.
            account = false;
            changes.push(Change::Ledger(LedgerStep {
                thread: parent.clone(),
                step: Step::Other(format!("handoff.{before}")),
                operation: Operation::Reserve {
                    thread: id.to_string(),
                    parent: parent.to_string(),
                    amount: None,
                    default: Nanos::from_u64(beginning.limits.spend),
                },
            }));
        }
        self.writer.commit(changes).await?;
        let running = self.begin(id.clone(), beginning, account).await?;
        Ok((id, running))
    }

    /// The number and the chain hash of a thread's last event, of which `synced` events are known to be on the disk.
    async fn last_event(self: &Arc<Self>, thread: &ThreadId, synced: u64) -> Result<(u64, String), DriveError> {
        let (disk, id) = (Arc::clone(&self.disk), thread.clone());
        let reading = blocking(move || Ok(transcript::read(&*disk, &id, synced)?)).await?;
        let last = reading.records.last().map(|record| (record.seq, record.hash.to_string()));
        last.ok_or_else(|| DriveError::Plan(format!("`{thread}` has no record")))
    }

    /// What the continuation directive says.
    async fn continuation(&self, plan: &Plan) -> Result<String, DriveError> {
        let Some(directive) = plan.continuation_directive.clone() else { return Ok(GO_ON.into()) };
        let inputs = plan.interface.values.clone();
        let body = self.with_world(move |world| {
            let request = Request::new(directive).with_inputs(inputs);
            let compiled = compile(world, &request).value;
            Ok(compiled.map(|compilation| crate::machine::prompt::body(&compilation.plan)))
        });
        let body = body.await?.ok().flatten().filter(|body| !body.is_empty());
        Ok(body.unwrap_or_else(|| GO_ON.into()))
    }
}

fn above(launch: &Opened) -> Option<Above> {
    let link = launch.parent.clone()?;
    let root = ThreadId::parse(&launch.root).ok()?;
    Some(Above { link, root, limits: launch.ceiling.unwrap_or(launch.limits) })
}

/// What a thread leaves to the one that goes on for it.
fn left_of(limits: &PlanLimits, cost: &Cost, elapsed_ms: u64) -> PlanLimits {
    PlanLimits {
        turns: limits.turns.saturating_sub(cost.turns),
        tokens: limits.tokens.saturating_sub(cost.input_tokens + cost.output_tokens),
        spend: limits.spend.saturating_sub(cost.spend),
        duration_seconds: limits.duration_seconds.saturating_sub(elapsed_ms / 1000),
        ..*limits
    }
}

/// Tokens of trailing messages that a continuation begins with.
pub(super) fn ceiling(plan: &Plan) -> u64 {
    let setting = plan.settings.get("coordination").and_then(|v| v.pointer("/continuation/resume_ceiling_tokens"));
    setting.and_then(Value::as_u64).unwrap_or(16_000)
}

/// The last messages within a number of tokens. They start at a user message, so that no call is parted from its result.
pub(super) fn trailing(messages: &[Message], tokens: u64) -> Vec<Message> {
    let mut left = tokens.saturating_mul(4);
    let mut start = messages.len();
    for (index, message) in messages.iter().enumerate().rev() {
        let weight = characters(message);
        if weight > left {
            break;
        }
        left -= weight;
        if message.kind() == "user" {
            start = index;
        }
    }
    messages.get(start..).unwrap_or_default().to_vec()
}

fn characters(message: &Message) -> u64 {
    let text = match message {
        Message::User { content } | Message::Assistant { content } => {
            content.iter().map(|block| if let Block::Text { text } = block { text.len() } else { 200 }).sum()
        }
        Message::ToolResult { content, .. } | Message::Custom { content, .. } => content.len(),
        Message::Bash { command, output, .. } => command.len() + output.len(),
        Message::CompactionSummary { text } | Message::BranchSummary { text } => text.len(),
    };
    text as u64
}
