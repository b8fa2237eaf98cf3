//! Bounds on the values that the facts of hooks can have in the threads of a directive, as far as they are known before
//! a run. Limits bound the facts about costs, and grants bound the facts about calls. `model` has no bound, because
//! `--model` accepts models that no provider file lists. If a condition matches calls by a pattern, the condition is
//! evaluated for each existing item.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use rye_grammar::condition::Path;
use rye_grammar::{ItemId, Span};
use serde_json::Value;

use super::model::ModelIds;
use super::unreachable_limits::{most_attempts, most_retries};
use crate::commands::read_commands;
use crate::compose::{Composed, ComposedHook};
use crate::diagnostics::Diagnostics;
use crate::hook::{HookAction, HookPoint};
use crate::item::{HookDecl, Items};
use crate::palette::tool_name;
use crate::primary::{DIRECTIVE_RETURN_TOOL, Primary};
use crate::semantics::capability::{self, CapabilityRequest, CapabilitySet, ItemType};
use crate::semantics::condition::{Condition, Domain, Verdict};
use crate::semantics::facts::Facts;
use crate::semantics::hook_table::INFRASTRUCTURE_LAYER;
use crate::semantics::limits::{LimitName, Limits, resolve_declared};
use crate::world::ItemKind;

/// The reason why the values of a fact have a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundCause {
    Limits,
    Grants,
    /// The fact is the used fraction of the context window; `MAX_USAGE_RATIO` is its highest value.
    Fraction,
    /// The fact counts the attempts of a call, and retries have a maximum.
    Retries,
    /// The fact counts tokens of one context window, whose size the provider file of the model states.
    Windows,
    /// The fact counts tokens of the thread. A thread can exceed its token limit in its last turn, but is assumed not
    /// to use several times the limit.
    Overshoot,
    /// The assumption that no provider reports a cost of several times the spend limit.
    Overspend,
}

impl BoundCause {
    pub const ALL: [Self; 7] =
        [Self::Overshoot, Self::Overspend, Self::Grants, Self::Limits, Self::Fraction, Self::Retries, Self::Windows];
}

/// The highest possible usage of a context window, as a multiple of its size. An estimate may exceed the window, but no
/// request is several times as large as the window.
const MAX_USAGE_RATIO: f64 = 4.0;

/// The highest token usage of a thread without an unusually large turn, as a multiple of the token limit. A thread can
/// exceed its limit, because the limit is checked only before a turn.
const MAX_OVERSHOOT: f64 = 4.0;

/// Number of tokens of one large request. Such a request can exceed a small token limit many times over, so the bound
/// on the used tokens is `MAX_OVERSHOOT` times the limit plus this number.
const LARGE_REQUEST_TOKENS: f64 = 100_000.0;

/// Seconds by which a thread may exceed its duration: calls are cut at the limit and then have some time to end.
const DURATION_TOLERANCE: f64 = 60.0;

/// Maximum number of granted calls that are listed as the possible values of a fact such as `call.item_id`. If the
/// condition of a hook matches more granted calls, the called tool counts as unknown.
const MAX_MATCHING_CALLS: usize = 64;

/// For each hook (by its span) and each fact that names a call: the calls that meet the hook's condition. The calls are
/// the same for every directive, so all directives of a check share this memo.
#[derive(Default)]
pub struct MatchingCalls(RefCell<CallsByHook>);

type CallsByHook = BTreeMap<(Span, CallFact), Rc<[String]>>;

/// A fact that identifies the called tool: `call.item_id` or `call.name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CallFact {
    ItemId,
    Name,
}

/// The values that the facts of a directive's hooks can have, derived from the directive's limits, grants and models.
/// Limits, grants and models are read when a hook first needs them.
pub struct FactBounds<'c, 'w> {
    items: &'c Items<'w>,
    composed: &'c Composed,
    matching: &'c MatchingCalls,
    limits: OnceCell<Option<Limits>>,
    grants: OnceCell<Option<CapabilitySet>>,
    models: OnceCell<ModelIds>,
}

impl<'c, 'w> FactBounds<'c, 'w> {
    pub fn new(items: &'c Items<'w>, composed: &'c Composed, matching: &'c MatchingCalls) -> Self {
        let (limits, grants, models) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Self { items, composed, matching, limits, grants, models }
    }

    pub fn items(&self) -> &'c Items<'w> {
        self.items
    }

    /// Returns the values that the fact `path` can have when `hook` runs; `None` if no bound is known. Bounds with the
    /// cause `without` are ignored.
    pub(crate) fn domain(&self, hook: &HookDecl, path: &Path, without: Option<BoundCause>) -> Option<Domain> {
        match path.to_string().as_str() {
            "model" => compared_texts(hook, path),
            "name" if hook.event == HookPoint::Command => Some(self.command_names()),
            "call.item_id" if without != Some(BoundCause::Grants) => self.calls(hook, path, CallFact::ItemId),
            "call.name" if without != Some(BoundCause::Grants) => self.calls(hook, path, CallFact::Name),
            "attempt" if without != Some(BoundCause::Retries) && hook.event == HookPoint::Error => self.attempts(),
            "tokens_used" | "tokens_limit" if without != Some(BoundCause::Windows) => self.window(path),
            "usage_ratio" if without != Some(BoundCause::Fraction) => Some(number_up_to(MAX_USAGE_RATIO, false)),
            fact if without != Some(BoundCause::Limits) => self.limited(fact, without),
            _ => None,
        }
    }

    /// Returns the names of the commands of all spaces.
    fn command_names(&self) -> Domain {
        let commands = read_commands(self.items, &mut Diagnostics::new());
        Domain::Values(commands.iter().map(|command| Some(Value::from(command.hook.id.node.as_str()))).collect())
    }

    /// Returns the bound on the attempts of a call; `None` if a hook may repeat a call any number of times.
    fn attempts(&self) -> Option<Domain> {
        // A hook with the action `retry` needs no check, because the configured maximum of retries bounds its retries
        // too.
        let repeats = |hook: &ComposedHook| {
            let action = hook.decl.action.as_ref().map(|action| &action.node);
            let is_repeating = matches!(action, Some(HookAction::Continue | HookAction::Execute { .. }));
            let is_applied = hook.is_live() && hook.layer < INFRASTRUCTURE_LAYER;
            is_applied && hook.decl.event == HookPoint::Error && is_repeating
        };
        if self.composed.hooks.iter().any(repeats) {
            return None;
        }
        let files = ["agent/resilience", "agent/error_classification"];
        let most = files.into_iter().filter_map(|file| self.items.config_by_name(file)).map(|file| most_retries(&file));
        let most = most_attempts(most.max().unwrap_or(0));
        #[expect(clippy::cast_precision_loss, reason = "a number of retries is far below 2^53")]
        Some(Domain::Number { whole: true, least: Some(1), most: Some(most as f64), optional: false })
    }

    /// Returns the domain of a fact about the tokens of one context window, such as `tokens_used`; `None` if no model
    /// is listed.
    fn window(&self, path: &Path) -> Option<Domain> {
        #[expect(clippy::cast_precision_loss, reason = "context windows are far below 2^53")]
        let window = self.models().largest_request()? as f64;
        Some(number_up_to(if path.to_string() == "tokens_used" { window * MAX_USAGE_RATIO } else { window }, true))
    }

    /// Returns the possible values of a fact that a limit bounds. If a hook can raise the limit, the raised value is
    /// the bound. `None` if no limit bounds the fact, or if a hook may let the thread continue beyond the limit.
    ///
    /// Counts of tokens and costs have a bound only under the assumptions `Overshoot` and `Overspend`. In general no
    /// such bound exists: a turn can have any number of attempts, each cut attempt counts the bytes of its prompt, and
    /// a provider can report more than was reserved. If `without` is one of these two assumptions, the facts whose
    /// bound needs this assumption have no bound.
    fn limited(&self, fact: &str, without: Option<BoundCause>) -> Option<Domain> {
        let limit = match fact {
            "cost.turns" | "turn" | "loop_count" | "limits.turns" | "max_turns" => LimitName::Turns,
            "cost.spend" | "cost.current" | "cost.limit" | "limits.spend" | "spend_limit" => LimitName::Spend,
            "cost.input_tokens" | "cost.output_tokens" | "cost.cached_tokens" | "limits.tokens" => LimitName::Tokens,
            "cost.elapsed_seconds" | "limits.duration_seconds" => LimitName::DurationSeconds,
            "limits.spawns" => LimitName::Spawns,
            "depth" | "limits.depth" => LimitName::Depth,
            "limits.output" => LimitName::Output,
            _ => return None,
        };
        let limits = self.limits.get_or_init(|| declared_limits(self.composed)).as_ref()?;
        let declared = match limit {
            LimitName::Turns => limits.turns,
            LimitName::Tokens => limits.tokens,
            LimitName::Spawns => limits.spawns,
            LimitName::Depth => limits.depth,
            LimitName::DurationSeconds => limits.duration_seconds,
            LimitName::Output => limits.output,
            LimitName::Spend => {
                let most = highest_limit(self.composed, limit, limits.spend.to_string().parse().ok()?)?;
                return match fact {
                    "cost.spend" | "cost.current" => {
                        (without != Some(BoundCause::Overspend)).then(|| number_up_to(most * MAX_OVERSHOOT, false))
                    }
                    _ => Some(number_up_to(most, false)),
                };
            }
        };
        #[expect(clippy::cast_precision_loss, reason = "limits are far below 2^53")]
        let most = highest_limit(self.composed, limit, declared as f64)?;
        Some(match fact {
            "cost.input_tokens" | "cost.output_tokens" | "cost.cached_tokens" => {
                let usual = number_up_to(most * MAX_OVERSHOOT + LARGE_REQUEST_TOKENS, true);
                return (without != Some(BoundCause::Overshoot)).then_some(usual);
            }
            "cost.elapsed_seconds" => number_up_to(most + DURATION_TOLERANCE, false),
            _ => number_up_to(most, limit != LimitName::DurationSeconds),
        })
    }

    /// Returns the possible values of a fact that holds the item id or the name of a call: the granted calls that the
    /// condition of the hook distinguishes, one text that stands for all other calls, and the absent value. `None` if
    /// the condition distinguishes too many granted calls. Also `None` if the chain declares no grants, because the
    /// grants of the spawn parent then apply.
    fn calls(&self, hook: &HookDecl, path: &Path, fact: CallFact) -> Option<Domain> {
        self.grants()?;
        let condition = hook.compiled.as_ref()?;
        let samples = condition.samples().into_iter().find(|samples| samples.path == *path)?;
        let is_granted = |name: &str| match fact {
            CallFact::ItemId => ItemId::parse(name).is_ok_and(|id| self.may_call(&id)),
            CallFact::Name => self.may_call_by_name(name),
        };
        let names: Vec<Value> = if samples.open || samples.ordered || !samples.parts.is_empty() {
            let matching = self.matching_calls(hook, condition, path, fact);
            let granted = matching.iter().filter(|name| is_granted(name)).take(MAX_MATCHING_CALLS + 1);
            let granted: Vec<Value> = granted.map(|name| Value::from(name.as_str())).collect();
            (granted.len() <= MAX_MATCHING_CALLS).then_some(granted)?
        } else {
            samples.values.into_iter().filter(|value| value.as_str().is_none_or(is_granted)).collect()
        };
        Some(Domain::Values(names.into_iter().map(Some).chain([Some(Value::from("\u{1}")), None]).collect()))
    }

    /// Returns the calls for which the condition of a hook can be true: the ids of items (for [`CallFact::ItemId`]) or
    /// the names of tools (for [`CallFact::Name`]). `path` is the fact that holds the id or the name. All other facts
    /// of the condition count as unknown.
    fn matching_calls(&self, hook: &HookDecl, condition: &Condition, path: &Path, fact: CallFact) -> Rc<[String]> {
        // Read the lists for every directive, so that each directive depends on them.
        let lists = ItemType::ALL.map(|item_type| self.items.list(item_type.kind()));
        if let Some(known) = self.matching.0.borrow().get(&(hook.span, fact)) {
            return known.clone();
        }
        let mut facts = Facts::new();
        for other in condition.paths().into_iter().filter(|other| *other != path) {
            facts.declare_unknown(&other.to_string());
        }
        let ids = lists.iter().flat_map(|list| list.iter()).map(|entry| &entry.id);
        let mut names: Vec<String> = match fact {
            CallFact::ItemId => ids.map(ToString::to_string).collect(),
            CallFact::Name => {
                let own = Primary::ALL.map(Primary::tool_name).into_iter().chain([DIRECTIVE_RETURN_TOOL]);
                let tools = self.items.list(ItemKind::Tool);
                own.map(str::to_owned).chain(tools.iter().map(|entry| tool_name(&entry.id))).collect()
            }
        };
        names.sort_unstable();
        names.dedup();
        names.retain(|name| {
            facts.set(&path.to_string(), Value::from(name.as_str()));
            condition.evaluate(&facts) != Verdict::False
        });
        let names: Rc<[String]> = names.into();
        self.matching.0.borrow_mut().insert((hook.span, fact), names.clone());
        names
    }

    fn grants(&self) -> Option<&CapabilitySet> {
        let read = || {
            let permissions = self.composed.permissions.as_ref()?;
            Some(CapabilitySet::new(permissions.value.grants.iter().map(|g| g.pattern.0.as_str())))
        };
        self.grants.get_or_init(read).as_ref()
    }

    /// Returns true if a thread may make some call of an item: a grant allows the call, no permissions are declared, or
    /// the item is a tool of the engine.
    fn may_call(&self, id: &ItemId) -> bool {
        let Some(grants) = self.grants() else { return true };
        // Tools of the engine need no grant.
        if id.as_str().starts_with("rye/agent/threads/") {
            return true;
        }
        capability::Primary::ALL.into_iter().any(|primary| {
            ItemType::ALL.into_iter().any(|item_type| {
                let request = CapabilityRequest { primary, item_type, item_id: Some(id), space: None };
                grants.first_match(&request.capability()).is_some()
            })
        })
    }

    fn may_call_by_name(&self, name: &str) -> bool {
        if name == DIRECTIVE_RETURN_TOOL || Primary::ALL.into_iter().any(|primary| primary.tool_name() == name) {
            return true;
        }
        let tools = self.items.list(ItemKind::Tool);
        tools.iter().any(|entry| tool_name(&entry.id) == name && self.may_call(&entry.id))
    }

    fn models(&self) -> &ModelIds {
        self.models.get_or_init(|| ModelIds::read(self.items))
    }
}

/// Returns the values to try for a fact that may be any text: each text with which the condition compares the fact, and
/// one text that stands for all others. `None` if the condition reads the fact in other ways, such as by a pattern.
pub fn compared_texts(hook: &HookDecl, path: &Path) -> Option<Domain> {
    let samples = hook.compiled.as_ref()?.samples().into_iter().find(|samples| samples.path == *path)?;
    let is_compared_as_a_whole = !samples.open && !samples.ordered && samples.parts.is_empty();
    let texts = samples.values.into_iter().filter(Value::is_string).chain([Value::from("\u{1}")]);
    is_compared_as_a_whole.then(|| Domain::Values(texts.map(Some).collect()))
}

/// Returns the domain of the numbers from 0 to `most`, or of the whole numbers in this range if `whole` is true.
fn number_up_to(most: f64, whole: bool) -> Domain {
    Domain::Number { whole, least: Some(0), most: Some(most), optional: false }
}

/// Returns the limits of a run of a directive; `None` if they are invalid.
fn declared_limits(composed: &Composed) -> Option<Limits> {
    resolve_declared(&composed.limits.defaults, &composed.limits.directive)
}

/// Returns the highest value that a limit can have in a run: the declared value, or a higher value to which a hook
/// raises it. `None` if a hook may let the thread continue beyond the limit. Only hooks of the event `limit` can do
/// this, because the limits are checked again after every other event. Hooks of the infrastructure layer cannot do
/// this.
pub fn highest_limit(composed: &Composed, limit: LimitName, declared: f64) -> Option<f64> {
    Some(raised_limit(composed, limit)?.map_or(declared, |raised| raised.max(declared)))
}

/// Returns the highest value to which a hook raises a limit. Returns `Some(None)` if no hook raises the limit, and
/// `None` if a hook may let the thread continue beyond the limit (see [`highest_limit`]).
#[expect(clippy::option_option, reason = "no raise differs from a limit that a hook may lift")]
pub fn raised_limit(composed: &Composed, limit: LimitName) -> Option<Option<f64>> {
    let is_lifting = |hook: &&ComposedHook| {
        let is_at_limit = hook.is_live() && hook.layer < INFRASTRUCTURE_LAYER && hook.decl.event == HookPoint::Limit;
        is_at_limit && may_apply(&hook.decl, limit)
    };
    let mut most: Option<f64> = None;
    for hook in composed.hooks.iter().filter(is_lifting) {
        match hook.decl.action.as_ref().map(|action| &action.node) {
            Some(HookAction::Raise { limit: raised, value }) => match LimitName::parse(raised) {
                Some(raised) if raised == limit => {
                    let value = value.as_f64()?;
                    most = Some(most.map_or(value, |most| most.max(value)));
                }
                Some(_) => {}
                None => return None,
            },
            // The result of an executed item may be any action of the event.
            Some(HookAction::Retry { .. } | HookAction::Continue | HookAction::Execute { .. }) => return None,
            Some(_) | None => {}
        }
    }
    Some(most)
}

/// Returns false if the condition of a `limit` hook is false whenever this limit is exceeded.
pub fn may_apply(hook: &HookDecl, limit: LimitName) -> bool {
    let Some(condition) = &hook.compiled else { return true };
    let mut facts = Facts::new();
    for root in condition.roots().filter(|root| *root != "limit_code") {
        facts.declare_unknown(root);
    }
    facts.set("limit_code", Value::from(format!("{limit}_exceeded")));
    condition.evaluate(&facts) != Verdict::False
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::compile::tests::world::{minimal_world, stdlib_world, with_directives};
    use crate::validate::{Selection, check};

    /// Returns true if a hook with this condition can never fire in a directive that has 15 turns and the hook
    /// `beside`.
    fn is_never(condition: &str, beside: &str) -> bool {
        let late = format!(
            "<hook id=\"late\" event=\"after_step\"><when>{condition}</when><terminate error=\"too long\"/></hook>"
        );
        let inside = format!("<metadata><permissions/><hooks>{late}{beside}</hooks></metadata>");
        let world = with_directives(minimal_world(), &[("leaf", "", &inside, "Look.")]);
        let report = check(&world, &Selection::All);
        let errors: Vec<String> = report
            .diagnostics
            .iter()
            .filter(|found| found.is_error())
            .map(crate::diagnostics::Diagnostic::message)
            .collect();
        assert!(errors.is_empty(), "{beside}: {errors:?}");
        report.diagnostics.iter().any(|found| found.code() == "hook::never" && found.message().contains("`late`"))
    }

    /// Returns true if a guard of the event `tool_call` with this condition can never fire in a directive with these
    /// grants and other hooks.
    fn is_never_called(condition: &str, granted: &str, beside: &str) -> bool {
        let guard =
            format!("<hook id=\"late\" event=\"tool_call\"><when>{condition}</when><block reason=\"no\"/></hook>");
        let granted = format!("<permissions><execute>{granted}</execute></permissions>");
        let inside = format!("<metadata>{granted}<hooks>{guard}{beside}</hooks></metadata>");
        let world = with_directives(stdlib_world(), &[("leaf", "", &inside, "Look.")]);
        let report = check(&world, &Selection::All);
        assert_eq!(report.errors(), 0, "{condition}");
        report.diagnostics.iter().any(|found| found.code() == "hook::never" && found.message().contains("`late`"))
    }

    #[test]
    fn model_may_be_a_model_that_no_provider_file_lists() {
        for possible in [
            "model contains \"gpt-99\"",
            "model matches \"^gpt-[0-9]+$\"",
            "model != \"gpt-99\"",
            "!(model contains \"haiku\") &amp;&amp; !(model contains \"sonnet\")",
        ] {
            assert!(!is_never(possible, ""), "{possible}");
        }
        assert!(is_never("model == \"small\" &amp;&amp; model == \"large\"", ""));
    }

    #[test]
    fn turn_is_zero_only_at_the_end_of_a_prompt_without_a_model_call() {
        let is_reported = |event: &str, action: &str| {
            let hook = format!("<hook id=\"late\" event=\"{event}\"><when>turn == 0</when>{action}</hook>");
            let inside = format!("<metadata><permissions/><hooks>{hook}</hooks></metadata>");
            let report = check(&with_directives(minimal_world(), &[("leaf", "", &inside, "Look.")]), &Selection::All);
            report.diagnostics.iter().any(|found| found.code() == "hook::never")
        };
        assert!(is_reported("after_step", "<continue/>"));
        assert!(!is_reported("agent_end", "<follow_up content=\"Go on.\"/>"));
    }

    #[test]
    fn patterns_of_calls_are_evaluated_over_granted_calls() {
        let read = "<tool>rye.file-system.read</tool>";
        for never in [
            "call.item_id matches \"^rye/bash\"",
            "call.item_id contains \"bash\" &amp;&amp; call.input.command contains \"rm\"",
            "call.name contains \"bash\"",
            "call.item_id matches \"bash\" || call.item_id == \"rye/bash/bash\"",
            "call.item_id matches \"read\" &amp;&amp; call.item_id matches \"bash\"",
        ] {
            assert!(is_never_called(never, read, ""), "{never}");
            assert!(never.contains("read") || !is_never_called(never, "<tool>rye.bash.bash</tool>", ""), "{never}");
        }
        for possible in [
            "call.item_id matches \"^rye/\"",
            "call.item_id matches \"read$\"",
            "call.name contains \"read\"",
            "call.name matches \"^rye_(fetch|execute)\"",
            "!(call.item_id contains \"bash\")",
            "length(call.item_id) &gt; 3",
        ] {
            assert!(!is_never_called(possible, read, ""), "{possible}");
        }
    }

    #[test]
    fn tokens_and_seconds_may_pass_their_limits_only_by_what_one_check_allows() {
        let read = "<tool>rye.file-system.read</tool>";
        for (condition, lifts) in [
            ("cost.input_tokens &gt; 9000000", "tokens"),
            // Repeated attempts could reach the number, but no usual run does.
            ("cost.input_tokens &gt;= 1000000", "tokens"),
            ("cost.output_tokens &gt; 900000", "tokens"),
            ("cost.elapsed_seconds &gt; 700", "duration_seconds"),
            ("cost.limit &gt; 8", "spend"),
        ] {
            assert!(is_never_called(condition, read, ""), "{condition}");
            let raise = format!("<hook id=\"h\" event=\"limit\"><raise limit=\"{lifts}\" value=\"99000000\"/></hook>");
            assert!(!is_never_called(condition, read, &raise), "{condition}");
        }
        for possible in [
            "cost.input_tokens &gt; 210000",
            "cost.input_tokens &gt; 700000",
            "cost.elapsed_seconds &gt; 601",
            "cost.cached_tokens &gt; 9",
        ] {
            assert!(!is_never_called(possible, read, ""), "{possible}");
        }
    }

    #[test]
    fn only_hooks_that_lift_a_limit_remove_its_bound() {
        let turns = "cost.turns &gt;= 50";
        for keeps in [
            "",
            "<hook id=\"h\" event=\"error\"><when>attempt &lt; 2</when><retry/></hook>",
            "<hook id=\"h\" event=\"error\"><continue/></hook>",
            "<hook id=\"h\" event=\"after_step\"><when>turn &lt; 2</when><continue/></hook>",
            "<hook id=\"h\" event=\"limit\"><raise limit=\"spend\" value=\"9\"/></hook>",
            "<hook id=\"h\" event=\"limit\"><raise limit=\"turns\" value=\"30\"/></hook>",
            "<hook id=\"h\" event=\"limit\"><when>limit_code == \"spend_exceeded\"</when><continue/></hook>",
            "<hook id=\"h\" event=\"limit\" layer=\"3\"><when>limit_code == \"tokens_exceeded\"</when><continue/></hook>",
        ] {
            assert!(is_never(turns, keeps), "{keeps}");
        }
        for lifts in [
            "<hook id=\"h\" event=\"limit\"><continue/></hook>",
            "<hook id=\"h\" event=\"limit\"><when>limit_code == \"turns_exceeded\"</when><continue/></hook>",
            "<hook id=\"h\" event=\"limit\"><when>limit_code != \"spend_exceeded\"</when><retry/></hook>",
            "<hook id=\"h\" event=\"limit\"><raise limit=\"turns\" value=\"60\"/></hook>",
            "<hook id=\"h\" event=\"limit\"><execute item_type=\"tool\" item_id=\"rye/look\"/></hook>",
        ] {
            assert!(!is_never(turns, lifts), "{lifts}");
        }
        // A provider may report a cost above the limit.
        for (value, never) in [("7", true), ("9", false)] {
            let raise = format!("<hook id=\"h\" event=\"limit\"><raise limit=\"spend\" value=\"{value}\"/></hook>");
            assert_eq!(is_never("cost.spend &gt; 32", &raise), never, "{value}");
            assert_eq!(is_never("cost.limit &gt; 8", &raise), never, "{value}");
            assert!(!is_never("cost.spend &gt; 9", &raise), "{value}");
        }
    }
}
