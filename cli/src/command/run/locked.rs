//! `rye run --locked`: verifies every thread of a run against the lock.

use std::sync::{Arc, Mutex, PoisonError};

use rye_compiler::plan::lock::Lock;
use rye_engine::engine::EngineOptions;

use crate::Failure;
use crate::lockfile;

/// The first refusal of a run, which determines the exit code.
#[derive(Debug, Clone, Default)]
pub struct Refusals(Arc<Mutex<Option<Failure>>>);

impl Refusals {
    /// Returns the first refusal, once.
    pub fn take(&self) -> Option<Failure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn add(&self, failure: Failure) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }
}

/// Makes an engine verify every thread against a lock that was read before the run: the root, children, children of
/// hooks, continuations and resumed threads. A thread that starts a refused one receives the reason.
pub fn hold(options: &mut EngineOptions, lock: &Lock) -> Refusals {
    let refusals = Refusals::default();
    let (open, lock, found) = (Arc::clone(&options.world), lock.clone(), refusals.clone());
    options.plan_check = Some(Arc::new(move |plan| {
        let world = open()?;
        let Err(failure) = lockfile::held(&lock, &*world, plan) else { return Ok(()) };
        let reason = failure.message.clone();
        found.add(failure);
        Err(reason)
    }));
    refusals
}
