//! Limits that can never be reached, because another limit or the model always applies first (`language.md` 11).

use rye_grammar::Span;
use rye_grammar::data::Node;

use super::fact_bounds::{highest_limit, raised_limit};
use super::spawn::directive_may_spawn;
use crate::compose::Composed;
use crate::diagnostics::{CapabilityError, Diagnostics, LimitError};
use crate::hook::{HookAction, HookPoint};
use crate::item::{DeclaredLimit, DeclaredOrigin, Items};
use crate::lower::{LowerSummary, MIN_OUTPUT_TOKENS};
use crate::plan::{PlanSettings, PlannedModel, Prices};
use crate::semantics::limits::{LimitName, LimitSetting, parse_limit_value};
use crate::semantics::money::Nanos;
use crate::world::ItemKind;

/// Maximum attempts of a turn, as a multiple of the attempts in the retry table: `error` hooks can double the attempts,
/// and a fallback can double them again.
const ATTEMPTS_PER_RETRY: u64 = 4;

/// Minimum number of retries that the estimate of attempts assumes, even if the settings allow fewer. The built-in
/// retry table has this number.
const MIN_RETRIES: u64 = 3;

/// Folder of the tools that start and control threads.
const THREAD_TOOLS: &str = "rye/agent/threads/";

/// Minimum output tokens of a reply.
const MIN_REPLY_TOKENS: u64 = 1;

/// Reports grants to execute directives that a limit of 0 on `depth` or `spawns` makes useless. `starts` is true if the
/// body names a child: the spawn checks then report the limit, and this function reports nothing.
pub fn check_child_grants(composed: &Composed, audit: &LowerSummary, starts: bool, found: &mut Diagnostics) {
    let limit = match (audit.limits.depth, audit.limits.spawns) {
        (0, _) => "depth",
        (_, 0) => "spawns",
        _ => return,
    };
    let Some(permissions) = composed.leaf().and_then(|leaf| leaf.permissions.as_ref()).filter(|_| !starts) else {
        return;
    };
    for grant in &permissions.grants {
        let Some(id) = grant.pattern.0.strip_prefix("rye.execute.directive.") else { continue };
        found.push(CapabilityError::DeadGrant {
            pattern: grant.pattern.0.clone(),
            item: id.replace('.', "/"),
            why: format!("the limit `{limit}` is 0"),
            add: None,
            tokens: 0,
            span: grant.span,
        });
    }
}

/// Reports unreachable limits that the last directive of the chain itself declares.
pub fn check(items: &Items<'_>, composed: &Composed, audit: &LowerSummary, found: &mut Diagnostics) {
    let Some(leaf) = composed.leaf().filter(|leaf| !leaf.limits.is_empty()) else { return };
    let reachable = ReachableLimits { composed, audit };
    for limit in &leaf.limits {
        // Without `<permissions>`, every call of a root thread is denied anyway.
        let is_granted = composed.permissions.as_ref().is_some_and(|permissions| !permissions.value.grants.is_empty());
        let is_one_turn = limit.name.node == "turns" && reachable.turns() == Some(1);
        if is_one_turn && audit.offers_tools && is_granted {
            let span = limit.name.span.join(limit.value.span);
            found.push(LimitError::OneTurn { has_outputs: !composed.outputs.is_empty(), span });
        }
        if let Some(error) = above_ceiling(items, composed, limit) {
            found.push(error);
            continue;
        }
        let because = LimitName::parse(&limit.name.node).and_then(|name| reachable.unreachable_reason(name));
        let Some(because) = because else { continue };
        found.push(LimitError::NeverBinds {
            name: limit.name.node.clone(),
            because,
            span: limit.name.span.join(limit.value.span),
        });
    }
}

/// Returns the error for a limit that is above a maximum in the settings of the project; `None` if there is no such
/// maximum. A maximum in the settings of the user space is not reported, because it bounds the directives of every
/// project.
fn above_ceiling(items: &Items<'_>, composed: &Composed, limit: &DeclaredLimit) -> Option<LimitError> {
    let name = LimitName::parse(&limit.name.node)?;
    let declared = parse_limit_value(name, &limit.value.node).ok()?;
    let span = limit.name.span.join(limit.value.span);
    above_project_ceiling(items, &composed.limits.ceilings, (name, declared), span)
}

/// Returns the error for a limit whose declared value is above the project's maximum in `ceilings`; `None` for any
/// other value. `span` is the place of the declaration.
pub(super) fn above_project_ceiling(
    items: &Items<'_>,
    ceilings: &[LimitSetting<DeclaredOrigin>],
    (name, declared): (LimitName, u64),
    span: Span,
) -> Option<LimitError> {
    let (most, ceiling) = project_ceiling(items, ceilings, name).filter(|(most, _)| *most < declared)?;
    Some(LimitError::AboveCeiling {
        name: name.to_string(),
        declared: format_limit(name, declared),
        most: format_limit(name, most),
        span,
        ceiling,
    })
}

/// Reports each limit in the `<session>` of the chain's last directive that is above the limit of the settings. If the
/// settings of the user space set this limit, nothing is reported, because the limit bounds the directives of every
/// project.
pub(crate) fn check_session(items: &Items<'_>, composed: &Composed, found: &mut Diagnostics) {
    let Some(leaf) = composed.leaf().filter(|leaf| !leaf.session_limits.is_empty()) else { return };
    let settings = items.config_by_name("agent/resilience").map(|node| ("resilience".to_owned(), node.to_value()));
    let settings = PlanSettings::new(settings.into_iter().collect());
    let limits = settings.values().session_limits;
    let of_settings = &items.settings_limits().session;
    let sources = items.sources();
    let is_of_user = |span: Span| sources.get(span.source).is_some_and(|source| source.path.starts_with("user:"));
    for limit in &leaf.session_limits {
        let most = match LimitName::parse(&limit.name.node) {
            Some(LimitName::Turns) => limits.turns,
            Some(LimitName::Tokens) => limits.tokens,
            Some(LimitName::Spend) => limits.spend,
            Some(LimitName::DurationSeconds) => limits.duration_seconds,
            Some(LimitName::Spawns | LimitName::Depth | LimitName::Output) | None => continue,
        };
        let Some(name) = LimitName::parse(&limit.name.node) else { continue };
        let set = of_settings.iter().find(|setting| setting.name == name.as_str()).and_then(|set| set.source.span);
        let declared = parse_limit_value(name, &limit.value.node).unwrap_or_default();
        if declared > most && !set.is_some_and(is_of_user) {
            found.push(LimitError::AboveSessionLimit {
                name: name.to_string(),
                declared: format_limit(name, declared),
                most: format_limit(name, most),
                span: limit.name.span.join(limit.value.span),
                ceiling: set,
            });
        }
    }
}

/// Returns the smallest maximum of a limit in the settings of the project, with its place.
pub(super) fn project_ceiling(
    items: &Items<'_>,
    ceilings: &[LimitSetting<DeclaredOrigin>],
    name: LimitName,
) -> Option<(u64, Span)> {
    let sources = items.sources();
    let of_project = |span: Span| sources.get(span.source).is_some_and(|source| source.path.starts_with(".ai/"));
    let ceilings = ceilings.iter().filter(|ceiling| LimitName::parse(&ceiling.name) == Some(name));
    let values = ceilings.filter_map(|one| Some((parse_limit_value(name, &one.written).ok()?, one.source.span?)));
    values.filter(|(_, span)| of_project(*span)).min_by_key(|(most, _)| *most)
}

/// Formats the value of a limit: an amount of money for `spend`, else a number.
pub(super) fn format_limit(name: LimitName, value: u64) -> String {
    if name == LimitName::Spend { Nanos::from_u64(value).to_string() } else { value.to_string() }
}

/// The highest values that limits can have in a run. Only a hook at the hook point `limit` can raise the limit that was
/// reached, or let the thread continue beyond it. A hook at another point cannot do so, because the limits are checked
/// again after it.
struct ReachableLimits<'c> {
    composed: &'c Composed,
    audit: &'c LowerSummary,
}

impl ReachableLimits<'_> {
    /// Returns the maximum turns of a run; `None` if the turns have no bound.
    fn turns(&self) -> Option<u64> {
        self.count(LimitName::Turns, self.audit.limits.turns)
    }

    fn spend(&self) -> Option<Nanos> {
        let declared = self.audit.limits.spend;
        let Some(raised) = raised_limit(self.composed, LimitName::Spend)? else { return Some(declared) };
        // Amounts have at most nine decimal places.
        Some(Nanos::parse(&format!("{raised:.9}")).map_or(declared, |raised| raised.max(declared)))
    }

    fn count(&self, name: LimitName, declared: u64) -> Option<u64> {
        #[expect(clippy::cast_precision_loss, reason = "limits are far below 2^53")]
        let highest = highest_limit(self.composed, name, declared as f64)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the conversion saturates")]
        Some((highest.ceil() as u64).max(declared))
    }

    /// Returns true if the thread may have children: a grant allows the start of a thread, or a hook executes a
    /// directive or a tool of `rye/agent/threads`.
    fn may_start(&self) -> bool {
        let is_starting = |action: &HookAction| {
            let HookAction::Execute { item_type, item_id, .. } = action else { return false };
            *item_type == ItemKind::Directive || item_id.starts_with(THREAD_TOOLS)
        };
        let actions = self.composed.hooks.iter().filter(|hook| hook.is_live()).filter_map(|h| h.decl.action.as_ref());
        directive_may_spawn(self.composed) || actions.into_iter().any(|action| is_starting(&action.node))
    }

    /// Returns the reason why a limit is never reached; `None` if it may be reached.
    fn unreachable_reason(&self, name: LimitName) -> Option<String> {
        let (limits, model) = (&self.audit.limits, &self.audit.model);
        let alone = "no grant allows the directive to start another directive".to_owned();
        match name {
            LimitName::Spawns if limits.spawns > 0 && !self.may_start() => Some(alone),
            LimitName::Depth if limits.depth > 0 && !self.may_start() => Some(alone),
            LimitName::Spawns if limits.spawns > 0 && self.count(LimitName::Depth, limits.depth) == Some(0) => {
                Some("`depth` is 0, so the directive can have no children".to_owned())
            }
            LimitName::Depth if limits.depth > 0 && self.count(LimitName::Spawns, limits.spawns) == Some(0) => {
                Some("`spawns` is 0, so the directive can have no children".to_owned())
            }
            LimitName::Turns => {
                // A model with a fallback is not checked, because the fallback may cost less.
                let prices = model.prices.filter(|p| *p != Prices::NONE && model.fallback.is_none())?;
                let spend = self.spend()?;
                // A turn starts only if the remaining spend covers its worst case. The cost of the prompt is left out
                // of the worst case here.
                let last = prices.worst_case(0, model.requested_output(limits.output).min(MIN_OUTPUT_TOKENS));
                let left = Nanos(spend.0.saturating_sub(last.0).max(0));
                // A hook that shortens requests can leave out any part of the opening.
                let opening = if may_shorten_requests(self.composed) { 0 } else { self.audit.opening };
                let most = prices.max_turns_within(left, opening, opening, MIN_REPLY_TOKENS)?;
                // Token counts are estimates: a text can have 1.5 times as many characters per token as the estimate
                // assumes.
                (most.saturating_add(most / 2) < limits.turns).then(|| {
                    let what = format!("at most {most} of {} turns are affordable", limits.turns);
                    format!("{what} with a `spend` of {spend} and the prices of `{}`", model.id)
                })
            }
            LimitName::Output if limits.output > model.max_output => {
                Some(format!("`{}` answers with at most {} tokens", model.id, model.max_output))
            }
            LimitName::Output
                if self.count(LimitName::Tokens, limits.tokens).is_some_and(|most| most < limits.output) =>
            {
                Some(format!("`tokens` allows {} tokens for the whole thread", limits.tokens))
            }
            LimitName::Spend if is_free(model) && !self.may_start() && limits.spend > Nanos(0) => {
                Some(format!("`{}` costs nothing, and the directive starts no other directive", model.id))
            }
            // With prices, `tokens` and `spend` can always be reached: each cut attempt is booked with the bytes of its
            // prompt, and a resumed thread repeats attempts without a maximum.
            LimitName::Spawns
            | LimitName::Depth
            | LimitName::Output
            | LimitName::Tokens
            | LimitName::Spend
            | LimitName::DurationSeconds => None,
        }
    }
}

/// Returns true if a model and its fallbacks are declared to cost nothing (`prices: none`).
fn is_free(model: &PlannedModel) -> bool {
    model.prices == Some(Prices::NONE) && model.fallback.as_deref().is_none_or(is_free)
}

/// Returns true if a hook may leave out a part of the opening in a later request: a `context` hook, or a hook that
/// replaces the system prompt.
fn may_shorten_requests(composed: &Composed) -> bool {
    let shortens = |action: &HookAction| {
        let is_shorter = matches!(
            action,
            HookAction::Drop { .. }
                | HookAction::KeepLast { .. }
                | HookAction::Replace { .. }
                | HookAction::Execute { .. }
        );
        is_shorter || action.replaces_system_prompt()
    };
    let at = |event: HookPoint| matches!(event, HookPoint::Context | HookPoint::BeforeAgentStart);
    let hooks = composed.hooks.iter().filter(|hook| hook.is_live() && at(hook.decl.event));
    hooks.filter_map(|hook| hook.decl.action.as_ref()).any(|action| shortens(&action.node))
}

/// Returns the maximum number of attempts of one turn. `retries` is the number of retries in the settings.
pub fn most_attempts(retries: u64) -> u64 {
    ATTEMPTS_PER_RETRY.saturating_mul(retries.max(MIN_RETRIES).saturating_add(1))
}

/// Returns the largest `max_retries` at any depth of a settings file; 0 if there is none.
pub fn most_retries(node: &Node) -> u64 {
    let own = node.get("max_retries").and_then(|value| value.to_value().as_u64());
    let below = node.entries().iter().map(|entry| &entry.value).chain(node.items()).map(most_retries);
    below.chain(own).max().unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::compile::tests::world::{stdlib_world, with_directives};
    use crate::validate::{Selection, check};

    /// Returns the limits that are reported as never reached, for a directive with these limits, grants and hooks.
    fn unreachable(limits: &str, granted: &str, hooks: &str) -> Vec<String> {
        let model = "<model provider=\"anthropic\" id=\"claude-haiku-4-5\"/>";
        let granted = format!("<permissions><execute>{granted}</execute></permissions>");
        let inside = format!("<metadata>{model}<limits {limits}/>{granted}<hooks>{hooks}</hooks></metadata>");
        let world = with_directives(stdlib_world(), &[("leaf", "", &inside, "Look."), ("child", "", "", "Help.")]);
        let report = check(&world, &Selection::All);
        let errors: Vec<String> = report
            .diagnostics
            .iter()
            .filter(|one| one.is_error())
            .map(crate::diagnostics::Diagnostic::message)
            .collect();
        assert!(errors.is_empty(), "{limits} {hooks}: {errors:?}");
        let found = report.diagnostics.iter().filter(|one| one.code() == "limit::never-binds");
        found.map(|one| one.message().split('`').nth(1).unwrap().to_owned()).collect()
    }

    fn at_limit(condition: &str, action: &str) -> String {
        format!("<hook id=\"h\" event=\"limit\"><when>{condition}</when>{action}</hook>")
    }

    #[test]
    fn only_hooks_that_lift_a_limit_make_another_one_reachable() {
        let read = "<tool>rye.file-system.read</tool>";
        let always = "limit_code != \"\"";
        let raise =
            |limit: &str, value: &str| at_limit(always, &format!("<raise limit=\"{limit}\" value=\"{value}\"/>"));
        let continues = at_limit(always, "<continue/>");
        let at_turns = at_limit("limit_code == \"turns_exceeded\"", "<continue/>");
        let retry = "<hook id=\"h\" event=\"error\"><when>attempt &lt; 2</when><retry/></hook>";
        let start = "<hook id=\"h\" event=\"agent_end\"><execute item_type=\"directive\" item_id=\"child\"/></hook>";
        let turns = "turns=\"9000\" spend=\"0.02\" output=\"256\"";
        let keeps = "<hook id=\"h\" event=\"context\"><keep_last n=\"1\"/></hook>";
        let (no_depth, no_spawns) = ("spawns=\"3\" depth=\"0\"", "spawns=\"0\" depth=\"3\"");
        for (limits, hooks, expected) in [
            // No hook raises the limit that is reached first high enough.
            (turns, String::new(), vec!["turns"]),
            (turns, retry.to_owned(), vec!["turns"]),
            (turns, at_turns.clone(), vec!["turns"]),
            (turns, raise("spend", "0.03"), vec!["turns"]),
            ("output=\"900000\"", continues.clone(), vec!["output"]),
            // A hook raises the limit that is reached first high enough, lets the thread continue, or spends more.
            (turns, raise("spend", "100"), vec![]),
            (turns, continues.clone(), vec![]),
            // A short request costs only its reply.
            (turns, keeps.to_owned(), vec!["turns"]),
            ("turns=\"4000\" spend=\"0.02\" output=\"256\"", String::new(), vec!["turns"]),
            ("turns=\"4000\" spend=\"0.02\" output=\"256\"", keeps.to_owned(), vec![]),
            ("turns=\"600\" spend=\"0.02\" output=\"256\"", String::new(), vec![]),
        ] {
            assert_eq!(unreachable(limits, read, &hooks), expected, "{limits} {hooks}");
        }
        let child = "<directive>child</directive>";
        assert_eq!(unreachable(no_depth, child, retry), ["spawns"]);
        assert_eq!(unreachable(no_depth, child, &raise("depth", "2")), Vec::<String>::new());
        assert_eq!(unreachable(no_spawns, child, &raise("turns", "100")), ["depth"]);
        assert_eq!(unreachable(no_spawns, child, &raise("spawns", "2")), Vec::<String>::new());
        assert_eq!(unreachable("spawns=\"3\"", read, retry), ["spawns"]);
        assert_eq!(unreachable("spawns=\"3\"", read, start), Vec::<String>::new());
    }

    #[test]
    fn limits_that_repeated_attempts_can_reach_are_not_reported() {
        for limits in ["turns=\"3\" spend=\"900\"", "turns=\"2\" tokens=\"900000000\""] {
            assert_eq!(unreachable(limits, "<tool>rye.file-system.read</tool>", ""), Vec::<String>::new(), "{limits}");
        }
    }

    #[test]
    fn attempts_follow_from_the_settings_of_retries() {
        let node = |text: &str| rye_grammar::yaml::parse(rye_grammar::SourceId(0), text).tree;
        let file = node("rules: [{ id: a, retry: { max_retries: 40 } }, { id: b }]\nretry: { max_retries: 5 }\n");
        assert_eq!(super::most_retries(&file), 40);
        assert_eq!(super::most_retries(&node("rules: []")), 0);
    }
}
