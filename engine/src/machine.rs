//! The machine (`engine.md` 1): pure functions over a plan and a state that decide the next action of a thread. They
//! use no async code, clock, randomness, store or provider. The time arrives in a signal.
//!
//! The next effect is derived from the state on every call, so a crash between decision and action loses nothing:
//! recovery folds the transcript and calls [`next`].

mod absorb;
mod apply;
mod approval_raise;
pub mod effect;
mod facts;
pub mod gate;
mod outputs;
pub(crate) mod prompt;
pub mod prompt_bounds;
mod request;
pub(crate) mod retained_messages;
mod screen;
pub mod signal;
pub mod state;
pub(crate) mod state_store;
mod step;
pub(crate) mod unread_parts;
mod walk;

pub(crate) use apply::limit_mut;
pub use apply::{apply, raised_limit};
pub(crate) use approval_raise::needs_raise;
pub use effect::{Effect, HookBounds, HookRun, ModelCall, Reservation, SpawnChild, StepKey};
pub use gate::{Allowed, Dispatch, GatedCall};
pub(crate) use request::{estimate_tokens, message_tokens, thread_position, thread_system};
pub(crate) use retained_messages::count_retained_messages;
pub use screen::RESUME_SUBJECT;
pub use signal::{Fact, HookChild, Signal, SpawnResult};
pub use state::ThreadState;
pub(crate) use step::undelivered_prompt;

use rye_compiler::plan::Plan;

use crate::event::EventBody;
use crate::exchange::{Request, RequestTurns};

/// Returns the next effect. Equal states produce equal effects.
pub fn next(plan: &Plan, state: &ThreadState) -> Effect {
    walk::next(plan, state)
}

/// Returns the events that record a signal, in order. A late or repeated signal has no events.
pub(crate) fn absorb(plan: &Plan, state: &ThreadState, signal: Signal) -> Vec<EventBody> {
    absorb::absorb(plan, state, signal)
}

/// Returns the effect for the next command of the user. If no command waits, returns the intake of the next queued
/// message that `input` hooks or an expansion must process; `None` if no such message waits either. The driver performs
/// the returned effect concurrently with the current effect.
pub(crate) fn next_intake(plan: &Plan, state: &ThreadState) -> Option<Effect> {
    screen::next_intake(plan, state)
}

/// Returns an upper bound on the input tokens of the next request.
pub(crate) fn bound_input_tokens(plan: &Plan, state: &ThreadState) -> u64 {
    request::bound_input_tokens(plan, state, false)
}

/// Returns the worst-case cost of one more turn, in nano-dollars.
pub(crate) fn turn_worst_case(plan: &Plan, state: &ThreadState) -> u64 {
    step::turn_worst_case(plan, state)
}

/// Builds the request of a model call.
pub(crate) fn build_request(plan: &Plan, state: &ThreadState, call: ModelCall, turns: RequestTurns) -> Request {
    request::build_request(plan, state, call, turns)
}

/// Returns the events that open the conversation, rendered from the plan. The conversation in the transcript of a
/// thread with this plan must start with exactly these events.
pub(crate) fn opening_events(plan: &Plan, state: &ThreadState) -> Vec<EventBody> {
    prompt::opening_events(plan, state)
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
