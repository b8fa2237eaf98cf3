//! The plans of calls for which no example was found. Each route has one plan, compiled with unknown inputs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MatrixContext, error_codes, matrix_context};
use crate::compile::{AssumedRoute, CompileRequest, compile};
use crate::compose::Composed;
use crate::report::render::json::render;
use crate::world::World;

/// A route whose plan with unknown inputs has errors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedRoute {
    /// The extends chain of the route: the root first, the directive itself last.
    pub chain: Vec<String>,
    pub codes: Vec<String>,
}

/// Compiles the plans with unknown inputs, one for each route. They apply to the calls for which no example was found.
/// A route with errors has no plan; the second list has the codes of its errors.
pub(super) fn compile_rest(
    world: &dyn World,
    request: &CompileRequest,
    all: &[Composed],
    open: &[String],
) -> (Vec<MatrixContext>, Vec<RefusedRoute>) {
    let (mut plans, mut refused) = (Vec::new(), Vec::new());
    for composed in all {
        let parent = composed.chain.iter().rev().nth(1).map(|directive| directive.id().clone());
        let route = if all.len() > 1 { Some(AssumedRoute { parent }) } else { request.route.clone() };
        let compiled = compile(world, &CompileRequest { inputs: None, route, ..request.clone() });
        match compiled.value {
            Some(plan) => {
                plans.push(MatrixContext { when: open.to_vec(), ..matrix_context(&render(&plan, Vec::new())) });
            }
            None => refused.push(RefusedRoute {
                chain: composed.chain.iter().map(|link| link.id().to_string()).collect(),
                codes: error_codes(&compiled.diagnostics),
            }),
        }
    }
    (plans, refused)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rye_grammar::ItemId;

    use super::super::build_matrix;
    use super::*;
    use crate::compile::tests::world::{minimal_world, with_directives};

    #[test]
    fn route_with_errors_is_listed_beside_the_rest() {
        let input = "<metadata><permissions/></metadata><inputs><input name=\"a\"/></inputs>";
        let route =
            "  - { id: r, event: resolve_extends, condition: 'inputs.a == \"x\"', action: { set_extends: root } }\n";
        let open = "  - { id: h, event: thread_started, condition: 'inputs.a matches \"^$\" && length(inputs.a) > 3', action: { primary: fetch, item_type: knowledge, item_id: k } }\n";
        let wrong = "<metadata><permissions/><limits turns=\"many\"/></metadata>";
        let world =
            with_directives(minimal_world(), &[("leaf", "", input, "Do {input:a?}."), ("root", "", wrong, "Base.")])
                .project(".ai/knowledge/k.md", "Some knowledge.")
                .project(".ai/config/agent/hooks.yaml", format!("hooks:\n{route}{open}"));
        let found = build_matrix(&world, &CompileRequest::new(ItemId::parse("leaf").unwrap())).unwrap();
        assert!(!found.open.is_empty(), "{found:?}");
        let chains: Vec<&[String]> = found.rest.iter().map(|context| context.chain.as_slice()).collect();
        assert_eq!(chains, [["leaf"]]);
        let refused = RefusedRoute { chain: vec!["root".into(), "leaf".into()], codes: vec!["limit::invalid".into()] };
        assert_eq!(found.rest_refused, [refused]);
    }
}
