//! Tests that `--format json` output matches the schemas of `rye schema`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::TestProject;
use serde_json::Value;

#[test]
fn json_outputs_match_their_schemas() {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    place.run_ok(&["new", "tool", "team/count", "--language", "python"]);
    let (_, run) = place.json(&["run", "first", "--input", "topic=tea"]);
    let thread = run["thread_id"].as_str().unwrap();
    let outputs: [(&str, &[&str]); 45] = [
        ("approvals", &["threads", "approvals"]),
        ("assert", &["assert"]),
        ("check", &["check"]),
        ("check", &["run", "first"]),
        ("doctor", &["doctor"]),
        ("error", &["threads", "show", "nobody"]),
        ("error", &["no-such-command"]),
        ("error", &["assert", "nobody"]),
        ("error", &["eval", "--condition", "a ="]),
        ("eval", &["eval", "--condition", "1 == 1"]),
        ("explain", &["explain"]),
        ("explain", &["explain", "extends::cycle"]),
        ("explain", &["explain", "capabilities"]),
        ("fetch", &["fetch", "directive", "first"]),
        ("fetch", &["fetch", "tool", "team/count"]),
        ("fmt", &["fmt"]),
        ("graph", &["graph"]),
        ("hits", &["fetch", "tool", "--query", "read"]),
        ("hits", &["fetch", "tool", "--query", "nothingofthekind"]),
        ("init", &["init", "other"]),
        ("keys", &["keys", "list"]),
        ("lock", &["lock"]),
        ("lock", &["lock", "--check"]),
        ("matrix", &["plan", "first", "--all"]),
        ("new", &["new", "knowledge", "team/rules"]),
        ("no-plan", &["plan", "nobody"]),
        ("plan", &["plan", "first", "--input", "topic=tea"]),
        ("plan-graph", &["plan", "first", "--graph"]),
        ("plan-prompt", &["plan", "first", "--prompt"]),
        ("proof", &["threads", "prove", thread]),
        ("providers", &["providers", "list"]),
        ("provider-test", &["providers", "test", "scripted"]),
        ("repair", &["threads", "repair"]),
        ("run", &["run", "first", "--input", "topic=tea", "--limit", "turns=1"]),
        ("search", &["threads", "search", thread, "tea"]),
        ("signatures", &["verify"]),
        ("signatures", &["sign", "first"]),
        ("thread", &["threads", "show", thread]),
        ("threads", &["threads", "list"]),
        ("threads", &["threads", "prune"]),
        ("transcript", &["threads", "transcript", thread]),
        ("trust", &["trust", "--list"]),
        ("verify", &["threads", "verify"]),
        ("wait", &["threads", "wait", thread]),
        ("why", &["why", "limit.spend"]),
        ("why", &["why", "team/count"]),
    ];
    for (name, args) in outputs {
        let schema: Value = serde_json::from_str(&place.run_ok(&["schema", name])).unwrap();
        let (_, output) = place.json(args);
        let faults: Vec<String> = jsonschema::validator_for(&schema)
            .unwrap()
            .iter_errors(&output)
            .map(|fault| format!("{}: {fault}", fault.instance_path()))
            .collect();
        assert!(faults.is_empty(), "`rye {}` is no {name}: {faults:?}\n{output}", args.join(" "));
    }
    let (_, names) = place.json(&["schema"]);
    let missing = |name: &str| !names.as_array().unwrap().iter().any(|known| known == name);
    assert!(!outputs.iter().any(|(name, _)| missing(name)), "{names}");
}

#[test]
fn unknown_ids_and_paths_get_suggestions() {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    for args in [["assert", "frist"], ["lock", "frist"]] {
        let done = place.rye(&args);
        assert_eq!(done.code, Some(1), "{args:?}");
        assert!(done.stderr.contains("unknown directive `frist`") && done.stderr.contains("did you mean `first`?"));
    }
    for args in [
        &["plan", ".ai/directives/first.md"][..],
        &["run", "./.ai/directives/first.md"],
        &["fetch", "directive", "first.md"],
        &["new", "directive", ".ai/directives/first.md"],
    ] {
        let done = place.rye(args);
        assert!(done.code == Some(2) && done.stderr.contains("did you mean `first`?"), "{args:?} {}", done.stderr);
    }
    let done = place.rye(&["explain", "cycle"]);
    assert!(done.code == Some(2) && done.stderr.contains("did you mean `extends::cycle`?"), "{}", done.stderr);
    // Every command that reads a file with an invalid signature refuses it.
    place.run_ok(&["sign", "first"]);
    place.write(".ai/directives/first.md", &format!("{}more\n", place.read(".ai/directives/first.md")));
    for args in [&["fetch", "directive", "first"][..], &["run", "first"], &["plan", "first"], &["verify"]] {
        assert_eq!(place.rye(args).code, Some(5), "{args:?}");
    }
    place.run_ok(&["sign", "first"]);
    // Files that rye writes are not reported as unrecognized.
    place.run_ok(&["lock"]);
    let (_, checked) = place.json(&["check"]);
    assert_eq!(checked["diagnostics"], serde_json::json!([]));
}
