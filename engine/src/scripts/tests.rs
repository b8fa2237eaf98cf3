//! Tests of constants read from syntax trees: constants, other expressions, and unusual texts.

#![allow(clippy::unwrap_used, reason = "tests")]

use rye_compiler::tool_spec::{ScriptEntry, ScriptLanguage, ToolKind, ToolSpec};
use rye_grammar::tool_header;
use serde_json::{Value, json};

use super::*;

fn read(text: &str, language: ToolLanguage) -> (Value, Vec<(String, String)>) {
    let parsed = tool_header::parse(SourceId(0), text, language, &SyntaxTreeReader);
    let at = |e: &SyntaxError| text.get(e.span.range()).unwrap_or("?").to_owned();
    (parsed.tree.metadata.to_value(), parsed.errors.iter().map(|e| (e.to_string(), at(e))).collect())
}

const PYTHON: &str = r#"#!/usr/bin/env python3
# rye:signed is not the first line here
"""A module."""
from __future__ import annotations
import json

__version__ = "1.2.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "project/count"
__tool_description__ = (
    "Counts words, "
    'and lines.'
)
__parallel__: bool = True
CONFIG_SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "most": {"type": "integer", "default": -1, "enum": [1, 2.5, None]}},
    "required": ["path"],
}
LIMIT = 1 + len(__version__)

async def execute(params, project_path):
    return {"n": 1}
"#;

#[test]
fn python_constants_and_entry() {
    let (value, errors) = read(PYTHON, ToolLanguage::Python);
    assert_eq!(errors, []);
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"},
        "most": {"type": "integer", "default": -1, "enum": [1, 2.5, null]}}, "required": ["path"]});
    let want = json!({"version": "1.2.0", "executor": "rye/core/runtimes/python/function", "category": "project/count",
        "description": "Counts words, and lines.", "parallel": true, "parameters": schema});
    assert_eq!(value, want);
    let tree = tool_header::parse(SourceId(0), PYTHON, ToolLanguage::Python, &SyntaxTreeReader).tree;
    let spec = ToolSpec::read(&tree).unwrap();
    assert_eq!(spec.kind, ToolKind::Script { language: ScriptLanguage::Python, entry: ScriptEntry::Execute });
    let version = tree.metadata.get("version").unwrap().span;
    assert_eq!(PYTHON.get(version.range()), Some("1.2.0"));
}

#[test]
fn non_constant_python_is_reported_by_name() {
    for (text, at) in [
        ("__version__ = f'{x}'\n", "f'{x}'"),
        ("__version__ = open('/etc/passwd').read()\n", "open('/etc/passwd').read()"),
        ("__tool_description__ = 'a' + b\n", "'a' + b"),
        ("CONFIG_SCHEMA = {'a': [1, other]}\n", "other"),
        ("CONFIG_SCHEMA = {**base}\n", "base"),
        ("CONFIG_SCHEMA = {'a': 1, 'a': 2}\n", "'a'"),
        ("CONFIG_SCHEMA = {1: 2}\n", "1"),
        ("CONFIG_SCHEMA = dict(a=1)\n", "dict(a=1)"),
        ("CONFIG_SCHEMA = {'n': 123456789012345678901234567890}\n", "123456789012345678901234567890"),
        ("if debug:\n    __version__ = '1'\n", "__version__"),
        ("try:\n    import x\n    __version__ = '1'\nexcept ImportError:\n    pass\n", "__version__"),
    ] {
        let (_, errors) = read(text, ToolLanguage::Python);
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        assert!(errors.iter().all(|(m, place)| m.ends_with("is not constant") && place == at), "{text}: {errors:?}");
    }
    let twice = read("__version__ = '1'\n__version__ += '2'\n", ToolLanguage::Python).1;
    assert_eq!(twice.len(), 1, "{twice:?}");
    let broken = read("def execute(:\n  pass\n", ToolLanguage::Python).1;
    assert!(broken.iter().all(|(m, _)| m.starts_with("invalid Python: ")) && !broken.is_empty(), "{broken:?}");
}

const JAVASCRIPT: &str = r#"// a tool
import { x } from "./x.js";
export const __tool_description__ = `Adds
numbers`, __version__ = '2';
export const CONFIG_SCHEMA = { type: "object", "properties": { a: { type: 'number', default: -1.5 }, }, required: ["a"] };
const hidden = /["'`{]/g;
export const helper = () => hidden;
export default async function (params) { return params.a / 2 }
"#;

#[test]
fn javascript_and_typescript_constants() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "number", "default": -1.5}}, "required": ["a"]});
    let want = json!({"description": "Adds\nnumbers", "version": "2", "parameters": schema});
    assert_eq!(read(JAVASCRIPT, ToolLanguage::JavaScript), (want.clone(), vec![]));
    let typed = JAVASCRIPT
        .replace("required: [\"a\"] };", "required: [\"a\"] } as const satisfies object;")
        .replace("(params)", "(params: { a: number }): Promise<number>");
    assert_eq!(read(&typed, ToolLanguage::TypeScript), (want, vec![]));
    assert!(!read(&typed, ToolLanguage::JavaScript).1.is_empty());
    let tree = tool_header::parse(SourceId(0), JAVASCRIPT, ToolLanguage::JavaScript, &SyntaxTreeReader).tree;
    let spec = ToolSpec::read(&tree).unwrap();
    assert_eq!(spec.kind, ToolKind::Script { language: ScriptLanguage::JavaScript, entry: ScriptEntry::Execute });
}

#[test]
fn non_constant_javascript_is_reported_by_name() {
    for (text, at) in [
        ("export const __version__ = `${1}`;", "`${1}`"),
        ("export let __version__ = '1';", "__version__"),
        ("const __version__ = '1'; export { __version__ };", "__version__"),
        ("export const CONFIG_SCHEMA = { ...base };", "...base"),
        ("export const CONFIG_SCHEMA = { get a() { return 1 } };", "get a() { return 1 }"),
        ("export const CONFIG_SCHEMA = { [a]: 1 };", "[a]: 1"),
        ("export const CONFIG_SCHEMA = { __proto__: 1 };", "__proto__: 1"),
        ("export const CONFIG_SCHEMA = [1, , 2];", ""),
        ("export const __tool_description__ = 'a' + 'b';", "'a' + 'b'"),
    ] {
        let (_, errors) = read(text, ToolLanguage::JavaScript);
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        let (message, place) = errors.first().unwrap();
        assert!(message.ends_with("is not constant") && (place == at || at.is_empty()), "{text}: {errors:?}");
    }
    // A name that is not exported is private.
    assert_eq!(read("const __version__ = '1';", ToolLanguage::JavaScript), (json!({}), vec![]));
}

#[test]
fn extreme_nesting_does_not_overflow_the_stack() {
    let deep = |open: &str, n: usize| open.repeat(n / open.len());
    let (python, javascript) = (
        ["[", "(", "-", "not ", "lambda:", "[x for x in ", "f\"{", "f'{f\"{", "f\"{x:{"],
        [
            "[",
            "{",
            "(",
            "!",
            "-",
            "a=>",
            "if(1)",
            "if(1)\n",
            "`${",
            "new ",
            "new\n",
            "a?b:",
            "a\n?b\n:",
            "x=",
            "a:\n",
            "else if(1){}",
        ],
    );
    for part in python {
        let errors = read(&format!("CONFIG_SCHEMA = {}", deep(part, MAX_SCRIPT_BYTES - 64)), ToolLanguage::Python).1;
        assert!(!errors.is_empty() && errors.len() < 10, "{part}");
    }
    for part in javascript {
        // The first length nests above the maximum, the second one just below it.
        for length in [MAX_SCRIPT_BYTES - 64, 14_900 * part.len()] {
            let text = format!("export const CONFIG_SCHEMA = {}", deep(part, length.min(MAX_SCRIPT_BYTES - 64)));
            let errors = read(&text, ToolLanguage::TypeScript).1;
            assert!(!errors.is_empty() && errors.len() < 10, "{part}");
        }
    }
    // Ordinary code is not deep, with or without semicolons.
    let ordinary = "// ---- ==== ----\nconst a = b ? c : -d\nif (a) {\n  f(a => !a)\n} else if (b) g()\n".repeat(2500);
    assert_eq!(read(&ordinary, ToolLanguage::JavaScript).1, []);
    let levels = format!("CONFIG_SCHEMA = {}{}", "[".repeat(80), "]".repeat(80));
    assert_eq!(read(&levels, ToolLanguage::Python).1.len(), 1);
    let large = read(&"#".repeat(MAX_SCRIPT_BYTES + 1), ToolLanguage::Python).1;
    assert!(large.iter().all(|(m, _)| m.contains("more than the maximum")) && large.len() == 1);
}
