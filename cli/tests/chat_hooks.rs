//! Tests of hooks in a chat: images of `input` hooks, replies of `handled`, and `terminate` with the scope `session`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stderr, reason = "tests")]

#[path = "support/chat_client.rs"]
mod chat_client;
#[path = "support/chat_project.rs"]
mod chat_project;
#[path = "support/chat_schema.rs"]
mod chat_schema;
#[path = "support/pty.rs"]
mod pty;
#[path = "support/recorder.rs"]
mod recorder;
#[path = "support/rye.rs"]
mod rye;

use std::io::Write;
use std::process::Stdio;

use chat_client::ChatClient;
use chat_project::write_provider;
use pty::PtyTerminal;
use recorder::{ApiFormat, Recorder};
use rye::{TestProject, talk_directive};
use serde_json::{Value, json};

/// Returns a PNG of this width and one row.
fn png(width: u8) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR".to_vec();
    bytes.extend([0, 0, 0, width, 0, 0, 0, 1, 8, 6, 0, 0, 0]);
    bytes
}

/// Returns a project with the directive `talk`, these hooks and this script.
fn project(hooks: &str, steps: &str, grants: &str) -> TestProject {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &talk_directive(9, grants));
    place.write(".ai/config/agent/hooks.yaml", &format!("hooks:\n{hooks}"));
    place.write("script.yaml", &format!("steps: [{steps}]"));
    for width in 1..=3 {
        std::fs::write(place.project().join(format!("{width}.png")), png(width)).unwrap();
    }
    place
}

/// Writes a tool `team/answer` whose result is this Python expression.
fn write_tool(place: &TestProject, expression: &str, is_persistent: bool) {
    let head = format!(
        "__tool_description__ = \"Answers a hook.\"\n__version__ = \"1.0.0\"\n__category__ = \"team\"\n\
         __persistent__ = {}\nCONFIG_SCHEMA = {{\"type\": \"object\", \"properties\": {{\"text\": {{\"type\": \"string\"}}}}}}\n",
        if is_persistent { "True" } else { "False" }
    );
    let body = format!("\n\ndef execute(params, project_path):\n    return {expression}\n");
    place.write(".ai/tools/team/answer.py", &format!("{head}{body}"));
}

fn use_model(place: &TestProject, server: &Recorder, wire: ApiFormat, grants: &str) {
    place.write(".ai/directives/talk.md", &talk_directive(9, grants).replace("\"scripted\"", "\"local\""));
    write_provider(place, server, wire);
}

/// Returns the widths of the images of an input.
fn widths(input: &Value) -> Vec<u64> {
    let images = input["images"].as_array().cloned().unwrap_or_default();
    images.iter().map(|image| image["width"].as_u64().unwrap()).collect()
}

fn bodies(server: &Recorder) -> Vec<String> {
    let requests = server.requests.lock().unwrap();
    requests.iter().map(|request| String::from_utf8_lossy(&request.body).into_owned()).collect()
}

fn newest(place: &TestProject) -> String {
    let (_, listed) = place.json(&["threads", "list", "--limit", "1"]);
    listed["threads"][0]["thread_id"].as_str().unwrap().to_owned()
}

/// Runs `rye chat` with these lines. Returns its exit code, stdout and stderr.
fn chat_lines(place: &TestProject, args: &[&str], lines: &str) -> (Option<i32>, String, String) {
    let mut command = place.command(args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

const IMAGE_HOOKS: &str = "  - { id: keep, event: input, condition: \"text == 'keep'\", action: { transform: { text: kept } } }
  - { id: drop, event: input, condition: \"text == 'drop'\", action: { transform: { text: dropped, images: [] } } }
  - { id: last, event: input, condition: \"text == 'last'\", action: { transform: { text: only the last, images: [\"${images.1}\"] } } }
  - { id: add, event: input, condition: \"text == 'add'\", action: { transform: { text: one more, images: [\"${images}\", { path: 3.png }] } }, grants: [rye.execute.tool.rye.file-system.read] }
  - { id: after, event: input, action: { transform: \"${text}!\" } }
";

#[test]
fn images_of_input_hooks_reach_the_model_on_every_wire_and_survive_a_restart() {
    for wire in ApiFormat::ALL {
        let server = Recorder::start(vec![wire.text_reply(); 5]);
        let place = project(IMAGE_HOOKS, "", "");
        use_model(&place, &server, wire, "");
        let mut client = ChatClient::start_with_model(&place, &["talk"]);
        let mut send = |text: &str, expected: &[u64]| {
            client.ask(json!({"type": "prompt", "message": text, "images": ["1.png", "2.png"]}));
            let input = client.event("user_input")["event"].clone();
            assert_eq!(widths(&input), expected, "{wire:?}: {input}");
            client.event("prompt_ended");
        };
        send("keep", &[1, 2]);
        send("drop", &[]);
        send("last", &[2]);
        send("add", &[1, 2, 3]);
        client.end();
        let mut client = ChatClient::reopen_with_model(&place, &["-c"]);
        client.ask(json!({"type": "prompt", "message": "and now"}));
        client.event("prompt_ended");
        client.end();
        let counts: Vec<usize> = bodies(&server).iter().map(|body| body.matches("iVBORw0KGgo").count()).collect();
        assert_eq!(counts, [2, 2, 3, 6, 6], "{wire:?}");
        assert!(bodies(&server)[4].contains("only the last!") && bodies(&server)[4].contains("and now!"), "{wire:?}");
        let proved = place.rye(&["threads", "prove", &newest(&place), "--prompts"]);
        assert_eq!(proved.code, Some(0), "{wire:?}: {}{}", proved.stdout, proved.stderr);
    }
}

#[test]
fn programs_and_persistent_tools_give_images() {
    let hook = "  - { id: shot, event: input, action: { primary: execute, item_type: tool, item_id: team/answer, params: { text: \"${text}\" } } }\n";
    let data = "iVBORw0KGgoAAAANSUhEUgAAAAcAAAABCAYAAAA=";
    for is_persistent in [false, true] {
        let place = project(hook, "{ text: One. }, { text: Two. }", "<tool>rye.file-system.read</tool>");
        let images = format!("[{{'data': '{data}'}}] if params['text'] == 'inline' else ['2.png']");
        write_tool(&place, &format!("{{'action': 'transform', 'text': 'seen', 'images': {images}}}"), is_persistent);
        let mut client = ChatClient::start(&place, &["talk"]);
        for (text, expected) in [("inline", [7]), ("by path", [2])] {
            client.ask(json!({"type": "prompt", "message": text, "images": ["1.png"]}));
            let input = client.event("user_input")["event"].clone();
            assert_eq!(widths(&input), expected, "persistent {is_persistent}: {input}");
            client.event("prompt_ended");
        }
        client.end();
    }
}

#[test]
fn images_that_a_hook_may_not_send_are_refused_and_the_message_stays() {
    let hook = "  - { id: shot, event: input, action: { primary: execute, item_type: tool, item_id: team/answer, params: { text: \"${text}\" } } }\n";
    let read = "<tool>rye.file-system.read</tool>";
    for (images, grants, reason) in [
        ("['../out.png']", read, "out.png"),
        ("['/etc/passwd']", read, "/etc/passwd"),
        ("['script.yaml']", read, "not a PNG, JPEG, GIF or WebP image"),
        ("['2.png']", "", "missing capability rye.execute.tool.rye.file-system.read"),
        ("[{'data': 'no base64'}]", "", "not base64"),
        ("[{'sha256': '0' * 64}]", "", "no image with this `sha256`"),
        ("['2.png'] * 21", read, "at most 20 images"),
    ] {
        let place = project(hook, "{ text: One. }", grants);
        std::fs::write(place.project().join("../out.png"), png(9)).unwrap();
        write_tool(&place, &format!("{{'action': 'transform', 'text': 'changed', 'images': {images}}}"), false);
        let mut client = ChatClient::start(&place, &["talk"]);
        client.ask(json!({"type": "prompt", "message": "look", "images": ["1.png"]}));
        let run = client.read_until(|line| line["event"]["point"] == "input")["event"].clone();
        let considered = &run["considered"][0];
        let because = considered["because"].as_str().unwrap_or_default();
        assert!(considered["verdict"] == "failed" && because.contains(reason), "{images}: {run}");
        let input = client.event("user_input")["event"].clone();
        assert_eq!((&input["text"], widths(&input)), (&json!("look"), vec![1]), "{images}: {input}");
        client.event("prompt_ended");
        client.end();
    }
}

#[test]
fn reply_of_a_handled_message_is_shown_and_never_sent() {
    let wire = ApiFormat::ALL[0];
    let server = Recorder::start(vec![wire.text_reply(); 2]);
    let hooks = "  - { id: hello, event: input, condition: \"text == 'status?'\", action: { handled: { reply: \"All ${delivery} is quiet.\" } } }\n";
    let place = project(hooks, "", "");
    use_model(&place, &server, wire, "");
    let mut client = ChatClient::start_with_model(&place, &["talk"]);
    client.ask(json!({"type": "prompt", "message": "status?"}));
    let input = client.event("user_input")["event"].clone();
    assert_eq!((&input["handled"], &input["reply"]), (&json!(true), &json!("All prompt is quiet.")), "{input}");
    client.ask(json!({"type": "prompt", "message": "work"}));
    client.event("prompt_ended");
    client.end();
    let (code, _, stderr) = chat_lines(&place, &["chat", "-c"], "status?\nmore\n");
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("All prompt is quiet."), "{stderr}");
    assert_eq!(bodies(&server).len(), 2);
    assert!(bodies(&server).iter().all(|body| !body.contains("quiet") && !body.contains("status?")));
    let shown = place.run_ok(&["threads", "transcript", &newest(&place)]);
    assert!(shown.contains("reply: All prompt is quiet."), "{shown}");
    let proved = place.rye(&["threads", "prove", &newest(&place), "--prompts"]);
    assert_eq!(proved.code, Some(0), "{}{}", proved.stdout, proved.stderr);
}

#[test]
fn terminate_with_the_scope_session_closes_every_front_end() {
    let hooks = "  - { id: guard, event: before_agent_start, condition: \"prompt contains 'forbidden'\", action: { terminate: { error: not here, scope: session } } }\n";
    let steps = "{ text: One. }, { text: Two. }";
    let place = project(hooks, steps, "");
    let mut client = ChatClient::start(&place, &["talk"]);
    client.ask(json!({"type": "prompt", "message": "work"}));
    client.event("prompt_ended");
    client.ask(json!({"type": "prompt", "message": "the forbidden thing"}));
    let ended = client.event("ended")["event"].clone();
    assert_eq!((&ended["status"], &ended["error"]["message"]), (&json!("error"), &json!("not here")), "{ended}");
    client.end();
    let session = newest(&place);
    let again = place.rye(&["chat", "--resume", &session, "--script", "script.yaml"]);
    assert!(again.code == Some(2) && again.stderr.contains("has ended: error"), "{}", again.stderr);
    // Later lines of the input are not sent.
    let place = project(hooks, steps, "");
    let lines = "work\nthe forbidden thing\nnever sent\n/cost\n";
    let (code, stdout, stderr) = chat_lines(&place, &["chat", "talk", "--script", "script.yaml"], lines);
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(stdout.contains("One.") && !stdout.contains("Two."), "{stdout}");
    for text in ["not here", "not sent: never sent", "not sent: /cost"] {
        assert!(stderr.contains(text), "{text}: {stderr}");
    }
    let events = place.transcript(&newest(&place));
    assert_eq!(events.last().unwrap()["status"], "error", "{:?}", events.last());
    assert!(!events.iter().any(|event| event["raw"] == "never sent"));
}

#[test]
fn message_that_a_hook_or_a_template_empties_is_not_sent() {
    let hooks = "  - { id: empty, event: input, condition: \"text == 'drop'\", action: { transform: \"  \" } }\n";
    let place = project(hooks, "{ text: One. }", "");
    place.write(".ai/prompts/blank.md", "---\ndescription: Nothing.\n---\n");
    let lines = "drop\n/blank\nhi\n";
    let (code, stdout, stderr) = chat_lines(&place, &["chat", "talk", "--script", "script.yaml"], lines);
    assert_eq!((code, stdout.as_str()), (Some(0), "One.\n"), "{stderr}");
    for cause in ["the hooks replaced the text with an empty one", "the prompt `blank` expands to an empty text"] {
        assert!(stderr.contains(&format!("{cause}: nothing was sent")), "{stderr}");
    }
    let events = place.transcript(&newest(&place));
    assert_eq!(events.iter().filter(|event| event["type"] == "prompt_started").count(), 1);
    place.run_ok(&["threads", "prove", "--last", "--prompts"]);
}

#[test]
fn terminal_shows_the_reply_of_a_hook_and_closes_with_its_session() {
    let hooks = "  - { id: hello, event: input, condition: \"text == 'status?'\", action: { handled: { reply: \"All ${delivery} is quiet.\" } } }\n  \
                 - { id: guard, event: before_agent_start, condition: \"prompt contains 'forbidden'\", action: { terminate: { error: not here, scope: session } } }\n";
    let place = project(hooks, "{ text: One. }, { text: Two. }", "");
    let mut terminal = PtyTerminal::start(&place, (100, 24), &["chat", "talk", "--script", "script.yaml"], &[]);
    terminal.wait_for("Enter sends");
    terminal.press("status?\r");
    terminal.wait_for("All prompt is quiet.");
    terminal.press("work\r");
    terminal.wait_for("prompt 1 done");
    terminal.press("the forbidden thing\r");
    let (code, rows, _) = terminal.end();
    assert_eq!(code, 1, "{rows:#?}");
    assert!(rows.iter().any(|row| row.contains("not here")), "{rows:#?}");
    let events = place.transcript(&newest(&place));
    assert_eq!(events.last().unwrap()["status"], "error", "{:?}", events.last());
    assert_eq!(events.iter().filter(|event| event["type"] == "cognition_out").count(), 1);
}
