//! Tests of `write="…"` on the grants of file tools: the attribute bounds the writes of the thread and of its children.

use serde_json::{Value, json};

use super::{Lab, Status, calls, reply_text};
use crate::event::EventBody;

fn write(path: &str) -> (&'static str, Value) {
    ("rye_file_system_write", json!({"path": path, "content": "x\n"}))
}

#[tokio::test]
async fn file_tools_write_only_in_granted_folders_of_every_thread_of_the_chain() {
    let lab = Lab::new(|request| {
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => {
                let child = ("rye_execute", json!({"item_type": "directive", "item_id": "test/child"}));
                calls(&[write("out/a.txt"), write("notes/a.txt"), write("out/../b.txt"), write("outer/c.txt"), child])
            }
            ("test/child", 0) => calls(&[write("out/d.txt"), write("notes/d.txt")]),
            (directive, _) => reply_text(directive),
        })
    });
    let bounded = "<permissions><execute><tool write=\"out/\">rye.file-system.write</tool>\
         <directive>test.*</directive></execute></permissions>";
    lab.directive("parent", bounded, "");
    let unbounded = "<permissions><execute><tool>rye.file-system.write</tool></execute></permissions>";
    lab.directive("child", unbounded, "");
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!(result.status, Status::Completed);
    let exists = |path: &str| lab.path().join(path).exists();
    assert!(exists("out/a.txt") && exists("out/d.txt"));
    assert!(["notes", "b.txt", "outer"].iter().all(|path| !exists(path)));
    let mut refused = 0;
    for row in engine.threads().list().unwrap() {
        for event in engine.threads().transcript(&row.row.id).unwrap() {
            let EventBody::ToolCallResult(result) = &event.body else { continue };
            let text = serde_json::to_string(result).unwrap();
            refused += usize::from(
                text.contains(r#"is outside of write=\\\"out/\\\""#)
                    || text.contains(r#"is outside of write=\"out/\""#),
            );
        }
    }
    assert_eq!(refused, 4);
}
