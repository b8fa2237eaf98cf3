//! What an attempt costs: the usage that a provider reported, at the plan's prices. Nothing is sent or booked here.

use rye_compiler::plan::{PlannedModel, Tokens};
use rye_compiler::semantics::money::Nanos;

use super::Usage;

impl From<&Usage> for Tokens {
    fn from(usage: &Usage) -> Self {
        let Usage { input, output, cache_read, cache_write } = *usage;
        Self { input, output, cache_read, cache_write }
    }
}

/// The price of `usage` with `model`, rounded up once. `None` for a model without prices, or beyond what can be counted.
pub fn cost(model: &PlannedModel, usage: &Usage) -> Option<Nanos> {
    model.cost(&Tokens::from(usage))
}
