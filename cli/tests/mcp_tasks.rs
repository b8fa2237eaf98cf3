//! Tests of `rye mcp serve`: a directive is a task for clients that support tasks, and sends progress notifications to
//! others.

#![cfg(feature = "mcp")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/mcp_client.rs"]
mod mcp_client;
#[path = "support/rye.rs"]
mod rye;

use std::time::Duration;

use mcp_client::McpClient;
use rye::TestProject;
use serde_json::{Value, json};

fn place(delay_ms: u64) -> TestProject {
    let place = TestProject::own();
    place.write(
        ".ai/directives/count.md",
        "# Count\n\n```xml\n<directive name=\"count\" version=\"1.0.0\">\n<metadata>\n<description>Counts.</description>\
         <model provider=\"scripted\" tier=\"fast\"/>\n<permissions><execute><tool>rye.file-system.ls</tool></execute></permissions>\
         <nudge>never</nudge></metadata>\n</directive>\n```\n\nCount.\n",
    );
    let step =
        format!("  - {{ delay_ms: {delay_ms}, tool_calls: [{{ name: rye_file_system_ls, input: {{ path: . }} }}] }}\n");
    place.write("script.yaml", &format!("steps:\n{}  - All counted.\n", step.repeat(3)));
    place
}

fn count(meta: &Value) -> Value {
    json!({"name": "rye_execute", "arguments": {"item_type": "directive", "item_id": "count"}, "_meta": meta})
}

fn tasks() -> Value {
    json!({"extensions": {"io.modelcontextprotocol/tasks": {}}})
}

#[test]
fn directive_run_sends_progress() {
    let place = place(0);
    let mut client = McpClient::new(&place, &[], &json!({}));
    let answer = client.ask("tools/call", &count(&json!({"progressToken": "p-1"})));
    assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("All counted."), "{answer}");
    let progress: Vec<&Value> = client.others.iter().filter(|m| m["method"] == "notifications/progress").collect();
    assert!(progress.len() > 5, "{progress:?}");
    assert!(progress.iter().all(|m| m["params"]["progressToken"] == "p-1"), "{progress:?}");
    let grows =
        progress.windows(2).all(|pair| pair[0]["params"]["progress"].as_f64() < pair[1]["params"]["progress"].as_f64());
    assert!(grows, "{progress:?}");
    assert!(
        progress.iter().any(|m| m["params"]["message"].as_str().unwrap().contains("rye_file_system_ls")),
        "{progress:?}"
    );
    client.others.clear();
    // Without a progress token there are no notifications.
    client.ask("tools/call", &count(&json!({})));
    assert_eq!(client.others, Vec::<Value>::new());
    client.leave();
}

#[test]
fn directive_run_is_a_task() {
    let place = place(0);
    let mut client = McpClient::new(&place, &[], &tasks());
    let made = client.ask("tools/call", &count(&json!({})))["result"].clone();
    assert_eq!((&made["resultType"], &made["status"]), (&json!("task"), &json!("working")), "{made}");
    let done = client.settled(made["taskId"].as_str().unwrap());
    assert_eq!(done["status"], "completed", "{done}");
    assert!(done["result"]["content"][0]["text"].as_str().unwrap().contains("All counted."), "{done}");
    assert!(done["statusMessage"].as_str().is_some_and(|line| line.contains("count-")), "{done}");
    // A call that finishes at once is answered directly.
    let list = client.ask("tools/call", &json!({"name": "rye_file_system_ls", "arguments": {"path": "."}}));
    assert!(list["result"]["content"][0]["text"].as_str().unwrap().contains("script.yaml"), "{list}");
    assert_eq!(client.ask("tasks/get", &json!({"taskId": "no-such-task"}))["error"]["code"], -32602);
    client.leave();
}

#[test]
fn cancelled_task_cancels_its_thread() {
    let place = place(2000);
    let mut client = McpClient::new(&place, &[], &tasks());
    let made = client.ask("tools/call", &count(&json!({})))["result"].clone();
    let task = made["taskId"].as_str().unwrap().to_owned();
    // The task has started once it has a status message.
    for _ in 0..400 {
        if client.ask("tasks/get", &json!({"taskId": task}))["result"]["statusMessage"].is_string() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    client.ask("tasks/cancel", &json!({"taskId": task}));
    assert_eq!(client.settled(&task)["status"], "cancelled");
    client.leave();
    let (_, threads) = place.json(&["threads", "list", "--directive", "count"]);
    // A model call that takes longer than the grace period is killed.
    let status = &threads["threads"][0]["status"];
    assert!(status == "cancelled" || status == "killed", "{threads}");
}
