//! Tests of the commands of a chat.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::diagnostics::Diagnostic;
use crate::validate::{Selection, check};
use crate::world::MapWorld;

fn commands(world: &MapWorld<'_>) -> (Vec<ChatCommand>, Vec<String>) {
    let items = Items::new(world);
    let mut found = Diagnostics::new();
    let commands = read_commands(&items, &mut found);
    (commands, found.iter().map(Diagnostic::message).collect())
}

const RUN: &str = "execute: { item_type: tool, item_id: team/run, params: { text: \"${args}\" } }";

#[test]
fn commands_of_the_project_replace_those_of_the_user() {
    let world = MapWorld::new()
        .project(".ai/config/agent/chat.yaml", format!("commands:\n  - {{ id: deploy, argument_hint: HOST, {RUN} }}\n"))
        .with(
            Space::User,
            ".ai/config/agent/chat.yaml",
            format!("commands:\n  - {{ id: deploy, {RUN} }}\n  - {{ id: my:own, {RUN} }}\n"),
        );
    let (commands, problems) = commands(&world);
    assert_eq!(problems, Vec::<String>::new());
    let shown: Vec<(&str, Space, Option<&str>)> =
        commands.iter().map(|one| (one.hook.id.node.as_str(), one.hook.space, one.argument_hint.as_deref())).collect();
    assert_eq!(shown, [("deploy", Space::Project, Some("HOST")), ("my:own", Space::User, None)]);
    assert_eq!(commands[0].hook.event, crate::hook::HookPoint::Command);
}

#[test]
fn names_of_built_in_commands_and_names_that_cannot_be_typed_are_reported() {
    for name in ["model", "Deploy", "a/b", "-x", "a b"] {
        let file = format!("commands:\n  - {{ id: \"{name}\", {RUN} }}\n");
        let (commands, problems) = commands(&MapWorld::new().project(".ai/config/agent/chat.yaml", file));
        assert!(commands.is_empty() && problems.len() == 1, "{name}: {problems:?}");
        assert!(problems[0].contains("the `id` of a command"), "{problems:?}");
    }
}

#[test]
fn faults_of_a_command_are_reported_once_by_the_check() {
    let messages = |entry: &str| {
        let tool = "description: Runs.\nkind: builtin\nbuiltin: bash\n\
                    parameters: {type: object, properties: {command: {type: string}}, required: [command]}\n";
        let world = MapWorld::new()
            .project(".ai/config/agent/chat.yaml", format!("commands:\n  - {{ {entry} }}\n"))
            .with(Space::System, ".ai/tools/rye/bash/bash.yaml", tool);
        let report = check(&world, &Selection::All);
        report.diagnostics.iter().map(|one| format!("{}: {}", one.code(), one.message())).collect::<Vec<_>>()
    };
    let bash = |params: &str| format!("execute: {{ item_type: tool, item_id: rye/bash/bash, params: {{ {params} }} }}");
    assert_eq!(messages(&format!("id: run, {}", bash("command: ls"))), Vec::<String>::new());
    for (entry, expected) in [
        (format!("id: model, {}", bash("command: ls")), "the `id` of a command"),
        ("id: run, execute: { item_type: tool, item_id: rye/bash/bush }".to_owned(), "rye/bash/bush"),
        (format!("id: run, {}", bash("")), "command"),
        (format!("id: run, {}", bash("command: \"${arg}\"")), "arg"),
        (format!("id: run, text: x, {}", bash("command: ls")), "text"),
        ("id: run".to_owned(), "execute"),
        ("id: run, execute: bash".to_owned(), "execute"),
    ] {
        let found = messages(&entry);
        assert!(found.len() == 1 && found[0].contains(expected), "{entry}: {found:?}");
    }
}

#[test]
fn first_word_is_the_name_and_the_rest_its_arguments() {
    for (text, split) in [
        ("/deploy", Some(("deploy", ""))),
        ("/deploy  two  words ", Some(("deploy", "two  words"))),
        ("/a:b\nline", Some(("a:b", "line"))),
        ("//deploy", None),
        (" /deploy", None),
        ("/etc/hosts", None),
        ("/Deploy", None),
        ("/", None),
    ] {
        assert_eq!(split_command(text), split, "{text}");
    }
}
