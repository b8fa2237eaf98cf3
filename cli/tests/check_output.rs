//! Tests of `rye check` as a process: severity overrides, output formats, fixes, path filters, watching.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rye::TestProject;
use serde_json::Value;

const UNUSED: &str = "# A\n\nSays a.\n\n```xml\n<directive name=\"a\" version=\"1.0.0\">\n  <metadata>\n    <permissions/>\n  </metadata>\n  <inputs>\n    <input name=\"x\" type=\"string\">nobody reads it</input>\n  </inputs>\n</directive>\n```\n\nSay a.\n";
const BROKEN: &str = "# B\n\nSays b.\n\n```xml\n<directive name=\"wrong\" version=\"1.0.0\">\n  <metadata>\n    <limits max_turns=\"3\" trns=\"4\"/>\n    <permissions/>\n    <descripton>b</descripton>\n  </metadata>\n</directive>\n```\n\nSay b.\n";

fn place() -> TestProject {
    let place = TestProject::own();
    place.write(".ai/directives/a.md", UNUSED);
    place
}

#[test]
fn warnings_follow_flags_and_severity_overrides() {
    let place = place();
    assert_eq!(place.rye(&["check"]).code, Some(0));
    assert_eq!(place.rye(&["check", "--deny-warnings"]).code, Some(1));
    let allowed = place.rye(&["check", "--deny-warnings", "--allow", "rye::interface::unused-input"]);
    assert_eq!(allowed.code, Some(0), "{}", allowed.stderr);
    assert!(!allowed.stderr.contains("unused-input"), "{}", allowed.stderr);
    let unknown = place.rye(&["check", "--allow", "interface::unused-inputs"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("did you mean `interface::unused-input`?"), "{}", unknown.stderr);

    place.write(".ai/config/check.yaml", "levels:\n  interface::unused-input: error\n");
    let (code, shown) = place.json(&["check"]);
    assert_eq!((code, &shown["diagnostics"][0]["severity"]), (Some(1), &Value::from("error")));
    assert_eq!(shown["summary"]["errors"], 1);
    place.write(".ai/config/check.yaml", "levels: { interface::unused-input: allow }\ndeny_warnings: true\n");
    assert_eq!(place.rye(&["check"]).code, Some(0));
    place.write(
        ".ai/config/check.yaml",
        "levels: { interface::unusd-input: allow, hook::always: loud }\ndeny_warning: 1\n",
    );
    let done = place.rye(&["check"]);
    assert_eq!(done.code, Some(1));
    for part in ["interface::unused-input", "deny_warnings", "`allow`"] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
}

#[test]
fn an_error_cannot_be_allowed() {
    let place = TestProject::own();
    place.write(".ai/directives/b.md", BROKEN);
    place.write(".ai/config/check.yaml", "levels: { limit::unknown: allow }\n");
    let done = place.rye(&["check", "--allow", "limit::unknown"]);
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("`limit::unknown` is an error: its severity cannot be lowered"), "{}", done.stderr);
}

#[test]
fn diagnostics_wrap_at_the_width_of_the_terminal() {
    let place = TestProject::own();
    place.write(".ai/directives/b.md", BROKEN);
    for width in ["60", "80"] {
        let done = place.command(&["check"]).env("COLUMNS", width).output().unwrap();
        let shown = String::from_utf8(done.stderr).unwrap();
        let headers: Vec<&str> = shown.lines().filter(|line| line.starts_with("error[rye::")).collect();
        assert!(!headers.is_empty(), "{shown}");
        // Paths, source snippets and the list of codes are not wrapped, so only the other lines are checked.
        let prose = shown.lines().filter(|line| line.starts_with("error[") || line.trim_start().starts_with("help:"));
        for line in prose {
            assert!(line.chars().count() <= width.parse::<usize>().unwrap(), "{width}: {line}");
        }
    }
}

#[test]
fn sarif_and_github_formats_are_printed() {
    let place = TestProject::own();
    place.write(".ai/directives/b.md", BROKEN);
    let done = place.rye(&["check", "--format", "sarif"]);
    assert_eq!((done.code, done.stderr.as_str()), (Some(1), ""));
    let log: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    let results = run["results"].as_array().unwrap();
    assert!(!results.is_empty());
    for result in results {
        let rule = &rules[usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap()];
        assert_eq!(rule["id"], result["ruleId"]);
        assert!(!rule["shortDescription"]["text"].as_str().unwrap().is_empty());
        assert_eq!(result["level"], "error");
    }
    let limit = results.iter().find(|r| r["ruleId"] == "rye::limit::unknown").unwrap();
    let at = &limit["locations"][0]["physicalLocation"];
    assert_eq!(at["artifactLocation"]["uri"], ".ai/directives/b.md");
    assert_eq!((&at["region"]["startLine"], &at["region"]["startColumn"]), (&Value::from(8), &Value::from(27)));
    let change = &limit["fixes"][0]["artifactChanges"][0]["replacements"][0];
    assert_eq!(change["insertedContent"]["text"], "turns");

    let done = place.rye(&["check", "--format", "github"]);
    assert_eq!(done.code, Some(1));
    assert_eq!(done.stdout.lines().count(), results.len());
    assert!(
        done.stdout.lines().all(|line| line.starts_with("::error file=.ai/directives/b.md,line=")),
        "{}",
        done.stdout
    );
    let refused = place.rye(&["plan", "b", "--format", "sarif"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert_eq!(place.rye(&["check", "--format", "html"]).code, Some(2));
}

#[test]
fn safe_fixes_are_applied_and_printed() {
    let place = TestProject::own();
    place.write(".ai/directives/b.md", BROKEN);
    let done = place.rye(&["check", "--fix"]);
    for line in ["-<directive name=\"wrong\"", "+<directive name=\"b\"", "+    <description>b</description>"] {
        assert!(done.stdout.contains(line), "{line}: {}", done.stdout);
    }
    assert!(done.stderr.contains("repaired 1 file"), "{}", done.stderr);
    let text = place.read(".ai/directives/b.md");
    assert!(text.contains("<description>b</description>") && text.contains("name=\"b\""), "{text}");
    // The fixed `turns` would repeat `max_turns`: the user has to choose.
    assert!(
        done.stderr.contains("fix not applied, because it would add a diagnostic or remove none: "),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("limit::unknown") && !done.stderr.contains("item::repeated"), "{}", done.stderr);
    place.write(".ai/directives/b.md", &text.replace(" trns=\"4\"", ""));
    let again = place.rye(&["check", "--fix"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(place.read(".ai/directives/b.md").contains("<limits turns=\"3\"/>"), "aliases are repaired too");
    let idle = place.rye(&["check", "--fix"]);
    assert!(idle.stderr.contains("no safe fixes available"), "{}", idle.stderr);
}

#[test]
fn fix_that_uncovers_another_one_says_so() {
    let place = TestProject::own();
    let metadata = "<metadata><description>x</description><limits max_turns=\"3\"/></metadata>";
    place.write(
        ".ai/directives/b.md",
        &format!("```xml\n<directive name=\"a\">\n{metadata}\n</directive>\n```\n\nGo.\n"),
    );
    let more = "more fixes are available now: run `rye check --fix` again";
    let first = place.rye(&["check", "--fix"]);
    let is_whole = place.read(".ai/directives/b.md").contains(" turns=\"3\"");
    assert_eq!(first.stderr.contains(more), !is_whole, "{}", first.stderr);
    let second = place.rye(&["check", "--fix"]);
    assert!(!second.stderr.contains(more), "{}", second.stderr);
    let text = place.read(".ai/directives/b.md");
    assert!(text.contains(" turns=\"3\"") && text.contains("name=\"b\""), "{text}");
}

#[test]
fn a_signed_file_and_a_link_are_not_rewritten() {
    let place = TestProject::own();
    place.write("elsewhere.md", BROKEN);
    std::fs::create_dir_all(place.project().join(".ai/directives")).unwrap();
    std::os::unix::fs::symlink("../../elsewhere.md", place.project().join(".ai/directives/b.md")).unwrap();
    let done = place.rye(&["check", "--fix"]);
    assert_ne!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(place.read("elsewhere.md"), BROKEN);
}

#[test]
fn ids_filter_like_paths() {
    let place = place();
    place.write(".ai/directives/b.md", BROKEN);
    assert_eq!(place.rye(&["check", "a"]).code, Some(0));
    assert_eq!(place.rye(&["check", "b"]).code, Some(1));
    let unknown = place.rye(&["check", "bb"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("neither a path nor an id"), "{}", unknown.stderr);
}

#[test]
fn watch_checks_after_a_change() {
    let place = place();
    let mut command = place.command(&["check", "--watch", "--format", "github"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.starts_with("::warning"), "{first}");
    place.write(".ai/directives/a.md", &UNUSED.replace("name=\"a\"", "name=\"q\""));
    let second = lines.next().unwrap().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(second.starts_with("::error"), "{second}");
}

/// Changes that the file watcher does not report: files outside the items, a replaced `.ai` folder, the target of a
/// link.
#[test]
fn watch_detects_unreported_changes() {
    let place = place();
    let mut command = place.command(&["check", "--watch", "--format", "github"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let is_summary = |line: &String| line.starts_with("checked ") || line.starts_with("error: ");
    let mut sums = lines.map(|line| line.unwrap()).filter(is_summary);
    let mut until = |what: &str| {
        let part: Vec<String> = sums.by_ref().take(20).take_while(|sum| !sum.contains(what)).collect();
        assert!(part.len() < 20, "{what}: {part:?}");
    };
    until("0 errors, 1 warning");
    place.write(".mcp.json", "{ not json");
    until("1 error, 1 warning");
    std::fs::remove_file(place.project().join(".mcp.json")).unwrap();
    until("0 errors, 1 warning");
    // Simulates a switch to a branch without the `.ai` folder, and back.
    let (ai, away) = (place.project().join(".ai"), place.project().join("away"));
    std::fs::rename(&ai, &away).unwrap();
    until("is not a project: it contains no `.ai/`");
    std::fs::rename(&away, &ai).unwrap();
    until("0 errors, 1 warning");
    // The watcher restarts, then a link appears whose target is outside `.ai`.
    place.write("docs/deep/rules.md", "Read by nobody.");
    std::fs::create_dir_all(ai.join("knowledge")).unwrap();
    std::os::unix::fs::symlink("../../docs", ai.join("knowledge/docs")).unwrap();
    until("0 errors, 2 warnings");
    place.write("docs/deep/more.md", "Read by nobody either.");
    until("0 errors, 3 warnings");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn watch_follows_scripts_and_prints_the_hint_of_each_check() {
    let place = place();
    let provider = "id: played\nwire: scripted\nscript: scripts/s.yaml\ndefault_tier: general\n\
                    tiers: { general: m }\nmodels: [{ id: m, context_window: 8192, max_output: 2048 }]\n";
    place.write(".ai/config/agent/providers/played.yaml", provider);
    place.write("scripts/s.yaml", "steps: [Done.]\n");
    let mut command = place.command(&["check", "--watch", "--format", "plain"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let mut until = |what: &str| {
        let part: Vec<String> = lines.by_ref().take(20).take_while(|line| !line.contains(what)).collect();
        assert!(part.len() < 20, "{what}: {part:?}");
        part
    };
    until("for more information about an error");
    place.write("scripts/s.yaml", "bogus: 1\nsteps: [Done.]\n");
    until("cannot be played");
    until("for more information about an error");
    place.write("scripts/s.yaml", "steps: [Done.]\n");
    let again = until("for more information about an error").concat();
    assert!(!again.contains("cannot be played"), "{again}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn diagnostics_of_whole_files_have_a_location() {
    let place = TestProject::own();
    place.write(".ai/hooks.yaml", "hooks: []\n");
    let done = place.rye(&["check", "--format", "sarif"]);
    assert_eq!(done.code, Some(1), "an unread hook file is an error");
    let log: Value = serde_json::from_str(&done.stdout).unwrap();
    let result = &log["runs"][0]["results"][0];
    assert_eq!(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], ".ai/hooks.yaml");
    let fingerprint = result["partialFingerprints"]["ryeDiagnostic/v1"].as_str().unwrap();
    assert_eq!((fingerprint.len(), fingerprint.ends_with(":1")), (18, true), "{fingerprint}");
    let done = place.rye(&["check", "--format", "github"]);
    assert!(done.stdout.starts_with("::error file=.ai/hooks.yaml,line=1,"), "{}", done.stdout);
}

#[test]
fn fixes_that_do_not_help_are_not_written() {
    let place = TestProject::own();
    let tool = "__tool_desc__ = \"Count.\"\n\n\ndef execute(params, project_path):\n    return 1\n";
    place.write(".ai/tools/count.py", tool);
    let directive = "```xml\n<directive name=\"a\"><metadata><permissions><execute><tool>project/count.py</tool></execute></permissions></metadata></directive>\n```\n\nGo.\n";
    place.write(".ai/directives/a.md", directive);
    place.rye(&["check", "--fix"]);
    assert_eq!(place.read(".ai/tools/count.py"), tool);
    assert_eq!(place.read(".ai/directives/a.md"), directive);
}

#[cfg(feature = "mcp")]
#[test]
fn faults_of_server_settings_have_a_line() {
    let place = TestProject::own();
    place.write(".ai/directives/b.md", "```xml\n<directive name=\"b\" version=\"1.0.0\"/>\n```\n\nGo.\n");
    place.write(".mcp.json", "{\n  \"mcpServers\": {\n    \"files\": {\n      \"comand\": \"npx\"\n    }\n  }\n}\n");
    let done = place.rye(&["check", "--format", "github"]);
    assert!(done.stdout.contains("file=.mcp.json,line=4,endLine=4,col=7,"), "{}", done.stdout);
    let log: Value = serde_json::from_str(&place.rye(&["check", "--format", "sarif"]).stdout).unwrap();
    assert_eq!(log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"], 4);
    let listed = place.rye(&["mcp", "list"]);
    assert!(listed.stderr.contains(".mcp.json:4:7: "), "{}", listed.stderr);
    std::fs::remove_file(place.project().join(".mcp.json")).unwrap();
    place.write(".ai/config/mcp.yaml", "servers:\n  files:\n    command: [x]\n    timeout_seconds: soon\n");
    let done = place.rye(&["check", "--format", "github"]);
    assert!(done.stdout.contains("file=.ai/config/mcp.yaml,line=4,"), "{}", done.stdout);
}

#[test]
fn sarif_rules_have_the_properties_of_code_scanning() {
    let place = TestProject::own();
    place.write(".ai/directives/b.md", BROKEN);
    let log: Value = serde_json::from_str(&place.rye(&["check", "--format", "sarif"]).stdout).unwrap();
    let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    let limit = rules.iter().find(|rule| rule["id"] == "rye::limit::unknown").unwrap();
    assert_eq!((&limit["name"], &limit["defaultConfiguration"]["level"]), (&"LimitUnknown".into(), &"error".into()));
    assert_eq!(limit["properties"]["tags"], serde_json::json!(["rye", "limit"]));
    for rule in rules {
        for text in ["shortDescription", "fullDescription", "help"] {
            let text = rule[text]["text"].as_str().unwrap();
            assert!(!text.is_empty(), "{rule}");
        }
    }
}

#[test]
fn warnings_of_a_run_are_one_line_each() {
    let place = TestProject::own();
    let grant = "<metadata><permissions><execute><tool>no.such</tool></execute></permissions></metadata>";
    place.write(
        ".ai/directives/talk.md",
        &format!("Talks.\n\n```xml\n<directive name=\"talk\">{grant}</directive>\n```\n\nTalk.\n"),
    );
    let checked = place.rye(&["check"]).stderr;
    assert!(checked.contains("no item id matches"), "{checked}");
    let planned = place.rye(&["plan", "talk"]).stderr;
    assert_eq!(planned.matches("warning[rye::capability::matches-nothing]").count(), 1, "{planned}");
    assert!(planned.contains("`rye check` prints the warnings in full"), "{planned}");
    assert!(!planned.contains("no item id matches"), "{planned}");
    let quiet = place.rye(&["plan", "talk", "-q"]).stderr;
    assert!(!quiet.contains("matches-nothing"), "{quiet}");
}

#[test]
fn slips_of_a_command_line_have_a_help() {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", "Talks.\n\n```xml\n<directive name=\"talk\"/>\n```\n\nTalk.\n");
    for (words, part) in [
        (&["plan", "talk", "--graph", "svg"][..], "`--graph=svg`"),
        (&["plan", "--graph", "svg", "talk"], "`--graph=svg`"),
        (&["plan", "talk", "--model", "anthropic/"], "names no model"),
        (&["check", "talk.md"], "did you mean `talk`?"),
        (&["check", ".ai/directives/tlk.md"], "did you mean `talk`?"),
        (&["new", "knowledge", "x", "--language", "python"], "for tools only"),
        (&["fetch", "-s", "a", "--limit", "100"], "1..=50"),
    ] {
        let ran = place.rye(words);
        assert_eq!(ran.code, Some(2), "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{words:?}: {}", ran.stderr);
    }
    let unknown = place.rye(&["plan", "talk", "--all", "--input", "n=1"]);
    assert!(unknown.stderr.contains("`talk` has no input `n`"), "{}", unknown.stderr);
    assert_eq!(place.rye(&["threads", "list", "--status", "done"]).code, Some(0));
}

#[test]
fn sarif_rule_of_a_warning_says_why_it_is_reported() {
    let place = TestProject::own();
    place.write(".ai/knowledge/unused.md", "A rule.\n");
    let log: Value = serde_json::from_str(&place.rye(&["check", "--format", "sarif"]).stdout).unwrap();
    let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    let rule = rules.iter().find(|rule| rule["id"] == "rye::context::unreached").unwrap();
    let page = rule["help"]["markdown"].as_str().unwrap();
    assert!(page.contains("## Why it is reported") && !page.contains("Why it is refused"), "{page}");
}
