//! Tests of scripts played from any point, and of invalid scripts.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::Mutex;

use serde_json::json;

use super::*;
use crate::exchange::{ThreadPosition, ToolDefinition};
use crate::message::MALFORMED_KEY;
use crate::provider::Wire;
use crate::provider::fixture::{assistant, call as tool_call_block, minimal_request, result, text, user};
use crate::provider::settings::{KeyHeader, MaxTokensField, Timeouts};

fn scripted(yaml: &str) -> Scripted {
    Scripted::new(Script::parse(yaml).unwrap())
}

async fn play(provider: &Scripted, request: &Request) -> (Vec<Delta>, Result<Reply, CallError>) {
    let deltas = Mutex::new(Vec::new());
    let outcome = provider.call(request, &|delta| deltas.lock().unwrap().push(delta)).await;
    (deltas.into_inner().unwrap(), outcome)
}

/// Returns a request after `replies` replies, at attempt `attempt`.
fn at(replies: usize, attempt: u32) -> Request {
    let mut request = minimal_request();
    for _ in 0..replies {
        request.turns.push(assistant(vec![text("Before.")]));
        request.turns.push(user(vec![text("On.")]));
    }
    request.cue =
        ThreadPosition { directive: "project/main".to_owned(), turn: None, attempt, ..ThreadPosition::default() };
    request
}

const FIVE_STEPS: &str = r#"
steps:
  - one
  - fault: { status: 429, headers: { Retry-After: "1" }, error: { type: rate_limit_error, code: slow, message: Slow down. } }
  - fault: { cut: true, usage: { input: 9 } }
    after: "half an "
    times: 2
  - text: two
    thinking: Hm.
    tool_calls:
      - { name: read, input: { path: a } }
      - { name: read, arguments: '{"path' }
      - { name: ls, id: mine }
    usage: { input: 100, output: 20 }
  - { text: three, stop: length }
threads:
  project/child:
    - child
"#;

#[tokio::test]
async fn step_depends_only_on_the_request() {
    let provider = scripted(FIVE_STEPS);
    let answer = |replies, attempt| {
        let provider = provider.clone();
        async move { play(&provider, &at(replies, attempt)).await.1 }
    };
    assert_eq!(answer(0, 0).await.unwrap().content, [text("one")]);
    assert_eq!(answer(0, 7).await.unwrap().content, [text("one")]);
    assert_eq!(answer(1, 0).await.unwrap_err().status, Some(429));
    assert_eq!(answer(1, 1).await.unwrap_err().stage, FailedStage::Truncated);
    assert_eq!(answer(1, 2).await.unwrap_err().stage, FailedStage::Truncated);
    assert_eq!(answer(1, 3).await.unwrap().content[1], text("two"));
    assert_eq!(answer(1, u32::MAX).await.unwrap().content[1], text("two"));
    assert_eq!(answer(2, 0).await.unwrap().stop, StopReason::Length);
    // If the calls are repeated in another order, the replies stay the same.
    assert_eq!(answer(1, 0).await.unwrap_err().status, Some(429));
    let over = answer(3, 0).await.unwrap_err();
    assert_eq!((over.stage, over.code.as_deref()), (FailedStage::Setup, Some(SCRIPT_ERROR)));
    assert_eq!(
        over.message,
        "the script is at its end: it has 3 replies for a thread of `project/main`, and this is attempt 1 of request 4 of \
         the thread; add a step to the script"
    );
}

#[tokio::test]
async fn explicit_turn_overrides_counted_replies() {
    let mut request = at(0, 0);
    request.cue.turn = Some(2);
    assert_eq!(play(&scripted(FIVE_STEPS), &request).await.1.unwrap().content, [text("three")]);
}

#[tokio::test]
async fn a_directive_plays_its_own_branch() {
    let mut request = at(0, 0);
    request.cue.directive = "project/child".to_owned();
    assert_eq!(play(&scripted(FIVE_STEPS), &request).await.1.unwrap().content, [text("child")]);
}

#[tokio::test]
async fn reply_has_all_scripted_fields() {
    let (deltas, reply) = play(&scripted(FIVE_STEPS), &at(1, 3)).await;
    let reply = reply.unwrap();
    assert_eq!(
        reply.content,
        [
            ContentBlock::Thinking { text: "Hm.".into(), signature: None },
            text("two"),
            tool_call_block("call_2_1", "read", json!({"path": "a"})),
            tool_call_block("call_2_2", "read", json!({MALFORMED_KEY: "{\"path"})),
            tool_call_block("mine", "ls", json!({})),
        ]
    );
    assert_eq!(reply.stop, StopReason::ToolUse);
    assert_eq!(reply.usage, Usage { input: 100, output: 20, ..Usage::default() });
    assert_eq!(reply.model.as_deref(), Some("model-1"));
    assert_eq!(deltas.len(), 2 + 3 * 2);
}

#[tokio::test]
async fn fault_has_all_scripted_fields() {
    let error = play(&scripted(FIVE_STEPS), &at(1, 0)).await.1.unwrap_err();
    assert_eq!(error.stage, FailedStage::Status);
    assert_eq!(error.headers, [("retry-after".to_owned(), "1".to_owned())]);
    assert_eq!((error.error_type.as_deref(), error.code.as_deref()), (Some("rate_limit_error"), Some("slow")));
    assert_eq!(error.message, "Slow down.");
    let (deltas, error) = play(&scripted(FIVE_STEPS), &at(1, 1)).await;
    assert_eq!(deltas, [Delta::Text("half ".to_owned()), Delta::Text("an ".to_owned())]);
    assert_eq!(error.unwrap_err().usage, Some(Usage { input: 9, ..Usage::default() }));
}

#[tokio::test]
async fn undeclared_usage_is_estimated() {
    let reply = play(&scripted("steps: ['12345678']"), &at(0, 0)).await.1.unwrap();
    // The input is `Be brief.` and `Hello`: 14 characters.
    assert_eq!(reply.usage, Usage { input: 4, output: 2, ..Usage::default() });
}

#[tokio::test]
async fn scripted_delays_are_respected() {
    let started = std::time::Instant::now();
    play(&scripted("steps: [{text: a b c, delay_ms: 40, pace_ms: 20}]"), &at(0, 0)).await.1.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(100));
}

#[tokio::test]
async fn first_missing_fragment_is_reported() {
    let mut request = at(1, 0);
    request.turns.push(assistant(vec![tool_call_block("a", "read", json!({}))]));
    request.turns.push(result("a", "found Ada", false));
    request.turns.push(result("b", "and Bob", false));
    request.tools.push(ToolDefinition { name: "read".into(), description: "".into(), schema: json!({}).into() });
    let check = |expect: &str| {
        let steps = format!("steps: [a, b, {{ text: c, expect: {expect} }}]");
        let request = request.clone();
        async move { play(&scripted(&steps), &request).await.1.map_err(|error| error.message) }
    };
    let all = "{ system: [brief, Be], user: On., results: [Ada, Bob], tools: read }";
    assert!(check(all).await.is_ok());
    let differs = |rest: &str| Err(format!("turn 3 of `project/main` differs from its script: {rest}"));
    let message = |outcome: Result<Reply, String>| outcome.map(|_| ());
    assert_eq!(
        message(check("{ system: long }").await),
        differs("the system prompt should contain `long`, but is `Be brief.`")
    );
    assert_eq!(
        message(check("{ user: Hello }").await),
        differs("the last user message should contain `Hello`, but is `On.`")
    );
    assert_eq!(
        message(check("{ results: [Ada, Eve] }").await),
        differs("the tool results should contain `Eve`, but is `found Ada\nand Bob`")
    );
    assert_eq!(
        message(check("{ tools: [read, ls] }").await),
        differs("the palette has no tool `ls`; its tools are `read`")
    );
}

#[test]
fn invalid_script_is_refused_with_its_step() {
    let refused = |text: &str| Script::parse(text).unwrap_err().0;
    assert_eq!(refused("[]"), "a script must be a mapping with `steps`: write `steps:` above the list");
    assert!(refused("{stebs: []}").starts_with("line 1: unknown key `stebs`"));
    assert_eq!(refused("{steps: {}}"), "line 1: `steps` must be a list of steps");
    assert_eq!(refused("threads: []"), "line 1: `threads` must map directive ids to steps");
    assert!(refused("steps:\n  - a\n  - txt: b\n").starts_with("line 3: step 2 of `steps`: unknown field `txt`"));
    assert!(
        refused("steps: []\nthreads:\n  x/y:\n    - {fault: {code: 1}}\n")
            .starts_with("line 4: step 1 of `threads.x/y`: unknown field `code`")
    );
    let unparsed = Script::from_value(&serde_json::json!({"steps": [{"txt": "b"}]})).unwrap_err().0;
    assert!(unparsed.starts_with("step 1 of `steps`: unknown field `txt`"), "{unparsed}");
    assert!(refused("{steps: [{tool_calls: [{input: {}}]}]}").contains("missing field `name`"));
    assert!(refused("{steps: [{stop: never}]}").starts_with("line 1: step 1 of `steps`: "));
    assert!(refused("{steps: [3]}").starts_with("line 1: step 1 of `steps`: "));
    assert!(refused("steps:\n  - a\n  - [").starts_with("line 3: "));
}

#[test]
fn script_serialization_round_trips() {
    let script = Script::parse(FIVE_STEPS).unwrap();
    let value = serde_json::to_value(&script).unwrap();
    assert_eq!(Script::from_value(&value).unwrap(), script);
    assert_eq!(value["steps"][1]["fault"]["status"], 429);
    assert_eq!(value["steps"][0], json!({"text": "one"}));
}

#[test]
fn the_examples_have_scripts() {
    for example in ["hello", "review", "deploy"] {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(example).join("script.yaml");
        let script = Script::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert!(script.steps.len() >= 2, "{example}");
    }
}

#[test]
fn missing_script_is_a_setup_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script.yaml");
    let settings = ProviderSettings {
        id: "scripted".to_owned(),
        wire: Wire::Scripted,
        base_url: String::new(),
        key: None,
        key_env: None,
        key_header: KeyHeader::Bearer,
        max_tokens_field: MaxTokensField::MaxTokens,
        encrypted_reasoning: true,
        script: Some(path.clone()),
        timeouts: Timeouts::default(),
    };
    let refused = || Scripted::connect(&settings).unwrap_err();
    assert_eq!(refused().stage, FailedStage::Setup);
    std::fs::write(&path, b"steps: [\xFF]").unwrap();
    assert!(refused().message.ends_with("is not UTF-8"));
    std::fs::write(&path, "steps: [{x: 1}]").unwrap();
    assert!(refused().message.contains("step 1 of `steps`"));
    std::fs::write(&path, FIVE_STEPS).unwrap();
    assert!(Scripted::connect(&settings).is_ok());
}

#[test]
fn named_pipe_is_refused_as_script() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, large) = (folder.path().join("pipe.yaml"), folder.path().join("large.yaml"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::File::create(&large).unwrap().set_len(MAX_SCRIPT_FILE_BYTES + 1).unwrap();
    assert_eq!(read_script(&pipe).unwrap_err(), "it is not a regular file");
    assert_eq!(read_script(folder.path()).unwrap_err(), "it is not a regular file");
    assert_eq!(read_script(Path::new("/dev/zero")).unwrap_err(), "it is not a regular file");
    assert_eq!(read_script(&large).unwrap_err(), "the file is larger than 64 MiB");
}
