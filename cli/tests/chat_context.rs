//! Tests of `/context PART`: the price of a request without a part, and a session that continues without it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::io::Write;
use std::process::Stdio;

use rye::TestProject;
use serde_json::Value;

/// Runs a session with these lines in a project with a context file, and returns its output.
fn chat(lines: &str) -> (TestProject, String) {
    let place = TestProject::own();
    let directive = rye::talk_directive(8, "<tool>rye.file-system.read</tool>");
    place.write(".ai/directives/talk.md", &directive.replace("Answer briefly.", "Answer as AGENTS.md says."));
    place.write("script.yaml", &format!("steps: [{}]", "{ text: One. }, ".repeat(7)));
    place.write("AGENTS.md", &"Use tabs in every file.\n".repeat(40));
    let shown = run(&place, lines);
    (place, shown)
}

/// Runs a session of the directive `talk` with these lines, and returns its output.
fn run(place: &TestProject, lines: &str) -> String {
    let mut command = place.command(&["chat", "talk", "--script", "script.yaml"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr)
}

/// Returns the system prompts of the session's threads, oldest first.
fn system_prompts(place: &TestProject) -> Vec<String> {
    let (_, listed) = place.json(&["threads", "list"]);
    let mut threads: Vec<String> = listed["threads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|thread| thread["thread_id"].as_str().unwrap().to_owned())
        .collect();
    threads.sort();
    let prompt = |thread: &String| {
        place.transcript(thread).into_iter().find(|event| event["type"] == "system_prompt").unwrap()["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    threads.iter().map(prompt).collect()
}

#[test]
fn part_is_left_out_and_added_again_and_its_price_is_shown_first() {
    let part = "context/AGENTS.md";
    let (place, shown) = chat(&format!(
        "first\n/context {part}\n/context {part} confirm\nsecond\n/context\n/context {part} confirm\nthird\n"
    ));
    assert!(shown.contains(&format!("without `{part}`: ")) && shown.contains(" tokens less"), "{shown}");
    // The price, the loss of the cache, the rest of the session and the other references precede the change.
    let (first, _) = shown.split_once("nothing is changed yet").unwrap();
    for text in [
        "\nnext request: $",
        " tokens must be cached again\n",
        "\neach later request: $",
        " less; a prompt of 1 turn: $",
        "\nalso named by the layer `talk`\n",
    ] {
        assert!(first.contains(text), "{text}: {first}");
    }
    assert!(shown.contains(&format!("nothing is changed yet: `/context {part} confirm` applies")), "{shown}");
    assert!(shown.contains("applied: the session continues with the new plan"), "{shown}");
    assert!(shown.contains(&format!("with `{part}`: ")) && shown.contains(" tokens more"), "{shown}");
    let prompts = system_prompts(&place);
    let has_part: Vec<bool> = prompts.iter().map(|prompt| prompt.contains("Use tabs")).collect();
    assert_eq!(has_part, [true, false, true], "{prompts:#?}");
    // The plan records the part, so that it can be proved.
    let (_, listed) = place.json(&["threads", "list"]);
    for thread in listed["threads"].as_array().unwrap() {
        let (code, proof) = place.json(&["threads", "prove", thread["thread_id"].as_str().unwrap()]);
        assert_eq!((code, &proof["proved"]), (Some(0), &Value::Bool(true)), "{proof}");
    }
}

#[test]
fn tool_that_is_left_out_stays_out_with_another_model_and_unknown_parts_are_refused() {
    let (place, shown) = chat(
        "first\n/context\n/context rye_file_system_read confirm\nsecond\n/context\n/budget 0.25\nthird\n/context\n\
         /context context/AGENTS\n/context 1\n/plan\n",
    );
    assert!(
        shown.contains("no part `context/AGENTS` that can be left out; did you mean `context/AGENTS.md`?"),
        "{shown}"
    );
    assert!(shown.contains("no part `1` that can be left out"), "{shown}");
    assert!(!shown.contains("allows more"), "{shown}");
    assert!(!shown.contains("still uses its previous plan"), "no file has changed: {shown}");
    // The listings are those before the change, after it, and with the later plan.
    let rows: Vec<&str> = shown.lines().filter(|row| row.contains("rye_file_system_read")).collect();
    let kinds: Vec<&str> = rows.iter().filter_map(|row| row.split_whitespace().nth(1)).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "tool").count(), 1, "{rows:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "omitted").count(), 2, "{rows:?}");
    assert_eq!(system_prompts(&place).len(), 3);
}

#[test]
fn message_that_a_hook_hides_has_no_text_in_the_context() {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &rye::talk_directive(8, "<tool>rye.file-system.read</tool>"));
    place.write("script.yaml", "steps: [{ text: One. }]");
    let notes = "content: \"A shown note.\" } } }\n  - { id: secret, event: before_agent_start, \
                 action: { message: { content: \"A hidden note.\", display: false } } }\n";
    let hooks = format!("hooks:\n  - {{ id: note, event: before_agent_start, action: {{ message: {{ {notes}");
    place.write(".ai/config/agent/hooks.yaml", &hooks);
    let shown = run(&place, "first\n/context\n");
    assert!(shown.contains("A shown note.") && shown.contains("(hidden by a hook)"), "{shown}");
    assert!(!shown.contains("A hidden note."), "{shown}");
}

#[test]
fn another_model_lists_no_file_that_changes_only_the_id_of_the_plan() {
    let (_, shown) = chat("first\n/model scripted/fast\n/exit now\n!\n/plan\n");
    assert!(!shown.contains("affects only the id of the plan"), "{shown}");
    assert!(!shown.contains("still uses its previous plan"), "no file has changed: {shown}");
    assert!(shown.contains("/exit accepts `wait`, `detach`, `cancel` or no argument"), "{shown}");
    assert!(shown.contains("`!` needs a command"), "{shown}");
}

// shows: interactive 6.3: the price of the next and of the later requests, the lost cache and the other references
#[test]
fn price_of_a_part_names_the_later_requests_the_cache_and_the_other_references() {
    let place = TestProject::own();
    let directive = rye::talk_directive(8, "<tool>rye.file-system.read</tool>");
    place.write(".ai/directives/talk.md", &directive.replace("Answer briefly.", "Follow the rules of AGENTS.md."));
    place.write("script.yaml", "steps: [{ text: One., usage: { input: 100, cache_read: 1900, output: 10 } }]");
    place.write("AGENTS.md", &"Use tabs in every file.\n".repeat(40));
    let mut command = place.command(&["chat", "talk", "--script", "script.yaml"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"first\n/context context/AGENTS.md\n").unwrap();
    let shown = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    let row = |start: &str| shown.lines().find(|line| line.starts_with(start)).expect(&shown).to_owned();
    let next = row("next request: $");
    assert!(next.contains(" tokens must be cached again"), "{next}");
    let later = row("each later request: $");
    assert!(later.contains(" less; a prompt of 1 turn: $") && later.ends_with(" less"), "{later}");
    assert_eq!(row("also named by "), "also named by the layer `talk`");
}

/// Returns a project with a command, an `input` hook, two skills, a prompt template and context files.
fn project_with_intake() -> TestProject {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &rye::talk_directive(8, "<tool>rye.file-system.read</tool>"));
    place.write("script.yaml", "steps: [{ text: One. }]");
    place.write("AGENTS.md", "Use tabs.\n");
    place.write(
        ".ai/config/agent/chat.yaml",
        "commands:\n  - { id: look, execute: { item_type: tool, item_id: rye/file-system/read, params: { path: \"${args}\" } } }\n",
    );
    place.write(
        ".ai/config/agent/hooks.yaml",
        "hooks:\n  - { id: notes, event: input, condition: 'text matches \"^note:\"', action: handled }\n",
    );
    let skill =
        |name: &str, more: &str| format!("---\nname: {name}\ndescription: Does it.\n{more}---\n\nDo it well.\n");
    place.write(".ai/skills/tidy/SKILL.md", &skill("tidy", ""));
    place.write(
        ".ai/skills/own/SKILL.md",
        &skill("own", "disable-model-invocation: true\nallowed-tools: Bash(ls:*) Read\n"),
    );
    place.write(".ai/prompts/review.md", "---\nargument-hint: FILE\n---\n\nReview $1.\n");
    place
}

// shows: interactive 2.1: plan prints the intake as its own lane, with each skill and prompt template
#[test]
fn plan_of_a_chat_lists_the_stages_of_its_intake_with_tokens_and_lines() {
    let place = project_with_intake();
    let shown = place.rye(&["plan", "talk", "--chat"]).stdout;
    let start = shown.find("\nIntake  ·  command → input → skill → template → queue\n").expect(&shown);
    let section: Vec<String> = shown[start + 1..]
        .lines()
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let expected = [
        "command /look runs `rye/file-system/read` .ai/config/agent/chat.yaml:2:11",
        "input notes depends .ai/config/agent/hooks.yaml:2:11",
        "skill /skill:own 30 tokens if called, not in the list of skills, asks for Bash(ls:*): not granted .ai/skills/own/SKILL.md:1:1",
        "skill /skill:tidy 31 tokens if called, 19 tokens in the list of skills .ai/skills/tidy/SKILL.md:1:1",
        "template /review 3 tokens if called, FILE .ai/prompts/review.md:1:1",
        "queue a prompt if the chat is idle, else a steering message or a follow-up",
    ];
    assert_eq!(section, expected, "{shown}");
    let (_, plan) = place.json(&["plan", "talk", "--chat"]);
    let entries = plan["summary"]["intake"].as_array().unwrap();
    let stages: Vec<&str> = entries.iter().map(|entry| entry["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["command", "input", "skill", "skill", "template"]);
    let template = &entries[4];
    assert_eq!((&template["name"], &template["tokens"]), (&"/review".into(), &3.into()), "{template}");
    assert_eq!(template["source"]["file"], ".ai/prompts/review.md");
    // A run has no intake.
    let (_, run) = place.json(&["plan", "talk"]);
    assert_eq!(run["summary"].get("intake"), None);
    assert!(!place.rye(&["plan", "talk"]).stdout.contains("\nIntake"));
}

// shows: interactive 3: context files and skills have their provenance in why
#[test]
fn why_names_the_files_of_context_files_and_skills() {
    let place = project_with_intake();
    let why = |thing: &str| place.rye(&["why", thing, "--of", "talk", "--chat"]);
    let context = why("context/AGENTS.md");
    assert!(context.stdout.contains("a context file of chats"), "{}{}", context.stdout, context.stderr);
    assert!(context.stdout.contains("AGENTS.md:1:1"), "{}", context.stdout);
    let list = why("skills").stdout;
    assert!(list.contains("the list of 1 skill"), "{list}");
    for name in ["skill/tidy", "/skill:tidy"] {
        let skill = why(name).stdout;
        assert!(skill.contains("skill.tidy: 31 tokens if called, 19 tokens in the list of skills"), "{skill}");
        assert!(skill.contains(".ai/skills/tidy/SKILL.md:1:1"), "{skill}");
    }
    let run = place.rye(&["why", "context/AGENTS.md", "--of", "talk"]);
    assert_eq!(run.code, Some(1), "a run has no context files: {}", run.stdout);
}
