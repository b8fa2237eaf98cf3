//! Tests of project tools in a run: script settings of three spaces, declared variables, and keys that no tool gets.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stderr, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::TestProject;

fn python() -> bool {
    let found = std::process::Command::new("python3").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: `python3` is not installed");
    }
    found
}

/// Returns a project whose directive `ask` calls the tool `team/tool` once.
fn place(tool: &str, input: &str) -> TestProject {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    place.write(".ai/tools/team/tool.py", tool);
    place.write(
        ".ai/directives/ask.md",
        "# Ask\n\n```xml\n<directive name=\"ask\" version=\"1.0.0\">\n<metadata>\n\
         <permissions><execute><tool>team.tool</tool></execute></permissions>\n</metadata>\n</directive>\n```\n\nAsk.\n",
    );
    place.write("script.yaml", &format!("steps:\n  - tool_calls: [{{ name: team_tool, input: {input} }}]\n  - done\n"));
    place
}

fn ran(place: &TestProject) -> String {
    place.run_ok(&["trust"]);
    let mut command = place.command(&["run", "ask", "--script", "script.yaml", "--events", "--format", "json"]);
    command.env("TEAM_WORD", "sesame").env("ANTHROPIC_API_KEY", "sk-not-a-key").env("OTHER", "hidden");
    let done = command.output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{text}\n{}", String::from_utf8_lossy(&done.stderr));
    text
}

const TOOL: &str = "import os\n__tool_description__ = 'Answers.'\n__environment__ = ['TEAM_WORD']\n\
    CONFIG_SCHEMA = {'properties': {'n': {'type': 'integer'}}, 'additionalProperties': False}\n\
    CONFIG_RESOLVE = {'path': 'team/answers.yaml', 'mode': 'deep_merge'}\n\
    def execute(params, project_path):\n    \
    return {'word': os.environ.get('TEAM_WORD'), 'other': os.environ.get('OTHER'), 'config': params['resolved_config'], 'n': params['n']}\n";

#[test]
fn a_script_gets_parameters_settings_and_what_it_declares() {
    if !python() {
        return;
    }
    let place = place(TOOL, "{ n: 7 }");
    place.write("../user/.ai/config/team/answers.yaml", "colour: { sky: blue, grass: green }\n");
    place.write(".ai/config/team/answers.yaml", "colour: { sky: grey }\n");
    let text = ran(&place);
    let answer = r#"{\"word\":\"sesame\",\"other\":null,\"config\":{\"colour\":{\"sky\":\"grey\",\"grass\":\"green\"}},\"n\":7}"#;
    assert!(text.contains(answer), "{text}");
    place.write(".ai/tools/team/tool.py", &TOOL.replace("deep_merge", "first_match"));
    let text = ran(&place);
    assert!(text.contains(r#"\"config\":{\"colour\":{\"sky\":\"grey\"}}"#), "{text}");
}

#[test]
fn invalid_parameters_and_provider_keys_are_rejected() {
    if !python() {
        return;
    }
    let wrong = place(TOOL, "{ n: seven }");
    assert!(ran(&wrong).contains("`n` must be integer, not the text `seven`"));
    let thief = place(&TOOL.replace("TEAM_WORD", "ANTHROPIC_API_KEY"), "{ n: 7 }");
    let refused = thief.rye(&["run", "ask", "--script", "script.yaml"]);
    assert_ne!(refused.code, Some(0), "{}", refused.stdout);
    assert!(refused.stderr.contains("a tool cannot request `ANTHROPIC_API_KEY`"), "{}", refused.stderr);
    assert!(!format!("{}{}", refused.stdout, refused.stderr).contains("sk-not-a-key"), "{}", refused.stderr);
}

#[test]
fn a_script_of_a_project_runs_only_where_it_is_trusted() {
    let place = place(TOOL, "{ n: 7 }").cloned();
    let done = place.rye(&["run", "ask", "--script", "script.yaml"]);
    assert_eq!(done.code, Some(5), "{}\n{}", done.stdout, done.stderr);
    assert!(done.stderr.contains("team/tool"), "{}", done.stderr);
}
