//! Tests of help texts, the version, manual pages, logs and the environment variables of options.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::TestProject;

#[test]
fn only_commands_with_more_formats_offer_them() {
    let place = TestProject::new();
    for (command, offered, not_offered) in [
        ("check", &["sarif", "github"][..], &["html"][..]),
        ("plan", &["markdown", "html"], &["sarif"]),
        ("run", &[], &["sarif", "github", "markdown", "html"]),
    ] {
        let help = place.run_ok(&[command, "--help"]);
        assert!(help.contains("Options of every command:"), "{help}");
        let offers = |format: &&str| help.contains(&format!("- {format}:"));
        assert!(offered.iter().all(&offers), "{command}: {help}");
        assert!(!not_offered.iter().any(offers), "{command}: {help}");
    }
    // `--format` may precede or follow the command, and a command refuses a format that it does not support.
    place.run_ok(&["init"]);
    let place = place.cloned();
    assert!(place.run_ok(&["--format", "sarif", "check"]).contains("2.1.0"));
    let refused = place.rye(&["threads", "list", "--format", "sarif"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stdout.contains("does not support `--format sarif`"), "{}", refused.stdout);
}

#[test]
fn help_texts_show_the_examples_of_their_command() {
    let place = TestProject::new();
    let example = "Examples:\n  rye threads list --active";
    for line in [&["threads", "list", "--help"][..], &["help", "threads", "list"], &["threads", "list", "-h"]] {
        let help = place.run_ok(line);
        assert!(help.contains(example), "{line:?}: {help}");
    }
    let without_subcommand = place.rye(&["threads"]);
    assert!(without_subcommand.stderr.contains("Examples:\n  rye threads list"), "{}", without_subcommand.stderr);
    let refused = place.rye(&["threads", "list", "--no-such-option"]);
    assert!(refused.code == Some(2) && !refused.stderr.contains("Examples:"), "{}", refused.stderr);
}

#[test]
fn fetch_usage_names_the_type_first() {
    let help = TestProject::new().run_ok(&["fetch", "--help"]);
    assert!(help.contains("rye fetch [OPTIONS] <TYPE> <ID>"), "{help}");
}

#[test]
fn version_names_commit_and_features() {
    let place = TestProject::new();
    let long = place.run_ok(&["--version"]);
    let lines: Vec<&str> = long.lines().collect();
    let version = format!("rye {}", env!("CARGO_PKG_VERSION"));
    assert!(
        matches!(lines.as_slice(), [first, commit, features]
        if *first == version && commit.starts_with("commit: ") && features.starts_with("features: ")),
        "{long}"
    );
    let features = [("acp", cfg!(feature = "acp")), ("mcp", cfg!(feature = "mcp"))];
    let named: Vec<&str> = features.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name).collect();
    let listed: Vec<&str> = lines[2].trim_start_matches("features: ").split(", ").collect();
    assert_eq!(listed.iter().filter(|name| named.contains(*name)).count(), named.len(), "{long}");
    // A release build names its commit with the date: `0123abc (2026-02-14)`.
    let commit = lines[1].trim_start_matches("commit: ");
    let is_dated = commit.split_once(" (").is_some_and(|(hash, date)| {
        hash.chars().all(|digit| digit.is_ascii_hexdigit()) && date.len() == 11 && date.ends_with(')')
    });
    let is_release = !commit.starts_with("none (not a release build)");
    assert_eq!((is_release, is_dated || commit == "unknown"), (is_release, is_release), "{long}");
    assert_eq!(place.run_ok(&["-V"]).trim(), version);
}

#[test]
fn man_writes_a_page_per_command() {
    let place = TestProject::new();
    assert!(place.run_ok(&["man"]).contains(".TH rye 1"));
    let pages = place.run_ok(&["man", "pages"]);
    for page in ["rye.1", "rye-run.1", "rye-threads-list.1"] {
        assert!(pages.lines().any(|line| line == page), "{pages}");
        assert!(place.read(&format!("pages/{page}")).contains(".SH"), "{page}");
    }
}

#[test]
fn environment_variables_set_defaults_and_flags_override_them() {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    let elsewhere = TestProject::new();
    let run = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = elsewhere.command(words);
        command.env("RYE_PROJECT", place.project()).envs(variables.iter().copied());
        rye::ProcessResult::from(command.output().unwrap())
    };
    let plan = ["plan", "first", "--input", "topic=tea"];
    let done = run(&plan, &[("RYE_FORMAT", "json"), ("RYE_MODEL", "scripted/fast")]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let shown: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(shown.to_string().contains("scripted"), "{shown}");
    let done = run(&[&plan[..], &["--format", "plain"]].concat(), &[("RYE_FORMAT", "json")]);
    assert!(serde_json::from_str::<serde_json::Value>(&done.stdout).is_err(), "the flag wins");
    let wrong = run(&plan, &[("RYE_FORMAT", "nonsense")]);
    assert_eq!(wrong.code, Some(2));
    for empty in ["RYE_FORMAT", "RYE_COLOR", "RYE_MODEL"] {
        let done = run(&plan, &[(empty, "")]);
        assert_eq!(done.code, Some(0), "{empty}: {}", done.stderr);
    }
}

#[test]
fn log_is_printed_on_request() {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    let words = ["run", "first", "--input", "topic=tea"];
    place.run_ok(&["trust"]);
    assert!(!place.rye(&words).stderr.contains("event written"));
    let detailed = place.rye(&[&words[..], &["-vv"]].concat());
    assert!(detailed.stderr.contains("event written") && detailed.stderr.contains("thread="), "{}", detailed.stderr);
    let mut command = place.command(&words);
    let logged = rye::ProcessResult::from(command.env("RYE_LOG", "rye_engine=debug").output().unwrap());
    assert!(logged.stderr.contains("event written"), "{}", logged.stderr);
    let mut command = place.command(&words);
    let wrong = rye::ProcessResult::from(command.env("RYE_LOG", "rye=nonsense=x").output().unwrap());
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("`RYE_LOG` is not a valid filter"), "{}", wrong.stderr);
}

#[test]
fn missing_id_lists_the_directives_and_a_mistyped_command_has_a_suggestion() {
    let place = TestProject::own();
    for name in ["first", "second"] {
        place.write(&format!(".ai/directives/{name}.md"), &rye::talk_directive(1, ""));
    }
    for command in ["run", "plan"] {
        let refused = place.rye(&[command]);
        assert_eq!(refused.code, Some(2));
        assert!(refused.stderr.contains("directives of this project: first, second"), "{}", refused.stderr);
    }
    let refused = place.rye(&["rn"]);
    assert!(refused.stderr.contains("a similar subcommand exists: 'run'"), "{}", refused.stderr);
    let refused = place.rye(&["threads", "lit"]);
    assert!(refused.stderr.contains("'list'"), "{}", refused.stderr);
}

#[test]
fn narrow_terminal_leaves_out_the_directive_of_threads_and_folds_requirements() {
    let place = TestProject::own();
    let name = "a/directive/with/a/long/name";
    let text = rye::talk_directive(2, "<tool>team.*</tool>").replace("name=\"talk\"", "name=\"name\"");
    place.write(&format!(".ai/directives/{name}.md"), &text);
    place.write(".ai/tools/team/t.sh", "#!/bin/sh\n# rye: {description: Does nothing.}\n");
    place.write("script.yaml", "steps: [{ text: One. }]");
    place.rye(&["run", name, "--script", "script.yaml"]);
    let wide = place.run_ok(&["threads", "list"]);
    assert!(wide.contains("DIRECTIVE"), "{wide}");
    let width = wide.lines().map(|line| line.chars().count()).max().unwrap_or(0) - 1;
    let list = |width: usize, args: &[&str]| {
        let mut command = place.command(args);
        let done = command.env("COLUMNS", width.to_string()).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    let narrow = list(width, &["threads", "list"]);
    assert!(!narrow.contains("DIRECTIVE") && narrow.contains("STARTED"), "{narrow}");
    assert!(narrow.contains(name) && narrow.lines().all(|line| line.chars().count() <= width), "{narrow}");
    // A narrower terminal leaves out the turns, too.
    let needed = narrow.lines().map(|line| line.trim_end().chars().count()).max().unwrap();
    let narrower = list(needed - 1, &["threads", "list"]);
    assert!(!narrower.contains("TURNS") && narrower.contains("COST"), "{narrower}");
    assert!(narrower.lines().all(|line| line.chars().count() < needed), "{narrower}");
    let trusted = list(60, &["trust", "--list"]);
    assert!(trusted.lines().count() > 1 && trusted.lines().all(|line| line.chars().count() <= 60), "{trusted}");
}
