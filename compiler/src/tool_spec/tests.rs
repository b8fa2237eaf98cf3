//! Tests of reading tool metadata, valid and invalid.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use rye_grammar::SourceId;
use rye_grammar::data::Entry;
use rye_grammar::span::Spanned;
use serde_json::json;

use super::*;
use crate::tool_spec::{Idempotence, MAX_SNIPPET_CHARS, Method};

/// Creates a node of this value; every span covers the whole (empty) source.
fn node(value: &Value) -> Node {
    let span = Span::new(SourceId(0), 0, 0);
    let kind = match value {
        Value::Null => Kind::Null,
        Value::Bool(b) => Kind::Bool(*b),
        Value::Number(n) => Kind::Number(n.clone()),
        Value::String(s) => Kind::String(s.clone()),
        Value::Array(items) => Kind::List(items.iter().map(node).collect()),
        Value::Object(map) => {
            Kind::Map(map.iter().map(|(k, v)| Entry { key: Spanned::new(k.clone(), span), value: node(v) }).collect())
        }
    };
    Node::new(kind, span)
}

fn tree(value: &Value, script: Option<ScriptDeclarations>) -> ToolTree {
    ToolTree { signature: None, metadata: node(value), script }
}

fn yaml(value: &Value) -> ToolTree {
    tree(value, None)
}

fn script(language: ToolLanguage, names: &[&str]) -> ScriptDeclarations {
    ScriptDeclarations {
        language,
        names: names.iter().map(|n| (*n).to_owned()).collect(),
        entry: None,
        others: Vec::new(),
    }
}

fn faults(value: &Value) -> Vec<(ToolSpecErrorKind, String)> {
    ToolSpec::read(&tree(value, None)).unwrap_err().into_iter().map(|f| (f.code, f.message)).collect()
}

#[test]
fn command_tool_reads_with_defaults() {
    let spec = ToolSpec::read(&yaml(&json!({
        "description": " Counts. ", "kind": "command", "command": ["wc", "-l", "--", "{path}"],
        "parameters": {"properties": {"path": {"type": "string"}}}, "version": 1,
    })))
    .unwrap();
    assert_eq!(spec.description, "Counts.");
    assert_eq!(spec.timeout_seconds, DEFAULT_TIMEOUT_SECONDS);
    assert_eq!(spec.parameters["type"], "object");
    assert!(!spec.parallel);
    assert_eq!(spec.idempotent, Idempotence::All(false));
    let ToolKind::Command { argv } = spec.kind else { panic!("a command") };
    assert_eq!(argv, ["wc", "-l", "--", "{path}"]);
}

#[test]
fn all_errors_are_reported_at_once() {
    let found = faults(&json!({
        "descripton": "x", "kind": "command", "command": ["{path}", "{pth}", "{"],
        "parameters": {"properties": {"path": {}}, "required": ["pat"], "additionalProperties": false},
        "timeout_seconds": 0, "parallel": "yes", "needs": {"write": ["../x"], "disk": 1},
    }));
    let messages: Vec<&str> = found.iter().map(|f| f.1.as_str()).collect();
    assert_eq!(
        messages,
        [
            "a tool has no key `descripton`",
            "this tool has no `description`",
            "`pat` is required but not declared",
            "the program of a command cannot be a parameter",
            "`{pth}` is not a parameter of this tool",
            "`{` has an unclosed `{`; write `{{` for a brace",
            "`timeout_seconds` must be a whole number from 1 to 86400",
            "`parallel` must be `true` or `false`, not a string",
            "`needs` has no key `disk`",
            "`../x` leads out of the project",
        ]
    );
    assert_eq!(found[0].0, ToolSpecErrorKind::UnknownKey);
    assert_eq!(found[1].0, ToolSpecErrorKind::MissingKey);
}

#[test]
fn tool_with_the_replaced_key_wall_is_rejected_with_the_new_key() {
    let tool = json!({
        "description": "x", "kind": "mcp", "server": "a", "tool": "t", "sha256": "0", "server_sha256": "0",
        "runs": "a", "wall": "none",
    });
    let faults = ToolSpec::read(&yaml(&tool)).unwrap_err();
    let fault = faults.iter().find(|fault| fault.word.as_deref() == Some("wall")).unwrap();
    assert_eq!(fault.code, ToolSpecErrorKind::UnknownKey);
    assert!(fault.help.as_deref().unwrap().contains("the key is called `sandbox` now"), "{:?}", fault.help);
}

#[test]
fn write_only_folder_needs_a_program() {
    let tool = |kind: Value| {
        let mut tool = json!({"description": "x", "needs": {"write": ["out/"], "write_only": ["reports/"]}});
        tool.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
        tool
    };
    let needs = ToolSpec::read(&yaml(&tool(json!({"kind": "command", "command": ["ls"]})))).unwrap().needs;
    assert_eq!(
        (needs.write, needs.write_only),
        (vec!["out/".to_owned(), "reports/".to_owned()], vec!["reports/".to_owned()])
    );
    assert_eq!(
        faults(&tool(json!({"kind": "builtin", "builtin": "write"}))),
        [(ToolSpecErrorKind::BadValue, "`write_only` is for a tool that starts a program".to_owned())]
    );
    let mut outside = tool(json!({"kind": "command", "command": ["ls"]}));
    *outside.pointer_mut("/needs/write_only").unwrap() = json!(["../x"]);
    assert_eq!(faults(&outside)[0].1, "`../x` leads out of the project");
}

#[test]
fn keys_of_other_kinds_and_unknown_kinds_are_rejected() {
    assert_eq!(
        faults(&json!({"description": "x", "kind": "builtin", "builtin": "read", "command": ["ls"]})),
        [(ToolSpecErrorKind::BadValue, "a tool of kind `builtin` has no key `command`".to_owned())]
    );
    assert_eq!(
        faults(&json!({"description": "x", "kind": "comand"})),
        [(ToolSpecErrorKind::BadValue, "unknown tool kind `comand`".to_owned())]
    );
    assert_eq!(
        faults(&json!({"description": "x", "kind": "command", "command": "rm -rf {x}"})),
        [(ToolSpecErrorKind::BadValue, "`command` must be a list, not a string".to_owned())]
    );
    assert_eq!(faults(&json!([1]))[0].1, "a tool must be a mapping, not a list");
    assert_eq!(
        faults(&json!({"description": "x", "kind": "command", "command": ["../../bin/sh"]}))[0].1,
        "`../../bin/sh` is neither a program of the project nor one in `PATH`"
    );
}

#[test]
fn script_entry_follows_its_names() {
    let kind = |language, names: &[&str]| {
        ToolSpec::read(&tree(&json!({"description": "x"}), Some(script(language, names)))).map(|s| s.kind)
    };
    let found = |language, entry| Ok(ToolKind::Script { language, entry });
    assert_eq!(kind(ToolLanguage::Python, &["execute", "main"]), found(ScriptLanguage::Python, ScriptEntry::Execute));
    assert_eq!(kind(ToolLanguage::Python, &["main"]), found(ScriptLanguage::Python, ScriptEntry::Main));
    assert_eq!(kind(ToolLanguage::TypeScript, &["default"]), found(ScriptLanguage::TypeScript, ScriptEntry::Execute));
    assert_eq!(kind(ToolLanguage::Shell, &[]), found(ScriptLanguage::Shell, ScriptEntry::Whole));
    for language in [ToolLanguage::Python, ToolLanguage::JavaScript] {
        let faults = kind(language, &["default_", "run"]).unwrap_err();
        assert_eq!(faults[0].message, "this tool has no `execute`");
    }
    let own = json!({"description": "x", "kind": "command", "command": ["sh", "x.sh"]});
    let spec = ToolSpec::read(&tree(&own, Some(script(ToolLanguage::Shell, &[])))).unwrap();
    assert!(matches!(spec.kind, ToolKind::Command { .. }));
}

#[test]
fn http_tool_needs_literal_host_and_declared_variables() {
    let good = json!({
        "description": "x", "kind": "http", "url": "https://API.example.com:8443/v1/{id}?q={q}", "method": "post",
        "environment": ["API_TOKEN"], "headers": {"Authorization": "Bearer ${API_TOKEN}"}, "body": {"q": "{q}", "n": 1},
        "parameters": {"properties": {"id": {}, "q": {}}},
    });
    let spec = ToolSpec::read(&yaml(&good)).unwrap();
    assert_eq!(spec.needs.net, ["api.example.com"]);
    let ToolKind::Http(http) = spec.kind else { panic!("a request") };
    assert_eq!((http.method, http.headers["Authorization"].as_str()), (Method::Post, "Bearer ${API_TOKEN}"));
    for (key, value, message) in [
        ("url", json!("https://{id}.example.com/"), "the host of a request cannot be a parameter"),
        ("url", json!("https://a@example.com/"), "the host of a request must not contain a user or password"),
        ("url", json!("ftp://example.com/"), "`ftp://example.com/` is not a web address"),
        ("url", json!("https:///x"), "`https:///x` is not a web address"),
        ("url", json!("https://example.com/{idd}"), "`{idd}` is not a parameter of this tool"),
        ("method", json!("FETCH"), "unknown method `FETCH`"),
        ("headers", json!({"X-A": "${HOME}"}), "`${HOME}` is not a variable that this tool declares"),
        ("headers", json!({"Host": "x"}), "the header `Host` cannot be set by a tool"),
        ("headers", json!({"X A": "x"}), "`X A` is not a valid header"),
        ("body", json!({"a": ["{nope}"]}), "`{nope}` is not a parameter of this tool"),
        ("command", json!(["ls"]), "a tool of kind `http` has no key `command`"),
    ] {
        let mut bad = good.clone();
        bad[key] = value;
        assert_eq!(faults(&bad), [(ToolSpecErrorKind::BadValue, message.to_owned())], "{key}");
    }
}

#[test]
fn idempotence_can_depend_on_arguments() {
    let base = json!({"description": "x", "kind": "command", "command": ["ls"], "parameters": {"properties": {
        "verb": {"type": "string", "enum": ["get", "list", "put"]}, "dry": {"type": "boolean"}}}});
    let read = |idempotent: Value| {
        let mut tool = base.clone();
        tool["idempotent"] = idempotent;
        ToolSpec::read(&yaml(&tool)).map(|spec| spec.idempotent).map_err(|faults| faults[0].message.clone())
    };
    assert_eq!(read(json!(true)), Ok(Idempotence::All(true)));
    let some = read(json!({"verb": ["get", "list"], "dry": true})).unwrap();
    assert!(some.covers(&json!({"verb": "list", "dry": true, "more": 1})));
    for other in [json!({"verb": "put", "dry": true}), json!({"verb": "get"}), json!({"dry": true}), json!(null)] {
        assert!(!some.covers(&other), "{other}");
    }
    let stored = serde_json::to_value(&some).unwrap();
    assert_eq!(stored, json!({"dry": [true], "verb": ["get", "list"]}));
    assert_eq!(serde_json::from_value::<Idempotence>(stored).unwrap(), some);
    let shape = "`idempotent` must be `true`, `false`, or a mapping from parameters to the values with which a call may run again, not ";
    for (bad, message) in [
        (json!("yes"), format!("{shape}a string")),
        (json!({}), format!("{shape}a mapping")),
        (json!({"verb": []}), format!("{shape}a list")),
        (json!({"verbs": ["get"]}), "the tool has no parameter `verbs`".to_owned()),
        (json!({"verb": ["gett"]}), "`verb` is never `gett`".to_owned()),
    ] {
        assert_eq!(read(bad), Err(message));
    }
}

#[test]
fn config_and_environment_are_validated() {
    let base = json!({"description": "x", "kind": "command", "command": ["ls", "${TOKEN}", "{tool_path}"],
        "environment": ["TOKEN"], "config": {"path": "web/search.yaml", "mode": "first_match"}});
    let spec = ToolSpec::read(&yaml(&base)).unwrap();
    assert_eq!(spec.config.unwrap().mode, ConfigMode::FirstMatch);
    for (key, value, message) in [
        ("environment", json!(["TOKEN", "LD_PRELOAD"]), "a tool cannot request `LD_PRELOAD`"),
        ("environment", json!(["TOKEN", "A=B"]), "`A=B` names no variable"),
        ("environment", json!(["TOKEN "]), "`TOKEN ` names no variable"),
        ("environment", json!(["$TOKEN"]), "`$TOKEN` names no variable"),
        ("environment", json!([]), "`${TOKEN}` is not a variable that this tool declares"),
        ("config", json!({"path": "../x"}), "`../x` names no settings: "),
        ("config", json!({"path": "a", "mode": "merge"}), "`merge` is not a `mode` of `config`"),
    ] {
        let mut bad = base.clone();
        bad[key] = value;
        let found = faults(&bad);
        assert!(found.len() == 1 && found[0].1.starts_with(message), "{found:?}");
    }
}

#[test]
fn persistent_tool_waits_five_seconds_for_a_line() {
    let tool = json!({"description": "d", "kind": "command", "command": ["./serve", "{tool_path}"], "persistent": true,
        "pushes": true, "snippet": " Serve. ", "guidelines": ["Ask once."]});
    let spec = ToolSpec::read(&yaml(&tool)).unwrap();
    assert!(spec.persistent && spec.pushes);
    assert_eq!(spec.timeout_seconds, DEFAULT_LINE_TIMEOUT_SECONDS);
    assert_eq!((spec.snippet.as_deref(), spec.guidelines.as_slice()), (Some("Serve."), &["Ask once.".to_owned()][..]));
}

#[test]
fn persistent_tools_without_a_program_that_reads_lines_are_refused() {
    let refused = |value: &Value, script: Option<ScriptDeclarations>| {
        let found = ToolSpec::read(&tree(value, script)).unwrap_err();
        found.into_iter().map(|fault| fault.message).collect::<Vec<_>>()
    };
    let persistent = json!({"description": "d", "persistent": true});
    assert_eq!(
        refused(&persistent, Some(script(ToolLanguage::Python, &["main"]))),
        ["a persistent script needs the function `execute`, which runs once for each call"]
    );
    assert_eq!(
        refused(&persistent, Some(script(ToolLanguage::Shell, &[]))),
        ["a shell script cannot be persistent: it runs once for each call"]
    );
    let http = json!({"description": "d", "kind": "http", "url": "https://a.test/", "persistent": true});
    assert_eq!(refused(&http, None), ["only commands and scripts can be persistent"]);
    let argument = json!({"description": "d", "kind": "command", "command": ["serve", "{x}"], "persistent": true,
        "parameters": {"properties": {"x": {}}}});
    assert_eq!(
        refused(&argument, None),
        [
            "the command of a persistent tool cannot use parameters: the parameters of each call arrive as a line on its standard input"
        ]
    );
    let pushes = json!({"description": "d", "kind": "command", "command": ["serve"], "pushes": true});
    assert_eq!(refused(&pushes, None), ["`pushes` needs `persistent`"]);
}

#[test]
fn lines_of_the_system_prompt_are_short_single_lines() {
    let long = "x".repeat(MAX_SNIPPET_CHARS + 1);
    let found = faults(&json!({"description": "d", "kind": "command", "command": ["ls"], "snippet": long,
        "guidelines": ["a\nb", " "]}));
    let messages: Vec<&str> = found.iter().map(|fault| fault.1.as_str()).collect();
    assert_eq!(
        messages,
        [
            "a text of `snippet` has 201 characters, but at most 200 are allowed",
            "a text of `guidelines` must be one line",
            "a text of `guidelines` is empty",
        ]
    );
}
