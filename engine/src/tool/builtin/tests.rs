//! Tests of the file tools: paging, edits, searches, and bad input.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::*;

struct TestProject {
    dir: TempDir,
}

fn world(files: &[(&str, &[u8])]) -> TestProject {
    let dir = tempfile::tempdir().unwrap();
    for (path, bytes) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    TestProject { dir }
}

impl TestProject {
    async fn call(&self, tool: &dyn Tool, parameters: Value) -> ToolOutcome {
        tool.run(Invocation { parameters, ..invocation(self) }).await
    }

    async fn ok(&self, tool: FileTool, parameters: Value) -> String {
        let outcome = self.call(&tool, parameters).await;
        assert!(!outcome.is_error, "{}", outcome.content);
        outcome.content.as_str().unwrap().to_owned()
    }

    async fn fails(&self, tool: FileTool, parameters: Value) -> String {
        let outcome = self.call(&tool, parameters).await;
        assert!(outcome.is_error, "{}", outcome.content);
        outcome.content.as_str().unwrap().to_owned()
    }

    fn file(&self, path: &str) -> Vec<u8> {
        fs::read(self.dir.path().join(path)).unwrap()
    }
}

fn numbered(n: usize) -> Vec<u8> {
    (1..=n).flat_map(|i| format!("line {i}\n").into_bytes()).collect()
}

#[tokio::test]
async fn read_numbers_lines_and_gives_the_next_offset() {
    let w = world(&[("a", b"x\ny"), ("long", &numbered(5000))]);
    assert_eq!(w.ok(FileTool::Read, json!({"path": "a"})).await, "1\tx\n2\ty\n");
    assert_eq!(
        w.ok(FileTool::Read, json!({"path": "long", "offset": 3, "limit": 2})).await,
        "3\tline 3\n4\tline 4\n[lines 3 to 4 of 5000; continue with offset 5]\n"
    );
    assert_eq!(w.ok(FileTool::Read, json!({"path": "long", "offset": 5000})).await, "5000\tline 5000\n");
    assert_eq!(
        w.fails(FileTool::Read, json!({"path": "long", "offset": 5001})).await,
        "`long` has only 5000 lines; line 5001 does not exist"
    );
}

#[tokio::test]
async fn read_pages_join_to_the_whole_file() {
    let w = world(&[("long", &numbered(5000))]);
    let (mut offset, mut all) = (1, String::new());
    loop {
        let outcome = w.call(&FileTool::Read, json!({"path": "long", "offset": offset})).await;
        let text = outcome.content.as_str().unwrap().to_owned();
        assert!(text.len() <= MAX_RESULT_BYTES + 200);
        all.extend(
            text.lines().filter(|l| !l.starts_with('[')).map(|l| format!("{}\n", l.split_once('\t').unwrap().1)),
        );
        match outcome.details["next_offset"].as_u64() {
            Some(next) => offset = next,
            None => break,
        }
    }
    assert_eq!(all.into_bytes(), w.file("long"));
}

#[tokio::test]
async fn read_handles_binary_and_unusual_files() {
    let minified = [b"a".repeat(3_000_000), b"\nlast".to_vec()].concat();
    let w = world(&[
        ("empty", b""),
        ("crlf", b"a\r\nb\r\n"),
        ("bom", b"\xEF\xBB\xBFx\n"),
        ("latin", b"caf\xE9\n"),
        ("binary", b"\x7fELF\0\0"),
        ("minified", &minified),
    ]);
    assert_eq!(w.ok(FileTool::Read, json!({"path": "empty"})).await, "[`empty` is empty]");
    assert_eq!(w.ok(FileTool::Read, json!({"path": "crlf"})).await, "1\ta\n2\tb\n[lines end with CRLF]\n");
    assert_eq!(w.ok(FileTool::Read, json!({"path": "bom"})).await, "1\tx\n");
    assert_eq!(
        w.ok(FileTool::Read, json!({"path": "latin"})).await,
        "1\tcaf�\n[not entirely UTF-8; � replaces other bytes]\n"
    );
    assert_eq!(
        w.fails(FileTool::Read, json!({"path": "binary"})).await,
        "`binary` is a binary file of 6 bytes; it cannot be shown as text"
    );
    let text = w.ok(FileTool::Read, json!({"path": "minified"})).await;
    assert!(text.ends_with("… [line of 3000001 bytes, cut]\n2\tlast\n"), "{}", &text[text.len() - 80..]);
    assert!(w.fails(FileTool::Read, json!({"path": "x", "lines": 1})).await.contains("unknown field `lines`"));
    assert!(w.fails(FileTool::Read, json!([])).await.contains("invalid parameters"));
}

#[tokio::test]
async fn write_replaces_files_and_creates_folders() {
    let w = world(&[("a", b"old")]);
    assert_eq!(w.ok(FileTool::Write, json!({"path": "a", "content": "new"})).await, "replaced `a`, 3 bytes");
    assert_eq!(w.ok(FileTool::Write, json!({"path": "x/y/z", "content": ""})).await, "created `x/y/z`, 0 bytes");
    assert_eq!(w.file("a"), b"new");
    assert!(w.fails(FileTool::Write, json!({"path": "x/y", "content": "q"})).await.contains("is a folder"));
    assert!(w.fails(FileTool::Write, json!({"path": "../q", "content": "q"})).await.contains("not inside"));
    assert!(w.fails(FileTool::Write, json!({"path": ".env", "content": "q"})).await.contains("read-only"));
}

#[tokio::test]
async fn edit_requires_a_unique_match() {
    let w = world(&[("a", b"one\ntwo\none\n")]);
    let edit = |old: &str, new: &str| json!({"path": "a", "old_string": old, "new_string": new});
    assert_eq!(
        w.fails(FileTool::Edit, edit("one", "1")).await,
        "`old_string` is 2 times in `a` (lines 1, 3); give more of the text around it, or set `replace_all`"
    );
    assert_eq!(w.ok(FileTool::Edit, edit("two\none", "2\n1")).await, "edited `a` at line 2");
    assert_eq!(w.file("a"), b"one\n2\n1\n");
    let all = json!({"path": "a", "old_string": "\n", "new_string": ";", "replace_all": true});
    assert_eq!(w.ok(FileTool::Edit, all).await, "edited `a` in 3 places");
    assert_eq!(w.file("a"), b"one;2;1;");
    assert!(w.fails(FileTool::Edit, edit("one", "one")).await.contains("nothing would change"));
    assert!(w.fails(FileTool::Edit, edit("", "x")).await.contains("use write"));
    assert!(
        w.fails(FileTool::Edit, json!({"path": "b", "old_string": "x", "new_string": "y"}))
            .await
            .contains("does not exist")
    );
}

#[tokio::test]
async fn edit_names_the_nearest_line() {
    let w = world(&[("a", b"fn main() {\n    let total = count(items);\n}\n")]);
    let edit = |old: &str| json!({"path": "a", "old_string": old, "new_string": "x"});
    assert_eq!(
        w.fails(FileTool::Edit, edit("let total = count(item);")).await,
        "`old_string` is not in `a`; the nearest is line 2: `let total = count(items);`"
    );
    assert!(
        w.fails(FileTool::Edit, edit("\tlet total = count(items);"))
            .await
            .contains("is there at line 2, so the white space")
    );
    assert!(w.fails(FileTool::Edit, edit("zebra crossing")).await.contains("nor anything like it"));
}

#[tokio::test]
async fn edit_preserves_the_rest_of_the_file() {
    let w = world(&[("crlf", b"a\r\nb\r\nc\r\n"), ("latin", b"caf\xE9 one\n")]);
    let crlf = json!({"path": "crlf", "old_string": "a\nb", "new_string": "x\ny\nz"});
    assert_eq!(w.ok(FileTool::Edit, crlf).await, "edited `crlf` at line 1, keeping its CRLF line ends");
    assert_eq!(w.file("crlf"), b"x\r\ny\r\nz\r\nc\r\n");
    let latin = json!({"path": "latin", "old_string": "one", "new_string": "two"});
    assert_eq!(w.ok(FileTool::Edit, latin).await, "edited `latin` at line 1");
    assert_eq!(w.file("latin"), b"caf\xE9 two\n");
}

#[tokio::test]
async fn ls_is_sorted_and_bounded_and_hides_state() {
    let w = world(&[
        ("b", b"12"),
        ("a/x", b""),
        (".ai/state/t", b""),
        (".ai/keys/k", b""),
        (".ai/config/x.yaml", b""),
        ("c\nd", b""),
    ]);
    assert_eq!(w.ok(FileTool::Ls, json!({})).await, ".ai/\na/\nb  2\nc\\nd  0\n");
    assert_eq!(w.ok(FileTool::Ls, json!({"path": ".ai"})).await, "config/\n");
    assert_eq!(w.ok(FileTool::Ls, json!({"limit": 2})).await, ".ai/\na/\n[2 of 4 entries]\n");
    assert!(w.fails(FileTool::Ls, json!({"path": ".ai/state"})).await.contains("is hidden from tools"));
    assert!(w.fails(FileTool::Ls, json!({"path": "b"})).await.contains("is not a folder"));
    fs::create_dir(w.dir.path().join("e")).unwrap();
    assert_eq!(w.ok(FileTool::Ls, json!({"path": "e"})).await, "[empty]\n");
}

fn tree() -> TestProject {
    world(&[
        ("src/main.rs", b"fn main() {}\n// TODO: x\n"),
        ("src/lib/a.rs", b"todo\r\nnothing\r\n"),
        ("README.md", b"# Title\n"),
        ("target/out.rs", b"TODO\n"),
        ("kept/out.log", b"TODO\n"),
        ("kept/.gitignore", b"!out.log\n"),
        (".gitignore", b"target/\n*.log\n"),
        (".github/ci.yml", b"TODO\n"),
        (".git/TODO.rs", b"TODO\n"),
        (".ai/state/x.rs", b"TODO\n"),
        (".ai/keys/x.rs", b"TODO\n"),
        ("sub/.ai/trust/x.rs", b"TODO\n"),
        ("bin.rs", b"TODO\0\n"),
    ])
}

#[tokio::test]
async fn glob_respects_ignore_files() {
    let w = tree();
    assert_eq!(w.ok(FileTool::Glob, json!({"pattern": "*.rs"})).await, "bin.rs\nsrc/lib/a.rs\nsrc/main.rs\n");
    assert_eq!(w.ok(FileTool::Glob, json!({"pattern": "src/*.rs"})).await, "src/main.rs\n");
    assert_eq!(w.ok(FileTool::Glob, json!({"pattern": "./**/*.{md,log}"})).await, "README.md\nkept/out.log\n");
    assert_eq!(w.ok(FileTool::Glob, json!({"pattern": "*.rs", "path": "src/lib"})).await, "src/lib/a.rs\n");
    assert_eq!(w.ok(FileTool::Glob, json!({"pattern": "*.rs", "path": "target"})).await, "target/out.rs\n");
    assert_eq!(w.ok(FileTool::Glob, json!({"pattern": ".github/**"})).await, ".github/ci.yml\n");
    assert_eq!(w.ok(FileTool::Glob, json!({"pattern": ".ai/**"})).await, "[no file matches]\n");
    assert_eq!(w.ok(FileTool::Glob, json!({"pattern": "sub/.ai/**"})).await, "[no file matches]\n");
    assert_eq!(
        w.ok(FileTool::Glob, json!({"pattern": "*.rs", "limit": 1})).await,
        "bin.rs\n[1 of 3 files; narrow the pattern]\n"
    );
    assert!(w.fails(FileTool::Glob, json!({"pattern": "../*"})).await.contains("leads out of the folder"));
    assert!(w.fails(FileTool::Glob, json!({"pattern": "a[b"})).await.contains("is not a valid pattern"));
}

#[tokio::test]
async fn grep_returns_file_line_and_text() {
    let w = tree();
    assert_eq!(
        w.ok(FileTool::Grep, json!({"pattern": "TODO"})).await,
        "kept/out.log:1: TODO\nsrc/main.rs:2: // TODO: x\n"
    );
    assert_eq!(
        w.ok(FileTool::Grep, json!({"pattern": "^todo$", "ignore_case": true, "glob": "*.rs"})).await,
        "src/lib/a.rs:1: todo\n"
    );
    assert_eq!(
        w.ok(FileTool::Grep, json!({"pattern": "TODO", "path": "src/main.rs", "context": 1})).await,
        "src/main.rs-1- fn main() {}\nsrc/main.rs:2: // TODO: x\n"
    );
    assert_eq!(w.ok(FileTool::Grep, json!({"pattern": "zebra"})).await, "[no line matches]\n");
    assert!(w.fails(FileTool::Grep, json!({"pattern": "("})).await.contains("not a valid regular expression"));
    assert!(
        w.fails(FileTool::Grep, json!({"pattern": "x", "path": ".ai/state/x.rs"}))
            .await
            .contains("is hidden from tools")
    );
}

#[tokio::test]
async fn grep_is_bounded() {
    let w = world(&[("a", &numbered(100_000)), ("b", &b"x".repeat(5_000_000))]);
    let text = w.ok(FileTool::Grep, json!({"pattern": "line", "limit": 3})).await;
    assert_eq!(
        text,
        "a:1: line 1\na:2: line 2\na:3: line 3\n[first 3 matches in 1 file; there are more, narrow the pattern or the path]\n"
    );
    let text = w.ok(FileTool::Grep, json!({"pattern": "line", "limit": 1000, "context": 20})).await;
    assert!(text.len() < MAX_RESULT_BYTES + 200);
    let text = w.ok(FileTool::Grep, json!({"pattern": "x+", "path": "b"})).await;
    assert!(text.len() < 500, "{}", text.len());
    assert!(
        w.fails(FileTool::Grep, json!({"pattern": "((a{100}){100}){100}"}))
            .await
            .contains("not a valid regular expression")
    );
}

#[tokio::test]
async fn bash_returns_output_and_exit_code() {
    let w = world(&[("sub/x", b"")]);
    let bash = BashTool { default_timeout: Duration::from_secs(10) };
    let ok = w.call(&bash, json!({"command": "ls", "cwd": "sub"})).await;
    assert_eq!((ok.content, ok.is_error), (json!("x\n[exit code 0]"), false));
    let bad = w.call(&bash, json!({"command": "echo no >&2; exit 7"})).await;
    assert_eq!((bad.content, bad.is_error), (json!("no\n[exit code 7]"), true));
    assert_eq!(bad.details["exit_code"], 7);
    let slow = w.call(&bash, json!({"command": "sleep 30", "timeout_seconds": 1})).await;
    assert_eq!((slow.content, slow.is_error), (json!("[stopped: timed out after 1 s]"), true));
    for cwd in ["..", "/", ".ai/state", "sub/x", "nothing"] {
        assert!(w.call(&bash, json!({"command": "ls", "cwd": cwd})).await.is_error, "{cwd}");
    }
    assert!(w.call(&bash, json!({"command": "a\0b"})).await.is_error);
    assert!(w.call(&bash, json!({})).await.is_error);
}

#[tokio::test]
async fn a_command_tool_gives_parameters_as_arguments() {
    let w = world(&[("bin/show", b"#!/bin/sh\nfor a; do echo \"<$a>\"; done\n")]);
    let script = w.dir.path().join("bin/show");
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let command = |argv: &[&str]| crate::tool::command::CommandTool {
        argv: argv.iter().map(|a| (*a).to_owned()).collect(),
        file: crate::tool::registry::ToolFile::default(),
        timeout: Duration::from_secs(10),
        environment: Vec::new(),
        write_only: Vec::new(),
    };
    let tool = command(&["./bin/show", "--", "{text}", "{more}"]);
    let outcome = w.call(&tool, json!({"text": "$(id); `id` \"x\"", "more": ["a b", "c"]})).await;
    assert_eq!(outcome.content, json!("<-->\n<$(id); `id` \"x\">\n<a b>\n<c>\n[exit code 0]"));
    let gone = command(&["no-such-program"]);
    assert!(w.call(&gone, json!({})).await.content.as_str().unwrap().contains("cannot be started"));
}

#[tokio::test]
async fn knowledge_write_needs_a_grant_and_adds_metadata() {
    let w = world(&[]);
    let parameters = json!({"item_id": "team/notes", "title": "a: b\n---\n# x", "tags": ["t"], "body": "Text.\n\n"});
    let denied = w.call(&FileTool::Knowledge, parameters.clone()).await;
    assert!(
        denied.is_error && denied.content.as_str().unwrap().contains("rye.sign.knowledge.team.notes"),
        "{denied:?}"
    );
    let may_write_item = vec![vec!["rye.sign.knowledge.team.*".to_owned()]];
    let call = async |parameters: Value| {
        FileTool::Knowledge
            .run(Invocation { parameters, may_write_item: may_write_item.clone(), ..invocation(&w) })
            .await
    };
    assert_eq!(call(parameters).await.content, json!("created knowledge `team/notes`, 65 bytes"));
    let text = String::from_utf8(w.file(".ai/knowledge/team/notes.md")).unwrap();
    let parsed = rye_grammar::knowledge::parse(
        rye_grammar::SourceId(0),
        &text,
        rye_grammar::knowledge::KnowledgeFormat::Markdown,
    );
    let metadata = parsed.tree.metadata.unwrap();
    assert_eq!(metadata.get("title").unwrap().as_str(), Some("a: b\n---\n# x"));
    assert_eq!(parsed.tree.body.node.trim(), "Text.");
    for bad in ["../x", "/etc/x", "a.b", ""] {
        assert!(call(json!({"item_id": bad, "body": "x"})).await.is_error, "{bad}");
    }
    assert!(call(json!({"item_id": "team/x", "body": "  "})).await.is_error);
}

#[tokio::test]
async fn missing_project_folder_is_an_error() {
    let w = world(&[]);
    let invocation = Invocation { project_root: PathBuf::from("/nowhere/at/all"), ..invocation(&w) };
    assert!(FileTool::Ls.run(invocation).await.is_error);
}

fn invocation(w: &TestProject) -> Invocation {
    Invocation::sample("rye/x", w.dir.path(), json!({}))
}

#[tokio::test]
async fn write_happens_only_after_its_record() {
    let w = world(&[("a.txt", b"old")]);
    let seen: Arc<std::sync::Mutex<Vec<PendingChange>>> = Arc::default();
    for is_recorded in [true, false] {
        let (sink, file) = (Arc::clone(&seen), w.dir.path().join("a.txt"));
        let record: ChangeRecorder = Arc::new(move |change| {
            // The change is recorded before the file is written.
            assert_eq!(std::fs::read_to_string(&file).unwrap(), if is_recorded { "old" } else { "new" });
            sink.lock().unwrap().push(change);
            Box::pin(async move { if is_recorded { Ok(()) } else { Err("the store is full".to_owned()) } })
        });
        let parameters = json!({"path": "a.txt", "content": if is_recorded { "new" } else { "newer" }});
        let outcome = FileTool::Write.run(Invocation { parameters, changes: Some(record), ..invocation(&w) }).await;
        assert_eq!(outcome.is_error, !is_recorded, "{outcome:?}");
    }
    assert_eq!(w.file("a.txt"), b"new");
    let seen = seen.lock().unwrap();
    let id = |text: &str| Some(crate::store::ObjectId::of(text.as_bytes()).to_string());
    assert_eq!((&seen[0].event.before, &seen[0].event.after), (&id("old"), &id("new")));
    assert_eq!((seen[0].event.path.as_str(), seen[0].event.call_id.as_str()), ("a.txt", "c-1"));
    assert_eq!(seen[0].contents, [b"old".to_vec(), b"new".to_vec()]);
}
