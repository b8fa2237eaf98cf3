//! Tests of `rye threads prove` as a process.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::io::Write;
use std::process::{Command, Stdio};

use rye::{TestProject, files};

fn git(place: &TestProject, args: &[&str]) {
    let fixed = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"];
    let done = Command::new("git").args(fixed).args(args).current_dir(place.project()).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn prove_uses_stored_copies_of_changed_sources() {
    let place = TestProject::example("deploy");
    git(&place, &["init", "-q"]);
    git(&place, &["add", "."]);
    git(&place, &["commit", "-qm", "one"]);
    let run = ["run", "deploy_staging", "--input", "service=billing", "--limit", "turns=5", "--script", "script.yaml"];
    let (code, done) = place.json(&run);
    assert_eq!(code, Some(0), "{done}");
    let thread = done["thread_id"].as_str().unwrap();
    let (code, proof) = place.json(&["threads", "prove", thread]);
    assert_eq!((code, &proof["proved"], &proof["plan_id"]), (Some(0), &true.into(), &done["plan_id"]), "{proof}");
    assert!(proof["first_request"].as_u64().unwrap() > 1000);

    let rules = ".ai/knowledge/project/deploy/environment-rules.md";
    place.write(rules, &(place.read(rules) + "\nOne more.\n"));
    // The proof uses the copies of the original sources that are stored with the transcript.
    let (code, kept) = place.json(&["threads", "prove", thread]);
    assert_eq!((code, &kept["proved"], &kept["sources"]), (Some(0), &true.into(), &"kept".into()), "{kept}");
    assert_eq!(kept["changed"][0], "knowledge project/deploy/environment-rules");
    let stdout = place.rye(&["threads", "prove", thread]).stdout;
    assert!(stdout.contains("the sources have changed (knowledge project/deploy/environment-rules)"), "{stdout}");

    // Neither an altered nor a missing copy proves anything.
    let sources = place.project().join(".ai/state/sources");
    for path in files(&sources) {
        let text = std::fs::read_to_string(sources.join(&path)).unwrap();
        std::fs::write(sources.join(&path), text + "\n").unwrap();
    }
    let changed = place.rye(&["threads", "prove", thread]);
    assert_eq!(changed.code, Some(1));
    assert!(
        changed.stdout.contains("no copies of them are stored: knowledge project/deploy/environment-rules"),
        "{}",
        changed.stdout
    );
    std::fs::remove_dir_all(&sources).unwrap();
    assert_eq!(place.rye(&["threads", "prove", thread]).code, Some(1));
    let then = place.rye(&["threads", "prove", thread, "--at", "HEAD"]);
    assert_eq!((then.code, then.stdout.contains(": proved")), (Some(0), true), "{}{}", then.stdout, then.stderr);
}

#[test]
fn prove_rejects_an_altered_plan() {
    let place = TestProject::example("hello");
    let (_, done) = place.json(&["run", "hello", "--script", "script.yaml"]);
    let thread = done["thread_id"].as_str().unwrap();
    assert_eq!(place.rye(&["threads", "prove", thread]).code, Some(0));
    let id = done["plan_id"].as_str().unwrap();
    let state = place.project().join(".ai/state");
    let object = files(&state).into_iter().find(|path| path.contains(id)).unwrap();
    let text = std::fs::read_to_string(state.join(&object)).unwrap();
    std::fs::write(state.join(&object), text.replace("guest", "ghost")).unwrap();
    let altered = place.rye(&["threads", "prove", thread]);
    assert_eq!(altered.code, Some(1), "{}{}", altered.stdout, altered.stderr);
    assert!(altered.stderr.contains("hash"), "{}", altered.stderr);
}

#[test]
fn prove_accepts_a_model_override() {
    let place = TestProject::example("hello");
    let file = ".ai/directives/hello.md";
    place.write(
        file,
        &place.read(file).replace("<model provider=\"scripted\" tier=\"fast\"/>", "<model tier=\"general\"/>"),
    );
    let run = ["run", "hello", "--model", "scripted/fast", "--limit", "turns=3", "--script", "script.yaml"];
    let (code, done) = place.json(&run);
    assert_eq!(code, Some(0), "{done}");
    let proof = place.rye(&["threads", "prove", done["thread_id"].as_str().unwrap()]);
    assert_eq!(proof.code, Some(0), "{}{}", proof.stdout, proof.stderr);
}

/// Runs a session of the directive `talk` with these lines.
fn chat(place: &TestProject, lines: &str) {
    let mut command = place.command(&["chat", "talk", "--script", "script.yaml"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn every_thread_of_a_chat_is_proved_until_a_source_is_lost() {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &rye::talk_directive(4, "<tool>rye.file-system.read</tool>"));
    place.write("script.yaml", "steps: [{ text: One. }, { text: Two. }, { text: Three. }]");
    place.write(".ai/config/agent/chat.yaml", "append_system: house/rules\n");
    let rules = |text: &str| format!("---\nname: rules\ndescription: d\n---\n\n{text}\n");
    place.write(".ai/knowledge/house/rules.md", &rules("Use tabs."));
    // A fork, a new plan and a title: three threads.
    chat(&place, "first\nsecond\n/fork 2\nthird\n/budget 0.25\nfourth\n/name mine\n");
    let (_, listed) = place.json(&["threads", "list"]);
    let threads: Vec<String> = listed["threads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|thread| thread["thread_id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(threads.len(), 3, "{listed}");
    let prove = |thread: &str| place.json(&["threads", "prove", thread]);
    for thread in &threads {
        let (code, proof) = prove(thread);
        assert_eq!((code, &proof["proved"], &proof["sources"]), (Some(0), &true.into(), &"files".into()), "{proof}");
    }
    // The stored copy of a changed file proves the plan.
    place.write(".ai/knowledge/house/rules.md", &rules("Use spaces."));
    let (code, proof) = prove(&threads[0]);
    assert_eq!((code, &proof["proved"], &proof["sources"]), (Some(0), &true.into(), &"kept".into()), "{proof}");
    assert_eq!(proof["changed"][0], "knowledge house/rules", "{proof}");
    std::fs::remove_dir_all(place.project().join(".ai/state/sources")).unwrap();
    let (code, proof) = prove(&threads[0]);
    assert_eq!((code, &proof["proved"]), (Some(1), &false.into()), "{proof}");
}

#[test]
fn context_files_and_skills_of_a_chat_are_proved_from_their_copies() {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &rye::talk_directive(4, ""));
    place.write("script.yaml", "steps: [{ text: One. }]");
    place.write("AGENTS.md", "Use tabs.\n");
    let skill = |text: &str| format!("---\nname: pdf\ndescription: {text}\n---\n\nRead it.\n");
    place.write(".claude/skills/pdf/SKILL.md", &skill("Read PDF files."));
    chat(&place, "first\n");
    let prove = || place.json(&["threads", "prove", "--last"]);
    let (code, proof) = prove();
    assert_eq!((code, &proof["proved"], &proof["sources"]), (Some(0), &true.into(), &"files".into()), "{proof}");
    place.write("AGENTS.md", "Use spaces.\n");
    place.write(".claude/skills/pdf/SKILL.md", &skill("Read and write PDF files."));
    let (code, proof) = prove();
    assert_eq!((code, &proof["proved"], &proof["sources"]), (Some(0), &true.into(), &"kept".into()), "{proof}");
    assert_eq!(proof["changed"], serde_json::json!(["skill pdf", "context file AGENTS.md"]), "{proof}");
    std::fs::remove_file(place.project().join("AGENTS.md")).unwrap();
    let (code, proof) = prove();
    assert_eq!((code, &proof["proved"]), (Some(0), &true.into()), "{proof}");
    // A context file of higher precedence replaces the earlier one.
    place.write("AGENTS.override.md", "Use both.\n");
    let (_, proof) = prove();
    assert_eq!((&proof["proved"], proof["changed"].as_array().map(Vec::len)), (&true.into(), Some(3)), "{proof}");
    let sources = place.project().join(".ai/state/sources");
    let copy = files(&sources).into_iter().find(|path| path.starts_with("context-")).unwrap();
    std::fs::write(sources.join(copy), "Use nothing.\n").unwrap();
    let (code, proof) = prove();
    assert_eq!((code, &proof["proved"]), (Some(1), &false.into()), "{proof}");
}

#[test]
fn file_that_no_plan_named_leaves_the_plan_provable_from_its_copies() {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &rye::talk_directive(4, ""));
    place.write("script.yaml", "steps: [{ text: One. }]");
    chat(&place, "first\n");
    place.write(".ai/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: Read PDF files.\n---\n\nRead it.\n");
    let (code, proof) = place.json(&["threads", "prove", "--last"]);
    assert_eq!((code, &proof["proved"], &proof["sources"]), (Some(0), &true.into(), &"kept".into()), "{proof}");
    let shown = place.rye(&["threads", "prove", "--last"]).stdout;
    assert!(shown.contains("other files were added or removed; the stored copies compile to the same plan"), "{shown}");
}

#[test]
fn every_prompt_of_a_session_is_proved_and_a_changed_byte_is_found() {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &rye::talk_directive(8, ""));
    place.write("script.yaml", &format!("steps: [{}]", "{ text: One. }, ".repeat(7)));
    place.write(
        ".ai/config/agent/hooks.yaml",
        "hooks:\n  - id: polite\n    event: input\n    condition: { path: text, op: contains, value: now }\n    \
         action: { transform: { text: \"please: ${text}\" } }\n",
    );
    place.write(".ai/prompts/review.md", "---\ndescription: d\n---\nReview $1 for $2.\n");
    place.write(".ai/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: Read PDF files.\n---\n\nRead it.\n");
    chat(
        &place,
        "first\ndo it now\n/review a.rs speed\n/skill:pdf a.pdf\n//literal\n/budget 0.25\nsixth\n/fork 2\nagain\n",
    );
    // Templates and skills are expanded again with the copies of their files.
    place.write(".ai/prompts/review.md", "---\ndescription: d\n---\nLook at $1.\n");
    let prove = || place.json(&["threads", "prove", "--last", "--prompts"]);
    let (_, proof) = prove();
    let prompts = proof["prompts"].as_array().unwrap();
    assert_eq!((prompts.len(), proof["proved"].as_bool()), (7, Some(true)), "{proof:#}");
    assert!(prompts.iter().all(|prompt| prompt["bytes"].as_u64() > Some(0)), "{proof:#}");
    let shown = place.rye(&["threads", "prove", "--last", "--prompts"]).stdout;
    assert!(shown.contains("  prompt 3 (") && shown.contains("matches: 22 bytes of text"), "{shown}");
    assert!(place.json(&["threads", "prove", "--last"]).1["prompts"].as_array().unwrap().is_empty());

    // Without the copy of the template, its prompt is not proved.
    let sources = place.project().join(".ai/state/sources");
    let copy = files(&sources).into_iter().find(|path| path.starts_with("prompt-")).unwrap();
    let text = std::fs::read_to_string(sources.join(&copy)).unwrap();
    std::fs::write(sources.join(&copy), text + "\n").unwrap();
    let verified = place.rye(&["threads", "verify"]);
    assert_eq!((verified.code, verified.stdout.contains(&copy)), (Some(1), true), "{}", verified.stdout);
    std::fs::remove_file(sources.join(copy)).unwrap();
    let (code, proof) = prove();
    assert_eq!(code, Some(1), "{proof:#}");
    let differs = proof["prompts"][2]["differs"][0].as_str().unwrap();
    assert!(differs.starts_with("the prompt `review` has changed and no copy is stored"), "{differs}");
}
