//! The plans of a directive whose route depends on unknown inputs: one plan for each route that a call can take, with
//! the conditions that select the route.

use rye_grammar::{ItemId, Sources};
use serde_json::{Map, Value};

use crate::compile::{
    AssumedRoute, Compilation, CompileRequest, compile, compile_with_default_inputs, compile_with_sources,
};
use crate::compose::{Composed, compose_all};
use crate::diagnostics::{Checked, Diagnostic, Diagnostics, InterfaceError};
use crate::item::Items;
use crate::report::matrix::{Matrix, MatrixError, build_route_matrix};
use crate::resolve::{Inputs, Launch};
use crate::world::World;

/// The plan of one route of a directive, and the conditions on the inputs under which calls take this route.
#[derive(Debug, Clone)]
pub struct RoutedPlan {
    /// Conditions on the inputs: the plan applies to a call if one of the conditions holds. The condition `true` holds
    /// for every call.
    pub when: Vec<String>,
    /// The inputs of an example call that has this plan; `None` if all calls have this plan, or if no such call was
    /// found.
    pub call: Option<Map<String, Value>>,
    pub compilation: Compilation,
    /// Warnings and advice of this plan.
    pub diagnostics: Diagnostics,
}

/// Compiles a directive once for each route that its unknown inputs leave open. If the route is certain, compiles the
/// directive only once. The result has no value in three cases: the directive has errors, the inputs have too many
/// combinations, or the request sets inputs, but not all inputs that decide the route. `shown` receives the sources to
/// which the diagnostics refer.
pub fn compile_routes(world: &dyn World, request: &CompileRequest, shown: &mut Sources) -> Checked<Vec<RoutedPlan>> {
    let compiled = compile_with_sources(world, request, shown);
    split_routes(world, request, compiled, shown)
}

/// Adds inputs to the request as [`CompileRequest::with_default_inputs`] does, and then compiles the request like
/// [`compile_routes`].
pub fn compile_routes_with_default_inputs(
    world: &dyn World,
    request: CompileRequest,
    shown: &mut Sources,
) -> Checked<Vec<RoutedPlan>> {
    let (request, compiled) = compile_with_default_inputs(world, request, shown);
    split_routes(world, &request, compiled, shown)
}

/// Returns the plans of a compiled request. If the request has a plan, this plan is the only one. If the request has no
/// plan because an input that decides the route is missing, compiles a plan for each route that is still possible.
fn split_routes(
    world: &dyn World,
    request: &CompileRequest,
    compiled: Checked<Compilation>,
    shown: &mut Sources,
) -> Checked<Vec<RoutedPlan>> {
    if let Some(compilation) = compiled.value {
        let when = vec!["true".to_owned()];
        let plan = RoutedPlan { when, call: None, compilation, diagnostics: compiled.diagnostics };
        return Checked::new(Some(vec![plan]), Diagnostics::new());
    }
    let is_missing = |one: &Diagnostic| !one.is_error() || one.code() == "interface::missing-input";
    let is_open = request.inputs.is_none() && compiled.diagnostics.iter().all(is_missing);
    if !is_open {
        return Checked::new(None, compiled.diagnostics);
    }
    let routes = match build_route_matrix(world, request) {
        Ok(routes) if !routes.contexts.is_empty() => routes,
        Ok(_) | Err(MatrixError::Broken(_)) => return Checked::new(None, compiled.diagnostics),
        Err(error @ MatrixError::TooMany(_)) => {
            return Checked::new(None, report_open_route(&request.directive, &error, compiled.diagnostics));
        }
    };
    let unexamined = compile_unexamined_routes(world, request, &routes);
    let mut plans = Vec::new();
    for context in routes.contexts {
        let parent = context.chain.iter().rev().nth(1).and_then(|id| ItemId::parse(id).ok());
        let request = CompileRequest { route: Some(AssumedRoute { parent }), ..request.clone() };
        let compiled = compile(world, &request);
        let Some(compilation) = compiled.value else {
            let again = compile_with_sources(world, &request, shown);
            return Checked::new(None, again.diagnostics);
        };
        let (when, call) = (context.when, context.call.inputs);
        plans.push(RoutedPlan { when, call, compilation, diagnostics: compiled.diagnostics });
    }
    plans.extend(unexamined);
    Checked::new(Some(plans), Diagnostics::new())
}

/// Replaces the reports of missing inputs by one report of `error`, the reason why the routes are not planned.
fn report_open_route(directive: &ItemId, error: &MatrixError, found: Diagnostics) -> Diagnostics {
    let (mut names, mut first, mut reports) = (Vec::new(), None, Diagnostics::new());
    for one in found {
        if let Diagnostic::Interface(InterfaceError::MissingInput { name, used, .. }) = one {
            first = first.or(used);
            names.push(name);
        } else {
            reports.push(one);
        }
    }
    let (directive, reason) = (directive.to_string(), error.to_string());
    reports.push(InterfaceError::OpenRoute { directive, reason, names, used: first });
    reports
}

/// Compiles the routes that a call may take, but for which the matrix found no example call: it found no inputs for
/// some conditions ([`Matrix::open`]). Each returned plan has these conditions in `when` and no example call. The
/// result is empty if `matrix.open` is empty. A route with errors has no plan and is left out.
pub(super) fn compile_unexamined_routes(
    world: &dyn World,
    request: &CompileRequest,
    matrix: &Matrix,
) -> Vec<RoutedPlan> {
    if matrix.open.is_empty() {
        return Vec::new();
    }
    let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
    let (all, _) = compose_all(&Items::new(world), &request.directive, &launch, &mut Diagnostics::new());
    let chain =
        |composed: &Composed| -> Vec<String> { composed.chain.iter().map(|one| one.id().to_string()).collect() };
    let missing = all.iter().filter(|one| !matrix.contexts.iter().any(|context| context.chain == chain(one)));
    let plan = |composed: &Composed| {
        let parent = composed.chain.iter().rev().nth(1).map(|directive| directive.id().clone());
        let request = CompileRequest { route: Some(AssumedRoute { parent }), ..request.clone() };
        let compiled = compile(world, &request);
        let compilation = compiled.value?;
        Some(RoutedPlan { when: matrix.open.clone(), call: None, compilation, diagnostics: compiled.diagnostics })
    };
    missing.filter_map(plan).collect()
}

/// Describes the conditions of a plan as a phrase: at most three of them, and the number of further conditions.
pub fn describe_when(conditions: &[String]) -> String {
    const MOST: usize = 3;
    if conditions == ["true"] {
        return "always".to_owned();
    }
    let shown: Vec<&str> = conditions.iter().take(MOST).map(String::as_str).collect();
    let more = conditions.len().saturating_sub(MOST);
    let text = shown.join(" or ");
    if more == 0 { text } else { format!("{text} or {more} more") }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;
    use crate::compile::tests::world::{minimal_world, with_directives};

    #[test]
    fn route_of_too_many_inputs_is_one_report_that_names_the_bound() {
        let inputs = (0..13).map(|n| format!("<input name=\"v{n}\" default=\"n\"/>")).collect::<Vec<_>>().concat();
        let leaf = format!("<metadata><permissions/></metadata><inputs>{inputs}</inputs>");
        let none = "<metadata><permissions/></metadata>";
        let condition = (0..13).map(|n| format!("inputs.v{n} == \"y\"")).collect::<Vec<_>>().join(" && ");
        let body = (0..13).map(|n| format!("{{input:v{n}?}}")).collect::<Vec<_>>().concat();
        let hooks = format!(
            "hooks:\n  - {{ id: r, event: resolve_extends, condition: '{condition}', action: {{ set_extends: other }} }}\n"
        );
        let directives =
            [("leaf", " extends=\"base\"", &*leaf, &*body), ("base", "", none, "A."), ("other", "", none, "B.")];
        let world = with_directives(minimal_world(), &directives).project(".ai/config/agent/hooks.yaml", hooks);
        let request = CompileRequest::new(ItemId::parse("leaf").unwrap());
        let compiled = compile_routes(&world, &request, &mut Sources::default());
        let reports: Vec<String> = compiled.diagnostics.iter().map(Diagnostic::message).collect();
        assert_eq!(
            reports,
            [
                "inputs without a value decide the route of `leaf`: the inputs have 8192 combinations, more than the maximum of 4096"
            ]
        );
        assert_eq!(
            compiled.diagnostics.iter().next().unwrap().help().unwrap(),
            "set some of the inputs: `--input v0=…`, `--input v10=…`, `--input v11=…` and 10 more"
        );
    }

    fn plans(input: &str, condition: &str) -> Vec<(String, Vec<String>)> {
        let leaf = format!("<metadata><permissions/></metadata><inputs>{input}</inputs>");
        let none = "<metadata><permissions/></metadata>";
        let route = format!(
            "hooks:\n  - {{ id: r, event: resolve_extends, condition: '{condition}', action: {{ set_extends: other }} }}\n"
        );
        let world = with_directives(
            minimal_world(),
            &[
                ("leaf", " extends=\"base\"", &leaf, "Do {input:n?}."),
                ("base", "", none, "Base."),
                ("other", "", none, "Other."),
            ],
        )
        .project(".ai/config/agent/hooks.yaml", route);
        let request = CompileRequest::new(ItemId::parse("leaf").unwrap());
        let compiled = compile_routes(&world, &request, &mut Sources::default());
        let plans = compiled.value.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics));
        let chain = |plan: &RoutedPlan| plan.compilation.plan.chain.iter().map(|link| link.id.to_string()).collect();
        plans.iter().map(|plan| (describe_when(&plan.when), chain(plan))).collect()
    }

    fn chain(parent: &str) -> Vec<String> {
        vec![parent.to_owned(), "leaf".to_owned()]
    }

    #[test]
    fn unknown_input_of_a_route_gives_a_plan_for_each_route() {
        for input in [
            "<input name=\"n\" type=\"integer\" required=\"true\"/>",
            "<input name=\"n\" type=\"integer\" default=\"3\"/>",
        ] {
            let mut found = plans(input, "inputs.n == 5");
            found.sort();
            assert_eq!(found, [("n != 5".to_owned(), chain("base")), ("n == 5".to_owned(), chain("other"))], "{input}");
        }
    }

    #[test]
    fn route_without_a_found_call_has_a_plan_with_the_open_conditions() {
        let input = "<input name=\"n\" type=\"integer\" required=\"true\"/>";
        let mut found = plans(input, "inputs.n * inputs.n == 49");
        found.sort();
        let chains: Vec<&Vec<String>> = found.iter().map(|(_, chain)| chain).collect();
        assert_eq!(chains, [&chain("base"), &chain("other")], "{found:?}");
    }

    #[test]
    fn route_that_no_value_selects_leaves_one_plan() {
        let input = "<input name=\"n\" enum=\"a,b\" required=\"true\"/>";
        assert_eq!(plans(input, "inputs.n == \"c\""), [("always".to_owned(), chain("base"))]);
    }
}
