//! The bounds of a prompt of a chat: the mode of the session and the bounds that the message of the prompt sets. Both
//! only narrow the limits and the grants of the thread.

use rye_compiler::plan::narrow::narrow_grants;
use rye_compiler::plan::{Grant, PalettePrimary, PaletteTool, Plan, PlanLimits};
use rye_compiler::primary::{ItemType, Primary, format_capability, possible_primaries};
use rye_compiler::semantics::capability::pattern_matches;
use rye_compiler::semantics::risk::{RiskTable, Tier};

use super::ThreadState;
use crate::event::{ChatMode, PromptBounds};

/// The text at the end of the answer to a denied call, if the grants of the thread allow the call and only the grants
/// of the current prompt deny it.
pub const DENIED_IN_PROMPT: &str = " (the user runs this prompt without this capability)";

/// Returns the limits of a prompt: the limits of the plan, with `spend` lowered to the amount in `bounds`, if there is
/// one.
pub(super) fn prompt_limits(plan: &Plan, bounds: &PromptBounds) -> PlanLimits {
    let spend = bounds.spend.map_or(plan.limits.spend, |most| most.min(plan.limits.spend));
    PlanLimits { spend, ..plan.limits }
}

/// Returns the grants that must allow each call of a prompt in addition to the grants of the thread; `None` if the mode
/// and the bounds narrow nothing.
pub(crate) fn prompt_grants(
    plan: &Plan,
    state: &ThreadState,
    mode: ChatMode,
    bounds: &PromptBounds,
) -> Option<Vec<Grant>> {
    let own = || state.launch.as_ref().and_then(|launch| launch.grants.first()).map_or(&[][..], Vec::as_slice);
    let of_mode = match mode {
        ChatMode::ReadOnly => Some(read_only_grants(plan, own())),
        ChatMode::Ask | ChatMode::Auto => None,
    };
    let Some(with) = &bounds.with else { return of_mode };
    Some(narrow_grants(of_mode.as_deref().unwrap_or_else(own), with).grants)
}

/// The patterns of the built-in risk table that cover every tool and every capability. [`read_only_grants`] ignores
/// these patterns, so that the risk table of a project can class the project's own tools as safe.
const CATCH_ALL_PATTERNS: [&str; 2] = ["rye.execute.*", "rye.*"];

/// Narrows grants to capabilities of the tier `safe`, and removes their folders and hosts. Grants to sign are left out.
/// Empty if the risk table cannot be read. A tool of the standard library is safe only if the built-in risk table also
/// classes it as safe. Otherwise, the risk table of a project could class a shell as safe.
pub fn read_only_grants(plan: &Plan, grants: &[Grant]) -> Vec<Grant> {
    let built_in = RiskTable::default();
    let table = match plan.settings.risk() {
        Ok(table) => table.unwrap_or(&built_in),
        // If the risk table cannot be read, no capability is known to be safe.
        Err(_) => return Vec::new(),
    };
    let patterns_of = |table: &RiskTable, tier| table.patterns_of(tier).map(str::to_owned).collect::<Vec<_>>();
    let risky =
        [Tier::Write, Tier::Elevated, Tier::Unrestricted].into_iter().flat_map(|tier| patterns_of(&built_in, tier));
    let risky: Vec<String> = risky.filter(|pattern| !CATCH_ALL_PATTERNS.contains(&pattern.as_str())).collect();
    let safe = patterns_of(&built_in, Tier::Safe);
    let narrowed = narrow_grants(grants, &patterns_of(table, Tier::Safe)).grants.into_iter().flat_map(|grant| {
        let one = std::slice::from_ref(&grant);
        let is_apart = narrow_grants(one, &risky).unused.len() == risky.len();
        if is_apart { vec![grant] } else { narrow_grants(one, &safe).grants }
    });
    let signs = |pattern: &str| possible_primaries(pattern).contains(&Primary::Sign);
    let narrowed = narrowed.filter(|grant| !signs(&grant.pattern));
    narrowed.map(|grant| Grant { net: Vec::new(), write: Vec::new(), ..grant }).collect()
}

/// Returns the grant sets that must all allow a call of the current prompt.
pub(super) fn current_grants(state: &ThreadState) -> &[Vec<Grant>] {
    let narrowed = state.chat.as_ref().and_then(|chat| chat.narrowed.as_deref());
    narrowed.or_else(|| state.launch.as_ref().map(|launch| &*launch.grants)).unwrap_or_default()
}

/// Returns true if the grants of the current prompt are narrower than the grants of the thread.
pub(super) fn is_narrowed(state: &ThreadState) -> bool {
    state.chat.as_ref().is_some_and(|chat| chat.narrowed.is_some())
}

/// Returns the tools that the next request offers: the tools of the plan that the current prompt may call.
pub(super) fn offered_tools<'p>(plan: &'p Plan, state: &ThreadState) -> Vec<&'p PaletteTool> {
    let narrowed = state.chat.as_ref().and_then(|chat| chat.narrowed.as_ref()?.first());
    let Some(grants) = narrowed else { return plan.palette.iter().collect() };
    plan.palette.iter().filter(|tool| may_call(tool, grants)).collect()
}

/// Returns true if the grants allow at least one call of the tool.
fn may_call(tool: &PaletteTool, grants: &[Grant]) -> bool {
    let primary = match tool.primary {
        PalettePrimary::Execute => Primary::Execute,
        PalettePrimary::Fetch => Primary::Fetch,
        PalettePrimary::Sign => Primary::Sign,
        PalettePrimary::Return => return true,
    };
    match &tool.item_id {
        Some(id) => {
            let capability = format_capability(primary, ItemType::Tool, Some(id));
            grants.iter().any(|grant| pattern_matches(&grant.pattern, &capability))
        }
        None => grants.iter().any(|grant| possible_primaries(&grant.pattern).contains(&primary)),
    }
}
