//! Messages of a server that are dropped: too long, or not JSON.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_without_an_answer_names_the_message_that_was_dropped() {
    let Some(s) = Setup::new() else { return };
    let say = s.listed().await[1].sha256.clone();
    for (kind, reason) in [
        ("huge", "; it sent a message of more than 16 MiB, which was dropped; the outcome"),
        ("text", "; it sent a line that is not JSON: no message; the outcome"),
    ] {
        let outcome = s.call("say", &say, json!({"do": kind}), Duration::from_secs(5)).await;
        assert!(outcome.is_error && outcome.content.as_str().unwrap().contains(reason), "{outcome:?}");
    }
    // A later call does not name the message of an earlier call.
    let hanging = s.call("say", &say, json!({"do": "hang"}), Duration::from_secs(2)).await;
    assert!(hanging.content.as_str().unwrap().contains("within 2 seconds; the outcome"), "{hanging:?}");
}
