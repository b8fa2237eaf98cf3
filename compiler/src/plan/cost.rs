//! Tokens and costs of a request. `rye plan` prints these figures, and the machine reserves money according to them
//! (`language.md`, Limits).

use serde::{Deserialize, Serialize};

use super::{Plan, PlannedModel, Tokenizer, ToolUse};
use crate::semantics::money::{self, Nanos};

/// Prices of a model, in nano-dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prices {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    /// Prices that apply to the whole request when its prompt is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_prompt: Option<LongPromptPrices>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongPromptPrices {
    /// Number of prompt tokens, including cached tokens, above which these prices apply.
    pub above: u64,
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
}

/// Tokens of one request, as a provider counts them: `input` holds neither cache reads nor cache writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
}

impl Prices {
    /// The prices of a model with `prices: none` in the provider file: all prices are zero.
    pub const NONE: Self = Self { input: 0, output: 0, cache_read: 0, cache_write: 0, long_prompt: None };

    /// Returns the cost of a request; `None` if it overflows. Only the sum over all tokens is rounded, up to a whole
    /// nano-dollar.
    pub fn cost(&self, tokens: &Tokens) -> Option<Nanos> {
        let prompt = tokens.input.saturating_add(tokens.cache_read).saturating_add(tokens.cache_write);
        let (input, output, read, write) = match self.long_prompt {
            Some(long) if prompt > long.above => (long.input, long.output, long.cache_read, long.cache_write),
            Some(_) | None => (self.input, self.output, self.cache_read, self.cache_write),
        };
        money::call_cost(&[
            (Nanos::from_u64(input), tokens.input),
            (Nanos::from_u64(output), tokens.output),
            (Nanos::from_u64(read), tokens.cache_read),
            (Nanos::from_u64(write), tokens.cache_write),
        ])
    }

    /// Returns an upper bound on the turns that an amount pays for, including the last turn. Each turn has a reply of
    /// `output` tokens and a prompt of at least `opening` tokens; `cached` tokens of the prompt are read from the cache
    /// if that is cheaper. `None` if a turn is free or the cost overflows.
    pub(crate) fn max_turns_within(&self, spend: Nanos, opening: u64, cached: u64, output: u64) -> Option<u64> {
        let plain = self.cost(&Tokens { input: opening, output, ..Tokens::default() })?;
        let rest = opening.saturating_sub(cached);
        let cached = self.cost(&Tokens { cache_read: cached, input: rest, output, cache_write: 0 })?;
        u64::try_from(spend.0.checked_div(plain.min(cached).0)?.max(0)).ok()?.checked_add(1)
    }

    /// Returns a lower bound on the cost of a prompt: the price of one token at the lowest input price.
    pub(crate) fn min_prompt_cost(&self) -> Nanos {
        let long = self.long_prompt.map(|long| [long.input, long.cache_read, long.cache_write]);
        let kinds = [self.input, self.cache_read, self.cache_write].into_iter().chain(long.into_iter().flatten());
        kinds.min().and_then(|price| Nanos::from_u64(price).per_million(1)).unwrap_or_default()
    }

    /// Returns an upper bound on the cost of an attempt with at most these input and output tokens; the largest amount
    /// if the cost overflows. The bound holds whether the provider reads the prompt from its cache, writes it there or
    /// does neither, and also if a shorter prompt has higher prices.
    pub fn worst_case(&self, input: u64, output: u64) -> Nanos {
        let cost_of = |input: u64| {
            let ways = [
                Tokens { input, output, ..Tokens::default() },
                Tokens { cache_write: input, output, ..Tokens::default() },
                Tokens { cache_read: input, output, ..Tokens::default() },
            ];
            ways.iter().map(|tokens| self.cost(tokens).unwrap_or(Nanos(i64::MAX))).max().unwrap_or(Nanos(i64::MAX))
        };
        let short = self.long_prompt.map_or(input, |long| input.min(long.above));
        cost_of(input).max(cost_of(short))
    }
}

impl PlannedModel {
    /// Returns the exact tokenizer that the provider file names for this model, if this build does not contain it.
    /// `None` if the build contains the tokenizer, or if the provider file names none.
    pub(crate) fn missing_tokenizer(&self) -> Option<Tokenizer> {
        self.tokenizer.filter(|exact| *exact != self.counted_by)
    }

    /// Describes the method of counting tokens. The text completes the phrase `tokens counted …` in reports.
    pub(crate) fn describe_counting(&self) -> String {
        if !self.counted_by.is_estimate() {
            return format!("by {}, which is exact for {}", self.counted_by, self.id);
        }
        let exact = self
            .missing_tokenizer()
            .map(|exact| format!("; {exact} would be exact for {}, but this build of rye lacks it", self.id));
        format!("as {}{}", self.counted_by, exact.unwrap_or_default())
    }

    /// Returns the cost of a request; `None` if the provider file states no price or the cost overflows.
    pub fn cost(&self, tokens: &Tokens) -> Option<Nanos> {
        self.prices?.cost(tokens)
    }

    /// Returns the worst-case cost of an attempt with at most these tokens; zero if the provider file states no price.
    pub fn worst_case(&self, input: u64, output: u64) -> Nanos {
        self.prices.map_or(Nanos::ZERO, |p| p.worst_case(input, output))
    }

    /// Returns the output tokens that a request allows if no other limit lowers them: `limit`, but no more than the
    /// model's maximum.
    pub fn requested_output(&self, limit: u64) -> u64 {
        limit.min(self.max_output)
    }
}

/// Token counts of a thread's first request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestTokens {
    pub system: u64,
    pub first_message: u64,
    /// Tokens of the tool definitions; zero if the system prompt contains the definitions.
    pub palette: u64,
    /// Upper bound on the prompt tokens.
    pub input_bound: u64,
    /// Upper bound on the prompt tokens of the same request to the fallback model; zero without a fallback.
    pub fallback_bound: u64,
    /// Maximum number of output tokens that the request allows.
    pub output: u64,
}

impl RequestTokens {
    /// Returns the prompt tokens: everything but the output.
    pub fn input(&self) -> u64 {
        self.system.saturating_add(self.first_message).saturating_add(self.palette)
    }
}

impl Plan {
    /// Returns the tokens of the tool definitions of a request to `model`; zero if the system prompt contains the
    /// definitions.
    pub fn definition_tokens(&self, model: &PlannedModel) -> u64 {
        match model.tool_use {
            ToolUse::Native => self.palette.iter().fold(0, |sum, tool| sum.saturating_add(tool.tokens)),
            ToolUse::TextParsed => 0,
        }
    }

    /// Counts the tokens of the first request from the texts as rendered by the caller.
    pub(crate) fn count_request_tokens(&self, system: &str, first_message: &str) -> RequestTokens {
        RequestTokens {
            system: self.model.counted_by.count(system),
            first_message: self.model.counted_by.count(first_message),
            palette: self.definition_tokens(&self.model),
            input_bound: self.bound_first_request(system, first_message),
            fallback_bound: self
                .model
                .fallback
                .as_ref()
                .map_or(0, |model| self.bound_request(model, system, first_message)),
            output: self.model.requested_output(self.limits.output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: Prices = Prices {
        input: 2_000_000_000,
        output: 10_000_000_000,
        cache_read: 200_000_000,
        cache_write: 2_500_000_000,
        long_prompt: Some(LongPromptPrices {
            above: 1000,
            input: 4_000_000_000,
            output: 20_000_000_000,
            cache_read: 400_000_000,
            cache_write: 5_000_000_000,
        }),
    };

    #[test]
    fn long_prompt_prices_apply_to_the_whole_request_and_count_cached_tokens() {
        let tokens = Tokens { input: 600, output: 10, cache_read: 400, cache_write: 0 };
        assert_eq!(PRICES.cost(&tokens), Some(Nanos(600 * 2000 + 10 * 10_000 + 400 * 200)));
        let one_more = Tokens { cache_write: 1, ..tokens };
        assert_eq!(PRICES.cost(&one_more), Some(Nanos(600 * 4000 + 10 * 20_000 + 400 * 400 + 5000)));
    }

    #[test]
    fn worst_case_bounds_every_split_of_the_prompt() {
        for read in [0, 100, 500] {
            for write in [0, 100, 500] {
                let tokens = Tokens { input: 1200 - read - write, output: 7, cache_read: read, cache_write: write };
                assert!(PRICES.worst_case(1200, 7) >= PRICES.cost(&tokens).unwrap_or_default(), "{tokens:?}");
            }
        }
    }

    #[test]
    fn each_token_kind_is_priced_and_overflow_returns_none() {
        let only =
            |input, output, cache_read, cache_write| PRICES.cost(&Tokens { input, output, cache_read, cache_write });
        assert_eq!(only(1, 0, 0, 0), Some(Nanos(2000)));
        assert_eq!(only(0, 1, 0, 0), Some(Nanos(10_000)));
        assert_eq!(only(0, 0, 1, 0), Some(Nanos(200)));
        assert_eq!(only(0, 0, 0, 1), Some(Nanos(2500)));
        assert_eq!(only(u64::MAX, u64::MAX, u64::MAX, u64::MAX), None);
        assert_eq!(PRICES.worst_case(u64::MAX, 1), Nanos(i64::MAX));
    }
}
