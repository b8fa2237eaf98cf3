//! Tests of `rye doctor`: findings with their fixes, and no secret in the output.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::TestProject;
use serde_json::Value;

fn about<'v>(output: &'v Value, about: &str) -> Vec<&'v Value> {
    output["findings"].as_array().unwrap().iter().filter(|finding| finding["about"] == about).collect()
}

#[test]
fn valid_project_has_no_problems_and_lists_sandboxes() {
    let place = TestProject::example("deploy");
    let (code, doctor) = place.json(&["doctor"]);
    assert_eq!(code, Some(0), "{doctor}");
    for word in ["version", "spaces", "provider", "keys", "signing", "trust", "sandbox", "store", "project"] {
        assert!(!about(&doctor, word).is_empty(), "{word}");
    }
    assert!(
        about(&doctor, "trust")[0]["text"].as_str().unwrap().ends_with("all trusted"),
        "the example came with this program"
    );
    let sandboxes = doctor["sandboxes"].as_array().unwrap();
    let kind = |tool: &str| sandboxes.iter().find(|sandbox| sandbox["tool"] == tool).unwrap()["kind"].clone();
    assert_eq!(kind("rye/bash/bash"), "process");
    assert_eq!(kind("rye/file-system/read"), "files");
    assert_eq!(kind("project/deploy/rollout (project)"), "process");
    let report = place.run_ok(&["doctor"]);
    assert!(report.contains("rye/bash/bash") && report.contains("your key is"), "{report}");
    // Each sandbox is described once, followed by its tools.
    let mut texts: Vec<&str> = sandboxes.iter().map(|sandbox| sandbox["text"].as_str().unwrap()).collect();
    texts.sort_unstable();
    texts.dedup();
    assert!(texts.len() < sandboxes.len() && texts.iter().all(|text| report.matches(text).count() == 1), "{report}");
    std::fs::remove_dir_all(place.user().join(".ai/keys")).unwrap();
    let report = place.run_ok(&["doctor"]);
    assert!(report.contains("fix: create a key with `rye keys generate`"), "{report}");
}

#[test]
fn each_runtime_is_started_in_the_sandbox() {
    let place = TestProject::new();
    place.run_ok(&["init"]);
    let folder = place.project().join("bin");
    // Programs that a sandboxed tool would start: one runs, one cannot be read, one fails.
    let script = |name: &str, text: &str| {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(name), text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.join(name), mode).unwrap();
    };
    script("python3", "#!/bin/sh\necho 9.9.9\n");
    script("node", "#!/bin/sh\ncat \"$HOME/.ai/keys/private.pem\"\n");
    place.run_ok(&["keys", "generate"]);
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let mut command = place.command(&["doctor", "--format", "json"]);
    let output = command.env("PATH", path).env("HOME", place.user()).output().unwrap();
    let doctor: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runtimes = about(&doctor, "runtime");
    let found = |program: &str| {
        let named = |one: &&&Value| one["text"].as_str().unwrap().starts_with(&format!("`{program}`"));
        runtimes.iter().find(named).unwrap_or_else(|| panic!("{program}: {doctor}"))
    };
    assert_eq!(
        (&found("python3")["state"], &found("python3")["text"]),
        (&serde_json::json!("fine"), &serde_json::json!("`python3` runs in the sandbox: 9.9.9"))
    );
    assert_eq!(found("bash")["state"], "fine", "{doctor}");
    let node = found("node");
    assert!(node["state"] == "note" && node["text"].as_str().unwrap().contains("Permission denied"), "{node}");
    let mut command = place.command(&["doctor", "--format", "json"]);
    let output = command.env("PATH", "/nowhere").output().unwrap();
    let doctor: Value = serde_json::from_slice(&output.stdout).unwrap();
    let missing = about(&doctor, "runtime");
    assert!(missing.iter().all(|one| one["state"] == "note" && one["fix"].is_string()), "{missing:?}");
    assert!(
        missing.iter().any(|one| one["text"] == "`python3` is not in `PATH`: Python tools cannot run"),
        "{missing:?}"
    );
}

#[test]
fn problems_have_fixes_and_no_secrets() {
    let place = TestProject::new();
    place.run_ok(&["init"]);
    place.run_ok(&["keys", "generate"]);
    place.write(".ai/tools/mine.yaml", "description: Mine.\nkind: command\ncommand: [ls]\n");
    place.write(".ai/directives/broken.md", "no directive\n");
    let output = place.command(&["doctor", "--format", "json"]).env("OPENAI_API_KEY", "sk-secret").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("sk-secret"));
    assert_eq!(output.status.code(), Some(1), "{text}");
    let doctor: Value = serde_json::from_str(&text).unwrap();
    assert!(about(&doctor, "provider").iter().any(|f| f["text"] == "openai: `OPENAI_API_KEY` is set"));
    let missing =
        about(&doctor, "provider").into_iter().find(|f| f["text"].as_str().unwrap().starts_with("anthropic")).unwrap();
    assert!(missing["fix"].as_str().unwrap().starts_with("export ANTHROPIC_API_KEY="));
    assert_eq!(about(&doctor, "trust")[0]["state"], "note");
    assert_eq!(about(&doctor, "project")[0]["state"], "wrong");
}

#[test]
fn programs_and_folders_that_do_not_exist_are_reported() {
    let place = TestProject::new();
    let tool = |program: &str| format!("description: Mine.\nkind: command\ncommand: [\"{program}\"]\n");
    for (name, program) in [
        ("slip", "./scripts/bulid.sh"),
        ("right", "scripts/build.sh"),
        ("later", "{program}"),
        ("shell", "sh"),
        ("none", "no-such-program"),
    ] {
        place.write(&format!(".ai/tools/{name}.yaml"), &tool(program));
    }
    place.write("scripts/build.sh", "true\n");
    place.write("output/a.txt", "a\n");
    place.write(
        ".ai/directives/d.md",
        "```xml\n<directive name=\"d\"><metadata><permissions><execute><tool write=\"ouput/,new/,output/\">rye.file-system.write</tool>\
         </execute></permissions></metadata></directive>\n```\n\nWrite.\n",
    );
    let (code, doctor) = place.json(&["doctor"]);
    assert_eq!(code, Some(1), "{doctor}");
    let mut found: Vec<String> = about(&doctor, "places")
        .iter()
        .map(|finding| format!("{} {} {}", finding["state"], finding["text"], finding["fix"]).replace(['"', '\\'], ""))
        .collect();
    found.sort();
    assert_eq!(
        found,
        [
            "note `d` grants writes to `ouput/`, which does not exist did you mean `output`?",
            "note the program `no-such-program` of the tool `none` is not in `PATH` null",
            "wrong the program `./scripts/bulid.sh` of the tool `slip` does not exist did you mean `scripts/build.sh`?",
        ]
    );
}

#[test]
fn commands_without_a_project_use_the_user_space() {
    let place = TestProject::new();
    let (_, found) = place.json(&["doctor"]);
    let findings = found["findings"].as_array().unwrap();
    let is_note = |one: &serde_json::Value| one["about"] == "spaces" && one["state"] == "note";
    assert!(findings.iter().any(is_note), "{found}");
    let (code, listed) = place.json(&["providers", "list"]);
    assert_eq!(code, Some(0));
    assert!(listed["providers"].as_array().unwrap().iter().any(|one| one["id"] == "anthropic"), "{listed}");
    assert!(!place.project().join(".ai").exists(), "nothing is written");
}

#[test]
fn typescript_tools_are_reported_before_their_first_call_if_node_is_too_old() {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &rye::talk_directive(1, ""));
    let programs = tempfile::tempdir().unwrap();
    let node = programs.path().join("node");
    std::fs::write(&node, "#!/bin/sh\necho v20.20.2\n").unwrap();
    std::fs::set_permissions(&node, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let rye = |args: &[&str]| {
        let mut path = vec![programs.path().to_owned()];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
        let mut command = place.command(args);
        let done = command.env("PATH", std::env::join_paths(path).unwrap()).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr))
    };
    let problem = "TypeScript tools need node 22.13 or newer; `node` is v20.20.2";
    assert!(!rye(&["check"]).contains("TypeScript"));
    assert!(rye(&["new", "tool", "team/t", "--language", "typescript"]).contains(problem));
    assert!(rye(&["check"]).contains(&format!("{problem}: `team/t` cannot run on this machine")));
}

#[test]
fn home_that_is_no_folder_is_named() {
    let place = TestProject::new();
    place.run_ok(&["init"]);
    let mut command = place.command(&["doctor", "--format", "json"]);
    command.env_remove("RYE_USER_SPACE").env_remove("USER_SPACE").env("HOME", "/no/such/home");
    let doctor: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    let texts: Vec<&str> = about(&doctor, "spaces").iter().filter_map(|finding| finding["text"].as_str()).collect();
    assert!(texts.iter().any(|text| text.contains("`HOME` names `/no/such/home`, which is not a folder")), "{texts:?}");
}

#[test]
fn env_file_that_other_users_can_read_is_reported() {
    let place = TestProject::new();
    place.run_ok(&["init"]);
    place.run_ok(&["keys", "generate"]);
    let file = place.user().join(".env");
    std::fs::write(&file, "OPENAI_API_KEY=k\n").unwrap();
    for (mode, is_reported) in [(0o644, true), (0o600, false)] {
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        let report = place.rye(&["doctor"]).stdout;
        assert!(report.contains("openai: `OPENAI_API_KEY` is set"), "{report}");
        assert_eq!(report.contains("your `.env` has the mode 644: other users"), is_reported, "{report}");
        assert_eq!(report.contains("fix: run `chmod 600` on `.env` of your user space"), is_reported, "{report}");
    }
}
