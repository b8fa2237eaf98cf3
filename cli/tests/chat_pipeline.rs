//! Tests of the stages of a prompt through `rye chat --format json`: handled messages, transformed messages with images,
//! the hooks of results, and the hooks of messages for resumed and forked threads.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/chat_client.rs"]
mod chat_client;
#[path = "support/chat_project.rs"]
mod chat_project;
#[path = "support/chat_schema.rs"]
mod chat_schema;
#[path = "support/recorder.rs"]
mod recorder;
#[path = "support/rye.rs"]
mod rye;

use std::sync::mpsc::channel;

use chat_client::ChatClient;
use chat_project::{write_commands, write_provider};
use recorder::{ApiFormat, Recorder};
use rye::{TestProject, talk_directive};
use serde_json::{Value, json};

const TOOLS: &str = "<tool write=\"out/\">rye.bash.bash</tool><tool>rye.file-system.read</tool>";

/// Returns a project with the directive `talk`, whose commands need no approval, these hooks and this script.
fn project(hooks: &str, steps: &str) -> TestProject {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &talk_directive(9, TOOLS));
    place.write(".ai/config/agent/hooks.yaml", &format!("hooks:\n{hooks}"));
    place.write("script.yaml", &format!("steps: [{steps}]"));
    place.write("out/log", "");
    place.write("guest.txt", "Ada");
    place
}

/// Makes the server the model of the directive `talk`.
fn use_model(place: &TestProject, server: &Recorder, wire: ApiFormat) {
    let directive = talk_directive(9, TOOLS).replace("\"scripted\"", "\"local\"");
    place.write(".ai/directives/talk.md", &directive);
    write_provider(place, server, wire);
}

/// Returns the bodies of the recorded requests as texts.
fn bodies(server: &Recorder) -> Vec<String> {
    let requests = server.requests.lock().unwrap();
    requests.iter().map(|request| String::from_utf8_lossy(&request.body).into_owned()).collect()
}

/// Two calls in a row, the first of which waits for the file `out/go`.
const WAITING_CALLS: &str = "{ tool_calls: [\
    { name: rye_bash_bash, input: { command: 'while [ ! -e out/go ]; do sleep 0.02; done' } }, \
    { name: rye_bash_bash, input: { command: 'echo ran >> out/log' } }] }";

fn of_type<'a>(seen: &'a [Value], name: &str) -> Vec<&'a Value> {
    seen.iter().map(|line| &line["event"]).filter(|event| event["type"] == name).collect()
}

fn of_point<'a>(seen: &'a [Value], point: &str) -> Vec<&'a Value> {
    of_type(seen, "hook_point").into_iter().filter(|event| event["point"] == point).collect()
}

/// Starts a session whose commands need no approval.
fn start(place: &TestProject) -> ChatClient {
    let mut client = ChatClient::start(place, &["talk"]);
    client.ask(json!({"type": "mode", "mode": "auto", "confirm": true}));
    client
}

// shows: interactive 7.3: handled (idle, steer, follow-up): 0 requests, 0 tools skipped
#[test]
fn handled_messages_cause_no_request_and_skip_no_tool() {
    let place = project(
        "  - { id: swallow, event: input, condition: \"text == 'status?'\", action: handled }\n",
        &format!("{WAITING_CALLS}, {{ text: Done. }}, {{ text: Never. }}"),
    );
    let mut client = start(&place);
    let handled = |client: &mut ChatClient, verb: &str| {
        client.ask(json!({"type": verb, "message": "status?"}));
        let input = client.event("user_input");
        assert_eq!((&input["event"]["raw"], &input["event"]["handled"]), (&json!("status?"), &json!(true)), "{input}");
    };
    handled(&mut client, "prompt");
    client.ask(json!({"type": "prompt", "message": "work"}));
    client.event("tool_started");
    handled(&mut client, "steer");
    handled(&mut client, "follow_up");
    place.write("out/go", "");
    client.event("prompt_ended");
    handled(&mut client, "prompt");
    client.ask(json!({"type": "close"}));
    let seen = client.end();
    // One request for the calls, one for the answer to their results.
    assert_eq!(of_type(&seen, "attempt_intended").len(), 2);
    let results: Vec<&Value> = of_type(&seen, "tool_call_result").iter().map(|result| &result["why"]["kind"]).collect();
    assert_eq!(results, ["ran", "ran"]);
    assert_eq!(place.read("out/log"), "ran\n");
    assert_eq!((of_type(&seen, "prompt_started").len(), of_type(&seen, "user_input").len()), (1, 5));
}

/// Returns a PNG of one pixel.
fn pixel() -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR".to_vec();
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 8, 6, 0, 0, 0]);
    bytes
}

// shows: interactive 7.4: transform chain keeps images; sees raw `/skill:x`
#[test]
fn transform_chain_keeps_images_and_sees_the_call_of_a_skill() {
    for wire in ApiFormat::ALL {
        let server = Recorder::start(vec![wire.text_reply()]);
        let place = project(
            "  - { id: first, event: input, condition: \"text == '/skill:tidy now'\", action: { transform: \"${text} (a)\" } }\n  \
               - { id: second, event: input, condition: \"text == '/skill:tidy now (a)'\", action: { transform: \"${text} (b)\" } }\n",
            "",
        );
        use_model(&place, &server, wire);
        place.write(".ai/skills/tidy/SKILL.md", "---\nname: tidy\ndescription: Tidies.\n---\nTidy up.\n");
        std::fs::write(place.project().join("pixel.png"), pixel()).unwrap();
        let mut client = ChatClient::start_with_model(&place, &["talk"]);
        client.ask(json!({"type": "prompt", "message": "/skill:tidy now", "images": ["pixel.png"]}));
        let input = client.event("user_input")["event"].clone();
        assert_eq!(input["raw"], "/skill:tidy now", "{wire:?}");
        client.event("prompt_ended");
        client.end();
        let text = input["text"].as_str().unwrap();
        assert!(text.starts_with("<skill name=\"tidy\""), "{wire:?}: {text}");
        assert!(text.ends_with("Tidy up.\n</skill>\n\nnow (a) (b)"), "{wire:?}: {text}");
        assert_eq!((&input["images"][0]["width"], &input["expansions"][0]["item"]), (&json!(1), &json!("tidy")));
        let requests = server.requests.lock().unwrap();
        let body = String::from_utf8_lossy(&requests[0].body).into_owned();
        assert!(body.contains("now (a) (b)") && body.contains("iVBORw0KGgo"), "{wire:?}: {body}");
    }
}

// shows: interactive 7.9: blocked, skipped: no `tool_result` hook; skip text literal
#[test]
fn hooks_of_results_run_only_for_calls_that_ran() {
    let place = project(
        "  - { id: forbid, event: tool_call, condition: 'call.input.command contains \"forbidden\"', action: { block: { reason: not here } } }\n  \
           - { id: mark, event: tool_result, action: { modify: { content: \"[mod] ${result.content}\" } } }\n",
        &format!(
            "{{ tool_calls: [{{ name: rye_bash_bash, input: {{ command: 'echo forbidden' }} }}] }}, {WAITING_CALLS}, {{ text: Done. }}"
        ),
    );
    let mut client = start(&place);
    client.ask(json!({"type": "prompt", "message": "work"}));
    client.event("tool_call_result");
    client.event("tool_started");
    client.ask(json!({"type": "steer", "message": "stop after this"}));
    client.event("user_input");
    place.write("out/go", "");
    client.event("prompt_ended");
    let seen = client.end();
    let results: Vec<(&Value, &str)> = of_type(&seen, "tool_call_result")
        .iter()
        .map(|result| (&result["why"]["kind"], result["content"].as_str().unwrap()))
        .collect();
    assert_eq!(results.len(), 3, "{results:?}");
    assert_eq!((results[0].0, results[0].1), (&json!("blocked"), "not here"));
    assert_eq!(results[1].0, "ran", "{results:?}");
    assert_eq!((results[2].0, results[2].1), (&json!("skipped"), "Skipped due to queued user message"));
    let changed = of_point(&seen, "tool_result");
    assert_eq!(changed.len(), 1, "{changed:?}");
    assert_eq!(changed[0]["answer"]["content"], "[mod] [exit code 0]");
    assert_eq!(place.read("out/log"), "");
}

// shows: interactive 7.10: resume and fork messages run intake and delivery hooks
#[test]
fn messages_for_resumed_and_forked_threads_run_the_hooks_of_a_prompt() {
    let place = project(
        "  - { id: checked, event: input, action: { transform: \"${text} (checked)\" } }\n  \
           - { id: note, event: before_agent_start, action: { message: { content: \"A note.\" } } }\n  \
           - { id: tone, event: before_agent_start, action: { system_prompt: { append: \"Be kind.\" } } }\n",
        "{ text: One. }, { text: Two. }, { text: Three. }",
    );
    let thread_of = |line: &Value| line["thread_id"].as_str().unwrap().to_owned();
    let ran = |place: &TestProject, args: &[&str]| {
        let (code, done) = place.json(&[args, &["--script", "script.yaml"]].concat());
        assert_eq!(code, Some(0), "{args:?}: {done}");
        thread_of(&done)
    };
    let checks = |thread: &str, text: &str| {
        let events = place.transcript(thread);
        let at = |what: &str, is_it: &dyn Fn(&Value) -> bool| {
            events.iter().position(is_it).unwrap_or_else(|| panic!("{text}: no {what}"))
        };
        let ends_with = |event: &Value, sent: &str| {
            let blocks = event["message"]["content"].as_array();
            let last = blocks.and_then(|blocks| blocks.last()?["text"].as_str());
            last.is_some_and(|last| last.ends_with(sent))
        };
        let sent =
            at("message", &|event| event["type"] == "cognition_in" && ends_with(event, &format!("{text} (checked)")));
        let prepared = events[sent..].iter().find(|event| event["point"] == "before_agent_start").unwrap();
        let answer = &prepared["answer"];
        assert_eq!(answer["messages"][0]["content"], "A note.", "{text}: {prepared}");
        assert!(answer["system"].as_str().is_some_and(|system| system.ends_with("Be kind.")), "{text}: {prepared}");
    };
    // A run that is resumed, and forked.
    let first = ran(&place, &["run", "talk"]);
    let resumed = ran(&place, &["run", "--resume", &first, "--message", "after the end"]);
    checks(&resumed, "after the end");
    let forked = ran(&place, &["run", "--resume", &first, "--fork-at", "1", "--message", "from turn one"]);
    checks(&forked, "from turn one");
    // A session that is opened again, and one that is rewound.
    let mut client = ChatClient::start(&place, &["talk"]);
    client.ask(json!({"type": "prompt", "message": "begin"}));
    client.event("prompt_ended");
    client.end();
    let (_, listed) = place.json(&["threads", "list", "--limit", "1"]);
    let session = thread_of(&listed["threads"][0]);
    let mut client = ChatClient::reopen(&place, &["-c"]);
    client.ask(json!({"type": "prompt", "message": "opened again"}));
    client.event("prompt_ended");
    client.ask(json!({"type": "fork", "prompt": 2}));
    let opened = client.read_until(|line| line["event"]["type"] == "opened");
    client.ask(json!({"type": "prompt", "message": "on the branch"}));
    client.event("prompt_ended");
    client.end();
    checks(&session, "opened again");
    checks(&thread_of(&opened), "on the branch");
}

// shows: interactive 7.2: `/cmd` while streaming answers, no event but `command_ran`, no request
#[test]
fn command_is_answered_while_a_reply_streams_and_causes_no_request() {
    for wire in ApiFormat::ALL {
        let (finish, finished) = channel();
        let server = Recorder::start_paced(wire, move || finished.recv().unwrap());
        let place = project("  - { id: all, event: input, action: { transform: \"${text} (seen)\" } }\n", "");
        use_model(&place, &server, wire);
        write_commands(&place);
        let mut client = ChatClient::start_with_model(&place, &["talk"]);
        client.ask(json!({"type": "prompt", "message": "work"}));
        client.event("token_delta");
        let streamed = client.seen.len();
        client.ask(json!({"type": "prompt", "message": "/where main.rs"}));
        let ran = client.event("command_ran")["event"].clone();
        assert_eq!(
            (&ran["name"], &ran["answer"], &ran["action"]),
            (&json!("where"), &json!("of main.rs"), &json!("show"))
        );
        assert_eq!(client.ask(json!({"type": "cost"}))["success"], true, "{wire:?}");
        // The record of the typed line precedes its answer. The model still streams: the server sends nothing more until
        // the test finishes the reply below.
        let events = client.seen[streamed..].iter().filter_map(|line| line["event"]["type"].as_str());
        assert_eq!(events.collect::<Vec<_>>(), ["mail", "command_ran"], "{wire:?}");
        assert_eq!(bodies(&server).len(), 1, "{wire:?}");
        finish.send(()).unwrap();
        client.event("prompt_ended");
        let seen = client.end();
        assert_eq!((bodies(&server).len(), of_point(&seen, "input").len()), (1, 1), "{wire:?}");
    }
}

// shows: interactive 7.6: order `[shell, user, next_turn, ext…]`; system prompt chains, resets at the next prompt, not at a steering message or follow-up
#[test]
fn messages_of_a_prompt_have_their_order_and_its_system_prompt_ends_with_it() {
    for wire in ApiFormat::ALL {
        let (finish, finished) = channel();
        let server = Recorder::start_paced(wire, move || finished.recv().unwrap());
        let hooks = "  - { id: ext1, event: before_agent_start, action: { message: { content: \"Extension one.\" } } }\n  \
            - { id: ext2, event: before_agent_start, action: { message: { content: \"Extension two.\" } } }\n  \
            - { id: tone1, event: before_agent_start, condition: \"prompt contains 'cheap'\", action: { system_prompt: { append: \"Tone one.\" } } }\n  \
            - { id: tone2, event: before_agent_start, condition: \"system_prompt contains 'Tone one.'\", action: { system_prompt: { append: \"Tone two.\" } } }\n";
        let place = project(hooks, "");
        use_model(&place, &server, wire);
        write_commands(&place);
        let mut client = ChatClient::start_with_model(&place, &["talk"]);
        client.ask(json!({"type": "mode", "mode": "auto", "confirm": true}));
        client.ask(json!({"type": "bash", "command": "echo from the shell"}));
        client.event("shell_ran");
        client.ask(json!({"type": "prompt", "message": "/later a note"}));
        client.event("command_ran");
        client.ask(json!({"type": "prompt", "message": "cheap work"}));
        client.event("token_delta");
        for (verb, text) in [("steer", "steered words"), ("follow_up", "followed words")] {
            client.ask(json!({"type": verb, "message": text}));
            client.event("user_input");
        }
        finish.send(()).unwrap();
        client.event("prompt_ended");
        client.ask(json!({"type": "prompt", "message": "plain work"}));
        client.event("prompt_ended");
        client.end();
        let sent = bodies(&server);
        // The first reply, the steering message, the follow-up, the second prompt.
        assert_eq!(sent.len(), 4, "{wire:?}");
        let places = |body: &str, texts: &[&str]| -> Vec<usize> {
            texts.iter().map(|text| body.find(text).unwrap_or_else(|| panic!("{wire:?} no {text}: {body}"))).collect()
        };
        let order = ["from the shell", "cheap work", "Also a note.", "Extension one.", "Extension two."];
        let (first, followed) = (places(&sent[0], &order), [&order[..], &["steered words", "followed words"]].concat());
        assert!(first.is_sorted(), "{wire:?}: {}", sent[0]);
        assert!(places(&sent[2], &followed).is_sorted(), "{wire:?}: {}", sent[2]);
        for body in &sent[..3] {
            let tones = places(body, &["Tone one.", "Tone two."]);
            assert!(tones.is_sorted() && body.matches("Tone one.").count() == 1, "{wire:?}: {body}");
            assert_eq!(body.matches("Extension one.").count(), 1, "{wire:?}: {body}");
        }
        assert!(!sent[3].contains("Tone") && sent[3].matches("Extension one.").count() == 2, "{wire:?}: {}", sent[3]);
    }
}

#[test]
fn mode_of_the_last_request_holds_for_the_next_prompt() {
    let (finish, finished) = channel();
    let server = Recorder::start_paced(ApiFormat::Openai, move || finished.recv().unwrap());
    let place = project("", "");
    use_model(&place, &server, ApiFormat::Openai);
    let mut client = ChatClient::start_with_model(&place, &["talk"]);
    client.ask(json!({"type": "prompt", "message": "first"}));
    client.event("token_delta");
    client.ask(json!({"type": "mode", "mode": "auto", "confirm": true}));
    client.ask(json!({"type": "mode", "mode": "ask"}));
    client.ask(json!({"type": "mode", "mode": "read-only"}));
    let refused = client.ask(json!({"type": "mode", "mode": "ask"}));
    finish.send(()).unwrap();
    client.event("prompt_ended");
    let unchanged = client.ask(json!({"type": "mode", "mode": "read-only"}));
    client.end();
    assert!(refused["error"].as_str().unwrap().contains("allows more than the current one"), "{refused}");
    assert_eq!(unchanged["data"]["changes"], json!(["the mode is `read-only`"]), "{unchanged}");
}

// shows: interactive 7.7: `context` replace on turn 2 is absent from turn 3's facts
#[test]
fn context_replaced_in_one_turn_is_whole_in_the_facts_and_the_request_of_the_next() {
    for wire in ApiFormat::ALL {
        let server = Recorder::start(vec![wire.call_reply(), wire.call_reply(), wire.text_reply()]);
        let hooks = "  - { id: swap, event: context, condition: \"turn == 2\", action: { replace: { messages: [{ kind: user, content: [{ type: text, text: Replaced. }] }] } } }\n  \
            - { id: seen, event: context, condition: \"turn == 3\", action: { inject: { content: \"facts ${messages}\" } } }\n";
        let place = project(hooks, "");
        use_model(&place, &server, wire);
        let mut client = ChatClient::start_with_model(&place, &["talk"]);
        client.ask(json!({"type": "prompt", "message": "the typed words"}));
        client.event("prompt_ended");
        client.end();
        let sent = bodies(&server);
        assert_eq!(sent.len(), 3, "{wire:?}");
        let has = |n: usize, text: &str| sent[n].contains(text);
        assert!(
            has(1, "Replaced.") && !has(1, "the typed words") && !has(1, "no_such_tool\""),
            "{wire:?}: {}",
            sent[1]
        );
        // The injected text repeats the facts of turn 3.
        assert!(has(2, "facts [") && !has(2, "Replaced."), "{wire:?}: {}", sent[2]);
        assert_eq!(sent[2].matches("the typed words").count(), 2, "{wire:?}: {}", sent[2]);
    }
}

/// Removes the marks of the provider's cache, which move to the end of each request.
fn without_cache_marks(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("cache_control");
            fields.values_mut().for_each(without_cache_marks);
        }
        Value::Array(items) => items.iter_mut().for_each(without_cache_marks),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

// shows: interactive 7.12: park, recover: request n + 1 has request n as a prefix
#[test]
fn request_of_a_reopened_session_starts_with_the_request_before() {
    for wire in ApiFormat::ALL {
        let server = Recorder::start(vec![wire.text_reply()]);
        let place =
            project("  - { id: note, event: before_agent_start, action: { message: { content: A note. } } }\n", "");
        use_model(&place, &server, wire);
        place.write("AGENTS.md", "Use tabs.\n");
        let mut client = ChatClient::start_with_model(&place, &["talk"]);
        client.ask(json!({"type": "prompt", "message": "first"}));
        client.event("prompt_ended");
        client.end();
        for text in ["second", "third"] {
            let mut client = ChatClient::reopen_with_model(&place, &["-c"]);
            client.ask(json!({"type": "prompt", "message": text}));
            client.event("prompt_ended");
            client.end();
        }
        let list = match wire {
            ApiFormat::Anthropic | ApiFormat::Openai => "messages",
            ApiFormat::Responses => "input",
            ApiFormat::Gemini => "contents",
        };
        let requests: Vec<(Value, Vec<Value>)> = bodies(&server)
            .iter()
            .map(|body| {
                let mut request: Value = serde_json::from_str(body).unwrap();
                without_cache_marks(&mut request);
                let messages = request.as_object_mut().unwrap().remove(list).unwrap();
                (request, messages.as_array().unwrap().clone())
            })
            .collect();
        assert_eq!(requests.len(), 3, "{wire:?}");
        for pair in requests.windows(2) {
            let ((before, earlier), (after, later)) = (&pair[0], &pair[1]);
            // System prompt, tools and settings are equal; the messages continue.
            assert_eq!(before, after, "{wire:?}");
            assert!(later.len() > earlier.len() && later.starts_with(earlier), "{wire:?}: {earlier:?}\n{later:?}");
        }
    }
}
