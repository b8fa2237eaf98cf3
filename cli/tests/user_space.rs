//! Tests of the user space and of the search for a project: `HOME` is a project only on request, and even then the keys
//! in it are protected. Each test uses its own home folder.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/acp.rs"]
mod acp;
#[path = "support/acp_schema.rs"]
mod acp_schema;
#[path = "support/rye.rs"]
mod rye;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use acp::AcpClient;
use rye::{ProcessResult, TestProject, talk_directive};
use serde_json::json;

const DIRECTIVE: &str = "Talks.\n\n```xml\n<directive name=\"talk\" version=\"1.0.0\">\n<metadata><description>Talk.</description>\
    <model provider=\"scripted\" tier=\"fast\"/><permissions><execute><tool>rye.file-system.*</tool></execute>\
    <fetch>*</fetch></permissions><nudge>never</nudge></metadata>\n</directive>\n```\n\nTalk.\n";

/// Environment variables that select the user space; each test sets all that it needs.
const NAMES: [&str; 3] = ["RYE_USER_SPACE", "USER_SPACE", "HOME"];

/// A folder with `home/` and other folders below it, in place of the file system root.
struct FakeMachine {
    folder: tempfile::TempDir,
}

impl FakeMachine {
    fn new() -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(machine.at("home/code/sub")).unwrap();
        machine
    }

    /// Creates a home folder with a key, items and a `.env`.
    fn with_user_space() -> Self {
        let machine = Self::new();
        machine.write("home/.ai/directives/talk.md", DIRECTIVE);
        machine.write("home/script.yaml", "steps:\n  - text: Hello.\n");
        machine.write("home/.env", "PLANTED_API_KEY=an-unusual-value-0123456789\n");
        let made = machine.rye("home", &[("HOME", "home")], &["keys", "generate"]);
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        assert!(machine.at("home/.ai/keys/private.pem").exists());
        machine
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Runs `rye` in a folder; only these variables select folders.
    fn rye(&self, folder: &str, variables: &[(&str, &str)], args: &[&str]) -> ProcessResult {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rye"));
        command.args(args).stdin(std::process::Stdio::null()).current_dir(self.at(folder));
        for name in NAMES {
            command.env_remove(name);
        }
        for (name, path) in variables {
            command.env(name, self.at(path));
        }
        ProcessResult::from(command.output().unwrap())
    }
}

fn assert_no_project(done: &ProcessResult, case: &str) {
    assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""), "{case}: {}", done.stderr);
    assert!(done.stderr.starts_with("error: no project found"), "{case}: {}", done.stderr);
    assert!(done.stderr.contains("`rye init`") && done.stderr.contains("--project"), "{case}: {}", done.stderr);
}

#[test]
fn search_for_a_project_never_chooses_the_user_space() {
    let machine = FakeMachine::with_user_space();
    fs::create_dir_all(machine.at("elsewhere/.ai")).unwrap();
    symlink(machine.at("home"), machine.at("link")).unwrap();
    symlink(machine.at("home/code"), machine.at("short")).unwrap();
    let cases: [&[(&str, &str)]; 7] = [
        &[("HOME", "home")],
        &[("HOME", "link")],
        &[("HOME", "home/code/..")],
        &[("RYE_USER_SPACE", "home")],
        &[("USER_SPACE", "link")],
        // Another variable selects the user space, and HOME is still no project.
        &[("RYE_USER_SPACE", "elsewhere"), ("HOME", "home")],
        &[("RYE_USER_SPACE", "home"), ("HOME", "elsewhere")],
    ];
    for variables in cases {
        for folder in ["home", "home/code", "home/code/sub", "link/code", "short/sub"] {
            for args in [&["run", "talk"][..], &["check"], &["lock"], &["threads", "list"], &["mcp", "serve"]] {
                assert_no_project(&machine.rye(folder, variables, args), &format!("{variables:?} {folder} {args:?}"));
            }
        }
        let stderr = machine.rye("home/code", variables, &["run", "talk"]).stderr;
        assert!(stderr.contains(&format!("--project {}`", machine.at("home").display())), "{stderr}");
    }
    assert!(!machine.at("home/.ai/state").exists(), "nothing ran");
}

#[test]
fn a_relative_home_names_no_project() {
    let machine = FakeMachine::with_user_space();
    for (folder, home) in [("home", "."), ("home/code", ".."), ("home/code/sub", "../../../home")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rye"));
        command.args(["run", "talk"]).current_dir(machine.at(folder)).env("HOME", home);
        command.env_remove("RYE_USER_SPACE").env_remove("USER_SPACE");
        assert_no_project(&ProcessResult::from(command.output().unwrap()), home);
    }
    // Without any variable the search ends at the account's real home folder. The folder `home` is then an ordinary
    // project, which is not trusted.
    machine.write("home/.ai/config/agent/hooks.yaml", "hooks:\n  - { id: h, event: thread_started, action: { primary: execute, item_type: tool, item_id: rye/bash/bash, params: { command: id } } }\n");
    let ran = machine.rye("home/code", &[], &["run", "talk", "--script", "../script.yaml"]);
    assert_eq!(ran.code, Some(5), "{}", ran.stderr);
}

#[test]
fn search_ends_at_the_user_space_and_finds_projects_below_it() {
    let machine = FakeMachine::with_user_space();
    // A project above HOME would contain all of HOME.
    fs::create_dir_all(machine.at(".ai/directives")).unwrap();
    fs::write(machine.at(".ai/directives/talk.md"), DIRECTIVE).unwrap();
    assert_no_project(&machine.rye("home/code", &[("HOME", "home")], &["check"]), "above");
    fs::remove_dir_all(machine.at("home/.ai")).unwrap();
    let above = machine.rye("home/code", &[("HOME", "home")], &["check"]);
    assert_no_project(&above, "above, without a user space");
    machine.write("home/code/.ai/directives/talk.md", DIRECTIVE);
    let found = machine.rye("home/code/sub", &[("HOME", "home")], &["check"]);
    assert_eq!(found.code, Some(0), "{}", found.stderr);
}

#[test]
fn project_is_printed_to_stderr_if_it_is_not_the_working_directory() {
    let machine = FakeMachine::with_user_space();
    machine.write("home/code/.ai/directives/talk.md", DIRECTIVE);
    let (home, project) = ([("HOME", "home")], machine.at("home/code"));
    let line = format!("project: {}\n", project.display());
    let script = machine.at("home/script.yaml");
    let run = ["run", "talk", "--script", script.to_str().unwrap()];
    let below = machine.rye("home/code/sub", &home, &run);
    assert_eq!(below.code, Some(0), "{}", below.stderr);
    assert!(below.stderr.starts_with(&line) && !below.stdout.contains("project:"), "{}", below.stderr);
    let named = machine.rye("home", &home, &[&run[..], &["--project", "code"]].concat());
    assert!(named.stderr.starts_with(&line), "{}", named.stderr);
    for args in [
        &["trust"][..],
        &["sign", "talk"],
        &["new", "knowledge", "made"],
        &["lock"],
        &["check"],
        &["plan", "talk"],
        &["fmt", "--check"],
        &["threads", "list"],
        &["why", "talk"],
        &["graph"],
        &["verify"],
        &["fetch", "directive", "talk"],
    ] {
        let done = machine.rye("home/code/sub", &home, args);
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.stderr);
        assert!(done.stderr.starts_with(&line), "{args:?}: {}", done.stderr);
    }
    for (folder, more) in [("home/code", &[][..]), ("home/code/sub", &["-q"]), ("home/code/sub", &["--format", "json"])]
    {
        let done = machine.rye(folder, &home, &[&run[..], more].concat());
        assert!(done.code == Some(0) && !done.stderr.contains("project:"), "{folder} {more:?}: {}", done.stderr);
    }
}

/// Runs `talk` in a project and returns its output, including events.
fn events(machine: &FakeMachine, project: &str, calls: &str) -> String {
    machine.write("script.yaml", &format!("steps:\n  - tool_calls:\n{calls}  - done\n"));
    let (project, script) = (machine.at(project), machine.at("script.yaml"));
    let args = [
        &["run", "talk", "--events", "--format", "json", "--unattended", "allow"][..],
        &["--project", project.to_str().unwrap(), "--script", script.to_str().unwrap()],
    ];
    let done = machine.rye("home/code", &[("HOME", "home")], &args.concat());
    assert_eq!(done.code, Some(0), "{}\n{}", done.stdout, done.stderr);
    done.stdout
}

fn call(tool: &str, input: &str) -> String {
    format!("      - {{ name: rye_{tool}, input: {input} }}\n")
}

#[test]
fn keys_and_trust_are_out_of_reach_if_home_is_the_project() {
    let machine = FakeMachine::with_user_space();
    machine.write("home/.ai/trust/x.json", "{\"a\": \"trust-record\"}");
    machine.write("home/notes.txt", "key an-unusual-value-0123456789 here");
    fs::hard_link(machine.at("home/.ai/keys/private.pem"), machine.at("home/hard.txt")).unwrap();
    symlink("../keys/private.pem", machine.at("home/.ai/").join("knowledge.md")).unwrap();
    fs::create_dir_all(machine.at("home/.ai/knowledge")).unwrap();
    symlink("../keys/private.pem", machine.at("home/.ai/knowledge/leak.md")).unwrap();
    let key = fs::read_to_string(machine.at("home/.ai/keys/private.pem")).unwrap();
    let calls = [
        call("file_system_read", "{ path: .ai/keys/private.pem }"),
        call("file_system_read", "{ path: hard.txt }"),
        call("file_system_read", "{ path: .ai/knowledge/leak.md }"),
        call("file_system_read", "{ path: .ai/trust/x.json }"),
        call("file_system_ls", "{ path: .ai/keys }"),
        call("file_system_write", "{ path: .ai/keys/trusted/evil.pem, content: x }"),
        call("file_system_write", "{ path: .ai/trust/evil.json, content: x }"),
        call("fetch", "{ item_type: knowledge, item_id: leak }"),
        call("file_system_read", "{ path: notes.txt }"),
        call("file_system_read", "{ path: .env }"),
    ];
    let recorded = events(&machine, "home", &calls.concat());
    for refused in [
        "`.ai/keys/private.pem` is hidden",
        "`hard.txt` is hidden",
        "`.ai/trust/x.json` is hidden",
        "`.ai/keys` is hidden",
        "`.ai/keys/trusted/evil.pem` is hidden",
        "`.ai/trust/evil.json` is hidden",
        "the file links to `.ai/keys/private.pem`",
    ] {
        assert!(recorded.contains(refused), "{refused}: {recorded}");
    }
    assert!(!machine.at("home/.ai/keys/trusted").exists() && !machine.at("home/.ai/trust/evil.json").exists());
    for secret in [key.lines().nth(1).unwrap(), "trust-record", "an-unusual-value-0123456789", "PRIVATE KEY"] {
        assert!(!recorded.contains(secret), "{secret}: {recorded}");
    }
    assert!(recorded.matches("[masked: PLANTED_API_KEY]").count() >= 2, "{recorded}");
    let home = machine.at("home");
    let fetched =
        machine.rye("home", &[("HOME", "home")], &["fetch", "knowledge", "leak", "--project", home.to_str().unwrap()]);
    assert!(
        fetched.code == Some(1) && fetched.stderr.contains("the file links to `.ai/keys/private.pem`"),
        "{}",
        fetched.stderr
    );
    assert!(!fetched.stdout.contains(key.lines().nth(1).unwrap()));
}

#[test]
fn keys_and_trust_are_out_of_reach_if_the_project_contains_the_user_space() {
    let machine = FakeMachine::with_user_space();
    // The user's `.ai` is a link into a folder of dotfiles, where it has another name.
    fs::rename(machine.at("home/.ai"), machine.at("home/ai")).unwrap();
    fs::create_dir(machine.at("home/dotfiles")).unwrap();
    fs::rename(machine.at("home/ai"), machine.at("home/dotfiles/ai")).unwrap();
    symlink("dotfiles/ai", machine.at("home/.ai")).unwrap();
    fs::hard_link(machine.at("home/dotfiles/ai/keys/private.pem"), machine.at("home/dotfiles/hard.txt")).unwrap();
    machine.write("home/dotfiles/.ai/directives/talk.md", DIRECTIVE);
    machine.write("home/dotfiles/readme.txt", "readable\n");
    machine.write(".ai/directives/talk.md", DIRECTIVE);
    let key = fs::read_to_string(machine.at("home/.ai/keys/private.pem")).unwrap();
    let secrets = |path: &str| {
        ["private.pem", "public.pem"]
            .map(|name| call("file_system_read", &format!("{{ path: {path}/{name} }}")))
            .concat()
    };
    let search = call("file_system_grep", "{ pattern: 'BEGIN|readable' }")
        + &call("file_system_glob", "{ pattern: '**/*.pem' }");
    for (project, path, hidden) in [
        ("home/dotfiles", "ai/keys", "ai"),
        ("", "home/.ai/keys", "home/dotfiles/ai"),
        ("", "home/dotfiles/ai/keys", "home/dotfiles/ai"),
    ] {
        let recorded = events(&machine, project, &(secrets(path) + &search));
        let refused = format!("`{hidden}` is hidden from tools");
        assert!(recorded.contains(&refused) && recorded.contains("readable"), "{project} {path}: {recorded}");
        assert!(
            !recorded.contains(key.lines().nth(1).unwrap()) && !recorded.contains("-----BEGIN"),
            "{project} {path}: {recorded}"
        );
        assert!(recorded.contains("[no file matches]"), "{project} {path}: {recorded}");
    }
}

#[test]
fn a_project_that_ships_links_as_keys_hides_nothing_of_others() {
    let machine = FakeMachine::with_user_space();
    machine.write("home/code/.ai/directives/talk.md", DIRECTIVE);
    machine.write("home/code/a.txt", "readable\n");
    symlink(Path::new(".."), machine.at("home/code/.ai/keys")).unwrap();
    symlink(Path::new("/"), machine.at("home/code/.ai/trust")).unwrap();
    let recorded = events(&machine, "home/code", &call("file_system_read", "{ path: a.txt }"));
    assert!(recorded.contains("readable"), "{recorded}");
}

const BASH_STEPS: &str =
    "steps:\n  - tool_calls:\n      - { name: rye_bash_bash, input: { command: 'echo ran > out/ran' } }\n  - done\n";

/// Runs a command of a project with these lines as stdin.
fn with_input(place: &TestProject, args: &[&str], lines: &str) -> ProcessResult {
    let mut command = place.command(args);
    let piped = std::process::Stdio::piped;
    let mut process = command.stdin(piped()).stdout(piped()).stderr(piped()).spawn().unwrap();
    // A process that refuses to start may not read its input.
    std::io::Write::write_all(&mut process.stdin.take().unwrap(), lines.as_bytes()).ok();
    ProcessResult::from(process.wait_with_output().unwrap())
}

#[test]
fn invalid_settings_of_the_user_refuse_runs_chats_editors_servers_and_stored_threads() {
    let place = TestProject::own();
    let tool = "<tool write=\"out/\">rye.bash.bash</tool>";
    place.write(".ai/directives/talk.md", &talk_directive(4, tool));
    place.write("script.yaml", BASH_STEPS);
    place.write("out/kept", "");
    let ran = place.project().join("out/ran");
    place.run_ok(&["trust"]);
    place.run_ok(&["run", "talk", "--script", "script.yaml"]);
    assert!(ran.exists());
    fs::remove_file(&ran).unwrap();
    let settings = place.user().join(".ai/config/agent");
    fs::create_dir_all(&settings).unwrap();
    let slips = [
        ("agent.yaml", "approvals: { headless: Deny }\n", "config::invalid"),
        ("agent.yaml", "limits: { max: { spnd: 1 } }\n", "item::unknown-key"),
        ("agent.yaml", "sandbox: bubblwrap\n", "config::invalid"),
        ("agents.yaml", "approvals: { headless: deny }\n", "config::unknown-file"),
    ];
    for (file, text, code) in slips {
        fs::write(settings.join(file), text).unwrap();
        let checked = place.rye(&["check"]);
        assert!(checked.code == Some(1) && checked.stderr.contains(code), "{text}: {}", checked.stderr);
        let mut client = AcpClient::start(&place);
        let refused = client.fail("session/new", json!({"cwd": client.cwd, "mcpServers": []}));
        assert!(refused.to_string().contains(code), "{text}: {refused}");
        client.end();
        let commands: [(&[&str], &str); 5] = [
            (&["run", "talk", "--script", "script.yaml"], ""),
            (&["chat", "talk", "--script", "script.yaml"], "hi\n"),
            (
                &["chat", "talk", "--script", "script.yaml", "--format", "json"],
                "{\"id\":1,\"type\":\"prompt\",\"message\":\"hi\"}\n",
            ),
            (&["mcp", "serve", "--directive", "talk"], ""),
            (&["threads", "resume", "--last", "--message", "again"], ""),
        ];
        for (args, input) in commands {
            let done = with_input(&place, args, input);
            let output = format!("{}{}", done.stdout, done.stderr);
            assert!(output.contains(code), "{text} {args:?}: {output}");
            assert_eq!(done.code, Some(1), "{text} {args:?}: {output}");
            assert!(!ran.exists(), "{text} {args:?}: the call ran");
        }
        fs::remove_file(settings.join(file)).unwrap();
    }
    place.run_ok(&["run", "talk", "--script", "script.yaml"]);
    assert!(ran.exists());
}

#[test]
fn variable_that_names_no_user_space_is_an_error_with_the_fix() {
    let machine = FakeMachine::with_user_space();
    machine.write("home/code/.ai/directives/talk.md", DIRECTIVE);
    fs::create_dir_all(machine.at("empty")).unwrap();
    for (variable, named, fix) in [
        ("RYE_USER_SPACE", "absent", "create the folder"),
        ("RYE_USER_SPACE", "home/.ai", "name the folder that contains `.ai`"),
        ("USER_SPACE", "~/home", "create the folder"),
    ] {
        for args in [&["run", "talk"][..], &["chat"], &["check"], &["trust", "--list"], &["keys", "list"], &["doctor"]]
        {
            let done = machine.rye("home/code", &[(variable, named)], args);
            let output = &done.stderr;
            assert_eq!(done.code, Some(2), "{named} {args:?}: {output}");
            assert!(output.contains(variable) && output.contains(fix), "{named} {args:?}: {output}");
        }
    }
    let done = machine.rye("home/code", &[("RYE_USER_SPACE", "empty")], &["check"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
}
