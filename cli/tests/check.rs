//! Tests of `rye check` as a process: formats, exit codes, search for the project.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

const GOOD: &str = "# Greet\n\nSays hello.\n\n```xml\n<directive name=\"greet\" version=\"1.0.0\">\n  <metadata>\n    \
                    <permissions><fetch><knowledge>*</knowledge></fetch></permissions>\n  </metadata>\n</directive>\n```\n\nSay hello.\n";

fn project(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

fn rye(here: &Path, args: &[&str]) -> Output {
    let empty = here.join("no-user-space");
    fs::create_dir_all(&empty).unwrap();
    Command::new(env!("CARGO_BIN_EXE_rye"))
        .args(args)
        .current_dir(here)
        .env_remove("RYE_USER_SPACE")
        .env("USER_SPACE", empty)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn check_of_a_valid_project_succeeds() {
    let folder = project(&[(".ai/directives/greet.md", GOOD), ("deep/down/here.txt", "")]);
    let output = rye(&folder.path().join("deep/down"), &["check"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "");
    assert!(text(&output.stderr).contains("checked 1 directive in "), "{}", text(&output.stderr));
    assert_eq!(text(&rye(folder.path(), &["-q", "check"]).stderr), "");
    let verbose = rye(folder.path(), &["check", "-v"]);
    assert!(text(&verbose.stderr).starts_with("project: "));
}

/// Each row: a file, its text, the severity and code of the only report, and a part of the message and of the help.
#[cfg(feature = "mcp")]
#[test]
fn unusable_files_beside_the_items_are_reported_with_their_place() {
    let secret = "{\"mcpServers\": {\"g\": {\"command\": \"z\", \"env\": {\"GH_TOKEN\": \"ghp_0123456789abcdef\"}}}}";
    for (file, content, code, message, help) in [
        (".mcp.json", "{\"mcpServers\": {},}\n", "error[rye::config::invalid]", "trailing comma", ".mcp.json:1:19"),
        (
            ".mcp.json",
            secret,
            "warning[rye::config::implausible]",
            "`mcpServers.g.env.GH_TOKEN`",
            "write `${GH_TOKEN}`",
        ),
        (
            ".ai/lock.json",
            "{}",
            "error[rye::config::invalid]",
            "`.ai/lock.json` is not a valid lock file",
            "restore the file from version control, or delete it and run `rye lock`, which writes a new one",
        ),
        (
            ".claude/settings.json",
            "{}",
            "advice[rye::item::stray]",
            "permissions and hooks of another client",
            "`<permissions>`",
        ),
        (".claude/agents/a.md", "x", "advice[rye::item::stray]", "`.claude/agents` is not read", "rye new directive"),
    ] {
        let folder = project(&[(".ai/directives/greet.md", GOOD), (file, content)]);
        let output = rye(folder.path(), &["check"]);
        let shown = text(&output.stderr).replace('\n', " ");
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(shown.matches("[rye::").count(), 1, "{file}: {shown}");
        assert!([code, message, help].iter().all(|part| shown.contains(part)), "{file}: {shown}");
    }
}

/// Each row: the path of a script, its text, and a part of the only report; empty if nothing is reported.
#[test]
fn script_of_a_provider_is_read_and_its_branches_are_compared_with_the_directives() {
    let good = "steps:\n  - Hello.\nthreads:\n  greet: [Hello.]\n  greet#2: [Hello again.]\n";
    let provider = "id: own\nwire: scripted\nscript: scripts/own.yaml\ndefault_tier: fast\ntiers: { fast: m }\n\
                    models: [{ id: m, context_window: 200000, max_output: 4000, prices: none }]\n";
    let directive = GOOD.replace("<permissions>", "<model provider=\"scripted\" tier=\"fast\"/><permissions>");
    for (file, content, part) in [
        ("script.yaml", good, ""),
        ("script.yaml", "steps:\n  - tool_call: []\n", "the script `script.yaml` of the provider `scripted` cannot"),
        (
            "script.yaml",
            "steps:\n  - tool_call: []\n",
            "correct the script, or the `script` of the provider file: until then, a run fails at its first model call",
        ),
        ("script.yaml", "threads: { a/other: [Hi.] }\n", "write the full id of a directive, or remove the branch"),
        ("script.yaml", "steps:\n\t- text: x\n", "cannot be played: line 2"),
        ("script.yaml", "steps: [Hello.]\nthreads: { gret: [Hello.] }\n", "did you mean `greet`?"),
        ("scripts/own.yaml", good, ""),
        ("scripts/other.yaml", good, "the script `scripts/own.yaml` of the provider `own` cannot be played"),
    ] {
        let mut files = vec![(".ai/directives/greet.md", directive.as_str()), (file, content)];
        if file.starts_with("scripts/") {
            files.push((".ai/config/agent/providers/own.yaml", provider));
        }
        let output = rye(project(&files).path(), &["check", "--format", "plain"]);
        let shown = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!(shown.matches("[rye::").count(), usize::from(!part.is_empty()), "{file} {content}: {shown}");
        assert!(shown.contains(part), "{file} {content}: {shown}");
        // A missing script is reported where the provider file names it.
        let place = if file == "scripts/other.yaml" { "own.yaml:3:9" } else { ".yaml:1:1" };
        assert!(part.is_empty() || shown.contains(place), "{shown}");
    }
}

#[test]
fn script_is_read_in_each_form_that_selects_its_provider() {
    let models = ".ai/config/agent/models.yaml";
    for (model, settings) in [
        ("<model provider=\"scripted\"/>", ""),
        ("<model id=\"scripted/scripted\"/>", ""),
        ("<model tier=\"scripted/general\"/>", ""),
        ("", "default_provider: scripted\n"),
    ] {
        let directive = GOOD.replace("<permissions>", &format!("{model}<permissions>"));
        let mut files =
            vec![(".ai/directives/greet.md", directive.as_str()), ("script.yaml", "steps: [{ bogus: 1 }]\n")];
        files.extend((!settings.is_empty()).then_some((models, settings)));
        let shown = rye(project(&files).path(), &["check", "--format", "plain"]);
        let shown = format!("{}{}", text(&shown.stdout), text(&shown.stderr));
        assert!(shown.contains("the script `script.yaml` of the provider `scripted` cannot"), "{model}: {shown}");
    }
}

#[test]
fn folder_that_a_server_does_not_need_is_reported_with_the_setting_to_add() {
    let tool =
        "description: d\nkind: mcp\nserver: s\ntool: t\nsha256: x\nserver_sha256: x\nruns: z\nsandbox: process\n";
    let grant = "<permissions><execute><tool write=\"notes/\">mcp.s.*</tool></execute>";
    let directive = GOOD.replace("<permissions>", grant);
    let folder = project(&[(".ai/directives/greet.md", &directive), (".ai/tools/mcp/s/t.yaml", tool)]);
    let output = rye(folder.path(), &["check", "--format", "plain"]);
    let shown = text(&output.stdout);
    let help = "add `\"needs\": {\"write\": [\"notes/\"]}` to the server `s` in its settings and run `rye mcp refresh s`, or remove `write`";
    assert!(shown.contains("`write=\"notes/\"` has no effect") && shown.contains(help), "{shown}");
}

#[test]
fn text_for_an_array_input_is_refused_with_the_json_to_write() {
    let inputs = "</metadata>\n  <inputs><input name=\"l\" type=\"array\" required=\"true\">a list</input></inputs>";
    let directive = GOOD.replace("</metadata>", inputs).replace("Say hello.", "Use {input:l}.");
    let folder = project(&[(".ai/directives/greet.md", &directive)]);
    let output = rye(folder.path(), &["plan", "greet", "--input", "l=a,b"]);
    let help = "write an array in JSON, such as `--input 'l=[\"a\", \"b\"]'`";
    assert!(text(&output.stderr).contains(help), "{}", text(&output.stderr));
}

/// Each row: what replaces a part of the directive, the new text, and the help of the only report.
#[test]
fn words_of_other_languages_have_a_help_of_their_own() {
    for (part, instead, help) in [
        (
            "Say hello.",
            "{% if x %}Say hello.{% endif %}",
            "a prompt has no conditions and loops: describe the cases in words, or send a text only in some runs by a hook with a `condition`",
        ),
        (
            "Say hello.",
            "Say {outputs.greeting}.",
            "an output has no value before the end of the run: describe it in words, or declare an input",
        ),
        (
            "</metadata>",
            "</metadata><outputs><output name=\"o\"><enum>a</enum></output></outputs>",
            "the allowed values are an attribute: `enum=\"a,b\"`",
        ),
        (
            "</directive>",
            "</directive><directive name=\"b\"/>",
            "a file holds one directive: move this one to a file of its own",
        ),
        (
            "<fetch>",
            "<execute><tool net=\"10.0.0.0/8\">*</tool></execute><acknowledge risk=\"unrestricted\">y</acknowledge><fetch>",
            "a range of addresses cannot be granted",
        ),
        (
            "<fetch>",
            "<execute><directive write=\"out/\">*</directive></execute><fetch>",
            "unknown attribute `write` in `<directive>`",
        ),
    ] {
        let folder = project(&[(".ai/directives/greet.md", &GOOD.replacen(part, instead, 1))]);
        let output = rye(folder.path(), &["check", "--format", "plain", "--allow", "capability::unacknowledged"]);
        let shown = text(&output.stdout);
        let reports = shown.matches("warning[").count() + shown.matches("error[").count();
        assert!(reports == 1 && shown.contains(help), "{instead}: {shown}");
    }
}

/// MCP server files are read by a separate parser, which `rye check` runs too.
#[cfg(feature = "mcp")]
#[test]
fn invalid_server_files_are_reported() {
    for (file, content, wanted) in [
        (".mcp.json", "{\"mcpServers\": ", "unclosed bracket"),
        (".mcp.json", "{\"mcpServers\": {\"x\": {\"comand\": \"npx\"}}}", "neither a `command` nor a `url`"),
        (".mcp.json", "{\"servers\": {\"x\": {\"command\": \"npx\"}}}", "write `mcpServers`"),
        (".ai/config/mcp.yaml", "servers: {x: {comand: [npx]}}\n", "unknown key `comand`"),
        (".ai/config/mcp.yaml", "mcpServers: {x: {command: npx}}\n", "its only key is `servers`"),
    ] {
        let folder = project(&[(".ai/directives/greet.md", GOOD), (file, content)]);
        let output = rye(folder.path(), &["check", "--format", "json"]);
        assert_eq!(output.status.code(), Some(1), "{content}");
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let diagnostic = &found["diagnostics"][0];
        assert_eq!(diagnostic["code"], "rye::config::invalid", "{content}");
        assert!(diagnostic["message"].as_str().unwrap().contains(wanted), "{content}: {diagnostic}");
    }
    let fine = "{\"mcpServers\": {\"x\": {\"command\": \"npx\"}}, \"other\": 1}";
    let folder = project(&[(".ai/directives/greet.md", GOOD), (".mcp.json", fine)]);
    assert_eq!(rye(folder.path(), &["check"]).status.code(), Some(0));
}

#[test]
fn keys_of_a_server_that_nothing_reads_are_warnings() {
    let text =
        "{\"mcpServers\": {\"x\": {\"command\": \"a\", \"cwd\": \"sub\", \"timeout\": 2, \"envFile\": \".env\"}}}";
    let folder = project(&[(".ai/directives/greet.md", GOOD), (".mcp.json", text)]);
    let output = rye(folder.path(), &["check", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (key, help) in [("cwd", "folder of the project"), ("timeout", "timeout_seconds"), ("envFile", "remove the key")]
    {
        let of_key = |one: &&Value| one["message"].as_str().unwrap().contains(&format!("`mcpServers.x.{key}`"));
        let diagnostic = found["diagnostics"].as_array().unwrap().iter().find(of_key).unwrap();
        assert_eq!(diagnostic["code"], "rye::config::implausible");
        assert!(diagnostic["help"].as_str().unwrap().contains(help), "{diagnostic}");
    }
}

#[test]
fn error_is_printed_in_every_format() {
    let broken = GOOD.replace("version=\"1.0.0\"", "version=\"1.0.0\" extends=\"gone\"");
    let folder =
        project(&[(".ai/directives/greet.md", &broken), (".ai/directives/other.md", &GOOD.replace("greet", "other"))]);
    let output = rye(folder.path(), &["check"]);
    assert_eq!(output.status.code(), Some(1));
    let human = text(&output.stderr);
    assert!(human.starts_with("error[rye::extends::unknown]: unknown parent directive `gone`\n"), "{human}");
    let hint = "for more information about an error, run `rye explain rye::extends::unknown`";
    assert_eq!((human.lines().last(), human.matches("extends::unknown").count()), (Some(hint), 2), "{human}");
    assert!(rye(folder.path(), &["explain", "rye::extends::unknown"]).status.success());
    assert!(!text(&output.stderr).contains('\u{1b}'), "no colours into a pipe");
    let colored = rye(folder.path(), &["check", "--color", "always"]);
    assert!(text(&colored.stderr).starts_with("\u{1b}[1m\u{1b}[31merror[rye::extends::unknown]\u{1b}[0m: "));
    let plain = rye(folder.path(), &["check", "--format", "plain", "--color", "always"]);
    let first = text(&plain.stdout).lines().next().unwrap();
    assert!(
        first.starts_with(".ai/directives/greet.md:6:") && first.contains(": error[rye::extends::unknown]: "),
        "{first}"
    );
    assert_eq!(text(&plain.stdout).lines().last(), Some(hint));
    assert!(text(&plain.stderr).starts_with("checked 2 directives"), "{}", text(&plain.stderr));
    let json = rye(folder.path(), &["check", "--format", "json"]);
    assert_eq!((json.status.code(), text(&json.stderr)), (Some(1), ""));
    let shown: Value = serde_json::from_str(text(&json.stdout)).unwrap();
    assert_eq!(shown["summary"]["errors"], 1);
    assert_eq!(shown["summary"]["directives"], 2);
    let one = &shown["diagnostics"][0];
    assert_eq!((one["code"].as_str(), one["severity"].as_str()), (Some("rye::extends::unknown"), Some("error")));
    let label = &one["labels"][0];
    assert_eq!((label["file"].as_str(), label["line"].as_u64()), (Some(".ai/directives/greet.md"), Some(6)));
    assert_eq!(label["end_column"].as_u64().unwrap() - label["column"].as_u64().unwrap(), 4);
    let other = rye(folder.path(), &["check", ".ai/directives/other.md"]);
    assert_eq!(other.status.code(), Some(0), "{}", text(&other.stderr));
    assert_eq!(rye(folder.path(), &["check", ".ai/directives"]).status.code(), Some(1));
}

#[test]
fn missing_project_is_a_usage_error() {
    let folder = tempfile::tempdir().unwrap();
    for args in [&["check"][..], &["check", "--project", "nowhere"], &["check", "--project", "."]] {
        let output = rye(folder.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).starts_with("error: "), "{args:?}");
    }
    let json = rye(folder.path(), &["check", "--format", "json"]);
    let error: Value = serde_json::from_str(text(&json.stdout)).unwrap();
    assert_eq!(error["error"]["code"], "usage");
    let project = project(&[(".ai/directives/greet.md", GOOD)]);
    let at = project.path().to_str().unwrap();
    assert_eq!(rye(folder.path(), &["check", "--project", at]).status.code(), Some(0));
    assert_eq!(rye(folder.path(), &["check", "--project", at, "/etc"]).status.code(), Some(2));
}

#[test]
fn user_space_as_project_is_checked_once() {
    let folder = project(&[(".ai/directives/greet.md", GOOD)]);
    let output = Command::new(env!("CARGO_BIN_EXE_rye"))
        .args(["check", "-v", "--project", "."])
        .current_dir(folder.path())
        .env("RYE_USER_SPACE", folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("user space:"), "{}", text(&output.stderr));
}

/// Two mistakes whose help names the place where the right text belongs.
#[test]
fn help_names_the_attribute_of_choices_and_the_missing_tiers() {
    let with_input =
        GOOD.replace("</directive>", "<inputs><input name=\"mode\"><enum>a,b</enum></input></inputs>\n</directive>");
    let folder = project(&[(".ai/directives/greet.md", &with_input)]);
    let output = rye(folder.path(), &["check"]);
    let shown = text(&output.stderr);
    assert!(shown.contains(r#"the allowed values are an attribute: `enum="a,b"`"#), "{shown}");

    let local = "id: local\nwire: openai-chat\nbase_url: http://127.0.0.1:9/v1\nmodels: [{ id: m, context_window: 100000, max_output: 4000, prices: none }]\n";
    let folder = project(&[
        (".ai/directives/greet.md", GOOD),
        (".ai/config/agent/providers/local.yaml", local),
        (".ai/config/agent/models.yaml", "default_provider: local\n"),
    ]);
    let output = rye(folder.path(), &["check"]);
    let shown = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("add `tiers: { general: MODEL }` to `agent/providers/local`"), "{shown}");
}
