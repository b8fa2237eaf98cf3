//! The attempt of a model call, and its settlement.

use std::sync::Arc;

use rye_compiler::plan::Grant;

use crate::exchange::{BYTES_PER_TOKEN, CallError, CutStream, Usage};

/// A model call whose intent is recorded and whose end is not recorded yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub turn: u64,
    pub number: u32,
    /// Upper bound on the input tokens of the request.
    pub input: u64,
    pub max_output: u64,
    /// Worst-case cost of the attempt, in nano-dollars.
    pub worst_case: u64,
    /// The value of `ThreadState::withheld` when the attempt was intended. The reservation of the attempt uses this
    /// value, so that the reservation does not depend on the time at which a child ends.
    pub withheld: u64,
    pub reserved: bool,
    /// True if the attempt requests a summary.
    pub compacts: bool,
}

/// The token counts of the last request and its reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredTokens {
    /// Input tokens of the whole request, including tokens that the provider read from or wrote to its cache.
    pub input: u64,
    pub output: u64,
    /// Number of messages in the request.
    pub messages: usize,
    /// System prompt of the request.
    pub system: Arc<str>,
    /// True if the plan's fallback model counted the tokens.
    pub of_fallback: bool,
    /// The grant sets to which the prompt narrowed the grants of the thread; `None` if the prompt did not narrow them.
    /// The grant sets determine the tools of the request.
    pub narrowed: Option<Arc<[Vec<Grant>]>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingSettlement {
    pub turn: u64,
    pub attempt: u32,
    pub usage: Usage,
    /// True if the attempt called the plan's fallback model.
    pub of_fallback: bool,
    /// Nano-dollars reserved for the attempt.
    pub worst_case: u64,
    /// The data for an estimate of the cost, if `usage` does not count the whole call: the stream was cut, or the
    /// provider reported no usable usage. `None` if `usage` counts the whole call.
    pub unknown: Option<UnknownOutcome>,
}

/// Data that bounds the cost of an attempt for which the provider reported no usable final usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownOutcome {
    pub cut: CutStream,
    /// Upper bound on the input tokens of the request.
    pub input: u64,
    pub max_output: u64,
    /// Worst-case cost of the attempt, in nano-dollars.
    pub worst_case: u64,
    /// True if the reply is complete and only its usage is missing.
    pub replied: bool,
}

impl Attempt {
    /// Returns the pending settlement of this attempt after a failure.
    pub fn settlement_after_failure(&self, error: &CallError, of_fallback: bool) -> PendingSettlement {
        self.pending(error.usage.unwrap_or_default(), error.cut, false, of_fallback)
    }

    /// Returns the pending settlement of this attempt after a reply. `uncounted` describes the stream if `usage` does not
    /// count the whole call. `of_fallback` is true if the attempt called the plan's fallback model.
    pub fn settlement(&self, usage: Usage, uncounted: Option<CutStream>, of_fallback: bool) -> PendingSettlement {
        self.pending(usage, uncounted, true, of_fallback)
    }

    fn pending(&self, usage: Usage, cut: Option<CutStream>, replied: bool, of_fallback: bool) -> PendingSettlement {
        let Self { turn, number, input, max_output, worst_case, .. } = *self;
        let unknown = cut.map(|cut| {
            // If the thread itself cut the stream, the number of sent bytes is unknown (0). The bytes are then computed
            // from `input`, so that the estimate of the input tokens equals this upper bound.
            let sent = if cut.sent == 0 { input.saturating_mul(BYTES_PER_TOKEN) } else { cut.sent };
            UnknownOutcome { cut: CutStream { sent, ..cut }, input, max_output, worst_case, replied }
        });
        PendingSettlement { turn, attempt: number, usage, of_fallback, worst_case, unknown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_of_a_call_that_the_thread_cut_has_the_bound_of_its_input() {
        let attempt = Attempt {
            turn: 1,
            number: 1,
            input: 1_001,
            max_output: 50,
            withheld: 0,
            worst_case: 9,
            reserved: true,
            compacts: false,
        };
        for (sent, expected) in [(0, 1_001), (400, 100)] {
            let pending = attempt.settlement(Usage::default(), Some(CutStream { sent, received: 40 }), false);
            let estimate = pending.unknown.map(|unknown| unknown.cut.estimate()).unwrap_or_default();
            assert_eq!((estimate.input, estimate.output), (expected, 10));
        }
    }
}
