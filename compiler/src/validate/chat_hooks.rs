//! Reports `input` hooks that keep every message from the model, and hooks that can fire only in a chat although their
//! directive is not for chats.

use rye_grammar::condition::Path;

use super::domain;
use crate::compose::Composed;
use crate::diagnostics::{Diagnostics, HookError};
use crate::hook::{HookAction, HookPoint};
use crate::item::HookDecl;
use crate::resolve::KnownFacts;
use crate::semantics::condition::{Domain, Fuel, Verdict};
use crate::semantics::hook_point;

/// The deliveries of messages in a run: the message of a resume, and the messages that reach a running thread.
const DELIVERIES_OF_RUNS: [&str; 3] = ["prompt", "steer", "follow_up"];

/// The standard directive of chats. A directive that extends it is meant for chats.
pub(super) const CHAT_DIRECTIVE: &str = "rye/agent/chat";

/// Checks a hook. `own` is the composition of the directive that declares the hook; `None` if a settings file declares
/// the hook.
pub fn check(hook: &HookDecl, own: Option<&Composed>, found: &mut Diagnostics) {
    let id = || hook.id.node.clone();
    let is_handled = hook.action.as_ref().is_some_and(|action| matches!(action.node, HookAction::Handled { .. }));
    if hook.event == HookPoint::Input && is_handled && hook.condition.is_none() {
        found.push(HookError::SwallowsEverything { id: id(), span: hook.span });
    }
    let is_for_chats = |own: &Composed| own.chain.iter().any(|link| link.id().as_str() == CHAT_DIRECTIVE);
    if own.is_some_and(|own| !is_for_chats(own))
        && let Some(because) = reason_against_runs(hook)
    {
        let span = hook.condition.as_ref().map_or(hook.span, |condition| condition.span);
        found.push(HookError::NeverInRun { id: id(), because, span });
    }
}

/// Returns the reason why a hook can fire in a chat but not in a run; `None` if the hook can fire in a run, or if it
/// cannot fire in a chat either.
fn reason_against_runs(hook: &HookDecl) -> Option<&'static str> {
    if hook.event == HookPoint::Command {
        return Some("only a chat has commands");
    }
    if hook.event != HookPoint::Input || hook.compiled.is_none() {
        return None;
    }
    let point = hook_point::row_of(hook.event);
    let of_runs = |path: &Path| {
        let values = || DELIVERIES_OF_RUNS.iter().map(|value| Some((*value).into())).collect();
        if path.to_string() == "delivery" {
            Some(Domain::Values(values()))
        } else {
            domain::fact_domain(point, path, None)
        }
    };
    let of_chats = |path: &Path| domain::fact_domain(point, path, None);
    let is_false = |domain: &dyn Fn(&Path) -> Option<Domain>| {
        KnownFacts::empty().verdict_over(hook, domain, &mut Fuel::share(1)) == Verdict::False
    };
    (is_false(&of_runs) && !is_false(&of_chats)).then_some("no message of a run has the delivery `next_turn`")
}
