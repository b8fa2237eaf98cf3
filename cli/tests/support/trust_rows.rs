//! Rows of the trust matrix: the tools, hooks and files of a project that `docs/explanation/security.md` lists.

use super::{KNOWLEDGE, MatrixRow, Proof, READ, READ_NOTE, RUN, SAID, directive, holds, place, row};

/// A server of the user with one tool.
const SERVER: &str = r#"servers:
  mine:
    command:
      - python3
      - -c
      - |
        import json, sys
        for line in sys.stdin:
            request = json.loads(line)
            method, id = request.get("method"), request.get("id")
            result = {}
            if method == "initialize":
                result = {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}},
                          "serverInfo": {"name": "mine", "version": "1"}}
            elif method == "tools/list":
                result = {"tools": [{"name": "echo", "description": "E.", "inputSchema": {"type": "object"}}]}
            elif method == "tools/call":
                result = {"content": [{"type": "text", "text": "from-the-" + "users-server"}]}
            if id is not None:
                print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
"#;
const OTHER: &str = "# Other\n\n```xml\n<directive name=\"other\" version=\"1.0.0\"><metadata><description>Other.</description>\
    <model provider=\"scripted\" tier=\"fast\"/><nudge>never</nudge></metadata></directive>\n```\n\nSay it.\n";
/// Evidence that a call passed the gate, although the tool itself may fail.
const STARTED: Proof = Proof::Said("\"type\":\"tool_started\"");

pub fn rows() -> Vec<MatrixRow> {
    let mut rows = rows_of_tools();
    rows.extend(rows_of_hooks());
    rows.extend(rows_of_settings());
    rows
}

/// Returns the rows about tools that a directive of the project grants.
fn rows_of_tools() -> Vec<MatrixRow> {
    vec![
        row(
            "ls in the project",
            "<permissions><execute><tool>rye.file-system.ls</tool></execute></permissions>",
            "{ name: rye_file_system_ls, input: { path: out } }",
            None,
            Proof::Said("listed-name"),
        ),
        row(
            "glob in the project",
            "<permissions><execute><tool>rye.file-system.glob</tool></execute></permissions>",
            "{ name: rye_file_system_glob, input: { pattern: \"out/*\" } }",
            None,
            Proof::Said("listed-name"),
        ),
        row(
            "grep in the project",
            "<permissions><execute><tool>rye.file-system.grep</tool></execute></permissions>",
            "{ name: rye_file_system_grep, input: { pattern: \"kept.in\", path: . } }",
            None,
            SAID,
        ),
        row(
            "fetch of the standard library",
            "<permissions><fetch><knowledge>rye.*</knowledge></fetch></permissions>",
            "{ name: rye_fetch, input: { item_type: knowledge, item_id: rye/agent/core/protocol/sign } }",
            None,
            Proof::Said("that was changed and not signed again will not load"),
        ),
        row(
            "the web",
            "<permissions><execute><tool net=\"127.0.0.1\">rye.web.fetch</tool></execute>\
             <acknowledge risk=\"elevated\">t</acknowledge></permissions>",
            "{ name: rye_web_fetch, input: { url: \"http://127.0.0.1:9/\" } }",
            Some("rye.execute.tool.rye.web.fetch"),
            STARTED,
        ),
        row(
            "git",
            "<permissions><execute><tool>rye.git.status</tool></execute>\
             <acknowledge risk=\"elevated\">t</acknowledge></permissions>",
            "{ name: rye_git_status, input: {} }",
            Some("`rye.execute.tool.rye.git.status` (elevated)"),
            STARTED,
        ),
        MatrixRow {
            files: &[(".ai/directives/other.md", OTHER)],
            ..row(
                "another directive of the project",
                "<permissions><execute><directive>other</directive></execute>\
                 <acknowledge risk=\"elevated\">t</acknowledge></permissions>",
                "{ name: rye_execute, input: { item_type: directive, item_id: other } }",
                Some("`rye.execute.directive.other` (elevated)"),
                Proof::Said("\"type\":\"child_ended\""),
            )
        },
        MatrixRow {
            files: &[(
                ".ai/tools/web_hook.yaml",
                "description: H.\nversion: 1.0.0\nkind: http\nmethod: GET\nurl: http://127.0.0.1:9/\n",
            )],
            ..row(
                "a tool of the project that sends requests",
                "<permissions><execute><tool net=\"127.0.0.1\">web_hook</tool></execute>\
                 <acknowledge risk=\"elevated\">t</acknowledge></permissions>",
                "{ name: web_hook, input: {} }",
                Some("http://127.0.0.1:9/"),
                STARTED,
            )
        },
    ]
}

/// Returns the rows about hooks of the project.
fn rows_of_hooks() -> Vec<MatrixRow> {
    vec![
        MatrixRow {
            files: &[
                (".ai/knowledge/project/notes.md", KNOWLEDGE),
                (
                    ".ai/config/agent/hooks.yaml",
                    "hooks:\n  - { id: seal, event: thread_started, action: { primary: sign, item_type: knowledge, \
                     item_id: project/notes } }\n",
                ),
            ],
            ..row(
                "a hook that signs",
                READ,
                READ_NOTE,
                Some("hook seal  at thread_started: signs"),
                Proof::File(".ai/knowledge/project/notes.md", "rye:signed:"),
            )
        },
        MatrixRow {
            files: &[
                (".ai/knowledge/project/notes.md", KNOWLEDGE),
                (
                    ".ai/config/agent/hooks.yaml",
                    "hooks:\n  - { id: look, event: thread_started, position: before, action: { primary: fetch, \
                     item_type: knowledge, item_id: project/notes } }\n",
                ),
            ],
            ..row("a hook that fetches in the project", READ, READ_NOTE, None, Proof::Said("kept-in-the-notes"))
        },
        MatrixRow {
            files: &[(
                ".ai/config/agent/hooks.yaml",
                "hooks:\n  - { id: no, event: tool_call, action: { action: block, reason: refused-by-the-hook } }\n",
            )],
            ..row("a hook that blocks", READ, READ_NOTE, None, Proof::Said("refused-by-the-hook"))
        },
    ]
}

/// Returns the rows about settings of the project that steer a thread without a wide grant.
fn rows_of_settings() -> Vec<MatrixRow> {
    let of_file = |name: &'static str, files: &'static [(&'static str, &'static str)], refused: &'static str| {
        MatrixRow { files, ..row(name, READ, READ_NOTE, Some(refused), SAID) }
    };
    vec![
        of_file(
            "a risk table of the project",
            &[(".ai/config/agent/capability_risk.yaml", "risk_levels: { write: { policy: acknowledge_required } }\n")],
            "capability_risk",
        ),
        of_file(
            "estimated costs",
            &[(".ai/config/agent/resilience.yaml", "budget: { unknown_outcome: estimate }\n")],
            "agent/resilience",
        ),
    ]
}

#[test]
fn server_of_the_user_space_is_reached_only_by_a_trusted_project() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: `python3` is not installed");
        return;
    }
    let grant = "<permissions><execute><tool>mcp.mine.*</tool></execute>\
        <acknowledge risk=\"elevated\">t</acknowledge></permissions>";
    let proof = Proof::Said("from-the-users-server");
    let row = row("a server of the user space", grant, "{ name: mcp_mine_echo, input: {} }", None, proof);
    let place = place(&row);
    place.write("../user/.ai/config/mcp.yaml", SERVER);
    place.run_ok(&["mcp", "refresh"]);
    // The item that `refresh` wrote for the project becomes an item of the user.
    let item = ".ai/tools/mcp/mine/echo.yaml";
    place.write(&format!("../user/{item}"), &place.read(item));
    std::fs::remove_file(place.project().join(item)).unwrap();
    let refused = place.rye(&RUN);
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    assert!(refused.stderr.contains("reaches items of your user space: tool `mcp/mine/echo`"), "{}", refused.stderr);
    place.run_ok(&["trust"]);
    let (code, ran) = place.json(&RUN);
    assert_eq!(code, Some(0), "{ran}");
    assert!(holds(&place, &row.proof, ran["thread_id"].as_str()), "{ran}");
    place.run_ok(&["trust", "--revoke"]);
    let thread = ran["thread_id"].as_str().unwrap();
    let resumed = place.rye(&["run", "--resume", thread, "--message", "more", "--script", "../script.yaml"]);
    assert_eq!(resumed.code, Some(5), "{}", resumed.stderr);
}

#[test]
fn prices_of_the_project_need_trust() {
    let row = row("prices of the project", READ, READ_NOTE, None, SAID);
    let place = place(&row);
    place.write(".ai/directives/act.md", &directive("", READ).replace("\"scripted\"", "\"anthropic\""));
    let prices = "models:\n  - { id: claude-sonnet-5, context_window: 200000, max_output: 8000, prices: { input: \"0.001\", \
        output: \"0.001\" } }\n";
    place.write(".ai/config/agent/providers/anthropic.yaml", prices);
    let refused = place.rye(&["run", "act"]);
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    assert!(refused.stderr.contains("sets the prices of its models"), "{}", refused.stderr);
    place.run_ok(&["trust"]);
    let (_, after) = place.json(&["trust", "--list"]);
    assert!(after["requirements"].as_array().unwrap().iter().all(|one| one["trusted"] == true), "{after}");
    assert_ne!(place.rye(&["run", "act"]).code, Some(5));
}
