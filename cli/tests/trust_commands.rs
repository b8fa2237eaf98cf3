//! Tests of trust in the files that a command names: a changed file needs trust again, in every spelling of its path.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::TestProject;
use serde_json::{Value, json};

const DIRECTIVE: &str = "# Act\n\n```xml\n<directive name=\"act\" version=\"1.0.0\">\n<metadata><description>Act.</description>\
    <model tier=\"fast\" provider=\"scripted\"/><permissions><execute><tool>mine</tool></execute>\
    <acknowledge risk=\"elevated\">tested</acknowledge></permissions></metadata>\n</directive>\n```\n\nAct.\n";
const RUN: [&str; 4] = ["run", "act", "--script", "../script.yaml"];

/// Returns a project with a tool that runs this command, and a script that calls the tool once.
fn place(command: &Value, parameters: &Value) -> TestProject {
    let place = TestProject::new();
    place.write(".ai/directives/act.md", DIRECTIVE);
    let names: serde_json::Map<String, Value> =
        parameters.as_object().unwrap().keys().map(|name| (name.clone(), json!({"type": "string"}))).collect();
    let tool = json!({"description": "Mine.", "kind": "command", "command": command,
        "parameters": {"type": "object", "properties": names}});
    place.write(".ai/tools/mine.yaml", &tool.to_string());
    place.write("scripts/x.sh", "echo ran-it\n");
    place.write("scripts/x.py", "print('ran-it')\n");
    let script = json!({"steps": [{"tool_calls": [{"name": "mine", "input": parameters}]}, {"text": "Done."}]});
    place.write("../script.yaml", &script.to_string());
    place
}

fn answer(place: &TestProject, ran: &Value) -> String {
    place.run_ok(&["threads", "transcript", ran["thread_id"].as_str().unwrap(), "--json"])
}

#[test]
fn changed_file_asks_again_in_every_spelling() {
    let none = json!({});
    let text = |text: &str| json!(["sh", "-c", text]);
    let rows = [
        (json!(["bash", "scripts/x.sh"]), none.clone()),
        (json!(["bash", "./scripts/../scripts/x.sh"]), none.clone()),
        (json!(["bash", "{project_path}/scripts/x.sh"]), none.clone()),
        (json!(["bash", "scripts/{n}.sh"]), json!({"n": "x"})),
        (json!(["bash", "{folder}/x.sh"]), json!({"folder": "scripts"})),
        (json!(["bash", "{script}"]), json!({"script": "scripts/x.sh"})),
        (json!(["env", "bash", "{script}"]), json!({"script": "scripts/x.sh"})),
        (json!(["python3", "scripts/x.py"]), none.clone()),
        (json!(["python3", "-m", "scripts.x"]), none.clone()),
        (text("bash scripts/x.sh"), none.clone()),
        (text("true&&bash scripts/x.sh"), none.clone()),
        (text("true\t;bash\tscripts/x.sh"), none.clone()),
        (text("bash 'scripts/x.sh'"), none.clone()),
        (text("bash \"scripts\"/x.sh"), none.clone()),
        (text("bash scripts\\/x.sh"), none.clone()),
        (text("bash<scripts/x.sh"), none.clone()),
        (text("cat scripts/x.sh|bash"), none.clone()),
        (text("bash scripts/*.sh"), none.clone()),
        (text("bash scripts/?.sh"), none.clone()),
        (text("cd scripts && bash x.sh"), none.clone()),
        (text("bash $(dirname scripts/x.sh)/x.sh"), none.clone()),
        (text("D=scripts; bash $D/x.sh"), none.clone()),
        (text("bash -c \"bash -c 'bash scripts/x.sh'\""), none.clone()),
        (text("bash {script}"), json!({"script": "scripts/x.sh"})),
        (json!(["sh", "-c", "bash \"$1\"", "sh", "{script}"]), json!({"script": "scripts/x.sh"})),
        // The variable is complete only at the call.
        (text("PATH=$PWD/scripts:$PATH bash x.sh"), none.clone()),
        // Code for other programs than a shell.
        (json!(["awk", "BEGIN{{system(\"bash scr\" \"ipts/x.sh\")}}"]), none.clone()),
        (text("echo a | sed 's/a/bash scr\"\"ipts\\/x.sh/e'"), none.clone()),
        (json!(["git", "-c", "alias.z=!bash scr''ipts/x.sh", "z"]), none.clone()),
    ];
    for (command, parameters) in rows {
        let place = place(&command, &parameters);
        assert_eq!(place.rye(&RUN).code, Some(5), "{command}: not trusted yet");
        place.run_ok(&["trust"]);
        let (code, ran) = place.json(&RUN);
        assert_eq!(code, Some(0), "{command}: {ran}");
        assert!(answer(&place, &ran).contains("ran-it"), "{command}: the tool does not run the file");
        place.write("scripts/x.sh", "echo changed\n");
        place.write("scripts/x.py", "print('changed')\n");
        let refused = place.rye(&RUN);
        assert_eq!(refused.code, Some(5), "{command}: {}\n{}", refused.stdout, refused.stderr);
    }
}

#[test]
fn changed_module_of_a_script_asks_again() {
    let scripts = [
        (
            "mine.py",
            "__tool_description__ = 'Mine.'\nimport helper\n\ndef execute(params):\n    return helper.value()\n",
            "helper.py",
            "def value():\n    return 'ran-it'\n",
        ),
        ("mine.sh", "# rye: { description: Mine. }\n. .ai/tools/helper.sh\n", "helper.sh", "echo ran-it\n"),
    ];
    for (tool, text, helper, code) in scripts {
        let place = place(&json!([]), &json!({}));
        std::fs::remove_file(place.project().join(".ai/tools/mine.yaml")).unwrap();
        place.write(&format!(".ai/tools/{tool}"), text);
        place.write(&format!(".ai/tools/{helper}"), code);
        place.run_ok(&["trust"]);
        let (exit, ran) = place.json(&RUN);
        assert!(exit == Some(0) && answer(&place, &ran).contains("ran-it"), "{tool}: {ran}");
        place.write(&format!(".ai/tools/{helper}"), &code.replace("ran-it", "changed"));
        assert_eq!(place.rye(&RUN).code, Some(5), "{tool}: the changed module is not trusted yet");
        place.run_ok(&["trust"]);
        assert_eq!(place.json(&RUN).0, Some(0), "{tool}");
    }
}

#[test]
fn script_that_computes_a_program_is_trusted_with_the_project_and_the_question_says_why() {
    let place = place(&json!([]), &json!({}));
    std::fs::remove_file(place.project().join(".ai/tools/mine.yaml")).unwrap();
    let start = "import subprocess\n\ndef execute(params):\n    return subprocess.run(command, capture_output=True)\n";
    place.write(".ai/tools/mine.py", &format!("__tool_description__ = 'Mine.'\ncommand = ['true']\n{start}"));
    let why = "covers every file of the project (except the data of git and of `rye`), because `.ai/tools/mine.py` starts a program or loads a file whose name \
               is computed";
    let refused = place.rye(&RUN);
    let shown = refused.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(refused.code == Some(5) && shown.contains(why), "{shown}");
    place.run_ok(&["trust"]);
    // The export of the first run is no file that the script could load.
    assert_eq!((place.json(&RUN).0, place.json(&RUN).0), (Some(0), Some(0)));
    place.write("notes.txt", "new\n");
    let refused = place.rye(&RUN);
    let shown = refused.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(refused.code, Some(5), "a new file of the project is not trusted yet");
    assert!(shown.contains("; changed since it was trusted: `notes.txt`; `needs: { write_only:"), "{shown}");
    let (_, listed) = place.json(&["trust", "--list"]);
    let tool = listed["requirements"].as_array().unwrap().iter().find(|one| one["kind"] == "tool").unwrap();
    assert!(tool["what"].as_str().unwrap().contains(why), "{tool}");
}

/// A tool that writes a report, and starts a program whose name it computes.
const REPORTER: &str = "import subprocess\n\n__tool_description__ = 'Mine.'\n__needs__ = {'NEED': ['reports/']}\n\
CONFIG_SCHEMA = {'properties': {'script': {'type': 'string'}}}\n\n\n\
def execute(params):\n    with open('reports/report.txt', 'a') as report:\n        report.write('one\\n')\n    \
done = subprocess.run(['bash', params['script']], capture_output=True, text=True)\n    return done.stdout + done.stderr\n";

#[test]
fn report_in_a_write_only_folder_keeps_the_trust_and_is_never_executed() {
    for (need, keeps) in [("write_only", true), ("write", false)] {
        let place = place(&json!([]), &json!({"script": "reports/report.txt"}));
        std::fs::remove_file(place.project().join(".ai/tools/mine.yaml")).unwrap();
        place.write(".ai/directives/act.md", &DIRECTIVE.replace("<tool>", "<tool write=\"reports/\">"));
        place.write(".ai/tools/mine.py", &REPORTER.replace("NEED", need));
        place.write("reports/old.txt", "1\n");
        place.run_ok(&["trust"]);
        let (code, ran) = place.json(&RUN);
        assert_eq!(code, Some(0), "{ran}");
        let answered = answer(&place, &ran);
        assert!(answered.contains("one: command not found") != keeps, "{answered}");
        assert_eq!(place.read("reports/report.txt"), "one\n", "{answered}");
        // With `write`, the report could be the program of the next call.
        assert_eq!(place.rye(&RUN).code, Some(if keeps { 0 } else { 5 }), "{need}");
        if !keeps {
            // The error of a second call in a run names the report.
            place.run_ok(&["trust"]);
            let call = json!({"tool_calls": [{"name": "mine", "input": {"script": "notes.txt"}}]});
            place.write("../script.yaml", &json!({"steps": [call, call, {"text": "Done."}]}).to_string());
            let (_, ran) = place.json(&RUN);
            let answer = answer(&place, &ran);
            assert!(answer.contains("(changed since then: `reports/report.txt`)"), "{answer}");
            continue;
        }
        // A model that writes code into the folder gets no program executed, although no trust is missing.
        place.write("reports/report.txt", "echo ran-it\n");
        let (code, ran) = place.json(&RUN);
        let answer = answer(&place, &ran);
        assert!(code == Some(0) && answer.contains("Permission denied"), "{answer}");
        assert!(!answer.contains("ran-it\\n") && place.read("reports/report.txt").ends_with("one\n"), "{answer}");
        let listed = place.run_ok(&["trust", "--list"]);
        assert!(listed.contains("cannot read `reports/`"), "{listed}");
        // The rest of the project stays covered, and so does a second name of a file in the folder.
        std::fs::hard_link(place.project().join("reports/report.txt"), place.project().join("second")).unwrap();
        assert_eq!(place.rye(&RUN).code, Some(5));
        std::fs::remove_file(place.project().join("second")).unwrap();
        assert_eq!(place.rye(&RUN).code, Some(0));
        // A link in place of the folder leads to files that the program can read.
        std::fs::rename(place.project().join("reports"), place.project().join("other")).unwrap();
        std::os::unix::fs::symlink("other", place.project().join("reports")).unwrap();
        assert_eq!(place.rye(&RUN).code, Some(5));
    }
}

#[test]
fn value_of_a_call_names_only_trusted_files() {
    let place = place(&json!(["bash", "scripts/{n}.sh"]), &json!({"n": "../late"}));
    place.run_ok(&["trust"]);
    place.write("late.sh", "echo ran-late\n");
    let (code, ran) = place.json(&RUN);
    assert_eq!(code, Some(0), "{ran}");
    let answer = answer(&place, &ran);
    assert!(
        answer.contains("has not trusted the current version of the project tool `mine`")
            && !answer.contains("ran-late"),
        "{answer}"
    );
}

#[test]
fn listing_says_which_folders_are_trusted_as_a_whole() {
    for (command, says) in [
        (json!(["bash", "scripts/{n}.sh"]), "trusting every file of `scripts/`"),
        (json!(["bash", "{n}"]), "trusting every file of the project"),
    ] {
        let listed = place(&command, &json!({"n": "x"})).run_ok(&["trust", "--list"]);
        assert!(listed.contains(says), "{listed}");
    }
}

#[test]
fn files_that_a_call_reads_or_writes_need_no_trust() {
    for command in [json!(["wc", "-c", "{path}"]), json!(["tee", "{path}"]), json!(["bash", "scripts/x.sh", "{path}"])]
    {
        let place = place(&command, &json!({"path": "data/a.txt"}));
        place.write("data/a.txt", "one\n");
        place.run_ok(&["trust"]);
        place.write("data/a.txt", "another\n");
        let (code, ran) = place.json(&RUN);
        assert_eq!(code, Some(0), "{ran}");
        assert!(!answer(&place, &ran).contains("does not trust"), "{command}");
    }
}

#[test]
fn hook_that_runs_a_shell_asks_again_after_its_file_changes() {
    let place = place(&json!(["true"]), &json!({}));
    place.write(
        ".ai/config/agent/hooks.yaml",
        "hooks:\n  - { id: sh, event: thread_started, action: { primary: execute, item_type: tool, item_id: \
         rye/bash/bash, params: { command: \"cd scripts; bash x.sh\" } } }\n",
    );
    place.run_ok(&["trust"]);
    assert_eq!(place.rye(&RUN).code, Some(0));
    place.write("scripts/x.sh", "echo changed\n");
    assert_eq!(place.rye(&RUN).code, Some(5));
}

#[test]
fn program_found_in_the_project_by_path_asks_again() {
    let place = place(&json!(["lint-it"]), &json!({}));
    place.write("bin/lint-it", "#!/bin/sh\necho ran-it\n");
    let path = format!("{}:{}", place.project().join("bin").display(), std::env::var("PATH").unwrap());
    let run = |args: &[&str]| place.command(args).env("PATH", &path).output().unwrap().status.code();
    assert_eq!(run(&["trust"]), Some(0));
    assert_eq!(run(&RUN), Some(0));
    place.write("bin/lint-it", "#!/bin/sh\necho changed\n");
    assert_eq!(run(&RUN), Some(5));
}
