//! Tests of images in a chat: images that a text names, images from the clipboard of a terminal, and refused images.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/pty.rs"]
mod pty;
#[path = "support/recorder.rs"]
mod recorder;
#[path = "support/rye.rs"]
mod rye;

use std::io::Write;
use std::process::Stdio;

use pty::PtyTerminal;
use recorder::{ApiFormat, Recorder};
use rye::{TestProject, talk_directive};

/// Returns a PNG of one pixel.
fn pixel() -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR".to_vec();
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 8, 6, 0, 0, 0]);
    bytes
}

#[test]
fn image_of_the_clipboard_and_a_named_file_reach_the_model() {
    let wire = ApiFormat::ALL[0];
    let server = Recorder::start(vec![wire.text_reply()]);
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &talk_directive(9, "").replace("\"scripted\"", "\"local\""));
    place.write(
        ".ai/config/agent/providers/local.yaml",
        &format!(
            "id: local\nwire: {}\nbase_url: {}\ndefault_tier: fast\ntiers: {{ fast: m }}\nmodels:\n  \
             - {{ id: m, context_window: 200000, max_output: 2000, tool_use: native, prices: {{ input: \"1\", output: \"5\" }} }}\n",
            wire.names().0,
            server.url
        ),
    );
    std::fs::write(place.project().join("pixel.png"), pixel()).unwrap();
    // A program of the project is not started.
    place.write("../bin/wl-paste", "#!/bin/sh\ncat pixel.png\n");
    let programs = place.project().join("../bin").canonicalize().unwrap();
    let program = programs.join("wl-paste");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let variables = [("PATH", path.as_str()), ("WAYLAND_DISPLAY", "wayland-0")];
    let mut terminal = PtyTerminal::start(&place, (120, 24), &["chat", "talk"], &variables);
    terminal.wait_for("Enter sends");
    terminal.press("\x16");
    terminal.wait_for("> @.ai/state/chat/pasted-");
    terminal.press("and @pixel.png\r");
    terminal.wait_for("prompt 1 ");
    terminal.press("\x04");
    terminal.end();
    let (_, listed) = place.json(&["threads", "list"]);
    let events = place.transcript(listed["threads"][0]["thread_id"].as_str().unwrap());
    let input = events.iter().find(|event| event["type"] == "user_input").unwrap();
    assert_eq!(input["images"].as_array().map(Vec::len), Some(2), "{input}");
    let requests = server.requests.lock().unwrap();
    let body = String::from_utf8_lossy(&requests[0].body).into_owned();
    assert_eq!(body.matches("iVBORw0KGgo").count(), 2, "{body}");
}

#[test]
fn image_that_a_plain_line_names_is_sent_and_a_missing_file_is_stated() {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &talk_directive(9, ""));
    place.write("script.yaml", "steps: [{ text: One. }]");
    std::fs::write(place.project().join("pixel.png"), pixel()).unwrap();
    place.write("broken.png", "no image");
    let mut command = place.command(&["chat", "talk", "--script", "script.yaml"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"@broken.png look\n@pixel.png @none.txt look\n").unwrap();
    let notes = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    for note in ["cannot be sent", "sent with the image: pixel.png", "`@none.txt` names no file of the project"] {
        assert!(notes.contains(note), "{note}: {notes}");
    }
    let (_, listed) = place.json(&["threads", "list"]);
    let events = place.transcript(listed["threads"][0]["thread_id"].as_str().unwrap());
    let inputs: Vec<_> = events.iter().filter(|event| event["type"] == "user_input").collect();
    assert_eq!(inputs.len(), 1, "{inputs:?}");
    assert_eq!(inputs[0]["images"].as_array().map(Vec::len), Some(1), "{inputs:?}");
}

#[test]
fn unusable_image_is_explained_and_its_text_returns_to_the_editor() {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &talk_directive(9, ""));
    place.write("script.yaml", "steps: [{ text: One. }]");
    place.write("broken.png", "no image");
    let args = ["chat", "talk", "--script", "script.yaml"];
    let unset = [("WAYLAND_DISPLAY", ""), ("DISPLAY", ""), ("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")];
    let mut terminal = PtyTerminal::start(&place, (120, 24), &args, &unset);
    terminal.wait_for("Enter sends");
    terminal.press("\x16");
    terminal.wait_for("which SSH does not share");
    terminal.press("look at @broken.png\r");
    terminal.wait_for("cannot be sent");
    terminal.wait_for("> look at @broken.png");
    terminal.press("\x03");
    terminal.press("text only\r");
    terminal.wait_for("prompt 1 ");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn model_without_images_gets_a_text_in_their_place() {
    let wire = ApiFormat::Openai;
    let server = Recorder::start(vec![wire.text_reply()]);
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &talk_directive(9, "").replace("\"scripted\"", "\"local\""));
    place.write(
        ".ai/config/agent/providers/local.yaml",
        &format!(
            "id: local\nwire: {}\nbase_url: {}\ndefault_tier: fast\ntiers: {{ fast: m }}\nmodels:\n  \
             - {{ id: m, context_window: 200000, max_output: 2000, prices: {{ input: \"1\", output: \"5\" }} }}\n  \
             - {{ id: plain, context_window: 200000, max_output: 2000, images: false, prices: {{ input: \"1\", output: \"5\" }} }}\n",
            wire.names().0,
            server.url
        ),
    );
    std::fs::write(place.project().join("pixel.png"), pixel()).unwrap();
    let mut terminal = PtyTerminal::start(&place, (120, 40), &["chat", "talk"], &[]);
    terminal.wait_for("Enter sends");
    terminal.press("see @pixel.png\r");
    terminal.wait_for("prompt 1 ");
    terminal.press("/model plain confirm\r");
    terminal.wait_for("plain accepts no images: its requests state that the 1 image of the conversation");
    terminal.press("what was it\r");
    terminal.wait_for("prompt 2 ");
    terminal.press("\x04");
    let (_, rows, _) = terminal.end();
    assert!(rows.iter().any(|row| row == "sent with the image: pixel.png"), "{rows:#?}");
    let requests = server.requests.lock().unwrap();
    let bodies: Vec<String> = requests.iter().map(|one| String::from_utf8_lossy(&one.body).into_owned()).collect();
    assert!(bodies[0].contains("iVBORw0KGgo") && !bodies[1].contains("iVBORw0KGgo"), "{bodies:#?}");
    assert!(bodies[1].contains("an image of the user was left out"), "{bodies:#?}");
}
