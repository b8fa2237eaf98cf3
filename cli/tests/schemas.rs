//! Tests that `--format json` output matches the schemas of `rye schema`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::collections::BTreeMap;

use rye::TestProject;
use serde_json::Value;

#[test]
fn json_outputs_match_their_schemas() {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    place.run_ok(&["new", "tool", "team/count", "--language", "python"]);
    let (_, run) = place.json(&["run", "first", "--input", "topic=tea"]);
    let thread = run["thread_id"].as_str().unwrap();
    let outputs: [(&str, &[&str]); 48] = [
        ("approvals", &["threads", "approvals"]),
        ("assert", &["assert"]),
        ("check", &["check"]),
        ("check", &["run", "first"]),
        ("doctor", &["doctor"]),
        ("error", &["threads", "show", "absent"]),
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
        ("input-schemas", &["schema", "--inputs"]),
        ("input-schemas", &["schema", "--inputs", "--to", "schemas"]),
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
    assert!(
        done.code == Some(2) && done.stderr.contains("did you mean `extends::cycle` or `spawn::cycle`?"),
        "{}",
        done.stderr
    );
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

/// Returns the YAML files and the knowledge of a project, as paths below it.
fn input_files(project: &std::path::Path) -> Vec<String> {
    let mut all = rye::files(project);
    all.retain(|path| path.starts_with(".ai/") && !path.starts_with(".ai/state/"));
    all
}

/// Returns the data of a file: the whole YAML, or the metadata of knowledge. `None` if it cannot be parsed.
fn input_data(path: &str, text: &str) -> Option<Value> {
    use rye_grammar::{SourceId, knowledge, yaml};
    if path.rsplit_once('.').is_some_and(|(_, extension)| extension == "md") {
        let parsed = knowledge::parse(SourceId(0), text, knowledge::KnowledgeFormat::Markdown);
        return parsed.tree.metadata.filter(|_| parsed.errors.is_empty()).map(|node| node.to_value());
    }
    let parsed = yaml::parse(SourceId(0), text);
    parsed.errors.is_empty().then(|| parsed.tree.to_value())
}

/// The schemas of input files and the check agree: a file without errors fits its schema, and a file with an unknown
/// key or a wrong value in its own data does not.
#[test]
fn input_schemas_agree_with_the_check() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let place = TestProject::new();
    let mut projects: Vec<std::path::PathBuf> =
        ["hello", "review", "deploy", "classic-hooks"].map(|name| root.join("examples").join(name)).to_vec();
    for topic in std::fs::read_dir(root.join("snapshots/cases")).unwrap() {
        for case in std::fs::read_dir(topic.unwrap().path()).unwrap() {
            projects.push(case.unwrap().path());
        }
    }
    projects.retain(|project| project.join(".ai").is_dir());
    let (mut fitting, mut refused) = (0, 0);
    let mut disagreements = Vec::new();
    let mut validators = BTreeMap::new();
    for project in projects {
        let mut files = Vec::new();
        for path in input_files(&project) {
            let Some(name) = rye_compiler::input_schema::schema_name_of_path(&path) else { continue };
            let text = std::fs::read_to_string(project.join(&path)).ok();
            let Some(data) = text.and_then(|text| input_data(&path, &text)) else { continue };
            validators.entry(name).or_insert_with(|| {
                let schema = rye_compiler::input_schema::schema_of_path(&path).unwrap();
                jsonschema::validator_for(&schema.schema).unwrap()
            });
            files.push((name, path, data));
        }
        if files.is_empty() {
            continue;
        }
        let (_, checked) = place.json(&["check", "--project", project.to_str().unwrap()]);
        for (name, path, data) in files {
            let errors: Vec<&Value> = checked["diagnostics"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|one| one["severity"] == "error")
                .filter(|one| one["labels"][0]["file"] == path.as_str() || one["file"] == path.as_str())
                // A schema describes the content of a file, not the space in which the file may lie.
                .filter(|one| !one["message"].to_string().contains("cannot be a file of a project"))
                .collect();
            let of_shape =
                |code: &Value| matches!(code.as_str(), Some("rye::item::unknown-key" | "rye::config::invalid"));
            let shown = format!("{} {path}", project.display());
            let faults: Vec<String> = validators[name]
                .iter_errors(&data)
                .map(|fault| format!("{}: {fault}", fault.instance_path()))
                .collect();
            if errors.is_empty() {
                if !faults.is_empty() {
                    disagreements.push(format!("{shown}: {faults:?}"));
                }
                fitting += 1;
            } else if errors.iter().any(|one| of_shape(&one["code"]))
                && !NOT_IN_SCHEMAS.iter().any(|end| shown.ends_with(end))
            {
                if faults.is_empty() {
                    disagreements.push(format!("{shown}: {:?}", errors[0]["message"]));
                }
                refused += 1;
            }
        }
    }
    assert!(disagreements.is_empty(), "{}", disagreements.join("\n"));
    assert!(fitting > 60 && refused > 5, "{fitting} fit, {refused} are refused");
}

/// Files whose errors concern more than their shape, so that only `rye check` finds them.
const NOT_IN_SCHEMAS: [&str; 4] = [
    "config/provider-slips .ai/config/agent/providers/mine.yaml",
    "config/provider-slips .ai/config/agent/providers/tiers.yaml",
    // A header name with a value: as for names of variables, the schema of a provider has no pattern for it.
    "config/without-effect .ai/config/agent/providers/house.yaml",
    // A JSON Schema may have further keywords, so the schema of tools cannot refuse a misspelled one.
    "item/broken-schema .ai/tools/my/find.yaml",
];

#[test]
fn mistakes_in_settings_and_hooks_have_a_help_that_works() {
    let helps = |path: &str, text: &str| -> String {
        let place = TestProject::own();
        let metadata =
            "<limits turns=\"50\"/><permissions><execute><tool>rye.file-system.read</tool></execute></permissions>";
        let directive =
            format!("```xml\n<directive name=\"d\"><metadata>{metadata}</metadata></directive>\n```\n\nGo.\n");
        place.write(".ai/directives/d.md", &directive);
        place.write(path, text);
        let (_, checked) = place.json(&["check"]);
        let found = checked["diagnostics"].as_array().unwrap();
        found.iter().filter_map(|one| one["help"].as_str()).collect::<Vec<_>>().join("\n")
    };
    let table = "classifications: [{ risk: safe, patterns: [\"rye.execute.tool.rye.bash.*\"] }]\n";
    let says = r#"add an entry with the right risk to `classifications`, such as `- { risk: safe, patterns: [""#;
    let shown = helps(".ai/config/agent/capability_risk.yaml", table);
    assert!(shown.contains(says) && shown.contains("the list replaces the standard list"), "{shown}");
    let hook = "hooks: [{ id: h, event: after_step, condition: usage_ratio > 0.8, action: continue }]\n";
    assert!(helps(".ai/config/agent/hooks.yaml", hook).contains("`usage_ratio` is a fact of `context`"));
    let maximum = "limits: { max: { turns: 10 } }\n";
    let says = "lower the limit to 10, or raise `limits.max.turns` in `agent/agent`";
    assert!(helps(".ai/config/agent/agent.yaml", maximum).contains(says));
}
