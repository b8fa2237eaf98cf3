//! Children: directives that a thread calls, or that one of its hooks starts, as threads of the same tree and process.
//! This module compiles and stores the plans of children. The parent bounds the money, limits and capabilities of its
//! children.

use crate::thread::FIRST_HOOK_SPAWN;
use std::collections::BTreeMap;
use std::sync::Arc;

use rye_compiler::compile::{Compilation, CompileRequest, SpawnParent};
use rye_compiler::diagnostics::Diagnostic;
use rye_compiler::hook::PlannedHook;
use rye_compiler::model::ModelOverride;
use rye_compiler::plan::{Grant, Node, Plan, PlanLimits, PlanMode};
use rye_compiler::semantics::limits::LimitValue;
use rye_grammar::ItemId;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{ParentContext, RowsToWrite, ThreadInit, stored_plan};
use crate::context::RecoveryGuard;
use crate::context::{EngineContext, RunningThread};
use crate::driver::embedded::{EmbeddedDriver, HookChildGuard};
use crate::error::DriveError;
use crate::event::{LimitHit, Opened, ParentLink, Settled, ThreadHead, ThreadOrigin};
use crate::hooks::HookCallResult;
use crate::live::EventSink;
use crate::machine::effect::{AwaitedChild, HookBounds, SpawnChild};
use crate::machine::gate::{Allowed, ChildStart};
use crate::machine::retained_messages::InheritedMessages;
use crate::machine::{Fact, HookChild, HookRun, SpawnResult};
use crate::message::ToolCall;
use crate::parent_thread::spawn_limits;
use crate::session::verified::VerifiedTranscript;
use crate::store::{StoreError, ThreadRow, layout};
use crate::thread::{Cost, RunResult, Status};
use crate::thread_count::blocking;
use crate::thread_id::ThreadId;
use crate::tool::ToolOutcome;

mod money;
mod start;

/// A child that a call or a hook requests.
pub(super) struct ChildRequest {
    pub spawn: u64,
    pub start: ChildStart,
    /// The tool call that the child runs, and the capability that allows the call; `None` if the child runs a
    /// directive.
    pub call: Option<(ToolCall, String)>,
}

/// The money, the duration and the grants that bound new children.
pub(super) struct ChildFunding {
    /// Settlements of the parent that are not booked yet. They are booked before the children reserve money, because
    /// the account holds the worst-case bounds of the settled attempts until then.
    pub unsettled: Vec<Settled>,
    /// Number of children that share the available spend, at least 1. Counts every child that the group of calls has
    /// not created yet.
    pub siblings: u64,
    /// Worst-case cost of one more turn of the parent, in nano-dollars. The children cannot reserve this amount.
    pub turn_reserve: u64,
    /// Nano-dollars that the parent's prompt may still spend; `None` if only the account bounds the children.
    pub prompt_spend: Option<u64>,
    /// Grants of the hook that starts the child; empty if a call of the model starts it.
    pub grants: Vec<Grant>,
    /// The remaining duration of the parent in milliseconds, which bounds the duration limit of a child that runs a
    /// directive; `None` for no such bound.
    pub remaining_ms: Option<u64>,
}

/// A child that has a registry row and a reservation.
#[derive(Debug, Clone)]
pub(super) struct CreatedChild {
    pub thread: ThreadId,
    pub spend: u64,
    /// True if the child has started, or if another task or process recovers it.
    pub started: bool,
}

/// The reason why a child was refused, as a message for the model.
#[derive(Debug, Clone)]
pub(super) struct ChildRefusal {
    pub reason: String,
    pub hit: Option<Box<LimitHit>>,
}

/// The plan with which a child starts.
pub(super) struct ChildPlan {
    pub plan: Arc<Plan>,
    pub plan_id: String,
    /// The amount that the call requests for the child, in nano-dollars; `None` if it requests no amount.
    pub requested_spend: Option<u64>,
    /// The tool call that the child runs instead of a directive.
    pub call: Option<Box<ToolCall>>,
}

/// The children of one group of calls, with their plans and thread ids.
struct PlannedChildren {
    children: Vec<IdentifiedChild>,
    /// The results of the requests that start no new child, by spawn number: the child was started earlier, or the
    /// request is refused.
    results: Vec<(u64, Result<CreatedChild, ChildRefusal>)>,
    /// Guards that keep other tasks of this process from recovering a child before it runs. Control messages that arrive
    /// before the child runs are stored for it.
    guards: Vec<RecoveryGuard>,
}

/// A child to start, with its plan and its thread id.
pub(super) struct IdentifiedChild {
    pub spawn: u64,
    pub id: ThreadId,
    /// True if the child already has a registry row because the parent's process crashed before the child started.
    pub known: bool,
    pub planned: ChildPlan,
}

impl From<String> for ChildRefusal {
    fn from(reason: String) -> Self {
        Self { reason, hit: None }
    }
}

impl ChildRefusal {
    pub fn limit(code: &str, value: u64, most: u64) -> Self {
        let hit = LimitHit {
            at: Node::Tools,
            limit_code: code.into(),
            current_value: value.into(),
            current_max: most.into(),
            scope: None,
        };
        Self { reason: hit.describe(), hit: Some(Box::new(hit)) }
    }
}

impl EngineContext {
    /// Starts the children that a group of calls requests, and returns the result of each request. A child that was
    /// created before a crash is found by its spawn number and not created again.
    pub(crate) async fn spawn(
        self: &Arc<Self>,
        parent: &EmbeddedDriver,
        wanted: &[Allowed<Box<SpawnChild>>],
        unsettled: &[Settled],
        remaining_ms: Option<u64>,
    ) -> Result<Fact, DriveError> {
        let mut list = Vec::with_capacity(wanted.len());
        let mut spawned = Vec::with_capacity(wanted.len());
        for one in wanted {
            let child = &one.child;
            let Ok(directive) = ItemId::parse(&child.directive) else {
                let reason = format!("`{}` is not a valid directive id", child.directive);
                spawned.push(SpawnResult::Refused { spawn: child.spawn, reason, hit: None });
                continue;
            };
            let start = ChildStart {
                directive,
                inputs: child.inputs.clone(),
                model: child.model.clone(),
                limit_overrides: child.limit_overrides.clone(),
                detached: child.detached,
                tool: child.tool,
            };
            let call = child.call().map(|call| (call, one.capability().to_owned()));
            list.push(ChildRequest { spawn: child.spawn, start, call });
        }
        let terms = ChildFunding {
            unsettled: unsettled.to_vec(),
            siblings: wanted.first().map_or(1, |one| one.siblings.max(1)),
            turn_reserve: wanted.first().map_or(0, |one| one.turn_reserve),
            prompt_spend: wanted.first().and_then(|one| one.prompt_spend),
            grants: Vec::new(),
            remaining_ms,
        };
        let pid = std::process::id();
        let detached: Vec<u64> = list.iter().filter(|one| one.start.detached).map(|one| one.spawn).collect();
        let planned = self.plan_children(parent, list).await?;
        for (spawn, made) in self.start_children(parent, planned, terms).await? {
            spawned.push(match made {
                Ok(CreatedChild { thread, spend, .. }) => {
                    if detached.contains(&spawn) {
                        self.watch_detached(&parent.id, spawn, &thread, &parent.sink);
                    }
                    SpawnResult::Made { spawn, thread_id: thread.to_string(), spend, pid }
                }
                Err(ChildRefusal { reason, hit }) => SpawnResult::Refused { spawn, reason, hit: hit.map(|hit| *hit) },
            });
        }
        Ok(Fact::Spawned(spawned))
    }

    /// Waits for a child. If this process does not run the child, recovers the child first.
    pub(crate) async fn await_child(
        self: &Arc<Self>,
        parent: &EmbeddedDriver,
        child: AwaitedChild,
    ) -> Result<Fact, DriveError> {
        let thread = ThreadId::parse(&child.thread_id).map_err(|e| DriveError::Plan(e.reason))?;
        let (result, cost) = self.child_result(&thread, &parent.sink).await?;
        let status = result.status;
        let outcome = ToolOutcome {
            is_error: !result.success,
            content: serde_json::to_value(&result).unwrap_or(Value::Null),
            details: Value::Null,
            was_refused: false,
        };
        let answer = Some(Box::new(parent.guarded(outcome).await?));
        Ok(Fact::ChildEnded { spawn: child.spawn, thread_id: result.thread_id, status, cost, answer })
    }

    /// Returns the result of a child. If the transcript of the child is damaged, the result is an error, and the parent
    /// continues.
    async fn child_result(
        self: &Arc<Self>,
        child: &ThreadId,
        sink: &Arc<EventSink>,
    ) -> Result<(RunResult, Cost), DriveError> {
        match self.result_of_child(child, sink).await {
            Err(error) if error.is_transcript_fault() => {
                Ok((Self::unrecoverable_result(child, &error), Cost::default()))
            }
            ended => ended,
        }
    }

    /// Starts a directive for a hook and waits for its end. If the hook runs again after a crash, the child of the
    /// first run is found, and no second child is started. The error is the reason why the child was not started or has
    /// no result.
    pub(crate) async fn hook_child(
        self: &Arc<Self>,
        parent: &EmbeddedDriver,
        hook: &PlannedHook,
        start: ChildStart,
        run: &HookRun,
        remaining_ms: u64,
    ) -> Result<HookCallResult, String> {
        let subject = run.subject.as_deref().unwrap_or_default();
        let digest = Sha256::digest(format!("{:?} {} {subject}.{}", run.point, run.nth, hook.id).as_bytes());
        let head = digest.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let spawn = (head >> 12) | FIRST_HOOK_SPAWN;
        let grants: Vec<Grant> = hook
            .grants
            .iter()
            .map(|pattern| Grant { pattern: pattern.clone(), net: Vec::new(), write: Vec::new() })
            .collect();
        let HookBounds { turn_reserve, unsettled, prompt_spend, .. } = run.bounds.clone();
        let remaining_ms = Some(remaining_ms);
        let terms = ChildFunding { unsettled, siblings: 1, turn_reserve, prompt_spend, grants, remaining_ms };
        let planned = self.plan_children(parent, vec![ChildRequest { spawn, start, call: None }]).await;
        let planned = planned.map_err(|error| error.to_string())?;
        // Registered before the start, so that a cancellation or kill during the start reaches the child.
        let _starting: Vec<HookChildGuard<'_>> =
            planned.children.iter().map(|child| parent.register_hook_child(&child.id)).collect();
        let made = self.start_children(parent, planned, terms).await;
        let made = match made.map_err(|error| error.to_string())?.into_iter().next() {
            Some((_, Ok(made))) => made,
            Some((_, Err(refused))) => return Err(refused.reason),
            None => return Err("the child was not created".into()),
        };
        let _living = parent.register_hook_child(&made.thread);
        let ended = self.child_result(&made.thread, &parent.sink).await;
        let (result, cost) = ended.map_err(|error| error.to_string())?;
        let (thread_id, spend, status) = (made.thread.to_string(), made.spend, result.status);
        let child = Some(HookChild { spawn, thread_id, spend, status, cost });
        if !result.success {
            let why = result.error.map(|error| error.message).unwrap_or_default();
            let outcome = ToolOutcome::error(format!(
                "`{}` ended with the status `{}`: {why}",
                result.directive,
                status.as_str()
            ));
            return Ok(HookCallResult { outcome, child });
        }
        let text = result.result.map_or(Value::Null, Value::from);
        Ok(HookCallResult { outcome: ToolOutcome::ok(result.outputs.map_or(text, Value::Object)), child })
    }

    /// Compiles the plans of a group of children, and allocates ids for the children that have none. Reserves no money
    /// yet.
    async fn plan_children(
        self: &Arc<Self>,
        parent: &EmbeddedDriver,
        wanted: Vec<ChildRequest>,
    ) -> Result<PlannedChildren, DriveError> {
        let spawns: Vec<u64> = wanted.iter().map(|one| one.spawn).collect();
        let known = self.known_children(&parent.id, &spawns).await?;
        let mut results: Vec<(u64, Result<CreatedChild, ChildRefusal>)> = Vec::with_capacity(wanted.len());
        let (mut fresh, mut names) = (Vec::new(), Vec::new());
        let mut guards = Vec::new();
        for (one, known) in wanted.into_iter().zip(known) {
            let name = match known {
                Some(made) if made.started => {
                    results.push((one.spawn, Ok(made)));
                    continue;
                }
                Some(made) => {
                    let Some(guard) = self.reserve_recovery(&made.thread) else {
                        results.push((one.spawn, Ok(CreatedChild { started: true, ..made })));
                        continue;
                    };
                    guards.push(guard);
                    Some(made.thread)
                }
                None => None,
            };
            names.push(name);
            fresh.push(one);
        }
        let mut planned = Vec::with_capacity(fresh.len());
        for ((spawn, one), name) in self.plan_all(parent, fresh).await?.into_iter().zip(names) {
            match one {
                Ok(one) => planned.push((spawn, one, name)),
                Err(reason) => {
                    // The parent gets an error, so the row is finalized.
                    if let Some(name) = &name {
                        self.finalize_row(name, Status::Error).await?;
                    }
                    results.push((spawn, Err(reason.into())));
                }
            }
        }
        let children = self.allocate_ids(planned).await?;
        guards.extend(children.iter().filter_map(|child| self.reserve_recovery(&child.id)));
        Ok(PlannedChildren { children, results, guards })
    }

    /// Returns, for each spawn number in `spawns`, the child that the spawn created before a crash; `None` if the spawn
    /// created no child.
    async fn known_children(
        self: &Arc<Self>,
        parent: &ThreadId,
        spawns: &[u64],
    ) -> Result<Vec<Option<CreatedChild>>, DriveError> {
        let (engine, parent, spawns) = (Arc::clone(self), parent.clone(), spawns.to_vec());
        blocking(move || {
            let registry = engine.writer.registry();
            let known = |spawn: u64| -> Result<Option<CreatedChild>, DriveError> {
                let Some(thread) = registry.child(&parent, spawn)? else { return Ok(None) };
                let path = layout::transcript(&thread);
                let started = engine.disk.exists(&path).map_err(StoreError::io("access", &path))?;
                // A handoff of the child reduces the reservation in the ledger, so the amount at the start is read from
                // the child's first line.
                let events = engine.threads().transcript(&thread).unwrap_or_default();
                let account = || registry.account(&thread).map(|one| one.map_or(0, |one| one.reserved().to_u64()));
                let spend = ThreadHead::of(&events).opened.map_or_else(account, |opened| Ok(opened.limits.spend))?;
                Ok(Some(CreatedChild { thread, spend, started }))
            };
            spawns.into_iter().map(known).collect()
        })
        .await
    }

    /// Plans the requested children. Compiles all directives from one state of the world. For a child that runs a tool,
    /// checks the tool and its parameters, and derives the plan from the parent's plan. Returns, in the order of the
    /// requests, each spawn number with the plan or with the reason of a refusal.
    async fn plan_all(
        self: &Arc<Self>,
        parent: &EmbeddedDriver,
        wanted: Vec<ChildRequest>,
    ) -> Result<Vec<(u64, Result<ChildPlan, String>)>, DriveError> {
        let (mut planned, mut directives) = (BTreeMap::new(), Vec::new());
        let order: Vec<u64> = wanted.iter().map(|one| one.spawn).collect();
        for one in wanted {
            match &one.call {
                Some((call, capability)) => {
                    let parameters = Value::Object(one.start.inputs.clone());
                    let ready = parent.check_ready(&one.start.directive, &parameters, capability).await?;
                    planned.insert(one.spawn, ready.and_then(|()| self.plan_of_call(parent, call)));
                }
                None => directives.push(one),
            }
        }
        for (spawn, compiled) in self.compile_all(parent, directives).await? {
            let of_directive = |compiled: Arc<Compilation>| ChildPlan {
                plan: self.plans.get_or_insert(&compiled.plan_id, || compiled.plan.clone()),
                plan_id: compiled.plan_id.clone(),
                requested_spend: compiled.requested_spend,
                call: None,
            };
            planned.insert(spawn, compiled.map(of_directive));
        }
        Ok(order.into_iter().filter_map(|spawn| planned.remove_entry(&spawn)).collect())
    }

    /// Returns the plan of an asynchronous tool call, which runs in a thread of its own. The requested spend is 0,
    /// because that thread calls no model.
    fn plan_of_call(&self, parent: &EmbeddedDriver, call: &ToolCall) -> Result<ChildPlan, String> {
        let plan = parent.plan.for_call();
        let plan_id = plan.id().map_err(|error| error.to_string())?;
        let plan = self.plans.get_or_insert(&plan_id, || plan);
        Ok(ChildPlan { plan, plan_id, requested_spend: Some(0), call: Some(Box::new(call.clone())) })
    }

    /// Compiles the directives of the requested children, all from one state of the world. Returns the result for each
    /// spawn number; an error is a message for the model.
    async fn compile_all(
        self: &Arc<Self>,
        parent: &EmbeddedDriver,
        wanted: Vec<ChildRequest>,
    ) -> Result<Vec<(u64, Result<Arc<Compilation>, String>)>, DriveError> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let spawns: Vec<u64> = wanted.iter().map(|one| one.spawn).collect();
        let mut starts: Vec<ChildStart> = Vec::new();
        let mut which = Vec::with_capacity(wanted.len());
        for one in wanted {
            // Equal requests share one plan.
            let same = starts.iter().position(|start| *start == one.start);
            which.push(same.unwrap_or(starts.len()));
            if same.is_none() {
                starts.push(one.start);
            }
        }
        let requests: Vec<CompileRequest> = starts
            .into_iter()
            .map(|start| request(parent, spawn_limits(&parent.launch, &parent.plan), start))
            .collect();
        let engine = Arc::clone(self);
        let compiled = self.with_world(move |world| {
            let one = |request: &CompileRequest| {
                let checked = (engine.compile)(world, request);
                let compile_errors = || render_compile_errors(&checked.diagnostics.iter().collect::<Vec<_>>());
                let compiled = checked.value.map(Arc::new).ok_or_else(compile_errors)?;
                let admitted = engine.check_requirements(&compiled.plan.directive, compiled.trust_requirements.clone());
                match admitted.and_then(|()| engine.check_plan(&compiled.plan)) {
                    Ok(()) => Ok(compiled),
                    Err(DriveError::Refused { reason }) => Err(reason),
                    Err(untrusted @ DriveError::Untrusted { .. }) => {
                        Err(format!("{untrusted}; `rye trust --list` shows the user what needs trust"))
                    }
                    Err(error) => Err(error.to_string()),
                }
            };
            let made: Vec<Result<Arc<Compilation>, String>> = requests.iter().map(one).collect();
            Ok(which.into_iter().filter_map(|n| made.get(n).cloned()).collect::<Vec<_>>())
        });
        Ok(match compiled.await? {
            Ok(compiled) => spawns.into_iter().zip(compiled).collect(),
            Err(reason) => spawns.into_iter().map(|spawn| (spawn, Err(reason.clone()))).collect(),
        })
    }

    /// Allocates an id for each child that has none yet.
    async fn allocate_ids(
        self: &Arc<Self>,
        planned: Vec<(u64, ChildPlan, Option<ThreadId>)>,
    ) -> Result<Vec<IdentifiedChild>, DriveError> {
        let engine = Arc::clone(self);
        let name = move || {
            let nameless = planned.iter().filter(|(_, _, name)| name.is_none());
            // The id of a tool run is not derived from a directive, because the run has none.
            let of = |planned: &ChildPlan| planned.call.is_none().then(|| planned.plan.directive.clone());
            let after: Vec<Option<ItemId>> = nameless.map(|(_, planned, _)| of(planned)).collect();
            let mut ids = engine.ids.allocate_all(&after, engine.clock.now())?.into_iter();
            let named = |(spawn, planned, name): (u64, ChildPlan, Option<ThreadId>)| {
                let known = name.is_some();
                name.or_else(|| ids.next()).map(|id| IdentifiedChild { spawn, id, known, planned })
            };
            Ok(planned.into_iter().filter_map(named).collect())
        };
        blocking(name).await
    }

    /// Starts a child that is registered but has no transcript yet. The start parameters come from the child's registry
    /// row and plan and from the parent's transcript. Returns `None` if no call started the child.
    pub(super) async fn restart_child(
        self: &Arc<Self>,
        row: ThreadRow,
        sink: Arc<EventSink>,
    ) -> Result<Option<RunningThread>, DriveError> {
        let ThreadRow { id, parent: Some(parent), spawn: Some(spawn), plan_id: Some(plan_id), .. } = row else {
            return Ok(None);
        };
        if spawn >= FIRST_HOOK_SPAWN {
            return Ok(None);
        }
        let (engine, child, of, above) = (Arc::clone(self), id.clone(), plan_id.clone(), parent.clone());
        let read = move || {
            let unknown = || StoreError::UnknownThread { thread: above.to_string() };
            let VerifiedTranscript { events, transcript_trust, .. } =
                engine.read_verified(&above)?.ok_or_else(unknown)?;
            if let Some(plan_id) = ThreadHead::of(&events).plan_id {
                engine.check_launch(&above, &events, &stored_plan(&engine, plan_id)?, transcript_trust)?;
            }
            let account = engine.writer.registry().account(&child)?;
            let plan = stored_plan(&engine, &of)?;
            engine.verify_stored_plan(&plan)?;
            let call = events.iter().find_map(|event| event.body.child_intent(spawn)?.call());
            Ok((ThreadHead::of(&events).opened.cloned(), plan, account, call))
        };
        let (Some(launch), plan, account, call) = blocking(read).await? else { return Ok(None) };
        let plan = self.plans.get_or_insert(&plan_id, || plan);
        let spend = account.map_or(0, |account| account.reserved().to_u64());
        let link = ParentLink { thread_id: parent.to_string(), spawn };
        let planned = ChildPlan { plan, plan_id, requested_spend: None, call: call.map(Box::new) };
        let init = child_init(&launch, link, planned, spend, &[], sink)?;
        self.start_thread(id, init, RowsToWrite::Existing).await.map(Some)
    }

    /// Builds the result of a thread that never started.
    pub(super) fn never_started_result(thread: &ThreadId) -> RunResult {
        RunResult { thread_id: thread.to_string(), ..RunResult::engine_failure("the child never started") }
    }
}

/// Builds the compile request for a child.
fn request(parent: &EmbeddedDriver, limits: PlanLimits, start: ChildStart) -> CompileRequest {
    let overrides = start.limit_overrides.into_iter().map(|(name, value)| (name, LimitValue::Json(value)));
    CompileRequest {
        directive: start.directive,
        inputs: Some(start.inputs),
        limits: overrides.collect(),
        session_limits: Vec::new(),
        appended: None,
        model: ModelOverride { model: start.model, ..ModelOverride::default() },
        parent: Some(SpawnParent { limits, capabilities: parent.plan.capabilities.clone() }),
        mode: PlanMode::Run,
        omitted: Vec::new(),
        route: None,
    }
}

/// Builds the start parameters of a child from the event `opened` of its parent, from the plan of the child, and from
/// the money reserved for the child.
fn child_init(
    above: &Opened,
    link: ParentLink,
    ChildPlan { plan, plan_id, call, .. }: ChildPlan,
    spend: u64,
    extra: &[Grant],
    sink: Arc<EventSink>,
) -> Result<ThreadInit, DriveError> {
    // A hook's grants extend every set of the chain, only for the child that the hook starts.
    let mut chain = above.grants.clone();
    for set in &mut chain {
        set.extend(extra.iter().cloned());
    }
    // A tool run has the grants of its parent, whose own set is already the first of the chain.
    if plan.capabilities.declared && call.is_none() {
        chain.insert(0, plan.capabilities.grants.clone());
    }
    let root = ThreadId::parse(&above.root).map_err(|e| DriveError::Plan(e.reason))?;
    Ok(ThreadInit {
        plan_id,
        inputs: if call.is_some() { above.inputs.clone() } else { plan.interface.values.clone() },
        origin: ThreadOrigin::Child,
        limits: PlanLimits { spend, ..plan.limits },
        grants: chain,
        parent: Some(ParentContext { link, root, limits: above.limits }),
        continues: None,
        history: InheritedMessages::default(),
        shown: Vec::new(),
        sink,
        queue: None,
        call,
        carried_ms: 0,
        allow_missing_outputs: false,
        is_recovery: false,
        plan,
    })
}

/// Renders the compile errors of a directive, for the model.
fn render_compile_errors(diagnostics: &[&Diagnostic]) -> String {
    let shown = |d: &&Diagnostic| match d.help() {
        Some(help) => format!("{}: {} ({help})", d.code(), d.message()),
        None => format!("{}: {}", d.code(), d.message()),
    };
    let errors: Vec<String> = diagnostics.iter().filter(|d| d.is_error()).take(3).map(shown).collect();
    format!("the directive does not compile: {}", errors.join("; "))
}
