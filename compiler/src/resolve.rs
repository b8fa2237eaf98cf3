//! Routing: the `resolve_extends` hooks select the extends parent of a directive. The hooks are evaluated with the
//! facts that are known before the chain is resolved (`language.md` 8, step 1).

use std::collections::BTreeSet;
use std::sync::Arc;

use rye_grammar::condition::Path;
use rye_grammar::{ItemId, Spanned};
use serde_json::{Map, Value};

use crate::extends;
use crate::item::{Directive, FieldDecl, HookDecl, Items, ModelRequest, OrderedHooks};
use crate::semantics::condition::{Condition, Domain, Fuel, ReadingResult, Verdict};
use crate::semantics::facts::Facts;

/// The inputs and the model with which a directive is composed.
#[derive(Clone, Copy)]
pub struct Launch<'l> {
    pub inputs: Inputs<'l>,
    /// Resolves a model request to a model id. The argument is the directive's own request, or the request of its whole
    /// chain; `None` if no model is requested. Returns `None` if the model is unknown.
    pub model: &'l dyn Fn(Option<&ModelRequest>) -> Option<String>,
}

/// The input values with which a directive is composed.
#[derive(Clone, Copy)]
pub enum Inputs<'l> {
    /// No values are known: `rye check` considers every possible caller.
    Unknown,
    /// The inputs that the caller of `rye plan` or `rye run` passes. A required input that is missing here stays
    /// unknown.
    Given(&'l Map<String, Value>),
}

/// The result of the hooks that can select the extends parent of a directive (`resolve_extends`).
#[derive(Debug, Clone)]
pub enum Routing {
    /// The route of the first matching hook; `None` keeps the declared parent.
    Certain(Option<Route>),
    /// Several routes are possible, because facts that decide between them are not known yet. `routes` lists the
    /// possible routes in the order of the hooks. `on` lists the paths of the unknown facts. `first` is the first hook
    /// with an unknown verdict.
    Open { routes: Vec<Option<Route>>, on: Vec<String>, first: Arc<HookDecl> },
}

impl Routing {
    /// Returns the unknown paths that decide between the routes; empty if the route is certain.
    pub(crate) fn unresolved_paths(&self) -> Vec<String> {
        match self {
            Self::Certain(_) => Vec::new(),
            Self::Open { on, .. } => on.clone(),
        }
    }

    pub(crate) fn first_undecided_hook(&self) -> Option<&Arc<HookDecl>> {
        match self {
            Self::Certain(_) => None,
            Self::Open { first, .. } => Some(first),
        }
    }
}

/// The parent that a routing hook selects.
#[derive(Debug, Clone)]
pub struct Route {
    pub hook: Arc<HookDecl>,
    pub to: ItemId,
}

impl Route {
    /// Returns the parent, with the location of the hook that selects it.
    pub fn parent(&self) -> extends::RoutedParent {
        let span = self.hook.item_span();
        extends::RoutedParent { parent: Spanned::new(self.to.clone(), span), hook: self.hook.id.node.clone() }
    }
}

/// Evaluates the routing hooks of a directive. A hook whose target is this directive itself is skipped, because a
/// directive cannot extend itself. A hook can therefore route all directives to one base directive.
pub fn route(items: &Items<'_>, leaf: &Directive, launch: &Launch<'_>) -> Routing {
    let hooks = routing_hooks(items, leaf);
    if hooks.is_empty() {
        return Routing::Certain(None);
    }
    let mut knowledge = KnownFacts::for_routing(leaf, launch);
    if matches!(launch.inputs, Inputs::Unknown) {
        knowledge.limit_inputs(&possible_inputs(items, leaf, &hooks));
    }
    let mut routes = Vec::new();
    let mut on: Vec<String> = Vec::new();
    let mut first = None;
    for hook in hooks {
        let Some(to) = route_target(&hook).filter(|to| to != leaf.id()) else { continue };
        match knowledge.verdict(&hook) {
            Verdict::False => {}
            Verdict::True => {
                routes.push(Some(Route { hook, to }));
                return to_routing(routes, on, first);
            }
            Verdict::Unknown(paths) => {
                on.extend(paths.into_iter().filter(|p| !on.contains(p)).collect::<Vec<_>>());
                first.get_or_insert_with(|| hook.clone());
                routes.push(Some(Route { hook, to }));
            }
        }
    }
    routes.push(None);
    to_routing(routes, on, first)
}

/// Returns the names of the inputs that a call of the directive `leaf` may have: the inputs of `leaf` and of all
/// directives that it may extend. For a routing hook, every other input is absent. If no routing hook reads an input,
/// returns only the inputs of `leaf`.
fn possible_inputs(items: &Items<'_>, leaf: &Directive, hooks: &[Arc<HookDecl>]) -> BTreeSet<String> {
    let reads =
        |hook: &Arc<HookDecl>| hook.compiled.iter().any(|condition| condition.roots().any(|root| root == "inputs"));
    let mut names: BTreeSet<String> = leaf.inputs.keys().cloned().collect();
    if !hooks.iter().any(reads) {
        return names;
    }
    let parent = leaf.extends.as_ref().map(|parent| parent.node.clone());
    let starts: BTreeSet<ItemId> = hooks.iter().filter_map(|hook| route_target(hook)).chain(parent).collect();
    for link in starts.iter().flat_map(|start| extends::declared_chain(items, start)) {
        names.extend(link.inputs.keys().cloned());
    }
    names
}

fn to_routing(mut routes: Vec<Option<Route>>, on: Vec<String>, first: Option<Arc<HookDecl>>) -> Routing {
    match first {
        None => Routing::Certain(routes.pop().flatten()),
        Some(first) => Routing::Open { routes, on, first },
    }
}

/// Returns the `resolve_extends` hooks that are neither disabled nor replaced, in evaluation order. The extends chain
/// of the directive `leaf` is not known yet, so hooks of its ancestors are not included.
fn routing_hooks(items: &Items<'_>, leaf: &Directive) -> Vec<Arc<HookDecl>> {
    let files = items.hook_files();
    if leaf.hooks.is_empty() {
        return files.routing.clone();
    }
    let all = [&files.user, &leaf.hooks, &files.builtin, &files.project, &files.infra].into_iter().flatten();
    OrderedHooks::routing(all)
}

/// Returns the directive that a routing hook sets as the parent; `None` if the hook has no action. The id was checked
/// when the hook was read.
pub(crate) fn route_target(hook: &HookDecl) -> Option<ItemId> {
    ItemId::parse(hook.action.as_ref()?.node.parent()?).ok()
}

/// The facts that are known before a run. `roots` lists the first segments of their paths; any path that starts with
/// another segment is unknown.
pub(crate) struct KnownFacts<'l> {
    facts: Facts,
    roots: Vec<&'static str>,
    /// The model request, which is resolved only when a condition reads the model.
    model: Option<ModelLookup<'l>>,
    /// The fact `directive`; `None` if it is not known.
    directive: Option<String>,
}

type ModelLookup<'l> = (Option<&'l ModelRequest>, &'l dyn Fn(Option<&ModelRequest>) -> Option<String>);

impl<'l> KnownFacts<'l> {
    /// Returns the facts that the conditions of `resolve_extends` hooks can read, as far as they are known before a
    /// run.
    pub(crate) fn for_routing(leaf: &'l Directive, launch: &Launch<'l>) -> Self {
        let mut known = Self::common(leaf, (leaf.model.as_ref(), launch.model));
        known.facts.set("has_extends", Value::Bool(leaf.extends.is_some()));
        known.roots.push("has_extends");
        // `thread_id` is known to be absent: there is no thread yet.
        known.roots.push("thread_id");
        match launch.inputs {
            // All inputs stay unknown here, because an ancestor may declare inputs too; see `limit_inputs`.
            Inputs::Unknown => {}
            Inputs::Given(given) => known.set_inputs(given, leaf.inputs.values()),
        }
        known
    }

    /// Marks the inputs in `names` as unknown, and all other inputs as absent.
    pub(crate) fn limit_inputs<'n>(&mut self, names: impl IntoIterator<Item = &'n String>) {
        self.facts.set("inputs", Value::Object(Map::new()));
        self.roots.push("inputs");
        for name in names {
            self.facts.declare_unknown(&format!("inputs.{name}"));
        }
    }

    /// Returns the known facts of a composed directive. `inputs` are the declared inputs of its chain; their values are
    /// known only if `launch` gives them.
    pub(crate) fn for_chain<'f>(
        leaf: &Directive,
        model: Option<&'l ModelRequest>,
        inputs: impl Iterator<Item = &'f FieldDecl>,
        launch: &Launch<'l>,
    ) -> Self {
        let mut known = Self::common(leaf, (model, launch.model));
        match launch.inputs {
            Inputs::Given(given) => known.set_inputs(given, inputs),
            Inputs::Unknown => known.limit_inputs(inputs.map(|field| &field.name.node)),
        }
        known
    }

    /// Returns an empty set of facts. A condition with a known result for this set has the same result in every run.
    pub fn empty() -> Self {
        Self { facts: Facts::new(), roots: Vec::new(), model: None, directive: None }
    }

    /// Returns the facts of a directive of which only the id is known.
    pub(crate) fn for_id(id: &ItemId) -> Self {
        let mut facts = Facts::new();
        let directive = id.to_string();
        facts.set("directive", Value::String(directive.clone()));
        facts.set("category", Value::String(id.category().to_owned()));
        Self { facts, roots: vec!["directive", "category"], model: None, directive: Some(directive) }
    }

    fn common(leaf: &Directive, model: ModelLookup<'l>) -> Self {
        let mut known = Self::for_id(leaf.id());
        known.facts.set("category", Value::String(leaf.category().to_owned()));
        known.model = Some(model);
        known
    }

    /// Sets the fact `inputs`: the values in `given`, and the defaults of the other inputs. A required input without a
    /// value is unknown. An optional input without a value is absent.
    fn set_inputs<'f>(&mut self, given: &Map<String, Value>, declared: impl Iterator<Item = &'f FieldDecl>) {
        let mut values = given.clone();
        for field in declared {
            let name = &field.name.node;
            if values.get(name).is_some_and(|v| !v.is_null()) {
                continue;
            }
            match &field.default {
                Some(default) => {
                    values.insert(name.clone(), default.clone());
                }
                None if field.required => self.facts.declare_unknown(&format!("inputs.{name}")),
                None => {}
            }
        }
        self.facts.set("inputs", Value::Object(values));
        self.roots.push("inputs");
    }

    /// Evaluates a hook's condition over these facts.
    pub fn verdict(&mut self, hook: &HookDecl) -> Verdict {
        let Some(condition) = &hook.compiled else { return Verdict::True };
        if self.directive.as_deref().is_some_and(|directive| condition.is_false_for(directive)) {
            return Verdict::False;
        }
        self.declare_unknowns(condition);
        condition.evaluate(&self.facts)
    }

    /// Evaluates the condition of a hook like [`KnownFacts::verdict`]. If the verdict is unknown, tries all
    /// combinations of the values that the unknown facts can have, as far as `fuel` permits. `domain` returns the
    /// possible values of a fact; `None` if they are not known.
    pub(crate) fn verdict_over(
        &mut self,
        hook: &HookDecl,
        domain: &dyn Fn(&Path) -> Option<Domain>,
        fuel: &mut Fuel,
    ) -> Verdict {
        let Some(condition) = &hook.compiled else { return Verdict::True };
        self.condition_verdict_over(condition, domain, fuel)
    }

    /// Evaluates a condition, such as a part of a hook's condition, over all possible values of the unknown facts.
    pub(crate) fn condition_verdict_over(
        &mut self,
        condition: &Condition,
        domain: &dyn Fn(&Path) -> Option<Domain>,
        fuel: &mut Fuel,
    ) -> Verdict {
        self.declare_unknowns(condition);
        condition.evaluate_over(&self.facts, domain, fuel)
    }

    /// Explains why the condition of a hook is false, by the facts that the condition read. Empty for a hook without a
    /// condition.
    pub(crate) fn explain_false(&mut self, hook: &HookDecl) -> String {
        let Some(condition) = &hook.compiled else { return String::new() };
        self.declare_unknowns(condition);
        let (_, readings) = condition.evaluate_traced(&self.facts);
        let mut reasons: Vec<String> = Vec::new();
        for reading in readings {
            let reason = match reading.found {
                ReadingResult::Value(value) => format!("`{}` is `{}`", reading.path, plain(&value)),
                ReadingResult::Absent => format!("`{}` does not exist", reading.path),
                ReadingResult::Unknown => continue,
            };
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        if reasons.is_empty() { "the condition is false in every run".into() } else { reasons.join(" and ") }
    }

    /// Declares every fact unknown that the condition reads and that is not known. If the condition reads the model,
    /// resolves the model first.
    fn declare_unknowns(&mut self, condition: &Condition) {
        for root in condition.roots() {
            if root == "model"
                && let Some((requested, resolve)) = self.model.take()
                && let Some(id) = resolve(requested)
            {
                self.facts.set("model", Value::String(id));
                self.roots.push("model");
            }
            if !self.roots.contains(&root) {
                self.facts.declare_unknown(root);
            }
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => crate::item::shorten(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            crate::item::shorten(&value.to_string())
        }
    }
}
