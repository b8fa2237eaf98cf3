//! Tests of `sandbox: bubblewrap`: used if requested and installed, printed by plan and doctor, and reported before
//! anything runs if missing.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::os::unix::fs::PermissionsExt;

use rye::{ProcessResult, TestProject};

fn place() -> TestProject {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    place.write(
        ".ai/directives/shell.md",
        "# Shell\n\n```xml\n<directive name=\"shell\" version=\"1.0.0\">\n<metadata>\n<model provider=\"scripted\" tier=\"fast\"/>\n\
         <permissions><execute><tool write=\"out/\">rye.bash.bash</tool></execute><acknowledge risk=\"elevated\">t</acknowledge></permissions>\n\
         <nudge>never</nudge>\n</metadata>\n</directive>\n```\n\nRun it.\n",
    );
    place.write(
        "script.yaml",
        "steps:\n  - tool_calls: [{ name: rye_bash_bash, input: { command: 'echo in > out/file; chmod 600 script.yaml || true' } }]\n  - done\n",
    );
    place.write("../user/.ai/config/agent/agent.yaml", "sandbox: bubblewrap\n");
    place
}

/// Runs `rye` with this `PATH`.
fn run(place: &TestProject, arguments: &[&str], path: &str) -> ProcessResult {
    let mut command = place.command(arguments);
    ProcessResult::from(command.env("PATH", path).output().unwrap())
}

/// Returns a folder of links to the system's programs, without bubblewrap.
fn programs(place: &TestProject) -> String {
    let folder = place.project().join("../bin");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["bash", "sh", "chmod", "cat", "true"] {
        let found = ["/usr/bin", "/bin"].map(|from| std::path::Path::new(from).join(name));
        let found = found.iter().find(|program| program.exists()).unwrap().canonicalize().unwrap();
        std::os::unix::fs::symlink(found, folder.join(name)).unwrap();
    }
    folder.canonicalize().unwrap().display().to_string()
}

#[test]
fn missing_bubblewrap_fails_before_the_run() {
    let place = place();
    let path = programs(&place);
    let refused = run(&place, &["run", "shell"], &path);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("`bwrap` is not in `PATH`"), "{}", refused.stderr);
    assert!(!place.project().join("out").exists());
    let doctor = run(&place, &["doctor", "--format", "plain"], &path).stdout;
    assert!(doctor.contains("wrong\tsandbox\t`sandbox: bubblewrap` is set, but `bwrap` is not in `PATH`"), "{doctor}");
    // A program of the project is not used.
    place.write("bin/bwrap", "#!/bin/sh\ntouch pwned\n");
    let own = place.project().join("bin");
    std::fs::set_permissions(own.join("bwrap"), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(run(&place, &["run", "shell"], &format!("{}:{path}", own.display())).code, Some(1));
    assert!(!place.project().join("pwned").exists());
}

#[test]
fn programs_run_in_bubblewrap() {
    let place = place();
    let path = programs(&place);
    // The fake records its arguments and runs the program.
    let (fake, calls) = (format!("{path}/bwrap"), place.user().join("calls"));
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> '{}'\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n",
        calls.display()
    );
    std::fs::write(&fake, script).unwrap();
    std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ran = run(&place, &["run", "shell"], &path);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(place.read("out/file"), "in\n", "{}", ran.stderr);
    let called = std::fs::read_to_string(&calls).unwrap();
    let out = place.project().join("out").canonicalize().unwrap();
    assert!(called.contains(&format!("--bind {0} {0}", out.display())), "{called}");
    assert!(called.contains("--ro-bind / /") && called.contains("--unshare-net"), "{called}");
    assert!(place.run_ok(&["plan", "shell"]).contains("in bubblewrap"));
    let doctor = run(&place, &["doctor", "--format", "plain"], &path).stdout;
    assert!(doctor.contains("Landlock") && doctor.contains(&format!("within bubblewrap ({path}/bwrap)")), "{doctor}");
    // A project can request bubblewrap, but cannot disable it.
    place.write(".ai/config/agent/agent.yaml", "sandbox: landlock\n");
    assert!(place.run_ok(&["plan", "shell"]).contains("in bubblewrap"));
}

#[test]
fn refusal_of_the_sandbox_is_named_to_the_model_and_to_the_user() {
    let place = TestProject::own();
    place.write(
        ".ai/directives/shell.md",
        "# Shell\n\n```xml\n<directive name=\"shell\" version=\"1.0.0\">\n<metadata><description>Run.</description>\
         <model provider=\"scripted\" tier=\"fast\"/><permissions><execute><tool>rye.bash.bash</tool></execute>\
         <acknowledge risk=\"elevated\">t</acknowledge></permissions>\n\
         <nudge>never</nudge>\n</metadata>\n</directive>\n```\n\nRun it.\n",
    );
    place.write("out/kept", "");
    let call = |command: &str| {
        format!("steps:\n  - tool_calls: [{{ name: rye_bash_bash, input: {{ command: \"{command}\" }} }}]\n  - done\n")
    };
    let write = "blocked by the sandbox: writing `out/file` needs `write=\"out/\"` in the grant of this tool";
    let host = "blocked by the sandbox: the network needs `net=\"HOST\"` in the grant of this tool";
    for (command, refusal) in
        [("LC_ALL=C touch out/file", write), ("echo 'Could not resolve host: example.test'; exit 6", host)]
    {
        place.write("script.yaml", &call(command));
        for format in ["human", "plain"] {
            let done = place.rye(&["run", "shell", "--script", "script.yaml", "--format", format]);
            assert!(done.stderr.contains(refusal), "{format}: {}\n{}", done.stdout, done.stderr);
            assert_eq!(done.stderr.matches("blocked by the sandbox").count(), 1, "{format}: {}", done.stderr);
        }
        let (_, result) = place.json(&["run", "shell", "--script", "script.yaml"]);
        let transcript = place.transcript(result["thread_id"].as_str().unwrap());
        let answer = transcript.iter().find(|event| event["type"] == "tool_call_result").unwrap();
        assert!(answer["content"].as_str().unwrap().contains(refusal), "{answer}");
    }
}
