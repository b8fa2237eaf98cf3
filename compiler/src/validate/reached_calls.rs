//! The errors in calls that one plan reaches: calls of its hooks, of the commands of its chat, and of its body. The
//! items that a call names are read to check the call, but the plan does not depend on them.

use super::body_calls::BodyCallChecker;
use super::{calls_by_name, hook};
use crate::commands::composed_commands;
use crate::compose::Composed;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::item::Items;
use crate::plan::PlanMode;

/// Reports the errors in the calls of a composed directive, without their warnings. Reads the called items, so callers
/// that record the reads of a plan call this function last.
pub(crate) fn check(items: &Items<'_>, composed: &Composed, mode: PlanMode, found: &mut Diagnostics) {
    let mut read = Diagnostics::new();
    // The errors in the declarations of the commands are already reported, so this list of errors is dropped.
    let commands = composed_commands(items, mode, &mut Diagnostics::new());
    for command in &commands {
        hook::check(items, &command.decl, None, &mut read);
        hook::check_content(items, &command.decl, None, &mut read);
    }
    for hook in composed.hooks.iter().chain(&commands).filter(|hook| hook.is_live()) {
        hook::call(items, &hook.decl, &mut read);
    }
    let mut bodies = BodyCallChecker::default();
    bodies.check(items, composed, &mut read);
    calls_by_name::check(&mut bodies, items, composed, &mut read);
    read.retain(Diagnostic::is_error);
    found.append(read);
}

#[cfg(test)]
mod tests {
    use crate::compile::compile;
    use crate::compile::tests::item_id;
    use crate::compile::tests::world::{minimal_world, with_directives};
    use crate::plan::PlanMode;
    use crate::request::CompileRequest;
    use crate::world::ItemKind;

    /// Returns the codes of the diagnostics of a plan of `main`, and asserts that the plan depends on no item that only
    /// its body calls.
    fn codes(hooks: &str, commands: &str, body: &str, mode: PlanMode) -> Vec<String> {
        let inputs = "<inputs><input name=\"file\" required=\"true\"/></inputs>";
        let rows = [("main", "", "", body), ("worker", "", inputs, "Read {input:file}.")];
        let world = with_directives(minimal_world(), &rows)
            .project(
                ".ai/tools/count.yaml",
                "description: Counts.\nkind: command\ncommand: [wc, \"{file}\"]\nparameters:\n  type: object\n  required: [file]\n  \
                 properties:\n    file: { type: string }\n",
            )
            .project(".ai/config/agent/hooks.yaml", format!("hooks: [{hooks}]\n"))
            .project(".ai/config/agent/chat.yaml", format!("commands: [{commands}]\n"));
        let mut request = CompileRequest::new(item_id("main")).with_inputs(serde_json::Map::new());
        request.mode = mode;
        let compiled = compile(&world, &request);
        let mut read = compiled.value.iter().flat_map(|one| &one.plan.manifest);
        let depends = read.any(|read| read.kind == ItemKind::Tool && read.id == "count");
        assert!(!depends || !hooks.is_empty() || !commands.is_empty());
        assert_eq!(compiled.value.is_none(), compiled.diagnostics.has_errors());
        compiled.diagnostics.iter().map(|one| one.code().to_owned()).collect()
    }

    #[test]
    fn plan_refuses_a_hook_whose_call_has_an_error() {
        let codes = |action: &str| {
            let hook = format!("{{ id: h, event: after_complete, action: {{ execute: {action} }} }}");
            codes(&hook, "", "Go.", PlanMode::Run)
        };
        assert_eq!(codes("{ item_type: tool, item_id: count, params: { file: a } }"), [""; 0]);
        assert_eq!(codes("{ item_type: directive, item_id: worker, params: { file: a } }"), [""; 0]);
        let missing = ["interface::missing-input"];
        assert_eq!(codes("{ item_type: tool, item_id: count }"), missing);
        assert_eq!(codes("{ item_type: directive, item_id: worker }"), missing);
        assert_eq!(codes("{ item_type: tool, item_id: count, params: { file: 3 } }"), ["interface::type"]);
        assert_eq!(
            codes("{ item_type: directive, item_id: worker, params: { file: a, mode: b } }"),
            ["interface::unknown-input"]
        );
    }

    #[test]
    fn plan_refuses_a_body_whose_call_has_an_error() {
        let codes = |body: &str| codes("", "", body, PlanMode::Run);
        assert_eq!(codes("Call rye_execute(item_id=\"count\", parameters={\"file\": \"a\"})."), [""; 0]);
        assert_eq!(
            codes("Call rye_execute(item_id=\"count\", parameters={\"other\": \"a\"})."),
            ["interface::missing-input"]
        );
        assert_eq!(codes("Call count(file=3)."), ["interface::type"]);
        // An item that does not exist is a warning of `rye check`, so the plan exists.
        assert_eq!(codes("Call rye_execute(item_id=\"cuont\", parameters={\"file\": \"a\"})."), [""; 0]);
    }

    #[test]
    fn only_a_chat_refuses_a_command_whose_call_has_an_error() {
        let command = "{ id: count, execute: { item_type: tool, item_id: count }, grants: [rye.execute.tool.count] }";
        assert_eq!(codes("", command, "Go.", PlanMode::Run), [""; 0]);
        assert_eq!(codes("", command, "Go.", PlanMode::Chat), ["interface::missing-input"]);
    }
}
