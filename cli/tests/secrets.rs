//! Tests that no secret appears in transcripts, objects, exports or output.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::{ProcessResult, TestProject};

#[test]
fn key_printed_by_a_tool_is_masked() {
    let place = TestProject::own();
    place.write(
        ".ai/directives/talk.md",
        "Talks.\n\n```xml\n<directive name=\"talk\" version=\"1.0.0\">\n<metadata><description>Talk.</description>\
         <model provider=\"scripted\" tier=\"fast\"/><permissions><execute><tool>rye.bash.*</tool>\
         <tool>rye.file-system.read</tool></execute><acknowledge risk=\"elevated\">t</acknowledge></permissions></metadata>\n\
         </directive>\n```\n\nTalk.\n",
    );
    let github = format!("ghp_{}", "a1B2c3D4e5".repeat(4));
    let own = "an-unusual-value-of-a-key-0123456789";
    place.write("notes.txt", &format!("token: {github}\nand {own}\n{}", "filler line\n".repeat(6000)));
    place.write(
        "script.yaml",
        "steps:\n  - tool_calls: [{ name: rye_bash_bash, input: { command: \"env; cat notes.txt\" } }]\n\
         \x20 - tool_calls: [{ name: rye_file_system_read, input: { path: notes.txt } }]\n  - text: Done.\n",
    );
    let output = place.command(&["run", "talk", "--events"]).env("SOME_SERVICE_KEY", own).output().unwrap();
    let done = ProcessResult::from(output);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let mut masked = 0;
    for file in rye::files(&place.project().join(".ai/state")) {
        let bytes = std::fs::read(place.project().join(".ai/state").join(&file)).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(&github) && !text.contains(own), "{file}");
        masked += text.matches("[masked: GitHub token]").count();
    }
    assert!(masked >= 2, "both answers hold it, masked");
    assert!(!done.stdout.contains(own) && !done.stderr.contains(own) && !done.stderr.contains(&github));
    let listing = place.run_ok(&["threads", "list", "--format", "json"]);
    assert!(!listing.contains(own));
}

#[test]
fn export_masks_keys() {
    let place = TestProject::own();
    place.write(
        ".ai/directives/talk.md",
        "Talks.\n\n```xml\n<directive name=\"talk\" version=\"1.0.0\">\n<metadata><description>Talk.</description>\
         <model provider=\"scripted\" tier=\"fast\"/><permissions><execute><tool>rye.file-system.ls</tool></execute></permissions>\
         </metadata>\n</directive>\n```\n\nTalk.\n",
    );
    let anthropic = format!("sk-ant-{}", "a1B2c3D4e5".repeat(4));
    place.write(
        "script.yaml",
        &format!(
            "steps:\n  - tool_calls: [{{ name: rye_file_system_ls, input: {{ path: '{anthropic}' }} }}]\n  - text: 'It is {anthropic}.'\n"
        ),
    );
    let (code, ran) = place.json(&["run", "talk"]);
    assert_eq!(code, Some(0), "{ran}");
    let exported = place.run_ok(&["threads", "export", ran["thread_id"].as_str().unwrap(), "--script"]);
    assert!(!exported.contains(&anthropic), "{exported}");
    assert!(exported.matches("[masked: Anthropic key]").count() >= 2, "{exported}");
}
