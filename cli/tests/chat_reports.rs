//! Tests of what `rye chat` reports with plain lines: errors of calls, waits before a retry, approvals that start a thread,
//! the parts of the next request, and suggestions.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/pty.rs"]
mod pty;
#[path = "support/rye.rs"]
mod rye;

use std::io::Write;
use std::process::Stdio;

use pty::PtyTerminal;
use rye::{ProcessResult, TestProject, talk_directive};

const TOOLS: &str = "<tool>rye.file-system.read</tool><tool>team.*</tool><directive>*</directive>";

/// Returns a project with the directive `talk` and this script.
fn project(steps: &str) -> TestProject {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &talk_directive(9, TOOLS));
    place.write("script.yaml", &format!("steps: [{steps}]"));
    place
}

const ARGS: [&str; 4] = ["chat", "talk", "--script", "script.yaml"];

/// Runs `rye chat` with these lines as the whole input.
fn chat(place: &TestProject, lines: &str) -> ProcessResult {
    let mut command = place.command(&ARGS);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let done = ProcessResult::from(child.wait_with_output().unwrap());
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    done
}

#[test]
fn long_error_of_a_call_is_shown_with_its_end() {
    let path = format!("{}/the-end-of-the-path.txt", "a-long-folder-name".repeat(8));
    let call = format!("{{ tool_calls: [{{ name: rye_file_system_read, input: {{ path: {path} }} }}] }}");
    let done = chat(&project(&format!("{call}, {{ text: Done. }}")), "go\n");
    assert!(done.stderr.contains("the-end-of-the-path.txt"), "{}", done.stderr);
}

#[test]
fn error_of_a_python_tool_is_the_last_line_of_its_traceback() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        return;
    }
    let place = project("{ tool_calls: [{ name: team_fail, input: {} }] }, { text: Done. }");
    place.write(
        ".ai/tools/team/fail.py",
        "__tool_description__ = \"Fails.\"\n\ndef execute(params, project_path):\n    raise ValueError(\"no such garden\")\n",
    );
    let done = chat(&place, "go\n");
    assert!(done.stderr.contains("ValueError: no such garden"), "{}", done.stderr);
    assert!(!done.stderr.contains("Traceback"), "{}", done.stderr);
}

#[test]
fn wait_before_a_retry_is_shown() {
    let fault = "{ fault: { status: 429, headers: { retry-after-ms: \"3000\" }, error: { type: rate_limit_error, message: Slow. } } }";
    let place = project(&format!("{fault}, {{ text: Done. }}"));
    let mut terminal = PtyTerminal::start(&place, (100, 24), &ARGS, &[]);
    terminal.wait_for("Enter sends");
    terminal.press("go\r");
    terminal.wait_for("retrying after 3 s");
    terminal.wait_for("prompt 1 done");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn parts_of_the_next_request_have_a_header_and_a_sum_and_are_listed_once_after_a_fork() {
    let place = project("{ text: One. }, { text: Two. }");
    place.write("AGENTS.md", "Use tabs.\n");
    let done = chat(&place, "first\nsecond\n/fork 2\n/context\n");
    let lines: Vec<&str> = done.stderr.lines().collect();
    let header = lines.iter().position(|line| line.ends_with("tokens  the next request, without your text")).unwrap();
    let end = lines.iter().position(|line| line.ends_with("  together, estimated")).unwrap();
    let rows = &lines[header + 1..end];
    let mut names: Vec<&str> = rows.iter().map(|row| row.trim_start().split_once(' ').unwrap().1).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "{rows:?}");
    assert!(names.iter().any(|name| name.ends_with("AGENTS.md")), "{rows:?}");
    let tokens = |line: &str| line.split_whitespace().next().unwrap().parse::<u64>().unwrap();
    assert_eq!(rows.iter().map(|row| tokens(row)).sum::<u64>(), tokens(lines[end]), "{rows:?}");
}

#[test]
fn unknown_model_is_refused_with_the_names_of_models() {
    let done = chat(&project("{ text: One. }"), "/model fsat\n");
    assert!(done.stderr.contains("fsat") && done.stderr.contains("fast"), "{}", done.stderr);
}

#[test]
fn closed_sessions_are_listed_with_titles_and_dates() {
    let place = project("{ text: One. }");
    chat(&place, "plant the beans\n/name garden\n");
    chat(&place, "mow the lawn\n");
    let done = chat(&place, "/resume\n");
    let row = |title: &str| {
        let found = done.stderr.lines().find(|line| line.ends_with(title));
        found.unwrap_or_else(|| panic!("{title}: {}", done.stderr))
    };
    for title in ["garden", "mow the lawn"] {
        let words: Vec<&str> = row(title).split_whitespace().collect();
        assert!(words[0].starts_with("talk-") && words[1].split('-').count() == 3, "{words:?}");
    }
}

#[test]
fn explanation_of_a_warning_says_why_it_is_reported() {
    let place = project("");
    let page = place.run_ok(&["explain", "rye::capability::unacknowledged"]);
    assert!(page.contains("## Why it is reported") && !page.contains("Why it is refused"), "{page}");
}

#[test]
fn manual_page_has_the_usage_of_the_help() {
    let place = project("");
    place.run_ok(&["man", "pages"]);
    let page = place.read("pages/rye-chat.1");
    let synopsis = page
        .split(".SH SYNOPSIS")
        .nth(1)
        .unwrap()
        .split(".SH")
        .next()
        .unwrap()
        .replace("\\fB", "")
        .replace("\\fR", "")
        .replace('\\', "");
    let help = place.run_ok(&["chat", "--help"]);
    let usage = help.lines().find_map(|line| line.trim().strip_prefix("Usage: ")).unwrap();
    assert!(synopsis.contains(usage), "{synopsis}\n{usage}");
}

#[test]
fn exported_page_shows_texts_as_they_are_and_replaces_no_file() {
    let place = project("{ text: \"<img src=x onerror=alert(2)> & **bold**\" }");
    place.write("out/.keep", "");
    let lines = "hi <script>alert(1)</script>\n/name My <b>talk</b>\n/export out/talk.html\n/export out/talk.html\n/export talk.pdf\n/export html\n";
    let done = chat(&place, lines);
    assert!(done.stderr.contains("out/talk.html` cannot be written: File exists"), "{}", done.stderr);
    assert!(done.stderr.contains("/export needs `md`, `html`, `jsonl`, `script` or a file"), "{}", done.stderr);
    let page = place.read("out/talk.html");
    assert!(page.starts_with("<!doctype html>") && page.contains("default-src 'none'"), "{page}");
    assert!(page.contains("<h1>My &lt;b&gt;talk&lt;/b&gt;</h1>"), "{page}");
    assert!(page.contains("<pre class=\"prompt\">hi &lt;script&gt;alert(1)&lt;/script&gt;</pre>"), "{page}");
    assert!(page.contains("<pre>&lt;img src=x onerror=alert(2)&gt; &amp; **bold**</pre>"), "{page}");
    assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
    let pages =
        rye::files(&place.project()).into_iter().filter(|path| path.starts_with("talk-") && path.contains(".html"));
    assert_eq!(pages.count(), 1);
}

#[test]
fn chat_in_a_removed_folder_states_the_cause_and_the_fix() {
    let place = project("{ text: One. }");
    let folder = place.project().join("gone");
    std::fs::create_dir(&folder).unwrap();
    let line = format!("cd gone && rmdir '{}' && exec '{}' chat", folder.display(), env!("CARGO_BIN_EXE_rye"));
    let done = std::process::Command::new("sh").args(["-c", &line]).current_dir(place.project()).output().unwrap();
    let done = ProcessResult::from(done);
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    assert!(done.stderr.contains("the working directory no longer exists"), "{}", done.stderr);
    assert!(done.stderr.contains("--project DIR"), "{}", done.stderr);
}
