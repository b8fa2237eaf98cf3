//! Tests of `rye threads verify`: the key of `rye init`, the signatures of a run, and reports of damage.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::{TestProject, files};
use serde_json::json;

fn ran(place: &TestProject) -> String {
    let (code, result) = place.json(&["run", "hello"]);
    assert_eq!(code, Some(0), "{result}");
    result["thread_id"].as_str().unwrap().to_owned()
}

#[test]
fn verify_detects_altered_files() {
    let place = TestProject::own();
    let (_, made) = place.json(&["init", "--example", "hello"]);
    let key = made["key_id"].as_str().unwrap();
    let id = ran(&place);
    let (code, found) = place.json(&["threads", "verify"]);
    assert_eq!(code, Some(0), "{found}");
    let one = &found["threads"][0];
    assert_eq!((&one["thread_id"], &one["verdict"], &one["signed_by"]), (&json!(id), &json!("sound"), &json!([key])));
    assert_eq!(one["vouched"], one["events"]);
    place.run_ok(&["threads", "verify", &id, "--strict"]);

    let path = format!(".ai/state/threads/{id}/transcript.jsonl");
    let record = place.read(&path);
    let changed: Vec<String> = record
        .lines()
        .enumerate()
        .map(|(n, line)| if n == 6 { line.replacen(':', ": ", 3) } else { line.into() })
        .collect();
    place.write(&path, &format!("{}\n", changed.join("\n")));
    let done = place.rye(&["threads", "verify", &id]);
    assert_eq!(done.code, Some(1));
    assert!(done.stdout.contains(&format!("{id}: damaged")), "{}", done.stdout);
    assert!(done.stdout.contains(&format!("  {path}:7: ")), "{}", done.stdout);
    let (code, found) = place.json(&["threads", "verify", &id]);
    let fault = &found["threads"][0]["faults"][0];
    assert_eq!((code, &fault["file"], &fault["line"]), (Some(1), &json!(path), &json!(7)));

    place.write(&path, &record);
    let snapshot = format!(".ai/state/threads/{id}/thread.json");
    place.write(&snapshot, &place.read(&snapshot).replace("rye.execute.tool", "rye.execute.*"));
    let done = place.rye(&["threads", "verify"]);
    assert_eq!(done.code, Some(1));
    assert!(done.stdout.contains(&format!("  {snapshot}: the signature was not made with the key")), "{}", done.stdout);
    assert_eq!(place.rye(&["threads", "verify", "nobody-1"]).code, Some(2));
}

#[test]
fn verify_detects_altered_and_missing_copies_of_sources() {
    let place = TestProject::example("deploy");
    let run = ["run", "deploy_staging", "--input", "service=billing", "--limit", "turns=5", "--script", "script.yaml"];
    let (_, done) = place.json(&run);
    let id = done["thread_id"].as_str().unwrap();
    place.run_ok(&["threads", "verify", id, "--strict"]);

    let sources = place.project().join(".ai/state/sources");
    let copies = files(&sources);
    assert!(copies.len() > 2, "{copies:?}");
    for copy in copies {
        let text = std::fs::read(sources.join(&copy)).unwrap();
        std::fs::write(sources.join(&copy), [&text[..], b"\n"].concat()).unwrap();
        let (code, found) = place.json(&["threads", "verify", id]);
        let one = &found["threads"][0];
        assert_eq!((code, &one["verdict"]), (Some(1), &json!("damaged")), "{copy}: {found}");
        assert_eq!(one["faults"][0]["file"], json!(format!(".ai/state/sources/{copy}")), "{found}");
        let shown = place.rye(&["threads", "verify", id]).stdout;
        assert!(shown.contains(&format!("{id}: damaged")), "{shown}");
        assert!(shown.contains("the contents do not match the hash; line 2 of the transcript names"), "{shown}");

        // A power failure can remove or empty a copy, because copies are not synced.
        for is_empty in [true, false] {
            let path = sources.join(&copy);
            if is_empty { std::fs::write(path, "") } else { std::fs::remove_file(path) }.unwrap();
            let (code, found) = place.json(&["threads", "verify", id]);
            let one = &found["threads"][0];
            assert_eq!((code, &one["verdict"], &one["faults"]), (Some(0), &json!("unproven"), &json!([])), "{found}");
            assert!(one["notes"][0].as_str().unwrap().starts_with("no copy of a source is stored: "), "{found}");
            assert_eq!(place.rye(&["threads", "verify", id, "--strict"]).code, Some(1));
        }
        std::fs::write(sources.join(&copy), text).unwrap();
    }
    place.run_ok(&["threads", "verify", id, "--strict"]);
}

#[test]
fn run_without_a_key_is_unproven() {
    let place = TestProject::example("hello");
    std::fs::remove_dir_all(place.user().join(".ai/keys")).unwrap();
    let done = place.rye(&["run", "hello"]);
    assert!(done.stderr.contains("no signing key found: using a temporary key"), "{}", done.stderr);
    let done = place.rye(&["threads", "verify"]);
    assert_eq!(done.code, Some(0), "{}", done.stdout);
    assert!(done.stdout.contains(": unproven ("), "{}", done.stdout);
    assert!(done.stderr.contains("can no longer be verified"), "{}", done.stderr);
    assert_eq!(place.rye(&["threads", "verify", "--strict"]).code, Some(1));
}

#[test]
fn exported_thread_is_searchable_and_not_checked() {
    let place = TestProject::example("hello");
    let before = place.rye(&["check"]);
    let id = ran(&place);
    let item = format!("agent/threads/hello/{id}");
    let found = place.run_ok(&["fetch", "knowledge", "--query", "Untrusted"]);
    assert!(found.contains(&item), "{found}");
    let text = place.run_ok(&["fetch", "knowledge", &item]);
    assert!(text.contains("> Untrusted: this page quotes") && text.contains("## Conversation"), "{text}");
    let after = place.rye(&["check"]);
    assert_eq!((before.code, before.stderr), (after.code, after.stderr));
    // Outside the folder of exports, the file belongs to the project: its signature must be valid.
    let path = format!(".ai/knowledge/{item}.md");
    place.write(&path, &place.read(&path).replace("Untrusted", "Trusted"));
    assert_ne!(place.rye(&["fetch", "knowledge", &item]).code, Some(0));
}
