//! Composition of a directive: walks its extends chain, and orders its context and hooks (`language.md`, Composition).
//! The result is lowered to a plan.

mod context;
mod hooks;
mod inherit;

pub(crate) use context::{PROTOCOL_PREFIX, report_unknown};

use std::sync::Arc;

use indexmap::IndexMap;
use rye_grammar::ItemId;

use crate::diagnostics::{Checked, Diagnostics, InterfaceError, ItemError};
use crate::extends;
use crate::hook::{HookSource, PlanVerdict, PlannedHook};
use crate::item::{DeclaredOrigin, Directive, FieldDecl, HookDecl, Items, Knowledge, ModelRequest, Permissions};
use crate::plan::NudgePolicy;
use crate::primary::Primary;
use crate::request::AssumedRoute;
use crate::resolve::Route;
use crate::resolve::{self, Launch, Routing};
use crate::semantics::limits::LimitSetting;
use crate::world::ItemKind;

/// A directive with its resolved chain, context, limits, interface and hooks.
///
/// INVARIANT: `chain` is root first, without repeats, and not empty. Its last link is the directive itself.
#[derive(Debug, Clone)]
pub struct Composed {
    pub id: ItemId,
    pub chain: Vec<Arc<Directive>>,
    /// The `resolve_extends` hook that set the directive's extends parent; `None` if no hook did.
    pub route: Option<Route>,
    /// The knowledge of the chain for the system prompt: root first, each item once, without suppressed items.
    /// Knowledge that hooks provide is in `hooks`.
    pub system: Vec<ContextItem>,
    pub before: Vec<ContextItem>,
    pub after: Vec<ContextItem>,
    pub suppressions: Vec<Suppression>,
    pub duplicates: Vec<DuplicateContext>,
    pub ungranted_protocols: Vec<UngrantedProtocol>,
    /// The permissions of the directive, else of its nearest ancestor that has some; `None` if no directive of the
    /// chain has any.
    pub permissions: Option<WithOrigin<Permissions>>,
    pub limits: LimitLayers,
    /// The `<model>` of the directive, else of its nearest ancestor that has one; `None` if no directive of the chain
    /// has one.
    pub model: Option<WithOrigin<ModelRequest>>,
    pub inputs: IndexMap<String, WithOrigin<FieldDecl>>,
    pub outputs: IndexMap<String, WithOrigin<FieldDecl>>,
    pub continuation: Option<WithOrigin<ItemId>>,
    pub nudge: WithOrigin<NudgePolicy>,
    /// Every hook that could apply, in evaluation order within its event. Removed hooks stay in the list, with the
    /// reason.
    pub hooks: Vec<ComposedHook>,
    /// States whether `hooks` contains all hooks of the hook files, or only the hooks that can fire for the directive.
    pub scope: HookScope,
}

/// A selection of the hooks of hook files that a composition contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookScope {
    /// All hooks of the hook files.
    All,
    /// All hooks except those that never fire because their condition names other directives.
    Possible,
}

/// A value of a composition, with the declaration that the value comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct WithOrigin<T> {
    pub value: T,
    pub origin: DeclaredOrigin,
}

/// A knowledge item that a directive of the chain adds to the prompt.
#[derive(Debug, Clone)]
pub struct ContextItem {
    pub id: ItemId,
    pub knowledge: Arc<Knowledge>,
    /// True if the item is wrapped in a tag; false for `<system>` items.
    pub wrap: bool,
    pub origin: DeclaredOrigin,
}

/// A `<suppress>` of the chain, with the origins of the items it removed.
#[derive(Debug, Clone, PartialEq)]
pub struct Suppression {
    /// A knowledge id or a hook id.
    pub id: String,
    pub origin: DeclaredOrigin,
    pub removed: Vec<DeclaredOrigin>,
}

/// A knowledge item that the chain or a hook provides more than once. The prompt contains the item as `kept` provides
/// it, and not as `dropped` provides it.
#[derive(Debug, Clone, PartialEq)]
pub struct DuplicateContext {
    pub id: ItemId,
    pub kept: DeclaredOrigin,
    pub dropped: DeclaredOrigin,
}

/// A protocol item of the standard library that is left out because no grant allows its primary.
#[derive(Debug, Clone, PartialEq)]
pub struct UngrantedProtocol {
    pub id: ItemId,
    pub primary: Primary,
    pub declared: DeclaredOrigin,
    /// Origin of the effective permissions, which do not grant `primary`.
    pub granted: DeclaredOrigin,
}

/// The limits that files set, by layer, lowest precedence first. `semantics::limits::resolve` computes the limits of a
/// thread from these layers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LimitLayers {
    /// Limits of `agent/resilience`, which all directives share.
    pub defaults: Arc<[LimitSetting<DeclaredOrigin>]>,
    /// Limits of the chain. For each name, the value of the last directive applies, else the value of its nearest
    /// ancestor that has one.
    pub directive: Vec<LimitSetting<DeclaredOrigin>>,
    /// Limits from `limits.max` of `agent/agent`: upper bounds on limits that files set. Limits that a caller passes
    /// are not bounded.
    pub ceilings: Arc<[LimitSetting<DeclaredOrigin>]>,
    /// Limits of each `<session>` of the chain: upper bounds on the limits of a whole chat.
    pub session: Vec<LimitSetting<DeclaredOrigin>>,
}

/// A hook as it applies to one composed directive: its declaration with its effective layer and its verdict.
#[derive(Debug, Clone)]
pub struct ComposedHook {
    pub decl: Arc<HookDecl>,
    /// Effective layer: the declared layer, else the layer of the replaced built-in hook, else the default of the
    /// source.
    pub layer: f64,
    /// The source that declares the hook. A hook that replaces a built-in hook takes the position of the built-in hook,
    /// but keeps its own source.
    pub source: HookSource,
    /// The verdict on the hook's condition before the run.
    pub verdict: PlanVerdict,
    /// The knowledge that the hook fetches; `None` if the hook fetches none or is not live, or if the id contains a
    /// placeholder.
    pub knowledge: Option<Arc<Knowledge>>,
}

/// Composes one directive for a plan or a run. If the route depends on an unknown value, the missing inputs are
/// reported, and the result has no value.
pub fn compose(items: &Items<'_>, id: &ItemId, launch: &Launch<'_>) -> Checked<Composed> {
    compose_without(items, id, launch, &[], None)
}

/// Composes like [`compose`], with two differences. The parts `omitted` are left out, as if the directive suppressed
/// them. If the inputs leave the route open, the route `assumed` applies.
pub(crate) fn compose_without(
    items: &Items<'_>,
    id: &ItemId,
    launch: &Launch<'_>,
    omitted: &[String],
    assumed: Option<&AssumedRoute>,
) -> Checked<Composed> {
    let mut found = Diagnostics::new();
    let value = load_leaf(items, id, &mut found).and_then(|leaf| {
        let mut routing = resolve::route(items, &leaf, launch);
        if let (Some(assumed), Routing::Open { routes, .. }) = (assumed, &routing) {
            let parent = |route: &Option<Route>| match route {
                Some(route) => Some(route.to.clone()),
                None => leaf.extends.as_ref().map(|parent| parent.node.clone()),
            };
            if let Some(route) = routes.iter().find(|route| parent(route) == assumed.parent) {
                routing = Routing::Certain(route.clone());
            }
        }
        let Routing::Certain(route) = routing else {
            for path in routing.unresolved_paths() {
                found.push(InterfaceError::MissingInput {
                    name: path.strip_prefix("inputs.").unwrap_or(&path).to_owned(),
                    directive: id.to_string(),
                    // An input with a default is not required, so the label "required here" would be false.
                    declared: path
                        .strip_prefix("inputs.")
                        .and_then(|name| leaf.inputs.get(name))
                        .filter(|field| field.required && field.default.is_none())
                        .map(|field| field.span),
                    used: routing.first_undecided_hook().map(|hook| hook.span),
                });
            }
            return None;
        };
        compose_route(items, leaf, route, launch, (HookScope::All, omitted), &mut found)
    });
    Checked::new(value, found)
}

/// Composes a directive once for each route that the directive could take. Returns the compositions that succeeded, and
/// the number of all routes (at least one).
pub(crate) fn compose_all(
    items: &Items<'_>,
    id: &ItemId,
    launch: &Launch<'_>,
    found: &mut Diagnostics,
) -> (Vec<Composed>, usize) {
    compose_all_with(items, id, launch, HookScope::All, found)
}

/// Composes like [`compose_all`], with the hooks that `scope` selects. An incremental check must pass `HookScope::All`,
/// because its result depends on the knowledge that each hook fetches.
pub(crate) fn compose_all_with(
    items: &Items<'_>,
    id: &ItemId,
    launch: &Launch<'_>,
    scope: HookScope,
    found: &mut Diagnostics,
) -> (Vec<Composed>, usize) {
    let Some(leaf) = load_leaf(items, id, found) else { return (Vec::new(), 1) };
    let routes = match resolve::route(items, &leaf, launch) {
        Routing::Certain(route) => vec![route],
        Routing::Open { routes, .. } => routes,
    };
    let count = routes.len();
    let composed =
        routes.into_iter().filter_map(|route| compose_route(items, leaf.clone(), route, launch, (scope, &[]), found));
    (composed.collect(), count)
}

fn load_leaf(items: &Items<'_>, id: &ItemId, found: &mut Diagnostics) -> Option<Arc<Directive>> {
    let leaf = items.directive(id);
    if leaf.is_none() && !items.exists(ItemKind::Directive, id) {
        let others = [ItemKind::Tool, ItemKind::Knowledge, ItemKind::Prompt, ItemKind::Skill];
        if let Some(kind) = others.into_iter().find(|kind| items.exists(*kind, id)) {
            found.push(ItemError::OtherKind { kind, id: id.to_string() });
            return None;
        }
        found.push(ItemError::Unknown {
            kind: ItemKind::Directive,
            id: id.to_string(),
            span: None,
            suggestion: items.nearest(ItemKind::Directive, id.as_str()),
        });
    }
    leaf
}

fn compose_route(
    items: &Items<'_>,
    leaf: Arc<Directive>,
    route: Option<Route>,
    launch: &Launch<'_>,
    (scope, omitted): (HookScope, &[String]),
    found: &mut Diagnostics,
) -> Option<Composed> {
    let routed = route.as_ref().map(Route::parent);
    let id = leaf.id().clone();
    let chain = extends::resolve_chain(items, leaf, routed.as_ref(), found)?;
    let mut composed = Composed {
        id,
        route,
        system: Vec::new(),
        before: Vec::new(),
        after: Vec::new(),
        suppressions: context::declared_suppressions(&chain, omitted),
        duplicates: Vec::new(),
        ungranted_protocols: Vec::new(),
        permissions: inherit::inherit_permissions(&chain),
        limits: inherit::layer_limits(items, &chain),
        model: inherit::inherit_value(&chain, |d| d.model.clone()),
        inputs: inherit::merge_fields(&chain, |d| &d.inputs),
        outputs: inherit::merge_fields(&chain, |d| &d.outputs),
        continuation: inherit::inherit_spanned_value(&chain, |d| d.continuation.as_ref()),
        nudge: inherit::inherit_spanned_value(&chain, |d| d.nudge.as_ref())
            .unwrap_or(WithOrigin { value: NudgePolicy::Auto, origin: DeclaredOrigin::built_in() }),
        hooks: Vec::new(),
        scope,
        chain,
    };
    context::collect(items, &mut composed, found);
    context::remove_ungranted_protocols(items, &mut composed);
    hooks::collect(items, &mut composed, launch);
    Some(composed)
}

impl Composed {
    /// Returns the directive itself: the last link of the chain. `None` only if the chain is empty.
    pub fn leaf(&self) -> Option<&Arc<Directive>> {
        self.chain.last()
    }
}

impl ComposedHook {
    /// Returns true if a run has to evaluate the hook.
    pub fn is_live(&self) -> bool {
        matches!(self.verdict, PlanVerdict::Fires | PlanVerdict::Depends { .. })
    }

    /// Returns the origin of the hook's declaration.
    pub fn origin(&self) -> DeclaredOrigin {
        DeclaredOrigin::hook(&self.decl)
    }

    /// Returns the hook as the plan stores it; `None` if it has no action because it is disabled.
    pub(crate) fn to_planned(&self) -> Option<PlannedHook> {
        let action = self.decl.action.as_ref()?.node.clone();
        Some(PlannedHook {
            id: self.decl.id.node.clone(),
            event: self.decl.event,
            layer: self.layer,
            source: self.source.clone(),
            space: self.decl.space,
            position: self.decl.position,
            wrap: self.decl.wrap,
            condition: self.decl.condition_source.clone(),
            action,
            grants: self.decl.grants.iter().map(|g| g.node.0.clone()).collect(),
            on_failure: self.decl.on_failure,
            verdict: self.verdict.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
