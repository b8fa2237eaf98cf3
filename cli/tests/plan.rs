//! Tests of `rye plan`, `rye why` and `rye graph` as processes, in the deploy example.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::process::{Command, Output};

use serde_json::Value;

const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/deploy");

fn rye(args: &[&str]) -> Output {
    let empty_folder = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_rye"))
        .args(args)
        .args(["--project", PROJECT])
        .env("RYE_USER_SPACE", empty_folder.path())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn slips_of_a_call_are_reported_with_their_fix() {
    let cases: [(&[&str], i32, &str); 10] = [
        (&["run", "rye/bash/bash"], 1, "`rye/bash/bash` is a tool, not a directive"),
        (&["plan", "rye/agent/core/Identity"], 1, "is knowledge, not a directive"),
        (&["plan", "deploy_staging", "--limit", "turns=2", "--limit", "turns=3"], 2, "given twice: `2` and `3`"),
        (&["plan", "deploy_staging", "--inputs", "service=web"], 2, "write `--input service=web`"),
        (&["plan", "deploy_staging", "--model", "scripted/fasst"], 1, "did you mean `fast`?"),
        (&["plan", "deploy_staging", "--model", "anthropc/fast"], 1, "did you mean `anthropic/fast`?"),
        (&["run", "rye/bash/bash"], 1, "to use the tool, grant `<tool>rye.bash.bash</tool>`"),
        (&["plan", "rye/agent/core/Identity"], 1, "to use the knowledge, write `<before>"),
        (&["plan", "deploy_staging", "--model", "foo/bar"], 1, "name its provider: `--model"),
        (&["plan", "deploy_staging", "--limit", "spend=1.000.000"], 1, "an amount of dollars, such as `0.10`"),
    ];
    for (args, code, message) in cases {
        let output = rye(args);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {printed}");
        assert!(printed.contains(message), "{args:?}: {printed}");
    }
    let unknown = rye(&["plan", "deploy_stagin"]);
    assert!(!text(&unknown.stderr).contains("has no plan"), "{}", text(&unknown.stderr));
}

#[test]
fn plan_prints_values_and_origins() {
    let output = rye(&["plan", "deploy_staging"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for part in
        ["set by the hook `route_deploy` .ai/config/agent/hooks.yaml:", "suppressed", "deduplicated", "shadowed"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let json = rye(&["plan", "deploy_staging", "--format", "json", "--input", "service=web", "--limit", "turns=3"]);
    assert_eq!(text(&json.stdout).lines().count(), 1);
    let plan: Value = serde_json::from_str(text(&json.stdout)).unwrap();
    assert_eq!(plan["chain"], serde_json::json!(["rye/agent/core/base", "project/deploy/base", "deploy_staging"]));
    assert_eq!(plan["limits"]["turns"]["value"], 3);
    assert!(plan["first_message"]["text"].as_str().unwrap().contains("web"));
    let again = rye(&["plan", "deploy_staging", "--format", "json", "--input", "service=web", "--limit", "turns=3"]);
    assert_eq!(json.stdout, again.stdout);
}

#[test]
fn directive_with_errors_has_no_plan() {
    let output = rye(&["plan", "deploy_stagin"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
    assert!(text(&output.stderr).contains("rye::item::unknown"));
    let json = rye(&["plan", "deploy_stagin", "--format", "json"]);
    let refused: Value = serde_json::from_str(text(&json.stdout)).unwrap();
    assert_eq!((json.status.code(), &refused["plan_id"]), (Some(1), &Value::Null));
    assert_eq!(refused["diagnostics"][0]["code"], "rye::item::unknown");
    for usage in [
        &["plan", "../deploy_staging"][..],
        &["plan"],
        &["plan", "deploy_staging", "--input", "service"],
        &["plan", "deploy_staging", "--inputs", "nowhere.json"],
    ] {
        assert_eq!(rye(usage).status.code(), Some(2), "{usage:?}");
    }
}

#[test]
fn why_names_the_line() {
    let limit = rye(&["why", "limit.spend", "--of", "deploy_staging"]);
    assert_eq!(limit.status.code(), Some(0));
    assert!(text(&limit.stdout).contains(".ai/directives/deploy_staging.md:"), "{}", text(&limit.stdout));
    let everywhere: Value = serde_json::from_str(text(&rye(&["why", "spend", "--format", "json"]).stdout)).unwrap();
    assert_eq!(everywhere["answers"].as_array().unwrap().len(), 2);
    let item: Value =
        serde_json::from_str(text(&rye(&["why", "rye/agent/core/Identity", "--format", "json"]).stdout)).unwrap();
    assert_eq!((&item["items"][0]["space"], &item["items"][0]["shadowed"]), (&"project".into(), &false.into()));
    assert_eq!((&item["items"][1]["space"], &item["items"][1]["shadowed"]), (&"system".into(), &true.into()));
    let missing = rye(&["why", "limit.spnd"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("did you mean `limit.spend`?"), "{}", text(&missing.stderr));
    let missing = rye(&["why", "rye/agent/core/base_reviw"]);
    assert!(text(&missing.stderr).contains("did you mean `rye/agent/core/base_review`?"), "{}", text(&missing.stderr));
}

#[test]
fn why_prints_every_value_of_a_limit() {
    let limit = rye(&["why", "limit.turns", "--of", "deploy_staging"]);
    let printed = text(&limit.stdout);
    for value in [
        "limit.turns: 8, declared by `deploy_staging`",
        "the built-in default sets 15, which `deploy_staging` overrides",
        "`agent/resilience` of the system space sets 15, which `deploy_staging` overrides",
        "`deploy_staging` sets 8, which applies",
    ] {
        assert!(printed.contains(value), "{value}: {printed}");
    }
}

#[test]
fn graphs_are_drawn_in_two_languages() {
    assert!(text(&rye(&["graph", "deploy_staging"]).stdout).starts_with("flowchart"));
    assert!(text(&rye(&["graph", "deploy_staging", "--to", "dot"]).stdout).starts_with("digraph"));
    assert_eq!(rye(&["graph", "nope"]).status.code(), Some(1));
}
