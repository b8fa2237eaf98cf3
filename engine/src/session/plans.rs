//! Plans of running threads: threads of one plan share it and, where their inputs are the same, its compiled hooks; it is
//! stored once, with what it was made of.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rye_compiler::plan::{Plan, hex};
use rye_compiler::world::Located;
use rye_grammar::ItemId;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::driver::DriveError;
use crate::engine::Inner;
use crate::hooks::HookTable;
use crate::store::{Objects, StoreError, sources};

/// A plan's id and the SHA-256 of the inputs that fill its templates.
type Filled = (String, [u8; 32]);

/// The plans that threads of this process have.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    known: Mutex<BTreeMap<String, Known>>,
    /// Held by whoever stores one.
    storing: Mutex<()>,
    hooks: Mutex<BTreeMap<Filled, Weak<HookTable>>>,
}

impl Inner {
    /// Keeps the files that a plan was made of, as far as they still are what it read.
    pub(super) fn keep_sources(&self, plan: &Plan) -> Result<(), DriveError> {
        let missing = sources::missing(&*self.disk, plan)?;
        if missing.is_empty() {
            return Ok(());
        }
        // What cannot be looked at now has been changed since it was read, and is not what the plan was made of.
        let Ok(world) = (self.world)() else { return Ok(()) };
        for read in missing {
            let Ok(id) = ItemId::parse(&read.id) else { continue };
            let found = world.candidates(read.kind, &id).unwrap_or_default();
            let is_it = |located: &&Located| {
                Some(located.space) == read.space && Some(hex(&Sha256::digest(&located.bytes))) == read.sha256
            };
            if let Some(located) = found.iter().find(is_it) {
                sources::keep(&*self.disk, located)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Known {
    plan: Weak<Plan>,
    /// It lies among the objects.
    stored: bool,
}

impl Plans {
    /// The plan of this id, made only if no thread has it.
    pub fn share(&self, plan_id: &str, make: impl FnOnce() -> Plan) -> Arc<Plan> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = known.get(plan_id).and_then(|known| known.plan.upgrade()) {
            return plan;
        }
        known.retain(|_, known| known.plan.strong_count() > 0);
        let plan = Arc::new(make());
        known.insert(plan_id.to_owned(), Known { plan: Arc::downgrade(&plan), stored: false });
        plan
    }

    /// The hooks of a plan with these inputs, compiled only if no thread has them.
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

    /// Stores a plan unless this process has done so; answers whether it did so now. Blocks.
    pub fn store(&self, plan_id: &str, plan: &Plan, objects: &Objects) -> Result<bool, DriveError> {
        // Who begins with the same plan meanwhile waits until it is durable, and does not write it beside.
        let _alone = self.storing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_stored = |known: &BTreeMap<String, Known>| known.get(plan_id).is_some_and(|known| known.stored);
        if is_stored(&self.known.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(false);
        }
        let bytes =
            plan.to_bytes().map_err(|error| StoreError::Altered { path: "plan".into(), reason: error.to_string() })?;
        objects.put(&bytes)?;
        if let Some(known) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get_mut(plan_id) {
            known.stored = true;
        }
        Ok(true)
    }
}
