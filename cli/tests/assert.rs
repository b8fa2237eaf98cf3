//! Tests of `rye assert` as a process.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::TestProject;

fn directive(name: &str, permissions: &str, body: &str) -> String {
    format!(
        "# D\n\nDoes it.\n\n```xml\n<directive name=\"{name}\"><metadata><permissions>{permissions}</permissions></metadata></directive>\n```\n\n{body}\n"
    )
}

#[test]
fn violation_prints_the_spawn_chain() {
    let place = TestProject::own();
    let start = "<execute><directive>worker</directive><tool>rye.bash.*</tool></execute>";
    place.write(".ai/directives/lead.md", &directive("lead", start, "Run `directive_name=\"worker\"`."));
    place.write(
        ".ai/directives/worker.md",
        &directive("worker", "<execute><tool>rye.bash.bash</tool></execute>", "Work."),
    );
    assert_eq!(place.rye(&["assert"]).code, Some(0));
    place.write(
        ".ai/config/agent/assertions.yaml",
        "assertions:\n  - id: no_shell_below\n    description: what lead starts has no shell\n    for: 'directive == \"lead\"'\n    never: 'directive == \"worker\" && reaches(\"rye.execute.tool.rye.bash.*\")'\n",
    );
    let done = place.rye(&["assert"]);
    assert_eq!(done.code, Some(1), "{}{}", done.stdout, done.stderr);
    for part in [
        "error: `no_shell_below` does not hold: what lead starts has no shell",
        "  run lead",
        "  → worker, started by body  .ai/directives/lead.md:",
        "the thread reaches `rye.execute.tool.rye.bash.*`: `rye.execute.tool.rye.bash.bash`",
    ] {
        assert!(done.stdout.contains(part), "{part}\n{}", done.stdout);
    }
    assert_eq!(place.rye(&["assert", "worker"]).code, Some(0));
    let (code, json) = place.json(&["assert"]);
    assert_eq!((code, json["violations"][0]["trace"].as_array().unwrap().len()), (Some(1), 2));
    assert!(place.run_ok(&["schema", "assert"]).contains("violations"));
}

#[test]
fn examples_satisfy_their_assertions() {
    for example in ["deploy", "hello", "review"] {
        let place = TestProject::example(example);
        let done = place.rye(&["assert"]);
        assert_eq!(done.code, Some(0), "{example}\n{}{}", done.stdout, done.stderr);
    }
}

#[test]
fn sessions_are_covered_and_named() {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &directive("talk", "<execute><tool>rye.bash.bash</tool></execute>", "Talk."));
    place.write(
        ".ai/config/agent/assertions.yaml",
        "assertions:\n  - { id: clean, never: 'flows(\"rye.execute.tool.rye.web.*\", \"rye.execute.tool.rye.bash.*\")' }\n",
    );
    let held = place.rye(&["assert"]);
    assert_eq!(held.code, Some(0), "{}{}", held.stdout, held.stderr);
    assert!(held.stderr.contains("(1 plan of runs, 1 plan of chats): no violations"), "{}", held.stderr);
    place.write(
        ".ai/config/agent/chat.yaml",
        "commands:\n  - { id: look, execute: { item_type: tool, item_id: rye/web/fetch, params: { url: \"${args}\" } } }\n  \
           - { id: any, execute: { item_type: tool, item_id: 'team/${args}', params: {} } }\n",
    );
    let broken = place.rye(&["assert"]);
    assert_eq!(broken.code, Some(1), "{}{}", broken.stdout, broken.stderr);
    for part in [
        "error: `clean` does not hold",
        "  chat talk",
        "error: `listed_is_usable` does not hold",
        "the command `/any` executes `team/${args}`, which no grant allows",
    ] {
        assert!(broken.stdout.contains(part), "{part}\n{}", broken.stdout);
    }
    let (_, json) = place.json(&["assert"]);
    assert_eq!(json["plans"][1]["mode"], "chat", "{json}");
}
