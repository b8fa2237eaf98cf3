//! Tests of the git tools: output, invalid input, and repositories that try to start programs.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::process::Command;

use serde_json::{Value, json};

use super::*;

struct Repository {
    dir: tempfile::TempDir,
}

impl Repository {
    /// Creates a repository with one commit; `None` if git is not installed.
    fn new() -> Option<Self> {
        let r = Self { dir: tempfile::tempdir().unwrap() };
        if Command::new("git").arg("--version").output().is_err() {
            eprintln!("skipped: `git` is not installed");
            return None;
        }
        r.git(&["init", "-q", "-b", "main"]);
        r.write("a.txt", "one\n");
        r.git(&["add", "."]);
        r.git(&["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "-m", "First"]);
        Some(r)
    }

    fn git(&self, arguments: &[&str]) {
        let done = Command::new("git").args(arguments).current_dir(self.dir.path()).output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn write(&self, path: &str, text: &str) {
        std::fs::write(self.dir.path().join(path), text).unwrap();
    }

    async fn call(&self, tool: GitTool, parameters: Value) -> (String, bool) {
        let outcome = tool.run(Invocation::sample("rye/git/x", self.dir.path(), parameters)).await;
        (outcome.content.as_str().unwrap().to_owned(), outcome.is_error)
    }
}

#[tokio::test]
async fn git_tools_show_the_repository() {
    let Some(r) = Repository::new() else { return };
    assert_eq!(r.call(GitTool::Diff, json!({})).await, ("[no difference]".to_owned(), false));
    r.write("a.txt", "two\n");
    r.write("b.txt", "new\n");
    let (status, failed) = r.call(GitTool::Status, json!({})).await;
    assert_eq!((status.as_str(), failed), ("## main\n M a.txt\n?? b.txt\n", false));
    let (diff, _) = r.call(GitTool::Diff, json!({"path": "a.txt"})).await;
    assert!(diff.contains("-one\n+two\n"), "{diff}");
    assert_eq!(r.call(GitTool::Diff, json!({"staged": true})).await.0, "[no difference]");
    let (log, _) = r.call(GitTool::Log, json!({"limit": 1})).await;
    assert!(log.ends_with(" A: First\n"), "{log}");
    assert!(r.call(GitTool::Show, json!({"stat": true})).await.0.contains("a.txt | 1 +"));
    assert_eq!(r.call(GitTool::Show, json!({"revision": "HEAD:a.txt"})).await.0, "one\n");
}

#[tokio::test]
async fn bad_input_is_refused() {
    let Some(r) = Repository::new() else { return };
    for (tool, parameters) in [
        (GitTool::Log, json!({"revision": "--output=x"})),
        (GitTool::Diff, json!({"revision": "-Ox"})),
        (GitTool::Show, json!({"revision": "HEAD\n"})),
        (GitTool::Show, json!({"revision": "no-such"})),
        (GitTool::Diff, json!({"path": "../x"})),
        (GitTool::Diff, json!({"path": "/etc/passwd"})),
        (GitTool::Status, json!({"revision": "HEAD"})),
        (GitTool::Status, json!({"limit": 3})),
        (GitTool::Log, json!({"staged": true})),
    ] {
        let (output, failed) = r.call(tool, parameters.clone()).await;
        assert!(failed && !output.is_empty(), "{parameters}: {output}");
    }
    // Pathspec magic is off: the path is taken literally.
    assert_eq!(r.call(GitTool::Log, json!({"path": ":(glob)*"})).await.0, "[no commits]");
    std::fs::remove_dir_all(r.dir.path().join(".git")).unwrap();
    assert!(r.call(GitTool::Status, json!({})).await.0.contains("not a git repository"));
}

#[tokio::test]
async fn git_file_to_another_repository_is_refused() {
    let (Some(r), Some(other)) = (Repository::new(), Repository::new()) else { return };
    let git = r.dir.path().join(".git");
    std::fs::remove_dir_all(&git).unwrap();
    std::fs::write(&git, format!("gitdir: {}\n", other.dir.path().join(".git").display())).unwrap();
    assert_eq!(
        r.call(GitTool::Log, json!({})).await,
        ("the project's `.git` is not a folder: it points elsewhere".into(), true)
    );
    std::fs::remove_file(&git).unwrap();
    std::os::unix::fs::symlink(other.dir.path().join(".git"), &git).unwrap();
    assert!(r.call(GitTool::Log, json!({})).await.1);
}

#[tokio::test]
async fn missing_objects_are_not_fetched() {
    let Some(r) = Repository::new() else { return };
    let sprung = r.dir.path().join("sprung");
    let command = format!("ext::sh -c touch% {}", sprung.display());
    for (key, value) in [
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", command.as_str()),
        ("protocol.ext.allow", "always"),
        ("protocol.allow", "always"),
        ("core.alternateRefsCommand", command.as_str()),
    ] {
        r.git(&["config", key, value]);
    }
    // An object is deleted, as if the repository were a partial clone.
    let out = Command::new("git").args(["rev-parse", "HEAD:a.txt"]).current_dir(r.dir.path()).output().unwrap();
    let blob = String::from_utf8(out.stdout).unwrap();
    let (folder, rest) = blob.trim().split_at(2);
    std::fs::remove_file(r.dir.path().join(".git/objects").join(folder).join(rest)).unwrap();
    let (output, failed) = r.call(GitTool::Show, json!({"revision": "HEAD:a.txt"})).await;
    assert!(failed, "{output}");
    for tool in GitTool::ALL {
        r.call(tool, json!({})).await;
    }
    assert!(!sprung.exists());
}

#[tokio::test]
async fn repository_configuration_never_runs_programs() {
    let Some(r) = Repository::new() else { return };
    let trap = r.dir.path().join("trap.sh");
    let sprung = r.dir.path().join("sprung");
    std::fs::write(&trap, format!("#!/bin/sh\necho \"$0\" >> {}\ncat\n", sprung.display())).unwrap();
    Command::new("chmod").arg("+x").arg(&trap).status().unwrap();
    let trap = trap.to_str().unwrap();
    for key in [
        "core.fsmonitor",
        "core.pager",
        "core.sshCommand",
        "diff.external",
        "diff.bad.command",
        "diff.bad.textconv",
        "filter.bad.clean",
        "filter.bad.smudge",
        "filter.bad.process",
        "FILTER.with.dots.clean",
        "gpg.program",
        "alias.status",
        "pager.log",
        "interactive.diffFilter",
    ] {
        r.git(&["config", key, trap]);
    }
    r.git(&["config", "log.showSignature", "true"]);
    r.git(&["config", "core.worktree", "/etc"]);
    // Settings of an included file and of a nested repository must not start programs either.
    r.write("more.config", &format!("[filter \"included\"]\n\tclean = {trap}\n[core]\n\tfsmonitor = {trap}\n"));
    r.git(&["config", "include.path", "../more.config"]);
    r.git(&["init", "-q", "inner"]);
    Command::new("git")
        .args(["config", "core.fsmonitor", trap])
        .current_dir(r.dir.path().join("inner"))
        .status()
        .unwrap();
    r.write("inner/x.txt", "x\n");
    r.write(".gitattributes", "*.txt filter=bad diff=bad\n*.md filter=with.dots\n*.rs filter=included\n");
    r.write("d.rs", "four\n");
    r.write("a.txt", "two\n");
    r.write("c.md", "three\n");
    for hook in ["post-index-change", "fsmonitor-watchman", "pre-commit"] {
        let path = r.dir.path().join(".git/hooks").join(hook);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(trap, path).unwrap();
    }
    for tool in GitTool::ALL {
        let (output, failed) = r.call(tool, json!({})).await;
        assert!(!failed && !output.contains("passwd"), "{output}");
    }
    assert!(!sprung.exists(), "{}", std::fs::read_to_string(&sprung).unwrap_or_default());
}
