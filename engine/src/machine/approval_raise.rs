//! The raise of a reached limit that an approval implies. Without a higher limit, the thread would reach the limit
//! again at once.

use rye_compiler::semantics::money::Nanos;
use serde_json::Value;

use super::apply::{limit_mut, raised_limit};
use super::state::ThreadState;
use crate::event::{ImpliedRaise, LimitHit, LimitScope};

/// The effect of an approval on the limit that was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ApprovalRaise {
    /// The approval needs no raise, because the limit has already been raised since it was reached, or because no
    /// message can raise the limit.
    NotNeeded,
    Needed(ImpliedRaise),
    /// The limit of the parent or of the session allows no higher value.
    Impossible,
}

/// Returns the effect of an approval at the limit that the thread has reached. The new limit is the larger of the used
/// amount and the reached limit, plus the reached limit.
pub(super) fn approval_raise(state: &ThreadState) -> ApprovalRaise {
    let Some((limit, hit)) =
        state.limit.as_ref().and_then(|hit| Some((hit.limit_code.strip_suffix("_exceeded")?, hit)))
    else {
        return ApprovalRaise::NotNeeded;
    };
    if hit.scope == Some(LimitScope::Session) {
        return ApprovalRaise::Impossible;
    }
    let mut limits = state.limits;
    let (Some(total), Some(most)) = (limit_mut(&mut limits, limit), amount(limit, &hit.current_max)) else {
        return ApprovalRaise::NotNeeded;
    };
    // In a chat, the limits are totals of the thread, and a reached limit states the amounts of the prompt.
    if total.saturating_sub(state.used_before_prompt(limit)) > most {
        return ApprovalRaise::NotNeeded;
    }
    let value = used(limit, hit).max(most).saturating_add(most);
    match raised_limit(state, limit, value) {
        // The raised limit can be lower than requested: it stays within the limit of the parent or of the session.
        Some(raised) => ApprovalRaise::Needed(ImpliedRaise {
            limit: limit.to_owned(),
            value: raised.saturating_sub(state.used_before_prompt(limit)),
        }),
        None => ApprovalRaise::Impossible,
    }
}

/// Returns true if an approval raises the limit that the thread has reached.
pub(crate) fn needs_raise(state: &ThreadState) -> bool {
    matches!(approval_raise(state), ApprovalRaise::Needed(_))
}

fn used(limit: &str, hit: &LimitHit) -> u64 {
    amount(limit, &hit.current_value).unwrap_or(0)
}

/// Converts an amount of a reached limit to a number, in nano-dollars for `spend`. `None` if `value` is not a valid
/// amount.
fn amount(limit: &str, value: &Value) -> Option<u64> {
    if limit == "spend" { Nanos::from_json(value).ok().map(Nanos::to_u64) } else { value.as_u64() }
}
