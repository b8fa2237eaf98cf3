//! The guide for authors of extensions (`docs/guides/extend-a-chat.md`): writes each file of the page into a project
//! and uses every extension in a session, in YAML, Python and TypeScript.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stderr, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use rye::{TestProject, talk_directive};
use serde_json::Value;

/// Returns each `file=PATH` block of the guide, as path and text.
fn guide_files() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides/extend-a-chat.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut files: Vec<(String, String)> = Vec::new();
    let mut open = false;
    for line in page.lines() {
        if let Some((_, path)) = line.split_once("file=").filter(|_| line.starts_with("```")) {
            files.push((path.to_owned(), String::new()));
            open = true;
        } else if line.starts_with("```") {
            open = false;
        } else if open {
            let (_, text) = files.last_mut().unwrap();
            text.push_str(line);
            text.push('\n');
        }
    }
    files
}

fn project() -> TestProject {
    let place = TestProject::own();
    let files = guide_files();
    assert!(files.len() >= 13, "the test must see the files: {}", files.len());
    for (path, text) in &files {
        place.write(path, text);
    }
    let grants = "<tool>team.*</tool><tool>rye.bash.bash</tool>";
    let acknowledged = "<acknowledge risk=\"elevated\">The guide runs its tools.</acknowledge></permissions>";
    place.write(".ai/directives/talk.md", &talk_directive(30, grants).replace("</permissions>", acknowledged));
    place
}

/// Runs rye with this input.
fn run_with_input(place: &TestProject, args: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut command = place.command(args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Runs a session with these lines and returns its events.
fn session(place: &TestProject, replies: usize, lines: &[&str]) -> Vec<Value> {
    let steps: Vec<String> = (0..replies).map(|reply| format!("  - text: reply {reply}\n")).collect();
    place.write("script.yaml", &format!("steps:\n{}", steps.concat()));
    let requests: Vec<String> =
        lines.iter().map(|line| serde_json::json!({"type": "prompt", "message": line}).to_string()).collect();
    let args = ["chat", "talk", "--format", "json", "--script", "script.yaml", "--unattended", "allow"];
    let (code, stdout, stderr) = run_with_input(place, &args, &requests.join("\n"));
    assert_eq!(code, Some(0), "{stdout}\n{stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: `{program}` is not installed");
    }
    found
}

/// Returns true if node can strip the types of TypeScript (22.13 or newer).
fn has_typescript() -> bool {
    let strips = "process.exit(require('module').stripTypeScriptTypes ? 0 : 1)";
    let found = Command::new("node").args(["-e", strips]).status().is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped: no node with TypeScript");
    }
    found
}

fn model_texts(events: &[Value]) -> Vec<&str> {
    let inputs = events.iter().filter(|line| line["event"]["type"] == "user_input");
    inputs.filter_map(|line| line["event"]["text"].as_str()).collect()
}

#[test]
fn files_of_the_guide_have_no_diagnostics() {
    let place = project();
    let checked = place.rye(&["check"]);
    assert_eq!(checked.code, Some(0), "{}\n{}", checked.stdout, checked.stderr);
    assert!(!checked.stderr.contains("warning"), "{}", checked.stderr);
}

#[test]
fn templates_skills_and_declarative_hooks_of_the_guide_work() {
    let place = project();
    let events = session(&place, 3, &["/review src/main.rs \"race conditions\"", "/skill:release-notes since v1", "t"]);
    let texts = model_texts(&events);
    assert_eq!(texts[0].trim(), "Review `src/main.rs` for race conditions. List each finding with its line.");
    assert!(texts[1].starts_with("<skill name=\"release-notes\"") && texts[1].ends_with("since v1"), "{}", texts[1]);
    assert_eq!(texts[2], "Run the tests and fix what fails.");
}

#[test]
fn python_hook_command_and_persistent_tool_of_the_guide_work() {
    if !has("python3") {
        return;
    }
    let place = project();
    let events = session(&place, 5, &["loud: hello", "count a", "count b", "/plan-day gardens"]);
    let texts = model_texts(&events);
    assert_eq!(texts[..3], ["LOUD: HELLO", "count a (message 1)", "count b (message 2)"]);
    let prompts = events.iter().filter(|line| line["event"]["type"] == "user_input");
    let mut texts = prompts.filter_map(|line| line["event"]["text"].as_str());
    assert!(texts.any(|text| text == "Plan my day. Topic: gardens"), "{events:#?}");
}

#[test]
fn typescript_hook_of_the_guide_works() {
    if !has_typescript() {
        return;
    }
    let place = project();
    let events = session(&place, 1, &["soft: HELLO"]);
    assert_eq!(model_texts(&events), ["soft: hello"]);
}

#[test]
fn typescript_command_of_the_guide_works() {
    if !has_typescript() {
        return;
    }
    let place = project();
    let events = session(&place, 1, &["/plan-week gardens"]);
    assert_eq!(model_texts(&events), ["Plan my week. Topic: gardens"]);
}

/// Runs a session whose model calls a tool once, and returns the output.
fn call_of_the_model(place: &TestProject, name: &str, input: &str) -> String {
    let script = format!("steps:\n  - tool_calls: [{{ name: {name}, input: {input} }}]\n  - text: Done.\n");
    place.write("script.yaml", &script);
    let args = ["chat", "talk", "--format", "json", "--script", "script.yaml"];
    let (code, stdout, stderr) = run_with_input(place, &args, "{\"type\":\"prompt\",\"message\":\"go\"}");
    assert_eq!(code, Some(0), "{stderr}");
    stdout
}

#[test]
fn python_and_typescript_tools_of_the_guide_are_called_and_described_in_the_system_prompt() {
    let place = project();
    if has("python3") {
        let shown = call_of_the_model(&place, "team_words", "{ text: one two three }");
        assert!(shown.contains("\\\"words\\\":3") || shown.contains("\\\"words\\\": 3"), "{shown}");
    }
    if has_typescript() {
        let shown = call_of_the_model(&place, "team_longest", "{ text: one three two }");
        assert!(shown.contains("\\\"longest\\\":\\\"three\\\""), "{shown}");
    }
    let plan = place.run_ok(&["plan", "talk", "--chat", "--prompt"]);
    for line in ["- team_words: Count the words of a text", "- team_longest: Find the longest word of a text"] {
        assert!(plan.contains(line), "{plan}");
    }
}

#[test]
fn yaml_tool_of_the_guide_is_called_and_described_in_the_system_prompt() {
    let place = project();
    place.write("notes.txt", "one\ntwo\n");
    let shown = call_of_the_model(&place, "team_lines", "{ files: [notes.txt] }");
    assert!(shown.contains("2 notes.txt"), "{shown}");
    let plan = place.run_ok(&["plan", "talk", "--chat", "--prompt"]);
    assert!(plan.contains("- team_lines: Count the lines of files"), "{plan}");
    assert!(plan.contains("- Count the lines of a file before you read it as a whole."), "{plan}");
}
