//! Tests of the tables in `docs/explanation/security.md`: what a directive of a project may do before and after the
//! user trusts the project.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;
#[path = "support/trust_rows.rs"]
mod trust_rows;

use rye::TestProject;

/// A row of the matrix: the grants of a directive, and the call of its model.
struct MatrixRow {
    name: &'static str,
    /// Elements of `<metadata>`.
    metadata: &'static str,
    /// Attributes of `<directive>`.
    attributes: &'static str,
    /// Files of the project; paths of user space files start with `user:`.
    files: &'static [(&'static str, &'static str)],
    call: &'static str,
    /// Part of the refusal; `None` if no trust is required.
    refused: Option<&'static str>,
    proof: Proof,
}

/// Evidence that the call was made.
enum Proof {
    /// The transcript contains this text, and no input does.
    Said(&'static str),
    /// This file of the project contains this text.
    File(&'static str, &'static str),
}

const BASH: &str = "<permissions><execute><tool write=\"out/\">rye.bash.bash</tool></execute>\
    <acknowledge risk=\"elevated\">trust me</acknowledge></permissions>";
const RUN_BASH: &str = "{ name: rye_bash_bash, input: { command: 'echo ran > out/mark' } }";
const RAN: Proof = Proof::File("out/mark", "ran\n");
const KNOWLEDGE: &str = "```yaml\nname: notes\ntitle: Notes\n```\n\nkept-in-the-notes\n";
const READ: &str = "<permissions><execute><tool>rye.file-system.read</tool></execute></permissions>";
const FETCH: &str = "{ name: rye_fetch, input: { item_type: knowledge, item_id: project/notes } }";
const MINE: &str = "description: Mine.\nkind: command\ncommand: [echo, from-the-users-tool]\n";
const READ_NOTE: &str = "{ name: rye_file_system_read, input: { path: note.txt } }";
const SAID: Proof = Proof::Said("kept-in-the-note");
const BASE: &str = "# Base\n\n```xml\n<directive name=\"base\" version=\"1.0.0\"><metadata><description>Base.</description>\
    <permissions><execute><tool write=\"out/\">rye.bash.bash</tool></execute></permissions></metadata></directive>\n```\n\nBase.\n";
const STRICT: &str = "risk_levels: { write: { policy: acknowledge_required } }\n";
const WRITE_ROW: &str = "<permissions><execute><tool write=\"out/\">rye.file-system.write</tool></execute>\
    <acknowledge risk=\"write\">trust me</acknowledge></permissions>";
const WRITE: &str = "{ name: rye_file_system_write, input: { path: out/mark, content: \"ran\\n\" } }";

fn row(
    name: &'static str,
    metadata: &'static str,
    call: &'static str,
    refused: Option<&'static str>,
    proof: Proof,
) -> MatrixRow {
    MatrixRow { name, metadata, attributes: "", files: &[], call, refused, proof }
}

fn rows() -> Vec<MatrixRow> {
    let mut rows = rows_of_grants();
    rows.extend(rows_of_spaces());
    rows.extend(rows_of_named_items());
    rows.extend(trust_rows::rows());
    rows
}

/// Returns the rows about grants of the directive itself.
fn rows_of_grants() -> Vec<MatrixRow> {
    vec![
        row("read in the project", READ, READ_NOTE, None, SAID),
        MatrixRow {
            files: &[(".ai/knowledge/project/notes.md", KNOWLEDGE)],
            ..row(
                "fetch of the project",
                "<permissions><fetch><knowledge>project.*</knowledge></fetch></permissions>",
                FETCH,
                None,
                Proof::Said("kept-in-the-notes"),
            )
        },
        row(
            "write in a granted folder",
            "<permissions><execute><tool write=\"out/\">rye.file-system.write</tool></execute></permissions>",
            WRITE,
            None,
            RAN,
        ),
        row("an elevated grant", BASH, RUN_BASH, Some("`rye.execute.tool.rye.bash.bash` (elevated)"), RAN),
        row(
            "an unrestricted grant",
            "<permissions>*<acknowledge risk=\"unrestricted\">trust me</acknowledge></permissions>",
            READ_NOTE,
            Some("`rye.*` (unrestricted"),
            SAID,
        ),
        row(
            "net beside a safe grant",
            "<permissions><execute><tool net=\"example.com\">rye.file-system.read</tool></execute></permissions>",
            READ_NOTE,
            Some("net example.com"),
            SAID,
        ),
        MatrixRow {
            files: &[(".ai/knowledge/project/notes.md", KNOWLEDGE)],
            ..row(
                "a sign grant",
                "<permissions><sign><knowledge>project.*</knowledge></sign></permissions>",
                "{ name: rye_sign, input: { item_type: knowledge, item_id: project/notes } }",
                Some("signs with your key"),
                Proof::File(".ai/knowledge/project/notes.md", "rye:signed:"),
            )
        },
    ]
}

/// Returns the rows about the user space and hooks.
fn rows_of_spaces() -> Vec<MatrixRow> {
    vec![
        MatrixRow {
            files: &[("user:.ai/tools/mine.yaml", MINE)],
            ..row(
                "a tool of the user space",
                "<permissions><execute><tool>mine</tool></execute>\
                 <acknowledge risk=\"elevated\">trust me</acknowledge></permissions>",
                "{ name: mine, input: {} }",
                Some("reaches items of your user space: tool `mine`"),
                Proof::Said("from-the-users-tool"),
            )
        },
        MatrixRow {
            files: &[("user:.ai/tools/rye/file-system/read.yaml", MINE)],
            ..row(
                "a tool of the user space behind a safe grant",
                READ,
                "{ name: rye_file_system_read, input: {} }",
                Some("reaches items of your user space: tool `rye/file-system/read`"),
                Proof::Said("from-the-users-tool"),
            )
        },
        MatrixRow {
            files: &[("user:.ai/knowledge/project/notes.md", KNOWLEDGE)],
            ..row(
                "knowledge of the user space",
                "<permissions><fetch><knowledge>*</knowledge></fetch></permissions>",
                FETCH,
                Some("knowledge `project/notes`"),
                Proof::Said("kept-in-the-notes"),
            )
        },
        MatrixRow {
            files: &[("user:.ai/knowledge/project/notes.md", KNOWLEDGE)],
            ..row(
                "knowledge of the user space in the context",
                "<context><before>project/notes</before></context>\
                 <permissions><execute><tool>rye.file-system.read</tool></execute></permissions>",
                READ_NOTE,
                Some("knowledge `project/notes`"),
                Proof::Said("kept-in-the-notes"),
            )
        },
        MatrixRow {
            files: &[
                ("user:.ai/knowledge/project/notes.md", KNOWLEDGE),
                (
                    ".ai/config/agent/hooks.yaml",
                    "hooks:\n  - { id: peek, event: thread_started, action: { primary: fetch, item_type: knowledge, \
                     item_id: project/notes } }\n",
                ),
            ],
            ..row(
                "knowledge of the user space by a hook of the project",
                READ,
                READ_NOTE,
                Some("peek  fetches knowledge `project/notes` of your user space"),
                SAID,
            )
        },
        MatrixRow {
            files: &[(
                ".ai/config/agent/hooks.yaml",
                "hooks:\n  - { id: sh, event: thread_started, action: { primary: execute, item_type: tool, \
                 item_id: rye/file-system/ls, params: { path: . } } }\n",
            )],
            ..row("a hook that executes", READ, READ_NOTE, Some("hook sh  at thread_started: executes"), SAID)
        },
        MatrixRow {
            attributes: " extends=\"base\"",
            files: &[("user:.ai/directives/base.md", BASE)],
            ..row(
                "grants of a base of the user space",
                "",
                RUN_BASH,
                Some("`rye.execute.tool.rye.bash.bash` (elevated)"),
                RAN,
            )
        },
        MatrixRow {
            files: &[("user:.ai/config/agent/capability_risk.yaml", STRICT)],
            ..row(
                "an acknowledgement of the user's stricter table",
                WRITE_ROW,
                WRITE,
                Some("acknowledged by the project itself"),
                RAN,
            )
        },
    ]
}

/// Returns the rows about items of the user space that a directive or a hook of the project names or inherits.
fn rows_of_named_items() -> Vec<MatrixRow> {
    const PRIVATE: &str = "```xml\n<directive name=\"base\"><metadata><context><before>notes</before></context></metadata>\
        </directive>\n```\n\nPrivate.\n";
    const ROUTE: &str = "hooks:\n  - { id: r, event: resolve_extends, action: { set_extends: base } }\n";
    const OF_USER: [(&str, &str); 2] =
        [("user:.ai/directives/base.md", PRIVATE), ("user:.ai/knowledge/notes.md", KNOWLEDGE)];
    vec![
        MatrixRow {
            attributes: " extends=\"base\"",
            files: &OF_USER,
            ..row(
                "knowledge of the user space in the context of a base",
                READ,
                READ_NOTE,
                Some("knowledge `notes`"),
                SAID,
            )
        },
        MatrixRow {
            files: &OF_USER,
            ..row(
                "a directive of the user space as continuation directive",
                "<continuation_directive>base</continuation_directive><permissions><execute><tool>rye.file-system.read\
                 </tool></execute></permissions>",
                READ_NOTE,
                Some("reaches items of your user space: directive `base`"),
                SAID,
            )
        },
        MatrixRow {
            files: &[
                ("user:.ai/directives/base.md", PRIVATE),
                ("user:.ai/knowledge/notes.md", KNOWLEDGE),
                (".ai/config/agent/hooks.yaml", ROUTE),
            ],
            ..row(
                "a directive of the user space by a route of the project",
                READ,
                READ_NOTE,
                Some("r  routes to the directive `base` of your user space"),
                SAID,
            )
        },
    ]
}

fn directive(attributes: &str, metadata: &str) -> String {
    format!(
        "# Act\n\n```xml\n<directive name=\"act\" version=\"1.0.0\"{attributes}>\n<metadata><description>Act.</description>\
         <model tier=\"fast\" provider=\"scripted\"/>{metadata}</metadata>\n</directive>\n```\n\nAct.\n"
    )
}

fn script(call: &str) -> String {
    format!("steps:\n  - tool_calls: [{call}]\n  - text: Done.\n")
}

/// Returns a cloned project, with a script of the user next to it.
fn place(row: &MatrixRow) -> TestProject {
    let place = TestProject::new();
    place.write(".ai/directives/act.md", &directive(row.attributes, row.metadata));
    place.write("note.txt", "kept-in-the-note");
    place.write("out/.keep", "");
    place.write("out/listed-name", "");
    place.write("../script.yaml", &script(row.call));
    for (path, text) in row.files {
        match path.strip_prefix("user:") {
            Some(path) => place.write(&format!("../user/{path}"), text),
            None => place.write(path, text),
        }
    }
    place
}

fn holds(place: &TestProject, proof: &Proof, thread: Option<&str>) -> bool {
    match proof {
        Proof::File(path, text) => {
            std::fs::read_to_string(place.project().join(path)).is_ok_and(|file| file.contains(text))
        }
        Proof::Said(text) => {
            thread.is_some_and(|thread| place.run_ok(&["threads", "transcript", thread, "--json"]).contains(text))
        }
    }
}

const RUN: [&str; 4] = ["run", "act", "--script", "../script.yaml"];

#[test]
fn every_cell_of_the_matrix_holds() {
    for row in rows() {
        let (place, name) = (place(&row), row.name);
        let (_, listed) = place.json(&["trust", "--list"]);
        // A hook that only adds knowledge requires trust in threads that can use a shell or the network. The directive
        // of a row without a refusal can use neither.
        let applies = |one: &&serde_json::Value| {
            !one["what"].as_str().unwrap().contains("even in threads of directives that can")
        };
        let listed: Vec<_> = listed["requirements"].as_array().unwrap().iter().filter(applies).collect();
        assert_eq!(listed.is_empty(), row.refused.is_none(), "{name}: {listed:?}");
        if let Some(refused) = row.refused {
            let done = place.rye(&RUN);
            assert_eq!(done.code, Some(5), "{name}: {}\n{}", done.stdout, done.stderr);
            assert!(done.stderr.contains(refused), "{name}: {}", done.stderr);
            assert!(done.stderr.contains("`rye trust`"), "{name}: {}", done.stderr);
            assert!(!holds(&place, &row.proof, None), "{name}: done all the same");
            assert!(!place.project().join(".ai/state/threads/registry.redb").exists(), "{name}: a thread was started");
            let served = place.rye(&["mcp", "serve", "--directive", "act"]);
            assert_eq!(served.code, Some(5), "{name}: {}", served.stderr);
            place.run_ok(&["trust"]);
            let (_, after) = place.json(&["trust", "--list"]);
            assert!(
                after["requirements"].as_array().unwrap().iter().all(|one| one["trusted"] == true),
                "{name}: {after}"
            );
        }
        let (code, ran) = place.json(&RUN);
        assert_eq!(code, Some(0), "{name}: {ran}");
        assert!(holds(&place, &row.proof, ran["thread_id"].as_str()), "{name}: {ran}");
        if row.refused.is_some() {
            place.run_ok(&["trust", "--revoke"]);
            let thread = ran["thread_id"].as_str().unwrap();
            let resumed = place.rye(&["run", "--resume", thread, "--message", "more", "--script", "../script.yaml"]);
            assert_eq!(resumed.code, Some(5), "{name}: {}", resumed.stderr);
        }
    }
}

#[test]
fn a_changed_directive_asks_again_and_its_former_threads_go_on() {
    let row = rows().into_iter().find(|row| row.name == "an elevated grant").unwrap();
    let place = place(&row);
    place.run_ok(&["trust"]);
    let (_, ran) = place.json(&RUN);
    let changed = directive(row.attributes, row.metadata).replace("Act.\n", "Act otherwise.\n");
    place.write(".ai/directives/act.md", &changed);
    assert_eq!(place.rye(&RUN).code, Some(5));
    place.run_ok(&["trust"]);
    place.run_ok(&RUN);
    let thread = ran["thread_id"].as_str().unwrap();
    let resumed = place.rye(&["run", "--resume", thread, "--message", "more", "--script", "../script.yaml"]);
    assert_ne!(resumed.code, Some(5), "{}", resumed.stderr);
}

#[test]
fn a_script_of_the_project_plays_the_model_only_where_it_is_trusted() {
    let row = rows().into_iter().find(|row| row.name == "read in the project").unwrap();
    for file in ["script.yaml", "steps/other.yaml"] {
        let place = place(&row);
        place.write(file, &script(READ_NOTE));
        if file != "script.yaml" {
            let named = format!("script: {file}\n");
            place.write(".ai/config/agent/providers/scripted.yaml", &named);
        }
        let refused = place.rye(&["run", "act"]);
        assert_eq!(refused.code, Some(5), "{}", refused.stderr);
        assert!(refused.stderr.contains(&format!("script {file}  simulates the model")), "{}", refused.stderr);
        // A script that the user selects needs no trust.
        place.run_ok(&RUN);
        place.run_ok(&["trust"]);
        let (code, ran) = place.json(&["run", "act"]);
        assert_eq!(code, Some(0), "{ran}");
        place.write(file, &script(WRITE));
        assert_eq!(place.rye(&["run", "act"]).code, Some(5), "a changed script asks again");
        let thread = ran["thread_id"].as_str().unwrap();
        assert_eq!(place.rye(&["run", "--resume", thread, "--message", "more"]).code, Some(5));
    }
    let place = place(&row);
    place.write(".ai/config/agent/models.yaml", "default_provider: scripted\n");
    place.write("script.yaml", &script(READ_NOTE));
    place.write(
        "../user/.ai/directives/mine.md",
        &directive("", READ).replace("name=\"act\"", "name=\"mine\"").replace(" provider=\"scripted\"", ""),
    );
    assert_eq!(place.rye(&["run", "mine"]).code, Some(5), "also for a directive of the user's");
    place.run_ok(&["trust"]);
    place.run_ok(&["run", "mine"]);
}

#[test]
fn a_child_of_the_project_inherits_nothing_untrusted() {
    let row = rows().into_iter().find(|row| row.name == "an elevated grant").unwrap();
    let place = place(&row);
    place.write(".ai/directives/act.md", &directive("", ""));
    let boss = "<permissions><execute><directive>act</directive><tool write=\"out/\">rye.bash.bash</tool></execute>\
        <acknowledge risk=\"elevated\">mine</acknowledge></permissions>";
    place.write("../user/.ai/directives/boss.md", &directive("", boss).replace("name=\"act\"", "name=\"boss\""));
    let start = "{ name: rye_execute, input: { item_type: directive, item_id: act, parameters: {} } }";
    let child = format!("threads:\n  act:\n    - tool_calls: [{RUN_BASH}]\n    - text: Done.\n");
    place.write("../script.yaml", &format!("{}{child}", script(start)));
    let run = ["run", "boss", "--script", "../script.yaml"];
    let (code, ran) = place.json(&run);
    assert_eq!(code, Some(0), "{ran}");
    assert!(!holds(&place, &RAN, None));
    let record = place.run_ok(&["threads", "transcript", ran["thread_id"].as_str().unwrap(), "--json"]);
    assert!(record.contains("has untrusted requirements"), "{record}");
    place.run_ok(&["trust"]);
    place.run_ok(&run);
    assert!(holds(&place, &RAN, None));
}

#[test]
fn what_the_user_makes_with_this_program_asks_nothing() {
    for args in [&["init"][..], &["init", "--example", "hello"], &["init", "--example", "deploy"]] {
        let place = TestProject::new();
        place.run_ok(args);
        let (_, listed) = place.json(&["trust", "--list"]);
        assert!(
            listed["requirements"].as_array().unwrap().iter().all(|one| one["trusted"] == true),
            "{args:?}: {listed}"
        );
    }
    let place = TestProject::new();
    place.run_ok(&["init"]);
    place.run_ok(&["run", "first", "--input", "topic=tea"]);
    for language in ["command", "http", "python", "javascript", "typescript", "shell"] {
        place.run_ok(&["new", "tool", &format!("made_{language}"), "--language", language]);
    }
    place.run_ok(&["new", "directive", "mine"]);
    let (_, listed) = place.json(&["trust", "--list"]);
    assert!(listed["requirements"].as_array().unwrap().iter().all(|one| one["trusted"] == true), "{listed}");
    assert!(listed["requirements"].as_array().unwrap().len() > 5);
}

#[test]
fn a_project_that_requires_nothing_is_told_so_truthfully() {
    let row = rows().into_iter().find(|row| row.name == "read in the project").unwrap();
    let place = place(&row);
    assert_eq!(place.run_ok(&["trust", "--list"]), "this project has no trust requirements\n");
    place.run_ok(&RUN);
}
