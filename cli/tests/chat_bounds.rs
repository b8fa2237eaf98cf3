//! Tests of the bounds of a prompt in `rye chat`: modes, capabilities and the highest cost of a single prompt.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::io::Write;
use std::process::Stdio;

use rye::{ProcessResult, TestProject, talk_directive};
use serde_json::Value;

/// Returns a project with the directive `talk` and this script.
fn project(script: &str) -> TestProject {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &talk_directive(2, "<tool>rye.file-system.read</tool>"));
    place.write("script.yaml", script);
    place
}

/// Runs `rye chat` with these lines as the whole input.
fn chat(place: &TestProject, args: &[&str], lines: &[u8]) -> ProcessResult {
    let args = [&["chat"], args, &["--script", "script.yaml"]].concat();
    let mut command = place.command(&args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines).unwrap();
    ProcessResult::from(child.wait_with_output().unwrap())
}

fn transcript(place: &TestProject) -> Vec<Value> {
    let (_, listed) = place.json(&["threads", "list"]);
    assert_eq!(listed["threads"].as_array().unwrap().len(), 1, "{listed}");
    place.transcript(listed["threads"][0]["thread_id"].as_str().unwrap())
}

fn count(events: &[Value], name: &str) -> usize {
    events.iter().filter(|event| event["event_type"] == name || event["type"] == name).count()
}

const FILE_TOOLS: &str = "<tool>rye.file-system.read</tool><tool write=\".\">rye.file-system.write</tool>";

/// Returns a script in which each prompt writes the next of these files.
fn writes(files: &[&str]) -> String {
    let steps = files.iter().map(|file| {
        let call = format!("{{ name: rye_file_system_write, input: {{ path: {file}, content: x }} }}");
        format!("{{ tool_calls: [{call}] }}, {{ text: Done. }}")
    });
    format!("steps: [{}]", steps.collect::<Vec<_>>().join(", "))
}

#[test]
fn read_only_mode_writes_nothing_and_a_wider_mode_asks_with_the_lines_of_a_plan_diff() {
    let place = project(&writes(&["a.txt", "b.txt"]));
    let tools = format!("{FILE_TOOLS}<directive>part</directive>");
    place.write(".ai/directives/talk.md", &talk_directive(2, &tools));
    place.write(".ai/directives/part.md", &talk_directive(2, "").replace("name=\"talk\"", "name=\"part\""));
    let lines = b"/mode read-only\nfirst\n/mode ask\n/mode ask confirm\nsecond\n/mode ask\n";
    let done = chat(&place, &["talk"], lines);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "Done.\nDone.\n"), "{}", done.stderr);
    assert!(done.stderr.contains("can start part") && !done.stderr.contains("DirectiveInstruction"), "{}", done.stderr);
    let written = ["a.txt", "b.txt"].map(|file| place.project().join(file).exists());
    assert_eq!(written, [false, true], "{}", done.stderr);
    for text in [
        "mode read-only instead of ask",
        "the mode `ask` allows more than the current one; repeat the command with `confirm` at the end:",
        "\nCapabilities\n  + widened rye.execute.tool.rye.file-system.write",
        "mode ask instead of read-only",
        "the mode is `ask`",
        "denied: this prompt runs without rye.execute.tool.rye.file-system.write",
    ] {
        assert!(done.stderr.contains(text), "{text}: {}", done.stderr);
    }
    let events = transcript(&place);
    let started: Vec<&Value> = events.iter().filter(|event| event["type"] == "prompt_started").collect();
    assert_eq!(started[0]["mode"], "read-only");
    assert_eq!(started[0]["grants"][0]["pattern"], "rye.execute.tool.rye.file-system.read");
    assert_eq!((started[0]["grants"].as_array().unwrap().len(), &started[1]["grants"]), (1, &Value::Null));
    let denied = events.iter().find(|event| event["type"] == "tool_call_result").unwrap();
    assert!(
        denied["content"].as_str().unwrap().ends_with("(the user runs this prompt without this capability)"),
        "{denied}"
    );
    place.run_ok(&["threads", "verify", "--last"]);
    // The session opens again in its mode.
    chat(&place, &["-c"], b"/mode read-only\n");
    let again = chat(&place, &["-c"], b"/mode read-only\n");
    assert!(again.stderr.contains("the mode is `read-only`"), "{}", again.stderr);
}

#[test]
fn with_bounds_the_capabilities_of_one_prompt() {
    let place = project(&writes(&["a.txt", "b.txt"]));
    place.write(".ai/directives/talk.md", &talk_directive(2, FILE_TOOLS));
    let lines = b"/with rye.execute.tool.rye.file-system.read rye.execute.tool.rye.file-system.ls first\n\
        /with rye.execute.tool.rye.file-system.read first\nsecond\n/with x\n";
    let done = chat(&place, &["talk"], lines);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "Done.\nDone.\n"), "{}", done.stderr);
    assert_eq!(["a.txt", "b.txt"].map(|file| place.project().join(file).exists()), [false, true], "{}", done.stderr);
    for text in [
        "`rye.execute.tool.rye.file-system.ls` matches no grant of the session; granted: \
         `rye.execute.tool.rye.file-system.read`, `rye.execute.tool.rye.file-system.write`",
        "/with needs capability patterns and a text",
    ] {
        assert!(done.stderr.contains(text), "{text}: {}", done.stderr);
    }
    let events = transcript(&place);
    assert_eq!(count(&events, "prompt_started"), 2);
}

#[test]
fn amount_before_a_text_is_the_highest_cost_of_its_prompt() {
    let place = project("steps: [{ text: One. }, { text: Two. }]");
    let done = chat(&place, &["talk"], b"$0.20 first\nsecond\n$9 third\n$0 fourth\n");
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "One.\nTwo.\n"), "{}", done.stderr);
    for text in [
        "a prompt may spend at most $0.5, not $9: raise the limit with /budget, or type a space first if $9 is",
        "must be more than $0",
    ] {
        assert!(done.stderr.contains(text), "{text}: {}", done.stderr);
    }
    let events = transcript(&place);
    let started: Vec<&Value> = events.iter().filter(|event| event["type"] == "prompt_started").collect();
    assert_eq!((&started[0]["limits"]["spend"], &started[0]["capped"]), (&200_000_000.into(), &true.into()));
    let first = events.iter().find(|event| event["type"] == "prompt_ended").unwrap();
    let spent = first["cost"]["spend"].as_u64().unwrap();
    assert_eq!(started[1]["limits"]["spend"], 500_000_000 + spent);
    let input = events.iter().find(|event| event["type"] == "user_input").unwrap();
    assert_eq!((&input["text"], &input["bounds"]["spend"]), (&"first".into(), &200_000_000.into()));
}

#[test]
fn bounds_in_either_order_hold_and_a_command_or_an_unknown_capability_sends_nothing() {
    let place = project("steps: [{ text: One. }, { text: Two. }]");
    place.write(".ai/directives/talk.md", &talk_directive(2, "<tool>*</tool>"));
    let lines = b"/with rye.execute.tool.rye.file-system.read $0.20 first\n$0.20 !touch ran\n\
        /with rye.execute.tool.rye.file-system.read !touch ran\n$0.20 /context\n\
        /with rye.execute.tool.rye.file-system.raed hi\n";
    let done = chat(&place, &["talk"], lines);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "One.\n"), "{}", done.stderr);
    for text in [
        "`!` is a command of the session, and the bounds of a prompt do not apply to it: type it without them",
        "`/context` is a command of the session",
        "`rye.execute.tool.rye.file-system.raed` matches no tool, directive, skill or knowledge; did you mean \
         `rye.execute.tool.rye.file-system.read`?",
    ] {
        assert!(done.stderr.contains(text), "{text}: {}", done.stderr);
    }
    let events = transcript(&place);
    let started: Vec<&Value> = events.iter().filter(|event| event["type"] == "prompt_started").collect();
    assert_eq!((started.len(), &started[0]["limits"]["spend"]), (1, &200_000_000.into()), "{started:?}");
    assert!(!place.project().join("ran").exists(), "{}", done.stderr);
}

#[test]
fn ceiling_of_a_prompt_holds_with_twenty_children() {
    let place = TestProject::own();
    let limits = "<limits turns=\"4\" spend=\"2.00\" spawns=\"100\" depth=\"2\"/>";
    let directive = |name: &str, limits: &str, permissions: &str| {
        format!(
            "# D\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\">\n<metadata>\n<description>D.</description>\n\
             <model provider=\"scripted\" tier=\"fast\"/>\n{limits}\n{permissions}\n</metadata>\n</directive>\n```\n\nGo.\n"
        )
    };
    let grants = "<permissions><execute><directive>part</directive></execute></permissions>";
    place.write(".ai/directives/talk.md", &directive("talk", limits, grants));
    place.write(
        ".ai/directives/part.md",
        &directive("part", "<limits turns=\"3\" spend=\"0.012\" output=\"2000\"/>", ""),
    );
    let model =
        "{ id: scripted, context_window: 200000, max_output: 4000, tool_use: native, prices: { input: 1, output: 5 } }";
    place.write(
        ".ai/config/agent/providers/scripted.yaml",
        &format!("id: scripted\nwire: scripted\nscript: script.yaml\ndefault_tier: fast\ntiers: {{ fast: scripted }}\nmodels:\n  - {model}\n"),
    );
    let call = "{ name: rye_execute, input: { item_type: directive, item_id: part } }";
    let calls = vec![call; 20].join(", ");
    let prompt = format!("{{ tool_calls: [{calls}], usage: {{ input: 900, output: 100 }} }}, {{ text: Done. }}");
    let steps = vec![prompt; 4].join(", ");
    let usage = "usage: { input: 1000, output: 1500 }";
    place.write("script.yaml", &format!("steps: [{steps}]\nthreads:\n  part: [{{ text: Part., {usage} }}]\n"));
    let done = chat(&place, &["talk"], b"$0.02 a\n$0.05 b\n$0.12 c\n$1.50 d\n");
    let ceilings = [20_000_000_u64, 50_000_000, 120_000_000, 1_500_000_000];
    let (_, listed) = place.json(&["threads", "list", "--limit", "200"]);
    let threads = listed["threads"].as_array().unwrap();
    let root = threads.iter().find(|thread| thread["directive"] == "talk").unwrap();
    let events = place.transcript(root["thread_id"].as_str().unwrap());
    let ended: Vec<&Value> = events.iter().filter(|event| event["type"] == "prompt_ended").collect();
    assert_eq!(ended.len(), 4, "{}", done.stderr);
    let spent: Vec<u64> = ended.iter().map(|ended| ended["cost"]["spend"].as_u64().unwrap()).collect();
    assert!(spent.iter().zip(ceilings).all(|(spent, most)| *spent <= most), "{spent:?}\n{}", done.stderr);
    // Twenty children cost $0.17 in total.
    assert!(spent[3] > 170_000_000, "{spent:?}\n{}", done.stderr);
}

#[test]
fn asynchronous_child_costs_a_later_prompt_nothing_and_delays_it_not() {
    let place = TestProject::own();
    let kid = talk_directive(2, "").replace("name=\"talk\"", "name=\"kid\"").replace("0.50", "0.30");
    place.write(".ai/directives/talk.md", &talk_directive(4, "<directive>kid</directive>"));
    place.write(".ai/directives/kid.md", &kid);
    let start = "{ name: rye_execute, input: { item_type: directive, item_id: kid, async: true } }";
    let reply = |text: &str| format!("{{ text: {text}, usage: {{ input: 100, output: 10 }} }}");
    place.write(
        "script.yaml",
        &format!(
            "steps: [{{ tool_calls: [{start}] }}, {}, {}, {}]\nthreads:\n  \
             kid: [{{ text: Kid., delay_ms: 12000, usage: {{ input: 20000, output: 2000 }} }}]\n",
            reply("One."),
            reply("Two."),
            reply("Three.")
        ),
    );
    // The reservation of the child, $0.30, is far above the ceilings of the later prompts.
    let done = chat(&place, &["talk"], b"first\n$0.05 second\n$0.05 third\n/cost\n");
    for text in [
        "prompt 1 done: turns 2, ",
        "prompt 3 done: turns 1, ",
        "child kid-",
        " of prompt 1 running: $0, $0.3 reserved",
    ] {
        assert!(done.stderr.contains(text), "{text}: {}", done.stderr);
    }
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "One.\nTwo.\nThree.\n"), "{}", done.stderr);
    let (_, listed) = place.json(&["threads", "list"]);
    let threads = listed["threads"].as_array().unwrap();
    let root = threads.iter().find(|thread| thread["directive"] == "talk").unwrap();
    let events = place.transcript(root["thread_id"].as_str().unwrap());
    let ended: Vec<&Value> = events.iter().filter(|event| event["type"] == "prompt_ended").collect();
    assert_eq!(ended[0]["cost"]["outstanding"], 300_000_000, "{}", ended[0]);
    // Each later prompt pays for its own call only, whenever the child ends.
    for prompt in &ended[1..] {
        assert_eq!((&prompt["status"], &prompt["cost"]["turns"]), (&"done".into(), &1.into()), "{prompt}");
        let settled = events.iter().rfind(|event| event["type"] == "settled").unwrap();
        assert_eq!(prompt["cost"]["spend"], settled["amount"], "{prompt}");
    }
    // The prompts do not wait for the child. Its end is recorded only if it precedes the end of the session.
    let last = events.iter().rposition(|event| event["type"] == "prompt_ended").unwrap();
    assert!(!events[..last].iter().any(|event| event["type"] == "child_ended"));
    place.run_ok(&["threads", "verify", "--last"]);
}

#[test]
fn session_limit_of_the_command_line_ends_the_session_and_is_shown_in_the_plan() {
    let place = project("steps: [{ text: One. }, { text: Two. }, { text: Three. }]");
    let done = chat(&place, &["talk", "--session-limit", "turns=2"], b"one\ntwo\nthree\n");
    assert_eq!((done.code, done.stdout.as_str()), (Some(4), "One.\nTwo.\n"), "{}", done.stderr);
    let end = "  turns_exceeded: 2 of 2 of the session\n  help: this session accepts no more prompts: start a new session; \
        `--session-limit turns=N` sets its limit\n";
    assert!(done.stderr.contains(end), "{}", done.stderr);
    // A fork has the rest of the limit, which is nothing.
    let forked = chat(&place, &["-c"], b"/fork 2\nfour\n");
    assert!(forked.stderr.contains("continues ") && forked.stderr.contains(end), "{}", forked.stderr);
    let plan = place.rye(&["plan", "talk", "--chat", "--session-limit", "turns=2"]).stdout;
    let limits = plan.split("Session limits").nth(1).unwrap();
    assert!(limits.contains("turns") && limits.contains("set by the caller") && limits.contains("$5"), "{plan}");
    let (_, report) = place.json(&["plan", "talk", "--chat", "--session-limit", "spend=0.25"]);
    assert_eq!(report["session_limits"]["spend"]["value"], serde_json::json!(0.25), "{report}");
    let why = place.rye(&["why", "session_limit.spend", "--chat", "--of", "talk"]).stdout;
    assert!(why.contains("$5.00, built in"), "{why}");
    for (args, message) in [
        (["plan", "talk", "--session-limit", "turns=2"], "`--session-limit` and `--append-system` need `--chat`"),
        (["chat", "talk", "--session-limit", "depth=2"], "a session has no limit `depth`"),
        (["chat", "talk", "--append-system", "none.md"], "`--append-system none.md`: "),
        (["chat", "-c", "--session-limit", "turns=2"], "cannot be used with"),
    ] {
        let refused = place.rye(&args);
        assert!(refused.code == Some(2) || refused.code == Some(1), "{args:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(message), "{args:?}: {}", refused.stderr);
    }
}

#[test]
fn appended_file_is_a_layer_that_stays_in_the_session_without_the_file() {
    let place = project("steps: [{ text: Done. }, { text: Done. }]");
    place.write("house.md", "Use short words: ${prompt}.\n");
    let plan = place.rye(&["plan", "talk", "--chat", "--append-system", "house.md"]).stdout;
    assert!(plan.contains("append/house.md") && plan.contains("command line"), "{plan}");
    let request = place.rye(&["plan", "talk", "--chat", "--append-system", "house.md", "--prompt"]).stdout;
    assert!(request.contains("Use short words: ${prompt}."), "{request}");
    let first = chat(&place, &["talk", "--append-system", "house.md"], b"one\n/context\n");
    assert!(first.stderr.contains("append/house.md"), "{}", first.stderr);
    std::fs::remove_file(place.project().join("house.md")).unwrap();
    let thread = place.json(&["threads", "list"]).1["threads"][0]["thread_id"].as_str().unwrap().to_owned();
    let (code, proof) = place.json(&["threads", "prove", &thread]);
    assert_eq!((code, &proof["proved"], &proof["sources"]), (Some(0), &true.into(), &"files".into()), "{proof}");
    place.write(".ai/directives/talk.md", &talk_directive(3, "<tool>rye.file-system.read</tool>"));
    let lines = b"/reload confirm\ntwo\n/context\n/context append/house.md confirm\n/context\n";
    let again = chat(&place, &["-c"], lines);
    let rows: Vec<&str> = again.stderr.lines().filter(|line| line.contains("append/house.md")).collect();
    let starts = |row: &&str, start: &str| row.trim_start_matches([' ', '0']).trim_start().starts_with(start);
    assert!(rows.len() == 3 && starts(&rows[1], "without") && starts(&rows[2], "omitted"), "{rows:#?}");
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "Done.\n"), "{}", again.stderr);
}
