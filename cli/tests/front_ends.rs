//! A law: one script leads to the same events and the same requests in the terminal, with lines, with JSON requests,
//! over the Agent Client Protocol and through the library. The script touches every stage of a prompt.

#![cfg(feature = "acp")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/acp.rs"]
mod acp;
#[path = "support/acp_schema.rs"]
mod acp_schema;
#[path = "support/chat_project.rs"]
mod chat_project;
#[path = "support/front_end.rs"]
mod front_end;
#[path = "support/pty.rs"]
mod pty;
#[path = "support/recorder.rs"]
mod recorder;
#[path = "support/rye.rs"]
mod rye;
#[path = "support/transcripts.rs"]
mod transcripts;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::mpsc::channel;

use chat_project::{write_commands, write_provider, write_system_layers};
use front_end::{ChatStep, FRONT_ENDS, ReplyGate, start, steer};
use recorder::{ApiFormat, Recorder};
use rye::TestProject;
use rye_engine::event::ChatMode;
use transcripts::{events, first_difference};

const SCRIPT: [ChatStep; 21] = [
    ChatStep::Say("first draft"),
    ChatStep::Say("nothing"),
    ChatStep::Say("/review main.rs"),
    ChatStep::Say("/skill:tidy now"),
    ChatStep::Say("/where main.rs"),
    ChatStep::Say("/later be short"),
    ChatStep::Shell("echo shown", false),
    ChatStep::Shell("echo hidden", true),
    ChatStep::Bounded("0.10", "cheap"),
    ChatStep::With("rye.execute.tool.rye.file-system.read", "look"),
    ChatStep::Mode(ChatMode::ReadOnly),
    ChatStep::Say("write it"),
    ChatStep::Mode(ChatMode::Ask),
    ChatStep::Say("write it now"),
    ChatStep::Say("write elsewhere"),
    ChatStep::RewindAndSay(2, "/review main.rs"),
    ChatStep::Steer(["write once more", "stop after this", "sum it up"]),
    ChatStep::Name("My work"),
    ChatStep::Say("see the picture"),
    ChatStep::Compact,
    ChatStep::Say("after the summary"),
];

/// Number of the script's model calls.
const REQUESTS: usize = 19;
/// Numbers of the model calls whose reply calls the tool `write`, with the file.
const WRITING_CALLS: [(usize, &str); 4] =
    [(5, "notes.txt"), (7, "notes.txt"), (9, "secret.txt"), (STEERED, "late.txt")];
/// Number of the model call whose reply is answered by a hook at `agent_end`.
const QUESTION: usize = 10;
/// Number of the model call whose reply waits for the messages of [`ChatStep::Steer`].
const STEERED: usize = 13;
/// Number of the model call whose messages a `context` hook replaces.
const REPLACED: usize = 6;
/// Number of the model call with an image, which an `input` hook adds.
const PICTURE: usize = 16;
/// Number of the model call that summarizes the conversation.
const SUMMARY: usize = 17;

const HOOKS: &str = r#"hooks:
  - { id: checked, event: input, condition: "text contains 'draft'", action: { transform: "${text} (checked)" } }
  - { id: twice, event: input, condition: "text contains '(checked)'", action: { transform: "${text} (twice)" } }
  - { id: picture, event: input, condition: "text == 'see the picture'", grants: [rye.execute.tool.rye.file-system.read], action: { transform: { text: "${text} here", images: [pixel.png] } } }
  - { id: shown, event: input, condition: "text == 'see the picture here'", action: { transform: "${text} now" } }
  - { id: swallowed, event: input, condition: "text == 'nothing'", action: handled }
  - { id: note, event: before_agent_start, action: { message: { content: "A note." } } }
  - { id: secret, event: before_agent_start, action: { message: { content: "A hidden note.", display: false } } }
  - { id: tone, event: before_agent_start, condition: "prompt contains 'cheap'", action: { system_prompt: { append: "Be cheap." } } }
  - { id: wording, event: before_agent_start, condition: "prompt contains 'cheap'", action: { system_prompt: { append: "Be plain." } } }
  - { id: forget, event: context, condition: "turn == 4", action: { drop: { kinds: [bash] } } }
  - { id: extra, event: context, condition: "turn == 2", action: { inject: { content: "Only now." } } }
  - { id: branch, event: context, condition: "turn == 7", action: { replace: { messages: [{ kind: branch_summary, text: The other branch. }, { kind: user, content: [{ type: text, text: A note. A hidden note. }] }] } } }
  - { id: guarded, event: tool_call, condition: "call.input.path == 'secret.txt'", action: { block: { reason: "not here" } } }
  - { id: begun, event: tool_execution_start, action: { primary: execute, item_type: tool, item_id: team/answer, params: { text: begun } } }
  - { id: over, event: tool_execution_end, action: { primary: execute, item_type: tool, item_id: team/answer, params: { text: over } } }
  - { id: marked, event: tool_result, action: { modify: { content: "[checked] ${result.content}" } } }
  - { id: more, event: agent_end, condition: "result contains 'Shall I?'", action: { follow_up: "Go on." } }
"#;
/// The texts of the layers of the system prompt that follow the chain, in their order.
const LAYERS: [&str; 5] =
    ["team_words: Count words", "Count before you write.", "Rules of the team.", "Use tabs.", "Tidies."];

const DIRECTIVE: &str = r#"# Talk

```xml
<directive name="talk" version="1.0.0">
  <metadata>
    <description>Talk.</description>
    <model provider="local" tier="fast"/>
    <limits turns="4" spend="0.50"/>
    <permissions><execute><tool>rye.file-system.read</tool><tool>rye.file-system.write</tool><tool write="out/">rye.bash.bash</tool><tool>team.words</tool></execute></permissions>
  </metadata>
</directive>
```

Answer briefly.
"#;

/// Creates the project; its model is the server.
fn project(server: &Recorder, wire: ApiFormat) -> TestProject {
    let place = TestProject::new();
    place.write(".ai/directives/talk.md", DIRECTIVE);
    place.write(".ai/config/agent/hooks.yaml", HOOKS);
    write_commands(&place);
    write_system_layers(&place);
    place.write(".ai/prompts/review.md", "---\ndescription: Review a file.\n---\nReview $1.\n");
    place.write(".ai/skills/tidy/SKILL.md", "---\nname: tidy\ndescription: Tidies.\n---\nTidy up.\n");
    place.write(".ai/config/agent/coordination.yaml", "continuation: { resume_ceiling_tokens: 50 }\n");
    place.write("AGENTS.md", "Use tabs.\n");
    place.write("out/log", "");
    std::fs::write(place.project().join("pixel.png"), pixel()).unwrap();
    write_provider(&place, server, wire);
    place.run_ok(&["trust"]);
    place
}

/// Returns a PNG of one pixel.
fn pixel() -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR".to_vec();
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 8, 6, 0, 0, 0]);
    bytes
}

/// Starts a server that replies to the model calls in [`WRITING_CALLS`] with a call of the tool `write`, to the call
/// [`QUESTION`] with a question, and to the others with a text.
fn server(wire: ApiFormat) -> (Recorder, ReplyGate) {
    let ((arrive, arrived), (release, released)) = (channel(), channel());
    let server = Recorder::start_with(move |n, _| {
        if n % REQUESTS == STEERED {
            arrive.send(()).unwrap();
            released.recv().unwrap();
        }
        let written = WRITING_CALLS.iter().find(|(call, _)| *call == n % REQUESTS);
        let reply = match written {
            Some((_, path)) => write_call(wire, path),
            None if n % REQUESTS == QUESTION => wire.text_reply().replace("Noted.", "Shall I?"),
            None => wire.text_reply().to_owned(),
        };
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{reply}")
    });
    (server, ReplyGate { arrived, release })
}

/// Returns a reply that writes a file.
fn write_call(wire: ApiFormat, path: &str) -> String {
    let call = wire.call_reply().replace("no_such_tool", "rye_file_system_write");
    let (plain, quoted) = (r#"{"path":"a"}"#, r#"{\"path\":\"a\"}"#);
    let input = format!(r#"{{"path":"{path}","content":"new"}}"#);
    call.replace(quoted, &input.replace('"', "\\\"")).replace(plain, &input)
}

/// Returns the bodies of the recorded requests, and forgets them.
fn take_requests(server: &Recorder) -> Vec<String> {
    let requests = std::mem::take(&mut *server.requests.lock().unwrap());
    requests.into_iter().map(|request| String::from_utf8(request.body).unwrap()).collect()
}

/// Renders requests for the record: each request as the bytes that it shares with the start and the end of the previous
/// one, and the text between them.
fn render_requests(place: &TestProject, requests: &[String]) -> String {
    let project = place.project().canonicalize().unwrap().display().to_string();
    let mut previous = String::new();
    let mut record = String::new();
    for (number, request) in requests.iter().enumerate() {
        let request = request.replace(&project, "PROJECT");
        let same = |(one, other): &(char, char)| one == other;
        let start: usize = previous.chars().zip(request.chars()).take_while(same).map(|(one, _)| one.len_utf8()).sum();
        let (old, new) = (&previous[start..], &request[start..]);
        let end: usize = old.chars().rev().zip(new.chars().rev()).take_while(same).map(|(one, _)| one.len_utf8()).sum();
        let text = &new[..new.len() - end];
        writeln!(record, "request {number}: {start} bytes as before, then\n{text}\nthen {end} bytes as before")
            .unwrap();
        previous = request;
    }
    record
}

/// Compares the requests with the recorded ones, byte for byte. With the variable `ACCEPT_REQUESTS`, writes the record.
fn compare_with_record(wire: ApiFormat, place: &TestProject, requests: &[String]) {
    let file = format!("tests/golden/requests-{}.txt", wire.names().0);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let found = render_requests(place, requests);
    if std::env::var_os("ACCEPT_REQUESTS").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let recorded: Vec<String> = std::fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
    let found: Vec<String> = found.lines().map(str::to_owned).collect();
    assert!(recorded == found, "{}: {}", path.display(), first_difference(&recorded, &found));
}

/// Performs the script over every front end, with a model on this wire.
fn compare_front_ends(wire: ApiFormat) {
    let (server, gate) = server(wire);
    let place = project(&server, wire);
    let mut known: Option<(Vec<String>, Vec<String>)> = None;
    for name in FRONT_ENDS {
        let mut front_end = start(name, &place);
        for step in SCRIPT {
            if let ChatStep::Steer(texts) = step {
                steer(&mut *front_end, &place, texts, &gate);
            } else {
                front_end.perform(&place, step);
            }
        }
        // A hook hides its message from the user, never from the model.
        if let Some(shown) = front_end.close() {
            assert!(shown.contains("A note.") && !shown.contains("A hidden note."), "{wire:?} {name}: {shown}");
        }
        let found = (events(&place), take_requests(&server));
        assert_eq!(found.1.len(), REQUESTS, "{wire:?} {name}");
        assert!(found.1.iter().all(|request| request.contains("A note.") && request.contains("A hidden note.")));
        assert!(found.1[0].contains("first draft (checked) (twice)"), "{wire:?} {name}: {}", found.1[0]);
        for request in &found.1 {
            let order = LAYERS.map(|text| request.find(text));
            assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{wire:?} {name}: {order:?} {request}");
        }
        // The text of the `context` hook is in one request only, and not in the conversation.
        let with_extra = found.1.windows(2).filter(|two| two[0].contains("Only now.") && two[1].contains("Only now."));
        assert_eq!(with_extra.count(), 0, "{wire:?} {name}");
        assert!(found.1.iter().any(|request| request.contains("Only now.")), "{wire:?} {name}");
        let ran = |hook: &str| found.0.iter().any(|event| event.contains(hook));
        assert!(ran("\"begun\"") && ran("\"over\""), "{wire:?} {name}: hooks of calls");
        // The output of `!` reaches the model, the output of `!!` never.
        assert!(found.1.iter().any(|request| request.contains("echo shown")), "{wire:?} {name}");
        assert!(!found.1.iter().any(|request| request.contains("hidden\\n") || request.contains("echo hidden")));
        assert!(found.1[QUESTION].contains("not here") && found.1[QUESTION + 1].contains("Go on."), "{wire:?} {name}");
        assert!(found.1.iter().any(|request| request.contains("[checked] ")), "{wire:?} {name}");
        let appended: Vec<&String> = found.1.iter().filter(|request| request.contains("Be cheap.")).collect();
        assert!(
            appended.len() == 1 && appended[0].find("Be cheap.") < appended[0].find("Be plain."),
            "{wire:?} {name}"
        );
        // The steering message skips the call; the follow-up arrives when the model would finish.
        assert!(found.1[STEERED + 1].contains("Skipped due to queued user message"), "{wire:?} {name}");
        assert!(found.1[STEERED + 1].contains("stop after this") && !found.1[STEERED + 1].contains("sum it up"));
        assert!(found.1[STEERED + 2].contains("sum it up"), "{wire:?} {name}");
        let with = |text: &str| -> Vec<usize> {
            let all = found.1.iter().enumerate().filter(|(_, request)| request.contains(text));
            all.map(|(number, _)| number).collect()
        };
        assert_eq!(with("The other branch."), [REPLACED], "{wire:?} {name}");
        assert!(found.1[REPLACED].contains("<summary>") && !found.1[REPLACED].contains("write it"), "{wire:?} {name}");
        assert!(found.1[PICTURE].contains("see the picture here now"), "{wire:?} {name}");
        assert_eq!(with("iVBORw0KGgo")[..2], [PICTURE, SUMMARY], "{wire:?} {name}");
        // The summary replaces the start of the conversation.
        let last = &found.1[SUMMARY + 1];
        assert!(last.contains("<summary>") && last.contains("after the summary"), "{wire:?} {name}: {last}");
        assert!(!last.contains("first draft"), "{wire:?} {name}: {last}");
        assert!(!place.project().join("secret.txt").exists() && !place.project().join("late.txt").exists());
        std::fs::remove_dir_all(place.project().join(".ai/state")).unwrap();
        std::fs::remove_file(place.project().join("notes.txt")).unwrap();
        let Some((events, requests)) = &known else {
            compare_with_record(wire, &place, &found.1);
            known = Some(found);
            continue;
        };
        assert!(*requests == found.1, "{wire:?} {name}: request {}", first_difference(requests, &found.1));
        assert!(*events == found.0, "{wire:?} {name}: event {}", first_difference(events, &found.0));
    }
}

// shows: interactive 7.1: S4 golden: one script gives equal requests and events over five front ends
// shows: interactive 7.8: the output of `!!` is in no request
#[test]
fn one_script_gives_the_same_events_and_requests_over_five_front_ends() {
    compare_front_ends(ApiFormat::Anthropic);
}

#[test]
fn one_script_gives_the_same_events_and_requests_over_five_front_ends_with_openai_chat() {
    compare_front_ends(ApiFormat::Openai);
}

#[test]
fn one_script_gives_the_same_events_and_requests_over_five_front_ends_with_openai_responses() {
    compare_front_ends(ApiFormat::Responses);
}

#[test]
fn one_script_gives_the_same_events_and_requests_over_five_front_ends_with_gemini() {
    compare_front_ends(ApiFormat::Gemini);
}
