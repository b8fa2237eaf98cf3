//! Tests of `rye eval` as a process: input, output and exit codes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn rye(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rye"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().ok();
    output
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn every_line_is_answered_in_its_order() {
    let mut input = b"{\"id\": 1, \"condition\": \"a == 1\", \"facts\": {\"a\": 1.0}}\r\nnonsense\n\n".to_vec();
    input.extend(b"{\"id\": \"\xff\", \"glob\": {\"pattern\": \"a*\", \"text\": \"ab\"}}\n");
    input.extend(b"{\"id\": [4], \"condition\": {\"path\": \"x\", \"op\": \"exists\"}, \"unknown\": [\"x\"]}");
    let output = rye(&["eval"], &input);
    assert!(output.status.success());
    let answers: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 5);
    assert_eq!(answers[0], serde_json::json!({"id": 1, "ok": true}));
    assert_eq!(answers[1]["error"]["code"], "json");
    assert_eq!(answers[2]["error"]["code"], "json");
    assert_eq!(answers[3]["ok"], true);
    assert_eq!(answers[4], serde_json::json!({"id": [4], "ok": {"unknown": ["x"]}}));
}

#[test]
fn text_that_would_fill_the_memory_is_an_error() {
    let value = "x".repeat(10_000);
    let requests = [
        serde_json::json!({"template": "${a}".repeat(500_000), "facts": {"a": value}}),
        serde_json::json!({"inputs_text": "{input:a}".repeat(500_000), "inputs": {"a": value}}),
        serde_json::json!({"template": "${a}${a}", "facts": {"a": value}}),
    ];
    let lines: Vec<String> = requests.iter().map(Value::to_string).collect();
    let output = rye(&["eval"], lines.join("\n").as_bytes());
    let answers: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for refused in &answers[..2] {
        assert_eq!(refused["error"]["message"], "the filled text would have more than 16 MiB");
    }
    assert_eq!(answers[2]["ok"].as_str().map(str::len), Some(20_000));
}

#[test]
fn invalid_line_keeps_its_id() {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let lines = [
        format!("\u{feff}{}", r#"{"id": "mark", "glob": {"pattern": "a", "text": "a"}}"#),
        format!(r#"{{"id": "deep", "condition": {deep}}}"#),
        format!(r#"{{"condition": {deep}, "id": "deep-first"}}"#),
        r#"{"id": "half", "template": "\ud800"}"#.to_owned(),
        r#"{"id": "huge", "ledger": [["register", "a", 1e400]]}"#.to_owned(),
        r#"{"id": "two", "condition": "1 == 1"} {"id": "three"}"#.to_owned(),
        r#"{"id": 18446744073709551616, "condition": "1 == 1"}"#.to_owned(),
        r#"{"id": "torn", "condition": "1 =="#.to_owned(),
        r#"{"condition": {"id": "inner"}, "#.to_owned(),
    ];
    let output = rye(&["eval"], lines.join("\n").as_bytes());
    assert!(output.status.success());
    let answers: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(answers[0], r#"{"id":"mark","ok":true}"#);
    let ids =
        [r#""deep""#, r#""deep-first""#, r#""half""#, r#""huge""#, r#""two""#, "18446744073709551616", r#""torn""#];
    for (answer, id) in answers[1..].iter().zip(ids) {
        assert!(answer.starts_with(&format!(r#"{{"id":{id},"error":{{"code":"json","message":"#)), "{answer}");
    }
    assert!(answers[8].starts_with(r#"{"error":"#), "{}", answers[8]);
    assert_eq!(answers.len(), 9);
}

#[test]
fn binary_and_library_give_equal_answers() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../snapshots/contract");
    let (mut requests, mut want) = (String::new(), Vec::new());
    for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if file.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        for line in std::fs::read_to_string(file).unwrap().lines() {
            let mut case: Value = serde_json::from_str(line).unwrap();
            case["in"]["id"] = case["id"].take();
            let request = case["in"].to_string();
            want.push(rye_compiler::semantics::eval::answer(&request));
            requests.push_str(&request);
            requests.push('\n');
        }
    }
    let output = rye(&["eval"], requests.as_bytes());
    let given: Vec<&str> = text(&output.stdout).lines().collect();
    // The tests of the compiler check the answers. The number proves that no request of the contract was left out.
    assert_eq!(given.len(), 3494);
    assert_eq!(given, want);
}

#[test]
fn single_requests_by_flags() {
    let fine = |args: &[&str], want: &str| {
        let output = rye(args, b"");
        assert_eq!(text(&output.stdout), want, "{args:?}");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
    };
    fine(&["eval", "--condition", "a == 1", "--facts", r#"{"a": 1}"#], "true\n");
    fine(&["eval", "--condition", r#"{"path": "a"  , "value": 2}"#, "--unknown", "a"], "{\"unknown\":[\"a\"]}\n");
    fine(&["eval", "--template", "x${a}", "--facts", r#"{"a": [1]}"#], "x[1]\n");
    fine(&["eval", "--inputs-text", "hi {input:n}", "--inputs", r#"{"n": "Ann"}"#], "hi Ann\n");
    fine(&["eval", "--glob", "a[!b]", "ac"], "true\n");
    fine(&["--format", "json", "eval", "--glob", "a", "b"], "{\"ok\":false}\n");
    let refused = rye(&["eval", "--condition", "a ="], b"");
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(1), ""));
    assert!(text(&refused.stderr).starts_with("error: "));
    let refused = rye(&["eval", "--condition", "a =", "--format", "json"], b"");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stdout).starts_with("{\"error\":"));
    for usage in [
        &["eval", "--facts", "{}"][..],
        &["eval", "--condition", "a", "--template", "b"],
        &["eval", "--ledger", "[1"],
        &["eval", "--glob", "a"],
        &["nonsense"],
    ] {
        assert_eq!(rye(usage, b"").status.code(), Some(2), "{usage:?}");
    }
}

#[test]
fn completions_and_schemas_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&rye(&["completions", shell], b"").stdout).contains("rye"));
    }
    let names = rye(&["schema"], b"");
    for name in text(&names.stdout).lines() {
        let schema: Value = serde_json::from_str(text(&rye(&["schema", name], b"").stdout)).unwrap();
        assert!(schema.get("$schema").is_some(), "{name}");
    }
}
