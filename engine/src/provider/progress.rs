//! The facts that a provider has reported about a call whose result is not recorded yet. If the engine stops the call,
//! its cost is computed from these facts.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exchange::{CallError, DEADLINE_CODE, Usage};

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
    pub(crate) fn set_final_usage(&self, usage: Option<Usage>) {
        self.facts().final_usage = usage;
    }

    /// Records the error of a response with an error status, whose body is still being received, or of a call that has
    /// ended.
    pub(crate) fn set_refusal(&self, error: CallError) {
        self.facts().refusal = Some(Box::new(error));
    }

    /// Records the error with which the call has ended. For a call that was stopped at the deadline, records only the
    /// usage and no error, because the thread ends with the error of the duration limit.
    pub(crate) fn set_error(&self, error: &CallError) {
        if error.code.as_deref() == Some(DEADLINE_CODE) {
            self.set_final_usage(error.usage);
        } else {
            self.set_refusal(error.clone());
        }
    }

    /// Returns true if a fact was recorded that has not been taken.
    #[cfg(test)]
    pub(crate) fn has_facts(&self) -> bool {
        let facts = self.facts();
        facts.final_usage.is_some() || facts.refusal.is_some()
    }

    /// Returns the usage of the whole reply, and removes it; `None` if the provider has not reported it.
    pub(crate) fn take_final_usage(&self) -> Option<Usage> {
        self.facts().final_usage.take()
    }

    /// Returns the recorded error, and removes it; `None` if there is none.
    pub(crate) fn take_refusal(&self) -> Option<CallError> {
        self.facts().refusal.take().map(|error| *error)
    }
}
