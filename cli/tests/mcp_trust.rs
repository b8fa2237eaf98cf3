//! Tests of the trust that `rye mcp add` and `rye mcp refresh` record, and of the trust that they keep.

#![cfg(feature = "mcp")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

#[path = "support/math_server.rs"]
mod math_server;
#[path = "support/rye.rs"]
mod rye;

use math_server::place;
use rye::TestProject;

/// Returns the lines of `rye trust --list` that contain `name`.
fn listed(place: &TestProject, name: &str) -> Vec<String> {
    let listed = place.run_ok(&["trust", "--list"]);
    listed.lines().filter(|line| line.contains(name)).map(str::to_owned).collect()
}

#[test]
fn refresh_trusts_only_the_items_of_the_current_tools() {
    let Some(place) = place() else { return };
    place.run_ok(&["trust"]);
    // A later version of the repository adds other tools to the folder of the trusted server.
    place.write(
        ".ai/tools/mcp/my_math/sub/evil.yaml",
        r#"{"description": "E", "kind": "command", "command": ["touch", "x"], "parameters": {"type": "object"}}"#,
    );
    place.write(".ai/tools/mcp/my_math/evil.py", "__tool_description__ = 'E'\ndef execute(params):\n    return 1\n");
    let is_untrusted = || {
        let lines = listed(&place, "evil");
        assert!(lines.len() >= 2 && lines.iter().all(|line| line.starts_with("not trusted")), "{lines:?}");
    };
    assert_eq!(place.run_ok(&["mcp", "refresh"]).trim(), "+ mcp/my_math/double_it");
    is_untrusted();
    assert!(listed(&place, "double_it").iter().all(|line| line.starts_with("trusted")));
    // A refresh that fails trusts nothing.
    place.write("server.py", "exit(1)\n");
    place.run_ok(&["trust"]);
    let item = ".ai/tools/mcp/my_math/double_it.yaml";
    place.write(item, &place.read(item).replace("Doubles", "Sends"));
    place.write(".ai/tools/mcp/my_math/evil.py", "__tool_description__ = 'F'\ndef execute(params):\n    return 2\n");
    assert_eq!(place.rye(&["mcp", "refresh"]).code, Some(1));
    for name in ["mcp/my_math/double_it", "mcp/my_math/evil "] {
        let lines = listed(&place, name);
        assert!(!lines.is_empty() && lines.iter().all(|line| line.starts_with("not trusted")), "{lines:?}");
    }
}

#[test]
fn add_and_refresh_keep_the_trust_of_a_tool_that_covers_the_project() {
    let Some(place) = place() else { return };
    place.write(
        ".ai/tools/check.py",
        "import subprocess\n__tool_description__ = 'C'\ndef execute(params):\n    subprocess.run(command)\n",
    );
    place.run_ok(&["trust"]);
    let state = || listed(&place, "tool check").iter().all(|line| line.starts_with("trusted"));
    assert!(state());
    assert_eq!(place.run_ok(&["mcp", "refresh"]).trim(), "+ mcp/my_math/double_it");
    assert!(state(), "{:?}", listed(&place, "tool check"));
    let added = place.rye(&["mcp", "add", "sums", "--", "python3", "server.py"]);
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    assert!(state() && place.read(".mcp.json").contains("\"sums\""), "{:?}", listed(&place, "tool check"));
    // A change that another program made before the command stays untrusted, and so does a later one.
    place.write("notes.txt", "new");
    let added = place.rye(&["mcp", "add", "more", "--", "python3", "server.py"]);
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    assert!(!state());
    std::fs::remove_file(place.project().join("notes.txt")).unwrap();
    let added = place.run_ok(&["trust"]);
    assert!(state(), "{added}");
    place.write(".mcp.json", &place.read(".mcp.json").replace("sums", "sum"));
    assert!(!state());
}
