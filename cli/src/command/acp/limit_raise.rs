//! A limit of a prompt that the user of a client raises, so that the prompt continues.

use rye_compiler::semantics::money::Nanos;
use rye_engine::control::ControlSender;
use rye_engine::event::ControlMessage;
use rye_engine::live_state::LiveState;
use rye_engine::machine::raised_limit;

use crate::command::chat::bounds::read_raised_limit;

/// A higher value for a limit that a prompt has reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitRaise {
    limit: String,
    /// Nano-dollars for `spend`.
    value: u64,
}

impl LimitRaise {
    /// Returns a raise to twice the limit that the current prompt has reached. `None` if no limit is reached, or if the
    /// session or the message of the prompt allows no higher value.
    pub fn of_prompt(live: &LiveState) -> Option<Self> {
        let hit = live.state.limit.as_ref()?;
        let limit = hit.limit_code.strip_suffix("_exceeded")?;
        let value = read_raised_limit(limit, &hit.current_max).ok()?.saturating_mul(2);
        raised_limit(&live.state, limit, value)?;
        Some(Self { limit: limit.to_owned(), value })
    }

    /// Raises the limit and approves the open request. Messages of one sender arrive in their order, so the raise has
    /// its effect first.
    pub fn apply(self, control: &ControlSender) {
        control.send(ControlMessage::Raise { limit: self.limit, value: self.value });
        control.send(ControlMessage::Approve { yes: true, question: None, message: None });
    }
}

/// Formats the raise for the option of a permission request.
impl std::fmt::Display for LimitRaise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.limit.as_str() {
            "spend" => write!(f, "Raise `spend` to ${}", Nanos::from_u64(self.value)),
            limit => write!(f, "Raise `{limit}` to {}", self.value),
        }
    }
}
