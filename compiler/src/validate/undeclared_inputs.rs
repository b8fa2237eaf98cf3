//! Reports inputs that a hook file of the project reads and no directive declares, for the plan of one directive. In a
//! check of a project, the module `interface` reports these inputs.

use std::collections::BTreeSet;

use rye_grammar::Span;

use super::hook::content_facts;
use super::interface::{input_of, read_inputs, undeclared_input};
use crate::diagnostics::Diagnostics;
use crate::hook::PlannedHook;
use crate::item::{HookDecl, Items};
use crate::plan::Plan;
use crate::world::{ItemKind, Space, World};

/// Reports each input that no directive declares, for the plan `plan`. A hook file serves many directives, so an input
/// that the plan lacks can be an input of another directive. Only in this case, this function reads the other
/// directives through `world`. The plan does not depend on them, so `items` must not record these reads.
pub fn check_plan(items: &Items<'_>, world: &dyn World, plan: &Plan, found: &mut Diagnostics) {
    let is_live = |hook: &HookDecl| {
        let same = |planned: &PlannedHook| planned.id == hook.id.node && planned.source == hook.source;
        plan.hooks.iter().any(|planned| planned.is_live() && same(planned))
    };
    check(items, world, &|name| plan.interface.inputs.contains_key(name), &is_live, found);
}

/// Reports each input that no directive declares, for the plans of any directives.
pub fn check_project(items: &Items<'_>, world: &dyn World, found: &mut Diagnostics) {
    check(items, world, &|_| false, &|_| true, found);
}

/// Reports the inputs that the hook files read, except those that `is_own` accepts. The knowledge that a hook fetches
/// is read only if `is_live` accepts the hook.
fn check(
    items: &Items<'_>,
    world: &dyn World,
    is_own: &dyn Fn(&str) -> bool,
    is_live: &dyn Fn(&HookDecl) -> bool,
    found: &mut Diagnostics,
) {
    let files = items.hook_files();
    let mut reads: BTreeSet<(Span, String)> = BTreeSet::new();
    for hook in files.project.iter().chain(&files.infra).filter(|hook| hook.enabled && hook.space == Space::Project) {
        reads.extend(read_inputs(hook).into_iter().map(|(name, span)| (span, name.to_owned())));
        let content = if is_live(hook) { content_facts(items, hook) } else { Vec::new() };
        reads.extend(content.iter().filter_map(|(path, span)| Some((*span, input_of(path)?.to_owned()))));
    }
    reads.retain(|(_, name)| !is_own(name));
    if reads.is_empty() {
        return;
    }
    let others = Items::new(world);
    let mut declared: BTreeSet<String> = BTreeSet::new();
    for entry in others.list(ItemKind::Directive).iter() {
        // A directive with errors may declare any input.
        let Some(directive) = others.directive(&entry.id).filter(|one| !others.is_broken(one.file.source)) else {
            return;
        };
        declared.extend(directive.inputs.keys().cloned());
        reads.retain(|(_, name)| !declared.contains(name));
        if reads.is_empty() {
            return;
        }
    }
    found.extend(reads.iter().map(|(span, name)| undeclared_input(name, *span, declared.iter())));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::compile::compile;
    use crate::compile::tests::item_id;
    use crate::compile::tests::world::{minimal_world, with_directives};
    use crate::request::CompileRequest;

    #[test]
    fn plan_refuses_an_input_that_no_directive_declares() {
        let codes = |hook: &str, other: &str| {
            let inputs = format!("<inputs><input name=\"{other}\"/></inputs>");
            let world = with_directives(minimal_world(), &[("one", "", "", "Go."), ("two", "", &inputs, "Go.")])
                .project(".ai/knowledge/k.md", "Mode: ${inputs.mode}.")
                .project(".ai/config/agent/hooks.yaml", format!("hooks:\n  - {{ id: h, {hook} }}\n"));
            let compiled = compile(&world, &CompileRequest::new(item_id("one")).with_inputs(serde_json::Map::new()));
            let read: Vec<String> =
                compiled.value.iter().flat_map(|one| &one.plan.manifest).map(|read| read.id.clone()).collect();
            assert!(!read.contains(&"two".to_owned()), "the plan depends on `two`: {read:?}");
            compiled.diagnostics.iter().map(|one| one.code().to_owned()).collect::<Vec<_>>()
        };
        let refused = ["interface::unknown-input"];
        for hook in [
            "event: resolve_extends, condition: 'inputs.mode == \"x\"', action: { set_extends: two }",
            "event: thread_started, condition: 'inputs.mode == \"x\"', action: { primary: fetch, item_type: knowledge, item_id: k }",
            "event: tool_call, action: { block: { reason: 'in {input:mode?}' } }",
            "event: thread_started, action: { primary: fetch, item_type: knowledge, item_id: k }",
        ] {
            assert_eq!(codes(hook, "mdoe"), refused, "{hook}");
            assert_eq!(codes(hook, "mode"), [""; 0], "{hook}");
        }
        // An unknown fact is reported once.
        let tool_call = "event: tool_call, condition: 'inputs.mode == \"x\"', action: { block: { reason: r } }";
        assert_eq!(codes(tool_call, "mdoe"), ["hook::unknown-fact"]);
    }
}
