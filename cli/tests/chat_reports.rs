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

/// Runs `rye chat` with these lines as the whole input, whose last prompt is done.
fn chat(place: &TestProject, lines: &str) -> ProcessResult {
    let done = chat_any(place, lines);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    done
}

/// Runs `rye chat` with these lines as the whole input, and returns the result for any end of the last prompt.
fn chat_any(place: &TestProject, lines: &str) -> ProcessResult {
    let mut command = place.command(&ARGS);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    ProcessResult::from(child.wait_with_output().unwrap())
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
fn attempts_are_numbered_in_each_prompt_and_a_failed_prompt_names_retry() {
    let refused = "{ fault: { status: 401, error: { type: authentication_error, message: Unknown key. } } }";
    let busy = "{ fault: { status: 503, headers: { retry-after-ms: \"5\" } }, times: 2 }";
    let place = project(&format!("{refused}, {busy}, {{ text: Done. }}"));
    let done = chat(&place, "first\nsecond\n");
    let shown = &done.stderr;
    let (first, second) = shown.split_once("help: `/retry`").unwrap_or_else(|| panic!("{shown}"));
    assert!(first.contains("prompt 1 error"), "{shown}");
    assert!(second.contains("attempt 1 failed") && second.contains("attempt 2 failed"), "{shown}");
    assert!(!second.contains("attempt 3") && !second.contains("/retry"), "{shown}");
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
    for code in ["capability::unacknowledged", "item::shadows", "context::not-restored"] {
        for format in ["plain", "json"] {
            let page = place.run_ok(&["explain", code, "--format", format]);
            assert!(page.contains("## Why it is reported") && !page.contains("Why it is refused"), "{code}: {page}");
        }
    }
    assert!(place.run_ok(&["explain", "extends::cycle"]).contains("## Why it is refused"));
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
    assert!(done.stderr.contains("out/talk.html` exists, and an export replaces no file"), "{}", done.stderr);
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

#[test]
fn mode_auto_first_lists_the_calls_that_run_without_an_approval() {
    let place = project("{ text: One. }");
    let tools = "<tool>rye.file-system.read</tool><tool>rye.git.*</tool>";
    place.write(".ai/directives/talk.md", &talk_directive(9, tools));
    let done = chat(&place, "/mode read-only\n/mode auto\n");
    let lines: Vec<&str> = done.stderr.lines().collect();
    let refusal = lines.iter().position(|line| line.contains("the mode `auto` allows more")).unwrap();
    let unasked = "  + widened calls of the risk `elevated` run without an approval: `rye.execute.tool.rye.git.*`";
    assert_eq!(lines[refusal + 1], unasked, "{}", done.stderr);
    assert!(!done.stderr.contains("neutral"), "{}", done.stderr);
    // The example is a tool that exists.
    let example = done.stderr.split("for example ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let tool = example.strip_prefix("rye.execute.tool.").unwrap().replace('.', "/");
    place.run_ok(&["fetch", "tool", &tool]);
}

#[test]
fn clear_without_a_queued_message_names_the_command_for_a_new_conversation() {
    let done = chat(&project("{ text: One. }"), "/clear\n");
    assert!(done.stderr.contains("no message is queued; /new starts a new conversation"), "{}", done.stderr);
}

#[test]
fn context_lists_messages_with_the_start_of_their_text() {
    let done = chat(&project("{ text: The reply. }"), "a question\n/context\n");
    let row = |words: [&str; 2]| done.stderr.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(row(["user ", "a question"]) && row(["assistant ", "The reply."]), "{}", done.stderr);
}

#[test]
fn fork_to_a_thread_goes_back_to_the_branch_that_a_fork_has_left() {
    let place = project("{ text: One. }, { text: Two. }, { text: Three. }");
    let done = chat(&place, "first\nold second\n/fork 2\nnew second\n/tree\n");
    let offered = done.stderr.split("`/fork ").nth(1).and_then(|rest| rest.split('`').next()).unwrap().to_owned();
    assert!(done.stderr.contains("  2  old second  (another branch)"), "{}", done.stderr);
    let mut command = place.command(&["chat", "--resume", &offered, "--script", "script.yaml"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = format!("/fork {offered} 9\n/resume {offered}\n/fork {offered}\nthird\n/tree\n/fork 2\n/context\n");
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let done = ProcessResult::from(child.wait_with_output().unwrap());
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    for note in [
        format!("`{offered}` is an earlier thread of the session, which continues in `"),
        format!("no prompt 9 in `{offered}`: the number of its last prompt is 2"),
        format!("`{offered}` is a thread of this session, which continues in `"),
        format!("the session continues in `{offered}` after prompt 2"),
    ] {
        assert!(done.stderr.contains(&note), "{note}\n{}", done.stderr);
    }
    assert!(done.stderr.contains("  2  new second  (another branch)\n"), "{}", done.stderr);
    assert!(done.stderr.contains("  2  old second\n"), "{}", done.stderr);
    assert!(done.stderr.contains("prompt 3 done"), "{}", done.stderr);
    let context = done.stderr.split("tokens  the next request").nth(1).unwrap();
    assert!(context.contains("first") && !context.contains("second"), "{context}");
    for thread in place.json(&["threads", "list"]).1["threads"].as_array().unwrap() {
        place.run_ok(&["threads", "verify", thread["thread_id"].as_str().unwrap()]);
    }
}

#[test]
fn status_after_a_fork_has_the_tokens_of_the_new_branch() {
    let place = project("{ text: One. }, { text: Two. }");
    let mut terminal = PtyTerminal::start(&place, (100, 24), &ARGS, &[]);
    terminal.wait_for("Enter sends");
    let used = |rows: &[String]| {
        let status = rows.iter().rev().find(|row| row.contains(" · prompt $"))?.clone();
        let field = status.split(" · ").find(|field| field.ends_with('%'))?.to_owned();
        let (used, _) = field.split_once('/')?;
        let (number, unit) = used.strip_suffix('k').map_or((used, 1.0), |number| (number, 1000.0));
        Some(number.parse::<f64>().ok()? * unit)
    };
    terminal.press("short\r");
    terminal.wait_for("prompt 1 done");
    terminal.wait_until("the tokens of the first prompt", |rows| used(rows).is_some());
    let before = used(&terminal.rows()).unwrap();
    terminal.press(&format!("{}\r", "many words ".repeat(150)));
    terminal.wait_for("prompt 2 done");
    // The status is painted with the idle session, which may follow the end of the prompt.
    terminal.wait_until("the tokens of both prompts", |rows| used(rows).is_some_and(|now| now > before + 200.0));
    let long = used(&terminal.rows()).unwrap();
    terminal.press("/fork 2\r");
    terminal.wait_until("the tokens of the first prompt", |rows| used(rows).is_some_and(|now| now < long - 200.0));
    // The text of the prompt returns to the editor. Ctrl+C before that would clear nothing.
    terminal.wait_until("the text in the editor", |rows| {
        rows.iter().rposition(|row| row.ends_with("many words"))
            > rows.iter().rposition(|row| row.contains("prompt 2 done"))
    });
    // The way back to the other branch shows its tokens again.
    let thread = place.json(&["threads", "list"]).1["threads"].as_array().unwrap().last().unwrap()["thread_id"].clone();
    terminal.press(&format!("\x03/fork {}\r", thread.as_str().unwrap()));
    terminal.wait_until("the tokens of both prompts", |rows| used(rows).is_some_and(|now| now > long - 100.0));
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn template_without_its_argument_is_sent_and_the_sent_text_is_shown() {
    let place = project("{ text: One. }");
    place.write(".ai/prompts/review.md", "Review $1 for errors.\n");
    let done = chat(&place, "/review\n/why last\n");
    let missing = "`/review` uses argument 1, which is missing: an empty text was sent in place of the argument";
    assert!(done.stderr.lines().any(|line| line == missing), "{}", done.stderr);
    assert!(done.stderr.lines().any(|line| line == "sent: Review  for errors."), "{}", done.stderr);
    assert!(done.stderr.contains(&format!("input: expansion: {missing}")), "{}", done.stderr);
    assert!(!done.stderr.contains("failed"), "{}", done.stderr);
}

// shows: interactive 6.4: `/why last` names each span with its hook, skill or template and its line
#[test]
fn last_message_is_explained_with_the_bytes_and_the_lines_of_its_hook_and_template() {
    let place = project("{ text: One. }, { text: Two. }");
    place.write(".ai/prompts/review.md", "Review $1 for errors.\n");
    place.write(
        ".ai/config/agent/hooks.yaml",
        "hooks:\n  - { id: tested, event: input, condition: 'text matches \"^fix\"', action: { transform: { text: \"${text}, then test\" } } }\n",
    );
    let done = chat(&place, "fix it\n/why last\n/review a.rs\n/why last\n");
    for line in [
        "sent: fix it, then test",
        "  bytes 6 to 17 come from the hook `tested` (.ai/config/agent/hooks.yaml:2)",
        "  bytes 0 to 23 come from the prompt `review` (.ai/prompts/review.md:1, sha256 ",
    ] {
        assert!(done.stderr.lines().any(|shown| shown.starts_with(line)), "{line}: {}", done.stderr);
    }
}

#[test]
fn verdicts_of_hooks_are_grouped_and_a_failed_hook_states_that_the_text_was_sent() {
    let place = project("{ text: One. }");
    let hooks = "hooks:\n  - { id: shout, event: input, condition: 'text matches \"x\"', action: { transform: { text: LOUD } } }\n  \
                 - { id: soft, event: input, condition: 'text matches \"x\"', action: { transform: { text: soft } } }\n  \
                 - { id: broken, event: input, action: { primary: execute, item_type: tool, item_id: team/broken, params: {} } }\n";
    place.write(".ai/config/agent/hooks.yaml", hooks);
    place.write(".ai/tools/team/broken.sh", "#!/bin/sh\n# rye: {description: Fails.}\nexit 3\n");
    let done = chat(&place, "hello\n/why last\n");
    assert!(
        done.stderr
            .lines()
            .any(|line| line.starts_with("hook broken: ") && line.ends_with("; the text was sent unchanged")),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("  input: shout, soft: condition false; broken failed: "), "{}", done.stderr);
}

#[test]
fn end_of_a_script_states_its_replies_and_the_request() {
    let done = chat_any(&project("{ text: One. }"), "first\nsecond\n");
    assert!(done.stderr.contains("the script is at its end: it has 1 reply for a thread of `talk`"), "{}", done.stderr);
}

#[test]
fn session_without_a_prompt_is_a_success_in_json() {
    let place = project("{ text: One. }");
    let done = place.rye(&["chat", "talk", "--script", "script.yaml", "--format", "json"]);
    let last: serde_json::Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((done.code, &last["success"], &last["status"]), (Some(0), &true.into(), &"idle".into()), "{last}");
}

#[test]
fn withdrawn_text_is_explained_as_not_sent() {
    let place = project("{ text: One., delay_ms: 30000 }");
    let mut terminal = PtyTerminal::start(&place, (100, 24), &ARGS, &[]);
    terminal.wait_for("Enter sends");
    terminal.press("hello\r");
    terminal.wait_for("Esc to interrupt");
    terminal.press("also this\r");
    terminal.wait_for("queued: also this");
    terminal.press("\x1b");
    terminal.wait_for("> also this");
    terminal.wait_for("prompt 1 interrupted");
    terminal.press("\x03/why last\r");
    terminal.wait_for("typed: also this");
    terminal.wait_for("sent: nothing, because the text was withdrawn");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 130);
}

#[test]
fn typed_command_has_no_price_and_a_text_has_one() {
    let place = project("{ text: One. }");
    let mut terminal = PtyTerminal::start(&place, (120, 24), &ARGS, &[]);
    terminal.wait_for("Enter sends");
    terminal.press("hello");
    terminal.wait_for("next ≈ $");
    terminal.press("\x03/tre");
    terminal.wait_until("no price", |rows| {
        rows.iter().any(|row| row == "> /tre") && !rows.iter().any(|row| row.contains("next ≈"))
    });
    terminal.press("\x03\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn limits_of_a_session_are_shown_with_unlimited_spawns() {
    let place = project("{ text: One. }");
    chat(&place, "first\n");
    let shown = place.rye(&["threads", "show", "--last"]);
    assert!(shown.stdout.contains("spawns unlimited, depth"), "{}", shown.stdout);
}

#[test]
fn prompt_that_reaches_its_own_limit_has_another_help_than_one_that_reaches_the_budget() {
    let done = chat_any(&project("{ text: One. }"), "$0.0001 first\n");
    assert!(done.stderr.contains("help: type a higher amount before the text"), "{}", done.stderr);
    let place = project("{ tool_calls: [{ name: rye_file_system_read, input: { path: note.txt } }] }, { text: One. }");
    let cheap = talk_directive(9, TOOLS).replace("spend=\"0.50\"", "spend=\"0.009\"");
    place.write(".ai/directives/talk.md", &cheap);
    let done = chat_any(&place, "first\n");
    assert!(done.stderr.contains("help: `/budget DOLLARS confirm` sets a higher limit"), "{}", done.stderr);
}

#[test]
fn commands_without_their_argument_state_the_current_value() {
    let done = chat(&project("{ text: One. }"), "/model\n/mode\n/budget\n/mode read-only\n/mode\n");
    for line in [
        "the next prompts use the model scripted of scripted; `/model NAME` changes it",
        "the mode is `ask`; `/mode read-only`, `/mode ask` or `/mode auto` changes it",
        "each prompt may cost at most $0.5; `/budget 0.20` changes this",
        "the mode is `read-only`; `/mode read-only`, `/mode ask` or `/mode auto` changes it",
    ] {
        assert!(done.stderr.lines().any(|shown| shown == line), "{line}\n{}", done.stderr);
    }
}

#[test]
fn turns_of_the_activity_are_counted_for_each_prompt() {
    let place = project("{ text: One. }, { text: Two., delay_ms: 30000 }");
    let mut terminal = PtyTerminal::start(&place, (100, 24), &ARGS, &[]);
    terminal.wait_for("Enter sends");
    terminal.press("first\r");
    terminal.wait_for("prompt 1 done");
    terminal.press("second\r");
    terminal.wait_for("turn 1 · ");
    terminal.press("\x1b");
    terminal.wait_for("prompt 2 interrupted");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 130);
}

#[test]
fn notes_of_plain_lines_are_folded_after_words() {
    let place = project("{ text: One. }");
    let mut command = place.command(&ARGS);
    command.env("COLUMNS", "50").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"/help\n").unwrap();
    let done = ProcessResult::from(child.wait_with_output().unwrap());
    let help = done.stderr.split("conversation  ").nth(1).unwrap();
    assert!(help.lines().take(12).all(|line| line.chars().count() <= 50), "{help}");
    assert!(help.contains("/approvals"), "{help}");
}

#[test]
fn command_before_the_start_of_the_thread_takes_effect_before_the_next_line() {
    let done = chat_any(&project("{ text: One. }"), "/budget 0.0001\nfirst\n");
    assert!(done.stderr.contains("each further prompt may cost at most $0.0001"), "{}", done.stderr);
    assert!(done.stderr.contains("help: `/budget DOLLARS confirm` sets a higher limit"), "{}", done.stderr);
}

#[test]
fn prompts_that_end_with_a_null_byte_have_several_lines() {
    let place = project("{ text: One. }, { text: Two. }");
    let mut command = place.command(&[&ARGS[..], &["-0"]].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"first\nsecond line\n\0/cost\0last").unwrap();
    let done = ProcessResult::from(child.wait_with_output().unwrap());
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "One.\nTwo.\n"), "{}", done.stderr);
    assert!(done.stderr.contains("prompt 1 done: turns 1, "), "{}", done.stderr);
    let (_, listed) = place.json(&["threads", "list"]);
    let events = place.transcript(listed["threads"][0]["thread_id"].as_str().unwrap());
    let texts: Vec<&str> = events
        .iter()
        .filter(|event| event["type"] == "user_input")
        .map(|event| event["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["first\nsecond line", "last"]);
}

#[test]
fn broken_bytes_of_a_prompt_are_replaced_and_reported_in_the_locale_c() {
    let place = project("{ text: One. }");
    let mut command = place.command(&ARGS);
    command.env("LC_ALL", "C").env("LANG", "C");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all("größe ".as_bytes().iter().chain(b"a\0b \xff\n").copied().collect::<Vec<u8>>().as_slice())
        .unwrap();
    let done = ProcessResult::from(child.wait_with_output().unwrap());
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("replaced"), "{}", done.stderr);
    let (_, listed) = place.json(&["threads", "list"]);
    let events = place.transcript(listed["threads"][0]["thread_id"].as_str().unwrap());
    let input = events.iter().find(|event| event["type"] == "user_input").unwrap();
    assert_eq!(input["text"], "größe a\u{fffd}b \u{fffd}", "{input}");
}

#[test]
fn messages_that_leave_a_full_context_are_stated() {
    let place = project("{ text: One. }, { text: Two. }, { text: Three. }");
    place.write(
        ".ai/config/agent/coordination.yaml",
        "continuation: { trigger_threshold: 0.0000001, resume_ceiling_tokens: 10 }\n",
    );
    let done = chat(&place, "first\nsecond\n/tree\n");
    let stated = "the context was full: the model no longer sees the first 2 messages (";
    assert!(done.stderr.contains(stated), "{}", done.stderr);
    assert!(done.stderr.contains("  1  first\n") && done.stderr.contains("  2  second\n"), "{}", done.stderr);
    assert!(!done.stderr.contains("(another branch)"), "{}", done.stderr);
}

#[test]
fn export_contains_only_the_current_conversation() {
    let place = project("{ text: One. }, { text: Two. }, { text: Three. }");
    chat(&place, "first\nabandoned\n/fork 2\nother\n/export talk.md\n");
    let text = place.read("talk.md");
    assert!(text.contains("## first") && text.contains("## other") && !text.contains("abandoned"), "{text}");
}

#[test]
fn export_of_an_empty_session_writes_no_file() {
    let place = project("{ text: One. }");
    let done = chat(&place, "/export talk.md\n");
    assert!(done.stderr.contains("nothing to export"), "{}", done.stderr);
    assert!(!place.project().join("talk.md").exists());
}

#[test]
fn reload_of_a_faulty_file_names_its_place() {
    let place = project("{ text: One. }");
    let mut command = place.command(&ARGS);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"!true\nfirst\n").unwrap();
    while place.json(&["threads", "list"]).1["threads"].as_array().is_none_or(Vec::is_empty) {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    place.write(
        ".ai/config/agent/hooks.yaml",
        "hooks:\n  - id: shout\n    event: inptu\n    action: { transform: { text: x } }\n",
    );
    stdin.write_all(b"/reload\n").unwrap();
    drop(stdin);
    let done = ProcessResult::from(child.wait_with_output().unwrap());
    assert!(done.stderr.contains("does not compile: .ai/config/agent/hooks.yaml:3: unknown event"), "{}", done.stderr);
}
