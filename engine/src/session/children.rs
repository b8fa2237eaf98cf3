//! Children: a directive that a thread calls, or that one of its hooks starts, as a thread of its own in the same tree
//! and process. Its plan is frozen here; money, limits and capabilities come from above and can only shrink.

use std::sync::Arc;

use rye_compiler::compile::{Compilation, Parent, Request, compile};
use rye_compiler::diagnostics::Diagnostic;
use rye_compiler::hook::{HookPoint, PlannedHook};
use rye_compiler::model::ModelOverride;
use rye_compiler::plan::{Grant, PlanLimits};
use rye_compiler::semantics::ledger::{Answer as LedgerAnswer, Operation};
use rye_compiler::semantics::limits::Written;
use rye_compiler::semantics::money::Nanos;
use rye_grammar::ItemId;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Above, Beginning, blocking};
use crate::driver::DriveError;
use crate::driver::embedded::Embedded;
use crate::engine::{Inner, Running};
use crate::event::{Origin, ParentLink, Settled};
use crate::machine::Fact;
use crate::machine::effect::{AwaitedChild, SpawnChild};
use crate::machine::gate::ChildStart;
use crate::store::registry::Step;
use crate::store::{Answered, Change, LedgerStep, StoreError, ThreadRow, layout};
use crate::thread::{Cost, RunResult};
use crate::thread_id::ThreadId;
use crate::threads::result_of;
use crate::tool::ToolOutcome;

/// On what terms a child is made.
struct Terms {
    /// What the parent owes the ledger: booked first, so that it is not held twice.
    unsettled: Vec<Settled>,
    /// Children that share what is left.
    sharing: u64,
    /// Nano-dollars that stay with the parent.
    keep_back: u64,
    /// What the hook that starts the child grants it.
    grants: Vec<Grant>,
}

/// A child that is there, with what was set aside for it.
struct Made {
    thread: ThreadId,
    spend: u64,
}

impl Inner {
    /// Makes the child of a call, or finds the one that this spawn made before.
    pub(crate) async fn spawn(
        self: &Arc<Self>,
        parent: &Embedded,
        wanted: &SpawnChild,
        unsettled: &[Settled],
    ) -> Result<Fact, DriveError> {
        let SpawnChild { child, sharing, keep_back } = wanted;
        let spawn = child.spawn;
        let Ok(directive) = ItemId::parse(&child.directive) else {
            return Ok(Fact::NotSpawned { spawn, reason: format!("`{}` is no directive", child.directive) });
        };
        let start = ChildStart {
            directive,
            inputs: child.inputs.clone(),
            model: child.model.clone(),
            limit_overrides: child.limit_overrides.clone(),
        };
        let terms = Terms {
            unsettled: unsettled.to_vec(),
            sharing: (*sharing).max(1),
            keep_back: *keep_back,
            grants: Vec::new(),
        };
        Ok(match self.make_child(parent, spawn, start, terms).await? {
            Ok(made) => Fact::Spawned { spawn, thread_id: made.thread.to_string(), spend: made.spend },
            Err(reason) => Fact::NotSpawned { spawn, reason },
        })
    }

    /// Waits for a child, taking it up again if this process does not run it.
    pub(crate) async fn await_child(
        self: &Arc<Self>,
        parent: &Embedded,
        child: AwaitedChild,
    ) -> Result<Fact, DriveError> {
        let thread = ThreadId::parse(&child.thread_id).map_err(|e| DriveError::Plan(e.reason))?;
        let (result, cost) = self.result_of_child(parent, &thread).await?;
        let status = result.status;
        let outcome = ToolOutcome {
            is_error: !result.success,
            content: serde_json::to_value(&result).unwrap_or(Value::Null),
            details: Value::Null,
        };
        let answer = Box::new(parent.guarded(outcome).await?);
        Ok(Fact::ChildEnded { spawn: child.spawn, thread_id: result.thread_id, status, cost, answer })
    }

    /// Starts a directive for a hook and waits for it. The same run of the same hook finds the same child.
    pub(crate) async fn hook_child(
        self: &Arc<Self>,
        parent: &Embedded,
        hook: &PlannedHook,
        start: ChildStart,
        (point, turn, key): (HookPoint, u64, &str),
    ) -> Result<ToolOutcome, String> {
        let digest = Sha256::digest(format!("{point:?} {turn} {key}").as_bytes());
        let head = digest.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        // Beyond every number that a call's child can have.
        let spawn = (head >> 2) | (1 << 62);
        let grants: Vec<Grant> = hook
            .grants
            .iter()
            .map(|pattern| Grant { pattern: pattern.clone(), net: Vec::new(), write: Vec::new() })
            .collect();
        let terms = Terms { unsettled: Vec::new(), sharing: 1, keep_back: 0, grants };
        let made = self.make_child(parent, spawn, start, terms).await.map_err(|error| error.to_string())??;
        let (result, _) = self.result_of_child(parent, &made.thread).await.map_err(|error| error.to_string())?;
        if !result.success {
            let why = result.error.map(|error| error.message).unwrap_or_default();
            return Ok(ToolOutcome::error(format!("`{}` ended in {}: {why}", result.directive, result.status.word())));
        }
        let text = result.result.map_or(Value::Null, Value::String);
        Ok(ToolOutcome::ok(result.outputs.map_or(text, Value::Object)))
    }

    /// The result of a child and what it cost, however far it has come.
    async fn result_of_child(
        self: &Arc<Self>,
        parent: &Embedded,
        thread: &ThreadId,
    ) -> Result<(RunResult, Cost), DriveError> {
        if let Some(running) = self.running(thread) {
            return self.with_cost(thread, running.result().await).await;
        }
        let id = thread.clone();
        let row = self.read(move |registry| registry.thread(&id)).await?;
        if row.as_ref().is_some_and(|row| row.status.is_over()) {
            if let Some(next) = row.and_then(|row| row.continued_by) {
                return Box::pin(self.result_of_child(parent, &next)).await;
            }
            let (threads, id) = (self.threads(), thread.clone());
            let events = blocking(move || Ok(threads.transcript(&id)?)).await?;
            let lost = || RunResult { thread_id: thread.to_string(), ..RunResult::lost("the child never began") };
            let result = result_of(thread, &events).unwrap_or_else(lost);
            return self.with_cost(thread, result).await;
        }
        if let Some(running) = self.recover(thread, Arc::clone(&parent.outlet)).await? {
            return self.with_cost(thread, running.result().await).await;
        }
        let lost = RunResult { thread_id: thread.to_string(), ..RunResult::lost("the child never began") };
        Ok((lost, Cost::default()))
    }

    /// Cost as the rows of the child and of what went on from it say.
    async fn with_cost(&self, first: &ThreadId, result: RunResult) -> Result<(RunResult, Cost), DriveError> {
        let mut cost = Cost::default();
        let mut next = Some(first.clone());
        while let Some(id) = next.take() {
            let of = id.clone();
            let Some(row) = self.read(move |registry| registry.thread(&of)).await? else { break };
            cost.turns += row.cost.turns;
            cost.input_tokens += row.cost.input_tokens;
            cost.output_tokens += row.cost.output_tokens;
            cost.cached_tokens += row.cost.cached_tokens;
            cost.spend = cost.spend.saturating_add(row.cost.spend);
            next = row.continued_by.filter(|by| *by != id);
        }
        Ok((result, cost))
    }

    /// Compiles, reserves, begins.
    async fn make_child(
        self: &Arc<Self>,
        parent: &Embedded,
        spawn: u64,
        start: ChildStart,
        terms: Terms,
    ) -> Result<Result<Made, String>, DriveError> {
        let id = parent.id.clone();
        let known = self.read(move |registry| registry.child(&id, spawn)).await?;
        if let Some(thread) = &known
            && self.has_record(thread).await?
        {
            let spend = self.account_of(thread).await?.unwrap_or(0);
            return Ok(Ok(Made { thread: thread.clone(), spend }));
        }
        let limits = parent.launch.limits;
        let request = request(parent, limits, start);
        let compiled = self.with_world(move |world| {
            let checked = compile(world, &request);
            checked.value.ok_or_else(|| complaint(&checked.diagnostics.iter().collect::<Vec<_>>()))
        });
        let compilation = match compiled.await? {
            Ok(compilation) => compilation,
            Err(reason) => return Ok(Err(reason)),
        };
        let id = match known {
            Some(id) => id,
            None => self.allocate(&compilation.plan).await?,
        };
        let grants = terms.grants.clone();
        let spend = match self.set_aside(parent, spawn, &id, &compilation, terms).await? {
            Ok((thread, spend)) if thread == id => spend,
            // Somebody was faster with the same spawn: that one is the child.
            Ok((thread, spend)) => {
                let engine = Arc::clone(self);
                blocking(move || Ok(engine.ids.give_back(&id)?)).await?;
                return Ok(Ok(Made { thread, spend }));
            }
            Err(reason) => return Ok(Err(reason)),
        };
        let beginning = beginning(parent, spawn, &compilation, spend, &grants)?;
        let running: Running = self.begin(id.clone(), beginning, false).await?;
        drop(running);
        Ok(Ok(Made { thread: id, spend }))
    }

    /// The row of the child and its money, in one commit.
    async fn set_aside(
        self: &Arc<Self>,
        parent: &Embedded,
        spawn: u64,
        id: &ThreadId,
        compilation: &Compilation,
        terms: Terms,
    ) -> Result<Result<(ThreadId, u64), String>, DriveError> {
        let plan = &compilation.plan;
        let named = compilation.names_spend().then_some(plan.limits.spend);
        let mut row = ThreadRow::new(id.clone(), plan.directive.as_str(), self.clock.now());
        row.owner = Some(self.owner.id().clone());
        row.root = ThreadId::parse(&parent.launch.root).map_err(|e| DriveError::Plan(e.reason))?;
        row.plan_id = Some(compilation.plan_id.clone());
        // What was set aside before a crash is answered again, however little is left by now.
        let again = self.account_of(id).await?.is_some();
        let left = self.left_for_child(&parent.id, &terms).await?;
        let share = plan.limits.spend.min(left / terms.sharing);
        if !again && named.is_none() && share == 0 && plan.model.prices.is_some() {
            return Ok(Err("spend_exceeded: nothing is left for a child".into()));
        }
        let mut changes = parent.settlements(&terms.unsettled);
        if terms.keep_back > 0 {
            changes.push(Change::Ledger(LedgerStep {
                thread: parent.id.clone(),
                step: Step::Other(format!("keep.{spawn}")),
                operation: Operation::KeepBack {
                    thread: parent.id.to_string(),
                    amount: Nanos::from_u64(terms.keep_back),
                },
            }));
        }
        let before = changes.len();
        changes.push(Change::Ledger(LedgerStep::child(&parent.id, spawn, id, named, share)));
        changes.push(Change::Spawn { parent: parent.id.clone(), spawn, child: Box::new(row) });
        let mut answers = self.writer.commit(changes).await?.into_iter().skip(before);
        let spend = match answers.next() {
            Some(Answered::Ledger(LedgerAnswer::Reserved { amount })) => amount.to_u64(),
            Some(Answered::Ledger(LedgerAnswer::Refused { refusal })) => {
                return Ok(Err(format!("spend_exceeded: no money could be set aside for the child: {refusal}")));
            }
            Some(_) | None => plan.limits.spend,
        };
        let thread = match answers.next() {
            Some(Answered::Child(thread)) => thread,
            Some(_) | None => id.clone(),
        };
        Ok(Ok((thread, spend)))
    }

    /// What a thread can give away once everything it owes is booked.
    async fn left_for_child(&self, parent: &ThreadId, terms: &Terms) -> Result<u64, DriveError> {
        let id = parent.clone();
        let Some(account) = self.read(move |registry| registry.account(&id)).await? else { return Ok(0) };
        let mut left = account.remaining().to_u64();
        for settled in &terms.unsettled {
            let issued = account.issued(&format!("{}.{}", settled.turn, settled.attempt)).to_u64();
            left = left.saturating_add(issued.saturating_sub(settled.amount));
        }
        Ok(left.saturating_sub(terms.keep_back))
    }

    async fn has_record(&self, thread: &ThreadId) -> Result<bool, DriveError> {
        let (disk, path) = (Arc::clone(&self.disk), layout::transcript(thread));
        blocking(move || Ok(disk.exists(&path).map_err(StoreError::io("look for", &path))?)).await
    }

    /// What was set aside for a thread.
    async fn account_of(&self, thread: &ThreadId) -> Result<Option<u64>, DriveError> {
        let id = thread.clone();
        let account = self.read(move |registry| registry.account(&id)).await?;
        Ok(account.map(|account| account.reserved().to_u64()))
    }
}

/// What is compiled for a child.
fn request(parent: &Embedded, limits: PlanLimits, start: ChildStart) -> Request {
    let overrides = start.limit_overrides.into_iter().map(|(name, value)| (name, Written::Json(value)));
    Request {
        directive: start.directive,
        inputs: Some(start.inputs),
        limits: overrides.collect(),
        model: ModelOverride { model: start.model, provider: None },
        parent: Some(Parent { limits, capabilities: parent.plan.capabilities.clone() }),
    }
}

fn beginning(
    parent: &Embedded,
    spawn: u64,
    compilation: &Compilation,
    spend: u64,
    extra: &[Grant],
) -> Result<Beginning, DriveError> {
    let plan = Arc::new(compilation.plan.clone());
    // What a hook grants is granted beside the thread's own set, for what the hook starts alone.
    let mut chain = parent.launch.grants.clone();
    for set in &mut chain {
        set.extend(extra.iter().cloned());
    }
    if plan.capabilities.declared {
        chain.insert(0, plan.capabilities.grants.clone());
    }
    let root = ThreadId::parse(&parent.launch.root).map_err(|e| DriveError::Plan(e.reason))?;
    let link = ParentLink { thread_id: parent.id.to_string(), spawn };
    Ok(Beginning {
        plan_id: compilation.plan_id.clone(),
        inputs: plan.interface.values.clone(),
        origin: Origin::Child,
        limits: PlanLimits { spend, ..plan.limits },
        grants: chain,
        parent: Some(Above { link, root, limits: parent.launch.limits }),
        continues: None,
        history: Vec::new(),
        outlet: Arc::clone(&parent.outlet),
        plan,
    })
}

/// Why a directive does not compile, for the model.
fn complaint(diagnostics: &[&Diagnostic]) -> String {
    let errors: Vec<String> =
        diagnostics.iter().filter(|d| d.is_error()).take(3).map(|d| format!("{}: {}", d.code(), d.message())).collect();
    format!("the directive does not compile: {}", errors.join("; "))
}
