//! The facts that a provider has reported about a call that still runs. If the engine stops the call, these facts
//! decide its cost.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exchange::{CallError, Usage};

/// The facts that a provider has reported about a running call. The caller of the provider reads the facts after it has
/// stopped the call.
#[derive(Debug, Default)]
pub struct CallProgress(Mutex<ReportedFacts>);

#[derive(Debug, Default)]
struct ReportedFacts {
    final_usage: Option<Usage>,
    refusal: Option<Box<CallError>>,
}

impl CallProgress {
    fn facts(&self) -> MutexGuard<'_, ReportedFacts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the usage of the whole reply; `None` if a later report shows that the usage is not final.
    pub fn set_final_usage(&self, usage: Option<Usage>) {
        self.facts().final_usage = usage;
    }

    /// Records the error of a response with an error status, whose body is still being received.
    pub fn set_refusal(&self, error: CallError) {
        self.facts().refusal = Some(Box::new(error));
    }

    /// Returns true if a fact was recorded that has not been taken.
    #[cfg(test)]
    pub fn has_facts(&self) -> bool {
        let facts = self.facts();
        facts.final_usage.is_some() || facts.refusal.is_some()
    }

    /// Returns the usage of the whole reply, and removes it; `None` if the provider has not reported it.
    pub fn take_final_usage(&self) -> Option<Usage> {
        self.facts().final_usage.take()
    }

    /// Returns the error of a response with an error status, and removes it; `None` if there is none.
    pub fn take_refusal(&self) -> Option<CallError> {
        self.facts().refusal.take().map(|error| *error)
    }
}
