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
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
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
    assert!(done.stderr.contains("tool result 1 differs in line 1: recorded was `"), "{}", done.stderr);
    assert!(done.stderr.contains("Ada") && done.stderr.contains("Eve"), "{}", done.stderr);

    let loose = place.run_ok(&["threads", "export", thread, "--script", "--loose"]);
    assert!(!loose.contains("expect"), "{loose}");
    place.write("loose.json", &loose);
    assert_eq!(place.json(&["run", "hello", "--script", "loose.json"]).1["outputs"], first["outputs"]);
    assert_eq!(place.rye(&["threads", "export", thread]).code, Some(2));
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
