//! Tests of the web fetch tool: text, pages, and refused requests.

#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::Value;

use super::*;
use crate::tool::web::tests::{http, serve};

async fn fetch(parameters: Value, net: &[&str]) -> (String, bool) {
    let invocation = Invocation {
        net: net.iter().map(|h| (*h).to_owned()).collect(),
        local_hosts: net.iter().map(|h| (*h).to_owned()).collect(),
        ..Invocation::sample("rye/web/fetch", &std::env::temp_dir(), parameters)
    };
    let outcome = WebFetchTool { timeout: Duration::from_secs(5) }.run(invocation).await;
    (outcome.content.as_str().unwrap().to_owned(), outcome.is_error)
}

#[tokio::test]
async fn pages_are_returned_as_text() {
    let page = "<html><body><h2>Hi</h2><script>bad()</script></body></html>";
    let address = serve(move |request| match request.split(' ').nth(1) {
        Some("/json") => http("200 OK", &[("content-type", "application/json")], "{\"a\": 1}"),
        Some("/image") => http("200 OK", &[("content-type", "image/png")], "png"),
        Some("/gone") => http("410 Gone", &[("content-type", "text/plain")], "gone"),
        _ => http("200 OK", &[("content-type", "text/html; charset=utf-8")], page),
    })
    .await;
    let get = async |path: &str, raw: bool| {
        fetch(json!({"url": format!("http://{address}{path}"), "raw": raw}), &["127.0.0.1"]).await
    };
    assert_eq!(get("/", false).await, ("## Hi\n".to_owned(), false));
    assert_eq!(get("/", true).await, (page.to_owned(), false));
    assert_eq!(get("/json", false).await, ("{\"a\": 1}".to_owned(), false));
    assert_eq!(get("/gone", false).await, ("gone".to_owned(), true));
    assert!(get("/image", false).await.0.contains("is not text: `image/png`"));
}

#[tokio::test]
async fn bad_input_is_refused() {
    for (url, message) in [
        ("no address", "is not a valid URL"),
        ("file:///etc/passwd", "`file:` URLs are not supported"),
        ("http://127.0.0.1/", "is in this machine's network"),
        ("http://[::1]/", "is in this machine's network"),
    ] {
        let (text, failed) = fetch(json!({ "url": url }), &["*"]).await;
        assert!(failed && text.contains(message), "{url}: {text}");
    }
    let (text, failed) = fetch(json!({"url": "http://example.com/"}), &[]).await;
    assert!(failed && text.starts_with("permission denied"), "{text}");
    assert!(fetch(json!({"uri": "x"}), &[]).await.1);
}
