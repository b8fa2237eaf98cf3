//! A limit that the user raises, so that the prompt continues.

use rye_compiler::semantics::money::Nanos;
use rye_engine::event::ControlMessage;
use rye_engine::live_state::LiveState;
use rye_engine::machine::raised_limit;

use super::open_session::OpenSession;
use crate::command::chat::bounds::read_raised_limit;

/// A limit that a prompt has reached, and a higher value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitRaise {
    limit: String,
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

    /// Raises the limit, and waits until the raise is recorded: the answer to the question must follow it.
    pub async fn apply(self, open: &OpenSession) {
        let Self { limit, value } = self;
        open.requests.control.send_recorded(ControlMessage::Raise { limit, value }).await;
    }
}

/// Formats the raise for the option of a permission request.
impl std::fmt::Display for LimitRaise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { limit, value } = self;
        match limit.as_str() {
            "spend" => write!(f, "Raise `spend` to ${}", Nanos::from_u64(*value)),
            _ => write!(f, "Raise `{limit}` to {value}"),
        }
    }
}
