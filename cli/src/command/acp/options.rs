//! Modes and configuration options of a session, as an editor shows them.

use agent_client_protocol::v1::schema::{
    SessionConfigOption, SessionConfigOptionCategory, SessionConfigOptionValue, SessionConfigSelectOption, SessionMode,
    SessionModeState,
};
use rye_compiler::semantics::limits::LimitName;
use rye_compiler::semantics::money::Nanos;
use rye_engine::event::ChatMode;
use rye_engine::live_state::LiveState;

use crate::command::chat::json::ChatVerb;
use crate::command::providers::model_choices;
use crate::workspace::Spaces;

const MODE: &str = "mode";
const MODEL: &str = "model";
const BUDGET: &str = "budget";
/// Category of the option `budget`. ACP reserves category names that do not start with `_`.
const BUDGET_CATEGORY: &str = "_rye_budget";
/// Values of the option `budget` that a client can choose: `spend` limits of a prompt, in nano-dollars.
const BUDGETS: [u64; 9] = [
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
    20_000_000_000,
];

/// Returns the name and the description of a mode.
fn describe_mode(mode: ChatMode) -> (&'static str, &'static str) {
    match mode {
        ChatMode::ReadOnly => ("Read only", "Only safe calls; nothing is written"),
        ChatMode::Ask => ("Ask", "All calls that the directive grants; risky calls ask for permission first"),
        ChatMode::Auto => ("Auto", "All calls that the directive grants, without asking for permission"),
    }
}

/// Returns the mode of a session; the default mode if its thread is not a chat.
pub fn mode_of(live: &LiveState) -> ChatMode {
    live.state.chat.as_ref().map(|chat| chat.mode).unwrap_or_default()
}

/// Returns the modes that a session can have, and its current mode.
pub fn mode_state(current: ChatMode) -> SessionModeState {
    let modes = ChatMode::ALL.map(|mode| {
        let (name, about) = describe_mode(mode);
        SessionMode::new(mode.as_str(), name).description(about.to_owned())
    });
    SessionModeState::new(current.as_str(), modes.to_vec())
}

/// The current values of a session's configuration options, as the client sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionValues {
    pub mode: ChatMode,
    pub model: String,
    /// The `spend` limit of a prompt, in nano-dollars.
    pub budget: u64,
}

impl OptionValues {
    pub fn of(live: &LiveState) -> Self {
        Self { mode: mode_of(live), model: live.plan.model.id.clone(), budget: live.plan.limits.spend }
    }

    /// Returns the values as they are after the change that `verb` requests. The session may apply the change only at
    /// its next idle step.
    pub fn after(self, verb: &ChatVerb) -> Self {
        if let ChatVerb::Mode { mode, .. } = verb {
            Self { mode: (*mode).into(), ..self }
        } else if let ChatVerb::Model { model, .. } = verb {
            Self { model: model.clone(), ..self }
        } else if let ChatVerb::Budget { spend, .. } = verb {
            Self { budget: Nanos::from_json(spend).map_or(self.budget, Nanos::to_u64), ..self }
        } else {
            self
        }
    }
}

/// Returns the configuration options of a session.
pub fn config_options(values: &OptionValues, live: &LiveState, spaces: &Spaces) -> Vec<SessionConfigOption> {
    let mode_values: Vec<SessionConfigSelectOption> = ChatMode::ALL
        .into_iter()
        .map(|mode| {
            let (name, about) = describe_mode(mode);
            SessionConfigSelectOption::new(mode.as_str(), name).description(about.to_owned())
        })
        .collect();
    let of_mode = SessionConfigOption::select(MODE, "Mode", values.mode.as_str(), mode_values)
        .description("The tool calls that the next prompts may make".to_owned())
        .category(SessionConfigOptionCategory::Mode);
    // If the provider file cannot be read, the list contains only the current model.
    let mut choices = model_choices(spaces, &live.plan.model.provider).unwrap_or_default();
    if !choices.iter().any(|(id, _)| *id == values.model) {
        choices.insert(0, (values.model.clone(), Vec::new()));
    }
    let choices: Vec<SessionConfigSelectOption> = choices
        .into_iter()
        .map(|(id, tiers)| {
            let about = (!tiers.is_empty()).then(|| tiers.join(", "));
            SessionConfigSelectOption::new(id.clone(), id).description(about)
        })
        .collect();
    let of_model = SessionConfigOption::select(MODEL, "Model", values.model.clone(), choices)
        .description(format!("The model that answers the next prompts (provider `{}`)", live.plan.model.provider))
        .category(SessionConfigOptionCategory::Model);
    let budgets: Vec<SessionConfigSelectOption> = budgets(values.budget, live)
        .into_iter()
        .map(|nanos| Nanos::from_u64(nanos).to_string())
        .map(|amount| SessionConfigSelectOption::new(amount.clone(), format!("${amount}")))
        .collect();
    let budget = SessionConfigOption::select(BUDGET, "Budget", Nanos::from_u64(values.budget).to_string(), budgets)
        .description("The highest cost of a prompt, children included".to_owned())
        .category(SessionConfigOptionCategory::Other(BUDGET_CATEGORY.to_owned()));
    vec![of_mode, of_model, budget]
}

/// Returns the current budget and the entries of [`BUDGETS`] within the limits of the session: nano-dollars, in
/// ascending order.
fn budgets(current: u64, live: &LiveState) -> Vec<u64> {
    let session = live.plan.session_limits.map(|limits| limits.spend);
    let ceiling = live.plan.limit_ceilings.get(&LimitName::Spend).copied();
    let most = session.into_iter().chain(ceiling).min().unwrap_or(u64::MAX);
    let mut all: Vec<u64> = BUDGETS.into_iter().filter(|amount| *amount <= most).collect();
    all.push(current);
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the request that sets an option. `confirm` is true to accept a change that allows more, such as a higher
/// budget.
///
/// # Errors
/// Returns the reason if there is no such option or value.
pub fn option_request(id: &str, value: &SessionConfigOptionValue, confirm: bool) -> Result<ChatVerb, String> {
    let value = value.as_value_id().map(ToString::to_string);
    let value = value.ok_or_else(|| {
        format!("the value of the option `{}` must be the id of one of its values", id.escape_debug())
    })?;
    match id {
        MODE => mode_request(&value, confirm),
        MODEL => Ok(ChatVerb::Model { model: value, confirm }),
        BUDGET => match Nanos::parse(&value) {
            Ok(spend) if spend > Nanos::ZERO => Ok(ChatVerb::Budget { spend: spend.to_json(), confirm }),
            Ok(_) | Err(_) => {
                let value: String = value.escape_debug().take(60).collect();
                Err(format!("`{BUDGET}` must be an amount of dollars above 0, such as `0.25`, not `{value}`"))
            }
        },
        _ => Err(format!("unknown option `{}`: use `{MODE}`, `{MODEL}` or `{BUDGET}`", id.escape_debug())),
    }
}

/// Returns the request that sets the mode `id` of a chat. `confirm` is true to accept a mode that allows more.
///
/// # Errors
/// Returns the reason if there is no such mode.
pub fn mode_request(id: &str, confirm: bool) -> Result<ChatVerb, String> {
    let mode = ChatMode::parse(id);
    let mode = mode.ok_or_else(|| format!("unknown mode `{}`: use `read-only`, `ask` or `auto`", id.escape_debug()))?;
    Ok(ChatVerb::Mode { mode: mode.into(), confirm })
}
