//! Tests of `--image`: images in the request, the transcript, exports and later runs.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::TestProject;

/// Returns the header of a PNG of this size, the only part that is parsed.
fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR".to_vec();
    bytes.extend(width.to_be_bytes());
    bytes.extend(height.to_be_bytes());
    bytes.extend([8, 6, 0, 0, 0]);
    bytes
}

const RUN: [&str; 3] = ["run", "look", "--image"];

fn place() -> TestProject {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    place.write(
        ".ai/directives/look.md",
        "# Look\n\n```xml\n<directive name=\"look\" version=\"1.0.0\">\n<metadata>\n<model provider=\"scripted\" tier=\"fast\"/>\n<nudge>never</nudge>\n</metadata>\n\
         </directive>\n```\n\nWhat is it?\n",
    );
    place
        .write("script.yaml", "steps:\n  - { text: A field., expect: { user: [\"[image/png \", \"What is it?\"] } }\n");
    std::fs::write(place.project().join("a.png"), png(640, 480)).unwrap();
    place
}

fn only_thread(place: &TestProject) -> String {
    let (_, list) = place.json(&["threads", "list"]);
    list["threads"][0]["thread_id"].as_str().unwrap().to_owned()
}

#[test]
fn image_is_sent_stored_once_and_verified() {
    let place = place();
    let ran = place.rye(&[&RUN[..], &["a.png", "--image", "a.png"]].concat());
    assert_eq!((ran.code, ran.stdout.trim()), (Some(0), "A field."), "{}", ran.stderr);
    let thread = only_thread(&place);
    let record = place.read(&format!(".ai/state/threads/{thread}/transcript.jsonl"));
    let lines: Vec<&str> = record.lines().filter(|line| line.contains("image/png")).collect();
    // The two lines are the `opened` event and the message. Neither contains the bytes of the image, whose base64 text
    // starts with `iVBORw0KGgo`.
    assert_eq!(lines.len(), 2, "{record}");
    assert!(!record.contains("iVBORw0KGgo"));
    let opened: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
    let object = opened["images"][0]["sha256"].as_str().unwrap().to_owned();
    assert_eq!((&opened["images"][0]["width"], &opened["images"][1]["sha256"]), (&640.into(), &object.clone().into()));
    let stored = place.project().join(".ai/state/objects").join(&object);
    assert_eq!(std::fs::read(&stored).unwrap(), png(640, 480));
    // The human output describes the image, and the transcript matches its plan and its checkpoints.
    assert!(place.run_ok(&["threads", "transcript", &thread]).contains("(image, image/png, 640 × 480, "));
    place.run_ok(&["threads", "prove", &thread]);
    place.run_ok(&["threads", "verify", &thread]);
    // An exported script expects the same image.
    place.run_ok(&["threads", "export", &thread, "--script", "-o", "again.json"]);
    let again = |images: &[&str]| place.rye(&[&["run", "look", "--script", "again.json"], images].concat());
    assert_eq!(again(&["--image", "a.png", "--image", "a.png"]).code, Some(0));
    let other = again(&["--image", "a.png"]);
    assert!(other.code == Some(1) && other.stderr.contains("user message 1 differs"), "{}", other.stderr);
    // A missing image is reported before the incomplete request is sent.
    std::fs::remove_file(&stored).unwrap();
    assert_eq!(place.rye(&["threads", "verify", &thread]).code, Some(1));
    let resumed = place.rye(&["run", "--resume", &thread, "--message", "And now?"]);
    assert_eq!(resumed.code, Some(1));
    assert!(resumed.stderr.contains("an image cannot be sent"), "{}", resumed.stderr);
}

#[test]
fn resume_message_accepts_images() {
    let place = place();
    assert_eq!(place.rye(&[&RUN[..], &["a.png"]].concat()).code, Some(0));
    let thread = only_thread(&place);
    std::fs::write(place.project().join("b.png"), png(10, 10)).unwrap();
    place.write("script.yaml", "steps:\n  - { text: A point., expect: { user: [\"[image/png \", \"And this?\"] } }\n");
    let resumed = place.rye(&["run", "--resume", &thread, "--message", "And this?", "--image", "b.png"]);
    assert_eq!((resumed.code, resumed.stdout.trim()), (Some(0), "A point."), "{}", resumed.stderr);
    // Pruning removes the objects of both threads.
    let objects = || std::fs::read_dir(place.project().join(".ai/state/objects")).unwrap().count();
    assert!(objects() > 2);
    place.run_ok(&["threads", "prune", "--older-than", "0"]);
    assert_eq!(objects(), 0);
}

#[test]
fn invalid_image_is_rejected_before_the_run() {
    let place = place();
    place.write("note.png", "not an image at all");
    std::fs::write(place.project().join("wide.png"), png(9_000, 1)).unwrap();
    let huge = std::fs::File::create(place.project().join("huge.png")).unwrap();
    huge.set_len(50 * 1024 * 1024).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(place.project().join("pipe.png")).status().unwrap();
    assert!(fifo.success());
    for (file, message) in [
        ("missing.png", "the image `missing.png` cannot be read"),
        ("note.png", "the image `note.png` cannot be sent: not a PNG, JPEG, GIF or WebP image"),
        ("wide.png", "it has 9000 × 1 pixels"),
        ("huge.png", "the image is larger than 5 MiB"),
        ("pipe.png", "the image `pipe.png` is not a regular file"),
        (".", "the image `.` is not a regular file"),
    ] {
        let refused = place.rye(&[&RUN[..], &[file]].concat());
        assert_eq!(refused.code, Some(2), "{file}: {}", refused.stderr);
        assert!(refused.stderr.contains(message), "{file}: {}", refused.stderr);
    }
    place.write(
        "../user/.ai/config/agent/providers/blind.yaml",
        "id: blind\nwire: openai-chat\nbase_url: http://127.0.0.1:9/v1\ntiers: { fast: words }\nmodels:\n  - { id: words, context_window: 8000, \
         max_output: 1000, images: false, prices: none }\n",
    );
    let blind = place.rye(&["run", "look", "--model", "blind/words", "--image", "a.png"]);
    assert_eq!(blind.code, Some(1), "{}", blind.stderr);
    assert!(blind.stderr.contains("the model `blind/words` does not accept images"), "{}", blind.stderr);
    assert_eq!(place.json(&["threads", "list"]).1["threads"], serde_json::json!([]));
}

#[test]
fn too_many_images_are_a_usage_error_with_a_fix_that_helps() {
    let place = place();
    let images = ["--image", "a.png"].repeat(21);
    let done = place.rye(&[&["run", "look"][..], &images[..]].concat());
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    assert!(done.stderr.contains("at most 20 images, but has 21"), "{}", done.stderr);
    assert!(done.stderr.contains("in a later message") && !done.stderr.contains("--model"), "{}", done.stderr);
}
