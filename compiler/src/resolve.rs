//! Where a directive's chain begins: the `resolve_extends` hooks, by the one evaluator, over what is known before the
//! chain is walked (`language.md` 8, step 1).

use std::sync::Arc;

use rye_grammar::ItemId;
use rye_grammar::condition::Path;
use serde_json::{Map, Value};

use crate::compose::Route;
use crate::item::{Directive, Field, HookDecl, HookLine, Items, ModelRequest};
use crate::semantics::condition::{Condition, Domain, Effort, Found, Verdict};
use crate::semantics::facts::Facts;

/// What is known when a directive is composed.
#[derive(Clone, Copy)]
pub struct Launch<'l> {
    pub inputs: Inputs<'l>,
    /// The resolved model id for a request (the leaf's own, or the composed one); `None` where it cannot be told.
    pub model: &'l dyn Fn(Option<&ModelRequest>) -> Option<String>,
}

/// The inputs of a composition.
#[derive(Clone, Copy)]
pub enum Inputs<'l> {
    /// Check: any caller with any values.
    Unknown,
    /// Plan and run: what the caller gave. Required ones that are missing are still unknown.
    Given(&'l Map<String, Value>),
}

/// What the routing hooks say.
#[derive(Debug, Clone)]
pub enum Routing {
    /// The first match, or `None`: the declared parent holds.
    Certain(Option<Route>),
    /// Several are possible, in order; `on` are the paths that decide.
    Open { routes: Vec<Option<Route>>, on: Vec<String>, first: Arc<HookDecl> },
}

impl Routing {
    /// The unknown paths that stand between here and a certain route.
    pub fn open_questions(&self) -> Vec<String> {
        match self {
            Self::Certain(_) => Vec::new(),
            Self::Open { on, .. } => on.clone(),
        }
    }

    pub fn first_open_hook(&self) -> Option<&Arc<HookDecl>> {
        match self {
            Self::Certain(_) => None,
            Self::Open { first, .. } => Some(first),
        }
    }
}

/// Routes a directive. A hook that names the directive itself does not apply to it: a base that its own routing rule
/// matches keeps the parent it declares.
pub fn route(items: &Items<'_>, leaf: &Directive, launch: &Launch<'_>) -> Routing {
    let hooks = routing_hooks(items, leaf);
    if hooks.is_empty() {
        return Routing::Certain(None);
    }
    let mut knowledge = Known::before_the_chain(leaf, launch);
    let mut routes = Vec::new();
    let mut on: Vec<String> = Vec::new();
    let mut first = None;
    for hook in hooks {
        let Some(to) = target(&hook).filter(|to| to != leaf.id()) else { continue };
        match knowledge.verdict(&hook) {
            Verdict::False => {}
            Verdict::True => {
                routes.push(Some(Route { hook, to }));
                return finish(routes, on, first);
            }
            Verdict::Unknown(paths) => {
                on.extend(paths.into_iter().filter(|p| !on.contains(p)).collect::<Vec<_>>());
                first.get_or_insert_with(|| hook.clone());
                routes.push(Some(Route { hook, to }));
            }
        }
    }
    routes.push(None);
    finish(routes, on, first)
}

fn finish(mut routes: Vec<Option<Route>>, on: Vec<String>, first: Option<Arc<HookDecl>>) -> Routing {
    match first {
        None => Routing::Certain(routes.pop().flatten()),
        Some(first) => Routing::Open { routes, on, first },
    }
}

/// Live `resolve_extends` hooks in order. The chain is not walked yet, so of the directives only the leaf has a say.
fn routing_hooks(items: &Items<'_>, leaf: &Directive) -> Vec<Arc<HookDecl>> {
    let files = items.hook_files();
    if leaf.hooks.is_empty() {
        return files.routing.clone();
    }
    let all = [&files.user, &leaf.hooks, &files.builtin, &files.project, &files.infra].into_iter().flatten();
    HookLine::routing(all)
}

/// The id a routing hook names; read and checked when the hook was.
pub fn target(hook: &HookDecl) -> Option<ItemId> {
    ItemId::parse(hook.action.as_ref()?.node.parent()?).ok()
}

/// Facts before a run, and who may still ask for those that are not known.
pub struct Known<'l> {
    facts: Facts,
    roots: Vec<&'static str>,
    /// Looked up only when a condition asks for the model.
    model: Option<AskedModel<'l>>,
}

type AskedModel<'l> = (Option<&'l ModelRequest>, &'l dyn Fn(Option<&ModelRequest>) -> Option<String>);

impl<'l> Known<'l> {
    /// Facts of `resolve_extends`.
    pub fn before_the_chain(leaf: &'l Directive, launch: &Launch<'l>) -> Self {
        let mut known = Self::common(leaf, (leaf.model.as_ref(), launch.model));
        known.facts.set("has_extends", Value::Bool(leaf.extends.is_some()));
        known.roots.push("has_extends");
        // There is no thread yet.
        known.roots.push("thread_id");
        match launch.inputs {
            // An ancestor may declare inputs too, so nothing at all is known of them.
            Inputs::Unknown => {}
            Inputs::Given(given) => known.give(given, leaf.inputs.values()),
        }
        known
    }

    /// Facts of a composed directive.
    pub fn of_chain<'f>(
        leaf: &Directive,
        model: Option<&'l ModelRequest>,
        inputs: impl Iterator<Item = &'f Field>,
        launch: &Launch<'l>,
    ) -> Self {
        let mut known = Self::common(leaf, (model, launch.model));
        match launch.inputs {
            Inputs::Given(given) => known.give(given, inputs),
            Inputs::Unknown => {
                known.facts.set("inputs", Value::Object(Map::new()));
                known.roots.push("inputs");
                for field in inputs {
                    known.facts.unknown(&format!("inputs.{}", field.name.node));
                }
            }
        }
        known
    }

    /// No fact at all: what is true or false over it is so whatever happens.
    pub fn nothing() -> Self {
        Self { facts: Facts::new(), roots: Vec::new(), model: None }
    }

    /// A directive of which nothing but the id was looked at.
    pub fn of_id(id: &ItemId) -> Self {
        let mut facts = Facts::new();
        facts.set("directive", Value::String(id.to_string()));
        facts.set("category", Value::String(id.category().to_owned()));
        Self { facts, roots: vec!["directive", "category"], model: None }
    }

    fn common(leaf: &Directive, model: AskedModel<'l>) -> Self {
        let mut known = Self::of_id(leaf.id());
        known.facts.set("category", Value::String(leaf.category().to_owned()));
        known.model = Some(model);
        known
    }

    /// What the caller gave, then defaults; a required input without either is not known yet, an optional one absent.
    fn give<'f>(&mut self, given: &Map<String, Value>, declared: impl Iterator<Item = &'f Field>) {
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
                None if field.required => self.facts.unknown(&format!("inputs.{name}")),
                None => {}
            }
        }
        self.facts.set("inputs", Value::Object(values));
        self.roots.push("inputs");
    }

    /// What a hook's condition says over these facts.
    pub fn verdict(&mut self, hook: &HookDecl) -> Verdict {
        let Some(condition) = &hook.compiled else { return Verdict::True };
        self.declare(condition);
        condition.evaluate(&self.facts)
    }

    /// As [`Known::verdict`], with the unknown facts tried at all the values they can have.
    pub fn over(&mut self, hook: &HookDecl, domain: &dyn Fn(&Path) -> Option<Domain>, effort: &mut Effort) -> Verdict {
        let Some(condition) = &hook.compiled else { return Verdict::True };
        self.declare(condition);
        condition.over(&self.facts, domain, effort)
    }

    /// Why a condition is false, from what it read.
    pub fn because(&mut self, hook: &HookDecl) -> String {
        let Some(condition) = &hook.compiled else { return String::new() };
        self.declare(condition);
        let (_, readings) = condition.evaluate_traced(&self.facts);
        let mut reasons: Vec<String> = Vec::new();
        for reading in readings {
            let reason = match reading.found {
                Found::Value(value) => format!("`{}` is `{}`", reading.path, plain(&value)),
                Found::Absent => format!("there is no `{}`", reading.path),
                Found::Unknown => continue,
            };
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        if reasons.is_empty() { "the condition is false whatever happens".into() } else { reasons.join(" and ") }
    }

    /// Whatever a path reads that is not known here is known at run time only.
    fn declare(&mut self, condition: &Condition) {
        for root in condition.roots() {
            if root == "model"
                && let Some((asked, resolve)) = self.model.take()
                && let Some(id) = resolve(asked)
            {
                self.facts.set("model", Value::String(id));
                self.roots.push("model");
            }
            if !self.roots.contains(&root) {
                self.facts.unknown(root);
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
