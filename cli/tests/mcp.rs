//! Tests of `rye mcp`: listing and refreshing servers, serving, and a run that calls a server's tool.

#![cfg(feature = "mcp")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stderr, reason = "tests")]

#[path = "support/math_server.rs"]
mod math_server;
#[path = "support/rye.rs"]
mod rye;
#[path = "support/terminal.rs"]
mod terminal;

use std::collections::BTreeMap;

use math_server::{SERVER, place};
use rye::TestProject;
use serde_json::json;
use terminal::Terminal;

#[test]
fn refresh_creates_items_and_prints_changes() {
    let Some(place) = place() else { return };
    let (_, listed) = place.json(&["mcp", "list"]);
    assert_eq!((&listed[0]["server"], &listed[0]["items"]), (&json!("my_math"), &json!([])));
    assert_eq!(listed[0]["trusted"], json!(false));
    // No program of a project starts before the user trusts it.
    let asked = place.rye(&["mcp", "refresh"]);
    assert_eq!(asked.code, Some(5), "{}", asked.stderr);
    assert!(
        asked.stderr.contains("server my_math  starts the MCP server `my_math`: python3 server.py"),
        "{}",
        asked.stderr
    );
    place.run_ok(&["trust"]);
    assert_eq!(place.json(&["mcp", "list"]).1[0]["trusted"], json!(true));
    let dry = place.rye(&["mcp", "refresh", "--dry-run"]);
    assert_eq!((dry.code, dry.stdout.trim()), (Some(1), "+ mcp/my_math/double_it"));
    assert!(!place.project().join(".ai/tools/mcp").exists());
    assert_eq!(place.run_ok(&["mcp", "refresh"]).trim(), "+ mcp/my_math/double_it");
    assert_eq!(place.run_ok(&["mcp", "refresh", "my_math"]), "");
    assert_eq!(place.json(&["check"]).0, Some(0));
    place.write("about.txt", "Steals.");
    let (code, drift) = place.json(&["mcp", "refresh", "--dry-run"]);
    assert_eq!((code, &drift[0]["changes"]["changed"]), (Some(1), &json!(["mcp/my_math/double_it"])));
    assert_eq!(place.rye(&["mcp", "refresh", "other"]).code, Some(2));
    place.write(".mcp.json", r#"{"mcpServers": {"gone": {"command": "no-such-program"}}}"#);
    assert_eq!(place.rye(&["mcp", "refresh"]).code, Some(5));
    place.run_ok(&["trust"]);
    let gone = place.rye(&["mcp", "refresh"]);
    assert!(gone.code == Some(1), "{}", gone.stderr);
    let reason = "no program `no-such-program` in `PATH`: install the server `gone` first";
    assert!(gone.stderr.contains(reason) && !gone.stderr.contains("sandbox"), "{}", gone.stderr);
    place.write(".mcp.json", r#"{"mcpServers": {"gone": {"command": "./no-such-program"}}}"#);
    place.run_ok(&["trust"]);
    let gone = place.rye(&["mcp", "refresh"]);
    assert!(gone.code == Some(1) && gone.stderr.contains("cannot be reached"), "{}", gone.stderr);
    place.write(".mcp.json", "{");
    assert_eq!(place.rye(&["mcp", "list"]).code, Some(1));
}

#[test]
fn add_configures_trusts_and_refreshes_a_server() {
    if place().is_none() {
        return;
    }
    let place = TestProject::own();
    place.run_ok(&["init"]);
    place.write("about.txt", "Adds two numbers.");
    place.write("server.py", SERVER);
    let added = place.rye(&["mcp", "add", "sums", "--", "python3", "server.py"]);
    assert_eq!(added.code, Some(0), "{}\n{}", added.stdout, added.stderr);
    assert!(added.stdout.contains("+ mcp/sums/"), "{}", added.stdout);
    assert!(added.stderr.contains("<tool>mcp.sums.*</tool>"), "{}", added.stderr);
    assert!(place.read(".mcp.json").contains("\"sums\""));
    // `rye mcp add` has trusted both the server and its items.
    let trusted = place.run_ok(&["trust", "--list"]);
    let of_server: Vec<&str> = trusted.lines().filter(|line| line.contains("sums")).collect();
    assert!(!of_server.is_empty() && of_server.iter().all(|line| line.starts_with("trusted")), "{trusted}");
    let again = place.rye(&["mcp", "add", "sums", "--url", "http://127.0.0.1:1/"]);
    assert_eq!(again.code, Some(2));
    assert!(again.stderr.contains("is configured in `.mcp.json` already"), "{}", again.stderr);
    let broken = place.rye(&["mcp", "add", "broken", "--", "./no-such-program"]);
    assert_eq!(broken.code, Some(1), "{}", broken.stderr);
    assert!(
        broken.stderr.contains("runs in a sandbox")
            && broken.stderr.contains("rye mcp add broken --read /PATH --write FOLDER/"),
        "{}",
        broken.stderr
    );
    assert!(broken.stderr.contains("`broken` was not added"), "{}", broken.stderr);
    assert!(!place.read(".mcp.json").contains("broken"));
    assert!(!place.run_ok(&["trust", "--list"]).contains("broken"));
    // The folders and hosts of the command become the `needs` of the server, and the grant repeats them.
    let args = ["mcp", "add", "notes", "--write", "notes/", "--net", "a.test", "--", "python3", "server.py"];
    let writing = place.rye(&args);
    assert_eq!(writing.code, Some(0), "{}", writing.stderr);
    assert!(writing.stderr.contains("<tool write=\"notes/\" net=\"a.test\">mcp.notes.*</tool>"), "{}", writing.stderr);
    assert!(added.stderr.contains("writes nothing in the project"), "{}", added.stderr);
    let servers: serde_json::Value = serde_json::from_str(&place.read(".mcp.json")).unwrap();
    assert_eq!(servers["mcpServers"]["notes"]["needs"], json!({"write": ["notes/"], "net": ["a.test"]}));
    assert!(place.read(".ai/tools/mcp/notes/double_it.yaml").contains("\nneeds: {"));
    let unnamed = place.rye(&["mcp", "add", "my server", "--", "python3", "server.py"]);
    assert_eq!(unnamed.code, Some(2));
    assert!(unnamed.stderr.contains("the name `my server` is invalid"), "{}", unnamed.stderr);
    assert!(!place.read(".mcp.json").contains("my server"));
}

#[test]
fn added_server_is_trusted_with_the_files_that_its_command_names_and_no_other_server() {
    if place().is_none() {
        return;
    }
    let place = TestProject::own();
    place.write("about.txt", "Adds two numbers.");
    place.write("server.py", SERVER);
    place.run_ok(&["init"]);
    let theirs = json!({"mcpServers": {"theirs": {"command": "python3", "args": ["server.py"]}}});
    place.write(".mcp.json", &theirs.to_string());
    let added = place.rye(&["mcp", "add", "own", "--", "python3", "server.py"]);
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    assert!(added.stderr.contains("own: trust includes `server.py`, as now"), "{}", added.stderr);
    let trusted = || {
        let (_, listed) = place.json(&["mcp", "list"]);
        let of =
            |one: &serde_json::Value| (one["server"].as_str().unwrap().to_owned(), one["trusted"].as_bool().unwrap());
        listed.as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(trusted(), [("own".to_owned(), true), ("theirs".to_owned(), false)]);
    assert_eq!(place.rye(&["mcp", "add", "theirs", "--", "python3", "server.py"]).code, Some(2));
    assert_eq!(trusted(), [("own".to_owned(), true), ("theirs".to_owned(), false)]);
    place.write("server.py", &(place.read("server.py") + "\n"));
    assert_eq!(trusted(), [("own".to_owned(), false), ("theirs".to_owned(), false)]);
}

#[test]
fn add_keeps_a_disabled_server_of_the_same_name() {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    let before = r#"{"mcpServers": {"my sums": {"command": "mine", "disabled": true}}}"#;
    place.write(".mcp.json", before);
    let refused = place.rye(&["mcp", "add", "my_sums", "--", "python3", "server.py"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("is in `.mcp.json` already, and is disabled"), "{}", refused.stderr);
    assert_eq!(place.read(".mcp.json"), before);
}

#[test]
fn add_asks_once_at_a_terminal_and_a_refusal_leaves_nothing() {
    if place().is_none() {
        return;
    }
    let place = TestProject::new();
    place.run_ok(&["init"]);
    place.write("about.txt", "Adds two numbers.");
    place.write("server.py", SERVER);
    for (answer, code) in [("\n", 5), ("y\n", 0)] {
        let mut add = Terminal::start(&place, 100, "mcp add sums -- python3 server.py");
        add.wait_for("Trust the server `sums` and these tools? [y/N]", 1);
        assert!(add.shown().contains("+ mcp/sums/"), "{}", add.shown());
        add.press(answer);
        let (ended, shown) = add.end();
        assert_eq!(ended, Some(code), "{shown}");
        let is_added = code == 0;
        assert_eq!(place.project().join(".mcp.json").exists(), is_added, "{shown}");
        let items = std::fs::read_dir(place.project().join(".ai/tools/mcp/sums")).map_or(0, Iterator::count);
        assert_eq!(items > 0, is_added, "{shown}");
    }
    let trusted = place.run_ok(&["trust", "--list"]);
    let of_server: Vec<&str> = trusted.lines().filter(|line| line.contains("sums")).collect();
    assert!(!of_server.is_empty() && of_server.iter().all(|line| line.starts_with("trusted")), "{trusted}");
}

#[test]
fn add_of_a_server_that_fails_names_its_last_output() {
    if place().is_none() {
        return;
    }
    let place = TestProject::own();
    place.run_ok(&["init"]);
    place.write("server.py", "import no_such_module\n");
    let failed = place.rye(&["mcp", "add", "sums", "--", "python3", "server.py"]);
    assert_eq!(failed.code, Some(1), "{}", failed.stderr);
    let reason = "it ended with exit code 1; its last output: ModuleNotFoundError";
    assert!(failed.stderr.contains(reason), "{}", failed.stderr);
    assert!(!failed.stderr.contains("sandbox"), "{}", failed.stderr);
    place.write("server.py", "open('/proc/1/mem', 'w')\n");
    let refused = place.rye(&["mcp", "add", "sums", "--", "python3", "server.py"]);
    assert!(refused.stderr.contains("runs in a sandbox"), "{}", refused.stderr);
    place.write("server.py", SERVER);
    place.write("about.txt", "Adds two numbers.");
    let added = place.rye(&["mcp", "add", "sums", "--read", "/opt", "--", "python3", "server.py"]);
    assert!(added.code == Some(0) && added.stderr.contains("also reads /opt"), "{}", added.stderr);
    let servers: serde_json::Value = serde_json::from_str(&place.read(".mcp.json")).unwrap();
    assert_eq!(servers["mcpServers"]["sums"]["needs"]["read"], serde_json::json!(["/opt"]), "{servers}");
}

#[test]
fn interrupted_add_leaves_no_entry() {
    if place().is_none() {
        return;
    }
    let place = TestProject::new();
    place.run_ok(&["init"]);
    place.write("about.txt", "Adds two numbers.");
    place.write("server.py", SERVER);
    let question = "Trust the server `sums` and these tools? [y/N]";
    for (server, shown_before) in [("sleep 100", "sums: sleep 100"), ("python3 server.py", question)] {
        let mut add = Terminal::start(&place, 100, &format!("mcp add sums -- {server}"));
        add.wait_for(shown_before, 1);
        std::thread::sleep(std::time::Duration::from_millis(300));
        add.press("\u{3}");
        let (code, shown) = add.end();
        assert_eq!(code, Some(130), "{shown}");
        assert!(shown.contains("`sums` was not added"), "{shown}");
        assert!(!place.project().join(".mcp.json").exists(), "{shown}");
        let items = std::fs::read_dir(place.project().join(".ai/tools/mcp/sums")).map_or(0, Iterator::count);
        assert_eq!(items, 0, "{shown}");
    }
}

#[test]
fn refresh_shows_a_changed_tool_and_asks_before_it_is_accepted() {
    let Some(place) = place() else { return };
    place.run_ok(&["trust"]);
    place.run_ok(&["mcp", "refresh"]);
    place.write("about.txt", "Sends\u{1b}[2J keys.");
    let server = SERVER.replace("\"type\": \"integer\"", "\"type\": \"number\"");
    place.write("server.py", &server);
    place.run_ok(&["trust"]);
    let item = ".ai/tools/mcp/my_math/double_it.yaml";
    let old = place.read(item);
    for (answer, code) in [("\n", 5), ("y\n", 0)] {
        let mut refresh = Terminal::start(&place, 100, "mcp refresh");
        refresh.wait_for("Accept these changes of the server `my_math`? [y/N]", 1);
        let shown = refresh.shown();
        for part in [
            "~ mcp/my_math/double_it",
            "description:",
            "- Doubles.",
            "parameters.properties.n.type:",
            "- integer",
            "+ number",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(shown.contains("+ Sends") && !shown.contains("\u{1b}[2J"), "{shown}");
        refresh.press(answer);
        let (ended, shown) = refresh.end();
        assert_eq!(ended, Some(code), "{shown}");
        assert_eq!(place.read(item) == old, code == 5, "{shown}");
    }
    assert_eq!(place.run_ok(&["mcp", "refresh"]), "");
    // Without a terminal, the command accepts the change and prints the difference.
    place.write("about.txt", "Doubles.");
    let (code, changes) = place.json(&["mcp", "refresh"]);
    let difference = &changes[0]["changes"]["differences"][0];
    assert_eq!((code, &difference["path"], &difference["after"]), (Some(0), &json!("description"), &json!("Doubles.")));
}

#[test]
fn refresh_does_not_follow_an_item_link() {
    let Some(place) = place() else { return };
    place.run_ok(&["trust"]);
    let outside = place.user().join("profile");
    std::fs::write(&outside, "mine").unwrap();
    place.write(".ai/tools/mcp/my_math/.keep", "");
    std::os::unix::fs::symlink(&outside, place.project().join(".ai/tools/mcp/my_math/double_it.yaml")).unwrap();
    let done = place.rye(&["mcp", "refresh"]);
    assert!(done.code == Some(1) && done.stderr.contains("not a regular file"), "{}", done.stderr);
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "mine");
    std::fs::remove_dir_all(place.project().join(".ai/tools/mcp")).unwrap();
    std::os::unix::fs::symlink(place.user(), place.project().join(".ai/tools/mcp")).unwrap();
    assert_eq!(place.rye(&["mcp", "refresh"]).code, Some(1));
    assert!(!place.user().join("my_math").exists());
}

#[test]
fn a_run_calls_a_tool_of_a_server() {
    let Some(place) = place() else { return };
    place.run_ok(&["trust"]);
    place.run_ok(&["mcp", "refresh"]);
    place.write(
        ".ai/directives/math.md",
        "# Math\n\n```xml\n<directive name=\"math\" version=\"1.0.0\">\n<metadata>\n\
         <permissions><execute><tool>mcp.my_math.*</tool></execute></permissions>\n</metadata>\n</directive>\n```\n\nDouble it.\n",
    );
    place.write(
        "script.yaml",
        "steps:\n  - tool_calls: [{ name: mcp_my_math_double_it, input: { n: 21 } }]\n  - done\n",
    );
    place.run_ok(&["trust"]);
    let ran = place.rye(&["run", "math", "--script", "script.yaml", "--events", "--format", "json"]);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("42"), "{}", ran.stdout);
    // The server's program is a file of the project, so changing it revokes the trust.
    assert!(!place.run_ok(&["mcp", "list"]).contains("not trusted"));
    place.write("server.py", &format!("{SERVER}\n"));
    assert!(place.run_ok(&["mcp", "list"]).contains("; not trusted: run `rye trust`)"));
    assert_eq!(place.rye(&["run", "math", "--script", "script.yaml"]).code, Some(5));
    place.write("server.py", SERVER);
    // A different program under the same name is not started, even if its items exist.
    place.write(".mcp.json", r#"{"mcpServers": {"my math": {"command": "python3", "args": ["-u", "server.py"]}}}"#);
    assert_eq!(place.rye(&["run", "math", "--script", "script.yaml"]).code, Some(5));
    place.run_ok(&["trust"]);
    let other = place.rye(&["run", "math", "--script", "script.yaml", "--events", "--format", "json"]);
    assert!(other.stdout.contains("changed since its tools were listed"), "{}", other.stdout);
}

/// Writes a directive that is granted the tools of the server, and commits the project after a lock.
fn grant_and_lock(place: &TestProject) {
    place.write(
        ".ai/directives/math.md",
        "# Math\n\n```xml\n<directive name=\"math\" version=\"1.0.0\">\n<metadata>\n\
         <permissions><execute><tool>mcp.my_math.*</tool></execute></permissions>\n</metadata>\n</directive>\n```\n\nDouble it.\n",
    );
    place.run_ok(&["lock"]);
    for args in [
        &["init", "-q"][..],
        &["add", "-A", "-f", ".ai/directives", ".ai/tools", ".mcp.json", ".ai/lock.json"],
        &["-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "-m", "a"],
    ] {
        let done = std::process::Command::new("git").args(args).current_dir(place.project()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

#[test]
fn changed_or_removed_server_is_reported_by_check_plan_diff_and_lock() {
    let Some(place) = place() else { return };
    place.run_ok(&["trust"]);
    place.run_ok(&["mcp", "refresh"]);
    grant_and_lock(&place);
    assert_eq!(place.json(&["check"]).0, Some(0));
    assert_eq!(place.rye(&["lock", "--check"]).code, Some(0));
    assert!(place.run_ok(&["plan", "math"]).contains("mcp_my_math_double_it"));
    let server = |settings: &str| format!(r#"{{"mcpServers": {{"my math": {{{settings}}}}}}}"#);
    for (settings, why) in [
        (
            server(r#""command": "python3", "args": ["-u", "server.py"]"#),
            "the settings of the MCP server `my_math` changed",
        ),
        (server(r#""command": "python3", "args": ["server.py"], "sandbox": "none""#), "the settings of the MCP server"),
        (server(r#""command": "python3", "args": ["server.py"], "env": {"A": "b"}"#), "the settings of the MCP server"),
        (
            server(r#""command": "python3", "args": ["server.py"], "disabled": true"#),
            "the MCP server `my_math` is disabled",
        ),
        (r#"{"mcpServers": {}}"#.to_owned(), "no MCP server `my_math` is configured"),
    ] {
        place.write(".mcp.json", &settings);
        let checked = place.rye(&["check", "--format", "plain"]);
        assert!(
            checked.stderr.contains(why) || checked.stdout.contains(why),
            "{settings}: {}{}",
            checked.stdout,
            checked.stderr
        );
        assert_eq!(place.rye(&["check", "--deny-warnings"]).code, Some(1), "{settings}");
        let plan = place.run_ok(&["plan", "math"]);
        assert!(plan.contains("every call is refused") && plan.contains(why), "{plan}");
        let palette = &place.json(&["plan", "math"]).1["palette"];
        assert!(!palette.to_string().contains("mcp_my_math_double_it"), "{palette}");
        let diff = place.run_ok(&["plan", "math", "--diff", "HEAD"]);
        assert!(diff.contains("every call of its tools is refused") && diff.contains(why), "{diff}");
        let lock = place.rye(&["lock", "--check"]);
        assert!(lock.code == Some(5) && lock.stdout.contains("tool"), "{}{}", lock.stdout, lock.stderr);
    }
    // A timeout refuses no call.
    place.write(".mcp.json", &server(r#""command": "python3", "args": ["server.py"], "timeout_seconds": 9"#));
    let checked = place.rye(&["check", "--format", "plain"]);
    let shown = format!("{}{}", checked.stdout, checked.stderr);
    assert!(shown.contains("the timeout of the MCP server `my_math` is 9 s"), "{shown}");
    assert!(place.run_ok(&["plan", "math"]).contains("mcp_my_math_double_it"));
}

#[test]
fn tool_of_a_server_that_requests_a_provider_key_is_not_offered() {
    let Some(place) = place() else { return };
    place.write(
        ".mcp.json",
        r#"{"mcpServers": {"my math": {"command": "python3", "args": ["server.py"], "env": {"K": "${MATH_KEY:-none}"}}}}"#,
    );
    place.run_ok(&["trust"]);
    place.run_ok(&["mcp", "refresh"]);
    grant_and_lock(&place);
    assert!(place.json(&["plan", "math"]).1["palette"].to_string().contains("mcp_my_math_double_it"));
    place.write(
        ".ai/config/agent/providers/mine.yaml",
        "wire: openai-chat\nbase_url: http://127.0.0.1:9\nkey_env: MATH_KEY\nmodels:\n  - { id: m, input: 0, output: 0, context: 1000, max_output: 100 }\n",
    );
    let why = "the MCP server `my_math` requests `MATH_KEY`, which holds a provider's key";
    let plan = place.run_ok(&["plan", "math"]);
    assert!(plan.contains("every call is refused") && plan.contains(why), "{plan}");
    assert!(!place.json(&["plan", "math"]).1["palette"].to_string().contains("mcp_my_math_double_it"));
    let diff = place.run_ok(&["plan", "math", "--diff", "HEAD"]);
    assert!(diff.contains("every call of its tools is refused") && diff.contains(why), "{diff}");
}

fn call(id: u64, name: &str, input: &serde_json::Value) -> serde_json::Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": input}})
}

fn hello() -> serde_json::Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
        "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}})
}

/// Sends messages to `rye mcp serve` one after the other. Returns the answers by id, and the exit code; calls `after`
/// with the id of each answer.
fn converse(
    place: &TestProject,
    args: &[&str],
    messages: &[serde_json::Value],
    after: impl Fn(u64),
) -> (BTreeMap<u64, serde_json::Value>, Option<i32>) {
    let mut child = place
        .command(&[&["mcp", "serve"], args].concat())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = child.stdin.take().unwrap();
    let from = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut answers = BTreeMap::new();
    let mut lines = std::io::BufRead::lines(from);
    for message in messages {
        std::io::Write::write_all(&mut to, format!("{message}\n").as_bytes()).unwrap();
        let Some(id) = message["id"].as_u64() else { continue };
        for line in lines.by_ref().take(50) {
            let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            if line["id"] == id {
                answers.insert(id, line);
                break;
            }
        }
        after(id);
    }
    drop(to);
    (answers, child.wait().unwrap().code())
}

/// Returns a project with a tool and a directive that offers it to clients.
fn place_with_tool() -> TestProject {
    let place = TestProject::new();
    place.run_ok(&["init"]);
    place.write(
        ".ai/tools/probe.sh",
        "#!/bin/bash\n# rye: {description: Probes., parameters: {}}\necho the probe ran\n",
    );
    place.write(
        ".ai/directives/face.md",
        "# Probe\n\n```xml\n<directive name=\"face\" version=\"1.0.0\">\n<metadata>\n\
         <permissions><execute><tool>probe</tool></execute></permissions><nudge>never</nudge>\n</metadata>\n</directive>\n```\n\nProbe it.\n",
    );
    place
}

fn text_of(answer: &serde_json::Value) -> (bool, &str) {
    let result = &answer["result"];
    (result["isError"] == true, result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")))
}

#[test]
fn a_session_runs_tools_of_a_trusted_project_and_names_rye_trust_after_a_revocation() {
    let place = place_with_tool();
    place.run_ok(&["trust"]);
    let messages =
        [hello(), json!({"jsonrpc": "2.0", "method": "notifications/initialized"}), call(2, "probe", &json!({}))];
    let (answers, code) = converse(&place, &["--directive", "face"], &messages, |_| {});
    assert_eq!(code, Some(0));
    let (is_error, text) = text_of(&answers[&2]);
    assert!(!is_error && text.contains("the probe ran"), "{text}");
    let (answers, _) = converse(&place, &["--directive", "face"], &messages, |id| {
        if id == 1 {
            place.run_ok(&["trust", "--revoke"]);
        }
    });
    let (is_error, text) = text_of(&answers[&2]);
    assert!(is_error && text.contains("`rye trust") && !text.contains("the probe ran"), "{text}");
}

#[test]
fn a_session_that_offers_tools_of_an_untrusted_project_is_refused() {
    let place = place_with_tool();
    let refused = place.rye(&["mcp", "serve", "--directive", "face"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(5), ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("`rye trust`"), "{}", refused.stderr);
}

#[test]
fn a_client_calls_what_the_directive_grants() {
    let place = TestProject::new();
    place.run_ok(&["init"]);
    place.write(".ai/knowledge/team/rules.md", "Never on Friday.\n");
    place.write("guest.txt", "Ada\n");
    let messages = [
        hello(),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
        call(3, "rye_fetch", &json!({"item_type": "knowledge", "item_id": "team/rules"})),
        call(4, "rye_file_system_read", &json!({"path": "guest.txt"})),
        call(
            5,
            "rye_execute",
            &json!({"item_type": "tool", "item_id": "rye/bash/bash", "parameters": {"command": "id"}}),
        ),
        call(6, "no_such_tool", &json!({})),
    ];
    let (answers, code) = converse(&place, &[], &messages, |_| {});
    assert_eq!(code, Some(0));
    assert_eq!(answers[&1]["result"]["serverInfo"]["name"], "rye");
    let tools = answers[&2]["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().filter_map(|t| t["name"].as_str()).collect();
    assert!(names.contains(&"rye_fetch") && names.contains(&"rye_file_system_read"), "{names:?}");
    assert!(!names.contains(&"rye_bash_bash") && !names.contains(&"rye_sign"), "{names:?}");
    assert_eq!(answers[&3]["result"]["content"][0]["text"], "Never on Friday.");
    assert!(answers[&4]["result"]["content"][0]["text"].as_str().unwrap().contains("Ada"), "{}", answers[&4]);
    let denied = &answers[&5]["result"];
    assert_eq!(denied["isError"], true);
    assert!(
        denied["content"][0]["text"].as_str().unwrap().contains("missing capability rye.execute.tool.rye.bash.bash")
    );
    assert_eq!(answers[&6]["error"]["code"], -32602);
    let (_, threads) = place.json(&["threads", "list"]);
    assert!(threads.to_string().contains("rye/mcp/session"), "{threads}");
}

/// Sends a request on a new connection and returns the whole response.
fn post(address: &str, headers: &[(&str, &str)], body: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    let mut request =
        format!("POST /mcp HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n", body.len());
    request.push_str("accept: application/json, text/event-stream\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.extend([format!("{name}: {value}\r\n")]);
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut chunk = [0_u8; 4096];
    // An event stream stays open; the answer is its first event.
    while let Ok(n @ 1..) = stream.read(&mut chunk) {
        answer.extend_from_slice(&chunk[..n]);
        if String::from_utf8_lossy(&answer).contains("serverInfo") {
            break;
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn serve_on_stdin_refuses_inputs_from_stdin() {
    let place = TestProject::new();
    place.run_ok(&["init"]);
    let mut command = place.command(&["mcp", "serve", "--inputs", "-"]);
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // The refusal must not wait for the end of stdin.
    let open = child.stdin.take().unwrap();
    let refused = child.wait_with_output().unwrap();
    drop(open);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("`--inputs -` is not allowed here: stdin holds the messages of the client"), "{text}");
    assert!(refused.stdout.is_empty());
}

#[test]
fn http_accepts_only_local_clients_and_origins() {
    use std::io::BufRead;
    let place = TestProject::new();
    place.run_ok(&["init"]);
    assert_eq!(place.rye(&["mcp", "serve", "--http", "0.0.0.0:0"]).code, Some(2));
    let mut child =
        place.command(&["mcp", "serve", "--http", "127.0.0.1:0"]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut lines = stderr.lines().map_while(Result::ok);
    let url = lines.find(|line| line.starts_with("http://")).unwrap();
    let token = lines.find_map(|line| line.strip_prefix("Authorization: ").map(str::to_owned)).unwrap();
    let address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
        "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}})
    .to_string();
    let token = ("authorization", token.as_str());
    let fine = post(&address, &[("host", &address), token], &hello);
    assert!(fine.starts_with("HTTP/1.1 200") && fine.contains("\"rye\""), "{fine}");
    let rebound = post(&address, &[("host", "evil.example"), token], &hello);
    assert!(rebound.starts_with("HTTP/1.1 4") && !rebound.contains("serverInfo"), "{rebound}");
    let foreign = post(&address, &[("host", &address), ("origin", "https://evil.example"), token], &hello);
    assert!(foreign.starts_with("HTTP/1.1 4") && !foreign.contains("serverInfo"), "{foreign}");
    child.kill().unwrap();
    child.wait().unwrap();
}
