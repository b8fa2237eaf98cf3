//! Tests of the sessions of `rye acp`: modes, options, images, extensions, plans, notices, forms, deletion, children.

#![cfg(feature = "acp")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/acp.rs"]
mod acp;
#[path = "support/acp_schema.rs"]
mod acp_schema;
#[path = "support/rye.rs"]
mod rye;

use std::collections::BTreeSet;

use acp::{AcpClient, acp_project, asked, prompt, text, updates};
use rye::talk_directive;
use rye_engine::trust::{ApprovedCommands, Trust};
use serde_json::{Value, json};

const BASH: &str = "<tool write=\"out/\">rye.bash.bash</tool>";
const CALL: &str = "{ tool_calls: [{ name: rye_bash_bash, input: { command: 'echo one >> out/log' } }] }";
/// A PNG of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn option<'a>(options: &'a Value, id: &str) -> &'a Value {
    let all = options.as_array().unwrap_or_else(|| panic!("{options}"));
    all.iter().find(|option| option["id"] == id).unwrap_or_else(|| panic!("{options}"))
}

fn set_mode(session: &str, mode: &str) -> Value {
    json!({"sessionId": session, "modeId": mode})
}

#[test]
fn modes_are_listed_and_bound_the_next_prompts() {
    let place = acp_project(BASH, &format!("{CALL}, {{ text: No. }}, {CALL}, {{ text: Done. }}"));
    let mut client = AcpClient::start(&place);
    let opened = client.open_session();
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(opened["modes"]["currentModeId"], "ask");
    let ids: Vec<&Value> =
        opened["modes"]["availableModes"].as_array().unwrap().iter().map(|mode| &mode["id"]).collect();
    assert_eq!(ids, ["read-only", "ask", "auto"]);
    let narrowed = client.call("session/set_mode", set_mode(&session, "read-only"));
    assert!(asked(&narrowed).is_empty() && narrowed.response.get("error").is_none(), "{}", narrowed.response);
    let refused = client.prompt(&session, "go");
    let all = narrowed.updates.iter().chain(&refused.updates).map(|message| &message["params"]["update"]);
    let modes: Vec<&Value> = all
        .filter(|update| update["sessionUpdate"] == "current_mode_update")
        .map(|one| &one["currentModeId"])
        .collect();
    assert_eq!(modes, ["read-only"]);
    assert_eq!(updates(&refused, "tool_call_update").last().unwrap()["status"], "failed");
    assert_eq!(place.read("out/log"), "");
    // A mode that allows more is the user's decision.
    client.permission = Some("decline");
    let error = client.fail("session/set_mode", set_mode(&session, "auto"));
    assert!(error["data"].as_str().unwrap().contains("the user did not accept the change"), "{error}");
    client.permission = Some("accept");
    let widened = client.call("session/set_mode", set_mode(&session, "auto"));
    assert_eq!(asked(&widened), ["the mode `auto` allows more than the current one"]);
    let request = widened.updates.iter().find(|message| message["method"] == "session/request_permission").unwrap();
    let shown = request["params"]["toolCall"]["content"][0]["content"]["text"].as_str().unwrap();
    assert!(shown.contains("rye.execute.tool.rye.bash.bash"), "{shown}");
    let done = client.prompt(&session, "again");
    assert!(asked(&done).is_empty(), "{:?}", done.updates);
    assert_eq!(place.read("out/log"), "one\n");
    let error = client.fail("session/set_mode", set_mode(&session, "fast"));
    assert_eq!(error["data"], "unknown mode `fast`: use `read-only`, `ask` or `auto`");
    client.end();
    // A session that is opened again returns from `auto` to `ask`, and keeps `read-only`.
    for expected in ["ask", "read-only"] {
        let mut client = AcpClient::start(&place);
        let loaded = client.ok("session/load", json!({"sessionId": session, "cwd": client.cwd, "mcpServers": []}));
        assert_eq!(loaded["modes"]["currentModeId"], expected);
        client.ok("session/set_mode", set_mode(&session, "read-only"));
        client.end();
    }
}

#[test]
fn options_set_the_model_the_budget_and_the_mode() {
    let place = acp_project(BASH, "{ text: One. }, { text: Two. }, { text: Three. }");
    let model = |id: &str| {
        format!(
            "{{ id: {id}, context_window: 200000, max_output: 64000, tool_use: native, prices: {{ input: 1, output: 5 }} }}"
        )
    };
    let (first, second) = (model("scripted"), model("other"));
    place.write(
        ".ai/config/agent/providers/scripted.yaml",
        &format!("id: scripted\nwire: scripted\nscript: script.yaml\ndefault_tier: fast\ntiers: {{ fast: scripted, high: other }}\nmodels:\n  - {first}\n  - {second}\n"),
    );
    place.run_ok(&["trust"]);
    let mut client = AcpClient::start(&place);
    let opened = client.open_session();
    let (session, options) = (opened["sessionId"].as_str().unwrap().to_owned(), &opened["configOptions"]);
    let values = |option: &Value| -> Vec<String> {
        let all = option["options"].as_array().unwrap();
        all.iter().map(|value| value["value"].as_str().unwrap().to_owned()).collect()
    };
    let of_model = option(options, "model");
    assert_eq!((&of_model["currentValue"], &of_model["category"]), (&"scripted".into(), &"model".into()));
    assert_eq!(values(of_model), ["scripted", "other"]);
    let budget = option(options, "budget");
    assert_eq!((&budget["currentValue"], &budget["category"]), (&"0.5".into(), &"_rye_budget".into()));
    assert_eq!(values(budget), ["0.05", "0.1", "0.2", "0.5", "1", "2", "5"]);
    assert_eq!(option(options, "mode")["currentValue"], "ask");
    client.prompt(&session, "first");
    let set = |id: &str, value: &str| json!({"sessionId": session, "configId": id, "value": value});
    let lowered = client.call("session/set_config_option", set("budget", "0.1"));
    assert!(asked(&lowered).is_empty());
    assert_eq!(option(&lowered.response["result"]["configOptions"], "budget")["currentValue"], "0.1");
    client.permission = Some("accept");
    let changed = client.call("session/set_config_option", set("model", "other"));
    assert_eq!(asked(&changed), ["the new plan allows more than the current one"]);
    assert_eq!(option(&changed.response["result"]["configOptions"], "model")["currentValue"], "other");
    let second = client.prompt(&session, "second");
    assert_eq!(second.response["result"]["stopReason"], "end_turn", "{}", second.response);
    // The update follows the start of the new thread.
    let is_new = |message: &Value| {
        let update = &message["params"]["update"];
        update["sessionUpdate"] == "config_option_update"
            && option(&update["configOptions"], "model")["currentValue"] == "other"
            && option(&update["configOptions"], "budget")["currentValue"] == "0.1"
    };
    if !changed.updates.iter().chain(&second.updates).any(is_new) {
        while !is_new(&client.read()) {}
    }
    for (id, value, reason) in [
        ("speed", "fast", "unknown option `speed`"),
        ("budget", "much", "`budget` must be an amount of dollars above 0"),
        ("budget", "-1", "`budget` must be an amount of dollars above 0"),
        ("budget", "0", "`budget` must be an amount of dollars above 0"),
        ("budget", "900", "allow at most $5 for a prompt"),
        ("model", "absent/absent", "unknown provider `absent`"),
    ] {
        let error = client.fail("session/set_config_option", set(id, value));
        assert!(error["data"].as_str().unwrap().contains(reason), "{error}");
    }
    client.ok("session/set_config_option", set("mode", "read-only"));
    client.end();
}

#[test]
fn images_reach_a_model_that_accepts_them() {
    let place = acp_project(BASH, "{ text: One. }");
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    let with_image = |session: &str, data: &str| {
        let image = json!({"type": "image", "mimeType": "image/png", "data": data});
        json!({"sessionId": session, "prompt": [{"type": "text", "text": "what is this?"}, image]})
    };
    let done = client.ok("session/prompt", with_image(&session, PIXEL));
    assert_eq!(done["stopReason"], "end_turn");
    let error = client.fail("session/prompt", with_image(&session, "aGVsbG8="));
    assert_eq!(
        (&error["code"], &error["data"]),
        (&json!(-32602), &"the image cannot be sent: not a PNG, JPEG, GIF or WebP image".into())
    );
    let mut command = with_image(&session, PIXEL);
    command["prompt"][0]["text"] = json!("/tree");
    assert_eq!(client.fail("session/prompt", command)["data"], "a command takes no images");
    client.end();
    let events = place.transcript(&session);
    let input = events.iter().find(|event| event["type"] == "user_input").unwrap();
    assert_eq!(input["images"][0]["media_type"], "image/png", "{input}");
}

#[test]
fn image_for_a_model_without_images_is_refused() {
    let place = acp_project(BASH, "{ text: One. }");
    place.write(
        ".ai/config/agent/providers/scripted.yaml",
        "id: scripted\nwire: scripted\nscript: script.yaml\ndefault_tier: fast\ntiers: { fast: blind }\nmodels:\n  - { id: blind, context_window: 200000, max_output: 64000, tool_use: native, images: false, prices: { input: 1, output: 5 } }\n",
    );
    place.run_ok(&["trust"]);
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    let image = json!({"type": "image", "mimeType": "image/png", "data": PIXEL});
    let error = client.fail("session/prompt", json!({"sessionId": session, "prompt": [image]}));
    assert!(error["data"].as_str().unwrap().contains("does not accept images"), "{error}");
    client.end();
    assert!(!place.transcript(&session).iter().any(|event| event["type"] == "user_input"));
}

#[test]
fn resources_are_part_of_the_text_with_their_hash() {
    let place = acp_project(BASH, "{ text: One. }");
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    let resource = json!({"type": "resource", "resource": {"uri": "file:///p/a.rs", "text": "fn a() {}"}});
    let link = json!({"type": "resource_link", "name": "b.rs", "uri": "file:///p/b.rs"});
    let blocks = json!([{"type": "text", "text": "look"}, resource, link]);
    client.ok("session/prompt", json!({"sessionId": session, "prompt": blocks}));
    client.end();
    let events = place.transcript(&session);
    let input = events.iter().find(|event| event["type"] == "user_input").unwrap();
    let sha256 = "fe05b5eef8cd0aed7d77c57cc9424b7f6434143972fca7ca02df69ebf3122c38";
    let expected = format!("look\n<file path=\"/p/a.rs\" sha256=\"{sha256}\">\nfn a() {{}}\n</file>\n@/p/b.rs");
    assert_eq!(input["raw"], expected);
}

#[test]
fn session_is_listed_by_its_first_thread_and_deleted_with_all_of_them() {
    let place = acp_project(BASH, "{ text: One. }, { text: Two. }, { text: Three. }");
    let mut client = AcpClient::start(&place);
    let (session, other) = (client.new_session(), client.new_session());
    client.prompt(&session, "first");
    client.prompt(&session, "/fork 1");
    client.prompt(&session, "second");
    client.prompt(&session, "/name My title");
    // The update of the title is sent before the end of the next prompt.
    let named = client.prompt(&session, "third");
    let cwd = client.cwd.clone();
    let listed = client.ok("session/list", json!({"cwd": cwd}));
    let sessions = listed["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2, "{listed}");
    let own = sessions.iter().find(|one| one["sessionId"] == session.as_str()).unwrap_or_else(|| panic!("{listed}"));
    assert_eq!(own["title"], "My title");
    let open = client.fail("session/delete", json!({"sessionId": session}));
    assert_eq!(open["data"], "the session is open: close it first");
    assert_eq!(updates(&named, "session_info_update")[0]["title"], "My title");
    client.ok("session/close", json!({"sessionId": session}));
    client.ok("session/delete", json!({"sessionId": session}));
    // Deleting an absent session succeeds.
    client.ok("session/delete", json!({"sessionId": session}));
    client.ok("session/delete", json!({"sessionId": "../x"}));
    let listed = client.ok("session/list", json!({"cwd": cwd}));
    let ids: Vec<&Value> = listed["sessions"].as_array().unwrap().iter().map(|one| &one["sessionId"]).collect();
    assert_eq!(ids, [other.as_str()]);
    let error = client.fail("session/list", json!({"cwd": cwd, "cursor": "absent"}));
    assert!(error["data"].as_str().unwrap().contains("unknown cursor `absent`"), "{error}");
    client.end();
    assert_eq!(place.json(&["threads", "list"]).1["threads"].as_array().unwrap().len(), 1);
}

#[test]
fn sessions_of_two_projects_have_different_ids() {
    let place = acp_project(BASH, "{ text: One. }");
    place.write("other/.ai/directives/talk.md", &talk_directive(4, BASH));
    place.run_ok(&["trust", "--project", "other"]);
    let mut client = AcpClient::start(&place);
    let own = client.cwd.clone();
    let other = place.project().join("other").display().to_string();
    let mut sessions: Vec<String> = Vec::new();
    // Two sessions that start in the same second would get the same id in a project of their own.
    for _ in 0..4 {
        let requests = [&own, &other].map(|cwd| client.send("session/new", json!({"cwd": cwd, "mcpServers": []})));
        let mut opened = [None, None];
        while opened.iter().any(Option::is_none) {
            let message = client.read();
            let index = requests.iter().position(|id| message["id"] == *id && message.get("method").is_none());
            if let Some(index) = index {
                opened[index] = Some(message["result"]["sessionId"].as_str().unwrap().to_owned());
            }
        }
        sessions.extend(opened.into_iter().flatten());
    }
    assert_eq!(sessions.iter().collect::<BTreeSet<_>>().len(), 8, "{sessions:?}");
    client.ok("session/prompt", prompt(&sessions[0], "for the first project"));
    // The other project has no session with this id, and the connection has one.
    let error = client.fail("session/load", json!({"sessionId": sessions[0], "cwd": other, "mcpServers": []}));
    assert!(error["data"].as_str().unwrap().contains("is open: close it first"), "{error}");
    client.end();
    assert!(place.transcript(&sessions[0]).iter().any(|event| event["type"] == "prompt_ended"));
    assert!(!place.project().join("other/.ai/state/threads").join(&sessions[0]).exists());
}

#[test]
fn thread_of_a_run_is_no_session_and_is_not_deleted() {
    let place = acp_project(BASH, "{ text: One. }");
    let (_, run) = place.json(&["run", "talk", "--script", "script.yaml"]);
    let thread = run["thread_id"].as_str().unwrap_or_else(|| panic!("{run}"));
    let mut client = AcpClient::start(&place);
    client.new_session();
    let error = client.fail("session/delete", json!({"sessionId": thread}));
    assert!(error["data"].as_str().unwrap().contains(&format!("unknown session `{thread}`")), "{error}");
    client.end();
    assert!(place.transcript(thread).iter().any(|event| event["type"] == "ended"));
}

#[test]
fn session_that_two_projects_have_is_deleted_in_neither() {
    let place = acp_project(BASH, "{ text: One. }");
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    client.ok("session/close", json!({"sessionId": session}));
    client.end();
    // A copy of the project has the same sessions.
    let copied = std::process::Command::new("cp").args(["-r", ".ai", "copy.ai"]).current_dir(place.project()).status();
    assert!(copied.unwrap().success());
    std::fs::create_dir(place.project().join("copy")).unwrap();
    std::fs::rename(place.project().join("copy.ai"), place.project().join("copy/.ai")).unwrap();
    place.run_ok(&["trust", "--project", "copy"]);
    let mut client = AcpClient::start(&place);
    let copy = place.project().join("copy").display().to_string();
    client.ok("session/new", json!({"cwd": copy, "mcpServers": []}));
    let error = client.fail("session/delete", json!({"sessionId": session}));
    assert!(error["data"].as_str().unwrap().contains("several projects have a session"), "{error}");
    client.end();
    for folder in [".ai", "copy/.ai"] {
        assert!(place.project().join(folder).join("state/threads").join(&session).is_dir(), "{folder}");
    }
}

#[test]
fn empty_prompt_is_refused_and_calls_no_model() {
    let place = acp_project(BASH, "{ text: One. }");
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    let blank = json!([{"type": "text", "text": " \n"}]);
    for blocks in [json!([]), json!([{"type": "text", "text": ""}]), blank] {
        let error = client.fail("session/prompt", json!({"sessionId": session, "prompt": blocks}));
        assert_eq!(error["code"], -32602, "{error}");
        assert!(error["data"].as_str().unwrap().contains("the prompt is empty"), "{error}");
    }
    let link = json!([{"type": "resource_link", "name": "x", "uri": "file://elsewhere/x"}]);
    let error = client.fail("session/prompt", json!({"sessionId": session, "prompt": link}));
    assert!(error["data"].as_str().unwrap().contains("another host"), "{error}");
    // A limit without a text is no message either.
    client.prompt(&session, "$0.20 ");
    client.end();
    let events = place.transcript(&session);
    assert!(!events.iter().any(|event| event["type"] == "user_input" || event["type"] == "attempt_intended"));
}

#[test]
fn limit_that_ends_a_prompt_is_named_and_the_next_prompt_continues() {
    let place = acp_project(BASH, "{ text: One. }");
    place.write(".ai/directives/talk.md", &talk_directive(1, "<tool>rye.file-system.read</tool>"));
    let call = "{ tool_calls: [{ name: rye_file_system_read, input: { path: script.yaml } }] }";
    place.write("script.yaml", &format!("steps: [{call}, {{ text: Done. }}]"));
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    let ended = client.prompt(&session, "go");
    assert_eq!(ended.response["result"]["stopReason"], "max_turn_requests", "{}", ended.response);
    let reported = text(&ended, "agent_message_chunk");
    let expected = "the prompt ended at a limit: turns_exceeded: 1 of 1; send `continue`, or another text";
    assert!(reported.contains(expected), "{reported}");
    let next = client.prompt(&session, "continue");
    assert_eq!(text(&next, "agent_message_chunk"), "Done.", "{:?}", next.updates);
    client.end();
}

#[test]
fn limit_that_a_hook_escalates_is_raised_by_the_answer() {
    let place = acp_project(BASH, "{ text: One. }");
    place.write(".ai/config/agent/hooks.yaml", "hooks:\n  - { id: ask, event: limit, action: { escalate: {} } }\n");
    place.write(".ai/directives/talk.md", &talk_directive(1, "<tool>rye.file-system.read</tool>"));
    let call = "{ tool_calls: [{ name: rye_file_system_read, input: { path: script.yaml } }] }";
    place.write("script.yaml", &format!("steps: [{call}, {{ text: Done. }}]"));
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    let done = client.prompt(&session, "go");
    assert_eq!(done.response["result"]["stopReason"], "end_turn", "{}", done.response);
    let asked: Vec<&Value> =
        done.updates.iter().filter(|message| message["method"] == "session/request_permission").collect();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0]["params"]["options"][0]["name"], "Raise turns to 2", "{asked:?}");
    client.end();
    let events = place.transcript(&session);
    let raised = events.iter().filter(|event| event["message"]["kind"] == "raise").count();
    let answers = events.iter().filter(|event| event["type"] == "approval_given" && event["answer"] == "approved");
    assert_eq!((raised, answers.count()), (1, 1), "{events:?}");
}

#[test]
fn long_list_of_sessions_comes_in_pages() {
    let place = acp_project(BASH, "{ text: One. }");
    let mut client = AcpClient::start(&place);
    for _ in 0..51 {
        client.new_session();
    }
    let first = client.ok("session/list", json!({"cwd": client.cwd}));
    assert_eq!(first["sessions"].as_array().unwrap().len(), 50);
    let rest = client.ok("session/list", json!({"cwd": client.cwd, "cursor": first["nextCursor"]}));
    assert_eq!(rest["sessions"].as_array().unwrap().len(), 1, "{rest}");
    assert!(rest["nextCursor"].is_null());
    client.end();
}

#[test]
fn extensions_answer_like_the_requests_of_a_chat() {
    let place = acp_project(BASH, "{ text: One. }, { text: Two. }");
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    client.prompt(&session, "first");
    let preview = client.ok("_rye/preview", json!({"sessionId": session, "message": "second"}));
    assert!(preview["input_tokens"].as_u64().unwrap() > 5, "{preview}");
    let context = client.ok("_rye/context", json!({"sessionId": session}));
    assert!(context.as_array().unwrap().iter().any(|part| part["kind"] == "assistant"), "{context}");
    let why = client.ok("_rye/why", json!({"sessionId": session, "part": "limit.spend"}));
    assert!(why["text"].as_str().unwrap().contains("0.5"), "{why}");
    let fork = client.ok("_rye/fork", json!({"sessionId": session, "prompt": 1}));
    assert_eq!(fork["text"], "first", "{fork}");
    client.prompt(&session, "again");
    let tree = client.ok("_rye/tree", json!({"sessionId": session}));
    assert_eq!(tree.as_array().unwrap().len(), 2, "{tree}");
    for (method, params, code) in [
        ("_rye/fly", json!({"sessionId": session}), -32601),
        ("_other/tree", json!({"sessionId": session}), -32601),
        ("_rye/tree", json!({"sessionId": "absent"}), -32602),
        ("_rye/fork", json!({"sessionId": session}), -32602),
        ("_rye/fork", json!({"sessionId": session, "prompt": 99}), -32602),
    ] {
        assert_eq!(client.fail(method, params.clone())["code"], code, "{method} {params}");
    }
    client.end();
}

#[test]
fn state_key_plan_is_the_plan_of_the_agent() {
    let entries = "[write, { content: test, status: in_progress, priority: high }, { content: ship, status: completed, priority: low }]";
    let set = format!(
        "{{ tool_calls: [{{ name: rye_agent_threads_state, input: {{ operation: set, key: plan, value: {entries} }} }}] }}"
    );
    let place = acp_project("<tool>rye.agent.threads.state</tool>", &format!("{set}, {{ text: Done. }}"));
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    let done = client.prompt(&session, "go");
    let plans = updates(&done, "plan");
    let expected = json!([
        {"content": "write", "priority": "medium", "status": "pending"},
        {"content": "test", "priority": "high", "status": "in_progress"},
        {"content": "ship", "priority": "low", "status": "completed"},
    ]);
    assert_eq!(plans.last().unwrap_or_else(|| panic!("{:?}", done.updates))["entries"], expected);
    client.end();
}

#[test]
fn notices_and_compactions_are_sent_only_to_clients_that_show_them() {
    for shows in [true, false] {
        let place = acp_project(BASH, "{ text: One. }, { text: The summary. }, { text: Two. }");
        place.write(".ai/config/agent/hooks.yaml", HOOKS);
        place.write(".ai/tools/team/broken.sh", "#!/bin/sh\n# rye: {description: Fails.}\necho no luck >&2\nexit 3\n");
        place.run_ok(&["trust"]);
        let session = json!({"notices": {}, "compaction": {}});
        let capabilities = if shows { json!({"session": session}) } else { json!({}) };
        let args = ["acp", "talk", "--script", "script.yaml"];
        let mut client = AcpClient::start_with(&place, &args, capabilities);
        let server = json!({"name": "files", "command": "/bin/true", "args": [], "env": []});
        let opened = client.call("session/new", json!({"cwd": client.cwd, "mcpServers": [server]}));
        let id = opened.response["result"]["sessionId"].as_str().unwrap().to_owned();
        let first = client.prompt(&id, "first");
        let compacted = client.prompt(&id, "/compact");
        let second = client.prompt(&id, "second");
        // The summary is no reply, and the next reply is sent once.
        let note = "The model now reads a summary in place of the earlier conversation.\n";
        // The summary is made after the response to `/compact`, so its text may follow with the next prompt.
        let texts = [&first, &compacted, &second].map(|one| text(one, "agent_message_chunk")).concat();
        let (before, rest) =
            texts.split_once("replaced by a summary: ").unwrap_or_else(|| panic!("no preview: {texts}"));
        let (preview, after) = rest.split_once("price of the summary: about $").unwrap();
        assert!(before == "One." && preview.contains("kept: "), "{texts}");
        let summary = if shows { "The summary.".to_owned() } else { format!("{note}The summary.") };
        assert!(after.ends_with(&summary) && after.matches("The summary.").count() == 1, "{texts}");
        let all = [&opened, &first, &compacted, &second];
        let titles: Vec<&str> = all
            .iter()
            .flat_map(|answered| updates(answered, "notice"))
            .map(|notice| notice["title"].as_str().unwrap())
            .collect();
        let compactions: Vec<&Value> = all.iter().flat_map(|answered| updates(answered, "compaction_update")).collect();
        if shows {
            assert!(titles.contains(&"MCP servers of the editor are not used: files"), "{titles:?}");
            assert!(titles.contains(&"the hook `broken` failed"), "{titles:?}");
            assert_eq!((compactions.len(), &compactions[0]["status"]), (1, &"completed".into()));
        } else {
            assert!(titles.is_empty() && compactions.is_empty());
        }
        client.end();
    }
}

const HOOKS: &str = "hooks:\n  - id: broken\n    event: input\n    action: { primary: execute, item_type: tool, item_id: team/broken }\n";

#[test]
fn command_that_is_approved_for_the_project_is_not_asked() {
    let call = |command: &str| format!("{{ name: rye_bash_bash, input: {{ command: '{command}' }} }}");
    let calls = ["mkdir out/a", "mkdir out/b && touch out/c"].map(call).join(", ");
    let place = acp_project(BASH, &format!("{{ tool_calls: [{calls}] }}, {{ text: Done. }}"));
    let trust = Trust::recorded(&place.user(), &place.project(), BTreeSet::new);
    let capability = "rye.execute.tool.rye.bash.bash".to_owned();
    trust.record_commands(ApprovedCommands { capability, starts_with: vec!["mkdir".to_owned()] }).unwrap();
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    client.permission = Some("no");
    let done = client.prompt(&session, "go");
    // The second command is not simple.
    assert_eq!(asked(&done).len(), 1, "{:?}", asked(&done));
    let made = ["out/a", "out/b"].map(|path| place.project().join(path).exists());
    assert_eq!(made, [true, false]);
    client.end();
}

#[test]
fn required_inputs_are_asked_with_a_form_or_listed_in_the_error() {
    let place = acp_project(BASH, "{ text: One. }");
    let directive = talk_directive(4, BASH).replace(
        "</directive>\n```",
        "  <inputs>\n    <input name=\"topic\" type=\"string\" required=\"true\">The topic.</input>\n    <input name=\"count\" type=\"integer\" required=\"true\">How many.</input>\n    <input name=\"files\" type=\"array\" required=\"true\">Names.</input>\n  </inputs>\n</directive>\n```",
    );
    place.write(
        ".ai/directives/talk.md",
        &format!("{directive}\nTopic {{input:topic}}, {{input:count}}, {{input:files}}\n"),
    );
    place.run_ok(&["trust"]);
    let mut client = AcpClient::start(&place);
    let params = json!({"cwd": client.cwd, "mcpServers": []});
    let error = client.fail("session/new", params.clone());
    let data = error["data"].as_str().unwrap();
    assert!(data.contains("`topic`, `count`, `files`; start the agent with `rye acp --input NAME=VALUE`"), "{data}");
    client.end();
    let wrong =
        ["acp", "talk", "--script", "script.yaml", "--input", "topic=t", "--input", "count=x", "--input", "files=[]"];
    let mut client = AcpClient::start_with(&place, &wrong, json!({}));
    let error = client.fail("session/new", params.clone());
    assert_eq!(error["data"], "`talk` cannot start: the input `count` is string `x`, not an integer");
    client.end();
    let args = ["acp", "talk", "--script", "script.yaml", "--input", "topic=tea"];
    let mut client = AcpClient::start_with(&place, &args, json!({"elicitation": {"form": {}}}));
    client.form = Some(json!({"count": 3, "files": "not JSON"}));
    let error = client.fail("session/new", params.clone());
    assert!(error["data"].as_str().unwrap().contains("the input `files` is not valid JSON"), "{error}");
    client.form = Some(json!({"count": 3, "files": "[\"a\"]"}));
    let opened = client.call("session/new", params);
    let form = opened.updates.iter().find(|message| message["method"] == "elicitation/create").unwrap();
    let fields = form["params"]["requestedSchema"]["properties"].as_object().unwrap();
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["count", "files"]);
    let session = opened.response["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{}", opened.response));
    let session = session.to_owned();
    client.prompt(&session, "go");
    client.end();
    let events = place.transcript(&session);
    assert_eq!(events[0]["inputs"], json!({"topic": "tea", "count": 3, "files": ["a"]}), "{}", events[0]);
}

#[test]
fn missing_key_is_an_authentication_error_that_names_its_variable() {
    let place = acp_project(BASH, "{ text: One. }");
    let directive = talk_directive(4, BASH).replace("provider=\"scripted\"", "provider=\"anthropic\"");
    place.write(".ai/directives/talk.md", &directive);
    place.run_ok(&["trust"]);
    let mut client = AcpClient::start_with(&place, &["acp", "talk"], json!({}));
    let error = client.fail("session/new", json!({"cwd": client.cwd, "mcpServers": []}));
    assert_eq!(error["code"], -32000, "{error}");
    assert!(error["data"].as_str().unwrap().contains("ANTHROPIC_API_KEY"), "{error}");
    client.end();
}

#[test]
fn closing_asks_about_children_that_still_run() {
    for (choice, status) in [("decline", "killed"), ("accept", "completed")] {
        let start_child = "{ name: rye_execute, input: { item_type: directive, item_id: part, async: true } }";
        let place = acp_project("<directive>part</directive>", "");
        let part = talk_directive(2, "").replace("name=\"talk\"", "name=\"part\"").replace("0.50", "0.10");
        place.write(".ai/directives/part.md", &part);
        let delay = if choice == "accept" { 2_000 } else { 60_000 };
        place.write(
            "script.yaml",
            &format!("steps: [{{ tool_calls: [{start_child}] }}, {{ text: Started. }}]\nthreads: {{ part: [{{ text: Part., delay_ms: {delay} }}] }}\n"),
        );
        place.run_ok(&["trust"]);
        let mut client = AcpClient::start(&place);
        let session = client.new_session();
        let done = client.prompt(&session, "go");
        assert_eq!(done.response["result"]["stopReason"], "end_turn", "{}", done.response);
        client.permission = Some(choice);
        let closed = client.call("session/close", json!({"sessionId": session}));
        let questions = asked(&closed);
        assert!(questions[0].starts_with("1 child runs."), "{questions:?}");
        let (_, listed) = place.json(&["threads", "list"]);
        let statuses: Vec<(&str, &str)> = listed["threads"]
            .as_array()
            .unwrap()
            .iter()
            .map(|thread| (thread["directive"].as_str().unwrap(), thread["status"].as_str().unwrap()))
            .collect();
        // The session is parked, and its child has ended, when the response arrives.
        assert!(statuses.contains(&("part", status)) && statuses.contains(&("talk", "idle")), "{statuses:?}");
        client.end();
    }
}

#[test]
fn prompt_with_the_text_of_a_second_one_waits_for_the_first() {
    let place = acp_project(BASH, "{ text: One., delay_ms: 700 }, { text: Two. }");
    let mut client = AcpClient::start(&place);
    let session = client.new_session();
    let first = client.send("session/prompt", prompt(&session, "first"));
    let second = client.send("session/prompt", prompt(&session, "second"));
    let one = client.wait(first);
    assert_eq!(text(&one, "agent_message_chunk"), "One.");
    assert_eq!(text(&client.wait(second), "agent_message_chunk"), "Two.");
    client.end();
}
