//! Tests of the standard library's tool files against the tools they name.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

use rye_grammar::SourceId;
use rye_grammar::tool_header::{self, ToolLanguage};
use serde_json::json;

use super::*;

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

fn specs() -> Vec<(String, ToolSpec)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stdlib/.ai/tools");
    let mut found = Vec::new();
    for folder in ["rye/bash", "rye/file-system", "rye/git", "rye/knowledge", "rye/web"] {
        files(&root.join(folder), &mut found);
    }
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let parsed = tool_header::parse(SourceId(0), &text, ToolLanguage::Yaml, &tool_header::NoScriptReader);
        assert_eq!(parsed.errors, [], "{}", path.display());
        let id = path.strip_prefix(&root).unwrap().with_extension("");
        (id.to_str().unwrap().to_owned(), ToolSpec::read(&parsed.tree).unwrap())
    };
    found.iter().map(read).collect()
}

fn spec(parameters: Value, kind: ToolKind) -> ToolSpec {
    ToolSpec {
        description: "x".into(),
        parameters,
        kind,
        timeout_seconds: 5,
        parallel: false,
        idempotent: rye_compiler::tool_spec::Idempotence::default(),
        needs: rye_compiler::tool_spec::ToolNeeds::default(),
        environment: Vec::new(),
        config: None,
        persistent: false,
        pushes: false,
        snippet: None,
        guidelines: Vec::new(),
        version: None,
        category: None,
    }
}

#[test]
fn every_standard_tool_can_be_prepared() {
    let registry = ToolRegistry::standard();
    let specs = specs();
    assert_eq!(specs.len(), 13);
    for (id, spec) in &specs {
        let prepared = registry.prepare(spec, &ToolFile::default()).unwrap();
        assert!(!matches!(prepared.check(&json!({})), Err(SchemaError::Broken(_))), "{id}");
        assert_eq!(spec.parameters["additionalProperties"], json!(false), "{id}");
        assert_eq!(spec.category.as_deref(), id.rsplit_once('/').map(|p| p.0), "{id}");
    }
    let parallel: Vec<&str> = specs.iter().filter(|s| s.1.parallel).map(|s| s.0.as_str()).collect();
    assert_eq!(
        parallel,
        [
            "rye/file-system/glob",
            "rye/file-system/grep",
            "rye/file-system/ls",
            "rye/file-system/read",
            "rye/git/diff",
            "rye/git/log",
            "rye/git/show",
            "rye/git/status",
            "rye/web/fetch"
        ]
    );
}

#[test]
fn standard_palette_stays_small() {
    let size: usize = specs().iter().map(|(_, s)| s.description.len() + s.parameters.to_string().len()).sum();
    assert!(size / 4 < 1500, "{} tokens", size / 4);
}

#[tokio::test]
async fn every_schema_parameter_is_read_by_its_tool() {
    let dir = tempfile::tempdir().unwrap();
    let registry = ToolRegistry::standard();
    for (id, spec) in specs() {
        let prepared = registry.prepare(&spec, &ToolFile::default()).unwrap();
        let properties = spec.parameters["properties"].as_object().unwrap();
        let example = |(name, schema): (&String, &Value)| {
            let value = match schema["type"].as_str().unwrap() {
                "integer" => json!(1),
                "boolean" => json!(true),
                "array" => json!(["x"]),
                _ => json!("x"),
            };
            (name.clone(), value)
        };
        let parameters = Value::Object(properties.iter().map(example).collect());
        prepared.check(&parameters).unwrap();
        let outcome = prepared.run(Invocation::sample("rye/x", dir.path(), parameters)).await;
        let text = outcome.content.to_string();
        assert!(!text.contains("invalid parameters"), "{id}: {text}");
    }
}

#[tokio::test]
async fn invalid_parameters_never_reach_the_tool() {
    let dir = tempfile::tempdir().unwrap();
    let tool = spec(
        json!({"type": "object", "additionalProperties": false, "properties": {"n": {"type": "integer"}}}),
        ToolKind::Command { argv: vec!["touch".into(), "touched".into()] },
    );
    let prepared = ToolRegistry::standard().prepare(&tool, &ToolFile::default()).unwrap();
    let outcome = prepared.run(Invocation::sample("rye/x", dir.path(), json!({"n": "1"}))).await;
    assert_eq!(outcome.content, json!("`n` must be integer, not the text `1`"));
    assert!(!dir.path().join("touched").exists());
    assert!(!prepared.run(Invocation::sample("rye/x", dir.path(), json!({"n": 1}))).await.is_error);
    assert!(dir.path().join("touched").exists());
}

#[test]
fn an_unknown_builtin_names_the_known_ones() {
    let tool = spec(json!({}), ToolKind::Builtin { name: "raed".into() });
    let error = ToolRegistry::standard().prepare(&tool, &ToolFile::default()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "no built-in tool is named `raed`; the built-in tools are bash, edit, git_diff, git_log, git_show, git_status, glob, grep, \
         knowledge_write, ls, read, web_fetch, write"
    );
}

/// The built-in tools that the compiler accepts are the built-in tools of the engine: the tools in the registry, and
/// the tool that a running engine adds.
#[test]
fn compiler_and_engine_know_the_same_builtins() {
    let mut names: Vec<String> = ToolRegistry::standard().builtins.into_keys().collect();
    names.push("orchestrator".into());
    names.sort();
    assert_eq!(names, rye_compiler::tool_spec::builtins());
}
