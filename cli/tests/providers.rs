//! Tests of `rye providers`, `rye threads export` and prompt caches as processes, with a loopback server or a script.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use rye::TestProject;
use serde_json::{Value, json};

/// Starts a loopback server that answers every request with the same bytes and closes the connection.
fn server(status: &'static str, kind: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
            loop {
                let read = stream.read(&mut buffer).unwrap();
                bytes.extend_from_slice(&buffer[..read]);
                let text = String::from_utf8_lossy(&bytes).to_lowercase();
                let Some((head, rest)) = text.split_once("\r\n\r\n") else { continue };
                let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
                if read == 0 || rest.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                    break;
                }
            }
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            // The client may have closed the connection early; its reaction is what the test checks.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
        }
    });
    url
}

/// Returns a project with a provider at this address.
fn place(url: &str) -> TestProject {
    let place = TestProject::own();
    place.write(
        ".ai/config/agent/providers/local.yaml",
        &format!(
            "id: local\nwire: openai-chat\nbase_url: {url}\ndefault_tier: general\ntiers: {{ general: small }}\n\
             models:\n  - {{ id: small, context_window: 8192, max_output: 2048 }}\n"
        ),
    );
    place.write(".ai/config/agent/models.yaml", "default_provider: local\n");
    place
}

const TEXT: &str = include_str!("../../engine/fixtures/streams/openai-text.sse");

#[test]
fn every_provider_is_listed_with_its_key_and_its_prices() {
    let (code, listed) = place("http://localhost:1").json(&["providers", "list"]);
    assert_eq!(code, Some(0));
    let listed = listed["providers"].as_array().unwrap();
    let ids: Vec<&str> = listed.iter().map(|provider| provider["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["anthropic", "gemini", "local", "openai", "openai-responses", "scripted"]);
    let local = &listed[2];
    assert_eq!(
        (&local["default"], &local["key"], &local["base_url"]),
        (&json!(true), &json!("none"), &json!("http://localhost:1"))
    );
    assert!(local["from_project"].as_array().unwrap().contains(&json!("base_url")));
    assert_eq!(local["models"][0]["prices"], Value::Null);
    let gemini = &listed[1];
    assert_eq!(
        (&gemini["key"], &gemini["key_env"], &gemini["wire"]),
        (&json!("missing"), &json!("GEMINI_API_KEY"), &json!("gemini"))
    );
    for model in gemini["models"].as_array().unwrap() {
        assert!(model["prices"]["input"].is_string() && model["priced_at"].is_string() && model["source"].is_string());
    }
    let place = place("http://localhost:1");
    let people = place.run_ok(&["providers", "list"]);
    assert!(people.contains("local (default)  openai-chat  http://localhost:1  no key needed"), "{people}");
    assert!(people.contains("no price: only tokens are counted"), "{people}");
    let plain = place.run_ok(&["providers", "list", "--format", "plain"]);
    assert!(plain.contains("provider\tlocal\topenai-chat\thttp://localhost:1\tno key needed\n"), "{plain}");
}

#[test]
fn providers_test_reports_success_and_failure() {
    let place_that_works = place(&server("200 OK", "text/event-stream", TEXT));
    let (code, report) = place_that_works.json(&["providers", "test"]);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(
        (&report["ok"], &report["provider"], &report["model"]),
        (&json!(true), &json!("local"), &json!("small"))
    );
    assert_eq!(
        (&report["input_tokens"], &report["output_tokens"], &report["cost"]),
        (&json!(1625), &json!(15), &Value::Null)
    );
    let line = place_that_works.run_ok(&["providers", "test", "local"]);
    assert!(line.starts_with("local/small: ok in ") && line.contains("price unknown: Grüße, world"), "{line}");

    let refused = place(&server("401 Unauthorized", "application/json", r#"{"error":{"message":"who are you?"}}"#));
    let done = refused.rye(&["providers", "test"]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stdout.contains("who are you?: a key is required; set `key_env`"), "{}", done.stdout);
    let done = refused.rye(&["providers", "test", "locl"]);
    assert_eq!(done.code, Some(2));
    assert!(done.stderr.contains("did you mean `local`?"), "{}", done.stderr);
    let done = refused.rye(&["providers", "test", "local", "--model", "smal"]);
    assert!(done.code == Some(1) && done.stderr.contains("small"), "{}", done.stderr);
    let done = refused.rye(&["providers", "test", "anthropic"]);
    assert!(done.code == Some(1) && done.stdout.contains("ANTHROPIC_API_KEY"), "{}", done.stdout);
}

#[test]
fn providers_test_names_the_likely_cause_of_each_status() {
    for (status, cause) in [
        ("302 Found", "redirects are not followed; set `base_url` in `.ai/config/agent/providers/local.yaml`"),
        ("402 Payment Required", "has no credit"),
        ("429 Too Many Requests", "the rate limit or the quota of the key is used up"),
        ("500 Internal Server Error", "try again later"),
    ] {
        let place = place(&server(status, "application/json", r#"{"error":{"message":"msg"}}"#));
        let done = place.rye(&["providers", "test"]);
        assert_eq!(done.code, Some(1), "{status}: {}", done.stderr);
        assert!(done.stdout.contains(cause), "{status}: {}", done.stdout);
    }
}

#[test]
fn providers_test_ends_without_a_complete_reply() {
    // The server accepts the connection and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = place(&format!("http://{}", listener.local_addr().unwrap()));
    let done = silent.rye(&["providers", "test", "--timeout", "1"]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    let hint = "no complete reply within 1 s: check `base_url` in `.ai/config/agent/providers/local.yaml`";
    assert!(done.stdout.contains(hint), "{}", done.stdout);
}

#[test]
fn providers_test_names_the_file_of_the_user_space() {
    let place = place("http://127.0.0.1:9");
    let file = ".ai/config/agent/providers/local.yaml";
    let of_user = place.user().join(file);
    std::fs::create_dir_all(of_user.parent().unwrap()).unwrap();
    std::fs::rename(place.project().join(file), of_user).unwrap();
    let done = place.rye(&["providers", "test", "local"]);
    assert!(done.stdout.contains(&format!("check `base_url` in `user:{file}`")), "{}", done.stdout);
}

#[test]
fn providers_test_sends_a_key_only_where_trust_allows_it() {
    let place = place(&server("200 OK", "text/event-stream", TEXT));
    let file = ".ai/config/agent/providers/local.yaml";
    place.write(file, &format!("{}key_env: PLANTED_API_KEY\n", place.read(file)));
    let test = || {
        let mut command = place.command(&["providers", "test"]);
        let output = command.env("PLANTED_API_KEY", "an-unusual-value-0123456789").output().unwrap();
        rye::ProcessResult::from(output)
    };
    let refused = test();
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    assert!(refused.stdout.contains("`rye trust`") && !refused.stdout.contains("Grüße"), "{}", refused.stdout);
    place.run_ok(&["trust"]);
    let done = test();
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("Grüße, world"), "{}", done.stdout);
}

#[test]
fn exported_script_replays_and_reports_the_first_difference() {
    let place = TestProject::example("hello");
    place.write("guest.txt", "Ada\nplanted-secret-value\n");
    let (code, first) = place.json(&["run", "hello"]);
    assert_eq!(code, Some(0));
    let thread = first["thread_id"].as_str().unwrap();
    let mut exported = place.command(&["threads", "export", thread, "--script", "-o", "recorded.json"]);
    let done = exported.env("PLANTED_API_KEY", "planted-secret-value").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let script: Value = serde_json::from_str(&place.read("recorded.json")).unwrap();
    assert!(!script.to_string().contains("planted-secret"), "{script}");
    assert!(script.to_string().contains("[masked: PLANTED_API_KEY]"), "{script}");

    place.run_ok(&["threads", "export", thread, "--script", "-o", "recorded.json"]);
    let (code, again) = place.json(&["run", "hello", "--script", "recorded.json"]);
    assert_eq!(code, Some(0), "{again}");
    assert_eq!(
        (&again["outputs"], &again["cost"]["input_tokens"]),
        (&first["outputs"], &first["cost"]["input_tokens"])
    );

    place.write("guest.txt", "Eve\nplanted-secret-value\n");
    let done = place.rye(&["run", "hello", "--script", "recorded.json"]);
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("tool result 1 differs in line 1: the recording has `"), "{}", done.stderr);
    assert!(done.stderr.contains("Ada") && done.stderr.contains("Eve"), "{}", done.stderr);

    let loose = place.run_ok(&["threads", "export", thread, "--script", "--loose"]);
    assert!(!loose.contains("expect"), "{loose}");
    place.write("loose.json", &loose);
    assert_eq!(place.json(&["run", "hello", "--script", "loose.json"]).1["outputs"], first["outputs"]);
    assert_eq!(place.rye(&["threads", "export", thread]).code, Some(2));
}

#[test]
fn export_of_a_handed_over_run_states_that_its_replay_fails() {
    let place = TestProject::own();
    let tools = "<tool>rye.file-system.read</tool>";
    let work = rye::talk_directive(9, tools).replace("name=\"talk\"", "name=\"work\"");
    place.write(".ai/directives/work.md", &work.replace("provider=\"scripted\"", "provider=\"tiny\""));
    place.write(
        ".ai/config/agent/providers/tiny.yaml",
        "id: tiny\nwire: scripted\nscript: script.yaml\ndefault_tier: fast\ntiers: { fast: small }\nmodels:\n  - { id: small, context_window: 6000, \
         max_output: 1024, tool_use: native, prices: { input: 1, output: 5 }, priced_at: \"2026-11-21\", source: invented }\n",
    );
    place.write("one.txt", &"some words in a line\n".repeat(450));
    place.write("two.txt", &"other words in a line\n".repeat(450));
    let read = |file: &str| format!("  - tool_calls: [{{ name: rye_file_system_read, input: {{ path: {file} }} }}]\n");
    place.write("script.yaml", &format!("steps:\n{}{}  - Done.\n", read("one.txt"), read("two.txt")));
    place.json(&["run", "work"]);
    let (_, listed) = place.json(&["threads", "list", "--directive", "work"]);
    let threads = listed["threads"].as_array().unwrap();
    assert!(threads.len() > 1, "{listed}");
    for thread in threads {
        let id = thread["thread_id"].as_str().unwrap();
        let exported = place.rye(&["threads", "export", id, "--script", "-o", "recorded.json"]);
        let is_first = place.transcript(id)[2]["type"] != "continues";
        let relation = if is_first { "was handed over to" } else { "continues" };
        let note = format!(
            "`{id}` {relation} another thread: the script holds the requests of one thread, so its replay ends"
        );
        assert!(exported.stderr.contains(&note), "{}", exported.stderr);
        let replayed = place.rye(&["run", "work", "--script", "recorded.json"]);
        assert!(replayed.stderr.contains("error: script_mismatch: "), "{}", replayed.stderr);
    }
}

#[test]
fn show_prints_cache_use() {
    let place = TestProject::example("hello");
    place.write(
        "cached.yaml",
        "steps:\n  - text: Hm.\n    tool_calls: [{ name: rye_file_system_read, input: { path: guest.txt } }]\n    \
         usage: { input: 100, output: 5, cache_write: 900 }\n  - tool_calls:\n      - name: rye_directive_return\n        \
         input: { name: Ada, greeting: Hi }\n    usage: { input: 100, output: 5, cache_read: 900 }\n",
    );
    let (_, run) = place.json(&["run", "hello", "--script", "cached.yaml"]);
    let thread = run["thread_id"].as_str().unwrap();
    let (_, shown) = place.json(&["threads", "show", thread]);
    assert_eq!(
        shown["cache"],
        json!({"prompt_tokens": 2000, "read_tokens": 900, "written_tokens": 900, "hit_percent": 45})
    );
    let people = place.run_ok(&["threads", "show", thread]);
    assert!(people.contains("45 % of 2000 prompt tokens read from the cache, 900 written to it"), "{people}");
}

const HELLO: &str = "# Hello\n\nSays hello.\n\n```xml\n<directive name=\"hello\" version=\"1.0.0\">\n  <metadata>\n    <model provider=\"anthropic\" tier=\"fast\"/>\n    <permissions/>\n  </metadata>\n</directive>\n```\n\nSay hello.\n";

fn hello() -> TestProject {
    let place = TestProject::own();
    place.write(".ai/directives/hello.md", HELLO);
    place
}

#[test]
fn unlisted_model_of_the_user_has_a_plan_and_no_price() {
    let place = hello();
    let (code, plan) = place.json(&["plan", "hello", "--model", "anthropic/claude-new"]);
    assert_eq!((code, &plan["model"]["id"]), (Some(0), &json!("claude-new")), "{plan}");
    assert_eq!((&plan["cost"]["first"]["cost"], &plan["cost"]["worst"]["cost"]), (&Value::Null, &Value::Null));
    let warning = &plan["diagnostics"][0];
    assert_eq!((&warning["code"], plan["diagnostics"].as_array().unwrap().len()), (&json!("rye::model::unpriced"), 1));
    let message = warning["message"].as_str().unwrap();
    assert!(message.contains("does not list `claude-new`") && message.contains("200000 tokens"), "{message}");
    // Money cannot be counted, so a limit on it cannot hold.
    let limited = place.rye(&["plan", "hello", "--model", "anthropic/claude-new", "--limit", "spend=1"]);
    assert_eq!(limited.code, Some(1), "{}", limited.stderr);
    let add = "rye providers add anthropic/claude-new";
    assert!(limited.stderr.contains("limit::unpriced") && limited.stderr.contains(add), "{}", limited.stderr);
    for (model, help) in
        [("claude-new", "--model PROVIDER/claude-new"), ("antropic/claude-new", "did you mean `anthropic/claude-new`?")]
    {
        let refused = place.rye(&["plan", "hello", "--model", model]);
        assert_eq!(refused.code, Some(1), "{model}: {}", refused.stderr);
        assert!(refused.stderr.contains("model::unknown") && refused.stderr.contains(help), "{}", refused.stderr);
    }
    // A directive can name only a model that a provider file lists.
    place.write(".ai/directives/hello.md", &HELLO.replace("tier=\"fast\"", "id=\"claude-new\""));
    let checked = place.rye(&["check"]);
    assert!(checked.code == Some(1) && checked.stderr.contains(add), "{}", checked.stderr);
}

#[test]
fn models_and_prices_are_added_to_the_user_space() {
    let place = hello();
    let file = place.user().join(".ai/config/agent/providers/anthropic.yaml");
    let unknown = place.rye(&["providers", "add", "anthropic/claude-new"]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("--context-window TOKENS --max-output TOKENS"), "{}", unknown.stderr);
    let add = |price: &'static str| {
        let sizes = ["--context-window", "300000", "--max-output", "9000"];
        let prices = ["--input-price", price, "--output-price", "15", "--priced-at", "2026-11-01"];
        [&["providers", "add", "anthropic/claude-new"][..], &sizes, &prices].concat()
    };
    let invalid = place.rye(&add("dear"));
    assert_eq!((invalid.code, file.exists()), (Some(1), false), "{}{}", invalid.stdout, invalid.stderr);
    let (code, listed) = place.json(&add("3"));
    assert_eq!((code, listed["providers"].as_array().unwrap().len()), (Some(0), 1), "{listed}");
    let model = &listed["providers"][0]["models"][0];
    assert_eq!(
        (&model["id"], &model["context_window"], &model["prices"]["cache_read"]),
        (&json!("claude-new"), &json!(300_000), &json!("3"))
    );
    let (code, plan) = place.json(&["plan", "hello", "--model", "anthropic/claude-new", "--limit", "spend=1"]);
    assert_eq!((code, plan["diagnostics"].as_array().unwrap().len()), (Some(0), 0), "{plan}");
    // Newer prices replace all prices in the provider file, including the prices of long prompts. Older prices do not.
    place.write(
        "prices.yaml",
        "priced_at: \"2026-12-01\"\nsource: https://prices.test\nmodels:\n  anthropic/claude-new: { input: \"4\", output: \"20\" }\n  \
         anthropic/claude-haiku-5-5: { input: 0.2, output: 1 }\n",
    );
    let (code, listed) = place.json(&["providers", "refresh-prices", "prices.yaml"]);
    assert_eq!((code, listed["providers"][0]["models"].as_array().unwrap().len()), (Some(0), 2), "{listed}");
    let (_, plan) = place.json(&["plan", "hello"]);
    assert_eq!(plan["model"]["prices"]["long_prompt"], Value::Null, "{}", plan["model"]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("context_window: 300000") && text.contains("priced_at: \"2026-12-01\""), "{text}");
    place.write("old.yaml", "priced_at: \"2020-01-01\"\nmodels: { anthropic/claude-new: { input: 1, output: 1 } }\n");
    let old = place.rye(&["providers", "refresh-prices", "old.yaml"]);
    assert!(old.code == Some(0) && old.stderr.contains("has newer prices (dated 2026-12-01)"), "{}", old.stderr);
    for (name, content, says) in [
        ("a.yaml", "models: {}", "`priced_at` is missing"),
        ("b.yaml", "priced_at: \"soon\"\nmodels: {}", "`priced_at` is not a date"),
        ("c.yaml", "priced_at: \"2026-12-02\"\nprices: {}", "unknown key `prices`"),
        (
            "d.yaml",
            "priced_at: \"2026-12-02\"\nmodels: { anthropic/claude-neww: { input: 1, output: 1 } }",
            "anthropic/claude-new`?",
        ),
        (
            "e.yaml",
            "priced_at: \"2026-12-02\"\nmodels: { anthropic/claude-new: { input: x, output: 1 } }",
            "claude-new.prices.input",
        ),
    ] {
        place.write(name, content);
        let refused = place.rye(&["providers", "refresh-prices", name]);
        assert!(matches!(refused.code, Some(1 | 2)) && refused.stderr.contains(says), "{name}: {}", refused.stderr);
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "a refused file changes nothing");
}
