//! Comparison of two versions of a directive with several routes. Pairs each plan of one version with the plan of the
//! other version for the same inputs, and compares the plans of each pair.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::change::{ChangeArea, DiffSide, DiffSides, Direction, PlanChange};
use super::{PlanDiff, diff_trees};
use crate::compile::{Compilation, CompileRequest, compile};
use crate::hook::HookPoint;
use crate::report::alternatives::{RoutedPlan, describe_when};
use crate::world::{World, WorldError};

/// A side of a comparison: the plans of a directive, one for each route.
#[derive(Clone, Copy)]
pub struct RoutedSide<'a> {
    pub world: &'a dyn World,
    pub plans: &'a [RoutedPlan],
}

/// A comparison of an old plan with a new plan. A call with the same inputs has the old plan before the change and the
/// new plan after the change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteDiff {
    /// Conditions on the inputs. A call has the new plan if one of the conditions holds.
    pub when: Vec<String>,
    pub diff: PlanDiff,
}

/// Compares the plans of a directive on both sides, route by route. Each new plan is compared with the old plan that
/// applies to the new plan's example call or, if no old plan applies, with the first old plan. Each old plan is also
/// compared with the new plan that applies to the old plan's example call. If no new plan applies, this comparison is
/// left out, because calls with these inputs are no longer possible.
///
/// # Errors
/// The directives of a side cannot be listed.
pub fn diff_routes(old: RoutedSide<'_>, new: RoutedSide<'_>) -> Result<Vec<RouteDiff>, WorldError> {
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    let of_new = new.plans.iter().enumerate().map(|(n, plan)| (route_of_call(plan, old).unwrap_or(0), n));
    let of_old = old.plans.iter().enumerate().filter_map(|(n, plan)| Some((n, route_of_call(plan, new)?)));
    for pair in of_new.chain(of_old) {
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    pairs.sort_by_key(|(_, new)| *new);
    let mut found = Vec::new();
    for (was, is) in pairs {
        let (Some(was), Some(is)) = (old.plans.get(was), new.plans.get(is)) else { continue };
        let before = DiffSide { world: old.world, compilation: &was.compilation };
        let after = DiffSide { world: new.world, compilation: &is.compilation };
        let mut diff = diff_trees(Some(before), Some(after))?;
        if let Some(change) = changed_selection(was, is, &DiffSides::new(before, after)) {
            diff.changes.insert(0, change);
            diff.set_widened();
        }
        found.push(RouteDiff { when: is.when.clone(), diff });
    }
    Ok(found)
}

/// Returns the index of the plan in `side` that applies to the example call of `plan`; `None` if no plan applies.
///
/// If `plan` has no example call, or `side` has only one plan, returns the index of the plan with the same extends
/// chain, else of the only plan.
fn route_of_call(plan: &RoutedPlan, side: RoutedSide<'_>) -> Option<usize> {
    let first = side.plans.first()?;
    let (Some(inputs), 2..) = (&plan.call, side.plans.len()) else {
        let is_same_route = |other: &RoutedPlan| chain_of(&other.compilation) == chain_of(&plan.compilation);
        return side.plans.iter().position(is_same_route).or((side.plans.len() == 1).then_some(0));
    };
    let request = CompileRequest { inputs: Some(inputs.clone()), route: None, ..first.compilation.request.clone() };
    let compiled = compile(side.world, &request).value?;
    side.plans.iter().position(|other| chain_of(&other.compilation) == chain_of(&compiled))
}

fn chain_of(compilation: &Compilation) -> Vec<&str> {
    compilation.plan.chain.iter().map(|link| link.id.as_str()).collect()
}

/// Returns a change if the inputs that select this route are not the same in both versions. The direction of the change
/// is unknown, because some inputs now lead to another plan.
fn changed_selection(was: &RoutedPlan, is: &RoutedPlan, trees: &DiffSides<'_>) -> Option<PlanChange> {
    let routing = |compilation: &Compilation| -> Vec<(String, Option<Value>, Option<String>)> {
        let hooks = compilation.plan.hooks.iter().filter(|hook| hook.event == HookPoint::ResolveExtends);
        let parts = |hook: &crate::hook::PlannedHook| {
            (hook.id.clone(), hook.condition.clone(), hook.action.parent().map(str::to_owned))
        };
        hooks.map(parts).collect()
    };
    let (before, after) = (routing(&was.compilation), routing(&is.compilation));
    if was.when == is.when || chain_of(&was.compilation) != chain_of(&is.compilation) || before == after {
        return None;
    }
    let changed =
        after.iter().find(|hook| !before.contains(hook)).or_else(|| before.iter().find(|hook| !after.contains(hook)));
    let key = changed.map(|(id, _, _)| format!("hook.{id}")).unwrap_or_default();
    Some(PlanChange {
        area: ChangeArea::Chain,
        what: format!(
            "this route now applies in other cases: {}, previously {}",
            describe_when(&is.when),
            describe_when(&was.when)
        ),
        direction: Direction::Unknown,
        source: trees.origin(&key),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use rye_grammar::{ItemId, Sources};

    use super::*;
    use crate::compile::tests::world::{stdlib_world, with_directives};
    use crate::report::alternatives::compile_routes;
    use crate::world::MapWorld;

    const READ: &str = "<tool>rye.file-system.read</tool>";
    const SHELL: &str = "<tool>rye.file-system.read</tool><tool>rye.bash.bash</tool>";

    /// A directive with the required input `m` and the routes `x` to `bx`, `y` to `by`, whose grants are given.
    fn world(conditions: (&str, &str), bx: &str, by: &str) -> MapWorld<'static> {
        let base = |tools: &str| format!("<metadata><permissions><execute>{tools}</execute></permissions></metadata>");
        let leaf = "<inputs><input name=\"m\" enum=\"x,y,z\" required=\"true\"/></inputs>";
        let hook = |id: &str, condition: &str| {
            format!(
                "  - {{ id: {id}, event: resolve_extends, condition: '{condition}', action: {{ set_extends: b{id} }} }}\n"
            )
        };
        let hooks = format!("hooks:\n{}{}", hook("x", conditions.0), hook("y", conditions.1));
        let (bx, by) = (base(bx), base(by));
        let all = [("leaf", "", leaf, "Do {input:m}."), ("bx", "", bx.as_str(), "X."), ("by", "", by.as_str(), "Y.")];
        with_directives(stdlib_world(), &all).project(".ai/config/agent/hooks.yaml", hooks)
    }

    fn compare(old: &MapWorld<'_>, new: &MapWorld<'_>) -> Vec<(String, PlanDiff)> {
        let request = CompileRequest::new(ItemId::parse("leaf").unwrap());
        let plans = |world: &MapWorld<'_>| {
            let compiled = compile_routes(world, &request, &mut Sources::default());
            compiled.value.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics))
        };
        let (was, is) = (plans(old), plans(new));
        assert_eq!(was.len(), 3);
        let side = |world, plans| RoutedSide { world, plans };
        let found = diff_routes(side(old, &was), side(new, &is)).unwrap();
        found.into_iter().map(|one| (describe_when(&one.when), one.diff)).collect()
    }

    const XY: (&str, &str) = ("inputs.m == \"x\"", "inputs.m == \"y\"");

    #[test]
    fn routes_of_a_required_input_are_compared_each() {
        let before = world(XY, READ, READ);
        let found = compare(&before, &before);
        assert!(found.len() == 3 && found.iter().all(|(_, diff)| diff.is_empty()), "{found:#?}");
        let found = compare(&before, &world(XY, SHELL, READ));
        let wider: Vec<&str> = found.iter().filter(|(_, diff)| diff.widened).map(|(when, _)| when.as_str()).collect();
        assert_eq!(wider, ["m == \"x\""]);
        assert_eq!(found.len(), 3);
        let back = compare(&world(XY, SHELL, READ), &before);
        assert!(
            back.iter().all(|(_, diff)| !diff.widened) && back.iter().any(|(_, diff)| !diff.is_empty()),
            "{back:#?}"
        );
    }

    #[test]
    fn calls_that_move_to_another_route_are_unknown() {
        let before = world(XY, SHELL, READ);
        let moved = compare(&before, &world(("inputs.m in [\"x\", \"z\"]", XY.1), SHELL, READ));
        let unknown = moved
            .iter()
            .flat_map(|(_, diff)| &diff.changes)
            .find(|c| c.what.starts_with("this route now applies in other cases"));
        let unknown = unknown.unwrap_or_else(|| panic!("{moved:#?}"));
        assert_eq!(unknown.direction, Direction::Unknown);
        assert_eq!(
            unknown.source.as_ref().map(|s| (s.file.as_str(), s.line)),
            Some((".ai/config/agent/hooks.yaml", 2))
        );
    }
}
