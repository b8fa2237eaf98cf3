//! Tests of the bounds on runs: examples, and runs of any usage that a simulation of the limits plays.

use proptest::prelude::*;

use super::*;
use crate::compile::tests::world::{minimal_world, with_directives};
use crate::compile::{CompileRequest, compile};
use crate::plan::{LongPromptPrices, PlanLimits, Prices, RequestTokens, Tokens};
use crate::report::forecast::RunEstimate;
use crate::report::render::view::view_prompt;
use rye_grammar::ItemId;

const TOOLS: &str = "<permissions><execute><tool>*</tool></execute></permissions>";
const CHILDREN: &str = "<permissions><execute><directive>other</directive></execute></permissions>";
const RAISE_SPEND: &str = "<hooks><hook id=\"h\" event=\"limit\"><raise limit=\"spend\" value=\"9\"/></hook></hooks>";
const RAISE_TURNS: &str = "<hooks><hook id=\"h\" event=\"limit\"><raise limit=\"turns\" value=\"9\"/></hook></hooks>";
const EXECUTE_AT_LIMIT: &str =
    "<hooks><hook id=\"h\" event=\"limit\"><execute item_type=\"tool\" item_id=\"rye/look\"/></hook></hooks>";
const EXECUTE_AT_START: &str = "<hooks><hook id=\"h\" event=\"thread_started\"><execute item_type=\"directive\" \
                                item_id=\"other\"/></hook></hooks>";
const REWRITE: &str = "<hooks><hook id=\"h\" event=\"context\"><keep_last n=\"3\"/></hook></hooks>";
const SHAPES: [&str; 8] =
    ["<permissions/>", TOOLS, CHILDREN, RAISE_SPEND, RAISE_TURNS, EXECUTE_AT_LIMIT, EXECUTE_AT_START, REWRITE];

/// Uses `large` of the provider `main`: $2 per million input tokens, $10 per million output tokens.
fn plan(inside: &str) -> Plan {
    let inside = format!("<metadata>{inside}</metadata>");
    let other = ("other", "", "<metadata><permissions/></metadata>", "Help.");
    let world = with_directives(minimal_world(), &[("leaf", "", &inside, "Do it."), other]);
    let compiled = compile(&world, &CompileRequest::new(ItemId::parse("leaf").unwrap()));
    let why: Vec<String> = compiled.diagnostics.iter().map(crate::diagnostics::Diagnostic::message).collect();
    compiled.value.unwrap_or_else(|| panic!("{inside}: {why:?}")).plan
}

fn first_request(plan: &Plan) -> RequestTokens {
    let (system, first, _) = view_prompt(plan, &crate::plan::Origins::default());
    plan.count_viewed_tokens(&system, &first)
}

fn price() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 4 => 1..100_000_000_000u64, 1 => any::<u64>()]
}

fn prices() -> impl Strategy<Value = Option<Prices>> {
    let kinds = || [price(), price(), price(), price()];
    let long = (prop_oneof![0..10u64, 500..50_000u64], kinds());
    prop::option::weighted(0.9, (kinds(), prop::option::of(long))).prop_map(|prices| {
        let ([input, output, cache_read, cache_write], long) = prices?;
        let long_prompt = long.map(|(above, [input, output, cache_read, cache_write])| LongPromptPrices {
            above,
            input,
            output,
            cache_read,
            cache_write,
        });
        Some(Prices { input, output, cache_read, cache_write, long_prompt })
    })
}

fn limits() -> impl Strategy<Value = PlanLimits> {
    let spend = prop_oneof![1..100_000_000_000u64, 1..1_000_000u64, 1..=u64::MAX];
    let tokens = prop_oneof![1..500u64, 1..10_000_000u64];
    (1..500u64, tokens, spend, 1..20_000u64).prop_map(|(turns, tokens, spend, output)| PlanLimits {
        turns,
        tokens,
        spend,
        spawns: 10,
        depth: 5,
        duration_seconds: 600,
        output,
    })
}

fn plans() -> impl Strategy<Value = Plan> {
    let model = || (prices(), 1..2_000_000u64, 1..100_000u64);
    let shape = prop::sample::select(SHAPES.map(plan).to_vec());
    (shape, limits(), model(), prop::option::of(model())).prop_map(|(mut plan, limits, own, fallback)| {
        plan.limits = limits;
        let planned = plan.model.clone();
        let set = |(prices, context_window, max_output)| PlannedModel {
            prices,
            context_window,
            max_output,
            fallback: None,
            ..planned.clone()
        };
        plan.model = PlannedModel { fallback: fallback.map(set).map(Box::new), ..set(own) };
        plan
    })
}

/// Totals of the calls that [`play`] makes.
#[derive(Debug, Default)]
struct PlayedRun {
    /// Number of turns that have made a call.
    started: u64,
    turns: u64,
    spent: Nanos,
}

/// Plays calls of any usage until a limit stops them, as the machine checks the limits. Some calls break off: they
/// count at their worst case, and the same turn makes another call. `draw` returns a number below its argument.
fn play(plan: &Plan, mut draw: impl FnMut(u64) -> u64) -> PlayedRun {
    let budget = Nanos::from_u64(plan.limits.spend);
    let (mut run, mut tokens) = (PlayedRun::default(), 0u64);
    let mut model = &plan.model;
    while run.turns < plan.limits.turns && tokens < plan.limits.tokens && run.spent < budget {
        let opening = if run.started == 0 { plan.bound_opening() } else { None };
        if run.started > 0 && draw(8) == 0 {
            model = plan.model.fallback.as_deref().unwrap_or(&plan.model);
        }
        let most = if draw(2) == 0 { 3 } else { 5_000 };
        let prompt = 1 + draw(opening.unwrap_or(most).min(most));
        let output = plan.min_output_tokens(model);
        let worst = model.worst_case(prompt, output);
        if model.prices.is_some() && worst > budget.saturating_sub(run.spent) {
            break;
        }
        run.started = run.turns + 1;
        if draw(6) == 5 {
            tokens = tokens.saturating_add(prompt).saturating_add(output);
            run.spent = run.spent.saturating_add(if model.prices.is_some() { worst } else { Nanos::ZERO });
            continue;
        }
        let cache_read = draw(prompt + 1);
        let cache_write = draw(prompt - cache_read + 1);
        let input = prompt - cache_read - cache_write;
        let used = Tokens { input, output: draw(output + 1), cache_read, cache_write };
        let cost = model.prices.map_or(Nanos::ZERO, |prices| prices.cost(&used).unwrap());
        assert!(model.prices.is_none() || cost <= worst, "{used:?}");
        run.spent = run.spent.saturating_add(cost);
        tokens = tokens.saturating_add(prompt).saturating_add(used.output);
        run.turns += 1;
    }
    run
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn forecast_is_ordered_and_within_the_limits(plan in plans()) {
        let found = plan.forecast(&first_request(&plan));
        let spend = Nanos::from_u64(plan.limits.spend);
        let cost = |run: RunEstimate| run.cost.unwrap_or_default();
        let worst = match (found.worst.set_by, found.worst.cost) {
            (CostBound::Raise, None) => spend,
            (_, worst) => worst.unwrap_or_default(),
        };
        prop_assert!(worst <= spend, "{found:?}");
        prop_assert!(cost(found.first) <= worst && cost(found.typical) <= worst, "{found:?}");
        let TurnBounds { at_least, at_most, before_handoff: _ } = found.turns;
        let raises = plan.can_raise(LimitName::Turns);
        prop_assert!(raises || at_most.is_some_and(|most| most.turns <= plan.limits.turns), "{found:?}");
        prop_assert!(at_least.turns <= at_most.map_or(u64::MAX, |most| most.turns), "{found:?}");
        prop_assert!(found.typical.turns <= at_most.map_or(u64::MAX, |most| most.turns), "{found:?}");
        // If the spend limit certainly pays for a turn, the forecast contains a turn too.
        prop_assert!(at_least.turns == 0 || (found.first.turns == 1 && found.typical.turns >= 1), "{found:?}");
    }

    #[test]
    fn played_turns_stay_within_the_bounds(plan in plans(), seed in any::<u64>()) {
        let mut state = seed;
        let draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let run = play(&plan, draw);
        let worst = plan.bound_cost();
        prop_assert!(worst.cost.is_none_or(|worst| run.spent <= worst), "{run:?}: {worst:?}");
        let TurnBounds { at_least, at_most, before_handoff: _ } = plan.bound_turns();
        prop_assert!(at_most.is_none_or(|most| run.turns <= most.turns), "{run:?}: {at_most:?}");
        prop_assert!(run.started >= at_least.turns, "{run:?}: {at_least:?}");
    }
}

#[test]
fn worst_case_is_the_spend_limit_of_the_tree() {
    let spend = WorstCase { cost: Some(Nanos(500_000_000)), set_by: CostBound::Spend };
    for inside in ["<permissions/>", TOOLS, CHILDREN, RAISE_TURNS] {
        assert_eq!(plan(inside).bound_cost(), spend, "{inside}");
    }
    for inside in [RAISE_SPEND, EXECUTE_AT_LIMIT] {
        assert_eq!(plan(inside).bound_cost(), WorstCase { cost: None, set_by: CostBound::Raise }, "{inside}");
    }
}

#[test]
fn worst_case_of_free_calls_is_zero_unless_children_have_prices() {
    let with = |inside, prices| {
        let mut plan = plan(inside);
        plan.model.prices = prices;
        plan.bound_cost()
    };
    let alone = "<permissions><execute><tool>rye.look</tool></execute></permissions>";
    assert_eq!(with(alone, Some(Prices::NONE)), WorstCase { cost: Some(Nanos::ZERO), set_by: CostBound::Prices });
    assert_eq!(with(alone, None), WorstCase { cost: None, set_by: CostBound::Prices });
    assert_eq!(with(CHILDREN, None).set_by, CostBound::Spend);
}

#[test]
fn priced_fallback_bounds_the_cost_of_a_free_model_by_the_spend_limit() {
    let mut plan = plan(TOOLS);
    plan.model.fallback = Some(Box::new(plan.model.clone()));
    plan.model.prices = Some(Prices::NONE);
    assert_eq!(plan.bound_cost().set_by, CostBound::Spend);
    assert_eq!(plan.bound_turns().at_most, Some(TurnBound::new(15, LimitName::Turns)));
}

#[test]
fn thread_bounds_name_their_limits() {
    let bounds = |limits: &str, inside: &str| {
        let ThreadBound { threads, set_by } = plan(&format!("{limits}{inside}")).bound_threads();
        (threads, set_by.as_str())
    };
    assert_eq!(bounds("", "<permissions/>"), (Some(1), "grants"));
    assert_eq!(bounds("<limits depth=\"0\"/>", CHILDREN), (Some(1), "depth"));
    assert_eq!(bounds("<limits spawns=\"0\"/>", CHILDREN), (Some(1), "spawns"));
    assert_eq!(bounds("<limits depth=\"3\" spawns=\"2\"/>", CHILDREN), (Some(3), "spawns"));
    assert_eq!(bounds("<limits depth=\"0\" spawns=\"2\"/>", TOOLS), (Some(3), "spawns"));
    assert_eq!(bounds("<limits depth=\"0\"/>", &format!("{CHILDREN}{RAISE_SPEND}")), (Some(1), "depth"));
    let raise = |limit: &str| RAISE_SPEND.replace("spend", limit);
    assert_eq!(bounds("<limits depth=\"0\"/>", &format!("{CHILDREN}{}", raise("depth"))).0, Some(11));
    assert_eq!(bounds("", &format!("{CHILDREN}{}", raise("spawns"))), (None, "raise"));
    assert_eq!(bounds("", &format!("{CHILDREN}{EXECUTE_AT_LIMIT}")), (None, "raise"));
}

#[test]
fn turn_bounds_name_their_limits() {
    let bounds = |limits: &str, hooks: &str| plan(&format!("{limits}{TOOLS}{hooks}")).bound_turns();
    let default = bounds("", "");
    assert_eq!(default.at_least, TurnBound::new(1, LimitName::Spend));
    assert_eq!(default.at_most, Some(TurnBound::new(15, LimitName::Turns)));
    // A turn takes at least one token, at 2,000 nano-dollars; the last turn also needs the worst case of 500 output
    // tokens.
    let few = bounds("<limits turns=\"5000\" spend=\"0.01\"/>", "").at_most;
    assert_eq!(few, Some(TurnBound::new(1 + (10_000_000 - 5_002_000) / 2_000, LimitName::Spend)));
    assert_eq!(bounds("<limits tokens=\"9\"/>", "").at_most, Some(TurnBound::new(9, LimitName::Tokens)));
    let raised = bounds("", RAISE_TURNS).at_most.unwrap();
    assert_eq!(raised.set_by, LimitName::Tokens);
    assert_eq!(default.before_handoff, None);
    let with_turns = |turns: u64, value: &str| {
        let hooks = RAISE_TURNS.replace("\"9\"", &format!("\"{value}\""));
        bounds(&format!("<limits turns=\"{turns}\"/>"), &hooks).before_handoff
    };
    assert_eq!(with_turns(5, "9"), Some(9));
    assert_eq!(with_turns(12, "9"), Some(12));
    assert_eq!(with_turns(5, "${current_max}"), None);
    assert_eq!(bounds("", EXECUTE_AT_LIMIT).before_handoff, None);
    assert_eq!(bounds("", EXECUTE_AT_LIMIT).at_most, None);
}

#[test]
fn turns_of_one_token_reach_the_bound_that_tokens_or_spend_sets() {
    for (limits, set_by) in [
        ("<limits turns=\"5000\" spend=\"0.01\"/>", LimitName::Spend),
        ("<limits turns=\"5000\" tokens=\"400\"/>", LimitName::Tokens),
    ] {
        let plan = plan(&format!("{limits}{TOOLS}"));
        let most = plan.bound_turns().at_most.unwrap();
        let PlayedRun { turns, .. } = play(&plan, |_| 0);
        assert_eq!((turns, most.set_by), (most.turns, set_by), "{limits}");
    }
}

#[test]
fn certain_turns_of_free_models_are_bound_by_tokens() {
    let least = |limits: &str| {
        let mut plan = plan(&format!("{limits}<permissions/>"));
        plan.model.prices = None;
        plan.bound_turns().at_least
    };
    // The first turn can use up the tokens.
    assert_eq!(least("<limits turns=\"20\" tokens=\"100\"/>"), TurnBound::new(1, LimitName::Tokens));
    assert_eq!(least("<limits turns=\"1\" tokens=\"100\"/>"), TurnBound::new(1, LimitName::Turns));
    let mut stopped = plan("<limits turns=\"20\"/><permissions/>");
    stopped.limits.tokens = 0;
    assert_eq!(stopped.bound_turns().at_least, TurnBound::new(0, LimitName::Tokens));
}

#[test]
fn no_turn_is_certain_where_hooks_or_long_values_may_use_up_the_money() {
    for inside in [EXECUTE_AT_START, REWRITE] {
        assert_eq!(plan(inside).bound_turns().at_least, TurnBound::new(0, LimitName::Spend), "{inside}");
    }
}

#[test]
fn values_of_placeholders_count_at_their_maximum_length() {
    let fact = |path: &str| RuntimePlaceholder::Fact { path: path.to_owned(), fallback: None };
    assert_eq!(max_value_bytes(&fact("project_path")), Some(4096));
    assert_eq!(max_value_bytes(&fact("limits.spend")), Some(MAX_LIMIT_BYTES));
    assert_eq!(max_value_bytes(&fact("inputs.topic")), None);
    assert_eq!(max_value_bytes(&RuntimePlaceholder::Hook { id: "h".into() }), None);
}
