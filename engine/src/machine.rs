//! The machine decides (`engine.md` 1): three pure functions over a plan and a state. No async, no clock, no randomness,
//! no store, no provider; even the time arrives in a signal.
//!
//! The effect is always derived again from the state, so a crash between deciding and doing loses nothing: recovery
//! folds the transcript and asks [`next`].

mod absorb;
mod apply;
pub mod effect;
mod facts;
pub mod gate;
pub(crate) mod keep;
mod outputs;
pub(crate) mod prompt;
mod request;
pub mod signal;
pub mod state;
mod step;
pub(crate) mod trailing;
mod walk;

pub use apply::apply;
pub(crate) use apply::slot;
pub use effect::{Effect, HookBounds, HookRun, Reservation, SpawnChild, StepKey};
pub use gate::{Allowed, Call, Dispatch};
pub use signal::{Fact, HookChild, Signal, Spawned};
pub use state::State;

use rye_compiler::plan::Plan;

use crate::event::EventBody;

/// What is to be done now. The same state gives the same answer.
pub fn next(plan: &Plan, state: &State) -> Effect {
    walk::next(plan, state)
}

/// What is to be written of a signal, in order. A signal that comes too late or twice is worth no event.
pub fn absorb(plan: &Plan, state: &State, signal: Signal) -> Vec<EventBody> {
    absorb::absorb(plan, state, signal)
}

/// The events that open the conversation, rendered by the plan's own functions. A record that the plan gave rise to holds
/// exactly these.
pub fn opening(plan: &Plan, state: &State) -> Vec<EventBody> {
    prompt::opening(plan, state)
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
