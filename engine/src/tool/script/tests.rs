//! Tests of tools in each language: successful, slow, crashing, flooding, and with invalid results. Skipped with a
//! message if a language is not installed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stderr, reason = "tests")]

use std::path::Path;
use std::sync::Arc;

use rye_compiler::tool_spec::{ToolKind, ToolSpec};
use rye_grammar::SourceId;
use rye_grammar::tool_header::{self, ToolLanguage};

use super::*;
use crate::scripts::SyntaxTreeReader;
use crate::tool::registry::ToolRegistry;

struct ScriptProject {
    dir: tempfile::TempDir,
}

impl ScriptProject {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    async fn call(&self, name: &str, text: &str, parameters: Value) -> ToolOutcome {
        self.call_within(name, text, parameters, Duration::from_secs(30)).await
    }

    async fn call_within(&self, name: &str, text: &str, parameters: Value, timeout: Duration) -> ToolOutcome {
        let item_path = format!(".ai/tools/project/{name}");
        let path = self.dir.path().join(&item_path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        let parsed = tool_header::parse(SourceId(0), text, ToolLanguage::of_path(name).unwrap(), &SyntaxTreeReader);
        assert_eq!(parsed.errors, []);
        let spec = ToolSpec::read(&parsed.tree).unwrap();
        assert!(matches!(spec.kind, ToolKind::Script { .. }));
        let file =
            ToolFile { path: Some(path), item_path: item_path.into(), text: Arc::from(text), ..ToolFile::default() };
        let prepared = ToolRegistry::standard().prepare(&spec, &file).unwrap();
        prepared.run(invocation(self.dir.path(), parameters, timeout)).await
    }
}

fn invocation(root: &Path, parameters: Value, timeout: Duration) -> Invocation {
    Invocation { timeout, ..Invocation::sample("project/x", root, parameters) }
}

fn has(program: &str) -> bool {
    let found = std::process::Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("skipped: `{program}` is not installed");
    }
    found
}

fn text(outcome: &ToolOutcome) -> &str {
    outcome.content.as_str().unwrap_or_default()
}

const OPEN: &str = "CONFIG_SCHEMA = {'type': 'object'}\n__tool_description__ = 'x'\n";

#[tokio::test]
async fn python_tools_succeed_in_every_form() {
    if !has("python3") {
        return;
    }
    let p = ScriptProject::new();
    std::fs::create_dir_all(p.dir.path().join(".ai/tools/project")).unwrap();
    std::fs::write(p.dir.path().join(".ai/tools/project/beside.py"), "def double(n):\n    return 2 * n\n").unwrap();
    let sync = format!(
        "{OPEN}from beside import double\nprint('log', flush=True)\n\
        def execute(params, project_path):\n    import os\n    os.system('echo child')\n    \
        return {{'n': double(params['n']), 'at': project_path, 'é': None}}\n"
    );
    let outcome = p.call("good.py", &sync, json!({"n": 21})).await;
    assert_eq!(outcome.content, json!({"n": 42, "at": p.dir.path().to_str().unwrap(), "é": null}), "{outcome:?}");
    assert_eq!((outcome.is_error, &outcome.details["log"]), (false, &json!("log\nchild")));
    assert!(!p.dir.path().join(".ai/tools/project/__pycache__").exists());
    let later =
        format!("{OPEN}import asyncio\nasync def execute(params):\n    await asyncio.sleep(0)\n    return [1]\n");
    assert_eq!(p.call("later.py", &later, json!({})).await.content, json!([1]));
    let main = format!("{OPEN}import json, sys\ndef main():\n    print(json.dumps(json.load(sys.stdin)['a']))\n");
    assert_eq!(p.call("main.py", &main, json!({"a": {"b": 1}})).await.content, json!({"b": 1}));
    let failed = format!("{OPEN}def execute(params, project_path):\n    return {{'success': False, 'error': 'no'}}\n");
    assert!(p.call("failed.py", &failed, json!({})).await.is_error);
}

/// Python checks no hash of such a file (PEP 552).
#[tokio::test]
async fn compiled_file_beside_a_module_is_not_loaded() {
    if !has("python3") {
        return;
    }
    let p = ScriptProject::new();
    let root = p.dir.path().join(".ai/tools/project");
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(root.join("helper.py"), "VALUE = 'source'\n").unwrap();
    std::fs::write(root.join("other.py"), "VALUE = 'compiled'\n").unwrap();
    let compile = "import importlib.util as u, py_compile as c; \
        c.compile('other.py', u.cache_from_source('helper.py'), invalidation_mode=c.PycInvalidationMode.UNCHECKED_HASH)";
    let compiled = std::process::Command::new("python3").args(["-c", compile]).current_dir(&root).status().unwrap();
    assert!(compiled.success());
    let tool = format!("{OPEN}import helper\ndef execute(params):\n    return helper.VALUE\n");
    assert_eq!(text(&p.call("t.py", &tool, json!({})).await), "source");
}

#[tokio::test]
async fn python_failures_are_reported() {
    if !has("python3") {
        return;
    }
    let p = ScriptProject::new();
    let crash = format!("{OPEN}def execute(params, project_path):\n    raise ValueError('not today')\n");
    let outcome = p.call("crash.py", &crash, json!({})).await;
    assert!(outcome.is_error && text(&outcome).contains("ValueError: not today"), "{outcome:?}");
    assert!(text(&outcome).ends_with("[exit code 1]"));
    let odd = format!("{OPEN}def execute(params, project_path):\n    return {{1, 2}}\n");
    assert!(text(&p.call("odd.py", &odd, json!({})).await).contains("not JSON serializable"));
    let lies =
        format!("{OPEN}import os\ndef execute(params, project_path):\n    os.write(1, b'[1]')\n    os._exit(0)\n");
    let outcome = p.call("lies.py", &lies, json!({})).await;
    assert!(outcome.is_error && text(&outcome).contains("did not return JSON"), "{outcome:?}");
    // The text says more than the parsed value.
    let large = format!("{OPEN}def execute(params, project_path):\n    return {{'n': 2 ** 80}}\n");
    let outcome = p.call("large.py", &large, json!({})).await;
    assert_eq!(text(&outcome), "{\"n\": 1208925819614629174706176}");
    let slow = format!("{OPEN}import time\ndef execute(params, project_path):\n    time.sleep(60)\n");
    let outcome = p.call_within("slow.py", &slow, json!({}), Duration::from_secs(3)).await;
    assert!(outcome.is_error && text(&outcome).contains("[stopped: timed out after 3 s]"), "{outcome:?}");
    let flood =
        format!("{OPEN}def execute(params, project_path):\n    print('x' * 3_000_000)\n    return 'y' * 3_000_000\n");
    let outcome = p.call("flood.py", &flood, json!({})).await;
    assert!(outcome.is_error && text(&outcome).contains("more than the maximum"), "{}", text(&outcome).len());
    let script = format!("{OPEN}import os\ndef execute(params, project_path):\n    return sorted(os.environ)\n");
    let outcome = p.call("told.py", &script, json!({})).await;
    let names: Vec<&str> = outcome.content.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(!names.iter().any(|n| n.contains("CARGO") || n.contains("KEY")), "{names:?}");
}

#[tokio::test]
async fn script_runs_the_bytes_that_were_read() {
    if !has("python3") {
        return;
    }
    let p = ScriptProject::new();
    let path = p.dir.path().join(".ai/tools/project/t.py");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "raise SystemExit('exchanged')").unwrap();
    let file = ToolFile {
        path: Some(path),
        item_path: ".ai/tools/project/t.py".into(),
        text: "def execute(params, project_path):\n    return 'planned'\n".into(),
        ..ToolFile::default()
    };
    let (language, entry, timeout) = (ScriptLanguage::Python, ScriptEntry::Execute, Duration::from_secs(30));
    let tool = ScriptTool { language, entry, file, timeout, environment: Vec::new(), write_only: Vec::new() };
    assert_eq!(tool.run(invocation(p.dir.path(), json!({}), timeout)).await.content, json!("planned"));
}

const JS: &str = "export const __tool_description__ = 'x';\nexport const CONFIG_SCHEMA = { type: 'object' };\n";

#[tokio::test]
async fn javascript_tools_run_in_every_form() {
    if !has("node") {
        return;
    }
    let p = ScriptProject::new();
    std::fs::create_dir_all(p.dir.path().join(".ai/tools/project")).unwrap();
    std::fs::write(p.dir.path().join(".ai/tools/project/beside.mjs"), "export const double = (n) => 2 * n;\n").unwrap();
    let good = format!(
        "{JS}import {{ double }} from './beside.mjs';\nconsole.log('log');\n\
        export async function execute(params, root) {{ return {{ n: double(params.n), root }} }}\n"
    );
    let outcome = p.call("good.mjs", &good, json!({"n": 21})).await;
    assert_eq!(outcome.content, json!({"n": 42, "root": p.dir.path().to_str().unwrap()}), "{outcome:?}");
    assert_eq!(outcome.details["log"], json!("log"));
    let main = format!(
        "{JS}export async function main() {{ let t = ''; for await (const c of process.stdin) t += c; console.log(JSON.parse(t).a) }}\n"
    );
    assert_eq!(p.call("main.js", &main, json!({"a": "é"})).await.content, json!("é\n"));
    let crash = format!("{JS}export default function () {{ throw new Error('not today') }}\n");
    let outcome = p.call("crash.js", &crash, json!({})).await;
    assert!(outcome.is_error && text(&outcome).contains("not today"), "{outcome:?}");
    let hang = format!("{JS}export function execute() {{ return new Promise(() => setInterval(() => 0, 1000)) }}\n");
    let outcome = p.call_within("hang.js", &hang, json!({}), Duration::from_secs(3)).await;
    assert!(outcome.is_error && text(&outcome).contains("[stopped"), "{outcome:?}");
    let typed = format!("{JS}export function execute(params: {{ n: number }}): number {{ return params.n + 1 }}\n");
    let outcome = p.call("typed.ts", &typed, json!({"n": 1})).await;
    let too_old = text(&outcome).contains("TypeScript tools need node 22.13 or newer");
    assert!(outcome.content == json!(2) || too_old, "{outcome:?}");
}

#[tokio::test]
async fn shell_scripts_get_variables_and_input() {
    let p = ScriptProject::new();
    let head = "#!/bin/bash\n# rye: {description: x, parameters: {properties: {a: {type: string}, n: {}}}}\n";
    let good = format!("{head}echo \"$RYE_PARAM_a|$RYE_PARAM_n\"; cat; echo; echo \"$0\"; pwd\n");
    let outcome = p.call("good.sh", &good, json!({"a": "x; $(id) `id`\n\"", "n": [1]})).await;
    let root = p.dir.path().canonicalize().unwrap();
    let want = format!(
        "x; $(id) `id`\n\"|[1]\n{{\"a\":\"x; $(id) `id`\\n\\\"\",\"n\":[1]}}\n{}/.ai/tools/project/good.sh\n{}\n",
        p.dir.path().display(),
        root.display()
    );
    assert_eq!((text(&outcome), outcome.is_error), (want.as_str(), false));
    let json_answer = format!("{head}echo '{{\"status\": \"error\", \"error\": \"no\"}}'\n");
    assert!(p.call("json.sh", &json_answer, json!({})).await.is_error);
    let crash = format!("{head}set -eu\necho before\nfalse\necho after\n");
    let outcome = p.call("crash.sh", &crash, json!({})).await;
    assert_eq!((text(&outcome), outcome.is_error), ("before\n[exit code 1]", true));
    let refused = p.call("good.sh", &good, json!({"a": 1})).await;
    assert_eq!(text(&refused), "`a` must be string, not 1");
}

#[tokio::test]
async fn project_files_are_not_imported_by_a_tool() {
    let project = ScriptProject::new();
    let root = project.dir.path();
    for name in
        ["json", "asyncio", "inspect", "io", "linecache", "os", "types", "csv", "sitecustomize", "usercustomize"]
    {
        std::fs::write(root.join(format!("{name}.py")), "raise SystemExit('imported')\n").unwrap();
    }
    for (path, text) in [
        ("package.json", "{\"type\": \"commonjs\", \"imports\": {\"#x\": \"./x.js\"}}"),
        ("node_modules/held/index.js", "module.exports = 'imported';"),
        (".npmrc", "node-options=--require=./x.js\n"),
        ("x.js", "throw new Error('imported');"),
        (".bashrc", "echo imported; exit 1\n"),
        (".profile", "echo imported; exit 1\n"),
    ] {
        std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        std::fs::write(root.join(path), text).unwrap();
    }
    if has("python3") {
        let tool = format!("{OPEN}import csv\ndef execute(params):\n    return {{'n': len(csv.list_dialects())}}\n");
        let outcome = project.call("t.py", &tool, json!({})).await;
        assert!(!outcome.is_error && outcome.content["n"].is_number(), "{outcome:?}");
    }
    if has("node") {
        let tool = "export const __tool_description__ = 'x';\nexport function execute() { return { n: 1 }; }\n";
        let outcome = project.call("t.mjs", tool, json!({})).await;
        assert_eq!((&outcome.content, outcome.is_error), (&json!({"n": 1}), false), "{outcome:?}");
    }
    if has("bash") {
        let outcome = project.call("t.sh", "# rye: { description: x }\necho '{\"n\": 1}'\n", json!({})).await;
        assert_eq!((&outcome.content, outcome.is_error), (&json!({"n": 1}), false), "{outcome:?}");
    }
}
