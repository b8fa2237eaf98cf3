//! The state of a running chat, as other tasks of the process read it.

use std::sync::{Arc, PoisonError, RwLock};

use rye_compiler::plan::Plan;

use crate::machine::ThreadState;

/// A plan and the state of its thread at one moment.
#[derive(Debug, Clone)]
pub struct LiveState {
    pub plan: Arc<Plan>,
    pub state: Arc<ThreadState>,
}

/// The place where a thread publishes its state. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct StateCell(Arc<RwLock<Option<LiveState>>>);

impl StateCell {
    /// Replaces the published state.
    pub fn publish(&self, plan: &Arc<Plan>, state: &ThreadState) {
        let live = LiveState { plan: Arc::clone(plan), state: Arc::new(state.clone()) };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(live);
    }

    /// Returns the published state; `None` before the first one.
    pub fn read(&self) -> Option<LiveState> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
