//! Tests of HTTP tools: requests, responses, and parameters that try to leave their part of the URL.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use rye_compiler::tool_spec::ToolKind;
use rye_compiler::tool_spec::ToolSpec;
use rye_grammar::SourceId;
use rye_grammar::tool_header::{self, NoScriptReader, ToolLanguage};

use super::*;
use crate::tool::web::tests::{http, serve};

fn tool(yaml: &str) -> HttpTool {
    let parsed = tool_header::parse(SourceId(0), yaml, ToolLanguage::Yaml, &NoScriptReader);
    assert_eq!(parsed.errors, []);
    let spec = ToolSpec::read(&parsed.tree).unwrap();
    let ToolKind::Http(http) = spec.kind else { panic!("a request") };
    let (file, environment) = (ToolFile::default(), spec.environment);
    HttpTool { http, file, timeout: Duration::from_secs(5), environment }
}

fn invocation(parameters: Value, net: &[&str]) -> Invocation {
    Invocation {
        net: net.iter().map(|h| (*h).to_owned()).collect(),
        local_hosts: net.iter().map(|h| (*h).to_owned()).collect(),
        ..Invocation::sample("project/x", &std::env::temp_dir(), parameters)
    }
}

#[tokio::test]
async fn http_tool_sends_the_declared_request() {
    let address =
        serve(|request| http("200 OK", &[("content-type", "application/json")], &json!({"got": request}).to_string()))
            .await;
    let tool = tool(&format!(
        "description: x\nkind: http\nmethod: POST\nurl: 'http://127.0.0.1:{}/items/{{id}}?q={{q}}'\n\
         headers: {{ X-Project: '{{note}}', X-Gone: '{{gone}}', X-Path: '${{CARGO_MANIFEST_DIR}}' }}\n\
         environment: [CARGO_MANIFEST_DIR]\n\
         body: {{ list: '{{list}}', text: 'n={{n}}', none: '{{gone}}', fixed: 1 }}\n\
         parameters: {{ properties: {{ id: {{}}, q: {{}}, note: {{}}, gone: {{}}, list: {{}}, n: {{}} }} }}\n",
        address.port()
    ));
    let parameters = json!({"id": "../admin?x=1#y", "q": "a b&c=d", "note": "hi", "list": [1, {"a": "{n}"}], "n": 3});
    let outcome = tool.run(invocation(parameters, &["127.0.0.1"])).await;
    assert!(!outcome.is_error, "{outcome:?}");
    let got = outcome.content["got"].as_str().unwrap();
    assert!(got.starts_with("POST /items/..%2Fadmin%3Fx%3D1%23y?q=a%20b%26c%3Dd HTTP/1.1\r\n"), "{got}");
    assert!(got.contains("x-project: hi") && !got.contains("x-gone"), "{got}");
    assert!(got.contains(&format!("x-path: {}", env!("CARGO_MANIFEST_DIR"))), "{got}");
    assert!(got.ends_with(r#"{"list":[1,{"a":"{n}"}],"text":"n=3","fixed":1}"#), "{got}");
}

#[tokio::test]
async fn invalid_http_calls_return_messages() {
    let address = serve(|_| http("404 Not Found", &[], "no such thing")).await;
    let port = address.port();
    let yaml = format!(
        "description: x\nkind: http\nurl: http://127.0.0.1:{port}/{{id}}\nheaders: {{ X-A: '{{a}}' }}\n\
         parameters: {{ properties: {{ id: {{}}, a: {{}} }} }}\n"
    );
    let call = async |parameters: Value, net: &[&str]| tool(&yaml).run(invocation(parameters, net)).await;
    let missing = call(json!({"id": "x"}), &["127.0.0.1"]).await;
    assert!(missing.is_error && missing.content == json!("no such thing") && missing.details["status"] == json!(404));
    assert_eq!(call(json!({}), &["127.0.0.1"]).await.content, json!("a parameter of the address is missing"));
    let split = call(json!({"id": "x", "a": "1\r\nX-B: 2"}), &["127.0.0.1"]).await;
    assert!(split.is_error && split.content.as_str().unwrap().contains("invalid characters"), "{split:?}");
    assert!(call(json!({"id": "x"}), &[]).await.content.as_str().unwrap().starts_with("permission denied"));
    let unset = tool(
        "description: x\nkind: http\nurl: http://127.0.0.1/\nenvironment: [RYE__]\n"
            .replace("RYE__", "NOT_SET_HERE")
            .as_str(),
    );
    assert!(unset.run(invocation(json!({}), &[])).await.is_error);
}

#[tokio::test]
async fn http_tool_handles_misbehaving_servers() {
    let address = serve(|request| {
        let json = [("content-type", "application/json")];
        match request.split('/').nth(1).and_then(|rest| rest.split(' ').next()) {
            Some("good") => http("200 OK", &json, r#"{"n":42}"#),
            Some("flood") => http("200 OK", &json, &format!("[\"{}\"]", "x".repeat(3 << 20))),
            Some("lie") => http("200 OK", &json, "{\"n\": <b>no</b>"),
            Some("break") => "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nhalf of it".to_owned(),
            Some("nonsense") => "\u{1b}[2J no protocol at all\r\n\r\n".to_owned(),
            Some(_) | None => http("503 Service Unavailable", &[], "later"),
        }
    })
    .await;
    let to = |port: u16| {
        tool(&format!(
            "description: x\nkind: http\nurl: 'http://127.0.0.1:{port}/{{do}}'\nparameters: {{ properties: {{ do: {{}} }} }}\n"
        ))
    };
    let ask = |what: &str| {
        let (tool, parameters) = (to(address.port()), json!({"do": what}));
        async move { tool.run(invocation(parameters, &["127.0.0.1"])).await }
    };
    let good = ask("good").await;
    assert_eq!((good.content, good.is_error), (json!({"n": 42}), false));
    let flood = ask("flood").await;
    assert_eq!(flood.content.as_str().map(str::len), Some(MAX_BODY_BYTES), "a part of JSON is text");
    assert_eq!(flood.details["cut"], true);
    let lie = ask("lie").await;
    assert_eq!(lie.content, "{\"n\": <b>no</b>", "what is no JSON is text, whatever it calls itself");
    let later = ask("later").await;
    assert!(later.is_error && later.details["status"] == 503);
    for what in ["break", "nonsense"] {
        let outcome = ask(what).await;
        assert!(
            outcome.is_error && outcome.content.as_str().is_some_and(|message| !message.is_empty()),
            "{what}: {outcome:?}"
        );
    }
    // The server accepts the connection and sends nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let slow = HttpTool { timeout: Duration::from_millis(300), ..to(silent.local_addr().unwrap().port()) };
    let outcome = slow.run(invocation(json!({"do": "slow"}), &["127.0.0.1"])).await;
    assert!(outcome.is_error && outcome.content.as_str().is_some_and(|message| message.contains("within 0.3 seconds")));
}

/// A URL parser resolves encoded dots, too, so encoding does not keep a value inside its segment.
#[tokio::test]
async fn value_that_is_a_dot_segment_is_refused() {
    let address = serve(|request| http("200 OK", &[], request.lines().next().unwrap())).await;
    let call = async |path: &str, parameters: Value| {
        let yaml = format!(
            "description: x\nkind: http\nurl: 'http://127.0.0.1:{}/{path}'\n\
             parameters: {{ properties: {{ a: {{}}, b: {{}} }} }}\n",
            address.port()
        );
        tool(&yaml).run(invocation(parameters, &["127.0.0.1"])).await
    };
    for (path, parameters) in [
        ("projects/{a}/{b}", json!({"a": "..", "b": "admin"})),
        ("projects/{a}/{b}", json!({"a": ".", "b": "admin"})),
        ("projects/{a}{b}/x", json!({"a": ".", "b": "."})),
        ("projects/.{a}/{b}", json!({"a": ".", "b": "x"})),
        ("projects/%2e{a}/{b}", json!({"a": ".", "b": "x"})),
        ("projects/{a}?q={b}", json!({"a": "..", "b": "x"})),
    ] {
        let refused = call(path, parameters.clone()).await;
        let text = refused.content.as_str().unwrap();
        assert!(refused.is_error && text.contains("selects another path"), "{path} {parameters} {text}");
    }
    for (path, parameters, expected) in [
        ("projects/{a}/{b}", json!({"a": "...", "b": "a.b"}), "/projects/.../a.b"),
        ("projects/{a}?q={b}", json!({"a": "x", "b": ".."}), "/projects/x?q=.."),
        ("old/../{a}/{b}", json!({"a": "x", "b": "y"}), "/x/y"),
        ("{a}/{b}", json!({"a": "../..", "b": "%2e%2e"}), "/..%2F../%252e%252e"),
    ] {
        let sent = call(path, parameters).await;
        assert_eq!(sent.content, json!(format!("GET {expected} HTTP/1.1")), "{path}");
    }
}
