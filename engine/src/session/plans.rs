//! Plans of running threads: threads of one plan share it, and it is stored once, with what it was made of.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rye_compiler::plan::{Plan, hex};
use rye_compiler::world::Located;
use rye_grammar::ItemId;
use sha2::{Digest, Sha256};

use crate::driver::DriveError;
use crate::engine::Inner;
use crate::store::{Objects, StoreError, sources};

/// The plans that threads of this process have.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    known: Mutex<BTreeMap<String, Known>>,
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

    /// Stores a plan unless this process has done so. Blocks.
    pub fn store(&self, plan_id: &str, plan: &Plan, objects: &Objects) -> Result<(), DriveError> {
        let is_stored = |known: &BTreeMap<String, Known>| known.get(plan_id).is_some_and(|known| known.stored);
        if is_stored(&self.known.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(());
        }
        let bytes =
            plan.to_bytes().map_err(|error| StoreError::Altered { path: "plan".into(), reason: error.to_string() })?;
        objects.put(&bytes)?;
        if let Some(known) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get_mut(plan_id) {
            known.stored = true;
        }
        Ok(())
    }
}
