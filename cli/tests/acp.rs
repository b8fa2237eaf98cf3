//! Tests of `rye acp`: a client opens sessions, prompts, answers permission requests, cancels, lists and loads.

#![cfg(feature = "acp")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/acp.rs"]
mod acp;
#[path = "support/acp_schema.rs"]
mod acp_schema;
#[path = "support/rye.rs"]
mod rye;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use acp::{AcpClient, LINE_TIMEOUT, acp_project, asked, prompt, text, updates, wait_for_exit};
use rye::{TestProject, talk_directive};
use serde_json::{Value, json};

const TOOL: &str = "<tool write=\"out/\">rye.bash.bash</tool>";

fn project(steps: &str) -> TestProject {
    acp_project(TOOL, steps)
}

const CALL: &str = "{ tool_calls: [{ name: rye_bash_bash, input: { command: 'echo one >> out/log' } }] }";

#[test]
#[should_panic(expected = "the agent wrote nothing for 50ms")]
fn test_client_fails_if_the_agent_is_silent() {
    let mut client = AcpClient::start(&project("{ text: Done. }"));
    client.line_timeout = Duration::from_millis(50);
    client.read();
}

#[test]
fn client_that_closes_its_output_ends_the_agent_without_an_error() {
    let place = project("Done.");
    let mut command = place.command(&["acp", "talk", "--script", "script.yaml"]);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
    let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1, "clientCapabilities": {}}});
    writeln!(input, "{begin}").unwrap();
    let mut first = String::new();
    let mut output = BufReader::new(output);
    output.read_line(&mut first).unwrap();
    assert!(first.contains("loadSession"), "{first}");
    drop(output);
    // Nothing reads the response to this request.
    let cwd = place.project().display().to_string();
    let request = json!({"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {"cwd": cwd, "mcpServers": []}});
    writeln!(input, "{request}").unwrap();
    assert_eq!(wait_for_exit(&mut process, LINE_TIMEOUT).code(), Some(0));
    drop(input);
}

#[test]
fn prompt_streams_text_calls_and_usage() {
    let place = project(&format!("{CALL}, {{ text: Done. }}"));
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    let done = client.prompt(&session, "go");
    assert_eq!(done.response["result"]["stopReason"], "end_turn", "{}", done.response);
    assert_eq!(text(&done, "agent_message_chunk"), "Done.");
    let call = updates(&done, "tool_call")[0];
    assert_eq!((&call["kind"], &call["rawInput"]["command"]), (&"execute".into(), &"echo one >> out/log".into()));
    let states: Vec<&Value> = updates(&done, "tool_call_update").iter().map(|update| &update["status"]).collect();
    assert_eq!(states, ["in_progress", "completed"]);
    let asked = done.updates.iter().find(|message| message["method"] == "session/request_permission").unwrap();
    assert_eq!(asked["params"]["toolCall"]["toolCallId"], call["toolCallId"], "{asked}");
    let title = asked["params"]["toolCall"]["title"].as_str().unwrap();
    let (named, sandbox) = title.split_once(" (sandbox: ").unwrap_or_else(|| panic!("{title}"));
    assert_eq!(named, "rye/bash/bash: echo one >> out/log");
    assert!(sandbox.contains("a process") && sandbox.contains("out/"), "{title}");
    assert_eq!(place.read("out/log"), "one\n");
    assert!(updates(&done, "usage_update").last().unwrap()["used"].as_u64().unwrap() > 0);
    client.end();
    let (_, listed) = place.json(&["threads", "list"]);
    assert_eq!(listed["threads"][0]["status"], "idle");
}

#[test]
fn refused_call_does_not_run_and_a_session_grant_asks_once() {
    let place = project(&format!("{CALL}, {{ text: No. }}, {CALL}, {CALL}, {{ text: Done. }}"));
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    client.permission = Some("no");
    let refused = client.prompt(&session, "go");
    assert_eq!(updates(&refused, "tool_call_update").last().unwrap()["status"], "failed");
    assert_eq!(place.read("out/log"), "");
    client.permission = Some("session");
    let done = client.prompt(&session, "again");
    let asked = done.updates.iter().filter(|message| message["method"] == "session/request_permission").count();
    assert_eq!((asked, place.read("out/log").as_str()), (1, "one\none\n"));
    client.end();
}

/// The end of the input interrupts the prompt and must not overtake an answer that was sent before.
#[test]
fn refused_call_does_not_run_if_the_input_ends_behind_the_refusal() {
    let place = project(&format!("{CALL}, {{ text: Done. }}"));
    for _ in 0..4 {
        let mut client = AcpClient::start(&place);
        let session = client.new_session();
        client.send("session/prompt", prompt(&session, "go"));
        answer_next_question(&mut client, "no");
        drop(client.input.take());
        client.end();
        assert_eq!(place.read("out/log"), "");
        let (_, listed) = place.json(&["threads", "list"]);
        let events = place.transcript(listed["threads"][0]["thread_id"].as_str().unwrap());
        let results: Vec<&Value> = events.iter().filter(|event| event["type"] == "tool_call_result").collect();
        assert_eq!(results.len(), 1, "{events:?}");
        assert_eq!(results[0]["why"]["kind"], "unapproved", "{events:?}");
    }
}

#[test]
fn grant_of_a_prompt_ends_with_it() {
    let place = project(&format!("{CALL}, {CALL}, {{ text: One. }}, {CALL}, {{ text: Two. }}"));
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    client.permission = Some("prompt");
    for (text, questions) in [("go", 1), ("again", 1)] {
        let done = client.prompt(&session, text);
        assert_eq!(asked(&done).len(), questions, "{text}");
    }
    assert_eq!(place.read("out/log"), "one\none\none\n");
    client.end();
}

#[test]
fn cancel_ends_the_prompt_also_while_a_permission_request_is_open() {
    let place = project(&format!("{{ text: Never., delay_ms: 60000 }}, {CALL}, {{ text: After. }}"));
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    let id = client.send("session/prompt", prompt(&session, "wait"));
    std::thread::sleep(Duration::from_millis(500));
    client.notify("session/cancel", json!({"sessionId": session}));
    assert_eq!(client.wait(id).response["result"]["stopReason"], "cancelled");

    let place = project(&format!("{CALL}, {{ text: After. }}"));
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    let id = client.send("session/prompt", prompt(&session, "ask"));
    let request = loop {
        let message = client.read();
        if message["method"] == "session/request_permission" {
            break message;
        }
    };
    client.notify("session/cancel", json!({"sessionId": session}));
    let ended = client.wait(id);
    assert_eq!(ended.response["result"]["stopReason"], "cancelled", "{}", ended.response);
    // The client answers the open request as the protocol requires. The call does not run, and the session stays open.
    client.answer(&request, json!({"outcome": {"outcome": "cancelled"}}));
    let next = client.prompt(&session, "next");
    assert_eq!((text(&next, "agent_message_chunk").as_str(), asked(&next).len()), ("After.", 0), "{:?}", next.updates);
    assert_eq!(place.read("out/log"), "");
    client.end();
    let (_, listed) = place.json(&["threads", "list"]);
    let events = place.transcript(listed["threads"][0]["thread_id"].as_str().unwrap());
    let statuses: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "prompt_ended").map(|event| &event["status"]).collect();
    assert_eq!(statuses, ["interrupted", "done"]);
}

#[test]
fn stop_signal_interrupts_the_prompt_and_parks_the_session() {
    for signal in ["TERM", "HUP"] {
        let place = project("{ text: Never., delay_ms: 60000 }");
        let mut client = AcpClient::start(&place);
        let session = client.new_session();
        client.send("session/prompt", prompt(&session, "wait"));
        std::thread::sleep(Duration::from_millis(500));
        let process = client.process.id().to_string();
        assert!(std::process::Command::new("kill").args(["-s", signal, &process]).status().unwrap().success());
        // The input stays open.
        assert!(wait_for_exit(&mut client.process, LINE_TIMEOUT).success(), "SIG{signal}");
        assert_eq!(place.json(&["threads", "show", &session]).1["status"], "idle", "SIG{signal}");
    }
}

#[test]
fn running_prompts_are_answered_before_the_agent_ends() {
    for end in ["EOF", "TERM", "INT", "HUP"] {
        let place = project("{ text: Never., delay_ms: 60000 }");
        let mut client = AcpClient::start(&place);
        let sessions = [client.new_session(), client.new_session()];
        let prompts = sessions.map(|session| client.send("session/prompt", prompt(&session, "wait")));
        std::thread::sleep(Duration::from_millis(500));
        end_agent(&mut client, end);
        let mut reasons = BTreeMap::new();
        while reasons.len() < prompts.len() {
            let message = client.read();
            if message.get("method").is_none() {
                reasons.insert(message["id"].as_u64().unwrap(), message["result"]["stopReason"].clone());
            }
        }
        assert_eq!(reasons, prompts.map(|id| (id, json!("cancelled"))).into(), "{end}");
        assert!(wait_for_exit(&mut client.process, LINE_TIMEOUT).success(), "{end}");
    }
}

#[test]
fn prompt_is_answered_in_time_although_its_program_ignores_the_stop() {
    let call = "{ tool_calls: [{ name: rye_bash_bash, input: { command: 'trap \"\" TERM INT HUP; touch out/started; sleep 60; sleep 60' } }] }";
    let place = project(&format!("{call}, {{ text: Done. }}"));
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    let id = client.send("session/prompt", prompt(&session, "go"));
    answer_next_question(&mut client, "once");
    while !place.project().join("out/started").exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    end_agent(&mut client, "TERM");
    assert_eq!(client.wait(id).response["result"]["stopReason"], "cancelled");
    assert!(wait_for_exit(&mut client.process, LINE_TIMEOUT).success());
}

/// Reads until the next permission request, and answers it.
fn answer_next_question(client: &mut AcpClient, option: &str) {
    let asked = loop {
        let message = client.read();
        if message["method"] == "session/request_permission" {
            break message;
        }
    };
    let chosen = json!({"outcome": {"outcome": "selected", "optionId": option}});
    let input = client.input.as_mut().unwrap();
    writeln!(input, "{}", json!({"jsonrpc": "2.0", "id": asked["id"], "result": chosen})).unwrap();
}

/// Ends the input of the agent, or sends it a signal while the input stays open.
fn end_agent(client: &mut AcpClient, end: &str) {
    if end == "EOF" {
        drop(client.input.take());
        return;
    }
    let process = client.process.id().to_string();
    assert!(std::process::Command::new("kill").args(["-s", end, &process]).status().unwrap().success());
}

#[test]
fn model_of_a_scripted_session_needs_no_key() {
    let place = project("{ text: One. }");
    let mut client = AcpClient::start_with(&place, &["acp", "--script", "script.yaml"], json!({}));
    let session = client.new_session();
    let changed = client.prompt(&session, "/model fast");
    let answer = text(&changed, "agent_message_chunk");
    assert!(answer.starts_with("the next prompts use the model "), "{answer}");
    client.end();
}

#[test]
fn commands_are_listed_and_performed_without_a_request() {
    let place = project("{ text: One. }, { text: Two. }, { text: Three. }");
    place.write(".ai/prompts/review.md", "---\ndescription: Review a file.\nargument-hint: FILE\n---\nReview $1.\n");
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    client.prompt(&session, "first");
    let tree = client.prompt(&session, "/tree");
    assert_eq!(tree.response["result"]["stopReason"], "end_turn");
    assert!(text(&tree, "agent_message_chunk").contains("  1  first"), "{:?}", tree.updates);
    client.prompt(&session, "second");
    let fork = client.prompt(&session, "/fork 2");
    let answer = text(&fork, "agent_message_chunk");
    assert_eq!(answer, "the session continues from the state before the prompt:\n\nsecond");
    // The client also receives the replies of the thread that continues the session.
    let third = client.prompt(&session, "third");
    assert_eq!(text(&third, "agent_message_chunk"), "One.");
    let mut commands = third.updates.iter().chain(&tree.updates).map(|message| &message["params"]["update"]);
    let listed = commands.find(|update| update["sessionUpdate"] == "available_commands_update").unwrap();
    let command = |name: &str| {
        let all = listed["availableCommands"].as_array().unwrap();
        all.iter().find(|command| command["name"] == name).unwrap_or_else(|| panic!("{listed}")).clone()
    };
    assert_eq!(
        (&command("review")["description"], &command("review")["input"]["hint"]),
        (&"Review a file.".into(), &"FILE".into())
    );
    assert_eq!(command("model")["input"]["hint"], "[NAME]");
    let retried = client.prompt(&session, "/retry");
    assert_eq!(retried.response["result"]["stopReason"], "end_turn", "{}", retried.response);
    assert_eq!(text(&retried, "agent_message_chunk"), "One.");
    client.end();
    let (_, listed) = place.json(&["threads", "list"]);
    let statuses: Vec<&Value> = listed["threads"].as_array().unwrap().iter().map(|thread| &thread["status"]).collect();
    assert_eq!(statuses.iter().filter(|status| ***status == "continued").count(), 2, "{listed}");
}

#[test]
fn closed_session_is_listed_and_loaded_with_its_conversation() {
    let place = project("{ text: One. }, { text: Two. }");
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    client.prompt(&session, "first question");
    client.end();
    let mut client = AcpClient::start(&place);
    let cwd = client.cwd.clone();
    let listed = client.call("session/list", json!({"cwd": cwd}));
    let first = &listed.response["result"]["sessions"][0];
    assert_eq!((&first["sessionId"], &first["title"]), (&session.as_str().into(), &"first question".into()));
    let loaded = client.call("session/load", json!({"sessionId": session, "cwd": cwd, "mcpServers": []}));
    assert!(loaded.response.get("error").is_none(), "{}", loaded.response);
    assert_eq!(text(&loaded, "user_message_chunk"), "first question");
    assert_eq!(text(&loaded, "agent_message_chunk"), "One.");
    let done = client.prompt(&session, "second");
    assert_eq!(done.response["result"]["stopReason"], "end_turn", "{}", done.response);
    client.end();
}

#[test]
fn errors_of_a_client_get_errors() {
    let place = project("{ text: One. }");
    let mut client = AcpClient::start(&place);
    let unknown = client.prompt("talk-1", "hi");
    assert_eq!(unknown.response["error"]["code"], -32602, "{}", unknown.response);
    let missing = client.call("session/new", json!({"cwd": "/nowhere", "mcpServers": []}));
    assert!(missing.response["error"]["data"].as_str().unwrap().contains("cannot be opened"), "{}", missing.response);
    let relative = client.call("session/new", json!({"cwd": "some/folder", "mcpServers": []}));
    assert_eq!(relative.response["error"]["data"], "`cwd` must be an absolute path: `some/folder`");
    let outside = place.project().parent().unwrap().display().to_string();
    let refused = client.call("session/new", json!({"cwd": outside, "mcpServers": []})).response["error"].clone();
    assert_eq!(refused["code"], -32602, "{refused}");
    assert!(refused["message"].as_str().unwrap().starts_with("no rye project: run `rye init` in "), "{refused}");
    let method = client.call("session/fly", json!({}));
    assert_eq!(method.response["error"]["code"], -32601, "{}", method.response);
    let session = client.new_session();
    let unsent = client.prompt(&session, "/hlep");
    assert_eq!(unsent.response["result"]["stopReason"], "end_turn");
    assert!(text(&unsent, "agent_message_chunk").contains("unknown command `/hlep`"));
    client.end();
}

#[test]
fn untrusted_project_is_refused() {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &talk_directive(4, TOOL));
    place.write("script.yaml", "steps: [{ text: One. }]");
    let mut client = AcpClient::start(&place);
    let params = json!({"cwd": client.cwd, "mcpServers": []});
    let refused = client.call("session/new", params);
    let message = refused.response["error"]["data"].as_str().unwrap();
    assert!(message.contains("untrusted requirements") && message.contains("rye trust"), "{message}");
}

#[test]
fn change_of_a_file_is_shown_as_a_diff() {
    let write = "{ tool_calls: [{ name: rye_file_system_write, input: { path: out/log, content: new } }] }";
    let place = project(&format!("{write}, {{ text: Done. }}"));
    place.write(".ai/directives/talk.md", &talk_directive(4, "<tool>rye.file-system.write</tool>"));
    place.write("out/log", "old");
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    let done = client.prompt(&session, "go");
    let shown = updates(&done, "tool_call_update");
    let diff = &shown.last().unwrap()["content"][1];
    assert_eq!((&diff["type"], &diff["oldText"], &diff["newText"]), (&"diff".into(), &"old".into(), &"new".into()));
    assert!(diff["path"].as_str().unwrap().ends_with("project/out/log"), "{diff}");
    client.end();
    // The change is part of the loaded session.
    let mut client = AcpClient::start(&place);
    let cwd = client.cwd.clone();
    let loaded = client.call("session/load", json!({"sessionId": session, "cwd": cwd, "mcpServers": []}));
    let loaded_update = *updates(&loaded, "tool_call_update").last().unwrap();
    assert_eq!(loaded_update["content"][1]["newText"], "new", "{loaded_update}");
    client.end();
}

#[test]
fn session_of_several_threads_is_loaded_whole() {
    let place = project("{ text: One. }, { text: Two. }, { text: Three. }");
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    client.prompt(&session, "first");
    client.prompt(&session, "second");
    client.prompt(&session, "/fork 2");
    client.prompt(&session, "third");
    client.end();
    let mut client = AcpClient::start(&place);
    let cwd = client.cwd.clone();
    let loaded = client.call("session/load", json!({"sessionId": session, "cwd": cwd, "mcpServers": []}));
    assert!(loaded.response.get("error").is_none(), "{}", loaded.response);
    // The prompt of the abandoned branch is left out.
    assert_eq!(text(&loaded, "user_message_chunk"), "firstthird");
    let done = client.prompt(&session, "fourth");
    assert_eq!(done.response["result"]["stopReason"], "end_turn", "{}", done.response);
    client.end();
}

#[test]
fn lines_that_are_no_text_or_too_long_are_answered_and_the_connection_goes_on() {
    const MAX_LINE_BYTES: usize = 16 << 20;
    let place = project("Done.");
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    for line in [b"\xff".to_vec(), vec![b'x'; MAX_LINE_BYTES + 1]] {
        let input = client.input.as_mut().unwrap();
        input.write_all(&line).unwrap();
        input.write_all(b"\n").unwrap();
        input.flush().unwrap();
        let answer = loop {
            let message = client.read();
            if message.get("error").is_some() {
                break message;
            }
        };
        assert_eq!(answer["error"]["code"], -32700, "{answer:.300}");
        assert!(answer.to_string().len() < 1_000, "{} bytes", answer.to_string().len());
    }
    assert_eq!(client.prompt(&session, "hello").response["result"]["stopReason"], "end_turn");
    client.end();
}

#[test]
fn resumed_session_continues_without_a_replay() {
    let place = project("{ text: One. }, { text: Two. }");
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    client.prompt(&session, "first");
    client.end();
    let mut client = AcpClient::start(&place);
    let params = json!({"sessionId": session, "cwd": client.cwd, "mcpServers": []});
    let resumed = client.call("session/resume", params);
    assert_eq!(resumed.response["result"]["modes"]["currentModeId"], "ask", "{}", resumed.response);
    let next = client.prompt(&session, "second");
    assert_eq!(text(&next, "agent_message_chunk"), "Two.");
    for answered in [&resumed, &next] {
        assert_eq!(updates(answered, "user_message_chunk"), Vec::<&Value>::new());
        assert!(!text(answered, "agent_message_chunk").contains("One."), "{:?}", answered.updates);
    }
    client.end();
    let (_, listed) = place.json(&["threads", "list"]);
    assert_eq!(listed["threads"].as_array().unwrap().len(), 1, "{listed}");
}

#[test]
fn updates_state_locations_the_context_window_and_the_cost() {
    let read = "{ tool_calls: [{ name: rye_file_system_read, input: { path: out/log } }] }";
    let place = acp_project("<tool>rye.file-system.read</tool>", &format!("{read}, {{ text: Done. }}"));
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    let done = client.prompt(&session, "go");
    let call = updates(&done, "tool_call")[0];
    let path = place.project().join("out/log").display().to_string();
    assert_eq!((&call["kind"], &call["locations"]), (&json!("read"), &json!([{"path": path}])), "{call}");
    let usage = updates(&done, "usage_update");
    let (first, last) = (usage[0], usage.last().unwrap());
    assert_eq!((&last["size"], &last["cost"]["currency"]), (&json!(200_000), &json!("USD")), "{last}");
    let amount = |usage: &Value| usage["cost"]["amount"].as_f64().unwrap();
    assert!(0.0 < amount(first) && amount(first) < amount(last), "{first} {last}");
    client.end();
}

#[test]
fn reload_lists_the_commands_of_new_files() {
    let place = project("{ text: One. }, { text: Two. }");
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    client.prompt(&session, "first");
    place.write(".ai/prompts/review.md", "---\ndescription: Review a file.\n---\nReview $1.\n");
    let reloaded = client.prompt(&session, "/reload");
    let next = client.prompt(&session, "second");
    let listed: Vec<&Value> =
        [&reloaded, &next].into_iter().flat_map(|answered| updates(answered, "available_commands_update")).collect();
    let has_review = |listed: &&Value| {
        listed["availableCommands"].as_array().unwrap().iter().any(|command| command["name"] == "review")
    };
    assert!(listed.last().is_some_and(has_review), "{listed:?}");
    client.end();
}

#[test]
fn reply_of_a_hook_is_a_message_and_the_end_of_a_session_is_an_error() {
    let hooks = "hooks:\n  - { id: hello, event: input, condition: \"text == 'status?'\", action: { handled: { reply: \"All ${delivery} is quiet.\" } } }\n  \
                 - { id: guard, event: before_agent_start, condition: \"prompt contains 'forbidden'\", action: { terminate: { error: not here, scope: session } } }\n";
    let place = acp_project("", "{ text: One. }, { text: Two. }");
    place.write(".ai/config/agent/hooks.yaml", hooks);
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    let replied = client.prompt(&session, "status?");
    assert_eq!(replied.response["result"]["stopReason"], "end_turn", "{}", replied.response);
    assert_eq!(text(&replied, "agent_message_chunk"), "All prompt is quiet.", "{:?}", replied.updates);
    assert_eq!(text(&client.prompt(&session, "work"), "agent_message_chunk"), "One.");
    let ended = client.prompt(&session, "the forbidden thing");
    assert!(ended.response["error"].to_string().contains("not here"), "{} {:?}", ended.response, ended.updates);
    let later = client.prompt(&session, "more");
    assert!(later.response["error"].is_object(), "{} {:?}", later.response, later.updates);
    client.end();
    let events = place.transcript(&session);
    assert_eq!(events.last().unwrap()["status"], "error", "{:?}", events.last());
}
