//! Tests of shell completion, with the requests that shells send.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::TestProject;

/// Returns the candidates for the last word.
fn offered(place: &TestProject, words: &[&str]) -> Vec<String> {
    let mut command = place.command(&[&["--", "rye"], words].concat());
    let done = rye::ProcessResult::from(command.env("RYE_COMPLETE", "fish").output().unwrap());
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{words:?}");
    done.stdout.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

#[test]
fn ids_of_directives_items_threads_and_codes_are_offered() {
    let place = TestProject::example("deploy");
    for command in
        [&["plan"][..], &["run"], &["lock"], &["assert"], &["graph"], &["check"], &["fmt"], &["why", "x", "--of"]]
    {
        let found = offered(&place, &[command, &["deploy_st"]].concat());
        assert_eq!(found, ["deploy_staging"], "{command:?}");
    }
    // Ids of the project come first, those of the standard library last.
    let all = offered(&place, &["plan", ""]);
    let at = |id: &str| all.iter().position(|found| found == id).unwrap();
    assert!(at("deploy_staging") < at("rye/agent/core/base"), "{all:?}");
    assert_eq!(offered(&place, &["fetch", "tool", "rye/file-system/re"]), ["rye/file-system/read"]);
    assert_eq!(offered(&place, &["fetch", "knowledge", "rye/file-system/re"]), Vec::<String>::new());
    assert_eq!(offered(&place, &["why", "limit.sp"]), ["limit.spend", "limit.spawns"]);
    assert_eq!(offered(&place, &["explain", "extends::c"]), ["extends::cycle"]);
    assert_eq!(offered(&place, &["check", "--allow", "hook::al"]), ["hook::always"]);
    assert_eq!(offered(&place, &["providers", "test", "anth"]), ["anthropic"]);
    assert!(offered(&place, &["new", "tool", "deploy"]).is_empty());
}

#[test]
fn thread_ids_are_completed_for_the_selected_project() {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    place.run_ok(&["run", "first", "--input", "topic=tea", "--quiet"]);
    let (_, listed) = place.json(&["threads", "list"]);
    let thread = listed["threads"][0]["thread_id"].as_str().unwrap();
    assert_eq!(offered(&place, &["threads", "show", "fir"]), [thread]);
    // A finished run is no session, and its export is no part of a plan.
    assert_eq!(offered(&place, &["chat", "--resume", "fir"]), Vec::<String>::new());
    assert!(offered(&place, &["fetch", "knowledge", "agent/threads/"]).iter().any(|id| id.ends_with(thread)));
    assert_eq!(offered(&place, &["why", "agent/threads/"]), Vec::<String>::new());
    let project = place.project();
    let away = TestProject::own();
    assert!(offered(&away, &["plan", "fir"]).is_empty());
    assert_eq!(offered(&away, &["--project", project.to_str().unwrap(), "plan", "fir"]), ["first"]);
}

/// Runs the completion script in bash.
#[test]
fn bash_script_calls_this_binary() {
    let place = TestProject::example("deploy");
    let script = "source <(rye completions bash); COMP_WORDS=(rye plan deploy_s); COMP_CWORD=2; COMP_TYPE=9; \
                  _clap_complete_rye rye deploy_s plan; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_rye")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let completion = std::process::Command::new("bash")
        .args(["--norc", "-c", script])
        .current_dir(place.project())
        .env("PATH", path)
        .env("RYE_USER_SPACE", place.user())
        .output()
        .unwrap();
    let completion = String::from_utf8(completion.stdout).unwrap();
    assert!(completion.trim().starts_with("deploy_staging"), "{completion:?}");
}

#[test]
fn bash_completes_words_with_colons_and_equals_signs() {
    let place = TestProject::example("deploy");
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_rye")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    for (words, current, wanted) in [
        ("rye explain hook :: alw", "alw", "always"),
        ("rye explain hook ::", "::", "always"),
        ("rye plan deploy_staging --limit = tur", "tur", "turns="),
        ("rye plan deploy_staging --input serv", "serv", "service="),
    ] {
        let index = words.split(' ').count() - 1;
        let script = format!(
            "source <(rye completions bash); COMP_WORDS=({words}); COMP_CWORD={index}; COMP_TYPE=9; \
             _clap_complete_rye rye '{current}' x; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let mut bash = std::process::Command::new("bash");
        bash.args(["--norc", "-c", &script]).current_dir(place.project());
        let done = bash.env("PATH", &path).env("RYE_USER_SPACE", place.user()).output().unwrap();
        let completion = String::from_utf8(done.stdout).unwrap();
        assert!(completion.lines().any(|line| line.trim() == wanted), "{words}: {completion:?}");
    }
}

#[test]
fn models_limits_and_inputs_are_offered() {
    let place = TestProject::example("deploy");
    assert_eq!(offered(&place, &["plan", "deploy_staging", "--limit", "sp"]), ["spend=", "spawns="]);
    assert_eq!(offered(&place, &["run", "deploy_staging", "--input", "serv"]), ["service="]);
    assert_eq!(offered(&place, &["plan", "deploy_staging", "--model", "scripted/"]), ["scripted/scripted"]);
    assert!(offered(&place, &["plan", "deploy_staging", "--model", "fas"]).contains(&"fast".to_owned()));
}

#[test]
fn unsupported_shell_is_rejected() {
    let place = TestProject::own();
    let done = rye::ProcessResult::from(place.command(&["check"]).env("RYE_COMPLETE", "nonsense").output().unwrap());
    assert_eq!(done.code, Some(2));
    assert!(!done.stderr.is_empty());
}
