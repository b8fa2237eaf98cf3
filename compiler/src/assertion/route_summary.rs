//! Summaries of directives for assertions: the grants, hooks, limits and knowledge of a directive on each route, and
//! the directives that the directive names.

use std::collections::BTreeSet;
use std::rc::Rc;

use rye_grammar::{ItemId, Sources, Span};

use crate::approvals::{HeadlessPolicy, is_grant_preapproved};
use crate::compose::{Composed, ComposedHook, compose_all};
use crate::diagnostics::Diagnostics;
use crate::hook::{HookAction, HookPoint, PlanVerdict};
use crate::item::HookDecl;
use crate::item_graph::mentions;
use crate::lower::cache::LowerContext;
use crate::lower::{capabilities, origin};
use crate::plan::{Grant, Origins};
use crate::primary::{ItemType, Primary, format_capability};
use crate::resolve::{Inputs, Launch};
use crate::semantics::limits::{LimitName, resolve};
use crate::semantics::money::Nanos;
use crate::validate::{may_apply, may_fire_in};
use crate::world::ItemKind;

/// A grant with `net`: its pattern, and its hosts separated by commas.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetGrant {
    pub pattern: String,
    pub hosts: String,
}

/// The properties of a directive on one route, without the properties of its spawn parents.
pub struct RouteSummary {
    pub grants: Option<Vec<String>>,
    pub granted: Option<Span>,
    pub hooks: BTreeSet<String>,
    pub approval: ApprovalNeed,
    /// The limit `spend`; `None` if the hook `raised_by` may raise it.
    pub spend: Option<Nanos>,
    pub raised_by: Option<String>,
    pub net: Rc<[NetGrant]>,
    pub hook_calls: Vec<String>,
    /// The capabilities for fetching the knowledge that `<context>` names.
    pub context: Rc<[String]>,
    pub survivors: Rc<BTreeSet<ItemId>>,
    pub named: Vec<NamedStart>,
}

/// The approval that some grant of a thread requires before its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApprovalNeed {
    Never,
    /// Calls without a terminal run without an approval, by the headless policy or because the user trusts the tools.
    AtTerminal,
    /// Calls without a terminal are queued or refused.
    Always,
}

impl ApprovalNeed {
    /// Returns the need for approvals of the calls that `grants` allow. The risk of these grants is not acknowledged.
    fn of_grants(grants: &[&Grant], headless: HeadlessPolicy, shared: &LowerContext<'_, '_>) -> Self {
        if grants.is_empty() {
            return Self::Never;
        }
        let list = shared.items.list(ItemKind::Tool);
        let is_preapproved =
            |grant: &&Grant| is_grant_preapproved(shared.items, list.iter().map(|entry| &entry.id), &grant.pattern);
        let runs_alone = headless == HeadlessPolicy::Allow || grants.iter().all(is_preapproved);
        if runs_alone { Self::AtTerminal } else { Self::Always }
    }
}

/// The start of a directive that a file names: the id of the directive, the cause, the place of the id in the file, and
/// the grants of the hook that starts the directive.
pub type NamedStart = (ItemId, String, Span, Vec<String>);

/// Returns a summary of a directive for every route; empty if the directive has errors, which `rye check` reports.
pub fn route_summaries(
    shared: &LowerContext<'_, '_>,
    settings: (&BTreeSet<String>, HeadlessPolicy),
    id: &ItemId,
) -> Vec<RouteSummary> {
    let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
    let (all, _) = compose_all(shared.items, id, &launch, &mut Diagnostics::new());
    all.iter().map(|composed| summarize_route(shared, settings, composed)).collect()
}

fn summarize_route(
    shared: &LowerContext<'_, '_>,
    (gates, headless): (&BTreeSet<String>, HeadlessPolicy),
    composed: &Composed,
) -> RouteSummary {
    let permissions = composed.permissions.as_ref();
    let grants = permissions.map(|p| p.value.grants.iter().map(|g| g.pattern.0.clone()).collect::<Vec<_>>());
    let with_hosts = permissions.iter().flat_map(|p| &p.value.grants).filter(|g| !g.net.is_empty());
    let net = with_hosts.map(|g| NetGrant { pattern: g.pattern.0.clone(), hosts: g.net.join(",") }).collect();
    let limits = resolve(&composed.limits.defaults, &composed.limits.directive, &[], &[]).map(|r| r.limits);
    let planned = capabilities::lower(composed, None, &shared.items.sources(), &mut Origins::default());
    let raising = composed.hooks.iter().find(|hook| raises_spend(hook));
    let raised_by = raising.map(|hook| describe_hook(&shared.items.sources(), hook));
    // Only the hooks that an assertion names need a proof that they can fire.
    let gates = composed
        .hooks
        .iter()
        .filter(|h| h.is_live() && (!gates.contains(&h.decl.id.node) || may_fire_in(shared.items, composed, h)));
    let mut named = hook_starts(&composed.hooks);
    if let Some(leaf) = composed.leaf() {
        let mentioned = mentions(leaf).into_iter().filter(|m| m.kind == ItemKind::Directive);
        let there = mentioned.filter(|m| shared.items.exists(ItemKind::Directive, &m.id));
        named.extend(there.map(|m| (m.id, "body".to_owned(), m.span, Vec::new())));
    }
    RouteSummary {
        granted: permissions.and_then(|p| p.origin.span),
        hooks: gates.map(|h| h.decl.id.node.clone()).collect(),
        approval: ApprovalNeed::of_grants(&capabilities::unacknowledged_grants(&planned, shared), headless, shared),
        // `rye check` reports unreadable limits. In assertions, a directive with unreadable limits spends nothing.
        spend: limits.map_or(Some(Nanos::ZERO), |limits| Some(limits.spend)).filter(|_| raised_by.is_none()),
        raised_by,
        net,
        hook_calls: composed.hooks.iter().filter(|h| h.is_live()).filter_map(|h| hook_call(&h.decl)).collect(),
        context: context_capabilities(composed),
        survivors: Rc::new(surviving_items(composed)),
        grants,
        named,
    }
}

/// Returns the directives that live hooks and commands start. Ids with placeholders are left out.
pub(super) fn hook_starts(hooks: &[ComposedHook]) -> Vec<NamedStart> {
    let mut named = Vec::new();
    for hook in hooks.iter().filter(|h| h.is_live() && h.decl.has_static_id()) {
        if let Some(HookAction::Execute { item_type: ItemKind::Directive, item_id, .. }) =
            hook.decl.action.as_ref().map(|a| &a.node)
            && let Ok(id) = ItemId::parse(item_id)
        {
            let extra = hook.decl.grants.iter().map(|g| g.node.0.clone()).collect();
            let sort = if hook.decl.event == HookPoint::Command { "command /" } else { "hook " };
            named.push((id, format!("{sort}{}", hook.decl.id.node), hook.decl.item_span(), extra));
        }
    }
    named
}

/// Returns true if a live hook on the event `limit` may raise the limit `spend`. The action of the hook raises the
/// limit, or executes an item, which can return such an action.
fn raises_spend(hook: &ComposedHook) -> bool {
    let raises = match hook.decl.action.as_ref().map(|action| &action.node) {
        Some(HookAction::Raise { limit, .. }) => LimitName::parse(limit).is_none_or(|name| name == LimitName::Spend),
        Some(action) => matches!(action, HookAction::Execute { .. }),
        None => false,
    };
    raises && hook.is_live() && hook.decl.event == HookPoint::Limit && may_apply(&hook.decl, LimitName::Spend)
}

/// Returns the id of a hook with its file and line.
fn describe_hook(sources: &Sources, hook: &ComposedHook) -> String {
    let id = &hook.decl.id.node;
    match origin::plan_place(sources, hook.decl.span) {
        Some(place) => format!("`{id}` ({}:{})", place.file, place.line),
        None => format!("`{id}`"),
    }
}

/// Returns the capability for the item that a hook executes or fetches; `None` for other actions, and if the item's id
/// contains a placeholder.
pub(super) fn hook_call(hook: &HookDecl) -> Option<String> {
    let action = &hook.action.as_ref()?.node;
    let (kind, id) = action.item().filter(|_| hook.has_static_id())?;
    let primary = if matches!(action, HookAction::Execute { .. }) {
        "execute"
    } else if matches!(action, HookAction::Fetch { .. }) {
        "fetch"
    } else {
        return None;
    };
    Some(format!("rye.{primary}.{}.{}", kind.as_str(), id.replace('/', ".")))
}

/// Returns the capabilities to fetch the knowledge that the chain adds to the prompt.
fn context_capabilities(composed: &Composed) -> Rc<[String]> {
    let items = composed.system.iter().chain(&composed.before).chain(&composed.after);
    items.map(|item| format_capability(Primary::Fetch, ItemType::Knowledge, Some(&item.id))).collect()
}

/// Returns the knowledge that every continuation of a thread contains: the knowledge of the system prompt, and of the
/// `thread_continued` hooks that always fire. Knowledge in the messages of the thread does not count, because a
/// continuation may drop these messages. If a hook may replace the system prompt, the knowledge of the system prompt
/// does not count.
fn surviving_items(composed: &Composed) -> BTreeSet<ItemId> {
    let again = |hook: &&ComposedHook| {
        let is_sent = matches!(hook.decl.event, HookPoint::BuildSystemPrompt | HookPoint::ThreadContinued);
        is_sent && hook.verdict == PlanVerdict::Fires
    };
    if composed.hooks.iter().any(may_replace_system_prompt) {
        let continued = |hook: &&ComposedHook| hook.decl.event == HookPoint::ThreadContinued;
        let hooks = composed.hooks.iter().filter(again).filter(continued);
        return hooks.filter_map(|hook| hook.decl.fetched.clone()).collect();
    }
    let hooks = composed.hooks.iter().filter(again).filter_map(|hook| hook.decl.fetched.clone());
    composed.system.iter().map(|item| item.id.clone()).chain(hooks).collect()
}

/// Returns true if a hook may replace the system prompt before the model is called: by its own text, or by the result of
/// an item that it executes.
fn may_replace_system_prompt(hook: &ComposedHook) -> bool {
    let replaces =
        |action: &HookAction| action.replaces_system_prompt() || matches!(action, HookAction::Execute { .. });
    let action = hook.decl.action.as_ref().map(|action| &action.node);
    hook.is_live() && hook.decl.event == HookPoint::BeforeAgentStart && action.is_some_and(replaces)
}
