//! Reports inputs and outputs that a hook file of the project reads and no directive declares. Also reports conditions
//! that can never be true, because all directives declare an input or output with a type that the condition does not
//! fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use rye_grammar::Span;
use rye_grammar::condition::Segment;

use super::hook::{check_condition_types, content_facts, read_outputs, unknown_output};
use super::interface::{input_of, read_inputs, undeclared_input};
use crate::compose::Composed;
use crate::diagnostics::Diagnostics;
use crate::hook::PlannedHook;
use crate::item::{Directive, HookDecl, Items};
use crate::plan::{FieldType, Plan};
use crate::world::{ItemKind, Space, World};

/// The types of the inputs and outputs that several directives declare, by name.
#[derive(Default)]
pub struct DeclaredFields {
    inputs: DeclaredTypes,
    outputs: DeclaredTypes,
    /// True if a directive could not be read completely: such a directive may declare any input and output.
    pub is_incomplete: bool,
}

/// For each name of an input or output, the type that all directives declare for the name; `None` if two declarations
/// differ.
#[derive(Default)]
struct DeclaredTypes(BTreeMap<String, Option<FieldType>>);

impl DeclaredTypes {
    fn add(&mut self, name: &str, kind: Option<FieldType>) {
        match self.0.get_mut(name) {
            Some(known) if *known == kind => {}
            Some(known) => *known = None,
            None => {
                self.0.insert(name.to_owned(), kind);
            }
        }
    }

    fn merge(&mut self, other: &Self) {
        for (name, kind) in &other.0 {
            self.add(name, *kind);
        }
    }

    /// Returns the type at a path; `inside` is the path in the value. Directives may declare different types inside a
    /// value, so only the whole value has a type here.
    fn kind(&self, name: &str, inside: &[Segment]) -> Option<FieldType> {
        self.0.get(name).copied().flatten().filter(|_| inside.is_empty())
    }
}

impl DeclaredFields {
    fn of_plan(plan: &Plan) -> Self {
        let mut fields = Self::default();
        for (name, field) in &plan.interface.inputs {
            fields.inputs.add(name, Some(field.kind));
        }
        for (name, field) in &plan.interface.outputs {
            fields.outputs.add(name, Some(field.kind));
        }
        fields
    }

    /// Adds the fields that a composed directive declares itself or inherits.
    pub fn add_composed(&mut self, composed: &Composed) {
        for (name, field) in &composed.inputs {
            self.inputs.add(name, Some(field.value.kind));
        }
        for (name, field) in &composed.outputs {
            self.outputs.add(name, Some(field.value.kind));
        }
    }

    /// Adds the fields that a directive declares itself.
    pub fn add_directive(&mut self, directive: &Directive) {
        for (name, field) in &directive.inputs {
            self.inputs.add(name, Some(field.kind));
        }
        for (name, field) in &directive.outputs {
            self.outputs.add(name, Some(field.kind));
        }
    }

    pub fn merge(&mut self, other: &Self) {
        self.inputs.merge(&other.inputs);
        self.outputs.merge(&other.outputs);
        self.is_incomplete |= other.is_incomplete;
    }
}

/// The reads of inputs and outputs in the hooks of the project's files, and in the knowledge that these hooks fetch.
pub struct FieldReads {
    /// The hooks that read inputs or outputs.
    hooks: Vec<Arc<HookDecl>>,
    /// The inputs that knowledge reads. Several hooks may fetch the same item, so the map contains each placeholder of
    /// the item once.
    in_knowledge: BTreeMap<Span, String>,
}

impl FieldReads {
    /// Returns the reads of the hook files. The knowledge that a hook fetches is read only if `is_live` accepts the
    /// hook.
    pub fn of_hook_files(items: &Items<'_>, is_live: &dyn Fn(&HookDecl) -> bool) -> Self {
        let files = items.hook_files();
        let mut hooks: Vec<Arc<HookDecl>> = files.project.iter().chain(&files.infra).cloned().collect();
        hooks.retain(|hook| hook.enabled && hook.space == Space::Project);
        let content = hooks.iter().filter(|hook| is_live(hook)).flat_map(|hook| content_facts(items, hook));
        let in_knowledge = content.filter_map(|(path, span)| Some((span, input_of(&path)?.to_owned()))).collect();
        hooks.retain(|hook| !read_inputs(hook).is_empty() || !read_outputs(hook).is_empty());
        Self { hooks, in_knowledge }
    }

    pub fn is_empty(&self) -> bool {
        self.hooks.is_empty() && self.in_knowledge.is_empty()
    }

    fn reads_field_of(&self, directive: &Directive) -> bool {
        let declares_input = |name: &str| directive.inputs.contains_key(name);
        self.in_knowledge.values().any(|name| declares_input(name))
            || self.hooks.iter().any(|hook| {
                read_inputs(hook).into_iter().any(|(name, _)| declares_input(name))
                    || read_outputs(hook).into_iter().any(|(name, _)| directive.outputs.contains_key(name))
            })
    }

    /// Reports each name that no directive declares, and each condition that does not fit the declared types.
    pub fn report(&self, declared: &DeclaredFields, found: &mut Diagnostics) {
        if declared.is_incomplete {
            return;
        }
        let DeclaredFields { inputs, outputs, is_incomplete: _ } = declared;
        let undeclared = |name: &str, span| undeclared_input(name, span, inputs.0.keys());
        let unknown = self.in_knowledge.iter().filter(|(_, name)| !inputs.0.contains_key(*name));
        found.extend(unknown.map(|(span, name)| undeclared(name, *span)));
        for hook in &self.hooks {
            let before = found.len();
            let unknown = read_outputs(hook).into_iter().filter(|(name, _)| !outputs.0.contains_key(*name));
            found.extend(unknown.map(|(name, span)| unknown_output(name, None, span, outputs.0.keys())));
            let unknown = read_inputs(hook).into_iter().filter(|(name, _)| !inputs.0.contains_key(*name));
            found.extend(unknown.map(|(name, span)| undeclared(name, span)));
            if found.len() == before {
                let input = |name: &str, inside: &[Segment]| inputs.kind(name, inside);
                let output = |name: &str, inside: &[Segment]| outputs.kind(name, inside);
                check_condition_types(hook, &input, &output, found);
            }
        }
    }

    fn has_errors(&self, declared: &DeclaredFields) -> bool {
        let mut found = Diagnostics::new();
        self.report(declared, &mut found);
        found.has_errors()
    }

    /// Reports the reads for which no directive declares a fitting field, for plans of directives that declare `own`. A
    /// hook file serves many directives, so a field that a plan lacks can be a field of another directive. Only in this
    /// case, this function reads the other directives through `world`, until each read fits. The plans do not depend on
    /// the other directives, so `world` must not record these reads. A directive that is read can only remove errors: a
    /// name becomes known, or its type becomes unknown.
    fn report_without(&self, world: &dyn World, mut own: DeclaredFields, found: &mut Diagnostics) {
        if !self.has_errors(&own) {
            return;
        }
        let others = Items::new(world);
        for entry in others.list(ItemKind::Directive).iter() {
            let Some(directive) = others.directive(&entry.id).filter(|one| !others.is_broken(one.file.source)) else {
                return;
            };
            own.add_directive(&directive);
            if self.reads_field_of(&directive) && !self.has_errors(&own) {
                return;
            }
        }
        self.report(&own, found);
    }
}

/// Reports the reads in hook files for which no directive declares a fitting field, for the plan `plan`. `world` must
/// not record reads.
pub fn check_plan(items: &Items<'_>, world: &dyn World, plan: &Plan, found: &mut Diagnostics) {
    let is_live = |hook: &HookDecl| {
        let same = |planned: &PlannedHook| planned.id == hook.id.node && planned.source == hook.source;
        plan.hooks.iter().any(|planned| planned.is_live() && same(planned))
    };
    FieldReads::of_hook_files(items, &is_live).report_without(world, DeclaredFields::of_plan(plan), found);
}

/// Reports the reads in hook files for which no directive declares a fitting field, for the plans of all directives.
pub fn check_project(items: &Items<'_>, world: &dyn World, found: &mut Diagnostics) {
    FieldReads::of_hook_files(items, &|_| true).report_without(world, DeclaredFields::default(), found);
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

    #[test]
    fn plan_refuses_a_hook_that_no_declared_output_fits() {
        let codes_at = |event: &str, condition: &str, output: &str| {
            let outputs = format!("<outputs>{output}</outputs>");
            let world = with_directives(minimal_world(), &[("one", "", "", "Go."), ("two", "", &outputs, "Go.")])
                .project(
                    ".ai/config/agent/hooks.yaml",
                    format!(
                        "hooks:\n  - {{ id: h, event: {event}, condition: '{condition}', \
                         action: {{ execute: {{ item_type: tool, item_id: t }} }} }}\n"
                    ),
                )
                .project(".ai/tools/t.yaml", "description: Lists.\nkind: command\ncommand: [ls]\n");
            let compiled = compile(&world, &CompileRequest::new(item_id("one")).with_inputs(serde_json::Map::new()));
            compiled.diagnostics.iter().map(|one| one.code().to_owned()).collect::<Vec<_>>()
        };
        let codes = |condition: &str, output: &str| codes_at("directive_return", condition, output);
        let is_text = "outputs.url == \"x\"";
        assert_eq!(codes(is_text, "<output name=\"url\">a</output>"), [""; 0]);
        assert_eq!(codes(is_text, "<output name=\"link\">a</output>"), ["interface::unknown-output"]);
        let is_absent = "outputs.url == null";
        assert_eq!(codes_at("agent_end", is_absent, "<output name=\"url\">a</output>"), [""; 0]);
        assert_eq!(codes_at("agent_end", is_absent, "<output name=\"link\">a</output>"), ["interface::unknown-output"]);
        let number = "<output name=\"url\" type=\"integer\">a</output>";
        assert_eq!(codes("outputs.url > \"a\"", number), ["syntax::condition"]);
    }
}
