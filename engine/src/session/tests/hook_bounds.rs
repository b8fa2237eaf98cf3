//! Bounds of the texts that hooks add to the conversation.

use serde_json::{Value, json};

use super::{Lab, calls, reply_text, thread};
use crate::event::EventBody;
use crate::exchange::Request;

/// Returns the text of the last message of a request, as JSON.
fn last_message(request: &Request) -> String {
    serde_json::to_string(request.turns.last().unwrap()).unwrap()
}

/// Returns the call of `rye_fetch` that a shortened text names.
fn named_fetch(text: &str) -> Option<Value> {
    let unescaped = text.replace("\\\"", "\"");
    let (_, rest) = unescaped.split_once("rye_fetch ")?;
    let (arguments, _) = rest.split_once(" …]")?;
    serde_json::from_str(arguments).ok()
}

/// Runs a directive with one hook, whose action contains `long`, in place of which a text of 4,000 bytes is written. The
/// model answers a shortened text with the call that the text names. Returns the last messages of all requests.
async fn run(hook: &str) -> Vec<String> {
    let lab = Lab::new(|request| {
        let last = last_message(request);
        Ok(match (request.cue.turn.unwrap(), named_fetch(&last)) {
            (0, _) => calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]),
            (_, Some(arguments)) => calls(&[("rye_fetch", arguments)]),
            _ => reply_text("done"),
        })
    });
    let long = format!("{}in the middle{}", "head ".repeat(80), " tail".repeat(700));
    let permitted = "<permissions><execute><tool>rye.file-system.read</tool></execute>\
        <fetch><knowledge>*</knowledge></fetch></permissions>";
    lab.directive(
        "main",
        &format!("<limits turns=\"9\"/><hooks>{}</hooks>{permitted}", hook.replace("long", &long)),
        "",
    );
    lab.write(".ai/config/agent/resilience.yaml", "tool_result: { max_bytes: 1000 }\n");
    lab.write("a.txt", "text\n");
    let engine = lab.engine();
    let result = lab.run(&engine, "main").await;
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    let named = events.iter().any(|event| matches!(&event.body, EventBody::HookPoint(run) if !run.objects.is_empty()));
    assert!(named, "no event names the object of {hook}");
    lab.model.requests.lock().unwrap().iter().map(last_message).collect()
}

#[tokio::test]
async fn long_text_of_a_hook_is_shortened_and_can_be_fetched() {
    for hook in [
        r#"<hook id="h" event="tool_result"><when>call.name == "rye_file_system_read"</when><modify content="long"/></hook>"#,
        r#"<hook id="h" event="tool_call"><when>call.name == "rye_file_system_read"</when><block reason="long"/></hook>"#,
        r#"<hook id="h" event="agent_end"><when>turn &lt; 3</when><follow_up content="long"/></hook>"#,
        r#"<hook id="h" event="agent_end"><when>turn &lt; 3</when><block reason="long"/></hook>"#,
    ] {
        let messages = run(hook).await;
        let shortened = messages.iter().find(|message| message.contains("bytes omitted; fetch them with rye_fetch"));
        assert!(shortened.is_some_and(|message| !message.contains("in the middle")), "{hook}: {messages:?}");
        assert!(messages.iter().any(|message| message.contains("in the middle")), "{hook}: {messages:?}");
    }
}

#[tokio::test]
async fn retry_of_a_tool_call_fails_the_hook() {
    let lab = Lab::new(|request| {
        let read = calls(&[("rye_file_system_read", json!({"path": "missing.txt"}))]);
        Ok(if request.cue.turn == Some(0) { read } else { reply_text("done") })
    });
    let permitted = "<permissions><execute><tool>rye.file-system.read</tool></execute></permissions>";
    let hook = r#"<hooks><hook id="again" event="error"><retry/></hook></hooks>"#;
    lab.directive("main", &format!("{hook}{permitted}"), "");
    let engine = lab.engine();
    let result = lab.run(&engine, "main").await;
    assert_eq!(result.result.as_deref(), Some("done"));
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    let failures: Vec<String> = events
        .iter()
        .filter_map(|event| if let EventBody::HookPoint(run) = &event.body { Some(run) } else { None })
        .flat_map(|run| run.considered.iter().filter_map(|hook| hook.because.clone()))
        .collect();
    assert!(failures.iter().any(|why| why.contains("no call of a tool is repeated")), "{failures:?}");
}
