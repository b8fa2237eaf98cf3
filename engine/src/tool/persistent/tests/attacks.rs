//! Hostile persistent tools: each one gets an error within its time, and leaves neither a process nor memory behind.

use super::*;

/// A line of the tool file with a timeout, in seconds, that is longer than the calls of these tests take.
const KEYS: &str = "timeout_seconds: 30\n";

/// Returns the process ids that a tool has written to a file of the project, once the file has this many.
fn process_ids(project: &PersistentProject, count: usize) -> Vec<i32> {
    let path = project.dir.path().join("pids");
    loop {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let ids: Vec<i32> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
        if ids.len() >= count && text.ends_with('\n') {
            return ids;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a process has ended: it is gone, or a zombie that its parent has not read yet.
fn wait_for_end(id: i32) {
    while let Ok(status) = std::fs::read_to_string(format!("/proc/{id}/status")) {
        if status.contains("State:\tZ") || status.contains("State:\tX") {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a call of a project whose tool may write in the project.
async fn call_with_writes(project: &PersistentProject) -> ToolOutcome {
    let mut invocation = project.invocation(json!({}));
    invocation.write = vec![".".to_owned()];
    project.tool.run(invocation).await
}

fn text(outcome: &ToolOutcome) -> &str {
    assert!(outcome.is_error, "{outcome:?}");
    outcome.content.as_str().unwrap()
}

#[tokio::test]
async fn tool_that_hangs_and_ignores_sigterm_is_killed() {
    let body = "      trap '' TERM; echo $$ >> PROJECT/pids; while :; do sleep 600; done\n";
    let project = PersistentProject::new("helper.yaml", &shell_tool("timeout_seconds: 1\n", body));
    let outcome = call_with_writes(&project).await;
    assert!(text(&outcome).contains("did not answer within 1 seconds"), "{outcome:?}");
    for id in process_ids(&project, 1) {
        wait_for_end(id);
    }
}

#[tokio::test]
async fn forked_descendants_end_with_their_tool() {
    // The supervisor of the program ends descendants in other process groups too; unit tests have no supervisor.
    let body = "      (sleep 600 & echo $! >> PROJECT/pids); exit 0\n";
    let project = PersistentProject::new("helper.yaml", &shell_tool("timeout_seconds: 1\n", body));
    let outcome = call_with_writes(&project).await;
    // The background process keeps the output open, so the call ends only at its timeout.
    assert!(text(&outcome).contains("did not answer within 1 seconds"), "{outcome:?}");
    let ids = process_ids(&project, 1);
    for id in ids {
        wait_for_end(id);
    }
}

#[tokio::test]
async fn garbage_and_other_encodings_are_reported_as_text() {
    for (bytes, shown) in [
        ("\\xff\\xfe\\x00", "its output has a line that is not a JSON object"),
        ("\\x1b]52;c;aGk=\\x07", "its output has a line that is not a JSON object"),
        ("{{\"id\":1", "its output has a line that is not a JSON object"),
        ("{{\"id\":1}}{{\"id\":1}}", "its output has a line that is not a JSON object"),
        ("{{\"id\":1e999}}", "its output has a line that is not a JSON object"),
        ("{{\"id\":-1}}", "its answer must have the id 1, but has the id -1"),
        ("{{\"id\":\"1\"}}", "its answer must have the id 1, but has the id \"1\""),
    ] {
        let body = format!("      printf '{bytes}\\n'\n");
        let project = PersistentProject::new("helper.yaml", &shell_tool(KEYS, &body));
        let outcome = project.call(json!({})).await;
        assert!(text(&outcome).contains(shown), "{bytes}: {outcome:?}");
    }
}

#[tokio::test]
async fn endless_line_is_cut_at_a_mebibyte() {
    let body = "      head -c 100000000 /dev/zero | tr '\\\\0' x; echo\n";
    let project = PersistentProject::new("helper.yaml", &shell_tool(KEYS, body));
    let outcome = project.call(json!({})).await;
    assert!(text(&outcome).ends_with("it wrote a line of more than 1 MiB"), "{outcome:?}");
}

#[tokio::test]
async fn endless_output_to_stderr_neither_blocks_nor_grows() {
    let body = "      head -c 30000000 /dev/zero | tr '\\\\0' y >&2; exit 4\n";
    let project = PersistentProject::new("helper.yaml", &shell_tool(KEYS, body));
    let outcome = project.call(json!({})).await;
    let text = text(&outcome);
    assert!(text.contains("ended before it answered") && text.len() < 4_000, "{} bytes", text.len());
}

#[tokio::test]
async fn process_that_dies_within_a_line_is_reported() {
    let body = "      printf '{{\"id\":%s,\"act' \"$id\"; kill -9 $$\n";
    let project = PersistentProject::new("helper.yaml", &shell_tool(KEYS, body));
    let outcome = project.call(json!({})).await;
    assert!(text(&outcome).contains("is not a JSON object: {\"id\":1,\"act"), "{outcome:?}");
}

#[tokio::test]
async fn second_answer_is_never_that_of_the_next_line() {
    let body = format!("{COUNT}{COUNT}");
    let project = PersistentProject::new("helper.yaml", &shell_tool(KEYS, &body));
    let first = project.call(json!({})).await;
    assert!(!first.is_error, "{first:?}");
    let second = project.call(json!({})).await;
    assert!(text(&second).ends_with("its answer must have the id 2, but has the id 1"), "{second:?}");
    // The next process starts with an empty input and output.
    let third = project.call(json!({})).await;
    assert!(third.content["text"].as_str().unwrap().starts_with("1 of "), "{third:?}");
}

#[tokio::test]
async fn flood_of_lines_between_the_calls_waits_in_the_pipe() {
    let body = format!("{COUNT}      while :; do echo '{{{{\"id\":1}}}}'; done\n");
    let project = PersistentProject::new("helper.yaml", &shell_tool(KEYS, &body));
    let first = project.call(json!({})).await;
    assert!(!first.is_error, "{first:?}");
    let second = project.call(json!({})).await;
    assert!(text(&second).ends_with("its answer must have the id 2, but has the id 1"), "{second:?}");
}

#[tokio::test]
async fn unread_input_does_not_block_past_the_timeout() {
    // The line is larger than a pipe.
    let head =
        "description: d\nkind: command\npersistent: true\ntimeout_seconds: 1\nparameters: {properties: {text: {}}}\n";
    let tool = format!("{head}command: [sleep, \"600\"]\n");
    let project = PersistentProject::new("helper.yaml", &tool);
    let outcome = project.call(json!({"text": "x".repeat(1 << 20)})).await;
    assert!(text(&outcome).contains("did not answer within 1 seconds"), "{outcome:?}");
}
