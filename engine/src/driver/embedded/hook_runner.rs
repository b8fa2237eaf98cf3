//! Runs the actions of hooks, through the same gate and the same code as the thread's own calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rye_compiler::hook::HookAction;
use rye_compiler::primary::{FetchRequest, ItemType, SignRequest};
use rye_compiler::semantics::limits::spawn_limit_exceeded;
use rye_compiler::world::ItemKind;
use rye_grammar::ItemId;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::EmbeddedDriver;
use crate::BoxFuture;
use crate::event::StateSet;
use crate::hooks::{self, HookCallResult, HookRunner, ImageSource, ReadyHook};
use crate::image::{ImageRef, check_accepted};
use crate::machine::HookRun;
use crate::machine::gate::{ChildStart, GatedCall, HookCall, authorize_hook_call, is_system_tool};
use crate::machine::state_store::{self, STATE_TOOL};
use crate::secrets::mask_value;
use crate::tool::ToolOutcome;
use crate::tool::cancellation::CancellationToken;
use crate::tool::process::SharedOutput;

/// A runner of hook actions, for one hook point of one thread.
pub(super) struct EmbeddedHookRunner<'a> {
    thread: &'a EmbeddedDriver,
    /// The values of the thread's store, including writes by earlier hooks of the same hook point.
    store: Mutex<BTreeMap<String, Value>>,
    kept: Mutex<Vec<StateSet>>,
    /// Cancelled if the thread is cancelled while the hooks run.
    halt: CancellationToken,
    started: Instant,
    /// The remaining duration of the thread when the hooks started, in milliseconds.
    remaining_ms: u64,
}

impl<'a> EmbeddedHookRunner<'a> {
    pub fn new(thread: &'a EmbeddedDriver, run: &HookRun, halt: CancellationToken) -> Self {
        Self {
            thread,
            store: Mutex::new((*run.store).clone()),
            kept: Mutex::default(),
            halt,
            started: Instant::now(),
            remaining_ms: run.remaining_ms,
        }
    }

    /// Returns the rest of the thread's duration limit in milliseconds. Earlier hooks of the same hook point may have
    /// used part of it.
    fn remaining_ms(&self) -> u64 {
        let used = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.remaining_ms.saturating_sub(used)
    }

    /// Returns true if the hooks of this hook point have used up the rest of the thread's duration limit.
    pub fn is_overdue(&self) -> bool {
        self.remaining_ms() == 0
    }

    /// Removes the recorded writes to the thread's state from the runner and returns them.
    pub fn take_writes(&self) -> Vec<StateSet> {
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn keep(&self, parameters: &Value) -> Result<ToolOutcome, String> {
        let requested = state_store::parse_state_op(parameters)?;
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let (result, set) = state_store::apply_state_op(&store, requested)?;
        if let Some(set) = set {
            state_store::apply_write(&mut store, &set);
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(set);
        }
        Ok(ToolOutcome::ok(result))
    }
}

impl HookRunner for EmbeddedHookRunner<'_> {
    fn run_action<'a>(
        &'a self,
        hook: &'a ReadyHook,
        action: HookAction,
        run: &'a HookRun,
        started: u64,
    ) -> BoxFuture<'a, Result<HookCallResult, String>> {
        Box::pin(async move {
            let call = call(action)?;
            let requested = HookCall { call, turn: run.turn, remaining_ms: self.remaining_ms() };
            let thread = self.thread;
            let allowed =
                authorize_hook_call(&thread.plan, &thread.narrowed_launch(), &hook.hook, hook.id_is_static, requested)?;
            if let GatedCall::Directive(start) = &allowed.call {
                let spawned = run.bounds.spawned.saturating_add(started);
                if let Some(exceeded) = spawn_limit_exceeded(&run.bounds.limits.into(), spawned) {
                    return Err(exceeded.to_string());
                }
                return thread.engine.hook_child(thread, &hook.hook, start.clone(), run, self.remaining_ms()).await;
            }
            if let GatedCall::Tool { item_id, parameters } = &allowed.call
                && is_system_tool(&thread.plan, item_id, STATE_TOOL)
            {
                return self.keep(parameters).map(HookCallResult::from);
            }
            let mut outcome = thread
                .dispatch(allowed, Some(&hook.hook), &SharedOutput::default(), &self.halt, None)
                .await
                .map_err(|error| error.to_string())?;
            // Results of hooks enter prompts and transcripts without passing the guard, so secrets are masked here.
            mask_value(&mut outcome.content);
            Ok(HookCallResult::from(outcome))
        })
    }

    fn read_images<'a>(
        &'a self,
        hook: &'a ReadyHook,
        images: Vec<ImageSource>,
        run: &'a HookRun,
    ) -> BoxFuture<'a, Result<Vec<ImageRef>, String>> {
        Box::pin(async move {
            let thread = self.thread;
            if let Some(call) = hooks::read_call(&images) {
                let requested = HookCall { call, turn: run.turn, remaining_ms: self.remaining_ms() };
                // A program may have returned the path, so the hook needs the capability of the read tool.
                authorize_hook_call(&thread.plan, &thread.narrowed_launch(), &hook.hook, false, requested)?;
            }
            let (project, objects) = (thread.engine.project.clone(), Arc::clone(&thread.engine.objects));
            let loading = tokio::task::spawn_blocking(move || hooks::load(images, &project, &objects));
            let images = loading.await.map_err(|error| error.to_string())??;
            check_accepted(&thread.plan.model, &images).map_err(|error| error.to_string())?;
            Ok(images)
        })
    }
}

/// Converts a hook's action, whose placeholders are filled, to a call. Fails if the item id is invalid, or if a hook
/// cannot use such an item in this way.
fn call(action: HookAction) -> Result<GatedCall, String> {
    let id = |text: &str| ItemId::parse(text).map_err(|invalid| invalid.reason);
    if let HookAction::Execute { item_type, item_id, params } = action {
        let item_id = id(&item_id)?;
        return match item_type {
            ItemKind::Tool => Ok(GatedCall::Tool { item_id, parameters: params }),
            ItemKind::Knowledge => Ok(GatedCall::Knowledge { item_id }),
            ItemKind::Directive => {
                let inputs = if let Value::Object(map) = params { map } else { Map::new() };
                let (model, limit_overrides, detached, tool) = (None, Map::new(), false, false);
                let directive = item_id;
                Ok(GatedCall::Directive(ChildStart { directive, inputs, model, limit_overrides, detached, tool }))
            }
            ItemKind::Config | ItemKind::Prompt | ItemKind::Skill => {
                Err(format!("a hook cannot execute an item of type `{}`", item_type.as_str()))
            }
        };
    }
    if let HookAction::Fetch { item_type, item_id, .. } = action {
        let (item_type, item_id) = (kind(item_type)?, id(&item_id)?);
        return Ok(GatedCall::Fetch(FetchRequest::Item { item_type, item_id, offset: 0, limit: None }));
    }
    if let HookAction::Sign { item_type, item_id } = action {
        return Ok(GatedCall::Sign(SignRequest { item_type: kind(item_type)?, item_id: id(&item_id)? }));
    }
    Err("this action starts nothing".into())
}

fn kind(kind: ItemKind) -> Result<ItemType, String> {
    match kind {
        ItemKind::Tool => Ok(ItemType::Tool),
        ItemKind::Directive => Ok(ItemType::Directive),
        ItemKind::Knowledge => Ok(ItemType::Knowledge),
        ItemKind::Config | ItemKind::Prompt | ItemKind::Skill => {
            Err(format!("a hook cannot fetch or sign an item of type `{}`", kind.as_str()))
        }
    }
}
