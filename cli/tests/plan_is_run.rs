//! Tests that `rye run` sends what `rye plan` prints: a loopback server records the raw requests in four API formats,
//! and they are compared with the plan of the same call.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/recorder.rs"]
mod recorder;
#[path = "support/rye.rs"]
mod rye;

use std::io::Write;
use std::process::Stdio;

use recorder::{ApiFormat, Recorder};
use rye::{ProcessResult, TestProject};
use rye_compiler::semantics::money::Nanos;
use serde_json::{Value, json};

/// Runs a call against a recorder; returns the plan of the call and the first request.
fn planned_and_sent(place: &TestProject, wire: ApiFormat, call: &[&str]) -> (Value, Value) {
    let (plan, _, sent) = planned_run_and_sent(place, wire, &format!("{}/fast", wire.names().1), call);
    (plan, sent)
}

/// Runs a call like [`planned_and_sent`], with any model; also returns the result of the run.
fn planned_run_and_sent(place: &TestProject, wire: ApiFormat, model: &str, call: &[&str]) -> (Value, Value, Value) {
    let recorder = Recorder::start(vec![wire.text_reply()]);
    let variables = wire.names().2;
    let call = [call, &["--model", model, "--format", "json"]].concat();
    let plan: Value = serde_json::from_str(&place.run_ok(&[&["plan"], call.as_slice()].concat())).unwrap();
    let mut command = place.command(&[&["run", "--allow-missing-outputs"], call.as_slice()].concat());
    let done = ProcessResult::from(
        command
            .env(format!("{variables}_API_KEY"), "secret-of-the-test")
            .env(format!("{variables}_BASE_URL"), &recorder.url)
            .output()
            .unwrap(),
    );
    assert_eq!(done.code, Some(0), "{}\n{}", done.stdout, done.stderr);
    let result: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&result["result"], &result["plan_id"]), (&json!("Noted."), &plan["plan_id"]));
    let requests = recorder.requests.lock().unwrap();
    let first = requests.first().unwrap();
    assert!(first.line.starts_with("POST /"), "{}", first.line);
    assert!(first.headers.iter().any(|header| header.ends_with("secret-of-the-test")));
    assert!(!String::from_utf8_lossy(&first.body).contains("secret-of-the-test"));
    let sent = serde_json::from_slice(&first.body).unwrap();
    (plan, result, sent)
}

/// Checks that the sent text equals the planned text, except for its placeholders.
fn assert_sent(planned: &Value, sent: &str, pending: &[&str]) {
    let text = planned["text"].as_str().unwrap();
    let placeholders = planned["pending"].as_array().unwrap();
    let names: Vec<&str> =
        placeholders.iter().map(|placeholder| placeholder["placeholder"].as_str().unwrap()).collect();
    assert_eq!(names, pending);
    let mut rest = sent;
    let mut at = 0;
    for (n, placeholder) in placeholders.iter().enumerate() {
        let start = usize::try_from(placeholder["offset"].as_u64().unwrap()).unwrap();
        let literal = &text[at..start];
        // The first literal starts the message; each later one follows a placeholder.
        let found = rest.find(literal).unwrap_or_else(|| panic!("`{literal}` was not sent:\n{sent}"));
        assert!(n > 0 || found == 0, "`{literal}` is not where it was planned:\n{sent}");
        rest = &rest[found + literal.len()..];
        at = start + usize::try_from(placeholder["bytes"].as_u64().unwrap()).unwrap();
    }
    let last = &text[at..];
    let exact = if placeholders.is_empty() { rest == last } else { rest.ends_with(last) };
    assert!(exact, "planned:\n{text}\nsent:\n{sent}");
}

/// Returns system prompt, first message and tools of a request, the tools as (name, description, schema).
fn parts(wire: ApiFormat, sent: &Value) -> (String, String, Vec<Value>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let tools = sent["tools"].as_array().cloned().unwrap_or_default();
    match wire {
        ApiFormat::Anthropic => {
            assert!(sent["system"].as_array().is_none_or(|blocks| blocks.len() == 1));
            let first = &sent["messages"][0];
            assert_eq!((&first["role"], first["content"].as_array().unwrap().len()), (&json!("user"), 1));
            let tool = |tool: &Value| json!([tool["name"], tool["description"], tool["input_schema"]]);
            let tools = tools.iter().map(tool).collect();
            (text(&sent["system"][0]["text"]), text(&first["content"][0]["text"]), tools)
        }
        ApiFormat::Openai => {
            let messages = sent["messages"].as_array().unwrap();
            let (system, rest): (Vec<&Value>, Vec<&Value>) = messages.iter().partition(|m| m["role"] == "system");
            assert_eq!((system.len() <= 1, &rest[0]["role"]), (true, &json!("user")));
            let tool = |tool: &Value| {
                let function = &tool["function"];
                json!([function["name"], function["description"], function["parameters"]])
            };
            let tools = tools.iter().map(tool).collect();
            (system.first().map(|m| text(&m["content"])).unwrap_or_default(), text(&rest[0]["content"]), tools)
        }
        ApiFormat::Responses => {
            let tool = |tool: &Value| json!([tool["name"], tool["description"], tool["parameters"]]);
            let tools = tools.iter().map(tool).collect();
            (text(&sent["instructions"]), text(&sent["input"][0]["content"][0]["text"]), tools)
        }
        ApiFormat::Gemini => {
            let declared = tools.iter().flat_map(|group| group["functionDeclarations"].as_array().unwrap());
            let tool = |tool: &Value| json!([tool["name"], tool["description"], tool["parametersJsonSchema"]]);
            let system = text(&sent["systemInstruction"]["parts"][0]["text"]);
            (system, text(&sent["contents"][0]["parts"][0]["text"]), declared.map(tool).collect())
        }
    }
}

fn holds(place: &TestProject, call: &[&str], system: &[&str], first_message: &[&str]) {
    for wire in ApiFormat::ALL {
        let (plan, sent) = planned_and_sent(place, wire, call);
        let (sent_system, sent_message, tools) = parts(wire, &sent);
        assert_sent(&plan["system"], &sent_system, system);
        assert_sent(&plan["first_message"], &sent_message, first_message);
        assert_eq!(planned_definitions(&plan), definitions(&tools), "{wire:?}");
        assert!(!tools.is_empty());
        if wire != ApiFormat::Gemini {
            assert_eq!(sent["model"], plan["model"]["id"]);
        }
    }
}

/// Returns the tool definitions of a plan as JSON texts, in the form that the plan states for the request.
fn planned_definitions(plan: &Value) -> Vec<String> {
    let tools = plan["palette"].as_array().unwrap().iter();
    let sent = |tool: &Value| if tool["sent"].is_null() { tool.clone() } else { tool["sent"].clone() };
    tools.map(|tool| json!([tool["name"], sent(tool)["description"], sent(tool)["schema"]]).to_string()).collect()
}

fn definitions(tools: &[Value]) -> Vec<String> {
    tools.iter().map(Value::to_string).collect()
}

/// Writes a directive whose tools have schemas that must be converted for some API formats.
fn write_tools(place: &TestProject) {
    place.write(".ai/config/agent/hooks.yaml", "hooks:\n  - { id: ctx_environment, enabled: false }\n");
    let schema = [
        "  type: object",
        "  required: [tree, mode]",
        "  anyOf: [{ required: [path] }, { required: [\"a name with spaces\"] }]",
        "  properties:",
        "    tree: { $ref: '#/$defs/Node' }",
        "    mode: { enum: [1, two, null], pattern: '^[a-z]+$' }",
        "    path: { type: string, minLength: 2, format: uri }",
        "    list: { type: array }",
        "    \"a name with spaces\": { type: string }",
        "  $defs:",
        "    Node: { type: object, properties: { children: { type: array, items: { $ref: '#/$defs/Node' } } } }",
    ];
    let tool = format!(
        "description: Draws a tree.\nversion: 1.0.0\nkind: command\ncommand: [printf, drawn]\nparameters:\n{}\n",
        schema.join("\n")
    );
    place.write(".ai/tools/art/draw.yaml", &tool);
    let bare = "description: Wipes the sheet.\nversion: 1.0.0\nkind: command\ncommand: [printf, wiped]\n";
    place.write(".ai/tools/art/wipe.yaml", bare);
    place.write(
        ".ai/directives/draw.md",
        "Draw.\n\n```xml\n<directive name=\"draw\" version=\"1.0.0\">\n<metadata><description>Draws.</description>\n\
         <permissions><execute><tool>art.*</tool></execute></permissions></metadata>\n</directive>\n```\n\nGo on.\n",
    );
}

#[test]
fn chain_with_hooks_matches_its_plan() {
    let place = TestProject::example("deploy");
    let environment = &["project_path"];
    holds(&place, &["deploy_staging", "--input", "service=billing"], &[], environment);
    holds(
        &place,
        &["deploy_staging", "--input", "service=a\"b\\c\n\u{1F680}", "--input", "target=canary"],
        &[],
        environment,
    );
}

/// Without placeholders, the bound and the reservation of the first request equal those of the plan.
#[test]
fn first_reservation_equals_the_worst_case_of_the_plan() {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    place.write(".ai/config/agent/hooks.yaml", "hooks:\n  - { id: ctx_environment, enabled: false }\n");
    for topic in ["tea", "Grüße, お茶 und \u{1F375}"] {
        let call = ["first", "--input", &format!("topic={topic}")];
        let (_, plan) = place.json(&[&["plan"], call.as_slice()].concat());
        assert_eq!(plan["first_message"]["pending"], json!([]));
        let (_, result) = place.json(&[&["run"], call.as_slice()].concat());
        let record = place.transcript(result["thread_id"].as_str().unwrap());
        let intended = record.iter().find(|event| event["type"] == "attempt_intended").unwrap();
        assert_eq!(intended["input_bound"], plan["tokens"]["input_bound"], "{topic}");
        let reserved = record.iter().find(|event| event["type"] == "reserved").unwrap();
        let nanos = Nanos::from_json(&plan["tokens"]["worst_case_cost"]).unwrap();
        assert_eq!(reserved["amount"], json!(nanos.to_u64()), "{topic}");
    }
}

#[test]
fn bare_directive_matches_its_plan() {
    let place = TestProject::example("hello");
    holds(&place, &["hello", "--input", "file=${thread_id} {input:file}"], &[], &["project_path"]);
}

#[test]
fn text_around_placeholders_matches_the_plan() {
    let place = TestProject::own();
    place.write(
        ".ai/directives/holes.md",
        "Holes.\n\n```xml\n<directive name=\"holes\" version=\"1.0.0\" extends=\"rye/agent/core/base\">\n<metadata>\
         <description>Has holes.</description><context><system>house/rules</system></context>\n\
         <permissions><execute><tool>rye.file-system.read</tool></execute></permissions>\n<hooks>\n\
         <hook id=\"where\" event=\"thread_started\" position=\"after\" wrap=\"false\">\
         <action primary=\"fetch\" item_type=\"knowledge\" item_id=\"house/where\"/></hook>\n\
         <hook id=\"rules_of_the_day\" event=\"build_system_prompt\" position=\"after\" wrap=\"false\">\
         <action primary=\"fetch\" item_type=\"knowledge\" item_id=\"house/day\"/></hook>\n\
         </hooks></metadata>\n</directive>\n```\n\nGo on.\n",
    );
    place.write(
        ".ai/knowledge/house/rules.md",
        "---\nname: rules\ndescription: d\n---\n\nNo ${thread_id} here: this is text.\n",
    );
    place.write(
        ".ai/knowledge/house/where.md",
        "---\nname: where\ndescription: d\n---\n\nYou are ${thread_id || \"nobody\"}.\n",
    );
    place.write(
        ".ai/knowledge/house/day.md",
        "---\nname: day\ndescription: d\n---\n\nToday ${thread_id} rules ${directive}.\n",
    );
    holds(&place, &["holes"], &["thread_id"], &["project_path", "thread_id"]);
}

#[test]
fn converted_tool_definitions_match_the_plan_on_every_wire() {
    let place = TestProject::own();
    write_tools(&place);
    for wire in ApiFormat::ALL {
        let (plan, sent) = planned_and_sent(&place, wire, &["draw"]);
        let (_, _, tools) = parts(wire, &sent);
        assert_eq!(planned_definitions(&plan), definitions(&tools), "{wire:?}");
        let draw = plan["palette"].as_array().unwrap().iter().find(|tool| tool["name"] == "art_draw").unwrap();
        assert_ne!(draw["sent"]["schema"], draw["schema"], "{wire:?}");
        assert!(!draw["sent"].is_null(), "{wire:?}");
        let html = place.run_ok(&["plan", "draw", "--model", &format!("{}/fast", wire.names().1), "--format", "html"]);
        assert!(html.contains("there is also the optional property"), "{wire:?}");
    }
}

#[test]
fn text_parsed_tools_match_the_plan_on_every_wire() {
    for wire in ApiFormat::ALL {
        let place = TestProject::own();
        write_tools(&place);
        let (name, _, variables) = wire.names();
        place.write(
            ".ai/config/agent/providers/words.yaml",
            &format!(
                "id: words\nwire: {name}\nbase_url: http://127.0.0.1:1\nbase_url_env: {variables}_BASE_URL\n\
                 key_env: {variables}_API_KEY\nkey_header: x-key\ndefault_tier: general\ntiers: {{ general: gemma }}\nmodels:\n  \
                 - {{ id: gemma, context_window: 100000, max_output: 2048, tool_use: text_parsed, \
                 prices: {{ input: \"1\", output: \"5\", cache_read: \"0.1\", cache_write: \"1\" }} }}\n"
            ),
        );
        let (plan, result, sent) = planned_run_and_sent(&place, wire, "words/general", &["draw"]);
        let (system, _, tools) = parts(wire, &sent);
        assert_eq!(tools, Vec::<Value>::new());
        assert_eq!(plan["system"]["text"], json!(system), "{wire:?}");
        assert!(system.contains("<tools>\n") && system.contains("Draws a tree."), "{system}");
        let layer = plan["system"]["layers"].as_array().unwrap().last().unwrap();
        assert_eq!((&layer["id"], &layer["via"]), (&json!("tool instructions"), &json!("palette")));
        assert!(layer["reasons"][0]["text"].as_str().unwrap().contains("text_parsed"), "{layer}");
        let tokens = &plan["tokens"];
        assert_eq!((&tokens["palette"], &tokens["system"]), (&json!(0), &layer["tokens"]));
        assert!(tokens["input_bound"].as_u64().unwrap() > system.len() as u64);

        let thread = result["thread_id"].as_str().unwrap();
        let record = place.transcript(thread);
        let recorded = record.iter().find(|event| event["type"] == "system_prompt").unwrap();
        assert_eq!(recorded["text"], json!(system));
        let intended = record.iter().find(|event| event["type"] == "attempt_intended").unwrap();
        assert_eq!(intended["input_bound"], tokens["input_bound"], "{wire:?}");
        let (code, proof) = place.json(&["threads", "prove", thread]);
        assert_eq!((code, &proof["proved"]), (Some(0), &json!(true)), "{proof}");
    }
}

/// Starts a chat against a recorder; returns the plan of the chat, its first request and its thread.
fn planned_and_sent_chat(place: &TestProject, wire: ApiFormat, prompt: &str) -> (Value, Value, String) {
    let recorder = Recorder::start(vec![wire.text_reply()]);
    let variables = wire.names().2;
    let model = format!("{}/fast", wire.names().1);
    let plan = place.run_ok(&["plan", "talk", "--chat", "--model", &model, "--format", "json"]);
    let mut command = place.command(&["chat", "talk", "--model", &model]);
    command
        .env(format!("{variables}_API_KEY"), "secret-of-the-test")
        .env(format!("{variables}_BASE_URL"), &recorder.url);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{prompt}").unwrap();
    let done = ProcessResult::from(child.wait_with_output().unwrap());
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "Noted.\n"), "{}", done.stderr);
    let sent = serde_json::from_slice(&recorder.requests.lock().unwrap()[0].body).unwrap();
    let (_, listed) = place.json(&["threads", "list", "--limit", "1"]);
    let thread = listed["threads"][0]["thread_id"].as_str().unwrap().to_owned();
    (serde_json::from_str(&plan).unwrap(), sent, thread)
}

/// Returns a project with the directive `talk`, and the parts of a chat that the bits of `parts` select.
fn chat_project(parts: u32) -> TestProject {
    let place = TestProject::own();
    let has = |bit: u32| parts & (1 << bit) != 0;
    let tools = if has(0) { "<tool>rye.file-system.*</tool>" } else { "<tool>rye.file-system.read</tool>" };
    let directive = rye::talk_directive(4, tools).replace(" provider=\"scripted\"", "");
    let directive = if has(1) {
        directive.replace("Answer briefly.", "Answer ${directive} briefly in \"quotes\" \\ and é🦀.")
    } else {
        directive
    };
    place.write(".ai/directives/talk.md", &directive);
    if has(2) {
        place.write("AGENTS.md", "Use tabs.\n");
        place.write(".ai/skills/tidy/SKILL.md", "---\nname: tidy\ndescription: Tidies.\n---\nTidy up.\n");
    }
    if has(3) {
        place.write(".ai/config/agent/chat.yaml", "append_system: house/rules\n");
        place.write(".ai/knowledge/house/rules.md", "---\nname: rules\ndescription: d\n---\n\nNo rush.\n");
    }
    if has(4) {
        place.write("../user/.ai/AGENTS.md", "Prefer small changes.\n");
    }
    place
}

/// Compares the first requests of twenty chats on a wire with their plans.
fn compare_chats(wire: ApiFormat) {
    for selected in 0..20 {
        let place = chat_project(selected);
        let prompt = format!("prompt {selected} with \"quotes\", é🦀 and ${{prompt}}");
        let (plan, sent, thread) = planned_and_sent_chat(&place, wire, &prompt);
        let (system, message, tools) = parts(wire, &sent);
        assert_eq!(plan["system"]["text"], json!(system), "{selected}");
        let pending = plan["first_message"]["pending"].as_array().unwrap();
        let names: Vec<&str> = pending.iter().map(|one| one["placeholder"].as_str().unwrap()).collect();
        assert_sent(&plan["first_message"], &message, &names);
        assert_eq!(names.last(), Some(&"prompt"), "{selected}");
        assert!(message.ends_with(&format!("\n\n{prompt}")), "{selected}: {message}");
        assert_eq!(planned_definitions(&plan), definitions(&tools), "{selected}");
        if selected % 7 == 0 {
            let (code, proof) = place.json(&["threads", "prove", &thread]);
            let proved = (code, &proof["proved"], &proof["plan_id"]);
            assert_eq!(proved, (Some(0), &json!(true), &plan["plan_id"]), "{selected}: {proof}");
        }
    }
}

// shows: interactive 7.11: plan = sent: first request of 20 chats on 4 wires equals `rye plan --chat` around `${prompt}`
#[test]
fn first_requests_of_twenty_chats_match_their_plans() {
    compare_chats(ApiFormat::Anthropic);
}

#[test]
fn first_requests_of_twenty_chats_match_their_plans_with_openai_chat() {
    compare_chats(ApiFormat::Openai);
}

#[test]
fn first_requests_of_twenty_chats_match_their_plans_with_openai_responses() {
    compare_chats(ApiFormat::Responses);
}

#[test]
fn first_requests_of_twenty_chats_match_their_plans_with_gemini() {
    compare_chats(ApiFormat::Gemini);
}
