//! The plans of running threads. Threads with the same plan share one copy of the plan. If their inputs are equal too,
//! they also share the compiled hooks. A plan is written to the store once, together with its source files.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rye_compiler::plan::{ContextFileRead, Plan, hex};
use rye_compiler::world::LocatedFile;
use rye_grammar::ItemId;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::context::EngineContext;
use crate::error::DriveError;
use crate::hooks::HookTable;
use crate::store::{ObjectId, Objects, StoreError, sources};

/// The key of compiled hooks: the id of the plan, and the SHA-256 of the inputs that fill the templates of the hooks.
type HookTableKey = (String, [u8; 32]);

/// The plans in use in this process.
#[derive(Debug, Default)]
pub(crate) struct SharedPlans {
    known: Mutex<BTreeMap<String, SharedPlan>>,
    /// A lock that a task holds while it stores a plan, so that plans are stored one after another.
    storing: Mutex<()>,
    hooks: Mutex<BTreeMap<HookTableKey, Weak<HookTable>>>,
}

impl EngineContext {
    /// Stores copies of the source files of a plan. A file that has changed since the plan was compiled is skipped.
    pub(crate) fn store_sources(&self, plan: &Plan) -> Result<(), DriveError> {
        let missing = sources::missing(&*self.disk, plan)?;
        let missing_context = sources::missing_context_files(&*self.disk, plan)?;
        if missing.is_empty() && missing_context.is_empty() {
            return Ok(());
        }
        // If the project cannot be read now, nothing is stored: its files may have changed since the plan was compiled.
        let Ok(world) = (self.world)() else { return Ok(()) };
        for read in missing {
            let Ok(id) = ItemId::parse(&read.id) else { continue };
            let found = world.candidates(read.kind, &id).unwrap_or_default();
            let is_it = |located: &&LocatedFile| {
                Some(located.space) == read.space && Some(hex(&Sha256::digest(&located.bytes))) == read.sha256
            };
            if let Some(located) = found.iter().find(is_it) {
                sources::store_copy(&*self.disk, located)?;
            }
        }
        if !missing_context.is_empty() {
            let found = world.context_files().unwrap_or_default();
            for file in found.iter().filter(|file| missing_context.contains(&&ContextFileRead::of(file))) {
                sources::store_context_copy(&*self.disk, file)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct SharedPlan {
    plan: Weak<Plan>,
    /// True once the plan is among the stored objects.
    stored: bool,
}

impl SharedPlans {
    /// Returns the plan with this id. Calls `make` only if no thread has the plan.
    pub fn get_or_insert(&self, plan_id: &str, make: impl FnOnce() -> Plan) -> Arc<Plan> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = known.get(plan_id).and_then(|known| known.plan.upgrade()) {
            return plan;
        }
        known.retain(|_, known| known.plan.strong_count() > 0);
        let plan = Arc::new(make());
        known.insert(plan_id.to_owned(), SharedPlan { plan: Arc::downgrade(&plan), stored: false });
        plan
    }

    /// Returns the compiled hooks of a plan for these inputs. Compiles the hooks only if no thread uses them already.
    pub fn hooks(&self, plan_id: &str, plan: &Plan, inputs: &Map<String, Value>) -> Result<Arc<HookTable>, DriveError> {
        let inputs_as_json = serde_json::to_vec(inputs).map_err(|e| DriveError::Plan(e.to_string()))?;
        let key = (plan_id.to_owned(), Sha256::digest(inputs_as_json).into());
        let mut hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = hooks.get(&key).and_then(Weak::upgrade) {
            return Ok(table);
        }
        let table = HookTable::compile(plan, inputs).map_err(|e| DriveError::Plan(e.to_string()))?;
        let table = Arc::new(table);
        hooks.retain(|_, table| table.strong_count() > 0);
        hooks.insert(key, Arc::downgrade(&table));
        Ok(table)
    }

    /// Stores a plan durably, unless this process has already stored the plan. Returns true if this call stored the
    /// plan. Blocks the thread.
    pub fn store(&self, plan_id: &str, plan: &Plan, objects: &Objects) -> Result<bool, DriveError> {
        // A second thread that starts with the same plan waits here until the plan is durable.
        let _alone = self.storing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_stored = |known: &BTreeMap<String, SharedPlan>| known.get(plan_id).is_some_and(|known| known.stored);
        if is_stored(&self.known.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(false);
        }
        let altered = |error: serde_json::Error| StoreError::Altered { path: "plan".into(), reason: error.to_string() };
        let bytes = || plan.to_bytes().map_err(altered);
        // The id is the hash of the plan's bytes, so a stored plan is found without serializing the plan again.
        match ObjectId::parse(plan_id) {
            Ok(id) => objects.put_unless_stored(&id, bytes)?,
            Err(_) => drop(objects.put(&bytes()?)?),
        }
        if let Some(known) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get_mut(plan_id) {
            known.stored = true;
        }
        Ok(true)
    }
}
