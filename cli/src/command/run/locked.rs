//! `rye run --locked`: verifies every thread of a run against the lock.

use std::sync::{Arc, Mutex, PoisonError};

use rye_compiler::report::lock::Lock;
use rye_engine::engine::EngineOptions;

use crate::CommandError;
use crate::lockfile;

/// The error of the first thread of a run whose plan differs from the lock file. The error determines the exit code.
/// Clones share the error.
#[derive(Debug, Clone, Default)]
pub struct FirstRefusal(Arc<Mutex<Option<CommandError>>>);

impl FirstRefusal {
    /// Returns the first refusal and removes it; `None` if no thread was refused.
    pub fn take(&self) -> Option<CommandError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn add(&self, failure: CommandError) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }
}

/// Makes an engine verify every thread (the root, children, children that hooks started, continuations and resumed
/// threads) against a lock that was read before the run. The parent of a refused thread receives the reason. The
/// returned value holds the first refusal of the run.
pub fn check_against_lock(options: &mut EngineOptions, lock: &Lock) -> FirstRefusal {
    let refusals = FirstRefusal::default();
    let (open, lock, found) = (Arc::clone(&options.world), lock.clone(), refusals.clone());
    options.plan_check = Some(Arc::new(move |plan| {
        let world = open()?;
        let Err(failure) = lockfile::verify_plan(&lock, &*world, plan) else { return Ok(()) };
        let reason = failure.message.clone();
        found.add(failure);
        Err(reason)
    }));
    refusals
}
