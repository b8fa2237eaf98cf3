//! Checks of hooks over all directives: conditions that are always true or always false, and hooks that no directive
//! can reach.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rye_grammar::condition::Path;
use rye_grammar::{ItemId, Span};
use serde_json::Value;

use crate::compose::{Composed, ComposedHook, compose_all};
use crate::diagnostics::{Diagnostic, Diagnostics, HookError};
use crate::extends::declared_chain;
use crate::hook::{HookPoint, HookSource, PlanVerdict};
use crate::item::{Directive, HookDecl, Items};
use crate::resolve::{Inputs, KnownFacts, Launch};
use crate::semantics::condition::{Domain, Fuel, Implication, PathValues, Verdict};
use crate::semantics::hook_point;
use crate::world::{Entry, ItemKind, Space};

use super::domain;
use super::fact_bounds::{BoundCause, FactBounds, MatchingCalls};
use super::false_parts::{FalseParts, describe_constant_false};
use super::impossible_comparison::{ImpossiblePart, impossible_part};
use super::incremental::Merge;

/// Hooks by span, with the results of checking whether they can fire.
#[derive(Default)]
pub struct HookUses {
    uses: BTreeMap<Span, HookUse>,
    routes: BTreeMap<Span, RouteUse>,
    /// The hooks of directives at `directive_return`, each with true if a directive that has the hook declares outputs.
    returns: BTreeMap<Span, (Arc<HookDecl>, bool)>,
    /// True if a directive could not be composed, so that its hooks are unknown.
    incomplete: bool,
}

#[derive(Clone)]
struct HookUse {
    hook: Arc<HookDecl>,
    /// True if the hook could fire for some directive.
    fires: bool,
    /// The cause of the bounds on facts that prevent the hook from firing: without these bounds, the hook could fire.
    /// `None` if bounds are not the reason, or if the cause differs between directives.
    bound: Option<BoundCause>,
    /// The part of the condition that the types of its values make false.
    impossible: Option<ImpossiblePart>,
    /// The parts of the condition that are never true for any recorded directive.
    false_parts: FalseParts,
}

impl HookUse {
    fn new(hook: &Arc<HookDecl>) -> Self {
        Self { hook: hook.clone(), fires: false, bound: None, impossible: None, false_parts: FalseParts::default() }
    }
}

/// A `resolve_extends` hook whose condition is true for some directive.
struct RouteUse {
    hook: Arc<HookDecl>,
    /// True if the hook sets the route of some directive.
    routes: bool,
    /// The hook that set the route of the first recorded directive: `hook` itself, or a hook that takes precedence over
    /// `hook`. The report of a hook that never sets a route names the hook in `by`.
    by: Arc<HookDecl>,
}

impl RouteUse {
    /// Returns true if the hook may set the route of a directive outside of the project.
    fn may_route_others(&self, items: &Items<'_>) -> bool {
        let directives = items.list(ItemKind::Directive);
        !implies(&self.hook, &self.by)
            && directives.iter().filter(|entry| entry.space != Space::Project).any(|entry| {
                let verdict = |hook: &HookDecl| KnownFacts::for_id(&entry.id).verdict(hook);
                verdict(&self.hook) != Verdict::False && verdict(&self.by) != Verdict::True
            })
    }
}

impl HookUses {
    /// Records the hooks that can fire for a directive. The analysis of each directive has its own fuel (bound on
    /// steps), so that the result for one directive does not depend on the other directives.
    pub fn add(
        &mut self,
        items: &Items<'_>,
        composed: &Composed,
        launch: &Launch<'_>,
        matching: &MatchingCalls,
        fuel: &mut Fuel,
    ) {
        let bounds = FactBounds::new(items, composed, matching);
        self.add_routes(composed);
        self.add_returns(composed);
        for hook in composed.hooks.iter().filter(|hook| has_checkable_condition(&hook.decl)) {
            let decl = &hook.decl;
            // `--model` may select any model.
            let depends = matches!(hook.verdict, PlanVerdict::Depends { .. }) || reads_model(decl);
            let never = matches!(hook.verdict, PlanVerdict::Never { .. }) && !depends;
            // All hooks of hook files are checked at the end, so a hook of a file that never fires need not be
            // recorded.
            if never && !matches!(decl.source, HookSource::Directive { .. }) {
                continue;
            }
            // A hook of a file also need not be recorded if the hook never fires because it reads an output that this
            // directive does not declare.
            let lacks_output =
                !matches!(decl.source, HookSource::Directive { .. }) && domain::reads_undeclared_output(composed, decl);
            if lacks_output && !may_fire(composed, decl, launch, &bounds, None, fuel) {
                continue;
            }
            let is_new = !self.uses.contains_key(&decl.span);
            let one = self.uses.entry(decl.span).or_insert_with(|| HookUse::new(decl));
            if !never && (is_new || !one.false_parts.is_empty()) {
                let among = (!is_new).then_some(&one.false_parts);
                let parts = false_parts(items, composed, decl, launch, among);
                if is_new { one.false_parts = parts } else { one.false_parts.intersect(&parts) }
            }
            if one.fires {
                continue;
            }
            let mut fires = |without| may_fire(composed, decl, launch, &bounds, without, fuel);
            one.fires = match &hook.verdict {
                PlanVerdict::Removed { .. } => true,
                // A route hook is composed if it may fire for unknown inputs. The possible values of the inputs may
                // still prevent it from firing.
                PlanVerdict::Fires if !depends && decl.event != HookPoint::ResolveExtends => true,
                PlanVerdict::Never { .. } if !depends => false,
                PlanVerdict::Never { .. } | PlanVerdict::Depends { .. } | PlanVerdict::Fires => fires(None),
            };
            if !one.fires {
                let part = impossible_part(items, composed, decl);
                one.impossible = one.impossible.take().filter(|_| part.is_some()).or(part.filter(|_| is_new));
                let bound = BoundCause::ALL.into_iter().find(|cause| fires(Some(*cause)));
                one.bound = bound.filter(|cause| is_new || one.bound == Some(*cause));
            }
        }
    }

    /// Records the project's `resolve_extends` hooks that could set the route of a directive: the hook that sets the
    /// route, and each later hook whose condition may be true. A hook that is recorded for some directives, but sets
    /// the route of none, is reported by [`Self::report_unreached_routes`].
    fn add_routes(&mut self, composed: &Composed) {
        let Some(route) = &composed.route else { return };
        let routing = composed
            .hooks
            .iter()
            .map(|hook| &hook.decl)
            .filter(|hook| hook.event == HookPoint::ResolveExtends && hook.space == Space::Project && hook.enabled);
        let mut earlier: Vec<&Arc<HookDecl>> = Vec::new();
        for hook in routing {
            if Arc::ptr_eq(hook, &route.hook) {
                let by = earlier.iter().find(|by| implies(hook, by));
                self.add_route(hook, by.map_or(hook, |by| by), by.is_none());
                break;
            }
            earlier.push(hook);
        }
        // If the hook that sets the route always fires, the composition removes the hooks after it.
        let behind = composed.hooks.iter().filter(|hook| {
            hook.decl.event == HookPoint::ResolveExtends
                && hook.decl.space == Space::Project
                && matches!(hook.verdict, PlanVerdict::Removed { .. })
                && hook.decl.enabled
        });
        let Some(leaf) = composed.leaf() else { return };
        let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
        for hook in behind.filter(|hook| !Arc::ptr_eq(&hook.decl, &route.hook)) {
            if KnownFacts::for_routing(leaf, &launch).verdict(&hook.decl) != Verdict::False {
                self.add_route(&hook.decl, &route.hook, false);
            }
        }
    }

    /// Records the hooks of the chain at `directive_return`. Without declared outputs, a thread has no return tool.
    fn add_returns(&mut self, composed: &Composed) {
        let returns = !composed.outputs.is_empty() || composed.chain.iter().any(|link| link.is_incomplete);
        let hooks = composed.hooks.iter().filter(|hook| hook.is_live()).map(|hook| &hook.decl);
        for hook in hooks.filter(|hook| hook.event == HookPoint::DirectiveReturn && hook.space == Space::Project) {
            if matches!(hook.source, HookSource::Directive { .. }) {
                self.returns.entry(hook.span).or_insert_with(|| (hook.clone(), false)).1 |= returns;
            }
        }
    }

    /// Reports each hook of a directive at `directive_return` if no directive that has the hook declares outputs. A
    /// hook that reads outputs is left out, because the unknown output is reported.
    fn report_returns(&self, found: &mut Diagnostics) {
        for (hook, _) in self.returns.values().filter(|(_, returns)| !returns && !self.incomplete) {
            if super::hook::read_outputs(hook).is_empty() {
                let because = "the directive declares no outputs, so no thread returns any".to_owned();
                found.push(HookError::Never { id: hook.id.node.clone(), because, span: hook.span });
            }
        }
    }

    fn add_route(&mut self, hook: &Arc<HookDecl>, by: &Arc<HookDecl>, routes: bool) {
        let new = || RouteUse { hook: hook.clone(), routes: false, by: by.clone() };
        self.routes.entry(hook.span).or_insert_with(new).routes |= routes;
    }

    /// Reports each routing hook that never sets a route, because an earlier hook sets the route of every directive for
    /// which its condition is true. Omits the hooks in `shadowed`, which are already reported.
    pub fn report_unreached_routes(&self, items: &Items<'_>, shadowed: &BTreeSet<Span>, found: &mut Diagnostics) {
        if self.incomplete {
            return;
        }
        let unreached = self.routes.values().filter(|one| !one.routes && !shadowed.contains(&one.hook.span));
        for one in unreached.filter(|one| !one.may_route_others(items)) {
            found.push(HookError::Shadowed {
                id: one.hook.id.node.clone(),
                by: one.by.id.node.clone(),
                span: one.hook.span,
                by_span: one.by.span,
                when: "for every directive that this hook names",
            });
        }
    }

    /// Records a directive that could not be composed. Every hook that may apply to the directive counts as firing, so
    /// that no hook is reported by mistake: each hook of the extends chain, and each hook of a hook file whose
    /// condition is not false for the directive's id. If a directive of the chain cannot be read, `incomplete` is set,
    /// because the hooks of that directive are unknown. If the chain is longer than allowed, this call records only its
    /// first directives. The calls for these directives record the ancestors that are farther away.
    pub fn add_uncomposed(&mut self, items: &Items<'_>, id: &ItemId) {
        let files = items.hook_files();
        for hook in files.project.iter().chain(&files.infra).filter(|h| has_checkable_condition(h)) {
            if KnownFacts::for_id(id).verdict(hook) != Verdict::False {
                self.add_firing(hook);
            }
        }
        let mut next = Some(id.clone());
        for directive in declared_chain(items, id) {
            for hook in &directive.hooks {
                if has_checkable_condition(hook) {
                    self.add_firing(hook);
                }
                if hook.event == HookPoint::DirectiveReturn {
                    self.returns.insert(hook.span, (hook.clone(), true));
                }
            }
            next = directive.extends.as_ref().map(|parent| parent.node.clone());
        }
        // A parent that does not exist has no hooks.
        let is_unreadable = |id: ItemId| items.directive(&id).is_none() && items.exists(ItemKind::Directive, &id);
        self.incomplete |= next.is_some_and(is_unreadable);
    }

    fn add_firing(&mut self, hook: &Arc<HookDecl>) {
        let one = self.uses.entry(hook.span).or_insert_with(|| HookUse::new(hook));
        one.fires = true;
        one.false_parts = FalseParts::default();
    }

    pub fn report_constant_conditions(
        mut self,
        items: &Items<'_>,
        shadowed: &BTreeSet<Span>,
        verdicts: &mut ConditionVerdicts,
        found: &mut Diagnostics,
    ) {
        let files = items.hook_files();
        for hook in files.project.iter().chain(&files.infra) {
            if has_checkable_condition(hook) {
                self.uses.entry(hook.span).or_insert_with(|| HookUse::new(hook));
            }
        }
        let is_cause = |d: &&Diagnostic| {
            let is_wrong_name = matches!(
                d,
                Diagnostic::Hook(
                    HookError::UnknownValue { .. }
                        | HookError::UnknownParameter { .. }
                        | HookError::UnknownCall { .. }
                        | HookError::UnknownPart { .. }
                )
            );
            d.is_error() || is_wrong_name
        };
        let errors = found.iter().filter(is_cause);
        let faulty: BTreeSet<Span> = errors.filter_map(|d| d.labels().first().map(|l| l.span)).collect();
        self.report_returns(found);
        let known = verdicts.start_pass(self.uses.len());
        let mut others = OtherDirectives::default();
        for HookUse { hook, fires, bound, impossible, false_parts } in self.uses.into_values() {
            let span = hook.condition.as_ref().map_or(hook.span, |c| c.span);
            // The condition contains an error that was already reported.
            let inside = Span { end: 0, ..span }..Span { start: span.end, end: u32::MAX, ..span };
            if faulty.range(inside).any(|fault| fault.end <= span.end) {
                continue;
            }
            let id = hook.id.node.clone();
            if has_unknown_facts(&hook) || shadowed.contains(&hook.span) {
                continue;
            }
            match verdicts.verdict_of(&hook, &known) {
                Some(true) => found.push(HookError::Always { id, span }),
                Some(false) => {
                    let (because, span) = match &impossible {
                        Some(part) => (part.reason.clone(), part.span),
                        None => describe_constant_false(&hook, span),
                    };
                    found.push(HookError::Never { id, because, span });
                }
                None if !fires && !self.incomplete => match (others.first_firing(items, &hook), bound) {
                    (_, Some(BoundCause::Overshoot)) => {
                        found.push(HookError::PastLimit { id, limit: "tokens", span });
                    }
                    (_, Some(BoundCause::Overspend)) => {
                        found.push(HookError::PastLimit { id, limit: "spend", span });
                    }
                    (None, bound) => found.push(match impossible {
                        Some(part) => HookError::Never { id, because: part.reason, span: part.span },
                        None => HookError::Never { id, because: describe_bound(bound), span },
                    }),
                    (Some(only), Some(_)) => {
                        found.push(HookError::OnlyLibrary {
                            id,
                            directive: only.to_string(),
                            because: describe_bound(bound),
                            span,
                        });
                    }
                    (Some(_), None) => {}
                },
                None if !self.incomplete => {
                    for ImpossiblePart { reason, span } in others.never_true(items, &hook, false_parts).into_parts() {
                        found.push(HookError::NeverPart { id: id.clone(), because: reason, span });
                    }
                }
                None => {}
            }
        }
    }
}

impl Merge for HookUses {
    fn merge(&mut self, other: &Self) {
        self.incomplete |= other.incomplete;
        for (span, one) in &other.uses {
            if let Some(known) = self.uses.get_mut(span) {
                known.bound = known.bound.filter(|bound| one.bound == Some(*bound));
                known.impossible = known.impossible.take().filter(|_| one.impossible.is_some());
                known.fires |= one.fires;
                known.false_parts.intersect(&one.false_parts);
            } else {
                self.uses.insert(*span, one.clone());
            }
        }
        for (span, (hook, returns)) in &other.returns {
            self.returns.entry(*span).or_insert_with(|| (hook.clone(), false)).1 |= returns;
        }
        for one in other.routes.values() {
            self.add_route(&one.hook, &one.by, one.routes);
        }
    }
}

/// A memo of the results that hook conditions have in every run, by the span of the hook: `None` if the result can
/// differ between runs. Each hook is evaluated with its own fuel, so that the order of hooks does not matter.
#[derive(Default)]
pub struct ConditionVerdicts {
    fuel: Fuel,
    by: BTreeMap<Span, Option<bool>>,
}

impl ConditionVerdicts {
    /// Starts a new check of the hooks. `hooks` is the number of hooks, which determines the fuel of each condition.
    /// Returns the verdicts of the previous check, by the span of the hook, so that they can be reused. Empty if the
    /// fuel has changed, because fuel affects verdicts.
    fn start_pass(&mut self, hooks: usize) -> BTreeMap<Span, Option<bool>> {
        let before = std::mem::take(self);
        self.fuel = Fuel::share(hooks);
        if self.fuel == before.fuel { before.by } else { BTreeMap::new() }
    }

    /// Returns the verdict of a hook's condition without knowledge of any facts; `None` if the verdict depends on
    /// facts. `known` holds the verdicts of the previous check, by the span of the hook.
    fn verdict_of(&mut self, hook: &HookDecl, known: &BTreeMap<Span, Option<bool>>) -> Option<bool> {
        let verdict = known.get(&hook.span).copied().unwrap_or_else(|| {
            let (point, mut fuel) = (hook_point::row_of(hook.event), self.fuel);
            let domain = |path: &Path| domain::fact_domain(point, path, None).or_else(|| compared_texts(hook, path));
            match KnownFacts::empty().verdict_over(hook, &domain, &mut fuel) {
                Verdict::True => Some(true),
                Verdict::False => Some(false),
                Verdict::Unknown(_) => None,
            }
        });
        self.by.insert(hook.span, verdict);
        verdict
    }
}

/// Returns the domain of a fact that a condition only compares with texts: each of these texts, another value, and no
/// value. `None` if the condition reads the fact in another way.
fn compared_texts(hook: &HookDecl, path: &Path) -> Option<Domain> {
    let samples = hook.compiled.as_ref()?.samples().into_iter().find(|samples| samples.path == *path)?;
    let is_compared = !samples.open && !samples.ordered && samples.parts.is_empty() && !samples.values.is_empty();
    if !is_compared || !samples.values.iter().all(Value::is_string) {
        return None;
    }
    let others = [Some(Value::from("\u{1}")), None];
    Some(Domain::Values(samples.values.into_iter().map(Some).chain(others).collect()))
}

/// Returns true for an enabled project hook that has a condition.
fn has_checkable_condition(hook: &HookDecl) -> bool {
    hook.space == Space::Project && hook.enabled && hook.compiled.is_some()
}

/// Returns the parts of a hook's condition that are never true for a directive ([`FalseParts::of_directive`]).
fn false_parts(
    items: &Items<'_>,
    composed: &Composed,
    hook: &HookDecl,
    launch: &Launch<'_>,
    among: Option<&FalseParts>,
) -> FalseParts {
    let Some(leaf) = composed.leaf() else { return FalseParts::default() };
    FalseParts::of_directive(items, composed, hook, &mut known_facts(composed, leaf, hook, launch), among)
}

/// Returns false only if the condition of a hook is proven to be false for all values of the directive's inputs and of
/// the facts. If `without` is given, ignores the bounds on facts that have this cause, so that the caller can find the
/// bound that makes the condition false.
fn may_fire(
    composed: &Composed,
    hook: &HookDecl,
    launch: &Launch<'_>,
    bounds: &FactBounds<'_, '_>,
    without: Option<BoundCause>,
    fuel: &mut Fuel,
) -> bool {
    let Some(leaf) = composed.leaf() else { return true };
    if impossible_part(bounds.items(), composed, hook).is_some() {
        return false;
    }
    let point = hook_point::row_of(hook.event);
    let mut known = known_facts(composed, leaf, hook, launch);
    let domain = |path: &Path| {
        let bounded = bounds.domain(hook, path, without);
        bounded.or_else(|| domain::fact_domain(point, path, Some(composed)))
    };
    known.verdict_over(hook, &domain, fuel) != Verdict::False
}

/// Returns the facts of a directive that are known when a hook runs. The model is unknown, because `--model` may select
/// any model.
fn known_facts<'c>(
    composed: &'c Composed,
    leaf: &'c Directive,
    hook: &HookDecl,
    launch: &Launch<'c>,
) -> KnownFacts<'c> {
    let launch = &Launch { inputs: launch.inputs, model: &|_| None };
    if hook.event == HookPoint::ResolveExtends {
        let mut known = KnownFacts::for_routing(leaf, launch);
        if matches!(launch.inputs, Inputs::Unknown) {
            known.limit_inputs(composed.inputs.keys());
        }
        return known;
    }
    let request = composed.model.as_ref().map(|m| &m.value);
    KnownFacts::for_chain(leaf, request, composed.inputs.values().map(|f| &f.value), launch)
}

/// Returns false only if a hook is proven not to fire for a directive, whatever its inputs are.
pub fn may_fire_in(items: &Items<'_>, composed: &Composed, hook: &ComposedHook) -> bool {
    let matching = MatchingCalls::default();
    let bounds = FactBounds::new(items, composed, &matching);
    let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
    let proven = || !may_fire(composed, &hook.decl, &launch, &bounds, None, &mut Fuel::default());
    hook.is_live() && (hook.decl.compiled.is_none() || !proven())
}

/// Returns true if a hook's condition reads the fact `model`.
fn reads_model(hook: &HookDecl) -> bool {
    hook.compiled.iter().any(|condition| condition.roots().any(|root| root == "model"))
}

/// Returns true if the condition of `other` is true in every case in which the condition of `hook` is true.
pub(super) fn implies(hook: &HookDecl, other: &HookDecl) -> bool {
    match (&hook.compiled, &other.compiled) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(one), Some(other)) => {
            let values = |_: &Path| PathValues::default();
            one.implies_any(&[other], &values) == Implication::Holds
        }
    }
}

/// Explains why a hook fires for no directive. `bound` states what prevents the hook from firing, such as limits or
/// grants; `None` if the condition alone prevents it.
fn describe_bound(bound: Option<BoundCause>) -> String {
    match bound {
        None => "its condition is false for every directive",
        Some(BoundCause::Limits) => "in every directive, a limit ends the run first",
        Some(BoundCause::Grants) => "no directive of the project is granted a call that meets its condition",
        Some(BoundCause::Retries) => "no call has that many attempts",
        Some(BoundCause::Windows) => "no model of the provider files has such a context window",
        Some(BoundCause::Overshoot) => {
            "one turn would have to use several times as many tokens as the limit `tokens` allows"
        }
        Some(BoundCause::Overspend) => {
            "it becomes true only if a provider reports several times the cost that the limit `spend` allows"
        }
        Some(BoundCause::Fraction) => "`usage_ratio` is a fraction of the context window: 0.8 is 80 %",
    }
    .to_owned()
}

/// Returns true if the condition names facts that do not exist. Such a condition is false, and the unknown fact has
/// been reported.
fn has_unknown_facts(hook: &HookDecl) -> bool {
    let point = hook_point::row_of(hook.event);
    let Some(condition) = &hook.condition else { return false };
    super::hook::condition_paths(&condition.node)
        .into_iter()
        .any(|(path, _)| point.resolve_path(path) == hook_point::PathMeaning::Nothing)
}

/// The directives of the user space and the standard library, composed when the first hook needs them.
#[derive(Default)]
struct OtherDirectives {
    matching: MatchingCalls,
    composed: Option<Vec<(ItemId, Vec<Composed>)>>,
}

impl OtherDirectives {
    /// Returns the first directive of the user space or the standard library for which a hook of a settings file could
    /// fire. `None` if there is no such directive, or if the hook is declared by a directive.
    fn first_firing(&mut self, items: &Items<'_>, hook: &HookDecl) -> Option<ItemId> {
        if matches!(hook.source, HookSource::Directive { .. }) {
            return None;
        }
        let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
        let composed = compose_others(&mut self.composed, items, &launch);
        let fires = |composed: &Composed| {
            let bounds = FactBounds::new(items, composed, &self.matching);
            may_fire(composed, hook, &launch, &bounds, None, &mut Fuel::share(1))
        };
        let firing = composed.iter().find(|(id, routes)| {
            KnownFacts::for_id(id).verdict(hook) != Verdict::False && (routes.is_empty() || routes.iter().any(fires))
        });
        firing.map(|(id, _)| id.clone())
    }

    /// Removes the parts of a hook's condition that can be true for a directive of the user space or the standard
    /// library.
    fn never_true(&mut self, items: &Items<'_>, hook: &HookDecl, mut parts: FalseParts) -> FalseParts {
        if matches!(hook.source, HookSource::Directive { .. }) || parts.is_empty() {
            return parts;
        }
        let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
        let composed = compose_others(&mut self.composed, items, &launch);
        for (id, routes) in composed {
            if parts.is_empty() || KnownFacts::for_id(id).verdict(hook) == Verdict::False {
                continue;
            }
            for composed in routes {
                let found = false_parts(items, composed, hook, &launch, Some(&parts));
                parts.intersect(&found);
            }
        }
        parts
    }
}

/// Composes the directives of the user space and the standard library, unless `composed` holds them.
fn compose_others<'c>(
    composed: &'c mut Option<Vec<(ItemId, Vec<Composed>)>>,
    items: &Items<'_>,
    launch: &Launch<'_>,
) -> &'c [(ItemId, Vec<Composed>)] {
    composed.get_or_insert_with(|| {
        let directives = items.list(ItemKind::Directive);
        let others = directives.iter().filter(|e| e.space != Space::Project);
        // Errors of these directives are reported in their own space.
        let compose = |e: &Entry| (e.id.clone(), compose_all(items, &e.id, launch, &mut Diagnostics::new()).0);
        others.map(compose).collect()
    })
}
