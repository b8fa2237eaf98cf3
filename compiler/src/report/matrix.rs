//! The matrix of contexts that a directive can run in. The conditions of the directive split the values of each input
//! into cells, and the compiler makes a plan for each combination of cells. Combinations with equal plans form one
//! context. A context states the conditions that the inputs of a call must meet for the call to run in the context.

mod cells;
mod predicates;
mod region;
mod rest;

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use rye_grammar::ItemId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::compile::{CompileRequest, compile, compile_with_context, declared_fields_of};
use crate::compose::{Composed, ComposedHook, compose_all};
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::hook::{HookPoint, PlanVerdict};
use crate::item::Items;
use crate::lower::cache::LowerContext;
use crate::lower::interface::lower_fields;
use crate::plan::{FieldType, InterfaceField, Origins, Plan};
use crate::report::render::json::{CallReport, PlanReport, RunEstimateReport, WorstCaseReport, render};
use crate::report::render::view;
use crate::resolve::{Inputs, Launch};
use crate::semantics::condition::Condition;
use crate::world::World;
use cells::{CellBox, ReadLiterals};
use predicates::{Component, Predicate, SplitInputs, add_predicate, input_name};
use region::describe_region;
pub use rest::RefusedRoute;
use rest::compile_rest;

/// Maximum number of combinations of input values for which plans are compiled.
pub(crate) const MAX_COMBINATIONS: usize = 4_096;

/// The contexts of a directive: the different plans that the directive has for different inputs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Matrix {
    pub directive: String,
    /// Inputs that conditions read, with example values: at least one for each set of values for which all conditions
    /// have the same result. Null stands for an absent input.
    pub inputs: BTreeMap<String, Vec<Value>>,
    /// Conditions on the inputs, in the form of `contexts[].when`, for which no example call was found. A call that
    /// meets one of these conditions belongs to at most one entry of `contexts` and `refused`. Every other call belongs
    /// to exactly one entry.
    pub open: Vec<String>,
    /// Plans for the calls that belong to no entry of `contexts` and `refused`, one plan for each route. No example
    /// call is known. Each plan is therefore compiled without values of the inputs: its `call` has no inputs, and its
    /// `when` has the conditions of `open`. Empty if every call belongs to an entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rest: Vec<MatrixContext>,
    /// Routes without a plan for the calls of `rest`, with the codes of the errors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rest_refused: Vec<RefusedRoute>,
    /// Number of combinations of input values that were examined.
    pub combinations: usize,
    /// Contexts in the order of discovery.
    pub contexts: Vec<MatrixContext>,
    /// Groups of calls for which there is no plan, with the codes of the errors.
    pub refused: Vec<RefusedRegion>,
}

/// A context, the conditions on the inputs for it, and an example of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MatrixContext {
    /// Conditions on the inputs, in the condition language (`a != 9 && d >= 1`). A call has this context if one of the
    /// conditions holds; `true` holds for every call. For each call, exactly one condition of all contexts and refused
    /// groups holds, unless a condition of `open` holds. An input without a value has its default; if the default
    /// depends on the route, the input counts as absent.
    pub when: Vec<String>,
    /// A call that produces this context, with placeholder values for inputs that make no difference.
    pub call: CallReport,
    pub plan_id: String,
    pub chain: Vec<String>,
    /// Ids of the prompt layers and names of the tools, in the order in which they are sent.
    pub parts: Vec<String>,
    /// Tokens of the first request.
    pub tokens: u64,
    pub first: RunEstimateReport,
    pub typical: RunEstimateReport,
    pub worst: WorstCaseReport,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedRegion {
    /// Conditions on the inputs, in the form of `contexts[].when`: a call has no plan if one of them holds.
    pub when: Vec<String>,
    pub codes: Vec<String>,
}

/// Reasons why a directive has no matrix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    #[error("`{0}` does not compile; run `rye check` for the reason")]
    Broken(ItemId),
    #[error("the inputs have {0} combinations, more than the maximum of {MAX_COMBINATIONS}")]
    TooMany(usize),
}

/// Compiles a plan for each combination of values of the inputs that the request does not set.
///
/// # Errors
/// Fails if the directive cannot be composed, or if there are more than `MAX_COMBINATIONS` combinations.
pub fn build_matrix(world: &dyn World, request: &CompileRequest) -> Result<Matrix, MatrixError> {
    build(world, request, MatrixKind::Plans)
}

/// Groups the possible calls of a directive by the extends chain that routing selects. The matrix has one entry for
/// each chain, with the conditions under which routing selects this chain.
///
/// # Errors
/// Fails like [`build_matrix`].
pub(crate) fn build_route_matrix(world: &dyn World, request: &CompileRequest) -> Result<Matrix, MatrixError> {
    build(world, request, MatrixKind::Routes)
}

/// The result by which calls with different inputs are grouped: the plan or the route.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MatrixKind {
    Plans,
    Routes,
}

fn build(world: &dyn World, request: &CompileRequest, kind: MatrixKind) -> Result<Matrix, MatrixError> {
    let id = &request.directive;
    let items = Items::new(world);
    let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
    let (all, _) = compose_all(&items, id, &launch, &mut Diagnostics::new());
    if all.is_empty() {
        return Err(MatrixError::Broken(id.clone()));
    }
    let given = request.inputs.clone().unwrap_or_default();
    let mut declared = merge_declarations(&all);
    declared.retain(|name, _| !given.contains_key(name));
    let split = split_inputs(&all, &declared, given.clone(), kind);
    let components = split.components().map_err(MatrixError::TooMany)?;
    let combinations = components.iter().fold(1_usize, |product, one| product.saturating_mul(one.len().max(1)));
    if combinations > MAX_COMBINATIONS {
        return Err(MatrixError::TooMany(combinations));
    }
    let mut inputs = BTreeMap::new();
    for component in &components {
        component.list_values(&split, &mut inputs);
    }
    let mut matrix = Matrix {
        directive: id.to_string(),
        inputs,
        open: describe_region(&split, split.unexamined(&components)),
        rest: Vec::new(),
        rest_refused: Vec::new(),
        combinations,
        contexts: Vec::new(),
        refused: Vec::new(),
    };
    if kind == MatrixKind::Plans && !matrix.open.is_empty() {
        (matrix.rest, matrix.rest_refused) = compile_rest(world, request, &all, &matrix.open);
    }
    let calls = Calls { world, request, kind, given: &given, declared: &declared, has_routes: all.len() > 1 };
    let CompiledCalls { known, refused } = calls.compile(&split, &components, combinations);
    for (mut context, cells) in known.into_values() {
        context.when = describe_region(&split, cells);
        matrix.contexts.push(context);
    }
    for (codes, cells) in refused {
        matrix.refused.push(RefusedRegion { when: describe_region(&split, cells), codes });
    }
    Ok(matrix)
}

/// The settings for compiling the possible calls of a directive and grouping them by plan or route.
struct Calls<'c> {
    world: &'c dyn World,
    request: &'c CompileRequest,
    kind: MatrixKind,
    given: &'c Map<String, Value>,
    declared: &'c IndexMap<String, InterfaceField>,
    /// True if the inputs decide the route.
    has_routes: bool,
}

/// The results of the compiled calls: the contexts by key, and the refused calls by the codes of their errors. The
/// `CellBox`es of a result state the inputs of its calls.
#[derive(Default)]
struct CompiledCalls {
    known: IndexMap<String, (MatrixContext, Vec<CellBox>)>,
    refused: BTreeMap<Vec<String>, Vec<CellBox>>,
}

impl Calls<'_> {
    /// Compiles the calls of all combinations. Calls that differ in their inputs share the parsed files and all results
    /// that do not depend on inputs. Only the first call of each context is compiled to a whole plan with its id.
    fn compile(&self, split: &SplitInputs<'_>, components: &[Component], combinations: usize) -> CompiledCalls {
        let mut compiled = CompiledCalls::default();
        let mut at = 0;
        while at < combinations {
            let items = Items::new(self.world);
            let shared = LowerContext::new(&items);
            while at < combinations {
                let (cells, chosen) = split.combination(components, at);
                at += 1;
                let inputs = self.complete_inputs(&shared, split, chosen);
                let request = CompileRequest { inputs: Some(inputs), ..self.request.clone() };
                if !self.add_call(&shared, &request, cells, &mut compiled) {
                    // The shared results can contain errors of this call, so the next call starts without shared
                    // results.
                    break;
                }
            }
        }
        compiled
    }

    /// Completes the inputs of a combination: adds the inputs of the request, and placeholder values for inputs that no
    /// condition reads. Only inputs that the route of the combination declares get placeholder values.
    fn complete_inputs(
        &self,
        shared: &LowerContext<'_, '_>,
        split: &SplitInputs<'_>,
        chosen: Map<String, Value>,
    ) -> Map<String, Value> {
        let mut inputs = self.given.clone();
        inputs.extend(chosen);
        let own = if self.has_routes { declared_fields_of(shared, &self.request.directive, &inputs) } else { None };
        let own = own.as_ref().unwrap_or(self.declared).iter();
        for (name, field) in own.filter(|(name, _)| !split.names.contains(name) && !self.given.contains_key(*name)) {
            inputs.extend(placeholder_value(name, field).map(|value| (name.clone(), value)));
        }
        inputs
    }

    /// Compiles the call `request`, and adds its cells to the context of its plan or, if the call has no plan, to the
    /// refused calls.
    ///
    /// Returns false if the results that all calls share can no longer be used, because they may contain errors that
    /// other calls do not have.
    fn add_call(
        &self,
        shared: &LowerContext<'_, '_>,
        request: &CompileRequest,
        cells: CellBox,
        compiled: &mut CompiledCalls,
    ) -> bool {
        let mut found = Diagnostics::new();
        let lowered = compile_with_context(shared, request, &mut found);
        let is_shared = !shared.items.diagnostics().has_errors() && !shared.diagnostics().has_errors();
        let is_missing = |one: &Diagnostic| !one.is_error() || one.code() == "interface::missing-input";
        if is_shared && found.has_errors() && found.iter().all(is_missing) && !compiled.known.is_empty() {
            compiled.refused.entry(error_codes(&found)).or_default().push(cells);
            return true;
        }
        if let Some(lowered) = lowered.filter(|_| is_shared && !found.has_errors())
            && let Some((_, all)) = compiled.known.get_mut(&self.key(&lowered.plan, &lowered.origins))
        {
            all.push(cells);
            return true;
        }
        let whole = compile(self.world, request);
        let Some(compilation) = whole.value else {
            compiled.refused.entry(error_codes(&whole.diagnostics)).or_default().push(cells);
            return false;
        };
        let key = self.key(&compilation.plan, &compilation.origins);
        let first = || (matrix_context(&render(&compilation, Vec::new())), Vec::new());
        compiled.known.entry(key).or_insert_with(first).1.push(cells);
        is_shared && !found.has_errors()
    }

    fn key(&self, plan: &Plan, origins: &Origins) -> String {
        match self.kind {
            MatrixKind::Plans => context_key(plan, origins),
            MatrixKind::Routes => {
                let ids: Vec<String> = plan.chain.iter().map(|link| link.id.to_string()).collect();
                ids.join("\n")
            }
        }
    }
}

fn error_codes(found: &Diagnostics) -> Vec<String> {
    let codes: BTreeSet<String> = found.iter().filter(|d| d.is_error()).map(|d| d.code().to_owned()).collect();
    codes.into_iter().collect()
}

/// Merges the declarations of inputs of all routes by name. An input is required if every route requires it. A default
/// is kept only if it is the same on every route and known before a route is chosen. If the default of an input is not
/// kept, the calls that give no value for this input are examined as a case of their own.
fn merge_declarations(all: &[Composed]) -> IndexMap<String, InterfaceField> {
    let routes: Vec<IndexMap<String, InterfaceField>> =
        all.iter().map(|composed| lower_fields(&composed.inputs)).collect();
    let mut merged: IndexMap<String, InterfaceField> = IndexMap::new();
    for (name, field) in routes.iter().flatten() {
        let Some(known) = merged.get_mut(name) else {
            let mut field = field.clone();
            field.required &= routes.iter().all(|route| route.contains_key(name));
            let is_own = all
                .iter()
                .filter_map(Composed::leaf)
                .all(|leaf| leaf.inputs.get(name).is_some_and(|input| input.default.is_some()));
            if !is_own && (all.len() > 1 || routing_reads(all, name)) {
                field.default = None;
            }
            merged.insert(name.clone(), field);
            continue;
        };
        known.required &= field.required;
        if known.default != field.default {
            known.default = None;
        }
        if field.choices.is_empty() {
            known.choices.clear();
        } else if !known.choices.is_empty() {
            let more: Vec<Value> =
                field.choices.iter().filter(|choice| !known.choices.contains(choice)).cloned().collect();
            known.choices.extend(more);
        }
    }
    merged
}

/// Returns true if the condition of a routing hook reads this input.
fn routing_reads(all: &[Composed], name: &str) -> bool {
    let hooks = all.iter().flat_map(|composed| &composed.hooks);
    hooks
        .filter(|hook| hook.decl.event == HookPoint::ResolveExtends)
        .filter_map(|hook| hook.decl.compiled.as_ref())
        .any(|condition| condition.paths().into_iter().any(|path| input_name(path).is_some_and(|read| read == name)))
}

/// Splits the values of every input that a condition reads into cells, by the literals that conditions compare the
/// input with. An atom that the cells do not decide becomes a predicate.
fn split_inputs<'f>(
    all: &[Composed],
    declared: &'f IndexMap<String, InterfaceField>,
    given: Map<String, Value>,
    kind: MatrixKind,
) -> SplitInputs<'f> {
    let mut read: BTreeMap<String, ReadLiterals> = BTreeMap::new();
    let mut predicates: IndexMap<String, Predicate> = IndexMap::new();
    let is_read = |hook: &&ComposedHook| {
        hook.is_live() && (kind == MatrixKind::Plans || hook.decl.event == HookPoint::ResolveExtends)
    };
    let hooks = all.iter().flat_map(|composed| composed.hooks.iter().filter(is_read));
    for atom in hooks.filter_map(|hook| hook.decl.compiled.as_ref()).flat_map(Condition::atoms) {
        let mut decides = true;
        for literals in atom.samples() {
            let Some(name) = input_name(&literals.path) else { continue };
            let Some(field) = declared.get(&name) else { continue };
            let known = read.entry(name).or_default();
            decides &= literals.path.segments.len() == 2 && known.add(&literals, field.kind);
        }
        if let (false, Some(predicate)) = (decides, Predicate::new(atom)) {
            add_predicate(&mut predicates, predicate);
        }
    }
    let mut split = SplitInputs {
        names: Vec::new(),
        fields: Vec::new(),
        partitions: Vec::new(),
        predicates: predicates.into_values().collect(),
        given,
    };
    for (name, literals) in read {
        let Some(field) = declared.get(&name) else { continue };
        split.partitions.push(literals.partition(&name, field));
        split.fields.push(field);
        split.names.push(name);
    }
    split
}

/// Returns a value for an input that does not affect the plan, so that an example call is complete. `None` for an input
/// with a default, and for an optional boolean, array or object.
fn placeholder_value(name: &str, field: &InterfaceField) -> Option<Value> {
    if field.default.is_some() {
        return None;
    }
    if let Some(choice) = field.choices.first() {
        return Some(choice.clone());
    }
    match field.kind {
        FieldType::String => Some(Value::String(format!("<{name}>"))),
        FieldType::Integer | FieldType::Number => Some(Value::from(0)),
        FieldType::Boolean => field.required.then_some(Value::Bool(false)),
        FieldType::Array => field.required.then(|| Value::Array(Vec::new())),
        FieldType::Object => field.required.then(|| Value::Object(Map::new())),
    }
}

/// Returns the key of a context: the parts of the plan in which contexts can differ (extends chain, parts of the
/// prompt, model, hooks, limits and grants), without the values of inputs.
fn context_key(plan: &Plan, origins: &Origins) -> String {
    let chain: Vec<&ItemId> = plan.chain.iter().map(|link| &link.id).collect();
    let (system, first, _) = view::view_prompt(plan, origins);
    let layers: Vec<&str> = system.layers.iter().chain(&first.layers).map(|view| view.layer.id.as_str()).collect();
    let tools: Vec<&str> = plan.palette.iter().map(|tool| &*tool.name).collect();
    let verdict = |verdict: &PlanVerdict| match verdict {
        PlanVerdict::Fires => "fires",
        PlanVerdict::Never { .. } => "never",
        PlanVerdict::Depends { .. } => "depends",
        PlanVerdict::Removed { .. } => "removed",
    };
    let hooks: Vec<(&str, &str)> = plan.hooks.iter().map(|hook| (hook.id.as_str(), verdict(&hook.verdict))).collect();
    let grants: Vec<&str> = plan.capabilities.grants.iter().map(|grant| grant.pattern.as_str()).collect();
    format!("{chain:?}\n{layers:?}\n{tools:?}\n{hooks:?}\n{:?}\n{grants:?}\n{}", plan.limits, plan.model.id)
}

fn context_parts(report: &PlanReport) -> Vec<String> {
    let first = &report.first_message;
    let message = first.before.iter().chain(&first.body).chain(&first.after);
    let layers = report.system.layers.iter().chain(message).map(|layer| layer.id.clone());
    layers.chain(report.palette.iter().map(|tool| tool.name.clone())).collect()
}

fn matrix_context(report: &PlanReport) -> MatrixContext {
    MatrixContext {
        when: Vec::new(),
        call: report.call.clone(),
        plan_id: report.plan_id.clone(),
        chain: report.chain.clone(),
        parts: context_parts(report),
        tokens: report.tokens.input,
        first: report.cost.first.clone(),
        typical: report.cost.typical.clone(),
        worst: report.cost.worst.clone(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::compile::tests::world::{minimal_world, with_directives};

    fn found(inputs: &str, hooks: &str) -> Result<Matrix, MatrixError> {
        let inside = format!("<metadata><permissions/></metadata><inputs>{inputs}</inputs>");
        let world = with_directives(minimal_world(), &[("leaf", "", &inside, "Do {input:a?} {input:b?}.")])
            .project(".ai/knowledge/k.md", "Some knowledge.")
            .project(".ai/knowledge/l.md", "More knowledge.")
            .project(".ai/config/agent/hooks.yaml", format!("hooks:\n{hooks}"));
        build_matrix(&world, &CompileRequest::new(ItemId::parse("leaf").unwrap()))
    }

    fn hook(id: &str, item: &str, condition: &str) -> String {
        format!(
            "  - {{ id: {id}, event: thread_started, condition: '{condition}', action: {{ primary: fetch, item_type: knowledge, item_id: {item} }} }}\n"
        )
    }

    #[test]
    fn inputs_are_split_at_condition_boundaries() {
        let hooks = hook("h", "k", "inputs.a == \"prod\"") + &hook("i", "l", "inputs.b > 3");
        let found = found(
            "<input name=\"a\" required=\"true\"/><input name=\"b\" type=\"integer\" required=\"true\"/>",
            &hooks,
        )
        .unwrap();
        assert_eq!(found.inputs["a"], [json!("prod"), json!("<a>")]);
        assert_eq!(found.inputs["b"], [json!(2), json!(3), json!(4)]);
        assert_eq!((found.combinations, found.contexts.len(), found.refused.len()), (6, 4, 0));
        let bare = found.contexts.iter().find(|c| c.parts == ["leaf"]).unwrap();
        assert_eq!(bare.when, ["a != \"prod\" && b <= 3"]);
        let both = found.contexts.iter().find(|c| c.parts.len() == 3).unwrap();
        assert_eq!(both.when, ["a == \"prod\" && b > 3"]);
        assert!(both.tokens > bare.tokens);
    }

    #[test]
    fn inputs_read_by_no_condition_are_left_out() {
        let found = found("<input name=\"a\" required=\"true\" enum=\"x,y,z\"/><input name=\"b\"/>", "  []\n").unwrap();
        assert_eq!((found.inputs.len(), found.combinations, found.contexts.len()), (0, 1, 1));
        assert_eq!(found.contexts[0].when, ["true"]);
    }

    #[test]
    fn enum_inputs_try_all_choices_and_optional_inputs_try_null() {
        let hooks = hook("h", "k", "inputs.a == \"x\" || !exists(inputs.b)");
        let found = found("<input name=\"a\" required=\"true\" enum=\"x,y\"/><input name=\"b\"/>", &hooks).unwrap();
        assert_eq!(found.inputs["a"], [json!("x"), json!("y")]);
        assert_eq!(found.inputs["b"], [json!("<b>"), Value::Null]);
        let without = found.contexts.iter().find(|c| c.parts == ["leaf"]).unwrap();
        assert_eq!(without.when, ["a == \"y\" && exists(b)"]);
    }

    #[test]
    fn patterns_lengths_and_sums_split_the_inputs_too() {
        let inputs = "<input name=\"a\" required=\"true\"/><input name=\"b\" type=\"integer\" required=\"true\"/>";
        let hooks =
            hook("h", "k", "inputs.a matches \"^x\" && length(inputs.a) > 3") + &hook("i", "l", "inputs.b + 2 > 5");
        let found = found(inputs, &hooks).unwrap();
        assert_eq!(found.open, Vec::<String>::new());
        let both = found.contexts.iter().find(|c| c.parts.len() == 3).unwrap();
        assert_eq!(both.when, ["a matches \"^x\" && length(a) > 3 && b + 2 > 5"]);
        assert_eq!(found.contexts.len(), 4);
    }

    #[test]
    fn two_inputs_that_are_compared_split_together() {
        let inputs = "<input name=\"a\" required=\"true\"/><input name=\"b\"/>";
        let found = found(inputs, &hook("h", "k", "inputs.a == inputs.b")).unwrap();
        let when: Vec<&[String]> = found.contexts.iter().map(|context| context.when.as_slice()).collect();
        assert_eq!(when, [["!(a == b)"], ["exists(b) && a == b"]]);
        // A required input is never absent.
        assert_eq!(found.open, ["!exists(b) && a == b"]);
        let rest: Vec<(&[String], usize)> =
            found.rest.iter().map(|context| (context.when.as_slice(), context.parts.len())).collect();
        assert_eq!(rest, [(found.open.as_slice(), 2)], "the hook may fire, so its knowledge counts");
    }

    #[test]
    fn predicates_without_a_known_call_are_open_and_too_many_combinations_are_rejected() {
        let open = found(
            "<input name=\"a\" required=\"true\"/>",
            &hook("h", "k", "inputs.a matches \"^$\" && length(inputs.a) > 3"),
        );
        assert_eq!(open.unwrap().open, ["a matches \"^$\" && length(a) > 3"]);
        let names: Vec<String> = (0..13).map(|i| format!("n{i}")).collect();
        let one = |all: String, n: &String| all + "<input name=\"" + n + "\" type=\"boolean\" required=\"true\"/>";
        let inputs = names.iter().fold(String::new(), one);
        let all = names.iter().map(|n| format!("inputs.{n}")).collect::<Vec<_>>().join(" && ");
        assert_eq!(found(&inputs, &hook("h", "k", &all)), Err(MatrixError::TooMany(8192)));
    }

    #[test]
    fn hook_that_yields_to_the_chain_splits_the_contexts() {
        let inside = "<metadata><permissions/><context><before>k</before></context></metadata><inputs><input name=\"a\" required=\"true\"/></inputs>";
        let world = with_directives(minimal_world(), &[("leaf", "", inside, "Do {input:a}.")])
            .project(".ai/knowledge/k.md", "Some knowledge.")
            .project(".ai/config/agent/hooks.yaml", format!("hooks:\n{}", hook("h", "k", "inputs.a == \"x\"")));
        let found = build_matrix(&world, &CompileRequest::new(ItemId::parse("leaf").unwrap())).unwrap();
        assert_eq!(found.inputs["a"], [json!("x"), json!("<a>")]);
    }

    #[test]
    fn input_that_only_one_route_declares_leaves_the_others_their_contexts() {
        let route =
            "  - { id: r, event: resolve_extends, condition: 'inputs.a == \"x\"', action: { set_extends: root } }\n";
        let inside = "<metadata><permissions/></metadata><inputs><input name=\"a\" required=\"true\"/></inputs>";
        let base = "<metadata><permissions/></metadata><inputs><input name=\"b\" required=\"true\"/></inputs>";
        let world =
            with_directives(minimal_world(), &[("leaf", "", inside, "Do {input:a}."), ("root", "", base, "{input:b}")])
                .project(".ai/config/agent/hooks.yaml", format!("hooks:\n{route}"));
        let found = build_matrix(&world, &CompileRequest::new(ItemId::parse("leaf").unwrap())).unwrap();
        assert!(!found.contexts.is_empty() && found.refused.is_empty(), "{:?}", found.refused);
    }

    #[test]
    fn routing_hook_on_an_undeclared_input_leaves_the_route_certain() {
        let route =
            "  - { id: r, event: resolve_extends, condition: 'inputs.a == \"x\"', action: { set_extends: root } }\n";
        let none = "<metadata><permissions/></metadata>";
        // An input that no directive declares would be an error.
        let other = ("other", "", "<inputs><input name=\"a\"/></inputs>", "Do {input:a?}.");
        let all = [("leaf", "", none, "Do it."), ("root", "", none, "Base."), other];
        let world =
            with_directives(minimal_world(), &all).project(".ai/config/agent/hooks.yaml", format!("hooks:\n{route}"));
        let compiled = compile(&world, &CompileRequest::new(ItemId::parse("leaf").unwrap()));
        assert!(compiled.value.is_some(), "{:?}", compiled.diagnostics);
    }
}
