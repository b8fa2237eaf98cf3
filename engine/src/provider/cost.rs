//! The cost of an attempt: the reported usage at the plan's prices. Sends and books nothing.

use rye_compiler::plan::{PlannedModel, Tokens};
use rye_compiler::semantics::money::Nanos;

use super::Usage;

impl From<&Usage> for Tokens {
    fn from(usage: &Usage) -> Self {
        let Usage { input, output, cache_read, cache_write } = *usage;
        Self { input, output, cache_read, cache_write }
    }
}

/// Returns the cost of `usage` with `model`, rounded up once. `None` if the model has no prices, or on overflow.
pub fn cost(model: &PlannedModel, usage: &Usage) -> Option<Nanos> {
    model.cost(&Tokens::from(usage))
}
