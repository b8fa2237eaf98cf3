//! Tests of `rye mcp serve` as a server: independent sessions, cancellation, the end, invalid messages, access.

#![cfg(feature = "mcp")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/mcp_client.rs"]
mod mcp_client;
#[path = "support/rye.rs"]
mod rye;

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use mcp_client::{HttpServer, MAX_MESSAGE_BYTES, McpClient, SLOW_CALL, initialize_params, place, request};
use rye::TestProject;
use serde_json::{Value, json};

/// Time limit for everything that must not wait for a slow call, long enough for a loaded machine.
const DEADLINE: Duration = Duration::from_secs(15);

fn slow() -> Value {
    json!({"name": "rye_execute", "arguments": {"item_type": "directive", "item_id": "slow"}})
}

fn read() -> Value {
    json!({"name": "rye_file_system_read", "arguments": {"path": "note.txt"}})
}

fn sleep(marker: &str) -> Value {
    json!({"name": "rye_bash_bash", "arguments": {"command": format!("exec -a {marker} sleep {}", SLOW_CALL.as_secs())}})
}

fn tasks() -> Value {
    json!({"extensions": {"io.modelcontextprotocol/tasks": {}}})
}

fn cancelled(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

fn is_note(answer: &Value) -> bool {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).contains("the note")
}

/// Returns the status of each thread, by directive.
fn statuses(place: &TestProject) -> Vec<(String, String)> {
    let (_, listed) = place.json(&["threads", "list"]);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = listed["threads"].as_array().unwrap().iter();
    let mut all: Vec<_> = rows.map(|row| (text(&row["directive"]), text(&row["status"]))).collect();
    all.sort();
    all
}

/// Returns true if every thread has ended, none as orphaned or with an error.
fn has_ended(place: &TestProject) -> bool {
    statuses(place).iter().all(|(_, status)| matches!(status.as_str(), "completed" | "cancelled" | "killed"))
}

/// Waits until a thread of the directive exists.
fn wait_for_thread(place: &TestProject, directive: &str) {
    let started = Instant::now();
    while !statuses(place).iter().any(|(name, _)| name == directive) {
        assert!(started.elapsed() < SLOW_CALL / 10, "{:?}", statuses(place));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns true if a process with this name runs.
fn is_running(marker: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        line.starts_with(marker.as_bytes())
    })
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < DEADLINE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn terminate(pid: u32) {
    assert!(Command::new("kill").arg(pid.to_string()).status().unwrap().success());
}

#[test]
fn a_directive_of_one_session_delays_no_call_of_another() {
    let place = place();
    let server = HttpServer::new(&place, &[], None);
    let (first, second) = (server.session(), server.session());
    assert_ne!(first.id, second.id);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| first.post(&request(2, "tools/call", &slow())));
        wait_for_thread(&place, "slow");
        let started = Instant::now();
        assert!(is_note(&second.ask(2, "tools/call", &read())));
        // The session of the directive is not blocked either.
        assert!(is_note(&first.ask(3, "tools/call", &read())));
        assert!(started.elapsed() < DEADLINE, "{:?}", started.elapsed());
        first.post(&cancelled(2));
        // A cancelled call has no response.
        assert!(!call.join().unwrap().contains("\"id\":2"));
    });
    let sessions = statuses(&place).into_iter().filter(|(directive, _)| directive == "rye/mcp/session");
    assert_eq!(sessions.count(), 2);
}

#[test]
fn a_tool_of_one_session_delays_no_call_of_another() {
    let place = place();
    let server = HttpServer::new(&place, &["--directive", "face"], None);
    let (first, second) = (server.session(), server.session());
    std::thread::scope(|scope| {
        let call = scope.spawn(|| first.post(&request(2, "tools/call", &sleep("rye-test-two-sessions"))));
        wait_until("the tool runs", || is_running("rye-test-two-sessions"));
        let started = Instant::now();
        assert!(is_note(&second.ask(2, "tools/call", &read())));
        assert!(started.elapsed() < DEADLINE, "{:?}", started.elapsed());
        first.post(&cancelled(2));
        wait_until("the tool ends", || !is_running("rye-test-two-sessions"));
        assert!(!call.join().unwrap().contains("\"id\":2"));
    });
}

#[test]
fn a_task_delays_no_call_of_its_session() {
    let place = place();
    let mut client = McpClient::new(&place, &[], &tasks());
    let task = client.ask("tools/call", &slow())["result"]["taskId"].as_str().unwrap().to_owned();
    wait_for_thread(&place, "slow");
    let started = Instant::now();
    assert!(is_note(&client.ask("tools/call", &read())));
    assert!(started.elapsed() < DEADLINE, "{:?}", started.elapsed());
    client.ask("tasks/cancel", &json!({"taskId": task}));
    assert_eq!(client.settled(&task)["status"], "cancelled");
    assert!(started.elapsed() < DEADLINE, "{:?}", started.elapsed());
    client.leave();
}

#[test]
fn cancelled_calls_end_what_they_started_and_free_the_session() {
    let place = place();
    let mut client = McpClient::new(&place, &["--directive", "face"], &json!({}));
    let call = client.start("tools/call", &sleep("rye-test-cancelled-call"));
    wait_until("the tool runs", || is_running("rye-test-cancelled-call"));
    // A call that waits behind the running call is cancelled too, and never runs.
    let queued = client.start("tools/call", &sleep("rye-test-queued-call"));
    let started = Instant::now();
    client.send(&cancelled(queued));
    client.send(&cancelled(call));
    assert!(is_note(&client.ask("tools/call", &read())));
    assert!(started.elapsed() < DEADLINE, "{:?}", started.elapsed());
    // The helper of the tool ends the tool a moment after the session is free.
    wait_until("the cancelled tool ends", || !is_running("rye-test-cancelled-call"));
    assert!(!is_running("rye-test-queued-call"));
    assert!(
        client.others.iter().all(|message| message["id"] != call && message["id"] != queued),
        "{:?}",
        client.others
    );
    client.leave();
    assert_eq!(statuses(&place), [("face".to_owned(), "completed".to_owned())]);
}

#[test]
fn cancelled_directive_ends_its_thread() {
    let place = place();
    let mut client = McpClient::new(&place, &[], &json!({}));
    let call = client.start("tools/call", &slow());
    wait_for_thread(&place, "slow");
    client.send(&cancelled(call));
    wait_until("the directive ends", || {
        statuses(&place)
            .iter()
            .any(|(name, status)| name == "slow" && matches!(status.as_str(), "cancelled" | "killed"))
    });
    assert!(is_note(&client.ask("tools/call", &read())));
    client.leave();
}

#[test]
fn server_ends_at_the_end_of_its_input_and_leaves_no_orphan() {
    for args in [&[][..], &["--directive", "face"]] {
        let place = place();
        let mut client = McpClient::new(&place, args, &json!({}));
        if args.is_empty() {
            client.start("tools/call", &slow());
            wait_for_thread(&place, "slow");
        } else {
            client.start("tools/call", &sleep("rye-test-end-of-input"));
            wait_until("the tool runs", || is_running("rye-test-end-of-input"));
        }
        let (status, time) = client.close();
        assert!(status.success() && time < DEADLINE, "{status} {time:?}");
        assert!(!is_running("rye-test-end-of-input"));
        assert!(has_ended(&place), "{:?}", statuses(&place));
    }
}

#[test]
fn server_ends_at_a_signal_and_leaves_no_orphan() {
    let place = place();
    let mut client = McpClient::new(&place, &[], &json!({}));
    client.start("tools/call", &slow());
    wait_for_thread(&place, "slow");
    terminate(client.child.id());
    let started = Instant::now();
    let status = client.child.wait().unwrap();
    assert!(status.success() && started.elapsed() < DEADLINE, "{status} {:?}", started.elapsed());
    assert!(has_ended(&place), "{:?}", statuses(&place));
}

/// The place with a file that calls can write.
fn writable_place() -> TestProject {
    let place = place();
    place.write(
        ".ai/directives/scribe.md",
        "# Scribe\n\n```xml\n<directive name=\"scribe\" version=\"1.0.0\"><metadata><permissions><execute>\
         <tool write=\"out/\">rye.file-system.*</tool></execute></permissions></metadata></directive>\n```\n\nServe.\n",
    );
    place.write("out/.keep", "");
    place
}

#[test]
fn pipelined_calls_run_in_the_order_of_arrival() {
    let place = writable_place();
    let mut client = McpClient::new(&place, &["--directive", "scribe"], &json!({}));
    let path = "out/seq";
    let mut pairs = Vec::new();
    // Each call is a turn, and a session has 15 turns.
    for n in 0..7 {
        let write = json!({"name": "rye_file_system_write", "arguments": {"path": path, "content": format!("<{n}>")}});
        let read = json!({"name": "rye_file_system_read", "arguments": {"path": path}});
        pairs.push((n, client.start("tools/call", &write), client.start("tools/call", &read)));
    }
    for (n, write, read) in pairs {
        let written = client.response(&json!(write));
        assert!(written["result"]["isError"] != true && written["error"].is_null(), "{written}");
        let answer = client.response(&json!(read));
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(&format!("<{n}>")), "{n}: {text}");
    }
    client.leave();
}

#[test]
fn calls_before_the_end_of_the_input_are_answered() {
    let place = place();
    let mut client = McpClient::new(&place, &[], &json!({}));
    assert!(is_note(&client.ask("tools/call", &read())));
    // A call that has not ended 200 ms after the end of the input is cancelled, and answered with an error.
    let is_answered = |asked: Instant, answer: Value| {
        let is_late = asked.elapsed() >= Duration::from_millis(200);
        is_late && (answer["error"].is_object() || answer["result"]["isError"] == true) || is_note(&answer)
    };
    let asked = Instant::now();
    assert!(is_answered(asked, client.ask_and_close("tools/call", &read())));
    let client = McpClient::new(&place, &[], &json!({}));
    let asked = Instant::now();
    assert!(is_answered(asked, client.ask_with_last_line("tools/call", &read())));
}

#[test]
fn call_that_outlasts_the_end_of_the_input_is_answered_with_an_error() {
    let place = place();
    let client = McpClient::new(&place, &["--directive", "face"], &json!({}));
    let answer = client.ask_and_close("tools/call", &sleep("rye-test-outlasting-call"));
    assert!(answer["error"].is_object() || answer["result"]["isError"] == true, "{answer}");
    assert!(!is_running("rye-test-outlasting-call"));
}

#[test]
fn invalid_messages_get_the_errors_of_json_rpc() {
    let place = place();
    let mut client = McpClient::new(&place, &[], &json!({}));
    let server = HttpServer::new(&place, &[], None);
    let session = server.session();
    let cases = [
        ("{\"jsonrpc\"", json!(null), -32700),
        ("[]", json!(null), -32600),
        (r#"{"id": 900, "method": "ping"}"#, json!(900), -32600),
        (r#"{"jsonrpc": "2.0", "id": 901, "method": "tools/call", "params": {"arguments": {}}}"#, json!(901), -32602),
        (
            r#"{"jsonrpc": "2.0", "id": 902, "method": "tools/call", "params": {"name": "no_such_tool"}}"#,
            json!(902),
            -32602,
        ),
        (r#"{"jsonrpc": "2.0", "id": 903, "method": "prompts/list"}"#, json!(903), -32601),
        (r#"{"jsonrpc": "2.0", "id": 904, "method": "resources/list"}"#, json!(904), -32601),
        (r#"{"jsonrpc": "2.0", "id": 905, "method": "resources/templates/list"}"#, json!(905), -32601),
        (r#"{"jsonrpc": "2.0", "id": "x", "method": "completion/complete", "params": {}}"#, json!("x"), -32601),
        (r#"{"jsonrpc": "2.0", "id": 907, "method": "no/such/method"}"#, json!(907), -32601),
    ];
    for (text, id, code) in cases {
        client.send_text(text);
        let answer = client.response(&id);
        assert_eq!(answer["error"]["code"], code, "{text}: {answer}");
        let answer = server.authorized("POST", &[("mcp-session-id", &session.id)], text.as_bytes());
        assert!(
            answer.contains(&format!("\"code\":{code}")) && answer.contains(&format!("\"id\":{id}")),
            "{text}: {answer}"
        );
    }
    // Notifications get no answer, and both sessions still work.
    client.send_text(r#"{"jsonrpc": "2.0", "method": "notifications/of-another-kind", "params": 7}"#);
    assert!(is_note(&client.ask("tools/call", &read())));
    assert_eq!(client.others, Vec::<Value>::new());
    assert!(is_note(&session.ask(9, "tools/call", &read())));
}

#[test]
fn oversized_messages_are_answered_with_an_error() {
    let place = place();
    let filler = "x".repeat(MAX_MESSAGE_BYTES);
    let large =
        format!(r#"{{"params": {{"id": 1, "name": "{filler}"}}, "method": "tools/call", "jsonrpc": "2.0", "id": 77}}"#);
    let mut client = McpClient::new(&place, &[], &json!({}));
    client.send_text(&large);
    let answer = client.response(&json!(77));
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("larger than 16 MiB"), "{answer}");
    assert!(is_note(&client.ask("tools/call", &read())));
    client.leave();
    let server = HttpServer::new(&place, &[], None);
    let session = server.session();
    let answer = server.authorized("POST", &[("mcp-session-id", &session.id)], large.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("\"code\":-32600"), "{answer}");
    assert!(is_note(&session.ask(9, "tools/call", &read())));
}

#[test]
fn http_requires_the_token() {
    let place = place();
    let hello = request(1, "initialize", &initialize_params(&json!({}))).to_string();
    let chosen = "chosen-token-0123456789";
    for (server, right) in [
        (HttpServer::new(&place, &[], None), None),
        (HttpServer::new(&place, &[], Some(chosen)), Some(format!("Bearer {chosen}"))),
    ] {
        let right = right.or(server.authorization.clone()).unwrap();
        let ask = |headers: &[(&str, &str)]| server.send("POST", "/mcp", headers, hello.as_bytes());
        let cut = &right[..right.len() - 1];
        for headers in [
            &[][..],
            &[("authorization", "Bearer wrong")],
            &[("authorization", cut)],
            &[("authorization", "Basic eDp5")],
        ] {
            let refused = ask(headers);
            assert!(refused.starts_with("HTTP/1.1 401") && refused.contains("www-authenticate: Bearer"), "{refused}");
            assert!(!refused.contains("serverInfo"), "{refused}");
        }
        for method in ["GET", "DELETE"] {
            assert!(server.send(method, "/mcp", &[], b"").starts_with("HTTP/1.1 401"));
        }
        assert!(
            server.send("POST", "/other", &[("authorization", &right)], hello.as_bytes()).starts_with("HTTP/1.1 404")
        );
        assert!(ask(&[("authorization", &right)]).contains("serverInfo"));
    }
    let short =
        place.command(&["mcp", "serve", "--http", "127.0.0.1:0"]).env("RYE_MCP_TOKEN", "short").output().unwrap();
    assert_eq!(short.status.code(), Some(2), "{}", String::from_utf8_lossy(&short.stderr));
}

#[test]
fn number_of_http_sessions_is_bounded() {
    let place = place();
    let server = HttpServer::new(&place, &[], None);
    let sessions: Vec<_> = (0..32).map(|_| server.session()).collect();
    let hello = request(1, "initialize", &initialize_params(&json!({}))).to_string();
    let refused = server.authorized("POST", &[], hello.as_bytes());
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("32 sessions"), "{refused}");
    assert!(is_note(&sessions[0].ask(2, "tools/call", &read())));
    let ended = server.authorized("DELETE", &[("mcp-session-id", &sessions[1].id)], b"");
    assert!(ended.starts_with("HTTP/1.1 2"), "{ended}");
    assert!(is_note(&server.session().ask(2, "tools/call", &read())));
}

#[test]
fn repeated_id_of_a_request_in_progress_is_refused() {
    let place = place();
    let mut client = McpClient::new(&place, &[], &json!({}));
    for id in [json!(700), json!("seven")] {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": slow()});
        client.send(&call);
        client.send(&call);
        let refused = client.response(&id);
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("in progress"), "{refused}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
        // A cancelled request gets no response, so its id is free.
        client.send(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
        assert_eq!(client.response(&id)["result"], json!({}));
    }
    // After a response the id is free, too.
    for _ in 0..2 {
        client.send(&json!({"jsonrpc": "2.0", "id": 701, "method": "tools/call", "params": read()}));
        assert!(is_note(&client.response(&json!(701))));
    }
    assert_eq!(client.others, Vec::<Value>::new());
}

#[test]
fn repeated_id_of_a_session_over_http_is_refused() {
    let place = place();
    let server = HttpServer::new(&place, &[], None);
    let session = server.session();
    let other = server.session();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| session.post(&request(7, "tools/call", &slow())));
        wait_for_thread(&place, "slow");
        let refused = session.post(&request(7, "ping", &json!({})));
        assert!(refused.starts_with("HTTP/1.1 400") && refused.contains("\"code\":-32600"), "{refused}");
        assert!(is_note(&other.ask(7, "tools/call", &read())), "ids belong to a session");
        session.post(&cancelled(7));
        assert!(!first.join().unwrap().contains("\"code\":-32600"));
    });
    assert!(is_note(&session.ask(7, "tools/call", &read())));
}

#[test]
fn deleted_session_kills_its_tool_and_answers_its_calls() {
    let place = place();
    let server = HttpServer::new(&place, &["--directive", "face"], None);
    let (session, other) = (server.session(), server.session());
    std::thread::scope(|scope| {
        let call = |id, mark| session.post(&request(id, "tools/call", &sleep(mark)));
        let running = scope.spawn(move || call(7, "rye-test-deleted-call"));
        wait_until("the tool runs", || is_running("rye-test-deleted-call"));
        let queued = scope.spawn(move || call(8, "rye-test-deleted-queued"));
        let ended = server.authorized("DELETE", &[("mcp-session-id", &session.id)], b"");
        assert!(ended.starts_with("HTTP/1.1 2"), "{ended}");
        let is_cancelled = |answer: &str, id| {
            answer.contains(&format!("\"id\":{id},")) && answer.contains("\"message\":\"the call was cancelled\"")
        };
        let answer = running.join().unwrap();
        assert!(is_cancelled(&answer, 7), "{answer}");
        // The second call may arrive after the end of the session, which the server then does not know any more.
        let answer = queued.join().unwrap();
        assert!(is_cancelled(&answer, 8) || answer.starts_with("HTTP/1.1 404"), "{answer}");
        wait_until("the tool ends", || !is_running("rye-test-deleted-call"));
        assert!(!is_running("rye-test-deleted-queued"));
    });
    assert!(is_note(&other.ask(9, "tools/call", &read())));
}

#[test]
fn half_open_connections_delay_no_request() {
    let place = place();
    let server = HttpServer::new(&place, &[], None);
    let session = server.session();
    // Opens more connections than the server holds, each with an incomplete request head or body.
    let token = server.authorization.as_deref().unwrap();
    let head = "POST /mcp HTTP/1.1\r\nhost: x\r\n".to_owned();
    let body = format!("{head}authorization: {token}\r\ncontent-length: 100\r\n\r\n{{");
    for (id, part) in [(2, head), (3, body)] {
        let open = |_| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            stream.write_all(part.as_bytes()).unwrap();
            stream
        };
        let half_open: Vec<TcpStream> = (0..200).map(open).collect();
        let started = Instant::now();
        assert!(is_note(&session.ask(id, "tools/call", &read())));
        // Without eviction, the server would read no request before the timeout of 10 seconds.
        assert!(started.elapsed() < Duration::from_secs(8), "{part}: {:?}", started.elapsed());
        drop(half_open);
    }
}

#[test]
fn messages_before_the_handshake_and_cancellations_of_unknown_requests_have_no_effect() {
    let place = place();
    for early in [
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 5, "result": {}}),
        json!({"jsonrpc": "2.0", "method": "initialize", "params": initialize_params(&json!({}))}),
    ] {
        let mut client = McpClient::after(&place, &[early.clone(), request(77, "ping", &json!({})), early]);
        assert_eq!(client.response(&json!(77))["result"], json!({}));
        for unknown in [json!(4_000), json!("x"), json!(-1), json!(null), json!({})] {
            let params = json!({"requestId": unknown});
            client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
        }
        assert!(is_note(&client.ask("tools/call", &read())));
        assert_eq!(client.others, Vec::<Value>::new());
        client.leave();
    }
}

#[test]
fn request_to_another_host_or_from_another_origin_is_refused_before_its_body_is_read() {
    let place = place();
    let server = HttpServer::new(&place, &[], None);
    let hello = request(1, "initialize", &initialize_params(&json!({}))).to_string();
    let token = ("authorization", server.authorization.as_deref().unwrap());
    let port = server.address.rsplit(':').next().unwrap();
    for body in [hello.as_str(), "xx"] {
        for target in ["http://evil.test/mcp", "http://127.0.0.1.evil.test/mcp"] {
            let refused = server.send("POST", target, &[token], body.as_bytes());
            assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("another host"), "{target}: {refused}");
        }
        for origin in ["http://evil.test", "null", "https://localhost", "http://localhost:1"] {
            let refused = server.send("POST", "/mcp", &[token, ("origin", origin)], body.as_bytes());
            assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("another origin"), "{origin}: {refused}");
        }
    }
    for target in [format!("http://{}/mcp", server.address), format!("http://LOCALHOST:{port}/mcp")] {
        let origin = format!("http://localhost:{port}");
        let answer = server.send("POST", &target, &[token, ("origin", &origin)], hello.as_bytes());
        assert!(answer.contains("serverInfo"), "{target}: {answer}");
    }
}

#[test]
fn refusals_over_http_are_json_rpc_errors_and_repeated_headers_are_refused() {
    let place = place();
    let server = HttpServer::new(&place, &[], None);
    let session = server.session();
    let token = ("authorization", server.authorization.as_deref().unwrap());
    let ping = request(1, "ping", &json!({})).to_string();
    let own = ("mcp-session-id", session.id.as_str());
    let requests = [
        ("PUT", vec![token, own], "405"),
        ("POST", vec![token, own, ("accept", "text/html")], "406"),
        ("POST", vec![token, own, ("content-type", "text/plain")], "415"),
        ("POST", vec![token, ("mcp-session-id", "unknown")], "404"),
        ("DELETE", vec![token, ("mcp-session-id", "unknown")], "404"),
        ("POST", vec![token, token, own], "400"),
        ("POST", vec![token, own, ("host", "127.0.0.1"), ("host", "evil.test")], "400"),
        ("POST", vec![token, own, ("origin", "http://evil.test"), ("origin", "http://localhost")], "400"),
    ];
    for (method, headers, status) in requests {
        let answer = server.send(method, "/mcp", &headers, ping.as_bytes());
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{method} {headers:?}: {answer}");
        assert!(body.contains(r#""jsonrpc":"2.0""#) && body.contains(r#""error""#), "{method} {headers:?}: {answer}");
    }
    assert!(is_note(&session.ask(9, "tools/call", &read())));
}

#[test]
fn clients_over_http_and_their_simultaneous_requests_get_their_own_responses() {
    let place = place();
    let server = HttpServer::new(&place, &[], None);
    let sessions = [server.session(), server.session()];
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..16)
            .map(|n| {
                let session = &sessions[n % 2];
                let id = u64::try_from(n / 2).unwrap() + 10;
                scope.spawn(move || (id, session.ask(id, "tools/call", &read())))
            })
            .collect();
        for one in asked {
            let (id, answer) = one.join().unwrap();
            assert!(answer["id"] == id && is_note(&answer), "{id}: {answer}");
        }
    });
}

#[test]
fn session_of_a_directive_with_required_outputs_completes() {
    let place = place();
    let face = place.read(".ai/directives/face.md");
    let outputs = "</metadata>\n<outputs><output name=\"report\" type=\"string\" required=\"true\">The report.</output></outputs>";
    place.write(".ai/directives/face.md", &face.replace("</metadata>", outputs));
    let mut client = McpClient::new(&place, &["--directive", "face"], &json!({}));
    assert!(is_note(&client.ask("tools/call", &read())));
    client.close();
    assert_eq!(statuses(&place), [("face".to_owned(), "completed".to_owned())]);
}
